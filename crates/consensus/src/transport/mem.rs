//! An in-memory network for clusters inside one process, with a switch and a delay per direction.
//! A cut direction behaves as a network that drops packets: what was sent waits and may still come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::io::{Accepted, BoxIo, Dialer, Incoming, Listener};
use crate::types::NodeId;

/// Bytes that a stream holds for a reader that does not read, as a socket buffer does.
const PIPE_LEN: usize = 64 << 10;
/// Bytes that are under way in one direction of a delayed stream.
const IN_FLIGHT_LEN: usize = 1 << 20;
/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

type Pair = (NodeId, NodeId);

#[derive(Debug, Default)]
struct Rules {
    cut: BTreeSet<Pair>,
    delay: BTreeMap<Pair, Duration>,
    /// How often the pair's streams were reset; smaller node first.
    resets: BTreeMap<Pair, u64>,
}

impl Rules {
    fn resets(&self, a: NodeId, b: NodeId) -> u64 {
        self.resets.get(&(a.min(b), a.max(b))).copied().unwrap_or(0)
    }

    fn delay(&self, from: NodeId, to: NodeId) -> Duration {
        self.delay.get(&(from, to)).copied().unwrap_or_default()
    }
}

struct Inner {
    listeners: Mutex<BTreeMap<String, (NodeId, mpsc::Sender<DuplexStream>)>>,
    rules: watch::Sender<Rules>,
}

impl Inner {
    fn listeners(&self) -> MutexGuard<'_, BTreeMap<String, (NodeId, mpsc::Sender<DuplexStream>)>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The network. Clones are the same network.
#[derive(Clone)]
pub struct MemNetwork(Arc<Inner>);

impl Default for MemNetwork {
    fn default() -> Self {
        Self::new()
    }
}

impl MemNetwork {
    /// A network in which everything is connected at once.
    pub fn new() -> Self {
        let rules = watch::Sender::new(Rules::default());
        Self(Arc::new(Inner { listeners: Mutex::default(), rules }))
    }

    /// Takes an address for a node. Listening again on it replaces the former listener, as a
    /// restarted process does.
    pub fn listen(&self, node: NodeId, addr: &str) -> MemListener {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        self.0.listeners().insert(addr.to_owned(), (node, sender));
        MemListener(receiver)
    }

    /// How a node dials.
    pub fn dialer(&self, node: NodeId) -> MemDialer {
        MemDialer { from: node, network: self.clone() }
    }

    /// Drops everything from one node to another, silently, until [`Self::heal`].
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.0.rules.send_modify(|rules| {
            rules.cut.insert((from, to));
        });
    }

    /// Cuts both directions.
    pub fn cut_both(&self, a: NodeId, b: NodeId) {
        self.cut(a, b);
        self.cut(b, a);
    }

    /// Lets one direction pass again.
    pub fn heal(&self, from: NodeId, to: NodeId) {
        self.0.rules.send_modify(|rules| {
            rules.cut.remove(&(from, to));
        });
    }

    /// Lets everything pass again.
    pub fn heal_all(&self) {
        self.0.rules.send_modify(|rules| rules.cut.clear());
    }

    /// How long bytes of one direction are under way.
    pub fn set_delay(&self, from: NodeId, to: NodeId, delay: Duration) {
        self.0.rules.send_modify(|rules| {
            rules.delay.insert((from, to), delay);
        });
    }

    /// Breaks every open stream between two nodes; what is under way is lost.
    pub fn reset(&self, a: NodeId, b: NodeId) {
        self.0.rules.send_modify(|rules| *rules.resets.entry((a.min(b), a.max(b))).or_default() += 1);
    }
}

/// Dials as one node.
#[derive(Clone)]
pub struct MemDialer {
    from: NodeId,
    network: MemNetwork,
}

impl Dialer for MemDialer {
    fn dial(&self, _node: NodeId, addr: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let (from, network, addr) = (self.from, self.network.clone(), addr.to_owned());
        async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let to = network.0.listeners().get(&addr).map(|(node, _)| *node).ok_or_else(refused)?;
            let mut rules = network.0.rules.subscribe();
            // A handshake needs both directions.
            let open = |rules: &Rules| !rules.cut.contains(&(from, to)) && !rules.cut.contains(&(to, from));
            let round_trip = match rules.wait_for(open).await {
                Ok(rules) => rules.delay(from, to) + rules.delay(to, from),
                Err(_) => return Err(refused()),
            };
            if !round_trip.is_zero() {
                tokio::time::sleep(round_trip).await;
            }
            let listener = network.0.listeners().get(&addr).map(|(_, sender)| sender.clone());
            let (near, near_end) = duplex(PIPE_LEN);
            let (far, far_end) = duplex(PIPE_LEN);
            listener.ok_or_else(refused)?.send(far).await.map_err(|_| refused())?;
            let (near_read, near_write) = split(near_end);
            let (far_read, far_write) = split(far_end);
            tokio::spawn(relay(network.clone(), (from, to), near_read, far_write));
            tokio::spawn(relay(network, (to, from), far_read, near_write));
            Ok(Box::new(near) as BoxIo)
        }
        .boxed()
    }
}

/// Accepts as one node.
pub struct MemListener(mpsc::Receiver<DuplexStream>);

impl Listener for MemListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Incoming>> {
        async move {
            match self.0.recv().await {
                Some(stream) => {
                    let accepted = Accepted { io: Box::new(stream), identity: None };
                    Ok(futures::future::ready(Ok(accepted)).boxed())
                }
                // Replaced by a later listener on the same address: nothing will ever come.
                None => futures::future::pending().await,
            }
        }
        .boxed()
    }
}

/// Carries one direction of a stream under the network's rules, until the stream ends, is reset, or
/// the receiver is gone. The end of a stream travels as bytes do: delayed, and not while cut.
async fn relay(network: MemNetwork, pair: Pair, mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>) {
    let mut rules = network.0.rules.subscribe();
    let resets = rules.borrow().resets(pair.0, pair.1);
    let mut in_flight: VecDeque<(Instant, Bytes)> = VecDeque::new();
    let mut in_flight_len = 0;
    let mut ended = false;
    let mut buffer = BytesMut::with_capacity(PIPE_LEN);
    loop {
        let (cut, delay, reset) = {
            let rules = rules.borrow_and_update();
            (rules.cut.contains(&pair), rules.delay(pair.0, pair.1), rules.resets(pair.0, pair.1) != resets)
        };
        if reset {
            // Both directions notice; with the last half the stream breaks for both sides.
            return;
        }
        if ended && in_flight.is_empty() && !cut {
            // The receiver may be gone already, and then there is nobody to tell.
            let _ = to.shutdown().await;
            return;
        }
        let due = in_flight.front().map(|(at, _)| *at);
        tokio::select! {
            biased;
            changed = rules.changed() => if changed.is_err() { return },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && !cut => {
                let Some((_, bytes)) = in_flight.pop_front() else { continue };
                in_flight_len -= bytes.len();
                tokio::select! {
                    written = to.write_all(&bytes) => if written.is_err() { return },
                    () = wait_reset(&network, pair, resets) => return,
                }
            }
            read = from.read_buf(&mut buffer), if !ended && in_flight_len < IN_FLIGHT_LEN => match read {
                Ok(0) | Err(_) => ended = true,
                Ok(len) => {
                    in_flight_len += len;
                    in_flight.push_back((Instant::now() + delay, buffer.split().freeze()));
                    buffer.reserve(PIPE_LEN);
                }
            },
        }
    }
}

/// Waits for the pair's streams to be reset: a receiver that does not read must not outlive that.
async fn wait_reset(network: &MemNetwork, pair: Pair, resets: u64) {
    let mut rules = network.0.rules.subscribe();
    let reset = rules.wait_for(|rules| rules.resets(pair.0, pair.1) != resets).await;
    drop(reset);
}
