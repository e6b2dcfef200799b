//! Views that are read by their queries, inlined below the query that names them.
//!
//! A view's plan has its own settings and is given MySQL's meaning once, under them. So the query that names
//! the view is planned with a stand-in of the same columns, which its own plan replaces afterwards.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use sql::{PlannedQuery, Resolver, Settings};
use sqlparser::ast;
use types::Result;

/// Stands for a view until its plan takes its place.
#[derive(Debug)]
pub(crate) struct LiveView {
    plan: LogicalPlan,
    schema: SchemaRef,
}

impl LiveView {
    pub(crate) fn new(plan: LogicalPlan) -> LiveView {
        let schema = Arc::clone(plan.schema().inner());
        LiveView { plan, schema }
    }
}

#[async_trait]
impl TableProvider for LiveView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        Err(DataFusionError::Internal("a view was not replaced by its plan".to_owned()))
    }
}

/// Plans a query whose views may be stand-ins, and puts their plans in their places.
pub(crate) fn plan_query(
    query: &ast::Query,
    names: &dyn Resolver,
    settings: &Settings,
) -> Result<PlannedQuery> {
    let PlannedQuery { plan, columns } = sql::plan_query(query, names, settings)?;
    let replaced = plan.transform_down_with_subqueries(|node| match &node {
        LogicalPlan::TableScan(scan) => match inlined(scan)? {
            // What is put in has no stand-ins: it was planned here itself.
            Some(plan) => {
                Ok(Transformed::new(plan, true, datafusion::common::tree_node::TreeNodeRecursion::Jump))
            }
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    });
    Ok(PlannedQuery { plan: replaced.map_err(sql::from_datafusion)?.data, columns })
}

fn inlined(scan: &TableScan) -> datafusion::common::Result<Option<LogicalPlan>> {
    let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
    let Some(live) = provider.downcast_ref::<LiveView>() else { return Ok(None) };
    let mut plan = LogicalPlanBuilder::from(live.plan.clone());
    if let Some(projection) = &scan.projection {
        let schema = Arc::clone(live.plan.schema());
        let column = |at: &usize| Expr::Column(schema.qualified_field(*at).into());
        plan = plan.project(projection.iter().map(column).collect::<Vec<_>>())?;
    }
    for filter in &scan.filters {
        plan = plan.filter(filter.clone())?;
    }
    plan.alias(scan.table_name.clone())?.build().map(Some)
}
