//! Events: readable at once, in order, without loss or repeat, the same whatever the grouping, and gone by age.

use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::{Definite, State};

use super::super::{EventPosition, Events, OpenOptions, StateStore};
use super::fixture::*;

fn page(store: &StateStore, from: EventPosition, limit: usize) -> (Vec<hapax_machine::change::Event>, EventPosition) {
    match store.view().events(from, limit).unwrap() {
        Events::Page { events, next } => (events, next),
        Events::Compacted { floor } => panic!("compacted below {floor}"),
    }
}

#[test]
fn what_happened_is_readable_as_soon_as_it_is_published() {
    for place in Place::both() {
        let mut driver = Driver::begun(&place);
        let start = EventPosition::behind_entry(driver.index);
        assert_eq!(page(&driver.store, start, 10), (vec![], start));
        let record = driver.finish(OnLapse::Unknown, 1, Definite::Completed);
        let (events, next) = page(&driver.store, start, 10);
        let told: Vec<_> = events.iter().map(|event| (event.operation, event.state)).collect();
        assert_eq!(told, [(record.id, State::Executing), (record.id, State::Completed)]);
        assert_eq!(next, EventPosition::behind_entry(driver.index));
        let first = EventPosition::behind(&events[0]);
        assert_eq!(page(&driver.store, first, 10).0, events[1..]);
        assert_eq!(page(&driver.store, EventPosition::behind_revision(&events[1].revision), 10).0, []);
        assert_eq!(page(&driver.store, start, 0), (vec![], start));
    }
}

#[test]
fn a_reader_that_goes_on_where_it_stopped_is_told_everything_once() {
    for place in Place::both() {
        let mut driver = Driver::on(place.open());
        driver.run_to(120);
        let (all, _) = page(&driver.store, EventPosition::default(), 100_000);
        assert!(all.len() > 200, "{} events", all.len());
        assert!(all.is_sorted_by_key(EventPosition::behind));
        let several = all.windows(2).any(|pair| pair[0].revision == pair[1].revision && pair[0].part != pair[1].part);
        let entry = all.windows(2).any(|pair| pair[0].revision.index == pair[1].revision.index);
        assert!(entry, "no entry with several events; several of one command: {several}");
        for limit in [1, 2, 7] {
            let (mut told, mut from) = (Vec::new(), EventPosition::default());
            while told.len() < all.len() {
                let (events, next) = page(&driver.store, from, limit);
                assert!(!events.is_empty() && events.len() <= limit && next > from);
                told.extend(events);
                from = next;
            }
            assert_eq!(told, all);
        }
        driver.store.flush().unwrap();
        drop(driver);
        assert_eq!(page(&place.open(), EventPosition::default(), 100_000).0, all);
    }
}

#[test]
fn old_events_are_not_shown_and_go() {
    for place in Place::both() {
        let options = OpenOptions { events_kept: 20, ..OpenOptions::default() };
        let store = place.try_open(options.clone(), &Told::default()).unwrap();
        let mut driver = Driver::on(store);
        driver.run_to(100);
        let view = driver.store.view();
        assert_eq!(view.events_floor(), 80);
        let early = EventPosition::behind_entry(79);
        assert_eq!(view.events(early, 10).unwrap(), Events::Compacted { floor: 80 });
        let (kept, _) = page(&driver.store, EventPosition::behind_entry(80), 1_000);
        assert!(kept.first().is_some_and(|event| event.revision.index == 81));
        let before = (everything(&driver.store), physical(&driver.store)["events"]);
        assert!(before.1 > 90);
        // Not flushed: a crash would leave an index at which they are still shown.
        driver
            .store
            .disk()
            .compact(&super::super::disk::Family::RETAINED, &mut |_| std::ops::ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(physical(&driver.store)["events"], before.1);
        driver.compact();
        assert!(physical(&driver.store)["events"] <= 21, "{:?}", physical(&driver.store));
        assert_eq!(everything(&driver.store), before.0);
        assert_eq!(page(&driver.store, EventPosition::behind_entry(80), 1_000).0, kept);
    }
}

#[test]
fn a_pass_over_old_events_alone_comes_by_itself() {
    for place in Place::both() {
        let options = OpenOptions { events_kept: 80, ..OpenOptions::default() };
        let mut driver = Driver::on(place.try_open(options, &Told::default()).unwrap());
        driver.ages = false;
        let due =
            |driver: &Driver| driver.store.compact_if_due(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        driver.run_to(89);
        driver.store.flush().unwrap();
        assert!(!due(&driver));
        driver.run_to(90);
        assert!(!due(&driver), "not flushed");
        driver.store.flush().unwrap();
        assert!(due(&driver));
        assert!(!due(&driver));
        assert!(physical(&driver.store)["events"] <= 81);
    }
}

#[test]
fn the_rows_do_not_depend_on_how_entries_share_commits() {
    let commands = |n: u64| vec![claim(OnLapse::Unknown, n / 2, n), register(n), register(n + 1)];
    let shown = [1, 3].map(|together| {
        let place = Place::both().into_iter().nth(1).unwrap();
        let mut driver = Driver::begun(&place);
        let entries: Vec<_> = (10..40).map(commands).collect();
        for group in entries.chunks(together) {
            driver.apply_together(group);
        }
        (everything(&driver.store).2, page(&driver.store, EventPosition::default(), 1_000))
    });
    assert_eq!(shown[0], shown[1]);
}
