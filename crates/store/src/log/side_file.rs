//! The side file on disk: two slots, written in turn, so that an interrupted write leaves the other one.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hapax_codec::log::side::{Damage, SLOT_LEN, Slot};

use super::OpenError;
use super::promises::slot_of;
use super::rocks::{io, sync_directory};
use crate::seam::{SideDisk, StorageFault};

/// The side file's name in the log's directory.
pub(super) const SIDE: &str = "side";
/// Its name until it is whole.
pub(super) const SIDE_NEW: &str = "side.new";
const SIDE_LEN: usize = 2 * SLOT_LEN;

/// Makes the side file, whole and durable, with two slots that promise nothing.
pub(super) fn create(path: &Path) -> Result<(), OpenError> {
    fs::create_dir_all(path).map_err(io("create the directory", path))?;
    let (new, side) = (path.join(SIDE_NEW), path.join(SIDE));
    let mut bytes = Vec::with_capacity(SIDE_LEN);
    for sequence in 0..2 {
        let slot = Slot { sequence, ..Slot::default() }.encode();
        bytes.extend_from_slice(slot.expect("a slot without groups has room for them").as_slice());
    }
    fs::write(&new, &bytes).map_err(io("write the side file", &new))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(io("sync the side file", &new))?;
    fs::rename(&new, &side).map_err(io("rename the side file", &new))?;
    sync_directory(path)?;
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

/// Opens the side file and finds the slot that stands.
pub(super) fn open(path: &Path) -> Result<(Slot, SideFile), OpenError> {
    let slot = read(path)?;
    let file = File::options().write(true).open(path).map_err(io("open the side file", path))?;
    Ok((slot, SideFile { file, path: path.to_owned() }))
}

/// Reads the side file. One slot may be an interrupted write; anything else that is odd is damage.
pub(super) fn read(path: &Path) -> Result<Slot, OpenError> {
    let damaged = |reason: String| OpenError::SideDamaged { path: path.to_owned(), reason };
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(OpenError::SideMissing { path: path.to_owned() });
        }
        file => {
            file.and_then(|file| file.take(SIDE_LEN as u64 + 1).read_to_end(&mut bytes)).map_err(io("read", path))?
        }
    };
    let (Some((first, second)), SIDE_LEN) = (bytes.split_first_chunk::<SLOT_LEN>(), bytes.len()) else {
        return Err(damaged(format!("it has {} bytes instead of {SIDE_LEN}", bytes.len())));
    };
    let second = second.first_chunk::<SLOT_LEN>().map_or(Err(Damage::Torn), Slot::decode);
    match (Slot::decode(first), second) {
        (Ok(first), Ok(second)) => {
            if slot_of(first.sequence) != 0 || first.sequence.abs_diff(second.sequence) != 1 {
                let (first, second) = (first.sequence, second.sequence);
                return Err(damaged(format!("its slots have the sequences {first} and {second}")));
            }
            Ok(if first.sequence > second.sequence { first } else { second })
        }
        (Ok(slot), Err(Damage::Torn)) if slot_of(slot.sequence) == 0 => Ok(slot),
        (Err(Damage::Torn), Ok(slot)) if slot_of(slot.sequence) == 1 => Ok(slot),
        (Err(Damage::Torn), Err(Damage::Torn)) => Err(damaged("both slots are interrupted writes".to_owned())),
        (Err(damage), _) if damage != Damage::Torn => Err(damaged(format!("slot 0: {damage}"))),
        (_, Err(damage)) if damage != Damage::Torn => Err(damaged(format!("slot 1: {damage}"))),
        _ => Err(damaged("a slot stands at the other's place".to_owned())),
    }
}

/// The open side file.
pub(super) struct SideFile {
    file: File,
    path: PathBuf,
}

impl SideFile {
    fn fault(&self, operation: &'static str) -> impl Fn(std::io::Error) -> StorageFault + '_ {
        move |error| StorageFault { operation, place: self.path.display().to_string(), reason: error.to_string() }
    }
}

impl SideDisk for SideFile {
    fn write(&mut self, slot: usize, bytes: &[u8; SLOT_LEN]) -> Result<(), StorageFault> {
        self.file.write_all_at(bytes, (slot * SLOT_LEN) as u64).map_err(self.fault("write the side file"))
    }

    fn sync(&mut self) -> Result<(), StorageFault> {
        self.file.sync_data().map_err(self.fault("sync the side file"))
    }
}
