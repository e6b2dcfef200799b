//! Random histories over every operator: retractions, duplicates, NULLs, empty batches, any split.

use std::collections::{BTreeMap, BTreeSet};

use operators::{AggregateFunction, JoinKind, Operator, Plan};
use proptest::prelude::*;
use types::TableId;

use crate::harness::{After, Change, EpochInput, check_history};
use crate::model::{Row, Value};
use crate::plans::{
    LEFT, PlanBuilder, RIGHT, aggregate_plan, all_calls, call, join_plan, left_v_at_most_right_v, schemas,
    v_is_positive, values,
};

fn row() -> impl Strategy<Value = Row> {
    let small = || prop_oneof![1 => Just(Value::Null), 5 => (-2i64..3).prop_map(Value::Int)];
    let text = prop_oneof![
        Just(Value::Null),
        prop_oneof![Just("a"), Just("a "), Just("a  "), Just(""), Just(" "), Just("b"), Just("é\u{1F600}")]
            .prop_map(|text| Value::Text(text.to_owned()))
    ];
    let float = prop_oneof![
        Just(Value::Null),
        (-20i32..20).prop_map(|eighths| Value::Float(f64::from(eighths) / 8.0))
    ];
    let decimal =
        prop_oneof![Just(Value::Null), (-300i128..300).prop_map(|number| Value::Decimal(number, 2))];
    let boolean = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::Bool)];
    (small(), small(), text, float, decimal, boolean).prop_map(|(k, v, s, f, d, b)| vec![k, v, s, f, d, b])
}

/// What to do with the tables.
#[derive(Clone, Debug)]
enum Step {
    Insert(bool, Row, i64),
    Delete(bool, prop::sample::Index),
    /// An update; the row stays, or gets another value at one column.
    Update(bool, prop::sample::Index, Row, usize),
    /// The rest goes into a new batch.
    Split,
}

fn step() -> impl Strategy<Value = Step> {
    let weight = prop_oneof![5 => Just(1i64), 1 => 2i64..4];
    prop_oneof![
        5 => (any::<bool>(), row(), weight).prop_map(|(is_left, row, weight)| Step::Insert(is_left, row, weight)),
        4 => (any::<bool>(), any::<prop::sample::Index>()).prop_map(|(is_left, index)| Step::Delete(is_left, index)),
        2 => (any::<bool>(), any::<prop::sample::Index>(), row(), 0usize..7)
            .prop_map(|(is_left, index, row, column)| Step::Update(is_left, index, row, column)),
        1 => Just(Step::Split),
    ]
}

pub(crate) fn history() -> impl Strategy<Value = Vec<EpochInput>> {
    let after = prop_oneof![Just(After::Nothing), Just(After::Seal), Just(After::Reopen)];
    let epoch = (proptest::collection::vec(step(), 0..14), after, any::<bool>());
    proptest::collection::vec(epoch, 1..7).prop_map(|epochs| {
        let mut present: BTreeMap<TableId, Vec<Row>> = BTreeMap::from([(LEFT, vec![]), (RIGHT, vec![])]);
        let inputs = epochs.into_iter().map(|(steps, after, is_reversed)| {
            let mut batches: Vec<Vec<Change>> = vec![vec![]];
            for step in steps {
                apply_step(step, &mut present, &mut batches);
            }
            if is_reversed {
                // Within an epoch arrival order must not matter, deletions before insertions included.
                batches.iter_mut().for_each(|batch| batch.reverse());
                batches.reverse();
            }
            EpochInput { batches, after }
        });
        inputs.collect()
    })
}

fn apply_step(step: Step, present: &mut BTreeMap<TableId, Vec<Row>>, batches: &mut Vec<Vec<Change>>) {
    let table = |is_left: bool| if is_left { LEFT } else { RIGHT };
    let mut change =
        |table: TableId, row: Row, weight: i64| batches.last_mut().unwrap().push((table, row, weight));
    match step {
        Step::Insert(is_left, row, weight) => {
            let rows = present.get_mut(&table(is_left)).unwrap();
            rows.extend(std::iter::repeat_n(row.clone(), weight as usize));
            change(table(is_left), row, weight);
        }
        Step::Delete(is_left, index) => {
            let rows = present.get_mut(&table(is_left)).unwrap();
            if !rows.is_empty() {
                let row = rows.swap_remove(index.index(rows.len()));
                change(table(is_left), row, -1);
            }
        }
        Step::Update(is_left, index, new, column) => {
            let rows = present.get_mut(&table(is_left)).unwrap();
            if !rows.is_empty() {
                let at = index.index(rows.len());
                let old = rows[at].clone();
                if let Some(value) = rows[at].get_mut(column) {
                    *value = new[column].clone();
                }
                let new = rows[at].clone();
                change(table(is_left), old, -1);
                change(table(is_left), new, 1);
            }
        }
        Step::Split => batches.push(vec![]),
    }
}

fn filter_and_project() -> Plan {
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0, 1]);
    let filtered = plan.filter(source, v_is_positive());
    plan.project(filtered, &[v_is_positive()]);
    plan.build()
}

fn union_with_values() -> Plan {
    let mut plan = PlanBuilder::default();
    let left = plan.source(LEFT, &[0]);
    let right = plan.source(RIGHT, &[1]);
    let fixed = values(&mut plan, &[vec![Value::Int(7)], vec![Value::Null], vec![Value::Int(7)]]);
    let schema = plan.schema(left);
    plan.add(Operator::Union, &[left, right, fixed], schema);
    plan.build()
}

fn distinct_rows() -> Plan {
    let mut plan = PlanBuilder::default();
    let source = plan.source(LEFT, &[0, 2]);
    let schema = plan.schema(source);
    plan.add(Operator::Distinct, &[source], schema);
    plan.build()
}

/// Rows beside a scalar subquery: the greatest v of the other table, or NULL.
fn beside_scalar() -> Plan {
    let mut plan = PlanBuilder::default();
    let right = plan.source(RIGHT, &[0, 1]);
    let positive = plan.filter(right, v_is_positive());
    let greatest = plan.aggregate(positive, &[], &[call(AggregateFunction::Max, &[1])]);
    let schema = plan.schema(greatest);
    let scalar = plan.add(Operator::AtMostOneRow, &[greatest], schema);
    let left = plan.source(LEFT, &[0, 1]);
    plan.join(JoinKind::Left, (left, &[]), (scalar, &[]), false, None);
    plan.build()
}

/// A self join whose right side is the aggregate of the left: joins of deltas of one table.
fn self_join_with_aggregate() -> Plan {
    let mut plan = PlanBuilder::default();
    let rows = plan.source(LEFT, &[0, 1]);
    let grouped = plan.aggregate(
        rows,
        &[0],
        &[call(AggregateFunction::Count, &[]), call(AggregateFunction::Max, &[1])],
    );
    let again = plan.source(LEFT, &[0, 1]);
    let joined = plan.join(JoinKind::Inner, (again, &[0]), (grouped, &[0]), true, None);
    let by_max = plan.aggregate(
        joined,
        &[4],
        &[call(AggregateFunction::Count, &[]), call(AggregateFunction::Sum, &[3])],
    );
    let other = plan.source(RIGHT, &[0, 1]);
    plan.join(JoinKind::Left, (other, &[1]), (by_max, &[0]), false, None);
    plan.build()
}

/// Rows of no columns: only their number is known.
fn rows_without_columns() -> Plan {
    let mut plan = PlanBuilder::default();
    let left = plan.source(LEFT, &[]);
    let right = plan.source(RIGHT, &[]);
    let product = plan.join(JoinKind::Inner, (left, &[]), (right, &[]), false, None);
    plan.aggregate(product, &[], &[call(AggregateFunction::Count, &[])]);
    plan.build()
}

/// l.k = r.k AND l.k = r.v AND l.v = r.v: columns stand twice in the key.
fn join_with_repeated_keys(kind: JoinKind) -> Plan {
    let mut plan = PlanBuilder::default();
    let left = plan.source(LEFT, &[1, 0, 2]);
    let right = plan.source(RIGHT, &[0, 1]);
    plan.join(kind, (left, &[1, 1, 0]), (right, &[0, 1, 1]), false, None);
    plan.build()
}

/// Texts by their sort keys, joined with the rows they come from, as the planner makes it: groups by sort
/// key, of which the smallest text is shown.
fn shown_groups_joined() -> Plan {
    let mut plan = PlanBuilder::default();
    let rows = plan.source(LEFT, &[2, 1]);
    let keyed = plan.pass(rows, &[0, 1], &[0]);
    let grouped = plan.aggregate(
        keyed,
        &[2],
        &[call(AggregateFunction::Min, &[0]), call(AggregateFunction::Max, &[1])],
    );
    let shown = plan.pass(grouped, &[1, 2], &[1]);
    let others = plan.source(RIGHT, &[0, 2]);
    let others = plan.pass(others, &[1, 0], &[1]);
    let joined = plan.join(JoinKind::Inner, (shown, &[2]), (others, &[2]), false, None);
    plan.pass(joined, &[4, 0, 1, 3], &[]);
    plan.build()
}

/// One table twice: by k on one side, by v on the other.
fn table_joined_with_itself() -> Plan {
    let mut plan = PlanBuilder::default();
    let left = plan.source(LEFT, &[0, 1]);
    let right = plan.source(LEFT, &[1, 0]);
    plan.join(JoinKind::Inner, (left, &[0]), (right, &[0]), false, None);
    plan.build()
}

/// What two branches share is wanted by both.
fn branches_of_one_source() -> Plan {
    let mut plan = PlanBuilder::default();
    let rows = plan.source(LEFT, &[0, 1]);
    let counted = plan.aggregate(rows, &[1], &[call(AggregateFunction::Count, &[])]);
    plan.join(JoinKind::Inner, (rows, &[0]), (counted, &[0]), false, None);
    plan.build()
}

macro_rules! histories {
    ($($name:ident: $cases:expr, $plan:expr;)*) => {$(
        #[test]
        fn $name() {
            let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
                cases: cases($cases), failure_persistence: None, ..ProptestConfig::default()
            });
            let plan = $plan;
            let result = runner.run(&history(), |history| {
                check_history(&plan, &schemas(), &history);
                Ok(())
            });
            if let Err(error) = result {
                panic!("{error}");
            }
        }
    )*};
}

/// A soak runs twenty times as many.
pub(crate) fn cases(cases: u32) -> u32 {
    if std::env::var_os("TIDEMILL_SOAK").is_some() { cases * 20 } else { cases }
}

histories! {
    filter_and_project_equal_recomputation: 40, filter_and_project();
    union_and_values_equal_recomputation: 40, union_with_values();
    distinct_equals_recomputation: 60, distinct_rows();
    grouped_aggregates_equal_recomputation: 80, aggregate_plan(&[0], &all_calls());
    text_groups_equal_recomputation: 60, aggregate_plan(&[2, 1], &all_calls());
    global_aggregates_equal_recomputation: 60, aggregate_plan(&[], &all_calls());
    inner_join_equals_recomputation: 60, join_plan(JoinKind::Inner, &[0], false, None);
    inner_join_on_two_keys_equals_recomputation: 40, join_plan(JoinKind::Inner, &[1, 0], false, None);
    inner_join_with_residual_equals_recomputation: 50,
        join_plan(JoinKind::Inner, &[0], false, Some(left_v_at_most_right_v()));
    null_safe_inner_join_equals_recomputation: 50, join_plan(JoinKind::Inner, &[0], true, None);
    cross_join_equals_recomputation: 40, join_plan(JoinKind::Inner, &[], false, None);
    cross_join_with_condition_equals_recomputation: 40,
        join_plan(JoinKind::Inner, &[], false, Some(left_v_at_most_right_v()));
    left_join_equals_recomputation: 80, join_plan(JoinKind::Left, &[0], false, None);
    null_safe_left_join_equals_recomputation: 50, join_plan(JoinKind::Left, &[0], true, None);
    left_join_with_residual_equals_recomputation: 80,
        join_plan(JoinKind::Left, &[0], false, Some(left_v_at_most_right_v()));
    left_join_on_condition_alone_equals_recomputation: 50,
        join_plan(JoinKind::Left, &[], false, Some(left_v_at_most_right_v()));
    semi_join_equals_recomputation: 80, join_plan(JoinKind::LeftSemi, &[0], false, None);
    null_safe_semi_join_equals_recomputation: 50, join_plan(JoinKind::LeftSemi, &[0], true, None);
    semi_join_with_residual_equals_recomputation: 80,
        join_plan(JoinKind::LeftSemi, &[0], false, Some(left_v_at_most_right_v()));
    semi_join_without_keys_equals_recomputation: 40, join_plan(JoinKind::LeftSemi, &[], false, None);
    anti_join_equals_recomputation: 80, join_plan(JoinKind::LeftAnti, &[0], false, None);
    null_safe_anti_join_equals_recomputation: 50, join_plan(JoinKind::LeftAnti, &[0], true, None);
    anti_join_with_residual_equals_recomputation: 80,
        join_plan(JoinKind::LeftAnti, &[0], false, Some(left_v_at_most_right_v()));
    not_in_equals_recomputation: 120, join_plan(JoinKind::LeftAntiNullAware, &[0], false, None);
    not_in_with_residual_equals_recomputation: 60,
        join_plan(JoinKind::LeftAntiNullAware, &[0], false, Some(left_v_at_most_right_v()));
    not_in_over_rows_equals_recomputation: 60, join_plan(JoinKind::LeftAntiNullAware, &[0, 1], false, None);
    rows_without_columns_are_counted: 40, rows_without_columns();
    join_on_repeated_columns_equals_recomputation: 40, join_with_repeated_keys(JoinKind::Inner);
    left_join_on_repeated_columns_equals_recomputation: 40, join_with_repeated_keys(JoinKind::Left);
    anti_join_on_repeated_columns_equals_recomputation: 40, join_with_repeated_keys(JoinKind::LeftAnti);
    rows_beside_a_scalar_equal_recomputation: 60, beside_scalar();
    self_join_with_aggregate_equals_recomputation: 60, self_join_with_aggregate();
    shown_groups_joined_equal_recomputation: 60, shown_groups_joined();
    table_joined_with_itself_equals_recomputation: 60, table_joined_with_itself();
    branches_of_one_source_equal_recomputation: 60, branches_of_one_source();
}

#[test]
fn columns_are_followed_to_their_sources() {
    let both = |left: &[usize], right: &[usize]| {
        BTreeMap::from([
            (LEFT, left.iter().copied().collect::<BTreeSet<usize>>()),
            (RIGHT, right.iter().copied().collect()),
        ])
    };
    let left = |columns: &[usize]| BTreeMap::from([(LEFT, columns.iter().copied().collect())]);
    let joined = join_plan(JoinKind::Inner, &[0], false, None);
    // The key goes to both sides, from either of its columns; what is no key stays on its own.
    let width = joined.nodes[0].schema.fields().len();
    assert_eq!(joined.origins(0), both(&[0], &[0]));
    assert_eq!(joined.origins(width), both(&[0], &[0]));
    assert_eq!(joined.origins(1), left(&[1]));
    let outer = join_plan(JoinKind::Left, &[0], false, None);
    assert_eq!(outer.origins(0), both(&[0], &[0]));
    assert_eq!(outer.origins(width), BTreeMap::new());
    let not_in = join_plan(JoinKind::LeftAntiNullAware, &[0], false, None);
    assert_eq!(not_in.origins(0), left(&[0]));
    let grouped = aggregate_plan(&[2, 1], &all_calls());
    assert_eq!(grouped.origins(0), left(&[2]));
    assert_eq!(grouped.origins(2), BTreeMap::new());
    assert_eq!(shown_groups_joined().origins(1), both(&[2], &[2]));
    assert_eq!(shown_groups_joined().origins(3), both(&[2], &[2]));
    assert_eq!(shown_groups_joined().origins(0), BTreeMap::from([(RIGHT, BTreeSet::from([0]))]));
    assert_eq!(shown_groups_joined().origins(2), BTreeMap::new());
    assert_eq!(table_joined_with_itself().origins(0), left(&[0, 1]));
    assert_eq!(table_joined_with_itself().origins(1), BTreeMap::new());
    assert_eq!(branches_of_one_source().origins(0), BTreeMap::new());
    assert_eq!(filter_and_project().origins(0), BTreeMap::new());
}
