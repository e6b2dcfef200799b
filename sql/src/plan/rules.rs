//! The batch engine's optimizer rules, without what gives wrong answers.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

/// Takes aggregates for the engine's own: beside one DISTINCT it would add up sums, which have another type and,
/// if they are floating numbers, round twice. Aggregates here keep distinct values themselves.
const SINGLE_DISTINCT: &str = "single_distinct_aggregation_to_group_by";

/// The rules of queries.
pub(super) fn of_queries() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let rules = Optimizer::new().rules.into_iter().filter(|rule| rule.name() != SINGLE_DISTINCT);
    let own = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name() {
        "eliminate_cross_join" => Arc::new(CrossJoins::default()) as Arc<dyn OptimizerRule + Send + Sync>,
        "push_down_filter" => Arc::new(PushDown::default()),
        _ => rule,
    };
    rules.map(own).collect()
}

/// The rules of physical plans, without those that move filters there: below a hash join they take a column for
/// one of the same name and position on the other side, so a condition on the side that an outer join may
/// leave NULL is applied to the side that it keeps. Filters have been moved in the logical plan.
pub(super) fn of_physical_plans() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rules = PhysicalOptimizer::new().rules.into_iter();
    rules.filter(|rule| !rule.name().starts_with("FilterPushdown")).collect()
}

/// Makes inner joins of cross joins, unless there is a join by `<=>`: the engine's rule gives all joins
/// that stand together the same opinion of NULLs.
#[derive(Debug, Default)]
pub(crate) struct CrossJoins {
    rule: EliminateCrossJoin,
}

impl OptimizerRule for CrossJoins {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let mut is_null_safe = false;
        plan.apply_with_subqueries(|node| {
            is_null_safe |= matches!(
                node,
                LogicalPlan::Join(join) if join.null_equality == NullEquality::NullEqualsNull
            );
            Ok(if is_null_safe { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if is_null_safe { Ok(Transformed::no(plan)) } else { self.rule.rewrite(plan, config) }
    }
}

/// Moves filters down, but not below an aggregate without groups: that has its row whatever is filtered,
/// and the engine would move a condition that names no column.
#[derive(Debug, Default)]
pub(crate) struct PushDown {
    rule: PushDownFilter,
}

impl OptimizerRule for PushDown {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let mut below = &plan;
        while let LogicalPlan::Filter(filter) = below {
            below = &filter.input;
        }
        let is_filter = matches!(plan, LogicalPlan::Filter(_));
        match below {
            LogicalPlan::Aggregate(aggregate) if is_filter && aggregate.group_expr.is_empty() => {
                Ok(Transformed::no(plan))
            }
            _ => self.rule.rewrite(plan, config),
        }
    }
}
