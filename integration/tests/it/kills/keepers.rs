//! Those who refresh, store anew, replace, drop and suspend views, at random and all at once.
//!
//! A name is created and dropped by one of them only, who knows what was acknowledged. What the others do
//! to it may be refused, for a reason that is known here; nothing else may go wrong, and no view may fault.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use integration::{Client, connect};
use mysql_async::Error;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::sync::Mutex;

/// What views there are: one of each kind for each way of refreshing.
pub(super) struct Kind {
    name: &'static str,
    /// The query, up to the number that follows.
    query: (&'static str, &'static str),
    /// What its rows may be ordered by.
    pub(super) cluster_by: Option<&'static str>,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "filtered",
        query: ("SELECT id, grp, val FROM churn WHERE val > 20 AND id > ", ""),
        cluster_by: Some("grp"),
    },
    Kind {
        name: "grouped",
        query: (
            "SELECT grp, count(*) AS n, sum(val) AS total, min(val) AS low FROM churn WHERE id > ",
            " GROUP BY grp",
        ),
        cluster_by: Some("n"),
    },
    Kind {
        name: "joined",
        query: ("SELECT c.id, a.name, c.val FROM churn c JOIN account a ON c.grp = a.id WHERE c.id > ", ""),
        cluster_by: Some("name"),
    },
    Kind { name: "differ", query: ("SELECT DISTINCT grp, val FROM churn WHERE id > ", ""), cluster_by: None },
    Kind { name: "keyless", query: ("SELECT grp, val FROM churn WHERE id > ", ""), cluster_by: None },
];

/// How a view is brought up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Continuous,
    OnDemand,
    Scheduled,
}

/// Each with what CREATE says of it.
pub(super) const MODES: [(Mode, &str, &str); 3] = [
    (Mode::Continuous, "now", ""),
    (Mode::OnDemand, "asked", "WITH (refresh = 'on demand') "),
    (Mode::Scheduled, "timed", "WITH (refresh = 'every 1 second') "),
];

/// How many there are, each with names of its own.
const N_KEEPERS: usize = 3;

/// All names with their kind, and the index of their mode.
pub(super) fn names() -> Vec<(String, &'static Kind, usize)> {
    let of_kind = |kind: &'static Kind| {
        MODES
            .iter()
            .enumerate()
            .map(move |(mode, (_, word, _))| (format!("{}_{word}", kind.name), kind, mode))
    };
    KINDS.iter().flat_map(of_kind).collect()
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    There,
    Gone,
    Unknown,
}

#[derive(Default)]
pub(super) struct Keepers {
    known: Mutex<BTreeMap<String, Known>>,
    n_done: AtomicU64,
}

/// What may be wrong with a statement because of what others do to the view.
const REFUSALS: [&str; 17] = [
    "already being replaced",
    "still being filled",
    "is suspended",
    "suspended already",
    "has never been refreshed",
    "neither faulted nor suspended",
    "no fill or refresh",
    "cancelled",
    "dropped",
    "built anew",
    "has no cluster key",
    "doesn't exist",
    "already exists",
    "Unknown table",
    "unknown table",
    "OR REPLACE cannot move",
    "can be refreshed to a timestamp in",
];

/// Whether a server may say that.
pub(super) fn is_refusal(error: &mysql_async::ServerError) -> bool {
    REFUSALS.iter().any(|known| error.message.contains(known))
}

impl Keepers {
    /// The table that changes in every way.
    pub(super) async fn prepare(&self, client: &mut Client) {
        client.must("CREATE TABLE churn (id INT NOT NULL PRIMARY KEY, grp INT NOT NULL, val INT)").await;
        let rows: Vec<String> = (0..300).map(|id| format!("({id}, {}, {})", id % 20, id % 50)).collect();
        client.must(&format!("INSERT INTO churn VALUES {}", rows.join(", "))).await;
        let gone = names().into_iter().map(|(name, ..)| (name, Known::Gone));
        self.known.lock().await.extend(gone);
    }

    /// Statements that were answered.
    pub(super) fn n_done(&self) -> u64 {
        self.n_done.load(Ordering::Relaxed)
    }

    /// Creates the views that are not there.
    pub(super) async fn create_missing(&self, client: &mut Client) {
        let mut known = self.known.lock().await;
        for (name, kind, mode) in names() {
            if known[&name] == Known::Gone {
                client.must(&create("", &name, kind, mode, 0)).await;
                known.insert(name, Known::There);
            }
        }
    }

    /// The views that are there.
    pub(super) async fn there(&self) -> Vec<String> {
        let known = self.known.lock().await;
        let there = known.iter().filter(|(_, known)| **known == Known::There);
        there.map(|(name, _)| name.clone()).collect()
    }

    /// What was acknowledged is so; what is unknown is known from now on.
    pub(super) async fn check_names(&self, client: &mut Client) {
        let listed = client.must_rows("SELECT view_name FROM tidemill.views").await;
        let mut known = self.known.lock().await;
        for name in &listed {
            assert!(known.contains_key(name), "{name} is nobody's view");
        }
        for (name, known) in known.iter_mut() {
            let is_there = listed.contains(name);
            match *known {
                Known::There => assert!(is_there, "acknowledged view {name} is lost"),
                Known::Gone => assert!(!is_there, "{name} was dropped"),
                Known::Unknown => *known = if is_there { Known::There } else { Known::Gone },
            }
        }
    }

    /// Runs until the server is gone.
    pub(super) async fn run(&self, address: SocketAddr, seed: u64) {
        let all = (0..N_KEEPERS).map(|number| self.keep(address, seed, number));
        futures::join!(futures::future::join_all(all), churn(address, seed));
    }

    async fn keep(&self, address: SocketAddr, seed: u64, number: usize) {
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
        let Ok(mut client) = connect(address, "test").await else { return };
        let views = names();
        let own: Vec<_> = views.iter().skip(number).step_by(N_KEEPERS).collect();
        loop {
            let (name, kind, mode) = views.choose(&mut random).expect("there are views");
            let went_on = match random.random_range(0..12) {
                0 => {
                    let (name, kind, mode) = own.choose(&mut random).expect("each has some");
                    self.drop_and_create(&mut client, &mut random, (name, kind, *mode)).await
                }
                _ => {
                    let statement = statement(&mut random, name, kind, *mode);
                    self.run_one(&mut client, &statement).await.map(drop)
                }
            };
            if went_on.is_none() {
                return;
            }
        }
    }

    /// Runs a statement: whether it was done; `None` if the server is gone.
    async fn run_one(&self, client: &mut Client, statement: &str) -> Option<bool> {
        let outcome = client.rows(statement).await;
        match outcome {
            Ok(rows) => {
                self.n_done.fetch_add(1, Ordering::Relaxed);
                let failed = rows.iter().find(|row| row.contains("| Error |"));
                let is_known = |row: &String| REFUSALS.iter().any(|known| row.contains(known));
                assert!(failed.is_none_or(is_known), "{statement}: {failed:?}");
                Some(true)
            }
            Err(Error::Server(error)) => {
                // 1053: it goes down; nothing else ends a statement from outside.
                assert!(is_refusal(&error), "{statement}: {error}");
                Some(false)
            }
            Err(_) => None,
        }
    }

    /// Drops a view of its own and creates it again, or the other way round.
    async fn drop_and_create(
        &self,
        client: &mut Client,
        random: &mut StdRng,
        (name, kind, mode): (&str, &Kind, usize),
    ) -> Option<()> {
        let is_there = self.known.lock().await[name] == Known::There;
        let steps: &[bool] = if is_there { &[false, true] } else { &[true] };
        for creates in steps {
            let (statement, then) = match creates {
                true => (create("", name, kind, mode, random.random_range(0..3)), Known::There),
                false => (format!("DROP MATERIALIZED VIEW {name}"), Known::Gone),
            };
            self.known.lock().await.insert(name.to_owned(), Known::Unknown);
            match self.run_one(client, &statement).await {
                Some(true) => self.known.lock().await.insert(name.to_owned(), then),
                // Cancelled by another before it was there, or another replaced what had just been dropped.
                Some(false) if *creates => None,
                Some(false) => panic!("{statement} was refused"),
                None => return None,
            };
        }
        Some(())
    }
}

fn create(or_replace: &str, name: &str, kind: &Kind, mode: usize, above: u32) -> String {
    let (before, after) = kind.query;
    let how = MODES[mode].2;
    format!("CREATE {or_replace}MATERIALIZED VIEW {name} {how}AS {before}{above}{after}")
}

/// One of the things that are done to a view.
fn statement(random: &mut StdRng, name: &str, kind: &Kind, mode: usize) -> String {
    let alter = |what: &str| format!("ALTER MATERIALIZED VIEW {name} {what}");
    let refreshed = MODES[mode].0 != Mode::Continuous;
    match random.random_range(0..14) {
        0..=3 if refreshed => {
            let how = ["", "", " INCREMENTAL", " FULL"].choose(random).expect("a choice");
            format!("REFRESH MATERIALIZED VIEW {name}{how}")
        }
        0..=4 => format!("OPTIMIZE TABLE {name} COMPACT"),
        5 | 6 => match kind.cluster_by {
            Some(column) if random.random_bool(0.6) => alter(&format!("CLUSTER BY ({column})")),
            Some(_) => alter("CLUSTER BY NONE"),
            None => format!("OPTIMIZE TABLE {name}"),
        },
        7 if kind.cluster_by.is_some() => alter("RECLUSTER FINAL"),
        7 | 8 => create("OR REPLACE ", name, kind, mode, random.random_range(0..3)),
        9 => alter("SUSPEND"),
        10 | 11 => alter("RESUME"),
        12 => alter("CANCEL"),
        _ => format!("VERIFY MATERIALIZED VIEW {name}"),
    }
}

/// Changes rows in every way until the server is gone; what becomes of a statement does not matter.
async fn churn(address: SocketAddr, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed ^ 0xc0de);
    let Ok(mut client) = connect(address, "test").await else { return };
    loop {
        let statement = change(&mut random);
        match client.run(&statement).await {
            Ok(()) => {}
            Err(Error::Server(error)) => assert!([1062, 9007].contains(&error.code), "{statement}: {error}"),
            Err(_) => return,
        }
    }
}

/// A change of the table that is changed in every way.
pub(super) fn change(random: &mut StdRng) -> String {
    let (id, grp) = (random.random_range(0..300), random.random_range(0..20));
    let val =
        if random.random_bool(0.1) { "NULL".to_owned() } else { random.random_range(0..50).to_string() };
    match random.random_range(0..8) {
        0 | 1 => format!("DELETE FROM churn WHERE id = {id}"),
        2 => format!("UPDATE churn SET val = {val} WHERE grp = {grp}"),
        3 => format!("UPDATE churn SET grp = {grp} WHERE id = {id}"),
        4 => format!("UPDATE churn SET id = {} WHERE id = {id}", random.random_range(0..300)),
        _ => format!("REPLACE INTO churn VALUES ({id}, {grp}, {val})"),
    }
}
