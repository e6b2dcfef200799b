//! The `tidemill` binary: logging, the allocator, the runtime; everything else is in the library.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tidemill::cli::Cli;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of stack of each thread, for statements whose trees are deep; pages that are not touched cost
/// nothing.
const STACK_BYTES: usize = 256 << 20;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            // Nobody is left to tell if standard error is closed.
            let _told = writeln!(std::io::stderr(), "tidemill: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let known = [tidemill::fail_points(), vec![runtime::LOSES_ROWS]].concat();
    store::failpoints::setup_from_environment(&known)?;
    let cli = Cli::parse();
    let level = if cli.is_service() { "info,fjall=warn,lsm_tree=warn" } else { "error" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_stack_size(STACK_BYTES).build()?;
    runtime.block_on(Box::pin(cli.run()))
}
