//! The closed loop, the same for each system: every client creates fresh keys one after the other; what is answered
//! within the measured window counts, what comes before warms up, and every answer is checked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use hdrhistogram::Histogram;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::client::{Client, System};

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
    /// Latencies in microseconds of the answers within the window.
    pub latencies: Histogram<u64>,
    /// Answers in all, warm-up included; each created its key.
    pub answered: u64,
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
    let mut report = Report { latencies: histogram()?, answered: 0 };
    while let Some(worker) = workers.join_next().await {
        let part = worker.context("a worker ended early")??;
        report.latencies.add(&part.latencies)?;
        report.answered += part.answered;
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
    let mut report = Report { latencies: histogram()?, answered: 0 };
    start.wait().await;
    let from = Instant::now() + warm_up;
    let until = from + measured;
    loop {
        let begun = Instant::now();
        if begun >= until {
            return Ok(report);
        }
        client.create(&format!("{prefix}-{}", report.answered)).await?;
        let ended = Instant::now();
        report.answered += 1;
        if (from..until).contains(&ended) {
            let us = u64::try_from((ended - begun).as_micros())?;
            report.latencies.saturating_record(us);
        }
    }
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)?)
}
