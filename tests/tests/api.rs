//! The HTTP contract on a real cluster: waiting, key carriers, status with long-poll, conflicts, credentials, and that
//! another tenant's operation looks exactly like none. (REQUIREMENTS 13, 25, 68–71, 74, 94, 95, 101, 102, 106)

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hapax_auth::Token;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

/// Tokens of the configuration: a reader, another tenant's everything, and one for another namespace only.
fn tokens() -> (Options, [String; 3]) {
    let minted = [1, 2, 3].map(|seed| Token::mint([seed; 10], [seed; 32]));
    let rows = [
        ("dev", "reader", "", r#""read""#),
        ("other", "worker", "", r#""claim", "read", "reconcile""#),
        ("dev", "narrow", r#""takeover""#, r#""claim", "read", "reconcile""#),
    ];
    let mut sections = String::new();
    for (token, (tenant, client, namespaces, roles)) in minted.iter().zip(rows) {
        let hash: String = token.secret_hash().iter().map(|byte| format!("{byte:02x}")).collect();
        sections += &format!(
            "[[auth.tokens]]\nid = \"{}\"\nsecret_sha256 = \"{hash}\"\ntenant = \"{tenant}\"\nclient = \"{client}\"\n\
             namespaces = [{namespaces}]\nroles = [{roles}]\n",
            token.id()
        );
    }
    (Options { sections, ..Options::default() }, minted.map(|token| token.to_text()))
}

fn expect(answer: &Answer, status: u16, verdict: &str) -> Result<()> {
    ensure!(answer.status.as_u16() == status && answer.verdict() == verdict, "not {status} {verdict}: {answer:?}");
    Ok(())
}

async fn completed(caller: &Caller, claim: &Claim) -> Result<Answer> {
    let granted = caller.claim(claim).await?;
    expect(&granted, 201, "claimed")?;
    let reported = caller.report(granted.text("execution_id"), granted.epoch(), "completed").await?;
    ensure!(reported.text("state") == "completed", "{reported:?}");
    Ok(granted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_lives_from_its_claim_to_its_replays() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let claim = Claim::of("life/1");
    let granted = nodes[0].claim(&claim).await?;
    expect(&granted, 201, "claimed")?;
    let again = nodes[1].claim(&claim).await?;
    expect(&again, 201, "claimed")?;
    for field in ["operation_id", "execution_id", "lease_epoch", "effect_key", "attempt"] {
        ensure!(again.body[field] == granted.body[field], "the same claim id got another {field}");
    }
    let reused = nodes[1].claim(&Claim { lease_ms: 5_000, ..claim.clone() }).await?;
    expect(&reused, 409, "claim-id.reused")?;
    let busy = nodes[2].claim(&Claim::of("life/1")).await?;
    expect(&busy, 202, "in_progress")?;
    ensure!(
        busy.header("location").ends_with(granted.text("operation_id")) && !busy.header("retry-after").is_empty()
    );
    let other = Claim { request: json!({ "amount": "999.00" }), ..Claim::of("life/1") };
    let mismatch = nodes[2].claim(&other).await?;
    expect(&mismatch, 409, "key.digest-mismatch")?;
    ensure!(!mismatch.body.to_string().contains("sha256"), "the stored digest is echoed");

    let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
    let first = nodes[1].report(execution, epoch, "completed").await?;
    ensure!(first.status == 200, "{first:?}");
    let second = nodes[2].report(execution, epoch, "completed").await?;
    ensure!(second.status == 200, "the identical report again: {second:?}");
    expect(&nodes[0].report(execution, epoch, "failed").await?, 409, "outcome.conflict")?;
    for node in &nodes {
        let replayed = node.claim(&Claim::of("life/1")).await?;
        expect(&replayed, 200, "replayed")?;
        ensure!(replayed.header("idempotency-replayed") == "true");
        ensure!(replayed.body["outcome"]["result"]["by"] == execution, "{replayed:?}");
        expect(&node.claim(&other).await?, 409, "key.digest-mismatch")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_may_wait_and_a_reader_may_poll() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let granted = nodes[0].claim(&Claim::of("wait/1")).await?;
    let path = format!("/v1/operations/{}", granted.text("operation_id"));
    let read = nodes[1].get(&path).await?;
    ensure!(read.text("state") == "executing", "{read:?}");
    let tag = read.header("etag").to_owned();
    let unchanged = nodes[1].send(Method::GET, &path, &[("if-none-match", &tag)], None).await?;
    ensure!(unchanged.status == 304, "{unchanged:?}");

    let waiter = nodes[2].clone();
    let waiting = tokio::spawn(async move { waiter.claim(&Claim { wait_ms: 10_000, ..Claim::of("wait/1") }).await });
    let (reader, polled, header) = (nodes[1].clone(), path.clone(), tag.clone());
    let polling = tokio::spawn(async move {
        reader.send(Method::GET, &polled, &[("if-none-match", &header), ("prefer", "wait=10")], None).await
    });
    let short = nodes[0].claim(&Claim { wait_ms: 300, ..Claim::of("wait/1") }).await?;
    expect(&short, 202, "in_progress")?;
    ensure!(!waiting.is_finished() && !polling.is_finished(), "somebody did not wait");
    let begun = Instant::now();
    nodes[0].report(granted.text("execution_id"), granted.epoch(), "completed").await?;
    expect(&waiting.await??, 200, "replayed")?;
    let changed = polling.await??;
    ensure!(changed.text("state") == "completed" && changed.header("etag") != tag, "{changed:?}");
    ensure!(begun.elapsed() < Duration::from_secs(5), "they were not woken: {:?}", begun.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_travels_in_the_header_too_and_other_styles_and_attempts_are_a_namespaces_choice() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let node = &cluster.callers()[1];
    let body = json!({ "namespace": "ietf", "request": { "a": 1, "trace": "x" } }).to_string();
    let quoted = node.send(Method::POST, "/v1/claims", &[("idempotency-key", "\"k/1\"")], Some(&body)).await?;
    expect(&quoted, 201, "claimed")?;
    // The transport field is no part of the request; the bare key is the same key.
    let body = json!({ "namespace": "ietf", "request": { "a": 1, "trace": "y" } }).to_string();
    let bare = node.send(Method::POST, "/v1/claims", &[("idempotency-key", "k/1")], Some(&body)).await?;
    expect(&bare, 409, "operation.executing")?;
    let body = json!({ "namespace": "ietf", "request": { "a": 2 } }).to_string();
    let other = node.send(Method::POST, "/v1/claims", &[("idempotency-key", "k/1")], Some(&body)).await?;
    expect(&other, 422, "key.digest-mismatch")?;

    let (execution, epoch) = (quoted.text("execution_id"), quoted.epoch());
    let nothing = node.report(execution, epoch, "not_applied").await?;
    ensure!(nothing.text("state") == "not_applied", "{nothing:?}");
    let claim =
        |attempt: Value| json!({ "namespace": "ietf", "key": "k/1", "request": { "a": 1 }, "attempt": attempt });
    let mut unnamed = claim(Value::Null);
    unnamed.as_object_mut().map(|fields| fields.remove("attempt"));
    expect(&node.post("/v1/claims", &unnamed).await?, 409, "attempt.mismatch")?;
    expect(&node.post("/v1/claims", &claim(json!(3))).await?, 409, "attempt.mismatch")?;
    let next = node.post("/v1/claims", &claim(json!(2))).await?;
    expect(&next, 201, "claimed")?;
    ensure!(next.text("operation_id") == quoted.text("operation_id") && next.text("execution_id") != execution);
    ensure!(next.text("effect_key") != quoted.text("effect_key"), "a new attempt keeps the effect key");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_is_resolved_with_proof_and_nothing_else() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let node = &cluster.callers()[2];
    let granted = node.claim(&Claim::of("resolve/1")).await?;
    let (execution, epoch) = (granted.text("execution_id"), granted.epoch());
    let resolve = format!("/v1/executions/{execution}/resolve");
    let proof =
        json!({ "lease_epoch": epoch, "outcome": "completed", "proof": "provider: ch_1", "external_id": "ch_1" });
    expect(&node.post(&resolve, &proof).await?, 409, "operation.executing")?;
    let unknown = node.report(execution, epoch, "unknown").await?;
    ensure!(unknown.text("state") == "unknown", "{unknown:?}");
    expect(&node.claim(&Claim::of("resolve/1")).await?, 409, "operation.outcome-unknown")?;
    let no_proof = node.post(&resolve, &json!({ "lease_epoch": epoch, "outcome": "completed" })).await?;
    expect(&no_proof, 400, "request.invalid")?;
    ensure!(no_proof.text("pointer") == "/proof", "{no_proof:?}");
    let stale = json!({ "lease_epoch": epoch - 1, "outcome": "completed", "proof": "p" });
    expect(&node.post(&resolve, &stale).await?, 409, "lease.stale-epoch")?;
    for _ in 0..2 {
        let resolved = node.post(&resolve, &proof).await?;
        ensure!(resolved.text("state") == "completed", "{resolved:?}");
    }
    let contradiction = json!({ "lease_epoch": epoch, "outcome": "failed", "proof": "another" });
    expect(&node.post(&resolve, &contradiction).await?, 409, "outcome.conflict")?;
    let read = node.operation(granted.text("operation_id")).await?;
    ensure!(read.text("state") == "completed" && read.body["quarantined"] == true, "{read:?}");
    expect(&node.claim(&Claim::of("resolve/1")).await?, 409, "operation.quarantined")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_is_told_before_anything_is_looked_up_and_another_tenant_sees_nothing() -> Result<()> {
    let (options, [reader, other, narrow]) = tokens();
    let cluster = Cluster::start(options).await?;
    let node = &cluster.callers()[0];
    let granted = completed(node, &Claim::of("secret/1")).await?;
    let operation = granted.text("operation_id").to_owned();
    let absent = format!("op_{}", "0".repeat(57));

    for token in ["", "nonsense", "hpx_aaaaaaaaaaaaaaaa_bbbb", "dev2"] {
        let refused = node.with_token(token).operation(&operation).await?;
        expect(&refused, 401, "auth.invalid")?;
        ensure!(refused.header("www-authenticate") == "Bearer");
    }
    let reading = node.with_token(&reader);
    ensure!(reading.operation(&operation).await?.status == 200);
    expect(&reading.claim(&Claim::of("secret/1")).await?, 403, "auth.forbidden")?;
    expect(&node.with_token(&narrow).claim(&Claim::of("secret/1")).await?, 403, "auth.forbidden")?;
    let lookup = json!({ "namespace": "default", "key": "secret/1" });
    ensure!(reading.post("/v1/operations/lookup", &lookup).await?.body["operations"][0]["operation_id"] == operation);

    for caller in [node.with_token(&other), node.with_token(&narrow)] {
        let theirs = caller.operation(&operation).await?;
        let none = caller.operation(&absent).await?;
        same(&theirs, &none)?;
        let execution = granted.text("execution_id");
        let nothing = format!("ex_{}", "0".repeat(35));
        for outcome in ["completed", "failed"] {
            let theirs = caller.report(execution, granted.epoch(), outcome).await?;
            same(&theirs, &caller.report(&nothing, granted.epoch(), outcome).await?)?;
        }
        let theirs = caller.renew(execution, granted.epoch(), 60_000).await?;
        same(&theirs, &caller.renew(&nothing, granted.epoch(), 60_000).await?)?;
        let evidence = json!({ "claim_id": Uuid::new_v4(), "outcome": "failed" });
        let theirs = caller.post(&format!("/v1/executions/{execution}/evidence"), &evidence).await?;
        same(&theirs, &caller.post(&format!("/v1/executions/{nothing}/evidence"), &evidence).await?)?;
    }
    // The other tenant's own key of the same name is another operation, in a namespace that it does not have.
    expect(&node.with_token(&other).claim(&Claim::of("secret/1")).await?, 404, "not-found")?;
    let read = node.operation(&operation).await?;
    ensure!(read.text("state") == "completed" && read.body["quarantined"] == false, "{read:?}");
    Ok(())
}

/// Equal in status, body, and every header but the date.
fn same(theirs: &Answer, none: &Answer) -> Result<()> {
    expect(theirs, 404, "not-found")?;
    let headers = |answer: &Answer| {
        let mut headers = answer.headers.clone();
        headers.remove("date");
        headers
    };
    ensure!(theirs.status == none.status && theirs.body == none.body, "{theirs:?} is not {none:?}");
    ensure!(headers(theirs) == headers(none), "{theirs:?} is not {none:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documents_and_probes_are_served() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let node = &cluster.callers()[0];
    let served = node.get("/v1/openapi.json").await?;
    let committed: Value = serde_json::from_str(include_str!("../../docs/openapi.json"))?;
    ensure!(served.body == committed, "the served document is not docs/openapi.json");
    let paths = committed["paths"].as_object().map(|paths| paths.keys().cloned().collect::<Vec<_>>());
    for path in paths.unwrap_or_default() {
        let asked = path.replace("{operation_id}", "x").replace("{execution_id}", "x").replace("{code}", "not-found");
        let wrong = node.send(Method::DELETE, &asked, &[], None).await?;
        expect(&wrong, 405, "request.method-not-allowed")?;
    }
    expect(&node.get("/v1/nothing").await?, 404, "not-found")?;
    ensure!(node.get("/livez").await?.body == json!({ "alive": true }));
    let ready = node.get("/readyz?verbose").await?;
    ensure!(ready.body["checks"].as_array().is_some_and(|checks| checks.len() == 4), "{ready:?}");
    let plain = node.send(Method::POST, "/v1/claims", &[("content-type", "text/plain")], None).await?;
    expect(&plain, 415, "request.unsupported-media-type")?;
    let granted = completed(node, &Claim::of("secret/1")).await?;
    let text = reqwest::get(&cluster.nodes[0].metrics_url).await?.text().await?;
    for name in [
        "hapax_claims_total{result=\"claimed\",from=\"quorum\"} 1",
        "hapax_http_request_duration_seconds",
        "hapax_log_fsync_duration_seconds",
        "hapax_has_leader 1",
        "hapax_disk_size_bytes{part=\"log\"}",
    ] {
        ensure!(text.contains(name), "no {name} in the metrics");
    }
    ensure!(!text.contains("secret/1") && !text.contains(granted.text("operation_id")), "a key or an id is a label");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_business_epoch_and_a_clients_own_scope_are_part_of_the_identity() -> Result<()> {
    let second = Token::mint([9; 10], [9; 32]);
    let hash: String = second.secret_hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let sections = format!(
        "[[bootstrap.namespaces]]\nname = \"own\"\nscope = \"client\"\n\
         [[auth.tokens]]\nid = \"{}\"\nsecret_sha256 = \"{hash}\"\ntenant = \"dev\"\nclient = \"second\"\n\
         roles = [\"claim\", \"read\"]\n",
        second.id()
    );
    let cluster = Cluster::start(Options { sections, ..Options::default() }).await?;
    let node = &cluster.callers()[0];
    let other = node.with_token(second.to_text());
    let claim = |namespace: &str, epoch: &str| json!({ "namespace": namespace, "key": "rent", "business_epoch": epoch, "request": {} });
    let july = node.post("/v1/claims", &claim("default", "2026-07")).await?;
    expect(&july, 201, "claimed")?;
    expect(&other.post("/v1/claims", &claim("default", "2026-07")).await?, 202, "in_progress")?;
    let august = node.post("/v1/claims", &claim("default", "2026-08")).await?;
    expect(&august, 201, "claimed")?;
    ensure!(july.text("operation_id") != august.text("operation_id"), "one operation for two periods");
    let lookup = json!({ "namespace": "default", "key": "rent", "business_epoch": "2026-08" });
    let found = node.post("/v1/operations/lookup", &lookup).await?;
    ensure!(found.body["operations"][0]["operation_id"] == august.body["operation_id"], "{found:?}");

    let mine = node.post("/v1/claims", &claim("own", "2026-07")).await?;
    let theirs = other.post("/v1/claims", &claim("own", "2026-07")).await?;
    expect(&mine, 201, "claimed")?;
    expect(&theirs, 201, "claimed")?;
    ensure!(mine.text("operation_id") != theirs.text("operation_id"), "two clients share a client's own key");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_sleep_through_renewals_and_hear_that_the_node_stops() -> Result<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let granted = nodes[0].claim(&Claim::of("wait/2")).await?;
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let waiter = nodes[2].clone();
            tokio::spawn(async move { waiter.claim(&Claim { wait_ms: 8_000, ..Claim::of("wait/2") }).await })
        })
        .collect();
    let written = async || cluster.nodes[0].metric("hapax_log_written_bytes_total").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = written().await?;
    for _ in 0..20 {
        let renewed = nodes[1].renew(granted.text("execution_id"), granted.epoch(), 60_000).await?;
        ensure!(renewed.status == 200, "{renewed:?}");
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // 20 renewals and some ticks; each waiter claiming again for each renewal would be 320 commands more.
    let bytes = written().await? - before;
    println!("{bytes} bytes written for 20 renewals");
    ensure!(bytes < 20_000.0, "{bytes} bytes were written for 20 renewals");
    let begun = Instant::now();
    cluster.nodes[2].stop().await?;
    ensure!(begun.elapsed() < Duration::from_secs(6), "waiters held the node up for {:?}", begun.elapsed());
    for waiter in waiting {
        expect(&waiter.await??, 202, "in_progress")?;
    }
    Ok(())
}
