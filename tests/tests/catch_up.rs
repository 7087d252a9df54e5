//! A node that was down while the log was purged catches up by snapshot, under load, and then holds what the others
//! hold: the state hash at an equal index, and every row. (FAULTS H, D, Q)

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::content::{Content, settle};
use hapax_tests::load::Load;

const RATE_MIN: f64 = 500.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_behind_the_purged_log_catches_up_by_snapshot_under_load() -> Result<()> {
    let raft = "snapshot_after_entries = 500\nkeep_entries = 100\npurge_batch = 50\nflush_interval_ms = 500";
    let mut cluster = Cluster::start(Options { raft: raft.to_owned(), ..Options::default() }).await?;
    let away = (cluster.leader().await? + 1) % 3;
    let load = Load::start("catch-up", &cluster.callers(), 32);
    cluster.nodes[away].kill()?;
    let purged = "hapax_log_purged_index";
    let left_at = cluster.nodes[(away + 1) % 3].metric("hapax_proposals_applied").await?;
    // Away until the log that it would need is gone.
    let begun = Instant::now();
    loop {
        let leader = cluster.leader().await?;
        let first = cluster.nodes[leader].metric(purged).await?;
        if first > left_at {
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(120), "the log is not purged: it begins at {first}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (count, at) = (load.count(), Instant::now());
    cluster.nodes[away].start()?;
    cluster.nodes[away].ready().await?;
    let begun = Instant::now();
    while cluster.nodes[away].metric("hapax_snapshots_installed_total").await.unwrap_or(0.0) < 1.0 {
        ensure!(begun.elapsed() < Duration::from_secs(60), "no snapshot was installed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let rate = (load.count() - count) as f64 / at.elapsed().as_secs_f64();
    let (acknowledged, _) = load.stop().await;
    println!("{rate:.0} claims a second while the node caught up; {} acknowledged in all", acknowledged.len());
    ensure!(rate >= RATE_MIN, "only {rate:.0} claims a second while it caught up");

    settle(&cluster).await?;
    for node in &mut cluster.nodes {
        node.stop().await?;
    }
    let contents = cluster.nodes.iter().map(Content::of).collect::<Result<Vec<_>>>()?;
    let first = contents.first().context("three nodes")?;
    for (node, content) in cluster.nodes.iter().zip(&contents) {
        let missing = acknowledged.iter().filter(|one| !content.holds(one)).count();
        ensure!(missing == 0, "node {}: {missing} acknowledged are missing", node.id);
        let difference = content.difference(first);
        ensure!(difference.is_empty(), "node {} differs: {difference:?}", node.id);
        let (index, same) = content.agrees_at(first).context("no index at which both kept a state hash")?;
        ensure!(same, "node {}: another state hash at {index}", node.id);
    }
    Ok(())
}
