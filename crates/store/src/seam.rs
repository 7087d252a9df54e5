//! Where the log touches a disk: the two traits below, and the faults that come back through them.
//! Behind them stand RocksDB and a file (`log::rocks`), or memory with an explicit sync boundary (`log::memory`).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_codec::log::Head;
use hapax_codec::log::side::SLOT_LEN;

/// A key of the log: group, kind of row, index, big-endian, so that one group's entries lie in order.
pub type Key = [u8; 13];

/// A disk refused, and must not be trusted with anything more: after a failed sync it may say "done" for what it lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed on {place}: {reason}")]
pub struct StorageFault {
    /// What was tried, as a verb: "sync the write-ahead log".
    pub operation: &'static str,
    /// The file or directory, as far as it is known.
    pub place: String,
    /// What the operating system or RocksDB said.
    pub reason: String,
}

/// Told once, on the thread that met it, that this node's storage has failed: the process must stop.
pub type FatalHook = Arc<dyn Fn(&StorageFault) + Send + Sync>;

/// One change of the log's rows.
#[derive(Debug, Clone)]
pub enum Change {
    /// Writes an entry: the value is `head ‖ payload`.
    Entry {
        /// Its row.
        key: Key,
        /// The encoded head.
        head: Head,
        /// The payload, shared with whoever encoded it.
        payload: Bytes,
    },
    /// Writes a vote or a mark.
    Put {
        /// Its row.
        key: Key,
        /// The encoded record.
        value: Vec<u8>,
    },
    /// Removes every row from `from` up to but not including `to`.
    DeleteRange {
        /// First row removed.
        from: Key,
        /// First row kept.
        to: Key,
    },
}

/// Called with each row of a scan, in key order.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// The ordered rows of all groups' logs.
///
/// `write` makes a batch visible to reads, all of it or nothing; only `sync` makes it survive a crash. What was written
/// since the last `sync` may be lost, but only from its end: a later batch never survives an earlier one.
pub trait LogDisk: Send + Sync {
    /// Applies a batch; not durable yet.
    ///
    /// # Errors
    /// Fatal, like every error of this trait.
    fn write(&self, batch: &[Change]) -> Result<(), StorageFault>;

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// Fatal: after it nothing may be acknowledged.
    fn sync(&self) -> Result<(), StorageFault>;

    /// The value of one row.
    ///
    /// # Errors
    /// The row's block is damaged or cannot be read.
    fn get(&self, key: &Key) -> Result<Option<Bytes>, StorageFault>;

    /// Visits the rows from `from` up to but not including `to`, as of one instant.
    ///
    /// # Errors
    /// A block is damaged or cannot be read; rows before it may have been visited.
    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<(), StorageFault>;

    /// May give back the space of rows that a synced batch has removed.
    ///
    /// # Errors
    /// Fatal.
    fn reclaim(&self, from: &Key, to: &Key) -> Result<(), StorageFault>;

    /// Closes it. Every later call fails.
    fn close(&self);
}

/// The side file: two slots of [`SLOT_LEN`] bytes.
pub trait SideDisk: Send {
    /// Writes slot 0 or 1; not durable yet.
    ///
    /// # Errors
    /// Fatal.
    fn write(&mut self, slot: usize, bytes: &[u8; SLOT_LEN]) -> Result<(), StorageFault>;

    /// Makes it durable.
    ///
    /// # Errors
    /// Fatal.
    fn sync(&mut self) -> Result<(), StorageFault>;
}

/// One round of the log writer, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Requests that shared the sync.
    pub requests: usize,
    /// Entries among them.
    pub entries: usize,
    /// Payload bytes of these entries.
    pub bytes: usize,
    /// Time to hand the batch to the store.
    pub write: Duration,
    /// Time of the sync.
    pub sync: Duration,
}

/// Told what the log does, from its own threads; it must be quick and must not call back.
pub trait LogObserver: Send + Sync {
    /// A batch was written and synced.
    fn round(&self, round: &Round) {
        let _ = round;
    }

    /// The side file was written and synced.
    fn side_synced(&self, took: Duration) {
        let _ = took;
    }

    /// A read asked for `entries` entries, `cached` of which were still in memory.
    fn read(&self, entries: usize, cached: usize) {
        let _ = (entries, cached);
    }
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl LogObserver for Unobserved {}
