//! The client against nodes that answer from a script: calls with their retries, and the lease guard.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod calls;
mod lease;
mod node;
