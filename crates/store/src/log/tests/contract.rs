//! What a log promises while nothing goes wrong, on RocksDB and in memory alike.

use std::sync::mpsc;

use hapax_codec::log::Vote;
use hapax_codec::log::side::GROUPS_MAX;

use super::*;

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod memory { $(#[test] fn $name() { super::$name(&super::MemoryDisk::new()); })* }
        mod rocks { $(#[test] fn $name() { super::$name(&super::OnRocks::new()); })* }
    };
}

on_both!(
    entries_are_readable_before_and_durable_at_the_callback,
    callbacks_come_in_order_over_all_groups,
    a_vote_waits_for_both_files_and_never_moves_back,
    everything_is_found_again,
    a_truncated_log_is_written_anew,
    a_purge_removes_the_front,
    a_purge_beyond_the_end_moves_the_log,
    a_log_may_begin_above_zero,
    refusals_change_nothing,
    reads_stop_at_their_limit_and_cross_from_disk_to_memory,
    groups_do_not_see_each_other,
    shutdown_makes_everything_durable_and_refuses_more,
    many_threads_share_the_writer,
    there_is_a_limit_of_groups,
);

fn entries_are_readable_before_and_durable_at_the_callback(backend: &dyn Backend) {
    let store = backend.open(by_hand()).unwrap();
    let (log, calls) = (store.group(0).unwrap(), Calls::default());
    log.append(entries(1, 0..3), calls.done(1)).unwrap();
    assert_eq!(all(&log), entries(1, 0..3));
    assert_eq!((log.last(), log.indexes(), calls.seen()), (Some(id(1, 2)), 0..3, vec![]));
    store.pump();
    assert_eq!(calls.seen(), vec![(1, true)]);
}

fn callbacks_come_in_order_over_all_groups(backend: &dyn Backend) {
    let store = backend.open(by_hand()).unwrap();
    let (a, b, calls) = (store.group(0).unwrap(), store.group(1).unwrap(), Calls::default());
    a.append(entries(1, 0..2), calls.done(1)).unwrap();
    b.append(entries(1, 0..1), calls.done(2)).unwrap();
    a.save_vote(Vote { term: 2, node: 1, committed: false }, calls.done(3)).unwrap();
    a.append(entries(1, 2..3), calls.done(4)).unwrap();
    a.purge(id(1, 0), calls.done(5)).unwrap();
    store.pump();
    assert_eq!(calls.seen(), (1..=5).map(|number| (number, true)).collect::<Vec<_>>());
}

fn a_vote_waits_for_both_files_and_never_moves_back(backend: &dyn Backend) {
    let vote = |term, node, committed| Vote { term, node, committed };
    let store = backend.open(calm()).unwrap();
    let log = store.group(0).unwrap();
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |result| sender.send(result).unwrap());
    log.save_vote(vote(3, 1, false), done).unwrap();
    assert_eq!(receiver.recv().unwrap(), Ok(()));
    assert!(matches!(log.save_vote(vote(2, 9, true), ignore()), Err(LogError::Refused(_))));
    assert!(matches!(log.save_vote(vote(3, 2, false), ignore()), Err(LogError::Refused(_))));
    assert_eq!(log.vote(), Some(vote(3, 1, false)));
    log.save_vote(vote(3, 2, true), ignore()).unwrap();
    store.shutdown().unwrap();
    let store = backend.open(calm()).unwrap();
    assert_eq!(store.group(0).unwrap().vote(), Some(vote(3, 2, true)));
}

fn everything_is_found_again(backend: &dyn Backend) {
    let vote = Vote { term: 9, node: 2, committed: true };
    for round in 0..3 {
        let store = backend.open(calm()).unwrap();
        let log = store.group(7).unwrap();
        let next = log.indexes().end;
        assert_eq!(next, round * 10);
        log.append(entries(4, next..next + 10), ignore()).unwrap();
        log.save_vote(vote, ignore()).unwrap();
        log.save_committed(id(4, next)).unwrap();
        store.shutdown().unwrap();
    }
    let store = backend.open(calm()).unwrap();
    let log = store.group(7).unwrap();
    assert_eq!((log.vote(), log.committed(), log.purged()), (Some(vote), Some(id(4, 20)), None));
    assert_eq!(all(&log), entries(4, 0..30));
}

fn a_truncated_log_is_written_anew(backend: &dyn Backend) {
    let expected = [entries(1, 0..4), entries(2, 4..6)].concat();
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    log.append(entries(1, 0..10), ignore()).unwrap();
    store.pump();
    log.truncate_after(Some(20)).unwrap();
    assert_eq!(log.last(), Some(id(1, 9)));
    log.truncate_after(Some(3)).unwrap();
    assert_eq!((log.last(), all(&log)), (Some(id(1, 3)), entries(1, 0..4)));
    log.append(entries(2, 4..6), ignore()).unwrap();
    assert_eq!(all(&log), expected);
    store.shutdown().unwrap();
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    assert_eq!(all(&log), expected);
    log.truncate_after(None).unwrap();
    assert_eq!((log.last(), all(&log)), (None, vec![]));
    log.append(entries(3, 0..1), ignore()).unwrap();
    store.shutdown().unwrap();
    assert_eq!(all(&backend.open(by_hand()).unwrap().group(0).unwrap()), entries(3, 0..1));
}

fn a_purge_removes_the_front(backend: &dyn Backend) {
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    log.append(entries(1, 0..10), ignore()).unwrap();
    log.purge(id(1, 4), ignore()).unwrap();
    store.pump();
    log.purge(id(1, 2), ignore()).unwrap();
    assert_eq!((log.purged(), log.indexes(), all(&log)), (Some(id(1, 4)), 5..10, entries(1, 5..10)));
    log.append(entries(1, 10..12), ignore()).unwrap();
    store.shutdown().unwrap();
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    assert_eq!((log.purged(), all(&log)), (Some(id(1, 4)), entries(1, 5..12)));
    log.purge(id(1, 11), ignore()).unwrap();
    assert_eq!((log.last(), all(&log)), (Some(id(1, 11)), vec![]));
    log.append(entries(2, 12..14), ignore()).unwrap();
    store.shutdown().unwrap();
    let store = backend.open(by_hand()).unwrap();
    assert_eq!(all(&store.group(0).unwrap()), entries(2, 12..14));
}

fn a_purge_beyond_the_end_moves_the_log(backend: &dyn Backend) {
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    log.append(entries(1, 0..3), ignore()).unwrap();
    store.pump();
    log.purge(id(5, 99), ignore()).unwrap();
    assert_eq!((log.last(), log.purged(), log.indexes()), (Some(id(5, 99)), Some(id(5, 99)), 100..100));
    assert!(log.append(entries(5, 101..102), ignore()).is_err());
    store.shutdown().unwrap();
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    assert_eq!((log.last(), log.indexes()), (Some(id(5, 99)), 100..100));
    log.append(entries(5, 100..102), ignore()).unwrap();
    store.shutdown().unwrap();
    assert_eq!(all(&backend.open(by_hand()).unwrap().group(0).unwrap()), entries(5, 100..102));
}

fn a_log_may_begin_above_zero(backend: &dyn Backend) {
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    log.append(entries(1, 3..6), ignore()).unwrap();
    log.purge(id(1, 1), ignore()).unwrap();
    assert_eq!((log.purged(), log.indexes()), (Some(id(1, 1)), 3..6));
    store.shutdown().unwrap();
    let store = backend.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    assert_eq!((log.purged(), all(&log)), (Some(id(1, 1)), entries(1, 3..6)));
}

fn refusals_change_nothing(backend: &dyn Backend) {
    let store = backend.open(by_hand()).unwrap();
    let (log, calls) = (store.group(0).unwrap(), Calls::default());
    log.append(entries(1, 0..3), ignore()).unwrap();
    log.purge(id(1, 0), ignore()).unwrap();
    let refused = |result| assert!(matches!(result, Err(LogError::Refused(_))));
    refused(log.append(entries(1, 4..5), calls.done(1)));
    refused(log.append(entries(1, 2..5), calls.done(2)));
    refused(log.append(vec![entry(1, 3), entry(1, 5)], calls.done(3)));
    refused(log.append(vec![], calls.done(4)));
    refused(log.append(vec![entry_of(1, 3, hapax_codec::log::PAYLOAD_MAX + 1)], calls.done(5)));
    refused(
        log.truncate_after(None)
            .and_then(|()| log.truncate_after(Some(0)))
            .and(Err(LogError::Refused(String::new()))),
    );
    store.pump();
    assert_eq!(calls.seen(), vec![]);
    let log = store.group(0).unwrap();
    log.append(entries(2, 1..3), ignore()).unwrap();
    store.shutdown().unwrap();
    assert_eq!(all(&backend.open(by_hand()).unwrap().group(0).unwrap()), entries(2, 1..3));
}

fn reads_stop_at_their_limit_and_cross_from_disk_to_memory(backend: &dyn Backend) {
    for cache_bytes_max in [0, 700, 1 << 20] {
        let group = (cache_bytes_max % 79) as u32;
        let store = backend.open(OpenOptions { cache_bytes_max, ..by_hand() }).unwrap();
        let log = store.group(group).unwrap();
        for index in 0..20 {
            log.append(vec![entry_of(1, index, 100)], ignore()).unwrap();
            store.pump();
        }
        log.append(vec![entry_of(1, 20, 100)], ignore()).unwrap();
        let indexes = |range, bytes_max| -> Vec<u64> {
            log.entries(range, bytes_max).unwrap().iter().map(|entry| entry.id.index).collect()
        };
        assert_eq!(indexes(0..100, usize::MAX), (0..21).collect::<Vec<_>>());
        assert_eq!(indexes(5..8, usize::MAX), vec![5, 6, 7]);
        assert_eq!(indexes(2..100, 350), vec![2, 3, 4]);
        assert_eq!(indexes(2..100, 0), vec![2]);
        assert_eq!(indexes(20..21, 1), vec![20]);
        assert_eq!(indexes(21..30, 1000), Vec::<u64>::new());
        assert_eq!(indexes(9..9, 1000), Vec::<u64>::new());
        log.purge(id(1, 3), ignore()).unwrap();
        assert_eq!(indexes(0..6, usize::MAX), vec![4, 5]);
        assert!(log.cache_bytes() <= cache_bytes_max.max(100 + 200) * 2);
    }
}

fn groups_do_not_see_each_other(backend: &dyn Backend) {
    let store = backend.open(by_hand()).unwrap();
    let (a, b) = (store.group(0).unwrap(), store.group(1).unwrap());
    a.append(entries(1, 0..5), ignore()).unwrap();
    b.append(entries(2, 0..3), ignore()).unwrap();
    a.truncate_after(None).unwrap();
    b.purge(id(2, 1), ignore()).unwrap();
    a.save_vote(Vote { term: 5, node: 1, committed: false }, ignore()).unwrap();
    store.shutdown().unwrap();
    let store = backend.open(by_hand()).unwrap();
    let (a, b) = (store.group(0).unwrap(), store.group(1).unwrap());
    assert_eq!((all(&a), a.purged(), b.vote()), (vec![], None, None));
    assert_eq!((all(&b), b.purged()), (entries(2, 2..3), Some(id(2, 1))));
}

fn shutdown_makes_everything_durable_and_refuses_more(backend: &dyn Backend) {
    let store = backend.open(calm()).unwrap();
    let (log, calls) = (store.group(0).unwrap(), Calls::default());
    for number in 0..50 {
        log.append(entries(1, number..number + 1), calls.done(number as u32)).unwrap();
    }
    store.shutdown().unwrap();
    assert_eq!(calls.seen(), (0..50).map(|number| (number, true)).collect::<Vec<_>>());
    assert_eq!(log.append(entries(1, 50..51), ignore()), Err(LogError::Closed));
    store.shutdown().unwrap();
    assert_eq!(all(&backend.open(calm()).unwrap().group(0).unwrap()), entries(1, 0..50));
}

fn many_threads_share_the_writer(backend: &dyn Backend) {
    let store = backend.open(calm()).unwrap();
    std::thread::scope(|scope| {
        for group in 0..4 {
            let log = store.group(group).unwrap();
            scope.spawn(move || {
                let (sender, receiver) = mpsc::channel();
                for index in 0..300 {
                    let sender = sender.clone();
                    let done =
                        Box::new(move |result: Result<(), StorageFault>| sender.send((index, result)).unwrap());
                    log.append(vec![entry(1, index)], done).unwrap();
                    assert_eq!(log.entries(index..index + 1, 1).unwrap(), vec![entry(1, index)]);
                }
                for index in 0..300 {
                    assert_eq!(receiver.recv().unwrap(), (index, Ok(())));
                }
            });
        }
    });
    store.shutdown().unwrap();
    let store = backend.open(calm()).unwrap();
    for group in 0..4 {
        assert_eq!(all(&store.group(group).unwrap()), entries(1, 0..300));
    }
}

fn there_is_a_limit_of_groups(backend: &dyn Backend) {
    let store = backend.open(by_hand()).unwrap();
    for group in 0..GROUPS_MAX as u32 {
        store.group(group).unwrap();
    }
    assert!(matches!(store.group(GROUPS_MAX as u32), Err(LogError::Refused(_))));
    assert!(store.group(3).is_ok());
}
