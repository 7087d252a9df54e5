//! Tenants, namespaces and tokens through the API: nothing is overwritten unseen, what decides identity is fixed, each
//! administrator administers their own, and a credential is good for what it says and for as long as it says.
//! (REQUIREMENTS 25, 82, 94, 95, 96, 98, 127)

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use hapax_api::endpoints::{self, Endpoint};
use hapax_tests::admin::{ABSENT, everybody_knows, from_now, millis, namespace, tenant, token};
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

const ROLES: [&str; 6] = ["claim", "issue", "reconcile", "read", "operate", "admin"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_overwritten_unseen_and_what_decides_identity_is_fixed() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    versions(&nodes, "/v1/tenants/acme", &json!({}), &json!({ "requests_per_second": 100_000 })).await?;
    versions(&nodes, "/v1/namespaces/pay", &json!({}), &json!({ "reconcile_per_minute": 7 })).await?;
    one_of_many_writers_wins(&nodes).await?;
    what_is_fixed(&nodes).await?;
    policies_are_checked_and_complete(&nodes[1]).await?;
    a_new_policy_counts_from_its_answer(&nodes).await
}

/// The preconditions of whatever is written under a version, each at another node.
async fn versions(nodes: &[Caller], path: &str, first: &Value, second: &Value) -> Result<()> {
    let none = nodes[0].send(Method::PUT, path, &[], Some("{}")).await?;
    none.is(428, "precondition.required")?;
    nodes[1].put(path, ("if-match", "\"v1\""), first).await?.is(412, "precondition.failed")?;
    for tag in ["*", "v1", "\"1\"", "W/\"v1\"", "\"v1\", \"v2\"", "\"v01\""] {
        nodes[1].put(path, ("if-match", tag), first).await?.is(400, "request.invalid").context(tag.to_owned())?;
    }
    let both = [("if-match", "\"v1\""), ABSENT];
    nodes[2].send(Method::PUT, path, &both, Some("{}")).await?.is(400, "request.invalid")?;
    nodes[0].get(path).await?.is(404, "not-found")?;

    let made = nodes[2].put(path, ABSENT, first).await?.is(201, "")?;
    ensure!(made.header("etag") == "\"v1\"" && made.body["version"] == 1, "{made:?}");
    nodes[0].put(path, ABSENT, first).await?.is(412, "precondition.failed")?;
    let replaced = nodes[1].put(path, ("if-match", "\"v1\""), second).await?.is(200, "")?;
    ensure!(replaced.header("etag") == "\"v2\"" && replaced.body["version"] == 2, "{replaced:?}");
    nodes[0].put(path, ("if-match", "\"v1\""), first).await?.is(412, "precondition.failed")?;
    for node in nodes {
        let read = node.get(path).await?.is(200, "")?;
        ensure!(read.header("etag") == "\"v2\"", "{read:?}");
        let shown = if path.contains("namespaces") { &read.body["policy"] } else { &read.body };
        for (name, value) in second.as_object().into_iter().flatten() {
            ensure!(shown[name] == *value, "{name} is not what was written: {read:?}");
        }
    }
    Ok(())
}

/// Twelve administrators have read the same version, and write at once through all nodes.
async fn one_of_many_writers_wins(nodes: &[Caller]) -> Result<()> {
    for round in 2..8 {
        let tag = format!("\"v{round}\"");
        let writes = (0..12).map(|writer| {
            let (node, tag) = (&nodes[writer % 3], &tag);
            async move {
                let policy = json!({ "reconcile_per_minute": 1_000 * round + writer });
                node.put("/v1/namespaces/pay", ("if-match", tag), &policy).await.map(|answer| (writer, answer))
            }
        });
        let answers = join_all(writes).await.into_iter().collect::<Result<Vec<_>>>()?;
        let won: Vec<usize> =
            answers.iter().filter(|(_, answer)| answer.status == 200).map(|(writer, _)| *writer).collect();
        ensure!(won.len() == 1, "{won:?} of twelve won: {answers:?}");
        ensure!(answers.iter().filter(|(_, answer)| answer.status == 412).count() == 11, "{answers:?}");
        let stands = nodes[0].get("/v1/namespaces/pay").await?;
        ensure!(stands.body["policy"]["reconcile_per_minute"] == 1_000 * round + won[0], "{stands:?}");
    }
    Ok(())
}

async fn what_is_fixed(nodes: &[Caller]) -> Result<()> {
    let made = json!({ "scope": "client", "partitions": 4, "transport_fields": ["trace"] });
    namespace(&nodes[0], None, "fixed", &made).await?;
    let with = |name: &str, value: Value| {
        let mut policy = made.clone();
        policy[name] = value;
        policy
    };
    let changes = [
        ("scope", json!("namespace")),
        ("partitions", json!(5)),
        ("transport_fields", json!([])),
        ("transport_fields", json!(["trace", "span"])),
    ];
    for (name, value) in changes {
        let put = nodes[1].put("/v1/namespaces/fixed", ("if-match", "\"v1\""), &with(name, value)).await?;
        put.is(409, "policy.fixed").context(name)?;
    }
    // A policy is written as a whole: what it leaves out is its default, and that is another scope here.
    let short =
        nodes[2].put("/v1/namespaces/fixed", ("if-match", "\"v1\""), &json!({ "on_lapse": "takeover" })).await?;
    short.is(409, "policy.fixed")?;
    let put =
        nodes[2].put("/v1/namespaces/fixed", ("if-match", "\"v1\""), &with("on_lapse", json!("takeover"))).await?;
    ensure!(put.is(200, "")?.body["policy"]["on_lapse"] == "takeover");

    let system = nodes[0].get("/v1/tenants/dev").await?.is(200, "")?;
    ensure!(system.body["system"] == true, "{system:?}");
    let tag = system.header("etag").to_owned();
    let disabled = nodes[1].put("/v1/tenants/dev", ("if-match", &tag), &json!({ "disabled": true })).await?;
    disabled.is(409, "policy.fixed")?;
    ensure!(nodes[2].get("/v1/tenants/acme").await?.body["system"] == false);
    Ok(())
}

async fn policies_are_checked_and_complete(node: &Caller) -> Result<()> {
    let wrong = [
        (json!({ "scope": "tenant" }), "/scope"),
        (json!({ "retention": { "body_ms": 59_999 } }), "/retention/body_ms"),
        (json!({ "retention": { "body_ms": 120_000, "identity_ms": 60_000 } }), "/retention/identity_ms"),
        (json!({ "retention": { "expired_keys": "forget" } }), "/retention/expired_keys"),
        (json!({ "retention": { "for_ever": true } }), "/retention/for_ever"),
        (json!({ "quota": { "open_operations": 0 } }), "/quota/open_operations"),
        (json!({ "partitions": 4_097 }), "/partitions"),
        (json!({ "unheard_of": 1 }), "/unheard_of"),
    ];
    for (policy, pointer) in wrong {
        let refused = node.put("/v1/namespaces/wrong", ABSENT, &policy).await?.is(400, "request.invalid")?;
        ensure!(refused.text("pointer") == pointer, "{pointer}: {refused:?}");
    }
    node.get("/v1/namespaces/wrong").await?.is(404, "not-found")?;
    let plain = node.get("/v1/namespaces/default").await?.is(200, "")?;
    let expected = json!({
        "scope": "namespace", "on_lapse": "unknown", "attempts": "automatic", "conflict_style": "hapax",
        "authority": "inline", "transport_fields": [], "partitions": 1,
        "retention": { "body_ms": 604_800_000, "identity_ms": 2_592_000_000_u64, "expired_keys": "new" },
        "reconcile_per_minute": 120, "quota": {},
    });
    ensure!(plain.body["policy"] == expected, "{plain:?}");
    Ok(())
}

/// What a policy says is what every node does, from the answer to its writing.
async fn a_new_policy_counts_from_its_answer(nodes: &[Caller]) -> Result<()> {
    namespace(&nodes[0], None, "style", &json!({})).await?;
    let claim = |amount: u64| json!({ "namespace": "style", "key": "k/1", "request": { "amount": amount } });
    nodes[0].post("/v1/claims", &claim(1)).await?.is(201, "claimed")?;
    nodes[0].post("/v1/claims", &claim(2)).await?.is(409, "key.digest-mismatch")?;
    let put =
        nodes[1].put("/v1/namespaces/style", ("if-match", "\"v1\""), &json!({ "conflict_style": "ietf" })).await?;
    put.is(200, "")?;
    for node in nodes {
        // In progress, and another request under the key: both in the other style, for an operation of before.
        node.post("/v1/claims", &claim(2)).await?.is(422, "key.digest-mismatch")?;
        node.post("/v1/claims", &claim(1)).await?.is(409, "operation.executing")?;
    }
    let put =
        nodes[2].put("/v1/namespaces/style", ("if-match", "\"v2\""), &json!({ "authority": "capability" })).await?;
    put.is(200, "")?;
    for node in nodes {
        let bare = json!({ "namespace": "style", "key": "k/2", "request": {} });
        node.post("/v1/claims", &bare).await?.is(403, "capability.required")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_administrator_administers_their_own_and_the_systems_all() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let dev = &nodes[0];
    for name in ["acme", "rival"] {
        tenant(dev, name, &json!({})).await?;
        namespace(dev, Some(name), "pay", &json!({})).await?;
    }
    namespace_of_nobody(dev).await?;
    let acme = token(dev, Some("acme"), "acme-admin", &["admin"]).await?;
    let rival = token(dev, Some("rival"), "rival-admin", &["admin"]).await?;

    // Their own: everything but the tenant itself.
    namespace(&acme, None, "own", &json!({})).await?;
    namespace(&acme, Some("acme"), "also-own", &json!({})).await?;
    let worker = token(&acme, None, "worker", &["claim"]).await?;
    let claimed = worker.claim(&Claim { namespace: "own", ..Claim::of("own/1") }).await?.is(201, "claimed")?;
    ensure!(acme.get("/v1/tenants/acme").await?.is(200, "")?.body["system"] == false);
    for (path, precondition) in [("/v1/tenants/acme", ("if-match", "\"v1\"")), ("/v1/tenants/third", ABSENT)] {
        acme.put(path, precondition, &json!({})).await?.is(403, "auth.forbidden").context(path)?;
    }

    others_are_out_of_reach(&acme, "rival").await?;
    others_are_out_of_reach(&acme, "dev").await?;
    others_are_out_of_reach(&acme, "absent").await?;
    lists_show_their_own(dev, &acme).await?;
    tokens_of_others_do_not_exist(dev, &acme, &rival).await?;
    nobody_hands_on_more_than_they_have(&acme).await?;

    // The system's administrator is no reader of operations of others: scope comes from the credential.
    dev.operation(claimed.text("operation_id")).await?.is(404, "not-found")?;
    Ok(())
}

async fn namespace_of_nobody(dev: &Caller) -> Result<()> {
    dev.put("/v1/namespaces/pay?tenant=absent", ABSENT, &json!({})).await?.is(404, "not-found")?;
    let body = json!({ "tenant": "absent", "client": "x", "roles": ["read"] });
    dev.post("/v1/tokens", &body).await?.is(404, "not-found").map(drop)
}

/// The same refusal for everything of another tenant, whether there is one or not.
async fn others_are_out_of_reach(acme: &Caller, other: &str) -> Result<()> {
    let reads = ["tenants/{}", "namespaces?tenant={}", "namespaces/pay?tenant={}", "tokens?tenant={}"];
    for path in reads {
        let path = format!("/v1/{}", path.replace("{}", other));
        acme.get(&path).await?.is(403, "auth.forbidden").context(path)?;
    }
    for precondition in [ABSENT, ("if-match", "\"v1\"")] {
        let path = format!("/v1/namespaces/pay?tenant={other}");
        acme.put(&path, precondition, &json!({})).await?.is(403, "auth.forbidden").context(path)?;
    }
    let body = json!({ "tenant": other, "client": "spy", "roles": ["read"] });
    acme.post("/v1/tokens", &body).await?.is(403, "auth.forbidden").context(other.to_owned()).map(drop)
}

async fn lists_show_their_own(dev: &Caller, acme: &Caller) -> Result<()> {
    let names = |answer: &Answer, list: &str, field: &str| -> Vec<String> {
        let items = answer.body[list].as_array().into_iter().flatten();
        items.map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    ensure!(names(&acme.get("/v1/tenants").await?, "tenants", "tenant") == ["acme"]);
    ensure!(names(&dev.get("/v1/tenants").await?, "tenants", "tenant") == ["acme", "dev", "rival"]);
    ensure!(names(&acme.get("/v1/namespaces").await?, "namespaces", "namespace") == ["also-own", "own", "pay"]);
    let of_rival = dev.get("/v1/namespaces?tenant=rival").await?;
    ensure!(names(&of_rival, "namespaces", "namespace") == ["pay"], "{of_rival:?}");
    // Paged, one by one, by name; the cursor is good for the same list only.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = acme.get(&format!("/v1/namespaces?limit=1{cursor}")).await?.is(200, "")?;
        seen.extend(names(&page, "namespaces", "namespace"));
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
        acme.get(&format!("/v1/tokens?cursor={next}")).await?.is(400, "request.invalid")?;
        dev.get(&format!("/v1/namespaces?tenant=acme&cursor={next}")).await?.is(400, "request.invalid")?;
    }
    ensure!(seen == ["also-own", "own", "pay"], "{seen:?}");
    Ok(())
}

async fn tokens_of_others_do_not_exist(dev: &Caller, acme: &Caller, rival: &Caller) -> Result<()> {
    let ids = rival.get("/v1/tokens").await?.is(200, "")?;
    let theirs = ids.body["tokens"][0]["token_id"].as_str().context("rival has a token")?.to_owned();
    let absent = "0".repeat(theirs.len());
    let revoke = |id: &str| format!("/v1/tokens/{id}/revoke");
    let (one, none) =
        (acme.post(&revoke(&theirs), &json!({})).await?, acme.post(&revoke(&absent), &json!({})).await?);
    ensure!(one.status == 404 && one.status == none.status && one.bytes == none.bytes, "{one:?} is not {none:?}");
    rival.get("/v1/tokens").await?.is(200, "").context("revoked by another tenant")?;
    // The system's administrator may.
    dev.post(&revoke(&theirs), &json!({})).await?.is(200, "")?;
    rival.get("/v1/tokens").await?.is(401, "auth.invalid").map(drop)
}

async fn nobody_hands_on_more_than_they_have(acme: &Caller) -> Result<()> {
    let narrow = json!({ "client": "narrow", "namespaces": ["own"], "roles": ["admin", "claim"] });
    let made = acme.post("/v1/tokens", &narrow).await?.is(201, "")?;
    let narrow = acme.with_token(made.text("token"));
    for namespaces in [json!([]), json!(["pay"]), json!(["own", "pay"])] {
        let body = json!({ "client": "wide", "namespaces": namespaces, "roles": ["read"] });
        narrow.post("/v1/tokens", &body).await?.is(403, "auth.forbidden").context(namespaces.to_string())?;
    }
    let body = json!({ "client": "as-narrow", "namespaces": ["own"], "roles": ["read"] });
    narrow.post("/v1/tokens", &body).await?.is(201, "")?;
    narrow.put("/v1/namespaces/pay", ("if-match", "\"v1\""), &json!({})).await?.is(403, "auth.forbidden")?;
    narrow.get("/v1/namespaces/pay").await?.is(403, "auth.forbidden")?;
    let listed = narrow.get("/v1/namespaces").await?;
    ensure!(listed.body["namespaces"].as_array().is_some_and(|list| list.len() == 1), "{listed:?}");
    narrow.claim(&Claim { namespace: "pay", ..Claim::of("narrow/1") }).await?.is(403, "auth.forbidden")?;
    narrow.claim(&Claim { namespace: "absent", ..Claim::of("narrow/1") }).await?.is(403, "auth.forbidden").map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_good_for_what_it_says_and_for_as_long_as_it_says() -> Result<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    every_endpoint_asks_for_its_roles(&nodes[0]).await?;
    the_secret_is_shown_once(&nodes[0]).await?;
    let revoked = a_revoked_token_is_refused_at_once(&nodes).await?;
    an_expired_token_is_refused(&nodes[1]).await?;
    let disabled = a_disabled_tenant_is_refused(&nodes).await?;

    // None of it is forgotten by a cluster that was killed.
    let living = token(&nodes[0], None, "living", &["read"]).await?;
    for node in &mut cluster.nodes {
        node.kill()?;
    }
    for node in &mut cluster.nodes {
        node.start()?;
    }
    cluster.ready().await?;
    for node in &nodes {
        node.with_token_of(&living).get("/v1/epochs/x").await?.is(200, "")?;
        for gone in [&revoked, &disabled] {
            node.with_token_of(gone).get("/v1/epochs/x").await?.is(401, "auth.invalid")?;
        }
    }
    let rejected = cluster.nodes[0].metric("hapax_auth_rejections_total{reason=\"unknown\"}").await?;
    ensure!(rejected >= 2.0, "{rejected} rejections are counted");
    Ok(())
}

/// Each endpoint, asked with a token of each single role: allowed exactly where the table of endpoints says so.
async fn every_endpoint_asks_for_its_roles(node: &Caller) -> Result<()> {
    let mut asked = 0;
    let mut wrong = Vec::new();
    let nobody = node.with_token("");
    for endpoint in endpoints::all().filter(|endpoint| !endpoint.roles.is_empty()) {
        call(&nobody, endpoint).await?.is(401, "auth.invalid").context(endpoint.name)?;
    }
    for role in ROLES {
        let holder = token(node, None, role, &[role]).await?;
        for endpoint in endpoints::all().filter(|endpoint| !endpoint.roles.is_empty()) {
            let answer = call(&holder, endpoint).await?;
            let allowed = answer.status != 403 && answer.status != 401;
            if allowed != endpoint.roles.contains(&role) {
                wrong.push(format!("{role} at {} got {}", endpoint.name, answer.status));
            }
            asked += 1;
        }
    }
    println!("{asked} pairs of endpoint and role");
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// A call that is refused for what it is about, if it is not refused for who makes it.
async fn call(caller: &Caller, endpoint: &Endpoint) -> Result<Answer> {
    let mut path = endpoint.path.to_owned();
    for (name, id) in [
        ("{operation_id}", format!("op_{}", "0".repeat(57))),
        ("{execution_id}", format!("ex_{}", "0".repeat(35))),
        ("{capability_id}", format!("cap_{}", "0".repeat(35))),
        ("{token_id}", "0".repeat(20)),
        ("{scope}", "absent".to_owned()),
        ("{namespace}", "absent".to_owned()),
        ("{tenant}", "absent".to_owned()),
    ] {
        path = path.replace(name, &id);
    }
    let body = endpoint.body.map(|_| "{\"unheard_of\":1}");
    let method = match endpoint.method {
        // A stream that begins has no end; a position that is none does not begin one.
        endpoints::Method::Get if endpoint.path == endpoints::WATCH => {
            path += "?from=none";
            Method::GET
        }
        endpoints::Method::Get => Method::GET,
        endpoints::Method::Post => Method::POST,
        endpoints::Method::Put => Method::PUT,
    };
    caller.send(method, &path, &[], body).await
}

async fn the_secret_is_shown_once(node: &Caller) -> Result<()> {
    let body = json!({ "client": "shown", "namespaces": ["default"], "roles": ["read", "claim"], "expires_at": from_now(3_600_000) });
    let made = node.post("/v1/tokens", &body).await?.is(201, "")?;
    let text = made.text("token").to_owned();
    let secret = text.rsplit('_').next().context("a secret")?.to_owned();
    ensure!(text.starts_with("hpx_") && secret.len() >= 32, "{made:?}");
    ensure!(made.body["client"] == "shown" && made.body["namespaces"] == json!(["default"]), "{made:?}");
    let roles: BTreeSet<&str> =
        made.body["roles"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ensure!(roles == BTreeSet::from(["claim", "read"]), "{made:?}");
    let listed = node.get("/v1/tokens").await?.is(200, "")?;
    let everything = String::from_utf8_lossy(&listed.bytes);
    ensure!(everything.contains(made.text("token_id")), "the token is not in the list");
    ensure!(
        !everything.contains(&secret) && !everything.contains("secret") && !everything.contains("hash"),
        "{everything}"
    );
    // The right id with another secret, and a secret with another id.
    let id = made.text("token_id");
    for wrong in [format!("hpx_{id}_{}", "0".repeat(secret.len())), format!("hpx_{}_{secret}", "0".repeat(id.len()))]
    {
        node.with_token(wrong).get("/v1/epochs/x").await?.is(401, "auth.invalid")?;
    }
    for (field, value) in
        [("roles", json!([])), ("roles", json!(["root"])), ("client", json!("")), ("namespaces", json!("x"))]
    {
        let mut body = body.clone();
        body[field] = value;
        let refused = node.post("/v1/tokens", &body).await?.is(400, "request.invalid")?;
        ensure!(refused.text("pointer").starts_with(&format!("/{field}")), "{refused:?}");
    }
    Ok(())
}

/// On the node that acknowledged it from then on; on the others once they have applied it, and never again after.
async fn a_revoked_token_is_refused_at_once(nodes: &[Caller]) -> Result<Caller> {
    for (round, acknowledging) in [0, 1, 2, 0, 1, 2].into_iter().enumerate() {
        let holder = token(&nodes[acknowledging], None, &format!("revoked-{round}"), &["read", "claim"]).await?;
        everybody_knows(nodes).await?;
        let at = |node: &Caller| node.with_token_of(&holder);
        for node in nodes {
            at(node).get("/v1/epochs/x").await?.is(200, "")?;
        }
        let path = format!("/v1/tokens/{}/revoke", holder.token_id().context("a token of the form hpx_id_secret")?);
        let revoked = nodes[acknowledging].post(&path, &json!({})).await?.is(200, "")?;
        at(&nodes[acknowledging]).get("/v1/epochs/x").await?.is(401, "auth.invalid")?;
        everybody_knows(nodes).await?;
        for node in nodes {
            at(node).get("/v1/epochs/x").await?.is(401, "auth.invalid")?;
            at(node).claim(&Claim::of("revoked/1")).await?.is(401, "auth.invalid")?;
        }
        let again = nodes[(acknowledging + 1) % 3].post(&path, &json!({})).await?.is(200, "")?;
        ensure!(again.body["revoked_at"] == revoked.body["revoked_at"] && !again.text("revoked_at").is_empty());
        if round == 5 {
            return Ok(holder);
        }
    }
    anyhow::bail!("there are six rounds")
}

/// Good before its end and refused after it, by the clock of the node that is asked.
async fn an_expired_token_is_refused(node: &Caller) -> Result<()> {
    let expires_at = from_now(1_500);
    let body = json!({ "client": "brief", "roles": ["read"], "expires_at": expires_at });
    let made = node.post("/v1/tokens", &body).await?.is(201, "")?;
    let holder = node.with_token(made.text("token"));
    let end = millis(&expires_at);
    let (mut good, begun) = (0, Instant::now());
    loop {
        let sent = millis(&from_now(0));
        let answer = holder.get("/v1/epochs/x").await?;
        let answered = millis(&from_now(0));
        if answer.status == 200 {
            ensure!(sent < end, "good {} ms after its end", sent - end);
            good += 1;
        } else {
            answer.is(401, "auth.invalid")?;
            ensure!(answered >= end, "refused {} ms before its end", end - answered);
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(10), "it does not end");
    }
    ensure!(good > 0, "it was never good");
    holder.get("/v1/epochs/x").await?.is(401, "auth.invalid").map(drop)
}

async fn a_disabled_tenant_is_refused(nodes: &[Caller]) -> Result<Caller> {
    tenant(&nodes[0], "acme", &json!({})).await?;
    namespace(&nodes[0], Some("acme"), "pay", &json!({})).await?;
    let worker = token(&nodes[0], Some("acme"), "worker", &["claim", "read"]).await?;
    let claimed = worker.claim(&Claim { namespace: "pay", ..Claim::of("disabled/1") }).await?.is(201, "claimed")?;
    let (execution, epoch) = (claimed.text("execution_id"), claimed.epoch());
    for (disabled, tag) in [(true, "\"v1\""), (false, "\"v2\""), (true, "\"v3\"")] {
        let put = nodes[1].put("/v1/tenants/acme", ("if-match", tag), &json!({ "disabled": disabled })).await?;
        put.is(200, "")?;
        if disabled {
            nodes[1].with_token_of(&worker).renew(execution, epoch, 60_000).await?.is(401, "auth.invalid")?;
        }
        everybody_knows(nodes).await?;
        for node in nodes {
            let renewed = node.with_token_of(&worker).renew(execution, epoch, 60_000).await?;
            ensure!(renewed.status == if disabled { 401 } else { 200 }, "disabled: {disabled}: {renewed:?}");
        }
    }
    // The system's own callers do not notice.
    until(async || nodes[2].claim(&Claim::of("disabled/2")).await?.is(201, "claimed")).await?;
    Ok(worker)
}
