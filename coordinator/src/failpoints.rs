//! Fail points: named steps of an epoch at which a test ends, stops or fails the coordinator.
//!
//! Without the feature `failpoints` they are nothing. With it they are points of the `fail` crate, set by
//! the variable `FAILPOINTS` of the process: `coordinator::before_commit_primary=return(abort)` ends the
//! process on the spot, `pause` holds it there for a SIGKILL, `return(lose)` loses what the step asked for
//! or was answered. [`POINTS`] lists them in the order of an epoch.

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
];

/// Reads the variable `FAILPOINTS`; call it once, first thing in `main`.
///
/// # Errors
/// `Invalid` if the variable cannot be read as fail points.
pub fn setup_from_environment() -> types::Result<()> {
    #[cfg(feature = "failpoints")]
    if let Ok(text) = std::env::var("FAILPOINTS") {
        for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (name, actions) = entry.split_once('=').unwrap_or((entry, "off"));
            let set = fail::cfg(name, actions);
            set.map_err(|error| types::Error::invalid(format!("fail point {entry}: {error}")))?;
        }
    }
    Ok(())
}

/// Makes a fail point end the process when it is next reached.
///
/// # Panics
/// Never: the action is well formed.
#[cfg(feature = "failpoints")]
pub fn abort_at(name: &str) {
    fail::cfg(name, "return(abort)").expect("the action is well formed");
}

/// Passes a fail point: whether the step is to be lost.
#[cfg(feature = "failpoints")]
pub(crate) fn lost(name: &str) -> bool {
    let act = |argument: Option<String>| match argument.as_deref() {
        Some("abort") => std::process::abort(),
        Some("lose") | None => true,
        Some(other) => panic!("fail point {name}: unknown argument {other}"),
    };
    fail::fail_point!(name, act);
    false
}

/// Passes a fail point: nothing happens without the feature.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn lost(_name: &str) -> bool {
    false
}
