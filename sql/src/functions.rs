//! Scalar functions with MySQL's results: one table of entries, each with its type rule and its kernel.
//!
//! The same functions serve the batch engine and the operators. Names that begin with `$` are what the
//! rewrite of the tree emits; some of those exist only until types are known (`lower` replaces them).

mod arithmetic;
mod bits;
mod carried;
mod number;
mod text;
mod time;

pub(crate) use arithmetic::{summed_type, with_carried_scale};
pub(crate) use carried::{Digits, carried, digits_of, has_target, shown_type};
pub(crate) use time::is_composite_unit;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TypeSignature, Volatility,
};
use tidb::Zone;
use types::{Error, Result};

use crate::class::{self, Class, value_type};
use crate::error::to_datafusion;
use crate::{DivisionByZero, Settings, values};

/// What the names begin with that a plan needs of its own.
const FRESH_PREFIX: &str = "#outer";

/// A function's rules.
pub(crate) struct Entry {
    /// The name.
    pub(crate) name: &'static str,
    /// The least and the greatest number of arguments.
    pub(crate) arity: (usize, usize),
    /// The type of the result.
    pub(crate) returns: fn(&Types<'_>) -> Result<DataType>,
    /// The values.
    pub(crate) eval: fn(&Call<'_>) -> Result<ArrayRef>,
    /// Whether the result is NULL only if an argument is.
    pub(crate) strict: bool,
}

/// Types of a call's arguments, with the values of those that are constants.
pub(crate) struct Types<'a> {
    pub(crate) types: Vec<DataType>,
    pub(crate) constants: Vec<Option<&'a ScalarValue>>,
}

impl Types<'_> {
    pub(crate) fn class(&self, index: usize) -> Result<Class> {
        let data_type = &self.types[index];
        Class::of(data_type)
            .ok_or_else(|| Error::invalid(format!("values of type {data_type} have no SQL type")))
    }

    /// The integer that an argument always is.
    pub(crate) fn constant_int(&self, index: usize) -> Option<i64> {
        match self.constants.get(index)?.as_ref()? {
            ScalarValue::Int64(value) => *value,
            ScalarValue::Int32(value) => value.map(i64::from),
            _ => None,
        }
    }
}

/// A call: arguments as arrays of one length.
pub(crate) struct Call<'a> {
    pub(crate) name: &'a str,
    pub(crate) arrays: Vec<ArrayRef>,
    pub(crate) n_rows: usize,
    pub(crate) returns: DataType,
    pub(crate) zone: &'a Zone,
    pub(crate) now_micros: i64,
    pub(crate) division_by_zero: DivisionByZero,
}

impl Call<'_> {
    /// The function's name as errors show it.
    pub(crate) fn shown_name(&self) -> &str {
        let name = self.name.split(carried::NAME_END).next().unwrap_or(self.name);
        name.trim_start_matches('$')
    }

    /// An argument as text.
    pub(crate) fn text(&self, index: usize) -> Result<arrow::array::StringArray> {
        values::texts(&self.arrays[index], self.zone)
    }

    /// An argument as integers.
    pub(crate) fn int(&self, index: usize) -> Result<Int64Array> {
        let array = values::convert(&self.arrays[index], &DataType::Int64, self.zone)?;
        Ok(array.as_primitive::<Int64Type>().clone())
    }

    /// An argument as doubles.
    pub(crate) fn double(&self, index: usize) -> Result<arrow::array::Float64Array> {
        if *self.arrays[index].data_type() == DataType::Null {
            return Ok(arrow::array::Float64Array::new_null(self.n_rows));
        }
        values::doubles(&self.arrays[index], self.zone)
    }

    /// An argument as local times.
    pub(crate) fn time(&self, index: usize) -> Result<arrow::array::TimestampMicrosecondArray> {
        if *self.arrays[index].data_type() == DataType::Null {
            return Ok(arrow::array::TimestampMicrosecondArray::new_null(self.n_rows));
        }
        values::datetimes(&self.arrays[index], self.zone)
    }
}

/// One function in one session's settings.
pub(crate) struct Function {
    name: String,
    entry: &'static Entry,
    /// The type of the result, where it does not follow from the arguments: that of a conversion or of
    /// what carries digits.
    target: Option<DataType>,
    /// The type of the argument, for what shows less than it carries.
    source: Option<DataType>,
    zone: Zone,
    zone_name: String,
    now_micros: i64,
    division_by_zero: DivisionByZero,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}@{}", self.name, self.zone_name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
            && self.target == other.target
            && self.zone_name == other.zone_name
            && self.now_micros == other.now_micros
            && self.division_by_zero == other.division_by_zero
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.zone_name.hash(state);
    }
}

/// Makes functions for one session's settings.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    zone: Zone,
    zone_name: String,
    now_micros: i64,
    division_by_zero: DivisionByZero,
    /// How many names were made for this plan.
    n_names: Arc<AtomicUsize>,
}

impl Library {
    pub(crate) fn new(settings: &Settings) -> Result<Library> {
        let zone = settings.time_zone.parse::<Zone>()?;
        let now_ms = i64::try_from(settings.now.physical_ms()).unwrap_or(i64::MAX / 1000);
        Ok(Library {
            zone,
            zone_name: settings.time_zone.clone(),
            now_micros: now_ms.saturating_mul(1000),
            division_by_zero: settings.division_by_zero,
            n_names: Arc::default(),
        })
    }

    /// A name that no column of the plan has; the same plan has the same names each time.
    pub(crate) fn fresh_name(&self) -> String {
        format!("{FRESH_PREFIX}{}", self.n_names.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes later names differ from those that a plan has already: those of views that stand in it.
    pub(crate) fn pass_names(&self, plan: &LogicalPlan) -> PlanResult<()> {
        plan.apply_with_subqueries(|node| {
            for field in node.schema().fields() {
                let number =
                    field.name().strip_prefix(FRESH_PREFIX).and_then(|rest| rest.parse::<usize>().ok());
                if let Some(number) = number {
                    self.n_names.fetch_max(number.saturating_add(1), Ordering::Relaxed);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    pub(crate) fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Finds a function by name; parameters may be part of the name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        if let Some(entry) = entries().find(|entry| entry.name == name) {
            return Some(self.make(name.to_owned(), entry, None));
        }
        if let Some(rest) = name.strip_prefix("$now_") {
            let entry = entries().find(|entry| entry.name == "$now").filter(|_| rest.len() == 1)?;
            return Some(self.make(name.to_owned(), entry, None));
        }
        if let Some(rest) = name.strip_prefix("$utc_now_") {
            let entry = entries().find(|entry| entry.name == "$utc_now").filter(|_| rest.len() == 1)?;
            return Some(self.make(name.to_owned(), entry, None));
        }
        if let Some(rest) = name.strip_prefix(time::TIME_TEXT) {
            let entry = entries().find(|entry| entry.name == time::TIME_TEXT).filter(|_| rest.len() == 2)?;
            return Some(self.make(name.to_owned(), entry, None));
        }
        let target = cast_target(name.strip_prefix("$cast_")?)?;
        let entry = entries().find(|entry| entry.name == "$cast")?;
        Some(self.make(name.to_owned(), entry, Some(target)))
    }

    /// The conversion to a type, as it happens where types meet.
    pub(crate) fn conversion(&self, target: &DataType) -> Arc<ScalarUDF> {
        self.make(format!("to_{target}"), &CONVERT, Some(target.clone()))
    }

    /// Times as texts with so many digits behind the second.
    pub(crate) fn time_text(&self, fsp: u8) -> Option<Arc<ScalarUDF>> {
        self.find(&format!("{}_{fsp}", time::TIME_TEXT))
    }

    /// UNIX_TIMESTAMP of times with so many digits behind the second.
    pub(crate) fn unix_timestamp(&self, fsp: u8) -> Option<Arc<ScalarUDF>> {
        let entry = entries().find(|entry| entry.name == "unix_timestamp")?;
        let target = if fsp == 0 { DataType::Int64 } else { class::decimal(11 + fsp, fsp) };
        Some(self.make(format!("{}{}{target}", entry.name, carried::NAME_END), entry, Some(target)))
    }

    /// The sort key of texts: trailing spaces removed.
    pub(crate) fn pad_key(&self) -> Arc<ScalarUDF> {
        self.make(text::PAD_KEY.name.to_owned(), &text::PAD_KEY, None)
    }

    /// A value as it is, declared to be NULL perhaps.
    pub(crate) fn nullable(&self) -> Arc<ScalarUDF> {
        self.make(NULLABLE.name.to_owned(), &NULLABLE, None)
    }

    /// A count, 0 where it is NULL.
    pub(crate) fn or_zero(&self) -> Arc<ScalarUDF> {
        self.make(OR_ZERO.name.to_owned(), &OR_ZERO, None)
    }

    fn make(&self, name: String, entry: &'static Entry, target: Option<DataType>) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(self.function(name, entry, target)))
    }

    fn function(&self, name: String, entry: &'static Entry, target: Option<DataType>) -> Function {
        let volatility = if time::is_now(entry.name) { Volatility::Stable } else { Volatility::Immutable };
        let depends_on_now = time::is_now(entry.name);
        Function {
            name,
            entry,
            target,
            source: None,
            zone: self.zone,
            zone_name: self.zone_name.clone(),
            now_micros: if depends_on_now { self.now_micros } else { 0 },
            division_by_zero: self.division_by_zero,
            signature: Signature::one_of(
                vec![TypeSignature::VariadicAny, TypeSignature::Nullary],
                volatility,
            ),
        }
    }
}

/// Whether a function's result is NULL only if an argument is.
pub(crate) fn is_strict(function: &ScalarUDF) -> bool {
    function.inner().as_ref().downcast_ref::<Function>().is_some_and(|function| function.entry.strict)
}

/// Whether a function is the implicit conversion.
pub(crate) fn is_conversion(function: &ScalarUDF) -> bool {
    let own = function.inner().as_ref().downcast_ref::<Function>();
    own.is_some_and(|function| function.entry.name == CONVERT.name)
}

/// Whether a function reads its arguments as texts.
pub(crate) fn takes_texts(function: &ScalarUDF) -> bool {
    let Some(function) = function.inner().as_ref().downcast_ref::<Function>() else { return false };
    function.name.starts_with("$cast_char")
        || text::ENTRIES.iter().any(|entry| entry.name == function.entry.name)
}

/// The zone in which a function reads local times.
pub(crate) fn zone_name(function: &ScalarUDF) -> Option<&str> {
    function.inner().as_ref().downcast_ref::<Function>().map(|function| function.zone_name.as_str())
}

/// Whether a function is the one that makes a text's sort key.
pub(crate) fn is_pad_key(function: &ScalarUDF) -> bool {
    function.inner().as_ref().downcast_ref::<Function>().is_some_and(|function| function.name == "pad_key")
}

/// Whether there is a scalar function of that name.
pub(crate) fn exists(name: &str) -> bool {
    name.starts_with('$') || entries().any(|entry| entry.name == name)
}

/// MySQL's error for a call with too few or too many arguments.
pub(crate) fn wrong_count(name: &str) -> Error {
    let name = name.trim_start_matches('$');
    Error::mysql(1582, format!("Incorrect parameter count in the call to native function '{name}'"))
}

/// Checks the number of arguments of a call.
///
/// # Errors
/// MySQL 1582.
pub(crate) fn check_arity(name: &str, n_arguments: usize) -> Result<()> {
    match entries().find(|entry| entry.name == name) {
        Some(entry) if n_arguments < entry.arity.0 || n_arguments > entry.arity.1 => Err(wrong_count(name)),
        _ => Ok(()),
    }
}

/// Every entry.
fn entries() -> impl Iterator<Item = &'static Entry> {
    MARKERS
        .iter()
        .chain(arithmetic::ENTRIES)
        .chain(bits::ENTRIES)
        .chain(number::ENTRIES)
        .chain(text::ENTRIES)
        .chain(time::ENTRIES)
}

/// The type of a CAST, from the end of the function's name.
fn cast_target(spelled: &str) -> Option<DataType> {
    let mut parts = spelled.split('_');
    let kind = parts.next()?;
    let numbers: Vec<u8> = parts
        .map(|part| part.parse::<u16>().unwrap_or(u16::MAX))
        .map(|number| u8::try_from(number).unwrap_or(u8::MAX))
        .collect();
    Some(match (kind, numbers.as_slice()) {
        ("signed", []) => DataType::Int64,
        ("unsigned", []) => DataType::UInt64,
        ("char", _) => DataType::Utf8,
        ("binary", []) => DataType::Binary,
        ("date", []) => DataType::Date32,
        ("datetime", [_]) => class::DATETIME,
        ("double", []) => DataType::Float64,
        ("float", []) => DataType::Float32,
        ("decimal", [precision, scale]) => class::decimal(*precision, *scale),
        _ => return None,
    })
}

impl Function {
    fn check_arity(&self, n_arguments: usize) -> Result<()> {
        let (least, greatest) = self.entry.arity;
        if n_arguments < least || n_arguments > greatest {
            return Err(wrong_count(&self.name));
        }
        Ok(())
    }

    fn returns(&self, types: &Types<'_>) -> Result<DataType> {
        self.check_arity(types.types.len())?;
        match &self.target {
            Some(target) => Ok(target.clone()),
            None => (self.entry.returns)(types),
        }
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        let types = Types { types: arg_types.to_vec(), constants: vec![None; arg_types.len()] };
        self.returns(&types).map_err(to_datafusion)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let types = Types {
            types: args.arg_fields.iter().map(|field| field.data_type().clone()).collect(),
            constants: args.scalar_arguments.to_vec(),
        };
        let data_type = self.returns(&types).map_err(to_datafusion)?;
        let nullable = !self.entry.strict || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), data_type, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let all_scalar = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let n_rows = if all_scalar { 1 } else { args.number_rows };
        if n_rows == 0 {
            // Without rows an argument that is the same in all of them says nothing.
            return Ok(ColumnarValue::Array(arrow::array::new_empty_array(args.return_field.data_type())));
        }
        let arrays = args
            .args
            .iter()
            .map(|value| match value {
                ColumnarValue::Array(array) => Ok(Arc::clone(array)),
                ColumnarValue::Scalar(scalar) => scalar.to_array_of_size(n_rows),
            })
            .collect::<PlanResult<Vec<_>>>()?;
        let call = Call {
            name: &self.name,
            arrays,
            n_rows,
            returns: args.return_field.data_type().clone(),
            zone: &self.zone,
            now_micros: self.now_micros,
            division_by_zero: self.division_by_zero,
        };
        let array = (self.entry.eval)(&call).map_err(to_datafusion)?;
        if all_scalar && array.len() == 1 {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// A call as an expression.
pub(crate) fn call_udf(function: Arc<ScalarUDF>, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(datafusion::logical_expr::expr::ScalarFunction::new_udf(function, arguments))
}

/// The implicit conversion: errors only where a number does not fit.
static CONVERT: Entry = Entry {
    name: "$convert",
    arity: (1, 1),
    returns: |_| Err(Error::invalid("a conversion has no target")),
    eval: |call| values::convert(&call.arrays[0], &call.returns, call.zone),
    strict: false,
};

/// Changes no value, only what is known of it.
static NULLABLE: Entry = Entry {
    name: "$nullable",
    arity: (1, 1),
    returns: |types| Ok(types.types[0].clone()),
    eval: |call| Ok(Arc::clone(&call.arrays[0])),
    strict: false,
};

static OR_ZERO: Entry = Entry {
    name: "$or_zero",
    arity: (1, 1),
    returns: |_| Ok(DataType::Int64),
    eval: |call| {
        let counts = call.arrays[0].as_primitive::<Int64Type>();
        Ok(Arc::new(Int64Array::from_iter_values(counts.iter().map(|count| count.unwrap_or(0)))))
    },
    strict: false,
};

fn boolean(_: &Types<'_>) -> Result<DataType> {
    Ok(DataType::Boolean)
}

/// CASE: conditions and values in turn, then perhaps the value of ELSE.
pub(crate) fn case_type(types: &[DataType]) -> Result<DataType> {
    let is_value = |index: usize| index % 2 == 1 || (index + 1 == types.len() && types.len() % 2 == 1);
    let values =
        types.iter().enumerate().filter(|(index, _)| is_value(*index)).map(|(_, data_type)| data_type);
    common_type(values)
}

/// The one type of several values.
pub(crate) fn common_type<'a>(types: impl Iterator<Item = &'a DataType>) -> Result<DataType> {
    let mut common = DataType::Null;
    for data_type in types {
        common = class::union_type(&common, data_type)
            .ok_or_else(|| Error::invalid(format!("values of type {data_type} have no SQL type")))?;
    }
    Ok(value_type(&common))
}

fn only_lowered(call: &Call<'_>) -> Result<ArrayRef> {
    Err(Error::corrupt(format!("{} was not lowered before it ran", call.name)))
}

/// What exists only until types are known.
static MARKERS: &[Entry] = &[
    Entry { name: "$truth", arity: (1, 1), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$int", arity: (1, 1), returns: |_| Ok(DataType::Int64), eval: only_lowered, strict: true },
    Entry { name: "$xor", arity: (2, 2), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$in", arity: (2, usize::MAX), returns: boolean, eval: only_lowered, strict: false },
    Entry { name: "$like", arity: (2, 3), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$regexp", arity: (2, 2), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$eq", arity: (2, 2), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$ne", arity: (2, 2), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$lt", arity: (2, 2), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$le", arity: (2, 2), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$gt", arity: (2, 2), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$ge", arity: (2, 2), returns: boolean, eval: only_lowered, strict: true },
    Entry { name: "$null_safe_eq", arity: (2, 2), returns: boolean, eval: only_lowered, strict: false },
    Entry {
        name: "$case",
        arity: (2, usize::MAX),
        returns: |types| case_type(&types.types),
        eval: only_lowered,
        strict: false,
    },
    Entry {
        name: "$coalesce",
        arity: (1, usize::MAX),
        returns: |types| common_type(types.types.iter()),
        eval: only_lowered,
        strict: false,
    },
    Entry {
        name: "$cast",
        arity: (1, 1),
        returns: |_| Err(Error::invalid("a cast has no target")),
        eval: explicit_cast,
        strict: false,
    },
];

/// CAST as it was written: lengths cut, fractions round, integers of text by their digits.
fn explicit_cast(call: &Call<'_>) -> Result<ArrayRef> {
    if let Some(length) = call.name.strip_prefix("$cast_char_") {
        let length: usize = length.parse().unwrap_or(usize::MAX);
        let cut = |text: &str| text.chars().take(length).collect::<String>();
        let texts: arrow::array::StringArray = call.text(0)?.iter().map(|text| text.map(cut)).collect();
        return Ok(Arc::new(texts));
    }
    if let Some(fsp) = call.name.strip_prefix("$cast_datetime_") {
        let fsp: u32 = fsp.parse().unwrap_or(6);
        let unit = 10_i64.pow(6 - fsp.min(6));
        let round = |micros: i64| (micros + unit / 2).div_euclid(unit) * unit;
        return Ok(Arc::new(call.time(0)?.unary::<_, arrow::datatypes::TimestampMicrosecondType>(round)));
    }
    let source = &call.arrays[0];
    if call.returns == DataType::UInt64 && matches!(values::class_of(source)?, Class::Int | Class::Bool) {
        // CAST(-1 AS UNSIGNED) is 18446744073709551615.
        let signed = call.int(0)?;
        let unsigned = signed.unary::<_, arrow::datatypes::UInt64Type>(i64::cast_unsigned);
        return Ok(Arc::new(unsigned));
    }
    if call.returns == DataType::Int64 && values::class_of(source)? == Class::UInt {
        let unsigned = arrow::compute::cast(source, &DataType::UInt64)?;
        let unsigned = unsigned.as_primitive::<arrow::datatypes::UInt64Type>();
        return Ok(Arc::new(unsigned.unary::<_, Int64Type>(u64::cast_signed)));
    }
    if let Some(Class::Decimal(precision, scale)) = Class::of(&call.returns) {
        return clamped_decimals(call, precision, scale);
    }
    values::convert(source, &call.returns, call.zone)
}

/// A CAST to a decimal stays at the limit where a number is too big.
fn clamped_decimals(call: &Call<'_>, precision: u8, scale: u8) -> Result<ArrayRef> {
    use arrow::datatypes::i256;
    let limit = i256::from_i128(10).wrapping_pow(u32::from(precision)).wrapping_sub(i256::ONE);
    let clamp = |number: tidb::Decimal| match number.rescale(scale) {
        Some(fitting) if fitting.fits(precision) => fitting.unscaled,
        _ if number.unscaled < i256::ZERO => limit.wrapping_neg(),
        _ => limit,
    };
    let numbers = values::exact_numbers(&call.arrays[0], call.zone)?;
    values::decimal_array(numbers.into_iter().map(|number| number.map(clamp)).collect(), &call.returns)
}
