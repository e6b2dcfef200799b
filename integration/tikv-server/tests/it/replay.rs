//! Replays recorded exchanges with a real server, byte for byte where bytes are not time.
//!
//! Calls are compared whole. Of streams the rows of each subscription are compared in order (those of one
//! live event have none) with errors among them, and resolved timestamps for the lock that holds them.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use protox::prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Value as Json;
use store::Store;
use tikv::proto::cdcpb::{self, change_data_client::ChangeDataClient, event::Event};
use tikv_server::{Cluster, Options, Write};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use crate::recording::{DRAWS_APART, Recording};
use crate::wire::{Raw, descriptors, message, normalise};

/// Steps that are left out, and why.
const LEFT_OUT: &[(&str, u64, &str)] = &[("B05", 145, "shows rows of the scenario before it")];

/// Recordings that are not replayed here, and why.
#[allow(dead_code, reason = "read by people")]
const NOT_REPLAYED: &[(&str, &str)] = &[
    ("A01 to A12, A15, A16", "replayed through the store's trait, in its conformance suite"),
    ("B04, B14, C02, C03, C05", "hold counts, not messages"),
    ("C04", "needs a table of 100,000 rows; a test of its own lets live rows overtake a scan"),
    ("B08", "flushes pipelined transactions, which this server does not know"),
    ("B10, B11", "have elections in the middle; tests of their own do the same"),
    ("Z01, Z02, Z03", "end the process of a real server; tests of refusals do the same"),
];

const WAIT: Duration = Duration::from_secs(20);
/// A pause of the recording from which on the replay pauses too, in milliseconds.
const PAUSE_MS_MIN: u64 = 3_000;

/// Sets refused requests apart from the regions that they name.
const REFUSED: u64 = 1 << 32;

/// What a subscription got: rows and errors, in a form that can be compared.
type Got = BTreeMap<(u64, u64), Vec<String>>;

#[derive(Default)]
struct Heard {
    rows: Got,
    initialized: BTreeMap<(u64, u64), bool>,
    resolved: Vec<(u64, Vec<u64>, u64)>,
}

impl Heard {
    fn hear(&mut self, message: cdcpb::ChangeDataEvent) {
        for event in message.events {
            let id = (event.request_id, event.region_id);
            match event.event {
                Some(Event::Entries(entries)) => {
                    let mut rows = entries.entries;
                    if self.initialized.get(&id).copied().unwrap_or(false) {
                        rows.sort_by(|left, right| left.key.cmp(&right.key));
                    }
                    for row in rows {
                        if row.r#type() == cdcpb::LogType::Initialized {
                            self.initialized.insert(id, true);
                        }
                        self.rows.entry(id).or_default().push(format!("{row:?}"));
                    }
                }
                Some(Event::Error(error)) => {
                    // What is refused goes past the subscription that lives under the same id.
                    let id = if error.duplicate_request.is_some() { (id.0, REFUSED + id.1) } else { id };
                    self.initialized.remove(&id);
                    self.rows.entry(id).or_default().push(format!("{error:?}"));
                }
                Some(Event::ResolvedTs(ts)) => {
                    self.resolved.push((event.request_id, vec![event.region_id], ts));
                }
                other => panic!("event {other:?}"),
            }
        }
        if let Some(mut resolved) = message.resolved_ts {
            resolved.regions.sort_unstable();
            self.resolved.push((resolved.request_id, resolved.regions, resolved.ts));
        }
    }
}

struct Stream {
    requests: Option<mpsc::Sender<cdcpb::ChangeDataRequest>>,
    answers: Option<Result<Streaming<cdcpb::ChangeDataEvent>, tonic::Status>>,
    heard: Heard,
    expected: Heard,
}

struct Replay {
    name: &'static str,
    cluster: Cluster,
    channel: Channel,
    pool: DescriptorPool,
    recording: Recording,
    streams: BTreeMap<String, Stream>,
    compared: usize,
}

async fn replay(name: &'static str, splits: &[(u64, &[&[u8]])]) {
    let interval = Duration::from_millis(20);
    let options = Options { min_ts_interval: interval, ..Options::default() };
    let cluster = Cluster::start(options).await.unwrap();
    // Otherwise they would come between what the recording did at once.
    cluster.pace().silence_store(1, true);
    for (region_id, keys) in splits {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        cluster.split(*region_id, &keys).await.unwrap();
    }
    if name == "B09" {
        // The recording began with these.
        let rows: Vec<Write> =
            (0..12).map(|at| (format!("B09/{at:02}").into_bytes(), Some(b"v".to_vec()))).collect();
        cluster.write(&rows).await.unwrap();
    }
    let address = format!("http://{}", cluster.store_addresses()[0].1);
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    let recording = Recording::read(name);
    let steps = recording.steps.clone();
    let mut replay = Replay {
        name,
        cluster,
        channel,
        pool: descriptors(),
        recording,
        streams: BTreeMap::new(),
        compared: 0,
    };
    for step in &steps {
        let left_out =
            |(scenario, number, _): &&(&str, u64, &str)| *scenario == name && step["step"] == *number;
        if LEFT_OUT.iter().find(left_out).is_none() {
            replay.step(step).await;
        }
    }
    replay.catch_up("the end").await;
    assert!(replay.compared > 5, "{name} compared only {} answers", replay.compared);
    let violations = replay.cluster.take_violations();
    assert!(violations.is_empty(), "{name}: {violations:?}");
    drop(replay.streams);
    replay.cluster.shutdown().await.unwrap();
}

impl Replay {
    async fn step(&mut self, step: &Json) {
        let at = format!("{} step {} {}", self.name, step["step"], step["note"]);
        match (step["kind"].as_str(), step["dir"].as_str()) {
            (Some("tso"), _) => self.draw(step["ts"].as_str().unwrap()).await,
            (Some("unary"), _) => {
                self.call(&at, step).await;
                self.catch_up(&at).await;
            }
            (Some("stream"), Some("open")) => self.open(step).await,
            (Some("stream"), Some("send")) => {
                self.catch_up(&at).await;
                let request = self.typed("cdcpb.ChangeDataRequest", &step["message"]);
                let stream = self.stream(step);
                // A stream that was refused takes none; its end is compared.
                let sent = stream.requests.as_ref().unwrap().send(request).await;
                assert!(sent.is_ok() || !matches!(stream.answers, Some(Ok(_))), "{at}: the stream has ended");
            }
            (Some("stream"), Some("recv")) => self.expect(&at, step).await,
            (Some("stream"), Some("end")) => self.expect_end(&at, step).await,
            (Some("stream"), Some("cancelled by client")) => {
                self.catch_up(&at).await;
                self.streams.remove(step["stream"].as_str().unwrap());
            }
            (Some("note"), _) => self.act(&at, step["note"].as_str().unwrap()).await,
            other => panic!("{at} is of unknown kind {other:?}"),
        }
    }

    fn stream(&mut self, step: &Json) -> &mut Stream {
        self.streams.get_mut(step["stream"].as_str().unwrap()).unwrap()
    }

    fn dynamic(&self, name: &str, json: &Json) -> DynamicMessage {
        let descriptor = self.pool.get_message_by_name(name).unwrap();
        message(json, &descriptor, &|symbol| self.recording.number(symbol))
    }

    fn typed<T: Message + Default>(&self, name: &str, json: &Json) -> T {
        T::decode(self.dynamic(name, json).encode_to_vec().as_slice()).unwrap()
    }

    async fn draw(&mut self, symbol: &str) {
        let store = self.cluster.store();
        for _ in 0..DRAWS_APART {
            store.timestamp().await.unwrap();
        }
        let mut ts = self.cluster.timestamp().await.unwrap();
        let pause_ms = self.recording.pause_ms(symbol);
        if let Some(last) = self.recording.last_drawn().filter(|_| pause_ms >= PAUSE_MS_MIN) {
            while ts >> 18 < (last >> 18) + pause_ms {
                tokio::time::sleep(Duration::from_millis(10)).await;
                ts = self.cluster.timestamp().await.unwrap();
            }
        }
        self.recording.draw(symbol, ts);
    }

    async fn call(&mut self, at: &str, step: &Json) {
        let path = step["rpc"].as_str().unwrap();
        let method = path.rsplit('/').next().unwrap();
        let service = self.pool.get_service_by_name("tikvpb.Tikv").unwrap();
        let method = service.methods().find(|known| known.name() == method);
        let method = method.unwrap_or_else(|| panic!("{at}: call {path} is not known"));
        let (input, output) = (method.input(), method.output());
        let request = self.dynamic(input.full_name(), &step["request"]).encode_to_vec();
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client = client.max_encoding_message_size(64 << 20);
        client.ready().await.unwrap();
        let path = path.parse().unwrap();
        let answer = client.unary(Request::new(request.into()), path, Raw).await;
        self.compared += 1;
        if let Some(status) = step["grpc_status"].as_object() {
            let code = format!("{:?}", answer.unwrap_err().code());
            let expected = status["code"].as_str().unwrap().replace('_', "");
            assert!(code.eq_ignore_ascii_case(&expected), "{at}: {code}, not {expected}");
            return;
        }
        let answer = answer.unwrap_or_else(|status| panic!("{at}: {status}")).into_inner();
        let mut answer = DynamicMessage::decode(output.clone(), answer).unwrap();
        let mut expected = self.dynamic(output.full_name(), &step["response"]);
        for number in step["response_unknown_fields"].as_array().into_iter().flatten() {
            answer.clear_field_by_number(u32::try_from(number.as_u64().unwrap()).unwrap());
        }
        normalise(&mut answer);
        normalise(&mut expected);
        assert_eq!(answer.to_string(), expected.to_string(), "{at}: {}", step["rpc"]);
    }

    async fn open(&mut self, step: &Json) {
        let (requests, receiver) = mpsc::channel(100);
        let mut request = Request::new(ReceiverStream::new(receiver));
        if let Some(features) = step["metadata"]["features"].as_str() {
            request.metadata_mut().insert("features", features.parse().unwrap());
        }
        let mut client = ChangeDataClient::new(self.channel.clone()).max_decoding_message_size(64 << 20);
        let answers = if step["rpc"].as_str().unwrap().ends_with("V2") {
            client.event_feed_v2(request).await
        } else {
            client.event_feed(request).await
        };
        let stream = Stream {
            requests: Some(requests),
            answers: Some(answers.map(tonic::Response::into_inner)),
            heard: Heard::default(),
            expected: Heard::default(),
        };
        self.streams.insert(step["stream"].as_str().unwrap().to_owned(), stream);
    }

    async fn expect(&mut self, at: &str, step: &Json) {
        let message: cdcpb::ChangeDataEvent = if step["message"]["resolved_ts"].is_null() {
            self.typed("cdcpb.ChangeDataEvent", &step["message"])
        } else {
            cdcpb::ChangeDataEvent::default()
        };
        self.compared += 1;
        let deprecated = message.events.iter().any(|event| matches!(event.event, Some(Event::ResolvedTs(_))));
        let resolved = &step["message"]["resolved_ts"];
        if deprecated || !resolved.is_null() {
            let symbol =
                if deprecated { &step["message"]["events"][0]["resolved_ts"] } else { &resolved["ts"] };
            let bounds = self.recording.resolved_bounds(symbol.as_str());
            let request_id = if deprecated { 0 } else { resolved["request_id"].as_u64().unwrap_or(0) };
            let n_regions = resolved["regions"].as_array().map_or(1, Vec::len);
            self.cluster.pace().silence_store(1, false);
            self.expect_resolved(at, step, request_id, n_regions, bounds, deprecated).await;
            self.cluster.pace().silence_store(1, true);
        } else {
            self.stream(step).expected.hear(message);
        }
    }

    /// Waits for a resolved timestamp within bounds that is sent from now on.
    async fn expect_resolved(
        &mut self,
        at: &str,
        step: &Json,
        request_id: u64,
        n_regions: usize,
        bounds: (u64, u64),
        deprecated: bool,
    ) {
        let stream = self.stream(step);
        stream.heard.resolved.clear();
        let end = tokio::time::Instant::now() + WAIT;
        loop {
            let fits = |(request, regions, ts): &(u64, Vec<u64>, u64)| {
                (deprecated || *request == request_id)
                    && regions.len() == n_regions
                    && *ts >= bounds.0
                    && *ts < bounds.1
            };
            if stream.heard.resolved.iter().any(fits) {
                return;
            }
            let heard = stream.listen(end).await;
            assert!(heard, "{at}: no resolved timestamp in {bounds:?}: {:?}", stream.heard.resolved);
        }
    }

    async fn expect_end(&mut self, at: &str, step: &Json) {
        let stream = self.stream(step);
        let expected = step["grpc_status"]["code"].as_str().unwrap().replace('_', "");
        let status = match stream.answers.take() {
            Some(Err(status)) => status,
            Some(Ok(mut answers)) => loop {
                match tokio::time::timeout(WAIT, answers.message()).await.unwrap() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{at}: the stream ended well"),
                    Err(status) => break status,
                }
            },
            None => panic!("{at}: the stream has ended before"),
        };
        assert!(format!("{:?}", status.code()).eq_ignore_ascii_case(&expected), "{at}: {status}");
        self.compared += 1;
    }

    /// Hears what is expected so far and compares.
    async fn catch_up(&mut self, at: &str) {
        for (name, stream) in &mut self.streams {
            let end = tokio::time::Instant::now() + WAIT;
            for (id, expected) in &stream.expected.rows {
                while stream.heard.rows.get(id).map_or(0, Vec::len) < expected.len() {
                    let heard = stream.answers.as_mut().unwrap().as_mut().unwrap();
                    let next = tokio::time::timeout_at(end, heard.message()).await;
                    let Ok(next) = next else {
                        panic!("{at}: {name} {id:?} expected {expected:#?} got {:#?}", stream.heard.rows);
                    };
                    stream.heard.hear(next.unwrap().unwrap());
                }
                let heard = &stream.heard.rows[id][..expected.len()];
                assert_eq!(heard, expected.as_slice(), "{at}: {name} {id:?}");
            }
        }
    }

    async fn act(&mut self, at: &str, note: &str) {
        if note.contains("merge region 10") {
            self.cluster.merge(10, 12).await.unwrap();
            return;
        }
        if note.contains("PD safe point set") {
            self.cluster.pass_garbage_collection(self.recording.number("ts12")).await.unwrap();
            return;
        }
        let harmless = ["now the fence", "POST /config"];
        assert!(harmless.iter().any(|known| note.contains(known)), "{at}: {note}");
    }
}

impl Stream {
    /// Hears one message; false if none comes.
    async fn listen(&mut self, end: tokio::time::Instant) -> bool {
        let answers = self.answers.as_mut().unwrap().as_mut().unwrap();
        match tokio::time::timeout_at(end, answers.message()).await {
            Ok(message) => {
                self.heard.hear(message.unwrap().unwrap());
                true
            }
            Err(_) => false,
        }
    }
}

macro_rules! replays {
    ($($test:ident: $name:literal $splits:expr;)*) => {$(
        #[tokio::test]
        async fn $test() {
            replay($name, $splits).await;
        }
    )*};
}

replays! {
    async_commit_is_as_recorded: "A13" &[];
    one_phase_commit_is_as_recorded: "A14" &[];
    region_errors_are_as_recorded: "A17" &[];
    old_values_without_asking_are_as_recorded: "B00" &[];
    the_scan_is_as_recorded: "B01" &[];
    live_rows_are_as_recorded: "B02" &[];
    resolved_timestamps_are_as_recorded: "B03" &[];
    requests_and_errors_are_as_recorded: "B05" &[];
    a_split_is_as_recorded: "B06" &[];
    registering_again_is_as_recorded: "B07" &[];
    many_regions_are_as_recorded: "B09" &[];
    a_merge_is_as_recorded: "B12" &[(2, &[b"D"]), (4, &[b"C03/2-093"])];
    collected_history_is_as_recorded:
        "B13" &[(2, &[b"D"]), (4, &[b"C03/2-093"]), (6, &[b"B12/", b"B12/m", b"B12/z"])];
    a_bounded_delta_is_as_recorded: "C01" &[];
}
