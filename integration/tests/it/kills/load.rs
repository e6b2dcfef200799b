//! The load of the kill tests: writers and view makers that know what was acknowledged, and the checks
//! against what they know.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use integration::{Client, connect, until};
use tokio::sync::{Mutex, watch};

/// The views that are there all the time.
pub(super) const VIEWS: [(&str, &str); 4] = [
    ("totals", "SELECT count(*) AS n, sum(amount) AS amount FROM ledger"),
    ("by_account", "SELECT account, count(*) AS n, sum(amount) AS amount FROM ledger GROUP BY account"),
    ("named", "SELECT l.id, a.name, l.amount FROM ledger l JOIN account a ON l.account = a.id"),
    ("idle", "SELECT a.id FROM account a WHERE NOT EXISTS (SELECT 1 FROM ledger l WHERE l.account = a.id)"),
];

/// How long the load may take to get on, after faults have stopped.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// What the writers and view makers know.
#[derive(Default)]
pub(super) struct Load {
    ledger: Mutex<Ledger>,
    views: Mutex<Views>,
    /// Counts acknowledged transactions.
    n_written: watch::Sender<u64>,
    /// Counts acknowledged CREATEs and DROPs of views.
    n_changed: watch::Sender<u64>,
    stop: AtomicBool,
}

#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    next: u64,
}

#[derive(Default)]
struct Views {
    acknowledged: BTreeSet<String>,
    /// Those whose CREATE or DROP was not answered.
    unknown: BTreeSet<String>,
    next: u64,
}

impl Load {
    /// Tables, and rows of what is joined.
    pub(super) async fn prepare(&self, client: &mut Client) {
        client.must("CREATE TABLE account (id INT NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL)").await;
        client
            .must("CREATE TABLE ledger (id BIGINT NOT NULL PRIMARY KEY, account INT NOT NULL, amount DECIMAL(12,2))")
            .await;
        let rows: Vec<String> = (0..20).map(|id| format!("({id}, 'account {id}')")).collect();
        client.must(&format!("INSERT INTO account VALUES {}", rows.join(", "))).await;
    }

    /// The views that are there all the time.
    pub(super) async fn create_views(&self, client: &mut Client) {
        for (name, query) in VIEWS {
            client.must(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
            self.views.lock().await.acknowledged.insert(name.to_owned());
        }
    }

    /// Creates a view of which nobody may hear that it is there: its fill is killed.
    pub(super) async fn create_unheard(&self, client: &mut Client, name: &str, query: &str) {
        self.views.lock().await.unknown.insert(name.to_owned());
        let created = client.run(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
        assert_lost(created, name);
    }

    /// Many acknowledged pairs, for fills of many pieces.
    pub(super) async fn write_pairs(&self, client: &mut Client, n_pairs: u64) {
        let mut ledger = self.ledger.lock().await;
        let ids = ledger.next..ledger.next + n_pairs;
        ledger.next = ids.end;
        let rows: Vec<String> = ids.clone().map(pair).collect();
        client.must(&format!("INSERT INTO ledger VALUES {}", rows.join(", "))).await;
        ledger.acknowledged.extend(ids);
        self.n_written.send_modify(|n_written| *n_written += n_pairs);
    }

    /// How many transactions were acknowledged.
    pub(super) fn n_written(&self) -> u64 {
        *self.n_written.borrow()
    }

    /// How many CREATEs and DROPs of views were acknowledged.
    pub(super) fn n_changed(&self) -> u64 {
        *self.n_changed.borrow()
    }

    /// Waits until so many further transactions were acknowledged.
    pub(super) async fn written(&self, n_transactions: u64) {
        let mut written = self.n_written.subscribe();
        let target = *written.borrow_and_update() + n_transactions;
        let reached =
            tokio::time::timeout(PROGRESS_TIMEOUT, written.wait_for(|n_written| *n_written >= target));
        let reached =
            reached.await.unwrap_or_else(|_| panic!("writers get no further than {}", self.n_written()));
        drop(reached.expect("the sender lives"));
    }

    /// Runs until the server is gone, or somebody calls [`Load::stop`].
    pub(super) async fn run(&self, address: SocketAddr) {
        futures::join!(self.run_writers(address), self.run_makers(address));
    }

    /// As [`Load::run`], without makers of views.
    pub(super) async fn run_writers(&self, address: SocketAddr) {
        self.stop.store(false, Ordering::Relaxed);
        futures::future::join_all((0..3).map(|_| self.write(address))).await;
    }

    /// The makers of views beside [`Load::run_writers`].
    pub(super) async fn run_makers(&self, address: SocketAddr) {
        futures::future::join_all((0..2).map(|_| self.make_views(address))).await;
    }

    /// Runs the writers until so many further transactions were acknowledged.
    pub(super) async fn run_some(&self, address: SocketAddr, n_transactions: u64) {
        let enough = async {
            self.written(n_transactions).await;
            self.stop();
        };
        futures::join!(self.run_writers(address), enough);
    }

    /// Ends what runs.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Writes transactions of two rows that cancel each other out.
    async fn write(&self, address: SocketAddr) {
        let Ok(mut client) = connect(address, "test").await else { return };
        while !self.is_over() {
            let id = {
                let mut ledger = self.ledger.lock().await;
                let id = ledger.next;
                ledger.next += 1;
                ledger.unknown.insert(id);
                id
            };
            let inserted = client.run(&format!("INSERT INTO ledger VALUES {}", pair(id))).await;
            if inserted.is_err() {
                return assert_lost(inserted, "a transaction");
            }
            let mut ledger = self.ledger.lock().await;
            ledger.unknown.remove(&id);
            ledger.acknowledged.insert(id);
            self.n_written.send_modify(|n_written| *n_written += 1);
        }
    }

    /// Adds a view, and drops it when the next is there.
    async fn make_views(&self, address: SocketAddr) {
        let Ok(mut client) = connect(address, "test").await else { return };
        let mut before: Option<String> = None;
        while !self.is_over() {
            let number = {
                let mut views = self.views.lock().await;
                views.next += 1;
                views.next
            };
            let name = format!("made_{number}");
            let query = VIEWS[usize::try_from(number).unwrap() % VIEWS.len()].1;
            let create = format!("CREATE MATERIALIZED VIEW {name} AS {query}");
            if !self.change(&mut client, &name, &create).await {
                return;
            }
            self.views.lock().await.acknowledged.insert(name.clone());
            if let Some(before) = before.replace(name)
                && !self.drop_view(&mut client, &before).await
            {
                return;
            }
        }
    }

    /// Runs statements again and again, until the server is gone.
    pub(super) async fn repeat(&self, address: SocketAddr, statements: &[&str]) {
        let Ok(mut client) = connect(address, "test").await else { return };
        for statement in statements.iter().cycle() {
            let changed = client.run(statement).await;
            if changed.is_err() {
                return assert_lost(changed, statement);
            }
        }
    }

    async fn drop_view(&self, client: &mut Client, name: &str) -> bool {
        self.views.lock().await.acknowledged.remove(name);
        self.change(client, name, &format!("DROP MATERIALIZED VIEW {name}")).await
    }

    /// Runs DDL on a view; `false` if nobody knows what became of it.
    async fn change(&self, client: &mut Client, name: &str, statement: &str) -> bool {
        self.views.lock().await.unknown.insert(name.to_owned());
        let changed = client.run(statement).await;
        if changed.is_err() {
            assert_lost(changed, statement);
            return false;
        }
        self.views.lock().await.unknown.remove(name);
        self.n_changed.send_modify(|n_changed| *n_changed += 1);
        true
    }

    /// Everything that was acknowledged is there once and whole, and nothing else is but what is unknown;
    /// every view is as fresh as it should be and verifies.
    pub(super) async fn check(&self, address: SocketAddr) {
        let mut client = connect(address, "test").await.unwrap();
        self.check_rows(&mut client).await;
        let views = self.check_names(&mut client).await;
        for view in &views {
            check_view(&mut client, view).await;
        }
        for made in views.iter().filter(|view| view.starts_with("made_")) {
            assert!(self.drop_view(&mut client, made).await, "{made} is dropped");
        }
        let left: BTreeSet<String> = listed(&mut client).await.into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, self.views.lock().await.acknowledged, "the views that are left");
    }

    /// Whether a view becomes ready before the server dies.
    pub(super) async fn is_published(&self, address: SocketAddr, view: &str) -> bool {
        let Ok(mut client) = connect(address, "test").await else { return false };
        loop {
            let query = format!("SELECT state FROM tidemill.views WHERE view_name = '{view}'");
            match client.rows(&query).await {
                Ok(states) if states.iter().all(|state| state.eq_ignore_ascii_case("ready")) => {
                    assert_eq!(states.len(), 1, "{view} is there");
                    return true;
                }
                Ok(_) => {}
                Err(mysql_async::Error::Server(error)) => panic!("{query}: {error}"),
                Err(_) => return false,
            }
        }
    }

    /// Everything that was acknowledged is there once and whole, and nothing else is but what is unknown.
    pub(super) async fn check_rows(&self, client: &mut Client) {
        let rows = client.must_rows("SELECT id FROM ledger").await;
        let ids: Vec<u64> = rows.iter().map(|row| row.parse().unwrap()).collect();
        let present: BTreeSet<u64> = ids.iter().copied().collect();
        assert_eq!(ids.len(), present.len(), "an id is there twice");
        let ledger = self.ledger.lock().await;
        for id in &ledger.acknowledged {
            let whole = present.contains(&(id * 2)) && present.contains(&(id * 2 + 1));
            assert!(whole, "acknowledged pair {id} is lost");
        }
        for id in &present {
            assert!(present.contains(&(id ^ 1)), "the transaction of row {id} is torn");
            let pair = id / 2;
            let known = ledger.acknowledged.contains(&pair) || ledger.unknown.contains(&pair);
            assert!(known, "row {id} was never written");
        }
    }

    /// The views that are there, once all of them are ready. What was unknown is known from now on.
    async fn check_names(&self, client: &mut Client) -> Vec<String> {
        let there: BTreeSet<String> = listed(client).await.into_iter().map(|(name, _)| name).collect();
        let mut views = self.views.lock().await;
        let lost: Vec<&String> = views.acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged views are lost: {lost:?}");
        for view in there.difference(&views.acknowledged) {
            assert!(views.unknown.contains(view), "{view} was dropped, or never created");
        }
        views.unknown.clear();
        views.acknowledged.clone_from(&there);
        drop(views);
        until("every view is ready", async || {
            listed(client).await.iter().all(|(_, state)| state.eq_ignore_ascii_case("ready"))
        })
        .await;
        there.into_iter().collect()
    }
}

/// Generation and epoch of the job that maintains the views.
pub(super) async fn frontier(address: SocketAddr) -> (u64, u64) {
    let mut client = connect(address, "test").await.unwrap();
    let jobs =
        client.must_rows("SELECT generation, epoch FROM tidemill.jobs WHERE kind = 'continuous'").await;
    let numbers: Vec<u64> =
        jobs.iter().flat_map(|job| job.split(" | ")).map(|n| n.parse().unwrap()).collect();
    let [generation, epoch] = numbers[..] else { panic!("one continuous job: {jobs:?}") };
    (generation, epoch)
}

/// Waits until a newer generation than that of a frontier has decided an epoch.
pub(super) async fn taken_over(address: SocketAddr, before: (u64, u64)) {
    until("a newer generation decides", async || {
        let (generation, epoch) = frontier(address).await;
        generation > before.0 && epoch > before.1
    })
    .await;
}

/// Only a connection that broke leaves open what became of a statement; an answer must not be an error.
fn assert_lost(outcome: Result<(), mysql_async::Error>, what: &str) {
    let error = outcome.expect_err("the process died meanwhile");
    assert!(!matches!(error, mysql_async::Error::Server(_)), "{what}: {error}");
}

fn pair(id: u64) -> String {
    let (one, other) = (id % 20, (id * 7 + 1) % 20);
    format!("({}, {one}, 1.25), ({}, {other}, -1.25)", id * 2, id * 2 + 1)
}

/// Every view with its state.
async fn listed(client: &mut Client) -> Vec<(String, String)> {
    let rows = client.must_rows("SELECT view_name, state FROM tidemill.views").await;
    let split = |row: &String| row.split_once(" | ").map(|(name, state)| (name.to_owned(), state.to_owned()));
    rows.iter().map(|row| split(row).expect("two columns")).collect()
}

/// Fresh and wait equal live, and the view verifies.
async fn check_view(client: &mut Client, view: &str) {
    for mode in ["fresh", "wait"] {
        client.must(&format!("SET tidemill_read_mode = '{mode}'")).await;
        client.must("SET tidemill_snapshot = ''").await;
        let got = client.must_rows(&format!("SELECT * FROM {view}")).await;
        let at = client.one("SELECT @@tidemill_last_read_ts").await;
        client.must("SET tidemill_read_mode = 'live'").await;
        client.must(&format!("SET tidemill_snapshot = '{at}'")).await;
        let live = client.must_rows(&format!("SELECT * FROM {view}")).await;
        assert_eq!(got, live, "{mode} read of {view}");
    }
    client.must("SET tidemill_snapshot = ''").await;
    client.must("SET tidemill_read_mode = 'fresh'").await;
    let different = client.must_rows(&format!("VERIFY MATERIALIZED VIEW {view}")).await;
    assert!(different.is_empty(), "{view} differs from its query: {different:?}");
}
