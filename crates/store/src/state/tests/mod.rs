//! The state's contract over both media, then what only a disk can do to it: damage and crash points.
//! Entries go through the machine, so that rows are what they are in life.

mod contract;
mod cost;
mod crash;
mod damage;
mod events;
mod fixture;
mod forgetting;
mod history;
mod judge;
mod queries;
mod retention;
