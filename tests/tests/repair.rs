//! Repair on a real cluster, by operators and by nobody else: forced fence, quarantine, release, close, supersede. Each needs what
//! the caller saw, says who, why and with what proof, and deletes nothing. (REQUIREMENTS 26, 28, 98, 129–134; seed 001 §14)

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use hapax_tests::authority::configured_token;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::SECTION;
use serde_json::{Value, json};

/// Every role but the operator's.
const OTHERS: [&str; 5] = ["claim", "issue", "reconcile", "read", "admin"];

/// An operator with a name of its own, and somebody who may do everything else.
struct People {
    operator: Caller,
    others: Caller,
}

async fn start() -> Result<(Cluster, Vec<Caller>, People)> {
    let (operator, section) = configured_token(7, "dev", "olga", &["operate", "read"]);
    let (others, more) = configured_token(8, "dev", "otto", &OTHERS);
    let cluster =
        Cluster::start(Options { sections: format!("{SECTION}{section}{more}"), ..Options::default() }).await?;
    let nodes = cluster.callers();
    let people = People { operator: nodes[1].with_token(operator), others: nodes[2].with_token(others) };
    Ok((cluster, nodes, people))
}

async fn fence(node: &Caller, execution: &str, epoch: u64) -> Result<Answer> {
    let body = json!({ "lease_epoch": epoch, "reason": "the host is gone", "proof": "inventory: decommissioned" });
    node.post(&format!("/v1/executions/{execution}/fence"), &body).await
}

async fn supersede(node: &Caller, operation: &str, expected: &str, by: &str) -> Result<Answer> {
    let body = json!({ "expected_state": expected, "by": by, "reason": "a new key", "proof": "ticket 12" });
    node.post(&format!("/v1/operations/{operation}/supersede"), &body).await
}

/// What was said about an operation, in its order.
async fn words(node: &Caller, operation: &str) -> Result<Vec<Value>> {
    let mut record = node.record("operation_id", operation, 100).await?;
    record.retain(|entry| entry["kind"] == "word");
    Ok(record)
}

/// The record of `operation` says exactly this, by Olga or by whoever is named, numbered, linked, and as `state`s were met.
async fn said(node: &Caller, operation: &str, expected: &[(&str, &str, &str)]) -> Result<()> {
    let words = words(node, operation).await?;
    let found: Vec<_> = words.iter().map(|word| (&word["said"], &word["client"], &word["operation_state"])).collect();
    ensure!(
        found.iter().zip(expected).all(|(found, said)| *found == (&json!(said.0), &json!(said.1), &json!(said.2)))
            && found.len() == expected.len(),
        "not {expected:?}: {words:?}"
    );
    let links: BTreeSet<_> = words.iter().map(|word| word["chain"].as_str().unwrap_or_default()).collect();
    ensure!(links.len() == words.len() && !links.contains(""), "links are alike: {words:?}");
    for (number, word) in (1..).zip(&words) {
        ensure!(word["number"] == number && word["operation_id"] == operation, "{word}");
        ensure!(word["proof"].is_string() && word["at"].is_string() && word["revision"].is_string(), "{word}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_fences_quarantines_and_releases() -> Result<()> {
    let (_cluster, nodes, people) = start().await?;
    fenced(&nodes, &people).await?;
    contradicted(&nodes, &people).await?;
    quarantined(&nodes, &people).await
}

/// A forced fence ends a lease that would live for long: the executor is fenced, and may still tell what it knows.
async fn fenced(nodes: &[Caller], people: &People) -> Result<()> {
    let claim = Claim::of("fence/1");
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    let (operation, execution, epoch) = (granted.text("operation_id"), granted.text("execution_id"), granted.epoch());
    fence(&people.others, execution, epoch).await?.is(403, "auth.forbidden")?;
    fence(&people.operator, execution, epoch + 1).await?.is(409, "lease.stale-epoch")?;
    nodes[0].renew(execution, epoch, 60_000).await?.is(200, "")?;
    fence(&people.operator, execution, epoch).await?.in_state("unknown")?;
    for node in nodes {
        node.renew(execution, epoch, 60_000).await?.is(409, "lease.stale-epoch")?;
        node.report(execution, epoch, "completed").await?.is(409, "lease.stale-epoch")?;
        node.claim(&claim.again()).await?.is(409, "operation.outcome-unknown")?;
        let read = node.operation(operation).await?.in_state("unknown")?;
        let drawn = read.body["execution"]["lease_epoch"].as_u64().context("no epoch")?;
        ensure!(drawn > epoch, "{read:?}");
        // The answer may have been lost: the same call gets it again, and is kept once.
        fence(&people.operator, execution, epoch).await?.in_state("unknown")?;
        fence(&people.operator, execution, drawn).await?.is(409, "operation.state")?;
    }
    nodes[2].evidence(execution, &claim, "completed").await?.in_state("completed")?;
    let expected = [("fence", "olga", "executing"), ("evidence", "dev", "unknown")];
    said(&people.operator, operation, &expected).await?;
    let words = words(&people.others, operation).await?;
    ensure!(
        words[0]["reason"] == "the host is gone" && words[0]["proof"] == "inventory: decommissioned",
        "{words:?}"
    );
    ensure!(words[0]["lease_epoch"] == epoch && words[1]["outcome"] == "completed", "{words:?}");
    Ok(())
}

/// Two proofs contradict each other: the first outcome stands, claims stop, and people decide when they go on.
async fn contradicted(nodes: &[Caller], people: &People) -> Result<()> {
    let claim = Claim::of("contradiction/1");
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    let (operation, execution) = (granted.text("operation_id"), granted.text("execution_id"));
    nodes[0].report(execution, granted.epoch(), "unknown").await?.in_state("unknown")?;
    let mine = json!({ "external_id": "re_1" });
    nodes[1].resolve(execution, granted.epoch(), "completed", mine).await?.in_state("completed")?;
    nodes[2].evidence(execution, &claim, "failed").await?.is(409, "outcome.conflict")?;
    stopped_until_released(nodes, people, &claim, operation).await?;
    // What an operator has looked at is no news when it is said again; a third story is.
    nodes[2].evidence(execution, &claim, "failed").await?.is(409, "outcome.conflict")?;
    nodes[2].claim(&claim.again()).await?.is(200, "replayed")?;
    let theirs = json!({ "external_id": "re_2" });
    nodes[1].resolve(execution, granted.epoch(), "completed", theirs).await?.is(409, "outcome.conflict")?;
    stopped_until_released(nodes, people, &claim, operation).await?;
    let release = ("release", "olga", "completed");
    let (first, second) = (("evidence", "dev", "completed"), ("resolve", "dev", "completed"));
    said(&people.operator, operation, &[("resolve", "dev", "unknown"), first, release, second, release]).await
}

async fn stopped_until_released(nodes: &[Caller], people: &People, claim: &Claim, operation: &str) -> Result<()> {
    for node in nodes {
        let read = node.operation(operation).await?.in_state("completed")?;
        ensure!(read.body["quarantined"] == true && read.body["outcome"]["external_id"] == "re_1", "{read:?}");
        for copy in [claim.clone(), claim.again()] {
            node.claim(&copy).await?.is(409, "operation.quarantined")?;
        }
    }
    let listed = people.operator.get("/v1/operations?namespace=default&state=quarantined").await?.is(200, "")?;
    ensure!(listed.body["operations"][0]["operation_id"] == operation, "{listed:?}");
    people.others.repair(operation, "release", "completed").await?.is(403, "auth.forbidden")?;
    people.operator.repair(operation, "release", "executing").await?.is(409, "operation.state")?;
    people.operator.repair(operation, "release", "completed").await?.in_state("completed")?;
    for node in nodes {
        let replayed = node.claim(&claim.again()).await?.is(200, "replayed")?;
        ensure!(replayed.body["outcome"]["external_id"] == "re_1", "{replayed:?}");
    }
    Ok(())
}

/// An operator may stop claims of anything; who executes goes on, and nothing else is stopped.
async fn quarantined(nodes: &[Caller], people: &People) -> Result<()> {
    let claim = Claim::of("quarantine/1");
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    let (operation, execution) = (granted.text("operation_id"), granted.text("execution_id"));
    people.others.repair(operation, "quarantine", "executing").await?.is(403, "auth.forbidden")?;
    let stale = people.operator.repair(operation, "quarantine", "unknown").await?.is(409, "operation.state")?;
    ensure!(stale.text("detail").contains("executing"), "{stale:?}");
    for _ in 0..2 {
        people.operator.repair(operation, "quarantine", "executing").await?.in_state("executing")?;
    }
    for node in nodes {
        node.claim(&claim).await?.is(409, "operation.quarantined")?;
        node.claim(&claim.again()).await?.is(409, "operation.quarantined")?;
        node.renew(execution, granted.epoch(), 60_000).await?.is(200, "")?;
    }
    nodes[2].report(execution, granted.epoch(), "not_applied").await?.in_state("not_applied")?;
    nodes[0].claim(&claim.again()).await?.is(409, "operation.quarantined")?;
    people.operator.repair(operation, "release", "not_applied").await?.in_state("not_applied")?;
    let next = nodes[1].claim(&claim.again()).await?.is(201, "claimed")?;
    ensure!(next.body["attempt"] == 2, "{next:?}");
    let expected = [("quarantine", "olga", "executing"), ("release", "olga", "not_applied")];
    said(&people.operator, operation, &expected).await?;
    let words = words(&people.operator, operation).await?;
    ensure!(words[0]["reason"] == "to quarantine" && words[0]["proof"] == "quarantine form", "{words:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_ends_or_is_succeeded_and_nothing_is_deleted() -> Result<()> {
    let (_cluster, nodes, people) = start().await?;
    closed(&nodes, &people).await?;
    superseded(&nodes, &people).await?;
    found_by_everything(&nodes).await
}

/// What nobody executes may be ended without an effect, by whoever decides; what is open may not.
async fn closed(nodes: &[Caller], people: &People) -> Result<()> {
    let claim = Claim { namespace: "refunds", ..Claim::of("close/1") };
    let (operation, capability) = nodes[0].approve(&claim, "DEC-1").await?;
    people.operator.repair(&operation, "close", "not_applied").await?.is(409, "operation.state")?;
    people.operator.repair(&operation, "close", "requested").await?.in_state("failed")?;
    people.others.repair(&operation, "close", "requested").await?.in_state("failed")?;
    for node in nodes {
        node.claim(&claim.again().presenting(&capability)).await?.is(409, "operation.failed")?;
        node.issue(&operation, "DEC-2", 1, json!({})).await?.is(409, "operation.failed")?;
        let read = node.operation(&operation).await?.in_state("failed")?;
        ensure!(read.body["outcome"]["reason"] == "to close" && read.body["attempt"] == 0, "{read:?}");
    }
    said(&people.operator, &operation, &[("close", "olga", "requested")]).await?;

    let claim = Claim::of("close/2");
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    let (operation, execution) = (granted.text("operation_id"), granted.text("execution_id"));
    people.operator.repair(operation, "close", "executing").await?.is(409, "operation.state")?;
    nodes[0].report(execution, granted.epoch(), "unknown").await?.in_state("unknown")?;
    people.operator.repair(operation, "close", "unknown").await?.is(409, "operation.state")?;
    nodes[0].resolve(execution, granted.epoch(), "not_applied", json!({})).await?.in_state("not_applied")?;
    people.operator.repair(operation, "close", "not_applied").await?.in_state("failed")?;
    for node in nodes {
        let replayed = node.claim(&claim.again()).await?.is(200, "replayed")?.in_state("failed")?;
        ensure!(replayed.body["outcome"]["reason"] == "to close", "{replayed:?}");
        let read = node.operation(operation).await?.in_state("failed")?;
        ensure!(read.body["execution"]["state"] == "not_applied", "the attempt came to something else: {read:?}");
    }
    said(&people.operator, operation, &[("resolve", "dev", "unknown"), ("close", "olga", "not_applied")]).await
}

/// A genuinely new key takes the place of a stuck operation: both say so, and the old one is still there. (REQUIREMENTS 133)
async fn superseded(nodes: &[Caller], people: &People) -> Result<()> {
    let elder = nodes[0].claim(&Claim::of("supersede/elder")).await?.is(201, "claimed")?;
    let stuck = nodes[0].claim(&Claim::of("supersede/1")).await?.is(201, "claimed")?;
    nodes[0].report(stuck.text("execution_id"), stuck.epoch(), "unknown").await?.in_state("unknown")?;
    let old = stuck.text("operation_id");
    let new = nodes[1].register(&Claim::of("supersede/2")).await?.is(201, "")?.text("operation_id").to_owned();
    let third = nodes[1].register(&Claim::of("supersede/3")).await?.is(201, "")?.text("operation_id").to_owned();
    let abroad = Claim { namespace: "takeover", ..Claim::of("supersede/2") };
    let abroad = nodes[1].register(&abroad).await?.is(201, "")?.text("operation_id").to_owned();
    supersede(&people.others, old, "unknown", &new).await?.is(403, "auth.forbidden")?;
    supersede(&people.operator, old, "executing", &new).await?.is(409, "operation.state")?;
    let absent = format!("op_{}", "0".repeat(57));
    for unfit in [old, abroad.as_str(), elder.text("operation_id"), absent.as_str()] {
        supersede(&people.operator, old, "unknown", unfit).await?.is(412, "precondition.failed")?;
    }
    for _ in 0..2 {
        supersede(&people.operator, old, "unknown", &new).await?.in_state("unknown")?;
    }
    supersede(&people.operator, old, "unknown", &third).await?.is(412, "precondition.failed")?;
    supersede(&people.operator, &third, "requested", &new).await?.is(412, "precondition.failed")?;
    for node in nodes {
        let read = node.operation(old).await?.in_state("unknown")?;
        ensure!(read.body["superseded_by"] == new.as_str(), "{read:?}");
        let read = node.operation(&new).await?.in_state("requested")?;
        ensure!(read.body["supersedes"] == old, "{read:?}");
        // What the old one came to is still to be found out; nobody is ever elected for it again.
        node.claim(&Claim::of("supersede/1")).await?.is(409, "operation.state")?;
    }
    said(&people.operator, old, &[("supersede", "olga", "unknown")]).await?;
    let words = words(&people.operator, old).await?;
    ensure!(words[0]["by"] == new.as_str() && words[0]["reason"] == "a new key", "{words:?}");
    let declined = json!({ "reason": "declined" });
    nodes[0]
        .resolve(stuck.text("execution_id"), stuck.epoch(), "not_applied", declined)
        .await?
        .in_state("not_applied")?;
    nodes[1].claim(&Claim::of("supersede/1")).await?.is(409, "operation.state")?;
    nodes[2].claim(&Claim::of("supersede/2")).await?.is(201, "claimed").map(drop)
}

/// An operation is found by its key, its business entity and the provider's id, by every node. (REQUIREMENTS 129)
async fn found_by_everything(nodes: &[Caller]) -> Result<()> {
    let claim = Claim::of("find/1").with("resource", "ORD-77").with("business_epoch", "2026-07");
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    let path = format!("/v1/executions/{}/outcome", granted.text("execution_id"));
    let outcome = json!({ "lease_epoch": granted.epoch(), "outcome": "completed", "external_id": "re_77" });
    nodes[1].post(&path, &outcome).await?.in_state("completed")?;
    for node in nodes {
        for question in [
            json!({ "key": "find/1", "business_epoch": "2026-07" }),
            json!({ "resource": "ORD-77" }),
            json!({ "external_id": "re_77" }),
        ] {
            let mut lookup = question.clone();
            lookup["namespace"] = json!("default");
            let found = node.post("/v1/operations/lookup", &lookup).await?.is(200, "")?;
            let operations = found.body["operations"].as_array().context("no operations")?;
            ensure!(operations.len() == 1, "{question}: {found:?}");
            ensure!(operations[0]["operation_id"] == granted.text("operation_id"), "{question}: {found:?}");
            lookup["namespace"] = json!("takeover");
            let elsewhere = node.post("/v1/operations/lookup", &lookup).await?.is(200, "")?;
            ensure!(elsewhere.body["operations"] == json!([]), "{question}: {elsewhere:?}");
        }
    }
    Ok(())
}
