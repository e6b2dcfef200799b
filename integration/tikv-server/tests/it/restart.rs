//! What was acknowledged comes back with the data directory: rows, locks of async commits, regions, what
//! keeps history; and under the same ports, for clients that stay.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use store::{Mutation, ReadContext, Store};
use tikv::TikvStore;
use tikv::proto::kvrpcpb as kv;
use tikv_server::{Cluster, Options, Protocol, Stop};

use crate::raw::{connect, context, region};

#[tokio::test]
async fn locks_of_async_commits_and_regions_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { n_stores: 2, data_dir: Some(directory.path().to_owned()), ..Options::default() };
    let cluster = Cluster::start(options.clone()).await.unwrap();
    cluster.write(&[(b"a".to_vec(), Some(b"a0".to_vec()))]).await.unwrap();
    cluster.split_at(b"m").await.unwrap();
    let writes = [(b"b".to_vec(), Some(b"b1".to_vec())), (b"n".to_vec(), Some(b"n1".to_vec()))];
    let left = cluster.leave(Protocol::AsyncCommit, Stop::Prewritten, 100, &writes).await.unwrap();
    let metas = |regions: Vec<tikv_server::RegionState>| {
        regions.into_iter().map(|region| region.meta).collect::<Vec<_>>()
    };
    let before = metas(cluster.regions().await);
    cluster.shutdown().await.unwrap();

    let cluster = Cluster::start(options).await.unwrap();
    assert_eq!(metas(cluster.regions().await), before);
    let now = cluster.timestamp().await.unwrap();
    assert!(now > left.commit_ts.unwrap());
    let home = region(&cluster, "b").await;
    let mut client = connect(&cluster, home.leader.unwrap()).await;
    assert_eq!(client.get(&home, "a", now).await.value.as_ref(), b"a0");
    let lock = client.get(&home, "b", now).await.error.unwrap().locked.unwrap();
    assert!(lock.use_async_commit);
    assert_eq!(lock.secondaries, ["n"]);
    let status = kv::CheckTxnStatusRequest {
        context: context(&home),
        primary_key: "b".into(),
        lock_ts: left.start_ts,
        current_ts: u64::MAX,
        ..Default::default()
    };
    let status = client.kv.kv_check_txn_status(status).await.unwrap().into_inner();
    assert!(status.lock_ttl > 0, "an async commit is not decided by its primary");
    cluster.shutdown().await.unwrap();
}

/// A server of its own process, killed if the test ends early.
struct Process {
    child: std::process::Child,
    control: TcpStream,
}

impl Process {
    fn start(directory: &std::path::Path) -> Process {
        Process::start_at(directory, 0, 0)
    }

    /// PD at a port, the two stores at a port and the next one.
    fn start_at(directory: &std::path::Path, port: u16, store_port: u16) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tikv-server"))
            .args(["--stores", "2", "--pd-port", &port.to_string()])
            .args(["--store-port", &store_port.to_string(), "--data-dir"])
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let endpoints: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(endpoints["stores"].as_array().unwrap().len(), 2);
        let control = TcpStream::connect(endpoints["control"].as_str().unwrap()).unwrap();
        Process { child, control }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.control, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(&self.control).read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

/// The first of five free ports, below those that the kernel gives to connections.
fn free_ports() -> u16 {
    let begin = 10_000 + u16::try_from(std::process::id() % 9_000).unwrap();
    let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let five = |port: &u16| (*port..port + 5).all(is_free);
    (begin..begin + 1_000).step_by(5).find(five).expect("five free ports")
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_killed_process_comes_back_with_what_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = Process::start(directory.path());
    assert!(process.ask("write 2pc 61=6130 7a=7a30").starts_with("ok "));
    assert!(process.ask("split 6d").starts_with("ok"));
    assert!(process.ask("leave 2pc committed 100 61=6131 7a=7a31").starts_with("ok "));
    assert!(process.ask("split 6d").starts_with("error"));
    let before = process.ask("regions");
    process.child.kill().unwrap();
    process.child.wait().unwrap();

    let mut process = Process::start(directory.path());
    assert_eq!(process.ask("regions"), before);
    // The lock that was left is in the way of this, and its primary has committed.
    assert!(process.ask("write 1pc 7a=7a32").starts_with("ok "));
    assert_eq!(process.ask("violations"), "ok []");
}

#[tokio::test]
async fn clients_of_a_killed_process_go_on_with_the_one_that_follows_it() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_ports();
    let mut process = Process::start_at(directory.path(), port, port + 1);
    let client = TikvStore::connect(tikv::Options::new(vec![format!("127.0.0.1:{port}")])).await.unwrap();
    let start_ts = client.timestamp().await.unwrap();
    let committed = client.commit_transaction(start_ts, vec![Mutation::put("k", "v")]).await.unwrap();
    client.hold("view", committed).await.unwrap();
    let collected = process.ask(&format!("collect {}", committed.0));
    let barriers = process.ask("barriers");
    assert!(barriers.contains("tidemill/view"), "{barriers}");
    let newest = client.timestamp().await.unwrap();
    process.child.kill().unwrap();
    process.child.wait().unwrap();

    let mut process = Process::start_at(directory.path(), port, port + 1);
    assert_eq!(process.ask("barriers"), barriers);
    let now = client.timestamp().await.unwrap();
    assert!(now > newest, "{now} comes after {newest}");
    let value = client.kv_get(b"k", &ReadContext::at(now)).await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
    assert_eq!(client.gc_barrier().await.unwrap(), committed);
    assert_eq!(process.ask("collect 1"), collected, "the safe point does not go back");
    client.release("view").await.unwrap();
    process.child.kill().unwrap();
    process.child.wait().unwrap();

    // The same stores under other addresses.
    let mut process = Process::start_at(directory.path(), port, port + 3);
    let now = client.timestamp().await.unwrap();
    let value = client.kv_get(b"k", &ReadContext::at(now)).await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
    client.close().await.unwrap();
    assert_eq!(process.ask("violations"), "ok []");
}
