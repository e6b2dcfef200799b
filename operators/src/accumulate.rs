//! Accumulators: aggregates over weighted rows, exact under retraction, for many groups at once.
//!
//! The incremental aggregate and the batch engine use the same ones, so their answers share every rule:
//! integers and decimals add in wide, checked numbers and are checked against their type once, when they
//! are read; floating sums are exact and rounded once, so no order of changes moves a digit; means round
//! half away from zero; strings compare without their trailing spaces. A state is bytes, equal for equal
//! contents, and merges.

mod exact_sum;
mod linear;
mod ordered;
mod output;
pub(crate) mod sketch;
pub(crate) mod wire;

use arrow::array::{Array, ArrayRef, BinaryArray, BinaryBuilder, BooleanArray};
use arrow::datatypes::DataType;
use types::{Error, Result};

pub use exact_sum::ExactSum;
pub(crate) use linear::Linear;
pub(crate) use ordered::{ValueCodec, decode_optional};

use crate::plan::{AggregateCall, AggregateFunction};

/// The most digits of a decimal, as in MySQL.
const PRECISION_MAX: u8 = 65;
/// The most digits after the point, as in MySQL.
const SCALE_MAX: i8 = 30;

impl AggregateFunction {
    /// The type of the result over an argument of a type (for COUNT any).
    ///
    /// # Errors
    /// `Invalid` if the function has no meaning for the type.
    pub fn output_type(&self, argument: &DataType, _distinct: bool) -> Result<DataType> {
        let sum_of_decimal = |precision: u8, scale: i8| decimal((precision + 22).min(PRECISION_MAX), scale);
        let mean_of_decimal = |precision: u8, scale: i8| {
            decimal((precision + 4).min(PRECISION_MAX), (scale + 4).min(SCALE_MAX.max(scale)))
        };
        let refused = || Error::invalid(format!("{} of {argument} has no meaning", self.name()));
        match self {
            AggregateFunction::Count => Ok(DataType::Int64),
            AggregateFunction::ApproxCountDistinct => {
                crate::encoding::RowCodec::new(vec![argument.clone()]).map_err(|_| refused())?;
                Ok(DataType::Int64)
            }
            AggregateFunction::Min | AggregateFunction::Max => {
                crate::encoding::RowCodec::new(vec![argument.clone()]).map_err(|_| refused())?;
                Ok(argument.clone())
            }
            AggregateFunction::Sum | AggregateFunction::Avg => {
                let (precision, scale) = match argument {
                    DataType::Float32 | DataType::Float64 => return Ok(DataType::Float64),
                    DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
                        (*precision, *scale)
                    }
                    other => (integer_digits(other).ok_or_else(refused)?, 0),
                };
                Ok(match self {
                    AggregateFunction::Sum => sum_of_decimal(precision, scale),
                    _ => mean_of_decimal(precision, scale),
                })
            }
        }
    }

    /// Its name in SQL, in lower case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            AggregateFunction::Count => "count",
            AggregateFunction::Sum => "sum",
            AggregateFunction::Avg => "avg",
            AggregateFunction::Min => "min",
            AggregateFunction::Max => "max",
            AggregateFunction::ApproxCountDistinct => "approx_count_distinct",
        }
    }

    /// Whether it counts: over nothing it is 0, and it is never NULL.
    #[must_use]
    pub fn is_count(self) -> bool {
        matches!(self, AggregateFunction::Count | AggregateFunction::ApproxCountDistinct)
    }
}

/// The digits that an integer counts as in a decimal.
fn integer_digits(data_type: &DataType) -> Option<u8> {
    Some(match data_type {
        DataType::Boolean => 1,
        DataType::Int8 | DataType::UInt8 => 3,
        DataType::Int16 | DataType::UInt16 => 5,
        DataType::Int32 | DataType::UInt32 => 10,
        DataType::Int64 | DataType::UInt64 => 20,
        _ => return None,
    })
}

fn decimal(precision: u8, scale: i8) -> DataType {
    if precision <= 38 {
        DataType::Decimal128(precision, scale)
    } else {
        DataType::Decimal256(precision, scale)
    }
}

/// Which weights an accumulator will meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Only positive ones: MIN and MAX keep one value, a sketch the greatest ranks.
    Positive,
    /// Any: MIN and MAX keep all values, a sketch all ranks.
    Any,
}

/// One aggregate over many groups; a scalar aggregate is group 0 alone.
#[derive(Clone, Debug)]
pub struct Accumulator {
    output_type: DataType,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Linear(Linear),
    Extreme(ordered::Extremes),
    Collected(ordered::Collected),
    Sketch(sketch::Sketches),
}

impl Accumulator {
    /// An accumulator without groups. COUNT takes any number of arguments (none: rows), others take one.
    ///
    /// # Errors
    /// `Invalid` if the function has no meaning for the types.
    pub fn new(
        function: AggregateFunction,
        arguments: &[DataType],
        distinct: bool,
        weights: Weights,
    ) -> Result<Accumulator> {
        let output_type = call_output_type(function, arguments, distinct)?;
        let kind = match function {
            AggregateFunction::Min | AggregateFunction::Max => match weights {
                Weights::Positive => Kind::Extreme(ordered::Extremes::new(function, arguments)?),
                Weights::Any => Kind::Collected(ordered::Collected::new(function, arguments)?),
            },
            AggregateFunction::ApproxCountDistinct => Kind::Sketch(match weights {
                Weights::Positive => sketch::Sketches::growing(arguments)?,
                Weights::Any => sketch::Sketches::counted(arguments)?,
            }),
            _ if distinct => Kind::Collected(ordered::Collected::new(function, arguments)?),
            _ => Kind::Linear(Linear::new(function, arguments)?),
        };
        Ok(Accumulator { output_type, kind })
    }

    /// The type of the result.
    #[must_use]
    pub fn output_type(&self) -> &DataType {
        &self.output_type
    }

    /// The number of groups.
    #[must_use]
    pub fn n_groups(&self) -> usize {
        match &self.kind {
            Kind::Linear(linear) => linear.n_groups(),
            Kind::Extreme(extremes) => extremes.n_groups(),
            Kind::Collected(collected) => collected.n_groups(),
            Kind::Sketch(sketches) => sketches.n_groups(),
        }
    }

    /// Adds empty groups up to a number; there are never fewer afterwards.
    pub fn grow(&mut self, n_groups: usize) {
        match &mut self.kind {
            Kind::Linear(linear) => linear.grow(n_groups),
            Kind::Extreme(extremes) => extremes.grow(n_groups),
            Kind::Collected(collected) => collected.grow(n_groups),
            Kind::Sketch(sketches) => sketches.grow(n_groups),
        }
    }

    /// Takes in rows: `groups` names the group of each, `weights` how often it counts (once, if none are
    /// given), and only rows where `filter` is true count at all.
    ///
    /// # Errors
    /// `Invalid` if an argument has another type or a sum exceeds even the wide number; `Corrupt` if
    /// weights overflow.
    ///
    /// # Panics
    /// If a group does not exist or lengths differ.
    pub fn update(
        &mut self,
        arguments: &[ArrayRef],
        weights: Option<&[i64]>,
        groups: &[u32],
        filter: Option<&BooleanArray>,
    ) -> Result<()> {
        let effective = effective_weights(arguments, weights, groups.len(), filter);
        match &mut self.kind {
            Kind::Linear(linear) => linear.update(arguments, &effective, groups),
            Kind::Extreme(extremes) => extremes.update(arguments, &effective, groups),
            Kind::Collected(collected) => collected.update(arguments, &effective, groups),
            Kind::Sketch(sketches) => sketches.update(arguments, &effective, groups),
        }
    }

    /// Takes in states of other accumulators of the same kind (a NULL is an empty one).
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no such states.
    ///
    /// # Panics
    /// If a group does not exist or lengths differ.
    pub fn merge(&mut self, states: &BinaryArray, groups: &[u32]) -> Result<()> {
        assert_eq!(states.len(), groups.len(), "one group a state");
        for (state, group) in states.iter().zip(groups) {
            let Some(mut bytes) = state else { continue };
            let group = *group as usize;
            match &mut self.kind {
                Kind::Linear(linear) => linear.merge(group, &mut bytes)?,
                Kind::Extreme(extremes) => extremes.merge(group, &mut bytes)?,
                Kind::Collected(collected) => collected.merge(group, &mut bytes)?,
                Kind::Sketch(sketches) => sketches.merge(group, &mut bytes)?,
            }
            if !bytes.is_empty() {
                return Err(Error::corrupt("aggregate state: bytes are left over"));
            }
        }
        Ok(())
    }

    /// The state of each group, as bytes.
    #[must_use]
    pub fn states(&self) -> BinaryArray {
        let mut builder = BinaryBuilder::new();
        let mut bytes = Vec::new();
        for group in 0..self.n_groups() {
            bytes.clear();
            match &self.kind {
                Kind::Linear(linear) => linear.write(group, &mut bytes),
                Kind::Extreme(extremes) => extremes.write(group, &mut bytes),
                Kind::Collected(collected) => collected.write(group, &mut bytes),
                Kind::Sketch(sketches) => sketches.write(group, &mut bytes),
            }
            builder.append_value(&bytes);
        }
        builder.finish()
    }

    /// The result of each group.
    ///
    /// # Errors
    /// `Invalid`, number 1690, if a result does not fit its type; `Corrupt` if more rows were taken away
    /// than there were.
    pub fn evaluate(&self) -> Result<ArrayRef> {
        match &self.kind {
            Kind::Linear(linear) => linear.evaluate(0..linear.n_groups()),
            Kind::Extreme(extremes) => extremes.evaluate(),
            Kind::Collected(collected) => collected.evaluate(),
            Kind::Sketch(sketches) => sketches.evaluate(),
        }
    }

    /// Splits off the first groups; the others move up.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn split_first(&mut self, n_groups: usize) -> Accumulator {
        let kind = match &mut self.kind {
            Kind::Linear(linear) => Kind::Linear(linear.split_first(n_groups)),
            Kind::Extreme(extremes) => Kind::Extreme(extremes.split_first(n_groups)),
            Kind::Collected(collected) => Kind::Collected(collected.split_first(n_groups)),
            Kind::Sketch(sketches) => Kind::Sketch(sketches.split_first(n_groups)),
        };
        Accumulator { output_type: self.output_type.clone(), kind }
    }

    /// About how many bytes it holds.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        match &self.kind {
            Kind::Linear(linear) => linear.n_bytes(),
            Kind::Extreme(extremes) => extremes.n_bytes(),
            Kind::Collected(collected) => collected.n_bytes(),
            Kind::Sketch(sketches) => sketches.n_bytes(),
        }
    }
}

/// The type of a call's result.
pub(crate) fn call_output_type(
    function: AggregateFunction,
    arguments: &[DataType],
    distinct: bool,
) -> Result<DataType> {
    match (function, arguments) {
        (AggregateFunction::Count, []) => Ok(DataType::Int64),
        (AggregateFunction::Count, [first, ..]) | (_, [first]) => function.output_type(first, distinct),
        _ => Err(Error::invalid(format!("{} takes one argument", function.name()))),
    }
}

/// What an aggregate keeps beside each group, in words.
pub(crate) fn kept(call: &AggregateCall) -> &'static str {
    match call.function {
        AggregateFunction::Count => "count",
        AggregateFunction::Sum | AggregateFunction::Avg => "count and sum",
        AggregateFunction::Min | AggregateFunction::Max => "present value",
        AggregateFunction::ApproxCountDistinct => "registers by their greatest rank",
    }
}

/// The weights that count: 0 where an argument is NULL or the filter is not true.
pub(crate) fn effective_weights(
    arguments: &[ArrayRef],
    weights: Option<&[i64]>,
    n_rows: usize,
    filter: Option<&BooleanArray>,
) -> Vec<i64> {
    let mut effective = weights.map_or_else(|| vec![1; n_rows], <[i64]>::to_vec);
    assert_eq!(effective.len(), n_rows, "one weight a row");
    for argument in arguments {
        if let Some(nulls) = argument.logical_nulls() {
            for (weight, is_valid) in effective.iter_mut().zip(nulls.iter()) {
                *weight *= i64::from(is_valid);
            }
        }
    }
    if let Some(filter) = filter {
        for (index, weight) in effective.iter_mut().enumerate() {
            *weight *= i64::from(filter.is_valid(index) && filter.value(index));
        }
    }
    effective
}
