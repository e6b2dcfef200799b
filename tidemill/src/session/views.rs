//! DDL of materialized views, carried out by the runtime.

use sql::{CreateMaterializedView, TableName};
use tokio_util::sync::CancellationToken;
use types::Result;

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

    /// ALTER MATERIALIZED VIEW ... RESUME. Killed while it waits, the fill goes on.
    pub(super) async fn resume_view(
        &mut self,
        name: &TableName,
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        let database = self.database_of(name)?;
        let runtime = self.instance.runtime.clone();
        tokio::select! {
            resumed = runtime.resume_view(&database, &name.name, self.background_ddl()) => resumed.map(|_| ())?,
            () = interrupt.cancelled() => return Err(interrupted()),
        }
        Ok(Outcome::Done(Done::default()))
    }
}
