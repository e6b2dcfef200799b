//! Names that columns of a SELECT list share: legal in an answer, ambiguous in a reference, refused in a table.

use crate::world::{World, lines};

fn world() -> World {
    World::with(&[
        "CREATE TABLE z (id INT PRIMARY KEY, k INT, V INT)",
        "CREATE TABLE a (id INT PRIMARY KEY, k INT)",
        "INSERT INTO z VALUES (1, 30, 3), (2, 20, 1), (3, 10, 2)",
        "INSERT INTO a VALUES (1, 7), (2, 8)",
    ])
}

/// Checks names and rows of an answer, in order.
#[track_caller]
fn check(query: &str, names: &str, expected: &[&str]) {
    let world = world();
    let batch = world.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    assert_eq!(lines(&batch), expected, "{query}");
    assert_eq!(world.names(query).join("|"), names, "{query}");
}

#[track_caller]
fn check_error(query: &str, code: u16, part: &str) {
    let error = world().query(query).unwrap_err();
    assert_eq!(error.mysql_code(), Some(code), "{query}: {error}");
    assert!(error.message().contains(part), "{query}: {error}");
}

#[test]
fn columns_of_an_answer_may_share_a_name() {
    check("SELECT 1, 1", "1|1", &["1|1"]);
    check("SELECT 1 AS k, 2 AS K", "k|K", &["1|2"]);
    check("SELECT a.k, z.k FROM a JOIN z USING (id) ORDER BY a.id", "k|k", &["7|30", "8|20"]);
    check("SELECT z.*, 5 AS k FROM z ORDER BY id", "id|k|V|k", &["1|30|3|5", "2|20|1|5", "3|10|2|5"]);
    check("SELECT 5 AS k, z.* FROM z ORDER BY id LIMIT 1", "k|id|k|V", &["5|1|30|3"]);
    check("SELECT *, 5 AS v, 6 AS n FROM z ORDER BY n, id LIMIT 1", "id|k|V|v|n", &["1|30|3|5|6"]);
    check("SELECT *, k FROM z ORDER BY id LIMIT 1", "id|k|V|k", &["1|30|3|30"]);
    check(
        "SELECT a.*, z.* FROM a JOIN z ON a.id = z.id ORDER BY a.id LIMIT 1",
        "id|k|id|k|V",
        &["1|7|1|30|3"],
    );
    check(
        "SELECT *, 1 AS id FROM a JOIN z USING (id) ORDER BY a.k",
        "id|k|k|V|id",
        &["1|7|30|3|1", "2|8|20|1|1"],
    );
}

#[test]
fn a_table_may_be_shown_twice() {
    check("SELECT a.*, a.* FROM a ORDER BY id", "id|k|id|k", &["1|7|1|7", "2|8|2|8"]);
    check("SELECT *, a.* FROM a ORDER BY k DESC LIMIT 1", "id|k|id|k", &["2|8|2|8"]);
    check("SELECT *, a.k FROM a, z WHERE a.id = z.id AND z.id = 1", "id|k|id|k|V|k", &["1|7|1|30|3|7"]);
}

#[test]
fn names_of_later_selects_do_not_matter() {
    check("SELECT 1 AS a, 2 AS b UNION ALL SELECT 3, 3", "a|b", &["1|2", "3|3"]);
    check("SELECT 1, 1 UNION ALL SELECT k AS x, k AS x FROM a WHERE id = 1", "1|1", &["1|1", "7|7"]);
    check("SELECT x FROM (SELECT 1 AS x, 2 AS y UNION ALL SELECT 3, 3) d ORDER BY x", "x", &["1", "3"]);
    check(
        "SELECT id FROM a WHERE EXISTS (SELECT 1, 1 FROM z WHERE z.id = a.id) ORDER BY 1",
        "id",
        &["1", "2"],
    );
    check("SELECT x, y FROM (SELECT 1, 1) d (x, y)", "x|y", &["1|1"]);
    check("WITH c (x, y) AS (SELECT k, k FROM a) SELECT sum(x + y) AS s FROM c", "s", &["30"]);
}

#[test]
fn a_shared_name_means_the_first_expression_or_the_one_column() {
    // The alias, not the table's column, as MySQL takes it.
    check("SELECT z.*, -k AS k FROM z ORDER BY k LIMIT 1", "id|k|V|k", &["1|30|3|-30"]);
    check("SELECT -k AS k, z.* FROM z ORDER BY k LIMIT 1", "k|id|k|V", &["-30|1|30|3"]);
    check("SELECT k, -k AS k FROM z ORDER BY k LIMIT 1", "k|k", &["30|-30"]);
    check("SELECT k + 0 AS x, -k AS x FROM z ORDER BY x LIMIT 1", "x|x", &["10|-10"]);
    check("SELECT z.*, -k AS k FROM z ORDER BY 2 LIMIT 1", "id|k|V|k", &["3|10|2|-10"]);
    check("SELECT k, z.k FROM z ORDER BY k LIMIT 1", "k|k", &["10|10"]);
    check("SELECT *, z.k FROM z ORDER BY k LIMIT 1", "id|k|V|k", &["3|10|2|10"]);
    check("SELECT a.k FROM a JOIN z ON a.id = z.id ORDER BY k", "k", &["7", "8"]);
    check("SELECT k, count(*) AS k FROM z GROUP BY k ORDER BY k, z.k LIMIT 1", "k|k", &["10|1"]);
    check(
        "SELECT k, max(v) AS x, 0 AS x FROM z GROUP BY k HAVING x > 1 ORDER BY k",
        "k|x|x",
        &["10|2|0", "30|3|0"],
    );
}

#[test]
fn an_ambiguous_name_is_refused_where_it_is_used() {
    for (clause, text) in [
        ("ORDER BY k", "Column 'k' in order clause is ambiguous"),
        ("GROUP BY k", "Column 'k' in group statement is ambiguous"),
        ("WHERE k > 1", "Column 'k' in where clause is ambiguous"),
        ("HAVING k > 1", "Column 'k' in having clause is ambiguous"),
    ] {
        check_error(&format!("SELECT a.k, z.k FROM a JOIN z ON a.id = z.id {clause}"), 1052, text);
    }
    check_error("SELECT k FROM a JOIN z ON a.id = z.id", 1052, "Column 'k' in field list is ambiguous");
    check_error("SELECT 1 FROM a JOIN z ON k = 1", 1052, "Column 'k' in on clause is ambiguous");
    check_error("SELECT id AS x, k AS x FROM z ORDER BY x", 1052, "'x' in order clause");
    check_error("SELECT * FROM a JOIN z ON a.id = z.id ORDER BY k", 1052, "'k' in order clause");
    check_error("SELECT z.*, v AS k FROM z ORDER BY k", 1052, "'k' in order clause");
    check_error(
        "SELECT id AS x, k AS x FROM z UNION ALL SELECT 1, 2 ORDER BY x",
        1052,
        "'x' in order clause",
    );
}

#[test]
fn a_table_has_each_name_once() {
    for query in [
        "SELECT * FROM (SELECT a.k, z.k FROM a, z) d",
        "SELECT * FROM (SELECT 1 AS k, 2 AS K) d",
        "SELECT k FROM (SELECT z.*, 5 AS k FROM z) d",
        "SELECT 1 FROM (SELECT * FROM a JOIN z ON a.id = z.id) d",
        "WITH c AS (SELECT k, k FROM a) SELECT 1 FROM c",
        "SELECT 1 FROM (SELECT 1 AS x, 2 AS y) d (k, k)",
    ] {
        check_error(query, 1060, "Duplicate column name");
    }
    check_error("SELECT * FROM (SELECT 1, 1) d", 1060, "Duplicate column name '1'");
    let world = world();
    for query in ["SELECT z.*, 5 AS k FROM z", "SELECT a.k, z.k FROM a JOIN z ON a.id = z.id"] {
        let error = world.plan_view(query).unwrap_err();
        assert_eq!(error.mysql_code(), Some(1060), "{query}: {error}");
    }
}

#[test]
fn a_view_names_its_columns_itself() {
    let world = world();
    let columns: Vec<String> = ["i", "k", "v", "five"].map(str::to_owned).to_vec();
    let query = "SELECT z.*, 5 AS k FROM z";
    let plan = sql::plan_view(&world.catalog, query, &columns, &world.settings).unwrap();
    let batch = world.query(query).unwrap();
    world.check_view(query, &plan, &batch);
}

/// What HAVING means, in a query and in a view.
#[track_caller]
fn check_having(query: &str, expected: &[&str]) {
    let world = world();
    let batch = world.check_live(query, expected);
    let plan = world.plan_view(query).unwrap_or_else(|error| panic!("view {query}: {error}"));
    world.check_view(query, &plan, &batch);
}

#[test]
fn having_means_the_item_before_a_column_of_the_table() {
    check_having("SELECT k > 15 AS g, sum(v) AS v FROM z GROUP BY k > 15 HAVING v > 2", &["1|4"]);
    check_having(
        "SELECT k > 15 AS g, sum(v) AS V FROM z GROUP BY 1 HAVING (v + 0) BETWEEN 1 AND 3",
        &["0|2"],
    );
    check_having("SELECT sum(v) AS v, max(k) AS k FROM z HAVING v = 6 AND k = 30", &["6|30"]);
    // What is grouped and shown by a name of the table's.
    check_having("SELECT k + 1 AS v, count(*) AS n FROM z GROUP BY k + 1 HAVING v > 20", &["21|1", "31|1"]);
    check_having("SELECT k AS v, count(*) AS n FROM z GROUP BY k HAVING v > 20", &["30|1"]);
    // In a query within another, and over a join.
    check_having("SELECT s.v FROM (SELECT k, sum(v) AS v FROM z GROUP BY k HAVING v > 2) s", &["3"]);
    check_having(
        "SELECT a.id AS g, sum(z.v) AS k FROM a JOIN z ON a.id = z.id GROUP BY a.id HAVING k < 3",
        &["2|1"],
    );
    check_having(
        "SELECT k, count(*) AS v FROM z GROUP BY k HAVING v IN (SELECT id FROM a WHERE a.k = 7)",
        &["10|1", "20|1", "30|1"],
    );
}

#[test]
fn having_means_the_column_where_it_is_grouped_or_aggregated() {
    // A column of GROUP BY comes before an item of its name.
    check_having("SELECT k + 5 AS k, count(*) AS n FROM z GROUP BY z.k HAVING k > 20", &["35|1"]);
    check_having("SELECT -k AS k FROM z GROUP BY k HAVING k > 20", &["-30"]);
    // In the argument of an aggregate a name is the table's, as it is with the table's name before it.
    check_having("SELECT k > 15 AS g, count(*) AS v FROM z GROUP BY k > 15 HAVING max(v) > 2", &["1|2"]);
    check_having("SELECT k, count(*) AS v FROM z GROUP BY k, z.v HAVING z.v > 2", &["30|1"]);
    check_error("SELECT k, sum(v) AS v FROM z GROUP BY k HAVING z.v > 2", 1054, "in 'having clause'");
    check_error("SELECT k, sum(v) AS n FROM z GROUP BY k HAVING v > 2", 1054, "in 'having clause'");
    // A column of the inner table is nearer than the item.
    check_having(
        "SELECT k, count(*) AS v FROM z GROUP BY k HAVING EXISTS (SELECT 1 FROM z AS y WHERE v = 3)",
        &["10|1", "20|1", "30|1"],
    );
}

#[test]
fn a_view_names_the_database_of_each_table_once() {
    let world = world();
    let query = "SELECT k, (SELECT count(*) FROM a) AS v FROM z GROUP BY k HAVING v > 1";
    let plan = world.plan_view(query).unwrap();
    assert_eq!(
        plan.query,
        "SELECT k, (SELECT count(*) FROM `test`.a) AS v FROM `test`.z GROUP BY k HAVING v > 1"
    );
}
