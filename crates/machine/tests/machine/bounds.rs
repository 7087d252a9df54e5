//! What is bounded stays bounded, and what is chained shows where it was altered.

use hapax_machine::capability::CapabilityRecord;
use hapax_machine::change::Change;
use hapax_machine::clock::Stamp;
use hapax_machine::command::{Claim, Command, Evidence, Issue, Message, Register, Report, ResultData};
use hapax_machine::evidence::{EvidenceRecord, Source, linked};
use hapax_machine::ids::{
    Attempt, Birth, CapabilityId, ClaimId, ClientId, Consumer, DecisionId, Digest, ExecutionId, InternalKey,
    LeaseEpoch, MessageId, NamespaceName, OperationId, OperationKey, Slot, WallTime,
};
use hapax_machine::limits::{CAPABILITIES_PER_OPERATION, EVIDENCE_PER_OPERATION, REFUSALS_PER_SUBJECT};
use hapax_machine::namespace::{Attempts, OnLapse};
use hapax_machine::operation::{Definite, State};
use hapax_machine::outcome::{Answer, Refusal};

use crate::memory::{Memory, at_any_time, bytes16, caller, entry, namespace};

/// A state in which an operation was registered, and whoever asks next does so at the same instant.
struct Run {
    memory: Memory,
    index: u64,
}

impl Run {
    fn new() -> Self {
        let memory = Memory::with(vec![namespace("t", "n", OnLapse::Unknown, Attempts::Automatic)]);
        let mut run = Self { memory, index: 1 };
        run.apply(Command::Register(Register {
            caller: caller("t", "dec"),
            namespace: NamespaceName::new("n"),
            internal_key: InternalKey([1; 32]),
            slot: Slot(7),
            digest: Digest([1; 32]),
            correlation_id: None,
            resource: None,
            key_created_at: None,
        }));
        run
    }

    /// Applies a command; gives its answer and the rows that it wrote.
    fn apply(&mut self, command: Command) -> (Answer, Vec<Change>) {
        self.index += 1;
        let head = entry(self.index, 1, Stamp::default());
        let (changes, mut outcomes) = self.memory.apply(&head, &[at_any_time(command)]);
        (outcomes.pop().expect("one outcome per command").answer, changes.rows)
    }

    fn operation(&self) -> &hapax_machine::operation::OperationRecord {
        &self.memory.operations[&row()]
    }

    fn issue(&mut self, decision: u64) -> (Answer, Vec<Change>) {
        let operation_id: OperationId = self.operation().id;
        self.apply(Command::Issue(Issue {
            caller: caller("t", "dec"),
            operation_id,
            decision_id: DecisionId::new(decision.to_string()),
            attempt: Attempt(1),
            expires_at: WallTime(u64::MAX),
            epoch: None,
            effect_key_attempt: None,
            capability_id: capability_id(decision),
        }))
    }

    /// A claim with another digest, by a message of its own: refused, whatever it presents.
    fn refused(&mut self, message: u64, capability_id: Option<CapabilityId>) -> (Answer, Vec<Change>) {
        let message = Message { consumer: Consumer::new("q"), id: MessageId::new(message.to_string()) };
        self.apply(Command::Claim(Claim {
            capability_id,
            message: Some(message),
            digest: Digest([2; 32]),
            ..claim()
        }))
    }
}

fn row() -> OperationKey {
    OperationKey::new(&caller("t", "").tenant, &InternalKey([1; 32]))
}

fn capability_id(number: u64) -> CapabilityId {
    CapabilityId { slot: Slot(7), random: bytes16(number) }
}

fn execution_id() -> ExecutionId {
    ExecutionId { slot: Slot(7), random: bytes16(1) }
}

fn claim() -> Claim {
    Claim {
        caller: caller("t", "w"),
        namespace: NamespaceName::new("n"),
        internal_key: InternalKey([1; 32]),
        slot: Slot(7),
        digest: Digest([1; 32]),
        claim_id: ClaimId(bytes16(1)),
        owner: "w".into(),
        lease_ms: 60_000,
        attempt: None,
        correlation_id: None,
        execution_id: execution_id(),
        capability_id: None,
        message: None,
        epoch: None,
        resource: None,
        key_created_at: None,
    }
}

/// Words that changed nothing are counted beyond the bound, and not stored; what acts is kept, and linked to what was.
#[test]
fn the_record_of_evidence_is_bounded() {
    let mut run = Run::new();
    run.apply(Command::Claim(claim()));
    // It claims no effect, so nothing that is decided later contradicts it by itself.
    let told = Evidence {
        caller: caller("t", "w"),
        execution_id: execution_id(),
        claim_id: claim().claim_id,
        outcome: Definite::NotApplied,
        data: ResultData::default(),
        proof: None,
    };
    for number in 0..EVIDENCE_PER_OPERATION + 3 {
        let told = Evidence { proof: Some(number.to_string()), ..told.clone() };
        run.apply(Command::Evidence(told.clone()));
        // The same again is no further piece of evidence, kept or only counted.
        assert!(run.apply(Command::Evidence(told)).1.is_empty());
    }
    assert_eq!(run.memory.evidence.len(), EVIDENCE_PER_OPERATION as usize);
    assert_eq!(run.operation().evidence, EVIDENCE_PER_OPERATION + 3);
    let lease_epoch = run.operation().execution.as_ref().map(|it| it.lease_epoch).expect("somebody was elected");
    let (caller, data, outcome) = (caller("t", "w"), ResultData::default(), Some(Definite::Completed));
    run.apply(Command::Report(Report { caller, execution_id: execution_id(), lease_epoch, outcome, data }));
    run.apply(Command::Evidence(told.clone()));
    assert!(run.operation().quarantined);
    // The contradiction stopped claims, so it is kept whatever was said before; the next one did nothing more.
    assert_eq!(run.memory.evidence.len(), EVIDENCE_PER_OPERATION as usize + 1);
    run.apply(Command::Evidence(Evidence { proof: Some("more".into()), ..told }));
    assert_eq!(run.memory.evidence.len(), EVIDENCE_PER_OPERATION as usize + 1);
    // Every row that is kept leads to the next, and the last to what the operation carries.
    let chain = run.memory.evidence.values().fold(None, |before, row| {
        assert_eq!(row.chain, linked(before, row));
        Some(row.chain)
    });
    assert_eq!(chain, run.operation().chain);
}

/// A storm of made-up messages costs the log nothing once the subject's record is full; what is there is still counted.
#[test]
fn the_record_of_refusals_is_bounded() {
    for presented in [None, Some(capability_id(0))] {
        let mut run = Run::new();
        run.issue(0);
        for message in 0..u64::from(REFUSALS_PER_SUBJECT) {
            let (answer, rows) = run.refused(message, presented);
            assert!(matches!(answer, Answer::Refused(_)) && rows.len() == 2, "{answer:?}");
        }
        for message in 0..10 {
            let (answer, rows) = run.refused(1_000 + message, presented);
            assert!(matches!(answer, Answer::Refused(_)) && rows.is_empty(), "{answer:?}");
        }
        let (_, rows) = run.refused(0, presented);
        assert!(matches!(&rows[..], [Change::Refusal(_, row)] if row.times == 2), "{rows:?}");
        assert_eq!(run.memory.refusals.len(), REFUSALS_PER_SUBJECT as usize);
        let of_capability = run.memory.capabilities.values().map(|record| record.refusals).sum::<u32>();
        assert_eq!(of_capability + run.operation().refusals, REFUSALS_PER_SUBJECT);
    }
}

/// So many decisions may be taken about one operation. One that was taken is still answered.
#[test]
fn capabilities_of_an_operation_are_bounded() {
    let mut run = Run::new();
    for decision in 0..u64::from(CAPABILITIES_PER_OPERATION) {
        assert!(matches!(run.issue(decision).0, Answer::Capability { created: true, .. }));
    }
    let (answer, rows) = run.issue(u64::from(CAPABILITIES_PER_OPERATION));
    assert!(
        matches!(answer, Answer::Refused(refused) if refused.reason == Refusal::QuotaExceeded) && rows.is_empty()
    );
    assert!(matches!(run.issue(0).0, Answer::Capability { created: false, .. }));
    assert!(run.memory.capabilities.values().map(CapabilityRecord::uses_left).all(|left| left == 1));
}

/// Whatever is altered in a row of evidence, or taken out before it, its link does not fit any more.
#[test]
fn an_altered_row_of_evidence_shows() {
    let row = EvidenceRecord {
        source: Source::Resolve,
        client: ClientId::new("rec"),
        execution: Some(execution_id()),
        claim_id: Some(ClaimId([1; 16])),
        lease_epoch: Some(LeaseEpoch(2)),
        outcome: Some(Definite::Completed),
        external_id: Some("ch_1".into()),
        by: Some(OperationId { slot: Slot(7), hash: [1; 20], birth: Birth(1) }),
        reason: Some("looked".into()),
        proof: Some("statement".into()),
        met: State::Unknown,
        at: WallTime(3),
        revision: Default::default(),
        chain: linked(None, &row_without_words()),
    };
    let alterations: [fn(&mut EvidenceRecord); 15] = [
        |row| row.source = Source::Evidence,
        |row| row.client = ClientId::new("eve"),
        |row| row.execution = None,
        |row| row.claim_id = None,
        |row| row.lease_epoch = Some(LeaseEpoch(3)),
        |row| row.outcome = Some(Definite::Failed),
        |row| row.external_id = Some("ch_2".into()),
        |row| row.by = None,
        |row| row.reason = None,
        |row| row.proof = Some("forged".into()),
        |row| row.met = State::Executing,
        |row| row.at = WallTime(4),
        |row| row.revision.index = 9,
        |row| row.revision.ordinal = 9,
        |row| row.revision.incarnation.0 = 9,
    ];
    let before = Some(linked(None, &row_without_words()));
    let link = linked(before, &row);
    for (number, alter) in alterations.iter().enumerate() {
        let mut altered = row.clone();
        alter(&mut altered);
        assert_ne!(linked(before, &altered), link, "alteration {number}");
    }
    assert_ne!(linked(None, &row), link, "the row before it was taken out");
    // Its own link is no part of what is linked.
    assert_eq!(linked(before, &EvidenceRecord { chain: link, ..row }), link);
}

fn row_without_words() -> EvidenceRecord {
    EvidenceRecord {
        source: Source::Quarantine,
        client: ClientId::new("op"),
        execution: None,
        claim_id: None,
        lease_epoch: None,
        outcome: None,
        external_id: None,
        by: None,
        reason: None,
        proof: None,
        met: State::Requested,
        at: WallTime(0),
        revision: Default::default(),
        chain: hapax_machine::ids::ContentHash([0; 32]),
    }
}
