//! A node cut off from the others answers nothing as if it knew: 503, or 504 where the command may have been proposed,
//! within its deadline. The same call afterwards gets the one true answer. (REQUIREMENTS 27, 88, 92; FAULTS M, R)

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hapax_tests::caller::{Claim, nothing};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::wait::until;

/// The nodes' own deadline, in milliseconds.
const DEADLINE_MS: u64 = 1_500;
/// That, with some slack for a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

fn impatient() -> Options {
    Options { limits: format!("request_timeout_ms = {DEADLINE_MS}"), ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_the_minority_answers_nothing_and_the_majority_goes_on() -> Result<()> {
    let cluster = Cluster::start(impatient()).await?;
    let leader = cluster.leader().await?;
    cut_off(&cluster, leader).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_cut_off_answers_nothing_and_the_majority_goes_on() -> Result<()> {
    let cluster = Cluster::start(impatient()).await?;
    let follower = (cluster.leader().await? + 1) % 3;
    cut_off(&cluster, follower).await
}

async fn cut_off(cluster: &Cluster, victim: usize) -> Result<()> {
    let callers = cluster.callers();
    let other = (victim + 1) % 3;
    let before = Claim::of("partition/before");
    let granted = callers[victim].claim(&before).await?;
    ensure!(granted.verdict() == "claimed", "{granted:?}");

    let ids: Vec<u64> = cluster.nodes.iter().map(|node| node.id).collect();
    let others: Vec<u64> = ids.iter().copied().filter(|id| *id != ids[victim]).collect();
    cluster.network.isolate(ids[victim], &others);

    // The majority finishes what it knows; the victim cannot have heard of it.
    let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
    until(async || {
        let reported = callers[other].report(execution, epoch, "completed").await?;
        ensure!(reported.text("state") == "completed", "{reported:?}");
        Ok(())
    })
    .await?;

    let fresh = Claim::of("partition/fresh");
    for round in 0..3 {
        let at = || format!("round {round}");
        nothing(&callers[victim], ANSWER_WITHIN, async |caller| caller.claim(&fresh).await).await.with_context(at)?;
        nothing(&callers[victim], ANSWER_WITHIN, async |caller| caller.claim(&Claim::of("partition/before")).await)
            .await
            .with_context(at)?;
        nothing(&callers[victim], ANSWER_WITHIN, async |caller| caller.operation(granted.text("operation_id")).await)
            .await
            .with_context(at)?;
        nothing(&callers[victim], ANSWER_WITHIN, async |caller| caller.renew(execution, epoch, 5_000).await)
            .await
            .with_context(at)?;
        ensure!(!callers[victim].ready().await, "a node without a quorum says that it is ready");
    }
    let elsewhere = Claim::of("partition/elsewhere");
    until(async || {
        let answer = callers[other].claim(&elsewhere).await?;
        ensure!(answer.verdict() == "claimed", "{answer:?}");
        Ok(())
    })
    .await?;

    cluster.network.heal();
    // The one true answer, whichever of the earlier copies won.
    let mut truth = Vec::new();
    for caller in &callers {
        until(async || {
            let answer = caller.claim(&fresh).await?;
            ensure!(answer.verdict() == "claimed", "{answer:?}");
            truth.push((answer.text("execution_id").to_owned(), answer.epoch()));
            Ok(())
        })
        .await?;
    }
    ensure!(truth.iter().all(|one| *one == truth[0]), "{truth:?}");
    let read = callers[victim].operation(granted.text("operation_id")).await?;
    ensure!(read.text("state") == "completed", "{read:?}");
    Ok(())
}
