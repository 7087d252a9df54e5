//! Every limit that the rules rely on, in one place.
//! The proposer refuses what exceeds them; apply only ever sees what fits.

/// Shortest lease, in milliseconds.
pub const LEASE_MS_MIN: u64 = 1_000;
/// Longest lease, in milliseconds.
pub const LEASE_MS_MAX: u64 = 15 * 60 * 1_000;
/// Evidence rows kept per operation; later contradictions still quarantine and are counted, but not stored.
pub const EVIDENCE_PER_OPERATION: u32 = 256;
/// The wall clock moves further than this at once only on an operator's word.
pub const WALL_STEP_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
