//! What was said between callers and nodes: one event when a call begins and one when it ends, in one order and by one clock.
//!
//! The shape is Jepsen's, so that outside checkers can read it. A call whose end is [`Kind::Info`] may have taken effect at any time
//! from its beginning to the end of the run, or never; its process says nothing more afterwards.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One party that makes one call at a time. A process whose call ended as [`Kind::Info`] is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Process(pub u32);

/// A node of the cluster, by its id from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Node(pub u64);

/// What an event says about its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It begins.
    Invoke,
    /// It was answered, by a success or by a refusal that the state machine decided: either is a fact.
    Ok,
    /// It certainly had no effect: the connection was refused, or the node refused before it proposed anything.
    Fail,
    /// Nobody can tell: no answer, half of one, a 5xx.
    Info,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the history, from 0.
    pub index: u64,
    /// When, in nanoseconds since the run began, by the driver's monotonic clock.
    pub time_ns: u64,
    /// Who.
    pub process: Process,
    /// The node that was asked.
    pub node: Node,
    /// What it says about the call.
    pub kind: Kind,
    /// The call's kind, as its workload names it: `claim`, `renew`, `report`, `read`, …
    pub f: String,
    /// What the call is about, so that a history can be split: a key, a capability, a register.
    pub object: String,
    /// The call's arguments where it begins, its answer where it ends.
    pub value: Value,
    /// The revision that the answer names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Whether the answer says `consistency: "local"`: true at its revision, which may be older than what others were told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// Why the call failed, or why nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A whole history, in the order of its indices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The events.
    pub events: Vec<Event>,
}
