//! What compaction removes, and what it must not: rows on a real RocksDB, floors that a crash takes back, keys that begin anew.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use hapax_machine::View;
use hapax_machine::command::*;
use hapax_machine::ids::*;
use hapax_machine::namespace::{NamespaceRecord, OnLapse, Retention};
use hapax_machine::operation::{Definite, State};
use hapax_machine::outcome::Answer;

use super::super::disk::Family;
use super::super::{MemoryState, OpenOptions};
use super::damage::copy;
use super::fixture::*;

const PAYMENTS: OnLapse = OnLapse::Unknown;

/// Compacts everything without a flush of ours before it, whatever is due.
fn compact_only(driver: &Driver) {
    let disk = driver.store.disk();
    assert!(disk.compact(&Family::RETAINED, &mut |_| ControlFlow::Continue(())).unwrap());
}

fn removed(driver: &Driver) -> u64 {
    driver.store.removed().iter().map(|removed| removed.rows).sum()
}

/// Two operations with a row of every kind that there can be; no id is ever drawn twice. Returns the first.
fn one_of_each(driver: &mut Driver, key: u64) -> OperationId {
    let drawn = driver.index * 1_000;
    driver.one(register(key));
    let operation = driver.shown(PAYMENTS, key).unwrap();
    let wall = driver.wall();
    driver.one(issue(&operation, drawn, wall));
    driver.one(claim_with(key, drawn, capability_id(drawn)));
    driver.one(claim_with(key, drawn + 1, capability_id(drawn)));
    driver.one(claim_with(key, drawn + 2, capability_id(drawn + 9)));
    let report_on = |driver: &mut Driver, key, outcome| {
        let held = driver.shown(PAYMENTS, key).unwrap().execution.unwrap();
        driver.one(report(held.id, held.lease_epoch, outcome));
    };
    report_on(driver, key, Definite::NotApplied);
    // A past execution and a superseded claim; then a use.
    driver.one(claim(PAYMENTS, key, drawn + 3));
    report_on(driver, key, Definite::Completed);
    for kind in [RepairKind::Quarantine, RepairKind::Release] {
        let operation = driver.shown(PAYMENTS, key).unwrap();
        driver.one(repair(&operation, kind));
    }
    driver.one(issue_bounded(key + 500, drawn + 4, wall));
    driver.one(claim_with(key + 500, drawn + 5, capability_id(drawn + 4)));
    report_on(driver, key + 500, Definite::Failed);
    operation.id
}

/// Families that hold rows which a namespace's operations leave.
fn of_operations(driver: &Driver) -> BTreeMap<&'static str, usize> {
    let mut rows = physical(&driver.store);
    rows.remove("meta");
    rows.remove("events");
    rows
}

#[test]
fn everything_that_an_operation_leaves_is_removed() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        for key in 1..20 {
            one_of_each(&mut driver, key);
        }
        driver.store.flush().unwrap();
        let before = of_operations(&driver);
        let families = ["terminal", "execution", "grant", "body", "evidence", "authority", "index"];
        assert!(families.iter().all(|family| before.contains_key(family)), "{before:?}");
        driver.compact();
        assert_eq!(of_operations(&driver), before, "no floor has risen");
        driver.forget(PAYMENTS);
        let shown = everything(&driver.store);
        assert_eq!(of_operations(&driver), before);
        driver.compact();
        assert_eq!(of_operations(&driver), BTreeMap::new());
        assert_eq!(everything(&driver.store), shown, "what was hidden before is not missed");
        for counted in driver.store.removed().iter().filter(|counted| counted.family != "events") {
            assert_eq!(counted.rows, before[counted.family] as u64, "{counted:?}");
            assert!(counted.bytes > counted.rows * 40);
        }
        driver.run_to(driver.index + 10);
    }
}

#[test]
fn bodies_go_before_identities() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        let operation = driver.finish(PAYMENTS, 1, Definite::Completed);
        driver.pass(BODY_MS + 60_001);
        driver.one(raise_floors(PAYMENTS));
        driver.compact();
        let left = of_operations(&driver);
        assert!(!left.contains_key("body") && left.contains_key("terminal"), "{left:?}");
        assert_eq!(driver.shown(PAYMENTS, 1), Some(operation));
        assert!(matches!(driver.one(claim(PAYMENTS, 1, 9)), Answer::Replayed(_)));
    }
}

#[test]
fn floors_that_were_not_flushed_remove_nothing() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        for key in 1..10 {
            one_of_each(&mut driver, key);
        }
        driver.store.flush().unwrap();
        let before = of_operations(&driver);
        driver.raise(PAYMENTS);
        assert_eq!(driver.shown(PAYMENTS, 1), None);
        compact_only(&driver);
        assert_eq!(of_operations(&driver), before);
        assert_eq!(removed(&driver), 0);
        assert!(!driver.store.compact_if_due(&mut |_| ControlFlow::Continue(())).unwrap());
        driver.store.flush().unwrap();
        assert!(driver.store.compact_if_due(&mut |_| ControlFlow::Continue(())).unwrap());
        assert_eq!(of_operations(&driver), BTreeMap::new());
        assert!(!driver.store.compact_if_due(&mut |_| ControlFlow::Continue(())).unwrap(), "done");
    }
}

#[test]
fn a_crash_between_the_floor_and_its_flush_changes_no_answer() {
    let place = Place::disk();
    let mut driver = Driver::begun(&place);
    for key in 1..10 {
        one_of_each(&mut driver, key);
    }
    driver.store.flush().unwrap();
    driver.raise(PAYMENTS);
    compact_only(&driver);
    // Keys that are gone begin anew, and others go on.
    for key in 5..15 {
        one_of_each(&mut driver, key);
    }
    compact_only(&driver);
    let crashed = copy(&place);
    let mut replayed = Driver::on(crashed.open());
    replayed.replay(&driver.log);
    assert_eq!(everything(&replayed.store), everything(&driver.store));
}

#[test]
fn a_crash_after_rows_went_changes_no_answer() {
    let place = Place::disk();
    let mut driver = Driver::begun(&place);
    for key in 1..10 {
        one_of_each(&mut driver, key);
    }
    driver.forget(PAYMENTS);
    for key in 5..15 {
        one_of_each(&mut driver, key);
    }
    // The floor is known, what came after it is not on disk; the new lives of these keys lie over the old ones.
    compact_only(&driver);
    assert!(removed(&driver) > 100);
    for key in 5..15 {
        let before = driver.log.len();
        driver.one(claim(PAYMENTS, key, 77_000 + key));
        assert!(driver.log.len() > before);
    }
    let crashed = copy(&place);
    let mut replayed = Driver::on(crashed.open());
    assert!(replayed.index < driver.index, "nothing was lost");
    replayed.replay(&driver.log);
    assert_eq!(everything(&replayed.store), everything(&driver.store));
}

#[test]
fn a_key_that_begins_anew_keeps_its_new_rows() {
    for place in Place::both() {
        for is_flushed in [false, true] {
            let place = place_of(&place);
            let mut driver = Driver::begun(&place);
            let old = one_of_each(&mut driver, 1);
            driver.forget(PAYMENTS);
            let new = one_of_each(&mut driver, 1);
            assert!(old.birth < new.birth && old.hash == new.hash);
            if is_flushed {
                driver.store.flush().unwrap();
            }
            let shown = everything(&driver.store);
            compact_only(&driver);
            assert_eq!(everything(&driver.store), shown);
            assert_eq!(driver.shown(PAYMENTS, 1).unwrap().id, new);
            let evidence = driver.store.view().evidence_of_operation(&tenant(), &new, None, 9).unwrap().0;
            assert_eq!(evidence.len(), 2);
            driver.forget(PAYMENTS);
            driver.compact();
            assert_eq!(of_operations(&driver), BTreeMap::new());
        }
    }
}

/// A new place of the same kind.
fn place_of(place: &Place) -> Place {
    match place {
        Place::Disk(_) => Place::disk(),
        Place::Memory(..) => Place::Memory(MemoryState::default(), tempfile::tempdir().unwrap()),
    }
}

#[test]
fn what_has_no_horizon_stays() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        driver.one(register(1));
        driver.one(claim(PAYMENTS, 2, 2));
        driver.finish(PAYMENTS, 3, Definite::NotApplied);
        for key in [4, 5] {
            let operation = driver.finish(PAYMENTS, key, Definite::Completed);
            driver.one(repair(&operation, RepairKind::Quarantine));
        }
        driver.forget(PAYMENTS);
        let before = of_operations(&driver);
        driver.compact();
        let after = of_operations(&driver);
        // Quarantine keeps everything but the body.
        assert!(
            before.iter().all(|(family, rows)| *family == "body" || after.get(family) == Some(rows)),
            "{after:?}"
        );
        let states = [1, 2, 3, 4, 5].map(|key| driver.shown(PAYMENTS, key).map(|record| record.state()));
        let completed = Some(State::Completed);
        assert_eq!(
            states,
            [Some(State::Requested), Some(State::Executing), Some(State::NotApplied), completed, completed]
        );
        let operation = driver.shown(PAYMENTS, 4).unwrap();
        driver.one(repair(&operation, RepairKind::Release));
        assert_eq!(driver.shown(PAYMENTS, 4), None, "its time was over");
        driver.compact();
        assert_eq!(driver.shown(PAYMENTS, 5).map(|record| record.state()), completed);
        assert_eq!(physical(&driver.store)["terminal"], 1);
    }
}

#[test]
fn a_release_that_was_not_flushed_removes_nothing() {
    // In memory, where a compaction flushes nothing by itself.
    let place = Place::both().into_iter().nth(1).unwrap();
    let Place::Memory(platter, _) = &place else { panic!("no memory") };
    let mut driver = Driver::begun(&place);
    one_of_each(&mut driver, 1);
    let operation = driver.shown(PAYMENTS, 1).unwrap();
    driver.one(repair(&operation, RepairKind::Quarantine));
    driver.forget(PAYMENTS);
    driver.compact();
    let before = of_operations(&driver);
    let quarantined = everything(&driver.store);
    driver.one(repair(&operation, RepairKind::Release));
    assert_eq!(driver.shown(PAYMENTS, 1), None);
    compact_only(&driver);
    platter.crash();
    let log = std::mem::take(&mut driver.log);
    let mut replayed = Driver::on(place.open());
    assert_eq!(everything(&replayed.store), quarantined, "all of it is still there, as it was at that index");
    assert_eq!(of_operations(&replayed), before);
    replayed.replay(&log);
    replayed.compact();
    assert_eq!(of_operations(&replayed), BTreeMap::new());
}

#[test]
fn a_lengthened_policy_protects_what_is_not_yet_gone() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        driver.finish(PAYMENTS, 1, Definite::Completed);
        driver.forget(PAYMENTS);
        let kept = driver.finish(PAYMENTS, 2, Definite::Completed);
        let long =
            Retention { body_ms: 10 * IDENTITY_MS, identity_ms: 10 * IDENTITY_MS, ..policy(PAYMENTS).retention };
        let record = NamespaceRecord { retention: long, ..policy(PAYMENTS) };
        let expected = Expected::Version(record.version);
        let answer =
            driver.one(enveloped(Command::PutNamespace(PutNamespace { caller: caller(), record, expected })));
        assert!(matches!(answer, Answer::Namespace(_)), "{answer:?}");
        driver.forget(PAYMENTS);
        driver.compact();
        assert_eq!(driver.shown(PAYMENTS, 1), None);
        assert_eq!(driver.shown(PAYMENTS, 2), Some(kept.clone()));
        assert_eq!(physical(&driver.store)["terminal"], 1);
        let body = driver.store.view().body(&kept.key(), kept.id.birth).unwrap();
        assert_eq!(body, Some(vec![0x7b; 256]));
    }
}

#[test]
fn one_namespaces_floor_is_not_anothers() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        let kept = driver.finish(OnLapse::Takeover, 1, Definite::Completed);
        driver.finish(PAYMENTS, 1, Definite::Completed);
        driver.forget(PAYMENTS);
        driver.compact();
        assert_eq!(physical(&driver.store)["terminal"], 1);
        assert_eq!(driver.shown(OnLapse::Takeover, 1), Some(kept));
    }
}

#[test]
fn authority_for_a_resource_goes_when_it_has_expired() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        let wall = driver.wall();
        driver.one(issue_bounded(1, 1, wall));
        // Refused, so that there is a refusal of it.
        driver.one(claim_with(2, 1, capability_id(1)));
        driver.store.flush().unwrap();
        assert_eq!(physical(&driver.store)["authority"], 3);
        driver.forget(PAYMENTS);
        assert_eq!(driver.capability(1), None);
        driver.compact();
        assert!(!physical(&driver.store).contains_key("authority"));
        // The same decision is a new one.
        let wall = driver.wall();
        assert!(matches!(driver.one(issue_bounded(1, 1, wall)), Answer::Capability { created: true, .. }));
    }
}

#[test]
fn an_installed_state_brings_its_own_floors() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        one_of_each(&mut driver, 1);
        let dir = place.beside("checkpoint");
        driver.store.checkpoint(&dir).unwrap();
        driver.forget(PAYMENTS);
        driver.compact();
        assert_eq!(of_operations(&driver), BTreeMap::new());
        let counted = removed(&driver);
        driver.store.install(&dir).unwrap();
        // Behind the floor again: nothing of it may go.
        let mut driver = Driver::on(driver.store);
        let before = of_operations(&driver);
        compact_only(&driver);
        assert_eq!(of_operations(&driver), before);
        assert!(driver.shown(PAYMENTS, 1).is_some());
        assert_eq!(removed(&driver), counted, "counts go on");
        driver.forget(PAYMENTS);
        let shown = everything(&driver.store);
        let later = place.beside("later");
        driver.store.checkpoint(&later).unwrap();
        driver.store.install(&later).unwrap();
        compact_only(&driver);
        assert_eq!(of_operations(&driver), BTreeMap::new(), "an installed floor was flushed");
        assert_eq!(everything(&driver.store), shown);
    }
}

#[test]
fn a_restart_knows_the_floors_that_were_flushed() {
    let place = Place::disk();
    let mut driver = Driver::begun(&place);
    one_of_each(&mut driver, 1);
    driver.forget(PAYMENTS);
    drop(driver);
    let driver = Driver::on(place.open());
    compact_only(&driver);
    assert_eq!(of_operations(&driver), BTreeMap::new());
}

#[test]
fn a_pass_can_be_ended_and_begun_again() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        one_of_each(&mut driver, 1);
        driver.forget(PAYMENTS);
        let mut pieces = 0;
        let ended = driver.store.compact_if_due(&mut |bytes| {
            pieces += u64::from(bytes > 0);
            ControlFlow::Break(())
        });
        assert!(!ended.unwrap() && pieces <= 1);
        assert!(driver.store.compact_if_due(&mut |_| ControlFlow::Continue(())).unwrap(), "it is still due");
        assert_eq!(of_operations(&driver), BTreeMap::new());
    }
}

#[test]
fn the_bytes_come_back() {
    let place = Place::disk();
    let store = place.try_open(OpenOptions::default(), &Told::default()).unwrap();
    let mut driver = Driver::on(store);
    driver.one(bootstrap());
    let mut noise = 1_u64;
    for batch in 0..40 {
        let keys: Vec<u64> = (batch * 100..batch * 100 + 100).collect();
        let claims: Vec<_> = keys.iter().map(|key| claim(PAYMENTS, *key, *key)).collect();
        driver.apply(&claims).unwrap();
        let reports: Vec<_> = keys
            .iter()
            .map(|key| {
                let held = driver.shown(PAYMENTS, *key).unwrap().execution.unwrap();
                // What compresses would measure the compressor.
                let result = std::iter::repeat_with(|| {
                    noise ^= noise << 13;
                    noise ^= noise >> 7;
                    noise ^= noise << 17;
                    noise as u8
                });
                let data = ResultData { result: Some(result.take(1_024).collect()), ..ResultData::default() };
                let (execution_id, lease_epoch) = (held.id, held.lease_epoch);
                let outcome = Some(Definite::Completed);
                enveloped(Command::Report(Report { caller: caller(), execution_id, lease_epoch, outcome, data }))
            })
            .collect();
        driver.apply(&reports).unwrap();
    }
    driver.forget(PAYMENTS);
    let size = || -> u64 {
        files_in(&place.root().join("gen-1"), ".sst").iter().map(|path| path.metadata().unwrap().len()).sum()
    };
    let before = size();
    assert!(before > 4_000 * 1_024, "{before}");
    driver.compact();
    drop(driver);
    // Files that nobody needs any more are gone when it was closed.
    let after = size();
    assert!(after * 10 < before, "{after} of {before} bytes are left");
    drop(place.open());
}

#[test]
fn marks_spare_the_look_up_and_never_let_anything_go() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        one_of_each(&mut driver, 1);
        // Into another hour, and past every retention.
        driver.pass(2 * 60 * 60 * 1_000);
        driver.one(register(3));
        one_of_each(&mut driver, 2);
        let young = driver.shown(PAYMENTS, 2).unwrap();
        driver.one(raise_floors(PAYMENTS));
        driver.store.flush().unwrap();
        let known = driver.store.view().0.known().unwrap();
        assert!(young.id.birth > known.forgotten_until(), "{known:?}");
        driver.compact();
        assert_eq!(driver.shown(PAYMENTS, 1), None);
        assert_eq!(driver.shown(PAYMENTS, 2), Some(young));
        assert_eq!(physical(&driver.store)["terminal"], 2, "the two of the second hour");
    }
}

#[test]
fn a_store_that_is_closed_while_it_compacts_closes() {
    let place = Place::disk();
    for round in 0..10 {
        let mut driver = Driver::on(place.open());
        if round == 0 {
            driver.one(bootstrap());
        }
        driver.ages = false;
        // Four files at the top make RocksDB compact by itself, beside whoever closes.
        for _ in 0..5 {
            driver.run_to(driver.index + 20);
            driver.store.flush().unwrap();
        }
    }
}
