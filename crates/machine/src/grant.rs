//! The grant counter: the one source of lease epochs and births.
//! One counter for everything means that no release, failover, forgetting or restore can hand a number out again.

use crate::ids::{AuthorityEpoch, Birth, LeaseEpoch};

/// Bits below the second in a floor; leaves 2^18 grants a second before the counter overtakes time.
const FLOOR_SHIFT: u32 = 18;

/// No floor is higher: half of what JSON numbers carry exactly, so that the other half is left to draw from.
const FLOOR_MAX: u64 = 1 << 52;

/// A counter in the replicated state that only grows; every node draws from it in apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct GrantCounter(pub u64);

impl GrantCounter {
    /// Raises the counter to what a cluster that lost its past may not have reached: unix seconds · 2^18.
    /// A wall clock beyond the year 2514 raises it no further than 2^52, so that no clock, however wrong, brings the counter
    /// near 2^53, what JSON numbers carry exactly.
    #[must_use]
    pub fn raised_to(self, wall_ms: u64) -> Self {
        let seconds = (wall_ms / 1_000).min(FLOOR_MAX >> FLOOR_SHIFT);
        Self(self.0.max(seconds << FLOOR_SHIFT))
    }

    /// Draws the next lease epoch.
    pub fn lease_epoch(&mut self) -> LeaseEpoch {
        LeaseEpoch(self.next())
    }

    /// Draws the birth of an operation.
    pub fn birth(&mut self) -> Birth {
        Birth(self.next())
    }

    /// Draws the next value of a register of authority.
    pub fn authority_epoch(&mut self) -> AuthorityEpoch {
        AuthorityEpoch(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_grow_and_a_floor_never_lowers() {
        let mut counter = GrantCounter::default().raised_to(1_000);
        assert_eq!(counter.birth(), Birth((1 << 18) + 1));
        assert_eq!(counter.lease_epoch(), LeaseEpoch((1 << 18) + 2));
        assert_eq!(counter.raised_to(0), counter);
    }

    #[test]
    fn a_floor_follows_time_until_2514_and_then_stays() {
        let year_2514_ms = 17_179_869_184 * 1_000;
        assert_eq!(GrantCounter::default().raised_to(year_2514_ms - 1).0, FLOOR_MAX - (1 << FLOOR_SHIFT));
        assert_eq!(GrantCounter::default().raised_to(year_2514_ms).0, FLOOR_MAX);
    }

    #[test]
    fn no_wall_clock_uses_the_counter_up() {
        for wall_ms in [u64::MAX, u64::MAX - 1, i64::MAX as u64, 1 << 53] {
            let mut counter = GrantCounter::default().raised_to(wall_ms);
            assert_eq!(counter.birth(), Birth(FLOOR_MAX + 1), "{wall_ms}");
            assert!(counter.0 < 1 << 53, "{wall_ms}");
        }
    }
}
