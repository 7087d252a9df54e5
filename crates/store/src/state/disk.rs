//! Where the state touches a disk: ordered rows in families, written in batches that are all there or not at all.
//! Behind these traits stand RocksDB (`rocks`) and memory with an explicit flush boundary (`memory`).

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hapax_codec::log::LogId;

use super::checkpoint::Sums;
use super::horizon::Horizon;
use super::{CheckpointError, OpenError};
use crate::seam::StorageFault;

/// The kinds of rows, each with its own files and tuning. Names are persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// Head, what was applied, namespaces, tokens, state hashes, the format.
    Meta,
    /// Operations that can still change: a restart reads these only.
    Live,
    /// Operations that cannot.
    Terminal,
    /// Where an execution is.
    Execution,
    /// Superseded claims.
    Grant,
    /// Inline results.
    Body,
    /// Evidence.
    Evidence,
    /// Capabilities, decisions, uses, accepted deliveries, refusals: what is asked for by one random id.
    Authority,
    /// What is found by something else than its id.
    Index,
    /// What happened, by log index.
    Events,
}

impl Family {
    pub(crate) const ALL: [Self; 10] = [
        Self::Meta,
        Self::Live,
        Self::Terminal,
        Self::Execution,
        Self::Grant,
        Self::Body,
        Self::Evidence,
        Self::Authority,
        Self::Index,
        Self::Events,
    ];

    /// Those whose rows retention removes.
    pub(crate) const RETAINED: [Self; 8] = [
        Self::Terminal,
        Self::Execution,
        Self::Grant,
        Self::Body,
        Self::Evidence,
        Self::Authority,
        Self::Index,
        Self::Events,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Live => "live",
            Self::Terminal => "terminal",
            Self::Execution => "execution",
            Self::Grant => "grant",
            Self::Body => "body",
            Self::Evidence => "evidence",
            Self::Authority => "authority",
            Self::Index => "index",
            Self::Events => "events",
        }
    }

    /// Whether anybody asks for one row by its whole key: else filters over keys would be made and never used.
    pub(crate) fn is_asked_by_key(self) -> bool {
        !matches!(self, Self::Index | Self::Events)
    }
}

/// What is done to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write<T> {
    /// It gets this value.
    Put(T),
    /// It goes.
    Delete,
    /// It goes, and was put exactly once since it last went.
    DeleteOnce,
}

/// Rows to write together. One buffer holds all keys and values, and is used again.
#[derive(Debug, Default)]
pub(crate) struct RowBatch {
    bytes: Vec<u8>,
    rows: Vec<(Family, Range<usize>, Write<Range<usize>>)>,
}

impl RowBatch {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    pub(crate) fn put(&mut self, family: Family, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        encode(&mut self.bytes);
        self.rows.push((family, start..middle, Write::Put(middle..self.bytes.len())));
    }

    pub(crate) fn delete(&mut self, family: Family, key: &[u8]) {
        self.end(family, key, Write::Delete);
    }

    /// Deletes a row that was put exactly once since it was last deleted: row and deletion end as soon as they meet.
    pub(crate) fn delete_once(&mut self, family: Family, key: &[u8]) {
        self.end(family, key, Write::DeleteOnce);
    }

    fn end(&mut self, family: Family, key: &[u8], write: Write<Range<usize>>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.rows.push((family, start..self.bytes.len(), write));
    }

    /// Family, key, and what is done to the row.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Family, &[u8], Write<&[u8]>)> {
        self.rows.iter().map(|(family, key, write)| {
            let write = match write {
                Write::Put(value) => Write::Put(&self.bytes[value.clone()]),
                Write::Delete => Write::Delete,
                Write::DeleteOnce => Write::DeleteOnce,
            };
            (*family, &self.bytes[key.clone()], write)
        })
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Called with each row of a scan, in key order.
pub(crate) type VisitRow<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Called with each row of a scan, and may fail.
pub(crate) type TryRow<'a, T> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<T, StorageFault>;

/// Told how many bytes were read since the last call; may wait, and may end the work.
pub type Pace<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// The rows as of one instant.
pub(crate) trait Rows: Send + Sync {
    /// Hands the row's value to `read`; false where there is no such row.
    fn get(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault>;

    /// Visits the rows of a family from `from` on. Meant for many: what it reads does not stay in memory.
    fn scan(&self, family: Family, from: &[u8], visit: VisitRow<'_>) -> Result<(), StorageFault>;

    /// Visits the rows of a family from `from` up to but not including `to`. Meant for few.
    fn page(&self, family: Family, from: &[u8], to: &[u8], visit: VisitRow<'_>) -> Result<(), StorageFault> {
        self.scan(family, from, &mut |key, value| if key < to { visit(key, value) } else { ControlFlow::Break(()) })
    }
}

/// Called with each row of all families.
pub(crate) type Examine<'a> = &'a mut dyn FnMut(Family, &[u8], &[u8]) -> ControlFlow<()>;

/// Called with each row of all families, and with all rows of the same instant.
pub(crate) type ExamineAmong<'a> = &'a mut dyn FnMut(&dyn Rows, Family, &[u8], &[u8]) -> ControlFlow<()>;

/// One instance of the state. Every error is fatal.
pub(crate) trait Disk: Send + Sync {
    /// Applies a batch, all of it or nothing; not durable yet.
    fn write(&self, batch: &RowBatch) -> Result<(), StorageFault>;

    /// Makes everything written before the call durable, in one step.
    fn flush(&self) -> Result<(), StorageFault>;

    /// The rows as they are now.
    fn snapshot(&self) -> Arc<dyn Rows>;

    /// A row as a crash at this instant would leave it.
    fn persisted(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageFault>;

    /// Writes everything written before the call to the new directory `dir`, durable but for the directory's own name.
    fn checkpoint(&self, dir: &Path) -> Result<(), StorageFault>;

    /// Reads every row from the disk and not from any cache, with its checksum.
    fn examine(&self, examine: ExamineAmong<'_>) -> Result<(), StorageFault>;

    /// What of this instance retention may remove.
    fn horizon(&self) -> &Horizon;

    /// About what `families` take of the disk.
    fn bytes(&self, families: &[Family]) -> Result<u64, StorageFault>;

    /// Removes what the horizon lets go from `families`. `pace` is told the bytes that were gone through, and may end it; whether
    /// it came to the end.
    fn compact(&self, families: &[Family], pace: Pace<'_>) -> Result<bool, StorageFault>;

    /// Looks for errors that happened in the background.
    fn check(&self) -> Result<(), StorageFault>;

    /// Ends work in the background: another instance takes over, and this one only serves its readers to the end.
    fn retire(&self);
}

/// What was found at open.
pub(crate) struct Opened {
    pub(crate) disk: Arc<dyn Disk>,
    /// What is known to have been durable: an instance that holds less has lost something.
    pub(crate) floor: Option<LogId>,
}

/// Where instances come from: at any instant exactly one is the current one, through any crash.
pub(crate) trait Medium: Send + Sync {
    /// Opens the current instance, or the first one.
    fn open(&self) -> Result<Opened, OpenError>;

    /// The file that says which rows the current instance holds.
    fn manifest(&self) -> PathBuf;

    /// Records, durably, that everything up to `floor` is durable.
    fn raise_floor(&self, floor: LogId) -> Result<(), StorageFault>;

    /// The rows of a checkpoint, to be read and nothing else.
    fn peek(&self, dir: &Path) -> Result<Arc<dyn Rows>, CheckpointError>;

    /// Makes the checkpoint in `dir`, whose files are `sums`, the current instance, durably, and leaves `dir` as it is.
    fn install(&self, dir: &Path, sums: &Sums, floor: Option<LogId>) -> Result<Arc<dyn Disk>, StorageFault>;
}
