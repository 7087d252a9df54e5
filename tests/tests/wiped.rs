//! A node whose data directory was lost, started again under its old id: it has forgotten what it had acknowledged, so
//! the others refuse it, it says why, and it does not count towards a quorum. (FAULTS: wiped node)

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hapax_tests::caller::{Claim, nothing};
use hapax_tests::cluster::{Cluster, Options};

/// Many elections long: a node that counted would have been heard.
const A_WHILE: Duration = Duration::from_secs(4);
/// The nodes' own deadline, with some slack for a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_is_refused_says_why_and_does_not_count() -> Result<()> {
    let mut cluster =
        Cluster::start(Options { limits: "request_timeout_ms = 1500".to_owned(), ..Options::default() }).await?;
    let leader = cluster.leader().await?;
    // The first node is told to begin a cluster, and ends where it is refused; the others stay.
    let wiped = if leader == 2 { 1 } else { 2 };
    let other = 3 - leader - wiped;
    let callers = cluster.callers();
    let granted = callers[wiped].claim(&Claim::of("wiped/before")).await?;
    ensure!(granted.verdict() == "claimed", "{granted:?}");

    cluster.nodes[wiped].kill()?;
    fs::remove_dir_all(&cluster.nodes[wiped].data)?;
    cluster.nodes[wiped].start()?;
    let (id, own) = (cluster.nodes[wiped].id, "this node was known with other data");
    says(&cluster, wiped, own).await?;
    says(&cluster, leader, &format!("node {id} was known with other data")).await?;
    ensure!(cluster.nodes[wiped].log_text().contains("under a new node id"), "no advice");

    let (begun, mut n) = (Instant::now(), 0);
    while begun.elapsed() < A_WHILE {
        ensure!(!callers[wiped].ready().await, "a wiped node says that it is ready");
        for caller in [&callers[leader], &callers[other]] {
            let answer = caller.claim(&Claim::of(format!("wiped/meanwhile-{n}"))).await?;
            ensure!(answer.verdict() == "claimed", "{answer:?}");
            n += 1;
        }
    }
    nothing(&callers[wiped], ANSWER_WITHIN, async |caller| caller.claim(&Claim::of("wiped/through-it")).await)
        .await?;
    nothing(&callers[wiped], ANSWER_WITHIN, async |caller| caller.operation(granted.text("operation_id")).await)
        .await?;
    ensure!(cluster.nodes[wiped].ended()?.is_none(), "the wiped node ended");

    // One more gone: the last member and the wiped node are no quorum.
    cluster.nodes[leader].kill()?;
    for round in 0..3 {
        nothing(&callers[other], ANSWER_WITHIN, async |caller| caller.claim(&Claim::of("wiped/alone")).await)
            .await
            .with_context(|| format!("round {round}"))?;
        nothing(&callers[other], ANSWER_WITHIN, async |caller| caller.operation(granted.text("operation_id")).await)
            .await?;
        ensure!(!callers[other].ready().await && !callers[wiped].ready().await, "ready without a quorum");
    }

    // With its data it counts again.
    cluster.nodes[leader].start()?;
    cluster.nodes[leader].ready().await?;
    let read = callers[leader].operation(granted.text("operation_id")).await?;
    ensure!(read.text("state") == "executing", "{read:?}");
    ensure!(!callers[wiped].ready().await, "a wiped node says that it is ready");
    Ok(())
}

/// Waits until a node's log says something, and checks that it says it only once for each peer.
async fn says(cluster: &Cluster, node: usize, what: &str) -> Result<()> {
    let begun = Instant::now();
    while !cluster.nodes[node].log_text().contains(what) {
        let node = &cluster.nodes[node];
        ensure!(
            begun.elapsed() < Duration::from_secs(30),
            "node {} does not say `{what}`:\n{}",
            node.id,
            node.log_text()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let said = cluster.nodes[node].log_text().matches(what).count();
    ensure!(said <= 2, "`{what}` is said {said} times");
    Ok(())
}
