//! The columns of an answer: names as MySQL shows them, types as declared where they are known.

use std::collections::BTreeMap;

use arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use operators::AggregateFunction;
use tidb::{ColumnInfo, ColumnType};
use types::{Error, Result};

use super::OutputColumn;
use crate::aggregates;
use crate::class;
use crate::meaning::ItemName;

/// Declared columns by database and table, in lower case.
pub(crate) type Declared = BTreeMap<(String, String), Vec<ColumnInfo>>;

/// The answer's columns: names from the select list, and for `*` as declared.
pub(super) fn output_columns(
    plan: &LogicalPlan,
    names: &[ItemName],
    declared: &Declared,
) -> Result<Vec<OutputColumn>> {
    let schema = plan.schema();
    let types = column_types(plan, declared);
    let declared_names = column_names(plan, declared);
    let n_fields = schema.fields().len();
    let shown = shown_names(schema, names, &declared_names);
    let mut columns = Vec::with_capacity(n_fields);
    for (index, field) in schema.fields().iter().enumerate() {
        let column_type = types[index].clone().or_else(|| class::column_type(field.data_type()));
        let column_type = column_type.ok_or_else(|| {
            Error::mysql(1235, format!("values of type {} have no SQL type", field.data_type()))
        })?;
        columns.push(OutputColumn {
            name: shown[index].clone(),
            column_type,
            not_null: !field.is_nullable(),
        });
    }
    Ok(columns)
}

/// The names of a view's columns: the list of CREATE, or the query's.
pub(crate) struct OutputNames {
    pub(crate) names: Vec<String>,
}

impl OutputNames {
    /// Names for the columns of a plan that is not yet optimised.
    pub(crate) fn new(
        plan: &LogicalPlan,
        names: &[ItemName],
        declared: &Declared,
        list: &[String],
    ) -> Result<OutputNames> {
        let n_fields = plan.schema().fields().len();
        let names = if list.is_empty() {
            shown_names(plan.schema(), names, &column_names(plan, declared))
        } else if list.len() == n_fields {
            list.to_vec()
        } else {
            let text =
                "in definition of view, SELECT list and column names list have different column counts";
            return Err(Error::mysql(1353, text));
        };
        for (index, name) in names.iter().enumerate() {
            if names[..index].iter().any(|known| known.to_lowercase() == name.to_lowercase()) {
                return Err(Error::mysql(1060, format!("Duplicate column name '{name}'")));
            }
            if name.is_empty() || name.ends_with(' ') || name.chars().count() > 64 {
                return Err(Error::mysql(1166, format!("incorrect column name '{name}'")));
            }
        }
        Ok(OutputNames { names })
    }
}

/// Names in the order of the fields; wildcards take as many as are left for them.
fn shown_names(schema: &DFSchema, names: &[ItemName], declared: &[Option<String>]) -> Vec<String> {
    let n_fields = schema.fields().len();
    let n_wildcards = names.iter().filter(|name| **name == ItemName::Wildcard).count();
    let n_named = names.len() - n_wildcards;
    let as_declared = |index: usize| match &declared[index] {
        Some(name) => name.clone(),
        None => schema.field(index).name().clone(),
    };
    let mut shown = Vec::with_capacity(n_fields);
    if n_wildcards <= 1 {
        for name in names {
            match name {
                ItemName::Named(name) => shown.push(name.clone()),
                ItemName::Wildcard => {
                    let n_expanded = n_fields.saturating_sub(n_named);
                    let start = shown.len();
                    shown.extend((start..start + n_expanded).map(as_declared));
                }
            }
        }
    } else {
        // Named items beside wildcards have aliases and so no qualifier.
        let mut named = names.iter().filter_map(|name| match name {
            ItemName::Named(name) => Some(name),
            ItemName::Wildcard => None,
        });
        for index in 0..n_fields {
            let (qualifier, _) = schema.qualified_field(index);
            let name = if qualifier.is_none() { named.next().cloned() } else { None };
            shown.push(name.unwrap_or_else(|| as_declared(index)));
        }
    }
    // Should the engine have made other columns than were asked for, their own names are right.
    shown.truncate(n_fields);
    shown.extend((shown.len()..n_fields).map(as_declared));
    shown
}

/// What one column is known by.
#[derive(Clone)]
pub(crate) struct Known {
    name: Option<String>,
    column_type: Option<ColumnType>,
}

const UNKNOWN: Known = Known { name: None, column_type: None };

/// The declared types of a plan's columns; `None` where only the Arrow type is known.
pub(crate) fn column_types(plan: &LogicalPlan, declared: &Declared) -> Vec<Option<ColumnType>> {
    let fits = |(known, field): (Known, &arrow::datatypes::FieldRef)| {
        known.column_type.filter(|column_type| column_type.arrow_type() == *field.data_type())
    };
    known(plan, declared).into_iter().zip(plan.schema().fields()).map(fits).collect()
}

fn column_names(plan: &LogicalPlan, declared: &Declared) -> Vec<Option<String>> {
    known(plan, declared).into_iter().map(|known| known.name).collect()
}

/// What is known of a plan's columns.
pub(crate) fn known(plan: &LogicalPlan, declared: &Declared) -> Vec<Known> {
    let n_fields = plan.schema().fields().len();
    let found = match plan {
        LogicalPlan::TableScan(scan) => of_table(scan.table_name.schema(), scan.table_name.table(), declared)
            .map(|all| match &scan.projection {
                Some(columns) => columns.iter().map(|at| all.get(*at).cloned().unwrap_or(UNKNOWN)).collect(),
                None => all,
            }),
        LogicalPlan::SubqueryAlias(alias) => of_table(alias.alias.schema(), alias.alias.table(), declared)
            .or_else(|| Some(known(&alias.input, declared))),
        LogicalPlan::Projection(projection) => {
            let input = known(&projection.input, declared);
            let schema = projection.input.schema();
            Some(projection.expr.iter().map(|expr| of_expr(expr, schema, &input)).collect())
        }
        LogicalPlan::Aggregate(aggregate) => {
            let input = known(&aggregate.input, declared);
            let schema = aggregate.input.schema();
            let exprs = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
            Some(exprs.map(|expr| of_expr(expr, schema, &input)).collect())
        }
        LogicalPlan::Join(join) => {
            let both = known(&join.left, declared).into_iter().chain(known(&join.right, declared));
            Some(both.collect())
        }
        LogicalPlan::Union(union) => Some(of_union(union, declared, n_fields)),
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Repartition(_) => plan.inputs().first().map(|input| known(input, declared)),
        LogicalPlan::Window(window) => {
            let mut columns = known(&window.input, declared);
            columns.resize(n_fields, UNKNOWN);
            Some(columns)
        }
        _ => None,
    };
    // A join may put out the columns of one side only.
    match found {
        Some(mut columns) if columns.len() >= n_fields => {
            if let LogicalPlan::Join(join) = plan
                && columns.len() > n_fields
            {
                let n_left = join.left.schema().fields().len();
                if n_left != n_fields {
                    columns = columns.split_off(n_left);
                }
            }
            columns.resize(n_fields, UNKNOWN);
            columns
        }
        _ => vec![UNKNOWN; n_fields],
    }
}

fn of_table(database: Option<&str>, table: &str, declared: &Declared) -> Option<Vec<Known>> {
    let columns = declared.get(&(database?.to_owned(), table.to_owned()))?;
    let known = |column: &ColumnInfo| Known {
        name: Some(column.name.clone()),
        column_type: Some(column.column_type.clone()),
    };
    Some(columns.iter().map(known).collect())
}

fn of_expr(expr: &Expr, schema: &DFSchema, input: &[Known]) -> Known {
    match expr {
        Expr::Alias(alias) => Known { name: None, ..of_expr(&alias.expr, schema, input) },
        Expr::Column(column) => of_column(column, schema, input),
        Expr::AggregateFunction(call) => {
            let function = aggregates::function_of(&call.func);
            let is_extreme = matches!(function, Some(AggregateFunction::Min | AggregateFunction::Max));
            match call.params.args.as_slice() {
                [argument] if is_extreme => Known { name: None, ..of_expr(argument, schema, input) },
                _ => UNKNOWN,
            }
        }
        // A date beside times is one at midnight.
        Expr::Cast(cast) if *cast.field.data_type() == class::DATETIME => Known {
            name: None,
            column_type: fraction_digits(&cast.expr, schema, input).map(ColumnType::Datetime),
        },
        Expr::ScalarFunction(function) if function.name().starts_with("to_Timestamp") => {
            let fsp = function.args.first().and_then(|first| fraction_digits(first, schema, input));
            let is_local = !function.name().contains("UTC");
            let to_type = if is_local { ColumnType::Datetime } else { ColumnType::Timestamp };
            Known { name: None, column_type: fsp.map(to_type) }
        }
        Expr::ScalarFunction(function) => of_function(function.name(), &function.args, schema, input),
        Expr::Case(case) => {
            let values = case.when_then_expr.iter().map(|(_, value)| value).chain(&case.else_expr);
            let is_null = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.is_null());
            let values = values.filter(|value| !is_null(value));
            merge(values.map(|value| of_expr(value, schema, input)))
        }
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
            let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
            Known { name: None, column_type: Some(ColumnType::Varchar(length.max(1))) }
        }
        _ => UNKNOWN,
    }
}

/// The digits behind the second that values of an expression have, if it is known.
pub(crate) fn fraction_digits(expr: &Expr, schema: &DFSchema, input: &[Known]) -> Option<u8> {
    if let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = expr {
        let (_, fraction) = text.rsplit_once('.').unwrap_or((text, ""));
        let n_digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        return u8::try_from(n_digits).ok().map(|n_digits| n_digits.min(6));
    }
    match of_expr(expr, schema, input).column_type {
        Some(ColumnType::Datetime(fsp) | ColumnType::Timestamp(fsp)) => Some(fsp),
        Some(ColumnType::Date) => Some(0),
        _ if expr.get_type(schema).is_ok_and(|data_type| data_type == DataType::Date32) => Some(0),
        _ => None,
    }
}

/// A time that is moved has the digits of the time and of the amount.
fn moved(arguments: &[Expr], at: [usize; 3], schema: &DFSchema, input: &[Known]) -> Option<ColumnType> {
    let [date, amount, unit] = at;
    let fsp = fraction_digits(arguments.get(date)?, schema, input)?;
    let Expr::Literal(ScalarValue::Utf8(Some(unit)), _) = arguments.get(unit)? else { return None };
    let amount = arguments.get(amount)?;
    let added = if unit.contains("microsecond") {
        6
    } else if unit == "second" {
        match amount {
            Expr::Literal(ScalarValue::Utf8(_), _) => fraction_digits(amount, schema, input)?,
            other => number_digits(other, schema)?,
        }
    } else {
        0
    };
    Some(ColumnType::Datetime(fsp.max(added)))
}

/// The digits behind the point of a number that becomes a time.
fn number_digits(expr: &Expr, schema: &DFSchema) -> Option<u8> {
    Some(match class::Class::of(&expr.get_type(schema).ok()?)? {
        class::Class::Int | class::Class::UInt | class::Class::Bool => 0,
        class::Class::Decimal(_, scale) => scale.min(6),
        _ => 6,
    })
}

/// Texts that a function cannot make longer; times with the digits that they can have.
fn of_function(name: &str, arguments: &[Expr], schema: &DFSchema, input: &[Known]) -> Known {
    let column_type = match (name, arguments.first()) {
        (
            "pad_key" | "substring" | "left" | "right" | "ltrim" | "rtrim" | "reverse" | "$trim_both"
            | "$trim_leading" | "$trim_trailing",
            Some(first),
        ) => match of_expr(first, schema, input).column_type {
            Some(ColumnType::Char(length) | ColumnType::Varchar(length)) => Some(ColumnType::Varchar(length)),
            _ => None,
        },
        ("$date_add" | "$date_sub", _) => moved(arguments, [0, 1, 2], schema, input),
        ("timestampadd", _) => moved(arguments, [2, 1, 0], schema, input),
        ("from_unixtime", Some(first)) if arguments.len() == 1 => {
            number_digits(first, schema).map(ColumnType::Datetime)
        }
        ("$datetime_literal", Some(first)) => fraction_digits(first, schema, input).map(ColumnType::Datetime),
        ("greatest" | "least", _) => {
            merge(arguments.iter().map(|one| of_expr(one, schema, input))).column_type
        }
        ("dayname" | "monthname", _) => Some(ColumnType::Varchar(16)),
        ("concat", _) => {
            let mut total = Some(0_u32);
            for argument in arguments {
                let length = match of_expr(argument, schema, input).column_type {
                    Some(ColumnType::Char(length) | ColumnType::Varchar(length)) => Some(length),
                    _ => None,
                };
                total = total.zip(length).and_then(|(total, length)| total.checked_add(length));
            }
            total.filter(|total| *total <= 16_383).map(ColumnType::Varchar)
        }
        _ => name
            .strip_prefix("$now_")
            .or_else(|| name.strip_prefix("$utc_now_"))
            .or_else(|| name.strip_prefix("$cast_datetime_"))
            .and_then(|fsp| fsp.parse().ok())
            .map(ColumnType::Datetime),
    };
    Known { name: None, column_type }
}

fn of_column(column: &Column, schema: &DFSchema, input: &[Known]) -> Known {
    schema.maybe_index_of_column(column).and_then(|index| input.get(index)).cloned().unwrap_or(UNKNOWN)
}

fn of_union(union: &datafusion::logical_expr::Union, declared: &Declared, n_fields: usize) -> Vec<Known> {
    let inputs: Vec<Vec<Known>> = union.inputs.iter().map(|input| known(input, declared)).collect();
    let column = |index: usize| {
        let merged = merge(inputs.iter().map(|input| input.get(index).cloned().unwrap_or(UNKNOWN)));
        let name = inputs.first().and_then(|first| first.get(index)).and_then(|known| known.name.clone());
        Known { name, ..merged }
    };
    (0..n_fields).map(column).collect()
}

/// The type that holds values of all of them, if there is one without looking at Arrow's.
fn merge(all: impl Iterator<Item = Known>) -> Known {
    let mut merged: Option<Option<ColumnType>> = None;
    for known in all {
        merged = Some(match merged {
            None => known.column_type,
            Some(so_far) => so_far.zip(known.column_type).and_then(|(a, b)| wider(a, b)),
        });
    }
    Known { name: None, column_type: merged.flatten() }
}

fn wider(a: ColumnType, b: ColumnType) -> Option<ColumnType> {
    use ColumnType::{Binary, Char, Datetime, Timestamp, Varbinary, Varchar};
    Some(match (a, b) {
        (a, b) if a == b => a,
        (Char(a) | Varchar(a), Char(b) | Varchar(b)) => Varchar(a.max(b)),
        (Binary(a) | Varbinary(a), Binary(b) | Varbinary(b)) => Varbinary(a.max(b)),
        (Datetime(a), Datetime(b)) => Datetime(a.max(b)),
        (Timestamp(a), Timestamp(b)) => Timestamp(a.max(b)),
        _ => return None,
    })
}
