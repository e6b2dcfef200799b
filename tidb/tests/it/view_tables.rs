//! The tables of views in TiDB: the DDL, the rules for keys, and what is found when somebody altered one.

use serde_json::{Value, json};
use tidb::{
    ColumnInfo, ColumnRefusal, ColumnType, KeyRefusal, NewCollations, TableInfo, TableRefusal,
    ViewDifference, adopt_view_table, check_clustered_key, view_table_ddl,
};

use crate::arbitrary::{column, table};
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
    assert_eq!(check(&vec![INT; 16]), Ok(()));
    assert_eq!(check(&vec![INT; 17]), Err(KeyRefusal::TooManyColumns(17)));
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
