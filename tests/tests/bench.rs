//! The load generator, held against what the nodes themselves counted: it invents no answer and misses none.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hapax_tests::cluster::{Cluster, Options, binary};
use serde_json::Value;

/// Runs `hapax bench` with these arguments for two seconds, and reads its report.
fn bench(cluster: &Cluster, folder: &Path, arguments: &[&str]) -> Result<Value> {
    let (json, page) = (folder.join("report.json"), folder.join("report.html"));
    let urls: Vec<&str> = cluster.nodes.iter().map(|node| node.url.as_str()).collect();
    let mut command = Command::new(binary());
    command.args(["bench", "--url", &urls.join(","), "--token", "dev", "--connections", "8", "--duration", "2"]);
    command.args(["--warm-up", "1", "--keys", "8", "--json"]).arg(&json).arg("--report").arg(&page);
    let output = command.args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    ensure!(std::fs::read_to_string(&page)?.contains("<svg"), "no picture on the page");
    let report: Value = serde_json::from_slice(&std::fs::read(&json)?)?;
    ensure!(report["unexpected"] == serde_json::json!([]), "{report:#}");
    Ok(report)
}

/// Answers of a kind in the whole run.
fn in_all(report: &Value, kind: &str) -> u64 {
    let answers = report["answers"].as_array().into_iter().flatten();
    answers.filter(|one| one["answer"] == kind).filter_map(|one| one["in_all"].as_u64()).sum()
}

/// What all nodes counted under a name and labels.
async fn counted(cluster: &Cluster, parts: &[&str]) -> Result<u64> {
    let mut sum = 0.0;
    for node in &cluster.nodes {
        let text = reqwest::get(&node.metrics_url).await?.text().await?;
        for line in text.lines().filter(|line| parts.iter().all(|part| line.contains(part))) {
            sum += line.rsplit(' ').next().context("a value")?.parse::<f64>()?;
        }
    }
    Ok(sum as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_says_is_what_the_nodes_counted() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let folder = tempfile::tempdir()?;
    let kinds: [(&[&str], &[&str]); 9] = [
        (&["--workload", "claim"], &["claimed"]),
        (&["--workload", "claim", "--batch", "16"], &["claimed"]),
        (&["--workload", "claim", "--rate", "200"], &["claimed"]),
        (&["--workload", "claim-report"], &["claimed", "completed"]),
        (&["--workload", "claim-report", "--batch", "16", "--result-size", "256"], &["claimed", "completed"]),
        (&["--workload", "replay"], &["replayed"]),
        (&["--workload", "hot-key"], &["claimed", "in_progress"]),
        (&["--workload", "capability"], &["registered", "issued", "claimed", "completed"]),
        (&["--workload", "mix"], &["claimed", "completed", "not_applied", "replayed"]),
    ];
    let (mut claimed, mut replayed, mut waited) = (0, 0, 0);
    for (arguments, expected) in kinds {
        let report = bench(&cluster, folder.path(), arguments)?;
        for kind in expected {
            ensure!(in_all(&report, kind) > 0, "{arguments:?}: nothing was {kind}: {report:#}");
        }
        ensure!(report["total"]["latencies"]["p50_us"].as_u64().is_some_and(|us| us > 0), "{report:#}");
        ensure!(
            report["sent_again"] == serde_json::json!([]),
            "a call was sent again, so that counts may differ: {report:#}"
        );
        claimed += in_all(&report, "claimed");
        replayed += in_all(&report, "replayed");
        waited += in_all(&report, "in_progress");
    }
    let report = bench(&cluster, folder.path(), &["--workload", "read"])?;
    ensure!(in_all(&report, "read") > 0, "{report:#}");
    // The keys that are replayed and read stand before the clock runs: eight for each.
    ensure!(counted(&cluster, &["hapax_claims_total", "\"claimed\""]).await? == claimed + 16);
    ensure!(counted(&cluster, &["hapax_claims_total", "\"replayed\""]).await? == replayed);
    ensure!(counted(&cluster, &["hapax_claims_total", "\"in_progress\""]).await? == waited);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_on_through_a_killed_leader_and_wrong_arguments_are_told() -> Result<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let leader = cluster.leader().await?;
    let urls: Vec<String> = cluster.nodes.iter().map(|node| node.url.clone()).collect();
    let running = tokio::process::Command::new(binary())
        .args(["bench", "--url", &urls.join(","), "--token", "dev", "--connections", "8", "--duration", "6"])
        .args(["--warm-up", "0", "--workload", "claim-report", "-o", "json"])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    hapax_tests::wait::until(async || {
        let claims = counted(&cluster, &["hapax_claims_total", "\"claimed\""]).await?;
        ensure!(claims > 100, "{claims} claims");
        Ok(())
    })
    .await?;
    cluster.nodes[leader].kill()?;
    let output = running.wait_with_output().await?;
    ensure!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["sent_again"].as_array().is_some_and(|list| !list.is_empty()), "nobody noticed: {report:#}");

    for wrong in [&["--batch", "2", "--workload", "read"][..], &["--connections", "0"], &["--url", "https://x"]] {
        let output = Command::new(binary()).arg("bench").args(wrong).output()?;
        ensure!(output.status.code() == Some(2), "{wrong:?}: {output:?}");
    }
    let mut command = Command::new(binary());
    command.args([
        "bench",
        "--url",
        &urls[(leader + 1) % 3],
        "--token",
        "nobody",
        "--duration",
        "1",
        "--warm-up",
        "0",
    ]);
    let output = command.args(["--connections", "1"]).output()?;
    ensure!(output.status.code() == Some(1) && String::from_utf8_lossy(&output.stdout).contains("401 auth.invalid"));
    Ok(())
}
