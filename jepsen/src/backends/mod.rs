//! How nodes exist on this machine.

pub mod netns;
