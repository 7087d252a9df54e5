//! openraft's network on the peer transport: what it sends, and what it is asked by its peers.
//! Appends are pipelined on a channel of their own, everything urgent goes by the control channel.
//!
//! openraft makes three clients per peer. The replication client streams on the append channel; the
//! heartbeat client asks on the control channel, so that no heartbeat stands behind entries; the
//! snapshot client dials a connection per transfer. All of them share [`Peers`]'s connections.
//!
//! - **Pre-vote is asked for real.** openraft's default grants always, which makes it void.
//! - **A dead peer is `Unreachable`**, so that openraft backs off; a late one is a `Timeout`.

mod append;
mod convert;
mod receive;
mod send;
mod serve;

#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{Stream, StreamExt, once, unfold};
use hapax_codec::peer::DecodeError;
use hapax_codec::peer::call::{Status, op};
use hapax_codec::peer::raft as wire;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RPCTypes, RaftNetworkFactory};
use tokio::time::Instant;

pub use self::receive::Receiver;
pub use self::serve::{AppHandler, Handler, RaftService};
use crate::tail::Tail;
use crate::transport::call::{Ambiguous, NotWritten};
use crate::transport::{CallError, ConnectError, Peers};
use crate::types::{NodeId, PeerNode, Snapshot, SnapshotFiles, TypeConfig, Vote};

/// An append session without any answer for this many stall timeouts ends, even though the peer
/// answers pings: its consensus hangs.
const SESSION_PATIENCE: u32 = 10;

/// Makes openraft's clients.
#[derive(Clone)]
pub struct Network {
    peers: Peers,
    tail: Tail,
}

impl Network {
    /// Clients on these peers, which become known by their membership, for a log that ends there.
    pub fn new(peers: Peers, tail: Tail) -> Self {
        Self { peers, tail }
    }

    fn client(&self, target: NodeId, node: &PeerNode, appends: Appends) -> PeerClient {
        self.peers.set(target, &node.addr);
        self.peers.expect(target, node.data);
        PeerClient { peers: self.peers.clone(), tail: self.tail.clone(), target, appends }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = PeerClient;

    async fn new_client(&mut self, target: NodeId, node: &PeerNode) -> PeerClient {
        self.client(target, node, Appends::Pipelined)
    }

    async fn new_heartbeat_client(&mut self, target: NodeId, node: &PeerNode) -> PeerClient {
        self.client(target, node, Appends::Urgent)
    }
}

/// How a client sends appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Appends {
    /// Many under way, on the append channel.
    Pipelined,
    /// One at a time, on the control channel.
    Urgent,
}

/// openraft's client of one peer.
pub struct PeerClient {
    peers: Peers,
    tail: Tail,
    target: NodeId,
    appends: Appends,
}

type RpcError = RPCError<TypeConfig>;
type AppendItem = Result<StreamAppendResult<TypeConfig>, RpcError>;

impl PeerClient {
    fn timeout(&self, action: RPCTypes, timeout: Duration) -> RpcError {
        Timeout { action, id: self.peers.identity().node, target: self.target, timeout }.into()
    }

    fn connect_error(&self, error: ConnectError, action: RPCTypes, waited: Duration) -> RpcError {
        match error {
            ConnectError::Connecting => self.timeout(action, waited),
            error => Unreachable::new(&error).into(),
        }
    }

    fn call_error(&self, error: CallError, action: RPCTypes, waited: Duration) -> RpcError {
        match error {
            CallError::NotWritten(NotWritten::Connect(error)) => self.connect_error(error, action, waited),
            CallError::NotWritten(NotWritten::Deadline) | CallError::Ambiguous(Ambiguous::Deadline) => {
                self.timeout(action, waited)
            }
            CallError::Ambiguous(Ambiguous::Status(Status::Stopped)) | CallError::NotWritten(_) => {
                Unreachable::new(&error).into()
            }
            CallError::Ambiguous(_) => NetworkError::new(&error).into(),
        }
    }

    /// Asks the peer's consensus; `decode` reads the answer.
    async fn ask<T>(
        &self,
        op: u8,
        payload: Bytes,
        option: &RPCOption,
        decode: impl FnOnce(Bytes) -> Result<T, DecodeError>,
    ) -> Result<T, RpcError> {
        let action = match op {
            op::HEARTBEAT => RPCTypes::AppendEntries,
            op::TRANSFER => RPCTypes::TransferLeader,
            _ => RPCTypes::Vote,
        };
        let within = option.soft_ttl();
        let answer = self.peers.control(self.target, op, payload, Instant::now() + within).await;
        let answer = answer.map_err(|error| self.call_error(error, action, within))?;
        decode(answer).map_err(|error| NetworkError::new(&error).into())
    }

    async fn pipelined<'s, S>(&'s self, input: S, option: RPCOption) -> BoxStream<'s, AppendItem>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let within = option.soft_ttl();
        let connected = match self.peers.get(self.target) {
            Ok(peer) => peer.append.get(Instant::now() + within).await,
            Err(error) => Err(error),
        };
        let conn = match connected {
            Ok(conn) => conn,
            Err(error) => return failing(input, self.connect_error(error, RPCTypes::AppendEntries, within)),
        };
        let config = self.peers.config();
        let limits = append::Limits {
            window: config.append_window,
            frame_len: config.append_frame_len,
            patience: config.stall_timeout * SESSION_PATIENCE,
            from: self.peers.identity().node,
            to: self.target,
        };
        append::pipeline(&conn, input, self.tail.listen(), limits)
    }

    fn urgent<'s, S>(&'s self, input: S, option: RPCOption) -> BoxStream<'s, AppendItem>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(unfold(Some((input, option)), move |state| async move {
            let (mut input, option) = state?;
            let request = convert::append_out(input.next().await?);
            let item = self.urgent_append(&request, &option).await;
            let goes_on = matches!(item, Ok(Ok(_)));
            Some((item, goes_on.then_some((input, option))))
        }))
    }

    async fn urgent_append(&self, request: &wire::AppendRequest, option: &RPCOption) -> AppendItem {
        let reply = self.ask(op::HEARTBEAT, request.to_payload(), option, wire::AppendReply::from_payload);
        let stopped = || Unreachable::from_string("the follower's consensus has stopped").into();
        convert::append_reply_in(reply.await?).ok_or_else(stopped)
    }
}

/// A session that fails, after it has taken one request.
///
/// openraft waits out the pauses between failures where the next request is taken, and nowhere else: a session that
/// failed without taking one would be followed by the next at once, and a leader would spend a core on every peer that
/// is down.
fn failing<'s, S>(mut input: S, error: RpcError) -> BoxStream<'s, AppendItem>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
{
    Box::pin(once(async move {
        input.next().await;
        Err(error)
    }))
}

impl NetStreamAppend<TypeConfig> for PeerClient {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, AppendItem>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let this = &*self;
        Box::pin(async move {
            match this.appends {
                Appends::Pipelined => Ok(this.pipelined(input, option).await),
                Appends::Urgent => Ok(this.urgent(input, option)),
            }
        })
    }
}

impl NetVote<TypeConfig> for PeerClient {
    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let payload = convert::vote_request_out(&request).to_payload();
        let reply = self.ask(op::VOTE, payload, &option, wire::VoteReply::from_payload).await?;
        Ok(convert::vote_reply_in(reply))
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let payload = convert::vote_request_out(&request).to_payload();
        let reply = self.ask(op::PRE_VOTE, payload, &option, wire::VoteReply::from_payload).await?;
        Ok(convert::vote_reply_in(reply))
    }
}

impl NetTransferLeader<TypeConfig> for PeerClient {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let payload = convert::transfer_out(&request).to_payload();
        let reply = self.ask(op::TRANSFER, payload, &option, wire::TransferReply::from_payload).await?;
        Ok(convert::transfer_reply_in(reply))
    }
}

impl NetSnapshot<TypeConfig> for PeerClient {
    type SnapshotData = SnapshotFiles;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = send::snapshot(&self.peers, self.target, vote, &snapshot) => sent,
        }
    }
}

impl NetBackoff<TypeConfig> for PeerClient {
    /// As the links reconnect: an attempt between two of theirs would fail without a packet.
    fn backoff(&self) -> Option<Backoff> {
        let config = self.peers.config();
        let (first, longest) = (config.reconnect_pause, config.reconnect_pause_max);
        let pauses = std::iter::successors(Some(first), move |pause| Some((*pause * 2).min(longest)));
        Some(Backoff::new(pauses))
    }
}
