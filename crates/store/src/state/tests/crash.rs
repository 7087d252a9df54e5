//! The state on RocksDB in a child process that aborts at a stage it was told; the parent opens what is left.
//! What stands must be the state after some entry, at least the last one that was told to be flushed, and nothing by half.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::options::{Probe, Stage};
use super::super::{MemoryState, OpenOptions, StateStore};
use super::fixture::*;

const DIRECTORY: &str = "HAPAX_STATE_CRASH_DIRECTORY";
const STAGE: &str = "HAPAX_STATE_CRASH_STAGE";
const OCCURRENCE: &str = "HAPAX_STATE_CRASH_OCCURRENCE";

/// The script ends here.
const LAST: u64 = 100;
/// The checkpoint that the script installs was made here, so that the state jumps.
const DONATED: u64 = 70;
/// ... after this entry.
const INSTALLED_AT: u64 = 50;

fn is(stage: &Stage<'_>, name: &str) -> bool {
    match stage {
        Stage::Engine(message) => name == "engine" || (name == "flushing" && message.contains("Level-0 flush table")),
        stage => format!("{stage:?}") == name,
    }
}

/// Entries, a flush every tenth, a checkpoint every thirtieth, two compactions, and one installation.
fn script(store: StateStore, directory: &Path, told: &mut dyn FnMut(u64)) {
    let mut driver = Driver::on(store);
    while driver.index < LAST {
        driver.step().unwrap();
        if driver.index.is_multiple_of(30) {
            driver.store.checkpoint(&directory.join(format!("checkpoint-{}", driver.index))).unwrap();
        }
        if driver.index.is_multiple_of(10) {
            driver.store.flush().unwrap();
            told(driver.store.flushed_applied().unwrap().unwrap().index);
        }
        if matches!(driver.index, 45 | 85) {
            driver.compact();
        }
        if driver.index == INSTALLED_AT {
            driver.store.install(&directory.join("donated")).unwrap();
            driver = Driver::on(driver.store);
            told(DONATED);
        }
    }
}

/// Not a test by itself: the parents below start this very executable with the variables set.
#[test]
fn child() {
    let variable = |name| std::env::var(name);
    let (Ok(directory), Ok(stage), Ok(nth)) = (variable(DIRECTORY), variable(STAGE), variable(OCCURRENCE)) else {
        return;
    };
    let (directory, nth, seen) = (Path::new(&directory), nth.parse::<u64>().unwrap(), AtomicU64::new(0));
    let probe = Probe::new(move |reached| {
        if is(&reached, &stage) && seen.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            std::process::abort();
        }
    });
    let options = OpenOptions { probe, ..OpenOptions::default() };
    let store = StateStore::open(&directory.join("state"), options, Told::default().hook()).unwrap();
    let mut notes = File::create(directory.join("told")).unwrap();
    script(store, directory, &mut |index| writeln!(notes, "{index}").unwrap());
}

/// Everything that a state in memory holds after each entry; also in the life that begins with the donated checkpoint.
struct Expected {
    donated: tempfile::TempDir,
    by_index: HashMap<u64, String>,
}

impl Expected {
    fn new() -> Self {
        let mut driver =
            Driver::on(MemoryState::default().open(OpenOptions::default(), Told::default().hook()).unwrap());
        let mut by_index = HashMap::from([(0, shown(&driver.store))]);
        while driver.index < LAST {
            driver.step().unwrap();
            by_index.insert(driver.index, shown(&driver.store));
        }
        let donated = tempfile::tempdir().unwrap();
        let mut donor = Driver::on(
            StateStore::open(&donated.path().join("state"), OpenOptions::default(), Told::default().hook()).unwrap(),
        );
        donor.run_to(DONATED);
        donor.store.checkpoint(&donated.path().join("donated")).unwrap();
        Self { donated, by_index }
    }

    /// Crashes the `nth` time that `stage` is reached; false where it was not reached so often.
    fn crash(&self, stage: &str, nth: u64) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let donated = directory.path().join("donated");
        fs::create_dir(&donated).unwrap();
        for file in files_in(&self.donated.path().join("donated"), "") {
            fs::copy(&file, donated.join(file.file_name().unwrap())).unwrap();
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "state::tests::crash::child", "--test-threads=1"])
            .envs([(DIRECTORY, directory.path().to_str().unwrap()), (STAGE, stage), (OCCURRENCE, &nth.to_string())])
            .output()
            .unwrap();
        let told = fs::read_to_string(directory.path().join("told")).unwrap_or_default();
        let told = told.lines().last().map_or(0, |line| line.parse::<u64>().unwrap());
        let whom = format!("{stage}, time {nth}");
        let store = StateStore::open(&directory.path().join("state"), OpenOptions::default(), Told::default().hook());
        let store = store.unwrap_or_else(|error| panic!("{whom}: {error}"));
        let stands = store.applied().last_applied.map_or(0, |id| id.index);
        assert!(stands >= told, "{whom}: stands at {stands}, but {told} was told to be flushed");
        assert_eq!(shown(&store), self.by_index[&stands], "{whom}: not the state after entry {stands}");
        // What was not flushed is applied again, and the end is the same.
        let mut driver = Driver::on(store);
        driver.run_to(LAST);
        assert_eq!(shown(&driver.store), self.by_index[&LAST], "{whom}");
        driver.store.scrub(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        let ended = child.status.success();
        let output = String::from_utf8_lossy(&child.stderr);
        assert!(ended || !output.contains("panicked"), "{whom}: the child failed by itself:\n{output}");
        !ended
    }
}

fn shown(store: &StateStore) -> String {
    format!("{:?}", everything(store))
}

#[test]
fn a_crash_at_any_stage_leaves_the_state_after_some_entry() {
    let expected = Expected::new();
    let stages: [(&str, &[u64]); 11] = [
        ("CommitEncoded", &[1, 41]),
        ("CommitWritten", &[2, 60]),
        ("FlushBegun", &[5]),
        ("flushing", &[1, 20]),
        ("FlushEnded", &[1, 8]),
        ("FloorRaised", &[4]),
        ("CheckpointMade", &[2]),
        ("CheckpointSealed", &[1]),
        ("InstallCopied", &[1]),
        ("InstallActivated", &[1]),
        ("InstallNamed", &[1]),
    ];
    for (stage, occurrences) in stages {
        for nth in occurrences {
            assert!(expected.crash(stage, *nth), "{stage} was not reached {nth} times: nothing was tested");
        }
    }
    assert!(!expected.crash("none", 1), "a child that is not told to crash ends well");
}

/// RocksDB says what it does while it opens, flushes, and makes files: wherever it speaks, the process may die.
#[test]
fn a_crash_while_rocksdb_is_at_work_leaves_the_state_after_some_entry() {
    let expected = Expected::new();
    let crashed = (0..10).filter(|n| expected.crash("engine", 1 + n * 151)).count();
    assert!(crashed >= 5, "only {crashed} children reached their point");
}
