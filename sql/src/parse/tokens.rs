//! A statement's text as tokens: split at semicolons, bounded in nesting, with own syntax made the
//! parser's.

use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, TokenizerError};
use types::{Error, Result};

use super::dialect::TidemillDialect;

/// Nested parentheses, subqueries and CASEs.
pub(crate) const NESTING_MAX: usize = 150;

/// Operators in one expression without parentheses: they nest to the left in the tree.
const CHAIN_MAX: usize = 4000;

/// Characters of the text that an error shows.
const NEAR_CHARS_MAX: usize = 80;

/// The text of one statement and its tokens.
pub(crate) struct StatementTokens {
    pub(crate) text: String,
    pub(crate) tokens: Vec<TokenWithSpan>,
    pub(crate) n_parameters: usize,
    /// Where its text ends in the source.
    pub(crate) end: usize,
}

/// The text, with a way from the tokenizer's lines and columns to bytes.
pub(crate) struct Source<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Source<'a> {
        let mut line_starts = vec![0];
        line_starts.extend(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1));
        Source { text, line_starts }
    }

    /// The byte offset of a location (lines and columns count from 1, columns in characters).
    pub(crate) fn offset(&self, location: Location) -> usize {
        let line = usize::try_from(location.line).unwrap_or(usize::MAX).saturating_sub(1);
        let Some(start) = self.line_starts.get(line).copied() else { return self.text.len() };
        let end = self.line_starts.get(line + 1).copied().unwrap_or(self.text.len());
        let column = usize::try_from(location.column).unwrap_or(usize::MAX).saturating_sub(1);
        let line_text = &self.text[start..end];
        if line_text.is_ascii() {
            return start + column.min(line_text.len());
        }
        line_text.char_indices().nth(column).map_or(end, |(at, _)| start + at)
    }

    /// A part of the text.
    pub(crate) fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// MySQL's syntax error for a location.
    pub(crate) fn error(&self, location: Option<Location>, why: &str) -> Error {
        let (near, line) = match location {
            Some(location) => {
                let rest = &self.text[self.offset(location)..];
                (rest.chars().take(NEAR_CHARS_MAX).collect::<String>(), location.line)
            }
            None => (String::new(), u64::try_from(self.line_starts.len()).unwrap_or(u64::MAX)),
        };
        let text = format!("you have an error in your SQL syntax near '{near}' at line {line}: {why}");
        Error::mysql(1064, text)
    }

    pub(crate) fn tokenizer_error(&self, error: &TokenizerError) -> Error {
        self.error(Some(error.location), &error.message)
    }

    /// The parser puts positions at the end of its messages.
    pub(crate) fn parser_error(&self, error: &ParserError) -> Error {
        match error {
            ParserError::RecursionLimitExceeded => {
                Error::mysql(1064, format!("statement is nested deeper than {NESTING_MAX} levels"))
            }
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
                let (why, location) = split_position(text);
                self.error(location, why)
            }
        }
    }
}

fn split_position(text: &str) -> (&str, Option<Location>) {
    let Some((why, position)) = text.rsplit_once(" at Line: ") else { return (text, None) };
    let Some((line, column)) = position.split_once(", Column: ") else { return (text, None) };
    match (line.parse(), column.trim().parse()) {
        (Ok(line), Ok(column)) => (why, Some(Location { line, column })),
        _ => (text, None),
    }
}

/// Splits a text into statements.
pub(crate) fn split(source: &Source<'_>) -> Result<Vec<StatementTokens>> {
    let tokens = Tokenizer::new(&TidemillDialect, source.text)
        .tokenize_with_location()
        .map_err(|error| source.tokenizer_error(&error))?;
    let mut statements = Vec::new();
    let mut current = Vec::new();
    for token in tokens {
        match token.token {
            Token::EOF => {}
            Token::SemiColon => add_statement(source, std::mem::take(&mut current), &mut statements)?,
            _ => current.push(token),
        }
    }
    add_statement(source, current, &mut statements)?;
    Ok(statements)
}

fn add_statement(
    source: &Source<'_>,
    tokens: Vec<TokenWithSpan>,
    statements: &mut Vec<StatementTokens>,
) -> Result<()> {
    let is_text = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    let (Some(first), Some(last)) = (tokens.iter().find(is_text), tokens.iter().rfind(is_text)) else {
        return Ok(());
    };
    let end = source.offset(last.span.end);
    let text = source.text[source.offset(first.span.start)..end].to_owned();
    check_depth(source, &tokens)?;
    let (tokens, n_parameters) = prepare(tokens);
    statements.push(StatementTokens { text, tokens, n_parameters, end });
    Ok(())
}

/// Refuses what would make a tree too deep to walk: the parser itself bounds only some of its recursion.
fn check_depth(source: &Source<'_>, tokens: &[TokenWithSpan]) -> Result<()> {
    let mut chains = vec![0_usize];
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => chains.push(0),
            Token::RParen | Token::RBracket => {
                chains.pop();
                if chains.is_empty() {
                    chains.push(0);
                }
            }
            Token::Comma => set_last(&mut chains, 0),
            Token::Word(word) if word.quote_style.is_none() && is_operator_word(&word.value) => {
                bump(&mut chains);
            }
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Word(_)
            | Token::Whitespace(_)
            | Token::Period
            | Token::Placeholder(_) => {}
            _ => bump(&mut chains),
        }
        let too_deep = chains.len() > NESTING_MAX || chains.last().is_some_and(|chain| *chain > CHAIN_MAX);
        if too_deep {
            return Err(source.error(Some(token.span.start), "the expression is too complex"));
        }
    }
    Ok(())
}

fn bump(chains: &mut [usize]) {
    if let Some(chain) = chains.last_mut() {
        *chain += 1;
    }
}

fn set_last(chains: &mut [usize], value: usize) {
    if let Some(chain) = chains.last_mut() {
        *chain = value;
    }
}

/// Words that add a level to the tree each time: operators, prefixes, and what joins selects and tables.
fn is_operator_word(word: &str) -> bool {
    const WORDS: [&str; 20] = [
        "and",
        "or",
        "xor",
        "not",
        "div",
        "mod",
        "like",
        "regexp",
        "rlike",
        "in",
        "is",
        "between",
        "case",
        "union",
        "except",
        "intersect",
        "join",
        "interval",
        "collate",
        "binary",
    ];
    word.len() <= 9 && WORDS.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Numbers the parameters and turns `AS OF TIMESTAMP` into what the parser knows.
fn prepare(tokens: Vec<TokenWithSpan>) -> (Vec<TokenWithSpan>, usize) {
    let mut n_parameters = 0;
    let mut prepared: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 1);
    let mut words = Vec::new();
    for mut token in tokens {
        match &mut token.token {
            Token::Placeholder(name) if name == "?" => {
                n_parameters += 1;
                *name = format!("?{n_parameters}");
                words.clear();
            }
            Token::Whitespace(_) => {}
            Token::Word(word) if word.quote_style.is_none() => {
                words.push((prepared.len(), word.value.to_ascii_lowercase()));
                let tail = words.len().saturating_sub(3);
                if matches!(&words[tail..], [(_, a), (_, b), (_, c)] if a == "as" && b == "of" && c == "timestamp")
                {
                    let first = words[tail].0;
                    let span = token.span;
                    prepared.truncate(first);
                    for word in ["FOR", "SYSTEM_TIME", "AS", "OF"] {
                        prepared.push(TokenWithSpan::new(Token::make_keyword(word), span));
                    }
                    words.clear();
                    continue;
                }
            }
            _ => words.clear(),
        }
        prepared.push(token);
    }
    (prepared, n_parameters)
}
