//! The rules from outside: golden scripts, an independent model, small-scope exploration, and pinned literals.
//! One test binary, so that its parts share one in-memory state.

mod bounds;
mod explore;
mod literals;
mod memory;
mod model;
mod properties;
mod scripts;
