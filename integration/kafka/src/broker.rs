//! A broker: formatted, started, killed, started again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::jars::jars;
use crate::ports::free_port;
use crate::process::Java;

/// What the broker says last when it is ready.
const READY: &str = "Kafka Server started";

/// The cluster's id; any 16 bytes that are not all zero, in base64.
const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

/// How often a start is tried with other ports.
const ATTEMPTS: usize = 3;

/// What a broker is told beside what a broker of a test needs.
#[derive(Clone, Debug, Default)]
pub struct BrokerOptions {
    /// Properties of the server, over those that it has already.
    pub properties: BTreeMap<String, String>,
}

/// A running broker, with its controller in the same process.
pub struct Broker {
    // Before the files: it must have ended when they go.
    java: Java,
    jars: PathBuf,
    files: TempDir,
    port: u16,
}

impl Broker {
    /// Formats a new directory, starts a broker on it and waits until it is ready.
    ///
    /// # Panics
    /// If Java or the jars are missing or it does not start; its output says why.
    #[must_use]
    pub fn start(options: &BrokerOptions) -> Broker {
        let jars = jars();
        for _ in 0..ATTEMPTS {
            let files = tempfile::tempdir().expect("a temporary folder");
            let port = free_port();
            write_configuration(&files, port, free_port(), options);
            format(&jars, &files);
            let mut java = run(&jars, &files);
            if java.wait_line(READY).is_some() {
                return Broker { java, jars, files, port };
            }
            // Somebody may have taken a port in between; anything else is the same again.
            assert!(java.output().contains("Address already in use"), "no start: {}", java.output());
        }
        panic!("the broker found its ports taken {ATTEMPTS} times");
    }

    /// Where clients find it.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.java.id()
    }

    /// Kills it with SIGKILL and waits until it is gone; its files and ports stay its own.
    ///
    /// # Panics
    /// If it had ended before.
    pub fn kill(&mut self) {
        self.java.signal("-KILL");
        self.java.wait_end();
    }

    /// Asks it to end with SIGTERM and waits until it has.
    ///
    /// # Panics
    /// If it had ended before.
    pub fn stop(&mut self) {
        self.java.signal("-TERM");
        self.java.wait_end();
    }

    /// Stops it for a while, as if its machine were away; [`Broker::thaw`] ends that.
    pub fn freeze(&self) {
        self.java.signal("-STOP");
    }

    /// Lets it go on after [`Broker::freeze`].
    pub fn thaw(&self) {
        self.java.signal("-CONT");
    }

    /// Starts it again where it was killed or stopped, on the same files and ports.
    ///
    /// # Panics
    /// If it does not start.
    pub fn resume(&mut self) {
        let mut java = run(&self.jars, &self.files);
        let is_ready = java.wait_line(READY).is_some();
        assert!(is_ready, "the broker did not start again: {}", java.output());
        self.java = java;
    }
}

fn run(jars: &std::path::Path, files: &TempDir) -> Java {
    let properties = files.path().join("server.properties");
    let properties = properties.to_str().expect("a path in UTF-8");
    Java::spawn(jars, &files.path().join("log4j2.properties"), &["kafka.Kafka", properties])
}

fn format(jars: &std::path::Path, files: &TempDir) {
    let properties = files.path().join("server.properties");
    let properties = properties.to_str().expect("a path in UTF-8");
    let arguments = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties];
    let mut java = Java::spawn(jars, &files.path().join("log4j2.properties"), &arguments);
    let code = java.wait_end();
    assert!(code == 0, "the broker's directory could not be formatted: {}", java.output());
}

fn write_configuration(files: &TempDir, port: u16, controller_port: u16, options: &BrokerOptions) {
    let broker = format!("PLAINTEXT://127.0.0.1:{port}");
    let data = files.path().join("data");
    let mut properties: BTreeMap<&str, String> = [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
        ("inter.broker.listener.name", "PLAINTEXT"),
        ("controller.listener.names", "CONTROLLER"),
        ("auto.create.topics.enable", "false"),
        ("offsets.topic.replication.factor", "1"),
        ("offsets.topic.num.partitions", "2"),
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("transaction.state.log.num.partitions", "2"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("num.network.threads", "2"),
        ("num.io.threads", "2"),
        // Limits that a test meets in its own time.
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500"),
        ("broker.session.timeout.ms", "2000"),
        ("broker.heartbeat.interval.ms", "200"),
        ("log.retention.check.interval.ms", "1000"),
    ]
    .into_iter()
    .map(|(name, value)| (name, value.to_owned()))
    .collect();
    properties.insert("listeners", format!("{broker},CONTROLLER://127.0.0.1:{controller_port}"));
    properties.insert("advertised.listeners", broker);
    properties.insert("controller.quorum.voters", format!("1@127.0.0.1:{controller_port}"));
    properties.insert("log.dirs", data.display().to_string());
    properties.extend(options.properties.iter().map(|(name, value)| (name.as_str(), value.clone())));
    let mut text = String::new();
    for (name, value) in properties {
        writeln!(text, "{name}={value}").expect("a text can be written to");
    }
    fs::write(files.path().join("server.properties"), text).expect("a file in a folder just made");
    let log = "status=error\nappender.console.type=Console\nappender.console.name=console\n\
               appender.console.layout.type=PatternLayout\nappender.console.layout.pattern=%p %c: %m%n\n\
               rootLogger.level=info\nrootLogger.appenderRef.console.ref=console\n";
    fs::write(files.path().join("log4j2.properties"), log).expect("a file in a folder just made");
}
