//! The links between nodes: every peer connection runs through here, so that a test can cut any of them, in one
//! direction or both, and delay them, without touching the clients' way to a node.
//!
//! A connection names its two ends in its first frame, so one listener per node is enough to tell all links apart.
//! A cut link is a black hole, as a real one is: bytes stop, nothing is closed. Healing closes what hung.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hapax_codec::peer::hello::Hello;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Length of the prefix of each frame of the peer protocol.
const PREFIX: usize = 4;
/// No hello is longer.
const HELLO_MAX: usize = 256;
/// Pieces that are on their way on one connection, at most.
const PIECES_MAX: usize = 1_024;

/// How a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Bytes from the first node to the second are lost.
    pub cut: bool,
    /// Bytes take this long.
    pub delay: Duration,
    /// Grows with each healing: connections of an older life are closed.
    life: u64,
}

const OPEN: Link = Link { cut: false, delay: Duration::ZERO, life: 0 };

type Links = Arc<Mutex<HashMap<(u64, u64), watch::Sender<Link>>>>;

/// All links of one cluster.
#[derive(Debug, Clone, Default)]
pub struct Network(Links);

impl Network {
    fn link(&self, from: u64, to: u64) -> watch::Receiver<Link> {
        let mut links = self.0.lock().expect("no test panics while it holds this");
        links.entry((from, to)).or_insert_with(|| watch::Sender::new(OPEN)).subscribe()
    }

    fn change(&self, from: u64, to: u64, change: impl FnOnce(&mut Link)) {
        drop(self.link(from, to));
        let links = self.0.lock().expect("no test panics while it holds this");
        links[&(from, to)].send_modify(change);
    }

    /// Loses everything that `from` sends to `to` from now on.
    pub fn cut(&self, from: u64, to: u64) {
        self.change(from, to, |link| link.cut = true);
    }

    /// Cuts `node` off from `others`, both ways.
    pub fn isolate(&self, node: u64, others: &[u64]) {
        for &other in others {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Mends all links and closes the connections that hung on them.
    pub fn heal(&self) {
        let links = self.0.lock().expect("no test panics while it holds this");
        for link in links.values() {
            link.send_modify(|link| {
                if link.cut {
                    link.cut = false;
                    link.life += 1;
                }
            });
        }
    }

    /// Delays every byte between `a` and `b` by `delay` in each direction.
    pub fn delay(&self, a: u64, b: u64, delay: Duration) {
        self.change(a, b, |link| link.delay = delay);
        self.change(b, a, |link| link.delay = delay);
    }

    /// Accepts the peer connections of the node at `target`, for as long as the runtime lives.
    pub async fn front(&self, target: SocketAddr) -> Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let network = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let network = network.clone();
                tokio::spawn(async move {
                    // A connection that ends, however it does, is the nodes' business.
                    let _ = network.carry(stream, target).await;
                });
            }
        });
        Ok(address)
    }

    async fn carry(&self, mut near: TcpStream, target: SocketAddr) -> Result<()> {
        near.set_nodelay(true)?;
        let mut prefix = [0; PREFIX];
        near.read_exact(&mut prefix).await?;
        let length = usize::try_from(u32::from_be_bytes(prefix))?;
        ensure!(length <= HELLO_MAX, "the first frame is no hello");
        let mut body = vec![0; length];
        near.read_exact(&mut body).await?;
        let hello = Hello::decode(Bytes::from(body.clone())).ok().context("the first frame is no hello")?;
        let (there, back) = (self.link(hello.from, hello.to), self.link(hello.to, hello.from));
        passable(&mut there.clone()).await?;
        let mut far = TcpStream::connect(target).await?;
        far.set_nodelay(true)?;
        far.write_all(&prefix).await?;
        far.write_all(&body).await?;
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = far.into_split();
        tokio::select! {
            done = pump(near_read, far_write, there) => done,
            done = pump(far_read, near_write, back) => done,
        }
    }
}

/// Waits while the link is cut; an error once it was healed, for then this connection is of an older life.
async fn passable(link: &mut watch::Receiver<Link>) -> Result<()> {
    let life = link.borrow().life;
    let now = *link.wait_for(|link| !link.cut).await?;
    ensure!(now.life == life, "healed");
    Ok(())
}

/// Carries bytes one way. What is on its way does not hold up what follows, as on a real line.
async fn pump(from: OwnedReadHalf, to: OwnedWriteHalf, link: watch::Receiver<Link>) -> Result<()> {
    let (line, arriving) = mpsc::channel(PIECES_MAX);
    tokio::try_join!(take_in(from, line, link.clone()), let_out(to, arriving, link)).map(drop)
}

async fn take_in(
    mut from: OwnedReadHalf,
    line: mpsc::Sender<(Instant, Bytes)>,
    link: watch::Receiver<Link>,
) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read?,
            healed = until_healed(link.clone()) => return healed,
        };
        if read == 0 {
            return Ok(());
        }
        let due = Instant::now() + link.borrow().delay;
        line.send((due, Bytes::copy_from_slice(&buffer[..read]))).await.ok().context("the other end is gone")?;
    }
}

async fn let_out(
    mut to: OwnedWriteHalf,
    mut arriving: mpsc::Receiver<(Instant, Bytes)>,
    mut link: watch::Receiver<Link>,
) -> Result<()> {
    while let Some((due, piece)) = arriving.recv().await {
        // A timer is no finer than a millisecond: without a delay there is none.
        if due > Instant::now() {
            sleep_until(due).await;
        }
        passable(&mut link).await?;
        to.write_all(&piece).await?;
    }
    Ok(())
}

/// Completes when the link was cut and healed since now.
async fn until_healed(mut link: watch::Receiver<Link>) -> Result<()> {
    let life = link.borrow().life;
    link.wait_for(|link| link.life != life).await?;
    Ok(())
}
