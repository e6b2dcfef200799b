//! A server and a coordinator as processes of their own, over one data directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use integration::{Server, ServerOptions, connect, free_port};

use super::load::Load;

/// Small pieces and frequent sweeps, so that every step comes by within a test.
const CONFIG: &str = "[runtime]\nrows_per_piece_max = 1000\nsweep_interval_ms = 300\n";

/// Where the processes find their data and each other.
pub(super) struct Place {
    folder: tempfile::TempDir,
    store: String,
    /// Where the server looks for a coordinator; without it the server has one inside.
    coordinator: Option<String>,
}

impl Place {
    /// One process for everything.
    pub(super) fn of_one_process() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tidemill.toml"), CONFIG).unwrap();
        Place { folder, store: format!("127.0.0.1:{}", free_port()), coordinator: None }
    }

    /// A server, and a coordinator where the server looks for it.
    pub(super) fn of_two_processes() -> Place {
        let coordinator = Some(format!("127.0.0.1:{}", free_port()));
        Place { coordinator, ..Place::of_one_process() }
    }

    /// A server that looks for its coordinator at an address.
    pub(super) fn with_coordinator_at(address: String) -> Place {
        Place { coordinator: Some(address), ..Place::of_one_process() }
    }

    /// Whether the coordinator is a process of its own.
    pub(super) fn is_of_two(&self) -> bool {
        self.coordinator.is_some()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Starts a server with fail points; it may die before it is ready.
    pub(super) fn begin_server(&self, fail_points: &str) -> Server {
        let config = self.path("tidemill.toml");
        let mut arguments = vec!["--config", utf8(&config), "--grpc-listen", &self.store];
        if let Some(coordinator) = &self.coordinator {
            arguments.extend(["--coordinator", coordinator]);
        }
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        Server::begin(&self.data(), &ServerOptions { arguments, environment: environment(fail_points) })
    }

    /// Starts a server and waits until it is ready.
    pub(super) fn start_server(&self) -> Server {
        let mut server = self.begin_server("");
        if !server.get_ready() {
            panic!("the server died at its start: {}", server.output().join("\n"));
        }
        server
    }

    /// Starts the coordinator that the server looks for.
    pub(super) fn start_coordinator(&self, fail_points: &str) -> Server {
        let coordinator = self.coordinator.as_ref().expect("the coordinator is a process of its own");
        self.start_coordinator_at(coordinator, fail_points)
    }

    /// Starts a worker beside the server, which has the coordinator inside or apart.
    pub(super) fn start_worker(&self, fail_points: &str) -> Server {
        let config = self.path("tidemill.toml");
        let coordinator = self.coordinator.as_ref().unwrap_or(&self.store);
        let arguments =
            ["worker", "--config", utf8(&config), "--store", &self.store, "--coordinator", coordinator];
        let mut worker = Server::spawn(&arguments, &environment(fail_points));
        if worker.wait_line("worker offers itself to ").is_none() {
            panic!("the worker died at its start: {}", worker.output().join("\n"));
        }
        worker
    }

    /// Starts a coordinator elsewhere.
    pub(super) fn start_coordinator_at(&self, address: &str, fail_points: &str) -> Server {
        let arguments = ["coordinator", "--store", &self.store, "--listen", address];
        Server::run(&arguments, &environment(fail_points), "coordinator is listening on ")
    }
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn environment(fail_points: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("FAILPOINTS".to_owned(), fail_points.to_owned())])
}

/// Makes the tables and the views that are there all the time.
pub(super) async fn prepare(load: &Load, server: &Server) {
    let mut client = connect(server.address(), "test").await.unwrap();
    load.prepare(&mut client).await;
    load.create_views(&mut client).await;
}

/// A server that has come back serves: writers and view makers get on, and everything is as it should be.
pub(super) async fn check_healed(load: &Load, server: &Server) {
    let get_on = async {
        load.written(10).await;
        load.stop();
    };
    futures::join!(load.run(server.address()), get_on);
    load.check(server.address()).await;
}
