//! The command line's verbs on a real cluster, as a decider, a worker, a reconciler, an operator and an administrator type them:
//! what is printed for scripts, and the exit codes.

use std::process::Command;

use anyhow::{Result, ensure};
use hapax_tests::cluster::{Cluster, Options, binary};
use hapax_tests::shell::{Shell, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_verbs_walk_through_a_payment_and_its_repair() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let urls: Vec<&str> = cluster.nodes.iter().map(|node| node.url.as_str()).collect();
    let shell = Shell::new(urls.join(","), "dev");
    payment(&shell)?;
    repair(&shell)?;
    administration(&shell)?;
    Ok(())
}

fn payment(shell: &Shell) -> Result<()> {
    let request = r#"{"amount":"120.00"}"#;
    let known = shell.done(&["register", "order-1", "--request", request, "--resource", "ORD-1"])?;
    let operation = text(&known, "operation_id")?;
    let far = "2099-01-01T00:00:00.000Z";
    let issued = shell.done(&["capability", "issue", operation, "--decision", "d1", "--expires-at", far])?;
    let capability = text(&issued, "capability_id")?;
    let claim = ["claim", "order-1", "--request", request, "--capability", capability];
    let granted = shell.done(&[&claim[..], &["--message", "worker/m1"]].concat())?;
    let (execution, epoch) = (text(&granted, "execution_id")?, granted["lease_epoch"].to_string());
    shell.refused(&[&claim[..], &["--message", "worker/m2"]].concat(), "capability.already-consumed")?;
    let again = shell.done(&[&claim[..], &["--message", "worker/m1"]].concat())?;
    ensure!(text(&again, "result")? == "duplicate_delivery", "{again}");
    shell.done(&["renew", execution, "--lease-epoch", &epoch])?;
    shell.done(&["report", execution, "completed", "--lease-epoch", &epoch, "--external-id", "pay_1"])?;
    let replayed = shell.done(&["claim", "order-1", "--request", request])?;
    ensure!(text(&replayed, "result")? == "replayed", "{replayed}");
    for by in [["--external-id", "pay_1"], ["--resource", "ORD-1"], ["--key", "order-1"]] {
        let found = shell.done(&[&["lookup"][..], &by].concat())?;
        ensure!(found["operations"][0]["operation_id"] == known["operation_id"], "{by:?}: {found}");
    }
    let record = shell.done(&["evidence", "list", "--capability", capability])?;
    ensure!(record["entries"][0]["code"] == "capability.already-consumed", "{record}");
    let spent = shell.done(&["capability", "get", capability])?;
    ensure!(text(&spent, "state")? == "consumed", "{spent}");
    shell.refused(&["capability", "revoke", capability], "capability.already-consumed")?;
    let bounded =
        ["capability", "issue-bounded", "ORD-1", "--decision", "d2", "--max-uses", "3", "--expires-at", far];
    let bounded = shell.done(&bounded)?;
    let revoked = shell.done(&["capability", "revoke", text(&bounded, "capability_id")?, "--reason", "fraud"])?;
    ensure!(text(&revoked, "state")? == "revoked", "{revoked}");
    Ok(())
}

fn repair(shell: &Shell) -> Result<()> {
    let claim = shell.done(&["claim", "order-2", "--request", "{}"])?;
    let (operation, execution) = (text(&claim, "operation_id")?, text(&claim, "execution_id")?);
    let epoch = claim["lease_epoch"].to_string();
    shell.done(&["operation", "fence", execution, "--lease-epoch", &epoch, "--reason", "host is gone"])?;
    shell.refused(&["report", execution, "completed", "--lease-epoch", &epoch], "lease.stale-epoch")?;
    let listed = shell.done(&["list", "unknown"])?;
    ensure!(listed["operations"][0]["operation_id"] == claim["operation_id"], "{listed}");
    let leased = shell.done(&["reconcile", "lease", "--owner", "r1"])?;
    let epoch = leased["items"][0]["lease_epoch"].to_string();
    let held = [execution, "--lease-epoch", &epoch];
    shell.done(&[&["reconcile", "escalate"][..], &held, &["--reason", "ask the bank"]].concat())?;
    shell.done(&[&["reconcile", "de-escalate"][..], &held, &["--reason", "they answered"]].concat())?;
    let resolved = [&["reconcile", "resolve"][..], &held, &["not_applied", "--proof", "statement of today"]].concat();
    ensure!(text(&shell.done(&resolved)?, "state")? == "not_applied", "resolved");
    let why = ["--expected-state", "not_applied", "--reason", "audit"];
    shell.done(&[&["operation", "quarantine", operation][..], &why].concat())?;
    shell.refused(&["claim", "order-2", "--request", "{}"], "operation.quarantined")?;
    shell.done(&[&["operation", "release", operation][..], &why].concat())?;
    let other = shell.done(&["register", "order-2b", "--request", "{}"])?;
    let by = text(&other, "operation_id")?;
    shell.done(&[&["operation", "supersede", operation, "--by", by][..], &why].concat())?;
    ensure!(
        text(&shell.done(&[&["operation", "close", operation][..], &why].concat())?, "state")? == "failed",
        "closed"
    );
    let record = shell.done(&["evidence", "list", "--operation", operation])?;
    ensure!(record["entries"].as_array().is_some_and(|entries| entries.len() >= 7), "{record}");
    let stands = shell.done(&["epoch", "get", "refunds"])?;
    ensure!(stands["value"] == 0, "{stands}");
    shell.done(&["epoch", "bump", "refunds", "--expected", "0"])?;
    shell.refused(&["epoch", "bump", "refunds", "--expected", "0"], "precondition.failed")?;
    let batch = r#"{"items":[{"kind":"claim","namespace":"default","key":"b1","request":{}}]}"#;
    ensure!(shell.done(&["batch", batch])?["results"][0]["status"] == 201, "the batch");
    Ok(())
}

fn administration(shell: &Shell) -> Result<()> {
    shell.done(&["namespace", "set", "pay", "--create", "--authority", "capability", "--open-operations", "10"])?;
    shell.refused(&["namespace", "set", "pay", "--create"], "precondition.failed")?;
    let changed = shell.done(&["namespace", "set", "pay", "--on-lapse", "takeover"])?;
    ensure!(
        changed["policy"]["authority"] == "capability" && changed["version"] == 2,
        "what was not given stays: {changed}"
    );
    ensure!(shell.done(&["namespace", "get", "pay"])?["policy"]["on_lapse"] == "takeover", "the policy");
    let listed = shell.done(&["namespace", "list"])?;
    ensure!(listed["namespaces"].as_array().is_some_and(|all| all.len() == 4), "{listed}");
    shell.done(&["tenant", "set", "other", "--create", "--requests-per-second", "5"])?;
    shell.done(&["tenant", "set", "other", "--disabled", "true"])?;
    ensure!(shell.done(&["tenant", "get", "other"])?["requests_per_second"] == 5, "what was not given stays");
    let token = shell.done(&["token", "create", "reader", "--roles", "read"])?;
    let id = text(&token, "token_id")?;
    let reader = Command::new(binary())
        .args(["list", "completed"])
        .env("HAPAX_URL", &shell.urls)
        .env("HAPAX_TOKEN", text(&token, "token")?)
        .output()?;
    ensure!(reader.status.success(), "the token reads: {reader:?}");
    ensure!(shell.done(&["token", "revoke", id])?["revoked_at"].is_string(), "revoked");
    let listed = shell.done(&["token", "list"])?;
    ensure!(listed["tokens"].as_array().is_some_and(|all| all.len() == 2), "{listed}");
    let usage = shell.output(&["list", "asleep"])?;
    ensure!(usage.status.code() == Some(2), "a wrong state is a usage error: {usage:?}");
    Ok(())
}
