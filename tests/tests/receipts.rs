//! What a receipt is: the words of then, digit for digit, whoever asks and however much later; and what it is not. And identifiers
//! that share one text on purpose, each of which still means only its own. (REQUIREMENTS 1, 3, 69, 71–74, 111, 138; 001 §6, 002)

use anyhow::{Result, ensure};
use hapax_tests::admin::millis;
use hapax_tests::caller::{Answer, Caller, Claim};
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::wait::until;
use serde_json::{Value, json};

/// Reports with a body of the test's own.
async fn report(node: &Caller, granted: &Answer, body: Value) -> Result<Answer> {
    let mut body = body;
    body["lease_epoch"] = json!(granted.epoch());
    node.post(&format!("/v1/executions/{}/outcome", granted.text("execution_id")), &body).await
}

/// The outcome as the answer's bytes have it: parsing would hide how a number was written.
fn outcome_text(answer: &Answer) -> Result<String> {
    let text = String::from_utf8(answer.bytes.to_vec())?;
    let from = text.find("\"outcome\":{").ok_or_else(|| anyhow::anyhow!("no outcome in {text}"))?;
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, letter) in text[from..].char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return Ok(text[from..=from + at].to_owned());
                }
            }
            _ => {}
        }
    }
    anyhow::bail!("the outcome does not end in {text}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_is_the_words_of_then_whatever_came_later() -> Result<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    // Results that a careless store would write otherwise: order, white space, escapes, large and odd numbers.
    let results = [
        r#"{"balance":10,"z":1,"a":{"b":[1,2,{}]},"text":"\u00e9 \"quoted\" } {"}"#,
        r#"{"balance":12345678901234567890,"rate":1.10,"tiny":1e-7,"none":null}"#,
        r#"[]"#,
        r#""opaque+base64/==""#,
    ];
    let mut first = Vec::new();
    for (number, result) in results.iter().enumerate() {
        let claim = Claim::of(format!("receipt/{number}"));
        let granted = nodes[number % 3].claim(&claim).await?.is(201, "claimed")?;
        let body = format!(
            "{{\"lease_epoch\":{},\"outcome\":\"completed\",\"status_code\":201,\"schema_version\":\"payment/{number}\",\
             \"result\":{result},\"external_id\":\"ch_{number}\"}}",
            granted.epoch()
        );
        let path = format!("/v1/executions/{}/outcome", granted.text("execution_id"));
        nodes[0].send(reqwest::Method::POST, &path, &[], Some(&body)).await?.in_state("completed")?;
        let replay = nodes[1].claim(&claim.again()).await?.is(200, "replayed")?;
        let outcome = outcome_text(&replay)?;
        ensure!(outcome.contains(result), "{result} became {outcome}");
        for kept in ["\"status_code\":201".to_owned(), format!("payment/{number}"), format!("ch_{number}")] {
            ensure!(outcome.contains(&kept), "no {kept} in {outcome}");
        }
        first.push((claim, outcome));
    }
    // Later grants, of which one changes what the first receipt tells about; then the leader dies.
    for number in 0..200 {
        let granted = nodes[number % 3].claim(&Claim::of(format!("later/{number}"))).await?.is(201, "claimed")?;
        report(&nodes[number % 3], &granted, json!({ "outcome": "completed", "result": { "balance": number } }))
            .await?
            .in_state("completed")?;
    }
    let leader = cluster.leader().await?;
    cluster.nodes[leader].kill()?;
    cluster.nodes[leader].start()?;
    cluster.nodes[leader].ready().await?;
    for (claim, outcome) in &first {
        for node in &nodes {
            let replay = until(async || node.claim(&claim.again()).await?.is(200, "replayed")).await?;
            ensure!(outcome_text(&replay)? == *outcome, "{} became {}", outcome, outcome_text(&replay)?);
            ensure!(replay.header("idempotency-replayed") == "true", "{replay:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_is_stored_as_what_it_was_and_the_status_resource_tells_when() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let claim = Claim::of("rejected/1");
    let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
    let operation = granted.text("operation_id");
    let executing = nodes[1].operation(operation).await?.is(200, "")?;
    ensure!(executing.body["retain_until"].is_null() && executing.body["outcome"].is_null(), "{executing:?}");
    let created = millis(executing.text("created_at"));

    // A rejection of the domain, with the version of its rules: the caller's own answer was a 422.
    let rejection = json!({ "outcome": "failed", "status_code": 422, "schema_version": "rules/7",
        "result": { "code": "card.stolen" }, "reason": "declined for good" });
    report(&nodes[1], &granted, rejection).await?.in_state("failed")?;
    for node in &nodes {
        let replay = node.claim(&claim.again()).await?.is(200, "replayed")?;
        let outcome = &replay.body["outcome"];
        ensure!(outcome["outcome"] == "failed" && outcome["status_code"] == 422, "{replay:?}");
        ensure!(outcome["schema_version"] == "rules/7" && outcome["result"]["code"] == "card.stolen", "{replay:?}");
    }
    // Nobody's answer is stored as a rejection that was not one: what is refused before an election leaves the key alone.
    let wrong = Claim::of("rejected/2").with("lease_ms", 1);
    nodes[0].claim(&wrong).await?.is(400, "request.invalid")?;
    nodes[0].with_token("nobody").claim(&Claim::of("rejected/2")).await?.is(401, "auth.invalid")?;
    nodes[2].claim(&Claim::of("rejected/2")).await?.is(201, "claimed")?;

    let failed = nodes[2].operation(operation).await?.is(200, "")?.in_state("failed")?;
    let (same, updated) = (millis(failed.text("created_at")), millis(failed.text("updated_at")));
    let (completed, kept) =
        (millis(failed.body["outcome"]["completed_at"].as_str().unwrap_or("")), failed.text("retain_until"));
    ensure!(same == created && updated >= created && completed == updated, "{failed:?}");
    ensure!(failed.body["outcome"]["reason"] == "declined for good", "{failed:?}");
    // The default policy keeps it for thirty days from then on, at least.
    ensure!(millis(kept) >= completed + 30 * 86_400_000, "{failed:?}");

    // A receipt is not the state of the account: what is said about the operation later is another read.
    nodes[0].repair(operation, "quarantine", "failed").await?.in_state("failed")?;
    ensure!(nodes[1].operation(operation).await?.body["quarantined"] == true);
    nodes[0].repair(operation, "release", "failed").await?.in_state("failed")?;
    let replay = until(async || nodes[1].claim(&claim.again()).await?.is(200, "replayed")).await?;
    ensure!(replay.body["outcome"] == failed.body["outcome"], "{replay:?} is not {failed:?}");
    Ok(())
}

/// What a caller's API answers, in its first version: a sentence. It is stored under the version that it was written in.
fn first_version(paid_cents: u64) -> (Value, &'static str) {
    (json!({ "text": format!("{}.{:02} EUR", paid_cents / 100, paid_cents % 100) }), "payment/1")
}

/// The second version has fields.
fn second_version(paid_cents: u64) -> (Value, &'static str) {
    (json!({ "cents": paid_cents, "currency": "EUR" }), "payment/2")
}

/// What the second version makes of a receipt, whichever version wrote it.
fn told_by_the_second(outcome: &Value) -> Result<Value> {
    let result = &outcome["result"];
    match outcome["schema_version"].as_str() {
        Some("payment/2") => Ok(result.clone()),
        Some("payment/1") => {
            let text = result["text"].as_str().unwrap_or_default();
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            Ok(second_version(digits.parse()?).0)
        }
        other => anyhow::bail!("nobody wrote {other:?}"),
    }
}

/// A receipt that an older version of the caller's API wrote is read by the newer one after everything was restarted, and told in its
/// own words: its meaning was kept apart from the answer that carried it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_receipt_is_told_in_the_words_of_a_newer_version() -> Result<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let mut claims = Vec::new();
    for (cents, version) in [(12_050, first_version as fn(u64) -> (Value, &'static str)), (900, second_version)] {
        let claim = Claim::of(format!("versions/{cents}"));
        let granted = nodes[0].claim(&claim).await?.is(201, "claimed")?;
        let (result, schema) = version(cents);
        let body = json!({ "outcome": "completed", "status_code": 201, "schema_version": schema, "result": result });
        report(&nodes[1], &granted, body).await?.in_state("completed")?;
        claims.push((claim, cents));
    }
    for node in &mut cluster.nodes {
        node.stop().await?;
    }
    for node in &mut cluster.nodes {
        node.start()?;
    }
    cluster.ready().await?;
    for (claim, cents) in &claims {
        for node in &nodes {
            let replay = node.claim(&claim.again()).await?.is(200, "replayed")?;
            let outcome = &replay.body["outcome"];
            ensure!(outcome["status_code"] == 201, "{replay:?}");
            // As if it had happened under the second version: nothing of the first one's answer shows.
            ensure!(told_by_the_second(outcome)? == second_version(*cents).0, "{replay:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_text_in_every_field_still_has_a_meaning_in_each() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let nodes = cluster.callers();
    let text = "X-1";
    let claim =
        Claim { owner: text.to_owned(), ..Claim::of(text) }.with("correlation_id", text).with("resource", text);
    let (operation, capability) = nodes[0].approve(&claim, text).await?;
    let presented = claim.clone().presenting(&capability).because_of(text);
    let granted = nodes[1].claim(&presented).await?.is(201, "claimed")?;
    // Made by Hapax, and therefore never the caller's text, nor one another's.
    let effect_key = granted.text("effect_key").to_owned();
    let made = [operation.as_str(), capability.as_str(), granted.text("execution_id"), effect_key.as_str()];
    for (at, one) in made.iter().enumerate() {
        ensure!(*one != text && !made[at + 1..].contains(one), "{made:?}");
    }
    // The message is a delivery: again it is a duplicate, and for another operation it is a mismatch.
    nodes[2].claim(&presented.again()).await?.is(200, "duplicate_delivery")?;
    nodes[2].claim(&Claim::of("X-2").because_of(text)).await?.is(409, "delivery.mismatch")?;
    // The capability is authority: another delivery of it is spent.
    nodes[0]
        .claim(&claim.again().presenting(&capability).because_of("X-3"))
        .await?
        .is(409, "capability.already-consumed")?;
    // The key is the operation: another correlation, owner and resource name the same one.
    nodes[1].claim(&Claim { owner: "other".to_owned(), ..Claim::of(text) }).await?.is(202, "in_progress")?;
    // The correlation is the story, the resource the entity: another operation of both is another operation.
    let second = Claim::of("X-4").with("correlation_id", text).with("resource", text);
    let second = nodes[1].claim(&second).await?.is(201, "claimed")?;
    ensure!(second.text("operation_id") != operation && second.text("effect_key") != effect_key, "{second:?}");
    // The decision is what one attempt was allowed by: the same again is the same capability, for another operation another.
    let terms = json!({ "expires_at": nodes[2].capability(&capability).await?.text("expires_at") });
    let again = nodes[2].issue(&operation, text, 1, terms).await?.is(200, "")?;
    ensure!(again.text("capability_id") == capability, "{again:?}");
    let (_, other) = nodes[0].approve(&Claim::of("X-5"), text).await?;
    ensure!(other != capability, "one decision id made one capability for two operations");
    // No id opens what another kind of id names.
    for id in [text, operation.as_str(), granted.text("execution_id"), effect_key.as_str()] {
        nodes[0].capability(id).await?.is(404, "not-found")?;
    }
    for id in [text, capability.as_str(), effect_key.as_str()] {
        nodes[0].operation(id).await?.is(404, "not-found")?;
        nodes[0].renew(id, granted.epoch(), 60_000).await?.is(404, "not-found")?;
    }
    let found = nodes[1].post("/v1/operations/lookup", &json!({ "namespace": "default", "resource": text })).await?;
    ensure!(found.body["operations"].as_array().is_some_and(|all| all.len() == 2), "{found:?}");
    Ok(())
}
