//! CREATE MATERIALIZED VIEW as a change of the catalog: its options, its job, its plan.

use sql::catalog::{Catalog, CatalogChange, NewView, Refresh};
use sql::{CreateMaterializedView, Settings};
use types::records::MAIN_JOB;
use types::{Error, Result, Timestamp};

use crate::Planner;
use crate::ddl::job_of_name;

/// The change that creates a view.
///
/// # Errors
/// MySQL 1046, 1235; what the planner and the catalog refuse.
pub(crate) fn make_view(
    planner: &dyn Planner,
    catalog: &Catalog,
    now: Timestamp,
    statement: &CreateMaterializedView,
    settings: &Settings,
) -> Result<CatalogChange> {
    let database = statement.name.database.as_deref().or(settings.database.as_deref());
    let database = database.ok_or_else(|| Error::mysql(1046, "no database selected"))?;
    for option in statement.options.keys() {
        if !["job", "refresh"].contains(&option.as_str()) {
            return Err(Error::mysql(
                1235,
                format!("a view has no option '{option}': there are job and refresh"),
            ));
        }
    }
    let refresh =
        statement.options.get("refresh").map_or(Ok(Refresh::Continuous), |text| Refresh::parse(text))?;
    if refresh.is_by_refresh() && statement.options.contains_key("job") {
        return Err(Error::mysql(1235, "a view that is refreshed has a job of its own: leave 'job' away"));
    }
    let job = match statement.options.get("job") {
        Some(name) if name.trim().is_empty() => {
            return Err(Error::mysql(
                1235,
                "the name of a job is not empty: leave 'job' away for the main one",
            ));
        }
        Some(name) => job_of_name(catalog, name)?,
        None => MAIN_JOB,
    };
    let plan = planner.plan_view(catalog, &statement.query_text, &statement.columns, settings)?;
    let new = NewView {
        database: database.to_owned(),
        name: statement.name.name.clone(),
        or_replace: statement.or_replace,
        if_not_exists: statement.if_not_exists,
        columns: statement.columns.clone(),
        cluster_by: statement.cluster_by.clone(),
        options: statement.options.clone(),
        settings: settings.of_view(),
        refresh,
        job,
        created_ts: now,
    };
    catalog.create_view(new, &plan)
}
