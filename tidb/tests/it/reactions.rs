//! What each kind of DDL means for a job that reads `id` and `a` of a table.

use serde_json::{Value, json};
use tidb::{ColumnType, Gone, MetaTable, NewCollations, Reaction, RebuildReason, TableRefusal};

use crate::meta_json::{KEY_FLAGS, field_type, index, int_column, keyed, parsed, partitions, varchar_column};

fn react(old: &Value, new: &Value, used: &[i64]) -> Reaction {
    tidb::react(&parsed(old), Some(&parsed(new)), used, NewCollations::On)
}

/// The reaction of a job that reads `id`, `a` and `s` to a change of the table.
fn after(change: impl FnOnce(&mut Value)) -> Reaction {
    let old = keyed();
    let mut new = keyed();
    change(&mut new);
    react(&old, &new, &[2, 3])
}

fn rebuild(reason: RebuildReason) -> Reaction {
    Reaction::Rebuild(vec![reason])
}

fn push_column(table: &mut Value, mut column: Value) {
    let columns = table["cols"].as_array_mut().unwrap();
    column["offset"] = json!(columns.len());
    columns.push(column);
}

#[test]
fn nothing_changed() {
    assert_eq!(after(|_| {}), Reaction::Keep);
}

#[test]
fn adding_a_column_keeps() {
    assert_eq!(after(|table| push_column(table, int_column(9, "n", 0))), Reaction::Keep);
    let with_default = |table: &mut Value| {
        let mut column = int_column(9, "n", 1);
        column["origin_default"] = json!("5");
        column["default"] = json!("5");
        push_column(table, column);
    };
    assert_eq!(after(with_default), Reaction::Keep);
    // In the middle of the change, and at another position.
    let first = |table: &mut Value| {
        push_column(table, int_column(9, "n", 0));
        for (at, offset) in [(4, 0), (0, 1), (1, 2), (2, 3), (3, 4)] {
            table["cols"][at]["offset"] = json!(offset);
        }
        table["cols"][4]["state"] = json!(2);
    };
    assert_eq!(after(first), Reaction::Keep);
}

#[test]
fn indexes_comments_defaults_and_replicas_keep() {
    let add_index = |table: &mut Value| {
        table["index_info"] = json!([index("i", false, &[(1, -1)])]);
        // The flag that says so of the column.
        table["cols"][1]["type"]["Flag"] = json!(8);
    };
    assert_eq!(after(add_index), Reaction::Keep);
    let mut indexed = keyed();
    add_index(&mut indexed);
    assert_eq!(react(&indexed, &keyed(), &[2]), Reaction::Keep);
    assert_eq!(after(|table| table["comment"] = json!("hello")), Reaction::Keep);
    assert_eq!(after(|table| table["cols"][1]["comment"] = json!("hello")), Reaction::Keep);
    assert_eq!(after(|table| table["cols"][1]["default"] = json!("5")), Reaction::Keep);
    assert_eq!(after(|table| table["tiflash_replica"] = json!({"Count": 1})), Reaction::Keep);
    assert_eq!(after(|table| table["ttl_info"] = json!({"column": "d"})), Reaction::Keep);
    assert_eq!(after(|table| table["collate"] = json!("utf8mb4_general_ci")), Reaction::Keep);
    // The width at which an integer is shown.
    assert_eq!(after(|table| table["cols"][1]["type"]["Flen"] = json!(5)), Reaction::Keep);
}

#[test]
fn renaming_keeps() {
    assert_eq!(after(|table| table["name"] = json!("u")), Reaction::Keep);
    assert_eq!(after(|table| table["cols"][1]["name"] = json!("b")), Reaction::Keep);
    // Two columns swap their names.
    let swap = |table: &mut Value| {
        table["cols"][1]["name"] = json!("d");
        table["cols"][3]["name"] = json!("a");
    };
    assert_eq!(after(swap), Reaction::Keep);
}

#[test]
fn dropping_a_column_matters_if_it_is_used() {
    let drop_last = |table: &mut Value| drop(table["cols"].as_array_mut().unwrap().remove(3));
    assert_eq!(after(drop_last), Reaction::Keep);
    assert_eq!(after(|table| table["cols"][3]["state"] = json!(2)), Reaction::Keep);
    assert_eq!(after(|table| table["cols"][1]["state"] = json!(2)), Reaction::Gone(Gone::Column("a".into())));
}

#[test]
fn another_type_of_a_used_column_rebuilds() {
    let int = |bits| Ok(ColumnType::Int { bits, unsigned: false });
    assert_eq!(
        after(|table| table["cols"][1]["type"]["Tp"] = json!(8)),
        rebuild(RebuildReason::ColumnType { name: "a".into(), old: int(32), new: int(64) })
    );
    assert_eq!(
        after(|table| table["cols"][2]["type"]["Flen"] = json!(20)),
        rebuild(RebuildReason::ColumnType {
            name: "s".into(),
            old: Ok(ColumnType::Varchar(10)),
            new: Ok(ColumnType::Varchar(20)),
        })
    );
    // With a reorganisation the column gets another id.
    let reorganised = |table: &mut Value| {
        table["cols"][1]["id"] = json!(9);
        table["cols"][1]["type"] = field_type(8, 0, 20, 0, "binary");
    };
    assert_eq!(
        after(reorganised),
        Reaction::Rebuild(vec![
            RebuildReason::ColumnReplaced { name: "a".into(), old: 2, new: 9 },
            RebuildReason::ColumnType { name: "a".into(), old: int(32), new: int(64) },
        ])
    );
    // Of a column that the job does not use.
    assert_eq!(after(|table| table["cols"][3]["type"]["Tp"] = json!(12)), Reaction::Keep);
    // While it is prepared, the column is what it was.
    let prepared = |table: &mut Value| {
        let mut stand_in = int_column(9, "_Col$_a_0", 0);
        stand_in["state"] = json!(3);
        push_column(table, stand_in);
    };
    assert_eq!(after(prepared), Reaction::Keep);
}

#[test]
fn nullability_and_collation_of_a_used_column_rebuild() {
    assert_eq!(
        after(|table| table["cols"][1]["type"]["Flag"] = json!(1)),
        rebuild(RebuildReason::Nullability { name: "a".into() })
    );
    assert_eq!(
        after(|table| table["cols"][2]["type"]["Collate"] = json!("utf8mb4_general_ci")),
        rebuild(RebuildReason::Collation {
            name: "s".into(),
            old: "utf8mb4_bin".into(),
            new: "utf8mb4_general_ci".into(),
        })
    );
    let mut old = keyed();
    old["cols"][2]["type"]["Collate"] = json!("utf8_bin");
    assert!(matches!(react(&old, &keyed(), &[3]), Reaction::Rebuild(_)));
    assert_eq!(react(&old, &keyed(), &[2]), Reaction::Keep);
    assert_eq!(
        after(|table| table["cols"][1]["origin_default"] = json!("3")),
        rebuild(RebuildReason::OriginDefault { name: "a".into() })
    );
}

#[test]
fn truncating_rebuilds() {
    assert_eq!(
        after(|table| table["id"] = json!(104)),
        rebuild(RebuildReason::TableId { old: 100, new: 104 })
    );
}

#[test]
fn a_table_of_the_same_name_with_other_columns() {
    let created = |table: &mut Value| {
        table["id"] = json!(104);
        table["cols"] = json!([int_column(1, "id", KEY_FLAGS), varchar_column(2, "s", 0, 10, "utf8mb4_bin")]);
    };
    assert_eq!(after(created), Reaction::Gone(Gone::Column("a".into())));
    let same_names = |table: &mut Value| {
        table["id"] = json!(104);
        table["cols"][1]["id"] = json!(3);
        table["cols"][2]["id"] = json!(2);
    };
    assert_eq!(
        after(same_names),
        Reaction::Rebuild(vec![
            RebuildReason::TableId { old: 100, new: 104 },
            RebuildReason::ColumnReplaced { name: "a".into(), old: 2, new: 3 },
            RebuildReason::ColumnReplaced { name: "s".into(), old: 3, new: 2 },
        ])
    );
}

#[test]
fn dropping_the_table_ends_the_job() {
    let old: MetaTable = parsed(&keyed());
    assert_eq!(tidb::react(&old, None, &[2], NewCollations::On), Reaction::Gone(Gone::Table));
    // Steps on the way: write only, delete only.
    for state in [2, 1] {
        assert_eq!(after(|table| table["state"] = json!(state)), Reaction::Gone(Gone::Table));
    }
}

#[test]
fn operations_on_partitions_rebuild() {
    let partitioned = |ids: &[i64]| {
        let mut table = keyed();
        table["partition"] = partitions(ids);
        table
    };
    let change = |new: &[i64]| react(&partitioned(&[201, 202]), &partitioned(new), &[2]);
    let ids = |added: &[i64], removed: &[i64]| {
        rebuild(RebuildReason::PhysicalIds { added: added.to_vec(), removed: removed.to_vec() })
    };
    assert_eq!(change(&[201, 202]), Reaction::Keep);
    assert_eq!(change(&[202, 201]), Reaction::Keep);
    // ADD, DROP, TRUNCATE or EXCHANGE, REORGANIZE PARTITION.
    assert_eq!(change(&[201, 202, 203]), ids(&[203], &[]));
    assert_eq!(change(&[201]), ids(&[], &[202]));
    assert_eq!(change(&[201, 300]), ids(&[300], &[202]));
    assert_eq!(change(&[301, 302, 303]), ids(&[301, 302, 303], &[201, 202]));
    // REMOVE PARTITIONING and PARTITION BY.
    assert_eq!(react(&partitioned(&[201]), &keyed(), &[2]), ids(&[100], &[201]));
    assert_eq!(react(&keyed(), &partitioned(&[201]), &[2]), ids(&[201], &[100]));
    // While an exchange is going on the rows are what they were.
    let mut exchanging = partitioned(&[201, 202]);
    exchanging["exchange_partition_info"] = json!({"exchange_partition_id": 7});
    assert_eq!(react(&partitioned(&[201, 202]), &exchanging, &[2]), Reaction::Keep);
}

#[test]
fn another_key_rebuilds() {
    // A key that is not clustered is dropped or added: the handle stays.
    let mut nonclustered = keyed();
    nonclustered["pk_is_handle"] = json!(false);
    nonclustered["index_info"] = json!([index("PRIMARY", true, &[(0, -1)])]);
    let mut keyless = nonclustered.clone();
    keyless["index_info"] = json!(null);
    assert_eq!(react(&nonclustered, &keyless, &[2]), Reaction::Keep);
    assert_eq!(react(&nonclustered, &keyed(), &[2]), rebuild(RebuildReason::Key));
    let common = |columns: &[(usize, i64)]| {
        let mut table = nonclustered.clone();
        table["is_common_handle"] = json!(true);
        table["index_info"] = json!([index("PRIMARY", true, columns)]);
        table
    };
    assert_eq!(
        react(&common(&[(0, -1), (2, -1)]), &common(&[(2, -1), (0, -1)]), &[2]),
        rebuild(RebuildReason::Key)
    );
    assert_eq!(react(&common(&[(2, -1)]), &common(&[(2, 5)]), &[2]), rebuild(RebuildReason::Key));
    // Columns of the key are used, whatever the query names.
    let mut wider = common(&[(2, -1)]);
    wider["cols"][2]["type"]["Flen"] = json!(20);
    assert!(matches!(react(&common(&[(2, -1)]), &wider, &[2]), Reaction::Rebuild(_)));
}

#[test]
fn what_can_no_longer_be_read_is_refused() {
    let cached = after(|table| table["cache_table_status"] = json!(1));
    assert_eq!(cached, Reaction::Refused(TableRefusal::Cached));
    let importing = after(|table| table["mode"] = json!(1));
    assert_eq!(importing, Reaction::Refused(TableRefusal::Importing));
    let mut imported = keyed();
    imported["mode"] = json!(1);
    assert_eq!(react(&imported, &keyed(), &[2]), rebuild(RebuildReason::Imported));
}
