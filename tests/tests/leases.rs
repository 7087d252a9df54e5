//! A stale owner is refused because of its epoch, while the new owner is in the same state; a lapse leads to unknown or
//! to a takeover; clocks that jump an hour lapse nothing and elect nobody. (REQUIREMENTS 40, 47, 50, 52, 103; FAULTS F, L)

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::faketime::{FakeTime, seen};
use serde_json::json;

const SHORT_MS: u64 = 1_500;

fn short(namespace: &'static str, key: &str) -> Claim {
    let mut claim = Claim::of(key);
    claim.namespace = namespace;
    claim.lease_ms = SHORT_MS;
    claim
}

/// Claims `key` again and again until somebody is elected; how long that took.
async fn until_claimed(caller: &Caller, namespace: &'static str, key: &str) -> Result<(Answer, Duration)> {
    let begun = Instant::now();
    loop {
        let mut claim = short(namespace, key);
        claim.lease_ms = 60_000;
        let answer = caller.claim(&claim).await?;
        if answer.verdict() == "claimed" {
            return Ok((answer, begun.elapsed()));
        }
        ensure!(answer.verdict() == "in_progress", "{answer:?}");
        ensure!(begun.elapsed() < Duration::from_secs(20), "nobody could take over");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_owner_is_refused_by_its_epoch_while_the_new_owner_executes() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let granted_at = Instant::now();
    let old = nodes[0].claim(&short("takeover", "stale/1")).await?;
    ensure!(old.verdict() == "claimed", "{old:?}");
    let (new, _) = until_claimed(&nodes[1], "takeover", "stale/1").await?;
    ensure!(granted_at.elapsed() >= Duration::from_millis(SHORT_MS), "taken over before the lease was over");
    ensure!(new.epoch() > old.epoch(), "{} after {}", new.epoch(), old.epoch());
    ensure!(new.text("execution_id") == old.text("execution_id") && new.body["attempt"] == old.body["attempt"]);
    ensure!(new.text("effect_key") == old.text("effect_key"), "the effect key changed without a new attempt");

    let execution = old.text("execution_id");
    let renewed = nodes[2].renew(execution, old.epoch(), 60_000).await?;
    ensure!(renewed.verdict() == "lease.stale-epoch", "{renewed:?}");
    for outcome in ["completed", "failed", "not_applied", "unknown"] {
        let reported = nodes[2].report(execution, old.epoch(), outcome).await?;
        ensure!(reported.verdict() == "lease.stale-epoch", "{outcome}: {reported:?}");
    }
    let read = nodes[0].operation(old.text("operation_id")).await?;
    ensure!(read.text("state") == "executing" && read.body["execution"]["lease_epoch"] == new.epoch(), "{read:?}");
    let reported = nodes[1].report(execution, new.epoch(), "completed").await?;
    ensure!(reported.text("state") == "completed", "{reported:?}");
    let late = nodes[0].report(execution, old.epoch(), "failed").await?;
    ensure!(late.verdict() == "lease.stale-epoch", "{late:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lapse_leads_to_unknown_and_stays_there() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let claim = short("default", "lapse/1");
    let old = nodes[0].claim(&claim).await?;
    ensure!(old.verdict() == "claimed", "{old:?}");
    let begun = Instant::now();
    loop {
        let again = nodes[1].claim(&short("default", "lapse/1")).await?;
        if again.verdict() == "operation.outcome-unknown" {
            break;
        }
        ensure!(again.verdict() == "in_progress", "{again:?}");
        ensure!(begun.elapsed() < Duration::from_secs(20), "the lease does not lapse");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(begun.elapsed() >= Duration::from_millis(SHORT_MS - 100), "lapsed early, after {:?}", begun.elapsed());
    let late = nodes[2].report(old.text("execution_id"), old.epoch(), "completed").await?;
    ensure!(late.verdict() == "lease.stale-epoch", "{late:?}");
    let read = nodes[2].operation(old.text("operation_id")).await?;
    ensure!(read.text("state") == "unknown", "{read:?}");
    // The ex-owner learnt the truth and says it; it regains nothing, and everybody gets the receipt.
    let path = format!("/v1/executions/{}/evidence", old.text("execution_id"));
    let said = nodes[2].post(&path, &json!({ "claim_id": claim.claim_id, "outcome": "completed" })).await?;
    ensure!(said.text("state") == "completed", "{said:?}");
    let again = nodes[0].claim(&short("default", "lapse/1")).await?;
    ensure!(again.verdict() == "replayed", "{again:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wall_clocks_that_jump_an_hour_lapse_nothing_and_elect_nobody() -> Result<()> {
    let time = FakeTime::new(3)?;
    let cluster = Cluster::start(Options { environment: time.environment(), ..Options::default() }).await?;
    let nodes = cluster.callers();
    let mut held = Claim::of("jump/held");
    held.lease_ms = 30_000;
    let granted = nodes[0].claim(&held).await?;
    ensure!(granted.verdict() == "claimed", "{granted:?}");
    let begun = Instant::now();
    for (node, seconds) in [(1, 3_600), (2, -3_600), (3, 3_600), (1, -3_600), (2, 3_600), (3, -3_600), (1, 0)] {
        time.set(node, seconds)?;
        seen(&cluster.nodes[usize::try_from(node)? - 1], seconds).await?;
        // Long enough for every chore of a leader to have run with this clock.
        let (jumped, leader) = (Instant::now(), cluster.leader().await?);
        while jumped.elapsed() < Duration::from_secs(2) {
            for at in [leader, (leader + 1) % 3] {
                let other = nodes[at].claim(&Claim::of("jump/held")).await?;
                ensure!(other.verdict() == "in_progress", "after {node} jumped by {seconds} s: {other:?}");
            }
        }
        let fresh = nodes[leader].claim(&Claim::of(format!("jump/{node}/{seconds}"))).await?;
        ensure!(fresh.verdict() == "claimed", "{fresh:?}");
    }
    ensure!(begun.elapsed() < Duration::from_secs(25), "too slow to tell a jump from a lapse");
    let renewed = nodes[1].renew(granted.text("execution_id"), granted.epoch(), 30_000).await?;
    ensure!(renewed.status.is_success(), "{renewed:?}");
    Ok(())
}
