//! The replicated state of one group on this node: rows, head, and how far the log was applied, always of one instant.
//!
//! # What it promises
//!
//! - **A commit is one step.** Rows, head, applied index and membership are in one batch: after any crash all of it is there
//!   or nothing, so nothing is applied twice and no entry by half.
//! - **What was flushed stays.** [`StateStore::flushed_applied`] is the only index that the log may be purged to, and it is
//!   recorded before it is told: a database that later opens with less is refused.
//! - **A view is of one instant**, whatever is committed or installed while it is used.
//! - **The first fault is the last thing it does.** A damaged block, a failed write: the fatal hook is told once, and every
//!   later call fails.
//! - **At any instant exactly one generation counts**, through any crash of an installation.
//!
//! Calls block on the disk. One thread commits; reads, flushes and checkpoints may run beside it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use hapax_codec::log::LogId;
use hapax_codec::record::{self, Applied};
use hapax_machine::Changes;
use hapax_machine::operation::OperationRecord;
use hapax_machine::tenant::TokenRecord;

mod checkpoint;
mod compaction;
mod disk;
mod error;
mod events;
mod files;
mod filter;
mod generations;
mod horizon;
mod index;
mod keys;
mod memory;
mod options;
mod query;
mod rocks;
mod rows;
mod scan;
mod scrub;
mod tables;
mod view;

#[cfg(test)]
mod tests;

pub use checkpoint::{CheckpointFile, CheckpointMeta, LIST};
pub use disk::Pace;
pub use error::{CheckpointError, InstallError, OpenError};
pub use events::{EVENTS_KEPT, EventPosition, Events};
pub use horizon::Removed;
pub use memory::MemoryState;
pub use options::OpenOptions;
pub use query::{EXAMINED_PER_PAGE, Page, Position};
pub use rows::HASH_EVERY;
pub use scrub::Scrubbed;
pub use view::{Content, StateView};

use self::checkpoint::Sums;
use self::compaction::Compacted;
use self::disk::{Disk, Family, Medium, RowBatch};
use self::options::Stage;
use self::tables::Tables;
use self::view::{Gate, Published};
use crate::seam::{FatalHook, StorageFault};

/// The state. Clones share it.
#[derive(Clone)]
pub struct StateStore(Arc<Inner>);

struct Inner {
    options: OpenOptions,
    medium: Arc<dyn Medium>,
    gate: Arc<Gate>,
    /// What readers see; replaced by every commit.
    published: RwLock<Arc<Published>>,
    /// Held by whoever changes the state.
    batch: Mutex<RowBatch>,
    /// Held by whoever flushes, makes a checkpoint or installs one: an instance is never replaced under their hands.
    upkeep: Mutex<Upkeep>,
    /// Held by a scrub: there is one at a time.
    scrub: Mutex<()>,
    /// Held by a compaction: there is one at a time.
    compaction: Mutex<Compacted>,
    unflushed: Mutex<Unflushed>,
}

#[derive(Default)]
struct Upkeep {
    /// Sums of files that never change, so that a checkpoint reads new ones only.
    sums: Sums,
    /// The recorded floor.
    floor: Option<LogId>,
}

#[derive(Default)]
struct Unflushed {
    bytes: u64,
    /// When they were first noticed.
    since: Option<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked while holding it changed nothing by half: batches are written in one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StateStore {
    /// Opens the state in directory `path`, creating it if it is absent or empty. `fatal` is told of the first fault.
    ///
    /// # Errors
    /// Something is missing or damaged, and nothing was repaired; the error names the file.
    pub fn open(path: &Path, options: OpenOptions, fatal: FatalHook) -> Result<Self, OpenError> {
        let medium = rocks::RocksMedium::new(path, &options);
        Self::assemble(Arc::new(medium), options, fatal)
    }

    fn assemble(medium: Arc<dyn Medium>, options: OpenOptions, fatal: FatalHook) -> Result<Self, OpenError> {
        let opened = medium.open()?;
        let gate = Arc::new(Gate::new(fatal));
        let published = Published::load(opened.disk, &options, Arc::clone(&gate));
        let learned = published.and_then(|published| {
            // All of it was flushed: it was just read from the disk.
            published.disk.horizon().learn(published.known()?);
            Ok(published)
        });
        let published = learned.map_err(|fault| OpenError {
            file: fault.place.into(),
            detail: format!("{}: {}", fault.operation, fault.reason),
            advice: error::REBUILD,
        })?;
        let (stands, floor) = (published.applied.last_applied, opened.floor);
        if floor.map(|id| id.index) > stands.map(|id| id.index) {
            let show = |id: Option<LogId>| id.map_or("nothing".to_owned(), |id| id.to_string());
            let detail = format!("ends at {}, although {} was flushed", show(stands), show(floor));
            return Err(OpenError { file: medium.manifest(), detail, advice: error::REBUILD });
        }
        let compacted = Compacted::at(published.disk.horizon().known());
        Ok(Self(Arc::new(Inner {
            options,
            medium,
            gate,
            published: RwLock::new(Arc::new(published)),
            batch: Mutex::default(),
            upkeep: Mutex::new(Upkeep { sums: Sums::new(), floor }),
            scrub: Mutex::default(),
            compaction: Mutex::new(compacted),
            unflushed: Mutex::default(),
        })))
    }

    /// The state as the last commit left it.
    pub fn view(&self) -> StateView {
        StateView(self.published())
    }

    /// How far the log was applied, and the membership there.
    pub fn applied(&self) -> Applied {
        self.published().applied.clone()
    }

    /// A token, from memory.
    pub fn token(&self, id: &str) -> Option<TokenRecord> {
        self.view().token(id).cloned()
    }

    /// Every operation that is executing, for the lease queue at start.
    ///
    /// # Errors
    /// A row cannot be read.
    pub fn live_leases(&self) -> Result<Vec<OperationRecord>, StorageFault> {
        let mut live = Vec::new();
        self.view().live(&mut |record| live.push(record))?;
        Ok(live)
    }

    /// The newest state hash that is kept, and its index.
    ///
    /// # Errors
    /// The row cannot be read.
    pub fn newest_state_hash(&self) -> Result<Option<(u64, [u8; 32])>, StorageFault> {
        let view = self.view();
        let index = view.applied().map_or(0, |id| id.index / HASH_EVERY * HASH_EVERY);
        Ok(view.state_hash_at(index)?.map(|hash| (index, hash)))
    }

    /// Writes what entries up to `applied` have changed, all of it in one step, and shows it to new views. Not durable before
    /// a flush. A commit at a multiple of [`HASH_EVERY`] also keeps the state hash, so a run of entries ends there.
    ///
    /// # Errors
    /// Fatal, like every fault.
    ///
    /// # Panics
    /// `applied` is not after the last commit's: an entry would be applied twice.
    pub fn commit(&self, applied: &Applied, changes: &Changes) -> Result<(), StorageFault> {
        let inner = &*self.0;
        inner.gate.check()?;
        let mut batch = lock(&inner.batch);
        let before = self.published();
        let (old, new) = (before.applied.last_applied, applied.last_applied);
        assert!(old.map(|id| id.index) < new.map(|id| id.index), "{new:?} is applied after {old:?}");
        batch.clear();
        rows::rows_of(&mut batch, inner.options.group, applied, changes, before.head.clocks.wall);
        inner.options.probe.reached(Stage::CommitEncoded);
        inner.gate.pass(before.disk.write(&batch))?;
        inner.options.probe.reached(Stage::CommitWritten);
        lock(&inner.unflushed).bytes += batch.len_bytes() as u64;
        self.publish(before.after(applied.clone(), changes));
        Ok(())
    }

    /// Makes every commit so far durable.
    ///
    /// # Errors
    /// Fatal.
    pub fn flush(&self) -> Result<(), StorageFault> {
        self.flush_under(&lock(&self.0.upkeep))
    }

    fn flush_under(&self, _held: &Upkeep) -> Result<(), StorageFault> {
        let inner = &*self.0;
        inner.gate.check()?;
        inner.options.probe.reached(Stage::FlushBegun);
        // What is committed from here on may miss this flush, so it counts for the next one.
        *lock(&inner.unflushed) = Unflushed::default();
        let published = self.published();
        let known = inner.gate.pass(published.known())?;
        inner.gate.pass(published.disk.flush())?;
        // All of what was published before the flush is on disk now.
        published.disk.horizon().learn(known);
        inner.options.probe.reached(Stage::FlushEnded);
        Ok(())
    }

    /// Flushes if enough was committed, or if it has waited long enough; `now` is any monotonic clock's. Called about once a
    /// second, never on the apply thread. Returns whether it flushed.
    ///
    /// # Errors
    /// Fatal.
    pub fn flush_if_due(&self, now: Instant) -> Result<bool, StorageFault> {
        let options = &self.0.options;
        let due = {
            let mut unflushed = lock(&self.0.unflushed);
            if unflushed.bytes == 0 {
                return Ok(false);
            }
            let since = *unflushed.since.get_or_insert(now);
            unflushed.bytes >= options.flush_after_bytes
                || now.saturating_duration_since(since) >= options.flush_after
        };
        if due {
            self.flush()?;
        }
        Ok(due)
    }

    /// The last entry whose effect is certainly on disk: the log may be purged up to it. RocksDB also flushes on its own, so
    /// this can be ahead of the last [`StateStore::flush`].
    ///
    /// # Errors
    /// Fatal.
    pub fn flushed_applied(&self) -> Result<Option<LogId>, StorageFault> {
        let inner = &*self.0;
        inner.gate.check()?;
        let mut upkeep = lock(&inner.upkeep);
        let key = keys::applied(inner.options.group);
        let bytes = inner.gate.pass(self.published().disk.persisted(Family::Meta, &key))?;
        let applied = bytes.map(|bytes| record::decode_applied(&bytes)).transpose();
        let applied = applied.map_err(|error| view::undecodable(Family::Meta, &key, &error));
        let flushed = inner.gate.pass(applied)?.and_then(|applied| applied.last_applied);
        // Told only once it is recorded: the log is purged on this word.
        if let Some(floor) = flushed.filter(|id| Some(id.index) > upkeep.floor.map(|floor| floor.index)) {
            inner.gate.pass(inner.medium.raise_floor(floor))?;
            upkeep.floor = Some(floor);
            inner.options.probe.reached(Stage::FloorRaised);
        }
        Ok(flushed)
    }

    /// Looks for errors that RocksDB met in the background.
    ///
    /// # Errors
    /// Fatal: there was one.
    pub fn check(&self) -> Result<(), StorageFault> {
        self.0.gate.check()?;
        self.0.gate.pass(self.published().disk.check())
    }

    /// Writes the state to the new directory `dir`, whose parent exists; durable when it returns. Commits go on meanwhile.
    /// On the same file system it costs links, and reading the files that are new since the last one.
    ///
    /// # Errors
    /// Fatal.
    pub fn checkpoint(&self, dir: &Path) -> Result<CheckpointMeta, StorageFault> {
        let inner = &*self.0;
        inner.gate.check()?;
        let mut upkeep = lock(&inner.upkeep);
        inner.gate.pass(self.published().disk.checkpoint(dir))?;
        inner.options.probe.reached(Stage::CheckpointMade);
        let sums = inner.gate.pass(checkpoint::seal(dir, &mut upkeep.sums))?;
        inner.options.probe.reached(Stage::CheckpointSealed);
        let meta = self.meta(dir, &sums).map_err(|error| StorageFault {
            operation: "read back a checkpoint",
            place: error.file.display().to_string(),
            reason: error.detail,
        });
        inner.gate.pass(meta)
    }

    /// Reads a checkpoint, all of it, and checks every file's checksum.
    ///
    /// # Errors
    /// It is not whole.
    pub fn read_checkpoint(&self, dir: &Path) -> Result<CheckpointMeta, CheckpointError> {
        self.meta(dir, &checkpoint::verify(dir)?)
    }

    fn meta(&self, dir: &Path, sums: &Sums) -> Result<CheckpointMeta, CheckpointError> {
        let rows = self.0.medium.peek(dir)?;
        checkpoint::meta(dir, &*rows, self.0.options.group, sums)
    }

    /// Puts the checkpoint in `dir` in place of the state, durably; views of the old state stay as they are. `dir` is left as
    /// it is. Nobody may commit meanwhile. A crash at any point leaves the old state or the new one.
    ///
    /// # Errors
    /// The checkpoint is not whole, and nothing changed; or a fault.
    pub fn install(&self, dir: &Path) -> Result<CheckpointMeta, InstallError> {
        let inner = &*self.0;
        inner.gate.check()?;
        let (_batch, mut upkeep) = (lock(&inner.batch), lock(&inner.upkeep));
        let sums = checkpoint::verify(dir)?;
        let meta = self.meta(dir, &sums)?;
        let floor = meta.applied.last_applied;
        let old = self.published();
        old.disk.retire();
        let disk = inner.gate.pass(inner.medium.install(dir, &sums, floor))?;
        let published = Published::load(disk, &inner.options, Arc::clone(&inner.gate));
        let published = inner.gate.pass(published)?;
        published.disk.horizon().learn(inner.gate.pass(published.known())?);
        *upkeep = Upkeep { sums: Sums::new(), floor };
        *lock(&inner.unflushed) = Unflushed::default();
        self.publish(published);
        Ok(meta)
    }

    fn published(&self) -> Arc<Published> {
        Arc::clone(&self.0.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, published: Published) {
        let new = Arc::new(published);
        let old = std::mem::replace(&mut *self.0.published.write().unwrap_or_else(PoisonError::into_inner), new);
        // Outside of the lock: the last user of an old instance closes its database.
        drop(old);
    }

    fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.published().disk)
    }
}

impl std::fmt::Debug for StateStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let published = self.published();
        f.debug_struct("StateStore").field("applied", &published.applied.last_applied).finish_non_exhaustive()
    }
}
