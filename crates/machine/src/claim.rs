//! The claim: the atomic step that elects one executor.
//!
//! ```text
//! absent ------------------------------> executing, attempt 1
//! not_applied -------------------------> executing, attempt + 1
//! executing, lapsed, on_lapse=takeover -> executing, same execution and attempt, new epoch
//! ```
//!
//! In this order, and the first that holds is the answer. (REQUIREMENTS 34–45; seed 000)
//!
//! | # | condition | answer |
//! |---|---|---|
//! | 0 | always | settle |
//! | 1 | the claim id was granted here: for another request | `ClaimIdReused` |
//! |   | … quarantined | `OperationQuarantined` |
//! |   | … terminal | replay |
//! |   | … its epoch is current, executing, in time, neither renewed nor reported | the same grant |
//! |   | … else | `LeaseLost` |
//! | 4 | the digest differs | `KeyDigestMismatch` |
//! | 5 | quarantined | `OperationQuarantined` |
//! |   | executing | in progress, or a takeover |
//! |   | unknown | `OutcomeUnknown` |
//! |   | completed, failed | replay |
//! | 6 | the attempt named is not the one due | `AttemptMismatch` |
//!
//! A lease granted at `now` ends at `now + lease_ms + 1`; why one more is told where leases are renewed.
//!
//! (2 and 3, message and capability, are another chapter of the protocol.)
//!
//! Invariants: a refusal writes nothing but the settling; every granted claim id stays known as long as its operation.

use crate::apply::{Step, not_about_an_operation, refused, standing};
use crate::change::Change;
use crate::command::Claim;
use crate::ids::{Attempt, Birth, ContentHash, ExecutionId, OperationId, OperationKey, effect_key};
use crate::lease::deadline;
use crate::namespace::{Attempts, NamespaceRecord, OnLapse};
use crate::operation::{Execution, ExecutionRecord, GrantRecord, OperationRecord, State};
use crate::outcome::{Answer, Grant, Lease, Receipt, Refusal};
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
    let Some(mut operation) = step.view.operation(&key)? else {
        return Ok(insert(step, command, &policy));
    };
    step.settle(&mut operation, policy.on_lapse);
    let content = request_hash(command);
    if let Some(granted) = granted(step, &operation, command)? {
        return same_claim(step, &operation, &policy, &granted, content);
    }
    if operation.digest != command.digest || operation.internal_key != command.internal_key {
        return Ok(refused(Refusal::KeyDigestMismatch, Some(&operation), &policy));
    }
    if operation.quarantined {
        return Ok(refused(Refusal::OperationQuarantined, Some(&operation), &policy));
    }
    match operation.state() {
        State::Executing if takeover_is_due(step, &operation, &policy) => {
            take_over(step, command, &mut operation, &policy, content)
        }
        State::Executing => Ok(Answer::InProgress(standing(&operation, &policy, step.now()))),
        State::Unknown => Ok(refused(Refusal::OutcomeUnknown, Some(&operation), &policy)),
        State::Completed | State::Failed => replay(step, &operation, &policy),
        State::NotApplied => Ok(next_attempt(step, command, &mut operation, &policy, content)),
    }
}

/// The grant that this claim id was given on `operation`, if it was.
fn granted<V: View>(
    step: &Step<'_, V>,
    operation: &OperationRecord,
    command: &Claim,
) -> Result<Option<GrantRecord>, V::Error> {
    let current = &operation.execution;
    if current.claim_id == command.claim_id {
        return Ok(Some(grant_of(current)));
    }
    if operation.grants == 1 {
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
    let execution = &operation.execution;
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
    let untouched = granted.lease_epoch == execution.lease_epoch
        && execution.state == State::Executing
        && !execution.lapsed(step.now())
        && !execution.renewed;
    Ok(if untouched { grant(step, operation) } else { refused(Refusal::LeaseLost, Some(operation), policy) })
}

fn insert<V: View>(step: &mut Step<'_, V>, command: &Claim, policy: &NamespaceRecord) -> Answer {
    if command.attempt.is_some_and(|attempt| attempt != FIRST) {
        return refused(Refusal::AttemptMismatch { due: FIRST }, None, policy);
    }
    let birth = step.head.grants.birth();
    let key = OperationKey::new(&command.caller.tenant, &command.internal_key);
    let mut operation = OperationRecord {
        id: OperationId { slot: command.slot, hash: key.hash, birth },
        internal_key: command.internal_key,
        tenant: command.caller.tenant.clone(),
        namespace: command.namespace.clone(),
        digest: command.digest,
        correlation_id: command.correlation_id.clone(),
        created_at: step.wall(),
        updated_at: step.wall(),
        modified: step.revision,
        terminal_at: None,
        quarantined: false,
        grants: 1,
        evidence: 0,
        said: None,
        execution: open(step, command, FIRST, request_hash(command)),
    };
    elect(step, &mut operation)
}

fn next_attempt<V: View>(
    step: &mut Step<'_, V>,
    command: &Claim,
    operation: &mut OperationRecord,
    policy: &NamespaceRecord,
    content: ContentHash,
) -> Answer {
    let due = Attempt(operation.execution.attempt.0 + 1);
    let named = match policy.attempts {
        Attempts::Automatic => command.attempt.unwrap_or(due),
        Attempts::Explicit => command.attempt.unwrap_or(FIRST),
    };
    if named != due {
        return refused(Refusal::AttemptMismatch { due }, Some(operation), policy);
    }
    supersede_grant(step, operation);
    let opened = open(step, command, due, content);
    let past = core::mem::replace(&mut operation.execution, opened);
    let (key, birth) = (operation.key(), operation.id.birth);
    put_execution(step, past.id, key, birth, Some(past));
    elect(step, operation)
}

fn takeover_is_due<V: View>(step: &Step<'_, V>, operation: &OperationRecord, policy: &NamespaceRecord) -> bool {
    policy.on_lapse == OnLapse::Takeover && operation.execution.lapsed(step.now())
}

fn take_over<V: View>(
    step: &mut Step<'_, V>,
    command: &Claim,
    operation: &mut OperationRecord,
    policy: &NamespaceRecord,
    content: ContentHash,
) -> Result<Answer, V::Error> {
    let attempt = operation.execution.attempt;
    if command.attempt.is_some_and(|named| named != attempt) {
        return Ok(refused(Refusal::AttemptMismatch { due: attempt }, Some(operation), policy));
    }
    supersede_grant(step, operation);
    let id = operation.execution.id;
    operation.execution = Execution { id, sole_holder: false, ..open(step, command, attempt, content) };
    step.put(operation);
    Ok(grant(step, operation))
}

/// A new execution of `attempt` under a newly drawn epoch; the command's own fields make its grant.
fn open<V: View>(step: &mut Step<'_, V>, command: &Claim, attempt: Attempt, content: ContentHash) -> Execution {
    Execution {
        id: command.execution_id,
        attempt,
        state: State::Executing,
        owner: command.owner.clone(),
        client: command.caller.client.clone(),
        claim_id: command.claim_id,
        request_hash: content,
        lease_epoch: step.head.grants.lease_epoch(),
        deadline: deadline(step.now(), command.lease_ms),
        renewed: false,
        sole_holder: true,
        report: None,
        unknown_since: None,
        outcome: None,
    }
}

/// Writes a newly opened execution and answers with its grant.
fn elect<V: View>(step: &mut Step<'_, V>, operation: &mut OperationRecord) -> Answer {
    put_execution(step, operation.execution.id, operation.key(), operation.id.birth, None);
    step.put(operation);
    grant(step, operation)
}

fn put_execution<V: View>(
    step: &mut Step<'_, V>,
    id: ExecutionId,
    operation: OperationKey,
    birth: Birth,
    past: Option<Execution>,
) {
    step.rows.push(Change::Execution(operation.tenant, id, ExecutionRecord { operation, birth, past }));
}

/// Keeps the current claim in a row of its own before another takes its place.
fn supersede_grant<V: View>(step: &mut Step<'_, V>, operation: &mut OperationRecord) {
    let execution = &operation.execution;
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

fn grant<V: View>(step: &Step<'_, V>, operation: &OperationRecord) -> Answer {
    let execution = &operation.execution;
    Answer::Claimed(Grant {
        operation_id: operation.id,
        execution_id: execution.id,
        attempt: execution.attempt,
        claim_id: execution.claim_id,
        lease: Lease { lease_epoch: execution.lease_epoch, remaining_ms: execution.remaining_ms(step.now()) },
        effect_key: effect_key(&operation.id, execution.attempt),
    })
}

fn replay<V: View>(
    step: &Step<'_, V>,
    operation: &OperationRecord,
    policy: &NamespaceRecord,
) -> Result<Answer, V::Error> {
    let Some(outcome) = operation.execution.outcome.clone() else {
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
    ContentHash(canon.finish())
}
