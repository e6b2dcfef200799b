//! Statements as they are parsed.

use sql::{Literal, SetScope, SetValue, Settings, Show, Statement};

fn parse(text: &str) -> Statement {
    let mut all = sql::parse(text, &Settings::default()).unwrap();
    assert_eq!(all.len(), 1, "{text}");
    all.pop().unwrap().statement
}

fn error(text: &str) -> types::Error {
    sql::parse(text, &Settings::default()).unwrap_err()
}

#[test]
fn a_materialized_view_keeps_its_text() {
    let text = "CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS d.v (a, b) CLUSTER BY (b) \
                WITH (job = 'x', Batch = 5) AS SELECT 'it''s', \"\\\\\"  FROM t /* end */";
    let Statement::CreateMaterializedView(create) = parse(text) else { panic!("a view") };
    assert!(create.or_replace && create.if_not_exists);
    assert_eq!((create.name.to_string().as_str(), create.columns.len()), ("d.v", 2));
    assert_eq!(create.cluster_by, ["b"]);
    assert_eq!((create.options["job"].as_str(), create.options["batch"].as_str()), ("x", "5"));
    assert_eq!(create.query_text, "SELECT 'it''s', \"\\\\\"  FROM t");
    let text = "CREATE MATERIALIZED VIEW v AS WITH c AS (SELECT 1) SELECT * FROM c";
    let Statement::CreateMaterializedView(create) = parse(text) else { panic!("a view") };
    assert_eq!(create.query_text, "WITH c AS (SELECT 1) SELECT * FROM c");
}

#[test]
fn own_statements() {
    assert!(matches!(parse("DROP MATERIALIZED VIEW IF EXISTS a, b CASCADE"),
        Statement::DropMaterializedView { names, if_exists: true, cascade: true } if names.len() == 2));
    assert!(matches!(
        parse("ALTER MATERIALIZED VIEW a.v RESUME"),
        Statement::AlterMaterializedView { action: sql::AlterView::Resume, .. }
    ));
    let alter = |text: &str| match parse(&format!("ALTER MATERIALIZED VIEW v {text}")) {
        Statement::AlterMaterializedView { action, .. } => action,
        other => panic!("{text}: {other:?}"),
    };
    let columns = |names: &[&str]| sql::AlterView::ClusterBy(names.iter().map(|&name| name.into()).collect());
    assert_eq!(alter("CLUSTER BY (a, `none`)"), columns(&["a", "none"]));
    assert_eq!(alter("cluster by none"), columns(&[]));
    assert_eq!(alter("RECLUSTER"), sql::AlterView::Recluster { at_once: false });
    assert_eq!(alter("RECLUSTER FINAL"), sql::AlterView::Recluster { at_once: true });
    for text in [
        "OPTIMIZE TABLE a, d.b",
        "OPTIMIZE LOCAL TABLES a, d.b COMPACT",
        "optimize no_write_to_binlog table a, d.b",
    ] {
        let Statement::OptimizeTable { names, compact } = parse(text) else { panic!("{text}") };
        assert_eq!((names.len(), compact), (2, text.ends_with("COMPACT")), "{text}");
    }
    assert!(matches!(parse("VERIFY MATERIALIZED VIEW v"), Statement::VerifyMaterializedView { .. }));
    assert!(matches!(
        parse("SHOW MATERIALIZED VIEWS LIKE 'a%'"),
        Statement::Show(Show::MaterializedViews { filter: Some(_), .. })
    ));
    assert!(matches!(parse("SHOW CREATE MATERIALIZED VIEW v"), Statement::Show(Show::CreateView(_))));
    assert!(matches!(parse("SHOW CREATE VIEW v PHYSICAL"), Statement::Show(Show::PhysicalView(_))));
    assert!(matches!(parse("show full columns from t from d"),
        Statement::Show(Show::Columns { full: true, table, .. }) if table.to_string() == "d.t"));
    assert!(matches!(parse("DESC t"), Statement::Show(Show::Columns { .. })));
    assert!(matches!(parse("EXPLAIN SELECT 1"), Statement::Explain { analyze: false, .. }));
    assert!(matches!(parse("KILL QUERY 7"), Statement::Kill { connection_id: 7, query_only: true }));
    assert!(matches!(parse("USE `My Db`"), Statement::Use(name) if name == "My Db"));
    assert!(matches!(
        parse("START TRANSACTION WITH CONSISTENT SNAPSHOT"),
        Statement::Begin { read_only: None }
    ));
    assert!(matches!(parse("START TRANSACTION READ ONLY"), Statement::Begin { read_only: Some(true) }));
}

#[test]
fn set_in_all_its_forms() {
    let Statement::Set(items) = parse(
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin, @@session.sql_mode = '', GLOBAL x = ON, @u := 1 + 1, a = DEFAULT",
    ) else {
        panic!("set");
    };
    let names: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["names", "collation_connection", "sql_mode", "x", "u", "a"]);
    assert_eq!(items[3].scope, SetScope::Global);
    assert_eq!(items[4].scope, SetScope::User);
    assert!(matches!(&items[3].value, Some(SetValue::Literal(Literal::String(on))) if on == "ON"));
    assert!(matches!(items[4].value, Some(SetValue::Expression(_))));
    assert!(items[5].value.is_none());
    let Statement::Set(items) = parse("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ") else {
        panic!("set")
    };
    assert!(
        matches!(&items[0].value, Some(SetValue::Literal(Literal::String(level))) if level == "REPEATABLE-READ")
    );
}

#[test]
fn as_of_is_one_time_for_the_statement() {
    let Statement::Query(query) = parse("SELECT * FROM t AS OF TIMESTAMP '2020-01-01' a JOIN u ON a.x = u.x")
    else {
        panic!("a query");
    };
    assert_eq!(query.as_of.unwrap().to_string(), "'2020-01-01'");
    assert!(!query.query.to_string().contains("AS OF"));
    let other = "SELECT * FROM t AS OF TIMESTAMP '2020-01-01' JOIN u AS OF TIMESTAMP '2020-01-02' ON 1";
    assert_eq!(error(other).mysql_code(), Some(8135));
}

#[test]
fn syntax_errors_say_where() {
    let error = error("SELECT 1;\nSELECT * FORM t");
    assert_eq!(error.mysql_code(), Some(1064));
    assert!(error.message().contains("at line 2"), "{error}");
    assert!(error.message().contains("near 't'") || error.message().contains("near 'FORM t'"), "{error}");
}

#[test]
fn columns_of_create_table() {
    let Statement::CreateTable(create) = parse(
        "CREATE TABLE t (a INT UNSIGNED NOT NULL DEFAULT 5 COMMENT 'x', b VARCHAR(20) DEFAULT 'it''s', c BOOLEAN, \
         d DECIMAL(12,3), e TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3), PRIMARY KEY (a, b), KEY k (c)) \
         ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='hello'",
    ) else {
        panic!("a table");
    };
    use tidb::ColumnType;
    let types: Vec<ColumnType> = create.columns.iter().map(|column| column.column_type.clone()).collect();
    assert_eq!(types[0], ColumnType::Int { bits: 32, unsigned: true });
    assert_eq!(types[2], ColumnType::Int { bits: 8, unsigned: false });
    assert_eq!(types[3], ColumnType::Decimal { precision: 12, scale: 3 });
    assert_eq!(types[4], ColumnType::Timestamp(3));
    assert_eq!(create.primary_key, ["a", "b"]);
    assert_eq!(create.comment, "hello");
    assert!(create.columns[1].not_null, "key columns are NOT NULL");
    assert_eq!(create.columns[1].default.as_deref(), Some("'it''s'"));
    for (text, code) in [
        ("CREATE TABLE t (a INT UNIQUE)", 1235),
        ("CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY)", 1235),
        ("CREATE TABLE t (a JSON)", 1235),
        ("CREATE TABLE t (a VARCHAR(5) COLLATE utf8mb4_general_ci)", 1235),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT, PRIMARY KEY (b))", 1068),
        ("CREATE TABLE t (a DECIMAL(66,1))", 1426),
        ("CREATE TABLE t AS SELECT 1", 1235),
    ] {
        assert_eq!(error(text).mysql_code(), Some(code), "{text}");
    }
}

#[test]
fn parameters_are_bound_in_the_order_of_the_text() {
    let text = "SELECT ?, a FROM t WHERE b = ? LIMIT ?, ?";
    let parsed = sql::parse(text, &Settings::default()).unwrap().pop().unwrap();
    assert_eq!(parsed.n_parameters, 4);
    let values = [Literal::String("x'y\\".to_owned()), Literal::Int(-2), Literal::Int(3), Literal::Int(4)];
    let Statement::Query(query) = parsed.statement else { panic!("a query") };
    let bound = sql::bind(&query.query, &values).unwrap();
    assert_eq!(bound.to_string(), "SELECT 'x''y\\', a FROM t WHERE b = -2 LIMIT 3, 4");
    assert_eq!(sql::bind(&query.query, &values[1..]).unwrap_err().mysql_code(), Some(1210));
    let more = [&values[..], &[Literal::Null]].concat();
    assert_eq!(sql::bind(&query.query, &more).unwrap_err().mysql_code(), Some(1210));
    let nulls = sql::bind_nulls(&query.query).to_string();
    assert_eq!(nulls, "SELECT NULL, a FROM t WHERE b = NULL LIMIT NULL, NULL");
}

#[test]
fn deep_and_long_statements_are_refused_or_parsed() {
    let run = || {
        let nested = format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(error(&nested).mysql_code(), Some(1064));
        let chain = format!("SELECT 1{}", "+1".repeat(1_000_000));
        assert_eq!(error(&chain).mysql_code(), Some(1064));
        let not = format!("SELECT {} 1", "NOT ".repeat(1_000_000));
        assert_eq!(error(&not).mysql_code(), Some(1064));
        let minus = format!("SELECT {} 1", "- ".repeat(1_000_000));
        assert_eq!(error(&minus).mysql_code(), Some(1064));
        drop(parse(&format!("SELECT 1{}", "+1".repeat(3_000))));
        drop(parse(&format!("SELECT a{}", " OR a = 1".repeat(1_900))));
        let list = format!("SELECT 1 IN (1{})", ",1".repeat(200_000));
        drop(parse(&list));
    };
    // A thread of a server has a small stack.
    let builder = std::thread::Builder::new().stack_size(2 << 20);
    builder.spawn(run).unwrap().join().unwrap();
}

#[test]
fn what_create_table_leaves_out_is_said() {
    let notes = |text: &str| match parse(text) {
        Statement::CreateTable(create) => create.notes,
        other => panic!("not a table: {other:?}"),
    };
    assert!(notes("CREATE TABLE t (a INT) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4").is_empty());
    let left_out = notes("CREATE TABLE t (a INT, KEY k (a), INDEX (a)) ENGINE=MyISAM ROW_FORMAT=COMPRESSED");
    assert_eq!(
        left_out,
        [
            "secondary index 'k' is left out: there are none yet",
            "secondary index is left out: there are none yet",
            "table option ENGINE = MyISAM is left out",
            "table option ROW_FORMAT = COMPRESSED is left out",
        ]
    );
    for option in ["INSERT_METHOD=FIRST", "UNION=(a, b)", "ENCRYPTION='Y'", "DATA DIRECTORY='/x'"] {
        assert_eq!(error(&format!("CREATE TABLE t (a INT) {option}")).mysql_code(), Some(1235), "{option}");
    }
}
