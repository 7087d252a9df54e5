//! Reads from any node: a read index that the leader confirmed with a quorum, then the wait until it is applied here.
//! One read index is asked for at a time, and it serves everybody who came before it was begun.
//!
//! **[safety]** A read may only use a read index that was begun after the read arrived: an older one may be from before
//! an answer that the reader has already seen. A round therefore takes its waiters first and asks then; who comes in
//! between waits for the next one. Leader leases are never used. A node that reaches no quorum answers nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_codec::peer::call::ReadIndex;
use hapax_codec::peer::raft::LogId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::seam::{Consensus, NoReadIndex, Role};
use crate::tracker::Tracker;
use crate::transport::Peers;
use crate::types::NodeId;

/// The most reads that wait for a read index at once.
pub const READS_MAX: usize = 16_384;
/// One round takes no longer than this: a leader that does not answer must not hold up those who could ask the next one.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// The pause after a round that failed; it doubles up to [`PAUSE_MAX`] and ends early when the leader changes.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Why a read cannot be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No quorum confirmed in time that this node is up to date.
    #[error("no quorum confirmed in time that this node is up to date")]
    Unavailable,
    /// Too many reads wait.
    #[error("too many reads wait")]
    Overloaded,
}

/// Asks another node for a read index.
pub trait AskLeader: Send + Sync + 'static {
    /// The leader's answer; `None` where there was none in time.
    fn read_index(&self, leader: NodeId, deadline: Instant) -> BoxFuture<'static, Option<ReadIndex>>;
}

impl AskLeader for Peers {
    fn read_index(&self, leader: NodeId, deadline: Instant) -> BoxFuture<'static, Option<ReadIndex>> {
        let peers = self.clone();
        async move { Self::read_index(&peers, leader, deadline).await.ok() }.boxed()
    }
}

/// Who waits for a read index.
enum Waiter {
    /// A read on this node, satisfied by whoever leads.
    Local(oneshot::Sender<LogId>),
    /// Another node, which asked this one as the leader.
    Peer(oneshot::Sender<Answer>),
}

type Answer = Result<LogId, NoReadIndex>;

impl Waiter {
    fn is_waiting(&self) -> bool {
        match self {
            Self::Local(sender) => !sender.is_closed(),
            Self::Peer(sender) => !sender.is_closed(),
        }
    }
}

struct Entry {
    waiter: Waiter,
    /// Given back when the entry is answered or dropped.
    _place: OwnedSemaphorePermit,
}

/// Makes reads current. Clones share one round.
#[derive(Clone)]
pub struct Reader {
    consensus: Arc<dyn Consensus>,
    tracker: Arc<Tracker>,
    places: Arc<Semaphore>,
    queue: mpsc::UnboundedSender<Entry>,
}

impl Reader {
    /// Starts the rounds, which run until `stopping`, and the catching-up after a start: once a read has succeeded, the
    /// tracker knows that this node has recovered.
    pub fn start(
        consensus: Arc<dyn Consensus>,
        ask: Arc<dyn AskLeader>,
        tracker: Arc<Tracker>,
        stopping: CancellationToken,
    ) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        let rounds = Rounds {
            consensus: Arc::clone(&consensus),
            ask,
            waiting,
            waiters: Vec::new(),
            stopping: stopping.clone(),
        };
        tokio::spawn(rounds.run());
        let reader = Self { consensus, tracker, places: Arc::new(Semaphore::new(READS_MAX)), queue };
        tokio::spawn({
            let reader = reader.clone();
            async move {
                stopping.run_until_cancelled(reader.recover()).await;
            }
        });
        reader
    }

    /// Waits until everything that was acknowledged before the call, anywhere, is applied here. A view taken afterwards
    /// is current. Returns the applied index.
    ///
    /// # Errors
    /// The deadline passed, or too many reads wait.
    pub async fn read(&self, deadline: Instant) -> Result<u64, ReadError> {
        let (sender, index) = oneshot::channel();
        self.enter(Waiter::Local(sender))?;
        let Ok(Ok(index)) = timeout_at(deadline, index).await else {
            return Err(ReadError::Unavailable);
        };
        if self.tracker.reached(index.index, deadline).await {
            Ok(self.tracker.index())
        } else {
            Err(ReadError::Unavailable)
        }
    }

    /// Answers a node that asks for a read index. The future may be dropped.
    pub async fn serve_read_index(&self) -> ReadIndex {
        let (sender, answer) = oneshot::channel();
        if let Role::Follower { leader } = self.consensus.role() {
            return ReadIndex::NotLeader(leader);
        }
        if self.enter(Waiter::Peer(sender)).is_err() {
            return ReadIndex::NoQuorum;
        }
        match answer.await {
            Ok(Ok(index)) => ReadIndex::At(Some(index)),
            Ok(Err(NoReadIndex::NotLeader(leader))) => ReadIndex::NotLeader(leader),
            Ok(Err(NoReadIndex::Unconfirmed)) | Err(_) => ReadIndex::NoQuorum,
        }
    }

    fn enter(&self, waiter: Waiter) -> Result<(), ReadError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| ReadError::Overloaded)?;
        // Rounds that have ended drop the entry, and its waiter sees that.
        let _ = self.queue.send(Entry { waiter, _place: place });
        Ok(())
    }

    async fn recover(&self) {
        while self.read(Instant::now() + ROUND_MAX).await.is_err() {
            // A read that finds no place comes back at once.
            sleep_until(Instant::now() + PAUSE_MAX).await;
        }
        self.tracker.set_recovered();
    }
}

struct Rounds {
    consensus: Arc<dyn Consensus>,
    ask: Arc<dyn AskLeader>,
    waiting: mpsc::UnboundedReceiver<Entry>,
    /// Bounded by the reader's places.
    waiters: Vec<Entry>,
    stopping: CancellationToken,
}

impl Rounds {
    async fn run(mut self) {
        let stopping = self.stopping.clone();
        stopping.run_until_cancelled(self.rounds()).await;
    }

    async fn rounds(&mut self) {
        let mut pause = Duration::ZERO;
        loop {
            if self.waiters.is_empty() {
                let Some(entry) = self.waiting.recv().await else {
                    return;
                };
                self.waiters.push(entry);
            }
            // From here on nobody is added until the round has ended.
            while let Ok(entry) = self.waiting.try_recv() {
                self.waiters.push(entry);
            }
            let role = self.consensus.role();
            self.dismiss(role);
            if self.waiters.is_empty() {
                continue;
            }
            let began = Instant::now();
            let answer = timeout(ROUND_MAX, self.ask(role)).await.unwrap_or(Err(NoReadIndex::Unconfirmed));
            metrics::histogram!("hapax_read_index_duration_seconds").record(began.elapsed());
            let confirmed = answer.is_ok();
            self.answer(answer);
            pause = if confirmed { Duration::ZERO } else { (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) };
            if !confirmed {
                tokio::select! {
                    () = self.consensus.role_changed(role) => {}
                    () = sleep_until(Instant::now() + pause) => {}
                }
            }
        }
    }

    async fn ask(&self, role: Role) -> Answer {
        match role {
            Role::Leader { .. } => self.consensus.read_index().await,
            Role::Follower { leader: None } => Err(NoReadIndex::NotLeader(None)),
            Role::Follower { leader: Some(leader) } => {
                let answer = self.ask.read_index(leader, Instant::now() + ROUND_MAX).await;
                match answer {
                    Some(ReadIndex::At(Some(index))) => Ok(index),
                    Some(ReadIndex::NotLeader(leader)) => Err(NoReadIndex::NotLeader(leader)),
                    // A leader has at least the entry that began its term: it cannot mean an empty log.
                    Some(ReadIndex::At(None) | ReadIndex::NoQuorum) | None => Err(NoReadIndex::Unconfirmed),
                }
            }
        }
    }

    /// Lets those go who have stopped waiting, and peers that asked the wrong node.
    fn dismiss(&mut self, role: Role) {
        for entry in std::mem::take(&mut self.waiters) {
            match (entry.waiter, role) {
                (Waiter::Peer(sender), Role::Follower { leader }) => {
                    // Whoever has gone needs no answer.
                    let _ = sender.send(Err(NoReadIndex::NotLeader(leader)));
                }
                (waiter, _) if waiter.is_waiting() => self.waiters.push(Entry { waiter, ..entry }),
                _ => {}
            }
        }
    }

    /// Reads on this node go on waiting when a round fails; peers decide for themselves. Peers are only here in a round
    /// that this node led.
    fn answer(&mut self, answer: Answer) {
        for entry in std::mem::take(&mut self.waiters) {
            match (entry.waiter, answer) {
                // Whoever has gone needs no answer.
                (Waiter::Peer(sender), answer) => drop(sender.send(answer)),
                (Waiter::Local(sender), Ok(index)) => drop(sender.send(index)),
                (waiter, Err(_)) => self.waiters.push(Entry { waiter, ..entry }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{Cluster, Link, Node, soon};

    fn start(node: &Arc<Node>) -> Reader {
        let (consensus, ask, tracker) = (node.consensus.clone(), node.links.clone(), Arc::clone(&node.tracker));
        let reader = Reader::start(consensus, ask, tracker, node.stopping.clone());
        *node.reader.lock().unwrap() = Some(reader.clone());
        reader
    }

    /// The reader's own read at its start has begun its round, and waits for the quorum.
    async fn first_round(node: &Node) {
        node.consensus.reads.subscribe().wait_for(|reads| *reads == 1).await.unwrap();
    }

    async fn finish<T>(task: tokio::task::JoinHandle<T>) -> T {
        tokio::time::timeout_at(soon(), task).await.expect("the read did not end").unwrap()
    }

    fn shortly() -> Instant {
        Instant::now() + Duration::from_millis(80)
    }

    #[tokio::test]
    async fn a_read_never_uses_a_round_that_was_begun_before_it() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        let reader = start(node);
        first_round(node).await;
        // An answer that a reader may know of, after the round took its index.
        node.claim(1, 60_000).await;
        let late = tokio::spawn({
            let reader = reader.clone();
            async move { reader.read(soon()).await }
        });
        // The first round is confirmed; the read that came during it must not be satisfied by that.
        node.consensus.quorum.add_permits(1);
        node.consensus.reads.subscribe().wait_for(|reads| *reads == 2).await.unwrap();
        assert!(!late.is_finished());
        node.consensus.quorum.add_permits(1);
        assert_eq!(finish(late).await, Ok(node.tracker.index()));
    }

    #[tokio::test]
    async fn one_round_serves_all_who_came_before_it() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        let reader = start(node);
        first_round(node).await;
        let entered = READS_MAX - reader.places.available_permits();
        let reads: Vec<_> = (0..100)
            .map(|_| {
                let reader = reader.clone();
                tokio::spawn(async move { reader.read(soon()).await })
            })
            .collect();
        while READS_MAX - reader.places.available_permits() < entered + 100 {
            tokio::task::yield_now().await;
        }
        node.consensus.quorum.add_permits(2);
        for read in reads {
            assert!(finish(read).await.is_ok());
        }
        assert_eq!(*node.consensus.reads.borrow(), 2, "the start's own round, and one for all");
        assert_eq!(reader.places.available_permits(), READS_MAX, "every place was given back");
    }

    #[tokio::test]
    async fn a_follower_asks_the_leader_and_waits_until_it_has_applied_that_much() {
        let cluster = Cluster::new(2);
        let (leader, follower) = (cluster.node(1), cluster.node(2));
        start(leader);
        leader.claim(1, 60_000).await;
        leader.consensus.quorum.add_permits(1_000);
        let reader = start(follower);
        let index = reader.read(soon()).await.unwrap();
        assert!(index >= leader.tracker.index());
        assert!(follower.tracker.recovered(soon()).await, "the start's own read has succeeded");
        assert_eq!(*follower.consensus.reads.borrow(), 0, "its own word counts for nothing");
    }

    #[tokio::test]
    async fn applying_behind_the_index_is_waited_for() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.claim(1, 60_000).await;
        let state = crate::fakes::FakeState::new(0, hapax_machine::change::Head::default(), Vec::new());
        let behind = Tracker::new(node.clock.clone(), state.clone());
        node.consensus.quorum.add_permits(1_000);
        let reader =
            Reader::start(node.consensus.clone(), node.links.clone(), Arc::clone(&behind), node.stopping.clone());
        assert_eq!(reader.read(shortly()).await, Err(ReadError::Unavailable), "nothing is applied here");
        state.replace(1, hapax_machine::change::Head::default(), Vec::new());
        crate::observer::ApplyObserver::installed(&*behind);
        assert_eq!(reader.read(soon()).await, Ok(1));
    }

    #[tokio::test]
    async fn without_a_quorum_nothing_is_answered() {
        let cluster = Cluster::new(3);
        let (leader, follower) = (cluster.node(1), cluster.node(2));
        let cut_off = start(leader);
        assert_eq!(cut_off.read(shortly()).await, Err(ReadError::Unavailable));
        follower.links.next(vec![Link::Down; 1_000]);
        let reader = start(follower);
        assert_eq!(reader.read(shortly()).await, Err(ReadError::Unavailable));
        follower.consensus.set_role(Role::Follower { leader: None });
        assert_eq!(reader.read(shortly()).await, Err(ReadError::Unavailable));
    }

    #[tokio::test]
    async fn a_read_goes_on_with_the_next_leader() {
        let cluster = Cluster::new(2);
        let (deposed, elected) = (cluster.node(1), cluster.node(2));
        start(elected);
        elected.consensus.quorum.add_permits(1_000);
        deposed.consensus.set_role(Role::Follower { leader: None });
        let reader = start(deposed);
        let read = tokio::spawn(async move { reader.read(soon()).await });
        elected.consensus.set_role(Role::Leader { term: 2 });
        deposed.consensus.set_role(Role::Follower { leader: Some(2) });
        assert!(finish(read).await.is_ok());
    }

    #[tokio::test]
    async fn peers_are_answered_by_a_leader_only() {
        let cluster = Cluster::new(3);
        let node = cluster.node(2);
        let reader = start(node);
        assert_eq!(reader.serve_read_index().await, ReadIndex::NotLeader(Some(1)));
        node.consensus.set_role(Role::Leader { term: 5 });
        node.consensus.quorum.add_permits(1_000);
        assert_eq!(reader.serve_read_index().await, ReadIndex::At(Some(LogId { term: 5, index: 0 })));
    }

    #[tokio::test]
    async fn the_number_of_reads_is_bounded() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        let reader = start(node);
        first_round(node).await;
        let mut waiting = Vec::new();
        while reader.places.available_permits() > 0 {
            let (sender, receiver) = oneshot::channel();
            reader.enter(Waiter::Local(sender)).unwrap();
            waiting.push(receiver);
        }
        assert_eq!(reader.read(soon()).await, Err(ReadError::Overloaded));
        assert_eq!(reader.serve_read_index().await, ReadIndex::NoQuorum);
        // Those who stop waiting give their places back with the next round.
        drop(waiting);
        node.consensus.quorum.add_permits(1_000);
        while reader.places.available_permits() < READS_MAX {
            tokio::task::yield_now().await;
        }
        assert!(reader.read(soon()).await.is_ok());
    }
}
