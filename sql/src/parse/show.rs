//! SHOW in MySQL's forms.

use sqlparser::ast::ShowStatementFilter;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::{Parsed, identifier, if_not_exists, table_name, take_words};
use crate::{Show, Statement, TableName};

type Filter = Option<ShowStatementFilter>;

pub(super) fn show(parser: &mut Parser<'_>) -> Parsed<Statement> {
    let global = take_words(parser, &["global"]);
    if !global && !take_words(parser, &["session"]) {
        take_words(parser, &["local"]);
    }
    let full = take_words(parser, &["full"]);
    if take_words(parser, &["create"]) {
        return show_create(parser).map(Statement::Show);
    }
    if take_words(parser, &["variables"]) {
        return Ok(Statement::Show(Show::Variables { global, filter: filter(parser)? }));
    }
    let show = match listing(parser, full)? {
        Some(show) => show,
        None => about_server(parser)?,
    };
    Ok(Statement::Show(show))
}

fn show_create(parser: &mut Parser<'_>) -> Parsed<Show> {
    if take_words(parser, &["table"]) {
        return table_name(parser).map(Show::CreateTable);
    }
    if take_words(parser, &["materialized", "view"]) || take_words(parser, &["view"]) {
        let name = table_name(parser)?;
        let is_physical = take_words(parser, &["physical"]);
        return Ok(if is_physical { Show::PhysicalView(name) } else { Show::CreateView(name) });
    }
    if take_words(parser, &["database"]) || take_words(parser, &["schema"]) {
        if_not_exists(parser);
        return identifier(parser).map(Show::CreateDatabase);
    }
    parser.expected_ref("TABLE, MATERIALIZED VIEW or DATABASE", parser.peek_token_ref())
}

fn listing(parser: &mut Parser<'_>, full: bool) -> Parsed<Option<Show>> {
    let show = if take_words(parser, &["databases"]) || take_words(parser, &["schemas"]) {
        Show::Databases(filter(parser)?)
    } else if take_words(parser, &["tables"]) {
        let database = database(parser)?;
        Show::Tables { full, database, filter: filter(parser)? }
    } else if take_words(parser, &["table", "status"]) {
        let database = database(parser)?;
        Show::TableStatus { database, filter: filter(parser)? }
    } else if take_words(parser, &["materialized", "views"]) {
        let database = database(parser)?;
        Show::MaterializedViews { database, filter: filter(parser)? }
    } else if take_words(parser, &["columns"]) || take_words(parser, &["fields"]) {
        let table = table_from(parser)?;
        Show::Columns { full, table, filter: filter(parser)? }
    } else if take_words(parser, &["index"])
        || take_words(parser, &["indexes"])
        || take_words(parser, &["keys"])
    {
        let table = table_from(parser)?;
        filter(parser)?;
        Show::Index(table)
    } else {
        return Ok(None);
    };
    Ok(Some(show))
}

fn about_server(parser: &mut Parser<'_>) -> Parsed<Show> {
    let show = if take_words(parser, &["status"]) {
        Show::Status(filter(parser)?)
    } else if take_words(parser, &["warnings"]) {
        limit(parser)?;
        Show::Warnings
    } else if take_words(parser, &["errors"]) {
        limit(parser)?;
        Show::Errors
    } else if take_words(parser, &["processlist"]) {
        Show::ProcessList
    } else if take_words(parser, &["engines"]) || take_words(parser, &["storage", "engines"]) {
        Show::Engines
    } else if take_words(parser, &["plugins"]) {
        Show::Plugins
    } else if take_words(parser, &["collation"]) {
        Show::Collation(filter(parser)?)
    } else if take_words(parser, &["character", "set"]) || take_words(parser, &["charset"]) {
        Show::CharacterSet(filter(parser)?)
    } else if take_words(parser, &["grants"]) {
        if take_words(parser, &["for"]) {
            while !matches!(parser.peek_token_ref().token, Token::EOF) {
                parser.advance_token();
            }
        }
        Show::Grants
    } else {
        return always_empty(parser);
    };
    Ok(show)
}

fn always_empty(parser: &mut Parser<'_>) -> Parsed<Show> {
    for words in [&["triggers"][..], &["events"], &["procedure", "status"], &["function", "status"]] {
        if take_words(parser, words) {
            database(parser)?;
            filter(parser)?;
            return Ok(Show::Empty(words[0].to_owned()));
        }
    }
    parser.expected_ref("something that SHOW shows", parser.peek_token_ref())
}

fn database(parser: &mut Parser<'_>) -> Parsed<Option<String>> {
    if parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::IN]).is_none() {
        return Ok(None);
    }
    identifier(parser).map(Some)
}

/// `FROM table [FROM database]`.
fn table_from(parser: &mut Parser<'_>) -> Parsed<TableName> {
    parser.expect_one_of_keywords(&[Keyword::FROM, Keyword::IN])?;
    let table = table_name(parser)?;
    match database(parser)? {
        Some(database) => Ok(TableName { database: Some(database), ..table }),
        None => Ok(table),
    }
}

fn filter(parser: &mut Parser<'_>) -> Parsed<Filter> {
    if parser.parse_keyword(Keyword::LIKE) {
        return Ok(Some(ShowStatementFilter::Like(parser.parse_literal_string()?)));
    }
    if parser.parse_keyword(Keyword::WHERE) {
        return Ok(Some(ShowStatementFilter::Where(parser.parse_expr()?)));
    }
    Ok(None)
}

/// `DESCRIBE table [column | 'pattern']`.
pub(super) fn described_column(parser: &mut Parser<'_>) -> Parsed<Filter> {
    match parser.peek_token_ref().token {
        Token::EOF => Ok(None),
        Token::SingleQuotedString(_) => Ok(Some(ShowStatementFilter::Like(parser.parse_literal_string()?))),
        _ => Ok(Some(ShowStatementFilter::Like(identifier(parser)?))),
    }
}

fn limit(parser: &mut Parser<'_>) -> Parsed<()> {
    if parser.parse_keyword(Keyword::LIMIT) {
        parser.parse_number_value()?;
        if parser.consume_token(&Token::Comma) {
            parser.parse_number_value()?;
        }
    }
    Ok(())
}
