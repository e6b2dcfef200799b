//! DDL of materialized views, carried out by the runtime.

use sql::{AlterView, CreateMaterializedView, TableName};
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

use super::{Session, interrupted};
use crate::result::{Done, Outcome};

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
        Ok(Outcome::Done(Done::default()))
    }

    /// ALTER MATERIALIZED VIEW. Killed while it waits for a fill, the fill goes on.
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
