//! openraft's log storage over one group of the log store.
//! Owns the translation of entries, votes and errors; the order and durability are the store's.
//!
//! What openraft relies on, and who keeps it:
//! - `append` returns once the entries are readable, and reports after the sync: [`GroupLog::append`].
//! - A vote is durable before `save_vote` returns: it waits for the store's callback.
//! - Truncations, purges and the committed mark keep their place in the one write-ahead log.
//! - **Nothing is purged that the state on disk does not hold**: [`LogAdapter::purge`] makes sure of it itself.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use futures::stream;
use hapax_codec::{log as bytes_of, membership};
use hapax_store::log::{Done, GroupLog, LogError};
use hapax_store::seam::StorageFault;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend};
use tokio::sync::oneshot;

use crate::tail::Tail;
use crate::types::{CommittedLeaderId, Entry, LogId, Membership, PeerNode, Proposal, TypeConfig, Vote};

/// Payload bytes read from the log at once: what one message to a follower or one round of applying holds in memory.
const READ_BYTES_MAX: usize = 8 << 20;

/// Makes sure that the state on disk holds everything up to an index, before the log forgets it.
pub trait Durable: Send + Sync + 'static {
    /// Returns once the state as it is on disk has applied `index`.
    ///
    /// # Errors
    /// The state is behind `index` even after a flush, or its disk failed.
    fn ensure(&self, index: u64) -> Result<(), io::Error>;
}

/// The log of one group, as openraft sees it. Clones read and write the same log.
#[derive(Clone)]
pub struct LogAdapter {
    log: GroupLog,
    state: Arc<dyn Durable>,
    tail: Tail,
}

impl LogAdapter {
    /// Wraps a group's log; `state` is asked before each purge, and `tail` is told where the log ends.
    pub fn new(log: GroupLog, state: Arc<dyn Durable>, tail: Tail) -> Self {
        Self { log, state, tail }
    }

    /// The entries of `range` that the log holds from `from` on, as many as one read gives; empty at the end.
    fn read(&self, from: u64, to: u64) -> Result<Vec<Entry>, io::Error> {
        let read = self.log.entries(from..to, READ_BYTES_MAX).map_err(error)?;
        read.into_iter().map(entry_from_log).collect()
    }
}

/// How a request ended, for a caller that waits for it.
type Waited = oneshot::Receiver<Result<(), StorageFault>>;

/// The callback of a request that its caller waits for.
fn waiting() -> (Done, Waited) {
    let (done, waited) = oneshot::channel();
    // The caller may have been dropped with its task; then nobody needs to know.
    (Box::new(move |result| drop(done.send(result))), waited)
}

async fn durable(waited: Waited) -> Result<(), io::Error> {
    match waited.await {
        Ok(result) => result.map_err(fault),
        Err(_) => Err(io::Error::other("the log ended before it was durable")),
    }
}

impl RaftLogStorage<TypeConfig> for LogAdapter {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        Ok(LogState {
            last_purged_log_id: self.log.purged().map(id_from_log),
            last_log_id: self.log.last().map(id_from_log),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let (done, waited) = waiting();
        self.log.save_vote(vote_to_log(vote), done).map_err(error)?;
        durable(waited).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        committed.map_or(Ok(()), |id| self.log.save_committed(id_to_log(id)).map_err(error))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        // The mark may be ahead of the log where a snapshot was about to be installed: openraft would then look for
        // entries that never came this way. What is not in the log is learned from the leader again.
        let last = self.log.last();
        let held = |id: &bytes_of::LogId| last.is_some_and(|last| last.index >= id.index);
        Ok(self.log.committed().filter(held).map(id_from_log))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(entry_to_log).collect::<Result<Vec<_>, _>>()?;
        let Some(last) = entries.last().map(|entry| entry.id.index) else {
            callback.io_completed(Ok(()));
            return Ok(());
        };
        let done = Box::new(move |result: Result<(), StorageFault>| callback.io_completed(result.map_err(fault)));
        self.log.append(entries, done).map_err(error)?;
        self.tail.appended(last);
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        self.log.truncate_after(last_log_id.map(|id| id.index)).map_err(error)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.state.ensure(log_id.index)?;
        // Its place in the write-ahead log is enough; openraft does not wait for it to be durable.
        self.log.purge(id_to_log(log_id), Box::new(|_| ())).map_err(error)
    }
}

impl RaftLogReader<TypeConfig> for LogAdapter {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let (from, to) = bounds(&range);
        let mut all = self.read(from, to)?;
        while let Some(next) = all.last().map(|last| last.log_id.index + 1).filter(|next| *next < to) {
            let more = self.read(next, to)?;
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        Ok(all)
    }

    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        let log = self.clone();
        // Piece by piece, so that a node that is far behind does not hold all it has to apply in memory.
        let pieces = stream::unfold(Some(from), move |next| {
            let log = log.clone();
            let piece = next.filter(|next| *next < to).map(|next| (log.read(next, to), next));
            async move {
                let (read, _) = piece?;
                match read {
                    Ok(entries) => {
                        let next = entries.last().map(|last| last.log_id.index + 1);
                        Some((entries.into_iter().map(Ok).collect::<Vec<_>>(), next))
                    }
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        Box::pin(futures::StreamExt::flat_map(pieces, stream::iter))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read(start, end)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log.vote().map(vote_from_log))
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

fn error(error: LogError) -> io::Error {
    io::Error::other(error)
}

fn fault(fault: StorageFault) -> io::Error {
    io::Error::other(fault)
}

/// The log id as the log store keeps it. A term has one leader, so the leader's id is not recorded.
pub(crate) fn id_to_log(id: LogId) -> bytes_of::LogId {
    bytes_of::LogId { term: id.leader_id.term, node: 0, index: id.index }
}

/// The log id as openraft sees it.
pub(crate) fn id_from_log(id: bytes_of::LogId) -> LogId {
    LogId::new(CommittedLeaderId::new(id.term), id.index)
}

fn vote_to_log(vote: &Vote) -> bytes_of::Vote {
    bytes_of::Vote { term: vote.leader_id.term, node: vote.leader_id.voted_for, committed: vote.committed }
}

fn vote_from_log(vote: bytes_of::Vote) -> Vote {
    if vote.committed { Vote::new_committed(vote.term, vote.node) } else { Vote::new(vote.term, vote.node) }
}

fn entry_to_log(entry: Entry) -> Result<bytes_of::Entry, io::Error> {
    let (kind, payload) = match entry.payload {
        EntryPayload::Blank => (bytes_of::EntryKind::Blank, Bytes::new()),
        EntryPayload::Normal(Proposal(payload)) => (bytes_of::EntryKind::Normal, payload),
        EntryPayload::Membership(members) => {
            let payload = membership_to_bytes(&members).encode().map_err(io::Error::other)?;
            (bytes_of::EntryKind::Membership, payload)
        }
    };
    Ok(bytes_of::Entry { id: id_to_log(entry.log_id), kind, payload })
}

fn entry_from_log(entry: bytes_of::Entry) -> Result<Entry, io::Error> {
    let payload = match entry.kind {
        bytes_of::EntryKind::Blank => EntryPayload::Blank,
        bytes_of::EntryKind::Normal => EntryPayload::Normal(Proposal(entry.payload)),
        bytes_of::EntryKind::Membership => {
            let stored = membership::Membership::decode(&entry.payload).map_err(io::Error::other)?;
            EntryPayload::Membership(membership_from_bytes(stored)?)
        }
    };
    Ok(Entry { log_id: id_from_log(entry.id), payload })
}

/// The membership as it is stored.
pub(crate) fn membership_to_bytes(members: &Membership) -> membership::Membership {
    let member = |node: &PeerNode| membership::Member {
        addr: node.addr.clone(),
        region: node.region.clone(),
        client_url: node.client_url.clone(),
        data: node.data,
    };
    membership::Membership {
        sets: members.get_joint_config().clone(),
        nodes: members.nodes().map(|(id, node)| (*id, member(node))).collect(),
    }
}

/// The membership as openraft sees it. One that no cluster can have is an error: it was never stored by this program.
pub(crate) fn membership_from_bytes(stored: membership::Membership) -> Result<Membership, io::Error> {
    if stored.sets.is_empty() && stored.nodes.is_empty() {
        return Ok(Membership::default());
    }
    let node = |member: membership::Member| PeerNode {
        addr: member.addr,
        region: member.region,
        client_url: member.client_url,
        data: member.data,
    };
    let nodes = stored.nodes.into_iter().map(|(id, member)| (id, node(member)));
    Membership::new(stored.sets, nodes.collect::<std::collections::BTreeMap<_, _>>()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use hapax_store::log::{MemoryDisk, OpenOptions};
    use openraft::storage::RaftLogStorageExt;

    use super::*;

    /// A state on disk that stands at an index, and what it was asked for.
    struct Flushed {
        index: u64,
        asked: Mutex<Vec<u64>>,
    }

    impl Durable for Flushed {
        fn ensure(&self, index: u64) -> Result<(), io::Error> {
            self.asked.lock().unwrap().push(index);
            if index <= self.index { Ok(()) } else { Err(io::Error::other("behind")) }
        }
    }

    fn id(index: u64) -> LogId {
        LogId::new(CommittedLeaderId::new(1), index)
    }

    fn normal(index: u64, payload: Vec<u8>) -> Entry {
        Entry { log_id: id(index), payload: EntryPayload::Normal(Proposal(payload.into())) }
    }

    fn adapter(flushed: u64) -> (LogAdapter, Arc<Flushed>, hapax_store::log::LogStore) {
        let store = MemoryDisk::new().open(OpenOptions::new(Arc::new(|fault| panic!("{fault}")))).unwrap();
        let state = Arc::new(Flushed { index: flushed, asked: Mutex::default() });
        (LogAdapter::new(store.group(0).unwrap(), Arc::clone(&state) as _, Tail::default()), state, store)
    }

    #[tokio::test]
    async fn nothing_is_purged_that_the_state_on_disk_does_not_hold() {
        let (mut log, state, _store) = adapter(3);
        log.blocking_append((0..6).map(|index| normal(index, vec![7]))).await.unwrap();
        log.purge(id(3)).await.unwrap();
        assert!(log.purge(id(4)).await.is_err());
        assert_eq!(*state.asked.lock().unwrap(), [3, 4]);
        let left = log.try_get_log_entries(0..).await.unwrap();
        assert_eq!(left.iter().map(|entry| entry.log_id.index).collect::<Vec<_>>(), [4, 5]);
    }

    #[tokio::test]
    async fn every_kind_of_entry_comes_back_as_it_was() {
        let (mut log, _state, _store) = adapter(0);
        let members = Membership::new_with_defaults(vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])], [4]);
        let entries = vec![
            Entry { log_id: id(0), payload: EntryPayload::Membership(members) },
            Entry { log_id: id(1), payload: EntryPayload::Blank },
            normal(2, b"batch".to_vec()),
        ];
        log.blocking_append(entries.clone()).await.unwrap();
        assert_eq!(log.try_get_log_entries(0..3).await.unwrap(), entries);
    }

    /// One read holds a bounded number of bytes; what asks for all gets all, what may stop early does, never empty.
    #[tokio::test]
    async fn long_ranges_are_read_in_pieces() {
        let (mut log, _state, _store) = adapter(0);
        let large = || vec![1; READ_BYTES_MAX / 2 + 1];
        log.blocking_append((0..4).map(|index| normal(index, large()))).await.unwrap();
        assert_eq!(log.limited_get_log_entries(0, 4).await.unwrap().len(), 1);
        assert_eq!(log.try_get_log_entries(0..4).await.unwrap().len(), 4);
        let streamed: Vec<_> = futures::StreamExt::collect(log.entries_stream(1..4).await).await;
        let indexes: Vec<_> = streamed.into_iter().map(|entry| entry.unwrap().log_id.index).collect();
        assert_eq!(indexes, [1, 2, 3]);
    }

    /// A mark beyond the log is from before a snapshot that was never installed.
    #[tokio::test]
    async fn a_committed_mark_beyond_the_log_is_not_believed() {
        let (mut log, _state, _store) = adapter(0);
        log.blocking_append([normal(0, vec![1])]).await.unwrap();
        log.save_committed(Some(id(9))).await.unwrap();
        assert_eq!(log.read_committed().await.unwrap(), None);
        log.save_committed(Some(id(0))).await.unwrap();
        assert_eq!(log.read_committed().await.unwrap(), Some(id(0)));
    }
}
