//! Fail points: named steps of an epoch at which a test ends, stops or fails the coordinator.
//!
//! They are told what to do as [`store::failpoints`] says; told to fail (`return(lose)`), they lose what the
//! step asked for or was answered. [`POINTS`] lists them in the order of an epoch.

/// The names, in the order of an epoch.
pub const POINTS: &[&str] = &[
    "coordinator::before_cut",
    "coordinator::after_cut",
    "coordinator::before_start",
    "coordinator::after_start",
    "coordinator::before_read_record",
    "coordinator::after_read_record",
    "coordinator::before_primary_prewrite",
    "coordinator::after_primary_prewrite",
    "coordinator::before_reply_prewrite",
    "coordinator::before_heartbeat",
    "coordinator::before_reply_vote",
    "coordinator::before_draw_commit",
    "coordinator::before_commit_primary",
    "coordinator::after_commit_primary",
    "coordinator::before_ask",
    "coordinator::after_ask",
    "coordinator::before_reply_decision",
    "coordinator::before_reply_take_over",
    "coordinator::before_reply_other",
];

/// Passes a fail point: whether the step is to be lost.
///
/// # Panics
/// If the point is not listed: tests go through the list.
pub(crate) fn lost(name: &str) -> bool {
    debug_assert!(POINTS.contains(&name), "fail point {name} is not listed");
    store::failpoints::pass(name).is_err()
}
