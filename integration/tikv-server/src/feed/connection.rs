//! One stream of the feed to one client: what it can do, and what waits to be sent.
//!
//! Events wait in a queue until the client reads; if it is too slow its subscriptions are ended, nothing is
//! dropped silently. Events that wait go out together, resolved timestamps alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use futures::Stream;
use prost::Message;
use tikv::proto::cdcpb;
use tokio::sync::Notify;
use tonic::Status;

/// A message holds events up to about this size.
const MESSAGE_BYTES: usize = 6 << 20;

/// What waits to be sent.
#[derive(Debug)]
pub(crate) enum Out {
    Event(cdcpb::Event),
    Resolved(cdcpb::ResolvedTs),
}

#[derive(Debug, Default)]
struct Queue {
    out: VecDeque<Out>,
    bytes: usize,
    /// Why the stream ends, once what waits is sent.
    end: Option<Option<Status>>,
}

/// A stream to a client.
#[derive(Debug)]
pub(crate) struct Connection {
    pub id: u64,
    pub store_id: u64,
    /// Several requests may name one region, and resolved timestamps name the request.
    pub multiplexing: bool,
    /// The client's version, from its first request.
    version: OnceLock<(u64, u64, u64)>,
    queue: Mutex<Queue>,
    bytes_max: usize,
    more: Notify,
    /// Nobody reads any more.
    closed: AtomicBool,
}

impl Connection {
    pub(crate) fn new(id: u64, store_id: u64, multiplexing: bool, bytes_max: usize) -> Connection {
        Connection {
            id,
            store_id,
            multiplexing,
            version: OnceLock::new(),
            queue: Mutex::default(),
            bytes_max,
            more: Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// The client's version as its first request says; unreadable ones are the oldest.
    pub(crate) fn version_of(&self, request: &cdcpb::ChangeDataRequest) -> (u64, u64, u64) {
        *self.version.get_or_init(|| {
            let text =
                request.header.as_ref().map(|header| header.ticdc_version.as_str()).unwrap_or_default();
            parse(text).unwrap_or_default()
        })
    }

    pub(crate) fn version(&self) -> (u64, u64, u64) {
        self.version.get().copied().unwrap_or_default()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, out: Out) {
        let bytes = match &out {
            Out::Event(event) => event.encoded_len(),
            Out::Resolved(resolved) => resolved.encoded_len(),
        };
        let mut queue = self.queue();
        if queue.end.is_none() {
            queue.bytes += bytes;
            queue.out.push_back(out);
        }
        drop(queue);
        self.more.notify_one();
    }

    /// Whether the client is too slow for more.
    pub(crate) fn is_full(&self) -> bool {
        self.queue().bytes > self.bytes_max
    }

    /// Whether a scan may add to what waits.
    pub(crate) fn has_room(&self) -> bool {
        self.queue().bytes <= self.bytes_max / 2
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst) || self.queue().end.is_some()
    }

    /// Ends the stream after what waits.
    pub(crate) fn close(&self, status: Option<Status>) {
        self.queue().end.get_or_insert(status);
        self.more.notify_one();
    }

    fn next_message(&self) -> Option<Option<Result<cdcpb::ChangeDataEvent, Status>>> {
        let mut queue = self.queue();
        let mut message = cdcpb::ChangeDataEvent::default();
        let mut bytes = 0;
        loop {
            match queue.out.front() {
                Some(Out::Event(event)) => {
                    let length = event.encoded_len();
                    if !message.events.is_empty() && bytes + length > MESSAGE_BYTES {
                        break;
                    }
                    bytes += length;
                    if let Some(Out::Event(event)) = queue.out.pop_front() {
                        message.events.push(event);
                    }
                }
                Some(Out::Resolved(_)) if message.events.is_empty() => {
                    if let Some(Out::Resolved(resolved)) = queue.out.pop_front() {
                        bytes = resolved.encoded_len();
                        message.resolved_ts = Some(resolved);
                    }
                    break;
                }
                Some(Out::Resolved(_)) | None => break,
            }
        }
        queue.bytes = queue.bytes.saturating_sub(bytes);
        if !message.events.is_empty() || message.resolved_ts.is_some() {
            return Some(Some(Ok(message)));
        }
        queue.end.as_mut().map(|end| end.take().map(Err))
    }

    /// Waits for the next message; `None` at the end.
    async fn receive(&self) -> Option<Result<cdcpb::ChangeDataEvent, Status>> {
        loop {
            let more = self.more.notified();
            if let Some(message) = self.next_message() {
                return message;
            }
            more.await;
        }
    }
}

/// Says that nobody reads any more, when the stream goes.
struct Reader(std::sync::Arc<Connection>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::SeqCst);
    }
}

/// The messages of a connection.
pub(crate) fn messages(
    connection: std::sync::Arc<Connection>,
) -> impl Stream<Item = Result<cdcpb::ChangeDataEvent, Status>> + Send {
    futures::stream::unfold(Reader(connection), |reader| async move {
        let message = reader.0.receive().await;
        message.map(|message| (message, reader))
    })
}

/// Reads a version such as `8.5.0` or `v8.5.0-alpha`.
fn parse(text: &str) -> Option<(u64, u64, u64)> {
    let numbers = text.strip_prefix('v').unwrap_or(text).split(['-', '+']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().ok());
    let version = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_cannot_be_read_are_the_oldest() {
        assert_eq!(parse("8.5.0"), Some((8, 5, 0)));
        assert_eq!(parse("5.3.0-alpha"), Some((5, 3, 0)));
        assert_eq!(parse(""), None);
        assert_eq!(parse("eight"), None);
        assert_eq!(parse("8.5"), None);
    }
}
