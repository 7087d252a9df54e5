//! What can go wrong with the log: a refusal to open, and the errors of its calls.
//! A refusal names the file or the index, and what the operator can do.

use std::path::PathBuf;

use hapax_codec::log::side::GROUPS_MAX;
use hapax_codec::log::{LogId, Vote};

use crate::seam::StorageFault;

const SUSPECT: &str = "this node may have lost what it promised to others and must not vote: restore the file from where it was \
     moved, or remove the node from the cluster and join it again, empty, under a new node id; \
     `hapax doctor log` shows what a copy of the directory holds";

/// Why the log was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A file could not be read, written or locked. Nothing is known to be damaged.
    #[error("{operation} failed on {}: {reason}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// There is no log, but the state machine has applied entries.
    #[error("{} holds no log, though the state of group {group} stands at {applied}; {SUSPECT}", path.display())]
    Missing {
        /// The log's directory.
        path: PathBuf,
        /// A group with a state.
        group: u32,
        /// What it has applied.
        applied: LogId,
    },
    /// The side file is absent from a directory that is not empty.
    #[error("side file {} is missing; {SUSPECT}", path.display())]
    SideMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The side file is damaged.
    #[error("side file {} is damaged: {reason}; {SUSPECT}", path.display())]
    SideDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A file of the database is damaged where no interrupted write can have damaged it.
    #[error("{} is damaged at byte {offset}: {reason}; {SUSPECT}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// RocksDB refused to open the database.
    #[error("{place} does not open: {reason}; {SUSPECT}")]
    Database {
        /// The database and its newest files.
        place: String,
        /// What RocksDB said; names the file where RocksDB does.
        reason: String,
    },
    /// A stored row cannot be read or decoded.
    #[error("{place}: {row} of group {group} cannot be read: {reason}; {SUSPECT}")]
    Row {
        /// The database.
        place: String,
        /// The group.
        group: u32,
        /// Which row.
        row: String,
        /// Why.
        reason: String,
    },
    /// An index between the first and the last is absent.
    #[error("{place}: group {group} has no entry at index {index}, though it has one at {found}; {SUSPECT}")]
    Hole {
        /// The database and its newest files.
        place: String,
        /// The group.
        group: u32,
        /// The absent index.
        index: u64,
        /// The next index present.
        found: u64,
    },
    /// An entry's checksum does not chain to its predecessor.
    #[error("{place}: the entry of group {group} at index {index} does not follow the one before it; {SUSPECT}")]
    Chain {
        /// The database and its newest files.
        place: String,
        /// The group.
        group: u32,
        /// The entry.
        index: u64,
    },
    /// The log holds an older vote than the side file says was given.
    #[error("{place}: group {group} gave the vote {promised:?}, but the log holds {stored:?}; {SUSPECT}")]
    VoteLost {
        /// The database and its newest files.
        place: String,
        /// The group.
        group: u32,
        /// The vote in the log.
        stored: Option<Vote>,
        /// The vote in the side file.
        promised: Vote,
    },
    /// Entries were acknowledged that are no longer there.
    #[error(
        "{place}: group {group} acknowledged {promised}, but its log ends at {}; {SUSPECT}",
        last.map_or_else(|| "nothing".to_owned(), |id| id.to_string())
    )]
    EntriesLost {
        /// The database and its newest files.
        place: String,
        /// The group.
        group: u32,
        /// The last entry, or what was purged where there is none.
        last: Option<LogId>,
        /// What the side file says was acknowledged.
        promised: LogId,
    },
    /// The log holds another entry than the one that was acknowledged.
    #[error("{place}: group {group} acknowledged {promised}, but its log holds {found} there; {SUSPECT}")]
    EntryReplaced {
        /// The database and its newest files.
        place: String,
        /// The group.
        group: u32,
        /// What was acknowledged.
        promised: LogId,
        /// What is there.
        found: LogId,
    },
    /// The log holds more groups than the side file has room for.
    #[error("{place}: {groups} groups, but a side file has room for {GROUPS_MAX}")]
    TooManyGroups {
        /// The database.
        place: String,
        /// How many there are.
        groups: usize,
    },
}

impl OpenError {
    /// True if the node must be treated as having lost what it promised: it may neither vote nor be restarted empty under its id.
    pub fn is_suspect(&self) -> bool {
        !matches!(self, OpenError::Io { .. } | OpenError::TooManyGroups { .. })
    }
}

/// Why a call of a group's log failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The storage has failed, now or earlier; the fatal hook was told.
    #[error(transparent)]
    Fault(#[from] StorageFault),
    /// The log was shut down.
    #[error("the log is shut down")]
    Closed,
    /// The caller broke the contract; nothing was changed.
    #[error("refused: {0}")]
    Refused(String),
}
