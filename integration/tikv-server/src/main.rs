//! The test server as a process: prints where it listens, takes control lines, ends on SIGTERM.
//!
//! With a data directory it comes back after a kill with all that was acknowledged: data, locks of every
//! kind, regions, what keeps history; timestamps never go back. With ports of its own it is found again by
//! whoever knew it. It ends with an error if clients did what they must not.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tikv_server::{Cluster, Console, Options};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// A server that speaks TiKV's and PD's gRPC, for tests.
#[derive(Parser, Debug)]
#[command(name = "tikv-server", version)]
struct Arguments {
    /// How many stores there are.
    #[arg(long, default_value_t = 1)]
    stores: u64,
    /// How many regions there are at first.
    #[arg(long, default_value_t = 1)]
    regions: u16,
    /// How many members PD has.
    #[arg(long, default_value_t = 1)]
    members: u64,
    /// Where data is kept; in memory without it.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// PD's port, any free one if zero; further members have the ports behind it.
    #[arg(long, default_value_t = 0)]
    pd_port: u16,
    /// The first store's port, any free one if zero; further stores have the ports behind it.
    #[arg(long, default_value_t = 0)]
    store_port: u16,
    /// The port of the control lines, any free one if zero.
    #[arg(long, default_value_t = 0)]
    control_port: u16,
    /// How often resolved timestamps are sent, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    resolved_ms: u64,
    /// Decides which stores lead which regions at first.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let options = Options {
        n_stores: arguments.stores,
        n_regions: arguments.regions,
        n_members: arguments.members,
        data_dir: arguments.data_dir,
        pd_port: arguments.pd_port,
        store_port: arguments.store_port,
        min_ts_interval: Duration::from_millis(arguments.resolved_ms),
        seed: arguments.seed,
        ..Options::default()
    };
    let mut stop = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
    let listener = TcpListener::bind(("127.0.0.1", arguments.control_port)).await.context("control port")?;
    let control = listener.local_addr()?.to_string();
    let cluster = Arc::new(Cluster::start(options).await?);
    let stores = cluster.store_addresses();
    let endpoints = serde_json::json!({
        "pd": cluster.pd_endpoints(),
        "stores": stores.iter().map(|(_, address)| address).collect::<Vec<_>>(),
        "control": control,
        "cluster_id": cluster.cluster_id(),
    });
    let mut out = std::io::stdout();
    writeln!(out, "{endpoints}").context("printing the endpoints")?;
    out.flush().context("printing the endpoints")?;
    let console = Console::new(Arc::clone(&cluster));
    tokio::select! {
        _ = stop.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        () = console.serve(listener) => {}
    }
    Cluster::finish(&cluster).await
}
