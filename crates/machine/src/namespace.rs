//! A namespace's policy: replicated from the first commit, so that every node decides alike.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{NamespaceName, TenantId};

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
}
