//! What can go wrong with the state: a refusal to open, a checkpoint that is not whole, a fault while running.
//! Each names the file and what the operator can do; a fault is the shared [`StorageFault`].

use std::path::PathBuf;

use crate::seam::StorageFault;

/// What an operator can do about a state that is damaged.
pub(super) const REBUILD: &str = "the state of one node can be rebuilt: remove the node from the cluster and join it again, empty, under a \
     new node id; a copy of the directory is worth keeping";
/// What an operator can do about a file that cannot be read or written.
pub(super) const LOOK: &str = "look at the disk, its free space and the directory's owner";

/// Why the state was not opened. Nothing was repaired: opening again refuses again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}; {advice}", file.display())]
pub struct OpenError {
    /// The file, or the directory where RocksDB names no file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub detail: String,
    /// What the operator can do.
    pub advice: &'static str,
}

/// Why a directory is not a whole checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("checkpoint file {}: {detail}", file.display())]
pub struct CheckpointError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub detail: String,
}

/// Why a checkpoint was not installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// It is not whole; nothing changed, and another one may be installed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// This node's storage failed; the node must stop.
    #[error(transparent)]
    Storage(#[from] StorageFault),
}
