//! When a view is brought up to date, and the changes of that: REFRESH, SUSPEND, RENAME, SET.
//!
//! A view that its job does not follow continuously has a job of its own, whose epoch record is the view's
//! checkpoint: a refresh is one epoch of it. A full refresh builds a copy beside the view, as RESUME does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::{Error, JobId, Result, TableId, Timestamp};

use super::drops::needed;
use super::{CatalogChange, NewView, check_name, put};
use crate::ViewPlan;
use crate::catalog::{Catalog, TableDefinition, ViewDefinition, ViewState};

/// The shortest interval of a schedule, in milliseconds.
const EVERY_MS_MIN: u64 = 1_000;
/// The longest interval: a hundred years, so that what is due stays a timestamp.
const EVERY_MS_MAX: u64 = 36_500 * 86_400_000;

/// When a view is brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refresh {
    /// With every epoch of its job.
    #[default]
    Continuous,
    /// By REFRESH.
    OnDemand,
    /// By REFRESH, and when so many milliseconds have passed since the last began.
    Every(#[serde(deserialize_with = "bounded")] u64),
}

impl Refresh {
    /// Whether the view has a job of its own, which commits an epoch for each refresh.
    #[must_use]
    pub fn is_by_refresh(self) -> bool {
        self != Refresh::Continuous
    }

    /// Reads `continuous`, `on demand` or `every 5 minutes`.
    ///
    /// # Errors
    /// `Invalid` for anything else, and for intervals under a second or over a hundred years.
    pub fn parse(text: &str) -> Result<Refresh> {
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let refresh = match words.as_slice() {
            ["continuous"] => Some(Refresh::Continuous),
            ["on", "demand"] => Some(Refresh::OnDemand),
            ["every", unit] => unit_ms(unit).map(Refresh::Every),
            ["every", count, unit] => {
                let count = count.parse::<u64>().ok();
                count.zip(unit_ms(unit)).and_then(|(count, ms)| count.checked_mul(ms)).map(Refresh::Every)
            }
            _ => None,
        };
        match refresh {
            Some(Refresh::Every(ms)) if ms < EVERY_MS_MIN => {
                Err(Error::invalid(format!("refresh = '{text}': the shortest interval is 1 second")))
            }
            Some(Refresh::Every(ms)) if ms > EVERY_MS_MAX => {
                Err(Error::invalid(format!("refresh = '{text}': the longest interval is 36500 days")))
            }
            Some(refresh) => Ok(refresh),
            None => Err(Error::invalid(format!(
                "refresh = '{text}': expected 'continuous', 'on demand' or an interval like 'every 5 minutes'"
            ))),
        }
    }
}

impl fmt::Display for Refresh {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refresh::Every(ms) = *self else {
            let text = if *self == Refresh::Continuous { "continuous" } else { "on demand" };
            return formatter.write_str(text);
        };
        let units = [("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)];
        let (name, unit) = units.into_iter().find(|(_, unit)| ms % unit == 0).unwrap_or(("millisecond", 1));
        let count = ms / unit;
        write!(formatter, "every {count} {name}{}", if count == 1 { "" } else { "s" })
    }
}

fn unit_ms(unit: &str) -> Option<u64> {
    match unit.strip_suffix('s').unwrap_or(unit) {
        "millisecond" => Some(1),
        "second" => Some(1_000),
        "minute" => Some(60_000),
        "hour" => Some(3_600_000),
        "day" => Some(86_400_000),
        _ => None,
    }
}

impl Catalog {
    /// A copy of a view under a new id, in state Filling, that replaces it at adoption: RESUME, a full
    /// refresh, a change of how it is maintained. `change` may alter what the copy is to be.
    ///
    /// # Errors
    /// If there is no such view, or it is being built or rebuilt already.
    pub fn rebuild_view(
        &self,
        id: TableId,
        plan: &ViewPlan,
        now: Timestamp,
        change: impl FnOnce(&mut NewView),
    ) -> Result<CatalogChange> {
        let (old, view) = self.view(id)?;
        self.check_not_replaced(old)?;
        let mut new = NewView {
            database: old.database.clone(),
            name: old.info.name.clone(),
            or_replace: true,
            if_not_exists: false,
            columns: view.columns.clone(),
            cluster_by: each_once(&view.cluster_by),
            options: view.options.clone(),
            settings: view.settings.clone(),
            refresh: view.refresh,
            job: view.job,
            created_ts: now,
        };
        change(&mut new);
        note_refresh(&mut new.options, new.refresh);
        self.begin_view(new, plan, Some(id))
    }

    /// Gives a view of a shared job a job of its own, which goes on from that job's newest cut. What it is
    /// refreshed by, and whether it is suspended, are set with it.
    ///
    /// # Errors
    /// If there is no such view, or it is not maintained now.
    pub fn detach_view(&self, id: TableId, refresh: Refresh, suspended: bool) -> Result<CatalogChange> {
        let (definition, view) = self.view(id)?;
        if view.state != ViewState::Ready {
            return Err(not_ready(definition, view));
        }
        self.check_not_replaced(definition)?;
        let from = view.job;
        let job = JobId(self.next_id());
        let mut change = CatalogChange::default();
        self.edit_view(&mut change, id, |view| {
            note_refresh(&mut view.options, refresh);
            view.refresh = refresh;
            view.suspended = suspended;
            view.job = job;
        })?;
        change.jobs = BTreeSet::from([from]);
        change.detached = Some((from, job));
        self.finish(&mut change, 1);
        Ok(change)
    }

    /// Changes when a view with a job of its own is refreshed, and whether it is suspended.
    ///
    /// # Errors
    /// If there is no such view, or it is rebuilt: the copy would not have the change.
    pub fn set_refresh(&self, id: TableId, refresh: Refresh, suspended: bool) -> Result<CatalogChange> {
        let (definition, _) = self.view(id)?;
        self.check_not_replaced(definition)?;
        let mut change = CatalogChange::default();
        self.edit_view(&mut change, id, |view| {
            note_refresh(&mut view.options, refresh);
            view.refresh = refresh;
            view.suspended = suspended;
        })?;
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// Gives a view another name in its database.
    ///
    /// # Errors
    /// MySQL 1050 if the name is taken, 3730 while other views name this one, 1105 while it is rebuilt.
    pub fn rename_view(&self, id: TableId, name: &str) -> Result<CatalogChange> {
        let (definition, _) = self.view(id)?;
        check_name(name)?;
        let other = self.names.get(&(definition.database.to_lowercase(), name.to_lowercase()));
        if other != Some(&id) && self.is_taken(&definition.database, name) {
            return Err(Error::mysql(1050, format!("table '{name}' already exists")));
        }
        if let Some(view) = self.dependents(id).first() {
            return Err(needed(definition, view));
        }
        self.check_not_replaced(definition)?;
        let mut renamed = TableDefinition::clone(definition);
        let old_name = std::mem::replace(&mut renamed.info.name, name.to_owned());
        let tidb = renamed.view.as_mut().and_then(|view| view.tidb.as_mut());
        if let Some(tidb) = tidb.filter(|tidb| !tidb.was.contains(&old_name)) {
            tidb.was.push(old_name);
        }
        let mut change = CatalogChange::default();
        put(&mut change, &renamed)?;
        self.finish(&mut change, 0);
        Ok(change)
    }

    /// The copy that is being built to replace a view.
    #[must_use]
    pub fn replacement_of(&self, id: TableId) -> Option<&Arc<TableDefinition>> {
        let mut views = self.views();
        views.find(|(_, _, view)| view.replaces == Some(id)).map(|(_, definition, _)| definition)
    }

    fn view(&self, id: TableId) -> Result<(&Arc<TableDefinition>, &ViewDefinition)> {
        let known = self.tables.get(&id);
        let known = known.ok_or_else(|| Error::invalid(format!("no view has the id {id}")))?;
        match &known.view {
            Some(view) => Ok((known, view)),
            None => Err(Error::mysql(1347, format!("'{}' is not a materialized view", known.full_name()))),
        }
    }
}

/// An interval as it is stored; longer ones could be said before there was a bound.
fn bounded<'de, D: serde::Deserializer<'de>>(stored: D) -> std::result::Result<u64, D::Error> {
    Ok(u64::deserialize(stored)?.min(EVERY_MS_MAX))
}

/// The columns of a cluster key; one could be named twice before that was refused.
fn each_once(columns: &[String]) -> Vec<String> {
    let mut once: Vec<String> = Vec::with_capacity(columns.len());
    for column in columns {
        if !once.iter().any(|known| known.eq_ignore_ascii_case(column)) {
            once.push(column.clone());
        }
    }
    once
}

/// The option as CREATE would have it.
pub(in crate::catalog) fn note_refresh(options: &mut BTreeMap<String, String>, refresh: Refresh) {
    if refresh.is_by_refresh() {
        options.insert("refresh".to_owned(), refresh.to_string());
    } else {
        options.remove("refresh");
    }
}

/// Why a view that is not maintained cannot be changed so.
fn not_ready(definition: &TableDefinition, view: &ViewDefinition) -> Error {
    let name = definition.full_name();
    let text = match &view.state {
        ViewState::Filling => format!("view '{name}' is still being filled"),
        ViewState::Faulted { reason, .. } => {
            format!("view '{name}' is faulted ({reason}): ALTER MATERIALIZED VIEW {name} RESUME rebuilds it")
        }
        ViewState::Unfilled => format!("view '{name}' has never been refreshed"),
        ViewState::Ready => format!("view '{name}' cannot be changed so"),
    };
    Error::mysql(1105, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_and_shown() {
        for (text, shown) in [
            ("continuous", "continuous"),
            ("ON  DEMAND", "on demand"),
            ("every 5 minutes", "every 5 minutes"),
            ("every minute", "every 1 minute"),
            ("every 90 seconds", "every 90 seconds"),
            ("every 48 hours", "every 2 days"),
            ("every 1500 milliseconds", "every 1500 milliseconds"),
        ] {
            let refresh = Refresh::parse(text).unwrap();
            assert_eq!(refresh.to_string(), shown);
            assert_eq!(Refresh::parse(shown).unwrap(), refresh, "what is shown is read again");
        }
        for text in [
            "",
            "sometimes",
            "every",
            "every 5",
            "every -1 seconds",
            "every 10 milliseconds",
            "every 5 weeks",
        ] {
            assert!(Refresh::parse(text).is_err(), "{text}");
        }
    }
}
