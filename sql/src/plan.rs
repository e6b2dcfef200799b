//! From a query's tree to a logical plan with MySQL's meaning.

use std::sync::Arc;

use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, TableSource};
use sqlparser::ast;
use tidb::ColumnType;
use types::{Error, Result};

use crate::Settings;

/// Finds what a name in a query stands for. Implemented by whoever runs the query.
pub trait Resolver: Send + Sync {
    /// The source of a table or view; names come as written. A view may answer with a source that has a
    /// logical plan (its query inlined).
    ///
    /// # Errors
    /// MySQL 1146 if there is no such table, 1049 if there is no such database.
    fn table(&self, database: &str, name: &str) -> Result<Arc<dyn TableSource>>;
}

/// A column of a query's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// The name to show: the alias, or the column or expression as written.
    pub name: String,
    /// The type to show.
    pub column_type: ColumnType,
    /// Whether it is never NULL.
    pub not_null: bool,
}

/// A query, ready for the batch engine.
#[derive(Clone, Debug)]
pub struct PlannedQuery {
    /// The analysed, not yet optimised plan. Its field names are internal; take names from `columns`.
    pub plan: LogicalPlan,
    /// The columns of the answer, one a field of the plan.
    pub columns: Vec<OutputColumn>,
}

/// A session of the batch engine with our functions and aggregates, in which planned queries run.
#[must_use]
pub fn session_state(settings: &Settings) -> SessionState {
    let _ = settings;
    datafusion::execution::SessionStateBuilder::new().build()
}

/// Plans a query.
///
/// # Errors
/// With the MySQL code of what is wrong with the query.
pub fn plan_query(query: &ast::Query, resolver: &dyn Resolver, settings: &Settings) -> Result<PlannedQuery> {
    let _ = (query, resolver, settings);
    Err(Error::invalid("queries are not planned yet"))
}

/// Plans scalar expressions over the columns of one table (for DML: values, conditions), each of them
/// with MySQL's meaning; a condition is made a boolean if `as_condition` says so.
///
/// # Errors
/// With the MySQL code of what is wrong.
pub fn plan_expressions(
    expressions: &[ast::Expr],
    table: Option<(&str, Arc<dyn TableSource>)>,
    as_condition: bool,
    settings: &Settings,
) -> Result<Vec<Expr>> {
    let _ = (expressions, table, as_condition, settings);
    Err(Error::invalid("expressions are not planned yet"))
}
