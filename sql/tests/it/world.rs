//! A small database in memory: a catalog, rows, and both ways to answer a query.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::util::display::array_value_to_string;
use datafusion::datasource::{MemTable, ViewTable, provider_as_source};
use datafusion::logical_expr::TableSource;
use operators::{Dataflow, DataflowOptions, RunSource};
use sql::catalog::{Catalog, NewView, TableDefinition};
use sql::{ParsedStatement, Resolver, Settings, Statement, ViewPlan};
use tidb::{ColumnInfo, TableInfo};
use types::records::MAIN_JOB;
use types::{Delta, Error, Result, RunName, TableId, Timestamp};

pub(crate) struct World {
    pub(crate) catalog: Catalog,
    pub(crate) settings: Settings,
    pub(crate) rows: BTreeMap<TableId, RecordBatch>,
    runtime: tokio::runtime::Runtime,
}

struct NoRuns;

impl RunSource for NoRuns {
    fn read_run(&self, name: RunName) -> Result<operators::Run> {
        Err(Error::corrupt(format!("no run {name:?}")))
    }
}

impl World {
    pub(crate) fn new() -> World {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // 2026-11-30 12:00:00 UTC
        let now = Timestamp::from_parts(1_796_040_000_000, 0);
        let settings = Settings { now, ..Settings::default() };
        let catalog = Catalog { version: 1, databases: vec!["test".to_owned()], ..Catalog::default() };
        World { catalog, settings, rows: BTreeMap::new(), runtime }
    }

    pub(crate) fn with(statements: &[&str]) -> World {
        let mut world = World::new();
        for statement in statements {
            world.run(statement);
        }
        world
    }

    /// CREATE TABLE, INSERT INTO t VALUES ..., or CREATE MATERIALIZED VIEW.
    pub(crate) fn run(&mut self, text: &str) {
        for parsed in sql::parse(text, &self.settings).unwrap() {
            self.statement(parsed);
        }
    }

    fn statement(&mut self, parsed: ParsedStatement) {
        match parsed.statement {
            Statement::CreateTable(create) => {
                let change = self.catalog.create_table(&create, "test").unwrap();
                let definition = change.created.unwrap();
                self.rows.insert(definition.id(), RecordBatch::new_empty(definition.info.arrow_schema()));
                self.add(definition);
            }
            Statement::CreateMaterializedView(create) => {
                let plan = self.plan_view_named(&create.query_text, &create.columns).unwrap();
                let new = NewView {
                    refresh: sql::catalog::Refresh::Continuous,
                    database: "test".to_owned(),
                    name: create.name.name,
                    or_replace: false,
                    if_not_exists: false,
                    columns: create.columns,
                    cluster_by: create.cluster_by,
                    options: create.options,
                    settings: self.settings.of_view(),
                    job: MAIN_JOB,
                    created_ts: Timestamp::default(),
                };
                let change = self.catalog.create_view(new, &plan).unwrap();
                self.add(change.created.unwrap());
            }
            Statement::Insert(insert) => {
                let name = insert.table.to_string();
                let definition = Arc::clone(self.catalog.find("test", &name).unwrap());
                let source = insert.source.unwrap();
                let batch = self.batch(&source, &definition.info);
                let known = self.rows.remove(&definition.id()).unwrap();
                let both = arrow::compute::concat_batches(&known.schema(), [&known, &batch]).unwrap();
                self.rows.insert(definition.id(), both);
            }
            other => panic!("not a statement for a test: {other:?}"),
        }
    }

    /// Checks the batch engine's answer, in any order, and returns it.
    #[track_caller]
    pub(crate) fn check_live(&self, query: &str, expected: &[&str]) -> RecordBatch {
        let batch = self.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let mut found = lines(&batch);
        found.sort();
        assert_eq!(found, expected, "{query}");
        batch
    }

    /// Checks that a view is what the batch engine has answered.
    #[track_caller]
    pub(crate) fn check_view(&self, query: &str, plan: &ViewPlan, batch: &RecordBatch) {
        let mut dataflow = self.dataflow(plan);
        let delta = self.fill(&mut dataflow).unwrap_or_else(|error| panic!("view {query}: {error}"));
        assert_eq!(weighted_lines(delta.batch(), delta.weights()), counted(batch), "view {query}");
    }

    fn add(&mut self, definition: Arc<TableDefinition>) {
        let id = definition.id();
        let name = (definition.database.clone(), definition.info.name.to_lowercase());
        self.catalog.names.insert(name, id);
        self.catalog.tables.insert(id, definition);
        self.catalog.next_id = id.0 + 2;
    }

    fn batch(&self, query: &sql::ast::Query, info: &TableInfo) -> RecordBatch {
        let answer = self.answer(query).unwrap();
        let cast = tidb::Cast::default();
        let columns: Vec<ArrayRef> = info
            .columns
            .iter()
            .zip(answer.columns())
            .map(|(column, array)| tidb::convert_column(column, array, &cast).unwrap())
            .collect();
        RecordBatch::try_new(info.arrow_schema(), columns).unwrap()
    }

    /// The batch engine's answer.
    pub(crate) fn answer(&self, query: &sql::ast::Query) -> Result<RecordBatch> {
        let planned = sql::plan_query(query, self, &self.settings)?;
        let state = sql::session_state();
        self.runtime.block_on(async {
            let optimised = state.optimize(&planned.plan).map_err(sql::from_datafusion)?;
            let physical = state
                .query_planner()
                .create_physical_plan(&optimised, &state)
                .await
                .map_err(sql::from_datafusion)?;
            let schema = physical.schema();
            let batches = datafusion::physical_plan::collect(physical, state.task_ctx())
                .await
                .map_err(sql::from_datafusion)?;
            arrow::compute::concat_batches(&schema, &batches).map_err(Error::from)
        })
    }

    pub(crate) fn query(&self, text: &str) -> Result<RecordBatch> {
        let parsed = sql::parse(text, &self.settings)?.pop().unwrap();
        let Statement::Query(query) = parsed.statement else { panic!("not a query: {text}") };
        self.answer(&query.query)
    }

    /// The names of an answer's columns.
    pub(crate) fn names(&self, text: &str) -> Vec<String> {
        let parsed = sql::parse(text, &self.settings).unwrap().pop().unwrap();
        let Statement::Query(query) = parsed.statement else { panic!("not a query: {text}") };
        let planned = sql::plan_query(&query.query, self, &self.settings).unwrap();
        planned.columns.into_iter().map(|column| column.name).collect()
    }

    pub(crate) fn plan_view(&self, text: &str) -> Result<ViewPlan> {
        self.plan_view_named(text, &[])
    }

    fn plan_view_named(&self, text: &str, columns: &[String]) -> Result<ViewPlan> {
        sql::plan_view(&self.catalog, text, columns, &self.settings)
    }

    pub(crate) fn dataflow(&self, plan: &ViewPlan) -> Dataflow {
        let plan = Arc::new(plan.plan.clone());
        Dataflow::open(plan, Vec::new(), Arc::new(NoRuns), DataflowOptions::default()).unwrap()
    }

    /// Pushes all rows of all tables.
    pub(crate) fn fill(&self, dataflow: &mut Dataflow) -> Result<Delta> {
        for (id, rows) in &self.rows {
            dataflow.push(*id, &Delta::inserts(rows.clone()))?;
        }
        dataflow.barrier()
    }
}

impl Resolver for World {
    fn table(&self, database: &str, name: &str) -> Result<Arc<dyn TableSource>> {
        let definition = self.catalog.require(database, name)?;
        if let Some(view) = &definition.view {
            let Statement::Query(query) = sql::parse(&view.query, &self.settings)?.pop().unwrap().statement
            else {
                panic!("a view is a query");
            };
            let planned = sql::plan_query(&query.query, self, &self.settings)?;
            let names = definition.info.columns.iter().zip(planned.plan.schema().iter());
            let columns = names
                .map(|(column, (qualifier, field))| {
                    datafusion::logical_expr::Expr::Column((qualifier, field).into()).alias(&column.name)
                })
                .collect::<Vec<_>>();
            let plan = datafusion::logical_expr::LogicalPlanBuilder::from(planned.plan)
                .project(columns)
                .and_then(datafusion::logical_expr::LogicalPlanBuilder::build)
                .map_err(sql::from_datafusion)?;
            return Ok(provider_as_source(Arc::new(ViewTable::new(plan, None))));
        }
        let rows = self.rows[&definition.id()].clone();
        let table = MemTable::try_new(rows.schema(), vec![vec![rows]]).map_err(sql::from_datafusion)?;
        Ok(provider_as_source(Arc::new(table)))
    }

    fn columns(&self, database: &str, name: &str) -> Option<Vec<ColumnInfo>> {
        Some(self.catalog.find(database, name)?.info.columns.clone())
    }
}

/// Rows as text, columns separated by `|`.
pub(crate) fn lines(batch: &RecordBatch) -> Vec<String> {
    (0..batch.num_rows()).map(|row| line(batch, row)).collect()
}

fn line(batch: &RecordBatch, row: usize) -> String {
    let cell = |array: &ArrayRef| {
        if array.is_null(row) { "NULL".to_owned() } else { array_value_to_string(array, row).unwrap() }
    };
    batch.columns().iter().map(cell).collect::<Vec<_>>().join("|")
}

/// The rows of a delta as often as their weights say.
pub(crate) fn weighted_lines(batch: &RecordBatch, weights: &Int64Array) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for row in 0..batch.num_rows() {
        *counts.entry(line(batch, row)).or_insert(0) += weights.value(row);
    }
    counts.retain(|_, weight| *weight != 0);
    counts
}

/// How often each row is there.
pub(crate) fn counted(batch: &RecordBatch) -> BTreeMap<String, i64> {
    weighted_lines(batch, &Int64Array::from_value(1, batch.num_rows()))
}
