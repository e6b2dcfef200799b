//! INSERT, REPLACE, UPDATE and DELETE over base tables.
//!
//! A statement reads at its transaction's snapshot through the transaction's own writes, collects its
//! writes apart, and hands them over when it has succeeded as a whole. Rows are taken one after the other,
//! as MySQL does, so a duplicate key is found exactly where MySQL would find it.

mod buffer;
mod delete;
mod evaluate;
mod explain;
mod insert;
mod on_duplicate;
mod row_ids;
mod target;
mod update;

use sql::DivisionByZero;
use sqlparser::ast::Statement;
use types::{Error, Result, Timestamp};

use crate::{Engine, ReadSettings, Transaction};

pub(crate) use buffer::shown_key;
pub(crate) use row_ids::RowIds;

/// What a data change did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DmlResult {
    /// Rows that were inserted, deleted or really changed, as MySQL counts them.
    pub affected_rows: u64,
    /// Rows that the condition matched (`CLIENT_FOUND_ROWS` shows these).
    pub matched_rows: u64,
    /// MySQL's info string (`Records: 3  Duplicates: 0  Warnings: 0`).
    pub info: String,
    /// When it committed; `None` inside a transaction.
    pub commit_ts: Option<Timestamp>,
}

impl Engine {
    /// Runs one statement inside a transaction.
    pub(crate) async fn change(
        &self,
        settings: &ReadSettings,
        statement: &Statement,
        transaction: &mut Transaction,
    ) -> Result<DmlResult> {
        let ignores = matches!(statement, Statement::Insert(insert) if insert.ignore);
        let division_by_zero = match ignores {
            true => DivisionByZero::Null,
            false => DivisionByZero::in_change(&settings.sql_mode),
        };
        let settings = ReadSettings { division_by_zero, ..settings.clone() };
        let scope = self.scope(&settings, Some(transaction)).await?;
        // Boxed: these futures are large, and each session waits for one at a time.
        let (writes, result) = match statement {
            Statement::Insert(insert) => Box::pin(self.insert(scope, insert)).await?,
            Statement::Update(update) => Box::pin(self.update(scope, update)).await?,
            Statement::Delete(delete) => Box::pin(self.delete(scope, delete)).await?,
            other => {
                let text = other.to_string();
                let word = text.split_whitespace().next().unwrap_or_default().to_owned();
                return Err(Error::mysql(1235, format!("this version doesn't yet support '{word}' here")));
            }
        };
        transaction.add(writes);
        Ok(result)
    }
}

/// A refusal of a clause.
fn unsupported(what: &str) -> Error {
    Error::mysql(1235, format!("This version doesn't yet support '{what}'"))
}
