//! Data at fault: an error that names the operator and the row, and a dataflow that says it is unusable.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use operators::AggregateFunction::{Count, Max, Min, Sum};
use operators::{DataflowOptions, Expression, JoinKind, Operator, Plan, Rest};
use types::{Error, ErrorKind};

use crate::harness::Harness;
use crate::model::{Row, Value};
use crate::plans::{
    LEFT, PlanBuilder, RIGHT, aggregate_plan, call, difference_is_even, distinct, fails_for_negative_v,
    join_plan, left_v_at_most_right_v, schemas, unsigned_difference,
};

fn row(k: i64, v: i64) -> Row {
    vec![Value::Int(k), Value::Int(v), Value::Text("x".to_owned()), Value::Null, Value::Null, Value::Null]
}

/// Inserts one row, deletes another that is not there, and expects the words in the error.
fn check_missing(plan: Plan, words: &[&str]) {
    for parallelism in [1, 7] {
        let options = DataflowOptions { parallelism, ..DataflowOptions::default() };
        let mut harness = Harness::new(plan.clone(), schemas(), options);
        harness.push(&[(LEFT, row(5, 1), 1), (RIGHT, row(5, 3), 1)]).unwrap();
        harness.barrier().unwrap();
        harness.seal();
        let mut good = harness.open();
        harness.push(&[(LEFT, row(5, 77), -1)]).unwrap();
        let error = harness.barrier().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        for word in words {
            assert!(error.message().contains(word), "{error} names {word}");
        }
        let after = harness.push(&[(LEFT, row(1, 1), 1)]).unwrap_err();
        assert_eq!(after.kind(), ErrorKind::Closed);
        assert!(after.message().contains(error.message()), "{after}");
        assert_eq!(harness.dataflow.barrier().unwrap_err().kind(), ErrorKind::Closed);
        good.barrier().unwrap();
    }
}

#[test]
fn a_delete_of_what_is_not_there_names_operator_and_row() {
    let row_words = ["k = 5", "v = 77"];
    for kind in
        [JoinKind::Inner, JoinKind::Left, JoinKind::LeftSemi, JoinKind::LeftAnti, JoinKind::LeftAntiNullAware]
    {
        check_missing(
            join_plan(kind, &[0], false, None),
            &["operator 2", "join", row_words[0], row_words[1]],
        );
    }
    let residual = Some(left_v_at_most_right_v());
    check_missing(join_plan(JoinKind::LeftSemi, &[0], false, residual), &["semi join", "v = 77"]);
    check_missing(aggregate_plan(&[0], &[call(Min, &[1])]), &["operator 1 (aggregate)", "77", "k = 5"]);
    check_missing(aggregate_plan(&[0], &[distinct(Count, &[1])]), &["aggregate", "77", "k = 5"]);
    check_missing(aggregate_plan(&[0], &[call(Sum, &[1])]), &["aggregate", "k = 5"]);
    check_missing(aggregate_plan(&[1], &[call(Count, &[])]), &["aggregate", "v = 77"]);
    check_missing(aggregate_plan(&[], &[call(Max, &[1])]), &["aggregate", "77", "all rows"]);
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0, 1]);
    let schema = plan.schema(source);
    plan.add(Operator::Distinct, &[source], schema);
    check_missing(plan.build(), &["operator 1 (distinct)", "k = 5", "v = 77"]);
}

#[test]
fn a_delete_before_its_insert_in_one_epoch_is_no_fault() {
    let mut harness =
        Harness::new(aggregate_plan(&[0], &[call(Min, &[1])]), schemas(), DataflowOptions::default());
    harness.push(&[(LEFT, row(1, 1), -1)]).unwrap();
    harness.push(&[(LEFT, row(1, 1), 1)]).unwrap();
    assert!(harness.barrier().unwrap().is_empty());
    harness.check();
}

#[test]
fn a_scalar_subquery_of_two_rows_is_an_error_only_while_there_are_two() {
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0]);
    let schema = plan.schema(source);
    plan.add(Operator::AtMostOneRow, &[source], schema);
    let mut harness = Harness::new(plan.build(), schemas(), DataflowOptions::default());
    harness.barrier().unwrap();
    harness.check();
    // Two rows within the epoch, one at its end.
    harness.push(&[(LEFT, row(1, 1), 1)]).unwrap();
    harness.push(&[(LEFT, row(2, 1), 1)]).unwrap();
    harness.push(&[(LEFT, row(1, 1), -1)]).unwrap();
    harness.barrier().unwrap();
    harness.check();
    harness.push(&[(LEFT, row(2, 9), 1)]).unwrap();
    let error = harness.barrier().unwrap_err();
    assert_eq!(error.mysql_code(), Some(1242));
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// Both sides of a join change at once: the pair of the new left row with the old right one never was.
#[test]
fn a_pair_of_a_new_row_with_an_old_one_is_no_fault() {
    for kind in [JoinKind::Inner, JoinKind::Left] {
        let mut plan = PlanBuilder::default();
        let left = plan.source(LEFT, &[0, 1]);
        let right = plan.source(RIGHT, &[0, 1]);
        let joined = plan.join(kind, (left, &[0]), (right, &[0]), false, None);
        plan.project(joined, &[unsigned_difference()]);
        check_phantom(plan.build());
        check_phantom(join_plan(kind, &[0], false, Some(difference_is_even())));
    }
    for kind in [JoinKind::LeftSemi, JoinKind::LeftAnti, JoinKind::LeftAntiNullAware] {
        check_phantom(join_plan(kind, &[0], false, Some(difference_is_even())));
    }
}

fn check_phantom(plan: Plan) {
    for is_split in [false, true] {
        let mut harness = Harness::new(plan.clone(), schemas(), DataflowOptions::default());
        harness.push(&[(LEFT, row(1, 10), 1), (RIGHT, row(1, 5), 1)]).unwrap();
        harness.barrier().unwrap();
        harness.check();
        harness.push(&[(LEFT, row(1, 10), -1), (LEFT, row(1, 1), 1)]).unwrap();
        if is_split {
            harness.early_barrier(Rest::Changes).unwrap();
        }
        harness.push(&[(RIGHT, row(1, 5), -1), (RIGHT, row(1, 0), 1)]).unwrap();
        harness.barrier().unwrap();
        harness.check();
        harness.seal();
        // The pair is there now, and then the query fails too.
        harness.push(&[(RIGHT, row(1, 0), -1), (RIGHT, row(1, 7), 1)]).unwrap();
        assert_eq!(harness.barrier().unwrap_err().mysql_code(), Some(1690));
        assert_eq!(crate::model::recompute(&harness.plan, &harness.tables), None);
    }
}

/// The condition fails for a pair, and then its left row goes: with it goes the failure.
#[test]
fn a_failed_pair_goes_with_either_of_its_rows() {
    for kind in [JoinKind::Left, JoinKind::LeftSemi, JoinKind::LeftAnti] {
        for gone in [(LEFT, row(1, 1), -1), (RIGHT, row(1, 5), -1)] {
            let plan = join_plan(kind, &[0], false, Some(difference_is_even()));
            let mut harness = Harness::new(plan, schemas(), DataflowOptions::default());
            harness.push(&[(LEFT, row(1, 1), 1), (RIGHT, row(1, 5), 1)]).unwrap();
            harness.early_barrier(Rest::Changes).unwrap();
            harness.push(&[gone]).unwrap();
            harness.barrier().unwrap();
            harness.check();
        }
    }
}

/// What an insertion cannot make good fails at once, not at the end of a long fill; other things wait.
#[test]
fn a_fill_fails_early_only_where_nothing_can_mend_it() {
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0, 1]);
    plan.filter(source, fails_for_negative_v());
    let mut harness = Harness::new(plan.build(), schemas(), DataflowOptions::default());
    harness.push(&[(LEFT, row(1, -1), 1)]).unwrap();
    let error = harness.early_barrier(Rest::Inserts).unwrap_err();
    assert!(error.message().contains("operator 1 (filter)"), "{error}");

    let mut plan = PlanBuilder::default();
    let left = plan.source(LEFT, &[0, 1]);
    let right = plan.source(RIGHT, &[0, 1]);
    let kept = plan.join(JoinKind::LeftAnti, (left, &[0]), (right, &[0]), false, None);
    plan.filter(kept, fails_for_negative_v());
    let mut harness = Harness::new(plan.build(), schemas(), DataflowOptions::default());
    harness.push(&[(LEFT, row(1, -1), 1)]).unwrap();
    harness.early_barrier(Rest::Inserts).unwrap();
    harness.seal();
    harness.dataflow = harness.open();
    harness.push(&[(RIGHT, row(1, 0), 1)]).unwrap();
    harness.barrier().unwrap();
    harness.check();
}

/// Halfway a sum is out of range and a scalar subquery has two rows; at the end neither is so.
#[test]
fn sums_and_scalar_subqueries_may_be_wrong_halfway() {
    let decimal = DataType::Decimal256(65, 0);
    let schema = Arc::new(Schema::new(vec![Field::new("d", decimal.clone(), true)]));
    let mut plan = PlanBuilder::default();
    let source = plan.add(Operator::Source { table: LEFT, columns: vec![0] }, &[], Arc::clone(&schema));
    plan.aggregate(source, &[], &[call(Sum, &[0])]);
    let runs = Arc::new(crate::harness::MemoryRuns::default());
    let mut dataflow =
        operators::Dataflow::open(Arc::new(plan.build()), vec![], runs, DataflowOptions::default()).unwrap();
    let delta = |weight: i64| {
        let nines = arrow::datatypes::i256::from_string(&"9".repeat(65)).unwrap();
        let column =
            arrow::array::Decimal256Array::from(vec![nines]).with_precision_and_scale(65, 0).unwrap();
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(column)]).unwrap();
        types::Delta::new(batch, vec![weight].into())
    };
    dataflow.push(LEFT, &delta(2)).unwrap();
    assert!(dataflow.early_barrier(Rest::Changes).unwrap().is_empty(), "no row while there is no sum");
    dataflow.push(LEFT, &delta(1)).unwrap();
    dataflow.early_barrier(Rest::Changes).unwrap();
    dataflow.push(LEFT, &delta(-2)).unwrap();
    assert_eq!(dataflow.barrier().unwrap().n_rows(), 1);

    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0]);
    let schema = plan.schema(source);
    plan.add(Operator::AtMostOneRow, &[source], schema);
    let mut harness = Harness::new(plan.build(), schemas(), DataflowOptions::default());
    harness.push(&[(LEFT, row(1, 1), 1), (LEFT, row(2, 1), 1)]).unwrap();
    harness.early_barrier(Rest::Changes).unwrap();
    harness.push(&[(LEFT, row(3, 1), 1)]).unwrap();
    harness.early_barrier(Rest::Changes).unwrap();
    harness.push(&[(LEFT, row(1, 1), -1), (LEFT, row(3, 1), -1)]).unwrap();
    harness.barrier().unwrap();
    harness.check();
}

/// A row that comes with one transaction and goes with the next of the same epoch is in no snapshot that
/// anybody reads.
#[test]
fn a_row_that_comes_and_goes_within_an_epoch_is_no_fault() {
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0, 1]);
    plan.filter(source, fails_for_negative_v());
    let mut harness = Harness::new(plan.build(), schemas(), DataflowOptions::default());
    harness.push(&[(LEFT, row(1, -1), 1), (LEFT, row(2, 2), 1)]).unwrap();
    harness.early_barrier(Rest::Changes).unwrap();
    harness.push(&[(LEFT, row(1, -1), -1), (LEFT, row(1, -2), 1)]).unwrap();
    harness.early_barrier(Rest::Changes).unwrap();
    harness.push(&[(LEFT, row(1, -2), -1), (LEFT, row(1, 3), 1)]).unwrap();
    harness.barrier().unwrap();
    harness.check();
    harness.push(&[(LEFT, row(1, -1), 1)]).unwrap();
    harness.push(&[(LEFT, row(2, 2), -1)]).unwrap();
    assert!(harness.barrier().unwrap_err().message().contains("operator 1 (filter)"));
}

#[derive(Debug)]
struct Failing;

impl Expression for Failing {
    fn evaluate(&self, _batch: &RecordBatch) -> types::Result<ArrayRef> {
        Err(Error::mysql(1690, "bigint value is out of range in k + 1"))
    }

    fn data_type(&self) -> DataType {
        DataType::Boolean
    }

    fn describe(&self) -> String {
        "k + 1 > 0".to_owned()
    }
}

#[test]
fn an_expression_that_fails_is_named_and_keeps_its_number() {
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0]);
    let schema = plan.schema(source);
    plan.add(Operator::Filter { predicate: Arc::new(Failing) }, &[source], schema);
    let mut harness = Harness::new(plan.build(), schemas(), DataflowOptions::default());
    harness.push(&[(LEFT, row(1, 1), 1)]).unwrap();
    let error = harness.barrier().unwrap_err();
    assert_eq!((error.kind(), error.mysql_code()), (ErrorKind::Invalid, Some(1690)));
    assert!(error.message().contains("operator 1 (filter): k + 1 > 0"), "{error}");
}

#[test]
fn a_sum_that_overflows_is_an_error_of_this_view_only() {
    let decimal = DataType::Decimal256(65, 0);
    let schema = Arc::new(Schema::new(vec![Field::new("d", decimal.clone(), true)]));
    let mut plan = PlanBuilder::default();
    let source = plan.add(Operator::Source { table: LEFT, columns: vec![0] }, &[], Arc::clone(&schema));
    plan.aggregate(source, &[], &[call(Sum, &[0])]);
    let runs = Arc::new(crate::harness::MemoryRuns::default());
    let mut dataflow =
        operators::Dataflow::open(Arc::new(plan.build()), vec![], runs, DataflowOptions::default()).unwrap();
    let nines = arrow::datatypes::i256::from_string(&"9".repeat(65)).unwrap();
    let column = arrow::array::Decimal256Array::from(vec![nines]).with_precision_and_scale(65, 0).unwrap();
    let batch = RecordBatch::try_new(schema, vec![Arc::new(column)]).unwrap();
    dataflow.push(LEFT, &types::Delta::inserts(batch.clone())).unwrap();
    dataflow.barrier().unwrap();
    dataflow.push(LEFT, &types::Delta::inserts(batch)).unwrap();
    assert_eq!(dataflow.barrier().unwrap_err().mysql_code(), Some(1690));
}

#[test]
fn plans_that_cannot_run_are_refused() {
    let open = |plan: Plan| {
        let runs = Arc::new(crate::harness::MemoryRuns::default());
        operators::Dataflow::open(Arc::new(plan), vec![], runs, DataflowOptions::default()).unwrap_err()
    };
    let mut plan = PlanBuilder::default();
    let left = plan.source(LEFT, &[0, 1]);
    let right = plan.source(RIGHT, &[2, 1]);
    plan.join(JoinKind::Inner, (left, &[0]), (right, &[0]), false, None);
    assert!(open(plan.build()).message().contains("keys of a join"));
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0, 2]);
    let schema = plan.schema(source);
    let operator = Operator::Aggregate { group: vec![0], calls: vec![call(Sum, &[1])] };
    plan.add(operator, &[source], schema);
    assert!(open(plan.build()).message().contains("sum of Utf8"));
    assert!(open(Plan { nodes: vec![] }).message().contains("without nodes"));
}

#[test]
fn a_table_of_other_columns_is_refused() {
    let plan = join_plan(JoinKind::Inner, &[0], false, None);
    let mut harness = Harness::new(plan, schemas(), DataflowOptions::default());
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("v", DataType::Utf8, true),
    ]));
    let delta = crate::harness::delta_of(&schema, &[(vec![Value::Null, Value::Null], 1)]);
    assert_eq!(harness.dataflow.push(LEFT, &delta).unwrap_err().kind(), ErrorKind::Invalid);
}
