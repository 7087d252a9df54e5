//! The log on RocksDB and a side file: how they are tuned, created and opened.
//!
//! Directory: `side`, the side file; `db/`, the database. The side file is made first, so that a database without one
//! is always a loss, and a database that is absent is one only if the side file promises something.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use bytes::Bytes;
use hapax_codec::log::HEAD_LEN;
use hapax_codec::log::side::{Damage, SLOT_LEN, Slot};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRecoveryMode, InfoLogger, LogLevel, Options, ReadOptions,
    WriteBatch, WriteOptions,
};

use super::group::Recovered;
use super::promises::slot_of;
use super::scan::{self, Frames};
use super::verify::{self, Examined};
use super::{LogStore, OpenError, OpenOptions};
use crate::seam::{Change, Key, LogDisk, SideDisk, StorageFault, Visit};

const SIDE: &str = "side";
const SIDE_NEW: &str = "side.new";
const DATABASE: &str = "db";
const SIDE_LEN: usize = 2 * SLOT_LEN;

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
        create_side(path)?;
    }
    let (slot, side) = open_side(&path.join(SIDE))?;
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
    read_side(&path.join(SIDE))
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

fn io<'a>(operation: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> OpenError + 'a {
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

fn sync_directory(path: &Path) -> Result<(), OpenError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(io("sync the directory", path))
}

/// Makes the side file, whole and durable, with two slots that promise nothing.
fn create_side(path: &Path) -> Result<(), OpenError> {
    fs::create_dir_all(path).map_err(io("create the directory", path))?;
    let (new, side) = (path.join(SIDE_NEW), path.join(SIDE));
    let mut bytes = Vec::with_capacity(SIDE_LEN);
    for sequence in 0..2 {
        let slot = Slot { sequence, ..Slot::default() }.encode();
        bytes.extend_from_slice(slot.expect("a slot without groups has room for them").as_slice());
    }
    fs::write(&new, &bytes).map_err(io("write the side file", &new))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(io("sync the side file", &new))?;
    fs::rename(&new, &side).map_err(io("rename the side file", &new))?;
    sync_directory(path)?;
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

/// Opens the side file and finds the slot that stands.
fn open_side(path: &Path) -> Result<(Slot, SideFile), OpenError> {
    let slot = read_side(path)?;
    let file = File::options().write(true).open(path).map_err(io("open the side file", path))?;
    Ok((slot, SideFile { file, path: path.to_owned() }))
}

/// Reads the side file. One slot may be an interrupted write; anything else that is odd is damage.
fn read_side(path: &Path) -> Result<Slot, OpenError> {
    let damaged = |reason: String| OpenError::SideDamaged { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(OpenError::SideMissing { path: path.to_owned() });
        }
        file => {
            file.and_then(|file| file.take(SIDE_LEN as u64 + 1).read_to_end(&mut bytes)).map_err(io("read", path))?
        }
    };
    let (Some((first, second)), SIDE_LEN) = (bytes.split_first_chunk::<SLOT_LEN>(), bytes.len()) else {
        return Err(damaged(format!("it has {} bytes instead of {SIDE_LEN}", bytes.len())));
    };
    let second = second.first_chunk::<SLOT_LEN>().map_or(Err(Damage::Torn), Slot::decode);
    match (Slot::decode(first), second) {
        (Ok(first), Ok(second)) => {
            if slot_of(first.sequence) != 0 || first.sequence.abs_diff(second.sequence) != 1 {
                let (first, second) = (first.sequence, second.sequence);
                return Err(damaged(format!("its slots have the sequences {first} and {second}")));
            }
            Ok(if first.sequence > second.sequence { first } else { second })
        }
        (Ok(slot), Err(Damage::Torn)) if slot_of(slot.sequence) == 0 => Ok(slot),
        (Err(Damage::Torn), Ok(slot)) if slot_of(slot.sequence) == 1 => Ok(slot),
        (Err(Damage::Torn), Err(Damage::Torn)) => Err(damaged("both slots are interrupted writes".to_owned())),
        (Err(damage), _) if damage != Damage::Torn => Err(damaged(format!("slot 0: {damage}"))),
        (_, Err(damage)) if damage != Damage::Torn => Err(damaged(format!("slot 1: {damage}"))),
        _ => Err(damaged("a slot stands at the other's place".to_owned())),
    }
}

struct SideFile {
    file: File,
    path: PathBuf,
}

impl SideFile {
    fn fault(&self, operation: &'static str) -> impl Fn(std::io::Error) -> StorageFault + '_ {
        move |error| StorageFault { operation, place: self.path.display().to_string(), reason: error.to_string() }
    }
}

impl SideDisk for SideFile {
    fn write(&mut self, slot: usize, bytes: &[u8; SLOT_LEN]) -> Result<(), StorageFault> {
        self.file.write_all_at(bytes, (slot * SLOT_LEN) as u64).map_err(self.fault("write the side file"))
    }

    fn sync(&mut self) -> Result<(), StorageFault> {
        self.file.sync_data().map_err(self.fault("sync the side file"))
    }
}

/// What the database's files look like, before anything opens them.
struct Look {
    /// The database does not exist, and nothing was promised: it may be created.
    may_create: bool,
    /// Some file ends in something unreadable, which may be an interrupted write.
    is_irregular: bool,
    /// The directory and how its newest files end, for messages.
    place: String,
}

impl Look {
    /// What it means that RocksDB refused.
    fn refusal(&self, directory: &Path, reason: String) -> OpenError {
        // Another process has it open: nothing is damaged.
        if reason.contains("/LOCK: ") {
            return OpenError::Io { operation: "lock the database", path: directory.to_owned(), reason };
        }
        let place = self.place.clone();
        if self.is_irregular {
            return OpenError::Database { place, reason };
        }
        // RocksDB blames the manifest even where it is a table file that it cannot read.
        let reason =
            format!("{reason} (manifest and write-ahead logs are sound: a table file, *.sst, is damaged or missing)");
        OpenError::Database { place, reason }
    }
}

/// Looks at the database's files; refuses damage that RocksDB might take for an interrupted write.
fn look(directory: &Path, slot: &Slot) -> Result<Look, OpenError> {
    let current = directory.join("CURRENT");
    let damaged =
        |offset, reason: &str| OpenError::Damaged { path: current.clone(), offset, reason: reason.to_owned() };
    let manifest = match fs::read_to_string(&current) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if slot.sequence > 1 || !slot.groups.is_empty() {
                return Err(damaged(0, "it is missing"));
            }
            let place = directory.display().to_string();
            return Ok(Look { may_create: true, is_irregular: false, place });
        }
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Err(damaged(0, "it is not text")),
        other => other.map_err(io("read", &current))?,
    };
    let name = manifest.strip_suffix('\n').filter(|name| {
        name.strip_prefix("MANIFEST-").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let name = name.ok_or_else(|| damaged(0, "it does not name a manifest"))?;
    let manifest = directory.join(name);
    if !manifest.is_file() {
        return Err(damaged(0, "the manifest that it names is missing"));
    }
    let mut notes = Vec::new();
    let mut is_irregular = inspect_frames(std::slice::from_ref(&manifest), &mut notes)?;
    is_irregular |= inspect_frames(&wals(directory)?, &mut notes)?;
    let place = format!("{} ({})", directory.display(), notes.join(", "));
    Ok(Look { may_create: false, is_irregular, place })
}

/// The write-ahead logs, oldest first.
fn wals(directory: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(io("read the directory", directory))? {
        let path = entry.map_err(io("read the directory", directory))?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        if let (Some(number), true) = (number, path.extension().is_some_and(|extension| extension == "log")) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Scans files that were written one after the other. True if something in them is unreadable; damage is refused.
fn inspect_frames(files: &[PathBuf], notes: &mut Vec<String>) -> Result<bool, OpenError> {
    let mut unreadable: Option<(&PathBuf, u64)> = None;
    for path in files {
        let frames = scan::scan(path).map_err(io("read", path))?;
        notes.push(note(path, &frames));
        if let (Some((path, offset)), true) = (unreadable, frames.records > 0) {
            let reason = "it cannot be read from there on, though later files hold sound records".to_owned();
            return Err(OpenError::Damaged { path: path.clone(), offset, reason });
        }
        let Some(offset) = frames.unreadable else { continue };
        if let Some(sound) = frames.sound_after {
            let reason = format!("a record cannot be read there, though a sound one follows at byte {sound}");
            return Err(OpenError::Damaged { path: path.clone(), offset, reason });
        }
        tracing::warn!(file = %path.display(), offset, len = frames.len, "a file ends in an unfinished record");
        unreadable.get_or_insert((path, offset));
    }
    Ok(unreadable.is_some())
}

fn note(path: &Path, frames: &Frames) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match frames.unreadable {
        Some(offset) => format!("{name} is unreadable from byte {offset} of {}", frames.len),
        None => format!("{name} is sound to its end at byte {}", frames.len),
    }
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
