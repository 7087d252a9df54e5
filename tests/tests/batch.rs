//! Many calls in one body: each item is answered as the single call would be, in its place, and one that is wrong stops
//! no other. (REQUIREMENTS 76, 96, 137)

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use hapax_api::batch::ItemKind;
use hapax_tests::admin::{from_now, namespace, token};
use hapax_tests::caller::{Answer, Caller};
use hapax_tests::cluster::{Cluster, Options};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use uuid::Uuid;

/// The most items of a batch.
const ITEMS_MAX: usize = 256;

/// The answer to one item.
#[derive(Debug, Clone, PartialEq)]
struct One {
    status: u64,
    body: Value,
}

impl One {
    fn of(answer: &Answer) -> Self {
        Self { status: u64::from(answer.status.as_u16()), body: answer.body.clone() }
    }

    /// Without what tells when and where it was answered, and not what.
    fn settled(&self) -> Self {
        Self { body: settled(&self.body), ..self.clone() }
    }

    fn text(&self, name: &str) -> &str {
        self.body[name].as_str().unwrap_or_default()
    }
}

fn settled(value: &Value) -> Value {
    const MOMENTARY: [&str; 4] = ["revision", "consistency", "lease_expires_in_ms", "renew_by_ms"];
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !MOMENTARY.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), settled(value))).collect()
        }
        Value::Array(items) => items.iter().map(settled).collect(),
        other => other.clone(),
    }
}

async fn batch(node: &Caller, items: &[Value]) -> Result<Vec<One>> {
    let answer = node.post("/v1/batch", &json!({ "items": items })).await?.is(200, "")?;
    let results = answer.body["results"].as_array().context("no results")?;
    ensure!(results.len() == items.len(), "{} answers to {} items", results.len(), items.len());
    let one =
        |result: &Value| One { status: result["status"].as_u64().unwrap_or_default(), body: result["body"].clone() };
    Ok(results.iter().map(one).collect())
}

/// An item as the single call that it stands for.
async fn single(node: &Caller, item: &Value) -> Result<One> {
    let kind: ItemKind = item["kind"].as_str().context("a kind")?.parse().ok().context("a known kind")?;
    let (mut path, mut body) = (kind.path().to_owned(), item.clone());
    let fields = body.as_object_mut().context("an object")?;
    fields.remove("kind");
    for name in ["operation_id", "execution_id", "capability_id", "scope"] {
        let place = format!("{{{name}}}");
        if path.contains(&place) {
            let id = fields.remove(name).context(name)?;
            path = path.replace(&place, id.as_str().unwrap_or_default());
        }
    }
    Ok(One::of(&node.post(&path, &body).await?))
}

fn claim(key: &str) -> Value {
    json!({ "kind": "claim", "namespace": "default", "key": key, "request": { "key": key }, "claim_id": Uuid::new_v4() })
}

fn register(key: &str) -> Value {
    json!({ "kind": "register", "namespace": "default", "key": key, "request": { "key": key }, "resource": "R/1" })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_answered_as_the_single_call_is() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let mut made = BTreeSet::new();
    let opened = open(&nodes, &mut made).await?;
    work(&nodes, &opened, &mut made).await?;
    repair(&nodes, &opened, &mut made).await?;
    let all: BTreeSet<&str> = ItemKind::ALL.iter().map(|kind| kind.as_str()).collect();
    ensure!(made.iter().map(String::as_str).collect::<BTreeSet<_>>() == all, "not every kind was made: {made:?}");
    Ok(())
}

/// Makes a batch at one node, expects these statuses, and then each item by itself at another node: each of these calls
/// is the same call again, so it must get what stands, which for most is the very same answer.
async fn agree(nodes: &[Caller], made: &mut BTreeSet<String>, items: &[(Value, u64, u64)]) -> Result<Vec<One>> {
    let bodies: Vec<Value> = items.iter().map(|(item, ..)| item.clone()).collect();
    let answers = batch(&nodes[made.len() % 3], &bodies).await?;
    for ((item, first, again), answer) in items.iter().zip(&answers) {
        ensure!(answer.status == *first, "{item} got {answer:?}");
        let repeated = single(&nodes[(made.len() + 1) % 3], item).await?;
        ensure!(repeated.status == *again, "{item} got {repeated:?} by itself, after {answer:?}");
        if first == again || (*first, *again) == (201, 200) {
            ensure!(
                answer.settled().body == repeated.settled().body,
                "{item}: {answer:?}, and by itself {repeated:?}"
            );
        }
        made.insert(item["kind"].as_str().unwrap_or_default().to_owned());
    }
    Ok(answers)
}

/// What the first batch opened: its claims, and the operation of its registration.
struct Opened {
    claims: Vec<(Value, One)>,
    registered: String,
}

async fn open(nodes: &[Caller], made: &mut BTreeSet<String>) -> Result<Opened> {
    let mut items = vec![(register("kind/registered"), 201, 200)];
    for n in 0..7 {
        items.push((claim(&format!("kind/{n}")), 201, 201));
    }
    items.push((json!({ "kind": "bump", "scope": "kinds", "expected": 0 }), 200, 412));
    let answers = agree(nodes, made, &items).await?;
    let claims = items[1..8].iter().zip(&answers[1..8]).map(|((item, ..), answer)| (item.clone(), answer.clone()));
    Ok(Opened { claims: claims.collect(), registered: answers[0].text("operation_id").to_owned() })
}

async fn work(nodes: &[Caller], opened: &Opened, made: &mut BTreeSet<String>) -> Result<()> {
    let of = |n: usize, kind: &str, more: Value| {
        let granted = &opened.claims[n].1.body;
        let mut item = json!({
            "kind": kind, "execution_id": granted["execution_id"], "lease_epoch": granted["lease_epoch"],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            item[name] = value.clone();
        }
        item
    };
    let unknown = |n| (of(n, "outcome", json!({ "outcome": "unknown" })), 200, 200);
    let fence = of(4, "fence", json!({ "reason": "its owner is gone" }));
    agree(
        nodes,
        made,
        &[
            (of(0, "renew", json!({ "lease_ms": 60_000 })), 200, 200),
            (
                of(1, "outcome", json!({ "outcome": "completed", "external_id": "ch_1", "result": { "a": [1] } })),
                200,
                200,
            ),
            unknown(2),
            unknown(3),
            (fence, 200, 200),
            unknown(5),
            unknown(6),
            (
                json!({
                    "kind": "issue", "operation_id": opened.registered, "decision_id": "D-1", "attempt": 1,
                    "expires_at": from_now(600_000),
                }),
                201,
                200,
            ),
            (
                json!({
                    "kind": "issue_bounded", "namespace": "default", "resource": "R/1", "decision_id": "D-2",
                    "expires_at": from_now(600_000), "max_uses": 3,
                }),
                201,
                200,
            ),
        ],
    )
    .await?;
    let said = json!({
        "kind": "evidence", "execution_id": opened.claims[2].1.body["execution_id"],
        "claim_id": opened.claims[2].0["claim_id"], "outcome": "failed", "proof": "declined",
    });
    agree(
        nodes,
        made,
        &[
            (said, 200, 200),
            (of(3, "resolve", json!({ "outcome": "completed", "proof": "ch_3" })), 200, 200),
            (of(5, "escalate", json!({ "reason": "no answer" })), 200, 200),
        ],
    )
    .await?;
    let lease = json!({ "kind": "reconcile", "namespace": "default", "owner": "r", "limit": 9, "lease_ms": 60_000 });
    let leased = agree(nodes, made, &[(lease, 200, 200)]).await?;
    let held = leased[0].body["items"].as_array().map_or(0, Vec::len);
    ensure!(held == 2, "two of the executions are unknown and not escalated: {leased:?}");
    Ok(())
}

async fn repair(nodes: &[Caller], opened: &Opened, made: &mut BTreeSet<String>) -> Result<()> {
    let operation = |n: usize| opened.claims[n].1.body["operation_id"].clone();
    let of = |kind: &str, id: Value, state: &str| json!({ "kind": kind, "operation_id": id, "expected_state": state, "reason": "audit" });
    let issue = json!({
        "kind": "issue", "operation_id": opened.registered, "decision_id": "D-3", "attempt": 1,
        "expires_at": from_now(600_000),
    });
    let more = batch(&nodes[0], &[issue, register("kind/successor")]).await?;
    let revoke = json!({ "kind": "revoke", "capability_id": more[0].body["capability_id"], "reason": "withdrawn" });
    let mut supersede = of("supersede", operation(2), "failed");
    supersede["by"] = more[1].body["operation_id"].clone();
    agree(
        nodes,
        made,
        &[
            (revoke, 200, 200),
            (of("quarantine", operation(1), "completed"), 200, 200),
            (supersede, 200, 200),
            (of("close", json!(opened.registered), "requested"), 200, 200),
        ],
    )
    .await?;
    agree(nodes, made, &[(of("release", operation(1), "completed"), 200, 200)]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_item_gets_its_own_pointer_and_the_others_go_on() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    wrong_items(&nodes[0]).await?;
    wrong_envelopes(&nodes[1]).await?;
    full_batches(&nodes).await?;
    each_item_needs_its_role(&nodes[2]).await
}

async fn wrong_items(node: &Caller) -> Result<()> {
    let with = |name: &str, value: Value| {
        let mut item = claim(&format!("wrong/{name}"));
        item[name] = value;
        item
    };
    let deep = (0..80).fold(json!(1), |inner, _| json!([inner]));
    let wrong = [
        (json!(7), 400, "/items/1"),
        (json!({ "namespace": "default" }), 400, "/items/2/kind"),
        (json!({ "kind": "forget", "namespace": "default" }), 400, "/items/3/kind"),
        (with("lease_ms", json!(1)), 400, "/items/4/lease_ms"),
        (with("unheard_of", json!(1)), 400, "/items/5/unheard_of"),
        (with("wait_ms", json!(10)), 400, "/items/6/wait_ms"),
        (with("message", json!({ "consumer": "c" })), 400, "/items/7/message/id"),
        (with("request", json!({ "amount": 1.5 })), 400, "/items/8/request/amount"),
        (json!({ "kind": "renew", "lease_epoch": 1, "lease_ms": 5_000 }), 400, "/items/9/execution_id"),
        (with("request", deep), 400, "/items/10/request"),
        (with("request", json!("x".repeat(70_000))), 413, "/items/11"),
    ];
    let mut items = vec![claim("wrong/first")];
    items.extend(wrong.iter().map(|(item, ..)| item.clone()));
    items.push(claim("wrong/last"));
    let answers = batch(node, &items).await?;
    for ((item, status, pointer), answer) in wrong.iter().zip(&answers[1..]) {
        let code = if *status == 413 { "request.too-large" } else { "request.invalid" };
        let told = answer.text("pointer");
        let close = told == *pointer || (pointer.ends_with("request") && told.starts_with(pointer));
        ensure!(
            answer.status == *status && answer.text("code") == code && close,
            "{item} got {answer:?}, not {pointer}"
        );
    }
    for answer in [&answers[0], &answers[answers.len() - 1]] {
        ensure!(answer.status == 201, "a neighbour of a wrong item got {answer:?}");
    }
    Ok(())
}

async fn wrong_envelopes(node: &Caller) -> Result<()> {
    let items = |count: usize| (0..count).map(|n| claim(&format!("envelope/{n}"))).collect::<Vec<_>>();
    let wrong = [
        (json!({}), "/items"),
        (json!({ "items": [] }), "/items"),
        (json!({ "items": {} }), "/items"),
        (json!({ "items": items(1), "atomic": true }), "/atomic"),
        (json!({ "items": items(ITEMS_MAX + 1) }), "/items"),
    ];
    for (body, pointer) in wrong {
        let refused = node.post("/v1/batch", &body).await?.is(400, "request.invalid")?;
        ensure!(refused.text("pointer") == pointer, "{pointer}: {refused:?}");
    }
    let mut large = items(20);
    for item in &mut large {
        item["request"] = json!("x".repeat(60_000));
    }
    node.post("/v1/batch", &json!({ "items": large })).await?.is(413, "request.too-large")?;
    node.with_token("").post("/v1/batch", &json!({ "items": items(1) })).await?.is(401, "auth.invalid")?;
    // None of all that was made.
    let looked = json!({ "namespace": "default", "key": "envelope/0" });
    let found = node.post("/v1/operations/lookup", &looked).await?.is(200, "")?;
    ensure!(found.body["operations"] == json!([]), "{found:?}");
    Ok(())
}

/// As many items as there may be, at all nodes at once, twice: the second time they are all the same calls again.
async fn full_batches(nodes: &[Caller]) -> Result<()> {
    let all: Vec<Vec<Value>> =
        (0..3).map(|b| (0..ITEMS_MAX).map(|n| claim(&format!("full/{b}/{n}"))).collect()).collect();
    let mut before: Option<Vec<Vec<One>>> = None;
    for _ in 0..2 {
        let (a, b, c) =
            tokio::try_join!(batch(&nodes[0], &all[0]), batch(&nodes[1], &all[1]), batch(&nodes[2], &all[2]))?;
        let answers = vec![a, b, c];
        ensure!(answers.iter().flatten().all(|one| one.status == 201), "{answers:?}");
        let ids: BTreeSet<&str> = answers.iter().flatten().map(|one| one.text("operation_id")).collect();
        ensure!(ids.len() == 3 * ITEMS_MAX, "{} operations", ids.len());
        if let Some(before) = &before {
            for (then, now) in before.iter().flatten().zip(answers.iter().flatten()) {
                ensure!(then.settled() == now.settled(), "{then:?} is now {now:?}");
            }
        }
        before = Some(answers);
    }
    Ok(())
}

async fn each_item_needs_its_role(node: &Caller) -> Result<()> {
    let worker = token(node, None, "worker", &["claim"]).await?;
    let items = [
        claim("role/1"),
        json!({ "kind": "bump", "scope": "role", "expected": 0 }),
        claim("role/2"),
        json!({
            "kind": "reconcile", "owner": "r", "limit": 1, "lease_ms": 5_000
        }),
    ];
    let answers = batch(&worker, &items).await?;
    let statuses: Vec<u64> = answers.iter().map(|one| one.status).collect();
    ensure!(statuses == [201, 403, 201, 403], "{answers:?}");
    ensure!(answers[1].text("code") == "auth.forbidden" && answers[3].text("code") == "auth.forbidden");
    let stands = node.get("/v1/epochs/role").await?;
    ensure!(stands.body["value"] == 0, "{stands:?}");
    Ok(())
}

/// Rounds of claims that are drawn at random, each sent both ways.
const ROUNDS: usize = 12;
const KEYS: usize = 12;
/// The first keys of a round have a capability before anybody claims.
const DECIDED: usize = 3;
const CLAIMS: usize = 48;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_claim_and_the_same_claim_in_a_batch_cannot_disagree() -> Result<()> {
    let seed = rand::random::<u64>();
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    namespace(&nodes[0], None, "drawn", &json!({})).await?;
    let mut codes = BTreeSet::new();
    let agreed = async {
        let mut rng = StdRng::seed_from_u64(seed);
        for round in 0..ROUNDS {
            one_round(&nodes, &mut rng, round, &mut codes).await.with_context(|| format!("round {round}"))?;
        }
        anyhow::Ok(())
    };
    agreed.await.with_context(|| format!("seed {seed}"))?;
    println!("{} claims both ways, answered {codes:?}", ROUNDS * CLAIMS);
    // A loop that met only grants would have shown little.
    for needed in [
        "claimed",
        "in_progress",
        "replayed",
        "duplicate_delivery",
        "delivery.mismatch",
        "key.digest-mismatch",
        "capability.already-consumed",
        "capability.invalid",
        "capability.binding-mismatch",
        "epoch.unknown",
        "claim-id.reused",
        "operation.outcome-unknown",
    ] {
        ensure!(codes.contains(needed), "seed {seed}: no claim was answered {needed}: {codes:?}");
    }
    Ok(())
}

async fn one_round(nodes: &[Caller], rng: &mut StdRng, round: usize, codes: &mut BTreeSet<String>) -> Result<()> {
    let world = World::make(nodes, round).await?;
    let claims: Vec<Value> = (0..CLAIMS).map(|_| world.draw(rng)).collect();
    // At the same time, by both ways and through all nodes: whoever is elected, both ways are told of one execution.
    let cut = rng.random_range(1..CLAIMS);
    let (first, second, singles) = tokio::try_join!(
        batch(&nodes[rng.random_range(0..3)], &claims[..cut]),
        batch(&nodes[rng.random_range(0..3)], &claims[cut..]),
        singles(nodes, &claims),
    )?;
    for ((item, batched), alone) in claims.iter().zip(first.iter().chain(&second)).zip(&singles) {
        for one in [batched, alone] {
            ensure!(one.status < 500, "{item} got {one:?}");
            codes.insert(one.body["result"].as_str().unwrap_or(one.text("code")).to_owned());
        }
        let grants = [batched, alone].map(|one| (one.status == 201).then(|| one.settled()));
        if let [Some(batched), Some(alone)] = &grants {
            ensure!(batched == alone, "{item}: two grants: {batched:?} and {alone:?}");
        }
    }
    world.settle(nodes, rng).await?;
    // And one after the other, in either order: the whole answer is the same.
    for item in &claims {
        let node = &nodes[rng.random_range(0..3)];
        let (batched, alone) = if rng.random() {
            let batched = batch(node, std::slice::from_ref(item)).await?.remove(0);
            (batched, single(node, item).await?)
        } else {
            let alone = single(node, item).await?;
            (batch(node, std::slice::from_ref(item)).await?.remove(0), alone)
        };
        ensure!(batched.settled() == alone.settled(), "{item}: {batched:?} and {alone:?}");
        codes.insert(alone.body["result"].as_str().unwrap_or(alone.text("code")).to_owned());
    }
    Ok(())
}

async fn singles(nodes: &[Caller], claims: &[Value]) -> Result<Vec<One>> {
    let sent = claims.iter().enumerate().map(|(n, item)| single(&nodes[n % 3], item));
    futures::future::try_join_all(sent).await
}

/// What the claims of a round are drawn from.
struct World {
    keys: Vec<String>,
    claim_ids: Vec<Uuid>,
    messages: Vec<String>,
    /// Of the first keys, in their order, and one that does not exist.
    capabilities: Vec<String>,
}

impl World {
    async fn make(nodes: &[Caller], round: usize) -> Result<Self> {
        let keys: Vec<String> = (0..KEYS).map(|n| format!("drawn/{round}/{n}")).collect();
        let mut capabilities = Vec::new();
        for (n, key) in keys.iter().take(DECIDED).enumerate() {
            let body = json!({ "namespace": "drawn", "key": key, "request": { "of": key } });
            let registered = nodes[n].post("/v1/operations", &body).await?.is(201, "")?;
            let body = json!({ "decision_id": "D", "attempt": 1, "expires_at": from_now(600_000) });
            let path = format!("/v1/operations/{}/capabilities", registered.text("operation_id"));
            let issued = nodes[n].post(&path, &body).await?.is(201, "")?;
            capabilities.push(issued.text("capability_id").to_owned());
        }
        capabilities.push(format!("cap_{}", "0".repeat(35)));
        Ok(Self {
            claim_ids: (0..CLAIMS * 3 / 4).map(|_| Uuid::new_v4()).collect(),
            messages: (0..CLAIMS / 6).map(|n| format!("M-{round}-{n}")).collect(),
            keys,
            capabilities,
        })
    }

    fn draw(&self, rng: &mut StdRng) -> Value {
        let at = rng.random_range(0..self.keys.len());
        let key = &self.keys[at];
        let mut item = json!({
            "kind": "claim", "namespace": "drawn", "key": key, "request": { "of": key },
            "claim_id": self.claim_ids.choose(rng), "owner": "drawn",
        });
        if rng.random_ratio(1, 8) {
            item["request"] = json!({ "of": "another" });
        }
        if rng.random_ratio(1, 3) {
            item["message"] = json!({ "consumer": "c", "id": self.messages.choose(rng) });
        }
        if rng.random_ratio(1, 4) {
            item["capability_id"] = json!(self.capabilities.choose(rng));
        } else if at < DECIDED && rng.random() {
            item["capability_id"] = json!(self.capabilities[at]);
        }
        if rng.random_ratio(1, 10) {
            item["epoch"] = json!({ "scope": "drawn", "value": rng.random_range(0..2) });
        }
        if rng.random_ratio(1, 10) {
            item["attempt"] = json!(rng.random_range(1..3));
        }
        item
    }

    /// Some of the executions come to an end of some kind.
    async fn settle(&self, nodes: &[Caller], rng: &mut StdRng) -> Result<()> {
        for key in &self.keys {
            let node = &nodes[rng.random_range(0..3)];
            let looked = json!({ "namespace": "drawn", "key": key });
            let found = node.post("/v1/operations/lookup", &looked).await?.is(200, "")?;
            let execution = &found.body["operations"][0]["execution"];
            let Some(id) = execution["execution_id"].as_str() else { continue };
            let epoch = execution["lease_epoch"].as_u64().context("an epoch")?;
            let outcome = ["completed", "failed", "unknown", "none"].choose(rng).copied().unwrap_or_default();
            if outcome != "none" {
                node.report(id, epoch, outcome).await?.is(200, "")?;
            }
        }
        Ok(())
    }
}
