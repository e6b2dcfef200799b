//! Node by node: an optimised logical plan as operators.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use operators::{Expression, JoinKind, Node, NodeId, Operator, Plan};
use tidb::TableInfo;
use types::{Error, Result};

use super::facts::{Facts, distinct_keys, never_null};
use super::names::Source;
use super::refuse::node_name;
use crate::parse::unsupported;
use crate::{PhysicalExpression, from_datafusion, session_state};

/// A compiled view.
pub(super) struct Compiled {
    pub(super) plan: Plan,
    /// Per output column.
    pub(super) not_null: Vec<bool>,
    /// Column sets that identify a row.
    pub(super) keys: Vec<Vec<usize>>,
}

/// Compiles an optimised plan.
pub(super) fn compile(plan: &LogicalPlan) -> Result<Compiled> {
    let mut compiler = Compiler { state: session_state(), nodes: Vec::new(), facts: Vec::new() };
    let output = compiler.node(plan)?;
    // The output has the plan's columns and nothing else, and is the last node.
    let n_fields = plan.schema().fields().len();
    let is_last = output.0 + 1 == compiler.nodes.len();
    if !is_last || compiler.width(output) != n_fields {
        let columns: Vec<usize> = (0..n_fields).collect();
        compiler.select(output, &columns);
    }
    let plan = Plan { nodes: compiler.nodes };
    plan.check()?;
    let facts = compiler.facts.pop().ok_or_else(|| Error::invalid("a plan without nodes"))?;
    Ok(Compiled { plan, not_null: facts.not_null, keys: facts.keys })
}

/// The operators so far, with what is known of each.
pub(super) struct Compiler {
    state: SessionState,
    nodes: Vec<Node>,
    facts: Vec<Facts>,
}

impl Compiler {
    /// Compiles a node and what is below it. The node's columns are the plan's, in order; there may be
    /// one more where the plan has none.
    pub(super) fn node(&mut self, plan: &LogicalPlan) -> Result<NodeId> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.node(&alias.input),
            LogicalPlan::Projection(projection) => {
                let input = self.node(&projection.input)?;
                self.projection(input, projection.input.schema(), &projection.expr)
            }
            LogicalPlan::Filter(filter) => {
                let input = self.node(&filter.input)?;
                self.filter(input, filter.input.schema(), &filter.predicate)
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.node(input)?;
                Ok(self.distinct(input))
            }
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::EmptyRelation(empty) => {
                self.fixed_rows(empty.schema.as_ref(), usize::from(empty.produce_one_row))
            }
            other => Err(unsupported(node_name(other))),
        }
    }

    pub(super) fn push(
        &mut self,
        operator: Operator,
        inputs: Vec<NodeId>,
        types: &[DataType],
        facts: Facts,
    ) -> NodeId {
        assert_eq!(types.len(), facts.not_null.len(), "facts of each column");
        let fields: Vec<Field> = types
            .iter()
            .zip(&facts.not_null)
            .enumerate()
            .map(|(index, (data_type, not_null))| {
                Field::new(format!("c{index}"), data_type.clone(), !not_null)
            })
            .collect();
        self.push_with_schema(operator, inputs, Arc::new(Schema::new(fields)), facts)
    }

    fn push_with_schema(
        &mut self,
        operator: Operator,
        inputs: Vec<NodeId>,
        schema: SchemaRef,
        facts: Facts,
    ) -> NodeId {
        let stream_key = facts.keys.iter().min_by_key(|key| key.len()).cloned();
        self.nodes.push(Node { operator, inputs, schema, stream_key, append_only: facts.append_only });
        self.facts.push(facts);
        NodeId(self.nodes.len() - 1)
    }

    pub(super) fn facts(&self, node: NodeId) -> &Facts {
        &self.facts[node.0]
    }

    pub(super) fn width(&self, node: NodeId) -> usize {
        self.facts[node.0].not_null.len()
    }

    pub(super) fn types(&self, node: NodeId) -> Vec<DataType> {
        self.nodes[node.0].schema.fields().iter().map(|field| field.data_type().clone()).collect()
    }

    /// An expression over columns of a schema, for operators.
    pub(super) fn physical(&self, expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        refuse_subqueries(expr)?;
        self.state.create_physical_expr(expr.clone(), schema).map_err(from_datafusion)
    }

    pub(super) fn expression(&self, expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn Expression>> {
        let physical = self.physical(expr, schema)?;
        let data_type = physical.data_type(schema.as_arrow()).map_err(from_datafusion)?;
        Ok(Arc::new(PhysicalExpression::new(physical, data_type)))
    }

    /// A column as an expression.
    pub(super) fn column(&self, node: NodeId, index: usize) -> Arc<dyn Expression> {
        let data_type = self.nodes[node.0].schema.field(index).data_type().clone();
        Arc::new(PhysicalExpression::new(Arc::new(PhysicalColumn::new("", index)), data_type))
    }

    /// Some columns of a node.
    pub(super) fn select(&mut self, input: NodeId, columns: &[usize]) -> NodeId {
        let expressions = columns.iter().map(|index| self.column(input, *index)).collect();
        let all_types = self.types(input);
        let types: Vec<DataType> = columns.iter().map(|index| all_types[*index].clone()).collect();
        let facts = self.facts(input);
        let not_null = columns.iter().map(|index| facts.not_null[*index]).collect();
        let sources: Vec<Option<usize>> = columns.iter().map(|index| Some(*index)).collect();
        let facts = facts.projected(&sources, not_null);
        self.push(Operator::Project { expressions }, vec![input], &types, facts)
    }

    fn scan(&mut self, scan: &datafusion::logical_expr::TableScan) -> Result<NodeId> {
        if scan.fetch.is_some() {
            return Err(unsupported("LIMIT in a view"));
        }
        // By the source, not by its name: the texts of two views may mean two tables by one.
        let Some(source) = scan.source.downcast_ref::<Source>() else {
            return Err(Error::invalid(format!("table '{}' is not of the catalog", scan.table_name)));
        };
        let definition = &source.definition;
        let info = &definition.info;
        let columns = match &scan.projection {
            // Rows count even if no column is asked for; one of the key stays as long as the table does.
            Some(columns) if columns.is_empty() => match &definition.foreign {
                Some(_) => vec![info.primary_key.first().copied().unwrap_or(0)],
                None => vec![0],
            },
            Some(columns) => columns.clone(),
            None => (0..definition.visible_columns().len()).collect(),
        };
        let facts = source_facts(info, &columns);
        let schema = Arc::new(info.arrow_schema().project(&columns)?);
        let columns = columns.into_iter().map(|position| definition.column_number(position)).collect();
        let operator = Operator::Source { table: definition.id(), columns };
        let mut node = self.push_with_schema(operator, Vec::new(), schema, facts);
        for filter in &scan.filters {
            node = self.filter(node, &scan.projected_schema, filter)?;
        }
        Ok(node)
    }

    /// Computes expressions over a node.
    pub(super) fn projection(
        &mut self,
        input: NodeId,
        schema: &DFSchemaRef,
        exprs: &[Expr],
    ) -> Result<NodeId> {
        let (input, schema, exprs) = self.with_scalar_subqueries(input, schema, exprs.to_vec())?;
        let sources: Vec<Option<usize>> = exprs.iter().map(|expr| column_index(expr, &schema)).collect();
        let width = self.width(input);
        if sources.len() == width && sources.iter().enumerate().all(|(index, source)| *source == Some(index))
        {
            return Ok(input);
        }
        let mut expressions = Vec::with_capacity(exprs.len());
        let mut types = Vec::with_capacity(exprs.len());
        let mut not_null = Vec::with_capacity(exprs.len());
        for expr in &exprs {
            let expression = self.expression(expr, &schema)?;
            types.push(expression.data_type());
            not_null.push(never_null(expr, &schema, &self.facts(input).not_null));
            expressions.push(expression);
        }
        if expressions.is_empty() {
            // A batch without columns would forget its rows.
            return Ok(input);
        }
        let facts = self.facts(input).projected(&sources, not_null);
        Ok(self.push(Operator::Project { expressions }, vec![input], &types, facts))
    }

    fn filter(&mut self, input: NodeId, schema: &DFSchemaRef, predicate: &Expr) -> Result<NodeId> {
        let width = self.width(input);
        let (joined, schema, exprs) = self.with_scalar_subqueries(input, schema, vec![predicate.clone()])?;
        let predicate = self.expression(&exprs[0], &schema)?;
        let (types, mut facts) = (self.types(joined), self.facts(joined).clone());
        for column in required_columns(&exprs[0], &schema) {
            facts.not_null[column] = true;
        }
        let filtered = self.push(Operator::Filter { predicate }, vec![joined], &types, facts);
        if self.width(filtered) == width {
            return Ok(filtered);
        }
        let columns: Vec<usize> = (0..width).collect();
        Ok(self.select(filtered, &columns))
    }

    /// Scalar subqueries that depend on nothing outside become further columns: a cross join with one row.
    fn with_scalar_subqueries(
        &mut self,
        input: NodeId,
        schema: &DFSchemaRef,
        exprs: Vec<Expr>,
    ) -> Result<(NodeId, DFSchemaRef, Vec<Expr>)> {
        let mut node = input;
        let mut fields: Vec<(Option<datafusion::common::TableReference>, Arc<Field>)> =
            schema.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
        let mut rewritten = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let mut subqueries = Vec::new();
            let replaced = expr
                .transform_down(|expr| match expr {
                    Expr::ScalarSubquery(subquery) if subquery.outer_ref_columns.is_empty() => {
                        let name = format!("#scalar{}", fields.len() + subqueries.len());
                        subqueries.push((name.clone(), subquery));
                        let column = Expr::Column(Column::new_unqualified(name));
                        Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
                    }
                    other => Ok(Transformed::no(other)),
                })
                .map_err(from_datafusion)?;
            for (name, subquery) in subqueries {
                // A plan without columns has one all the same.
                while fields.len() < self.width(node) {
                    fields.push((
                        None,
                        Arc::new(Field::new(format!("#extra{}", fields.len()), DataType::Int64, true)),
                    ));
                }
                let value = self.node(&subquery.subquery)?;
                let data_type = subquery.subquery.schema().field(0).data_type().clone();
                node = self.cross_join_one_row(node, value);
                fields.push((None, Arc::new(Field::new(name, data_type, true))));
            }
            rewritten.push(replaced.data);
        }
        if node == input {
            return Ok((input, Arc::clone(schema), rewritten));
        }
        let schema =
            DFSchema::new_with_metadata(fields, schema.metadata().clone()).map_err(from_datafusion)?;
        Ok((node, Arc::new(schema), rewritten))
    }

    fn cross_join_one_row(&mut self, left: NodeId, value: NodeId) -> NodeId {
        let value = if self.width(value) == 1 { value } else { self.select(value, &[0]) };
        let value_types = self.types(value);
        let one_row = Facts { not_null: vec![false], keys: vec![Vec::new()], append_only: false };
        let one = self.push(Operator::AtMostOneRow, vec![value], &value_types, one_row);
        let types: Vec<DataType> = self.types(left).into_iter().chain(value_types).collect();
        let left_facts = self.facts(left);
        let not_null = left_facts.not_null.iter().copied().chain([false]).collect();
        let facts = Facts { not_null, keys: left_facts.keys.clone(), append_only: false };
        let operator = Operator::Join {
            kind: JoinKind::Inner,
            left_keys: Vec::new(),
            right_keys: Vec::new(),
            null_equal: false,
            residual: None,
        };
        self.push(operator, vec![left, one], &types, facts)
    }

    pub(super) fn distinct(&mut self, input: NodeId) -> NodeId {
        let types = self.types(input);
        let mut facts = self.facts(input).clone();
        let all = (0..types.len()).collect();
        facts.keys = distinct_keys(facts.keys.into_iter().chain([all]));
        self.push(Operator::Distinct, vec![input], &types, facts)
    }

    fn union(&mut self, union: &datafusion::logical_expr::Union) -> Result<NodeId> {
        let targets: Vec<DataType> =
            union.schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let mut inputs = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            let mut node = self.node(input)?;
            if self.width(node) != targets.len() {
                let columns: Vec<usize> = (0..targets.len()).collect();
                node = self.select(node, &columns);
            }
            if self.types(node) != targets {
                return Err(Error::corrupt("the inputs of a UNION have different types"));
            }
            inputs.push(node);
        }
        let not_null = (0..targets.len())
            .map(|index| inputs.iter().all(|input| self.facts(*input).not_null[index]))
            .collect();
        let append_only = inputs.iter().all(|input| self.facts(*input).append_only);
        let facts = Facts { not_null, keys: Vec::new(), append_only };
        Ok(self.push(Operator::Union, inputs, &targets, facts))
    }

    fn values(&mut self, values: &datafusion::logical_expr::Values) -> Result<NodeId> {
        let empty = DFSchema::empty();
        let one_row = RecordBatch::try_new_with_options(
            Arc::new(Schema::empty()),
            Vec::new(),
            &RecordBatchOptions::new().with_row_count(Some(1)),
        )?;
        let n_columns = values.schema.fields().len();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(n_columns);
        for index in 0..n_columns {
            let mut cells = Vec::with_capacity(values.values.len());
            for row in &values.values {
                cells.push(self.expression(&row[index], &empty)?.evaluate(&one_row)?);
            }
            let cells: Vec<&dyn arrow::array::Array> = cells.iter().map(AsRef::as_ref).collect();
            columns.push(concat(&cells)?);
        }
        let fields: Vec<Field> = columns
            .iter()
            .enumerate()
            .map(|(index, column)| Field::new(format!("c{index}"), column.data_type().clone(), true))
            .collect();
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        Ok(self.push_rows(rows))
    }

    /// No rows, or one without columns (a column stands in for none).
    fn fixed_rows(&mut self, schema: &DFSchema, n_rows: usize) -> Result<NodeId> {
        if schema.fields().is_empty() {
            let field = Field::new("c0", DataType::Int64, true);
            let column: ArrayRef = Arc::new(Int64Array::from(vec![0; n_rows]));
            let rows = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column])?;
            return Ok(self.push_rows(rows));
        }
        let fields: Vec<Field> = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| Field::new(format!("c{index}"), field.data_type().clone(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let columns =
            schema.fields().iter().map(|field| arrow::array::new_null_array(field.data_type(), n_rows));
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns.collect())?;
        Ok(self.push_rows(rows))
    }

    fn push_rows(&mut self, rows: RecordBatch) -> NodeId {
        let keys = if rows.num_rows() <= 1 { vec![Vec::new()] } else { Vec::new() };
        let not_null = vec![false; rows.num_columns()];
        let facts = Facts { not_null, keys, append_only: true };
        self.push_with_schema(Operator::Values { rows: rows.clone() }, Vec::new(), rows.schema(), facts)
    }
}

fn source_facts(info: &TableInfo, columns: &[usize]) -> Facts {
    let not_null = columns.iter().map(|column| info.columns[*column].not_null).collect();
    let place = |column: &usize| columns.iter().position(|known| known == column);
    let key = info.primary_key.iter().map(place).collect::<Option<Vec<_>>>();
    let key = key.filter(|key| !key.is_empty());
    Facts { not_null, keys: key.into_iter().collect(), append_only: false }
}

/// The column that an expression is, under aliases.
pub(super) fn column_index(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Alias(alias) => column_index(&alias.expr, schema),
        Expr::Column(column) => schema.maybe_index_of_column(column),
        _ => None,
    }
}

/// Columns that are not NULL in every row that a condition lets through, as far as its form shows.
fn required_columns(predicate: &Expr, schema: &DFSchema) -> Vec<usize> {
    match predicate {
        Expr::BinaryExpr(binary) => match binary.op {
            datafusion::logical_expr::Operator::And => {
                let mut columns = required_columns(&binary.left, schema);
                columns.extend(required_columns(&binary.right, schema));
                columns
            }
            datafusion::logical_expr::Operator::Eq
            | datafusion::logical_expr::Operator::Lt
            | datafusion::logical_expr::Operator::LtEq
            | datafusion::logical_expr::Operator::Gt
            | datafusion::logical_expr::Operator::GtEq
            | datafusion::logical_expr::Operator::NotEq => [&binary.left, &binary.right]
                .into_iter()
                .filter_map(|side| column_index(side, schema))
                .collect(),
            _ => Vec::new(),
        },
        Expr::IsNotNull(inner) => column_index(inner, schema).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Subqueries that are left after optimisation have no operator.
fn refuse_subqueries(expr: &Expr) -> Result<()> {
    let mut found = None;
    let walked = expr.apply(|expr| {
        match expr {
            Expr::Exists(_) => found = Some("EXISTS outside a condition of WHERE in a view"),
            Expr::InSubquery(_) => found = Some("IN (SELECT ...) outside a condition of WHERE in a view"),
            Expr::ScalarSubquery(_) | Expr::OuterReferenceColumn(..) => {
                found = Some("a correlated subquery in a view that does not become a join");
            }
            Expr::SetComparison(_) => found = Some("a comparison with ANY or ALL in a view"),
            Expr::WindowFunction(_) => found = Some("window functions in a view"),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.map_err(from_datafusion)?;
    match found {
        Some(what) => Err(unsupported(what)),
        None => Ok(()),
    }
}
