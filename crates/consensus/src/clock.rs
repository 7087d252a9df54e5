//! The seam of time: the only place of this crate that reads a wall clock.
//! Monotonic time is tokio's, so that a simulation that pauses it pauses everything.

use std::time::SystemTime;

use tokio::time::Instant;

/// Where a node gets its time from.
pub trait NodeClock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, as this node believes. It may jump either way.
    fn wall_ms(&self) -> u64;

    /// Time that only goes forward, from an arbitrary origin.
    fn monotonic(&self) -> Instant;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl NodeClock for SystemClock {
    fn wall_ms(&self) -> u64 {
        // A clock before 1970 is as wrong as can be; zero is the reading that moves nothing forward.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}
