//! Requests as commands, with what the proposer draws.

use hapax_api::capability::{IssueBoundedRequest, IssueRequest, RevokeRequest};
use hapax_api::claim::{Claim, Message, Subject};
use hapax_api::digest::Envelope;
use hapax_api::epoch::{BumpRequest, EpochBinding};
use hapax_api::execution::{EvidenceRequest, OutcomeRequest, RenewRequest, Reported, ResolveRequest, ResultData};
use hapax_api::operation::Settled;
use hapax_api::reconcile::{EscalateRequest, FenceRequest};
use hapax_api::register::Register;
use hapax_api::repair::{RepairRequest, SupersedeRequest};
use hapax_api::text;
use hapax_api::time::Instant;
use hapax_machine::command::{self, Caller, Command, RepairKind};
use hapax_machine::epoch::Binding;
use hapax_machine::ids::{self, internal_key, slot};
use hapax_machine::namespace::{NamespaceRecord, Scope};
use hapax_machine::operation::Definite;
use uuid::Uuid;

use super::core_state;

/// What the proposer draws for a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn {
    /// For a claim without an id of its own: without one a lost answer cannot be asked for again; it still must differ from
    /// every other.
    pub(crate) claim_id: [u8; 16],
    /// For the execution or capability that the call may make.
    pub(crate) made: [u8; 16],
}

impl Drawn {
    pub(crate) fn new() -> Self {
        Self { claim_id: rand::random(), made: rand::random() }
    }

    /// For a claim. Executions are drawn in the order of time (UUID version 7: 74 random bits), so that the rows of those that
    /// begin together lie together, in memory and on disk. Nothing else is read from that order, and no rule asks for it.
    pub(crate) fn for_claim() -> Self {
        Self { claim_id: rand::random(), made: Uuid::now_v7().into_bytes() }
    }
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

/// The slot of the partition that a key is in.
fn slot_of(policy: &NamespaceRecord, internal_key: &ids::InternalKey) -> ids::Slot {
    let mut first = [0; 4];
    first.copy_from_slice(&internal_key.0[..4]);
    slot(&policy.tenant, &policy.name, u32::from_be_bytes(first) % policy.partitions.max(1))
}

/// The command of a claim.
pub(crate) fn claim(caller: Caller, policy: &NamespaceRecord, request: Claim, drawn: Drawn) -> command::Claim {
    let internal_key = key_of(&caller, policy, &request.key, request.business_epoch.as_ref());
    let slot = slot_of(policy, &internal_key);
    let owner = request.owner.map_or_else(|| caller.client.as_str().to_owned(), |owner| owner.as_str().to_owned());
    command::Claim {
        digest: digest(&caller, policy, &request.namespace, &request.subject),
        namespace: policy.name.clone(),
        internal_key,
        slot,
        claim_id: ids::ClaimId(request.claim_id.map_or(drawn.claim_id, |id| id.0)),
        owner,
        lease_ms: request.lease_ms,
        attempt: request.attempt.map(ids::Attempt),
        correlation_id: request.correlation_id.map(|id| ids::CorrelationId::new(id.as_str())),
        execution_id: ids::ExecutionId { slot, random: drawn.made },
        capability_id: request.capability_id.map(|id| capability_id(&id)),
        message: request.message.map(|message| message_of(&message)),
        epoch: request.epoch.as_ref().map(binding),
        resource: request.resource.map(|resource| ids::Resource::new(resource.as_str())),
        key_created_at: request.key_created_at.map(wall),
        caller,
    }
}

/// The command of a registration.
pub(crate) fn register(caller: Caller, policy: &NamespaceRecord, request: Register) -> Command {
    let internal_key = key_of(&caller, policy, &request.key, request.business_epoch.as_ref());
    Command::Register(command::Register {
        digest: digest(&caller, policy, &request.namespace, &request.subject),
        namespace: policy.name.clone(),
        slot: slot_of(policy, &internal_key),
        internal_key,
        correlation_id: request.correlation_id.map(|id| ids::CorrelationId::new(id.as_str())),
        resource: request.resource.map(|resource| ids::Resource::new(resource.as_str())),
        key_created_at: request.key_created_at.map(wall),
        caller,
    })
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

/// A text that is no id of ours names nothing: it becomes one that nobody was ever given.
fn capability_id(id: &text::CapabilityId) -> ids::CapabilityId {
    ids::CapabilityId::parse(id.as_str()).unwrap_or(ids::CapabilityId { slot: ids::Slot(0), random: [0; 16] })
}

/// A delivery that is named.
pub(crate) fn message_of(message: &Message) -> command::Message {
    command::Message {
        consumer: ids::Consumer::new(message.consumer.as_str()),
        id: ids::MessageId::new(message.id.as_str()),
    }
}

fn binding(epoch: &EpochBinding) -> Binding {
    Binding { scope: ids::EpochScope::new(epoch.scope.as_str()), value: ids::AuthorityEpoch(epoch.value) }
}

fn wall(instant: Instant) -> ids::WallTime {
    ids::WallTime(instant.0)
}

/// The command of an issue.
pub(crate) fn issue(caller: Caller, operation_id: ids::OperationId, request: &IssueRequest, drawn: Drawn) -> Command {
    Command::Issue(command::Issue {
        caller,
        operation_id,
        decision_id: ids::DecisionId::new(request.decision_id.as_str()),
        attempt: ids::Attempt(request.attempt),
        expires_at: wall(request.expires_at),
        epoch: request.epoch.as_ref().map(binding),
        effect_key_attempt: request.effect_key_attempt.map(ids::Attempt),
        capability_id: ids::CapabilityId { slot: operation_id.slot, random: drawn.made },
    })
}

/// The command of an issue for a resource.
pub(crate) fn issue_bounded(
    caller: Caller,
    policy: &NamespaceRecord,
    request: &IssueBoundedRequest,
    drawn: Drawn,
) -> Command {
    Command::IssueBounded(command::IssueBounded {
        namespace: policy.name.clone(),
        resource: ids::Resource::new(request.resource.as_str()),
        decision_id: ids::DecisionId::new(request.decision_id.as_str()),
        expires_at: wall(request.expires_at),
        max_uses: request.max_uses,
        epoch: request.epoch.as_ref().map(binding),
        capability_id: ids::CapabilityId { slot: slot(&caller.tenant, &policy.name, 0), random: drawn.made },
        caller,
    })
}

/// The command of a revocation.
pub(crate) fn revoke(caller: Caller, capability_id: ids::CapabilityId, request: &RevokeRequest) -> Command {
    let reason = request.reason.as_ref().map(|reason| reason.as_str().to_owned());
    Command::Revoke(command::Revoke { caller, capability_id, reason })
}

/// The command of a bump.
pub(crate) fn bump(caller: Caller, scope: &text::EpochScope, request: &BumpRequest) -> Command {
    Command::BumpEpoch(command::BumpEpoch {
        caller,
        scope: ids::EpochScope::new(scope.as_str()),
        expected: ids::AuthorityEpoch(request.expected),
    })
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
        proof: proof(request.proof.as_ref()),
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

/// The command that lets an unknown execution wait for people, or no longer.
pub(crate) fn escalate(caller: Caller, execution_id: ids::ExecutionId, request: &EscalateRequest) -> Command {
    Command::Escalate(command::Escalate {
        caller,
        execution_id,
        lease_epoch: ids::LeaseEpoch(request.lease_epoch),
        escalated: request.escalates(),
        reason: request.reason.as_str().to_owned(),
        proof: proof(request.proof.as_ref()),
    })
}

/// The command of a forced fence.
pub(crate) fn fence(caller: Caller, execution_id: ids::ExecutionId, request: &FenceRequest) -> Command {
    Command::ForceFence(command::ForceFence {
        caller,
        execution_id,
        lease_epoch: ids::LeaseEpoch(request.lease_epoch),
        reason: request.reason.as_str().to_owned(),
        proof: proof(request.proof.as_ref()),
    })
}

/// The command that stops claims.
pub(crate) fn quarantine(caller: Caller, operation_id: ids::OperationId, request: &RepairRequest) -> Command {
    repair(caller, operation_id, RepairKind::Quarantine, request)
}

/// The command that lets claims go on.
pub(crate) fn release(caller: Caller, operation_id: ids::OperationId, request: &RepairRequest) -> Command {
    repair(caller, operation_id, RepairKind::Release, request)
}

/// The command that ends an operation that nobody executes.
pub(crate) fn close(caller: Caller, operation_id: ids::OperationId, request: &RepairRequest) -> Command {
    repair(caller, operation_id, RepairKind::Close, request)
}

fn repair(caller: Caller, operation_id: ids::OperationId, kind: RepairKind, request: &RepairRequest) -> Command {
    Command::Repair(command::Repair {
        caller,
        operation_id,
        kind,
        expected: core_state(request.expected_state),
        reason: request.reason.as_str().to_owned(),
        proof: proof(request.proof.as_ref()),
    })
}

/// The command that links the operation that takes another's place.
pub(crate) fn supersede(
    caller: Caller,
    operation_id: ids::OperationId,
    by: ids::OperationId,
    request: &SupersedeRequest,
) -> Command {
    Command::Repair(command::Repair {
        caller,
        operation_id,
        kind: RepairKind::Supersede(by),
        expected: core_state(request.expected_state),
        reason: request.reason.as_str().to_owned(),
        proof: proof(request.proof.as_ref()),
    })
}

fn proof(proof: Option<&text::Proof>) -> Option<String> {
    proof.map(|proof| proof.as_str().to_owned())
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
