//! Authority epochs on a real cluster: from the moment a bump is acknowledged, nothing that is bound to a lower value is accepted
//! by any node, and what was open under it becomes unknown without anybody's touching it. (REQUIREMENTS 36, 50, 51, 62, 136)

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use hapax_tests::authority::configured_token;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::SECTION;
use serde_json::json;
use tokio::task::JoinHandle;

/// How long an open execution may take to be fenced where nobody touches it: the sweep's pace, on a busy machine.
const FENCED_WITHIN: Duration = Duration::from_secs(5);

fn options(sections: &str) -> Options {
    Options { sections: format!("{SECTION}{sections}"), ..Options::default() }
}

async fn bumped(node: &Caller, scope: &str, expected: u64) -> Result<u64> {
    let answer = node.bump(scope, expected).await?.is(200, "")?;
    answer.body["value"].as_u64().context("no value")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bump_holds_on_every_node_from_its_acknowledgement_on() -> Result<()> {
    let (claimer, section) = configured_token(7, "dev", "claimer", &["claim", "issue", "read", "reconcile"]);
    let cluster = Cluster::start(options(&section)).await?;
    let nodes = cluster.callers();
    let (mut stands, mut bound) = (0, Vec::new());
    for round in 0..12 {
        let value = bumped(&nodes[round % 3], "refunds", stands).await?;
        ensure!(value > stands, "{value} after {stands}");
        for (at, node) in nodes.iter().enumerate() {
            let key = format!("epoch/{round}/{at}");
            // Each node is asked for the old value first, before anything could have told it of the new one.
            node.claim(&Claim::of(&*key).under("refunds", stands)).await?.is(403, "epoch.stale")?;
            ensure!(node.authority("refunds").await? == value, "node {at} is behind its acknowledged bump");
            node.claim(&Claim::of(&*key).under("refunds", value + 1)).await?.is(403, "epoch.unknown")?;
            let other = node.bump("refunds", stands).await?.is(412, "precondition.failed")?;
            ensure!(other.text("detail").contains(&value.to_string()), "the standing value is not told: {other:?}");
            let granted = node.claim(&Claim::of(&*key).under("refunds", value)).await?.is(201, "claimed")?;
            bound.push(granted.text("operation_id").to_owned());
        }
        stands = value;
    }
    for node in &nodes {
        ensure!(node.authority("never-bumped").await? == 0);
        node.bump("never-bumped", stands).await?.is(412, "precondition.failed")?;
        let refused = node.with_token(&claimer);
        refused.bump("refunds", stands).await?.is(403, "auth.forbidden")?;
        ensure!(refused.authority("refunds").await? == stands);
    }
    one_of_many(&nodes, stands).await?;
    // Every execution of all those rounds is bound to a value that was left since.
    for operation in &bound {
        nodes[1].operation(operation).await?.in_state("unknown")?;
    }
    capabilities_die(&nodes).await
}

/// 32 callers bump from the same value: one moves the register, and all others are told where it stands.
async fn one_of_many(nodes: &[Caller], stands: u64) -> Result<()> {
    let racing = (0..32).map(|n| {
        let node = nodes[n % 3].clone();
        tokio::spawn(async move { node.bump("refunds", stands).await })
    });
    let mut moved = Vec::new();
    let mut told = Vec::new();
    for answer in join_all(racing).await {
        let answer = answer??;
        match answer.status.as_u16() {
            200 => moved.push(answer.body["value"].as_u64().context("no value")?),
            _ => told.push(answer.is(412, "precondition.failed")?.text("detail").to_owned()),
        }
    }
    ensure!(
        moved.len() == 1 && told.iter().all(|detail| detail.contains(&moved[0].to_string())),
        "{moved:?} {told:?}"
    );
    Ok(())
}

/// Authority that was issued under a value dies with it, unspent, and none is issued under a value that was left.
async fn capabilities_die(nodes: &[Caller]) -> Result<()> {
    let claim = Claim { namespace: "refunds", ..Claim::of("epoch/capability") };
    let operation = nodes[0].register(&claim).await?.is(201, "")?.text("operation_id").to_owned();
    let value = bumped(&nodes[0], "policy", 0).await?;
    let under = |value: u64| json!({ "epoch": { "scope": "policy", "value": value } });
    nodes[1].issue(&operation, "DEC-1", 1, under(0)).await?.is(403, "epoch.stale")?;
    nodes[1].issue(&operation, "DEC-1", 1, under(value + 1)).await?.is(403, "epoch.unknown")?;
    let issued = nodes[1].issue(&operation, "DEC-1", 1, under(value)).await?.is(201, "")?;
    let capability = issued.text("capability_id");
    ensure!(issued.body["epoch"]["value"] == value, "{issued:?}");
    let now = bumped(&nodes[2], "policy", value).await?;
    for node in nodes {
        node.claim(&claim.again().presenting(capability)).await?.is(403, "epoch.stale")?;
        node.capability_is(capability, "issued", 1).await?;
    }
    let current = nodes[2].issue(&operation, "DEC-2", 1, under(now)).await?.is(201, "")?;
    let granted = claim.presenting(current.text("capability_id"));
    nodes[0].claim(&granted).await?.is(201, "claimed").map(drop)
}

/// An execution under a value of the register, and what a long-poll is going to see of it.
struct Open {
    claim: Claim,
    granted: Answer,
    polled: JoinHandle<Result<Answer>>,
}

impl Open {
    /// Elects, and starts to wait for a change through another node.
    async fn start(node: &Caller, poller: &Caller, claim: Claim) -> Result<Self> {
        let granted = node.claim(&claim).await?.is(201, "claimed")?;
        let operation = granted.text("operation_id").to_owned();
        let read = poller.operation(&operation).await?.in_state("executing")?;
        let (poller, tag) = (poller.clone(), read.header("etag").to_owned());
        let polled = tokio::spawn(async move { poller.changed(&operation, &tag).await });
        Ok(Self { claim, granted, polled })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_executions_under_a_lower_value_become_unknown_untouched() -> Result<()> {
    let cluster = Cluster::start(options("")).await?;
    let nodes = cluster.callers();
    let value = bumped(&nodes[0], "refunds", 0).await?;
    let other = bumped(&nodes[0], "payouts", 0).await?;
    let inline = Claim::of("open/inline").under("refunds", value);
    let takeover = Claim { namespace: "takeover", ..Claim::of("open/takeover").under("refunds", value) };
    let by_capability = Claim { namespace: "refunds", ..Claim::of("open/capability") };
    let operation = nodes[0].register(&by_capability).await?.is(201, "")?.text("operation_id").to_owned();
    let terms = json!({ "epoch": { "scope": "refunds", "value": value } });
    let issued = nodes[0].issue(&operation, "DEC-1", 1, terms).await?.is(201, "")?;
    let by_capability = by_capability.presenting(issued.text("capability_id"));
    let mut open = Vec::new();
    for (n, claim) in [inline, takeover, by_capability].into_iter().enumerate() {
        open.push(Open::start(&nodes[n % 3], &nodes[(n + 1) % 3], claim).await?);
    }
    let bystander = Open::start(&nodes[0], &nodes[1], Claim::of("open/bystander").under("payouts", other)).await?;
    let unbound = Open::start(&nodes[1], &nodes[2], Claim::of("open/unbound")).await?;

    let begun = Instant::now();
    let now = bumped(&nodes[2], "refunds", value).await?;
    let mut fenced = Vec::new();
    for one in open {
        let seen = one.polled.await??.in_state("unknown")?;
        ensure!(begun.elapsed() < FENCED_WITHIN, "fenced only after {:?}", begun.elapsed());
        ensure!(seen.text("operation_id") == one.granted.text("operation_id"), "{seen:?}");
        fenced.push((one.claim, one.granted));
    }
    for one in [bystander, unbound] {
        ensure!(!one.polled.is_finished(), "an execution that is bound to nothing lower was touched");
        one.polled.abort();
        nodes[2].operation(one.granted.text("operation_id")).await?.in_state("executing")?;
        nodes[2].renew(one.granted.text("execution_id"), one.granted.epoch(), 60_000).await?.is(200, "")?;
    }
    for (claim, granted) in &fenced {
        owner_is_fenced(&nodes, claim, granted, now).await?;
    }
    seen_unknown_at_once(&nodes, now).await
}

/// The owner may act no more, nobody may take its place, and it may still tell what it knows.
async fn owner_is_fenced(nodes: &[Caller], claim: &Claim, granted: &Answer, now: u64) -> Result<()> {
    let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
    for node in nodes {
        let read = node.operation(granted.text("operation_id")).await?.in_state("unknown")?;
        ensure!(read.body["execution"]["lease_epoch"].as_u64().is_some_and(|drawn| drawn > epoch), "{read:?}");
        node.renew(execution, epoch, 60_000).await?.is(409, "lease.stale-epoch")?;
        for outcome in ["completed", "failed", "not_applied", "unknown"] {
            node.report(execution, epoch, outcome).await?.is(409, "lease.stale-epoch")?;
        }
        node.claim(claim).await?.is(409, "lease.lost")?;
        if claim.namespace != "refunds" {
            // A current claim changes nothing: under takeover, too, the fence leads to unknown and not to another holder.
            let mut current = claim.again();
            current.more["epoch"]["value"] = json!(now);
            node.claim(&current).await?.is(409, "operation.outcome-unknown")?;
        }
    }
    nodes[0].evidence(execution, claim, "completed").await?.in_state("completed")?;
    nodes[1].operation(granted.text("operation_id")).await?.in_state("completed").map(drop)
}

/// A read that follows the acknowledgement shows the fence, whether or not anybody has written it down.
async fn seen_unknown_at_once(nodes: &[Caller], mut stands: u64) -> Result<()> {
    for round in 0..9 {
        let claim = Claim::of(format!("open/read-{round}")).under("refunds", stands);
        let granted = nodes[round % 3].claim(&claim).await?.is(201, "claimed")?;
        stands = bumped(&nodes[(round + 1) % 3], "refunds", stands).await?;
        let reader = &nodes[(round + 2) % 3];
        let read = reader.operation(granted.text("operation_id")).await?.in_state("unknown")?;
        let drawn = read.body["execution"]["lease_epoch"].as_u64();
        ensure!(drawn.is_none_or(|drawn| drawn > granted.epoch()), "a fenced epoch is shown as current: {read:?}");
        reader
            .report(granted.text("execution_id"), granted.epoch(), "completed")
            .await?
            .is(409, "lease.stale-epoch")?;
    }
    Ok(())
}
