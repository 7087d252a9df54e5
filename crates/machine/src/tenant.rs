//! Stored credentials: which hashed token stands for which client with which roles.
//! The rules never read them; they are replicated so that every node authenticates alike.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{ClientId, NamespaceName, TenantId};

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
}
