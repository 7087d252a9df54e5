//! What a node knows of itself and of the other members: asked of each peer once a second, answered at once.
//! Bootstrapping asks the same question before it begins a cluster. One thing is decided here: a node whose state
//! differs from that of a majority stops, and where there is no majority, writes do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hapax_codec::peer::DecodeError;
pub use hapax_codec::peer::status::NodeStatus;
use hapax_machine::View;
use metrics::gauge;
use openraft::async_runtime::WatchReceiver;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::agreement::{Heard, Verdict};
use crate::core::Core;
use crate::propose::Proposer;
use crate::transport::CallError;
use crate::transport::peers::kind;
use crate::types::NodeId;

/// How often each peer is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// A peer whose last answer is older than this does not count as reachable.
const STALE: Duration = Duration::from_secs(3);

/// What a member is to consensus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Votes and leads.
    Leader,
    /// Votes.
    Voter,
    /// Receives the log and does not vote.
    Learner,
}

/// One member, as far as the asked node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Its region.
    pub region: String,
    /// What it is to consensus.
    pub role: Role,
    /// Where peers reach it.
    pub addr: String,
    /// Where clients reach it; empty where it was never heard.
    pub client_url: String,
    /// The last index it has applied; the last one it is known to have, where it was not heard lately.
    pub applied_index: Option<u64>,
    /// Entries between that and the end of the leader's log.
    pub lag: Option<u64>,
    /// Whether it was heard lately.
    pub reachable: bool,
    /// Smoothed round-trip time; `None` for the asked node itself, and before there was a sample.
    pub round_trip: Option<Duration>,
}

/// What a node knows of itself and of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The asked node.
    pub node_id: NodeId,
    /// The leader it knows, if any.
    pub leader: Option<NodeId>,
    /// Its term.
    pub term: u64,
    /// All members, by number; before there is a membership, those of the configuration.
    pub members: Vec<Member>,
    /// The last index it has applied; 0 where there is none.
    pub applied_index: u64,
    /// The last index in its log; 0 where there is none.
    pub last_log_index: u64,
    /// The last index that was purged from its log; 0 where there is none.
    pub purged_index: u64,
    /// The last index in its current snapshot; 0 where there is none.
    pub snapshot_index: u64,
    /// The state hash at `applied_index`.
    pub state_hash: [u8; 32],
    /// The cluster's id; zero before its life began.
    pub cluster_id: [u8; 16],
    /// The life of the cluster; 0 before it began.
    pub incarnation: u32,
}

/// What was heard of the peers.
pub(crate) struct Members(Mutex<BTreeMap<NodeId, Known>>);

struct Known {
    status: NodeStatus,
    at: Instant,
}

impl Members {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this node says of itself to a peer.
    pub(crate) async fn own(&self, core: &Core) -> NodeStatus {
        // A consensus that has stopped has a log: it belongs to a cluster.
        let initialized = core.raft.is_initialized().await.unwrap_or(true);
        let own = core.config.members.get(&core.config.id);
        let metrics = core.raft.metrics();
        let metrics = metrics.borrow_watched();
        NodeStatus {
            node: core.config.id,
            data: core.peers.identity().data,
            initialized,
            cluster_id: core.state.view().head().cluster_id,
            term: metrics.current_term,
            leader: metrics.current_leader,
            applied: metrics.last_applied.map_or(0, |id| id.index),
            last_log: metrics.last_log_index.unwrap_or_default(),
            // A failed read has told the fatal hook.
            hash: core.state.newest_state_hash().ok().flatten(),
            region: own.map(|node| node.region.clone()).unwrap_or_default(),
            client_url: own.map(|node| node.client_url.clone()).unwrap_or_default(),
        }
    }

    /// What this node knows now.
    pub(crate) fn status(&self, core: &Core) -> Status {
        let view = core.state.view();
        let head = view.head();
        let applied_index = view.applied().map_or(0, |id| id.index);
        let metrics = core.raft.metrics();
        let metrics = metrics.borrow_watched();
        let heard = self.lock();
        let membership = metrics.membership_config.membership();
        let voters: Vec<NodeId> = membership.voter_ids().collect();
        let mut nodes: BTreeMap<NodeId, _> = membership.nodes().map(|(id, node)| (*id, node)).collect();
        if nodes.is_empty() {
            nodes = core.config.members.iter().map(|(id, node)| (*id, node)).collect();
        }
        // The end of the leader's log, as far as anybody has heard of it.
        let last_logs = heard.values().map(|heard| heard.status.last_log);
        let end = last_logs.chain(metrics.last_log_index).max().unwrap_or_default();
        let member = |(id, node): (NodeId, &crate::types::PeerNode)| {
            let is_own = id == core.config.id;
            let known = heard.get(&id);
            let fresh = known.filter(|heard| heard.at.elapsed() < STALE);
            let own = core.config.members.get(&id).filter(|_| is_own).unwrap_or(node);
            let matched = metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten());
            let applied_index = match fresh {
                _ if is_own => Some(applied_index),
                Some(heard) => Some(heard.status.applied),
                None => matched.map(|id| id.index),
            };
            let role = match metrics.current_leader == Some(id) {
                true => Role::Leader,
                false if voters.contains(&id) || voters.is_empty() => Role::Voter,
                false => Role::Learner,
            };
            let told = |own: &str, told: Option<&String>| match told {
                Some(told) if !told.is_empty() => told.clone(),
                _ => own.to_owned(),
            };
            Member {
                id,
                region: told(&own.region, known.map(|heard| &heard.status.region)),
                role,
                addr: node.addr.clone(),
                client_url: told(&own.client_url, known.map(|heard| &heard.status.client_url)),
                applied_index,
                lag: applied_index.map(|applied| end.saturating_sub(applied)),
                reachable: is_own || fresh.is_some(),
                round_trip: core.peers.rtt(id),
            }
        };
        Status {
            node_id: core.config.id,
            leader: metrics.current_leader,
            term: metrics.current_term,
            members: nodes.into_iter().map(member).collect(),
            applied_index,
            last_log_index: metrics.last_log_index.unwrap_or_default(),
            purged_index: metrics.purged.map_or(0, |id| id.index),
            snapshot_index: metrics.snapshot.map_or(0, |id| id.index),
            state_hash: head.state_hash,
            cluster_id: head.cluster_id,
            incarnation: head.incarnation.0,
        }
    }
}

/// Why a peer's status is not known.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Not an answer.
    #[error("malformed status: {0}")]
    Malformed(#[from] DecodeError),
}

/// Asks a peer what it says of itself.
pub(crate) async fn ask(core: &Core, peer: NodeId, deadline: Instant) -> Result<NodeStatus, AskError> {
    let answer = core.peers.call(peer, kind::STATUS, Bytes::new(), deadline).await?;
    Ok(NodeStatus::from_payload(answer)?)
}

/// Asks every peer once a second until the node stops.
pub(crate) async fn poll(core: Arc<Core>, members: Arc<Members>, proposer: Proposer) {
    let mut hashes = Heard::default();
    let mut due = interval(ASK_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = core.stopping.cancelled() => return,
            _ = due.tick() => {}
        }
        let peers = core.peers.known();
        let asked = peers.iter().map(|peer| async { (*peer, ask(&core, *peer, Instant::now() + ASK_EVERY).await) });
        let answers = tokio::select! {
            () = core.stopping.cancelled() => return,
            answers = futures::future::join_all(asked) => answers,
        };
        let answers: Vec<_> =
            answers.into_iter().filter_map(|(peer, answer)| answer.ok().map(|status| (peer, status))).collect();
        for (peer, NodeStatus { hash, .. }) in &answers {
            if let Some((index, hash)) = hash {
                hashes.note(*peer, *index, *hash);
            }
        }
        compare(&core, &hashes, &proposer);
        let mut known = members.lock();
        known.retain(|peer, _| peers.contains(peer));
        let at = Instant::now();
        known.extend(answers.into_iter().map(|(peer, status)| (peer, Known { status, at })));
    }
}

/// Stops this node if its state is not that of a majority, and its writes while it cannot be told whose state is wrong.
fn compare(core: &Core, hashes: &Heard, proposer: &Proposer) {
    let metrics = core.raft.server_metrics();
    let membership = Arc::clone(&metrics.borrow_watched().membership_config);
    let view = core.state.view();
    // A failed read has told the fatal hook.
    let held = |index| view.state_hash_at(index).ok().flatten();
    let found = hashes.judge(core.config.id, membership.membership().get_joint_config(), held);
    gauge!("hapax_state_hash_mismatch").set(f64::from(u8::from(found.is_some())));
    proposer.suspend(matches!(found, Some((_, Verdict::Undecided))));
    match found {
        Some((index, Verdict::Outlier)) => {
            core.fatal
                .raise(format!("a majority of the voters agrees on another state than this node's at index {index}"));
        }
        Some((index, Verdict::Undecided)) => {
            tracing::error!(index, "the replicas' states differ, and it cannot be told whose is wrong: writes stop");
        }
        Some((index, Verdict::OtherIsOutlier)) => {
            tracing::error!(index, "another replica's state differs from that of a majority, this node's among them");
        }
        Some((_, Verdict::Same)) | None => {}
    }
}
