//! The cache of regions over splits, merges, holes and stale lists.

use super::*;

fn meta(id: u64, start: &'static str, end: &'static str, version: u64) -> metapb::Region {
    let peer = |store_id: u64| metapb::Peer { id: id * 10 + store_id, store_id, ..Default::default() };
    metapb::Region {
        id,
        start_key: Bytes::from_static(start.as_bytes()),
        end_key: Bytes::from_static(end.as_bytes()),
        region_epoch: Some(metapb::RegionEpoch { conf_ver: 1, version }),
        peers: vec![peer(1), peer(2)],
    }
}

fn region(id: u64, start: &'static str, end: &'static str, version: u64) -> Region {
    Region::new(Located { region: meta(id, start, end, version), leader: None }).expect("it has peers")
}

fn cache(regions: &[(u64, &'static str, &'static str, u64)]) -> RegionCache {
    let cache = RegionCache::default();
    for (id, start, end, version) in regions {
        assert!(cache.insert(region(*id, start, end, *version)));
    }
    cache
}

/// Which region serves each of the keys; zero for none.
fn check(cache: &RegionCache, expected: &[(&'static str, u64)]) {
    for (key, id) in expected {
        let found = cache.find(&Bytes::from_static(key.as_bytes()));
        assert_eq!(found.map_or(0, |region| region.id), *id, "at {key:?}");
    }
    let known = cache.known();
    assert_eq!(known.ends.len(), known.by_end.len(), "both sides of the cache agree");
}

#[test]
fn keys_are_found_by_the_end_of_their_region() {
    let cache = cache(&[(1, "", "b", 1), (2, "b", "d", 1), (3, "f", "", 1)]);
    check(&cache, &[("", 1), ("a", 1), ("b", 2), ("c", 2), ("d", 0), ("e", 0), ("f", 3), ("zzz", 3)]);
}

#[test]
fn a_region_without_bounds_holds_everything() {
    check(&cache(&[(1, "", "", 1)]), &[("", 1), ("a", 1), ("\u{7f}", 1)]);
}

#[test]
fn a_split_replaces_the_region() {
    let cache = cache(&[(1, "", "b", 1), (2, "b", "", 3)]);
    let old = cache.find(&Bytes::from_static(b"c")).expect("it is known");
    assert!(cache.succeed(&old, vec![meta(2, "d", "", 4), meta(4, "b", "d", 4)]));
    check(&cache, &[("a", 1), ("b", 4), ("c", 4), ("d", 2), ("x", 2)]);
}

#[test]
fn successors_keep_to_the_store_that_named_them() {
    let cache = cache(&[(1, "", "", 1)]);
    let old = cache.find(&Bytes::from_static(b"c")).expect("it is known");
    assert!(cache.switch_leader(&old, old.peers[1]));
    let old = cache.find(&Bytes::from_static(b"c")).expect("it is known");
    assert_eq!(old.leader.store_id, 2);
    assert!(cache.succeed(&old, vec![meta(1, "c", "", 2), meta(2, "", "c", 2)]));
    assert_eq!(cache.find(&Bytes::from_static(b"a")).expect("it is known").leader.store_id, 2);
}

#[test]
fn a_merge_replaces_both() {
    let cache = cache(&[(1, "", "b", 5), (2, "b", "d", 3), (3, "d", "", 1)]);
    assert!(cache.insert(region(2, "", "d", 6)));
    check(&cache, &[("", 2), ("a", 2), ("c", 2), ("d", 3)]);
}

#[test]
fn what_is_stale_changes_nothing() {
    let cache = cache(&[(1, "", "b", 4), (2, "b", "", 4)]);
    assert!(!cache.insert(region(1, "", "", 3)), "the region before its split");
    check(&cache, &[("a", 1), ("b", 2)]);
    let newer = cache.find(&Bytes::from_static(b"a")).expect("it is known");
    assert!(!cache.succeed(&newer, vec![meta(1, "", "", 3)]), "the store is behind");
    check(&cache, &[("a", 1), ("b", 2)]);
    cache.invalidate(&region(1, "", "", 3));
    check(&cache, &[("a", 1)]);
    cache.invalidate(&newer);
    check(&cache, &[("a", 0), ("b", 2)]);
}

#[test]
fn a_leader_must_be_a_peer_of_the_region_as_it_is() {
    let cache = cache(&[(1, "", "", 1)]);
    let known = cache.find(&Bytes::new()).expect("it is known");
    assert!(!cache.switch_leader(&known, metapb::Peer { id: 99, store_id: 9, ..Default::default() }));
    assert!(cache.insert(region(1, "", "", 2)));
    assert!(!cache.switch_leader(&known, known.peers[1]), "of another epoch");
}

#[test]
fn a_store_that_is_away_leads_nothing() {
    let cache = cache(&[(1, "", "b", 1), (2, "b", "", 1)]);
    let first = cache.find(&Bytes::new()).expect("it is known");
    assert!(cache.switch_leader(&first, first.peers[1]));
    cache.invalidate_store(1);
    check(&cache, &[("a", 1), ("b", 0)]);
}

#[test]
fn raw_ranges_are_clipped_to_the_region() {
    let encoded = |raw: &str| key::encode(raw.as_bytes());
    let region = Region { start: encoded("b"), end: encoded("d"), ..region(1, "", "", 1) };
    let range = |start: &str, end: &str| KeyRange::new(start.to_owned(), end.to_owned());
    assert_eq!(region.clip(&range("a", "")).expect("it is encoded"), Some(range("b", "d")));
    assert_eq!(region.clip(&range("c", "cc")).expect("it is encoded"), Some(range("c", "cc")));
    assert_eq!(region.clip(&range("d", "e")).expect("it is encoded"), None);
}
