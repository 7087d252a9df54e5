//! Bytes of a membership, as the log's membership entries and the state's membership row hold it.
//! Versioned; readable by every later build; decoding is total and bounded.
//!
//! ```text
//! membership: version:u8=1 sets:u8 { voters:u16 { node:u64 } }
//!             nodes:u16 { node:u64 addr:text region:text url:text data:16 }
//! stored:     version:u8=1 present:u8 [ term:u64 index:u64 ] membership
//! text:       len:u16 utf-8
//! ```
//! Integers are big-endian. Every set and the nodes are in ascending order. Reserved for nodes: nothing follows `data` in
//! version 1; a later version may add fields.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

/// The version that this build writes.
pub const VERSION: u8 = 1;
/// The most voter sets: a joint configuration has two.
pub const SETS_MAX: usize = 8;
/// The most nodes.
pub const NODES_MAX: usize = 1_024;
/// The longest address, region or URL, in bytes.
pub const TEXT_MAX: usize = 1_024;

/// Why bytes are no membership, or a membership has no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
    /// Written by a build that is newer than this one.
    #[error("membership of version {0}, which this build does not know")]
    Version(u8),
    /// The bytes end inside a field.
    #[error("membership ends inside `{0}`")]
    Truncated(&'static str),
    /// Bytes are left over.
    #[error("{0} bytes after the membership")]
    Trailing(usize),
    /// A field has a value that no writer writes.
    #[error("membership field `{0}` has an impossible value")]
    Field(&'static str),
}

/// Names one data directory: drawn when the directory is created, and gone with it. A node that comes back under its old
/// id with another one has lost what it had promised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct DataId(pub [u8; 16]);

impl DataId {
    /// No directory's: that of a member which was configured, not heard.
    pub const UNKNOWN: Self = Self([0; 16]);

    /// Whether it names a directory.
    pub fn is_known(self) -> bool {
        self != Self::UNKNOWN
    }
}

impl std::fmt::Debug for DataId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Display for DataId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// A member as its peers and its clients reach it, and the data it is known with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Member {
    /// `host:port` of the peer listener.
    pub addr: String,
    /// The node's region.
    pub region: String,
    /// Base URL of the client listener.
    pub client_url: String,
    /// The data directory that it joined with.
    pub data: DataId,
}

/// Who votes and who is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// The voter sets; two of them during a change.
    pub sets: Vec<BTreeSet<u64>>,
    /// Every node, learners among them.
    pub nodes: BTreeMap<u64, Member>,
}

/// A membership and the entry that set it, as term and index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// The entry, if there was one.
    pub log_id: Option<(u64, u64)>,
    /// The membership.
    pub membership: Membership,
}

impl Membership {
    /// Encodes it.
    ///
    /// # Errors
    /// It is above one of this module's limits.
    pub fn encode(&self) -> Result<Bytes, Error> {
        let mut out = BytesMut::new();
        self.put(&mut out)?;
        Ok(out.freeze())
    }

    /// Decodes it.
    ///
    /// # Errors
    /// The bytes are not a membership, or one of a newer version.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, Error> {
        let membership = Self::get(&mut bytes)?;
        end(bytes).map(|()| membership)
    }

    fn put(&self, out: &mut BytesMut) -> Result<(), Error> {
        out.put_u8(VERSION);
        out.put_u8(u8::try_from(limited(self.sets.len(), SETS_MAX, "sets")?).unwrap_or(u8::MAX));
        for set in &self.sets {
            out.put_u16(limited(set.len(), NODES_MAX, "voters")?);
            set.iter().for_each(|node| out.put_u64(*node));
        }
        out.put_u16(limited(self.nodes.len(), NODES_MAX, "nodes")?);
        for (node, member) in &self.nodes {
            out.put_u64(*node);
            for (text, field) in
                [(&member.addr, "addr"), (&member.region, "region"), (&member.client_url, "client_url")]
            {
                out.put_u16(limited(text.len(), TEXT_MAX, field)?);
                out.put_slice(text.as_bytes());
            }
            out.put_slice(&member.data.0);
        }
        Ok(())
    }

    fn get(bytes: &mut &[u8]) -> Result<Self, Error> {
        version(bytes)?;
        let count = bytes.try_get_u8().map_err(|_| Error::Truncated("sets"))?;
        let mut sets = Vec::new();
        for _ in 0..limited(count.into(), SETS_MAX, "sets")? {
            let mut set = BTreeSet::new();
            for _ in 0..count_of(bytes, NODES_MAX, "voters")? {
                let node = bytes.try_get_u64().map_err(|_| Error::Truncated("voter"))?;
                if set.last().is_some_and(|last| *last >= node) {
                    return Err(Error::Field("voter"));
                }
                set.insert(node);
            }
            sets.push(set);
        }
        let mut nodes = BTreeMap::new();
        for _ in 0..count_of(bytes, NODES_MAX, "nodes")? {
            let node = bytes.try_get_u64().map_err(|_| Error::Truncated("node"))?;
            if nodes.last_key_value().is_some_and(|(last, _)| *last >= node) {
                return Err(Error::Field("node"));
            }
            let (addr, region, client_url) =
                (text(bytes, "addr")?, text(bytes, "region")?, text(bytes, "client_url")?);
            let data;
            (data, *bytes) = bytes.split_first_chunk().ok_or(Error::Truncated("data"))?;
            nodes.insert(node, Member { addr, region, client_url, data: DataId(*data) });
        }
        Ok(Self { sets, nodes })
    }
}

impl Stored {
    /// Encodes it.
    ///
    /// # Errors
    /// The membership is above one of this module's limits.
    pub fn encode(&self) -> Result<Bytes, Error> {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_u8(u8::from(self.log_id.is_some()));
        if let Some((term, index)) = self.log_id {
            out.put_u64(term);
            out.put_u64(index);
        }
        self.membership.put(&mut out)?;
        Ok(out.freeze())
    }

    /// Decodes it.
    ///
    /// # Errors
    /// The bytes are not a stored membership, or one of a newer version.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, Error> {
        version(&mut bytes)?;
        let log_id = match bytes.try_get_u8().map_err(|_| Error::Truncated("present"))? {
            0 => None,
            1 => {
                let term = bytes.try_get_u64().map_err(|_| Error::Truncated("term"))?;
                Some((term, bytes.try_get_u64().map_err(|_| Error::Truncated("index"))?))
            }
            _ => return Err(Error::Field("present")),
        };
        let membership = Membership::get(&mut bytes)?;
        end(bytes).map(|()| Self { log_id, membership })
    }
}

fn version(bytes: &mut &[u8]) -> Result<(), Error> {
    match bytes.try_get_u8() {
        Ok(VERSION) => Ok(()),
        Ok(other) => Err(Error::Version(other)),
        Err(_) => Err(Error::Truncated("version")),
    }
}

fn limited(len: usize, max: usize, field: &'static str) -> Result<u16, Error> {
    if len > max {
        return Err(Error::Field(field));
    }
    u16::try_from(len).map_err(|_| Error::Field(field))
}

fn count_of(bytes: &mut &[u8], max: usize, field: &'static str) -> Result<u16, Error> {
    let count = bytes.try_get_u16().map_err(|_| Error::Truncated(field))?;
    limited(count.into(), max, field)
}

fn text(bytes: &mut &[u8], field: &'static str) -> Result<String, Error> {
    let len = count_of(bytes, TEXT_MAX, field)?.into();
    let (text, rest) = bytes.split_at_checked(len).ok_or(Error::Truncated(field))?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).map_err(|_| Error::Field(field))
}

fn end(bytes: &[u8]) -> Result<(), Error> {
    if bytes.is_empty() { Ok(()) } else { Err(Error::Trailing(bytes.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Membership {
        let member = |addr: &str, data| Member {
            addr: addr.to_owned(),
            region: "r".to_owned(),
            client_url: String::new(),
            data: DataId([data; 16]),
        };
        Membership {
            sets: vec![BTreeSet::from([1, 2])],
            nodes: BTreeMap::from([(1, member("a:1", 7)), (2, member("b", 0))]),
        }
    }

    #[test]
    fn the_bytes_never_change() {
        #[rustfmt::skip]
        let pinned: &[u8] = &[
            1, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2,
            0, 2,
            0, 0, 0, 0, 0, 0, 0, 1, 0, 3, b'a', b':', b'1', 0, 1, b'r', 0, 0,
            7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
            0, 0, 0, 0, 0, 0, 0, 2, 0, 1, b'b', 0, 1, b'r', 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(two().encode().unwrap(), pinned);
        assert_eq!(Membership::decode(pinned), Ok(two()));
        let stored = Stored { log_id: Some((3, 258)), membership: two() };
        let head: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(stored.encode().unwrap(), [head, pinned].concat());
        assert_eq!(Stored::decode(&[head, pinned].concat()), Ok(stored));
        assert_eq!(Stored::default().encode().unwrap(), &[1u8, 0, 1, 0, 0, 0][..]);
    }

    #[test]
    fn every_cut_and_every_flip_gives_a_value_or_an_error() {
        let bytes = Stored { log_id: Some((1, 1)), membership: two() }.encode().unwrap();
        for len in 0..bytes.len() {
            assert!(Stored::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 1 << bit;
                if let Ok(value) = Stored::decode(&flipped) {
                    assert_eq!(value.encode().unwrap(), flipped);
                }
            }
        }
        assert_eq!(Stored::decode(&[&bytes[..], &[0]].concat()), Err(Error::Trailing(1)));
    }

    #[test]
    fn limits_hold_both_ways() {
        let long = Member { addr: "x".repeat(TEXT_MAX + 1), ..Member::default() };
        let membership = Membership { sets: Vec::new(), nodes: BTreeMap::from([(1, long)]) };
        assert_eq!(membership.encode(), Err(Error::Field("addr")));
        let sets = Membership { sets: vec![BTreeSet::new(); SETS_MAX + 1], nodes: BTreeMap::new() };
        assert_eq!(sets.encode(), Err(Error::Field("sets")));
        assert_eq!(Membership::decode(&[1, 9]), Err(Error::Field("sets")));
        assert_eq!(Membership::decode(&[2]), Err(Error::Version(2)));
        assert_eq!(Membership::decode(&[1, 1, 0xff, 0xff]), Err(Error::Field("voters")));
    }
}
