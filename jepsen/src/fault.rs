//! What was done to the cluster, when, and whether it really was: a planned fault that was not installed proves nothing.

use serde::{Deserialize, Serialize};

/// What became of one step of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Became {
    /// It is in force, and that was looked at.
    Installed,
    /// It is over, and that was looked at.
    Healed,
    /// This machine, backend or moment cannot have it; the reason is in `detail`.
    Skipped,
    /// It may or may not be in force.
    Indeterminate,
}

/// One line of a run's record of faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, in nanoseconds since the run began, by the clock of the history.
    pub time_ns: u64,
    /// The fault, as the catalogue names it: `isolate-leader`, `pause`, `clock-jump`, …
    pub fault: String,
    /// Which planned occurrence of it, so that its lines belong together.
    pub occurrence: u32,
    /// What became of it.
    pub became: Became,
    /// Upon which nodes or links, and what was seen.
    pub detail: String,
}
