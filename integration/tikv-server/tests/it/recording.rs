//! A recording, and the numbers that its symbols stand for in a replay.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// Draws between two symbols, so that sums on symbols stay between them.
pub(crate) const DRAWS_APART: u32 = 120;
/// A symbol that is so near a drawn one is a sum on it.
const SUM_MAX: u64 = 10;

/// Steps and timestamps of one scenario.
pub(crate) struct Recording {
    pub steps: Vec<Json>,
    /// Raw timestamps by symbol.
    raw: BTreeMap<String, u64>,
    /// What the recording drew, raw.
    to_draw: Vec<u64>,
    /// What the replay drew for it.
    drawn: BTreeMap<u64, u64>,
}

impl Recording {
    pub(crate) fn read(scenario: &str) -> Recording {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/recordings");
        let mut files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
        let named = |path: &std::path::PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(scenario))
        };
        let path = files.find(named).unwrap_or_else(|| panic!("there is a recording {scenario}"));
        let json: Json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let timestamps = json["timestamps"].as_object().unwrap();
        let raw: BTreeMap<String, u64> = timestamps
            .iter()
            .map(|(symbol, json)| (symbol.clone(), json["raw"].as_str().unwrap().parse().unwrap()))
            .collect();
        let steps = json["steps"].as_array().unwrap().clone();
        let symbols =
            steps.iter().filter(|step| step["kind"] == "tso").filter_map(|step| step["ts"].as_str());
        let to_draw = symbols.map(|symbol| sum(&raw, symbol)).collect();
        Recording { steps, raw, to_draw, drawn: BTreeMap::new() }
    }

    /// Notes what was drawn for a symbol.
    pub(crate) fn draw(&mut self, symbol: &str, ts: u64) {
        self.drawn.insert(sum(&self.raw, symbol), ts);
    }

    /// How long the recording waited before a draw, in milliseconds.
    pub(crate) fn pause_ms(&self, symbol: &str) -> u64 {
        let raw = sum(&self.raw, symbol);
        let before = self.drawn.range(..raw).next_back().map_or(raw, |(before, _)| *before);
        (raw >> 18) - (before >> 18)
    }

    pub(crate) fn last_drawn(&self) -> Option<u64> {
        self.drawn.values().next_back().copied()
    }

    /// The number of a symbol. One that was not drawn is a sum on one that was, or lies behind it.
    pub(crate) fn number(&self, symbol: &str) -> u64 {
        if symbol == "MAX" {
            return u64::MAX;
        }
        let raw = sum(&self.raw, symbol);
        let Some(base) = self.to_draw.iter().copied().filter(|drawn| *drawn <= raw).max() else {
            return 1;
        };
        let Some(number) = self.drawn.get(&base) else {
            // Far ahead on purpose.
            let (last, number) = self.drawn.last_key_value().unwrap();
            return number + (raw - last);
        };
        let distance = raw - base;
        if distance <= SUM_MAX {
            return number + distance;
        }
        let behind = self.raw.values().filter(|other| **other > base + SUM_MAX && **other <= raw).count();
        number + SUM_MAX + behind as u64
    }

    /// The bounds of what a resolved timestamp may be in the replay: from the drawn one before it to the
    /// one after, if the recording had exactly a drawn one (a lock held it), else without an end.
    pub(crate) fn resolved_bounds(&self, symbol: Option<&str>) -> (u64, u64) {
        let Some(symbol) = symbol else { return (0, u64::MAX) };
        let raw = sum(&self.raw, symbol);
        let Some((base, number)) = self.drawn.range(..=raw).next_back() else { return (0, u64::MAX) };
        if *base != raw {
            return (*number, u64::MAX);
        }
        let after = self.drawn.range(raw + 1..).next().map_or(u64::MAX, |(_, number)| *number);
        (*number, after)
    }
}

/// The raw timestamp of a symbol or of a sum on one.
fn sum(raw: &BTreeMap<String, u64>, symbol: &str) -> u64 {
    let (name, more) = symbol.split_once('+').unwrap_or((symbol, "0"));
    raw[name] + more.parse::<u64>().unwrap()
}
