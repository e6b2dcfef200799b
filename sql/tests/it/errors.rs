//! What is refused has MySQL's number and names the thing; nothing of the batch engine's shows.

use crate::world::World;

fn world() -> World {
    World::with(&[
        "CREATE TABLE t (id INT PRIMARY KEY, g INT, v INT, s VARCHAR(10), d DATE)",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1, 1, 'a', NULL), (2, 1, 2, 'b', NULL)",
    ])
}

/// Words of the engine's own texts.
const FOREIGN: [&str; 14] = [
    "Error during planning",
    "Schema error",
    "Arrow error",
    "Execution error",
    "External error",
    "Internal error",
    "DataFusion",
    "While expanding",
    "WindowFunction",
    "AggregateFunction",
    "No function matches",
    "Int64",
    "Utf8",
    "$",
];

#[track_caller]
fn check(query: &str, code: u16, part: &str) {
    let error = world().query(query).unwrap_err();
    assert_eq!(error.mysql_code(), Some(code), "{query}: {error}");
    assert!(error.message().contains(part), "{query}: {error}");
    for foreign in FOREIGN {
        assert!(!error.message().contains(foreign), "{query}: {error}");
    }
}

#[test]
fn what_is_not_grouped_is_named() {
    let grouped = "is not in GROUP BY clause and contains nonaggregated column 't.v'";
    check("SELECT g, v FROM t GROUP BY g", 1055, &format!("Expression #2 of SELECT list {grouped}"));
    check("SELECT v + 1 FROM t GROUP BY g", 1055, &format!("Expression #1 of SELECT list {grouped}"));
    check("SELECT COUNT(*) FROM t GROUP BY g ORDER BY v", 1055, "ORDER BY");
    check("SELECT x FROM (SELECT g AS x, v FROM t GROUP BY g) q", 1055, "Expression #2 of SELECT list");
    let ungrouped =
        "In aggregated query without GROUP BY, expression #1 of SELECT list contains nonaggregated";
    check("SELECT v, COUNT(*) FROM t", 1140, ungrouped);
    check("SELECT *, COUNT(*) FROM t", 1140, "'t.id'");
    check("SELECT g FROM t GROUP BY g HAVING v > 1", 1054, "Unknown column 't.v' in 'having clause'");
    check("SELECT v FROM t HAVING v > 1", 1235, "HAVING");
    check("SELECT DISTINCT g FROM t ORDER BY v", 3065, "'t.v'");
    check("SELECT v FROM t WHERE SUM(v) > 1", 1111, "Invalid use of group function");
    check("SELECT SUM(SUM(v)) FROM t", 1111, "Invalid use of group function");
    check("SELECT v FROM t GROUP BY SUM(v)", 1111, "Invalid use of group function");
    check("SELECT SUM(v) FROM t GROUP BY 1", 1056, "Can't group on 'sum(v)'");
}

#[test]
fn unknown_columns_are_named_with_their_clause() {
    for (query, column, clause) in [
        ("SELECT nope FROM t", "nope", "field list"),
        ("SELECT t.nope + 1 FROM t", "t.nope", "field list"),
        ("SELECT x.v FROM t", "x.v", "field list"),
        ("SELECT v FROM t WHERE nope = 1", "nope", "where clause"),
        ("SELECT t.v FROM t JOIN u ON nope = 1", "nope", "on clause"),
        ("SELECT v FROM t GROUP BY nope", "nope", "group statement"),
        ("SELECT g FROM t GROUP BY g HAVING nope > 1", "nope", "having clause"),
        ("SELECT v FROM t ORDER BY nope", "nope", "order clause"),
        ("SELECT v FROM t ORDER BY 5", "5", "order clause"),
        ("SELECT v FROM t GROUP BY 5", "5", "group statement"),
        ("SELECT SUM(v) OVER (PARTITION BY nope) FROM t", "nope", "field list"),
        ("SELECT v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.v = nope)", "nope", "where clause"),
        ("SELECT v FROM t WHERE v IN (SELECT nope FROM u)", "nope", "field list"),
        ("SELECT v FROM (SELECT v FROM t WHERE nope) q", "nope", "where clause"),
        ("WITH c AS (SELECT v FROM t ORDER BY nope) SELECT * FROM c", "nope", "order clause"),
        ("SELECT t.v FROM t JOIN u USING (nope)", "nope", "from clause"),
    ] {
        check(query, 1054, &format!("Unknown column '{column}' in '{clause}'"));
        let error = world().plan_view(query).unwrap_err();
        assert!(matches!(error.mysql_code(), Some(1054 | 1235)), "view {query}: {error}");
    }
}

#[test]
fn calls_are_refused_by_name() {
    check("SELECT nosuch(1)", 1305, "FUNCTION nosuch does not exist");
    check("SELECT test.nosuch(1)", 1305, "FUNCTION test.nosuch does not exist");
    check("SELECT nosuch(v) OVER (ORDER BY v) FROM t", 1305, "nosuch");
    for (call, name) in [
        ("ABS()", "abs"),
        ("ABS(1, 2)", "abs"),
        ("CONCAT()", "concat"),
        ("IF(1, 2)", "if"),
        ("IFNULL(1)", "ifnull"),
        ("COALESCE()", "coalesce"),
        ("NULLIF(1)", "nullif"),
        ("DATE_ADD('2020-01-01')", "date_add"),
        ("NOW(1, 2)", "now"),
        ("DATABASE(1)", "database"),
        ("SUM()", "sum"),
        ("COUNT()", "count"),
        ("SUM(v, g)", "sum"),
        ("LAG() OVER (ORDER BY v)", "lag"),
        ("ROW_NUMBER(1) OVER (ORDER BY v)", "row_number"),
        ("NTILE() OVER (ORDER BY v)", "ntile"),
    ] {
        let text = format!("Incorrect parameter count in the call to native function '{name}'");
        check(&format!("SELECT {call} FROM t"), 1582, &text);
    }
    check("SELECT NTILE('x') OVER (ORDER BY v) FROM t", 1210, "ntile");
    check("SELECT NTILE(0) OVER (ORDER BY v) FROM t", 1210, "ntile");
    check("SELECT LAG(v, 'a') OVER (ORDER BY v) FROM t", 1210, "window function");
    check("SELECT s REGEXP '(' FROM t", 3688, "regular expression");
}

#[test]
fn windows_are_refused_by_name() {
    check("SELECT RANK() OVER w FROM t", 3579, "Window name 'w' is not defined");
    check("SELECT v FROM t WHERE RANK() OVER (ORDER BY v) = 1", 3593, "window function 'rank'");
    let frame = "SELECT SUM(v) OVER (ORDER BY v ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING) FROM t";
    check(frame, 3586, "frame");
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    check("SELECT id FROM t UNION SELECT id, v FROM u", 1222, "different number of columns");
    check("SELECT (SELECT id, v FROM t)", 1241, "Operand should contain 1 column(s)");
    check("SELECT id FROM t WHERE id IN (SELECT id, v FROM t)", 1241, "Operand should contain 1 column(s)");
    check("SELECT (SELECT id FROM t)", 1242, "more than 1 row");
    check("SELECT t.v FROM t, t", 1066, "Not unique table/alias: 't'");
    check("SELECT a.v FROM t a JOIN u A ON 1 = 1", 1066, "Not unique table/alias: 'A'");
    check("WITH c AS (SELECT 1 AS x), c AS (SELECT 2 AS x) SELECT * FROM c", 1066, "'c'");
    check("SELECT * FROM (SELECT 1, 2) AS q (a)", 1353, "different column counts");
    check("SELECT v FROM t LIMIT -1", 1064, "LIMIT");
    check("SELECT v FROM t LIMIT 'a'", 1064, "LIMIT");
    check("SELECT v FROM t LIMIT v", 1327, "Undeclared variable: v");
    check("SELECT x'zz'", 1064, "zz");
    let recursive =
        "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 5) SELECT * FROM c";
    check(recursive, 1235, "recursive CTE");
}

#[test]
fn numbers_beyond_their_bounds() {
    check("SELECT id FROM t ORDER BY 0", 1054, "Unknown column '0' in 'order clause'");
    check(&format!("SELECT {}", "9".repeat(66)), 1690, "DECIMAL value is out of range");
    check(&format!("SELECT 1.{}", "9".repeat(70)), 1690, "DECIMAL value is out of range");
    let world = world();
    world.check_live("SELECT id FROM t LIMIT 18446744073709551615", &["1", "2"]);
    world.check_live("SELECT id FROM t ORDER BY id LIMIT 1, 18446744073709551615", &["2"]);
    world.check_live("SELECT id FROM t ORDER BY id LIMIT 1 OFFSET 18446744073709551615", &[]);
    world.check_live(
        "SELECT 000000000000000000000000000000000000000000000000000000000000000000000001",
        &["1"],
    );
}
