//! A log as plain as can be, scripts of operations, and the random comparison of the two.

use hapax_codec::log::Vote;
use proptest::prelude::*;

use super::*;

/// One operation on group 0.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Append(u64),
    Vote,
    TruncateAfter(u64),
    Purge(u64),
    PurgeBeyond(u64),
    Committed,
}

/// What the log must hold. `committed` is not compared: it may lag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) purged: Option<LogId>,
    pub(super) entries: Vec<Entry>,
    pub(super) vote: Option<Vote>,
}

impl Model {
    pub(super) fn of(log: &GroupLog) -> Model {
        Model { purged: log.purged(), entries: all(log), vote: log.vote() }
    }

    fn next(&self) -> u64 {
        let last = self.entries.last().map(|entry| entry.id).or(self.purged);
        last.map_or(0, |last| last.index + 1)
    }

    fn first(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    /// Applies operation number `number` here and to the log. Every operation has a meaning in every state.
    /// True if `done` will be called.
    pub(super) fn apply(&mut self, op: &Op, number: u64, log: &GroupLog, done: Done) -> Result<bool, LogError> {
        let term = number + 1;
        let len = (self.entries.len()) as u64;
        match op {
            Op::Append(count) => {
                let new = entries(term, self.next()..self.next() + count.max(&1));
                self.entries.extend(new.clone());
                log.append(new, done).map(|()| true)
            }
            Op::Vote => {
                let vote = Vote { term, node: number % 3, committed: number.is_multiple_of(2) };
                self.vote = Some(vote);
                log.save_vote(vote, done).map(|()| true)
            }
            Op::TruncateAfter(back) => {
                let keep = len - back.min(&len);
                self.entries.truncate(keep as usize);
                log.truncate_after((self.first() + keep).checked_sub(1)).map(|()| false)
            }
            Op::Purge(forward) => {
                let count = *forward.min(&len);
                let Some(last) = self.entries.get((count as usize).wrapping_sub(1)).map(|entry| entry.id) else {
                    return Ok(false);
                };
                self.entries.drain(..count as usize);
                self.purged = Some(last);
                log.purge(last, done).map(|()| true)
            }
            Op::PurgeBeyond(forward) => {
                let purged = id(term, self.next() + forward);
                self.entries.clear();
                self.purged = Some(purged);
                log.purge(purged, done).map(|()| true)
            }
            Op::Committed => {
                let Some(last) = log.last() else { return Ok(false) };
                log.save_committed(last).map(|()| false)
            }
        }
    }
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1u64..6).prop_map(Op::Append),
        2 => Just(Op::Vote),
        2 => (0u64..8).prop_map(Op::TruncateAfter),
        2 => (0u64..8).prop_map(Op::Purge),
        1 => (0u64..5).prop_map(Op::PurgeBeyond),
        1 => Just(Op::Committed),
    ]
}

/// A script with every kind of operation behind every other kind that matters.
pub(super) fn script() -> Vec<Op> {
    use Op::{Append, Committed, Purge, PurgeBeyond, TruncateAfter, Vote};
    vec![
        Vote,
        Append(3),
        Vote,
        Append(2),
        TruncateAfter(3),
        Append(2),
        Committed,
        Append(1),
        Purge(2),
        Append(4),
        TruncateAfter(2),
        Purge(1),
        Vote,
        Append(2),
        TruncateAfter(9),
        Append(1),
        PurgeBeyond(3),
        Append(2),
        TruncateAfter(1),
        Vote,
        Append(1),
    ]
}

fn compare(backend: &dyn Backend, ops: &[(Op, bool, bool)], cache_bytes_max: usize) {
    let options = || OpenOptions { cache_bytes_max, ..by_hand() };
    let (mut model, mut store) = (Model::default(), backend.open(options()).unwrap());
    let calls = Calls::default();
    let mut expected = Vec::new();
    for (number, (op, pump, reopen)) in ops.iter().enumerate() {
        let log = store.group(0).unwrap();
        if model.apply(op, number as u64, &log, calls.done(number as u32)).unwrap() {
            expected.push((number as u32, true));
        }
        assert_eq!(Model::of(&log), model, "after {op:?}");
        if *pump {
            store.pump();
            assert_eq!(calls.seen(), expected);
        }
        if *reopen {
            store.shutdown().unwrap();
            store = backend.open(options()).unwrap();
            assert_eq!(Model::of(&store.group(0).unwrap()), model, "reopened after {op:?}");
        }
    }
    store.shutdown().unwrap();
    assert_eq!(calls.seen(), expected);
}

proptest! {
    #[test]
    fn memory_agrees_with_the_model(
        ops in prop::collection::vec((op(), any::<bool>(), prop::bool::weighted(0.1)), 1..60),
        cache in prop_oneof![Just(0usize), Just(1000), Just(1 << 20)],
    ) {
        compare(&MemoryDisk::new(), &ops, cache);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rocks_agrees_with_the_model(
        ops in prop::collection::vec((op(), any::<bool>(), prop::bool::weighted(0.05)), 1..60),
        cache in prop_oneof![Just(0usize), Just(1000), Just(1 << 20)],
    ) {
        compare(&OnRocks::new(), &ops, cache);
    }
}
