//! What variables take, and what they refuse.

use super::*;

fn set(name: &str, value: Literal) -> Result<Variables> {
    let mut variables = Variables::default();
    variables.set(name, Some(&value), None)?;
    Ok(variables)
}

fn text(text: &str) -> Literal {
    Literal::String(text.to_owned())
}

fn refused(name: &str, value: Literal, code: u16) {
    assert_eq!(set(name, value).unwrap_err().mysql_code(), Some(code), "{name}");
}

#[test]
fn switches_take_words_and_numbers() {
    for (value, expected) in
        [(text("ON"), 1), (text("off"), 0), (Literal::Int(1), 1), (Literal::UInt(0), 0), (text("true"), 1)]
    {
        assert_eq!(set("autocommit", value).unwrap().int("autocommit"), expected);
    }
    refused("autocommit", text("maybe"), 1231);
    refused("autocommit", Literal::Int(2), 1231);
    refused("autocommit", Literal::Null, 1231);
}

#[test]
fn numbers_are_moved_into_their_range() {
    assert_eq!(set("wait_timeout", Literal::Int(-5)).unwrap().int("wait_timeout"), 1);
    assert_eq!(set("wait_timeout", Literal::UInt(u64::MAX)).unwrap().int("wait_timeout"), 31_536_000);
    refused("wait_timeout", text("long"), 1232);
}

#[test]
fn a_number_that_is_moved_is_told() {
    let said = |name: &str, value: i64| {
        Variables::default().set(name, Some(&Literal::Int(value)), None).unwrap().unwrap_or_default()
    };
    for definition in DEFINITIONS {
        let Kind::Int { min, max } = definition.kind else { continue };
        let name = definition.name;
        assert_eq!(said(name, min), "", "{name}");
        assert_eq!(said(name, max), "", "{name}");
        assert_eq!(said(name, min - 1), format!("Truncated incorrect {name} value: '{}'", min - 1));
    }
    assert_eq!(said("tidemill_max_staleness", -1), "Truncated incorrect tidemill_max_staleness value: '-1'");
    let mut strict = set("sql_mode", text("STRICT_ALL_TABLES")).unwrap();
    let error = strict.set("tidemill_max_staleness", Some(&Literal::Int(-1)), None).unwrap_err();
    assert_eq!(error.mysql_code(), Some(1231), "{error}");
    assert_eq!(strict.int("tidemill_max_staleness"), 0);
}

#[test]
fn choices_zones_and_modes_are_checked() {
    assert_eq!(set("tidemill_read_mode", text("STALE")).unwrap().text("tidemill_read_mode"), "stale");
    refused("tidemill_read_mode", text("newest"), 1231);
    assert_eq!(set("time_zone", text("+02:00")).unwrap().text("time_zone"), "+02:00");
    refused("time_zone", text("Mars/Base"), 1298);
    assert_eq!(
        set("sql_mode", text("ansi_quotes, strict_all_tables")).unwrap().text("sql_mode"),
        "ANSI_QUOTES,STRICT_ALL_TABLES"
    );
    refused("sql_mode", text("LOOSE"), 1231);
    refused("collation_connection", text("klingon_ci"), 1273);
    refused("character_set_client", text("latin1"), 1115);
    let level = set("tx_isolation", text("read committed")).unwrap();
    assert_eq!(level.text("transaction_isolation"), "READ-COMMITTED");
    refused("tx_isolation", text("SERIALIZABLE"), 8048);
}

#[test]
fn read_only_and_unknown_variables_are_refused() {
    refused("version", text("9"), 1238);
    refused("tidemill_last_read_ts", Literal::Int(1), 1238);
    refused("no_such_thing", Literal::Int(1), 1193);
}

#[test]
fn default_is_the_global_value() {
    let globals = set("tidemill_read_mode", text("live")).unwrap();
    let mut session = set("tidemill_read_mode", text("wait")).unwrap();
    session.set("tidemill_read_mode", None, Some(&globals)).unwrap();
    assert_eq!(session.text("tidemill_read_mode"), "live");
    session.set("tidemill_read_mode", None, None).unwrap();
    assert_eq!(session.text("tidemill_read_mode"), "fresh");
}

#[test]
fn set_names_sets_three_variables() {
    let mut variables = Variables::default();
    variables.set_names(Some(&text("UTF8"))).unwrap();
    assert_eq!(variables.text("character_set_results"), "utf8");
    assert_eq!(variables.set_names(Some(&text("latin1"))).unwrap_err().mysql_code(), Some(1115));
}

#[test]
fn the_list_is_sorted_and_shows_switches_as_words() {
    let listed = Variables::default().listed();
    assert!(listed.is_sorted_by(|left, right| left.0 < right.0), "the definitions are in order");
    assert!(listed.contains(&("autocommit".to_owned(), Some("ON".to_owned()))));
}
