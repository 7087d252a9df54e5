//! The claim: the atomic step that elects one executor, and consumes authority in the same apply.
//!
//! ```text
//! absent, requested -------------------> executing, attempt 1
//! not_applied -------------------------> executing, attempt + 1
//! executing, lapsed, on_lapse=takeover -> executing, same execution and attempt, new epoch
//! ```
//!
//! In this order, and the first that holds is the answer. (DESIGN §2; REQUIREMENTS 34–45; seed 000)
//!
//! | # | condition | answer |
//! |---|---|---|
//! | 0 | always | settle |
//! | 1 | the claim id was granted here: for another request | `ClaimIdReused` |
//! |   | … quarantined | `OperationQuarantined` |
//! |   | … terminal | replay |
//! |   | … its epoch is current, executing, in time, neither renewed nor reported | the same grant |
//! |   | … else | `LeaseLost` |
//! | 2 | the message was accepted before: for the same / for anything else | duplicate delivery / `DeliveryMismatch` |
//! | 3 | what is presented is not good, see [`crate::capability`] | that refusal |
//! | 4 | the digest, or a fixed creation time of the key, differs | `KeyDigestMismatch` |
//! | 5 | quarantined | `OperationQuarantined` |
//! |   | superseded, and not terminal | `OperationState` |
//! |   | executing | in progress, or a takeover; to a capability `OperationExecuting` |
//! |   | unknown | `OutcomeUnknown` |
//! |   | completed, failed | replay; to a capability `OperationCompleted`, `OperationFailed` |
//! |   | absent, and the key is older than what is remembered, see [`crate::retention`] | `KeyRetentionElapsed` |
//! | 6 | the attempt named, or the capability's, is not the one due | `AttemptMismatch` |
//! | 7 | absent, and as many operations are open as may be | `QuotaExceeded` |
//!
//! Only then, in the same apply: the inbox row is inserted, a use is consumed, the execution opened, the lease begun. A refusal
//! at 2–7 leaves the capability unspent and the inbox row absent; it goes on record, see [`crate::refusal`].
//! A takeover is for the next inline claimant of an inline execution: authority does not pass from one holder to the next. An
//! execution under a capability that lapses is unknown in every namespace. So is one that lapsed before the namespace allowed
//! takeovers: it was read as unknown then.
//!
//! A lease granted at `now` ends at `now + lease_ms + 1`; why one more is told where leases are renewed.
//!
//! Invariants: a refusal writes nothing but the settling and its record; every granted claim id stays known as long as its
//! operation; authority is consumed before any effect, and a consumed use ends in exactly one election.

use alloc::boxed::Box;

use crate::apply::{Step, not_about_an_operation, refused, standing};
use crate::capability::{self, CapabilityRecord};
use crate::change::Change;
use crate::command::Claim;
use crate::epoch;
use crate::ids::{Attempt, Birth, ContentHash, ExecutionId, OperationKey, effect_key};
use crate::inbox::{self, Delivery};
use crate::lease::deadline;
use crate::namespace::{Attempts, NamespaceRecord};
use crate::operation::{Execution, ExecutionRecord, GrantRecord, OperationRecord, State, may_be_taken_over};
use crate::outcome::{Answer, Grant, Lease, Receipt, Refusal};
use crate::refusal;
use crate::register::insert;
use crate::retention;
use crate::state_hash::Canon;
use crate::view::View;

const FIRST: Attempt = Attempt(1);

pub(crate) fn claim<V: View>(step: &mut Step<'_, V>, command: &Claim) -> Result<Answer, V::Error> {
    let caller = &command.caller;
    let policy = match step.view.namespace(&caller.tenant, &command.namespace)? {
        Some(policy) if caller.may_use(&policy.name) => policy,
        _ => return Ok(not_about_an_operation(Refusal::NotFound)),
    };
    let key = OperationKey::new(&caller.tenant, &command.internal_key);
    let mut found = step.load(&key)?;
    let content = request_hash(command);
    if let Some(operation) = &mut found {
        step.settle(operation, &policy)?;
        if let Some(granted) = granted(step, operation, command)? {
            return same_claim(step, operation, &policy, &granted, content);
        }
    }
    let decision = decide(step, command, found.as_ref(), &policy)?;
    match decision {
        Decision::Elect(presented) => {
            let operation = match found {
                Some(operation) => operation,
                None => insert(step, &command.as_register(), &policy),
            };
            elect(step, command, operation, presented, content)
        }
        Decision::TakeOver => match found {
            Some(operation) => take_over(step, command, operation, content),
            None => Ok(not_about_an_operation(Refusal::NotFound)),
        },
        Decision::Answer(answer) => Ok(answer),
        Decision::Refuse(reason) => {
            refusal::keep(step, command, found.as_ref(), reason)?;
            Ok(refused(reason, found.as_ref(), &policy))
        }
    }
}

/// What steps 2 to 7 come to.
enum Decision {
    Elect(Option<CapabilityRecord>),
    TakeOver,
    Answer(Answer),
    Refuse(Refusal),
}

fn decide<V: View>(
    step: &Step<'_, V>,
    command: &Claim,
    found: Option<&OperationRecord>,
    policy: &NamespaceRecord,
) -> Result<Decision, V::Error> {
    match (inbox::deliver(&step.view, command, found)?, found) {
        (Delivery::First, _) => {}
        (Delivery::Duplicate, Some(operation)) => {
            let standing = standing(operation, policy, step.now());
            return Ok(Decision::Answer(Answer::DuplicateDelivery(standing)));
        }
        (Delivery::Duplicate | Delivery::Mismatch, _) => return Ok(Decision::Refuse(Refusal::DeliveryMismatch)),
    }
    let presented = match capability::present(step, command, found, policy)? {
        Ok(presented) => presented,
        Err(reason) => return Ok(Decision::Refuse(reason)),
    };
    match found {
        None => admit(step, command, policy, presented),
        Some(operation) => gate(step, command, operation, policy, presented),
    }
}

/// Steps 5 to 7 for an operation that the claim would insert.
fn admit<V: View>(
    step: &Step<'_, V>,
    command: &Claim,
    policy: &NamespaceRecord,
    presented: Option<CapabilityRecord>,
) -> Result<Decision, V::Error> {
    if let Some(reason) = retention::admit(step, policy, command.key_created_at)? {
        return Ok(Decision::Refuse(reason));
    }
    if command.attempt.is_some_and(|attempt| attempt != FIRST) {
        return Ok(Decision::Refuse(Refusal::AttemptMismatch { due: FIRST }));
    }
    Ok(match over_quota(step, policy)? {
        true => Decision::Refuse(Refusal::QuotaExceeded),
        false => Decision::Elect(presented),
    })
}

/// Whether the namespace has as many open operations as it may have.
pub(crate) fn over_quota<V: View>(step: &Step<'_, V>, policy: &NamespaceRecord) -> Result<bool, V::Error> {
    let Some(most) = policy.quota.open_operations else {
        return Ok(false);
    };
    Ok(step.status(&policy.tenant, &policy.name)?.open >= most)
}

/// Steps 4 to 6 for an operation that is there.
fn gate<V: View>(
    step: &Step<'_, V>,
    command: &Claim,
    operation: &OperationRecord,
    policy: &NamespaceRecord,
    presented: Option<CapabilityRecord>,
) -> Result<Decision, V::Error> {
    let other_request = operation.digest != command.digest || operation.internal_key != command.internal_key;
    if other_request || retention::is_other_key(policy, operation, command.key_created_at) {
        return Ok(Decision::Refuse(Refusal::KeyDigestMismatch));
    }
    if operation.quarantined {
        return Ok(Decision::Refuse(Refusal::OperationQuarantined));
    }
    if operation.superseded_by.is_some() && !operation.state().is_terminal() {
        // Another operation serves the same effect now: an attempt at this one would be a second one.
        return Ok(Decision::Refuse(Refusal::OperationState { state: operation.state() }));
    }
    let inline = presented.is_none();
    Ok(match operation.state() {
        State::Executing if inline && takeover_is_due(step, operation, policy) => {
            let attempt = operation.attempt();
            match command.attempt {
                Some(named) if named != attempt => Decision::Refuse(Refusal::AttemptMismatch { due: attempt }),
                _ => Decision::TakeOver,
            }
        }
        State::Executing if inline => Decision::Answer(Answer::InProgress(standing(operation, policy, step.now()))),
        State::Completed | State::Failed if inline => Decision::Answer(replay(step, operation, policy)?),
        State::Executing => Decision::Refuse(Refusal::OperationExecuting),
        State::Completed => Decision::Refuse(Refusal::OperationCompleted),
        State::Failed => Decision::Refuse(Refusal::OperationFailed),
        State::Unknown => Decision::Refuse(Refusal::OutcomeUnknown),
        State::Requested | State::NotApplied => next_attempt(command, operation, policy, presented),
    })
}

/// Step 6: the attempt comes from the decision. A capability's decision names it; an inline claim is the decision itself, and
/// names it where the namespace wants that. (REQUIREMENTS 62)
fn next_attempt(
    command: &Claim,
    operation: &OperationRecord,
    policy: &NamespaceRecord,
    presented: Option<CapabilityRecord>,
) -> Decision {
    let due = operation.due();
    let decided = capability::attempt(presented.as_ref());
    let unnamed = match policy.attempts {
        Attempts::Automatic => due,
        Attempts::Explicit => FIRST,
    };
    let named = command.attempt.or(decided).unwrap_or(unnamed);
    if named != due || decided.is_some_and(|decided| decided != due) {
        return Decision::Refuse(Refusal::AttemptMismatch { due });
    }
    Decision::Elect(presented)
}

/// The grant that this claim id was given on `operation`, if it was.
fn granted<V: View>(
    step: &Step<'_, V>,
    operation: &OperationRecord,
    command: &Claim,
) -> Result<Option<GrantRecord>, V::Error> {
    let current = operation.execution.as_ref();
    if let Some(current) = current.filter(|current| current.claim_id == command.claim_id) {
        return Ok(Some(grant_of(current)));
    }
    if operation.grants <= 1 {
        return Ok(None);
    }
    step.view.grant(&operation.key(), operation.id.birth, &command.claim_id)
}

fn same_claim<V: View>(
    step: &Step<'_, V>,
    operation: &OperationRecord,
    policy: &NamespaceRecord,
    granted: &GrantRecord,
    content: ContentHash,
) -> Result<Answer, V::Error> {
    if granted.request_hash != content {
        return Ok(refused(Refusal::ClaimIdReused, Some(operation), policy));
    }
    if operation.quarantined {
        return Ok(refused(Refusal::OperationQuarantined, Some(operation), policy));
    }
    if operation.state().is_terminal() {
        return replay(step, operation, policy);
    }
    // A report leaves executing, so the state says whether there was one.
    let untouched = operation.execution.as_ref().filter(|execution| {
        granted.lease_epoch == execution.lease_epoch
            && execution.state == State::Executing
            && !execution.lapsed(step.now())
            && !execution.renewed
    });
    Ok(match untouched {
        Some(execution) => grant(step, operation, execution),
        None => refused(Refusal::LeaseLost, Some(operation), policy),
    })
}

fn takeover_is_due<V: View>(step: &Step<'_, V>, operation: &OperationRecord, policy: &NamespaceRecord) -> bool {
    let lapsed = operation.execution.as_ref().filter(|execution| execution.lapsed(step.now()));
    lapsed.is_some_and(|execution| may_be_taken_over(execution, policy))
}

fn take_over<V: View>(
    step: &mut Step<'_, V>,
    command: &Claim,
    mut operation: OperationRecord,
    content: ContentHash,
) -> Result<Answer, V::Error> {
    let opened = open(step, command, operation.attempt(), None, content);
    let taken = match operation.execution.take() {
        Some(held) => {
            supersede_grant(step, &mut operation, &held);
            let (id, effect_attempt, claimed) = (held.id, held.effect_attempt, held.claimed);
            Execution { id, sole_holder: false, effect_attempt, claimed, ..opened }
        }
        None => opened,
    };
    deliver(step, command, &operation);
    let answer = grant(step, &operation, &taken);
    operation.execution = Some(taken);
    step.put(&mut operation)?;
    Ok(answer)
}

/// Opens the attempt that is due, consumes what was presented for it, and answers with its grant.
fn elect<V: View>(
    step: &mut Step<'_, V>,
    command: &Claim,
    mut operation: OperationRecord,
    presented: Option<CapabilityRecord>,
    content: ContentHash,
) -> Result<Answer, V::Error> {
    let opened = open(step, command, operation.due(), presented.as_ref(), content);
    let (key, birth) = (operation.key(), operation.id.birth);
    match operation.execution.take() {
        Some(past) => {
            supersede_grant(step, &mut operation, &past);
            put_execution(step, past.id, key, birth, Some(past));
        }
        None => operation.grants = 1,
    }
    put_execution(step, opened.id, key, birth, None);
    deliver(step, command, &operation);
    if let Some(capability) = presented {
        capability::consume(step, capability, command, key, birth);
    }
    let answer = grant(step, &operation, &opened);
    operation.execution = Some(opened);
    step.put(&mut operation)?;
    Ok(answer)
}

fn deliver<V: View>(step: &mut Step<'_, V>, command: &Claim, operation: &OperationRecord) {
    let row = inbox::accepted(command, operation, step.wall());
    step.rows.extend(row);
}

/// A new execution of `attempt` under a newly drawn epoch; the command's own fields make its grant.
fn open<V: View>(
    step: &mut Step<'_, V>,
    command: &Claim,
    attempt: Attempt,
    presented: Option<&CapabilityRecord>,
    content: ContentHash,
) -> Execution {
    let of_capability = presented.and_then(|record| record.authority.as_ref());
    Execution {
        id: command.execution_id,
        attempt,
        state: State::Executing,
        owner: command.owner.clone(),
        client: command.caller.client.clone(),
        claim_id: command.claim_id,
        request_hash: content,
        opened_at: step.wall(),
        capability: presented.map(|record| record.id),
        authority: epoch::bindings(command.epoch.as_ref(), of_capability),
        effect_attempt: capability::effect_attempt(presented, attempt),
        lease_epoch: step.head.grants.lease_epoch(),
        deadline: deadline(step.now(), command.lease_ms),
        renewed: false,
        sole_holder: true,
        report: None,
        unknown_since: None,
        claimed: None,
        reconciler: None,
        escalated_at: None,
        outcome: None,
    }
}

fn put_execution<V: View>(
    step: &mut Step<'_, V>,
    id: ExecutionId,
    operation: OperationKey,
    birth: Birth,
    past: Option<Execution>,
) {
    let past = past.map(Box::new);
    step.rows.push(Change::Execution(operation.tenant, id, ExecutionRecord { operation, birth, past }));
}

/// Keeps the current claim in a row of its own before another takes its place.
fn supersede_grant<V: View>(step: &mut Step<'_, V>, operation: &mut OperationRecord, execution: &Execution) {
    let row = Change::Grant(operation.key(), operation.id.birth, execution.claim_id, grant_of(execution));
    step.rows.push(row);
    operation.grants = operation.grants.saturating_add(1);
}

fn grant_of(execution: &Execution) -> GrantRecord {
    GrantRecord {
        execution: execution.id,
        client: execution.client.clone(),
        request_hash: execution.request_hash,
        lease_epoch: execution.lease_epoch,
    }
}

fn grant<V: View>(step: &Step<'_, V>, operation: &OperationRecord, execution: &Execution) -> Answer {
    Answer::Claimed(Grant {
        operation_id: operation.id,
        execution_id: execution.id,
        attempt: execution.attempt,
        claim_id: execution.claim_id,
        lease: Lease { lease_epoch: execution.lease_epoch, remaining_ms: execution.remaining_ms(step.now()) },
        effect_key: effect_key(&operation.id, execution.effect_attempt),
    })
}

fn replay<V: View>(
    step: &Step<'_, V>,
    operation: &OperationRecord,
    policy: &NamespaceRecord,
) -> Result<Answer, V::Error> {
    let Some(outcome) = operation.outcome() else {
        // A terminal operation has an outcome by construction; answering "unknown" is the safe side of a broken record.
        return Ok(refused(Refusal::OutcomeUnknown, Some(operation), policy));
    };
    let result = match outcome.has_result {
        true => step.view.body(&operation.key(), operation.id.birth)?,
        false => None,
    };
    Ok(Answer::Replayed(Receipt { standing: standing(operation, policy, step.now()), outcome, result }))
}

/// Everything that makes a claim this claim and not another one under the same id. What the proposer draws is left
/// out: it differs on every retry.
fn request_hash(command: &Claim) -> ContentHash {
    let mut canon = Canon::new(b"hapax/claim/1");
    canon.text(command.caller.client.as_str());
    canon.text(command.namespace.as_str());
    canon.bytes(&command.internal_key.0);
    canon.bytes(&command.digest.0);
    canon.text(&command.owner);
    canon.number(command.lease_ms);
    canon.optional_number(command.attempt.map(|attempt| u64::from(attempt.0)));
    canon.optional_text(command.correlation_id.as_ref().map(|id| id.as_str()));
    canon.optional(command.capability_id.as_ref(), Canon::capability_id);
    canon.optional(command.message.as_ref(), |canon, message| {
        canon.text(message.consumer.as_str());
        canon.text(message.id.as_str());
    });
    canon.optional(command.epoch.as_ref(), Canon::binding);
    canon.optional_text(command.resource.as_ref().map(|resource| resource.as_str()));
    canon.optional_number(command.key_created_at.map(|at| at.0));
    ContentHash(canon.finish())
}
