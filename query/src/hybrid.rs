//! A view that is read Hybrid: its stored rows under a read fix that is run once it is known what is wanted.
//!
//! The batch engine says at the scan which conditions the rows must fulfil. Until then nothing of the fix is
//! computed. A scan that finds that the view should rather be read by its query says so and fails, and the
//! statement is planned again with the view on that path.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use sql::catalog::TableDefinition;
use types::{Error, ErrorKind, Timestamp};

use crate::fix::{Fix, FixedRows};
use crate::names::Scope;
use crate::reads::Reads;
use crate::table::{StoreTable, external};
use crate::wanted::Wanted;
use crate::{Engine, pushdown};

/// A view with what its read fix needs.
pub(crate) struct HybridView {
    engine: Engine,
    /// What the statement reads.
    pub(crate) scope: Scope,
    /// The view.
    pub(crate) definition: Arc<TableDefinition>,
    /// S_k: the changes since are pending.
    pub(crate) cut: Timestamp,
    schema: SchemaRef,
    outcome: Mutex<Outcome>,
    /// The fix for a scan without conditions; several scans share it, and the statement planned again.
    whole: tokio::sync::Mutex<Option<FixedRows>>,
}

/// What the scans of a plan have come to.
#[derive(Debug, Default)]
struct Outcome {
    scans: Vec<Scanned>,
    /// Why the view must be read Live.
    live: Option<String>,
}

/// What the read fix of a scan took.
#[derive(Debug)]
struct Scanned {
    /// Changes that were read.
    n_changes: u64,
    /// Rows of the view that changed by them.
    n_rows: usize,
    /// Whether conditions of the query narrowed it.
    is_narrowed: bool,
}

impl HybridView {
    pub(crate) fn new(
        engine: Engine,
        scope: Scope,
        definition: Arc<TableDefinition>,
        cut: Timestamp,
    ) -> HybridView {
        let schema = definition.info.arrow_schema();
        HybridView {
            engine,
            scope,
            definition,
            cut,
            schema,
            outcome: Mutex::default(),
            whole: tokio::sync::Mutex::default(),
        }
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the view must be read Live after all, if it must.
    pub(crate) fn moved(&self) -> Option<String> {
        self.outcome().live.clone()
    }

    /// Forgets what scans took: the statement is planned again.
    pub(crate) fn again(&self) {
        self.outcome().scans.clear();
    }

    /// What the read fixes took, as EXPLAIN says it.
    pub(crate) fn work(&self) -> String {
        let mut text = String::new();
        for Scanned { n_changes, n_rows, is_narrowed } in &self.outcome().scans {
            let wanted = if *is_narrowed { " for the rows that are wanted" } else { "" };
            text.push_str(&format!("; {n_changes} read{wanted}, {} of the view changed", rows(*n_rows)));
        }
        text
    }

    /// The view's rows under its fix, exact for what is wanted.
    async fn fixed(&self, wanted: &Wanted, state: &dyn Session) -> types::Result<StoreTable> {
        let mut whole = match wanted.is_everything() {
            true => Some(self.whole.lock().await),
            false => None,
        };
        let known = whole.as_deref().and_then(Option::clone);
        let fix = match known {
            Some(rows) => Ok(Fix::Rows(rows)),
            None => self.engine.read_fix(self, wanted, state).await,
        };
        let reason = match fix {
            Ok(Fix::Rows(rows)) => {
                if let Some(whole) = &mut whole {
                    **whole = Some(rows.clone());
                }
                let (n_changes, n_rows) = (rows.n_changes, rows.n_rows);
                let is_narrowed = !wanted.is_everything();
                self.outcome().scans.push(Scanned { n_changes, n_rows, is_narrowed });
                return Ok(self.stored(rows));
            }
            Ok(Fix::Live(reason)) => reason,
            // What the read fix cannot do the query over the base tables can, or fails for the same reason.
            Err(error) if error.kind() == ErrorKind::Invalid => format!("the read fix cannot run: {error}"),
            Err(error) => {
                let name = self.definition.full_name();
                return Err(error.context(format!("read fix of view '{name}'")));
            }
        };
        self.outcome().live = Some(reason.clone());
        Err(Error::invalid(reason))
    }

    fn stored(&self, rows: FixedRows) -> StoreTable {
        let reads = Reads::new(Arc::clone(&self.scope.store), self.scope.at, rows.overlay);
        let table = StoreTable::new(&self.definition, reads, self.scope.batch_rows);
        match rows.content {
            Some(content) => table.with_content(content),
            None => table,
        }
    }
}

fn rows(n_rows: usize) -> String {
    if n_rows == 1 { "1 row".to_owned() } else { format!("{n_rows} rows") }
}

impl fmt::Debug for HybridView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} since {}", self.definition.full_name(), self.cut)
    }
}

#[async_trait]
impl TableProvider for HybridView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> datafusion::common::Result<Vec<TableProviderFilterPushDown>> {
        let info = &self.definition.info;
        Ok(pushdown::support(filters, |filter| pushdown::column_of(info, filter).is_some()))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        let wanted = Wanted::by(&self.definition.info, filters);
        let table = self.fixed(&wanted, state).await.map_err(external)?;
        table.scan(state, projection, filters, limit).await
    }
}
