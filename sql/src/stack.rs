//! Room on the stack for walking deep trees.
//!
//! Parser, planner, optimiser and the operators of a query recurse over expressions and plans; tasks of a
//! server run on threads with small stacks, and a stack that ends ends the process.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes of stack that parsing and planning may use; pages that are not touched cost nothing.
const STACK_BYTES: usize = 256 << 20;
/// Bytes of stack that a poll of running operators needs at least.
const POLL_BYTES: usize = 1 << 20;

/// Runs a closure on a stack of its own, unless this one has much room.
pub fn with_room<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, run)
}

/// Runs a closure on a stack of its own if this one is short: for what is called often.
pub fn with_some_room<T>(run: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(POLL_BYTES, STACK_BYTES, run)
}

/// A future that is polled with room on the stack, see [`with_room`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Roomy<F>(Pin<Box<F>>);

impl<F: Future> Roomy<F> {
    /// Wraps a future.
    pub fn new(future: F) -> Roomy<F> {
        Roomy(Box::pin(future))
    }
}

impl<F: Future> Future for Roomy<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        with_room(|| self.0.as_mut().poll(context))
    }
}
