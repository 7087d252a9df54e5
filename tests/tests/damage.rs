//! Damaged files: a node with one flipped bit or a truncated file in its log, its manifest or its side file does not
//! serve, and names the file; a flipped bit in a state block halts it when it is read. The other two go on, and nothing
//! that was acknowledged is lost. (FAULTS X, D)

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hapax_tests::caller::Claim;
use hapax_tests::cluster::{Cluster, Node, Options};
use hapax_tests::load::Load;

const CLAIMS: u64 = 2_000;
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A cluster with something in its files, and one node stopped the hard way.
async fn with_content(raft: &str) -> Result<(Cluster, usize)> {
    let mut cluster = Cluster::start(Options { raft: raft.to_owned(), ..Options::default() }).await?;
    let load = Load::start("damage", &cluster.callers(), 16);
    let begun = Instant::now();
    while load.count() < CLAIMS {
        ensure!(begun.elapsed() < Duration::from_secs(60), "the load is too slow");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    load.stop().await;
    let victim = (cluster.leader().await? + 1) % 3;
    cluster.nodes[victim].kill()?;
    Ok((cluster, victim))
}

/// The files under `directory` whose names satisfy `wanted`, the largest first.
fn files(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else if wanted(&entry.file_name().to_string_lossy()) {
                found.push((entry.metadata()?.len(), entry.path()));
            }
        }
    }
    found.sort();
    Ok(found.into_iter().rev().map(|(_, path)| path).collect())
}

fn flip(file: &Path, at: usize) -> Result<()> {
    let mut bytes = fs::read(file)?;
    *bytes.get_mut(at).with_context(|| format!("{} is too short", file.display()))? ^= 0x10;
    Ok(fs::write(file, bytes)?)
}

/// Starts the node on damaged files: it must end by itself, not with success, and name the file.
async fn refuses(node: &mut Node, file: &Path, what: &str) -> Result<()> {
    node.start()?;
    let status = node.ends(ENDS_WITHIN).await.with_context(|| format!("{what}: it serves"))?;
    ensure!(!status.success(), "{what}: it ended as if all were well");
    let name = file.file_name().and_then(|name| name.to_str()).context("a file name")?;
    let log = node.log_text();
    ensure!(log.contains(name), "{what}: {name} is not named:\n{log}");
    Ok(())
}

async fn the_others_go_on(cluster: &Cluster, victim: usize, key: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let answer = cluster.callers()[(victim + 1) % 3].claim(&Claim::of(key)).await?;
        if answer.verdict() == "claimed" {
            return Ok(());
        }
        ensure!(begun.elapsed() < Duration::from_secs(20), "the others do not go on: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_log_is_refused_and_the_file_is_named() -> Result<()> {
    let (mut cluster, victim) = with_content("").await?;
    let log = cluster.nodes[victim].data.join("log");
    let wal = files(&log, |name| name.ends_with(".log"))?.into_iter().next().context("a write-ahead log")?;
    let manifest = files(&log, |name| name.starts_with("MANIFEST"))?.into_iter().next().context("a manifest")?;
    let side = files(&log, |name| name.contains("side"))?.into_iter().next().context("a side file")?;
    let sound: Vec<(PathBuf, Vec<u8>)> = [&wal, &manifest, &side]
        .into_iter()
        .map(|file| Ok((file.clone(), fs::read(file)?)))
        .collect::<Result<_>>()?;
    for (file, bytes) in &sound {
        for (what, damaged) in damages(bytes) {
            fs::write(file, damaged)?;
            let what = format!("{} {what}", file.display());
            refuses(&mut cluster.nodes[victim], file, &what).await?;
            // What the attempt itself may have touched is put back as it was.
            for (file, bytes) in &sound {
                fs::write(file, bytes)?;
            }
        }
    }
    the_others_go_on(&cluster, victim, "damage/log").await?;
    cluster.nodes[victim].start()?;
    cluster.nodes[victim].ready().await?;
    Ok(())
}

/// A flipped bit early, in the middle and late, and the file cut in half.
fn damages(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(bytes.len(), |last| last + 1);
    let mut all: Vec<(String, Vec<u8>)> = [used / 5, used / 2]
        .into_iter()
        .map(|at| {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x10;
            (format!("with a flipped bit in byte {at}"), damaged)
        })
        .collect();
    all.push((format!("cut to {} bytes", used / 2), bytes[..used / 2].to_vec()));
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_in_a_state_block_halts_the_node_when_it_is_read() -> Result<()> {
    let (mut cluster, victim) = with_content("flush_interval_ms = 500").await?;
    // Started and stopped once more, so that all it holds is in tables and not replayed from the log.
    cluster.nodes[victim].start()?;
    cluster.nodes[victim].ready().await?;
    cluster.nodes[victim].stop().await?;
    let state = cluster.nodes[victim].data.join("state");
    let tables = files(&state, |name| name.ends_with(".sst"))?;
    ensure!(!tables.is_empty(), "no table was written");
    for table in &tables {
        let length = usize::try_from(fs::metadata(table)?.len())?;
        flip(table, length / 4)?;
    }
    let node = &mut cluster.nodes[victim];
    node.start()?;
    let status = node.ends(ENDS_WITHIN).await.context("it serves from damaged tables")?;
    ensure!(!status.success(), "it ended as if all were well");
    let log = node.log_text();
    ensure!(log.contains(".sst"), "no table is named:\n{log}");
    the_others_go_on(&cluster, victim, "damage/state").await
}
