//! INSERT … ON DUPLICATE KEY UPDATE: the assignments of a row whose key is there already.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    Insert, OnInsert, VisitMut, VisitorMut,
};
use store::{Key, Value};
use tidb::{RowDecoder, RowEncoder, TableInfo};
use types::{Error, Result};

use super::buffer::{Buffer, duplicate_entry};
use super::evaluate::{Evaluator, has_subquery, is_default};
use super::insert::last_part;
use super::unsupported;

/// What the columns of the row that was to be inserted are called beside the old row's.
const NEW_PREFIX: &str = "__values_";

/// The assignments of ON DUPLICATE KEY UPDATE.
pub(super) struct OnDuplicateUpdate {
    assignments: Vec<(usize, Expr)>,
    name: String,
}

impl OnDuplicateUpdate {
    /// The clause of a statement, if it has one.
    pub(super) fn of(insert: &Insert, info: &TableInfo) -> Result<Option<OnDuplicateUpdate>> {
        let assignments = match &insert.on {
            None => return Ok(None),
            Some(OnInsert::DuplicateKeyUpdate(assignments)) => assignments,
            Some(_) => return Err(unsupported("INSERT ... ON CONFLICT")),
        };
        let alias = match &insert.insert_alias {
            Some(alias) if alias.col_aliases.is_some() => {
                return Err(unsupported("column aliases of new rows"));
            }
            Some(alias) => Some(last_part(&alias.row_alias)),
            None => None,
        };
        let resolve = |assignment: &Assignment| {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err(unsupported("assignment to a row"));
            };
            let name = last_part(name);
            let at = info.column_index(&name);
            let at =
                at.ok_or_else(|| Error::mysql(1054, format!("Unknown column '{name}' in 'field list'")))?;
            if has_subquery(&assignment.value) {
                return Err(unsupported("a subquery in ON DUPLICATE KEY UPDATE"));
            }
            let mut value = assignment.value.clone();
            let mut names = NewNames { info, alias: alias.as_deref() };
            match value.visit(&mut names) {
                ControlFlow::Continue(()) => Ok((at, value)),
                ControlFlow::Break(error) => Err(error),
            }
        };
        let assignments = assignments.iter().map(resolve).collect::<Result<_>>()?;
        Ok(Some(OnDuplicateUpdate { assignments, name: info.name.clone() }))
    }

    /// Updates the row that is there; answers the affected rows: 2, or 0 if nothing changed.
    pub(super) async fn apply(
        &self,
        evaluator: &Evaluator<'_>,
        encoder: &RowEncoder,
        old: (&Key, &Value),
        new: &RecordBatch,
        buffer: &mut Buffer<'_>,
    ) -> Result<u64> {
        let info = encoder.table();
        let (old_key, old_value) = old;
        let columns: Vec<usize> = (0..info.columns.len()).collect();
        let mut decoder = RowDecoder::new(info, &columns)?;
        decoder.append(old_key, old_value)?;
        let row = self.assigned(evaluator, info, decoder.finish()?, new)?;
        let (key, value) = encoder.encode(&row, 0, None)?;
        let (key, value) = (Key::from(key), Value::from(value));
        if key == *old_key && value == *old_value {
            return Ok(0);
        }
        if key != *old_key {
            buffer.load(std::slice::from_ref(&key)).await?;
            if buffer.get(&key).is_some() {
                return Err(duplicate_entry(info, &row, 0, evaluator.zone));
            }
            buffer.delete(old_key.clone());
        }
        buffer.put(key, value);
        Ok(2)
    }

    /// The old row after the assignments, from left to right.
    fn assigned(
        &self,
        evaluator: &Evaluator<'_>,
        info: &TableInfo,
        old: RecordBatch,
        new: &RecordBatch,
    ) -> Result<RecordBatch> {
        let schema = info.arrow_schema();
        let mut columns = old.columns().to_vec();
        let new_field = |field: &Arc<Field>| {
            Arc::new(field.as_ref().clone().with_name(format!("{NEW_PREFIX}{}", field.name())))
        };
        let both: Vec<Arc<Field>> =
            schema.fields().iter().cloned().chain(schema.fields().iter().map(new_field)).collect();
        let both = Arc::new(Schema::new(both));
        for (at, value) in &self.assignments {
            let column = &info.columns[*at];
            let array = if is_default(value) {
                evaluator.default(column)?
            } else {
                let arrays = columns.iter().chain(new.columns()).cloned().collect();
                let rows = RecordBatch::try_new(Arc::clone(&both), arrays)?;
                evaluator.over_rows(value, &self.name, &rows)?
            };
            columns[*at] = evaluator.convert(column, &array)?;
        }
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}

/// Puts the names of the new row's columns in place of `VALUES(column)` and `alias.column`.
struct NewNames<'a> {
    info: &'a TableInfo,
    alias: Option<&'a str>,
}

impl VisitorMut for NewNames<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        let named = match &*expression {
            Expr::Function(call) => values_argument(call),
            Expr::CompoundIdentifier(parts) => match (parts.as_slice(), self.alias) {
                ([table, column], Some(alias)) if table.value.eq_ignore_ascii_case(alias) => {
                    Some(column.value.clone())
                }
                _ => None,
            },
            _ => None,
        };
        let Some(name) = named else { return ControlFlow::Continue(()) };
        let Some(at) = self.info.column_index(&name) else {
            let error = Error::mysql(1054, format!("Unknown column '{name}' in 'field list'"));
            return ControlFlow::Break(error);
        };
        let name = format!("{NEW_PREFIX}{}", self.info.columns[at].name);
        *expression = Expr::Identifier(Ident::with_quote('`', name));
        ControlFlow::Continue(())
    }
}

/// The column of `VALUES(column)`.
fn values_argument(call: &Function) -> Option<String> {
    let name = call.name.0.last()?.as_ident()?;
    if !name.value.eq_ignore_ascii_case("values") {
        return None;
    }
    let FunctionArguments::List(list) = &call.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(column)))] => Some(column.value.clone()),
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(parts)))] => {
            parts.last().map(|part| part.value.clone())
        }
        _ => None,
    }
}
