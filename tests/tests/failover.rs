//! The leader is killed twenty times under load, then all nodes at once: service comes back by itself, and everything
//! that was acknowledged is on every node's disk. (REQUIREMENTS 27, 87, 92; FAULTS D, T)

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hapax_tests::caller::Claim;
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::content::Content;
use hapax_tests::load::{Acknowledged, Load};

const KILLS: usize = 20;
const WORKERS: usize = 48;
/// Lines that a node may log in this test.
const LOG_LINES_MAX: usize = 20_000;
/// Claims a second below which the load proves too little.
const RATE_MIN: f64 = 500.0;
/// How long the cluster may be without service after a kill.
const BACK_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_killed_leaders_and_a_killed_cluster_lose_nothing() -> Result<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let load = Load::start("failover", &cluster.callers(), WORKERS);
    let mut gaps = Vec::new();
    for kill in 0..KILLS {
        steady(&load).await?;
        let leader = cluster.leader().await?;
        cluster.nodes[leader].kill()?;
        let gap = first_success(&cluster, leader, kill).await?;
        ensure!(gap <= BACK_WITHIN, "kill {kill}: no service for {gap:?}");
        gaps.push(gap);
        cluster.nodes[leader].start()?;
        cluster.nodes[leader].ready().await?;
    }
    steady(&load).await?;
    let (acknowledged, _) = load.stop().await;
    gaps.sort_unstable();
    println!("without service after a kill, ms: {:?}", gaps.iter().map(Duration::as_millis).collect::<Vec<_>>());
    println!("acknowledged claims: {}", acknowledged.len());

    for node in &mut cluster.nodes {
        // A peer that is down is tried again with pauses: a loop without them would fill the log, and a core.
        let lines = node.log_text().lines().count();
        ensure!(lines < LOG_LINES_MAX, "node {} logged {lines} lines", node.id);
        node.kill()?;
    }
    for node in &mut cluster.nodes {
        node.start()?;
    }
    cluster.ready().await?;
    through_every_node(&cluster, &acknowledged).await?;
    same_on_every_disk(&mut cluster, &acknowledged).await
}

/// Waits until the load runs at the rate that makes a kill worth something.
async fn steady(load: &Load) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        let (from, at) = (load.count(), Instant::now());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let rate = (load.count() - from) as f64 / at.elapsed().as_secs_f64();
        if rate >= RATE_MIN {
            return Ok(());
        }
    }
    anyhow::bail!("the load does not reach {RATE_MIN} claims a second")
}

/// How long until a fresh key is claimed through a node that lives.
async fn first_success(cluster: &Cluster, dead: usize, kill: usize) -> Result<Duration> {
    let begun = Instant::now();
    let callers = cluster.callers();
    let claim = Claim::of(format!("probe/{kill}"));
    for turn in 0.. {
        let at = (dead + 1 + turn % 2) % callers.len();
        let answer = callers[at].claim(&claim).await;
        if answer.is_ok_and(|answer| answer.verdict() == "claimed") {
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(30), "no service after a kill");
    }
    Ok(begun.elapsed())
}

/// Reads a sample of what was acknowledged through each node.
async fn through_every_node(cluster: &Cluster, acknowledged: &[Acknowledged]) -> Result<()> {
    let step = (acknowledged.len() / 200).max(1);
    for caller in cluster.callers() {
        for one in acknowledged.iter().step_by(step) {
            let read = caller.operation(&one.operation_id).await?;
            let state = read.text("state");
            ensure!(!one.completed || state == "completed", "{one:?} reads {state}");
            ensure!(read.body["execution"]["execution_id"] == one.execution_id.as_str(), "{one:?} reads {read:?}");
        }
    }
    Ok(())
}

/// Stops all nodes at one index and compares every row of every node with what was acknowledged.
async fn same_on_every_disk(cluster: &mut Cluster, acknowledged: &[Acknowledged]) -> Result<()> {
    hapax_tests::content::settle(cluster).await?;
    for node in &mut cluster.nodes {
        node.stop().await?;
    }
    let contents = cluster.nodes.iter().map(Content::of).collect::<Result<Vec<_>>>()?;
    for (node, content) in cluster.nodes.iter().zip(&contents) {
        let missing = acknowledged.iter().filter(|one| !content.holds(one)).count();
        ensure!(missing == 0, "node {}: {missing} of {} acknowledged are missing", node.id, acknowledged.len());
        let difference = content.difference(&contents[0]);
        ensure!(difference.is_empty(), "node {} differs: {difference:?}", node.id);
    }
    let rows = contents.first().context("three nodes")?.rows.len();
    println!("rows on each node: {rows}");
    Ok(())
}
