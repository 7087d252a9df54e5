//! Reads: what stands, settled, without changing anything, and the definite facts that a node may answer from its own state.
//! An execution that settling would end reads as unknown, and shows no lease epoch until one is drawn.

use alloc::vec::Vec;

use crate::apply::{Step, is_fenced};
use crate::capability::{self, CapabilityRecord};
use crate::change::Change;
use crate::claim::claim;
use crate::clock::Stamp;
use crate::command::{Caller, Claim, CountedRefusal, EntryHead};
use crate::epoch;
use crate::ids::{
    AuthorityEpoch, CapabilityId, EpochScope, ExecutionId, GroupId, LeaseEpoch, OperationId, OperationKey, TenantTag,
    WallTime,
};
use crate::namespace::{ExpiredKeys, NamespaceRecord};
use crate::operation::{self, Body, ExecutionRecord, OperationRecord, Reconciler, State};
use crate::outcome::{Answer, Outcome, Refusal};
use crate::refusal::{RefusalKey, RefusalRecord};
use crate::retention::{self, Shown};
use crate::view::View;

/// An operation as a reader may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The stored record.
    pub record: OperationRecord,
    /// Its namespace's policy.
    pub policy: NamespaceRecord,
    /// The settled state.
    pub state: State,
    /// The current epoch; `None` where there is none, or where settling was not yet applied, because it will draw another one.
    pub lease_epoch: Option<LeaseEpoch>,
    /// Milliseconds left on a running lease.
    pub lease_remaining_ms: Option<u64>,
    /// The reconciler's lease, where one is running, and the milliseconds left of it.
    pub reconciler: Option<(Reconciler, u64)>,
    /// The inline result.
    pub result: Option<Body>,
    /// Whether there was an inline result, and retention removed it.
    pub result_compacted: bool,
    /// When it may be forgotten, at the earliest.
    pub retain_until: Option<WallTime>,
}

/// Reads an operation by id; `None` where it is absent or not the caller's.
pub fn by_id<V: View>(view: &V, caller: &Caller, id: &OperationId) -> Result<Option<Reading>, V::Error> {
    let view = Shown(view);
    let found = view.operation(&id.key(&caller.tenant))?;
    visible(&view, caller, found.filter(|record| record.id == *id))
}

/// Reads the operation in a row; `None` where it is absent or not the caller's.
pub fn by_key<V: View>(view: &V, caller: &Caller, key: &OperationKey) -> Result<Option<Reading>, V::Error> {
    let view = Shown(view);
    let found = view.operation(key)?;
    visible(&view, caller, found)
}

/// Reads the operation of an execution; `None` where it is absent or not the caller's.
pub fn by_execution<V: View>(view: &V, caller: &Caller, id: &ExecutionId) -> Result<Option<Reading>, V::Error> {
    let view = Shown(view);
    match view.execution(TenantTag::of(&caller.tenant), id)? {
        Some(ExecutionRecord { operation, birth, .. }) => {
            let found = view.operation(&operation)?;
            visible(&view, caller, found.filter(|record| record.id.birth == birth))
        }
        None => Ok(None),
    }
}

/// Reads a capability; `None` where it is absent or not the caller's.
pub fn capability<V: View>(
    view: &V,
    caller: &Caller,
    id: &CapabilityId,
) -> Result<Option<CapabilityRecord>, V::Error> {
    capability::own(&Shown(view), caller, id)
}

/// Reads where a register of authority stands.
pub fn register<V: View>(view: &V, caller: &Caller, scope: &EpochScope) -> Result<AuthorityEpoch, V::Error> {
    epoch::value(view, &caller.tenant, scope)
}

/// Reads a refusal; `None` where what it was kept with is gone, or where it is not the caller's.
pub fn refusal<V: View>(view: &V, caller: &Caller, key: &RefusalKey) -> Result<Option<RefusalRecord>, V::Error> {
    if key.tenant != TenantTag::of(&caller.tenant) {
        return Ok(None);
    }
    Ok(Shown(view).refusal(key)?.filter(|record| caller.may_use(&record.namespace)))
}

fn visible<V: View>(
    view: &Shown<'_, V>,
    caller: &Caller,
    found: Option<OperationRecord>,
) -> Result<Option<Reading>, V::Error> {
    let Some(record) = found.filter(|record| record.tenant == caller.tenant && caller.may_use(&record.namespace))
    else {
        return Ok(None);
    };
    let Some(policy) = view.namespace(&record.tenant, &record.namespace)? else {
        return Ok(None);
    };
    let has_result = record.outcome().is_some_and(|outcome| outcome.has_result);
    let result = if has_result { view.body(&record.key(), record.id.birth)? } else { None };
    let fenced = is_fenced(view, &record)?;
    Ok(Some(reading(record, policy, result, fenced, view)))
}

fn reading<V: View>(
    record: OperationRecord,
    policy: NamespaceRecord,
    result: Option<Body>,
    fenced: bool,
    view: &Shown<'_, V>,
) -> Reading {
    let now = view.head().clocks.lease_time;
    let execution = record.execution.as_ref();
    let ends = execution.is_some_and(|execution| operation::is_due(execution, fenced, &policy, now));
    let state = if ends { State::Unknown } else { record.state() };
    // Whoever waits to be taken over keeps its epoch until somebody comes: an operator's fence names it.
    let current = execution.filter(|_| !ends);
    let running = current.filter(|execution| execution.state == State::Executing && !execution.lapsed(now));
    let reconciler = execution.and_then(|execution| execution.reconciling(now)).cloned();
    let has_result = record.outcome().is_some_and(|outcome| outcome.has_result);
    Reading {
        state,
        lease_epoch: current.map(|execution| execution.lease_epoch),
        lease_remaining_ms: running.map(|execution| execution.remaining_ms(now)),
        reconciler: reconciler.map(|held| {
            let remaining_ms = held.deadline.remaining_ms(now).saturating_sub(crate::lease::ROUNDING_MS);
            (held, remaining_ms)
        }),
        result_compacted: has_result && result.is_none(),
        result,
        retain_until: retention::retain_until(&record, &policy),
        policy,
        record,
    }
}

/// A definite answer to a claim from this node's own state, and the refusal that it repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definite {
    /// The answer, at the revision that `view` stands at.
    pub outcome: Outcome,
    /// What is to be counted, where it repeats a refusal that is on record.
    pub repeated: Vec<CountedRefusal>,
}

/// Answers `command` from `view`, the state after entry `index` of `group`, if the answer is a fact that nothing can change any
/// more; `None` where the claim must be applied. **[safety]** The caller makes sure that the state is recent.
///
/// The very rule that apply runs is run here, and its answer taken only where it changes nothing but the count of a refusal that
/// is on record already, and where it is one of these (DESIGN §4):
///
/// | answer | because |
/// |---|---|
/// | spent, revoked, expired by the replicated wall, bound to an epoch that was left | none of it is ever undone |
/// | a replay to a claim that presents nothing | a terminal outcome never changes, and it cannot have been forgotten meanwhile |
pub fn definite<V: View>(
    view: &V,
    group: GroupId,
    index: u64,
    command: &Claim,
) -> Result<Option<Definite>, V::Error> {
    if command.capability_id.is_none() && command.epoch.is_none() && !is_terminal(view, command)? {
        // What presents no authority can only be a replay; most claims are not, and need no more than this look.
        return Ok(None);
    }
    let head = view.head();
    let entry =
        EntryHead { group, index, term: head.clocks.term, rules: crate::apply::RULES, stamp: Stamp::default() };
    let mut step = Step::new(view, &entry, 0);
    let answer = claim(&mut step, command)?;
    let revision = step.revision;
    let Some(repeated) = repeated(&step.into_changes().rows) else {
        return Ok(None);
    };
    let stands = match &answer {
        Answer::Replayed(_) => repeated.is_empty() && presents_nothing(command) && is_kept(view, command)?,
        Answer::Refused(refused) => matches!(
            refused.reason,
            Refusal::CapabilityAlreadyConsumed
                | Refusal::CapabilityRevoked
                | Refusal::CapabilityExpired
                | Refusal::EpochStale
        ),
        _ => false,
    };
    Ok(stands.then_some(Definite { outcome: Outcome { revision, answer }, repeated }))
}

fn is_terminal<V: View>(view: &V, command: &Claim) -> Result<bool, V::Error> {
    let found = view.operation(&OperationKey::new(&command.caller.tenant, &command.internal_key))?;
    Ok(found.is_some_and(|record| record.terminal_at.is_some()))
}

/// The refusals that were repeated; `None` where anything else would change.
fn repeated(rows: &[Change]) -> Option<Vec<CountedRefusal>> {
    let again = |row: &Change| match row {
        Change::Refusal(key, record) if record.times > 1 => Some(CountedRefusal { key: *key, times: 1 }),
        _ => None,
    };
    rows.iter().map(again).collect()
}

fn presents_nothing(command: &Claim) -> bool {
    command.capability_id.is_none() && command.message.is_none() && command.epoch.is_none()
}

/// Whether the operation, and its result, are not even due to go: floors stay a margin behind that, so that they cannot have gone
/// in the time that this state may be old.
fn is_kept<V: View>(view: &V, command: &Claim) -> Result<bool, V::Error> {
    let view = Shown(view);
    let key = OperationKey::new(&command.caller.tenant, &command.internal_key);
    let (Some(record), Some(policy)) =
        (view.operation(&key)?, view.namespace(&command.caller.tenant, &command.namespace)?)
    else {
        return Ok(false);
    };
    let (wall, retention) = (view.head().clocks.wall, policy.retention);
    let kept = |kept_ms: u64| record.terminal_at.is_some_and(|at| at.0.saturating_add(kept_ms) > wall.0);
    let identity = retention.expired_keys == ExpiredKeys::Durable || kept(retention.identity_ms);
    let has_result = record.outcome().is_some_and(|outcome| outcome.has_result);
    Ok(identity && (!has_result || kept(retention.body_ms)))
}
