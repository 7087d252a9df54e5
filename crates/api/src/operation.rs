//! An operation as a reader sees it.
//! Reads show the settled state: a lease that ended is over, whether or not anybody wrote it down.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::RawJson;
use crate::query::{Query, Writer};
use crate::request::Invalid;
use crate::text::{
    CapabilityId, Digest, EffectKey, ExecutionId, Label, Malformed, Namespace, OperationId, Reason, Resource,
    ResultRef, Revision, Version,
};
use crate::time::Instant;

/// The state of an operation, or of one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is known, and nobody was elected yet.
    Requested,
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

impl State {
    /// The state as it is sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Requested => "requested",
            State::Executing => "executing",
            State::Unknown => "unknown",
            State::NotApplied => "not_applied",
            State::Completed => "completed",
            State::Failed => "failed",
        }
    }
}

impl FromStr for State {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<State, Malformed> {
        const ALL: [State; 6] =
            [State::Requested, State::Executing, State::Unknown, State::NotApplied, State::Completed, State::Failed];
        ALL.into_iter().find(|state| state.as_str() == text).ok_or(Malformed(
            "must be \"requested\", \"executing\", \"unknown\", \"not_applied\", \"completed\" or \"failed\"",
        ))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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

impl FromStr for Consistency {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Consistency, Malformed> {
        if text == "local" { Ok(Consistency::Local) } else { Err(Malformed("must be \"local\"")) }
    }
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
    /// Whether there was an inline result that retention removed since.
    #[serde(default, skip_serializing_if = "is_false")]
    pub result_compacted: bool,
}

pub(crate) fn is_false(value: &bool) -> bool {
    !value
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
    /// What was sent, or is to be sent, to the provider as its idempotency key.
    pub effect_key: EffectKey,
    /// The capability that its claim consumed a use of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// Since when it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_since: Option<Instant>,
}

/// Who finds out what an unknown execution came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReconcilerView {
    /// The name that the reconciler gave itself.
    pub owner: Label,
    /// What is left of its lease, in milliseconds, never overstated.
    pub lease_expires_in_ms: u64,
}

/// `GET /v1/operations/{operation_id}`, and one item of a list or a look-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationView {
    /// Its id.
    pub operation_id: OperationId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its state.
    pub state: State,
    /// Number of the latest attempt; 0 while nobody was elected.
    pub attempt: u32,
    /// The latest attempt; absent while nobody was elected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionView>,
    /// What it came to, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Receipt>,
    /// When its key was first named.
    pub created_at: Instant,
    /// When it last changed.
    pub updated_at: Instant,
    /// Not forgotten before this instant; absent where it is not terminal, or never forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain_until: Option<Instant>,
    /// The business entity it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// The story it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Label>,
    /// Whether it waits for people; it gates exactly as unknown does.
    pub escalated: bool,
    /// Who is finding out what it came to, where somebody is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconciler: Option<ReconcilerView>,
    /// Whether claims are stopped because proofs contradict each other, or because an operator said so.
    pub quarantined: bool,
    /// The operation that takes its place under another key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<OperationId>,
    /// The operation whose place it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<OperationId>,
    /// When this was true; the `ETag` is the revision of its last change.
    pub revision: Revision,
    /// Present where this node answered from its own applied state, as `?consistency=local` allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}

/// The query of `GET /v1/operations/{operation_id}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationQuery {
    /// Whether this node's own applied state will do, which may be behind.
    pub consistency: Option<Consistency>,
}

impl OperationQuery {
    /// Reads a query string.
    ///
    /// # Errors
    /// [`Invalid`] names the first parameter that is wrong.
    pub fn read(query: &str) -> Result<OperationQuery, Invalid> {
        let mut query = Query::read(query, &["consistency"])?;
        Ok(OperationQuery { consistency: query.parsed("consistency")? })
    }

    /// The query string, without its question mark.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut query = Writer::default();
        query.optional("consistency", self.consistency.map(|Consistency::Local| "local"));
        query.finish()
    }
}
