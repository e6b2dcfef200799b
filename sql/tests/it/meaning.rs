//! What expressions mean: MySQL's documented answers, through the batch engine.

use crate::world::{World, lines};

#[track_caller]
fn check(expression: &str, expected: &str) {
    check_query(&World::new(), &format!("SELECT {expression}"), &[expected]);
}

#[track_caller]
fn check_query(world: &World, query: &str, expected: &[&str]) {
    match world.query(query) {
        Ok(batch) => assert_eq!(lines(&batch), expected, "{query}"),
        Err(error) => panic!("{query}: {error} ({:?})", error.mysql_code()),
    }
}

#[track_caller]
fn check_error(expression: &str, code: u16) {
    let error = World::new().query(&format!("SELECT {expression}")).unwrap_err();
    assert_eq!(error.mysql_code(), Some(code), "{expression}: {error}");
}

#[test]
fn division_of_integers_gives_a_decimal() {
    check("1/3, 10/4, 7 DIV 2, -7 DIV 2, 7 % 3, -7 % 3", "0.3333|2.5000|3|-3|1|-1");
    check("7 DIV 2 + 1, 2 + 3 * 4, 7 MOD 4 + 1", "4|14|4");
    check("1.5 / 3, 2.50 * 2.5, 1.1 + 2.22, 5 DIV 1.5", "0.50000|6.250|3.32|3");
    check("1e0 / 4, 2e0 * 3", "0.25|6.0");
}

#[test]
fn quotients_carry_more_digits_than_they_show() {
    check(
        "1/3*100, 1/3*3, 2/3*3, 1/3+1/3+1/3, (1/3)*1.5, 1/3/3*9",
        "33.3333|1.0000|2.0000|1.0000|0.50000|1.00000000",
    );
    check(
        "ROUND(1/3*3), CAST(1/3*3 AS SIGNED), FLOOR(1/3*3), ROUND(1/3, 6), CAST(1/3 AS DECIMAL(12,10))",
        "1|1|0|0.333333|0.3333333330",
    );
    check(
        "CAST(1/3 AS CHAR), CONCAT(1/3), 1/3 = 0.3333, 1/3 = 1/3, 1/3 IN (0.3333, 0.333333333)",
        "0.3333|0.3333|0|1|1",
    );
    check(
        "IF(1, 1/3, 0)*3, IFNULL(1/3, 0)*3, COALESCE(NULL, 1/3)*3, CASE WHEN 0 THEN 1 ELSE 1/3 END*3",
        "1.0000|1.0000|1.0000|1.0000",
    );
    check(
        "-(1/3)*3, ABS(-1/3)*3, GREATEST(1/3, 0)*3, MOD(1/3*3, 2), 1/3 - 1/3, 1/30000 AND 1, NOT 1/30000",
        "-1.0000|1.0000|1.0000|1.0000|0.0000|1|0",
    );
    check(
        "1.5/3*2, 1.00/3.00, 0.1/0.3*3, 22/7 DIV 1, (1/3)*1e0 > 0.3333, 1/3*3 > 0.9999",
        "1.00000|0.333333|1.00000|3|1|1",
    );
    check(
        "99999999999999999999/7, 1/99999999999999999999999999999999, 1e0/3",
        "14285714285714285714.1429|0.0000|0.3333333333333333",
    );
    check(
        "CAST('99999999999999999999999999999999999.5' AS DECIMAL(65,30)) / CAST('3.000000000000000000000000000007' AS DECIMAL(65,30))",
        "33333333333333333333333333333255555.388888888888888888888889070371",
    );
}

#[test]
fn sums_of_quotients_add_all_digits() {
    let world = World::with(&[
        "CREATE TABLE q (id INT PRIMARY KEY, g INT, x INT, y INT, d DECIMAL(10,2))",
        "INSERT INTO q VALUES (1, 1, 1, 3, 0.10), (2, 1, 1, 3, 0.10), (3, 2, 1, 3, 0.10), (4, 2, 2, 0, NULL)",
    ]);
    check_query(
        &world,
        "SELECT SUM(x/y), AVG(x/y), SUM(d/y), MIN(x/y) FROM q",
        &["1.0000|0.33333333|0.100000|0.3333"],
    );
    check_query(&world, "SELECT g, SUM(x/y) FROM q GROUP BY g ORDER BY g", &["1|0.6667", "2|0.3333"]);
    check_query(&world, "SELECT g FROM q GROUP BY g HAVING SUM(x/y) > 0.6666 ORDER BY SUM(x/y)", &["1"]);
    check_query(&world, "SELECT x/y, COUNT(*) FROM q GROUP BY x/y ORDER BY x/y", &["NULL|1", "0.3333|3"]);
    check_query(&world, "SELECT id FROM q WHERE x/y*3 < 1 ORDER BY id", &["1", "2", "3"]);
}

#[test]
fn division_by_zero_is_null() {
    check("1/0, 1 DIV 0, 1 % 0, 1.5/0, 1e0/0, 5.5 % 0, MOD(5, 0)", "NULL|NULL|NULL|NULL|NULL|NULL|NULL");
}

#[test]
fn integers_do_not_wrap() {
    check_error("9223372036854775807 + 1", 1690);
    check_error("-9223372036854775808 - 1", 1690);
    check_error("9223372036854775807 * 2", 1690);
    check_error("ABS(-9223372036854775808)", 1690);
    check_error("CAST(1 AS UNSIGNED) - 2", 1690);
    check_error("1e308 * 10", 1690);
    check("18446744073709551615, 9223372036854775807 - 1", "18446744073709551615|9223372036854775806");
}

#[test]
fn conditions_are_zero_and_one() {
    check("1 = 1, 1 > 2, NULL = 1, NOT 5, NOT 0, TRUE + TRUE", "1|0|NULL|0|1|2");
    check("1 AND 0, 1 OR NULL, NULL AND 0, NULL AND 1, 1 XOR 1, 1 XOR NULL", "0|1|0|NULL|0|NULL");
    check("NULL <=> NULL, 1 <=> NULL, 1 IS NULL, NULL IS NULL, 2 IS TRUE, NULL IS UNKNOWN", "1|0|0|1|1|1");
    check("1 || 0, 0 || 0, 1 && 0, !1", "1|0|0|0");
    check(
        "2 BETWEEN 1 AND 3, 2 NOT BETWEEN 1 AND 3, 2 IN (1, 2), 2 NOT IN (1, NULL), 3 IN (1, 2)",
        "1|0|1|NULL|0",
    );
    check("(1, 2) = (1, 2), (1, 2) IN ((1, 3), (1, 2)), (1, 2) <> (1, 3)", "1|1|1");
}

#[test]
fn strings_compare_with_numbers_by_their_beginning() {
    check("'12abc' = 12, 'abc' = 0, '1.5' > 1, '0x10' = 0, ' 7' = 7", "1|1|1|1|1");
    check("'3' + 4, '3.5x' * 2, 'a' + 1, - '5'", "7.0|7.0|1.0|-5.0");
}

#[test]
fn texts_are_padded_where_they_compare() {
    check("'a' = 'a ', 'a' < 'a ', 'a ' <=> 'a', 'A' = 'a', 'a' LIKE 'a ', 'b' > 'a   '", "1|0|1|0|0|1");
    check("'abc' LIKE 'a%', 'abc' LIKE '_b_', 'a%c' LIKE 'a\\%c', 'axc' LIKE 'a|%c' ESCAPE '|'", "1|1|1|0");
    check("'a' IN ('b', 'a  '), GREATEST('a', 'b '), STRCMP('a', 'a ')", "1|b |0");
}

#[test]
fn null_handling_functions() {
    check(
        "IFNULL(NULL, 3), IFNULL(1, 2), NULLIF(1, 1), NULLIF(1, 2), COALESCE(NULL, NULL, 'x')",
        "3|1|NULL|1|x",
    );
    check("IF(0, 'a', 'b'), IF(NULL, 1, 2), CASE WHEN 0 THEN 'a' END, ISNULL(NULL)", "b|2|NULL|1");
    check(
        "CASE 3 WHEN 1 THEN 'one' WHEN 3 THEN 'three' ELSE 'other' END, CASE WHEN 1 THEN 1 ELSE 2.5 END",
        "three|1.0",
    );
    check("IF(1, 1, 1/0), CASE WHEN 1 THEN 5 ELSE 9223372036854775807 + 1 END", "1.0000|5");
}

#[test]
fn string_functions() {
    check("CONCAT('a', 1, 2.50), CONCAT('a', NULL), CONCAT_WS(',', 'a', NULL, 'b')", "a12.50|NULL|a,b");
    check("LENGTH('höh'), CHAR_LENGTH('höh'), UPPER('aé'), LOWER('ÀB'), REVERSE('abc')", "4|3|AÉ|àb|cba");
    check(
        "SUBSTRING('Quadratically', 5), SUBSTRING('Sakila', -3), SUBSTRING('Quadratically', 5, 6)",
        "ratically|ila|ratica",
    );
    check(
        "SUBSTRING('abc', 0), SUBSTR('foobarbar' FROM 4), LEFT('abc', 2), RIGHT('abc', 2)",
        "|barbar|ab|bc",
    );
    check(
        "TRIM('  a '), TRIM(LEADING 'x' FROM 'xxbarxx'), TRIM(BOTH 'x' FROM 'xxbarxx'), LTRIM(' a')",
        "a|barxx|bar|a",
    );
    check(
        "REPLACE('www.a.b', 'w', 'Ww'), REPEAT('ab', 3), LPAD('hi', 4, '?'), RPAD('hi', 1, '?')",
        "WwWwWw.a.b|ababab|??hi|h",
    );
    check("LOCATE('bar', 'foobarbar'), LOCATE('bar', 'foobarbar', 5), INSTR('foobar', 'xbar')", "4|7|0");
    check(
        "HEX('abc'), HEX(255), FIELD('b', 'a', 'b'), ELT(2, 'a', 'b'), FIND_IN_SET('b', 'a,b')",
        "616263|FF|2|b|2",
    );
    check(
        "SUBSTRING_INDEX('www.mysql.com', '.', 2), SUBSTRING_INDEX('www.mysql.com', '.', -2)",
        "www.mysql|mysql.com",
    );
}

#[test]
fn number_functions() {
    check("ROUND(-1.58), ROUND(1.298, 1), ROUND(23.298, -1), ROUND(2.5), ROUND(25e-1)", "-2|1.3|20|3|2.0");
    check("TRUNCATE(1.999, 1), TRUNCATE(-1.999, 1), TRUNCATE(122, -2)", "1.9|-1.9|100");
    check("CEIL(1.23), CEILING(-1.23), FLOOR(1.23), FLOOR(-1.23)", "2|-1|1|-2");
    check("ABS(-32), ABS(-1.5), SIGN(-32), MOD(234, 10), MOD(34.5, 3)", "32|1.5|-1|4|1.5");
    check(
        "SQRT(4), SQRT(-1), POW(2, 10), LN(0), GREATEST(2, 0), LEAST(34.0, 3.0, 5.0), GREATEST(1, NULL)",
        "2.0|NULL|1024.0|NULL|2|3.0|NULL",
    );
    check("5 & 3, 5 | 3, 5 ^ 3, 1 << 4, 16 >> 2, ~0", "1|7|6|16|4|18446744073709551615");
}

#[test]
fn casts() {
    check(
        "CAST('12abc' AS SIGNED), CAST(1.5 AS SIGNED), CAST(-1 AS UNSIGNED), CAST('1.5' AS SIGNED)",
        "12|2|18446744073709551615|1",
    );
    check(
        "CAST(1 AS CHAR), CAST('2.345' AS DECIMAL(5,2)), CAST(1234567 AS DECIMAL(5,2)), CAST('abcdef' AS CHAR(3))",
        "1|2.35|999.99|abc",
    );
    check(
        "CAST('2020-02-30' AS DATE), CAST('2020-02-29 10:11:12' AS DATE), CONVERT('7', SIGNED)",
        "NULL|2020-02-29|7",
    );
}

#[test]
fn dates() {
    check(
        "DATE '2008-01-02' + INTERVAL 1 DAY, DATE_SUB('2018-05-01', INTERVAL 1 YEAR)",
        "2008-01-03|2017-05-01",
    );
    check(
        "DATE_ADD('2024-01-30', INTERVAL 1 MONTH), DATE_ADD('2100-12-31 23:59:59', INTERVAL 61 SECOND)",
        "2024-02-29|2101-01-01 00:01:00",
    );
    check(
        "DATEDIFF('2007-12-31 23:59:59', '2007-12-30'), TIMESTAMPDIFF(MONTH, '2003-02-01', '2003-05-01')",
        "1|3",
    );
    check(
        "YEAR('1987-01-01'), MONTH('2008-02-03'), DAYOFMONTH('2007-02-03'), HOUR('2020-01-01 10:05:03')",
        "1987|2|3|10",
    );
    check(
        "DAYOFWEEK('2007-02-03'), WEEKDAY('2008-02-03 22:23:00'), DAYOFYEAR('2007-02-03'), QUARTER('2008-04-01')",
        "7|6|34|2",
    );
    check(
        "DATE_FORMAT('2009-10-04 22:23:00', '%W %M %Y'), DATE_FORMAT('2007-10-04 22:23:00', '%H:%i:%s')",
        "Sunday October 2009|22:23:00",
    );
    check(
        "LAST_DAY('2003-02-05'), EXTRACT(YEAR_MONTH FROM '2019-07-02 01:02:03'), WEEK('2008-02-20'), WEEK('2008-02-20', 1)",
        "2003-02-28|201907|7|8",
    );
    check(
        "DATE('2003-12-31 01:02:03'), DATE '2020-01-01' = '2020-01-01', DATE '2020-01-01' < '2020-01-01 00:00:01'",
        "2003-12-31|1|1",
    );
    check(
        "UNIX_TIMESTAMP('1970-01-02 00:00:00'), FROM_UNIXTIME(86400), TO_DAYS('1995-05-01')",
        "86400|1970-01-02T00:00:00|728779",
    );
    check("NOW(), CURDATE(), UNIX_TIMESTAMP()", "2026-11-30T12:00:00|2026-11-30|1796040000");
    check_error("DATE '2020-13-01'", 1525);
}

#[test]
fn prefix_operators_bind_closest() {
    check("!0 + 1, !1 = 0, !0 ^ 1, NOT 1 + 1, ! -1, !!5", "2|1|0|0|0|1");
    check("-2 ^ 3, -2 * 3, ~0 & 1, ~1 * 0, - - 2, -(-2)", "18446744073709551613|-6|1|0|2|2");
}

#[test]
fn zero_has_no_sign() {
    let world = World::with(&[
        "CREATE TABLE z (id INT PRIMARY KEY, d DOUBLE NOT NULL, x DECIMAL(3,1))",
        "INSERT INTO z VALUES (1, -0.5, -0.5), (2, 0, 0)",
    ]);
    check_query(&world, "SELECT CEIL(d) IN (0, 1), CEIL(d) = 0, CEIL(d) FROM z WHERE id = 1", &["1|1|0.0"]);
    check_query(
        &world,
        "SELECT -d IN (0, 1), -d, d * -1, -1e0 * d IN (0, 2), -d = 0, 0 / -5e0 IN (0, 3) FROM z WHERE id = 2",
        &["1|0.0|0.0|1|1|1"],
    );
    check_query(
        &world,
        "SELECT -5e0 % 5 IN (0, 1), '-0' + 0e0, -0e0, SIN(-d), ATAN(-0e0, 1), POW(-0e0, 3), \
         CAST(-1e-60 AS FLOAT), CAST('-0' AS DOUBLE), ROUND(-0.4e0), TRUNCATE(-0.4e0, 0), FLOOR(-0e0), \
         RADIANS(-0e0), GREATEST(-0e0, 0e0), ABS(-0e0) FROM z WHERE id = 2",
        &["1|0.0|0.0|0.0|0.0|0.0|0.0|0.0|0.0|0.0|0.0|0.0|0.0|0.0"],
    );
    check_query(
        &world,
        "SELECT COUNT(DISTINCT CEIL(d)), SUM(CEIL(d)), AVG(-d * 0), MAX(-d * 0) FROM z",
        &["1|0.0|0.0|0.0"],
    );
}

#[test]
fn integer_constants_beside_times_are_times() {
    let world = World::with(&[
        "CREATE TABLE e (id INT PRIMARY KEY, d DATETIME(3), ts TIMESTAMP, day DATE)",
        "INSERT INTO e VALUES (1, '2023-12-31 23:59:59', '2023-12-31 23:59:59', '2023-12-31'), \
         (2, '2024-01-01 00:00:00', '2024-01-01 00:00:00', '2024-01-01'), \
         (3, '2024-01-01 10:11:12', '2024-01-01 10:11:12', '2024-01-02')",
    ]);
    let ids = |condition: &str| {
        lines(&world.query(&format!("SELECT id FROM e WHERE {condition} ORDER BY id")).unwrap()).join(",")
    };
    assert_eq!(ids("d >= 20240101"), "2,3");
    assert_eq!(ids("d = 240101"), "2");
    assert_eq!(ids("20240101 > d"), "1");
    assert_eq!(ids("ts >= 20240101"), "2,3");
    assert_eq!(ids("ts = 20240101101112"), "3");
    assert_eq!(ids("d = 240101101112"), "3");
    assert_eq!(ids("d BETWEEN 20231231 AND 20240101"), "1,2");
    assert_eq!(ids("d IN (20240101, 20240101101112)"), "2,3");
    assert_eq!(ids("day = 20240102"), "3");
    assert_eq!(ids("day >= 240101"), "2,3");
    // What is no time compares as a number, and so does what is no column.
    assert_eq!(ids("d > 5"), "1,2,3");
    assert_eq!(ids("d > 20241301"), "1,2,3");
    assert_eq!(ids("DATE_ADD(d, INTERVAL 1 DAY) > 20990101"), "1,2,3");
}

#[test]
fn strings_beside_unsigned_integers_are_exact() {
    let world = World::with(&[
        "CREATE TABLE w (u BIGINT UNSIGNED PRIMARY KEY, s INT UNSIGNED)",
        "INSERT INTO w VALUES (18446744073709551615, 1), (18446744073709551614, 2), (9223372036854775808, 3)",
    ]);
    check_query(&world, "SELECT s FROM w WHERE u = '18446744073709551615'", &["1"]);
    check_query(&world, "SELECT s FROM w WHERE u IN ('18446744073709551614', '5')", &["2"]);
    check_query(&world, "SELECT s FROM w WHERE '9223372036854775808' = u", &["3"]);
    check_query(&world, "SELECT COUNT(*) FROM w WHERE s < '3' AND u > '-1'", &["2"]);
}

fn small() -> World {
    World::with(&[
        "CREATE TABLE t (Id INT PRIMARY KEY, s VARCHAR(10), n INT, d DECIMAL(10,2), f DOUBLE, day DATE)",
        "INSERT INTO t VALUES (1, 'a', 10, 1.50, 0.1, '2020-01-01'), (2, 'a ', 20, NULL, 0.2, NULL), \
         (3, 'b', NULL, 2.25, 0.3, '2020-01-02'), (4, NULL, 40, -1, NULL, '2020-01-02')",
        "CREATE TABLE u (id BIGINT PRIMARY KEY, t_id VARCHAR(5), x INT UNSIGNED)",
        "INSERT INTO u VALUES (1, '1', 7), (2, '2 ', 8), (3, 'zzz', 9)",
    ])
}

#[test]
fn nulls_sort_first() {
    check_query(&small(), "SELECT id FROM t ORDER BY n", &["3", "1", "2", "4"]);
    check_query(&small(), "SELECT id FROM t ORDER BY n DESC", &["4", "2", "1", "3"]);
    check_query(&small(), "SELECT id FROM t ORDER BY s, id LIMIT 2, 5", &["2", "3"]);
}

#[test]
fn groups_and_distinct_pad_texts() {
    check_query(
        &small(),
        "SELECT s, COUNT(*), SUM(n) FROM t GROUP BY s ORDER BY s",
        &["NULL|1|40", "a|2|30", "b|1|NULL"],
    );
    check_query(&small(), "SELECT DISTINCT s FROM t ORDER BY 1", &["NULL", "a", "b"]);
    check_query(&small(), "SELECT COUNT(DISTINCT s), MIN(s), MAX(s) FROM t", &["2|a|b"]);
    check_query(&small(), "SELECT s FROM t WHERE s = 'a' UNION SELECT 'a  '", &["a"]);
    check_query(&small(), "SELECT UPPER(s) AS k, COUNT(*) c FROM t GROUP BY k HAVING c > 1", &["A|2"]);
}

#[test]
fn aggregates_have_mysqls_types() {
    check_query(
        &small(),
        "SELECT SUM(n), AVG(n), SUM(d), AVG(d), COUNT(n), MAX(day) FROM t",
        &["70|23.3333|2.75|0.916667|3|2020-01-02"],
    );
    check_query(
        &small(),
        "SELECT SUM(n), COUNT(*), AVG(d), MIN(s) FROM t WHERE id > 100",
        &["NULL|0|NULL|NULL"],
    );
    check_query(
        &small(),
        "SELECT SUM(n > 15), SUM(DISTINCT day), AVG(f) FROM t WHERE id < 3",
        &["1|20200101|0.15000000000000002"],
    );
}

#[test]
fn joins_convert_keys() {
    check_query(&small(), "SELECT t.id, u.x FROM t JOIN u ON t.id = u.t_id ORDER BY 1", &["1|7", "2|8"]);
    check_query(&small(), "SELECT a.id, b.id FROM t a JOIN t b ON a.s = b.s WHERE a.id < b.id", &["1|2"]);
    check_query(&small(), "SELECT t.id FROM t WHERE id IN (SELECT t_id FROM u) ORDER BY id", &["1", "2"]);
    check_query(
        &small(),
        "SELECT t.id FROM t WHERE s NOT IN (SELECT s FROM t WHERE id = 1) ORDER BY id",
        &["3"],
    );
    check_query(&small(), "SELECT t.id FROM t LEFT JOIN u USING (id) WHERE u.id IS NULL", &["4"]);
    check_query(
        &small(),
        "SELECT x, (SELECT COUNT(*) FROM t WHERE t.id = u.id) FROM u ORDER BY x",
        &["7|1", "8|1", "9|1"],
    );
    check_query(&small(), "SELECT id FROM t WHERE n > (SELECT AVG(n) FROM t)", &["4"]);
}

#[test]
fn names_are_mysqls() {
    let world = small();
    let query = "SELECT *, id, ID + 1, n AS N, s, s FROM t WHERE T.ID = 1";
    let sql::Statement::Query(parsed) = sql::parse(query, &world.settings).unwrap().pop().unwrap().statement
    else {
        panic!("a query");
    };
    let planned = sql::plan_query(&parsed.query, &world, &world.settings).unwrap();
    let names: Vec<&str> = planned.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["Id", "s", "n", "d", "f", "day", "id", "ID + 1", "N", "s", "s"]);
    assert_eq!(planned.columns[1].column_type, tidb::ColumnType::Varchar(10));
    assert!(planned.columns[0].not_null);
}

#[test]
fn times_show_the_digits_of_their_type() {
    let world = World::with(&[
        "CREATE TABLE e (id INT PRIMARY KEY, d0 DATETIME, d3 DATETIME(3), ts TIMESTAMP(1), day DATE)",
        "INSERT INTO e VALUES (1, '2020-01-01 00:00:00', '2020-01-01 00:00:00.12', '2020-01-01 00:00:00.5', '2020-01-01')",
    ]);
    let types = |items: &str| {
        let query = format!("SELECT {items} FROM (SELECT * FROM e) AS e");
        let sql::Statement::Query(parsed) =
            sql::parse(&query, &world.settings).unwrap().pop().unwrap().statement
        else {
            panic!("a query");
        };
        let planned = sql::plan_query(&parsed.query, &world, &world.settings).unwrap();
        planned.columns.into_iter().map(|column| column.column_type).collect::<Vec<_>>()
    };
    use tidb::ColumnType::{Date, Datetime, Decimal, Int};
    assert_eq!(
        types(
            "DATE_ADD(d0, INTERVAL 1 DAY), d3 - INTERVAL 1 MONTH, d0 + INTERVAL 1.5 SECOND, day + INTERVAL 1 HOUR, \
             day + INTERVAL 1 DAY, ts + INTERVAL 1 DAY, TIMESTAMPADD(MINUTE, 1, d0), FROM_UNIXTIME(1), \
             IFNULL(d0, d3), DATE_ADD(DATE_ADD(d3, INTERVAL 1 DAY), INTERVAL 1 SECOND), GREATEST(d0, d3)"
        ),
        [
            Datetime(0),
            Datetime(3),
            Datetime(1),
            Datetime(0),
            Date,
            Datetime(1),
            Datetime(0),
            Datetime(0),
            Datetime(3),
            Datetime(3),
            Datetime(3)
        ]
    );
    let whole = Int { bits: 64, unsigned: false };
    assert_eq!(
        types("UNIX_TIMESTAMP(d0), UNIX_TIMESTAMP(d3), UNIX_TIMESTAMP(day)"),
        [whole.clone(), Decimal { precision: 14, scale: 3 }, whole]
    );
    check_query(
        &world,
        "SELECT CONCAT(d0), CONCAT(d3, '!'), CONCAT(ts), UNIX_TIMESTAMP(d0), UNIX_TIMESTAMP(d3), CAST(d3 AS CHAR), \
         LENGTH(d0), IF(id, d3, 'x'), d3 LIKE '%.120', CONCAT(d0 + INTERVAL 1 DAY), CONCAT(day) FROM e",
        &["2020-01-01 00:00:00|2020-01-01 00:00:00.120!|2020-01-01 00:00:00.5|1577836800|1577836800.120|\
           2020-01-01 00:00:00.120|19|2020-01-01 00:00:00.120|1|2020-01-02 00:00:00|2020-01-01"],
    );
}

#[test]
fn errors_have_mysqls_numbers() {
    let world = small();
    let code = |query: &str| world.query(query).unwrap_err().mysql_code();
    assert_eq!(code("SELECT nope FROM t"), Some(1054));
    assert_eq!(code("SELECT id FROM t, u"), Some(1052));
    assert_eq!(code("SELECT * FROM nope"), Some(1146));
    assert_eq!(code("SELECT * FROM nope.t"), Some(1049));
    assert_eq!(code("SELECT NOPE(1)"), Some(1305));
    assert_eq!(code("SELECT LENGTH()"), Some(1582));
    assert_eq!(code("SELECT @@nope"), Some(1193));
    for ignored in [
        "SELECT 1 INTERSECT ALL SELECT 1",
        "SELECT day, COUNT(*) FROM t GROUP BY day WITH ROLLUP",
        "SELECT day, COUNT(*) FROM t GROUP BY day WITH CUBE",
        "SELECT id FROM t TABLESAMPLE (1 PERCENT)",
        "SELECT id FROM (SELECT id FROM t) AS d TABLESAMPLE (1 PERCENT)",
        "SELECT id FROM t FOR UPDATE",
        "SELECT id FROM t FOR SHARE",
        "SELECT id FROM (SELECT id FROM t FOR UPDATE) AS d",
    ] {
        assert_eq!(code(ignored), Some(1235), "{ignored}");
    }
    assert_eq!(code("SELECT day FROM t WHERE day = 'abc'"), Some(1525));
}
