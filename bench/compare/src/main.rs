//! Command line of the measurements: `run` loads one system and appends a line to a results file, `render` turns such a
//! file into a section of a document, `proxy` puts distance between nodes. Starting and stopping the systems is the
//! business of `scripts/bench-peers` and `scripts/bench-wan`.

mod client;
mod grpc;
mod hapax;
mod http1;
mod load;
mod postgres;
mod proxy;
mod report;
mod results;

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use crate::client::System;
use crate::load::Plan;
use crate::report::Section;
use crate::results::Results;

#[derive(Parser)]
#[command(about)]
enum Command {
    /// Send requests for a while, each connection one after the other, and append what was measured.
    Run(Run),
    /// Print a section as Markdown, or put it into a document between its markers.
    Render {
        /// Which section.
        section: Section,
        /// The results file.
        results: PathBuf,
        /// The document; without it the section goes to standard output.
        #[arg(long)]
        into: Option<PathBuf>,
    },
    /// Carry TCP connections with a delay, until it is stopped.
    Proxy {
        /// Where to accept connections.
        #[arg(long)]
        listen: SocketAddr,
        /// Where to carry them.
        #[arg(long)]
        to: SocketAddr,
        /// Milliseconds each way.
        #[arg(long)]
        delay_ms: f64,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Which system, over which protocol, and what is asked of it.
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
    /// What distinguishes this run from others of the same system and load; runs of one case are rounds.
    #[arg(long, default_value = "")]
    case: String,
    /// The file that gets one line.
    #[arg(long)]
    results: PathBuf,
    /// Prints to standard output how many keys were created and how many receipts and states given, warm-up included.
    #[arg(long)]
    print_total: bool,
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Run(run) => execute(run),
        Command::Render { section, results, into } => render(section, &results, into.as_deref()),
        Command::Proxy { listen, to, delay_ms } => {
            let listener = TcpListener::bind(listen).with_context(|| listen.to_string())?;
            proxy::serve(&listener, to, Duration::from_secs_f64(delay_ms / 1000.0))
        }
    }
}

fn render(section: Section, results: &Path, into: Option<&Path>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(results).with_context(|| results.display().to_string())?;
    let markdown = section.markdown(&Results::parse(&text)?)?;
    let Some(path) = into else {
        print!("{markdown}");
        return Ok(());
    };
    let document = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    std::fs::write(path, section.put_into(&document, &markdown)?).with_context(|| path.display().to_string())
}

fn execute(run: Run) -> anyhow::Result<()> {
    anyhow::ensure!(
        run.connections > 0 && run.streams > 0 && run.connections.is_multiple_of(run.streams),
        "--streams must divide --connections"
    );
    anyhow::ensure!(!run.case.contains(['\t', '\n']), "--case must be one field of the results file");
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
    anyhow::ensure!(!report.latencies.is_empty(), "no request was answered within the window: make it longer");
    let mut file = OpenOptions::new().create(true).append(true).open(&run.results)?;
    writeln!(file, "{}", results::line(&plan, &run.case, &report))?;
    if run.print_total {
        println!("{} {}", report.in_all.created, report.in_all.found);
    }
    Ok(())
}
