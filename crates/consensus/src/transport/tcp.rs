//! Plain TCP, for tests and for networks that are private already.
//! Latency matters more than packets here, so Nagle's algorithm is off.

use std::io;
use std::net::SocketAddr;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::{TcpListener as TokioListener, TcpStream, ToSocketAddrs};

use super::io::{Accepted, BoxIo, Dialer, Incoming, Listener};
use crate::types::NodeId;

/// Dials `host:port`, resolving the host anew each time: an address may have moved.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpDialer;

impl Dialer for TcpDialer {
    fn dial(&self, _node: NodeId, addr: &str) -> BoxFuture<'static, io::Result<BoxIo>> {
        let addr = addr.to_owned();
        async move {
            let stream = TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxIo)
        }
        .boxed()
    }
}

/// Listens on a TCP address.
#[derive(Debug)]
pub struct TcpListener(TokioListener);

impl TcpListener {
    /// Binds the address.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        TokioListener::bind(addr).await.map(Self)
    }

    /// Where it listens, which matters for port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Incoming>> {
        async move {
            let (stream, _) = self.0.accept().await?;
            stream.set_nodelay(true)?;
            let accepted = Accepted { io: Box::new(stream), identity: None };
            Ok(futures::future::ready(Ok(accepted)).boxed())
        }
        .boxed()
    }
}
