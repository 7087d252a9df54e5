//! Tenants and their tokens. A tenant is replaced as a whole, under `If-Match`; a token is made once, its secret is
//! shown once, and it is never deleted, only revoked.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cursor::Cursor;
use crate::limits::{self, Limits};
use crate::request::{Body, Fields, Invalid, Kind, Known, reads, required};
use crate::text::{Label, Namespace, Revision, Tenant, TokenId, TokenText, words};
use crate::time::Instant;

words! {
    /// What a token's client may do.
    Role {
        /// Claim, renew, report, give evidence.
        Claim = "claim",
        /// Register operations, issue and revoke capabilities, close operations.
        Issue = "issue",
        /// Lease and resolve unknown executions, escalate them.
        Reconcile = "reconcile",
        /// Look at operations, lists, evidence, and watch.
        Read = "read",
        /// Repair, fence, bump authority epochs.
        Operate = "operate",
        /// Administer namespaces and tokens; in the operators' own tenant, all tenants.
        Admin = "admin",
    }
}

/// The body of `PUT /v1/tenants/{tenant}`: a whole tenant. What it leaves out gets its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutTenantRequest {
    /// Whether its credentials are refused; false where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Requests a second, for each node; unbounded where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub requests_per_second: Option<u32>,
}

impl Body for PutTenantRequest {
    const FIELDS: Known = &[("disabled", Kind::Plain), ("requests_per_second", Kind::Plain)];

    fn take(fields: &mut Fields, _: &Limits) -> Result<PutTenantRequest, Invalid> {
        Ok(PutTenantRequest {
            disabled: fields.flag("disabled")?,
            requests_per_second: fields.number("requests_per_second", 1..=limits::QUOTA_MAX)?,
        })
    }
}

/// `GET` and `PUT /v1/tenants/{tenant}`, with the version as `ETag`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Its name.
    pub tenant: Tenant,
    /// Whether it is the operators' own, whose administrators administer every tenant.
    pub system: bool,
    /// Whether its credentials are refused.
    pub disabled: bool,
    /// Requests a second, for each node; absent means unbounded by the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// How often it was written; the `ETag` is `"v<version>"`.
    pub version: u64,
    /// When this was true.
    pub revision: Revision,
}

/// A page of tenants, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantPage {
    /// The tenants.
    pub tenants: Vec<TenantView>,
    /// Where the next page begins; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// When this was true.
    pub revision: Revision,
}

/// `POST /v1/tokens`. It has no identity of its own: after a lost answer, the token that nobody knows the secret of is
/// in the list, and is revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// Whose token it is; the caller's own tenant where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The stable client that it stands for; several tokens may stand for one client.
    pub client: Label,
    /// The namespaces that it is good for; all of the tenant's where absent or empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub namespaces: Vec<Namespace>,
    /// What it may be used for; at least one.
    #[schema(min_items = 1, max_items = 6)]
    pub roles: Vec<Role>,
    /// When it ends; never where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Instant>,
}

impl Body for CreateTokenRequest {
    const FIELDS: Known = &[
        ("tenant", Kind::Plain),
        ("client", Kind::Plain),
        ("namespaces", Kind::Plain),
        ("roles", Kind::Plain),
        ("expires_at", Kind::Plain),
    ];

    fn take(fields: &mut Fields, _: &Limits) -> Result<CreateTokenRequest, Invalid> {
        let request = CreateTokenRequest {
            tenant: fields.text("tenant")?,
            client: required("client", fields.text("client")?)?,
            namespaces: fields.texts("namespaces", limits::TOKEN_NAMESPACES_MAX)?.unwrap_or_default(),
            roles: required("roles", fields.texts("roles", Role::ALL.len())?)?,
            expires_at: fields.text("expires_at")?,
        };
        if request.roles.is_empty() {
            return Err(Invalid::field("roles", "is empty: such a token would be good for nothing"));
        }
        Ok(request)
    }
}

/// `POST /v1/tokens/{token_id}/revoke`: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeTokenRequest {}

impl Body for RevokeTokenRequest {
    const FIELDS: Known = &[];

    fn take(_: &mut Fields, _: &Limits) -> Result<RevokeTokenRequest, Invalid> {
        Ok(RevokeTokenRequest {})
    }
}

reads!(PutTenantRequest, CreateTokenRequest, RevokeTokenRequest);

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its public part.
    pub token_id: TokenId,
    /// Whose token it is.
    pub tenant: Tenant,
    /// The stable client that it stands for.
    pub client: Label,
    /// The namespaces that it is good for; empty means all of the tenant's.
    pub namespaces: Vec<Namespace>,
    /// What it may be used for.
    pub roles: Vec<Role>,
    /// When it was made.
    pub created_at: Instant,
    /// When it ends; absent for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Instant>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Instant>,
    /// When this was true.
    pub revision: Revision,
}

/// 201: a new token. This is the only answer that shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// The whole token, to be kept by its owner and by nobody else.
    pub token: TokenText,
    /// What is kept of it.
    #[serde(flatten)]
    pub view: TokenView,
}

/// A page of a tenant's tokens, by id, the revoked ones included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenPage {
    /// The tokens.
    pub tokens: Vec<TokenView>,
    /// Where the next page begins; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// When this was true.
    pub revision: Revision,
}
