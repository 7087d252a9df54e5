//! The committed table of encodings. Each line of `literals.txt` is a name and the bytes of its sample, in hexadecimal.
//! The single-byte tags that no sample shows are pinned here.

use hapax_machine::evidence::Source;
use hapax_machine::ids::{Attempt, AuthorityEpoch};
use hapax_machine::namespace::{Attempts, Authority, ConflictStyle, ExpiredKeys, OnLapse, Scope};
use hapax_machine::operation::{Definite, State};
use hapax_machine::outcome::Refusal;

use super::samples::authority;
use super::tags::known;
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
    line("refusal of a redelivery", &bytes_of(encode_refusal, &authority::redelivery()));
    line("status", &bytes_of(encode_status, &authority::status()));
    line("tenant", &bytes_of(encode_tenant, &authority::tenant()));
    line("tenant disabled", &bytes_of(encode_tenant, &authority::disabled_tenant()));
    line("epoch", &bytes_of(encode_epoch, &authority::epoch()));
    line("events", &bytes_of(|all: &Vec<_>, out| encode_events(all, out), &authority::events()));
    line("namespace", &bytes_of(encode_namespace, &samples::namespace()));
    line("namespace other", &bytes_of(encode_namespace, &samples::other_namespace()));
    line("token", &bytes_of(encode_token, &samples::token()));
    line("head", &bytes_of(encode_head, &samples::head()));
    line("applied", &bytes_of(encode_applied, &samples::applied()));
    line("applied nothing", &bytes_of(encode_applied, &Applied::default()));
    lines.concat()
}

#[test]
fn every_encoding_is_pinned() {
    let (now, then) = (table(), include_str!("literals.txt"));
    let differs = now.lines().zip(then.lines()).find(|(now, then)| now != then);
    assert_eq!(differs, None, "an encoding changed: that needs another version");
    assert!(now == then, "a kind of record was added or lost; the whole table is now:\n{now}");
}

fn tag(value: impl Wire) -> u8 {
    let mut out = Vec::new();
    value.put(&mut out);
    out[0]
}

/// The tags are those from 1 on, and a reader knows no other: a variant that is new shows here, and must be listed.
fn tagged_in_order<T: Wire>(variants: impl IntoIterator<Item = T>) {
    let tags: Vec<u8> = variants.into_iter().map(tag).collect();
    assert_eq!(tags, (1..=tags.len() as u8).collect::<Vec<_>>());
    assert_eq!(known::<T>(), tags);
}

#[test]
fn every_tag_is_pinned() {
    tagged_in_order([
        State::Executing,
        State::Unknown,
        State::NotApplied,
        State::Completed,
        State::Failed,
        State::Requested,
    ]);
    tagged_in_order([Definite::Completed, Definite::Failed, Definite::NotApplied]);
    tagged_in_order([
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
    tagged_in_order([Authority::Inline, Authority::Capability]);
    tagged_in_order([ExpiredKeys::New, ExpiredKeys::RejectOlder, ExpiredKeys::Durable]);
    tagged_in_order([Scope::Namespace, Scope::Client]);
    tagged_in_order([OnLapse::Unknown, OnLapse::Takeover]);
    tagged_in_order([Attempts::Automatic, Attempts::Explicit]);
    tagged_in_order([ConflictStyle::Hapax, ConflictStyle::Ietf]);
}

#[test]
fn every_tag_of_a_refusal_is_pinned() {
    tagged_in_order([
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
    ]);
}
