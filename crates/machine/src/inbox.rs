//! The inbox: which deliveries a consumer has accepted. A message names a delivery, never an operation.
//!
//! ```text
//! absent --claim that is elected--> accepted      (in the same apply as the election, or not at all)
//! ```
//!
//! | the row of (tenant, consumer, message) | answer |
//! |---|---|
//! | absent | go on |
//! | for the same operation and digest | a duplicate delivery; nothing changes |
//! | for anything else | `DeliveryMismatch` |
//!
//! Ordering is not its concern. Invariant: a row is written once, and lives as long as its operation. (REQUIREMENTS 10, 34, 49, 75)

use crate::change::Change;
use crate::command::{Claim, Message};
use crate::ids::{CapabilityId, ClaimId, ClientId, Digest, InboxKey, OperationId, TenantId, WallTime};
use crate::operation::OperationRecord;
use crate::view::View;

/// An accepted delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRecord {
    /// Whose it is.
    pub tenant: TenantId,
    /// The delivery.
    pub message: Message,
    /// The operation it led to.
    pub operation: OperationId,
    /// The request that the operation is bound to.
    pub digest: Digest,
    /// The capability that it presented.
    pub capability: Option<CapabilityId>,
    /// The claim that accepted it.
    pub claim_id: ClaimId,
    /// The client of that claim.
    pub client: ClientId,
    /// When, on the replicated wall.
    pub at: WallTime,
}

/// What the inbox says of a delivery.
pub(crate) enum Delivery {
    /// It was not accepted before.
    First,
    /// It was accepted for the very same.
    Duplicate,
    /// It was accepted for something else.
    Mismatch,
}

pub(crate) fn deliver<V: View>(
    view: &V,
    command: &Claim,
    operation: Option<&OperationRecord>,
) -> Result<Delivery, V::Error> {
    let Some(message) = &command.message else {
        return Ok(Delivery::First);
    };
    let Some(accepted) = view.inbox(&key(command, message))? else {
        return Ok(Delivery::First);
    };
    let same = accepted.digest == command.digest
        && operation.is_some_and(|operation| operation.id == accepted.operation)
        && accepted.tenant == command.caller.tenant
        && accepted.message == *message;
    Ok(if same { Delivery::Duplicate } else { Delivery::Mismatch })
}

/// The row of a delivery that led to an election.
pub(crate) fn accepted(command: &Claim, operation: &OperationRecord, at: WallTime) -> Option<Change> {
    let message = command.message.as_ref()?;
    let record = InboxRecord {
        tenant: command.caller.tenant.clone(),
        message: message.clone(),
        operation: operation.id,
        digest: command.digest,
        capability: command.capability_id,
        claim_id: command.claim_id,
        client: command.caller.client.clone(),
        at,
    };
    Some(Change::Inbox(key(command, message), record))
}

fn key(command: &Claim, message: &Message) -> InboxKey {
    InboxKey::new(&command.caller.tenant, &message.consumer, &message.id)
}
