//! Changes of the catalog.

use std::sync::Arc;

use sql::Statement;
use sql::catalog::{Catalog, CatalogChange, DropKind, DropOptions, NewView, ViewState};
use types::records::MAIN_JOB;
use types::{TableId, Timestamp};

use crate::world::World;

fn world() -> World {
    World::with(&[
        "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(10) NOT NULL)",
        "CREATE MATERIALIZED VIEW v AS SELECT id, s FROM t",
        "CREATE MATERIALIZED VIEW w AS SELECT COUNT(*) AS c FROM v",
    ])
}

fn drop_tables(catalog: &Catalog, text: &str) -> types::Result<CatalogChange> {
    match sql::parse(text, &sql::Settings::default()).unwrap().pop().unwrap().statement {
        Statement::DropTable { names, if_exists, cascade } => {
            catalog.drop_named(DropKind::Table, &names, Some("test"), DropOptions { if_exists, cascade })
        }
        Statement::DropMaterializedView { names, if_exists, cascade } => {
            catalog.drop_named(DropKind::View, &names, Some("test"), DropOptions { if_exists, cascade })
        }
        other => panic!("not a drop: {other:?}"),
    }
}

#[test]
fn what_a_view_needs_is_not_dropped() {
    let catalog = world().catalog;
    let error = drop_tables(&catalog, "DROP TABLE t").unwrap_err();
    assert!(error.message().contains("test.v"), "{error}");
    let error = drop_tables(&catalog, "DROP MATERIALIZED VIEW v").unwrap_err();
    assert!(error.message().contains("test.w"), "{error}");
    let change = drop_tables(&catalog, "DROP TABLE t CASCADE").unwrap();
    let names: Vec<&str> = change.dropped.iter().map(|table| table.info.name.as_str()).collect();
    assert_eq!(names, ["w", "v", "t"]);
}

#[test]
fn kinds_and_names_are_checked() {
    let catalog = world().catalog;
    let code = |text: &str| drop_tables(&catalog, text).unwrap_err().mysql_code();
    assert_eq!(code("DROP TABLE v"), Some(1347));
    assert_eq!(code("DROP MATERIALIZED VIEW t"), Some(1347));
    assert_eq!(code("DROP TABLE nope"), Some(1051));
    let change = drop_tables(&catalog, "DROP TABLE IF EXISTS nope").unwrap();
    assert!(change.mutations.is_empty() && change.notes.len() == 1);
    assert_eq!(catalog.create_database("TEST", false).unwrap_err().mysql_code(), Some(1007));
    for name in sql::catalog::SYSTEM_DATABASES {
        assert_eq!(catalog.create_database(name, false).unwrap_err().mysql_code(), Some(1007));
        assert_eq!(catalog.drop_database(name, false).unwrap_err().mysql_code(), Some(1044));
    }
    assert_eq!(catalog.create_database("mysql", false).unwrap_err().mysql_code(), Some(1044));
    assert_eq!(catalog.drop_database("mysql", false).unwrap_err().mysql_code(), Some(1008));
    assert_eq!(catalog.drop_database("nope", false).unwrap_err().mysql_code(), Some(1008));
}

#[test]
fn keys_are_as_long_as_mysql_allows() {
    let catalog = world().catalog;
    let code = |columns: &str| {
        let text = format!("CREATE TABLE long_key ({columns})");
        let parsed = sql::parse(&text, &sql::Settings::default()).unwrap().pop().unwrap().statement;
        let Statement::CreateTable(create) = parsed else { panic!("no table") };
        catalog.create_table(&create, "test").err().map(|error| error.mysql_code())
    };
    let too_long = Some(Some(1071));
    assert_eq!(code("a VARCHAR(768) PRIMARY KEY"), None);
    assert_eq!(code("a VARCHAR(769) PRIMARY KEY"), too_long);
    assert_eq!(code("a VARCHAR(16383) PRIMARY KEY"), too_long);
    assert_eq!(code("a VARBINARY(3072) PRIMARY KEY"), None);
    assert_eq!(code("a VARBINARY(3073) PRIMARY KEY"), too_long);
    assert_eq!(code("a VARBINARY(65535) PRIMARY KEY"), too_long);
    assert_eq!(code("a VARBINARY(3064), b BIGINT, PRIMARY KEY (a, b)"), None);
    assert_eq!(code("a VARBINARY(3065), b BIGINT, PRIMARY KEY (a, b)"), too_long);
    assert_eq!(code("a VARBINARY(65535), b BIGINT PRIMARY KEY"), None, "a value may be longer");
}

#[test]
fn a_view_with_long_keys_has_hidden_handles() {
    let catalog = World::with(&[
        "CREATE TABLE t (id INT PRIMARY KEY, s VARBINARY(60000) NOT NULL, c VARCHAR(700) NOT NULL)",
        "CREATE MATERIALIZED VIEW long_key AS SELECT s, COUNT(*) AS n FROM t GROUP BY s",
        "CREATE MATERIALIZED VIEW short_key AS SELECT c, COUNT(*) AS n FROM t GROUP BY c",
        "CREATE MATERIALIZED VIEW two AS SELECT DISTINCT c, c AS d FROM t",
    ])
    .catalog;
    let key = |view: &str| catalog.find("test", view).unwrap().info.primary_key.clone();
    assert_eq!(key("long_key"), [0_usize; 0]);
    assert_eq!(key("short_key"), [0]);
    assert!(key("two").len() <= 1, "{:?}", key("two"));
}

#[test]
fn a_views_key_is_its_stream_key() {
    let catalog = world().catalog;
    let v = catalog.find("test", "V").unwrap();
    assert_eq!(v.info.primary_key, [0]);
    assert!(v.info.pk_is_handle);
    assert_eq!(v.view.as_ref().unwrap().query, "SELECT id, s FROM `test`.t");
    let w = catalog.find("test", "w").unwrap();
    assert_eq!(w.view.as_ref().unwrap().depends_on, [v.id()]);
    let t = catalog.find("test", "t").unwrap();
    assert_eq!(w.view.as_ref().unwrap().base_tables, [t.id()]);
    assert!(w.info.primary_key.is_empty(), "one row has no key");
}

/// What `text`, a CREATE MATERIALIZED VIEW, changes.
fn create_view(world: &World, text: &str) -> types::Result<CatalogChange> {
    let Statement::CreateMaterializedView(create) =
        sql::parse(text, &world.settings).unwrap().pop().unwrap().statement
    else {
        panic!("not a CREATE MATERIALIZED VIEW: {text}");
    };
    let plan = sql::plan_view(&world.catalog, &create.query_text, &create.columns, &world.settings)?;
    let new = NewView {
        refresh: sql::catalog::Refresh::Continuous,
        database: "test".to_owned(),
        name: create.name.name,
        or_replace: create.or_replace,
        if_not_exists: create.if_not_exists,
        columns: create.columns,
        cluster_by: create.cluster_by,
        options: create.options,
        settings: world.settings.of_view(),
        job: MAIN_JOB,
        created_ts: Timestamp::default(),
    };
    world.catalog.create_view(new, &plan)
}

/// Adds a view under construction, which has no name yet.
fn under_construction(world: &mut World, change: CatalogChange) -> TableId {
    let created = change.created.unwrap();
    let id = created.id();
    world.catalog.next_id = id.0 + 2;
    world.catalog.tables.insert(id, created);
    id
}

/// Edits a view in place.
fn edit(world: &mut World, name: &str, edit: impl FnOnce(&mut sql::catalog::ViewDefinition)) {
    let id = world.catalog.find("test", name).unwrap().id();
    let definition = Arc::make_mut(world.catalog.tables.get_mut(&id).unwrap());
    edit(definition.view.as_mut().unwrap());
}

/// A world whose view `u`, over `t`, is Ready.
fn with_view_ready() -> World {
    let mut world = World::with(&[
        "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(10) NOT NULL)",
        "CREATE MATERIALIZED VIEW v AS SELECT id, s FROM t",
    ]);
    edit(&mut world, "v", |view| view.state = ViewState::Ready);
    world
}

/// Adoption would bind the new view to another query than its dataflow was built from.
#[test]
fn no_view_is_made_over_one_that_another_query_replaces() {
    let mut world = with_view_ready();
    let change = create_view(&world, "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id + 1 AS id FROM t");
    under_construction(&mut world, change.unwrap());
    for text in [
        "CREATE MATERIALIZED VIEW w AS SELECT id FROM v",
        "CREATE MATERIALIZED VIEW w AS SELECT COUNT(*) AS c FROM t WHERE id IN (SELECT id FROM v)",
    ] {
        let error = create_view(&world, text).unwrap_err();
        assert_eq!(error.mysql_code(), Some(1105));
        assert!(error.message().contains("'test.v' is being replaced"), "{error}");
    }
    create_view(&world, "CREATE MATERIALIZED VIEW w AS SELECT id FROM t").unwrap();
}

#[test]
fn a_view_may_be_made_over_one_that_is_rebuilt() {
    let mut world = with_view_ready();
    edit(&mut world, "v", |view| {
        view.state = ViewState::Faulted { reason: String::new(), key: None, at: Timestamp::default() };
    });
    let v = Arc::clone(world.catalog.find("test", "v").unwrap());
    let plan = world.plan_view("SELECT id, s FROM t").unwrap();
    let change = world.catalog.rebuild_view(v.id(), &plan, Timestamp::default(), |_| ()).unwrap();
    let rebuilt = under_construction(&mut world, change);
    world.run("CREATE MATERIALIZED VIEW w AS SELECT id FROM v");
    let change = world.catalog.publish_view(rebuilt).unwrap();
    assert_eq!(change.dropped.iter().map(|gone| gone.id()).collect::<Vec<_>>(), [v.id()]);
}

/// After RESUME a view is younger than what reads it.
#[test]
fn views_go_before_what_they_read_whatever_their_ids() {
    let mut world = world();
    edit(&mut world, "v", |view| {
        view.state = ViewState::Faulted { reason: String::new(), key: None, at: Timestamp::default() };
    });
    let v = world.catalog.find("test", "v").unwrap().id();
    let plan = world.plan_view("SELECT id, s FROM t").unwrap();
    let change = world.catalog.rebuild_view(v, &plan, Timestamp::default(), |_| ()).unwrap();
    let rebuilt = under_construction(&mut world, change);
    // What adoption writes.
    edit(&mut world, "w", |view| view.depends_on = vec![rebuilt]);
    world.catalog.tables.remove(&v);
    world.catalog.names.insert(("test".to_owned(), "v".to_owned()), rebuilt);
    assert!(world.catalog.find("test", "w").unwrap().id() < rebuilt);
    for text in ["DROP TABLE t CASCADE", "DROP MATERIALIZED VIEW v CASCADE"] {
        let change = drop_tables(&world.catalog, text).unwrap();
        let names: Vec<&str> = change.dropped.iter().map(|table| table.info.name.as_str()).collect();
        assert_eq!(names[..2], ["w", "v"], "{text}");
    }
    let change = world.catalog.drop_database("test", false).unwrap();
    let names: Vec<&str> = change.dropped.iter().map(|table| table.info.name.as_str()).collect();
    assert_eq!(names, ["w", "v", "t"]);
}

#[test]
fn cluster_by_is_refused_by_name_where_it_cannot_be_had() {
    let world = World::with(&[
        "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(10) NOT NULL, n INT, x TEXT NOT NULL)",
        "CREATE TABLE k (a INT NOT NULL)",
    ]);
    let check = |text: &str, expected: Option<(u16, &str)>| {
        let text = format!("CREATE MATERIALIZED VIEW c {text}");
        match (create_view(&world, &text), expected) {
            (Ok(_), None) => {}
            (Err(error), Some((code, part))) => {
                assert_eq!(error.mysql_code(), Some(code), "{text}: {error}");
                assert!(error.message().contains(part), "{text}: {error}");
            }
            (outcome, _) => panic!("{text}: {outcome:?}"),
        }
    };
    check("CLUSTER BY (s) AS SELECT id, s FROM t", None);
    check("CLUSTER BY (nope) AS SELECT id, s FROM t", Some((1072, "'nope'")));
    check("CLUSTER BY (n) AS SELECT id, n FROM t", Some((1171, "'n'")));
    check("CLUSTER BY (x) AS SELECT id, x FROM t", Some((1170, "'x'")));
    check("CLUSTER BY (id, id) AS SELECT id, s FROM t", Some((1060, "'id'")));
    check("CLUSTER BY (s, id, S) AS SELECT id, s FROM t", Some((1060, "'S'")));
    // The rows have no key that a table could declare: the table has none, or the view hides it.
    check("CLUSTER BY (a) AS SELECT a FROM k", Some((1235, "'a'")));
    check("CLUSTER BY (s) AS SELECT s FROM t", Some((1235, "'s'")));
    check("CLUSTER BY (s) AS SELECT n, s, COUNT(*) AS c FROM t GROUP BY n, s", Some((1235, "'s'")));
}

/// Such a key could be said before it was refused.
#[test]
fn a_view_with_a_column_twice_in_its_cluster_key_is_rebuilt() {
    let mut world = with_view_ready();
    edit(&mut world, "v", |view| view.cluster_by = ["s", "id", "S"].map(str::to_owned).to_vec());
    let v = Arc::clone(world.catalog.find("test", "v").unwrap());
    let plan = world.plan_view("SELECT id, s FROM t").unwrap();
    let change = world.catalog.rebuild_view(v.id(), &plan, Timestamp::default(), |_| ()).unwrap();
    let created = change.created.unwrap();
    assert_eq!(created.info.primary_key, [1, 0]);
    assert_eq!(created.view.as_ref().unwrap().cluster_by, ["s", "id"]);
}
