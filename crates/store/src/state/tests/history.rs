//! Random histories in memory: whatever is committed, flushed, installed or lost, what stands is a state that was.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{MemoryState, OpenOptions};
use super::fixture::*;

#[derive(Debug, Clone, Copy)]
enum Act {
    Entries(u64),
    Flush,
    Crash,
    Checkpoint,
    Install,
    Compact,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1u64..30).prop_map(Act::Entries),
        2 => Just(Act::Flush),
        2 => Just(Act::Crash),
        1 => Just(Act::Checkpoint),
        1 => Just(Act::Install),
        1 => Just(Act::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_crash_leaves_what_was_flushed(acts in vec(act(), 1..25)) {
        let memory = MemoryState::default();
        let dir = tempfile::tempdir().unwrap();
        let open = || memory.open(OpenOptions::default(), Told::default().hook()).unwrap();
        let mut driver = Driver::on(open());
        let (mut flushed, mut checkpoints) = (everything(&driver.store), Vec::new());
        for act in acts {
            match act {
                Act::Entries(count) => driver.run_to(driver.index + count),
                Act::Flush => {
                    driver.store.flush().unwrap();
                    flushed = everything(&driver.store);
                }
                Act::Crash => {
                    memory.crash();
                    prop_assert!(driver.step().is_err());
                    driver = Driver::on(open());
                    prop_assert_eq!(everything(&driver.store), flushed.clone());
                }
                Act::Compact => {
                    let before = everything(&driver.store);
                    driver.compact();
                    flushed = everything(&driver.store);
                    prop_assert_eq!(&flushed, &before);
                }
                Act::Checkpoint => {
                    let path = dir.path().join(checkpoints.len().to_string());
                    driver.store.checkpoint(&path).unwrap();
                    flushed = everything(&driver.store);
                    checkpoints.push((path, flushed.clone()));
                }
                Act::Install => if let Some((path, then)) = checkpoints.last() {
                    driver.store.install(path).unwrap();
                    prop_assert_eq!(&everything(&driver.store), then);
                    flushed = then.clone();
                    driver = Driver::on(driver.store);
                },
            }
            let told = driver.store.flushed_applied().unwrap();
            prop_assert_eq!(told, flushed.0.last_applied);
        }
    }
}
