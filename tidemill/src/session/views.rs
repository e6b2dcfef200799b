//! DDL of materialized views, carried out by the runtime.

use runtime::{Maintained, MaintenanceKind};
use sql::{AlterView, CreateMaterializedView, TableName};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::{Error, ErrorKind, Result};

use super::{Session, interrupted};
use crate::result::{Done, Outcome, Rows};

impl Session {
    fn background_ddl(&self) -> bool {
        self.variables.int("tidemill_background_ddl") != 0
    }

    /// CREATE MATERIALIZED VIEW. Killed while it waits, it drops the view again, unless it is to replace
    /// another: that fill goes on.
    pub(super) async fn create_view(
        &mut self,
        view: &CreateMaterializedView,
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        self.database_of(&view.name)?;
        let settings = self.settings(self.instance.store.read_timestamp().await?);
        let runtime = self.instance.runtime.clone();
        let change = runtime.create_view(view, &settings, true).await?;
        self.note(change.notes, 1050);
        let Some(created) = change.created.filter(|_| !self.background_ddl()) else {
            return Ok(Outcome::Done(Done::default()));
        };
        tokio::select! {
            published = runtime.wait_created(&created) => published?,
            () = interrupt.cancelled() => {
                if created.view.as_ref().is_none_or(|view| view.replaces.is_none()) {
                    // By its id: the name may be another view's by now.
                    runtime.abandon(created.id()).await?;
                }
                return Err(interrupted());
            }
        }
        let hint = runtime.tidb_hint(created.id()).await?;
        self.note(hint.into_iter().collect(), 1105);
        Ok(Outcome::Done(Done::default()))
    }

    /// OPTIMIZE TABLE: a row a message for each table, as MySQL answers it; what is wrong with a table is a
    /// row too. COMPACT has the store rewrite itself once, after all of them. Killed while it waits, the task
    /// goes on.
    pub(super) async fn optimize(
        &mut self,
        names: &[TableName],
        compact: bool,
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        let mut tables = Vec::new();
        let mut background = Vec::new();
        for name in names {
            let database = self.database_of(name)?;
            let optimized = tokio::select! {
                optimized = self.optimize_one(&database, &name.name) => optimized,
                () = interrupt.cancelled() => return Err(interrupted()),
            };
            let optimized = match optimized {
                Err(error) if error.kind() != ErrorKind::Invalid => return Err(error),
                optimized => optimized.map(|task| background.extend(task)),
            };
            tables.push((database, name, optimized));
        }
        let mut note = "runs merged, versions nobody may read dropped";
        if compact && tables.iter().any(|(_, _, optimized)| optimized.is_ok()) {
            let reclaim = self.instance.runtime.reclaim(background);
            if !self.background_ddl() {
                let reclaimed = tokio::select! {
                    reclaimed = ended(reclaim) => reclaimed?,
                    () = interrupt.cancelled() => return Err(interrupted()),
                };
                note = if reclaimed {
                    "runs merged, versions nobody may read dropped, space reclaimed"
                } else {
                    "runs merged, versions nobody may read dropped; the store reclaims space by itself"
                };
            }
        }
        if self.background_ddl() {
            note = "it goes on in the background: see tidemill.maintenance";
        }
        let mut rows = Vec::new();
        for (database, name, optimized) in tables {
            let mut row = |kind: &str, text: &str| {
                let cells = [&format!("{database}.{}", name.name), "optimize", kind, text];
                rows.push(cells.map(|cell| Some(cell.to_owned())).to_vec());
            };
            match optimized {
                Ok(()) => {
                    row("note", note);
                    row("status", "OK");
                }
                Err(error) => {
                    row("Error", error.message());
                    row("status", "Operation failed");
                }
            }
        }
        Ok(Outcome::Rows(Rows::of_texts(&["Table", "Op", "Msg_type", "Msg_text"], &rows)))
    }

    /// The task, if it goes on in the background.
    async fn optimize_one(
        &self,
        database: &str,
        name: &str,
    ) -> Result<Option<JoinHandle<Result<Maintained>>>> {
        let task = self.instance.runtime.maintain(database, name, MaintenanceKind::Compact).await?;
        if self.background_ddl() {
            return Ok(Some(task));
        }
        ended(task).await.map(|_| None)
    }

    /// ALTER MATERIALIZED VIEW. Killed while it waits for a fill or a task, that goes on.
    pub(super) async fn alter_view(
        &mut self,
        name: &TableName,
        action: &AlterView,
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        let database = self.database_of(name)?;
        let runtime = self.instance.runtime.clone();
        let background = self.background_ddl();
        let work = async {
            match action {
                AlterView::Resume => runtime.resume_view(&database, &name.name, background).await.map(drop),
                AlterView::Suspend => runtime.suspend_view(&database, &name.name).await,
                AlterView::Cancel => runtime.cancel_refresh(&database, &name.name).await,
                AlterView::Rename(new_name) => {
                    let to = new_name.database.as_deref().unwrap_or(&database);
                    if !to.eq_ignore_ascii_case(&database) {
                        let text = "a view cannot be moved to another database: create it there";
                        return Err(Error::mysql(1235, text));
                    }
                    runtime.rename_view(&database, &name.name, &new_name.name).await
                }
                AlterView::ClusterBy(columns) => {
                    runtime.cluster_view(&database, &name.name, columns, background).await
                }
                AlterView::Recluster { at_once } => {
                    let kind = MaintenanceKind::Recluster { at_once: *at_once };
                    let task = runtime.maintain(&database, &name.name, kind).await?;
                    if background { Ok(()) } else { ended(task).await.map(drop) }
                }
                AlterView::Set(options) => {
                    runtime.set_view_options(&database, &name.name, options, background).await
                }
            }
        };
        tokio::select! {
            done = work => done?,
            () = interrupt.cancelled() => return Err(interrupted()),
        }
        Ok(Outcome::Done(Done::default()))
    }
}

/// Waits for a maintenance task.
async fn ended<T>(task: JoinHandle<Result<T>>) -> Result<T> {
    task.await.unwrap_or_else(|error| Err(Error::unavailable(format!("cancelled: {error}"))))
}
