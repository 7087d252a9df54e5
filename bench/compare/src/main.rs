//! Command line of the comparison: `run` loads one system and appends a line to a file, `table` turns such a file
//! into Markdown. Starting and stopping the systems is the business of `scripts/bench-etcd`.

mod client;
mod grpc;
mod http1;
mod load;
mod table;

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use crate::client::System;
use crate::load::Plan;

#[derive(Parser)]
#[command(about)]
enum Command {
    /// Create absent keys for a while, each connection one after the other, and append what was measured.
    Run(Run),
    /// Print the medians of all runs of a file as Markdown.
    Table {
        /// What `run` wrote.
        results: PathBuf,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Which system, and over which protocol.
    #[arg(long)]
    system: System,
    /// Addresses for clients, separated by commas; connections are spread over them evenly.
    #[arg(long, value_delimiter = ',', required = true)]
    targets: Vec<SocketAddr>,
    /// Requests in flight: each has a connection of its own, unless `--streams` is given.
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// Requests in flight per connection; more than one for gRPC only.
    #[arg(long, default_value_t = 1)]
    streams: usize,
    /// Seconds of load before the measurement.
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Seconds of measurement.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// The bearer token, for Hapax.
    #[arg(long, default_value = "dev")]
    token: String,
    /// The file that gets one line.
    #[arg(long)]
    results: PathBuf,
    /// Prints the number of requests answered in all, warm-up included, to standard output.
    #[arg(long)]
    print_total: bool,
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Run(run) => execute(run),
        Command::Table { results } => {
            let text = std::fs::read_to_string(&results).with_context(|| results.display().to_string())?;
            print!("{}", table::markdown(&text)?);
            Ok(())
        }
    }
}

fn execute(run: Run) -> anyhow::Result<()> {
    anyhow::ensure!(
        run.connections > 0 && run.streams > 0 && run.connections.is_multiple_of(run.streams),
        "--streams must divide --connections"
    );
    let plan = Plan {
        system: run.system,
        targets: run.targets,
        in_flight: run.connections,
        streams: run.streams,
        warm_up: Duration::from_secs_f64(run.warm_up),
        measured: Duration::from_secs_f64(run.seconds),
        token: run.token,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(load::run(&plan))?;
    let mut file = OpenOptions::new().create(true).append(true).open(&run.results)?;
    writeln!(file, "{}", table::line(&plan, &report))?;
    if run.print_total {
        println!("{}", report.answered);
    }
    Ok(())
}
