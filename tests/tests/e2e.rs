//! The end-to-end tests: each file is a story, told to real nodes. One binary, because linking one for each story costs more than
//! most of them take to run; every test still runs in a process of its own.
// What was measured belongs to the report of a run.
#![allow(clippy::print_stdout)]

mod administration;
mod api;
mod authority;
mod batch;
mod bench;
mod callbacks;
mod catch_up;
mod cli;
mod crashes;
mod damage;
mod database;
mod dev;
mod digests;
mod epochs;
mod failover;
mod forgotten;
mod game_day;
mod guide;
mod herd;
mod hostile;
mod inbox;
mod leases;
mod ledger;
mod limits;
mod lists;
mod local;
mod metrics;
mod partition;
mod receipts;
mod record;
mod repair;
mod retention;
mod secrets;
mod sync_trace;
mod tenants;
mod unknown;
mod watch;
mod wiped;
