//! The state in memory, with the flush boundary of a disk: a crash takes back what was not flushed. For simulations.
//! Rows keep their versions for as long as a snapshot may read them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_codec::log::LogId;
use hapax_machine::ids::GroupId;

use super::checkpoint::Sums;
use super::disk::{Disk, ExamineAmong, Family, Medium, Opened, Pace, RowBatch, Rows, VisitRow, Write};
use super::horizon::{Counts, Horizon, LookUp};
use super::options::OpenOptions;
use super::{CheckpointError, OpenError, StateStore, files};
use crate::seam::{FatalHook, StorageFault};

const FILE: &str = "rows";

type Table = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

/// A disk in memory. Clones are the same disk; it outlives the stores that were opened on it.
#[derive(Clone, Default)]
pub struct MemoryState {
    platter: Arc<Mutex<Platter>>,
}

/// The disk as one store opened it.
struct Opener {
    state: MemoryState,
    group: GroupId,
    removed: Arc<Counts>,
}

#[derive(Default)]
struct Platter {
    durable: Table,
    floor: Option<LogId>,
    /// Grows with every crash: an instance of an earlier life is powered off.
    life: u64,
    /// A flush makes durable how far the log was applied, and nothing else.
    torn: bool,
}

impl MemoryState {
    /// Opens what the disk holds. Checkpoints are one file in a real directory.
    ///
    /// # Errors
    /// What it holds cannot be read.
    pub fn open(&self, options: OpenOptions, fatal: FatalHook) -> Result<StateStore, OpenError> {
        let opener = Opener { state: self.clone(), group: options.group, removed: Arc::default() };
        StateStore::assemble(Arc::new(opener), options, fatal)
    }

    /// From now on a flush is torn: the applied index is durable, what was applied is not. For those who must be caught by it.
    pub fn tear(&self) {
        lock(&self.platter).torn = true;
    }

    /// Loses what was not flushed; stores that are open fail from now on.
    pub fn crash(&self) {
        lock(&self.platter).life += 1;
    }
}

impl Opener {
    fn instance(&self, platter: &Platter) -> Arc<dyn Disk> {
        let rows = platter.durable.iter().map(|(key, value)| (key.clone(), vec![(0, Some(value.clone()))]));
        let versions = Versions { rows: rows.collect(), sequence: 0, flushed: 0, readers: BTreeMap::new() };
        Arc::new(MemoryDisk {
            platter: Arc::clone(&self.state.platter),
            life: platter.life,
            versions: Arc::new(Mutex::new(versions)),
            horizon: Horizon::new(self.group, &self.removed),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Medium for Opener {
    fn open(&self) -> Result<Opened, OpenError> {
        let platter = lock(&self.state.platter);
        Ok(Opened { disk: self.instance(&platter), floor: platter.floor })
    }

    fn manifest(&self) -> PathBuf {
        PathBuf::from("memory")
    }

    fn raise_floor(&self, floor: LogId) -> Result<(), StorageFault> {
        lock(&self.state.platter).floor = Some(floor);
        Ok(())
    }

    fn peek(&self, dir: &Path) -> Result<Arc<dyn Rows>, CheckpointError> {
        let path = dir.join(FILE);
        let refuse = |detail: &str| CheckpointError { file: path.clone(), detail: detail.to_owned() };
        let bytes = fs::read(&path).map_err(|error| refuse(&error.to_string()))?;
        decode(&bytes).map(|table| Arc::new(table) as Arc<dyn Rows>).ok_or_else(|| refuse("its rows do not fit"))
    }

    fn install(&self, dir: &Path, _: &Sums, floor: Option<LogId>) -> Result<Arc<dyn Disk>, StorageFault> {
        let path = dir.join(FILE);
        let bytes = fs::read(&path).map_err(files::fault("read", &path))?;
        let table = decode(&bytes).ok_or_else(|| StorageFault {
            operation: "install a checkpoint",
            place: path.display().to_string(),
            reason: "its rows do not fit".to_owned(),
        })?;
        let mut platter = lock(&self.state.platter);
        platter.durable = table;
        platter.floor = floor;
        Ok(self.instance(&platter))
    }
}

/// When a row was written, and what; nothing where it was deleted.
type Version = (u64, Option<Vec<u8>>);

/// Every version of every row that somebody may still read.
struct Versions {
    rows: BTreeMap<(Family, Vec<u8>), Vec<Version>>,
    sequence: u64,
    /// What was written up to here is durable.
    flushed: u64,
    /// Snapshots by what they see, and how many see it.
    readers: BTreeMap<u64, usize>,
}

impl Versions {
    fn write(&mut self, batch: &RowBatch) {
        self.sequence += 1;
        let oldest = self.readers.first_key_value().map_or(self.sequence, |(sequence, _)| *sequence);
        for (family, key, value) in batch.rows() {
            let versions = self.rows.entry((family, key.to_vec())).or_default();
            let value = match value {
                Write::Put(value) => Some(value.to_vec()),
                Write::Delete | Write::DeleteOnce => None,
            };
            versions.push((self.sequence, value));
            // The newest version that the oldest reader sees, and everything after it, stays.
            let seen = versions.iter().rposition(|(sequence, _)| *sequence <= oldest).unwrap_or(0);
            versions.drain(..seen);
        }
    }

    /// Removes what was durable of a row, for old readers too; what was written since stays.
    fn remove(&mut self, key: &(Family, Vec<u8>)) {
        if let Some(versions) = self.rows.get_mut(key) {
            versions.retain(|(sequence, _)| *sequence > self.flushed);
            if versions.is_empty() {
                self.rows.remove(key);
            }
        }
    }

    fn table(&self) -> Table {
        let newest = |versions: &[Version]| versions.last().and_then(|(_, value)| value.clone());
        self.rows.iter().filter_map(|(key, versions)| Some((key.clone(), newest(versions)?))).collect()
    }
}

struct MemoryDisk {
    platter: Arc<Mutex<Platter>>,
    life: u64,
    versions: Arc<Mutex<Versions>>,
    horizon: Horizon,
}

/// Durable rows, and all rows.
struct Durable<'p>(&'p Table, &'p Mutex<Versions>);

impl LookUp for Durable<'_> {
    fn flushed(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault> {
        Rows::get(self.0, family, key, read)
    }

    fn exists(&self, family: Family, key: &[u8]) -> Result<bool, StorageFault> {
        let versions = lock(self.1);
        let newest = versions.rows.get(&(family, key.to_vec())).and_then(|versions| versions.last());
        Ok(newest.is_some_and(|(_, value)| value.is_some()))
    }
}

impl MemoryDisk {
    fn platter(&self, operation: &'static str) -> Result<MutexGuard<'_, Platter>, StorageFault> {
        let platter = lock(&self.platter);
        if platter.life == self.life {
            return Ok(platter);
        }
        Err(StorageFault { operation, place: "memory".to_owned(), reason: "the power is off".to_owned() })
    }
}

impl Disk for MemoryDisk {
    fn write(&self, batch: &RowBatch) -> Result<(), StorageFault> {
        let _powered = self.platter("write the state")?;
        lock(&self.versions).write(batch);
        Ok(())
    }

    fn flush(&self) -> Result<(), StorageFault> {
        let mut platter = self.platter("flush the state")?;
        let mut versions = lock(&self.versions);
        let mut table = versions.table();
        if platter.torn {
            let kept = platter.durable.iter().filter(|((family, _), _)| *family != Family::Meta);
            table.retain(|(family, _), _| *family == Family::Meta);
            table.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
        }
        platter.durable = table;
        versions.flushed = versions.sequence;
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn Rows> {
        let mut versions = lock(&self.versions);
        let sequence = versions.sequence;
        *versions.readers.entry(sequence).or_default() += 1;
        Arc::new(MemoryRows { versions: Arc::clone(&self.versions), sequence })
    }

    fn persisted(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageFault> {
        Ok(self.platter("read what was flushed")?.durable.get(&(family, key.to_vec())).cloned())
    }

    fn checkpoint(&self, dir: &Path) -> Result<(), StorageFault> {
        self.flush()?;
        let bytes = encode(&lock(&self.versions).table());
        fs::create_dir(dir).map_err(files::fault("create", dir))?;
        let path = dir.join(FILE);
        fs::write(&path, bytes).map_err(files::fault("write", &path))?;
        files::sync(&path)
    }

    fn examine(&self, examine: ExamineAmong<'_>) -> Result<(), StorageFault> {
        let table = self.platter("examine the state")?.durable.clone();
        for ((family, key), value) in &table {
            if examine(&table, *family, key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    fn bytes(&self, families: &[Family]) -> Result<u64, StorageFault> {
        let platter = self.platter("ask for the size of the state")?;
        let rows = families.iter().flat_map(|family| of_family(&platter.durable, *family, &[]));
        Ok(rows.map(|(row, value)| (row.1.len() + value.len()) as u64).sum())
    }

    fn compact(&self, families: &[Family], pace: Pace<'_>) -> Result<bool, StorageFault> {
        for family in families {
            let mut platter = self.platter("compact the state")?;
            let mut gone = Vec::new();
            let mut judge = self.horizon.judge(Durable(&platter.durable, &self.versions));
            let mut bytes = 0;
            for (row, value) in of_family(&platter.durable, *family, &[]) {
                bytes += (row.1.len() + value.len()) as u64;
                if judge.is_gone(*family, &row.1, value)? {
                    self.horizon.count(*family, row.1.len() + value.len());
                    gone.push(row.clone());
                }
            }
            for row in gone {
                platter.durable.remove(&row);
                lock(&self.versions).remove(&row);
            }
            drop(platter);
            if pace(bytes).is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn check(&self) -> Result<(), StorageFault> {
        self.platter("check the state").map(drop)
    }

    fn retire(&self) {}
}

struct MemoryRows {
    versions: Arc<Mutex<Versions>>,
    sequence: u64,
}

impl MemoryRows {
    fn visible<'v>(&self, versions: &'v [Version]) -> Option<&'v [u8]> {
        let (_, value) = versions.iter().rev().find(|(sequence, _)| *sequence <= self.sequence)?;
        value.as_deref()
    }
}

impl Rows for MemoryRows {
    fn get(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault> {
        let versions = lock(&self.versions);
        let found = versions.rows.get(&(family, key.to_vec())).and_then(|versions| self.visible(versions));
        found.into_iter().for_each(read);
        Ok(found.is_some())
    }

    fn scan(&self, family: Family, from: &[u8], visit: VisitRow<'_>) -> Result<(), StorageFault> {
        let versions = lock(&self.versions);
        for ((_, key), row) in of_family(&versions.rows, family, from) {
            if let Some(value) = self.visible(row)
                && let ControlFlow::Break(()) = visit(key, value)
            {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for MemoryRows {
    fn drop(&mut self) {
        let mut versions = lock(&self.versions);
        if let Some(count) = versions.readers.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                versions.readers.remove(&self.sequence);
            }
        }
    }
}

impl Rows for Table {
    fn get(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault> {
        let found = Table::get(self, &(family, key.to_vec()));
        found.into_iter().for_each(|value| read(value));
        Ok(found.is_some())
    }

    fn scan(&self, family: Family, from: &[u8], visit: VisitRow<'_>) -> Result<(), StorageFault> {
        for ((_, key), value) in of_family(self, family, from) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn of_family<'t, V>(
    table: &'t BTreeMap<(Family, Vec<u8>), V>,
    family: Family,
    from: &[u8],
) -> impl Iterator<Item = (&'t (Family, Vec<u8>), &'t V)> {
    let start = Bound::Included((family, from.to_vec()));
    table.range((start, Bound::Unbounded)).take_while(move |((of, _), _)| *of == family)
}

/// Family, length and bytes of the key, length and bytes of the value; nothing else ever reads it.
fn encode(table: &Table) -> Vec<u8> {
    let mut out = Vec::new();
    for ((family, key), value) in table {
        out.push(*family as u8);
        for bytes in [key, value] {
            out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }
    out
}

fn decode(mut bytes: &[u8]) -> Option<Table> {
    fn sized<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
        let (len, rest) = bytes.split_first_chunk::<8>()?;
        let (taken, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        *bytes = rest;
        Some(taken)
    }
    let mut table = Table::new();
    while let Some((family, rest)) = bytes.split_first() {
        bytes = rest;
        let family = *Family::ALL.get(usize::from(*family))?;
        let (key, value) = (sized(&mut bytes)?.to_vec(), sized(&mut bytes)?.to_vec());
        table.insert((family, key), value);
    }
    Some(table)
}
