//! What the holder of an execution sends: renew and outcome; and what others send about it: evidence and resolve.
//! All four are idempotent by their own identity, so that after a lost answer the same call is sent again.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::codes::Code;
use crate::json::RawJson;
use crate::limits::{self, Limits};
use crate::operation::{Settled, State};
use crate::request::{Body, Fields, Invalid, Kind, Known, reads, required};
use crate::text::{ClaimId, Digest, Label, Malformed, OperationId, Proof, Reason, ResultRef, Revision, Version};

/// `POST /v1/executions/{execution_id}/renew`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The lease epoch that the claim was granted.
    #[schema(minimum = 1)]
    pub lease_epoch: u64,
    /// Length of the lease from now, in milliseconds; a renewal never shortens a lease.
    #[schema(minimum = 1000, maximum = 900_000)]
    pub lease_ms: u64,
}

impl Body for RenewRequest {
    const FIELDS: Known = &[("lease_epoch", Kind::Plain), ("lease_ms", Kind::Plain)];

    fn take(fields: &mut Fields, limits: &Limits) -> Result<RenewRequest, Invalid> {
        Ok(RenewRequest {
            lease_epoch: fields.epoch("lease_epoch")?,
            lease_ms: required("lease_ms", fields.integer("lease_ms", limits::LEASE_MS_MIN..=limits.lease_ms)?)?,
        })
    }
}

/// What an owner says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reported {
    /// The effect happened.
    Completed,
    /// The effect was rejected for good.
    Failed,
    /// It is certain that nothing happened; another attempt may follow.
    NotApplied,
    /// The owner does not know; nothing runs until somebody does.
    Unknown,
}

impl FromStr for Reported {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Reported, Malformed> {
        match text {
            "completed" => Ok(Reported::Completed),
            "failed" => Ok(Reported::Failed),
            "not_applied" => Ok(Reported::NotApplied),
            "unknown" => Ok(Reported::Unknown),
            _ => Err(Malformed("must be \"completed\", \"failed\", \"not_applied\" or \"unknown\"")),
        }
    }
}

/// What there is to keep about an outcome; every field may be absent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct ResultData {
    /// The HTTP status that duplicates of the caller's own request should get.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 599)]
    pub status_code: Option<u16>,
    /// Version of the result's schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<Version>,
    /// The result, at most 16 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RawJson>,
    /// Where a larger result is kept; with `result_digest`, and without `result`.
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
}

/// The fields of [`ResultData`] after a request's own.
macro_rules! with_result_fields {
    ($($own:literal),*) => {
        &[
            $(($own, Kind::Plain),)*
            ("status_code", Kind::Plain),
            ("schema_version", Kind::Plain),
            ("result", Kind::Raw),
            ("result_ref", Kind::Plain),
            ("result_digest", Kind::Plain),
            ("external_id", Kind::Plain),
            ("reason", Kind::Plain),
        ]
    };
}

impl ResultData {
    fn take(fields: &mut Fields, limits: &Limits) -> Result<ResultData, Invalid> {
        let data = ResultData {
            status_code: fields.integer("status_code", 100..=599)?.and_then(|status| u16::try_from(status).ok()),
            schema_version: fields.text("schema_version")?,
            result: fields.raw("result"),
            result_ref: fields.text("result_ref")?,
            result_digest: fields.text("result_digest")?,
            external_id: fields.text("external_id")?,
            reason: fields.text("reason")?,
        };
        if data.result.as_ref().is_some_and(|result| result.as_str().len() > limits.result_bytes) {
            let detail = format!(
                "has more than {} bytes; keep it elsewhere and send result_ref and result_digest",
                limits.result_bytes
            );
            return Err(Invalid { code: Code::RequestTooLarge, ..Invalid::field("result", detail) });
        }
        match (&data.result, &data.result_ref, &data.result_digest) {
            (Some(_), Some(_), _) => Err(Invalid::field("result_ref", "and result exclude each other")),
            (_, Some(_), None) => Err(Invalid::field("result_digest", "is required with result_ref")),
            (_, None, Some(_)) => Err(Invalid::field("result_ref", "is required with result_digest")),
            _ => Ok(data),
        }
    }
}

/// `POST /v1/executions/{execution_id}/outcome`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutcomeRequest {
    /// The lease epoch that the claim was granted.
    #[schema(minimum = 1)]
    pub lease_epoch: u64,
    /// What happened.
    pub outcome: Reported,
    /// What to keep about it. An unknown outcome has no result and no status.
    #[serde(flatten)]
    pub data: ResultData,
}

impl Body for OutcomeRequest {
    const FIELDS: Known = with_result_fields!("lease_epoch", "outcome");

    fn take(fields: &mut Fields, limits: &Limits) -> Result<OutcomeRequest, Invalid> {
        let request = OutcomeRequest {
            lease_epoch: fields.epoch("lease_epoch")?,
            outcome: required("outcome", fields.text("outcome")?)?,
            data: ResultData::take(fields, limits)?,
        };
        if request.outcome == Reported::Unknown {
            // It would never be replayed; accepting it would lose it silently.
            let present = [
                ("result", request.data.result.is_some()),
                ("result_ref", request.data.result_ref.is_some()),
                ("status_code", request.data.status_code.is_some()),
            ];
            if let Some((name, _)) = present.iter().find(|(_, present)| *present) {
                return Err(Invalid::field(name, "has no place in an unknown outcome"));
            }
        }
        Ok(request)
    }
}

/// `POST /v1/executions/{execution_id}/evidence`: an ex-owner learnt late what happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct EvidenceRequest {
    /// The claim that had granted the execution to this caller.
    pub claim_id: ClaimId,
    /// What happened.
    pub outcome: Settled,
    /// What shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// What to keep about it.
    #[serde(flatten)]
    pub data: ResultData,
}

impl Body for EvidenceRequest {
    const FIELDS: Known = with_result_fields!("claim_id", "outcome", "proof");

    fn take(fields: &mut Fields, limits: &Limits) -> Result<EvidenceRequest, Invalid> {
        Ok(EvidenceRequest {
            claim_id: required("claim_id", fields.text("claim_id")?)?,
            outcome: required("outcome", fields.text("outcome")?)?,
            proof: fields.text("proof")?,
            data: ResultData::take(fields, limits)?,
        })
    }
}

/// `POST /v1/executions/{execution_id}/resolve`: a reconciler or operator found out what happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResolveRequest {
    /// The current lease epoch of the unknown execution, as GET shows it.
    #[schema(minimum = 1)]
    pub lease_epoch: u64,
    /// What happened.
    pub outcome: Settled,
    /// What shows it.
    pub proof: Proof,
    /// What to keep about it.
    #[serde(flatten)]
    pub data: ResultData,
}

impl Body for ResolveRequest {
    const FIELDS: Known = with_result_fields!("lease_epoch", "outcome", "proof");

    fn take(fields: &mut Fields, limits: &Limits) -> Result<ResolveRequest, Invalid> {
        Ok(ResolveRequest {
            lease_epoch: fields.epoch("lease_epoch")?,
            outcome: required("outcome", fields.text("outcome")?)?,
            proof: required("proof", fields.text("proof")?)?,
            data: ResultData::take(fields, limits)?,
        })
    }
}

reads!(RenewRequest, OutcomeRequest, EvidenceRequest, ResolveRequest);

/// 200: the lease goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewed {
    /// The lease epoch, unchanged.
    pub lease_epoch: u64,
    /// What is left of the lease, in milliseconds, never overstated.
    pub lease_expires_in_ms: u64,
    /// When to renew, in milliseconds from now.
    pub renew_by_ms: u64,
    /// When this was true.
    pub revision: Revision,
}

/// 200: an outcome, evidence, a resolution or a repair was accepted, now or by the same call before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// The operation.
    pub operation_id: OperationId,
    /// The operation's state, which evidence alone may leave as it was.
    pub state: State,
    /// When this was true.
    pub revision: Revision,
}
