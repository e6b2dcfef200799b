//! A buffer with hardly any memory reads like one with much.

use proptest::prelude::*;

use super::*;

fn buffer(memory_bytes_max: usize) -> Buffer {
    Buffer::new(BufferOptions { memory_bytes_max, disk_bytes_max: 4096, directory: None }, Timestamp(10))
}

fn change(commit_ts: u64, key: &str, value: Option<&str>, old_value: Option<&str>) -> Change {
    let bytes = |text: &str| Bytes::from(text.to_owned());
    Change {
        key: bytes(key),
        start_ts: Timestamp(commit_ts - 1),
        commit_ts: Timestamp(commit_ts),
        value: value.map(bytes),
        old_value: old_value.map(bytes),
    }
}

fn all(buffer: &Buffer, from: u64, to: u64, limit: usize) -> Vec<Change> {
    let (mut all, mut next) = (Vec::new(), Some((Timestamp(from + 1), Bytes::new())));
    while let Some(position) = next {
        let (page, following) = buffer.read(&position, Timestamp(to), &KeyRange::all(), limit).unwrap();
        assert!(page.len() <= limit && (!page.is_empty() || following.is_none()));
        all.extend(page);
        next = following;
    }
    all
}

#[test]
fn files_keep_what_is_empty_apart_from_what_is_not_there() {
    let mut buffer = buffer(0);
    let changes = [
        change(11, "a", Some(""), None),
        change(11, "b", None, Some("")),
        change(12, "a", Some("x"), Some("")),
        change(13, "a", None, None),
    ];
    for change in changes.iter().rev() {
        buffer.push(change.clone()).unwrap();
    }
    assert_eq!(all(&buffer, 10, 100, 3), changes);
    assert!(buffer.n_disk_bytes() > 0);
}

#[test]
fn a_range_selects_and_the_end_is_inclusive() {
    let mut buffer = buffer(1 << 20);
    for (ts, key) in [(11, "a"), (12, "b"), (12, "c"), (13, "b")] {
        buffer.push(change(ts, key, Some("v"), None)).unwrap();
    }
    let from = (Timestamp(11), Bytes::new());
    let (page, next) = buffer.read(&from, Timestamp(12), &KeyRange::new("b", "c"), 5).unwrap();
    assert_eq!((page, next), (vec![change(12, "b", Some("v"), None)], None));
}

#[test]
fn what_is_trimmed_does_not_come_back() {
    for memory in [0, 1 << 20] {
        let mut buffer = buffer(memory);
        for ts in 11..20 {
            buffer.push(change(ts, "k", Some("v"), None)).unwrap();
        }
        assert_eq!(buffer.least().unwrap(), Some(Timestamp(11)));
        buffer.trim(Timestamp(15));
        assert_eq!(buffer.least().unwrap(), Some(Timestamp(16)));
        buffer.push(change(15, "k", Some("v"), None)).unwrap();
        assert_eq!(all(&buffer, 10, 100, 2).len(), 4);
        buffer.trim(Timestamp(19));
        assert_eq!((buffer.n_disk_bytes(), buffer.n_memory_bytes), (0, 0));
        assert_eq!(buffer.least().unwrap(), None);
        buffer.trim(Timestamp::MAX);
    }
}

#[test]
fn a_buffer_says_when_it_is_full() {
    let mut buffer = buffer(0);
    let long = "v".repeat(2000);
    for ts in 11..14 {
        buffer.push(change(ts, "k", Some(&long), None)).unwrap();
    }
    assert!(buffer.is_full() && !buffer.has_room());
    buffer.trim(Timestamp(12));
    assert!(!buffer.is_full() && buffer.has_room() == (buffer.n_disk_bytes() <= 2048));
}

#[test]
fn a_change_keeps_no_message_alive() {
    let message = Bytes::from(vec![7; 1 << 20]);
    let mut buffer = buffer(1 << 20);
    let small =
        Change { key: message.slice(..4), value: Some(message.slice(4..9)), ..change(11, "", None, None) };
    buffer.push(small.clone()).unwrap();
    let held = &all(&buffer, 10, 100, 1)[0];
    assert_eq!(*held, small);
    assert!(!message.as_ptr_range().contains(&held.key.as_ptr()));
}

proptest! {
    #[test]
    fn any_memory_and_any_page_give_the_same(
        changes in prop::collection::vec((11..40u64, 0..6u8, 0..300usize), 0..120),
        memory in 0..4000usize,
        limit in 1..9usize,
        trims in prop::collection::vec((0..120usize, 10..40u64), 0..3),
        from in 10..40u64,
        to in 10..40u64,
    ) {
        let mut buffer = buffer(memory);
        let mut model: BTreeMap<(u64, String), Change> = BTreeMap::new();
        let mut floor = 10;
        for (index, (commit_ts, key, length)) in changes.into_iter().enumerate() {
            for (_, ts) in trims.iter().filter(|trim| trim.0 == index) {
                buffer.trim(Timestamp(*ts));
                floor = floor.max(*ts);
                model.retain(|position, _| position.0 > *ts);
            }
            let key = format!("k{key}");
            // A version says the same whenever it comes.
            let length = length * usize::from(!model.contains_key(&(commit_ts, key.clone())));
            let new = model.get(&(commit_ts, key.clone())).cloned();
            let new = new.unwrap_or_else(|| change(commit_ts, &key, Some(&"v".repeat(length)), None));
            buffer.push(new.clone()).unwrap();
            if commit_ts > floor {
                model.insert((commit_ts, key), new);
            }
        }
        let from = from.max(floor);
        let expected: Vec<Change> =
            model.into_values().filter(|one| one.commit_ts.0 > from && one.commit_ts.0 <= to).collect();
        prop_assert_eq!(all(&buffer, from, to, limit), expected);
    }
}
