//! Every limit that the rules rely on, in one place.
//! The proposer refuses what exceeds them; apply only ever sees what fits.

/// Shortest lease, in milliseconds.
pub const LEASE_MS_MIN: u64 = 1_000;
/// Longest lease, in milliseconds.
pub const LEASE_MS_MAX: u64 = 15 * 60 * 1_000;
/// Rows of evidence that changed nothing else, for each operation; more is counted, but not stored. What acted is always kept.
pub const EVIDENCE_PER_OPERATION: u32 = 256;
/// The wall clock moves further than this at once only on an operator's word.
pub const WALL_STEP_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// Capabilities issued for one operation, at most: each attempt needs one, and decisions may be repeated.
pub const CAPABILITIES_PER_OPERATION: u32 = 1_024;
/// Uses of one bounded-use capability, at most.
pub const USES_MAX: u32 = 1_000_000;
/// Distinct refusals kept for one capability, or for one operation where no capability was presented; the rest is not.
pub const REFUSALS_PER_SUBJECT: u32 = 64;
/// Executions that one call may lease for reconciliation.
pub const RECONCILE_ITEMS_MAX: usize = 100;
/// Pieces of news about refusals in one command.
pub const COUNTED_REFUSALS_MAX: usize = 1_024;
/// Floors stay this far behind what the policy allows, against a wall that was ahead of the clocks that callers see.
pub const RETENTION_MARGIN_MS: u64 = 60_000;
/// How far a key's creation time may be ahead of the replicated wall, and how far above the floor it must be.
pub const KEY_SKEW_MS: u64 = 60_000;
/// Shortest retention, in milliseconds.
pub const RETENTION_MS_MIN: u64 = 60_000;
/// Longest retention, in milliseconds: a hundred years.
pub const RETENTION_MS_MAX: u64 = 100 * 366 * 24 * 60 * 60 * 1_000;
/// Scopes of authority, for each tenant.
pub const EPOCHS_PER_TENANT: usize = 4_096;
/// Namespaces, for each tenant.
pub const NAMESPACES_PER_TENANT: usize = 1_024;
/// Tokens, for each tenant, revoked ones included.
pub const TOKENS_PER_TENANT: usize = 65_536;
/// Tenants.
pub const TENANTS_MAX: usize = 4_096;
