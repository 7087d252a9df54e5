//! One group's log in memory: where it begins and ends, its vote, and its recent entries.
//!
//! Invariants, kept by every method:
//! - entries are consecutive from `start.first` to `last`, in the cache and the disk together;
//! - the cache is a suffix of the log: it ends at `last`, and holds at least all that the disk has not been given yet.
//!
//! The methods change memory and return the disk changes that mean the same; the caller queues those in the same order.

use std::collections::VecDeque;

use bytes::Bytes;
use hapax_codec::log::{Entry, Frame, LogId, Start, Vote};

use super::LogError;
use super::keys;
use crate::seam::{Change, LogDisk, StorageFault};

/// A group as it was found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recovered {
    pub(super) group: u32,
    pub(super) start: Start,
    /// The last entry and its chain, if there is any entry.
    pub(super) last: Option<(LogId, u64)>,
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
}

impl Recovered {
    /// A group that has nothing on disk.
    pub(super) fn new(group: u32) -> Recovered {
        Recovered { group, start: Start::at(group, 0), last: None, vote: None, committed: None }
    }
}

struct Cached {
    entry: Entry,
    chain: u64,
    /// The request that carries it to the disk.
    ticket: u64,
}

pub(super) struct GroupState {
    group: u32,
    start: Start,
    last: Option<(LogId, u64)>,
    vote: Option<Vote>,
    committed: Option<LogId>,
    /// True if `committed` has not been queued yet.
    committed_waits: bool,
    cache: VecDeque<Cached>,
    cache_bytes: usize,
    cache_bytes_max: usize,
    /// Counts truncations, so that a reader sees that what it read may be of two histories.
    truncations: u64,
}

/// What a read finds at its position.
pub(super) enum Found {
    /// These entries, from memory.
    Cached(Vec<Entry>),
    /// Older entries: read the disk up to, not including, this index.
    OnDisk { until: u64, truncations: u64 },
    /// Nothing: the position is at or past the end.
    End,
}

impl GroupState {
    pub(super) fn new(found: Recovered, cache_bytes_max: usize) -> GroupState {
        GroupState {
            group: found.group,
            start: found.start,
            last: found.last,
            vote: found.vote,
            committed: found.committed,
            committed_waits: false,
            cache: VecDeque::new(),
            cache_bytes: 0,
            cache_bytes_max,
            truncations: 0,
        }
    }

    pub(super) fn first_index(&self) -> u64 {
        self.start.first
    }

    pub(super) fn purged(&self) -> Option<LogId> {
        self.start.purged
    }

    pub(super) fn last_entry(&self) -> Option<LogId> {
        self.last.map(|(id, _)| id)
    }

    /// The last entry, or what was purged where there is none.
    pub(super) fn last_log_id(&self) -> Option<LogId> {
        self.last_entry().or(self.start.purged)
    }

    pub(super) fn vote(&self) -> Option<Vote> {
        self.vote
    }

    pub(super) fn committed(&self) -> Option<LogId> {
        self.committed
    }

    pub(super) fn truncations(&self) -> u64 {
        self.truncations
    }

    fn next_index(&self) -> u64 {
        self.last.map_or(self.start.first, |(id, _)| id.index + 1)
    }

    /// Appends entries, which must continue the log. A log that never held anything may begin anywhere.
    pub(super) fn append(&mut self, entries: Vec<Entry>, ticket: u64, written: u64) -> Result<Vec<Change>, LogError> {
        let Some(first) = entries.first().map(|entry| entry.id.index) else {
            return Err(LogError::Refused("an append of nothing".to_owned()));
        };
        let mut changes = Vec::with_capacity(entries.len() + 2);
        let mut start = self.start;
        if first != self.next_index() {
            if self.last.is_some() || self.start.purged.is_some() {
                let next = self.next_index();
                return Err(LogError::Refused(format!(
                    "entry {first} does not continue a log whose next index is {next}"
                )));
            }
            start = Start::at(self.group, first);
            changes.push(Change::Put { key: keys::start(self.group), value: start.encode(self.group) });
        }
        let mut chain = self.last.map_or(start.chain, |(_, chain)| chain);
        let mut cached = Vec::with_capacity(entries.len());
        for (entry, index) in entries.into_iter().zip(first..) {
            if entry.id.index != index || index == u64::MAX {
                return Err(LogError::Refused(format!("entry {} stands at the place of {index}", entry.id.index)));
            }
            let (head, own) =
                entry.encode_head(self.group, chain).map_err(|error| LogError::Refused(error.to_string()))?;
            chain = own;
            changes.push(Change::Entry { key: keys::entry(self.group, index), head, payload: entry.payload.clone() });
            cached.push(Cached { entry, chain, ticket });
        }
        // Nothing was changed until here, so that a refusal leaves the log as it was.
        self.start = start;
        self.last = cached.last().map(|last| (last.entry.id, last.chain));
        self.cache_bytes += cached.iter().map(weight).sum::<usize>();
        self.cache.extend(cached);
        self.evict(written);
        self.take_committed(&mut changes);
        Ok(changes)
    }

    /// Drops the oldest cached entries that are above the budget and on disk already.
    fn evict(&mut self, written: u64) {
        while self.cache_bytes > self.cache_bytes_max {
            match self.cache.pop_front_if(|oldest| oldest.ticket <= written) {
                Some(oldest) => self.cache_bytes -= weight(&oldest),
                None => break,
            }
        }
    }

    /// Replaces the vote; it may not move backwards.
    pub(super) fn save_vote(&mut self, vote: Vote) -> Result<Vec<Change>, LogError> {
        if let Some(old) = self.vote.filter(|old| !vote.covers(old)) {
            return Err(LogError::Refused(format!("{vote:?} would take back {old:?}")));
        }
        self.vote = Some(vote);
        Ok(vec![Change::Put { key: keys::vote(self.group), value: vote.encode(self.group) }])
    }

    /// Notes the last committed id; it travels to the disk with the next request.
    pub(super) fn save_committed(&mut self, committed: LogId) {
        if self.committed != Some(committed) {
            self.committed = Some(committed);
            self.committed_waits = true;
        }
    }

    /// Adds the committed mark to a request, if it waits for one.
    pub(super) fn take_committed(&mut self, changes: &mut Vec<Change>) {
        if let (true, Some(id)) = (self.committed_waits, self.committed) {
            let value = hapax_codec::log::Committed(id).encode(self.group);
            changes.push(Change::Put { key: keys::committed(self.group), value });
            self.committed_waits = false;
        }
    }

    /// Removes every entry after `index`, or all of them. `None` means that there was none.
    pub(super) fn truncate_after(
        &mut self,
        index: Option<u64>,
        disk: &dyn LogDisk,
    ) -> Result<Option<Change>, LogError> {
        let Some((old, _)) = self.last else { return Ok(None) };
        let from = index.map_or(self.start.first, |index| index.saturating_add(1));
        if from > old.index {
            return Ok(None);
        }
        if from < self.start.first {
            let first = self.start.first;
            return Err(LogError::Refused(format!("truncation after {index:?}, but the log begins at {first}")));
        }
        self.last = if from == self.start.first { None } else { Some(self.locate(from - 1, disk)?) };
        self.truncations += 1;
        while let Some(newest) = self.cache.pop_back_if(|newest| newest.entry.id.index >= from) {
            self.cache_bytes -= weight(&newest);
        }
        let (from, to) = (keys::entry(self.group, from), keys::entry(self.group, old.index + 1));
        Ok(Some(Change::DeleteRange { from, to }))
    }

    /// Removes every entry up to and including `id`, which may lie beyond the end of the log (a snapshot was installed).
    pub(super) fn purge(&mut self, id: LogId, disk: &dyn LogDisk) -> Result<Vec<Change>, LogError> {
        let Some(first) = id.index.checked_add(1) else {
            return Err(LogError::Refused("a purge up to the largest index".to_owned()));
        };
        if self.start.purged.is_some_and(|purged| purged.index >= id.index) {
            return Ok(Vec::new());
        }
        let old = self.start.first;
        self.start = match self.last {
            Some(_) if first <= old => Start { purged: Some(id), ..self.start },
            Some((last, _)) if id.index <= last.index => {
                Start { purged: Some(id), first, chain: self.locate(id.index, disk)?.1 }
            }
            _ => Start { purged: Some(id), ..Start::at(self.group, first) },
        };
        if self.last.is_some_and(|(last, _)| last.index <= id.index) {
            self.last = None;
        }
        while let Some(oldest) = self.cache.pop_front_if(|oldest| oldest.entry.id.index <= id.index) {
            self.cache_bytes -= weight(&oldest);
        }
        let mut changes = vec![Change::Put { key: keys::start(self.group), value: self.start.encode(self.group) }];
        if old < first {
            changes
                .push(Change::DeleteRange { from: keys::entry(self.group, old), to: keys::entry(self.group, first) });
        }
        Ok(changes)
    }

    /// The id and chain of the entry at `index`, which the log holds.
    fn locate(&self, index: u64, disk: &dyn LogDisk) -> Result<(LogId, u64), StorageFault> {
        if let Some(first) = self.cache.front().map(|oldest| oldest.entry.id.index)
            && let Some(cached) = index.checked_sub(first).and_then(|at| self.cache.get(at as usize))
        {
            return Ok((cached.entry.id, cached.chain));
        }
        let fault = |reason: String| StorageFault {
            operation: "read an entry",
            place: format!("group {}, index {index}", self.group),
            reason,
        };
        let bytes = disk.get(&keys::entry(self.group, index))?.ok_or_else(|| fault("it is not there".to_owned()))?;
        let frame = decode(self.group, index, &bytes).map_err(fault)?;
        Ok((frame.entry.id, frame.chain))
    }

    /// Entries from `from` (included) to `to` (not), up to about `bytes_max` payload bytes but at least one.
    pub(super) fn find(&self, from: u64, to: u64, bytes_max: usize) -> Found {
        let to = to.min(self.next_index());
        if from >= to {
            return Found::End;
        }
        let cached = self.cache.front().map_or(self.next_index(), |oldest| oldest.entry.id.index);
        if from < cached {
            return Found::OnDisk { until: to.min(cached), truncations: self.truncations };
        }
        let mut taken = Vec::new();
        let mut bytes = 0;
        for cached in self.cache.iter().skip((from - cached) as usize).take((to - from) as usize) {
            bytes += cached.entry.payload.len();
            if bytes > bytes_max && !taken.is_empty() {
                break;
            }
            taken.push(cached.entry.clone());
        }
        Found::Cached(taken)
    }

    /// Bytes held by the cache.
    pub(super) fn cache_bytes(&self) -> usize {
        self.cache_bytes
    }
}

/// What a cached entry costs: its payload, and about a hundred bytes around it.
fn weight(cached: &Cached) -> usize {
    cached.entry.payload.len() + size_of::<Cached>()
}

/// Decodes a stored frame and checks that it is the one its key says.
pub(super) fn decode(group: u32, index: u64, bytes: &Bytes) -> Result<Frame, String> {
    let frame = Frame::decode(bytes).map_err(|error| error.to_string())?;
    if frame.group != group || frame.entry.id.index != index {
        return Err(format!("the frame is that of group {}, index {}", frame.group, frame.entry.id.index));
    }
    Ok(frame)
}
