//! The record of refusals: what was presented in vain. Authority that is presented again is refused whatever its reason, and the
//! refusal is on record before it is answered. (REQUIREMENTS 43, 80)
//!
//! ```text
//! absent --first refusal of (capability, message, reason)--> kept, times = 1 --again--> times + 1
//! ```
//!
//! | presented | kept with |
//! |---|---|
//! | a capability that is known | the capability |
//! | else a message, or an id of no capability, about an operation that exists | the operation |
//! | else | nothing: there is nothing that it could be kept with, and anybody can make up ids |
//!
//! A claim that presents neither capability nor message is not kept: it presents no authority. A refusal never means that an
//! execution was attempted. Invariants: a row is never removed before its subject; `times` only grows; at most
//! [`REFUSALS_PER_SUBJECT`] rows for a subject.

use alloc::collections::BTreeMap;

use crate::apply::Step;
use crate::capability;
use crate::change::Change;
use crate::command::{Claim, CountedRefusal, Message};
use crate::ids::{
    Birth, CapabilityId, ClientId, CorrelationId, NamespaceName, OperationId, OperationKey, Revision, TenantTag,
    WallTime,
};
use crate::limits::REFUSALS_PER_SUBJECT;
use crate::operation::{OperationRecord, State};
use crate::outcome::{Answer, Refusal};
use crate::state_hash::Canon;
use crate::view::View;

/// What a refusal is kept with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A capability.
    Capability(CapabilityId),
    /// An operation: the hash and the birth of its row.
    Operation([u8; 20], Birth),
}

/// The row of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefusalKey {
    /// The owner's tag.
    pub tenant: TenantTag,
    /// What it is kept with.
    pub subject: Subject,
    /// Of capability, message and reason.
    pub hash: [u8; 16],
}

/// A refusal, and how often it was repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalRecord {
    /// Why.
    pub reason: Refusal,
    /// The namespace that was claimed in.
    pub namespace: NamespaceName,
    /// The capability that was presented.
    pub capability: Option<CapabilityId>,
    /// The message that presented it.
    pub message: Option<Message>,
    /// Whether the message was accepted before, for something else. A message that was never accepted presents authority anew:
    /// somebody resubmits. One that was accepted for the very same is a duplicate delivery, and no refusal.
    pub known_redelivery: bool,
    /// The operation that was claimed, where it exists.
    pub operation: Option<OperationId>,
    /// The state it was in.
    pub state: Option<State>,
    /// Its newest attempt.
    pub attempt: Option<crate::ids::Attempt>,
    /// The client that presented it first.
    pub client: ClientId,
    /// The story that the claim or else the operation belongs to.
    pub correlation_id: Option<CorrelationId>,
    /// When it was first refused, on the replicated wall.
    pub first_at: WallTime,
    /// When it was last refused.
    pub last_at: WallTime,
    /// How often.
    pub times: u32,
    /// At which revision it was first refused.
    pub revision: Revision,
}

/// Keeps the refusal of `command`, if it presented anything that can be kept.
pub(crate) fn keep<V: View>(
    step: &mut Step<'_, V>,
    command: &Claim,
    operation: Option<&OperationRecord>,
    reason: Refusal,
) -> Result<(), V::Error> {
    let Some(subject) = subject(step, command, operation)? else {
        return Ok(());
    };
    let key = RefusalKey { tenant: TenantTag::of(&command.caller.tenant), subject, hash: hash(command, reason) };
    if let Some(mut row) = step.view.refusal(&key)? {
        row.times = row.times.saturating_add(1);
        row.last_at = step.wall();
        step.rows.push(Change::Refusal(key, row));
        return Ok(());
    }
    // Beyond that nothing is written, so that a storm of made-up messages costs the log nothing.
    if count(step, command, &key.subject, operation)? >= REFUSALS_PER_SUBJECT {
        return Ok(());
    }
    let row = RefusalRecord {
        reason,
        namespace: command.namespace.clone(),
        capability: command.capability_id,
        message: command.message.clone(),
        known_redelivery: reason == Refusal::DeliveryMismatch,
        operation: operation.map(|operation| operation.id),
        state: operation.map(OperationRecord::state),
        attempt: operation.map(OperationRecord::attempt),
        client: command.caller.client.clone(),
        correlation_id: (command.correlation_id.as_ref())
            .or(operation.and_then(|operation| operation.correlation_id.as_ref()))
            .cloned(),
        first_at: step.wall(),
        last_at: step.wall(),
        times: 1,
        revision: step.revision,
    };
    step.rows.push(Change::Refusal(key, row));
    Ok(())
}

fn subject<V: View>(
    step: &Step<'_, V>,
    command: &Claim,
    operation: Option<&OperationRecord>,
) -> Result<Option<Subject>, V::Error> {
    if let Some(id) = &command.capability_id
        && capability::own(&step.view, &command.caller, id)?.is_some()
    {
        return Ok(Some(Subject::Capability(*id)));
    }
    let presented = command.capability_id.is_some() || command.message.is_some();
    Ok(operation.filter(|_| presented).map(|operation| Subject::Operation(operation.id.hash, operation.id.birth)))
}

/// Counts one more distinct refusal of the subject, if there is room for it, and tells how many there were.
fn count<V: View>(
    step: &mut Step<'_, V>,
    command: &Claim,
    subject: &Subject,
    operation: Option<&OperationRecord>,
) -> Result<u32, V::Error> {
    match (subject, operation) {
        (Subject::Capability(id), _) => {
            let Some(mut record) = capability::own(&step.view, &command.caller, id)? else {
                return Ok(0);
            };
            let before = record.refusals;
            if before < REFUSALS_PER_SUBJECT {
                record.refusals += 1;
                step.rows.push(Change::Capability(record));
            }
            Ok(before)
        }
        (Subject::Operation(..), Some(operation)) => {
            let mut operation = operation.clone();
            let before = operation.refusals;
            if before < REFUSALS_PER_SUBJECT {
                operation.refusals += 1;
                // A refusal changes nothing about the operation: its revision stays.
                step.write(&operation)?;
            }
            Ok(before)
        }
        (Subject::Operation(..), None) => Ok(0),
    }
}

fn hash(command: &Claim, reason: Refusal) -> [u8; 16] {
    let mut canon = Canon::new(b"hapax/refusal/1");
    canon.optional(command.capability_id.as_ref(), |canon, id| canon.bytes(&id.random));
    canon.optional(command.message.as_ref(), |canon, message| {
        canon.text(message.consumer.as_str());
        canon.text(message.id.as_str());
    });
    canon.refusal(reason);
    let full = canon.finish();
    let mut out = [0; 16];
    out.copy_from_slice(&full[..16]);
    out
}

/// Takes in what nodes counted of refusals that they repeated from local state.
pub(crate) fn count_repeated<V: View>(
    step: &mut Step<'_, V>,
    counted: &[CountedRefusal],
) -> Result<Answer, V::Error> {
    let mut sums: BTreeMap<RefusalKey, u32> = BTreeMap::new();
    for CountedRefusal { key, times } in counted {
        let sum = sums.entry(*key).or_default();
        *sum = sum.saturating_add(*times);
    }
    for (key, times) in sums {
        if let Some(mut row) = step.view.refusal(&key)? {
            row.times = row.times.saturating_add(times);
            row.last_at = row.last_at.max(step.wall());
            step.rows.push(Change::Refusal(key, row));
        }
    }
    Ok(Answer::Counted)
}

impl RefusalKey {
    /// The operation's row, where it is kept with one.
    pub fn operation(&self) -> Option<(OperationKey, Birth)> {
        match self.subject {
            Subject::Operation(hash, birth) => Some((OperationKey { tenant: self.tenant, hash }, birth)),
            Subject::Capability(_) => None,
        }
    }
}
