//! Generators of every value of the machine that is stored or sent, for round trips; and the samples that literals pin.
//! Numbers cover their whole range: what the rules would never produce must still survive encoding.
//! What is large is boxed: a tree of tuples within tuples outgrows the stack of a test.

use hapax_machine::change::Head;
use hapax_machine::clock::{Clocks, Stamp};
use hapax_machine::command::*;
use hapax_machine::evidence::{EvidenceRecord, Source};
use hapax_machine::grant::GrantCounter;
use hapax_machine::ids::*;
use hapax_machine::namespace::{
    Attempts, Authority, ConflictStyle, ExpiredKeys, NamespaceRecord, OnLapse, Quota, Retention, Scope,
};
use hapax_machine::operation::*;
use hapax_machine::outcome::{Answer, Grant, Lease, Outcome, Receipt, Refusal, Refused, Standing};
use hapax_machine::tenant::TokenRecord;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

mod authority;

pub(crate) use authority::{capability, decision, epoch, events, inbox, refusal_record, status, tenant, use_record};

use self::authority::{answer_of_authority, binding, capability_id, command_of_authority, message};
use crate::command::Batch;
use crate::log::LogId;
use crate::record::Applied;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9_.-]{0,12}", "\\PC{0,6}"]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0u64..1 << 50, 0u64..300]
}

fn hash<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    any::<u64>().prop_map(|seed| std::array::from_fn(|n| (seed.rotate_left(n as u32 * 5)) as u8))
}

fn body() -> impl Strategy<Value = Body> {
    vec(any::<u8>(), 0..40)
}

fn operation_key() -> impl Strategy<Value = OperationKey> {
    (hash(), hash()).prop_map(|(tenant, hash)| OperationKey { tenant: TenantTag(tenant), hash })
}

fn operation_id() -> impl Strategy<Value = OperationId> {
    (any::<u16>(), hash(), number()).prop_map(|(slot, hash, birth)| OperationId {
        slot: Slot(slot),
        hash,
        birth: Birth(birth),
    })
}

fn execution_id() -> impl Strategy<Value = ExecutionId> {
    (any::<u16>(), hash()).prop_map(|(slot, random)| ExecutionId { slot: Slot(slot), random })
}

fn revision() -> impl Strategy<Value = Revision> {
    (any::<u32>(), any::<u32>(), number(), any::<u32>()).prop_map(|(incarnation, group, index, ordinal)| Revision {
        incarnation: Incarnation(incarnation),
        group: GroupId(group),
        index,
        ordinal,
    })
}

fn state() -> impl Strategy<Value = State> {
    prop::sample::select(vec![
        State::Requested,
        State::Executing,
        State::Unknown,
        State::NotApplied,
        State::Completed,
        State::Failed,
    ])
}

fn definite() -> impl Strategy<Value = Definite> {
    prop::sample::select(vec![Definite::Completed, Definite::Failed, Definite::NotApplied])
}

fn style() -> impl Strategy<Value = ConflictStyle> {
    prop::sample::select(vec![ConflictStyle::Hapax, ConflictStyle::Ietf])
}

fn caller() -> BoxedStrategy<Caller> {
    (text(), text(), vec(text().prop_map(NamespaceName::new), 0..3))
        .prop_map(|(tenant, client, namespaces)| Caller {
            tenant: TenantId::new(tenant),
            client: ClientId::new(client),
            namespaces,
        })
        .boxed()
}

fn result_data() -> BoxedStrategy<ResultData> {
    let first = (of(any::<u16>()), of(text()), of(body()), of(text()));
    (first, of(hash()), of(text()), of(text()))
        .prop_map(|(first, digest, external_id, reason)| ResultData {
            status_code: first.0,
            schema_version: first.1,
            result: first.2,
            result_ref: first.3,
            result_digest: digest.map(Digest),
            external_id,
            reason,
        })
        .boxed()
}

fn claim() -> BoxedStrategy<Claim> {
    let who = (caller(), text(), text(), of(text()));
    let what = (hash(), any::<u16>(), hash(), hash(), execution_id());
    let presented = (of(capability_id()), of(message()), of(binding()), of(text()), of(number()));
    (who, what, number(), of(any::<u32>()), presented)
        .prop_map(|(who, what, lease_ms, attempt, presented)| Claim {
            caller: who.0,
            namespace: NamespaceName::new(who.1),
            owner: who.2,
            correlation_id: who.3.map(CorrelationId::new),
            internal_key: InternalKey(what.0),
            slot: Slot(what.1),
            digest: Digest(what.2),
            claim_id: ClaimId(what.3),
            execution_id: what.4,
            lease_ms,
            attempt: attempt.map(Attempt),
            capability_id: presented.0,
            message: presented.1,
            epoch: presented.2,
            resource: presented.3.map(Resource::new),
            key_created_at: presented.4.map(WallTime),
        })
        .boxed()
}

fn command() -> BoxedStrategy<Command> {
    let owned = || (caller(), execution_id(), number().prop_map(LeaseEpoch));
    prop_oneof![
        4 => claim().prop_map(Command::Claim),
        1 => (owned(), number()).prop_map(|((caller, execution_id, lease_epoch), lease_ms)| {
            Command::Renew(Renew { caller, execution_id, lease_epoch, lease_ms })
        }),
        1 => (owned(), of(definite()), result_data()).prop_map(|((caller, execution_id, lease_epoch), outcome, data)| {
            Command::Report(Report { caller, execution_id, lease_epoch, outcome, data })
        }),
        1 => (owned(), hash(), definite(), result_data(), of(text())).prop_map(|(owned, claim, outcome, data, proof)| {
            Command::Evidence(Evidence {
                caller: owned.0, execution_id: owned.1, claim_id: ClaimId(claim), outcome, data, proof,
            })
        }),
        1 => (owned(), definite(), result_data(), text()).prop_map(|(owned, outcome, data, proof)| {
            Command::Resolve(Resolve {
                caller: owned.0, execution_id: owned.1, lease_epoch: owned.2, outcome, data, proof,
            })
        }),
        1 => (operation_key(), number(), number()).prop_map(|(operation, epoch, deadline)| {
            Command::Lapse(Lapse { operation, lease_epoch: LeaseEpoch(epoch), deadline: LeaseTime(deadline) })
        }),
        1 => (number(), any::<bool>()).prop_map(|(target, by_operator)| {
            Command::AdvanceWall(AdvanceWall { target: WallTime(target), by_operator })
        }),
        1 => (hash(), number(), vec(namespace(), 0..3), vec(token(), 0..3), vec(tenant(), 0..3)).prop_map(
            |(cluster_id, wall_ms, namespaces, tokens, tenants)| {
                Command::Bootstrap(Bootstrap { cluster_id, wall_ms, namespaces, tokens, tenants })
            }
        ),
        8 => command_of_authority(),
        1 => Just(Command::Tick),
    ]
.boxed()
}

pub(crate) fn envelope() -> impl Strategy<Value = Envelope> {
    (number(), command()).prop_map(|(at, command)| Envelope { not_after: LeaseTime(at), command })
}

pub(crate) fn batch() -> impl Strategy<Value = Batch> {
    (any::<u16>(), number(), number(), number(), vec(envelope(), 0..5)).prop_map(
        |(rules, wall_ms, lead_ms, term, envelopes)| Batch {
            rules: RuleVersion(rules),
            stamp: Stamp { wall_ms, lead_ms },
            term,
            envelopes,
        },
    )
}

fn standing() -> BoxedStrategy<Standing> {
    let ids = (operation_id(), of(execution_id()), any::<u32>());
    (ids, state(), of(number()), text(), style())
        .prop_map(|(ids, state, left, namespace, style)| Standing {
            operation_id: ids.0,
            execution_id: ids.1,
            attempt: Attempt(ids.2),
            state,
            lease_remaining_ms: left,
            namespace: NamespaceName::new(namespace),
            conflict_style: style,
        })
        .boxed()
}

fn lease() -> impl Strategy<Value = Lease> {
    (number(), number()).prop_map(|(epoch, remaining_ms)| Lease { lease_epoch: LeaseEpoch(epoch), remaining_ms })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        prop::sample::select(vec![
            Refusal::NotFound,
            Refusal::ClaimIdReused,
            Refusal::LeaseLost,
            Refusal::LeaseStaleEpoch,
            Refusal::KeyDigestMismatch,
            Refusal::OperationQuarantined,
            Refusal::OperationExecuting,
            Refusal::OutcomeUnknown,
            Refusal::OutcomeConflict,
            Refusal::WallStep,
            Refusal::AlreadyBootstrapped,
            Refusal::DeliveryMismatch,
            Refusal::CapabilityAlreadyConsumed,
            Refusal::CapabilityRevoked,
            Refusal::CapabilityExpired,
            Refusal::CapabilityInvalid,
            Refusal::CapabilityBindingMismatch,
            Refusal::CapabilityRequired,
            Refusal::EpochStale,
            Refusal::EpochUnknown,
            Refusal::OperationCompleted,
            Refusal::OperationFailed,
            Refusal::KeyRetentionElapsed,
            Refusal::KeyCreationTime,
            Refusal::DecisionReused,
            Refusal::QuotaExceeded,
            Refusal::PolicyFixed,
            Refusal::VersionMismatch,
            Refusal::NotYours,
            Refusal::NotASuccessor,
        ]),
        any::<u32>().prop_map(|due| Refusal::AttemptMismatch { due: Attempt(due) }),
        number().prop_map(|value| Refusal::RegisterStands { value: AuthorityEpoch(value) }),
        state().prop_map(|state| Refusal::OperationState { state }),
    ]
}

fn answer() -> BoxedStrategy<Answer> {
    let grant = (operation_id(), execution_id(), any::<u32>(), hash(), lease(), text()).prop_map(
        |(operation_id, execution_id, attempt, claim, lease, effect_key)| Grant {
            operation_id,
            execution_id,
            attempt: Attempt(attempt),
            claim_id: ClaimId(claim),
            lease,
            effect_key,
        },
    );
    prop_oneof![
        grant.prop_map(Answer::Claimed),
        standing().prop_map(Answer::InProgress),
        (standing(), outcome_record(), of(body()))
            .prop_map(|(standing, outcome, result)| { Answer::Replayed(Receipt { standing, outcome, result }) }),
        lease().prop_map(Answer::Renewed),
        standing().prop_map(Answer::Accepted),
        any::<bool>().prop_map(|changed| Answer::Lapsed { changed }),
        number().prop_map(|at| Answer::Wall(WallTime(at))),
        Just(Answer::Bootstrapped),
        Just(Answer::Ticked),
        (refusal(), of(operation_id()), style()).prop_map(|(reason, operation_id, conflict_style)| {
            Answer::Refused(Refused { reason, operation_id, conflict_style })
        }),
        Just(Answer::TooLate),
        answer_of_authority(),
    ]
    .boxed()
}

pub(crate) fn outcome() -> impl Strategy<Value = Outcome> {
    (revision(), answer()).prop_map(|(revision, answer)| Outcome { revision, answer })
}

fn outcome_record() -> BoxedStrategy<OutcomeRecord> {
    (definite(), result_data(), any::<bool>(), number())
        .prop_map(|(outcome, data, has_result, at)| OutcomeRecord {
            outcome,
            status_code: data.status_code,
            schema_version: data.schema_version,
            has_result,
            result_ref: data.result_ref,
            result_digest: data.result_digest,
            external_id: data.external_id,
            reason: data.reason,
            at: WallTime(at),
        })
        .boxed()
}

fn execution() -> BoxedStrategy<Execution> {
    let who = (execution_id(), any::<u32>(), state(), text(), text(), hash(), hash());
    let times = (number(), number(), number(), of(number()), of(number()));
    let report = of((number(), hash()));
    let authority = (of(capability_id()), vec(binding(), 0..3), any::<bool>(), any::<u32>());
    let said = (of(outcome_record()), of((definite(), of(text()))), of((text(), text(), number())));
    (who, times, any::<(bool, bool)>(), report, authority, said)
        .prop_map(|(who, times, flags, report, authority, said)| Execution {
            id: who.0,
            attempt: Attempt(who.1),
            state: who.2,
            owner: who.3,
            client: ClientId::new(who.4),
            claim_id: ClaimId(who.5),
            request_hash: ContentHash(who.6),
            opened_at: WallTime(times.2),
            capability: authority.0,
            authority: authority.1,
            effect_attempt: Attempt(if authority.2 { who.1 } else { authority.3 }),
            lease_epoch: LeaseEpoch(times.0),
            deadline: LeaseTime(times.1),
            renewed: flags.0,
            sole_holder: flags.1,
            report: report.map(|(epoch, content)| AcceptedReport {
                lease_epoch: LeaseEpoch(epoch),
                content: ContentHash(content),
            }),
            unknown_since: times.3.map(WallTime),
            claimed: said.1.map(|(outcome, external_id)| ClaimedOutcome { outcome, external_id }),
            reconciler: said.2.map(|(owner, client, deadline)| Reconciler {
                owner,
                client: ClientId::new(client),
                deadline: LeaseTime(deadline),
            }),
            escalated_at: times.4.map(WallTime),
            outcome: said.0,
        })
        .boxed()
}

pub(crate) fn operation_record() -> BoxedStrategy<OperationRecord> {
    let identity = (operation_id(), hash(), any::<bool>(), text(), text(), hash(), of(text()));
    let times = (number(), number(), of(number()), revision(), of(number()));
    let count = || prop_oneof![Just(0), any::<u32>()];
    let counts = (any::<u32>(), any::<u32>(), count(), count());
    let said = (of(hash()), of(hash()), of(hash()));
    let links = (of(operation_id()), of(operation_id()), of(text()), of((text(), text(), number())));
    (identity, times, any::<bool>(), counts, said, links, of(execution()))
        .prop_map(|(identity, times, quarantined, counts, said, links, execution)| {
            let (mut id, key): (OperationId, [u8; 32]) = (identity.0, identity.1);
            if identity.2 {
                id.hash.copy_from_slice(&key[..20]);
            }
            OperationRecord {
                id,
                internal_key: InternalKey(key),
                tenant: TenantId::new(identity.3),
                namespace: NamespaceName::new(identity.4),
                digest: Digest(identity.5),
                correlation_id: identity.6.map(CorrelationId::new),
                created_at: WallTime(times.0),
                updated_at: WallTime(times.1),
                modified: times.3,
                terminal_at: times.2.map(WallTime),
                quarantined,
                grants: counts.0,
                evidence: counts.1,
                said: said.0.map(ContentHash),
                chain: said.1.map(ContentHash),
                forgiven: said.2.map(ContentHash),
                refusals: counts.2,
                capabilities: counts.3,
                resource: links.2.map(Resource::new),
                key_created_at: times.4.map(WallTime),
                superseded_by: links.0,
                supersedes: links.1,
                closed: links.3.map(|(client, reason, at)| Closed {
                    client: ClientId::new(client),
                    reason,
                    at: WallTime(at),
                }),
                execution,
            }
        })
        .boxed()
}

pub(crate) fn execution_record() -> impl Strategy<Value = ExecutionRecord> {
    (operation_key(), number(), of(execution())).prop_map(|(operation, birth, past)| ExecutionRecord {
        operation,
        birth: Birth(birth),
        past: past.map(Box::new),
    })
}

pub(crate) fn grant_record() -> impl Strategy<Value = GrantRecord> {
    (execution_id(), text(), hash(), number()).prop_map(|(execution, client, hash, epoch)| GrantRecord {
        execution,
        client: ClientId::new(client),
        request_hash: ContentHash(hash),
        lease_epoch: LeaseEpoch(epoch),
    })
}

pub(crate) fn evidence_record() -> impl Strategy<Value = EvidenceRecord> {
    let source = prop::sample::select(vec![
        Source::Report,
        Source::Evidence,
        Source::Resolve,
        Source::Fence,
        Source::Escalate,
        Source::Deescalate,
        Source::Quarantine,
        Source::Release,
        Source::Supersede,
        Source::Close,
    ]);
    let said = (of(hash()), of(number()), of(definite()), of(text()), of(text()), of(text()), of(operation_id()));
    (source, text(), of(execution_id()), said, state(), number(), (revision(), hash())).prop_map(
        |(source, client, execution, said, met, at, (revision, chain))| EvidenceRecord {
            source,
            client: ClientId::new(client),
            execution,
            claim_id: said.0.map(ClaimId),
            lease_epoch: said.1.map(LeaseEpoch),
            outcome: said.2,
            external_id: said.3,
            by: said.6,
            reason: said.4,
            proof: said.5,
            met,
            at: WallTime(at),
            revision,
            chain: ContentHash(chain),
        },
    )
}

pub(crate) fn namespace() -> BoxedStrategy<NamespaceRecord> {
    let names = (text(), text(), vec(text(), 0..3), any::<u32>());
    let expired = prop::sample::select(vec![ExpiredKeys::New, ExpiredKeys::RejectOlder, ExpiredKeys::Durable]);
    let bounds = (number(), number(), expired, any::<u32>(), number());
    let quota = (of(number()), of(any::<u32>()), of(any::<u32>()), of(number()));
    (names, any::<(bool, bool, bool, bool)>(), style(), bounds, quota)
        .prop_map(|(names, policy, style, bounds, quota)| NamespaceRecord {
            tenant: TenantId::new(names.0),
            name: NamespaceName::new(names.1),
            scope: if policy.0 { Scope::Namespace } else { Scope::Client },
            on_lapse: if policy.1 { OnLapse::Unknown } else { OnLapse::Takeover },
            attempts: if policy.2 { Attempts::Automatic } else { Attempts::Explicit },
            conflict_style: style,
            transport_fields: names.2,
            partitions: names.3,
            authority: if policy.3 { Authority::Inline } else { Authority::Capability },
            retention: Retention { body_ms: bounds.0, identity_ms: bounds.1, expired_keys: bounds.2 },
            reconcile_per_minute: bounds.3,
            quota: Quota { open_operations: quota.0, requests_per_second: quota.1, key_claims_per_second: quota.2 },
            takeover_since: quota.3.map(LeaseTime),
            version: Version(bounds.4),
        })
        .boxed()
}

pub(crate) fn token() -> BoxedStrategy<TokenRecord> {
    let times = (of(number()), number(), of(number()));
    (text(), hash(), caller(), any::<u32>(), times)
        .prop_map(|(id, secret_hash, caller, roles, times)| TokenRecord {
            id,
            secret_hash,
            tenant: caller.tenant,
            client: caller.client,
            namespaces: caller.namespaces,
            roles,
            expires_at_ms: times.0,
            created_at: WallTime(times.1),
            revoked_at: times.2.map(WallTime),
        })
        .boxed()
}

pub(crate) fn head() -> impl Strategy<Value = Head> {
    (hash(), any::<u32>(), (number(), number(), number(), number()), number(), hash()).prop_map(
        |(cluster_id, incarnation, clocks, grants, state_hash)| Head {
            cluster_id,
            incarnation: Incarnation(incarnation),
            clocks: Clocks {
                term: clocks.0,
                lead_ms: clocks.1,
                lease_time: LeaseTime(clocks.2),
                wall: WallTime(clocks.3),
            },
            grants: GrantCounter(grants),
            state_hash,
        },
    )
}

pub(crate) fn applied() -> impl Strategy<Value = Applied> {
    (of((number(), number(), number())), vec(any::<u8>(), 0..20)).prop_map(|(id, membership)| Applied {
        last_applied: id.map(|(term, node, index)| LogId { term, node, index }),
        membership,
    })
}
