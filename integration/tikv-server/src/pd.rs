//! PD: members, timestamps, regions, stores, and what keeps history.
//!
//! Several members listen, one leads; the others answer only who does. Regions and leaders are the truth,
//! unless a test makes PD tell an older one. What keeps history is written down where there is a directory.

mod barriers;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use store::{EmbeddedStore, Store};
use tikv::proto::pdpb::{self, pd_server::Pd};
use tonic::{Request, Response, Status, Streaming};

use crate::faults::Fault;
use crate::listen::Gate;
use crate::regions::RegionState;
use crate::shared::Shared;

pub(crate) use barriers::Barriers;

/// Where what keeps history is written down.
const BARRIERS_KEY: &[u8] = b"server/barriers";
/// The most timestamps of one request.
const COUNT_MAX: u32 = 1 << 16;

/// A member of PD.
#[derive(Clone, Debug)]
pub(crate) struct MemberState {
    pub url: String,
    pub gate: Gate,
}

/// What the members share.
#[derive(Default)]
pub(crate) struct Driver {
    members: Mutex<Vec<MemberState>>,
    /// The member that leads; beyond the last while there is an election.
    leader: AtomicU64,
    pub barriers: Barriers,
    /// What regions look like to clients, if not as they are.
    stale: Mutex<Option<Vec<RegionState>>>,
    /// Regions that answers leave out.
    holes: Mutex<BTreeSet<u64>>,
    /// Timestamps go back on purpose.
    falls_back: AtomicBool,
    /// One writes down at a time, so that the last one wrote the newest.
    writing: tokio::sync::Mutex<()>,
}

impl Driver {
    /// As it was when it was written down last.
    pub(crate) async fn kept(store: &EmbeddedStore) -> anyhow::Result<Driver> {
        let kept = store.get_blob(BARRIERS_KEY).await?.unwrap_or_default();
        let barriers = Barriers::decoded(&kept).context("what is kept of the barriers is broken")?;
        Ok(Driver { barriers, ..Driver::default() })
    }

    pub(crate) fn members(&self) -> MutexGuard<'_, Vec<MemberState>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn leader(&self) -> u64 {
        self.leader.load(Ordering::SeqCst)
    }

    pub(crate) fn set_leader(&self, member: u64) {
        self.leader.store(member, Ordering::SeqCst);
    }

    /// Shows clients the regions of a moment, or the real ones again.
    pub(crate) fn freeze(&self, regions: Option<Vec<RegionState>>) {
        *self.stale.lock().unwrap_or_else(PoisonError::into_inner) = regions;
    }

    pub(crate) fn set_holes(&self, holes: BTreeSet<u64>) {
        *self.holes.lock().unwrap_or_else(PoisonError::into_inner) = holes;
    }

    pub(crate) fn set_falls_back(&self, falls_back: bool) {
        self.falls_back.store(falls_back, Ordering::SeqCst);
    }
}

/// One member.
#[derive(Clone)]
pub(crate) struct PdService {
    pub member: u64,
    pub shared: Arc<Shared>,
}

type PdResult<T> = Result<Response<T>, Status>;

impl PdService {
    fn header(&self) -> Option<pdpb::ResponseHeader> {
        Some(pdpb::ResponseHeader { cluster_id: self.shared.options.cluster_id, error: None })
    }

    /// Refuses unless this member leads and the caller means this cluster; then plays a planned fault.
    async fn begin(
        &self,
        rpc: &'static str,
        request_bytes: usize,
        header: Option<&pdpb::RequestHeader>,
    ) -> Result<(), Status> {
        self.check_leader()?;
        self.check_cluster(header)?;
        let _round = self.shared.mvcc.ledger.round();
        self.shared.mvcc.ledger.count(rpc, request_bytes, 0);
        match self.shared.faults.take(rpc, 0, 0) {
            Some(Fault::DropRequest | Fault::DropAnswer | Fault::Region(_)) => {
                Err(Status::unavailable("the connection was cut on purpose"))
            }
            Some(Fault::Status(code, text)) => Err(Status::new(code, text)),
            Some(Fault::DelayRequest(delay) | Fault::DelayAnswer(delay)) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            Some(Fault::HoldRequest | Fault::HoldAnswer) => {
                self.shared.faults.hold().await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn check_leader(&self) -> Result<(), Status> {
        if self.shared.driver.leader() == self.member {
            return Ok(());
        }
        Err(Status::unavailable("not leader"))
    }

    fn check_cluster(&self, header: Option<&pdpb::RequestHeader>) -> Result<(), Status> {
        let (sent, mine) = (header.map_or(0, |header| header.cluster_id), self.shared.options.cluster_id);
        if sent == mine {
            return Ok(());
        }
        Err(Status::failed_precondition(format!("mismatch cluster id, need {mine} but got {sent}")))
    }

    /// The regions as clients see them.
    async fn regions(&self, start: &[u8], end: &[u8], limit: i32) -> Vec<RegionState> {
        let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let stale = self.shared.driver.stale.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = match stale {
            Some(stale) => stale,
            None => self.shared.mvcc.shared().await.regions.all(),
        };
        let holes = self.shared.driver.holes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let overlaps = |region: &RegionState| {
            let after = !region.meta.end_key.is_empty() && region.meta.end_key.as_ref() <= start;
            let before = !end.is_empty() && region.meta.start_key.as_ref() >= end;
            !after && !before && !holes.contains(&region.id())
        };
        all.into_iter().filter(overlaps).take(limit).collect()
    }

    fn found(&self, region: Option<RegionState>) -> pdpb::GetRegionResponse {
        let leader = region.as_ref().and_then(RegionState::leader_peer);
        pdpb::GetRegionResponse { header: self.header(), region: region.map(|region| region.meta), leader }
    }

    async fn answer_tso(&self, request: &pdpb::TsoRequest) -> Result<pdpb::TsoResponse, Status> {
        self.check_leader()?;
        self.check_cluster(request.header.as_ref())?;
        if request.count == 0 || request.count > COUNT_MAX {
            return Err(Status::invalid_argument("tso count should be positive"));
        }
        self.shared.mvcc.oracle.flowing().await;
        self.check_leader()?;
        let last = self.shared.mvcc.oracle.draw(request.count).await;
        let last = last.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut physical = i64::try_from(last.physical_ms()).unwrap_or(i64::MAX);
        if self.shared.driver.falls_back.load(Ordering::SeqCst) {
            physical -= 60_000;
        }
        let logical = i64::try_from(last.logical()).unwrap_or_default();
        Ok(pdpb::TsoResponse {
            header: self.header(),
            count: request.count,
            timestamp: Some(pdpb::Timestamp { physical, logical, suffix_bits: 0 }),
        })
    }
}

#[tonic::async_trait]
impl Pd for PdService {
    async fn get_members(&self, _: Request<pdpb::GetMembersRequest>) -> PdResult<pdpb::GetMembersResponse> {
        self.shared.mvcc.ledger.count("GetMembers", 0, 0);
        let members: Vec<pdpb::Member> = (1u64..)
            .zip(self.shared.driver.members().iter())
            .map(|(id, member)| pdpb::Member {
                name: format!("pd-{id}"),
                member_id: id,
                peer_urls: Vec::new(),
                client_urls: vec![member.url.clone()],
            })
            .collect();
        let leader = usize::try_from(self.shared.driver.leader()).ok();
        let leader = leader.and_then(|leader| members.get(leader)).cloned();
        Ok(Response::new(pdpb::GetMembersResponse { header: self.header(), members, leader }))
    }

    type TsoStream = BoxStream<'static, Result<pdpb::TsoResponse, Status>>;

    async fn tso(&self, request: Request<Streaming<pdpb::TsoRequest>>) -> PdResult<Self::TsoStream> {
        self.check_leader()?;
        let service = self.clone();
        let answers = request.into_inner().then(move |request| {
            let service = service.clone();
            async move {
                let _round = service.shared.mvcc.ledger.round();
                service.shared.mvcc.ledger.count("Tso", 0, 0);
                service.answer_tso(&request?).await
            }
        });
        // After an error nothing more comes, as on a real stream.
        let answers = answers.scan(false, |failed, answer| {
            let ended = std::mem::replace(failed, answer.is_err());
            futures::future::ready((!ended).then_some(answer))
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn get_store(&self, request: Request<pdpb::GetStoreRequest>) -> PdResult<pdpb::GetStoreResponse> {
        let request = request.into_inner();
        self.begin("GetStore", 0, request.header.as_ref()).await?;
        let store = self.shared.listed_stores().into_iter().find(|store| store.id == request.store_id);
        let store = store
            .ok_or_else(|| Status::unknown(format!("invalid store ID {}, not found", request.store_id)))?;
        Ok(Response::new(pdpb::GetStoreResponse { header: self.header(), store: Some(store) }))
    }

    async fn get_all_stores(
        &self,
        request: Request<pdpb::GetAllStoresRequest>,
    ) -> PdResult<pdpb::GetAllStoresResponse> {
        let request = request.into_inner();
        self.begin("GetAllStores", 0, request.header.as_ref()).await?;
        let stores = self.shared.listed_stores();
        Ok(Response::new(pdpb::GetAllStoresResponse { header: self.header(), stores }))
    }

    async fn get_region(
        &self,
        request: Request<pdpb::GetRegionRequest>,
    ) -> PdResult<pdpb::GetRegionResponse> {
        let request = request.into_inner();
        self.begin("GetRegion", request.region_key.len(), request.header.as_ref()).await?;
        let regions = self.regions(&request.region_key, &[], 1).await;
        let holds = |region: &RegionState| region.contains(&request.region_key);
        Ok(Response::new(self.found(regions.into_iter().find(holds))))
    }

    async fn get_region_by_id(
        &self,
        request: Request<pdpb::GetRegionByIdRequest>,
    ) -> PdResult<pdpb::GetRegionResponse> {
        let request = request.into_inner();
        self.begin("GetRegionByID", 0, request.header.as_ref()).await?;
        let regions = self.regions(&[], &[], 0).await;
        Ok(Response::new(self.found(regions.into_iter().find(|region| region.id() == request.region_id))))
    }

    async fn scan_regions(
        &self,
        request: Request<pdpb::ScanRegionsRequest>,
    ) -> PdResult<pdpb::ScanRegionsResponse> {
        let request = request.into_inner();
        self.begin("ScanRegions", 0, request.header.as_ref()).await?;
        let regions = self.regions(&request.start_key, &request.end_key, request.limit).await;
        Ok(Response::new(pdpb::ScanRegionsResponse {
            header: self.header(),
            region_metas: regions.iter().map(|region| region.meta.clone()).collect(),
            leaders: regions.iter().map(|region| region.leader_peer().unwrap_or_default()).collect(),
            regions: regions.iter().map(RegionState::listed).collect(),
        }))
    }

    async fn batch_scan_regions(
        &self,
        request: Request<pdpb::BatchScanRegionsRequest>,
    ) -> PdResult<pdpb::BatchScanRegionsResponse> {
        if self.shared.options.old_pd {
            return Err(Status::unimplemented("unknown method BatchScanRegions"));
        }
        let request = request.into_inner();
        self.begin("BatchScanRegions", 0, request.header.as_ref()).await?;
        let mut listed: Vec<RegionState> = Vec::new();
        for range in &request.ranges {
            for region in self.regions(&range.start_key, &range.end_key, 0).await {
                if listed.last().is_none_or(|last| last.id() != region.id()) {
                    listed.push(region);
                }
            }
        }
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let regions = listed.iter().take(limit).map(RegionState::listed).collect();
        Ok(Response::new(pdpb::BatchScanRegionsResponse { header: self.header(), regions }))
    }

    async fn get_cluster_info(
        &self,
        _: Request<pdpb::GetClusterInfoRequest>,
    ) -> PdResult<pdpb::GetClusterInfoResponse> {
        let service_modes = vec![pdpb::ServiceMode::PdSvcMode.into()];
        let header = self.header();
        Ok(Response::new(pdpb::GetClusterInfoResponse { header, service_modes, tso_urls: Vec::new() }))
    }

    async fn get_gc_safe_point(
        &self,
        request: Request<pdpb::GetGcSafePointRequest>,
    ) -> PdResult<pdpb::GetGcSafePointResponse> {
        self.begin("GetGCSafePoint", 0, request.into_inner().header.as_ref()).await?;
        let safe_point = self.shared.driver.barriers.safe_point();
        Ok(Response::new(pdpb::GetGcSafePointResponse { header: self.header(), safe_point }))
    }

    async fn update_gc_safe_point(
        &self,
        request: Request<pdpb::UpdateGcSafePointRequest>,
    ) -> PdResult<pdpb::UpdateGcSafePointResponse> {
        let request = request.into_inner();
        self.begin("UpdateGCSafePoint", 0, request.header.as_ref()).await?;
        let new_safe_point = self.shared.driver.barriers.raise_safe_point(request.safe_point);
        // Stores come and ask for it; here they have done so before the answer.
        let collected = self.shared.mvcc.collect(new_safe_point).await;
        collected.map_err(|refusal| Status::internal(format!("{refusal:?}")))?;
        self.save_barriers().await?;
        Ok(Response::new(pdpb::UpdateGcSafePointResponse { header: self.header(), new_safe_point }))
    }

    async fn update_service_gc_safe_point(
        &self,
        request: Request<pdpb::UpdateServiceGcSafePointRequest>,
    ) -> PdResult<pdpb::UpdateServiceGcSafePointResponse> {
        let request = request.into_inner();
        self.begin("UpdateServiceGCSafePoint", 0, request.header.as_ref()).await?;
        let service = String::from_utf8_lossy(&request.service_id).into_owned();
        let now_ms = self.now_ms().await?;
        let barriers = &self.shared.driver.barriers;
        let (ttl, min_safe_point) =
            barriers.update_service(&service, request.ttl, request.safe_point, now_ms);
        self.save_barriers().await?;
        Ok(Response::new(pdpb::UpdateServiceGcSafePointResponse {
            header: self.header(),
            service_id: request.service_id,
            ttl,
            min_safe_point,
        }))
    }

    async fn set_gc_barrier(
        &self,
        request: Request<pdpb::SetGcBarrierRequest>,
    ) -> PdResult<pdpb::SetGcBarrierResponse> {
        let request = request.into_inner();
        self.check_new_gc("SetGCBarrier")?;
        self.begin("SetGCBarrier", 0, request.header.as_ref()).await?;
        let now_ms = self.now_ms().await?;
        let barriers = &self.shared.driver.barriers;
        let set = barriers.set(&request.barrier_id, request.barrier_ts, request.ttl_seconds, now_ms);
        let new_barrier_info = Some(set?);
        self.save_barriers().await?;
        Ok(Response::new(pdpb::SetGcBarrierResponse { header: self.header(), new_barrier_info }))
    }

    async fn delete_gc_barrier(
        &self,
        request: Request<pdpb::DeleteGcBarrierRequest>,
    ) -> PdResult<pdpb::DeleteGcBarrierResponse> {
        let request = request.into_inner();
        self.check_new_gc("DeleteGCBarrier")?;
        self.begin("DeleteGCBarrier", 0, request.header.as_ref()).await?;
        let now_ms = self.now_ms().await?;
        let deleted_barrier_info = self.shared.driver.barriers.delete(&request.barrier_id, now_ms);
        self.save_barriers().await?;
        Ok(Response::new(pdpb::DeleteGcBarrierResponse { header: self.header(), deleted_barrier_info }))
    }

    async fn get_gc_state(
        &self,
        request: Request<pdpb::GetGcStateRequest>,
    ) -> PdResult<pdpb::GetGcStateResponse> {
        let request = request.into_inner();
        self.check_new_gc("GetGCState")?;
        self.begin("GetGCState", 0, request.header.as_ref()).await?;
        let now_ms = self.now_ms().await?;
        let mut state = self.shared.driver.barriers.state(now_ms);
        state.keyspace_scope = request.keyspace_scope;
        if request.exclude_gc_barriers {
            state.gc_barriers.clear();
        }
        Ok(Response::new(pdpb::GetGcStateResponse { header: self.header(), gc_state: Some(state) }))
    }
}

impl PdService {
    fn check_new_gc(&self, rpc: &str) -> Result<(), Status> {
        if self.shared.options.old_pd {
            return Err(Status::unimplemented(format!("unknown method {rpc}")));
        }
        Ok(())
    }

    async fn save_barriers(&self) -> Result<(), Status> {
        let saved = self.shared.save_barriers().await;
        saved.map_err(|error| Status::unavailable(error.to_string()))
    }

    async fn now_ms(&self) -> Result<u64, Status> {
        let now = self.shared.mvcc.oracle.now().await;
        Ok(now.map_err(|error| Status::unavailable(error.to_string()))?.physical_ms())
    }
}

impl Shared {
    /// Writes down what keeps history, before anybody hears that it is kept.
    pub(crate) async fn save_barriers(&self) -> types::Result<()> {
        if self.options.data_dir.is_none() {
            return Ok(());
        }
        let _turn = self.driver.writing.lock().await;
        let kept = self.driver.barriers.encoded();
        self.mvcc.store.put_blobs(vec![(Bytes::from_static(BARRIERS_KEY), kept)]).await
    }
}
