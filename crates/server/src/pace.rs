//! How fast callers may go: one generic cell rate for each of tenant, client and key, on this node.
//! Bounded, kept in memory, and never a reason for a wrong answer: whoever is refused was not looked up.
//!
//! A rate of r a second lets r calls through at once, and then one every 1/r s. A caller that was idle for a second has its whole
//! burst again, so its entry can be dropped: that is how the table stays small. (REQUIREMENTS 93, 96)

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Entries before those that are idle are dropped; where none is, everybody new is let through and counted in a metric.
const ENTRIES_MAX: usize = 65_536;
/// Tables that are locked apart.
const SHARDS: usize = 16;
/// How long a burst may last at its rate.
const BURST: Duration = Duration::from_secs(1);

/// The pace of everybody.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Random, so that nobody can aim at one shard.
    hasher: RandomState,
    begun: Instant,
    shards: [Mutex<HashMap<u64, Duration>>; SHARDS],
}

impl Default for Pace {
    fn default() -> Self {
        Self { hasher: RandomState::new(), begun: Instant::now(), shards: Default::default() }
    }
}

/// The call comes too soon; it may come again after this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooFast(pub(crate) Duration);

impl Pace {
    /// Counts a call of whoever `who` tells apart, at most `rate` a second.
    ///
    /// # Errors
    /// The call comes too soon.
    pub(crate) fn take(&self, who: impl Hash, rate: u32) -> Result<(), TooFast> {
        self.take_at(self.begun.elapsed(), who, rate)
    }

    fn take_at(&self, now: Duration, who: impl Hash, rate: u32) -> Result<(), TooFast> {
        let hash = self.hasher.hash_one(who);
        let interval = BURST / rate.max(1);
        let mut entries = self.shards[hash as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        // When the call before this one would have come at an even pace.
        let due = entries.get(&hash).copied().unwrap_or(Duration::ZERO).max(now);
        let early = (due + interval).saturating_sub(now);
        if rate == 0 || early > BURST {
            return Err(TooFast(early.saturating_sub(BURST)));
        }
        if entries.len() >= ENTRIES_MAX / SHARDS {
            entries.retain(|_, due| *due > now);
        }
        if entries.len() < ENTRIES_MAX / SHARDS || entries.contains_key(&hash) {
            entries.insert(hash, due + interval);
        } else {
            metrics::counter!("hapax_rate_limits_untracked_total").increment(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_and_then_the_pace() {
        let pace = Pace::default();
        for _ in 0..10 {
            assert_eq!(pace.take_at(ms(0), "a", 10), Ok(()));
        }
        assert_eq!(pace.take_at(ms(0), "a", 10), Err(TooFast(ms(100))));
        assert_eq!(pace.take_at(ms(40), "a", 10), Err(TooFast(ms(60))));
        assert_eq!(pace.take_at(ms(100), "a", 10), Ok(()));
        assert_eq!(pace.take_at(ms(100), "a", 10), Err(TooFast(ms(100))));
        assert_eq!(pace.take_at(ms(100), "b", 10), Ok(()), "others go at their own pace");
    }

    #[test]
    fn nothing_goes_at_a_rate_of_zero() {
        assert!(Pace::default().take_at(ms(5_000), "a", 0).is_err());
    }

    #[test]
    fn over_a_long_time_no_more_than_the_rate_goes_through() {
        let pace = Pace::default();
        let through = (0..60_000).filter(|now| pace.take_at(ms(*now), "a", 7).is_ok()).count();
        assert!((7 * 60..=7 * 61).contains(&through), "{through} in a minute");
    }

    #[test]
    fn the_table_is_bounded_and_idle_entries_make_room() {
        let pace = Pace::default();
        for who in 0..2 * ENTRIES_MAX {
            assert_eq!(pace.take_at(ms(0), who, 1), Ok(()));
        }
        let held: usize = pace.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(held <= ENTRIES_MAX, "{held}");
        assert_eq!(pace.take_at(ms(10_000), "new", 1), Ok(()));
        assert_eq!(pace.take_at(ms(10_000), "new", 1), Err(TooFast(ms(1_000))), "the new one is tracked");
    }
}
