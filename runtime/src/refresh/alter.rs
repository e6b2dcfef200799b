//! ALTER MATERIALIZED VIEW: how a view is brought up to date from now on, and under which name.

use std::collections::BTreeMap;
use std::sync::Arc;

use sink::load_manifests;
use sql::catalog::{Catalog, CatalogChange, Refresh, ViewState};
use store::Snapshot;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;
use types::{Error, Result, TableId, Timestamp};

use crate::ddl::{commit_ddl, job_of_name, require_view};
use crate::maintenance::{begun, check_stored};
use crate::rebuild::Past;
use crate::records::read_epoch_record;
use crate::tidb_views::check_answers;
use crate::worker::view_of;
use crate::{MaintenanceKind, Runtime};

impl Runtime {
    /// ALTER MATERIALIZED VIEW ... CANCEL: gives up the fill, refresh or maintenance of a view that runs. A
    /// view that was being filled for the first time goes; any other stays as it is.
    ///
    /// # Errors
    /// MySQL 1146, 1347; 1105 if nothing runs.
    pub async fn cancel_refresh(&self, database: &str, name: &str) -> Result<()> {
        let (now, definition) = self.view_now(database, name).await?;
        let catalog = self.shared.catalog_at(now).await?;
        let id = definition.id();
        let view = view_of(&definition)?;
        let maintained = self.shared.maintenance.cancel(id);
        let filling = match catalog.replacement_of(id) {
            Some(copy) => Some(copy.id()),
            None => (view.state == ViewState::Filling).then_some(id),
        };
        if let Some(filling) = filling {
            let make = |catalog: &Catalog, _: Timestamp| match catalog.tables.get(&filling) {
                Some(known) if view_of(known)?.state == ViewState::Filling => catalog.abandon_view(filling),
                _ => Ok(CatalogChange::default()),
            };
            self.shared.fill_failed(filling, "the fill was cancelled".to_owned());
            commit_ddl(&self.shared, &make).await?;
            return Ok(());
        }
        let door = self.shared.board.door(view.job);
        let request = door.and_then(|door| door.requested());
        let name = definition.full_name();
        match request {
            Some(request) => request.cancel.cancel(),
            None if maintained => {}
            None => {
                let text = format!("no fill or refresh of view '{name}' runs, and no maintenance");
                return Err(Error::mysql(1105, text));
            }
        }
        Ok(())
    }

    /// ALTER MATERIALIZED VIEW ... SUSPEND: the view stays at its checkpoint until RESUME; reads are as exact
    /// as before.
    ///
    /// # Errors
    /// MySQL 1146, 1347; 1105 if it is suspended, faulted or being built.
    pub async fn suspend_view(&self, database: &str, name: &str) -> Result<()> {
        let make = |catalog: &Catalog, _: Timestamp| {
            let definition = require_view(catalog, database, name)?;
            let view = view_of(definition)?;
            if view.suspended {
                let name = definition.full_name();
                return Err(Error::mysql(1105, format!("view '{name}' is suspended already")));
            }
            if view.refresh.is_by_refresh() {
                return catalog.set_refresh(definition.id(), view.refresh, true);
            }
            catalog.detach_view(definition.id(), view.refresh, true)
        };
        commit_ddl(&self.shared, &make).await.map(drop)
    }

    /// ALTER MATERIALIZED VIEW ... SET (refresh = ...). A continuous view goes on from its checkpoint by
    /// refreshes; one that becomes continuous is built anew for its job, and returns when that is done.
    ///
    /// # Errors
    /// MySQL 1146, 1347, 1235 for other options; 1105 if it is suspended, faulted or being built.
    pub async fn set_view_options(
        &self,
        database: &str,
        name: &str,
        options: &BTreeMap<String, String>,
        background: bool,
    ) -> Result<()> {
        if let Some(unknown) = options.keys().find(|option| *option != "refresh") {
            return Err(Error::mysql(1235, format!("option '{unknown}' of a view cannot be changed")));
        }
        let Some(refresh) = options.get("refresh").map(|text| Refresh::parse(text)).transpose()? else {
            return Ok(());
        };
        let (_, definition) = self.view_now(database, name).await?;
        let past = self.past_of(&definition, None).await?;
        let make = |catalog: &Catalog, now: Timestamp| {
            let definition = require_view(catalog, database, name)?;
            let (id, view) = (definition.id(), view_of(definition)?);
            if view.suspended {
                let name = definition.full_name();
                return Err(Error::mysql(1105, format!("view '{name}' is suspended: RESUME it first")));
            }
            match (view.refresh.is_by_refresh(), refresh.is_by_refresh()) {
                (false, false) => Ok(CatalogChange::default()),
                (true, true) => catalog.set_refresh(id, refresh, false),
                (false, true) => catalog.detach_view(id, refresh, false),
                (true, false) => self.made_continuous(catalog, id, now, &past),
            }
        };
        let change = commit_ddl(&self.shared, &make).await?;
        match change.created {
            Some(created) if !background => self.wait_published(created.id()).await,
            _ => Ok(()),
        }
    }

    /// ALTER MATERIALIZED VIEW ... CLUSTER BY: the stored rows get another order (their key's own without
    /// columns). The view is built anew beside the old one at the same checkpoint, and swapped; returns when
    /// that is done unless `background` is asked.
    ///
    /// # Errors
    /// MySQL 1146, 1347; those of CREATE for columns that cannot be in a key; 1105 if the view is suspended,
    /// faulted, being built, or never was refreshed.
    pub async fn cluster_view(
        &self,
        database: &str,
        name: &str,
        columns: &[String],
        background: bool,
    ) -> Result<()> {
        let (_, definition) = self.view_now(database, name).await?;
        // A refresh meanwhile would move the checkpoint.
        let turn = self.shared.refreshing.turn(view_of(&definition)?.job);
        let turn = turn.lock_owned().await;
        // A task of its own has the turn: who waits may go away at any moment.
        let (runtime, columns) = (self.clone(), columns.to_vec());
        let (database, name) = (database.to_owned(), name.to_owned());
        let task_name = format!("clustering of {database}.{name}");
        let task = async move { runtime.begin_clustering(&database, &name, &columns, turn).await };
        let cancelled =
            |error: tokio::task::JoinError| Err(Error::unavailable(format!("cancelled: {error}")));
        match self.shared.supervisor.spawn(task_name, task).await.unwrap_or_else(cancelled)? {
            Some(ended) if !background => {
                ended.await.unwrap_or_else(|error| Err(Error::unavailable(format!("cancelled: {error}"))))
            }
            _ => Ok(()),
        }
    }

    /// Begins to build a view in another order, in the view's turn; the task that follows it, if there is
    /// anything to do.
    async fn begin_clustering(
        &self,
        database: &str,
        name: &str,
        columns: &[String],
        turn: OwnedMutexGuard<()>,
    ) -> Result<Option<JoinHandle<Result<()>>>> {
        let (now, definition) = self.view_now(database, name).await?;
        let manifests = load_manifests(&self.shared.store, definition.id(), now).await?;
        let snapshot = Snapshot::new(Arc::clone(&self.shared.store), now);
        let view = view_of(&definition)?;
        let own_job = view.has_own_job().then_some(view.job);
        let cut = match own_job {
            Some(job) => read_epoch_record(&snapshot, job).await?.map(|record| record.cut),
            None => None,
        };
        let past = self.past_of(&definition, cut).await?;
        let make = |catalog: &Catalog, now: Timestamp| {
            let definition = require_view(catalog, database, name)?;
            let (id, view) = (definition.id(), view_of(definition)?);
            check_stored(definition)?;
            let full_name = definition.full_name();
            let refused = |text: String| Err(Error::mysql(1105, text));
            if view.suspended {
                return refused(format!("view '{full_name}' is suspended: RESUME it first"));
            }
            if view.state == ViewState::Unfilled {
                return refused(format!("view '{full_name}' has never been refreshed: REFRESH it first"));
            }
            catalog.check_not_replaced(definition)?;
            let same = view.cluster_by.len() == columns.len()
                && view.cluster_by.iter().zip(columns).all(|(old, new)| old.eq_ignore_ascii_case(new));
            if same {
                return Ok(CatalogChange::default());
            }
            let mut change =
                self.rebuilt(catalog, id, now, &past, |new| columns.clone_into(&mut new.cluster_by))?;
            change.fill_at = cut;
            Ok(change)
        };
        let change = commit_ddl(&self.shared, &make).await?;
        let Some(created) = change.created else { return Ok(None) };
        // Other views of a continuous job need not wait.
        let turn = own_job.is_some().then_some(turn);
        let status = begun(&definition, MaintenanceKind::Cluster, false, &manifests, now.physical_ms());
        Ok(Some(self.watch_clustering(&definition, created.id(), status, turn)))
    }

    /// A copy of a view that a continuous job maintains.
    fn made_continuous(
        &self,
        catalog: &Catalog,
        id: TableId,
        now: Timestamp,
        past: &Past,
    ) -> Result<CatalogChange> {
        let named = catalog.tables.get(&id).and_then(|known| known.view.as_ref()?.options.get("job"));
        let job = named.map_or(Ok(types::records::MAIN_JOB), |name| job_of_name(catalog, name))?;
        self.rebuilt(catalog, id, now, past, |new| {
            new.refresh = Refresh::Continuous;
            new.job = job;
        })
    }

    /// ALTER MATERIALIZED VIEW ... RESUME: rebuilds a faulted view by a fill and swaps, or goes on with a
    /// suspended one. Waits for the publication of what is rebuilt unless `background` is asked.
    ///
    /// # Errors
    /// MySQL 1146, 1347; 1105 if it is neither faulted nor suspended, or rebuilding it faults again.
    pub async fn resume_view(&self, database: &str, name: &str, background: bool) -> Result<CatalogChange> {
        let (_, definition) = self.view_now(database, name).await?;
        let past = self.past_of(&definition, None).await?;
        let make = |catalog: &Catalog, now: Timestamp| {
            let definition = require_view(catalog, database, name)?;
            let (id, view) = (definition.id(), view_of(definition)?);
            match &view.state {
                ViewState::Faulted { .. } => self.rebuilt(catalog, id, now, &past, |_| ()),
                _ if view.suspended && view.refresh.is_by_refresh() => {
                    catalog.set_refresh(id, view.refresh, false)
                }
                _ if view.suspended => self.made_continuous(catalog, id, now, &past),
                _ => {
                    let name = definition.full_name();
                    Err(Error::mysql(1105, format!("view '{name}' is neither faulted nor suspended")))
                }
            }
        };
        let change = commit_ddl(&self.shared, &make).await?;
        if let (false, Some(created)) = (background, &change.created) {
            self.wait_published(created.id()).await?;
        }
        Ok(change)
    }

    /// ALTER MATERIALIZED VIEW ... RENAME TO, within its database.
    ///
    /// # Errors
    /// MySQL 1146, 1347, 1050; 3730 while other views name it; 1105 while it is rebuilt.
    pub async fn rename_view(&self, database: &str, name: &str, new_name: &str) -> Result<()> {
        let (_, definition) = self.view_now(database, name).await?;
        if definition.tidb().is_some() {
            check_answers(&self.shared, &definition.full_name()).await?;
        }
        let make = |catalog: &Catalog, _: Timestamp| {
            let definition = require_view(catalog, database, name)?;
            catalog.rename_view(definition.id(), new_name)
        };
        commit_ddl(&self.shared, &make).await?;
        if let Some(hanging) = self.wait_shown(Some(definition.id())).await? {
            tracing::warn!(hanging, "a view has another name, and TiDB lags behind");
        }
        Ok(())
    }
}
