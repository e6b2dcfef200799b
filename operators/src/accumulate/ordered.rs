//! MIN, MAX and DISTINCT: what needs the values themselves, in order.
//!
//! A value is encoded so that bytes order as SQL does. Text is its key under PAD SPACE (without trailing
//! spaces), then the number of spaces: values that are equal in SQL stand together, the one without
//! spaces, which is the smallest by bytes, first. DISTINCT drops the number of spaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt32Array};
use arrow::datatypes::{DataType, UInt32Type};
use types::{Error, Result};

use super::linear::Linear;
use super::wire::{read_bytes, read_i64, read_length, write_bytes, write_signed, write_unsigned};
use crate::arrange::column_texts;
use crate::encoding::{EncodedRows, RowCodec, trim_padding};
use crate::plan::AggregateFunction;
use crate::run::add_weights;

/// Encodes values of an aggregate's arguments in the order of SQL.
#[derive(Clone, Debug)]
pub(crate) struct ValueCodec {
    arguments: Vec<DataType>,
    /// Whether the number of trailing spaces follows each text.
    keeps_spaces: bool,
    codec: RowCodec,
}

impl ValueCodec {
    /// Values whose smallest spelling is asked for.
    pub(crate) fn exact(arguments: &[DataType]) -> Result<ValueCodec> {
        ValueCodec::new(arguments, true)
    }

    /// Values that count once.
    pub(crate) fn distinct(arguments: &[DataType]) -> Result<ValueCodec> {
        ValueCodec::new(arguments, false)
    }

    fn new(arguments: &[DataType], keeps_spaces: bool) -> Result<ValueCodec> {
        let mut encoded = Vec::new();
        for argument in arguments {
            encoded.push(argument.clone());
            if keeps_spaces && *argument == DataType::Utf8 {
                encoded.push(DataType::UInt32);
            }
        }
        Ok(ValueCodec { arguments: arguments.to_vec(), keeps_spaces, codec: RowCodec::new(encoded)? })
    }

    /// A value as a user reads it, for errors.
    pub(crate) fn text(&self, value: &[u8]) -> String {
        match self.decode(vec![value]) {
            Ok(columns) => column_texts(&columns).join(", "),
            Err(_) => format!("{value:02x?}"),
        }
    }

    /// The columns that are encoded for the arguments.
    fn columns(&self, arguments: &[ArrayRef]) -> Vec<ArrayRef> {
        let mut columns: Vec<ArrayRef> = Vec::new();
        for argument in arguments {
            if *argument.data_type() != DataType::Utf8 {
                columns.push(Arc::clone(argument));
                continue;
            }
            let texts: &StringArray = argument.as_string();
            let is_trimmed = |text: Option<&str>| text.is_none_or(|text| !text.ends_with(' '));
            if texts.iter().all(is_trimmed) {
                columns.push(Arc::clone(argument));
            } else {
                columns
                    .push(Arc::new(texts.iter().map(|text| text.map(trim_padding)).collect::<StringArray>()));
            }
            if self.keeps_spaces {
                let n_spaces = |text: &str| (text.len() - trim_padding(text).len()) as u32;
                columns.push(Arc::new(texts.iter().map(|text| text.map(n_spaces)).collect::<UInt32Array>()));
            }
        }
        columns
    }

    pub(crate) fn encode(&self, arguments: &[ArrayRef], n_rows: usize) -> Result<EncodedRows> {
        if arguments.iter().map(|argument| argument.data_type()).ne(&self.arguments) {
            return Err(Error::invalid("an aggregate's arguments have other types than declared"));
        }
        self.codec.encode(&self.columns(arguments), n_rows)
    }

    pub(crate) fn decode(&self, mut values: Vec<&[u8]>) -> Result<Vec<ArrayRef>> {
        let mut decoded = self.codec.decode(&mut values)?.into_iter();
        if values.iter().any(|rest| !rest.is_empty()) {
            return Err(Error::corrupt("aggregate state: a value is too long"));
        }
        let mut next =
            || decoded.next().ok_or_else(|| Error::corrupt("aggregate state: a column is missing"));
        let mut columns = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            let column = next()?;
            if !(self.keeps_spaces && *argument == DataType::Utf8) {
                columns.push(column);
                continue;
            }
            let n_spaces = next()?;
            let n_spaces = n_spaces.as_primitive::<UInt32Type>();
            let padded = column.as_string::<i32>().iter().zip(n_spaces.iter()).map(|(text, n_spaces)| {
                Some(format!("{}{}", text?, " ".repeat(n_spaces.unwrap_or(0) as usize)))
            });
            columns.push(Arc::new(padded.collect::<StringArray>()));
        }
        Ok(columns)
    }

    /// The part of an encoded value that equal values share.
    pub(crate) fn equal_part<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        let has_spaces = self.keeps_spaces && self.arguments == [DataType::Utf8];
        if has_spaces { &value[..value.len().saturating_sub(5)] } else { value }
    }

    /// Whether a value takes the place of another as MIN or MAX.
    pub(crate) fn is_better(&self, function: AggregateFunction, value: &[u8], best: &[u8]) -> bool {
        match function {
            AggregateFunction::Max => match self.equal_part(value).cmp(self.equal_part(best)) {
                std::cmp::Ordering::Equal => value < best,
                order => order.is_gt(),
            },
            _ => value < best,
        }
    }
}

/// The MIN or MAX among values that come in order.
fn extreme_of<'a>(
    codec: &ValueCodec,
    function: AggregateFunction,
    values: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> Option<&'a [u8]> {
    let mut values = values;
    if function == AggregateFunction::Min {
        return values.next();
    }
    let mut best = values.next_back()?;
    while let Some(value) = values.next_back() {
        if codec.equal_part(value) != codec.equal_part(best) {
            break;
        }
        best = value;
    }
    Some(best)
}

/// MIN or MAX where nothing is ever taken away: one value a group.
#[derive(Clone, Debug)]
pub(crate) struct Extremes {
    function: AggregateFunction,
    codec: ValueCodec,
    best: Vec<Option<Box<[u8]>>>,
}

impl Extremes {
    pub(crate) fn new(function: AggregateFunction, arguments: &[DataType]) -> Result<Extremes> {
        Ok(Extremes { function, codec: ValueCodec::exact(arguments)?, best: Vec::new() })
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.best.len()
    }

    pub(crate) fn grow(&mut self, n_groups: usize) {
        self.best.resize(n_groups.max(self.n_groups()), None);
    }

    pub(crate) fn update(&mut self, arguments: &[ArrayRef], weights: &[i64], groups: &[u32]) -> Result<()> {
        let rows = self.codec.encode(arguments, groups.len())?;
        for ((row, weight), group) in rows.iter().zip(weights).zip(groups) {
            match weight {
                0 => {}
                1.. => self.offer(*group as usize, row),
                _ => return Err(Error::invalid("this aggregate takes no retractions")),
            }
        }
        Ok(())
    }

    fn offer(&mut self, group: usize, value: &[u8]) {
        let best = &mut self.best[group];
        if best.as_ref().is_none_or(|best| self.codec.is_better(self.function, value, best)) {
            *best = Some(value.into());
        }
    }

    pub(crate) fn merge(&mut self, group: usize, bytes: &mut &[u8]) -> Result<()> {
        let count = read_length(bytes)?;
        for _ in 0..count {
            let value = read_bytes(bytes)?;
            self.offer(group, value);
        }
        Ok(())
    }

    pub(crate) fn write(&self, group: usize, bytes: &mut Vec<u8>) {
        match &self.best[group] {
            None => write_unsigned(0, bytes),
            Some(value) => {
                write_unsigned(1, bytes);
                write_bytes(value, bytes);
            }
        }
    }

    pub(crate) fn evaluate(&self) -> Result<ArrayRef> {
        decode_optional(&self.codec, self.best.iter().map(|best| best.as_deref()).collect())
    }

    pub(crate) fn split_first(&mut self, n_groups: usize) -> Extremes {
        let rest = self.best.split_off(n_groups);
        let best = std::mem::replace(&mut self.best, rest);
        Extremes { best, codec: self.codec.clone(), ..*self }
    }

    pub(crate) fn n_bytes(&self) -> usize {
        self.best.iter().map(|best| 16 + best.as_ref().map_or(0, |value| value.len())).sum()
    }
}

/// Decodes one argument's values; none is NULL.
pub(crate) fn decode_optional(codec: &ValueCodec, values: Vec<Option<&[u8]>>) -> Result<ArrayRef> {
    let present: Vec<&[u8]> = values.iter().copied().flatten().collect();
    let mut columns = codec.decode(present)?;
    let column = columns.pop().ok_or_else(|| Error::corrupt("aggregate state: a value without columns"))?;
    let mut next = 0;
    let indices = values.iter().map(|value| {
        value.map(|_| {
            next += 1;
            next - 1
        })
    });
    let indices: UInt32Array = indices.collect();
    Ok(arrow::compute::take(&column, &indices, None)?)
}

/// MIN, MAX or a DISTINCT aggregate over all values of each group with their weights.
#[derive(Clone, Debug)]
pub(crate) struct Collected {
    function: AggregateFunction,
    arguments: Vec<DataType>,
    codec: ValueCodec,
    groups: Vec<BTreeMap<Box<[u8]>, i64>>,
}

impl Collected {
    pub(crate) fn new(function: AggregateFunction, arguments: &[DataType]) -> Result<Collected> {
        let codec = match function {
            AggregateFunction::Min | AggregateFunction::Max => ValueCodec::exact(arguments)?,
            _ => ValueCodec::distinct(arguments)?,
        };
        Ok(Collected { function, arguments: arguments.to_vec(), codec, groups: Vec::new() })
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn grow(&mut self, n_groups: usize) {
        self.groups.resize(n_groups.max(self.n_groups()), BTreeMap::new());
    }

    pub(crate) fn update(&mut self, arguments: &[ArrayRef], weights: &[i64], groups: &[u32]) -> Result<()> {
        let rows = self.codec.encode(arguments, groups.len())?;
        for ((row, weight), group) in rows.iter().zip(weights).zip(groups) {
            if *weight != 0 {
                self.add(*group as usize, row, *weight)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, group: usize, value: &[u8], weight: i64) -> Result<()> {
        let values = &mut self.groups[group];
        match values.get_mut(value) {
            Some(known) => {
                *known = add_weights(*known, weight)?;
                if *known == 0 {
                    values.remove(value);
                }
            }
            None => {
                values.insert(value.into(), weight);
            }
        }
        Ok(())
    }

    pub(crate) fn merge(&mut self, group: usize, bytes: &mut &[u8]) -> Result<()> {
        let count = read_length(bytes)?;
        for _ in 0..count {
            let value = read_bytes(bytes)?;
            let weight = read_i64(bytes)?;
            self.add(group, value, weight)?;
        }
        Ok(())
    }

    pub(crate) fn write(&self, group: usize, bytes: &mut Vec<u8>) {
        write_unsigned(self.groups[group].len() as u128, bytes);
        for (value, weight) in &self.groups[group] {
            write_bytes(value, bytes);
            write_signed(i128::from(*weight), bytes);
        }
    }

    pub(crate) fn evaluate(&self) -> Result<ArrayRef> {
        if self.groups.iter().any(|values| values.values().any(|weight| *weight < 0)) {
            return Err(Error::corrupt(format!(
                "{} lost a value that it did not have",
                self.function.name()
            )));
        }
        if matches!(self.function, AggregateFunction::Min | AggregateFunction::Max) {
            let extremes = self
                .groups
                .iter()
                .map(|values| extreme_of(&self.codec, self.function, values.keys().map(|value| &**value)));
            return decode_optional(&self.codec, extremes.collect());
        }
        let mut linear = Linear::new(self.function, &self.arguments)?;
        linear.grow(self.n_groups());
        let mut rows: Vec<&[u8]> = Vec::new();
        let mut groups: Vec<u32> = Vec::new();
        for (group, values) in self.groups.iter().enumerate() {
            rows.extend(values.keys().map(|value| &**value));
            groups.resize(rows.len(), group as u32);
        }
        let arguments = self.codec.decode(rows)?;
        linear.update(&arguments, &vec![1; groups.len()], &groups)?;
        linear.evaluate(0..self.n_groups())
    }

    pub(crate) fn split_first(&mut self, n_groups: usize) -> Collected {
        let rest = self.groups.split_off(n_groups);
        let groups = std::mem::replace(&mut self.groups, rest);
        Collected { groups, codec: self.codec.clone(), arguments: self.arguments.clone(), ..*self }
    }

    pub(crate) fn n_bytes(&self) -> usize {
        let entries = self.groups.iter().flat_map(|values| values.keys());
        entries.map(|value| value.len() + 40).sum::<usize>() + 24 * self.groups.len()
    }
}
