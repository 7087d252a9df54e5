//! Bytes of the Raft log: entry frames, votes, the log's start and committed marks, and (in `side`)
//! the side-file slots. All integers are little-endian; keys of the store are not made here.
//!
//! Every record opens with a version byte and carries a checksum. An entry's checksum is its **chain**:
//! it covers the entry *and* the chain of the entry before it, so that a log whose middle is missing,
//! exchanged or altered cannot verify, however well each remaining frame looks.
//!
//! Persisted bytes never change meaning: a new layout is a new version, and a retired kind or flag stays reserved.

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use self::bytes_of::{Get, Put, seal, unseal};

mod bytes_of;
pub mod side;

#[cfg(test)]
mod tests;

/// The version written by this program at the head of every record of this module.
pub const VERSION: u8 = 1;

/// Bytes of a frame before its payload.
pub const HEAD_LEN: usize = 42;

/// Largest payload of one entry, in bytes. One entry carries a whole batch of commands.
pub const PAYLOAD_MAX: usize = 32 << 20;

const SEED_CHAIN: u64 = 0x4861_7061_7843_4831;

const VOTE_LEN: usize = 26;
const START_LEN: usize = 50;
const MARK_LEN: usize = 34;

const FLAG_COMMITTED: u8 = 1;
const FLAG_PURGED: u8 = 1;

/// Why bytes are not a record of this module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer or more bytes than the record has.
    #[error("{what}: {len} bytes, {want} expected")]
    Length {
        /// Which record.
        what: &'static str,
        /// Bytes given.
        len: usize,
        /// Bytes the record has.
        want: usize,
    },
    /// Written by a newer program, or damaged.
    #[error("{what}: version {found} is unknown to this program (it knows {VERSION})")]
    Version {
        /// Which record.
        what: &'static str,
        /// The version byte found.
        found: u8,
    },
    /// The checksum does not fit the bytes.
    #[error("{what}: checksum mismatch")]
    Checksum {
        /// Which record.
        what: &'static str,
    },
    /// A field has a value that no writer writes.
    #[error("{what}: field `{field}` has an impossible value")]
    Field {
        /// Which record.
        what: &'static str,
        /// Which field.
        field: &'static str,
    },
    /// The payload is above [`PAYLOAD_MAX`].
    #[error("entry payload of {len} bytes is above the limit of {PAYLOAD_MAX}")]
    PayloadTooLarge {
        /// Bytes of the payload.
        len: usize,
    },
}

/// Names one entry: the term and node of the leader that wrote it, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId {
    /// Term of the leader that proposed the entry.
    pub term: u64,
    /// Node id of that leader; 0 where the consensus library does not record it.
    pub node: u64,
    /// Position in the log, from 0.
    pub index: u64,
}

impl LogId {
    /// True if a log that ends in `self` holds everything that a log ending in `other` was promised to hold.
    /// Logs only shrink by a truncation, which lowers the promise first, so both parts must be at least as high.
    pub fn covers(&self, other: &LogId) -> bool {
        self.index >= other.index && self.term >= other.term
    }
}

impl std::fmt::Display for LogId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "T{}-N{}.{}", self.term, self.node, self.index)
    }
}

/// What an entry is to the consensus layer. Bytes: 1, 2, 3; 0 and 4.. are reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Written by a new leader; no payload.
    Blank,
    /// A batch of commands.
    Normal,
    /// A membership.
    Membership,
}

impl EntryKind {
    fn to_byte(self) -> u8 {
        match self {
            EntryKind::Blank => 1,
            EntryKind::Normal => 2,
            EntryKind::Membership => 3,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(EntryKind::Blank),
            2 => Some(EntryKind::Normal),
            3 => Some(EntryKind::Membership),
            _ => None,
        }
    }
}

/// One entry of one group's log. The payload is encoded once, by the proposer, and shared from there on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its identity.
    pub id: LogId,
    /// What it is.
    pub kind: EntryKind,
    /// Opaque here; at most [`PAYLOAD_MAX`] bytes.
    pub payload: Bytes,
}

/// The first [`HEAD_LEN`] bytes of a frame; the payload follows them.
pub type Head = [u8; HEAD_LEN];

/// The chain before the first entry of a group's log that begins at `first`, where no earlier entry was ever known.
pub fn chain_start(group: u32, first: u64) -> u64 {
    let mut seed = [0; 12];
    seed[..4].copy_from_slice(&group.to_le_bytes());
    seed[4..].copy_from_slice(&first.to_le_bytes());
    xxh3_64_with_seed(&seed, SEED_CHAIN)
}

impl Entry {
    /// Encodes the head of the frame of this entry in `group`, chained to `previous`, and returns it with the
    /// entry's own chain. The frame is `head ‖ payload`: the payload is not copied.
    ///
    /// # Errors
    /// [`Error::PayloadTooLarge`].
    pub fn encode_head(&self, group: u32, previous: u64) -> Result<(Head, u64), Error> {
        if self.payload.len() > PAYLOAD_MAX {
            return Err(Error::PayloadTooLarge { len: self.payload.len() });
        }
        let mut head = [0; HEAD_LEN];
        let mut put = Put(&mut head);
        put.u8(VERSION);
        put.u8(self.kind.to_byte());
        put.u32(group);
        put.u64(self.id.index);
        put.u64(self.id.term);
        put.u64(self.id.node);
        put.u32(self.payload.len() as u32);
        let chain = chain_of(previous, &head, &self.payload);
        head[HEAD_LEN - 8..].copy_from_slice(&chain.to_le_bytes());
        Ok((head, chain))
    }
}

/// chain = xxh3(previous chain ‖ head without its chain ‖ xxh3(payload)): all of it on the stack.
fn chain_of(previous: u64, head: &Head, payload: &[u8]) -> u64 {
    let mut input = [0; 8 + (HEAD_LEN - 8) + 8];
    input[..8].copy_from_slice(&previous.to_le_bytes());
    input[8..HEAD_LEN].copy_from_slice(&head[..HEAD_LEN - 8]);
    input[HEAD_LEN..].copy_from_slice(&xxh3_64(payload).to_le_bytes());
    xxh3_64_with_seed(&input, SEED_CHAIN)
}

/// A frame that was read back: structurally sound, but its chain is only proven by [`Frame::follows`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The group the frame says it belongs to.
    pub group: u32,
    /// The entry.
    pub entry: Entry,
    /// The chain stored with it.
    pub chain: u64,
}

impl Frame {
    /// Reads a frame. The payload shares `bytes`.
    ///
    /// # Errors
    /// Length, version or field; a damaged payload is found by [`Frame::follows`] only.
    pub fn decode(bytes: &Bytes) -> Result<Frame, Error> {
        let head = FrameHead::decode(bytes)?;
        Ok(Frame {
            group: head.group,
            entry: Entry { id: head.id, kind: head.kind, payload: bytes.slice(HEAD_LEN..) },
            chain: head.chain,
        })
    }

    /// True if this frame is undamaged and follows an entry whose chain is `previous`.
    pub fn follows(&self, previous: u64) -> bool {
        matches!(self.entry.encode_head(self.group, previous), Ok((_, chain)) if chain == self.chain)
    }
}

/// A frame's head alone, for a reader that does not want to own the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameHead {
    /// The group the frame says it belongs to.
    pub group: u32,
    /// The entry's identity.
    pub id: LogId,
    /// What the entry is.
    pub kind: EntryKind,
    /// The chain stored with it.
    pub chain: u64,
}

impl FrameHead {
    /// Reads the head of a whole frame.
    ///
    /// # Errors
    /// Length, version or field.
    pub fn decode(frame: &[u8]) -> Result<FrameHead, Error> {
        const WHAT: &str = "log entry";
        let mut get = Get::open(WHAT, frame)?;
        if frame.len() < HEAD_LEN {
            return Err(Error::Length { what: WHAT, len: frame.len(), want: HEAD_LEN });
        }
        let kind = EntryKind::from_byte(get.u8()).ok_or(Error::Field { what: WHAT, field: "kind" })?;
        let group = get.u32();
        let (index, term, node) = (get.u64(), get.u64(), get.u64());
        let payload_len = get.u32() as usize;
        let chain = get.u64();
        if payload_len > PAYLOAD_MAX {
            return Err(Error::Field { what: WHAT, field: "payload length" });
        }
        if frame.len() != HEAD_LEN + payload_len {
            return Err(Error::Length { what: WHAT, len: frame.len(), want: HEAD_LEN + payload_len });
        }
        Ok(FrameHead { group, id: LogId { term, node, index }, kind, chain })
    }

    /// True if `frame` (whose head this is) is undamaged and follows an entry whose chain is `previous`.
    pub fn follows(&self, frame: &[u8], previous: u64) -> bool {
        let Some((head, payload)) = frame.split_first_chunk::<HEAD_LEN>() else { return false };
        chain_of(previous, head, payload) == self.chain
    }
}

/// A vote: for whom, in which term, and whether that leader is known to be elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vote {
    /// The term voted in.
    pub term: u64,
    /// The node voted for.
    pub node: u64,
    /// True once a quorum is known to have granted it.
    pub committed: bool,
}

impl Vote {
    /// True if `self` may replace `old`: a higher term; or the same term, where the same vote may be repeated,
    /// an elected leader replaces a mere candidate, and nothing else changes.
    pub fn covers(&self, old: &Vote) -> bool {
        if self.term != old.term {
            return self.term > old.term;
        }
        match (self.committed, old.committed) {
            (true, false) => true,
            (false, true) => false,
            _ => self.node == old.node,
        }
    }

    /// Encodes the vote of `group`.
    pub fn encode(&self, group: u32) -> Vec<u8> {
        let mut bytes = vec![0; VOTE_LEN];
        let mut put = Put(&mut bytes);
        put.u8(VERSION);
        put.u8(if self.committed { FLAG_COMMITTED } else { 0 });
        put.u64(self.term);
        put.u64(self.node);
        seal(group, bytes)
    }

    /// Reads the vote of `group`.
    ///
    /// # Errors
    /// Length, version, checksum or field.
    pub fn decode(group: u32, bytes: &[u8]) -> Result<Vote, Error> {
        let mut get = unseal("vote", group, VOTE_LEN, bytes)?;
        let committed = match get.u8() {
            0 => false,
            FLAG_COMMITTED => true,
            _ => return Err(Error::Field { what: "vote", field: "flags" }),
        };
        Ok(Vote { term: get.u64(), node: get.u64(), committed })
    }
}

/// Where a group's log begins: what was purged, the first index that must be present, and the chain before it.
/// Absent, a log begins at index 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The last entry that was purged, if any was.
    pub purged: Option<LogId>,
    /// The first index the log may hold; `purged.index + 1`, save for a log that began above 0 and was not purged.
    pub first: u64,
    /// The chain that the entry at `first` follows.
    pub chain: u64,
}

impl Start {
    /// The start of a log that was never purged and begins at `first`.
    pub fn at(group: u32, first: u64) -> Start {
        Start { purged: None, first, chain: chain_start(group, first) }
    }

    /// Encodes the mark of `group`.
    pub fn encode(&self, group: u32) -> Vec<u8> {
        let mut bytes = vec![0; START_LEN];
        let id = self.purged.unwrap_or(LogId { term: 0, node: 0, index: 0 });
        let mut put = Put(&mut bytes);
        put.u8(VERSION);
        put.u8(if self.purged.is_some() { FLAG_PURGED } else { 0 });
        put.log_id(&id);
        put.u64(self.first);
        put.u64(self.chain);
        seal(group, bytes)
    }

    /// Reads the mark of `group`.
    ///
    /// # Errors
    /// Length, version, checksum or field.
    pub fn decode(group: u32, bytes: &[u8]) -> Result<Start, Error> {
        const WHAT: &str = "log start";
        let mut get = unseal(WHAT, group, START_LEN, bytes)?;
        let flags = get.u8();
        let id = get.log_id();
        let purged = match flags {
            0 if id == (LogId { term: 0, node: 0, index: 0 }) => None,
            FLAG_PURGED => Some(id),
            _ => return Err(Error::Field { what: WHAT, field: "flags" }),
        };
        let (first, chain) = (get.u64(), get.u64());
        if purged.is_some_and(|id| first <= id.index) {
            return Err(Error::Field { what: WHAT, field: "first" });
        }
        Ok(Start { purged, first, chain })
    }
}

/// A log id stored alone: the last committed entry that a group knew of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed(pub LogId);

impl Committed {
    /// Encodes the mark of `group`.
    pub fn encode(&self, group: u32) -> Vec<u8> {
        let mut bytes = vec![0; MARK_LEN];
        let mut put = Put(&mut bytes);
        put.u8(VERSION);
        put.u8(0);
        put.log_id(&self.0);
        seal(group, bytes)
    }

    /// Reads the mark of `group`.
    ///
    /// # Errors
    /// Length, version, checksum or field.
    pub fn decode(group: u32, bytes: &[u8]) -> Result<Committed, Error> {
        const WHAT: &str = "committed mark";
        let mut get = unseal(WHAT, group, MARK_LEN, bytes)?;
        if get.u8() != 0 {
            return Err(Error::Field { what: WHAT, field: "flags" });
        }
        Ok(Committed(get.log_id()))
    }
}
