//! Capabilities on a real cluster: issued by a decision, consumed by one election, refused ever after, through any node, in any
//! race, and after a crash. (REQUIREMENTS 30, 34–44, 61–63, 77, 79, 108, 109, 114; seed 000)

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::join_all;
use hapax_tests::admin::{ABSENT, from_now};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::SECTION;
use hapax_tests::wait::until;
use serde_json::json;
use tokio::sync::Barrier;

const SPENT: &str = "capability.already-consumed";

fn options() -> Options {
    Options { sections: SECTION.to_owned(), ..Options::default() }
}

/// A claim in the namespace that wants a capability with every one.
fn refund(key: &str) -> Claim {
    Claim { namespace: "refunds", ..Claim::of(key) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authority_is_issued_once_and_spent_once_through_any_node() -> Result<()> {
    let cluster = Cluster::start(options()).await?;
    let nodes = cluster.callers();
    let claim = refund("once/1");
    issued_once(&nodes, &claim).await?;
    let (operation, _) = nodes[0].approve(&refund("once/2"), "DEC-2").await?;
    let (_, capability) = nodes[0].approve(&refund("once/3"), "DEC-3").await?;
    nodes[1].claim(&refund("once/3")).await?.is(403, "capability.required")?;
    let mut nameless = json!({ "namespace": "refunds", "key": "once/3", "request": refund("once/3").request });
    nameless["capability_id"] = json!(capability);
    let refused = nodes[1].post("/v1/claims", &nameless).await?.is(400, "request.invalid")?;
    ensure!(refused.text("pointer") == "/claim_id", "{refused:?}");
    nodes[2].capability_is(&capability, "issued", 1).await?;

    let won = refund("once/3").presenting(&capability).because_of("MSG-1");
    let granted = nodes[1].claim(&won).await?.is(201, "claimed")?;
    let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
    let read = nodes[2].operation(granted.text("operation_id")).await?.in_state("executing")?;
    ensure!(read.body["execution"]["capability_id"] == capability.as_str(), "{read:?}");
    for node in &nodes {
        // The answer may have been lost: the same call gets it again.
        let again = node.claim(&won).await?.is(201, "claimed")?;
        for field in ["execution_id", "lease_epoch", "effect_key", "attempt"] {
            ensure!(again.body[field] == granted.body[field], "the same claim id got another {field}");
        }
        spent(node, &won, &operation).await?;
        let consumed = node.capability_is(&capability, "consumed", 0).await?;
        ensure!(consumed.body["consumed"]["execution_id"] == execution, "{consumed:?}");
        node.post(&format!("/v1/capabilities/{capability}/revoke"), &json!({})).await?.is(409, SPENT)?;
    }
    nodes[2].report(execution, epoch, "completed").await?.in_state("completed")?;
    for node in &nodes {
        spent(node, &won, &operation).await?;
        node.capability_is(&capability, "consumed", 0).await?;
        node.issue(granted.text("operation_id"), "DEC-4", 1, json!({})).await?.is(409, "operation.completed")?;
    }
    Ok(())
}

/// Registration and issue answer the same call alike, through every node, and refuse another one under the same name.
async fn issued_once(nodes: &[Caller], claim: &Claim) -> Result<()> {
    let registered = nodes[0].register(claim).await?.is(201, "")?.in_state("requested")?;
    let operation = registered.text("operation_id");
    for node in nodes {
        ensure!(node.register(claim).await?.is(200, "")?.text("operation_id") == operation, "another operation");
        let other = Claim { request: json!({ "amount": "999.00" }), ..claim.clone() };
        node.register(&other).await?.is(409, "key.digest-mismatch")?;
        let read = node.operation(operation).await?.in_state("requested")?;
        ensure!(read.body["attempt"] == 0 && read.body["execution"].is_null(), "{read:?}");
    }
    let terms = json!({ "expires_at": from_now(600_000) });
    let issued = nodes[1].issue(operation, "DEC-1", 1, terms.clone()).await?.is(201, "")?.in_state("issued")?;
    for node in nodes {
        let again = node.issue(operation, "DEC-1", 1, terms.clone()).await?.is(200, "")?;
        ensure!(again.text("capability_id") == issued.text("capability_id"), "one decision led to two capabilities");
        let longer = json!({ "expires_at": from_now(900_000) });
        node.issue(operation, "DEC-1", 1, longer).await?.is(409, "decision.reused")?;
        node.issue(operation, "DEC-1", 2, terms.clone()).await?.is(409, "attempt.mismatch")?;
    }
    let other = nodes[2].issue(operation, "DEC-1b", 1, terms).await?.is(201, "")?;
    ensure!(other.text("capability_id") != issued.text("capability_id"), "two decisions led to one capability");
    Ok(())
}

/// Whatever the second presentation looks like, it is refused for one reason, and moves nothing. (REQUIREMENTS 43)
async fn spent(node: &Caller, won: &Claim, other_operation: &str) -> Result<()> {
    let before = node.operation(other_operation).await?;
    let mut without_message = won.again();
    without_message.more.as_object_mut().map(|more| more.remove("message"));
    let copies = [
        without_message,
        // A resubmission under another broker's id; another worker; another attempt; an altered request.
        won.again().because_of("MSG-RESUBMITTED"),
        Claim { owner: "worker-b".to_owned(), ..won.again().because_of("MSG-B") },
        won.again().because_of("MSG-C").with("attempt", 2),
        Claim { request: json!({ "amount": "999.00" }), ..won.again().because_of("MSG-D") },
    ];
    for copy in &copies {
        node.claim(copy).await?.is(409, SPENT)?;
    }
    // For another operation, whether it is known or not, it is just as spent.
    for key in ["once/2", "once/absent"] {
        let elsewhere = Claim { more: won.more.clone(), ..refund(key) }.because_of("MSG-E");
        node.claim(&elsewhere).await?.is(409, SPENT)?;
    }
    let after = node.operation(other_operation).await?.in_state("requested")?;
    ensure!(before.header("etag") == after.header("etag"), "a refusal changed an operation: {after:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_reason_is_told_apart_and_spent_outranks_expired() -> Result<()> {
    let cluster = Cluster::start(options()).await?;
    let nodes = cluster.callers();
    let registered = nodes[0].register(&refund("why/1")).await?.is(201, "")?;
    let operation = registered.text("operation_id").to_owned();
    nodes[0]
        .issue(&operation, "DEC-0", 1, json!({ "expires_at": from_now(-60_000) }))
        .await?
        .is(403, "capability.expired")?;

    // One is used and one is not, and both expire.
    let soon = json!({ "expires_at": from_now(3_000) });
    let unused = nodes[1].issue(&operation, "DEC-1", 1, soon.clone()).await?.is(201, "")?;
    let used_on = nodes[0].register(&refund("why/2")).await?.is(201, "")?;
    let used = nodes[1].issue(used_on.text("operation_id"), "DEC-2", 1, soon).await?.is(201, "")?;
    let (unused, used) = (unused.text("capability_id"), used.text("capability_id"));
    nodes[2].claim(&refund("why/2").presenting(used)).await?.is(201, "claimed")?;
    until(async || nodes[2].capability_is(unused, "expired", 1).await).await?;
    for node in &nodes {
        node.claim(&refund("why/1").presenting(unused)).await?.is(403, "capability.expired")?;
        node.claim(&refund("why/2").presenting(used)).await?.is(409, SPENT)?;
        node.capability_is(used, "consumed", 0).await?;
    }

    let revoked = nodes[0].issue(&operation, "DEC-3", 1, json!({})).await?.is(201, "")?;
    let revoked = revoked.text("capability_id");
    let why = json!({ "reason": "a chargeback came in" });
    for node in &nodes {
        let answer = node.post(&format!("/v1/capabilities/{revoked}/revoke"), &why).await?;
        let answer = answer.is(200, "")?.in_state("revoked")?;
        ensure!(answer.body["revoked"]["reason"] == why["reason"], "{answer:?}");
        node.claim(&refund("why/1").presenting(revoked)).await?.is(403, "capability.revoked")?;
        let made_up = format!("{}{}", &revoked[..revoked.len() - 8], "0".repeat(8));
        for invalid in [made_up.as_str(), "cap_none"] {
            node.claim(&refund("why/1").presenting(invalid)).await?.is(403, "capability.invalid")?;
            node.capability(invalid).await?.is(404, "not-found")?;
        }
    }
    let good = nodes[2].issue(&operation, "DEC-4", 1, json!({})).await?.is(201, "")?;
    let good = good.text("capability_id");
    for key in ["why/2", "why/absent"] {
        nodes[1].claim(&refund(key).presenting(good)).await?.is(403, "capability.binding-mismatch")?;
    }
    let elsewhere = Claim::of("why/1").presenting(good);
    nodes[1].claim(&elsewhere).await?.is(403, "capability.binding-mismatch")?;
    nodes[0].capability_is(good, "issued", 1).await?;
    nodes[0].operation(&operation).await?.in_state("requested")?;
    nodes[0].claim(&refund("why/1").presenting(good)).await?.is(201, "claimed").map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_gate_leaves_authority_unspent_and_the_inbox_absent() -> Result<()> {
    let cluster = Cluster::start(options()).await?;
    let nodes = cluster.callers();
    let (operation, capability) = nodes[0].approve(&refund("gate/1"), "DEC-1").await?;
    let claim = refund("gate/1").presenting(&capability).because_of("MSG-1");
    let other_request = Claim { request: json!({ "amount": "999.00" }), ..claim.clone() };
    nodes[1].claim(&other_request).await?.is(409, "key.digest-mismatch")?;
    nodes[1].claim(&claim.clone().with("attempt", 2)).await?.is(409, "attempt.mismatch")?;
    nodes[0].repair(&operation, "quarantine", "requested").await?.in_state("requested")?;
    nodes[1].claim(&claim).await?.is(409, "operation.quarantined")?;
    nodes[2].capability_is(&capability, "issued", 1).await?;
    nodes[0].repair(&operation, "release", "requested").await?.in_state("requested")?;
    // The very same message and authority, refused three times before.
    let granted = nodes[1].claim(&claim).await?.is(201, "claimed")?;
    nodes[2].claim(&claim.again()).await?.is(200, "duplicate_delivery")?;

    // A second decision while the attempt is open, or unknown: good authority, but the gate is closed.
    let second = nodes[0].issue(&operation, "DEC-2", 1, json!({})).await?.is(201, "")?;
    let second = second.text("capability_id");
    let reissued = refund("gate/1").presenting(second).because_of("MSG-2");
    for node in &nodes {
        node.claim(&reissued.again()).await?.is(409, "operation.executing")?;
    }
    let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
    nodes[2].report(execution, epoch, "unknown").await?.in_state("unknown")?;
    for node in &nodes {
        node.claim(&reissued.again()).await?.is(409, "operation.outcome-unknown")?;
        node.capability_is(second, "issued", 1).await?;
    }
    nodes[2].resolve(execution, epoch, "not_applied", json!({})).await?.in_state("not_applied")?;
    for node in &nodes {
        // That nothing came of it gives nothing back. (REQUIREMENTS 114)
        node.claim(&claim.again().because_of("MSG-RESET")).await?.is(409, SPENT)?;
        node.capability_is(&capability, "consumed", 0).await?;
    }
    new_attempt(&nodes, &operation, &granted, &reissued).await
}

/// A new attempt needs a decision of its own: what was issued for the first one dies with it.
async fn new_attempt(nodes: &[Caller], operation: &str, first: &Answer, reissued: &Claim) -> Result<()> {
    let claim = refund("gate/1");
    nodes[0].claim(reissued).await?.is(409, "attempt.mismatch")?;
    nodes[0].claim(&claim).await?.is(403, "capability.required")?;
    nodes[1].issue(operation, "DEC-3", 1, json!({})).await?.is(409, "attempt.mismatch")?;
    let later = json!({ "effect_key_attempt": 3 });
    nodes[1].issue(operation, "DEC-3", 2, later).await?.is(400, "request.invalid")?;
    let third = nodes[1].issue(operation, "DEC-3", 2, json!({})).await?.is(201, "")?;
    let third = claim.again().presenting(third.text("capability_id"));
    // MSG-2 was refused all along, so that it is not in the inbox: it may bring the new authority.
    let granted = nodes[2].claim(&third.because_of("MSG-2")).await?.is(201, "claimed")?;
    ensure!(granted.body["attempt"] == 2 && granted.text("operation_id") == operation, "{granted:?}");
    ensure!(granted.text("execution_id") != first.text("execution_id") && granted.epoch() > first.epoch());
    ensure!(granted.text("effect_key") != first.text("effect_key"), "a new attempt kept the effect key");
    nodes[0].report(granted.text("execution_id"), granted.epoch(), "not_applied").await?.in_state("not_applied")?;

    // This provider wants the first key again, and the decision says so.
    let same_key = json!({ "effect_key_attempt": 1 });
    let fourth = nodes[0].issue(operation, "DEC-4", 3, same_key).await?.is(201, "")?;
    ensure!(fourth.body["effect_key_attempt"] == 1, "{fourth:?}");
    let granted =
        nodes[1].claim(&claim.again().presenting(fourth.text("capability_id"))).await?.is(201, "claimed")?;
    ensure!(granted.body["attempt"] == 3 && granted.text("effect_key") == first.text("effect_key"), "{granted:?}");
    let read = nodes[2].operation(operation).await?;
    ensure!(read.body["execution"]["effect_key"] == first.text("effect_key"), "{read:?}");
    Ok(())
}

const CALLERS: usize = 64;

/// Sends all claims at once, each through the next node, and returns the answers in their order.
async fn race(nodes: &[Caller], claims: Vec<Claim>) -> Result<Vec<Answer>> {
    let barrier = Arc::new(Barrier::new(claims.len()));
    let racing = claims.into_iter().enumerate().map(|(number, claim)| {
        let (caller, barrier) = (nodes[number % nodes.len()].clone(), Arc::clone(&barrier));
        tokio::spawn(async move {
            barrier.wait().await;
            caller.claim(&claim).await
        })
    });
    join_all(racing).await.into_iter().map(|answer| answer?).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_racing_presentations_one_is_elected_and_bounded_uses_never_exceed_their_bound() -> Result<()> {
    let cluster = Cluster::start(options()).await?;
    let nodes = cluster.callers();
    for round in 0..10 {
        let key = format!("race/{round}");
        let (operation, capability) = nodes[round % 3].approve(&refund(&key), "DEC-1").await?;
        let claims = (0..CALLERS)
            .map(|n| refund(&key).presenting(&capability).because_of(&format!("MSG-{round}-{n}")))
            .collect();
        let answers = race(&nodes, claims).await?;
        let elected: Vec<_> = answers.iter().filter(|answer| answer.verdict() == "claimed").collect();
        ensure!(elected.len() == 1, "round {round}: {} elected: {elected:?}", elected.len());
        let refused = answers.iter().filter(|answer| answer.verdict() == SPENT).count();
        ensure!(refused == CALLERS - 1, "round {round}: {refused} refused: {answers:?}");
        for node in &nodes {
            let read = node.operation(&operation).await?.in_state("executing")?;
            ensure!(read.body["execution"]["execution_id"] == elected[0].text("execution_id"), "{read:?}");
            ensure!(read.body["attempt"] == 1, "{read:?}");
        }
    }
    bounded(&nodes).await
}

/// Three uses for a resource, raced by sixty callers over ten of its operations.
async fn bounded(nodes: &[Caller]) -> Result<()> {
    let of_order = |key: &str, order: &str| refund(key).with("resource", order);
    let terms = |decision: &str, namespace: &str, uses: u32| {
        json!({ "namespace": namespace, "resource": "ORD-1", "decision_id": decision, "max_uses": uses,
                "expires_at": "2100-01-01T00:00:00.000Z" })
    };
    let path = "/v1/capabilities";
    nodes[0].post(path, &terms("DEC-X", "refunds", 1)).await?.is(400, "request.invalid")?;
    nodes[0].put("/v1/namespaces/split", ABSENT, &json!({ "partitions": 4 })).await?.is(201, "")?;
    let split = async || nodes[0].post(path, &terms("DEC-X", "split", 3)).await?.is(409, "policy.fixed");
    until(split).await?;
    let issued = nodes[0].post(path, &terms("DEC-B", "refunds", 3)).await?.is(201, "")?;
    let capability = issued.text("capability_id");
    for node in nodes {
        let again = node.post(path, &terms("DEC-B", "refunds", 3)).await?.is(200, "")?;
        ensure!(again.text("capability_id") == capability && again.body["uses_left"] == 3, "{again:?}");
        node.post(path, &terms("DEC-B", "refunds", 4)).await?.is(409, "decision.reused")?;
        let other = of_order("bounded/other", "ORD-2").presenting(capability);
        node.claim(&other).await?.is(403, "capability.binding-mismatch")?;
    }
    // Half of the operations are known already, the others come with the claim.
    for n in 0..5 {
        nodes[n % 3].register(&of_order(&format!("bounded/{n}"), "ORD-1")).await?.is(201, "")?;
    }
    let claims = (0..60).map(|n| of_order(&format!("bounded/{}", n % 10), "ORD-1").presenting(capability)).collect();
    let answers = race(nodes, claims).await?;
    let elected: Vec<_> = answers.iter().filter(|answer| answer.verdict() == "claimed").collect();
    let operations: BTreeSet<_> = elected.iter().map(|answer| answer.text("operation_id")).collect();
    ensure!((elected.len(), operations.len()) == (3, 3), "{elected:?}");
    let refused = answers.iter().filter(|answer| answer.verdict() == SPENT).count();
    ensure!(refused == 57, "{refused} refused: {answers:?}");
    for node in nodes {
        node.capability_is(capability, "consumed", 0).await?;
    }
    // A use that came to nothing is not given back.
    let first = elected[0];
    nodes[1].report(first.text("execution_id"), first.epoch(), "not_applied").await?.in_state("not_applied")?;
    let again = of_order("bounded/fresh", "ORD-1").presenting(capability);
    nodes[2].claim(&again).await?.is(409, SPENT).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_stays_spent_when_the_leader_is_killed() -> Result<()> {
    const LEASE_MS: u64 = 5_000;
    let mut cluster = Cluster::start(options()).await?;
    let nodes = cluster.callers();
    let leader = cluster.leader().await?;
    let survivors = [(leader + 1) % 3, (leader + 2) % 3];
    let (operation, capability) = nodes[leader].approve(&refund("crash/1"), "DEC-1").await?;
    let (_, unspent) = nodes[leader].approve(&refund("crash/2"), "DEC-2").await?;
    let held = refund("crash/3");
    let (_, long) = nodes[leader].approve(&held, "DEC-3").await?;
    let held = held.presenting(&long).because_of("MSG-3");
    let kept = nodes[leader].claim(&held).await?.is(201, "claimed")?;
    let claim = Claim { lease_ms: LEASE_MS, ..refund("crash/1").presenting(&capability).because_of("MSG-1") };
    let granted_at = Instant::now();
    let granted = nodes[leader].claim(&claim).await?.is(201, "claimed")?;
    cluster.nodes[leader].kill()?;

    for survivor in survivors.map(|at| &nodes[at]) {
        let again = until(async || survivor.claim(&held).await?.is(201, "claimed")).await?;
        ensure!(again.text("execution_id") == kept.text("execution_id") && again.epoch() == kept.epoch());
        survivor.claim(&claim.again().because_of("MSG-2")).await?.is(409, SPENT)?;
        survivor.claim(&claim.again()).await?.is(200, "duplicate_delivery")?;
    }
    // The worker is gone too: only time makes its execution unknown, and no delivery does.
    let unknown = until(async || nodes[survivors[0]].operation(&operation).await?.in_state("unknown")).await?;
    ensure!(
        granted_at.elapsed() >= Duration::from_millis(LEASE_MS),
        "unknown before the lease was over: {unknown:?}"
    );
    ensure!(unknown.body["execution"]["execution_id"] == granted.text("execution_id"), "{unknown:?}");
    cluster.nodes[leader].start()?;
    cluster.nodes[leader].ready().await?;
    for node in &nodes {
        node.capability_is(&capability, "consumed", 0).await?;
        node.capability_is(&unspent, "issued", 1).await?;
        node.claim(&claim.again().because_of("MSG-4")).await?.is(409, SPENT)?;
    }
    nodes[leader].claim(&refund("crash/2").presenting(&unspent)).await?.is(201, "claimed").map(drop)
}
