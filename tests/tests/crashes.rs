//! Workers die at each of their steps: before and after ownership, effect, outcome, answer and acknowledgement, and in the middle of
//! the two calls; alone, together with the leader, and together with every node. The broker redelivers, the reconciler asks, people
//! decide about what nobody finds; and the provider's ledger shows one refund for each message, whoever died when.
//! (REQUIREMENTS 26, 27, 50, 56, 62, 66, 67, 108, 109, 113, 135, 137; 001 §15.3)

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use futures::FutureExt;
use futures::future::{BoxFuture, select_all, try_join_all};
use hapax_client::Reported;
use hapax_client::provider::proven_by;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::{Message, Refunds, SECTION};
use hapax_tests::wait::until;
use serde_json::json;

/// Long enough for a worker to come to its step, and no longer: what it held is to lapse.
const LEASE_MS: u64 = 4_000;
/// Workers that die at each step.
const EACH: usize = 4;

/// Where a worker dies: after what the name says, or in the middle of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Received,
    Claiming,
    Claimed,
    Refunded,
    Reporting,
    Reported,
}

const STEPS: [Step; 6] =
    [Step::Received, Step::Claiming, Step::Claimed, Step::Refunded, Step::Reporting, Step::Reported];

/// Who dies with the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    Nobody,
    TheLeader,
    EveryNode,
}

/// How far the calls are that are cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calls {
    /// Each where it is when the first one is answered.
    Anywhere,
    /// On the leader's disk, and on no other.
    Unreplicated,
    /// On every disk, and the leader was not told.
    Unacknowledged,
}

const ROUNDS: [(With, Calls); 7] = [
    (With::Nobody, Calls::Anywhere),
    (With::TheLeader, Calls::Anywhere),
    (With::TheLeader, Calls::Unreplicated),
    (With::TheLeader, Calls::Unacknowledged),
    (With::EveryNode, Calls::Anywhere),
    (With::EveryNode, Calls::Unreplicated),
    (With::EveryNode, Calls::Unacknowledged),
];

/// A call that its worker will not hear the end of.
type Calling = Option<BoxFuture<'static, Result<Answer>>>;

/// A worker handles a message as far as `step`, and never acknowledges it.
async fn works_until(step: Step, node: &Caller, refunds: &Refunds, message: &Message) -> Result<Calling> {
    if step == Step::Received {
        return Ok(None);
    }
    let claim = Claim { lease_ms: LEASE_MS, ..refunds.claim(message)? };
    if step == Step::Claiming {
        let node = node.clone();
        return Ok(Some(async move { node.claim(&claim).await }.boxed()));
    }
    let granted = node.claim(&claim).await?.is(201, "claimed")?;
    if step == Step::Claimed {
        return Ok(None);
    }
    let answer = refunds.provider.refund(granted.text("effect_key"), &refunds.payment(&message.operation)?).await;
    ensure!(proven_by(&[answer.send]) == Reported::Completed, "{answer:?}");
    if step == Step::Refunded {
        return Ok(None);
    }
    let path = format!("/v1/executions/{}/outcome", granted.text("execution_id"));
    let body = json!({ "lease_epoch": granted.epoch(), "outcome": "completed", "external_id": answer.id });
    if step == Step::Reporting {
        let node = node.clone();
        return Ok(Some(async move { node.post(&path, &body).await }.boxed()));
    }
    node.post(&path, &body).await?.in_state("completed")?;
    Ok(None)
}

/// Workers come to their steps at once, and die there.
async fn all_die(cluster: &mut Cluster, refunds: &Refunds, with: With, calls: Calls) -> Result<Vec<(Step, Message)>> {
    let nodes = cluster.callers();
    let mut messages = Vec::new();
    for number in 0..STEPS.len() * EACH {
        let order = format!("{with:?}-{calls:?}-{number}");
        messages.push((STEPS[number % STEPS.len()], refunds.approve(&order, "12.00").await?));
    }
    let leader = cluster.leader().await?;
    let works = messages.iter().enumerate().map(|(at, (step, message))| {
        // Where links are cut, the calls come from the leader's own region: through another node they would not arrive.
        let away = if calls == Calls::Anywhere { at / STEPS.len() } else { 0 };
        works_until(*step, &nodes[(leader + away) % 3], refunds, message)
    });
    let last: Vec<_> = try_join_all(works).await?.into_iter().flatten().collect();
    ensure!(last.len() == 2 * EACH, "{} calls", last.len());
    cut(cluster, leader, calls);
    let begun: Vec<_> = last.into_iter().map(tokio::spawn).collect();
    let begun = if calls == Calls::Anywhere {
        let (_first, _, others) = select_all(begun).await;
        others
    } else {
        for (at, node) in nodes.iter().enumerate() {
            if at == leader || calls == Calls::Unacknowledged {
                until(async || holds_what_it_cannot_apply(node).await).await?;
            }
        }
        begun
    };
    match with {
        With::Nobody => {}
        With::TheLeader => {
            cluster.nodes[leader].kill()?;
            cluster.network.heal();
            cluster.leader().await?;
        }
        With::EveryNode => {
            for node in &mut cluster.nodes {
                node.kill()?;
            }
            cluster.network.heal();
        }
    }
    begun.iter().for_each(tokio::task::JoinHandle::abort);
    for node in cluster.nodes.iter_mut().filter(|node| !node.runs()) {
        node.start()?;
    }
    cluster.ready().await?;
    Ok(messages)
}

/// The node's log goes on behind what it knows to be agreed.
async fn holds_what_it_cannot_apply(node: &Caller) -> Result<()> {
    let view = node.cluster().await?;
    let mut members = view["members"].as_array().into_iter().flatten();
    let own = members.find(|member| member["id"] == view["node_id"]);
    ensure!(own.is_some_and(|own| own["lag"].as_u64() > Some(0)), "nothing is under way: {view}");
    Ok(())
}

/// Loses what the calls are not to get.
fn cut(cluster: &Cluster, leader: usize, calls: Calls) {
    let from = cluster.nodes[leader].id;
    for other in cluster.nodes.iter().map(|node| node.id).filter(|id| *id != from) {
        match calls {
            Calls::Anywhere => {}
            Calls::Unreplicated => cluster.network.cut(from, other),
            Calls::Unacknowledged => cluster.network.cut(other, from),
        }
    }
}

/// The broker redelivers to workers that live, once through each node. Whoever was elected before is told so, and nothing is sent.
async fn redelivered(nodes: &[Caller], refunds: &Refunds, step: Step, message: &Message) -> Result<bool> {
    let mut elected = false;
    for node in nodes {
        let delivered = refunds.deliver(node, message).await?;
        match delivered.claim.verdict() {
            "claimed" if !elected && matches!(step, Step::Received | Step::Claiming) => {
                elected = true;
                let Some(report) = delivered.report else { bail!("elected, and the provider was not called") };
                report.in_state("completed")?;
            }
            "duplicate_delivery" if elected || step != Step::Received => {}
            _ => bail!("died when {step:?}, and then {:?}", delivered.claim),
        }
    }
    Ok(elected)
}

/// Nobody found the refund. A person asks the provider's people, and decides again about the same operation.
async fn decided_by_people(nodes: &[Caller], refunds: &Refunds, message: &Message) -> Result<()> {
    refunds.ledger_shows(&message.operation, 0, 0)?;
    let read = nodes[0].operation(&message.operation).await?.in_state("unknown")?;
    ensure!(read.body["escalated"] == true, "{read:?}");
    let execution = read.body["execution"]["execution_id"].as_str().unwrap_or_default();
    let epoch = read.body["execution"]["lease_epoch"].as_u64().unwrap_or_default();
    let why = json!({ "proof": "the provider's own log has no such request" });
    nodes[1].resolve(execution, epoch, "not_applied", why).await?.in_state("not_applied")?;
    // What the dead worker was sent is good for nothing any more.
    refunds.deliver(&nodes[2], message).await?.claim.is(200, "duplicate_delivery")?;
    let copy = message.resubmitted(&format!("{}-COPY", message.id));
    refunds.deliver(&nodes[2], &copy).await?.claim.is(409, "capability.already-consumed")?;
    let second = refunds.decide(&message.operation, "DEC-AGAIN", 2, json!({})).await?;
    let second = message.with_authority(&format!("{}-2", message.id), &second);
    let delivered = refunds.deliver(&nodes[0], &second).await?;
    delivered.claim.is(201, "claimed").map(drop)
}

/// How many that died at a step were recovered in which way.
type Ends = BTreeMap<(Step, &'static str), usize>;

/// Every message is recovered, by whoever that takes, and how each was is told.
async fn recovered(nodes: &[Caller], refunds: &Refunds, lost: &[(Step, Message)]) -> Result<Ends> {
    let mut ends = Ends::new();
    let mut open = Vec::new();
    for (step, message) in lost {
        if redelivered(nodes, refunds, *step, message).await? {
            *ends.entry((*step, "redelivered")).or_default() += 1;
        } else {
            open.push((*step, message));
        }
    }
    for (_, message) in &open {
        until(async || {
            let state = refunds.state(&nodes[1], &message.operation).await?;
            ensure!(state != "executing", "its worker is dead, and it still executes");
            Ok(())
        })
        .await?;
    }
    let mut unknown = Vec::new();
    for (step, message) in open {
        match refunds.state(&nodes[2], &message.operation).await?.as_str() {
            "completed" => *ends.entry((step, "reported")).or_default() += 1,
            "unknown" => {
                // New authority for the same attempt does not get past what nobody knows.
                let reissued = refunds.decide(&message.operation, "DEC-REISSUED", 1, json!({})).await?;
                let reissued = message.with_authority(&format!("{}-REISSUED", message.id), &reissued);
                refunds.deliver(&nodes[0], &reissued).await?.claim.is(409, "operation.outcome-unknown")?;
                unknown.push((step, message));
            }
            other => bail!("died when {step:?}, and is {other}"),
        }
    }
    refunds.reconcile(&nodes[0]).await?;
    for (step, message) in unknown {
        if refunds.state(&nodes[1], &message.operation).await? == "completed" {
            *ends.entry((step, "found")).or_default() += 1;
        } else {
            decided_by_people(nodes, refunds, message).await?;
            *ends.entry((step, "decided")).or_default() += 1;
        }
    }
    for (step, end) in [
        (Step::Received, "redelivered"),
        (Step::Claimed, "decided"),
        (Step::Refunded, "found"),
        (Step::Reported, "reported"),
    ] {
        ensure!(ends.get(&(step, end)) == Some(&EACH), "not all that had {step:?} were {end}: {ends:?}");
    }
    for (step, message) in lost {
        for node in nodes {
            let read = node.operation(&message.operation).await?.in_state("completed")?;
            let refund = refunds.provider.find(&message.operation).map(|refund| refund.id);
            ensure!(read.body["outcome"]["external_id"].as_str() == refund.as_deref(), "{step:?}: {read:?}");
            refunds.deliver(node, message).await?.claim.is(200, "duplicate_delivery")?;
        }
        refunds.ledger_shows(&message.operation, 1, 1)?;
    }
    Ok(ends)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_may_die_at_any_step_with_the_leader_or_with_every_node() -> Result<()> {
    let mut cluster = Cluster::start(Options { sections: SECTION.to_owned(), ..Options::default() }).await?;
    let nodes = cluster.callers();
    let refunds = Refunds::new(nodes[0].clone());
    let mut calling = Ends::new();
    for (with, calls) in ROUNDS {
        let lost = all_die(&mut cluster, &refunds, with, calls).await?;
        let ends = recovered(&nodes, &refunds, &lost).await?;
        println!("{with:?}, calls {calls:?}: {ends:?}");
        for (end, count) in ends {
            *calling.entry(end).or_default() += count;
        }
    }
    // A call that is cut short was made or was not, and both have been seen.
    for end in [
        (Step::Claiming, "redelivered"),
        (Step::Claiming, "decided"),
        (Step::Reporting, "found"),
        (Step::Reporting, "reported"),
    ] {
        ensure!(calling.contains_key(&end), "nobody was {end:?}: {calling:?}");
    }
    Ok(())
}
