//! The time of a simulation: one monotonic clock for all, which stands still between steps, and a wall clock for each node.
//! `machine.c` keeps the first; the second is the first plus what the nemesis added to it.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use hapax_consensus::clock::NodeClock;

/// What all wall clocks show at the beginning.
pub const WALL_MS: u64 = 1_790_000_000_000;
/// The time that one step takes.
pub const STEP: Duration = Duration::from_millis(1);

static BEGAN: OnceLock<Instant> = OnceLock::new();

/// Milliseconds since the beginning.
pub fn now_ms() -> u64 {
    let began = *BEGAN.get_or_init(Instant::now);
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Moves the clock on by one step: nobody waits, see `machine.c`.
pub fn pass() {
    std::thread::sleep(STEP);
}

/// Whether this process is a simulated machine.
pub fn is_simulated() -> bool {
    let before = Instant::now();
    // On a real machine time passes, if only while another thread runs.
    (0..1_000).all(|_| {
        std::thread::yield_now();
        before == Instant::now()
    })
}

/// A node's clocks. Clones are the same clocks.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    off_ms: Arc<AtomicI64>,
}

impl Clock {
    /// From now on the wall clock differs so much from the true one.
    pub fn set_off(&self, off_ms: i64) {
        self.off_ms.store(off_ms, Ordering::SeqCst);
    }
}

impl NodeClock for Clock {
    fn wall_ms(&self) -> u64 {
        (WALL_MS + now_ms()).saturating_add_signed(self.off_ms.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> tokio::time::Instant {
        tokio::time::Instant::now()
    }
}
