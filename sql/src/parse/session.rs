//! Statements on the session: transactions, SET, USE, KILL.

use sqlparser::ast::{Expr, Value};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::{Parsed, identifier, take_words};
use crate::{Literal, SetItem, SetScope, SetValue, Statement};

pub(super) fn statement(parser: &mut Parser<'_>) -> Parsed<Option<Statement>> {
    let statement = if take_words(parser, &["begin"]) {
        take_words(parser, &["work"]);
        Statement::Begin { read_only: None }
    } else if take_words(parser, &["start", "transaction"]) {
        Statement::Begin { read_only: transaction_modes(parser)? }
    } else if take_words(parser, &["commit"]) {
        take_words(parser, &["work"]);
        Statement::Commit
    } else if take_words(parser, &["rollback"]) {
        take_words(parser, &["work"]);
        Statement::Rollback
    } else if take_words(parser, &["use"]) {
        Statement::Use(identifier(parser)?)
    } else if take_words(parser, &["set"]) {
        Statement::Set(set(parser)?)
    } else if take_words(parser, &["kill"]) {
        kill(parser)?
    } else if is_nothing(parser) {
        while !matches!(parser.peek_token_ref().token, Token::EOF) {
            parser.advance_token();
        }
        Statement::Nothing
    } else {
        return Ok(None);
    };
    Ok(Some(statement))
}

/// What has no effect here and none that could be missed.
fn is_nothing(parser: &mut Parser<'_>) -> bool {
    take_words(parser, &["flush"])
        || take_words(parser, &["unlock", "tables"])
        || take_words(parser, &["analyze", "table"])
}

/// Characteristics of START TRANSACTION, separated by commas: whether it says READ ONLY.
fn transaction_modes(parser: &mut Parser<'_>) -> Parsed<Option<bool>> {
    let mut read_only = None;
    if matches!(parser.peek_token_ref().token, Token::EOF) {
        return Ok(read_only);
    }
    loop {
        if !take_words(parser, &["with", "consistent", "snapshot"]) {
            let mode = if take_words(parser, &["read", "only"]) {
                true
            } else if take_words(parser, &["read", "write"]) {
                false
            } else {
                return parser.expected_ref("a transaction characteristic", parser.peek_token_ref());
            };
            if read_only.is_some_and(|known| known != mode) {
                return parser.expected_ref("READ ONLY or READ WRITE, not both", parser.peek_token_ref());
            }
            read_only = Some(mode);
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(read_only);
        }
    }
}

fn kill(parser: &mut Parser<'_>) -> Parsed<Statement> {
    let query_only = take_words(parser, &["query"]);
    if !query_only {
        take_words(parser, &["tidb"]);
        take_words(parser, &["connection"]);
    }
    Ok(Statement::Kill { connection_id: parser.parse_literal_uint()?, query_only })
}

fn set(parser: &mut Parser<'_>) -> Parsed<Vec<SetItem>> {
    let mut items = Vec::new();
    loop {
        set_item(parser, &mut items)?;
        if !parser.consume_token(&Token::Comma) {
            return Ok(items);
        }
    }
}

fn set_item(parser: &mut Parser<'_>, items: &mut Vec<SetItem>) -> Parsed<()> {
    if take_words(parser, &["names"]) {
        return set_names(parser, items);
    }
    if take_words(parser, &["character", "set"]) || take_words(parser, &["charset"]) {
        let value = word_or_string(parser)?;
        items.push(session_item("names", &value));
        return Ok(());
    }
    let mut scope = SetScope::Session;
    if take_words(parser, &["global"]) {
        scope = SetScope::Global;
    } else if !take_words(parser, &["session"]) {
        take_words(parser, &["local"]);
    }
    if take_words(parser, &["transaction"]) {
        return set_transaction(parser, scope, items);
    }
    let (scope, name) = variable(parser, scope)?;
    if !parser.consume_token(&Token::Eq) && !parser.consume_token(&Token::Assignment) {
        return parser.expected_ref("= or :=", parser.peek_token_ref());
    }
    items.push(SetItem { scope, name, value: set_value(parser)? });
    Ok(())
}

fn session_item(name: &str, value: &str) -> SetItem {
    let value = Some(SetValue::Literal(Literal::String(value.to_owned())));
    SetItem { scope: SetScope::Session, name: name.to_owned(), value }
}

fn set_names(parser: &mut Parser<'_>, items: &mut Vec<SetItem>) -> Parsed<()> {
    let charset = word_or_string(parser)?;
    items.push(session_item("names", &charset));
    if take_words(parser, &["collate"]) {
        let collation = word_or_string(parser)?;
        items.push(session_item("collation_connection", &collation));
    }
    Ok(())
}

fn set_transaction(parser: &mut Parser<'_>, scope: SetScope, items: &mut Vec<SetItem>) -> Parsed<()> {
    loop {
        if take_words(parser, &["isolation", "level"]) {
            let mut words = Vec::new();
            while let Token::Word(word) = &parser.peek_token_ref().token {
                words.push(word.value.to_uppercase());
                parser.advance_token();
            }
            let mut item = session_item("transaction_isolation", &words.join("-"));
            item.scope = scope;
            items.push(item);
        } else if take_words(parser, &["read", "only"]) {
            items.push(SetItem { scope, ..session_item("transaction_read_only", "ON") });
        } else if take_words(parser, &["read", "write"]) {
            items.push(SetItem { scope, ..session_item("transaction_read_only", "OFF") });
        } else {
            return parser.expected_ref("a transaction characteristic", parser.peek_token_ref());
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(());
        }
    }
}

/// `name`, `@@name`, `@@session.name`, `@name`.
fn variable(parser: &mut Parser<'_>, scope: SetScope) -> Parsed<(SetScope, String)> {
    let word = identifier(parser)?.to_lowercase();
    if let Some(system) = word.strip_prefix("@@") {
        let scope = match system {
            "global" => Some(SetScope::Global),
            "session" | "local" => Some(SetScope::Session),
            _ => None,
        };
        if let Some(scope) = scope.filter(|_| parser.consume_token(&Token::Period)) {
            return Ok((scope, identifier(parser)?.to_lowercase()));
        }
        return Ok((SetScope::Session, system.to_owned()));
    }
    match word.strip_prefix('@') {
        Some(user) => Ok((SetScope::User, user.to_owned())),
        None => Ok((scope, word)),
    }
}

fn set_value(parser: &mut Parser<'_>) -> Parsed<Option<SetValue>> {
    // A lone word is a string, whatever keyword it is: ON, OFF, utf8mb4, fresh.
    let is_end = matches!(parser.peek_nth_token_ref(1).token, Token::Comma | Token::EOF);
    if let (Token::Word(word), true) = (&parser.peek_token_ref().token, is_end) {
        let word = word.value.clone();
        if !word.starts_with('@') {
            parser.advance_token();
            return Ok(match word.to_lowercase().as_str() {
                "default" => None,
                "null" => Some(SetValue::Literal(Literal::Null)),
                "true" => Some(SetValue::Literal(Literal::Int(1))),
                "false" => Some(SetValue::Literal(Literal::Int(0))),
                _ => Some(SetValue::Literal(Literal::String(word))),
            });
        }
    }
    let expr = parser.parse_expr()?;
    Ok(Some(match literal(&expr) {
        Some(literal) => SetValue::Literal(literal),
        None => SetValue::Expression(Box::new(expr)),
    }))
}

fn literal(expr: &Expr) -> Option<Literal> {
    let Expr::Value(value) = expr else { return None };
    match &value.value {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => {
            Some(Literal::String(text.clone()))
        }
        Value::Number(text, _) => match text.parse() {
            Ok(number) => Some(Literal::Int(number)),
            Err(_) => Some(text.parse().map_or_else(|_| Literal::Decimal(text.clone()), Literal::UInt)),
        },
        _ => None,
    }
}

/// A word or a string, as text.
pub(super) fn word_or_string(parser: &mut Parser<'_>) -> Parsed<String> {
    let token = parser.next_token();
    match token.token {
        Token::Word(word) => Ok(word.value),
        Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => Ok(text),
        Token::Number(text, _) => Ok(text),
        Token::EOF => Err(ParserError::ParserError("expected a word or a string, found the end".to_owned())),
        _ => parser.expected("a word or a string", token),
    }
}
