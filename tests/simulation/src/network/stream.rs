//! One direction of a stream, and the two of them as a node sees them.
//! Owns the bytes that are under way; when they arrive is drawn as they are written.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use hapax_consensus::types::NodeId;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{IN_FLIGHT_MAX, Weather, lock};
use crate::time::now_ms;

/// One direction of a stream.
pub(super) struct Pipe {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// Its ends go without a word.
    pub(super) silent: bool,
    rng: StdRng,
    weather: Arc<Mutex<Weather>>,
    in_flight: VecDeque<(u64, Bytes)>,
    arrived: VecDeque<Bytes>,
    held: usize,
    /// The writer is gone, and its end travels behind its bytes until then.
    ends_ms: Option<u64>,
    ended: bool,
    broken: bool,
    unread: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    pub(super) fn new(from: NodeId, to: NodeId, seed: u64, weather: Arc<Mutex<Weather>>) -> Self {
        Self {
            from,
            to,
            silent: false,
            rng: StdRng::seed_from_u64(seed),
            weather,
            in_flight: VecDeque::new(),
            arrived: VecDeque::new(),
            held: 0,
            ends_ms: None,
            ended: false,
            broken: false,
            unread: false,
            reader: None,
            writer: None,
        }
    }

    /// When something that is sent now arrives: never before what was sent earlier.
    fn due(&mut self) -> u64 {
        let delay = lock(&self.weather).delay(&mut self.rng);
        (now_ms() + delay).max(self.in_flight.back().map_or(0, |(due, _)| *due))
    }

    /// Both sides find it broken.
    pub(super) fn reset(&mut self) {
        self.broken = true;
        self.in_flight.clear();
        self.arrived.clear();
        self.wake();
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    /// Hands over what has arrived.
    pub(super) fn deliver(&mut self, now: u64, seen: &mut dyn FnMut(&[u8])) {
        while let Some((_, bytes)) = self.in_flight.pop_front_if(|(due, _)| *due <= now) {
            seen(&bytes);
            self.arrived.push_back(bytes);
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
        if self.in_flight.is_empty() && self.ends_ms.is_some_and(|due| due <= now) {
            self.ended = true;
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
    }

    /// Nothing more is to be delivered.
    pub(super) fn is_over(&self) -> bool {
        self.unread || self.broken || self.ended || self.silent && self.in_flight.is_empty()
    }
}

/// A stream as one of its ends sees it.
pub(super) struct Stream {
    pub(super) reads: Arc<Mutex<Pipe>>,
    pub(super) writes: Arc<Mutex<Pipe>>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What still comes is thrown away; the other side learns of it from the end of what it reads, which travels as bytes do.
        lock(&self.reads).unread = true;
        let mut writes = lock(&self.writes);
        if !writes.silent && writes.ends_ms.is_none() {
            writes.ends_ms = Some(writes.due());
        }
    }
}

fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.reads);
        if pipe.broken {
            return Poll::Ready(Err(broken()));
        }
        let Some(bytes) = pipe.arrived.front_mut() else {
            if pipe.ended {
                return Poll::Ready(Ok(()));
            }
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        let taken = bytes.len().min(out.remaining());
        out.put_slice(&bytes[..taken]);
        bytes.advance(taken);
        if bytes.is_empty() {
            pipe.arrived.pop_front();
        }
        pipe.held -= taken;
        if let Some(writer) = pipe.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.writes);
        if pipe.broken || pipe.ends_ms.is_some() {
            return Poll::Ready(Err(broken()));
        }
        let taken = bytes.len().min(IN_FLIGHT_MAX.saturating_sub(pipe.held));
        if taken == 0 && !bytes.is_empty() {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let due = pipe.due();
        pipe.in_flight.push_back((due, Bytes::copy_from_slice(&bytes[..taken])));
        pipe.held += taken;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.writes);
        if pipe.ends_ms.is_none() {
            pipe.ends_ms = Some(pipe.due());
        }
        Poll::Ready(Ok(()))
    }
}
