//! The rows about authority, policy and the record: each of their fields counts too.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::capability::Revocation;
use crate::namespace::{
    Attempts, Authority, ConflictStyle, ExpiredKeys, Floors, OnLapse, Pace, Quota, Retention, Scope,
};

/// Rows whose keys are not part of their record.
type StatusRow = (TenantId, NamespaceName, NamespaceStatus);
type DecisionRow = (DecisionKey, DecisionRecord);
type UseRow = (TenantTag, CapabilityId, OperationKey, UseRecord);
type InboxRow = (InboxKey, InboxRecord);
type RefusalRow = (RefusalKey, RefusalRecord);

#[test]
fn every_field_of_a_namespace_counts() {
    let record = NamespaceRecord {
        tenant: TenantId::new("tenant"),
        name: NamespaceName::new("name"),
        scope: Scope::Namespace,
        on_lapse: OnLapse::Unknown,
        attempts: Attempts::Automatic,
        conflict_style: ConflictStyle::Hapax,
        transport_fields: vec!["a".into()],
        partitions: 1,
        authority: Authority::Inline,
        retention: Retention { body_ms: 1, identity_ms: 2, expired_keys: ExpiredKeys::New },
        reconcile_per_minute: 3,
        quota: Quota { open_operations: Some(4), requests_per_second: Some(5), key_claims_per_second: Some(6) },
        takeover_since: Some(LeaseTime(8)),
        version: Version(7),
    };
    let changes: [fn(&mut NamespaceRecord); 21] = [
        |it| it.tenant = TenantId::new("other"),
        |it| it.name = NamespaceName::new("other"),
        |it| it.scope = Scope::Client,
        |it| it.on_lapse = OnLapse::Takeover,
        |it| it.attempts = Attempts::Explicit,
        |it| it.conflict_style = ConflictStyle::Ietf,
        |it| it.transport_fields.clear(),
        |it| it.transport_fields[0] = "b".into(),
        |it| it.partitions = 2,
        |it| it.authority = Authority::Capability,
        |it| it.retention.body_ms = 9,
        |it| it.retention.identity_ms = 9,
        |it| it.retention.expired_keys = ExpiredKeys::RejectOlder,
        |it| it.retention.expired_keys = ExpiredKeys::Durable,
        |it| it.reconcile_per_minute = 9,
        |it| it.quota.open_operations = None,
        |it| it.quota.requests_per_second = None,
        |it| it.quota.key_claims_per_second = None,
        |it| it.takeover_since = None,
        |it| it.takeover_since = Some(LeaseTime(9)),
        |it| it.version = Version(9),
    ];
    each_counts(&record, Change::Namespace, &changes);
}

#[test]
fn every_field_of_a_status_counts() {
    let record = NamespaceStatus {
        floors: Floors { compact_before: WallTime(1), forget_before: WallTime(2) },
        open: 3,
        unknown: 4,
        pace: Pace { since: LeaseTime(5), granted: 6 },
    };
    let row = |(tenant, name, record)| Change::Status(tenant, name, record);
    let changes: [fn(&mut StatusRow); 8] = [
        |it| it.0 = TenantId::new("other"),
        |it| it.1 = NamespaceName::new("other"),
        |it| it.2.floors.compact_before = WallTime(9),
        |it| it.2.floors.forget_before = WallTime(9),
        |it| it.2.open = 9,
        |it| it.2.unknown = 9,
        |it| it.2.pace.since = LeaseTime(9),
        |it| it.2.pace.granted = 9,
    ];
    each_counts(&(TenantId::new("tenant"), NamespaceName::new("name"), record), row, &changes);
}

#[test]
fn every_field_of_a_tenant_counts() {
    let record = TenantRecord {
        id: TenantId::new("id"),
        system: false,
        disabled: false,
        requests_per_second: Some(1),
        version: Version(2),
    };
    let changes: [fn(&mut TenantRecord); 5] = [
        |it| it.id = TenantId::new("other"),
        |it| it.system = true,
        |it| it.disabled = true,
        |it| it.requests_per_second = None,
        |it| it.version = Version(9),
    ];
    each_counts(&record, Change::Tenant, &changes);
}

#[test]
fn every_field_of_a_token_counts() {
    let record = TokenRecord {
        id: "id".into(),
        secret_hash: [1; 32],
        tenant: TenantId::new("tenant"),
        client: ClientId::new("client"),
        namespaces: vec![NamespaceName::new("a")],
        roles: 1,
        expires_at_ms: Some(1),
        created_at: WallTime(2),
        revoked_at: None,
    };
    let changes: [fn(&mut TokenRecord); 10] = [
        |it| it.id = "other".into(),
        |it| it.secret_hash = [9; 32],
        |it| it.tenant = TenantId::new("other"),
        |it| it.client = ClientId::new("other"),
        |it| it.namespaces.clear(),
        |it| it.namespaces[0] = NamespaceName::new("b"),
        |it| it.roles = 2,
        |it| it.expires_at_ms = None,
        |it| it.created_at = WallTime(9),
        |it| it.revoked_at = Some(WallTime(9)),
    ];
    each_counts(&record, Change::Token, &changes);
}

#[test]
fn every_field_of_a_register_counts() {
    let record = EpochRecord {
        tenant: TenantId::new("tenant"),
        scope: EpochScope::new("scope"),
        value: AuthorityEpoch(1),
        client: ClientId::new("client"),
        at: WallTime(2),
    };
    let changes: [fn(&mut EpochRecord); 5] = [
        |it| it.tenant = TenantId::new("other"),
        |it| it.scope = EpochScope::new("other"),
        |it| it.value = AuthorityEpoch(9),
        |it| it.client = ClientId::new("other"),
        |it| it.at = WallTime(9),
    ];
    each_counts(&record, Change::Epoch, &changes);
}

fn consumption() -> Consumption {
    Consumption {
        execution: execution_id(),
        claim_id: ClaimId([1; 16]),
        client: ClientId::new("client"),
        at: WallTime(2),
    }
}

fn capability_record(bound: Bound) -> CapabilityRecord {
    CapabilityRecord {
        id: capability_id(),
        tenant: TenantId::new("tenant"),
        namespace: NamespaceName::new("namespace"),
        client: ClientId::new("client"),
        decision: DecisionId::new("decision"),
        bound,
        expires_at: WallTime(1),
        authority: Some(binding()),
        issued_at: WallTime(2),
        revoked: Some(Revocation { client: ClientId::new("client"), reason: Some("reason".into()), at: WallTime(3) }),
        refusals: 4,
    }
}

fn of_attempt() -> Bound {
    Bound::Attempt {
        operation: operation_id(1),
        attempt: Attempt(2),
        effect_attempt: Attempt(1),
        consumed: Some(consumption()),
    }
}

fn of_resource() -> Bound {
    Bound::Resource { resource: Resource::new("resource"), max_uses: 2, used: 1 }
}

fn revocation(it: &mut CapabilityRecord) -> &mut Revocation {
    it.revoked.as_mut().expect("it is")
}

#[test]
fn every_field_of_a_capability_counts() {
    let changes: [fn(&mut CapabilityRecord); 16] = [
        |it| it.id.slot = Slot(9),
        |it| it.id.random = [9; 16],
        |it| it.tenant = TenantId::new("other"),
        |it| it.namespace = NamespaceName::new("other"),
        |it| it.client = ClientId::new("other"),
        |it| it.decision = DecisionId::new("other"),
        |it| it.expires_at = WallTime(9),
        |it| it.authority = None,
        |it| it.authority = Some(Binding { scope: EpochScope::new("other"), ..binding() }),
        |it| it.authority = Some(Binding { value: AuthorityEpoch(9), ..binding() }),
        |it| it.issued_at = WallTime(9),
        |it| it.revoked = None,
        |it| revocation(it).client = ClientId::new("other"),
        |it| revocation(it).reason = None,
        |it| revocation(it).at = WallTime(9),
        |it| it.refusals = 9,
    ];
    each_counts(&capability_record(of_attempt()), Change::Capability, &changes);
    each_counts(&capability_record(of_resource()), Change::Capability, &changes);
}

#[test]
fn everything_that_a_capability_is_bound_to_counts() {
    let attempt = |operation, attempt, effect_attempt, consumed| Bound::Attempt {
        operation,
        attempt,
        effect_attempt,
        consumed,
    };
    let resource = |name: &str, max_uses, used| Bound::Resource { resource: Resource::new(name), max_uses, used };
    let by = |change: fn(&mut Consumption)| {
        let mut consumed = consumption();
        change(&mut consumed);
        attempt(operation_id(1), Attempt(2), Attempt(1), Some(consumed))
    };
    let all = [
        of_attempt(),
        attempt(operation_id(9), Attempt(2), Attempt(1), Some(consumption())),
        attempt(OperationId { slot: Slot(9), ..operation_id(1) }, Attempt(2), Attempt(1), Some(consumption())),
        attempt(OperationId { hash: [9; 20], ..operation_id(1) }, Attempt(2), Attempt(1), Some(consumption())),
        attempt(operation_id(1), Attempt(9), Attempt(1), Some(consumption())),
        attempt(operation_id(1), Attempt(2), Attempt(9), Some(consumption())),
        attempt(operation_id(1), Attempt(2), Attempt(1), None),
        by(|it| it.execution.slot = Slot(9)),
        by(|it| it.execution.random = [9; 16]),
        by(|it| it.claim_id = ClaimId([9; 16])),
        by(|it| it.client = ClientId::new("other")),
        by(|it| it.at = WallTime(9)),
        of_resource(),
        resource("other", 2, 1),
        resource("resource", 9, 1),
        resource("resource", 2, 9),
    ];
    let hashes: Vec<_> = all.into_iter().map(|bound| hash_of(Change::Capability(capability_record(bound)))).collect();
    for (number, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..number].contains(hash), "bound {number} does not count");
    }
}

#[test]
fn every_field_of_a_decision_counts() {
    let key = DecisionKey { tenant: TenantTag([1; 8]), hash: [2; 20] };
    let record = DecisionRecord { capability: capability_id(), terms: ContentHash([3; 32]) };
    let changes: [fn(&mut DecisionRow); 5] = [
        |it| it.0.tenant = TenantTag([9; 8]),
        |it| it.0.hash = [9; 20],
        |it| it.1.capability.slot = Slot(9),
        |it| it.1.capability.random = [9; 16],
        |it| it.1.terms = ContentHash([9; 32]),
    ];
    each_counts(&(key, record), |(key, record)| Change::Decision(key, record), &changes);
}

#[test]
fn every_field_of_a_use_counts() {
    let record = UseRecord { birth: Birth(1), consumption: consumption() };
    let row = |(tenant, id, key, record)| Change::Use(tenant, id, key, record);
    let changes: [fn(&mut UseRow); 11] = [
        |it| it.0 = TenantTag([9; 8]),
        |it| it.1.slot = Slot(9),
        |it| it.1.random = [9; 16],
        |it| it.2.tenant = TenantTag([9; 8]),
        |it| it.2.hash = [9; 20],
        |it| it.3.birth = Birth(9),
        |it| it.3.consumption.execution.slot = Slot(9),
        |it| it.3.consumption.execution.random = [9; 16],
        |it| it.3.consumption.claim_id = ClaimId([9; 16]),
        |it| it.3.consumption.client = ClientId::new("other"),
        |it| it.3.consumption.at = WallTime(9),
    ];
    each_counts(&(TenantTag([1; 8]), capability_id(), key(), record), row, &changes);
}

fn message() -> Message {
    Message { consumer: Consumer::new("consumer"), id: MessageId::new("id") }
}

#[test]
fn every_field_of_an_inbox_row_counts() {
    let key = InboxKey { tenant: TenantTag([1; 8]), hash: [2; 20] };
    let record = InboxRecord {
        tenant: TenantId::new("tenant"),
        message: message(),
        operation: operation_id(1),
        digest: Digest([2; 32]),
        capability: Some(capability_id()),
        claim_id: ClaimId([3; 16]),
        client: ClientId::new("client"),
        at: WallTime(4),
    };
    let changes: [fn(&mut InboxRow); 13] = [
        |it| it.0.tenant = TenantTag([9; 8]),
        |it| it.0.hash = [9; 20],
        |it| it.1.tenant = TenantId::new("other"),
        |it| it.1.message.consumer = Consumer::new("other"),
        |it| it.1.message.id = MessageId::new("other"),
        |it| it.1.operation.slot = Slot(9),
        |it| it.1.operation.hash = [9; 20],
        |it| it.1.operation.birth = Birth(9),
        |it| it.1.digest = Digest([9; 32]),
        |it| it.1.capability = None,
        |it| it.1.claim_id = ClaimId([9; 16]),
        |it| it.1.client = ClientId::new("other"),
        |it| it.1.at = WallTime(9),
    ];
    each_counts(&(key, record), |(key, record)| Change::Inbox(key, record), &changes);
}

fn refusal_record() -> RefusalRecord {
    RefusalRecord {
        reason: Refusal::CapabilityExpired,
        namespace: NamespaceName::new("namespace"),
        capability: Some(capability_id()),
        message: Some(message()),
        known_redelivery: false,
        operation: Some(operation_id(1)),
        state: Some(State::Executing),
        attempt: Some(Attempt(2)),
        client: ClientId::new("client"),
        correlation_id: Some(CorrelationId::new("story")),
        first_at: WallTime(3),
        last_at: WallTime(4),
        times: 5,
        revision: revision(),
    }
}

#[test]
fn every_field_of_a_refusal_counts() {
    let key = RefusalKey { tenant: TenantTag([1; 8]), subject: Subject::Capability(capability_id()), hash: [2; 16] };
    let changes: [fn(&mut RefusalRow); 25] = [
        |it| it.0.tenant = TenantTag([9; 8]),
        |it| it.0.subject = Subject::Capability(CapabilityId { slot: Slot(9), ..capability_id() }),
        |it| it.0.subject = Subject::Capability(CapabilityId { random: [9; 16], ..capability_id() }),
        |it| it.0.subject = Subject::Operation([2; 20], Birth(1)),
        |it| it.0.subject = Subject::Operation([9; 20], Birth(1)),
        |it| it.0.subject = Subject::Operation([2; 20], Birth(9)),
        |it| it.0.hash = [9; 16],
        |it| it.1.reason = Refusal::CapabilityRevoked,
        |it| it.1.namespace = NamespaceName::new("other"),
        |it| it.1.capability = None,
        |it| it.1.message = None,
        |it| it.1.message = Some(Message { consumer: Consumer::new("other"), ..message() }),
        |it| it.1.message = Some(Message { id: MessageId::new("other"), ..message() }),
        |it| it.1.known_redelivery = true,
        |it| it.1.operation = None,
        |it| it.1.state = None,
        |it| it.1.state = Some(State::Unknown),
        |it| it.1.attempt = None,
        |it| it.1.attempt = Some(Attempt(9)),
        |it| it.1.client = ClientId::new("other"),
        |it| it.1.correlation_id = None,
        |it| it.1.first_at = WallTime(9),
        |it| it.1.last_at = WallTime(9),
        |it| it.1.times = 9,
        |it| it.1.revision.index = 9,
    ];
    each_counts(&(key, refusal_record()), |(key, record)| Change::Refusal(key, record), &changes);
}

/// Every reason has a number of its own, and what it tells besides counts too.
#[test]
fn every_reason_of_a_refusal_counts() {
    use Refusal::*;
    let reasons = [
        NotFound,
        ClaimIdReused,
        LeaseLost,
        LeaseStaleEpoch,
        KeyDigestMismatch,
        OperationQuarantined,
        OperationExecuting,
        OutcomeUnknown,
        AttemptMismatch { due: Attempt(1) },
        AttemptMismatch { due: Attempt(2) },
        OutcomeConflict,
        DeliveryMismatch,
        CapabilityAlreadyConsumed,
        CapabilityRevoked,
        CapabilityExpired,
        CapabilityInvalid,
        CapabilityBindingMismatch,
        CapabilityRequired,
        EpochStale,
        EpochUnknown,
        RegisterStands { value: AuthorityEpoch(1) },
        RegisterStands { value: AuthorityEpoch(2) },
        OperationCompleted,
        OperationFailed,
        OperationState { state: State::Requested },
        OperationState { state: State::Failed },
        KeyRetentionElapsed,
        KeyCreationTime,
        DecisionReused,
        QuotaExceeded,
        PolicyFixed,
        VersionMismatch,
        NotASuccessor,
        NotYours,
        WallStep,
        AlreadyBootstrapped,
    ];
    let key = RefusalKey { tenant: TenantTag([1; 8]), subject: Subject::Capability(capability_id()), hash: [2; 16] };
    let hash = |reason| hash_of(Change::Refusal(key, RefusalRecord { reason, ..refusal_record() }));
    let hashes: Vec<_> = reasons.into_iter().map(hash).collect();
    for (number, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..number].contains(hash), "reason {number} does not count");
    }
}
