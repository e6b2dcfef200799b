//! From text to statements.

use sqlparser::ast;
use types::{Error, Result};

use crate::{Literal, ParsedStatement, Settings};

/// Parses the statements of a text, separated by semicolons.
///
/// # Errors
/// MySQL 1064 with the position of what is wrong.
pub fn parse(sql: &str, settings: &Settings) -> Result<Vec<ParsedStatement>> {
    let _ = (sql, settings);
    Err(Error::mysql(1064, "statements are not parsed yet"))
}

/// Parses one scalar expression (a DEFAULT, for example).
///
/// # Errors
/// MySQL 1064 with the position of what is wrong.
pub fn parse_expression(sql: &str, settings: &Settings) -> Result<ast::Expr> {
    let _ = (sql, settings);
    Err(Error::mysql(1064, "expressions are not parsed yet"))
}

/// Replaces every `?` of a statement, in order.
///
/// # Errors
/// MySQL 1210 if the number of values is not the number of parameters.
pub fn bind_parameters(statement: &ParsedStatement, values: &[Literal]) -> Result<ParsedStatement> {
    let _ = values;
    Ok(statement.clone())
}
