//! What this node has applied, followed from apply: the index, the clocks, the waiters and watches, the leases.
//! The one observer of apply that proposing, reading, waiting and sweeping share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_machine::change::{Change, Head};
use hapax_machine::ids::LeaseTime;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::clock::NodeClock;
use crate::leases::Leases;
use crate::notify::{WAITERS_MAX, WATCHES_MAX, Waiters, Watches};
use crate::observer::{Applied, ApplyObserver};
use crate::state_source::StateSource;

/// What is applied here.
pub struct Tracker {
    clock: Arc<dyn NodeClock>,
    source: Arc<dyn StateSource>,
    index: watch::Sender<u64>,
    head: Mutex<(Head, Instant)>,
    waiters: Waiters,
    watches: Watches,
    leases: Mutex<Leases>,
    /// Whether a read index that was asked for since the start has been applied here.
    recovered: watch::Sender<bool>,
}

impl Tracker {
    /// Follows from the source's state on. Nothing may be applied before it is registered as an observer.
    pub fn new(clock: Arc<dyn NodeClock>, source: Arc<dyn StateSource>) -> Arc<Self> {
        let tracker = Self {
            head: Mutex::new((source.head(), clock.monotonic())),
            index: watch::Sender::new(0),
            waiters: Waiters::new(WAITERS_MAX),
            watches: Watches::new(WATCHES_MAX),
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

    /// Those who watch what happens to a tenant's operations.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// The leases of executing operations.
    pub(crate) fn leases(&self) -> MutexGuard<'_, Leases> {
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

    /// Whether it has, by now.
    pub(crate) fn is_recovered(&self) -> bool {
        *self.recovered.borrow()
    }

    /// Waits for [`Self::set_recovered`]; false at the deadline.
    pub(crate) async fn recovered(&self, deadline: Instant) -> bool {
        if self.is_recovered() {
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
            self.source.live(&mut |record| leases.observe(record, &*self.source));
        }
        self.moved(self.source.applied_index(), self.source.head());
    }

    fn observe_leases(&self, rows: &[Change]) {
        let mut leases = self.leases();
        for row in rows {
            match row {
                Change::Operation { record, .. } => leases.observe(record, &*self.source),
                Change::Namespace(record) => leases.observe_policy(record),
                Change::Epoch(record) => leases.observe_register(record),
                _ => {}
            }
        }
    }
}

impl ApplyObserver for Tracker {
    fn applied(&self, applied: &Applied<'_>) {
        let Applied { index, changes } = applied;
        self.observe_leases(&changes.rows);
        self.moved(*index, changes.head);
        self.waiters.changed(changes.rows.iter().filter_map(|row| match row {
            Change::Operation { record, .. } => Some(record.key()),
            _ => None,
        }));
        self.watches.changed(changes.events.iter().map(|event| event.tenant));
    }

    fn installed(&self) {
        self.reload();
        self.waiters.replaced();
        self.watches.replaced();
    }
}

/// Whole milliseconds, rounded up: for limits that must not end early.
fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use hapax_machine::Changes;
    use hapax_machine::clock::Clocks;
    use hapax_machine::ids::{TenantId, TenantTag};

    use super::*;
    use crate::fakes::{FakeState, ManualClock, event, executing, key, soon, tenant};

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
        let mut watch = tracker.watches().subscribe(&TenantTag::of(&tenant())).unwrap();
        let mut other = tracker.watches().subscribe(&TenantTag::of(&TenantId::new("other"))).unwrap();
        let rows = vec![Change::Operation { record: Box::new(executing(2, 11, 2_000)), was: None }];
        let events = vec![event(2)];
        tracker.applied(&Applied { index: 8, changes: &Changes { head: head_at(600), rows, events } });
        assert!(waiting.await.unwrap());
        subscription.changed().await;
        watch.changed().await;
        assert!(other.changed().now_or_never().is_none(), "nothing happened to this tenant's operations");
        assert_eq!(tracker.leases().len(), 2);
        state.replace(20, head_at(900), vec![executing(3, 30, 3_000)]);
        tracker.installed();
        subscription.changed().await;
        watch.changed().await;
        other.changed().await;
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
        let applied = Applied { index: 8, changes: &Changes { head: head_at(510), ..Changes::default() } };
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
