//! Whether a request has come to the right place: store, region, peer, term, epoch, leader.
//!
//! In the order in which a real store looks. The answers are region errors with a text beside the field,
//! and for keys outside a region with a valid epoch an `abort` of the key.

use bytes::Bytes;
use tikv::proto::{errorpb, kvrpcpb, metapb};
use tonic::Status;

use crate::keys;
use crate::regions::{RegionState, Regions};

/// Why a request was not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// For a reason of its region.
    Region(Box<errorpb::Error>),
    /// As a whole.
    Status(Box<Status>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal::Status(Box::new(status))
    }
}

impl From<types::Error> for Refusal {
    fn from(error: types::Error) -> Refusal {
        Status::internal(error.to_string()).into()
    }
}

impl From<errorpb::Error> for Refusal {
    fn from(error: errorpb::Error) -> Refusal {
        Refusal::Region(Box::new(error))
    }
}

/// Finds the region of a request, or says what is wrong with it.
pub(crate) fn check(
    regions: &Regions,
    store_id: u64,
    cluster_id: u64,
    context: Option<&kvrpcpb::Context>,
) -> Result<RegionState, Refusal> {
    let unset = kvrpcpb::Context::default();
    let context = context.unwrap_or(&unset);
    if context.cluster_id != 0 && context.cluster_id != cluster_id {
        return Err(Status::invalid_argument("the cluster id of the request is not this cluster's").into());
    }
    let peer = context.peer.unwrap_or_default();
    if peer.store_id != 0 && peer.store_id != store_id {
        return Err(store_not_match(peer.store_id, store_id).into());
    }
    let region = regions.by_id(context.region_id).filter(|region| region.peer_on(store_id).is_some());
    let Some(region) = region else { return Err(region_not_found(context.region_id).into()) };
    let mine = region.peer_on(store_id).unwrap_or_default();
    if context.stale_read {
        return Err(data_is_not_ready(region.id(), mine.id).into());
    }
    if region.leader != Some(store_id) && !context.replica_read {
        return Err(not_leader(region).into());
    }
    if peer.id != mine.id {
        return Err(mismatch_peer(peer.id, mine.id).into());
    }
    if context.term != 0 && context.term + 1 < region.term {
        return Err(stale_command().into());
    }
    let sent = context.region_epoch.unwrap_or_default();
    if sent.version != region.version() {
        return Err(epoch_not_match(region, sent, siblings(regions, region, store_id)).into());
    }
    Ok(region.clone())
}

/// The region that a request names, and its left neighbour, which may have been cut off from it.
pub(crate) fn siblings(regions: &Regions, region: &RegionState, store_id: u64) -> Vec<metapb::Region> {
    let start = &region.meta.start_key;
    let cut_off = |other: &RegionState| {
        !start.is_empty() && other.meta.end_key == *start && other.peer_on(store_id).is_some()
    };
    let left = regions.all().into_iter().find(cut_off).map(|left| left.meta);
    std::iter::once(region.meta.clone()).chain(left).collect()
}

pub(crate) fn store_not_match(request_store_id: u64, actual_store_id: u64) -> errorpb::Error {
    errorpb::Error {
        message: format!("to store id {request_store_id}, mine {actual_store_id}"),
        store_not_match: Some(errorpb::StoreNotMatch { request_store_id, actual_store_id }),
        ..errorpb::Error::default()
    }
}

pub(crate) fn region_not_found(region_id: u64) -> errorpb::Error {
    errorpb::Error {
        message: format!("region {region_id} is missing"),
        region_not_found: Some(errorpb::RegionNotFound { region_id }),
        ..errorpb::Error::default()
    }
}

pub(crate) fn mismatch_peer(request_peer_id: u64, store_peer_id: u64) -> errorpb::Error {
    errorpb::Error {
        message: format!("mismatch peer id {request_peer_id} != {store_peer_id}"),
        mismatch_peer_id: Some(errorpb::MismatchPeerId { request_peer_id, store_peer_id }),
        ..errorpb::Error::default()
    }
}

pub(crate) fn stale_command() -> errorpb::Error {
    errorpb::Error {
        message: "stale command".to_owned(),
        stale_command: Some(errorpb::StaleCommand {}),
        ..errorpb::Error::default()
    }
}

/// No follower is safe to read at any timestamp here.
fn data_is_not_ready(region_id: u64, peer_id: u64) -> errorpb::Error {
    errorpb::Error {
        message: format!("peer {peer_id} is not ready, safe_ts 0, region {region_id}"),
        data_is_not_ready: Some(errorpb::DataIsNotReady { region_id, peer_id, safe_ts: 0 }),
        ..errorpb::Error::default()
    }
}

pub(crate) fn not_leader(region: &RegionState) -> errorpb::Error {
    let leader = region.leader_peer();
    let shown = leader.map(|peer| format!("id: {} store_id: {}", peer.id, peer.store_id));
    errorpb::Error {
        message: format!(
            "peer is not leader for region {}, leader may {}",
            region.id(),
            shown.map_or_else(|| "None".to_owned(), |shown| format!("Some({shown})"))
        ),
        not_leader: Some(errorpb::NotLeader { region_id: region.id(), leader }),
        ..errorpb::Error::default()
    }
}

fn show_epoch(epoch: metapb::RegionEpoch) -> String {
    let fields = [("conf_ver", epoch.conf_ver), ("version", epoch.version)];
    let set = fields.iter().filter(|(_, value)| *value != 0).map(|(name, value)| format!("{name}: {value}"));
    set.collect::<Vec<String>>().join(" ")
}

pub(crate) fn epoch_not_match(
    region: &RegionState,
    sent: metapb::RegionEpoch,
    current_regions: Vec<metapb::Region>,
) -> errorpb::Error {
    errorpb::Error {
        message: format!(
            "EpochNotMatch current epoch of region {} is {}, but you sent {}",
            region.id(),
            show_epoch(region.meta.region_epoch.unwrap_or_default()),
            show_epoch(sent)
        ),
        epoch_not_match: Some(errorpb::EpochNotMatch { current_regions }),
        ..errorpb::Error::default()
    }
}

/// The largest write of a region in one piece.
const RAFT_ENTRY_BYTES_MAX: u64 = 8 << 20;

/// Refuses a write that is too large for one entry of the region's log.
pub(crate) fn check_size(region: &RegionState, entry_size: u64) -> Result<(), Refusal> {
    if entry_size <= RAFT_ENTRY_BYTES_MAX {
        return Ok(());
    }
    let region_id = region.id();
    Err(errorpb::Error {
        message: format!("raft entry is too large, region {region_id}, entry size {entry_size}"),
        raft_entry_too_large: Some(errorpb::RaftEntryTooLarge { region_id, entry_size }),
        ..errorpb::Error::default()
    }
    .into())
}

/// Says that a key is not in the region whose epoch is right.
pub(crate) fn outside(region: &RegionState, raw: &[u8]) -> Option<kvrpcpb::KeyError> {
    let encoded = keys::encode(raw);
    if region.contains(&encoded) {
        return None;
    }
    let (start, end) = (&region.meta.start_key, &region.meta.end_key);
    let text = format!("Key {encoded:X} is out of [region {}] [{start:X}, {end:X})", region.id());
    Some(kvrpcpb::KeyError { abort: format!("Error(Other(\"{text}\"))"), ..kvrpcpb::KeyError::default() })
}

/// Says that a scan leaves the region; a bound that is not given is the region's.
pub(crate) fn range_outside(region: &RegionState, lower: &[u8], upper: &[u8]) -> Option<kvrpcpb::KeyError> {
    let (start, end) = (&region.meta.start_key, &region.meta.end_key);
    let (lower, upper) = (keys::encode_bound(lower), keys::encode_bound(upper));
    let below = !lower.is_empty() && lower < *start;
    let above = !upper.is_empty() && !end.is_empty() && upper > *end;
    if !below && !above {
        return None;
    }
    let text = format!(
        "Error(Txn(Error(InvalidReqRange {{ start: {}, end: {}, lower_bound: {}, upper_bound: {} }})))",
        numbers(&lower),
        numbers(&upper),
        numbers(start),
        numbers(end)
    );
    Some(kvrpcpb::KeyError { abort: text, ..kvrpcpb::KeyError::default() })
}

fn numbers(bound: &Bytes) -> String {
    format!("Some({:?})", bound.as_ref())
}

/// Refuses a request in the language of another version of the interface.
pub(crate) fn wrong_api(command: &str, context: Option<&kvrpcpb::Context>) -> Option<kvrpcpb::KeyError> {
    let asked = context.map(kvrpcpb::Context::api_version).unwrap_or_default();
    (asked != kvrpcpb::ApiVersion::V1).then(|| kvrpcpb::KeyError {
        abort: format!(
            "Error(ApiVersionNotMatched {{ cmd: {command}, storage_api_version: V1, \
             req_api_version: {asked:?} }})"
        ),
        ..kvrpcpb::KeyError::default()
    })
}
