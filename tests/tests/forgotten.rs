//! What was forgotten gives nothing back: authority that was spent on it, a key that was used for it, a policy that is lengthened
//! too late; and what a policy keeps is shown with the time until which it is kept. On real clusters, through crashes in the middle
//! of it. (REQUIREMENTS 23, 31, 43, 74, 81, 82, 84, 104, 126)

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hapax_tests::admin::{from_now, millis};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::faketime::{FakeTime, seen};
use hapax_tests::wait::until;
use serde_json::{Value, json};

const MINUTE_S: i64 = 60;
/// Results are kept for so long in every namespace here.
const BODY_MS: u64 = 10 * 60_000;
/// And identities for so long, but where they are durable.
const IDENTITY_MS: u64 = 60 * 60_000;
/// Longer than a lease of any execution here that is to stay at work.
const LEASE_MS: u64 = 900_000;
/// The leader compares clocks every ten seconds, and a crash may come in between.
const MOVED_WITHIN: Duration = Duration::from_secs(60);

/// Three nodes whose clocks go together, ahead of the real one by `ahead_s`.
struct Story {
    cluster: Cluster,
    time: FakeTime,
    ahead_s: i64,
}

impl Story {
    async fn start() -> Result<Self> {
        let time = FakeTime::new(3)?;
        let namespace = |name: &str, authority: &str, expired_keys: &str| {
            format!(
                "[[bootstrap.namespaces]]\nname = \"{name}\"\nauthority = \"{authority}\"\nretention = {{ body_ms = {BODY_MS}, \
                 identity_ms = {IDENTITY_MS}, expired_keys = \"{expired_keys}\" }}\n"
            )
        };
        let sections = [
            namespace("anew", "inline", "new"),
            namespace("by-age", "inline", "reject_older"),
            namespace("durable", "inline", "durable"),
            namespace("refunds", "capability", "new"),
            // Floors and passes follow within seconds; by default that takes minutes and hours.
            "[retention]\ninterval_ms = 600\ncompact_interval_ms = 500\n".to_owned(),
            "[reads]\nlocal_fact_renew_ms = 200\nlocal_fact_max_staleness_ms = 500\n".to_owned(),
        ];
        let options = Options {
            raft: "flush_interval_ms = 300".to_owned(),
            sections: sections.concat(),
            environment: time.environment(),
            ..Options::default()
        };
        Ok(Self { cluster: Cluster::start(options).await?, time, ahead_s: 0 })
    }

    /// Moves every node's clock on, so that it is this far ahead of the real one.
    async fn jump_to(&mut self, ahead_s: i64) -> Result<()> {
        for node in &self.cluster.nodes {
            self.time.set(node.id, ahead_s)?;
            if node.runs() {
                seen(node, ahead_s).await?;
            }
        }
        self.ahead_s = ahead_s;
        Ok(())
    }

    /// The instant this far from now on the nodes' clocks.
    fn later(&self, from_now_ms: i64) -> String {
        from_now(self.ahead_s * 1_000 + from_now_ms)
    }

    fn now_ms(&self) -> u64 {
        millis(&self.later(0))
    }

    /// Callers of the nodes that run.
    fn running(&self) -> Vec<Caller> {
        self.cluster.nodes.iter().filter(|node| node.runs()).map(|node| Caller::new(&node.url)).collect()
    }

    /// `kill -9`, and the others go on.
    async fn kill(&mut self, at: usize) -> Result<()> {
        self.cluster.nodes[at].kill()?;
        self.cluster.leader().await.map(drop)
    }

    async fn start_again(&mut self) -> Result<()> {
        for node in self.cluster.nodes.iter_mut().filter(|node| !node.runs()) {
            node.start()?;
        }
        self.cluster.ready().await
    }

    /// Every node is stopped, and started again.
    async fn restart(&mut self) -> Result<()> {
        for node in &mut self.cluster.nodes {
            node.stop().await?;
        }
        self.start_again().await
    }

    /// Asks the running nodes in turn until each of them shows `stage` of every one, or, where `first` says so, until one of them
    /// shows it of one. What one node has shown as gone is not shown again by the next one, and nothing goes before its time.
    async fn comes_to(&self, ended: &mut [Ended], stage: Stage, first: bool) -> Result<()> {
        let (nodes, begun) = (self.running(), Instant::now());
        loop {
            let mut all = true;
            for node in &nodes {
                for one in ended.iter_mut() {
                    let Some(now) = one.stage(node).await? else {
                        all = false;
                        continue;
                    };
                    ensure!(now >= one.seen, "{} is back: {now:?} after {:?}", one.claim.key, one.seen);
                    ensure!(now <= stage, "{} is {now:?}, not {stage:?}", one.claim.key);
                    if now > one.seen {
                        let kept_ms = if now == Stage::Gone { one.identity_ms } else { BODY_MS };
                        ensure!(self.now_ms() > one.terminal_at_ms + kept_ms, "{} went early", one.claim.key);
                        one.seen = now;
                    }
                    if first && now == stage {
                        return Ok(());
                    }
                    all &= now == stage;
                }
            }
            if all {
                return Ok(());
            }
            let left: Vec<_> = ended.iter().map(|one| (&one.claim.key, one.seen)).collect();
            ensure!(begun.elapsed() < MOVED_WITHIN, "not {stage:?} in time: {left:?}");
        }
    }

    /// All three nodes, each by itself, show `stage` of every one.
    async fn shows(&self, ended: &mut [Ended], stage: Stage) -> Result<()> {
        for node in &self.running() {
            for one in ended.iter_mut() {
                let now = until(async || one.stage(node).await?.context("not answered")).await?;
                ensure!(now == stage && one.seen == stage, "{} is {now:?}, not {stage:?}", one.claim.key);
            }
        }
        Ok(())
    }
}

/// What is left of an operation that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Body,
    Identity,
    Gone,
}

/// An operation that was claimed and completed.
struct Ended {
    claim: Claim,
    granted: Answer,
    terminal_at_ms: u64,
    /// Its identity is kept for so long by the policy of now.
    identity_ms: u64,
    /// The furthest that any node has shown.
    seen: Stage,
}

impl Ended {
    async fn new(node: &Caller, claim: Claim) -> Result<Self> {
        let granted = node.claim(&claim).await?.is(201, "claimed")?;
        node.report(granted.text("execution_id"), granted.epoch(), "completed").await?.in_state("completed")?;
        let read = node.operation(granted.text("operation_id")).await?.in_state("completed")?;
        let terminal_at_ms = millis(read.body["outcome"]["completed_at"].as_str().unwrap_or_default());
        Ok(Self { claim, granted, terminal_at_ms, identity_ms: IDENTITY_MS, seen: Stage::Body })
    }

    fn operation(&self) -> &str {
        self.granted.text("operation_id")
    }

    /// How far the operation is by its id, and by its key where a claim changes nothing; `None` where nobody can know.
    async fn stage(&self, node: &Caller) -> Result<Option<Stage>> {
        let Some(by_id) = self.judged(&node.operation(self.operation()).await?)? else { return Ok(None) };
        if matches!(self.claim.namespace, "anew" | "refunds") {
            return Ok(Some(by_id));
        }
        let Some(by_key) = self.judged(&node.claim(&self.claim.again()).await?)? else { return Ok(None) };
        ensure!(by_key >= by_id, "{} is {by_key:?} by key after {by_id:?} by id", self.claim.key);
        Ok(Some(by_key))
    }

    fn judged(&self, answer: &Answer) -> Result<Option<Stage>> {
        let outcome = &answer.body["outcome"];
        Ok(Some(match (answer.status.as_u16(), answer.text("code")) {
            (200, "") if outcome["result"]["by"] == self.granted.text("execution_id") => Stage::Body,
            (200, "") if outcome["result_compacted"] == true && outcome["result"].is_null() => Stage::Identity,
            (404, "not-found") | (410, "key.retention-elapsed") => Stage::Gone,
            (503, "store.unavailable") | (504, "store.outcome-unknown") => return Ok(None),
            _ => bail!("{} is neither there nor gone: {answer:?}", self.claim.key),
        }))
    }
}

fn claim_in(namespace: &'static str, key: &str) -> Claim {
    Claim { namespace, lease_ms: LEASE_MS, ..Claim::of(key) }
}

/// The same question to every node gets the same answer, but for when it was true and what is left of a lease.
async fn alike(nodes: &[Caller], ask: impl AsyncFn(&Caller) -> Result<Answer>) -> Result<Answer> {
    let mut first: Option<Answer> = None;
    for node in nodes {
        let mut answer = ask(node).await?;
        if let Some(fields) = answer.body.as_object_mut() {
            fields.remove("revision");
            let timeless = |shown: &mut serde_json::Map<String, Value>| {
                shown.insert("revision".to_owned(), Value::Null);
                if let Some(execution) = shown.get_mut("execution") {
                    execution["lease_expires_in_ms"] = Value::Null;
                }
            };
            let listed = fields.get_mut("operations").and_then(Value::as_array_mut);
            listed.into_iter().flatten().filter_map(Value::as_object_mut).for_each(timeless);
            timeless(fields);
        }
        let before = first.get_or_insert_with(|| answer.clone());
        ensure!((before.status, &before.body) == (answer.status, &answer.body), "{before:?} is not {answer:?}");
    }
    first.context("no nodes")
}

/// When an operation began, when it last changed, and until when it is kept at least, as every node shows it.
async fn shown_times(nodes: &[Caller], ended: &Ended, durable: &Ended) -> Result<()> {
    let read = alike(nodes, async |node| node.operation(ended.operation()).await).await?;
    let time = |field: &str| millis(read.text(field));
    let (created, updated) = (time("created_at"), time("updated_at"));
    ensure!(created > 0 && created <= updated && updated == ended.terminal_at_ms, "{read:?}");
    ensure!(time("retain_until") == ended.terminal_at_ms + IDENTITY_MS, "{read:?}");
    ensure!(nodes[0].operation(durable.operation()).await?.body["retain_until"].is_null(), "kept until when?");
    let claim = claim_in("anew", "times/1");
    let granted = nodes[1].claim(&claim).await?.is(201, "claimed")?;
    let open = alike(nodes, async |node| node.operation(granted.text("operation_id")).await).await?;
    ensure!(open.body["retain_until"].is_null() && open.text("created_at") == open.text("updated_at"), "{open:?}");
    // The wall that all nodes have moves on with what is applied.
    let created = millis(open.text("created_at"));
    until(async || {
        let head = nodes[2].claim(&claim_in("anew", &format!("times/{}", uuid::Uuid::new_v4()))).await?;
        let at = nodes[2].operation(head.text("operation_id")).await?;
        ensure!(millis(at.text("created_at")) > created, "the wall stands still");
        Ok(())
    })
    .await?;
    nodes[0].report(granted.text("execution_id"), granted.epoch(), "failed").await?.in_state("failed")?;
    let failed = alike(nodes, async |node| node.operation(granted.text("operation_id")).await).await?;
    let updated = millis(failed.text("updated_at"));
    ensure!(millis(failed.text("created_at")) == created && updated > created, "{failed:?}");
    ensure!(millis(failed.text("retain_until")) == updated + IDENTITY_MS, "{failed:?}");
    Ok(())
}

/// Each node gives back, for itself, the bytes of what is gone, without anybody's asking.
async fn bytes_come_back(story: &Story) -> Result<()> {
    for node in &story.cluster.nodes {
        let removed = async |parts: &[&str]| {
            let text = reqwest::get(&node.metrics_url).await?.text().await?;
            let series = text.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
            let counts = series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
            Ok::<f64, anyhow::Error>(counts.sum())
        };
        until(async || {
            for family in ["terminal", "body", "execution"] {
                let rows = removed(&["hapax_retention_removed_rows_total{", family]).await?;
                ensure!(rows > 0.0, "node {} has removed no {family} rows", node.id);
            }
            ensure!(removed(&["hapax_retention_removed_bytes_total{"]).await? > 0.0, "no bytes");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Where an expired key means a new operation: another id, a higher epoch, and nothing of the old life counts for it.
async fn used_again(nodes: &[Caller], old: &Ended) -> Result<String> {
    let (old_execution, old_epoch) = (old.granted.text("execution_id"), old.granted.epoch());
    for node in nodes {
        node.report(old_execution, old_epoch, "completed").await?.is(404, "not-found")?;
        node.renew(old_execution, old_epoch, LEASE_MS).await?.is(404, "not-found")?;
        node.evidence(old_execution, &old.claim, "completed").await?.is(404, "not-found")?;
    }
    let granted = nodes[1].claim(&old.claim.again()).await?.is(201, "claimed")?;
    let operation = granted.text("operation_id");
    ensure!(operation != old.operation() && granted.text("execution_id") != old_execution, "{granted:?}");
    ensure!(granted.epoch() > old_epoch && granted.body["attempt"] == 1, "{} after {old_epoch}", granted.epoch());
    ensure!(granted.text("effect_key") != old.granted.text("effect_key"), "an effect key of another operation");
    for node in nodes {
        // Also the very call that was elected in the old life.
        for claim in [&old.claim, &old.claim.again()] {
            let answer = node.claim(claim).await?.is(202, "in_progress")?;
            ensure!(answer.text("operation_id") == operation, "{answer:?}");
        }
        node.operation(old.operation()).await?.is(404, "not-found")?;
        node.report(old_execution, old_epoch, "completed").await?.is(404, "not-found")?;
    }
    let lookup = json!({ "namespace": old.claim.namespace, "key": old.claim.key });
    let found = alike(nodes, async |node| node.post("/v1/operations/lookup", &lookup).await).await?.is(200, "")?;
    ensure!(found.body["operations"][0]["operation_id"] == operation, "{found:?}");
    Ok(operation.to_owned())
}

/// Where an expired key is refused: by the creation time that comes with it, which cannot be left out, nor be to come.
async fn refused_by_age(story: &Story, old: &Ended) -> Result<()> {
    let nodes = story.cluster.callers();
    let stale = [old.claim.again(), claim_in("by-age", "age/never-seen").with("key_created_at", old_time(old))];
    let missing = claim_in("by-age", "age/1");
    let coming = claim_in("by-age", "age/coming").with("key_created_at", story.later(600_000));
    for (at, node) in nodes.iter().enumerate() {
        for claim in &stale {
            node.claim(claim).await?.is(410, "key.retention-elapsed")?;
        }
        let register = json!({ "namespace": "by-age", "key": "age/1", "request": old.claim.request,
                               "key_created_at": old_time(old) });
        node.post("/v1/operations", &register).await?.is(410, "key.retention-elapsed")?;
        for claim in [&missing, &coming] {
            let refused = node.claim(claim).await?.is(400, "request.invalid")?;
            ensure!(refused.text("pointer") == "/key_created_at", "{refused:?}");
        }
        let fresh = claim_in("by-age", &format!("age/fresh/{at}")).with("key_created_at", story.later(0));
        let granted = node.claim(&fresh).await?.is(201, "claimed")?;
        ensure!(granted.epoch() > old.granted.epoch(), "{granted:?}");
        // The creation time is part of what the key is bound to.
        let other = fresh.again().with("key_created_at", story.later(-1_000));
        node.claim(&other).await?.is(409, "key.digest-mismatch")?;
        until(async || {
            let text = reqwest::get(&story.cluster.nodes[at].metrics_url).await?.text().await?;
            let line =
                text.lines().find(|line| line.starts_with("hapax_refusals_total{") && line.contains("elapsed"));
            let count = line.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).unwrap_or_default();
            ensure!(count >= 3.0, "{count} repeats of expired keys are counted");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

fn old_time(old: &Ended) -> Value {
    old.claim.more["key_created_at"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authority_whose_operation_was_forgotten_is_never_accepted_again() -> Result<()> {
    let mut story = Story::start().await?;
    let nodes = story.cluster.callers();
    let spending = |key: &str, capability: &str| claim_in("refunds", key).presenting(capability);
    let refund = claim_in("refunds", "refund/1").with("resource", "ORD-1");
    let (_, single) = nodes[0].approve(&refund, "DEC-1").await?;
    let revoked = {
        let (_, capability) = nodes[1].approve(&claim_in("refunds", "refund/never"), "DEC-2").await?;
        nodes[1].post(&format!("/v1/capabilities/{capability}/revoke"), &json!({})).await?.is(200, "")?;
        capability
    };
    let bounded = async |decision: &str, expires_at: String| {
        let terms = json!({ "namespace": "refunds", "resource": "ORD-2", "decision_id": decision, "max_uses": 2,
                            "expires_at": expires_at });
        let issued = nodes[2].post("/v1/capabilities", &terms).await?.is(201, "")?;
        Ok::<_, anyhow::Error>(issued.text("capability_id").to_owned())
    };
    let lasting = bounded("DEC-3", "2100-01-01T00:00:00.000Z".to_owned()).await?;
    let passing = bounded("DEC-4", story.later(300_000)).await?;
    let mut spent = vec![
        Ended::new(&nodes[0], spending("refund/1", &single).because_of("MSG-1")).await?,
        Ended::new(&nodes[1], spending("refund/2", &lasting).with("resource", "ORD-2")).await?,
        Ended::new(&nodes[2], spending("refund/3", &passing).with("resource", "ORD-2")).await?,
        Ended::new(&nodes[0], spending("refund/4", &lasting).with("resource", "ORD-2")).await?,
        Ended::new(&nodes[1], spending("refund/5", &passing).with("resource", "ORD-2")).await?,
    ];
    let capabilities = [single.as_str(), &lasting, &passing, &revoked];
    refused(&nodes, &spent, &capabilities).await?;

    story.jump_to(75 * MINUTE_S).await?;
    story.comes_to(&mut spent, Stage::Gone, true).await?;
    refused(&story.running(), &spent, &capabilities).await?;
    // Counted since a node's start, so it is asked before any is killed.
    bytes_come_back(&story).await?;
    refused(&story.running(), &spent, &capabilities).await?;
    let leader = story.cluster.leader().await?;
    story.kill(leader).await?;
    story.comes_to(&mut spent, Stage::Gone, false).await?;
    refused(&story.running(), &spent, &capabilities).await?;
    story.start_again().await?;
    story.shows(&mut spent, Stage::Gone).await?;
    refused(&nodes, &spent, &capabilities).await?;
    for node in &mut story.cluster.nodes {
        node.kill()?;
    }
    story.start_again().await?;
    refused(&nodes, &spent, &capabilities).await?;

    // What is decided now, under a new decision, is a new operation with a higher epoch.
    let operation = nodes[1].register(&refund).await?.is(201, "")?.text("operation_id").to_owned();
    let until = json!({ "expires_at": story.later(600_000) });
    let issued = nodes[1].issue(&operation, "DEC-5", 1, until).await?.is(201, "")?;
    let capability = issued.text("capability_id").to_owned();
    ensure!(spent.iter().all(|old| old.operation() != operation), "a forgotten operation came back");
    let granted = nodes[2].claim(&spending("refund/1", &capability)).await?.is(201, "claimed")?;
    ensure!(spent.iter().all(|old| granted.epoch() > old.granted.epoch()), "{granted:?}");
    refused(&nodes, &spent, &capabilities[1..]).await
}

/// However spent authority is presented, every node refuses it, for the same reason, and nothing is elected.
async fn refused(nodes: &[Caller], spent: &[Ended], capabilities: &[&str]) -> Result<()> {
    for capability in capabilities {
        let used = spent.iter().filter(|old| old.claim.more["capability_id"] == *capability);
        let mut copies: Vec<Claim> = used.map(|old| old.claim.again().because_of("MSG-Z")).collect();
        for copy in copies.clone() {
            let mut without_message = copy;
            without_message.more.as_object_mut().map(|more| more.remove("message"));
            copies.push(without_message);
        }
        copies.push(claim_in("refunds", "refund/never").presenting(capability));
        copies.push(claim_in("refunds", "refund/other").with("resource", "ORD-2").presenting(capability));
        copies.push(claim_in("anew", "refund/elsewhere").presenting(capability));
        for copy in &copies {
            for node in nodes {
                let answer = until(async || {
                    let answer = node.claim(&copy.again()).await?;
                    ensure!(!answer.status.is_server_error(), "not answered: {answer:?}");
                    Ok(answer)
                })
                .await?;
                ensure!(answer.text("code").starts_with("capability."), "{capability} is not refused: {answer:?}");
            }
        }
    }
    // The call that was elected may be sent again for ever: it is told what it did while that is known, and elects nobody.
    for old in spent {
        for node in nodes {
            let answer = node.claim(&old.claim).await?;
            let known = old.seen < Stage::Gone && answer.verdict() == "replayed";
            ensure!(known || answer.status.is_client_error(), "elected by spent authority: {answer:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_policy_protects_what_is_not_yet_forgotten() -> Result<()> {
    let mut story = Story::start().await?;
    let nodes = story.cluster.callers();
    let mut unprotected = vec![Ended::new(&nodes[0], claim_in("anew", "longer/control")).await?];
    let created = story.later(0);
    let aged = claim_in("by-age", "longer/1").with("key_created_at", created);
    let mut early = vec![Ended::new(&nodes[1], aged).await?];
    let durable = Ended::new(&nodes[2], claim_in("durable", "longer/durable")).await?;
    shown_times(&nodes, &unprotected[0], &durable).await?;
    story.jump_to(15 * MINUTE_S).await?;
    story.comes_to(&mut early, Stage::Identity, false).await?;
    let aged = claim_in("by-age", "longer/2").with("key_created_at", story.later(0));
    let mut late = vec![Ended::new(&nodes[2], aged).await?];

    let longer = json!({ "retention": { "body_ms": 5 * IDENTITY_MS, "identity_ms": 10 * IDENTITY_MS,
                                        "expired_keys": "reject_older" } });
    lengthened(&nodes, "by-age", &longer).await?;
    for one in [&mut early[0], &mut late[0]] {
        one.identity_ms = 10 * IDENTITY_MS;
        let read = alike(&nodes, async |node| node.operation(one.operation()).await).await?;
        ensure!(millis(read.text("retain_until")) == one.terminal_at_ms + one.identity_ms, "{read:?}");
    }
    let before = floors(&nodes[0], "by-age").await?;

    // Under the policy of before, both identities would be gone by now.
    story.jump_to(120 * MINUTE_S).await?;
    story.comes_to(&mut unprotected, Stage::Gone, false).await?;
    story.shows(&mut early, Stage::Identity).await?;
    story.shows(&mut late, Stage::Body).await?;
    story.restart().await?;
    story.shows(&mut early, Stage::Identity).await?;
    story.shows(&mut late, Stage::Body).await?;
    ensure!(floors(&nodes[1], "by-age").await? == before, "floors moved although the policy allows less");

    // What is gone is not called back by a longer policy.
    let longer = json!({ "retention": { "body_ms": 5 * IDENTITY_MS, "identity_ms": 10 * IDENTITY_MS } });
    let gone_below = floors(&nodes[2], "anew").await?;
    lengthened(&nodes, "anew", &longer).await?;
    story.shows(&mut unprotected, Stage::Gone).await?;
    ensure!(floors(&nodes[0], "anew").await? == gone_below, "a floor sank");
    used_again(&nodes, &unprotected[0]).await?;

    // And in the end the longer time is over too.
    story.jump_to(11 * 60 * MINUTE_S).await?;
    story.comes_to(&mut early, Stage::Gone, false).await?;
    story.comes_to(&mut late, Stage::Gone, false).await?;
    refused_by_age(&story, &early[0]).await
}

async fn lengthened(nodes: &[Caller], namespace: &str, policy: &Value) -> Result<()> {
    let path = format!("/v1/namespaces/{namespace}");
    let stands = nodes[0].get(&path).await?.is(200, "")?;
    let put = nodes[1].put(&path, ("if-match", stands.header("etag")), policy).await?.is(200, "")?;
    ensure!(put.body["policy"]["retention"]["identity_ms"] == 10 * IDENTITY_MS, "{put:?}");
    Ok(())
}

async fn floors(node: &Caller, namespace: &str) -> Result<Value> {
    Ok(node.get(&format!("/v1/namespaces/{namespace}")).await?.is(200, "")?.body["floors"].clone())
}
