//! A provider whose status service is down and whose callbacks come late, twice and in no order: nothing is sent again meanwhile,
//! what it says at last is proof, and what it says too early, too late or in contradiction starts nothing.
//! (REQUIREMENTS 58–60, 63, 66, 109, 113, 137; 001 §8, §15.7)

use anyhow::{Context, Result, ensure};
use hapax_tests::caller::Caller;
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::refunds::{Message, Refunds, SECTION};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_provider_says_late_is_proof_and_starts_nothing() -> Result<()> {
    let cluster = Cluster::start(Options { sections: SECTION.to_owned(), ..Options::default() }).await?;
    let nodes = cluster.callers();
    let refunds = Refunds::new(nodes[0].clone());
    before_the_answer(&nodes, &refunds).await?;
    during_an_outage(&nodes, &refunds).await?;
    after_the_reconciler(&nodes, &refunds).await?;
    in_contradiction(&nodes, &refunds).await
}

/// The worker still waits for its answer: the callback changes nothing, and the worker reports.
async fn before_the_answer(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    let mut hold = refunds.provider.hold_next_answer();
    let message = refunds.approve("ORD-EARLY", "10.00").await?;
    let worker = tokio::spawn({
        let (node, refunds, message) = (nodes[0].clone(), refunds.clone(), message.clone());
        async move { refunds.deliver(&node, &message).await }
    });
    hold.arrived().await;
    let callbacks = refunds.provider.callbacks();
    ensure!(callbacks.len() == 2, "{callbacks:?}");
    for (callback, node) in callbacks.iter().zip(nodes) {
        refunds.called_back(node, callback).await?.is(409, "operation.executing")?;
    }
    hold.release();
    worker.await??.report.context("the provider was called")?.in_state("completed")?;
    // It calls once more, and is told what stands.
    refunds.called_back(&nodes[2], &callbacks[0]).await?.in_state("completed")?;
    not_quarantined(nodes, refunds, &message).await
}

/// An answer is lost; what the provider did is on its ledger, and the operation is unknown.
async fn lost(nodes: &[Caller], refunds: &Refunds, order: &str) -> Result<Message> {
    refunds.provider.lose_next_answer();
    let message = refunds.approve(order, "20.00").await?;
    let delivered = refunds.deliver(&nodes[1], &message).await?;
    delivered.report.context("the provider was called")?.in_state("unknown")?;
    Ok(message)
}

/// Nobody can ask: the reconciler says nothing, the gate stays closed to all, and the callbacks settle it.
async fn during_an_outage(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    refunds.provider.status_is_down(true);
    let mut messages = Vec::new();
    for order in ["ORD-OUT-1", "ORD-OUT-2", "ORD-OUT-3"] {
        messages.push(lost(nodes, refunds, order).await?);
    }
    // The same reconciler asks again, and is given the same ones: an outage is no answer, and nobody is escalated.
    for (at, node) in nodes.iter().enumerate() {
        ensure!(refunds.reconcile(node).await? == (0, 0), "something was said during an outage");
        for message in &messages {
            let second = refunds.decide(&message.operation, &format!("DEC-AGAIN-{at}"), 1, json!({})).await?;
            let reissued = message.with_authority(&format!("{}-{at}", message.id), &second);
            refunds.deliver(node, &reissued).await?.claim.is(409, "operation.outcome-unknown")?;
            refunds.deliver(node, message).await?.claim.is(200, "duplicate_delivery")?.in_state("unknown")?;
            ensure!(node.operation(&message.operation).await?.body["escalated"] != true, "escalated by an outage");
        }
    }
    let callbacks = refunds.provider.callbacks();
    let newest = callbacks.first().map(|refund| refund.payment.reference.as_str());
    ensure!(newest == messages.last().map(|message| message.operation.as_str()), "in order: {callbacks:?}");
    ensure!(callbacks.len() == 2 * messages.len(), "{callbacks:?}");
    for (at, callback) in callbacks.iter().enumerate() {
        refunds.called_back(&nodes[at % 3], callback).await?.in_state("completed")?;
    }
    refunds.provider.status_is_down(false);
    ensure!(refunds.reconcile(&nodes[0]).await? == (0, 0), "something was left to be found out");
    for message in &messages {
        not_quarantined(nodes, refunds, message).await?;
    }
    Ok(())
}

/// The reconciler was first: a late callback is kept as another word, and changes nothing that is told.
async fn after_the_reconciler(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    let message = lost(nodes, refunds, "ORD-LATE").await?;
    ensure!(refunds.reconcile(&nodes[2]).await? == (1, 0), "not found by the portal's own reference");
    let before = nodes[0].operation(&message.operation).await?.in_state("completed")?;
    for callback in refunds.provider.callbacks() {
        refunds.called_back(&nodes[1], &callback).await?.in_state("completed")?;
    }
    let after = nodes[0].operation(&message.operation).await?;
    for field in ["state", "outcome", "attempt", "execution", "retain_until"] {
        ensure!(after.body[field] == before.body[field], "{before:?} became {after:?}");
    }
    not_quarantined(nodes, refunds, &message).await
}

/// Somebody refunded the same order without asking. The second reference is no second outcome: it is kept, and stops claims.
async fn in_contradiction(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    let message = refunds.approve("ORD-TWICE", "30.00").await?;
    refunds.deliver(&nodes[0], &message).await?.report.context("the provider was called")?.in_state("completed")?;
    refunds.provider.refund("by hand", &refunds.payment(&message.operation)?).await;
    refunds.ledger_shows(&message.operation, 2, 2)?;
    let first = refunds.provider.find(&message.operation).context("the refund")?;
    for callback in refunds.provider.callbacks() {
        let answer = refunds.called_back(&nodes[1], &callback).await?;
        if callback.id == first.id {
            answer.in_state("completed")?;
        } else {
            answer.is(409, "outcome.conflict")?;
        }
    }
    for node in nodes {
        let read = node.operation(&message.operation).await?.in_state("completed")?;
        ensure!(read.body["quarantined"] == true, "{read:?}");
        ensure!(read.body["outcome"]["external_id"] == first.id.as_str(), "the first outcome stands: {read:?}");
    }
    refunds.ledger_shows(&message.operation, 2, 2)
}

/// One request, one refund, its reference in every node's answer, and no doubt about it.
async fn not_quarantined(nodes: &[Caller], refunds: &Refunds, message: &Message) -> Result<()> {
    let refund = refunds.provider.find(&message.operation).context("the refund")?;
    for node in nodes {
        let read = node.operation(&message.operation).await?.in_state("completed")?;
        ensure!(read.body["quarantined"] == false, "{read:?}");
        ensure!(read.body["outcome"]["external_id"] == refund.id.as_str(), "{read:?}");
    }
    refunds.ledger_shows(&message.operation, 1, 1)
}
