//! What peers ask of this node: consensus messages go to openraft, the rest to the application.
//! Seams on both sides, so that the transport is tested without either.

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt, once};
use hapax_codec::peer::call::{Status, op};
use hapax_codec::peer::raft as wire;
use openraft::Raft;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::RaftStateMachine;

use super::convert;
use super::receive::Receiver;
use crate::transport::Service;
use crate::transport::hello::Conn;
use crate::types::{NodeId, Snapshot, SnapshotFiles, TypeConfig, Vote};

/// The consensus that peers talk to. `None` everywhere: it has stopped.
pub trait RaftService: Send + Sync + 'static {
    /// A candidate asks for a vote.
    fn vote(&self, request: VoteRequest<TypeConfig>)
    -> impl Future<Output = Option<VoteResponse<TypeConfig>>> + Send;

    /// A node asks whether it would get a vote.
    fn pre_vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> impl Future<Output = Option<VoteResponse<TypeConfig>>> + Send;

    /// One append request by itself: a heartbeat.
    fn append(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> impl Future<Output = Option<AppendEntriesResponse<TypeConfig>>> + Send;

    /// A session of append requests, with one result per request, in order, up to a refusal.
    fn stream_append(
        &self,
        requests: BoxStream<'static, AppendEntriesRequest<TypeConfig>>,
    ) -> BoxStream<'static, Option<StreamAppendResult<TypeConfig>>>;

    /// The leader hands over.
    fn transfer_leader(
        &self,
        request: TransferLeaderRequest<TypeConfig>,
    ) -> impl Future<Output = Option<TransferLeaderResponse<TypeConfig>>> + Send;

    /// A snapshot that was received completely.
    fn install_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> impl Future<Output = Option<SnapshotResponse<TypeConfig>>> + Send;
}

impl<SM> RaftService for Raft<TypeConfig, SM>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = SnapshotFiles>,
{
    async fn vote(&self, request: VoteRequest<TypeConfig>) -> Option<VoteResponse<TypeConfig>> {
        Raft::vote(self, request).await.ok()
    }

    async fn pre_vote(&self, request: VoteRequest<TypeConfig>) -> Option<VoteResponse<TypeConfig>> {
        Raft::pre_vote(self, request).await.ok()
    }

    async fn append(&self, request: AppendEntriesRequest<TypeConfig>) -> Option<AppendEntriesResponse<TypeConfig>> {
        Raft::append_entries(self, request).await.ok()
    }

    fn stream_append(
        &self,
        requests: BoxStream<'static, AppendEntriesRequest<TypeConfig>>,
    ) -> BoxStream<'static, Option<StreamAppendResult<TypeConfig>>> {
        Raft::stream_append(self, requests).map(Result::ok).boxed()
    }

    async fn transfer_leader(
        &self,
        request: TransferLeaderRequest<TypeConfig>,
    ) -> Option<TransferLeaderResponse<TypeConfig>> {
        Raft::handle_transfer_leader(self, request).await.ok()
    }

    async fn install_snapshot(&self, vote: Vote, snapshot: Snapshot) -> Option<SnapshotResponse<TypeConfig>> {
        Raft::install_full_snapshot(self, vote, snapshot).await.ok()
    }
}

/// The application's side of requests between nodes.
pub trait AppHandler: Send + Sync + 'static {
    /// Answers a request; `kind` is one of [`crate::transport::peers::kind`]. The future may be
    /// dropped at any point: at the end of the asker's budget, or with its connection.
    fn handle(&self, from: NodeId, kind: u8, payload: Bytes) -> impl Future<Output = Bytes> + Send;
}

/// Joins the two for the transport's server.
pub struct Handler<R, A> {
    raft: R,
    app: A,
    receiver: Receiver,
}

impl<R: RaftService, A: AppHandler> Handler<R, A> {
    /// Serves this consensus and this application, and receives snapshots with `receiver`.
    pub fn new(raft: R, app: A, receiver: Receiver) -> Self {
        Self { raft, app, receiver }
    }

    async fn heartbeat(&self, payload: Bytes) -> Result<Bytes, Status> {
        let request = wire::AppendRequest::from_payload(payload).map_err(|_| Status::Malformed)?;
        let (prev, last) = (request.prev_log_id, request.last_log_id());
        let request = convert::append_in(request).map_err(|_| Status::Malformed)?;
        let response = self.raft.append(request).await.ok_or(Status::Stopped)?;
        Ok(convert::heartbeat_reply_out(response, prev, last).to_payload())
    }
}

impl<R: RaftService, A: AppHandler> Service for Handler<R, A> {
    async fn control(&self, _from: NodeId, op: u8, payload: Bytes) -> Result<Bytes, Status> {
        match op {
            op::VOTE | op::PRE_VOTE => {
                let request = wire::VoteRequest::from_payload(payload).map_err(|_| Status::Malformed)?;
                let request = convert::vote_request_in(request);
                let hypothetical = op == op::PRE_VOTE;
                let reply =
                    if hypothetical { self.raft.pre_vote(request).await } else { self.raft.vote(request).await };
                Ok(convert::vote_reply_out(&reply.ok_or(Status::Stopped)?).to_payload())
            }
            op::HEARTBEAT => self.heartbeat(payload).await,
            op::TRANSFER => {
                let request = wire::TransferRequest::from_payload(payload).map_err(|_| Status::Malformed)?;
                let reply = self.raft.transfer_leader(convert::transfer_in(request)).await;
                Ok(convert::transfer_reply_out(&reply.ok_or(Status::Stopped)?).to_payload())
            }
            _ => Err(Status::Malformed),
        }
    }

    async fn app(&self, from: NodeId, kind: u8, payload: Bytes) -> Bytes {
        self.app.handle(from, kind, payload).await
    }

    fn append(
        &self,
        from: NodeId,
        requests: BoxStream<'static, wire::AppendRequest>,
    ) -> BoxStream<'static, wire::AppendReply> {
        // The first request that is none ends the session.
        let requests = requests.map(convert::append_in).scan((), move |(), request| {
            let request = request.inspect_err(|error| tracing::warn!(from, %error, "append request refused"));
            std::future::ready(request.ok())
        });
        let replies = self.raft.stream_append(requests.boxed());
        let replies = replies.map(|result| result.map_or(wire::AppendReply::Stopped, convert::append_reply_out));
        // However the session ends, its leader is told. After a refusal it does not listen any more.
        replies.chain(once(std::future::ready(wire::AppendReply::Stopped))).boxed()
    }

    fn snapshot(&self, from: NodeId, conn: Conn) -> impl Future<Output = ()> + Send {
        self.receiver.run(from, conn, &self.raft).boxed()
    }
}
