//! SIGKILL at random moments while views of every kind and way of refreshing are refreshed, stored anew,
//! replaced, dropped and read, and tables are written.
//!
//! After each restart: every acknowledged commit is there; each view is its query at its cut, by VERIFY and
//! by a stale read, and fresh reads are exact; what had begun is gone or goes on, and nothing that is over
//! is still shown; whatever can be done to a view can be done again.

use std::collections::BTreeSet;

use integration::{Client, Server, connect, seed, soak, until};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::keepers::{Keepers, MODES, Mode, names};
use super::load::Load;
use super::processes::Place;
use super::readers::{Readers, query_at, read_at};

#[tokio::test]
async fn killed_during_refreshes_and_upkeep_views_are_their_queries_and_go_on() {
    let mut random = StdRng::seed_from_u64(seed("kills during upkeep"));
    let (place, load) = (Place::of_one_process(), Load::default());
    let (keepers, readers) = (Keepers::default(), Readers::default());
    let mut server = place.start_server();
    let mut client = connect(server.address(), "test").await.unwrap();
    load.prepare(&mut client).await;
    keepers.prepare(&mut client).await;
    for round in 0..(if soak() { 60 } else { 3 }) {
        keepers.create_missing(&mut client).await;
        drop(client);
        let (n_done, n_read) = (keepers.n_done(), readers.n_read());
        let address = server.address();
        let n_transactions = random.random_range(100..400);
        let kill = async {
            load.written(n_transactions).await;
            server.kill();
        };
        let round_seed = random.random();
        futures::join!(
            load.run_writers(address),
            keepers.run(address, round_seed),
            readers.run(address, round_seed),
            kill
        );
        println!(
            "round {round}: killed after {} statements and {} reads",
            keepers.n_done() - n_done,
            readers.n_read() - n_read
        );
        server = place.start_server();
        if random.random_bool(0.4) {
            // What goes on after a restart is met too.
            load.run_some(server.address(), 3).await;
            server.kill();
            server = place.start_server();
        }
        client = check_healed(&load, &keepers, &server, &mut random).await;
    }
    assert!(server.terminate().success());
}

/// Everything is as it should be, first as the restart has left it and then when all can be done again.
async fn check_healed(load: &Load, keepers: &Keepers, server: &Server, random: &mut StdRng) -> Client {
    let mut client = connect(server.address(), "test").await.unwrap();
    load.check_rows(&mut client).await;
    keepers.check_names(&mut client).await;
    check_nothing_over_is_shown(&mut client).await;
    for view in keepers.there().await {
        check_view(&mut client, &view).await;
    }
    settle(&mut client).await;
    // Of the views some each time.
    let there = keepers.there().await;
    let some: Vec<&String> = there.choose_multiple(random, 5).collect();
    for view in &some {
        check_all_can_be_done(&mut client, view, random).await;
    }
    settle(&mut client).await;
    check_nothing_over_is_shown(&mut client).await;
    for view in some {
        check_view(&mut client, view).await;
    }
    client
}

/// A view is its query at its cut and, read fresh, at any time.
async fn check_view(client: &mut Client, view: &str) {
    let state = state_of(client, view).await;
    assert_ne!(state, "faulted", "{view}");
    if ["unfilled", "filling"].contains(&state.as_str()) {
        return;
    }
    match client.rows(&format!("VERIFY MATERIALIZED VIEW {view}")).await {
        Ok(rows) => assert!(rows.is_empty(), "{view} differs from its query: {rows:?}"),
        Err(error) => panic!("{view}: {error}"),
    }
    client.must("SELECT count(*) FROM account").await;
    let at = client.one("SELECT @@tidemill_last_read_ts").await;
    client.must(&format!("SET tidemill_snapshot = '{at}'")).await;
    let query = query_at(client, view).await.unwrap().expect("the view is there");
    let stale = read_at(client, "stale", "auto", &format!("SELECT * FROM {view}")).await.unwrap();
    let stale = stale.unwrap_or_else(|error| panic!("stale read of {view}: {error}"));
    let cut = cut_of(client, view).await;
    let fresh = read_at(client, "fresh", "auto", &format!("SELECT * FROM {view}")).await.unwrap().unwrap();
    let live = read_at(client, "fresh", "auto", &query).await.unwrap().unwrap();
    assert_eq!(fresh, live, "fresh read of {view} at {at}");
    client.must(&format!("SET tidemill_snapshot = '{cut}'")).await;
    let live = read_at(client, "fresh", "auto", &query).await.unwrap().unwrap();
    assert_eq!(stale, live, "stale read of {view} at {at}, its cut is {cut}");
    client.must("SET tidemill_snapshot = ''").await;
}

async fn cut_of(client: &mut Client, view: &str) -> String {
    client.must("SET tidemill_read_mode = 'stale'").await;
    let text = client.must_rows(&format!("EXPLAIN SELECT * FROM {view}")).await.join("\n");
    let (_, after) = text.split_once("cut=").unwrap_or_else(|| panic!("EXPLAIN names no cut: {text}"));
    after.chars().take_while(char::is_ascii_digit).collect()
}

async fn state_of(client: &mut Client, view: &str) -> String {
    client.one(&format!("SELECT state FROM tidemill.views WHERE view_name = '{view}'")).await
}

/// System tables show views that are there, and as running only what runs.
async fn check_nothing_over_is_shown(client: &mut Client) {
    let shown = |rows: Vec<String>| rows.into_iter().collect::<BTreeSet<String>>();
    let all = shown(client.must_rows("SELECT view_name FROM tidemill.views").await);
    let refreshed = shown(client.must_rows("SELECT view_name FROM tidemill.refreshes").await);
    assert!(refreshed.is_subset(&all), "refreshes of {refreshed:?} among the views {all:?}");
    let running = client
        .must_rows("SELECT view_name FROM tidemill.maintenance WHERE state = 'running' AND kind = 'cluster'")
        .await;
    // A process that has just begun has tasks of what it found only.
    assert!(shown(running.clone()).is_subset(&all), "{running:?}");
    // A job may be about to learn that a view was swapped.
    let gone = "SELECT job_id FROM tidemill.jobs WHERE views LIKE '%#%'";
    until("jobs have only views that are there", async || client.must_rows(gone).await.is_empty()).await;
}

/// Waits until everything that goes on by itself is over.
async fn settle(client: &mut Client) {
    for (what, query) in [
        ("fills", "SELECT job_id FROM tidemill.jobs WHERE kind = 'fill'"),
        ("views to be filled", "SELECT view_name FROM tidemill.views WHERE state = 'filling'"),
        ("maintenance", "SELECT view_name FROM tidemill.maintenance WHERE state = 'running'"),
        ("refreshes", "SELECT view_name FROM tidemill.refreshes WHERE state = 'running'"),
    ] {
        until(what, async || client.must_rows(query).await.is_empty()).await;
    }
}

/// Whatever a view can be asked for it does now.
async fn check_all_can_be_done(client: &mut Client, view: &str, random: &mut StdRng) {
    if state_of(client, view).await == "suspended" {
        client.must(&format!("ALTER MATERIALIZED VIEW {view} RESUME")).await;
    }
    let (kind, mode) = names()
        .into_iter()
        .find(|(name, ..)| name == view)
        .map(|(_, kind, mode)| (kind, mode))
        .expect("every view has its place");
    if MODES[mode].0 != Mode::Continuous {
        let how = ["", " INCREMENTAL", " FULL"][random.random_range(0..3)];
        let unfilled = state_of(client, view).await == "unfilled";
        let how = if unfilled { "" } else { how };
        client.must(&format!("REFRESH MATERIALIZED VIEW {view}{how}")).await;
    }
    if let Some(column) = kind.cluster_by
        && random.random_bool(0.5)
    {
        client.must(&format!("ALTER MATERIALIZED VIEW {view} CLUSTER BY ({column})")).await;
        // A schedule may have the view built anew meanwhile.
        if MODES[mode].0 != Mode::Scheduled {
            client.must(&format!("ALTER MATERIALIZED VIEW {view} RECLUSTER FINAL")).await;
        }
        client.must(&format!("ALTER MATERIALIZED VIEW {view} CLUSTER BY NONE")).await;
    }
    if MODES[mode].0 != Mode::Scheduled {
        let answer = client.must_rows(&format!("OPTIMIZE TABLE {view}")).await;
        assert!(answer.iter().any(|row| row.contains("status | OK")), "{answer:?}");
    }
}
