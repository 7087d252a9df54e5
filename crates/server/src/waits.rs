//! Waiting for an operation to change: bounded apart from other requests, woken by changes, by time, and by the end of
//! the node.

use std::time::Duration;

use hapax_consensus::notify::Subscription;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::room::{Place, Room};

/// A lease that is taken over, or lapses without a sweep yet, ends without a change: so waiters look again when it
/// ends, but not in a tight loop.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(50);

/// The room for waiters. They hold a request each, and must not take the room of those who do not wait.
#[derive(Debug)]
pub(crate) struct Waits {
    room: Room,
    stop: CancellationToken,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Something may have changed.
    Look,
    /// The time that the caller gave is over, or the node stops.
    Over,
}

/// A place among the waiters of one row.
pub(crate) struct Wait {
    changed: Subscription,
    stop: CancellationToken,
    until: Instant,
    _place: Place,
}

impl Waits {
    pub(crate) fn new(room: Room, stop: CancellationToken) -> Self {
        Self { room, stop }
    }

    /// A place until `until`, if there is time and room; without one the caller gets what there is at once.
    pub(crate) fn enter(&self, until: Instant, subscribe: impl FnOnce() -> Option<Subscription>) -> Option<Wait> {
        if until <= Instant::now() || self.stop.is_cancelled() {
            return None;
        }
        let place = self.room.enter()?;
        Some(Wait { changed: subscribe()?, stop: self.stop.clone(), until, _place: place })
    }
}

impl Wait {
    /// Waits for a change, for the end of a lease that has `lease_remaining_ms` left, or for the end of the wait.
    pub(crate) async fn woken(&mut self, lease_remaining_ms: Option<u64>) -> Woken {
        let lease_ends =
            lease_remaining_ms.map(|remaining| Instant::now() + Duration::from_millis(remaining).max(LOOK_AGAIN_MIN));
        let wake = lease_ends.map_or(self.until, |ends| ends.min(self.until));
        tokio::select! {
            () = self.changed.changed() => Woken::Look,
            () = self.stop.cancelled() => Woken::Over,
            () = tokio::time::sleep_until(wake) => if wake == self.until { Woken::Over } else { Woken::Look },
        }
    }
}
