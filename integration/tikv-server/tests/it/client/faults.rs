//! Lost requests, lost answers, and region errors of every kind.

use std::time::Duration;

use store::{CommitRequest, Key, Mutation, Store, TxnStatus, TxnStatusRequest};
use tikv::proto::errorpb;
use tikv_server::{Fault, Options, Target};
use types::Timestamp;

use super::{Pair, newest};

/// Calls that a transaction and its readers make.
const CALLS: &[&str] = &["KvPrewrite", "KvCommit", "KvGet", "KvBatchGet", "KvScan", "KvCheckTxnStatus"];

/// A transaction of three keys and all kinds of reads of it.
async fn write_and_read(pair: &Pair, value: &str) {
    let commit_ts = pair.put(&[("k/1", value), ("k/2", value), ("k/3", value)]).await;
    for key in ["k/1", "k/2", "k/3"] {
        assert_eq!(pair.written(key).await, commit_ts, "{key} was written when the client says");
        assert_eq!(pair.read(key, commit_ts).await.as_deref(), Some(value));
        assert_ne!(pair.read(key, commit_ts.prev()).await.as_deref(), Some(value));
    }
    assert_eq!(pair.scan("k/", commit_ts).await.len(), 3);
    let keys = ["k/1", "k/2", "k/3"].map(Key::from);
    let found = pair.client.kv_batch_get(&keys, &newest()).await.expect("a read succeeds");
    assert_eq!(found.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_requests_and_answers_change_nothing() {
    let cuts = vec![b"k/2".to_vec()];
    let pair = Pair::start(Options { n_stores: 2, cuts, ..Options::default() }).await;
    for fault in [Fault::DropRequest, Fault::DropAnswer] {
        for call in CALLS {
            pair.cluster.plan_fault(Target::rpc(call), fault.clone(), Some(1));
            write_and_read(&pair, &format!("{call} {fault:?}")).await;
        }
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_known_in_the_end() {
    let pair = Pair::start(Options::default()).await;
    let start_ts = pair.client.timestamp().await.expect("the oracle answers");
    let primary = Key::from("p");
    let request = store::PrewriteRequest {
        mutations: vec![Mutation::put("p", "v")],
        primary: primary.clone(),
        start_ts,
        ttl_ms: 20_000,
        txn_size: 1,
        min_commit_ts: start_ts.next().expect("far from the end"),
        assertion_level: store::AssertionLevel::Strict,
        staged: false,
    };
    pair.client.prewrite(request).await.expect("the key is locked");
    pair.cluster.plan_fault(Target::rpc("KvCommit"), Fault::DropAnswer, Some(3));
    let request =
        CommitRequest { start_ts, keys: vec![primary.clone()], primary: primary.clone(), commit_ts: None };
    let commit_ts = pair.client.commit(request).await.expect("the outcome is found out");
    assert_eq!(pair.written("p").await, commit_ts);
    let request = TxnStatusRequest {
        primary,
        start_ts,
        caller_start_ts: Timestamp::ZERO,
        current_ts: start_ts,
        rollback_if_not_exist: false,
        verify_is_primary: true,
    };
    let status = pair.client.check_txn_status(&request).await.expect("the record tells");
    assert_eq!(status, TxnStatus::Committed(commit_ts));
    pair.end().await;
}

fn region_errors() -> Vec<errorpb::Error> {
    let none = errorpb::Error::default;
    vec![
        errorpb::Error { not_leader: Some(errorpb::NotLeader::default()), ..none() },
        errorpb::Error { region_not_found: Some(errorpb::RegionNotFound { region_id: 2 }), ..none() },
        errorpb::Error { key_not_in_region: Some(errorpb::KeyNotInRegion::default()), ..none() },
        errorpb::Error { epoch_not_match: Some(errorpb::EpochNotMatch::default()), ..none() },
        errorpb::Error { server_is_busy: Some(errorpb::ServerIsBusy::default()), ..none() },
        errorpb::Error { stale_command: Some(errorpb::StaleCommand {}), ..none() },
        errorpb::Error { store_not_match: Some(errorpb::StoreNotMatch::default()), ..none() },
        errorpb::Error { max_timestamp_not_synced: Some(errorpb::MaxTimestampNotSynced {}), ..none() },
        errorpb::Error { read_index_not_ready: Some(errorpb::ReadIndexNotReady {}), ..none() },
        errorpb::Error { proposal_in_merging_mode: Some(errorpb::ProposalInMergingMode {}), ..none() },
        errorpb::Error { region_not_initialized: Some(errorpb::RegionNotInitialized {}), ..none() },
        errorpb::Error { disk_full: Some(errorpb::DiskFull {}), ..none() },
        errorpb::Error { mismatch_peer_id: Some(errorpb::MismatchPeerId::default()), ..none() },
        errorpb::Error { undetermined_result: Some(errorpb::UndeterminedResult::default()), ..none() },
        errorpb::Error { message: "something newer than this client".to_owned(), ..none() },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn region_errors_of_every_kind_are_got_over() {
    let cuts = vec![b"k/2".to_vec()];
    let pair = Pair::start(Options { n_stores: 2, cuts, ..Options::default() }).await;
    for error in region_errors() {
        for call in ["KvPrewrite", "KvCommit", "KvScan", "KvBatchGet"] {
            pair.cluster.plan_fault(Target::rpc(call), Fault::Region(Box::new(error.clone())), Some(1));
        }
        write_and_read(&pair, &format!("{error:?}")).await;
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flashback_is_reported_at_once() {
    let pair = Pair::start(Options::default()).await;
    let error =
        errorpb::Error { flashback_in_progress: Some(errorpb::FlashbackInProgress {}), ..Default::default() };
    pair.cluster.plan_fault(Target::rpc("KvGet"), Fault::Region(Box::new(error)), Some(1));
    let refused = pair.client.kv_get(b"k", &newest()).await.expect_err("it is reported");
    assert!(types::Error::from(refused).message().contains("flashback"));
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_too_large_is_cut() {
    let pair = Pair::start(Options::default()).await;
    let too_large = errorpb::Error {
        raft_entry_too_large: Some(errorpb::RaftEntryTooLarge::default()),
        ..Default::default()
    };
    pair.cluster.plan_fault(Target::rpc("KvPrewrite"), Fault::Region(Box::new(too_large)), Some(2));
    let commit_ts = pair.put(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]).await;
    for key in ["a", "b", "c", "d"] {
        assert_eq!(pair.written(key).await, commit_ts);
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_goes_on_without_its_caller() {
    let pair = Pair::start(Options::default()).await;
    pair.cluster.plan_fault(Target::rpc("KvCommit"), Fault::HoldRequest, Some(1));
    let start_ts = pair.client.timestamp().await.expect("the oracle answers");
    let mutations = vec![Mutation::put("gone", "v")];
    let committing = pair.client.commit_transaction(start_ts, mutations);
    let given_up = tokio::time::timeout(Duration::from_millis(300), committing).await;
    assert!(given_up.is_err(), "the commit is held");
    pair.cluster.release_held();
    pair.client.close().await.expect("the client closes after what it had begun");
    let info = pair.cluster.store().mvcc_get(b"gone").await.expect("the engine answers");
    assert!(info.lock.is_none() && info.writes.len() == 1, "{info:?}");
    pair.end().await;
}
