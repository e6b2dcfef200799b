//! Those who read views while everything goes on: in every mode and on every path, now and in the past,
//! inside transactions and outside.
//!
//! Whatever the way, the answer at T is that of the view's query, as the definition at T says it, over the
//! tables at T; a stale answer that of the query at the cut.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use integration::{Client, connect};
use mysql_async::{Error, ServerError};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::sync::Mutex;

use super::keepers::{change, is_refusal, names};

/// How many there are.
const N_READERS: u64 = 2;
/// Timestamps of the past that are remembered.
const PAST_MAX: usize = 500;

#[derive(Default)]
pub(super) struct Readers {
    past: Mutex<Vec<String>>,
    n_read: AtomicU64,
}

/// An answer, or what the server says instead.
type Answer = Result<Vec<String>, ServerError>;

/// The answer; an error only if the server is gone.
async fn answer(client: &mut Client, query: &str) -> Result<Answer, Error> {
    match client.rows(query).await {
        Ok(rows) => Ok(Ok(rows)),
        Err(Error::Server(error)) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// The answer in a mode and on a path, at the session's snapshot.
pub(super) async fn read_at(
    client: &mut Client,
    mode: &str,
    path: &str,
    query: &str,
) -> Result<Answer, Error> {
    client.run(&format!("SET tidemill_read_mode = '{mode}', tidemill_read_path = '{path}'")).await?;
    answer(client, query).await
}

/// The query of a view, as the session's snapshot or transaction sees it.
pub(super) async fn query_at(client: &mut Client, view: &str) -> Result<Option<String>, Error> {
    let shown = answer(client, &format!("SHOW CREATE MATERIALIZED VIEW {view}")).await?;
    let Ok(shown) = shown else { return Ok(None) };
    let text = shown.join("\n");
    Ok(text.find("SELECT").map(|at| text[at..].to_owned()))
}

impl Readers {
    /// Reads that were compared.
    pub(super) fn n_read(&self) -> u64 {
        self.n_read.load(Ordering::Relaxed)
    }

    /// Runs until the server is gone.
    pub(super) async fn run(&self, address: SocketAddr, seed: u64) {
        let all = (0..N_READERS).map(|number| self.read(address, seed.wrapping_add(1000 + number)));
        futures::future::join_all(all).await;
    }

    async fn read(&self, address: SocketAddr, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let Ok(mut client) = connect(address, "test").await else { return };
        let views = names();
        loop {
            let (view, ..) = views.choose(&mut random).expect("there are views");
            let path = *["auto", "hybrid", "live"].choose(&mut random).expect("a choice");
            let read = match random.random_range(0..6) {
                0 | 1 => self.now(&mut client, view, path, &mut random).await,
                2 | 3 => self.past(&mut client, view, path, &mut random).await,
                4 => self.stale(&mut client, view, &mut random).await,
                _ => self.inside(&mut client, view, path, &mut random).await,
            };
            if read.is_err() {
                return;
            }
        }
    }

    fn compare(&self, got: Answer, expected: Answer, what: &str) {
        match (got, expected) {
            (Ok(got), Ok(expected)) => {
                assert_eq!(got, expected, "{what}");
                self.n_read.fetch_add(1, Ordering::Relaxed);
            }
            (Err(error), _) => assert!(is_refusal(&error), "{what}: {error}"),
            (Ok(_), Err(error)) => panic!("{what}: the query fails: {error}"),
        }
    }

    /// A timestamp of before, or the newest.
    async fn some_time(&self, client: &mut Client, random: &mut StdRng) -> Result<String, Error> {
        let mut past = self.past.lock().await;
        let known = past.choose(random).cloned().filter(|_| random.random_bool(0.7));
        if let Some(known) = known {
            return Ok(known);
        }
        client.run("SET tidemill_snapshot = ''").await?;
        client.run("SELECT count(*) FROM account").await?;
        let at = client.rows("SELECT @@tidemill_last_read_ts").await?.remove(0);
        if past.len() >= PAST_MAX {
            past.remove(0);
        }
        past.push(at.clone());
        Ok(at)
    }

    /// Now: the timestamp is told after the read.
    async fn now(
        &self,
        client: &mut Client,
        view: &str,
        path: &str,
        random: &mut StdRng,
    ) -> Result<(), Error> {
        let mode = *["fresh", "wait", "live"].choose(random).expect("a choice");
        client.run("SET tidemill_snapshot = ''").await?;
        let before = query_at(client, view).await?;
        let got = read_at(client, mode, path, &format!("SELECT * FROM {view}")).await?;
        let at = client.rows("SELECT @@tidemill_last_read_ts").await?.remove(0);
        client.run(&format!("SET tidemill_snapshot = '{at}'")).await?;
        let query = query_at(client, view).await?;
        // A view that was replaced meanwhile may be read as it was.
        let (Some(query), true) = (&query, query == before) else { return Ok(()) };
        let expected = read_at(client, "fresh", "auto", query).await?;
        self.compare(got, expected, &format!("{mode} read of {view} by {path} at {at}"));
        Ok(())
    }

    async fn past(
        &self,
        client: &mut Client,
        view: &str,
        path: &str,
        random: &mut StdRng,
    ) -> Result<(), Error> {
        let mode = *["fresh", "wait", "live"].choose(random).expect("a choice");
        let at = self.some_time(client, random).await?;
        client.run(&format!("SET tidemill_snapshot = '{at}'")).await?;
        let Some(query) = query_at(client, view).await? else { return Ok(()) };
        let got = read_at(client, mode, path, &format!("SELECT * FROM {view}")).await?;
        let expected = read_at(client, "fresh", "auto", &query).await?;
        self.compare(got, expected, &format!("{mode} read of {view} by {path} at the past {at}"));
        // The same by AS OF.
        client.run("SET tidemill_snapshot = ''").await?;
        let narrow = format!("SELECT grp, val FROM (SELECT * FROM churn AS OF TIMESTAMP {at}) c");
        let got = read_at(client, "fresh", path, &narrow).await?;
        client.run(&format!("SET tidemill_snapshot = '{at}'")).await?;
        let expected = read_at(client, "fresh", "auto", "SELECT grp, val FROM churn").await?;
        self.compare(got, expected, &format!("churn as of {at}"));
        Ok(())
    }

    async fn stale(&self, client: &mut Client, view: &str, random: &mut StdRng) -> Result<(), Error> {
        let at = self.some_time(client, random).await?;
        client.run(&format!("SET tidemill_snapshot = '{at}'")).await?;
        let Some(query) = query_at(client, view).await? else { return Ok(()) };
        let got = read_at(client, "stale", "auto", &format!("SELECT * FROM {view}")).await?;
        let explained = answer(client, &format!("EXPLAIN SELECT * FROM {view}")).await?;
        let explained = match (&got, &explained) {
            (Ok(_), Ok(lines)) => lines.join("\n"),
            (Err(error), _) | (_, Err(error)) => {
                assert!(
                    is_refusal(error) || error.message.contains("no stale answer yet"),
                    "{view}: {error}"
                );
                return Ok(());
            }
        };
        let (_, cut) = explained.split_once("cut=").unwrap_or_else(|| panic!("no cut: {explained}"));
        let cut: String = cut.chars().take_while(char::is_ascii_digit).collect();
        client.run(&format!("SET tidemill_snapshot = '{cut}'")).await?;
        let expected = read_at(client, "fresh", "auto", &query).await?;
        self.compare(got, expected, &format!("stale read of {view} at {at}, its cut is {cut}"));
        Ok(())
    }

    /// In a transaction, with its own writes.
    async fn inside(
        &self,
        client: &mut Client,
        view: &str,
        path: &str,
        random: &mut StdRng,
    ) -> Result<(), Error> {
        client.run("SET tidemill_snapshot = ''").await?;
        client.run("BEGIN").await?;
        for _ in 0..random.random_range(0..4) {
            let statement = change(random);
            if let Err(error) = answer(client, &statement).await? {
                assert_eq!(error.code, 1062, "{statement}: {error}");
            }
        }
        let mode = *["fresh", "wait", "live"].choose(random).expect("a choice");
        if let Some(query) = query_at(client, view).await? {
            let got = read_at(client, mode, path, &format!("SELECT * FROM {view}")).await?;
            let expected = read_at(client, "fresh", "auto", &query).await?;
            self.compare(got, expected, &format!("{mode} read of {view} by {path} in a transaction"));
        }
        let end = if random.random_bool(0.5) { "COMMIT" } else { "ROLLBACK" };
        if let Err(error) = answer(client, end).await? {
            assert_eq!(error.code, 9007, "{end}: {error}");
        }
        Ok(())
    }
}
