//! COUNT, SUM, AVG, MIN, MAX and APPROX_COUNT_DISTINCT of the batch engine: the operators' accumulators, so
//! that a query and a view never differ in a digit.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction as AggregateExpr;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, ExprSchemable, GroupsAccumulator, Signature,
    Volatility,
};
use operators::AggregateFunction;
use operators::accumulate::{Accumulator as Groups, Weights};

use crate::class::Class;
use crate::error::to_datafusion;
use crate::functions::{Library, carried, summed_type, wrong_count};
use crate::lower::convert;

const FUNCTIONS: [AggregateFunction; 6] = [
    AggregateFunction::Count,
    AggregateFunction::Sum,
    AggregateFunction::Avg,
    AggregateFunction::Min,
    AggregateFunction::Max,
    AggregateFunction::ApproxCountDistinct,
];

/// Finds an aggregate by name.
pub(crate) fn find(name: &str) -> Option<Arc<AggregateUDF>> {
    FUNCTIONS.into_iter().find(|function| function.name() == name).map(make)
}

/// The operators' function of an aggregate.
pub(crate) fn function_of(aggregate: &AggregateUDF) -> Option<AggregateFunction> {
    aggregate.inner().as_ref().downcast_ref::<Aggregate>().map(|aggregate| aggregate.function)
}

/// All of them.
pub(crate) fn all() -> Vec<Arc<AggregateUDF>> {
    FUNCTIONS.into_iter().map(make).collect()
}

/// MIN, which of texts that compare equal is the smallest by bytes.
pub(crate) fn smallest(expr: Expr) -> Expr {
    let function = make(AggregateFunction::Min);
    Expr::AggregateFunction(AggregateExpr::new_udf(function, vec![expr], false, None, Vec::new(), None))
}

/// COUNT(*).
pub(crate) fn count_rows() -> Expr {
    let function = make(AggregateFunction::Count);
    let row = datafusion::logical_expr::lit(1_i64);
    Expr::AggregateFunction(AggregateExpr::new_udf(function, vec![row], false, None, Vec::new(), None))
}

fn make(function: AggregateFunction) -> Arc<AggregateUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(Aggregate { function, signature }))
}

/// Arguments of SUM and AVG are numbers.
pub(crate) fn convert_arguments(
    call: &mut AggregateExpr,
    schema: &DFSchema,
    library: &Library,
) -> PlanResult<()> {
    let Some(function) = function_of(&call.func) else { return Ok(()) };
    if function == AggregateFunction::ApproxCountDistinct {
        // It counts each value once as it is.
        call.params.distinct = false;
    }
    for argument in &mut call.params.args {
        let from = argument.get_type(schema)?;
        let class = Class::of(&from);
        let is_sum = matches!(function, AggregateFunction::Sum | AggregateFunction::Avg);
        let to = match class {
            Some(Class::Null | Class::Bool) => DataType::Int64,
            Some(Class::Text | Class::Binary) if is_sum => DataType::Float64,
            Some(Class::Date | Class::Datetime | Class::Timestamp) if is_sum => DataType::Int64,
            // Texts that differ in trailing spaces count once.
            Some(Class::Text) if call.params.distinct && function == AggregateFunction::Count => {
                let value = std::mem::replace(argument, Expr::Literal(ScalarValue::Null, None));
                *argument = crate::lower::padded(value, library);
                continue;
            }
            Some(_) if from == DataType::Utf8View || from == DataType::LargeUtf8 => DataType::Utf8,
            _ => continue,
        };
        let value = std::mem::replace(argument, Expr::Literal(ScalarValue::Null, None));
        *argument = convert(value, &from, &to, library);
    }
    Ok(())
}

/// The argument of a sum or a mean whose argument carries more digits than it shows.
pub(crate) fn carried_sum(expr: &Expr) -> Option<(&AggregateExpr, AggregateFunction)> {
    match expr {
        Expr::Alias(alias) => carried_sum(&alias.expr),
        Expr::AggregateFunction(call) => {
            let function = function_of(&call.func)?;
            let is_sum = matches!(function, AggregateFunction::Sum | AggregateFunction::Avg);
            let carries = matches!(call.params.args.as_slice(), [one] if carried(one).is_some());
            (is_sum && carries).then_some((call, function))
        }
        _ => None,
    }
}

/// Such a sum over all digits, and its type; `shown` is the type that it shows.
pub(crate) fn with_carried_sum(
    expr: &Expr,
    shown: &DataType,
    library: &Library,
) -> PlanResult<Option<(Expr, DataType)>> {
    let Some((call, function)) = carried_sum(expr) else { return Ok(None) };
    let Some(argument) = call.params.args.first() else { return Ok(None) };
    let (Some((all, carried)), Expr::ScalarFunction(outer)) = (carried(argument), argument) else {
        return Ok(None);
    };
    let argument_type = outer.func.return_type(std::slice::from_ref(carried))?;
    let target = summed_type(&argument_type, carried, shown);
    let mut call = call.clone();
    call.params.args = vec![convert(all.clone(), carried, &target, library)];
    let data_type = function.output_type(&target, call.params.distinct).map_err(to_datafusion)?;
    Ok(Some((Expr::AggregateFunction(call), data_type)))
}

/// One of the functions, for the batch engine.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Aggregate {
    function: AggregateFunction,
    signature: Signature,
}

impl Aggregate {
    fn groups(&self, args: &AccumulatorArgs<'_>, weights: Weights) -> PlanResult<Groups> {
        let types: Vec<DataType> = args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        Groups::new(self.function, &types, args.is_distinct, weights).map_err(to_datafusion)
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        let argument = match arg_types {
            [] if self.function == AggregateFunction::Count => DataType::Int64,
            [one] => one.clone(),
            [first, ..] if self.function == AggregateFunction::Count => first.clone(),
            _ => return Err(to_datafusion(wrong_count(self.function.name()))),
        };
        // As the argument will be once it is converted.
        let is_sum = matches!(self.function, AggregateFunction::Sum | AggregateFunction::Avg);
        let argument = match Class::of(&argument) {
            Some(Class::Null | Class::Bool) => DataType::Int64,
            Some(Class::Text | Class::Binary) if is_sum => DataType::Float64,
            Some(Class::Date | Class::Datetime | Class::Timestamp) if is_sum => DataType::Int64,
            Some(Class::Text) => DataType::Utf8,
            _ => argument,
        };
        self.function.output_type(&argument, false).map_err(to_datafusion)
    }

    fn is_nullable(&self) -> bool {
        !self.function.is_count()
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        match self.function {
            function if function.is_count() => Ok(ScalarValue::Int64(Some(0))),
            _ => ScalarValue::try_from(data_type),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let mut groups = self.groups(&args, Weights::Positive)?;
        groups.grow(1);
        Ok(Box::new(One { groups, retracts: false }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let mut groups = self.groups(&args, Weights::Any)?;
        groups.grow(1);
        Ok(Box::new(One { groups, retracts: true }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[state]", args.name), DataType::Binary, true))])
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn GroupsAccumulator>> {
        let groups = self.groups(&args, Weights::Positive)?;
        Ok(Box::new(Many { empty: groups.clone(), groups }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// An aggregate without groups.
#[derive(Debug)]
struct One {
    groups: Groups,
    retracts: bool,
}

impl One {
    fn weigh(&mut self, values: &[ArrayRef], weight: i64) -> PlanResult<()> {
        let n_rows = values.first().map_or(0, Array::len);
        let weights = vec![weight; n_rows];
        let groups = vec![0_u32; n_rows];
        self.groups.update(values, Some(&weights), &groups, None).map_err(to_datafusion)
    }
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.weigh(values, 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.weigh(values, -1)
    }

    fn supports_retract_batch(&self) -> bool {
        self.retracts
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let values = self.groups.evaluate().map_err(to_datafusion)?;
        ScalarValue::try_from_array(&values, 0)
    }

    fn size(&self) -> usize {
        self.groups.n_bytes()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let states: ArrayRef = Arc::new(self.groups.states());
        Ok(vec![ScalarValue::try_from_array(&states, 0)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let Some(states) = states.first() else { return Ok(()) };
        let groups = vec![0_u32; states.len()];
        self.groups.merge(states.as_binary::<i32>(), &groups).map_err(to_datafusion)
    }
}

/// An aggregate over many groups.
#[derive(Debug)]
struct Many {
    /// Without any group, to begin again from.
    empty: Groups,
    groups: Groups,
}

impl Many {
    fn take(&mut self, emit_to: EmitTo) -> Groups {
        let n_groups = match emit_to {
            EmitTo::All => self.groups.n_groups(),
            EmitTo::First(n_groups) => n_groups,
        };
        self.groups.split_first(n_groups)
    }
}

fn numbers(group_indices: &[usize]) -> PlanResult<Vec<u32>> {
    let number = |index: &usize| {
        u32::try_from(*index)
            .map_err(|_| to_datafusion(types::Error::unavailable("too many groups for one query")))
    };
    group_indices.iter().map(number).collect()
}

impl GroupsAccumulator for Many {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.groups.grow(total_num_groups);
        self.groups.update(values, None, &numbers(group_indices)?, opt_filter).map_err(to_datafusion)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> PlanResult<ArrayRef> {
        self.take(emit_to).evaluate().map_err(to_datafusion)
    }

    fn state(&mut self, emit_to: EmitTo) -> PlanResult<Vec<ArrayRef>> {
        Ok(vec![Arc::new(self.take(emit_to).states())])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.groups.grow(total_num_groups);
        let Some(states) = values.first() else { return Ok(()) };
        let groups = numbers(group_indices)?;
        self.groups.merge(states.as_binary::<i32>(), &groups).map_err(to_datafusion)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> PlanResult<Vec<ArrayRef>> {
        let n_rows = values.first().map_or(0, |values| values.len());
        let own_groups: Vec<usize> = (0..n_rows).collect();
        let mut groups = self.empty.clone();
        groups.grow(n_rows);
        groups.update(values, None, &numbers(&own_groups)?, opt_filter).map_err(to_datafusion)?;
        Ok(vec![Arc::new(groups.states())])
    }

    fn size(&self) -> usize {
        self.groups.n_bytes()
    }
}
