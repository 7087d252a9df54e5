//! Runs workloads against a real cluster while faults are injected, records everything that was said as a history, and
//! judges the history by checkers that know nothing of Hapax's code: no crate of Hapax is imported here.
//!
//! A run is a backend (how nodes exist on this machine), a plan of faults drawn from a seed, a workload that calls the HTTP API,
//! and the checkers. What a run says is one [`verdict::Verdict`] per checker; a run that proved nothing fails.

pub mod history;

pub mod fault;

pub mod verdict;

pub mod nodes;

pub mod http;

pub mod backends;

pub mod nemeses;

pub mod plan;

pub mod recorder;

pub mod smoke;

pub mod run;

pub mod report;
