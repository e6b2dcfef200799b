//! A view's table, epochs over the store in memory, and what is stored in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use operators::RunNamer;
use proptest::test_runner::Config as ProptestConfig;
use sink::{Fold, Prepared, RunCache, SinkError, ViewSink, load_manifests, manifest_mutation};
use store::{
    AssertionLevel, CommitRequest, EmbeddedStore, KeyRange, Mutation, PrewriteRequest, Snapshot, Store,
};
use tidb::{ColumnInfo, ColumnType, RowDecoder, TableInfo, record_range};
use tokio::runtime::Runtime;
use types::records::MAIN_JOB;
use types::{Delta, Epoch, Generation, TableId, Timestamp};

/// A row of the view: k, v.
pub(crate) type Row = (i64, Option<String>);

/// So many cases, or twenty times as many in a soak.
pub(crate) fn cases(n_cases: u32) -> ProptestConfig {
    let soak = std::env::var_os("TIDEMILL_SOAK").is_some();
    ProptestConfig::with_cases(if soak { 20 * n_cases } else { n_cases })
}

pub(crate) fn view(keyed: bool) -> TableInfo {
    let column = |id, name: &str, column_type, not_null| ColumnInfo {
        id,
        name: name.into(),
        column_type,
        not_null,
        default: None,
        origin_default: None,
        comment: String::new(),
    };
    TableInfo {
        id: 9,
        name: "v".into(),
        columns: vec![
            column(1, "k", ColumnType::Int { bits: 64, unsigned: false }, true),
            column(2, "v", ColumnType::Varchar(20), false),
        ],
        primary_key: if keyed { vec![0] } else { vec![] },
        pk_is_handle: keyed,
        indexes: Vec::new(),
        comment: String::new(),
    }
}

pub(crate) fn delta(rows: &[(Row, i64)]) -> Delta {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|(row, _)| Some(row.0)).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|(row, _)| row.1.as_deref()).collect::<StringArray>()),
    ];
    let batch = RecordBatch::try_new(view(false).arrow_schema(), columns).unwrap();
    Delta::new(batch, rows.iter().map(|(_, weight)| Some(*weight)).collect())
}

/// A store with one view, whose epochs are committed one after another.
pub(crate) struct Epochs {
    pub(crate) runtime: Runtime,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<RunCache>,
    pub(crate) table: TableInfo,
    pub(crate) sink: ViewSink,
    epoch: Epoch,
}

impl Epochs {
    pub(crate) fn new(keyed: bool) -> Epochs {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let store: Arc<dyn Store> = EmbeddedStore::memory();
        let cache = RunCache::new(Arc::clone(&store), runtime.handle().clone(), 1 << 20);
        let table = view(keyed);
        let sink = ViewSink::open(&table, None, Arc::<RunCache>::clone(&cache)).unwrap();
        Epochs { runtime, store, cache, table, sink, epoch: Epoch(0) }
    }

    pub(crate) fn fold(&self, deltas: &[Delta]) -> Result<Fold, SinkError> {
        let mut fold = Fold::default();
        for delta in deltas {
            self.sink.add(&mut fold, delta)?;
        }
        Ok(fold)
    }

    /// One epoch, from deltas to the commit.
    pub(crate) fn run(&mut self, deltas: &[Delta]) -> Result<Prepared, SinkError> {
        let fold = self.fold(deltas)?;
        let prepared = self.sink.prepare(fold)?;
        self.epoch = self.epoch.next();
        let mut namer = RunNamer::new(MAIN_JOB, Generation(1), self.epoch, TableId(9));
        let mut sealed = Vec::new();
        let manifest = self.sink.seal(&mut namer, &mut sealed).unwrap();
        self.runtime.block_on(self.cache.write_runs(&sealed)).unwrap();
        let mut mutations = prepared.mutations.clone();
        if let Some(manifest) = manifest {
            mutations.push(manifest_mutation(self.sink.state_id(), &manifest).unwrap());
        }
        self.commit(mutations);
        Ok(prepared)
    }

    /// A new run of the job: the sink over the manifest in the store, and an empty, tiny cache.
    pub(crate) fn restart(&mut self, n_cache_bytes: usize) {
        let now = self.now();
        let manifests = self.runtime.block_on(load_manifests(&self.store, TableId(9), now)).unwrap();
        self.cache = RunCache::new(Arc::clone(&self.store), self.runtime.handle().clone(), n_cache_bytes);
        let manifest = manifests.get(&self.sink.state_id().state);
        self.sink = ViewSink::open(&self.table, manifest, Arc::<RunCache>::clone(&self.cache)).unwrap();
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.runtime.block_on(self.store.read_timestamp()).unwrap()
    }

    /// Commits in halves, with every assertion checked.
    fn commit(&self, mutations: Vec<Mutation>) {
        let Some(primary) = mutations.first().map(|mutation| mutation.key.clone()) else { return };
        let keys: Vec<_> = mutations.iter().map(|mutation| mutation.key.clone()).collect();
        self.runtime.block_on(async {
            let start_ts = self.store.timestamp().await.unwrap();
            let request = PrewriteRequest {
                txn_size: mutations.len() as u64,
                mutations,
                primary: primary.clone(),
                start_ts,
                ttl_ms: 20_000,
                min_commit_ts: Timestamp::ZERO,
                assertion_level: AssertionLevel::Strict,
                staged: false,
            };
            self.store.prewrite(request).await.unwrap();
            let commit =
                |keys, commit_ts| CommitRequest { start_ts, keys, primary: primary.clone(), commit_ts };
            let commit_ts = self.store.commit(commit(vec![primary.clone()], None)).await.unwrap();
            self.store.commit(commit(keys[1..].to_vec(), Some(commit_ts))).await.unwrap();
        });
    }

    /// The stored rows of the view, with how often each is there.
    pub(crate) fn stored(&self) -> BTreeMap<Row, i64> {
        let mut decoder = RowDecoder::new(&self.table, &[0, 1]).unwrap();
        for (key, value) in self.stored_pairs() {
            decoder.append(&key, &value).unwrap();
        }
        let batch = decoder.finish().unwrap();
        let mut rows = BTreeMap::new();
        for row in 0..batch.num_rows() {
            let texts = batch.column(1).as_string::<i32>();
            let text = texts.is_valid(row).then(|| texts.value(row).to_owned());
            *rows.entry((batch.column(0).as_primitive::<Int64Type>().value(row), text)).or_insert(0) += 1;
        }
        rows
    }

    pub(crate) fn stored_pairs(&self) -> Vec<(store::Key, store::Value)> {
        let (start, end) = record_range(9);
        let snapshot = Snapshot::new(Arc::clone(&self.store), self.now());
        self.runtime.block_on(snapshot.scan_all(&KeyRange::new(start, end))).unwrap()
    }
}
