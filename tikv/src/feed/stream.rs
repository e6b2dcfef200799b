//! Event streams: one per store, shared by every subscription there.
//!
//! A store that multiplexes tells subscriptions apart by their numbers. An older one has one subscription of
//! a region per stream, so each of our pullers gets a stream of its own there. A stream ends with every
//! subscription in it; whoever subscribes again opens the next one.
//!
//! What arrives is handed on in order through bounded queues. A puller that does not take its part holds
//! the stream, which is why pullers always do: they spill instead of waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};
use types::Timestamp;

use super::failure::Failure;
use crate::cluster::Cluster;
use crate::connect::MESSAGE_BYTES_MAX;
use crate::proto::cdcpb::change_data_client::ChangeDataClient;
use crate::proto::cdcpb::change_data_request as ask;
use crate::proto::cdcpb::{ChangeDataEvent, ChangeDataRequest, Event, Header, ResolvedTs, Row, event};

/// The version whose behaviour we expect: batched resolved timestamps, checked cluster identities.
const VERSION: &str = "8.5.0";
/// Requests on their way; more than a store will ever lead of our regions.
const REQUESTS_MAX: usize = 65_536;

/// News of one subscription.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The subscription's number.
    pub(crate) id: u64,
    /// What is new.
    pub(crate) news: News,
}

/// What is new.
#[derive(Debug)]
pub(crate) enum News {
    /// Rows, in the order of the stream.
    Rows(Vec<Row>),
    /// Everything at or below the timestamp has been sent.
    Resolved(Timestamp),
    /// The subscription has ended.
    Failed(Failure),
}

/// All streams of a feed.
pub(crate) struct Streams {
    cluster: Arc<Cluster>,
    /// Ends every stream.
    stop: CancellationToken,
    next_id: AtomicU64,
    n_scans_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By store, and by owner where a stream is not shared (else zero).
    streams: BTreeMap<(u64, u64), Arc<StoreStream>>,
    scans: BTreeMap<u64, Arc<Semaphore>>,
    /// Stores that do not multiplex.
    old_stores: BTreeSet<u64>,
}

impl Streams {
    /// No streams yet; at most so many regions are scanned per store at a time.
    pub(crate) fn new(cluster: Arc<Cluster>, stop: CancellationToken, n_scans_max: usize) -> Arc<Streams> {
        let state = Mutex::new(State::default());
        Arc::new(Streams { cluster, stop, next_id: AtomicU64::new(1), n_scans_max, state })
    }

    /// A number nobody else has.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Permission to have a region of a store scanned.
    pub(crate) fn scans(&self, store_id: u64) -> Arc<Semaphore> {
        let mut state = self.state();
        let scans = state.scans.entry(store_id).or_insert_with(|| Arc::new(Semaphore::new(self.n_scans_max)));
        Arc::clone(scans)
    }

    /// The stream of a store for an owner, opened if there is none.
    pub(crate) fn stream(self: &Arc<Self>, store_id: u64, owner: u64) -> Arc<StoreStream> {
        let mut state = self.state();
        let is_old = state.old_stores.contains(&store_id);
        let key = (store_id, if is_old { owner } else { 0 });
        if let Some(stream) = state.streams.get(&key) {
            return Arc::clone(stream);
        }
        let (requests, outgoing) = mpsc::channel(REQUESTS_MAX);
        let stream = Arc::new(StoreStream {
            store_id,
            is_old,
            header: Header { cluster_id: self.cluster.pd.cluster_id(), ticdc_version: VERSION.to_owned() },
            requests,
            routes: Mutex::new(Routes { is_open: true, ..Routes::default() }),
            stop: self.stop.child_token(),
        });
        state.streams.insert(key, Arc::clone(&stream));
        let (streams, serving) = (Arc::clone(self), Arc::clone(&stream));
        drop(self.cluster.tasks.spawn("event stream", async move {
            streams.serve(serving, key, outgoing).await;
        }));
        stream
    }

    /// An owner needs its own streams no longer.
    pub(crate) fn leave(&self, owner: u64) {
        let state = self.state();
        for ((_, of), stream) in &state.streams {
            if *of == owner {
                stream.stop.cancel();
            }
        }
    }

    async fn serve(
        &self,
        stream: Arc<StoreStream>,
        key: (u64, u64),
        outgoing: mpsc::Receiver<ChangeDataRequest>,
    ) {
        let stop = stream.stop.clone();
        let reading = stream.read(&self.cluster, outgoing);
        let status = stop.run_until_cancelled(reading).await;
        let status = status.unwrap_or_else(|| Status::cancelled("the stream was closed"));
        {
            let mut state = self.state();
            state.streams.remove(&key);
            if status.code() == Code::Unimplemented && !stream.is_old {
                tracing::info!(store = stream.store_id, "the store does not multiplex change feeds");
                state.old_stores.insert(stream.store_id);
            }
        }
        if !stop.is_cancelled() && status.code() != Code::Unimplemented {
            // Its address may have moved, and its regions have other leaders.
            self.cluster.stores.forget(stream.store_id);
            self.cluster.regions.invalidate_store(stream.store_id);
        }
        let text = format!("event stream of store {}: {}", stream.store_id, status.message());
        let routes = std::mem::take(&mut *stream.routes());
        for (id, route) in routes.by_id {
            let failed = Delivery { id, news: News::Failed(Failure::Lost(text.clone())) };
            // Nobody waits for the news of a feed that is gone.
            let _ = stop.run_until_cancelled(route.inbox.send(failed)).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream of one store.
pub(crate) struct StoreStream {
    store_id: u64,
    is_old: bool,
    header: Header,
    requests: mpsc::Sender<ChangeDataRequest>,
    routes: Mutex<Routes>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Routes {
    is_open: bool,
    by_id: BTreeMap<u64, Route>,
}

#[derive(Clone)]
struct Route {
    region_id: u64,
    inbox: mpsc::Sender<Delivery>,
}

impl StoreStream {
    /// Subscribes: news of the request's number go to the inbox from now on.
    ///
    /// # Errors
    /// `Lost` if the stream has ended.
    pub(crate) fn register(
        &self,
        mut request: ChangeDataRequest,
        inbox: mpsc::Sender<Delivery>,
    ) -> Result<(), Failure> {
        request.header = Some(self.header.clone());
        request.request = Some(ask::Request::Register(crate::proto::cdcpb::Register {}));
        let (id, region_id) = (request.request_id, request.region_id);
        let mut routes = self.routes();
        if !routes.is_open {
            return Err(Failure::Lost(format!("the event stream of store {} has ended", self.store_id)));
        }
        self.requests
            .try_send(request)
            .map_err(|_| Failure::Lost(format!("store {} takes no more requests", self.store_id)))?;
        routes.by_id.insert(id, Route { region_id, inbox });
        Ok(())
    }

    /// Ends a subscription; what is still on its way is dropped.
    pub(crate) fn deregister(&self, id: u64) {
        let Some(route) = self.routes().by_id.remove(&id) else { return };
        if self.is_old {
            // It would take this for another subscription; the stream ends with its owner.
            return;
        }
        let request = ChangeDataRequest {
            header: Some(self.header.clone()),
            region_id: route.region_id,
            request_id: id,
            request: Some(ask::Request::Deregister(crate::proto::cdcpb::Deregister {})),
            ..ChangeDataRequest::default()
        };
        if self.requests.try_send(request).is_err() {
            tracing::debug!(id, "the stream ended before a subscription did");
        }
    }

    /// Reads until the stream ends, and says why it did.
    async fn read(&self, cluster: &Cluster, outgoing: mpsc::Receiver<ChangeDataRequest>) -> Status {
        let channel = match cluster.channel(self.store_id).await {
            Ok(channel) => channel,
            Err(error) => return Status::unavailable(error.to_string()),
        };
        let mut client = ChangeDataClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut request = Request::new(ReceiverStream::new(outgoing));
        let opened = if self.is_old {
            client.event_feed(request).await
        } else {
            let features = MetadataValue::from_static("stream-multiplexing");
            request.metadata_mut().insert("features", features);
            client.event_feed_v2(request).await
        };
        let mut incoming = match opened {
            Ok(response) => response.into_inner(),
            Err(status) => return status,
        };
        loop {
            match incoming.message().await {
                Ok(Some(message)) => self.hand_on(message).await,
                Ok(None) => return Status::unavailable("the store ended it"),
                Err(status) => return status,
            }
        }
    }

    async fn hand_on(&self, message: ChangeDataEvent) {
        for event in message.events {
            self.hand_on_event(event).await;
        }
        if let Some(resolved) = message.resolved_ts {
            self.hand_on_resolved(&resolved).await;
        }
    }

    async fn hand_on_event(&self, event: Event) {
        let Some((id, route)) = self.route(event.request_id, event.region_id) else { return };
        let news = match event.event {
            Some(event::Event::Entries(entries)) => News::Rows(entries.entries),
            Some(event::Event::ResolvedTs(ts)) => News::Resolved(Timestamp(ts)),
            Some(event::Event::Error(error)) => {
                self.routes().by_id.remove(&id);
                News::Failed(Failure::of(error, event.region_id))
            }
            Some(event::Event::Admin(_) | event::Event::LongTxn(_)) | None => return,
        };
        self.send(id, route, news).await;
    }

    async fn hand_on_resolved(&self, resolved: &ResolvedTs) {
        for region_id in &resolved.regions {
            if let Some((id, route)) = self.route(resolved.request_id, *region_id) {
                self.send(id, route, News::Resolved(Timestamp(resolved.ts))).await;
            }
        }
    }

    async fn send(&self, id: u64, route: Route, news: News) {
        if route.inbox.send(Delivery { id, news }).await.is_err() {
            self.deregister(id);
        }
    }

    /// Whose news it is; without a number, that of the stream's one subscription of the region.
    fn route(&self, id: u64, region_id: u64) -> Option<(u64, Route)> {
        let routes = self.routes();
        if id != 0 {
            let route = routes.by_id.get(&id).filter(|route| route.region_id == region_id)?;
            return Some((id, route.clone()));
        }
        let mut of_region = routes.by_id.iter().filter(|(_, route)| route.region_id == region_id);
        of_region.next().map(|(id, route)| (*id, route.clone()))
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
