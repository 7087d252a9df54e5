//! Receiving a snapshot into a directory of its own, checked piece by piece and synced, and handing
//! it to consensus. Whatever is not complete is thrown away, now or at the next start.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hapax_codec::peer::snapshot::{Begin, Chunk, Done, Failed, File, FileEnd};
use hapax_codec::peer::{DecodeError, Frame, Kind};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use xxhash_rust::xxh3::Xxh3;

use super::convert;
use super::serve::RaftService;
use crate::transport::frame::{ConnReader, ConnWriter};
use crate::transport::hello::Conn;
use crate::types::{NodeId, Snapshot, SnapshotDir, SnapshotFile, SnapshotFiles, Vote};

/// Names of the directories in which snapshots arrive.
const PREFIX: &str = "receiving-";

/// Why a snapshot was not received or not installed.
#[derive(Debug, Error)]
enum Error {
    #[error("protocol: {0}")]
    Protocol(#[from] DecodeError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the sender is silent")]
    Silent,
    #[error("the sender closed the connection")]
    Ended,
    #[error("another transfer began")]
    Superseded,
    #[error("consensus has stopped")]
    Stopped,
}

/// Where snapshots arrive. One transfer at a time: a new one takes the place of the former, whose
/// sender has usually died.
pub struct Receiver {
    root: PathBuf,
    transfers: watch::Sender<u64>,
    stall_timeout: Duration,
}

impl Receiver {
    /// Receives below `root`, on the file system of the state, since installing moves the directory.
    /// Removes what an interrupted transfer left there.
    pub fn new(root: PathBuf, stall_timeout: Duration) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        for entry in std::fs::read_dir(&root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self { root, transfers: watch::Sender::new(0), stall_timeout })
    }

    /// Receives one snapshot over a connection, and answers on it.
    pub(super) async fn run<R: RaftService>(&self, from: NodeId, conn: Conn, raft: &R) {
        let Conn { mut reader, mut writer } = conn;
        let outcome = self.receive(&mut reader, &mut writer, raft).await;
        let frame = match outcome {
            Ok(vote) => Done { vote: convert::vote_out(&vote) }.encode(),
            Err(error) => {
                tracing::warn!(from, %error, "snapshot not received");
                Failed { reason: error.to_string() }.encode()
            }
        };
        // A sender that is gone begins again anyway.
        let _ = timeout(self.stall_timeout, writer.send(frame)).await;
    }

    async fn receive<R: RaftService>(
        &self,
        reader: &mut ConnReader,
        writer: &mut ConnWriter,
        raft: &R,
    ) -> Result<Vote, Error> {
        let mut number = 0;
        self.transfers.send_modify(|last| {
            *last += 1;
            number = *last;
        });
        let mut transfers = self.transfers.subscribe();
        let work = async {
            let received = tokio::select! {
                _ = transfers.wait_for(|last| *last != number) => Err(Error::Superseded),
                received = self.files(reader, number) => received,
            };
            let (vote, snapshot) = received?;
            // From here on the directory is the state machine's, which moves it away.
            let response = raft.install_snapshot(vote, snapshot).await.ok_or(Error::Stopped)?;
            Ok(response.vote)
        };
        tokio::pin!(work);
        let mut signs = interval(self.stall_timeout / 4);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = signs.tick() => {
                    let sent = timeout(self.stall_timeout, writer.send(Frame::bare(Kind::SnapshotWorking))).await;
                    sent.map_err(|_| Error::Silent)??;
                }
            }
        }
    }

    async fn files(&self, reader: &mut ConnReader, number: u64) -> Result<(Vote, Snapshot), Error> {
        let Begin { vote, meta, files } = Begin::decode(self.expect(reader, Kind::SnapshotBegin).await?)?;
        let meta = convert::meta_in(meta)?;
        let dir = Arc::new(create_dir(self.root.join(format!("{PREFIX}{number}"))).await?);
        for (position, file) in files.iter().enumerate() {
            self.file(reader, dir.path(), position as u32, file).await?;
        }
        self.expect(reader, Kind::SnapshotEnd).await?;
        sync_dir(dir.path().to_owned()).await?;
        let files = files.into_iter().map(|File { name, len }| SnapshotFile { name, len }).collect();
        Ok((convert::vote_in(vote), Snapshot { meta, snapshot: SnapshotFiles { dir, files } }))
    }

    async fn file(&self, reader: &mut ConnReader, dir: &Path, position: u32, file: &File) -> Result<(), Error> {
        let mut io = tokio::fs::File::create_new(dir.join(&file.name)).await?;
        let mut hasher = Xxh3::new();
        let mut len = 0;
        while len < file.len {
            let chunk = Chunk::decode(self.expect(reader, Kind::SnapshotChunk).await?)?;
            let in_place = chunk.file == position && chunk.offset == len && !chunk.data.is_empty();
            if !in_place || chunk.data.len() as u64 > file.len - len {
                return Err(DecodeError::Invalid("place of a chunk").into());
            }
            hasher.update(&chunk.data);
            io.write_all(&chunk.data).await?;
            len += chunk.data.len() as u64;
        }
        let end = FileEnd::decode(self.expect(reader, Kind::SnapshotFileEnd).await?)?;
        if end.file != position || end.checksum != hasher.digest() {
            return Err(DecodeError::Invalid("file checksum").into());
        }
        io.flush().await?;
        io.sync_all().await?;
        Ok(())
    }

    async fn expect(&self, reader: &mut ConnReader, kind: Kind) -> Result<Bytes, Error> {
        let body = timeout(self.stall_timeout, reader.next()).await.map_err(|_| Error::Silent)??;
        let mut body = body.ok_or(Error::Ended)?;
        match Kind::take(&mut body)? {
            found if found == kind => Ok(body),
            found => Err(DecodeError::Tag { what: "kind in a snapshot", tag: found as u8 }.into()),
        }
    }
}

/// Creates the directory together with what removes it: a transfer that is dropped in the middle of
/// this leaves nothing either.
async fn create_dir(path: PathBuf) -> io::Result<SnapshotDir> {
    let created = tokio::task::spawn_blocking(move || {
        std::fs::create_dir(&path)?;
        Ok(SnapshotDir::scratch(path))
    });
    created.await.map_err(io::Error::other)?
}

async fn sync_dir(path: PathBuf) -> io::Result<()> {
    let synced = tokio::task::spawn_blocking(move || std::fs::File::open(path)?.sync_all()).await;
    synced.map_err(io::Error::other)?
}
