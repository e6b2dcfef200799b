//! Expressions of data changes: values, defaults, assignments.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray, new_null_array};
use arrow::compute::concat;
use arrow::datatypes::Schema;
use datafusion::common::DFSchema;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::SessionState;
use sqlparser::ast::{Expr, UnaryOperator, Value, Visit, Visitor};
use tidb::{Cast, ColumnInfo, ColumnType, Zone, convert_column};
use types::{Error, Result};

use crate::Engine;
use crate::names::Scope;

/// Evaluates the expressions of one statement.
pub(super) struct Evaluator<'a> {
    pub(super) scope: &'a Scope,
    engine: &'a Engine,
    /// Made when it is first needed: literals need none.
    state: OnceLock<SessionState>,
    pub(super) zone: Zone,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(engine: &'a Engine, scope: &'a Scope) -> Result<Evaluator<'a>> {
        let zone = scope.settings.time_zone.parse()?;
        Ok(Evaluator { scope, engine, state: OnceLock::new(), zone })
    }

    /// Converts values to a column's type, as MySQL does when it stores them.
    pub(super) fn convert(&self, column: &ColumnInfo, array: &ArrayRef) -> Result<ArrayRef> {
        convert_column(column, array, &Cast { zone: self.zone })
    }

    /// The default of a column, as one value of its type.
    pub(super) fn default(&self, column: &ColumnInfo) -> Result<ArrayRef> {
        match &column.default {
            None if column.not_null => {
                let text = format!("Field '{}' doesn't have a default value", column.name);
                Err(Error::mysql(1364, text))
            }
            None => Ok(new_null_array(&column.column_type.arrow_type(), 1)),
            Some(text) => {
                let expression = sql::parse_expression(text, &self.scope.settings)?;
                self.convert(column, &self.constant(&expression)?)
            }
        }
    }

    /// The value of an expression without columns.
    pub(super) fn constant(&self, expression: &Expr) -> Result<ArrayRef> {
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let one_row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
        let planned =
            sql::plan_expressions(std::slice::from_ref(expression), None, false, &self.scope.settings)?;
        self.evaluate_planned(planned, &DFSchema::empty(), &one_row)
    }

    /// The values of an expression over rows whose columns go by a table's name.
    pub(super) fn over_rows(&self, expression: &Expr, name: &str, rows: &RecordBatch) -> Result<ArrayRef> {
        let source = provider_as_source(Arc::new(EmptyTable::new(rows.schema())));
        let planned = sql::plan_expressions(
            std::slice::from_ref(expression),
            Some((name, source)),
            false,
            &self.scope.settings,
        )?;
        let schema =
            DFSchema::try_from_qualified_schema(name, &rows.schema()).map_err(sql::from_datafusion)?;
        self.evaluate_planned(planned, &schema, rows)
    }

    fn evaluate_planned(
        &self,
        mut planned: Vec<datafusion::logical_expr::Expr>,
        schema: &DFSchema,
        rows: &RecordBatch,
    ) -> Result<ArrayRef> {
        let (Some(expression), true) = (planned.pop(), planned.is_empty()) else {
            return Err(Error::corrupt("one expression was planned as another number"));
        };
        let state = self.state.get_or_init(|| self.engine.session());
        let physical = state.create_physical_expr(expression, schema).map_err(sql::from_datafusion)?;
        let value = physical.evaluate(rows).map_err(sql::from_datafusion)?;
        value.into_array(rows.num_rows()).map_err(sql::from_datafusion)
    }
}

/// Whether an expression has a subquery in it.
pub(super) fn has_subquery(expression: &Expr) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &sqlparser::ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    expression.visit(&mut Finder).is_break()
}

/// Whether an expression is the word DEFAULT.
pub(super) fn is_default(expression: &Expr) -> bool {
    matches!(expression, Expr::Identifier(ident)
        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// A column of literals as text, from which the column's type is read as MySQL reads it from the literals
/// themselves; `None` if one of them is not that simple.
pub(super) fn literal_texts<'e>(
    column: &ColumnInfo,
    expressions: impl Iterator<Item = &'e Expr>,
) -> Option<ArrayRef> {
    let texts: Option<Vec<Option<String>>> =
        expressions.map(|expression| literal_text(&column.column_type, expression)).collect();
    Some(Arc::new(StringArray::from(texts?)))
}

fn literal_text(column_type: &ColumnType, expression: &Expr) -> Option<Option<String>> {
    let number = |digits: &str, sign: &str| {
        // A number of another form than its text has one in a text column.
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        (plain || is_number(column_type)).then(|| Some(format!("{sign}{digits}")))
    };
    match expression {
        Expr::Value(value) => match &value.value {
            Value::Null => Some(None),
            Value::Number(digits, _) => number(digits, ""),
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Some(Some(text.clone())),
            Value::Boolean(value) => Some(Some(u8::from(*value).to_string())),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => number(digits, "-"),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

fn is_number(column_type: &ColumnType) -> bool {
    matches!(
        column_type,
        ColumnType::Int { .. } | ColumnType::Float | ColumnType::Double | ColumnType::Decimal { .. }
    )
}

/// Puts arrays of one type one after the other.
pub(super) fn concat_arrays(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    Ok(concat(&arrays)?)
}
