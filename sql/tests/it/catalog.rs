//! Changes of the catalog.

use sql::Statement;
use sql::catalog::Catalog;

use crate::world::World;

fn world() -> World {
    World::with(&[
        "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(10) NOT NULL)",
        "CREATE MATERIALIZED VIEW v AS SELECT id, s FROM t",
        "CREATE MATERIALIZED VIEW w AS SELECT COUNT(*) AS c FROM v",
    ])
}

fn drop_tables(catalog: &Catalog, text: &str) -> types::Result<sql::catalog::CatalogChange> {
    match sql::parse(text, &sql::Settings::default()).unwrap().pop().unwrap().statement {
        Statement::DropTable { names, if_exists, cascade } => {
            catalog.drop_tables(&names, Some("test"), if_exists, cascade)
        }
        Statement::DropMaterializedView { names, if_exists, cascade } => {
            catalog.drop_views(&names, Some("test"), if_exists, cascade)
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
    assert_eq!(catalog.drop_database("nope", false).unwrap_err().mysql_code(), Some(1008));
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
