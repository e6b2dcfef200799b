//! What the names of one statement stand for: tables, views on their decided paths, virtual tables.
//!
//! Planning is synchronous and deciding a path is not, so a statement that reads views is planned twice:
//! first to learn which views it reads, then with each of them on its path.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableSource};
use sql::catalog::{Catalog, TableDefinition, ViewDefinition};
use sql::{Resolver, Settings, Statement};
use store::{Reading, Store};
use tidb::ColumnInfo;
use types::{Error, Result, TableId, Timestamp};

use crate::ReadSettings;
use crate::hooks::{VirtualRequest, VirtualTables};
use crate::hybrid::HybridView;
use crate::live::LiveView;
use crate::paths::Decided;
use crate::reads::Reads;
use crate::table::StoreTable;
use crate::transaction::Writes;
use crate::virtual_table::VirtualTable;

/// Everything that a statement's names depend on.
#[derive(Clone)]
pub(crate) struct Scope {
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// System tables.
    pub(crate) virtual_tables: Arc<dyn VirtualTables>,
    /// The session's settings.
    pub(crate) session: ReadSettings,
    /// The same, for `sql`.
    pub(crate) settings: Settings,
    /// The catalog at the statement's timestamp.
    pub(crate) catalog: Arc<Catalog>,
    /// The statement's timestamp.
    pub(crate) at: Timestamp,
    /// The transaction's own writes.
    pub(crate) writes: Writes,
    /// Rows a batch.
    pub(crate) batch_rows: usize,
    /// Keeps the snapshot while the statement is planned.
    pub(crate) _reading: Arc<Reading>,
}

impl Scope {
    /// Reads of tables: at T, own writes included.
    pub(crate) fn reads(&self) -> Reads {
        Reads::new(Arc::clone(&self.store), self.at, Arc::clone(&self.writes))
    }

    /// A base table at T, own writes included.
    pub(crate) fn table(&self, definition: &TableDefinition) -> StoreTable {
        StoreTable::new(definition, self.reads(), self.batch_rows)
    }
}

/// How a view is read.
pub(crate) enum Route {
    /// By its query.
    Live,
    /// Its stored rows as of a timestamp.
    Stored(Timestamp),
    /// Its stored rows under a read fix.
    Hybrid(Arc<HybridView>),
}

/// Finds the names of one statement.
pub(crate) struct Names<'a> {
    scope: &'a Scope,
    routes: HashMap<TableId, Arc<dyn TableSource>>,
    live: Mutex<HashMap<TableId, Arc<dyn TableSource>>>,
    decided: bool,
    views: Mutex<BTreeMap<TableId, Arc<TableDefinition>>>,
}

impl<'a> Names<'a> {
    /// Names before paths are decided: each view stands for its rows at T, and is remembered.
    pub(crate) fn undecided(scope: &'a Scope) -> Names<'a> {
        Names::new(scope, HashMap::new(), false)
    }

    /// Names with each view on its path; a view that is not among them is read by its query.
    pub(crate) fn decided(scope: &'a Scope, views: &[Decided]) -> Names<'a> {
        let stored = views.iter().filter_map(|view| {
            let provider: Arc<dyn TableProvider> = match &view.route {
                Route::Live => return None,
                Route::Stored(at) => Arc::new(stored_view(scope, &view.definition, *at)),
                Route::Hybrid(hybrid) => Arc::clone(hybrid) as _,
            };
            Some((view.definition.id(), provider_as_source(provider)))
        });
        let stored = stored.collect();
        Names::new(scope, stored, true)
    }

    fn new(scope: &'a Scope, routes: HashMap<TableId, Arc<dyn TableSource>>, decided: bool) -> Names<'a> {
        Names { scope, routes, live: Mutex::default(), decided, views: Mutex::default() }
    }

    /// The views that were named, by id.
    pub(crate) fn views(&self) -> Vec<Arc<TableDefinition>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn view(&self, definition: &Arc<TableDefinition>, view: &ViewDefinition) -> Result<Arc<dyn TableSource>> {
        let id = definition.id();
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.insert(id, Arc::clone(definition));
        drop(views);
        if !self.decided {
            let table = stored_view(self.scope, definition, self.scope.at);
            return Ok(provider_as_source(Arc::new(table)));
        }
        match self.routes.get(&id) {
            Some(source) => Ok(Arc::clone(source)),
            None => {
                let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
                if let Some(live) = live {
                    return Ok(live);
                }
                let plan = live_plan(self.scope, definition, view)?;
                let source = provider_as_source(Arc::new(LiveView::new(plan)));
                let mut known = self.live.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(id, Arc::clone(&source));
                Ok(source)
            }
        }
    }
}

/// A view's stored rows.
fn stored_view(scope: &Scope, view: &TableDefinition, at: Timestamp) -> StoreTable {
    let reads = Reads::new(Arc::clone(&scope.store), at, Writes::default());
    StoreTable::new(view, reads, scope.batch_rows)
}

impl Resolver for Names<'_> {
    fn table(&self, database: &str, name: &str) -> Result<Arc<dyn TableSource>> {
        if let Some(table) = virtual_table(self.scope, database, name) {
            return Ok(provider_as_source(Arc::new(table)));
        }
        let definition = self.scope.catalog.require(database, name)?;
        match &definition.view {
            Some(view) => self.view(definition, view),
            None => Ok(provider_as_source(Arc::new(self.scope.table(definition)))),
        }
    }

    fn columns(&self, database: &str, name: &str) -> Option<Vec<ColumnInfo>> {
        if self.scope.virtual_tables.has_database(&database.to_lowercase()) {
            return None;
        }
        Some(self.scope.catalog.find(database, name)?.visible_columns().to_vec())
    }

    fn refused(&self, database: &str, name: &str) -> Vec<String> {
        let definition = self.scope.catalog.find(database, name);
        let refused = definition.map_or(&[][..], |definition| definition.refused_columns());
        refused.iter().map(|(column, _)| column.clone()).collect()
    }
}

fn virtual_table(scope: &Scope, database: &str, name: &str) -> Option<VirtualTable> {
    let (database, table) = (database.to_lowercase(), name.to_lowercase());
    let schema = scope.virtual_tables.schema(&database, &table)?;
    let request = VirtualRequest {
        database,
        table,
        at: scope.at,
        catalog: Arc::clone(&scope.catalog),
        settings: scope.session.clone(),
    };
    Some(VirtualTable::new(Arc::clone(&scope.virtual_tables), schema, request))
}

/// A view's query over the base tables at T, under the view's own settings, in the view's columns.
pub(crate) fn live_plan(
    scope: &Scope,
    definition: &TableDefinition,
    view: &ViewDefinition,
) -> Result<LogicalPlan> {
    let settings = scope.settings.with_view(&view.settings);
    let settings = Settings { database: Some(definition.database.clone()), ..settings };
    let query = view_query(definition, view, &settings)?;
    // Views below are read by their queries too: a view is a source by its query.
    let bound = match scope.catalog.bound_to(view) {
        Cow::Borrowed(_) => None,
        Cow::Owned(catalog) => Some(Scope { catalog: Arc::new(catalog), ..scope.clone() }),
    };
    let names = Names::decided(bound.as_ref().unwrap_or(scope), &[]);
    let planned = crate::live::plan_query(&query, &names, &settings)?;
    let n_columns = definition.info.columns.len();
    if planned.plan.schema().fields().len() != n_columns {
        let name = definition.full_name();
        return Err(Error::corrupt(format!("view '{name}' has not the columns of its query any more")));
    }
    let schema = Arc::clone(planned.plan.schema());
    if scope.catalog.reads_foreign(&view.base_tables) {
        sql::check_view_types(definition, &schema)?;
    }
    let column = |at: usize| {
        let target = &definition.info.columns[at];
        let data_type = target.column_type.arrow_type();
        let (qualifier, field) = schema.qualified_field(at);
        let column = Expr::Column((qualifier, field).into());
        let column = if *field.data_type() == data_type {
            column
        } else {
            datafusion::logical_expr::cast(column, data_type)
        };
        column.alias(target.name.clone())
    };
    LogicalPlanBuilder::from(planned.plan)
        .project((0..n_columns).map(column).collect::<Vec<Expr>>())
        .and_then(LogicalPlanBuilder::build)
        .map_err(sql::from_datafusion)
}

/// A view's query as a tree.
fn view_query(
    definition: &TableDefinition,
    view: &ViewDefinition,
    settings: &Settings,
) -> Result<sqlparser::ast::Query> {
    let mut statements = sql::parse(&view.query, settings)?;
    match (statements.pop().map(|parsed| parsed.statement), statements.is_empty()) {
        (Some(Statement::Query(query)), true) => Ok(query.query),
        _ => Err(Error::corrupt(format!("view '{}' has no query", definition.full_name()))),
    }
}
