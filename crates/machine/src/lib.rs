//! The pure core of Hapax: every rule that decides who may execute an operation and what its outcome is.
//! No IO, no clock, no randomness, no hash-ordered iteration: the same entries give the same state everywhere.
//!
//! # What it promises
//!
//! - **At most one consequential execution per operation.** A second executor is elected only after the first
//!   was proven not applied, or, where a namespace asks for it, by a fenced takeover of the same execution.
//! - **A terminal outcome never changes.** A contradiction is kept as evidence and quarantines the operation.
//! - **A lease epoch is never handed out twice and only grows.** Every epoch and every birth is drawn from one
//!   counter in the replicated state ([`grant`]).
//! - **A live lease is never cut short.** Lease time comes from the replicated clock ([`clock`]), which never
//!   outruns real time.
//! - **A consumed use is never given back**, and authority is consumed in the same apply that elects its executor.
//! - **Unknown never ages out.** Only evidence or a resolution with proof ends it.
//! - **No answer depends on what is physically there.** What retention removed is hidden from every rule ([`retention`]).
//! - **Refusals change nothing** beyond the settling that time itself demanded.
//!
//! # How it is driven
//!
//! One entry point, [`apply::apply_entry`]: a [`View`] of the state, the head of a log entry and its commands go
//! in; [`Changes`] and one [`Outcome`] per command come out. An error is always the view's: this node's storage
//! failed and the node must stop. What a client may not do is a [`Refusal`] inside an outcome, never an error.
//! Reads use [`read`], which settles without changing anything.
#![no_std]
extern crate alloc;

pub mod admin;
pub mod apply;
pub mod capability;
pub mod change;
mod claim;
pub mod clock;
pub mod command;
pub mod epoch;
pub mod evidence;
pub mod grant;
pub mod ids;
pub mod inbox;
mod lease;
pub mod limits;
pub mod namespace;
pub mod operation;
pub mod outcome;
pub mod read;
mod reconcile;
pub mod refusal;
mod register;
mod repair;
mod report;
mod resolve;
pub mod retention;
pub mod state_hash;
pub mod tenant;
pub mod view;

pub use change::{Change, Changes};
pub use command::{Command, EntryHead, Envelope};
pub use outcome::{Outcome, Refusal};
pub use view::{Overlay, View};
