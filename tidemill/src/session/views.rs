//! DDL of materialized views: planned here, carried out by the runtime.

use runtime::{CreateViewOptions, Created, DropOptions};
use sql::catalog::NewView;
use sql::{CreateMaterializedView, TableName};
use tokio_util::sync::CancellationToken;
use types::records::MAIN_JOB;
use types::{Error, Result};

use super::{Session, Warning, interrupted};
use crate::result::{Done, Outcome};

impl Session {
    fn background_ddl(&self) -> bool {
        self.variables.int("tidemill_background_ddl") != 0
    }

    /// CREATE MATERIALIZED VIEW. Killed while it waits, it drops the view again, unless it was to replace
    /// another: that fill goes on.
    pub(super) async fn create_view(
        &mut self,
        view: &CreateMaterializedView,
        interrupt: &CancellationToken,
    ) -> Result<Outcome> {
        let database = self.database_of(&view.name)?;
        let at = self.instance.store.read_timestamp().await?;
        let catalog = self.instance.engine.catalog(at).await?;
        if view.if_not_exists && catalog.find(&database, &view.name.name).is_some() {
            self.note_exists(&view.name);
            return Ok(Outcome::Done(Done::default()));
        }
        let settings = self.settings(at);
        let plan = sql::plan_view(&catalog, &view.query_text, &view.columns, &settings)?;
        let new = NewView {
            database: database.clone(),
            name: view.name.name.clone(),
            or_replace: view.or_replace,
            if_not_exists: view.if_not_exists,
            columns: view.columns.clone(),
            cluster_by: view.cluster_by.clone(),
            options: view.options.clone(),
            settings: settings.of_view(),
            job: MAIN_JOB,
            created_ts: at,
        };
        // The change shows what the definition will be; the runtime commits its own, with ids of then.
        let definition = catalog.create_view(new, &plan)?.created;
        let definition = definition.ok_or_else(|| Error::corrupt("CREATE created no definition"))?;
        let options = CreateViewOptions {
            or_replace: view.or_replace,
            if_not_exists: view.if_not_exists,
            background: self.background_ddl(),
        };
        let runtime = self.instance.runtime.clone();
        let created = tokio::select! {
            created = runtime.create_view((*definition).clone(), options) => created?,
            () = interrupt.cancelled() => {
                if !view.or_replace {
                    let options = DropOptions { if_exists: true, cascade: false };
                    runtime.drop_view(&database, &view.name.name, options).await?;
                }
                return Err(interrupted());
            }
        };
        if let Created::Exists(_) = created {
            self.note_exists(&view.name);
        }
        Ok(Outcome::Done(Done::default()))
    }

    fn note_exists(&mut self, name: &TableName) {
        let message = format!("Table '{name}' already exists");
        self.warnings.push(Warning { level: "Note", code: 1050, message });
    }

    pub(super) async fn drop_views(
        &mut self,
        names: &[TableName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Outcome> {
        let at = self.instance.store.read_timestamp().await?;
        let catalog = self.instance.engine.catalog(at).await?;
        // Refuses all of them before the first is dropped; views over other dropped ones go first.
        let change = catalog.drop_views(names, self.database.as_deref(), if_exists, cascade)?;
        let options = DropOptions { if_exists: true, cascade };
        for definition in &change.dropped {
            self.instance.runtime.drop_view(&definition.database, &definition.info.name, options).await?;
        }
        let notes = change.notes.into_iter().map(|message| Warning { level: "Note", code: 1051, message });
        self.warnings.extend(notes);
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
