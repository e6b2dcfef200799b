//! Groups and their aggregates.

use crate::plan::{AggregateCall, AggregateFunction};

/// A multiset of values that some calls need: MIN and MAX in order, DISTINCT to count each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    pub(crate) arguments: Vec<usize>,
    pub(crate) filter: Option<usize>,
    /// Whether it is for DISTINCT, where spellings that are equal in SQL are one value.
    pub(crate) is_distinct: bool,
}

/// The multiset that a call needs, if it is not linear.
pub(crate) fn collection(call: &AggregateCall) -> Option<Collection> {
    let is_ordered = matches!(call.function, AggregateFunction::Min | AggregateFunction::Max);
    (is_ordered || call.distinct).then(|| Collection {
        arguments: call.arguments.clone(),
        filter: call.filter,
        is_distinct: !is_ordered,
    })
}

/// The multisets of an aggregate, each a state; calls over the same values share one.
pub(crate) fn collections(calls: &[AggregateCall]) -> Vec<Collection> {
    let mut collections = Vec::new();
    for collection in calls.iter().filter_map(collection) {
        if !collections.contains(&collection) {
            collections.push(collection);
        }
    }
    collections
}
