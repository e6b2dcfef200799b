//! The one place that starts tasks: named, tracked, cancelled and awaited.
//!
//! A task that panics is caught, logged and counted; what it was part of is started again by whoever
//! asked for it (jobs by the director). Shutdown cancels the token and waits for every task.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::{Error, Result};

/// Starts tasks and ends them.
#[derive(Clone, Debug)]
pub struct Supervisor {
    shared: Arc<SupervisorState>,
}

#[derive(Debug, Default)]
struct SupervisorState {
    token: CancellationToken,
    tracker: TaskTracker,
    /// Names of running tasks, and how many run under each.
    running: Mutex<BTreeMap<String, usize>>,
}

impl Default for Supervisor {
    fn default() -> Supervisor {
        Supervisor::new()
    }
}

impl Supervisor {
    /// A supervisor without tasks.
    #[must_use]
    pub fn new() -> Supervisor {
        Supervisor { shared: Arc::default() }
    }

    /// The token that is cancelled at shutdown.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.shared.token.clone()
    }

    /// Starts a task. A panic in it becomes a `Corrupt` error of the returned handle.
    pub fn spawn<F, T>(&self, name: impl Into<String>, future: F) -> JoinHandle<Result<T>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        let name = name.into();
        let shared = Arc::clone(&self.shared);
        *shared.names().entry(name.clone()).or_default() += 1;
        let task = async move {
            let outcome = std::panic::AssertUnwindSafe(future).catch_unwind().await;
            shared.ended(&name);
            outcome.unwrap_or_else(|panic| {
                let text = panic_text(panic.as_ref());
                tracing::error!(task = name, panic = text, "task panicked");
                Err(Error::corrupt(format!("task {name} panicked: {text}")))
            })
        };
        #[allow(clippy::disallowed_methods, reason = "the supervisor is where tasks are started")]
        let handle = tokio::spawn(self.shared.tracker.track_future(task));
        handle
    }

    /// Runs blocking work on a thread of its own and waits for it.
    ///
    /// # Errors
    /// What the work returns; `Corrupt` if it panicked.
    pub async fn blocking<T, F>(&self, name: &str, work: F) -> Result<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let handle = self.shared.tracker.spawn_blocking(work);
        handle.await.unwrap_or_else(|error| {
            let text = error
                .try_into_panic()
                .map_or_else(|_| "cancelled".to_owned(), |panic| panic_text(panic.as_ref()));
            Err(Error::corrupt(format!("{name} panicked: {text}")))
        })
    }

    /// The names of the tasks that run.
    #[must_use]
    pub fn tasks(&self) -> Vec<String> {
        self.shared.names().keys().cloned().collect()
    }

    /// Cancels the token and waits until every task has ended.
    pub async fn shutdown(&self) {
        self.shared.token.cancel();
        self.shared.tracker.close();
        self.shared.tracker.wait().await;
    }
}

impl SupervisorState {
    fn names(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, usize>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, name: &str) {
        let mut names = self.names();
        if let Some(count) = names.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                names.remove(name);
            }
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
