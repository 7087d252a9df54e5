//! The dialling side of one connection: a queue, a task that writes, a task that reads.
//! Decides what was written, and when a silent peer is given up; what frames mean is its users'.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hapax_codec::peer::{DecodeError, Frame, Kind};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::frame::{ConnReader, ConnWriter};
use super::hello::Conn;
use super::{Config, MAX_WRITE_FRAMES, MAX_WRITE_LEN, SEND_QUEUE_LEN};

/// Why a connection ended.
#[derive(Debug, Error)]
pub enum Closed {
    /// The peer closed it.
    #[error("the peer closed the connection")]
    ByPeer,
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The peer sent something that is not the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] DecodeError),
    /// The peer answered nothing, not even a ping.
    #[error("the peer is silent")]
    Silent,
    /// This side dropped it.
    #[error("the connection was dropped")]
    Dropped,
}

const QUEUED: u8 = 0;
const WRITTEN: u8 = 1;
const ABANDONED: u8 = 2;

/// One request's place between its caller and the writer. It leaves `QUEUED` exactly once: to
/// `WRITTEN`, before the writer hands any of its bytes to the stream, or to `ABANDONED`, after
/// which the writer skips it. Whoever loses that race knows what the other one did.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: AtomicU8,
    written_at: OnceLock<Instant>,
}

impl Slot {
    fn leave_queue(&self, to: u8) -> bool {
        self.state.compare_exchange(QUEUED, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The writer takes the request; `false` if its caller has gone.
    fn claim(&self) -> bool {
        let claimed = self.leave_queue(WRITTEN);
        if claimed {
            self.written_at.get_or_init(Instant::now);
        }
        claimed
    }

    /// The caller gives up. `true`: no byte was and none will be written. `false`: some may be.
    pub(super) fn abandon(&self) -> bool {
        self.leave_queue(ABANDONED) || self.state.load(Ordering::Acquire) == ABANDONED
    }

    /// When the writer took the request.
    pub(super) fn written_at(&self) -> Option<Instant> {
        self.written_at.get().copied()
    }
}

struct Queued {
    frame: Frame,
    slot: Option<Arc<Slot>>,
}

/// What both tasks and all users of a connection share.
struct Life {
    token: CancellationToken,
    why: OnceLock<Closed>,
    signs: Mutex<Signs>,
}

/// When something was last heard and said.
struct Signs {
    heard: Instant,
    wrote: Instant,
    pinged: Option<Instant>,
}

impl Life {
    fn close(&self, why: Closed) {
        // The first reason is the cause; later ones are its consequences.
        let _ = self.why.set(why);
        self.token.cancel();
    }

    fn signs(&self) -> std::sync::MutexGuard<'_, Signs> {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the connection needs now, by the clock.
enum Due {
    Nothing,
    Ping,
    Death,
}

/// The sending end of a connection that this node dialled. Dropping it closes the connection.
pub(super) struct Pipe {
    queue: mpsc::Sender<Queued>,
    life: Arc<Life>,
    _close: DropGuard,
}

/// Why a frame was not queued. None of it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum QueueError {
    /// The queue is full.
    #[error("the send queue is full")]
    Full,
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
    /// The frame is longer than a peer accepts.
    #[error("the message is too long for a frame")]
    TooLong,
}

impl Pipe {
    /// Takes over a connection. `on_frame` sees every frame but pongs; an error closes the
    /// connection. `on_close` runs once, at the end, after the last `on_frame`.
    pub(super) fn new(
        conn: Conn,
        config: &Config,
        on_frame: impl FnMut(Kind, Bytes) -> Result<(), DecodeError> + Send + 'static,
        on_close: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (queue, queued) = mpsc::channel(SEND_QUEUE_LEN);
        let now = Instant::now();
        let life = Arc::new(Life {
            token: CancellationToken::new(),
            why: OnceLock::new(),
            signs: Mutex::new(Signs { heard: now, wrote: now, pinged: None }),
        });
        tokio::spawn(write_loop(conn.writer, queued, Arc::clone(&life)));
        let reading = Reading {
            reader: conn.reader,
            life: Arc::clone(&life),
            // Weak: only the pipe's users keep the writer's queue open.
            queue: queue.downgrade(),
            stall_timeout: config.stall_timeout,
            ping_interval: config.ping_interval,
        };
        tokio::spawn(async move {
            reading.run(on_frame).await;
            on_close();
        });
        let guard = life.token.clone().drop_guard();
        Self { queue, life, _close: guard }
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.life.token.is_cancelled()
    }

    /// Why the connection ended; [`Closed::Dropped`] while it has not.
    pub(super) fn why_closed(&self) -> String {
        self.life.why.get().unwrap_or(&Closed::Dropped).to_string()
    }

    /// Waits for the connection's end.
    pub(super) async fn closed(&self) {
        self.life.token.cancelled().await;
    }

    /// Ends the connection for what the peer said.
    pub(super) fn close(&self, why: DecodeError) {
        self.life.close(Closed::Protocol(why));
    }

    /// Queues a frame at once, or not at all.
    pub(super) fn try_send(&self, frame: Frame, slot: Option<Arc<Slot>>) -> Result<(), QueueError> {
        if frame.is_oversized() {
            return Err(QueueError::TooLong);
        }
        if self.is_closed() {
            return Err(QueueError::Ended);
        }
        self.queue.try_send(Queued { frame, slot }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => QueueError::Full,
            mpsc::error::TrySendError::Closed(_) => QueueError::Ended,
        })
    }
}

async fn write_loop(mut writer: ConnWriter, mut queued: mpsc::Receiver<Queued>, life: Arc<Life>) {
    let work = async {
        let mut batch = Vec::with_capacity(MAX_WRITE_FRAMES);
        while queued.recv_many(&mut batch, MAX_WRITE_FRAMES).await > 0 {
            life.signs().wrote = Instant::now();
            for Queued { frame, slot } in batch.drain(..) {
                if slot.is_none_or(|slot| slot.claim()) {
                    writer.push(frame);
                }
                if writer.pushed_len() >= MAX_WRITE_LEN {
                    writer.flush().await?;
                }
            }
            writer.flush().await?;
        }
        Ok::<_, io::Error>(())
    };
    let why = tokio::select! {
        () = life.token.cancelled() => Closed::Dropped,
        done = work => done.map_or_else(Closed::Io, |()| Closed::Dropped),
    };
    life.close(why);
}

struct Reading {
    reader: ConnReader,
    life: Arc<Life>,
    queue: mpsc::WeakSender<Queued>,
    stall_timeout: Duration,
    ping_interval: Duration,
}

impl Reading {
    async fn run(mut self, on_frame: impl FnMut(Kind, Bytes) -> Result<(), DecodeError>) {
        let life = Arc::clone(&self.life);
        let why = tokio::select! {
            () = life.token.cancelled() => Closed::Dropped,
            why = self.read(on_frame) => why,
        };
        life.close(why);
    }

    async fn read(&mut self, mut on_frame: impl FnMut(Kind, Bytes) -> Result<(), DecodeError>) -> Closed {
        let tick = self.stall_timeout / 4;
        loop {
            let body = match timeout(tick, self.reader.next()).await {
                Ok(Ok(Some(body))) => Some(body),
                Ok(Ok(None)) => return Closed::ByPeer,
                Ok(Err(error)) => return Closed::Io(error),
                Err(_) => None,
            };
            let Some(mut body) = body else {
                match self.due(Instant::now()) {
                    Due::Nothing => {}
                    Due::Ping => self.ping(),
                    Due::Death => return Closed::Silent,
                }
                continue;
            };
            self.life.signs().heard = Instant::now();
            let handled = match Kind::take(&mut body) {
                Ok(Kind::Pong) => Ok(()),
                Ok(kind) => on_frame(kind, body),
                Err(error) => Err(error),
            };
            if let Err(error) = handled {
                return Closed::Protocol(error);
            }
        }
    }

    /// Requests may be slow to answer; a ping is not. So an unanswered request brings a ping, and an
    /// unanswered ping the end.
    fn due(&self, now: Instant) -> Due {
        let signs = self.life.signs();
        if let Some(pinged) = signs.pinged
            && pinged > signs.heard
        {
            let waited = now.saturating_duration_since(pinged);
            return if waited >= self.stall_timeout * 3 / 4 { Due::Death } else { Due::Nothing };
        }
        let silence = now.saturating_duration_since(signs.heard);
        let unanswered = signs.wrote > signs.heard && silence >= self.stall_timeout / 4;
        if unanswered || silence >= self.ping_interval { Due::Ping } else { Due::Nothing }
    }

    fn ping(&self) {
        self.life.signs().pinged = Some(Instant::now());
        // A queue without room is itself waiting for the peer: the clock runs all the same.
        if let Some(queue) = self.queue.upgrade() {
            let _ = queue.try_send(Queued { frame: Frame::bare(Kind::Ping), slot: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_leaves_the_queue_once() {
        let slot = Slot::default();
        assert!(slot.claim());
        assert!(!slot.abandon(), "claimed: some bytes may be written");
        assert!(slot.written_at().is_some());

        let slot = Slot::default();
        assert!(slot.abandon());
        assert!(slot.abandon(), "asking again changes nothing");
        assert!(!slot.claim(), "the writer skips it");
        assert_eq!(slot.written_at(), None);
    }
}
