//! From a query's tree to a logical plan with MySQL's meaning.

mod context;
mod lower_case;
mod output;
mod refused;
mod rules;

use std::sync::{Arc, OnceLock};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as PlanResult, TableReference};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, TableSource};
use datafusion::prelude::SessionConfig;
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use sqlparser::ast;
use tidb::{ColumnInfo, ColumnType};
use types::{Error, Result};

use crate::class::Class;
use crate::clause::located;
use crate::functions::{self, Library};
use crate::lower::{Lowering, convert, lower_plan, truth};
use crate::meaning::Rewrite;
use crate::{Settings, aggregates, from_datafusion};

pub(crate) use context::{Context, parser_options};
pub(crate) use output::{Declared, Known, OutputNames, column_types, fraction_digits, known};
pub use refused::{is_refused, refused_fields};
pub(crate) use rules::{CrossJoins, PushDown};

/// Finds what a name in a query stands for. Implemented by whoever runs the query.
pub trait Resolver: Send + Sync {
    /// The source of a table or view; names come in lower case. A view may answer with a source that has a
    /// logical plan (its query inlined).
    ///
    /// # Errors
    /// MySQL 1146 if there is no such table, 1049 if there is no such database.
    fn table(&self, database: &str, name: &str) -> Result<Arc<dyn TableSource>>;

    /// The declared columns of a table or view, in the order of its source's schema, if they are known:
    /// they give columns of an answer their exact types.
    fn columns(&self, database: &str, name: &str) -> Option<Vec<ColumnInfo>> {
        let _ = (database, name);
        None
    }

    /// The names of columns that a table has and that cannot be read; its source has fields for them after the
    /// others ([`refused_fields`]).
    fn refused(&self, database: &str, name: &str) -> Vec<String> {
        let _ = (database, name);
        Vec::new()
    }
}

/// A column of a query's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// The name to show: the alias, or the column or expression as written.
    pub name: String,
    /// The type to show.
    pub column_type: ColumnType,
    /// Whether it is never NULL.
    pub not_null: bool,
}

/// A query, ready for the batch engine.
#[derive(Clone, Debug)]
pub struct PlannedQuery {
    /// The analysed, not yet optimised plan. Its field names are internal; take names from `columns`.
    pub plan: LogicalPlan,
    /// The columns of the answer, one a field of the plan.
    pub columns: Vec<OutputColumn>,
}

/// The configuration of every session of the batch engine.
fn config() -> SessionConfig {
    let mut config = SessionConfig::new().with_target_partitions(1).with_information_schema(false);
    let options = config.options_mut();
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.enable_ident_normalization = false;
    options.sql_parser.default_null_ordering = "nulls_min".to_owned();
    options.optimizer.filter_null_join_keys = true;
    // It keeps extremes of its own, found by the names of the aggregates.
    options.optimizer.enable_topk_aggregation = false;
    // Rules find out that a column is never NULL, and the check takes that for a difference.
    options.execution.skip_physical_aggregate_schema_check = true;
    config
}

/// A session of the batch engine with our functions and aggregates, in which planned queries run.
///
/// Registering some hundred functions takes longer than planning a query, so it is done once.
#[must_use]
pub fn session_state() -> SessionState {
    static STATE: OnceLock<SessionState> = OnceLock::new();
    let build = || {
        SessionStateBuilder::new()
            .with_config(config())
            .with_default_features()
            .with_optimizer_rules(rules::of_queries())
            .with_physical_optimizer_rules(rules::of_physical_plans())
            .with_aggregate_functions(aggregates::all())
            .build()
    };
    STATE.get_or_init(build).clone()
}

/// Plans a query.
///
/// # Errors
/// With the MySQL code of what is wrong with the query.
pub fn plan_query(query: &ast::Query, resolver: &dyn Resolver, settings: &Settings) -> Result<PlannedQuery> {
    crate::stack::with_room(|| {
        let library = Library::new(settings)?;
        let written = query;
        let mut query = query.clone();
        let columns_of = |database: &str, name: &str| table_columns(resolver, database, name);
        let mut rewrite = Rewrite::new(settings, false).with_columns(&columns_of);
        let planned = rewrite.outermost(&mut query).and_then(|names| {
            let (plan, declared) = logical_plan(query, resolver, &library)?;
            Ok((plan, declared, names))
        });
        let (plan, declared, names) = planned.map_err(|error| located(error, written))?;
        let state = session_state();
        let plan = analyse(plan, state.analyzer(), state.config_options())?;
        let columns = output::output_columns(&plan, &names, &declared)?;
        Ok(PlannedQuery { plan, columns })
    })
}

/// The names of a table's columns, in lower case.
pub(crate) fn table_columns(resolver: &dyn Resolver, database: &str, name: &str) -> Result<Vec<String>> {
    if let Some(columns) = resolver.columns(database, name) {
        let columns = columns.into_iter().map(|column| column.name);
        let refused = resolver.refused(database, name);
        return Ok(columns.chain(refused).map(|column| column.to_lowercase()).collect());
    }
    let source = resolver.table(database, name)?;
    Ok(source.schema().fields().iter().map(|field| field.name().to_lowercase()).collect())
}

/// From a rewritten query to a lowered plan, not yet analysed.
pub(crate) fn logical_plan(
    query: ast::Query,
    resolver: &dyn Resolver,
    library: &Library,
) -> Result<(LogicalPlan, Declared)> {
    let context = Context::new(Some(resolver), library);
    let planner = SqlToRel::new_with_options(&context, parser_options());
    let statement = ast::Statement::Query(Box::new(query));
    let plan = planner.sql_statement_to_plan(statement).map_err(from_datafusion)?;
    drop(planner);
    refused::refuse_unreadable(&plan)?;
    let declared = context.into_declared();
    library.pass_names(&plan).map_err(from_datafusion)?;
    let plan = lower_plan(plan, library, &declared)
        .and_then(|plan| no_conditions(plan, library))
        .map_err(from_datafusion)?;
    Ok((plan, declared))
}

/// Applies the engine's analysis (what is left to coerce, checks).
pub(crate) fn analyse(
    plan: LogicalPlan,
    analyzer: &datafusion::optimizer::Analyzer,
    options: &ConfigOptions,
) -> Result<LogicalPlan> {
    analyzer.execute_and_check(plan, options, |_, _| {}).map_err(from_datafusion)
}

/// Answers have no booleans and no columns of type NULL.
fn no_conditions(plan: LogicalPlan, library: &Library) -> PlanResult<LogicalPlan> {
    let schema = Arc::clone(plan.schema());
    let is_plain = |class: Option<Class>| !matches!(class, Some(Class::Bool | Class::Null));
    if schema.fields().iter().all(|field| is_plain(Class::of(field.data_type()))) {
        return Ok(plan);
    }
    let columns = schema.iter().map(|(qualifier, field)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        if is_plain(Class::of(field.data_type())) {
            return column;
        }
        let target = arrow::datatypes::DataType::Int64;
        convert(column, field.data_type(), &target, library).alias_qualified(qualifier.cloned(), field.name())
    });
    Ok(LogicalPlan::Projection(Projection::try_new(columns.collect(), Arc::new(plan))?))
}

/// Plans scalar expressions over the columns of one table (for DML: values, conditions), each of them
/// with MySQL's meaning; a condition is made a boolean if `as_condition` says so. Columns in the result
/// are qualified by the given name and named as the source names them.
///
/// # Errors
/// With the MySQL code of what is wrong.
pub fn plan_expressions(
    expressions: &[ast::Expr],
    table: Option<(&str, Arc<dyn TableSource>)>,
    as_condition: bool,
    settings: &Settings,
) -> Result<Vec<Expr>> {
    crate::stack::with_room(|| {
        let library = Library::new(settings)?;
        let columns = TableColumns::new(table).map_err(from_datafusion)?;
        let plan_one = |expression: &ast::Expr| {
            let mut expression = expression.clone();
            let mut rewrite = Rewrite::new(settings, false);
            if as_condition {
                rewrite.predicate(&mut expression)?;
            } else {
                rewrite.value(&mut expression)?;
            }
            let planned = columns.plan(expression, &library, as_condition).map_err(from_datafusion);
            planned.map_err(|error| match error.mysql_code() {
                Some(1054) => {
                    let clause = if as_condition { "where clause" } else { "field list" };
                    Error::mysql(1054, format!("{} in '{clause}'", error.message()))
                }
                _ => error,
            })
        };
        expressions.iter().map(plan_one).collect()
    })
}

/// The columns that expressions without a query may name.
struct TableColumns {
    shown: Option<String>,
    names: Vec<String>,
    schema: DFSchema,
}

impl TableColumns {
    fn new(table: Option<(&str, Arc<dyn TableSource>)>) -> PlanResult<TableColumns> {
        let Some((shown, source)) = table else {
            return Ok(TableColumns { shown: None, names: Vec::new(), schema: DFSchema::empty() });
        };
        let names: Vec<String> = source.schema().fields().iter().map(|field| field.name().clone()).collect();
        let fields: Vec<_> = source
            .schema()
            .fields()
            .iter()
            .map(|field| Arc::new(field.as_ref().clone().with_name(field.name().to_lowercase())))
            .collect();
        let qualifier = TableReference::bare(shown.to_lowercase());
        let schema = DFSchema::try_from_qualified_schema(qualifier, &arrow::datatypes::Schema::new(fields))?;
        Ok(TableColumns { shown: Some(shown.to_owned()), names, schema })
    }

    fn plan(&self, expression: ast::Expr, library: &Library, as_condition: bool) -> PlanResult<Expr> {
        let context = Context::new(None, library);
        let planner = SqlToRel::new_with_options(&context, parser_options());
        let expr = planner.sql_to_expr(expression, &self.schema, &mut PlannerContext::new())?;
        let lowering = Lowering::new(library, &self.schema);
        let expr = expr.transform_up(|expr| lowering.lower(expr))?.data;
        let data_type = datafusion::logical_expr::ExprSchemable::get_type(&expr, &self.schema)?;
        let expr = match as_condition {
            true => truth(expr, &data_type, library),
            false if data_type == arrow::datatypes::DataType::Boolean => {
                convert(expr, &data_type, &arrow::datatypes::DataType::Int64, library)
            }
            // What is stored is stored with all digits that its column has room for.
            false => functions::carried(&expr).map(|(carried, _)| carried.clone()).unwrap_or(expr),
        };
        let renamed = expr.transform_up(|expr| match expr {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(self.as_source(&column)))),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(renamed.data)
    }

    fn as_source(&self, column: &Column) -> Column {
        let name = self.names.iter().find(|name| name.to_lowercase() == column.name);
        let relation = self.shown.as_ref().map(|shown| TableReference::bare(shown.as_str()));
        Column::new(relation, name.cloned().unwrap_or_else(|| column.name.clone()))
    }
}
