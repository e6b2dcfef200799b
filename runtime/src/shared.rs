//! What every task of a runtime shares.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use coordinator::Coordinator;
use sink::RunCache;
use sql::catalog::{Catalog, CatalogCache};
use store::{Snapshot, Store};
use tokio::sync::{Mutex, watch};
use types::{JobId, Result, TableId, Timestamp};

use crate::adoption::Offers;
use crate::board::Board;
use crate::lease::Holding;
use crate::maintenance::Maintenance;
use crate::refresh::Refreshing;
use crate::sweep::Ledger;
use crate::tidb_views::TidbState;
use crate::{RuntimeOptions, Supervisor};

/// Failed fills that are remembered for whoever waits for them.
const FAILURES_MAX: usize = 256;

/// Handles, options and meeting points; every part is shared by all jobs.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) options: RuntimeOptions,
    /// When this process began: a job cannot be blamed for a lag before.
    pub(crate) started: Timestamp,
    pub(crate) supervisor: Supervisor,
    pub(crate) runs: Arc<RunCache>,
    pub(crate) catalog: CatalogCache,
    pub(crate) board: Board,
    pub(crate) offers: Offers,
    /// Held while a DDL is committed.
    pub(crate) ddl: Mutex<()>,
    /// The refreshes under way.
    pub(crate) refreshing: Refreshing,
    /// Tasks that only change how views are stored.
    pub(crate) maintenance: Maintenance,
    /// What the sweeper remembers; held during a pass, of which there is one at a time.
    pub(crate) ledger: Mutex<Ledger>,
    /// Why fills of views that were to replace others failed: those views are gone from the catalog.
    pub(crate) fill_failures: std::sync::Mutex<BTreeMap<TableId, String>>,
    /// Counts changes of the catalog made in this process; the director and waiters watch it.
    pub(crate) catalog_changes: watch::Sender<u64>,
    /// Whether this process runs the jobs.
    pub(crate) lease: Holding,
    /// What is known of the TiDB whose tables views are.
    pub(crate) tidb: TidbState,
}

impl Shared {
    /// Everything at its beginning; must be called inside a tokio runtime.
    pub(crate) async fn new(
        store: Arc<dyn Store>,
        coordinator: Arc<dyn Coordinator>,
        options: RuntimeOptions,
        supervisor: Supervisor,
    ) -> Result<Arc<Shared>> {
        let started = store.read_timestamp().await?;
        let handle = tokio::runtime::Handle::current();
        let runs = RunCache::new(Arc::clone(&store), handle, options.memory_limit_bytes);
        Ok(Arc::new(Shared {
            store,
            coordinator,
            options,
            started,
            supervisor,
            runs,
            catalog: CatalogCache::new(),
            board: Board::default(),
            offers: Offers::default(),
            ddl: Mutex::new(()),
            refreshing: Refreshing::default(),
            maintenance: Maintenance::default(),
            ledger: Mutex::default(),
            fill_failures: std::sync::Mutex::default(),
            catalog_changes: watch::Sender::new(0),
            lease: Holding::default(),
            tidb: TidbState::default(),
        }))
    }

    /// The catalog at a timestamp.
    pub(crate) async fn catalog_at(&self, at: Timestamp) -> Result<Arc<Catalog>> {
        self.catalog.load_at(&Snapshot::new(Arc::clone(&self.store), at)).await
    }

    /// Tells the director and the waiters that the catalog changed.
    pub(crate) fn catalog_changed(&self) {
        self.catalog_changes.send_modify(|count| *count += 1);
    }

    /// Remembers why a fill failed whose view is gone.
    pub(crate) fn fill_failed(&self, view: TableId, reason: String) {
        let mut failures = self.fill_failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.insert(view, reason);
        while failures.len() > FAILURES_MAX {
            failures.pop_first();
        }
    }

    /// Passes a fail point.
    pub(crate) fn pass(&self, name: &str) -> Result<()> {
        self.options.fail_points.pass(name)
    }
}

/// The job of a hold's name, as `coordinator::hold_name` makes it.
pub(crate) fn job_of_hold(name: &str) -> Option<JobId> {
    name.strip_prefix("job/").and_then(|number| number.parse().ok()).map(JobId)
}
