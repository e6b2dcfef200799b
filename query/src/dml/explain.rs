//! EXPLAIN of a data change: the table that it writes, and how the rows for it are read.

use std::sync::Arc;

use sql::{Literal, bind};
use sqlparser::ast::{Insert, Statement};
use types::Result;

use super::delete::deleted;
use super::insert::{column_count, inserted, plain_values};
use super::unsupported;
use super::update::{Selection, updated};
use crate::explain::{lines_result, plan_lines};
use crate::names::Scope;
use crate::point::NamedTable;
use crate::{Engine, QueryResult, ReadSettings, Transaction, ViewPath};

/// The lines of an explained change, and the paths of the views that it reads.
type Explained = (Vec<String>, Vec<ViewPath>);

impl Engine {
    /// Explains an INSERT, REPLACE, UPDATE or DELETE without running it.
    ///
    /// # Errors
    /// What planning the change refuses.
    pub async fn explain_change(
        &self,
        settings: &ReadSettings,
        statement: &Statement,
        transaction: Option<&Transaction>,
        parameters: &[Literal],
    ) -> Result<QueryResult> {
        let statement = bind(statement, parameters)?;
        let scope = self.scope(settings, transaction).await?;
        let (lines, paths) = match &statement {
            Statement::Insert(insert) => self.explain_insert(&scope, insert).await?,
            Statement::Update(update) => {
                let (table, _, selection) = updated(&scope, update)?;
                self.explain_rows(&scope, &table, &selection, "Update").await?
            }
            Statement::Delete(delete) => {
                let (table, selection) = deleted(&scope, delete)?;
                self.explain_rows(&scope, &table, &selection, "Delete").await?
            }
            _ => return Err(unsupported("EXPLAIN of other than queries and changes")),
        };
        lines_result(lines, scope.at, paths)
    }

    async fn explain_rows(
        &self,
        scope: &Scope,
        table: &NamedTable,
        selection: &Selection<'_>,
        verb: &str,
    ) -> Result<Explained> {
        let heading = format!("{verb}: {}", table.definition.full_name());
        if selection.point(table).is_some() {
            return Ok((vec![heading, "  PointGet: 1 row by its primary key".to_owned()], Vec::new()));
        }
        let planned = self.plan_rows(scope, table, selection).await?;
        let read = plan_lines(&planned);
        Ok((under(heading, read), planned.paths))
    }

    async fn explain_insert(&self, scope: &Scope, insert: &Insert) -> Result<Explained> {
        let (definition, named) = inserted(scope, insert)?;
        let verb = if insert.replace_into { "Replace" } else { "Insert" };
        let heading = format!("{verb}: {}", definition.full_name());
        let values = |n_rows: usize| {
            let rows = if n_rows == 1 { "row" } else { "rows" };
            vec![format!("Values: {n_rows} {rows}")]
        };
        let Some(source) = &insert.source else { return Ok((under(heading, values(1)), Vec::new())) };
        if let Some(rows) = plain_values(source) {
            let all_default = named.len() == definition.info.columns.len();
            let fits = |row: &&[_]| row.len() == named.len() || (row.is_empty() && all_default);
            if let Some(at) = rows.iter().position(|row| !fits(row)) {
                return Err(column_count(at + 1));
            }
            return Ok((under(heading, values(rows.len())), Vec::new()));
        }
        let own = self.scope_at(&scope.session, scope.at, Arc::clone(&scope.writes)).await?;
        let planned = self.plan(own, source, true).await?;
        if planned.columns.len() != named.len() {
            return Err(column_count(1));
        }
        let read = plan_lines(&planned);
        Ok((under(heading, read), planned.paths))
    }
}

fn under(heading: String, lines: Vec<String>) -> Vec<String> {
    std::iter::once(heading).chain(lines.into_iter().map(|line| format!("  {line}"))).collect()
}
