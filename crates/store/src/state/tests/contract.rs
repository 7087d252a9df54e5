//! What both media promise alike.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hapax_machine::View;
use hapax_machine::change::{Changes, Head};
use hapax_machine::ids::{Birth, ClaimId, NamespaceName, TenantId, TenantTag};
use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::{Definite, State};
use hapax_machine::outcome::Answer;

use super::super::{HASH_EVERY, InstallError, LIST, OpenOptions, StateStore};
use super::fixture::*;

#[test]
fn a_fresh_state_is_empty() {
    for place in Place::both() {
        let store = place.open();
        assert_eq!(store.applied(), hapax_codec::record::Applied::default());
        assert_eq!(store.view().head(), Head::default());
        assert_eq!(store.view().content().unwrap().rows, 0);
        assert_eq!(store.flushed_applied().unwrap(), None);
        assert_eq!(store.newest_state_hash().unwrap(), None);
    }
}

#[test]
fn a_view_shows_its_own_instant_for_ever() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.run_to(10);
        let old = driver.store.view();
        let (seen, head) = (dump(&old), old.head());
        driver.run_to(60);
        driver.store.flush().unwrap();
        driver.run_to(90);
        assert_eq!((dump(&old), old.head()), (seen, head));
        assert_eq!(old.applied(), applied(10).last_applied);
        assert_ne!(driver.store.view().content().unwrap(), old.content().unwrap());
    }
}

#[test]
fn an_operation_is_live_until_it_is_terminal_and_never_both() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.one(bootstrap());
        let Answer::Claimed(grant) = driver.one(claim(OnLapse::Unknown, 1, 1)) else { panic!("not claimed") };
        let families = |driver: &Driver| -> Vec<String> {
            let lines = dump(&driver.store.view()).into_iter();
            lines.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
        };
        assert_eq!(families(&driver), ["meta", "meta", "meta", "meta", "meta", "live", "execution", "events"]);
        assert_eq!(driver.store.live_leases().unwrap().len(), 1);
        driver.one(report(grant.execution_id, grant.lease.lease_epoch, Definite::Completed));
        let after = ["meta", "meta", "meta", "meta", "meta", "terminal", "execution", "body", "events", "events"];
        assert_eq!(families(&driver), after);
        assert_eq!(driver.store.live_leases().unwrap(), []);
        let view = driver.store.view();
        let record = view.operation(&row(OnLapse::Unknown, 1)).unwrap().unwrap();
        assert_eq!(record.state(), State::Completed);
        assert_eq!(view.body(&record.key(), record.id.birth).unwrap(), Some(vec![0x7b; 256]));
    }
}

#[test]
fn every_kind_of_row_is_read_back() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.run_to(100);
        let view = driver.store.view();
        let lines = dump(&view);
        for family in ["meta", "live", "terminal", "execution", "grant", "body", "evidence", "authority", "events"] {
            assert!(lines.iter().any(|line| line.starts_with(family)), "no {family} row in the script");
        }
        assert!(!lines.iter().any(|line| line.contains("undecodable")));
        let taken = view.operation(&row(OnLapse::Takeover, 2)).unwrap().unwrap();
        assert!(taken.grants > 1, "never taken over");
        // The first claim on key 2 was made by entry 40; a later one superseded it.
        let grant = view.grant(&taken.key(), taken.id.birth, &ClaimId(random(40))).unwrap().unwrap();
        let held = taken.execution.as_ref().unwrap();
        assert_eq!(grant.execution, held.id);
        let tag = TenantTag::of(&taken.tenant);
        let execution = view.execution(tag, &held.id).unwrap().unwrap();
        assert_eq!(execution.operation, taken.key());
        assert_eq!(view.grant(&taken.key(), Birth(1), &ClaimId(random(40))).unwrap(), None);
        assert_eq!(view.execution(TenantTag([0; 8]), &held.id).unwrap(), None);
    }
}

#[test]
fn policies_and_tokens_are_in_memory() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        let before = driver.store.view();
        driver.run_to(2);
        let (tenant, name) = (TenantId::new("default"), namespace(OnLapse::Takeover));
        let check = |store: &StateStore| {
            let view = store.view();
            assert_eq!(view.policy(&tenant, &name).map(|policy| policy.on_lapse), Some(OnLapse::Takeover));
            assert_eq!(view.namespace(&tenant, &name).unwrap().as_ref(), view.policy(&tenant, &name));
            assert_eq!(view.policy(&TenantId::new("other"), &name), None);
            assert_eq!(view.policy(&tenant, &NamespaceName::new("other")), None);
            assert_eq!(store.token("t1").map(|token| token.roles), Some(1));
            assert_eq!(store.token("t2"), None);
        };
        check(&driver.store);
        assert_eq!(before.policy(&tenant, &name), None);
        driver.store.flush().unwrap();
        drop((before, driver));
        check(&place.open());
    }
}

#[test]
fn both_media_hold_the_same() {
    let [disk, memory] = Place::both().map(|place| {
        let mut driver = Driver::on(place.open());
        driver.run_to(120);
        (everything(&driver.store), driver.store.view().content().unwrap())
    });
    assert_eq!(disk, memory);
}

#[test]
fn what_was_flushed_is_there_after_a_restart() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.run_to(100);
        driver.store.flush().unwrap();
        let before = everything(&driver.store);
        drop(driver);
        let store = place.open();
        assert_eq!(everything(&store), before);
        assert_eq!(store.flushed_applied().unwrap(), applied(100).last_applied);
    }
}

#[test]
fn the_flushed_index_never_runs_ahead() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.run_to(20);
        assert_eq!(driver.store.flushed_applied().unwrap(), None);
        driver.store.flush().unwrap();
        driver.run_to(30);
        assert_eq!(driver.store.flushed_applied().unwrap(), applied(20).last_applied);
        driver.store.flush().unwrap();
        assert_eq!(driver.store.flushed_applied().unwrap(), applied(30).last_applied);
    }
}

#[test]
fn a_flush_is_due_by_bytes_or_by_age() {
    for place in Place::both() {
        let options =
            OpenOptions { flush_after_bytes: 20_000, flush_after: Duration::from_secs(10), ..OpenOptions::default() };
        let store = place.try_open(options, &Told::default()).unwrap();
        let (mut driver, start) = (Driver::on(store), Instant::now());
        let due =
            |driver: &Driver, after: u64| driver.store.flush_if_due(start + Duration::from_secs(after)).unwrap();
        assert!(!due(&driver, 0) && !due(&driver, 3_600), "nothing to flush");
        driver.run_to(1);
        assert!(!due(&driver, 5) && !due(&driver, 14));
        assert!(due(&driver, 15));
        assert_eq!(driver.store.flushed_applied().unwrap(), applied(1).last_applied);
        assert!(!due(&driver, 100));
        driver.run_to(40);
        assert!(due(&driver, 101), "forty entries are more than 20 kB");
    }
}

#[test]
fn state_hashes_are_kept_at_their_indexes() {
    for place in Place::both() {
        let store = place.open();
        for n in 1..=1_030u64 {
            let head = Head { state_hash: [n as u8; 32], ..Head::default() };
            store.commit(&applied(n * HASH_EVERY), &Changes { head, ..Changes::default() }).unwrap();
        }
        let view = store.view();
        assert_eq!(store.newest_state_hash().unwrap(), Some((1_030 * HASH_EVERY, [1_030u64 as u8; 32])));
        assert_eq!(view.state_hash_at(7 * HASH_EVERY).unwrap(), Some([7; 32]));
        assert_eq!(view.state_hash_at(6 * HASH_EVERY).unwrap(), None, "1,024 are kept");
        assert_eq!(view.state_hash_at(7 * HASH_EVERY + 1).unwrap(), None);
        let head = Head { state_hash: [0xee; 32], ..Head::default() };
        store.commit(&applied(1_030 * HASH_EVERY + 1), &Changes { head, ..Changes::default() }).unwrap();
        assert_eq!(store.newest_state_hash().unwrap().map(|(index, _)| index), Some(1_030 * HASH_EVERY));
    }
}

#[test]
fn no_entry_is_applied_twice() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.run_to(5);
        let before = everything(&driver.store);
        for index in [4, 5] {
            let again = || driver.store.commit(&applied(index), &Changes::default());
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(again)).is_err(), "{index}");
        }
        assert_eq!(everything(&driver.store), before);
        driver.run_to(6);
    }
}

#[test]
fn a_checkpoint_is_of_one_instant_and_installs_elsewhere() {
    for (from, to) in Place::both().into_iter().zip(Place::both()) {
        let mut donor = Driver::on(from.open());
        donor.run_to(80);
        let then = everything(&donor.store);
        let dir = from.beside("checkpoint");
        let meta = donor.store.checkpoint(&dir).unwrap();
        donor.run_to(120);
        assert_eq!((&meta.applied, meta.head), (&then.0, then.1));
        assert!(meta.files.iter().any(|file| file.name == LIST));
        for file in &meta.files {
            assert_eq!(std::fs::metadata(dir.join(&file.name)).unwrap().len(), file.len, "{}", file.name);
        }
        let mut joiner = Driver::on(to.open());
        joiner.run_to(7);
        let (old, seen) = (joiner.store.view(), everything(&joiner.store).2);
        assert_eq!(joiner.store.install(&dir), Ok(meta.clone()));
        assert_eq!(everything(&joiner.store), then);
        assert_eq!(dump(&old), seen, "a view of before the installation");
        assert_eq!(joiner.store.flushed_applied().unwrap(), meta.applied.last_applied);
        assert_eq!(joiner.store.read_checkpoint(&dir), Ok(meta), "the checkpoint is left as it was");
        // Goes on, and says the same as the donor, that never restarted.
        let mut joiner = Driver::on(joiner.store);
        joiner.run_to(120);
        assert_eq!(everything(&joiner.store), everything(&donor.store));
        joiner.store.flush().unwrap();
        drop((old, joiner));
        assert_eq!(everything(&to.open()), everything(&donor.store));
    }
}

#[test]
fn checkpoints_follow_one_another() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        let mut before = Vec::new();
        for round in 1..=4 {
            driver.run_to(round * 30);
            let dir = place.beside(&format!("checkpoint-{round}"));
            before.push((driver.store.checkpoint(&dir).unwrap(), everything(&driver.store), dir));
        }
        // Also backwards: an operator may have only the old one.
        for (meta, then, dir) in before.into_iter().rev() {
            assert_eq!(driver.store.read_checkpoint(&dir), Ok(meta.clone()));
            assert_eq!(driver.store.install(&dir), Ok(meta));
            assert_eq!(everything(&driver.store), then);
        }
    }
}

#[test]
fn a_damaged_checkpoint_changes_nothing() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.run_to(40);
        let dir = place.beside("checkpoint");
        let meta = driver.store.checkpoint(&dir).unwrap();
        driver.run_to(50);
        let before = everything(&driver.store);
        for file in &meta.files {
            let path = dir.join(&file.name);
            let whole = std::fs::read(&path).unwrap();
            // A new file in its place: the old one may be a link to a file of the store.
            let write = |bytes: &[u8]| {
                std::fs::remove_file(&path).unwrap();
                std::fs::write(&path, bytes).unwrap();
            };
            let mut damages = vec![[&whole[..], &[0]].concat()];
            if let Some(last) = whole.len().checked_sub(1) {
                let mut flipped = whole.clone();
                flipped[last / 2] ^= 4;
                damages.extend([flipped, whole[..last].to_vec()]);
            }
            for damaged in &damages {
                write(damaged);
                let refused = driver.store.install(&dir);
                let Err(InstallError::Checkpoint(error)) = refused else { panic!("{}: {refused:?}", file.name) };
                assert_eq!(error.file, path);
                assert_eq!(everything(&driver.store), before);
            }
            write(&whole);
        }
        assert_eq!(driver.store.read_checkpoint(&dir), Ok(meta));
        assert!(driver.store.read_checkpoint(&place.beside("nowhere")).is_err());
        driver.run_to(60);
    }
}

#[test]
fn a_scrub_sees_every_row_and_can_be_ended() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.run_to(700);
        driver.store.flush().unwrap();
        let mut paced = 0;
        let scrubbed = driver.store.scrub(&mut |bytes| {
            paced += bytes;
            ControlFlow::Continue(())
        });
        let scrubbed = scrubbed.unwrap();
        assert_eq!(scrubbed.content, Some(driver.store.view().content().unwrap()));
        assert!(paced > 0 && paced <= scrubbed.bytes);
        let ended = driver.store.scrub(&mut |_| ControlFlow::Break(())).unwrap();
        assert!(ended.content.is_none() && ended.rows < scrubbed.rows);
        driver.run_to(710);
        driver.store.check().unwrap();
    }
}

#[test]
fn the_first_fault_is_the_last_thing_it_does() {
    let memory = Place::both().into_iter().nth(1).unwrap();
    let Place::Memory(platter, _) = &memory else { panic!("no memory") };
    let told = Told::default();
    let mut driver = Driver::on(memory.try_open(OpenOptions::default(), &told).unwrap());
    driver.run_to(10);
    let view = driver.store.view();
    platter.crash();
    assert_eq!(told.faults(), []);
    let fault = driver.step().unwrap_err();
    assert_eq!(told.faults(), std::slice::from_ref(&fault));
    let store = &driver.store;
    assert_eq!(store.flush(), Err(fault.clone()));
    assert_eq!(store.check(), Err(fault.clone()));
    assert_eq!(store.flushed_applied(), Err(fault.clone()));
    assert_eq!(store.checkpoint(&memory.beside("checkpoint")), Err(fault.clone()));
    assert_eq!(store.install(&memory.beside("checkpoint")), Err(fault.clone().into()));
    assert_eq!(store.scrub(&mut |_| ControlFlow::Continue(())), Err(fault.clone()));
    assert_eq!(view.operation(&row(OnLapse::Unknown, 5)), Err(fault.clone()), "views made before it, too");
    assert_eq!(view.content(), Err(fault.clone()));
    assert_eq!(told.faults(), [fault], "told once");
}
