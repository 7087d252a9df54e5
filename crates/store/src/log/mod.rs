//! The Raft log of a node: entries, votes and marks of all its groups, in one ordered write-ahead log.
//!
//! # What it promises
//! 1. **Readable at once, durable at the callback.** An append can be read when it returns; its callback runs after the
//!    sync. Callbacks of a group come in the order of its requests, and say that all before them is durable too.
//! 2. **One order.** Votes, appends, truncations and purges of all groups pass through one writer thread into one
//!    write-ahead log. A crash cuts off the end of it, never a piece of the middle.
//! 3. **One sync for all.** Whatever waits when the writer comes round shares one batch and one sync.
//! 4. **Loss is noticed.** Entries chain to each other by checksum, and the side file (`promises`) remembers each
//!    group's vote and last acknowledged id, at most [`LAG_MAX`] late (a vote: never late). A log that lost
//!    what it acknowledged does not open, and says where.
//! 5. **The first fault is the last.** After any storage error nothing is acknowledged; the fatal hook is told once.
//!
//! # What it does not promise
//! Of what was acknowledged in the last [`LAG_MAX`] before a crash, damage to the very last batch of the write-ahead
//! log cannot be told from a write that the crash interrupted: that batch may then be lost unnoticed. Every older
//! batch is followed by another one, and damage in front of a sound batch is never an interrupted write (`scan`).
//! A log whose every file was replaced by an older copy of itself is not noticed by it alone.
//!
//! # Code map
//! `store` handles · `read` reads · `group` one group's memory · `writer` queue and writer · `promises` what the side
//! file says · `verify`, `look` and `scan` the checks at open · `rocks` with `side_file`, and `memory`, the two disks ·
//! `inspect` the doctor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_codec::log::LogId;

use crate::seam::{FatalHook, LogObserver, Unobserved};

mod clock;
mod error;
mod group;
mod inspect;
mod keys;
mod look;
mod memory;
mod promises;
mod read;
mod rocks;
mod scan;
mod side_file;
mod store;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use error::{LogError, OpenError};
pub use inspect::{GroupReport, Report, inspect};
pub use memory::{Crash, MemoryDisk};
pub use promises::LAG_MAX;
pub use store::{GroupLog, LogStore};
pub use writer::{Done, QUEUE_BYTES_MAX, QUEUE_REQUESTS_MAX};

/// Payload and bookkeeping bytes of recent entries that each group keeps in memory by default.
pub const CACHE_BYTES: usize = 64 << 20;

/// How to open a log.
#[derive(Clone)]
pub struct OpenOptions {
    /// By group: what its state machine has applied, as far as that is on disk. Counts as held, if the log is not.
    pub applied: BTreeMap<u32, LogId>,
    /// Told once when the storage fails: the process must stop.
    pub fatal: FatalHook,
    /// Told what the log does.
    pub observer: Arc<dyn LogObserver>,
    /// Bytes of recent entries that each group keeps in memory. What is not on disk yet is kept beyond it.
    pub cache_bytes_max: usize,
    /// False: no threads are started, and nothing becomes durable before [`LogStore::pump`]; for simulations.
    pub threads: bool,
}

impl OpenOptions {
    /// Defaults, with the hook that must stop the process.
    pub fn new(fatal: FatalHook) -> OpenOptions {
        OpenOptions {
            applied: BTreeMap::new(),
            fatal,
            observer: Arc::new(Unobserved),
            cache_bytes_max: CACHE_BYTES,
            threads: true,
        }
    }
}

/// Locks; a panic elsewhere while it was held does not add another one here: it was told as a fault.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
