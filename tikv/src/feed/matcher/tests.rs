//! Every order in which a scan and the live stream may interleave gives each version once, with its values.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn room() -> Arc<Room> {
    Room::new(1 << 20)
}

fn row(kind: LogType, start_ts: u64, commit_ts: u64, key: &str, value: &str) -> Row {
    Row {
        start_ts,
        commit_ts,
        r#type: kind.into(),
        op_type: OpType::Put.into(),
        key: Bytes::from(key.to_owned()),
        value: Bytes::from(value.to_owned()),
        ..Row::default()
    }
}

fn prewrite(start_ts: u64, key: &str, value: &str, old: &str) -> Row {
    Row { old_value: Bytes::from(old.to_owned()), ..row(LogType::Prewrite, start_ts, 0, key, value) }
}

fn delete(start_ts: u64, key: &str, old: &str) -> Row {
    Row { op_type: OpType::Delete.into(), ..prewrite(start_ts, key, "", old) }
}

fn commit(start_ts: u64, commit_ts: u64, key: &str) -> Row {
    row(LogType::Commit, start_ts, commit_ts, key, "")
}

fn short(start_ts: u64, commit_ts: u64, key: &str, value: &str) -> Row {
    row(LogType::Commit, start_ts, commit_ts, key, value)
}

fn deleted(start_ts: u64, commit_ts: u64, key: &str) -> Row {
    Row { op_type: OpType::Delete.into(), ..commit(start_ts, commit_ts, key) }
}

fn committed(start_ts: u64, commit_ts: u64, key: &str, value: &str, old: &str) -> Row {
    Row { old_value: Bytes::from(old.to_owned()), ..row(LogType::Committed, start_ts, commit_ts, key, value) }
}

fn rollback(start_ts: u64, key: &str) -> Row {
    Row { op_type: OpType::OpUnknown.into(), ..row(LogType::Rollback, start_ts, 0, key, "p") }
}

fn initialized() -> Row {
    Row { r#type: LogType::Initialized.into(), ..Row::default() }
}

/// Changes in words: `key@commit old->new`, `?` for what must be read.
fn words(matched: &[Matched]) -> Vec<String> {
    let text = |value: &Option<Bytes>| {
        value.as_ref().map_or("-".to_owned(), |value| String::from_utf8_lossy(value).into_owned())
    };
    let word = |matched: &Matched| match matched {
        Matched::Change(change) => format!(
            "{}@{} {}->{}",
            String::from_utf8_lossy(&change.key),
            change.commit_ts,
            text(&change.old_value),
            text(&change.value)
        ),
        Matched::Unread { key, commit_ts, .. } => format!("{}@{commit_ts} ?", String::from_utf8_lossy(key)),
    };
    matched.iter().map(word).collect()
}

fn run(matcher: &mut Matcher, rows: Vec<Row>) -> Vec<String> {
    let mut out = Vec::new();
    for row in rows {
        matcher.row(row, &mut out).unwrap();
    }
    words(&out)
}

fn check(rows: Vec<Row>, expected: &[&str]) {
    let mut matcher = Matcher::new(Timestamp(10), room());
    assert_eq!(run(&mut matcher, rows), expected);
    assert!(matcher.commits.is_empty() && matcher.rollbacks.is_empty());
    assert!(matcher.open.values().all(|open| !open.done));
    let room = Arc::clone(&matcher.room);
    drop(matcher);
    assert_eq!(room.n_free.load(Ordering::Relaxed), 1 << 20, "what was taken is given back");
}

#[test]
fn a_commit_follows_its_prewrite() {
    check(vec![initialized(), prewrite(11, "k", "v", "o"), commit(11, 12, "k")], &["k@12 o->v"]);
    check(vec![initialized(), delete(11, "k", "o"), deleted(11, 12, "k")], &["k@12 o->-"]);
    check(vec![initialized(), prewrite(11, "k", "v", ""), short(11, 12, "k", "v")], &["k@12 -->v"]);
}

#[test]
fn a_put_of_nothing_is_a_value() {
    check(vec![initialized(), prewrite(11, "k", "", "o"), commit(11, 12, "k")], &["k@12 o->"]);
    check(vec![prewrite(11, "k", "", "o"), commit(11, 12, "k"), initialized()], &["k@12 o->"]);
    check(vec![committed(11, 12, "k", "", ""), initialized()], &["k@12 -->"]);
}

#[test]
fn a_commit_waits_for_the_scan() {
    check(vec![commit(11, 12, "k"), prewrite(11, "k", "v", "o"), initialized()], &["k@12 o->v"]);
    check(vec![deleted(11, 12, "k"), delete(11, "k", "o"), initialized()], &["k@12 o->-"]);
    // Without a prewrite it was scanned as a version.
    check(vec![commit(11, 12, "k"), committed(11, 12, "k", "v", "o"), initialized()], &["k@12 o->v"]);
}

#[test]
fn rollbacks_before_the_end_of_the_scan_are_kept() {
    check(vec![rollback(11, "k"), prewrite(11, "k", "v", ""), initialized()], &[]);
    let mut matcher = Matcher::new(Timestamp(10), room());
    run(&mut matcher, vec![rollback(11, "k"), prewrite(11, "k", "v", ""), initialized()]);
    assert!(matcher.open.is_empty(), "the rolled back write is forgotten");
    run(&mut matcher, vec![rollback(13, "x"), prewrite(14, "y", "v", ""), rollback(14, "y")]);
    assert!(matcher.open.is_empty());
}

#[test]
fn a_stale_prewrite_of_a_committed_transaction_is_harmless() {
    let rows = vec![
        initialized(),
        prewrite(11, "k", "v", ""),
        commit(11, 12, "k"),
        prewrite(11, "k", "v", ""),
        rollback(11, "k"),
    ];
    check(rows, &["k@12 -->v"]);
}

#[test]
fn versions_come_newest_first_in_a_scan() {
    let rows = vec![
        prewrite(20, "k", "5", "4"),
        committed(17, 18, "k", "4", "3"),
        committed(15, 16, "k", "3", ""),
        committed(9, 10, "k", "old", ""),
        initialized(),
    ];
    check(rows, &["k@18 3->4", "k@16 -->3"]);
}

#[test]
fn a_later_generation_replaces_and_an_earlier_one_does_not() {
    let generation = |generation, value| Row { generation, ..prewrite(11, "k", value, "o") };
    let commits = || commit(11, 12, "k");
    check(vec![initialized(), generation(1, "a"), generation(2, "b"), commits()], &["k@12 o->b"]);
    check(vec![initialized(), generation(2, "b"), generation(1, "a"), commits()], &["k@12 o->b"]);
    check(vec![generation(2, "b"), generation(1, "a"), commits(), initialized()], &["k@12 o->b"]);
}

#[test]
fn prewrites_that_disagree_are_settled_by_the_commit() {
    let pair = || vec![prewrite(11, "k", "two", "o"), prewrite(11, "k", "one", "o")];
    let with = |more: Vec<Row>| pair().into_iter().chain(more).collect::<Vec<_>>();
    check(with(vec![short(11, 12, "k", "two"), initialized()]), &["k@12 o->two"]);
    check(with(vec![initialized(), short(11, 12, "k", "two")]), &["k@12 o->two"]);
    check(with(vec![commit(11, 12, "k"), initialized()]), &["k@12 ?"]);
    check(with(vec![initialized(), commit(11, 12, "k")]), &["k@12 ?"]);
    // The same twice is no dispute: a push sends a prewrite again.
    let twice =
        vec![prewrite(11, "k", "v", "o"), prewrite(11, "k", "v", "o"), initialized(), commit(11, 12, "k")];
    check(twice, &["k@12 o->v"]);
    // A value lost on the way does not replace one that was there.
    let emptied =
        vec![initialized(), prewrite(11, "k", "v", "o"), prewrite(11, "k", "", "o"), commit(11, 12, "k")];
    check(emptied, &["k@12 ?"]);
    let ended = vec![initialized(), prewrite(11, "k", "v", "o"), delete(11, "k", "o"), deleted(11, 12, "k")];
    check(ended, &["k@12 o->-"]);
}

#[test]
fn the_recorded_interleaving_ends_with_the_flushed_value() {
    let rows = vec![
        short(3, 14, "cl", ""),
        prewrite(12, "c", "c1", "c0"),
        short(12, 15, "c", "c1"),
        rollback(5, "r"),
        prewrite(6, "f", "two", ""),
        prewrite(13, "w", "w1", "w0"),
        short(13, 16, "w", "w1"),
        prewrite(12, "c", "c1", "c0"),
        committed(1, 11, "c", "c0", ""),
        prewrite(3, "cl", "LLL", ""),
        prewrite(6, "f", "one", ""),
        prewrite(5, "r", "r1", "r0"),
        committed(1, 11, "r", "r0", ""),
        committed(1, 11, "w", "w0", ""),
        initialized(),
        short(6, 17, "f", "two"),
    ];
    let expected = [
        "c@15 c0->c1",
        "w@16 w0->w1",
        "c@11 -->c0",
        "r@11 -->r0",
        "w@11 -->w0",
        "cl@14 -->LLL",
        "f@17 -->two",
    ];
    check(rows, &expected);
}

#[test]
fn what_commits_at_or_below_the_start_is_dropped() {
    check(vec![initialized(), prewrite(8, "k", "v", ""), commit(8, 10, "k"), commit(7, 9, "x")], &[]);
    check(vec![prewrite(8, "k", "v", ""), commit(8, 10, "k"), prewrite(8, "k", "v", ""), initialized()], &[]);
}

#[test]
fn a_commit_without_a_prewrite_ends_the_subscription() {
    let mut matcher = Matcher::new(Timestamp(10), room());
    run(&mut matcher, vec![initialized()]);
    let error = matcher.row(commit(11, 12, "k"), &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), types::ErrorKind::Unavailable);
}

#[test]
fn a_commit_below_what_is_resolved_is_loud() {
    let mut matcher = Matcher::new(Timestamp(10), room());
    assert!(!matcher.resolve(Timestamp(50)), "before the end of the scan it is somebody else's");
    run(&mut matcher, vec![initialized(), prewrite(11, "k", "v", "")]);
    assert!(matcher.resolve(Timestamp(20)));
    assert!(
        !matcher.resolve(Timestamp(20)) && !matcher.resolve(Timestamp(15)) && !matcher.resolve(Timestamp(0))
    );
    let error = matcher.row(commit(11, 20, "k"), &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), types::ErrorKind::Corrupt);
}

#[test]
fn values_without_room_are_left_to_be_read() {
    let mut matcher = Matcher::new(Timestamp(10), Room::new(6));
    let rows = vec![
        initialized(),
        prewrite(11, "a", "1234", "5"),
        prewrite(11, "b", "1234", "5"),
        commit(11, 12, "a"),
        prewrite(11, "c", "1234", "5"),
        short(11, 12, "b", "1234"),
        commit(11, 12, "c"),
    ];
    // The value of `b` is known from its commit, the one before is not.
    assert_eq!(run(&mut matcher, rows), ["a@12 5->1234", "b@12 ?", "c@12 5->1234"]);
    assert_eq!(matcher.room.n_free.load(Ordering::Relaxed), 6);
}

/// One transaction's life on a key, as the live stream tells it.
#[derive(Clone, Debug)]
enum Life {
    Commits { delete: bool, value: u8, one_pc: bool },
    RollsBack,
    StaysOpen,
}

fn life() -> impl Strategy<Value = Life> {
    prop_oneof![
        6 => (any::<bool>(), 0..4u8, any::<bool>())
            .prop_map(|(delete, value, one_pc)| Life::Commits { delete, value, one_pc }),
        1 => Just(Life::RollsBack),
        1 => Just(Life::StaysOpen),
    ]
}

/// The log of one key and what is committed in it.
fn log_of(key: &str, lives: &[Life], first_ts: u64) -> (Vec<Row>, Vec<String>) {
    let (mut log, mut expected) = (Vec::new(), Vec::new());
    let mut before = String::new();
    for (index, life) in lives.iter().enumerate() {
        let start_ts = first_ts + index as u64 * 10;
        match life {
            Life::Commits { delete: gone, value, one_pc } => {
                // Nothing, something short, or something too long for the commit to repeat.
                let value = if *gone { String::new() } else { "v".repeat(usize::from(*value) * 100) };
                let kind = if *gone { OpType::Delete } else { OpType::Put };
                let op = |row: Row| Row { op_type: kind.into(), ..row };
                let commit_ts = start_ts + 1;
                if *one_pc {
                    log.push(op(committed(start_ts, commit_ts, key, &value, &before)));
                } else {
                    log.push(op(prewrite(start_ts, key, &value, &before)));
                    let repeated = if value.len() <= 255 { value.as_str() } else { "" };
                    log.push(op(short(start_ts, commit_ts, key, repeated)));
                }
                let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
                let new = if *gone { "-".to_owned() } else { value.clone() };
                expected.push(format!("{key}@{commit_ts} {}->{new}", dash(&before)));
                before = value;
            }
            Life::RollsBack => log.extend([prewrite(start_ts, key, "x", &before), rollback(start_ts, key)]),
            Life::StaysOpen => {
                log.push(prewrite(start_ts, key, "x", &before));
                break;
            }
        }
    }
    (log, expected)
}

/// What a scan of the log's first rows finds: the lock, then versions from the newest.
fn scan_of(log: &[Row]) -> Vec<Row> {
    let mut open: BTreeMap<u64, Row> = BTreeMap::new();
    let mut versions = Vec::new();
    for row in log {
        match row.r#type() {
            LogType::Prewrite => drop(open.insert(row.start_ts, row.clone())),
            LogType::Rollback => drop(open.remove(&row.start_ts)),
            LogType::Committed => versions.push(row.clone()),
            _ => {
                let prewrite = open.remove(&row.start_ts).expect("a commit has a prewrite");
                let kind = LogType::Committed.into();
                versions.push(Row { commit_ts: row.commit_ts, r#type: kind, ..prewrite });
            }
        }
    }
    open.into_values().chain(versions.into_iter().rev()).collect()
}

proptest! {
    /// Two keys with any lives; the scan sees any prefix, the live stream begins anywhere up to its end
    /// (a snapshot may be newer than the first live row), and both interleave at random.
    #[test]
    fn any_interleaving_gives_every_version_once(
        lives in prop::collection::vec(prop::collection::vec(life(), 0..6), 1..3),
        cut in 0..1000usize,
        overlap in 0..6usize,
        coins in prop::collection::vec(any::<bool>(), 0..80),
    ) {
        let (mut early, mut live, mut scan, mut expected) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (index, lives) in lives.iter().enumerate() {
            let key = format!("k{index}");
            let (log, changes) = log_of(&key, lives, 20 + index as u64);
            let seen = cut % (log.len() + 1);
            scan.extend(scan_of(&log[..seen]));
            early.extend(log[seen.saturating_sub(overlap)..seen].to_vec());
            live.extend(log[seen..].to_vec());
            expected.extend(changes);
        }
        let mut matcher = Matcher::new(Timestamp(10), room());
        // What the scan's snapshot has too is sent before the scan's end, if at all.
        let mut n_early = early.len();
        let mut live = early.into_iter().chain(live);
        let mut scan = scan.into_iter();
        let mut rows: Vec<Row> = Vec::new();
        for from_live in coins.into_iter().chain(std::iter::repeat(false)) {
            let next = if from_live { live.next() } else { None };
            n_early -= usize::from(next.is_some() && n_early > 0);
            match next.or_else(|| scan.next()) {
                Some(row) => rows.push(row),
                None => break,
            }
        }
        rows.extend(live.by_ref().take(n_early));
        rows.push(initialized());
        rows.extend(live);
        let mut got = run(&mut matcher, rows);
        got.sort();
        got.dedup();
        expected.sort();
        prop_assert_eq!(got, expected);
    }
}
