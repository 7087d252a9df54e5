//! What must hold after every step: one function per promise, each able to fail (see the broken rules).
//! They look at states and answers from outside, and share no judgement with the rules.

use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::change::Change;
use hapax_machine::command::{Claim, Command, RepairKind};
use hapax_machine::ids::{CapabilityId, ClaimId, OperationId};
use hapax_machine::limits::RETENTION_MARGIN_MS;
use hapax_machine::operation::{Definite, Execution, OperationRecord, State};
use hapax_machine::outcome::{Answer, Grant, Refusal};

use super::scope::{Scope, is_closable};
use super::world::Step;

/// A promise: its name and whether it holds over a step.
pub(super) type Promise = (&'static str, fn(&Step<'_>) -> bool);

/// All promises.
pub(super) const PROMISES: [Promise; 29] = [
    ("distinct uses never exceed what was issued", uses_are_bounded),
    ("a use that was consumed is never given back", uses_stay_consumed),
    ("an election consumes one use, and nothing else does", elections_consume),
    ("dead authority elects nobody", the_dead_elect_nobody),
    ("authority for one attempt elects no other", authority_is_bound),
    ("no execution is opened without the authority asked for", authority_is_asked_for),
    ("consumed outranks everything else about a capability", consumed_outranks),
    ("a refusal spends nothing and accepts no delivery", refusals_spend_nothing),
    ("a delivery is accepted once", deliveries_are_accepted_once),
    ("a claim bound to another value than the register's is refused", claims_are_current),
    ("a bump fences what is open under a lower value", bumps_fence),
    ("every epoch and birth is new and higher", draws_grow),
    ("unknown ends by evidence or resolution only", unknown_stays),
    ("an execution is leased to one reconciler at a time", one_reconciler),
    ("what waits for people is leased to nobody", the_escalated_wait),
    ("a resolution names the current epoch", resolutions_are_current),
    ("a terminal outcome never changes", terminal_stays),
    ("a new attempt follows one that was not applied", attempts_follow_not_applied),
    ("only what nobody executes is closed", closing_is_safe),
    ("a quarantined or superseded operation elects nobody", stopped_operations_elect_nobody),
    ("a contradiction stops claims", contradictions_quarantine),
    ("what is gone is never shown again", the_gone_stay_gone),
    ("only what ended long enough ago goes", nothing_goes_early),
    ("floors only rise", floors_rise),
    ("a definite fact is what apply says", facts_are_definite),
    ("a refusal of authority is on record before it is told", refusals_are_recorded),
    ("a repeated command changes nothing", repetition_is_idle),
    ("lists lose an operation where it stood", lists_follow),
    ("a namespace counts what it holds", counts_follow),
];

fn claimed<'s>(step: &'s Step<'_>) -> Option<(&'s Claim, &'s Grant)> {
    match (step.command, &step.answer) {
        (Some(Command::Claim(claim)), Some(Answer::Claimed(grant))) => Some((claim, grant)),
        _ => None,
    }
}

/// The election that a step was: a claim that was granted now, not again.
fn elected<'s>(step: &'s Step<'_>) -> Option<(&'s Claim, &'s Grant)> {
    claimed(step).filter(|_| !step.changes.rows.is_empty())
}

fn refusal(step: &Step<'_>) -> Option<Refusal> {
    match &step.answer {
        Some(Answer::Refused(refused)) => Some(refused.reason),
        _ => None,
    }
}

/// A capability that is there.
fn capability(world: &super::world::World, id: Option<CapabilityId>) -> Option<&CapabilityRecord> {
    let id = id?;
    let found = world.memory.capabilities.iter().find(|((_, known), _)| *known == id).map(|(_, record)| record);
    found.filter(|record| match &record.bound {
        Bound::Attempt { operation, .. } => world.shown(operation).is_some(),
        Bound::Resource { .. } => true,
    })
}

/// Every operation that is there before and after, as it was and is.
fn operations(step: &Step<'_>) -> Vec<(OperationRecord, OperationRecord)> {
    let before = step.before.memory.operations.values();
    before.filter_map(|record| step.after.shown(&record.id).map(|after| (record.clone(), after))).collect()
}

fn executions(step: &Step<'_>) -> Vec<(Execution, Execution)> {
    let both = |(before, after): (OperationRecord, OperationRecord)| Some((before.execution?, after.execution?));
    operations(step).into_iter().filter_map(both).collect()
}

/// Whether a claim's id was granted on the operation that it is about.
fn was_granted(step: &Step<'_>, claim: &Claim) -> bool {
    let world = step.before;
    let Some(record) = world.record(u64::from(claim.internal_key.0[0])) else { return false };
    let newest = record.execution.as_ref().is_some_and(|newest| newest.claim_id == claim.claim_id);
    let past = |(_, birth, id): &(_, _, ClaimId)| *birth == record.id.birth && *id == claim.claim_id;
    newest || world.memory.grants.keys().any(past)
}

/// C: whatever a capability says of itself, no more claims were elected by it than it was issued for.
fn uses_are_bounded(step: &Step<'_>) -> bool {
    step.after.memory.capabilities.values().all(|record| {
        let most = match &record.bound {
            Bound::Attempt { .. } => 1,
            Bound::Resource { max_uses, .. } => *max_uses as usize,
        };
        step.after.ghost.elected.iter().filter(|(id, ..)| *id == record.id).count() <= most
    })
}

fn uses_stay_consumed(step: &Step<'_>) -> bool {
    step.before.memory.capabilities.iter().all(|(key, before)| {
        step.after.memory.capabilities.get(key).is_some_and(|after| after.uses_left() <= before.uses_left())
    })
}

fn elections_consume(step: &Step<'_>) -> bool {
    let presented = elected(step).and_then(|(claim, _)| claim.capability_id);
    step.before.memory.capabilities.iter().all(|(key, before)| {
        let after = step.after.memory.capabilities.get(key).map_or(0, CapabilityRecord::uses_left);
        before.uses_left().saturating_sub(after) == u32::from(presented == Some(key.1))
    })
}

/// Spent, revoked or expired, or bound to a value that the register has left, it opens nothing.
fn the_dead_elect_nobody(step: &Step<'_>) -> bool {
    let Some((claim, grant)) = elected(step) else { return true };
    let Some(record) = capability(step.before, claim.capability_id) else { return claim.capability_id.is_none() };
    let bound = record.authority.as_ref().map_or(step.before.register(), |binding| binding.value.0);
    let again =
        step.before.ghost.elected.iter().any(|(id, _, birth)| *id == record.id && *birth == grant.operation_id.birth);
    let alive = record.uses_left() > 0 && record.revoked.is_none() && step.wall < record.expires_at;
    alive && bound == step.before.register() && !again
}

fn authority_is_bound(step: &Step<'_>) -> bool {
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

fn authority_is_asked_for(step: &Step<'_>) -> bool {
    let asks = matches!(step.scope, Scope::Single | Scope::Bounded);
    elected(step).is_none_or(|(claim, _)| !asks || claim.capability_id.is_some())
}

fn consumed_outranks(step: &Step<'_>) -> bool {
    let Some(Command::Claim(claim)) = step.command else { return true };
    let spent = capability(step.before, claim.capability_id).is_some_and(|record| record.uses_left() == 0);
    let delivered = claim
        .message
        .as_ref()
        .is_some_and(|message| step.before.memory.inbox.values().any(|row| row.message == *message));
    if !spent || was_granted(step, claim) || delivered {
        return true;
    }
    refusal(step) == Some(Refusal::CapabilityAlreadyConsumed)
}

fn refusals_spend_nothing(step: &Step<'_>) -> bool {
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
fn deliveries_are_accepted_once(step: &Step<'_>) -> bool {
    let Some((claim, _)) = elected(step) else { return true };
    let accepted = step.before.memory.inbox.values().filter(|row| Some(&row.message) == claim.message.as_ref());
    let mut still = accepted.filter(|row| step.before.shown(&row.operation).is_some());
    still.next().is_none()
}

fn claims_are_current(step: &Step<'_>) -> bool {
    let Some((claim, _)) = elected(step) else { return true };
    claim.epoch.as_ref().is_none_or(|binding| binding.value.0 == step.before.register())
}

/// F: whatever is done to it, and in every read, an execution under a lower value executes no more.
fn bumps_fence(step: &Step<'_>) -> bool {
    let stale =
        |execution: &Execution| execution.authority.iter().any(|binding| binding.value.0 < step.before.register());
    let touched = |record: &OperationRecord| {
        let changed = |row: &Change| matches!(row, Change::Operation { record: new, .. } if new.id == record.id);
        step.changes.rows.iter().any(changed)
    };
    let acted = matches!(step.answer, Some(Answer::Renewed(_)));
    operations(step).into_iter().all(|(before, after)| {
        let (Some(was), Some(is)) = (&before.execution, &after.execution) else { return true };
        if was.state != State::Executing || !stale(was) {
            return true;
        }
        !acted && (!touched(&before) || is.lease_epoch > was.lease_epoch && is.claim_id == was.claim_id)
    })
}

/// E: across elections, lapses, fences, bumps, reconciliation, forgetting.
fn draws_grow(step: &Step<'_>) -> bool {
    let (before, after) = (step.before.memory.head.grants.0, step.after.memory.head.grants.0);
    let fresh = |drawn: u64| drawn > before && drawn <= after;
    let epochs = executions(step).into_iter().all(|(was, is)| {
        let leased = was.state == State::Executing && is.state == State::Unknown && !is_own_word(step);
        let new = was.claim_id != is.claim_id || leased;
        // What settled may have gone on at once.
        let settled = was.state == State::Executing && is.state != State::Executing;
        let may = new || settled || matches!(step.command, Some(Command::ReconcileLease(_)));
        let same = was.lease_epoch == is.lease_epoch;
        same && !new || may && fresh(is.lease_epoch.0)
    });
    let births = step.after.memory.operations.values().all(|record| {
        step.before.memory.operations.get(&record.key()).is_some_and(|was| was.id == record.id)
            || fresh(record.id.birth.0)
    });
    let register = step.before.register() == step.after.register() || fresh(step.after.register());
    before <= after && epochs && births && register
}

/// A report of unknown keeps the epoch: its owner is known.
fn is_own_word(step: &Step<'_>) -> bool {
    matches!(step.command, Some(Command::Report(_))) && refusal(step).is_none()
}

fn unknown_stays(step: &Step<'_>) -> bool {
    let told = matches!(step.command, Some(Command::Evidence(_) | Command::Resolve(_)));
    let ends = |(was, is): (Execution, Execution)| was.state == State::Unknown && is.state != State::Unknown;
    let open = |record: &&OperationRecord| record.state() == State::Unknown;
    let there =
        step.before.memory.operations.values().filter(open).all(|record| step.after.shown(&record.id).is_some());
    there && (told || !executions(step).into_iter().any(ends))
}

/// While one holds it, nobody else is given it; and whoever is given it anew is told of a new epoch.
fn one_reconciler(step: &Step<'_>) -> bool {
    let (Some(Command::ReconcileLease(asked)), Some(Answer::Reconciling(items))) = (step.command, &step.answer)
    else {
        return true;
    };
    items.iter().all(|item| {
        let Some(record) = step.before.shown(&item.operation_id) else { return false };
        let Some(newest) = record.execution else { return false };
        let now = step.after.memory.head.clocks.lease_time;
        match newest.reconciling(now) {
            Some(held) => held.owner == asked.owner && item.lease.lease_epoch == newest.lease_epoch,
            None => item.lease.lease_epoch > newest.lease_epoch,
        }
    })
}

fn the_escalated_wait(step: &Step<'_>) -> bool {
    let Some(Answer::Reconciling(items)) = &step.answer else { return true };
    items.iter().all(|item| {
        let execution = step.before.shown(&item.operation_id).and_then(|record| record.execution);
        execution.is_some_and(|execution| execution.escalated_at.is_none())
    })
}

fn resolutions_are_current(step: &Step<'_>) -> bool {
    let Some(Command::Resolve(resolve)) = step.command else { return true };
    executions(step).into_iter().all(|(was, is)| {
        was.state != State::Unknown || is.state == State::Unknown || resolve.lease_epoch == was.lease_epoch
    })
}

/// T: neither the outcome nor the digest.
fn terminal_stays(step: &Step<'_>) -> bool {
    operations(step).into_iter().all(|(before, after)| {
        !before.state().is_terminal()
            || before.outcome() == after.outcome() && before.state() == after.state() && before.digest == after.digest
    })
}

fn attempts_follow_not_applied(step: &Step<'_>) -> bool {
    executions(step).into_iter().all(|(was, is)| {
        let next = is.attempt.0 == was.attempt.0 + 1 && was.state == State::NotApplied && was.id != is.id;
        next || was.id == is.id && was.attempt == is.attempt
    })
}

fn closing_is_safe(step: &Step<'_>) -> bool {
    operations(step)
        .into_iter()
        .all(|(before, after)| after.closed.is_none() || before.closed.is_some() || is_closable(&before))
}

fn stopped_operations_elect_nobody(step: &Step<'_>) -> bool {
    let Some((_, grant)) = elected(step) else { return true };
    let before = step.before.shown(&grant.operation_id);
    before.is_none_or(|record| !record.quarantined && record.superseded_by.is_none())
}

/// An outcome that stands, and a word against it that nobody has looked at: no claim gets further.
fn contradictions_quarantine(step: &Step<'_>) -> bool {
    let conflict = refusal(step) == Some(Refusal::OutcomeConflict);
    let told = matches!(step.command, Some(Command::Evidence(_) | Command::Resolve(_)));
    let kept = step.changes.rows.iter().any(|row| matches!(row, Change::Evidence(..)));
    if !(conflict && told && kept) {
        return true;
    }
    operations(step).into_iter().any(|(_, after)| after.quarantined)
}

fn told_of(answer: &Answer) -> Option<OperationId> {
    match answer {
        Answer::Claimed(grant) => Some(grant.operation_id),
        Answer::InProgress(standing) | Answer::Accepted(standing) | Answer::DuplicateDelivery(standing) => {
            Some(standing.operation_id)
        }
        Answer::Registered { standing, .. } => Some(standing.operation_id),
        Answer::Replayed(receipt) => Some(receipt.standing.operation_id),
        Answer::Refused(refused) => refused.operation_id,
        _ => None,
    }
}

fn the_gone_stay_gone(step: &Step<'_>) -> bool {
    let told =
        step.answer.as_ref().and_then(told_of).into_iter().chain(step.definite.iter().flatten().filter_map(told_of));
    let shown = step.after.memory.operations.values().filter(|record| step.after.shown(&record.id).is_some());
    let mut births = told.map(|id| id.birth).chain(shown.map(|record| record.id.birth));
    births.all(|birth| !step.before.ghost.gone.contains(&birth))
}

fn nothing_goes_early(step: &Step<'_>) -> bool {
    let goes = |record: &&OperationRecord| {
        !step.before.ghost.gone.contains(&record.id.birth) && step.after.shown(&record.id).is_none()
    };
    let kept_ms = step.scope.policy().retention.identity_ms + RETENTION_MARGIN_MS;
    step.before.memory.operations.values().filter(goes).all(|record| {
        // Whoever releases it lets it go.
        let released = matches!(step.command, Some(Command::Repair(it)) if it.kind == RepairKind::Release);
        let ended = record.terminal_at.is_some_and(|at| at.0 + kept_ms < step.wall.0);
        ended && (!record.quarantined || released)
    })
}

fn floors_rise(step: &Step<'_>) -> bool {
    step.before.memory.statuses.iter().all(|(key, before)| {
        step.after.memory.statuses.get(key).is_some_and(|after| {
            after.floors.compact_before >= before.floors.compact_before
                && after.floors.forget_before >= before.floors.forget_before
        })
    })
}

/// What a node may say from its own state is what the same call is answered there by apply.
fn facts_are_definite(step: &Step<'_>) -> bool {
    let [before, after] = &step.definite;
    let again = step.again.as_ref().map(|(answer, _)| answer).or(step.answer.as_ref());
    let is = |fact: &Option<Answer>, answer| fact.is_none() || fact.as_ref() == answer;
    is(before, step.answer.as_ref()) && is(after, again)
}

fn refusals_are_recorded(step: &Step<'_>) -> bool {
    let Some(Command::Claim(claim)) = step.command else { return true };
    let Some(reason) = refusal(step) else { return true };
    if capability(step.before, claim.capability_id).is_none() || was_granted(step, claim) {
        return true;
    }
    let recorded = |row: &Change| match row {
        Change::Refusal(_, row) => row.reason == reason && row.capability == claim.capability_id,
        _ => false,
    };
    step.changes.rows.iter().any(recorded)
}

/// The same command at once again: the same answer, and nothing written but how often it was refused.
fn repetition_is_idle(step: &Step<'_>) -> bool {
    let (Some((again, rows)), Some(first)) = (&step.again, &step.answer) else { return true };
    let same = match (first, again) {
        (Answer::Registered { standing, .. }, Answer::Registered { standing: again, .. }) => standing == again,
        (Answer::Capability { record, .. }, Answer::Capability { record: again, .. }) => record == again,
        (Answer::Epoch(value), Answer::Refused(refused)) => {
            refused.reason == Refusal::RegisterStands { value: *value }
        }
        (Answer::Lapsed { .. }, Answer::Lapsed { .. }) => true,
        // A candidate that settling moved is named again with what is read now.
        (Answer::Reconciling(items), Answer::Reconciling(again)) => items == again,
        // Released, it may be gone; then there is nothing more to be released.
        (Answer::Accepted(_), Answer::Refused(refused)) if refused.reason == Refusal::NotFound => {
            matches!(step.command, Some(Command::Repair(_)))
        }
        // What is expected is the state before: whoever asks again expects what is there no more.
        _ => first == again,
    };
    let counted = |row: &Change| matches!(row, Change::Refusal(_, row) if row.times > 1);
    same && rows.iter().all(counted)
}

fn lists_follow(step: &Step<'_>) -> bool {
    step.before.memory.misplaced(&step.changes).is_none()
}

fn counts_follow(step: &Step<'_>) -> bool {
    let shown = step.after.memory.operations.values().filter(|record| step.after.shown(&record.id).is_some());
    let (mut open, mut unknown) = (0, 0);
    for record in shown {
        open += u64::from(!record.state().is_terminal());
        unknown += u64::from(record.state() == State::Unknown);
    }
    let status = step.after.memory.statuses.values().next().copied().unwrap_or_default();
    (status.open, status.unknown) == (open, unknown)
}

/// What an exploration may meet, by bit.
pub(super) fn marks(step: &Step<'_>) -> u64 {
    let mut bits = 0;
    let mut mark = |bit: u64, met: bool| bits |= u64::from(met) << bit;
    let after = || step.after.memory.operations.values();
    mark(0, elected(step).is_some());
    mark(1, elected(step).is_some_and(|(_, grant)| grant.attempt.0 == 2));
    mark(2, matches!(step.answer, Some(Answer::DuplicateDelivery(_))));
    mark(3, matches!(step.answer, Some(Answer::Replayed(_))));
    mark(4, matches!(&step.answer, Some(Answer::Reconciling(items)) if !items.is_empty()));
    mark(5, after().any(|record| record.quarantined));
    mark(6, after().any(|record| record.closed.is_some()));
    mark(7, after().any(|record| record.superseded_by.is_some()));
    mark(8, !step.after.ghost.gone.is_empty());
    mark(9, step.definite.iter().any(Option::is_some));
    mark(10, step.after.ghost.bumps > 0);
    mark(11, after().any(|record| record.execution.as_ref().is_some_and(|it| it.escalated_at.is_some())));
    mark(12, after().any(|record| record.outcome().is_some_and(|it| it.outcome == Definite::Completed)));
    mark(13, step.before.ghost.gone.len() == 1 && elected(step).is_some());
    for (bit, reason) in (16..).zip(REASONS) {
        mark(bit, refusal(step) == Some(reason));
    }
    bits
}

const REASONS: [Refusal; 15] = [
    Refusal::CapabilityAlreadyConsumed,
    Refusal::CapabilityRevoked,
    Refusal::CapabilityExpired,
    Refusal::CapabilityBindingMismatch,
    Refusal::CapabilityRequired,
    Refusal::CapabilityInvalid,
    Refusal::EpochStale,
    Refusal::EpochUnknown,
    Refusal::DeliveryMismatch,
    Refusal::KeyDigestMismatch,
    Refusal::OutcomeUnknown,
    Refusal::OperationExecuting,
    Refusal::OperationQuarantined,
    Refusal::OutcomeConflict,
    Refusal::LeaseStaleEpoch,
];

/// What an exploration of `scope` must have met, or it proved nothing.
pub(super) fn met(scope: Scope) -> u64 {
    let reason = |wanted: Refusal| {
        let at = REASONS.iter().position(|reason| *reason == wanted).expect("it is looked for");
        1 << (16 + at)
    };
    let reasons = |wanted: &[Refusal]| wanted.iter().fold(0, |bits, wanted| bits | reason(*wanted));
    match scope {
        Scope::Single => {
            let bits = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 9 | 1 << 10 | 1 << 12;
            bits | reasons(&REASONS[..13].iter().copied().filter(|it| !is_elsewhere(*it)).collect::<Vec<_>>())
        }
        Scope::Bounded => {
            let wanted = [Refusal::CapabilityAlreadyConsumed, Refusal::CapabilityRevoked, Refusal::CapabilityExpired];
            1 << 0 | 1 << 9 | reasons(&wanted)
        }
        Scope::Epochs(_) => {
            let wanted = [Refusal::EpochStale, Refusal::EpochUnknown, Refusal::LeaseStaleEpoch];
            1 << 0 | 1 << 9 | 1 << 10 | reasons(&wanted)
        }
        Scope::Reconcile => {
            let wanted = [Refusal::OutcomeUnknown, Refusal::OutcomeConflict, Refusal::LeaseStaleEpoch];
            1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 11 | 1 << 12 | reasons(&wanted)
        }
        Scope::Supersede => 1 << 0 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 12,
        Scope::Repair => 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 12 | reason(Refusal::OperationQuarantined),
        Scope::Retention => {
            let wanted = [Refusal::CapabilityInvalid, Refusal::OutcomeConflict];
            1 << 0 | 1 << 3 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 13 | reasons(&wanted)
        }
    }
}

/// Refusals that no claim in the scope of single capabilities can meet.
fn is_elsewhere(reason: Refusal) -> bool {
    matches!(reason, Refusal::CapabilityInvalid | Refusal::EpochUnknown | Refusal::OperationQuarantined)
}
