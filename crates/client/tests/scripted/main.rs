//! The client against nodes that answer from a script: calls with their retries, the lease guard, and watching.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod calls;
mod lease;
mod node;
mod protocol;
mod watch;
