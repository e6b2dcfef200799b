//! Keys of the meta range: bytes by hand, round trips, noise.

use proptest::collection::vec;
use proptest::prelude::*;
use tidb::{MetaDatabase, MetaDiff, MetaKey, database_range, databases_range, meta_number, meta_range};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check(key: &MetaKey, expected: &str) {
    assert_eq!(hex(&key.encode()), expected.replace(' ', ""), "{key:?}");
    assert_eq!(MetaKey::decode(&key.encode()).unwrap(), *key);
}

/// 6d is `m`; names stand in groups of eight with the marker ff, the last with f7 + its bytes; 73 is `s`, 68
/// is `h`, in eight bytes.
#[test]
fn keys_are_names_in_groups() {
    // "SchemaVe" "rsionKey" and an empty group.
    check(
        &MetaKey::SchemaVersion,
        "6d 536368656d615665ff 7273696f6e4b6579ff 0000000000000000f7 0000000000000073",
    );
    // "NextGlob" "alID": 4 bytes, marker f7 + 4 = fb.
    check(&MetaKey::NextGlobalId, "6d 4e657874476c6f62ff 616c494400000000fb 0000000000000073");
    // "Diff:7": 6 bytes, marker fd.
    check(&MetaKey::Diff(7), "6d 446966663a370000fd 0000000000000073");
    // "DBs" and "DB:1": markers fa and fb.
    check(&MetaKey::Database(1), "6d 4442730000000000fa 0000000000000068 44423a3100000000fb");
    // "DB:1" and "Table:10": 8 bytes are a full group and an empty one.
    check(
        &MetaKey::Table { database: 1, table: 10 },
        "6d 44423a3100000000fb 0000000000000068 5461626c653a3130ff 0000000000000000f7",
    );
}

#[test]
fn ranges_hold_the_fields_of_one_hash() {
    let range = databases_range();
    assert_eq!(hex(&range.start), "6d4442730000000000fa0000000000000068");
    assert_eq!(hex(&range.end), "6d4442730000000000fa0000000000000069");
    let range = database_range(1);
    assert_eq!(hex(&range.start), "6d44423a3100000000fb0000000000000068");
    assert_eq!(hex(&range.end), "6d44423a3100000000fb0000000000000069");
    let inside = |key: MetaKey| range.start <= key.encode() && key.encode() < range.end;
    assert!(inside(MetaKey::Table { database: 1, table: i64::MAX }));
    assert!(inside(MetaKey::Field { hash: b"DB:1".to_vec(), field: b"TID:10".to_vec() }));
    assert!(!inside(MetaKey::Table { database: 10, table: 1 }));
    assert!(!inside(MetaKey::Database(1)));
    let all = meta_range();
    assert_eq!((hex(&all.start), hex(&all.end)), ("6d".into(), "6e".into()));
}

#[test]
fn what_nobody_needs_is_noise_with_all_its_bytes() {
    for (hash, field) in [("DB:1", "TID:10"), ("DB:1", "IID:10"), ("DB:1", "TARID:10"), ("DB:x", "Table:1")] {
        let key = MetaKey::Field { hash: hash.into(), field: field.into() };
        assert!(key.is_noise());
        assert_eq!(MetaKey::decode(&key.encode()).unwrap(), key);
    }
    // A list: the kind is `L`.
    let list = MetaKey::Kind { name: b"DDLJobList".to_vec(), kind: u64::from(b'L'), rest: Vec::new() };
    assert_eq!(MetaKey::decode(&list.encode()).unwrap(), list);
    // Numbers that TiDB would not write so: another key than the one with that number.
    for field in ["Table:01", "Table:+1", "Table:", "Table:1 ", "Table:99999999999999999999"] {
        let key = MetaKey::Field { hash: b"DB:1".to_vec(), field: field.into() };
        assert_eq!(MetaKey::decode(&key.encode()).unwrap(), key);
    }
}

#[test]
fn other_keys_are_errors() {
    for key in [&b""[..], b"m", b"t", &tidb::record_key(1, &tidb::Handle::Int(1))] {
        assert!(MetaKey::decode(key).is_err(), "{key:?}");
    }
    let longer = |key: MetaKey| [key.encode().as_slice(), &[0]].concat();
    assert!(MetaKey::decode(&longer(MetaKey::SchemaVersion)).is_err());
    assert!(MetaKey::decode(&longer(MetaKey::Database(1))).is_err());
}

#[test]
fn values_under_meta_keys() {
    assert_eq!(meta_number(b"73").unwrap(), 73);
    for bad in [&b""[..], b"7x", b"+7", b"\xff"] {
        assert!(meta_number(bad).is_err());
    }
    let database = MetaDatabase::parse(
        br#"{"id":2,"db_name":{"O":"Shop","L":"shop"},"charset":"utf8mb4","collate":"utf8mb4_bin",
             "state":5,"policy_ref_info":null}"#,
    )
    .unwrap();
    assert_eq!((database.id, database.name.as_str(), database.state), (2, "Shop", tidb::STATE_PUBLIC));
    let old_form = MetaDatabase::parse(br#"{"id":2,"db_name":"shop"}"#).unwrap();
    assert_eq!(old_form.name, "shop");
    let diff = MetaDiff::parse(
        br#"{"version":9,"type":11,"schema_id":2,"table_id":104,"old_table_id":100,"old_schema_id":0,
             "regenerate_schema_map":false,"affected_options":null}"#,
    )
    .unwrap();
    assert_eq!((diff.version, diff.action, diff.table_id, diff.old_table_id), (9, 11, 104, 100));
    assert!(MetaDatabase::parse(b"").is_err());
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(500))]

    #[test]
    fn keys_come_back(database in any::<i64>(), table in any::<i64>(), version in any::<i64>()) {
        for key in [MetaKey::Diff(version), MetaKey::Database(database), MetaKey::Table { database, table }] {
            prop_assert_eq!(MetaKey::decode(&key.encode()).unwrap(), key);
        }
    }

    /// Whatever decodes encodes to the same bytes again, so nothing is lost of any key.
    #[test]
    fn any_key_keeps_its_bytes(
        name in prop_oneof![vec(any::<u8>(), 0..20), Just(b"DBs".to_vec()), Just(b"DB:7".to_vec())],
        kind in prop_oneof![any::<u8>(), Just(b's'), Just(b'h')],
        rest in vec(any::<u8>(), 0..20),
    ) {
        let key = MetaKey::Kind { name, kind: kind.into(), rest }.encode();
        if let Ok(decoded) = MetaKey::decode(&key) {
            prop_assert_eq!(decoded.encode(), key);
        }
    }

    #[test]
    fn bytes_never_panic(bytes in vec(any::<u8>(), 0..40)) {
        let _ = MetaKey::decode(&bytes);
        let _ = MetaKey::decode(&[b"m", bytes.as_slice()].concat());
        let _ = meta_number(&bytes);
        let _ = MetaDatabase::parse(&bytes);
        let _ = MetaDiff::parse(&bytes);
        let _ = tidb::MetaTable::parse(&bytes);
    }
}
