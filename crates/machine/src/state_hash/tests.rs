//! Every field of every record counts: two states that differ anywhere have different hashes.
//! Destructuring makes a new field a compile error in the hash; these tests show that each is really fed.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::clock::{Clocks, Stamp};
use crate::evidence::Source;
use crate::grant::GrantCounter;
use crate::ids::*;
use crate::namespace::{Attempts, ConflictStyle, OnLapse, Scope};
use crate::operation::{AcceptedReport, Definite, State};

fn entry() -> EntryHead {
    EntryHead { group: GroupId(1), index: 2, term: 3, rules: RuleVersion(1), stamp: Stamp::default() }
}

/// Rows whose keys are not part of their record.
type ExecutionRow = (TenantTag, ExecutionId, ExecutionRecord);
type GrantRow = (OperationKey, Birth, ClaimId, GrantRecord);
type BodyRow = (OperationKey, Birth, Vec<u8>);
type EvidenceRow = (OperationKey, Birth, u32, EvidenceRecord);

fn hash_of(row: Change) -> [u8; 32] {
    chained(&Head::default(), &entry(), &[row])
}

/// Changes one field at a time and demands that no two results, the unchanged one included, are equal.
fn each_counts<T: Clone>(base: &T, row: impl Fn(T) -> Change, changes: &[fn(&mut T)]) {
    let mut hashes = vec![hash_of(row(base.clone()))];
    for change in changes {
        let mut other = base.clone();
        change(&mut other);
        hashes.push(hash_of(row(other)));
    }
    for (number, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..number].contains(hash), "change {number} does not count");
    }
}

fn text(value: &str) -> Option<String> {
    Some(value.into())
}

fn execution_id() -> ExecutionId {
    ExecutionId { slot: Slot(1), random: [2; 16] }
}

fn revision() -> Revision {
    Revision { incarnation: Incarnation(1), group: GroupId(2), index: 3, ordinal: 4 }
}

fn key() -> OperationKey {
    OperationKey { tenant: TenantTag([1; 8]), hash: [2; 20] }
}

fn outcome_record() -> OutcomeRecord {
    OutcomeRecord {
        outcome: Definite::Completed,
        status_code: Some(1),
        schema_version: text("1"),
        has_result: false,
        result_ref: text("2"),
        result_digest: Some(Digest([3; 32])),
        external_id: text("4"),
        reason: text("5"),
        at: WallTime(6),
    }
}

fn execution_record() -> Execution {
    Execution {
        id: execution_id(),
        attempt: Attempt(3),
        state: State::Completed,
        owner: "owner".into(),
        client: ClientId::new("client"),
        claim_id: ClaimId([4; 16]),
        request_hash: ContentHash([5; 32]),
        lease_epoch: LeaseEpoch(6),
        deadline: LeaseTime(7),
        renewed: false,
        sole_holder: false,
        report: Some(AcceptedReport { lease_epoch: LeaseEpoch(8), content: ContentHash([9; 32]) }),
        unknown_since: Some(WallTime(10)),
        outcome: Some(outcome_record()),
    }
}

fn operation_record() -> OperationRecord {
    OperationRecord {
        id: OperationId { slot: Slot(1), hash: [2; 20], birth: Birth(3) },
        internal_key: InternalKey([4; 32]),
        tenant: TenantId::new("tenant"),
        namespace: NamespaceName::new("namespace"),
        digest: Digest([5; 32]),
        correlation_id: Some(CorrelationId::new("story")),
        created_at: WallTime(6),
        updated_at: WallTime(7),
        modified: revision(),
        terminal_at: Some(WallTime(8)),
        quarantined: false,
        grants: 9,
        evidence: 10,
        said: Some(ContentHash([11; 32])),
        execution: execution_record(),
    }
}

const EXECUTION_CHANGES: [fn(&mut Execution); 26] = [
    |it| it.id.slot = Slot(9),
    |it| it.id.random = [9; 16],
    |it| it.attempt = Attempt(9),
    |it| it.state = State::Failed,
    |it| it.owner = "other".into(),
    |it| it.client = ClientId::new("other"),
    |it| it.claim_id = ClaimId([9; 16]),
    |it| it.request_hash = ContentHash([8; 32]),
    |it| it.lease_epoch = LeaseEpoch(9),
    |it| it.deadline = LeaseTime(9),
    |it| it.renewed = true,
    |it| it.sole_holder = true,
    |it| it.report = None,
    |it| it.report = Some(AcceptedReport { lease_epoch: LeaseEpoch(9), content: ContentHash([9; 32]) }),
    |it| it.report = Some(AcceptedReport { lease_epoch: LeaseEpoch(8), content: ContentHash([8; 32]) }),
    |it| it.unknown_since = None,
    |it| it.outcome = None,
    |it| it.outcome = Some(OutcomeRecord { outcome: Definite::Failed, ..outcome_record() }),
    |it| it.outcome = Some(OutcomeRecord { status_code: None, ..outcome_record() }),
    |it| it.outcome = Some(OutcomeRecord { schema_version: None, ..outcome_record() }),
    |it| it.outcome = Some(OutcomeRecord { has_result: true, ..outcome_record() }),
    |it| it.outcome = Some(OutcomeRecord { result_ref: None, ..outcome_record() }),
    |it| it.outcome = Some(OutcomeRecord { result_digest: None, ..outcome_record() }),
    |it| it.outcome = Some(OutcomeRecord { external_id: None, ..outcome_record() }),
    |it| it.outcome = Some(OutcomeRecord { reason: None, ..outcome_record() }),
    |it| it.outcome = Some(OutcomeRecord { at: WallTime(9), ..outcome_record() }),
];

#[test]
fn every_field_of_an_operation_counts() {
    let changes: [fn(&mut OperationRecord); 20] = [
        |it| it.id.slot = Slot(9),
        |it| it.id.hash = [9; 20],
        |it| it.id.birth = Birth(9),
        |it| it.internal_key = InternalKey([9; 32]),
        |it| it.tenant = TenantId::new("other"),
        |it| it.namespace = NamespaceName::new("other"),
        |it| it.digest = Digest([9; 32]),
        |it| it.correlation_id = None,
        |it| it.created_at = WallTime(9),
        |it| it.updated_at = WallTime(9),
        |it| it.modified.incarnation = Incarnation(9),
        |it| it.modified.group = GroupId(9),
        |it| it.modified.index = 9,
        |it| it.modified.ordinal = 9,
        |it| it.terminal_at = None,
        |it| it.quarantined = true,
        |it| it.grants = 8,
        |it| it.evidence = 9,
        |it| it.said = None,
        |it| it.said = Some(ContentHash([9; 32])),
    ];
    each_counts(&operation_record(), Change::Operation, &changes);
}

#[test]
fn every_field_of_an_execution_counts_in_its_operation_and_after_it() {
    let in_operation = |execution| Change::Operation(OperationRecord { execution, ..operation_record() });
    each_counts(&execution_record(), in_operation, &EXECUTION_CHANGES);
    let past = |past| {
        let record = ExecutionRecord { operation: key(), birth: Birth(1), past: Some(past) };
        Change::Execution(TenantTag([1; 8]), execution_id(), record)
    };
    each_counts(&execution_record(), past, &EXECUTION_CHANGES);
}

#[test]
fn every_field_of_an_execution_row_counts() {
    let row = |(tenant, id, record)| Change::Execution(tenant, id, record);
    let record = ExecutionRecord { operation: key(), birth: Birth(1), past: Some(execution_record()) };
    let changes: [fn(&mut ExecutionRow); 7] = [
        |it| it.0 = TenantTag([9; 8]),
        |it| it.1.slot = Slot(9),
        |it| it.1.random = [9; 16],
        |it| it.2.operation.tenant = TenantTag([9; 8]),
        |it| it.2.operation.hash = [9; 20],
        |it| it.2.birth = Birth(9),
        |it| it.2.past = None,
    ];
    each_counts(&(TenantTag([1; 8]), execution_id(), record), row, &changes);
}

#[test]
fn every_field_of_a_grant_counts() {
    let record = GrantRecord {
        execution: execution_id(),
        client: ClientId::new("client"),
        request_hash: ContentHash([1; 32]),
        lease_epoch: LeaseEpoch(2),
    };
    let row = |(key, birth, claim, record)| Change::Grant(key, birth, claim, record);
    let changes: [fn(&mut GrantRow); 9] = [
        |it| it.0.tenant = TenantTag([9; 8]),
        |it| it.0.hash = [9; 20],
        |it| it.1 = Birth(9),
        |it| it.2 = ClaimId([9; 16]),
        |it| it.3.execution.slot = Slot(9),
        |it| it.3.execution.random = [9; 16],
        |it| it.3.client = ClientId::new("other"),
        |it| it.3.request_hash = ContentHash([9; 32]),
        |it| it.3.lease_epoch = LeaseEpoch(9),
    ];
    each_counts(&(key(), Birth(1), ClaimId([1; 16]), record), row, &changes);
}

#[test]
fn every_field_of_a_body_counts() {
    let row = |(key, birth, body)| Change::Body(key, birth, body);
    let changes: [fn(&mut BodyRow); 4] =
        [|it| it.0.tenant = TenantTag([9; 8]), |it| it.0.hash = [9; 20], |it| it.1 = Birth(9), |it| it.2 = vec![9]];
    each_counts(&(key(), Birth(1), vec![1, 2]), row, &changes);
}

#[test]
fn every_field_of_evidence_counts() {
    let record = EvidenceRecord {
        source: Source::Report,
        client: ClientId::new("client"),
        execution: execution_id(),
        claim_id: Some(ClaimId([1; 16])),
        lease_epoch: Some(LeaseEpoch(2)),
        outcome: Definite::Completed,
        external_id: text("1"),
        reason: text("2"),
        proof: text("3"),
        met: State::Unknown,
        at: WallTime(4),
        revision: revision(),
    };
    let row = |(key, birth, number, record)| Change::Evidence(key, birth, number, record);
    let changes: [fn(&mut EvidenceRow); 20] = [
        |it| it.0.tenant = TenantTag([9; 8]),
        |it| it.0.hash = [9; 20],
        |it| it.1 = Birth(9),
        |it| it.2 = 9,
        |it| it.3.source = Source::Resolve,
        |it| it.3.client = ClientId::new("other"),
        |it| it.3.execution.slot = Slot(9),
        |it| it.3.execution.random = [9; 16],
        |it| it.3.claim_id = None,
        |it| it.3.lease_epoch = None,
        |it| it.3.outcome = Definite::Failed,
        |it| it.3.external_id = None,
        |it| it.3.reason = None,
        |it| it.3.proof = None,
        |it| it.3.met = State::Executing,
        |it| it.3.at = WallTime(9),
        |it| it.3.revision.incarnation = Incarnation(9),
        |it| it.3.revision.group = GroupId(9),
        |it| it.3.revision.index = 9,
        |it| it.3.revision.ordinal = 9,
    ];
    each_counts(&(key(), Birth(1), 1, record), row, &changes);
}

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
    };
    let changes: [fn(&mut NamespaceRecord); 9] = [
        |it| it.tenant = TenantId::new("other"),
        |it| it.name = NamespaceName::new("other"),
        |it| it.scope = Scope::Client,
        |it| it.on_lapse = OnLapse::Takeover,
        |it| it.attempts = Attempts::Explicit,
        |it| it.conflict_style = ConflictStyle::Ietf,
        |it| it.transport_fields.clear(),
        |it| it.transport_fields[0] = "b".into(),
        |it| it.partitions = 2,
    ];
    each_counts(&record, Change::Namespace, &changes);
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
    };
    let changes: [fn(&mut TokenRecord); 8] = [
        |it| it.id = "other".into(),
        |it| it.secret_hash = [9; 32],
        |it| it.tenant = TenantId::new("other"),
        |it| it.client = ClientId::new("other"),
        |it| it.namespaces.clear(),
        |it| it.namespaces[0] = NamespaceName::new("b"),
        |it| it.roles = 2,
        |it| it.expires_at_ms = None,
    ];
    each_counts(&record, Change::Token, &changes);
}

#[test]
fn every_field_of_the_head_and_the_position_count() {
    let base = (Head { cluster_id: [1; 16], ..Head::default() }, entry());
    let changes: [fn(&mut (Head, EntryHead)); 10] = [
        |it| it.0.cluster_id = [9; 16],
        |it| it.0.incarnation = Incarnation(9),
        |it| it.0.clocks = Clocks { term: 9, ..Clocks::default() },
        |it| it.0.clocks = Clocks { lead_ms: 9, ..Clocks::default() },
        |it| it.0.clocks = Clocks { lease_time: LeaseTime(9), ..Clocks::default() },
        |it| it.0.clocks = Clocks { wall: WallTime(9), ..Clocks::default() },
        |it| it.0.grants = GrantCounter(9),
        |it| it.0.state_hash = [9; 32],
        |it| it.1.group = GroupId(9),
        |it| it.1.index = 9,
    ];
    let mut hashes = vec![chained(&base.0, &base.1, &[])];
    for change in &changes {
        let mut other = base;
        change(&mut other);
        hashes.push(chained(&other.0, &other.1, &[]));
    }
    for (number, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..number].contains(hash), "change {number} does not count");
    }
}
