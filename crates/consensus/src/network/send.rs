//! Sending a snapshot: its files in checked pieces over a connection of its own, paced.
//! Holds one piece in memory; a transfer that breaks is begun anew by openraft.

use std::convert::Infallible;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hapax_codec::peer::snapshot::{Begin, Chunk, Done, Failed, File, FileEnd};
use hapax_codec::peer::{Frame, Kind};
use openraft::StorageError;
use openraft::errors::{ErrorSource, NetworkError, StreamingError, Unreachable};
use openraft::raft::SnapshotResponse;
use openraft::type_config::alias::ErrorSourceOf;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout};
use xxhash_rust::xxh3::Xxh3;

use super::convert;
use crate::transport::Peers;
use crate::transport::frame::{ConnReader, ConnWriter};
use crate::transport::hello::Conn;
use crate::types::{NodeId, Snapshot, SnapshotFile, TypeConfig, Vote};

/// Bytes of a file in one frame.
const CHUNK_LEN: usize = 256 << 10;

type Error = StreamingError<TypeConfig>;

/// Sends a snapshot and waits until the peer has installed or refused it.
pub(super) async fn snapshot(
    peers: &Peers,
    to: NodeId,
    vote: Vote,
    snapshot: &Snapshot,
) -> Result<SnapshotResponse<TypeConfig>, Error> {
    let conn = peers.dial_snapshot(to).await.map_err(|error| Unreachable::new(&error))?;
    let Conn { reader, writer } = conn;
    let config = peers.config();
    let mut sender = Sender {
        writer,
        started: Instant::now(),
        sent: 0,
        bytes_per_s: config.snapshot_bytes_per_s,
        patience: config.snapshot_stall_timeout,
    };
    tokio::select! {
        biased;
        answer = answer(reader, config.snapshot_stall_timeout) => answer,
        failed = sender.run(vote, snapshot) => match failed { Err(error) => Err(error), Ok(never) => match never {} },
    }
}

/// Waits for the end, for as long as the receiver says that it works.
async fn answer(mut reader: ConnReader, patience: Duration) -> Result<SnapshotResponse<TypeConfig>, Error> {
    let network = |message: String| Error::from(NetworkError::from_string(message));
    loop {
        let body = timeout(patience, reader.next()).await;
        let body = body.map_err(|_| network("the snapshot's receiver is silent".into()))?;
        let body = body.map_err(|error| network(error.to_string()))?;
        let mut body = body.ok_or_else(|| network("the snapshot's receiver closed the connection".into()))?;
        let kind = Kind::take(&mut body).map_err(|error| network(error.to_string()))?;
        match kind {
            Kind::SnapshotWorking => {}
            Kind::SnapshotDone => {
                let done = Done::decode(body).map_err(|error| network(error.to_string()))?;
                return Ok(SnapshotResponse::new(convert::vote_in(done.vote)));
            }
            // The receiver could not write, say: at once again would fail again.
            Kind::SnapshotFailed => {
                let failed = Failed::decode(body).map_err(|error| network(error.to_string()))?;
                return Err(Unreachable::from_string(format!("snapshot not received: {}", failed.reason)).into());
            }
            other => return Err(network(format!("unexpected {other:?} on a snapshot channel"))),
        }
    }
}

struct Sender {
    writer: ConnWriter,
    started: Instant,
    sent: u64,
    bytes_per_s: u64,
    patience: Duration,
}

impl Sender {
    /// Sends everything and then waits to be dropped: the answer decides how the transfer ended.
    async fn run(&mut self, vote: Vote, snapshot: &Snapshot) -> Result<Infallible, Error> {
        let files = &snapshot.snapshot.files;
        let begin = Begin {
            vote: convert::vote_out(&vote),
            meta: convert::meta_out(&snapshot.meta),
            files: files.iter().map(|file| File { name: file.name.clone(), len: file.len }).collect(),
        };
        self.send(begin.encode()).await?;
        for (position, file) in files.iter().enumerate() {
            self.file(position as u32, file, snapshot).await?;
        }
        self.send(Frame::bare(Kind::SnapshotEnd)).await?;
        std::future::pending().await
    }

    async fn file(&mut self, position: u32, file: &SnapshotFile, snapshot: &Snapshot) -> Result<(), Error> {
        // A snapshot that cannot be read is a failure of this node's storage, not of the network.
        let unreadable = |what: &str| {
            let source = ErrorSourceOf::<TypeConfig>::from_string(format!("{}: {what}", file.name));
            Error::from(StorageError::<TypeConfig>::read_snapshot(Some(snapshot.meta.signature()), source))
        };
        let path = snapshot.snapshot.dir.path().join(&file.name);
        let mut io = tokio::fs::File::open(path).await.map_err(|error| unreadable(&error.to_string()))?;
        let mut hasher = Xxh3::new();
        let mut offset = 0;
        while offset < file.len {
            let want = (file.len - offset).min(CHUNK_LEN as u64) as usize;
            let data = read_exactly(&mut io, want).await.map_err(|error| unreadable(&error.to_string()))?;
            hasher.update(&data);
            self.pace(data.len()).await;
            self.send(Chunk { file: position, offset, data }.encode()).await?;
            offset += want as u64;
        }
        if !read_exactly(&mut io, 1).await.is_err_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof) {
            return Err(unreadable("longer than its manifest says"));
        }
        self.send(FileEnd { file: position, checksum: hasher.digest() }.encode()).await
    }

    /// Waits until the rate allows for the next piece, so that a transfer leaves room for the rest.
    async fn pace(&mut self, len: usize) {
        let due = Duration::from_secs_f64(self.sent as f64 / self.bytes_per_s as f64);
        self.sent += len as u64;
        sleep_until(self.started + due).await;
    }

    async fn send(&mut self, frame: Frame) -> Result<(), Error> {
        if frame.is_oversized() {
            return Err(NetworkError::from_string("the snapshot has too many files").into());
        }
        match timeout(self.patience, self.writer.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(NetworkError::new(&error).into()),
            Err(_) => Err(NetworkError::from_string("the snapshot's receiver takes nothing").into()),
        }
    }
}

async fn read_exactly(io: &mut tokio::fs::File, len: usize) -> std::io::Result<Bytes> {
    let mut data = BytesMut::zeroed(len);
    io.read_exact(&mut data).await?;
    Ok(data.freeze())
}
