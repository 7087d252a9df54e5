//! The log's only clock: elapsed time, for the side file's lag and for metrics. No stored byte and no answer depends on it.

use std::time::{Duration, Instant};

/// An instant of the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(Instant);

/// Now.
pub(super) fn now() -> Moment {
    Moment(Instant::now())
}

impl Moment {
    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    pub(super) fn until(self, later: Moment) -> Duration {
        later.0.saturating_duration_since(self.0)
    }
}
