//! Which jobs run: the main job always, a named job while it has views, a fill while its view is filling.
//!
//! The director compares what the catalog asks for with what runs, at every change of the catalog and
//! every second. Each job has a keeper: it runs the job, and after a failure runs it again under a new
//! generation, after a growing pause. A run that was fenced stays away while the newer one is alive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sql::catalog::{Catalog, ViewState};
use store::Snapshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::records::{EpochRecord, MAIN_JOB};
use types::{Epoch, Error, ErrorKind, JobId, Result, TableId};

use crate::records::read_epoch_record;
use crate::shared::Shared;
use crate::{JobKind, fill, job};

/// How often the catalog is looked at even if nobody said that it changed.
const LOOK_EVERY_MS: u64 = 1_000;
/// A run that lived so long, or decided an epoch, has recovered: its next failure begins with the shortest
/// pause.
const HEALTHY_MS: u64 = 10_000;

/// What is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A continuous job.
    Continuous,
    /// The job of one view that works by refreshes, or is suspended.
    Refreshed,
    /// The fill of a view.
    Fill(TableId),
}

/// Starts and stops jobs until it is told to stop, and returns when all of them have ended.
///
/// # Errors
/// `Closed` when the store is closed.
pub(crate) async fn direct(shared: Arc<Shared>, token: CancellationToken) -> Result<()> {
    let mut keepers = Vec::new();
    let outcome = direct_until(&shared, &token, &mut keepers).await;
    token.cancel();
    for keeper in keepers {
        // A keeper that panicked was reported by the supervisor.
        drop(keeper.await);
    }
    outcome
}

async fn direct_until(
    shared: &Arc<Shared>,
    token: &CancellationToken,
    keepers: &mut Vec<JoinHandle<Result<()>>>,
) -> Result<()> {
    let mut changes = shared.catalog_changes.subscribe();
    let mut running: BTreeMap<JobId, CancellationToken> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        keepers.retain(|keeper| !keeper.is_finished());
        match wanted(shared).await {
            Ok(wanted) => {
                running.retain(|job, stop| {
                    if !wanted.contains_key(job) {
                        stop.cancel();
                    }
                    !stop.is_cancelled()
                });
                for (job, what) in wanted {
                    running.entry(job).or_insert_with(|| {
                        let stop = token.child_token();
                        let keeper = keep(Arc::clone(shared), job, what, stop.clone());
                        keepers.push(shared.supervisor.spawn(format!("keeper of job {job}"), keeper));
                        stop
                    });
                }
            }
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => tracing::warn!(%error, "cannot read which jobs are to run"),
        }
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            changed = changes.changed() => drop(changed),
            () = tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
        }
    }
}

async fn wanted(shared: &Shared) -> Result<BTreeMap<JobId, Wanted>> {
    let now = shared.store.read_timestamp().await?;
    let catalog = shared.catalog_at(now).await?;
    Ok(wanted_of(&catalog))
}

fn wanted_of(catalog: &Catalog) -> BTreeMap<JobId, Wanted> {
    let mut wanted = BTreeMap::from([(MAIN_JOB, Wanted::Continuous)]);
    for (id, _, view) in catalog.views() {
        wanted.insert(view.job, if view.has_own_job() { Wanted::Refreshed } else { Wanted::Continuous });
        if let (ViewState::Filling, Some(fill)) = (&view.state, view.fill_job) {
            wanted.insert(fill, Wanted::Fill(id));
        }
    }
    wanted
}

/// Keeps one job running until it is over or is told to stop.
async fn keep(shared: Arc<Shared>, job: JobId, what: Wanted, stop: CancellationToken) -> Result<()> {
    let kind = match what {
        Wanted::Continuous => JobKind::Continuous,
        Wanted::Refreshed => JobKind::Refreshed,
        Wanted::Fill(_) => JobKind::Fill,
    };
    let door = shared.board.enter(job, kind);
    let (first_ms, most_ms) = shared.options.restart_backoff_ms;
    let mut pause_ms = first_ms;
    while !stop.is_cancelled() {
        let began = tokio::time::Instant::now();
        let before = door.epoch();
        let token = stop.clone();
        let run = match what {
            Wanted::Continuous => {
                let run = job::run(Arc::clone(&shared), job, Arc::clone(&door), token);
                shared.supervisor.spawn(format!("job {job}"), run)
            }
            Wanted::Refreshed => {
                let run = job::serve(Arc::clone(&shared), job, Arc::clone(&door), token);
                shared.supervisor.spawn(format!("job {job}"), run)
            }
            Wanted::Fill(view) => {
                let run = fill::run(Arc::clone(&shared), job, view, token);
                shared.supervisor.spawn(format!("fill {job}"), async move { run.await.map(drop) })
            }
        };
        let ended = run.await.unwrap_or_else(|error| Err(Error::unavailable(format!("cancelled: {error}"))));
        let Err(error) = ended else { break };
        shared.board.failed(job, &error.to_string());
        if error.kind() == ErrorKind::Closed || stop.is_cancelled() {
            break;
        }
        if began.elapsed() >= Duration::from_millis(HEALTHY_MS) || has_decided(before, door.epoch()) {
            pause_ms = first_ms;
        }
        tracing::warn!(job = job.0, %error, pause_ms, "job failed, it is started again");
        metrics::counter!("tidemill_job_restarts_total").increment(1);
        if !may_succeed_later(&error) {
            // Whoever waits for the refresh hears of it; it is not tried for ever.
            if let Some(request) = door.requested() {
                door.finish(request.to);
            }
        }
        if error.kind() == ErrorKind::Fenced && kind == JobKind::Continuous {
            stay_away(&shared, job, &stop).await;
        } else {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
            }
        }
        pause_ms = (pause_ms * 2).min(most_ms);
    }
    shared.board.leave(job, &door);
    // A fill that is over must not be started again from a catalog read before it ended.
    shared.catalog_changed();
    stop.cancel();
    Ok(())
}

/// Whether a run decided an epoch: a take-over, which shows the frontier first, is none.
fn has_decided(before: Option<Epoch>, after: Option<Epoch>) -> bool {
    before.is_some_and(|before| after.is_some_and(|after| after > before))
}

fn may_succeed_later(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Fenced | ErrorKind::Conflict)
}

/// Waits while the run that fenced us moves: a living one decides an epoch at least every idle interval.
async fn stay_away(shared: &Shared, job: JobId, stop: &CancellationToken) {
    tracing::warn!(job = job.0, "a newer run of the job exists, this one stays away while it is alive");
    shared.board.waiting_for(job, "a newer run of it, elsewhere");
    let mut last = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(shared.options.idle_interval_ms.saturating_mul(2))) => {}
        }
        let record = newest_record(shared, job).await;
        match record {
            Ok(record) if record.is_some() && record == last => return,
            Ok(record) => last = record,
            Err(error) => tracing::warn!(job = job.0, %error, "cannot read the epoch record"),
        }
    }
}

async fn newest_record(shared: &Shared, job: JobId) -> Result<Option<EpochRecord>> {
    let snapshot = Snapshot::newest(Arc::clone(&shared.store)).await?;
    read_epoch_record(&snapshot, job).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_moved_the_frontier_has_recovered() {
        let epoch = |number| Some(Epoch(number));
        assert!(has_decided(epoch(3), epoch(4)));
        assert!(!has_decided(epoch(3), epoch(3)), "it took over and failed");
        assert!(!has_decided(None, epoch(3)), "it may have found that frontier");
        assert!(!has_decided(None, None) && !has_decided(epoch(3), None));
    }
}
