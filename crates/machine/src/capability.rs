//! Capabilities: bounded-use authority, bound to an attempt at an operation, or to a resource.
//!
//! ```text
//! issued(n left) --claim that is elected--> issued(n - 1 left) ... --> consumed
//! issued(n left) --revoke--> revoked            expired is a question of time, not a state
//! ```
//!
//! | # | issue: condition | answer |
//! |---|---|---|
//! | 0 | the operation (the namespace) is absent or not theirs | `NotFound`; else settle |
//! | 1 | the decision led to a capability: with the same terms / others | that one / `DecisionReused` |
//! | 2 | the operation is completed, failed | `OperationCompleted`, `OperationFailed` |
//! | 3 | the attempt is not 1 + those concluded not_applied, or the effect key's is a later one | `AttemptMismatch` |
//! | 4 | the authority epoch is below / above its register | `EpochStale` / `EpochUnknown` |
//! | 5 | it would have expired already | `CapabilityExpired` |
//! | 6 | as many as there may be | `QuotaExceeded` |
//! | 7 | else | issued |
//!
//! A decision is identified by (operation, decision id, attempt), for a resource by (namespace, decision id). Issuing is allowed
//! while an attempt is open: such a capability names that attempt, and dies with it. One for a resource authorises first
//! attempts: a later attempt takes a new decision, made after the last one is known. (DESIGN §2; REQUIREMENTS 61, 62)
//!
//! | # | presented with a claim: condition | answer |
//! |---|---|---|
//! | 1 | no use left, or a use elected this operation | `CapabilityAlreadyConsumed` |
//! | 2 | revoked | `CapabilityRevoked` |
//! | 3 | now ≥ expiry, on the replicated wall | `CapabilityExpired` |
//! | 4 | not known, not the tenant's, not for the credential's namespaces | `CapabilityInvalid` |
//! | 5 | for another operation, or another resource | `CapabilityBindingMismatch` |
//! | 6 | its epoch, or the claim's, is below / above the register | `EpochStale` / `EpochUnknown` |
//! | 7 | none presented where the namespace asks for one | `CapabilityRequired` |
//!
//! | # | revoke: condition | answer |
//! |---|---|---|
//! | 0 | absent or not theirs | `NotFound` |
//! | 1 | revoked before | as it stands |
//! | 2 | no use left | `CapabilityAlreadyConsumed` |
//! | 3 | else | revoked |
//!
//! Invariant: a use that was consumed is never given back; uses never exceed `max_uses`. (REQUIREMENTS 30, 35–37, 41, 44, 114)

use alloc::boxed::Box;
use alloc::string::String;

use crate::apply::{Step, not_about_an_operation, refused};
use crate::change::Change;
use crate::command::{Caller, Claim, Issue, IssueBounded, Revoke};
use crate::epoch::{self, Binding};
use crate::ids::{
    Attempt, Birth, CapabilityId, ClaimId, ClientId, ContentHash, DecisionId, DecisionKey, ExecutionId,
    NamespaceName, OperationId, OperationKey, Resource, TenantId, TenantTag, WallTime,
};
use crate::limits::CAPABILITIES_PER_OPERATION;
use crate::namespace::{Authority, NamespaceRecord};
use crate::operation::{OperationRecord, State};
use crate::outcome::{Answer, Refusal};
use crate::state_hash::Canon;
use crate::view::View;

/// What a capability is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// One attempt at one operation.
    Attempt {
        /// The operation.
        operation: OperationId,
        /// The attempt.
        attempt: Attempt,
        /// The attempt whose number the effect key carries.
        effect_attempt: Attempt,
        /// The claim that consumed it.
        consumed: Option<Consumption>,
    },
    /// Operations of one resource.
    Resource {
        /// The resource.
        resource: Resource,
        /// How many operations it may elect.
        max_uses: u32,
        /// How many it did.
        used: u32,
    },
}

/// The claim that consumed a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumption {
    /// The execution that it opened.
    pub execution: ExecutionId,
    /// The claim.
    pub claim_id: ClaimId,
    /// Its client.
    pub client: ClientId,
    /// When, on the replicated wall.
    pub at: WallTime,
}

/// Why a capability is no longer good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Who took it back.
    pub client: ClientId,
    /// Why.
    pub reason: Option<String>,
    /// When, on the replicated wall.
    pub at: WallTime,
}

/// A capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityRecord {
    /// Its id.
    pub id: CapabilityId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The namespace it is for.
    pub namespace: NamespaceName,
    /// Who issued it.
    pub client: ClientId,
    /// The decision that it stands for.
    pub decision: DecisionId,
    /// What it is good for, and how much of that is left.
    pub bound: Bound,
    /// Until when it may be presented, on the replicated wall.
    pub expires_at: WallTime,
    /// The value of a register of authority that it dies with.
    pub authority: Option<Binding>,
    /// When it was issued, on the replicated wall.
    pub issued_at: WallTime,
    /// Whether it was taken back.
    pub revoked: Option<Revocation>,
    /// The number of distinct refusals of it that are kept.
    pub refusals: u32,
}

impl CapabilityRecord {
    /// How many uses are left, whatever else is true of it.
    pub fn uses_left(&self) -> u32 {
        match &self.bound {
            Bound::Attempt { consumed, .. } => u32::from(consumed.is_none()),
            Bound::Resource { max_uses, used, .. } => max_uses.saturating_sub(*used),
        }
    }
}

/// The capability that a decision led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The capability.
    pub capability: CapabilityId,
    /// Everything that was decided.
    pub terms: ContentHash,
}

/// A use of a bounded-use capability: it elected this operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseRecord {
    /// The life of the operation's row.
    pub birth: Birth,
    /// The claim that consumed it.
    pub consumption: Consumption,
}

/// What the decider asks for, without what identifies it.
struct Terms<'a> {
    caller: &'a Caller,
    namespace: &'a NamespaceName,
    decision: &'a DecisionId,
    expires_at: WallTime,
    epoch: Option<&'a Binding>,
    id: CapabilityId,
}

impl Terms<'_> {
    /// Everything that was decided; what the proposer draws is left out.
    fn hash(&self, bound: &Bound) -> ContentHash {
        let mut canon = Canon::new(b"hapax/decision/1");
        canon.text(self.namespace.as_str());
        canon.number(self.expires_at.0);
        canon.optional(self.epoch, |canon, binding| canon.binding(binding));
        canon.bound(bound);
        ContentHash(canon.finish())
    }
}

pub(crate) fn issue<V: View>(step: &mut Step<'_, V>, command: &Issue) -> Result<Answer, V::Error> {
    let caller = &command.caller;
    let Some((policy, mut operation)) = step.find_operation(caller, &command.operation_id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    let bound = Bound::Attempt {
        operation: operation.id,
        attempt: command.attempt,
        effect_attempt: command.effect_key_attempt.unwrap_or(command.attempt),
        consumed: None,
    };
    let key = DecisionKey::of_attempt(&operation.id, &caller.tenant, &command.decision_id, command.attempt);
    let namespace = policy.name.clone();
    let terms = Terms {
        caller,
        namespace: &namespace,
        decision: &command.decision_id,
        expires_at: command.expires_at,
        epoch: command.epoch.as_ref(),
        id: command.capability_id,
    };
    if let Some(answer) = decided(step, &key, &terms, &bound)? {
        return Ok(answer);
    }
    let due = operation.due();
    let effect_key_is_later = command.effect_key_attempt.is_some_and(|earlier| earlier > command.attempt);
    let refusal = match operation.state() {
        State::Completed => Some(Refusal::OperationCompleted),
        State::Failed => Some(Refusal::OperationFailed),
        _ if command.attempt != due || effect_key_is_later => Some(Refusal::AttemptMismatch { due }),
        _ => out_of_time(step, &terms)?,
    };
    let full = operation.capabilities >= CAPABILITIES_PER_OPERATION;
    if let Some(reason) = refusal.or(full.then_some(Refusal::QuotaExceeded)) {
        return Ok(refused(reason, Some(&operation), &policy));
    }
    operation.capabilities += 1;
    // It is news about the capability, not about the operation: its revision stays.
    step.write(&operation)?;
    Ok(issued(step, key, &terms, bound))
}

pub(crate) fn issue_bounded<V: View>(step: &mut Step<'_, V>, command: &IssueBounded) -> Result<Answer, V::Error> {
    let caller = &command.caller;
    let policy = match step.view.namespace(&caller.tenant, &command.namespace)? {
        Some(policy) if caller.may_use(&policy.name) => policy,
        _ => return Ok(not_about_an_operation(Refusal::NotFound)),
    };
    let bound = Bound::Resource { resource: command.resource.clone(), max_uses: command.max_uses, used: 0 };
    let key = DecisionKey::of_resource(&caller.tenant, &command.namespace, &command.decision_id);
    let terms = Terms {
        caller,
        namespace: &command.namespace,
        decision: &command.decision_id,
        expires_at: command.expires_at,
        epoch: command.epoch.as_ref(),
        id: command.capability_id,
    };
    if let Some(answer) = decided(step, &key, &terms, &bound)? {
        return Ok(answer);
    }
    // Its uses would be counted in one partition and consumed in others.
    let split = (policy.partitions > 1).then_some(Refusal::PolicyFixed);
    if let Some(reason) = split.or(out_of_time(step, &terms)?) {
        return Ok(refused(reason, None, &policy));
    }
    Ok(issued(step, key, &terms, bound))
}

/// The answer to a decision that was taken before.
fn decided<V: View>(
    step: &Step<'_, V>,
    key: &DecisionKey,
    terms: &Terms<'_>,
    bound: &Bound,
) -> Result<Option<Answer>, V::Error> {
    let Some(decision) = step.view.decision(key)? else {
        return Ok(None);
    };
    if decision.terms != terms.hash(bound) {
        return Ok(Some(not_about_an_operation(Refusal::DecisionReused)));
    }
    let found = step.view.capability(key.tenant, &decision.capability)?;
    Ok(found.map(|record| Answer::Capability { record: Box::new(record), created: false }))
}

fn out_of_time<V: View>(step: &Step<'_, V>, terms: &Terms<'_>) -> Result<Option<Refusal>, V::Error> {
    if let Some(binding) = terms.epoch
        && let Some(reason) = off_register(step, &terms.caller.tenant, binding)?
    {
        return Ok(Some(reason));
    }
    Ok((terms.expires_at <= step.wall()).then_some(Refusal::CapabilityExpired))
}

fn off_register<V: View>(
    step: &Step<'_, V>,
    tenant: &TenantId,
    binding: &Binding,
) -> Result<Option<Refusal>, V::Error> {
    Ok(match epoch::standing(&step.view, tenant, binding)? {
        epoch::Standing::Current => None,
        epoch::Standing::Stale => Some(Refusal::EpochStale),
        epoch::Standing::Unknown => Some(Refusal::EpochUnknown),
    })
}

fn issued<V: View>(step: &mut Step<'_, V>, key: DecisionKey, terms: &Terms<'_>, bound: Bound) -> Answer {
    let decision = DecisionRecord { capability: terms.id, terms: terms.hash(&bound) };
    let record = CapabilityRecord {
        id: terms.id,
        tenant: terms.caller.tenant.clone(),
        namespace: terms.namespace.clone(),
        client: terms.caller.client.clone(),
        decision: terms.decision.clone(),
        bound,
        expires_at: terms.expires_at,
        authority: terms.epoch.cloned(),
        issued_at: step.wall(),
        revoked: None,
        refusals: 0,
    };
    step.rows.push(Change::Decision(key, decision));
    step.rows.push(Change::Capability(record.clone()));
    Answer::Capability { record: Box::new(record), created: true }
}

pub(crate) fn revoke<V: View>(step: &mut Step<'_, V>, command: &Revoke) -> Result<Answer, V::Error> {
    let Some(mut record) = own(&step.view, &command.caller, &command.capability_id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    if record.revoked.is_none() {
        if record.uses_left() == 0 {
            return Ok(not_about_an_operation(Refusal::CapabilityAlreadyConsumed));
        }
        let client = command.caller.client.clone();
        record.revoked = Some(Revocation { client, reason: command.reason.clone(), at: step.wall() });
        step.rows.push(Change::Capability(record.clone()));
    }
    Ok(Answer::Capability { record: Box::new(record), created: false })
}

/// A capability that the caller may know of.
pub(crate) fn own<V: View>(
    view: &V,
    caller: &Caller,
    id: &CapabilityId,
) -> Result<Option<CapabilityRecord>, V::Error> {
    let found = view.capability(TenantTag::of(&caller.tenant), id)?;
    Ok(found.filter(|record| record.tenant == caller.tenant && caller.may_use(&record.namespace)))
}

/// What a claim brings: a capability that is good for it, or none.
pub(crate) type Presented = Result<Option<CapabilityRecord>, Refusal>;

/// Looks at what `command` presents for `operation`, which is absent where the claim would insert it.
pub(crate) fn present<V: View>(
    step: &Step<'_, V>,
    command: &Claim,
    operation: Option<&OperationRecord>,
    policy: &NamespaceRecord,
) -> Result<Presented, V::Error> {
    let caller = &command.caller;
    let Some(id) = &command.capability_id else {
        if let Some(reason) = own_epoch(step, command)? {
            return Ok(Err(reason));
        }
        let required = policy.authority == Authority::Capability;
        return Ok(if required { Err(Refusal::CapabilityRequired) } else { Ok(None) });
    };
    let Some(record) = own(&step.view, caller, id)? else {
        return Ok(Err(Refusal::CapabilityInvalid));
    };
    if record.uses_left() == 0 || has_elected(step, &record, operation)? {
        return Ok(Err(Refusal::CapabilityAlreadyConsumed));
    }
    if record.revoked.is_some() {
        return Ok(Err(Refusal::CapabilityRevoked));
    }
    if step.wall() >= record.expires_at {
        return Ok(Err(Refusal::CapabilityExpired));
    }
    if !is_bound_to(&record, command, operation) {
        return Ok(Err(Refusal::CapabilityBindingMismatch));
    }
    if let Some(binding) = &record.authority
        && let Some(reason) = off_register(step, &caller.tenant, binding)?
    {
        return Ok(Err(reason));
    }
    Ok(match own_epoch(step, command)? {
        Some(reason) => Err(reason),
        None => Ok(Some(record)),
    })
}

fn own_epoch<V: View>(step: &Step<'_, V>, command: &Claim) -> Result<Option<Refusal>, V::Error> {
    match &command.epoch {
        Some(binding) => off_register(step, &command.caller.tenant, binding),
        None => Ok(None),
    }
}

/// Whether a use of a bounded-use capability has already elected this operation.
fn has_elected<V: View>(
    step: &Step<'_, V>,
    record: &CapabilityRecord,
    operation: Option<&OperationRecord>,
) -> Result<bool, V::Error> {
    let (Bound::Resource { .. }, Some(operation)) = (&record.bound, operation) else {
        return Ok(false);
    };
    let key = operation.key();
    let used = step.view.used(key.tenant, &record.id, &key)?;
    Ok(used.is_some_and(|used| used.birth == operation.id.birth))
}

fn is_bound_to(record: &CapabilityRecord, command: &Claim, operation: Option<&OperationRecord>) -> bool {
    if record.namespace != command.namespace {
        return false;
    }
    match (&record.bound, operation) {
        (Bound::Attempt { operation: bound, .. }, Some(operation)) => *bound == operation.id,
        (Bound::Attempt { .. }, None) => false,
        (Bound::Resource { resource, .. }, Some(operation)) => operation.resource.as_ref() == Some(resource),
        (Bound::Resource { resource, .. }, None) => command.resource.as_ref() == Some(resource),
    }
}

/// Consumes a use for the election of `operation`, whose newest execution the claim just opened.
pub(crate) fn consume<V: View>(
    step: &mut Step<'_, V>,
    mut record: CapabilityRecord,
    command: &Claim,
    key: OperationKey,
    birth: Birth,
) {
    let consumption = Consumption {
        execution: command.execution_id,
        claim_id: command.claim_id,
        client: command.caller.client.clone(),
        at: step.wall(),
    };
    match &mut record.bound {
        Bound::Attempt { consumed, .. } => {
            assert!(consumed.is_none(), "a use is consumed once");
            *consumed = Some(consumption);
        }
        Bound::Resource { max_uses, used, .. } => {
            assert!(*used < *max_uses, "no use is consumed that is not left");
            *used += 1;
            step.rows.push(Change::Use(key.tenant, record.id, key, UseRecord { birth, consumption }));
        }
    }
    step.rows.push(Change::Capability(record));
}

/// The attempt whose number the effect key carries, for an execution of `attempt` that `presented` authorises.
pub(crate) fn effect_attempt(presented: Option<&CapabilityRecord>, attempt: Attempt) -> Attempt {
    match presented.map(|record| &record.bound) {
        Some(Bound::Attempt { effect_attempt, .. }) => *effect_attempt,
        _ => attempt,
    }
}

/// The attempt that a capability authorises. One for a resource was decided before any attempt was known: it authorises first
/// attempts only, for a later one needs a decision of its own. (REQUIREMENTS 61)
pub(crate) fn attempt(presented: Option<&CapabilityRecord>) -> Option<Attempt> {
    presented.map(|record| match &record.bound {
        Bound::Attempt { attempt, .. } => *attempt,
        Bound::Resource { .. } => Attempt(1),
    })
}
