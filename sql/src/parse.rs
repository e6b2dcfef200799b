//! From text to statements.
//!
//! Own statements and those that MySQL writes in its own way (SHOW, SET, transactions) are parsed here,
//! word by word; everything else by sqlparser under our dialect. Errors are MySQL's 1064 with position.

mod bind;
mod dialect;
mod own;
mod session;
mod show;
mod table;
mod tokens;

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};
use types::{Error, Result};

pub(crate) use bind::literal_expr;
pub use bind::{bind, bind_nulls};
pub(crate) use table::decimal_type;
pub(crate) use tokens::Source;

use crate::{ParsedStatement, QueryStatement, Settings, Statement, TableName};
use dialect::TidemillDialect;
use tokens::{NESTING_MAX, StatementTokens};

/// What the functions of this module fail with, before the position is known.
type Parsed<T> = std::result::Result<T, ParserError>;

/// Parses the statements of a text, separated by semicolons.
///
/// # Errors
/// MySQL 1064 with the position of what is wrong.
pub fn parse(sql: &str, settings: &Settings) -> Result<Vec<ParsedStatement>> {
    let _ = settings;
    let source = Source::new(sql);
    crate::stack::with_room(|| {
        tokens::split(&source)?.into_iter().map(|tokens| parse_statement(&source, tokens)).collect()
    })
}

/// Parses one scalar expression (a DEFAULT, for example).
///
/// # Errors
/// MySQL 1064 with the position of what is wrong.
pub fn parse_expression(sql: &str, settings: &Settings) -> Result<ast::Expr> {
    let _ = settings;
    let source = Source::new(sql);
    crate::stack::with_room(|| {
        let mut statements = tokens::split(&source)?;
        let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
            return Err(source.error(None, "expected one expression"));
        };
        let mut parser = parser(statement.tokens);
        let expr = parser.parse_expr().and_then(|expr| expect_end(&mut parser).map(|()| expr));
        expr.map_err(|error| source.parser_error(&error))
    })
}

/// Parses a query that is known to be one (a view's stored text).
pub(crate) fn parse_query(sql: &str) -> Result<ast::Query> {
    let source = Source::new(sql);
    let mut statements = tokens::split(&source)?;
    let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
        return Err(source.error(None, "expected one query"));
    };
    let mut parser = parser(statement.tokens);
    let query = parser.parse_query().and_then(|query| expect_end(&mut parser).map(|()| query));
    query.map(|query| *query).map_err(|error| source.parser_error(&error))
}

fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    static DIALECT: TidemillDialect = TidemillDialect;
    Parser::new(&DIALECT).with_recursion_limit(NESTING_MAX * 2).with_tokens_with_locations(tokens)
}

fn parse_statement(source: &Source<'_>, tokens: StatementTokens) -> Result<ParsedStatement> {
    let StatementTokens { text, tokens, n_parameters, end } = tokens;
    let mut parser = parser(tokens);
    let mut statement = statement(&mut parser, source)?;
    expect_end(&mut parser).map_err(|error| source.parser_error(&error))?;
    if let Statement::CreateMaterializedView(create) = &mut statement {
        // The query goes on to the end of the statement.
        create.query_text = source.slice(create.query_start, end).to_owned();
    }
    Ok(ParsedStatement { statement, text, n_parameters })
}

/// Parses one statement at the parser's position.
fn statement(parser: &mut Parser<'_>, source: &Source<'_>) -> Result<Statement> {
    if let Some(own) = own::statement(parser, source)? {
        return Ok(own);
    }
    let parsed = parser.parse_statement().map_err(|error| source.parser_error(&error))?;
    from_sqlparser(parsed)
}

fn from_sqlparser(statement: ast::Statement) -> Result<Statement> {
    match statement {
        ast::Statement::Query(query) => query_statement(*query),
        ast::Statement::Insert(insert) => Ok(Statement::Insert(Box::new(insert))),
        ast::Statement::Update(update) => Ok(Statement::Update(Box::new(update))),
        ast::Statement::Delete(delete) => Ok(Statement::Delete(Box::new(delete))),
        ast::Statement::CreateTable(create) => table::create_table(create),
        ast::Statement::CreateView(_) => Err(unsupported("CREATE VIEW without MATERIALIZED")),
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            Err(unsupported(&words.join(" ")))
        }
    }
}

fn query_statement(mut query: ast::Query) -> Result<Statement> {
    let as_of = bind::take_as_of(&mut query)?;
    Ok(Statement::Query(Box::new(QueryStatement { query, as_of })))
}

/// The error for statements and clauses that are not there.
pub(crate) fn unsupported(what: &str) -> Error {
    Error::mysql(1235, format!("this version of Tidemill doesn't yet support '{what}'"))
}

fn expect_end(parser: &mut Parser<'_>) -> Parsed<()> {
    match parser.peek_token_ref().token {
        Token::EOF => Ok(()),
        _ => parser.expected_ref("end of statement", parser.peek_token_ref()),
    }
}

/// Takes words if they all come next, whatever keywords they are to sqlparser.
fn take_words(parser: &mut Parser<'_>, words: &[&str]) -> bool {
    for (index, word) in words.iter().enumerate() {
        match &parser.peek_nth_token_ref(index).token {
            Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word) => {}
            _ => return false,
        }
    }
    for _ in words {
        parser.advance_token();
    }
    true
}

fn expect_words(parser: &mut Parser<'_>, words: &[&str]) -> Parsed<()> {
    if take_words(parser, words) {
        return Ok(());
    }
    parser.expected_ref(&words.join(" ").to_uppercase(), parser.peek_token_ref())
}

fn table_name(parser: &mut Parser<'_>) -> Parsed<TableName> {
    to_table_name(&parser.parse_object_name(false)?)
}

/// A name of one or two parts.
pub(crate) fn to_table_name(name: &ast::ObjectName) -> Parsed<TableName> {
    let mut parts = Vec::with_capacity(name.0.len());
    for part in &name.0 {
        match part {
            ast::ObjectNamePart::Identifier(ident) => parts.push(ident.value.clone()),
            ast::ObjectNamePart::Function(_) => {
                return Err(ParserError::ParserError(format!("'{name}' is not a table's name")));
            }
        }
    }
    match parts.as_slice() {
        [name] => Ok(TableName { database: None, name: name.clone() }),
        [database, name] => Ok(TableName { database: Some(database.clone()), name: name.clone() }),
        _ => Err(ParserError::ParserError(format!("'{name}' has too many parts for a table's name"))),
    }
}

fn names(parser: &mut Parser<'_>) -> Parsed<Vec<TableName>> {
    parser.parse_comma_separated(table_name)
}

fn identifier(parser: &mut Parser<'_>) -> Parsed<String> {
    Ok(parser.parse_identifier()?.value)
}

fn parenthesized_identifiers(parser: &mut Parser<'_>) -> Parsed<Vec<String>> {
    parser.expect_token(&Token::LParen)?;
    let names = parser.parse_comma_separated(identifier)?;
    parser.expect_token(&Token::RParen)?;
    Ok(names)
}

fn if_exists(parser: &mut Parser<'_>) -> bool {
    parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS])
}

fn if_not_exists(parser: &mut Parser<'_>) -> bool {
    parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS])
}
