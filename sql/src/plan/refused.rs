//! Columns that a table has and that cannot be read: they are there to be refused by name.
//!
//! They stand in a table's schema after the others, so that a name and `*` find them, and a plan that refers to
//! one is refused before anything is made of it.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, Result as PlanResult};
use datafusion::logical_expr::LogicalPlan;
use types::{Error, Result};

use crate::catalog::{Refusal, TableDefinition};
use crate::error::to_datafusion;
use crate::from_datafusion;

/// The key of a field's metadata under which the refusal stands.
const REFUSAL: &str = "tidemill.refusal";
/// The key for its number.
const CODE: &str = "tidemill.refusal.code";

/// Fields for the columns of a table that cannot be read; they follow those of its visible columns.
#[must_use]
pub fn refused_fields(definition: &TableDefinition) -> Vec<Field> {
    let field = |(name, refusal): &(String, Refusal)| {
        let metadata =
            [(REFUSAL.to_owned(), refusal.text.clone()), (CODE.to_owned(), refusal.code.to_string())];
        Field::new(name, DataType::Utf8, true).with_metadata(HashMap::from(metadata))
    };
    definition.refused_columns().iter().map(field).collect()
}

/// Whether a field is one of those.
#[must_use]
pub fn is_refused(field: &Field) -> bool {
    field.metadata().contains_key(REFUSAL)
}

/// Refuses a plan that refers to such a column.
pub(super) fn refuse_unreadable(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let datafusion::logical_expr::Expr::Column(column) = part {
                    check(node, column)?;
                }
                if let datafusion::logical_expr::Expr::OuterReferenceColumn(field, _) = part {
                    check_field(field)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .map(drop)
    .map_err(from_datafusion)
}

fn check(node: &LogicalPlan, column: &Column) -> PlanResult<()> {
    for input in node.inputs() {
        if let Ok(field) = input.schema().field_from_column(column) {
            check_field(field)?;
        }
    }
    Ok(())
}

fn check_field(field: &Field) -> PlanResult<()> {
    let Some(text) = field.metadata().get(REFUSAL) else { return Ok(()) };
    let code = field.metadata().get(CODE).and_then(|code| code.parse().ok()).unwrap_or(1235);
    Err(to_datafusion(Error::mysql(code, text.clone())))
}
