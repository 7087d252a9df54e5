//! What an exploration must have met: a scope that meets less than it is for proves nothing.

use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::{Definite, Execution, OperationRecord, State};
use hapax_machine::outcome::{Answer, Refusal};

use super::promises::{elected, refusal};
use super::scope::{LEASES_PER_MINUTE, Scope};
use super::world::Step;

/// Something to be met: its name, and whether a step is or leads to it.
type Landmark = (&'static str, fn(&Step<'_>) -> bool);

const LANDMARKS: [Landmark; 56] = [
    ("elected", |step| elected(step).is_some()),
    ("second attempt", |step| elected(step).is_some_and(|(_, grant)| grant.attempt.0 == 2)),
    ("the same grant again", |step| matches!(step.answer, Some(Answer::Claimed(_))) && elected(step).is_none()),
    ("in progress", |step| matches!(step.answer, Some(Answer::InProgress(_)))),
    ("duplicate delivery", |step| matches!(step.answer, Some(Answer::DuplicateDelivery(_)))),
    ("replayed", |step| matches!(step.answer, Some(Answer::Replayed(_)))),
    ("replayed with a result", |step| matches!(&step.answer, Some(Answer::Replayed(it)) if it.result.is_some())),
    ("renewed", |step| matches!(step.answer, Some(Answer::Renewed(_)))),
    ("issued", |step| matches!(step.answer, Some(Answer::Capability { created: true, .. }))),
    ("issued again", |step| matches!(step.answer, Some(Answer::Capability { created: false, .. }))),
    ("bumped twice", |step| step.after.ghost.bumps > 1),
    ("bumped", |step| step.after.ghost.bumps > 0),
    ("taken over", |step| {
        let taken = elected(step).map(|(_, grant)| grant.execution_id);
        taken.is_some_and(|id| step.before.executions().iter().any(|(known, _)| *known == id))
    }),
    ("a policy that makes takeover possible", |step| step.after.policy().takeover_since.is_some()),
    ("a policy that makes it impossible", |step| {
        step.before.policy().takeover_since.is_some() && step.after.policy().takeover_since.is_none()
    }),
    ("unknown though another could take over", |step| {
        step.after.policy().takeover_since.is_some()
            && step.reads.iter().any(|reading| reading.state == State::Unknown)
    }),
    ("over and waiting for a claimant", |step| {
        let now = step.after.memory.head.clocks.lease_time;
        step.reads.iter().any(|reading| {
            let over = reading.record.execution.as_ref().is_some_and(|newest| now >= newest.deadline);
            over && reading.state == State::Executing
        })
    }),
    ("leased", |step| matches!(&step.answer, Some(Answer::Reconciling(items)) if !items.is_empty())),
    ("none to lease", |step| matches!(&step.answer, Some(Answer::Reconciling(items)) if items.is_empty())),
    ("leased as often as may be", |step| step.after.ghost.leased == LEASES_PER_MINUTE),
    ("escalated", |step| newest(step, |it| it.escalated_at.is_some())),
    ("settled by a sweep", |step| step.answer == Some(Answer::Lapsed { changed: true })),
    ("read as unknown before it is", |step| {
        step.reads.iter().any(|reading| reading.record.execution.is_some() && reading.state != reading.record.state())
    }),
    ("completed", |step| stands(step, Definite::Completed)),
    ("not applied", |step| stands(step, Definite::NotApplied)),
    ("completed as an ex-owner claimed", |step| stands(step, Definite::Completed) && was_claimed(step)),
    ("not applied against a claimed effect", |step| stands(step, Definite::NotApplied) && was_claimed(step)),
    ("quarantined", |step| any(step, |record| record.quarantined)),
    ("pardoned", |step| !step.after.ghost.pardoned.is_empty()),
    ("closed", |step| any(step, |record| record.closed.is_some())),
    ("superseded", |step| any(step, |record| record.superseded_by.is_some())),
    ("gone", |step| !step.after.ghost.gone.is_empty()),
    ("without its result", |step| !step.after.ghost.emptied.is_empty()),
    ("begun anew", |step| !step.before.ghost.gone.is_empty() && elected(step).is_some()),
    ("a definite fact", |step| step.definite.iter().any(Option::is_some)),
    ("spent", |step| refusal(step) == Some(Refusal::CapabilityAlreadyConsumed)),
    ("revoked", |step| refusal(step) == Some(Refusal::CapabilityRevoked)),
    ("expired", |step| refusal(step) == Some(Refusal::CapabilityExpired)),
    ("bound to something else", |step| refusal(step) == Some(Refusal::CapabilityBindingMismatch)),
    ("asked for", |step| refusal(step) == Some(Refusal::CapabilityRequired)),
    ("no such capability", |step| refusal(step) == Some(Refusal::CapabilityInvalid)),
    ("stale", |step| refusal(step) == Some(Refusal::EpochStale)),
    ("never handed out", |step| refusal(step) == Some(Refusal::EpochUnknown)),
    ("delivery mismatch", |step| refusal(step) == Some(Refusal::DeliveryMismatch)),
    ("digest mismatch", |step| refusal(step) == Some(Refusal::KeyDigestMismatch)),
    ("attempt mismatch", |step| matches!(refusal(step), Some(Refusal::AttemptMismatch { .. }))),
    ("outcome unknown", |step| refusal(step) == Some(Refusal::OutcomeUnknown)),
    ("executing", |step| refusal(step) == Some(Refusal::OperationExecuting)),
    ("stopped", |step| refusal(step) == Some(Refusal::OperationQuarantined)),
    ("conflict", |step| refusal(step) == Some(Refusal::OutcomeConflict)),
    ("stale lease", |step| refusal(step) == Some(Refusal::LeaseStaleEpoch)),
    ("lost lease", |step| refusal(step) == Some(Refusal::LeaseLost)),
    ("not in that state", |step| matches!(refusal(step), Some(Refusal::OperationState { .. }))),
    ("not a successor", |step| refusal(step) == Some(Refusal::NotASuccessor)),
    ("not there", |step| refusal(step) == Some(Refusal::NotFound)),
    ("register stands elsewhere", |step| matches!(refusal(step), Some(Refusal::RegisterStands { .. }))),
];

fn all() -> impl Iterator<Item = (u32, Landmark)> {
    (0..).zip(LANDMARKS)
}

fn any(step: &Step<'_>, is: impl Fn(&OperationRecord) -> bool) -> bool {
    step.after.memory.operations.values().any(is)
}

fn newest(step: &Step<'_>, is: impl Fn(&Execution) -> bool) -> bool {
    any(step, |record| record.execution.as_ref().is_some_and(&is))
}

fn stands(step: &Step<'_>, outcome: Definite) -> bool {
    any(step, |record| record.outcome().is_some_and(|it| it.outcome == outcome))
}

/// Whether an ex-owner claimed an effect before this step.
fn was_claimed(step: &Step<'_>) -> bool {
    !step.before.ghost.effects.is_empty()
}

/// What a step met, by bit.
pub(super) fn met(step: &Step<'_>) -> u64 {
    all().fold(0, |bits, (bit, (_, is))| bits | u64::from(is(step)) << bit)
}

/// What of all that `scope` is for was not met.
pub(super) fn missed(scope: Scope, met: u64) -> Vec<&'static str> {
    let named = |name: &&str| all().find(|(_, (known, _))| known == name).expect("it is a landmark").0;
    wanted(scope).filter(|name| met & 1 << named(name) == 0).collect()
}

const SINGLE: &str = "elected, second attempt, the same grant again, duplicate delivery, issued, issued again, bumped, read as \
    unknown before it is, completed, not applied, a definite fact, spent, revoked, expired, bound to \
    something else, asked for, stale, delivery mismatch, digest mismatch, attempt mismatch, outcome unknown, \
    executing, conflict, stale lease, lost lease";
const BOUNDED: &str = "elected, the same grant again, issued, issued again, completed, not applied, a definite fact, spent, \
    revoked, expired, bound to something else, attempt mismatch, outcome unknown, executing";
const EPOCHS: &str = "elected, second attempt, in progress, replayed, renewed, issued, bumped, bumped twice, \
    settled by a sweep, read as unknown before it is, completed, not applied, a definite fact, stale, never \
    handed out, outcome unknown, executing, stale lease, lost lease, register stands elsewhere";
const RECONCILE: &str = "elected, second attempt, in progress, leased, none to lease, leased as often as may be, escalated, read \
    as unknown before it is, completed, not applied, quarantined, outcome unknown, conflict, stale lease, \
    lost lease, not in that state";
const LATE: &str = "elected, second attempt, leased, completed, not applied, completed as an ex-owner claimed, not applied \
    against a claimed effect, quarantined, outcome unknown, stopped, conflict, stale lease, lost lease, not \
    there";
const REPAIR: &str = "elected, second attempt, replayed, completed, not applied, quarantined, pardoned, closed, outcome \
    unknown, stopped, conflict, stale lease, not in that state";
const SUPERSEDE: &str = "elected, second attempt, replayed, completed, not applied, quarantined, closed, superseded, stopped, not \
    in that state, not a successor";
const RETENTION: &str = "elected, second attempt, duplicate delivery, replayed, replayed with a result, issued, completed, not \
    applied, quarantined, pardoned, closed, gone, without its result, begun anew, a definite fact, no such \
    capability, stopped, conflict, not there";
const POLICY: &str = "elected, second attempt, in progress, taken over, a policy that makes takeover possible, a policy that makes it \
    impossible, unknown though another could take over, over and waiting for a claimant, settled by a sweep, \
    read as unknown before it is, replayed, completed, not applied, asked for, outcome unknown, executing, \
    stale lease, lost lease";

fn wanted(scope: Scope) -> impl Iterator<Item = &'static str> {
    let (all, more) = match scope {
        Scope::Single => (SINGLE, None),
        Scope::Bounded => (BOUNDED, None),
        Scope::Epochs(OnLapse::Unknown) => (EPOCHS, None),
        Scope::Epochs(OnLapse::Takeover) => (EPOCHS, Some("taken over")),
        Scope::Reconcile => (RECONCILE, None),
        Scope::Late => (LATE, None),
        Scope::Repair => (REPAIR, None),
        Scope::Supersede => (SUPERSEDE, None),
        Scope::Retention => (RETENTION, None),
        Scope::Policy => (POLICY, None),
    };
    all.split(", ").chain(more)
}
