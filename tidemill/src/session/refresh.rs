//! REFRESH MATERIALIZED VIEW and its EXPLAIN.

use runtime::RefreshPath;
use sql::RefreshMaterializedView;
use tokio_util::sync::CancellationToken;
use types::{Result, Timestamp};

use super::{Session, interrupted};
use crate::result::{Done, Outcome, Rows};

impl Session {
    /// REFRESH: returns when it is committed. Killed while it waits, the refresh goes on; ALTER MATERIALIZED
    /// VIEW ... CANCEL ends it.
    pub(super) async fn refresh_view(
        &mut self,
        refresh: &RefreshMaterializedView,
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        let database = self.database_of(&refresh.name)?;
        let as_of = self.refreshed_to(refresh).await?;
        let runtime = self.instance.runtime.clone();
        let refreshed = tokio::select! {
            refreshed = runtime.refresh_view(&database, &refresh.name.name, refresh.kind, as_of) => refreshed?,
            () = interrupt.cancelled() => return Err(interrupted()),
        };
        let record = refreshed.record;
        let info = format!(
            "path: {} ({})  rows read: {}  written: {}  skipped: {}",
            record.path.name(),
            record.reason,
            record.rows_read,
            record.rows_written,
            record.rows_skipped
        );
        Ok(Outcome::Done(Done { affected_rows: record.rows_written, info }))
    }

    /// EXPLAIN REFRESH: what it would do now, and why.
    pub(super) async fn explain_refresh(&mut self, refresh: &RefreshMaterializedView) -> Result<Rows> {
        let database = self.database_of(&refresh.name)?;
        let as_of = self.refreshed_to(refresh).await?;
        let runtime = &self.instance.runtime;
        let plan = runtime.plan_refresh(&database, &refresh.name.name, refresh.kind, as_of).await?;
        let cut = plan.cut.map_or_else(|| "none".to_owned(), |cut| cut.to_string());
        let rows = match (plan.path, plan.source_rows) {
            (RefreshPath::Full, 0) => "all rows of the tables".to_owned(),
            (RefreshPath::Full, rows) => format!("about {rows} rows of the tables"),
            _ => format!("{} changes", plan.n_changes),
        };
        let text = format!(
            "Refresh: {database}.{}={} cut={cut} to={} reads={rows} ({})",
            refresh.name.name,
            plan.path.name(),
            plan.to,
            plan.reason
        );
        Ok(Rows::of_texts(&["EXPLAIN"], &[vec![Some(text)]]))
    }

    async fn refreshed_to(&mut self, refresh: &RefreshMaterializedView) -> Result<Option<Timestamp>> {
        match &refresh.as_of {
            Some(expression) => {
                let value = self.evaluate(expression).await?;
                self.past(&value).await
            }
            None => Ok(None),
        }
    }
}
