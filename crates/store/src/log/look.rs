//! A look at the database's files before RocksDB opens them: damage that it would pass over is refused here, by name.

use std::fs;
use std::path::{Path, PathBuf};

use hapax_codec::log::side::Slot;

use super::OpenError;
use super::rocks::io;
use super::scan::{self, Frames};

/// What the database's files look like, before anything opens them.
pub(super) struct Look {
    /// The database does not exist, and nothing was promised: it may be created.
    pub(super) may_create: bool,
    /// Some file ends in something unreadable, which may be an interrupted write.
    pub(super) is_irregular: bool,
    /// The directory and how its newest files end, for messages.
    pub(super) place: String,
}

impl Look {
    /// What it means that RocksDB refused.
    pub(super) fn refusal(&self, directory: &Path, reason: String) -> OpenError {
        // Another process has it open: nothing is damaged.
        if reason.contains("/LOCK: ") {
            return OpenError::Io { operation: "lock the database", path: directory.to_owned(), reason };
        }
        let place = self.place.clone();
        if self.is_irregular {
            return OpenError::Database { place, reason };
        }
        // RocksDB blames the manifest even where it is a table file that it cannot read.
        let reason =
            format!("{reason} (manifest and write-ahead logs are sound: a table file, *.sst, is damaged or missing)");
        OpenError::Database { place, reason }
    }
}

/// Looks at the database's files; refuses damage that RocksDB might take for an interrupted write.
pub(super) fn look(directory: &Path, slot: &Slot) -> Result<Look, OpenError> {
    let current = directory.join("CURRENT");
    let damaged =
        |offset, reason: &str| OpenError::Damaged { path: current.clone(), offset, reason: reason.to_owned() };
    let manifest = match fs::read_to_string(&current) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if slot.sequence > 1 || !slot.groups.is_empty() {
                return Err(damaged(0, "it is missing"));
            }
            let place = directory.display().to_string();
            return Ok(Look { may_create: true, is_irregular: false, place });
        }
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Err(damaged(0, "it is not text")),
        other => other.map_err(io("read", &current))?,
    };
    let name = manifest.strip_suffix('\n').filter(|name| {
        name.strip_prefix("MANIFEST-").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let name = name.ok_or_else(|| damaged(0, "it does not name a manifest"))?;
    let manifest = directory.join(name);
    if !manifest.is_file() {
        return Err(damaged(0, "the manifest that it names is missing"));
    }
    let mut notes = Vec::new();
    let mut is_irregular = inspect_frames(std::slice::from_ref(&manifest), &mut notes)?;
    is_irregular |= inspect_frames(&wals(directory)?, &mut notes)?;
    let place = format!("{} ({})", directory.display(), notes.join(", "));
    Ok(Look { may_create: false, is_irregular, place })
}

/// The write-ahead logs, oldest first.
fn wals(directory: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(io("read the directory", directory))? {
        let path = entry.map_err(io("read the directory", directory))?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        if let (Some(number), true) = (number, path.extension().is_some_and(|extension| extension == "log")) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Scans files that were written one after the other. True if something in them is unreadable; damage is refused.
fn inspect_frames(files: &[PathBuf], notes: &mut Vec<String>) -> Result<bool, OpenError> {
    let mut unreadable: Option<(&PathBuf, u64)> = None;
    for path in files {
        let frames = scan::scan(path).map_err(io("read", path))?;
        notes.push(note(path, &frames));
        if let (Some((path, offset)), true) = (unreadable, frames.records > 0) {
            let reason = "it cannot be read from there on, though later files hold sound records".to_owned();
            return Err(OpenError::Damaged { path: path.clone(), offset, reason });
        }
        let Some(offset) = frames.unreadable else { continue };
        if let Some(sound) = frames.sound_after {
            let reason = format!("a record cannot be read there, though a sound one follows at byte {sound}");
            return Err(OpenError::Damaged { path: path.clone(), offset, reason });
        }
        tracing::warn!(file = %path.display(), offset, len = frames.len, "a file ends in an unfinished record");
        unreadable.get_or_insert((path, offset));
    }
    Ok(unreadable.is_some())
}

fn note(path: &Path, frames: &Frames) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match frames.unreadable {
        Some(offset) => format!("{name} is unreadable from byte {offset} of {}", frames.len),
        None => format!("{name} is sound to its end at byte {}", frames.len),
    }
}
