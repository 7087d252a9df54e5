//! Placeholder.

/// Bytes of the Raft log: frames, votes, marks and the side file.
pub mod log;

/// Bytes that two nodes of one cluster exchange.
pub mod peer;
