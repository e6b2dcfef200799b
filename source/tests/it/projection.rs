//! Fewer columns of a delta.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use proptest::collection::vec;
use proptest::prelude::*;
use source::project_delta;
use types::Delta;

use crate::fixture::{ZSet, add};

fn delta(rows: &[(i64, i64, i64)]) -> Delta {
    let field = |name: &str| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field("a"), field("b")]));
    let column = |get: fn(&(i64, i64, i64)) -> i64| {
        Arc::new(rows.iter().map(|row| Some(get(row))).collect::<Int64Array>())
    };
    let batch = RecordBatch::try_new(schema, vec![column(|row| row.0), column(|row| row.1)]).unwrap();
    Delta::new(batch, rows.iter().map(|row| Some(row.2)).collect())
}

#[test]
fn pairs_that_become_equal_cancel() {
    let all = delta(&[(1, 1, -1), (1, 2, 1), (2, 1, -1), (3, 1, 1), (4, 4, 1)]);
    assert_eq!(project_delta(&all, &[0]).unwrap().weights().values().as_ref(), &[-1, 1, 1]);
    assert_eq!(project_delta(&all, &[1]).unwrap().n_rows(), 3);
    assert_eq!(project_delta(&all, &[]).unwrap().n_rows(), 1);
    assert!(project_delta(&all, &[2]).is_err());
}

proptest! {
    #[test]
    fn the_sum_stays_the_same(
        rows in vec((0_i64..2, 0_i64..2, prop::sample::select(vec![-2_i64, -1, 1, 2])), 0..12),
        columns in prop::sample::select(vec![vec![0], vec![1], vec![1, 0], vec![]]),
    ) {
        let all = delta(&rows);
        let (mut plain, mut cancelled) = (ZSet::new(), ZSet::new());
        add(&mut plain, &all.with_batch(all.batch().project(&columns).unwrap()));
        add(&mut cancelled, &project_delta(&all, &columns).unwrap());
        prop_assert_eq!(plain, cancelled);
    }
}
