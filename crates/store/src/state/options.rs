//! How a state is opened: its limits, and the seams that tests reach through.
//! Every limit of the state is here.

use std::sync::Arc;
use std::time::Duration;

use hapax_machine::ids::GroupId;

use super::events::EVENTS_KEPT;

/// How a state is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The group whose rows these are.
    pub group: GroupId,
    /// Memory for blocks that were read, filters and indexes first; bytes.
    pub block_cache_bytes: usize,
    /// Memory for what was not flushed, all families together; bytes. Above it RocksDB flushes on its own, and when the disk
    /// does not keep up, commits wait.
    pub write_buffer_bytes: usize,
    /// Threads that flush and compact.
    pub background_jobs: i32,
    /// [`super::StateStore::flush_if_due`] flushes when this much was committed since the last flush; bytes. The log holds
    /// what was not flushed, and a restart applies it again.
    pub flush_after_bytes: u64,
    /// ... and when something was committed so long ago and was not flushed.
    pub flush_after: Duration,
    /// So many entries keep their events; every node of a cluster keeps as many.
    pub(crate) events_kept: u64,
    /// Crash points, for tests.
    pub(crate) probe: Probe,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            group: GroupId(0),
            block_cache_bytes: 128 << 20,
            write_buffer_bytes: 64 << 20,
            background_jobs: 2,
            flush_after_bytes: 32 << 20,
            flush_after: Duration::from_secs(60),
            events_kept: EVENTS_KEPT,
            probe: Probe::default(),
        }
    }
}

/// A point that a crash test may stop at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage<'a> {
    /// A commit is encoded and not written.
    CommitEncoded,
    /// A commit is written and not published.
    CommitWritten,
    /// A flush is about to begin.
    FlushBegun,
    /// A flush has ended.
    FlushEnded,
    /// What was flushed is about to be recorded.
    FloorRaised,
    /// A checkpoint's files are there, without their list.
    CheckpointMade,
    /// A checkpoint is whole.
    CheckpointSealed,
    /// A generation is made from a checkpoint, and does not count yet.
    InstallCopied,
    /// It counts, and has no name yet.
    InstallActivated,
    /// It has its name, and is not open yet.
    InstallNamed,
    /// RocksDB said something.
    Engine(&'a str),
}

/// Told when a [`Stage`] is reached; nothing by default.
#[derive(Clone, Default)]
pub(crate) struct Probe(Option<Arc<Reached>>);

type Reached = dyn Fn(Stage<'_>) + Send + Sync;

impl Probe {
    /// Calls `reached` at every stage.
    #[cfg(test)]
    pub(crate) fn new(reached: impl Fn(Stage<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(reached)))
    }

    pub(crate) fn reached(&self, stage: Stage<'_>) {
        if let Some(reached) = &self.0 {
            reached(stage);
        }
    }
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "probed" } else { "not probed" })
    }
}
