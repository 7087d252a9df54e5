//! A cluster of real processes: started, killed, paused, stopped and started again by pid.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::caller::Caller;
use crate::proxy::Network;

/// How long a node may take to be ready.
pub const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long a node may take to stop when it is asked to.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Pause between looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a test wants of its cluster beyond the defaults.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Lines for each node's `[raft]` section.
    pub raft: String,
    /// Lines for each node's `[limits]` section.
    pub limits: String,
    /// Further sections for each node's configuration.
    pub sections: String,
    /// A program and its arguments to run each node under; `{id}` stands for the node's id.
    pub under: Vec<String>,
    /// Environment of a node, by node id.
    pub environment: Vec<(u64, String, String)>,
}

/// The cluster. Dropping it kills its processes and removes its files.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes, in the order of their ids from 1.
    pub nodes: Vec<Node>,
    /// The links between them.
    pub network: Network,
    _directory: TempDir,
}

/// One node's process and files.
#[derive(Debug)]
pub struct Node {
    /// Its id.
    pub id: u64,
    /// Where callers reach it.
    pub url: String,
    /// Where its metrics are.
    pub metrics_url: String,
    /// Its data directory.
    pub data: PathBuf,
    config: PathBuf,
    log: PathBuf,
    options: Options,
    child: Option<Child>,
}

/// The shipped binary.
///
/// # Panics
/// It was not built: `make test` builds it first.
pub fn binary() -> PathBuf {
    let path = match std::env::var_os("HAPAX_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let test = std::env::current_exe().expect("a test has an executable");
            test.ancestors().nth(2).expect("target/release/deps/test").join("hapax")
        }
    };
    assert!(path.is_file(), "{} is not built; `make build` does", path.display());
    path
}

impl Cluster {
    /// Starts three nodes and waits until each is ready.
    ///
    /// # Errors
    /// A node does not get ready; its log is part of the error.
    pub async fn start(options: Options) -> Result<Self> {
        let mut cluster = Self::prepare(3, options).await?;
        for node in &mut cluster.nodes {
            node.start()?;
        }
        cluster.ready().await?;
        Ok(cluster)
    }

    async fn prepare(count: u64, options: Options) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("hapax-test-").tempdir_in(disk())?;
        let network = Network::default();
        let mut addresses = Vec::new();
        let mut peers = Vec::new();
        for id in 1..=count {
            let [client, peer, metrics] = [free_port()?, free_port()?, free_port()?];
            let front = network.front(peer).await?;
            peers.push(format!("\"{id}={front}@region-{id}@http://{client}\""));
            addresses.push((id, client, peer, metrics));
        }
        let peers = peers.join(", ");
        let mut nodes = Vec::new();
        for (id, client, peer, metrics) in addresses {
            let home = directory.path().join(format!("node-{id}"));
            fs::create_dir_all(&home)?;
            let (config, data, log) = (home.join("hapax.toml"), home.join("data"), home.join("hapax.log"));
            let Options { raft, limits, sections, .. } = &options;
            let text = format!(
                "[node]\nid = {id}\nregion = \"region-{id}\"\ndata_dir = \"{}\"\n\
                 [listen]\nclient = \"{client}\"\npeer = \"{peer}\"\nmetrics = \"{metrics}\"\n\
                 [cluster]\nname = \"test\"\npeers = [{peers}]\nbootstrap = {}\n\
                 [raft]\n{raft}\n[limits]\n{limits}\n\
                 [bootstrap]\ntenant = \"dev\"\n\
                 [[bootstrap.namespaces]]\nname = \"default\"\n\
                 [[bootstrap.namespaces]]\nname = \"takeover\"\non_lapse = \"takeover\"\n\
                 [[bootstrap.namespaces]]\nname = \"ietf\"\nconflict_style = \"ietf\"\nattempts = \"explicit\"\n\
                 transport_fields = [\"trace\"]\n\
                 {sections}",
                data.display(),
                id == 1,
            );
            fs::write(&config, text)?;
            let (url, metrics_url) = (format!("http://{client}"), format!("http://{metrics}/metrics"));
            nodes.push(Node { id, url, metrics_url, data, config, log, options: options.clone(), child: None });
        }
        Ok(Self { nodes, network, _directory: directory })
    }

    /// Waits until every running node is ready.
    ///
    /// # Errors
    /// One does not get ready in time.
    pub async fn ready(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            if node.child.is_some() {
                node.ready().await?;
            }
        }
        Ok(())
    }

    /// The index in `nodes` of the node that the others follow.
    ///
    /// # Errors
    /// Nobody leads in time.
    pub async fn leader(&self) -> Result<usize> {
        let begun = Instant::now();
        while begun.elapsed() < READY_WITHIN {
            for node in self.nodes.iter().filter(|node| node.child.is_some()) {
                let seen = Caller::new(&node.url).cluster().await;
                if let Ok(view) = seen
                    && let Some(id) = view["leader_id"].as_u64()
                    && let Some(at) = self.nodes.iter().position(|node| node.id == id && node.child.is_some())
                {
                    return Ok(at);
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        bail!("nobody leads")
    }

    /// A caller for each node.
    pub fn callers(&self) -> Vec<Caller> {
        self.nodes.iter().map(|node| Caller::new(&node.url)).collect()
    }
}

impl Node {
    /// Starts the process.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "node {} runs already", self.id);
        let log = File::options().create(true).append(true).open(&self.log)?;
        let named = |word: &String| word.replace("{id}", &self.id.to_string());
        let mut command = match self.options.under.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments.iter().map(named)).arg(binary());
                command
            }
            None => Command::new(binary()),
        };
        for (id, name, value) in &self.options.environment {
            if *id == self.id {
                command.env(name, value);
            }
        }
        let child = command
            .args(["serve", "--dev-token", "--until-stdin-closes", "--config"])
            .arg(&self.config)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until `/readyz` says so.
    ///
    /// # Errors
    /// It ends, or does not get ready in time; its log is part of the error.
    pub async fn ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        let caller = Caller::new(&self.url);
        while begun.elapsed() < READY_WITHIN {
            if let Some(status) = self.ended()? {
                bail!("node {} ended ({status}):\n{}", self.id, self.log_text());
            }
            if caller.ready().await {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        bail!("node {} is not ready:\n{}", self.id, self.log_text())
    }

    /// Whether the process runs, as far as this test has seen.
    pub fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// The process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How the process ended, if it did.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    /// Waits for the process to end by itself.
    ///
    /// # Errors
    /// It does not within `limit`.
    pub async fn ends(&mut self, limit: Duration) -> Result<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        bail!("node {} still runs:\n{}", self.id, self.log_text())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().with_context(|| format!("node {} does not run", self.id))?;
        kill(Pid::from_raw(i32::try_from(pid)?), signal)?;
        Ok(())
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(())
    }

    /// Stops the process from running, without its noticing.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Asks the process to stop, and waits.
    ///
    /// # Errors
    /// It does not stop in time, or not cleanly.
    pub async fn stop(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        let status = self.ends(STOP_WITHIN).await?;
        ensure!(status.success(), "node {} stopped with {status}:\n{}", self.id, self.log_text());
        Ok(())
    }

    /// A metric without labels.
    ///
    /// # Errors
    /// The node does not answer, or has no such metric.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = reqwest::get(&self.metrics_url).await?.text().await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("no {name}"))?.trim().parse()?)
    }

    /// What the node logged.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.child.is_some() {
            // A paused process does not die of SIGKILL's neighbours; SIGKILL itself always works.
            let _ = self.kill();
        }
    }
}

/// Where files are really synced: the system's temporary directory may be in memory.
fn disk() -> PathBuf {
    let target = std::env::current_exe().ok().and_then(|test| test.ancestors().nth(3).map(Path::to_path_buf));
    target.unwrap_or_else(std::env::temp_dir)
}

/// An address that nobody listens at. The system hands out ports above 32,768 to whoever connects to something: one of those could
/// be taken before a node listens at it, or while it is down.
fn free_port() -> Result<SocketAddr> {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..1_000 {
        let port = rand::random_range(10_000..32_000);
        if !taken.contains(&port)
            && let Ok(listener) = TcpListener::bind(("127.0.0.1", port))
        {
            taken.insert(port);
            return Ok(listener.local_addr()?);
        }
    }
    bail!("no port is free")
}
