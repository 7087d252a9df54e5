//! The judge of rows alone, with look-ups that say what they are told to: what a flush between two families would show, too.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use hapax_codec::record;
use hapax_machine::Change;
use hapax_machine::ids::*;
use hapax_machine::namespace::{Floors, NamespaceStatus, OnLapse};
use hapax_machine::operation::{Definite, OperationRecord};

use super::super::disk::Family;
use super::super::horizon::{Judge, Known, LookUp, marked};
use super::super::keys;
use super::super::tables::Tables;
use super::fixture::*;
use crate::seam::StorageFault;

const GROUP: GroupId = GroupId(0);

/// What look-ups find: by family, what was flushed and whether anything is there at all.
#[derive(Default)]
struct Found {
    live: (Option<OperationRecord>, bool),
    terminal: (Option<OperationRecord>, bool),
    asked: Cell<usize>,
}

impl Found {
    fn in_family(&self, family: Family) -> &(Option<OperationRecord>, bool) {
        self.asked.set(self.asked.get() + 1);
        if family == Family::Live { &self.live } else { &self.terminal }
    }
}

impl LookUp for &Found {
    fn flushed(&self, family: Family, _: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault> {
        let (record, _) = self.in_family(family);
        if let Some(record) = record {
            let mut bytes = Vec::new();
            record::encode_operation(record, &mut bytes);
            read(&bytes);
        }
        Ok(record.is_some())
    }

    fn exists(&self, family: Family, _: &[u8]) -> Result<bool, StorageFault> {
        Ok(self.in_family(family).1)
    }
}

/// What is known where the floors of `payments` stand `floor` milliseconds after the beginning.
fn known(floor: u64, forgotten_until: u64) -> Arc<Known> {
    let mut tables = Tables::default();
    let floor = WallTime(BEGAN + floor);
    let status = NamespaceStatus {
        floors: Floors { compact_before: floor, forget_before: floor },
        ..NamespaceStatus::default()
    };
    tables.put(&Change::Status(tenant(), namespace(OnLapse::Unknown), status));
    let rows = BTreeMap::<(Family, Vec<u8>), Vec<u8>>::new();
    let known = Known::new(&tables, 0, &rows, GROUP).unwrap();
    assert_eq!(known.forgotten_until(), Birth(u64::MAX), "without a mark every birth is looked up");
    Arc::new(known.marked_at(Birth(forgotten_until)))
}

/// An operation that became terminal `terminal_at` milliseconds after the beginning, or never.
fn closed(birth: u64, terminal_at: Option<u64>) -> OperationRecord {
    let mut driver = Driver::begun(&Place::both().into_iter().nth(1).unwrap());
    let mut record = driver.finish(OnLapse::Unknown, 1, Definite::Completed);
    record.id.birth = Birth(birth);
    record.terminal_at = terminal_at.map(|at| WallTime(BEGAN + at));
    record
}

/// Whether a superseded claim on the life of birth 5 is gone.
fn is_gone(known: &Arc<Known>, found: &Found) -> bool {
    let operation = closed(5, None).key();
    let key = keys::grant(GROUP, &operation, Birth(5), &ClaimId([0; 16]));
    Judge::new(Arc::clone(known), GROUP, found).is_gone(Family::Grant, &key, &[]).unwrap()
}

#[test]
fn what_belongs_to_an_operation_is_gone_when_its_row_says_so() {
    let known = known(100, u64::MAX);
    let terminal = |record| Found { terminal: (Some(record), true), ..Found::default() };
    assert!(is_gone(&known, &terminal(closed(5, Some(99)))));
    assert!(!is_gone(&known, &terminal(closed(5, Some(100)))), "strictly before the floor");
    assert!(!is_gone(&known, &terminal(OperationRecord { quarantined: true, ..closed(5, Some(99)) })));
    assert!(is_gone(&known, &terminal(closed(6, Some(500)))), "a later life");
    assert!(!is_gone(&known, &terminal(closed(4, Some(99)))), "an earlier life says nothing");
    let live = |record| Found { live: (Some(record), true), ..terminal(closed(4, Some(1))) };
    assert!(!is_gone(&known, &live(closed(5, None))));
    assert!(is_gone(&known, &live(closed(6, None))));
}

#[test]
fn absent_means_absent_among_the_newest_rows_too() {
    let known = known(100, u64::MAX);
    assert!(is_gone(&known, &Found::default()));
    assert!(
        !is_gone(&known, &Found { terminal: (None, true), ..Found::default() }),
        "between two families of a flush"
    );
    assert!(!is_gone(&known, &Found { live: (None, true), ..Found::default() }));
}

#[test]
fn what_was_born_after_the_mark_is_not_even_looked_up() {
    let found = Found::default();
    assert!(!is_gone(&known(100, 4), &found));
    assert_eq!(found.asked.get(), 0);
    assert!(is_gone(&known(100, 5), &found));
}

#[test]
fn rows_of_another_group_and_rows_that_cannot_be_read_stay() {
    let known = known(100, u64::MAX);
    let found = Found::default();
    let key = keys::grant(GroupId(1), &closed(5, None).key(), Birth(5), &ClaimId([0; 16]));
    let mut judge = Judge::new(known, GROUP, &found);
    assert!(!judge.is_gone(Family::Grant, &key, &[]).unwrap());
    for family in Family::ALL {
        let key = [&[0; 4][..], &[9; 3]].concat();
        assert!(!judge.is_gone(family, &key, &[255, 255]).unwrap(), "{family:?}");
    }
}

#[test]
fn the_first_mark_that_is_not_below_the_floor_counts() {
    let mark =
        |wall: u64, birth: u64| ((Family::Meta, keys::mark(GROUP, WallTime(wall))), birth.to_be_bytes().to_vec());
    let rows = BTreeMap::from([mark(10, 1), mark(20, 2), mark(30, 3)]);
    let at = |floor| marked(&rows, GROUP, WallTime(floor)).unwrap();
    assert_eq!([at(0), at(1), at(10), at(11), at(30)], [Birth(0), Birth(1), Birth(1), Birth(2), Birth(3)]);
    assert_eq!(at(31), Birth(u64::MAX));
}
