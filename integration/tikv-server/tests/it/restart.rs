//! What was acknowledged comes back with the data directory: rows, locks of async commits, regions.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

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
        let mut child = Command::new(env!("CARGO_BIN_EXE_tikv-server"))
            .args(["--stores", "2", "--data-dir"])
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
