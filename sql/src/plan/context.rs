//! What the engine's planner asks: tables, functions, and how to plan comparisons.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, Result as PlanResult, TableReference};
use datafusion::datasource::{ViewTable, provider_as_source, source_as_provider};
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlanBuilder, ScalarUDF, TableSource, WindowUDF,
};
use datafusion::sql::planner::{NullOrdering, ParserOptions};
use sqlparser::ast::BinaryOperator;
use types::Error;

use super::Resolver;
use super::lower_case::LowerCase;
use super::output::Declared;
use crate::aggregates;
use crate::error::to_datafusion;
use crate::functions::{Library, call_udf};

/// How the engine's planner reads a tree: names are in lower case already.
pub(crate) fn parser_options() -> ParserOptions {
    ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_enable_ident_normalization(false)
        .with_map_string_types_to_utf8view(false)
        .with_default_null_ordering(NullOrdering::NullsMin)
}

/// Answers the planner.
pub(crate) struct Context<'a> {
    resolver: Option<&'a dyn Resolver>,
    library: &'a Library,
    options: ConfigOptions,
    planners: Vec<Arc<dyn ExprPlanner>>,
    windows: BTreeMap<String, Arc<WindowUDF>>,
    declared: Mutex<Declared>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(resolver: Option<&'a dyn Resolver>, library: &'a Library) -> Context<'a> {
        let windows = datafusion::functions_window::all_default_window_functions();
        Context {
            resolver,
            library,
            options: ConfigOptions::default(),
            planners: vec![Arc::new(Comparisons { library: library.clone() })],
            windows: windows.into_iter().map(|window| (window.name().to_owned(), window)).collect(),
            declared: Mutex::default(),
        }
    }

    /// The declared columns of the tables that were asked for.
    pub(crate) fn into_declared(self) -> Declared {
        self.declared.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContextProvider for Context<'_> {
    fn get_table_source(&self, name: TableReference) -> PlanResult<Arc<dyn TableSource>> {
        let resolver = self
            .resolver
            .ok_or_else(|| to_datafusion(crate::parse::unsupported("a subquery in this place")))?;
        let (Some(database), table) = (name.schema(), name.table()) else {
            let text = format!("table '{}' doesn't exist", name.table());
            return Err(to_datafusion(Error::mysql(1146, text)));
        };
        let source = resolver.table(database, table).map_err(to_datafusion)?;
        if let Some(columns) = resolver.columns(database, table) {
            let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
            declared.insert((database.to_owned(), table.to_owned()), columns);
        }
        in_lower_case(source)
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.library.find(name)
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        aggregates::find(name)
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.windows.get(name).cloned()
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        aggregates::all().iter().map(|aggregate| aggregate.name().to_owned()).collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.windows.keys().cloned().collect()
    }
}

/// Columns are named in lower case in plans; a source that names them otherwise is renamed.
fn in_lower_case(source: Arc<dyn TableSource>) -> PlanResult<Arc<dyn TableSource>> {
    let schema = source.schema();
    let is_lower = |name: &str| !name.chars().any(char::is_uppercase);
    if schema.fields().iter().all(|field| is_lower(field.name())) {
        return Ok(source);
    }
    if let Some(plan) = source.get_logical_plan() {
        let columns = plan.schema().iter().map(|(qualifier, field)| {
            Expr::Column((qualifier, field).into()).alias(field.name().to_lowercase())
        });
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::from(plan.into_owned()).project(columns)?.build()?;
        return Ok(provider_as_source(Arc::new(ViewTable::new(plan, None))));
    }
    Ok(provider_as_source(Arc::new(LowerCase::new(source_as_provider(&source)?))))
}

/// Plans comparisons as calls, to be lowered once types are known: the engine would refuse some pairs
/// and compare others as no MySQL does.
#[derive(Debug)]
struct Comparisons {
    library: Library,
}

impl ExprPlanner for Comparisons {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        let name = match expr.op {
            BinaryOperator::Eq => "$eq",
            BinaryOperator::NotEq => "$ne",
            BinaryOperator::Lt => "$lt",
            BinaryOperator::LtEq => "$le",
            BinaryOperator::Gt => "$gt",
            BinaryOperator::GtEq => "$ge",
            BinaryOperator::Spaceship => "$null_safe_eq",
            _ => return Ok(PlannerResult::Original(expr)),
        };
        match self.library.find(name) {
            Some(function) => Ok(PlannerResult::Planned(call_udf(function, vec![expr.left, expr.right]))),
            None => Ok(PlannerResult::Original(expr)),
        }
    }
}
