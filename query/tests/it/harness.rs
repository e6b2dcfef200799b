//! A store in memory with tables and views, whose views are maintained by hand.
//!
//! The runtime is a crate of the same level, so an epoch is done here directly: the changes since the last
//! cut through each view's dataflow, its output through the sink, and rows, manifests and epoch record in
//! one transaction. A fill is an epoch whose changes are the whole tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use operators::{Dataflow, DataflowOptions, RunNamer, RunSource};
use query::{DmlResult, Engine, Options, PathChoice, QueryResult, ReadMode, ReadSettings, Transaction};
use sink::{Fold, RunCache, ViewSink, manifest_mutation};
use source::{Source, TableDelta, TableSource};
use sql::catalog::{Catalog, DropKind, DropOptions, NewView, TableDefinition, ViewState};
use sql::{Literal, Settings, Statement, TableName, ast};
use store::{Key, KeyRange, Mutation, Snapshot, Store};
use tokio_util::sync::CancellationToken;
use types::records::{EpochRecord, MAIN_JOB, dropped_key, epoch_record_key, table_key};
use types::{Epoch, Error, Generation, Result, StateId, TableId, Timestamp};

/// A row as text, one string a column.
pub(crate) type Row = Vec<String>;

/// One view at work.
struct Maintained {
    dataflow: Dataflow,
    sink: ViewSink,
    source: TableSource,
    tables: Vec<Arc<TableDefinition>>,
}

/// A delta of all columns of a table, each at the number that plans have for it.
fn numbered(tables: &[Arc<TableDefinition>], changed: TableDelta) -> TableDelta {
    let definition = tables.iter().find(|table| table.id() == changed.table).unwrap();
    if definition.foreign.is_none() {
        return changed;
    }
    let n_rows = changed.delta.n_rows();
    let nothing: ArrayRef = Arc::new(NullArray::new(n_rows));
    let mut columns = vec![("".to_owned(), nothing, true); definition.width()];
    for (position, column) in definition.info.columns.iter().enumerate() {
        let array = Arc::clone(changed.delta.column(position));
        columns[definition.column_number(position)] = (column.name.clone(), array, !column.not_null);
    }
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    TableDelta { table: changed.table, delta: changed.delta.with_batch(batch) }
}

/// The store, the engine, and the views.
pub(crate) struct Harness {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Engine,
    pub(crate) settings: ReadSettings,
    runs: Arc<RunCache>,
    views: BTreeMap<TableId, Maintained>,
    record: EpochRecord,
    parallelism: usize,
}

impl Harness {
    pub(crate) async fn new(parallelism: usize) -> Harness {
        Harness::with_options(Options { parallelism, ..Options::default() }).await
    }

    pub(crate) async fn with_options(options: Options) -> Harness {
        let parallelism = options.parallelism;
        let store = tikv_server::suite::store().await;
        let runs = RunCache::new(Arc::clone(&store), tokio::runtime::Handle::current(), 64 << 20);
        let engine = Engine::new(Arc::clone(&store), Arc::clone(&runs) as Arc<dyn RunSource>, options);
        let record =
            EpochRecord { epoch: Epoch(0), cut: Timestamp::ZERO, generation: Generation(1), definitions: 0 };
        let harness = Harness {
            store,
            engine,
            settings: ReadSettings::default(),
            runs,
            views: BTreeMap::new(),
            record,
            parallelism,
        };
        let start_ts = harness.store.timestamp().await.unwrap();
        harness.commit(start_ts, Catalog::default().bootstrap(0).mutations).await;
        harness
    }

    async fn commit(&self, start_ts: Timestamp, mutations: Vec<Mutation>) -> Timestamp {
        self.store.commit_transaction(start_ts, mutations).await.map_err(Error::from).unwrap()
    }

    async fn catalog_to_change(&self) -> (Timestamp, Arc<Catalog>) {
        let start_ts = self.store.timestamp().await.unwrap();
        self.store.wait_visible(start_ts).await.unwrap();
        (start_ts, self.engine.catalog(start_ts).await.unwrap())
    }

    /// Runs statements: CREATE TABLE, CREATE MATERIALIZED VIEW and data changes, each autocommitted.
    pub(crate) async fn run(&mut self, text: &str) -> Vec<DmlResult> {
        let mut results = Vec::new();
        for parsed in sql::parse(text, &Settings::default()).unwrap() {
            match &parsed.statement {
                Statement::CreateTable(table) => {
                    let (start_ts, catalog) = self.catalog_to_change().await;
                    let change = catalog.create_table(table, "test").unwrap();
                    self.commit(start_ts, change.mutations).await;
                }
                Statement::CreateMaterializedView(view) => {
                    Box::pin(self.create_view(&view.name.name, &view.query_text, &view.cluster_by)).await;
                }
                _ => results.push(self.change(&parsed.text, None).await.unwrap()),
            }
        }
        results
    }

    /// Runs one data change.
    pub(crate) async fn change(&self, text: &str, txn: Option<&mut Transaction>) -> Result<DmlResult> {
        self.change_with(text, txn, &[]).await
    }

    /// Runs one data change with parameters.
    pub(crate) async fn change_with(
        &self,
        text: &str,
        txn: Option<&mut Transaction>,
        parameters: &[Literal],
    ) -> Result<DmlResult> {
        let parsed = sql::parse(text, &Settings::default())?.remove(0);
        let statement = match parsed.statement {
            Statement::Insert(insert) => ast::Statement::Insert(*insert),
            Statement::Update(update) => ast::Statement::Update(*update),
            Statement::Delete(delete) => ast::Statement::Delete(*delete),
            other => panic!("no data change: {other:?}"),
        };
        self.engine.execute(&self.settings, &statement, txn, parameters, &CancellationToken::new()).await
    }

    /// The code of the error that a data change ends in.
    pub(crate) async fn code(&self, text: &str) -> u16 {
        self.change(text, None).await.expect_err(text).mysql_code().unwrap_or(0)
    }

    /// Drops a table as the runtime does, with the note for the sweep; then sweeps it, if asked. The range of
    /// its rows.
    pub(crate) async fn drop_table(&self, name: &str, sweep: bool) -> KeyRange {
        let (start_ts, catalog) = self.catalog_to_change().await;
        let id = catalog.find("test", name).unwrap().id();
        let (start, end) = tidb::record_range(i64::try_from(id.0).unwrap());
        let range = KeyRange::new(start, end);
        let names = [TableName { database: None, name: name.to_owned() }];
        let options = DropOptions::default();
        let change = catalog.drop_named(DropKind::Table, &names, Some("test"), options).unwrap();
        let mut mutations = change.mutations;
        mutations.push(Mutation::put(dropped_key(id), b"{}".to_vec()));
        self.commit(start_ts, mutations).await;
        if sweep {
            let mut mutations: Vec<Mutation> =
                self.keys(&range).await.into_iter().map(Mutation::delete).collect();
            mutations.push(Mutation::delete(dropped_key(id)));
            self.commit(self.store.timestamp().await.unwrap(), mutations).await;
        }
        range
    }

    /// The keys of a range that are visible now.
    pub(crate) async fn keys(&self, range: &KeyRange) -> Vec<Key> {
        let snapshot = Snapshot::newest(Arc::clone(&self.store)).await.unwrap();
        snapshot.scan_keys(range, 1_000).await.unwrap()
    }

    async fn create_view(&mut self, name: &str, text: &str, cluster_by: &[String]) {
        let (start_ts, catalog) = self.catalog_to_change().await;
        let settings = Settings::default();
        let plan = sql::plan_view(&catalog, text, &[], &settings).unwrap();
        let new = NewView {
            refresh: sql::catalog::Refresh::Continuous,
            database: "test".to_owned(),
            name: name.to_owned(),
            or_replace: false,
            if_not_exists: false,
            columns: Vec::new(),
            cluster_by: cluster_by.to_vec(),
            options: BTreeMap::new(),
            settings: settings.of_view(),
            job: MAIN_JOB,
            created_ts: start_ts,
        };
        let mut change = catalog.create_view(new, &plan).unwrap();
        let definition = Arc::clone(change.created.as_ref().unwrap());
        // It is filled in the same transaction, so it is published at once.
        let mut ready = (*definition).clone();
        let view = ready.view.as_mut().unwrap();
        view.state = ViewState::Ready;
        view.fill_job = None;
        let json = serde_json::to_vec(&ready).unwrap();
        let key = table_key(definition.id());
        for mutation in change.mutations.iter_mut().filter(|mutation| mutation.key == key) {
            mutation.value = json.clone().into();
        }
        // The fill is at the job's cut: all views of a job have one.
        self.epoch().await;
        let tables: Vec<Arc<TableDefinition>> =
            plan.base_tables.iter().map(|id| Arc::clone(&catalog.tables[id])).collect();
        let infos = tables
            .iter()
            .map(|table| (Arc::new(table.info.clone()), (0..table.info.columns.len()).collect()));
        let mut source = TableSource::new(Arc::clone(&self.store), infos).unwrap();
        for table in &tables {
            source = source.partitioned(table.id(), table.physical_ids());
        }
        let options = DataflowOptions { parallelism: self.parallelism, ..DataflowOptions::default() };
        let runs = Arc::clone(&self.runs) as Arc<dyn RunSource>;
        let dataflow = Dataflow::open(Arc::new(plan.plan.clone()), Vec::new(), Arc::clone(&runs), options);
        let sink = ViewSink::open(&ready.info, None, runs).unwrap();
        let mut maintained = Maintained { dataflow: dataflow.unwrap(), sink, source, tables };
        let cut = self.record.cut;
        let mut deltas = Vec::new();
        for table in maintained.source.tables() {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = maintained.source.read_rows(table, cut, after.as_deref(), 100).await.unwrap();
                assert!(page.faults.is_empty());
                after = page.last_key.map(|key| key.to_vec());
                deltas.push(TableDelta { table, delta: page.delta });
                if page.done {
                    break;
                }
            }
        }
        let epoch = self.record.epoch.next();
        let mut mutations = change.mutations;
        mutations.extend(self.advance(definition.id(), &mut maintained, epoch, deltas).await);
        self.views.insert(definition.id(), maintained);
        self.record.epoch = epoch;
        mutations.push(Mutation::put(epoch_record_key(MAIN_JOB), self.record.encode()));
        let start_ts = self.store.timestamp().await.unwrap();
        self.commit(start_ts, mutations).await;
    }

    /// One epoch of one view: what is to be committed.
    async fn advance(
        &self,
        view: TableId,
        maintained: &mut Maintained,
        epoch: Epoch,
        deltas: Vec<TableDelta>,
    ) -> Vec<Mutation> {
        let (sealed_runs, mutations) = tokio::task::block_in_place(|| {
            let Maintained { dataflow, sink, tables, .. } = maintained;
            for changed in deltas {
                let TableDelta { table, delta } = numbered(tables, changed);
                dataflow.push(table, &delta).unwrap();
            }
            let output = dataflow.barrier().unwrap();
            let mut namer = RunNamer::new(MAIN_JOB, Generation(1), epoch, view);
            let mut sealed = dataflow.seal(&mut namer).unwrap();
            let mut fold = Fold::default();
            sink.add(&mut fold, &output).unwrap();
            let mut mutations = sink.prepare(fold).unwrap().mutations;
            if let Some(manifest) = sink.seal(&mut namer, &mut sealed.runs).unwrap() {
                mutations.push(manifest_mutation(sink.state_id(), &manifest).unwrap());
            }
            for (state, manifest) in &sealed.manifests {
                let state = StateId { view, state: *state };
                mutations.push(manifest_mutation(state, manifest).unwrap());
            }
            (sealed.runs, mutations)
        });
        self.runs.write_runs(&sealed_runs).await.unwrap();
        mutations
    }

    /// Ends an epoch of all views at a new cut.
    pub(crate) async fn epoch(&mut self) -> Timestamp {
        let cut = self.store.read_timestamp().await.unwrap();
        let epoch = self.record.epoch.next();
        let mut views = std::mem::take(&mut self.views);
        let mut mutations = Vec::new();
        for (id, maintained) in &mut views {
            let mut deltas = Vec::new();
            let mut cursor = None;
            loop {
                let page = maintained.source.read_changes(self.record.cut, cut, cursor, 50).await.unwrap();
                assert!(page.faults.is_empty());
                deltas.extend(page.deltas);
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            mutations.extend(self.advance(*id, maintained, epoch, deltas).await);
        }
        self.views = views;
        self.record = EpochRecord { epoch, cut, ..self.record.clone() };
        mutations.push(Mutation::put(epoch_record_key(MAIN_JOB), self.record.encode()));
        let start_ts = self.store.timestamp().await.unwrap();
        self.commit(start_ts, mutations).await
    }

    /// The cut of the newest epoch.
    pub(crate) fn cut(&self) -> Timestamp {
        self.record.cut
    }

    /// Rewrites a view's definition as faulted or filling.
    pub(crate) async fn set_state(&self, name: &str, state: ViewState) {
        let (start_ts, catalog) = self.catalog_to_change().await;
        let definition = catalog.find("test", name).unwrap();
        let mut changed = (**definition).clone();
        changed.view.as_mut().unwrap().state = state;
        let version = types::records::catalog_version_key();
        let mutations = vec![
            Mutation::put(table_key(definition.id()), serde_json::to_vec(&changed).unwrap()),
            Mutation::put(version, (catalog.version + 1).to_string().into_bytes()),
        ];
        self.commit(start_ts, mutations).await;
    }

    /// The settings with a mode and a path.
    pub(crate) fn with(&self, mode: ReadMode, path: PathChoice) -> ReadSettings {
        ReadSettings { mode, path, ..self.settings.clone() }
    }

    /// Answers a query.
    pub(crate) async fn query(
        &self,
        settings: &ReadSettings,
        text: &str,
        txn: Option<&Transaction>,
        parameters: &[Literal],
    ) -> Result<QueryResult> {
        let parsed = sql::parse(text, &Settings::default())?.remove(0);
        let Statement::Query(query) = parsed.statement else { panic!("no query: {text}") };
        self.engine.select(settings, &query.query, txn, parameters).await
    }

    /// The rows of a query in their order, as text.
    pub(crate) async fn rows(&self, text: &str) -> Vec<Row> {
        let result = self.query(&self.settings, text, None, &[]).await;
        rows_of(result.unwrap_or_else(|error| panic!("{text}: {error}"))).await.unwrap()
    }

    /// The rows of a query in their order, with given settings.
    pub(crate) async fn rows_in(&self, settings: &ReadSettings, text: &str) -> Vec<Row> {
        let result = self.query(settings, text, None, &[]).await;
        rows_of(result.unwrap_or_else(|error| panic!("{text}: {error}"))).await.unwrap()
    }

    /// The rows of a query, sorted, in a mode, at a time and inside a transaction or not.
    pub(crate) async fn sorted(
        &self,
        settings: &ReadSettings,
        text: &str,
        txn: Option<&Transaction>,
    ) -> Vec<Row> {
        let result = self.query(settings, text, txn, &[]).await;
        let mut rows = rows_of(result.unwrap_or_else(|error| panic!("{text}: {error}"))).await.unwrap();
        rows.sort();
        rows
    }

    /// The path on which the one view of a query is read.
    pub(crate) async fn path(
        &self,
        settings: &ReadSettings,
        text: &str,
        txn: Option<&Transaction>,
    ) -> query::ViewPath {
        let result = self.query(settings, text, txn, &[]).await.unwrap();
        assert_eq!(result.paths.len(), 1, "{text}");
        result.paths[0].clone()
    }
}

/// The rows of an answer, as text.
pub(crate) async fn rows_of(result: QueryResult) -> Result<Vec<Row>> {
    let batches: Vec<_> = result.batches.try_collect().await?;
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|array| ArrayFormatter::try_new(array.as_ref(), &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            rows.push(columns.iter().map(|column| column.value(row).to_string()).collect());
        }
    }
    Ok(rows)
}

/// Rows written as `a b, c d`.
pub(crate) fn table(text: &str) -> Vec<Row> {
    text.split(',').map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
}
