//! Rows and DDL that wait for a cut, each known once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt::Debug;

use types::Timestamp;

use super::{Change, Content, DdlAt, Half, Side, Step, TopicPartition};
use crate::event::TableName;

/// A row, and the message that brought it first.
#[derive(Clone, Debug)]
struct HeldRow<R> {
    row: R,
    from: (TopicPartition, i64),
}

/// What waits for a cut.
#[derive(Clone, Debug)]
pub(crate) struct Held<K, R> {
    rows: BTreeMap<Timestamp, BTreeMap<(K, Side), HeldRow<R>>>,
    ddls: BTreeMap<Timestamp, BTreeMap<(TableName, String), HeldRow<DdlAt>>>,
    n_rows: usize,
}

impl<K, R> Default for Held<K, R> {
    fn default() -> Held<K, R> {
        Held { rows: BTreeMap::new(), ddls: BTreeMap::new(), n_rows: 0 }
    }
}

/// What became of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    New,
    Known,
    Contradicts,
}

/// What a cut takes out.
pub(crate) struct Taken<K, R> {
    pub(crate) steps: Vec<Step<K, R>>,
    /// The messages of which one thing less is held.
    pub(crate) freed: Vec<(TopicPartition, i64)>,
    /// Old rows that differ from the new row before them.
    pub(crate) n_mismatched: u64,
}

impl<K: Clone + Ord + Debug, R: Content> Held<K, R> {
    pub(crate) fn len(&self) -> usize {
        self.n_rows
    }

    pub(crate) fn put_row(&mut self, id: &TopicPartition, offset: i64, half: Half<K, R>) -> Put {
        let of_commit = self.rows.entry(half.at).or_default();
        match of_commit.entry((half.key, half.side)) {
            Slot::Occupied(mut known) => {
                if known.get_mut().row.merge(half.row) {
                    Put::Known
                } else {
                    Put::Contradicts
                }
            }
            Slot::Vacant(free) => {
                free.insert(HeldRow { row: half.row, from: (id.clone(), offset) });
                self.n_rows += 1;
                Put::New
            }
        }
    }

    /// Whether the DDL was not known: several partitions get a copy.
    pub(crate) fn put_ddl(&mut self, id: &TopicPartition, offset: i64, ddl: DdlAt) -> bool {
        let of_commit = self.ddls.entry(ddl.at).or_default();
        match of_commit.entry((ddl.table.clone(), ddl.ddl.sql.clone())) {
            Slot::Occupied(_) => false,
            Slot::Vacant(free) => {
                free.insert(HeldRow { row: ddl, from: (id.clone(), offset) });
                true
            }
        }
    }

    /// Takes out everything at or below a timestamp: rows netted by key between DDL.
    pub(crate) fn take_until(&mut self, at: Timestamp) -> Taken<K, R> {
        let later = Timestamp(at.0.saturating_add(1));
        let rows_later = self.rows.split_off(&later);
        let ddls_later = self.ddls.split_off(&later);
        let mut rows = std::mem::replace(&mut self.rows, rows_later);
        let ddls = std::mem::replace(&mut self.ddls, ddls_later);
        let mut taken = Taken { steps: Vec::new(), freed: Vec::new(), n_mismatched: 0 };
        for (ddl_at, of_commit) in ddls {
            // Rows of the DDL's own timestamp belong before it.
            let after = rows.split_off(&Timestamp(ddl_at.0.saturating_add(1)));
            self.net(std::mem::replace(&mut rows, after), &mut taken);
            for (_, held) in of_commit {
                taken.freed.push(held.from);
                taken.steps.push(Step::Ddl(held.row));
            }
        }
        self.net(rows, &mut taken);
        taken
    }

    /// The first old and the last new row of each key.
    fn net(&mut self, rows: BTreeMap<Timestamp, BTreeMap<(K, Side), HeldRow<R>>>, taken: &mut Taken<K, R>) {
        let mut changes: BTreeMap<K, Change<K, R>> = BTreeMap::new();
        for ((key, side), held) in rows.into_values().flatten() {
            self.n_rows -= 1;
            taken.freed.push(held.from);
            match changes.entry(key) {
                Slot::Vacant(free) => {
                    let key = free.key().clone();
                    free.insert(match side {
                        Side::Old => Change { key, old: Some(held.row), new: None },
                        Side::New => Change { key, old: None, new: Some(held.row) },
                    });
                }
                Slot::Occupied(mut known) => {
                    let change = known.get_mut();
                    if side == Side::Old {
                        let differs = change.new.as_ref().is_some_and(|new| !new.agrees(&held.row));
                        taken.n_mismatched += u64::from(differs);
                        change.new = None;
                    } else {
                        change.new = Some(held.row);
                    }
                }
            }
        }
        let changes: Vec<Change<K, R>> = changes.into_values().filter(is_change).collect();
        if !changes.is_empty() {
            taken.steps.push(Step::Rows(changes));
        }
    }
}

/// Whether there is anything left of a change after netting.
fn is_change<K, R: Content>(change: &Change<K, R>) -> bool {
    match (&change.old, &change.new) {
        (None, None) => false,
        (Some(old), Some(new)) => !old.agrees(new),
        _ => true,
    }
}
