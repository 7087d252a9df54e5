//! What the connections saw, as they see it: latencies by kind of answer, a timeline, and what went otherwise.
//! Every connection writes into one of a few shards; memory depends on the shards and the slots, never on the calls.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

/// Longest latency that is told apart; longer ones count as this.
const LATENCY_US_MAX: u64 = 120_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// Points of a timeline, at most: a longer run has wider ones.
pub const SLOTS_MAX: u64 = 600;
/// Steps of the timeline's coarse latencies between one power of two and the next.
const STEPS: u32 = 8;
const BUCKETS: usize = 27 * STEPS as usize;
/// Different unexpected answers that are kept apart; more of them are counted together.
const UNEXPECTED_MAX: usize = 32;

/// The window that counts: what is answered before it warms up, and what is answered after it is too late.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Its beginning.
    pub from: Instant,
    /// Its length.
    pub length: Duration,
}

impl Window {
    /// Its end.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.from + self.length
    }

    /// How long one point of the timeline is.
    #[must_use]
    pub fn slot(&self) -> Duration {
        let seconds = self.length.as_secs().max(1);
        Duration::from_secs(seconds.div_ceil(SLOTS_MAX))
    }

    fn slots(&self) -> usize {
        usize::try_from(self.length.as_nanos().div_ceil(self.slot().as_nanos())).unwrap_or(1).max(1)
    }
}

/// What was answered within one point of the timeline.
#[derive(Debug, Clone)]
pub struct Slot {
    /// Answers.
    pub count: u64,
    /// Their latencies, by [`bucket`].
    buckets: Vec<u32>,
}

impl Slot {
    fn new() -> Slot {
        Slot { count: 0, buckets: vec![0; BUCKETS] }
    }

    /// The latency in microseconds that this part of the answers did not exceed; a tenth too high at most.
    #[must_use]
    pub fn quantile_us(&self, part: f64) -> u64 {
        let wanted = (self.count as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (number, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return ceiling_us(number);
            }
        }
        0
    }
}

/// The bucket of a latency: eight between each power of two and the next.
fn bucket(us: u64) -> usize {
    let place = (us.max(1) as f64).log2() * f64::from(STEPS);
    (place.ceil() as usize).min(BUCKETS - 1)
}

/// The longest latency of a bucket.
fn ceiling_us(bucket: usize) -> u64 {
    (bucket as f64 / f64::from(STEPS)).exp2().round() as u64
}

/// What one shard saw.
#[derive(Debug)]
pub struct Seen {
    /// Latencies in microseconds by kind of answer, within the window.
    pub answers: BTreeMap<&'static str, Histogram<u64>>,
    /// The timeline.
    pub slots: Vec<Slot>,
    /// Answers of each kind from the first call to the last, the warm-up and what came late included.
    pub all: BTreeMap<&'static str, u64>,
    /// Answers that the workload did not expect, by what they said.
    pub unexpected: BTreeMap<String, u64>,
    /// Calls that were sent again, by why.
    pub again: BTreeMap<&'static str, u64>,
}

impl Seen {
    fn new(window: &Window) -> Seen {
        Seen {
            answers: BTreeMap::new(),
            slots: vec![Slot::new(); window.slots()],
            all: BTreeMap::new(),
            unexpected: BTreeMap::new(),
            again: BTreeMap::new(),
        }
    }

    fn add(&mut self, other: &Seen) {
        for (kind, latencies) in &other.answers {
            // Both have the same bounds.
            let _ = self.answers.entry(kind).or_insert_with(histogram).add(latencies);
        }
        for (mine, theirs) in self.slots.iter_mut().zip(&other.slots) {
            mine.count += theirs.count;
            for (mine, theirs) in mine.buckets.iter_mut().zip(&theirs.buckets) {
                *mine += theirs;
            }
        }
        for (kind, count) in &other.all {
            *self.all.entry(kind).or_default() += count;
        }
        for (text, count) in &other.unexpected {
            *self.unexpected.entry(text.clone()).or_default() += count;
        }
        for (reason, count) in &other.again {
            *self.again.entry(reason).or_default() += count;
        }
    }
}

/// Where the connections write.
#[derive(Debug)]
pub struct Log {
    window: Window,
    shards: Vec<Mutex<Seen>>,
}

impl Log {
    /// A log of `shards` parts.
    ///
    /// # Panics
    /// There are no parts.
    #[must_use]
    pub fn new(window: Window, shards: usize) -> Log {
        assert!(shards > 0, "somewhere to write");
        Log { window, shards: (0..shards).map(|_| Mutex::new(Seen::new(&window))).collect() }
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// A connection's part.
    #[must_use]
    pub fn of(&self, connection: usize) -> Part<'_> {
        Part { window: self.window, shard: &self.shards[connection % self.shards.len()] }
    }

    /// All parts together, so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let mut seen = Seen::new(&self.window);
        self.shards.iter().for_each(|shard| seen.add(&lock(shard)));
        seen
    }
}

/// What a connection writes into.
#[derive(Debug, Clone, Copy)]
pub struct Part<'l> {
    window: Window,
    shard: &'l Mutex<Seen>,
}

impl Part<'_> {
    /// An answer of this kind came now, to a call that waited since `since`.
    pub fn answered(&self, kind: &'static str, since: Instant) {
        let now = Instant::now();
        let us = u64::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX);
        self.answered_at(kind, now, us);
    }

    fn answered_at(&self, kind: &'static str, now: Instant, us: u64) {
        let mut seen = lock(self.shard);
        *seen.all.entry(kind).or_default() += 1;
        if now < self.window.from || now >= self.window.until() {
            return;
        }
        seen.answers.entry(kind).or_insert_with(histogram).saturating_record(us);
        let slot = (now - self.window.from).as_nanos() / self.window.slot().as_nanos();
        if let Some(slot) = usize::try_from(slot).ok().and_then(|slot| seen.slots.get_mut(slot)) {
            slot.count += 1;
            slot.buckets[bucket(us)] += 1;
        }
    }

    /// An answer that the workload did not expect.
    pub fn unexpected(&self, text: &str) {
        let mut seen = lock(self.shard);
        let known = seen.unexpected.len() < UNEXPECTED_MAX || seen.unexpected.contains_key(text);
        *seen.unexpected.entry(if known { text.to_owned() } else { "others".to_owned() }).or_default() += 1;
    }

    /// The call is sent again, because of `reason`.
    pub fn again(&self, reason: &'static str) {
        *lock(self.shard).again.entry(reason).or_default() += 1;
    }
}

fn lock(shard: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty histogram of latencies.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS).expect("the bounds are constants that the library takes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(from: Instant, seconds: u64) -> Window {
        Window { from, length: Duration::from_secs(seconds) }
    }

    #[test]
    fn only_the_window_counts_and_everything_is_counted() {
        let from = Instant::now() + Duration::from_secs(100);
        let log = Log::new(window(from, 3), 2);
        let at =
            |connection, ms: u64| log.of(connection).answered_at("claimed", from + Duration::from_millis(ms), 500);
        log.of(0).answered_at("claimed", from - Duration::from_millis(1), 500);
        at(0, 0);
        at(1, 999);
        at(0, 1_000);
        at(1, 2_999);
        at(0, 3_000);
        let seen = log.seen();
        assert_eq!(seen.all["claimed"], 6);
        assert_eq!(seen.answers["claimed"].len(), 4);
        assert_eq!(seen.slots.iter().map(|slot| slot.count).collect::<Vec<_>>(), [2, 1, 1]);
    }

    #[test]
    fn a_long_run_has_wider_points_and_no_more_of_them() {
        let day = window(Instant::now(), 86_400);
        assert_eq!((day.slot(), day.slots()), (Duration::from_secs(144), 600));
        let short = Window { from: Instant::now(), length: Duration::from_millis(1_500) };
        assert_eq!((short.slot(), short.slots()), (Duration::from_secs(1), 2));
    }

    #[test]
    fn what_is_unexpected_is_told_apart_up_to_a_bound() {
        let log = Log::new(window(Instant::now(), 1), 1);
        (0..100).for_each(|number| log.of(0).unexpected(&format!("status {number}")));
        log.of(0).unexpected("status 0");
        let seen = log.seen().unexpected;
        assert_eq!(seen.len(), UNEXPECTED_MAX + 1);
        assert_eq!((seen["status 0"], seen["others"]), (2, 68));
    }

    proptest! {
        #[test]
        fn a_coarse_latency_is_at_most_a_tenth_too_high(us in 1_u64..60_000_000) {
            let shown = ceiling_us(bucket(us));
            prop_assert!(shown + 1 >= us && shown as f64 <= us as f64 * 1.1 + 1.0, "{us} as {shown}");
        }
    }

    #[test]
    fn quantiles_of_a_point() {
        let from = Instant::now();
        let log = Log::new(window(from, 1), 1);
        (1..=100).for_each(|ms: u64| log.of(0).answered_at("x", from, ms * 1_000));
        let slot = &log.seen().slots[0];
        assert!((50_000..=55_000).contains(&slot.quantile_us(0.5)), "{}", slot.quantile_us(0.5));
        assert!((99_000..=110_000).contains(&slot.quantile_us(0.99)), "{}", slot.quantile_us(0.99));
        assert_eq!(Slot::new().quantile_us(0.5), 0);
    }
}
