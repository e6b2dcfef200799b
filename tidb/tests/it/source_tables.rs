//! What Tidemill makes of definitions of TiDB: columns of each type, keys, partitions, and what is refused.

use arrow::array::AsArray;
use arrow::datatypes::TimestampMicrosecondType;
use proptest::prelude::*;
use serde_json::{Value, json};
use tidb::{
    ColumnRefusal, ColumnType, MetaTable, NewCollations, RowDecoder, SourceTable, TableRefusal, record_key,
};

use crate::meta_json::{
    KEY_FLAGS, column, field_type, index, int_column, keyed, parsed, partitions, table_json, varchar_column,
};

fn source(table: &Value) -> Result<SourceTable, TableRefusal> {
    SourceTable::from_meta(&parsed(table), NewCollations::On)
}

fn type_of(tp: u8, flag: u64, flen: i64, decimal: i64, collate: &str) -> Result<ColumnType, ColumnRefusal> {
    let table = table_json(vec![column(1, "c", field_type(tp, flag, flen, decimal, collate))], json!({}));
    let mut source = source(&table).unwrap();
    match source.refused.pop() {
        Some(refused) => Err(refused.refusal),
        None => Ok(source.info.columns.remove(0).column_type),
    }
}

#[test]
fn types_are_those_of_mysqls_numbers() {
    let int = |bits, unsigned| ColumnType::Int { bits, unsigned };
    for (tp, bits) in [(1, 8), (2, 16), (9, 24), (3, 32), (8, 64)] {
        assert_eq!(type_of(tp, 0, 11, 0, "binary"), Ok(int(bits, false)));
        // Unsigned is 32, zerofill 64.
        assert_eq!(type_of(tp, 32 | 64, 11, 0, "binary"), Ok(int(bits, true)));
    }
    assert_eq!(type_of(4, 0, 12, -1, "binary"), Ok(ColumnType::Float));
    assert_eq!(type_of(5, 0, 22, -1, "binary"), Ok(ColumnType::Double));
    assert_eq!(type_of(246, 0, 10, 2, "binary"), Ok(ColumnType::Decimal { precision: 10, scale: 2 }));
    assert_eq!(type_of(246, 0, -1, -1, "binary"), Ok(ColumnType::Decimal { precision: 10, scale: 0 }));
    assert_eq!(type_of(254, 0, 5, 0, "utf8mb4_bin"), Ok(ColumnType::Char(5)));
    assert_eq!(type_of(15, 0, 20, 0, "utf8mb4_bin"), Ok(ColumnType::Varchar(20)));
    assert_eq!(type_of(253, 0, 20, 0, "UTF8_BIN"), Ok(ColumnType::Varchar(20)));
    assert_eq!(type_of(15, 0, 20, 0, "ascii_bin"), Ok(ColumnType::Varchar(20)));
    assert_eq!(type_of(15, 0, 20, 0, "latin1_bin"), Ok(ColumnType::Varchar(20)));
    // Without a collation of its own a column has the table's.
    assert_eq!(type_of(15, 0, 20, 0, ""), Ok(ColumnType::Varchar(20)));
    assert_eq!(type_of(254, 128, 5, 0, "binary"), Ok(ColumnType::Binary(5)));
    assert_eq!(type_of(15, 128, 20, 0, "binary"), Ok(ColumnType::Varbinary(20)));
    assert_eq!(type_of(252, 0, 65_535, 0, "utf8mb4_bin"), Ok(ColumnType::Text(65_535)));
    assert_eq!(type_of(251, 0, 4_294_967_295, 0, "utf8mb4_bin"), Ok(ColumnType::Text(u32::MAX)));
    assert_eq!(type_of(249, 128, -1, 0, "binary"), Ok(ColumnType::Blob(255)));
    assert_eq!(type_of(250, 128, 0, 0, "binary"), Ok(ColumnType::Blob(16_777_215)));
    assert_eq!(type_of(10, 128, 10, 0, "binary"), Ok(ColumnType::Date));
    assert_eq!(type_of(12, 128, 26, 6, "binary"), Ok(ColumnType::Datetime(6)));
    assert_eq!(type_of(12, 128, 19, -1, "binary"), Ok(ColumnType::Datetime(0)));
    assert_eq!(type_of(7, 128, 23, 3, "binary"), Ok(ColumnType::Timestamp(3)));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (tp, name) in [
        (11, "TIME"),
        (13, "YEAR"),
        (16, "BIT"),
        (225, "VECTOR"),
        (245, "JSON"),
        (247, "ENUM"),
        (248, "SET"),
        (255, "GEOMETRY"),
    ] {
        assert_eq!(type_of(tp, 0, 4, 0, "binary"), Err(ColumnRefusal::Type(name.into())));
    }
    assert_eq!(type_of(77, 0, 4, 0, "binary"), Err(ColumnRefusal::Type("number 77 with length 4".into())));
    assert_eq!(type_of(246, 0, 66, 2, "binary"), Err(ColumnRefusal::Type("DECIMAL(66,2)".into())));
    assert_eq!(type_of(246, 0, 2, 3, "binary"), Err(ColumnRefusal::Type("DECIMAL(2,3)".into())));
    assert_eq!(type_of(12, 0, 2, 7, "binary"), Err(ColumnRefusal::Type("DATETIME(7)".into())));
    for name in [
        "utf8mb4_general_ci",
        "utf8mb4_unicode_ci",
        "utf8mb4_0900_ai_ci",
        "utf8mb4_0900_bin",
        "gbk_bin",
        "klingon_ci",
    ] {
        assert_eq!(type_of(15, 0, 20, 0, name), Err(ColumnRefusal::Collation(name.into())));
    }
    let old = SourceTable::from_meta(&parsed(&keyed()), NewCollations::Off).unwrap();
    assert_eq!(old.refusal_of("S").unwrap().refusal, ColumnRefusal::OldCollations);
    assert_eq!(old.info.columns.len(), 3);
}

#[test]
fn a_refused_column_leaves_the_others() {
    let mut table = keyed();
    table["cols"][1]["type"]["Tp"] = json!(245);
    let source = source(&table).unwrap();
    let names: Vec<&str> = source.info.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "s", "d"]);
    assert_eq!(source.info.primary_key, [0]);
    let refused = source.refusal_of("A").unwrap();
    assert_eq!((refused.name.as_str(), refused.position), ("a", 1));
    let error = refused.refusal.of_column("T", "a");
    assert_eq!(error.message(), "column `a` of table `T` has the type JSON, which is not supported");
    assert_eq!(error.mysql_code(), Some(1235));
}

#[test]
fn only_public_columns_are_there_in_order_of_offsets() {
    let mut table = keyed();
    // `a` is still being added; `d` was moved before `s`.
    table["cols"][1]["state"] = json!(3);
    table["cols"][2]["offset"] = json!(3);
    table["cols"][3]["offset"] = json!(2);
    // A column of an index over an expression.
    table["cols"].as_array_mut().unwrap().push(int_column(9, "_V$_i_0", 0));
    table["cols"][4]["offset"] = json!(4);
    table["cols"][4]["hidden"] = json!(true);
    table["cols"][4]["generated_expr_string"] = json!("`a` + 1");
    let source = source(&table).unwrap();
    let ids: Vec<i64> = source.info.columns.iter().map(|column| column.id).collect();
    assert_eq!(ids, [1, 4, 3]);
    assert!(source.refused.is_empty());
    assert!(source.info.columns[0].not_null && !source.info.columns[1].not_null);
}

#[test]
fn the_clustered_key_is_the_primary_key() {
    let handle = source(&keyed()).unwrap();
    assert!(handle.info.pk_is_handle);
    assert_eq!(handle.info.primary_key, [0]);
    assert_eq!(handle.physical_ids, [100]);

    let columns = vec![
        int_column(1, "a", KEY_FLAGS),
        int_column(2, "x", 0),
        varchar_column(3, "b", KEY_FLAGS, 10, "utf8mb4_bin"),
    ];
    let common = json!({
        "is_common_handle": true, "common_handle_version": 1,
        "index_info": [index("i", false, &[(1, -1)]), index("PRIMARY", true, &[(2, -1), (0, -1)])]
    });
    let common = source(&table_json(columns.clone(), common)).unwrap();
    assert_eq!(common.info.primary_key, [2, 0]);
    assert!(!common.info.pk_is_handle);

    // A key that is not clustered is an index like any other: the handle is hidden.
    let nonclustered = json!({"index_info": [index("PRIMARY", true, &[(0, -1)])]});
    let nonclustered = source(&table_json(columns, nonclustered)).unwrap();
    assert!(nonclustered.info.has_hidden_handle());
}

#[test]
fn keys_that_cannot_be_read_refuse_the_table() {
    let text = |collate| varchar_column(1, "k", KEY_FLAGS, 10, collate);
    let with = |column: Value, length: i64| {
        let extra = json!({"is_common_handle": true, "index_info": [index("PRIMARY", true, &[(0, length)])]});
        source(&table_json(vec![column], extra)).map(|_| ())
    };
    assert_eq!(with(text("utf8mb4_bin"), -1), Ok(()));
    assert_eq!(with(text("utf8mb4_bin"), 3), Err(TableRefusal::PrefixKey { column: "k".into() }));
    let refusal = with(text("utf8mb4_general_ci"), -1).unwrap_err();
    assert_eq!(
        refusal.of_table("T").message(),
        "table `T` has column `k` in its clustered primary key, which has the collation utf8mb4_general_ci, \
         which is not supported"
    );
    let mut nullable = keyed();
    nullable["cols"][0]["type"]["Flag"] = json!(2);
    assert!(matches!(source(&nullable), Err(TableRefusal::Contradiction(_))));
    let mut keyless = keyed();
    keyless["cols"][0]["type"]["Flag"] = json!(1);
    assert!(matches!(source(&keyless), Err(TableRefusal::Contradiction(_))));
    let beyond = json!({"is_common_handle": true, "index_info": [index("PRIMARY", true, &[(7, -1)])]});
    let beyond = table_json(vec![text("utf8mb4_bin")], beyond);
    assert!(matches!(source(&beyond), Err(TableRefusal::Contradiction(_))));
}

#[test]
fn tables_that_are_none_are_refused() {
    let refusal = |field: &str, value: Value| {
        let mut table = keyed();
        table[field] = value;
        source(&table).unwrap_err()
    };
    assert_eq!(refusal("view", json!({"view_select": "select 1"})), TableRefusal::View);
    assert_eq!(refusal("sequence", json!({"sequence_start": 1})), TableRefusal::Sequence);
    assert_eq!(refusal("temp_table_type", json!(1)), TableRefusal::Temporary);
    assert_eq!(refusal("cache_table_status", json!(1)), TableRefusal::Cached);
    assert_eq!(refusal("cache_table_status", json!(2)), TableRefusal::Cached);
    assert_eq!(refusal("state", json!(2)), TableRefusal::NotPublic(2));
    assert_eq!(refusal("mode", json!(1)), TableRefusal::Importing);
    assert_eq!(
        refusal("exchange_partition_info", json!({"exchange_partition_id": 7})),
        TableRefusal::Exchanging
    );
}

#[test]
fn partitions_have_ids_of_their_own() {
    let mut table = keyed();
    table["partition"] = partitions(&[203, 201]);
    let partitioned = source(&table).unwrap();
    assert_eq!(partitioned.physical_ids, [203, 201]);
    let ranges = partitioned.record_ranges();
    assert_eq!(ranges.len(), 2);
    assert_eq!(ranges[0].start, tidb::record_prefix(201));
    assert_eq!(ranges[1].end, tidb::record_range(203).1);
    // One decoder for all of them, and none for the logical id.
    let mut decoder =
        RowDecoder::new(&partitioned.info, &[0]).unwrap().with_tables(&partitioned.physical_ids);
    let row = [128, 0, 0, 0, 0, 0];
    for id in [201, 203] {
        decoder.append(&record_key(id, &tidb::Handle::Int(5)), &row).unwrap();
    }
    assert!(decoder.append(&record_key(100, &tidb::Handle::Int(5)), &row).is_err());
    assert_eq!(decoder.finish().unwrap().num_rows(), 2);

    table["partition"]["enable"] = json!(false);
    assert_eq!(source(&table).unwrap().physical_ids, [100]);

    let mut keyless = table_json(vec![int_column(1, "a", 0)], json!({}));
    keyless["partition"] = partitions(&[201]);
    assert_eq!(source(&keyless), Err(TableRefusal::PartitionedWithoutKey));
}

#[test]
fn generated_columns_are_read_if_they_are_stored() {
    let mut table = keyed();
    table["cols"][1]["generated_expr_string"] = json!("`id` + 1");
    assert_eq!(source(&table).unwrap().refusal_of("a").unwrap().refusal, ColumnRefusal::Virtual);
    table["cols"][1]["generated_stored"] = json!(true);
    assert!(source(&table).unwrap().refused.is_empty());
}

#[test]
fn a_column_that_is_being_changed_is_named() {
    let mut table = keyed();
    table["cols"][1]["changing_type"] = field_type(8, 0, 20, 0, "binary");
    assert_eq!(source(&table).unwrap().changing, ["a"]);
    let mut table = keyed();
    let mut stand_in = varchar_column(9, "_Col$_s_0", 0, 20, "utf8mb4_bin");
    stand_in["state"] = json!(3);
    stand_in["offset"] = json!(4);
    table["cols"].as_array_mut().unwrap().push(stand_in);
    let source = source(&table).unwrap();
    assert_eq!(source.changing, ["s"]);
    assert_eq!(source.info.columns.len(), 4);
}

#[test]
fn values_of_older_rows() {
    let with = |position: usize, value: Value| {
        let mut table = keyed();
        table["cols"][position]["origin_default"] = value.clone();
        table["cols"][position]["default"] = value;
        source(&table).unwrap()
    };
    assert_eq!(with(1, json!("7")).info.columns[1].origin_default.as_deref(), Some("7"));
    // Old clusters wrote numbers.
    assert_eq!(with(1, json!(7)).info.columns[1].origin_default.as_deref(), Some("7"));
    assert_eq!(with(2, json!("")).info.columns[2].origin_default.as_deref(), Some(""));
    assert_eq!(with(3, Value::Null).info.columns[3].origin_default, None);
    // A zero date is what TiDB gives to a NOT NULL column without a default.
    let refused = with(3, json!("0000-00-00")).refused.remove(0);
    assert_eq!(refused.refusal, ColumnRefusal::OriginDefault("'0000-00-00'".into()));

    let mut table = table_json(
        vec![int_column(1, "id", KEY_FLAGS), column(2, "t", field_type(7, 128, 19, 0, "binary"))],
        json!({"pk_is_handle": true}),
    );
    table["cols"][1]["origin_default"] = json!("2024-05-06 07:08:09");
    let source_now = source(&table).unwrap();
    assert!(source_now.refused.is_empty());
    let mut decoder = RowDecoder::new(&source_now.info, &[1]).unwrap();
    decoder.append(&record_key(100, &tidb::Handle::Int(5)), &[128, 0, 0, 0, 0, 0]).unwrap();
    let batch = decoder.finish().unwrap();
    // 2024-05-06 is day 19,849: 54 years with 13 leap days, then 31 + 29 + 31 + 30 + 5 days; 07:08:09 is
    // 25,689 seconds. 19,849 * 86,400 + 25,689 = 1,714,979,289.
    let times = batch.column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.value(0), 1_714_979_289_000_000);
    table["cols"][1]["version"] = json!(0);
    assert_eq!(source(&table).unwrap().refused[0].refusal, ColumnRefusal::OriginZone);
}

#[test]
fn names_may_be_plain_strings() {
    let mut table = keyed();
    table["name"] = json!("t");
    table["cols"][0]["name"] = json!("ID");
    let source = source(&table).unwrap();
    assert_eq!((source.info.name.as_str(), source.info.columns[0].name.as_str()), ("t", "ID"));
}

#[test]
fn what_is_no_definition_is_an_error() {
    for bad in ["", "null", "{}", "[]", r#"{"id":1}"#, r#"{"id":"1","name":"t"}"#] {
        assert!(MetaTable::parse(bad.as_bytes()).is_err(), "{bad}");
    }
}

proptest! {
    #![proptest_config(crate::arbitrary::cases(300))]

    /// Any numbers in a definition: an answer or a refusal, and what is accepted decodes.
    #[test]
    fn definitions_never_panic(
        tps in prop::collection::vec((any::<u8>(), any::<u64>(), -2_i64..70_000, -2_i64..40, -9_i64..400), 0..5),
        key in prop::collection::vec((0_usize..6, -1_i64..3), 0..3),
        flags in any::<(bool, bool, bool)>(),
        default in prop_oneof![Just(json!(null)), Just(json!("0")), Just(json!([1])), "\\PC{0,8}".prop_map(Value::from)],
    ) {
        let columns = tps.iter().map(|(tp, flag, flen, decimal, id)| {
            let mut column = column(*id, &format!("c{id}"), field_type(*tp, *flag, *flen, *decimal, "binary"));
            column["origin_default"] = default.clone();
            column
        });
        let mut table = table_json(columns.collect(), json!({}));
        table["pk_is_handle"] = json!(flags.0);
        table["is_common_handle"] = json!(flags.1);
        table["index_info"] = json!([index("PRIMARY", true, &key)]);
        if flags.2 {
            table["partition"] = partitions(&[7, -8]);
        }
        let meta = parsed(&table);
        if let Ok(source) = SourceTable::from_meta(&meta, NewCollations::On) {
            let all: Vec<usize> = (0..source.info.columns.len()).collect();
            prop_assert!(RowDecoder::new(&source.info, &all).is_ok());
            prop_assert_eq!(source.info.columns.len() + source.refused.len(), meta.columns.len());
        }
        let _ = tidb::react(&meta, Some(&meta), &[1, 2, 3], NewCollations::On);
    }

    /// One byte changed, or the rest cut off.
    #[test]
    fn broken_definitions_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = keyed().to_string().into_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        if let Ok(table) = MetaTable::parse(&bytes) {
            let _ = SourceTable::from_meta(&table, NewCollations::On);
            let _ = tidb::react(&parsed(&keyed()), Some(&table), &[2, 3], NewCollations::On);
        }
    }
}
