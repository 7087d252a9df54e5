//! Catching up by snapshot: a node that was away while the log was purged, and transfers that break half-way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hapax_consensus::config::NodeConfig;

use crate::support::{Cluster, Kind, until};

/// A short log, so that a few claims purge it.
fn short_log(config: &mut NodeConfig) {
    config.log.snapshot_after_entries = 40;
    config.log.keep_entries = 5;
    config.log.purge_batch = 1;
}

/// A short log, and a snapshot that takes seconds to send.
fn slow_snapshots(config: &mut NodeConfig) {
    short_log(config);
    config.transport.snapshot_bytes_per_s = 1 << 20;
}

/// A cluster whose state grows to megabytes in a few dozen claims.
async fn large() -> Cluster {
    let mut cluster = Cluster::running(Kind::Memory, 3, slow_snapshots).await;
    cluster.owner_len = 64 << 10;
    cluster
}

/// Stops node 3 and writes until the others have purged what it would need.
async fn leave_behind(cluster: &mut Cluster) -> u64 {
    cluster.claimed(3, "before").await;
    let behind = cluster.node(3).status().last_log_index;
    cluster.leave(3).await;
    let mut n = 0;
    while [1, 2].iter().any(|id| cluster.node(*id).status().purged_index <= behind + 1) {
        cluster.claimed(n % 2 + 1, &format!("away{n}")).await;
        n += 1;
        assert!(n < 2_000, "the log is not purged");
    }
    n
}

async fn catches_up_while_others_write(kind: Kind) {
    let mut cluster = Cluster::running(kind, 3, short_log).await;
    let away = leave_behind(&mut cluster).await;
    cluster.start(3).await;
    let cluster = Arc::new(cluster);
    let writing = Arc::new(AtomicBool::new(true));
    let writer = tokio::spawn({
        let (cluster, writing) = (Arc::clone(&cluster), Arc::clone(&writing));
        async move {
            let mut n = 0;
            while writing.load(Ordering::Relaxed) {
                cluster.claimed(n % 2 + 1, &format!("meanwhile{n}")).await;
                n += 1;
            }
            n
        }
    });
    let behind = || cluster.node(3).status().purged_index;
    until("a snapshot installed", || (behind() > 0).then_some(())).await;
    // With so short a log, and a disk that others use, a node may be left behind again and again for as long as somebody writes.
    writing.store(false, Ordering::Relaxed);
    let written = writer.await.unwrap();
    for n in 0..away {
        assert!(cluster.holds(3, &format!("away{n}")).await, "away{n}");
    }
    for n in 0..written {
        assert!(cluster.holds(3, &format!("meanwhile{n}")).await, "meanwhile{n}");
    }
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_left_behind_catches_up_by_snapshot_while_others_write() {
    catches_up_while_others_write(Kind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_left_behind_on_disk_catches_up_by_snapshot() {
    catches_up_while_others_write(Kind::Disk).await;
}

/// Waits until node 3 is in the middle of receiving a snapshot.
async fn half_way(cluster: &Cluster) {
    let dir = cluster.snapshots_dir(3);
    let receiving = || {
        let mut entries = std::fs::read_dir(&dir).ok()?.flatten();
        entries.find(|entry| entry.file_name().to_string_lossy().starts_with("receiving-")).map(drop)
    };
    until("a transfer under way", receiving).await;
}

async fn caught_up(cluster: &Cluster, away: u64) {
    for n in 0..away {
        assert!(cluster.holds(3, &format!("away{n}")).await, "away{n}");
    }
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_survives_a_broken_connection() {
    let mut cluster = large().await;
    let away = leave_behind(&mut cluster).await;
    cluster.start(3).await;
    half_way(&cluster).await;
    for peer in 1..=2 {
        cluster.net.reset(3, peer);
    }
    caught_up(&cluster, away).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_survives_the_receiver() {
    let mut cluster = large().await;
    let away = leave_behind(&mut cluster).await;
    cluster.start(3).await;
    half_way(&cluster).await;
    cluster.crash(3).await;
    cluster.start(3).await;
    caught_up(&cluster, away).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_survives_the_sender() {
    let mut cluster = large().await;
    let away = leave_behind(&mut cluster).await;
    cluster.start(3).await;
    half_way(&cluster).await;
    let sender = until("a leader", || cluster.node(3).status().leader).await;
    cluster.crash(sender).await;
    cluster.start(sender).await;
    caught_up(&cluster, away).await;
}
