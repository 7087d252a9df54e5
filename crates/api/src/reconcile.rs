//! Finding out what unknown executions came to: the lease on the oldest of them, and letting one wait for people.
//! Resolving one is in [`crate::execution`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{self, Limits};
use crate::request::{Body, Fields, Invalid, Kind, Known, reads, required};
use crate::text::{EffectKey, ExecutionId, Label, Namespace, OperationId, Proof, Reason, Revision};
use crate::time::Instant;

/// `POST /v1/reconciliations/lease`: the oldest unknown executions. The same owner asking again gets the same items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconcileRequest {
    /// Only in this namespace; in all that the credential is good for where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The name that the reconciler gives itself.
    pub owner: Label,
    /// How many, at most.
    #[schema(minimum = 1, maximum = 100)]
    pub limit: u32,
    /// Length of the lease in milliseconds.
    #[schema(minimum = 1000, maximum = 900_000)]
    pub lease_ms: u64,
}

impl Body for ReconcileRequest {
    const FIELDS: Known =
        &[("namespace", Kind::Plain), ("owner", Kind::Plain), ("limit", Kind::Plain), ("lease_ms", Kind::Plain)];

    fn take(fields: &mut Fields, limits: &Limits) -> Result<ReconcileRequest, Invalid> {
        Ok(ReconcileRequest {
            namespace: fields.text("namespace")?,
            owner: required("owner", fields.text("owner")?)?,
            limit: required("limit", fields.number("limit", 1..=limits::RECONCILE_ITEMS_MAX)?)?,
            lease_ms: required("lease_ms", fields.integer("lease_ms", limits::LEASE_MS_MIN..=limits.lease_ms)?)?,
        })
    }
}

/// An unknown execution that the caller is to find out about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReconcileItem {
    /// The execution, to be resolved.
    pub execution_id: ExecutionId,
    /// The operation.
    pub operation_id: OperationId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The execution's attempt.
    pub attempt: u32,
    /// What was sent to the provider as its idempotency key, if anything was sent.
    pub effect_key: EffectKey,
    /// The story it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Label>,
    /// Since when it is unknown.
    pub unknown_since: Instant,
    /// What a resolve names.
    pub lease_epoch: u64,
    /// What is left of the lease, in milliseconds, never overstated.
    pub lease_expires_in_ms: u64,
}

/// 200: the executions that the caller holds now, oldest first; none where nothing is to be done, or not yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reconciling {
    /// The executions.
    pub items: Vec<ReconcileItem>,
    /// When this was true.
    pub revision: Revision,
}

/// `POST /v1/executions/{execution_id}/escalate`: an unknown execution waits for people, or no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EscalateRequest {
    /// The current lease epoch of the unknown execution, as GET shows it.
    #[schema(minimum = 1)]
    pub lease_epoch: u64,
    /// Whether it is to wait; true where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalated: Option<bool>,
    /// Why.
    pub reason: Reason,
    /// What shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

impl EscalateRequest {
    /// Whether it is to wait.
    #[must_use]
    pub fn escalates(&self) -> bool {
        self.escalated.unwrap_or(true)
    }
}

impl Body for EscalateRequest {
    const FIELDS: Known =
        &[("lease_epoch", Kind::Plain), ("escalated", Kind::Plain), ("reason", Kind::Plain), ("proof", Kind::Plain)];

    fn take(fields: &mut Fields, _: &Limits) -> Result<EscalateRequest, Invalid> {
        Ok(EscalateRequest {
            lease_epoch: fields.epoch("lease_epoch")?,
            escalated: fields.flag("escalated")?,
            reason: required("reason", fields.text("reason")?)?,
            proof: fields.text("proof")?,
        })
    }
}

/// `POST /v1/executions/{execution_id}/fence`: an operator ends an executor's lease; the execution becomes unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FenceRequest {
    /// The lease epoch under which it is held, as GET shows it.
    #[schema(minimum = 1)]
    pub lease_epoch: u64,
    /// Why.
    pub reason: Reason,
    /// What shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

impl Body for FenceRequest {
    const FIELDS: Known = &[("lease_epoch", Kind::Plain), ("reason", Kind::Plain), ("proof", Kind::Plain)];

    fn take(fields: &mut Fields, _: &Limits) -> Result<FenceRequest, Invalid> {
        Ok(FenceRequest {
            lease_epoch: fields.epoch("lease_epoch")?,
            reason: required("reason", fields.text("reason")?)?,
            proof: fields.text("proof")?,
        })
    }
}

reads!(ReconcileRequest, EscalateRequest, FenceRequest);
