//! A log that lost or exchanged something behind its own back does not open, and says what is wrong.

use hapax_codec::log::Vote;

use super::keys;
use super::*;
use crate::seam::{Change, LogDisk};

const VOTE: Vote = Vote { term: 3, node: 1, committed: false };

/// Ten entries, a vote, a purge up to 2.
fn disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let store = disk.open(by_hand()).unwrap();
    let log = store.group(0).unwrap();
    log.append(entries(2, 0..10), ignore()).unwrap();
    log.save_vote(VOTE, ignore()).unwrap();
    log.purge(id(2, 2), ignore()).unwrap();
    store.shutdown().unwrap();
    disk
}

fn tampered(change: Change) -> Result<(), OpenError> {
    tampered_with(change, by_hand())
}

fn tampered_with(change: Change, options: OpenOptions) -> Result<(), OpenError> {
    let disk = disk();
    LogDisk::write(&disk, &[change]).unwrap();
    LogDisk::sync(&disk).unwrap();
    disk.open(options).map(|_| ())
}

fn removal(from: u64, to: u64) -> Change {
    Change::DeleteRange { from: keys::entry(0, from), to: keys::entry(0, to) }
}

#[test]
fn an_untouched_log_opens() {
    assert_eq!(tampered(removal(0, 1)), Ok(()));
}

#[test]
fn a_lost_tail_is_noticed() {
    for from in 3..10 {
        let error = tampered(removal(from, 10)).unwrap_err();
        let last = Some(id(2, from - 1));
        assert_eq!(error, OpenError::EntriesLost { place: "memory".to_owned(), group: 0, last, promised: id(2, 9) });
        assert!(error.is_suspect());
    }
}

#[test]
fn a_lost_tail_that_was_applied_is_none() {
    let applied = |applied| OpenOptions { applied: [(0, applied)].into(), ..by_hand() };
    assert_eq!(tampered_with(removal(8, 10), applied(id(2, 9))), Ok(()));
    assert!(tampered_with(removal(8, 10), applied(id(2, 8))).is_err());
    assert!(tampered_with(removal(8, 10), applied(id(1, 12))).is_err());
}

#[test]
fn a_hole_is_noticed() {
    for index in 3..9 {
        let place = "memory".to_owned();
        let hole = OpenError::Hole { place, group: 0, index, found: index + 1 };
        assert_eq!(tampered(removal(index, index + 1)), Err(hole));
    }
}

#[test]
fn a_foreign_entry_is_noticed() {
    for index in 3..10 {
        // Sound in itself, with a chain of its own.
        let foreign = entry_of(2, index, 40);
        let (head, _) = foreign.encode_head(0, 12345).unwrap();
        let change = Change::Entry { key: keys::entry(0, index), head, payload: foreign.payload };
        assert_eq!(tampered(change), Err(OpenError::Chain { place: "memory".to_owned(), group: 0, index }));
    }
}

#[test]
fn an_older_vote_is_noticed() {
    let vote = |vote: Vote| Change::Put { key: keys::vote(0), value: vote.encode(0) };
    for stored in [Vote { term: 2, ..VOTE }, Vote { node: 2, ..VOTE }] {
        let error = tampered(vote(stored)).unwrap_err();
        let place = "memory".to_owned();
        assert_eq!(error, OpenError::VoteLost { place, group: 0, stored: Some(stored), promised: VOTE });
    }
    let none = Change::DeleteRange { from: keys::vote(0), to: keys::start(0) };
    assert!(matches!(tampered(none), Err(OpenError::VoteLost { stored: None, .. })));
    assert_eq!(tampered(vote(Vote { term: 4, ..VOTE })), Ok(()));
}

#[test]
fn an_unreadable_row_is_noticed() {
    for key in [keys::vote(0), keys::start(0), keys::committed(0), keys::entry(0, 5)] {
        let change = Change::Put { key, value: vec![1, 2, 3] };
        assert!(matches!(tampered(change), Err(OpenError::Row { group: 0, .. })));
    }
}

#[test]
fn another_entry_than_the_acknowledged_one_is_noticed() {
    let disk = disk();
    // A whole log of its own, chained and long enough, but not the one that was promised.
    let mut changes = vec![removal(0, 10)];
    let mut chain = hapax_codec::log::chain_start(0, 0);
    changes.push(Change::DeleteRange { from: keys::start(0), to: keys::committed(0) });
    for entry in entries(3, 0..12) {
        let (head, own) = entry.encode_head(0, chain).unwrap();
        chain = own;
        changes.push(Change::Entry { key: keys::entry(0, entry.id.index), head, payload: entry.payload });
    }
    LogDisk::write(&disk, &changes).unwrap();
    LogDisk::sync(&disk).unwrap();
    let place = "memory".to_owned();
    let replaced = OpenError::EntryReplaced { place, group: 0, promised: id(2, 9), found: id(3, 9) };
    assert_eq!(disk.open(by_hand()).map(|_| ()), Err(replaced));
}
