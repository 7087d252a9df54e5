//! The closed loop, the same for each system: every client sends one request after the other; what is answered
//! within the measured window counts, what comes before warms up, and every answer is checked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use hdrhistogram::Histogram;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::client::{Client, Done, System};

/// Longest latency that the histogram holds; longer ones count as this.
const LATENCY_US_MAX: u64 = 60_000_000;

/// What to do.
pub struct Plan {
    /// Which system.
    pub system: System,
    /// Where it listens.
    pub targets: Vec<SocketAddr>,
    /// Requests in flight.
    pub in_flight: usize,
    /// How many of them share a connection.
    pub streams: usize,
    /// Load before the window.
    pub warm_up: Duration,
    /// The window.
    pub measured: Duration,
    /// Hapax's bearer token.
    pub token: String,
}

/// What came of it.
pub struct Report {
    /// Latencies in microseconds of the requests answered within the window.
    pub latencies: Histogram<u64>,
    /// What these did.
    pub within: Done,
    /// What all requests did, preparation and warm-up included.
    pub in_all: Done,
}

impl Report {
    fn new() -> anyhow::Result<Report> {
        let latencies = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)?;
        Ok(Report { latencies, within: Done::default(), in_all: Done::default() })
    }
}

/// Connects all clients, lets them go together, and merges what they saw. The first wrong answer is the error.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let run_id = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let start = Arc::new(Barrier::new(plan.in_flight));
    let mut workers = JoinSet::new();
    for connection in 0..plan.in_flight / plan.streams {
        let target = plan.targets[connection % plan.targets.len()];
        let first = Client::connect(plan.system, target, &plan.token).await?;
        let mut clients = Vec::new();
        for _ in 1..plan.streams {
            clients.push(first.share()?);
        }
        clients.push(first);
        for (stream, client) in clients.into_iter().enumerate() {
            let prefix = format!("bench-{run_id}-{connection}-{stream}");
            workers.spawn(work(client, prefix, start.clone(), plan.warm_up, plan.measured));
        }
    }
    let mut report = Report::new()?;
    while let Some(worker) = workers.join_next().await {
        let part = worker.context("a worker ended early")??;
        report.latencies.add(&part.latencies)?;
        report.within.add(part.within);
        report.in_all.add(part.in_all);
    }
    Ok(report)
}

async fn work(
    mut client: Client,
    prefix: String,
    start: Arc<Barrier>,
    warm_up: Duration,
    measured: Duration,
) -> anyhow::Result<Report> {
    let mut report = Report::new()?;
    report.in_all = client.prepare(&prefix).await?;
    start.wait().await;
    let from = Instant::now() + warm_up;
    let until = from + measured;
    for number in 0.. {
        let begun = Instant::now();
        if begun >= until {
            break;
        }
        let done = client.request(&format!("{prefix}-{number}"), number).await?;
        let ended = Instant::now();
        report.in_all.add(done);
        if (from..until).contains(&ended) {
            report.latencies.saturating_record(u64::try_from((ended - begun).as_micros())?);
            report.within.add(done);
        }
    }
    Ok(report)
}
