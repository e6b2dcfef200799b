//! DDL as transactions over the epoch records of the jobs it touches.
//!
//! A change of the catalog is made on one snapshot and committed with: the epoch record of each
//! continuous job whose views change, with `definitions` + 1 (the lock on it is the only intent; a
//! coordinator with an older count reloads before it decides); a fill's epoch record and position, made
//! with its view and deleted with it; a note for the sweep of everything dropped. A view's hold is set
//! before the transaction, so its history is there from S0 on. Conflicts are tried again on a newer
//! snapshot.

use std::collections::BTreeSet;
use std::sync::Arc;

use coordinator::hold_name;
use sql::catalog::{Catalog, CatalogChange, DroppedTable, TableDefinition};
use store::{Mutation, Snapshot};
use types::records::{self, EpochRecord};
use types::{Epoch, Error, ErrorKind, Generation, JobId, Result, Timestamp};

use crate::records::{FillPhase, FillPosition, encode, read_epoch_record};
use crate::shared::Shared;
use crate::tidb_views::{Placed, check_reachable, no_tidb, place};
use crate::transaction::repeat;

/// How long a DDL is tried again on conflicts: every epoch of its jobs may be in its way.
const TRY_FOR_MS: u64 = 60_000;
/// The longest pause between two tries.
const PAUSE_MS_MAX: u64 = 50;

/// Makes a change on a snapshot of the catalog at a timestamp; called again on a newer one if it conflicts.
pub(crate) type MakeChange<'a> = dyn Fn(&Catalog, Timestamp) -> Result<CatalogChange> + Send + Sync + 'a;

/// Commits a change of the catalog with everything that belongs to it.
///
/// # Errors
/// What `make` refuses; `Conflict` if it could not be committed in time; what the store says.
pub(crate) async fn commit_ddl(shared: &Shared, make: &MakeChange<'_>) -> Result<CatalogChange> {
    commit(shared, make, Asked::ByItself).await
}

/// As [`commit_ddl`], for a change that somebody waits for: one that TiDB must carry out too is not begun
/// while TiDB is away.
///
/// # Errors
/// As [`commit_ddl`]; `Unavailable` if TiDB cannot be reached.
pub(crate) async fn commit_asked(shared: &Shared, make: &MakeChange<'_>) -> Result<CatalogChange> {
    commit(shared, make, Asked::ByUser).await
}

/// Who wants a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// A statement.
    ByUser,
    /// The runtime: what hangs on TiDB is done later.
    ByItself,
}

/// What came of an attempt.
enum Attempted {
    /// It is committed.
    Done(CatalogChange),
    /// The view needs a table in TiDB first.
    NeedsTable(Arc<TableDefinition>),
    /// It is not begun, because TiDB is away.
    Away(Error),
}

async fn commit(shared: &Shared, make: &MakeChange<'_>, asked: Asked) -> Result<CatalogChange> {
    // One at a time in this process: they would conflict with each other anyway.
    let _turn = shared.ddl.lock().await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_millis(TRY_FOR_MS);
    let mut pause_ms = 1;
    let mut placed: Option<Placed> = None;
    loop {
        match attempt(shared, make, asked, placed.as_ref()).await {
            Ok(Attempted::Done(change)) => {
                // What IF NOT EXISTS made superfluous.
                if let Some(placed) = placed.filter(|_| change.created.is_none()) {
                    placed.give_up(shared).await;
                }
                shared.catalog_changed();
                return Ok(change);
            }
            Ok(Attempted::NeedsTable(created)) => {
                if let Some(placed) = placed.take() {
                    placed.give_up(shared).await;
                }
                let tidb = shared.options.tidb.as_ref().ok_or_else(|| no_tidb(&created.full_name()))?;
                placed = Some(place(shared, tidb, &created).await?);
            }
            Ok(Attempted::Away(error)) => return Err(error),
            Err(error) if !may_retry(&error) || tokio::time::Instant::now() >= deadline => {
                // Known not to have happened; else the table is found when its intent is old.
                if let Some(placed) = placed.filter(|_| error.kind() == ErrorKind::Invalid) {
                    placed.give_up(shared).await;
                }
                return Err(error);
            }
            Err(error) => {
                tracing::debug!(%error, "ddl conflicts, trying again");
                tokio::time::sleep(std::time::Duration::from_millis(pause_ms)).await;
                pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
            }
        }
    }
}

fn may_retry(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable)
}

async fn attempt(
    shared: &Shared,
    make: &MakeChange<'_>,
    asked: Asked,
    placed: Option<&Placed>,
) -> Result<Attempted> {
    let start_ts = shared.store.timestamp().await?;
    shared.store.wait_visible(start_ts).await?;
    let catalog = shared.catalog_at(start_ts).await?;
    let mut change = make(&catalog, start_ts)?;
    if change.mutations.is_empty() {
        return Ok(Attempted::Done(change));
    }
    if asked == Asked::ByUser
        && let Err(error) = check_reachable(shared, &change).await
    {
        return Ok(Attempted::Away(error));
    }
    let mut end_intent = None;
    if let Some(created) = change.created.clone().filter(|created| needs_table(shared, &catalog, created)) {
        let snapshot = Snapshot::new(Arc::clone(&shared.store), start_ts);
        match placed.filter(|placed| placed.fits(&created)) {
            Some(placed) if placed.is_intended(&snapshot).await? => {
                change.place(placed.info.clone(), placed.tidb.clone())?;
                end_intent = Some(placed.end_intent());
            }
            _ => return Ok(Attempted::NeedsTable(created)),
        }
    }
    let mut mutations = change.mutations.clone();
    mutations.extend(end_intent);
    let snapshot = change.fill_at.unwrap_or(start_ts);
    let fill = change.created.as_deref().and_then(fill_of);
    if let (Some(fill), Some(created)) = (fill, change.created.as_deref()) {
        mutations.extend(begin_fill(created, fill, snapshot)?);
        shared.store.hold(&hold_name(fill), snapshot).await?;
    }
    let outcome = finish(shared, &change, mutations, start_ts).await;
    if let (Some(fill), Err(error)) = (fill, &outcome)
        && error.kind() != ErrorKind::Unavailable
    {
        // Known not to have happened; after an unknown outcome the sweep of holds decides.
        shared.store.release(&hold_name(fill)).await?;
    }
    outcome?;
    Ok(Attempted::Done(change))
}

/// Whether a view is to lie in a table of TiDB: one that is filled, where a TiDB is configured, or where it
/// is to take the place of one that does.
fn needs_table(shared: &Shared, catalog: &Catalog, created: &TableDefinition) -> bool {
    let replaced = created.view.as_ref().and_then(|view| view.replaces);
    let was_table = replaced.and_then(|old| catalog.tables.get(&old)).is_some_and(|old| old.tidb().is_some());
    fill_of(created).is_some() && (shared.options.tidb.is_some() || was_table)
}

async fn finish(
    shared: &Shared,
    change: &CatalogChange,
    mut mutations: Vec<Mutation>,
    start_ts: Timestamp,
) -> Result<()> {
    let fills: BTreeSet<JobId> = change.dropped.iter().filter_map(|gone| fill_of(gone)).collect();
    for gone in &change.dropped {
        mutations.extend(forget_table(gone)?);
    }
    let created_fill = change.created.as_deref().and_then(fill_of);
    for job in change.jobs.iter().filter(|job| !fills.contains(job) && created_fill != Some(**job)) {
        mutations.push(count_definitions(shared, *job, start_ts).await?);
    }
    if let Some((from, to)) = change.detached {
        mutations.push(detach(shared, from, to, start_ts).await?);
    }
    shared.options.fail_points.pass("runtime::ddl_before_commit")?;
    // The same call again tells what became of it when its answer was lost.
    repeat(|| async { Ok(shared.store.commit_transaction(start_ts, mutations.clone()).await?) }).await?;
    shared.options.fail_points.pass("runtime::ddl_after_commit")?;
    Ok(())
}

/// The fill that builds a view, or built it before it faulted.
pub(crate) fn fill_of(definition: &TableDefinition) -> Option<JobId> {
    definition.view.as_ref().and_then(|view| view.fill_job)
}

/// The records of a new fill: epoch 0 with the cut S0, and the position before the first row.
fn begin_fill(created: &TableDefinition, fill: JobId, snapshot: Timestamp) -> Result<Vec<Mutation>> {
    let adopter = created.view.as_ref().map(|view| view.job);
    let adopter = adopter.ok_or_else(|| Error::corrupt("a fill of what is no view"))?;
    let record = EpochRecord { epoch: Epoch(0), cut: snapshot, generation: Generation(0), definitions: 0 };
    let position = FillPosition {
        view: created.id(),
        adopter,
        snapshot,
        phase: FillPhase::Snapshot { table_index: 0, last_key: None },
        rows_done: 0,
        frozen: created.view.as_ref().is_some_and(|view| view.refresh.is_by_refresh()),
    };
    Ok(vec![
        Mutation::put(records::epoch_record_key(fill), record.encode()),
        Mutation::put(records::fill_position_key(fill), encode(&position)?),
    ])
}

/// What else goes with a table or view that is dropped: its fill, and a note for the sweep.
pub(crate) fn forget_table(gone: &TableDefinition) -> Result<Vec<Mutation>> {
    let note = DroppedTable::of(gone);
    let mut mutations = vec![Mutation::put(records::dropped_key(gone.id()), encode(&note)?)];
    if let Some(fill) = fill_of(gone) {
        mutations.push(Mutation::delete(records::epoch_record_key(fill)));
        mutations.push(Mutation::delete(records::fill_position_key(fill)));
    }
    Ok(mutations)
}

/// The job's epoch record with one definition more; the first one of a new job.
async fn count_definitions(shared: &Shared, job: JobId, at: Timestamp) -> Result<Mutation> {
    let key = records::epoch_record_key(job);
    let record = match read_epoch_record(&Snapshot::new(Arc::clone(&shared.store), at), job).await? {
        Some(record) => EpochRecord { definitions: record.definitions + 1, ..record },
        None => EpochRecord { epoch: Epoch(0), cut: at, generation: Generation(0), definitions: 1 },
    };
    Ok(Mutation::put(key, record.encode()))
}

/// The first record of a job that goes on with a view of another job, from that one's cut: the view's rows
/// and state are those of that checkpoint. The other's record is rewritten in the same transaction, so no
/// epoch of it comes between.
async fn detach(shared: &Shared, from: JobId, to: JobId, at: Timestamp) -> Result<Mutation> {
    let record = read_epoch_record(&Snapshot::new(Arc::clone(&shared.store), at), from).await?;
    let record = record.ok_or_else(|| Error::corrupt(format!("job {from} has no epoch record at {at}")))?;
    let cut = record.cut;
    shared.store.hold(&hold_name(to), cut).await?;
    let record = EpochRecord { epoch: Epoch(0), cut, generation: Generation(0), definitions: 1 };
    Ok(Mutation::put(records::epoch_record_key(to), record.encode()))
}

/// The job that a name stands for: `main`, or a number that the name alone decides.
///
/// # Errors
/// `Invalid` if a view with another job name has the same number (then another name must be chosen).
pub(crate) fn job_of_name(catalog: &Catalog, name: &str) -> Result<JobId> {
    if name.eq_ignore_ascii_case("main") {
        return Ok(records::MAIN_JOB);
    }
    let name = name.to_lowercase();
    // FNV-1a, beyond every number that the allocator of ids hands out.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let job = JobId(1 << 32 | u64::from(hash));
    let other = catalog.views().find(|(_, _, view)| {
        view.job == job && view.options.get("job").is_none_or(|known| known.to_lowercase() != name)
    });
    match other {
        None => Ok(job),
        Some((_, definition, _)) => Err(Error::invalid(format!(
            "job name '{name}' collides with the job of view '{}': choose another name",
            definition.full_name()
        ))),
    }
}

/// The definition that a view's name stands for.
///
/// # Errors
/// MySQL 1146 or 1347.
pub(crate) fn require_view<'a>(
    catalog: &'a Catalog,
    database: &str,
    name: &str,
) -> Result<&'a Arc<TableDefinition>> {
    let definition = catalog.require(database, name)?;
    if definition.view.is_none() {
        return Err(Error::mysql(1347, format!("'{}' is not a materialized view", definition.full_name())));
    }
    Ok(definition)
}
