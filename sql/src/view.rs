//! From a view's query to a plan of operators, or a refusal that names the construct.

use operators::Plan;
use sqlparser::ast;
use tidb::ColumnInfo;
use types::{Error, Result, TableId};

use crate::Settings;
use crate::catalog::Catalog;

/// Everything that CREATE MATERIALIZED VIEW derives from a query.
#[derive(Clone, Debug)]
pub struct ViewPlan {
    /// The dataflow.
    pub plan: Plan,
    /// The columns of the output, ids 1, 2, ... in order.
    pub columns: Vec<ColumnInfo>,
    /// Output columns (positions) that identify a row, are never NULL and may be a key; `None` for hidden handles.
    pub key: Option<Vec<usize>>,
    /// Base tables read, through views too, without repetition.
    pub base_tables: Vec<TableId>,
    /// Tables and views that the query names.
    pub depends_on: Vec<TableId>,
    /// The query's text with every name qualified.
    pub query: String,
    /// A hash of the plan: state of one fingerprint is never used under another.
    pub fingerprint: String,
}

/// Plans a view. `columns` is the column list of CREATE (may be empty); `text` is the query as written.
///
/// # Errors
/// MySQL 1235 with the name of the construct that views do not support, or what is wrong with the query.
pub fn plan_view(catalog: &Catalog, text: &str, columns: &[String], settings: &Settings) -> Result<ViewPlan> {
    let _ = (catalog, text, columns, settings);
    let _: Option<ast::Query> = None;
    Err(Error::invalid("views are not planned yet"))
}
