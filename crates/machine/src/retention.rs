//! Retention: what terminal operations leave behind, and until when. The clock starts at the terminal state.
//!
//! ```text
//! terminal: body and identity --compact_before--> identity --forget_before--> gone
//! ```
//!
//! | row | gone when |
//! |---|---|
//! | operation | terminal, not quarantined, and `terminal_at < forget_before` |
//! | body | `terminal_at < compact_before`, or its operation is gone |
//! | execution, grant, evidence, inbox row, use, capability of an attempt, its decision | their operation is gone |
//! | capability of a resource, its decision | `expires_at < forget_before` |
//! | refusal | its capability or operation is gone |
//!
//! | # | raise floors: condition | answer |
//! |---|---|---|
//! | 0 | the namespace is absent | `NotFound` |
//! | 1 | else | each floor: max(what stands, min(what is asked, wall − retention − margin)); `durable`: identity stays |
//!
//! Requested, executing, unknown, not_applied and quarantined operations have no horizon; of a quarantined one that is terminal
//! the body goes, and all else stays.
//!
//! **No answer and no change depends on what is physically there:** every rule looks through [`Shown`], which hides what is gone.
//! Floors change in apply only, so a row is gone at the same index on every replica. Bytes go later, or never.
//! Invariants: floors only rise; a row that is gone is never shown again; nothing is gone while an attempt can commit.
//! (DESIGN §5; REQUIREMENTS 23, 81–84)

use crate::apply::{Step, not_about_an_operation};
use crate::capability::{Bound, CapabilityRecord, DecisionRecord, UseRecord};
use crate::change::Head;
use crate::command::RaiseFloors;
use crate::epoch::EpochRecord;
use crate::ids::{
    Birth, CapabilityId, ClaimId, DecisionKey, EpochScope, ExecutionId, InboxKey, NamespaceName, OperationKey,
    TenantId, TenantTag, WallTime,
};
use crate::inbox::InboxRecord;
use crate::limits::{KEY_SKEW_MS, RETENTION_MARGIN_MS};
use crate::namespace::{ExpiredKeys, Floors, NamespaceRecord, NamespaceStatus, Retention};
use crate::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord};
use crate::outcome::{Answer, Refusal};
use crate::refusal::{RefusalKey, RefusalRecord, Subject};
use crate::tenant::{TenantRecord, TokenRecord};
use crate::view::View;

/// Whether an operation is gone under `floors`.
pub fn is_forgotten(record: &OperationRecord, floors: &Floors) -> bool {
    !record.quarantined && record.terminal_at.is_some_and(|at| at < floors.forget_before)
}

/// Whether an operation's body is gone under `floors`. Quarantine does not keep it: it may come after the body went, and what
/// is gone is never shown again.
pub fn is_compacted(record: &OperationRecord, floors: &Floors) -> bool {
    record.terminal_at.is_some_and(|at| at < floors.compact_before)
}

/// When an operation may be forgotten, at the earliest; `None` where it has no horizon.
pub fn retain_until(record: &OperationRecord, policy: &NamespaceRecord) -> Option<WallTime> {
    let durable = policy.retention.expired_keys == ExpiredKeys::Durable;
    let at = record.terminal_at.filter(|_| !durable && !record.quarantined)?;
    Some(WallTime(at.0.saturating_add(policy.retention.identity_ms)))
}

/// The highest floors that a policy's retention allows at `wall`: what is asked is clamped to them.
pub fn allowed(retention: &Retention, wall: WallTime) -> Floors {
    let before = |kept_ms: u64| WallTime(wall.0.saturating_sub(kept_ms).saturating_sub(RETENTION_MARGIN_MS));
    let forget_before = match retention.expired_keys {
        ExpiredKeys::Durable => WallTime(0),
        ExpiredKeys::New | ExpiredKeys::RejectOlder => before(retention.identity_ms),
    };
    Floors { compact_before: before(retention.body_ms), forget_before }
}

pub(crate) fn raise_floors<V: View>(step: &mut Step<'_, V>, command: &RaiseFloors) -> Result<Answer, V::Error> {
    let Some(policy) = step.view.namespace(&command.tenant, &command.namespace)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    let (allowed, asked) = (allowed(&policy.retention, step.wall()), &command.floors);
    let before = step.status(&command.tenant, &command.namespace)?.floors;
    let floors = Floors {
        compact_before: before.compact_before.max(asked.compact_before.min(allowed.compact_before)),
        forget_before: before.forget_before.max(asked.forget_before.min(allowed.forget_before)),
    };
    if floors != before {
        step.change_status(&command.tenant, &command.namespace, |status| status.floors = floors)?;
    }
    Ok(Answer::Floors(floors))
}

/// Whether a key that is absent may begin a new operation.
pub(crate) fn admit<V: View>(
    step: &Step<'_, V>,
    policy: &NamespaceRecord,
    key_created_at: Option<WallTime>,
) -> Result<Option<Refusal>, V::Error> {
    if policy.retention.expired_keys != ExpiredKeys::RejectOlder {
        return Ok(None);
    }
    let Some(created) = key_created_at else {
        return Ok(Some(Refusal::KeyCreationTime));
    };
    if created.0 > step.wall().0.saturating_add(KEY_SKEW_MS) {
        return Ok(Some(Refusal::KeyCreationTime));
    }
    let floor = step.view.status(&policy.tenant, &policy.name)?.floors.forget_before;
    // What was never forgotten cannot have been before: where the floor stands at 0, every key is new.
    let elapsed = floor > WallTime(0) && created.0 < floor.0.saturating_add(KEY_SKEW_MS);
    Ok(elapsed.then_some(Refusal::KeyRetentionElapsed))
}

/// Whether the creation time that came with a known key is another than the one it is bound to.
pub(crate) fn is_other_key(
    policy: &NamespaceRecord,
    operation: &OperationRecord,
    key_created_at: Option<WallTime>,
) -> bool {
    policy.retention.expired_keys == ExpiredKeys::RejectOlder
        && operation.key_created_at.is_some()
        && operation.key_created_at != key_created_at
}

/// A view without what is gone: the only one that rules look through.
#[derive(Debug)]
pub struct Shown<'v, V>(pub &'v V);

impl<V: View> Shown<'_, V> {
    /// Whether the operation of this life of a row is still there.
    fn lives(&self, key: &OperationKey, birth: Birth) -> Result<bool, V::Error> {
        Ok(self.operation(key)?.is_some_and(|record| record.id.birth == birth))
    }
}

impl<V: View> View for Shown<'_, V> {
    type Error = V::Error;

    fn head(&self) -> Head {
        self.0.head()
    }

    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, V::Error> {
        self.0.namespace(tenant, name)
    }

    fn status(&self, tenant: &TenantId, name: &NamespaceName) -> Result<NamespaceStatus, V::Error> {
        self.0.status(tenant, name)
    }

    fn tenant(&self, id: &TenantId) -> Result<Option<TenantRecord>, V::Error> {
        self.0.tenant(id)
    }

    fn token(&self, id: &str) -> Result<Option<TokenRecord>, V::Error> {
        self.0.token(id)
    }

    fn epoch(&self, tenant: &TenantId, scope: &EpochScope) -> Result<Option<EpochRecord>, V::Error> {
        self.0.epoch(tenant, scope)
    }

    fn operation(&self, key: &OperationKey) -> Result<Option<OperationRecord>, V::Error> {
        let Some(record) = self.0.operation(key)? else {
            return Ok(None);
        };
        if record.terminal_at.is_none() {
            return Ok(Some(record));
        }
        let floors = self.0.status(&record.tenant, &record.namespace)?.floors;
        Ok(if is_forgotten(&record, &floors) { None } else { Some(record) })
    }

    fn execution(&self, tenant: TenantTag, id: &ExecutionId) -> Result<Option<ExecutionRecord>, V::Error> {
        match self.0.execution(tenant, id)? {
            Some(record) if self.lives(&record.operation, record.birth)? => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    fn grant(&self, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Result<Option<GrantRecord>, V::Error> {
        if self.lives(key, birth)? { self.0.grant(key, birth, claim) } else { Ok(None) }
    }

    fn body(&self, key: &OperationKey, birth: Birth) -> Result<Option<Body>, V::Error> {
        let Some(record) = self.operation(key)?.filter(|record| record.id.birth == birth) else {
            return Ok(None);
        };
        let floors = self.0.status(&record.tenant, &record.namespace)?.floors;
        if is_compacted(&record, &floors) { Ok(None) } else { self.0.body(key, birth) }
    }

    fn capability(&self, tenant: TenantTag, id: &CapabilityId) -> Result<Option<CapabilityRecord>, V::Error> {
        let Some(record) = self.0.capability(tenant, id)? else {
            return Ok(None);
        };
        let there = match &record.bound {
            Bound::Attempt { operation, .. } => self.lives(&operation.key(&record.tenant), operation.birth)?,
            Bound::Resource { .. } => {
                record.expires_at >= self.0.status(&record.tenant, &record.namespace)?.floors.forget_before
            }
        };
        Ok(there.then_some(record))
    }

    fn decision(&self, key: &DecisionKey) -> Result<Option<DecisionRecord>, V::Error> {
        match self.0.decision(key)? {
            Some(record) if self.capability(key.tenant, &record.capability)?.is_some() => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    fn used(&self, tenant: TenantTag, id: &CapabilityId, key: &OperationKey) -> Result<Option<UseRecord>, V::Error> {
        match self.0.used(tenant, id, key)? {
            Some(record) if self.lives(key, record.birth)? => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    fn inbox(&self, key: &InboxKey) -> Result<Option<InboxRecord>, V::Error> {
        match self.0.inbox(key)? {
            Some(record) if self.lives(&record.operation.key(&record.tenant), record.operation.birth)? => {
                Ok(Some(record))
            }
            _ => Ok(None),
        }
    }

    fn refusal(&self, key: &RefusalKey) -> Result<Option<RefusalRecord>, V::Error> {
        let there = match key.subject {
            Subject::Capability(id) => self.capability(key.tenant, &id)?.is_some(),
            Subject::Operation(hash, birth) => self.lives(&OperationKey { tenant: key.tenant, hash }, birth)?,
        };
        if there { self.0.refusal(key) } else { Ok(None) }
    }
}
