//! Reads of a group's entries: from memory, from the disk, or across both.
//!
//! Between the two looks a truncation or a purge may change the log, so that a read that met one begins again: what it
//! returns was the log at one instant.

use std::ops::ControlFlow::{Break, Continue};
use std::ops::Range;

use bytes::Bytes;
use hapax_codec::log::Entry;

use super::group::{Found, decode};
use super::store::GroupLog;
use super::{LogError, keys, lock};
use crate::seam::StorageFault;

/// A read in progress.
#[derive(Default)]
struct Read {
    taken: Vec<Entry>,
    bytes: usize,
    cached: usize,
    /// The limit is reached.
    full: bool,
    /// The truncations that had happened when the disk was read.
    truncations: Option<u64>,
}

impl GroupLog {
    /// The entries of `range` that the log holds, from the first one on, consecutive: up to about `bytes_max` payload
    /// bytes, but at least one if there is one.
    ///
    /// # Errors
    /// An entry cannot be read or is damaged; then the log has failed.
    pub fn entries(&self, range: Range<u64>, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        self.shared.check()?;
        let mut read = Read::default();
        loop {
            let (next, found) = {
                let state = lock(&self.group.state);
                // What was read so far may belong to entries that were cut off since: begin again.
                if read.truncations.is_some_and(|seen| seen != state.truncations()) {
                    read = Read::default();
                }
                let next = read.taken.last().map_or(range.start.max(state.first_index()), |last| last.id.index + 1);
                let room = bytes_max.saturating_sub(read.bytes);
                if read.full { (next, Found::End) } else { (next, state.find(next, range.end, room)) }
            };
            match found {
                Found::End => break,
                Found::Cached(cached) => {
                    read.cached = cached.len();
                    read.taken.extend(cached);
                    break;
                }
                Found::OnDisk { until, truncations } => {
                    let room = bytes_max.saturating_sub(read.bytes);
                    let Some(entries) = self.read_disk(next..until, room, truncations)? else {
                        // A purge or a truncation overtook this read.
                        read = Read::default();
                        continue;
                    };
                    read.truncations = Some(truncations);
                    read.bytes += entries.iter().map(|entry| entry.payload.len()).sum::<usize>();
                    read.full = read.bytes >= bytes_max || (entries.len() as u64) < until - next;
                    read.taken.extend(entries);
                }
            }
        }
        let Read { taken, cached, .. } = read;
        self.shared.observer.read(taken.len(), cached);
        Ok(taken)
    }

    /// Reads entries from the disk, at least one. `None` if they are gone because the log was purged or truncated.
    fn read_disk(
        &self,
        range: Range<u64>,
        bytes_max: usize,
        truncations: u64,
    ) -> Result<Option<Vec<Entry>>, LogError> {
        let group = self.group.group;
        let mut taken: Vec<Entry> = Vec::new();
        let (mut bytes, mut chain, mut damage) = (0, None, None);
        let (from, to) = (keys::entry(group, range.start), keys::entry(group, range.end));
        let scanned = self.shared.disk.scan(&from, &to, &mut |key, value| {
            let index = range.start + taken.len() as u64;
            if keys::index_of(key) != Some(index) {
                damage = Some((index, "it is not there".to_owned()));
                return Break(());
            }
            let frame = match decode(group, index, &Bytes::copy_from_slice(value)) {
                Ok(frame) => frame,
                Err(reason) => {
                    damage = Some((index, reason));
                    return Break(());
                }
            };
            if chain.is_some_and(|previous| !frame.follows(previous)) {
                damage = Some((index, "it does not follow the entry before it".to_owned()));
                return Break(());
            }
            chain = Some(frame.chain);
            bytes += frame.entry.payload.len();
            if bytes > bytes_max && !taken.is_empty() {
                return Break(());
            }
            taken.push(frame.entry);
            Continue(())
        });
        self.shared.checked(scanned.map_err(LogError::Fault))?;
        if taken.is_empty() && damage.is_none() {
            damage = Some((range.start, "it is not there".to_owned()));
        }
        let Some((index, reason)) = damage else { return Ok(Some(taken)) };
        let state = lock(&self.group.state);
        if state.first_index() > index || state.truncations() != truncations {
            return Ok(None);
        }
        drop(state);
        let place = format!("group {group}, index {index}");
        Err(LogError::Fault(self.shared.fail(StorageFault { operation: "read an entry", place, reason })))
    }
}
