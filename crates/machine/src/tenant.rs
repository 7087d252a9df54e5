//! Tenants and stored credentials: which hashed token stands for which client with which roles.
//! Replicated so that every node authenticates alike; nothing is deleted, so that no id gets a second meaning.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{ClientId, NamespaceName, TenantId, Version, WallTime};

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    /// Its id.
    pub id: TenantId,
    /// Whether it is the operators' own, whose administrators administer every tenant. Set by the bootstrap only.
    pub system: bool,
    /// Whether its credentials are refused.
    pub disabled: bool,
    /// Requests a second, for each node; absent means unbounded by the tenant.
    pub requests_per_second: Option<u32>,
    /// How often it was written; drawn in apply.
    pub version: Version,
}

impl TenantRecord {
    /// A tenant without limits of its own.
    pub fn without_limits(id: TenantId) -> Self {
        Self { id, system: false, disabled: false, requests_per_second: None, version: Version(1) }
    }
}

/// A stored token. The secret itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// The public part of the token.
    pub id: String,
    /// SHA-256 of the secret part.
    pub secret_hash: [u8; 32],
    /// Whose token it is.
    pub tenant: TenantId,
    /// The stable client it stands for.
    pub client: ClientId,
    /// The namespaces it may use; empty means all of the tenant's.
    pub namespaces: Vec<NamespaceName>,
    /// Roles as a bit set; the meaning of each bit is the credential layer's.
    pub roles: u32,
    /// When it ends, in milliseconds since the Unix epoch; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// When it was made, on the replicated wall; set in apply.
    pub created_at: WallTime,
    /// When it was revoked; a revoked token is refused for good.
    pub revoked_at: Option<WallTime>,
}
