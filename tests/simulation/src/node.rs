//! A node: the shipped consensus and the shipped routes on one stepped runtime, over a disk that a crash takes something from.
//! Owns its lives, one after the other; what it keeps from one to the next is what its disk made durable.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use bytes::Bytes;
use hapax_consensus::fatal::Fatal;
use hapax_consensus::node::{Node, Seams};
use hapax_consensus::state_adapter::GROUP;
use hapax_consensus::storage::Storage;
use hapax_consensus::types::{DataId, NodeId};
use hapax_machine::View as _;
use hapax_machine::command::Bootstrap;
use hapax_machine::ids::{NamespaceName, TenantId};
use hapax_machine::namespace::{NamespaceRecord, OnLapse, Retention};
use hapax_server::config::Config;
use hapax_server::direct::Direct;
use hapax_store::log::{Crash, GroupLog, MemoryDisk, OpenOptions};
use hapax_store::seam::FatalHook;
use hapax_store::state::{MemoryState, OpenOptions as OpenState, StateStore};
use http::{Request, Response};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, oneshot};

use crate::mutant::Mutant;
use crate::network::{Network, SimDialer, SimListener};
use crate::runtime::Stepped;
use crate::time::{Clock, WALL_MS, now_ms};
use crate::trace::Trace;

/// The tenant of everybody.
const TENANT: &str = "dev";
/// In this namespace a lapsed lease means that the outcome is unknown.
pub const UNKNOWN: &str = "unknown";
/// In this one the next claimant takes over.
pub const TAKEOVER: &str = "takeover";
/// In this one everything is forgotten after a minute.
pub const BRIEF: &str = "brief";
/// Steps of the log's disk in one round of its writer: write, sync, and the same for the side file.
const STEPS_OF_A_ROUND: u64 = 4;

/// A call on its way into a node.
pub struct Ask {
    /// What is asked.
    pub request: Request<Bytes>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Response<Bytes>>,
}

/// What is the same for every node of a cluster.
#[derive(Clone)]
pub struct Shared {
    /// The network.
    pub network: Network,
    /// What happened.
    pub trace: Trace,
    /// What is wrong on purpose.
    pub mutant: Mutant,
    /// What the seed says of `[raft]`.
    pub raft: String,
    /// How many nodes there are.
    pub nodes: u64,
}

/// What a running node can be reached by.
struct Life {
    runtime: Stepped,
    log: GroupLog,
    state: StateStore,
    door: mpsc::UnboundedSender<Ask>,
    node: Arc<Mutex<Option<Node>>>,
    failed: Arc<Mutex<Option<String>>>,
    /// When one of its stores first met a disk that refuses.
    refused_at: Arc<Mutex<Option<u64>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node, running or not.
pub struct SimNode {
    id: NodeId,
    shared: Shared,
    disk: MemoryDisk,
    state: MemoryState,
    data: DataId,
    config: Config,
    /// Its clocks.
    pub clock: Clock,
    life: Option<Life>,
    paused_until: u64,
    pump_at: u64,
    /// Bounds of the time that a round of the log's disk takes.
    pub sync_ms: (u64, u64),
    /// Whether its disk was broken in this life.
    broken: bool,
}

impl SimNode {
    /// A node with empty disks that was never started.
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub fn new(id: NodeId, shared: Shared, folder: &Path) -> anyhow::Result<Self> {
        let disk = MemoryDisk::new();
        if shared.mutant == Mutant::LyingDisks {
            disk.lie();
        }
        let state = MemoryState::default();
        if shared.mutant == Mutant::TornFlush && id == 2 {
            state.tear();
        }
        Ok(Self {
            id,
            config: config(id, &shared, folder)?,
            shared,
            disk,
            state,
            data: DataId(u128::from(id).to_be_bytes()),
            clock: Clock::default(),
            life: None,
            paused_until: 0,
            pump_at: 0,
            sync_ms: (1, 3),
            broken: false,
        })
    }

    /// Its number.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Whether it runs.
    pub fn runs(&self) -> bool {
        self.life.is_some()
    }

    /// Starts it on what its disks hold.
    ///
    /// # Errors
    /// It does not open what it wrote itself.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.shared.trace.line(format_args!("node {} starts", self.id));
        let (fatal, refused_at) = (Fatal::new(), Arc::default());
        let hook = noting(&refused_at, fatal.hook());
        let config = self.config.node_config()?;
        let mut options = OpenState::default();
        options.flush_after = config.log.flush_interval;
        let state = self.state.open(options, Arc::clone(&hook)).context("the state")?;
        let applied = state.applied().last_applied.map(|id| (GROUP.0, id));
        let options =
            OpenOptions { applied: applied.into_iter().collect(), threads: false, ..OpenOptions::new(hook) };
        let log = self.disk.open(options).context("the log")?;
        let (group, runtime) = (log.group(GROUP.0)?, Stepped::new()?);
        let (door, asked) = mpsc::unbounded_channel();
        let addr = &config.members[&self.id].addr;
        let (listener, dialer) = (self.shared.network.listen(self.id, addr), self.shared.network.dialer(self.id));
        let storage = Storage { log, state: state.clone(), data: self.data };
        let seams = Seams { clock: Arc::new(self.clock.clone()), storage, dialer, listener, fatal };
        let (node, failed) = (Arc::default(), Arc::default());
        let inside = Inside {
            id: self.id,
            config: self.config.clone(),
            mutant: self.shared.mutant,
            node: Arc::clone(&node),
            failed: Arc::clone(&failed),
        };
        runtime.spawn(inside.live(seams, asked));
        self.life = Some(Life { runtime, log: group, state, door, node, failed, refused_at });
        (self.paused_until, self.pump_at, self.broken) = (0, 0, false);
        Ok(())
    }

    /// Does everything that the node can do now.
    pub fn step(&mut self, rng: &mut StdRng) {
        let Some(life) = &self.life else { return };
        let now = now_ms();
        if now < self.paused_until {
            return;
        }
        if now >= self.pump_at {
            self.pump_at = now + rng.random_range(self.sync_ms.0..=self.sync_ms.1);
            let before = self.disk.steps();
            let inside = life.runtime.enter();
            life.log.pump();
            drop(inside);
            if self.disk.steps() != before {
                self.shared.trace.line(format_args!("node {} synced {}", self.id, self.disk.steps()));
            }
        }
        life.runtime.step();
    }

    /// Stops it for a while, as a signal does; its clocks go on.
    pub fn pause(&mut self, ms: u64) {
        self.paused_until = now_ms() + ms;
    }

    /// Ends it at once. What its disks were not told to keep may be lost; where the disk stood in the middle of a round, the power
    /// goes between two of its steps.
    pub fn crash(&mut self, silent: bool, rng: &mut StdRng) {
        let Some(life) = self.life.take() else { return };
        let kept = Crash::KeepSome { changes: rng.random_range(0..40), sectors: rng.random_range(0..10) };
        let crash = if rng.random_bool(0.5) { Crash::LoseUnsynced } else { kept };
        self.shared.trace.line(format_args!("node {} crashes, silent {silent}, {crash:?}", self.id));
        self.disk.cut_power_before(self.disk.steps() + rng.random_range(0..=STEPS_OF_A_ROUND));
        let inside = life.runtime.enter();
        life.log.pump();
        drop(inside);
        self.disk.cut_power_before(0);
        if silent {
            self.shared.network.darken(self.id);
        }
        drop(life);
        self.disk.crash(crash);
        self.state.crash();
    }

    /// Asks it to shut down in order; [`SimNode::is_shut_down`] says when it has.
    pub fn shut_down(&self) {
        let Some(life) = &self.life else { return };
        let Some(node) = lock(&life.node).clone() else { return };
        let failed = Arc::clone(&life.failed);
        life.runtime.spawn(async move {
            node.shutdown().await;
            *lock(&failed) = Some(SHUT_DOWN.to_owned());
        });
    }

    /// Whether it has shut down in order; then it is gone.
    pub fn is_shut_down(&mut self) -> bool {
        let over = self.life.as_ref().is_none_or(|life| lock(&life.failed).as_deref() == Some(SHUT_DOWN));
        if over {
            self.life = None;
        }
        over
    }

    /// From now on its log's disk refuses everything.
    pub fn break_disk(&mut self) {
        self.disk.cut_power_before(0);
        self.broken = true;
    }

    /// Whether its disk was broken in this life.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// When its stores met a disk that refuses, if they did: a node that writes nothing cannot know.
    pub fn refused_at(&self) -> Option<u64> {
        *lock(&self.life.as_ref()?.refused_at)
    }

    /// Why it said that it must not go on, if it did.
    pub fn failure(&self) -> Option<String> {
        lock(&self.life.as_ref()?.failed).clone().filter(|reason| reason != SHUT_DOWN)
    }

    /// Who leads, as far as it knows.
    pub fn leader(&self) -> Option<NodeId> {
        lock(&self.life.as_ref()?.node).as_ref()?.status().leader
    }

    /// Whether the cluster has begun, as it knows.
    pub fn is_bootstrapped(&self) -> bool {
        self.life.as_ref().is_some_and(|life| lock(&life.node).as_ref().is_some_and(Node::is_bootstrapped))
    }

    /// Where calls come in.
    pub fn door(&self) -> Option<mpsc::UnboundedSender<Ask>> {
        self.life.as_ref().map(|life| life.door.clone())
    }

    /// The index that it has applied, and what it holds there.
    pub fn content(&self) -> Option<(u64, String)> {
        let view = self.life.as_ref()?.state.view();
        let applied = view.applied()?.index;
        let content = view.content().ok()?;
        Some((applied, format!("{content:?} {:?}", view.head())))
    }

    /// The index that it has applied, and the hash of all changes up to there.
    pub fn head(&self) -> Option<(u64, [u8; 32])> {
        let view = self.life.as_ref()?.state.view();
        Some((view.applied()?.index, view.head().state_hash))
    }
}

/// A hook that notes when it is told.
fn noting(refused_at: &Arc<Mutex<Option<u64>>>, hook: FatalHook) -> FatalHook {
    let refused_at = Arc::clone(refused_at);
    Arc::new(move |fault| {
        lock(&refused_at).get_or_insert_with(now_ms);
        hook(fault);
    })
}

/// What stands in the place of a failure where a node has ended as it was asked to.
const SHUT_DOWN: &str = "shut down in order";

/// What a node's own tasks hold.
struct Inside {
    id: NodeId,
    config: Config,
    mutant: Mutant,
    node: Arc<Mutex<Option<Node>>>,
    failed: Arc<Mutex<Option<String>>>,
}

impl Inside {
    /// The node's main task.
    async fn live(self, seams: Seams<SimDialer, SimListener>, mut asked: mpsc::UnboundedReceiver<Ask>) {
        let started = async {
            let node = Node::start(self.config.node_config()?, seams).await?;
            let direct = Direct::new(&self.config, node.clone())?;
            anyhow::Ok((node, direct))
        };
        let (node, direct) = match started.await {
            Ok(started) => started,
            Err(error) => {
                *lock(&self.failed) = Some(format!("not started: {error}"));
                return;
            }
        };
        *lock(&self.node) = Some(node.clone());
        if self.mutant != Mutant::DeafToFaults {
            let (node, failed) = (node.clone(), Arc::clone(&self.failed));
            tokio::spawn(async move {
                let reason = node.fatal().await;
                lock(&failed).get_or_insert(reason);
            });
        }
        if self.id == 1 {
            let node = node.clone();
            tokio::spawn(async move {
                if !node.is_bootstrapped()
                    && let Err(error) = node.bootstrap(first_commit()).await
                {
                    tracing::warn!(%error, "not bootstrapped by this start");
                }
            });
        }
        while let Some(Ask { request, reply }) = asked.recv().await {
            let (direct, node, mutant) = (direct.clone(), node.clone(), self.mutant);
            tokio::spawn(async move {
                let request = mutant.request(request, &node);
                let answer = mutant.answer(direct.call(request).await, &node);
                // Whoever asked may have given up.
                let _ = reply.send(answer);
            });
        }
    }
}

fn config(id: NodeId, shared: &Shared, folder: &Path) -> anyhow::Result<Config> {
    let peers: Vec<String> = (1..=shared.nodes).map(|id| format!("\"{id}=node{id}:1@region{id}\"")).collect();
    let text = format!(
        "[node]\nid = {id}\nregion = \"region{id}\"\ndata_dir = \"{}\"\n\
         [listen]\nclient = \"127.0.0.1:1\"\npeer = \"127.0.0.1:1\"\nmetrics = \"127.0.0.1:1\"\n\
         [cluster]\nname = \"simulation\"\npeers = [{}]\n\
         [raft]\n{}\n[limits]\nrequest_timeout_ms = 2000\n\
         [retention]\ninterval_ms = 3000\ncompact_interval_ms = 4000\n",
        folder.join(format!("node-{id}")).display(),
        peers.join(", "),
        shared.raft,
    );
    let mut config: Config = toml::from_str(&text)?;
    config.auth.dev_token = true;
    TENANT.clone_into(&mut config.bootstrap.tenant);
    config.check()?;
    Ok(config)
}

fn first_commit() -> Bootstrap {
    let named = |name| NamespaceRecord::with_defaults(TenantId::new(TENANT), NamespaceName::new(name));
    let brief = named(BRIEF);
    let retention = Retention { body_ms: 60_000, identity_ms: 60_000, ..brief.retention };
    Bootstrap {
        cluster_id: [3; 16],
        wall_ms: WALL_MS,
        namespaces: vec![
            named(UNKNOWN),
            NamespaceRecord { on_lapse: OnLapse::Takeover, ..named(TAKEOVER) },
            NamespaceRecord { retention, ..brief },
        ],
        tokens: Vec::new(),
        tenants: Vec::new(),
    }
}
