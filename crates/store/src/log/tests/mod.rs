//! One contract for both disks, crashes at every step, and damage to every file.

mod contract;
mod crash;
mod model;
mod rocks_crash;
mod rocks_damage;
mod tamper;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hapax_codec::log::{Entry, EntryKind, LogId};
use tempfile::TempDir;

use super::*;
use crate::seam::StorageFault;

/// A disk that can be opened again and again.
trait Backend {
    fn open(&self, options: OpenOptions) -> Result<LogStore, OpenError>;
}

impl Backend for MemoryDisk {
    fn open(&self, options: OpenOptions) -> Result<LogStore, OpenError> {
        MemoryDisk::open(self, options)
    }
}

struct OnRocks(TempDir);

impl OnRocks {
    fn new() -> OnRocks {
        OnRocks(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("log")
    }
}

impl Backend for OnRocks {
    fn open(&self, options: OpenOptions) -> Result<LogStore, OpenError> {
        LogStore::open(&self.path(), options)
    }
}

/// Options whose fatal hook must not be called.
fn calm() -> OpenOptions {
    OpenOptions::new(Arc::new(|fault| panic!("no fault was expected: {fault}")))
}

/// As [`calm`], without threads.
fn by_hand() -> OpenOptions {
    OpenOptions { threads: false, ..calm() }
}

/// Options that collect faults.
fn collecting(threads: bool) -> (OpenOptions, Arc<Mutex<Vec<StorageFault>>>) {
    let faults = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&faults);
    let fatal: FatalHook = Arc::new(move |fault| hook.lock().unwrap().push(fault.clone()));
    (OpenOptions { threads, ..OpenOptions::new(fatal) }, faults)
}

fn id(term: u64, index: u64) -> LogId {
    LogId { term, node: 1, index }
}

fn entry(term: u64, index: u64) -> Entry {
    entry_of(term, index, 20)
}

/// An entry whose payload tells term and index, padded to `len`.
fn entry_of(term: u64, index: u64, len: usize) -> Entry {
    let mut payload = format!("{term}/{index}").into_bytes();
    payload.resize(len.max(payload.len()), b'.');
    let kind = if index.is_multiple_of(7) { EntryKind::Membership } else { EntryKind::Normal };
    Entry { id: id(term, index), kind, payload: Bytes::from(payload) }
}

fn entries(term: u64, indexes: std::ops::Range<u64>) -> Vec<Entry> {
    indexes.map(|index| entry(term, index)).collect()
}

fn all(log: &GroupLog) -> Vec<Entry> {
    log.entries(0..u64::MAX, usize::MAX).unwrap()
}

/// Counts calls of callbacks, in order.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(u32, bool)>>>);

impl Calls {
    fn done(&self, number: u32) -> Done {
        let calls = Arc::clone(&self.0);
        Box::new(move |result| calls.lock().unwrap().push((number, result.is_ok())))
    }

    fn seen(&self) -> Vec<(u32, bool)> {
        self.0.lock().unwrap().clone()
    }
}

fn ignore() -> Done {
    Box::new(|_| ())
}
