//! Views that are built anew because TiDB changed a table that they read.
//!
//! The epoch that met the change has cut the view off and noted it. Here each such view gets the copy beside it
//! that RESUME would build, as soon as its query can be planned: at once after most changes, after a further one
//! if the table is gone or cannot be read for now. A copy that comes to nothing is tried again when TiDB's schema
//! has changed again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sql::catalog::{Catalog, CatalogChange, SchemaStamp, TableDefinition, ViewState};
use tokio_util::sync::CancellationToken;
use types::{Error, ErrorKind, Result, TableId, Timestamp};

use crate::Runtime;
use crate::ddl::commit_ddl;
use crate::records::read_epoch_record;
use crate::worker::view_of;

/// How often it is looked for views even if nobody said that the catalog changed: TiDB does not.
const LOOK_EVERY_MS: u64 = 500;

/// What a rebuild plans by, where that is not the newest catalog.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// TiDB's tables are read as they were in this one.
    pub(crate) at: Option<Arc<Catalog>>,
    /// It has the names of tables that are gone.
    pub(crate) before: Option<Arc<Catalog>>,
}

impl Past {
    /// The catalog to plan by.
    pub(crate) fn of(&self, catalog: &Catalog) -> Result<Arc<Catalog>> {
        let mut planned = Arc::new(catalog.clone());
        if let Some(at) = &self.at {
            planned = planned.with_foreign_of(at)?;
        }
        if let Some(before) = &self.before {
            planned = planned.remembering(before);
        }
        Ok(planned)
    }
}

/// Builds such views anew until it is told to stop.
///
/// # Errors
/// `Closed` when the store is closed.
pub(crate) async fn rebuild_changed(runtime: Runtime, token: CancellationToken) -> Result<()> {
    let mut changes = runtime.shared.catalog_changes.subscribe();
    let mut tried = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        match runtime.rebuild_due(&mut tried).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
            Err(error) => tracing::warn!(%error, "cannot build a view anew, it is tried again"),
        }
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            changed = changes.changed() => drop(changed),
            () = tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
        }
    }
}

/// The schema of TiDB at which the newest copy of a view was begun.
type Tried = BTreeMap<TableId, Option<SchemaStamp>>;

impl Runtime {
    async fn rebuild_due(&self, tried: &mut Tried) -> Result<()> {
        let now = self.shared.store.read_timestamp().await?;
        let catalog = self.shared.catalog_at(now).await?;
        let stamp = catalog.foreign.stamp;
        tried.retain(|view, _| catalog.tables.contains_key(view));
        let views: Vec<TableId> = catalog.views().map(|(id, ..)| id).collect();
        for view in views {
            if !is_due(&catalog, view) || tried.get(&view) == Some(&stamp) {
                continue;
            }
            let make = |catalog: &Catalog, now: Timestamp| match is_due(catalog, view) {
                true => self.rebuilt(catalog, view, now, &Past::default(), |_| ()),
                false => Ok(CatalogChange::default()),
            };
            match commit_ddl(&self.shared, &make).await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Invalid => self.note_failure(view, &error).await?,
                Err(error) => return Err(error),
            }
            tried.insert(view, stamp);
        }
        Ok(())
    }

    /// Says with a view's fault why it cannot be built anew.
    async fn note_failure(&self, view: TableId, error: &Error) -> Result<()> {
        let make = |catalog: &Catalog, _: Timestamp| {
            let known = catalog.tables.get(&view).filter(|_| is_due(catalog, view));
            let state = known.and_then(|known| known.view.as_ref()).map(|view| &view.state);
            let Some(ViewState::Faulted { reason, key, at }) = state else {
                return Ok(CatalogChange::default());
            };
            let first = reason.split(FAILED).next().unwrap_or(reason);
            let text = format!("{first}{FAILED}{}", error.message());
            if text == *reason {
                return Ok(CatalogChange::default());
            }
            catalog.set_view_state(view, ViewState::Faulted { reason: text, key: key.clone(), at: *at })
        };
        commit_ddl(&self.shared, &make).await.map(drop)
    }

    /// What a view that reads tables of TiDB is to be built anew by: `at` is what it will be a snapshot of, if not
    /// the newest.
    pub(crate) async fn past_of(&self, definition: &TableDefinition, at: Option<Timestamp>) -> Result<Past> {
        let view = view_of(definition)?;
        let now = self.shared.store.read_timestamp().await?;
        let catalog = self.shared.catalog_at(now).await?;
        if !catalog.reads_foreign(&view.base_tables) {
            return Ok(Past::default());
        }
        let at = match at {
            Some(at) => Some(self.shared.catalog_at(at).await?),
            None => None,
        };
        let snapshot = store::Snapshot::new(Arc::clone(&self.shared.store), now);
        let record = read_epoch_record(&snapshot, view.job).await?;
        let before = match record.filter(|_| view.state == ViewState::Ready) {
            Some(record) => match self.shared.catalog_at(record.cut).await {
                Ok(before) => Some(before),
                Err(error) if error.is_history_gone() => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        Ok(Past { at, before })
    }
}

/// Stands between a fault's reason and why the view cannot be built anew.
const FAILED: &str = "; it cannot be built anew: ";

/// Whether a view waits for being built anew, and no view that it reads does.
fn is_due(catalog: &Catalog, view: TableId) -> bool {
    let waits = |view: &TableId| {
        let known = catalog.tables.get(view).and_then(|definition| definition.view.as_ref());
        known.filter(|view| view.rebuild && matches!(view.state, ViewState::Faulted { .. }))
    };
    waits(&view).is_some_and(|known| !known.depends_on.iter().any(|source| waits(source).is_some()))
        && catalog.replacement_of(view).is_none()
}
