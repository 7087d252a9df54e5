//! Files and directories of the state, durable step by step: what is written, synced and renamed here survives in order.
//! Errors are faults that name the path.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::seam::StorageFault;

pub(super) fn fault<'a>(operation: &'static str, path: &'a Path) -> impl Fn(io::Error) -> StorageFault + 'a {
    move |error| StorageFault { operation, place: path.display().to_string(), reason: error.to_string() }
}

/// Syncs a file's content, or a directory's names.
pub(super) fn sync(path: &Path) -> Result<(), StorageFault> {
    File::open(path).and_then(|file| file.sync_all()).map_err(fault("sync", path))
}

pub(super) fn sync_parent(path: &Path) -> Result<(), StorageFault> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync(parent),
        None => Ok(()),
    }
}

/// Puts `bytes` in place of the file at `path`: a crash leaves the old file or the new one, whole.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), StorageFault> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(fault("write", &new))?;
    fs::rename(&new, path).map_err(fault("rename into place", path))?;
    sync_parent(path)
}

/// Removes a directory, if it is there.
pub(super) fn remove_dir(path: &Path) -> Result<(), StorageFault> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fault("remove", path)(error)),
        _ => Ok(()),
    }
}

/// The names in a directory, in order; names that are not UTF-8 are not ours and are left out.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, StorageFault> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(fault("list", dir))? {
        names.extend(entry.map_err(fault("list", dir))?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Length and checksum of a file, read in pieces.
pub(super) fn sum(path: &Path) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let (mut hash, mut len, mut piece) = (Xxh3::new(), 0, vec![0; 1 << 18]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((len, hash.digest())),
            read => {
                hash.update(&piece[..read]);
                len += read as u64;
            }
        }
    }
}

/// Gives `to` the content of `from`. Files that are never written again are linked where the file system can.
pub(super) fn link_or_copy(from: &Path, to: &Path, may_link: bool) -> Result<(), StorageFault> {
    if may_link && fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(drop).map_err(fault("copy to", to))
}
