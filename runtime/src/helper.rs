//! A process that helps: it takes shares in the runs of another process's jobs.
//!
//! ```text
//! offer --> a share --> load its views --> [ await an epoch --> absorb --> seal --> decide ]*
//! ```
//!
//! It keeps nothing: a share that ends, for whatever reason, is dropped, and the next one begins at the
//! frontier. What it cannot go on with it gives up at once, so that nobody waits for its vote; that it died
//! the coordinator finds out by its silence.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{Coordinator, HelperId, OfferRequest, Share};
use sql::catalog::TableDefinition;
use store::Store;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{Error, ErrorKind, Generation, JobId, Result, TableId};

use crate::shared::Shared;
use crate::transaction::repeat;
use crate::views::Ends;
use crate::worker::{Nothing, Worker};
use crate::{RuntimeOptions, Supervisor};

/// The pause before an offer that failed is made again.
const OFFER_AGAIN_MS: u64 = 200;

/// A process's offer to work for the jobs of a coordinator.
pub struct Helper {
    shared: Arc<Shared>,
    id: HelperId,
    shares: watch::Receiver<Vec<Share>>,
}

impl Helper {
    /// Offers this process's work. The coordinator need not be there yet, and may go and come back.
    ///
    /// # Errors
    /// `Invalid` for an option, or what the store says.
    pub async fn start(
        store: Arc<dyn Store>,
        coordinator: Arc<dyn Coordinator>,
        options: RuntimeOptions,
        supervisor: Supervisor,
    ) -> Result<Helper> {
        options.validate()?;
        let shared = Shared::new(store, coordinator, options, supervisor).await?;
        let id = HelperId(rand::random());
        let (sender, shares) = watch::channel(Vec::new());
        let token = shared.supervisor.token();
        let offer = offer(Arc::clone(&shared), id, sender, token);
        drop(shared.supervisor.spawn("offers of help", offer));
        Ok(Helper { shared, id, shares })
    }

    /// What this process is called among helpers.
    #[must_use]
    pub fn id(&self) -> HelperId {
        self.id
    }

    /// The shares it has, as they change.
    #[must_use]
    pub fn shares(&self) -> watch::Receiver<Vec<Share>> {
        self.shares.clone()
    }

    /// Gives every share up, takes the offer back, and waits for the tasks; the store stays open.
    pub async fn shutdown(&self) {
        self.shared.supervisor.shutdown().await;
    }
}

/// A share that is worked on, or has failed: then its run is over.
struct Work {
    generation: Generation,
    stop: CancellationToken,
}

/// Offers help until it is told to stop, and works on what it is given.
async fn offer(
    shared: Arc<Shared>,
    id: HelperId,
    told: watch::Sender<Vec<Share>>,
    token: CancellationToken,
) -> Result<()> {
    let mut works: BTreeMap<JobId, Work> = BTreeMap::new();
    let mut is_away = false;
    while !token.is_cancelled() {
        let known = works.iter().map(|(job, work)| (*job, work.generation)).collect();
        let request = OfferRequest { helper: id, known, leaves: false };
        let shares = tokio::select! {
            () = token.cancelled() => break,
            shares = shared.coordinator.offer(request) => shares,
        };
        match shares {
            Ok(shares) => {
                is_away = false;
                take(&shared, &mut works, &shares, &token);
                told.send_if_modified(|known| {
                    *known != shares && {
                        *known = shares;
                        true
                    }
                });
            }
            Err(error) => {
                if !std::mem::replace(&mut is_away, true) {
                    tracing::warn!(%error, "the coordinator does not take the offer of help, it is made again");
                }
                tokio::select! {
                    () = token.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_millis(OFFER_AGAIN_MS)) => {}
                }
            }
        }
    }
    for work in works.values() {
        work.stop.cancel();
    }
    let leaving = OfferRequest { helper: id, known: Vec::new(), leaves: true };
    if let Err(error) = shared.coordinator.offer(leaving).await {
        tracing::info!(%error, "the coordinator was not told that a helper leaves");
    }
    Ok(())
}

/// Ends what is not ours any more, and begins what is new.
fn take(
    shared: &Arc<Shared>,
    works: &mut BTreeMap<JobId, Work>,
    shares: &[Share],
    token: &CancellationToken,
) {
    works.retain(|job, work| {
        let is_ours =
            shares.iter().any(|share| share.job == *job && share.taken.generation == work.generation);
        if !is_ours {
            work.stop.cancel();
        }
        is_ours
    });
    for share in shares {
        works.entry(share.job).or_insert_with(|| {
            let stop = token.child_token();
            let generation = share.taken.generation;
            let task = help(Arc::clone(shared), share.clone(), stop.clone());
            let name = format!("share {} of job {}", share.worker, share.job);
            drop(shared.supervisor.spawn(name, task));
            Work { generation, stop }
        });
    }
}

/// Works on a share until it ends; what goes wrong ends the run for all of its workers.
async fn help(shared: Arc<Shared>, share: Share, stop: CancellationToken) -> Result<()> {
    let (job, generation) = (share.job, share.taken.generation);
    let name = format!("worker {} of job {job}", share.worker);
    // A task of its own, so that a panic is an error here.
    let mut work = shared.supervisor.spawn(name, follow(Arc::clone(&shared), share.clone(), stop.clone()));
    let ended = tokio::select! {
        () = stop.cancelled() => {
            // Dropped halfway it is as if the process had died: the next take-over decides what was under
            // way.
            work.abort();
            return Ok(());
        }
        ended = &mut work => ended,
    };
    let outcome = ended.unwrap_or_else(|error| Err(Error::unavailable(format!("cancelled: {error}"))));
    let Err(error) = outcome else { return Ok(()) };
    tracing::warn!(job = job.0, generation = generation.0, %error, "the share is given up");
    if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Closed) {
        return Ok(());
    }
    let reason = format!("worker {} of {}: {}", share.worker, share.n_workers, error.message());
    if let Err(error) = repeat(|| shared.coordinator.give_up(job, generation, &reason)).await {
        tracing::debug!(%error, "the run was over before");
    }
    Ok(())
}

async fn follow(shared: Arc<Shared>, share: Share, stop: CancellationToken) -> Result<()> {
    let mut worker = Worker::help(Arc::clone(&shared), &share, stop)?;
    worker.load_own().await?;
    shared.pass("runtime::loaded")?;
    loop {
        let (job, generation, epoch) = (worker.job, worker.generation, worker.frontier.epoch.next());
        let opened = repeat(|| shared.coordinator.await_epoch(job, generation, epoch)).await?;
        shared.pass("runtime::opened")?;
        let started = Instant::now();
        if opened.cut < worker.read_to {
            return Err(Error::corrupt(format!("cut {} is before {}", opened.cut, worker.read_to)));
        }
        // Memory may be full before the cut; it is the leader that chose it.
        while worker.read_to < opened.cut {
            worker.absorb(opened.cut).await?;
        }
        shared.pass("runtime::absorbed")?;
        let sealed = worker.seal(opened.clone(), Vec::new(), Ends::Cut).await?;
        let run_bytes = sealed.run_bytes();
        let decided = worker.decide(sealed, &mut Nothing).await?;
        worker.advance(opened, decided, run_bytes, started);
        worker.follow_catalog().await?;
    }
}

impl Worker {
    /// Opens every view of its share, as of the take-over.
    pub(crate) async fn load_own(&mut self) -> Result<()> {
        let at = self.commit_ts;
        let catalog = self.shared.catalog_at(at).await?;
        let own: Vec<Arc<TableDefinition>> =
            catalog.tables.values().filter(|known| self.maintains(known)).cloned().collect();
        let catalog = self.as_of_read(&catalog).await?;
        for definition in own {
            self.load_view(&catalog, &definition, at).await?;
        }
        self.bind_sources(&catalog)
    }

    /// Takes up the views of its share that the last epoch adopted, and lets go of those it ended: the leader
    /// changes the catalog in the epoch's own transaction.
    async fn follow_catalog(&mut self) -> Result<()> {
        let at = self.commit_ts;
        self.shared.store.wait_visible(at).await?;
        let catalog = self.shared.catalog_at(at).await?;
        let is_ours = |worker: &Worker, view: &TableId| {
            catalog.tables.get(view).is_some_and(|known| worker.maintains(known))
        };
        let gone: Vec<TableId> =
            self.views.running.keys().filter(|view| !is_ours(self, view)).copied().collect();
        let come: Vec<Arc<TableDefinition>> = catalog
            .tables
            .values()
            .filter(|known| self.maintains(known) && !self.views.running.contains_key(&known.id()))
            .cloned()
            .collect();
        if gone.is_empty() && come.is_empty() {
            return Ok(());
        }
        let catalog = self.as_of_read(&catalog).await?;
        for view in gone {
            self.views.remove(view);
        }
        for definition in come {
            self.load_view(&catalog, &definition, at).await?;
        }
        self.bind_sources(&catalog)
    }
}
