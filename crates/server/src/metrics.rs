//! The metrics listener: Prometheus text, on an address of its own, so that scraping never competes with callers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use hapax_consensus::clock::{NodeClock, SystemClock};
use hapax_consensus::{series, time_in_state};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::http::{Connections, Timeouts};
use crate::room::Room;

/// Connections of scrapers at once.
const SCRAPERS_MAX: usize = 16;
/// How often samples of histograms are folded: between scrapes they would otherwise pile up.
const UPKEEP: Duration = Duration::from_secs(5);

/// Installs the recorder of this process.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let calls = doubling(0.000_25, 16);
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(series::LOG_FSYNC.to_owned()), &series::log_fsync_buckets())?
        .set_buckets_for_metric(
            Matcher::Full(series::PEER_ROUND_TRIP.to_owned()),
            &series::peer_round_trip_buckets(),
        )?
        .set_buckets_for_metric(
            Matcher::Full(time_in_state::EXECUTING.to_owned()),
            &time_in_state::executing_buckets(),
        )?
        .set_buckets_for_metric(Matcher::Full(time_in_state::UNKNOWN.to_owned()), &time_in_state::unknown_buckets())?
        .set_buckets_for_metric(Matcher::Suffix("_duration_seconds".to_owned()), &calls)?
        .install_recorder()
}

/// `count` bounds, each twice the one before it.
fn doubling(first: f64, count: i32) -> Vec<f64> {
    (0..count).map(|power| first * 2f64.powi(power)).collect()
}

/// What is looked at when somebody asks.
pub(crate) struct Shown {
    pub(crate) data_dir: PathBuf,
    /// By the name of what takes places there.
    pub(crate) rooms: [(&'static str, Room); 4],
}

/// Serves `/metrics` until `stop`.
pub(crate) async fn serve(
    listener: TcpListener,
    handle: PrometheusHandle,
    shown: Shown,
    timeouts: Timeouts,
    stop: CancellationToken,
) {
    let upkeep = handle.clone();
    let upkeep_stop = stop.clone();
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(UPKEEP);
        loop {
            tokio::select! {
                () = upkeep_stop.cancelled() => return,
                _ = tick.tick() => upkeep.run_upkeep(),
            }
        }
    });
    let render = move || {
        // What this node believes the time is: operators compare nodes, and tests move it.
        metrics::gauge!("hapax_wall_clock_seconds").set(SystemClock.wall_ms() as f64 / 1_000.0);
        for part in ["log", "state", "snapshots"] {
            metrics::gauge!("hapax_disk_size_bytes", "part" => part).set(size_of(&shown.data_dir.join(part)) as f64);
        }
        for (of, room) in &shown.rooms {
            metrics::gauge!("hapax_saturation_ratio", "of" => *of).set(room.taken());
        }
        std::future::ready(handle.render())
    };
    let router = Router::new().route("/metrics", get(render));
    Connections::new(listener, Room::new(SCRAPERS_MAX), timeouts).serve(router, stop).await;
}

/// Bytes of the files under a directory; what goes away while it is looked at counts as nothing.
fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
