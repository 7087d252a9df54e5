//! Snapshot transfers: whole, cut at many points by either side, damaged, and stalled.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};

use futures::FutureExt;
use openraft::errors::StreamingError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::transport::{BoxIo, Dialer};
use crate::types::{SnapshotDir, SnapshotFile, SnapshotMeta, StoredMembership};

/// What a stream does to the bytes that are written to it, once so many have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// The sender dies.
    Break,
    /// A bit flips.
    Flip,
}

/// Dials streams that come to harm after a number of bytes, counted over all streams.
#[derive(Clone)]
struct Harmful {
    dialer: crate::transport::mem::MemDialer,
    left: Arc<AtomicU64>,
    harm: Harm,
}

struct HarmfulIo {
    io: BoxIo,
    left: Arc<AtomicU64>,
    harm: Harm,
}

impl Dialer for Harmful {
    fn dial(&self, node: NodeId, addr: &str) -> futures::future::BoxFuture<'static, io::Result<BoxIo>> {
        let (dialled, left, harm) = (self.dialer.dial(node, addr), Arc::clone(&self.left), self.harm);
        async move { Ok(Box::new(HarmfulIo { io: dialled.await?, left, harm }) as BoxIo) }.boxed()
    }
}

impl AsyncRead for HarmfulIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for HarmfulIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let left = self.left.load(Ordering::SeqCst);
        if left >= buf.len() as u64 {
            let written = Pin::new(&mut self.io).poll_write(cx, buf);
            if let Poll::Ready(Ok(len)) = &written {
                self.left.fetch_sub(*len as u64, Ordering::SeqCst);
            }
            return written;
        }
        if self.harm == Harm::Break {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut harmed = buf.to_vec();
        harmed[left as usize] ^= 1;
        let written = Pin::new(&mut self.io).poll_write(cx, &harmed);
        if let Poll::Ready(Ok(len)) = &written {
            // Once is enough.
            let rest = if *len as u64 > left { u64::MAX } else { left - *len as u64 };
            self.left.store(rest, Ordering::SeqCst);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

fn config() -> Config {
    Config { snapshot_bytes_per_s: 1 << 40, ..super::config() }
}

/// A snapshot of three files: an empty one, a short one, and one of several chunks.
fn snapshot(dir: &Path) -> Snapshot {
    let long: Vec<u8> = (0..700_001u32).map(|n| (n % 251) as u8).collect();
    let contents: [(&str, &[u8]); 3] = [("CURRENT", b""), ("MANIFEST-000004", b"manifest"), ("000012.sst", &long)];
    let mut files = Vec::new();
    for (name, content) in contents {
        std::fs::write(dir.join(name), content).expect("written");
        files.push(SnapshotFile { name: name.to_owned(), len: content.len() as u64 });
    }
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(42)),
        last_membership: StoredMembership::new(Some(log_id(1)), openraft::Membership::default()),
    };
    Snapshot { meta, snapshot: SnapshotFiles { dir: Arc::new(SnapshotDir::keep(dir.to_owned())), files } }
}

fn harmful(network: &MemNetwork, left: u64, harm: Harm) -> (Network, Arc<AtomicU64>) {
    let left = Arc::new(AtomicU64::new(left));
    let dialer = Harmful { dialer: network.dialer(1), left: Arc::clone(&left), harm };
    (Network::new(Peers::new(identity(1), dialer, config()), Tail::default()), left)
}

type Sent = Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>>;

async fn send(network: &mut Network, snapshot: &Snapshot) -> Sent {
    let mut client = network.new_snapshot_client(2, &node("two")).await;
    let never = std::future::pending::<ReplicationClosed>();
    let sent = client.full_snapshot(Vote::new_committed(3, 1), snapshot.clone(), never, patient());
    timeout(Duration::from_secs(60), sent).await.expect("ends")
}

/// What lies in the directory in which snapshots arrive.
fn leftovers(follower: &Follower) -> usize {
    std::fs::read_dir(follower.dir.path().join("snapshots")).expect("a directory").count()
}

/// Waits until a transfer is under way.
async fn wait_begun(follower: &Follower) {
    let waited = timeout(Duration::from_secs(20), async {
        while leftovers(follower) == 0 {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("a transfer begins");
}

/// Waits until the receiver has noticed that a transfer is over.
async fn wait_no_leftovers(follower: &Follower) {
    let waited = timeout(Duration::from_secs(20), async {
        while leftovers(follower) > 0 {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("a partial snapshot is thrown away");
}

fn assert_installed(follower: &Follower, sent: &Snapshot) {
    let installed = std::mem::take(&mut *follower.script.installed.lock().expect("not poisoned"));
    let [(vote, received)] = installed.as_slice() else { panic!("{} snapshots installed", installed.len()) };
    assert_eq!(*vote, Vote::new_committed(3, 1));
    assert_eq!(received.meta, sent.meta);
    assert_eq!(received.snapshot.files, sent.snapshot.files);
    for SnapshotFile { name, .. } in &sent.snapshot.files {
        let read = |snapshot: &Snapshot| std::fs::read(snapshot.snapshot.dir.path().join(name)).expect("read");
        assert!(read(received) == read(sent), "{name} differs");
    }
    let there = std::fs::read_dir(received.snapshot.dir.path()).expect("a directory").count();
    assert_eq!(there, sent.snapshot.files.len());
}

#[tokio::test]
async fn a_snapshot_arrives_whole() {
    let network = MemNetwork::new();
    let follower = follower(&network, &config());
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = snapshot(dir.path());
    let mut leader = leader(&network, &config());
    let answer = send(&mut leader.network, &snapshot).await.expect("installed");
    assert_eq!(answer.vote, Vote::new_committed(3, 1));
    assert_installed(&follower, &snapshot);
    assert_eq!(leftovers(&follower), 0, "the scratch directory went with its last user");
}

#[tokio::test]
async fn a_sender_that_dies_anywhere_leaves_nothing_and_the_next_transfer_succeeds() {
    let network = MemNetwork::new();
    let follower = follower(&network, &config());
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = snapshot(dir.path());
    // In the hello, the beginning, each chunk, and just before the end.
    for dies_after in [0, 20, 60, 200, 300, 10_000, 262_144, 262_600, 400_000, 600_000, 700_300] {
        let (mut network, left) = harmful(&network, dies_after, Harm::Break);
        let broken = send(&mut network, &snapshot).await;
        assert!(
            matches!(broken, Err(StreamingError::Network(_) | StreamingError::Unreachable(_))),
            "after {dies_after}: {broken:?}"
        );
        wait_no_leftovers(&follower).await;
        assert!(follower.script.installed.lock().expect("not poisoned").is_empty(), "after {dies_after}");

        left.store(u64::MAX, Ordering::SeqCst);
        send(&mut network, &snapshot).await.expect("installed");
        assert_installed(&follower, &snapshot);
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_installs_nothing() {
    let network = MemNetwork::new();
    let follower = follower(&network, &config());
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = snapshot(dir.path());
    for flipped in [300, 5_000, 262_700, 500_000, 700_250] {
        let (mut network, left) = harmful(&network, flipped, Harm::Flip);
        let damaged = send(&mut network, &snapshot).await;
        assert!(damaged.is_err(), "at {flipped}");
        wait_no_leftovers(&follower).await;
        assert!(follower.script.installed.lock().expect("not poisoned").is_empty(), "at {flipped}");
        left.store(u64::MAX, Ordering::SeqCst);
        send(&mut network, &snapshot).await.expect("installed");
        assert_installed(&follower, &snapshot);
    }
}

#[tokio::test]
async fn a_receiver_that_dies_in_the_middle_receives_anew_after_its_restart() {
    let network = MemNetwork::new();
    let first = follower(&network, &config());
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = snapshot(dir.path());
    // Slow: it is in the middle when the receiver has a directory.
    let slow = Config { snapshot_bytes_per_s: 300_000, ..config() };
    let mut leader = leader(&network, &slow);
    let sending = tokio::spawn({
        let (mut network, snapshot) = (leader.network.clone(), snapshot.clone());
        async move { send(&mut network, &snapshot).await }
    });
    wait_begun(&first).await;
    // A killed process removes nothing; a directory in its place stands for what it leaves.
    let Follower { script, dir: follower_dir, _server } = first;
    drop(_server);
    let broken = sending.await.expect("joined");
    assert!(matches!(broken, Err(StreamingError::Network(_))), "{broken:?}");
    assert!(script.installed.lock().expect("not poisoned").is_empty());
    let left = follower_dir.path().join("snapshots").join("receiving-1");
    std::fs::create_dir_all(&left).expect("created");
    std::fs::write(left.join("000012.sst"), b"half").expect("written");
    Receiver::new(follower_dir.path().join("snapshots"), Duration::from_secs(1)).expect("a receiver");
    assert!(!left.exists(), "removed at the next start");

    let second = follower(&network, &config());
    leader = super::leader(&network, &config());
    send(&mut leader.network, &snapshot).await.expect("installed");
    assert_installed(&second, &snapshot);
}

#[tokio::test]
async fn a_silent_receiver_is_given_up() {
    let network = MemNetwork::new();
    let settings = Config { snapshot_stall_timeout: Duration::from_millis(100), ..config() };
    let follower = follower(&network, &settings);
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = snapshot(dir.path());
    let slow = Config { snapshot_bytes_per_s: 300_000, ..settings };
    let leader = leader(&network, &slow);
    let sending = tokio::spawn({
        let (mut network, snapshot) = (leader.network.clone(), snapshot.clone());
        async move { send(&mut network, &snapshot).await }
    });
    wait_begun(&follower).await;
    network.cut_both(1, 2);
    let given_up = sending.await.expect("joined");
    assert!(matches!(given_up, Err(StreamingError::Network(_))), "{given_up:?}");
    // The receiver gives the silent sender up as well.
    wait_no_leftovers(&follower).await;
}

#[tokio::test]
async fn a_transfer_that_is_cancelled_stops_at_once() {
    let network = MemNetwork::new();
    let follower = follower(&network, &config());
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = snapshot(dir.path());
    let mut leader = leader(&network, &config());
    let mut client = leader.network.new_snapshot_client(2, &node("two")).await;
    let cancelled = std::future::ready(ReplicationClosed::new("no longer leading"));
    let sent = client.full_snapshot(Vote::new_committed(3, 1), snapshot, cancelled, patient()).await;
    assert!(matches!(sent, Err(StreamingError::Closed(_))), "{sent:?}");
    wait_no_leftovers(&follower).await;
}

#[tokio::test]
async fn a_new_transfer_takes_the_place_of_a_stuck_one() {
    let network = MemNetwork::new();
    let follower = follower(&network, &config());
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = snapshot(dir.path());
    let slow = Config { snapshot_bytes_per_s: 1_000, ..config() };
    let stuck = tokio::spawn({
        let (mut network, snapshot) = (leader(&network, &slow).network, snapshot.clone());
        async move { send(&mut network, &snapshot).await }
    });
    wait_begun(&follower).await;
    let mut leader = leader(&network, &config());
    send(&mut leader.network, &snapshot).await.expect("installed");
    assert_installed(&follower, &snapshot);
    assert!(stuck.await.expect("joined").is_err());
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_a_storage_error() {
    let network = MemNetwork::new();
    let follower = follower(&network, &config());
    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = snapshot(dir.path());
    let mut leader = leader(&network, &config());
    std::fs::write(dir.path().join("000012.sst"), b"short").expect("written");
    let sent = send(&mut leader.network, &snapshot).await;
    assert!(matches!(sent, Err(StreamingError::StorageError(_))), "{sent:?}");
    std::fs::remove_file(dir.path().join("000012.sst")).expect("removed");
    let sent = send(&mut leader.network, &snapshot).await;
    assert!(matches!(sent, Err(StreamingError::StorageError(_))), "{sent:?}");
    wait_no_leftovers(&follower).await;
    assert!(follower.script.installed.lock().expect("not poisoned").is_empty());
}
