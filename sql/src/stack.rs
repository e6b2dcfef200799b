//! Room on the stack for walking deep trees.
//!
//! Parser, planner and optimiser recurse over expressions; server tasks run on threads with small stacks.

/// Bytes of stack that parsing and planning may use.
const STACK_BYTES: usize = 256 << 20;

/// Runs a closure on a stack of its own: pages that are not touched cost nothing.
pub(crate) fn with_room<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, run)
}
