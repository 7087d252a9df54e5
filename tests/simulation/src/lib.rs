//! Clusters of the shipped code in one process, one thread and one seed: the real consensus, peer protocol, state machine and routes,
//! over a simulated network, clock and disk.
//!
//! ```text
//!  caller ─► client ─► node: routes ─► consensus ─► log and state in memory, which a crash takes from
//!                        │                 │
//!                        ▼                 ▼
//!                     history           network: delay, loss, cuts          world: one millisecond after the other
//!                        └────────► invariants ◄──── what nodes hold          plan: what goes wrong, drawn from the seed
//! ```
//!
//! **Two runs of one seed are the same, line by line.** Everything runs on one thread, in an order that the seed fixes (`runtime`,
//! `world`); time passes only between steps, and randomness is a function of the seed, also that of the libraries (`machine.c`).
//! **A run proves something only if something happened in it**: calls and faults are counted, and the tests ask for both.
//! Invariants are judged from outside, and each convicts a cluster that is wrong on purpose (`mutant`).

pub mod world;
pub mod plan;
pub mod mutant;

pub mod caller;
pub mod client;
pub mod history;
pub mod closing;
pub mod invariants;
pub mod report;
pub mod counted;

pub mod node;
pub mod network;
pub mod runtime;
pub mod time;
pub mod trace;
