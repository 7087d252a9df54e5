//! A node cut off from the others answers nothing as if it knew: 503, or 504 where the command may have been proposed,
//! within its deadline. The same call afterwards gets the one true answer. (REQUIREMENTS 27, 88, 92; FAULTS M, R)

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};

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
        nothing(&callers[victim], async |caller| caller.claim(&fresh).await, round).await?;
        nothing(&callers[victim], async |caller| caller.claim(&Claim::of("partition/before")).await, round).await?;
        nothing(&callers[victim], async |caller| caller.operation(granted.text("operation_id")).await, round).await?;
        nothing(&callers[victim], async |caller| caller.renew(execution, epoch, 5_000).await, round).await?;
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

/// The call is answered in time, and with nothing but "I cannot know".
async fn nothing(caller: &Caller, call: impl AsyncFn(&Caller) -> Result<Answer>, round: usize) -> Result<()> {
    let begun = Instant::now();
    let answer = call(caller).await?;
    let took = begun.elapsed();
    let known = matches!(
        (answer.status.as_u16(), answer.verdict()),
        (503, "store.unavailable" | "store.overloaded") | (504, "store.outcome-unknown")
    );
    ensure!(known, "round {round}: a node that is cut off answered {answer:?}");
    ensure!(took < ANSWER_WITHIN, "round {round}: answered after {took:?}");
    Ok(())
}

/// Tries again until it holds: an election takes its time.
async fn until(mut check: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match check().await {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
