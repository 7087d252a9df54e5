//! Damage to every file of a log directory: a flipped bit, a cut, an absence. The log refuses to open and names the file,
//! or everything that was acknowledged is there; nothing is lost silently.

use std::fs;
use std::path::Path;

use hapax_codec::log::Vote;

use super::model::Model;
use super::*;

const VOTE: Vote = Vote { term: 7, node: 2, committed: true };

/// A log with entries in a table file and in the write-ahead log, several batches of each.
struct Specimen {
    backend: OnRocks,
    expected: Model,
}

impl Specimen {
    fn new() -> Specimen {
        let backend = OnRocks::new();
        // Each opening moves what the write-ahead log holds into a table file.
        for round in 0..3 {
            let store = backend.open(by_hand()).unwrap();
            let log = store.group(0).unwrap();
            for batch in 0..8 {
                let first = round * 40 + batch * 5;
                let batch = (first..first + 5).map(|index| entry_of(5, index, 60)).collect();
                log.append(batch, ignore()).unwrap();
                if round == 1 {
                    log.save_vote(VOTE, ignore()).unwrap();
                    log.purge(id(5, 20), ignore()).unwrap();
                }
                store.pump();
            }
            store.shutdown().unwrap();
        }
        let store = backend.open(by_hand()).unwrap();
        let log = store.group(0).unwrap();
        // The last batches stay in the write-ahead log.
        for first in [120, 125, 130, 135] {
            log.append((first..first + 5).map(|index| entry_of(5, index, 60)).collect(), ignore()).unwrap();
            store.pump();
        }
        let expected = Model::of(&log);
        assert_eq!((expected.entries.len(), expected.vote), (119, Some(VOTE)));
        store.shutdown().unwrap();
        Specimen { backend, expected }
    }

    /// Every file, as a path below the log's directory.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = vec![PathBuf::from("side")];
        for file in fs::read_dir(self.backend.path().join("db")).unwrap() {
            files.push(Path::new("db").join(file.unwrap().file_name()));
        }
        files.retain(|file| !file.ends_with("LOCK"));
        files
    }

    /// A copy whose file was changed by `damage`, opened. `None`: opened, with everything acknowledged.
    fn open_damaged(&self, file: &Path, context: &str, damage: impl FnOnce(&Path)) -> Option<OpenError> {
        let copy = OnRocks::new();
        fs::create_dir_all(copy.path().join("db")).unwrap();
        for file in self.files() {
            fs::copy(self.backend.path().join(&file), copy.path().join(&file)).unwrap();
        }
        damage(&copy.path().join(file));
        match copy.open(by_hand()) {
            Ok(store) => {
                let found = Model::of(&store.group(0).unwrap());
                assert_eq!(found, self.expected, "{context}: something was lost without a word");
                None
            }
            Err(error) => {
                assert!(error.is_suspect(), "{context}: {error}");
                // It stays refused, and the doctor sees it as well.
                let again = copy.open(by_hand()).map(|_| ()).unwrap_err();
                assert!(again.is_suspect(), "{context}: first {error}, then {again}");
                assert!(inspect(&copy.path()).wrong().next().is_some(), "{context}: the doctor sees nothing");
                Some(error)
            }
        }
    }

    fn matching(&self, part: &str) -> Vec<PathBuf> {
        let found: Vec<_> = self.files().into_iter().filter(|file| file.to_str().unwrap().contains(part)).collect();
        assert!(!found.is_empty(), "there is no {part}");
        found
    }

    /// Flips bits of a file at about `count` positions; returns how many were refused, and how many there were.
    fn flip(&self, file: &Path, count: usize, named: &[&str]) -> (usize, usize) {
        let bytes = fs::read(self.backend.path().join(file)).unwrap();
        let stride = (bytes.len() / count).max(1);
        let (mut refused, mut flips) = (0, 0);
        for (number, at) in (0..bytes.len()).step_by(stride).enumerate() {
            let bit = number % 8;
            let context = format!("{}, bit {bit} of byte {at} of {}", file.display(), bytes.len());
            let error = self.open_damaged(file, &context, |path| {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                fs::write(path, bytes).unwrap();
            });
            flips += 1;
            if let Some(error) = error {
                refused += 1;
                let text = error.to_string();
                assert!(named.iter().any(|name| text.contains(name)), "{context}: no file is named: {text}");
            }
        }
        (refused, flips)
    }

    /// Cuts a file at about `count` lengths.
    fn cut(&self, file: &Path, count: usize, named: &[&str]) -> (usize, usize) {
        let len = fs::metadata(self.backend.path().join(file)).unwrap().len();
        let (mut refused, mut cuts) = (0, 0);
        for keep in (0..len).step_by((len as usize / count).max(1)) {
            let context = format!("{}, cut to {keep} of {len}", file.display());
            let error = self.open_damaged(file, &context, |path| {
                fs::File::options().write(true).open(path).unwrap().set_len(keep).unwrap();
            });
            cuts += 1;
            if let Some(error) = error {
                refused += 1;
                let text = error.to_string();
                assert!(named.iter().any(|name| text.contains(name)), "{context}: no file is named: {text}");
            }
        }
        (refused, cuts)
    }
}

#[test]
fn any_flipped_bit_of_the_write_ahead_log_is_refused_by_name() {
    let specimen = Specimen::new();
    for file in specimen.matching(".log") {
        let (refused, flips) = specimen.flip(&file, 250, &[file.file_name().unwrap().to_str().unwrap()]);
        assert_eq!(refused, flips, "{}", file.display());
    }
}

#[test]
fn any_cut_of_the_write_ahead_log_is_refused_by_name() {
    let specimen = Specimen::new();
    for file in specimen.matching(".log") {
        let (refused, cuts) = specimen.cut(&file, 100, &[file.file_name().unwrap().to_str().unwrap()]);
        assert_eq!(refused, cuts, "{}", file.display());
    }
}

#[test]
fn any_flipped_bit_or_cut_of_the_side_file_is_refused_by_name() {
    let specimen = Specimen::new();
    let (refused, flips) = specimen.flip(Path::new("side"), 250, &["/side"]);
    assert_eq!(refused, flips);
    let (refused, cuts) = specimen.cut(Path::new("side"), 20, &["/side"]);
    assert_eq!(refused, cuts);
}

#[test]
fn a_damaged_manifest_is_refused_by_name() {
    let specimen = Specimen::new();
    for file in specimen.matching("MANIFEST") {
        let (refused, flips) = specimen.flip(&file, 200, &["MANIFEST"]);
        assert!(refused * 10 > flips * 9, "{refused} of {flips}");
        let (refused, cuts) = specimen.cut(&file, 60, &["MANIFEST"]);
        assert!(refused * 10 > cuts * 9, "{refused} of {cuts}");
    }
    let (refused, flips) = specimen.flip(Path::new("db/CURRENT"), 100, &["CURRENT"]);
    assert_eq!(refused, flips);
    let (refused, cuts) = specimen.cut(Path::new("db/CURRENT"), 100, &["CURRENT"]);
    assert_eq!(refused, cuts);
}

#[test]
fn a_damaged_table_file_is_refused_by_name_or_harmless() {
    let specimen = Specimen::new();
    for file in specimen.matching(".sst") {
        let (refused, _) = specimen.flip(&file, 60, &[".sst"]);
        assert!(refused > 20, "{refused} refused of {}", file.display());
        let (refused, cuts) = specimen.cut(&file, 20, &[".sst"]);
        assert_eq!(refused, cuts);
    }
}

#[test]
fn other_files_do_not_matter() {
    let specimen = Specimen::new();
    let files = specimen.files();
    for file in files.iter().filter(|file| file.ends_with("IDENTITY") || file.to_str().unwrap().contains("OPTIONS")) {
        assert_eq!(specimen.flip(file, 10, &[]).0, 0, "{}", file.display());
    }
}

#[test]
fn an_absent_file_is_refused() {
    let specimen = Specimen::new();
    for part in ["side", "CURRENT", "MANIFEST", ".sst", ".log"] {
        for file in specimen.matching(part) {
            let error = specimen.open_damaged(&file, part, |path| fs::remove_file(path).unwrap());
            assert!(error.is_some(), "{} is gone, and the log opens", file.display());
        }
    }
}

#[test]
fn an_absent_log_is_refused_where_there_is_a_state() {
    let backend = OnRocks::new();
    let applied = [(0, id(1, 5))].into();
    let error = backend.open(OpenOptions { applied, ..by_hand() }).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Missing { group: 0, .. }));
    assert!(backend.open(by_hand()).is_ok());
}

#[test]
fn a_creation_that_was_interrupted_begins_again() {
    let backend = OnRocks::new();
    fs::create_dir_all(backend.path()).unwrap();
    fs::write(backend.path().join("side.new"), b"half").unwrap();
    drop(backend.open(by_hand()).unwrap());
    // The side file was there, but not yet the whole database.
    fs::remove_dir_all(backend.path().join("db")).unwrap();
    fs::create_dir(backend.path().join("db")).unwrap();
    let store = backend.open(by_hand()).unwrap();
    store.group(0).unwrap().append(entries(1, 0..1), ignore()).unwrap();
    store.shutdown().unwrap();
    fs::remove_dir_all(backend.path().join("db")).unwrap();
    assert!(backend.open(by_hand()).map(|_| ()).unwrap_err().is_suspect());
}

#[test]
fn a_log_in_use_is_not_called_damaged() {
    let backend = OnRocks::new();
    let _store = backend.open(by_hand()).unwrap();
    let error = backend.open(by_hand()).map(|_| ()).unwrap_err();
    assert!(!error.is_suspect(), "{error}");
}

#[test]
fn the_doctor_tells_what_there_is() {
    let specimen = Specimen::new();
    let report = inspect(&specimen.backend.path());
    assert_eq!(report.wrong().next(), None);
    let group = &report.groups[0];
    assert_eq!(
        (group.entries, group.vote, group.purged, group.last),
        (119, Some(VOTE), Some(id(5, 20)), Some(id(5, 139)))
    );
    assert_eq!(group.promised.acknowledged, Some(id(5, 139)));
    let text = report.to_string();
    assert!(text.contains("group 0: 119 entries") && text.contains("MANIFEST-"), "{text}");
    // Looking changes nothing.
    assert_eq!(inspect(&specimen.backend.path()), report);
    assert_eq!(Model::of(&specimen.backend.open(by_hand()).unwrap().group(0).unwrap()), specimen.expected);
}
