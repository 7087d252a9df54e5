//! Who waits for a change of what: the waiters for one operation (`wait_ms`, long-polls), and the watchers of a tenant's events.
//! Bounded; woken by the apply worker, after the change can be read and before its proposer is answered.
//!
//! Whoever waits first subscribes, then reads the state, then waits. A change that the read did not see comes after the
//! subscription, so no wake-up is missed. A wake-up says "look again": it may also come for nothing, and many changes may
//! share one. It carries nothing, so that whoever is slow costs no more than their place.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_machine::ids::{OperationKey, TenantTag};
use tokio::sync::watch;

/// The most subscriptions to operations at once, over all operations.
pub const WAITERS_MAX: usize = 65_536;
/// The most watches at once, over all tenants.
pub const WATCHES_MAX: usize = 4_096;

/// What can be waited for.
pub trait Subject: Copy + Eq + Hash + fmt::Debug + Send + 'static {}

impl Subject for OperationKey {}
impl Subject for TenantTag {}

/// All subscriptions of one node to subjects of one kind. Clones are the same.
#[derive(Debug, Clone)]
pub struct Waiters<K: Subject = OperationKey>(Arc<Inner<K>>);

/// All watches of one node.
pub type Watches = Waiters<TenantTag>;

#[derive(Debug)]
struct Inner<K> {
    most: usize,
    /// Subscriptions in `slots`; read without the lock, so that applying costs nothing while nobody waits.
    count: AtomicUsize,
    slots: Mutex<HashMap<K, Slot>>,
}

#[derive(Debug)]
struct Slot {
    subscriptions: usize,
    changed: watch::Sender<()>,
}

impl<K: Subject> Waiters<K> {
    /// Room for `most` subscriptions.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner { most, count: AtomicUsize::new(0), slots: Mutex::default() }))
    }

    /// Subscribes to the changes of a subject, whether it exists yet or not; `None` where too many wait already.
    pub fn subscribe(&self, subject: &K) -> Option<Subscription<K>> {
        let mut slots = self.0.lock();
        // Only changed under the lock, so the limit holds exactly.
        if self.0.count.load(Ordering::SeqCst) >= self.0.most {
            return None;
        }
        self.0.count.fetch_add(1, Ordering::SeqCst);
        let slot =
            slots.entry(*subject).or_insert_with(|| Slot { subscriptions: 0, changed: watch::Sender::new(()) });
        slot.subscriptions += 1;
        let changed = slot.changed.subscribe();
        Some(Subscription { changed, subject: *subject, waiters: Arc::clone(&self.0) })
    }

    /// Wakes those who wait for one of these. What has changed can be read already.
    pub(crate) fn changed(&self, subjects: impl Iterator<Item = K>) {
        // A subscription that is entered after this load reads the state after it, and sees the changes there.
        if self.0.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let slots = self.0.lock();
        let mut last = None;
        for subject in subjects {
            // What changes together often has one subject: it is woken once.
            if last.replace(subject) != Some(subject)
                && let Some(slot) = slots.get(&subject)
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

impl<K> Inner<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscription to one subject; it ends when dropped.
#[derive(Debug)]
pub struct Subscription<K: Subject = OperationKey> {
    changed: watch::Receiver<()>,
    subject: K,
    waiters: Arc<Inner<K>>,
}

/// A watch of a tenant's events.
pub type Watch = Subscription<TenantTag>;

impl<K: Subject> Subscription<K> {
    /// Waits for a change since the subscription, or since this was last awaited.
    pub async fn changed(&mut self) {
        // The slot, which holds the sender, lives as long as its last subscription: this one.
        let waited = self.changed.changed().await;
        debug_assert!(waited.is_ok(), "a subscribed slot was removed");
    }
}

impl<K: Subject> Drop for Subscription<K> {
    fn drop(&mut self) {
        let mut slots = self.waiters.lock();
        self.waiters.count.fetch_sub(1, Ordering::SeqCst);
        if let Some(slot) = slots.get_mut(&self.subject) {
            slot.subscriptions -= 1;
            if slot.subscriptions == 0 {
                slots.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::fakes::key;

    fn waiters() -> Waiters {
        Waiters::new(WAITERS_MAX)
    }

    #[tokio::test]
    async fn a_change_between_subscribing_and_waiting_is_not_missed() {
        let waiters = waiters();
        let mut first = waiters.subscribe(&key(1)).unwrap();
        let mut second = waiters.subscribe(&key(1)).unwrap();
        let mut other = waiters.subscribe(&key(2)).unwrap();
        waiters.changed([key(1), key(1)].into_iter());
        first.changed().await;
        second.changed().await;
        assert!(other.changed().now_or_never().is_none(), "another operation changed");
        assert!(first.changed().now_or_never().is_none(), "one change wakes once");
        waiters.replaced();
        first.changed().await;
        other.changed().await;
    }

    #[tokio::test]
    async fn everybody_who_is_meant_is_woken() {
        let waiters = waiters();
        let mut waiting: Vec<_> = (1..=3).map(|n| waiters.subscribe(&key(n)).unwrap()).collect();
        waiters.changed([key(1), key(3), key(1), key(9)].into_iter());
        assert!(waiting[0].changed().now_or_never().is_some());
        assert!(waiting[1].changed().now_or_never().is_none());
        assert!(waiting[2].changed().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_waiting_task_is_woken() {
        let waiters = waiters();
        let mut subscription = waiters.subscribe(&key(1)).unwrap();
        let waiting = tokio::spawn(async move { subscription.changed().await });
        waiters.changed(std::iter::once(key(1)));
        waiting.await.unwrap();
        assert_eq!(waiters.count(), 0, "the subscription ended with its task");
    }

    #[test]
    fn the_number_of_waiters_is_bounded_and_dropping_gives_the_place_back() {
        let waiters = waiters();
        let mut held: Vec<_> = (0..WAITERS_MAX).map(|n| waiters.subscribe(&key(n as u64 % 7)).unwrap()).collect();
        assert!(waiters.subscribe(&key(1)).is_none());
        held.pop();
        assert!(waiters.subscribe(&key(1)).is_some());
        drop(held);
        assert_eq!(waiters.count(), 0);
        assert!(waiters.0.lock().is_empty(), "no slot is left behind");
    }
}
