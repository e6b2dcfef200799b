//! Joins: keys are projected, what is not an equality is part of the match.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, JoinType, NullEquality};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use operators::{Expression, JoinKind, NodeId, Operator};
use types::{Error, Result};

use super::compile::{Compiler, column_index};
use super::facts::{Facts, distinct_keys};
use crate::parse::unsupported;
use crate::{PhysicalExpression, from_datafusion};

/// One input of a join with its keys as columns.
struct Side {
    node: NodeId,
    keys: Vec<usize>,
    /// Columns of the logical plan; the node may have more.
    n_fields: usize,
}

/// Which input is the left one of the operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    AsWritten,
    Swapped,
}

impl Compiler {
    pub(super) fn join(&mut self, join: &Join) -> Result<NodeId> {
        let (kind, order) = match join.join_type {
            JoinType::Inner => (JoinKind::Inner, Order::AsWritten),
            JoinType::Left => (JoinKind::Left, Order::AsWritten),
            JoinType::Right => (JoinKind::Left, Order::Swapped),
            JoinType::LeftSemi => (JoinKind::LeftSemi, Order::AsWritten),
            JoinType::RightSemi => (JoinKind::LeftSemi, Order::Swapped),
            JoinType::LeftAnti if join.null_aware => (JoinKind::LeftAntiNullAware, Order::AsWritten),
            JoinType::LeftAnti => (JoinKind::LeftAnti, Order::AsWritten),
            JoinType::RightAnti if !join.null_aware => (JoinKind::LeftAnti, Order::Swapped),
            JoinType::LeftMark => return self.mark_join(join),
            JoinType::Full => return Err(unsupported("FULL JOIN in a view")),
            _ => return Err(unsupported("this kind of join in a view")),
        };
        if kind == JoinKind::LeftAntiNullAware && (join.on.len() != 1 || join.filter.is_some()) {
            return Err(unsupported("NOT IN with a correlated subquery in a view"));
        }
        let left = self.side(&join.left, join.on.iter().map(|(left, _)| left))?;
        let right = self.side(&join.right, join.on.iter().map(|(_, right)| right))?;
        self.join_sides(join, kind, order, left, right)
    }

    /// EXISTS or IN under OR: rows with a match are marked true, rows without one false.
    fn mark_join(&mut self, join: &Join) -> Result<NodeId> {
        if join.null_aware {
            return Err(unsupported("NOT IN under OR in a view"));
        }
        let mut halves = Vec::with_capacity(2);
        for (kind, mark) in [(JoinKind::LeftSemi, true), (JoinKind::LeftAnti, false)] {
            let left = self.side(&join.left, join.on.iter().map(|(left, _)| left))?;
            let right = self.side(&join.right, join.on.iter().map(|(_, right)| right))?;
            let n_fields = left.n_fields;
            let half = self.join_sides(join, kind, Order::AsWritten, left, right)?;
            halves.push(self.marked(half, n_fields, mark)?);
        }
        let types = self.types(halves[0]);
        let (first, second) = (self.facts(halves[0]), self.facts(halves[1]));
        // A row of the left side is in one half only; NULLs that a match rules out are in the other.
        let not_null = first.not_null.iter().zip(&second.not_null).map(|(one, other)| *one && *other);
        let facts = Facts { not_null: not_null.collect(), keys: first.keys.clone(), append_only: false };
        Ok(self.push(Operator::Union, halves, &types, facts))
    }

    fn marked(&mut self, input: NodeId, n_fields: usize, mark: bool) -> Result<NodeId> {
        let mut expressions: Vec<Arc<dyn Expression>> =
            (0..n_fields).map(|index| self.column(input, index)).collect();
        expressions.push(self.expression(&lit(mark), &DFSchema::empty())?);
        let mut types = self.types(input);
        types.truncate(n_fields);
        types.push(DataType::Boolean);
        let facts = self.facts(input);
        let not_null = facts.not_null.iter().copied().take(n_fields).chain([true]).collect();
        let sources: Vec<Option<usize>> = (0..n_fields).map(Some).chain([None]).collect();
        let facts = facts.projected(&sources, not_null);
        Ok(self.push(Operator::Project { expressions }, vec![input], &types, facts))
    }

    fn side<'e>(&mut self, plan: &LogicalPlan, keys: impl Iterator<Item = &'e Expr>) -> Result<Side> {
        let node = self.node(plan)?;
        let n_fields = plan.schema().fields().len();
        let width = self.width(node);
        let mut positions = Vec::new();
        let mut computed = Vec::new();
        for key in keys {
            match column_index(key, plan.schema()) {
                Some(index) => positions.push(index),
                None => {
                    positions.push(width + computed.len());
                    computed.push(key.clone());
                }
            }
        }
        if computed.is_empty() {
            return Ok(Side { node, keys: positions, n_fields });
        }
        let node = self.with_columns(node, plan.schema(), &computed)?;
        Ok(Side { node, keys: positions, n_fields })
    }

    /// A node with further, computed columns.
    fn with_columns(&mut self, input: NodeId, schema: &DFSchemaRef, exprs: &[Expr]) -> Result<NodeId> {
        let width = self.width(input);
        let mut expressions: Vec<Arc<dyn Expression>> =
            (0..width).map(|index| self.column(input, index)).collect();
        let mut types = self.types(input);
        let mut not_null = self.facts(input).not_null.clone();
        let known = not_null.clone();
        for expr in exprs {
            let expression = self.expression(expr, schema)?;
            types.push(expression.data_type());
            not_null.push(super::facts::never_null(expr, schema, &known));
            expressions.push(expression);
        }
        let sources: Vec<Option<usize>> = (0..width).map(Some).chain(exprs.iter().map(|_| None)).collect();
        let facts = self.facts(input).projected(&sources, not_null);
        Ok(self.push(Operator::Project { expressions }, vec![input], &types, facts))
    }

    fn join_sides(
        &mut self,
        join: &Join,
        kind: JoinKind,
        order: Order,
        written_left: Side,
        written_right: Side,
    ) -> Result<NodeId> {
        let residual = match &join.filter {
            None => None,
            Some(filter) => Some(self.residual(join, filter, order, &written_left, &written_right)?),
        };
        let (left, right) = match order {
            Order::AsWritten => (written_left, written_right),
            Order::Swapped => (written_right, written_left),
        };
        self.check_key_types(&left, &right)?;
        let null_equal = join.null_equality == NullEquality::NullEqualsNull;
        let facts = self.join_facts(kind, null_equal, &left, &right);
        let left_width = self.width(left.node);
        let mut types = self.types(left.node);
        let mut columns: Vec<usize> = (0..left.n_fields).collect();
        if matches!(kind, JoinKind::Inner | JoinKind::Left) {
            types.extend(self.types(right.node));
            let right_columns = left_width..left_width + right.n_fields;
            columns = match order {
                Order::AsWritten => columns.into_iter().chain(right_columns).collect(),
                Order::Swapped => right_columns.chain(columns).collect(),
            };
        }
        let operator =
            Operator::Join { kind, left_keys: left.keys, right_keys: right.keys, null_equal, residual };
        let width = types.len();
        let joined = self.push(operator, vec![left.node, right.node], &types, facts);
        let is_all = columns.len() == width && columns.iter().enumerate().all(|(at, column)| at == *column);
        if is_all || columns.is_empty() { Ok(joined) } else { Ok(self.select(joined, &columns)) }
    }

    fn check_key_types(&self, left: &Side, right: &Side) -> Result<()> {
        let (left_types, right_types) = (self.types(left.node), self.types(right.node));
        for (left_key, right_key) in left.keys.iter().zip(&right.keys) {
            if left_types[*left_key] != right_types[*right_key] {
                return Err(Error::corrupt("the keys of a join have different types"));
            }
        }
        Ok(())
    }

    /// The condition over the operator's joined row.
    fn residual(
        &self,
        join: &Join,
        filter: &Expr,
        order: Order,
        left: &Side,
        right: &Side,
    ) -> Result<Arc<dyn Expression>> {
        let schema = join.left.schema().join(join.right.schema()).map_err(from_datafusion)?;
        let physical = self.physical(filter, &schema)?;
        let (left_width, right_width) = (self.width(left.node), self.width(right.node));
        let place = |index: usize| match (order, index < left.n_fields) {
            (Order::AsWritten, true) => index,
            (Order::AsWritten, false) => left_width + index - left.n_fields,
            (Order::Swapped, true) => right_width + index,
            (Order::Swapped, false) => index - left.n_fields,
        };
        let moved = physical
            .transform_up(|expr: Arc<dyn PhysicalExpr>| {
                let column = expr.downcast_ref::<PhysicalColumn>().cloned();
                match column {
                    Some(column) => {
                        let moved = PhysicalColumn::new(column.name(), place(column.index()));
                        Ok(Transformed::yes(Arc::new(moved) as Arc<dyn PhysicalExpr>))
                    }
                    None => Ok(Transformed::no(expr)),
                }
            })
            .map_err(from_datafusion)?;
        Ok(Arc::new(PhysicalExpression::new(moved.data, DataType::Boolean)))
    }

    fn join_facts(&self, kind: JoinKind, null_equal: bool, left: &Side, right: &Side) -> Facts {
        let (left_facts, right_facts) = (self.facts(left.node), self.facts(right.node));
        let mut not_null = left_facts.not_null.clone();
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            // A semi join drops NULL keys, unless NULLs are equal.
            if kind == JoinKind::LeftSemi && !null_equal {
                for key in &left.keys {
                    not_null[*key] = true;
                }
            }
            return Facts { not_null, keys: left_facts.keys.clone(), append_only: false };
        }
        let width = not_null.len();
        let is_inner = kind == JoinKind::Inner;
        not_null.extend(right_facts.not_null.iter().map(|known| *known && is_inner));
        if is_inner && !null_equal {
            for (left_key, right_key) in left.keys.iter().zip(&right.keys) {
                not_null[*left_key] = true;
                not_null[width + right_key] = true;
            }
        }
        let covered = |keys: &[Vec<usize>], by: &[usize]| {
            keys.iter().any(|key| key.iter().all(|column| by.contains(column)))
        };
        let mut keys = Vec::new();
        // A row that meets at most one of the other side is identified as before.
        if covered(&right_facts.keys, &right.keys) {
            keys.extend(left_facts.keys.iter().cloned());
        }
        if is_inner && covered(&left_facts.keys, &left.keys) {
            keys.extend(right_facts.keys.iter().map(|key| key.iter().map(|column| width + column).collect()));
        }
        for left_key in &left_facts.keys {
            for right_key in &right_facts.keys {
                keys.push(
                    left_key.iter().copied().chain(right_key.iter().map(|column| width + column)).collect(),
                );
            }
        }
        Facts { not_null, keys: distinct_keys(keys.into_iter()), append_only: false }
    }
}
