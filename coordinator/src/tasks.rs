//! The tasks of this crate: named, tracked, told to stop, and awaited.
//!
//! Nothing here is spawned bare. Whoever owns [`Tasks`] ends them with [`Tasks::shutdown`]; when it is
//! dropped instead they are told to stop, but nobody waits.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// A group of tasks with one owner.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Tells a task to stop.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a task under a name.
    pub(crate) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task.instrument(tracing::info_span!("task", name)));
    }

    /// Tells every task to stop and waits until all have.
    pub(crate) async fn shutdown(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
