//! Snapshots: a checkpoint of the state in a directory of its own, and the installation of a received one.
//! Owns the `snapshots` directory; sending and receiving are the network's.
//!
//! A checkpoint is hard links and a flush, and its metadata is read from the checkpoint itself. Snapshots are not kept
//! across restarts: a fresh one costs as little, and nothing stale can be sent.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_store::state::{CheckpointFile, StateStore};
use openraft::storage::RaftSnapshotBuilder;

use crate::state_adapter::decode_applied;
use crate::types::{Snapshot, SnapshotDir, SnapshotFile, SnapshotFiles, SnapshotMeta, TypeConfig};

/// The snapshots of a node: at most one is current, older ones live as long as somebody still sends them.
pub struct Snapshots {
    dir: PathBuf,
    state: StateStore,
    next: AtomicU64,
    current: Mutex<Option<Snapshot>>,
}

impl Snapshots {
    /// Takes over the directory; whatever an earlier process left there is removed.
    ///
    /// # Errors
    /// The directory cannot be emptied or made.
    pub fn open(dir: PathBuf, state: StateStore) -> io::Result<Arc<Self>> {
        match fs::remove_dir_all(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::create_dir_all(&dir)?;
        Ok(Arc::new(Self { dir, state, next: AtomicU64::new(0), current: Mutex::new(None) }))
    }

    /// The current snapshot. No IO.
    pub fn current(&self) -> Option<Snapshot> {
        self.lock().clone()
    }

    /// Makes a checkpoint and makes it the current snapshot. Blocks for a flush.
    ///
    /// # Errors
    /// The state's disk refused.
    pub fn build(&self) -> io::Result<Snapshot> {
        let path = self.dir.join(format!("built-{}", self.next.fetch_add(1, Ordering::Relaxed)));
        let meta = self.state.checkpoint(&path).map_err(io::Error::other)?;
        let dir = Arc::new(SnapshotDir::keep(path));
        let (last_log_id, last_membership) = decode_applied(&meta.applied)?;
        let file = |file: CheckpointFile| SnapshotFile { name: file.name, len: file.len };
        let files = meta.files.into_iter().map(file).collect();
        let snapshot =
            Snapshot { meta: SnapshotMeta { last_log_id, last_membership }, snapshot: SnapshotFiles { dir, files } };
        self.replace(snapshot.clone());
        Ok(snapshot)
    }

    /// Puts a received snapshot in the state's place, durably, and keeps it as the current snapshot. Blocks.
    ///
    /// # Errors
    /// The files are not the snapshot that its meta says, or the disk refused.
    pub fn install(&self, snapshot: Snapshot) -> io::Result<()> {
        let dir = snapshot.snapshot.dir.path();
        // Looked at before anything is replaced: what the sender's meta says must be what its files hold.
        let found = self.state.read_checkpoint(dir).map_err(io::Error::other)?;
        let (last_log_id, last_membership) = decode_applied(&found.applied)?;
        let found = SnapshotMeta { last_log_id, last_membership };
        if found != snapshot.meta {
            return Err(io::Error::other(format!("a snapshot said to be {} holds {found}", snapshot.meta)));
        }
        self.state.install(dir).map_err(io::Error::other)?;
        self.replace(snapshot);
        Ok(())
    }

    /// Makes `snapshot` the current one, unless a newer one came first: a build may end after an installation.
    fn replace(&self, snapshot: Snapshot) {
        let mut current = self.lock();
        let newer = current.as_ref().is_some_and(|current| current.meta.last_log_id > snapshot.meta.last_log_id);
        if newer {
            snapshot.snapshot.dir.discard();
        } else if let Some(old) = current.replace(snapshot) {
            old.snapshot.dir.discard();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Snapshot>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Builds a snapshot off the apply worker.
pub struct Builder(Arc<Snapshots>);

impl Builder {
    pub(crate) fn new(snapshots: Arc<Snapshots>) -> Self {
        Self(snapshots)
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotFiles;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let snapshots = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || snapshots.build()).await.map_err(io::Error::other)?
    }
}
