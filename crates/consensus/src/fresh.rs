//! How recent this node's own state certainly is: what answers from it rest on, that cross no ocean. **[safety]**
//!
//! State is *fresh* while a read index that this node began within the bound has been applied here. Everything that was
//! acknowledged anywhere before it was begun is in the state, so an answer is never older than the bound, measured from the moment
//! **before** the read index was begun. A node that is cut off confirms none, and stops answering at the bound, whatever it
//! believes of the others. Before the first one since the start there is no answer.
//!
//! Two clocks measure, and either one ends it: the monotonic clock, which no correction moves, and the wall clock, which goes on
//! where the whole machine was suspended and the monotonic clock stood still. A wall clock that jumps ahead costs one round.
//!
//! Renewed while somebody asks: a node that was not asked for a while begins no rounds, and the first one to ask again goes
//! through the log. So an idle cluster does nothing for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::clock::NodeClock;
use crate::config::Reads;
use crate::read::{ReadError, Reader};
use crate::tracker::Tracker;

/// Rounds go on for so long after the last time that somebody asked.
const ASKED_LATELY: Duration = Duration::from_secs(30);
/// How long one round may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// One instant on both clocks.
#[derive(Debug, Clone, Copy)]
struct Moment {
    monotonic: Instant,
    wall_ms: u64,
}

/// When this node's state was last certainly up to date.
pub(crate) struct Freshness {
    clock: Arc<dyn NodeClock>,
    tracker: Arc<Tracker>,
    settings: Reads,
    /// The moment before the newest read index was begun that has been applied here.
    confirmed: Mutex<Option<Moment>>,
    origin: Instant,
    /// When somebody last asked, in milliseconds after `origin`.
    asked_ms: AtomicU64,
    /// Whether no rounds are begun.
    idle: AtomicBool,
    wake: Notify,
}

impl Freshness {
    pub(crate) fn new(clock: Arc<dyn NodeClock>, tracker: Arc<Tracker>, settings: Reads) -> Arc<Self> {
        Arc::new(Self {
            origin: clock.monotonic(),
            clock,
            tracker,
            settings,
            confirmed: Mutex::default(),
            asked_ms: AtomicU64::new(0),
            idle: AtomicBool::new(true),
            wake: Notify::new(),
        })
    }

    /// What `take` gives of the applied state, if that is fresh.
    pub(crate) fn view<T>(&self, take: impl FnOnce() -> T) -> Option<T> {
        let now = self.now();
        self.note_asked(now);
        if !self.tracker.is_recovered() {
            return None;
        }
        // Before the state is taken: it must hold what was confirmed then, and not what is confirmed meanwhile.
        let confirmed = (*self.lock())?;
        if !self.holds(confirmed, now) {
            return None;
        }
        let taken = take();
        // Again, for a process that was stopped in between.
        self.holds(confirmed, self.now()).then_some(taken)
    }

    /// Reads as [`Reader::read`] does, and notes how recent that makes the state.
    pub(crate) async fn read(&self, reader: &Reader, deadline: Instant) -> Result<u64, ReadError> {
        let begun = self.now();
        let index = reader.read(deadline).await?;
        let mut confirmed = self.lock();
        if confirmed.is_none_or(|known| known.monotonic < begun.monotonic) {
            *confirmed = Some(begun);
        }
        Ok(index)
    }

    /// Begins a round as often as the settings say, while somebody asks, until `stopping`.
    pub(crate) async fn renew(self: Arc<Self>, reader: Reader, stopping: CancellationToken) {
        let run = async {
            loop {
                self.asked().await;
                let next = Instant::now() + self.settings.local_fact_renew;
                if let Err(error) = self.read(&reader, Instant::now() + PATIENCE).await {
                    tracing::debug!(%error, "this node's state was not confirmed");
                }
                sleep_until(next).await;
            }
        };
        stopping.run_until_cancelled(run).await;
    }

    /// Waits until somebody has asked lately.
    async fn asked(&self) {
        while !self.was_asked_lately() {
            self.idle.store(true, Ordering::SeqCst);
            // Who asked before that was not told to wake anybody.
            if !self.was_asked_lately() {
                self.wake.notified().await;
            }
            self.idle.store(false, Ordering::SeqCst);
        }
        self.idle.store(false, Ordering::SeqCst);
    }

    fn was_asked_lately(&self) -> bool {
        let asked_ms = self.asked_ms.load(Ordering::SeqCst);
        let asked_at = self.origin + Duration::from_millis(asked_ms);
        asked_ms > 0 && self.clock.monotonic().saturating_duration_since(asked_at) < ASKED_LATELY
    }

    fn note_asked(&self, now: Moment) {
        let since = now.monotonic.saturating_duration_since(self.origin);
        // Never 0, which means never.
        let asked_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
        self.asked_ms.store(asked_ms, Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    fn holds(&self, confirmed: Moment, now: Moment) -> bool {
        let monotonic = now.monotonic.saturating_duration_since(confirmed.monotonic);
        let wall = Duration::from_millis(now.wall_ms.saturating_sub(confirmed.wall_ms));
        monotonic.max(wall) <= self.settings.local_fact_max_staleness
    }

    fn now(&self) -> Moment {
        Moment { monotonic: self.clock.monotonic(), wall_ms: self.clock.wall_ms() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Moment>> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use hapax_machine::change::Head;

    use super::*;
    use crate::fakes::{Cluster, FakeState, Node, soon};
    use crate::observer::ApplyObserver;

    const BOUND: Duration = Reads::DEFAULT.local_fact_max_staleness;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn fresh(node: &Node, settings: Reads) -> Arc<Freshness> {
        Freshness::new(node.clock.clone(), Arc::clone(&node.tracker), settings)
    }

    fn start(node: &Node, tracker: &Arc<Tracker>) -> Reader {
        Reader::start(node.consensus.clone(), node.links.clone(), Arc::clone(tracker), node.stopping.clone())
    }

    fn shortly() -> Instant {
        Instant::now() + ms(80)
    }

    #[tokio::test]
    async fn state_is_fresh_up_to_the_bound_and_not_past_it() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.consensus.quorum.add_permits(1_000);
        let (reader, fresh) = (start(node, &node.tracker), fresh(node, Reads::DEFAULT));
        assert_eq!(fresh.view(|| ()), None, "nothing was confirmed yet");
        fresh.read(&reader, soon()).await.unwrap();
        assert_eq!(fresh.view(|| 7), Some(7));
        node.clock.advance(BOUND);
        assert_eq!(fresh.view(|| 7), Some(7), "just within");
        node.clock.advance(ms(1));
        assert_eq!(fresh.view(|| 7), None, "just past");
        fresh.read(&reader, soon()).await.unwrap();
        assert_eq!(fresh.view(|| 7), Some(7), "confirmed again");
    }

    /// The round takes a second: it says nothing about what happened in that second.
    #[tokio::test]
    async fn it_is_measured_from_before_the_round() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        let (reader, fresh) = (start(node, &node.tracker), fresh(node, Reads::DEFAULT));
        let reading = tokio::spawn({
            let (fresh, reader) = (Arc::clone(&fresh), reader.clone());
            async move { fresh.read(&reader, soon()).await }
        });
        node.consensus.reads.subscribe().wait_for(|reads| *reads >= 1).await.unwrap();
        node.clock.advance(ms(1_000));
        node.consensus.quorum.add_permits(1_000);
        tokio::time::timeout_at(soon(), reading).await.unwrap().unwrap().unwrap();
        node.clock.advance(BOUND - ms(1_000));
        assert_eq!(fresh.view(|| ()), Some(()));
        node.clock.advance(ms(1));
        assert_eq!(fresh.view(|| ()), None);
    }

    #[tokio::test]
    async fn before_recovery_nothing_is_fresh() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.consensus.quorum.add_permits(1_000);
        let reader = start(node, &node.tracker);
        let recovering = Tracker::new(node.clock.clone(), FakeState::new(0, Head::default(), Vec::new()));
        let fresh = Freshness::new(node.clock.clone(), Arc::clone(&recovering), Reads::DEFAULT);
        fresh.read(&reader, soon()).await.unwrap();
        assert_eq!(fresh.view(|| ()), None);
        recovering.set_recovered();
        assert_eq!(fresh.view(|| ()), Some(()));
    }

    #[tokio::test]
    async fn confirmed_and_not_applied_is_not_fresh() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.claim(1, 60_000).await;
        node.consensus.quorum.add_permits(1_000);
        let state = FakeState::new(0, Head::default(), Vec::new());
        let behind = Tracker::new(node.clock.clone(), state.clone());
        behind.set_recovered();
        let reader = start(node, &behind);
        let fresh = Freshness::new(node.clock.clone(), Arc::clone(&behind), Reads::DEFAULT);
        assert!(fresh.read(&reader, shortly()).await.is_err());
        assert_eq!(fresh.view(|| ()), None, "the index is confirmed, and is not applied here");
        state.replace(node.tracker.index(), Head::default(), Vec::new());
        behind.installed();
        fresh.read(&reader, soon()).await.unwrap();
        assert_eq!(fresh.view(|| ()), Some(()));
    }

    #[tokio::test]
    async fn a_round_that_fails_confirms_nothing() {
        let cluster = Cluster::new(3);
        let node = cluster.node(1);
        let (reader, fresh) = (start(node, &node.tracker), fresh(node, Reads::DEFAULT));
        assert!(fresh.read(&reader, shortly()).await.is_err(), "there is no quorum");
        assert_eq!(fresh.view(|| ()), None);
    }

    #[tokio::test]
    async fn a_process_that_was_stopped_answers_nothing_old() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.consensus.quorum.add_permits(1_000);
        let (reader, fresh) = (start(node, &node.tracker), fresh(node, Reads::DEFAULT));
        fresh.read(&reader, soon()).await.unwrap();
        let taken = fresh.view(|| node.clock.advance(Duration::from_hours(1)));
        assert_eq!(taken, None, "stopped while the state was taken");
        assert_eq!(fresh.view(|| ()), None);
    }

    /// A suspended machine's monotonic clock stands still; its wall clock does not.
    #[tokio::test]
    async fn a_machine_that_was_suspended_answers_nothing_old() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.consensus.quorum.add_permits(1_000);
        let (reader, fresh) = (start(node, &node.tracker), fresh(node, Reads::DEFAULT));
        fresh.read(&reader, soon()).await.unwrap();
        let wall_ms = node.clock.wall_ms();
        node.clock.set_wall_ms(wall_ms + BOUND.as_millis() as u64);
        assert_eq!(fresh.view(|| ()), Some(()));
        node.clock.set_wall_ms(wall_ms + BOUND.as_millis() as u64 + 1);
        assert_eq!(fresh.view(|| ()), None);
        node.clock.set_wall_ms(0);
        assert_eq!(fresh.view(|| ()), Some(()), "set back, the monotonic clock still counts");
        node.clock.advance(BOUND + ms(1));
        assert_eq!(fresh.view(|| ()), None);
    }

    /// An index that is confirmed while the state is taken says nothing about that state.
    #[tokio::test]
    async fn what_is_confirmed_later_does_not_make_an_old_state_fresh() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.consensus.quorum.add_permits(1_000);
        let (reader, fresh) = (start(node, &node.tracker), fresh(node, Reads::DEFAULT));
        fresh.read(&reader, soon()).await.unwrap();
        let taken = fresh.view(|| {
            node.clock.advance(BOUND + ms(1));
            *fresh.lock() = Some(fresh.now());
        });
        assert_eq!(taken, None);
        assert_eq!(fresh.view(|| ()), Some(()));
    }

    #[tokio::test]
    async fn it_is_renewed_while_somebody_asks_and_no_longer() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.consensus.quorum.add_permits(1_000_000);
        let reader = start(node, &node.tracker);
        let fresh = fresh(node, Reads { local_fact_renew: ms(2), ..Reads::DEFAULT });
        let mut reads = node.consensus.reads.subscribe();
        reads.wait_for(|reads| *reads == 1).await.unwrap();
        let renewing = tokio::spawn(Arc::clone(&fresh).renew(reader, node.stopping.clone()));
        // Nobody has asked: no more than the reader's own round at its start, however long one waits.
        let quiet = tokio::time::timeout(ms(60), reads.wait_for(|reads| *reads > 1)).await.is_err();
        assert!(quiet, "a round for nobody");
        assert_eq!(fresh.view(|| ()), None, "the first one goes through the log");
        reads.wait_for(|reads| *reads >= 5).await.unwrap();
        node.clock.advance(ms(1));
        while fresh.view(|| ()).is_none() {
            tokio::task::yield_now().await;
        }
        node.clock.advance(ASKED_LATELY);
        while !fresh.idle.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let before = *reads.borrow_and_update();
        let quiet = tokio::time::timeout(ms(60), reads.wait_for(|reads| *reads > before)).await.is_err();
        assert!(quiet, "a round for nobody");
        assert_eq!(fresh.view(|| ()), None, "the bound has passed");
        reads.wait_for(|reads| *reads > before).await.unwrap();
        node.stopping.cancel();
        renewing.await.unwrap();
    }
}
