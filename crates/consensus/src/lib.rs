//! Consensus of Hapax: the only crate that names openraft.
//! [`node::Node`] is its whole surface for the layers above; everything else stands behind it.
//!
//! # What it promises
//!
//! - **A command that was answered is durable on a quorum, and applied once.** An answer leaves after the write of
//!   its outcome, which follows the quorum's syncs.
//! - **"Certainly not applied" is said only when it is certain**: where the node that tried to append refused, or no
//!   byte of a forwarded command was written. Everything else is "outcome unknown".
//! - **A minority answers nothing.** Reads are confirmed by a quorum after they were asked; leases are never trusted.
//! - **A node that cannot trust its storage stops** ([`fatal::Fatal`]), and acknowledges nothing afterwards.
//! - **Nothing here reads a clock but [`clock`]**, and what it reads reaches the state only as a stamp in an entry.
//!
//! # Code map, in the order of a command's life
//!
//! `propose` batches and forwards · `leadership` stamps · `seam` hands to openraft · `log_adapter`, `tail`, `network` and
//! `transport` carry and keep · `state_adapter` applies · `observer`, `tracker`, `notify` tell · `read` confirms reads ·
//! `fresh` says how recent this node's own state is, `repeats` counts what is refused from it · `sweep`, `retention` and `wall`
//! are the leader's chores · `snapshot`, `maintenance` and `storage` keep the disk ·
//! `bootstrap`, `status`, `agreement`, `series`, `state_series`, `time_in_state` and `node` are a node's life.

pub mod node;
mod core;

pub mod propose;
pub mod read;
mod fresh;
mod repeats;
pub mod leadership;
pub mod seam;
pub mod notify;
pub mod tracker;
pub mod observer;
pub mod sweep;
mod leases;
mod retention;
pub mod wall;
#[cfg(test)]
mod fakes;

pub mod tail;
pub mod log_adapter;
pub mod state_adapter;
pub mod state_source;
pub mod snapshot;
pub mod storage;
mod maintenance;

pub mod network;
pub mod transport;

pub mod bootstrap;
pub mod status;
mod agreement;
pub mod series;
mod state_series;
pub mod time_in_state;

pub mod clock;
pub mod config;
pub mod fatal;
pub mod types;
