//! A cluster as calls see it: regions that move, stores that come and go, an oracle.
//!
//! An attempt at a region either answers or says what to do next, and has by then put right what is known of
//! the region ([`Trouble`]). Around it stand the loops: one key ([`Cluster::at_key`]) here, many keys in
//! batches in [`crate::batches`]. Both halves of the store, transactions and change feeds, use this.

use std::sync::Arc;

use bytes::Bytes;
use store::KeyRange;
use tonic::transport::Channel;
use tonic::{Code, Status};
use types::{Error, Result, Timestamp};

use crate::backoff::{Backoff, Pause};
use crate::call::{RegionAnswer, RegionCall, client};
use crate::history::History;
use crate::key;
use crate::key_error::is_out_of_region;
use crate::options::Options;
use crate::pd::{Passed, Pd};
use crate::proto::errorpb;
use crate::region::{Region, RegionCache};
use crate::stores::Stores;
use crate::tasks::Tasks;
use crate::whole::Doubts;

/// Why a region gave no answer, and what to do.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Look for the region again, after a pause. Nothing was done.
    Again(Pause, Error),
    /// The answer was lost: it was done, or not, or will be.
    Lost(Error),
    /// More than fits into one entry of the region's log, or into one message.
    TooLarge,
    /// No further try helps.
    Fatal(Error),
}

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) options: Arc<Options>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) regions: RegionCache,
    pub(crate) stores: Stores,
    pub(crate) history: History,
    pub(crate) doubts: Doubts,
    /// Commits that go on though nobody waits; ended before the tasks they need.
    pub(crate) work: Tasks,
    pub(crate) tasks: Tasks,
}

impl Cluster {
    /// Finds a cluster.
    ///
    /// # Errors
    /// `Unavailable` if nobody answers in time, `Invalid` if the endpoints are of several clusters.
    pub(crate) async fn connect(options: Options) -> Result<Cluster> {
        let options = Arc::new(options);
        let tasks = Tasks::default();
        let pd = Arc::new(Pd::connect(Arc::clone(&options), &tasks).await?);
        let stores = Stores::new(Arc::clone(&options), Arc::clone(&pd));
        Ok(Cluster {
            options,
            pd,
            regions: RegionCache::default(),
            stores,
            history: History::new(),
            doubts: Doubts::default(),
            work: Tasks::default(),
            tasks,
        })
    }

    /// A fresh timestamp, drawn after the call began.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn timestamp(&self) -> Result<Timestamp> {
        Ok(self.pd.oracle().draw().await?.ts())
    }

    /// A timestamp that may be sent to stores.
    ///
    /// # Errors
    /// `Invalid` if it lies in the future.
    pub(crate) async fn passed(&self, ts: Timestamp) -> Result<Passed> {
        self.pd.oracle().passed(ts).await
    }

    /// The connection to a store.
    ///
    /// # Errors
    /// `Unavailable` if it does not answer or is gone.
    pub(crate) async fn channel(&self, store_id: u64) -> Result<Channel> {
        self.stores.channel(store_id).await
    }

    /// The region of an encoded key.
    ///
    /// # Errors
    /// `Unavailable` if it is not known in time.
    pub(crate) async fn locate(&self, key: &Bytes) -> Result<Arc<Region>> {
        let mut backoff = Backoff::new(self.options.region_budget);
        loop {
            if let Some(region) = self.regions.find(key) {
                return Ok(region);
            }
            if let Some(region) = Region::new(self.pd.region_at(key).await?) {
                self.regions.insert(region);
            }
            if let Some(region) = self.regions.find(key) {
                return Ok(region);
            }
            // What the placement driver says is older than what is known there.
            if !backoff.wait(Pause::Region).await {
                return Err(Error::unavailable("the region of a key is not known"));
            }
        }
    }

    /// The regions that cover a raw range, in order and without a hole. The first may begin before the
    /// range and the last end behind it; where regions change meanwhile, two may overlap.
    ///
    /// # Errors
    /// `Unavailable` if they are not known in time.
    pub(crate) async fn regions_of(&self, range: &KeyRange) -> Result<Vec<Arc<Region>>> {
        let (mut cursor, end) = (key::encode(&range.start), key::encode(&range.end));
        let mut regions = Vec::new();
        if !range.end.is_empty() && range.start >= range.end {
            return Ok(regions);
        }
        loop {
            if self.regions.find(&cursor).is_none() {
                for located in self.pd.regions_from(&cursor, &end).await? {
                    Region::new(located).map(|region| self.regions.insert(region));
                }
            }
            let region = self.locate(&cursor).await?;
            let reached = region.end.clone();
            regions.push(region);
            if key::end_reaches(&reached, &end) {
                return Ok(regions);
            }
            cursor = reached;
        }
    }

    /// Learns the regions of many raw ranges at once, so that looking them up one by one asks nobody.
    ///
    /// # Errors
    /// `Unavailable` if the placement driver does not answer in time.
    pub(crate) async fn learn(&self, ranges: &[KeyRange]) -> Result<()> {
        let encoded = |range: &KeyRange| (key::encode(&range.start), key::encode(&range.end));
        let unknown: Vec<(Bytes, Bytes)> =
            ranges.iter().map(encoded).filter(|(start, _)| self.regions.find(start).is_none()).collect();
        if !unknown.is_empty() {
            for located in self.pd.regions_in(&unknown).await? {
                Region::new(located).map(|region| self.regions.insert(region));
            }
        }
        Ok(())
    }

    /// Asks a region once.
    pub(crate) async fn attempt<C: RegionCall>(
        &self,
        region: &Arc<Region>,
        mut call: C,
    ) -> Result<C::Answer, Trouble> {
        let context = call.context();
        region.fill(context);
        context.cluster_id = self.pd.cluster_id();
        context.request_source.clone_from(&self.options.request_source);
        let store_id = region.leader.store_id;
        let channel = match self.stores.channel(store_id).await {
            Ok(channel) => channel,
            Err(error) if error.kind() == types::ErrorKind::Unavailable => {
                self.regions.invalidate_store(store_id);
                return Err(Trouble::Again(Pause::Call, error));
            }
            Err(error) => return Err(Trouble::Fatal(error)),
        };
        let sent = tokio::time::timeout(self.options.call_timeout, call.send(client(channel))).await;
        let sent = sent.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        let mut answer = sent.map_err(|status| self.on_status(region, C::NAME, &status))?.into_inner();
        if let Some(error) = answer.take_region_error() {
            return Err(self.on_region_error(region, error));
        }
        if answer.key_errors().into_iter().any(is_out_of_region) {
            self.regions.invalidate(region);
            let text = format!("keys lie outside region {}", region.id);
            return Err(Trouble::Again(Pause::Region, Error::unavailable(text)));
        }
        Ok(answer)
    }

    fn on_status(&self, region: &Region, name: &str, status: &Status) -> Trouble {
        let store_id = region.leader.store_id;
        let text = format!("{name} at store {store_id}: {:?}: {}", status.code(), status.message());
        match status.code() {
            // An invalid argument is a request to another cluster, for one.
            Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument => {
                Trouble::Fatal(Error::invalid(text))
            }
            // The answer is larger than messages are taken.
            Code::OutOfRange => Trouble::TooLarge,
            Code::ResourceExhausted => Trouble::Again(Pause::Busy { hint_ms: 0 }, Error::unavailable(text)),
            _ => {
                self.stores.forget(store_id);
                self.regions.invalidate(region);
                Trouble::Lost(Error::unavailable(text))
            }
        }
    }

    /// Puts right what is known of a region, by what it answered.
    pub(crate) fn on_region_error(&self, region: &Region, error: errorpb::Error) -> Trouble {
        let text = Error::unavailable(format!("region {}: {}", region.id, error.message));
        if let Some(not_leader) = error.not_leader {
            let leader = not_leader.leader.filter(|peer| peer.id != 0);
            if leader.is_some_and(|leader| self.regions.switch_leader(region, leader)) {
                return Trouble::Again(Pause::None, text);
            }
            self.regions.invalidate(region);
            return Trouble::Again(Pause::Region, text);
        }
        if let Some(changed) = error.epoch_not_match {
            if changed.current_regions.is_empty() {
                self.regions.invalidate(region);
                return Trouble::Again(Pause::Region, text);
            }
            let ahead = self.regions.succeed(region, changed.current_regions);
            return Trouble::Again(if ahead { Pause::None } else { Pause::Region }, text);
        }
        if error.raft_entry_too_large.is_some() {
            return Trouble::TooLarge;
        }
        if let Some(undetermined) = error.undetermined_result {
            return Trouble::Lost(Error::unavailable(undetermined.message));
        }
        if error.flashback_in_progress.is_some() || error.flashback_not_prepared.is_some() {
            return Trouble::Fatal(Error::invalid(format!(
                "region {} is being put back to a former state (flashback)",
                region.id
            )));
        }
        if let Some(busy) = error.server_is_busy {
            let hint_ms = busy.backoff_ms.max(u64::from(busy.estimated_wait_ms));
            return Trouble::Again(Pause::Busy { hint_ms }, text);
        }
        if error.read_index_not_ready.is_some()
            || error.proposal_in_merging_mode.is_some()
            || error.max_timestamp_not_synced.is_some()
            || error.disk_full.is_some()
            || error.recovery_in_progress.is_some()
            || error.bucket_version_not_match.is_some()
            || error.data_is_not_ready.is_some()
        {
            return Trouble::Again(Pause::Busy { hint_ms: 0 }, text);
        }
        if error.store_not_match.is_some() {
            self.stores.forget(region.leader.store_id);
        }
        // Not found, of another key or peer, not there yet, stale, or something newer than this client.
        self.regions.invalidate(region);
        Trouble::Again(Pause::Region, text)
    }

    /// Asks the region of a raw key until it answers or the time is over; for calls that may come twice.
    ///
    /// # Errors
    /// `Unavailable` if no region answers in time.
    pub(crate) async fn at_key<C: RegionCall>(
        &self,
        raw: &[u8],
        call: &C,
        backoff: &mut Backoff,
    ) -> Result<C::Answer> {
        self.at_key_watched(raw, call, backoff, &mut false).await
    }

    /// As [`Cluster::at_key`]; `lost` becomes true if an answer was lost on the way.
    ///
    /// # Errors
    /// As [`Cluster::at_key`].
    pub(crate) async fn at_key_watched<C: RegionCall>(
        &self,
        raw: &[u8],
        call: &C,
        backoff: &mut Backoff,
        lost: &mut bool,
    ) -> Result<C::Answer> {
        let encoded = key::encode(raw);
        let mut call = call.clone();
        loop {
            let region = self.locate(&encoded).await?;
            let (pause, error) = match self.attempt(&region, call.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Again(pause, error)) => (pause, error),
                Err(Trouble::Lost(error)) => {
                    *lost = true;
                    (Pause::Call, error)
                }
                Err(Trouble::TooLarge) => {
                    return Err(Error::invalid("a value is larger than the cluster takes"));
                }
                Err(Trouble::Fatal(error)) => return Err(error),
            };
            tracing::debug!(call = C::NAME, region = region.id, %error, "asking again");
            call.context().is_retry_request = true;
            if !backoff.wait(pause).await {
                return Err(error.context("no region answers in time"));
            }
        }
    }

    /// Waits for a region as long as the options say.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.options.region_budget)
    }
}
