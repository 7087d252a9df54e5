//! The handshake on a fresh byte stream: each side learns that it talks to whom it means.
//! After it both sides speak one protocol version on one channel, or the stream is closed.

use std::io;
use std::time::Duration;

use hapax_codec::membership::DataId;
use hapax_codec::peer::hello::{Channel, ClusterId, Hello, MIN_VERSION, Refusal, VERSION, Welcome};
use hapax_codec::peer::{DecodeError, MAX_HELLO_LEN};
use thiserror::Error;
use tokio::time::timeout;

use super::frame::{ConnReader, ConnWriter, split};
use super::io::{Accepted, BoxIo};
use super::known::KnownData;
use crate::types::NodeId;

/// Who this node is to its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster that the node belongs to.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Its data directory.
    pub data: DataId,
}

/// Why there is no connection to a peer. Nothing of any request was written.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The peer could not be dialled.
    #[error("dialling failed: {0}")]
    Dial(io::Error),
    /// Dialling and handshake took too long.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The peer refused the hello.
    #[error("refused by node {node}: {refusal}")]
    Refused {
        /// Why.
        refusal: Refusal,
        /// The node that answered at the address.
        node: NodeId,
    },
    /// The node at the address is another one than the member that it was, though it has its id.
    #[error(
        "node {0} was known with other data: if its data was lost, it must join again, empty, under a new node id"
    )]
    OtherData(NodeId),
    /// The stream broke during the handshake.
    #[error("handshake failed: {0}")]
    Handshake(io::Error),
    /// The peer's answer is no answer to a hello.
    #[error("handshake failed: {0}")]
    Malformed(#[from] DecodeError),
    /// Another attempt failed a moment ago and the next one is not due yet.
    #[error("waiting to reconnect: {0}")]
    Backoff(String),
    /// Connecting had not finished at the caller's deadline.
    #[error("still connecting at the deadline")]
    Connecting,
    /// No address is known for the node.
    #[error("node {0} is not known")]
    UnknownNode(NodeId),
}

/// A connection whose two sides know each other.
pub struct Conn {
    /// Frames from the peer.
    pub reader: ConnReader,
    /// Frames to the peer.
    pub writer: ConnWriter,
}

/// Introduces this node on a stream that it dialled.
pub async fn introduce(
    io: BoxIo,
    me: Identity,
    to: NodeId,
    channel: Channel,
    known: &KnownData,
) -> Result<Conn, ConnectError> {
    let (mut reader, mut writer) = split(io, MAX_HELLO_LEN);
    let hello = Hello { version: VERSION, cluster: me.cluster, from: me.node, to, channel, data: me.data };
    writer.send(hello.encode()).await.map_err(ConnectError::Handshake)?;
    let body = reader.next().await.map_err(ConnectError::Handshake)?;
    let body = body.ok_or_else(|| ConnectError::Handshake(io::ErrorKind::UnexpectedEof.into()))?;
    let welcome = Welcome::decode(body)?;
    if welcome.node == to {
        known.note(to, welcome.verdict == Err(Refusal::Data));
    }
    match welcome.verdict {
        Err(refusal) => Err(ConnectError::Refused { refusal, node: welcome.node }),
        Ok(version) if !(MIN_VERSION..=VERSION).contains(&version) => {
            Err(ConnectError::Refused { refusal: Refusal::Version, node: welcome.node })
        }
        Ok(_) if welcome.node != to => Err(ConnectError::Refused { refusal: Refusal::Node, node: welcome.node }),
        Ok(_) if !known.admits(to, welcome.data) => Err(ConnectError::OtherData(to)),
        Ok(_) => {
            reader.raise_limit();
            Ok(Conn { reader, writer })
        }
    }
}

/// Why a stream that a peer opened was closed again.
#[derive(Debug, Error)]
pub enum WelcomeError {
    /// The peer was told why.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// The stream broke, or said nothing in time.
    #[error("handshake failed: {0}")]
    Io(#[from] io::Error),
}

/// Answers the hello on a stream that a peer opened. `full` refuses it whoever it is.
pub async fn welcome(
    accepted: Accepted,
    me: Identity,
    known: &KnownData,
    full: bool,
    within: Duration,
) -> Result<(Conn, NodeId, Channel), WelcomeError> {
    let (mut reader, mut writer) = split(accepted.io, MAX_HELLO_LEN);
    let exchange = async {
        let body = reader.next().await?;
        let body = body.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let verdict = judge(Hello::decode(body), me, accepted.identity, known, full);
        let version = verdict.map(|hello| hello.version.min(VERSION));
        let welcome = Welcome { verdict: version, node: me.node, data: me.data };
        writer.send(welcome.encode()).await?;
        verdict.map_err(WelcomeError::Refused)
    };
    let late = || WelcomeError::Io(io::ErrorKind::TimedOut.into());
    let hello = timeout(within, exchange).await.map_err(|_| late())??;
    reader.raise_limit();
    Ok((Conn { reader, writer }, hello.from, hello.channel))
}

/// The first reason to refuse wins, from the outermost to the innermost.
fn judge(
    hello: Result<Hello, Refusal>,
    me: Identity,
    identity: Option<NodeId>,
    known: &KnownData,
    full: bool,
) -> Result<Hello, Refusal> {
    let hello = hello?;
    if hello.version < MIN_VERSION {
        return Err(Refusal::Version);
    }
    if hello.cluster != me.cluster {
        return Err(Refusal::Cluster);
    }
    if hello.to != me.node || hello.from == me.node {
        return Err(Refusal::Node);
    }
    if identity.is_some_and(|proven| proven != hello.from) {
        return Err(Refusal::Identity);
    }
    if !known.admits(hello.from, hello.data) {
        return Err(Refusal::Data);
    }
    if full {
        return Err(Refusal::Busy);
    }
    Ok(hello)
}
