//! x

/// Where the log touches a disk.
pub mod seam;

/// The Raft log: entries, votes and marks of all groups.
pub mod log;
