//! Who goes too fast or holds too much is told so, and nobody else notices; every limit can be read where it applies.
//! (REQUIREMENTS 68, 76, 93, 96)

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::{join_all, try_join_all};
use hapax_tests::admin::{everybody_knows, namespace, tenant, token};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::wait::until;
use serde_json::{Value, json};
use uuid::Uuid;

/// Calls of a flood; many times what any rate here lets through.
const FLOOD: usize = 240;
/// Of them at once.
const AT_ONCE: usize = 16;

/// What became of a flood.
struct Flooded {
    passed: usize,
    refused: usize,
    took: Duration,
}

/// Makes a call again and again; every answer is either one of `good` or a well-formed 429.
async fn flood(good: &[u16], call: impl AsyncFn(usize) -> Result<Answer>) -> Result<Flooded> {
    let begun = Instant::now();
    let (mut passed, mut refused) = (0, 0);
    for round in 0..FLOOD / AT_ONCE {
        for answer in join_all((0..AT_ONCE).map(|n| call(round * AT_ONCE + n))).await {
            let answer = answer?;
            if good.contains(&answer.status.as_u16()) {
                passed += 1;
                continue;
            }
            let answer = answer.is(429, "rate.limited")?;
            let seconds: u64 = answer.header("retry-after").parse().context("Retry-After is no number")?;
            ensure!((1..=60).contains(&seconds) && answer.body["retryable"] == true, "{answer:?}");
            refused += 1;
        }
    }
    Ok(Flooded { passed, refused, took: begun.elapsed() })
}

impl Flooded {
    /// A rate of `rate` a second lets a second's worth through at once, and then its pace.
    fn kept_to(&self, rate: usize) -> Result<()> {
        let Self { passed, refused, took } = self;
        let most = rate as f64 * (1.0 + took.as_secs_f64()) + 1.0;
        println!("{passed} passed and {refused} were refused in {took:?} at {rate}/s");
        ensure!(*passed >= rate, "only {passed} of a burst of {rate} passed");
        ensure!((*passed as f64) <= most, "{passed} passed in {took:?} at {rate}/s");
        ensure!(*refused > 0, "a flood that nobody stopped: {passed} in {took:?}");
        Ok(())
    }
}

async fn look(caller: &Caller) -> Result<Answer> {
    caller.get("/v1/epochs/x").await
}

fn claim(space: &str, key: &str) -> Value {
    json!({ "namespace": space, "key": key, "request": {}, "claim_id": Uuid::new_v4() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_too_fast_is_told_so_and_nobody_else_notices() -> Result<()> {
    let limits = "client_requests_per_second = 60".to_owned();
    let cluster = Cluster::start(Options { limits, ..Options::default() }).await?;
    let nodes = cluster.callers();
    // Each part administers with a client of its own: these too may make only so many calls.
    let parts = try_join_all((0..4).map(|n| {
        let dev = nodes[n % 3].clone();
        async move { token(&dev, None, &format!("part-{n}"), &["admin", "claim", "read"]).await }
    }))
    .await?;
    everybody_knows(&nodes).await?;
    of_a_client(&nodes, &parts[0]).await?;
    of_a_tenant(&nodes).await?;
    of_a_namespace(&parts[2]).await?;
    of_a_key(&parts[3]).await
}

/// A caller of the node of `by` for a client that nothing else uses.
async fn fresh(by: &Caller, client: &str) -> Result<Caller> {
    token(by, None, client, &["claim", "read"]).await
}

async fn of_a_client(nodes: &[Caller], by: &Caller) -> Result<()> {
    let (fast, second_token) = (fresh(by, "fast").await?, fresh(by, "fast").await?);
    let calm = fresh(by, "calm").await?;
    everybody_knows(&nodes[..1]).await?;
    let polled = calm.claim(&Claim::of("polled")).await?.is(201, "claimed")?;
    let polled = polled.text("operation_id");
    let (flooded, others) = tokio::join!(
        // Two tokens of one client are one client; polling, looking up and making keys are calls like any other.
        flood(&[200, 201], async |n| {
            let by = if n % 2 == 0 { &fast } else { &second_token };
            match n % 4 {
                0 => by.operation(polled).await,
                1 => by.post("/v1/operations/lookup", &json!({ "namespace": "default", "key": "polled" })).await,
                2 => by.claim(&Claim::of(format!("made/{n}"))).await,
                _ => look(by).await,
            }
        }),
        join_all((0..20).map(|_| look(&calm))),
    );
    flooded?.kept_to(60)?;
    for other in others {
        other?.is(200, "").context("another client at the same node")?;
    }
    // Each node counts by itself.
    until(async || look(&nodes[1].with_token_of(&fast)).await?.is(200, "")).await?;
    let refused = flood(&[200], async |_| look(&fast).await).await?;
    ensure!(refused.refused > 0, "it passes again at once");
    until(async || look(&fast).await?.is(200, "")).await.context("it may come again after its pause").map(drop)
}

async fn of_a_tenant(nodes: &[Caller]) -> Result<()> {
    let dev = &nodes[1];
    for (name, body) in [("acme", json!({ "requests_per_second": 30 })), ("rival", json!({}))] {
        tenant(dev, name, &body).await?;
        namespace(dev, Some(name), "pay", &json!({})).await?;
    }
    let one = token(dev, Some("acme"), "one", &["claim", "read"]).await?;
    let other = token(dev, Some("acme"), "other", &["claim", "read"]).await?;
    let rival = token(dev, Some("rival"), "one", &["claim", "read"]).await?;
    let (flooded, others) = tokio::join!(
        flood(&[200, 202, 201], async |n| match n % 3 {
            0 => look(&one).await,
            1 => look(&other).await,
            _ => one.post("/v1/claims", &claim("pay", "k")).await,
        }),
        join_all((0..20).map(|n| {
            let rival = rival.clone();
            async move { rival.post("/v1/claims", &claim("pay", &format!("rival/{n}"))).await }
        })),
    );
    flooded?.kept_to(30)?;
    for other in others {
        other?.is(201, "claimed").context("another tenant at the same node")?;
    }
    let raised =
        dev.put("/v1/tenants/acme", ("if-match", "\"v1\""), &json!({ "requests_per_second": 100_000 })).await?;
    raised.is(200, "")?;
    until(async || look(&one).await?.is(200, "")).await?;
    for _ in 0..30 {
        look(&one).await?.is(200, "").context("the tenant's new rate")?;
    }
    Ok(())
}

async fn of_a_namespace(by: &Caller) -> Result<()> {
    let policy = json!({ "quota": { "requests_per_second": 15 } });
    namespace(by, None, "paced", &policy).await?;
    namespace(by, None, "free", &json!({})).await?;
    // The client's own rate would hide it: each call comes from one of many clients only where that is the point.
    let (fast, calm) = (fresh(by, "paced-fast").await?, fresh(by, "paced-calm").await?);
    let mut items: Vec<Value> = (0..40).map(|n| claim("paced", &format!("batch/{n}"))).collect();
    items.extend((0..10).map(|n| claim("free", &format!("batch/{n}"))));
    for item in &mut items {
        item["kind"] = json!("claim");
    }
    let answer = fast.post("/v1/batch", &json!({ "items": items })).await?.is(200, "")?;
    let mut statuses: BTreeMap<(bool, u64), usize> = BTreeMap::new();
    for (at, result) in answer.body["results"].as_array().into_iter().flatten().enumerate() {
        *statuses.entry((at < 40, result["status"].as_u64().unwrap_or_default())).or_default() += 1;
    }
    println!("a batch over a namespace's rate, by status: {statuses:?}");
    let passed = statuses.get(&(true, 201)).copied().unwrap_or_default();
    ensure!((15..=17).contains(&passed), "{statuses:?}");
    ensure!(statuses.get(&(true, 429)) == Some(&(40 - passed)), "{statuses:?}");
    ensure!(statuses.get(&(false, 201)) == Some(&10), "another namespace: {statuses:?}");
    fast.post("/v1/claims", &claim("paced", "single")).await?.is(429, "rate.limited")?;
    fast.post("/v1/operations/lookup", &json!({ "namespace": "paced", "key": "batch/0" })).await?.is(200, "")?;
    calm.post("/v1/claims", &claim("paced", "calm")).await?.is(201, "claimed").context("another client")?;
    let shown = calm.get("/v1/namespaces/paced").await?.is(200, "")?;
    ensure!(shown.body["policy"]["quota"] == policy["quota"], "{shown:?}");
    until(async || fast.post("/v1/claims", &claim("paced", "later")).await?.is(201, "claimed")).await.map(drop)
}

async fn of_a_key(by: &Caller) -> Result<()> {
    namespace(by, None, "hot", &json!({ "quota": { "key_claims_per_second": 5 } })).await?;
    let (fast, calm) = (fresh(by, "hot-fast").await?, fresh(by, "hot-calm").await?);
    let mut statuses = Vec::new();
    for _ in 0..25 {
        statuses.push(fast.post("/v1/claims", &claim("hot", "one")).await?.status.as_u16());
    }
    let passed = statuses.iter().filter(|status| matches!(status, 201 | 202)).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    ensure!((5..=8).contains(&passed) && passed + refused == 25, "{statuses:?}");
    for n in 0..10 {
        fast.post("/v1/claims", &claim("hot", &format!("other/{n}")))
            .await?
            .is(201, "claimed")
            .context("another key")?;
    }
    calm.post("/v1/claims", &claim("hot", "one")).await?.is(202, "in_progress").context("another client")?;
    // A stored outcome is no way round it.
    let mine = fast.post("/v1/operations/lookup", &json!({ "namespace": "hot", "key": "one" })).await?;
    let execution = &mine.body["operations"][0]["execution"];
    let id = execution["execution_id"].as_str().context("an execution")?;
    fast.report(id, execution["lease_epoch"].as_u64().context("an epoch")?, "completed")
        .await?
        .in_state("completed")?;
    until(async || fast.post("/v1/claims", &claim("hot", "one")).await?.is(200, "replayed")).await?;
    let again =
        async |_| fast.post("/v1/claims", &claim("hot", "one")).await.map_or(0, |answer| answer.status.as_u16());
    let replays = join_all((0..12).map(again)).await;
    ensure!(replays.contains(&429), "replays of a hot key are as many as one likes: {replays:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_of_open_operations_holds_and_every_limit_can_be_read() -> Result<()> {
    let limits = "key_chars = 40\nbody_bytes = 4096\nresult_bytes = 256\nwait_ms = 1500\nlease_ms = 30000\n\
                  batch_items = 4\nbatch_bytes = 8192\npage_items = 3\n";
    let cluster = Cluster::start(Options { limits: limits.to_owned(), ..Options::default() }).await?;
    let nodes = cluster.callers();
    open_operations(&nodes).await?;
    limits_are_told(&nodes[1]).await?;
    limits_hold(&nodes[2]).await
}

async fn open_operations(nodes: &[Caller]) -> Result<()> {
    let quota = |most: u64| json!({ "quota": { "open_operations": most } });
    namespace(&nodes[0], None, "few", &quota(3)).await?;
    // At once, through all nodes, and one of every kind that opens an operation.
    let calls = (0..24).map(|n| {
        let node = &nodes[n % 3];
        let mut body = claim("few", &format!("few/{n}"));
        async move {
            if n % 4 == 3 {
                body.as_object_mut().map(|fields| fields.remove("claim_id"));
                node.post("/v1/operations", &body).await
            } else {
                body["lease_ms"] = json!(30_000);
                node.post("/v1/claims", &body).await
            }
        }
    });
    let answers = join_all(calls).await.into_iter().collect::<Result<Vec<_>>>()?;
    let made: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 201).collect();
    ensure!(made.len() == 3, "{} operations are open: {answers:?}", made.len());
    let refused =
        answers.iter().filter(|answer| answer.status == 429 && answer.verdict() == "quota.exceeded").count();
    ensure!(refused == 21, "{answers:?}");
    let usage = async || nodes[0].get("/v1/namespaces/few").await.map(|shown| shown.body["usage"].clone());
    ensure!(usage().await? == json!({ "open_operations": 3, "unknown": 0 }));

    // Known keys are known, however full it is.
    let key = json!({ "namespace": "few", "key": known(&answers).context("a claim was granted")?, "request": {} });
    let known = nodes[1].post("/v1/claims", &key).await?.is(202, "in_progress")?;
    let execution = known.text("execution_id").to_owned();
    let read = nodes[1].operation(known.text("operation_id")).await?;
    let epoch = read.body["execution"]["lease_epoch"].as_u64().context("an epoch")?;
    // Unknown counts as open; a terminal one makes room for exactly one.
    nodes[2].report(&execution, epoch, "unknown").await?.in_state("unknown")?;
    ensure!(usage().await? == json!({ "open_operations": 3, "unknown": 1 }));
    nodes[2].post("/v1/claims", &claim("few", "more/1")).await?.is(429, "quota.exceeded")?;
    nodes[2].resolve(&execution, epoch, "completed", json!({})).await?.in_state("completed")?;
    nodes[0].post("/v1/claims", &claim("few", "more/1")).await?.is(201, "claimed")?;
    nodes[1].post("/v1/claims", &claim("few", "more/2")).await?.is(429, "quota.exceeded")?;
    nodes[1].post("/v1/claims", &key).await?.is(200, "replayed")?;

    nodes[2].put("/v1/namespaces/few", ("if-match", "\"v1\""), &quota(4)).await?.is(200, "")?;
    nodes[1].post("/v1/claims", &claim("few", "more/2")).await?.is(201, "claimed")?;
    nodes[0].post("/v1/claims", &claim("few", "more/3")).await?.is(429, "quota.exceeded")?;
    // Lowered below what is open: what is open stays, and nothing more comes in.
    nodes[2].put("/v1/namespaces/few", ("if-match", "\"v2\""), &quota(1)).await?.is(200, "")?;
    nodes[0].post("/v1/claims", &claim("few", "more/3")).await?.is(429, "quota.exceeded")?;
    ensure!(usage().await? == json!({ "open_operations": 4, "unknown": 0 }));
    nodes[0]
        .post("/v1/claims", &claim("default", "more/3"))
        .await?
        .is(201, "claimed")
        .context("another namespace")
        .map(drop)
}

/// The key of a claim that was granted.
fn known(answers: &[Answer]) -> Option<String> {
    let at = answers.iter().position(|answer| answer.verdict() == "claimed")?;
    Some(format!("few/{at}"))
}

async fn limits_are_told(node: &Caller) -> Result<()> {
    let shown = node.get("/v1/namespaces/default").await?.is(200, "")?;
    let expected = json!({
        "key_chars": 40, "body_bytes": 4_096, "result_bytes": 256, "wait_ms": 1_500, "lease_ms_min": 1_000,
        "lease_ms": 30_000, "batch_items": 4, "batch_bytes": 8_192, "page_items": 3,
    });
    ensure!(shown.body["limits"] == expected, "{shown:?}");
    for name in ["policy", "version", "usage", "floors", "revision"] {
        ensure!(!shown.body[name].is_null(), "no {name}: {shown:?}");
    }
    Ok(())
}

/// At each limit a call passes, and above it the same call is refused by name.
async fn limits_hold(node: &Caller) -> Result<()> {
    let with = |name: &str, value: Value| {
        let mut body = claim("default", &format!("limit/{name}"));
        body["lease_ms"] = json!(5_000);
        body[name] = value;
        body
    };
    let pairs = [
        ("key", json!("k".repeat(40)), json!("k".repeat(41))),
        ("lease_ms", json!(30_000), json!(30_001)),
        ("wait_ms", json!(1_500), json!(1_501)),
    ];
    for (name, good, bad) in pairs {
        node.post("/v1/claims", &with(name, good)).await?.is(201, "claimed").context(name)?;
        let refused = node.post("/v1/claims", &with(name, bad)).await?.is(400, "request.invalid")?;
        ensure!(refused.text("pointer") == format!("/{name}"), "{refused:?}");
    }
    let large = with("request", json!("x".repeat(4_096)));
    node.post("/v1/claims", &large).await?.is(413, "request.too-large")?;

    let granted = node.post("/v1/claims", &with("owner", json!("results"))).await?.is(201, "claimed")?;
    let outcome = |bytes: usize| json!({ "lease_epoch": granted.epoch(), "outcome": "completed", "result": "x".repeat(bytes - 2) });
    let path = format!("/v1/executions/{}/outcome", granted.text("execution_id"));
    let refused = node.post(&path, &outcome(257)).await?.is(413, "request.too-large")?;
    ensure!(refused.text("pointer") == "/result", "{refused:?}");
    node.post(&path, &outcome(256)).await?.in_state("completed")?;

    let items = |count: usize, bytes: usize| -> Value {
        let item = |n: usize| {
            let mut item = claim("default", &format!("limit/batch/{count}/{n}"));
            (item["kind"], item["lease_ms"], item["request"]) =
                (json!("claim"), json!(5_000), json!("x".repeat(bytes)));
            item
        };
        json!({ "items": (0..count).map(item).collect::<Vec<_>>() })
    };
    node.post("/v1/batch", &items(4, 1)).await?.is(200, "")?;
    node.post("/v1/batch", &items(5, 1)).await?.is(400, "request.invalid")?;
    node.post("/v1/batch", &items(3, 3_000)).await?.is(413, "request.too-large")?;
    for (limit, status) in [(3, 200), (4, 400)] {
        let path = format!("/v1/operations?namespace=default&state=executing&limit={limit}");
        ensure!(node.get(&path).await?.status == status, "limit {limit}");
    }
    let page = node.get("/v1/operations?namespace=default&state=executing").await?.is(200, "")?;
    let listed = page.body["operations"].as_array().map(Vec::len);
    ensure!(listed == Some(3) && page.body["next_cursor"].is_string(), "{page:?}");
    // Too long a wait is cut to what there is, as a preference may be; a claim's own is refused above.
    let begun = Instant::now();
    let read = node.operation(granted.text("operation_id")).await?;
    let waited = node.changed(granted.text("operation_id"), read.header("etag")).await?;
    let took = begun.elapsed();
    ensure!(waited.status == 304, "{waited:?}");
    ensure!((Duration::from_millis(1_400)..Duration::from_secs(6)).contains(&took), "waited for {took:?}");
    node.claim(&Claim { lease_ms: 5_000, ..Claim::of("limit/ordinary") }).await?.is(201, "claimed").map(drop)
}
