//! The beginning of a cluster's life: once, by one node, with an empty directory, while no peer knows a cluster.
//! Every step may be repeated after a crash; none does anything twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hapax_machine::Command;
use hapax_machine::command::Bootstrap;
use hapax_machine::outcome::{Answer, Refusal};
use openraft::errors::{InitializeError, RaftError};
use tokio::time::Instant;

use crate::core::Core;
use crate::node::Node;
use crate::status;
use crate::types::{DataId, NodeId};

/// Pause between two rounds of asking the peers, and between two proposals.
const PAUSE: Duration = Duration::from_millis(250);
/// How long one question or one proposal may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a cluster came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bootstrapped {
    /// It was begun with this command.
    Now,
    /// It was begun before; the command changed nothing.
    Before,
}

/// Why a cluster was not begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// This node is empty, but a peer belongs to a cluster already. A node that lost its data joins again under a new
    /// node id; beginning a second cluster in its place would lose what the first one promised.
    #[error(
        "node {0} belongs to a cluster already, but this node's data directory is empty: if its data was lost, it must \
         join again, empty, under a new node id"
    )]
    ClusterExists(NodeId),
    /// Consensus refused or stopped.
    #[error("consensus: {0}")]
    Consensus(String),
    /// The command was answered with something that is no answer to it.
    #[error("unexpected answer to the bootstrap command: {0}")]
    Unexpected(String),
    /// The node is shutting down.
    #[error("the node is shutting down")]
    Stopping,
}

impl Node {
    /// Begins the cluster with the configured members, unless it was begun before. Waits, for as long as it takes, for
    /// every configured peer to answer that it knows no cluster, and then for a leader.
    ///
    /// # Errors
    /// See [`BootstrapError`]; it may be called again.
    pub async fn bootstrap(&self, command: Bootstrap) -> Result<Bootstrapped, BootstrapError> {
        let core = self.core();
        let initialized = core.raft.is_initialized().await.map_err(|error| consensus(&error))?;
        if !initialized {
            let mut data = tokio::select! {
                () = core.draining.cancelled() => return Err(BootstrapError::Stopping),
                asked = no_peer_knows_a_cluster(core) => asked?,
            };
            data.insert(core.config.id, core.peers.identity().data);
            let mut members = core.config.members.clone();
            for (id, member) in &mut members {
                member.data = data.get(id).copied().unwrap_or_default();
            }
            match core.raft.initialize(members).await {
                // Not allowed: a leader spoke to this node in the meantime.
                Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
                Err(error) => return Err(consensus(&error)),
            }
        }
        loop {
            if core.draining.is_cancelled() {
                return Err(BootstrapError::Stopping);
            }
            let proposed = self.propose(Command::Bootstrap(command.clone()), Instant::now() + PATIENCE).await;
            match proposed.map(|outcome| outcome.answer) {
                Ok(Answer::Bootstrapped) => return Ok(Bootstrapped::Now),
                Ok(Answer::Refused(refused)) if refused.reason == Refusal::AlreadyBootstrapped => {
                    return Ok(Bootstrapped::Before);
                }
                Ok(other) => return Err(BootstrapError::Unexpected(format!("{other:?}"))),
                Err(error) => tracing::info!(%error, "the bootstrap command is proposed again"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn consensus(error: &dyn std::fmt::Display) -> BootstrapError {
    BootstrapError::Consensus(error.to_string())
}

/// Asks every configured peer until all of them have answered, and gives the data that each of them has. One that cannot
/// be reached may be the one that knows.
async fn no_peer_knows_a_cluster(core: &Arc<Core>) -> Result<BTreeMap<NodeId, DataId>, BootstrapError> {
    let mut data = BTreeMap::new();
    let mut unasked: Vec<NodeId> = core.config.members.keys().copied().filter(|id| *id != core.config.id).collect();
    let mut said = Instant::now();
    loop {
        let asked =
            unasked.iter().map(|peer| async { (*peer, status::ask(core, *peer, Instant::now() + PATIENCE).await) });
        let mut silent = Vec::new();
        for (peer, answer) in futures::future::join_all(asked).await {
            match answer {
                Ok(status) if status.initialized => return Err(BootstrapError::ClusterExists(peer)),
                Ok(status) => {
                    data.insert(peer, status.data);
                }
                Err(error) => {
                    tracing::debug!(peer, %error, "peer not asked yet");
                    silent.push(peer);
                }
            }
        }
        // A peer that knows this node with other data has a membership.
        if let Some(peer) = core.peers.members().refusing() {
            return Err(BootstrapError::ClusterExists(peer));
        }
        if silent.is_empty() {
            return Ok(data);
        }
        if said.elapsed() >= PATIENCE {
            tracing::info!(waiting_for = ?silent, "the cluster begins once every configured peer was asked");
            said = Instant::now();
        }
        unasked = silent;
        tokio::time::sleep(PAUSE).await;
    }
}
