//! The network between the nodes: byte streams with delay, loss that costs time, resets, and links that are cut one way or both.
//! Owns everything that is under way. Within a stream bytes keep their order, as TCP does; between streams they do not.
//!
//! - **What is under way when a link is cut waits**, and arrives after the link has healed: nothing crosses a cut.
//! - **Who dies with a word is noticed at once, who loses power is not**: then nobody tells the other side of its streams.

mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_consensus::transport::{Accepted, BoxIo, Dialer, Incoming, Listener};
use hapax_consensus::types::NodeId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{mpsc, oneshot};

use self::stream::{Pipe, Stream};
use crate::time::now_ms;
use crate::trace::Trace;

/// What a lost packet costs: TCP's shortest retransmission timeout.
const RETRANSMISSION_MS: u64 = 200;
/// Bytes that one direction of a stream takes before its reader has read them.
const IN_FLIGHT_MAX: usize = 256 << 10;

/// How fast and how well packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weather {
    /// Bounds of the time that a packet takes.
    pub delay_ms: (u64, u64),
    /// Of a thousand packets so many are lost, and sent again.
    pub lost_per_mille: u32,
}

impl Weather {
    /// A local network on a good day.
    pub const FAIR: Self = Self { delay_ms: (1, 3), lost_per_mille: 1 };

    /// The time that one packet takes.
    fn delay(&self, rng: &mut StdRng) -> u64 {
        let (least, most) = self.delay_ms;
        let lost = rng.random_range(0..1_000) < self.lost_per_mille;
        rng.random_range(least..=most) + if lost { RETRANSMISSION_MS } else { 0 }
    }
}

struct Dialled {
    from: NodeId,
    to: NodeId,
    addr: String,
    due_ms: u64,
    answer: oneshot::Sender<io::Result<BoxIo>>,
}

struct Net {
    rng: StdRng,
    trace: Trace,
    /// Shared with every stream: it changes for those that are open, too.
    weather: Arc<Mutex<Weather>>,
    /// Cut links, and by how many faults: each heals its own.
    cut: BTreeMap<(NodeId, NodeId), u32>,
    pipes: BTreeMap<u64, Arc<Mutex<Pipe>>>,
    next_pipe: u64,
    dialled: Vec<Dialled>,
    listeners: BTreeMap<String, mpsc::UnboundedSender<Stream>>,
    /// Nodes without power: nobody answers for them, not even to refuse.
    dark: BTreeSet<NodeId>,
}

/// The network. Clones are the same network.
#[derive(Clone)]
pub struct Network(Arc<Mutex<Net>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    /// A network in fair weather.
    pub fn new(seed: u64, trace: Trace) -> Self {
        Self(Arc::new(Mutex::new(Net {
            rng: StdRng::seed_from_u64(seed),
            trace,
            weather: Arc::new(Mutex::new(Weather::FAIR)),
            cut: BTreeMap::new(),
            pipes: BTreeMap::new(),
            next_pipe: 0,
            dialled: Vec::new(),
            listeners: BTreeMap::new(),
            dark: BTreeSet::new(),
        })))
    }

    /// Takes an address for a node, which has power from now on.
    pub fn listen(&self, node: NodeId, addr: &str) -> SimListener {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut net = lock(&self.0);
        net.dark.remove(&node);
        net.listeners.insert(addr.to_owned(), sender);
        SimListener(receiver)
    }

    /// How a node dials.
    pub fn dialer(&self, node: NodeId) -> SimDialer {
        SimDialer { from: node, network: self.clone() }
    }

    /// Sets the weather of all links.
    pub fn set_weather(&self, weather: Weather) {
        *lock(&lock(&self.0).weather) = weather;
    }

    /// Nothing passes from one node to another, until it was healed as often as it was cut.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        *lock(&self.0).cut.entry((from, to)).or_default() += 1;
    }

    /// Takes one cut back.
    pub fn heal(&self, from: NodeId, to: NodeId) {
        let mut net = lock(&self.0);
        if let Some(cuts) = net.cut.get_mut(&(from, to)) {
            *cuts -= 1;
            if *cuts == 0 {
                net.cut.remove(&(from, to));
            }
        }
    }

    /// Lets everything pass.
    pub fn heal_all(&self) {
        lock(&self.0).cut.clear();
    }

    /// Whether two nodes cannot hear each other, or only one can hear the other: neither can get an answer.
    pub fn is_cut(&self, a: NodeId, b: NodeId) -> bool {
        let net = lock(&self.0);
        net.cut.contains_key(&(a, b)) || net.cut.contains_key(&(b, a))
    }

    /// Breaks every stream between two nodes; what is under way is lost.
    pub fn reset(&self, a: NodeId, b: NodeId) {
        let pipes: Vec<_> = lock(&self.0).pipes.values().cloned().collect();
        for pipe in pipes {
            let mut pipe = lock(&pipe);
            if (pipe.from, pipe.to) == (a, b) || (pipe.from, pipe.to) == (b, a) {
                pipe.reset();
            }
        }
    }

    /// The node loses its power: its streams end without a word, and nobody answers for it.
    pub fn darken(&self, node: NodeId) {
        let mut net = lock(&self.0);
        net.dark.insert(node);
        for pipe in net.pipes.values() {
            let mut pipe = lock(pipe);
            pipe.silent |= pipe.from == node || pipe.to == node;
        }
    }

    /// Delivers what has arrived by now.
    pub fn deliver(&self) {
        let now = now_ms();
        let mut net = lock(&self.0);
        let net = &mut *net;
        net.connect(now);
        net.pipes.retain(|id, pipe| {
            let mut pipe = lock(pipe);
            if !net.cut.contains_key(&(pipe.from, pipe.to)) {
                let (from, to) = (pipe.from, pipe.to);
                pipe.deliver(now, &mut |bytes| {
                    if net.trace.is_kept() {
                        let (len, sum) = (bytes.len(), crate::trace::checksum(bytes));
                        net.trace.line(format_args!("{from}>{to} #{id} {len} {sum:016x}"));
                    }
                });
            }
            !pipe.is_over()
        });
    }
}

impl Net {
    fn draw_delay(&mut self) -> u64 {
        lock(&self.weather).delay(&mut self.rng)
    }

    /// Answers those whose dialling is over.
    fn connect(&mut self, now: u64) {
        let mut waiting = Vec::new();
        for dialled in std::mem::take(&mut self.dialled) {
            let Dialled { from, to, due_ms, .. } = dialled;
            let cut = self.cut.contains_key(&(from, to)) || self.cut.contains_key(&(to, from));
            if due_ms > now || cut || self.dark.contains(&to) {
                // Who does not wait any more is forgotten.
                if !dialled.answer.is_closed() {
                    waiting.push(dialled);
                }
                continue;
            }
            let (near, far) = self.streams(from, to);
            let accepted = self.listeners.get(&dialled.addr).is_some_and(|listener| listener.send(far).is_ok());
            self.trace.line(format_args!("{from}>{to} dialled {accepted}"));
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            // Its caller may have stopped waiting at this very moment.
            let _ = dialled.answer.send(if accepted { Ok(Box::new(near) as BoxIo) } else { Err(refused()) });
        }
        self.dialled = waiting;
    }

    fn streams(&mut self, near: NodeId, far: NodeId) -> (Stream, Stream) {
        let mut pipe = |from, to| {
            let pipe = Arc::new(Mutex::new(Pipe::new(from, to, self.rng.random(), Arc::clone(&self.weather))));
            self.pipes.insert(self.next_pipe, Arc::clone(&pipe));
            self.next_pipe += 1;
            pipe
        };
        let (out, back) = (pipe(near, far), pipe(far, near));
        let there = Stream { reads: Arc::clone(&out), writes: Arc::clone(&back) };
        (Stream { reads: back, writes: out }, there)
    }
}

/// Dials as one node.
#[derive(Clone)]
pub struct SimDialer {
    from: NodeId,
    network: Network,
}

impl Dialer for SimDialer {
    fn dial(&self, node: NodeId, addr: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let (answer, answered) = oneshot::channel();
        let mut net = lock(&self.network.0);
        let due_ms = now_ms() + net.draw_delay() + net.draw_delay();
        net.dialled.push(Dialled { from: self.from, to: node, addr: addr.to_owned(), due_ms, answer });
        async move { answered.await.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionRefused.into())) }.boxed()
    }
}

/// Accepts as one node.
pub struct SimListener(mpsc::UnboundedReceiver<Stream>);

impl Listener for SimListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Incoming>> {
        async move {
            match self.0.recv().await {
                Some(stream) => {
                    let accepted = Accepted { io: Box::new(stream), identity: None };
                    Ok(futures::future::ready(Ok(accepted)).boxed())
                }
                // A later life listens on this address: nothing will ever come.
                None => futures::future::pending().await,
            }
        }
        .boxed()
    }
}
