//! SIGKILL of the process that runs the jobs of a cluster, at any moment under load.
//!
//! The cluster is the test server as a process of its own. Of two processes over it the one with the lease
//! is killed; the other goes on answering, takes the jobs over, and has them while the first one is back.

use std::collections::BTreeMap;
use std::path::Path;

use integration::{Binary, Server, connect, free_port, seed, soak, until};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::load::Load;
use super::processes::{check_healed, prepare};

/// A cluster of three stores that keeps its data.
fn start_cluster(folder: &Path, pd: u16) -> Server {
    let (data, pd) = (folder.join("cluster"), pd.to_string());
    let data = data.to_str().expect("a path in UTF-8");
    let arguments =
        ["--stores", "3", "--regions", "16", "--resolved-ms", "50", "--pd-port", &pd, "--data-dir", data];
    let mut cluster = Server::spawn_binary(&Binary::named("tikv-server"), &arguments, &BTreeMap::new());
    assert!(cluster.wait_line("\"pd\"").is_some(), "the cluster starts: {:?}", cluster.output());
    cluster
}

/// A process of Tidemill over the cluster.
fn start_server(folder: &Path, pd: u16) -> Server {
    let config = folder.join("tidemill.toml");
    let text = format!(
        "[cluster]\npd = ['127.0.0.1:{pd}']\nlease_ms = 1500\n\n[runtime]\nrows_per_piece_max = 1000\nsweep_interval_ms = 300\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().expect("a path in UTF-8");
    let arguments = ["server", "--config", config, "--listen", "127.0.0.1:0"];
    Server::run(&arguments, &BTreeMap::new(), "tidemill is listening on ")
}

/// Whether a process has the lease of the jobs.
async fn runs_jobs(server: &Server) -> bool {
    let mut client = connect(server.address(), "test").await.unwrap();
    client.must_rows("SELECT is_here FROM tidemill.lease").await == ["yes"]
}

#[tokio::test]
async fn the_process_with_the_jobs_killed_at_any_moment_is_replaced_and_nothing_is_lost() {
    let mut random = StdRng::seed_from_u64(seed("kills over a cluster"));
    let folder = tempfile::tempdir().unwrap();
    let pd = free_port();
    let cluster = start_cluster(folder.path(), pd);
    let load = Load::default();
    let mut servers = [start_server(folder.path(), pd), start_server(folder.path(), pd)];
    prepare(&load, &servers[0]).await;
    for _ in 0..(if soak() { 40 } else { 2 }) {
        until("a process has the jobs", async || {
            runs_jobs(&servers[0]).await || runs_jobs(&servers[1]).await
        })
        .await;
        let [first, second] = servers;
        let (doomed, living) = if runs_jobs(&first).await { (first, second) } else { (second, first) };
        let n_transactions = random.random_range(20..120);
        let (at_doomed, at_living) = (doomed.address(), living.address());
        let kill = async {
            load.written(n_transactions).await;
            doomed.kill();
            // The other answers all the while.
            load.written(20).await;
            load.stop();
        };
        futures::join!(load.run(at_doomed), load.run_writers(at_living), kill);
        until("the other takes the jobs over", async || runs_jobs(&living).await).await;
        check_healed(&load, &living).await;
        let next = start_server(folder.path(), pd);
        load.check(next.address()).await;
        servers = [living, next];
    }
    for server in servers {
        assert!(server.terminate().success());
    }
    assert!(cluster.terminate().success(), "the cluster was sent nothing that would have ended a real store");
}
