//! Every peer this node talks to: its address, its links, its round-trip time, and calls to it.
//! Shared by consensus and by the application's requests; clones are the same set.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_codec::membership::DataId;
use hapax_codec::peer::call::ReadIndex;
use hapax_codec::peer::hello::Channel;
use tokio::time::{Instant, timeout};

use super::Config;
use super::append::AppendConn;
use super::call::{Ambiguous, CallConn, CallError, NotWritten};
use super::hello::{Conn, ConnectError, Identity, introduce};
use super::io::Dialer;
use super::known::KnownData;
use super::link::Link;
use crate::types::NodeId;

/// Kinds of application requests. Numbers are part of the peer protocol.
pub mod kind {
    /// A batch of commands for the leader to propose.
    pub const FORWARD: u8 = 1;
    /// A read index from the leader.
    pub const READ_INDEX: u8 = 2;
    /// What the node knows of itself.
    pub const STATUS: u8 = 3;
    /// The node's wall clock, in milliseconds.
    pub const CLOCK: u8 = 4;
}

/// The peers of one node.
#[derive(Clone)]
pub struct Peers(Arc<Inner>);

struct Inner {
    me: Identity,
    members: KnownData,
    dialer: Arc<dyn Dialer>,
    config: Config,
    peers: Mutex<BTreeMap<NodeId, Arc<Peer>>>,
}

/// One peer at one address.
pub(crate) struct Peer {
    addr: String,
    /// Whether the address is the operator's own word, which no membership overrides.
    is_pinned: bool,
    pub(crate) control: Arc<Link<CallConn>>,
    pub(crate) app: Arc<Link<CallConn>>,
    pub(crate) append: Arc<Link<AppendConn>>,
    rtt: Arc<Rtt>,
}

/// A smoothed round-trip time, as TCP smooths its own: an eighth of each new sample.
#[derive(Debug, Default)]
struct Rtt {
    /// In nanoseconds; zero before the first sample.
    smoothed: AtomicU64,
}

impl Rtt {
    fn add(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX).max(1);
        // One task per connection adds; a sample lost between two of them does not matter.
        let old = self.smoothed.load(Ordering::Relaxed);
        let new = if old == 0 { sample } else { old - old / 8 + sample / 8 };
        self.smoothed.store(new.max(1), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        match self.smoothed.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

impl Peers {
    /// No peers yet. The configuration has been checked.
    pub fn new(me: Identity, dialer: impl Dialer, config: Config) -> Self {
        let members = KnownData::default();
        Self(Arc::new(Inner { me, members, dialer: Arc::new(dialer), config, peers: Mutex::default() }))
    }

    /// Who this node is.
    pub fn identity(&self) -> Identity {
        self.0.me
    }

    /// What is known of the members' data; the accepting side must know it too.
    pub fn members(&self) -> &KnownData {
        &self.0.members
    }

    /// The transport's settings.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Peer>>> {
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a node known, or known at another address: its connections to the former one are dropped. A pinned
    /// node stays where it is.
    pub fn set(&self, node: NodeId, addr: &str) {
        let mut peers = self.lock();
        if peers.get(&node).is_none_or(|peer| !peer.is_pinned && peer.addr != addr) {
            let peer = Arc::new(self.new_peer(node, addr, false));
            peers.insert(node, peer);
        }
    }

    /// Makes a node known at the address that this node's own configuration gives, whatever a membership says that was
    /// written when it had another one.
    pub fn pin(&self, node: NodeId, addr: &str) {
        let peer = Arc::new(self.new_peer(node, addr, true));
        self.lock().insert(node, peer);
    }

    /// Says which data directory a member has. Connections from the time when that was not known are dropped: they may
    /// lead to another one. An unknown one says nothing.
    pub fn expect(&self, node: NodeId, data: DataId) {
        if !self.0.members.set(node, data) {
            return;
        }
        let mut peers = self.lock();
        if let Some(peer) = peers.get(&node) {
            let peer = Arc::new(self.new_peer(node, &peer.addr, peer.is_pinned));
            peers.insert(node, peer);
        }
    }

    /// Forgets a node that left the cluster, and closes its connections.
    pub fn remove(&self, node: NodeId) {
        self.lock().remove(&node);
        self.0.members.forget(node);
    }

    /// The known nodes.
    pub fn known(&self) -> Vec<NodeId> {
        self.lock().keys().copied().collect()
    }

    pub(crate) fn get(&self, node: NodeId) -> Result<Arc<Peer>, ConnectError> {
        self.lock().get(&node).cloned().ok_or(ConnectError::UnknownNode(node))
    }

    /// The smoothed round-trip time of control messages to a node: network, and its consensus' own
    /// time to answer a heartbeat.
    pub fn rtt(&self, node: NodeId) -> Option<Duration> {
        self.get(node).ok().and_then(|peer| peer.rtt.get())
    }

    /// Whether the control connection to a node stands.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.get(node).is_ok_and(|peer| peer.control.is_up())
    }

    /// Dials a node's channel, for a connection of the caller's own. Bounded by `connect_timeout`.
    pub(crate) fn dial(
        &self,
        node: NodeId,
        addr: &str,
        channel: Channel,
    ) -> BoxFuture<'static, Result<Conn, ConnectError>> {
        Dial::of(&self.0).dial(node, addr, channel)
    }

    /// Dials a known node for a snapshot transfer.
    pub(crate) async fn dial_snapshot(&self, node: NodeId) -> Result<Conn, ConnectError> {
        let peer = self.get(node)?;
        self.dial(node, &peer.addr, Channel::Snapshot).await
    }

    fn new_peer(&self, node: NodeId, addr: &str, is_pinned: bool) -> Peer {
        let rtt = Arc::new(Rtt::default());
        let control_rtt = Arc::clone(&rtt);
        let control = self.new_link(node, addr, Channel::Control, move |conn, config| {
            let rtt = Arc::clone(&control_rtt);
            CallConn::new(conn, config, move |sample| rtt.add(sample))
        });
        // The time of an application's answer says nothing about the network.
        let app = self.new_link(node, addr, Channel::App, |conn, config| CallConn::new(conn, config, |_| ()));
        let append = self.new_link(node, addr, Channel::Append, AppendConn::new);
        Peer { addr: addr.to_owned(), is_pinned, control, app, append, rtt }
    }

    fn new_link<C: super::link::Connection>(
        &self,
        node: NodeId,
        addr: &str,
        channel: Channel,
        wrap: impl Fn(Conn, &Config) -> C + Clone + Send + Sync + 'static,
    ) -> Arc<Link<C>> {
        let Inner { config, .. } = &*self.0;
        let (parts, addr) = (Dial::of(&self.0), addr.to_owned());
        let connect = move || {
            let (config, wrap) = (parts.config.clone(), wrap.clone());
            let dialled = parts.dial(node, &addr, channel);
            async move {
                let conn = dialled.await;
                if let Err(error) = &conn {
                    tracing::debug!(node, ?channel, %error, "peer not reached");
                }
                Ok(wrap(conn?, &config))
            }
            .boxed()
        };
        Link::new(Box::new(connect), config.reconnect_pause, config.reconnect_pause_max)
    }

    /// Asks a node's application and waits for its answer until the deadline.
    pub async fn call(&self, node: NodeId, kind: u8, payload: Bytes, deadline: Instant) -> Result<Bytes, CallError> {
        let peer = self.get(node).map_err(NotWritten::from)?;
        let conn = peer.app.get(deadline).await.map_err(NotWritten::from)?;
        conn.call(kind, payload, deadline).await
    }

    /// Forwards a batch of commands to the node that leads. [`CallError::NotWritten`] alone means
    /// that the commands were certainly not proposed there.
    pub async fn forward(&self, node: NodeId, payload: Bytes, deadline: Instant) -> Result<Bytes, CallError> {
        self.call(node, kind::FORWARD, payload, deadline).await
    }

    /// Asks the node that leads for a read index.
    pub async fn read_index(&self, node: NodeId, deadline: Instant) -> Result<ReadIndex, CallError> {
        let reply = self.call(node, kind::READ_INDEX, Bytes::new(), deadline).await?;
        ReadIndex::from_payload(reply).map_err(|error| CallError::Ambiguous(Ambiguous::Malformed(error)))
    }

    /// Asks a node's consensus, on the control channel.
    pub(crate) async fn control(
        &self,
        node: NodeId,
        op: u8,
        payload: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        let peer = self.get(node).map_err(NotWritten::from)?;
        let conn = peer.control.get(deadline).await.map_err(NotWritten::from)?;
        conn.call(op, payload, deadline).await
    }
}

/// What dialling takes. A link has its own, since it must not keep the whole set of peers alive.
struct Dial {
    me: Identity,
    members: KnownData,
    dialer: Arc<dyn Dialer>,
    config: Config,
}

impl Dial {
    fn of(inner: &Inner) -> Self {
        let Inner { me, members, dialer, config, .. } = inner;
        Self { me: *me, members: members.clone(), dialer: Arc::clone(dialer), config: config.clone() }
    }

    /// Dials and introduces this node, both within `connect_timeout`.
    fn dial(&self, node: NodeId, addr: &str, channel: Channel) -> BoxFuture<'static, Result<Conn, ConnectError>> {
        let stream = self.dialer.dial(node, addr);
        let (me, members, within) = (self.me, self.members.clone(), self.config.connect_timeout);
        async move {
            let connected = async {
                let io = stream.await.map_err(ConnectError::Dial)?;
                introduce(io, me, node, channel, &members).await
            };
            timeout(within, connected).await.unwrap_or(Err(ConnectError::Timeout(within)))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_time_is_smoothed() {
        let rtt = Rtt::default();
        assert_eq!(rtt.get(), None);
        rtt.add(Duration::from_micros(800));
        assert_eq!(rtt.get(), Some(Duration::from_micros(800)));
        rtt.add(Duration::from_micros(1_600));
        assert_eq!(rtt.get(), Some(Duration::from_micros(900)));
    }
}
