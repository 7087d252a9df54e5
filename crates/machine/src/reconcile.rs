//! Reconciliation: who finds out what an unknown execution came to. Workflow only: the gate stays closed throughout.
//!
//! ```text
//! unknown: idle --lease--> leased, new epoch --time--> idle
//!          idle | leased --escalate--> escalated --de-escalate--> idle
//! ```
//!
//! The proposer names candidates, oldest first, with the epochs it saw; each is taken or passed over:
//!
//! | # | lease: condition of a candidate | what happens |
//! |---|---|---|
//! | 0 | absent, not theirs, not unknown, escalated, named before | passed over; else settle |
//! | 1 | leased to the same owner and client | the same item and epoch; deadline := max(old, now + lease_ms + 1) |
//! | 2 | leased to another, or its epoch is not the one that was seen | passed over |
//! | 3 | the namespace has granted as many in this minute as it may | passed over |
//! | 4 | else | leased under a new epoch; nobody else's word of not_applied stands alone any more |
//!
//! | # | escalate, de-escalate: condition | answer |
//! |---|---|---|
//! | 0 | absent or not theirs | `NotFound`; else settle |
//! | 1 | the epoch is not the current one | `LeaseStaleEpoch` |
//! | 2 | not unknown | `OperationState` |
//! | 3 | it is so already | accepted |
//! | 4 | else | kept as an override, and accepted |
//!
//! No capability is needed to find out. Invariant: a lease draws from the same counter as every other epoch, so there is one
//! fencing token for everything. (DESIGN §2; REQUIREMENTS 32, 58–60; seed 000)

use alloc::vec::Vec;

use crate::apply::{Step, not_about_an_operation};
use crate::command::{Candidate, Escalate, ReconcileLease};
use crate::evidence::{Source, Word, keep};
use crate::ids::effect_key;
use crate::lease::{ROUNDING_MS, deadline};
use crate::limits::RECONCILE_ITEMS_MAX;
use crate::namespace::{NamespaceRecord, Pace};
use crate::operation::{OperationRecord, Reconciler, State};
use crate::outcome::{Answer, Lease, ReconcileItem, Refusal};
use crate::view::View;

/// The interval that the pace is counted in, of lease time.
const PACE_MS: u64 = 60_000;

pub(crate) fn lease<V: View>(step: &mut Step<'_, V>, command: &ReconcileLease) -> Result<Answer, V::Error> {
    let mut items = Vec::new();
    for (number, candidate) in command.candidates.iter().enumerate() {
        if items.len() >= RECONCILE_ITEMS_MAX.min(command.limit as usize) {
            break;
        }
        // Named twice it would be leased twice, under two epochs, of which only one could be used.
        if command.candidates[..number].iter().any(|before| before.operation == candidate.operation) {
            continue;
        }
        if let Some((policy, operation)) = unknown(step, command, candidate)? {
            items.extend(take(step, command, candidate, &policy, operation)?);
        }
    }
    Ok(Answer::Reconciling(items))
}

/// The candidate's operation, where it may be reconciled by this caller.
fn unknown<V: View>(
    step: &mut Step<'_, V>,
    command: &ReconcileLease,
    candidate: &Candidate,
) -> Result<Option<(NamespaceRecord, OperationRecord)>, V::Error> {
    let Some(operation) = step.load(&candidate.operation)?.filter(|found| found.id.birth == candidate.birth) else {
        return Ok(None);
    };
    let found = step.find_operation(&command.caller, &operation.id)?;
    Ok(found.filter(|(_, operation)| {
        let escalated = operation.execution.as_ref().is_some_and(|execution| execution.escalated_at.is_some());
        operation.state() == State::Unknown && !escalated
    }))
}

fn take<V: View>(
    step: &mut Step<'_, V>,
    command: &ReconcileLease,
    candidate: &Candidate,
    policy: &NamespaceRecord,
    mut operation: OperationRecord,
) -> Result<Option<ReconcileItem>, V::Error> {
    let now = step.now();
    let Some(execution) = &mut operation.execution else {
        return Ok(None);
    };
    let until = deadline(now, command.lease_ms);
    match execution.reconciling(now).cloned() {
        Some(held) if held.owner == command.owner && held.client == command.caller.client => {
            let until = held.deadline.max(until);
            if until != held.deadline {
                execution.reconciler = Some(Reconciler { deadline: until, ..held });
                step.put(&mut operation)?;
            }
        }
        Some(_) => return Ok(None),
        None if execution.lease_epoch != candidate.lease_epoch => return Ok(None),
        None => {
            if !in_pace(step, policy)? {
                return Ok(None);
            }
            execution.lease_epoch = step.head.grants.lease_epoch();
            execution.sole_holder = false;
            let (owner, client) = (command.owner.clone(), command.caller.client.clone());
            execution.reconciler = Some(Reconciler { owner, client, deadline: until });
            step.put(&mut operation)?;
        }
    }
    Ok(item(step, &operation))
}

/// Counts one more lease in the current minute, if there is room for it.
fn in_pace<V: View>(step: &mut Step<'_, V>, policy: &NamespaceRecord) -> Result<bool, V::Error> {
    let (tenant, name, now) = (&policy.tenant, &policy.name, step.now());
    let pace = step.status(tenant, name)?.pace;
    let pace = if now.0 >= pace.since.0.saturating_add(PACE_MS) { Pace { since: now, granted: 0 } } else { pace };
    if pace.granted >= policy.reconcile_per_minute {
        return Ok(false);
    }
    step.change_status(tenant, name, |status| status.pace = Pace { granted: pace.granted + 1, ..pace })?;
    Ok(true)
}

fn item<V: View>(step: &Step<'_, V>, operation: &OperationRecord) -> Option<ReconcileItem> {
    let execution = operation.execution.as_ref()?;
    let held = execution.reconciler.as_ref()?;
    let remaining_ms = held.deadline.remaining_ms(step.now()).saturating_sub(ROUNDING_MS);
    Some(ReconcileItem {
        operation_id: operation.id,
        execution_id: execution.id,
        attempt: execution.attempt,
        namespace: operation.namespace.clone(),
        effect_key: effect_key(&operation.id, execution.effect_attempt),
        correlation_id: operation.correlation_id.clone(),
        unknown_since: execution.unknown_since.unwrap_or(operation.updated_at),
        lease: Lease { lease_epoch: execution.lease_epoch, remaining_ms },
    })
}

pub(crate) fn escalate<V: View>(step: &mut Step<'_, V>, command: &Escalate) -> Result<Answer, V::Error> {
    let Some(mut found) = step.find(&command.caller, &command.execution_id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    if found.past.is_some() || command.lease_epoch != found.newest().lease_epoch {
        return Ok(found.refused(Refusal::LeaseStaleEpoch));
    }
    let state = found.operation.state();
    if found.newest().state != State::Unknown {
        return Ok(found.refused(Refusal::OperationState { state }));
    }
    if found.newest().escalated_at.is_some() != command.escalated {
        let (wall, source) = match command.escalated {
            true => (Some(step.wall()), Source::Escalate),
            false => (None, Source::Deescalate),
        };
        let why = (command.reason.as_str(), command.proof.as_ref());
        let word = Word::overriding(source, &command.caller, why, step.wall(), &found.operation);
        keep(step, &mut found.operation, word);
        found.newest_mut().escalated_at = wall;
        found.newest_mut().reconciler = None;
        step.put(&mut found.operation)?;
    }
    Ok(found.accepted(step.now()))
}
