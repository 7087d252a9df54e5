//! Requests with one reply each, on the control and the app channel, matched by a number.
//! The payload's meaning depends on the operation; for app requests it is opaque here.

use bytes::Bytes;

use super::raft::{LogId, get_option_log_id, put_option_log_id};
use super::{DecodeError, Frame, FrameWriter, Kind, end, get_u8, get_u32, get_u64, payload};

/// Operations of the control channel; a request's `op` on the app channel is the application's.
pub mod op {
    /// [`super::super::raft::VoteRequest`] → [`super::super::raft::VoteReply`].
    pub const VOTE: u8 = 1;
    /// The same messages, asked hypothetically: nothing is granted or stored.
    pub const PRE_VOTE: u8 = 2;
    /// [`super::super::raft::AppendRequest`] → [`super::super::raft::AppendReply`].
    pub const HEARTBEAT: u8 = 3;
    /// [`super::super::raft::TransferRequest`] → [`super::super::raft::TransferReply`].
    pub const TRANSFER: u8 = 4;
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Number of the request on this connection.
    pub id: u64,
    /// What is asked.
    pub op: u8,
    /// How long the asker waits, in milliseconds; the handler is dropped afterwards.
    pub budget_ms: u32,
    /// The operation's message.
    pub payload: Bytes,
}

impl Request {
    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::new(Kind::Request);
        out.u64(self.id);
        out.u8(self.op);
        out.u32(self.budget_ms);
        out.shared(&self.payload);
        out.finish()
    }

    /// Reads what follows the kind.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let id = get_u64(&mut body, "request id")?;
        let op = get_u8(&mut body, "op")?;
        let budget_ms = get_u32(&mut body, "budget")?;
        Ok(Self { id, op, budget_ms, payload: body })
    }
}

/// How a request ended at the node that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The payload is the answer.
    Ok = 0,
    /// The request could not be understood.
    Malformed = 1,
    /// The node's consensus has stopped.
    Stopped = 2,
    /// Too many requests are being handled; this one was not looked at.
    Busy = 3,
}

/// One reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The request's number.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// The answer; empty unless the status is [`Status::Ok`].
    pub payload: Bytes,
}

impl Reply {
    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::new(Kind::Reply);
        out.u64(self.id);
        out.u8(self.status as u8);
        out.shared(&self.payload);
        out.finish()
    }

    /// Reads what follows the kind.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let id = get_u64(&mut body, "reply id")?;
        let status = match get_u8(&mut body, "status")? {
            0 => Status::Ok,
            1 => Status::Malformed,
            2 => Status::Stopped,
            3 => Status::Busy,
            tag => return Err(DecodeError::Tag { what: "status", tag }),
        };
        if status != Status::Ok {
            end(&body)?;
        }
        Ok(Self { id, status, payload: body })
    }
}

/// The leader's answer to a request for a read index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadIndex {
    /// A read is current once everything up to here is applied. The leader confirmed its
    /// leadership with a quorum after the request had arrived.
    At(Option<LogId>),
    /// The node that was asked does not lead; the leader that it knows, if any.
    NotLeader(Option<u64>),
    /// The leader could not confirm its leadership.
    NoQuorum,
}

impl ReadIndex {
    /// The payload of the reply.
    pub fn to_payload(&self) -> Bytes {
        payload(|out| match self {
            Self::At(id) => {
                out.u8(0);
                put_option_log_id(out, *id);
            }
            Self::NotLeader(None) => out.u8(1),
            Self::NotLeader(Some(leader)) => {
                out.u8(2);
                out.u64(*leader);
            }
            Self::NoQuorum => out.u8(3),
        })
    }

    /// Reads the payload of the reply.
    pub fn from_payload(mut body: Bytes) -> Result<Self, DecodeError> {
        let reply = match get_u8(&mut body, "read index")? {
            0 => Self::At(get_option_log_id(&mut body)?),
            1 => Self::NotLeader(None),
            2 => Self::NotLeader(Some(get_u64(&mut body, "leader")?)),
            3 => Self::NoQuorum,
            tag => return Err(DecodeError::Tag { what: "read index", tag }),
        };
        end(&body)?;
        Ok(reply)
    }
}
