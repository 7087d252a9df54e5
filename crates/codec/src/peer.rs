//! The peer protocol's bytes: what two nodes of one cluster say to each other over a byte stream.
//! Owns the frame layout, its limits and the plain message types; names no consensus library.
//!
//! A connection begins with one [`hello`] in each direction and then carries frames of one channel
//! only, so that bulk data never stands in front of a heartbeat. Every frame is a four-byte
//! big-endian length followed by a body whose first byte is its [`Kind`]. Integers are big-endian.
//! The protocol version is negotiated in the hello; inside one version the layout never changes.
//!
//! Invariants:
//! - Decoding is total: any byte string gives a value or a [`DecodeError`], never a panic, and never
//!   an allocation larger than a small multiple of the frame itself.
//! - An entry's payload is carried as the bytes it was given and handed out as a slice of the
//!   received frame: it is encoded once, by the proposer, and never again on the way.

pub mod call;
pub mod hello;
pub mod raft;
pub mod snapshot;
pub mod status;

#[cfg(test)]
mod tests;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::membership::DataId;

/// The largest frame body that is written or accepted, in bytes.
pub const MAX_FRAME_LEN: usize = 32 << 20;
/// The largest hello frame: a stranger may make us buffer no more than this.
pub const MAX_HELLO_LEN: usize = 256;
/// The most log entries in one append request.
pub const MAX_ENTRIES: usize = 65_536;
/// The most nodes in a membership.
pub const MAX_NODES: usize = 1_024;
/// The most voter sets in a membership; a joint configuration has two.
pub const MAX_CONFIGS: usize = 8;
/// The longest address, region or URL, in bytes.
pub const MAX_TEXT_LEN: usize = 1_024;
/// The most files in a snapshot.
pub const MAX_SNAPSHOT_FILES: usize = 262_144;
/// The longest snapshot file name, in bytes.
pub const MAX_FILE_NAME_LEN: usize = 255;
/// The largest piece of a snapshot file in one frame, in bytes.
pub const MAX_CHUNK_LEN: usize = 1 << 20;

/// Payloads at least this long are sent from where they are; shorter ones are copied, since one
/// copy costs less than one more element in a vectored write.
const SHARE_THRESHOLD: usize = 2_048;

/// Length of the frame's length prefix, in bytes.
pub const PREFIX_LEN: usize = 4;

/// Why bytes from a peer are not a message. The connection that carried them is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The body ended inside the named field.
    #[error("frame ends inside {0}")]
    Truncated(&'static str),
    /// Bytes are left over after the message.
    #[error("{0} bytes after the message")]
    Trailing(usize),
    /// A tag that this protocol version does not define.
    #[error("unknown {what} tag {tag}")]
    Tag {
        /// The field that carried the tag.
        what: &'static str,
        /// The tag.
        tag: u8,
    },
    /// A count or a length above its limit.
    #[error("{what} of {len} is above the limit")]
    TooLong {
        /// The field.
        what: &'static str,
        /// The announced count or length.
        len: u64,
    },
    /// A text is not UTF-8.
    #[error("{0} is not UTF-8")]
    Utf8(&'static str),
    /// A value that is well formed and yet not allowed.
    #[error("{0} is not allowed")]
    Invalid(&'static str),
}

/// The first byte of a frame's body. Numbers are never used again for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Leader to follower: [`raft::AppendRequest`] of a session.
    Append = 1,
    /// Follower to leader: [`raft::AppendReply`] of a session, in the order of the requests.
    AppendReply = 2,
    /// [`call::Request`].
    Request = 3,
    /// [`call::Reply`].
    Reply = 4,
    /// [`snapshot::Begin`].
    SnapshotBegin = 5,
    /// [`snapshot::Chunk`].
    SnapshotChunk = 6,
    /// [`snapshot::FileEnd`].
    SnapshotFileEnd = 7,
    /// All files were sent.
    SnapshotEnd = 8,
    /// The receiver is alive and working.
    SnapshotWorking = 9,
    /// [`snapshot::Done`].
    SnapshotDone = 10,
    /// [`snapshot::Failed`].
    SnapshotFailed = 11,
    /// Asks for a [`Kind::Pong`] at once.
    Ping = 12,
    /// Answers a [`Kind::Ping`].
    Pong = 13,
}

impl Kind {
    /// Takes the kind from the front of a frame's body.
    pub fn take(body: &mut Bytes) -> Result<Self, DecodeError> {
        let tag = get_u8(body, "kind")?;
        Ok(match tag {
            1 => Self::Append,
            2 => Self::AppendReply,
            3 => Self::Request,
            4 => Self::Reply,
            5 => Self::SnapshotBegin,
            6 => Self::SnapshotChunk,
            7 => Self::SnapshotFileEnd,
            8 => Self::SnapshotEnd,
            9 => Self::SnapshotWorking,
            10 => Self::SnapshotDone,
            11 => Self::SnapshotFailed,
            12 => Self::Ping,
            13 => Self::Pong,
            _ => return Err(DecodeError::Tag { what: "kind", tag }),
        })
    }
}

/// One encoded frame: its prefix and its body, as the segments of a vectored write.
#[derive(Debug, Clone)]
pub struct Frame {
    segments: Vec<Bytes>,
    len: usize,
}

impl Frame {
    /// A frame that is nothing but its kind.
    pub fn bare(kind: Kind) -> Self {
        FrameWriter::new(kind).finish()
    }

    /// Length on the wire, with the prefix, in bytes.
    pub fn wire_len(&self) -> usize {
        self.len
    }

    /// Whether the receiver would refuse the frame for its length.
    pub fn is_oversized(&self) -> bool {
        self.len > MAX_FRAME_LEN + PREFIX_LEN
    }

    /// The segments, in the order in which they are written.
    pub fn into_segments(self) -> Vec<Bytes> {
        self.segments
    }

    /// The whole frame in one piece, as the receiver sees it: for tests and for short frames.
    pub fn to_bytes(&self) -> Bytes {
        let mut all = BytesMut::with_capacity(self.len);
        for segment in &self.segments {
            all.extend_from_slice(segment);
        }
        all.freeze()
    }

    /// The body in one piece, without the prefix.
    pub fn to_body(&self) -> Bytes {
        self.to_bytes().slice(PREFIX_LEN..)
    }
}

/// Builds one frame. Long payloads are referenced, not copied.
#[derive(Debug)]
pub struct FrameWriter {
    done: Vec<BytesOrMut>,
    tail: BytesMut,
    len: usize,
}

#[derive(Debug)]
enum BytesOrMut {
    Shared(Bytes),
    Own(BytesMut),
}

impl FrameWriter {
    /// Starts a frame whose body begins with `kind`.
    pub fn new(kind: Kind) -> Self {
        let mut writer = Self::headless();
        writer.u8(kind as u8);
        writer
    }

    /// Starts a frame without a kind; only hellos are such frames.
    pub(crate) fn headless() -> Self {
        let mut tail = BytesMut::with_capacity(128);
        tail.put_u32(0);
        Self { done: Vec::new(), tail, len: PREFIX_LEN }
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.tail.put_u8(value);
        self.len += 1;
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.tail.put_u16(value);
        self.len += 2;
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.tail.put_u32(value);
        self.len += 4;
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.tail.put_u64(value);
        self.len += 8;
    }

    pub(crate) fn slice(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Text behind a two-byte length. Senders keep texts below [`MAX_TEXT_LEN`]; what is longer
    /// is cut at the limit, at a character, since it only names a place.
    pub(crate) fn text(&mut self, text: &str) {
        let mut end = text.len().min(MAX_TEXT_LEN);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.slice(&text.as_bytes()[..end]);
    }

    /// Bytes without a length of their own: the last field of a frame.
    pub fn shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_THRESHOLD {
            self.slice(bytes);
            return;
        }
        let own = self.tail.split();
        if !own.is_empty() {
            self.done.push(BytesOrMut::Own(own));
        }
        self.done.push(BytesOrMut::Shared(bytes.clone()));
        self.len += bytes.len();
    }

    /// Bytes behind a four-byte length.
    pub(crate) fn sized(&mut self, bytes: &Bytes) {
        self.u32(bytes.len() as u32);
        self.shared(bytes);
    }

    /// Length so far, with the prefix, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: a frame has at least its prefix.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes the length into the prefix and closes the frame.
    pub fn finish(mut self) -> Frame {
        let tail = self.tail.split();
        if !tail.is_empty() {
            self.done.push(BytesOrMut::Own(tail));
        }
        // A body beyond four gigabytes cannot be announced; `is_oversized` refuses it long before.
        let body_len = u32::try_from(self.len - PREFIX_LEN).unwrap_or(u32::MAX);
        if let Some(BytesOrMut::Own(first)) = self.done.first_mut() {
            first[..PREFIX_LEN].copy_from_slice(&body_len.to_be_bytes());
        }
        let segments = self.done.into_iter().map(|part| match part {
            BytesOrMut::Shared(bytes) => bytes,
            BytesOrMut::Own(bytes) => bytes.freeze(),
        });
        Frame { segments: segments.collect(), len: self.len }
    }
}

pub(crate) fn need(body: &Bytes, len: usize, what: &'static str) -> Result<(), DecodeError> {
    if body.remaining() < len { Err(DecodeError::Truncated(what)) } else { Ok(()) }
}

pub(crate) fn get_u8(body: &mut Bytes, what: &'static str) -> Result<u8, DecodeError> {
    need(body, 1, what)?;
    Ok(body.get_u8())
}

pub(crate) fn get_u16(body: &mut Bytes, what: &'static str) -> Result<u16, DecodeError> {
    need(body, 2, what)?;
    Ok(body.get_u16())
}

pub(crate) fn get_u32(body: &mut Bytes, what: &'static str) -> Result<u32, DecodeError> {
    need(body, 4, what)?;
    Ok(body.get_u32())
}

pub(crate) fn get_u64(body: &mut Bytes, what: &'static str) -> Result<u64, DecodeError> {
    need(body, 8, what)?;
    Ok(body.get_u64())
}

pub(crate) fn get_bool(body: &mut Bytes, what: &'static str) -> Result<bool, DecodeError> {
    match get_u8(body, what)? {
        0 => Ok(false),
        1 => Ok(true),
        tag => Err(DecodeError::Tag { what, tag }),
    }
}

pub(crate) fn get_slice(body: &mut Bytes, len: usize, what: &'static str) -> Result<Bytes, DecodeError> {
    need(body, len, what)?;
    Ok(body.split_to(len))
}

pub(crate) fn get_data(body: &mut Bytes) -> Result<DataId, DecodeError> {
    let mut id = DataId::UNKNOWN;
    id.0.copy_from_slice(&get_slice(body, 16, "data id")?);
    Ok(id)
}

pub(crate) fn get_text(body: &mut Bytes, what: &'static str) -> Result<String, DecodeError> {
    let len = get_u16(body, what)? as usize;
    if len > MAX_TEXT_LEN {
        return Err(DecodeError::TooLong { what, len: len as u64 });
    }
    let bytes = get_slice(body, len, what)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(DecodeError::Utf8(what)),
    }
}

/// Reads a count, refused above `max`, and above what the rest of the body could hold when each
/// element takes at least `min_len` bytes: an announced count alone allocates nothing.
pub(crate) fn get_count(
    body: &mut Bytes,
    max: usize,
    min_len: usize,
    what: &'static str,
) -> Result<usize, DecodeError> {
    let count = get_u32(body, what)? as usize;
    if count > max {
        return Err(DecodeError::TooLong { what, len: count as u64 });
    }
    need(body, count.saturating_mul(min_len), what)?;
    Ok(count)
}

/// Every message ends its frame.
pub(crate) fn end(body: &Bytes) -> Result<(), DecodeError> {
    if body.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(body.len())) }
}

/// A request's or a reply's own message, encoded outside of a frame.
pub(crate) fn payload(put: impl FnOnce(&mut FrameWriter)) -> Bytes {
    let mut out = FrameWriter::headless();
    put(&mut out);
    out.finish().to_body()
}
