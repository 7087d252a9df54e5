//! An acknowledged claim was synced on two nodes before its reply left, as the kernel saw it: the write that carries the
//! claim into a node's write-ahead log, the sync of that file after it, and only then the reply. (DESIGN §8; FAULTS D)

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hapax_tests::caller::Claim;
use hapax_tests::cluster::{Cluster, Options};
use uuid::Uuid;

/// A finished system call.
#[derive(Debug)]
struct Call {
    begun: f64,
    ended: f64,
    /// Name and arguments, file descriptors with their paths.
    text: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_synced_on_two_nodes_before_its_reply() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let traces = directory.path().display().to_string();
    let under = format!(
        "strace -f -ttt -T -y -s 65536 -e trace=write,writev,pwrite64,pwritev,sendto,sendmsg,fsync,fdatasync \
         -o {traces}/trace-{{id}}"
    );
    let under = under.split_whitespace().map(str::to_owned).collect();
    // Elections of a traced, slow process are not what this is about.
    let raft = "profile = \"wan\"".to_owned();
    let mut cluster = Cluster::start(Options { under, raft, ..Options::default() }).await?;
    let asked = cluster.leader().await?;
    let owner = format!("traced-{}", Uuid::new_v4());
    let claim = Claim { owner: owner.clone(), ..Claim::of("traced/1") };
    let answer = cluster.callers()[asked].claim(&claim).await?;
    ensure!(answer.verdict() == "claimed", "{answer:?}");
    let execution = answer.text("execution_id").to_owned();

    let replied =
        reply_time(&directory.path().join(format!("trace-{}", cluster.nodes[asked].id)), &execution).await?;
    let mut synced = Vec::new();
    for node in &cluster.nodes {
        let calls = calls(&directory.path().join(format!("trace-{}", node.id)))?;
        if let Some(at) = sync_time(&calls, &owner) {
            println!("node {}: synced {:.3} ms before the reply", node.id, (replied - at) * 1_000.0);
            synced.push(at);
        }
    }
    let before = synced.iter().filter(|at| **at < replied).count();
    ensure!(before >= 2, "synced on {before} nodes before the reply: {synced:?}, replied {replied}");
    for node in &mut cluster.nodes {
        node.kill()?;
    }
    Ok(())
}

/// When the reply that names `execution` began to leave; the trace's file may lag behind the process.
async fn reply_time(trace: &Path, execution: &str) -> Result<f64> {
    let begun = Instant::now();
    loop {
        let sent =
            calls(trace)?.into_iter().find(|call| call.text.contains(execution) && call.text.contains("201 Created"));
        if let Some(call) = sent {
            return Ok(call.begun);
        }
        ensure!(begun.elapsed() < Duration::from_secs(10), "the reply is not in the trace");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// When the write-ahead log that `owner` was written to was first synced after that.
fn sync_time(calls: &[Call], owner: &str) -> Option<f64> {
    let written = calls.iter().find(|call| call.text.contains(owner) && wal_of(&call.text).is_some())?;
    let wal = wal_of(&written.text)?;
    let synced = |call: &&Call| {
        (call.text.starts_with("fsync(") || call.text.starts_with("fdatasync("))
            && call.begun >= written.ended
            && wal_of(&call.text) == Some(wal)
    };
    calls.iter().filter(synced).map(|call| call.ended).min_by(f64::total_cmp)
}

/// The path of the log's write-ahead file that a call is about: `write(12</…/data/log/000012.log>, …`.
fn wal_of(text: &str) -> Option<&str> {
    let path = text.split_once('<')?.1.split_once('>')?.0;
    (path.contains("/data/log/") && path.ends_with(".log")).then_some(path)
}

/// The finished calls of a trace; one that another thread interrupted is put together again.
fn calls(trace: &Path) -> Result<Vec<Call>> {
    let text = String::from_utf8_lossy(&fs::read(trace)?).into_owned();
    let mut begun: HashMap<&str, (f64, &str)> = HashMap::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let (thread, rest) = line.split_once(' ').context("no thread id")?;
        let (at, call) = rest.trim_start().split_once(' ').context("no time")?;
        let at: f64 = at.parse()?;
        if let Some(start) = call.strip_suffix("<unfinished ...>") {
            begun.insert(thread, (at, start));
        } else if call.starts_with("<...") {
            if let Some((start, text)) = begun.remove(thread) {
                calls.push(Call { begun: start, ended: at, text: text.to_owned() });
            }
        } else if let Some(took) = lasted(call) {
            calls.push(Call { begun: at, ended: at + took, text: call.to_owned() });
        }
    }
    Ok(calls)
}

/// What `-T` says of a finished call, in seconds.
fn lasted(call: &str) -> Option<f64> {
    call.rsplit_once('<')?.1.strip_suffix('>')?.parse().ok()
}
