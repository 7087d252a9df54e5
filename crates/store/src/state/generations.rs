//! Which directory holds the state, through any crash: instances are numbered, and one small file says which one counts.
//! A snapshot that is installed becomes the next generation, so that readers of the old one keep their files.
//!
//! ```text
//! ACTIVE     hapax-state 1 / generation N / flushed TERM NODE INDEX | flushed - / end XXH3
//! gen-N/     the database
//! gen-M.tmp/ a generation in the making
//! ```
//!
//! A generation is made in `gen-M.tmp`, whole and synced; then `ACTIVE` is replaced, then the directory gets its name. A crash
//! before `ACTIVE` names it leaves the old generation, one after it the new one; opening finishes the rename or removes what
//! does not count. `flushed` is what the database is known to hold: one that opens with less has lost a part of its
//! manifest without noticing, and is refused.

use std::fs;
use std::path::{Path, PathBuf};

use hapax_codec::log::LogId;
use xxhash_rust::xxh3::xxh3_64;

use super::OpenError;
use super::error::{LOOK, REBUILD};
use super::files;
use crate::seam::StorageFault;

const ACTIVE: &str = "ACTIVE";
const ACTIVE_NEW: &str = "ACTIVE.new";
const FIRST_LINE: &str = "hapax-state 1";
const PREFIX: &str = "gen-";
const MAKING: &str = ".tmp";

/// The generation that counts, and what is known to be durable in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Active {
    pub(super) number: u64,
    pub(super) floor: Option<LogId>,
}

/// The directory of the state.
#[derive(Debug, Clone)]
pub(super) struct Generations {
    root: PathBuf,
}

impl Generations {
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn dir(&self, number: u64) -> PathBuf {
        self.root.join(format!("{PREFIX}{number}"))
    }

    pub(super) fn making(&self, number: u64) -> PathBuf {
        self.root.join(format!("{PREFIX}{number}{MAKING}"))
    }

    /// Finds the generation that counts and removes every other; `None` where there was never one.
    pub(super) fn recover(&self) -> Result<Option<Active>, OpenError> {
        fs::create_dir_all(&self.root).map_err(files::fault("create", &self.root)).map_err(|fault| io(&fault))?;
        files::sync_parent(&self.root).map_err(|fault| io(&fault))?;
        let names = files::names(&self.root).map_err(|fault| io(&fault))?;
        let path = self.root.join(ACTIVE);
        if !names.iter().any(|name| name == ACTIVE) {
            if let Some(name) = names.iter().find(|name| is_generation(name)) {
                let detail = format!("missing, although {name} is there");
                return Err(OpenError { file: path, detail, advice: REBUILD });
            }
            self.remove_all_but(&names, None)?;
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(files::fault("read", &path)).map_err(|fault| io(&fault))?;
        let Some(active) = decode(&text) else {
            let detail = "damaged: its lines do not fit its checksum, or a newer program wrote it".to_owned();
            return Err(OpenError { file: path, detail, advice: REBUILD });
        };
        let (dir, making) = (self.dir(active.number), self.making(active.number));
        if !dir.exists() {
            if !making.exists() {
                let detail = "missing, although ACTIVE names it".to_owned();
                return Err(OpenError { file: dir, detail, advice: REBUILD });
            }
            self.name(active.number).map_err(|fault| io(&fault))?;
        }
        self.remove_all_but(&names, Some(active.number))?;
        Ok(Some(active))
    }

    /// Says which generation counts.
    pub(super) fn activate(&self, active: Active) -> Result<(), StorageFault> {
        files::replace(&self.root.join(ACTIVE), encode(active).as_bytes())
    }

    /// Gives a generation that was made, and that counts already, its name.
    pub(super) fn name(&self, number: u64) -> Result<(), StorageFault> {
        let dir = self.dir(number);
        fs::rename(self.making(number), &dir).map_err(files::fault("rename into place", &dir))?;
        files::sync(&self.root)
    }

    fn remove_all_but(&self, names: &[String], keep: Option<u64>) -> Result<(), OpenError> {
        let keep = keep.map(|number| format!("{PREFIX}{number}"));
        for name in names {
            let is_left_over = name.starts_with(PREFIX) && Some(name) != keep.as_ref();
            if is_left_over {
                files::remove_dir(&self.root.join(name)).map_err(|fault| io(&fault))?;
            }
            if name == ACTIVE_NEW {
                let path = self.root.join(name);
                fs::remove_file(&path).map_err(files::fault("remove", &path)).map_err(|fault| io(&fault))?;
            }
        }
        Ok(())
    }
}

fn is_generation(name: &str) -> bool {
    name.starts_with(PREFIX) && !name.ends_with(MAKING)
}

pub(super) fn io(fault: &StorageFault) -> OpenError {
    let detail = format!("{}: {}", fault.operation, fault.reason);
    OpenError { file: PathBuf::from(&fault.place), detail, advice: LOOK }
}

fn encode(active: Active) -> String {
    let flushed = match active.floor {
        Some(LogId { term, node, index }) => format!("{term} {node} {index}"),
        None => "-".to_owned(),
    };
    let body = format!("{FIRST_LINE}\ngeneration {}\nflushed {flushed}\n", active.number);
    let end = xxh3_64(body.as_bytes());
    format!("{body}end {end:016x}\n")
}

fn decode(text: &str) -> Option<Active> {
    let mut lines = text.lines();
    let (first, number, floor) = (lines.next()?, lines.next()?, lines.next()?);
    let number = number.strip_prefix("generation ")?.parse().ok()?;
    let floor = match floor.strip_prefix("flushed ")? {
        "-" => None,
        id => {
            let mut numbers = id.split(' ').map(str::parse);
            let mut next = || numbers.next()?.ok();
            Some(LogId { term: next()?, node: next()?, index: next()? })
        }
    };
    let active = Active { number, floor };
    // Encoding again compares everything at once: the first line, the checksum, and that nothing follows.
    (first == FIRST_LINE && text == encode(active)).then_some(active)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active() -> Active {
        Active { number: 3, floor: Some(LogId { term: 5, node: 0, index: 4_096 }) }
    }

    #[test]
    fn the_file_is_pinned() {
        let text = encode(active());
        assert!(text.starts_with("hapax-state 1\ngeneration 3\nflushed 5 0 4096\nend "), "{text}");
        assert_eq!(decode(&text), Some(active()));
        let fresh = Active { number: 1, floor: None };
        assert_eq!(decode(&encode(fresh)), Some(fresh));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let text = encode(active());
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(decode(&String::from_utf8(bytes).unwrap()), None, "byte {at}");
            assert_eq!(decode(&text[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn a_crash_while_a_generation_is_made_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::at(dir.path());
        assert_eq!(generations.recover(), Ok(None));
        fs::create_dir(generations.making(1)).unwrap();
        assert_eq!(generations.recover(), Ok(None));
        assert!(!generations.making(1).exists());
        fs::create_dir(generations.making(1)).unwrap();
        let first = Active { number: 1, floor: None };
        generations.activate(first).unwrap();
        // Crashed before it got its name.
        assert_eq!(generations.recover(), Ok(Some(first)));
        assert!(generations.dir(1).exists());
        fs::create_dir(generations.making(2)).unwrap();
        assert_eq!(generations.recover(), Ok(Some(first)));
        assert!(!generations.making(2).exists());
        // A generation whose predecessor was not removed yet.
        let second = Active { number: 2, floor: active().floor };
        fs::create_dir(generations.making(2)).unwrap();
        generations.activate(second).unwrap();
        assert_eq!(generations.recover(), Ok(Some(second)));
        assert!(!generations.dir(1).exists() && generations.dir(2).exists());
    }

    #[test]
    fn what_is_lost_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::at(dir.path());
        generations.activate(active()).unwrap();
        assert_eq!(generations.recover().unwrap_err().file, generations.dir(3));
        fs::create_dir(generations.dir(3)).unwrap();
        assert_eq!(generations.recover(), Ok(Some(active())));
        fs::remove_file(dir.path().join(ACTIVE)).unwrap();
        assert_eq!(generations.recover().unwrap_err().file, dir.path().join(ACTIVE));
        fs::write(dir.path().join(ACTIVE), "hapax-state 1\n").unwrap();
        assert_eq!(generations.recover().unwrap_err().file, dir.path().join(ACTIVE));
    }
}
