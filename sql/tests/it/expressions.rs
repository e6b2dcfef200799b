//! Scalar expressions beside MySQL's answers: by the batch engine, and in a view over a table of one row.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, TimestampMicrosecondType};
use arrow::util::display::array_value_to_string;
use tidb::{CivilTime, ColumnType, format_double, format_float, format_time};

use crate::world::{World, lines};

/// One row of values that the expressions name, so that nothing is folded away before it runs.
fn world() -> World {
    World::with(&[
        "CREATE TABLE o (id INT PRIMARY KEY, i INT, m INT, n INT, u BIGINT UNSIGNED, b BIGINT, d DECIMAL(10,2), \
         k DECIMAL(5,3), f DOUBLE, s VARCHAR(20), z VARCHAR(20), e VARCHAR(20), p VARCHAR(20), dt DATETIME(3), \
         day DATE, d0 DATETIME)",
        "INSERT INTO o VALUES (1, 7, -7, NULL, 18446744073709551615, 9223372036854775807, 12.35, -0.125, 1.5, \
         'Hello', 'naïve €😀', '', '12abc', '2024-02-29 13:45:07.12', '2024-01-31', '2023-12-31 23:59:59')",
    ])
}

/// Expressions and what MySQL 8 shows for them.
const ANSWERS: &[(&str, &str)] = &[
    // Arithmetic
    ("i + 1", "8"),
    ("i - 10", "-3"),
    ("i * 2.5", "17.5"),
    ("i / 2", "3.5000"),
    ("i DIV 2", "3"),
    ("m DIV 2", "-3"),
    ("i % 4", "3"),
    ("m % 4", "-3"),
    ("MOD(m, 4)", "-3"),
    ("i / 0", "NULL"),
    ("i DIV 0", "NULL"),
    ("i % 0", "NULL"),
    ("f / 0", "NULL"),
    ("d / 0.0", "NULL"),
    ("i + n", "NULL"),
    ("d + 1", "13.35"),
    ("d * d", "152.5225"),
    ("d / 3", "4.116667"),
    ("d % 5", "2.35"),
    ("-d", "-12.35"),
    ("d - k", "12.475"),
    ("d * k", "-1.54375"),
    ("i / 3", "2.3333"),
    ("i / 3 * 3", "7.0000"),
    ("1/3 + i/21 + 1/3", "1.0000"),
    ("f * 2", "3"),
    ("f / 2", "0.75"),
    ("f + d", "13.85"),
    ("i + f", "8.5"),
    ("'3' + 4", "7"),
    ("p + 1", "13"),
    ("s + 1", "1"),
    ("'1e2' + 0", "100"),
    ("i DIV 0.5", "14"),
    ("5.5 DIV 2", "2"),
    ("-5.5 DIV 2", "-2"),
    ("5.5 % 2", "1.5"),
    ("i & 3", "3"),
    ("i | 8", "15"),
    ("i ^ 2", "5"),
    ("i << 2", "28"),
    ("i >> 1", "3"),
    ("~i", "18446744073709551608"),
    ("m & 15", "9"),
    ("1 << 64", "0"),
    ("u - 1", "18446744073709551614"),
    ("u DIV 2", "9223372036854775807"),
    ("u % 10", "5"),
    ("b - 1", "9223372036854775806"),
    ("-i", "-7"),
    ("- -i", "7"),
    ("!i", "0"),
    ("!0 + 1", "2"),
    ("i + 1.0", "8.0"),
    ("1.10 + 2.2", "3.30"),
    ("0.1 + 0.2", "0.3"),
    ("0.1 * 0.1", "0.01"),
    ("2.50 * 2", "5.00"),
    ("1 - 0.9", "0.1"),
    ("1e-1 + 0.2e0", "0.30000000000000004"),
    ("100 / i", "14.2857"),
    ("1.00 / 3", "0.333333"),
    ("10 / 4.0", "2.5000"),
    ("day + 0", "20240131"),
    ("d0 + 0", "20231231235959"),
    // Rounding and numbers
    ("ROUND(d, 1)", "12.4"),
    ("ROUND(-1.5)", "-2"),
    ("ROUND(2.5)", "3"),
    ("ROUND(k, 2)", "-0.13"),
    ("ROUND(1234.567, -2)", "1200"),
    ("ROUND(i, -1)", "10"),
    ("ROUND(4, -1)", "0"),
    ("ROUND(f)", "2"),
    ("ROUND(2.5e0)", "2"),
    ("ROUND(0.5e0)", "0"),
    ("ROUND(n)", "NULL"),
    ("TRUNCATE(1.999, 1)", "1.9"),
    ("TRUNCATE(-1.999, 1)", "-1.9"),
    ("TRUNCATE(122, -2)", "100"),
    ("CEIL(d)", "13"),
    ("FLOOR(d)", "12"),
    ("CEIL(k)", "0"),
    ("FLOOR(k)", "-1"),
    ("CEIL(f)", "2"),
    ("FLOOR(-f)", "-2"),
    ("ABS(m)", "7"),
    ("ABS(k)", "0.125"),
    ("SIGN(k)", "-1"),
    ("SIGN(0)", "0"),
    ("GREATEST(i, 10)", "10"),
    ("LEAST(i, 10)", "7"),
    ("GREATEST(i, n)", "NULL"),
    ("SQRT(16)", "4"),
    ("SQRT(m)", "NULL"),
    ("POW(2, 10)", "1024"),
    ("LOG2(8)", "3"),
    ("LOG10(100)", "2"),
    ("LN(0)", "NULL"),
    ("EXP(0)", "1"),
    // Casts
    ("CAST(d AS SIGNED)", "12"),
    ("CAST(12.5 AS SIGNED)", "13"),
    ("CAST(-12.5 AS SIGNED)", "-13"),
    ("CAST('12.9' AS SIGNED)", "12"),
    ("CAST(p AS SIGNED)", "12"),
    ("CAST(s AS SIGNED)", "0"),
    ("CAST(e AS SIGNED)", "0"),
    ("CAST(-1 AS UNSIGNED)", "18446744073709551615"),
    ("CAST(m AS UNSIGNED)", "18446744073709551609"),
    ("CAST(u AS SIGNED)", "-1"),
    ("CAST(f AS SIGNED)", "2"),
    ("CAST(2.5e0 AS SIGNED)", "2"),
    ("CAST(-0.4 AS SIGNED)", "0"),
    ("CAST(d AS CHAR)", "12.35"),
    ("CAST(f AS CHAR)", "1.5"),
    ("CAST(1e3 AS CHAR)", "1000"),
    ("CAST('1.236' AS DECIMAL(4,2))", "1.24"),
    ("CAST(1.235 AS DECIMAL(4,2))", "1.24"),
    ("CAST('99999999999' AS DECIMAL(5,0))", "99999"),
    ("CAST(123 AS CHAR(2))", "12"),
    ("CAST(z AS CHAR(5))", "naïve"),
    ("CAST('2024-02-30' AS DATE)", "NULL"),
    ("CAST(dt AS DATE)", "2024-02-29"),
    ("CAST(day AS DATETIME)", "2024-01-31 00:00:00"),
    ("CAST(dt AS DATETIME)", "2024-02-29 13:45:07"),
    ("CAST('2024-01-01 00:00:00.6' AS DATETIME)", "2024-01-01 00:00:01"),
    ("CAST('2024-01-01 10:00:00.6' AS DATETIME(1))", "2024-01-01 10:00:00.6"),
    ("CAST(day AS SIGNED)", "20240131"),
    ("CAST(d0 AS SIGNED)", "20231231235959"),
    ("CAST(20240131 AS DATE)", "2024-01-31"),
    ("CAST(n AS CHAR)", "NULL"),
    ("CAST('1e3' AS DOUBLE)", "1000"),
    ("CAST(TRUE AS CHAR)", "1"),
    ("CONVERT('7', SIGNED)", "7"),
    // Strings
    ("CONCAT(s, '!')", "Hello!"),
    ("CONCAT(s, n)", "NULL"),
    ("CONCAT(i, '-', d)", "7-12.35"),
    ("CONCAT(dt)", "2024-02-29 13:45:07.120"),
    ("CONCAT(d0)", "2023-12-31 23:59:59"),
    ("CONCAT_WS('/', s, n, e, i)", "Hello//7"),
    ("LENGTH(z)", "14"),
    ("CHAR_LENGTH(z)", "8"),
    ("BIT_LENGTH(s)", "40"),
    ("UPPER(s)", "HELLO"),
    ("LOWER(s)", "hello"),
    ("UPPER('ä')", "Ä"),
    ("REVERSE(z)", "😀€ evïan"),
    ("LEFT(z, 3)", "naï"),
    ("RIGHT(z, 2)", "€😀"),
    ("SUBSTRING(z, 7)", "€😀"),
    ("SUBSTRING(z, -1)", "😀"),
    ("SUBSTRING(s, 2, 3)", "ell"),
    ("SUBSTRING(s, 0)", ""),
    ("SUBSTRING(s, -3, 2)", "ll"),
    ("SUBSTRING(s, 10)", ""),
    ("SUBSTRING(s, 2, -1)", ""),
    ("LEFT(s, 0)", ""),
    ("LEFT(s, -1)", ""),
    ("RIGHT(s, 99)", "Hello"),
    ("LPAD(s, 8, '*-')", "*-*Hello"),
    ("RPAD(s, 8, 'ab')", "Helloaba"),
    ("LPAD(s, 2, 'x')", "He"),
    ("LPAD('a', -1, 'x')", "NULL"),
    ("REPEAT('ab', 3)", "ababab"),
    ("REPEAT('ab', 0)", ""),
    ("CONCAT(SPACE(2), 'a')", "  a"),
    ("TRIM('  a  ')", "a"),
    ("LTRIM('  a ')", "a "),
    ("RTRIM(' a  ')", " a"),
    ("TRIM(LEADING 'x' FROM 'xxaxx')", "axx"),
    ("TRIM(TRAILING 'xx' FROM 'axxx')", "ax"),
    ("TRIM(BOTH 'ab' FROM 'ababcab')", "c"),
    ("REPLACE('www', 'w', 'Ww')", "WwWwWw"),
    ("REPLACE(s, 'l', '')", "Heo"),
    ("REPLACE(s, '', 'x')", "Hello"),
    ("INSTR(s, 'l')", "3"),
    ("INSTR(z, '€')", "7"),
    ("LOCATE('l', s)", "3"),
    ("LOCATE('l', s, 4)", "4"),
    ("LOCATE('q', s)", "0"),
    ("LOCATE('', s)", "1"),
    ("POSITION('lo' IN s)", "4"),
    ("FIELD('b', 'a', 'b')", "2"),
    ("FIELD(n, 'a')", "0"),
    ("ELT(2, 'a', 'b')", "b"),
    ("ELT(3, 'a', 'b')", "NULL"),
    ("FIND_IN_SET('b', 'a,b,c')", "2"),
    ("FIND_IN_SET('x', '')", "0"),
    ("SUBSTRING_INDEX('a.b.c', '.', 2)", "a.b"),
    ("SUBSTRING_INDEX('a.b.c', '.', -1)", "c"),
    ("SUBSTRING_INDEX('a.b.c', '.', 9)", "a.b.c"),
    ("ASCII('a')", "97"),
    ("ASCII(e)", "0"),
    ("HEX('ab')", "6162"),
    ("HEX(255)", "FF"),
    ("HEX('€')", "E282AC"),
    ("STRCMP('a', 'b')", "-1"),
    ("STRCMP('b', 'a')", "1"),
    ("STRCMP(s, 'Hello')", "0"),
    // LIKE
    ("s LIKE 'H%'", "1"),
    ("s NOT LIKE 'H%'", "0"),
    ("s LIKE '_e__o'", "1"),
    ("z LIKE 'na_ve%'", "1"),
    ("z LIKE '%€_'", "1"),
    ("s LIKE '%LL%'", "0"),
    ("'a%b' LIKE 'a\\%b'", "1"),
    ("'axb' LIKE 'a\\%b'", "0"),
    ("'a_b' LIKE 'a|_b' ESCAPE '|'", "1"),
    ("'axb' LIKE 'a|_b' ESCAPE '|'", "0"),
    ("'a' LIKE 'a '", "0"),
    ("e LIKE '%'", "1"),
    ("e LIKE '_'", "0"),
    ("n LIKE 'a'", "NULL"),
    ("i LIKE '7'", "1"),
    ("d LIKE '12.%'", "1"),
    ("s REGEXP '^H'", "1"),
    ("s REGEXP 'q'", "0"),
    // Comparisons
    ("'10' = 10", "1"),
    ("s = 0", "1"),
    ("'1.0' = 1", "1"),
    ("'10' < '9'", "1"),
    ("10 < '9'", "0"),
    ("n = n", "NULL"),
    ("n <=> NULL", "1"),
    ("n <=> 1", "0"),
    ("n IS NULL", "1"),
    ("i IS NOT NULL", "1"),
    ("i BETWEEN 1 AND 7", "1"),
    ("i NOT BETWEEN 1 AND 7", "0"),
    ("i BETWEEN n AND 10", "NULL"),
    ("i BETWEEN 8 AND n", "0"),
    ("i IN (1, 7)", "1"),
    ("i IN (1, n)", "NULL"),
    ("i IN (7, n)", "1"),
    ("i NOT IN (1, n)", "NULL"),
    ("i NOT IN (7, n)", "0"),
    ("n IN (1)", "NULL"),
    ("(i, d) = (7, 12.35)", "1"),
    ("(1, n) = (2, n)", "0"),
    ("(1, n) = (1, n)", "NULL"),
    ("d = 12.350", "1"),
    ("d > '12.3'", "1"),
    ("u > b", "1"),
    ("m < u", "1"),
    ("u = -1", "0"),
    ("u = '18446744073709551615'", "1"),
    ("u = '18446744073709551614'", "0"),
    ("day = '2024-01-31'", "1"),
    ("day = 20240131", "1"),
    ("dt > '2024-02-29 13:45:07'", "1"),
    ("dt > 20240229", "1"),
    ("d0 < day", "1"),
    ("s = 'Hello '", "1"),
    ("s = 'hello'", "0"),
    ("e = '   '", "1"),
    ("i = 7.0", "1"),
    ("f = 1.5", "1"),
    ("i / 3 = 2.3333", "0"),
    // Logic and NULL
    ("i AND n", "NULL"),
    ("0 AND n", "0"),
    ("1 OR n", "1"),
    ("0 OR n", "NULL"),
    ("i XOR 1", "0"),
    ("1 XOR n", "NULL"),
    ("NOT i", "0"),
    ("NOT n", "NULL"),
    ("i IS TRUE", "1"),
    ("0 IS FALSE", "1"),
    ("n IS UNKNOWN", "1"),
    ("n IS NOT TRUE", "1"),
    ("s AND 1", "0"),
    ("p AND 1", "1"),
    ("0.4 AND 1", "1"),
    ("IFNULL(n, 5)", "5"),
    ("COALESCE(n, n, i)", "7"),
    ("NULLIF(i, 7)", "NULL"),
    ("NULLIF(i, 8)", "7"),
    ("IF(n, 1, 2)", "2"),
    ("IF(i > 5, 'a', 'b')", "a"),
    ("CASE i WHEN 7 THEN 'x' ELSE 'y' END", "x"),
    ("CASE WHEN n THEN 1 END", "NULL"),
    ("ISNULL(n)", "1"),
    ("IF(1, i / 3, 0) * 3", "7.0000"),
    // Dates
    ("YEAR(dt)", "2024"),
    ("MONTH(dt)", "2"),
    ("DAY(dt)", "29"),
    ("HOUR(dt)", "13"),
    ("MINUTE(dt)", "45"),
    ("SECOND(dt)", "7"),
    ("MICROSECOND(dt)", "120000"),
    ("QUARTER(dt)", "1"),
    ("DAYOFWEEK(dt)", "5"),
    ("WEEKDAY(dt)", "3"),
    ("DAYOFYEAR(dt)", "60"),
    ("WEEK(dt)", "8"),
    ("WEEK(dt, 1)", "9"),
    ("DAYNAME(dt)", "Thursday"),
    ("MONTHNAME(dt)", "February"),
    ("LAST_DAY(dt)", "2024-02-29"),
    ("TO_DAYS('2007-10-07')", "733321"),
    ("FROM_DAYS(730669)", "2000-07-03"),
    ("MAKEDATE(2011, 32)", "2011-02-01"),
    ("MAKEDATE(2011, 0)", "NULL"),
    ("DATEDIFF(dt, day)", "29"),
    ("DATEDIFF('2007-12-31 23:59:59', '2007-12-30')", "1"),
    ("DATEDIFF(n, day)", "NULL"),
    ("DATE_ADD(day, INTERVAL 1 MONTH)", "2024-02-29"),
    ("day + INTERVAL 1 DAY", "2024-02-01"),
    ("d0 + INTERVAL 1 SECOND", "2024-01-01 00:00:00"),
    ("DATE_SUB(day, INTERVAL 1 YEAR)", "2023-01-31"),
    ("DATE_ADD(dt, INTERVAL 1 YEAR)", "2025-02-28 13:45:07.120"),
    ("TIMESTAMPDIFF(MONTH, '2024-01-31', '2024-02-29')", "0"),
    ("TIMESTAMPDIFF(DAY, day, dt)", "29"),
    ("TIMESTAMPDIFF(YEAR, '2002-05-01', '2001-01-01')", "-1"),
    ("TIMESTAMPDIFF(MINUTE, '2003-02-01', '2003-05-01 12:05:55')", "128885"),
    ("TIMESTAMPADD(WEEK, 1, '2003-01-02')", "2003-01-09"),
    ("TIMESTAMPADD(MINUTE, 1, '2003-01-02')", "2003-01-02 00:01:00"),
    ("EXTRACT(YEAR_MONTH FROM dt)", "202402"),
    ("EXTRACT(DAY FROM dt)", "29"),
    ("DATE_FORMAT(dt, '%Y/%m/%d %H:%i:%s.%f')", "2024/02/29 13:45:07.120000"),
    ("DATE_FORMAT(dt, '%W %D %M %y')", "Thursday 29th February 24"),
    ("DATE_FORMAT(dt, '%h:%i %p')", "01:45 PM"),
    ("DATE_FORMAT(dt, '%j')", "060"),
    ("DATE(dt)", "2024-02-29"),
    ("UNIX_TIMESTAMP(d0)", "1704067199"),
    ("UNIX_TIMESTAMP(dt)", "1709214307.120"),
    ("FROM_UNIXTIME(0)", "1970-01-01 00:00:00"),
    ("YEAR(s)", "NULL"),
    ("DATE '2024-02-29' + INTERVAL 1 YEAR", "2025-02-28"),
];

/// Expressions that have no value.
const ERRORS: &[(&str, u16)] = &[
    ("b + 1", 1690),
    ("b * 2", 1690),
    ("-b - 2", 1690),
    ("u + 1", 1690),
    ("u * 2", 1690),
    ("i - u", 1690),
    ("CAST(1 AS UNSIGNED) - i", 1690),
    ("ABS(-b - 1)", 1690),
    ("f * 1e308 * 10", 1690),
    ("EXP(1000 * i)", 1690),
    ("POW(10, 100 * i)", 1690),
];

/// A value as MySQL's text protocol shows it.
fn shown(array: &ArrayRef, column_type: &ColumnType) -> String {
    let time = |fsp: u8| {
        let micros = array.as_primitive::<TimestampMicrosecondType>().value(0);
        format_time(CivilTime::from_micros(micros).unwrap(), fsp)
    };
    match (array.is_null(0), array.data_type(), column_type) {
        (true, ..) => "NULL".to_owned(),
        (_, DataType::Float64, _) => format_double(array.as_primitive::<Float64Type>().value(0)),
        (_, DataType::Float32, _) => format_float(array.as_primitive::<Float32Type>().value(0)),
        (_, DataType::Timestamp(..), ColumnType::Datetime(fsp) | ColumnType::Timestamp(fsp)) => time(*fsp),
        _ => array_value_to_string(array, 0).unwrap(),
    }
}

fn check(
    found: &ArrayRef,
    column_type: &ColumnType,
    (expression, expected): (&str, &str),
    by: &str,
    wrong: &mut Vec<String>,
) {
    let found = shown(found, column_type);
    if found != expected {
        wrong.push(format!("{by}: {expression} is {found}, not {expected}"));
    }
}

/// `SELECT expressions FROM o`.
fn select(pairs: &[(&str, &str)]) -> String {
    let items = pairs.iter().enumerate().map(|(index, (expression, _))| format!("{expression} AS c{index}"));
    format!("SELECT {} FROM o", items.collect::<Vec<_>>().join(", "))
}

#[test]
fn expressions_have_mysqls_answers() {
    let world = world();
    let mut wrong = Vec::new();
    for pairs in ANSWERS.chunks(20) {
        let query = select(pairs);
        let sql::Statement::Query(parsed) =
            sql::parse(&query, &world.settings).unwrap().pop().unwrap().statement
        else {
            panic!("a query");
        };
        let planned = sql::plan_query(&parsed.query, &world, &world.settings)
            .unwrap_or_else(|error| panic!("{query}: {error}"));
        let batch = world.answer(&parsed.query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let plan = world.plan_view(&query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let delta = world.fill(&mut world.dataflow(&plan)).unwrap();
        for (index, pair) in pairs.iter().enumerate() {
            check(batch.column(index), &planned.columns[index].column_type, *pair, "live", &mut wrong);
            check(delta.batch().column(index), &plan.columns[index].column_type, *pair, "view", &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn expressions_without_a_value_are_mysqls_errors() {
    let world = world();
    for (expression, code) in ERRORS {
        let query = select(&[(expression, "")]);
        let live = world.query(&query).expect_err(expression);
        assert_eq!(live.mysql_code(), Some(*code), "{expression}: {live}");
        let plan = world.plan_view(&query).unwrap();
        let view = world.fill(&mut world.dataflow(&plan)).expect_err(expression);
        assert_eq!(view.mysql_code(), Some(*code), "{expression}: {view}");
    }
}

/// MySQL's manual: what is missing of a composite amount is missing in front.
#[test]
fn intervals_of_several_units() {
    let world = World::new();
    for (expression, expected) in [
        ("'2020-01-31 10:00:00' + INTERVAL '1 2' DAY_HOUR", "2020-02-01 12:00:00"),
        ("INTERVAL '1:30' HOUR_MINUTE + '2020-01-31 10:00:00'", "2020-01-31 11:30:00"),
        ("DATE_ADD('2100-12-31 23:59:59', INTERVAL '1:1' MINUTE_SECOND)", "2101-01-01 00:01:00"),
        ("DATE_SUB('2025-01-01 00:00:00', INTERVAL '1 1:1:1' DAY_SECOND)", "2024-12-30 22:58:59"),
        ("DATE_ADD('1900-01-01 00:00:00', INTERVAL '-1 10' DAY_HOUR)", "1899-12-30 14:00:00"),
        (
            "DATE_ADD('1992-12-31 23:59:59.000002', INTERVAL '1.999999' SECOND_MICROSECOND)",
            "1993-01-01 00:00:01.000001",
        ),
        ("DATE_ADD('2020-01-01 00:00:00', INTERVAL '1.5' second_microsecond)", "2020-01-01 00:00:01.500000"),
        ("DATE_ADD('2020-01-01', INTERVAL '1-2' YEAR_MONTH)", "2021-03-01"),
        ("DATE_ADD('2020-01-01', INTERVAL (1 + 2) DAY_HOUR)", "2020-01-01 03:00:00"),
        ("DATE_ADD('2020-01-01', INTERVAL 2 DAY)", "2020-01-03"),
        ("DATE_ADD('2020-01-01', INTERVAL '1:2:3:4' HOUR_MINUTE)", "NULL"),
    ] {
        let batch = world
            .query(&format!("SELECT {expression}"))
            .unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(lines(&batch), [expected], "{expression}");
    }
    // Not a reserved name elsewhere.
    assert_eq!(
        world.query("SELECT '2020-01-01' + INTERVAL '1 2' DAY_NIGHT").unwrap_err().mysql_code(),
        Some(1064)
    );
}
