//! Repair: what operators do to operations that cannot go on by themselves. Nothing is deleted in order to retry.
//!
//! ```text
//! any --quarantine--> quarantined --release--> as before
//! executing --forced fence--> unknown, new epoch
//! requested | not_applied --close--> failed
//! any --supersede(by)--> linked to the operation that takes its place
//! ```
//!
//! | # | forced fence: condition | answer |
//! |---|---|---|
//! | 0 | absent or not theirs | `NotFound`; else settle |
//! | 1 | the same call was the last thing kept | accepted |
//! | 2 | the epoch is not the current one | `LeaseStaleEpoch` |
//! | 3 | not executing | `OperationState` |
//! | 4 | else | unknown under a new epoch; kept as an override |
//!
//! | # | the others: condition | answer |
//! |---|---|---|
//! | 0 | absent or not theirs | `NotFound`; else settle |
//! | 1 | it is so already | accepted |
//! | 2 | it is not in the state that the caller expects | `OperationState` |
//! | 3 | close: neither requested nor not_applied | `OperationState` |
//! | 4 | supersede: superseded by another already; or the other is absent, not theirs, itself, older, in another namespace, superseded, quarantined, or takes another's place | `NotASuccessor` |
//! | 5 | else | done; kept as an override |
//!
//! Every override keeps who, why and what shows it, and each is linked to the one before. (DESIGN §2; REQUIREMENTS 98, 131–134)
//! Invariants: an operation is closed only when no execution may still commit; a link, once set, stays.

use crate::apply::{Step, not_about_an_operation, refused, standing};
use crate::command::{ForceFence, Repair, RepairKind};
use crate::evidence::{Source, Word, keep};
use crate::ids::OperationId;
use crate::namespace::NamespaceRecord;
use crate::operation::{Closed, OperationRecord, State, become_unknown};
use crate::outcome::{Answer, Refusal};
use crate::view::View;

pub(crate) fn fence<V: View>(step: &mut Step<'_, V>, command: &ForceFence) -> Result<Answer, V::Error> {
    let Some(mut found) = step.find(&command.caller, &command.execution_id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    let (wall, why) = (step.wall(), (command.reason.as_str(), command.proof.as_ref()));
    let word = Word::overriding(Source::Fence, &command.caller, why, wall, &found.operation);
    let word = word.under(command.lease_epoch);
    if found.past.is_none() && word.is_duplicate(&found.operation) {
        // The same call again, after its answer was lost.
        return Ok(found.accepted(step.now()));
    }
    if found.past.is_some() || command.lease_epoch != found.newest().lease_epoch {
        return Ok(found.refused(Refusal::LeaseStaleEpoch));
    }
    let state = found.operation.state();
    if found.newest().state != State::Executing {
        return Ok(found.refused(Refusal::OperationState { state }));
    }
    keep(step, &mut found.operation, word);
    found.newest_mut().lease_epoch = step.head.grants.lease_epoch();
    become_unknown(found.newest_mut(), wall);
    step.put(&mut found.operation)?;
    Ok(found.accepted(step.now()))
}

pub(crate) fn repair<V: View>(step: &mut Step<'_, V>, command: &Repair) -> Result<Answer, V::Error> {
    let Some((policy, mut operation)) = step.find_operation(&command.caller, &command.operation_id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    if !is_done(&operation, command.kind) {
        let state = operation.state();
        let closable = matches!(state, State::Requested | State::NotApplied);
        if state != command.expected || (command.kind == RepairKind::Close && !closable) {
            return Ok(refused(Refusal::OperationState { state }, Some(&operation), &policy));
        }
        if let RepairKind::Supersede(by) = command.kind
            && !link(step, command, &operation, &by)?
        {
            return Ok(refused(Refusal::NotASuccessor, Some(&operation), &policy));
        }
        change(step, command, &mut operation);
        step.put(&mut operation)?;
    }
    Ok(accepted(step, &operation, &policy))
}

fn accepted<V: View>(step: &Step<'_, V>, operation: &OperationRecord, policy: &NamespaceRecord) -> Answer {
    Answer::Accepted(standing(operation, policy, step.now()))
}

fn is_done(operation: &OperationRecord, kind: RepairKind) -> bool {
    match kind {
        RepairKind::Quarantine => operation.quarantined,
        RepairKind::Release => !operation.quarantined,
        RepairKind::Supersede(by) => operation.superseded_by == Some(by),
        RepairKind::Close => operation.closed.is_some(),
    }
}

fn change<V: View>(step: &mut Step<'_, V>, command: &Repair, operation: &mut OperationRecord) {
    let (wall, why) = (step.wall(), (command.reason.as_str(), command.proof.as_ref()));
    let source = match command.kind {
        RepairKind::Quarantine => Source::Quarantine,
        RepairKind::Release => Source::Release,
        RepairKind::Supersede(_) => Source::Supersede,
        RepairKind::Close => Source::Close,
    };
    let word = Word::overriding(source, &command.caller, why, wall, operation);
    let word = match command.kind {
        RepairKind::Supersede(by) => word.naming(by),
        _ => word,
    };
    let said = operation.said;
    keep(step, operation, word);
    match command.kind {
        RepairKind::Quarantine => operation.quarantined = true,
        RepairKind::Release => {
            operation.quarantined = false;
            operation.forgiven = said;
        }
        RepairKind::Supersede(by) => operation.superseded_by = Some(by),
        RepairKind::Close => {
            let (client, reason) = (command.caller.client.clone(), command.reason.clone());
            operation.closed = Some(Closed { client, reason, at: wall });
            operation.terminal_at = Some(wall);
        }
    }
}

/// Links the operation that takes the place of `operation` back to it; `false` where it cannot.
fn link<V: View>(
    step: &mut Step<'_, V>,
    command: &Repair,
    operation: &OperationRecord,
    by: &OperationId,
) -> Result<bool, V::Error> {
    if operation.superseded_by.is_some() || *by == operation.id {
        return Ok(false);
    }
    let Some((_, mut other)) = step.find_operation(&command.caller, by)? else {
        return Ok(false);
    };
    let free = other.supersedes.is_none() && other.superseded_by.is_none() && !other.quarantined;
    // Born later, so that links cannot go round.
    if !free || other.namespace != operation.namespace || other.id.birth <= operation.id.birth {
        return Ok(false);
    }
    other.supersedes = Some(operation.id);
    step.put(&mut other)?;
    Ok(true)
}
