//! Where wire types meet the core's: requests become commands, outcomes become answers.
//! No rule lives here; a refusal of the core maps to exactly one code.

use hapax_api::claim::{Claim, ClaimAnswer, Claimed, InProgress, Replayed, Subject};
use hapax_api::digest::Envelope;
use hapax_api::execution::{
    Accepted, EvidenceRequest, OutcomeRequest, RenewRequest, Renewed, Reported, ResolveRequest, ResultData,
};
use hapax_api::json::RawJson;
use hapax_api::operation::{ExecutionView, OperationView, Receipt, Settled, State};
use hapax_api::text::{self, Malformed};
use hapax_api::time::Instant;
use hapax_api::{Code, ConflictStyle, Problem};
use hapax_machine::command::{self, Caller, Command};
use hapax_machine::ids::{self, internal_key, slot};
use hapax_machine::namespace::{self, NamespaceRecord, Scope};
use hapax_machine::operation::{self as core, Definite, OutcomeRecord};
use hapax_machine::outcome::{self as answer, Refused};
use hapax_machine::read::Reading;
use std::str::FromStr;

use crate::problem::Refusal;

/// The part of a lease after which its owner should renew it: leaves two more tries before it ends.
const RENEW_AFTER_DIVISOR: u64 = 3;

/// A text of the core as its wire type. The core only holds what the wire let in, or what it made itself.
fn wire<T: FromStr<Err = Malformed>>(text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|Malformed(detail)| {
        tracing::error!(detail, "a stored text does not fit its wire type");
        Refusal::new(Code::StoreOutcomeUnknown)
    })
}

fn label(text: Option<&String>) -> Result<Option<text::Label>, Refusal> {
    text.map(|text| wire(text)).transpose()
}

/// The row that a caller's key names in a namespace.
pub(crate) fn key_of(
    caller: &Caller,
    policy: &NamespaceRecord,
    key: &text::Key,
    business_epoch: Option<&text::BusinessEpoch>,
) -> ids::InternalKey {
    let scope = match policy.scope {
        Scope::Namespace => ids::ScopeOf::Namespace,
        Scope::Client => ids::ScopeOf::Client(&caller.client),
    };
    internal_key(&caller.tenant, &policy.name, scope, key.as_str(), business_epoch.map(text::BusinessEpoch::as_str))
}

/// The command of a claim, with what the proposer draws.
pub(crate) fn claim(
    caller: Caller,
    policy: &NamespaceRecord,
    request: Claim,
    claim_id: ids::ClaimId,
    execution: [u8; 16],
) -> command::Claim {
    let internal_key = key_of(&caller, policy, &request.key, request.business_epoch.as_ref());
    let slot = slot(&caller.tenant, &policy.name, 0);
    let owner = request.owner.map_or_else(|| caller.client.as_str().to_owned(), |owner| owner.as_str().to_owned());
    command::Claim {
        digest: digest(&caller, policy, &request.namespace, &request.subject),
        namespace: policy.name.clone(),
        internal_key,
        slot,
        claim_id,
        owner,
        lease_ms: request.lease_ms,
        attempt: request.attempt.map(ids::Attempt),
        correlation_id: request.correlation_id.map(|id| ids::CorrelationId::new(id.as_str())),
        execution_id: ids::ExecutionId { slot, random: execution },
        caller,
    }
}

fn digest(caller: &Caller, policy: &NamespaceRecord, namespace: &text::Namespace, subject: &Subject) -> ids::Digest {
    match subject {
        Subject::Digest(digest) => ids::Digest(digest.0),
        Subject::Request { request, operation_version } => {
            let transport_fields: Vec<&str> = policy.transport_fields.iter().map(String::as_str).collect();
            let envelope = Envelope {
                tenant: caller.tenant.as_str(),
                namespace,
                operation_version: operation_version.as_ref(),
                request,
                transport_fields: &transport_fields,
            };
            ids::Digest(envelope.digest().0)
        }
    }
}

/// The command of a renewal.
pub(crate) fn renew(caller: Caller, execution_id: ids::ExecutionId, request: &RenewRequest) -> Command {
    Command::Renew(command::Renew {
        caller,
        execution_id,
        lease_epoch: ids::LeaseEpoch(request.lease_epoch),
        lease_ms: request.lease_ms,
    })
}

/// The command of a report.
pub(crate) fn report(caller: Caller, execution_id: ids::ExecutionId, request: OutcomeRequest) -> Command {
    Command::Report(command::Report {
        caller,
        execution_id,
        lease_epoch: ids::LeaseEpoch(request.lease_epoch),
        outcome: match request.outcome {
            Reported::Completed => Some(Definite::Completed),
            Reported::Failed => Some(Definite::Failed),
            Reported::NotApplied => Some(Definite::NotApplied),
            Reported::Unknown => None,
        },
        data: result_data(request.data),
    })
}

/// The command of late evidence.
pub(crate) fn evidence(caller: Caller, execution_id: ids::ExecutionId, request: EvidenceRequest) -> Command {
    Command::Evidence(command::Evidence {
        caller,
        execution_id,
        claim_id: ids::ClaimId(request.claim_id.0),
        outcome: definite(request.outcome),
        data: result_data(request.data),
        proof: request.proof.map(|proof| proof.as_str().to_owned()),
    })
}

/// The command of a resolution.
pub(crate) fn resolve(caller: Caller, execution_id: ids::ExecutionId, request: ResolveRequest) -> Command {
    Command::Resolve(command::Resolve {
        caller,
        execution_id,
        lease_epoch: ids::LeaseEpoch(request.lease_epoch),
        outcome: definite(request.outcome),
        data: result_data(request.data),
        proof: request.proof.as_str().to_owned(),
    })
}

fn definite(outcome: Settled) -> Definite {
    match outcome {
        Settled::Completed => Definite::Completed,
        Settled::Failed => Definite::Failed,
        Settled::NotApplied => Definite::NotApplied,
    }
}

fn result_data(data: ResultData) -> command::ResultData {
    command::ResultData {
        status_code: data.status_code,
        schema_version: data.schema_version.map(|version| version.as_str().to_owned()),
        result: data.result.map(|result| result.as_str().as_bytes().to_vec()),
        result_ref: data.result_ref.map(|place| place.as_str().to_owned()),
        result_digest: data.result_digest.map(|digest| ids::Digest(digest.0)),
        external_id: data.external_id.map(|id| id.as_str().to_owned()),
        reason: data.reason.map(|reason| reason.as_str().to_owned()),
    }
}

/// When to renew a lease with `remaining_ms` left.
fn renew_by_ms(remaining_ms: u64) -> u64 {
    remaining_ms / RENEW_AFTER_DIVISOR
}

/// A grant.
pub(crate) fn claimed(grant: &answer::Grant, revision: ids::Revision) -> Result<ClaimAnswer, Refusal> {
    Ok(ClaimAnswer::Claimed(Claimed {
        operation_id: wire(&grant.operation_id.to_string())?,
        execution_id: wire(&grant.execution_id.to_string())?,
        attempt: grant.attempt.0,
        lease_epoch: grant.lease.lease_epoch.0,
        lease_expires_in_ms: grant.lease.remaining_ms,
        renew_by_ms: renew_by_ms(grant.lease.remaining_ms),
        effect_key: wire(&grant.effect_key)?,
        revision: self::revision(revision),
    }))
}

/// Another executor at work.
pub(crate) fn in_progress(standing: &answer::Standing, revision: ids::Revision) -> Result<ClaimAnswer, Refusal> {
    Ok(ClaimAnswer::InProgress(InProgress {
        operation_id: wire(&standing.operation_id.to_string())?,
        execution_id: wire(&standing.execution_id.to_string())?,
        attempt: standing.attempt.0,
        state: state(standing.state),
        revision: self::revision(revision),
    }))
}

/// A stored outcome.
pub(crate) fn replayed(found: answer::Receipt, revision: ids::Revision) -> Result<ClaimAnswer, Refusal> {
    Ok(ClaimAnswer::Replayed(Replayed {
        operation_id: wire(&found.standing.operation_id.to_string())?,
        execution_id: wire(&found.standing.execution_id.to_string())?,
        attempt: found.standing.attempt.0,
        state: state(found.standing.state),
        outcome: receipt(&found.outcome, found.result)?,
        revision: self::revision(revision),
        consistency: None,
    }))
}

/// A renewed lease.
pub(crate) fn renewed(lease: answer::Lease, revision: ids::Revision) -> Renewed {
    Renewed {
        lease_epoch: lease.lease_epoch.0,
        lease_expires_in_ms: lease.remaining_ms,
        renew_by_ms: renew_by_ms(lease.remaining_ms),
        revision: self::revision(revision),
    }
}

/// An accepted report, evidence or resolution.
pub(crate) fn accepted(standing: &answer::Standing, revision: ids::Revision) -> Result<Accepted, Refusal> {
    Ok(Accepted {
        operation_id: wire(&standing.operation_id.to_string())?,
        state: state(standing.state),
        revision: self::revision(revision),
    })
}

/// An operation as read at `revision`.
pub(crate) fn operation(reading: Reading, revision: ids::Revision) -> Result<OperationView, Refusal> {
    let Reading { record, policy: _, state: settled, lease_epoch, lease_remaining_ms, result } = reading;
    let execution = &record.execution;
    Ok(OperationView {
        operation_id: wire(&record.id.to_string())?,
        namespace: wire(record.namespace.as_str())?,
        state: state(settled),
        attempt: execution.attempt.0,
        execution: ExecutionView {
            execution_id: wire(&execution.id.to_string())?,
            state: state(settled),
            owner: wire(&execution.owner)?,
            lease_epoch: lease_epoch.map(|epoch| epoch.0),
            lease_expires_in_ms: lease_remaining_ms,
        },
        outcome: execution.outcome.as_ref().map(|outcome| receipt(outcome, result)).transpose()?,
        created_at: Instant(record.created_at.0),
        updated_at: Instant(record.updated_at.0),
        quarantined: record.quarantined,
        revision: self::revision(revision),
    })
}

fn receipt(outcome: &OutcomeRecord, result: Option<core::Body>) -> Result<Receipt, Refusal> {
    let result = result.map(stored_json).transpose()?;
    Ok(Receipt {
        outcome: match outcome.outcome {
            Definite::Completed => Settled::Completed,
            Definite::Failed => Settled::Failed,
            Definite::NotApplied => Settled::NotApplied,
        },
        status_code: outcome.status_code,
        schema_version: outcome.schema_version.as_deref().map(wire).transpose()?,
        result,
        result_ref: outcome.result_ref.as_deref().map(wire).transpose()?,
        result_digest: outcome.result_digest.map(|digest| text::Digest(digest.0)),
        external_id: label(outcome.external_id.as_ref())?,
        reason: outcome.reason.as_deref().map(wire).transpose()?,
        completed_at: Instant(outcome.at.0),
    })
}

fn stored_json(bytes: core::Body) -> Result<RawJson, Refusal> {
    let text = String::from_utf8(bytes).ok();
    text.and_then(|text| RawJson::stored(text).ok()).ok_or_else(|| {
        tracing::error!("a stored result is not JSON");
        Refusal::new(Code::StoreOutcomeUnknown)
    })
}

/// A state of the core on the wire.
fn state(state: core::State) -> State {
    match state {
        core::State::Executing => State::Executing,
        core::State::Unknown => State::Unknown,
        core::State::NotApplied => State::NotApplied,
        core::State::Completed => State::Completed,
        core::State::Failed => State::Failed,
    }
}

/// A revision on the wire.
pub(crate) fn revision(revision: ids::Revision) -> text::Revision {
    text::Revision {
        incarnation: revision.incarnation.0.into(),
        group: revision.group.0.into(),
        index: revision.index,
        ordinal: revision.ordinal.into(),
    }
}

/// The conflict style of a namespace on the wire.
pub(crate) fn style(style: namespace::ConflictStyle) -> ConflictStyle {
    match style {
        namespace::ConflictStyle::Hapax => ConflictStyle::Hapax,
        namespace::ConflictStyle::Ietf => ConflictStyle::Ietf,
    }
}

/// The problem of a refusal: one code for each.
pub(crate) fn refused(refused: &Refused) -> Refusal {
    use answer::Refusal as Core;
    let (code, detail) = match refused.reason {
        // Identical for absent and for another's: no id, no detail.
        Core::NotFound => return Refusal::new(Code::NotFound),
        Core::ClaimIdReused => (Code::ClaimIdReused, None),
        Core::LeaseLost => (Code::LeaseLost, None),
        Core::LeaseStaleEpoch => (Code::LeaseStaleEpoch, None),
        Core::KeyDigestMismatch => (Code::KeyDigestMismatch, None),
        Core::OperationQuarantined => (Code::OperationQuarantined, None),
        Core::OperationExecuting => (Code::OperationExecuting, None),
        Core::OutcomeUnknown => (Code::OperationOutcomeUnknown, None),
        Core::AttemptMismatch { due } => (Code::AttemptMismatch, Some(format!("attempt {due} is due"))),
        Core::OutcomeConflict => (Code::OutcomeConflict, None),
        Core::WallStep | Core::AlreadyBootstrapped => (Code::PreconditionFailed, None),
    };
    let mut problem = Problem::styled(code, style(refused.conflict_style));
    if let Some(detail) = detail {
        problem = problem.detail(detail);
    }
    if let Some(id) = refused.operation_id.and_then(|id| id.to_string().parse().ok()) {
        problem = problem.operation(id);
    }
    problem.into()
}
