//! The types that openraft is instantiated with, and their short names.
//! Owns no behaviour: log, state, network and proposals meet here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
pub use hapax_codec::membership::DataId;
use hapax_machine::Outcome;

// openraft's macro still names the runtime by a path that it has deprecated itself.
#[allow(deprecated)]
mod config {
    use super::{ApplyResponse, PeerNode, Proposal};

    openraft::declare_raft_types!(
        /// What this cluster's consensus is made of. One leader per term (`leader_id_std`), since the
        /// replicated clocks take a new term for a new leadership.
        pub TypeConfig:
            D = Proposal,
            R = ApplyResponse,
            NodeId = u64,
            Node = PeerNode,
            LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
    );
}

pub use config::TypeConfig;

/// A node's number; never given to another node.
pub type NodeId = u64;
/// A vote: term, node, and whether a quorum granted it.
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
/// A log entry's place: term and index.
pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
/// The id of a term's leader as it is written in log ids: the term.
pub type CommittedLeaderId = openraft::type_config::alias::CommittedLeaderIdOf<TypeConfig>;
/// A log entry.
pub type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
/// Voters, learners and how to reach them.
pub type Membership = openraft::Membership<NodeId, PeerNode>;
/// A membership and the entry that set it.
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
/// What a snapshot is of.
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot: its meta and its files.
pub type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, SnapshotFiles>;

/// openraft on this crate's types and state machine.
pub type Raft = openraft::Raft<TypeConfig, crate::state_adapter::StateAdapter>;

/// A member as its peers and its clients reach it, and the data it is known with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerNode {
    /// `host:port` of the peer listener.
    pub addr: String,
    /// The node's region.
    pub region: String,
    /// Base URL of the client listener.
    pub client_url: String,
    /// The data directory that it joined with; unknown where the configuration names it, known in a membership.
    pub data: DataId,
}

/// An encoded batch of commands: encoded once by the proposer, then carried, stored and sent as
/// the same bytes.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Proposal(pub Bytes);

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What applying an entry answers to its proposer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApplyResponse {
    /// One outcome per command of the entry, in order; none where the entry held no commands.
    pub outcomes: Vec<Outcome>,
}

impl fmt::Display for ApplyResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} outcomes", self.outcomes.len())
    }
}

/// The files of a snapshot in one flat directory. Clones share the directory.
#[derive(Debug, Clone)]
pub struct SnapshotFiles {
    /// Where the files are; kept alive by every transfer that still reads them.
    pub dir: Arc<SnapshotDir>,
    /// Every file; anything else in the directory is not part of the snapshot.
    pub files: Vec<SnapshotFile>,
}

/// One file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    /// A plain file name, see [`hapax_codec::peer::snapshot::is_plain_name`].
    pub name: String,
    /// Length in bytes.
    pub len: u64,
}

/// How often a snapshot's directory is tried to be removed, one time after the other.
const REMOVE_ATTEMPTS: usize = 3;

/// A snapshot's directory. It is removed with its last user once it was marked for that: a
/// snapshot that was superseded stays readable to a transfer that is under way.
#[derive(Debug)]
pub struct SnapshotDir {
    path: PathBuf,
    discard: AtomicBool,
}

impl SnapshotDir {
    /// A directory that stays.
    pub fn keep(path: PathBuf) -> Self {
        Self { path, discard: AtomicBool::new(false) }
    }

    /// A directory that goes with its last user, unless it was moved away before.
    pub fn scratch(path: PathBuf) -> Self {
        Self { path, discard: AtomicBool::new(true) }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on the directory goes with its last user.
    pub fn discard(&self) {
        self.discard.store(true, Ordering::Relaxed);
    }
}

impl Drop for SnapshotDir {
    fn drop(&mut self) {
        if !self.discard.load(Ordering::Relaxed) {
            return;
        }
        // A write that was under way when its transfer was dropped may put one more file there.
        let removed = (0..REMOVE_ATTEMPTS).map(|_| std::fs::remove_dir_all(&self.path)).find(|removed| {
            removed.as_ref().map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |()| true)
        });
        if removed.is_none() {
            // What is left over is removed at the next start.
            tracing::warn!(path = %self.path.display(), "snapshot directory not removed");
        }
    }
}
