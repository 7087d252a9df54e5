//! A node: everything of this crate wired together, started, asked, and stopped.
//! The only type that the layers above hold.
//!
//! ```text
//! start: check configuration ─► stores ─► tracker ─► raft ─► proposer, reader, leader's chores ─► peer listener
//! stop:  last counts ─► refuse new work ─► hand leadership over ─► end tasks ─► raft ─► flush state, close log
//! ```
//! Everything is built before peers can reach it, and closed in the opposite order.

use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hapax_machine::command::CountedRefusal;
use hapax_machine::ids::{NamespaceName, OperationKey, Revision, TenantId, TenantTag};
use hapax_machine::namespace::NamespaceRecord;
use hapax_machine::tenant::{TenantRecord, TokenRecord};
use hapax_machine::{Command, Outcome, View};
use hapax_store::log::LogStore;
use hapax_store::state::{Removed, StateView};
use openraft::async_runtime::WatchReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::clock::NodeClock;
use crate::config::{ConfigError, NodeConfig};
use crate::core::Core;
use crate::fatal::Fatal;
use crate::fresh::Freshness;
use crate::leadership::Leadership;
use crate::log_adapter::LogAdapter;
use crate::network::{AppHandler, Handler, Network, Receiver};
use crate::notify::{Subscription, Watch};
use crate::observer::ApplyObserver;
use crate::propose::{self, ProposeError, Proposer};
use crate::read::{ReadError, Reader};
use crate::repeats::Repeats;
use crate::seam::{Consensus, RaftConsensus, Role};
use crate::snapshot::Snapshots;
use crate::state_adapter::{DurableState, GROUP, StateAdapter};
use crate::state_source::{Source, StateSource};
use crate::status::{Members, Status};
use crate::storage::{SNAPSHOTS, Storage, StorageError};
use crate::tail::Tail;
use crate::time_in_state::TimeInState;
use crate::tracker::Tracker;
use crate::transport::hello::Identity;
use crate::transport::peers::kind;
use crate::transport::{Dialer, Listener, Peers, serve};
use crate::types::{NodeId, Raft};
use crate::wall::{MoveError, Moved};
use crate::{maintenance, retention, series, state_series, status, sweep, wall};

/// How long a leader that shuts down waits for a follower to catch up, and then to take over.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);
/// How long tasks may take to end.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Why a node did not start. Names the file or the setting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    /// The data directory was not opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A directory for snapshots could not be made or emptied.
    #[error("{path}: {error}")]
    Snapshots {
        /// The directory.
        path: std::path::PathBuf,
        /// Why.
        error: io::Error,
    },
    /// What was stored does not add up.
    #[error("the stored state cannot be used: {0}")]
    Recovery(String),
}

/// Where a node's time, storage and network come from.
pub struct Seams<D, L> {
    /// Its clocks.
    pub clock: Arc<dyn NodeClock>,
    /// Its stores, opened with [`Self::fatal`]'s hook.
    pub storage: Storage,
    /// How it reaches peers.
    pub dialer: D,
    /// How peers reach it.
    pub listener: L,
    /// Raised when it must not go on.
    pub fatal: Fatal,
}

/// A running node. Clones are the same node; it runs until [`Node::shutdown`].
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    log: Arc<LogStore>,
    tracker: Arc<Tracker>,
    consensus: Arc<dyn Consensus>,
    proposer: Proposer,
    reader: Reader,
    fresh: Arc<Freshness>,
    repeats: Arc<Repeats>,
    members: Arc<Members>,
    tasks: Mutex<JoinSet<()>>,
}

impl Node {
    /// Starts a node. A node with an empty directory waits to be bootstrapped or to be spoken to.
    ///
    /// # Errors
    /// The configuration or what is stored does not add up; nothing is left running.
    pub async fn start<D: Dialer, L: Listener>(config: NodeConfig, seams: Seams<D, L>) -> Result<Self, StartError> {
        config.check()?;
        let raft_config = Arc::new(config.raft()?);
        let Seams { clock, storage: Storage { log, state, data }, dialer, listener, fatal } = seams;
        let dir = config.data_dir.join(SNAPSHOTS);
        let snapshots_failed = |error| StartError::Snapshots { path: dir.clone(), error };
        let snapshots = Snapshots::open(dir.clone(), state.clone()).map_err(snapshots_failed)?;
        let receiver =
            Receiver::new(dir.clone(), config.transport.snapshot_stall_timeout).map_err(snapshots_failed)?;
        let recovery = |error: &dyn std::fmt::Display| StartError::Recovery(error.to_string());

        let source: Arc<dyn StateSource> = Arc::new(Source(state.clone()));
        let tracker = Tracker::new(Arc::clone(&clock), source);
        let times = TimeInState::new();
        let observers: Vec<Arc<dyn ApplyObserver>> = vec![Arc::clone(&tracker) as _, Arc::clone(&times) as _];
        let machine = StateAdapter::new(state.clone(), observers, snapshots).map_err(|error| recovery(&error))?;
        let group = log.group(GROUP.0).map_err(|error| recovery(&error))?;
        let tail = Tail::default();
        let adapter = LogAdapter::new(group, Arc::new(DurableState(state.clone())), tail.clone());

        let identity = Identity { cluster: config.cluster, node: config.id, data };
        let peers = Peers::new(identity, dialer, config.transport.clone());
        for (id, member) in config.members.iter().filter(|(id, _)| **id != config.id) {
            peers.pin(*id, &member.addr);
        }
        let network = Network::new(peers.clone(), tail.clone());
        let raft = Raft::new(config.id, raft_config, network, adapter, machine).await;
        let raft = raft.map_err(|error| recovery(&error))?;
        // Before anybody is dialled or heard: who the members are is known from the start.
        let own = config.id;
        let stored = raft.with_raft_state(|state| state.membership_state.effective().membership().clone()).await;
        for (id, member) in stored.map_err(|error| recovery(&error))?.nodes().filter(|(id, _)| **id != own) {
            peers.expect(*id, member.data);
        }

        let core = Arc::new(Core {
            config,
            raft,
            state,
            clock,
            peers,
            tail,
            fatal,
            draining: CancellationToken::new(),
            stopping: CancellationToken::new(),
        });
        let node = Self(Arc::new(Inner::assemble(core, Arc::new(log), tracker, &times)));
        node.serve_peers(identity, receiver, listener);
        Ok(node)
    }

    fn serve_peers(&self, identity: Identity, receiver: Receiver, listener: impl Listener) {
        let Inner { core, proposer, reader, members, .. } = &*self.0;
        let app = App {
            core: Arc::clone(core),
            proposer: proposer.clone(),
            reader: reader.clone(),
            members: Arc::clone(members),
        };
        let handler = Arc::new(Handler::new(core.raft.clone(), app, receiver));
        let (config, stop) = (core.config.transport.clone(), core.stopping.clone());
        let known = core.peers.members().clone();
        self.0.spawn(serve(listener, identity, known, handler, config, stop));
    }

    /// Proposes a command and waits for its outcome.
    ///
    /// # Errors
    /// [`ProposeError`] tells what is certain: `Unavailable` means that the command was not and will not be applied.
    pub async fn propose(&self, command: Command, deadline: Instant) -> Result<Outcome, ProposeError> {
        self.0.proposer.propose(command, deadline).await
    }

    /// A view of the state that holds everything that was acknowledged anywhere before this call.
    ///
    /// # Errors
    /// No quorum confirmed it in time.
    pub async fn read(&self, deadline: Instant) -> Result<ReadGuard, ReadError> {
        self.0.fresh.read(&self.0.reader, deadline).await?;
        Ok(self.local())
    }

    /// A view of what is applied here, if that is certainly recent: since its start this node has caught up, and a read index that
    /// it began within `reads.local_fact_max_staleness_ms` has been applied here. **[safety]** It is renewed while it is asked
    /// for; where nobody asked for a while, the first one is `None` and its caller goes through the log.
    pub fn fresh_view(&self) -> Option<ReadGuard> {
        self.0.fresh.view(|| self.local())
    }

    /// Counts refusals that were repeated from a view of this node. Never waits; they are told to the log later, in few
    /// commands, and may be dropped under overload.
    pub fn count_refusals(&self, counted: Vec<CountedRefusal>) {
        self.0.repeats.add(&counted);
    }

    /// A view of what is applied here, however old that is.
    pub fn local(&self) -> ReadGuard {
        ReadGuard(self.0.core.state.view())
    }

    /// A namespace's policy, as applied here. No IO.
    pub fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Option<NamespaceRecord> {
        self.0.core.state.view().policy(tenant, name).cloned()
    }

    /// A token, as applied here. No IO.
    pub fn token(&self, id: &str) -> Option<TokenRecord> {
        self.0.core.state.token(id)
    }

    /// A tenant, as applied here. No IO.
    pub fn tenant(&self, id: &TenantId) -> Option<TenantRecord> {
        self.0.core.state.view().tenant(id).ok().flatten()
    }

    /// Watches what happens to a tenant's operations; before reading the events, so that nothing falls between. Events are read
    /// from a view by position, as fast as the watcher likes. `None` where too many watch already.
    pub fn watch(&self, tenant: TenantTag) -> Option<Watch> {
        self.0.tracker.watches().subscribe(&tenant)
    }

    /// Subscribes to the next applied change of an operation's row; before reading it, so that nothing falls between.
    /// `None` where too many wait already.
    pub fn subscribe(&self, key: &OperationKey) -> Option<Subscription> {
        self.0.tracker.waiters().subscribe(key)
    }

    /// Milliseconds since this node last applied an entry: how old the lease time of a view may be.
    pub fn since_applied_ms(&self) -> u64 {
        self.0.tracker.since_applied_ms()
    }

    /// Whether the cluster's life has begun, as applied here.
    pub fn is_bootstrapped(&self) -> bool {
        self.0.tracker.head().incarnation.0 != 0
    }

    /// What retention has removed from this node's disk since its start, family by family.
    pub fn removed(&self) -> Vec<Removed> {
        self.0.core.state.removed()
    }

    /// Moves the replicated wall, if it lags, to what a quorum's clocks have passed: also by more than a day, for which an
    /// operator's word is needed.
    ///
    /// # Errors
    /// See [`MoveError`]; it may be called again.
    pub async fn advance_wall(&self, deadline: Instant) -> Result<Moved, MoveError> {
        let skew = self.0.core.config.timing.max_clock_skew();
        wall::move_by_operator(&self.0.wall_parts(), skew, deadline).await
    }

    /// What this node knows of itself and of the cluster. Answers at once.
    pub fn status(&self) -> Status {
        self.0.members.status(&self.0.core)
    }

    /// Whether this node can serve: not draining, and a quorum confirms a read through it.
    ///
    /// # Errors
    /// What does not hold.
    pub async fn ready(&self, deadline: Instant) -> Result<(), NotReady> {
        if let Some(reason) = self.0.core.fatal.reason() {
            return Err(NotReady::Fatal(reason));
        }
        if self.0.core.draining.is_cancelled() {
            return Err(NotReady::Draining);
        }
        self.0.reader.read(deadline).await.map_err(|_| NotReady::NoQuorum)?;
        if self.is_bootstrapped() { Ok(()) } else { Err(NotReady::NotBootstrapped) }
    }

    /// Completes with the reason when this node must not go on: the process must end, and not with success.
    pub async fn fatal(&self) -> String {
        self.0.core.fatal.raised().await
    }

    /// This node's number.
    pub fn id(&self) -> NodeId {
        self.0.core.config.id
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// Drains, hands leadership over, and stops. Later calls, and calls under way, find it stopped.
    pub async fn shutdown(&self) {
        let Inner { core, log, proposer, .. } = &*self.0;
        core.draining.cancel();
        self.0.repeats.finish(proposer).await;
        proposer.close();
        if timeout(HAND_OVER_MAX, self.hand_over()).await.is_err() {
            tracing::warn!("leadership was not handed over in time");
        }
        self.stop().await;
        let (state, log) = (core.state.clone(), Arc::clone(log));
        let closed = tokio::task::spawn_blocking(move || {
            // What fails here has told the fatal hook; the log replays what the state did not keep.
            let _ = state.flush();
            let _ = log.shutdown();
        });
        let _ = closed.await;
    }

    /// Stops at once, as a crash does: nothing is handed over or flushed. For tests and simulations, whose storage
    /// then discards what was not synced.
    pub async fn halt(&self) {
        self.0.core.draining.cancel();
        self.stop().await;
    }

    async fn stop(&self) {
        self.0.core.stopping.cancel();
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = async { while tasks.join_next().await.is_some() {} };
        if timeout(STOP_MAX, ended).await.is_err() {
            tracing::warn!("a task did not end in time and is aborted");
        }
        tasks.shutdown().await;
        // Raft's own end cannot fail in a way that matters any more.
        let _ = self.0.core.raft.shutdown().await;
    }

    /// Gives leadership to the voter that has the whole log, if this node leads and there is one.
    async fn hand_over(&self) {
        let Inner { core, consensus, .. } = &*self.0;
        let deadline = Instant::now() + HAND_OVER_MAX;
        let mut tried = BTreeSet::new();
        while let Role::Leader { .. } = consensus.role() {
            // A transfer cannot be taken back: the target must have everything first.
            let Some(target) = self.caught_up(deadline, &tried).await else { return };
            tried.insert(target);
            tracing::info!(target, "handing leadership over");
            if core.raft.trigger().transfer_leader(target).await.is_err() {
                return;
            }
            let until = deadline.min(Instant::now() + core.config.timing.failover());
            if timeout_at(until, self.another_leads()).await.is_err() {
                tracing::warn!(target, "leadership was not taken over");
            }
        }
    }

    /// Waits until another node leads: not only until this one does not, since its vote may be needed.
    async fn another_leads(&self) {
        loop {
            let role = self.0.consensus.role();
            if let Role::Follower { leader: Some(_) } = role {
                return;
            }
            self.0.consensus.role_changed(role).await;
        }
    }

    /// Waits for another voter to have this leader's whole log, applied here; `None` where nobody else is there. What a
    /// voter was last known to have says nothing of whether it still runs, so its connection must stand.
    async fn caught_up(&self, deadline: Instant, tried: &BTreeSet<NodeId>) -> Option<NodeId> {
        let peers = &self.0.core.peers;
        let mut metrics = self.0.core.raft.metrics();
        loop {
            {
                let metrics = metrics.borrow_and_update();
                let own = metrics.id;
                let voters = metrics.membership_config.membership().voter_ids();
                let voters = voters.filter(|id| *id != own && peers.is_up(*id) && !tried.contains(id));
                let matched = |id: &NodeId| {
                    let matched = metrics.replication.as_ref()?.get(id).copied().flatten()?;
                    Some(matched.index)
                };
                let mut others: Vec<_> = voters.map(|id| (matched(&id), id)).collect();
                others.sort_unstable();
                let (matched, best) = *others.last()?;
                let applied = metrics.last_applied.map(|id| id.index);
                if matched >= metrics.last_log_index && applied >= metrics.last_log_index {
                    return Some(best);
                }
            }
            timeout_at(deadline, metrics.changed()).await.ok()?.ok()?;
        }
    }
}

impl Inner {
    fn assemble(core: Arc<Core>, log: Arc<LogStore>, tracker: Arc<Tracker>, times: &TimeInState) -> Self {
        let consensus: Arc<dyn Consensus> = Arc::new(RaftConsensus::new(core.raft.clone()));
        let leadership =
            Leadership::new(Arc::clone(&core.clock), Arc::clone(&consensus), core.config.timing.election_min());
        times.count_for(Arc::clone(&leadership));
        let parts = propose::Parts {
            consensus: Arc::clone(&consensus),
            forward: Arc::new(core.peers.clone()),
            leadership: Arc::clone(&leadership),
            tracker: Arc::clone(&tracker),
        };
        let proposer = Proposer::start(parts, propose::Limits::default(), core.stopping.clone());
        let ask = Arc::new(core.peers.clone());
        let reader = Reader::start(Arc::clone(&consensus), ask, Arc::clone(&tracker), core.stopping.clone());
        let fresh = Freshness::new(Arc::clone(&core.clock), Arc::clone(&tracker), core.config.reads);
        let (members, repeats) = (Members::new(), Repeats::new());
        let tasks = Mutex::default();
        let inner = Self { core, log, tracker, consensus, proposer, reader, fresh, repeats, members, tasks };
        inner.spawn_chores(leadership);
        inner.spawn_background();
        inner
    }

    fn wall_parts(&self) -> wall::Parts {
        let Self { core, tracker, consensus, proposer, .. } = self;
        wall::Parts {
            consensus: Arc::clone(consensus),
            ask: Arc::new(core.peers.clone()),
            clock: Arc::clone(&core.clock),
            tracker: Arc::clone(tracker),
            proposer: proposer.clone(),
        }
    }

    /// What this node does whenever it leads.
    fn spawn_chores(&self, leadership: Arc<Leadership>) {
        let Self { core, tracker, consensus, proposer, .. } = self;
        let stop = &core.stopping;
        self.spawn(wall::run(self.wall_parts(), core.config.timing.max_clock_skew(), stop.clone()));
        let retention_parts = retention::Parts {
            consensus: Arc::clone(consensus),
            source: Arc::new(Source(core.state.clone())),
            proposer: proposer.clone(),
            interval: core.config.retention.interval,
        };
        self.spawn(retention::run(retention_parts, stop.clone()));
        let (tracker, proposer) = (Arc::clone(tracker), proposer.clone());
        self.spawn(sweep::run(leadership, tracker, proposer, Arc::clone(consensus), stop.clone()));
    }

    /// What it does whoever leads.
    fn spawn_background(&self) {
        let Self { core, proposer, reader, fresh, repeats, members, .. } = self;
        let stop = &core.stopping;
        self.spawn(Arc::clone(fresh).renew(reader.clone(), stop.clone()));
        self.spawn(Arc::clone(repeats).tell(proposer.clone(), stop.clone()));
        self.spawn(maintenance::flush(Arc::clone(core)));
        self.spawn(maintenance::compact(Arc::clone(core)));
        self.spawn(maintenance::scrub(Arc::clone(core)));
        self.spawn(maintenance::watch_fatal(Arc::clone(core)));
        self.spawn(maintenance::follow_membership(Arc::clone(core)));
        self.spawn(series::publish(Arc::clone(core)));
        self.spawn(state_series::publish(Arc::clone(core)));
        self.spawn(status::poll(Arc::clone(core), Arc::clone(members), proposer.clone()));
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
    }
}

/// A consistent view of the state, and the revision that it is of.
pub struct ReadGuard(StateView);

impl ReadGuard {
    /// The revision of the view: after every command of the last entry it has applied.
    pub fn revision(&self) -> Revision {
        let index = self.0.applied().map_or(0, |id| id.index);
        Revision { incarnation: self.0.head().incarnation, group: GROUP, index, ordinal: u32::MAX }
    }
}

impl Deref for ReadGuard {
    type Target = StateView;

    fn deref(&self) -> &StateView {
        &self.0
    }
}

/// Why a node cannot serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// Its storage or consensus has failed.
    #[error("fatal: {0}")]
    Fatal(String),
    /// It is shutting down.
    #[error("draining")]
    Draining,
    /// No quorum confirmed a read in time.
    #[error("no quorum confirmed a read in time")]
    NoQuorum,
    /// The cluster's life has not begun.
    #[error("the cluster was not bootstrapped")]
    NotBootstrapped,
}

/// What peers ask of the application.
struct App {
    core: Arc<Core>,
    proposer: Proposer,
    reader: Reader,
    members: Arc<Members>,
}

impl AppHandler for App {
    async fn handle(&self, _from: NodeId, kind: u8, payload: Bytes) -> Bytes {
        match kind {
            kind::FORWARD => self.proposer.serve_forward(payload).await,
            kind::READ_INDEX => {
                let index = self.reader.serve_read_index().await;
                self.core.tail.commit_wanted();
                index.to_payload()
            }
            kind::STATUS => self.members.own(&self.core).await.to_payload(),
            kind::CLOCK => wall::serve_clock(&*self.core.clock),
            // A later version's question. An empty answer is none of any kind.
            _ => Bytes::new(),
        }
    }
}
