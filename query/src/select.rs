//! Answers a query: one timestamp, one catalog, each view on its path, then the batch engine.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::Result as DatafusionResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::context::SessionState;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use sql::stack::{Roomy, with_some_room};
use sql::{OutputColumn, PlannedQuery};
use sqlparser::ast;
use tidb::ColumnType;
use types::{Error, Result, Timestamp};

use crate::names::{Names, Route, Scope};
use crate::paths::{Decided, live};
use crate::{Engine, QueryResult, ReadSettings, ResultColumn, RowStream, Transaction, ViewPath};

/// A query on its way: ready to run, with each view on its path.
pub(crate) struct Planned {
    pub(crate) columns: Vec<OutputColumn>,
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    tasks: Arc<TaskContext>,
    pub(crate) paths: Vec<ViewPath>,
    /// The timestamp that everything is read at; wait mode may have moved it.
    pub(crate) read_ts: Timestamp,
}

impl Engine {
    /// T, and everything that is read at it.
    pub(crate) async fn scope(
        &self,
        settings: &ReadSettings,
        transaction: Option<&Transaction>,
    ) -> Result<Scope> {
        let at = match (transaction, settings.snapshot) {
            (Some(transaction), _) => {
                self.store().wait_visible(transaction.start_ts()).await?;
                transaction.start_ts()
            }
            (None, Some(snapshot)) => self.past(snapshot).await?,
            (None, None) => self.store().read_timestamp().await?,
        };
        let writes = transaction.map(|transaction| Arc::clone(transaction.writes())).unwrap_or_default();
        self.scope_at(settings, at, writes).await
    }

    /// A timestamp that a session has set: not in the future, and not before history begins.
    async fn past(&self, snapshot: Timestamp) -> Result<Timestamp> {
        if snapshot > self.store().read_timestamp().await? {
            let newest = self.store().timestamp().await?;
            if snapshot > newest {
                return Err(Error::mysql(1105, format!("the snapshot {snapshot} is in the future")));
            }
            self.store().wait_visible(snapshot).await?;
        }
        let barrier = self.store().gc_barrier().await?;
        if snapshot < barrier {
            let text = format!("the snapshot {snapshot} is older than history, which begins at {barrier}");
            return Err(Error::mysql(9006, text));
        }
        Ok(snapshot)
    }

    /// The same for a given timestamp and given writes.
    pub(crate) async fn scope_at(
        &self,
        settings: &ReadSettings,
        at: Timestamp,
        writes: crate::transaction::Writes,
    ) -> Result<Scope> {
        let reading = Arc::new(self.store().reading(at));
        Ok(Scope {
            _reading: reading,
            store: Arc::clone(self.store()),
            virtual_tables: Arc::clone(self.virtual_tables()),
            session: settings.clone(),
            settings: settings.at(at),
            catalog: self.catalog(at).await?,
            at,
            writes,
            batch_rows: self.options().batch_rows,
        })
    }

    /// Plans a query and puts each of its views on a path.
    pub(crate) async fn plan(
        &self,
        scope: Scope,
        query: &ast::Query,
        in_transaction: bool,
    ) -> Result<Planned> {
        let views = {
            let names = Names::undecided(&scope);
            let planned = sql::plan_query(query, &names, &scope.settings)?;
            let views = names.views();
            if views.is_empty() {
                return self.ready(planned, Vec::new(), scope.at).await;
            }
            views
        };
        let (scope, decided) = self.decide_all(scope, views, in_transaction).await?;
        self.plan_decided(&scope, decided, |names| crate::live::plan_query(query, names, &scope.settings))
            .await
    }

    /// Plans a query whose views are on their paths; those that turn out to be better read by their queries
    /// are put on another, and the query is planned again.
    pub(crate) async fn plan_decided(
        &self,
        scope: &Scope,
        mut decided: Vec<Decided>,
        plan: impl Fn(&Names<'_>) -> Result<PlannedQuery> + Send,
    ) -> Result<Planned> {
        loop {
            let query = plan(&Names::decided(scope, &decided))?;
            let ready = self.ready(query, Vec::new(), scope.at).await;
            let mut is_moved = false;
            for view in &mut decided {
                if let Route::Hybrid(hybrid) = &view.route
                    && let Some(reason) = hybrid.moved()
                {
                    let cut = Some(view.path.cut);
                    (view.path, view.route) = live(scope, view.definition.full_name(), cut, reason);
                    is_moved = true;
                }
            }
            if is_moved {
                for view in &decided {
                    if let Route::Hybrid(hybrid) = &view.route {
                        hybrid.again();
                    }
                }
                continue;
            }
            let ready = ready?;
            for view in &mut decided {
                if let Route::Hybrid(hybrid) = &view.route {
                    view.path.reason.push_str(&hybrid.work());
                }
            }
            let paths = decided.into_iter().map(|view| view.path).collect();
            return Ok(Planned { paths, ..ready });
        }
    }

    /// Makes a planned query runnable.
    pub(crate) async fn ready(
        &self,
        query: PlannedQuery,
        paths: Vec<ViewPath>,
        read_ts: Timestamp,
    ) -> Result<Planned> {
        let state = self.session();
        let plan = physical(&state, &query.plan).await?;
        Ok(Planned { columns: query.columns, plan, tasks: state.task_ctx(), paths, read_ts })
    }

    /// A session of the batch engine for a statement.
    pub(crate) fn session(&self) -> SessionState {
        let state = sql::session_state();
        let config = state
            .config()
            .clone()
            .with_target_partitions(self.options().parallelism)
            .with_batch_size(self.options().batch_rows);
        SessionStateBuilder::new_from_existing(state).with_config(config).build()
    }
}

/// Runs a planned query.
pub(crate) fn run(planned: Planned) -> Result<QueryResult> {
    let columns: Vec<ResultColumn> = planned.columns.iter().map(result_column).collect();
    let schema = result_schema(&columns, &planned.plan.schema());
    let named = Arc::clone(&schema);
    let batches = stream(&planned)?.map(move |batch| renamed(&batch?, &named)).boxed();
    Ok(QueryResult { columns, schema, batches, read_ts: planned.read_ts, paths: planned.paths })
}

/// The rows of a planned query.
pub(crate) fn stream(planned: &Planned) -> Result<RowStream> {
    let rows = with_some_room(|| execute_stream(Arc::clone(&planned.plan), Arc::clone(&planned.tasks)));
    let mut rows = rows.map_err(sql::from_datafusion)?;
    let rows = futures::stream::poll_fn(move |context| with_some_room(|| rows.poll_next_unpin(context)));
    Ok(rows.map(|batch| batch.map_err(sql::from_datafusion)).boxed())
}

/// Optimises a plan and makes it runnable.
async fn physical(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let planned = Roomy::new(async {
        let optimised = state.optimize(plan)?;
        let plan = state.query_planner().create_physical_plan(&optimised, state).await?;
        plan.transform_up(yielding).map(|yields| yields.data)
    });
    planned.await.map_err(sql::from_datafusion)
}

/// Makes a join hand its thread back now and then. It turns few batches into very many, and what takes them
/// all in would never look whether the statement was killed or its time is over.
fn yielding(node: Arc<dyn ExecutionPlan>) -> DatafusionResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let is_join =
        ["CrossJoinExec", "NestedLoopJoinExec", "HashJoinExec", "SortMergeJoinExec"].contains(&node.name());
    Ok(match is_join {
        true => Transformed::yes(Arc::new(CooperativeExec::new(node))),
        false => Transformed::no(node),
    })
}

pub(crate) fn result_column(column: &OutputColumn) -> ResultColumn {
    ResultColumn {
        name: column.name.clone(),
        column_type: Some(column.column_type.clone()),
        nullable: !column.not_null,
        table: None,
        database: None,
    }
}

/// The batches' types under the columns' names, which may repeat.
fn result_schema(columns: &[ResultColumn], plan: &Schema) -> SchemaRef {
    let fields = columns.iter().zip(plan.fields()).map(|(column, field)| {
        let declared = column.column_type.as_ref().map(ColumnType::arrow_type);
        let data_type = declared.unwrap_or_else(|| field.data_type().clone());
        Field::new(&column.name, data_type, column.nullable || field.is_nullable())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The batch under the schema's names and types.
pub(crate) fn renamed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let column = |(array, field): (&ArrayRef, &Arc<Field>)| match array.data_type() == field.data_type() {
        true => Ok(Arc::clone(array)),
        false => Ok(arrow::compute::cast(array, field.data_type())?),
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
