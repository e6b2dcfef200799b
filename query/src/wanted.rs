//! What a query wants of a view: conditions on the view's columns, and what they mean for the tables below.
//!
//! The conditions are the outer query's own, as far as they compare a column with literals in the order of
//! keys. They are evaluated again above the scan; here they say what need not be read and computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{and, or};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use operators::Plan;
use sql::catalog::TableDefinition;
use store::KeyRange;
use tidb::TableInfo;
use types::{Delta, Error, Result, TableId};

use crate::pushdown;

/// A condition on one column, which is not true for NULL and tells no two values of one sort key apart.
struct Condition {
    column: usize,
    expression: Expr,
}

/// Conditions that every row fulfils which the query looks at.
pub(crate) struct Wanted {
    conditions: Vec<Condition>,
}

impl Wanted {
    /// What the filters of a scan say about single columns.
    pub(crate) fn by(info: &TableInfo, filters: &[Expr]) -> Wanted {
        let conjuncts = filters.iter().flat_map(pushdown::conjuncts);
        let condition = |expression: &Expr| {
            let column = pushdown::column_of(info, expression)?;
            Some(Condition { column, expression: expression.clone() })
        };
        Wanted { conditions: conjuncts.filter_map(condition).collect() }
    }

    /// Whether the query may look at any row.
    pub(crate) fn is_everything(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Which rows of a view are wanted.
    pub(crate) fn of_view(&self, info: &TableInfo, state: &dyn Session) -> Result<Mask> {
        let test = |condition: &Condition| vec![condition.expression.clone()];
        Mask::new(info, self.conditions.iter().map(test).collect(), state)
    }

    /// What is wanted of a view's base tables; a table that is missing is wanted whole.
    pub(crate) fn of_tables<'a>(
        &self,
        view: &TableInfo,
        plan: &Plan,
        tables: impl Iterator<Item = &'a TableDefinition>,
        state: &dyn Session,
    ) -> Result<BTreeMap<TableId, WantedRows>> {
        let origins: Vec<_> =
            self.conditions.iter().map(|condition| plan.origins(condition.column)).collect();
        let mut wanted = BTreeMap::new();
        for table in tables {
            let (id, info) = (table.id(), &table.info);
            let mut tests = Vec::new();
            for (condition, origins) in self.conditions.iter().zip(&origins) {
                let Some(columns) = origins.get(&id) else { continue };
                let column_type = &view.columns[condition.column].column_type;
                let columns = columns.iter().map(|number| table.column_position(*number));
                let Some(columns) = columns.collect::<Option<Vec<usize>>>() else { continue };
                // A column that was widened on the way is compared by other rules.
                if columns.iter().all(|column| info.columns[*column].column_type == *column_type) {
                    let of = |column: &usize| renamed(&condition.expression, &info.columns[*column].name);
                    tests.push(columns.iter().map(of).collect::<Result<Vec<Expr>>>()?);
                }
            }
            if tests.is_empty() {
                continue;
            }
            let single = tests.iter().filter(|any| any.len() == 1).flatten().cloned();
            let ranges = pushdown::ranges(info, table.physical_ids(), &single.collect::<Vec<Expr>>())?;
            wanted.insert(id, WantedRows { ranges, mask: Mask::new(info, tests, state)? });
        }
        Ok(wanted)
    }
}

/// A condition on a column, on a column of another name instead.
fn renamed(expression: &Expr, name: &str) -> Result<Expr> {
    let renamed = expression.clone().transform(|expression| {
        Ok(match expression {
            Expr::Column(_) => Transformed::yes(Expr::Column(Column::new_unqualified(name))),
            other => Transformed::no(other),
        })
    });
    Ok(renamed.map_err(sql::from_datafusion)?.data)
}

/// The rows of a table that can matter.
pub(crate) struct WantedRows {
    /// Where their keys are.
    pub(crate) ranges: Vec<KeyRange>,
    /// Which they are.
    pub(crate) mask: Mask,
}

/// Tells wanted rows from others.
pub(crate) struct Mask {
    /// All must hold; each holds if one of its alternatives does.
    tests: Vec<Vec<Arc<dyn PhysicalExpr>>>,
}

impl Mask {
    fn new(info: &TableInfo, tests: Vec<Vec<Expr>>, state: &dyn Session) -> Result<Mask> {
        let schema = DFSchema::try_from(info.arrow_schema()).map_err(sql::from_datafusion)?;
        let physical =
            |expression| state.create_physical_expr(expression, &schema).map_err(sql::from_datafusion);
        let tests = tests.into_iter().map(|any| any.into_iter().map(physical).collect());
        Ok(Mask { tests: tests.collect::<Result<_>>()? })
    }

    /// Whether every row is wanted.
    pub(crate) fn is_everything(&self) -> bool {
        self.tests.is_empty()
    }

    /// The wanted rows of a delta, in the table's columns.
    pub(crate) fn apply(&self, delta: &Delta) -> Result<Delta> {
        if self.is_everything() { Ok(delta.clone()) } else { delta.filter(&self.holds(delta.batch())?) }
    }

    /// Which rows are wanted.
    pub(crate) fn holds(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let mut wanted = BooleanArray::from(vec![true; batch.num_rows()]);
        for alternatives in &self.tests {
            let mut any = BooleanArray::from(vec![false; batch.num_rows()]);
            for test in alternatives {
                let value = test.evaluate(batch).map_err(sql::from_datafusion)?;
                let value = value.into_array(batch.num_rows()).map_err(sql::from_datafusion)?;
                let value = value.as_any().downcast_ref::<BooleanArray>();
                let value = value.ok_or_else(|| Error::corrupt("a condition is not boolean"))?;
                any = or(&any, &known(value))?;
            }
            wanted = and(&wanted, &any)?;
        }
        Ok(wanted)
    }
}

/// The values, with false in place of NULL.
fn known(values: &BooleanArray) -> BooleanArray {
    values.iter().map(|value| Some(value == Some(true))).collect()
}
