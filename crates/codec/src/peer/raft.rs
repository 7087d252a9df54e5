//! The consensus messages: votes, appends and leader transfer, as plain data.
//! Log ids carry the term alone: a term has one leader, so the leader's id adds nothing.

use bytes::Bytes;

use super::{
    DecodeError, Frame, FrameWriter, Kind, MAX_CONFIGS, MAX_ENTRIES, MAX_NODES, end, get_bool, get_count, get_data,
    get_slice, get_text, get_u8, get_u32, get_u64, payload,
};
use crate::membership::DataId;

/// A log entry's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId {
    /// The term of the leader that appended the entry.
    pub term: u64,
    /// The entry's index.
    pub index: u64,
}

/// A node's vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// The term voted in.
    pub term: u64,
    /// The node voted for.
    pub node: u64,
    /// Whether a quorum granted it.
    pub committed: bool,
}

/// A member of the cluster, as its peers and its clients reach it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
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
    pub configs: Vec<Vec<u64>>,
    /// Every node, learners among them.
    pub nodes: Vec<(u64, Node)>,
}

impl Membership {
    pub(super) fn put(&self, out: &mut FrameWriter) {
        out.u32(self.configs.len() as u32);
        for config in &self.configs {
            out.u32(config.len() as u32);
            for id in config {
                out.u64(*id);
            }
        }
        out.u32(self.nodes.len() as u32);
        for (id, node) in &self.nodes {
            out.u64(*id);
            out.text(&node.addr);
            out.text(&node.region);
            out.text(&node.client_url);
            out.slice(&node.data.0);
        }
    }

    pub(super) fn get(body: &mut Bytes) -> Result<Self, DecodeError> {
        let count = get_count(body, MAX_CONFIGS, 4, "configs")?;
        let mut configs = Vec::with_capacity(count);
        for _ in 0..count {
            let voters = get_count(body, MAX_NODES, 8, "voters")?;
            let mut config = Vec::with_capacity(voters);
            for _ in 0..voters {
                config.push(get_u64(body, "voter")?);
            }
            configs.push(config);
        }
        let count = get_count(body, MAX_NODES, 30, "nodes")?;
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            let id = get_u64(body, "node id")?;
            let addr = get_text(body, "node address")?;
            let region = get_text(body, "node region")?;
            let client_url = get_text(body, "node client url")?;
            let data = get_data(body)?;
            nodes.push((id, Node { addr, region, client_url, data }));
        }
        Ok(Self { configs, nodes })
    }
}

pub(super) fn put_vote(out: &mut FrameWriter, vote: &Vote) {
    out.u64(vote.term);
    out.u64(vote.node);
    out.u8(u8::from(vote.committed));
}

pub(super) fn get_vote(body: &mut Bytes) -> Result<Vote, DecodeError> {
    let term = get_u64(body, "vote term")?;
    let node = get_u64(body, "vote node")?;
    let committed = get_bool(body, "vote committed")?;
    Ok(Vote { term, node, committed })
}

fn put_log_id(out: &mut FrameWriter, id: LogId) {
    out.u64(id.term);
    out.u64(id.index);
}

fn get_log_id(body: &mut Bytes) -> Result<LogId, DecodeError> {
    Ok(LogId { term: get_u64(body, "log term")?, index: get_u64(body, "log index")? })
}

pub(super) fn put_option_log_id(out: &mut FrameWriter, id: Option<LogId>) {
    match id {
        None => out.u8(0),
        Some(id) => {
            out.u8(1);
            put_log_id(out, id);
        }
    }
}

pub(super) fn get_option_log_id(body: &mut Bytes) -> Result<Option<LogId>, DecodeError> {
    if get_bool(body, "log id")? { Ok(Some(get_log_id(body)?)) } else { Ok(None) }
}

/// What a log entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: a new leader's first entry.
    Blank,
    /// An encoded batch of commands, opaque here.
    Normal(Bytes),
    /// A membership.
    Membership(Membership),
}

/// A log entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub log_id: LogId,
    /// What it holds.
    pub payload: Payload,
}

/// Bytes that an entry takes besides a normal payload's own.
const ENTRY_OVERHEAD: usize = 21;

impl Entry {
    /// About how long the entry is on the wire, in bytes: exact for normal entries.
    pub fn wire_len(&self) -> usize {
        match &self.payload {
            Payload::Blank => ENTRY_OVERHEAD,
            Payload::Normal(data) => ENTRY_OVERHEAD + data.len(),
            Payload::Membership(m) => {
                ENTRY_OVERHEAD + m.nodes.len() * 64 + m.configs.iter().map(|c| c.len() * 8).sum::<usize>()
            }
        }
    }

    fn put(&self, out: &mut FrameWriter) {
        put_log_id(out, self.log_id);
        match &self.payload {
            Payload::Blank => out.u8(0),
            Payload::Normal(data) => {
                out.u8(1);
                out.sized(data);
            }
            Payload::Membership(membership) => {
                out.u8(2);
                membership.put(out);
            }
        }
    }

    fn get(body: &mut Bytes) -> Result<Self, DecodeError> {
        let log_id = get_log_id(body)?;
        let payload = match get_u8(body, "payload")? {
            0 => Payload::Blank,
            1 => {
                let len = get_u32(body, "payload length")? as usize;
                Payload::Normal(get_slice(body, len, "payload")?)
            }
            2 => Payload::Membership(Membership::get(body)?),
            tag => return Err(DecodeError::Tag { what: "payload", tag }),
        };
        Ok(Self { log_id, payload })
    }
}

/// Entries from a leader, or none: a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendRequest {
    /// The leader's vote.
    pub vote: Vote,
    /// The entry before the first one here.
    pub prev_log_id: Option<LogId>,
    /// What a quorum is known to have.
    pub leader_commit: Option<LogId>,
    /// Consecutive entries.
    pub entries: Vec<Entry>,
}

impl AppendRequest {
    /// The place of the last entry here, or of the one before, if there is none.
    pub fn last_log_id(&self) -> Option<LogId> {
        self.entries.last().map(|entry| entry.log_id).or(self.prev_log_id)
    }

    /// The frame on the append channel.
    pub fn encode(&self, session: u64) -> Frame {
        let mut out = FrameWriter::new(Kind::Append);
        out.u64(session);
        self.put(&mut out);
        out.finish()
    }

    /// Reads what follows the kind on the append channel: session and request.
    pub fn decode(mut body: Bytes) -> Result<(u64, Self), DecodeError> {
        let session = get_u64(&mut body, "session")?;
        Ok((session, Self::from_payload(body)?))
    }

    /// The payload of a control request.
    pub fn to_payload(&self) -> Bytes {
        payload(|out| self.put(out))
    }

    /// Reads the payload of a control request.
    pub fn from_payload(mut body: Bytes) -> Result<Self, DecodeError> {
        let vote = get_vote(&mut body)?;
        let prev_log_id = get_option_log_id(&mut body)?;
        let leader_commit = get_option_log_id(&mut body)?;
        let count = get_count(&mut body, MAX_ENTRIES, 17, "entries")?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(Entry::get(&mut body)?);
        }
        end(&body)?;
        Ok(Self { vote, prev_log_id, leader_commit, entries })
    }

    fn put(&self, out: &mut FrameWriter) {
        put_vote(out, &self.vote);
        put_option_log_id(out, self.prev_log_id);
        put_option_log_id(out, self.leader_commit);
        out.u32(self.entries.len() as u32);
        for entry in &self.entries {
            entry.put(out);
        }
    }

    /// Cuts the request into consecutive ones of at most `limit` bytes of entries each, so that no
    /// frame is too long to be accepted. A single entry above the limit stays whole.
    pub fn split(self, limit: usize) -> Vec<Self> {
        let Self { vote, mut prev_log_id, leader_commit, entries } = self;
        let mut parts = Vec::with_capacity(1);
        let mut part = Vec::with_capacity(entries.len().min(MAX_ENTRIES));
        let mut len = 0;
        for entry in entries {
            let entry_len = entry.wire_len();
            if !part.is_empty() && (len + entry_len > limit || part.len() == MAX_ENTRIES) {
                let full = Self { vote, prev_log_id, leader_commit, entries: std::mem::take(&mut part) };
                prev_log_id = full.last_log_id();
                parts.push(full);
                len = 0;
            }
            len += entry_len;
            part.push(entry);
        }
        parts.push(Self { vote, prev_log_id, leader_commit, entries: part });
        parts
    }
}

/// The answer to one append request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendReply {
    /// Everything up to here is on the follower's disk.
    Accepted(Option<LogId>),
    /// The follower's log has something else, or nothing, here; the session ends.
    Conflict(LogId),
    /// The follower has seen a greater vote; the session ends.
    HigherVote(Vote),
    /// The follower's consensus has stopped; the session ends.
    Stopped,
}

impl AppendReply {
    /// The frame on the append channel.
    pub fn encode(&self, session: u64) -> Frame {
        let mut out = FrameWriter::new(Kind::AppendReply);
        out.u64(session);
        self.put(&mut out);
        out.finish()
    }

    /// Reads what follows the kind on the append channel: session and reply.
    pub fn decode(mut body: Bytes) -> Result<(u64, Self), DecodeError> {
        let session = get_u64(&mut body, "session")?;
        Ok((session, Self::from_payload(body)?))
    }

    /// The payload of a control reply.
    pub fn to_payload(&self) -> Bytes {
        payload(|out| self.put(out))
    }

    /// Reads the payload of a control reply.
    pub fn from_payload(mut body: Bytes) -> Result<Self, DecodeError> {
        let reply = match get_u8(&mut body, "append reply")? {
            0 => Self::Accepted(get_option_log_id(&mut body)?),
            1 => Self::Conflict(get_log_id(&mut body)?),
            2 => Self::HigherVote(get_vote(&mut body)?),
            3 => Self::Stopped,
            tag => return Err(DecodeError::Tag { what: "append reply", tag }),
        };
        end(&body)?;
        Ok(reply)
    }

    fn put(&self, out: &mut FrameWriter) {
        match self {
            Self::Accepted(id) => {
                out.u8(0);
                put_option_log_id(out, *id);
            }
            Self::Conflict(id) => {
                out.u8(1);
                put_log_id(out, *id);
            }
            Self::HigherVote(vote) => {
                out.u8(2);
                put_vote(out, vote);
            }
            Self::Stopped => out.u8(3),
        }
    }
}

/// A candidate asks for a vote, or asks whether it would get one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoteRequest {
    /// The vote asked for.
    pub vote: Vote,
    /// The candidate's last entry.
    pub last_log_id: Option<LogId>,
    /// The current leader wants this election.
    pub leadership_transfer: bool,
}

impl VoteRequest {
    /// The payload of a control request.
    pub fn to_payload(&self) -> Bytes {
        payload(|out| {
            put_vote(out, &self.vote);
            put_option_log_id(out, self.last_log_id);
            out.u8(u8::from(self.leadership_transfer));
        })
    }

    /// Reads the payload of a control request.
    pub fn from_payload(mut body: Bytes) -> Result<Self, DecodeError> {
        let vote = get_vote(&mut body)?;
        let last_log_id = get_option_log_id(&mut body)?;
        let leadership_transfer = get_bool(&mut body, "leadership transfer")?;
        end(&body)?;
        Ok(Self { vote, last_log_id, leadership_transfer })
    }
}

/// The answer to a [`VoteRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoteReply {
    /// The voter's vote afterwards.
    pub vote: Vote,
    /// Whether it was granted.
    pub granted: bool,
    /// The voter's last entry.
    pub last_log_id: Option<LogId>,
}

impl VoteReply {
    /// The payload of a control reply.
    pub fn to_payload(&self) -> Bytes {
        payload(|out| {
            put_vote(out, &self.vote);
            out.u8(u8::from(self.granted));
            put_option_log_id(out, self.last_log_id);
        })
    }

    /// Reads the payload of a control reply.
    pub fn from_payload(mut body: Bytes) -> Result<Self, DecodeError> {
        let vote = get_vote(&mut body)?;
        let granted = get_bool(&mut body, "granted")?;
        let last_log_id = get_option_log_id(&mut body)?;
        end(&body)?;
        Ok(Self { vote, granted, last_log_id })
    }
}

/// The leader hands its place to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferRequest {
    /// The leader's vote.
    pub from_leader: Vote,
    /// The node that is to lead.
    pub to: u64,
    /// What that node must have before it stands.
    pub last_log_id: Option<LogId>,
}

impl TransferRequest {
    /// The payload of a control request.
    pub fn to_payload(&self) -> Bytes {
        payload(|out| {
            put_vote(out, &self.from_leader);
            out.u64(self.to);
            put_option_log_id(out, self.last_log_id);
        })
    }

    /// Reads the payload of a control request.
    pub fn from_payload(mut body: Bytes) -> Result<Self, DecodeError> {
        let from_leader = get_vote(&mut body)?;
        let to = get_u64(&mut body, "transfer target")?;
        let last_log_id = get_option_log_id(&mut body)?;
        end(&body)?;
        Ok(Self { from_leader, to, last_log_id })
    }
}

/// The answer to a [`TransferRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferReply {
    /// The node will act on it.
    Accepted,
    /// The node has seen another vote.
    VoteChanged {
        /// The vote in the request.
        expected: Vote,
        /// The node's vote.
        actual: Vote,
    },
    /// The node has not got the leader's last entry.
    LogNotFlushed {
        /// The entry in the request.
        expected: Option<LogId>,
        /// The node's last entry.
        actual: Option<LogId>,
    },
}

impl TransferReply {
    /// The payload of a control reply.
    pub fn to_payload(&self) -> Bytes {
        payload(|out| match self {
            Self::Accepted => out.u8(0),
            Self::VoteChanged { expected, actual } => {
                out.u8(1);
                put_vote(out, expected);
                put_vote(out, actual);
            }
            Self::LogNotFlushed { expected, actual } => {
                out.u8(2);
                put_option_log_id(out, *expected);
                put_option_log_id(out, *actual);
            }
        })
    }

    /// Reads the payload of a control reply.
    pub fn from_payload(mut body: Bytes) -> Result<Self, DecodeError> {
        let reply = match get_u8(&mut body, "transfer reply")? {
            0 => Self::Accepted,
            1 => {
                let expected = get_vote(&mut body)?;
                Self::VoteChanged { expected, actual: get_vote(&mut body)? }
            }
            2 => {
                let expected = get_option_log_id(&mut body)?;
                Self::LogNotFlushed { expected, actual: get_option_log_id(&mut body)? }
            }
            tag => return Err(DecodeError::Tag { what: "transfer reply", tag }),
        };
        end(&body)?;
        Ok(reply)
    }
}
