//! Statements that sqlparser does not know, or knows otherwise than MySQL.

use std::collections::BTreeMap;

use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;
use types::Result;

use super::{
    Parsed, Source, expect_words, identifier, if_exists, if_not_exists, names, parenthesized_identifiers,
    session, show, statement as any_statement, table_name, take_words,
};
use crate::{AlterView, CreateMaterializedView, RefreshKind, RefreshMaterializedView, Show, Statement};

/// Parses an own statement, or nothing if the next words begin another.
pub(super) fn statement(parser: &mut Parser<'_>, source: &Source<'_>) -> Result<Option<Statement>> {
    if let Some(create) = create_view(parser, source).transpose() {
        return create.map(Some);
    }
    if take_words(parser, &["explain"]) || take_words(parser, &["describe"]) || take_words(parser, &["desc"])
    {
        return explain(parser, source).map(Some);
    }
    let parsed = simple(parser).map_err(|error| source.parser_error(&error))?;
    Ok(parsed)
}

fn simple(parser: &mut Parser<'_>) -> Parsed<Option<Statement>> {
    if take_words(parser, &["show"]) {
        return show::show(parser).map(Some);
    }
    if let Some(statement) = drops_and_creates(parser)? {
        return Ok(Some(statement));
    }
    if take_words(parser, &["alter", "materialized", "view"]) {
        let name = table_name(parser)?;
        return Ok(Some(Statement::AlterMaterializedView { name, action: alter_view(parser)? }));
    }
    if take_words(parser, &["optimize"]) {
        return optimize(parser).map(Some);
    }
    if take_words(parser, &["refresh", "materialized", "view"]) {
        return refresh(parser).map(|refresh| Some(Statement::RefreshMaterializedView(Box::new(refresh))));
    }
    if take_words(parser, &["verify", "materialized", "view"]) {
        return Ok(Some(Statement::VerifyMaterializedView { name: table_name(parser)? }));
    }
    session::statement(parser)
}

fn alter_view(parser: &mut Parser<'_>) -> Parsed<AlterView> {
    for (word, action) in
        [("resume", AlterView::Resume), ("suspend", AlterView::Suspend), ("cancel", AlterView::Cancel)]
    {
        if take_words(parser, &[word]) {
            return Ok(action);
        }
    }
    if take_words(parser, &["rename", "to"]) {
        return Ok(AlterView::Rename(table_name(parser)?));
    }
    if take_words(parser, &["cluster", "by", "none"]) {
        return Ok(AlterView::ClusterBy(Vec::new()));
    }
    if take_words(parser, &["cluster", "by"]) {
        return parenthesized_identifiers(parser).map(AlterView::ClusterBy);
    }
    if take_words(parser, &["recluster"]) {
        return Ok(AlterView::Recluster { at_once: take_words(parser, &["final"]) });
    }
    expect_words(parser, &["set"])?;
    parser.expect_token(&Token::LParen)?;
    let options = parser.parse_comma_separated(option)?.into_iter().collect();
    parser.expect_token(&Token::RParen)?;
    Ok(AlterView::Set(options))
}

fn optimize(parser: &mut Parser<'_>) -> Parsed<Statement> {
    // Said to a binary log, which there is none of.
    if !take_words(parser, &["no_write_to_binlog"]) {
        take_words(parser, &["local"]);
    }
    if !take_words(parser, &["tables"]) {
        expect_words(parser, &["table"])?;
    }
    let names = names(parser)?;
    let compact = take_words(parser, &["compact"]);
    Ok(Statement::OptimizeTable { names, compact })
}

fn refresh(parser: &mut Parser<'_>) -> Parsed<RefreshMaterializedView> {
    let name = table_name(parser)?;
    let kind = if take_words(parser, &["full"]) {
        RefreshKind::Full
    } else if take_words(parser, &["incremental"]) {
        RefreshKind::Incremental
    } else {
        RefreshKind::Auto
    };
    // AS OF TIMESTAMP, as the tokens have it by now.
    let as_of =
        take_words(parser, &["for", "system_time", "as", "of"]).then(|| parser.parse_expr()).transpose()?;
    Ok(RefreshMaterializedView { name, kind, as_of })
}

fn drops_and_creates(parser: &mut Parser<'_>) -> Parsed<Option<Statement>> {
    if take_words(parser, &["drop", "materialized", "view"]) {
        let if_exists = if_exists(parser);
        let names = names(parser)?;
        return Ok(Some(Statement::DropMaterializedView { if_exists, names, cascade: cascade(parser) }));
    }
    if take_words(parser, &["drop", "table"]) {
        let if_exists = if_exists(parser);
        let names = names(parser)?;
        return Ok(Some(Statement::DropTable { if_exists, names, cascade: cascade(parser) }));
    }
    if take_words(parser, &["drop", "database"]) || take_words(parser, &["drop", "schema"]) {
        let if_exists = if_exists(parser);
        return Ok(Some(Statement::DropDatabase { if_exists, name: identifier(parser)? }));
    }
    if take_words(parser, &["create", "database"]) || take_words(parser, &["create", "schema"]) {
        let if_not_exists = if_not_exists(parser);
        let name = identifier(parser)?;
        database_options(parser)?;
        return Ok(Some(Statement::CreateDatabase { if_not_exists, name }));
    }
    if take_words(parser, &["truncate", "table"]) || take_words(parser, &["truncate"]) {
        return Ok(Some(Statement::Truncate(table_name(parser)?)));
    }
    Ok(None)
}

fn cascade(parser: &mut Parser<'_>) -> bool {
    let cascade = parser.parse_keyword(Keyword::CASCADE);
    if !cascade {
        let _ = parser.parse_keyword(Keyword::RESTRICT);
    }
    cascade
}

/// `[DEFAULT] CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin`: what there is anyway.
fn database_options(parser: &mut Parser<'_>) -> Parsed<()> {
    loop {
        take_words(parser, &["default"]);
        let is_option = take_words(parser, &["character", "set"])
            || take_words(parser, &["charset"])
            || take_words(parser, &["collate"]);
        if !is_option {
            return Ok(());
        }
        let _ = parser.consume_token(&Token::Eq);
        let value = session::word_or_string(parser)?;
        super::table::check_charset(&value)?;
    }
}

fn create_view(parser: &mut Parser<'_>, source: &Source<'_>) -> Result<Option<Statement>> {
    let or_replace = take_words(parser, &["create", "or", "replace", "materialized", "view"]);
    if !or_replace && !take_words(parser, &["create", "materialized", "view"]) {
        return Ok(None);
    }
    let mut create = view_head(parser, or_replace).map_err(|error| source.parser_error(&error))?;
    create.query_start = source.offset(parser.peek_token_ref().span.start);
    let query = parser.parse_query().map_err(|error| source.parser_error(&error))?;
    create.query = *query;
    Ok(Some(Statement::CreateMaterializedView(Box::new(create))))
}

fn view_head(parser: &mut Parser<'_>, or_replace: bool) -> Parsed<CreateMaterializedView> {
    let if_not_exists = if_not_exists(parser);
    let name = table_name(parser)?;
    let mut columns = Vec::new();
    if matches!(parser.peek_token_ref().token, Token::LParen) {
        columns = parenthesized_identifiers(parser)?;
    }
    let mut cluster_by = Vec::new();
    let mut options = BTreeMap::new();
    loop {
        if take_words(parser, &["cluster", "by"]) {
            cluster_by = parenthesized_identifiers(parser)?;
        } else if matches!(parser.peek_nth_token_ref(1).token, Token::LParen) && take_words(parser, &["with"])
        {
            parser.expect_token(&Token::LParen)?;
            options = parser.parse_comma_separated(option)?.into_iter().collect();
            parser.expect_token(&Token::RParen)?;
        } else {
            break;
        }
    }
    expect_words(parser, &["as"])?;
    Ok(CreateMaterializedView {
        or_replace,
        if_not_exists,
        name,
        columns,
        cluster_by,
        options,
        query: empty_query(),
        query_text: String::new(),
        query_start: 0,
    })
}

/// A place for the query until it is parsed.
fn empty_query() -> sqlparser::ast::Query {
    use sqlparser::ast::{Query, SetExpr, Values};
    let body = Values { explicit_row: false, value_keyword: false, rows: Vec::new() };
    Query {
        with: None,
        body: Box::new(SetExpr::Values(body)),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

fn option(parser: &mut Parser<'_>) -> Parsed<(String, String)> {
    let name = identifier(parser)?.to_lowercase();
    parser.expect_token(&Token::Eq)?;
    Ok((name, session::word_or_string(parser)?))
}

/// EXPLAIN of a statement, or DESCRIBE of a table.
fn explain(parser: &mut Parser<'_>, source: &Source<'_>) -> Result<Statement> {
    let is_name = match &parser.peek_token_ref().token {
        Token::Word(word) => word.quote_style.is_some() || !is_statement_word(&word.value),
        _ => false,
    };
    if is_name {
        let table = table_name(parser).map_err(|error| source.parser_error(&error))?;
        let filter = show::described_column(parser).map_err(|error| source.parser_error(&error))?;
        return Ok(Statement::Show(Show::Columns { full: false, table, filter }));
    }
    let analyze = take_words(parser, &["analyze"]);
    if take_words(parser, &["format"]) {
        parser.expect_token(&Token::Eq).map_err(|error| source.parser_error(&error))?;
        session::word_or_string(parser).map_err(|error| source.parser_error(&error))?;
    }
    let statement = Box::new(any_statement(parser, source)?);
    Ok(Statement::Explain { analyze, statement })
}

fn is_statement_word(word: &str) -> bool {
    const WORDS: [&str; 13] = [
        "select", "with", "values", "table", "insert", "replace", "update", "delete", "create", "analyze",
        "format", "verify", "refresh",
    ];
    WORDS.iter().any(|known| known.eq_ignore_ascii_case(word))
}
