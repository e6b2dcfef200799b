//! Pages over several buffers read like one.

use proptest::prelude::*;

use super::*;

fn change(commit_ts: u64, key: &str) -> Change {
    Change {
        key: Bytes::from(key.to_owned()),
        start_ts: Timestamp(commit_ts - 1),
        commit_ts: Timestamp(commit_ts),
        value: Some(Bytes::from_static(b"v")),
        old_value: None,
    }
}

fn range(start: &str, end: &str) -> KeyRange {
    KeyRange::new(start.to_owned(), end.to_owned())
}

#[test]
fn ranges_are_put_in_order_and_overlaps_joined() {
    let ranges = [range("m", "p"), range("b", "d"), range("c", "e"), range("x", "x"), range("n", "o")];
    assert_eq!(merged(&ranges), [range("b", "e"), range("m", "p")]);
    assert_eq!(merged(&[range("m", ""), range("a", "n"), range("z", "")]), [range("a", "")]);
    // Neighbours stay apart: each may be followed by itself.
    assert_eq!(merged(&[range("a", "b"), range("b", "c")]), [range("a", "b"), range("b", "c")]);
}

proptest! {
    #[test]
    fn pages_are_one_sequence(
        changes in prop::collection::btree_set((11..30u64, 0..9u8), 0..60),
        limit in 1..12usize,
        memory_bytes_max in 0..2_000usize,
        to in 10..30u64,
    ) {
        let ranges = [range("k0", "k3"), range("k3", "k4"), range("k6", "")];
        let options = BufferOptions { memory_bytes_max, disk_bytes_max: 1 << 20, directory: None };
        let mut sources = Vec::new();
        for range in &ranges {
            let mut buffer = Buffer::new(options.clone(), Timestamp(10));
            // Each holds more than its range, as the buffer of a wider tail does.
            for (ts, key) in &changes {
                buffer.push(change(*ts, &format!("k{key}"))).unwrap();
            }
            sources.push((range.clone(), SharedBuffer::new(buffer)));
        }
        let mut got = Vec::new();
        let mut next = Some((Timestamp(11), Bytes::new()));
        while let Some(begin) = next {
            let page = page(&sources, &begin, Timestamp(to), limit).unwrap();
            prop_assert!(page.changes.len() <= limit && (!page.changes.is_empty() || page.next.is_none()));
            got.extend(page.changes);
            next = page.next;
        }
        let inside = |key: &u8| *key < 4 || *key >= 6;
        let expected: Vec<Change> = changes
            .iter()
            .filter(|(ts, key)| *ts <= to && inside(key))
            .map(|(ts, key)| change(*ts, &format!("k{key}")))
            .collect();
        prop_assert_eq!(got, expected);
    }
}
