//! The log on RocksDB, in a child process that aborts before or after any of its writes and syncs; the parent cuts what
//! an interrupted sync was to make durable, as a loss of power would, and opens the log again.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hapax_codec::log::side::SLOT_LEN;
use hapax_codec::log::side::Slot;

use super::super::rocks::{Parts, parts};
use super::model::{Model, script};
use super::*;
use crate::seam::{Change, Key, LogDisk, SideDisk, Visit};

const DIRECTORY: &str = "HAPAX_LOG_CRASH_DIRECTORY";
const STEP: &str = "HAPAX_LOG_CRASH_STEP";
const INTERRUPTED: &str = "interrupted";

/// Counts the steps of both disks, and aborts the process before the one it was told: step `n` is before write or sync
/// number `n / 2` if `n` is even, after it if `n` is odd.
struct Aborting {
    steps: AtomicU64,
    abort_at: u64,
}

impl Aborting {
    fn step<T>(&self, action: impl FnOnce() -> T) -> T {
        self.tick();
        let result = action();
        self.tick();
        result
    }

    fn tick(&self) {
        if self.steps.fetch_add(1, Ordering::SeqCst) == self.abort_at {
            std::process::abort();
        }
    }
}

/// Notes how long the write-ahead log was before a sync, for as long as that sync is not known to be done.
struct AbortingLog(Box<dyn LogDisk>, Arc<Aborting>, PathBuf);

impl LogDisk for AbortingLog {
    fn write(&self, batch: &[Change]) -> Result<(), StorageFault> {
        self.1.step(|| self.0.write(batch))
    }

    fn sync(&self) -> Result<(), StorageFault> {
        fs::write(self.2.join(INTERRUPTED), wal(&self.2.join("log")).unwrap().1.to_string()).unwrap();
        let synced = self.1.step(|| self.0.sync());
        fs::remove_file(self.2.join(INTERRUPTED)).unwrap();
        synced
    }

    fn get(&self, key: &Key) -> Result<Option<Bytes>, StorageFault> {
        self.0.get(key)
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<(), StorageFault> {
        self.0.scan(from, to, visit)
    }

    fn reclaim(&self, from: &Key, to: &Key) -> Result<(), StorageFault> {
        self.0.reclaim(from, to)
    }

    fn close(&self) {
        self.0.close();
    }
}

struct AbortingSide(Box<dyn SideDisk>, Arc<Aborting>);

impl SideDisk for AbortingSide {
    fn write(&mut self, slot: usize, bytes: &[u8; SLOT_LEN]) -> Result<(), StorageFault> {
        self.1.step(|| self.0.write(slot, bytes))
    }

    fn sync(&mut self) -> Result<(), StorageFault> {
        self.1.step(|| self.0.sync())
    }
}

/// The newest write-ahead log and its length.
fn wal(directory: &Path) -> Option<(PathBuf, u64)> {
    let files = fs::read_dir(directory.join("db")).ok()?.filter_map(|file| file.ok().map(|file| file.path()));
    let newest = files.filter(|path| path.extension().is_some_and(|extension| extension == "log")).max()?;
    let len = fs::metadata(&newest).ok()?.len();
    Some((newest, len))
}

/// Runs the script and writes down every acknowledgement, until it aborts or ends. Not a test by itself: the parents below start
/// this very executable with the two variables set.
#[test]
fn child() {
    let (Ok(directory), Ok(step)) = (std::env::var(DIRECTORY), std::env::var(STEP)) else { return };
    let directory = PathBuf::from(directory);
    let aborting = Arc::new(Aborting { steps: AtomicU64::new(0), abort_at: step.parse().unwrap() });
    let Parts { disk, side, slot, groups } = parts(&directory.join("log"), &calm()).unwrap();
    let disk = Box::new(AbortingLog(disk, Arc::clone(&aborting), directory.clone()));
    let side = Box::new(AbortingSide(side, Arc::clone(&aborting)));
    let store = LogStore::assemble(disk, side, slot, groups, by_hand()).unwrap();
    let log = store.group(0).unwrap();
    let notes = Arc::new(Mutex::new(File::create(directory.join("acknowledged")).unwrap()));
    let mut model = Model::default();
    for (number, op) in script().iter().enumerate() {
        let notes = Arc::clone(&notes);
        let done: Done = Box::new(move |result| {
            assert_eq!(result, Ok(()));
            writeln!(notes.lock().unwrap(), "{number}").unwrap();
        });
        model.apply(op, number as u64, &log, done).unwrap();
        store.pump();
    }
    store.shutdown().unwrap();
    fs::write(directory.join("steps"), aborting.steps.load(Ordering::SeqCst).to_string()).unwrap();
}

/// Runs the child; returns the last acknowledged operation.
fn run_child(directory: &Path, step: u64) -> Option<usize> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "log::tests::rocks_crash::child", "--nocapture", "--test-threads=1"])
        .envs([(DIRECTORY, directory.as_os_str()), (STEP, step.to_string().as_ref())])
        .output()
        .unwrap();
    let finished = directory.join("steps").exists();
    assert_eq!(output.status.success(), finished, "{}", String::from_utf8_lossy(&output.stderr));
    let notes = fs::read_to_string(directory.join("acknowledged")).unwrap_or_default();
    notes.lines().next_back().map(|number| number.parse().unwrap())
}

/// What the script's states are, from the memory disk.
fn states() -> Vec<Model> {
    let store = MemoryDisk::new().open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    let mut model = Model::default();
    let mut states = vec![model.clone()];
    for (number, op) in script().iter().enumerate() {
        model.apply(op, number as u64, &log, ignore()).unwrap();
        states.push(model.clone());
    }
    states
}

fn check(directory: &Path, states: &[Model], acknowledged: Option<usize>, context: &str) {
    let store =
        LogStore::open(&directory.join("log"), by_hand()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = Model::of(&store.group(0).unwrap());
    let from = acknowledged.map_or(0, |number| number + 1);
    assert!(states[from..].contains(&found), "{context}: acknowledged {acknowledged:?}, found {found:?}");
    // A second opening finds the same, and the log goes on.
    store.shutdown().unwrap();
    let store = LogStore::open(&directory.join("log"), by_hand()).unwrap();
    let log = store.group(0).unwrap();
    assert_eq!(Model::of(&log), found, "{context}: reopened");
    let (next, calls) = (log.indexes().end, Calls::default());
    log.append(entries(1000, next..next + 1), calls.done(1)).unwrap();
    store.shutdown().unwrap();
    assert_eq!(calls.seen(), vec![(1, true)]);
    // What the crash left behind does not look like damage now that sound records stand in later files.
    let store =
        LogStore::open(&directory.join("log"), by_hand()).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(store.group(0).unwrap().last(), Some(id(1000, next)));
}

fn steps_of_the_script() -> u64 {
    let directory = tempfile::tempdir().unwrap();
    run_child(directory.path(), u64::MAX);
    fs::read_to_string(directory.path().join("steps")).unwrap().parse().unwrap()
}

#[test]
fn an_abort_at_any_step_loses_nothing_acknowledged() {
    let (states, steps) = (states(), steps_of_the_script());
    assert!(steps > 100, "{steps} steps prove little");
    let mut torn = 0;
    for step in 0..steps {
        let directory = tempfile::tempdir().unwrap();
        let acknowledged = run_child(directory.path(), step);
        let mut context = format!("step {step} of {steps}");
        if let Ok(from) = fs::read_to_string(directory.path().join(INTERRUPTED)) {
            let (path, len) = wal(&directory.path().join("log")).unwrap();
            let from: u64 = from.parse().unwrap();
            if len > from {
                // The sync was not done: of what it was to sync, power leaves any part.
                let keep = from + (step * 7919) % (len - from);
                File::options().write(true).open(&path).unwrap().set_len(keep).unwrap();
                context = format!("{context}, cut to {keep} of {from}..{len}");
                torn += 1;
            }
        }
        check(directory.path(), &states, acknowledged, &context);
    }
    assert!(torn > 10, "{torn} torn writes prove little");
}

#[test]
fn a_torn_slot_of_the_side_file_is_harmless() {
    let backend = OnRocks::new();
    let store = backend.open(by_hand()).unwrap();
    store.group(0).unwrap().append(entries(1, 0..3), ignore()).unwrap();
    store.shutdown().unwrap();
    let path = backend.path().join("side");
    let mut bytes = fs::read(&path).unwrap();
    // The slot that would be written next is the older one: half of the new write arrived.
    let slots: Vec<Slot> =
        bytes.chunks(SLOT_LEN).map(|slot| Slot::decode(slot.try_into().unwrap()).unwrap()).collect();
    let next = usize::from(slots[1].sequence < slots[0].sequence);
    let newest = &slots[1 - next];
    let write = Slot { sequence: newest.sequence + 1, groups: newest.groups.clone() }.encode().unwrap();
    bytes[next * SLOT_LEN..][..1024].copy_from_slice(&write[..1024]);
    fs::write(&path, &bytes).unwrap();
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    assert_eq!(all(&log), entries(1, 0..3));
    log.append(entries(1, 3..4), ignore()).unwrap();
    store.shutdown().unwrap();
    assert_eq!(all(&backend.open(by_hand()).unwrap().group(0).unwrap()), entries(1, 0..4));
}
