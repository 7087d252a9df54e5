//! The committed table of encodings. Each line of `literals.txt` is a name and the bytes of its sample, in hexadecimal.
//! The single-byte tags that no sample shows are pinned here.

use hapax_machine::evidence::Source;
use hapax_machine::ids::{Attempt, AuthorityEpoch};
use hapax_machine::namespace::{Attempts, Authority, ConflictStyle, ExpiredKeys, OnLapse, Scope};
use hapax_machine::operation::{Definite, State};
use hapax_machine::outcome::Refusal;

use super::samples::authority;
use super::{bytes_of, samples};
use crate::command::*;
use crate::outcome::*;
use crate::record::*;
use crate::wire::Wire;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn table() -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, bytes: &[u8]| lines.push(format!("{name}: {}\n", hex(bytes)));
    for (name, envelope) in samples::envelopes() {
        line(&format!("command {name}"), &bytes_of(encode_envelope, &envelope));
    }
    line("batch", &encode_batch(&samples::batch()));
    for (name, outcome) in samples::outcomes() {
        line(&format!("outcome {name}"), &bytes_of(encode_outcome, &outcome));
    }
    line(
        "outcomes",
        &bytes_of(|all: &Vec<_>, out| encode_outcomes(all, out), &vec![samples::outcomes()[8].1.clone()]),
    );
    line("operation executing", &bytes_of(encode_operation, &samples::operation()));
    line("operation completed", &bytes_of(encode_operation, &samples::completed()));
    line("operation odd", &bytes_of(encode_operation, &samples::odd()));
    line("execution", &bytes_of(encode_execution, &samples::execution_row()));
    line("execution past", &bytes_of(encode_execution, &samples::past_execution_row()));
    line("grant", &bytes_of(encode_grant, &samples::grant_row()));
    line("body", &bytes_of(|body: &Vec<u8>, out| encode_body(body, out), &b"{}".to_vec()));
    line("evidence", &bytes_of(encode_evidence, &samples::evidence()));
    line("capability issued", &bytes_of(encode_capability, &authority::capability()));
    line("capability consumed", &bytes_of(encode_capability, &authority::consumed()));
    line("capability revoked", &bytes_of(encode_capability, &authority::revoked()));
    line("decision", &bytes_of(encode_decision, &authority::decision()));
    line("use", &bytes_of(encode_use, &authority::use_row()));
    line("inbox", &bytes_of(encode_inbox, &authority::inbox()));
    line("refusal", &bytes_of(encode_refusal, &authority::refusal()));
    line("status", &bytes_of(encode_status, &authority::status()));
    line("tenant", &bytes_of(encode_tenant, &authority::tenant()));
    line("epoch", &bytes_of(encode_epoch, &authority::epoch()));
    line("events", &bytes_of(|all: &Vec<_>, out| encode_events(all, out), &authority::events()));
    line("namespace", &bytes_of(encode_namespace, &samples::namespace()));
    line("token", &bytes_of(encode_token, &samples::token()));
    line("head", &bytes_of(encode_head, &samples::head()));
    line("applied", &bytes_of(encode_applied, &samples::applied()));
    lines.concat()
}

#[test]
fn every_encoding_is_pinned() {
    let (now, then) = (table(), include_str!("literals.txt"));
    let differs = now.lines().zip(then.lines()).find(|(now, then)| now != then);
    assert_eq!(differs, None, "an encoding changed: that needs another version");
    assert!(now == then, "a kind of record was added or lost; the whole table is now:\n{now}");
}

#[test]
fn every_tag_is_pinned() {
    fn tag(value: impl Wire) -> u8 {
        let mut out = Vec::new();
        value.put(&mut out);
        out[0]
    }
    let states =
        [State::Executing, State::Unknown, State::NotApplied, State::Completed, State::Failed, State::Requested];
    assert_eq!(states.map(tag), [1, 2, 3, 4, 5, 6]);
    assert_eq!([Definite::Completed, Definite::Failed, Definite::NotApplied].map(tag), [1, 2, 3]);
    let sources = [
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
    ];
    assert_eq!(sources.map(tag), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!([Authority::Inline, Authority::Capability].map(tag), [1, 2]);
    assert_eq!([ExpiredKeys::New, ExpiredKeys::RejectOlder, ExpiredKeys::Durable].map(tag), [1, 2, 3]);
    assert_eq!([Scope::Namespace, Scope::Client].map(tag), [1, 2]);
    assert_eq!([OnLapse::Unknown, OnLapse::Takeover].map(tag), [1, 2]);
    assert_eq!([Attempts::Automatic, Attempts::Explicit].map(tag), [1, 2]);
    assert_eq!([ConflictStyle::Hapax, ConflictStyle::Ietf].map(tag), [1, 2]);
    let refusals = [
        Refusal::NotFound,
        Refusal::ClaimIdReused,
        Refusal::LeaseLost,
        Refusal::LeaseStaleEpoch,
        Refusal::KeyDigestMismatch,
        Refusal::OperationQuarantined,
        Refusal::OperationExecuting,
        Refusal::OutcomeUnknown,
        Refusal::AttemptMismatch { due: Attempt(1) },
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
        Refusal::RegisterStands { value: AuthorityEpoch(1) },
        Refusal::OperationCompleted,
        Refusal::OperationFailed,
        Refusal::OperationState { state: State::Unknown },
        Refusal::KeyRetentionElapsed,
        Refusal::KeyCreationTime,
        Refusal::DecisionReused,
        Refusal::QuotaExceeded,
        Refusal::PolicyFixed,
        Refusal::VersionMismatch,
        Refusal::NotYours,
        Refusal::NotASuccessor,
    ];
    let tags: Vec<u8> = (1..=33).collect();
    assert_eq!(refusals.map(tag).to_vec(), tags);
}
