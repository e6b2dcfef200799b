//! The tables of views in TiDB: the DDL, the rules for keys, and what is found when somebody altered one.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidb::{
    ColumnInfo, ColumnRefusal, ColumnType, KeyRefusal, NewCollations, RowDecoder, RowEncoder, SourceTable,
    TableInfo, TableRefusal, ViewDifference, adopt_view_table, check_clustered_key, view_table_ddl,
};

use crate::arbitrary::{column, table, table_and_rows};
use crate::meta_json::{
    KEY_FLAGS, column as meta_column, field_type, index, int_column, parsed, partitions, table_json,
    varchar_column,
};

const INT: ColumnType = ColumnType::Int { bits: 32, unsigned: false };

fn not_null(id: i64, name: &str, column_type: ColumnType) -> ColumnInfo {
    ColumnInfo { not_null: true, ..column(id, name, column_type) }
}

#[test]
fn the_ddl_says_everything() {
    let columns = vec![
        column(1, "k", ColumnType::Varchar(10)),
        column(2, "o`dd", ColumnType::Int { bits: 64, unsigned: true }),
        column(3, "d", ColumnType::Decimal { precision: 20, scale: 4 }),
        column(4, "t", ColumnType::Text(u32::MAX)),
        column(5, "b", ColumnType::Blob(300)),
        column(6, "s", ColumnType::Timestamp(3)),
    ];
    assert_eq!(
        view_table_ddl("shop", &table(columns, &[0, 1])).unwrap(),
        "CREATE TABLE `shop`.`t` (\
         `k` VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
         `o``dd` BIGINT UNSIGNED NOT NULL, \
         `d` DECIMAL(20,4) NULL, \
         `t` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL, \
         `b` BLOB NULL, \
         `s` TIMESTAMP(3) NULL, \
         PRIMARY KEY (`k`, `o``dd`) /*T![clustered_index] CLUSTERED */\
         ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
    );
    assert_eq!(
        view_table_ddl("shop", &table(vec![column(1, "a", INT)], &[])).unwrap(),
        "CREATE TABLE `shop`.`t` (`a` INT NULL) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
    );
}

#[test]
fn what_tidb_would_refuse_is_refused_here() {
    let refused = |columns: Vec<ColumnInfo>| view_table_ddl("shop", &table(columns, &[])).is_err();
    assert!(refused(vec![column(1, "_TIDB_rowid", INT)]));
    assert!(refused(vec![column(1, "trailing ", INT)]));
    assert!(refused(vec![column(1, "", INT)]));
    assert!(refused(vec![column(1, &"n".repeat(65), INT)]));
    assert!(!refused(vec![column(1, &"é".repeat(64), INT)]));
    assert!(refused(vec![]));
    assert!(refused(vec![column(1, "a", ColumnType::Varchar(16_384))]));
    assert!(refused((0..1018).map(|id| column(id + 1, &format!("c{id}"), INT)).collect()));
    assert!(view_table_ddl("", &table(vec![column(1, "a", INT)], &[])).is_err());
}

#[test]
fn keys_are_not_null_not_long_and_of_few_columns() {
    let columns = |types: &[ColumnType]| -> Vec<ColumnInfo> {
        let named = types.iter().enumerate();
        named.map(|(at, found)| not_null(at as i64 + 1, &format!("c{at}"), found.clone())).collect()
    };
    let check =
        |types: &[ColumnType]| check_clustered_key(&columns(types), &(0..types.len()).collect::<Vec<_>>());
    // Four bytes a character: 768 * 4 = 3072.
    assert_eq!(check(&[ColumnType::Varchar(768)]), Ok(()));
    assert_eq!(check(&[ColumnType::Varchar(769)]), Err(KeyRefusal::TooLong(3076)));
    assert_eq!(check(&[ColumnType::Varchar(768), INT]), Err(KeyRefusal::TooLong(3076)));
    assert_eq!(check(&[ColumnType::Varbinary(3072)]), Ok(()));
    assert_eq!(check(&[ColumnType::Text(255)]), Err(KeyRefusal::Type("c0".into())));
    assert_eq!(check(&[INT, ColumnType::Blob(255)]), Err(KeyRefusal::Type("c1".into())));
    assert_eq!(check(&[INT; 16]), Ok(()));
    assert_eq!(check(&[INT; 17]), Err(KeyRefusal::TooManyColumns(17)));
    assert_eq!(check_clustered_key(&[column(1, "n", INT)], &[0]), Err(KeyRefusal::Nullable("n".into())));
    assert_eq!(check_clustered_key(&columns(&[INT]), &[0, 0]), Err(KeyRefusal::Twice("c0".into())));
    assert_eq!(check_clustered_key(&columns(&[INT]), &[1]), Err(KeyRefusal::NoColumn(1)));
}

/// A view of `k` VARCHAR(10) and `n` INT, both the key, and `v` DECIMAL(10,2).
fn view() -> TableInfo {
    let columns = vec![
        column(1, "k", ColumnType::Varchar(10)),
        column(2, "n", INT),
        column(3, "v", ColumnType::Decimal { precision: 10, scale: 2 }),
    ];
    table(columns, &[0, 1])
}

fn created() -> Value {
    let columns = vec![
        varchar_column(11, "k", KEY_FLAGS, 10, "utf8mb4_bin"),
        int_column(12, "n", KEY_FLAGS),
        meta_column(13, "v", field_type(246, 0, 10, 2, "binary")),
    ];
    let extra = json!({
        "is_common_handle": true, "common_handle_version": 1,
        "index_info": [index("PRIMARY", true, &[(0, -1), (1, -1)])]
    });
    table_json(columns, extra)
}

fn verify(expected: &TableInfo, actual: &Value) -> Result<(), Vec<ViewDifference>> {
    tidb::verify_view_table(expected, &parsed(actual), NewCollations::On)
}

fn differences(change: impl FnOnce(&mut Value)) -> Vec<ViewDifference> {
    let mut table = created();
    change(&mut table);
    verify(&view(), &table).err().unwrap_or_default()
}

#[test]
fn the_table_as_created_is_the_views_and_gives_the_ids() {
    assert_eq!(differences(|_| {}), []);
    let adopted = adopt_view_table(&view(), &parsed(&created()), NewCollations::On).unwrap();
    assert_eq!((adopted.id, adopted.name.as_str()), (100, "T"));
    let ids: Vec<i64> = adopted.columns.iter().map(|column| column.id).collect();
    assert_eq!(ids, [11, 12, 13]);
    assert_eq!(adopted.primary_key, [0, 1]);
}

/// A cluster that compares by bytes would look for other keys than those with sort keys.
#[test]
fn texts_need_the_new_collations() {
    let differences = tidb::verify_view_table(&view(), &parsed(&created()), NewCollations::Off).unwrap_err();
    let refused = ViewDifference::Refused { column: "k".into(), refusal: ColumnRefusal::OldCollations };
    assert_eq!(differences, [refused]);
}

#[test]
fn what_does_not_matter() {
    assert_eq!(differences(|table| table["comment"] = json!("hello")), []);
    assert_eq!(differences(|table| table["tiflash_replica"] = json!({"Count": 2})), []);
    assert_eq!(differences(|table| table["stats_options"] = json!({"auto_recalc": true})), []);
}

#[test]
fn altered_columns_are_found() {
    let name = || "v".to_owned();
    assert_eq!(
        differences(|table| table["cols"][2]["name"] = json!("w")),
        [ViewDifference::Missing(name()), ViewDifference::Extra("w".into()), ViewDifference::Order]
    );
    assert_eq!(
        differences(|table| table["cols"][2]["type"]["Flen"] = json!(12)),
        [ViewDifference::Type {
            column: name(),
            expected: ColumnType::Decimal { precision: 10, scale: 2 },
            found: ColumnType::Decimal { precision: 12, scale: 2 },
        }]
    );
    assert_eq!(
        differences(|table| table["cols"][0]["type"]["Collate"] = json!("utf8_bin")),
        [ViewDifference::Collation { column: "k".into(), found: "utf8_bin".into() }]
    );
    assert_eq!(
        differences(|table| table["cols"][2]["type"]["Flag"] = json!(1)),
        [ViewDifference::Nullability(name())]
    );
    for change in [("generated_expr_string", json!("`n`")), ("generated_stored", json!(true))] {
        let expected =
            if change.0 == "generated_expr_string" { vec![ViewDifference::Computed(name())] } else { vec![] };
        assert_eq!(differences(|table| table["cols"][2][change.0] = change.1.clone()), expected);
    }
    for flag in [512, 8192] {
        assert_eq!(
            differences(|table| table["cols"][2]["type"]["Flag"] = json!(flag)),
            [ViewDifference::Computed(name())]
        );
    }
    assert_eq!(
        differences(|table| table["cols"][2]["default"] = json!("1.00")),
        [ViewDifference::Default(name())]
    );
    assert_eq!(
        differences(|table| table["cols"][2]["changing_type"] = field_type(5, 0, 22, -1, "binary")),
        [ViewDifference::Changing(name())]
    );
    let add_column = |state: u8| {
        move |table: &mut Value| {
            let mut extra = int_column(14, "x", 0);
            extra["offset"] = json!(3);
            extra["state"] = json!(state);
            table["cols"].as_array_mut().unwrap().push(extra);
        }
    };
    // Also while it is being added.
    for state in [5, 1] {
        assert_eq!(differences(add_column(state)), [ViewDifference::Extra("x".into())]);
    }
}

#[test]
fn another_key_is_found() {
    let key = |found: &[&str]| ViewDifference::Key {
        expected: vec!["k".into(), "n".into()],
        found: found.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(
        differences(|table| table["index_info"] = json!([index("PRIMARY", true, &[(1, -1), (0, -1)])])),
        [key(&["n", "k"])]
    );
    assert_eq!(
        differences(|table| table["index_info"] = json!([index("PRIMARY", true, &[(0, 3), (1, -1)])])),
        [key(&["k(3)", "n"])]
    );
    // NONCLUSTERED: an index beside a hidden handle.
    assert_eq!(
        differences(|table| table["is_common_handle"] = json!(false)),
        [key(&[]), ViewDifference::Index("PRIMARY".into())]
    );
    // A view without a key must not get one.
    let keyless = table(vec![column(1, "n", INT)], &[]);
    let meta = table_json(vec![int_column(1, "n", 0)], json!({}));
    assert_eq!(verify(&keyless, &meta), Ok(()));
    let mut keyed = meta.clone();
    keyed["pk_is_handle"] = json!(true);
    keyed["cols"][0]["type"]["Flag"] = json!(KEY_FLAGS);
    assert!(verify(&keyless, &keyed).is_err());
    // A key of one integer is the handle.
    let handle = table(vec![column(1, "n", INT)], &[0]);
    assert_eq!(verify(&handle, &keyed), Ok(()));
    assert!(verify(&handle, &meta).is_err());
}

#[test]
fn whatever_else_writing_rows_would_break_is_found() {
    let add_index = |table: &mut Value| {
        table["index_info"].as_array_mut().unwrap().push(index("i", false, &[(2, -1)]));
    };
    assert_eq!(differences(add_index), [ViewDifference::Index("i".into())]);
    assert_eq!(differences(|table| table["fk_info"] = json!([{"id": 1}])), [ViewDifference::ForeignKeys]);
    assert_eq!(
        differences(|table| table["constraint_info"] = json!([{"id": 1}])),
        [ViewDifference::Constraints]
    );
    assert_eq!(differences(|table| table["partition"] = partitions(&[7])), [ViewDifference::Partitioned]);
    assert_eq!(differences(|table| table["ttl_info"] = json!({"column": "n"})), [ViewDifference::TimeToLive]);
    for (field, value, refusal) in [
        ("cache_table_status", json!(1), TableRefusal::Cached),
        ("temp_table_type", json!(1), TableRefusal::Temporary),
        ("state", json!(2), TableRefusal::NotPublic(2)),
        ("exchange_partition_info", json!({}), TableRefusal::Exchanging),
    ] {
        assert_eq!(differences(|table| table[field] = value), [ViewDifference::Table(refusal)]);
    }
}

/// A column of the type as TiDB writes it down.
fn written(id: i64, column: &ColumnInfo, is_key: bool) -> Value {
    let (tp, flags, flen, decimal, collate) = match column.column_type {
        ColumnType::Int { bits, unsigned } => {
            let tp = match bits {
                8 => 1,
                16 => 2,
                24 => 9,
                32 => 3,
                _ => 8,
            };
            (tp, if unsigned { 32 } else { 0 }, 11, 0, "binary")
        }
        ColumnType::Float => (4, 128, 12, -1, "binary"),
        ColumnType::Double => (5, 128, 22, -1, "binary"),
        ColumnType::Decimal { precision, scale } => (246, 128, precision.into(), scale.into(), "binary"),
        ColumnType::Char(n) => (254, 0, n.into(), 0, "utf8mb4_bin"),
        ColumnType::Varchar(n) => (15, 0, n.into(), 0, "utf8mb4_bin"),
        ColumnType::Text(n) => (252, 0, n.into(), 0, "utf8mb4_bin"),
        ColumnType::Binary(n) => (254, 128, n.into(), 0, "binary"),
        ColumnType::Varbinary(n) => (15, 128, n.into(), 0, "binary"),
        ColumnType::Blob(n) => (252, 128, n.into(), 0, "binary"),
        ColumnType::Date => (10, 128, 10, 0, "binary"),
        ColumnType::Datetime(fsp) => (12, 128, 19, fsp.into(), "binary"),
        ColumnType::Timestamp(fsp) => (7, 128, 19, fsp.into(), "binary"),
    };
    let flags = flags | u64::from(column.not_null) | if is_key { 2 } else { 0 };
    meta_column(id, &column.name, field_type(tp, flags, flen, decimal, collate))
}

/// The definition that TiDB makes of a view's table.
fn created_of(view: &TableInfo, first_id: i64) -> Value {
    let columns = view.columns.iter().enumerate();
    let columns =
        columns.map(|(at, column)| written(first_id + at as i64, column, view.primary_key.contains(&at)));
    let key: Vec<(usize, i64)> = view.primary_key.iter().map(|at| (*at, -1)).collect();
    let is_common = !key.is_empty() && !view.pk_is_handle;
    let indexes = if is_common { json!([index("PRIMARY", true, &key)]) } else { json!(null) };
    let extra =
        json!({"pk_is_handle": view.pk_is_handle, "is_common_handle": is_common, "index_info": indexes});
    table_json(columns.collect(), extra)
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(100))]

    /// Any view: TiDB's table of it is its table, and what is written to it reads as a table of TiDB.
    #[test]
    fn views_are_tables_of_tidb((view, batch) in table_and_rows(), first_id in 1_i64..400) {
        prop_assert!(view_table_ddl("d", &view).is_ok());
        let meta = parsed(&created_of(&view, first_id));
        let adopted = adopt_view_table(&view, &meta, NewCollations::On).unwrap();
        let source = SourceTable::from_meta(&meta, NewCollations::On).unwrap();
        prop_assert!(source.refused.is_empty());
        prop_assert_eq!(&source.info.primary_key, &adopted.primary_key);
        let handles: Option<Vec<i64>> =
            adopted.primary_key.is_empty().then(|| (0..batch.num_rows() as i64).collect());
        let rows = RowEncoder::new(&adopted).unwrap().encode_batch(&batch, handles.as_deref()).unwrap();
        let all: Vec<usize> = (0..source.info.columns.len()).collect();
        let mut decoder = RowDecoder::new(&source.info, &all).unwrap();
        for (key, value) in &rows {
            // With a checksum and without.
            let mut summed = value.clone();
            tidb::append_checksum(key, &mut summed).unwrap();
            decoder.append(key, &summed).unwrap();
        }
        let read = decoder.finish().unwrap();
        let again = RowEncoder::new(&adopted).unwrap().encode_batch(&read, handles.as_deref()).unwrap();
        prop_assert_eq!(again, rows);
    }

    /// A bit that changed in a row or its handle is found by the checksum, or leaves no row at all.
    #[test]
    fn a_changed_bit_is_found((view, batch) in table_and_rows(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let encoder = RowEncoder::new(&view).unwrap();
        for row in 0..batch.num_rows() {
            let handle = view.primary_key.is_empty().then_some(7);
            let (mut key, mut value) = encoder.encode(&batch, row, handle).unwrap();
            tidb::append_checksum(&key, &mut value).unwrap();
            // The handle and the row up to its last value; the checksum's own header and flag say how to
            // check, so they are not asked.
            let n_handle = key.len() - 11;
            let at = at.index(n_handle + value.len() - 5);
            let good = |key: &[u8], value: &[u8]| tidb::RowView::parse(key, value).is_ok();
            prop_assert!(good(&key, &value));
            if at < n_handle {
                key[11 + at] ^= 1 << bit;
            } else if at - n_handle != 1 {
                value[at - n_handle] ^= 1 << bit;
            } else {
                continue;
            }
            prop_assert!(!good(&key, &value));
        }
    }
}

#[test]
fn names_of_tables_that_are_no_views_are_told_apart() {
    let names = [tidb::fill_table_name(7), tidb::old_table_name(449_000_000_000_000_001)];
    assert_eq!(names, ["_tidemill_fill_7", "_tidemill_old_449000000000000001"]);
    assert!(names.iter().all(|name| tidb::is_reserved_table_name(name)));
    assert!(tidb::is_reserved_table_name("_TIDEMILL_FILL_7") && !tidb::is_reserved_table_name("fill_7"));
}
