//! Policies, tenants and tokens, both ways.

use hapax_api::namespace::{self as wire_namespace, LimitsView, NamespacePolicy, NamespaceView, Usage};
use hapax_api::tenant::{Role as WireRole, TenantView, TokenView};
use hapax_api::time::Instant;
use hapax_api::{ConflictStyle, Limits, text};
use hapax_auth::{Role, Roles};
use hapax_machine::ids::{NamespaceName, Revision, TenantId};
use hapax_machine::namespace::{self as core, NamespaceRecord, NamespaceStatus};
use hapax_machine::tenant::{TenantRecord, TokenRecord};

use super::{revision, style, wire};
use crate::problem::Refusal;

/// The record of a policy that a writer states.
pub(crate) fn policy(tenant: TenantId, name: NamespaceName, stated: NamespacePolicy) -> NamespaceRecord {
    use wire_namespace::{Attempts, Authority, ExpiredKeys, OnLapse, Scope};
    NamespaceRecord {
        scope: match stated.scope {
            Scope::Namespace => core::Scope::Namespace,
            Scope::Client => core::Scope::Client,
        },
        on_lapse: match stated.on_lapse {
            OnLapse::Unknown => core::OnLapse::Unknown,
            OnLapse::Takeover => core::OnLapse::Takeover,
        },
        attempts: match stated.attempts {
            Attempts::Automatic => core::Attempts::Automatic,
            Attempts::Explicit => core::Attempts::Explicit,
        },
        conflict_style: match stated.conflict_style {
            ConflictStyle::Hapax => core::ConflictStyle::Hapax,
            ConflictStyle::Ietf => core::ConflictStyle::Ietf,
        },
        authority: match stated.authority {
            Authority::Inline => core::Authority::Inline,
            Authority::Capability => core::Authority::Capability,
        },
        transport_fields: stated.transport_fields.iter().map(|field| field.as_str().to_owned()).collect(),
        partitions: stated.partitions,
        retention: core::Retention {
            body_ms: stated.retention.body_ms,
            identity_ms: stated.retention.identity_ms,
            expired_keys: match stated.retention.expired_keys {
                ExpiredKeys::New => core::ExpiredKeys::New,
                ExpiredKeys::RejectOlder => core::ExpiredKeys::RejectOlder,
                ExpiredKeys::Durable => core::ExpiredKeys::Durable,
            },
        },
        reconcile_per_minute: stated.reconcile_per_minute,
        quota: core::Quota {
            open_operations: stated.quota.open_operations,
            requests_per_second: stated.quota.requests_per_second,
            key_claims_per_second: stated.quota.key_claims_per_second,
        },
        ..NamespaceRecord::with_defaults(tenant, name)
    }
}

/// A policy with what stands beside it.
pub(crate) fn namespace(
    record: &NamespaceRecord,
    status: &NamespaceStatus,
    limits: &Limits,
    at: Revision,
) -> Result<NamespaceView, Refusal> {
    Ok(NamespaceView {
        namespace: wire(record.name.as_str())?,
        tenant: wire(record.tenant.as_str())?,
        policy: stated(record)?,
        version: record.version.0,
        limits: LimitsView::from(limits),
        usage: Usage { open_operations: status.open, unknown: status.unknown },
        floors: wire_namespace::Floors {
            compact_before: Instant(status.floors.compact_before.0),
            forget_before: Instant(status.floors.forget_before.0),
        },
        revision: revision(at),
    })
}

fn stated(record: &NamespaceRecord) -> Result<NamespacePolicy, Refusal> {
    use wire_namespace::{Attempts, Authority, ExpiredKeys, OnLapse, Scope};
    let fields = record.transport_fields.iter().map(|field| wire::<text::FieldName>(field));
    Ok(NamespacePolicy {
        scope: match record.scope {
            core::Scope::Namespace => Scope::Namespace,
            core::Scope::Client => Scope::Client,
        },
        on_lapse: match record.on_lapse {
            core::OnLapse::Unknown => OnLapse::Unknown,
            core::OnLapse::Takeover => OnLapse::Takeover,
        },
        attempts: match record.attempts {
            core::Attempts::Automatic => Attempts::Automatic,
            core::Attempts::Explicit => Attempts::Explicit,
        },
        conflict_style: style(record.conflict_style),
        authority: match record.authority {
            core::Authority::Inline => Authority::Inline,
            core::Authority::Capability => Authority::Capability,
        },
        transport_fields: fields.collect::<Result<_, Refusal>>()?,
        partitions: record.partitions,
        retention: wire_namespace::Retention {
            body_ms: record.retention.body_ms,
            identity_ms: record.retention.identity_ms,
            expired_keys: match record.retention.expired_keys {
                core::ExpiredKeys::New => ExpiredKeys::New,
                core::ExpiredKeys::RejectOlder => ExpiredKeys::RejectOlder,
                core::ExpiredKeys::Durable => ExpiredKeys::Durable,
            },
        },
        reconcile_per_minute: record.reconcile_per_minute,
        quota: wire_namespace::Quota {
            open_operations: record.quota.open_operations,
            requests_per_second: record.quota.requests_per_second,
            key_claims_per_second: record.quota.key_claims_per_second,
        },
    })
}

/// A tenant.
pub(crate) fn tenant(record: &TenantRecord, at: Revision) -> Result<TenantView, Refusal> {
    Ok(TenantView {
        tenant: wire(record.id.as_str())?,
        system: record.system,
        disabled: record.disabled,
        requests_per_second: record.requests_per_second,
        version: record.version.0,
        revision: revision(at),
    })
}

/// A token, without its secret.
pub(crate) fn token(record: &TokenRecord, at: Revision) -> Result<TokenView, Refusal> {
    let roles = Roles::from_bits(record.roles);
    let names = record.namespaces.iter().map(|name| wire::<text::Namespace>(name.as_str()));
    Ok(TokenView {
        token_id: wire(&record.id)?,
        tenant: wire(record.tenant.as_str())?,
        client: wire(record.client.as_str())?,
        namespaces: names.collect::<Result<_, Refusal>>()?,
        roles: WireRole::ALL.iter().copied().filter(|named| roles.contains(role(*named))).collect(),
        created_at: Instant(record.created_at.0),
        expires_at: record.expires_at_ms.map(Instant),
        revoked_at: record.revoked_at.map(|at| Instant(at.0)),
        revision: revision(at),
    })
}

/// A role that a writer names.
pub(crate) fn role(named: WireRole) -> Role {
    match named {
        WireRole::Claim => Role::Claim,
        WireRole::Issue => Role::Issue,
        WireRole::Reconcile => Role::Reconcile,
        WireRole::Read => Role::Read,
        WireRole::Operate => Role::Operate,
        WireRole::Admin => Role::Admin,
    }
}
