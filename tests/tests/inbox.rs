//! The inbox on a real cluster: a delivery is accepted once for each consumer, and a message names a delivery, not an operation.
//! (REQUIREMENTS 10, 34, 39, 49, 56, 67, 75, 111, 112, 115; seed 000)

use anyhow::{Result, ensure};
use futures::future::join_all;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::SECTION;
use serde_json::json;

/// The same claim, received by another consumer.
fn received_by(claim: Claim, consumer: &str, message: &str) -> Claim {
    claim.with("message", json!({ "consumer": consumer, "id": message }))
}

/// The tag of an operation, which changes whenever the operation does.
async fn tag(node: &Caller, operation: &str) -> Result<String> {
    Ok(node.operation(operation).await?.is(200, "")?.header("etag").to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_is_accepted_once_by_each_consumer() -> Result<()> {
    let cluster = Cluster::start(Options { sections: SECTION.to_owned(), ..Options::default() }).await?;
    let nodes = cluster.callers();
    let claim = Claim::of("inbox/1").because_of("MSG-1");
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    let operation = granted.text("operation_id");
    redelivered(&nodes, &claim, &granted, "executing").await?;
    other_consumers(&nodes, operation).await?;
    out_of_order(&nodes).await?;
    racing_copies(&nodes).await?;
    republished(&nodes).await?;

    // It never tells an outcome, not even a known one; what asks for the outcome gets it.
    nodes[1].report(granted.text("execution_id"), granted.epoch(), "completed").await?.in_state("completed")?;
    redelivered(&nodes, &claim, &granted, "completed").await?;
    let asked = nodes[2].claim(&Claim::of("inbox/1")).await?.is(200, "replayed")?;
    ensure!(!asked.body["outcome"].is_null(), "{asked:?}");
    Ok(())
}

/// A redelivery is told what state the operation is in, by every node, and changes nothing. (REQUIREMENTS 49, 115)
async fn redelivered(nodes: &[Caller], claim: &Claim, granted: &Answer, state: &str) -> Result<()> {
    let operation = granted.text("operation_id");
    let before = tag(&nodes[0], operation).await?;
    for node in nodes {
        let duplicate = node.claim(&claim.again()).await?.is(200, "duplicate_delivery")?.in_state(state)?;
        ensure!(duplicate.text("execution_id") == granted.text("execution_id"), "{duplicate:?}");
        ensure!(duplicate.body["outcome"].is_null() && duplicate.body["lease_epoch"].is_null(), "{duplicate:?}");
        ensure!(duplicate.header("idempotency-replayed").is_empty(), "{duplicate:?}");
        // The message stands for one operation and one request, and for nothing else.
        for (key, request) in [
            ("inbox/1", json!({ "amount": "999.00" })),
            ("inbox/absent", json!({})),
            ("inbox/other", json!({ "key": "inbox/other" })),
        ] {
            let other = Claim { request, ..Claim::of(key).because_of("MSG-1") };
            node.claim(&other).await?.is(409, "delivery.mismatch")?;
        }
    }
    ensure!(tag(&nodes[0], operation).await? == before, "a duplicate changed the operation");
    let absent = json!({ "namespace": "default", "key": "inbox/absent" });
    let found = nodes[1].post("/v1/operations/lookup", &absent).await?.is(200, "")?;
    ensure!(found.body["operations"] == json!([]), "a refused delivery made an operation: {found:?}");
    Ok(())
}

/// The same message id with another consumer is another delivery.
async fn other_consumers(nodes: &[Caller], operation: &str) -> Result<()> {
    let same = received_by(Claim::of("inbox/1"), "auditor", "MSG-1");
    let busy = nodes[1].claim(&same).await?.is(202, "in_progress")?;
    ensure!(busy.text("operation_id") == operation, "{busy:?}");
    // Not elected, so not accepted: the auditor may bring it for something else.
    let elsewhere = received_by(Claim::of("inbox/auditor"), "auditor", "MSG-1");
    nodes[2].claim(&elsewhere).await?.is(201, "claimed")?;
    nodes[0].claim(&elsewhere.again()).await?.is(200, "duplicate_delivery")?;
    nodes[0].claim(&same).await?.is(409, "delivery.mismatch").map(drop)
}

/// Order is another concern: the newest first, and a late one after its operation has gone on.
async fn out_of_order(nodes: &[Caller]) -> Result<()> {
    for n in [9, 3, 7, 1] {
        let claim = Claim::of(format!("inbox/order-{n}")).because_of(&format!("MSG-ORDER-{n}"));
        nodes[n % 3].claim(&claim).await?.is(201, "claimed")?;
    }
    // The second message about an operation comes first, and is refused while the first attempt is at work.
    let (first, second) =
        (Claim::of("inbox/late").because_of("MSG-L1"), Claim::of("inbox/late").because_of("MSG-L2"));
    let granted = nodes[0].claim(&second).await?.is(201, "claimed")?;
    nodes[1].claim(&first).await?.is(202, "in_progress")?;
    nodes[1].report(granted.text("execution_id"), granted.epoch(), "not_applied").await?.in_state("not_applied")?;
    let granted = nodes[2].claim(&first.again()).await?.is(201, "claimed")?;
    ensure!(granted.body["attempt"] == 2, "{granted:?}");
    // The earlier delivery is known, and opens no third attempt when this one comes to nothing.
    nodes[1].report(granted.text("execution_id"), granted.epoch(), "not_applied").await?.in_state("not_applied")?;
    for claim in [&first, &second] {
        nodes[0].claim(&claim.again()).await?.is(200, "duplicate_delivery")?.in_state("not_applied")?;
    }
    Ok(())
}

/// 48 copies of one delivery at once, through all nodes: one is elected, all others are duplicates.
async fn racing_copies(nodes: &[Caller]) -> Result<()> {
    for round in 0..5 {
        let claim = Claim::of(format!("inbox/race-{round}")).because_of(&format!("MSG-RACE-{round}"));
        let racing = (0..48).map(|n| {
            let (node, copy) = (nodes[n % 3].clone(), claim.again());
            tokio::spawn(async move { node.claim(&copy).await })
        });
        let mut elected = 0;
        for answer in join_all(racing).await {
            let answer = answer??;
            match answer.verdict() {
                "claimed" => elected += 1,
                _ => drop(answer.is(200, "duplicate_delivery")?),
            }
        }
        ensure!(elected == 1, "round {round}: {elected} elected");
    }
    Ok(())
}

/// A copy under a new broker's id is a new delivery, which the inbox cannot know; the authority in it is spent. (REQUIREMENTS 112)
async fn republished(nodes: &[Caller]) -> Result<()> {
    let claim = Claim { namespace: "refunds", ..Claim::of("inbox/refund") };
    let (operation, capability) = nodes[0].approve(&claim, "DEC-1").await?;
    let claim = claim.presenting(&capability).because_of("MSG-55A");
    nodes[1].claim(&claim).await?.is(201, "claimed")?;
    let before = tag(&nodes[0], &operation).await?;
    for (n, node) in nodes.iter().enumerate() {
        node.claim(&claim.again()).await?.is(200, "duplicate_delivery")?;
        let copy = claim.again().because_of(&format!("MSG-77C-{n}"));
        for _ in 0..2 {
            node.claim(&copy.again()).await?.is(409, "capability.already-consumed")?;
        }
    }
    ensure!(tag(&nodes[2], &operation).await? == before, "a copy changed the operation");
    Ok(())
}
