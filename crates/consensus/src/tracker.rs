//! What this node has applied, followed from apply: the index, the clocks, the waiters, the leases.
//! The one observer of apply that proposing, reading, waiting and sweeping share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_machine::change::{Change, Head};
use hapax_machine::ids::{LeaseTime, NamespaceName, TenantId};
use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::OperationRecord;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::clock::NodeClock;
use crate::notify::Waiters;
use crate::observer::{Applied, ApplyObserver};
use crate::sweep::LeaseQueue;

/// The applied state, for what is not told by a change: at the start and after a snapshot was installed.
pub trait StateSource: Send + Sync + 'static {
    /// The last applied index; 0 where nothing was applied.
    fn applied_index(&self) -> u64;
    /// The head at that index.
    fn head(&self) -> Head;
    /// What a lapse means in a namespace. Quick: it is asked while entries are applied.
    fn on_lapse(&self, tenant: &TenantId, namespace: &NamespaceName) -> OnLapse;
    /// Visits every executing operation.
    fn live(&self, visit: &mut dyn FnMut(&OperationRecord));
}

/// What is applied here.
pub struct Tracker {
    clock: Arc<dyn NodeClock>,
    source: Arc<dyn StateSource>,
    index: watch::Sender<u64>,
    head: Mutex<(Head, Instant)>,
    waiters: Waiters,
    leases: Mutex<LeaseQueue>,
    /// Whether a read index that was asked for since the start has been applied here.
    recovered: watch::Sender<bool>,
}

impl Tracker {
    /// Follows from the source's state on. Nothing may be applied before it is registered as an observer.
    pub fn new(clock: Arc<dyn NodeClock>, source: Arc<dyn StateSource>) -> Arc<Self> {
        let tracker = Self {
            head: Mutex::new((source.head(), clock.monotonic())),
            index: watch::Sender::new(0),
            waiters: Waiters::default(),
            leases: Mutex::default(),
            recovered: watch::Sender::new(false),
            clock,
            source,
        };
        tracker.reload();
        Arc::new(tracker)
    }

    /// The last applied index.
    pub fn index(&self) -> u64 {
        *self.index.borrow()
    }

    /// Waits until `index` is applied; false at the deadline.
    pub async fn reached(&self, index: u64, deadline: Instant) -> bool {
        if self.index() >= index {
            return true;
        }
        let mut applied = self.index.subscribe();
        matches!(timeout_at(deadline, applied.wait_for(|applied| *applied >= index)).await, Ok(Ok(_)))
    }

    /// The head at about the last applied index.
    pub fn head(&self) -> Head {
        self.lock_head().0
    }

    /// Those who wait for changes of operations.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// The leases that end by themselves, oldest deadline first.
    pub(crate) fn leases(&self) -> MutexGuard<'_, LeaseQueue> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lease time at an instant, if a leader has counted every moment since the last applied entry: no earlier than what
    /// lease time can be then.
    ///
    /// Without the time since that entry, a command on a cluster that was idle for a while would be over before its own
    /// entry's stamp.
    pub(crate) fn lease_time_by(&self, at: Instant) -> LeaseTime {
        let (head, applied_at) = *self.lock_head();
        head.clocks.lease_time.after(millis_up(at.saturating_duration_since(applied_at)))
    }

    /// Milliseconds since the last entry was applied.
    pub(crate) fn since_applied_ms(&self) -> u64 {
        let applied_at = self.lock_head().1;
        millis_up(self.clock.monotonic().saturating_duration_since(applied_at))
    }

    /// Since its start, this node has caught up with the others once.
    pub(crate) fn set_recovered(&self) {
        self.recovered.send_if_modified(|recovered| !std::mem::replace(recovered, true));
    }

    /// Waits for [`Self::set_recovered`]; false at the deadline.
    pub(crate) async fn recovered(&self, deadline: Instant) -> bool {
        if *self.recovered.borrow() {
            return true;
        }
        let mut recovered = self.recovered.subscribe();
        matches!(timeout_at(deadline, recovered.wait_for(|recovered| *recovered)).await, Ok(Ok(_)))
    }

    fn lock_head(&self) -> MutexGuard<'_, (Head, Instant)> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self, index: u64, head: Head) {
        *self.lock_head() = (head, self.clock.monotonic());
        self.index.send_replace(index);
    }

    fn reload(&self) {
        {
            let mut leases = self.leases();
            leases.clear();
            self.source.live(&mut |record| leases.observe(record, self.on_lapse(record)));
        }
        self.moved(self.source.applied_index(), self.source.head());
    }

    fn observe_leases(&self, rows: &[Change]) {
        let mut leases = self.leases();
        // A run mostly writes one namespace: its policy is looked up once, not once per row.
        let mut known: Option<(&OperationRecord, OnLapse)> = None;
        for row in rows {
            let Change::Operation(record) = row else { continue };
            let on_lapse = match known {
                Some((last, on_lapse)) if (&last.tenant, &last.namespace) == (&record.tenant, &record.namespace) => {
                    on_lapse
                }
                _ => self.on_lapse(record),
            };
            known = Some((record, on_lapse));
            leases.observe(record, on_lapse);
        }
    }

    fn on_lapse(&self, record: &OperationRecord) -> OnLapse {
        self.source.on_lapse(&record.tenant, &record.namespace)
    }
}

impl ApplyObserver for Tracker {
    fn applied(&self, applied: &Applied<'_>) {
        self.observe_leases(&applied.changes.rows);
        self.moved(applied.index, applied.changes.head);
        self.waiters.applied(&applied.changes.rows);
    }

    fn installed(&self) {
        self.reload();
        self.waiters.replaced();
    }
}

/// Whole milliseconds, rounded up: for limits that must not end early.
fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use hapax_machine::Changes;
    use hapax_machine::clock::Clocks;

    use super::*;
    use crate::fakes::{FakeState, ManualClock, executing, key, soon};

    fn head_at(lease_time: u64) -> Head {
        Head { clocks: Clocks { lease_time: LeaseTime(lease_time), ..Clocks::default() }, ..Head::default() }
    }

    #[tokio::test]
    async fn it_starts_from_the_state_and_follows_every_entry() {
        let clock = ManualClock::new();
        let state = FakeState::new(7, head_at(500), vec![executing(1, 10, 1_000)]);
        let tracker = Tracker::new(clock.clone(), state.clone());
        assert_eq!((tracker.index(), tracker.head()), (7, head_at(500)));
        assert_eq!(tracker.leases().len(), 1);
        assert!(!tracker.reached(8, Instant::now()).await);
        let waiting = tokio::spawn({
            let tracker = Arc::clone(&tracker);
            async move { tracker.reached(8, soon()).await }
        });
        let mut subscription = tracker.waiters().subscribe(&key(2)).unwrap();
        let rows = vec![Change::Operation(executing(2, 11, 2_000))];
        tracker.applied(&Applied { index: 8, changes: &Changes { head: head_at(600), rows } });
        assert!(waiting.await.unwrap());
        subscription.changed().await;
        assert_eq!(tracker.leases().len(), 2);
        state.replace(20, head_at(900), vec![executing(3, 30, 3_000)]);
        tracker.installed();
        subscription.changed().await;
        assert_eq!((tracker.index(), tracker.head(), tracker.leases().len()), (20, head_at(900), 1));
    }

    #[test]
    fn time_since_the_last_entry_is_added_to_what_a_deadline_means() {
        let clock = ManualClock::new();
        let tracker = Tracker::new(clock.clone(), FakeState::new(7, head_at(500), Vec::new()));
        let deadline = clock.monotonic() + Duration::from_millis(40);
        assert_eq!(tracker.lease_time_by(deadline), LeaseTime(540));
        clock.advance(Duration::from_mins(10));
        let deadline = clock.monotonic() + Duration::from_micros(40_001);
        assert_eq!(tracker.lease_time_by(deadline), LeaseTime(500 + 600_000 + 41));
        let applied = Applied { index: 8, changes: &Changes { head: head_at(510), rows: Vec::new() } };
        tracker.applied(&applied);
        assert_eq!(tracker.lease_time_by(clock.monotonic()), LeaseTime(510));
    }

    #[tokio::test]
    async fn recovery_is_waited_for() {
        let tracker = Tracker::new(ManualClock::new(), FakeState::new(0, Head::default(), Vec::new()));
        assert!(!tracker.recovered(Instant::now()).await);
        tracker.set_recovered();
        assert!(tracker.recovered(Instant::now()).await);
    }
}
