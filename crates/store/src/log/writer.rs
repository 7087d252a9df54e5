//! The queue of all groups' requests, and the one writer that drains it: one batch, one sync, callbacks in order.
//!
//! Order within a round: side file lowered for truncations · batch written · log synced · promises raised, and synced
//! where a vote is among them · callbacks. After the first fault nothing is acknowledged any more: a disk that
//! failed one sync may report success for the next one, although the data of the first is gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use hapax_codec::log::{LogId, Vote};

use super::store::{Group, Shared};
use super::{LogError, clock, keys, lock};
use crate::seam::{Change, Round, StorageFault};

/// Most requests that wait for the writer; a caller beyond it blocks.
pub const QUEUE_REQUESTS_MAX: usize = 8192;

/// Most payload bytes that wait for the writer; a caller beyond it blocks, unless nothing waits at all.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Indexes purged before the space of whole files is given back: each time costs a manifest write.
const RECLAIM_EVERY: u64 = 50_000;

/// Told when a request is durable, in the order of the requests; or that it never will be. It runs on the writer's
/// thread: it must be quick, and must not ask anything of the log, whose queue may be full.
pub type Done = Box<dyn FnOnce(Result<(), StorageFault>) + Send>;

/// What a request means for the promises.
pub(super) enum Kind {
    /// Entries up to this id.
    Append(LogId),
    /// A vote.
    Vote(Vote),
    /// Everything after this id is gone.
    Truncate(Option<LogId>),
    /// Everything up to this index is gone; the log ends at this id.
    Purge(u64, LogId),
    /// Nothing: marks only.
    Mark,
}

pub(super) struct Request {
    pub(super) group: Arc<Group>,
    pub(super) ticket: u64,
    pub(super) kind: Kind,
    pub(super) changes: Vec<Change>,
    pub(super) bytes: usize,
    pub(super) done: Option<Done>,
}

/// The bounded queue between the groups and the writer.
pub(super) struct Queue {
    inner: Mutex<Waiting>,
    filled: Condvar,
    drained: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    bytes: usize,
    closed: bool,
    writer_sleeps: bool,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue { inner: Mutex::new(Waiting::default()), filled: Condvar::new(), drained: Condvar::new() }
    }

    /// Queues a request; blocks while the queue is full.
    pub(super) fn push(&self, request: Request) -> Result<(), LogError> {
        let mut waiting = lock(&self.inner);
        while !waiting.closed && waiting.is_full(request.bytes) {
            waiting = self.drained.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.closed {
            return Err(LogError::Closed);
        }
        waiting.bytes += request.bytes;
        waiting.requests.push_back(request);
        if std::mem::take(&mut waiting.writer_sleeps) {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// True if a request of `bytes` would have to wait.
    pub(super) fn is_full(&self, bytes: usize) -> bool {
        lock(&self.inner).is_full(bytes)
    }

    /// Takes everything that waits, without waiting.
    pub(super) fn drain(&self) -> VecDeque<Request> {
        lock(&self.inner).take(&self.drained)
    }

    /// Takes everything, waiting for something; `None` once the queue is closed and empty.
    fn wait(&self) -> Option<VecDeque<Request>> {
        let mut waiting = lock(&self.inner);
        while waiting.requests.is_empty() {
            if waiting.closed {
                return None;
            }
            waiting.writer_sleeps = true;
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        Some(waiting.take(&self.drained))
    }

    /// Refuses further requests; what waits is still drained.
    pub(super) fn close(&self) {
        lock(&self.inner).closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }
}

impl Waiting {
    fn is_full(&self, bytes: usize) -> bool {
        let too_many = self.requests.len() >= QUEUE_REQUESTS_MAX;
        too_many || (!self.requests.is_empty() && self.bytes + bytes > QUEUE_BYTES_MAX)
    }

    fn take(&mut self, drained: &Condvar) -> VecDeque<Request> {
        self.bytes = 0;
        drained.notify_all();
        std::mem::take(&mut self.requests)
    }
}

/// What the writer keeps from round to round.
#[derive(Default)]
pub(super) struct Writer {
    batch: Vec<Change>,
    /// By group: the index up to which space was given back.
    reclaimed: BTreeMap<u32, u64>,
}

impl Writer {
    /// The writer thread: until the queue is closed and empty.
    pub(super) fn run(&mut self, shared: &Shared) {
        while let Some(requests) = shared.queue.wait() {
            self.round(shared, requests);
        }
    }

    /// One round: makes `requests` durable, then tells their callers.
    pub(super) fn round(&mut self, shared: &Shared, mut requests: VecDeque<Request>) {
        if requests.is_empty() {
            return;
        }
        let result = match shared.fault() {
            Some(fault) => Err(fault),
            None => self.persist(shared, &mut requests).map_err(|fault| shared.fail(fault)),
        };
        for request in &mut requests {
            let Some(done) = request.done.take() else { continue };
            // The side thread may fail in between: from then on nothing is acknowledged either.
            done(result.clone().and_then(|()| shared.fault().map_or(Ok(()), Err)));
        }
        self.batch.clear();
        if result.is_ok()
            && let Err(fault) = self.reclaim(shared, &requests)
        {
            shared.fail(fault);
        }
    }

    fn persist(&mut self, shared: &Shared, requests: &mut VecDeque<Request>) -> Result<(), StorageFault> {
        lower(shared, requests)?;
        let (mut entries, mut bytes) = (0, 0);
        for request in requests.iter_mut() {
            if matches!(request.kind, Kind::Append(_)) {
                entries += request.changes.iter().filter(|change| matches!(change, Change::Entry { .. })).count();
            }
            bytes += request.bytes;
            self.batch.append(&mut request.changes);
        }
        let began = clock::now();
        shared.disk.write(&self.batch)?;
        for request in requests.iter() {
            request.group.written.store(request.ticket, Ordering::Release);
        }
        let written = clock::now();
        shared.disk.sync()?;
        let (write, sync) = (began.until(written), written.elapsed());
        raise(shared, requests)?;
        shared.observer.round(&Round { requests: requests.len(), entries, bytes, write, sync });
        Ok(())
    }

    /// Gives back the space of what was purged, once enough has gathered.
    fn reclaim(&mut self, shared: &Shared, requests: &VecDeque<Request>) -> Result<(), StorageFault> {
        for request in requests {
            let Kind::Purge(index, _) = request.kind else { continue };
            let group = request.group.group;
            let reclaimed = self.reclaimed.entry(group).or_insert(0);
            if index.saturating_sub(*reclaimed) >= RECLAIM_EVERY {
                *reclaimed = index;
                shared.disk.reclaim(&keys::entry(group, 0), &keys::entry(group, index))?;
            }
        }
        Ok(())
    }
}

/// Lowers the side file, and syncs it, before the log loses what it promised.
fn lower(shared: &Shared, requests: &VecDeque<Request>) -> Result<(), StorageFault> {
    let mut lowered = false;
    for request in requests {
        if let Kind::Truncate(last) = request.kind {
            lowered |= shared.promises.lower(request.group.group, last);
        }
    }
    if lowered { shared.promises.flush(shared.observer()) } else { Ok(()) }
}

/// Records what the round promises; syncs the record where it must not lag.
fn raise(shared: &Shared, requests: &VecDeque<Request>) -> Result<(), StorageFault> {
    let mut acknowledged: BTreeMap<u32, Option<LogId>> = BTreeMap::new();
    let mut urgent = false;
    for request in requests {
        let group = request.group.group;
        match request.kind {
            Kind::Append(last) | Kind::Purge(_, last) => {
                acknowledged.insert(group, Some(last));
            }
            Kind::Truncate(last) => {
                if let Some(id) = acknowledged.get_mut(&group)
                    && !id.is_none_or(|id| last.is_some_and(|last| last.covers(&id)))
                {
                    *id = last;
                }
            }
            Kind::Vote(vote) => {
                shared.promises.vote(group, vote);
                urgent = true;
            }
            Kind::Mark => {}
        }
    }
    for (group, id) in acknowledged {
        if let Some(id) = id {
            urgent |= shared.promises.raise(group, id);
        }
    }
    if urgent || shared.promises.is_late() { shared.promises.flush(shared.observer()) } else { Ok(()) }
}
