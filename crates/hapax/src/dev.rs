//! `hapax dev`: real `serve` processes on loopback, each in a region of its own, until Ctrl-C.
//! A node that is killed stays down and its restart line is printed: seeing that is what this verb is for.

use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::exit::Failure;
use crate::output;

/// Regions of the first nodes; more nodes get numbered ones.
const REGIONS: [&str; 3] = ["eu-west", "us-east", "ap-south"];
/// Offset of the peer ports from the base port.
const PEER_OFFSET: u16 = 10;
/// Offset of the metrics ports from the base port.
const METRICS_OFFSET: u16 = 20;
/// Most nodes: their ports must not meet.
const NODES_MAX: u16 = 9;
/// How long the cluster may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long the nodes may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(40);
/// Pause between looks at the children.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) port: u16,
    pub(crate) nodes: u16,
}

struct Node {
    id: u16,
    region: String,
    client_port: u16,
    config: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

/// Runs the cluster.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.nodes == 0 || options.nodes > NODES_MAX || options.nodes.is_multiple_of(2) {
        return Err(Failure::Usage(format!("--nodes must be odd and at most {NODES_MAX}")).into());
    }
    if options.port.checked_add(METRICS_OFFSET + NODES_MAX).is_none() {
        return Err(Failure::Usage("--port is too high".to_owned()).into());
    }
    let directory = match &options.data_dir {
        Some(directory) => directory.clone(),
        None => std::env::temp_dir().join(format!("hapax-dev-{}", std::process::id())),
    };
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let directory = fs::canonicalize(&directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(cluster(options, &directory))
}

async fn cluster(options: &Options, directory: &Path) -> anyhow::Result<()> {
    let mut nodes = prepare(options, directory)?;
    for node in &mut nodes {
        node.start()?;
    }
    let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let ready = tokio::select! {
        ready = until_ready(&mut nodes) => ready,
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted before the cluster was ready")),
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated before the cluster was ready")),
    };
    if let Err(error) = ready {
        stop(&mut nodes).await;
        return Err(error);
    }
    describe(&nodes, directory);
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            () = tokio::time::sleep(LOOK_EVERY) => report_deaths(&mut nodes)?,
        }
    }
    output::line("\nStopping all nodes.");
    stop(&mut nodes).await;
    output::line(&format!("Stopped. The data stays in {}", directory.display()));
    Ok(())
}

fn prepare(options: &Options, directory: &Path) -> anyhow::Result<Vec<Node>> {
    let region =
        |id: u16| REGIONS.get(usize::from(id) - 1).map_or_else(|| format!("region-{id}"), |name| (*name).to_owned());
    // The nodes share this machine's processors.
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (processors / usize::from(options.nodes)).max(1);
    let peers: Vec<String> = (1..=options.nodes)
        .map(|id| {
            let (peer, client) = (options.port + PEER_OFFSET + id, options.port + id);
            format!("\"{id}=127.0.0.1:{peer}@{}@http://127.0.0.1:{client}\"", region(id))
        })
        .collect();
    let mut nodes = Vec::new();
    for id in 1..=options.nodes {
        let home = directory.join(format!("node-{id}"));
        fs::create_dir_all(&home)?;
        let config = home.join("hapax.toml");
        fs::write(&config, toml(options.port, id, &region(id), &home.join("data"), threads, &peers)?)?;
        let log = home.join("hapax.log");
        nodes.push(Node { id, region: region(id), client_port: options.port + id, config, log, child: None });
    }
    Ok(nodes)
}

fn toml(port: u16, id: u16, region: &str, data: &Path, threads: usize, peers: &[String]) -> anyhow::Result<String> {
    let data = data.to_str().context("the data directory's name is not UTF-8")?;
    let data = toml::Value::String(data.to_owned());
    Ok(format!(
        r#"# Written by `hapax dev`.
[node]
id = {id}
region = "{region}"
data_dir = {data}
worker_threads = {threads}

[listen]
client = "127.0.0.1:{client}"
peer = "127.0.0.1:{peer}"
metrics = "127.0.0.1:{metrics}"

[cluster]
name = "dev"
peers = [{peers}]
bootstrap = {bootstrap}

[bootstrap]
tenant = "dev"

[[bootstrap.namespaces]]
name = "default"
on_lapse = "unknown"

[[bootstrap.namespaces]]
name = "takeover"
on_lapse = "takeover"
"#,
        client = port + id,
        peer = port + PEER_OFFSET + id,
        metrics = port + METRICS_OFFSET + id,
        peers = peers.join(", "),
        bootstrap = id == 1,
    ))
}

impl Node {
    fn start(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", "--dev-token", "--until-stdin-closes", "--config"])
            .arg(&self.config)
            // The pipe closes with this process, however it ends, and then the node stops too.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is for this process, which then stops the nodes in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start node {}", self.id))?;
        self.child = Some(child);
        Ok(())
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.client_port)
    }

    /// How the node ended, if it did since the last look.
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = match &mut self.child {
            Some(child) => child.try_wait()?,
            None => None,
        };
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok());
        if let Some(pid) = pid {
            // It may have ended by itself meanwhile.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

async fn until_ready(nodes: &mut [Node]) -> anyhow::Result<()> {
    let begun = Instant::now();
    let client = crate::calls::Probe::new()?;
    loop {
        let mut ready = 0;
        for node in nodes.iter_mut() {
            if let Some(status) = node.ended()? {
                bail!("node {} did not start ({status}); see {}", node.id, node.log.display());
            }
            ready += usize::from(client.ready(&node.url()).await);
        }
        if ready == nodes.len() {
            return Ok(());
        }
        if begun.elapsed() > READY_WITHIN {
            bail!("the cluster is not ready after {READY_WITHIN:?}; see {}", nodes[0].log.display());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn describe(nodes: &[Node], directory: &Path) {
    let rows: Vec<[String; 4]> = nodes
        .iter()
        .map(|node| {
            let pid = node.child.as_ref().map_or_else(String::new, |child| child.id().to_string());
            [node.id.to_string(), node.region.clone(), node.url(), pid]
        })
        .collect();
    output::table(["NODE", "REGION", "URL", "PID"], &rows);
    let (first, last) = (&nodes[0], &nodes[nodes.len() - 1]);
    let victim = nodes.get(1).unwrap_or(first);
    let pid = victim.child.as_ref().map_or(0, Child::id);
    output::line(&format!(
        r#"
Token dev, tenant dev, namespaces default and takeover. Data and logs: {directory}

Claim a key in {first_region}:
  curl -s {first_url}/v1/claims -H 'Authorization: Bearer dev' -H 'Content-Type: application/json' \
    -d '{{"namespace":"default","key":"order-82/payment-1","request":{{"amount":"120.00","currency":"EUR"}}}}'

Claim it again in {last_region}; there is one executor in the world, so this one is told "in_progress":
  HAPAX_URL={last_url} HAPAX_TOKEN=dev {hapax} claim order-82/payment-1 --request '{{"amount":"120.00","currency":"EUR"}}'

Kill any node and go on claiming through the others:
  kill -9 {pid}    # {victim_region}

Ctrl-C stops all."#,
        directory = directory.display(),
        hapax = std::env::current_exe().map_or_else(|_| "hapax".to_owned(), |path| path.display().to_string()),
        first_region = first.region,
        first_url = first.url(),
        last_region = last.region,
        last_url = last.url(),
        victim_region = victim.region,
    ));
}

fn report_deaths(nodes: &mut [Node]) -> anyhow::Result<()> {
    for node in nodes {
        let Some(status) = node.ended()? else { continue };
        let how = match status.signal() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended ({status}); see {}", node.log.display()),
        };
        output::line(&format!(
            "Node {} ({}) {how}. It stays down. Start it again with:\n  {} serve --dev-token --config {}",
            node.id,
            node.region,
            std::env::current_exe()?.display(),
            node.config.display()
        ));
    }
    Ok(())
}

/// Stops the nodes that run: asked first, then made to.
async fn stop(nodes: &mut [Node]) {
    for node in nodes.iter() {
        node.signal(Signal::SIGTERM);
    }
    let begun = Instant::now();
    while begun.elapsed() < STOP_WITHIN {
        let running = nodes.iter_mut().filter_map(|node| node.ended().ok().map(|_| node.child.is_some()));
        if !running.fold(false, |any, one| any | one) {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    for node in nodes.iter_mut() {
        if let Some(mut child) = node.child.take() {
            output::line(&format!("Node {} did not stop in time and is killed; see {}", node.id, node.log.display()));
            // It may have ended by itself meanwhile.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
