//! A node's HTTP face: configuration, credentials, routes, conversions, hardening, metrics, shutdown.
//! Decides nothing about operations: it turns requests into commands and outcomes into answers.
//!
//! - [`config`] reads and checks what an operator wrote.
//! - [`http`] accepts connections and bounds what any of them may cost.
//! - [`calls`] makes every mutating call, single or in a batch; [`routes`] is one file per resource; [`convert`] is the only
//!   place where wire types meet the core's.
//! - [`serve`] wires a node together and takes it down again; [`direct`] answers calls without a socket.
//!
//! Every call is authenticated, then authorised, then looked up, in that order, replays too.

pub mod bootstrap;
pub mod config;
pub mod serve;
pub mod direct;

mod auth;
mod calls;
mod convert;
mod http;
mod metrics;
mod pace;
mod problem;
mod room;
mod routes;
mod state;
mod waits;

pub mod doctor;
pub mod logging;
