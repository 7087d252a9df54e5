//! The first frame in each direction: who speaks, to whom, in which cluster, on which channel.
//! Nothing else is read from a connection whose hello was refused.

use bytes::Bytes;

use super::{DecodeError, Frame, FrameWriter, end, get_data, get_slice, get_u8, get_u16, get_u64};
use crate::membership::DataId;

/// The newest protocol version that this build speaks.
pub const VERSION: u16 = 1;
/// The oldest protocol version that this build accepts.
pub const MIN_VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"HAPAXPR\0";

/// Identifies one life of one cluster; nodes of different clusters never talk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterId(pub [u8; 16]);

impl std::fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Channel {
    /// Pipelined log entries.
    Append = 1,
    /// Votes, heartbeats, leader transfer: small and urgent.
    Control = 2,
    /// One snapshot transfer.
    Snapshot = 3,
    /// Requests between applications: forwarded commands, read index, status.
    App = 4,
}

/// The dialling side's hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Newest version that the dialler speaks.
    pub version: u16,
    /// The dialler's cluster.
    pub cluster: ClusterId,
    /// The dialler.
    pub from: u64,
    /// Whom the dialler means to reach: an address may have been given to another node.
    pub to: u64,
    /// What the connection is for.
    pub channel: Channel,
    /// The dialler's data directory.
    pub data: DataId,
}

impl Hello {
    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::headless();
        out.slice(MAGIC);
        out.u16(self.version);
        out.slice(&self.cluster.0);
        out.u64(self.from);
        out.u64(self.to);
        out.u8(self.channel as u8);
        out.slice(&self.data.0);
        out.finish()
    }

    /// Reads a frame's body. An unknown channel is a refusal that can be answered, hence `Err` of
    /// [`Refusal`]; anything that is not a hello at all is [`Refusal::NotHello`].
    pub fn decode(mut body: Bytes) -> Result<Self, Refusal> {
        let hello = Self::fields(&mut body).map_err(|_| Refusal::NotHello)?;
        let (version, cluster, from, to, channel, data) = hello;
        // A newer dialler may say more than this version understands.
        if version == VERSION && !body.is_empty() {
            return Err(Refusal::NotHello);
        }
        let channel = match channel {
            1 => Channel::Append,
            2 => Channel::Control,
            3 => Channel::Snapshot,
            4 => Channel::App,
            _ => return Err(Refusal::Channel),
        };
        Ok(Self { version, cluster, from, to, channel, data })
    }

    fn fields(body: &mut Bytes) -> Result<(u16, ClusterId, u64, u64, u8, DataId), DecodeError> {
        if get_slice(body, MAGIC.len(), "magic")?.as_ref() != MAGIC {
            return Err(DecodeError::Invalid("magic"));
        }
        let version = get_u16(body, "version")?;
        let cluster = get_cluster(body)?;
        let (from, to) = (get_u64(body, "from")?, get_u64(body, "to")?);
        Ok((version, cluster, from, to, get_u8(body, "channel")?, get_data(body)?))
    }
}

fn get_cluster(body: &mut Bytes) -> Result<ClusterId, DecodeError> {
    let mut id = [0; 16];
    id.copy_from_slice(&get_slice(body, 16, "cluster id")?);
    Ok(ClusterId(id))
}

/// Why a hello was refused. The codes are part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The first frame is not a hello.
    #[error("the first frame is not a hello")]
    NotHello,
    /// No common protocol version.
    #[error("no common protocol version")]
    Version,
    /// The two nodes belong to different clusters.
    #[error("the peer belongs to another cluster")]
    Cluster,
    /// The address belongs to another node than the one meant.
    #[error("the address belongs to another node")]
    Node,
    /// The channel is unknown.
    #[error("the channel is unknown")]
    Channel,
    /// The node that speaks is not the one that its certificate names.
    #[error("the node id is not the authenticated one")]
    Identity,
    /// The limit of connections is reached.
    #[error("too many connections")]
    Busy,
    /// The members know the node that speaks with another data directory.
    #[error(
        "this node was known with other data: if its data was lost, it must join again, empty, under a new node id"
    )]
    Data,
}

impl Refusal {
    fn code(self) -> u8 {
        match self {
            Self::NotHello => 1,
            Self::Version => 2,
            Self::Cluster => 3,
            Self::Node => 4,
            Self::Channel => 5,
            Self::Identity => 6,
            Self::Busy => 7,
            Self::Data => 8,
        }
    }

    fn from_code(tag: u8) -> Result<Self, DecodeError> {
        Ok(match tag {
            1 => Self::NotHello,
            2 => Self::Version,
            3 => Self::Cluster,
            4 => Self::Node,
            5 => Self::Channel,
            6 => Self::Identity,
            7 => Self::Busy,
            8 => Self::Data,
            _ => return Err(DecodeError::Tag { what: "refusal", tag }),
        })
    }
}

/// The accepting side's answer to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The version that the connection speaks from here on, or why there is no connection.
    pub verdict: Result<u16, Refusal>,
    /// The node that answers, so that a wrong address can be named in the log.
    pub node: u64,
    /// Its data directory.
    pub data: DataId,
}

impl Welcome {
    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::headless();
        out.slice(MAGIC);
        match self.verdict {
            Ok(version) => {
                out.u8(0);
                out.u16(version);
            }
            Err(refusal) => {
                out.u8(refusal.code());
                out.u16(0);
            }
        }
        out.u64(self.node);
        out.slice(&self.data.0);
        out.finish()
    }

    /// Reads a frame's body.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        if get_slice(&mut body, MAGIC.len(), "magic")?.as_ref() != MAGIC {
            return Err(DecodeError::Invalid("magic"));
        }
        let code = get_u8(&mut body, "verdict")?;
        let version = get_u16(&mut body, "version")?;
        let verdict = if code == 0 { Ok(version) } else { Err(Refusal::from_code(code)?) };
        let node = get_u64(&mut body, "node")?;
        let data = get_data(&mut body)?;
        end(&body)?;
        Ok(Self { verdict, node, data })
    }
}
