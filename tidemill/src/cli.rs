//! The command line.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::shell::{self, Format, Script, Target};
use crate::{Cluster, Config, DEFAULT_LISTEN, TidbUrl, Tidemill, run_coordinator, run_worker};

/// Strongly consistent, incrementally maintained SQL views over a transactional store.
#[derive(Debug, Parser)]
#[command(name = "tidemill", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the server over a data directory or a TiKV cluster.
    Server(ServerArguments),
    /// Runs a coordinator of its own over a server's store.
    Coordinator(CoordinatorArguments),
    /// Takes a share of the work on the views of a server's jobs.
    Worker(WorkerArguments),
    /// A SQL shell over a server or a data directory.
    Sql(SqlArguments),
    /// Replays real days of flights and checks the views all the way.
    Demo(DemoArguments),
}

/// How a cluster is reached.
#[derive(Args, Debug)]
struct ClusterArguments {
    /// A TiKV cluster in place of a directory: addresses of its placement driver, host:port, separated by
    /// commas.
    #[arg(long, value_delimiter = ',')]
    pd: Vec<String>,
    /// The certificate authority of the cluster, in PEM.
    #[arg(long, requires = "pd")]
    ca: Option<PathBuf>,
    /// Our certificate for the cluster, in PEM.
    #[arg(long, requires = "pd")]
    cert: Option<PathBuf>,
    /// The key of our certificate, in PEM.
    #[arg(long, requires = "pd")]
    key: Option<PathBuf>,
}

impl ClusterArguments {
    /// What the configuration says of the cluster, with what was given.
    fn over(self, configured: Option<Cluster>) -> Option<Cluster> {
        if self.pd.is_empty() {
            return configured;
        }
        let mut cluster = configured.unwrap_or_else(|| Cluster::at(Vec::new()));
        cluster.pd = self.pd;
        cluster.ca = self.ca.or(cluster.ca);
        cluster.cert = self.cert.or(cluster.cert);
        cluster.key = self.key.or(cluster.key);
        Some(cluster)
    }
}

#[derive(Args, Debug)]
struct ServerArguments {
    /// Where the data lies; made if it is not there.
    #[arg(long, conflicts_with = "pd")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Moves the cluster's GC safe point: only where no TiDB does it.
    #[arg(long, requires = "pd")]
    drive_gc: bool,
    /// The TiDB of the cluster, mysql://user:password@host:port/: views are tables of it then.
    #[arg(long, env = "TIDEMILL_TIDB", hide_env_values = true, value_name = "URL")]
    tidb: Option<String>,
    /// Where MySQL clients connect [default: 127.0.0.1:4406].
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Where the store and the coordinator are offered over gRPC.
    #[arg(long)]
    grpc_listen: Option<SocketAddr>,
    /// Where /metrics and /healthz are served.
    #[arg(long)]
    http_listen: Option<SocketAddr>,
    /// A coordinator of its own, host:port; without it the server has one inside.
    #[arg(long)]
    coordinator: Option<String>,
    /// A configuration file.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Opens although the clock went back or acknowledged commits are missing.
    #[arg(long)]
    force: bool,
}

#[derive(Args, Debug)]
struct CoordinatorArguments {
    /// The server's gRPC address, host:port.
    #[arg(long)]
    store: String,
    /// Where workers connect.
    #[arg(long, default_value = "127.0.0.1:4407")]
    listen: SocketAddr,
}

#[derive(Args, Debug)]
struct WorkerArguments {
    /// The gRPC address of the server that has the data, host:port; or --pd for a TiKV cluster.
    #[arg(long, conflicts_with = "pd")]
    store: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// The gRPC address of the coordinator, host:port: of the server, or of one of its own.
    #[arg(long)]
    coordinator: Option<String>,
    /// A configuration file.
    #[arg(long)]
    config: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct SqlArguments {
    /// A data directory that no server has open.
    #[arg(long, conflicts_with_all = ["host", "port", "user", "password"])]
    data_dir: Option<PathBuf>,
    /// Makes the data directory if it is not there.
    #[arg(long, requires = "data_dir")]
    create: bool,
    /// The server's host.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The server's port.
    #[arg(long, default_value_t = 4406)]
    port: u16,
    /// Who logs in.
    #[arg(long, default_value = "root")]
    user: String,
    /// The password.
    #[arg(long, env = "TIDEMILL_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Runs these statements and ends.
    #[arg(short = 'e', long, value_name = "SQL", conflicts_with = "file")]
    execute: Option<String>,
    /// Runs the statements of a file and ends.
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How rows are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Args, Debug)]
struct DemoArguments {
    /// Keeps the data here; otherwise in a temporary directory that is removed.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Keeps the server up afterwards, to look around with a MySQL client.
    #[arg(long)]
    serve: bool,
    /// Where MySQL clients connect; a free port without --serve.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// How many of the three days are replayed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    days: u8,
}

impl Cli {
    /// Whether logs of everyday events are wanted.
    #[must_use]
    pub fn is_service(&self) -> bool {
        matches!(self.command, Command::Server(_) | Command::Coordinator(_) | Command::Worker(_))
    }

    /// Runs the command.
    ///
    /// # Errors
    /// What kept it from being run.
    pub async fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Server(arguments) => server(arguments).await,
            Command::Coordinator(arguments) => coordinator(arguments).await,
            Command::Worker(arguments) => worker(arguments).await,
            Command::Sql(arguments) => sql(arguments).await,
            Command::Demo(arguments) => demo(arguments).await,
        }
    }
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits for SIGTERM or SIGINT.
async fn told_to_stop() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("waiting for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("waiting for signals")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

fn default_listen() -> SocketAddr {
    DEFAULT_LISTEN.parse().expect("the default is an address")
}

async fn server(arguments: ServerArguments) -> Result<ExitCode> {
    let mut config = Config { data_dir: arguments.data_dir, ..Config::in_memory() };
    config.listen = Some(default_listen());
    if let Some(path) = &arguments.config {
        config = config.with_file(path)?;
    }
    config.cluster = arguments.cluster.over(config.cluster);
    if let Some(cluster) = &mut config.cluster {
        cluster.drives_gc |= arguments.drive_gc;
    }
    if let Some(tidb) = arguments.tidb {
        let cluster =
            config.cluster.as_mut().context("--tidb goes with --pd: views are tables of its TiDB")?;
        cluster.tidb = Some(TidbUrl::new(tidb));
    }
    if config.data_dir.is_none() && config.cluster.is_none() {
        anyhow::bail!("where is the data? give --data-dir, or --pd for a TiKV cluster");
    }
    config.force = arguments.force;
    config.listen = arguments.listen.or(config.listen);
    config.grpc_listen = arguments.grpc_listen.or(config.grpc_listen);
    config.http_listen = arguments.http_listen.or(config.http_listen);
    config.coordinator = arguments.coordinator.or(config.coordinator);
    // A coordinator that is not up yet may need the store first, so its address is said at once.
    let tidemill = tokio::select! {
        opened = Tidemill::open_announcing(config, |address| say(&format!("store is listening on {address}"))) => opened?,
        stopped = told_to_stop() => {
            stopped?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    if let Some(address) = tidemill.http_address() {
        say(&format!("http is listening on {address}"))?;
    }
    if let Some(address) = tidemill.mysql_address() {
        say(&format!("tidemill is listening on {address}"))?;
    }
    told_to_stop().await?;
    tracing::info!("shutting down");
    tidemill.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}

async fn coordinator(arguments: CoordinatorArguments) -> Result<ExitCode> {
    let ready = |address| say(&format!("coordinator is listening on {address}"));
    run_coordinator(&arguments.store, arguments.listen, ready, told_to_stop()).await?;
    Ok(ExitCode::SUCCESS)
}

async fn worker(arguments: WorkerArguments) -> Result<ExitCode> {
    let mut config = Config::in_memory();
    if let Some(path) = &arguments.config {
        config = config.with_file(path)?;
    }
    config.cluster = arguments.cluster.over(config.cluster);
    config.coordinator = arguments.coordinator.or(config.coordinator);
    let store = match (arguments.store, config.cluster.is_some()) {
        (Some(address), false) => Some(address),
        (None, true) => None,
        (None, false) => anyhow::bail!("where is the data? give --store, or --pd for a TiKV cluster"),
        (Some(_), true) => anyhow::bail!("a store and a cluster exclude each other"),
    };
    run_worker(config, store.as_deref(), say, told_to_stop()).await?;
    Ok(ExitCode::SUCCESS)
}

async fn sql(arguments: SqlArguments) -> Result<ExitCode> {
    let target = match arguments.data_dir {
        Some(path) => Target::Directory { path, create: arguments.create },
        None => Target::Server {
            host: arguments.host,
            port: arguments.port,
            user: arguments.user,
            password: arguments.password,
        },
    };
    let script = match (arguments.execute, arguments.file) {
        (Some(text), _) => Script::Text(text),
        (None, Some(path)) => Script::File(path),
        (None, None) => Script::Standard,
    };
    let all_well = shell::run(target, script, arguments.format).await?;
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn demo(arguments: DemoArguments) -> Result<ExitCode> {
    let (path, is_temporary) = match arguments.data_dir {
        Some(path) => (path, false),
        None => (std::env::temp_dir().join(format!("tidemill-demo-{}", std::process::id())), true),
    };
    let mut config = Config::in_directory(&path);
    let free: SocketAddr = "127.0.0.1:0".parse()?;
    config.listen = Some(arguments.listen.unwrap_or(if arguments.serve { default_listen() } else { free }));
    let tidemill = Tidemill::open(config).await?;
    let address = tidemill.mysql_address().context("the server listens")?;
    let mut said = Ok(());
    let outcome = crate::demo::run(address, arguments.days, |line| {
        if let Err(error) = say(&line) {
            said = Err(error);
        }
    })
    .await;
    if arguments.serve && outcome.is_ok() {
        say(&format!(
            "\ntidemill is listening on {address}; try: mysql -h {} -P {} -u root flights",
            address.ip(),
            address.port()
        ))?;
        say("Ctrl-C ends it.")?;
        told_to_stop().await?;
    }
    tidemill.shutdown().await?;
    if is_temporary {
        std::fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    said?;
    outcome.map(|()| ExitCode::SUCCESS)
}
