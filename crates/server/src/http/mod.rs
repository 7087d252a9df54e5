//! Connections: accepted, counted, timed and bounded before any route sees a request.
//! `axum::serve` does none of this, so the connections are built on hyper-util with timers of our own.

mod connections;
mod guard;
mod series;

pub(crate) use connections::{Connections, Timeouts, bind};
pub(crate) use guard::{Guard, read_body};
