//! An operation as a reader sees it, and the look-up by key.
//! Reads show the settled state: a lease that ended is over, whether or not anybody wrote it down.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::RawJson;
use crate::limits::Limits;
use crate::request::{Fields, Invalid, Kind, required};
use crate::text::{
    BusinessEpoch, Digest, ExecutionId, Key, Label, Malformed, Namespace, OperationId, Reason, ResultRef, Revision,
    Version,
};
use crate::time::Instant;

/// The state of an operation, or of one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// An executor is at work, or lost its lease where the namespace lets the next one take over.
    Executing,
    /// Whether the effect happened is not known; nothing runs until it is.
    Unknown,
    /// The last attempt certainly did nothing; another may follow.
    NotApplied,
    /// The effect happened. Final.
    Completed,
    /// The effect was rejected for good. Final.
    Failed,
}

impl State {
    /// Whether it can never change.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, State::Completed | State::Failed)
    }
}

/// An outcome that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// The effect happened.
    Completed,
    /// The effect was rejected for good.
    Failed,
    /// It is certain that nothing happened.
    NotApplied,
}

impl FromStr for Settled {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Settled, Malformed> {
        match text {
            "completed" => Ok(Settled::Completed),
            "failed" => Ok(Settled::Failed),
            "not_applied" => Ok(Settled::NotApplied),
            _ => Err(Malformed("must be \"completed\", \"failed\" or \"not_applied\"")),
        }
    }
}

/// Where an answer that is not linearizable came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// This node's own applied state.
    Local,
}

/// A stored outcome: what happened then, which is not a statement about now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// What happened.
    pub outcome: Settled,
    /// The HTTP status that duplicates of the caller's own request should get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// Version of the result's schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<Version>,
    /// The result, digit for digit as it was reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
    /// Where a larger result is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<ResultRef>,
    /// SHA-256 of that result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<Digest>,
    /// The provider's own id of the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<Label>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// When the outcome became known.
    pub completed_at: Instant,
}

/// The latest execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutionView {
    /// Its id.
    pub execution_id: ExecutionId,
    /// Its state.
    pub state: State,
    /// Who executes, or did.
    pub owner: Label,
    /// The current lease epoch; absent where the lease ended and the next epoch is not drawn yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_epoch: Option<u64>,
    /// What is left of a running lease, in milliseconds, never overstated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_in_ms: Option<u64>,
}

/// `GET /v1/operations/{operation_id}`, and the look-up's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationView {
    /// Its id.
    pub operation_id: OperationId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its state.
    pub state: State,
    /// Number of the latest attempt.
    pub attempt: u32,
    /// The latest attempt.
    pub execution: ExecutionView,
    /// What it came to, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Receipt>,
    /// When its key was first claimed.
    pub created_at: Instant,
    /// When it last changed.
    pub updated_at: Instant,
    /// Whether claims are stopped because proofs contradict each other.
    pub quarantined: bool,
    /// When this was true; the `ETag` is the revision of its last change.
    pub revision: Revision,
}

/// `POST /v1/operations/lookup`: the key is in the body, so that no access log holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRequest {
    /// The namespace.
    pub namespace: Namespace,
    /// The key.
    pub key: Key,
    /// The business epoch that it was claimed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_epoch: Option<BusinessEpoch>,
}

impl LookupRequest {
    const FIELDS: &[(&str, Kind)] =
        &[("namespace", Kind::Plain), ("key", Kind::Plain), ("business_epoch", Kind::Plain)];

    /// Reads a body.
    ///
    /// # Errors
    /// [`Invalid`] names the first field that is wrong.
    pub fn read(body: &[u8], limits: &Limits) -> Result<LookupRequest, Invalid> {
        let mut fields = Fields::read(body, Self::FIELDS, limits)?;
        Ok(LookupRequest {
            namespace: required("namespace", fields.text("namespace")?)?,
            key: required("key", fields.text("key")?)?,
            business_epoch: fields.text("business_epoch")?,
        })
    }
}
