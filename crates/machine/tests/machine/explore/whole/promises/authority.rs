//! What is promised of authority and deliveries: capabilities, registers, the inbox.

use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::change::Change;
use hapax_machine::command::Command;
use hapax_machine::ids::Attempt;
use hapax_machine::operation::{Execution, OperationRecord, State};
use hapax_machine::outcome::{Answer, Refusal};

use super::super::scope::Scope;
use super::super::world::Step;
use super::{capability, claimed, elected, is_stale, operations, refusal, was_granted};

fn left(record: &CapabilityRecord) -> u32 {
    match &record.bound {
        Bound::Attempt { consumed: None, .. } => 1,
        Bound::Attempt { .. } => 0,
        Bound::Resource { max_uses, used, .. } => max_uses.saturating_sub(*used),
    }
}

/// C: whatever a capability says of itself, no more claims were elected by it than it was issued for.
pub(super) fn uses_are_bounded(step: &Step<'_>) -> bool {
    step.after.memory.capabilities.values().all(|record| {
        let most = match &record.bound {
            Bound::Attempt { .. } => 1,
            Bound::Resource { max_uses, .. } => *max_uses as usize,
        };
        step.after.ghost.elected.iter().filter(|(id, ..)| *id == record.id).count() <= most
    })
}

pub(super) fn uses_stay_consumed(step: &Step<'_>) -> bool {
    step.before
        .memory
        .capabilities
        .iter()
        .all(|(key, before)| step.after.memory.capabilities.get(key).is_some_and(|after| left(after) <= left(before)))
}

pub(super) fn elections_consume(step: &Step<'_>) -> bool {
    let presented = elected(step).and_then(|(claim, _)| claim.capability_id);
    step.before.memory.capabilities.iter().all(|(key, before)| {
        let after = step.after.memory.capabilities.get(key).map_or(0, left);
        left(before).saturating_sub(after) == u32::from(presented == Some(key.1))
    })
}

/// Spent, revoked or expired, or bound to a value that the register has left, it opens nothing.
pub(super) fn the_dead_elect_nobody(step: &Step<'_>) -> bool {
    let Some((claim, grant)) = elected(step) else { return true };
    let Some(record) = capability(step.before, claim.capability_id) else { return claim.capability_id.is_none() };
    let bound = record.authority.as_ref().map_or(step.before.register(), |binding| binding.value.0);
    let again =
        step.before.ghost.elected.iter().any(|(id, _, birth)| *id == record.id && *birth == grant.operation_id.birth);
    let alive = left(record) > 0 && record.revoked.is_none() && step.wall < record.expires_at;
    alive && bound == step.before.register() && !again
}

pub(super) fn authority_is_bound(step: &Step<'_>) -> bool {
    let Some((claim, grant)) = elected(step) else { return true };
    let Some(record) = capability(step.before, claim.capability_id) else { return true };
    match &record.bound {
        Bound::Attempt { operation, attempt, .. } => *operation == grant.operation_id && *attempt == grant.attempt,
        // Decided before any attempt was known.
        Bound::Resource { resource, .. } => {
            let of = step.after.shown(&grant.operation_id).and_then(|record| record.resource);
            grant.attempt.0 == 1 && of.as_ref() == Some(resource)
        }
    }
}

pub(super) fn authority_is_asked_for(step: &Step<'_>) -> bool {
    let asks = matches!(step.scope, Scope::Single | Scope::Bounded);
    elected(step).is_none_or(|(claim, _)| !asks || claim.capability_id.is_some())
}

/// What is decided while an attempt is open is decided about that one; the next one is due once this one is known.
pub(super) fn authority_is_due(step: &Step<'_>) -> bool {
    let (Some(Command::Issue(issue)), Some(Answer::Capability { created: true, .. })) = (step.command, &step.answer)
    else {
        return true;
    };
    let Some(record) = step.before.shown(&issue.operation_id) else { return false };
    let due = record.execution.as_ref().map_or(1, |newest| match newest.state {
        State::NotApplied => newest.attempt.0 + 1,
        _ => newest.attempt.0,
    });
    issue.attempt == Attempt(due)
}

pub(super) fn consumed_outranks(step: &Step<'_>) -> bool {
    let Some(Command::Claim(claim)) = step.command else { return true };
    let spent = capability(step.before, claim.capability_id).is_some_and(|record| left(record) == 0);
    let delivered = claim
        .message
        .as_ref()
        .is_some_and(|message| step.before.memory.inbox.values().any(|row| row.message == *message));
    if !spent || was_granted(step, claim) || delivered {
        return true;
    }
    refusal(step) == Some(Refusal::CapabilityAlreadyConsumed)
}

pub(super) fn refusals_spend_nothing(step: &Step<'_>) -> bool {
    if !matches!(step.command, Some(Command::Claim(_))) || claimed(step).is_some() {
        return true;
    }
    let (before, after) = (&step.before.memory, &step.after.memory);
    let spent = before
        .capabilities
        .iter()
        .any(|(key, record)| after.capabilities.get(key).is_none_or(|after| after.bound != record.bound));
    !spent && before.inbox == after.inbox && before.executions == after.executions && before.uses == after.uses
}

/// A message leads to one election, as long as the operation that it led to is there.
pub(super) fn deliveries_are_accepted_once(step: &Step<'_>) -> bool {
    let Some((claim, _)) = elected(step) else { return true };
    let accepted = step.before.memory.inbox.values().filter(|row| Some(&row.message) == claim.message.as_ref());
    let mut still = accepted.filter(|row| step.before.shown(&row.operation).is_some());
    still.next().is_none()
}

/// A message that was accepted leads nowhere when it comes again: nothing changes but what time and bumps did.
pub(super) fn duplicates_are_idle(step: &Step<'_>) -> bool {
    if !matches!(step.answer, Some(Answer::DuplicateDelivery(_))) {
        return true;
    }
    let settled = |was: &Execution, is: &Execution| {
        let ended = was.state == State::Executing && is.state == State::Unknown;
        let same = was.lease_epoch == is.lease_epoch && was.state == is.state;
        let owner = was.claim_id == is.claim_id && was.deadline == is.deadline && was.report == is.report;
        owner && (ended || same)
    };
    let (before, after) = (&step.before.memory, &step.after.memory);
    let moved = operations(step).into_iter().any(|(before, after)| {
        let flags = |record: &OperationRecord| (record.quarantined, record.closed.is_some(), record.grants);
        let of_time = match (&before.execution, &after.execution) {
            (Some(was), Some(is)) => settled(was, is),
            (was, is) => was.is_none() && is.is_none(),
        };
        !of_time || flags(&before) != flags(&after)
    });
    !moved
        && before.inbox == after.inbox
        && before.capabilities == after.capabilities
        && before.executions == after.executions
        && before.grants == after.grants
}

pub(super) fn claims_are_current(step: &Step<'_>) -> bool {
    let Some((claim, _)) = elected(step) else { return true };
    claim.epoch.as_ref().is_none_or(|binding| binding.value.0 == step.before.register())
}

/// F: whatever is done to it, an execution under a lower value executes no more.
pub(super) fn bumps_fence(step: &Step<'_>) -> bool {
    let touched = |record: &OperationRecord| {
        let changed = |row: &Change| matches!(row, Change::Operation { record: new, .. } if new.id == record.id);
        step.changes.rows.iter().any(changed)
    };
    let acted = matches!(step.answer, Some(Answer::Renewed(_)));
    operations(step).into_iter().all(|(before, after)| {
        let (Some(was), Some(is)) = (&before.execution, &after.execution) else { return true };
        if was.state != State::Executing || !is_stale(was, step.before.register()) {
            return true;
        }
        !acted && (!touched(&before) || is.lease_epoch > was.lease_epoch && is.claim_id == was.claim_id)
    })
}
