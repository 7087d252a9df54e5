//! The seam below the peer protocol: how a byte stream to or from a peer comes to be.
//! Plain TCP, an in-memory network and, later, TLS are implementations; nothing above knows which.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::types::NodeId;

/// A connected byte stream, ordered and reliable while it lasts.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Some byte stream.
pub type BoxIo = Box<dyn Io>;

/// Opens byte streams to peers.
pub trait Dialer: Send + Sync + 'static {
    /// Connects to the node at this address. An implementation that authenticates peers has checked,
    /// when it succeeds, that the other side is `node`. The caller bounds the time.
    fn dial(&self, node: NodeId, addr: &str) -> BoxFuture<'static, io::Result<BoxIo>>;
}

impl<D: Dialer + ?Sized> Dialer for Arc<D> {
    fn dial(&self, node: NodeId, addr: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        (**self).dial(node, addr)
    }
}

/// A stream that a peer opened.
pub struct Accepted {
    /// The stream.
    pub io: BoxIo,
    /// The node that the stream's own authentication proved; `None` where there is none. A hello
    /// that claims another node is refused.
    pub identity: Option<NodeId>,
}

/// A connection that was accepted but whose handshake, if any, is still to be done: it runs in the
/// connection's own task, so that a slow stranger holds up nobody else.
pub type Incoming = BoxFuture<'static, io::Result<Accepted>>;

/// Takes byte streams that peers open.
pub trait Listener: Send + 'static {
    /// The next connection. An error concerns that connection alone, or passes: the caller goes on.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Incoming>>;
}
