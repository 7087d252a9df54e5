//! `hapax bench`: load against a cluster, each answer checked, and what it came to as a table, JSON or a page.

mod body;
mod node;
mod workload;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum, value_parser};
use hapax_load::report::{Answers, Report};
use hapax_load::run::{Plan, Progress, run};
use hapax_load::{log::Seen, plot};

use crate::args::Call;
use crate::exit::Failure;
use crate::output::{self, Format};
use body::Results;
use node::Target;
use workload::{Caller, Settings};

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Claims of fresh keys: each elects its caller.
    Claim,
    /// A claim of a fresh key, and the report of its outcome.
    ClaimReport,
    /// Claims of keys that are completed: each gets the receipt.
    Replay,
    /// Claims of a few keys by everybody: one is elected for each, the others are told to wait.
    HotKey,
    /// Register, issue, claim with capability and message, report.
    Capability,
    /// Status reads of operations.
    Read,
    /// 1.06 attempts an operation, 2 % of the calls duplicates, records of about 1.1 KiB: the sizing example of the guide.
    Mix,
}

/// How much of it.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct BenchArgs {
    /// What is called.
    #[arg(long, value_enum, default_value_t = Workload::Claim)]
    workload: Workload,
    /// Connections, each with one call under way at most, spread over the nodes of --url.
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u64).range(1..=10_000))]
    connections: u64,
    /// Calls a second over all connections, sent whatever the answers do; without it, each connection calls as soon as it is answered.
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000_000))]
    rate: Option<u64>,
    /// Claims, or reports, that travel in one body, for the workloads claim and claim-report; then a call is a body.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=256))]
    batch: u64,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u64).range(1..=86_400))]
    duration: u64,
    /// Seconds of load before that.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(0..=3_600))]
    warm_up: u64,
    /// The namespace.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Bytes of each request that is bound to its key.
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u64).range(0..=32_768))]
    size: u64,
    /// Bytes of each reported result; 0 reports none. About 1.1 KiB a record in the workload mix where absent.
    #[arg(long, value_parser = value_parser!(u64).range(0..=12_288))]
    result_size: Option<u64>,
    /// Keys that are read, replayed or hot.
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000_000))]
    keys: Option<u64>,
    /// Threads of the generator.
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Where to write the whole report as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where to write it as a page with a picture.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Say once a second how it goes, also where nobody watches.
    #[arg(long)]
    progress: bool,
    /// End with 0 although answers came that the workload does not expect.
    #[arg(long)]
    allow_errors: bool,
}

impl BenchArgs {
    /// What the report is called.
    fn title(&self) -> String {
        let word = self.workload.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let mut title = format!("hapax bench: {word}, {} connections", self.connections);
        if self.batch > 1 {
            title += &format!(", {} in a body", self.batch);
        }
        match self.rate {
            Some(rate) => title += &format!(", {rate} calls a second"),
            None => title += ", closed loop",
        }
        title
    }

    /// Keys, where the workload has a set of them.
    fn keys(&self) -> u64 {
        self.keys.unwrap_or(if self.workload == Workload::HotKey { 1 } else { 10_000 })
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        if self.batch > 1 && !matches!(self.workload, Workload::Claim | Workload::ClaimReport) {
            return Err(Failure::Usage("--batch goes with --workload claim or claim-report".to_owned()).into());
        }
        let result =
            self.result_size.unwrap_or(if self.workload == Workload::Mix { workload::MIX_RESULT_BYTES } else { 0 });
        Ok(Settings {
            workload: self.workload,
            namespace: crate::calls::parsed::<hapax_api::text::Namespace>("--namespace", &self.namespace)?
                .to_string(),
            // Two runs against one cluster meet no key of each other.
            prefix: format!("bench-{:016x}", rand::random::<u64>()),
            value: body::noise(self.size as usize),
            results: (result > 0).then(|| Arc::new(Results::of(result as usize))),
            keys: self.keys(),
            connections: self.connections,
            batch: self.batch as usize,
        })
    }
}

/// Runs the load.
pub(crate) fn bench(call: &Call, args: &BenchArgs) -> anyhow::Result<()> {
    let settings = args.settings()?;
    let targets = Target::all(&call.url, &call.token)?;
    let plan = Plan {
        connections: args.connections as usize,
        rate: args.rate,
        warm_up: Duration::from_secs(args.warm_up),
        measured: Duration::from_secs(args.duration),
    };
    let shown = args.progress || std::io::stderr().is_terminal();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads as usize).enable_all().build()?;
    let callers = (0..plan.connections).map(|number| Caller::new(&settings, &targets, number)).collect();
    let ran = runtime.block_on(run(&plan, callers, |progress| {
        if shown {
            tell(progress);
        }
    }));
    let (window, seen) = ran.map_err(|stop| Failure::Unavailable(stop.to_string()))?;
    let report = Report::new(args.title(), &window, &seen);
    write(args, &report)?;
    show(call.output, &report)?;
    verdict(args, &settings, &seen)
}

fn tell(progress: Progress) {
    let (p50, p99) = progress.latencies_us;
    let ms = |us: u64| us as f64 / 1_000.0;
    let when = progress.measured.as_secs();
    eprintln!("{when:>6} s  {:>8} answers/s  p50 {:>8.2} ms  p99 {:>8.2} ms", progress.answers, ms(p50), ms(p99));
}

fn write(args: &BenchArgs, report: &Report) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        let text = serde_json::to_vec_pretty(report)?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &args.report {
        std::fs::write(path, plot::html(report)?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn show(format: Format, report: &Report) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::answer(format, report);
    }
    output::line(&report.title);
    let rows: Vec<_> = report.answers.iter().chain([&report.total]).map(row).collect();
    output::table(["ANSWER", "COUNT", "PER SECOND", "P50 MS", "P90 MS", "P99 MS", "P99.9 MS", "LONGEST MS"], &rows);
    for (what, list) in [("not expected", &report.unexpected), ("sent again", &report.sent_again)] {
        for (text, count) in list {
            output::line(&format!("{what}, {count} times: {text}"));
        }
    }
    Ok(())
}

fn row(answers: &Answers) -> [String; 8] {
    let ms = |us: u64| format!("{:.2}", us as f64 / 1_000.0);
    let latencies = &answers.latencies;
    [
        answers.answer.clone(),
        answers.count.to_string(),
        format!("{:.0}", answers.per_second),
        ms(latencies.p50_us),
        ms(latencies.p90_us),
        ms(latencies.p99_us),
        ms(latencies.p999_us),
        ms(latencies.max_us),
    ]
}

/// A measurement of wrong answers is none.
fn verdict(args: &BenchArgs, settings: &Settings, seen: &Seen) -> anyhow::Result<()> {
    if args.allow_errors {
        return Ok(());
    }
    if !seen.unexpected.is_empty() {
        return Err(Failure::Refused("answers came that this workload does not expect".to_owned()).into());
    }
    let elected = seen.all.get("claimed").copied().unwrap_or_default();
    if settings.workload == Workload::HotKey && elected > settings.keys {
        return Err(Failure::Refused(format!("{elected} were elected for {} keys", settings.keys)).into());
    }
    Ok(())
}
