//! Bytes of everything that is stored or sent: commands, outcomes, rows of the state, the Raft log, the peer protocol.
//! Hand-written and versioned, because these bytes outlive the program that wrote them.
//!
//! - The first byte of every record is its version; a reader knows its own and older ones, and refuses newer ones.
//! - Tags and flags never change meaning; what is retired or to come is reserved in the module's table.
//! - Literals in the tests pin every encoding. One value has one encoding.
//! - Reading is total: no bytes make it panic, and no announced length makes it allocate.

/// Commands, and the batches of them that log entries carry.
pub mod command;

/// What a forwarded command came to.
pub mod outcome;

/// Rows of the replicated state.
pub mod record;

/// Bytes of the Raft log: frames, votes, marks and the side file.
pub mod log;

/// Bytes of a membership, in the log and in the state.
pub mod membership;

/// Bytes that two nodes of one cluster exchange.
pub mod peer;

mod value;
mod wire;

pub use wire::{Error, LIST_MAX};

#[cfg(test)]
mod generators;
#[cfg(test)]
mod tests;
