//! How much changed since a view's cut, and which path that is.
//!
//! A refresh only has to know how many changes there are before it begins: the store counts them without
//! their values, and what kind they are of is seen when the dataflow takes them in. EXPLAIN, which does
//! nothing else, reads them.

use std::sync::Arc;

use store::{KeyRange, Store};
use types::{Result, Timestamp};

use crate::RefreshPath;

/// Changes that are read at a time.
const PAGE_CHANGES: usize = 4096;

/// What is looked at to plan a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// How many keys changed.
    Keys,
    /// Their values too.
    Values,
}

/// Changes of a view's base tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// All of them.
    pub(crate) n_changes: u64,
    /// Those that are insertions, as far as values were looked at.
    pub(crate) n_inserted: u64,
    /// Those that are deletions, as far as values were looked at.
    pub(crate) n_deleted: u64,
}

impl Changed {
    /// The path that such changes are taken in on, and why.
    pub(crate) fn path(self) -> (RefreshPath, String) {
        let n_changes = self.n_changes;
        if n_changes == 0 {
            (RefreshPath::Nothing, "nothing changed since the cut".to_owned())
        } else if self.n_inserted == n_changes {
            (RefreshPath::InsertOnly, format!("{n_changes} rows were inserted since the cut"))
        } else {
            (RefreshPath::Incremental, format!("{n_changes} changes since the cut"))
        }
    }

    /// So many rows of the base tables are left of those before.
    pub(crate) fn rows_after(self, rows_before: u64) -> u64 {
        rows_before.saturating_add(self.n_inserted).saturating_sub(self.n_deleted)
    }

    /// These changes and later ones.
    pub(crate) fn and(self, later: Changed) -> Changed {
        Changed {
            n_changes: self.n_changes + later.n_changes,
            n_inserted: self.n_inserted + later.n_inserted,
            n_deleted: self.n_deleted + later.n_deleted,
        }
    }
}

/// The changes in (`from`, `to`], hardly beyond `most`; `None` if that history is gone.
pub(super) async fn changed(
    store: &Arc<dyn Store>,
    ranges: &[KeyRange],
    from: Timestamp,
    to: Timestamp,
    most: u64,
    looks: Looks,
) -> Result<Option<Changed>> {
    if ranges.is_empty() || from >= to {
        return Ok(Some(Changed::default()));
    }
    let changed = match looks {
        Looks::Keys => {
            let counted = store.count_changes(ranges, from, to, most).await;
            counted.map(|n_changes| Changed { n_changes, ..Changed::default() })
        }
        Looks::Values => read(store, ranges, from, to, most).await,
    };
    match changed {
        Ok(changed) => Ok(Some(changed)),
        Err(error) if error.is_history_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn read(
    store: &Arc<dyn Store>,
    ranges: &[KeyRange],
    from: Timestamp,
    to: Timestamp,
    most: u64,
) -> Result<Changed> {
    let mut changed = Changed::default();
    let mut next = None;
    loop {
        let page = store.changes(ranges, from, to, next, PAGE_CHANGES).await?;
        for change in &page.changes {
            changed.n_changes += 1;
            changed.n_inserted += u64::from(change.old_value.is_none() && change.value.is_some());
            changed.n_deleted += u64::from(change.old_value.is_some() && change.value.is_none());
        }
        next = page.next;
        if next.is_none() || changed.n_changes > most {
            return Ok(changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_take_the_path_of_all_of_them_together() {
        let inserted = Changed { n_changes: 2, n_inserted: 2, n_deleted: 0 };
        let deleted = Changed { n_changes: 1, n_inserted: 0, n_deleted: 1 };
        let check = |changed: Changed, path, rows_after| {
            assert_eq!((changed.path().0, changed.rows_after(10)), (path, rows_after), "{changed:?}");
        };
        check(Changed::default(), RefreshPath::Nothing, 10);
        check(inserted, RefreshPath::InsertOnly, 12);
        check(deleted, RefreshPath::Incremental, 9);
        check(inserted.and(deleted), RefreshPath::Incremental, 11);
        check(inserted.and(inserted), RefreshPath::InsertOnly, 14);
        check(Changed { n_changes: 1, ..Changed::default() }, RefreshPath::Incremental, 10);
    }
}
