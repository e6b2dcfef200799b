//! The machine's transcripts: one for each row of the table of deaths and each rule of an epoch.

use crate::transcript::{check, check_with_oracle};

/// Generation 5 is running one worker; the frontier is epoch 4 with cut 20, committed at 26.
const ONE_WORKER: &str = "
    w0 takes-over workers 1
    -> draw a start
    store: timestamp 25
    -> read the record at 25, ending locks
    store: record 4 cut 20 generation 4 definitions 0
    -> prewrite under 25 min 26: epoch 4 cut 20 generation 5 definitions 0
    store: prewritten
    -> commit 25
    store: committed 26
    -> hold 20
    -> w0.takes-over: generation 5 after epoch 4 cut 20 at 26
";

/// The same with two workers.
const TWO_WORKERS: &str = "
    w0 takes-over workers 2
    -> draw a start
    store: timestamp 25
    -> read the record at 25, ending locks
    store: record 4 cut 20 generation 4 definitions 0
    -> prewrite under 25 min 26: epoch 4 cut 20 generation 5 definitions 0
    store: prewritten
    -> commit 25
    store: committed 26
    -> hold 20
    -> w0.takes-over: generation 5 after epoch 4 cut 20 at 26
";

/// Epoch 5 with cut 30 is prewritten under 40 by the one worker.
const PREWRITTEN: &str = "
    w0 opens
    -> take the read timestamp
    store: timestamp 30
    -> w0.opens: epoch 5 cut 30
    w0 seals 5
    -> draw a start
    store: timestamp 40
    -> read the record at 40
    store: record 4 cut 20 generation 5 definitions 0
    -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
    store: prewritten
    -> heartbeat 40
    -> w0.seals: go under 40 min 41
";

/// Epoch 5 with cut 30 is prewritten under 40 by two workers.
const BOTH_PREWRITTEN: &str = "
    w0 opens
    -> take the read timestamp
    store: timestamp 30
    -> w0.opens: epoch 5 cut 30
    w0 seals 5
    w1 seals 5
    -> draw a start
    store: timestamp 40
    -> read the record at 40
    store: record 4 cut 20 generation 5 definitions 0
    -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
    store: prewritten
    -> heartbeat 40
    -> w0.seals: go under 40 min 41
    -> w1.seals: go under 40 min 41
";

/// ... and its commit is under way.
const COMMITTING: &str = "
    w0 votes done for 5 under 40
    -> w0.votes: ok
    -> commit 40
    w0 awaits 5 under 40
";

fn story(parts: &[&str]) {
    check(&parts.concat());
}

#[test]
fn a_worker_that_waits_for_an_epoch_is_told_its_cut_which_then_stands() {
    story(&[
        TWO_WORKERS,
        "
        w1 looks-for 6
        -> w1.looks-for: Invalid
        w1 looks-for 5
        nothing-outstanding
        w0 opens at 30
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        -> w1.looks-for: epoch 5 cut 30
        w0 opens at 29
        -> w0.opens: Invalid
        w1 looks-for 5
        -> w1.looks-for: epoch 5 cut 30
        ",
    ]);
}

#[test]
fn a_worker_that_gives_up_ends_the_run_at_any_point() {
    story(&[
        TWO_WORKERS,
        "w1 looks-for 5\nw0 gives-up it\n-> w1.looks-for: Conflict\n-> w0.gives-up: given up\n",
    ]);
    story(&[
        TWO_WORKERS,
        BOTH_PREWRITTEN,
        "
        w0 votes done for 5 under 40
        -> w0.votes: ok
        w0 awaits 5 under 40
        w1 gives-up it
        -> stop heartbeat
        -> w0.awaits: Conflict
        -> w1.gives-up: given up
        # Whether the transaction commits is for the next take-over to decide, at its primary.
        nothing-outstanding
        w0 opens
        -> w0.opens: Conflict
        ",
    ]);
}

#[test]
fn an_epoch_is_decided_by_its_primary_after_the_last_vote() {
    story(&[
        TWO_WORKERS,
        "
        w0 opens
        -> take the read timestamp
        # The other worker asks while the cut is being taken, and later again: one epoch, one cut.
        w1 opens
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        -> w1.opens: epoch 5 cut 30
        w1 opens
        -> w1.opens: epoch 5 cut 30
        waits-for: waiting for worker 0, 1 to seal
        # No start is drawn before everybody has sealed.
        w1 seals 5
        nothing-outstanding
        waits-for: waiting for worker 0 to seal
        w0 seals 5
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: record 4 cut 20 generation 5 definitions 0
        # The primary first, alone: nobody is told to go yet.
        -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
        store: prewritten
        -> heartbeat 40
        -> w0.seals: go under 40 min 41
        -> w1.seals: go under 40 min 41
        waits-for: waiting for worker 0, 1 to vote
        w0 votes done for 5 under 40
        -> w0.votes: ok
        w0 awaits 5 under 40
        # No commit timestamp exists before the last vote.
        nothing-outstanding
        w1 votes done for 5 under 40
        -> w1.votes: ok
        -> commit 40
        w1 awaits 5 under 40
        store: committed 50
        -> stop heartbeat
        -> hold 30
        -> w0.awaits: decided at 50
        -> w1.awaits: decided at 50
        # A decision never changes: who asks again is told the same.
        w1 awaits 5 under 40
        -> w1.awaits: decided at 50
        w0 opens
        -> take the read timestamp
        store: timestamp 55
        -> w0.opens: epoch 6 cut 55
        ",
    ]);
}

#[test]
fn repeated_calls_change_nothing() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        "
        # The answer to sealed was lost: it is given again, nothing is prewritten again.
        w0 seals 5
        -> w0.seals: go under 40 min 41
        w0 opens
        -> w0.opens: epoch 5 cut 30
        w0 votes done for 5 under 40
        -> w0.votes: ok
        -> commit 40
        w0 votes done for 5 under 40
        -> w0.votes: ok
        # A vote is not taken back.
        w0 votes no for 5 under 40
        -> w0.votes: Invalid
        store: committed 50
        -> stop heartbeat
        -> hold 30
        w0 votes done for 5 under 40
        -> w0.votes: ok
        w0 awaits 5 under 40
        -> w0.awaits: decided at 50
        # Late reports about an epoch that is over.
        w0 seals 5
        -> w0.seals: Invalid
        w0 aborts 5
        -> w0.aborts: Conflict
        nothing-outstanding
        ",
    ]);
}

#[test]
fn calls_that_make_no_sense_are_refused_and_change_nothing() {
    story(&[
        ONE_WORKER,
        "
        w0 takes-over workers 0
        -> w0.takes-over: Invalid
        w0 seals 5
        -> w0.seals: Invalid
        w0 votes done for 5 under 40
        -> w0.votes: Invalid
        w0 awaits 5 under 40
        -> w0.awaits: Invalid
        w0 aborts 6
        -> w0.aborts: Invalid
        w0/g9 opens
        -> w0/g9.opens: Conflict
        ",
        PREWRITTEN,
        "
        w1 seals 5
        -> w1.seals: Invalid
        w7 votes done for 5 under 40
        -> w7.votes: Invalid
        w0 votes done for 5 under 39
        -> w0.votes: Invalid
        w0 awaits 5 under 39
        -> w0.awaits: Invalid
        # What was sealed stands, faults too.
        w0 seals 5 faulting 7
        -> w0.seals: Invalid
        w0 opens at 31
        -> w0.opens: Invalid
        nothing-outstanding
        ",
    ]);
}

#[test]
fn a_cut_lies_between_the_frontier_and_now_and_may_be_taken_again_until_somebody_seals() {
    story(&[
        TWO_WORKERS,
        "
        w0 opens at 99
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: Invalid
        w0 opens at 19
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: Invalid
        # The pieces of a fill have one cut.
        w0 opens at 20
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 20
        w0 opens at 31
        -> take the read timestamp
        store: timestamp 32
        -> w0.opens: epoch 5 cut 31
        w1 opens
        -> w1.opens: epoch 5 cut 31
        w0 seals 5
        w1 opens at 32
        -> w1.opens: Invalid
        w1 opens at 31
        -> w1.opens: epoch 5 cut 31
        # The store is away while a cut is wanted: the caller repeats the call.
        ",
    ]);
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: silence
        -> w0.opens: Unavailable
        w0 opens
        -> take the read timestamp
        # A store that goes back is broken.
        store: timestamp 19
        -> w0.opens: Corrupt
        ",
    ]);
}

#[test]
fn faults_of_one_worker_reach_all() {
    story(&[
        TWO_WORKERS,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w1 seals 5 faulting 9 faulting 7
        w0 seals 5
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
        store: prewritten
        -> heartbeat 40
        -> w0.seals: go under 40 min 41 fault 7 by-1 fault 9 by-1
        -> w1.seals: go under 40 min 41 fault 7 by-1 fault 9 by-1
        ",
    ]);
}

// --- Who dies, when, and what becomes of it.

#[test]
fn a_worker_dies_before_its_vote_and_the_next_generation_rolls_the_epoch_back() {
    story(&[
        TWO_WORKERS,
        BOTH_PREWRITTEN,
        "
        w0 votes done for 5 under 40
        -> w0.votes: ok
        w0 awaits 5 under 40
        # Worker 1 is dead. Whoever supervises the job starts a new run; the old one is over at once.
        w0 takes-over workers 2
        -> stop heartbeat
        -> w0.awaits: Fenced
        -> draw a start
        store: timestamp 60
        # Reading the record ends the lock of transaction 40 for good.
        -> read the record at 60, ending locks
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 60 min 61: epoch 4 cut 20 generation 6 definitions 0
        # Until it is there, the old run hears that it is deposed.
        w0/g5 awaits 5 under 40
        -> w0/g5.awaits: Fenced
        store: prewritten
        -> commit 60
        store: committed 70
        -> hold 20
        -> w0.takes-over: generation 6 after epoch 4 cut 20 at 70
        # The dead worker was only asleep. It votes; nobody listens.
        w1/g5 votes done for 5 under 40
        -> w1/g5.votes: Fenced
        nothing-outstanding
        w0 opens
        -> take the read timestamp
        store: timestamp 71
        -> w0.opens: epoch 5 cut 71
        ",
    ]);
}

#[test]
fn a_worker_dies_after_its_vote_and_before_the_decision() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        # The new run takes over while the commit is under way: it wins or loses at the primary.
        w0 takes-over workers 1
        -> stop heartbeat
        -> w0.awaits: Fenced
        -> draw a start
        # The commit's answer is not the new run's business.
        stale: committed 50
        store: timestamp 60
        -> read the record at 60, ending locks
        # It had won: the frontier is epoch 5.
        store: record 5 cut 30 generation 5 definitions 0
        -> prewrite under 60 min 61: epoch 5 cut 30 generation 6 definitions 0
        store: prewritten
        -> commit 60
        store: committed 61
        -> hold 30
        -> w0.takes-over: generation 6 after epoch 5 cut 30 at 61
        ",
    ]);
}

#[test]
fn a_coordinator_dies_before_the_commit_and_its_successor_knows_no_run() {
    check(
        "
        # A new process: workers of the old run are told to take over.
        w0/g5 awaits 5 under 40
        -> w0/g5.awaits: Conflict
        w0/g5 votes done for 5 under 40
        -> w0/g5.votes: Conflict
        waits-for: waiting for a take-over
        w0 takes-over workers 1
        -> draw a start
        store: timestamp 60
        -> read the record at 60, ending locks
        store: record 4 cut 20 generation 5 definitions 3
        -> prewrite under 60 min 61: epoch 4 cut 20 generation 6 definitions 3
        store: prewritten
        -> commit 60
        store: committed 61
        -> hold 20
        -> w0.takes-over: generation 6 after epoch 4 cut 20 at 61
        ",
    );
}

#[test]
fn a_coordinator_dies_after_the_commit_and_its_successor_resumes_behind_it() {
    check(
        "
        w0 takes-over workers 1
        -> draw a start
        store: timestamp 60
        -> read the record at 60, ending locks
        store: record 5 cut 30 generation 5 definitions 0
        -> prewrite under 60 min 61: epoch 5 cut 30 generation 6 definitions 0
        store: prewritten
        -> commit 60
        store: committed 61
        -> hold 30
        -> w0.takes-over: generation 6 after epoch 5 cut 30 at 61
        w0 opens
        -> take the read timestamp
        store: timestamp 65
        -> w0.opens: epoch 6 cut 65
        ",
    );
}

#[test]
fn the_store_dies_and_returns_without_the_staged_locks() {
    story(&[
        TWO_WORKERS,
        BOTH_PREWRITTEN,
        "
        w0 votes done for 5 under 40
        -> w0.votes: ok
        w0 awaits 5 under 40
        # The owner of the store is gone. Before anything else its successor is asked about the primary.
        heartbeat: silence 40
        -> ask after 40
        # Meanwhile the last vote arrives. It must not lead to a commit, nor to a new prewrite.
        w1 votes done for 5 under 40
        -> w1.votes: ok
        w1 awaits 5 under 40
        store: it left no trace
        # Ended explicitly, so that no late request of ours brings the lock back without the others.
        -> end 40
        store: it is rolled back
        -> stop heartbeat
        -> w0.awaits: retry
        -> w1.awaits: retry
        w0 seals 5 after 40
        w1 seals 5 after 40
        -> draw a start, again 1
        store: timestamp 60
        -> read the record at 60
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 60 min 61: epoch 5 cut 30 generation 5 definitions 0
        ",
    ]);
}

#[test]
fn the_store_dies_and_returns_with_the_locks() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        "
        heartbeat: silence 40
        -> ask after 40
        store: silence
        -> ask after 40
        w0 votes done for 5 under 40
        -> w0.votes: ok
        store: it lives
        # The vote came in between.
        -> commit 40
        ",
    ]);
}

// --- Lost answers are unknown.

#[test]
fn a_lost_answer_to_the_commit_is_asked_after_and_was_a_commit() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        store: silence
        -> ask after 40
        waits-for: asking the primary what became of the transaction
        store: it committed at 50
        -> stop heartbeat
        -> hold 30
        -> w0.awaits: decided at 50
        ",
    ]);
}

#[test]
fn a_lost_commit_is_sent_again_and_its_timestamp_is_asked_for() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        store: silence
        -> ask after 40
        store: it lives
        -> commit 40
        # The first request may have arrived meanwhile: success says that, not when.
        store: committed 53
        -> ask after 40
        store: it committed at 51
        -> stop heartbeat
        -> hold 30
        -> w0.awaits: decided at 51
        ",
    ]);
}

#[test]
fn a_lost_commit_whose_lock_is_gone_was_rolled_back() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        store: silence
        -> ask after 40
        store: it lives
        -> commit 40
        store: lock gone
        # That is a strong hint, not an answer.
        -> end 40
        store: it is rolled back
        -> stop heartbeat
        -> w0.awaits: retry
        ",
    ]);
}

#[test]
fn a_commit_that_finds_no_lock_may_still_have_been_done_before() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        store: lock gone
        -> end 40
        store: silence
        -> end 40
        store: it committed at 50
        -> stop heartbeat
        -> hold 30
        -> w0.awaits: decided at 50
        ",
    ]);
}

#[test]
fn a_lost_prewrite_is_never_sent_twice_under_one_start() {
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 seals 5
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
        store: silence
        -> ask after 40
        store: it left no trace
        -> end 40
        store: it is rolled back
        # Nobody was told to go: the reports stand, and the record is read again.
        -> draw a start, again 1
        store: timestamp 44
        -> read the record at 44
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 44 min 45: epoch 5 cut 30 generation 5 definitions 0
        store: silence
        -> ask after 44
        # This one had arrived; only its answer was lost.
        store: it lives
        -> heartbeat 44
        -> w0.seals: go under 44 min 45
        ",
    ]);
}

#[test]
fn the_store_is_away_before_anything_is_at_stake() {
    story(&[
        TWO_WORKERS,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 seals 5
        w1 seals 5
        -> draw a start
        store: silence
        -> w0.seals: Unavailable
        -> w1.seals: Unavailable
        # What they sealed stands; who repeats the call first starts it again.
        w1 seals 5
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: silence
        -> w1.seals: Unavailable
        w0 seals 5
        -> draw a start
        store: timestamp 41
        -> read the record at 41
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 41 min 42: epoch 5 cut 30 generation 5 definitions 0
        w1 seals 5
        store: prewritten
        -> heartbeat 41
        -> w0.seals: go under 41 min 42
        -> w1.seals: go under 41 min 42
        ",
    ]);
}

#[test]
fn a_commit_timestamp_that_cannot_be_drawn_leaves_the_epoch_prewritten() {
    check_with_oracle(
        &[
            ORACLE_PREWRITTEN,
            "
            w0 votes done for 5 under 40
            -> w0.votes: ok
            -> draw a commit timestamp
            store: silence
            -> ask after 40
            store: it lives
            -> draw a commit timestamp
            store: timestamp 50
            -> commit 40 at 50
            store: silence
            -> ask after 40
            store: it lives
            # The same timestamp again: two may not be on their way.
            -> commit 40 at 50
            store: committed 50
            -> ask after 40
            store: it committed at 50
            -> stop heartbeat
            -> hold 30
            ",
        ]
        .concat(),
    );
}

/// The oracle draws: one worker, epoch 5 prewritten under 40.
const ORACLE_PREWRITTEN: &str = "
    w0 takes-over workers 1
    -> draw a start
    store: timestamp 25
    -> read the record at 25, ending locks
    store: record 4 cut 20 generation 4 definitions 0
    -> prewrite under 25 min 26: epoch 4 cut 20 generation 5 definitions 0
    store: prewritten
    -> draw a commit timestamp
    store: timestamp 26
    -> commit 25 at 26
    store: committed 26
    -> hold 20
    -> w0.takes-over: generation 5 after epoch 4 cut 20 at 26
    w0 opens
    -> take the read timestamp
    store: timestamp 30
    -> w0.opens: epoch 5 cut 30
    w0 seals 5
    -> draw a start
    store: timestamp 40
    -> read the record at 40
    store: record 4 cut 20 generation 5 definitions 0
    -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
    store: prewritten
    -> heartbeat 40
    -> w0.seals: go under 40 min 41
";

// --- Refusals.

#[test]
fn after_eight_refusals_the_epoch_is_tried_under_a_new_unpushable_start() {
    let mut refused = ORACLE_PREWRITTEN.to_owned();
    refused += "
        w0 votes done for 5 under 40
        -> w0.votes: ok
        -> draw a commit timestamp
        w0 awaits 5 under 40
    ";
    for attempt in 0..7 {
        let commit_ts = 50 + attempt;
        refused += &format!(
            "
            store: timestamp {commit_ts}
            -> commit 40 at {commit_ts}
            store: expired
            -> draw a commit timestamp
            "
        );
    }
    refused += "
        store: timestamp 57
        -> commit 40 at 57
        store: expired
        # The eighth: rolled back explicitly, never left to its time to live.
        -> end 40
        store: it is rolled back
        -> stop heartbeat
        -> w0.awaits: retry
        # The same mutations and cut, under locks that no reader pushes.
        w0 seals 5 after 40
        -> draw a start, again 1
        store: timestamp 60
        -> read the record at 60
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 60 min 0: epoch 5 cut 30 generation 5 definitions 0
        store: prewritten
        -> heartbeat 60
        -> w0.seals: go under 60 min 0
        w0 votes done for 5 under 60
        -> w0.votes: ok
        -> draw a commit timestamp
        store: timestamp 70
        -> commit 60 at 70
        w0 awaits 5 under 60
        store: committed 70
        -> stop heartbeat
        -> hold 30
        -> w0.awaits: decided at 70
        # Both starts are remembered as what they were.
        w0 awaits 5 under 40
        -> w0.awaits: retry
    ";
    check_with_oracle(&refused);
}

#[test]
fn a_store_that_draws_itself_is_asked_again_after_a_refusal() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        store: expired
        -> commit 40
        # Two commits were sent, though the first was refused: the record knows.
        store: committed 50
        -> ask after 40
        store: it committed at 50
        -> stop heartbeat
        -> hold 30
        -> w0.awaits: decided at 50
        ",
    ]);
}

// --- A new start.

#[test]
fn a_new_start_waits_until_nothing_of_the_old_one_is_in_flight() {
    story(&[
        TWO_WORKERS,
        BOTH_PREWRITTEN,
        "
        # Worker 0 met a conflict and gives up; worker 1 is still prewriting.
        w0 votes no for 5 under 40
        -> w0.votes: ok
        -> end 40
        w0 awaits 5 under 40
        store: it is rolled back
        -> stop heartbeat
        -> w0.awaits: retry
        w0 seals 5 after 40
        nothing-outstanding
        waits-for: waiting for worker 1 to end its requests
        # Worker 1 may not report before it has voted.
        w1 seals 5 after 40
        -> w1.seals: Invalid
        nothing-outstanding
        w1 votes done for 5 under 40
        -> w1.votes: ok
        w1 awaits 5 under 40
        -> w1.awaits: retry
        nothing-outstanding
        # A report of the first try that arrives late is not one of the second.
        w1 seals 5
        -> w1.seals: Invalid
        nothing-outstanding
        w1 seals 5 after 40
        -> draw a start, again 1
        store: timestamp 60
        -> read the record at 60
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 60 min 61: epoch 5 cut 30 generation 5 definitions 0
        ",
    ]);
}

#[test]
fn an_expired_lock_that_a_reader_rolled_back_leads_to_a_new_start() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        "
        heartbeat: gone 40
        -> end 40
        store: it is rolled back
        -> stop heartbeat
        # The worker hears of it when it asks; it may still be prewriting.
        waits-for: waiting for worker 0 to end its requests
        w0 votes done for 5 under 40
        -> w0.votes: ok
        w0 awaits 5 under 40
        -> w0.awaits: retry
        w0 seals 5 after 40
        -> draw a start, again 1
        ",
    ]);
}

#[test]
fn heartbeats_of_another_transaction_or_during_the_commit_are_nothing() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        "
        heartbeat: gone 39
        ",
        COMMITTING,
        "
        heartbeat: gone 40
        store: committed 50
        -> stop heartbeat
        -> hold 30
        -> w0.awaits: decided at 50
        heartbeat: gone 40
        ",
    ]);
}

// --- Fencing.

#[test]
fn a_zombie_is_fenced_by_the_record_however_new_its_start() {
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        # It sleeps for a year. Another coordinator has taken over; our start is newer than all it did.
        w0 seals 5
        -> draw a start
        store: timestamp 999999
        -> read the record at 999999
        store: record 4 cut 20 generation 6 definitions 0
        # Nothing is prewritten, nothing asked for.
        -> stop heartbeat
        -> w0.seals: Fenced
        nothing-outstanding
        w0 opens
        -> w0.opens: Fenced
        w0 seals 5
        -> w0.seals: Fenced
        ",
    ]);
}

#[test]
fn a_record_of_our_generation_with_another_epoch_or_cut_fences_too() {
    for record in [
        "record 5 cut 30 generation 5 definitions 0",
        "record 3 cut 10 generation 5 definitions 0",
        "record 4 cut 21 generation 5 definitions 0",
        "record 4 cut 20 generation 4 definitions 0",
        "no record",
    ] {
        let seen = format!(
            "
            w0 opens
            -> take the read timestamp
            store: timestamp 30
            -> w0.opens: epoch 5 cut 30
            w0 seals 5
            -> draw a start
            store: timestamp 40
            -> read the record at 40
            store: {record}
            -> stop heartbeat
            -> w0.seals: Fenced
            nothing-outstanding
            "
        );
        story(&[ONE_WORKER, &seen]);
    }
}

#[test]
fn a_conflict_on_the_record_is_explained_before_anything_else() {
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 seals 5
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
        # Between the read and the prewrite somebody rewrote the record.
        store: conflict
        -> end 40
        store: it is rolled back
        -> draw a start, again 1
        store: timestamp 46
        -> read the record at 46
        # It was a take-over.
        store: record 4 cut 20 generation 6 definitions 0
        -> stop heartbeat
        -> w0.seals: Fenced
        ",
    ]);
}

#[test]
fn a_take_over_ends_an_epoch_that_its_own_coordinator_still_believes_in() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        # Another coordinator has rolled transaction 40 back and written generation 6.
        store: lock gone
        -> end 40
        store: it is rolled back
        -> stop heartbeat
        -> w0.awaits: retry
        w0 seals 5 after 40
        -> draw a start, again 1
        store: timestamp 80
        -> read the record at 80
        store: record 4 cut 20 generation 6 definitions 0
        -> stop heartbeat
        -> w0.seals: Fenced
        ",
    ]);
}

#[test]
fn two_take_overs_at_once_and_the_later_one_stays() {
    story(&[
        ONE_WORKER,
        "
        w0 takes-over workers 1
        -> draw a start
        store: timestamp 60
        -> read the record at 60, ending locks
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 60 min 61: epoch 4 cut 20 generation 6 definitions 0
        # A second one deposes the first while its prewrite is on the way.
        w1 takes-over workers 2
        -> w0.takes-over: Fenced
        -> draw a start
        stale: prewritten
        store: timestamp 65
        -> read the record at 65, ending locks
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 65 min 66: epoch 4 cut 20 generation 6 definitions 0
        # The first prewrite arrived in between after all.
        store: conflict
        -> end 65
        store: it is rolled back
        -> draw a start, again 1
        store: timestamp 67
        -> read the record at 67, ending locks
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 67 min 68: epoch 4 cut 20 generation 6 definitions 0
        store: prewritten
        -> commit 67
        # Its own answers get lost, too.
        store: silence
        -> ask after 67
        store: it committed at 68
        -> hold 20
        -> w1.takes-over: generation 6 after epoch 4 cut 20 at 68
        ",
    ]);
}

#[test]
fn a_take_over_of_a_job_without_a_record_is_refused() {
    check(
        "
        w0 takes-over workers 1
        -> draw a start
        store: timestamp 60
        -> read the record at 60, ending locks
        store: no record
        -> w0.takes-over: Invalid
        w0/g1 opens
        -> w0/g1.opens: Conflict
        w0 takes-over workers 1
        -> draw a start
        store: silence
        -> w0.takes-over: Unavailable
        nothing-outstanding
        ",
    );
}

// --- DDL.

#[test]
fn newer_definitions_are_not_fencing_and_the_workers_load_them_first() {
    story(&[
        TWO_WORKERS,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 seals 5
        w1 seals 5
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: record 4 cut 20 generation 5 definitions 2
        # Nothing was prewritten: the start is given up without a trace.
        -> w0.seals: definitions 2 at 40
        -> w1.seals: definitions 2 at 40
        nothing-outstanding
        # A worker that has not heard of it yet is told at once.
        w0 seals 5
        -> w0.seals: definitions 2 at 40
        w0 seals 5 with 2
        w1 seals 5 with 2
        -> draw a start
        store: timestamp 50
        -> read the record at 50
        store: record 4 cut 20 generation 5 definitions 2
        -> prewrite under 50 min 51: epoch 5 cut 30 generation 5 definitions 2
        store: prewritten
        -> heartbeat 50
        -> w0.seals: go under 50 min 51
        -> w1.seals: go under 50 min 51
        ",
    ]);
}

#[test]
fn ddl_between_the_read_and_the_prewrite_is_a_conflict_and_then_newer_definitions() {
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 seals 5
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
        store: conflict
        -> end 40
        store: it is rolled back
        -> draw a start, again 1
        store: timestamp 46
        -> read the record at 46
        store: record 4 cut 20 generation 5 definitions 1
        -> w0.seals: definitions 1 at 46
        w0 seals 5 with 1
        -> draw a start, again 1
        store: timestamp 50
        -> read the record at 50
        store: record 4 cut 20 generation 5 definitions 1
        -> prewrite under 50 min 51: epoch 5 cut 30 generation 5 definitions 1
        ",
    ]);
}

#[test]
fn definitions_that_nobody_wrote_are_an_error() {
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 seals 5 with 3
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: record 4 cut 20 generation 5 definitions 2
        -> stop heartbeat
        -> w0.seals: Corrupt
        ",
    ]);
}

// --- Giving up.

#[test]
fn an_epoch_that_nobody_sealed_is_given_up_without_ado() {
    story(&[
        ONE_WORKER,
        "
        w0 aborts 5
        -> w0.aborts: aborted
        w0 opens
        -> take the read timestamp
        w0 aborts 5
        -> w0.opens: Conflict
        -> w0.aborts: aborted
        # The old question's answer opens nothing.
        nothing-outstanding
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 aborts 5
        -> w0.aborts: aborted
        w0 opens
        -> take the read timestamp
        store: timestamp 35
        -> w0.opens: epoch 5 cut 35
        ",
    ]);
}

#[test]
fn an_aborted_epoch_is_rolled_back_at_its_primary_and_ends_the_run() {
    story(&[
        TWO_WORKERS,
        BOTH_PREWRITTEN,
        "
        w0 votes done for 5 under 40
        -> w0.votes: ok
        w0 awaits 5 under 40
        w1 aborts 5
        -> end 40
        # Not before it is known.
        w1 seals 5
        -> w1.seals: Conflict
        store: it is rolled back
        -> stop heartbeat
        -> w0.awaits: Conflict
        -> w1.aborts: aborted
        w1 aborts 5
        -> w1.aborts: aborted
        w0 opens
        -> w0.opens: Conflict
        w1 votes done for 5 under 40
        -> w1.votes: Conflict
        ",
    ]);
}

#[test]
fn an_abort_while_a_start_is_drawn_leaves_nothing_behind() {
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 seals 5
        -> draw a start
        w0 aborts 5
        -> stop heartbeat
        -> w0.seals: Conflict
        -> w0.aborts: aborted
        nothing-outstanding
        ",
    ]);
}

#[test]
fn an_abort_during_the_prewrite_blocks_it_for_good() {
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 30
        -> w0.opens: epoch 5 cut 30
        w0 seals 5
        -> draw a start
        store: timestamp 40
        -> read the record at 40
        store: record 4 cut 20 generation 5 definitions 0
        -> prewrite under 40 min 41: epoch 5 cut 30 generation 5 definitions 0
        w0 aborts 5
        -> end 40
        stale: prewritten
        store: it is rolled back
        -> stop heartbeat
        -> w0.seals: Conflict
        -> w0.aborts: aborted
        ",
    ]);
}

#[test]
fn an_abort_that_comes_too_late_is_told_so() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        w0 aborts 5
        -> end 40
        stale: committed 50
        store: it committed at 50
        -> stop heartbeat
        -> hold 30
        -> w0.awaits: decided at 50
        -> w0.aborts: Conflict
        w0 opens
        -> take the read timestamp
        ",
    ]);
}

// --- A broken store.

#[test]
fn a_store_that_breaks_ends_the_run_with_its_error() {
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        # Poisoned by a failed sync: the outcome is known only to its next owner.
        store: closes
        -> stop heartbeat
        -> w0.awaits: Closed
        w0 awaits 5 under 40
        -> w0.awaits: Closed
        w0 takes-over workers 1
        -> draw a start
        ",
    ]);
}

#[test]
fn answers_that_no_correct_store_gives_are_corrupt() {
    // A start at or below the frontier's commit.
    story(&[
        ONE_WORKER,
        "
        w0 opens
        -> take the read timestamp
        store: timestamp 24
        -> w0.opens: epoch 5 cut 24
        w0 seals 5
        -> draw a start
        store: timestamp 26
        -> stop heartbeat
        -> w0.seals: Corrupt
        ",
    ]);
    // A commit at or below its start.
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        COMMITTING,
        "
        store: committed 40
        -> stop heartbeat
        -> w0.awaits: Corrupt
        ",
    ]);
    // Committed before anybody voted.
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        "
        heartbeat: gone 40
        -> end 40
        store: it committed at 45
        -> stop heartbeat
        w0 votes done for 5 under 40
        -> w0.votes: Corrupt
        ",
    ]);
    // A transaction that lives on after it was ended.
    story(&[
        ONE_WORKER,
        PREWRITTEN,
        "
        heartbeat: gone 40
        -> end 40
        store: it lives
        -> stop heartbeat
        w0 opens
        -> w0.opens: Corrupt
        ",
    ]);
}
