//! Calls: one request, one reply, many at once on a connection, each with its own deadline.
//! The error says whether the peer can have seen the request, which decides between 503 and 504.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hapax_codec::peer::call::{Reply, Request, Status};
use hapax_codec::peer::{DecodeError, Kind};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::hello::{Conn, ConnectError};
use super::link::Connection;
use super::pipe::{Pipe, QueueError, Slot};
use super::{Config, MAX_PENDING_CALLS};

/// Why a call has no answer.
#[derive(Debug, Error)]
pub enum CallError {
    /// No byte of the request was handed to the stream, and none will be: the peer has certainly not
    /// seen it and never will.
    #[error("not sent: {0}")]
    NotWritten(#[from] NotWritten),
    /// The peer may have seen the request, may have acted on it, or may still.
    #[error("sent, but not answered: {0}")]
    Ambiguous(Ambiguous),
}

/// Why a request was not written.
#[derive(Debug, Error)]
pub enum NotWritten {
    /// There was no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The request was not queued.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Too many calls wait for replies.
    #[error("too many calls under way")]
    TooManyCalls,
    /// The deadline passed while the request was queued; it was taken out of the queue.
    #[error("the deadline passed in the send queue")]
    Deadline,
    /// The connection ended while the request was queued.
    #[error("{0} while the request was queued")]
    Closed(String),
}

/// Why a written request has no answer.
#[derive(Debug, Error)]
pub enum Ambiguous {
    /// The deadline passed.
    #[error("the deadline passed")]
    Deadline,
    /// The connection ended.
    #[error("{0}")]
    Closed(String),
    /// The peer says that it did not look at the request, or that it cannot.
    #[error("the peer answered {0:?}")]
    Status(Status),
    /// The answer cannot be understood.
    #[error("the answer is malformed: {0}")]
    Malformed(#[from] DecodeError),
}

struct Waiter {
    reply: oneshot::Sender<Reply>,
    slot: Arc<Slot>,
}

/// Calls under way, by number; `None` once the connection has ended.
struct Pending(Mutex<Option<BTreeMap<u64, Waiter>>>);

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<u64, Waiter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, id: u64) -> Option<Waiter> {
        self.lock().as_mut().and_then(|calls| calls.remove(&id))
    }
}

/// A connection for calls.
pub struct CallConn {
    pipe: Pipe,
    pending: Arc<Pending>,
    next_id: AtomicU64,
}

impl Connection for CallConn {
    fn is_closed(&self) -> bool {
        self.pipe.is_closed()
    }
}

/// Takes the call out of the books when its future ends or is dropped.
struct Registered<'a> {
    conn: &'a CallConn,
    id: u64,
    slot: Arc<Slot>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.slot.abandon();
        self.conn.pending.remove(self.id);
    }
}

impl CallConn {
    /// Takes over a connection. `on_rtt` hears how long each reply took from its request's write on.
    pub fn new(conn: Conn, config: &Config, on_rtt: impl Fn(Duration) + Send + 'static) -> Self {
        let pending = Arc::new(Pending(Mutex::new(Some(BTreeMap::new()))));
        let calls = Arc::clone(&pending);
        let on_frame = move |kind, body| {
            if kind != Kind::Reply {
                return Err(DecodeError::Tag { what: "kind on a call channel", tag: kind as u8 });
            }
            let reply = Reply::decode(body)?;
            // A reply nobody waits for any more came after its deadline.
            if let Some(waiter) = calls.remove(reply.id) {
                if let Some(written_at) = waiter.slot.written_at() {
                    on_rtt(written_at.elapsed());
                }
                let _ = waiter.reply.send(reply);
            }
            Ok(())
        };
        let calls = Arc::clone(&pending);
        // Dropping the waiters wakes their callers; later calls find no books to be entered in.
        let on_close = move || drop(calls.lock().take());
        Self { pipe: Pipe::new(conn, config, on_frame, on_close), pending, next_id: AtomicU64::new(0) }
    }

    /// Asks and waits for the answer until the deadline. Dropping the future takes the request out
    /// of the queue if it is still there.
    pub async fn call(&self, op: u8, payload: Bytes, deadline: Instant) -> Result<Bytes, CallError> {
        let (reply, answer) = oneshot::channel();
        let registered = self.register(reply)?;
        let budget_ms = deadline.saturating_duration_since(Instant::now()).as_millis();
        let budget_ms = u32::try_from(budget_ms).unwrap_or(u32::MAX);
        let request = Request { id: registered.id, op, budget_ms, payload };
        let queued = self.pipe.try_send(request.encode(), Some(Arc::clone(&registered.slot)));
        queued.map_err(NotWritten::from)?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(Reply { status: Status::Ok, payload, .. })) => Ok(payload),
            Ok(Ok(reply)) => Err(CallError::Ambiguous(Ambiguous::Status(reply.status))),
            Ok(Err(_)) if registered.slot.abandon() => Err(NotWritten::Closed(self.pipe.why_closed()).into()),
            Ok(Err(_)) => Err(CallError::Ambiguous(Ambiguous::Closed(self.pipe.why_closed()))),
            Err(_) if registered.slot.abandon() => Err(NotWritten::Deadline.into()),
            Err(_) => Err(CallError::Ambiguous(Ambiguous::Deadline)),
        }
    }

    fn register(&self, reply: oneshot::Sender<Reply>) -> Result<Registered<'_>, CallError> {
        let slot = Arc::new(Slot::default());
        let mut books = self.pending.lock();
        let Some(calls) = books.as_mut() else {
            return Err(NotWritten::Closed(self.pipe.why_closed()).into());
        };
        if calls.len() >= MAX_PENDING_CALLS {
            return Err(NotWritten::TooManyCalls.into());
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        calls.insert(id, Waiter { reply, slot: Arc::clone(&slot) });
        Ok(Registered { conn: self, id, slot })
    }

    /// Calls that wait for their replies.
    pub fn pending_calls(&self) -> usize {
        self.pending.lock().as_ref().map_or(0, BTreeMap::len)
    }
}
