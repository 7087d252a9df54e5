//! The log in memory, crashed before every single write and sync of a script, with every kind of loss.

use super::model::{Model, Op, op, script};
use super::*;
use proptest::prelude::*;

/// Runs a script with the power cut before step `cut`; `together` operations share a round. Returns the model after
/// each operation, how many were submitted and the number of the last one that was acknowledged.
fn run(disk: &MemoryDisk, ops: &[Op], together: usize) -> (Vec<Model>, Option<u32>) {
    let (options, _faults) = collecting(false);
    let store = disk.open(options).unwrap();
    let log = store.group(0).unwrap();
    let (mut model, calls) = (Model::default(), Calls::default());
    let mut states = vec![model.clone()];
    for (number, op) in ops.iter().enumerate() {
        if model.apply(op, number as u64, &log, calls.done(number as u32)).is_err() {
            break;
        }
        states.push(model.clone());
        if number % together == together - 1 {
            store.pump();
        }
    }
    store.pump();
    let last = calls.seen().into_iter().filter(|(_, ok)| *ok).map(|(number, _)| number).next_back();
    (states, last)
}

/// The crashed disk must open, and hold a state that lies between what was acknowledged and what was asked.
fn check(disk: &MemoryDisk, states: &[Model], acknowledged: Option<u32>, context: &str) {
    let store = disk.open(by_hand()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = Model::of(&store.group(0).unwrap());
    let from = acknowledged.map_or(0, |number| number as usize + 1);
    assert!(states[from..].contains(&found), "{context}: acknowledged {acknowledged:?}, found {found:?}");
    if let Some(promised) = states[from].vote {
        assert!(found.vote.is_some_and(|vote| vote.covers(&promised)), "{context}: the vote went back");
    }
}

fn crashes() -> Vec<Crash> {
    let mut crashes = vec![Crash::LoseUnsynced];
    for (changes, sectors) in [(0, 3), (1, 8), (3, 1), (usize::MAX, 5), (usize::MAX, 8)] {
        crashes.push(Crash::KeepSome { changes, sectors });
    }
    crashes
}

fn explore(ops: &[Op], together: usize) -> u64 {
    let whole = MemoryDisk::new();
    run(&whole, ops, together);
    let mut crashed = 0;
    for step in 0..=whole.steps() {
        for crash in crashes() {
            let disk = MemoryDisk::new();
            disk.cut_power_before(step);
            let (states, acknowledged) = run(&disk, ops, together);
            disk.crash(crash);
            check(&disk, &states, acknowledged, &format!("{together} together, cut before step {step}, {crash:?}"));
            crashed += 1;
        }
    }
    crashed
}

#[test]
fn every_step_of_the_script_can_crash() {
    let crashed: u64 = [1, 2, 3, 100].into_iter().map(|together| explore(&script(), together)).sum();
    assert!(crashed > 800, "{crashed} crashes prove little");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_step_of_any_script_can_crash(ops in prop::collection::vec(op(), 1..14), together in 1usize..5) {
        explore(&ops, together);
    }
}

#[test]
fn the_first_fault_is_the_last() {
    for threads in [false, true] {
        let disk = MemoryDisk::new();
        let (options, faults) = collecting(threads);
        let store = disk.open(options).unwrap();
        let (log, calls) = (store.group(0).unwrap(), Calls::default());
        disk.cut_power_before(1);
        log.append(entries(1, 0..2), calls.done(1)).unwrap();
        let _ = log.append(entries(1, 2..3), calls.done(2));
        let fault = store.shutdown().unwrap_err();
        assert_eq!(fault.operation, "sync the log");
        assert!(calls.seen().iter().all(|(_, ok)| !ok));
        assert_eq!(faults.lock().unwrap().as_slice(), std::slice::from_ref(&fault));
        // The disk works again, but nobody knows what it lost: the log stays down.
        disk.crash(Crash::LoseUnsynced);
        assert_eq!(log.append(entries(1, 3..4), calls.done(3)), Err(LogError::Fault(fault.clone())));
        assert_eq!(log.entries(0..1, 1), Err(LogError::Fault(fault)));
    }
}

#[test]
fn an_acknowledged_vote_is_in_the_side_file_too() {
    let vote = hapax_codec::log::Vote { term: 4, node: 2, committed: true };
    let mut acknowledged = 0;
    for step in 0..8 {
        let disk = MemoryDisk::new();
        let (options, _faults) = collecting(false);
        let (store, calls) = (disk.open(options).unwrap(), Calls::default());
        disk.cut_power_before(step);
        store.group(0).unwrap().save_vote(vote, calls.done(1)).unwrap();
        store.pump();
        disk.crash(Crash::LoseUnsynced);
        if calls.seen() == vec![(1, true)] {
            acknowledged += 1;
            assert_eq!(disk.slot().unwrap().groups[&0].vote, Some(vote), "cut before step {step}");
        }
    }
    assert!((1..8).contains(&acknowledged));
}

#[test]
fn the_side_thread_follows_the_acknowledgements() {
    /// Tells when the side file was synced.
    struct Told(std::sync::mpsc::SyncSender<()>);
    impl LogObserver for Told {
        fn side_synced(&self, _: std::time::Duration) {
            let _ = self.0.try_send(());
        }
    }
    let (sender, synced) = std::sync::mpsc::sync_channel(100);
    let disk = MemoryDisk::new();
    let store = disk.open(OpenOptions { observer: Arc::new(Told(sender)), ..calm() }).unwrap();
    let log = store.group(0).unwrap();
    for index in 0..50 {
        log.append(entries(1, index..index + 1), ignore()).unwrap();
    }
    // The thread writes by itself, and what it writes reaches the last entry.
    while disk.slot().unwrap().groups.get(&0).and_then(|promise| promise.acknowledged) != Some(id(1, 49)) {
        synced.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    }
}
