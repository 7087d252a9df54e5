//! Namespaces: the policy that its writer states, and what a reader sees beside it: limits, usage and floors.
//! A policy is replaced as a whole, under `If-Match`, or made under `If-None-Match: *`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::codes::ConflictStyle;
use crate::cursor::Cursor;
use crate::limits::{self, Limits};
use crate::query::{Query, Writer};
use crate::request::{Body, Fields, Invalid, Kind, Known, reads};
use crate::text::{FieldName, Namespace, Revision, Tenant, words};
use crate::time::Instant;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// How long results are kept where nobody says otherwise, in milliseconds: a week.
pub const BODY_MS_DEFAULT: u64 = 7 * DAY_MS;
/// How long identities are kept where nobody says otherwise, in milliseconds: thirty days.
pub const IDENTITY_MS_DEFAULT: u64 = 30 * DAY_MS;
/// Reconciliation leases a minute where nobody says otherwise.
pub const RECONCILE_PER_MINUTE_DEFAULT: u32 = 120;

words! {
    /// Whose keys are compared with each other; fixed when the namespace is created.
    #[derive(Default)]
    Scope {
        /// All authorised clients of the namespace share its keys.
        #[default]
        Namespace = "namespace",
        /// Each client has keys of its own.
        Client = "client",
    }
}

words! {
    /// What a lapsed lease means.
    #[derive(Default)]
    OnLapse {
        /// The outcome is unknown, and nothing runs until it is known.
        #[default]
        Unknown = "unknown",
        /// The next claimant takes the same execution over; right only where the effect itself checks the epoch.
        Takeover = "takeover",
    }
}

words! {
    /// Who names the attempt after a proven not_applied.
    #[derive(Default)]
    Attempts {
        /// The next inline claim is the new decision.
        #[default]
        Automatic = "automatic",
        /// The claim must name the attempt.
        Explicit = "explicit",
    }
}

words! {
    /// What a claim must bring.
    #[derive(Default)]
    Authority {
        /// An inline claim is itself the authorised decision; a capability may be presented.
        #[default]
        Inline = "inline",
        /// Every claim must present a capability.
        Capability = "capability",
    }
}

words! {
    /// What a key means whose operation was forgotten.
    #[derive(Default)]
    ExpiredKeys {
        /// A new operation.
        #[default]
        New = "new",
        /// A key carries its creation time, and one that is older than what is remembered is refused.
        RejectOlder = "reject_older",
        /// Identity is never forgotten.
        Durable = "durable",
    }
}

/// How long terminal operations stay, counted from the terminal state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retention {
    /// For so long the inline result is kept, in milliseconds.
    #[schema(minimum = 60_000)]
    pub body_ms: u64,
    /// For so long identity and outcome are kept, in milliseconds; never less than the result.
    #[schema(minimum = 60_000)]
    pub identity_ms: u64,
    /// What comes after that.
    pub expired_keys: ExpiredKeys,
}

/// How long terminal operations are to stay. What it leaves out gets its default, the result never longer than its
/// identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionRequest {
    /// For so long the inline result is kept, in milliseconds; a week where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60_000)]
    pub body_ms: Option<u64>,
    /// For so long identity and outcome are kept, in milliseconds; thirty days where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60_000)]
    pub identity_ms: Option<u64>,
    /// What comes after that; `new` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired_keys: Option<ExpiredKeys>,
}

impl From<Retention> for RetentionRequest {
    fn from(retention: Retention) -> RetentionRequest {
        let Retention { body_ms, identity_ms, expired_keys } = retention;
        RetentionRequest { body_ms: Some(body_ms), identity_ms: Some(identity_ms), expired_keys: Some(expired_keys) }
    }
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { body_ms: BODY_MS_DEFAULT, identity_ms: IDENTITY_MS_DEFAULT, expired_keys: ExpiredKeys::New }
    }
}

impl Retention {
    const FIELDS: Known = &[("body_ms", Kind::Plain), ("identity_ms", Kind::Plain), ("expired_keys", Kind::Plain)];

    fn take(fields: &mut Fields) -> Result<Retention, Invalid> {
        let range = limits::RETENTION_MS_MIN..=limits::RETENTION_MS_MAX;
        let body_ms = fields.integer("body_ms", range.clone())?;
        let identity_ms = fields.integer("identity_ms", range)?.unwrap_or(IDENTITY_MS_DEFAULT);
        // Who only says how long identity stays does not ask for results beyond it.
        let body_ms = body_ms.unwrap_or(BODY_MS_DEFAULT.min(identity_ms));
        if identity_ms < body_ms {
            return Err(Invalid::field("identity_ms", "is less than body_ms: a result needs its identity"));
        }
        Ok(Retention { body_ms, identity_ms, expired_keys: fields.text("expired_keys")?.unwrap_or_default() })
    }
}

/// The bounds that a namespace puts on its callers; absent means unbounded by the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Quota {
    /// Operations that are not terminal, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub open_operations: Option<u64>,
    /// Mutating calls a second, for each client and node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub requests_per_second: Option<u32>,
    /// Claims of one key a second, for each client and node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub key_claims_per_second: Option<u32>,
}

impl Quota {
    const FIELDS: Known = &[
        ("open_operations", Kind::Plain),
        ("requests_per_second", Kind::Plain),
        ("key_claims_per_second", Kind::Plain),
    ];

    fn take(fields: &mut Fields) -> Result<Quota, Invalid> {
        Ok(Quota {
            open_operations: fields.integer("open_operations", 1..=limits::INTEGER_MAX.unsigned_abs())?,
            requests_per_second: fields.number("requests_per_second", 1..=limits::QUOTA_MAX)?,
            key_claims_per_second: fields.number("key_claims_per_second", 1..=limits::QUOTA_MAX)?,
        })
    }
}

/// The body of `PUT /v1/namespaces/{namespace}`: a whole policy. What it leaves out gets its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutNamespaceRequest {
    /// Whose keys are compared; fixed at creation; `namespace` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// What a lapsed lease means; `unknown` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lapse: Option<OnLapse>,
    /// Who names later attempts; `automatic` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Attempts>,
    /// How conflicts are reported; `hapax` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict_style: Option<ConflictStyle>,
    /// What a claim must bring; `inline` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
    /// Names of top-level request fields that never enter the digest; fixed at creation; none where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub transport_fields: Option<Vec<FieldName>>,
    /// Number of partitions; fixed at creation; 1 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4096)]
    pub partitions: Option<u32>,
    /// How long terminal operations stay; a week for results and thirty days for identity where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionRequest>,
    /// Reconciliation leases granted a minute, at most; 120 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub reconcile_per_minute: Option<u32>,
    /// The bounds on its callers; none where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
}

/// A policy, complete: as a body was read, and as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespacePolicy {
    /// Whose keys are compared; fixed at creation.
    pub scope: Scope,
    /// What a lapsed lease means.
    pub on_lapse: OnLapse,
    /// Who names later attempts.
    pub attempts: Attempts,
    /// How conflicts are reported.
    pub conflict_style: ConflictStyle,
    /// What a claim must bring.
    pub authority: Authority,
    /// Names of top-level request fields that never enter the digest; fixed at creation.
    pub transport_fields: Vec<FieldName>,
    /// Number of partitions; fixed at creation.
    pub partitions: u32,
    /// How long terminal operations stay.
    pub retention: Retention,
    /// Reconciliation leases granted a minute, at most.
    pub reconcile_per_minute: u32,
    /// The bounds on its callers.
    pub quota: Quota,
}

impl Default for NamespacePolicy {
    fn default() -> NamespacePolicy {
        NamespacePolicy {
            scope: Scope::default(),
            on_lapse: OnLapse::default(),
            attempts: Attempts::default(),
            conflict_style: ConflictStyle::default(),
            authority: Authority::default(),
            transport_fields: Vec::new(),
            partitions: 1,
            retention: Retention::default(),
            reconcile_per_minute: RECONCILE_PER_MINUTE_DEFAULT,
            quota: Quota::default(),
        }
    }
}

/// For read, change, write: everything is said.
impl From<NamespacePolicy> for PutNamespaceRequest {
    fn from(policy: NamespacePolicy) -> PutNamespaceRequest {
        PutNamespaceRequest {
            scope: Some(policy.scope),
            on_lapse: Some(policy.on_lapse),
            attempts: Some(policy.attempts),
            conflict_style: Some(policy.conflict_style),
            authority: Some(policy.authority),
            transport_fields: Some(policy.transport_fields),
            partitions: Some(policy.partitions),
            retention: Some(policy.retention.into()),
            reconcile_per_minute: Some(policy.reconcile_per_minute),
            quota: Some(policy.quota),
        }
    }
}

impl Body for NamespacePolicy {
    const FIELDS: Known = &[
        ("scope", Kind::Plain),
        ("on_lapse", Kind::Plain),
        ("attempts", Kind::Plain),
        ("conflict_style", Kind::Plain),
        ("authority", Kind::Plain),
        ("transport_fields", Kind::Plain),
        ("partitions", Kind::Plain),
        ("retention", Kind::Plain),
        ("reconcile_per_minute", Kind::Plain),
        ("quota", Kind::Plain),
    ];

    fn take(fields: &mut Fields, _: &Limits) -> Result<NamespacePolicy, Invalid> {
        Ok(NamespacePolicy {
            scope: fields.text("scope")?.unwrap_or_default(),
            on_lapse: fields.text("on_lapse")?.unwrap_or_default(),
            attempts: fields.text("attempts")?.unwrap_or_default(),
            conflict_style: fields.text("conflict_style")?.unwrap_or_default(),
            authority: fields.text("authority")?.unwrap_or_default(),
            transport_fields: fields.texts("transport_fields", limits::TRANSPORT_FIELDS_MAX)?.unwrap_or_default(),
            partitions: fields.number("partitions", 1..=limits::PARTITIONS_MAX)?.unwrap_or(1),
            retention: fields.nested("retention", Retention::FIELDS, Retention::take)?.unwrap_or_default(),
            reconcile_per_minute: fields
                .number("reconcile_per_minute", 1..=limits::QUOTA_MAX)?
                .unwrap_or(RECONCILE_PER_MINUTE_DEFAULT),
            quota: fields.nested("quota", Quota::FIELDS, Quota::take)?.unwrap_or_default(),
        })
    }
}

reads!(NamespacePolicy);

/// The limits of the wire that the answering node applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitsView {
    /// Characters in a key.
    pub key_chars: u64,
    /// Bytes in a request body.
    pub body_bytes: u64,
    /// Bytes of an inline result.
    pub result_bytes: u64,
    /// Longest wait, in milliseconds.
    pub wait_ms: u64,
    /// Shortest lease, in milliseconds.
    pub lease_ms_min: u64,
    /// Longest lease, in milliseconds.
    pub lease_ms: u64,
    /// Items in a batch.
    pub batch_items: u64,
    /// Bytes in the body of a batch.
    pub batch_bytes: u64,
    /// Items on a page.
    pub page_items: u64,
}

impl From<&Limits> for LimitsView {
    fn from(limits: &Limits) -> LimitsView {
        LimitsView {
            key_chars: limits.key_chars as u64,
            body_bytes: limits.body_bytes as u64,
            result_bytes: limits.result_bytes as u64,
            wait_ms: limits.wait_ms,
            lease_ms_min: limits::LEASE_MS_MIN,
            lease_ms: limits.lease_ms,
            batch_items: limits.batch_items as u64,
            batch_bytes: limits.batch_bytes as u64,
            page_items: limits.page_items,
        }
    }
}

/// How much of a namespace is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Operations that are not terminal.
    pub open_operations: u64,
    /// Of them, those whose outcome is unknown.
    pub unknown: u64,
}

/// The retention floors: they only rise, and what is below them is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Floors {
    /// Results of operations that became terminal before this are gone.
    pub compact_before: Instant,
    /// Operations that became terminal before this are gone.
    pub forget_before: Instant,
}

/// `GET` and `PUT /v1/namespaces/{namespace}`, with the version as `ETag`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceView {
    /// Its name.
    pub namespace: Namespace,
    /// Its tenant.
    pub tenant: Tenant,
    /// Its policy.
    pub policy: NamespacePolicy,
    /// How often the policy was written; the `ETag` is `"v<version>"`.
    pub version: u64,
    /// The limits that apply.
    pub limits: LimitsView,
    /// How much is in use.
    pub usage: Usage,
    /// The retention floors.
    pub floors: Floors,
    /// When this was true.
    pub revision: Revision,
}

/// A page of a tenant's namespaces, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespacePage {
    /// The namespaces.
    pub namespaces: Vec<NamespaceView>,
    /// Where the next page begins; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// When this was true.
    pub revision: Revision,
}

/// The query of one namespace: whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantQuery {
    /// The tenant, where that is not the caller's own; for administrators of all tenants.
    pub tenant: Option<Tenant>,
}

impl TenantQuery {
    /// Reads a query string.
    ///
    /// # Errors
    /// [`Invalid`] names the first parameter that is wrong.
    pub fn read(query: &str) -> Result<TenantQuery, Invalid> {
        let mut query = Query::read(query, &["tenant"])?;
        Ok(TenantQuery { tenant: query.parsed("tenant")? })
    }

    /// The query string, without its question mark.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut query = Writer::default();
        query.optional("tenant", self.tenant.as_ref());
        query.finish()
    }
}

/// The query of a list of namespaces, tenants or tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageQuery {
    /// The tenant, where that is not the caller's own; not for the list of tenants.
    pub tenant: Option<Tenant>,
    /// Items on the page.
    pub limit: Option<u64>,
    /// Where an earlier page of the same list ended.
    pub cursor: Option<Cursor>,
}

impl PageQuery {
    /// Reads a query string; `limit` is there afterwards.
    ///
    /// # Errors
    /// [`Invalid`] names the first parameter that is wrong.
    pub fn read(query: &str, limits: &Limits) -> Result<PageQuery, Invalid> {
        let mut query = Query::read(query, &["tenant", "limit", "cursor"])?;
        Ok(PageQuery {
            tenant: query.parsed("tenant")?,
            limit: Some(query.limit(limits)?),
            cursor: query.parsed("cursor")?,
        })
    }

    /// The query string, without its question mark.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut query = Writer::default();
        query.optional("tenant", self.tenant.as_ref());
        query.optional("limit", self.limit);
        query.optional("cursor", self.cursor.as_ref());
        query.finish()
    }
}
