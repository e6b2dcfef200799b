//! Views: what is refused, and what the operators answer beside the batch engine.

use arrow::array::{BooleanArray, Int64Array, RecordBatch};
use types::{Delta, TableId};

use crate::world::{World, counted, weighted_lines};

fn world() -> World {
    World::with(&[
        "CREATE TABLE t (id INT PRIMARY KEY, g VARCHAR(10), n INT, d DECIMAL(10,2), f DOUBLE, day DATE)",
        "CREATE TABLE u (id BIGINT PRIMARY KEY, t_id INT, g VARCHAR(8) NOT NULL, x INT)",
        "INSERT INTO t VALUES (1, 'a', 10, 1.50, 0.1, '2020-01-01'), (2, 'a ', 20, NULL, 0.2, NULL), \
         (3, 'b', NULL, 2.25, 0.3, '2020-01-02'), (4, NULL, 40, -1, NULL, '2020-01-02'), \
         (5, 'c', 10, 1.5, 0.1, '2020-01-03'), (6, 'c', 10, 1.50, 0.1, '2020-01-03')",
        "INSERT INTO u VALUES (1, 1, 'a', 5), (2, 1, 'a  ', NULL), (3, 3, 'b', 7), (4, NULL, 'c', 8), (5, 99, 'z', 5)",
    ])
}

const QUERIES: &[&str] = &[
    "SELECT id, n + 1 AS m, CONCAT(g, '!') AS c FROM t WHERE n > 5 OR n IS NULL",
    "SELECT g, COUNT(*), SUM(n), AVG(d), MIN(f), MAX(day), COUNT(DISTINCT n) FROM t GROUP BY g",
    "SELECT COUNT(*), SUM(n), AVG(f), MIN(g), MAX(g) FROM t",
    "SELECT COUNT(*) c, SUM(n) s FROM t WHERE id > 1000",
    "SELECT g FROM t GROUP BY g HAVING COUNT(*) > 1 AND SUM(n) > 15",
    "SELECT DISTINCT g, n FROM t",
    "SELECT DISTINCT n FROM t",
    "SELECT t.id, u.id AS u_id, t.n, u.x FROM t JOIN u ON t.id = u.t_id",
    "SELECT t.id, u.id AS u_id FROM t LEFT JOIN u ON t.id = u.t_id AND u.x > 5",
    "SELECT t.id, u.id AS u_id FROM t RIGHT JOIN u ON t.id = u.t_id",
    "SELECT t.id, u.id AS u_id FROM t JOIN u ON t.g = u.g WHERE t.n < 100",
    "SELECT t.id, u.id AS u_id FROM t, u WHERE t.n > u.x",
    "SELECT id FROM t WHERE id IN (SELECT t_id FROM u)",
    "SELECT id FROM t WHERE id NOT IN (SELECT t_id FROM u WHERE t_id IS NOT NULL)",
    "SELECT id FROM t WHERE id NOT IN (SELECT t_id FROM u)",
    "SELECT id FROM t WHERE n NOT IN (SELECT x FROM u WHERE x > 1000)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.x > t.n - 6)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g)",
    "SELECT id FROM t WHERE n > 15 OR EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id)",
    "SELECT id, EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id) AS e, n IN (SELECT x FROM u) AS i FROM t",
    "SELECT id FROM t WHERE id NOT IN (SELECT t_id FROM u WHERE u.x > t.n)",
    "SELECT id FROM t WHERE n > 15 OR id NOT IN (SELECT t_id FROM u)",
    "SELECT id FROM t WHERE n > 15 OR n IN (SELECT x FROM u)",
    "SELECT id FROM t WHERE id IN (SELECT COUNT(*) FROM u WHERE u.g = t.g)",
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.t_id = t.id) AS posts FROM t",
    "SELECT id, (SELECT SUM(x) FROM u WHERE u.t_id = t.id) AS total FROM t",
    "SELECT id FROM t WHERE n > (SELECT AVG(n) FROM t)",
    "SELECT id, n - (SELECT MIN(n) FROM t) AS above, (SELECT MAX(x) FROM u) AS m FROM t",
    "SELECT id FROM t UNION ALL SELECT id FROM u",
    "SELECT g FROM t UNION SELECT g FROM u",
    "SELECT g FROM t INTERSECT SELECT g FROM u",
    "SELECT g FROM t EXCEPT SELECT g FROM u",
    "SELECT n AS v FROM t UNION ALL SELECT d FROM t UNION ALL SELECT f FROM t",
    "WITH c AS (SELECT g, SUM(n) AS s FROM t GROUP BY g) SELECT a.g, a.s, b.s AS bs FROM c a JOIN c b ON a.s = b.s",
    "SELECT x.g, x.c FROM (SELECT g, COUNT(*) AS c FROM t GROUP BY g) x WHERE x.c >= 2",
    "SELECT 1 AS one, 'a' AS a",
    "SELECT v.column1, t.id FROM (SELECT 10 AS column1 UNION ALL SELECT 20) v JOIN t ON t.n = v.column1",
    "SELECT n / 3 AS q, n DIV 3 AS w, n % 3 AS r, ROUND(d, 1) AS o, IFNULL(n, -1) AS i FROM t",
    "SELECT YEAR(day) AS y, COUNT(*) AS c, SUM(CASE WHEN n > 10 THEN 1 ELSE 0 END) AS big FROM t GROUP BY YEAR(day)",
    "SELECT COUNT(DISTINCT g) AS a, COUNT(DISTINCT n, d) AS b, SUM(DISTINCT n) AS c FROM t",
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id JOIN u ON u.t_id = b.id AND u.x IS NOT NULL",
    "SELECT t.g, COUNT(u.id) AS c FROM t LEFT JOIN u ON u.t_id = t.id GROUP BY t.g",
    "SELECT t.id FROM t LEFT JOIN (SELECT t_id, MAX(x) AS m FROM u GROUP BY t_id) k ON k.t_id = t.id WHERE k.m <=> NULL",
    "SELECT id FROM t WHERE 1 = 0",
    "SELECT id, CONCAT(day + INTERVAL 90 MINUTE) AS c, UNIX_TIMESTAMP(day + INTERVAL 1 SECOND) AS u FROM t",
    "SELECT g, SUM(n / 3) AS s, AVG(d / n) AS a, SUM(d / 7 * id) AS m, COUNT(*) AS c FROM t GROUP BY g",
    "SELECT SUM(n / 3) AS s, AVG(id / 3) AS a FROM t HAVING SUM(n / 3) > 0.0001",
    "SELECT n / 3 * 3 AS q, COUNT(*) AS c FROM t WHERE n / 3 <> 3.3333 GROUP BY n / 3 * 3",
    "SELECT t.id, u.id AS u_id FROM t JOIN u ON t.n / 3 = u.x / 1.5",
    "SELECT IFNULL(n / 7, 0) * 7 AS i, ROUND(n / 7, 6) AS r, CASE WHEN n / 70000 THEN d / 3 END AS k FROM t",
    "SELECT g, COUNT(DISTINCT n) AS d, SUM(f) AS s, MIN(f) AS l, MAX(f) AS m FROM t GROUP BY g",
    "SELECT g, APPROX_COUNT_DISTINCT(n) AS a, APPROX_COUNT_DISTINCT(d) AS b FROM t GROUP BY g",
    "SELECT APPROX_COUNT_DISTINCT(g) AS g, APPROX_COUNT_DISTINCT(f) AS f, APPROX_COUNT_DISTINCT(DISTINCT day) AS t FROM t",
    "SELECT APPROX_COUNT_DISTINCT(n / 3) AS a, APPROX_COUNT_DISTINCT(id) AS b FROM t WHERE id > 1000",
    "SELECT id, (SELECT APPROX_COUNT_DISTINCT(x) FROM u WHERE u.t_id = t.id) AS n FROM t",
    "SELECT id FROM t WHERE (SELECT APPROX_COUNT_DISTINCT(u.g) + 1 FROM u WHERE u.t_id = t.id) = 1",
    "SELECT t.g, APPROX_COUNT_DISTINCT(u.x) AS c FROM t LEFT JOIN u ON u.t_id = t.id GROUP BY t.g \
     HAVING APPROX_COUNT_DISTINCT(u.x) < 2",
    "SELECT id FROM t WHERE g LIKE 'a%' AND day BETWEEN '2020-01-01' AND '2020-12-31'",
];

/// Compares the view's contents with the batch engine's answer.
#[track_caller]
fn compare(world: &World, query: &str, contents: &std::collections::BTreeMap<String, i64>) {
    let batch = world.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    assert_eq!(*contents, counted(&batch), "{query}");
}

#[test]
fn views_answer_as_the_batch_engine_after_a_fill() {
    let world = world();
    for query in QUERIES {
        let plan = world.plan_view(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let mut dataflow = world.dataflow(&plan);
        let delta = world
            .fill(&mut dataflow)
            .unwrap_or_else(|error| panic!("{query}: {error}\n{}", plan.plan.describe()));
        compare(&world, query, &weighted_lines(delta.batch(), delta.weights()));
        let types: Vec<_> = plan.columns.iter().map(|column| column.column_type.arrow_type()).collect();
        let found: Vec<_> = delta.schema().fields().iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, found, "{query}");
    }
}

/// The batch engine's rule for one DISTINCT among other aggregates would add up sums that are rounded.
#[test]
fn floating_sums_beside_a_distinct_are_rounded_once() {
    let world = World::with(&[
        "CREATE TABLE s (id INT PRIMARY KEY, k INT, a INT, f DOUBLE)",
        "INSERT INTO s VALUES (1, 1, 1, 0.1), (2, 1, 1, 0.2), (3, 1, 2, 0.3)",
    ]);
    for query in [
        "SELECT COUNT(DISTINCT a) AS d, SUM(f) AS s FROM s",
        "SELECT k, COUNT(DISTINCT a) AS d, SUM(f) AS s FROM s GROUP BY k",
    ] {
        let plan = world.plan_view(query).unwrap();
        let mut dataflow = world.dataflow(&plan);
        let delta = world.fill(&mut dataflow).unwrap();
        compare(&world, query, &weighted_lines(delta.batch(), delta.weights()));
        assert!(
            counted(&world.query(query).unwrap())
                .keys()
                .all(|line| line.ends_with("|2|0.6") || line == "2|0.6")
        );
    }
}

#[test]
fn views_follow_every_change() {
    for query in QUERIES {
        let mut world = world();
        let plan = world.plan_view(query).unwrap();
        let mut dataflow = world.dataflow(&plan);
        let delta = world.fill(&mut dataflow).unwrap();
        let mut contents = weighted_lines(delta.batch(), delta.weights());
        // Take every row away, one by one from both ends, then put all back.
        let all: Vec<(TableId, RecordBatch)> =
            world.rows.iter().map(|(id, rows)| (*id, rows.clone())).collect();
        let longest = all.iter().map(|(_, rows)| rows.num_rows()).max().unwrap();
        let mut steps: Vec<Vec<(TableId, Delta)>> = Vec::new();
        for row in 0..longest {
            let step = all.iter().filter(|(_, rows)| row < rows.num_rows()).map(|(id, rows)| {
                let row = if row % 2 == 0 { row / 2 } else { rows.num_rows() - 1 - row / 2 };
                (*id, Delta::new(rows.slice(row, 1), Int64Array::from(vec![-1])))
            });
            steps.push(step.collect());
        }
        steps.push(all.iter().map(|(id, rows)| (*id, Delta::inserts(rows.clone()))).collect());
        for step in steps {
            for (id, delta) in step {
                apply(&mut world, id, &delta);
                dataflow.push(id, &delta).unwrap();
            }
            let delta = dataflow.barrier().unwrap_or_else(|error| panic!("{query}: {error}"));
            for (line, weight) in weighted_lines(delta.batch(), delta.weights()) {
                *contents.entry(line).or_insert(0) += weight;
            }
            contents.retain(|_, weight| *weight != 0);
            compare(&world, query, &contents);
        }
    }
}

/// Applies a delta to a table of the world: primary keys are in the first column.
fn apply(world: &mut World, id: TableId, delta: &Delta) {
    let rows = world.rows.remove(&id).unwrap();
    let known = crate::world::lines(&rows);
    let changed = crate::world::lines(delta.batch());
    let kept: BooleanArray = known.iter().map(|line| Some(!changed.contains(line))).collect();
    let mut after = arrow::compute::filter_record_batch(&rows, &kept).unwrap();
    if delta.weights().value(0) > 0 {
        after = arrow::compute::concat_batches(&rows.schema(), [&after, delta.batch()]).unwrap();
    }
    world.rows.insert(id, after);
}

#[test]
fn views_on_views_are_inlined() {
    let mut world = world();
    world.run("CREATE MATERIALIZED VIEW by_g (Grp, Total) AS SELECT g, SUM(n) FROM t GROUP BY g");
    let query = "SELECT grp, total FROM by_g WHERE total > 15";
    let plan = world.plan_view(query).unwrap();
    assert_eq!(plan.base_tables, [world.catalog.find("test", "t").unwrap().id()]);
    let mut dataflow = world.dataflow(&plan);
    let delta = world.fill(&mut dataflow).unwrap();
    compare(&world, query, &weighted_lines(delta.batch(), delta.weights()));
}

#[test]
fn what_views_cannot_do_is_refused_by_name() {
    let world = world();
    for (query, name) in [
        ("SELECT t.id FROM t FULL JOIN u ON t.id = u.t_id", "FULL JOIN"),
        ("SELECT id FROM t ORDER BY id", "ORDER BY"),
        ("SELECT id FROM t LIMIT 5", "LIMIT"),
        ("SELECT NOW()", "NOW()"),
        ("SELECT id FROM t WHERE day < CURDATE()", "CURDATE()"),
        ("SELECT RAND()", "RAND()"),
        ("SELECT UUID()", "UUID()"),
        ("SELECT id, UNIX_TIMESTAMP() FROM t", "UNIX_TIMESTAMP()"),
        ("SELECT @@version", "@@version"),
        ("SELECT USER()", "USER()"),
        ("SELECT ROW_NUMBER() OVER (ORDER BY id) FROM t", "ROW_NUMBER"),
        ("SELECT GROUP_CONCAT(g) FROM t", "GROUP_CONCAT"),
        ("SELECT STDDEV(n) FROM t", "STDDEV"),
        (
            "WITH RECURSIVE c AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM c WHERE a < 5) SELECT * FROM c",
            "RECURSIVE",
        ),
        ("SELECT id FROM t INTERSECT ALL SELECT id FROM u", "INTERSECT ALL"),
        ("SELECT id FROM t EXCEPT ALL SELECT id FROM u", "EXCEPT ALL"),
        ("SELECT g, COUNT(*) FROM t GROUP BY g WITH ROLLUP", "ROLLUP"),
        ("SELECT id FROM t WHERE n > ALL (SELECT x FROM u)", "ALL"),
        ("SELECT id FROM t WHERE n = (SELECT x FROM u WHERE u.t_id = t.id)", "subquery"),
        ("SELECT g COLLATE utf8mb4_general_ci FROM t", "COLLATE"),
    ] {
        match world.plan_view(query) {
            Ok(plan) => panic!("{query} was planned:\n{}", plan.plan.describe()),
            Err(error) => {
                assert!(error.message().to_lowercase().contains(&name.to_lowercase()), "{query}: {error}")
            }
        }
    }
}

#[test]
fn errors_of_rows_are_errors_of_the_view() {
    let mut world = world();
    world.run("INSERT INTO u VALUES (9, 1, 'q', 2147483647)");
    let plan = world.plan_view("SELECT id, x * 9223372036854775807 AS big FROM u").unwrap();
    let error = world.fill(&mut world.dataflow(&plan)).unwrap_err();
    assert_eq!(error.mysql_code(), Some(1690), "{error}");
}

#[test]
fn two_rows_of_a_scalar_subquery_are_an_error() {
    let world = world();
    let plan = world.plan_view("SELECT id, (SELECT x FROM u) AS x FROM t").unwrap();
    assert!(world.fill(&mut world.dataflow(&plan)).is_err());
}

#[test]
fn keys_come_from_primary_keys_and_groups() {
    let world = world();
    let key = |query: &str| world.plan_view(query).unwrap().key;
    assert_eq!(key("SELECT n, id FROM t"), Some(vec![1]));
    assert_eq!(key("SELECT n FROM t"), None);
    assert_eq!(key("SELECT g, COUNT(*) AS c FROM u GROUP BY g"), Some(vec![0]));
    assert_eq!(key("SELECT g, COUNT(*) AS c FROM t GROUP BY g"), None, "a group may be NULL");
    assert_eq!(key("SELECT u.id, t.n FROM u JOIN t ON u.t_id = t.id"), Some(vec![0]));
    assert_eq!(key("SELECT u.id, t.n FROM u LEFT JOIN t ON u.t_id = t.id"), Some(vec![0]));
    assert_eq!(key("SELECT u.id, t.id AS tid FROM u JOIN t ON u.x = t.n"), Some(vec![0, 1]));
}

#[test]
fn plans_are_the_same_each_time() {
    let world = world();
    for query in QUERIES {
        let (one, other) = (world.plan_view(query).unwrap(), world.plan_view(query).unwrap());
        assert_eq!(one.fingerprint, other.fingerprint, "{query}");
        let again = world.plan_view(&one.query).unwrap();
        assert_eq!(one.fingerprint, again.fingerprint, "{}", one.query);
    }
}

#[test]
fn fingerprints_tell_constants_and_zones_apart() {
    let world = world();
    let fingerprint = |query: &str| world.plan_view(query).unwrap().fingerprint;
    assert_ne!(
        fingerprint("SELECT id FROM t WHERE g IN ('a, b')"),
        fingerprint("SELECT id FROM t WHERE g IN ('a', 'b')")
    );
    let in_zone = |zone: &str| {
        let settings = sql::Settings { time_zone: zone.to_owned(), ..world.settings.clone() };
        let query = "SELECT id, UNIX_TIMESTAMP(day) AS u FROM t";
        sql::plan_view(&world.catalog, query, &[], &settings).unwrap().fingerprint
    };
    assert_ne!(in_zone("+02:00"), in_zone("+03:00"));
}

#[test]
fn columns_that_are_never_null_are_known() {
    let world = World::with(&[
        "CREATE TABLE t (id INT PRIMARY KEY, g INT, n INT NOT NULL, d DECIMAL(8,2), s VARCHAR(5), day DATE)",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT NOT NULL)",
    ]);
    for (expression, not_null) in [
        ("IFNULL(g, 0)", true),
        ("IFNULL(g, n)", true),
        ("IFNULL(g, d)", false),
        ("IFNULL(g, 1.5)", true),
        ("IFNULL(d, 0)", true),
        ("IFNULL(s, 'none')", true),
        ("IFNULL(day, '2020-01-01')", true),
        ("COALESCE(g, d, n)", true),
        ("COALESCE(g, d)", false),
        ("COALESCE(g, NULL, 7)", true),
        ("IF(g IS NULL, 0, g)", true),
        ("IF(g IS NOT NULL, g + 1, 0)", true),
        ("IF(g > 1, g, 0)", false),
        ("IF(g IS NOT NULL AND d IS NOT NULL, g + d, n)", true),
        ("CASE WHEN g IS NULL OR d IS NULL THEN 0 ELSE g + d END", true),
        ("CASE WHEN g IS NULL THEN 0 WHEN g > 5 THEN g ELSE g - 1 END", true),
        ("CASE WHEN g > 1 THEN 1 ELSE 0 END", true),
        ("CASE WHEN g > 1 THEN 1 END", false),
        ("CASE g WHEN 1 THEN 'a' ELSE 'b' END", true),
        ("NULLIF(n, 1)", false),
        ("g IS NULL", true),
        ("g <=> 1", true),
        ("n + 1", true),
        ("n / 2", false),
        ("IFNULL(n / 2, 0)", true),
        ("g = 1", false),
        ("IFNULL(g = 1, 0)", true),
        ("CONCAT(n, 'x')", true),
        ("ABS(n)", true),
        ("CAST(n AS CHAR)", false),
    ] {
        let plan = world.plan_view(&format!("SELECT id, {expression} AS c FROM t")).unwrap();
        assert_eq!(plan.columns[1].not_null, not_null, "{expression}");
    }
    for (query, not_null) in [
        ("SELECT g, COUNT(*) AS c FROM t GROUP BY g", true),
        ("SELECT g, COUNT(d) AS c FROM t GROUP BY g", true),
        ("SELECT g, SUM(n) AS c FROM t GROUP BY g", true),
        ("SELECT g, SUM(d) AS c FROM t GROUP BY g", false),
        ("SELECT g, IFNULL(SUM(d), 0) AS c FROM t GROUP BY g", true),
        ("SELECT 1 AS g, SUM(n) AS c FROM t", false),
        ("SELECT 1 AS g, COUNT(*) AS c FROM t", true),
        ("SELECT t.id, u.v AS c FROM t JOIN u ON t.id = u.id", true),
        ("SELECT t.id, u.v AS c FROM t LEFT JOIN u ON t.id = u.id", false),
        ("SELECT t.id, IFNULL(u.v, 0) AS c FROM t LEFT JOIN u ON t.id = u.id", true),
        ("SELECT id, g AS c FROM t WHERE g IS NOT NULL", true),
        ("SELECT id, n AS c FROM t UNION ALL SELECT id, v FROM u", true),
        ("SELECT id, g AS c FROM t UNION ALL SELECT id, v FROM u", false),
    ] {
        let plan = world.plan_view(query).unwrap();
        assert_eq!(plan.columns[1].not_null, not_null, "{query}");
    }
}

/// The same accumulator counts in both engines: over many values, too, they agree to the bit.
#[test]
fn estimates_of_many_values_are_those_of_the_batch_engine() {
    let mut world = World::with(&["CREATE TABLE s (id INT PRIMARY KEY, k INT, v INT, t VARCHAR(20))"]);
    for first in (0..20_000).step_by(2_000) {
        let rows: Vec<String> = (first..first + 2_000)
            .map(|id| format!("({id}, {}, {}, 'text {}')", id % 3, id / 2, id % 7_000))
            .collect();
        world.run(&format!("INSERT INTO s VALUES {}", rows.join(", ")));
    }
    for (query, exact) in [
        ("SELECT APPROX_COUNT_DISTINCT(v) AS n FROM s", 10_000.0),
        ("SELECT APPROX_COUNT_DISTINCT(t) AS n FROM s", 7_000.0),
        ("SELECT MIN(n) AS n FROM (SELECT APPROX_COUNT_DISTINCT(id) AS n FROM s GROUP BY k) g", 6_667.0),
    ] {
        let batch = world.query(query).unwrap();
        let plan = world.plan_view(query).unwrap();
        assert!(plan.plan.describe().contains("approx_count_distinct("), "{}", plan.plan.describe());
        world.check_view(query, &plan, &batch);
        let estimate: f64 = crate::world::lines(&batch)[0].parse().unwrap();
        assert!((estimate - exact).abs() < 4.0 * 0.01625 * exact, "{query}: {estimate}");
    }
}

#[test]
fn approx_count_distinct_is_never_null_and_takes_one_argument() {
    let mut world = world();
    let plan = world.plan_view("SELECT APPROX_COUNT_DISTINCT(g) AS n FROM t").unwrap();
    assert!(plan.columns[0].not_null);
    assert_eq!(plan.columns[0].column_type, tidb::ColumnType::Int { bits: 64, unsigned: false });
    world.check_live("SELECT APPROX_COUNT_DISTINCT(n) FROM t WHERE id > 1000", &["0"]);
    world.check_live("SELECT APPROX_COUNT_DISTINCT(NULL), APPROX_COUNT_DISTINCT(1 = 1) FROM t", &["0|1"]);
    let correlated = "SELECT id, (SELECT APPROX_COUNT_DISTINCT(x) FROM u WHERE u.t_id = t.id) AS n FROM t";
    world.check_live(correlated, &["1|1", "2|0", "3|1", "4|0", "5|0", "6|0"]);
    // Over frames rows leave again.
    let frames = "SELECT id, APPROX_COUNT_DISTINCT(n) OVER (ORDER BY id ROWS 1 PRECEDING) AS c FROM t";
    world.check_live(frames, &["1|1", "2|2", "3|1", "4|1", "5|2", "6|1"]);
    for (query, code) in [
        ("SELECT APPROX_COUNT_DISTINCT(id, n) FROM t", 1582),
        ("SELECT APPROX_COUNT_DISTINCT() FROM t", 1582),
        ("SELECT APPROX_COUNT_DISTINCT(*) FROM t", 1064),
        ("SELECT SUM(*) FROM t", 1064),
    ] {
        assert_eq!(world.query(query).unwrap_err().mysql_code(), Some(code), "{query}");
        assert_eq!(world.plan_view(query).unwrap_err().mysql_code(), Some(code), "view {query}");
    }
    world.run("CREATE MATERIALIZED VIEW a AS SELECT g, APPROX_COUNT_DISTINCT(n) AS n FROM t GROUP BY g");
    world.check_live("SELECT SUM(n) FROM a", &["4"]);
}
