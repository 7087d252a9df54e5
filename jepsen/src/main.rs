//! The command line of the fault tests: `run`, `list`, `report`, `cleanup`.
//! It ends with 0 where all verdicts are true, 1 where one is false, 2 where nobody can tell or nothing could be set up.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use hapax_jepsen::backends::netns::{self, Netns};
use hapax_jepsen::{nemeses, plan, report, run};
use nix::sys::signal::{SigSet, Signal};

#[derive(Parser)]
#[command(about = "Injects faults into a real Hapax cluster and judges what it answered")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// One run
    Run(Run),
    /// Name the faults
    List,
    /// Write a run's page again
    Report {
        /// The run's folder
        out: PathBuf,
    },
    /// Remove what runs left behind: every namespace of this program, of running ones too
    Cleanup,
}

#[derive(clap::Args)]
struct Run {
    /// What the plan is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long the workload runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Faults in turn; drawn from all where none is named
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// The run's folder, on a disk
    #[arg(long)]
    out: PathBuf,
    /// The server's binary
    #[arg(long, env = "HAPAX_BIN")]
    binary: PathBuf,
}

fn main() -> ExitCode {
    match verb(Arguments::parse().verb) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("hapax-jepsen: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stdout, reason = "this is a command line")]
fn verb(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Run(arguments) => return one(&arguments),
        Verb::List => nemeses::all().iter().for_each(|nemesis| println!("{}", nemesis.name())),
        Verb::Report { out } => report::write(&out)?,
        Verb::Cleanup => netns::cleanup(None)?.iter().for_each(|name| println!("removed {name}")),
    }
    Ok(0)
}

#[expect(clippy::print_stdout, reason = "this is a command line")]
fn one(arguments: &Run) -> Result<u8> {
    let Run { seed, seconds, faults, out, binary } = arguments;
    let steps = plan::draw(*seed, *seconds, faults)?;
    for step in &steps {
        println!("plan: at {:>6} ms for {:>5} ms {}", step.at_ms, step.lasts_ms, step.fault);
    }
    let id = format!("{:x}", std::process::id());
    on_signals(&id)?;
    let nodes = Netns::new(binary, out, &id)
        .inspect_err(|_| drop(netns::cleanup(Some(&id))))
        .context("the cluster cannot be set up")?;
    let named = if faults.is_empty() { String::new() } else { format!(" --faults {}", faults.join(",")) };
    let command = format!("hapax-jepsen run --seed {seed} --seconds {seconds}{named} --out {}", out.display());
    let verdicts = run::run(&nodes, &steps, *seconds, Path::new(out), &command)?;
    for verdict in &verdicts {
        println!("{}: {:?}: {}", verdict.checker, verdict.judgement, verdict.reason);
    }
    println!("again: {command}\nreport: {}", out.join("report.html").display());
    run::code(&verdicts)
}

/// Removes the run's namespaces, with the processes in them, when it is told to end.
fn on_signals(id: &str) -> Result<()> {
    let (signals, id) = (SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]), id.to_owned());
    signals.thread_block()?;
    std::thread::spawn(move || {
        if signals.wait().is_ok() {
            if let Err(error) = netns::cleanup(Some(&id)) {
                eprintln!("hapax-jepsen: {error:#}");
            }
            std::process::exit(2);
        }
    });
    Ok(())
}
