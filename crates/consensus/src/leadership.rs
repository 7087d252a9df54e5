//! The leader's clock: milliseconds of its own leadership that a quorum vouched for, and the stamps made of them.
//! Every entry carries a stamp; replicated lease time is the sum of what these clocks measured.
//!
//! # Why lease time never outruns real time **[safety]**
//!
//! Take two entries that both stay in the log, stamped at the real times r1 ≤ r2. Lease time advances between them by no
//! more than r2 − r1:
//!
//! - *In one leadership* the clock only ever grows by a part of the monotonic time since it was last looked at
//!   ([`Lead::advance`]), so it grows by at most r2 − r1. What an acknowledgement that arrives late says about the time
//!   before the last look is not used: adding it afterwards would make the clock jump, and a lease granted before the jump
//!   would end early.
//! - *Across leaderships* apply sets the clock to 0 when the term changes, and the new leader counts from 0 since it saw
//!   itself elected. Every entry of the old term that stays in the log was in the new leader's log when it was elected,
//!   hence was stamped before that. So the measured stretches of different terms lie apart in real time, even when an old
//!   leader goes on counting, stamping and appending after it was replaced: nothing of that is ever committed.
//!   The appended entry names the term of its stamp and is refused in any other, so no stamp leaves its leadership.
//!
//! # What is left out of lease time
//!
//! An instant counts only while a quorum has acknowledged a message that was sent within the `window` (the shortest
//! election timeout) before it. When a leader is cut off or stopped, its owners cannot renew, and time stands still for
//! their leases, at most one window late. A leader stopped for a minute counts one window of it, unless a quorum
//! acknowledged something sent in that minute.
//!
//! Stamps are whole milliseconds, rounded down, so an interval between two stamps is right to a millisecond.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hapax_machine::clock::Stamp;
use tokio::time::Instant;

use crate::clock::NodeClock;
use crate::seam::Consensus;

/// One leadership's clock.
///
/// Invariants: `counted` never shrinks, and grows between two looks by at most the time between them.
#[derive(Debug, Clone, Copy)]
struct Lead {
    term: u64,
    /// When the clock was last looked at; at first, when the leadership was noticed.
    looked_at: Instant,
    /// The newest acknowledgement known then.
    acked: Option<Instant>,
    counted: Duration,
}

impl Lead {
    fn new(term: u64, now: Instant) -> Self {
        Self { term, looked_at: now, acked: None, counted: Duration::ZERO }
    }

    /// Counts the part of (`looked_at`, `now`] that lies within `window` after an acknowledged send.
    fn advance(&mut self, now: Instant, acked: Option<Instant>, window: Duration) {
        if now <= self.looked_at {
            return;
        }
        // An older acknowledgement than the known one is a late reading of it, and says nothing new.
        let newest = self.acked.max(acked);
        let mut from = self.looked_at;
        for vouched_from in [self.acked, newest].into_iter().flatten() {
            let begin = vouched_from.max(from);
            let end = now.min(vouched_from + window);
            if end > begin {
                self.counted += end - begin;
                from = end;
            }
        }
        self.looked_at = now;
        self.acked = newest;
    }
}

/// The leader's clock of this node, whenever it leads.
pub struct Leadership {
    clock: Arc<dyn NodeClock>,
    consensus: Arc<dyn Consensus>,
    window: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lead: Option<Lead>,
    stamped_at: Option<Instant>,
}

impl Leadership {
    /// A clock that counts up to `window` after each acknowledged send.
    pub fn new(clock: Arc<dyn NodeClock>, consensus: Arc<dyn Consensus>, window: Duration) -> Arc<Self> {
        Arc::new(Self { clock, consensus, window, state: Mutex::default() })
    }

    /// What the next entry of `term`'s leadership is stamped with. The caller has seen this node lead in that term.
    pub fn stamp(&self, term: u64) -> Stamp {
        let wall_ms = self.clock.wall_ms();
        let lead_ms = self.look(term, true);
        Stamp { wall_ms, lead_ms }
    }

    /// Milliseconds counted so far in `term`'s leadership. To be called at least twice per window: time in which nobody
    /// looked is only counted as far as the acknowledgements before and after it reach.
    pub fn lead_ms(&self, term: u64) -> u64 {
        self.look(term, false)
    }

    /// The newest term in which this process led, since it started.
    pub fn newest_term(&self) -> Option<u64> {
        self.lock().lead.map(|lead| lead.term)
    }

    /// How long ago the last stamp was made, in any leadership.
    pub fn since_stamp(&self) -> Option<Duration> {
        let stamped_at = self.lock().stamped_at?;
        Some(self.clock.monotonic().saturating_duration_since(stamped_at))
    }

    /// How often [`Self::lead_ms`] is to be called.
    pub fn look_interval(&self) -> Duration {
        self.window / 2
    }

    fn look(&self, term: u64, stamping: bool) -> u64 {
        let mut state = self.lock();
        // Read under the lock, so that the looks are in the order of their instants.
        let acked = self.consensus.quorum_acked();
        let now = self.clock.monotonic();
        if stamping {
            state.stamped_at = Some(now);
        }
        let lead = match &mut state.lead {
            Some(lead) if lead.term == term => lead,
            other => other.insert(Lead::new(term, now)),
        };
        lead.advance(now, acked, self.window);
        u64::try_from(lead.counted.as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::fakes::{FakeConsensus, ManualClock};

    const WINDOW: Duration = Duration::from_millis(150);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn time_counts_while_a_quorum_acknowledges_and_stands_still_when_it_stops() {
        let start = Instant::now();
        let mut lead = Lead::new(1, start);
        lead.advance(start + ms(10), None, WINDOW);
        assert_eq!(lead.counted, ms(0), "nobody has vouched yet");
        for step in 1..=10 {
            let now = start + ms(10 + step * 50);
            lead.advance(now, Some(now - ms(5)), WINDOW);
        }
        // The first step only counts from its acknowledged send on.
        assert_eq!(lead.counted, ms(9 * 50 + 5));
        let last_ack = start + ms(505);
        for step in 1..=100 {
            lead.advance(start + ms(510 + step * 50), Some(last_ack), WINDOW);
        }
        assert_eq!(lead.counted, ms(455 + 145), "one window after the last acknowledged send, and no more");
    }

    #[test]
    fn a_stopped_leader_counts_one_window_of_it() {
        let start = Instant::now();
        let mut lead = Lead::new(1, start);
        lead.advance(start + ms(100), Some(start), WINDOW);
        assert_eq!(lead.counted, ms(100));
        // Stopped for a minute; on waking the first look still knows only the old acknowledgement.
        lead.advance(start + ms(60_100), Some(start + ms(90)), WINDOW);
        assert_eq!(lead.counted, ms(240), "up to 90 + 150");
        // And one that arrives late does not add the minute afterwards.
        lead.advance(start + ms(60_110), Some(start + ms(60_105)), WINDOW);
        assert_eq!(lead.counted, ms(245));
    }

    #[test]
    fn a_late_acknowledgement_is_not_added_to_time_already_looked_at() {
        let start = Instant::now();
        let mut lead = Lead::new(1, start);
        lead.advance(start + ms(10), Some(start), WINDOW);
        lead.advance(start + ms(400), Some(start), WINDOW);
        let frozen = lead.counted;
        assert_eq!(frozen, ms(150));
        lead.advance(start + ms(401), Some(start + ms(300)), WINDOW);
        assert_eq!(lead.counted, frozen + ms(1));
    }

    #[test]
    fn the_clock_never_outruns_real_time_and_never_goes_back() {
        let seed = rand::random::<u64>();
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..500 {
            let start = Instant::now();
            let mut lead = Lead::new(1, start);
            let (mut now, mut looks) = (start, vec![(start, Duration::ZERO)]);
            for _ in 0..40 {
                now += ms(random.random_range(0..400));
                let acked = random.random_bool(0.7).then(|| now - ms(random.random_range(0..600)).min(now - start));
                lead.advance(now, acked, WINDOW);
                looks.push((now, lead.counted));
            }
            for (i, (at, counted)) in looks.iter().enumerate() {
                for (earlier, before) in &looks[..i] {
                    assert!(counted >= before, "seed {seed}");
                    assert!(*counted - *before <= *at - *earlier, "seed {seed}: lease time outran real time");
                }
            }
        }
    }

    #[test]
    fn each_leadership_starts_from_zero() {
        let clock = ManualClock::new();
        let consensus = FakeConsensus::new(1);
        let leadership = Leadership::new(clock.clone(), consensus.clone(), WINDOW);
        assert_eq!(leadership.since_stamp(), None);
        assert_eq!(leadership.stamp(1).lead_ms, 0);
        consensus.ack(clock.monotonic());
        clock.advance(ms(100));
        clock.set_wall_ms(7_000);
        assert_eq!(leadership.stamp(1), Stamp { wall_ms: 7_000, lead_ms: 100 });
        clock.advance(ms(20));
        assert_eq!(leadership.since_stamp(), Some(ms(20)));
        assert_eq!(leadership.lead_ms(1), 120);
        assert_eq!(leadership.stamp(3).lead_ms, 0, "a new term");
        assert_eq!(leadership.stamp(3).lead_ms, 0, "and no time has passed in it");
        clock.advance(ms(30));
        clock.set_wall_ms(0);
        assert_eq!(leadership.stamp(3), Stamp { wall_ms: 0, lead_ms: 30 }, "a wall that jumps moves nothing here");
    }
}
