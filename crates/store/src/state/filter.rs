//! RocksDB's side of retention: the filter that compactions ask, and the pass that makes them look everywhere.
//! Which rows are gone, and why they may go, is [`super::horizon`]'s business.
//!
//! A filter looks up rows in the database whose compaction asks it. It holds that database only while one compaction runs, and the
//! disk that owns it ends all compactions before it lets go: the last owner closes the database and waits for its compactions, so
//! a compaction must never be the last.

use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rocksdb::{BottommostLevelCompaction, CompactOptions, CompactionDecision, DB, LiveFile, ReadOptions, ReadTier};

use super::disk::{Family, Pace};
use super::horizon::{Horizon, Judge, LookUp};
use super::rocks::handle;
use crate::seam::StorageFault;

/// A pass compacts a file at a time, and small ones together until they are so much: between two it waits, so that what others
/// notice of it is short.
const SLICE_BYTES: u64 = 16 << 20;

/// What the compactions of one database share.
pub(super) struct Removal {
    pub(super) horizon: Horizon,
    /// The database, once it is open.
    db: RwLock<Weak<DB>>,
}

impl Removal {
    pub(super) fn new(horizon: Horizon) -> Arc<Self> {
        Arc::new(Self { horizon, db: RwLock::default() })
    }

    /// From now on rows may be removed.
    pub(super) fn attach(&self, db: &Arc<DB>) {
        *self.db.write().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(db);
    }

    fn db(&self) -> Option<Arc<DB>> {
        self.db.read().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

/// Makes a filter for each compaction of a family.
pub(super) struct Filters {
    removal: Arc<Removal>,
    family: Family,
    name: CString,
}

impl Filters {
    pub(super) fn new(removal: &Arc<Removal>, family: Family) -> Self {
        // Names of families hold no zero byte.
        let name = CString::new(format!("hapax.retention.{}", family.name())).unwrap_or_default();
        Self { removal: Arc::clone(removal), family, name }
    }
}

impl CompactionFilterFactory for Filters {
    type Filter = Filter;

    fn create(&mut self, _: CompactionFilterContext) -> Filter {
        let judge = self.removal.db().map(|db| self.removal.horizon.judge(Flushed(db)));
        Filter { removal: Arc::clone(&self.removal), family: self.family, name: self.name.clone(), judge }
    }

    fn name(&self) -> &CStr {
        &self.name
    }
}

/// The filter of one compaction. It knows what was known when the compaction began.
pub(super) struct Filter {
    removal: Arc<Removal>,
    family: Family,
    name: CString,
    /// `None` while the database is being opened: then everything stays.
    judge: Option<Judge<Flushed>>,
}

impl CompactionFilter for Filter {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        let Some(judge) = &mut self.judge else {
            return CompactionDecision::Keep;
        };
        match judge.is_gone(self.family, key, value) {
            Ok(true) => {
                self.removal.horizon.count(self.family, key.len() + value.len());
                CompactionDecision::Remove
            }
            Ok(false) => CompactionDecision::Keep,
            Err(fault) => {
                // Whoever asks for that row, or the scrub, meets the same fault where it can be told.
                tracing::warn!(%fault, "a row stays, because whether it is gone cannot be read");
                CompactionDecision::Keep
            }
        }
    }

    fn name(&self) -> &CStr {
        &self.name
    }
}

/// Rows of an open database, as a crash would leave them.
struct Flushed(Arc<DB>);

impl LookUp for Flushed {
    fn flushed(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault> {
        let mut options = ReadOptions::default();
        options.set_read_tier(ReadTier::Persisted);
        let found =
            self.0.get_pinned_cf_opt(handle(&self.0, family), key, &options).map_err(|e| fault(&self.0, &e))?;
        found.iter().for_each(|value| read(value));
        Ok(found.is_some())
    }

    fn exists(&self, family: Family, key: &[u8]) -> Result<bool, StorageFault> {
        let found = self.0.get_pinned_cf(handle(&self.0, family), key).map_err(|error| fault(&self.0, &error))?;
        Ok(found.is_some())
    }
}

fn fault(db: &DB, error: &rocksdb::Error) -> StorageFault {
    StorageFault {
        operation: "look up whether a row is gone",
        place: db.path().display().to_string(),
        reason: error.to_string(),
    }
}

/// Compacts `families` from end to end, a slice at a time, so that the filter meets every row. RocksDB flushes on its own where
/// a slice is in memory; what that flush holds is not known to the horizon. `false` where `pace` ended it.
pub(super) fn pass(db: &DB, families: &[Family], pace: Pace<'_>) -> Result<bool, rocksdb::Error> {
    let mut options = CompactOptions::default();
    // RocksDB's own compactions go on beside it.
    options.set_exclusive_manual_compaction(false);
    // The files at the bottom hold most of what is gone, and nothing else makes them be read again.
    options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
    for family in families {
        for Slice { first, last, bytes } in slices(&db.live_files()?, *family) {
            db.compact_range_cf_opt(handle(db, *family), Some(first), Some(last), &options);
            if pace(bytes) == ControlFlow::Break(()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// What the files of `families` hold.
pub(super) fn bytes(db: &DB, families: &[Family]) -> Result<u64, rocksdb::Error> {
    let files = db.live_files()?;
    let among = files.iter().filter(|file| families.iter().any(|family| file.column_family_name == family.name()));
    Ok(among.map(|file| file.size as u64).sum())
}

/// A range of keys, both ends in it, and about how much lies there.
struct Slice {
    first: Vec<u8>,
    last: Vec<u8>,
    bytes: u64,
}

/// The files of a family in ranges of keys that together hold all of them.
fn slices(files: &[LiveFile], family: Family) -> Vec<Slice> {
    let mut ranges: Vec<Slice> =
        files.iter().filter(|file| file.column_family_name == family.name()).filter_map(slice).collect();
    ranges.sort_by(|a, b| a.first.cmp(&b.first));
    let mut slices: Vec<Slice> = Vec::new();
    for range in ranges {
        match slices.last_mut() {
            // Levels overlap: what lies in a range that is taken already is compacted with it.
            Some(last) if last.bytes < SLICE_BYTES || range.last <= last.last => {
                last.bytes += range.bytes;
                if range.last > last.last {
                    last.last = range.last;
                }
            }
            _ => slices.push(range),
        }
    }
    slices
}

fn slice(file: &LiveFile) -> Option<Slice> {
    Some(Slice { first: file.start_key.clone()?, last: file.end_key.clone()?, bytes: file.size as u64 })
}
