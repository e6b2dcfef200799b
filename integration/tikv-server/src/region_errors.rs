//! Region errors by name, for faults.

use tikv::proto::errorpb::{self, Error};

/// The names that [`region_error`] knows.
pub const REGION_ERRORS: &[&str] = &[
    "not_leader",
    "region_not_found",
    "key_not_in_region",
    "epoch_not_match",
    "server_is_busy",
    "stale_command",
    "store_not_match",
    "raft_entry_too_large",
    "max_timestamp_not_synced",
    "read_index_not_ready",
    "proposal_in_merging_mode",
    "data_is_not_ready",
    "region_not_initialized",
    "disk_full",
    "recovery_in_progress",
    "flashback_in_progress",
    "flashback_not_prepared",
    "is_witness",
    "mismatch_peer_id",
    "bucket_version_not_match",
    "undetermined_result",
];

/// A region error by its field's name, with nothing in it that would help; `None` if there is no such field.
#[must_use]
pub fn region_error(name: &str) -> Option<Error> {
    let mut error = Error { message: name.replace('_', " "), ..Error::default() };
    match name {
        "not_leader" => error.not_leader = Some(errorpb::NotLeader::default()),
        "region_not_found" => error.region_not_found = Some(errorpb::RegionNotFound::default()),
        "key_not_in_region" => error.key_not_in_region = Some(errorpb::KeyNotInRegion::default()),
        "epoch_not_match" => error.epoch_not_match = Some(errorpb::EpochNotMatch::default()),
        "server_is_busy" => {
            error.server_is_busy = Some(errorpb::ServerIsBusy {
                reason: "busy on purpose".to_owned(),
                backoff_ms: 1,
                ..errorpb::ServerIsBusy::default()
            });
        }
        "stale_command" => error.stale_command = Some(errorpb::StaleCommand {}),
        "store_not_match" => error.store_not_match = Some(errorpb::StoreNotMatch::default()),
        "raft_entry_too_large" => error.raft_entry_too_large = Some(errorpb::RaftEntryTooLarge::default()),
        "max_timestamp_not_synced" => {
            error.max_timestamp_not_synced = Some(errorpb::MaxTimestampNotSynced {});
        }
        "read_index_not_ready" => error.read_index_not_ready = Some(errorpb::ReadIndexNotReady {}),
        "proposal_in_merging_mode" => {
            error.proposal_in_merging_mode = Some(errorpb::ProposalInMergingMode {});
        }
        "data_is_not_ready" => error.data_is_not_ready = Some(errorpb::DataIsNotReady::default()),
        "region_not_initialized" => error.region_not_initialized = Some(errorpb::RegionNotInitialized {}),
        "disk_full" => error.disk_full = Some(errorpb::DiskFull {}),
        "recovery_in_progress" => error.recovery_in_progress = Some(errorpb::RecoveryInProgress {}),
        "flashback_in_progress" => error.flashback_in_progress = Some(errorpb::FlashbackInProgress {}),
        "flashback_not_prepared" => error.flashback_not_prepared = Some(errorpb::FlashbackNotPrepared {}),
        "is_witness" => error.is_witness = Some(errorpb::IsWitness {}),
        "mismatch_peer_id" => error.mismatch_peer_id = Some(errorpb::MismatchPeerId::default()),
        "bucket_version_not_match" => {
            error.bucket_version_not_match = Some(errorpb::BucketVersionNotMatch {});
        }
        "undetermined_result" => {
            error.undetermined_result = Some(errorpb::UndeterminedResult { message: name.to_owned() });
        }
        _ => return None,
    }
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_an_error() {
        for name in REGION_ERRORS {
            let error = region_error(name).expect("the name is listed");
            assert_ne!(error, Error { message: error.message.clone(), ..Error::default() }, "{name}");
        }
    }
}
