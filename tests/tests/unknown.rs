//! Unknown outcomes on a real cluster: leased oldest first to one reconciler at a time, paced, resolved with proof, escalated, and
//! told by ex-owners; the gate stays closed throughout. (REQUIREMENTS 26, 28, 29, 32, 33, 50, 51, 58–60, 113, 130–132; seed 000)

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use hapax_tests::admin::millis;
use hapax_tests::authority::configured_token;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::wait::until;
use serde_json::{Value, json};

const LEASE_MS: u64 = 30_000;

/// An execution whose owner does not know what it did.
struct Doubt {
    claim: Claim,
    granted: Answer,
}

impl Doubt {
    async fn new(node: &Caller, namespace: &'static str, key: String) -> Result<Self> {
        let claim = Claim { namespace, ..Claim::of(&*key) }.with("correlation_id", format!("COR-{key}"));
        let granted = node.claim(&claim).await?.is(201, "claimed")?;
        node.report(granted.text("execution_id"), granted.epoch(), "unknown").await?.in_state("unknown")?;
        Ok(Self { claim, granted })
    }

    async fn some(nodes: &[Caller], namespace: &'static str, name: &str, count: usize) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for n in 0..count {
            all.push(Self::new(&nodes[n % nodes.len()], namespace, format!("{name}/{n}")).await?);
        }
        Ok(all)
    }

    fn execution(&self) -> &str {
        self.granted.text("execution_id")
    }

    fn operation(&self) -> &str {
        self.granted.text("operation_id")
    }

    /// The gate is closed to every claim but that of an outcome's receipt.
    async fn gate_is_closed(&self, node: &Caller) -> Result<()> {
        node.claim(&self.claim.again()).await?.is(409, "operation.outcome-unknown")?;
        node.claim(&self.claim).await?.is(409, "lease.lost").map(drop)
    }
}

/// A page of a reconciler: its items by execution, in their order.
async fn leased(node: &Caller, namespace: &str, owner: &str, limit: u64) -> Result<Vec<(String, Value)>> {
    let answer = node.reconcile(namespace, owner, limit, LEASE_MS).await?.is(200, "")?;
    let items = answer.body["items"].as_array().context("no items")?;
    Ok(items
        .iter()
        .map(|item| (item["execution_id"].as_str().unwrap_or_default().to_owned(), item.clone()))
        .collect())
}

fn epoch_of(item: &Value) -> u64 {
    item["lease_epoch"].as_u64().unwrap_or_default()
}

fn names(items: &[(String, Value)]) -> BTreeSet<&str> {
    items.iter().map(|(execution, _)| execution.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_are_leased_first_and_to_one_owner_at_a_time() -> Result<()> {
    let slow = "[[bootstrap.namespaces]]\nname = \"slow\"\nreconcile_per_minute = 3\n";
    let (claimer, section) = configured_token(7, "dev", "claimer", &["claim", "read", "issue", "operate"]);
    let cluster = Cluster::start(Options { sections: format!("{slow}{section}"), ..Options::default() }).await?;
    let nodes = cluster.callers();
    let doubts = Doubt::some(&nodes, "default", "oldest", 6).await?;
    let by_execution: BTreeMap<&str, &Doubt> = doubts.iter().map(|doubt| (doubt.execution(), doubt)).collect();
    let refused = nodes[0].with_token(&claimer).reconcile("default", "r1", 2, LEASE_MS).await?;
    refused.is(403, "auth.forbidden")?;

    let first = leased(&nodes[0], "default", "r1", 2).await?;
    ensure!(first.len() == 2, "{first:?}");
    for (execution, item) in &first {
        let doubt = by_execution.get(execution.as_str()).context("leased what was not unknown")?;
        ensure!(item["effect_key"] == doubt.granted.body["effect_key"] && item["attempt"] == 1, "{item}");
        ensure!(item["operation_id"] == doubt.operation() && item["namespace"] == "default", "{item}");
        ensure!(item["correlation_id"] == doubt.claim.more["correlation_id"], "{item}");
        ensure!(epoch_of(item) > doubt.granted.epoch(), "a lease drew no epoch: {item}");
        ensure!(item["lease_expires_in_ms"].as_u64().is_some_and(|left| left <= LEASE_MS), "{item}");
        let read = nodes[2].operation(doubt.operation()).await?.in_state("unknown")?;
        ensure!(read.body["reconciler"]["owner"] == "r1", "{read:?}");
        doubt.gate_is_closed(&nodes[1]).await?;
    }
    // The same owner gets the same, through any node; what is left over goes to others, and to one each.
    for node in &nodes {
        let again = leased(node, "default", "r1", 2).await?;
        let epochs = |items: &[(String, Value)]| items.iter().map(|(_, item)| epoch_of(item)).collect::<Vec<_>>();
        ensure!(names(&again) == names(&first) && epochs(&again) == epochs(&first), "{again:?} is not {first:?}");
    }
    let second = leased(&nodes[1], "default", "r2", 3).await?;
    let third = leased(&nodes[2], "default", "r3", 100).await?;
    ensure!((second.len(), third.len()) == (3, 1), "{second:?} {third:?}");
    let since = |items: &[(String, Value)]| -> Vec<u64> {
        items.iter().map(|(_, item)| millis(item["unknown_since"].as_str().unwrap_or_default())).collect()
    };
    let order = [since(&first), since(&second), since(&third)].concat();
    ensure!(order.is_sorted() && order[0] > 0, "not oldest first: {order:?}");
    let all: BTreeSet<&str> = [names(&first), names(&second), names(&third)].into_iter().flatten().collect();
    ensure!(all.len() == doubts.len(), "an execution was leased twice");
    ensure!(leased(&nodes[0], "default", "r4", 100).await?.is_empty(), "a leased execution was leased again");
    racing_reconcilers(&nodes).await?;
    paced(&nodes).await
}

/// Sixteen reconcilers ask at once, each for four of thirty: nobody holds what another one holds.
async fn racing_reconcilers(nodes: &[Caller]) -> Result<()> {
    ensure!(leased(&nodes[0], "takeover", "nobody", 1).await?.is_empty(), "another namespace's are leased");
    Doubt::some(nodes, "takeover", "racing", 30).await?;
    let racing = (0..16).map(|n| {
        let node = nodes[n % 3].clone();
        tokio::spawn(async move { leased(&node, "takeover", &format!("racer-{n}"), 4).await })
    });
    let mut held = BTreeSet::new();
    for items in join_all(racing).await {
        for (execution, item) in items?? {
            ensure!(held.insert(execution), "two reconcilers hold {item}");
        }
    }
    // Some may have come away with less, because others were faster; nothing is lost by that.
    for (execution, _) in leased(&nodes[0], "takeover", "last", 100).await? {
        held.insert(execution);
    }
    ensure!(held.len() == 30, "{} of 30 are leased", held.len());
    Ok(())
}

/// A namespace is not asked about faster than its policy allows, however many ask. (REQUIREMENTS 58)
async fn paced(nodes: &[Caller]) -> Result<()> {
    Doubt::some(nodes, "slow", "paced", 5).await?;
    let items = leased(&nodes[0], "slow", "r1", 100).await?;
    ensure!(items.len() == 3, "{} of a pace of 3", items.len());
    ensure!(leased(&nodes[1], "slow", "r2", 100).await?.is_empty(), "the pace was exceeded");
    let again = leased(&nodes[2], "slow", "r1", 100).await?;
    ensure!(names(&again) == names(&items), "what is held counts once: {again:?}");
    for (execution, item) in &items {
        nodes[0].resolve(execution, epoch_of(item), "completed", json!({})).await?.in_state("completed")?;
    }
    ensure!(leased(&nodes[1], "slow", "r1", 100).await?.is_empty(), "the pace was exceeded");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unknown_is_resolved_told_escalated_or_given_back() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    resolved(&nodes).await?;
    told_late(&nodes).await?;
    escalated(&nodes).await?;
    given_back(&nodes).await
}

/// Only the current epoch resolves, and only with proof; the provider's id is kept and found again.
async fn resolved(nodes: &[Caller]) -> Result<()> {
    let doubt = Doubt::new(&nodes[0], "default", "resolve/1".to_owned()).await?;
    let items = leased(&nodes[1], "default", "r1", 1).await?;
    let (execution, item) = items.first().context("nothing leased")?;
    let now = epoch_of(item);
    for stale in [doubt.granted.epoch(), now - 1, now + 1] {
        let answer = nodes[2].resolve(execution, stale, "completed", json!({})).await?;
        answer.is(409, "lease.stale-epoch")?;
    }
    let path = format!("/v1/executions/{execution}/resolve");
    let unproven = nodes[2].post(&path, &json!({ "lease_epoch": now, "outcome": "completed" })).await?;
    ensure!(unproven.is(400, "request.invalid")?.text("pointer") == "/proof");
    doubt.gate_is_closed(&nodes[0]).await?;
    let more = json!({ "external_id": "re_resolve_1", "result": { "refund": "re_resolve_1" } });
    for node in nodes {
        node.resolve(execution, now, "completed", more.clone()).await?.in_state("completed")?;
        let found = json!({ "namespace": "default", "external_id": "re_resolve_1" });
        let found = node.post("/v1/operations/lookup", &found).await?.is(200, "")?;
        ensure!(found.body["operations"][0]["operation_id"] == doubt.operation(), "{found:?}");
        let replayed = node.claim(&doubt.claim.again()).await?.is(200, "replayed")?;
        ensure!(replayed.body["outcome"]["external_id"] == "re_resolve_1", "{replayed:?}");
        ensure!(replayed.body["outcome"]["result"] == more["result"], "{replayed:?}");
    }
    // Proven to have done nothing: the next claim is a new attempt.
    let doubt = Doubt::new(&nodes[0], "default", "resolve/2".to_owned()).await?;
    let items = leased(&nodes[2], "default", "r1", 1).await?;
    let (execution, item) = items.first().context("nothing leased")?;
    let declined = json!({ "reason": "the provider declined it" });
    nodes[1].resolve(execution, epoch_of(item), "not_applied", declined).await?.in_state("not_applied")?;
    let next = nodes[2].claim(&doubt.claim.again()).await?.is(201, "claimed")?;
    ensure!(next.body["attempt"] == 2 && next.text("operation_id") == doubt.operation(), "{next:?}");
    nodes[2].report(next.text("execution_id"), next.epoch(), "completed").await?.in_state("completed").map(drop)
}

/// The ex-owner tells what it knows while somebody else is finding out; it regains nothing. (REQUIREMENTS 51)
async fn told_late(nodes: &[Caller]) -> Result<()> {
    let doubts = Doubt::some(nodes, "default", "late", 2).await?;
    let items: BTreeMap<String, Value> = leased(&nodes[0], "default", "r1", 2).await?.into_iter().collect();
    let (done, undone) = (&doubts[0], &doubts[1]);
    let stranger = done.claim.again();
    nodes[1].evidence(done.execution(), &stranger, "completed").await?.is(404, "not-found")?;
    nodes[1].evidence(done.execution(), &done.claim, "completed").await?.in_state("completed")?;
    let now = epoch_of(&items[done.execution()]);
    for node in nodes {
        // The reconciler comes to the same, or contradicts it: the first outcome stands.
        node.resolve(done.execution(), now, "completed", json!({})).await?.in_state("completed")?;
        node.report(done.execution(), done.granted.epoch(), "completed").await?.is(409, "lease.stale-epoch")?;
        node.renew(done.execution(), done.granted.epoch(), LEASE_MS).await?.is(409, "lease.stale-epoch")?;
        node.claim(&done.claim.again()).await?.is(200, "replayed")?;
    }
    // That nothing happened is not one holder's to say once another may have acted on it. (REQUIREMENTS 33)
    nodes[2].evidence(undone.execution(), &undone.claim, "not_applied").await?.in_state("unknown")?;
    undone.gate_is_closed(&nodes[0]).await?;
    let now = epoch_of(&items[undone.execution()]);
    nodes[1].resolve(undone.execution(), now, "failed", json!({})).await?.in_state("failed").map(drop)
}

async fn escalate(node: &Caller, doubt: &Doubt, epoch: u64, escalated: bool) -> Result<Answer> {
    let body = json!({ "lease_epoch": epoch, "escalated": escalated, "reason": "the provider cannot tell" });
    node.post(&format!("/v1/executions/{}/escalate", doubt.execution()), &body).await
}

/// What waits for people is not leased, and gates exactly as unknown does. (REQUIREMENTS 32)
async fn escalated(nodes: &[Caller]) -> Result<()> {
    let doubt = Doubt::new(&nodes[0], "default", "escalate/1".to_owned()).await?;
    let items = leased(&nodes[0], "default", "r1", 100).await?;
    let now = epoch_of(&items.first().context("nothing leased")?.1);
    escalate(&nodes[1], &doubt, doubt.granted.epoch(), true).await?.is(409, "lease.stale-epoch")?;
    let listed = async |state: &str| -> Result<bool> {
        let page = nodes[2].get(&format!("/v1/operations?namespace=default&state={state}")).await?.is(200, "")?;
        let found = page.body["operations"].as_array().context("no operations")?;
        Ok(found.iter().any(|one| one["operation_id"] == doubt.operation()))
    };
    for _ in 0..2 {
        escalate(&nodes[1], &doubt, now, true).await?.in_state("unknown")?;
        let read = nodes[2].operation(doubt.operation()).await?.in_state("unknown")?;
        ensure!(read.body["escalated"] == true && read.body["reconciler"].is_null(), "{read:?}");
        ensure!(listed("escalated").await? && !listed("unknown").await?);
        doubt.gate_is_closed(&nodes[0]).await?;
        for owner in ["r1", "r2"] {
            ensure!(leased(&nodes[2], "default", owner, 100).await?.is_empty(), "leased while it waits for people");
        }
    }
    escalate(&nodes[0], &doubt, now, false).await?.in_state("unknown")?;
    ensure!(listed("unknown").await? && !listed("escalated").await?);
    doubt.gate_is_closed(&nodes[1]).await?;
    let items = leased(&nodes[2], "default", "r2", 100).await?;
    let (execution, item) = items.first().context("not leased after it waits no longer")?;
    ensure!(execution == doubt.execution() && epoch_of(item) > now, "{item}");
    escalate(&nodes[1], &doubt, epoch_of(item), true).await?.in_state("unknown")?;
    // People find out, with the epoch that a reader sees.
    let read = nodes[0].operation(doubt.operation()).await?;
    let now = read.body["execution"]["lease_epoch"].as_u64().context("no epoch")?;
    nodes[0].resolve(doubt.execution(), now, "completed", json!({})).await?.in_state("completed")?;
    let record = nodes[1].record("operation_id", doubt.operation(), 100).await?;
    let said: Vec<_> = record.iter().filter(|entry| entry["kind"] == "word").map(|entry| &entry["said"]).collect();
    ensure!(said == ["escalate", "de_escalate", "escalate", "resolve"], "{record:?}");
    ensure!(record.iter().all(|word| word["reason"] == "the provider cannot tell" || word["said"] == "resolve"));
    let executing = nodes[0].claim(&Claim::of("escalate/2")).await?.is(201, "claimed")?;
    let path = format!("/v1/executions/{}/escalate", executing.text("execution_id"));
    let body = json!({ "lease_epoch": executing.epoch(), "reason": "impatience" });
    nodes[0].post(&path, &body).await?.is(409, "operation.state").map(drop)
}

/// A reconciler that goes away gives back what it held: time ends its lease, and the next one draws a new epoch.
async fn given_back(nodes: &[Caller]) -> Result<()> {
    const SHORT_MS: u64 = 2_000;
    let doubt = Doubt::new(&nodes[0], "default", "idle/1".to_owned()).await?;
    let asked = Instant::now();
    let gone = nodes[0].reconcile("default", "gone", 1, SHORT_MS).await?.is(200, "")?;
    let old = epoch_of(&gone.body["items"][0]);
    let (mut again, mut at) = (Vec::new(), Duration::ZERO);
    until(async || {
        again = leased(&nodes[1], "default", "next", 1).await?;
        at = asked.elapsed();
        ensure!(!again.is_empty(), "still leased");
        Ok(())
    })
    .await?;
    ensure!(at >= Duration::from_millis(SHORT_MS), "given to another after {at:?}");
    let (execution, item) = &again[0];
    ensure!(execution == doubt.execution() && epoch_of(item) > old, "{item}");
    nodes[2].resolve(execution, old, "completed", json!({})).await?.is(409, "lease.stale-epoch")?;
    doubt.gate_is_closed(&nodes[2]).await?;
    nodes[2].resolve(execution, epoch_of(item), "completed", json!({})).await?.in_state("completed").map(drop)
}
