//! Capabilities: authority that is issued by a decision, presented with a claim, and consumed by the election.
//! Issuing is identified by its decision: the same decision again gets the same capability.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::epoch::EpochBinding;
use crate::limits::{self, Limits};
use crate::operation::Consistency;
use crate::request::{Body, Fields, Invalid, Kind, Known, reads, required};
use crate::text::{CapabilityId, DecisionId, ExecutionId, Label, Namespace, OperationId, Reason, Resource, Revision};
use crate::time::Instant;

/// `POST /v1/operations/{operation_id}/capabilities`: authority for one attempt at one operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IssueRequest {
    /// The decision that authorises the attempt; with the operation and the attempt it names the capability.
    pub decision_id: DecisionId,
    /// The attempt: one more than those that were concluded not_applied when it was decided.
    #[schema(minimum = 1)]
    pub attempt: u32,
    /// Until when it may be presented.
    pub expires_at: Instant,
    /// The value of a register of authority that it dies with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<EpochBinding>,
    /// The earlier attempt whose effect key is to be sent again; its own where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub effect_key_attempt: Option<u32>,
}

impl Body for IssueRequest {
    const FIELDS: Known = &[
        ("decision_id", Kind::Plain),
        ("attempt", Kind::Plain),
        ("expires_at", Kind::Plain),
        ("epoch", Kind::Plain),
        ("effect_key_attempt", Kind::Plain),
    ];

    fn take(fields: &mut Fields, _: &Limits) -> Result<IssueRequest, Invalid> {
        let request = IssueRequest {
            decision_id: required("decision_id", fields.text("decision_id")?)?,
            attempt: required("attempt", fields.attempt("attempt")?)?,
            expires_at: required("expires_at", fields.text("expires_at")?)?,
            epoch: EpochBinding::within(fields, "epoch")?,
            effect_key_attempt: fields.attempt("effect_key_attempt")?,
        };
        if request.effect_key_attempt.is_some_and(|earlier| earlier > request.attempt) {
            return Err(Invalid::field("effect_key_attempt", "is later than attempt"));
        }
        Ok(request)
    }
}

/// `POST /v1/capabilities`: authority for several operations of one resource, each use electing another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IssueBoundedRequest {
    /// The namespace; it has one partition.
    pub namespace: Namespace,
    /// The business entity that the operations are about.
    pub resource: Resource,
    /// The decision that authorises the uses; with the namespace it names the capability.
    pub decision_id: DecisionId,
    /// Until when it may be presented.
    pub expires_at: Instant,
    /// How many operations it elects, at most.
    #[schema(minimum = 2, maximum = 1_000_000)]
    pub max_uses: u32,
    /// The value of a register of authority that it dies with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<EpochBinding>,
}

impl Body for IssueBoundedRequest {
    const FIELDS: Known = &[
        ("namespace", Kind::Plain),
        ("resource", Kind::Plain),
        ("decision_id", Kind::Plain),
        ("expires_at", Kind::Plain),
        ("max_uses", Kind::Plain),
        ("epoch", Kind::Plain),
    ];

    fn take(fields: &mut Fields, _: &Limits) -> Result<IssueBoundedRequest, Invalid> {
        Ok(IssueBoundedRequest {
            namespace: required("namespace", fields.text("namespace")?)?,
            resource: required("resource", fields.text("resource")?)?,
            decision_id: required("decision_id", fields.text("decision_id")?)?,
            expires_at: required("expires_at", fields.text("expires_at")?)?,
            max_uses: required("max_uses", fields.number("max_uses", 2..=limits::USES_MAX)?)?,
            epoch: EpochBinding::within(fields, "epoch")?,
        })
    }
}

/// `POST /v1/capabilities/{capability_id}/revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl Body for RevokeRequest {
    const FIELDS: Known = &[("reason", Kind::Plain)];

    fn take(fields: &mut Fields, _: &Limits) -> Result<RevokeRequest, Invalid> {
        Ok(RevokeRequest { reason: fields.text("reason")? })
    }
}

reads!(IssueRequest, IssueBoundedRequest, RevokeRequest);

/// Where a capability stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapabilityState {
    /// It may be presented.
    Issued,
    /// No use is left.
    Consumed,
    /// It was taken back.
    Revoked,
    /// It was not used in time.
    Expired,
}

/// The use of a capability: the election that it was spent on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Consumed {
    /// The operation that it elected an executor for.
    pub operation_id: OperationId,
    /// The execution that it opened.
    pub execution_id: ExecutionId,
    /// When.
    pub at: Instant,
}

/// How a capability was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    /// The client that did.
    pub client: Label,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// When.
    pub at: Instant,
}

/// A capability: 201 where this call issued it, 200 where it stood before, was read, or was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapabilityView {
    /// Its id, to be presented with the claim.
    pub capability_id: CapabilityId,
    /// The operation that it is bound to; absent where it is for a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// The namespace that it is for.
    pub namespace: Namespace,
    /// The resource that it is for; absent where it is for one operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The attempt that it authorises; absent where it is for a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The decision that it stands for.
    pub decision_id: DecisionId,
    /// The client that issued it.
    pub client: Label,
    /// Where it stands.
    pub state: CapabilityState,
    /// Uses that are left, whatever else is true of it.
    pub uses_left: u32,
    /// Uses that there were.
    pub max_uses: u32,
    /// When it was issued.
    pub issued_at: Instant,
    /// Until when it may be presented.
    pub expires_at: Instant,
    /// The value of a register of authority that it dies with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<EpochBinding>,
    /// The attempt whose effect key is sent, where that is not its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_key_attempt: Option<u32>,
    /// The election that it was spent on; absent where it is for a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumed: Option<Consumed>,
    /// How it was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revoked>,
    /// When this was true.
    pub revision: Revision,
    /// Present where this node answered from its own copy of a fact that cannot change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}
