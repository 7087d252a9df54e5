//! Repair of an operation by people: quarantine, release, close, supersede. Each is audited, and acts only where the
//! operation still is what the caller saw.

use serde::Serialize;
use utoipa::ToSchema;

use crate::limits::Limits;
use crate::operation::State;
use crate::request::{Body, Fields, Invalid, Kind, Known, reads, required};
use crate::text::{OperationId, Proof, Reason};

/// `POST /v1/operations/{operation_id}/quarantine`, `…/release` and `…/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {
    /// The state that the caller saw; another one is a 409.
    pub expected_state: State,
    /// Why.
    pub reason: Reason,
    /// What shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

impl Body for RepairRequest {
    const FIELDS: Known = &[("expected_state", Kind::Plain), ("reason", Kind::Plain), ("proof", Kind::Plain)];

    fn take(fields: &mut Fields, _: &Limits) -> Result<RepairRequest, Invalid> {
        Ok(RepairRequest {
            expected_state: required("expected_state", fields.text("expected_state")?)?,
            reason: required("reason", fields.text("reason")?)?,
            proof: fields.text("proof")?,
        })
    }
}

/// `POST /v1/operations/{operation_id}/supersede`: another operation, under a genuinely new key, takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SupersedeRequest {
    /// The state that the caller saw; another one is a 409.
    pub expected_state: State,
    /// The operation that takes its place: of the same namespace, younger, and in nobody else's place.
    pub by: OperationId,
    /// Why.
    pub reason: Reason,
    /// What shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

impl Body for SupersedeRequest {
    const FIELDS: Known =
        &[("expected_state", Kind::Plain), ("by", Kind::Plain), ("reason", Kind::Plain), ("proof", Kind::Plain)];

    fn take(fields: &mut Fields, _: &Limits) -> Result<SupersedeRequest, Invalid> {
        Ok(SupersedeRequest {
            expected_state: required("expected_state", fields.text("expected_state")?)?,
            by: required("by", fields.text("by")?)?,
            reason: required("reason", fields.text("reason")?)?,
            proof: fields.text("proof")?,
        })
    }
}

reads!(RepairRequest, SupersedeRequest);
