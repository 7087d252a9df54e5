//! The log store of a node and the handles of its groups: memory first, then the writer's queue.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use hapax_codec::log::side::{GROUPS_MAX, Slot};
use hapax_codec::log::{Entry, LogId, Vote};

use super::group::{GroupState, Recovered};
use super::promises::Promises;
use super::writer::{Done, Kind, Queue, Request, Writer};
use super::{LogError, OpenError, OpenOptions, lock};
use crate::seam::{Change, FatalHook, LogDisk, LogObserver, SideDisk, StorageFault};

/// One group: its memory, and the lock that keeps memory and queue in the same order.
pub(super) struct Group {
    pub(super) group: u32,
    /// Held from the change in memory until it is queued; counts the group's requests.
    order: Mutex<u64>,
    pub(super) state: Mutex<GroupState>,
    /// The last request of this group that the disk was given: what it carried may leave the cache.
    pub(super) written: AtomicU64,
}

/// What the handles, the writer and the side thread share.
pub(super) struct Shared {
    pub(super) disk: Box<dyn LogDisk>,
    pub(super) queue: Queue,
    pub(super) promises: Promises,
    pub(super) observer: Arc<dyn LogObserver>,
    groups: Mutex<BTreeMap<u32, Arc<Group>>>,
    fault: OnceLock<StorageFault>,
    fatal: FatalHook,
    cache_bytes_max: usize,
    /// The writer, where no thread owns it.
    by_hand: Option<Mutex<Writer>>,
}

impl Shared {
    pub(super) fn fault(&self) -> Option<StorageFault> {
        self.fault.get().cloned()
    }

    pub(super) fn observer(&self) -> &dyn LogObserver {
        self.observer.as_ref()
    }

    /// Notes the first fault and tells the hook; returns the fault that stands.
    pub(super) fn fail(&self, fault: StorageFault) -> StorageFault {
        if self.fault.set(fault.clone()).is_ok() {
            tracing::error!(%fault, "the log's storage failed; nothing is acknowledged any more");
            (self.fatal)(&fault);
        }
        self.fault().unwrap_or(fault)
    }

    pub(super) fn check(&self) -> Result<(), LogError> {
        self.fault().map_or(Ok(()), |fault| Err(LogError::Fault(fault)))
    }

    /// Turns a storage fault met by a call into the fatal state.
    pub(super) fn checked<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        result.map_err(|error| match error {
            LogError::Fault(fault) => LogError::Fault(self.fail(fault)),
            other => other,
        })
    }

    fn pump(&self) {
        if let Some(writer) = &self.by_hand {
            let mut writer = lock(writer);
            writer.round(self, self.queue.drain());
            if self.fault().is_none()
                && let Err(fault) = self.promises.flush(self.observer())
            {
                self.fail(fault);
            }
        }
    }
}

/// The log of a node: the entries, votes and marks of all its groups, in one ordered write-ahead log.
///
/// Dropping it shuts it down. Handles of groups may outlive it, but then only answer [`LogError::Closed`] to writes.
pub struct LogStore {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl LogStore {
    /// Puts a recovered log into service.
    pub(super) fn assemble(
        disk: Box<dyn LogDisk>,
        side: Box<dyn SideDisk>,
        slot: Slot,
        groups: Vec<Recovered>,
        options: OpenOptions,
    ) -> Result<LogStore, OpenError> {
        let cache_bytes_max = options.cache_bytes_max;
        let groups = groups.into_iter().map(|found| (found.group, Arc::new(Group::new(found, cache_bytes_max))));
        let shared = Arc::new(Shared {
            disk,
            queue: Queue::new(),
            promises: Promises::new(side, slot),
            observer: options.observer,
            groups: Mutex::new(groups.collect()),
            fault: OnceLock::new(),
            fatal: options.fatal,
            cache_bytes_max,
            by_hand: (!options.threads).then(|| Mutex::new(Writer::default())),
        });
        let mut threads = Vec::new();
        if options.threads {
            threads.push(spawn("log-writer", &shared, |shared| {
                Writer::default().run(shared);
                Ok(())
            })?);
            threads.push(spawn("log-side", &shared, |shared| shared.promises.run(shared.observer()))?);
        }
        Ok(LogStore { shared, threads: Mutex::new(threads) })
    }

    /// The log of one group; an unknown group has an empty one.
    ///
    /// # Errors
    /// Refused where the side file has no room for another group.
    pub fn group(&self, group: u32) -> Result<GroupLog, LogError> {
        let mut groups = lock(&self.shared.groups);
        if groups.len() >= GROUPS_MAX && !groups.contains_key(&group) {
            return Err(LogError::Refused(format!("a log holds at most {GROUPS_MAX} groups")));
        }
        let new = || Arc::new(Group::new(Recovered::new(group), self.shared.cache_bytes_max));
        let group = Arc::clone(groups.entry(group).or_insert_with(new));
        Ok(GroupLog { group, shared: Arc::clone(&self.shared) })
    }

    /// Without threads ([`OpenOptions::threads`]): writes and syncs everything queued, runs the callbacks, then
    /// brings the side file up to date. With threads it does nothing.
    pub fn pump(&self) {
        self.shared.pump();
    }

    /// The fault that ended this log, if one did.
    pub fn fault(&self) -> Option<StorageFault> {
        self.shared.fault()
    }

    /// Writes and syncs everything queued, runs the callbacks, brings the side file up to date, ends the threads and
    /// closes the database. Later writes are refused; a second call does nothing.
    ///
    /// # Errors
    /// The fault that ended this log, now or earlier.
    pub fn shutdown(&self) -> Result<(), StorageFault> {
        let mut threads = lock(&self.threads);
        let groups: Vec<_> = lock(&self.shared.groups).values().cloned().collect();
        for group in groups {
            let handle = GroupLog { group, shared: Arc::clone(&self.shared) };
            // It fails only where the log is closed or failed already, which is told below.
            let _ = handle.submit(None, |state, _, _| {
                let mut changes = Vec::new();
                state.take_committed(&mut changes);
                Ok((Kind::Mark, changes))
            });
        }
        self.shared.queue.close();
        self.shared.pump();
        // The side thread last: it must still write what the writer acknowledges.
        for (number, thread) in threads.drain(..).enumerate() {
            if number == 1 {
                self.shared.promises.stop();
            }
            // A thread that panicked has told the fatal hook.
            let _ = thread.join();
        }
        self.shared.disk.close();
        self.shared.fault().map_or(Ok(()), Err)
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        // A fault was told to the hook.
        let _ = self.shutdown();
    }
}

/// Starts a thread whose error or panic is a storage fault.
fn spawn(
    name: &'static str,
    shared: &Arc<Shared>,
    body: impl FnOnce(&Shared) -> Result<(), StorageFault> + Send + 'static,
) -> Result<JoinHandle<()>, OpenError> {
    struct Guard(Arc<Shared>, &'static str);
    impl Drop for Guard {
        fn drop(&mut self) {
            if thread::panicking() {
                let place = self.1.to_owned();
                self.0.fail(StorageFault { operation: "run a thread", place, reason: "it panicked".to_owned() });
                self.0.queue.close();
            }
        }
    }
    let guard = Guard(Arc::clone(shared), name);
    let run = move || {
        if let Err(fault) = body(&guard.0) {
            guard.0.fail(fault);
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|error| OpenError::Io {
        operation: "start a thread",
        path: name.into(),
        reason: error.to_string(),
    })
}

impl Group {
    fn new(found: Recovered, cache_bytes_max: usize) -> Group {
        let (group, state) = (found.group, Mutex::new(GroupState::new(found, cache_bytes_max)));
        Group { group, order: Mutex::new(0), state, written: AtomicU64::new(0) }
    }
}

/// The log of one group. Clones share it; any thread may read, and writes are ordered as they are called.
#[derive(Clone)]
pub struct GroupLog {
    pub(super) group: Arc<Group>,
    pub(super) shared: Arc<Shared>,
}

impl GroupLog {
    /// Appends entries, which continue the log. They are readable when it returns; `done` is called once they, and
    /// everything asked of this group before them, are durable. Blocks only while the writer's queue is full.
    ///
    /// # Errors
    /// Then nothing was changed, and `done` is not called.
    pub fn append(&self, entries: Vec<Entry>, done: Done) -> Result<(), LogError> {
        let last = entries.last().map(|entry| entry.id);
        let written = self.group.written.load(Ordering::Acquire);
        self.submit(Some(done), |state, _, ticket| {
            let changes = state.append(entries, ticket, written)?;
            Ok((last.map_or(Kind::Mark, Kind::Append), changes))
        })
    }

    /// Saves a vote; `done` is called once it is durable in the log *and* in the side file, and may be given away.
    ///
    /// # Errors
    /// Refused if it would take an older vote back. Then nothing was changed, and `done` is not called.
    pub fn save_vote(&self, vote: Vote, done: Done) -> Result<(), LogError> {
        self.submit(Some(done), |state, _, _| {
            let mut changes = state.save_vote(vote)?;
            state.take_committed(&mut changes);
            Ok((Kind::Vote(vote), changes))
        })
    }

    /// Notes what is known to be committed. It is durable with the next append, vote, truncation, purge or shutdown.
    ///
    /// # Errors
    /// The log has failed.
    pub fn save_committed(&self, committed: LogId) -> Result<(), LogError> {
        self.shared.check()?;
        lock(&self.group.state).save_committed(committed);
        Ok(())
    }

    /// Removes every entry after `index` (`None`: all of them). Readers no longer see them when it returns; on disk
    /// it keeps its place among this group's requests, so that a later `done` says that it is durable too.
    ///
    /// # Errors
    /// Refused below what was purged. Then nothing was changed.
    pub fn truncate_after(&self, index: Option<u64>) -> Result<(), LogError> {
        self.submit(None, |state, disk, _| {
            let mut changes = Vec::new();
            let Some(removal) = state.truncate_after(index, disk)? else { return Ok((Kind::Mark, changes)) };
            changes.push(removal);
            state.take_committed(&mut changes);
            Ok((Kind::Truncate(state.last_log_id()), changes))
        })
    }

    /// Removes every entry up to and including `id`, which may lie beyond the end of the log: then the log goes on
    /// after it. `done` is called once that is durable.
    ///
    /// # Errors
    /// Then nothing was changed, and `done` is not called.
    pub fn purge(&self, id: LogId, done: Done) -> Result<(), LogError> {
        self.submit(Some(done), |state, disk, _| {
            let mut changes = state.purge(id, disk)?;
            state.take_committed(&mut changes);
            let kind = state.last_log_id().map_or(Kind::Mark, |last| Kind::Purge(id.index, last));
            Ok((kind, changes))
        })
    }

    /// Changes memory and queues the same for the disk, in one order.
    fn submit(
        &self,
        done: Option<Done>,
        change: impl FnOnce(&mut GroupState, &dyn LogDisk, u64) -> Result<(Kind, Vec<Change>), LogError>,
    ) -> Result<(), LogError> {
        self.shared.check()?;
        let mut order = lock(&self.group.order);
        let ticket = *order + 1;
        let disk = self.shared.disk.as_ref();
        let result = change(&mut lock(&self.group.state), disk, ticket);
        let (kind, changes) = self.shared.checked(result)?;
        if done.is_none() && changes.is_empty() {
            return Ok(());
        }
        *order = ticket;
        let bytes = changes.iter().map(payload_bytes).sum();
        let request = Request { group: Arc::clone(&self.group), ticket, kind, changes, bytes, done };
        if self.shared.by_hand.is_some() && self.shared.queue.is_full(bytes) {
            self.shared.pump();
        }
        self.shared.queue.push(request)
    }

    /// As [`LogStore::pump`], for whoever gave the store away.
    pub fn pump(&self) {
        self.shared.pump();
    }

    /// The last vote that was saved.
    pub fn vote(&self) -> Option<Vote> {
        lock(&self.group.state).vote()
    }

    /// The last committed id that was noted.
    pub fn committed(&self) -> Option<LogId> {
        lock(&self.group.state).committed()
    }

    /// The last id that was purged.
    pub fn purged(&self) -> Option<LogId> {
        lock(&self.group.state).purged()
    }

    /// The id of the last entry, or what was purged where there is none.
    pub fn last(&self) -> Option<LogId> {
        lock(&self.group.state).last_log_id()
    }

    /// The indexes that the log holds now.
    pub fn indexes(&self) -> Range<u64> {
        let state = lock(&self.group.state);
        let first = state.first_index();
        first..state.last_entry().map_or(first, |last| last.index + 1)
    }

    /// Payload and bookkeeping bytes of the recent entries kept in memory.
    pub fn cache_bytes(&self) -> usize {
        lock(&self.group.state).cache_bytes()
    }
}

fn payload_bytes(change: &Change) -> usize {
    match change {
        Change::Entry { payload, .. } => payload.len(),
        Change::Put { .. } | Change::DeleteRange { .. } => 0,
    }
}
