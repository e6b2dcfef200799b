//! What a real server sent, put together: the values are those that the recorded writers wrote.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::*;

const RECORDINGS: &[(&str, &str)] = &[
    ("B01", include_str!("../../../tests/traces/B01-incremental-scan.json")),
    ("B02", include_str!("../../../tests/traces/B02-live-events.json")),
    ("B07", include_str!("../../../tests/traces/B07-reregister-from-saved-ts.json")),
    ("B08", include_str!("../../../tests/traces/B08-pipelined-flush.json")),
    ("C01", include_str!("../../../tests/traces/C01-bounded-delta-scripted.json")),
    ("C04", include_str!("../../../tests/traces/C04-scan-interleaved-with-live.json")),
];

/// A recording with its symbols.
struct Recording {
    steps: Vec<Json>,
    timestamps: Json,
}

impl Recording {
    fn read(text: &str) -> Recording {
        let mut json: Json = serde_json::from_str(text).unwrap();
        let Json::Array(steps) = json["steps"].take() else { panic!("a recording has steps") };
        Recording { steps, timestamps: json["timestamps"].take() }
    }

    fn ts(&self, symbol: &Json) -> u64 {
        match symbol {
            Json::Null => 0,
            Json::Number(number) => number.as_u64().unwrap(),
            Json::String(symbol) => match self.timestamps[symbol]["raw"].as_str() {
                Some(raw) => raw.parse().unwrap(),
                None => {
                    let (symbol, above) = symbol.split_once('+').expect("a symbol is in the table");
                    self.ts(&Json::from(symbol)) + above.parse::<u64>().unwrap()
                }
            },
            other => panic!("no timestamp: {other}"),
        }
    }

    fn row(&self, json: &Json) -> Row {
        let kind = match json["type"].as_str().unwrap() {
            "PREWRITE" => LogType::Prewrite,
            "COMMIT" => LogType::Commit,
            "ROLLBACK" => LogType::Rollback,
            "COMMITTED" => LogType::Committed,
            "INITIALIZED" => LogType::Initialized,
            other => panic!("{other}"),
        };
        let op = match json["op_type"].as_str() {
            None => OpType::OpUnknown,
            Some("PUT") => OpType::Put,
            Some("DELETE") => OpType::Delete,
            Some(other) => panic!("{other}"),
        };
        Row {
            start_ts: self.ts(&json["start_ts"]),
            commit_ts: self.ts(&json["commit_ts"]),
            r#type: kind.into(),
            op_type: op.into(),
            key: bytes(&json["key"]),
            value: bytes(&json["value"]),
            old_value: bytes(&json["old_value"]),
            ..Row::default()
        }
    }

    /// What each transaction wrote to each key, as its writer said.
    fn written(&self) -> BTreeMap<WriteId, Option<Bytes>> {
        let mut written = BTreeMap::new();
        for step in &self.steps {
            let request = &step["request"];
            let (start, last_wins) = match step["rpc"].as_str() {
                Some("/tikvpb.Tikv/KvPrewrite") => ("start_version", false),
                Some("/tikvpb.Tikv/KvFlush") => ("start_ts", true),
                _ => continue,
            };
            if step["response"]["errors"].is_array() {
                continue;
            }
            for mutation in request["mutations"].as_array().unwrap() {
                let value = (mutation["op"] != "Del").then(|| bytes(&mutation["value"]));
                let id = (self.ts(&request[start]), bytes(&mutation["key"]));
                if last_wins || !written.contains_key(&id) {
                    written.insert(id, value);
                }
            }
        }
        written
    }

    /// The rows of each subscription, with its start.
    fn subscriptions(&self) -> BTreeMap<(String, u64), (u64, Vec<Row>)> {
        let mut all: BTreeMap<(String, u64), (u64, Vec<Row>)> = BTreeMap::new();
        for step in self.steps.iter().filter(|step| step["kind"] == "stream") {
            let stream = step["stream"].as_str().unwrap().to_owned();
            let message = &step["message"];
            if step["dir"] == "send" && message["register"].is_object() {
                let id = message["request_id"].as_u64().unwrap_or(0);
                all.insert((stream, id), (self.ts(&message["checkpoint_ts"]), Vec::new()));
                continue;
            }
            for event in message["events"].as_array().into_iter().flatten() {
                let id = event["request_id"].as_u64().unwrap_or(0);
                let rows = event["entries"]["entries"].as_array().into_iter().flatten();
                let subscription = all.get_mut(&(stream.clone(), id)).expect("it was registered");
                subscription.1.extend(rows.map(|row| self.row(row)));
            }
        }
        all
    }
}

fn bytes(json: &Json) -> Bytes {
    let text = json.as_str().unwrap_or_default();
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
    match text.split_once('*') {
        Some((hex, count)) => vec![byte(hex); count.parse().unwrap()].into(),
        None => (0..text.len() / 2).map(|at| byte(&text[2 * at..2 * at + 2])).collect(),
    }
}

/// The versions of every key that any subscription showed, with their transactions.
fn versions(recording: &Recording) -> BTreeMap<Bytes, BTreeMap<u64, u64>> {
    let mut versions: BTreeMap<Bytes, BTreeMap<u64, u64>> = BTreeMap::new();
    for (_, rows) in recording.subscriptions().into_values() {
        for row in rows.into_iter().filter(|row| matches!(row.r#type(), LogType::Commit | LogType::Committed))
        {
            versions.entry(row.key).or_default().insert(row.commit_ts, row.start_ts);
        }
    }
    for step in recording.steps.iter().filter(|step| step["rpc"] == "/tikvpb.Tikv/KvCommit") {
        let request = &step["request"];
        if step["response"]["error"].is_null() && step["response"]["region_error"].is_null() {
            let commit_ts = recording.ts(&step["response"]["commit_version"]);
            for key in request["keys"].as_array().unwrap() {
                let key = versions.entry(bytes(key)).or_default();
                key.entry(commit_ts).or_insert(recording.ts(&request["start_version"]));
            }
        }
    }
    versions
}

#[test]
fn what_was_recorded_has_the_values_that_were_written() {
    for (scenario, text) in RECORDINGS {
        let recording = Recording::read(text);
        let (written, versions) = (recording.written(), versions(&recording));
        let mut n_changes = 0;
        for ((stream, id), (start, rows)) in recording.subscriptions() {
            let name = format!("{scenario}, subscription {id} of {stream}");
            let shown: BTreeMap<(u64, Bytes), u64> = rows
                .iter()
                .filter(|row| matches!(row.r#type(), LogType::Commit | LogType::Committed))
                .filter(|row| row.commit_ts > start)
                .map(|row| ((row.commit_ts, row.key.clone()), row.start_ts))
                .collect();
            let is_whole = rows.iter().any(|row| row.r#type() == LogType::Initialized);
            let mut matcher = Matcher::new(Timestamp(start), Room::new(1 << 20));
            let mut out = Vec::new();
            for row in rows {
                matcher.row(row, &mut out).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            let mut got = BTreeMap::new();
            for one in out {
                let Matched::Change(change) = one else { panic!("{name}: {one:?} has no values") };
                let place = (change.commit_ts.0, change.key.clone());
                let id = (change.start_ts.0, change.key.clone());
                if let Some(value) = written.get(&id) {
                    assert_eq!(&change.value, value, "{name}: {place:?}");
                }
                let mut before = versions[&change.key].range(..change.commit_ts.0).rev();
                let before = before.next().and_then(|(_, start)| written.get(&(*start, change.key.clone())));
                if let Some(before) = before {
                    let before = before.clone().filter(|before| !before.is_empty());
                    assert_eq!(change.old_value, before, "{name}: before {place:?}");
                }
                got.insert(place, change.start_ts.0);
            }
            n_changes += got.len();
            if is_whole {
                assert_eq!(got, shown, "{name}");
            }
        }
        assert!(n_changes > 0, "{scenario} shows changes");
    }
}
