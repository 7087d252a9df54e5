//! What is promised of ownership and outcomes: epochs, unknown, reconciliation, contradictions, repair.

use std::collections::BTreeSet;

use hapax_machine::change::Change;
use hapax_machine::command::{Command, RepairKind};
use hapax_machine::evidence::Source;
use hapax_machine::ids::{ExecutionId, OperationId};
use hapax_machine::operation::{Definite, Execution, OperationRecord, State};
use hapax_machine::outcome::{Answer, Refusal};

use super::super::scope::{LEASES_PER_MINUTE, is_closable};
use super::super::world::{Step, Word, World};
use super::{elected, executions, is_stale, operations, refusal, waits};

/// E: across elections, lapses, fences, bumps, reconciliation, forgetting.
pub(super) fn draws_grow(step: &Step<'_>) -> bool {
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

pub(super) fn unknown_stays(step: &Step<'_>) -> bool {
    let told = matches!(step.command, Some(Command::Evidence(_) | Command::Resolve(_)));
    let ends = |(was, is): (Execution, Execution)| was.state == State::Unknown && is.state != State::Unknown;
    let open = |record: &&OperationRecord| record.state() == State::Unknown;
    let there =
        step.before.memory.operations.values().filter(open).all(|record| step.after.shown(&record.id).is_some());
    there && (told || !executions(step).into_iter().any(ends))
}

/// Whoever was shown an execution as unknown is never shown it as anybody's again, and nobody is given it: what follows is its
/// outcome, or another execution.
pub(super) fn unknown_is_not_taken_back(step: &Step<'_>) -> bool {
    let unknown = &step.before.ghost.unknown;
    let shown = step.reads.iter().filter(|reading| reading.state == State::Executing);
    let executing = shown.filter_map(|reading| reading.record.execution.as_ref().map(|newest| newest.id));
    let given = elected(step).map(|(_, grant)| grant.execution_id);
    executing.chain(given).all(|id| !unknown.contains(&id))
}

/// Its owner says so, its lease is over, its authority is, or an operator names the very lease.
pub(super) fn unknown_has_a_cause(step: &Step<'_>) -> bool {
    let now = step.after.memory.head.clocks.lease_time;
    executions(step).into_iter().all(|(was, is)| {
        if was.state != State::Executing || is.state != State::Unknown {
            return true;
        }
        let named = match step.command {
            Some(Command::Report(report)) => {
                report.lease_epoch == was.lease_epoch && report.caller.client == was.client
            }
            Some(Command::ForceFence(fence)) => fence.lease_epoch == was.lease_epoch,
            _ => false,
        };
        named || now >= was.deadline && !waits(step, &was) || is_stale(&was, step.before.register())
    })
}

/// While one holds it, nobody else is given it; and whoever is given it anew is told of a new epoch.
pub(super) fn one_reconciler(step: &Step<'_>) -> bool {
    let (Some(Command::ReconcileLease(asked)), Some(Answer::Reconciling(items))) = (step.command, &step.answer)
    else {
        return true;
    };
    items.iter().all(|item| {
        let Some(record) = step.before.shown(&item.operation_id) else { return false };
        let Some(newest) = record.execution else { return false };
        let now = step.after.memory.head.clocks.lease_time;
        let leased = newest.reconciler.as_ref().filter(|held| newest.state == State::Unknown && now < held.deadline);
        match leased {
            Some(held) => held.owner == asked.owner && item.lease.lease_epoch == newest.lease_epoch,
            None => item.lease.lease_epoch > newest.lease_epoch,
        }
    })
}

pub(super) fn the_escalated_wait(step: &Step<'_>) -> bool {
    let Some(Answer::Reconciling(items)) = &step.answer else { return true };
    items.iter().all(|item| {
        let execution = step.before.shown(&item.operation_id).and_then(|record| record.execution);
        execution.is_some_and(|execution| execution.escalated_at.is_none())
    })
}

/// All of an exploration is less than a minute.
pub(super) fn leases_are_paced(step: &Step<'_>) -> bool {
    step.after.ghost.leased <= LEASES_PER_MINUTE
}

pub(super) fn resolutions_are_current(step: &Step<'_>) -> bool {
    let Some(Command::Resolve(resolve)) = step.command else { return true };
    executions(step).into_iter().all(|(was, is)| {
        was.state != State::Unknown || is.state == State::Unknown || resolve.lease_epoch == was.lease_epoch
    })
}

/// T: neither the outcome nor the digest.
pub(super) fn terminal_stays(step: &Step<'_>) -> bool {
    operations(step).into_iter().all(|(before, after)| {
        !before.state().is_terminal()
            || before.outcome() == after.outcome() && before.state() == after.state() && before.digest == after.digest
    })
}

pub(super) fn attempts_follow_not_applied(step: &Step<'_>) -> bool {
    executions(step).into_iter().all(|(was, is)| {
        let next = is.attempt.0 == was.attempt.0 + 1 && was.state == State::NotApplied && was.id != is.id;
        next || was.id == is.id && was.attempt == is.attempt
    })
}

/// Where somebody else held it too, an owner's or ex-owner's word of not_applied is not enough.
pub(super) fn holders_speak_for_themselves(step: &Step<'_>) -> bool {
    let own_word = matches!(step.command, Some(Command::Report(_) | Command::Evidence(_)));
    executions(step).into_iter().all(|(was, is)| {
        let moved = was.state != State::NotApplied && is.state == State::NotApplied;
        let holders = step.before.ghost.held.iter().filter(|(id, _)| *id == was.id).count();
        !(own_word && moved && holders > 1)
    })
}

/// Whoever holds an execution is told the same key to send with it, and nobody else is told that one.
pub(super) fn effects_are_named_once(step: &Step<'_>) -> bool {
    let named = |id: &ExecutionId, name: &String| {
        let ghost = &step.before.ghost;
        let others = ghost.effect_keys.iter().any(|(other, of)| other != id && of == name);
        !others && ghost.effect_keys.get(id).is_none_or(|of| of == name)
    };
    match &step.answer {
        Some(Answer::Claimed(grant)) => named(&grant.execution_id, &grant.effect_key),
        Some(Answer::Reconciling(items)) => items.iter().all(|item| named(&item.execution_id, &item.effect_key)),
        _ => true,
    }
}

pub(super) fn closing_is_safe(step: &Step<'_>) -> bool {
    operations(step)
        .into_iter()
        .all(|(before, after)| after.closed.is_none() || before.closed.is_some() || is_closable(&before))
}

pub(super) fn stopped_operations_elect_nobody(step: &Step<'_>) -> bool {
    let Some((_, grant)) = elected(step) else { return true };
    let before = step.before.shown(&grant.operation_id);
    before.is_none_or(|record| !record.quarantined && record.superseded_by.is_none())
}

/// What takes its place is younger, so that links cannot go round, and leads back.
pub(super) fn links_stay(step: &Step<'_>) -> bool {
    operations(step).into_iter().all(|(before, after)| {
        let kept = |was: Option<OperationId>, is| was.is_none() || was == is;
        let back = after.superseded_by.is_none_or(|by| {
            let other = step.after.shown(&by);
            by.birth > after.id.birth && other.is_some_and(|other| other.supersedes == Some(after.id))
        });
        kept(before.superseded_by, after.superseded_by) && kept(before.supersedes, after.supersedes) && back
    })
}

/// No claim gets past a word against the outcome that stands. The one exception: the very word that was the last one said when
/// an operator released, and so looked at it.
pub(super) fn contradictions_quarantine(step: &Step<'_>) -> bool {
    let Some(Answer::Refused(refused)) = &step.answer else { return true };
    let Some(word) = step.command.and_then(Word::of) else { return true };
    if refused.reason != Refusal::OutcomeConflict {
        return true;
    }
    let Some(id) = refused.operation_id else { return false };
    let pardoned = step.before.ghost.pardoned.get(&id.birth) == Some(&word);
    pardoned || step.after.shown(&id).is_some_and(|record| record.quarantined)
}

/// What ex-owners say of an execution and cannot both be true, or cannot be with what stands.
fn in_conflict(world: &World, newest: &Execution) -> BTreeSet<Definite> {
    let of = |(id, said): &(ExecutionId, Definite)| (*id == newest.id).then_some(*said);
    let said: BTreeSet<Definite> = world.ghost.effects.iter().filter_map(of).collect();
    match &newest.outcome {
        Some(stands) => said.into_iter().filter(|said| *said != stands.outcome).collect(),
        None if said.len() > 1 => said,
        None => BTreeSet::new(),
    }
}

/// An effect that was claimed before anything stood is not forgotten when something does.
pub(super) fn claimed_effects_count(step: &Step<'_>) -> bool {
    operations(step).into_iter().all(|(before, after)| {
        let Some(newest) = &after.execution else { return true };
        let was = before.execution.filter(|was| was.id == newest.id);
        let known = was.map(|was| in_conflict(step.before, &was)).unwrap_or_default();
        after.quarantined || in_conflict(&step.after, newest).is_subset(&known)
    })
}

/// Who did it, and in which call.
pub(super) fn overrides_are_recorded(step: &Step<'_>) -> bool {
    let (caller, source) = match step.command {
        Some(Command::Escalate(it)) if it.escalated => (&it.caller, Source::Escalate),
        Some(Command::Escalate(it)) => (&it.caller, Source::Deescalate),
        Some(Command::ForceFence(it)) => (&it.caller, Source::Fence),
        Some(Command::Repair(it)) => {
            let source = match it.kind {
                RepairKind::Quarantine => Source::Quarantine,
                RepairKind::Release => Source::Release,
                RepairKind::Supersede(_) => Source::Supersede,
                RepairKind::Close => Source::Close,
            };
            (&it.caller, source)
        }
        _ => return true,
    };
    let flags = |record: &OperationRecord| {
        let newest = record.execution.as_ref();
        let waits = newest.is_some_and(|newest| newest.escalated_at.is_some());
        (record.quarantined, record.closed.is_some(), record.superseded_by, waits)
    };
    let fenced = source == Source::Fence && matches!(step.answer, Some(Answer::Accepted(_)));
    let ended = |(was, is): (Execution, Execution)| was.state != is.state;
    let done = operations(step).iter().any(|(before, after)| flags(before) != flags(after))
        || fenced && executions(step).into_iter().any(ended);
    let kept = |row: &Change| {
        let Change::Evidence(.., row) = row else { return false };
        row.source == source && row.client == caller.client
    };
    !done || step.changes.rows.iter().any(kept)
}
