//! The batch engine's refusals in MySQL's words.
//!
//! Its planner tells what is wrong in texts only. Each that a query can meet is known here by its beginning and
//! becomes a number and a text of ours that names the thing; any other goes to the log, and the client is told
//! so. None reaches a client as it is.

use types::Error;

use crate::functions::wrong_count;
use crate::parse::unsupported;

/// What a refusal means; `None` if it is not known.
pub(super) fn translated(text: &str) -> Option<Error> {
    grouping(text).or_else(|| shape(text)).or_else(|| calls(text)).or_else(|| windows(text))
}

/// The text between two marks.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    Some(if after.is_empty() { rest } else { rest.split_once(after)?.0 })
}

/// Which clause names the column is added where the query is known (`clause`).
fn grouping(text: &str) -> Option<Error> {
    let column = || between(text, "column \"", "\"").unwrap_or("?").to_owned();
    if text.starts_with("Column in SELECT must be in GROUP BY") {
        return Some(Error::mysql(1055, format!("nonaggregated column '{}'", column())));
    }
    if text.starts_with("Column in ORDER BY must be in GROUP BY") {
        return Some(Error::mysql(
            1055,
            format!(
                "Expression of ORDER BY is not in GROUP BY clause and contains nonaggregated column '{}' which \
                 is not functionally dependent on columns in GROUP BY clause; this is incompatible with \
                 sql_mode=only_full_group_by",
                column()
            ),
        ));
    }
    if text.starts_with("Column in HAVING must be in GROUP BY") {
        return Some(Error::mysql(1054, format!("Unknown column '{}' in 'having clause'", column())));
    }
    if text.starts_with("HAVING clause references") {
        return Some(unsupported("HAVING in a query that neither groups nor aggregates: use WHERE"));
    }
    let misused = text.starts_with("Aggregate functions are not allowed in the WHERE clause")
        || text.starts_with("Aggregate function calls cannot be nested")
        || text.contains("does not support logical expression AggregateFunction");
    if misused {
        return Some(Error::mysql(1111, "Invalid use of group function"));
    }
    if text.starts_with("For SELECT DISTINCT, ORDER BY expressions") {
        let column = between(text, "ORDER BY expressions ", " must").unwrap_or("?");
        return Some(Error::mysql(
            3065,
            format!(
                "Expression of ORDER BY clause is not in SELECT list, references '{column}' which is not in \
                 SELECT list; this is incompatible with DISTINCT"
            ),
        ));
    }
    let position = |before, after, clause| {
        let position = between(text, before, after).unwrap_or("?");
        Error::mysql(1054, format!("Unknown column '{position}' in '{clause}'"))
    };
    if text.starts_with("Order by column out of bounds") {
        return Some(position("specified: ", ",", "order clause"));
    }
    if text.starts_with("Order by index starts at 1") {
        return Some(Error::mysql(1054, "Unknown column '0' in 'order clause'"));
    }
    text.starts_with("Cannot find column with position")
        .then(|| position("with position ", " ", "group statement"))
}

/// Numbers of columns, names of tables.
fn shape(text: &str) -> Option<Error> {
    if text.contains("queries have different number of columns") {
        return Some(Error::mysql(1222, "The used SELECT statements have a different number of columns"));
    }
    if text.starts_with("Too many columns!") {
        return Some(Error::mysql(1241, "Operand should contain 1 column(s)"));
    }
    if text.starts_with("Source table contains") {
        let text = "SELECT list and column names list have different column counts";
        return Some(Error::mysql(1353, text));
    }
    if text.starts_with("WITH query name") {
        let name = between(text, "name \"", "\"").unwrap_or("?");
        return Some(Error::mysql(1066, format!("Not unique table/alias: '{name}'")));
    }
    if text.starts_with("Recursive CTE is not implemented") {
        return Some(unsupported("a recursive CTE"));
    }
    if text.contains("LIMIT") && (text.starts_with("LIMIT must be") || text.starts_with("Expected LIMIT")) {
        return Some(Error::mysql(
            1064,
            "You have an error in your SQL syntax: LIMIT takes whole numbers from 0",
        ));
    }
    text.starts_with("Invalid HexStringLiteral").then(|| {
        let literal = between(text, "'", "'").unwrap_or("?");
        Error::mysql(1064, format!("You have an error in your SQL syntax near 'x'{literal}''"))
    })
}

/// Numbers and types of arguments.
fn calls(text: &str) -> Option<Error> {
    if text.contains("does not support zero arguments") {
        return Some(wrong_count(between(text, "'", "'").unwrap_or("?")));
    }
    if text.contains("argument but received") || text.contains("arguments but received") {
        return Some(wrong_count(between(text, "function '", "'").unwrap_or("?")));
    }
    if text.starts_with("Failed to coerce arguments") {
        let name = between(text, "call to '", "'").unwrap_or("?");
        return Some(Error::mysql(1210, format!("Incorrect arguments to {name}")));
    }
    if text.starts_with("NTILE requires") {
        return Some(Error::mysql(1210, "Incorrect arguments to ntile"));
    }
    if text.starts_with("Expected an integer value") || text.starts_with("There is no integer value") {
        return Some(Error::mysql(1210, "Incorrect arguments to a window function: expected a whole number"));
    }
    if text.starts_with("Invalid function") {
        let name = between(text, "Invalid function '", "'").unwrap_or("?");
        return Some(Error::mysql(1305, format!("FUNCTION {name} does not exist")));
    }
    text.contains("regex parse error").then(|| Error::mysql(3688, "Syntax error in regular expression"))
}

fn windows(text: &str) -> Option<Error> {
    if text.starts_with("The window ") && text.contains("is not defined") {
        let name = between(text, "The window ", " is not").unwrap_or("?");
        return Some(Error::mysql(3579, format!("Window name '{name}' is not defined.")));
    }
    if text.starts_with("Invalid window frame") {
        let text = "Window '<unnamed window>': frame start must not be behind its end";
        return Some(Error::mysql(3586, text));
    }
    text.contains("does not support logical expression WindowFunction").then(|| {
        let name = between(text, "name: \"", "\"").unwrap_or("?");
        Error::mysql(3593, format!("You cannot use the window function '{name}' in this context."))
    })
}
