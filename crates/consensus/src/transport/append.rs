//! The append channel's dialling side: sessions of append requests, answered in order.
//! A session ends with the first refusal; what was still under way belongs to it and is ignored.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_codec::peer::raft::{AppendReply, AppendRequest};
use hapax_codec::peer::{DecodeError, Kind};
use tokio::sync::mpsc;

use super::hello::Conn;
use super::link::Connection;
use super::pipe::{Pipe, QueueError};
use super::{Config, MAX_APPEND_WINDOW};

/// The session that is open now, and where its replies go.
type Current = Arc<Mutex<Option<(u64, mpsc::Sender<AppendReply>)>>>;

fn lock(current: &Current) -> MutexGuard<'_, Option<(u64, mpsc::Sender<AppendReply>)>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection for append sessions, one at a time: a new one ends the former.
pub struct AppendConn {
    pipe: Pipe,
    current: Current,
    next_session: AtomicU64,
}

impl Connection for AppendConn {
    fn is_closed(&self) -> bool {
        self.pipe.is_closed()
    }
}

impl AppendConn {
    /// Takes over a connection.
    pub fn new(conn: Conn, config: &Config) -> Self {
        let current = Current::default();
        let routes = Arc::clone(&current);
        let on_frame = move |kind, body| {
            if kind != Kind::AppendReply {
                return Err(DecodeError::Tag { what: "kind on an append channel", tag: kind as u8 });
            }
            let (session, reply) = AppendReply::decode(body)?;
            let route = lock(&routes);
            match &*route {
                // There are no more replies than requests, and no more requests than the queue holds;
                // a session that was dropped a moment ago does not listen any more.
                Some((open, replies)) if *open == session => match replies.try_send(reply) {
                    Err(mpsc::error::TrySendError::Full(_)) => Err(DecodeError::Invalid("a reply too many")),
                    Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
                },
                _ => Ok(()),
            }
        };
        let routes = Arc::clone(&current);
        let on_close = move || drop(lock(&routes).take());
        Self { pipe: Pipe::new(conn, config, on_frame, on_close), current, next_session: AtomicU64::new(1) }
    }

    /// Opens a session.
    pub fn open(self: &Arc<Self>) -> Session {
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        let (sender, replies) = mpsc::channel(MAX_APPEND_WINDOW);
        *lock(&self.current) = Some((id, sender));
        Session { conn: Arc::clone(self), id, replies }
    }
}

/// One session. Dropping it ends it; the connection stays for the next.
pub struct Session {
    conn: Arc<AppendConn>,
    id: u64,
    replies: mpsc::Receiver<AppendReply>,
}

impl Session {
    /// Queues a request. No more than [`MAX_APPEND_WINDOW`] may be unanswered.
    pub fn send(&self, request: &AppendRequest) -> Result<(), QueueError> {
        self.conn.pipe.try_send(request.encode(self.id), None)
    }

    /// The next reply; `None` once the connection has ended or another session was opened on it.
    /// Nothing is lost when the future is dropped.
    pub async fn recv(&mut self) -> Option<AppendReply> {
        tokio::select! {
            biased;
            reply = self.replies.recv() => reply,
            () = self.conn.pipe.closed() => None,
        }
    }

    /// Why the connection ended.
    pub fn why_closed(&self) -> String {
        self.conn.pipe.why_closed()
    }

    /// Ends the connection: the peer's replies make no sense.
    pub fn reject(&self, why: DecodeError) {
        self.conn.pipe.close(why);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut current = lock(&self.conn.current);
        if current.as_ref().is_some_and(|(open, _)| *open == self.id) {
            *current = None;
        }
    }
}
