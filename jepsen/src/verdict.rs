//! What a checker says of a history. Running out of time is never a pass.

use serde::{Deserialize, Serialize};

/// A checker's judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Judgement {
    /// The promise held.
    True,
    /// The promise was broken.
    False,
    /// The checker cannot tell: it ran out of time, or the history does not hold what it needs.
    Unknown,
}

/// A checker's judgement and its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The checker, by the letter or name of what it checks.
    pub checker: String,
    /// What it says.
    pub judgement: Judgement,
    /// One sentence: what was broken, or why nobody can tell, or what was looked at.
    pub reason: String,
    /// The offending events' indices, in the order in which they matter.
    pub events: Vec<u64>,
}
