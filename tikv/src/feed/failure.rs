//! Why a subscription ended, and what is to be done about it.

use types::Error;

use crate::proto::{cdcpb, metapb};

/// Why a subscription ended.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Another peer leads the region; perhaps it was named.
    NotLeader(Option<metapb::Peer>),
    /// The region is not what it was; perhaps successors were named.
    Moved(Vec<metapb::Region>),
    /// The store asks for patience, in milliseconds; zero if it did not say for how long.
    Busy(u64),
    /// The connection broke.
    Lost(String),
    /// Anything else that a further try may mend.
    Other(String),
    /// No further try will mend it.
    Fatal(Error),
}

impl Failure {
    /// Reads the error of an event.
    pub(crate) fn of(error: cdcpb::Error, region_id: u64) -> Failure {
        if let Some(error) = error.duplicate_request {
            let text = format!("region {} was subscribed twice under one number", error.region_id);
            return Failure::Fatal(Error::corrupt(text));
        }
        if let Some(error) = error.compatibility {
            let text = format!(
                "the cluster does not serve this change feed: it asks for version {}",
                error.required_version
            );
            return Failure::Fatal(Error::invalid(text));
        }
        if let Some(error) = error.cluster_id_mismatch {
            let text = format!(
                "the store is of cluster {}, the placement driver of {}",
                error.current, error.request
            );
            return Failure::Fatal(Error::invalid(text));
        }
        if let Some(error) = error.not_leader {
            return Failure::NotLeader(error.leader.filter(|leader| leader.id != 0));
        }
        if let Some(error) = error.epoch_not_match {
            return Failure::Moved(error.current_regions);
        }
        if error.region_not_found.is_some() {
            return Failure::Moved(Vec::new());
        }
        if let Some(error) = error.server_is_busy {
            return Failure::Busy(error.backoff_ms);
        }
        if error.congested.is_some() {
            return Failure::Busy(0);
        }
        Failure::Other(format!("region {region_id} ended without a known reason"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::errorpb;

    #[test]
    fn what_no_try_mends_is_fatal_and_says_why() {
        let fatal = |error: cdcpb::Error| match Failure::of(error, 3) {
            Failure::Fatal(error) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let duplicate = cdcpb::DuplicateRequest { region_id: 3 };
        let text = fatal(cdcpb::Error { duplicate_request: Some(duplicate), ..Default::default() });
        assert!(text.contains("region 3"), "{text}");
        let compatibility = cdcpb::Compatibility { required_version: "6.2.0".to_owned() };
        let text = fatal(cdcpb::Error { compatibility: Some(compatibility), ..Default::default() });
        assert!(text.contains("6.2.0"), "{text}");
        let mismatch = cdcpb::ClusterIdMismatch { current: 7, request: 8 };
        let text = fatal(cdcpb::Error { cluster_id_mismatch: Some(mismatch), ..Default::default() });
        assert!(text.contains('7') && text.contains('8'), "{text}");
    }

    #[test]
    fn the_rest_is_tried_again() {
        let of = |error| Failure::of(error, 3);
        let leader = metapb::Peer { id: 5, store_id: 2, ..Default::default() };
        let not_leader = errorpb::NotLeader { region_id: 3, leader: Some(leader) };
        let moved = of(cdcpb::Error { not_leader: Some(not_leader), ..Default::default() });
        assert!(matches!(moved, Failure::NotLeader(Some(peer)) if peer.store_id == 2));
        let unknown = errorpb::NotLeader { region_id: 3, leader: Some(metapb::Peer::default()) };
        let moved = of(cdcpb::Error { not_leader: Some(unknown), ..Default::default() });
        assert!(matches!(moved, Failure::NotLeader(None)));
        let busy = errorpb::ServerIsBusy { backoff_ms: 70, ..Default::default() };
        let busy = of(cdcpb::Error { server_is_busy: Some(busy), ..Default::default() });
        assert!(matches!(busy, Failure::Busy(70)));
        assert!(matches!(of(cdcpb::Error::default()), Failure::Other(_)));
    }
}
