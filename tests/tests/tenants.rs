//! What another tenant has cannot be told from what nobody has: not by status, headers or body, and not by how long the
//! answer takes. (REQUIREMENTS 94, 95, 106, 127, 137)

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hapax_api::endpoints::{self, Endpoint};
use hapax_tests::admin::{everybody_knows, from_now, namespace, tenant, token};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use rand::RngExt;
use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

const ALL_ROLES: [&str; 6] = ["claim", "issue", "reconcile", "read", "operate", "admin"];

/// Two tenants, and what one of them has.
struct World {
    acme: Caller,
    rival: Caller,
    operation: String,
    execution: String,
    epoch: u64,
    claim_id: Uuid,
    /// One that can be presented, and one that is spent.
    capabilities: [String; 2],
    token_id: String,
}

impl World {
    async fn make(nodes: &[Caller]) -> Result<Self> {
        let dev = &nodes[0];
        for name in ["acme", "rival"] {
            tenant(dev, name, &json!({})).await?;
            namespace(dev, Some(name), "pay", &json!({})).await?;
        }
        namespace(dev, Some("acme"), "only-acme", &json!({})).await?;
        let acme = token(dev, Some("acme"), "same-client", &ALL_ROLES).await?;
        let rival = token(dev, Some("rival"), "same-client", &ALL_ROLES).await?;
        let claim = |key: &str| Claim { namespace: "pay", ..Claim::of(key) };
        let (_, unspent) = acme.approve(&claim("secret/unspent"), "D-1").await?;
        let spending = claim("secret/spent");
        let (operation, spent) = acme.approve(&spending, "D-2").await?;
        let spending =
            spending.with("resource", "secret/resource").with("correlation_id", "COR-1").presenting(&spent);
        let message = json!({ "consumer": "worker", "id": "M-1" });
        let spending = spending.with("message", message);
        let granted = acme.claim(&spending).await?.is(201, "claimed")?;
        let execution = granted.text("execution_id").to_owned();
        let path = format!("/v1/executions/{execution}/outcome");
        let body = json!({ "lease_epoch": granted.epoch(), "outcome": "completed", "external_id": "ch_secret" });
        acme.post(&path, &body).await?.in_state("completed")?;
        everybody_knows(nodes).await?;
        Ok(Self {
            token_id: acme.token_id().context("a token")?.to_owned(),
            epoch: granted.epoch(),
            claim_id: spending.claim_id,
            capabilities: [unspent, spent],
            acme,
            rival,
            operation,
            execution,
        })
    }
}

/// An id of the same form that nobody has.
fn absent(like: &str) -> String {
    let mut rng = rand::rng();
    // A prefix and the slot, which only routes, stay; the rest is drawn anew. A token's id has neither.
    let keep = like.find('_').map_or(0, |at| at + 4);
    let drawn = (keep..like.len()).map(|_| char::from_digit(rng.random_range(0..16), 16).unwrap_or('0'));
    like[..keep].chars().chain(drawn).collect()
}

/// Equal in status, in every byte of the body, and in every header but the date. A page says when it was read; that alone
/// may differ.
fn same(theirs: &Answer, none: &Answer) -> Result<()> {
    let headers = |answer: &Answer| {
        let mut headers = answer.headers.clone();
        headers.remove("date");
        headers
    };
    ensure!(theirs.status == none.status, "{theirs:?} is not {none:?}");
    ensure!(without_revision(theirs)? == without_revision(none)?, "{theirs:?} is not {none:?}");
    let (mut one, mut other) = (headers(theirs), headers(none));
    if theirs.bytes.len() != none.bytes.len() {
        // Revisions of different lengths; then the rest was equal above.
        one.remove("content-length");
        other.remove("content-length");
    }
    ensure!(one == other, "{theirs:?} is not {none:?}");
    Ok(())
}

fn without_revision(answer: &Answer) -> Result<String> {
    let text = String::from_utf8(answer.bytes.to_vec())?;
    match answer.body["revision"].as_str() {
        Some(revision) if answer.status == 200 => Ok(text.replace(&format!("\"revision\":\"{revision}\""), "")),
        _ => Ok(text),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_tenant_has_looks_like_what_nobody_has() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let world = World::make(&nodes).await?;
    let before = everything(&world).await?;
    for node in &nodes {
        every_path_with_an_id(node, &world).await?;
        names_in_bodies_and_queries(node, &world).await?;
        claims_with_others_authority(node, &world).await?;
    }
    let after = everything(&world).await?;
    ensure!(before == after, "another tenant's calls changed something: {before:#?} and {after:#?}");
    Ok(())
}

/// All that the owner sees of its own, but for when it was read.
async fn everything(world: &World) -> Result<Vec<String>> {
    let acme = &world.acme;
    let mut all = Vec::new();
    for path in [
        format!("/v1/operations/{}", world.operation),
        format!("/v1/capabilities/{}", world.capabilities[0]),
        format!("/v1/capabilities/{}", world.capabilities[1]),
        format!("/v1/evidence?operation_id={}", world.operation),
        format!("/v1/evidence?capability_id={}", world.capabilities[0]),
        format!("/v1/evidence?capability_id={}", world.capabilities[1]),
        "/v1/evidence?message_id=M-1&consumer=worker".to_owned(),
    ] {
        all.push(without_revision(&acme.get(&path).await?.is(200, "")?)?);
    }
    Ok(all)
}

/// Every endpoint whose path names an operation, an execution, a capability or a token.
async fn every_path_with_an_id(node: &Caller, world: &World) -> Result<()> {
    let rival = node.with_token_of(&world.rival);
    let mut asked = 0;
    for endpoint in endpoints::all() {
        let named = [
            ("{operation_id}", &world.operation),
            ("{execution_id}", &world.execution),
            ("{capability_id}", &world.capabilities[0]),
            ("{capability_id}", &world.capabilities[1]),
            ("{token_id}", &world.token_id),
        ];
        for (place, theirs) in named.into_iter().filter(|(place, _)| endpoint.path.contains(place)) {
            let body = body_of(endpoint, world);
            let none = absent(theirs);
            let mut answers = Vec::new();
            for id in [theirs, &none] {
                let path = endpoint.path.replace(place, id);
                let method = if endpoint.body.is_some() { Method::POST } else { Method::GET };
                answers
                    .push(rival.send(method, &path, &[], body.as_deref()).await?.is(404, "not-found").context(path)?);
            }
            same(&answers[0], &answers[1]).context(endpoint.name)?;
            ensure!(answers[0].body.get("operation_id").is_none(), "{:?}", answers[0]);
            asked += 1;
        }
    }
    ensure!(asked >= 16, "only {asked} endpoints were asked");
    Ok(())
}

/// A body that the owner could send: what is refused is refused for whose it is.
fn body_of(endpoint: &Endpoint, world: &World) -> Option<String> {
    let epoch = world.epoch;
    let body = match endpoint.body? {
        "RenewRequest" => json!({ "lease_epoch": epoch, "lease_ms": 5_000 }),
        "OutcomeRequest" => json!({ "lease_epoch": epoch, "outcome": "failed" }),
        "EvidenceRequest" => json!({ "claim_id": world.claim_id, "outcome": "failed" }),
        "ResolveRequest" => json!({ "lease_epoch": epoch, "outcome": "failed", "proof": "p" }),
        "EscalateRequest" | "FenceRequest" => json!({ "lease_epoch": epoch, "reason": "r" }),
        "RepairRequest" => json!({ "expected_state": "completed", "reason": "r" }),
        "SupersedeRequest" => json!({ "expected_state": "completed", "by": world.operation, "reason": "r" }),
        "IssueRequest" => json!({ "decision_id": "D-2", "attempt": 1, "expires_at": from_now(60_000) }),
        _ => json!({}),
    };
    Some(body.to_string())
}

async fn names_in_bodies_and_queries(node: &Caller, world: &World) -> Result<()> {
    let rival = node.with_token_of(&world.rival);
    let gets = |theirs: &str, none: &str, path: &str| (path.replace("{}", theirs), path.replace("{}", none));
    let pairs = [
        gets("only-acme", "nobodys", "/v1/namespaces/{}"),
        gets("only-acme", "nobodys", "/v1/operations?namespace={}&state=completed"),
        gets("only-acme", "nobodys", "/v1/watch?namespace={}"),
        gets(&world.operation, &absent(&world.operation), "/v1/evidence?operation_id={}"),
        gets(&world.capabilities[1], &absent(&world.capabilities[1]), "/v1/evidence?capability_id={}"),
        gets("M-1", "M-2", "/v1/evidence?message_id={}&consumer=worker"),
        gets("COR-1", "COR-2", "/v1/evidence?correlation_id={}"),
        gets("acme", "nobody", "/v1/tenants/{}"),
        gets("acme", "nobody", "/v1/namespaces?tenant={}"),
        gets("acme", "nobody", "/v1/tokens?tenant={}"),
    ];
    for (theirs, none) in &pairs {
        same(&rival.get(theirs).await?, &rival.get(none).await?).context(theirs.clone())?;
    }
    for (name, theirs) in [("key", "secret/spent"), ("external_id", "ch_secret"), ("resource", "secret/resource")] {
        let look = |value: &str| json!({ "namespace": "pay", name: value });
        let found = rival.post("/v1/operations/lookup", &look(theirs)).await?.is(200, "")?;
        ensure!(found.body["operations"] == json!([]), "{found:?}");
        same(&found, &rival.post("/v1/operations/lookup", &look("nobodys")).await?).context(name)?;
    }
    for space in ["only-acme", "nobodys"] {
        rival
            .post("/v1/operations/lookup", &json!({ "namespace": space, "key": "k" }))
            .await?
            .is(404, "not-found")?;
    }
    let lists = rival.get("/v1/operations?namespace=pay&state=completed").await?.is(200, "")?;
    ensure!(lists.body["operations"] == json!([]), "{lists:?}");
    let leased = rival.reconcile("pay", "spy", 100, 5_000).await?.is(200, "")?;
    ensure!(leased.body["items"] == json!([]), "{leased:?}");
    Ok(())
}

async fn claims_with_others_authority(node: &Caller, world: &World) -> Result<()> {
    let rival = node.with_token_of(&world.rival);
    let claim = |space: &str, key: &str, capability: &str| {
        json!({
            "namespace": space, "key": key, "request": { "key": key }, "claim_id": Uuid::new_v4(),
            "capability_id": capability,
        })
    };
    for theirs in &world.capabilities {
        for key in ["secret/unspent", "secret/spent", "fresh"] {
            let none = rival.post("/v1/claims", &claim("pay", key, &absent(theirs))).await?;
            let one = rival.post("/v1/claims", &claim("pay", key, theirs)).await?.is(403, "capability.invalid")?;
            same(&one, &none).context(key)?;
        }
    }
    let message = |id: &str| {
        let mut body = claim("only-acme", "k", &world.capabilities[0]);
        body["message"] = json!({ "consumer": "worker", "id": id });
        body
    };
    let one = rival.post("/v1/claims", &message("M-1")).await?.is(404, "not-found")?;
    let mut none = message("M-1");
    none["namespace"] = json!("nobodys");
    same(&one, &rival.post("/v1/claims", &none).await?)
}

/// Pairs of calls whose times are compared.
const READS: usize = 4_000;
const CLAIMS: usize = 1_500;
/// How far the medians may be apart, relative to each other.
const APART_MAX: f64 = 0.10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_takes_as_long_to_find_nothing_as_to_find_anothers() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let world = World::make(&nodes).await?;
    let leader = cluster.leader().await?;
    for node in [leader, (leader + 1) % 3] {
        let rival = nodes[node].with_token_of(&world.rival);
        let read = async |id: &str| rival.get(&format!("/v1/operations/{id}")).await?.is(404, "not-found").map(drop);
        compare("reads", READS / 2, &world.operation, read).await?;
        let capability =
            async |id: &str| rival.get(&format!("/v1/capabilities/{id}")).await?.is(404, "not-found").map(drop);
        compare("capabilities", READS / 4, &world.capabilities[1], capability).await?;
        let claim = async |id: &str| {
            let body = json!({
                "namespace": "pay", "key": "probe", "request": {}, "claim_id": Uuid::new_v4(), "capability_id": id,
            });
            rival.post("/v1/claims", &body).await?.is(403, "capability.invalid").map(drop)
        };
        compare("claims with a capability", CLAIMS / 2, &world.capabilities[1], claim).await?;
        let renew = async |id: &str| rival.renew(id, world.epoch, 5_000).await?.is(404, "not-found").map(drop);
        compare("renewals", CLAIMS / 2, &world.execution, renew).await?;
    }
    Ok(())
}

/// Interleaved calls about what another tenant has and about what nobody has; which comes first changes from pair to pair.
async fn compare(what: &str, pairs: usize, theirs: &str, call: impl AsyncFn(&str) -> Result<()>) -> Result<()> {
    let mut rng = rand::rng();
    for _ in 0..50 {
        call(theirs).await?;
        call(&absent(theirs)).await?;
    }
    let (mut one, mut other) = (Vec::with_capacity(pairs), Vec::with_capacity(pairs));
    for _ in 0..pairs {
        let none = absent(theirs);
        let first = rng.random::<bool>();
        for theirs_now in [first, !first] {
            let id = if theirs_now { theirs } else { &none };
            let begun = Instant::now();
            call(id).await?;
            let took = begun.elapsed();
            if theirs_now { one.push(took) } else { other.push(took) }
        }
    }
    let (one, other) = (median(one), median(other));
    let apart = (one.as_secs_f64() - other.as_secs_f64()).abs() / one.min(other).as_secs_f64();
    println!(
        "{what}: {one:?} for another tenant's, {other:?} for nobody's, {:.1} % apart over {pairs} pairs",
        apart * 100.0
    );
    ensure!(apart <= APART_MAX, "{what}: {one:?} and {other:?} are {:.1} % apart", apart * 100.0);
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The comparison itself is put on trial: a difference of a fifth is seen.
#[tokio::test]
async fn a_difference_of_a_fifth_is_seen() -> Result<()> {
    let busy = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::hint::spin_loop();
        }
    };
    let leaky = async |id: &str| {
        busy(Duration::from_micros(if id == "op_theirs" { 240 } else { 200 }));
        anyhow::Ok(())
    };
    ensure!(compare("a leak", 200, "op_theirs", leaky).await.is_err(), "a leak was not seen");
    let even = async |_: &str| {
        busy(Duration::from_micros(200));
        anyhow::Ok(())
    };
    compare("no leak", 200, "op_theirs", even).await
}

/// What the helper draws is a value of the same form.
#[test]
fn an_absent_id_is_another_id_of_the_same_form() {
    for like in [format!("op_{}", "a".repeat(57)), format!("cap_{}", "b".repeat(35)), "c".repeat(20)] {
        let drawn = absent(&like);
        assert_eq!(drawn.len(), like.len());
        assert_ne!(drawn, like);
        assert_eq!(drawn.find('_'), like.find('_'));
    }
}
