//! Operators on bits: 64 of them, unsigned.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::binary;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use types::Result;

use super::{Call, Entry, Types};
use crate::class::Class;
use crate::values;

pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "$bit_and",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| a & b),
        strict: true,
    },
    Entry {
        name: "$bit_or",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| a | b),
        strict: true,
    },
    Entry {
        name: "$bit_xor",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| a ^ b),
        strict: true,
    },
    Entry {
        name: "$shift_left",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| if b < 64 { a << b } else { 0 }),
        strict: true,
    },
    Entry {
        name: "$shift_right",
        arity: (2, 2),
        returns: bits_type,
        eval: |call| bits(call, |a, b| if b < 64 { a >> b } else { 0 }),
        strict: true,
    },
    Entry {
        name: "$bit_not",
        arity: (1, 1),
        returns: bits_type,
        eval: |call| Ok(Arc::new(bit_pattern(&call.arrays[0], call)?.unary::<_, UInt64Type>(|a| !a))),
        strict: true,
    },
];

fn bits_type(_: &Types<'_>) -> Result<DataType> {
    Ok(DataType::UInt64)
}

/// A number as 64 bits: negative ones by two's complement.
fn bit_pattern(array: &ArrayRef, call: &Call<'_>) -> Result<PrimitiveArray<UInt64Type>> {
    if Class::of(array.data_type()) == Some(Class::UInt) {
        let unsigned = values::convert(array, &DataType::UInt64, call.zone)?;
        return Ok(unsigned.as_primitive::<UInt64Type>().clone());
    }
    let signed = values::convert(array, &DataType::Int64, call.zone)?;
    Ok(signed.as_primitive::<Int64Type>().unary(i64::cast_unsigned))
}

fn bits(call: &Call<'_>, op: impl Fn(u64, u64) -> u64) -> Result<ArrayRef> {
    let a = bit_pattern(&call.arrays[0], call)?;
    let b = bit_pattern(&call.arrays[1], call)?;
    let result: PrimitiveArray<UInt64Type> = binary(&a, &b, op)?;
    Ok(Arc::new(result))
}
