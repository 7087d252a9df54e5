//! Samples of authority, repair, retention and administration.

use hapax_machine::capability::{Bound, CapabilityRecord, Consumption, DecisionRecord, Revocation, UseRecord};
use hapax_machine::change::Event;
use hapax_machine::epoch::{Binding, EpochRecord};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::{Floors, NamespaceStatus, Pace};
use hapax_machine::outcome::ReconcileItem;
use hapax_machine::refusal::{RefusalKey, RefusalRecord, Subject};
use hapax_machine::tenant::TenantRecord;

use super::*;

pub(crate) fn capability_id() -> CapabilityId {
    CapabilityId { slot: Slot(0xabc), random: bytes(0x10) }
}

pub(crate) fn binding() -> Binding {
    Binding { scope: EpochScope::new("refunds"), value: AuthorityEpoch(GRANTS + 5) }
}

pub(crate) fn message() -> Message {
    Message { consumer: Consumer::new("refund-worker"), id: MessageId::new("MSG-55A") }
}

fn floors() -> Floors {
    Floors { compact_before: WallTime(WALL.0 - 2_000), forget_before: WallTime(WALL.0 - 9_000) }
}

fn refusal_key() -> RefusalKey {
    RefusalKey { tenant: TenantTag(bytes(0x90)), subject: Subject::Capability(capability_id()), hash: bytes(0xb0) }
}

fn of_operation() -> RefusalKey {
    RefusalKey { subject: Subject::Operation(bytes(0x40), Birth(GRANTS + 1)), ..refusal_key() }
}

/// The commands of authority, by name.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let Command::Claim(plain) = claim().command else { unreachable!("the sample is a claim") };
    let presenting = Claim {
        capability_id: Some(capability_id()),
        message: Some(message()),
        epoch: Some(binding()),
        resource: Some(Resource::new("ORD-8841")),
        key_created_at: Some(WALL),
        ..plain
    };
    let mut all = vec![("claim presenting everything", Command::Claim(presenting))];
    all.extend(issuing());
    all.extend(repairing());
    all.extend(keeping_house());
    all
}

fn issuing() -> Vec<(&'static str, Command)> {
    let register = Register {
        caller: caller(),
        namespace: NamespaceName::new("payments"),
        internal_key: InternalKey(bytes(0x40)),
        slot: Slot(0xabc),
        digest: Digest(bytes(0x80)),
        correlation_id: Some(CorrelationId::new("order-4711")),
        resource: Some(Resource::new("ORD-8841")),
        key_created_at: Some(WALL),
    };
    let issue = Issue {
        caller: caller(),
        operation_id: operation_id(),
        decision_id: DecisionId::new("decision-7"),
        attempt: Attempt(2),
        expires_at: WALL,
        epoch: Some(binding()),
        effect_key_attempt: Some(Attempt(1)),
        capability_id: capability_id(),
    };
    let bounded = IssueBounded {
        caller: caller(),
        namespace: NamespaceName::new("payments"),
        resource: Resource::new("ORD-8841"),
        decision_id: DecisionId::new("decision-8"),
        expires_at: WALL,
        max_uses: 300,
        epoch: Some(binding()),
        capability_id: capability_id(),
    };
    let revoke = Revoke { caller: caller(), capability_id: capability_id(), reason: Some("fraud".into()) };
    let bump =
        BumpEpoch { caller: caller(), scope: EpochScope::new("refunds"), expected: AuthorityEpoch(GRANTS + 5) };
    vec![
        ("register", Command::Register(register)),
        ("issue", Command::Issue(issue)),
        ("issue bounded", Command::IssueBounded(bounded)),
        ("revoke", Command::Revoke(revoke)),
        ("bump", Command::BumpEpoch(bump)),
    ]
}

fn successor() -> OperationId {
    OperationId { hash: bytes(0x60), birth: Birth(GRANTS + 7), ..operation_id() }
}

fn repairing() -> Vec<(&'static str, Command)> {
    let lease_epoch = LeaseEpoch(GRANTS + 2);
    let candidate = Candidate { operation: operation().key(), birth: operation_id().birth, lease_epoch };
    let lease = ReconcileLease {
        caller: caller(),
        owner: "reconciler-1".into(),
        lease_ms: 30_000,
        limit: 10,
        candidates: vec![candidate],
    };
    let escalate = Escalate {
        caller: caller(),
        execution_id: execution_id(),
        lease_epoch,
        escalated: true,
        reason: "nobody knows".into(),
        proof: Some("ticket 6".into()),
    };
    let fence = ForceFence {
        caller: caller(),
        execution_id: execution_id(),
        lease_epoch,
        reason: "host is gone".into(),
        proof: Some("ticket 7".into()),
    };
    let repair = |kind| {
        Command::Repair(Repair {
            caller: caller(),
            operation_id: operation_id(),
            kind,
            expected: State::NotApplied,
            reason: "audit".into(),
            proof: Some("ticket 8".into()),
        })
    };
    vec![
        ("reconcile lease", Command::ReconcileLease(lease)),
        ("escalate", Command::Escalate(escalate)),
        ("force fence", Command::ForceFence(fence)),
        ("quarantine", repair(RepairKind::Quarantine)),
        ("release", repair(RepairKind::Release)),
        ("supersede", repair(RepairKind::Supersede(successor()))),
        ("close", repair(RepairKind::Close)),
    ]
}

fn keeping_house() -> Vec<(&'static str, Command)> {
    let raise =
        RaiseFloors { tenant: TenantId::new("default"), namespace: NamespaceName::new("payments"), floors: floors() };
    let counted =
        vec![CountedRefusal { key: refusal_key(), times: 300 }, CountedRefusal { key: of_operation(), times: 1 }];
    let put = PutNamespace { caller: caller(), record: namespace(), expected: Expected::Version(Version(2)) };
    let tenant = PutTenant { caller: caller(), record: tenant(), expected: Expected::Absent };
    vec![
        ("settle", Command::Settle(operation().key())),
        ("raise floors", Command::RaiseFloors(raise)),
        ("count refusals", Command::CountRefusals(counted)),
        ("put namespace", Command::PutNamespace(put)),
        ("put tenant", Command::PutTenant(tenant)),
        ("create token", Command::CreateToken(CreateToken { caller: caller(), record: token() })),
        ("revoke token", Command::RevokeToken(RevokeToken { caller: caller(), id: "t1".into() })),
    ]
}

/// The answers of authority, by name.
pub(crate) fn answers(standing: Standing) -> Vec<(&'static str, Answer)> {
    let item = ReconcileItem {
        operation_id: operation_id(),
        execution_id: execution_id(),
        attempt: Attempt(1),
        namespace: NamespaceName::new("payments"),
        effect_key: "op_1-a1".into(),
        correlation_id: Some(CorrelationId::new("order-4711")),
        unknown_since: WALL,
        lease: Lease { lease_epoch: LeaseEpoch(GRANTS + 9), remaining_ms: 30_000 },
    };
    let requested = Standing {
        execution_id: None,
        attempt: Attempt(0),
        state: State::Requested,
        lease_remaining_ms: None,
        ..standing.clone()
    };
    vec![
        ("registered", Answer::Registered { standing: requested, created: true }),
        ("capability", Answer::Capability { record: Box::new(capability()), created: true }),
        ("duplicate delivery", Answer::DuplicateDelivery(standing)),
        ("epoch", Answer::Epoch(AuthorityEpoch(GRANTS + 6))),
        ("reconciling", Answer::Reconciling(vec![item])),
        ("floors", Answer::Floors(floors())),
        ("counted", Answer::Counted),
        ("namespace", Answer::Namespace(Box::new(namespace()))),
        ("tenant", Answer::Tenant(Box::new(tenant()))),
        ("token", Answer::Token(Box::new(token()))),
    ]
}

fn consumption() -> Consumption {
    Consumption {
        execution: execution_id(),
        claim_id: ClaimId(bytes(0x20)),
        client: ClientId::new("billing"),
        at: WallTime(WALL.0 + 20),
    }
}

/// As it is issued, before anything is consumed.
pub(crate) fn capability() -> CapabilityRecord {
    CapabilityRecord {
        id: capability_id(),
        tenant: TenantId::new("default"),
        namespace: NamespaceName::new("payments"),
        client: ClientId::new("decider"),
        decision: DecisionId::new("decision-7"),
        bound: Bound::Attempt {
            operation: operation_id(),
            attempt: Attempt(1),
            effect_attempt: Attempt(1),
            consumed: None,
        },
        expires_at: WallTime(WALL.0 + 60_000),
        authority: None,
        issued_at: WALL,
        revoked: None,
        refusals: 0,
    }
}

pub(crate) fn consumed() -> CapabilityRecord {
    CapabilityRecord {
        bound: Bound::Attempt {
            operation: operation_id(),
            attempt: Attempt(2),
            effect_attempt: Attempt(1),
            consumed: Some(consumption()),
        },
        authority: Some(binding()),
        refusals: 2,
        ..capability()
    }
}

pub(crate) fn revoked() -> CapabilityRecord {
    CapabilityRecord {
        bound: Bound::Resource { resource: Resource::new("ORD-8841"), max_uses: 300, used: 7 },
        revoked: Some(Revocation {
            client: ClientId::new("ops"),
            reason: Some("fraud".into()),
            at: WallTime(WALL.0 + 40),
        }),
        ..capability()
    }
}

pub(crate) fn decision() -> DecisionRecord {
    DecisionRecord { capability: capability_id(), terms: ContentHash(bytes(0xd0)) }
}

pub(crate) fn use_row() -> UseRecord {
    UseRecord { birth: operation_id().birth, consumption: consumption() }
}

pub(crate) fn inbox() -> InboxRecord {
    InboxRecord {
        tenant: TenantId::new("default"),
        message: message(),
        operation: operation_id(),
        digest: Digest(bytes(0x80)),
        capability: Some(capability_id()),
        claim_id: ClaimId(bytes(0x20)),
        client: ClientId::new("billing"),
        at: WALL,
    }
}

pub(crate) fn refusal() -> RefusalRecord {
    RefusalRecord {
        reason: Refusal::CapabilityAlreadyConsumed,
        namespace: NamespaceName::new("payments"),
        capability: Some(capability_id()),
        message: Some(message()),
        known_redelivery: false,
        operation: Some(operation_id()),
        state: Some(State::Completed),
        attempt: Some(Attempt(1)),
        client: ClientId::new("billing"),
        correlation_id: Some(CorrelationId::new("order-4711")),
        first_at: WALL,
        last_at: WallTime(WALL.0 + 7),
        times: 2,
        revision: revision(),
    }
}

/// Of a delivery that was accepted before, for something that is not there any more.
pub(crate) fn redelivery() -> RefusalRecord {
    RefusalRecord {
        reason: Refusal::DeliveryMismatch,
        capability: None,
        known_redelivery: true,
        operation: None,
        state: None,
        attempt: None,
        correlation_id: None,
        ..refusal()
    }
}

pub(crate) fn status() -> NamespaceStatus {
    let pace = Pace { since: LeaseTime(60_000), granted: 3 };
    NamespaceStatus { floors: floors(), open: 300, unknown: 2, pace }
}

pub(crate) fn tenant() -> TenantRecord {
    TenantRecord {
        id: TenantId::new("default"),
        system: true,
        disabled: false,
        requests_per_second: Some(500),
        version: Version(1),
    }
}

pub(crate) fn disabled_tenant() -> TenantRecord {
    TenantRecord { system: false, disabled: true, requests_per_second: None, ..tenant() }
}

pub(crate) fn epoch() -> EpochRecord {
    EpochRecord {
        tenant: TenantId::new("default"),
        scope: EpochScope::new("refunds"),
        value: AuthorityEpoch(GRANTS + 6),
        client: ClientId::new("ops"),
        at: WALL,
    }
}

pub(crate) fn events() -> Vec<Event> {
    let event = |ordinal, part, execution| Event {
        revision: Revision { ordinal, ..revision() },
        part,
        tenant: TenantTag(bytes(0x90)),
        namespace: NamespaceName::new("payments"),
        operation: operation_id(),
        state: State::Executing,
        attempt: Attempt(1),
        execution,
        escalated: false,
        quarantined: part > 0,
    };
    // A state beside an attempt of the same number would hide that they changed places.
    let escalated = Event { state: State::Unknown, attempt: Attempt(3), escalated: true, ..event(8, 0, None) };
    vec![event(0, 0, Some(execution_id())), event(7, 1, None), escalated]
}
