//! The tasks of a connection to a cluster: named, tracked, told to stop, and awaited.
//!
//! Nothing here is spawned bare. [`Tasks::shutdown`] ends them; when the last owner is dropped instead they
//! are told to stop, but nobody waits.

use std::future::Future;

use tokio::task::JoinHandle;
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

    /// Starts a task under a name; it runs on when the handle is dropped.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tracker.spawn(task.instrument(tracing::info_span!("task", name)))
    }

    /// Waits until every task has come to its own end.
    pub(crate) async fn finish(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Tells every task to stop, and waits for none.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    /// Tells every task to stop and waits until all have.
    pub(crate) async fn shutdown(&self) {
        self.stop.cancel();
        self.finish().await;
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
