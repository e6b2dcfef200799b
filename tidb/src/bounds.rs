//! Keys and ranges of keys for values of primary key columns.
//!
//! Values are Arrow arrays of one row, with exactly the Arrow types of their columns. Text compares by its
//! sort key: `'a'` finds the row of `'a '`.

use std::ops::Bound;

use arrow::array::{Array, ArrayRef};
use types::{Error, Result};

use crate::cells::Cells;
use crate::comparable::put_i64;
use crate::encode::pad_handle;
use crate::key::{put_record_prefix, record_prefix, record_range};
use crate::schema::{ColumnType, TableInfo};

/// A range of record keys, end exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpan {
    /// The first key.
    pub start: Vec<u8>,
    /// The end.
    pub end: Vec<u8>,
}

/// The key of the row whose primary key has the given values, one a column of the key.
///
/// A NULL among them finds nothing: `None`.
///
/// # Errors
/// `Invalid` if the table has no primary key, or the values are not one a column and of its type.
pub fn point_key(table: &TableInfo, values: &[ArrayRef]) -> Result<Option<Vec<u8>>> {
    if table.has_hidden_handle() || values.len() != table.primary_key.len() {
        let n = values.len();
        return Err(Error::invalid(format!("table `{}` has no primary key of {n} columns", table.name)));
    }
    if values.iter().any(|value| value.is_null(0)) {
        return Ok(None);
    }
    let mut key = Vec::with_capacity(32);
    put_record_prefix(&mut key, table.id);
    let start = key.len();
    for (at, value) in values.iter().enumerate() {
        let cells = key_cells(table, at, value)?;
        if table.pk_is_handle {
            put_i64(&mut key, cells.int_handle(0)?);
        } else {
            cells.put_datum(&mut key, 0)?;
        }
    }
    if !table.pk_is_handle {
        pad_handle(&mut key, start);
    }
    Ok(Some(key))
}

/// The ranges of keys, in ascending order, of the rows whose leading primary key columns equal the given
/// values, and whose next column lies between the bounds.
///
/// A NULL among the values or in a bound finds nothing. Without values and bounds it is the whole table,
/// and so it is for a table without a primary key.
///
/// # Errors
/// `Invalid` if there are more values than columns, or one has not its column's type.
pub fn scan_spans(
    table: &TableInfo,
    equal: &[ArrayRef],
    lower: Bound<&ArrayRef>,
    upper: Bound<&ArrayRef>,
) -> Result<Vec<KeySpan>> {
    let bounded = lower != Bound::Unbounded || upper != Bound::Unbounded;
    if equal.len() + usize::from(bounded) > table.primary_key.len() {
        return Err(Error::invalid(format!("more bounds than table `{}` has key columns", table.name)));
    }
    let bounds = [lower, upper];
    let nulls = bounds.iter().filter_map(|bound| bound_value(bound)).chain(equal);
    if nulls.into_iter().any(|value| value.is_null(0)) {
        return Ok(Vec::new());
    }
    if table.pk_is_handle {
        return int_spans(table, equal, lower, upper);
    }
    let mut prefix = record_prefix(table.id);
    for (at, value) in equal.iter().enumerate() {
        key_cells(table, at, value)?.put_datum(&mut prefix, 0)?;
    }
    let whole = || if equal.is_empty() { record_range(table.id).1 } else { next_prefix(&prefix) };
    let edge = |value: &ArrayRef| {
        let mut key = prefix.clone();
        key_cells(table, equal.len(), value)?.put_datum(&mut key, 0)?;
        Ok::<_, Error>(key)
    };
    let start = match lower {
        Bound::Included(value) => edge(value)?,
        Bound::Excluded(value) => next_prefix(&edge(value)?),
        Bound::Unbounded => prefix.clone(),
    };
    let end = match upper {
        Bound::Included(value) => next_prefix(&edge(value)?),
        Bound::Excluded(value) => edge(value)?,
        Bound::Unbounded => whole(),
    };
    Ok(if start < end { vec![KeySpan { start, end }] } else { Vec::new() })
}

fn bound_value<'a>(bound: &Bound<&'a ArrayRef>) -> Option<&'a ArrayRef> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    }
}

/// Ranges of integer handles. Large unsigned numbers are negative handles and come first.
fn int_spans(
    table: &TableInfo,
    equal: &[ArrayRef],
    lower: Bound<&ArrayRef>,
    upper: Bound<&ArrayRef>,
) -> Result<Vec<KeySpan>> {
    let unsigned =
        matches!(table.columns[table.primary_key[0]].column_type, ColumnType::Int { unsigned: true, .. });
    let number = |value: &ArrayRef| {
        let handle = key_cells(table, 0, value)?.int_handle(0)?;
        Ok::<_, Error>(if unsigned { i128::from(handle as u64) } else { i128::from(handle) })
    };
    let (least, greatest) =
        if unsigned { (0, i128::from(u64::MAX)) } else { (i128::from(i64::MIN), i128::from(i64::MAX)) };
    let (mut low, mut high) = (least, greatest);
    if let Some(value) = equal.first() {
        (low, high) = (number(value)?, number(value)?);
    } else {
        match lower {
            Bound::Included(value) => low = number(value)?,
            Bound::Excluded(value) => low = number(value)? + 1,
            Bound::Unbounded => {}
        }
        match upper {
            Bound::Included(value) => high = number(value)?,
            Bound::Excluded(value) => high = number(value)? - 1,
            Bound::Unbounded => {}
        }
    }
    let half = i128::from(i64::MAX);
    let parts = [(low.max(half + 1), high, 1_i128 << 64), (low, high.min(half), 0)];
    let spans = parts.into_iter().filter(|(low, high, _)| low <= high);
    Ok(spans
        .map(|(low, high, shift)| handle_span(table.id, (low - shift) as i64, (high - shift) as i64))
        .collect())
}

fn handle_span(table: i64, low: i64, high: i64) -> KeySpan {
    let mut start = record_prefix(table);
    put_i64(&mut start, low);
    let mut end = record_prefix(table);
    put_i64(&mut end, high);
    // Integer handles all have 8 bytes: the next key after one is the key with a byte more.
    end.push(0);
    KeySpan { start, end }
}

fn key_cells<'a>(table: &'a TableInfo, at: usize, value: &'a ArrayRef) -> Result<Cells<'a>> {
    if value.is_empty() {
        return Err(Error::invalid("a key value without a row"));
    }
    Cells::bind(&table.columns[table.primary_key[at]], value)
}

/// The least key that does not begin with the prefix and is above it.
fn next_prefix(prefix: &[u8]) -> Vec<u8> {
    types::records::prefix_end(prefix)
}
