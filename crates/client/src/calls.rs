//! The typed calls, one method each, by what they are about.
//!
//! A call that changes something is sent again after a 503, a 504 or a lost connection, because it has an identity of
//! its own: a registration its key and digest, a capability its decision, a word about an execution its lease epoch, a
//! repair the state that it leads to. Where it has none, its method says so.

mod administration;
mod authority;
mod executions;
mod operations;
