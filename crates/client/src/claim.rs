//! A claim that is made once and may be sent often, and what an election came to.

use hapax_api::claim::{ClaimRequest, DuplicateDelivery, InProgress, Message, Replayed};
use hapax_api::epoch::EpochBinding;
use hapax_api::json::{Fault, Value};
use hapax_api::text::{
    BusinessEpoch, CapabilityId, ClaimId, Consumer, Key, Label, MessageId, Namespace, Resource, Version,
};
use hapax_api::time::Instant;
use serde::Serialize;
use thiserror::Error;

use crate::lease::LeaseGuard;

/// Draws a claim id: 122 random bits.
#[must_use]
pub fn new_claim_id() -> ClaimId {
    ClaimId(uuid::Uuid::new_v4().into_bytes())
}

/// One claim call. Its claim id is drawn when it is made: sending the same value again is the same call, and gets
/// the same answer. Make it above the retry loop, and make another one for another call.
#[derive(Debug, Clone)]
pub struct Claim {
    request: ClaimRequest,
    claim_id: ClaimId,
}

/// The request cannot be digested.
#[derive(Debug, Error)]
pub enum NotARequest {
    /// It cannot be written as JSON.
    #[error("the request cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Its JSON has no single meaning.
    #[error("the request has no canonical form, at {:?}: {}", .0.pointer, .0.detail)]
    Canonical(Fault),
}

impl Claim {
    /// A claim of `key` for `request`, which must hold everything that changes the effect, and nothing that
    /// changes from one retry to the next. Decimals travel as strings.
    ///
    /// # Errors
    /// [`NotARequest`]: a float, a number beyond ±(2^53 − 1), or a name twice.
    pub fn new(namespace: Namespace, key: Key, request: &impl Serialize) -> Result<Claim, NotARequest> {
        let json = serde_json::to_vec(request)?;
        let request = Value::canonical(&json).map_err(NotARequest::Canonical)?;
        Ok(Claim::from(ClaimRequest { request: Some(request), ..ClaimRequest::new(namespace, key) }))
    }

    /// Names the period in which the operation may happen once.
    #[must_use]
    pub fn business_epoch(mut self, epoch: BusinessEpoch) -> Claim {
        self.request.business_epoch = Some(epoch);
        self
    }

    /// Says what version of the operation's meaning this is.
    #[must_use]
    pub fn operation_version(mut self, version: Version) -> Claim {
        self.request.operation_version = Some(version);
        self
    }

    /// Says who will execute.
    #[must_use]
    pub fn owner(mut self, owner: Label) -> Claim {
        self.request.owner = Some(owner);
        self
    }

    /// Asks for a lease of this length; it should exceed the provider's timeout comfortably.
    #[must_use]
    pub fn lease_ms(mut self, lease_ms: u64) -> Claim {
        self.request.lease_ms = Some(lease_ms);
        self
    }

    /// Waits so long for another executor's outcome.
    #[must_use]
    pub fn wait_ms(mut self, wait_ms: u64) -> Claim {
        self.request.wait_ms = Some(wait_ms);
        self
    }

    /// Names the attempt that was decided on.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Claim {
        self.request.attempt = Some(attempt);
        self
    }

    /// Presents a capability. What was decided and issued is what is executed: nothing else authorises it.
    #[must_use]
    pub fn capability(mut self, id: CapabilityId) -> Claim {
        self.request.capability_id = Some(id);
        self
    }

    /// Names the delivery that led to the claim, so that the same one again is told apart.
    #[must_use]
    pub fn message(mut self, consumer: Consumer, id: MessageId) -> Claim {
        self.request.message = Some(Message { consumer, id });
        self
    }

    /// Names the value of a register of authority that the claim was decided under.
    #[must_use]
    pub fn epoch(mut self, epoch: EpochBinding) -> Claim {
        self.request.epoch = Some(epoch);
        self
    }

    /// Names the business entity that the operation is about.
    #[must_use]
    pub fn resource(mut self, resource: Resource) -> Claim {
        self.request.resource = Some(resource);
        self
    }

    /// Names the story that the operation belongs to.
    #[must_use]
    pub fn correlation_id(mut self, id: Label) -> Claim {
        self.request.correlation_id = Some(id);
        self
    }

    /// Says when the key was made: once, with the key, and never changed for a retry.
    #[must_use]
    pub fn key_created_at(mut self, at: Instant) -> Claim {
        self.request.key_created_at = Some(at);
        self
    }

    /// The call's identity: keep it to give late evidence, or to ask again after a crash.
    #[must_use]
    pub fn claim_id(&self) -> ClaimId {
        self.claim_id
    }

    /// What is sent.
    #[must_use]
    pub fn request(&self) -> &ClaimRequest {
        &self.request
    }
}

impl From<ClaimRequest> for Claim {
    /// Keeps the request's claim id, or draws one.
    fn from(mut request: ClaimRequest) -> Claim {
        let claim_id = *request.claim_id.get_or_insert_with(new_claim_id);
        Claim { request, claim_id }
    }
}

/// What an election came to.
#[derive(Debug)]
pub enum Election {
    /// This process executes, and holds the lease while it does.
    Held(LeaseGuard),
    /// Another executor is at work. Not a success.
    InProgress(InProgress),
    /// Finished before.
    Replayed(Replayed),
    /// This message was accepted before. It says nothing about the outcome, and nothing is to be done for it.
    DuplicateDelivery(DuplicateDelivery),
}
