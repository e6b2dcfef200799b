//! LIKE and WHERE of SHOW, over rows of text.

use sql::ast::{BinaryOperator, Expr, UnaryOperator, Value};
use types::{Error, Result};

use super::Filter;
use crate::result::Rows;

/// Rows of text under names.
pub(super) struct Listing {
    names: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    /// The column that LIKE looks at.
    like_at: usize,
}

impl Listing {
    pub(super) fn new(names: &[&str], rows: Vec<Vec<Option<String>>>) -> Listing {
        Listing { names: names.iter().map(|name| (*name).to_owned()).collect(), rows, like_at: 0 }
    }

    /// The same, with another column for LIKE than the first.
    pub(super) fn liked_by(self, like_at: usize) -> Listing {
        Listing { like_at, ..self }
    }

    /// The rows that a filter leaves.
    ///
    /// # Errors
    /// 1054 for an unknown column, 1235 for an expression that is not understood here.
    pub(super) fn filtered(mut self, filter: Option<&Filter>) -> Result<Listing> {
        let Some(filter) = filter else { return Ok(self) };
        match filter {
            Filter::Like(pattern) | Filter::ILike(pattern) | Filter::NoKeyword(pattern) => {
                let like_at = self.like_at;
                self.rows.retain(|row| row[like_at].as_deref().is_some_and(|text| like(text, pattern)));
            }
            Filter::Where(condition) => {
                let mut kept = Vec::new();
                for row in std::mem::take(&mut self.rows) {
                    if self.truth(condition, &row)? == Some(true) {
                        kept.push(row);
                    }
                }
                self.rows = kept;
            }
        }
        Ok(self)
    }

    pub(super) fn into_rows(self) -> Rows {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        Rows::of_texts(&names, &self.rows)
    }

    /// Three-valued truth of a condition.
    fn truth(&self, condition: &Expr, row: &[Option<String>]) -> Result<Option<bool>> {
        Ok(match condition {
            Expr::Nested(inner) => self.truth(inner, row)?,
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => self.truth(expr, row)?.map(|truth| !truth),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                match (self.truth(left, row)?, self.truth(right, row)?) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                match (self.truth(left, row)?, self.truth(right, row)?) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                }
            }
            Expr::BinaryOp { left, op, right } => {
                let (left, right) = (self.text(left, row)?, self.text(right, row)?);
                let equal = left.zip(right).map(|(left, right)| left.eq_ignore_ascii_case(&right));
                match op {
                    BinaryOperator::Eq => equal,
                    BinaryOperator::NotEq => equal.map(|equal| !equal),
                    _ => return Err(unsupported(condition)),
                }
            }
            Expr::Like { negated, expr, pattern, .. } => {
                let pair = self.text(expr, row)?.zip(self.text(pattern, row)?);
                pair.map(|(text, pattern)| like(&text, &pattern) != *negated)
            }
            Expr::InList { expr, list, negated } => {
                let Some(text) = self.text(expr, row)? else { return Ok(None) };
                let mut found = false;
                for candidate in list {
                    let candidate = self.text(candidate, row)?;
                    found |= candidate.is_some_and(|candidate| candidate.eq_ignore_ascii_case(&text));
                }
                Some(found != *negated)
            }
            Expr::IsNull(inner) => Some(self.text(inner, row)?.is_none()),
            Expr::IsNotNull(inner) => Some(self.text(inner, row)?.is_some()),
            Expr::Value(_) => self.text(condition, row)?.map(|text| text != "0"),
            _ => return Err(unsupported(condition)),
        })
    }

    /// The text of a column or of a constant.
    fn text(&self, expression: &Expr, row: &[Option<String>]) -> Result<Option<String>> {
        match expression {
            Expr::Identifier(name) => {
                let at = self.names.iter().position(|known| known.eq_ignore_ascii_case(&name.value));
                let unknown =
                    || Error::mysql(1054, format!("Unknown column '{}' in 'where clause'", name.value));
                Ok(row[at.ok_or_else(unknown)?].clone())
            }
            Expr::Nested(inner) => self.text(inner, row),
            Expr::Value(value) => Ok(match &value.value {
                Value::Null => None,
                Value::Boolean(truth) => Some(if *truth { "1" } else { "0" }.to_owned()),
                Value::Number(number, _) => Some(number.to_string()),
                Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Some(text.clone()),
                _ => return Err(unsupported(expression)),
            }),
            _ => Err(unsupported(expression)),
        }
    }
}

fn unsupported(expression: &Expr) -> Error {
    Error::mysql(1235, format!("This version of Tidemill doesn't yet support '{expression}' in SHOW"))
}

/// Whether text is like a pattern: `%` any text, `_` one character, `\` takes the next as it is; without
/// regard to ASCII case.
pub(crate) fn like(text: &str, pattern: &str) -> bool {
    let text: Vec<char> = text.chars().map(|letter| letter.to_ascii_lowercase()).collect();
    let mut tokens = Vec::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        tokens.push(match letter {
            '%' => Token::Any,
            '_' => Token::One,
            '\\' => Token::Letter(letters.next().unwrap_or('\\').to_ascii_lowercase()),
            other => Token::Letter(other.to_ascii_lowercase()),
        });
    }
    like_tokens(&text, &tokens)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Any,
    One,
    Letter(char),
}

/// Greedy matching that goes back to the last `%` only, so that it is never exponential.
fn like_tokens(text: &[char], tokens: &[Token]) -> bool {
    let (mut at, mut token) = (0, 0);
    let mut resume: Option<(usize, usize)> = None;
    while at < text.len() {
        match tokens.get(token) {
            Some(Token::Any) => {
                resume = Some((at, token + 1));
                token += 1;
            }
            Some(Token::One) => {
                at += 1;
                token += 1;
            }
            Some(Token::Letter(letter)) if *letter == text[at] => {
                at += 1;
                token += 1;
            }
            _ => match resume {
                Some((from, after)) => {
                    at = from + 1;
                    token = after;
                    resume = Some((at, after));
                }
                None => return false,
            },
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (text, pattern, expected) in [
            ("autocommit", "auto%", true),
            ("autocommit", "AUTO%", true),
            ("autocommit", "%mit", true),
            ("autocommit", "%x%", false),
            ("a_b", r"a\_b", true),
            ("axb", r"a\_b", false),
            ("axb", "a_b", true),
            ("", "%", true),
            ("", "_", false),
            ("aaaa", "a%a%a", true),
            ("grün", "gr_n", true),
        ] {
            assert_eq!(like(text, pattern), expected, "{text} LIKE {pattern}");
        }
    }

    fn kept(condition: &str) -> Result<usize> {
        let row = |name: &str, value: Option<&str>| vec![Some(name.to_owned()), value.map(str::to_owned)];
        let rows = vec![row("a", Some("1")), row("b", None), row("ab", Some("ON"))];
        let listing = Listing::new(&["Variable_name", "Value"], rows);
        let condition = sql::parse_expression(condition, &sql::Settings::default())?;
        Ok(listing.filtered(Some(&Filter::Where(condition)))?.rows.len())
    }

    #[test]
    fn conditions_have_three_values() {
        assert_eq!(kept("Variable_name = 'A'").unwrap(), 1);
        assert_eq!(kept("variable_name LIKE 'a%' AND Value <> 'x'").unwrap(), 2);
        assert_eq!(kept("Value = '1' OR Variable_name IN ('b', 'c')").unwrap(), 2);
        assert_eq!(kept("NOT (Value = '1')").unwrap(), 1);
        assert_eq!(kept("Value IS NULL").unwrap(), 1);
        assert_eq!(kept("nothing = 1").unwrap_err().mysql_code(), Some(1054));
        assert_eq!(kept("Value > 1").unwrap_err().mysql_code(), Some(1235));
    }
}
