//! Keys of the log's rows: group, kind of row, index, all big-endian, so that rows lie in the order of the log.
//! Kind 0 holds the marks (index 0 vote, 1 start, 2 committed; the rest is reserved), kind 1 the entries.

use crate::seam::Key;

const MARKS: u8 = 0;
const ENTRIES: u8 = 1;

fn key(group: u32, kind: u8, index: u64) -> Key {
    let mut key = [0; 13];
    key[..4].copy_from_slice(&group.to_be_bytes());
    key[4] = kind;
    key[5..].copy_from_slice(&index.to_be_bytes());
    key
}

/// The row of a group's vote.
pub(super) fn vote(group: u32) -> Key {
    key(group, MARKS, 0)
}

/// The row of the mark that says where a group's log begins.
pub(super) fn start(group: u32) -> Key {
    key(group, MARKS, 1)
}

/// The row of a group's committed mark.
pub(super) fn committed(group: u32) -> Key {
    key(group, MARKS, 2)
}

/// The row of an entry.
pub(super) fn entry(group: u32, index: u64) -> Key {
    key(group, ENTRIES, index)
}

/// The first key after all entries of a group.
pub(super) fn end(group: u32) -> Key {
    key(group, ENTRIES + 1, 0)
}

/// The first key that `group` can have.
pub(super) fn begin(group: u32) -> Key {
    key(group, MARKS, 0)
}

/// A key above all others.
pub(super) const LAST: Key = [0xff; 13];

/// The group of any key of the log.
pub(super) fn group_of(key: &[u8]) -> Option<u32> {
    (key.len() == 13).then(|| key.first_chunk().map(|group| u32::from_be_bytes(*group)))?
}

/// The index of an entry's key.
pub(super) fn index_of(key: &[u8]) -> Option<u64> {
    (key.len() == 13 && key[4] == ENTRIES).then(|| key.last_chunk().map(|index| u64::from_be_bytes(*index)))?
}
