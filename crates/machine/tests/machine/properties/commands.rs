//! From the model's language to the rules', and back.

use hapax_machine::command::{
    BumpEpoch, Caller, Candidate, Claim, Command, CountedRefusal, Escalate, Evidence, Expected, ForceFence, Issue,
    IssueBounded, Lapse, Message, PutNamespace, RaiseFloors, ReconcileLease, Register, Renew, Repair, RepairKind,
    Report, Resolve, ResultData, Revoke,
};
use hapax_machine::epoch;
use hapax_machine::ids::{
    self, Attempt, AuthorityEpoch, Birth, ClaimId, Consumer, DecisionId, Digest, EpochScope, InternalKey, LeaseEpoch,
    LeaseTime, MessageId, NamespaceName, OperationId, OperationKey, Resource, Slot, Version, WallTime, effect_key,
};
use hapax_machine::namespace::{
    Attempts, Authority, ExpiredKeys, Floors, NamespaceRecord, OnLapse, Quota, Retention,
};
use hapax_machine::operation::{Definite, OutcomeRecord, State};
use hapax_machine::outcome::{Answer, Outcome, Refusal};
use hapax_machine::refusal::Subject;

use crate::memory::{Memory, bytes16, caller, namespace};
use crate::model::{
    self, Ask, Asker, Binding, Fact, Item, Keys, Mend, Named, Policy, Said, Stage, Wanted, Why, Words,
};

pub(super) fn start(policy: Policy) -> Memory {
    Memory::with(vec![record(policy)])
}

fn record(policy: Policy) -> NamespaceRecord {
    let on_lapse = if policy.takeover { OnLapse::Takeover } else { OnLapse::Unknown };
    let attempts = if policy.explicit { Attempts::Explicit } else { Attempts::Automatic };
    let expired_keys = match policy.keys {
        Keys::New => ExpiredKeys::New,
        Keys::RejectOlder => ExpiredKeys::RejectOlder,
        Keys::Durable => ExpiredKeys::Durable,
    };
    NamespaceRecord {
        authority: if policy.must_present { Authority::Capability } else { Authority::Inline },
        retention: Retention { body_ms: policy.body_ms, identity_ms: policy.identity_ms, expired_keys },
        reconcile_per_minute: policy.pace,
        quota: Quota { open_operations: policy.open_max, ..Quota::default() },
        ..namespace("t", "n", on_lapse, attempts)
    }
}

pub(super) fn credential(who: u8) -> Caller {
    match who {
        3 => caller("another", "c0"),
        4 => Caller { namespaces: vec![NamespaceName::new("another")], ..caller("t", "c0") },
        client => caller("t", &format!("c{client}")),
    }
}

pub(super) fn asker(who: u8) -> Asker {
    Asker { client: if who < 3 { who } else { 0 }, reaches: who < 3, of_tenant: who != 3 }
}

/// The command that asks for it. `memory` knows what refusals are on record.
pub(super) fn command(memory: &Memory, who: u8, ask: &Ask) -> Command {
    let caller = credential(who);
    match ask.clone() {
        Ask::Register { key, digest, resource, made } => Command::Register(Register {
            caller,
            namespace: the_namespace(),
            internal_key: internal_key(key),
            slot: Slot(7),
            digest: Digest([digest; 32]),
            correlation_id: None,
            resource: resource.map(named_resource),
            key_created_at: made.map(WallTime),
        }),
        Ask::Claim { key, claim, request, id } => Command::Claim(claim_command(caller, key, claim, &request, id)),
        Ask::Renew { id, epoch, lease_ms } => {
            Command::Renew(Renew { caller, execution_id: id, lease_epoch: LeaseEpoch(epoch), lease_ms })
        }
        Ask::Report { id, epoch, said, words } => {
            let (lease_epoch, outcome) = (LeaseEpoch(epoch), said.map(definite));
            Command::Report(Report { caller, execution_id: id, lease_epoch, outcome, data: data(words) })
        }
        Ask::Evidence { id, claim, fact, words } => {
            let (outcome, data) = (definite(fact), data(words));
            Command::Evidence(Evidence { caller, execution_id: id, claim_id: claim, outcome, data, proof: None })
        }
        Ask::Resolve { id, epoch, fact, words } => {
            let (lease_epoch, outcome, data) = (LeaseEpoch(epoch), definite(fact), data(words));
            let proof = "seen".into();
            Command::Resolve(Resolve { caller, execution_id: id, lease_epoch, outcome, data, proof })
        }
        Ask::Lapse { key, epoch, deadline } => Command::Lapse(Lapse {
            operation: row(key),
            lease_epoch: LeaseEpoch(epoch),
            deadline: LeaseTime(deadline),
        }),
        Ask::Settle { key } => Command::Settle(row(key)),
        Ask::Issue(wanted) => issue_command(caller, &wanted),
        Ask::Revoke { capability } => Command::Revoke(Revoke { caller, capability_id: capability, reason: None }),
        Ask::Bump { scope, expected } => {
            Command::BumpEpoch(BumpEpoch { caller, scope: named_scope(scope), expected: AuthorityEpoch(expected) })
        }
        ask => upkeep_command(memory, caller, ask),
    }
}

fn upkeep_command(memory: &Memory, caller: Caller, ask: Ask) -> Command {
    let reason = String::from("because");
    match ask {
        Ask::Reconcile { owner, lease_ms, limit, named } => {
            let candidate = |(named, epoch): (Named, u64)| Candidate {
                operation: row(named.key),
                birth: Birth(named.birth),
                lease_epoch: LeaseEpoch(epoch),
            };
            let candidates = named.into_iter().map(candidate).collect();
            Command::ReconcileLease(ReconcileLease { caller, owner: owner.to_string(), lease_ms, limit, candidates })
        }
        Ask::Escalate { id, epoch, on } => Command::Escalate(Escalate {
            caller,
            execution_id: id,
            lease_epoch: LeaseEpoch(epoch),
            escalated: on,
            reason,
            proof: None,
        }),
        Ask::Fence { id, epoch } => {
            let lease_epoch = LeaseEpoch(epoch);
            Command::ForceFence(ForceFence { caller, execution_id: id, lease_epoch, reason, proof: None })
        }
        Ask::Repair { named, mend, expected } => {
            let kind = match mend {
                Mend::Quarantine => RepairKind::Quarantine,
                Mend::Release => RepairKind::Release,
                Mend::Close => RepairKind::Close,
                Mend::Supersede(by) => RepairKind::Supersede(operation_id(by)),
            };
            let (operation_id, expected) = (operation_id(named), state(expected));
            Command::Repair(Repair { caller, operation_id, kind, expected, reason, proof: None })
        }
        Ask::Floors { compact, forget } => Command::RaiseFloors(RaiseFloors {
            tenant: credential(0).tenant,
            namespace: the_namespace(),
            floors: Floors { compact_before: WallTime(compact), forget_before: WallTime(forget) },
        }),
        Ask::Count { capability, times } => {
            let of = memory.refusals.keys().filter(|key| key.subject == Subject::Capability(capability));
            Command::CountRefusals(of.map(|key| CountedRefusal { key: *key, times }).collect())
        }
        Ask::Policy(policy) => {
            let expected = Expected::Version(version(memory));
            Command::PutNamespace(PutNamespace { caller, record: record(policy), expected })
        }
        other => unreachable!("{other:?} is translated with its own kind"),
    }
}

/// How often the policy was written.
pub(super) fn version(memory: &Memory) -> Version {
    memory.namespaces[&(credential(0).tenant, the_namespace())].version
}

fn claim_command(
    caller: Caller,
    key: u8,
    claim_id: ClaimId,
    request: &model::Request,
    execution_id: ids::ExecutionId,
) -> Claim {
    Claim {
        caller,
        namespace: the_namespace(),
        internal_key: internal_key(key),
        slot: Slot(7),
        digest: Digest([request.digest; 32]),
        claim_id,
        owner: "worker".into(),
        lease_ms: request.lease_ms,
        attempt: request.attempt.map(Attempt),
        correlation_id: None,
        execution_id,
        capability_id: request.capability,
        message: request
            .message
            .map(|id| Message { consumer: Consumer::new("q"), id: MessageId::new(id.to_string()) }),
        epoch: request.epoch.map(bound),
        resource: request.resource.map(named_resource),
        key_created_at: request.made.map(WallTime),
    }
}

fn issue_command(caller: Caller, wanted: &model::Issue) -> Command {
    let decision_id = DecisionId::new(wanted.decision.to_string());
    let (expires_at, epoch, capability_id) = (WallTime(wanted.expires), wanted.epoch.map(bound), wanted.id);
    match wanted.goes_for {
        Wanted::Attempt { named, attempt, effect } => Command::Issue(Issue {
            caller,
            operation_id: operation_id(named),
            decision_id,
            attempt: Attempt(attempt),
            expires_at,
            epoch,
            effect_key_attempt: effect.map(Attempt),
            capability_id,
        }),
        Wanted::Resource { resource, uses } => Command::IssueBounded(IssueBounded {
            caller,
            namespace: the_namespace(),
            resource: named_resource(resource),
            decision_id,
            expires_at,
            max_uses: uses,
            epoch,
            capability_id,
        }),
    }
}

pub(super) fn the_namespace() -> NamespaceName {
    NamespaceName::new("n")
}

fn named_resource(number: u8) -> Resource {
    Resource::new(number.to_string())
}

pub(super) fn named_scope(number: u8) -> EpochScope {
    EpochScope::new(number.to_string())
}

fn bound(binding: Binding) -> epoch::Binding {
    epoch::Binding { scope: named_scope(binding.scope), value: AuthorityEpoch(binding.value) }
}

fn internal_key(key: u8) -> InternalKey {
    InternalKey([key; 32])
}

pub(super) fn row(key: u8) -> OperationKey {
    OperationKey::new(&credential(0).tenant, &internal_key(key))
}

fn operation_id(named: Named) -> OperationId {
    OperationId { slot: Slot(7), hash: row(named.key).hash, birth: Birth(named.birth) }
}

pub(super) fn claim_id(number: u8) -> ClaimId {
    ClaimId(bytes16(u64::from(number)))
}

fn data(words: Words) -> ResultData {
    let external_id = words.external.map(|id| format!("ch_{id}"));
    ResultData { external_id, result: words.result.map(|byte| vec![byte]), ..ResultData::default() }
}

pub(super) fn words_of(outcome: &OutcomeRecord, result: Option<&[u8]>) -> Words {
    let external = outcome.external_id.as_ref().map(|id| id.trim_start_matches("ch_").parse().expect("our own id"));
    Words { external, result: result.map(|body| body[0]) }
}

fn definite(fact: Fact) -> Definite {
    match fact {
        Fact::Completed => Definite::Completed,
        Fact::Failed => Definite::Failed,
        Fact::NotApplied => Definite::NotApplied,
    }
}

fn fact(outcome: Definite) -> Fact {
    match outcome {
        Definite::Completed => Fact::Completed,
        Definite::Failed => Fact::Failed,
        Definite::NotApplied => Fact::NotApplied,
    }
}

pub(super) fn stage(state: State) -> Stage {
    match state {
        State::Requested => Stage::Requested,
        State::Executing => Stage::Executing,
        State::Unknown => Stage::Unknown,
        State::Completed => Stage::Known(Fact::Completed),
        State::Failed => Stage::Known(Fact::Failed),
        State::NotApplied => Stage::Known(Fact::NotApplied),
    }
}

fn state(stage: Stage) -> State {
    match stage {
        Stage::Requested => State::Requested,
        Stage::Executing => State::Executing,
        Stage::Unknown => State::Unknown,
        Stage::Known(fact) => definite(fact).into(),
    }
}

/// The attempt whose number an effect key carries.
fn effect_of(operation: &OperationId, key: &str) -> u32 {
    let found = (1..20).find(|attempt| effect_key(operation, Attempt(*attempt)) == key);
    found.expect("an effect key names the operation and an attempt")
}

pub(super) fn translated(outcome: &Outcome) -> Said {
    match &outcome.answer {
        Answer::Claimed(grant) => Said::Claimed {
            execution: grant.execution_id,
            attempt: grant.attempt.0,
            epoch: grant.lease.lease_epoch.0,
            remaining_ms: grant.lease.remaining_ms,
            effect: effect_of(&grant.operation_id, &grant.effect_key),
        },
        Answer::InProgress(standing) => {
            Said::InProgress { attempt: standing.attempt.0, remaining_ms: standing.lease_remaining_ms }
        }
        Answer::Replayed(receipt) => Said::Replayed {
            fact: fact(receipt.outcome.outcome),
            words: words_of(&receipt.outcome, receipt.result.as_deref()),
        },
        Answer::DuplicateDelivery(standing) => Said::Duplicate(stage(standing.state)),
        Answer::Renewed(lease) => Said::Renewed { epoch: lease.lease_epoch.0, remaining_ms: lease.remaining_ms },
        Answer::Accepted(standing) => Said::Accepted(stage(standing.state)),
        Answer::Registered { standing, created } => {
            Said::Registered { stage: stage(standing.state), created: *created }
        }
        Answer::Capability { record, created } => Said::Capability {
            id: record.id,
            left: record.uses_left(),
            created: *created,
            revoked: record.revoked.is_some(),
        },
        Answer::Epoch(value) => Said::Register(value.0),
        Answer::Reconciling(items) => Said::Reconciling(items.iter().map(item).collect()),
        Answer::Floors(floors) => Said::Floors { compact: floors.compact_before.0, forget: floors.forget_before.0 },
        Answer::Counted => Said::Counted,
        Answer::Namespace(_) => Said::Written,
        Answer::Lapsed { changed } => Said::Lapsed(*changed),
        Answer::Refused(refused) => Said::Refused(why(refused.reason)),
        Answer::TooLate => Said::TooLate,
        other => panic!("nothing in a history is answered with {other:?}"),
    }
}

fn item(item: &hapax_machine::outcome::ReconcileItem) -> Item {
    Item {
        execution: item.execution_id,
        attempt: item.attempt.0,
        epoch: item.lease.lease_epoch.0,
        remaining_ms: item.lease.remaining_ms,
        unknown_since: item.unknown_since.0,
        effect: effect_of(&item.operation_id, &item.effect_key),
    }
}

fn why(reason: Refusal) -> Why {
    match reason {
        Refusal::NotFound => Why::NotFound,
        Refusal::ClaimIdReused => Why::Reused,
        Refusal::LeaseLost => Why::Lost,
        Refusal::LeaseStaleEpoch => Why::Stale,
        Refusal::KeyDigestMismatch => Why::Digest,
        Refusal::OperationQuarantined => Why::Quarantined,
        Refusal::OperationExecuting => Why::Executing,
        Refusal::OutcomeUnknown => Why::Unknown,
        Refusal::AttemptMismatch { due } => Why::Attempt(due.0),
        Refusal::OutcomeConflict => Why::Conflict,
        Refusal::DeliveryMismatch => Why::Delivery,
        Refusal::CapabilityAlreadyConsumed => Why::Consumed,
        Refusal::CapabilityRevoked => Why::Revoked,
        Refusal::CapabilityExpired => Why::Expired,
        Refusal::CapabilityInvalid => Why::Invalid,
        Refusal::CapabilityBindingMismatch => Why::Binding,
        Refusal::CapabilityRequired => Why::Required,
        Refusal::EpochStale => Why::EpochStale,
        Refusal::EpochUnknown => Why::EpochUnknown,
        Refusal::RegisterStands { value } => Why::Stands(value.0),
        Refusal::OperationCompleted => Why::Completed,
        Refusal::OperationFailed => Why::Failed,
        Refusal::OperationState { .. } => Why::State,
        Refusal::KeyRetentionElapsed => Why::Elapsed,
        Refusal::KeyCreationTime => Why::CreationTime,
        Refusal::DecisionReused => Why::Decision,
        Refusal::QuotaExceeded => Why::Quota,
        Refusal::NotASuccessor => Why::Fixed,
        Refusal::NotYours => Why::NotYours,
        other => panic!("nothing in a history is refused with {other:?}"),
    }
}
