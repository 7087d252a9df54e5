//! One realistic value per kind, which literals pin and sizes are measured on.
//! Change them only together with a new version.

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

pub(super) mod authority;

use crate::command::Batch;
use crate::log::LogId;
use crate::record::Applied;

/// Unix seconds · 2^18, as bootstrap sets it in 2026.
const GRANTS: u64 = 1_796_000_000 << 18;
const WALL: WallTime = WallTime(1_796_000_000_000);

fn bytes<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|n| first.wrapping_add(n as u8))
}

fn caller() -> Caller {
    Caller {
        tenant: TenantId::new("default"),
        client: ClientId::new("billing"),
        namespaces: vec![NamespaceName::new("payments")],
    }
}

fn execution_id() -> ExecutionId {
    ExecutionId { slot: Slot(0xabc), random: bytes(0x30) }
}

fn operation_id() -> OperationId {
    OperationId { slot: Slot(0xabc), hash: bytes(0x40), birth: Birth(GRANTS + 1) }
}

fn revision() -> Revision {
    Revision { incarnation: Incarnation(1), group: GroupId(0), index: 300, ordinal: 7 }
}

fn enveloped(command: Command) -> Envelope {
    Envelope { not_after: LeaseTime(86_400_000), command }
}

pub(super) fn claim() -> Envelope {
    enveloped(Command::Claim(Claim {
        caller: caller(),
        namespace: NamespaceName::new("payments"),
        internal_key: InternalKey(bytes(0x40)),
        slot: Slot(0xabc),
        digest: Digest(bytes(0x80)),
        claim_id: ClaimId(bytes(0x20)),
        owner: "worker-17".into(),
        lease_ms: 30_000,
        attempt: Some(Attempt(1)),
        correlation_id: Some(CorrelationId::new("order-4711")),
        execution_id: execution_id(),
        capability_id: None,
        message: None,
        epoch: None,
        resource: None,
        key_created_at: None,
    }))
}

pub(super) fn full_data() -> ResultData {
    ResultData {
        status_code: Some(201),
        schema_version: Some("1".into()),
        result: Some(b"{}".to_vec()),
        result_ref: Some("s3://b/k".into()),
        result_digest: Some(Digest(bytes(0x90))),
        external_id: Some("ch_1".into()),
        reason: Some("ok".into()),
    }
}

/// One envelope per command, by name.
pub(super) fn envelopes() -> Vec<(&'static str, Envelope)> {
    let lease_epoch = LeaseEpoch(GRANTS + 2);
    let commands = [
        (
            "renew",
            Command::Renew(Renew { caller: caller(), execution_id: execution_id(), lease_epoch, lease_ms: 1_000 }),
        ),
        (
            "report",
            Command::Report(Report {
                caller: caller(),
                execution_id: execution_id(),
                lease_epoch,
                outcome: Some(Definite::Completed),
                data: full_data(),
            }),
        ),
        (
            "report unknown",
            Command::Report(Report {
                caller: caller(),
                execution_id: execution_id(),
                lease_epoch,
                outcome: None,
                data: ResultData::default(),
            }),
        ),
        (
            "evidence",
            Command::Evidence(Evidence {
                caller: caller(),
                execution_id: execution_id(),
                claim_id: ClaimId(bytes(0x20)),
                outcome: Definite::Failed,
                data: ResultData::default(),
                proof: Some("log".into()),
            }),
        ),
        (
            "resolve",
            Command::Resolve(Resolve {
                caller: caller(),
                execution_id: execution_id(),
                lease_epoch,
                outcome: Definite::NotApplied,
                data: ResultData::default(),
                proof: "statement".into(),
            }),
        ),
        ("lapse", Command::Lapse(Lapse { operation: operation().key(), lease_epoch, deadline: LeaseTime(90_000) })),
        ("advance wall", Command::AdvanceWall(AdvanceWall { target: WALL, by_operator: true })),
        (
            "bootstrap",
            Command::Bootstrap(Bootstrap {
                cluster_id: bytes(1),
                wall_ms: WALL.0,
                namespaces: vec![namespace()],
                tokens: vec![token()],
                tenants: vec![authority::tenant()],
            }),
        ),
        ("tick", Command::Tick),
    ];
    let commands = commands.into_iter().chain(authority::commands());
    [("claim", claim())].into_iter().chain(commands.map(|(name, command)| (name, enveloped(command)))).collect()
}

pub(super) fn batch() -> Batch {
    Batch {
        rules: RuleVersion(1),
        stamp: Stamp { wall_ms: WALL.0, lead_ms: 5_000 },
        term: 3,
        envelopes: vec![enveloped(Command::Tick), enveloped(Command::Tick)],
    }
}

pub(super) fn operation() -> OperationRecord {
    OperationRecord {
        id: operation_id(),
        internal_key: InternalKey(bytes(0x40)),
        tenant: TenantId::new("default"),
        namespace: NamespaceName::new("payments"),
        digest: Digest(bytes(0x80)),
        correlation_id: Some(CorrelationId::new("order-4711")),
        created_at: WALL,
        updated_at: WallTime(WALL.0 + 5),
        modified: revision(),
        terminal_at: None,
        quarantined: false,
        grants: 1,
        evidence: 0,
        said: None,
        chain: None,
        forgiven: None,
        refusals: 0,
        capabilities: 0,
        resource: None,
        key_created_at: None,
        superseded_by: None,
        supersedes: None,
        closed: None,
        execution: Some(Execution {
            id: execution_id(),
            attempt: Attempt(1),
            state: State::Executing,
            owner: "worker-17".into(),
            client: ClientId::new("billing"),
            claim_id: ClaimId(bytes(0x20)),
            request_hash: ContentHash(bytes(0xa0)),
            opened_at: WALL,
            capability: None,
            authority: Vec::new(),
            effect_attempt: Attempt(1),
            lease_epoch: LeaseEpoch(GRANTS + 2),
            deadline: LeaseTime(86_400_000),
            renewed: false,
            sole_holder: true,
            report: None,
            unknown_since: None,
            claimed: None,
            reconciler: None,
            escalated_at: None,
            outcome: None,
        }),
    }
}

fn executed(record: &mut OperationRecord) -> &mut Execution {
    record.execution.as_mut().expect("the sample was claimed")
}

pub(super) fn outcome_record() -> OutcomeRecord {
    OutcomeRecord {
        outcome: Definite::Completed,
        status_code: Some(201),
        schema_version: Some("1".into()),
        has_result: true,
        result_ref: None,
        result_digest: None,
        external_id: Some("ch_3PqLkQ2eZvKYlo2C".into()),
        reason: None,
        at: WallTime(WALL.0 + 900),
    }
}

pub(super) fn completed() -> OperationRecord {
    let mut record = operation();
    record.terminal_at = Some(WallTime(WALL.0 + 900));
    executed(&mut record).state = State::Completed;
    executed(&mut record).report =
        Some(AcceptedReport { lease_epoch: LeaseEpoch(GRANTS + 2), content: ContentHash(bytes(0xc0)) });
    executed(&mut record).outcome = Some(outcome_record());
    record
}

/// Everything set that the other two leave out.
pub(super) fn odd() -> OperationRecord {
    let mut record = completed();
    record.id.hash = bytes(0);
    record.quarantined = true;
    record.evidence = 2;
    record.said = Some(ContentHash(bytes(0xe0)));
    record.chain = Some(ContentHash(bytes(0xe1)));
    record.forgiven = Some(ContentHash(bytes(0xe2)));
    record.refusals = 3;
    record.capabilities = 4;
    record.resource = Some(Resource::new("ORD-8841"));
    record.key_created_at = Some(WallTime(WALL.0 - 1));
    record.superseded_by = Some(OperationId { hash: bytes(0x60), ..operation_id() });
    record.supersedes = Some(OperationId { hash: bytes(0x70), ..operation_id() });
    record.closed = Some(Closed { client: ClientId::new("ops"), reason: "void".into(), at: WALL });
    let execution = executed(&mut record);
    execution.renewed = true;
    execution.sole_holder = false;
    execution.opened_at = WallTime(WALL.0 + 3);
    execution.capability = Some(authority::capability_id());
    execution.authority = vec![authority::binding()];
    execution.effect_attempt = Attempt(7);
    execution.claimed = Some(ClaimedOutcome { outcome: Definite::Completed, external_id: Some("ch_2".into()) });
    execution.reconciler = Some(Reconciler {
        owner: "reconciler-1".into(),
        client: ClientId::new("recon"),
        deadline: LeaseTime(90_000_000),
    });
    execution.escalated_at = Some(WallTime(WALL.0 + 4));
    execution.lease_epoch = LeaseEpoch(GRANTS - 1);
    execution.unknown_since = Some(WALL);
    execution.outcome = Some(OutcomeRecord {
        outcome: Definite::Failed,
        has_result: false,
        result_ref: Some("s3://b/k".into()),
        result_digest: Some(Digest(bytes(0x90))),
        reason: Some("declined".into()),
        ..outcome_record()
    });
    record
}

pub(super) fn execution_row() -> ExecutionRecord {
    ExecutionRecord { operation: operation().key(), birth: operation_id().birth, past: None }
}

pub(super) fn past_execution_row() -> ExecutionRecord {
    ExecutionRecord { past: operation().execution.map(Box::new), ..execution_row() }
}

pub(super) fn grant_row() -> GrantRecord {
    GrantRecord {
        execution: execution_id(),
        client: ClientId::new("billing"),
        request_hash: ContentHash(bytes(0xa0)),
        lease_epoch: LeaseEpoch(GRANTS + 2),
    }
}

pub(super) fn evidence() -> EvidenceRecord {
    EvidenceRecord {
        source: Source::Resolve,
        client: ClientId::new("billing"),
        execution: Some(execution_id()),
        claim_id: Some(ClaimId(bytes(0x20))),
        lease_epoch: Some(LeaseEpoch(GRANTS + 2)),
        outcome: Some(Definite::NotApplied),
        external_id: Some("ch_1".into()),
        by: Some(operation_id()),
        reason: Some("declined".into()),
        proof: Some("statement".into()),
        met: State::Unknown,
        at: WALL,
        revision: revision(),
        chain: ContentHash(bytes(0xf0)),
    }
}

pub(super) fn namespace() -> NamespaceRecord {
    NamespaceRecord {
        tenant: TenantId::new("default"),
        name: NamespaceName::new("payments"),
        // No two of these have the same tags here and in the other sample: it shows if they change places.
        scope: Scope::Client,
        on_lapse: OnLapse::Takeover,
        attempts: Attempts::Automatic,
        conflict_style: ConflictStyle::Hapax,
        transport_fields: vec!["trace_id".into()],
        partitions: 1,
        authority: Authority::Capability,
        retention: Retention { body_ms: 60_000, identity_ms: 120_000, expired_keys: ExpiredKeys::RejectOlder },
        reconcile_per_minute: 30,
        quota: Quota { open_operations: Some(1_000), requests_per_second: Some(50), key_claims_per_second: Some(5) },
        takeover_since: None,
        version: Version(3),
    }
}

pub(super) fn other_namespace() -> NamespaceRecord {
    NamespaceRecord {
        on_lapse: OnLapse::Unknown,
        attempts: Attempts::Explicit,
        authority: Authority::Inline,
        retention: Retention { expired_keys: ExpiredKeys::Durable, ..namespace().retention },
        transport_fields: Vec::new(),
        quota: Quota::default(),
        takeover_since: Some(LeaseTime(90_000)),
        ..namespace()
    }
}

pub(super) fn token() -> TokenRecord {
    TokenRecord {
        id: "t1".into(),
        secret_hash: bytes(0xe0),
        tenant: TenantId::new("default"),
        client: ClientId::new("billing"),
        namespaces: vec![NamespaceName::new("payments")],
        roles: 0b1011,
        expires_at_ms: Some(WALL.0),
        created_at: WallTime(WALL.0 - 9),
        revoked_at: Some(WallTime(WALL.0 + 9)),
    }
}

pub(super) fn head() -> Head {
    Head {
        cluster_id: bytes(1),
        incarnation: Incarnation(1),
        clocks: Clocks { term: 3, lead_ms: 5_000, lease_time: LeaseTime(86_400_000), wall: WALL },
        grants: GrantCounter(GRANTS + 2),
        state_hash: bytes(0x50),
    }
}

pub(super) fn applied() -> Applied {
    Applied { last_applied: Some(LogId { term: 3, node: 0, index: 300 }), membership: vec![7, 8, 9] }
}

/// One outcome per answer, by name.
pub(super) fn outcomes() -> Vec<(&'static str, Outcome)> {
    let standing = Standing {
        operation_id: operation_id(),
        execution_id: Some(execution_id()),
        attempt: Attempt(1),
        state: State::Executing,
        lease_remaining_ms: Some(30_000),
        namespace: NamespaceName::new("payments"),
        conflict_style: ConflictStyle::Hapax,
    };
    let lease = Lease { lease_epoch: LeaseEpoch(GRANTS + 2), remaining_ms: 30_000 };
    let grant = Grant {
        operation_id: operation_id(),
        execution_id: execution_id(),
        attempt: Attempt(1),
        claim_id: ClaimId(bytes(0x20)),
        lease,
        effect_key: "op_1-a1".into(),
    };
    let receipt = Receipt { standing: standing.clone(), outcome: outcome_record(), result: Some(b"{}".to_vec()) };
    let refused = |reason| {
        Answer::Refused(Refused { reason, operation_id: Some(operation_id()), conflict_style: ConflictStyle::Ietf })
    };
    [
        ("claimed", Answer::Claimed(grant)),
        ("in progress", Answer::InProgress(standing.clone())),
        ("replayed", Answer::Replayed(receipt)),
        ("renewed", Answer::Renewed(lease)),
        ("accepted", Answer::Accepted(standing.clone())),
        ("lapsed", Answer::Lapsed { changed: true }),
        ("wall", Answer::Wall(WALL)),
        ("bootstrapped", Answer::Bootstrapped),
        ("ticked", Answer::Ticked),
        ("refused", refused(Refusal::LeaseLost)),
        ("attempt mismatch", refused(Refusal::AttemptMismatch { due: Attempt(2) })),
        ("register stands", refused(Refusal::RegisterStands { value: AuthorityEpoch(GRANTS) })),
        ("operation state", refused(Refusal::OperationState { state: State::Requested })),
        ("too late", Answer::TooLate),
    ]
    .into_iter()
    .chain(authority::answers(standing))
    .map(|(name, answer)| (name, Outcome { revision: revision(), answer }))
    .collect()
}
