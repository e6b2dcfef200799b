//! From a view's query to a plan of operators, or a refusal that names the construct.
//!
//! The query takes the same way as an ad-hoc one (rewrite, planner, lowering, analysis), then a list of
//! optimizer rules chosen for incremental work, and is compiled node by node. Views that it reads are
//! inlined under their stored settings, so what remains reads base tables only.

mod aggregate;
mod compile;
mod facts;
mod join;
mod names;
mod refuse;

pub use names::check_view_types;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use operators::{Operator, Plan};
use tidb::ColumnInfo;
use types::{Error, Result, TableId};

use crate::catalog::{BoundTable, Catalog, TableDefinition};
use crate::class;
use crate::clause::located;
use crate::functions::Library;
use crate::meaning::Rewrite;
use crate::plan::{CrossJoins, OutputNames, PushDown, column_types, logical_plan, table_columns};
use crate::{Settings, from_datafusion, session_state};

/// Everything that CREATE MATERIALIZED VIEW derives from a query.
#[derive(Clone, Debug)]
pub struct ViewPlan {
    /// The dataflow.
    pub plan: Plan,
    /// The columns of the output, ids 1, 2, ... in order.
    pub columns: Vec<ColumnInfo>,
    /// Output columns (positions) that identify a row, are never NULL and may be a key; `None` for hidden handles.
    pub key: Option<Vec<usize>>,
    /// Base tables the plan reads, through views too, without repetition.
    pub base_tables: Vec<TableId>,
    /// Tables and views that the query names.
    pub depends_on: Vec<TableId>,
    /// The query's text with every name qualified.
    pub query: String,
    /// A hash of the plan: state of one fingerprint is never used under another.
    pub fingerprint: String,
    /// Tables of TiDB that the query names, and what its names stand for.
    pub bound: Vec<BoundTable>,
}

impl ViewPlan {
    /// The columns that the plan reads of each base table, by the numbers that plans have for them.
    #[must_use]
    pub fn used_columns(&self) -> BTreeMap<TableId, BTreeSet<usize>> {
        used_columns(&self.plan)
    }
}

/// The columns that a plan reads of each base table, by their numbers.
#[must_use]
pub fn used_columns(plan: &Plan) -> BTreeMap<TableId, BTreeSet<usize>> {
    let mut used: BTreeMap<TableId, BTreeSet<usize>> = BTreeMap::new();
    for node in &plan.nodes {
        if let Operator::Source { table, columns } = &node.operator {
            used.entry(*table).or_default().extend(columns);
        }
    }
    used
}

/// Plans a view. `columns` is the column list of CREATE (may be empty); `text` is the query as written.
///
/// # Errors
/// MySQL 1235 with the name of the construct that views do not support, or what is wrong with the query.
pub fn plan_view(catalog: &Catalog, text: &str, columns: &[String], settings: &Settings) -> Result<ViewPlan> {
    crate::stack::with_room(|| plan_view_here(catalog, text, columns, settings))
}

/// Plans a view of the catalog again, from its stored text under its stored settings: the plan that its state
/// was built by.
///
/// # Errors
/// As [`plan_view`]; MySQL 1347 if it is no view; `Invalid` if it would be another plan than that.
pub fn plan_stored_view(catalog: &Catalog, definition: &TableDefinition) -> Result<ViewPlan> {
    let view = definition.view.as_ref().ok_or_else(|| {
        Error::mysql(1347, format!("'{}' is not a materialized view", definition.full_name()))
    })?;
    let settings = Settings { database: Some(definition.database.clone()), ..Settings::default() };
    let catalog = catalog.bound_to(view);
    let plan = plan_view(&catalog, &view.query, &view.columns, &settings.with_view(&view.settings))?;
    if plan.fingerprint != view.fingerprint {
        return Err(Error::invalid("the view's plan is not the one that its state was built by"));
    }
    Ok(plan)
}

fn plan_view_here(
    catalog: &Catalog,
    text: &str,
    columns: &[String],
    settings: &Settings,
) -> Result<ViewPlan> {
    let mut query = crate::parse::parse_query(text)?;
    let resolver = names::CatalogNames { catalog, settings };
    let columns_of = |database: &str, name: &str| table_columns(&resolver, database, name);
    let mut rewrite = Rewrite::new(settings, true).with_columns(&columns_of);
    let written = query.clone();
    let names = rewrite.outermost(&mut query).map_err(|error| located(error, &written))?;
    let depends_on = named(catalog, &rewrite.tables)?;
    let bound = rewrite.tables.iter().filter_map(|(database, name)| catalog.binding(database, name));
    let bound: Vec<BoundTable> = bound.collect();
    let qualified = rewrite.qualified(text);
    let library = Library::new(settings)?;
    let (logical, declared) =
        logical_plan(query, &resolver, &library).map_err(|error| located(error, &written))?;
    refuse::volatile(&logical)?;
    let output = OutputNames::new(&logical, &names, &declared, columns)?;
    // Before the optimizer makes constants of calls, whose types say more.
    let types = column_types(&logical, &declared);
    let optimised = optimise(logical)?;
    let compiled = compile::compile(&optimised)?;
    let columns = column_infos(&output, &optimised, types, &compiled)?;
    let key = choose_key(&compiled, &columns);
    Ok(ViewPlan {
        base_tables: compiled.plan.tables(),
        fingerprint: compiled.plan.fingerprint(),
        plan: compiled.plan,
        columns,
        key,
        depends_on,
        query: qualified,
        bound,
    })
}

/// The tables and views that a query names.
fn named(catalog: &Catalog, tables: &BTreeSet<(String, String)>) -> Result<Vec<TableId>> {
    tables.iter().map(|(database, name)| Ok(catalog.require(database, name)?.id())).collect()
}

/// Rules that help an incremental plan or that it cannot do without. Left out are those that push limits,
/// split aggregates in two, or turn joins into others by what they know of keys.
fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    use datafusion::optimizer as rule;
    vec![
        Arc::new(rule::optimize_unions::OptimizeUnions::new()),
        Arc::new(rule::simplify_expressions::SimplifyExpressions::new()),
        Arc::new(rule::replace_distinct_aggregate::ReplaceDistinctWithAggregate::new()),
        Arc::new(rule::decorrelate_predicate_subquery::DecorrelatePredicateSubquery::new()),
        Arc::new(rule::scalar_subquery_to_join::ScalarSubqueryToJoin::new()),
        Arc::new(rule::extract_equijoin_predicate::ExtractEquijoinPredicate::new()),
        Arc::new(rule::eliminate_duplicated_expr::EliminateDuplicatedExpr::new()),
        Arc::new(rule::eliminate_filter::EliminateFilter::new()),
        Arc::new(CrossJoins::default()),
        Arc::new(rule::propagate_empty_relation::PropagateEmptyRelation::new()),
        Arc::new(rule::filter_null_join_keys::FilterNullJoinKeys::default()),
        Arc::new(rule::eliminate_outer_join::EliminateOuterJoin::new()),
        Arc::new(PushDown::default()),
        Arc::new(rule::optimize_projections::OptimizeProjections::new()),
    ]
}

fn optimise(logical: LogicalPlan) -> Result<LogicalPlan> {
    let state = session_state();
    let analysed = crate::plan::analyse(logical, state.analyzer(), state.config_options())?;
    let optimizer = Optimizer::with_rules(rules());
    optimizer.optimize(analysed, &state, |_, _| {}).map_err(from_datafusion)
}

/// The view's columns as a table's.
fn column_infos(
    output: &OutputNames,
    optimised: &LogicalPlan,
    types: Vec<Option<tidb::ColumnType>>,
    compiled: &compile::Compiled,
) -> Result<Vec<ColumnInfo>> {
    let fields = optimised.schema().fields();
    let mut columns = Vec::with_capacity(fields.len());
    for (index, (field, declared)) in fields.iter().zip(types).enumerate() {
        let fits = declared.filter(|column_type| column_type.arrow_type() == *field.data_type());
        let column_type = fits.or_else(|| class::column_type(field.data_type()));
        let column_type = column_type.ok_or_else(|| {
            Error::mysql(1235, format!("values of type {} have no SQL type", field.data_type()))
        })?;
        columns.push(ColumnInfo {
            id: i64::try_from(index + 1).map_err(|_| Error::invalid("too many columns"))?,
            name: output.names[index].clone(),
            column_type,
            not_null: compiled.not_null[index],
            default: None,
            origin_default: None,
            comment: String::new(),
        });
    }
    Ok(columns)
}

/// The shortest of the known keys that a table can have as its primary key.
fn choose_key(compiled: &compile::Compiled, columns: &[ColumnInfo]) -> Option<Vec<usize>> {
    let usable = |key: &&Vec<usize>| {
        !key.is_empty()
            && key.iter().all(|at| columns[*at].not_null)
            && tidb::is_possible_key(key.iter().map(|at| &columns[*at].column_type))
    };
    compiled.keys.iter().filter(usable).min_by_key(|key| key.len()).cloned()
}
