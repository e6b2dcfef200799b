//! Configuration: what a caller of the library sets, and the file that sets it for the binary.
//!
//! The file is TOML; a name it does not know is an error, so that a typing error never means a default.
//! The command line wins over the file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use runtime::RuntimeOptions;
use serde::Deserialize;
use types::{Error, Result};

use crate::tidb_sql::TidbUrl;

/// Where MySQL clients connect by default.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:4406";

/// How an instance runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; `None` keeps everything in memory.
    pub data_dir: Option<PathBuf>,
    /// A TiKV cluster as the store, in place of a directory or of memory.
    pub cluster: Option<Cluster>,
    /// Opens the directory although the clock went back or acknowledged commits are missing.
    pub force: bool,
    /// Where MySQL clients connect; `None` for no server.
    pub listen: Option<SocketAddr>,
    /// Where the store and the coordinator (for processes of their own) are offered over gRPC.
    pub grpc_listen: Option<SocketAddr>,
    /// Where `/metrics` and `/healthz` are served.
    pub http_listen: Option<SocketAddr>,
    /// A coordinator of its own, `host:port`; `None` runs it in this process.
    pub coordinator: Option<String>,
    /// The most MySQL connections at a time.
    pub connections_max: usize,
    /// The largest packet of a MySQL client.
    pub max_allowed_packet: u32,
    /// Users and their passwords; without any, `root` needs none from loopback and others cannot enter.
    pub users: BTreeMap<String, String>,
    /// How jobs run.
    pub runtime: RuntimeOptions,
    /// How queries run.
    pub query: query::Options,
}

/// A TiKV cluster, and what this process is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Addresses of the placement driver, `host:port`.
    pub pd: Vec<String>,
    /// The certificate of the authority that signed the cluster's, in PEM; without it nothing is encrypted.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key, where the cluster asks for them.
    pub cert: Option<PathBuf>,
    /// See `cert`.
    pub key: Option<PathBuf>,
    /// Whether Tidemill moves the cluster's GC safe point: only where no TiDB does it.
    pub drives_gc: bool,
    /// The TiDB of the cluster: with it views are tables of TiDB.
    pub tidb: Option<TidbUrl>,
    /// What this process is called beside others; its host and process id by default.
    pub name: Option<String>,
    /// After so long without a sign of life of the process that runs the jobs, another takes over.
    pub lease_ms: u64,
}

impl Cluster {
    /// The lease's usual life time: takes over within seconds, and is not lost to a slow commit.
    pub const LEASE_MS: u64 = 5_000;

    /// A cluster at these addresses.
    #[must_use]
    pub fn at(pd: Vec<String>) -> Cluster {
        Cluster { pd, lease_ms: Cluster::LEASE_MS, ..Cluster::default() }
    }

    fn validate(&self) -> Result<()> {
        if !cfg!(feature = "tikv") {
            return Err(Error::invalid("this build has no TiKV: it was made without the feature tikv"));
        }
        if self.pd.is_empty() || self.pd.iter().any(String::is_empty) {
            return Err(Error::invalid("setting pd needs addresses: host:port, separated by commas"));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(Error::invalid("settings cert and key go together"));
        }
        if self.cert.is_some() && self.ca.is_none() {
            return Err(Error::invalid("setting cert needs ca: without it nothing is encrypted"));
        }
        self.tidb.as_ref().map_or(Ok(()), TidbUrl::validate)?;
        Ok(())
    }
}

impl Config {
    /// Everything in memory, nothing listens.
    #[must_use]
    pub fn in_memory() -> Config {
        Config {
            data_dir: None,
            cluster: None,
            force: false,
            listen: None,
            grpc_listen: None,
            http_listen: None,
            coordinator: None,
            connections_max: 1000,
            max_allowed_packet: 64 << 20,
            users: BTreeMap::new(),
            runtime: RuntimeOptions::default(),
            query: query::Options::default(),
        }
    }

    /// A data directory, nothing listens.
    #[must_use]
    pub fn in_directory(path: impl Into<PathBuf>) -> Config {
        Config { data_dir: Some(path.into()), ..Config::in_memory() }
    }

    /// A TiKV cluster, nothing listens.
    #[must_use]
    pub fn on_cluster(cluster: Cluster) -> Config {
        Config { cluster: Some(cluster), ..Config::in_memory() }
    }

    /// Reads a configuration file over these settings.
    ///
    /// # Errors
    /// `Invalid` if the file cannot be read, or has a name or a value that is not known.
    pub fn with_file(mut self, path: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::invalid(format!("configuration {}: {error}", path.display())))?;
        let file: File = toml::from_str(&text).map_err(|error| {
            // Without the line itself: it may hold a password.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.lines().count().max(1);
            let what = error.message();
            Error::invalid(format!("configuration {}, near line {line}: {what}", path.display()))
        })?;
        file.apply(&mut self);
        Ok(self)
    }

    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// `Invalid`, naming the setting.
    pub fn validate(&self) -> Result<()> {
        self.runtime.validate()?;
        if let Some(cluster) = &self.cluster {
            cluster.validate()?;
            if self.data_dir.is_some() {
                return Err(Error::invalid("a data directory and a cluster exclude each other"));
            }
        }
        if let Some(listen) = self.listen.filter(|address| !address.ip().is_loopback()) {
            if self.users.is_empty() {
                return Err(Error::invalid(format!(
                    "listening on {listen} needs authentication: configure [users], or listen on 127.0.0.1"
                )));
            }
            if let Some((user, _)) = self.users.iter().find(|(_, password)| password.is_empty()) {
                return Err(Error::invalid(format!(
                    "listening on {listen}: user \"{user}\" has no password"
                )));
            }
        }
        if let Some(listen) = self.grpc_listen.filter(|address| !address.ip().is_loopback()) {
            return Err(Error::invalid(format!(
                "listening for gRPC on {listen} is refused: it has no authentication, use 127.0.0.1"
            )));
        }
        if self.connections_max == 0 {
            return Err(Error::invalid("setting connections_max must be above 0"));
        }
        if !(1024..=1 << 30).contains(&self.max_allowed_packet) {
            return Err(Error::invalid("setting max_allowed_packet must be between 1024 and 1073741824"));
        }
        Ok(())
    }
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    listen: Option<SocketAddr>,
    grpc_listen: Option<SocketAddr>,
    http_listen: Option<SocketAddr>,
    coordinator: Option<String>,
    connections_max: Option<usize>,
    max_allowed_packet: Option<u32>,
    cluster: Option<ClusterFile>,
    users: BTreeMap<String, String>,
    runtime: RuntimeFile,
    query: QueryFile,
}

/// Its part `[cluster]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ClusterFile {
    pd: Vec<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    drives_gc: bool,
    tidb: Option<TidbUrl>,
    name: Option<String>,
    lease_ms: Option<u64>,
}

impl From<ClusterFile> for Cluster {
    fn from(file: ClusterFile) -> Cluster {
        let ClusterFile { pd, ca, cert, key, drives_gc, tidb, name, lease_ms } = file;
        let lease_ms = lease_ms.unwrap_or(Cluster::LEASE_MS);
        Cluster { pd, ca, cert, key, drives_gc, tidb, name, lease_ms }
    }
}

/// Its part `[runtime]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RuntimeFile {
    parallelism: Option<usize>,
    epoch_interval_ms: Option<u64>,
    idle_interval_ms: Option<u64>,
    memory_limit_bytes: Option<usize>,
    rows_per_piece_max: Option<usize>,
    history_life_time_ms: Option<u64>,
    history_limit_ms: Option<u64>,
    sweep_interval_ms: Option<u64>,
    compact_at_percent: Option<u64>,
    compact_bytes_min: Option<u64>,
}

/// Its part `[query]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct QueryFile {
    batch_rows: Option<usize>,
    hybrid_changes_max: Option<usize>,
    autocommit_attempts: Option<u32>,
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

impl File {
    fn apply(self, config: &mut Config) {
        set(&mut config.listen, self.listen.map(Some));
        set(&mut config.grpc_listen, self.grpc_listen.map(Some));
        set(&mut config.http_listen, self.http_listen.map(Some));
        set(&mut config.coordinator, self.coordinator.map(Some));
        set(&mut config.connections_max, self.connections_max);
        set(&mut config.max_allowed_packet, self.max_allowed_packet);
        set(&mut config.cluster, self.cluster.map(|cluster| Some(cluster.into())));
        config.users.extend(self.users);
        let (from, to) = (self.runtime, &mut config.runtime);
        // One number for both: a read fix runs the same dataflow as a job.
        set(&mut config.query.parallelism, from.parallelism);
        set(&mut to.parallelism, from.parallelism);
        set(&mut to.epoch_interval_ms, from.epoch_interval_ms);
        set(&mut to.idle_interval_ms, from.idle_interval_ms);
        set(&mut to.memory_limit_bytes, from.memory_limit_bytes);
        set(&mut to.rows_per_piece_max, from.rows_per_piece_max);
        set(&mut to.history_life_time_ms, from.history_life_time_ms);
        set(&mut to.history_limit_ms, from.history_limit_ms);
        set(&mut to.sweep_interval_ms, from.sweep_interval_ms);
        set(&mut to.compact_at_percent, from.compact_at_percent);
        set(&mut to.compact_bytes_min, from.compact_bytes_min);
        set(&mut config.query.batch_rows, self.query.batch_rows);
        set(&mut config.query.hybrid_changes_max, self.query.hybrid_changes_max);
        set(&mut config.query.autocommit_attempts, self.query.autocommit_attempts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tidemill.toml");
        std::fs::write(&path, text).unwrap();
        Config::in_memory().with_file(&path)
    }

    #[test]
    fn a_file_sets_what_it_names() {
        let config = from_text(
            "listen = '127.0.0.1:1'\nconnections_max = 5\n[users]\nann = 'pw'\n[runtime]\nparallelism = 7\n",
        )
        .unwrap();
        assert_eq!(config.listen, Some("127.0.0.1:1".parse().unwrap()));
        assert_eq!((config.connections_max, config.runtime.parallelism), (5, 7));
        assert_eq!(config.query.parallelism, 7);
        assert_eq!(config.users["ann"], "pw");
        assert_eq!(config.runtime.epoch_interval_ms, RuntimeOptions::default().epoch_interval_ms);
        config.validate().unwrap();
    }

    #[test]
    fn unknown_names_and_wrong_values_are_refused() {
        for text in ["listem = '127.0.0.1:1'", "[runtime]\nparalelism = 2", "listen = 5", "listen = 'x'"] {
            assert!(from_text(text).unwrap_err().message().contains("tidemill.toml"), "{text}");
        }
        assert!(from_text("connections_max = 0").unwrap().validate().is_err());
        assert!(from_text("[runtime]\nparallelism = 0").unwrap().validate().is_err());
    }

    #[test]
    fn a_cluster_is_complete_or_refused() {
        let cluster = |text: &str| from_text(text).unwrap();
        let config = cluster("[cluster]\npd = ['a:1', 'b:2']\nca = 'x'");
        config.validate().unwrap();
        let known = config.cluster.unwrap();
        assert_eq!((known.pd.len(), known.lease_ms), (2, Cluster::LEASE_MS));
        let tidb = "[cluster]\npd = ['a:1']\ntidb = ";
        let known = cluster(&format!("{tidb}'mysql://a:secret@b:4000/'"));
        known.validate().unwrap();
        assert!(!format!("{known:?}").contains("secret"));
        let wrong = cluster(&format!("{tidb}'a:secret@b'")).validate().unwrap_err();
        let broken = from_text(&format!("{tidb}'mysql://a:secret@b")).unwrap_err();
        assert!(!wrong.message().contains("secret") && !broken.message().contains("secret"), "{broken}");
        for text in ["[cluster]", "[cluster]\npd = ['']", "[cluster]\npd = ['a:1']\ncert = 'x'"] {
            assert!(cluster(text).validate().is_err(), "{text}");
        }
        let both =
            Config { data_dir: Some("data".into()), ..Config::on_cluster(Cluster::at(vec!["a:1".into()])) };
        assert!(both.validate().is_err());
    }

    #[test]
    fn listening_to_everybody_needs_users_with_passwords() {
        let open = "listen = '0.0.0.0:4406'\n";
        assert!(from_text(open).unwrap().validate().is_err());
        assert!(from_text(&format!("{open}[users]\nroot = ''")).unwrap().validate().is_err());
        assert!(from_text(&format!("{open}[users]\nroot = 'x'")).unwrap().validate().is_ok());
        assert!(from_text("grpc_listen = '0.0.0.0:1'").unwrap().validate().is_err());
    }
}
