//! Clusters of whole nodes inside one process: real consensus, real peer protocol, a network with switches.
//! Storage is in memory, where a crash loses what was not synced, or on a disk.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod failures;
mod life;
mod protocol;
mod snapshots;
mod support;
mod wiped;
