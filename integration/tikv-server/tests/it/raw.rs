//! A client that sends exactly what it is told, to one store.

use std::time::Duration;

use tikv::proto::cdcpb::{self, change_data_client::ChangeDataClient, event::Event};
use tikv::proto::kvrpcpb as kv;
use tikv::proto::tikvpb::tikv_client::TikvClient;
use tikv_server::{Cluster, RegionState, keys};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// No answer takes longer.
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// Calls to one store.
pub(crate) struct RawClient {
    pub kv: TikvClient<Channel>,
    pub channel: Channel,
    pub cluster_id: u64,
}

pub(crate) async fn connect(cluster: &Cluster, store_id: u64) -> RawClient {
    let addresses = cluster.store_addresses();
    let (_, address) = addresses.iter().find(|(id, _)| *id == store_id).unwrap();
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    RawClient { kv: TikvClient::new(channel.clone()), channel, cluster_id: cluster.cluster_id() }
}

/// The context of requests to a region's leader.
pub(crate) fn context(region: &RegionState) -> Option<kv::Context> {
    Some(kv::Context {
        region_id: region.id(),
        region_epoch: region.meta.region_epoch,
        peer: region.leader_peer(),
        ..kv::Context::default()
    })
}

/// A prewrite of one key that is its own primary.
pub(crate) fn prewrite(region: &RegionState, key: &str, value: &str, start_ts: u64) -> kv::PrewriteRequest {
    kv::PrewriteRequest {
        context: context(region),
        mutations: vec![kv::Mutation {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            ..kv::Mutation::default()
        }],
        primary_lock: key.to_owned().into(),
        start_version: start_ts,
        lock_ttl: 20_000,
        txn_size: 1,
        min_commit_ts: start_ts + 1,
        ..kv::PrewriteRequest::default()
    }
}

impl RawClient {
    pub(crate) async fn get(&mut self, region: &RegionState, key: &str, version: u64) -> kv::GetResponse {
        let request = kv::GetRequest {
            context: context(region),
            key: key.to_owned().into(),
            version,
            ..kv::GetRequest::default()
        };
        self.kv.kv_get(request).await.unwrap().into_inner()
    }

    /// Opens a stream of the feed.
    pub(crate) async fn feed(&self) -> Feed {
        let (requests, receiver) = mpsc::channel(100);
        let mut request = Request::new(ReceiverStream::new(receiver));
        request.metadata_mut().insert("features", "stream-multiplexing".parse().unwrap());
        let mut client = ChangeDataClient::new(self.channel.clone()).max_decoding_message_size(256 << 20);
        let answers = client.event_feed_v2(request).await.unwrap().into_inner();
        Feed { requests, answers, cluster_id: self.cluster_id, seen: Vec::new() }
    }
}

/// What a stream of the feed says.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "a test that fails prints all of it")]
pub(crate) enum Said {
    Row(u64, cdcpb::Row),
    Error(u64, cdcpb::Error),
    Resolved(u64, Vec<u64>, u64),
}

/// A stream of the feed.
pub(crate) struct Feed {
    requests: mpsc::Sender<cdcpb::ChangeDataRequest>,
    answers: Streaming<cdcpb::ChangeDataEvent>,
    cluster_id: u64,
    seen: Vec<Said>,
}

impl Feed {
    pub(crate) async fn register(&self, region: &RegionState, request_id: u64, checkpoint_ts: u64) {
        let request = cdcpb::ChangeDataRequest {
            header: Some(cdcpb::Header { cluster_id: self.cluster_id, ticdc_version: "8.5.0".to_owned() }),
            region_id: region.id(),
            region_epoch: region.meta.region_epoch,
            checkpoint_ts,
            start_key: region.meta.start_key.clone(),
            end_key: region.meta.end_key.clone(),
            request_id,
            request: Some(cdcpb::change_data_request::Request::Register(cdcpb::Register {})),
            ..cdcpb::ChangeDataRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }

    pub(crate) async fn notify(&self) {
        let request = cdcpb::ChangeDataRequest {
            request: Some(cdcpb::change_data_request::Request::NotifyTxnStatus(cdcpb::NotifyTxnStatus {})),
            ..cdcpb::ChangeDataRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }

    /// Waits until something is said, and returns that.
    pub(crate) async fn until<T>(&mut self, mut wanted: impl FnMut(&Said) -> Option<T>) -> T {
        let mut at = 0;
        loop {
            while at < self.seen.len() {
                if let Some(found) = wanted(&self.seen[at]) {
                    self.seen.drain(..=at);
                    return found;
                }
                at += 1;
            }
            self.hear().await.unwrap();
        }
    }

    /// Hears one message; the status that ended the stream otherwise.
    pub(crate) async fn hear(&mut self) -> Result<(), Status> {
        let message = tokio::time::timeout(WAIT, self.answers.message()).await.unwrap();
        let Some(message) = message? else { return Err(Status::ok("the stream has ended")) };
        for event in message.events {
            match event.event {
                Some(Event::Entries(entries)) => {
                    let rows = entries.entries.into_iter();
                    self.seen.extend(rows.map(|row| Said::Row(event.request_id, row)));
                }
                Some(Event::Error(error)) => self.seen.push(Said::Error(event.request_id, error)),
                other => panic!("event {other:?}"),
            }
        }
        if let Some(resolved) = message.resolved_ts {
            self.seen.push(Said::Resolved(resolved.request_id, resolved.regions, resolved.ts));
        }
        Ok(())
    }

    /// Rows up to one of a type, that included.
    pub(crate) async fn rows_until(&mut self, last: cdcpb::LogType) -> Vec<cdcpb::Row> {
        let mut rows = Vec::new();
        loop {
            let row = self.until(|said| match said {
                Said::Row(_, row) => Some(row.clone()),
                _ => None,
            });
            let row = row.await;
            rows.push(row.clone());
            if row.r#type() == last {
                return rows;
            }
        }
    }

    pub(crate) async fn error(&mut self) -> cdcpb::Error {
        self.until(|said| match said {
            Said::Error(_, error) => Some(error.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn resolved_from(&mut self, least: u64) -> u64 {
        self.until(|said| match said {
            Said::Resolved(_, _, ts) if *ts >= least => Some(*ts),
            _ => None,
        })
        .await
    }
}

/// A raw key as its region knows it.
pub(crate) async fn region(cluster: &Cluster, key: &str) -> RegionState {
    let region = cluster.region_of(key.as_bytes()).await;
    assert!(region.contains(&keys::encode(key.as_bytes())));
    region
}
