//! The log in memory, with an explicit sync boundary: a crash discards what was not synced, or keeps a part of it.
//!
//! Every write and every sync is a numbered step, and the power can be cut before any of them, so that a test can crash
//! a log at each step in turn. A simulation opens it without threads and decides itself when [`LogStore::pump`] runs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hapax_codec::log::side::{SECTOR_LEN, SLOT_LEN, Slot};

use super::{LogStore, OpenError, OpenOptions, lock, verify};
use crate::seam::{Change, Key, LogDisk, SideDisk, StorageFault, Visit};

/// A disk in memory. Clones are the same disk; it survives the log that is opened on it.
#[derive(Clone)]
pub struct MemoryDisk {
    image: Arc<Mutex<Image>>,
}

/// What a crash does to writes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// They are gone.
    LoseUnsynced,
    /// The first so many of them were on the disk nonetheless: changes of rows, and sectors of the side file.
    KeepSome {
        /// Changes of rows kept, in the order of the log.
        changes: usize,
        /// Sectors of an unsynced side-file slot kept.
        sectors: usize,
    },
}

struct Image {
    rows: BTreeMap<Key, Bytes>,
    unsynced_rows: Vec<Vec<Change>>,
    side: [[u8; SLOT_LEN]; 2],
    unsynced_side: Vec<(usize, Box<[u8; SLOT_LEN]>)>,
    /// Writes and syncs so far.
    steps: u64,
    /// The power is cut before this step.
    cut_before: Option<u64>,
    /// A sync says "done" and does nothing.
    lies: bool,
}

impl Default for MemoryDisk {
    fn default() -> MemoryDisk {
        MemoryDisk::new()
    }
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> MemoryDisk {
        let slot = |sequence| {
            let slot = Slot { sequence, ..Slot::default() }.encode();
            *slot.expect("a slot without groups has room for them")
        };
        let image = Image {
            rows: BTreeMap::new(),
            unsynced_rows: Vec::new(),
            side: [slot(0), slot(1)],
            unsynced_side: Vec::new(),
            steps: 0,
            cut_before: None,
            lies: false,
        };
        MemoryDisk { image: Arc::new(Mutex::new(image)) }
    }

    /// Writes and syncs made so far.
    pub fn steps(&self) -> u64 {
        lock(&self.image).steps
    }

    /// Cuts the power before step number `step` (from 0): it and all later ones fail, until [`MemoryDisk::crash`].
    pub fn cut_power_before(&self, step: u64) {
        lock(&self.image).cut_before = Some(step);
    }

    /// From now on a sync says "done" and makes nothing durable, as some disks do. For those who must be caught by it.
    pub fn lie(&self) {
        lock(&self.image).lies = true;
    }

    /// Crashes and restarts the disk: settles what was not synced, counts steps anew, restores the power.
    pub fn crash(&self, crash: Crash) {
        let mut image = lock(&self.image);
        let image = &mut *image;
        let (changes, sectors) = match crash {
            Crash::LoseUnsynced => (0, 0),
            Crash::KeepSome { changes, sectors } => (changes, sectors),
        };
        // Whole batches only: the real log keeps a batch whole by its checksum.
        let mut left = changes;
        for batch in std::mem::take(&mut image.unsynced_rows) {
            if batch.len() > left {
                break;
            }
            left -= batch.len();
            batch.iter().for_each(|change| apply(&mut image.rows, change));
        }
        for (slot, bytes) in std::mem::take(&mut image.unsynced_side) {
            let kept = (sectors * SECTOR_LEN).min(SLOT_LEN);
            image.side[slot][..kept].copy_from_slice(&bytes[..kept]);
        }
        (image.steps, image.cut_before) = (0, None);
    }

    /// Opens the log on this disk.
    ///
    /// # Errors
    /// As [`LogStore::open`].
    pub fn open(&self, options: OpenOptions) -> Result<LogStore, OpenError> {
        let slot = self.slot()?;
        let groups = verify::recover(self, PLACE, &slot, &options.applied)?;
        LogStore::assemble(Box::new(self.clone()), Box::new(self.clone()), slot, groups, options)
    }

    /// The side-file slot that stands.
    pub(super) fn slot(&self) -> Result<Slot, OpenError> {
        let image = lock(&self.image);
        let slots = image.side.iter().filter_map(|bytes| Slot::decode(bytes).ok());
        let damaged = || OpenError::SideDamaged { path: PLACE.into(), reason: "no slot is sound".to_owned() };
        slots.max_by_key(|slot| slot.sequence).ok_or_else(damaged)
    }
}

const PLACE: &str = "memory";

impl Image {
    fn step(&mut self, operation: &'static str) -> Result<(), StorageFault> {
        if self.cut_before.is_some_and(|cut| self.steps >= cut) {
            let (place, reason) = (PLACE.to_owned(), "the power is cut".to_owned());
            return Err(StorageFault { operation, place, reason });
        }
        self.steps += 1;
        Ok(())
    }

    /// The rows as a reader sees them.
    fn visible(&self, key: &Key) -> Option<Bytes> {
        for change in self.unsynced_rows.iter().rev().flat_map(|batch| batch.iter().rev()) {
            match change {
                Change::DeleteRange { from, to } if from <= key && key < to => return None,
                Change::Put { key: put, value } if put == key => return Some(Bytes::copy_from_slice(value)),
                Change::Entry { key: put, head, payload } if put == key => return Some(join(head, payload)),
                _ => {}
            }
        }
        self.rows.get(key).cloned()
    }
}

fn join(head: &[u8], payload: &[u8]) -> Bytes {
    [head, payload].concat().into()
}

fn apply(rows: &mut BTreeMap<Key, Bytes>, change: &Change) {
    match change {
        Change::Entry { key, head, payload } => {
            rows.insert(*key, join(head, payload));
        }
        Change::Put { key, value } => {
            rows.insert(*key, Bytes::copy_from_slice(value));
        }
        Change::DeleteRange { from, to } => {
            rows.retain(|key, _| key < from || key >= to);
        }
    }
}

impl LogDisk for MemoryDisk {
    fn write(&self, batch: &[Change]) -> Result<(), StorageFault> {
        let mut image = lock(&self.image);
        image.step("write to the log")?;
        image.unsynced_rows.push(batch.to_vec());
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageFault> {
        let mut image = lock(&self.image);
        image.step("sync the log")?;
        let image = &mut *image;
        if image.lies {
            return Ok(());
        }
        for change in std::mem::take(&mut image.unsynced_rows).iter().flatten() {
            apply(&mut image.rows, change);
        }
        Ok(())
    }

    fn get(&self, key: &Key) -> Result<Option<Bytes>, StorageFault> {
        Ok(lock(&self.image).visible(key))
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<(), StorageFault> {
        let rows: Vec<(Key, Bytes)> = {
            let image = lock(&self.image);
            let copy = |rows: &BTreeMap<Key, Bytes>| {
                rows.range(*from..*to).map(|(key, value)| (*key, value.clone())).collect()
            };
            if image.unsynced_rows.is_empty() {
                copy(&image.rows)
            } else {
                let mut rows = image.rows.clone();
                image.unsynced_rows.iter().flatten().for_each(|change| apply(&mut rows, change));
                copy(&rows)
            }
        };
        for (key, value) in rows {
            if let ControlFlow::Break(()) = visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn reclaim(&self, _from: &Key, _to: &Key) -> Result<(), StorageFault> {
        Ok(())
    }

    fn close(&self) {}
}

impl SideDisk for MemoryDisk {
    fn write(&mut self, slot: usize, bytes: &[u8; SLOT_LEN]) -> Result<(), StorageFault> {
        let mut image = lock(&self.image);
        image.step("write the side file")?;
        image.unsynced_side.push((slot, Box::new(*bytes)));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageFault> {
        let mut image = lock(&self.image);
        image.step("sync the side file")?;
        let image = &mut *image;
        if image.lies {
            return Ok(());
        }
        for (slot, bytes) in std::mem::take(&mut image.unsynced_side) {
            image.side[slot] = *bytes;
        }
        Ok(())
    }
}
