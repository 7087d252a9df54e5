//! The accepting side: takes connections, checks hellos, and serves each channel in its own task.
//! What requests mean is the [`Service`]'s; how many, how long and how large is decided here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use hapax_codec::peer::call::{Reply, Request, Status};
use hapax_codec::peer::hello::Channel;
use hapax_codec::peer::raft::{AppendReply, AppendRequest};
use hapax_codec::peer::{DecodeError, Frame, Kind};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::frame::{ConnReader, ConnWriter};
use super::hello::{Conn, Identity, WelcomeError, welcome};
use super::io::{Incoming, Listener};
use super::known::KnownData;
use super::{Config, MAX_APPEND_WINDOW, MAX_WRITE_FRAMES, MAX_WRITE_LEN, REPLY_QUEUE_LEN};
use crate::types::NodeId;

/// Pause after a failed accept, which otherwise fails again at once while descriptors are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What peers can ask of this node. Futures may be dropped at any point: at the end of the asker's
/// budget, with its connection, and when the server stops.
pub trait Service: Send + Sync + 'static {
    /// A request on the control channel; `op` is one of [`hapax_codec::peer::call::op`].
    fn control(&self, from: NodeId, op: u8, payload: Bytes) -> impl Future<Output = Result<Bytes, Status>> + Send;

    /// A request on the app channel.
    fn app(&self, from: NodeId, kind: u8, payload: Bytes) -> impl Future<Output = Bytes> + Send;

    /// A session of append requests. There is one reply per request, in order, up to the first that
    /// is not `Accepted`. The requests end when the session does.
    fn append(&self, from: NodeId, requests: BoxStream<'static, AppendRequest>) -> BoxStream<'static, AppendReply>;

    /// A snapshot transfer, to the end of the connection.
    fn snapshot(&self, from: NodeId, conn: Conn) -> impl Future<Output = ()> + Send;
}

/// Why an accepted connection ended.
#[derive(Debug, Error)]
enum Ended {
    #[error(transparent)]
    Welcome(#[from] WelcomeError),
    #[error("stream: {0}")]
    Io(#[from] io::Error),
    #[error("protocol: {0}")]
    Protocol(#[from] DecodeError),
    #[error("idle")]
    Idle,
    #[error("closed by the peer")]
    ByPeer,
    #[error("replies cannot be written")]
    Deaf,
}

/// Serves peers until it is stopped. Every connection and every request under way ends with it.
pub async fn serve<S: Service>(
    mut listener: impl Listener,
    me: Identity,
    members: KnownData,
    service: Arc<S>,
    config: Config,
    stop: CancellationToken,
) {
    let config = Arc::new(config);
    // Strangers, who have not introduced themselves, are counted apart: they cannot take a peer's place.
    let strangers = Arc::new(Semaphore::new(config.max_connections));
    let known = Arc::new(Semaphore::new(config.max_connections));
    let mut connections = JoinSet::new();
    loop {
        let incoming = tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = connections.join_next() => continue,
            incoming = listener.accept() => incoming,
        };
        let incoming = match incoming {
            Ok(incoming) => incoming,
            Err(error) => {
                tracing::warn!(%error, "peer connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Without a place even for a stranger the connection is closed unheard.
        let Ok(stranger) = Arc::clone(&strangers).try_acquire_owned() else { continue };
        let server =
            Server { me, members: members.clone(), service: Arc::clone(&service), config: Arc::clone(&config) };
        let known = Arc::clone(&known);
        connections.spawn(async move {
            if let Err(reason) = server.connection(incoming, stranger, known).await {
                tracing::debug!(%reason, "peer connection ended");
            }
        });
    }
}

struct Server<S> {
    me: Identity,
    members: KnownData,
    service: Arc<S>,
    config: Arc<Config>,
}

impl<S: Service> Server<S> {
    async fn connection(
        self,
        incoming: Incoming,
        stranger: OwnedSemaphorePermit,
        known: Arc<Semaphore>,
    ) -> Result<(), Ended> {
        let within = self.config.handshake_timeout;
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let accepted = timeout(within, incoming).await.map_err(late)??;
        let place = known.try_acquire_owned().ok();
        let (conn, from, channel) = welcome(accepted, self.me, &self.members, place.is_none(), within).await?;
        drop(stranger);
        tracing::debug!(from, ?channel, "peer connected");
        match channel {
            Channel::Control | Channel::App => self.calls(conn, from, channel).await,
            Channel::Append => self.appends(conn, from).await,
            Channel::Snapshot => {
                self.service.snapshot(from, conn).await;
                Ok(())
            }
        }
    }

    async fn next(&self, reader: &mut ConnReader) -> Result<(Kind, Bytes), Ended> {
        let body = timeout(self.config.idle_timeout, reader.next()).await.map_err(|_| Ended::Idle)??;
        let mut body = body.ok_or(Ended::ByPeer)?;
        Ok((Kind::take(&mut body)?, body))
    }

    async fn calls(&self, conn: Conn, from: NodeId, channel: Channel) -> Result<(), Ended> {
        let Conn { mut reader, writer } = conn;
        let (replies, _writing) = start_writer(writer, self.config.idle_timeout);
        let slots = Arc::new(Semaphore::new(self.config.max_calls));
        let mut calls = JoinSet::new();
        loop {
            let (kind, body) = tokio::select! {
                next = self.next(&mut reader) => next?,
                () = replies.closed() => return Err(Ended::Deaf),
            };
            while calls.try_join_next().is_some() {}
            match kind {
                Kind::Ping => reply(&replies, Frame::bare(Kind::Pong)).await?,
                Kind::Request => {
                    let request = Request::decode(body)?;
                    // A request without a slot is answered at once rather than kept waiting: the reader
                    // must go on, or pings would wait with it.
                    let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                        let busy = Reply { id: request.id, status: Status::Busy, payload: Bytes::new() };
                        reply(&replies, busy.encode()).await?;
                        continue;
                    };
                    let (service, replies) = (Arc::clone(&self.service), replies.clone());
                    calls.spawn(async move {
                        if let Some(reply) = handle(&*service, from, channel, request).await {
                            let _ = replies.send(reply.encode()).await;
                        }
                        drop(slot);
                    });
                }
                other => return Err(unexpected(other)),
            }
        }
    }

    async fn appends(&self, conn: Conn, from: NodeId) -> Result<(), Ended> {
        let Conn { mut reader, writer } = conn;
        let (replies, _writing) = start_writer(writer, self.config.idle_timeout);
        let mut current: Option<Session> = None;
        loop {
            let (kind, body) = tokio::select! {
                next = self.next(&mut reader) => next?,
                () = replies.closed() => return Err(Ended::Deaf),
            };
            match kind {
                Kind::Ping => reply(&replies, Frame::bare(Kind::Pong)).await?,
                Kind::Append => {
                    let (id, request) = AppendRequest::decode(body)?;
                    let session = match current.take() {
                        Some(session) if session.id >= id => session,
                        _ => Session::start(&*self.service, from, id, replies.clone()),
                    };
                    if session.id == id {
                        // Fails once the session has ended: the rest of it is ignored.
                        let _ = session.requests.send(request).await;
                    }
                    current = Some(session);
                }
                other => return Err(unexpected(other)),
            }
        }
    }
}

fn unexpected(kind: Kind) -> Ended {
    Ended::Protocol(DecodeError::Tag { what: "kind on this channel", tag: kind as u8 })
}

/// Runs a request within its asker's budget; `None` when nobody waits for the answer any more.
async fn handle<S: Service>(service: &S, from: NodeId, channel: Channel, request: Request) -> Option<Reply> {
    let Request { id, op, budget_ms, payload } = request;
    let answer = async {
        if channel == Channel::App {
            Ok(service.app(from, op, payload).await)
        } else {
            service.control(from, op, payload).await
        }
    };
    let answer = timeout(Duration::from_millis(budget_ms.into()), answer).await.ok()?;
    Some(match answer {
        Ok(payload) => Reply { id, status: Status::Ok, payload },
        Err(status) => Reply { id, status, payload: Bytes::new() },
    })
}

/// An append session on this side: its requests go in here, its replies go straight to the writer.
struct Session {
    id: u64,
    requests: mpsc::Sender<AppendRequest>,
    _pump: AbortOnDropHandle<()>,
}

impl Session {
    fn start<S: Service>(service: &S, from: NodeId, id: u64, replies: mpsc::Sender<Frame>) -> Self {
        let (requests, mut queued) = mpsc::channel(MAX_APPEND_WINDOW);
        let requested = futures::stream::poll_fn(move |cx| queued.poll_recv(cx)).boxed();
        let mut answers = service.append(from, requested);
        let pump = tokio::spawn(async move {
            while let Some(answer) = answers.next().await {
                if replies.send(answer.encode(id)).await.is_err() {
                    return;
                }
            }
        });
        Self { id, requests, _pump: AbortOnDropHandle::new(pump) }
    }
}

async fn reply(replies: &mpsc::Sender<Frame>, frame: Frame) -> Result<(), Ended> {
    replies.send(frame).await.map_err(|_| Ended::Deaf)
}

/// A task that writes replies, as many as there are in one write. It ends with its handle, or when
/// the peer takes nothing for `patience`.
fn start_writer(mut writer: ConnWriter, patience: Duration) -> (mpsc::Sender<Frame>, AbortOnDropHandle<()>) {
    let (sender, mut queued) = mpsc::channel::<Frame>(REPLY_QUEUE_LEN);
    let writing = tokio::spawn(async move {
        let mut batch = Vec::with_capacity(MAX_WRITE_FRAMES);
        while queued.recv_many(&mut batch, MAX_WRITE_FRAMES).await > 0 {
            for frame in batch.drain(..) {
                if frame.is_oversized() {
                    // The asker would close the connection over it; so it gets no answer instead.
                    tracing::error!(len = frame.wire_len(), "reply too long for a frame");
                    continue;
                }
                writer.push(frame);
                if writer.pushed_len() >= MAX_WRITE_LEN && !flush(&mut writer, patience).await {
                    return;
                }
            }
            if !flush(&mut writer, patience).await {
                return;
            }
        }
    });
    (sender, AbortOnDropHandle::new(writing))
}

async fn flush(writer: &mut ConnWriter, patience: Duration) -> bool {
    matches!(timeout(patience, writer.flush()).await, Ok(Ok(())))
}
