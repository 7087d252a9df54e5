//! What is promised of the record: retention, reads, definite facts, refusals, repetition, lists and counts.

use hapax_machine::change::Change;
use hapax_machine::command::{Command, RepairKind};
use hapax_machine::ids::OperationId;
use hapax_machine::limits::RETENTION_MARGIN_MS;
use hapax_machine::operation::{OperationRecord, State};
use hapax_machine::outcome::{Answer, Refusal};

use super::super::scope::{BODY_MS, IDENTITY_MS};
use super::super::world::Step;
use super::{capability, is_stale, refusal, waits, was_granted};

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

/// Neither an operation nor a result, in no answer, in no fact that a node tells by itself, and to no reader.
pub(super) fn the_gone_stay_gone(step: &Step<'_>) -> bool {
    let ghost = &step.before.ghost;
    let answers = || step.answer.iter().chain(step.definite.iter().flatten());
    let shown = step.after.memory.operations.values().filter(|record| step.after.shown(&record.id).is_some());
    let read = step.reads.iter().map(|reading| reading.record.id.birth);
    let told = answers().filter_map(told_of).map(|id| id.birth);
    let mut births = told.chain(shown.map(|record| record.id.birth)).chain(read);
    let result_of = |answer: &Answer| match answer {
        Answer::Replayed(receipt) if receipt.result.is_some() => Some(receipt.standing.operation_id.birth),
        _ => None,
    };
    let with_result = step.reads.iter().filter(|reading| reading.result.is_some());
    let mut results = with_result.map(|reading| reading.record.id.birth).chain(answers().filter_map(result_of));
    births.all(|birth| !ghost.gone.contains(&birth)) && results.all(|birth| !ghost.emptied.contains(&birth))
}

pub(super) fn nothing_goes_early(step: &Step<'_>) -> bool {
    let ghost = &step.before.ghost;
    let ended = |record: &OperationRecord, kept_ms: u64| {
        record.terminal_at.is_some_and(|at| at.0 + kept_ms + RETENTION_MARGIN_MS < step.wall.0)
    };
    step.before.memory.operations.values().all(|record| {
        let birth = record.id.birth;
        let goes = !ghost.gone.contains(&birth) && step.after.shown(&record.id).is_none();
        let loses = !ghost.emptied.contains(&birth) && step.after.ghost.emptied.contains(&birth);
        // Whoever releases it lets it go.
        let released = matches!(step.command, Some(Command::Repair(it)) if it.kind == RepairKind::Release);
        let may_go = ended(record, IDENTITY_MS) && (!record.quarantined || released);
        (!goes || may_go) && (!loses || ended(record, BODY_MS))
    })
}

pub(super) fn floors_rise(step: &Step<'_>) -> bool {
    step.before.memory.statuses.iter().all(|(key, before)| {
        step.after.memory.statuses.get(key).is_some_and(|after| {
            after.floors.compact_before >= before.floors.compact_before
                && after.floors.forget_before >= before.floors.forget_before
        })
    })
}

/// A reader is told what settling would leave, and no epoch that it would not.
pub(super) fn reads_are_settled(step: &Step<'_>) -> bool {
    let now = step.after.memory.head.clocks.lease_time;
    step.reads.iter().all(|reading| {
        let Some(newest) = &reading.record.execution else { return reading.lease_epoch.is_none() };
        let ends = now >= newest.deadline && !waits(step, newest) || is_stale(newest, step.after.register());
        match newest.state {
            State::Executing if ends => reading.state == State::Unknown && reading.lease_epoch.is_none(),
            _ if reading.record.closed.is_some() => reading.state == State::Failed,
            state => reading.state == state && reading.lease_epoch == Some(newest.lease_epoch),
        }
    })
}

/// What a node may say from its own state is what the same call is answered there by apply.
pub(super) fn facts_are_definite(step: &Step<'_>) -> bool {
    let [before, after] = &step.definite;
    let again = step.again.as_ref().map(|(answer, _)| answer).or(step.answer.as_ref());
    let is = |fact: &Option<Answer>, answer| fact.is_none() || fact.as_ref() == answer;
    is(before, step.answer.as_ref()) && is(after, again)
}

pub(super) fn refusals_are_recorded(step: &Step<'_>) -> bool {
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
pub(super) fn repetition_is_idle(step: &Step<'_>) -> bool {
    let (Some((again, rows)), Some(first)) = (&step.again, &step.answer) else { return true };
    let same = match (first, again) {
        (Answer::Registered { standing, .. }, Answer::Registered { standing: again, .. }) => standing == again,
        (Answer::Capability { record, .. }, Answer::Capability { record: again, .. }) => record == again,
        (Answer::Epoch(value), Answer::Refused(refused)) => {
            refused.reason == Refusal::RegisterStands { value: *value }
        }
        // Whoever writes again names a version that stands no more.
        (Answer::Namespace(_), Answer::Refused(refused)) => refused.reason == Refusal::VersionMismatch,
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

pub(super) fn lists_follow(step: &Step<'_>) -> bool {
    step.before.memory.misplaced(&step.changes).is_none()
}

pub(super) fn counts_follow(step: &Step<'_>) -> bool {
    let shown = step.after.memory.operations.values().filter(|record| step.after.shown(&record.id).is_some());
    let (mut open, mut unknown) = (0, 0);
    for record in shown {
        open += u64::from(!record.state().is_terminal());
        unknown += u64::from(record.state() == State::Unknown);
    }
    let status = step.after.memory.statuses.values().next().copied().unwrap_or_default();
    (status.open, status.unknown) == (open, unknown)
}
