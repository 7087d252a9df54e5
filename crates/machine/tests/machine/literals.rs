//! Numbers that must never change by accident: hashes and ids are in logs, in rows, at providers and in callers' hands.
//! A failing literal means that old data would be read as something else: add a rule version or a new domain instead.

use std::fmt::Write as _;

use hapax_machine::clock::Stamp;
use hapax_machine::command::{Claim, Command, EntryHead, Evidence, Renew, Report, Resolve, ResultData};
use hapax_machine::ids::{
    Attempt, Birth, ClaimId, ClientId, CorrelationId, Digest, ExecutionId, LeaseEpoch, NamespaceName, OperationId,
    OperationKey, ScopeOf, Slot, TenantId, TenantTag, effect_key, internal_key, slot,
};
use hapax_machine::namespace::{Attempts, OnLapse};
use hapax_machine::operation::Definite;
use hapax_machine::outcome::Answer;

use crate::memory::{Memory, Newest as _, at_any_time, caller, entry, namespace};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string grows");
        text
    })
}

fn tenant() -> TenantId {
    TenantId::new("dev")
}

fn payments() -> NamespaceName {
    NamespaceName::new("payments")
}

#[test]
fn internal_keys_are_pinned() {
    let key = |scope, epoch| hex(&internal_key(&tenant(), &payments(), scope, "order-82/payment-1", epoch).0);
    let client = ClientId::new("worker");
    let keys = [
        key(ScopeOf::Namespace, None),
        key(ScopeOf::Namespace, Some("2026-07")),
        key(ScopeOf::Client(&client), None),
    ];
    assert_eq!(
        keys,
        [
            "8f1dbd259fbb68af770527b66f0a78710097adb501631d01b0bd8f26777f2749",
            "6a4e0e333ba6872395c3a3fd1e0869e0f40e36832daa3692c46399e738e1019e",
            "678efd50dd701338318daaa69a921bf92b03dd62a5a31a0cb17358827ece906f",
        ]
    );
}

#[test]
fn slots_and_tags_are_pinned() {
    assert_eq!([slot(&tenant(), &payments(), 0), slot(&tenant(), &payments(), 1)], [Slot(3433), Slot(1657)]);
    assert_eq!(hex(&TenantTag::of(&tenant()).0), "ef260e9aa3c673af");
}

#[test]
fn an_effect_key_is_the_operation_and_the_attempt() {
    let operation = OperationId { slot: Slot(0xabc), hash: [0x11; 20], birth: Birth(0x000f_0000_0000_0001) };
    let key = effect_key(&operation, Attempt(3));
    assert_eq!(key, "op_abc11111111111111111111111111111111111111110f000000000001-a3");
}

fn claim() -> Claim {
    Claim {
        caller: caller("dev", "alice"),
        namespace: payments(),
        internal_key: internal_key(&tenant(), &payments(), ScopeOf::Namespace, "k", None),
        slot: slot(&tenant(), &payments(), 0),
        digest: Digest([3; 32]),
        claim_id: ClaimId([4; 16]),
        owner: "worker".into(),
        lease_ms: 60_000,
        attempt: Some(Attempt(1)),
        correlation_id: Some(CorrelationId::new("COR-1")),
        execution_id: ExecutionId { slot: slot(&tenant(), &payments(), 0), random: [5; 16] },
        capability_id: None,
        message: None,
        epoch: None,
        resource: None,
        key_created_at: None,
    }
}

fn data() -> ResultData {
    ResultData {
        status_code: Some(201),
        schema_version: Some("1".into()),
        result: Some(b"{}".to_vec()),
        result_ref: Some("s3://r".into()),
        result_digest: Some(Digest([6; 32])),
        external_id: Some("ch_1".into()),
        reason: Some("paid".into()),
    }
}

fn report() -> Report {
    let (caller, execution_id) = (caller("dev", "alice"), claim().execution_id);
    Report { caller, execution_id, lease_epoch: LeaseEpoch(2), outcome: Some(Definite::Completed), data: data() }
}

fn started() -> Memory {
    Memory::with(vec![namespace("dev", "payments", OnLapse::Unknown, Attempts::Automatic)])
}

fn apply(memory: &mut Memory, index: u64, command: Command) -> Answer {
    let (_, mut outcomes) = memory.apply(&head(index), &[at_any_time(command)]);
    outcomes.pop().expect("one outcome per command").answer
}

fn head(index: u64) -> EntryHead {
    entry(index, 1, Stamp { wall_ms: index * 10, lead_ms: index * 10 })
}

fn row() -> OperationKey {
    OperationKey::new(&tenant(), &claim().internal_key)
}

#[test]
fn what_a_call_says_is_pinned() {
    let mut memory = started();
    apply(&mut memory, 2, Command::Claim(claim()));
    apply(&mut memory, 3, Command::Report(report()));
    let execution = memory.operations[&row()].newest();
    assert_eq!(hex(&execution.request_hash.0), "482823bb6da74fc3bb4e7af05888351a7b4daca1cef05f043e0752a7f2f68793");
    assert_eq!(
        execution.report.map(|report| hex(&report.content.0)).as_deref(),
        Some("b448ecd0339de93c27d63bdb1e229cc9fe19c3dc917836d07818cdec27d632a3")
    );
}

/// Everything a report says tells it from another report.
#[test]
fn every_word_of_a_report_counts() {
    let words: [fn(&mut Report); 8] = [
        |report| report.outcome = Some(Definite::Failed),
        |report| report.data.status_code = None,
        |report| report.data.schema_version = None,
        |report| report.data.result = None,
        |report| report.data.result_ref = None,
        |report| report.data.result_digest = None,
        |report| report.data.external_id = None,
        |report| report.data.reason = None,
    ];
    let content = |report: Report| {
        let mut memory = started();
        apply(&mut memory, 2, Command::Claim(claim()));
        apply(&mut memory, 3, Command::Report(report));
        memory.operations[&row()].newest().report.expect("it was accepted").content
    };
    let said = content(report());
    for (number, change) in words.iter().enumerate() {
        let mut other = report();
        change(&mut other);
        assert_ne!(content(other), said, "word {number}");
    }
}

/// A history that writes every kind of row; its hashes are what two releases must agree on.
#[test]
fn the_state_hash_of_a_small_history_is_pinned() {
    let mut memory = started();
    let mut hashes = vec![hex(&memory.head.state_hash[..8])];
    let (alice, execution_id) = (caller("dev", "alice"), claim().execution_id);
    let not_applied = Report { outcome: Some(Definite::NotApplied), ..report() };
    let second = ExecutionId { random: [8; 16], ..execution_id };
    let again = Claim { claim_id: ClaimId([7; 16]), attempt: None, execution_id: second, ..claim() };
    let told = Evidence {
        caller: alice.clone(),
        execution_id,
        claim_id: ClaimId([4; 16]),
        outcome: Definite::Completed,
        data: data(),
        proof: Some("statement".into()),
    };
    let unknown = Report { execution_id: second, lease_epoch: LeaseEpoch(3), outcome: None, ..report() };
    let resolved = Resolve {
        caller: caller("dev", "rec"),
        execution_id: second,
        lease_epoch: LeaseEpoch(3),
        outcome: Definite::Completed,
        data: data(),
        proof: "statement".into(),
    };
    let commands = [
        Command::Claim(claim()),
        Command::Renew(Renew { caller: alice, execution_id, lease_epoch: LeaseEpoch(2), lease_ms: 90_000 }),
        Command::Report(not_applied),
        Command::Claim(again),
        Command::Evidence(told),
        Command::Report(unknown),
        Command::Resolve(resolved),
        Command::Tick,
    ];
    for (index, command) in (2..).zip(commands) {
        apply(&mut memory, index, command);
        hashes.push(hex(&memory.head.state_hash[..8]));
    }
    assert_eq!((memory.bodies.len(), memory.grants.len(), memory.evidence.len()), (1, 1, 3), "every kind of row");
    assert_eq!(
        hashes,
        [
            "8549d02b16963ba7",
            "c391f2ee9049ea85",
            "084f6dfb5cddc956",
            "f3f99db7cf47b407",
            "d96a31c3deeaa776",
            "92902f67125545ee",
            "78f8a3881608fc25",
            "7fac80993ef8544b",
            "d0bd1ed77486d59f",
        ]
    );
}

/// The same command at another index, in another group, or a tick with another stamp: another history.
#[test]
fn position_and_time_are_part_of_a_history() {
    let hash = |head: EntryHead| {
        let mut memory = started();
        memory.apply(&head, &[]);
        memory.head.state_hash
    };
    let base = head(2);
    let mut other_group = base;
    other_group.group.0 += 1;
    let others = [
        other_group,
        EntryHead { index: 3, ..base },
        EntryHead { term: 2, ..base },
        EntryHead { stamp: Stamp { wall_ms: 19, ..base.stamp }, ..base },
        EntryHead { stamp: Stamp { lead_ms: 19, ..base.stamp }, ..base },
    ];
    for other in others {
        assert_ne!(hash(other), hash(base), "{other:?}");
    }
}

/// Everything that a piece of evidence says tells it from the one before; the very same is none.
#[test]
fn every_word_of_evidence_counts() {
    let words: [fn(&mut Evidence); 9] = [
        |told| told.outcome = Definite::Failed,
        |told| told.proof = None,
        |told| told.data.status_code = None,
        |told| told.data.schema_version = None,
        |told| told.data.result = None,
        |told| told.data.result_ref = None,
        |told| told.data.result_digest = None,
        |told| told.data.external_id = None,
        |told| told.data.reason = None,
    ];
    let (caller, execution_id, claim_id) = (caller("dev", "alice"), claim().execution_id, claim().claim_id);
    let proof = Some("statement".into());
    let base = Evidence { caller, execution_id, claim_id, outcome: Definite::Completed, data: data(), proof };
    for (number, change) in words.iter().enumerate() {
        let mut memory = started();
        apply(&mut memory, 2, Command::Claim(claim()));
        let first = apply(&mut memory, 3, Command::Evidence(base.clone()));
        let (changes, again) = memory.apply(&head(3), &[at_any_time(Command::Evidence(base.clone()))]);
        assert_eq!((changes.rows, &again[0].answer), (vec![], &first), "a duplicate");
        let mut other = base.clone();
        change(&mut other);
        apply(&mut memory, 3, Command::Evidence(other));
        assert_eq!(memory.evidence.len(), 2, "word {number}");
    }
}
