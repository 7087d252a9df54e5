//! What is over is forgotten in its time: the result first, then the rest, at once on every node and for good, whoever is killed
//! meanwhile; what can still happen stays; a key that comes again means what its namespace says; and the disk gets its bytes back.
//! (REQUIREMENTS 23, 81–85, 104, 124, 126, 137; DESIGN §5)
//!
//! Time passes by the nodes' own wall clocks, which the test moves: nothing waits for a minute, and everything else is as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hapax_tests::admin::{from_now, millis, namespace};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::content::{Content, settle};
use hapax_tests::faketime::{FakeTime, seen};
use hapax_tests::wait::until;
use rand::RngExt;
use serde_json::{Value, json};
use uuid::Uuid;

/// Results are kept for a minute, the shortest that there is, and everything else for ten.
const BODY_MS: u64 = 60_000;
const IDENTITY_MS: u64 = 600_000;
/// Floors stay so far behind what a policy allows.
const MARGIN_MS: u64 = 60_000;
/// Where the clocks are when results are over, and when everything is, in seconds.
const RESULTS_OVER_S: i64 = 300;
const ALL_OVER_S: i64 = 1_500;
/// How long the replicated wall and the floors may take to follow the clocks: clocks are compared every ten seconds.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(60);

/// Looks are frequent, and so are the flushes that the passes wait for; a node's own state answers only while it is very recent,
/// because floors follow no faster than that.
fn options(time: &FakeTime) -> Options {
    Options {
        raft: "flush_interval_ms = 500".to_owned(),
        sections: "[reads]\nlocal_fact_renew_ms = 100\nlocal_fact_max_staleness_ms = 400\n\
                   [retention]\ninterval_ms = 500\ncompact_interval_ms = 1000\n"
            .to_owned(),
        environment: time.environment(),
        ..Options::default()
    }
}

fn policy(expired_keys: &str) -> Value {
    json!({ "retention": { "body_ms": BODY_MS, "identity_ms": IDENTITY_MS, "expired_keys": expired_keys } })
}

/// The operations of the story, by name.
struct Story {
    operations: BTreeMap<&'static str, Answer>,
    /// Of the operation `done`.
    claim: Claim,
    capability: String,
    /// When the keys of the namespace `reject` were made.
    made_at: String,
}

/// The operations that nothing forgets: they are not terminal, or quarantined.
const STAYS: [&str; 7] =
    ["requested", "executing", "unknown", "escalated", "not_applied", "quarantined", "quarantined_unknown"];
/// Those that go with their time.
const GOES: [&str; 5] = ["done", "failed", "closed", "rejected", "next"];

impl Story {
    async fn begin(nodes: &[Caller]) -> Result<Self> {
        for (name, expired) in [("short", "new"), ("longer", "new"), ("reject", "reject_older")] {
            namespace(&nodes[0], None, name, &policy(expired)).await?;
        }
        let durable =
            json!({ "retention": { "body_ms": BODY_MS, "identity_ms": BODY_MS, "expired_keys": "durable" } });
        namespace(&nodes[1], None, "durable", &durable).await?;
        let made_at = from_now(-1_000);
        let claim = of("done").with("resource", "order-82").with("correlation_id", "COR-1");
        let (_, capability) = nodes[0].approve(&claim, "D-1").await?;
        let claim = claim.because_of("M-1").presenting(&capability);
        let mut story = Self { operations: BTreeMap::new(), claim, capability, made_at };
        story.terminal(nodes).await?;
        story.open(&nodes[2]).await?;
        Ok(story)
    }

    fn id(&self, name: &str) -> &str {
        self.operations.get(name).map(|answer| answer.text("operation_id")).unwrap_or_default()
    }

    async fn terminal(&mut self, nodes: &[Caller]) -> Result<()> {
        let done = finish(&nodes[0], &self.claim, "completed").await?;
        // Somebody presents the spent capability again, and an ex-owner says what is known: both are on record.
        nodes[1].claim(&self.claim.again().because_of("M-2")).await?.is(409, "capability.already-consumed")?;
        nodes[1].evidence(done.text("execution_id"), &self.claim, "completed").await?.in_state("completed")?;
        self.operations.insert("done", done);
        self.operations.insert("failed", finish(&nodes[1], &of("failed"), "failed").await?);
        let closed = nodes[2].register(&of("closed")).await?.is(201, "")?;
        nodes[2].repair(closed.text("operation_id"), "close", "requested").await?.in_state("failed")?;
        self.operations.insert("closed", closed);
        let mut rejected = Claim { namespace: "reject", ..of("rejected") };
        nodes[0].claim(&rejected).await?.is(400, "request.invalid").context("a key without its time")?;
        rejected = rejected.with("key_created_at", self.made_at.clone());
        self.operations.insert("rejected", finish(&nodes[0], &rejected, "completed").await?);
        let kept = Claim { namespace: "durable", ..of("durable") };
        self.operations.insert("durable", finish(&nodes[1], &kept, "completed").await?);
        let longer = Claim { namespace: "longer", ..of("longer") };
        self.operations.insert("longer", finish(&nodes[2], &longer, "completed").await?);
        let quarantined = finish(&nodes[0], &of("quarantined"), "completed").await?;
        nodes[0].repair(quarantined.text("operation_id"), "quarantine", "completed").await?.in_state("completed")?;
        self.operations.insert("quarantined", quarantined);
        self.operations.insert("next", finish(&nodes[1], &of("next"), "completed").await?);
        Ok(())
    }

    async fn open(&mut self, node: &Caller) -> Result<()> {
        self.operations.insert("requested", node.register(&of("requested")).await?.is(201, "")?);
        for name in ["executing", "unknown", "escalated", "not_applied", "quarantined_unknown"] {
            // As long as leases may be: what executes goes on executing, for lease time does not jump with the wall.
            let granted = node.claim(&Claim { lease_ms: 900_000, ..of(name) }).await?.is(201, "claimed")?;
            let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
            let reported = match name {
                "executing" => None,
                "not_applied" => Some("not_applied"),
                _ => Some("unknown"),
            };
            if let Some(outcome) = reported {
                node.report(execution, epoch, outcome).await?.in_state(outcome)?;
            }
            let body = json!({ "lease_epoch": epoch, "reason": "nobody answers" });
            match name {
                "escalated" => {
                    node.post(&format!("/v1/executions/{execution}/escalate"), &body).await?.in_state("unknown")?
                }
                "quarantined_unknown" => {
                    node.repair(granted.text("operation_id"), "quarantine", "unknown").await?.in_state("unknown")?
                }
                _ => granted.clone(),
            };
            self.operations.insert(name, granted);
        }
        Ok(())
    }

    /// Everything that a node tells of the story, but for when it was asked.
    async fn told_by(&self, node: &Caller) -> Result<BTreeMap<String, String>> {
        let mut told = BTreeMap::new();
        for (name, granted) in &self.operations {
            let id = granted.text("operation_id");
            told.insert(format!("{name} by id"), momentless(&node.operation(id).await?));
            told.insert(
                format!("{name} on record"),
                momentless(&node.get(&format!("/v1/evidence?operation_id={id}")).await?),
            );
            let space = space_of(name);
            let look = json!({ "namespace": space, "key": *name });
            told.insert(format!("{name} by key"), momentless(&node.post("/v1/operations/lookup", &look).await?));
        }
        for (what, value) in [("resource", "order-82"), ("external_id", "ch_done")] {
            let look = json!({ "namespace": "short", what: value });
            told.insert(format!("by {what}"), momentless(&node.post("/v1/operations/lookup", &look).await?));
        }
        for state in
            ["requested", "executing", "unknown", "escalated", "not_applied", "completed", "failed", "quarantined"]
        {
            for space in ["short", "longer", "reject", "durable"] {
                let path = format!("/v1/operations?namespace={space}&state={state}");
                told.insert(format!("{space} {state}"), momentless(&node.get(&path).await?.is(200, "")?));
            }
        }
        for path in [
            format!("/v1/capabilities/{}", self.capability),
            format!("/v1/evidence?capability_id={}", self.capability),
            "/v1/evidence?message_id=M-2&consumer=worker".to_owned(),
            "/v1/evidence?correlation_id=COR-1".to_owned(),
        ] {
            told.insert(path.clone(), momentless(&node.get(&path).await?));
        }
        Ok(told)
    }

    /// The same from all nodes.
    async fn told(&self, nodes: &[Caller]) -> Result<BTreeMap<String, String>> {
        let first = self.told_by(&nodes[0]).await?;
        for node in &nodes[1..] {
            same(&first, &self.told_by(node).await?)?;
        }
        Ok(first)
    }
}

fn of(key: &'static str) -> Claim {
    Claim { namespace: "short", ..Claim::of(key) }
}

fn space_of(name: &str) -> &str {
    match name {
        "longer" => "longer",
        "durable" => "durable",
        "rejected" => "reject",
        _ => "short",
    }
}

/// Claims and reports, with a result and a name of the provider's.
async fn finish(node: &Caller, claim: &Claim, outcome: &str) -> Result<Answer> {
    let granted = node.claim(claim).await?.is(201, "claimed")?;
    let body = json!({
        "lease_epoch": granted.epoch(), "outcome": outcome, "external_id": format!("ch_{}", claim.key),
        "result": { "of": claim.key }, "status_code": 201, "schema_version": "7",
    });
    node.post(&format!("/v1/executions/{}/outcome", granted.text("execution_id")), &body).await?.in_state(outcome)?;
    Ok(granted)
}

/// An answer without the moment in which it was given, and without what is left of a lease then.
fn momentless(answer: &Answer) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("lease_expires_in_ms");
                fields.remove("revision");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut body = answer.body.clone();
    strip(&mut body);
    format!("{} {body}", answer.status.as_u16())
}

fn same(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Result<()> {
    for (what, told) in one {
        ensure!(other.get(what) == Some(told), "{what}: {told}, and elsewhere or later {:?}", other.get(what));
    }
    ensure!(one.len() == other.len());
    Ok(())
}

/// What stays is told as it was, word for word.
fn stays_as_it_was(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Result<()> {
    for name in STAYS.into_iter().filter(|name| *name != "quarantined") {
        for what in ["by id", "on record", "by key"] {
            let what = format!("{name} {what}");
            ensure!(
                before.get(&what) == now.get(&what),
                "{what}: {:?} is now {:?}",
                before.get(&what),
                now.get(&what)
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_over_goes_in_its_time_on_every_node_and_what_can_still_happen_stays() -> Result<()> {
    let time = FakeTime::new(3)?;
    let mut cluster = Cluster::start(options(&time)).await?;
    let nodes = cluster.callers();
    let story = Arc::new(Story::begin(&nodes).await?);
    let whole = story.told(&nodes).await?;
    let over = Arc::new(AtomicBool::new(false));
    let only_forward = tokio::spawn(only_forward(nodes.clone(), Arc::clone(&story), Arc::clone(&over)));

    one_wrong_clock_forgets_nothing(&mut cluster, &time, &story).await?;
    same(&whole, &story.told(&nodes).await?).context("after one clock was wrong")?;

    passes(&mut cluster, &time, RESULTS_OVER_S, "compact_before", &story).await?;
    let compacted = story.told(&nodes).await?;
    results_are_gone_and_nothing_else(&nodes, &story, &whole, &compacted).await?;
    let longer = json!({ "retention": { "body_ms": BODY_MS, "identity_ms": 86_400_000 } });
    nodes[0].put("/v1/namespaces/longer", ("if-match", "\"v1\""), &longer).await?.is(200, "")?;
    kill_all(&mut cluster).await?;
    let longer = story.id("longer").to_owned();
    let but_for_longer = |told: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        told.iter()
            .filter(|(_, text)| !text.contains(&longer))
            .map(|(what, text)| (what.clone(), text.clone()))
            .collect()
    };
    same(&but_for_longer(&compacted), &but_for_longer(&story.told(&nodes).await?))
        .context("after all were killed")?;

    passes(&mut cluster, &time, ALL_OVER_S, "forget_before", &story).await?;
    let forgotten = story.told(&nodes).await?;
    all_of_it_is_gone(&nodes, &story, &forgotten).await?;
    stays_as_it_was(&whole, &forgotten)?;
    kill_all(&mut cluster).await?;
    same(&forgotten, &story.told(&nodes).await?).context("after all were killed")?;
    over.store(true, Ordering::Relaxed);
    println!("{} looks, and no step back", only_forward.await??);

    a_key_that_comes_again(&cluster, &nodes, &story).await?;
    what_stayed_goes_on(&nodes, &story).await?;
    same_on_every_disk(&mut cluster, &story).await
}

/// Looks at one operation through one node after the other, as long as it takes. Each look is linearizable and begins after the
/// one before it: an operation that was told without its result is never told with it again, nor at all once it was gone; and
/// no floor falls.
async fn only_forward(nodes: Vec<Caller>, story: Arc<Story>, over: Arc<AtomicBool>) -> Result<u64> {
    let (mut phase, mut floors, mut looks) = (0, (0, 0), 0);
    while !over.load(Ordering::Relaxed) {
        for node in &nodes {
            let read = node.operation(story.id("done")).await;
            let now = match read {
                Ok(answer) if answer.status == 404 => 2,
                Ok(answer) if answer.status == 200 && answer.body["outcome"]["result_compacted"] == true => 1,
                Ok(answer) if answer.status == 200 && !answer.body["outcome"]["result"].is_null() => 0,
                Ok(answer) if answer.status.as_u16() >= 500 => continue,
                Ok(answer) => bail!("neither whole, nor without its result, nor gone: {answer:?}"),
                // It is down.
                Err(_) => continue,
            };
            ensure!(now >= phase, "from {phase} back to {now} after {looks} looks");
            phase = now;
            looks += 1;
            if let Ok(shown) = node.get("/v1/namespaces/short").await
                && shown.status == 200
            {
                let stands = floors_of(&shown);
                ensure!(stands.0 >= floors.0 && stands.1 >= floors.1, "floors fell from {floors:?} to {stands:?}");
                floors = stands;
            }
        }
    }
    ensure!(phase == 2, "it was looked at until {phase} only");
    Ok(looks)
}

/// Where results go, and where all goes, in milliseconds.
fn floors_of(shown: &Answer) -> (u64, u64) {
    let at = |name: &str| shown.body["floors"][name].as_str().map(millis).unwrap_or_default();
    (at("compact_before"), at("forget_before"))
}

async fn ended_at(node: &Caller, id: &str) -> Result<u64> {
    let read = node.operation(id).await?.is(200, "")?;
    read.body["outcome"]["completed_at"].as_str().map(millis).context("it is over")
}

/// A node whose clock is a day ahead, as a follower and as a leader: an election compares clocks anew.
async fn one_wrong_clock_forgets_nothing(cluster: &mut Cluster, time: &FakeTime, story: &Story) -> Result<()> {
    let nodes = cluster.callers();
    let done = ended_at(&nodes[0], story.id("done")).await?;
    let leader = cluster.leader().await?;
    let wrong = (leader + 1) % 3;
    time.set(cluster.nodes[wrong].id, 80_000)?;
    seen(&cluster.nodes[wrong], 80_000).await?;
    cluster.nodes[leader].kill()?;
    cluster.nodes[leader].start()?;
    cluster.nodes[leader].ready().await?;
    // Longer than a new leader waits before it compares clocks, and several rounds of raising floors.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let shown = nodes[leader].get("/v1/namespaces/short").await?;
        if shown.status == 200 {
            let (compact_before, _) = floors_of(&shown);
            ensure!(compact_before < done, "one clock moved a floor to {compact_before}, above {done}");
        }
    }
    time.set(cluster.nodes[wrong].id, 0)?;
    seen(&cluster.nodes[wrong], 0).await
}

/// All clocks go on; the leader is killed at once, and the next one as soon as the floor has passed everything, before anybody
/// else's disk can have heard of it.
async fn passes(cluster: &mut Cluster, time: &FakeTime, seconds: i64, floor: &str, story: &Story) -> Result<()> {
    let nodes = cluster.callers();
    // What is over before results are, is over before everything is.
    let last =
        if floor == "compact_before" { ended_at(&nodes[0], story.id("next")).await? } else { millis(&from_now(0)) };
    for node in 1..=3 {
        time.set(node, seconds)?;
    }
    let first = cluster.leader().await?;
    cluster.nodes[first].kill()?;
    let begun = Instant::now();
    'passed: loop {
        for node in nodes.iter().enumerate().filter(|(at, _)| *at != first).map(|(_, node)| node) {
            let Ok(shown) = node.get("/v1/namespaces/short").await else { continue };
            let (compact_before, forget_before) = floors_of(&shown);
            if (if floor == "compact_before" { compact_before } else { forget_before }) > last {
                break 'passed;
            }
        }
        ensure!(begun.elapsed() < FOLLOWS_WITHIN, "{floor} does not pass {last}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("{floor} passed {:?} after the clocks had moved", begun.elapsed());
    let second = cluster.leader().await?;
    cluster.nodes[second].kill()?;
    for at in [first, second] {
        cluster.nodes[at].start()?;
    }
    cluster.ready().await?;
    // Floors never overtake the policy: what a policy keeps is kept, by the clocks that everybody has.
    for node in &nodes {
        let (compact_before, forget_before) = floors_of(&node.get("/v1/namespaces/short").await?.is(200, "")?);
        let now = millis(&from_now(seconds * 1_000));
        ensure!(compact_before + BODY_MS + MARGIN_MS <= now, "a result went early");
        ensure!(forget_before + IDENTITY_MS + MARGIN_MS <= now, "an operation went early");
    }
    Ok(())
}

async fn kill_all(cluster: &mut Cluster) -> Result<()> {
    for node in &mut cluster.nodes {
        node.kill()?;
    }
    for node in &mut cluster.nodes {
        node.start()?;
    }
    cluster.ready().await
}

async fn results_are_gone_and_nothing_else(
    nodes: &[Caller],
    story: &Story,
    whole: &BTreeMap<String, String>,
    compacted: &BTreeMap<String, String>,
) -> Result<()> {
    stays_as_it_was(whole, compacted)?;
    for name in GOES.into_iter().chain(["durable", "longer", "quarantined"]).filter(|name| *name != "closed") {
        let of = format!("{name} by id");
        let parsed = |told: &BTreeMap<String, String>| -> Result<Value> {
            let text = told.get(&of).context("told")?;
            Ok(serde_json::from_str(text.split_once(' ').context("a status and a body")?.1)?)
        };
        let (mut before, after) = (parsed(whole)?, parsed(compacted)?);
        let outcome = before["outcome"].as_object_mut().context("it is over")?;
        ensure!(outcome.remove("result").is_some(), "{name} had no result");
        outcome.insert("result_compacted".to_owned(), json!(true));
        ensure!(before == after, "{name}: {before} is now {after}");
    }
    for what in ["closed by id", "done on record", &format!("/v1/capabilities/{}", story.capability)] {
        ensure!(whole.get(what) == compacted.get(what), "{what}: {:?}", compacted.get(what));
    }
    for node in nodes {
        let replayed = node.claim(&bare(&story.claim.again())).await?.is(200, "replayed")?;
        let outcome = &replayed.body["outcome"];
        ensure!(outcome["result_compacted"] == true && outcome["result"].is_null(), "{replayed:?}");
        ensure!(outcome["external_id"] == "ch_done" && outcome["status_code"] == 201, "{replayed:?}");
        let other = Claim { request: json!({ "amount": 1 }), ..of("done") };
        node.claim(&other).await?.is(409, "key.digest-mismatch").context("the digest is identity")?;
        node.claim(&story.claim.again()).await?.is(200, "duplicate_delivery").context("a redelivery is known")?;
    }
    Ok(())
}

/// A claim without what it presents.
fn bare(claim: &Claim) -> Claim {
    Claim { more: json!({}), ..claim.clone() }
}

async fn all_of_it_is_gone(nodes: &[Caller], story: &Story, told: &BTreeMap<String, String>) -> Result<()> {
    for name in GOES {
        let by_id = told.get(&format!("{name} by id")).context("told")?;
        ensure!(by_id.starts_with("404 ") && by_id.contains("\"not-found\""), "{name}: {by_id}");
        let by_key = told.get(&format!("{name} by key")).context("told")?;
        ensure!(by_key == "200 {\"operations\":[]}", "{name}: {by_key}");
        let id = story.id(name);
        let elsewhere: Vec<&String> =
            told.iter().filter(|(_, text)| text.contains(id)).map(|(what, _)| what).collect();
        ensure!(elsewhere.is_empty(), "{name} is still told: {elsewhere:?}");
    }
    for what in ["by resource", "by external_id"] {
        ensure!(told.get(what).is_some_and(|told| told == "200 {\"operations\":[]}"), "{what}: {:?}", told.get(what));
    }
    let capability = told.get(&format!("/v1/capabilities/{}", story.capability)).context("told")?;
    ensure!(capability.starts_with("404 "), "{capability}");
    let done = story.operations.get("done").context("done")?;
    let (execution, epoch) = (done.text("execution_id"), done.epoch());
    for node in nodes {
        node.report(execution, epoch, "completed").await?.is(404, "not-found")?;
        node.renew(execution, epoch, 5_000).await?.is(404, "not-found")?;
        node.evidence(execution, &story.claim, "failed").await?.is(404, "not-found")?;
        node.repair(story.id("done"), "quarantine", "completed").await?.is(404, "not-found")?;
        let replayed = node.claim(&Claim { namespace: "durable", ..of("durable") }).await?.is(200, "replayed")?;
        ensure!(replayed.body["outcome"]["result_compacted"] == true, "{replayed:?}");
        ensure!(node.operation(story.id("longer")).await?.is(200, "")?.text("state") == "completed");
        let held = node.operation(story.id("quarantined")).await?.is(200, "")?;
        ensure!(held.body["quarantined"] == true && held.body.get("retain_until").is_none(), "{held:?}");
    }
    Ok(())
}

/// The three meanings of a key whose operation was forgotten.
async fn a_key_that_comes_again(cluster: &Cluster, nodes: &[Caller], story: &Story) -> Result<()> {
    // `new`: another operation, with the very same call; the capability and the delivery are as forgotten as it is.
    let refused = nodes[1].claim(&story.claim).await?;
    refused.is(403, "capability.invalid")?;
    let again = nodes[1].claim(&bare(&story.claim).because_of("M-1")).await?.is(201, "claimed")?;
    ensure!(again.text("operation_id") != story.id("done") && again.body["attempt"] == 1, "{again:?}");
    ensure!(
        again.text("effect_key") != story.operations["done"].text("effect_key"),
        "the effect key of another operation"
    );
    for node in nodes {
        node.operation(story.id("done")).await?.is(404, "not-found")?;
        let read = node.operation(again.text("operation_id")).await?.is(200, "")?;
        ensure!(read.text("state") == "executing", "{read:?}");
        node.report(story.operations["done"].text("execution_id"), again.epoch(), "failed")
            .await?
            .is(404, "not-found")?;
    }
    // `reject_older`: by the time that came with it, whatever else it says.
    let rejected = Claim { namespace: "reject", ..of("rejected") };
    let with = |made_at: String| rejected.again().with("key_created_at", made_at);
    for node in nodes {
        node.claim(&with(story.made_at.clone())).await?.is(410, "key.retention-elapsed")?;
        let mut body = json!({ "namespace": "reject", "key": "another", "request": {} });
        node.post("/v1/operations", &body).await?.is(400, "request.invalid")?;
        body["key_created_at"] = json!(story.made_at);
        node.post("/v1/operations", &body).await?.is(410, "key.retention-elapsed")?;
        let unsaid = node.claim(&rejected.again()).await?.is(400, "request.invalid")?;
        ensure!(unsaid.text("pointer") == "/key_created_at", "{unsaid:?}");
        let to_come = from_now(ALL_OVER_S * 1_000 + 120_000);
        node.claim(&with(to_come)).await?.is(400, "request.invalid")?;
        let elapsed = "hapax_refusals_total{code=\"key.retention-elapsed\"}";
        let node = cluster.nodes.iter().find(|process| node.url() == process.url).context("its process")?;
        ensure!(node.metric(elapsed).await? >= 2.0, "they are counted");
    }
    let now = from_now(ALL_OVER_S * 1_000);
    let fresh = with(now.clone());
    nodes[0].claim(&fresh).await?.is(201, "claimed")?;
    nodes[1].claim(&fresh.again()).await?.is(202, "in_progress")?;
    nodes[2].claim(&with(from_now(ALL_OVER_S * 1_000 - 2_000))).await?.is(409, "key.digest-mismatch")?;
    // `durable`: never.
    nodes[2].claim(&Claim { namespace: "durable", ..of("durable") }).await?.is(200, "replayed").map(drop)
}

/// What was not forgotten works as if no time had passed.
async fn what_stayed_goes_on(nodes: &[Caller], story: &Story) -> Result<()> {
    nodes[0].claim(&of("requested")).await?.is(201, "claimed")?;
    let executing = &story.operations["executing"];
    nodes[1].claim(&of("executing")).await?.is(202, "in_progress")?;
    nodes[1].report(executing.text("execution_id"), executing.epoch(), "completed").await?.in_state("completed")?;
    nodes[2].claim(&of("unknown")).await?.is(409, "operation.outcome-unknown")?;
    let unknown = &story.operations["unknown"];
    nodes[2]
        .resolve(unknown.text("execution_id"), unknown.epoch(), "completed", json!({}))
        .await?
        .in_state("completed")?;
    nodes[0].claim(&of("unknown")).await?.is(200, "replayed").context("its time begins now")?;
    let second = nodes[0].claim(&of("not_applied")).await?.is(201, "claimed")?;
    ensure!(second.body["attempt"] == 2 && second.text("operation_id") == story.id("not_applied"), "{second:?}");
    nodes[1].claim(&of("quarantined")).await?.is(409, "operation.quarantined")?;
    // Its time has been over for long: released, it goes.
    let held = story.id("quarantined");
    nodes[1].repair(held, "release", "completed").await?;
    for node in nodes {
        node.operation(held).await?.is(404, "not-found")?;
    }
    nodes[1].claim(&of("quarantined")).await?.is(201, "claimed").map(drop)
}

/// Every logical row is the same everywhere, and none tells of what was forgotten.
async fn same_on_every_disk(cluster: &mut Cluster, story: &Story) -> Result<()> {
    settle(cluster).await?;
    for node in &mut cluster.nodes {
        node.stop().await?;
    }
    let contents = cluster.nodes.iter().map(Content::of).collect::<Result<Vec<_>>>()?;
    for (node, content) in cluster.nodes.iter().zip(&contents) {
        let difference = content.difference(&contents[0]);
        ensure!(difference.is_empty(), "node {} differs: {difference:?}", node.id);
        // The hash and the birth that the id holds: its key is in use again, by another life.
        for name in ["failed", "closed"] {
            let hash = story.id(name).get(6..46).context("an id")?;
            let left: Vec<&String> =
                content.rows.keys().filter(|key| !key.starts_with("events") && key.contains(hash)).collect();
            ensure!(left.is_empty(), "node {}: {name} has rows: {left:?}", node.id);
        }
        let hash = story.id("longer").get(6..46).context("an id")?;
        ensure!(content.rows.keys().any(|key| key.starts_with("terminal") && key.contains(hash)), "longer is gone");
    }
    println!("{} rows on each node", contents[0].rows.len());
    Ok(())
}

/// Operations with a result each, enough that their bytes are most of what is stored.
const BATCHES: usize = 40;
const ITEMS: usize = 100;
const RESULT_BYTES: usize = 6_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bytes_of_what_is_gone_come_back_on_every_node_while_claims_go_on() -> Result<()> {
    let time = FakeTime::new(3)?;
    let cluster = Cluster::start(options(&time)).await?;
    let nodes = cluster.callers();
    namespace(&nodes[0], None, "short", &policy("new")).await?;
    namespace(&nodes[0], None, "kept", &json!({})).await?;
    let mut made = Vec::new();
    for number in 0..BATCHES {
        let space = if number % 10 == 0 { "kept" } else { "short" };
        made.push((space, batch_of_results(&nodes[number % 3], space, number).await?));
    }
    let results = (BATCHES * ITEMS * RESULT_BYTES) as f64;
    let size = "hapax_disk_size_bytes{part=\"state\"}";
    let full = sizes(&cluster, size, |bytes| bytes > results * 0.6).await?;
    for node in 1..=3 {
        time.set(node, RESULTS_OVER_S)?;
    }
    // Nine tenths of the results go, and nothing else; claims and replays do not notice.
    let (mut claims, begun) = (0, Instant::now());
    let removed = "hapax_retention_removed_rows_total{family=\"body\"}";
    let bodies = (BATCHES * ITEMS * 9 / 10) as f64;
    while !all_at_least(&cluster, removed, bodies).await? {
        nodes[claims % 3]
            .claim(&Claim { namespace: "short", ..Claim::of(format!("on/{claims}")) })
            .await?
            .is(201, "claimed")?;
        claims += 1;
        ensure!(begun.elapsed() < FOLLOWS_WITHIN, "the bytes of results do not come back");
    }
    ensure!(all_at_least(&cluster, "hapax_retention_removed_bytes_total{family=\"body\"}", results * 0.9).await?);
    while !all_at_least(&cluster, "hapax_retention_pass_bytes_total", 1.0).await? {
        ensure!(begun.elapsed() < FOLLOWS_WITHIN, "no pass goes over the state");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let compacted = sizes(&cluster, size, |bytes| bytes < results * 0.5).await?;
    for node in 1..=3 {
        time.set(node, ALL_OVER_S)?;
    }
    let begun = Instant::now();
    for family in ["terminal", "execution"] {
        let removed = format!("hapax_retention_removed_rows_total{{family=\"{family}\"}}");
        while !all_at_least(&cluster, &removed, bodies).await? {
            ensure!(begun.elapsed() < FOLLOWS_WITHIN, "the rows of {family} do not go");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    println!("{claims} claims while results went; state of each node: {full:?}, then {compacted:?} bytes");
    for (space, ids) in &made {
        for (at, id) in ids.iter().enumerate().step_by(33) {
            let read = nodes[at % 3].operation(id).await?;
            if *space == "kept" {
                let whole = read.is(200, "")?.body["outcome"]["result"].as_str().map(str::len);
                ensure!(whole == Some(RESULT_BYTES - 2), "what is kept is whole: {whole:?}");
            } else {
                read.is(404, "not-found")?;
            }
        }
    }
    Ok(())
}

async fn batch_of_results(node: &Caller, space: &str, number: usize) -> Result<Vec<String>> {
    let claims: Vec<Value> = (0..ITEMS)
        .map(|n| {
            let key = format!("bulk/{number}/{n}");
            json!({ "kind": "claim", "namespace": space, "key": key, "request": {}, "claim_id": Uuid::new_v4() })
        })
        .collect();
    let granted = results_of(&node.post("/v1/batch", &json!({ "items": claims })).await?.is(200, "")?, 201)?;
    let mut rng = rand::rng();
    let outcomes: Vec<Value> = granted
        .iter()
        .map(|granted| {
            // Letters at random, so that no compression hides what is stored.
            let letters = (0..RESULT_BYTES - 2).map(|_| char::from(rng.random_range(b'0'..=b'z')));
            let result: String = letters.map(|letter| if letter == '\\' { '_' } else { letter }).collect();
            json!({
                "kind": "outcome", "execution_id": granted["execution_id"], "lease_epoch": granted["lease_epoch"],
                "outcome": "completed", "result": result,
            })
        })
        .collect();
    results_of(&node.post("/v1/batch", &json!({ "items": outcomes })).await?.is(200, "")?, 200)?;
    Ok(granted.iter().map(|granted| granted["operation_id"].as_str().unwrap_or_default().to_owned()).collect())
}

fn results_of(answer: &Answer, status: u64) -> Result<Vec<Value>> {
    let results = answer.body["results"].as_array().context("results")?;
    let body = |result: &Value| (result["status"] == status).then(|| result["body"].clone());
    results.iter().map(|result| body(result).with_context(|| result.to_string())).collect()
}

/// A metric of each node, once it is as it should be on all of them.
async fn sizes(cluster: &Cluster, name: &str, holds: impl Fn(f64) -> bool) -> Result<Vec<f64>> {
    until(async || {
        let mut found = Vec::new();
        for node in &cluster.nodes {
            found.push(node.metric(name).await?);
        }
        ensure!(found.iter().all(|value| holds(*value)), "{name}: {found:?}");
        Ok(found)
    })
    .await
}

async fn all_at_least(cluster: &Cluster, name: &str, least: f64) -> Result<bool> {
    for node in &cluster.nodes {
        if node.metric(name).await.unwrap_or_default() < least {
            return Ok(false);
        }
    }
    Ok(true)
}
