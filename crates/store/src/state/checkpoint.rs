//! Checkpoints: the state of one instant as files in a directory, with a list of them and their checksums.
//! They are what snapshots are made of. Metadata is read from the checkpoint itself, so it belongs to the data.
//!
//! ```text
//! HAPAX-CHECKPOINT:  hapax-checkpoint 1
//!                    file NAME LENGTH XXH3          one line per file, by name
//!                    end XXH3                       of every byte before this line
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use hapax_codec::record::{self, Applied};
use hapax_machine::change::Head;
use hapax_machine::ids::GroupId;
use xxhash_rust::xxh3::xxh3_64;

use super::CheckpointError;
use super::disk::{Family, Rows};
use super::files;
use super::keys;
use super::view::row;
use crate::seam::StorageFault;

/// The list of a checkpoint's files; written last, so that a directory without it is not a checkpoint.
pub const LIST: &str = "HAPAX-CHECKPOINT";

const FIRST_LINE: &str = "hapax-checkpoint 1";
/// Longest list that is read, in bytes.
const LIST_LEN_MAX: u64 = 64 << 20;

/// One file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFile {
    /// Its plain name.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
}

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointMeta {
    /// The last entry it shows the effect of, and the membership there.
    pub applied: Applied,
    /// The head there.
    pub head: Head,
    /// All files, the list among them; anything else in the directory is not part of it.
    pub files: Vec<CheckpointFile>,
}

/// Length and checksum of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) len: u64,
    pub(crate) hash: u64,
}

/// The files of a checkpoint by name, its list not among them.
pub(crate) type Sums = BTreeMap<String, Sum>;

/// Sums and syncs every file in `dir`, writes the list, and syncs it and the names. `known` has sums of files whose names
/// stand for their content; what was not known before is added.
pub(super) fn seal(dir: &Path, known: &mut Sums) -> Result<Sums, StorageFault> {
    let mut sums = Sums::new();
    for name in files::names(dir)? {
        let path = dir.join(&name);
        let never_changes = name.ends_with(".sst");
        let sum = match known.get(&name).filter(|_| never_changes) {
            Some(sum) => *sum,
            None => {
                files::sync(&path)?;
                let (len, hash) = files::sum(&path).map_err(files::fault("read", &path))?;
                Sum { len, hash }
            }
        };
        sums.insert(name, sum);
    }
    known.retain(|name, _| sums.contains_key(name));
    known.extend(sums.iter().filter(|(name, _)| name.ends_with(".sst")).map(|(name, sum)| (name.clone(), *sum)));
    files::replace(&dir.join(LIST), encode(&sums).as_bytes())?;
    files::sync_parent(dir)?;
    Ok(sums)
}

/// Reads the list in `dir` and every file on it.
pub(super) fn verify(dir: &Path) -> Result<Sums, CheckpointError> {
    let path = dir.join(LIST);
    let refuse = |detail: String| CheckpointError { file: path.clone(), detail };
    let len = fs::metadata(&path).map_err(|error| refuse(error.to_string()))?.len();
    if len > LIST_LEN_MAX {
        return Err(refuse(format!("{len} bytes are too many for a list of files")));
    }
    let text = fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))?;
    let sums = decode(&text).ok_or_else(|| refuse("damaged: its lines do not fit its checksum".to_owned()))?;
    for (name, sum) in &sums {
        let file = dir.join(name);
        let (len, hash) =
            files::sum(&file).map_err(|error| CheckpointError { file: file.clone(), detail: error.to_string() })?;
        if len != sum.len {
            let detail = format!("damaged: {len} bytes, {} expected", sum.len);
            return Err(CheckpointError { file, detail });
        }
        if hash != sum.hash {
            return Err(CheckpointError { file, detail: "damaged: checksum mismatch".to_owned() });
        }
    }
    Ok(sums)
}

/// Reads what a checkpoint of `group` says of itself.
pub(super) fn meta(
    dir: &Path,
    rows: &dyn Rows,
    group: GroupId,
    sums: &Sums,
) -> Result<CheckpointMeta, CheckpointError> {
    let refuse = |fault: StorageFault| CheckpointError { file: dir.to_owned(), detail: fault.to_string() };
    let applied = row(rows, Family::Meta, &keys::applied(group), record::decode_applied).map_err(refuse)?;
    let head = row(rows, Family::Meta, &keys::head(group), record::decode_head).map_err(refuse)?;
    let list_len = encode(sums).len() as u64;
    let listed = sums.iter().map(|(name, sum)| CheckpointFile { name: name.clone(), len: sum.len });
    let list = CheckpointFile { name: LIST.to_owned(), len: list_len };
    Ok(CheckpointMeta {
        applied: applied.unwrap_or_default(),
        head: head.unwrap_or_default(),
        files: listed.chain([list]).collect(),
    })
}

fn encode(sums: &Sums) -> String {
    let mut text = format!("{FIRST_LINE}\n");
    for (name, sum) in sums {
        let _ = writeln!(text, "file {name} {} {:016x}", sum.len, sum.hash);
    }
    let end = xxh3_64(text.as_bytes());
    let _ = writeln!(text, "end {end:016x}");
    text
}

fn decode(text: &str) -> Option<Sums> {
    let body = text.get(..text.rfind("end ")?)?;
    let end = text.strip_prefix(body)?.strip_prefix("end ")?.strip_suffix('\n')?;
    if u64::from_str_radix(end, 16).ok()? != xxh3_64(body.as_bytes()) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != FIRST_LINE {
        return None;
    }
    lines.map(decode_line).collect()
}

fn decode_line(line: &str) -> Option<(String, Sum)> {
    let mut words = line.strip_prefix("file ")?.split(' ');
    let (name, len, hash) = (words.next()?, words.next()?, words.next()?);
    // The name becomes part of a path: nothing but a plain name may.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.starts_with('.') || name.is_empty() || !name.bytes().all(plain) || words.next().is_some() {
        return None;
    }
    let sum = Sum { len: len.parse().ok()?, hash: u64::from_str_radix(hash, 16).ok()? };
    Some((name.to_owned(), sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums() -> Sums {
        let sum = |len| Sum { len, hash: 0xabcd };
        Sums::from([("000012.sst".to_owned(), sum(9)), ("CURRENT".to_owned(), sum(16))])
    }

    #[test]
    fn the_list_is_pinned() {
        let text = "hapax-checkpoint 1\nfile 000012.sst 9 000000000000abcd\nfile CURRENT 16 000000000000abcd\n";
        let end = format!("end {:016x}\n", xxh3_64(text.as_bytes()));
        assert_eq!(encode(&sums()), format!("{text}{end}"));
        assert_eq!(decode(&encode(&sums())), Some(sums()));
    }

    #[test]
    fn every_changed_byte_of_the_list_is_noticed() {
        let text = encode(&sums());
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(decode(&changed), None, "byte {at}");
            assert_eq!(decode(&text[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn a_name_never_leaves_the_directory() {
        for name in ["../x", "a/b", ".hidden", ".."] {
            let sums = Sums::from([(name.to_owned(), Sum { len: 1, hash: 1 })]);
            assert_eq!(decode(&encode(&sums)), None, "{name}");
        }
    }
}
