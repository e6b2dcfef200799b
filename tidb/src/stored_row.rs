//! A row's value in either format, and what it says about a column.

use types::Result;

use crate::comparable::flag;
use crate::old_row::OldRow;
use crate::row::{RowView, Stored, VERSION};

/// A row's value, taken apart.
#[derive(Debug)]
pub(crate) enum StoredRow<'a> {
    /// In the format that is written today.
    Current(RowView<'a>),
    /// In the one before it.
    Old(OldRow<'a>),
}

/// What a row's value says about a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// Its value.
    Value(&'a [u8]),
    /// Its value as a datum with a flag: the row is in the old format.
    Datum(&'a [u8]),
    /// It is NULL.
    Null,
    /// Nothing.
    Absent,
}

impl<'a> StoredRow<'a> {
    /// Takes a row's value apart and verifies its checksum, if it has one.
    pub(crate) fn parse(key: &[u8], value: &'a [u8]) -> Result<StoredRow<'a>> {
        if value.first() == Some(&VERSION) {
            RowView::parse(key, value).map(StoredRow::Current)
        } else {
            OldRow::parse(value).map(StoredRow::Old)
        }
    }

    /// What the value says about a column. Start looking at the `hint`th column, if it is known.
    pub(crate) fn find(&self, id: i64, hint: &mut usize) -> Found<'a> {
        match self {
            StoredRow::Current(row) => match row.find(id, hint) {
                Stored::Value(bytes) => Found::Value(bytes),
                Stored::Null => Found::Null,
                Stored::Absent => Found::Absent,
            },
            StoredRow::Old(row) => match row.find(id, hint) {
                Some([flag::NIL, ..]) => Found::Null,
                Some(datum) => Found::Datum(datum),
                None => Found::Absent,
            },
        }
    }
}
