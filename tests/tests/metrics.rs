//! The series that the texts ask for, on a real cluster, each moved by what it counts; and that no label is a key, a digest, an id
//! or a tenant. (REQUIREMENTS 117–119, 121, 122, 124–128)

use anyhow::{Result, ensure};
use hapax_tests::caller::Claim;
use hapax_tests::cluster::{Cluster, Options};
use hapax_tests::wait::until;
use serde_json::json;

/// The series of all nodes, summed over those whose name and labels contain every one of `parts`.
async fn total(cluster: &Cluster, parts: &[&str]) -> Result<f64> {
    let mut sum = 0.0;
    for node in &cluster.nodes {
        let text = reqwest::get(&node.metrics_url).await?.text().await?;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap_or((line, "0"));
            if parts.iter().all(|part| series.contains(part)) {
                sum += value.parse::<f64>()?;
            }
        }
    }
    Ok(sum)
}

/// Waits until the series is at least `least`: a series is taken now and then.
async fn reaches(cluster: &Cluster, least: f64, parts: &[&str]) -> Result<()> {
    until(async || {
        let found = total(cluster, parts).await?;
        ensure!(found >= least, "{parts:?} is {found}, not {least}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_texts_ask_for_is_counted_and_nothing_secret_is_a_label() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let caller = cluster.callers().remove(0);
    let secret = "the-key-of-one-order";
    let claim = Claim::of(secret);
    let granted = caller.claim(&claim).await?.is(201, "claimed")?;
    let (execution, epoch) = (granted.text("execution_id").to_owned(), granted.epoch());
    caller.claim(&claim.again()).await?.is(202, "in_progress")?;
    caller.report(&execution, epoch, "not_applied").await?.in_state("not_applied")?;
    let second = caller.claim(&claim.again()).await?.is(201, "claimed")?;
    caller.report(&execution, epoch, "completed").await?.is(409, "lease.stale-epoch")?;
    caller.report(second.text("execution_id"), second.epoch(), "completed").await?.in_state("completed")?;
    caller.claim(&claim.again()).await?.is(200, "replayed")?;
    let other = Claim { request: json!({ "another": "amount" }), ..claim.again() };
    caller.claim(&other).await?.is(409, "key.digest-mismatch")?;
    let unknown = caller.claim(&Claim::of("ambiguous")).await?.is(201, "claimed")?;
    caller.report(unknown.text("execution_id"), unknown.epoch(), "unknown").await?.in_state("unknown")?;
    caller
        .with_token(format!("hpx_{}_{}", "0".repeat(20), "0".repeat(64)))
        .get("/v1/operations/op_1")
        .await?
        .is(401, "auth.invalid")?;
    caller.report("ex_absent", 1, "completed").await?.is(404, "not-found")?;
    let repair = json!({ "expected_state": "unknown", "reason": "metrics" });
    let path = format!("/v1/operations/{}/quarantine", unknown.text("operation_id"));
    caller.post(&path, &repair).await?.in_state("unknown")?;
    for (least, parts) in [
        (2.0, &["hapax_attempts_total", "first"][..]),
        (1.0, &["hapax_attempts_total", "later"]),
        (1.0, &["hapax_claims_total", "replayed"]),
        (1.0, &["hapax_refusals_total", "key.digest-mismatch"]),
        (1.0, &["hapax_refusals_total", "lease.stale-epoch"]),
        (1.0, &["hapax_outcomes_total", "completed"]),
        (1.0, &["hapax_outcomes_total", "not_applied"]),
        (1.0, &["hapax_calls_total", "quarantine", "done"]),
        (1.0, &["hapax_auth_rejections_total", "unknown"]),
        (1.0, &["hapax_auth_rejections_total", "absent"]),
        (1.0, &["hapax_executions_unknown", "default"]),
        (1.0, &["hapax_operations_open", "default"]),
        (1.0, &["hapax_disk_size_bytes", "state"]),
        (1.0, &["hapax_http_request_duration_seconds_count", "/v1/claims"]),
        (1.0, &["hapax_proposals_committed"]),
    ] {
        reaches(&cluster, least, parts).await?;
    }
    for node in &cluster.nodes {
        let text = reqwest::get(&node.metrics_url).await?.text().await?;
        for hidden in [secret, "sha256:", "op_", "ex_0", "cap_"] {
            ensure!(!text.contains(hidden), "{hidden} is in the metrics of node {}", node.id);
        }
        ensure!(!text.contains("tenant=\"dev\""), "a tenant is a label");
    }
    Ok(())
}
