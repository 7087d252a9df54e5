//! 64 callers claim the same fresh key at once through all three nodes, for a thousand keys: one is elected, everybody
//! else is told about that one execution, with the same ids. (REQUIREMENTS 18, 22, 45, 88, 100)

use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::future::join_all;
use hapax_tests::caller::{Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use tokio::sync::Barrier;

const CALLERS: usize = 64;
const KEYS: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_64_is_elected_for_each_of_1000_keys() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let barrier = Arc::new(Barrier::new(CALLERS));
    let workers = (0..CALLERS).map(|number| {
        let (caller, barrier) = (nodes[number % nodes.len()].clone(), Arc::clone(&barrier));
        tokio::spawn(race(caller, barrier, number))
    });
    let mut seen: Vec<Vec<Seen>> = Vec::new();
    for worker in join_all(workers).await {
        seen.push(worker??);
    }
    for key in 0..KEYS {
        let of_key: Vec<&Seen> = seen.iter().map(|worker| &worker[key]).collect();
        let claimed = of_key.iter().filter(|seen| seen.verdict == "claimed").count();
        ensure!(claimed == 1, "key {key}: {claimed} claimed: {of_key:?}");
        for other in &of_key {
            ensure!(matches!(other.verdict.as_str(), "claimed" | "in_progress" | "replayed"), "key {key}: {other:?}");
            ensure!(other.ids == of_key[0].ids, "key {key}: {other:?} is not {:?}", of_key[0]);
        }
    }
    let replayed = seen.iter().flatten().filter(|seen| seen.verdict == "replayed").count();
    let waiting = seen.iter().flatten().filter(|seen| seen.verdict == "in_progress").count();
    println!("{KEYS} keys, {CALLERS} callers: {waiting} in progress, {replayed} replayed");
    ensure!(waiting > 0 && replayed > 0, "the race was none: {waiting} in progress, {replayed} replayed");
    Ok(())
}

/// What one caller was told about one key.
#[derive(Debug)]
struct Seen {
    verdict: String,
    ids: (String, String),
}

async fn race(caller: Caller, barrier: Arc<Barrier>, number: usize) -> Result<Vec<Seen>> {
    let mut seen = Vec::with_capacity(KEYS);
    for key in 0..KEYS {
        barrier.wait().await;
        let mut claim = Claim::of(format!("herd/{key}"));
        // Some wait for the outcome, so that all three kinds of answer occur.
        claim.wait_ms = if number % 4 == 1 { 2_000 } else { 0 };
        let answer = caller.claim(&claim).await?;
        if answer.verdict() == "claimed" {
            let reported = caller.report(answer.text("execution_id"), answer.epoch(), "completed").await?;
            ensure!(reported.text("state") == "completed", "{reported:?}");
        }
        seen.push(Seen {
            verdict: answer.verdict().to_owned(),
            ids: (answer.text("operation_id").to_owned(), answer.text("execution_id").to_owned()),
        });
    }
    Ok(seen)
}
