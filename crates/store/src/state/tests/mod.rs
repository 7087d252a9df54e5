//! Contract tests of the state over both media, damage, and crash points.
