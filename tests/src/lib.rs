//! What the end-to-end tests share: real `hapax serve` processes, the links between them, callers, and recorded load.
//! The tests themselves are in `tests/tests`; each starts clusters of its own on ports of its own.

pub mod admin;
pub mod authority;
pub mod caller;
pub mod cluster;
pub mod content;
pub mod faketime;
pub mod load;
pub mod provider;
pub mod proxy;
pub mod refunds;
pub mod shell;
pub mod wait;
pub mod watcher;
