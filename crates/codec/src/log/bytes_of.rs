//! Fields in and out of fixed buffers, and the frame of a small record: version in front, checksum behind.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Error, LogId, VERSION};

const SEED_RECORD: u64 = 0x4861_7061_7852_4331;

/// Fills the last eight bytes with the checksum of the others, in which the group takes part.
pub(super) fn seal(group: u32, mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 8;
    let sum = xxh3_64_with_seed(&bytes[..end], SEED_RECORD ^ u64::from(group));
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks version, length and checksum, in this order: a newer version may well have another length.
pub(super) fn unseal<'a>(what: &'static str, group: u32, want: usize, bytes: &'a [u8]) -> Result<Get<'a>, Error> {
    let get = Get::open(what, bytes)?;
    if bytes.len() != want {
        return Err(Error::Length { what, len: bytes.len(), want });
    }
    let (body, sum) = bytes.split_at(want - 8);
    if xxh3_64_with_seed(body, SEED_RECORD ^ u64::from(group)).to_le_bytes() != sum {
        return Err(Error::Checksum { what });
    }
    Ok(get)
}

/// Writes fields into a buffer whose size its maker fixed; running over it is a programmer's error.
pub(super) struct Put<'a>(pub(super) &'a mut [u8]);

impl Put<'_> {
    fn take<const N: usize>(&mut self, value: [u8; N]) {
        let (now, rest) = std::mem::take(&mut self.0).split_at_mut(N);
        now.copy_from_slice(&value);
        self.0 = rest;
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.take([value]);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.take(value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.take(value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.take(value.to_le_bytes());
    }

    pub(super) fn log_id(&mut self, id: &LogId) {
        self.u64(id.term);
        self.u64(id.node);
        self.u64(id.index);
    }
}

/// Reads fields. A read past the end gives zeros: callers compare the length with what they expect.
pub(super) struct Get<'a>(pub(super) &'a [u8]);

impl<'a> Get<'a> {
    /// Checks the version byte and stands behind it.
    pub(super) fn open(what: &'static str, bytes: &'a [u8]) -> Result<Get<'a>, Error> {
        match bytes.split_first() {
            None => Err(Error::Length { what, len: 0, want: 1 }),
            Some((&VERSION, rest)) => Ok(Get(rest)),
            Some((&found, _)) => Err(Error::Version { what, found }),
        }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((now, rest)) => {
                self.0 = rest;
                *now
            }
            None => [0; N],
        }
    }

    pub(super) fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(super) fn log_id(&mut self) -> LogId {
        LogId { term: self.u64(), node: self.u64(), index: self.u64() }
    }
}
