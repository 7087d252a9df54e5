//! What a node keeps on disk: the Raft log and the replicated state, in two databases.
//! The only crate that names RocksDB. Both stores stand on seams with an implementation in memory that a crash can cut.

/// Where the log touches a disk.
pub mod seam;

/// The Raft log: entries, votes and marks of all groups.
pub mod log;

/// The replicated state: rows, views, checkpoints.
pub mod state;
