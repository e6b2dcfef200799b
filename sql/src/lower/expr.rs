//! One call of a `$` function as a plain expression.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{Case, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Like, LogicalPlan, Operator, Projection, ScalarUDF, Subquery, cast, lit,
};
use types::Error;

use super::comparison::comparable;
use crate::aggregates;
use crate::class::{self, Class};
use crate::error::to_datafusion;
use crate::functions::{self, Digits, Library, Types, call_udf, case_type, common_type, wrong_count};
use crate::parse::unsupported;
use crate::plan::{Declared, Known, fraction_digits, known};

/// Lowers expressions over one schema.
pub(crate) struct Lowering<'a> {
    library: &'a Library,
    schema: &'a DFSchema,
    /// Where the columns come from, and the declared columns of tables.
    inputs: Option<(&'a [LogicalPlan], &'a Declared)>,
    /// What is known of the inputs' columns; found out when it is first asked.
    known: OnceCell<Vec<(DFSchemaRef, Vec<Known>)>>,
}

impl<'a> Lowering<'a> {
    /// Over columns of which nothing but the schema is known.
    pub(crate) fn new(library: &'a Library, schema: &'a DFSchema) -> Lowering<'a> {
        Lowering { library, schema, inputs: None, known: OnceCell::new() }
    }

    /// Over the columns of a node's inputs.
    pub(crate) fn over(
        library: &'a Library,
        schema: &'a DFSchema,
        inputs: &'a [LogicalPlan],
        declared: &'a Declared,
    ) -> Lowering<'a> {
        Lowering { library, schema, inputs: Some((inputs, declared)), known: OnceCell::new() }
    }

    /// The digits behind the second that values of an expression have, if it is known.
    fn fraction_digits(&self, expr: &Expr) -> Option<u8> {
        let inputs = self.known.get_or_init(|| {
            let Some((inputs, declared)) = self.inputs else { return Vec::new() };
            inputs.iter().map(|input| (Arc::clone(input.schema()), known(input, declared))).collect()
        });
        let nothing = (DFSchemaRef::new(DFSchema::empty()), Vec::new());
        let columns = expr.column_refs();
        let has_all = |schema: &DFSchema| columns.iter().all(|column| schema.has_column(column));
        let (schema, columns) = inputs.iter().find(|(schema, _)| has_all(schema)).unwrap_or(&nothing);
        fraction_digits(expr, schema, columns)
    }

    /// A time as a text shows the digits that its type has.
    fn time_as_text(&self, expr: Expr) -> PlanResult<Expr> {
        if !matches!(Class::of(&self.type_of(&expr)?), Some(Class::Datetime | Class::Timestamp)) {
            return Ok(expr);
        }
        match self.fraction_digits(&expr).and_then(|fsp| self.library.time_text(fsp)) {
            Some(function) => Ok(call_udf(function, vec![expr])),
            None => Ok(expr),
        }
    }

    fn texts(&self, function: ScalarFunction) -> PlanResult<Transformed<Expr>> {
        let ScalarFunction { func, args } = function;
        let args = args.into_iter().map(|argument| self.time_as_text(argument)).collect::<PlanResult<_>>()?;
        Ok(Transformed::yes(call_udf(func, args)))
    }

    fn unix_timestamp(&self, function: ScalarFunction) -> PlanResult<Transformed<Expr>> {
        let [time] = arguments(function.clone())?;
        let digits = match Class::of(&self.type_of(&time)?) {
            Some(Class::Datetime | Class::Timestamp | Class::Text) => self.fraction_digits(&time),
            _ => None,
        };
        match digits.and_then(|fsp| self.library.unix_timestamp(fsp)) {
            Some(function) => Ok(Transformed::yes(call_udf(function, vec![time]))),
            None => Ok(Transformed::no(Expr::ScalarFunction(function))),
        }
    }

    /// Lowers one expression whose parts are lowered.
    pub(crate) fn lower(&self, expr: Expr) -> PlanResult<Transformed<Expr>> {
        match expr {
            Expr::ScalarFunction(function) if functions::digits_of(&function.func) != Digits::Shown => {
                self.digits(function)
            }
            Expr::ScalarFunction(function) if functions::takes_texts(&function.func) => self.texts(function),
            Expr::ScalarFunction(function) if function.name() == "unix_timestamp" => {
                self.unix_timestamp(function)
            }
            Expr::ScalarFunction(function) if function.name().starts_with('$') => self.marker(function),
            Expr::InSubquery(subquery) => self.in_subquery(subquery).map(Transformed::yes),
            Expr::AggregateFunction(mut function) => {
                aggregates::convert_arguments(&mut function, self.schema, self.library)?;
                Ok(Transformed::yes(Expr::AggregateFunction(function)))
            }
            Expr::WindowFunction(mut function) => {
                self.window(&mut function.params.partition_by, &mut function.params.order_by)?;
                Ok(Transformed::yes(Expr::WindowFunction(function)))
            }
            other => Ok(Transformed::no(other)),
        }
    }

    fn type_of(&self, expr: &Expr) -> PlanResult<DataType> {
        expr.get_type(self.schema)
    }

    /// An expression with all its digits, and its type.
    fn carried(&self, expr: Expr) -> PlanResult<(Expr, DataType)> {
        match functions::carried(&expr) {
            Some((carried, data_type)) => Ok((carried.clone(), data_type.clone())),
            None => {
                let data_type = self.type_of(&expr)?;
                Ok((expr, data_type))
            }
        }
    }

    /// A function of numbers takes all digits of its arguments; some carry them on.
    fn digits(&self, function: ScalarFunction) -> PlanResult<Transformed<Expr>> {
        let ScalarFunction { func, args } = function;
        let is_quotient = func.name() == "$div";
        let carries = functions::digits_of(&func) == Digits::Carried;
        let any_carried = args.iter().any(|argument| functions::carried(argument).is_some());
        if functions::has_target(&func) || !(any_carried || (carries && is_quotient)) {
            return Ok(Transformed::no(call_udf(func, args)));
        }
        let shown = self.shown_type(&func, &args)?;
        let (args, types): (Vec<Expr>, Vec<DataType>) = args
            .into_iter()
            .map(|argument| self.carried(argument))
            .collect::<PlanResult<Vec<_>>>()?
            .into_iter()
            .unzip();
        if !carries || !matches!(Class::of(&shown), Some(Class::Decimal(..))) {
            let call = call_udf(func, args);
            let data_type = self.type_of(&call)?;
            let is_open = matches!(call, Expr::ScalarFunction(ref call) if matches!(call.name(), "round" | "truncate") && !has_constant_places(&call.args));
            // Rounded to places that only the rows know, it shows what its argument shows.
            let call = if is_open { self.library.shown(call, data_type, &shown) } else { call };
            return Ok(Transformed::yes(call));
        }
        match self.library.carrying(&func, &shown, &types) {
            Some((func, carried)) => {
                Ok(Transformed::yes(self.library.shown(call_udf(func, args), carried, &shown)))
            }
            None => Ok(Transformed::no(call_udf(func, args))),
        }
    }

    /// The type that a function of these arguments shows.
    fn shown_type(&self, function: &ScalarUDF, arguments: &[Expr]) -> PlanResult<DataType> {
        let types = Types {
            types: arguments.iter().map(|argument| self.type_of(argument)).collect::<PlanResult<_>>()?,
            constants: arguments.iter().map(constant).collect(),
        };
        let shown = functions::shown_type(function, &types).map_err(to_datafusion)?;
        shown.ok_or_else(|| to_datafusion(Error::corrupt("a function of another library was lowered")))
    }

    /// Values that meet in one: all as the type of the meeting, with the digits that they carry.
    fn meet(&self, values: Vec<Expr>, shown: &DataType) -> PlanResult<(Vec<Expr>, DataType)> {
        let is_decimal = matches!(Class::of(shown), Some(Class::Decimal(..)));
        let scale = values
            .iter()
            .filter_map(functions::carried)
            .map(|(_, data_type)| class::digits(data_type).1)
            .max();
        let target = match scale {
            Some(scale) if is_decimal => functions::with_carried_scale(shown, scale),
            _ => shown.clone(),
        };
        let is_text = target == DataType::Utf8;
        let convert_one = |value: Expr| {
            let value = if is_text { self.time_as_text(value)? } else { value };
            let data_type = self.type_of(&value)?;
            Ok(convert(value, &data_type, &target, self.library))
        };
        let values = values.into_iter().map(convert_one).collect::<PlanResult<_>>()?;
        Ok((values, target))
    }

    fn marker(&self, function: ScalarFunction) -> PlanResult<Transformed<Expr>> {
        let name = function.name().to_owned();
        let operator = match name.as_str() {
            "$eq" => Operator::Eq,
            "$ne" => Operator::NotEq,
            "$lt" => Operator::Lt,
            "$le" => Operator::LtEq,
            "$gt" => Operator::Gt,
            "$ge" => Operator::GtEq,
            "$null_safe_eq" => Operator::IsNotDistinctFrom,
            _ => return self.other_marker(&name, function),
        };
        let [left, right] = arguments(function)?;
        Ok(Transformed::yes(self.compare(left, operator, right)?))
    }

    fn other_marker(&self, name: &str, function: ScalarFunction) -> PlanResult<Transformed<Expr>> {
        let lowered = match name {
            "$truth" => {
                let [value] = arguments(function)?;
                let data_type = self.type_of(&value)?;
                truth(value, &data_type, self.library)
            }
            "$int" => {
                let [condition] = arguments(function)?;
                cast(condition, DataType::Int64)
            }
            "$xor" => {
                let [left, right] = arguments(function)?;
                binary(left, Operator::NotEq, right)
            }
            "$in" => self.in_list(function.args)?,
            "$like" => self.like(function.args)?,
            "$regexp" => {
                let [value, pattern] = arguments(function)?;
                let value = self.time_as_text(value)?;
                let value_type = self.type_of(&value)?;
                let pattern_type = self.type_of(&pattern)?;
                let value = convert(value, &value_type, &DataType::Utf8, self.library);
                let pattern = convert(pattern, &pattern_type, &DataType::Utf8, self.library);
                binary(value, Operator::RegexMatch, pattern)
            }
            "$case" => self.case(function.args)?,
            "$coalesce" => self.coalesce(function.args)?,
            _ => return Ok(Transformed::no(Expr::ScalarFunction(function))),
        };
        Ok(Transformed::yes(lowered))
    }

    fn compare(&self, left: Expr, operator: Operator, right: Expr) -> PlanResult<Expr> {
        let left_type = self.type_of(&left)?;
        let right_type = self.type_of(&right)?;
        let (left, right) = comparable(left, &left_type, right, &right_type, self.library)?;
        Ok(binary(left, operator, right))
    }

    fn in_list(&self, mut arguments: Vec<Expr>) -> PlanResult<Expr> {
        let value = arguments.remove(0);
        let value_type = self.type_of(&value)?;
        let mut pairs = Vec::with_capacity(arguments.len());
        for item in arguments {
            let item_type = self.type_of(&item)?;
            pairs.push(comparable(value.clone(), &value_type, item, &item_type, self.library)?);
        }
        let Some((first, _)) = pairs.first().cloned() else {
            return Err(to_datafusion(Error::mysql(1064, "IN needs at least one value")));
        };
        if pairs.iter().all(|(value, _)| *value == first) {
            let list = pairs.into_iter().map(|(_, item)| item).collect();
            return Ok(Expr::InList(InList::new(Box::new(first), list, false)));
        }
        let equal = pairs.into_iter().map(|(value, item)| binary(value, Operator::Eq, item));
        Ok(equal.reduce(|any, equal| binary(any, Operator::Or, equal)).unwrap_or_else(|| lit(false)))
    }

    fn like(&self, mut arguments: Vec<Expr>) -> PlanResult<Expr> {
        let escape = match arguments.get(2) {
            None => '\\',
            Some(escape) => {
                let escape = literal_text(escape).map(str::to_owned);
                let mut characters = escape.as_deref().unwrap_or("??").chars();
                match (characters.next(), characters.next()) {
                    // An empty escape is none; no pattern has this character in it.
                    (None, _) => '\u{10ffff}',
                    (Some(escape), None) => escape,
                    _ => return Err(to_datafusion(Error::mysql(1210, "incorrect arguments to ESCAPE"))),
                }
            }
        };
        arguments.truncate(2);
        let pattern = arguments.pop().unwrap_or_else(|| lit(""));
        let value = self.time_as_text(arguments.pop().unwrap_or_else(|| lit("")))?;
        let value_type = self.type_of(&value)?;
        let pattern_type = self.type_of(&pattern)?;
        let value = convert(value, &value_type, &DataType::Utf8, self.library);
        let pattern = match (escape, literal_text(&pattern)) {
            ('\\', _) => convert(pattern, &pattern_type, &DataType::Utf8, self.library),
            (escape, Some(text)) => lit(with_backslash_escapes(text, escape)),
            _ => {
                return Err(to_datafusion(unsupported(
                    "LIKE ... ESCAPE with a pattern that is not constant",
                )));
            }
        };
        Ok(Expr::Like(Like::new(false, Box::new(value), Box::new(pattern), None, false)))
    }

    fn case(&self, arguments: Vec<Expr>) -> PlanResult<Expr> {
        let types = arguments.iter().map(|expr| self.type_of(expr)).collect::<PlanResult<Vec<_>>>()?;
        let shown = case_type(&types).map_err(to_datafusion)?;
        let n_branches = arguments.len() / 2;
        let (mut conditions, mut values) = (Vec::new(), Vec::new());
        for (index, argument) in arguments.into_iter().enumerate() {
            let is_condition = index % 2 == 0 && index / 2 < n_branches;
            if is_condition { conditions.push(argument) } else { values.push(argument) }
        }
        let (mut values, target) = self.meet(values, &shown)?;
        let else_expr = if values.len() > n_branches { values.pop().map(Box::new) } else { None };
        let branches = conditions.into_iter().map(Box::new).zip(values.into_iter().map(Box::new)).collect();
        Ok(self.library.shown(Expr::Case(Case::new(None, branches, else_expr)), target, &shown))
    }

    fn coalesce(&self, arguments: Vec<Expr>) -> PlanResult<Expr> {
        let types = arguments.iter().map(|expr| self.type_of(expr)).collect::<PlanResult<Vec<_>>>()?;
        let shown = common_type(types.iter()).map_err(to_datafusion)?;
        let (mut values, target) = self.meet(arguments, &shown)?;
        let last = values.pop().unwrap_or_else(|| lit(ScalarValue::Null));
        if values.is_empty() {
            return Ok(self.library.shown(last, target, &shown));
        }
        let branches = values
            .into_iter()
            .map(|value| (Box::new(value.clone().is_not_null()), Box::new(value)))
            .collect();
        let case = Expr::Case(Case::new(None, branches, Some(Box::new(last))));
        Ok(self.library.shown(case, target, &shown))
    }

    /// Both sides of IN become comparable; the subquery by a projection over it.
    fn in_subquery(&self, subquery: InSubquery) -> PlanResult<Expr> {
        let InSubquery { expr, subquery, negated } = subquery;
        if subquery.subquery.schema().fields().len() != 1 {
            return Err(to_datafusion(Error::mysql(1241, "operand should contain 1 column(s)")));
        }
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let column = Expr::Column(Column::from((qualifier, field)));
        let value_type = self.type_of(&expr)?;
        let column_type = field.data_type().clone();
        let (value, wanted) = comparable(*expr, &value_type, column.clone(), &column_type, self.library)?;
        let subquery = if wanted == column {
            subquery
        } else {
            let name = field.name().clone();
            let input = Arc::clone(&subquery.subquery);
            let projection = Projection::try_new(vec![wanted.alias(name)], input)?;
            Subquery { subquery: Arc::new(LogicalPlan::Projection(projection)), ..subquery }
        };
        Ok(Expr::InSubquery(InSubquery::new(Box::new(value), subquery, negated)))
    }

    fn window(
        &self,
        partition_by: &mut [Expr],
        order_by: &mut [datafusion::logical_expr::SortExpr],
    ) -> PlanResult<()> {
        for expr in partition_by.iter_mut().chain(order_by.iter_mut().map(|order| &mut order.expr)) {
            if Class::of(&self.type_of(expr)?) == Some(Class::Text) {
                let text = std::mem::replace(expr, lit(0));
                *expr = call_udf(self.library.pad_key(), vec![text]);
            }
        }
        Ok(())
    }
}

fn arguments<const N: usize>(function: ScalarFunction) -> PlanResult<[Expr; N]> {
    let name = function.name().to_owned();
    function.args.try_into().map_err(|_| to_datafusion(wrong_count(&name)))
}

pub(super) fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// The text that an expression always is.
pub(super) fn literal_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text),
        Expr::Alias(alias) => literal_text(&alias.expr),
        _ => None,
    }
}

fn with_backslash_escapes(pattern: &str, escape: char) -> String {
    let mut result = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        if c == escape {
            if let Some(next) = characters.next() {
                result.push('\\');
                result.push(next);
            }
        } else {
            if c == '\\' {
                result.push('\\');
            }
            result.push(c);
        }
    }
    result
}

/// The value that an expression always has.
fn constant(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Alias(alias) => constant(&alias.expr),
        _ => None,
    }
}

fn has_constant_places(arguments: &[Expr]) -> bool {
    arguments.get(1).is_none_or(|places| constant(places).is_some())
}

/// A value as a condition: not zero.
pub(crate) fn truth(value: Expr, data_type: &DataType, library: &Library) -> Expr {
    if let Some((carried, data_type)) = functions::carried(&value) {
        return truth(carried.clone(), data_type, library);
    }
    match Class::of(data_type) {
        Some(Class::Bool) => value,
        Some(Class::Null) => lit(ScalarValue::Boolean(None)),
        Some(Class::Int | Class::UInt | Class::Double | Class::Decimal(..)) => {
            match ScalarValue::new_zero(data_type) {
                Ok(zero) => binary(value, Operator::NotEq, lit(zero)),
                Err(_) => call_udf(library.conversion(&DataType::Boolean), vec![value]),
            }
        }
        _ => call_udf(library.conversion(&DataType::Boolean), vec![value]),
    }
}

/// A value as another type.
pub(crate) fn convert(value: Expr, from: &DataType, to: &DataType, library: &Library) -> Expr {
    if from == to {
        return value;
    }
    // Only a text is of the digits that are shown.
    if let Some((carried, data_type)) = functions::carried(&value)
        && !matches!(Class::of(to), Some(Class::Text | Class::Binary))
    {
        return convert(carried.clone(), data_type, to, library);
    }
    let natively = match (Class::of(from), Class::of(to)) {
        (Some(Class::Null), _) => true,
        (Some(Class::Bool), Some(Class::Int)) => true,
        (Some(Class::Int), Some(Class::Int)) | (Some(Class::UInt), Some(Class::UInt)) => is_wider(from, to),
        (Some(Class::Int | Class::UInt), Some(Class::Double)) => *to == DataType::Float64,
        (Some(Class::Int | Class::UInt), Some(Class::Decimal(precision, scale))) => {
            let (whole, _) = class::digits(from);
            precision - scale >= whole
        }
        (Some(Class::Decimal(p1, s1)), Some(Class::Decimal(p2, s2))) => s2 >= s1 && p2 - s2 >= p1 - s1,
        (Some(Class::Double), Some(Class::Double)) => *to == DataType::Float64,
        (Some(Class::Date), Some(Class::Datetime)) => true,
        _ => false,
    };
    if natively { cast(value, to.clone()) } else { call_udf(library.conversion(to), vec![value]) }
}

fn is_wider(from: &DataType, to: &DataType) -> bool {
    from.primitive_width() <= to.primitive_width()
}

/// Whether an expression is a sort key of a text.
pub(crate) fn is_padded(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_padded(&alias.expr),
        Expr::ScalarFunction(function) => function.name() == "pad_key",
        _ => false,
    }
}
