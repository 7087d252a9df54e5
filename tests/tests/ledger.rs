//! The seeds' stories, told on a real cluster and judged by what a provider's ledger recorded, never by a status: replayed authority,
//! lost answers, duplicates, new attempts, a store that cannot be reached, and a worker that was fenced.
//! (REQUIREMENTS 2, 7, 41–44, 46, 48, 54, 56, 59–64, 66, 67, 80, 92, 107–116, 135, 136; seed 000)

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::join_all;
use hapax_client::provider::{Send, proven_by};
use hapax_client::{Client, Election, LeaseGuard, Outcome, Reported, ResultData, Settings};
use hapax_tests::admin::{from_now, millis};
use hapax_tests::caller::{Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::faketime::{FakeTime, seen};
use hapax_tests::provider::{Answer, Payment, Provider};
use hapax_tests::refunds::{Message, NAMESPACE, Refunds, SECTION};
use hapax_tests::wait::until;
use serde_json::{Value, json};
use uuid::Uuid;

const SPENT: &str = "capability.already-consumed";
/// How long the store's clock may take to follow those of the nodes, which are compared every ten seconds.
const CLOCKS_WITHIN: Duration = Duration::from_secs(60);
/// Longer than the provider recognises a key.
const A_DAY_AND_AN_HOUR: Duration = Duration::from_secs(25 * 3_600);

async fn start(limits: &str) -> Result<(Cluster, Vec<Caller>, Refunds)> {
    let options = Options { sections: SECTION.to_owned(), limits: limits.to_owned(), ..Options::default() };
    let cluster = Cluster::start(options).await?;
    let nodes = cluster.callers();
    let refunds = Refunds::new(nodes[0].clone());
    Ok((cluster, nodes, refunds))
}

/// The record says that this message presented spent or useless authority, and that nothing was executed for it.
async fn on_record(node: &Caller, message: &Message, code: &str) -> Result<()> {
    let record = node.record("message_id", &message.id, 100).await?;
    let found =
        record.iter().find(|entry| entry["code"] == code && entry["capability_id"] == message.capability.as_str());
    let entry = found.with_context(|| format!("no {code} in {record:?}"))?;
    ensure!(entry["execution_attempted"] == false && entry["known_redelivery"] == false, "{entry}");
    ensure!(entry["correlation_id"] == message.correlation.as_str(), "{entry}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replayed_authority_never_reaches_the_provider() -> Result<()> {
    let (_cluster, nodes, refunds) = start("").await?;
    let message = refunds.approve("ORD-8841", "120.00").await?;
    let first = refunds.deliver(&nodes[0], &message).await?;
    first.claim.is(201, "claimed")?;
    refunds.ledger_shows(&message.operation, 1, 1)?;
    // Inside the provider's window, and after the provider has pruned its key.
    for (n, copy) in ["MSG-77C", "MSG-77D"].into_iter().enumerate() {
        let copy = message.resubmitted(copy);
        for node in &nodes {
            let delivered = refunds.deliver(node, &copy).await?;
            delivered.claim.is(409, SPENT)?;
            refunds.deliver(node, &message).await?.claim.is(200, "duplicate_delivery")?;
        }
        refunds.ledger_shows(&message.operation, 1, 1)?;
        on_record(&nodes[n], &copy, SPENT).await?;
        refunds.provider.pass(A_DAY_AND_AN_HOUR);
    }
    ensure!(refunds.state(&nodes[2], &message.operation).await? == "completed");
    racing_deliveries(&nodes, &refunds).await?;
    never_good(&nodes, &refunds).await
}

/// Everybody's clock goes on by this much, and the store's with them: an operation that begins now says so.
async fn later(cluster: &Cluster, time: &FakeTime, passed: Duration) -> Result<()> {
    let seconds = i64::try_from(passed.as_secs())?;
    for node in &cluster.nodes {
        time.set(node.id, seconds)?;
        seen(node, seconds).await?;
    }
    let there = millis(&from_now(seconds * 1_000));
    let begun = Instant::now();
    loop {
        let node = &cluster.callers()[1];
        let granted = node.claim(&Claim::of(format!("later/{}", Uuid::new_v4()))).await?.is(201, "claimed")?;
        let read = node.operation(granted.text("operation_id")).await?.is(200, "")?;
        if millis(read.text("created_at")) >= there {
            return Ok(());
        }
        ensure!(begun.elapsed() < CLOCKS_WITHIN, "the store's clock does not follow: {read:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A day and an hour go by for everybody. The provider has forgotten the key and would pay again; authority that was spent is spent, an
/// outcome that nobody knows is unknown, and what was never used has expired meanwhile. (REQUIREMENTS 35, 44, 107, 135)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_later_the_provider_has_forgotten_and_the_store_has_not() -> Result<()> {
    let time = FakeTime::new(3)?;
    let options = Options { sections: SECTION.to_owned(), environment: time.environment(), ..Options::default() };
    let cluster = Cluster::start(options).await?;
    let nodes = cluster.callers();
    let refunds = Refunds::new(nodes[0].clone());
    let message = refunds.approve("ORD-8841", "120.00").await?;
    let first = refunds.deliver(&nodes[0], &message).await?;
    first.report.context("the provider was called")?.in_state("completed")?;
    let unused = refunds.approve("ORD-UNUSED", "130.00").await?;
    refunds.provider.lose_next_answer();
    let lost = refunds.approve("ORD-LOST", "140.00").await?;
    refunds.deliver(&nodes[1], &lost).await?.report.context("the provider was called")?.in_state("unknown")?;
    for node in &nodes {
        refunds.deliver(node, &message.resubmitted("MSG-77C")).await?.claim.is(409, SPENT)?;
    }

    // The store believes no clock that jumps by more than a day.
    later(&cluster, &time, A_DAY_AND_AN_HOUR / 2).await?;
    later(&cluster, &time, A_DAY_AND_AN_HOUR).await?;
    refunds.provider.pass(A_DAY_AND_AN_HOUR);
    let tomorrow = i64::try_from(A_DAY_AND_AN_HOUR.as_millis())? + 3_600_000;
    let good = json!({ "expires_at": from_now(tomorrow) });
    let reissued = refunds.decide(&lost.operation, "DEC-REISSUED", 1, good).await?;
    let reissued = lost.with_authority("MSG-REISSUED", &reissued);
    for (at, node) in nodes.iter().enumerate() {
        let copy = message.resubmitted(&format!("MSG-77D-{at}"));
        refunds.deliver(node, &copy).await?.claim.is(409, SPENT)?;
        on_record(node, &copy, SPENT).await?;
        refunds.deliver(node, &message).await?.claim.is(200, "duplicate_delivery")?;
        refunds.deliver(node, &unused).await?.claim.is(403, "capability.expired")?;
        refunds.deliver(node, &reissued).await?.claim.is(409, "operation.outcome-unknown")?;
    }
    refunds.ledger_shows(&message.operation, 1, 1)?;
    refunds.ledger_shows(&unused.operation, 0, 0)?;
    refunds.ledger_shows(&lost.operation, 1, 1)?;
    ensure!(refunds.reconcile(&nodes[2]).await? == (1, 0), "not found by the portal's own reference");
    // Had anybody asked the provider, it would have paid: the key means nothing to it any more.
    refunds.provider.refund(first.claim.text("effect_key"), &refunds.payment(&message.operation)?).await;
    refunds.ledger_shows(&message.operation, 2, 2)
}

/// 60 workers handle copies of one message at once, half of them resubmissions: the provider hears of one.
async fn racing_deliveries(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    for round in 0..5 {
        let message = refunds.approve(&format!("ORD-RACE-{round}"), "20.00").await?;
        let racing = (0..60).map(|n| {
            let (node, refunds) = (nodes[n % 3].clone(), refunds.clone());
            let copy = if n % 2 == 0 { message.clone() } else { message.resubmitted(&format!("MSG-R-{round}-{n}")) };
            tokio::spawn(async move { refunds.deliver(&node, &copy).await })
        });
        let mut called = 0;
        for delivered in join_all(racing).await {
            called += usize::from(delivered??.report.is_some());
        }
        ensure!(called == 1, "{called} workers called the provider");
        refunds.ledger_shows(&message.operation, 1, 1)?;
    }
    Ok(())
}

/// Authority that was never used and is no longer good starts nothing.
async fn never_good(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    let message = refunds.approve("ORD-9", "30.00").await?;
    let soon = json!({ "expires_at": from_now(2_000) });
    let expired = refunds.decide(&message.operation, "DEC-SOON", 1, soon).await?;
    let path = format!("/v1/capabilities/{}/revoke", message.capability);
    nodes[0].post(&path, &json!({ "reason": "the agent was wrong" })).await?.in_state("revoked")?;
    // Something lives, so that time goes on in the store.
    nodes[0].claim(&Claim::of("ledger/alive")).await?.is(201, "claimed")?;
    until(async || nodes[1].capability_is(&expired, "expired", 1).await).await?;
    for node in nodes {
        refunds.deliver(node, &message).await?.claim.is(403, "capability.revoked")?;
        let late = message.with_authority("MSG-LATE", &expired);
        refunds.deliver(node, &late).await?.claim.is(403, "capability.expired")?;
        on_record(node, &late, "capability.expired").await?;
    }
    refunds.ledger_shows(&message.operation, 0, 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ambiguous_outcome_is_unknown_and_nothing_is_sent_again() -> Result<()> {
    let (_cluster, nodes, refunds) = start("").await?;
    lost_answer(&nodes, &refunds).await?;
    duplicate_while_held(&nodes, &refunds).await?;
    never_sent(&nodes, &refunds).await
}

/// The refund is made and its answer lost: redelivery, resubmission and a second capability send nothing; the reconciler asks.
async fn lost_answer(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    refunds.provider.lose_next_answer();
    let message = refunds.approve("ORD-8841", "120.00").await?;
    let operation = &message.operation;
    let first = refunds.deliver(&nodes[0], &message).await?;
    first.report.context("the provider was called")?.in_state("unknown")?;
    let second = refunds.decide(operation, "DEC-REISSUED", 1, json!({})).await?;
    let reissued = message.with_authority("MSG-56B", &second);
    for node in nodes {
        refunds.deliver(node, &message).await?.claim.is(200, "duplicate_delivery")?.in_state("unknown")?;
        refunds.deliver(node, &message.resubmitted("MSG-77C")).await?.claim.is(409, SPENT)?;
        refunds.deliver(node, &reissued).await?.claim.is(409, "operation.outcome-unknown")?;
        ensure!(refunds.state(node, operation).await? == "unknown", "an ambiguous outcome was made something else");
        node.capability_is(&message.capability, "consumed", 0).await?;
        node.capability_is(&second, "issued", 1).await?;
    }
    refunds.ledger_shows(operation, 1, 1)?;
    on_record(&nodes[1], &reissued, "operation.outcome-unknown").await?;

    ensure!(refunds.reconcile(&nodes[2]).await? == (1, 0), "not found by the portal's own reference");
    let refund = refunds.provider.find(operation).context("the refund")?;
    for node in nodes {
        let read = node.operation(operation).await?.in_state("completed")?;
        ensure!(read.body["outcome"]["external_id"] == refund.id.as_str(), "{read:?}");
        refunds.deliver(node, &reissued).await?.claim.is(409, "operation.completed")?;
        refunds.deliver(node, &message).await?.claim.is(200, "duplicate_delivery")?;
    }
    refunds.ledger_shows(operation, 1, 1)
}

/// The broker's lock lapses while worker A waits for the provider: worker B learns that, and changes nothing.
async fn duplicate_while_held(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    let mut hold = refunds.provider.hold_next_answer();
    let message = refunds.approve("ORD-8842", "50.00").await?;
    let worker_a = tokio::spawn({
        let (node, refunds, message) = (nodes[0].clone(), refunds.clone(), message.clone());
        async move { refunds.deliver(&node, &message).await }
    });
    hold.arrived().await;
    let second = refunds.decide(&message.operation, "DEC-REISSUED", 1, json!({})).await?;
    let reissued = message.with_authority("MSG-56B", &second);
    for node in nodes {
        refunds.deliver(node, &message).await?.claim.is(200, "duplicate_delivery")?.in_state("executing")?;
        refunds.deliver(node, &reissued).await?.claim.is(409, "operation.executing")?;
        ensure!(refunds.state(node, &message.operation).await? == "executing");
    }
    hold.release();
    worker_a.await??.report.context("the provider was called")?.in_state("completed")?;
    refunds.ledger_shows(&message.operation, 1, 1)
}

/// A worker dies between its claim and its call: nobody can tell, so people look, and only their proof allows another attempt.
async fn never_sent(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    const LEASE_MS: u64 = 1_500;
    let message = refunds.approve("ORD-8843", "70.00").await?;
    let operation = &message.operation;
    let begun = Instant::now();
    let claim = Claim { lease_ms: LEASE_MS, ..refunds.claim(&message)? };
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    refunds.deliver(&nodes[1], &message).await?.claim.is(200, "duplicate_delivery")?.in_state("executing")?;
    until(async || nodes[2].operation(operation).await?.in_state("unknown")).await?;
    ensure!(begun.elapsed() >= Duration::from_millis(LEASE_MS), "unknown before the lease was over");
    ensure!(refunds.reconcile(&nodes[1]).await? == (0, 1), "found what was never sent");
    let second = refunds.decide(operation, "DEC-REISSUED", 1, json!({})).await?;
    let reissued = message.with_authority("MSG-X", &second);
    for node in nodes {
        refunds.deliver(node, &reissued).await?.claim.is(409, "operation.outcome-unknown")?;
    }
    refunds.ledger_shows(operation, 0, 0)?;

    let read = nodes[0].operation(operation).await?;
    ensure!(read.body["escalated"] == true, "{read:?}");
    let epoch = read.body["execution"]["lease_epoch"].as_u64().context("no epoch")?;
    let why = json!({ "proof": "the provider's own log has no such request", "reason": "never sent" });
    nodes[0].resolve(granted.text("execution_id"), epoch, "not_applied", why).await?.in_state("not_applied")?;
    refunds.deliver(&nodes[0], &reissued).await?.claim.is(409, "attempt.mismatch")?;
    let third = refunds.decide(operation, "DEC-NEW", 2, json!({})).await?;
    let again = message.with_authority("MSG-Y", &third);
    refunds.deliver(&nodes[1], &again).await?.report.context("not called")?.in_state("completed")?;
    refunds.ledger_shows(operation, 1, 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_attempt_needs_a_new_decision_under_the_facts_of_now() -> Result<()> {
    let (_cluster, nodes, refunds) = start("").await?;
    refunds.provider.reject_next();
    let message = refunds.approve("ORD-8841", "120.00").await?;
    let operation = &message.operation;
    let early = refunds.decide(operation, "DEC-EARLY", 1, json!({})).await?;
    let first = refunds.deliver(&nodes[0], &message).await?;
    first.report.context("the provider was called")?.in_state("not_applied")?;
    // Operational retries of any kind are not a new decision.
    let mut bare = Claim { claim_id: Uuid::new_v4(), ..refunds.claim(&message)? };
    bare.more.as_object_mut().map(|more| more.remove("capability_id"));
    let bare = bare.because_of("MSG-BARE");
    for node in &nodes {
        refunds.deliver(node, &message).await?.claim.is(200, "duplicate_delivery")?;
        refunds.deliver(node, &message.resubmitted("MSG-COPY")).await?.claim.is(409, SPENT)?;
        let early = message.with_authority("MSG-EARLY", &early);
        refunds.deliver(node, &early).await?.claim.is(409, "attempt.mismatch")?;
        node.claim(&bare).await?.is(403, "capability.required")?;
    }
    refunds.ledger_shows(operation, 1, 0)?;

    // It is decided again, and a chargeback comes in before the worker is there.
    let facts = nodes[0].bump("orders", 0).await?.is(200, "")?.body["value"].clone();
    let under = |value: &Value| json!({ "epoch": { "scope": "orders", "value": value } });
    let denied = refunds.decide(operation, "DEC-3390", 2, under(&facts)).await?;
    let now = nodes[1].bump("orders", facts.as_u64().context("a value")?).await?.is(200, "")?.body["value"].clone();
    let denied = message.with_authority("MSG-3390", &denied);
    for node in &nodes {
        refunds.deliver(node, &denied).await?.claim.is(403, "epoch.stale")?;
    }
    refunds.ledger_shows(operation, 1, 0)?;
    let allowed = refunds.decide(operation, "DEC-3391", 2, under(&now)).await?;
    let allowed = message.with_authority("MSG-3391", &allowed);
    refunds.deliver(&nodes[2], &allowed).await?.report.context("not called")?.in_state("completed")?;
    refunds.ledger_shows(operation, 2, 1)?;
    let keys: BTreeSet<_> = refunds.provider.requests(operation).into_iter().map(|request| request.key).collect();
    ensure!(keys.len() == 2, "two attempts sent {keys:?}");
    let more = nodes[0].issue(operation, "DEC-3392", 3, json!({})).await?;
    more.is(409, "operation.completed")?;
    chosen_key(&nodes, &refunds).await
}

/// The decision says which key is sent. This provider answers the first one with its saved error, so that a second attempt under it
/// comes to nothing, and a third one under its own key pays.
async fn chosen_key(nodes: &[Caller], refunds: &Refunds) -> Result<()> {
    refunds.provider.reject_next();
    let message = refunds.approve("ORD-8850", "15.00").await?;
    let operation = &message.operation;
    refunds.deliver(&nodes[0], &message).await?.report.context("not called")?.in_state("not_applied")?;
    let same = refunds.decide(operation, "DEC-2", 2, json!({ "effect_key_attempt": 1 })).await?;
    let same = message.with_authority("MSG-2", &same);
    refunds.deliver(&nodes[1], &same).await?.report.context("not called")?.in_state("not_applied")?;
    refunds.ledger_shows(operation, 2, 0)?;
    let own = message.with_authority("MSG-3", &refunds.decide(operation, "DEC-3", 3, json!({})).await?);
    refunds.deliver(&nodes[2], &own).await?.report.context("not called")?.in_state("completed")?;
    refunds.ledger_shows(operation, 3, 1)?;
    let keys: Vec<_> = refunds.provider.requests(operation).into_iter().map(|request| request.key).collect();
    ensure!(keys[0] == keys[1] && keys[1] != keys[2], "{keys:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_store_nothing_is_executed_and_nothing_is_acknowledged() -> Result<()> {
    let (cluster, nodes, refunds) = start("request_timeout_ms = 1500").await?;
    let leader = cluster.leader().await?;
    let (cut, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut queue = VecDeque::new();
    for n in 0..3 {
        queue.push_back(refunds.approve(&format!("ORD-{n}"), "10.00").await?);
    }
    let held = refunds.approve("ORD-HELD", "11.00").await?;
    let mut hold = refunds.provider.hold_next_answer();
    let worker = tokio::spawn({
        let (node, refunds, message) = (nodes[cut].clone(), refunds.clone(), held.clone());
        async move { refunds.deliver(&node, &message).await }
    });
    hold.arrived().await;

    let ids: Vec<u64> = cluster.nodes.iter().map(|node| node.id).collect();
    cluster.network.isolate(ids[cut], &[ids[leader], ids[other]]);
    ensure!(
        refunds.drain(&nodes[cut], &mut queue).await?.is_empty() && queue.len() == 3,
        "acknowledged without a store"
    );
    ensure!(refunds.provider.all_requests() == 1, "executed without a store");
    // The one that was sent before comes to an end, and cannot say so.
    hold.release();
    let stranded = worker.await??;
    let report = stranded.report.context("the provider was called")?;
    ensure!(report.status.as_u16() >= 500, "recorded without a store: {report:?}");
    // Another worker, with the majority, takes one of the messages.
    let mut elsewhere = VecDeque::from([queue[0].clone()]);
    until(async || {
        let handled = refunds.drain(&nodes[other], &mut elsewhere).await?;
        ensure!(handled == ["claimed"], "{handled:?}");
        Ok(())
    })
    .await?;

    cluster.network.heal();
    let mut handled = Vec::new();
    until(async || {
        handled.extend(refunds.drain(&nodes[cut], &mut queue).await?);
        ensure!(queue.is_empty(), "not handled: {queue:?}");
        Ok(())
    })
    .await?;
    handled.sort_unstable();
    ensure!(handled == ["claimed", "claimed", "duplicate_delivery"], "{handled:?}");
    for n in 0..3 {
        let operation = nodes[other]
            .post("/v1/operations/lookup", &json!({ "namespace": NAMESPACE, "resource": format!("ORD-{n}") }))
            .await?;
        let operation =
            operation.is(200, "")?.body["operations"][0]["operation_id"].as_str().context("not found")?.to_owned();
        refunds.ledger_shows(&operation, 1, 1)?;
    }
    refunds.deliver(&nodes[other], &held).await?.claim.is(200, "duplicate_delivery")?;
    let (execution, epoch) = (stranded.claim.text("execution_id"), stranded.claim.epoch());
    nodes[cut].report(execution, epoch, "completed").await?.in_state("completed")?;
    refunds.ledger_shows(&held.operation, 1, 1)
}

/// How often the worker's pipeline sends one request at most.
const SENDS_MAX: usize = 5;

/// A worker's pipeline: it sends the same request, with the same key, until it is answered or the lease is lost.
async fn send(lease: &LeaseGuard, provider: &Provider, payment: &Payment) -> (Vec<Send>, Option<String>) {
    let mut sends = Vec::new();
    while lease.is_held() && sends.len() < SENDS_MAX {
        let Answer { send, id } = tokio::select! {
            answer = provider.refund(lease.claimed().effect_key.as_str(), payment) => answer,
            () = lease.lost() => Answer { send: Send::Lost, id: None },
        };
        sends.push(send);
        if send != Send::Lost {
            return (sends, id);
        }
    }
    (sends, None)
}

async fn elect(client: &Client, refunds: &Refunds, message: &Message) -> Result<(LeaseGuard, hapax_client::Claim)> {
    let claim = refunds.claim(message)?;
    let claim = hapax_client::Claim::new(NAMESPACE.parse()?, claim.key.parse()?, &claim.request)?
        .capability(message.capability.parse()?)
        .message("worker".parse()?, message.id.parse()?)
        .resource(claim.more["resource"].as_str().unwrap_or_default().parse()?)
        .lease_ms(3_000);
    match client.elect(&claim).await {
        Outcome::Done(Election::Held(lease)) => Ok((lease, claim)),
        other => bail!("not elected: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_resends_under_one_key_and_a_fenced_one_sends_no_more() -> Result<()> {
    let (cluster, nodes, refunds) = start("").await?;
    let urls: Vec<_> = cluster.nodes.iter().map(|node| node.url.clone()).collect();
    let client = Client::new(Settings::new(urls, "dev"))?;
    // Two answers are lost on the way: the pipeline sends again, under the same key.
    let message = refunds.approve("ORD-1", "120.00").await?;
    let (lease, _) = elect(&client, &refunds, &message).await?;
    refunds.provider.lose_next_answer();
    let (sends, id) = send(&lease, &refunds.provider, &refunds.payment(&message.operation)?).await;
    ensure!(sends.len() == 2 && proven_by(&sends) == Reported::Completed && id.is_some(), "{sends:?}");
    let reported = lease.report(Reported::Completed, ResultData::default()).await;
    ensure!(reported.done().is_some());
    refunds.ledger_shows(&message.operation, 2, 1)?;
    let keys: BTreeSet<_> = refunds.provider.requests(&message.operation).into_iter().map(|sent| sent.key).collect();
    ensure!(keys.len() == 1, "a resend changed its key: {keys:?}");

    // An operator fences the worker while it waits: its pipeline would send four times more, and sends nothing.
    let message = refunds.approve("ORD-2", "80.00").await?;
    let (lease, claim) = elect(&client, &refunds, &message).await?;
    let mut hold = refunds.provider.hold_next_answer();
    let payment = refunds.payment(&message.operation)?;
    let (execution, epoch) = (lease.claimed().execution_id.to_string(), lease.claimed().lease_epoch);
    let fencing = async {
        hold.arrived().await;
        let body = json!({ "lease_epoch": epoch, "reason": "this host misbehaves" });
        nodes[1].post(&format!("/v1/executions/{execution}/fence"), &body).await?.in_state("unknown")
    };
    let ((sends, _), fenced) = tokio::join!(send(&lease, &refunds.provider, &payment), fencing);
    fenced?;
    ensure!(sends == [Send::Lost] && !lease.is_held(), "{sends:?}");
    refunds.ledger_shows(&message.operation, 1, 1)?;
    hold.release();
    let Outcome::Refused(problem) = lease.report(Reported::Completed, ResultData::default()).await else {
        bail!("a fenced worker's report was taken");
    };
    ensure!(problem.code.as_str() == "lease.stale-epoch", "{problem:?}");
    ensure!(refunds.state(&nodes[2], &message.operation).await? == "unknown");
    // The answer that came too late is evidence about its own execution, and nothing more.
    let claim_id = Uuid::from_bytes(claim.claim_id().0);
    let late = json!({ "claim_id": claim_id, "outcome": "completed", "external_id": "re_2", "proof": "201 re_2" });
    nodes[0].post(&format!("/v1/executions/{execution}/evidence"), &late).await?.in_state("completed")?;
    refunds.ledger_shows(&message.operation, 1, 1)
}

/// Handlers that look safe, through the same deliveries: the ledger shows what each of them gets wrong. What it shows of the careful
/// one in the other tests is worth something because of that. (REQUIREMENTS 54, 107, 110)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_in_the_wrong_order_are_convicted_by_the_ledger() -> Result<()> {
    let (_cluster, nodes, refunds) = start("").await?;
    // Effect, then record: it dies in between, and the redelivery finds nothing recorded.
    let message = refunds.approve("ORD-EFFECT-FIRST", "1.00").await?;
    let payment = refunds.payment(&message.operation)?;
    for dies in [true, false] {
        ensure!(refunds.state(&nodes[0], &message.operation).await? == "requested");
        refunds.provider.refund(&Uuid::new_v4().to_string(), &payment).await;
        if !dies {
            nodes[0].claim(&refunds.claim(&message)?).await?.is(201, "claimed")?;
        }
    }
    refunds.ledger_shows(&message.operation, 2, 2)?;

    // Record, then effect: it dies in between, and everybody is told that it was done.
    let message = refunds.approve("ORD-RECORD-FIRST", "2.00").await?;
    let granted = nodes[1].claim(&refunds.claim(&message)?).await?.is(201, "claimed")?;
    nodes[1].report(granted.text("execution_id"), granted.epoch(), "completed").await?.in_state("completed")?;
    refunds.deliver(&nodes[2], &message).await?.claim.is(200, "duplicate_delivery")?.in_state("completed")?;
    refunds.ledger_shows(&message.operation, 0, 0)?;

    // The provider's key instead of spent authority: a day later the copy pays again.
    let message = refunds.approve("ORD-KEY-ONLY", "3.00").await?;
    let payment = refunds.payment(&message.operation)?;
    for _ in 0..2 {
        refunds.provider.refund(&format!("refund-{}-a1", message.operation), &payment).await;
        refunds.provider.pass(A_DAY_AND_AN_HOUR);
    }
    refunds.ledger_shows(&message.operation, 2, 2)
}
