//! How a view's text becomes a plan: by `sql`, unless a test has plans of its own.

use std::fmt::Debug;

use sql::catalog::Catalog;
use sql::{Settings, ViewPlan};
use types::Result;

/// Plans a view's query. The same text over the same catalog must give the same plan for ever.
pub trait Planner: Debug + Send + Sync + 'static {
    /// Plans a view; `columns` is the column list of CREATE.
    ///
    /// # Errors
    /// `Invalid` if the query cannot be a view.
    fn plan_view(
        &self,
        catalog: &Catalog,
        text: &str,
        columns: &[String],
        settings: &Settings,
    ) -> Result<ViewPlan>;
}

/// The planner of `sql`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SqlPlanner;

impl Planner for SqlPlanner {
    fn plan_view(
        &self,
        catalog: &Catalog,
        text: &str,
        columns: &[String],
        settings: &Settings,
    ) -> Result<ViewPlan> {
        sql::plan_view(catalog, text, columns, settings)
    }
}
