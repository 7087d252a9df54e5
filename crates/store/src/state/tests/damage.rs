//! Damage on disk: refused at open, found on read or by the scrub, or harmless; never another content, never an empty state.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use hapax_machine::View;
use hapax_machine::namespace::OnLapse;

use super::super::{OpenError, OpenOptions, StateStore};
use super::fixture::*;

/// A state of two flushes, closed, whose floor was told.
fn grown() -> Place {
    let place = Place::disk();
    let mut driver = Driver::on(place.open());
    driver.run_to(60);
    driver.store.flush().unwrap();
    driver.run_to(90);
    driver.store.flush().unwrap();
    driver.store.flushed_applied().unwrap();
    place
}

fn generation(place: &Place) -> PathBuf {
    place.root().join("gen-1")
}

/// A copy of a state, to be damaged; of a running one, what a crash would leave.
pub(super) fn copy(place: &Place) -> Place {
    fn copy_dir(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
            if path.is_dir() {
                copy_dir(&path, &to.join(name));
                continue;
            }
            match fs::copy(&path, to.join(name)) {
                // A running RocksDB renames its temporary files when it likes.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
    let copy = Place::disk();
    copy_dir(&place.root(), &copy.root());
    copy
}

fn refusal(place: &Place) -> OpenError {
    let opened = place.try_open(OpenOptions::default(), &Told::default());
    opened.map(|store| format!("{store:?}")).expect_err("a damaged state was opened")
}

fn scrub(store: &StateStore) -> Result<(), crate::seam::StorageFault> {
    store.scrub(&mut |_| ControlFlow::Continue(())).map(drop)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn cut(path: &Path, len: usize) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..len]).unwrap();
}

#[test]
fn a_flipped_bit_in_a_block_is_found_by_the_scrub_of_a_running_node() {
    let place = grown();
    let told = Told::default();
    let store = place.try_open(OpenOptions::default(), &told).unwrap();
    scrub(&store).unwrap();
    // The first bytes of a table are its first block, which every scan reads.
    let table = files_in(&generation(&place), ".sst").remove(0);
    flip(&table, 20);
    let fault = scrub(&store).unwrap_err();
    assert!(fault.reason.contains("Corruption"), "{fault}");
    assert_eq!(Path::new(&fault.place).file_name(), table.file_name(), "{fault}");
    assert_eq!(told.faults(), std::slice::from_ref(&fault));
    assert_eq!(store.flush(), Err(fault));
}

#[test]
fn a_flipped_bit_in_a_block_is_found_on_read() {
    let place = grown();
    for table in files_in(&generation(&place), ".sst") {
        flip(&table, 20);
    }
    let told = Told::default();
    // Head and policies are read at open; where their block is hit, that is the end of it.
    let opened = place.try_open(OpenOptions::default(), &told);
    let found = opened.map(|store| store.view().operation(&row(OnLapse::Unknown, 5)).map(drop));
    match found {
        Err(error) => assert!(error.detail.contains("Corruption"), "{error}"),
        Ok(read) => assert_eq!(told.faults(), [read.unwrap_err()]),
    }
}

#[test]
fn no_flipped_bit_in_a_table_changes_the_content() {
    let place = grown();
    let whole = everything(&place.open());
    let mut found = 0;
    for table in files_in(&generation(&place), ".sst") {
        let (name, len) = (table.file_name().unwrap(), fs::metadata(&table).unwrap().len() as usize);
        for at in (0..4).map(|n| n * (len - 1) / 3) {
            let damaged = copy(&place);
            flip(&generation(&damaged).join(name), at);
            let Ok(store) = damaged.try_open(OpenOptions::default(), &Told::default()) else {
                found += 1;
                continue;
            };
            match scrub(&store) {
                Err(_) => found += 1,
                // Filters and properties hold no rows; their blocks have checksums of their own when they are used.
                Ok(()) => assert_eq!(everything(&store), whole, "{name:?} byte {at}"),
            }
        }
    }
    assert!(found >= 7, "only {found} of the flips were found");
}

#[test]
fn a_cut_or_missing_table_is_refused_by_name() {
    let place = grown();
    for table in files_in(&generation(&place), ".sst") {
        let name = table.file_name().unwrap();
        let damaged = copy(&place);
        let path = generation(&damaged).join(name);
        cut(&path, fs::metadata(&table).unwrap().len() as usize - 1);
        assert_eq!(refusal(&damaged).file, path);
        fs::remove_file(&path).unwrap();
        assert_eq!(refusal(&damaged).file, path);
    }
}

#[test]
fn a_damaged_manifest_is_refused() {
    let place = grown();
    let whole = everything(&place.open());
    let manifest = files_in(&generation(&place), "").into_iter().find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("MANIFEST-"))
    });
    let manifest = manifest.unwrap();
    let (name, len) = (manifest.file_name().unwrap(), fs::metadata(&manifest).unwrap().len() as usize);
    let damages: Vec<(usize, bool)> =
        (0..12).flat_map(|n| [(n * (len - 1) / 11, true), (n * (len - 1) / 11, false)]).collect();
    let mut refused = 0;
    for (at, is_flip) in &damages {
        let damaged = copy(&place);
        let path = generation(&damaged).join(name);
        if *is_flip {
            flip(&path, *at)
        } else {
            cut(&path, *at)
        }
        match damaged.try_open(OpenOptions::default(), &Told::default()) {
            Err(error) => {
                refused += 1;
                let shown = error.to_string();
                assert!(shown.contains("MANIFEST") || shown.contains("CURRENT") || shown.contains(".sst"), "{shown}");
            }
            Ok(store) => assert_eq!(everything(&store), whole, "byte {at}, flipped: {is_flip}"),
        }
    }
    assert!(refused + 2 >= damages.len(), "only {refused} of {} refused", damages.len());
}

#[test]
fn a_manifest_that_ends_before_what_was_flushed_is_refused() {
    let place = Place::disk();
    let mut driver = Driver::on(place.open());
    driver.run_to(30);
    driver.store.flush().unwrap();
    // What the disk would show if the manifest had lost its end: RocksDB itself opens it without a word.
    let cut = copy(&place);
    driver.run_to(60);
    driver.store.flush().unwrap();
    assert_eq!(copy(&cut).open().applied(), applied(30));
    assert_eq!(driver.store.flushed_applied().unwrap(), applied(60).last_applied);
    fs::copy(place.root().join("ACTIVE"), cut.root().join("ACTIVE")).unwrap();
    let error = refusal(&cut);
    assert!(error.file.to_str().unwrap().contains("MANIFEST-"), "{error}");
    assert!(error.detail.contains("although T3-N0.60 was flushed"), "{error}");
    assert_eq!(copy(&place).open().applied(), applied(60));
}

#[test]
fn a_damaged_current_or_active_file_is_refused_by_name() {
    let place = grown();
    for relative in ["gen-1/CURRENT", "ACTIVE"] {
        for len in [0, 5] {
            let damaged = copy(&place);
            let path = damaged.root().join(relative);
            cut(&path, len);
            assert_eq!(refusal(&damaged).file, path, "cut to {len}");
        }
        let damaged = copy(&place);
        let path = damaged.root().join(relative);
        flip(&path, 3);
        assert_eq!(refusal(&damaged).file, path, "flipped");
        fs::remove_file(&path).unwrap();
        assert_eq!(refusal(&damaged).file, path, "removed");
    }
    let damaged = copy(&place);
    fs::remove_dir_all(generation(&damaged)).unwrap();
    assert_eq!(refusal(&damaged).file, generation(&damaged));
}

#[test]
fn a_state_of_another_format_is_refused() {
    let place = grown();
    let families = super::super::disk::Family::ALL.map(super::super::disk::Family::name);
    {
        let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), generation(&place), families).unwrap();
        db.put_cf(db.cf_handle("meta").unwrap(), super::super::keys::FORMAT, 2u32.to_be_bytes()).unwrap();
    }
    assert!(refusal(&place).detail.contains("format"));
}

#[test]
fn two_programs_never_share_a_state() {
    let place = grown();
    let store = place.open();
    let error = refusal(&place);
    assert!(error.detail.contains("lock"), "{error}");
    drop(store);
    place.open();
}
