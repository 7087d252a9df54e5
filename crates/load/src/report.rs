//! What a run came to, in the form that is written and read: rates and latencies by kind of answer, and the timeline.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::log::{Seen, Window, histogram};

/// Latencies of a kind of answer, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// The mean.
    pub mean_us: f64,
    /// Half of the answers took no longer.
    pub p50_us: u64,
    /// Nine of ten.
    pub p90_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// 999 of 1,000.
    pub p999_us: u64,
    /// The longest.
    pub max_us: u64,
}

impl Latencies {
    fn of(histogram: &Histogram<u64>) -> Latencies {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Latencies {
            mean_us: (histogram.mean() * 10.0).round() / 10.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max(),
        }
    }
}

/// One kind of answer within the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// The kind.
    pub answer: String,
    /// How many came within the window.
    pub count: u64,
    /// How many came a second.
    pub per_second: f64,
    /// How long they took.
    pub latencies: Latencies,
    /// How many came in the whole run, the warm-up and late ones included: what a server's counters can be held against.
    pub in_all: u64,
}

/// A point of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its beginning, in seconds after the window's.
    pub at_s: f64,
    /// Answers a second.
    pub per_second: f64,
    /// Their median, in microseconds; at most a tenth too high.
    pub p50_us: u64,
    /// Their 99th percentile, in microseconds; at most a tenth too high.
    pub p99_us: u64,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was run, in the words of whoever ran it.
    pub title: String,
    /// The window's length in seconds.
    pub measured_s: f64,
    /// All answers together.
    pub total: Answers,
    /// Each kind by itself.
    pub answers: Vec<Answers>,
    /// Answers that the workload did not expect: what they said, and how often.
    pub unexpected: Vec<(String, u64)>,
    /// Calls that were sent again: why, and how often.
    pub sent_again: Vec<(String, u64)>,
    /// The run, point by point.
    pub timeline: Vec<Point>,
}

impl Report {
    /// Sums up what was seen.
    #[must_use]
    pub fn new(title: String, window: &Window, seen: &Seen) -> Report {
        let seconds = window.length.as_secs_f64();
        let of = |answer: &str, latencies: &Histogram<u64>, in_all| Answers {
            answer: answer.to_owned(),
            count: latencies.len(),
            per_second: rate(latencies.len(), window.length),
            latencies: Latencies::of(latencies),
            in_all,
        };
        let mut total = histogram();
        let mut answers = Vec::new();
        for (kind, in_all) in &seen.all {
            let none = histogram();
            let latencies = seen.answers.get(kind).unwrap_or(&none);
            // All have the same bounds.
            let _ = total.add(latencies);
            answers.push(of(kind, latencies, *in_all));
        }
        let slot = window.slot();
        let timeline = seen.slots.iter().enumerate().map(|(number, point)| {
            let at_s = slot.as_secs_f64() * number as f64;
            // The last point of a window of half a second more is half a second long.
            let length = slot.min(Duration::from_secs_f64((seconds - at_s).max(0.001)));
            Point {
                at_s,
                per_second: rate(point.count, length),
                p50_us: point.quantile_us(0.5),
                p99_us: point.quantile_us(0.99),
            }
        });
        Report {
            title,
            measured_s: seconds,
            total: of("all", &total, seen.all.values().sum()),
            answers,
            unexpected: seen.unexpected.iter().map(|(text, count)| (text.clone(), *count)).collect(),
            sent_again: seen.again.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            timeline: timeline.collect(),
        }
    }
}

fn rate(count: u64, length: Duration) -> f64 {
    (count as f64 / length.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::log::Log;

    #[test]
    fn a_report_adds_up_and_reads_back() {
        let window = Window { from: Instant::now(), length: Duration::from_millis(2_500) };
        let log = Log::new(window, 1);
        for kind in ["claimed", "claimed", "replayed"] {
            log.of(0).answered(kind, window.from);
        }
        log.of(0).unexpected("500 internal");
        log.of(0).again("503");
        let report = Report::new("a run".to_owned(), &window, &log.seen());
        assert_eq!(report.total.count, 3);
        assert_eq!(
            report.answers.iter().map(|one| (one.answer.as_str(), one.in_all)).collect::<Vec<_>>(),
            [("claimed", 2), ("replayed", 1)]
        );
        assert!((report.total.per_second - 1.2).abs() < 0.01);
        assert_eq!(report.timeline.len(), 3);
        assert_eq!(report.unexpected, [("500 internal".to_owned(), 1)]);
        assert_eq!(report.sent_again, [("503".to_owned(), 1)]);
        let text = serde_json::to_string(&report).expect("it is written");
        assert_eq!(serde_json::from_str::<Report>(&text).expect("it is read"), report);
    }
}
