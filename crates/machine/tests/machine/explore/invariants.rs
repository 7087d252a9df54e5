//! What must hold after every step: one function per promise, each able to fail (see the broken rules).
//! They look at states and answers from outside, and share no judgement with the rules.

use hapax_machine::Refusal;
use hapax_machine::command::Command;
use hapax_machine::ids::{Revision, WallTime};
use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::{Definite, Execution, OperationRecord, State};
use hapax_machine::outcome::Answer;

use super::world::{Action, CALLS, Manners, Step};
use crate::memory::Newest as _;

/// A promise: its name and whether it holds over a step.
pub(super) type Invariant = (&'static str, fn(&Step<'_>) -> bool);

/// All promises.
pub(super) const INVARIANTS: [Invariant; 17] = [
    ("at most one consequential execution", one_consequential_execution),
    ("at most one holder believes itself entitled", one_entitled_holder),
    ("a terminal outcome never changes", terminal_stays),
    ("lease epochs only grow and never repeat", epochs_grow),
    ("unknown ends by evidence or resolution only", unknown_stays),
    ("a repeated command changes nothing", repetition_is_idle),
    ("a live lease never ends early", live_leases_stay),
    ("attempts grow by one, out of not_applied only", attempts_grow_out_of_not_applied),
    ("one holder cannot speak for another", holders_speak_for_themselves),
    ("a refusal changes nothing beyond settling", refusals_are_idle),
    ("a copy past its time changes nothing", late_copies_are_idle),
    ("a quarantined operation elects nobody", quarantine_stops_claims),
    ("only the holder of the current epoch acts as owner", owners_are_current),
    ("a key is bound to its first digest", digest_is_bound),
    ("a claim id is granted once", claim_ids_are_granted_once),
    ("a resolution names the current epoch", resolutions_are_current),
    ("an ex-owner speaks of its own execution only", evidence_is_ones_own),
];

fn command<'s>(step: &'s Step<'_>) -> Option<&'s Command> {
    match step.action {
        Action::Apply { command, .. } => Some(command),
        _ => None,
    }
}

/// The newest execution before and after, where both exist.
fn executions<'s>(step: &'s Step<'_>) -> Option<(&'s Execution, &'s Execution)> {
    Some((step.before.operation()?.newest(), step.after.operation()?.newest()))
}

fn refusal(step: &Step<'_>) -> Option<Refusal> {
    match &step.answer {
        Some(Answer::Refused(refused)) => Some(refused.reason),
        _ => None,
    }
}

/// The effects that were caused belong to one attempt; and where nothing is ever taken over, to one claim.
fn one_consequential_execution(step: &Step<'_>) -> bool {
    let caused = || step.after.ghost.calls.iter().filter(|call| call.effect);
    let attempts = |attempt: u32| caused().any(|call| call.attempt == attempt);
    let one_attempt = !(attempts(1) && attempts(2));
    one_attempt && (step.setting.on_lapse == OnLapse::Takeover || caused().count() <= 1)
}

fn one_entitled_holder(step: &Step<'_>) -> bool {
    let ghost = &step.after.ghost;
    ghost.calls.iter().filter(|call| call.until > ghost.real).count() <= 1
}

fn terminal_stays(step: &Step<'_>) -> bool {
    executions(step).is_none_or(|(before, after)| !before.state.is_terminal() || before == after)
}

/// Whoever elects or fences draws an epoch above all there ever were; nothing else changes it.
fn epochs_grow(step: &Step<'_>) -> bool {
    let after = step.after.operation().map(|operation| operation.newest());
    let Some(after) = after else { return true };
    let before = step.before.operation().map(|operation| operation.newest());
    let elected = before.is_none_or(|before| before.claim_id != after.claim_id);
    let lapsed = before.is_some_and(|before| before.state == State::Executing)
        && after.state == State::Unknown
        && !matches!((command(step), refusal(step)), (Some(Command::Report(_)), None));
    let same = before.is_some_and(|before| before.lease_epoch == after.lease_epoch);
    let fresh = after.lease_epoch.0 > step.before.ghost.top_epoch;
    if elected || lapsed { fresh } else { same || fresh && after.state != State::Executing }
}

fn unknown_stays(step: &Step<'_>) -> bool {
    let told = matches!(command(step), Some(Command::Evidence(_) | Command::Resolve(_)));
    executions(step).is_none_or(|(before, after)| {
        before.state != State::Unknown || told && before.id == after.id || before == after
    })
}

/// The same command at once again, as a retry or a second copy: the same answer, and not a row written.
fn repetition_is_idle(step: &Step<'_>) -> bool {
    let Some((again, rows)) = &step.again else { return true };
    let first = step.answer.as_ref();
    let same_answer = first == Some(again) || matches!(first, Some(Answer::Lapsed { .. }));
    same_answer && *rows == 0
}

fn live_leases_stay(step: &Step<'_>) -> bool {
    let live = step.before.ghost.live_until > step.before.ghost.real;
    executions(step).is_none_or(|(before, after)| {
        let reported = after.report.is_some();
        let ended = after.state == State::Unknown && !reported || before.lease_epoch != after.lease_epoch;
        !(live && before.state == State::Executing && ended)
    })
}

fn attempts_grow_out_of_not_applied(step: &Step<'_>) -> bool {
    executions(step).is_none_or(|(before, after)| {
        let grown =
            after.attempt.0 == before.attempt.0 + 1 && before.state == State::NotApplied && before.id != after.id;
        grown || after.attempt == before.attempt && after.id == before.id
    })
}

/// A word of not_applied that is not a resolution counts only where one claim ever held the execution.
fn holders_speak_for_themselves(step: &Step<'_>) -> bool {
    let own_word = matches!(command(step), Some(Command::Report(_) | Command::Evidence(_)));
    executions(step).is_none_or(|(before, after)| {
        let moved = before.state != State::NotApplied && after.state == State::NotApplied;
        let holders = step.before.ghost.calls.iter().filter(|call| call.attempt == after.attempt.0).count();
        !(own_word && moved && holders > 1)
    })
}

/// A refused command may leave behind only what time itself did; a contradiction also its record and the quarantine.
fn refusals_are_idle(step: &Step<'_>) -> bool {
    let idle = match &step.answer {
        Some(Answer::Lapsed { changed: false }) => return step.rows == 0,
        Some(Answer::InProgress(_) | Answer::Replayed(_) | Answer::Refused(_)) => true,
        _ => false,
    };
    if !idle {
        return true;
    }
    let (Some(before), Some(after)) = (step.before.operation(), step.after.operation()) else {
        return step.rows == 0;
    };
    let (mut expected, after) = (bare(before), bare(after));
    if step.setting.on_lapse == OnLapse::Unknown && before.newest().lapsed(step.after.memory.head.clocks.lease_time) {
        expected.newest_mut().state = State::Unknown;
        expected.newest_mut().unknown_since = Some(WallTime(0));
        expected.newest_mut().lease_epoch = after.newest().lease_epoch;
    }
    let told = matches!(command(step), Some(Command::Evidence(_) | Command::Resolve(_)));
    if told && refusal(step) == Some(Refusal::OutcomeConflict) {
        expected.quarantined = true;
    }
    expected == after
}

fn late_copies_are_idle(step: &Step<'_>) -> bool {
    let Action::Apply { not_after, .. } = step.action else { return true };
    let late = step.after.memory.head.clocks.lease_time > *not_after;
    !late || step.rows == 0 && step.answer == Some(Answer::TooLate)
}

fn quarantine_stops_claims(step: &Step<'_>) -> bool {
    let quarantined = step.before.operation().is_some_and(|operation| operation.quarantined);
    !(quarantined && matches!(step.answer, Some(Answer::Claimed(_) | Answer::Replayed(_) | Answer::InProgress(_))))
}

/// A renewal, or a report that changes anything, comes from the client and under the epoch of the newest grant.
fn owners_are_current(step: &Step<'_>) -> bool {
    let (client, epoch, accepted) = match (command(step), &step.answer) {
        (Some(Command::Renew(renew)), Some(Answer::Renewed(_))) => (&renew.caller.client, renew.lease_epoch, true),
        (Some(Command::Report(report)), Some(Answer::Accepted(_))) => {
            let taken = executions(step).is_some_and(|(before, after)| before.report != after.report);
            (&report.caller.client, report.lease_epoch, taken)
        }
        _ => return true,
    };
    let newest = step.before.ghost.calls.iter().zip(CALLS).max_by_key(|(call, _)| call.epoch);
    !accepted || newest.is_some_and(|(call, of)| call.epoch == epoch.0 && of == client.as_str())
}

fn digest_is_bound(step: &Step<'_>) -> bool {
    let Some(operation) = step.before.operation() else { return true };
    let kept = step.after.operation().is_some_and(|after| after.digest == operation.digest);
    let told = matches!(step.answer, Some(Answer::Claimed(_) | Answer::Replayed(_) | Answer::InProgress(_)));
    match command(step) {
        Some(Command::Claim(claim)) => kept && (!told || claim.digest == operation.digest),
        _ => kept,
    }
}

fn claim_ids_are_granted_once(step: &Step<'_>) -> bool {
    let (Some(Command::Claim(claim)), Some(Answer::Claimed(grant))) = (command(step), &step.answer) else {
        return true;
    };
    let known = step.before.ghost.calls[usize::from(claim.claim_id.0[15])].epoch;
    let client = CALLS[usize::from(claim.claim_id.0[15])];
    (known == 0 || known == grant.lease.lease_epoch.0) && client == claim.caller.client.as_str()
}

fn resolutions_are_current(step: &Step<'_>) -> bool {
    let Some(Command::Resolve(resolve)) = command(step) else { return true };
    executions(step).is_none_or(|(before, after)| {
        let moved = before.state == State::Unknown && after.state != State::Unknown;
        !moved || resolve.lease_epoch == before.lease_epoch
    })
}

fn evidence_is_ones_own(step: &Step<'_>) -> bool {
    let (Some(Command::Evidence(told)), Some(Answer::Accepted(_))) = (command(step), &step.answer) else {
        return true;
    };
    let number = usize::from(told.claim_id.0[15]);
    let call = step.before.ghost.calls[number];
    let execution = step.before.memory.executions.iter().find(|((_, id), _)| *id == told.execution_id);
    let attempt = execution.map(|(_, row)| row.past.as_ref().map(|past| past.attempt.0));
    let attempt = attempt.map(|past| past.unwrap_or(step.before.operation().map_or(0, |now| now.newest().attempt.0)));
    call.epoch != 0 && attempt == Some(call.attempt) && CALLS[number] == told.caller.client.as_str()
}

/// The record without what every write touches, and without what was said.
fn bare(operation: &OperationRecord) -> OperationRecord {
    OperationRecord {
        updated_at: WallTime(0),
        modified: Revision::default(),
        evidence: 0,
        said: None,
        chain: None,
        ..operation.clone()
    }
}

/// What an exploration must have met, or it proved nothing.
pub(super) fn landmarks(step: &Step<'_>) -> u32 {
    let honest = step.setting.manners == Manners::Honest;
    let after = step.after.operation();
    let state = after.map(|operation| operation.newest().state);
    let definite =
        |wanted| after.and_then(|now| now.newest().outcome.as_ref()).is_some_and(|it| it.outcome == wanted);
    let marks = [
        matches!(step.answer, Some(Answer::Claimed(_))),
        matches!(step.answer, Some(Answer::Replayed(_))),
        matches!(step.answer, Some(Answer::Renewed(_))),
        honest || matches!(step.answer, Some(Answer::TooLate)),
        state == Some(State::Unknown),
        definite(Definite::Completed),
        definite(Definite::NotApplied),
        after.is_some_and(|operation| operation.newest().attempt.0 == 2),
        honest || step.after.memory.head.clocks.term == 2,
        refusal(step) == Some(Refusal::LeaseStaleEpoch),
        step.setting.on_lapse == OnLapse::Unknown || after.is_some_and(|now| !now.newest().sole_holder),
        honest || after.is_some_and(|operation| operation.quarantined),
        !honest || step.after.ghost.calls.iter().any(|call| call.effect),
    ];
    marks.iter().enumerate().fold(0, |bits, (bit, met)| bits | u32::from(*met) << bit)
}

/// All bits of [`landmarks`].
pub(super) const ALL_LANDMARKS: u32 = (1 << 13) - 1;
