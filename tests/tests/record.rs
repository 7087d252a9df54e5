//! The record on a real cluster: what was presented in vain is on it before it is answered, with who, what and why, and is found by
//! operation, capability, message and story. (REQUIREMENTS 43, 80, 98, 107; seed 000)

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use hapax_tests::authority::configured_token;
use hapax_tests::caller::{Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::SECTION;
use hapax_tests::wait::until;
use serde_json::{Value, json};

/// Distinct refusals that are kept for one capability or operation. (API.md, limits)
const KEPT_MAX: usize = 64;

const SPENT: &str = "capability.already-consumed";

/// The entry of a refusal whose message is `message`; "" for none.
fn of_message<'r>(record: &'r [Value], message: &str) -> Result<&'r Value> {
    let found = record.iter().find(|entry| entry["message"]["id"].as_str().unwrap_or_default() == message);
    found.with_context(|| format!("nothing about {message:?} in {record:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_is_on_record_before_it_is_answered_and_its_repeats_are_counted() -> Result<()> {
    let (replayer, section) = configured_token(7, "dev", "resubmitter", &["claim"]);
    let cluster = Cluster::start(Options { sections: format!("{SECTION}{section}"), ..Options::default() }).await?;
    let nodes = cluster.callers();
    let claim = Claim { namespace: "refunds", ..Claim::of("record/1") }.with("correlation_id", "COR-2210");
    let (operation, capability) = nodes[0].approve(&claim, "DEC-1").await?;
    let claim = claim.presenting(&capability).because_of("MSG-55A");
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    ensure!(nodes[1].record("capability_id", &capability, 10).await?.is_empty(), "a good claim is on the record");

    // Three presentations through three nodes; each first one is seen by another node at once.
    for (n, message) in ["MSG-77C", "MSG-77D", "MSG-77E"].into_iter().enumerate() {
        let copy = claim.again().because_of(message);
        nodes[n].with_token(&replayer).claim(&copy).await?.is(409, SPENT)?;
        let record = nodes[(n + 1) % 3].record("capability_id", &capability, 10).await?;
        let entry = of_message(&record, message)?;
        ensure!(record.len() == n + 1 && entry["times"] == 1, "{record:?}");
        replay(entry, &operation, &capability)?;
    }
    let mut bare = claim.again();
    bare.more.as_object_mut().map(|more| more.remove("message"));
    nodes[0].claim(&bare).await?.is(409, SPENT)?;
    counted(&nodes, &claim, &capability).await?;

    // A known redelivery is told apart from a resubmission.
    let other = nodes[0].register(&Claim::of("record/2")).await?.is(201, "")?.text("operation_id").to_owned();
    nodes[1].claim(&Claim::of("record/2").because_of("MSG-55A")).await?.is(409, "delivery.mismatch")?;
    let record = nodes[2].record("operation_id", &other, 10).await?;
    ensure!(record.len() == 1 && record[0]["code"] == "delivery.mismatch", "{record:?}");
    ensure!(record[0]["known_redelivery"] == true && record[0]["execution_attempted"] == false, "{record:?}");

    let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
    nodes[0].report(execution, epoch, "unknown").await?.in_state("unknown")?;
    nodes[1].resolve(execution, epoch, "completed", json!({})).await?.in_state("completed")?;
    by_every_question(&nodes, &operation, &capability).await
}

/// What the seeds want to be able to tell the owner of the resubmission tool.
fn replay(entry: &Value, operation: &str, capability: &str) -> Result<()> {
    let expected = json!({
        "kind": "refused", "code": SPENT, "namespace": "refunds", "capability_id": capability,
        "operation_id": operation, "operation_state": "executing", "attempt": 1, "execution_attempted": false,
        "known_redelivery": false, "client": "resubmitter", "correlation_id": "COR-2210",
    });
    for (field, value) in expected.as_object().context("an object")? {
        ensure!(entry[field] == *value, "{field} is not {value}: {entry}");
    }
    ensure!(entry["message"]["consumer"] == "worker" && entry["first_at"].is_string(), "{entry}");
    Ok(())
}

/// Repeats make no new entries: they are counted, a little later, wherever they were answered.
async fn counted(nodes: &[Caller], claim: &Claim, capability: &str) -> Result<()> {
    for (node, times) in nodes.iter().zip([4, 3, 2]) {
        for _ in 0..times {
            node.claim(&claim.again().because_of("MSG-77C")).await?.is(409, SPENT)?;
        }
    }
    until(async || {
        let record = nodes[2].record("capability_id", capability, 10).await?;
        ensure!(record.len() == 4, "repeats made entries: {record:?}");
        let entry = of_message(&record, "MSG-77C")?;
        ensure!(entry["times"] == 10, "not counted yet: {entry}");
        ensure!(of_message(&record, "MSG-77D")?["times"] == 1 && of_message(&record, "")?["times"] == 1);
        Ok(())
    })
    .await
}

/// The four questions, by every node, in one page and in many.
async fn by_every_question(nodes: &[Caller], operation: &str, capability: &str) -> Result<()> {
    for node in nodes {
        let ids = |record: &[Value]| record.iter().map(Value::to_string).collect::<Vec<_>>();
        for (question, value, refusals, words) in [
            ("operation_id", operation, 4, 1),
            ("capability_id", capability, 4, 0),
            ("message_id", "MSG-77D", 1, 0),
            ("message_id", "MSG-55A", 1, 0),
            ("correlation_id", "COR-2210", 4, 1),
            ("correlation_id", "COR-none", 0, 0),
        ] {
            let whole = node.record(question, value, 500).await?;
            let of = |kind: &str| whole.iter().filter(|entry| entry["kind"] == kind).count();
            ensure!((of("refused"), of("word")) == (refusals, words), "{question}={value}: {whole:?}");
            for limit in [1, 2, 3] {
                let pages = node.record(question, value, limit).await?;
                ensure!(ids(&pages) == ids(&whole), "{question}={value} in pages of {limit}: {pages:?}");
            }
        }
        let first = node.get(&format!("/v1/evidence?capability_id={capability}&limit=1")).await?.is(200, "")?;
        let cursor = first.text("next_cursor");
        let strange = format!("/v1/evidence?operation_id={operation}&limit=1&cursor={cursor}");
        node.get(&strange).await?.is(400, "request.invalid")?;
        for wrong in ["", "?message_id=MSG-77C", "?operation_id=x&capability_id=y", "?consumer=worker"] {
            node.get(&format!("/v1/evidence{wrong}")).await?.is(400, "request.invalid")?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_made_up_messages_is_bounded_and_only_readers_read() -> Result<()> {
    let (claimer, section) = configured_token(7, "dev", "claimer", &["claim"]);
    let (stranger, more) = configured_token(8, "strangers", "reader", &["read"]);
    let sections = format!("{SECTION}{section}{more}");
    let cluster = Cluster::start(Options { sections, ..Options::default() }).await?;
    let nodes = cluster.callers();
    let claim = Claim { namespace: "refunds", ..Claim::of("storm/1") };
    let (operation, capability) = nodes[0].approve(&claim, "DEC-1").await?;
    let claim = claim.presenting(&capability);
    nodes[0].claim(&claim).await?.is(201, "claimed")?;
    for n in 0..KEPT_MAX + 16 {
        nodes[n % 3].claim(&claim.again().because_of(&format!("MSG-{n}"))).await?.is(409, SPENT)?;
    }
    let record = nodes[1].record("capability_id", &capability, 500).await?;
    ensure!(record.len() == KEPT_MAX, "{} entries are kept", record.len());
    let messages: BTreeSet<_> = record.iter().map(|entry| entry["message"]["id"].to_string()).collect();
    ensure!(messages.len() == KEPT_MAX, "an entry is there twice");
    // A made-up capability is kept with the operation it was presented for, and has a bound of its own.
    let made_up = format!("{}{}", &capability[..capability.len() - 8], "0".repeat(8));
    nodes[2].claim(&claim.again().presenting(&made_up)).await?.is(403, "capability.invalid")?;
    let of_operation = nodes[0].record("operation_id", &operation, 500).await?;
    ensure!(of_operation.iter().any(|entry| entry["code"] == "capability.invalid"), "{of_operation:?}");

    let question = format!("/v1/evidence?operation_id={operation}");
    nodes[0].with_token(&claimer).get(&question).await?.is(403, "auth.forbidden")?;
    // Another tenant's record, and none, look alike.
    let theirs = nodes[0].with_token(&stranger);
    let absent = format!("/v1/evidence?operation_id=op_{}", "0".repeat(57));
    let (mut seen, mut none) = (theirs.get(&question).await?, theirs.get(&absent).await?);
    for answer in [&mut seen, &mut none] {
        answer.body.as_object_mut().map(|page| page.remove("revision"));
    }
    ensure!(seen.status == none.status && seen.body == none.body, "{seen:?} is not {none:?}");
    ensure!(!seen.body.to_string().contains(SPENT), "{seen:?}");
    Ok(())
}
