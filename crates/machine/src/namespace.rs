//! A namespace's policy: replicated from the first commit, so that every node decides alike.
//!
//! ```text
//! takeover_since:  None --a write that makes takeover possible, at t--> Some(t) --a write that leaves it possible--> Some(t)
//!                  Some(t) --a write that makes it impossible--> None
//! ```
//!
//! Takeover is possible where `on_lapse` is takeover and claims need no capability. A lapse is not written when it happens: it is
//! read off the deadline and the policy. So what had lapsed before takeover was possible has been read as unknown, and a policy
//! must not take that back. Invariant: `takeover_since` is set exactly while takeover is possible, and takeover has been possible
//! ever since. A lease that ended after it never meant unknown; one that ended then or before did, and still does. **[safety]**

use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{LeaseTime, NamespaceName, TenantId, Version, WallTime};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// Results stay for a week where nobody says otherwise.
const BODY_MS: u64 = 7 * DAY_MS;
/// Identity stays for the thirty days that the seeds size for. (001 §11)
const IDENTITY_MS: u64 = 30 * DAY_MS;
/// Two a second: a provider's look-ups are not free.
const RECONCILE_PER_MINUTE: u32 = 120;

/// Whose keys are compared with each other; fixed when the namespace is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All authorised clients of the namespace share its keys.
    Namespace,
    /// Each client has keys of its own.
    Client,
}

/// What a lapsed lease means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLapse {
    /// The outcome is unknown, and nothing runs until it is known.
    Unknown,
    /// The next claimant takes the same execution over; right only where the effect itself checks the epoch.
    Takeover,
}

/// Who names the attempt after a proven not_applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempts {
    /// The next inline claim is the new decision.
    Automatic,
    /// The claim must name the attempt.
    Explicit,
}

/// How HTTP conflicts are reported to this namespace's callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictStyle {
    /// 409 for a mismatch, 202 in progress.
    Hapax,
    /// 422 for a mismatch, 409 in progress, as the IETF draft has it.
    Ietf,
}

/// What a claim must bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// An inline claim is itself the authorised decision; a capability may be presented.
    Inline,
    /// Every claim must present a capability.
    Capability,
}

/// What a key means whose operation was forgotten. (REQUIREMENTS 82)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiredKeys {
    /// A new operation.
    New,
    /// A key carries its creation time, and one that is older than what is remembered is refused.
    RejectOlder,
    /// Identity is never forgotten.
    Durable,
}

/// How long terminal operations stay, counted from the terminal state. (REQUIREMENTS 81–84)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For so long the inline result is kept, in milliseconds.
    pub body_ms: u64,
    /// For so long identity and outcome are kept, in milliseconds; never less than the body.
    pub identity_ms: u64,
    /// What comes after that.
    pub expired_keys: ExpiredKeys,
}

/// The bounds that a namespace puts on its callers; absent means unbounded by the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Operations that are not terminal, at most; kept by apply.
    pub open_operations: Option<u64>,
    /// Mutating calls a second, for each client and node; kept by the nodes.
    pub requests_per_second: Option<u32>,
    /// Claims of one key a second, for each client and node; kept by the nodes.
    pub key_claims_per_second: Option<u32>,
}

/// The retention floors of a namespace: they only rise, and rows below them are gone at the same index everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Floors {
    /// Results of operations that became terminal before this are gone.
    pub compact_before: WallTime,
    /// Operations that became terminal before this are gone.
    pub forget_before: WallTime,
}

/// How many reconciliation leases were granted in the current minute of lease time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// When that minute began.
    pub since: LeaseTime,
    /// How many so far.
    pub granted: u32,
}

/// What changes in a namespace by itself: floors, counts, pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceStatus {
    /// The retention floors.
    pub floors: Floors,
    /// Operations that are not terminal.
    pub open: u64,
    /// Of them, those whose outcome is unknown.
    pub unknown: u64,
    /// The pace of reconciliation.
    pub pace: Pace,
}

/// The stored policy of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceRecord {
    /// The owner.
    pub tenant: TenantId,
    /// Its name within the tenant.
    pub name: NamespaceName,
    /// Whose keys are compared.
    pub scope: Scope,
    /// What a lapsed lease means.
    pub on_lapse: OnLapse,
    /// Who names later attempts.
    pub attempts: Attempts,
    /// How conflicts are reported.
    pub conflict_style: ConflictStyle,
    /// Names of request fields that never enter the digest; fixed when the namespace is created.
    pub transport_fields: Vec<String>,
    /// Number of partitions; fixed when the namespace is created.
    pub partitions: u32,
    /// What a claim must bring.
    pub authority: Authority,
    /// How long terminal operations stay.
    pub retention: Retention,
    /// Reconciliation leases granted a minute, at most.
    pub reconcile_per_minute: u32,
    /// The bounds on its callers.
    pub quota: Quota,
    /// Since when takeover is possible, `None` while it is not; drawn in apply, whatever a writer states.
    pub takeover_since: Option<LeaseTime>,
    /// How often this policy was written; drawn in apply.
    pub version: Version,
}

impl NamespaceRecord {
    /// A namespace with every policy as documented for one that nobody configured.
    pub fn with_defaults(tenant: TenantId, name: NamespaceName) -> Self {
        Self {
            tenant,
            name,
            scope: Scope::Namespace,
            on_lapse: OnLapse::Unknown,
            attempts: Attempts::Automatic,
            conflict_style: ConflictStyle::Hapax,
            transport_fields: Vec::new(),
            partitions: 1,
            authority: Authority::Inline,
            retention: Retention::default(),
            reconcile_per_minute: RECONCILE_PER_MINUTE,
            quota: Quota::default(),
            takeover_since: None,
            version: Version(1),
        }
    }

    /// This policy as it is written at `now`, where `stands` does.
    #[must_use]
    pub(crate) fn written(self, stands: Option<&Self>, version: Version, now: LeaseTime) -> Self {
        let possible = self.on_lapse == OnLapse::Takeover && self.authority == Authority::Inline;
        let since = stands.and_then(|stands| stands.takeover_since).unwrap_or(now);
        Self { takeover_since: possible.then_some(since), version, ..self }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { body_ms: BODY_MS, identity_ms: IDENTITY_MS, expired_keys: ExpiredKeys::New }
    }
}
