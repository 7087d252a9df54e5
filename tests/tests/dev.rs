//! `hapax dev` and the verbs, as a user meets them: a table, ready-made lines that work, a node that may be killed,
//! Ctrl-C that stops all, and a data directory that keeps everything. (README; REQUIREMENTS 68, 69)

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hapax_tests::cluster::binary;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const READY_WITHIN: Duration = Duration::from_secs(90);

/// A running `hapax dev` and the lines it prints.
struct Dev {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Dev {
    fn start(directory: &Path, port: u16) -> Result<Self> {
        let mut child = Command::new(binary())
            .args(["dev", "--port", &port.to_string(), "--data-dir"])
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().context("a pipe")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines, seen: Vec::new() })
    }

    /// Waits for a line with `text` in it.
    fn line(&mut self, text: &str) -> Result<String> {
        let begun = Instant::now();
        loop {
            let left = READY_WITHIN.saturating_sub(begun.elapsed());
            let line = self.lines.recv_timeout(left).with_context(|| format!("no {text:?} in {:#?}", self.seen))?;
            self.seen.push(line.clone());
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }

    /// The process ids of the table.
    fn pids(&self) -> Vec<i32> {
        let rows = self.seen.iter().filter(|line| line.contains("http://127.0.0.1:") && line.contains("-"));
        rows.filter_map(|line| line.split_whitespace().last()?.parse().ok()).collect()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hapax(port: u16, arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(binary())
        .args(arguments)
        .env("HAPAX_URL", format!("http://127.0.0.1:{port}"))
        .env("HAPAX_TOKEN", "dev")
        .output()?)
}

fn json(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}

fn alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

/// A base port whose neighbours are free too.
fn base_port() -> Result<u16> {
    for base in (20_000..32_000).step_by(50) {
        let free = |offset: u16| TcpListener::bind(("127.0.0.1", base + offset)).is_ok();
        if [1, 2, 3, 11, 12, 13, 21, 22, 23].into_iter().all(free) {
            return Ok(base);
        }
    }
    anyhow::bail!("no free ports")
}

#[test]
fn a_local_cluster_lives_through_a_kill_and_a_restart() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let port = base_port()?;
    let mut dev = Dev::start(directory.path(), port)?;
    let kill_line = dev.line("kill -9 ")?;
    let pids = dev.pids();
    ensure!(pids.len() == 3, "three nodes in {:#?}", dev.seen);
    for region in ["eu-west", "us-east", "ap-south"] {
        ensure!(dev.seen.iter().any(|line| line.contains(region)), "{region} in {:#?}", dev.seen);
    }

    let request = r#"{"amount":"120.00","currency":"EUR"}"#;
    let claim = ["-o", "json", "order-82/payment-1", "--request", request];
    let claimed = hapax(port + 1, &[&["claim"], &claim[..]].concat())?;
    ensure!(claimed.status.code() == Some(0), "{claimed:?}");
    let claimed = json(&claimed)?;
    ensure!(claimed["result"] == "claimed", "{claimed}");
    let again = hapax(port + 3, &[&["claim"], &claim[..]].concat())?;
    ensure!(again.status.code() == Some(1), "in progress is no success: {again:?}");
    ensure!(String::from_utf8_lossy(&again.stderr).contains("operation.executing"), "{again:?}");

    // The line that is printed for this works.
    let victim: i32 = kill_line.split_whitespace().nth(2).context("a pid")?.parse()?;
    ensure!(pids.contains(&victim), "{victim} is none of {pids:?}");
    kill(Pid::from_raw(victim), Signal::SIGKILL)?;
    let told = dev.line("stays down")?;
    ensure!(told.contains("signal 9"), "{told}");
    dev.line("serve --dev-token --config")?;

    let execution = claimed["execution_id"].as_str().context("an execution")?;
    let epoch = claimed["lease_epoch"].to_string();
    let renewed = hapax(port + 1, &["renew", execution, "--lease-epoch", &epoch, "--lease-ms", "30000"])?;
    ensure!(renewed.status.code() == Some(0), "{renewed:?}");
    let report = ["report", execution, "completed", "--lease-epoch", &epoch, "--result", r#"{"paid":true}"#];
    let reported = hapax(port + 3, &report)?;
    ensure!(reported.status.code() == Some(0), "{reported:?}");
    let stale = hapax(port + 3, &["report", execution, "failed", "--lease-epoch", "1"])?;
    ensure!(stale.status.code() == Some(1), "{stale:?}");
    ensure!(String::from_utf8_lossy(&stale.stderr).contains("lease.stale-epoch"), "{stale:?}");

    dev.signal(Signal::SIGINT)?;
    let status = dev.child.wait()?;
    ensure!(status.success(), "Ctrl-C ended it with {status}");
    while let Ok(line) = dev.lines.recv_timeout(Duration::from_secs(1)) {
        ensure!(!line.contains("is killed"), "{line}");
    }
    ensure!(pids.iter().all(|pid| !alive(*pid)), "a node outlived its cluster");

    let mut dev = Dev::start(directory.path(), port)?;
    dev.line("kill -9 ")?;
    let replayed = hapax(port + 2, &[&["claim"], &claim[..]].concat())?;
    ensure!(replayed.status.code() == Some(0), "{replayed:?}");
    let replayed = json(&replayed)?;
    ensure!(replayed["result"] == "replayed" && replayed["outcome"]["result"]["paid"] == true, "{replayed}");
    ensure!(replayed["execution_id"] == execution, "{replayed}");
    let id = replayed["operation_id"].as_str().context("an operation")?;
    let read = json(&hapax(port + 1, &["get", "-o", "json", id])?)?;
    ensure!(read["state"] == "completed", "{read}");
    let by_key = json(&hapax(port + 1, &["get", "-o", "json", "--key", "order-82/payment-1"])?)?;
    ensure!(by_key["operation_id"] == id, "{by_key}");
    let members = json(&hapax(port + 1, &["cluster", "status", "-o", "json"])?)?;
    ensure!(members["members"].as_array().is_some_and(|members| members.len() == 3), "{members}");

    // Whoever starts it may die without a word; the nodes do not stay behind.
    let pids = dev.pids();
    dev.signal(Signal::SIGKILL)?;
    dev.child.wait()?;
    let begun = Instant::now();
    while pids.iter().any(|pid| alive(*pid)) {
        ensure!(begun.elapsed() < Duration::from_secs(40), "nodes stay behind");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn exit_codes_tell_what_a_script_may_conclude() -> Result<()> {
    let nobody = base_port()?;
    let unavailable = hapax(nobody, &["health"])?;
    ensure!(unavailable.status.code() == Some(3), "{unavailable:?}");
    let usage = hapax(nobody, &["claim", "a key with spaces", "--request", "{}"])?;
    ensure!(usage.status.code() == Some(2), "{usage:?}");
    let usage = hapax(nobody, &["claim"])?;
    ensure!(usage.status.code() == Some(2), "{usage:?}");
    for shell in ["bash", "zsh", "fish"] {
        let completions = hapax(nobody, &["completions", shell])?;
        ensure!(completions.status.success() && !completions.stdout.is_empty(), "{shell}: {completions:?}");
    }
    Ok(())
}
