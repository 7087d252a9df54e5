//! What every part of a node shares. Owns nothing that runs.

use std::sync::Arc;

use hapax_store::state::StateStore;
use tokio_util::sync::CancellationToken;

use crate::clock::NodeClock;
use crate::config::NodeConfig;
use crate::fatal::Fatal;
use crate::tail::Tail;
use crate::transport::Peers;
use crate::types::Raft;

/// The shared parts of a running node.
pub(crate) struct Core {
    pub(crate) config: NodeConfig,
    pub(crate) raft: Raft,
    pub(crate) state: StateStore,
    pub(crate) clock: Arc<dyn NodeClock>,
    pub(crate) peers: Peers,
    pub(crate) tail: Tail,
    pub(crate) fatal: Fatal,
    /// Set first when the node shuts down: new work is refused, what is under way goes on.
    pub(crate) draining: CancellationToken,
    /// Set last: every task ends.
    pub(crate) stopping: CancellationToken,
}
