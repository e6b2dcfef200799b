//! COUNT, SUM and AVG: states that add up, so a retraction is an addition of the opposite.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use types::{Error, Result};

use super::call_output_type;
use super::exact_sum::ExactSum;
use super::output::{Ratio, decimals};
use super::wire::{read_i64, read_i256, read_signed, write_i256, write_signed};
use crate::plan::AggregateFunction;
use crate::run::add_weights;

/// Sums of decimals of at most so many digits fit 128 bits, whatever happens.
const NARROW_PRECISION_MAX: u8 = 27;

/// COUNT, SUM or AVG over many groups.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    function: AggregateFunction,
    output_type: DataType,
    argument_scale: i8,
    /// Rows that count, for each group.
    counts: Vec<i64>,
    sums: Sums,
}

#[derive(Clone, Debug)]
enum Sums {
    None,
    Narrow(Vec<i128>),
    Wide(Vec<i256>),
    Float(Vec<ExactSum>),
}

impl Linear {
    pub(crate) fn new(function: AggregateFunction, arguments: &[DataType]) -> Result<Linear> {
        let output_type = call_output_type(function, arguments, false)?;
        let argument = arguments.first().unwrap_or(&DataType::Null);
        let (argument_scale, sums) = match (function, argument) {
            (AggregateFunction::Count, _) => (0, Sums::None),
            (_, DataType::Float32 | DataType::Float64) => (0, Sums::Float(Vec::new())),
            (_, DataType::Decimal128(precision, scale)) if *precision <= NARROW_PRECISION_MAX => {
                (*scale, Sums::Narrow(Vec::new()))
            }
            (_, DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => {
                (*scale, Sums::Wide(Vec::new()))
            }
            _ => (0, Sums::Narrow(Vec::new())),
        };
        Ok(Linear { function, output_type, argument_scale, counts: Vec::new(), sums })
    }

    pub(crate) fn output_type(&self) -> &DataType {
        &self.output_type
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.counts.len()
    }

    pub(crate) fn grow(&mut self, n_groups: usize) {
        let n_groups = n_groups.max(self.n_groups());
        self.counts.resize(n_groups, 0);
        match &mut self.sums {
            Sums::None => {}
            Sums::Narrow(sums) => sums.resize(n_groups, 0),
            Sums::Wide(sums) => sums.resize(n_groups, i256::ZERO),
            Sums::Float(sums) => sums.resize(n_groups, ExactSum::default()),
        }
    }

    /// Takes in rows whose weight is 0 where they do not count.
    pub(crate) fn update(&mut self, arguments: &[ArrayRef], weights: &[i64], groups: &[u32]) -> Result<()> {
        for (weight, group) in weights.iter().zip(groups) {
            let count = &mut self.counts[*group as usize];
            *count = add_weights(*count, *weight)?;
        }
        let Some(argument) = arguments.first().filter(|_| self.function != AggregateFunction::Count) else {
            return Ok(());
        };
        match &mut self.sums {
            Sums::None => Ok(()),
            Sums::Narrow(sums) => update_narrow(sums, argument, weights, groups),
            Sums::Wide(sums) => update_wide(sums, argument, weights, groups),
            Sums::Float(sums) => update_float(sums, argument, weights, groups),
        }
    }

    pub(crate) fn merge(&mut self, group: usize, bytes: &mut &[u8]) -> Result<()> {
        self.counts[group] = add_weights(self.counts[group], read_i64(bytes)?)?;
        match &mut self.sums {
            Sums::None => {}
            Sums::Narrow(sums) => {
                sums[group] = sums[group].checked_add(read_signed(bytes)?).ok_or_else(too_large)?;
            }
            Sums::Wide(sums) => {
                sums[group] = sums[group].checked_add(read_i256(bytes)?).ok_or_else(too_large)?;
            }
            Sums::Float(sums) => sums[group].add_sum(&ExactSum::read(bytes)?)?,
        }
        Ok(())
    }

    pub(crate) fn write(&self, group: usize, bytes: &mut Vec<u8>) {
        write_signed(i128::from(self.counts[group]), bytes);
        match &self.sums {
            Sums::None => {}
            Sums::Narrow(sums) => write_signed(sums[group], bytes),
            Sums::Wide(sums) => write_i256(sums[group], bytes),
            Sums::Float(sums) => sums[group].write(bytes),
        }
    }

    /// The rows that count in a group.
    pub(crate) fn count(&self, group: usize) -> i64 {
        self.counts[group]
    }

    /// Whether a group holds what a group of no rows does.
    pub(crate) fn is_zero(&self, group: usize) -> bool {
        self.counts[group] == 0
            && match &self.sums {
                Sums::None => true,
                Sums::Narrow(sums) => sums[group] == 0,
                Sums::Wide(sums) => sums[group] == i256::ZERO,
                Sums::Float(sums) => sums[group].is_zero(),
            }
    }

    /// The results of a range of groups.
    pub(crate) fn evaluate(&self, groups: Range<usize>) -> Result<ArrayRef> {
        if let Some(count) = self.counts[groups.clone()].iter().find(|count| **count < 0) {
            return Err(Error::corrupt(format!(
                "{} lost values that it did not have: {count} are left",
                self.function.name()
            )));
        }
        let is_mean = self.function == AggregateFunction::Avg;
        let ratio = |sum: i256, count: i64| Ratio { sum, count: if is_mean { count } else { 1 } };
        let counts = &self.counts;
        match &self.sums {
            Sums::None => Ok(Arc::new(Int64Array::from(counts[groups].to_vec()))),
            Sums::Narrow(sums) => {
                let values = groups.map(|group| {
                    (counts[group] > 0).then(|| ratio(i256::from_i128(sums[group]), counts[group]))
                });
                decimals(values, self.argument_scale, &self.output_type, self.function.name())
            }
            Sums::Wide(sums) => {
                let values =
                    groups.map(|group| (counts[group] > 0).then(|| ratio(sums[group], counts[group])));
                decimals(values, self.argument_scale, &self.output_type, self.function.name())
            }
            Sums::Float(sums) => {
                let values = groups.map(|group| match counts[group] {
                    0 => Ok(None),
                    count if is_mean => Ok(Some(sums[group].mean(count.unsigned_abs())?)),
                    _ => Ok(Some(sums[group].value()?)),
                });
                Ok(Arc::new(values.collect::<Result<Float64Array>>()?))
            }
        }
    }

    pub(crate) fn split_first(&mut self, n_groups: usize) -> Linear {
        fn split<T>(values: &mut Vec<T>, n: usize) -> Vec<T> {
            let rest = values.split_off(n);
            std::mem::replace(values, rest)
        }
        let sums = match &mut self.sums {
            Sums::None => Sums::None,
            Sums::Narrow(sums) => Sums::Narrow(split(sums, n_groups)),
            Sums::Wide(sums) => Sums::Wide(split(sums, n_groups)),
            Sums::Float(sums) => Sums::Float(split(sums, n_groups)),
        };
        Linear {
            counts: split(&mut self.counts, n_groups),
            sums,
            output_type: self.output_type.clone(),
            ..*self
        }
    }

    pub(crate) fn n_bytes(&self) -> usize {
        let sum_bytes = match &self.sums {
            Sums::None => 0,
            Sums::Narrow(_) => 16,
            Sums::Wide(_) => 32,
            Sums::Float(_) => size_of::<ExactSum>(),
        };
        self.counts.capacity() * (8 + sum_bytes)
    }
}

fn too_large() -> Error {
    Error::mysql(1690, "a sum is out of range even for the widest number")
}

fn update_narrow(sums: &mut [i128], argument: &ArrayRef, weights: &[i64], groups: &[u32]) -> Result<()> {
    fn add<T>(sums: &mut [i128], argument: &ArrayRef, weights: &[i64], groups: &[u32]) -> Result<()>
    where
        T: ArrowPrimitiveType,
        T::Native: Into<i128>,
    {
        let array: &PrimitiveArray<T> = argument.as_primitive();
        for ((value, weight), group) in array.values().iter().zip(weights).zip(groups) {
            let sum = &mut sums[*group as usize];
            let term = (*value).into().checked_mul(i128::from(*weight));
            *sum = term.and_then(|term| sum.checked_add(term)).ok_or_else(too_large)?;
        }
        Ok(())
    }
    match argument.data_type() {
        DataType::Boolean => {
            let cast = arrow::compute::cast(argument, &DataType::Int8)?;
            add::<Int8Type>(sums, &cast, weights, groups)
        }
        DataType::Int8 => add::<Int8Type>(sums, argument, weights, groups),
        DataType::Int16 => add::<Int16Type>(sums, argument, weights, groups),
        DataType::Int32 => add::<Int32Type>(sums, argument, weights, groups),
        DataType::Int64 => add::<Int64Type>(sums, argument, weights, groups),
        DataType::UInt8 => add::<UInt8Type>(sums, argument, weights, groups),
        DataType::UInt16 => add::<UInt16Type>(sums, argument, weights, groups),
        DataType::UInt32 => add::<UInt32Type>(sums, argument, weights, groups),
        DataType::UInt64 => add::<UInt64Type>(sums, argument, weights, groups),
        DataType::Decimal128(_, _) => add::<Decimal128Type>(sums, argument, weights, groups),
        other => Err(Error::invalid(format!("a sum of {other} is not a whole number"))),
    }
}

fn update_wide(sums: &mut [i256], argument: &ArrayRef, weights: &[i64], groups: &[u32]) -> Result<()> {
    let mut add = |index: usize, value: i256| -> Result<()> {
        let sum = &mut sums[groups[index] as usize];
        let term = match weights[index] {
            1 => Some(value),
            weight => value.checked_mul(i256::from_i128(i128::from(weight))),
        };
        *sum = term.and_then(|term| sum.checked_add(term)).ok_or_else(too_large)?;
        Ok(())
    };
    match argument.data_type() {
        DataType::Decimal128(_, _) => {
            let array = argument.as_primitive::<Decimal128Type>();
            for (index, value) in array.values().iter().enumerate() {
                if weights[index] != 0 {
                    add(index, i256::from_i128(*value))?;
                }
            }
        }
        DataType::Decimal256(_, _) => {
            let array = argument.as_primitive::<Decimal256Type>();
            for (index, value) in array.values().iter().enumerate() {
                if weights[index] != 0 {
                    add(index, *value)?;
                }
            }
        }
        other => return Err(Error::invalid(format!("a sum of {other} is not a decimal"))),
    }
    Ok(())
}

fn update_float(sums: &mut [ExactSum], argument: &ArrayRef, weights: &[i64], groups: &[u32]) -> Result<()> {
    match argument.data_type() {
        DataType::Float32 => {
            let array = argument.as_primitive::<Float32Type>();
            for ((value, weight), group) in array.values().iter().zip(weights).zip(groups) {
                if *weight != 0 {
                    sums[*group as usize].add(f64::from(*value), *weight)?;
                }
            }
        }
        DataType::Float64 => {
            let array = argument.as_primitive::<Float64Type>();
            for ((value, weight), group) in array.values().iter().zip(weights).zip(groups) {
                if *weight != 0 {
                    sums[*group as usize].add(*value, *weight)?;
                }
            }
        }
        other => return Err(Error::invalid(format!("a sum of {other} is not a floating number"))),
    }
    Ok(())
}
