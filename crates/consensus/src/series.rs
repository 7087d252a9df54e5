//! The metric series of consensus and of the log's disk, and their buckets.
//! Values are taken when they are asked for or once a second; nothing here is on the path of a command.

use std::sync::Arc;
use std::time::Duration;

use hapax_store::seam::{LogObserver, Round};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use openraft::async_runtime::WatchReceiver;
use tokio::time::{MissedTickBehavior, interval};

use crate::core::Core;
use crate::types::NodeId;

/// Time of one sync of the log's write-ahead log, in seconds.
pub const LOG_FSYNC: &str = "hapax_log_fsync_duration_seconds";
/// Smoothed round-trip time to a peer, in seconds, by peer.
pub const PEER_ROUND_TRIP: &str = "hapax_peer_round_trip_time_seconds";

/// The upper bounds of [`LOG_FSYNC`]'s buckets: 1 ms, doubled 13 times.
pub fn log_fsync_buckets() -> Vec<f64> {
    (0..14).map(|k| 0.001 * f64::from(1 << k)).collect()
}

/// The upper bounds of [`PEER_ROUND_TRIP`]'s buckets: 0.1 ms, doubled 15 times.
pub fn peer_round_trip_buckets() -> Vec<f64> {
    (0..16).map(|k| 0.000_1 * f64::from(1 << k)).collect()
}

/// The log's disk, as the log store tells it.
pub(crate) struct LogSeries {
    fsync: Histogram,
    entries: Counter,
    bytes: Counter,
    read: Counter,
    read_cached: Counter,
}

impl LogSeries {
    pub(crate) fn new() -> Self {
        Self {
            fsync: histogram!(LOG_FSYNC),
            entries: counter!("hapax_log_entries_total"),
            bytes: counter!("hapax_log_written_bytes_total"),
            read: counter!("hapax_log_entries_read_total"),
            read_cached: counter!("hapax_log_entries_read_cached_total"),
        }
    }
}

impl LogObserver for LogSeries {
    fn round(&self, round: &Round) {
        self.fsync.record(round.sync);
        self.entries.increment(round.entries as u64);
        self.bytes.increment(round.bytes as u64);
    }

    fn read(&self, entries: usize, cached: usize) {
        self.read.increment(entries as u64);
        self.read_cached.increment(cached as u64);
    }
}

struct RaftSeries {
    has_leader: Gauge,
    is_leader: Gauge,
    is_learner: Gauge,
    leader_changes: Counter,
    committed: Gauge,
    applied: Gauge,
    term: Gauge,
    snapshot: Gauge,
    purged: Gauge,
}

impl RaftSeries {
    fn new() -> Self {
        Self {
            has_leader: gauge!("hapax_has_leader"),
            is_leader: gauge!("hapax_is_leader"),
            is_learner: gauge!("hapax_is_learner"),
            leader_changes: counter!("hapax_leader_changes_seen_total"),
            committed: gauge!("hapax_proposals_committed"),
            applied: gauge!("hapax_proposals_applied"),
            term: gauge!("hapax_raft_term"),
            snapshot: gauge!("hapax_snapshot_index"),
            purged: gauge!("hapax_log_purged_index"),
        }
    }

    /// Sets everything; returns the leader.
    fn set(&self, core: &Core) -> Option<NodeId> {
        let metrics = core.raft.metrics();
        let metrics = metrics.borrow_watched();
        let flag = |set: bool| f64::from(u8::from(set));
        let index = |id: Option<u64>| id.unwrap_or_default() as f64;
        self.has_leader.set(flag(metrics.current_leader.is_some()));
        self.is_leader.set(flag(metrics.state.is_leader()));
        self.is_learner.set(flag(metrics.state.is_learner()));
        self.committed.set(index(metrics.local_committed.map(|id| id.index)));
        self.applied.set(index(metrics.last_applied.map(|id| id.index)));
        self.term.set(metrics.current_term as f64);
        self.snapshot.set(index(metrics.snapshot.map(|id| id.index)));
        self.purged.set(index(metrics.purged.map(|id| id.index)));
        metrics.current_leader
    }
}

/// Publishes the series of consensus and of the peers until the node stops.
pub(crate) async fn publish(core: Arc<Core>) {
    let series = RaftSeries::new();
    let mut server = core.raft.server_metrics();
    let mut due = interval(Duration::from_secs(1));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leader = None;
    loop {
        let now = series.set(&core);
        // The way to having none is not counted: every election would count twice.
        if now.is_some() && now != leader {
            series.leader_changes.increment(1);
            leader = now;
        }
        let changed = tokio::select! {
            () = core.stopping.cancelled() => return,
            changed = server.changed() => changed.is_ok(),
            _ = due.tick() => {
                for peer in core.peers.known() {
                    if let Some(round_trip) = core.peers.rtt(peer) {
                        histogram!(PEER_ROUND_TRIP, "peer" => peer.to_string()).record(round_trip);
                    }
                }
                true
            }
        };
        if !changed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_that_the_dashboards_expect() {
        let fsync = log_fsync_buckets();
        assert_eq!((fsync.len(), fsync[0], fsync[13]), (14, 0.001, 8.192));
        let round_trip = peer_round_trip_buckets();
        assert_eq!(round_trip.len(), 16);
        assert!((round_trip[15] - 3.276_8).abs() < 1e-9);
    }
}
