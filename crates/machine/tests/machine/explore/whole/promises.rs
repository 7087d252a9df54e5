//! What must hold after every step: one function per promise, each able to fail (see the broken rules).
//! They look at states, answers and what readers are shown from outside, and share no judgement with the rules.

mod authority;
mod outcomes;
mod records;

use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::command::{Claim, Command};
use hapax_machine::ids::{CapabilityId, ClaimId};
use hapax_machine::namespace::{Authority, OnLapse};
use hapax_machine::operation::{Execution, OperationRecord};
use hapax_machine::outcome::{Answer, Grant, Refusal};

use super::world::{Step, World};

/// A promise: its name and whether it holds over a step.
pub(super) type Promise = (&'static str, fn(&Step<'_>) -> bool);

/// All promises.
pub(super) const PROMISES: [Promise; 40] = [
    ("distinct uses never exceed what was issued", authority::uses_are_bounded),
    ("a use that was consumed is never given back", authority::uses_stay_consumed),
    ("an election consumes one use, and nothing else does", authority::elections_consume),
    ("dead authority elects nobody", authority::the_dead_elect_nobody),
    ("authority for one attempt elects no other", authority::authority_is_bound),
    ("no execution is opened without the authority asked for", authority::authority_is_asked_for),
    ("authority is issued for the attempt that is due", authority::authority_is_due),
    ("consumed outranks everything else about a capability", authority::consumed_outranks),
    ("a refusal spends nothing and accepts no delivery", authority::refusals_spend_nothing),
    ("a delivery is accepted once", authority::deliveries_are_accepted_once),
    ("a duplicate delivery changes nothing", authority::duplicates_are_idle),
    ("a claim bound to another value than the register's is refused", authority::claims_are_current),
    ("a bump fences what is open under a lower value", authority::bumps_fence),
    ("every epoch and birth is new and higher", outcomes::draws_grow),
    ("unknown ends by evidence or resolution only", outcomes::unknown_stays),
    ("what was read as unknown never executes again", outcomes::unknown_is_not_taken_back),
    ("unknown is reached by a word, a lapse, a bump or a fence", outcomes::unknown_has_a_cause),
    ("an execution is leased to one reconciler at a time", outcomes::one_reconciler),
    ("what waits for people is leased to nobody", outcomes::the_escalated_wait),
    ("no more are leased than the pace allows", outcomes::leases_are_paced),
    ("a resolution names the current epoch", outcomes::resolutions_are_current),
    ("a terminal outcome never changes", outcomes::terminal_stays),
    ("a new attempt follows one that was not applied", outcomes::attempts_follow_not_applied),
    ("one holder cannot speak for another", outcomes::holders_speak_for_themselves),
    ("an effect has one name", outcomes::effects_are_named_once),
    ("only what nobody executes is closed", outcomes::closing_is_safe),
    ("a quarantined or superseded operation elects nobody", outcomes::stopped_operations_elect_nobody),
    ("a link to a successor stays", outcomes::links_stay),
    ("a contradiction stops claims", outcomes::contradictions_quarantine),
    ("a claimed effect that does not stand stops claims", outcomes::claimed_effects_count),
    ("what an operator does is on record", outcomes::overrides_are_recorded),
    ("what is gone is never shown again", records::the_gone_stay_gone),
    ("only what ended long enough ago goes", records::nothing_goes_early),
    ("floors only rise", records::floors_rise),
    ("a reader sees what settling would leave", records::reads_are_settled),
    ("a definite fact is what apply says", records::facts_are_definite),
    ("a refusal of authority is on record before it is told", records::refusals_are_recorded),
    ("a repeated command changes nothing", records::repetition_is_idle),
    ("lists lose an operation where it stood", records::lists_follow),
    ("a namespace counts what it holds", records::counts_follow),
];

fn claimed<'s>(step: &'s Step<'_>) -> Option<(&'s Claim, &'s Grant)> {
    match (step.command, &step.answer) {
        (Some(Command::Claim(claim)), Some(Answer::Claimed(grant))) => Some((claim, grant)),
        _ => None,
    }
}

/// The election that a step was: a claim that was granted now, not again.
pub(super) fn elected<'s>(step: &'s Step<'_>) -> Option<(&'s Claim, &'s Grant)> {
    claimed(step).filter(|_| !step.changes.rows.is_empty())
}

pub(super) fn refusal(step: &Step<'_>) -> Option<Refusal> {
    match &step.answer {
        Some(Answer::Refused(refused)) => Some(refused.reason),
        _ => None,
    }
}

/// A capability that is there.
fn capability(world: &World, id: Option<CapabilityId>) -> Option<&CapabilityRecord> {
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

/// Whether an execution is bound to a value that the register has left.
fn is_stale(execution: &Execution, register: u64) -> bool {
    execution.authority.iter().any(|binding| binding.value.0 < register)
}

/// Whether an execution that is over waits for a claimant, as an observer sees it: the policy says so, the execution consumed
/// nothing, and nobody was ever shown that it is unknown.
fn waits(step: &Step<'_>, execution: &Execution) -> bool {
    let policy = step.after.policy();
    let passes_on = policy.on_lapse == OnLapse::Takeover && policy.authority == Authority::Inline;
    passes_on && execution.capability.is_none() && !step.before.ghost.unknown.contains(&execution.id)
}

/// Whether a claim's id was granted on the operation that it is about.
fn was_granted(step: &Step<'_>, claim: &Claim) -> bool {
    let world = step.before;
    let Some(record) = world.record(u64::from(claim.internal_key.0[0])) else { return false };
    let newest = record.execution.as_ref().is_some_and(|newest| newest.claim_id == claim.claim_id);
    let past = |(_, birth, id): &(_, _, ClaimId)| *birth == record.id.birth && *id == claim.claim_id;
    newest || world.memory.grants.keys().any(past)
}
