//! The engine of a load generator: connections that call in a closed loop or by a schedule, what they saw, and how it is shown.
//! It knows nothing of Hapax: what a call is, and whether its answer is right, is the workload's.
//!
//! ```text
//! Plan ─► run: one task per connection ─► Worker::call ─► Log (shards) ─► Report ─► JSON, SVG, HTML
//! ```
//!
//! **Latency is what a caller would have waited.** In a closed loop that is from the first byte sent to the last byte read. By a
//! schedule it is counted from when the call was *due*, where its connection was still busy then: a server that stalls is charged
//! for the calls that could not be sent meanwhile, which is what averaging over the sent ones alone would hide (coordinated omission).

pub mod run;
pub mod schedule;

pub mod log;
pub mod report;

pub mod http1;
pub mod plot;
