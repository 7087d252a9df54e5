//! How long operations are executing, and how long they are unknown: each time is told once it is over. (REQUIREMENTS 120)
//!
//! Every node applies that an operation went on, and only one may count it: the one whose leadership proposed the entry. A node that
//! starts again and applies its log a second time leads none of these terms any more, so it counts nothing twice.
//! What it costs is a comparison for each operation that was written, and a sample where a time is over.

use std::sync::{Arc, OnceLock};

use hapax_machine::change::Change;
use hapax_machine::operation::{Class, OperationRecord, Place, State};
use metrics::{Histogram, histogram};

use crate::leadership::Leadership;
use crate::observer::{Applied, ApplyObserver};

/// For how long an operation was executing under one claim, in seconds, by the state that it went into.
pub const EXECUTING: &str = "hapax_executing_duration_seconds";
/// For how long an operation was unknown, in seconds, by the state that it went into.
pub const UNKNOWN: &str = "hapax_unknown_duration_seconds";

/// The upper bounds of [`EXECUTING`]'s buckets: 1 ms, quadrupled 11 times, which is more than an hour.
pub fn executing_buckets() -> Vec<f64> {
    (0..12).map(|k| 0.001 * 4f64.powi(k)).collect()
}

/// The upper bounds of [`UNKNOWN`]'s buckets: 0.25 s, quadrupled 11 times, which is more than a week.
pub fn unknown_buckets() -> Vec<f64> {
    (0..12).map(|k| 0.25 * 4f64.powi(k)).collect()
}

/// A time that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spell {
    unknown: bool,
    into: State,
    ms: u64,
}

impl Spell {
    /// What ended when an operation that stood at `was` became `now`.
    fn ended(was: Place, now: &OperationRecord) -> Option<Self> {
        let is = now.place();
        let over = |unknown| Spell { unknown, into: now.state(), ms: now.updated_at.0.saturating_sub(was.since.0) };
        match was.class {
            // Executing since another instant: somebody took it over.
            Class::Executing if is.class != Class::Executing || is.since != was.since => Some(over(false)),
            // Waiting for people is unknown too, since the same instant.
            Class::Unknown | Class::Escalated if !matches!(is.class, Class::Unknown | Class::Escalated) => {
                Some(over(true))
            }
            _ => None,
        }
    }
}

/// The series of one state, by the state that came after it.
struct Series {
    executing: Histogram,
    unknown: Histogram,
    not_applied: Histogram,
    completed: Histogram,
    failed: Histogram,
}

impl Series {
    fn new(name: &'static str) -> Self {
        Self {
            executing: histogram!(name, "into" => "executing"),
            unknown: histogram!(name, "into" => "unknown"),
            not_applied: histogram!(name, "into" => "not_applied"),
            completed: histogram!(name, "into" => "completed"),
            failed: histogram!(name, "into" => "failed"),
        }
    }

    fn record(&self, spell: Spell) {
        let series = match spell.into {
            State::Executing => &self.executing,
            State::Unknown => &self.unknown,
            State::NotApplied => &self.not_applied,
            State::Completed => &self.completed,
            State::Failed => &self.failed,
            State::Requested => return,
        };
        series.record(spell.ms as f64 / 1_000.0);
    }
}

/// Tells how long what is over took.
pub(crate) struct TimeInState {
    /// Unset until consensus is assembled; nothing that is applied before that was proposed by this process.
    leadership: OnceLock<Arc<Leadership>>,
    executing: Series,
    unknown: Series,
}

impl TimeInState {
    pub(crate) fn new() -> Arc<Self> {
        let leadership = OnceLock::new();
        Arc::new(Self { leadership, executing: Series::new(EXECUTING), unknown: Series::new(UNKNOWN) })
    }

    /// From here on, what this leadership proposes is counted.
    pub(crate) fn count_for(&self, leadership: Arc<Leadership>) {
        // There is one leadership for each node; a second call would name the same.
        let _ = self.leadership.set(leadership);
    }
}

impl ApplyObserver for TimeInState {
    fn applied(&self, applied: &Applied<'_>) {
        let term = applied.changes.head.clocks.term;
        let led = self.leadership.get().and_then(|leadership| leadership.newest_term());
        if led != Some(term) {
            return;
        }
        for row in &applied.changes.rows {
            if let Change::Operation { record, was: Some(was) } = row
                && let Some(spell) = Spell::ended(*was, record)
            {
                let series = if spell.unknown { &self.unknown } else { &self.executing };
                series.record(spell);
            }
        }
    }

    fn installed(&self) {
        // What happened in between is another node's to count.
    }
}

#[cfg(test)]
mod tests {
    use hapax_machine::ids::WallTime;

    use super::*;
    use crate::fakes::executing;

    fn at(class: Class, since: u64) -> Place {
        Place { class, since: WallTime(since), quarantined: false }
    }

    /// An operation that was claimed at 1,000 and last changed at `updated`.
    fn record(state: State, unknown_since: Option<u64>, updated: u64) -> OperationRecord {
        let mut record = executing(1, 1, 1);
        record.updated_at = WallTime(updated);
        let execution = record.execution.as_mut().unwrap();
        (execution.state, execution.opened_at) = (state, WallTime(1_000));
        execution.unknown_since = unknown_since.map(WallTime);
        record
    }

    #[test]
    fn a_time_is_told_when_it_is_over_and_not_before() {
        let told = |was, now: &OperationRecord| Spell::ended(was, now).map(|it| (it.unknown, it.into, it.ms));
        let executing = at(Class::Executing, 1_000);
        let reported = record(State::Completed, None, 1_250);
        assert_eq!(told(executing, &reported), Some((false, State::Completed, 250)));
        let lapsed = record(State::Unknown, Some(61_000), 61_000);
        assert_eq!(told(executing, &lapsed), Some((false, State::Unknown, 60_000)));
        let renewed = record(State::Executing, None, 30_000);
        assert_eq!(told(executing, &renewed), None, "it is still executing");
        let taken_over = record(State::Executing, None, 1_000);
        assert_eq!(told(at(Class::Executing, 400), &taken_over), Some((false, State::Executing, 600)));
        assert_eq!(told(at(Class::Requested, 400), &taken_over), None, "it was not executing");
        assert_eq!(told(at(Class::NotApplied, 400), &taken_over), None);
    }

    #[test]
    fn waiting_for_people_is_one_time_with_what_came_before_it() {
        let unknown = at(Class::Unknown, 61_000);
        let mut escalated = record(State::Unknown, Some(61_000), 70_000);
        escalated.execution.as_mut().unwrap().escalated_at = Some(WallTime(70_000));
        assert_eq!(Spell::ended(unknown, &escalated), None);
        let resolved = record(State::NotApplied, None, 161_000);
        let ended = Spell::ended(escalated.place(), &resolved);
        assert_eq!(ended, Some(Spell { unknown: true, into: State::NotApplied, ms: 100_000 }));
    }

    #[test]
    fn buckets_reach_from_the_fastest_call_to_the_longest_wait() {
        let (executing, unknown) = (executing_buckets(), unknown_buckets());
        assert_eq!((executing[0], executing[11] > 3_600.0), (0.001, true));
        assert_eq!((unknown[0], unknown[11] > 604_800.0), (0.25, true));
    }
}
