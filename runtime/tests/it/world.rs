//! A store in memory, base tables in it, a runtime over it, and an oracle that recomputes every view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use coordinator::{Coordinator, LocalCoordinator, LocalOptions};
use runtime::{FailPoints, Runtime, RuntimeOptions, Supervisor, ViewStatus};
use source::{Source, TableSource};
use sql::catalog::{Catalog, CatalogCache, DropKind, DropOptions, TableDefinition};
use sql::{Settings, Statement, TableName};
use store::{Mutation, Snapshot, Store};
use tidb::RowEncoder;
use types::{Error, JobId, Result, TableId, Timestamp};

use crate::plans::TestPlanner;

/// A row of `t`: id -> (grp, val). Rows of `u`: id -> (weight, 0).
pub(crate) type Rows = BTreeMap<i64, (i64, i64)>;
/// A view's rows as text, each with how often it is there.
pub(crate) type Bag = BTreeMap<Vec<String>, i64>;

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Runtime,
    pub(crate) options: RuntimeOptions,
    pub(crate) fail: FailPoints,
}

pub(crate) fn options() -> RuntimeOptions {
    RuntimeOptions {
        epoch_interval_ms: 5,
        idle_interval_ms: 200,
        rows_per_piece_max: 16,
        adoption_wait_ms: 500,
        restart_backoff_ms: (1, 20),
        // Passes are asked for by the tests that look at them.
        sweep_interval_ms: 3_600_000,
        history_life_time_ms: 600_000,
        planner: Arc::new(TestPlanner),
        fail_points: FailPoints::armable(),
        ..RuntimeOptions::default()
    }
}

pub(crate) fn local(store: &Arc<dyn Store>) -> Arc<dyn Coordinator> {
    Arc::new(LocalCoordinator::new(Arc::clone(store), LocalOptions::default()))
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(options()).await
    }

    pub(crate) async fn with(options: RuntimeOptions) -> World {
        let store = tikv_server::suite::store().await;
        World::over(store, options).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>, options: RuntimeOptions) -> World {
        let coordinator = local(&store);
        World::coordinated(store, coordinator, options).await
    }

    pub(crate) async fn coordinated(
        store: Arc<dyn Store>,
        coordinator: Arc<dyn Coordinator>,
        options: RuntimeOptions,
    ) -> World {
        let runtime = Runtime::start(Arc::clone(&store), coordinator, options.clone(), Supervisor::new())
            .await
            .unwrap();
        let fail = options.fail_points.clone();
        let world = World { store, runtime, options, fail };
        world.bootstrap().await;
        world
    }

    async fn bootstrap(&self) {
        self.runtime.change_catalog(|catalog, _| Ok(catalog.bootstrap(0))).await.unwrap();
        for table in ["t", "u"] {
            let text = format!(
                "CREATE TABLE IF NOT EXISTS {table} (id BIGINT PRIMARY KEY, grp BIGINT NOT NULL, val BIGINT NOT NULL)"
            );
            let Statement::CreateTable(create) = parse(&text) else { panic!("no CREATE TABLE") };
            self.runtime.change_catalog(|catalog, _| catalog.create_table(&create, "test")).await.unwrap();
        }
    }

    /// Ends every task as a crash would (nothing is drained), and starts again on the same store.
    pub(crate) async fn restart(self) -> World {
        self.runtime.shutdown().await;
        World::over(Arc::clone(&self.store), self.options.clone()).await
    }

    pub(crate) async fn catalog(&self) -> Arc<Catalog> {
        let now = self.store.read_timestamp().await.unwrap();
        self.catalog_at(now).await
    }

    pub(crate) async fn catalog_at(&self, at: Timestamp) -> Arc<Catalog> {
        let snapshot = Snapshot::new(Arc::clone(&self.store), at);
        CatalogCache::new().load_at(&snapshot).await.unwrap()
    }

    pub(crate) async fn table(&self, name: &str) -> Arc<TableDefinition> {
        Arc::clone(self.catalog().await.require("test", name).unwrap())
    }

    pub(crate) async fn view_id(&self, name: &str) -> TableId {
        self.table(name).await.id()
    }

    /// Writes rows of a table in one transaction; `None` deletes.
    pub(crate) async fn write(&self, changes: &[(&str, i64, Option<(i64, i64)>)]) -> Timestamp {
        let mut mutations = Vec::new();
        for (table, id, row) in changes {
            let definition = self.table(table).await;
            let (grp, val) = row.unwrap_or_default();
            let encoder = RowEncoder::new(&definition.info).unwrap();
            let row_bytes = encoder.encode(&batch(&definition, *id, grp, val), 0, None).unwrap();
            mutations.push(match row {
                Some(_) => Mutation::put(row_bytes.0, row_bytes.1),
                None => Mutation::delete(row_bytes.0),
            });
        }
        loop {
            let start_ts = self.store.timestamp().await.unwrap();
            match self.store.commit_transaction(start_ts, mutations.clone()).await {
                Ok(commit_ts) => return commit_ts,
                Err(store::KeyError::WriteConflict { .. }) => {}
                Err(error) => panic!("write failed: {error:?}"),
            }
        }
    }

    pub(crate) async fn create(&self, name: &str, query: &str) -> Result<()> {
        self.run_create(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"), false).await
    }

    pub(crate) async fn create_in_background(&self, name: &str, query: &str) -> Result<()> {
        self.run_create(&format!("CREATE MATERIALIZED VIEW {name} AS {query}"), true).await
    }

    pub(crate) async fn run_create(&self, text: &str, background: bool) -> Result<()> {
        let Statement::CreateMaterializedView(statement) = parse(text) else { panic!("no CREATE VIEW") };
        self.runtime.create_view(&statement, &Settings::default(), background).await.map(drop)
    }

    pub(crate) async fn drop_view(&self, name: &str) -> Result<()> {
        let names = [TableName { database: None, name: name.to_owned() }];
        let options = DropOptions::default();
        self.runtime.drop_named(DropKind::View, &names, Some("test"), options).await.map(drop)
    }

    pub(crate) async fn status(&self, name: &str) -> Option<ViewStatus> {
        self.runtime.views().await.unwrap().into_iter().find(|view| view.name == name)
    }

    /// Waits until the view's job has a cut at or after T.
    pub(crate) async fn caught_up(&self, name: &str, at: Timestamp) {
        let definition = self.table(name).await;
        let job = definition.view.as_ref().unwrap().job;
        until("the job to catch up", async || {
            matches!(self.runtime.wait_cut(job, at, 1_000).await, Ok(Some(_)))
        })
        .await;
    }

    /// All rows of a table at a timestamp, as text.
    pub(crate) async fn stored(&self, definition: &TableDefinition, at: Timestamp) -> Bag {
        let columns = (0..definition.info.columns.len()).collect();
        let source =
            TableSource::new(Arc::clone(&self.store), [(Arc::new(definition.info.clone()), columns)])
                .unwrap();
        let mut bag = Bag::new();
        let mut after = None;
        loop {
            let page = source.read_rows(definition.id(), at, after.as_deref(), 1000).await.unwrap();
            assert!(page.faults.is_empty(), "{:?}", page.faults);
            for row in texts(page.delta.batch()) {
                *bag.entry(row).or_default() += 1;
            }
            if page.done {
                return bag;
            }
            after = page.last_key;
        }
    }

    pub(crate) async fn base(&self, name: &str, at: Timestamp) -> Rows {
        let stored = self.stored(&*self.table(name).await, at).await;
        stored
            .into_keys()
            .map(|row| {
                let number = |index: usize| row[index].parse::<i64>().unwrap();
                (number(0), (number(1), number(2)))
            })
            .collect()
    }

    /// The view at T is its query at the cut that the epoch record at T names (G1). Returns that cut.
    pub(crate) async fn check(&self, name: &str) -> Timestamp {
        let at = self.store.read_timestamp().await.unwrap();
        self.check_at(name, at).await
    }

    pub(crate) async fn check_at(&self, name: &str, at: Timestamp) -> Timestamp {
        let catalog = self.catalog_at(at).await;
        let definition = Arc::clone(catalog.require("test", name).unwrap());
        let view = definition.view.as_ref().unwrap();
        let checkpoint = self.runtime.checkpoint_at(view.job, definition.id(), at).await.unwrap().unwrap();
        let cut = checkpoint.record.cut;
        assert!(cut <= checkpoint.commit_ts && checkpoint.commit_ts <= at, "{checkpoint:?} at {at}");
        let stored = self.stored(&definition, at).await;
        let expected = self.recompute(&view.query, cut).await;
        assert_eq!(stored, expected, "view {name} at {at} against its query at cut {cut}");
        cut
    }

    pub(crate) async fn recompute(&self, query: &str, cut: Timestamp) -> Bag {
        crate::plans::recompute(query, &self.base("t", cut).await, &self.base("u", cut).await)
    }

    pub(crate) async fn job(&self, job: JobId) -> runtime::JobStatus {
        self.runtime.jobs().into_iter().find(|status| status.job == job).expect("the job runs here")
    }
}

pub(crate) fn batch(definition: &TableDefinition, id: i64, grp: i64, val: i64) -> RecordBatch {
    let columns: Vec<ArrayRef> = [id, grp, val]
        .into_iter()
        .map(|number| Arc::new(Int64Array::from(vec![number])) as ArrayRef)
        .collect();
    let fields: Vec<_> = definition
        .info
        .columns
        .iter()
        .map(|column| arrow::datatypes::Field::new(&column.name, arrow::datatypes::DataType::Int64, true))
        .collect();
    RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), columns).unwrap()
}

fn texts(batch: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect())
        .collect()
}

pub(crate) fn parse(text: &str) -> Statement {
    sql::parse(text, &Settings::default()).unwrap().remove(0).statement
}

/// Waits for a condition, for at most half a minute.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The error of something that must fail.
pub(crate) fn error_of<T: std::fmt::Debug>(result: Result<T>) -> Error {
    result.expect_err("it must fail")
}
