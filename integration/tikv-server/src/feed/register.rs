//! Entering and leaving a subscription.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::KeyRange;
use tikv::proto::cdcpb::{self, event};
use tikv::proto::errorpb;
use tonic::Status;
use types::Timestamp;

use super::{Connection, Out, Subscription};
use crate::check;
use crate::faults::Fault;
use crate::keys;
use crate::mvcc::Side;
use crate::regions::RegionState;
use crate::service::StoreService;

/// From this version on a client's cluster id is compared.
const CLUSTER_ID_SINCE: (u64, u64, u64) = (5, 3, 0);
/// What a client of the other interfaces needs.
const RAW_SINCE: &str = "6.2.0";

impl StoreService {
    pub(super) async fn register(
        &self,
        connection: &Arc<Connection>,
        request: cdcpb::ChangeDataRequest,
    ) -> Result<(), Status> {
        match self.shared.faults.take("EventFeed", self.store_id, request.region_id) {
            Some(Fault::Region(error)) => {
                refuse(connection, &request, from_region_error(&error));
                return Ok(());
            }
            Some(Fault::Status(code, text)) => return Err(Status::new(code, text)),
            Some(Fault::DropRequest | Fault::DropAnswer) => {
                return Err(Status::unavailable("the connection was cut on purpose"));
            }
            Some(Fault::DelayRequest(delay) | Fault::DelayAnswer(delay)) => {
                tokio::time::sleep(delay).await;
            }
            Some(Fault::HoldRequest | Fault::HoldAnswer) => self.shared.faults.hold().await,
            None => {}
        }
        let mut side = self.shared.mvcc.exclusive().await;
        side.hub.purge();
        let region = match self.check_register(&side, connection, &request) {
            Ok(region) => region,
            Err(error) => {
                refuse(connection, &request, *error);
                return Ok(());
            }
        };
        let subscription = Arc::new(Subscription {
            connection: Arc::clone(connection),
            request_id: request.request_id,
            region_id: region.id(),
            range: asked_range(&region, &request),
            filter_loop: request.filter_loop,
            checkpoint_ts: Timestamp(request.checkpoint_ts),
            initialized: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            resolved: AtomicU64::new(0),
        });
        side.hub.enter((connection.id, request.request_id, region.id()), Arc::clone(&subscription));
        let rows = self.shared.mvcc.snapshot(&side, &subscription).await;
        drop(side);
        let rows = rows.map_err(|refusal| Status::internal(format!("{refusal:?}")))?;
        let shared = Arc::clone(&self.shared);
        self.shared.tasks.spawn_stoppable(async move { shared.send_scan(&subscription, rows).await });
        Ok(())
    }

    fn check_register(
        &self,
        side: &Side,
        connection: &Connection,
        request: &cdcpb::ChangeDataRequest,
    ) -> Result<RegionState, Box<cdcpb::Error>> {
        let mut error = cdcpb::Error::default();
        let sent = request.header.as_ref().map_or(0, |header| header.cluster_id);
        let current = self.shared.options.cluster_id;
        if connection.version() >= CLUSTER_ID_SINCE && sent != current {
            error.cluster_id_mismatch = Some(cdcpb::ClusterIdMismatch { current, request: sent });
            return Err(Box::new(error));
        }
        if request.kv_api() != cdcpb::KvApi::TiDb {
            error.compatibility = Some(cdcpb::Compatibility { required_version: RAW_SINCE.to_owned() });
            return Err(Box::new(error));
        }
        let region_id = request.region_id;
        if side.hub.living((connection.id, request.request_id, region_id)).is_some() {
            error.duplicate_request = Some(cdcpb::DuplicateRequest { region_id });
            return Err(Box::new(error));
        }
        let region = side.regions.by_id(region_id).filter(|region| region.peer_on(self.store_id).is_some());
        let Some(region) = region else {
            return Err(Box::new(from_region_error(&check::region_not_found(region_id))));
        };
        if region.leader != Some(self.store_id) {
            return Err(Box::new(from_region_error(&check::not_leader(region))));
        }
        let epoch = request.region_epoch.unwrap_or_default();
        if epoch.version != region.version() {
            let current = check::siblings(&side.regions, region, self.store_id);
            return Err(Box::new(from_region_error(&check::epoch_not_match(region, epoch, current))));
        }
        Ok(region.clone())
    }

    /// Ends one subscription, or with region 0 all of a request; each answers with an error.
    pub(super) async fn deregister(&self, connection: &Connection, request_id: u64, region_id: u64) {
        let side = self.shared.mvcc.exclusive().await;
        let wanted = (connection.id, request_id, 0)..=(connection.id, request_id, u64::MAX);
        for (_, subscription) in side.hub.subscriptions.range(wanted) {
            if region_id == 0 || subscription.region_id == region_id {
                let error = check::region_not_found(subscription.region_id);
                subscription.end(from_region_error(&error));
            }
        }
    }
}

impl Subscription {
    /// The scan is sent: resolved timestamps may come.
    pub(super) fn note_initialized(&self) {
        self.initialized.store(true, Ordering::SeqCst);
    }
}

fn refuse(connection: &Connection, request: &cdcpb::ChangeDataRequest, error: cdcpb::Error) {
    connection.push(Out::Event(cdcpb::Event {
        region_id: request.region_id,
        request_id: request.request_id,
        event: Some(event::Event::Error(error)),
        ..cdcpb::Event::default()
    }));
}

/// A region error as the feed has it; whatever it has no field for is a region that is not found.
pub(crate) fn from_region_error(error: &errorpb::Error) -> cdcpb::Error {
    let mut feed = cdcpb::Error {
        not_leader: error.not_leader,
        epoch_not_match: error.epoch_not_match.clone(),
        server_is_busy: error.server_is_busy.clone(),
        region_not_found: error.region_not_found,
        ..cdcpb::Error::default()
    };
    if feed == cdcpb::Error::default() {
        feed.region_not_found = Some(errorpb::RegionNotFound::default());
    }
    feed
}

/// What of a region is asked for; bounds that cannot be read ask for all of it.
fn asked_range(region: &RegionState, request: &cdcpb::ChangeDataRequest) -> Option<KeyRange> {
    let whole = region.raw_range();
    let bounds = keys::decode_bound(&request.start_key).zip(keys::decode_bound(&request.end_key));
    let Some((start, end)) = bounds else { return Some(whole) };
    let start = start.max(whole.start);
    let end = match (end.is_empty(), whole.end.is_empty()) {
        (true, _) => whole.end,
        (false, true) => end,
        (false, false) => end.min(whole.end),
    };
    (end.is_empty() || start < end).then_some(KeyRange { start, end })
}
