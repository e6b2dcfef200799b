//! Functions on strings. Lengths and positions count characters, but LENGTH counts bytes.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::DataType;
use types::Result;

use super::{Call, Entry, Types};
use crate::class::Class;
use crate::values;

/// The longest result of a function that can make text grow.
const TEXT_BYTES_MAX: usize = 64 << 20;

const fn text(name: &'static str, arity: (usize, usize), eval: fn(&Call<'_>) -> Result<ArrayRef>) -> Entry {
    Entry { name, arity, returns: |_| Ok(DataType::Utf8), eval, strict: true }
}

const fn number(name: &'static str, arity: (usize, usize), eval: fn(&Call<'_>) -> Result<ArrayRef>) -> Entry {
    Entry { name, arity, returns: |_| Ok(DataType::Int64), eval, strict: true }
}

const fn may_be_null(entry: Entry) -> Entry {
    Entry { strict: false, ..entry }
}

/// The sort key of texts under utf8mb4_bin.
pub(super) static PAD_KEY: Entry =
    Entry { name: "pad_key", arity: (1, 1), returns: |_| Ok(DataType::Utf8), eval: pad_key, strict: true };

pub(super) static ENTRIES: &[Entry] = &[
    Entry { name: "concat", arity: (1, usize::MAX), returns: concat_type, eval: concat, strict: true },
    Entry {
        name: "concat_ws",
        arity: (2, usize::MAX),
        returns: |_| Ok(DataType::Utf8),
        eval: concat_ws,
        strict: false,
    },
    number("length", (1, 1), length),
    number("char_length", (1, 1), |call| count(call, |text| text.chars().count())),
    number("bit_length", (1, 1), |call| count(call, |text| text.len() * 8)),
    text("upper", (1, 1), |call| map(call, str::to_uppercase)),
    text("lower", (1, 1), |call| map(call, str::to_lowercase)),
    text("reverse", (1, 1), |call| map(call, |text| text.chars().rev().collect())),
    text("ltrim", (1, 1), |call| map(call, |text| text.trim_start_matches(' ').to_owned())),
    text("rtrim", (1, 1), |call| map(call, |text| text.trim_end_matches(' ').to_owned())),
    text("$trim_both", (2, 2), |call| map2(call, |text, what| trim(text, what, true, true))),
    text("$trim_leading", (2, 2), |call| map2(call, |text, what| trim(text, what, true, false))),
    text("$trim_trailing", (2, 2), |call| map2(call, |text, what| trim(text, what, false, true))),
    text("substring", (2, 3), substring),
    text("left", (2, 2), |call| with_int(call, |text, n| Some(take_chars(text, n)))),
    text("right", (2, 2), |call| with_int(call, |text, n| Some(take_last_chars(text, n)))),
    text("replace", (3, 3), replace),
    may_be_null(text("repeat", (2, 2), |call| with_int(call, repeat))),
    may_be_null(text("lpad", (3, 3), |call| pad(call, true))),
    may_be_null(text("rpad", (3, 3), |call| pad(call, false))),
    may_be_null(text("space", (1, 1), space)),
    number("locate", (2, 3), locate),
    number("instr", (2, 2), instr),
    number("ascii", (1, 1), |call| count(call, |text| usize::from(text.bytes().next().unwrap_or(0)))),
    number("strcmp", (2, 2), strcmp),
    may_be_null(text("elt", (2, usize::MAX), elt)),
    number("field", (2, usize::MAX), field),
    number("find_in_set", (2, 2), find_in_set),
    text("hex", (1, 1), hex),
    text("substring_index", (3, 3), substring_index),
];

fn pad_key(call: &Call<'_>) -> Result<ArrayRef> {
    let array = values::as_utf8(&call.arrays[0])?;
    let texts = array.as_string::<i32>();
    // Nothing to trim is the usual case: the array itself.
    if texts.iter().flatten().all(|text| !text.ends_with(' ')) {
        return Ok(array);
    }
    Ok(Arc::new(texts.iter().map(|text| text.map(tidb::pad_key)).collect::<StringArray>()))
}

fn map(call: &Call<'_>, op: impl Fn(&str) -> String) -> Result<ArrayRef> {
    Ok(Arc::new(call.text(0)?.iter().map(|text| text.map(&op)).collect::<StringArray>()))
}

fn map2(call: &Call<'_>, op: impl Fn(&str, &str) -> String) -> Result<ArrayRef> {
    let (a, b) = (call.text(0)?, call.text(1)?);
    let values = a.iter().zip(b.iter()).map(|(a, b)| a.zip(b).map(|(a, b)| op(a, b)));
    Ok(Arc::new(values.collect::<StringArray>()))
}

fn with_int(call: &Call<'_>, op: impl Fn(&str, i64) -> Option<String>) -> Result<ArrayRef> {
    let (texts, numbers) = (call.text(0)?, call.int(1)?);
    let values =
        texts.iter().zip(numbers.iter()).map(|(text, n)| text.zip(n).and_then(|(text, n)| op(text, n)));
    Ok(Arc::new(values.collect::<StringArray>()))
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> usize {
    usize::try_from(number.max(0)).unwrap_or(usize::MAX)
}

fn count(call: &Call<'_>, op: impl Fn(&str) -> usize) -> Result<ArrayRef> {
    Ok(Arc::new(call.text(0)?.iter().map(|text| text.map(|text| signed(op(text)))).collect::<Int64Array>()))
}

fn length(call: &Call<'_>) -> Result<ArrayRef> {
    let bytes = values::bytes(&call.arrays[0], call.zone)?;
    Ok(Arc::new(bytes.iter().map(|bytes| bytes.map(|bytes| signed(bytes.len()))).collect::<Int64Array>()))
}

fn concat_type(types: &Types<'_>) -> Result<DataType> {
    for index in 0..types.types.len() {
        if types.class(index)? == Class::Binary {
            return Ok(DataType::Binary);
        }
    }
    Ok(DataType::Utf8)
}

fn concat(call: &Call<'_>) -> Result<ArrayRef> {
    if call.returns == DataType::Binary {
        let columns =
            call.arrays.iter().map(|array| values::bytes(array, call.zone)).collect::<Result<Vec<_>>>()?;
        let value = |row: usize| {
            let parts = columns.iter().map(|column| (!column.is_null(row)).then(|| column.value(row)));
            parts.collect::<Option<Vec<_>>>().map(|parts| parts.concat())
        };
        return Ok(Arc::new((0..call.n_rows).map(value).collect::<arrow::array::BinaryArray>()));
    }
    let columns = (0..call.arrays.len()).map(|index| call.text(index)).collect::<Result<Vec<_>>>()?;
    let value = |row: usize| {
        let mut joined = String::new();
        for column in &columns {
            if column.is_null(row) {
                return None;
            }
            joined.push_str(column.value(row));
        }
        Some(joined)
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()))
}

fn concat_ws(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = (0..call.arrays.len()).map(|index| call.text(index)).collect::<Result<Vec<_>>>()?;
    let value = |row: usize| {
        let separator = &columns[0];
        if separator.is_null(row) {
            return None;
        }
        let parts = columns[1..].iter().filter(|column| !column.is_null(row)).map(|column| column.value(row));
        Some(parts.collect::<Vec<_>>().join(separator.value(row)))
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()))
}

fn trim(text: &str, what: &str, start: bool, end: bool) -> String {
    let mut rest = text;
    if what.is_empty() {
        return rest.to_owned();
    }
    while start && rest.starts_with(what) {
        rest = &rest[what.len()..];
    }
    while end && rest.ends_with(what) {
        rest = &rest[..rest.len() - what.len()];
    }
    rest.to_owned()
}

fn take_chars(text: &str, n: i64) -> String {
    text.chars().take(unsigned(n)).collect()
}

fn take_last_chars(text: &str, n: i64) -> String {
    let n_chars = text.chars().count();
    text.chars().skip(n_chars.saturating_sub(unsigned(n))).collect()
}

/// Positions count from 1, from the end if negative; 0 finds nothing.
fn substring(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, starts) = (call.text(0)?, call.int(1)?);
    let lengths = if call.arrays.len() == 3 { Some(call.int(2)?) } else { None };
    let value = |row: usize| {
        let is_null = texts.is_null(row)
            || starts.is_null(row)
            || lengths.as_ref().is_some_and(|lengths| lengths.is_null(row));
        if is_null {
            return None;
        }
        let text = texts.value(row);
        let n_chars = signed(text.chars().count());
        let start = starts.value(row);
        let length = lengths.as_ref().map_or(i64::MAX, |lengths| lengths.value(row));
        let from = match start {
            0 => return Some(String::new()),
            positive if positive > 0 => positive - 1,
            negative => n_chars.saturating_add(negative),
        };
        if from < 0 || from >= n_chars || length <= 0 {
            return Some(String::new());
        }
        Some(text.chars().skip(unsigned(from)).take(unsigned(length)).collect())
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()))
}

fn replace(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, froms, tos) = (call.text(0)?, call.text(1)?, call.text(2)?);
    let value = |row: usize| {
        if texts.is_null(row) || froms.is_null(row) || tos.is_null(row) {
            return None;
        }
        let (text, from) = (texts.value(row), froms.value(row));
        Some(if from.is_empty() { text.to_owned() } else { text.replace(from, tos.value(row)) })
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()))
}

fn repeat(text: &str, n: i64) -> Option<String> {
    let n = unsigned(n);
    // Beyond max_allowed_packet the result is NULL.
    (text.len().checked_mul(n)? <= TEXT_BYTES_MAX).then(|| text.repeat(n))
}

fn space(call: &Call<'_>) -> Result<ArrayRef> {
    Ok(Arc::new(call.int(0)?.iter().map(|n| n.and_then(|n| repeat(" ", n))).collect::<StringArray>()))
}

fn pad(call: &Call<'_>, left: bool) -> Result<ArrayRef> {
    let (texts, lengths, pads) = (call.text(0)?, call.int(1)?, call.text(2)?);
    let value = |row: usize| {
        if texts.is_null(row) || lengths.is_null(row) || pads.is_null(row) || lengths.value(row) < 0 {
            return None;
        }
        let (text, length, pad) = (texts.value(row), unsigned(lengths.value(row)), pads.value(row));
        let n_chars = text.chars().count();
        if n_chars >= length {
            return Some(text.chars().take(length).collect());
        }
        if pad.is_empty() || length > TEXT_BYTES_MAX / 4 {
            return None;
        }
        let padding: String = pad.chars().cycle().take(length - n_chars).collect();
        Some(if left { padding + text } else { text.to_owned() + &padding })
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()))
}

/// The position of a part, from 1; 0 if it is not there.
fn position(text: &str, part: &str, from: i64) -> i64 {
    if from < 1 {
        return 0;
    }
    let skipped = unsigned(from - 1);
    let start = match text.char_indices().nth(skipped) {
        Some((start, _)) => start,
        None if text.chars().count() == skipped => text.len(),
        None => return 0,
    };
    text[start..].find(part).map_or(0, |at| from + signed(text[start..start + at].chars().count()))
}

fn locate(call: &Call<'_>) -> Result<ArrayRef> {
    let (parts, texts) = (call.text(0)?, call.text(1)?);
    let froms = if call.arrays.len() == 3 { Some(call.int(2)?) } else { None };
    let value = |row: usize| {
        if parts.is_null(row) || texts.is_null(row) || froms.as_ref().is_some_and(|froms| froms.is_null(row))
        {
            return None;
        }
        let from = froms.as_ref().map_or(1, |froms| froms.value(row));
        Some(position(texts.value(row), parts.value(row), from))
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<Int64Array>()))
}

fn instr(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, parts) = (call.text(0)?, call.text(1)?);
    let values = texts
        .iter()
        .zip(parts.iter())
        .map(|(text, part)| text.zip(part).map(|(text, part)| position(text, part, 1)));
    Ok(Arc::new(values.collect::<Int64Array>()))
}

fn strcmp(call: &Call<'_>) -> Result<ArrayRef> {
    let (a, b) = (call.text(0)?, call.text(1)?);
    let compare = |(a, b): (&str, &str)| match tidb::pad_key(a).cmp(tidb::pad_key(b)) {
        std::cmp::Ordering::Less => -1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    };
    Ok(Arc::new(a.iter().zip(b.iter()).map(|(a, b)| a.zip(b).map(compare)).collect::<Int64Array>()))
}

fn elt(call: &Call<'_>) -> Result<ArrayRef> {
    let numbers = call.int(0)?;
    let columns = (1..call.arrays.len()).map(|index| call.text(index)).collect::<Result<Vec<_>>>()?;
    let value = |row: usize| {
        let number = (!numbers.is_null(row)).then(|| numbers.value(row)).filter(|number| *number >= 1)?;
        let column = columns.get(unsigned(number - 1))?;
        (!column.is_null(row)).then(|| column.value(row))
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()))
}

fn field(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = (0..call.arrays.len()).map(|index| call.text(index)).collect::<Result<Vec<_>>>()?;
    let value = |row: usize| {
        if columns[0].is_null(row) {
            return 0;
        }
        let wanted = tidb::pad_key(columns[0].value(row));
        let is_it = |column: &StringArray| !column.is_null(row) && tidb::pad_key(column.value(row)) == wanted;
        columns[1..].iter().position(is_it).map_or(0, |at| signed(at + 1))
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<Int64Array>()))
}

fn find_in_set(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, sets) = (call.text(0)?, call.text(1)?);
    let find = |(text, set): (&str, &str)| {
        if set.is_empty() {
            return 0;
        }
        set.split(',').position(|part| part == text).map_or(0, |at| signed(at + 1))
    };
    Ok(Arc::new(
        texts.iter().zip(sets.iter()).map(|(text, set)| text.zip(set).map(find)).collect::<Int64Array>(),
    ))
}

fn hex(call: &Call<'_>) -> Result<ArrayRef> {
    let array = &call.arrays[0];
    if matches!(values::class_of(array)?, Class::Text | Class::Binary) {
        let bytes = values::bytes(array, call.zone)?;
        let spell = |bytes: &[u8]| {
            bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02X}");
                text
            })
        };
        return Ok(Arc::new(bytes.iter().map(|bytes| bytes.map(spell)).collect::<StringArray>()));
    }
    Ok(Arc::new(
        call.int(0)?.iter().map(|number| number.map(|number| format!("{number:X}"))).collect::<StringArray>(),
    ))
}

fn substring_index(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, marks, counts) = (call.text(0)?, call.text(1)?, call.int(2)?);
    let value = |row: usize| {
        if texts.is_null(row) || marks.is_null(row) || counts.is_null(row) {
            return None;
        }
        let (text, mark, count) = (texts.value(row), marks.value(row), counts.value(row));
        if mark.is_empty() || count == 0 {
            return Some("");
        }
        let places: Vec<usize> = text.match_indices(mark).map(|(at, _)| at).collect();
        if count > 0 {
            return Some(places.get(unsigned(count - 1)).map_or(text, |at| &text[..*at]));
        }
        let from_end = unsigned(count.saturating_neg());
        let index = places.len().checked_sub(from_end);
        Some(index.map_or(text, |index| &text[places[index] + mark.len()..]))
    };
    Ok(Arc::new((0..call.n_rows).map(value).collect::<StringArray>()))
}
