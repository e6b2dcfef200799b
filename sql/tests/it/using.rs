//! USING and NATURAL: whose column it is, what `*` shows, and what a name without a table means.

use crate::world::{World, lines};

fn world() -> World {
    World::with(&[
        "CREATE TABLE orders (oid INT PRIMARY KEY, cid INT, total INT)",
        "CREATE TABLE customers (cid INT PRIMARY KEY, name VARCHAR(10), total INT)",
        "CREATE TABLE notes (nid INT PRIMARY KEY, Cid INT, note INT)",
        "INSERT INTO orders VALUES (1, 7, 5), (2, 1, 6), (3, NULL, 7)",
        "INSERT INTO customers VALUES (1, 'ann', 6), (2, 'bob', 8)",
        "INSERT INTO notes VALUES (1, 1, 10), (2, 7, 20)",
    ])
}

#[track_caller]
fn check(query: &str, expected: &[&str]) {
    let world = world();
    let batch = world.check_live(query, expected);
    match world.plan_view(query) {
        Ok(plan) => world.check_view(query, &plan, &batch),
        // `*` of columns that share a name, and what views never hold.
        Err(error) => assert!(matches!(error.mysql_code(), Some(1060 | 1235)), "view {query}: {error}"),
    }
}

#[track_caller]
fn check_error(query: &str, code: u16) {
    let error = world().query(query).unwrap_err();
    assert_eq!(error.mysql_code(), Some(code), "{query}: {error}");
}

#[test]
fn the_column_is_the_preserved_sides() {
    check("SELECT cid FROM orders LEFT JOIN customers USING (cid)", &["1", "7", "NULL"]);
    check("SELECT cid FROM customers RIGHT JOIN orders USING (cid)", &["1", "7", "NULL"]);
    check("SELECT cid FROM orders RIGHT JOIN customers USING (cid)", &["1", "2"]);
    check("SELECT cid FROM customers JOIN orders USING (cid)", &["1"]);
    check("SELECT Cid + 1 AS c FROM customers RIGHT JOIN orders USING (CID) WHERE cid > 5", &["8"]);
    check("SELECT cid FROM orders LEFT JOIN customers USING (cid) RIGHT JOIN notes USING (cid)", &["1", "7"]);
    check(
        "SELECT cid, COUNT(*) AS n FROM customers RIGHT JOIN orders USING (cid) GROUP BY cid HAVING cid > 1",
        &["7|1"],
    );
}

#[test]
fn a_wildcard_shows_merged_columns_first() {
    check(
        "SELECT * FROM orders LEFT JOIN customers USING (cid)",
        &["1|2|6|ann|6", "7|1|5|NULL|NULL", "NULL|3|7|NULL|NULL"],
    );
    check(
        "SELECT * FROM customers RIGHT JOIN orders USING (cid)",
        &["1|2|6|ann|6", "7|1|5|NULL|NULL", "NULL|3|7|NULL|NULL"],
    );
    check("SELECT * FROM customers NATURAL JOIN orders", &["1|6|ann|2"]);
    check("SELECT * FROM orders NATURAL LEFT JOIN customers", &["1|6|2|ann", "7|5|1|NULL", "NULL|7|3|NULL"]);
    check(
        "SELECT customers.* FROM orders LEFT JOIN customers USING (cid) WHERE oid = 1",
        &["NULL|NULL|NULL"],
    );
    check(
        "SELECT orders.cid, customers.cid FROM orders LEFT JOIN customers USING (cid) WHERE oid = 1",
        &["7|NULL"],
    );
    check(
        "SELECT d.* FROM (SELECT * FROM notes LEFT JOIN customers USING (cid)) d",
        &["1|1|10|ann|6", "7|2|20|NULL|NULL"],
    );
}

#[test]
fn the_names_of_a_wildcard_are_as_declared() {
    let world = world();
    let parsed =
        sql::parse("SELECT * FROM notes JOIN customers USING (cid)", &world.settings).unwrap().pop().unwrap();
    let sql::Statement::Query(query) = parsed.statement else { panic!("a query") };
    let planned = sql::plan_query(&query.query, &world, &world.settings).unwrap();
    let names: Vec<&str> = planned.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["Cid", "nid", "note", "name", "total"]);
}

#[test]
fn names_mean_merged_columns_where_they_are_seen() {
    check(
        "SELECT oid FROM customers RIGHT JOIN orders USING (cid) WHERE EXISTS (SELECT 1 FROM (SELECT 7 AS v) d WHERE d.v = cid)",
        &["1"],
    );
    check(
        "SELECT oid FROM customers RIGHT JOIN orders USING (cid) WHERE 7 IN (SELECT cid FROM notes)",
        &["1", "2", "3"],
    );
    check(
        "WITH w (cid, v) AS (SELECT cid, note FROM notes) SELECT cid, v FROM w LEFT JOIN customers USING (cid)",
        &["1|10", "7|20"],
    );
    check("SELECT cid FROM orders JOIN (notes LEFT JOIN customers USING (cid)) USING (cid)", &["1", "7"]);
    let batch =
        world().query("SELECT oid FROM customers RIGHT JOIN orders USING (cid) ORDER BY cid DESC").unwrap();
    assert_eq!(lines(&batch), ["1", "2", "3"]);
    let batch = world()
        .query("SELECT -oid AS cid FROM customers RIGHT JOIN orders USING (cid) ORDER BY cid")
        .unwrap();
    assert_eq!(lines(&batch), ["-3", "-2", "-1"]);
}

#[test]
fn what_is_ambiguous_or_unknown_is_an_error() {
    check_error("SELECT cid FROM orders JOIN customers USING (cid) JOIN notes ON note > 5", 1052);
    check_error("SELECT 1 FROM orders JOIN customers ON 1 = 1 JOIN notes USING (cid)", 1052);
    check_error("SELECT 1 FROM orders JOIN customers USING (oid)", 1054);
    check_error("SELECT cid FROM orders FULL JOIN customers USING (cid)", 1235);
}

/// A condition on the side that an outer join may leave NULL says nothing of the side that it keeps, whatever
/// its columns are called.
#[test]
fn conditions_above_outer_joins_stay_with_their_side() {
    let world = World::with(&[
        "CREATE TABLE p (id INT PRIMARY KEY, s VARCHAR(5), i INT)",
        "CREATE TABLE q (id INT PRIMARY KEY, s VARCHAR(5), i INT)",
        "INSERT INTO p VALUES (1, 'z', 9)",
        "INSERT INTO q VALUES (1, 'a', 1), (2, 'b', 2)",
    ]);
    for (condition, expected) in [
        ("p.id IS NULL AND q.i > 0", &["1", "2"] as &[&str]),
        ("IFNULL(p.i, 1) = 1 AND q.i > 0", &["1", "2"]),
        ("(p.i IS NULL OR p.i = 7) AND q.i > 0", &["1", "2"]),
        ("COALESCE(p.i, 5) = 5 AND q.i = 2", &["2"]),
    ] {
        for join in ["p RIGHT JOIN q", "q LEFT JOIN p"] {
            for on in ["p.s = q.s", "p.id + 5 = q.id", "p.i = q.i + 0.5"] {
                world.check_live(&format!("SELECT q.id FROM {join} ON {on} WHERE {condition}"), expected);
            }
        }
    }
}
