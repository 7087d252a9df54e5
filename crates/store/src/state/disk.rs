//! Where the state touches a disk: ordered rows in families, written in batches that are all there or not at all.
//! Behind these traits stand RocksDB (`rocks`) and memory with an explicit flush boundary (`memory`).

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hapax_codec::log::LogId;

use super::checkpoint::Sums;
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
}

impl Family {
    pub(crate) const ALL: [Self; 7] =
        [Self::Meta, Self::Live, Self::Terminal, Self::Execution, Self::Grant, Self::Body, Self::Evidence];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Live => "live",
            Self::Terminal => "terminal",
            Self::Execution => "execution",
            Self::Grant => "grant",
            Self::Body => "body",
            Self::Evidence => "evidence",
        }
    }
}

/// Rows to write together. One buffer holds all keys and values, and is used again.
#[derive(Debug, Default)]
pub(crate) struct RowBatch {
    bytes: Vec<u8>,
    rows: Vec<(Family, Range<usize>, Option<Range<usize>>)>,
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
        self.rows.push((family, start..middle, Some(middle..self.bytes.len())));
    }

    pub(crate) fn delete(&mut self, family: Family, key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.rows.push((family, start..self.bytes.len(), None));
    }

    /// Family, key, and value where the row is not deleted.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (Family, &[u8], Option<&[u8]>)> {
        self.rows.iter().map(|(family, key, value)| {
            (*family, &self.bytes[key.clone()], value.clone().map(|value| &self.bytes[value]))
        })
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Called with each row of a scan, in key order.
pub(crate) type VisitRow<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Told how many bytes were read since the last call; may wait, and may end the work.
pub type Pace<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// The rows as of one instant.
pub(crate) trait Rows: Send + Sync {
    /// Hands the row's value to `read`; false where there is no such row.
    fn get(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault>;

    /// Visits the rows of a family from `from` on.
    fn scan(&self, family: Family, from: &[u8], visit: VisitRow<'_>) -> Result<(), StorageFault>;
}

/// Called with each row of all families.
pub(crate) type Examine<'a> = &'a mut dyn FnMut(Family, &[u8], &[u8]) -> ControlFlow<()>;

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
    fn examine(&self, examine: Examine<'_>) -> Result<(), StorageFault>;

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
