//! Every field of every record counts: two states that differ anywhere have different hashes.
//! Destructuring makes a new field a compile error in the hash; these tests show that each is really fed.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

mod authority;

use super::*;
use crate::clock::{Clocks, Stamp};
use crate::evidence::Source;
use crate::grant::GrantCounter;
use crate::ids::*;
use crate::operation::{AcceptedReport, ClaimedOutcome, Closed, Definite, Reconciler, State};

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

fn capability_id() -> CapabilityId {
    CapabilityId { slot: Slot(3), random: [4; 16] }
}

fn operation_id(birth: u64) -> OperationId {
    OperationId { slot: Slot(1), hash: [2; 20], birth: Birth(birth) }
}

fn binding() -> Binding {
    Binding { scope: EpochScope::new("scope"), value: AuthorityEpoch(1) }
}

fn held(it: &mut Execution) -> &mut Reconciler {
    it.reconciler.as_mut().expect("there is one")
}

fn closed(it: &mut OperationRecord) -> &mut Closed {
    it.closed.as_mut().expect("it is")
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
        opened_at: WallTime(1),
        capability: Some(capability_id()),
        authority: vec![binding()],
        effect_attempt: Attempt(2),
        lease_epoch: LeaseEpoch(6),
        deadline: LeaseTime(7),
        renewed: false,
        sole_holder: false,
        report: Some(AcceptedReport { lease_epoch: LeaseEpoch(8), content: ContentHash([9; 32]) }),
        unknown_since: Some(WallTime(10)),
        claimed: Some(ClaimedOutcome { outcome: Definite::Completed, external_id: text("13") }),
        reconciler: Some(Reconciler {
            owner: "owner".into(),
            client: ClientId::new("client"),
            deadline: LeaseTime(11),
        }),
        escalated_at: Some(WallTime(12)),
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
        chain: Some(ContentHash([12; 32])),
        forgiven: Some(ContentHash([13; 32])),
        refusals: 13,
        capabilities: 14,
        resource: Some(Resource::new("resource")),
        key_created_at: Some(WallTime(15)),
        superseded_by: Some(operation_id(16)),
        supersedes: Some(operation_id(17)),
        closed: Some(Closed { client: ClientId::new("client"), reason: "reason".into(), at: WallTime(18) }),
        execution: Some(execution_record()),
    }
}

const EXECUTION_CHANGES: [fn(&mut Execution); 43] = [
    |it| it.id.slot = Slot(9),
    |it| it.id.random = [9; 16],
    |it| it.attempt = Attempt(9),
    |it| it.state = State::Failed,
    |it| it.owner = "other".into(),
    |it| it.client = ClientId::new("other"),
    |it| it.claim_id = ClaimId([9; 16]),
    |it| it.request_hash = ContentHash([8; 32]),
    |it| it.opened_at = WallTime(9),
    |it| it.capability = None,
    |it| it.capability = Some(CapabilityId { slot: Slot(9), ..capability_id() }),
    |it| it.capability = Some(CapabilityId { random: [9; 16], ..capability_id() }),
    |it| it.authority.clear(),
    |it| it.authority[0].scope = EpochScope::new("other"),
    |it| it.authority[0].value = AuthorityEpoch(9),
    |it| it.effect_attempt = Attempt(9),
    |it| it.claimed = None,
    |it| it.claimed = Some(ClaimedOutcome { outcome: Definite::Failed, external_id: text("13") }),
    |it| it.claimed = Some(ClaimedOutcome { outcome: Definite::Completed, external_id: None }),
    |it| it.reconciler = None,
    |it| held(it).owner = "other".into(),
    |it| held(it).client = ClientId::new("other"),
    |it| held(it).deadline = LeaseTime(9),
    |it| it.escalated_at = None,
    |it| it.escalated_at = Some(WallTime(9)),
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
    let changes: [fn(&mut OperationRecord); 35] = [
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
        |it| it.chain = None,
        |it| it.chain = Some(ContentHash([9; 32])),
        |it| it.forgiven = None,
        |it| it.forgiven = Some(ContentHash([9; 32])),
        |it| it.refusals = 9,
        |it| it.capabilities = 9,
        |it| it.resource = None,
        |it| it.key_created_at = None,
        |it| it.superseded_by = None,
        |it| it.supersedes = None,
        |it| it.supersedes = Some(operation_id(16)),
        |it| it.closed = None,
        |it| closed(it).client = ClientId::new("other"),
        |it| closed(it).reason = "other".into(),
        |it| closed(it).at = WallTime(9),
    ];
    each_counts(&operation_record(), |record| Change::Operation { record: Box::new(record), was: None }, &changes);
}

#[test]
fn every_field_of_an_execution_counts_in_its_operation_and_after_it() {
    let in_operation = |execution| Change::Operation {
        record: Box::new(OperationRecord { execution: Some(execution), ..operation_record() }),
        was: None,
    };
    each_counts(&execution_record(), in_operation, &EXECUTION_CHANGES);
    let past = |past| {
        let record = ExecutionRecord { operation: key(), birth: Birth(1), past: Some(Box::new(past)) };
        Change::Execution(TenantTag([1; 8]), execution_id(), record)
    };
    each_counts(&execution_record(), past, &EXECUTION_CHANGES);
}

#[test]
fn an_operation_without_an_execution_is_another_one_and_where_it_stood_before_does_not_count() {
    let (with, mut without) = (operation_record(), operation_record());
    without.execution = None;
    let was = Some(with.place());
    let hash = |record: &OperationRecord, was| {
        let record = Box::new(record.clone());
        hash_of(Change::Operation { record, was })
    };
    assert_ne!(hash(&with, None), hash(&without, None));
    assert_eq!(hash(&with, None), hash(&with, was));
}

#[test]
fn every_field_of_an_execution_row_counts() {
    let row = |(tenant, id, record)| Change::Execution(tenant, id, record);
    let record = ExecutionRecord { operation: key(), birth: Birth(1), past: Some(Box::new(execution_record())) };
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
        execution: Some(execution_id()),
        claim_id: Some(ClaimId([1; 16])),
        lease_epoch: Some(LeaseEpoch(2)),
        outcome: Some(Definite::Completed),
        external_id: text("1"),
        by: Some(operation_id(6)),
        reason: text("2"),
        proof: text("3"),
        met: State::Unknown,
        at: WallTime(4),
        revision: revision(),
        chain: ContentHash([5; 32]),
    };
    let row = |(key, birth, number, record)| Change::Evidence(key, birth, number, record);
    let changes: [fn(&mut EvidenceRow); 25] = [
        |it| it.0.tenant = TenantTag([9; 8]),
        |it| it.0.hash = [9; 20],
        |it| it.1 = Birth(9),
        |it| it.2 = 9,
        |it| it.3.source = Source::Resolve,
        |it| it.3.client = ClientId::new("other"),
        |it| it.3.execution = None,
        |it| it.3.execution = Some(ExecutionId { slot: Slot(9), ..execution_id() }),
        |it| it.3.execution = Some(ExecutionId { random: [9; 16], ..execution_id() }),
        |it| it.3.claim_id = None,
        |it| it.3.lease_epoch = None,
        |it| it.3.outcome = None,
        |it| it.3.outcome = Some(Definite::Failed),
        |it| it.3.external_id = None,
        |it| it.3.by = None,
        |it| it.3.by = Some(operation_id(9)),
        |it| it.3.reason = None,
        |it| it.3.proof = None,
        |it| it.3.met = State::Executing,
        |it| it.3.at = WallTime(9),
        |it| it.3.revision.incarnation = Incarnation(9),
        |it| it.3.revision.group = GroupId(9),
        |it| it.3.revision.index = 9,
        |it| it.3.revision.ordinal = 9,
        |it| it.3.chain = ContentHash([9; 32]),
    ];
    each_counts(&(key(), Birth(1), 1, record), row, &changes);
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
