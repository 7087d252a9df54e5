//! The log on RocksDB and a side file: how they are tuned, created and opened.
//!
//! Directory: `side`, the side file; `db/`, the database. The side file is made first, so that a database without one
//! is always a loss, and a database that is absent is one only if the side file promises something.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::RwLock;

use bytes::Bytes;
use hapax_codec::log::HEAD_LEN;
use hapax_codec::log::side::Slot;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRecoveryMode, InfoLogger, LogLevel, Options, ReadOptions,
    WriteBatch, WriteOptions,
};

use super::group::Recovered;
use super::look::{Look, look};
use super::side_file::{self, SIDE, SIDE_NEW};
use super::verify::{self, Examined};
use super::{LogStore, OpenError, OpenOptions};
use crate::seam::{Change, Key, LogDisk, SideDisk, StorageFault, Visit};

const DATABASE: &str = "db";

/// Memory that gathers entries before they become a file; a write-ahead log is about as large.
const WRITE_BUFFER_BYTES: usize = 32 << 20;
/// Such buffers at once; when all wait for the disk, writes wait too.
const WRITE_BUFFERS: i32 = 4;
/// Write-ahead logs together; beyond it the oldest buffer is flushed.
const WAL_BYTES_MAX: u64 = 256 << 20;
/// Blocks cached for reads that the recent entries do not serve.
const BLOCK_CACHE_BYTES: usize = 8 << 20;
/// A scan reads ahead this far.
const READAHEAD_BYTES: usize = 1 << 20;

impl LogStore {
    /// Opens the log in directory `path`, creating it if the directory is absent or empty. Reads every entry that was
    /// not purged, to check it.
    ///
    /// # Errors
    /// See [`OpenError`]; where [`OpenError::is_suspect`], nothing was repaired, and opening again refuses again.
    pub fn open(path: &Path, options: OpenOptions) -> Result<LogStore, OpenError> {
        let Parts { disk, side, slot, groups } = parts(path, &options)?;
        LogStore::assemble(disk, side, slot, groups, options)
    }
}

/// What a log is put together from, checked.
pub(super) struct Parts {
    pub(super) disk: Box<dyn LogDisk>,
    pub(super) side: Box<dyn SideDisk>,
    pub(super) slot: Slot,
    pub(super) groups: Vec<Recovered>,
}

/// Opens or creates the files in directory `path`.
pub(super) fn parts(path: &Path, options: &OpenOptions) -> Result<Parts, OpenError> {
    if is_fresh(path)? {
        if let Some((group, applied)) = options.applied.first_key_value() {
            return Err(OpenError::Missing { path: path.to_owned(), group: *group, applied: *applied });
        }
        side_file::create(path)?;
    }
    let (slot, side) = side_file::open(&path.join(SIDE))?;
    let directory = path.join(DATABASE);
    let found = look(&directory, &slot)?;
    if found.is_irregular {
        // A look that writes nothing first: opening for writing removes files that a cut manifest forgot.
        let disk = Rocks::open(&directory, &found, Access::Read)?;
        verify::recover(&disk, &found.place, &slot, &options.applied)?;
    }
    let disk = Rocks::open(&directory, &found, Access::Write)?;
    let groups = verify::recover(&disk, &found.place, &slot, &options.applied)?;
    // The files that recovery made obsolete must stay away before anything new is written.
    sync_directory(&directory)?;
    Ok(Parts { disk: Box::new(disk), side: Box::new(side), slot, groups })
}

/// The slot that stands in the side file of the log directory `path`.
pub(super) fn side_of(path: &Path) -> Result<Slot, OpenError> {
    side_file::read(&path.join(SIDE))
}

/// Examines the log directory `path` without writing to it; also says how its newest files end.
pub(super) fn examine_only(path: &Path, slot: &Slot) -> Result<(String, Vec<Examined>), OpenError> {
    let directory = path.join(DATABASE);
    let found = look(&directory, slot)?;
    if found.may_create {
        return Ok((found.place, Vec::new()));
    }
    let disk = Rocks::open(&directory, &found, Access::Read)?;
    let examined = verify::examine(&disk, &found.place, slot, &BTreeMap::new())?;
    Ok((found.place, examined))
}

/// Turns an error of the operating system into a refusal.
pub(super) fn io<'a>(operation: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> OpenError + 'a {
    move |error| OpenError::Io { operation, path: path.to_owned(), reason: error.to_string() }
}

/// True if the directory is absent, empty, or holds only the beginning of a side file that was never put in place.
fn is_fresh(path: &Path) -> Result<bool, OpenError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        other => other.map_err(io("read the directory", path))?,
    };
    for entry in entries {
        if entry.map_err(io("read the directory", path))?.file_name() != SIDE_NEW {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), OpenError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(io("sync the directory", path))
}

/// How the database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// The rows in RocksDB.
struct Rocks {
    /// `None` once closed.
    db: RwLock<Option<DB>>,
    place: String,
}

impl Rocks {
    fn open(directory: &Path, found: &Look, access: Access) -> Result<Rocks, OpenError> {
        let options = tuning(found.may_create);
        let opened = match access {
            Access::Write => DB::open(&options, directory),
            Access::Read => DB::open_for_read_only(&options, directory, false),
        };
        let place = directory.display().to_string();
        match opened {
            Ok(db) => Ok(Rocks { db: RwLock::new(Some(db)), place }),
            Err(error) => Err(found.refusal(directory, error.to_string())),
        }
    }

    fn fault(&self, operation: &'static str, reason: impl ToString) -> StorageFault {
        StorageFault { operation, place: self.place.clone(), reason: reason.to_string() }
    }

    fn with<T>(
        &self,
        operation: &'static str,
        body: impl FnOnce(&DB) -> Result<T, rocksdb::Error>,
    ) -> Result<T, StorageFault> {
        let db = self.db.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let db = db.as_ref().ok_or_else(|| self.fault(operation, "the database is closed"))?;
        body(db).map_err(|error| self.fault(operation, error))
    }
}

impl LogDisk for Rocks {
    fn write(&self, batch: &[Change]) -> Result<(), StorageFault> {
        let bytes: usize = batch.iter().map(change_bytes).sum();
        let mut rows = WriteBatch::with_capacity_bytes(bytes);
        let mut value = Vec::new();
        for change in batch {
            match change {
                Change::Entry { key, head, payload } => {
                    value.clear();
                    value.extend_from_slice(head);
                    value.extend_from_slice(payload);
                    rows.put(key, &value);
                }
                Change::Put { key, value } => rows.put(key, value),
                Change::DeleteRange { from, to } => rows.delete_range(from, to),
            }
        }
        self.with("write to the log", |db| db.write_opt(rows, &WriteOptions::default()))
    }

    fn sync(&self) -> Result<(), StorageFault> {
        self.with("sync the write-ahead log", |db| db.flush_wal(true))
    }

    fn get(&self, key: &Key) -> Result<Option<Bytes>, StorageFault> {
        self.with("read a row", |db| Ok(db.get_pinned(key)?.map(|value| Bytes::copy_from_slice(&value))))
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<(), StorageFault> {
        self.with("read rows", |db| {
            let mut options = ReadOptions::default();
            options.set_iterate_upper_bound(to.to_vec());
            options.set_readahead_size(READAHEAD_BYTES);
            options.fill_cache(false);
            let mut rows = db.raw_iterator_opt(options);
            rows.seek(from);
            while let Some((key, value)) = rows.item() {
                if let ControlFlow::Break(()) = visit(key, value) {
                    return Ok(());
                }
                rows.next();
            }
            rows.status()
        })
    }

    fn reclaim(&self, from: &Key, to: &Key) -> Result<(), StorageFault> {
        self.with("remove purged files", |db| db.delete_file_in_range(from, to))
    }

    fn close(&self) {
        let db = self.db.write().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(db) = db {
            db.cancel_all_background_work(true);
        }
    }
}

fn change_bytes(change: &Change) -> usize {
    match change {
        Change::Entry { payload, .. } => size_of::<Key>() + HEAD_LEN + payload.len() + 8,
        Change::Put { value, .. } => size_of::<Key>() + value.len() + 8,
        Change::DeleteRange { .. } => 2 * size_of::<Key>() + 8,
    }
}

/// A log is written once, in order, read back mostly from memory, and deleted from the front.
fn tuning(may_create: bool) -> Options {
    let mut options = Options::default();
    options.create_if_missing(may_create);
    // The default mode drops everything behind one damaged record, without a word.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_paranoid_checks(true);
    // A batch goes to the file once, when it is synced.
    options.set_manual_wal_flush(true);
    options.set_max_total_wal_size(WAL_BYTES_MAX);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_max_write_buffer_number(WRITE_BUFFERS);
    // There is one writer: nothing is to be gained from handing over between several.
    options.set_allow_concurrent_memtable_write(false);
    options.set_enable_write_thread_adaptive_yield(false);
    // Most files are purged before it would pay to merge them.
    options.set_level_zero_file_num_compaction_trigger(8);
    options.set_level_zero_slowdown_writes_trigger(40);
    options.set_level_zero_stop_writes_trigger(60);
    options.set_target_file_size_base(WRITE_BUFFER_BYTES as u64);
    options.set_max_bytes_for_level_base(8 * WRITE_BUFFER_BYTES as u64);
    options.set_compression_type(DBCompressionType::None);
    options.set_max_background_jobs(2);
    // Files reach the disk as they are written, so that no sync of the log waits behind a whole file.
    options.set_bytes_per_sync(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_skip_stats_update_on_db_open(true);
    options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Warn, |level, message| match level {
        LogLevel::Error | LogLevel::Fatal => tracing::error!(target: "rocksdb::log", "{message}"),
        _ => tracing::warn!(target: "rocksdb::log", "{message}"),
    }));
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES));
    blocks.set_block_size(32 << 10);
    options.set_block_based_table_factory(&blocks);
    options
}
