//! Generators of authority, repair, retention and administration.

use hapax_machine::capability::{Bound, CapabilityRecord, Consumption, DecisionRecord, Revocation, UseRecord};
use hapax_machine::change::Event;
use hapax_machine::epoch::{Binding, EpochRecord};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::{Floors, NamespaceStatus, Pace};
use hapax_machine::outcome::ReconcileItem;
use hapax_machine::refusal::{RefusalKey, RefusalRecord, Subject};
use hapax_machine::tenant::TenantRecord;

use super::*;

pub(super) fn capability_id() -> impl Strategy<Value = CapabilityId> {
    (any::<u16>(), hash()).prop_map(|(slot, random)| CapabilityId { slot: Slot(slot), random })
}

pub(super) fn message() -> impl Strategy<Value = Message> {
    (text(), text()).prop_map(|(consumer, id)| Message { consumer: Consumer::new(consumer), id: MessageId::new(id) })
}

pub(super) fn binding() -> impl Strategy<Value = Binding> {
    (text(), number())
        .prop_map(|(scope, value)| Binding { scope: EpochScope::new(scope), value: AuthorityEpoch(value) })
}

fn floors() -> impl Strategy<Value = Floors> {
    (number(), number())
        .prop_map(|(compact, forget)| Floors { compact_before: WallTime(compact), forget_before: WallTime(forget) })
}

fn refusal_key() -> impl Strategy<Value = RefusalKey> {
    let subject = prop_oneof![
        capability_id().prop_map(Subject::Capability),
        (hash(), number()).prop_map(|(hash, birth)| Subject::Operation(hash, Birth(birth))),
    ];
    (hash(), subject, hash()).prop_map(|(tenant, subject, hash)| RefusalKey {
        tenant: TenantTag(tenant),
        subject,
        hash,
    })
}

fn expected() -> impl Strategy<Value = Expected> {
    prop_oneof![Just(Expected::Absent), number().prop_map(|version| Expected::Version(Version(version)))]
}

fn registering() -> BoxedStrategy<Command> {
    let who = (caller(), text(), hash(), any::<u16>(), hash());
    (who, of(text()), of(text()), of(number()))
        .prop_map(|(who, correlation_id, resource, at)| {
            Command::Register(Register {
                caller: who.0,
                namespace: NamespaceName::new(who.1),
                internal_key: InternalKey(who.2),
                slot: Slot(who.3),
                digest: Digest(who.4),
                correlation_id: correlation_id.map(CorrelationId::new),
                resource: resource.map(Resource::new),
                key_created_at: at.map(WallTime),
            })
        })
        .boxed()
}

fn issuing() -> BoxedStrategy<Command> {
    let decided = || (caller(), text(), number(), of(binding()), capability_id());
    prop_oneof![
        (decided(), operation_id(), any::<u32>(), of(any::<u32>())).prop_map(
            |(by, operation_id, attempt, effect)| {
                Command::Issue(Issue {
                    caller: by.0,
                    operation_id,
                    decision_id: DecisionId::new(by.1),
                    attempt: Attempt(attempt),
                    expires_at: WallTime(by.2),
                    epoch: by.3,
                    effect_key_attempt: effect.map(Attempt),
                    capability_id: by.4,
                })
            }
        ),
        (decided(), text(), text(), any::<u32>()).prop_map(|(by, namespace, resource, max_uses)| {
            Command::IssueBounded(IssueBounded {
                caller: by.0,
                namespace: NamespaceName::new(namespace),
                resource: Resource::new(resource),
                decision_id: DecisionId::new(by.1),
                expires_at: WallTime(by.2),
                max_uses,
                epoch: by.3,
                capability_id: by.4,
            })
        }),
        (caller(), capability_id(), of(text())).prop_map(|(caller, capability_id, reason)| {
            Command::Revoke(Revoke { caller, capability_id, reason })
        }),
        (caller(), text(), number()).prop_map(|(caller, scope, expected)| {
            Command::BumpEpoch(BumpEpoch {
                caller,
                scope: EpochScope::new(scope),
                expected: AuthorityEpoch(expected),
            })
        }),
    ]
    .boxed()
}

fn reconciling() -> BoxedStrategy<Command> {
    let candidate = (operation_key(), number(), number()).prop_map(|(operation, birth, epoch)| Candidate {
        operation,
        birth: Birth(birth),
        lease_epoch: LeaseEpoch(epoch),
    });
    let held = || (caller(), execution_id(), number(), text(), of(text()));
    prop_oneof![
        (caller(), text(), number(), any::<u32>(), vec(candidate, 0..4)).prop_map(
            |(caller, owner, lease_ms, limit, candidates)| {
                Command::ReconcileLease(ReconcileLease { caller, owner, lease_ms, limit, candidates })
            }
        ),
        (held(), any::<bool>()).prop_map(|(held, escalated)| {
            Command::Escalate(Escalate {
                caller: held.0,
                execution_id: held.1,
                lease_epoch: LeaseEpoch(held.2),
                escalated,
                reason: held.3,
                proof: held.4,
            })
        }),
        held().prop_map(|held| {
            Command::ForceFence(ForceFence {
                caller: held.0,
                execution_id: held.1,
                lease_epoch: LeaseEpoch(held.2),
                reason: held.3,
                proof: held.4,
            })
        }),
    ]
    .boxed()
}

fn repairing() -> BoxedStrategy<Command> {
    let kind = prop_oneof![
        Just(RepairKind::Quarantine),
        Just(RepairKind::Release),
        operation_id().prop_map(RepairKind::Supersede),
        Just(RepairKind::Close),
    ];
    (caller(), operation_id(), kind, state(), text(), of(text()))
        .prop_map(|(caller, operation_id, kind, expected, reason, proof)| {
            Command::Repair(Repair { caller, operation_id, kind, expected, reason, proof })
        })
        .boxed()
}

fn keeping_house() -> BoxedStrategy<Command> {
    let counted = (refusal_key(), any::<u32>()).prop_map(|(key, times)| CountedRefusal { key, times });
    prop_oneof![
        operation_key().prop_map(Command::Settle),
        (text(), text(), floors()).prop_map(|(tenant, namespace, floors)| {
            Command::RaiseFloors(RaiseFloors {
                tenant: TenantId::new(tenant),
                namespace: NamespaceName::new(namespace),
                floors,
            })
        }),
        vec(counted, 0..4).prop_map(Command::CountRefusals),
        (caller(), namespace(), expected()).prop_map(|(caller, record, expected)| {
            Command::PutNamespace(PutNamespace { caller, record, expected })
        }),
        (caller(), tenant(), expected())
            .prop_map(|(caller, record, expected)| { Command::PutTenant(PutTenant { caller, record, expected }) }),
        (caller(), token()).prop_map(|(caller, record)| Command::CreateToken(CreateToken { caller, record })),
        (caller(), text()).prop_map(|(caller, id)| Command::RevokeToken(RevokeToken { caller, id })),
    ]
    .boxed()
}

pub(super) fn command_of_authority() -> BoxedStrategy<Command> {
    prop_oneof![registering(), issuing(), reconciling(), repairing(), keeping_house()].boxed()
}

pub(super) fn answer_of_authority() -> BoxedStrategy<Answer> {
    let item = (operation_id(), execution_id(), any::<u32>(), (text(), text(), of(text())), number(), lease());
    let item = item.prop_map(|(operation_id, execution_id, attempt, texts, since, lease)| ReconcileItem {
        operation_id,
        execution_id,
        attempt: Attempt(attempt),
        namespace: NamespaceName::new(texts.0),
        effect_key: texts.1,
        correlation_id: texts.2.map(CorrelationId::new),
        unknown_since: WallTime(since),
        lease,
    });
    prop_oneof![
        (standing(), any::<bool>()).prop_map(|(standing, created)| Answer::Registered { standing, created }),
        (capability(), any::<bool>())
            .prop_map(|(record, created)| Answer::Capability { record: Box::new(record), created }),
        standing().prop_map(Answer::DuplicateDelivery),
        number().prop_map(|value| Answer::Epoch(AuthorityEpoch(value))),
        vec(item, 0..4).prop_map(Answer::Reconciling),
        floors().prop_map(Answer::Floors),
        Just(Answer::Counted),
        namespace().prop_map(|record| Answer::Namespace(Box::new(record))),
        tenant().prop_map(|record| Answer::Tenant(Box::new(record))),
        token().prop_map(|record| Answer::Token(Box::new(record))),
    ]
    .boxed()
}

fn consumption() -> impl Strategy<Value = Consumption> {
    (execution_id(), hash(), text(), number()).prop_map(|(execution, claim, client, at)| Consumption {
        execution,
        claim_id: ClaimId(claim),
        client: ClientId::new(client),
        at: WallTime(at),
    })
}

pub(crate) fn capability() -> BoxedStrategy<CapabilityRecord> {
    let bound = prop_oneof![
        (operation_id(), any::<u32>(), any::<u32>(), of(consumption())).prop_map(
            |(operation, attempt, effect, consumed)| Bound::Attempt {
                operation,
                attempt: Attempt(attempt),
                effect_attempt: Attempt(effect),
                consumed,
            }
        ),
        (text(), any::<u32>(), any::<u32>()).prop_map(|(resource, max_uses, used)| Bound::Resource {
            resource: Resource::new(resource),
            max_uses,
            used,
        }),
    ];
    let texts = (text(), text(), text(), text());
    let revoked = of((text(), of(text()), number()));
    (capability_id(), texts, bound, (number(), number()), of(binding()), revoked, any::<u32>())
        .prop_map(|(id, texts, bound, times, authority, revoked, refusals)| CapabilityRecord {
            id,
            tenant: TenantId::new(texts.0),
            namespace: NamespaceName::new(texts.1),
            client: ClientId::new(texts.2),
            decision: DecisionId::new(texts.3),
            bound,
            expires_at: WallTime(times.0),
            authority,
            issued_at: WallTime(times.1),
            revoked: revoked.map(|(client, reason, at)| Revocation {
                client: ClientId::new(client),
                reason,
                at: WallTime(at),
            }),
            refusals,
        })
        .boxed()
}

pub(crate) fn decision() -> impl Strategy<Value = DecisionRecord> {
    (capability_id(), hash()).prop_map(|(capability, terms)| DecisionRecord { capability, terms: ContentHash(terms) })
}

pub(crate) fn use_record() -> impl Strategy<Value = UseRecord> {
    (number(), consumption()).prop_map(|(birth, consumption)| UseRecord { birth: Birth(birth), consumption })
}

pub(crate) fn inbox() -> impl Strategy<Value = InboxRecord> {
    (text(), message(), operation_id(), hash(), of(capability_id()), (hash(), text(), number())).prop_map(
        |(tenant, message, operation, digest, capability, (claim, client, at))| InboxRecord {
            tenant: TenantId::new(tenant),
            message,
            operation,
            digest: Digest(digest),
            capability,
            claim_id: ClaimId(claim),
            client: ClientId::new(client),
            at: WallTime(at),
        },
    )
}

pub(crate) fn refusal_record() -> impl Strategy<Value = RefusalRecord> {
    let what = (refusal(), text(), of(capability_id()), of(message()), any::<bool>());
    let met = (of(operation_id()), of(state()), of(any::<u32>()));
    let counted = (number(), number(), any::<u32>());
    (what, met, text(), of(text()), counted, revision()).prop_map(
        |(what, met, client, correlation_id, counted, revision)| RefusalRecord {
            reason: what.0,
            namespace: NamespaceName::new(what.1),
            capability: what.2,
            message: what.3,
            known_redelivery: what.4,
            operation: met.0,
            state: met.1,
            attempt: met.2.map(Attempt),
            client: ClientId::new(client),
            correlation_id: correlation_id.map(CorrelationId::new),
            first_at: WallTime(counted.0),
            last_at: WallTime(counted.1),
            times: counted.2,
            revision,
        },
    )
}

pub(crate) fn status() -> impl Strategy<Value = NamespaceStatus> {
    (floors(), number(), number(), number(), any::<u32>()).prop_map(|(floors, open, unknown, since, granted)| {
        NamespaceStatus { floors, open, unknown, pace: Pace { since: LeaseTime(since), granted } }
    })
}

pub(crate) fn tenant() -> BoxedStrategy<TenantRecord> {
    (text(), any::<bool>(), any::<bool>(), of(any::<u32>()), number())
        .prop_map(|(id, system, disabled, requests_per_second, version)| TenantRecord {
            id: TenantId::new(id),
            system,
            disabled,
            requests_per_second,
            version: Version(version),
        })
        .boxed()
}

pub(crate) fn epoch() -> impl Strategy<Value = EpochRecord> {
    (text(), text(), number(), text(), number()).prop_map(|(tenant, scope, value, client, at)| EpochRecord {
        tenant: TenantId::new(tenant),
        scope: EpochScope::new(scope),
        value: AuthorityEpoch(value),
        client: ClientId::new(client),
        at: WallTime(at),
    })
}

/// The events of one entry.
pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (
        (any::<u32>(), any::<u32>()),
        (hash(), text()),
        operation_id(),
        state(),
        any::<u32>(),
        of(execution_id()),
        any::<(bool, bool)>(),
    );
    (revision(), vec(event, 1..5)).prop_map(|(at, events)| {
        let of_entry = events.into_iter().map(|(place, whose, operation, state, attempt, execution, flags)| Event {
            revision: Revision { ordinal: place.0, ..at },
            part: place.1,
            tenant: TenantTag(whose.0),
            namespace: NamespaceName::new(whose.1),
            operation,
            state,
            attempt: Attempt(attempt),
            execution,
            escalated: flags.0,
            quarantined: flags.1,
        });
        of_entry.collect()
    })
}
