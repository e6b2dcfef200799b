//! The JSON reader against another one.

use kafka::{Json, Quoted};
use proptest::prelude::*;

fn same(ours: &Json<'_>, other: &serde_json::Value) -> bool {
    match (ours, other) {
        (Json::Null, serde_json::Value::Null) => true,
        (Json::Bool(ours), serde_json::Value::Bool(other)) => ours == other,
        (Json::Number(ours), serde_json::Value::Number(other)) => *ours == other.to_string(),
        (Json::Text(ours), serde_json::Value::String(other)) => ours == other,
        (Json::Array(ours), serde_json::Value::Array(other)) => {
            ours.len() == other.len() && ours.iter().zip(other).all(|(ours, other)| same(ours, other))
        }
        (Json::Object(ours), serde_json::Value::Object(other)) => {
            other.iter().all(|(name, value)| {
                ours.iter()
                    .rev()
                    .find(|(found, _)| found == name)
                    .is_some_and(|(_, found)| same(found, value))
            }) && ours.iter().all(|(name, _)| other.contains_key(name.as_ref()))
        }
        _ => false,
    }
}

fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-0".to_owned()),
        "-?[1-9][0-9]{0,30}(\\.[0-9]{1,30})?(e[+-][1-9][0-9]?)?",
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        any::<String>().prop_map(|text| Quoted(&text).to_string()),
        Just(r#""\ud83d\ude00\u00e9\/\b\f""#.to_owned()),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|all| format!("[ {} ]", all.join(" ,"))),
            prop::collection::vec(("[a-c\u{e9}]{0,2}", inner), 0..5).prop_map(|all| {
                let members: Vec<String> =
                    all.iter().map(|(name, value)| format!("{} :\t{value}", Quoted(name))).collect();
                format!("{{{}}}", members.join(",\n"))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn values_are_read_as_another_reader_reads_them(text in json_text()) {
        let ours = Json::parse(text.as_bytes()).unwrap();
        let other: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert!(same(&ours, &other), "{ours:?} {other:?}");
        // What is written reads back.
        let written = ours.to_string();
        prop_assert_eq!(Json::parse(written.as_bytes()).unwrap(), ours);
    }

    #[test]
    fn what_one_reader_refuses_the_other_refuses(
        text in json_text(),
        changes in prop::collection::vec(any::<(usize, u8, u8)>(), 1..4),
    ) {
        let bytes = crate::support::mutated(text.as_bytes(), &changes);
        let other = serde_json::from_slice::<serde_json::Value>(&bytes);
        match Json::parse(&bytes) {
            Ok(ours) => prop_assert!(other.is_ok_and(|other| same(&ours, &other)), "{ours:?}"),
            Err(error) => prop_assert!(other.is_err(), "{error}: {other:?}"),
        }
    }
}

#[test]
fn depth_is_limited_and_magic_names_are_none() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Json::parse(deep.as_bytes()).unwrap_err().to_string().contains("too deep"));
    let twice = Json::parse(br#"{"a":true,"a":false}"#).unwrap();
    assert_eq!((twice.get("a"), twice.members().unwrap().len()), (Some(&Json::Bool(false)), 2));
    let magic = Json::parse(br#"{"$serde_json::private::Number":"1"}"#).unwrap();
    assert!(magic.members().is_some());
}
