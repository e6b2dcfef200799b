//! Subqueries whose answers a join alone would get wrong: the same through both engines.

use crate::world::World;

fn world() -> World {
    World::with(&[
        "CREATE TABLE c (id INT PRIMARY KEY, n INT, k INT NOT NULL, g VARCHAR(5))",
        "CREATE TABLE o (oid INT PRIMARY KEY, cid INT, x INT, z INT NOT NULL, g VARCHAR(5))",
        "INSERT INTO c VALUES (1, 1, 10, 'a'), (2, 0, 20, 'b '), (3, NULL, 30, NULL)",
        "INSERT INTO o VALUES (1, 1, 1, 5, 'a '), (2, 1, NULL, 6, 'a'), (3, 3, 2, 7, 'c')",
    ])
}

/// The answer of the batch engine, and the view's, which must not be refused.
#[track_caller]
fn check(query: &str, expected: &[&str]) {
    let world = world();
    let batch = world.check_live(query, expected);
    let plan = world.plan_view(query).unwrap_or_else(|error| panic!("view {query}: {error}"));
    world.check_view(query, &plan, &batch);
}

#[track_caller]
fn check_refused(query: &str, name: &str) {
    let world = world();
    for error in [world.query(query).unwrap_err(), world.plan_view(query).unwrap_err()] {
        assert_eq!(error.mysql_code(), Some(1235), "{query}: {error}");
        assert!(error.message().contains(name), "{query}: {error}");
    }
}

#[test]
fn an_aggregate_without_groups_has_a_row_for_outer_rows_that_meet_nothing() {
    check(
        "SELECT id FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id HAVING COUNT(*) < 2)",
        &["2", "3"],
    );
    check(
        "SELECT id FROM c WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.cid = c.id HAVING COUNT(*) < 2)",
        &["1"],
    );
    check("SELECT id FROM c WHERE EXISTS (SELECT MAX(x) FROM o WHERE o.cid = c.id)", &["1", "2", "3"]);
    check("SELECT id FROM c WHERE n IN (SELECT COUNT(*) FROM o WHERE o.cid = c.id)", &["2"]);
    check("SELECT id FROM c WHERE n NOT IN (SELECT COUNT(*) FROM o WHERE o.cid = c.id)", &["1"]);
    check("SELECT id FROM c WHERE n NOT IN (SELECT MAX(x) FROM o WHERE o.cid = c.id)", &[]);
    check(
        "SELECT id, (SELECT COUNT(*) FROM o WHERE o.cid = c.id HAVING COUNT(*) < c.n) AS a FROM c",
        &["1|NULL", "2|NULL", "3|NULL"],
    );
    check(
        "SELECT id, (SELECT COUNT(*) + c.k FROM o WHERE o.cid = c.id) AS a FROM c",
        &["1|12", "2|20", "3|31"],
    );
    check("SELECT id, (SELECT COUNT(*) FROM o WHERE o.g = c.g) AS a FROM c", &["1|2", "2|0", "3|0"]);
    check("SELECT id FROM c WHERE id IN (SELECT c.k - 9)", &["1"]);
}

#[test]
fn not_in_sees_the_nulls_of_a_computed_value() {
    check("SELECT id FROM c WHERE NULLIF(k, 10) NOT IN (SELECT z FROM o)", &["2", "3"]);
    check("SELECT id FROM c WHERE k / (id - 1) NOT IN (SELECT z FROM o)", &["2", "3"]);
    check("SELECT id FROM c WHERE NULLIF(k, 10) NOT IN (SELECT z FROM o WHERE z > 99)", &["1", "2", "3"]);
}

#[test]
fn not_in_of_a_constant_sees_nulls() {
    check("SELECT id FROM c WHERE 5 NOT IN (SELECT x FROM o)", &[]);
    check("SELECT id FROM c WHERE 5 NOT IN (SELECT z FROM o WHERE z > 5)", &["1", "2", "3"]);
    check("SELECT id FROM c WHERE NULL NOT IN (SELECT z FROM o)", &[]);
    check("SELECT id FROM c WHERE NULL NOT IN (SELECT z FROM o WHERE z > 99)", &["1", "2", "3"]);
}

#[test]
fn not_in_of_correlated_rows_sees_nulls_of_these_rows_only() {
    check("SELECT id FROM c WHERE n NOT IN (SELECT x FROM o WHERE o.cid = c.id)", &["2"]);
    check("SELECT id FROM c WHERE id NOT IN (SELECT x FROM o WHERE o.z * 3 < c.k)", &["1"]);
    check("SELECT id FROM c WHERE k NOT IN (SELECT x FROM o WHERE o.cid > c.id)", &["1", "2", "3"]);
}

#[test]
fn in_is_unknown_where_that_shows() {
    check("SELECT id, n IN (SELECT x FROM o) AS i FROM c", &["1|1", "2|NULL", "3|NULL"]);
    check("SELECT id, k NOT IN (SELECT z FROM o) AS i FROM c", &["1|1", "2|1", "3|1"]);
    check("SELECT id FROM c WHERE (n IN (SELECT x FROM o)) IS NULL", &["2", "3"]);
    check("SELECT id FROM c WHERE NOT (n IN (SELECT x FROM o) AND id < 3)", &["3"]);
    check("SELECT id FROM c WHERE k = 20 OR n NOT IN (SELECT x FROM o WHERE o.cid = c.id)", &["2"]);
    check("SELECT id FROM c WHERE k = 20 OR n NOT IN (SELECT x FROM o)", &["2"]);
    check("SELECT c.id FROM c JOIN o ON o.oid > 100 OR c.n NOT IN (SELECT x FROM o)", &[]);
    check("SELECT c.id FROM c JOIN o ON o.oid = 1 AND c.k NOT IN (SELECT z FROM o)", &["1", "2", "3"]);
    check("SELECT CASE WHEN n IN (SELECT x FROM o) THEN 1 ELSE 2 END AS v FROM c", &["1", "2", "2"]);
    check("SELECT n FROM c GROUP BY n HAVING n NOT IN (SELECT z FROM o)", &["0", "1"]);
}

#[test]
fn exists_stands_anywhere() {
    check(
        "SELECT EXISTS (SELECT 1 FROM o WHERE oid = 1) AS e, EXISTS (SELECT 1 FROM o WHERE oid = 9) AS f",
        &["1|0"],
    );
    check("SELECT id, EXISTS (SELECT c.n FROM o WHERE o.cid = c.id) AS e FROM c", &["1|1", "2|0", "3|1"]);
    check("SELECT id FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id LIMIT 0)", &[]);
    check(
        "SELECT id FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id ORDER BY o.x LIMIT 3)",
        &["1", "3"],
    );
}

#[test]
fn what_a_join_cannot_bring_is_refused_by_name() {
    let exists = |inner: &str| format!("SELECT id FROM c WHERE EXISTS ({inner})");
    check_refused(&exists("SELECT 1 FROM o WHERE o.cid = c.id LIMIT 1 OFFSET 1"), "OFFSET");
    check_refused(&exists("SELECT 1 FROM o WHERE o.cid = c.id UNION SELECT 2"), "UNION");
    check_refused(
        &exists("SELECT 1 FROM o WHERE EXISTS (SELECT 1 FROM o p WHERE p.x = c.n)"),
        "two levels out",
    );
    check_refused("SELECT id FROM c WHERE n IN (SELECT x FROM o WHERE o.cid = c.id LIMIT 1)", "LIMIT");
    check_refused(
        "SELECT id FROM c WHERE n IN (SELECT x FROM o WHERE o.cid = c.id EXCEPT SELECT z FROM o)",
        "EXCEPT",
    );
    check_refused("SELECT c.id FROM c LEFT JOIN o ON c.n IN (SELECT x FROM o)", "outer join");
    check_refused("SELECT id, (SELECT COUNT(*) FROM o WHERE o.z < c.k) AS a FROM c", "aggregate");
    check_refused("SELECT id, (SELECT x FROM o WHERE o.cid = c.id) AS a FROM c", "scalar subquery");
    check_refused(
        "SELECT SUM((SELECT COUNT(*) FROM o WHERE o.cid = c.id)) AS s FROM c",
        "correlated subquery",
    );
    let window =
        "SELECT id FROM c WHERE n IN (SELECT ROW_NUMBER() OVER (ORDER BY oid) FROM o WHERE o.cid = c.id)";
    let error = world().query(window).unwrap_err();
    assert!(error.message().contains("window function"), "{error}");
}

#[test]
fn a_scalar_subquery_without_a_row_is_null() {
    check("SELECT (SELECT COUNT(*) FROM o HAVING COUNT(*) > 9) AS a", &["NULL"]);
    check(
        "SELECT (SELECT 1 FROM o HAVING COUNT(*) > 9) AS a, (SELECT 1 FROM o WHERE oid = 9) AS b",
        &["NULL|NULL"],
    );
    check("SELECT id FROM c WHERE (SELECT COUNT(*) FROM o HAVING COUNT(*) > 9) IS NULL", &["1", "2", "3"]);
    check("SELECT id FROM c WHERE (SELECT z FROM o WHERE oid = 9) IS NULL", &["1", "2", "3"]);
    check_refused("SELECT (SELECT COUNT(*) FROM o WHERE o.cid = c.id GROUP BY cid) AS a FROM c", "GROUP BY");
}

#[test]
fn a_scalar_subquery_of_two_rows_is_an_error_by_number() {
    let error = world().query("SELECT id FROM c WHERE id = (SELECT cid FROM o)").unwrap_err();
    assert_eq!(error.mysql_code(), Some(1242), "{error}");
}

#[test]
fn columns_of_one_name_are_told_apart_in_a_subquery() {
    let exists = "SELECT c.id FROM c WHERE EXISTS (SELECT 1 FROM o p JOIN o q ON p.oid <> q.oid WHERE";
    check(&format!("{exists} q.cid = c.id AND p.cid = 3)"), &["1"]);
    check(&format!("{exists} q.cid = c.id AND p.x = c.n + 1)"), &["1"]);
    let count = "SELECT id, (SELECT COUNT(*) FROM o p JOIN o q ON p.oid <> q.oid WHERE q.cid = c.id AND p.x = c.n) AS a";
    check(&format!("{count} FROM c"), &["1|1", "2|0", "3|0"]);
    check("SELECT id FROM c WHERE n < 0 OR id IN (SELECT cid AS c0 FROM o)", &["1", "3"]);
}

#[test]
fn a_value_that_is_always_null_is_not_in_nothing() {
    check("SELECT id FROM c WHERE NULLIF(NULL, id) NOT IN (SELECT z FROM o)", &[]);
    check("SELECT id FROM c WHERE (NULL = id) NOT IN (SELECT z FROM o)", &[]);
}

#[test]
fn joins_beside_a_null_safe_one_keep_their_meaning() {
    let from = "FROM c a JOIN c b ON a.n <=> b.n";
    check(&format!("SELECT a.id {from} JOIN o ON o.oid = 1"), &["1", "2", "3"]);
    check(&format!("SELECT a.id {from} JOIN o ON o.x = a.n"), &["1"]);
    check("SELECT a.id FROM c a JOIN o ON o.x = a.n JOIN c b ON a.n <=> b.n", &["1"]);
}

#[test]
fn aggregates_beside_a_distinct_one() {
    check("SELECT SUM(x) AS s, COUNT(DISTINCT z) AS c, MIN(DISTINCT oid) AS m FROM o", &["3|3|1"]);
    check("SELECT cid, SUM(x) AS s, MIN(DISTINCT z) AS m FROM o GROUP BY cid", &["1|1|5", "3|2|7"]);
}

#[test]
fn a_condition_without_columns_stays_above_an_aggregate_without_groups() {
    check("SELECT COUNT(*) AS n FROM o HAVING (SELECT COUNT(*) FROM c) > 9", &[]);
    check("SELECT m FROM (SELECT MAX(z) AS m FROM o) d WHERE (SELECT COUNT(*) FROM c) > 9", &[]);
    check("SELECT m FROM (SELECT MAX(z) AS m FROM o) d WHERE (SELECT COUNT(*) FROM c) > 2", &["7"]);
    check(
        "SELECT m FROM (SELECT MAX(z) AS m FROM o) d WHERE m > 6 AND EXISTS (SELECT 1 FROM c WHERE id > 9)",
        &[],
    );
}

#[test]
fn views_over_views_with_correlated_subqueries() {
    let mut world = world();
    for lower in [
        "CREATE MATERIALIZED VIEW counted AS SELECT id, (SELECT COUNT(*) FROM o WHERE o.cid = c.id) AS n FROM c",
        "CREATE MATERIALIZED VIEW few AS SELECT id FROM c WHERE id >= (SELECT COUNT(*) FROM o WHERE o.cid = c.id)",
    ] {
        world.run(lower);
    }
    for (query, expected) in [
        ("SELECT id FROM counted WHERE n > 0", vec!["1", "3"]),
        ("SELECT id FROM few", vec!["2", "3"]),
        ("SELECT a.id FROM counted a JOIN few b ON b.id = a.id WHERE a.n = 1", vec!["3"]),
        ("SELECT id FROM c WHERE n = (SELECT COUNT(*) FROM counted WHERE counted.id = c.id)", vec!["1"]),
        (
            "SELECT id FROM few WHERE id > (SELECT COUNT(*) FROM counted x WHERE x.id = few.id)",
            vec!["2", "3"],
        ),
    ] {
        let batch = world.check_live(query, &expected);
        let plan = world.plan_view(query).unwrap_or_else(|error| panic!("view {query}: {error}"));
        world.check_view(query, &plan, &batch);
    }
}

#[test]
fn a_text_may_be_grouped_by_twice() {
    check("SELECT g FROM c GROUP BY g, g", &["NULL", "a", "b "]);
    check("SELECT g, n, COUNT(*) FROM c GROUP BY g, n, g", &["NULL|NULL|1", "a|1|1", "b |0|1"]);
    check("SELECT AVG(k * 1e0), COUNT(*) FROM c GROUP BY g, g HAVING COUNT(*) > 1", &[]);
}
