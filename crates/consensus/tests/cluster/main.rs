//! Clusters of whole nodes inside one process: real consensus, real peer protocol, a network with switches.
//! Storage is in memory, where a crash loses what was not synced, or on a disk.

mod failures;
mod life;
mod snapshots;
mod support;
