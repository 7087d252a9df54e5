//! The state on RocksDB: tuning, reads, batches, checkpoints. The write-ahead log is off, since the Raft log is one:
//! what was not flushed is applied again, and a flush takes all families at one instant (atomic flush).
//!
//! A claim on a fresh key reads no disk: it asks the memtables' blooms and each file's filter, which are cached before data.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hapax_codec::log::LogId;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DataBlockIndexType,
    FlushOptions, InfoLogger, LogLevel, Options, ReadOptions, ReadTier, Snapshot, WriteBatch,
};

use super::checkpoint::Sums;
use super::disk::{Disk, ExamineAmong, Family, Medium, Opened, Pace, RowBatch, Rows, VisitRow, Write};
use super::error::REBUILD;
use super::filter::{self, Filters, Removal};
use super::generations::{self, Active, Generations};
use super::horizon::{Counts, Horizon};
use super::options::{OpenOptions, Probe, Stage};
use super::{CheckpointError, OpenError, files, keys};
use crate::seam::StorageFault;

/// Written once, when a database is made. A newer program raises it when keys or families change.
const FORMAT: [u8; 4] = 1u32.to_be_bytes();
/// Filter bits per key: about one in a hundred absent keys costs a read.
const FILTER_BITS: f64 = 10.0;
/// Files above this level are short-lived: their filters are quick to build; below, they are small.
const RIBBON_FROM_LEVEL: i32 = 2;
/// Of what was just flushed, and of all levels below it.
const COMPRESSION: [DBCompressionType; 2] = [DBCompressionType::None, DBCompressionType::Lz4];
const BLOCK_BYTES: usize = 8 << 10;
/// A scan reads ahead this far.
const READAHEAD_BYTES: usize = 1 << 20;
/// Cache of a database that is opened for one look or one scrub.
const SMALL_CACHE_BYTES: usize = 1 << 20;
/// Data waiting for the disk is handed to it in pieces, so that a flush is no burst.
const BYTES_PER_SYNC: u64 = 1 << 20;
/// Named like a generation in the making, so that a start removes what a crash left of it.
const EXAMINED: &str = "gen-examined.tmp";

/// The directory of a state, and what its instances share.
pub(super) struct RocksMedium {
    generations: Generations,
    active: Mutex<Active>,
    tuning: Tuning,
}

#[derive(Clone)]
struct Tuning {
    options: OpenOptions,
    cache: Cache,
    removed: Arc<Counts>,
}

impl RocksMedium {
    pub(super) fn new(root: &Path, options: &OpenOptions) -> Self {
        let cache = Cache::new_lru_cache(options.block_cache_bytes);
        Self {
            generations: Generations::at(root),
            active: Mutex::new(Active { number: 0, floor: None }),
            tuning: Tuning { options: options.clone(), cache, removed: Arc::default() },
        }
    }

    fn active(&self) -> Active {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_active(&self, active: Active) {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = active;
    }

    /// Makes the first generation, empty.
    fn create(&self) -> Result<Active, OpenError> {
        let active = Active { number: 1, floor: None };
        let making = self.generations.making(active.number);
        let (db, removal) = self.tuning.open(&making, true)?;
        let mut batch = RowBatch::default();
        batch.put(Family::Meta, keys::FORMAT, |out| out.extend_from_slice(&FORMAT));
        let disk = self.disk(db, &making, removal);
        let made = (disk.write(&batch)).and_then(|()| disk.flush()).and_then(|()| {
            drop(disk);
            files::sync(&making)?;
            self.generations.activate(active)?;
            self.generations.name(active.number)
        });
        made.map_err(|fault| generations::io(&fault))?;
        Ok(active)
    }

    fn disk(&self, db: DB, dir: &Path, removal: Arc<Removal>) -> RocksDisk {
        let (db, examined) = (Arc::new(db), self.generations.root().join(EXAMINED));
        removal.attach(&db);
        RocksDisk { db, removal, dir: dir.to_owned(), examined, probe: self.tuning.options.probe.clone() }
    }
}

impl Medium for RocksMedium {
    fn open(&self) -> Result<Opened, OpenError> {
        let active = match self.generations.recover()? {
            Some(active) => active,
            None => self.create()?,
        };
        let dir = self.generations.dir(active.number);
        let (db, removal) = self.tuning.open(&dir, false)?;
        let disk = self.disk(db, &dir, removal);
        let format = disk.snapshot_row(keys::FORMAT).map_err(|fault| refusal(&dir, fault))?;
        if format.as_deref() != Some(&FORMAT) {
            let detail = format!("holds format {format:02x?}, and this program knows {FORMAT:02x?} only");
            return Err(OpenError { file: dir, detail, advice: "start the program that wrote it, or a newer one" });
        }
        self.set_active(active);
        Ok(Opened { disk: Arc::new(disk), floor: active.floor })
    }

    fn manifest(&self) -> PathBuf {
        manifest(&self.generations.dir(self.active().number))
    }

    fn raise_floor(&self, floor: LogId) -> Result<(), StorageFault> {
        let active = Active { floor: Some(floor), ..self.active() };
        self.generations.activate(active)?;
        self.set_active(active);
        Ok(())
    }

    fn peek(&self, dir: &Path) -> Result<Arc<dyn Rows>, CheckpointError> {
        let refuse = |detail: String| CheckpointError { file: dir.to_owned(), detail };
        let db = self.tuning.open_read_only(dir).map_err(|error| refuse(error.to_string()))?;
        let disk = self.disk(db, dir, self.tuning.removal());
        match disk.snapshot_row(keys::FORMAT) {
            Ok(Some(format)) if format == FORMAT => Ok(disk.snapshot()),
            Ok(format) => Err(refuse(format!("format {format:02x?} is unknown to this program"))),
            Err(fault) => Err(refuse(fault.to_string())),
        }
    }

    fn install(&self, dir: &Path, sums: &Sums, floor: Option<LogId>) -> Result<Arc<dyn Disk>, StorageFault> {
        let old = self.active();
        let new = Active { number: old.number + 1, floor };
        let making = self.generations.making(new.number);
        files::remove_dir(&making)?;
        std::fs::create_dir(&making).map_err(files::fault("create", &making))?;
        for name in sums.keys() {
            let to = making.join(name);
            files::link_or_copy(&dir.join(name), &to, name.ends_with(".sst"))?;
            files::sync(&to)?;
        }
        files::sync(&making)?;
        self.tuning.options.probe.reached(Stage::InstallCopied);
        self.generations.activate(new)?;
        self.tuning.options.probe.reached(Stage::InstallActivated);
        self.generations.name(new.number)?;
        self.tuning.options.probe.reached(Stage::InstallNamed);
        let path = self.generations.dir(new.number);
        let (db, removal) = self.tuning.open(&path, false).map_err(|error| StorageFault {
            operation: "open the installed state",
            place: error.file.display().to_string(),
            reason: error.detail,
        })?;
        self.set_active(new);
        // Readers of the old generation have its files open; its names can go now, or at the next start.
        if let Err(fault) = files::remove_dir(&self.generations.dir(old.number)) {
            tracing::warn!(%fault, "the old state's directory stays until the next start");
        }
        Ok(Arc::new(self.disk(db, &path, removal)))
    }
}

impl Tuning {
    fn removal(&self) -> Arc<Removal> {
        Removal::new(Horizon::new(self.options.group, &self.removed))
    }

    fn open(&self, dir: &Path, create: bool) -> Result<(DB, Arc<Removal>), OpenError> {
        let removal = self.removal();
        let families = Family::ALL.map(|family| {
            let mut options = self.family(family);
            if Family::RETAINED.contains(&family) {
                options.set_compaction_filter_factory(Filters::new(&removal, family));
            }
            ColumnFamilyDescriptor::new(family.name(), options)
        });
        let mut options = self.database();
        options.create_if_missing(create);
        options.create_missing_column_families(create);
        options.set_error_if_exists(create);
        let db = DB::open_cf_descriptors(&options, dir, families).map_err(|error| {
            let detail = error.to_string();
            OpenError { file: place(dir, &detail), detail, advice: REBUILD }
        })?;
        Ok((db, removal))
    }

    fn open_read_only(&self, dir: &Path) -> Result<DB, rocksdb::Error> {
        let small = Self { cache: Cache::new_lru_cache(SMALL_CACHE_BYTES), ..self.clone() };
        let families = Family::ALL.map(|family| ColumnFamilyDescriptor::new(family.name(), small.family(family)));
        DB::open_cf_descriptors_read_only(&small.database(), dir, families, true)
    }

    fn database(&self) -> Options {
        let mut options = Options::default();
        options.set_atomic_flush(true);
        // There is one writer: nothing is to be gained from handing over between several, and its inserts are cheaper.
        options.set_allow_concurrent_memtable_write(false);
        options.set_enable_write_thread_adaptive_yield(false);
        options.set_paranoid_checks(true);
        options.set_db_write_buffer_size(self.options.write_buffer_bytes);
        options.set_max_background_jobs(self.options.background_jobs);
        options.set_bytes_per_sync(BYTES_PER_SYNC);
        // Every file stays open, so that readers of a replaced generation need no name of it any more.
        options.set_max_open_files(-1);
        options.set_avoid_unnecessary_blocking_io(true);
        options.set_skip_stats_update_on_db_open(true);
        let probe = self.options.probe.clone();
        let logger = InfoLogger::new_callback_logger(LogLevel::Info, move |level, message| {
            probe.reached(Stage::Engine(message));
            match level {
                LogLevel::Warn | LogLevel::Error | LogLevel::Fatal => tracing::warn!(target: "rocksdb", "{message}"),
                _ => tracing::trace!(target: "rocksdb", "{message}"),
            }
        });
        options.set_info_logger(logger);
        options
    }

    fn family(&self, family: Family) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_block_size(BLOCK_BYTES);
        if family.is_asked_by_key() {
            table.set_hybrid_ribbon_filter(FILTER_BITS, RIBBON_FROM_LEVEL);
            table.set_whole_key_filtering(true);
        }
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(self.options.write_buffer_bytes / 2);
        options.set_max_write_buffer_number(4);
        if family.is_asked_by_key() {
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(0.05);
        }
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(DBCompressionType::Lz4);
        // What was just flushed is soon read and written again.
        options.set_compression_per_level(&COMPRESSION);
        // Hashes do not compress; texts do. What lies at the bottom is written once and read for years.
        if matches!(family, Family::Terminal | Family::Body | Family::Evidence | Family::Authority | Family::Events) {
            options.set_bottommost_compression_type(DBCompressionType::Zstd);
        }
        options
    }
}

/// The file that RocksDB's message names, or the database's directory.
fn place(dir: &Path, message: &str) -> PathBuf {
    let separators = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '\'' | '"' | '(' | ')');
    let is_file = |name: &str| {
        [".sst", ".log"].iter().any(|end| name.ends_with(end)) || name.contains("MANIFEST-") || name == "CURRENT"
    };
    let words = message.split(separators).map(|word| word.trim_end_matches([':', '.']));
    let mut names = words.filter_map(|word| word.rsplit('/').next()).filter(|name| is_file(name));
    match names.next() {
        Some(name) => dir.join(name),
        // These two are named by role only.
        None if message.contains("CURRENT") => dir.join("CURRENT"),
        None if message.contains("MANIFEST") || message.contains("manifest") => manifest(dir),
        None => dir.to_owned(),
    }
}

/// The manifest that CURRENT names.
fn manifest(dir: &Path) -> PathBuf {
    let named = std::fs::read_to_string(dir.join("CURRENT")).ok().filter(|name| name.starts_with("MANIFEST-"));
    named.map_or_else(|| dir.join("CURRENT"), |name| dir.join(name.trim_end()))
}

fn refusal(dir: &Path, fault: StorageFault) -> OpenError {
    let detail = format!("{}: {}", fault.operation, fault.reason);
    OpenError { file: place(dir, &fault.reason), detail, advice: REBUILD }
}

/// One open database.
struct RocksDisk {
    db: Arc<DB>,
    removal: Arc<Removal>,
    dir: PathBuf,
    examined: PathBuf,
    probe: Probe,
}

impl Drop for RocksDisk {
    fn drop(&mut self) {
        // A compaction that still runs holds the database: whoever drops it last waits for that compaction.
        self.db.cancel_all_background_work(true);
    }
}

impl RocksDisk {
    fn snapshot_row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageFault> {
        let read = self.db.get_cf(handle(&self.db, Family::Meta), key);
        read.map_err(|error| self.fault("read the state", &error))
    }

    fn fault(&self, operation: &'static str, error: &rocksdb::Error) -> StorageFault {
        fault(&self.dir, operation, error)
    }
}

fn fault(dir: &Path, operation: &'static str, error: &rocksdb::Error) -> StorageFault {
    let reason = error.to_string();
    StorageFault { operation, place: place(dir, &reason).display().to_string(), reason }
}

pub(super) fn handle(db: &DB, family: Family) -> &ColumnFamily {
    db.cf_handle(family.name()).expect("every family is opened or made with the database")
}

impl Disk for RocksDisk {
    fn write(&self, batch: &RowBatch) -> Result<(), StorageFault> {
        let mut out = WriteBatch::with_capacity_bytes(batch.len_bytes() + 16 * batch.rows().count());
        for (family, key, value) in batch.rows() {
            match value {
                Write::Put(value) => out.put_cf(handle(&self.db, family), key, value),
                Write::Delete => out.delete_cf(handle(&self.db, family), key),
                Write::DeleteOnce => out.single_delete_cf(handle(&self.db, family), key),
            }
        }
        self.db.write_without_wal(out).map_err(|error| self.fault("write the state", &error))
    }

    fn flush(&self) -> Result<(), StorageFault> {
        let mut options = FlushOptions::new();
        options.set_wait(true);
        let families = Family::ALL.map(|family| handle(&self.db, family));
        let families: Vec<_> = families.iter().collect();
        self.db.flush_cfs_opt(&families, &options).map_err(|error| self.fault("flush the state", &error))
    }

    fn snapshot(&self) -> Arc<dyn Rows> {
        Arc::new(rows_of(&self.db, &self.dir))
    }

    fn persisted(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageFault> {
        let mut options = ReadOptions::default();
        options.set_read_tier(ReadTier::Persisted);
        let read = self.db.get_cf_opt(handle(&self.db, family), key, &options);
        read.map_err(|error| self.fault("read what was flushed", &error))
    }

    fn checkpoint(&self, dir: &Path) -> Result<(), StorageFault> {
        let made = Checkpoint::new(&self.db).and_then(|checkpoint| checkpoint.create_checkpoint(dir));
        made.map_err(|error| self.fault("make a checkpoint", &error))
    }

    fn examine(&self, examine: ExamineAmong<'_>) -> Result<(), StorageFault> {
        files::remove_dir(&self.examined)?;
        self.checkpoint(&self.examined)?;
        let result = self.examine_checkpoint(examine);
        files::remove_dir(&self.examined)?;
        result
    }

    fn check(&self) -> Result<(), StorageFault> {
        let count = self.db.property_int_value(rocksdb::properties::BACKGROUND_ERRORS);
        match count.map_err(|error| self.fault("ask for background errors", &error))? {
            Some(0) | None => Ok(()),
            Some(count) => Err(StorageFault {
                operation: "flush or compact the state",
                place: self.dir.display().to_string(),
                reason: format!("{count} background errors"),
            }),
        }
    }

    fn horizon(&self) -> &Horizon {
        &self.removal.horizon
    }

    fn bytes(&self, families: &[Family]) -> Result<u64, StorageFault> {
        filter::bytes(&self.db, families).map_err(|error| self.fault("ask for the sizes of files", &error))
    }

    fn compact(&self, families: &[Family], pace: Pace<'_>) -> Result<bool, StorageFault> {
        filter::pass(&self.db, families, pace).map_err(|error| self.fault("compact the state", &error))
    }

    fn retire(&self) {
        self.db.cancel_all_background_work(true);
    }
}

impl RocksDisk {
    fn examine_checkpoint(&self, examine: ExamineAmong<'_>) -> Result<(), StorageFault> {
        let tuning = Tuning {
            options: OpenOptions { probe: self.probe.clone(), ..OpenOptions::default() },
            cache: Cache::new_lru_cache(SMALL_CACHE_BYTES),
            removed: Arc::default(),
        };
        let opened = tuning.open_read_only(&self.examined);
        // Names in messages are the checkpoint's links to the very files of this instance.
        let db = Arc::new(opened.map_err(|error| self.fault("open the state to examine it", &error))?);
        let among = rows_of(&db, &self.dir);
        for family in Family::ALL {
            let mut options = ReadOptions::default();
            options.set_verify_checksums(true);
            options.fill_cache(false);
            options.set_readahead_size(READAHEAD_BYTES);
            let mut rows = db.raw_iterator_cf_opt(handle(&db, family), options);
            rows.seek_to_first();
            while let Some((key, value)) = rows.item() {
                if examine(&among, family, key, value).is_break() {
                    return Ok(());
                }
                rows.next();
            }
            rows.status().map_err(|error| self.fault("examine the state", &error))?;
        }
        Ok(())
    }
}

type Snap<'a> = Snapshot<'a>;

self_cell::self_cell!(
    /// A snapshot together with the database it is of.
    struct OwnedSnapshot {
        owner: Arc<DB>,
        #[covariant]
        dependent: Snap,
    }
);

struct RocksRows {
    snapshot: OwnedSnapshot,
    dir: PathBuf,
}

fn rows_of(db: &Arc<DB>, dir: &Path) -> RocksRows {
    RocksRows { snapshot: OwnedSnapshot::new(Arc::clone(db), |db| db.snapshot()), dir: dir.to_owned() }
}

impl RocksRows {
    fn visit(
        &self,
        family: Family,
        from: &[u8],
        options: ReadOptions,
        visit: VisitRow<'_>,
    ) -> Result<(), StorageFault> {
        let (db, snapshot) = (self.snapshot.borrow_owner(), self.snapshot.borrow_dependent());
        let mut rows = snapshot.raw_iterator_cf_opt(handle(db, family), options);
        rows.seek(from);
        while let Some((key, value)) = rows.item() {
            if let ControlFlow::Break(()) = visit(key, value) {
                return Ok(());
            }
            rows.next();
        }
        rows.status().map_err(|error| fault(&self.dir, "scan the state", &error))
    }
}

impl Rows for RocksRows {
    fn get(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault> {
        let (db, snapshot) = (self.snapshot.borrow_owner(), self.snapshot.borrow_dependent());
        let found = snapshot.get_pinned_cf(handle(db, family), key);
        match found.map_err(|error| fault(&self.dir, "read the state", &error))? {
            Some(value) => {
                read(&value);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn scan(&self, family: Family, from: &[u8], visit: VisitRow<'_>) -> Result<(), StorageFault> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(READAHEAD_BYTES);
        self.visit(family, from, options, visit)
    }

    fn page(&self, family: Family, from: &[u8], to: &[u8], visit: VisitRow<'_>) -> Result<(), StorageFault> {
        if from >= to {
            return Ok(());
        }
        let mut options = ReadOptions::default();
        // Behind it may lie many rows that were deleted, and nobody asks for them.
        options.set_iterate_upper_bound(to);
        self.visit(family, from, options, visit)
    }
}
