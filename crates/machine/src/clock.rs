//! The two replicated clocks. Nothing below the proposer reads a clock: time enters as a stamp in an entry.
//!
//! ```text
//! stamp {wall_ms, lead_ms} --apply--> term changed: lead := 0
//!                                     d = max(0, lead_ms - lead); lead += d; lease_time += d
//!                                     wall := max(wall, min(wall_ms, wall + d))
//! ```
//!
//! | clock | moves by | never |
//! |---|---|---|
//! | lease time | what a leader measured on its monotonic clock within its own leadership | outruns real time: a live lease is not cut short |
//! | wall | the leader's wall clock, but no faster than lease time | goes back, or jumps because one clock is wrong |
//!
//! A wall that fell behind is moved by [`Clocks::advance_wall`], which the leader proposes only when a quorum's clocks agree.

use crate::ids::{LeaseTime, WallTime};
use crate::limits::WALL_STEP_MS_MAX;

/// What the leader's clocks said when it proposed an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Milliseconds since the Unix epoch on the leader's wall clock.
    pub wall_ms: u64,
    /// Milliseconds of monotonic time in this leadership that a quorum has vouched for.
    pub lead_ms: u64,
}

/// The replicated clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clocks {
    /// The term that `lead_ms` belongs to.
    pub term: u64,
    /// The highest `lead_ms` applied in that term.
    pub lead_ms: u64,
    /// The sum of all leaderships' measured time.
    pub lease_time: LeaseTime,
    /// The replicated wall clock.
    pub wall: WallTime,
}

impl Clocks {
    /// The clocks after an entry that `stamp` was proposed with in `term`.
    #[must_use]
    pub fn advanced(mut self, term: u64, stamp: Stamp) -> Self {
        if self.term != term {
            self.term = term;
            self.lead_ms = 0;
        }
        let passed = stamp.lead_ms.saturating_sub(self.lead_ms);
        self.lead_ms += passed;
        self.lease_time = self.lease_time.after(passed);
        let reachable = self.wall.0.saturating_add(passed);
        self.wall = self.wall.max(WallTime(stamp.wall_ms.min(reachable)));
        self
    }

    /// Moves the wall to `target`; `None` where that is back in time, or further than a day without an operator.
    pub fn advance_wall(self, target: WallTime, by_operator: bool) -> Option<Self> {
        let step = target.0.checked_sub(self.wall.0)?;
        (by_operator || step <= WALL_STEP_MS_MAX).then_some(Self { wall: target, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(wall_ms: u64, lead_ms: u64) -> Stamp {
        Stamp { wall_ms, lead_ms }
    }

    #[test]
    fn lease_time_sums_leaderships_and_never_counts_a_gap() {
        let clocks = Clocks::default().advanced(1, stamp(0, 500)).advanced(1, stamp(0, 800));
        assert_eq!(clocks.lease_time, LeaseTime(800));
        let next = clocks.advanced(2, stamp(0, 50));
        assert_eq!((next.lease_time, next.lead_ms), (LeaseTime(850), 50));
    }

    #[test]
    fn a_stamp_out_of_order_moves_nothing_back() {
        let clocks = Clocks::default().advanced(1, stamp(900, 900));
        assert_eq!(clocks.advanced(1, stamp(100, 100)), clocks);
    }

    #[test]
    fn one_wrong_wall_clock_moves_the_wall_no_faster_than_lease_time() {
        let clocks = Clocks { wall: WallTime(1_000), ..Clocks::default() };
        assert_eq!(clocks.advanced(1, stamp(3_600_000, 10)).wall, WallTime(1_010));
        assert_eq!(clocks.advanced(1, stamp(0, 10)).wall, WallTime(1_000));
    }

    #[test]
    fn a_long_step_of_the_wall_waits_for_an_operator() {
        let clocks = Clocks { wall: WallTime(1_000), ..Clocks::default() };
        let far = WallTime(1_001 + WALL_STEP_MS_MAX);
        assert_eq!(clocks.advance_wall(far, false), None);
        assert_eq!(clocks.advance_wall(WallTime(999), true), None);
        assert_eq!(clocks.advance_wall(far, true).map(|c| c.wall), Some(far));
        assert_eq!(clocks.advance_wall(WallTime(1_000 + WALL_STEP_MS_MAX), false).map(|c| c.wall.0), Some(far.0 - 1));
    }
}
