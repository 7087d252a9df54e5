//! Who waits for a change of which operation: the waiters behind `wait_ms` and long-polls.
//! Bounded; woken by the apply worker, after the change can be read and before its proposer is answered.
//!
//! A waiter first subscribes, then reads the state, then waits. A change that the read did not see comes after the
//! subscription, so no wake-up is missed. A wake-up says "look again": it may also come for nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_machine::change::Change;
use hapax_machine::ids::OperationKey;
use tokio::sync::watch;

/// The most subscriptions at once, over all operations.
pub const WAITERS_MAX: usize = 65_536;

/// All subscriptions of one node.
#[derive(Debug, Clone, Default)]
pub struct Waiters(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Subscriptions in `slots`; read without the lock, so that applying costs nothing while nobody waits.
    count: AtomicUsize,
    slots: Mutex<HashMap<OperationKey, Slot>>,
}

#[derive(Debug)]
struct Slot {
    subscriptions: usize,
    changed: watch::Sender<()>,
}

impl Waiters {
    /// Subscribes to the changes of an operation, whether it exists yet or not; `None` where too many wait already.
    pub fn subscribe(&self, key: &OperationKey) -> Option<Subscription> {
        let mut slots = self.0.lock();
        // Only changed under the lock, so the limit holds exactly.
        if self.0.count.load(Ordering::SeqCst) >= WAITERS_MAX {
            return None;
        }
        self.0.count.fetch_add(1, Ordering::SeqCst);
        let slot = slots.entry(*key).or_insert_with(|| Slot { subscriptions: 0, changed: watch::Sender::new(()) });
        slot.subscriptions += 1;
        let changed = slot.changed.subscribe();
        Some(Subscription { changed, key: *key, waiters: Arc::clone(&self.0) })
    }

    /// Wakes those who wait for one of these rows. The rows can be read already.
    pub(crate) fn applied(&self, rows: &[Change]) {
        // A subscription that is entered after this load reads the state after it, and sees the rows there.
        if self.0.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let slots = self.0.lock();
        for row in rows {
            if let Change::Operation(record) = row
                && let Some(slot) = slots.get(&record.key())
            {
                slot.changed.send_replace(());
            }
        }
    }

    /// Wakes everybody: the whole state was replaced.
    pub(crate) fn replaced(&self) {
        for slot in self.0.lock().values() {
            slot.changed.send_replace(());
        }
    }

    /// The subscriptions at this moment.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::SeqCst)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<OperationKey, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscription to one operation; it ends when dropped.
#[derive(Debug)]
pub struct Subscription {
    changed: watch::Receiver<()>,
    key: OperationKey,
    waiters: Arc<Inner>,
}

impl Subscription {
    /// Waits for a change since the subscription, or since this was last awaited.
    pub async fn changed(&mut self) {
        // The slot, which holds the sender, lives as long as its last subscription: this one.
        let waited = self.changed.changed().await;
        debug_assert!(waited.is_ok(), "a subscribed slot was removed");
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut slots = self.waiters.lock();
        self.waiters.count.fetch_sub(1, Ordering::SeqCst);
        if let Some(slot) = slots.get_mut(&self.key) {
            slot.subscriptions -= 1;
            if slot.subscriptions == 0 {
                slots.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::fakes::{executing, key};

    #[tokio::test]
    async fn a_change_between_subscribing_and_waiting_is_not_missed() {
        let waiters = Waiters::default();
        let mut first = waiters.subscribe(&key(1)).unwrap();
        let mut second = waiters.subscribe(&key(1)).unwrap();
        let mut other = waiters.subscribe(&key(2)).unwrap();
        waiters.applied(&[Change::Operation(executing(1, 10, 1_000))]);
        first.changed().await;
        second.changed().await;
        assert!(other.changed().now_or_never().is_none(), "another operation changed");
        assert!(first.changed().now_or_never().is_none(), "one change wakes once");
        waiters.replaced();
        first.changed().await;
        other.changed().await;
    }

    #[tokio::test]
    async fn a_waiting_task_is_woken() {
        let waiters = Waiters::default();
        let mut subscription = waiters.subscribe(&key(1)).unwrap();
        let waiting = tokio::spawn(async move { subscription.changed().await });
        waiters.applied(&[Change::Operation(executing(1, 10, 1_000))]);
        waiting.await.unwrap();
        assert_eq!(waiters.count(), 0, "the subscription ended with its task");
    }

    #[test]
    fn the_number_of_waiters_is_bounded_and_dropping_gives_the_place_back() {
        let waiters = Waiters::default();
        let mut held: Vec<_> = (0..WAITERS_MAX).map(|n| waiters.subscribe(&key(n as u64 % 7)).unwrap()).collect();
        assert!(waiters.subscribe(&key(1)).is_none());
        held.pop();
        assert!(waiters.subscribe(&key(1)).is_some());
        drop(held);
        assert_eq!(waiters.count(), 0);
        assert!(waiters.0.lock().is_empty(), "no slot is left behind");
    }
}
