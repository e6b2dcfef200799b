//! Hand-made plans for the queries of these tests, and what their answers are.
//!
//! The planner here knows a query by its text, so that the runtime is tested over operators alone, and
//! over an expression that panics, which no SQL gives.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use operators::{AggregateCall, AggregateFunction, Expression, JoinKind, Node, NodeId, Operator, Plan};
use runtime::Planner;
use sql::catalog::Catalog;
use sql::{Settings, ViewPlan};
use tidb::{ColumnInfo, ColumnType};
use types::{Error, Result, TableId};

use crate::world::{Bag, Rows};

/// The rows as they are: keyed.
pub(crate) const COPY: &str = "SELECT id, grp, val FROM test.t";
/// The same of the other table.
pub(crate) const COPY_OF_U: &str = "SELECT id, grp, val FROM test.u";
/// Without the key: hidden handles, duplicates.
pub(crate) const VALUES: &str = "SELECT grp, val FROM test.t";
/// One row a group.
pub(crate) const GROUPS: &str = "SELECT grp, COUNT(*) AS n, SUM(val) AS total FROM test.t GROUP BY grp";
/// Two tables.
pub(crate) const JOIN: &str = "SELECT t.id, t.val, u.val AS weight FROM test.t JOIN test.u ON t.grp = u.id";
/// Fails for `val` = -666 with an error, for `val` = -13 with a panic.
pub(crate) const TOUCHY: &str = "SELECT id, touchy(val) AS val FROM test.t";

/// `touchy` of the rows that `u` does not name; a fill reads `u` last.
pub(crate) const GUARDED: &str =
    "SELECT id, touchy(val) AS val FROM test.t WHERE NOT EXISTS (SELECT 1 FROM test.u WHERE u.id = t.id)";
/// Over a view `v` of `t`.
pub(crate) const OVER: &str = "SELECT id, val FROM test.v";

/// All of them.
pub(crate) const ALL: [&str; 5] = [COPY, VALUES, GROUPS, JOIN, TOUCHY];

#[derive(Clone, Copy, Debug)]
pub(crate) struct TestPlanner;

impl Planner for TestPlanner {
    fn plan_view(
        &self,
        catalog: &Catalog,
        text: &str,
        _columns: &[String],
        _settings: &Settings,
    ) -> Result<ViewPlan> {
        let t = catalog.require("test", "t")?.id();
        let (nodes, columns, key) = match text {
            COPY => (vec![source(t, &[0, 1, 2])], vec![id(), int("grp"), int("val")], Some(vec![0])),
            COPY_OF_U => {
                let u = catalog.require("test", "u")?.id();
                (vec![source(u, &[0, 1, 2])], vec![id(), int("grp"), int("val")], Some(vec![0]))
            }
            VALUES => (vec![source(t, &[1, 2])], vec![int("grp"), int("val")], None),
            GROUPS => (groups(t), group_columns(), Some(vec![0])),
            JOIN => (join(t, catalog.require("test", "u")?.id()), join_columns(), Some(vec![0])),
            GUARDED => {
                (guarded(t, catalog.require("test", "u")?.id()), vec![id(), int("val")], Some(vec![0]))
            }
            OVER => (vec![source(t, &[0, 2])], vec![id(), int("val")], Some(vec![0])),
            TOUCHY => (touchy(t), vec![id(), int("val")], Some(vec![0])),
            other => return Err(Error::mysql(1235, format!("no plan for {other}"))),
        };
        let plan = Plan { nodes };
        let base_tables = plan.tables();
        let fingerprint = plan.fingerprint();
        Ok(ViewPlan {
            plan,
            columns: numbered(columns),
            key,
            depends_on: match text {
                OVER => vec![catalog.require("test", "v")?.id()],
                _ => base_tables.clone(),
            },
            base_tables,
            query: text.to_owned(),
            fingerprint,
            bound: Vec::new(),
        })
    }
}

/// The answer of a query over the rows of `t` and `u`.
pub(crate) fn recompute(query: &str, t: &Rows, u: &Rows) -> Bag {
    let mut bag = Bag::new();
    let mut add = |row: Vec<String>| *bag.entry(row).or_default() += 1;
    let text = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>();
    match query {
        COPY => t.iter().for_each(|(id, (grp, val))| add(text(&[*id, *grp, *val]))),
        COPY_OF_U => u.iter().for_each(|(id, (grp, val))| add(text(&[*id, *grp, *val]))),
        VALUES => t.values().for_each(|(grp, val)| add(text(&[*grp, *val]))),
        GUARDED => {
            let kept = t.iter().filter(|(id, _)| !u.contains_key(id));
            kept.for_each(|(id, (_, val))| add(text(&[*id, *val])));
        }
        TOUCHY | OVER => t.iter().for_each(|(id, (_, val))| add(text(&[*id, *val]))),
        GROUPS => {
            let mut groups = std::collections::BTreeMap::<i64, (i64, i64)>::new();
            for (grp, val) in t.values() {
                let group = groups.entry(*grp).or_default();
                group.0 += 1;
                group.1 += val;
            }
            groups.into_iter().for_each(|(grp, (n, total))| add(text(&[grp, n, total])));
        }
        JOIN => {
            for (id, (grp, val)) in t {
                if let Some((_, weight)) = u.get(grp) {
                    add(text(&[*id, *val, *weight]));
                }
            }
        }
        other => panic!("no answer for {other}"),
    }
    bag
}

fn int(name: &str) -> ColumnInfo {
    ColumnInfo {
        id: 0,
        name: name.to_owned(),
        column_type: ColumnType::Int { bits: 64, unsigned: false },
        not_null: true,
        default: None,
        origin_default: None,
        comment: String::new(),
    }
}

fn id() -> ColumnInfo {
    int("id")
}

fn numbered(mut columns: Vec<ColumnInfo>) -> Vec<ColumnInfo> {
    for (index, column) in columns.iter_mut().enumerate() {
        column.id = index as i64 + 1;
    }
    columns
}

fn group_columns() -> Vec<ColumnInfo> {
    let total = ColumnInfo {
        column_type: ColumnType::Decimal { precision: 42, scale: 0 },
        not_null: false,
        ..int("total")
    };
    vec![int("grp"), int("n"), total]
}

fn join_columns() -> Vec<ColumnInfo> {
    vec![id(), int("val"), int("weight")]
}

fn schema(types: &[DataType]) -> SchemaRef {
    let fields: Vec<Field> = types
        .iter()
        .enumerate()
        .map(|(index, data_type)| Field::new(format!("c{index}"), data_type.clone(), true))
        .collect();
    Arc::new(Schema::new(fields))
}

fn ints(count: usize) -> SchemaRef {
    schema(&vec![DataType::Int64; count])
}

fn node(operator: Operator, inputs: &[usize], schema: SchemaRef) -> Node {
    let inputs = inputs.iter().copied().map(NodeId).collect();
    Node { operator, inputs, schema, stream_key: None, append_only: false }
}

fn source(table: TableId, columns: &[usize]) -> Node {
    node(Operator::Source { table, columns: columns.to_vec() }, &[], ints(columns.len()))
}

fn groups(t: TableId) -> Vec<Node> {
    let call = |function, arguments: &[usize]| AggregateCall {
        function,
        arguments: arguments.to_vec(),
        distinct: false,
        filter: None,
    };
    let calls = vec![call(AggregateFunction::Count, &[]), call(AggregateFunction::Sum, &[1])];
    let sum = AggregateFunction::Sum.output_type(&DataType::Int64, false).expect("integers have a sum");
    let output = schema(&[DataType::Int64, DataType::Int64, sum]);
    vec![source(t, &[1, 2]), node(Operator::Aggregate { group: vec![0], calls }, &[0], output)]
}

fn join(t: TableId, u: TableId) -> Vec<Node> {
    let join = Operator::Join {
        kind: JoinKind::Inner,
        left_keys: vec![1],
        right_keys: vec![0],
        null_equal: false,
        residual: None,
    };
    let column = |index| Arc::new(Column { index }) as Arc<dyn Expression>;
    let project = Operator::Project { expressions: vec![column(0), column(2), column(4)] };
    vec![
        source(t, &[0, 1, 2]),
        source(u, &[0, 2]),
        node(join, &[0, 1], ints(5)),
        node(project, &[2], ints(3)),
    ]
}

fn guarded(t: TableId, u: TableId) -> Vec<Node> {
    let join = Operator::Join {
        kind: JoinKind::LeftAnti,
        left_keys: vec![0],
        right_keys: vec![0],
        null_equal: false,
        residual: None,
    };
    let filter = Operator::Filter { predicate: Arc::new(Touchy) };
    vec![source(t, &[0, 2]), source(u, &[0]), node(join, &[0, 1], ints(2)), node(filter, &[2], ints(2))]
}

fn touchy(t: TableId) -> Vec<Node> {
    let filter = Operator::Filter { predicate: Arc::new(Touchy) };
    vec![source(t, &[0, 2]), node(filter, &[0], ints(2))]
}

#[derive(Debug)]
struct Column {
    index: usize,
}

impl Expression for Column {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        Ok(Arc::clone(batch.column(self.index)))
    }

    fn data_type(&self) -> DataType {
        DataType::Int64
    }

    fn describe(&self) -> String {
        format!("c{}", self.index)
    }
}

/// True for every row it survives.
#[derive(Debug)]
struct Touchy;

impl Expression for Touchy {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let values = batch.column(1).as_any().downcast_ref::<Int64Array>().expect("integers");
        for value in values.iter().flatten() {
            assert_ne!(value, -13, "thirteen brings bad luck");
            if value == -666 {
                return Err(Error::invalid("-666 is out of range"));
            }
        }
        Ok(Arc::new(BooleanArray::from(vec![true; values.len()])))
    }

    fn data_type(&self) -> DataType {
        DataType::Boolean
    }

    fn describe(&self) -> String {
        "touchy".to_owned()
    }
}
