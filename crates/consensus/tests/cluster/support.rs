//! Starting, cutting, crashing and asking the nodes of a cluster in one process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hapax_codec::peer::hello::ClusterId;
use hapax_consensus::bootstrap::{BootstrapError, Bootstrapped};
use hapax_consensus::clock::NodeClock;
use hapax_consensus::config::{LogLimits, NodeConfig, Reads, Retention, Scrub, Timing};
use hapax_consensus::fatal::Fatal;
use hapax_consensus::node::{Node, Seams};
use hapax_consensus::propose::ProposeError;
use hapax_consensus::state_adapter::GROUP;
use hapax_consensus::storage::Storage;
use hapax_consensus::transport::{self, MemNetwork};
use hapax_consensus::types::{DataId, NodeId, PeerNode};
use hapax_machine::command::{Bootstrap, Caller, Claim, Command};
use hapax_machine::ids::{
    ClaimId, ClientId, Digest, ExecutionId, NamespaceName, OperationKey, ScopeOf, TenantId, internal_key, slot,
};
use hapax_machine::namespace::NamespaceRecord;
use hapax_machine::outcome::Answer;
use hapax_machine::{Outcome, View};
use hapax_store::log::{Crash, MemoryDisk, OpenOptions};
use hapax_store::state::{MemoryState, OpenOptions as OpenState};
use tempfile::TempDir;
use tokio::time::Instant;

/// Long enough for a loaded machine, short enough to end a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Where nodes keep their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Disk,
}

/// A wall clock that is set by the test, and goes on by itself.
pub(crate) struct Clock {
    began: Instant,
    ahead_ms: AtomicU64,
}

/// What it shows when the test begins, and the cluster is begun with.
const WALL_MS: u64 = 1_790_000_000_000;

impl Clock {
    /// Everybody's wall clock is later by so much.
    pub(crate) fn skip(&self, by: Duration) {
        self.ahead_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl NodeClock for Clock {
    fn wall_ms(&self) -> u64 {
        WALL_MS + self.began.elapsed().as_millis() as u64 + self.ahead_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

struct Slot {
    dir: TempDir,
    log: MemoryDisk,
    state: MemoryState,
    /// What the stores in memory are known by; those on a disk keep their own.
    data: DataId,
    node: Option<Node>,
}

impl Slot {
    /// Stores that hold nothing.
    fn empty() -> Self {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        let data = u128::from(DRAWN.fetch_add(1, Ordering::Relaxed)) + 1;
        Self {
            dir: tempfile::tempdir().unwrap(),
            log: MemoryDisk::new(),
            state: MemoryState::default(),
            data: DataId(data.to_be_bytes()),
            node: None,
        }
    }
}

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) net: MemNetwork,
    pub(crate) clock: Arc<Clock>,
    kind: Kind,
    tweak: Box<dyn Fn(&mut NodeConfig) + Send + Sync>,
    members: BTreeMap<NodeId, PeerNode>,
    slots: BTreeMap<NodeId, Slot>,
    claims: AtomicU64,
    /// How long claimants call themselves: what makes a state large.
    pub(crate) owner_len: usize,
}

/// Election times that a loaded machine keeps.
pub(crate) const TIMING: Timing = Timing {
    round_trip_ms: 50,
    heartbeat_ms: 100,
    election_min_ms: 400,
    election_max_ms: 800,
    quorum_loss_probe_ms: 2_000,
    max_clock_skew_ms: 500,
};

impl Cluster {
    /// Nodes that were not started yet.
    pub(crate) fn new(kind: Kind, nodes: u64, tweak: impl Fn(&mut NodeConfig) + Send + Sync + 'static) -> Self {
        let member = |id: u64| {
            let node = PeerNode {
                addr: format!("node{id}"),
                region: format!("region{id}"),
                client_url: format!("http://node{id}"),
                data: DataId::UNKNOWN,
            };
            (id, node)
        };
        Self {
            net: MemNetwork::new(),
            clock: Arc::new(Clock { began: Instant::now(), ahead_ms: AtomicU64::new(0) }),
            kind,
            tweak: Box::new(tweak),
            members: (1..=nodes).map(member).collect(),
            slots: (1..=nodes).map(|id| (id, Slot::empty())).collect(),
            claims: AtomicU64::new(0),
            owner_len: 8,
        }
    }

    /// A cluster that was started and bootstrapped, and has a leader.
    pub(crate) async fn running(
        kind: Kind,
        nodes: u64,
        tweak: impl Fn(&mut NodeConfig) + Send + Sync + 'static,
    ) -> Self {
        let mut cluster = Self::new(kind, nodes, tweak);
        for id in 1..=nodes {
            cluster.start(id).await;
        }
        assert_eq!(cluster.bootstrap(1).await, Ok(Bootstrapped::Now));
        cluster
    }

    fn config(&self, id: NodeId) -> NodeConfig {
        let mut config = NodeConfig {
            id,
            cluster: ClusterId([7; 16]),
            data_dir: self.slots[&id].dir.path().join("data"),
            members: self.members.clone(),
            timing: TIMING,
            log: LogLimits::DEFAULT,
            scrub: Scrub::DEFAULT,
            retention: Retention::DEFAULT,
            reads: Reads::DEFAULT,
            transport: transport::Config::lan(),
        };
        (self.tweak)(&mut config);
        config
    }

    fn storage(&self, config: &NodeConfig, fatal: &Fatal) -> Storage {
        let slot = &self.slots[&config.id];
        if self.kind == Kind::Disk {
            return Storage::open(config, fatal).unwrap();
        }
        let mut options = OpenState::default();
        options.flush_after = config.log.flush_interval;
        let state = slot.state.open(options, fatal.hook()).unwrap();
        let applied = state.applied().last_applied.map(|id| (GROUP.0, id));
        let options = OpenOptions { applied: applied.into_iter().collect(), ..OpenOptions::new(fatal.hook()) };
        Storage { log: slot.log.open(options).unwrap(), state, data: slot.data }
    }

    /// Gives every node another address; those that run keep listening at the old one.
    pub(crate) fn move_all(&mut self) {
        self.members.values_mut().for_each(|member| member.addr.push_str("-moved"));
    }

    /// Starts a node on what it has kept.
    pub(crate) async fn start(&mut self, id: NodeId) {
        let config = self.config(id);
        let fatal = Fatal::new();
        let storage = self.storage(&config, &fatal);
        let (listener, dialer) = (self.net.listen(id, &self.members[&id].addr), self.net.dialer(id));
        let seams = Seams { clock: self.clock.clone(), storage, dialer, listener, fatal };
        let node = Node::start(config, seams).await.unwrap();
        self.slots.get_mut(&id).unwrap().node = Some(node);
    }

    /// Shuts a node down in order.
    pub(crate) async fn stop(&mut self, id: NodeId) {
        let node = self.slots.get_mut(&id).unwrap().node.take().unwrap();
        node.shutdown().await;
    }

    /// Cuts a node's power: what it had not synced is gone.
    pub(crate) async fn crash(&mut self, id: NodeId) {
        let slot = self.slots.get_mut(&id).unwrap();
        let node = slot.node.take().unwrap();
        slot.log.cut_power_before(slot.log.steps());
        node.halt().await;
        drop(node);
        slot.log.crash(Crash::LoseUnsynced);
        slot.state.crash();
    }

    /// Takes a node away, by a crash where its storage can lose something.
    pub(crate) async fn leave(&mut self, id: NodeId) {
        match self.kind {
            Kind::Memory => self.crash(id).await,
            Kind::Disk => self.stop(id).await,
        }
    }

    /// Takes a node away, and everything that it has kept.
    pub(crate) async fn wipe(&mut self, id: NodeId) {
        self.leave(id).await;
        self.slots.insert(id, Slot::empty());
    }

    /// The disk of a node's log.
    pub(crate) fn log_disk(&self, id: NodeId) -> &MemoryDisk {
        &self.slots[&id].log
    }

    /// Where a node receives snapshots.
    pub(crate) fn snapshots_dir(&self, id: NodeId) -> PathBuf {
        self.config(id).data_dir.join("snapshots")
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.slots[&id].node.as_ref().unwrap()
    }

    pub(crate) fn running_nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.slots.iter().filter_map(|(id, slot)| Some((*id, slot.node.as_ref()?)))
    }

    pub(crate) async fn bootstrap(&self, id: NodeId) -> Result<Bootstrapped, BootstrapError> {
        let command = Bootstrap {
            cluster_id: [3; 16],
            wall_ms: WALL_MS,
            namespaces: vec![namespace()],
            tokens: Vec::new(),
            tenants: Vec::new(),
        };
        self.node(id).bootstrap(command).await
    }

    /// Waits until one of the running nodes leads and all of them say so.
    pub(crate) async fn leader(&self) -> NodeId {
        let agreed = || {
            let leaders: Vec<_> = self.running_nodes().map(|(_, node)| node.status().leader).collect();
            let first = leaders.first().copied().flatten()?;
            let runs = self.slots[&first].node.is_some();
            (runs && leaders.iter().all(|leader| *leader == Some(first))).then_some(first)
        };
        until("a leader", agreed).await
    }

    /// Waits until a node leads, as far as the node `asked` knows.
    pub(crate) async fn leader_but(&self, asked: NodeId, not: NodeId) -> NodeId {
        until("another leader", || self.node(asked).status().leader.filter(|leader| *leader != not)).await
    }

    /// Claims a key through a node.
    pub(crate) async fn claim(&self, id: NodeId, key: &str) -> Result<Outcome, ProposeError> {
        self.claim_within(id, key, PATIENCE).await
    }

    pub(crate) async fn claim_within(
        &self,
        id: NodeId,
        key: &str,
        within: Duration,
    ) -> Result<Outcome, ProposeError> {
        self.node(id).propose(Command::Claim(self.drawn(key)), Instant::now() + within).await
    }

    /// A claim of a key that nobody has made before.
    pub(crate) fn drawn(&self, key: &str) -> Claim {
        let number = u128::from(self.claims.fetch_add(1, Ordering::Relaxed)) + 1;
        claim(key, number.to_be_bytes(), self.owner_len)
    }

    /// Proposes a command through a node, which must have an outcome.
    pub(crate) async fn answer(&self, id: NodeId, command: Command) -> Answer {
        self.node(id).propose(command, Instant::now() + PATIENCE).await.unwrap().answer
    }

    /// Claims a key and expects to be the executor.
    pub(crate) async fn claimed(&self, id: NodeId, key: &str) {
        let outcome = self.claim(id, key).await;
        assert!(matches!(&outcome, Ok(Outcome { answer: Answer::Claimed(_), .. })), "{key}: {outcome:?}");
    }

    /// Whether a node's confirmed state holds a key.
    pub(crate) async fn holds(&self, id: NodeId, key: &str) -> bool {
        let view = self.node(id).read(Instant::now() + PATIENCE).await.unwrap();
        view.operation(&operation_key(key)).unwrap().is_some()
    }

    /// Waits until every running node has applied the same index, and checks that all hold the same rows.
    pub(crate) async fn agree(&self) {
        let hashes = || {
            let mut views = self.running_nodes().map(|(id, node)| (id, node.local()));
            let (_, first) = views.next()?;
            let applied = first.applied();
            let head = first.head();
            let content = first.content().unwrap();
            for (id, view) in views {
                if view.applied() != applied {
                    return None;
                }
                assert_eq!(view.head(), head, "node {id} at {applied:?}");
                assert_eq!(view.content().unwrap(), content, "node {id} at {applied:?}");
            }
            Some(())
        };
        until("equal indexes", hashes).await;
    }
}

/// Polls a condition that nothing signals.
pub(crate) async fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn namespace() -> NamespaceRecord {
    NamespaceRecord::with_defaults(TenantId::new("tenant"), NamespaceName::new("payments"))
}

pub(crate) fn operation_key(key: &str) -> OperationKey {
    let NamespaceRecord { tenant, name, .. } = namespace();
    OperationKey::new(&tenant, &internal_key(&tenant, &name, ScopeOf::Namespace, key, None))
}

pub(crate) fn caller() -> Caller {
    Caller { tenant: namespace().tenant, client: ClientId::new("client"), namespaces: Vec::new() }
}

fn claim(key: &str, random: [u8; 16], owner_len: usize) -> Claim {
    let NamespaceRecord { tenant, name, .. } = namespace();
    let slot = slot(&tenant, &name, 0);
    Claim {
        internal_key: internal_key(&tenant, &name, ScopeOf::Namespace, key, None),
        slot,
        digest: Digest([1; 32]),
        claim_id: ClaimId(random),
        owner: "w".repeat(owner_len),
        lease_ms: 600_000,
        attempt: None,
        correlation_id: None,
        execution_id: ExecutionId { slot, random },
        caller: caller(),
        namespace: name,
        capability_id: None,
        message: None,
        epoch: None,
        resource: None,
        key_created_at: None,
    }
}
