//! One flag for one thing. Samples set all or nothing, and a round trip is blind to two flags that changed places in the
//! writer and in the reader: here each thing that may be there is set alone, in the documented order of its flag.

use hapax_machine::change::Event;
use hapax_machine::command::{Claim, Command, ResultData};
use hapax_machine::evidence::EvidenceRecord;
use hapax_machine::ids::*;
use hapax_machine::namespace::ConflictStyle;
use hapax_machine::operation::*;
use hapax_machine::outcome::{Refusal, Refused};
use hapax_machine::tenant::TokenRecord;

use super::samples::{self, authority};
use crate::record::encode_events;
use crate::wire::Wire;

type Set<T> = (&'static str, fn(&mut T));

fn wire<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// The n-th of the things sets the n-th bit, and nothing else, of the byte behind `before`.
fn pinned<T: Clone>(plain: &T, bytes_of: impl Fn(&T) -> Vec<u8>, before: &[u8], things: &[Set<T>]) {
    for (n, (name, set)) in things.iter().enumerate() {
        let mut one = plain.clone();
        set(&mut one);
        let front = [before, &[1 << n]].concat();
        assert_eq!(bytes_of(&one).get(..front.len()), Some(&front[..]), "{name} alone");
    }
}

#[test]
fn flags_of_commands_are_pinned() {
    let Command::Claim(mut claim) = samples::claim().command else { unreachable!("the sample is a claim") };
    claim.attempt = None;
    claim.correlation_id = None;
    let things: [Set<Claim>; 7] = [
        ("attempt", |claim| claim.attempt = Some(Attempt(1))),
        ("correlation id", |claim| claim.correlation_id = Some(CorrelationId::new("c"))),
        ("capability", |claim| claim.capability_id = Some(authority::capability_id())),
        ("message", |claim| claim.message = Some(authority::message())),
        ("epoch", |claim| claim.epoch = Some(authority::binding())),
        ("resource", |claim| claim.resource = Some(Resource::new("r"))),
        ("key created", |claim| claim.key_created_at = Some(WallTime(1))),
    ];
    pinned(&claim, wire, &[], &things);
    let things: [Set<ResultData>; 7] = [
        ("status code", |data| data.status_code = Some(201)),
        ("schema version", |data| data.schema_version = Some("1".into())),
        ("result", |data| data.result = Some(vec![1])),
        ("result reference", |data| data.result_ref = Some("r".into())),
        ("result digest", |data| data.result_digest = Some(Digest([1; 32]))),
        ("external id", |data| data.external_id = Some("e".into())),
        ("reason", |data| data.reason = Some("r".into())),
    ];
    pinned(&ResultData::default(), wire, &[], &things);
}

#[test]
fn flags_of_refusals_are_pinned() {
    let refused = Refused { reason: Refusal::NotFound, operation_id: None, conflict_style: ConflictStyle::Hapax };
    pinned(&refused, wire, &[], &[("operation", |refused| refused.operation_id = Some(samples::odd().id))]);
}

#[test]
fn flags_of_operations_are_pinned() {
    let mut plain = samples::operation();
    plain.correlation_id = None;
    plain.execution = None;
    let things: [Set<OperationRecord>; 7] = [
        ("hash", |record| record.id.hash = [0; 20]),
        ("correlation id", |record| record.correlation_id = Some(CorrelationId::new("c"))),
        ("terminal", |record| record.terminal_at = Some(WallTime(1))),
        ("quarantined", |record| record.quarantined = true),
        ("said", |record| record.said = Some(ContentHash([1; 32]))),
        ("execution", |record| record.execution = samples::operation().execution),
        ("resource", |record| record.resource = Some(Resource::new("r"))),
    ];
    pinned(&plain, wire, &[], &things);
    let rare: [Set<OperationRecord>; 8] = [
        ("link", |record| record.chain = Some(ContentHash([1; 32]))),
        ("refusals", |record| record.refusals = 1),
        ("capabilities", |record| record.capabilities = 1),
        ("key created", |record| record.key_created_at = Some(WallTime(1))),
        ("superseded by", |record| record.superseded_by = Some(samples::odd().id)),
        ("supersedes", |record| record.supersedes = Some(samples::odd().id)),
        ("closed", |record| record.closed = samples::odd().closed),
        ("forgiven", |record| record.forgiven = Some(ContentHash([1; 32]))),
    ];
    pinned(&plain, wire, &[1 << things.len()], &rare);
}

#[test]
fn flags_of_executions_are_pinned() {
    let operation = OperationKey { tenant: TenantTag([0; 8]), hash: [0; 20] };
    let row = |past| wire(&ExecutionRecord { operation, birth: Birth(0), past });
    assert_eq!(row(None)[0], 0);
    let mut plain = samples::operation().execution.expect("the sample was claimed");
    plain.sole_holder = false;
    // The row's own flag, tenant, hash and birth.
    let before = [&[1][..], &[0; 8 + 20 + 1]].concat();
    let bytes_of = |execution: &Execution| row(Some(Box::new(execution.clone())));
    let things: [Set<Execution>; 6] = [
        ("renewed", |execution| execution.renewed = true),
        ("sole holder", |execution| execution.sole_holder = true),
        ("report", |execution| {
            execution.report = Some(AcceptedReport { lease_epoch: LeaseEpoch(1), content: ContentHash([1; 32]) });
        }),
        ("unknown since", |execution| execution.unknown_since = Some(WallTime(1))),
        ("outcome", |execution| execution.outcome = Some(samples::outcome_record())),
        ("capability", |execution| execution.capability = Some(authority::capability_id())),
    ];
    pinned(&plain, bytes_of, &before, &things);
    let rare: [Set<Execution>; 5] = [
        ("bindings", |execution| execution.authority = vec![authority::binding()]),
        ("effect attempt", |execution| execution.effect_attempt = Attempt(2)),
        ("reconciler", |execution| {
            execution.reconciler =
                Some(Reconciler { owner: "r".into(), client: ClientId::new("c"), deadline: LeaseTime(1) });
        }),
        ("escalated", |execution| execution.escalated_at = Some(WallTime(1))),
        ("claimed", |execution| {
            execution.claimed = Some(ClaimedOutcome { outcome: Definite::Failed, external_id: None });
        }),
    ];
    pinned(&plain, bytes_of, &[&before[..], &[1 << things.len()]].concat(), &rare);
}

#[test]
fn flags_of_outcomes_are_pinned() {
    let plain = OutcomeRecord {
        outcome: Definite::Completed,
        status_code: None,
        schema_version: None,
        has_result: false,
        result_ref: None,
        result_digest: None,
        external_id: None,
        reason: None,
        at: WallTime(1),
    };
    let things: [Set<OutcomeRecord>; 7] = [
        ("result", |record| record.has_result = true),
        ("status code", |record| record.status_code = Some(201)),
        ("schema version", |record| record.schema_version = Some("1".into())),
        ("result reference", |record| record.result_ref = Some("r".into())),
        ("result digest", |record| record.result_digest = Some(Digest([1; 32]))),
        ("external id", |record| record.external_id = Some("e".into())),
        ("reason", |record| record.reason = Some("r".into())),
    ];
    pinned(&plain, wire, &[], &things);
}

#[test]
fn flags_of_evidence_are_pinned() {
    let plain = EvidenceRecord {
        execution: None,
        claim_id: None,
        lease_epoch: None,
        outcome: None,
        external_id: None,
        by: None,
        reason: None,
        proof: None,
        ..samples::evidence()
    };
    let things: [Set<EvidenceRecord>; 8] = [
        ("claim id", |record| record.claim_id = Some(ClaimId([1; 16]))),
        ("lease epoch", |record| record.lease_epoch = Some(LeaseEpoch(1))),
        ("external id", |record| record.external_id = Some("e".into())),
        ("reason", |record| record.reason = Some("r".into())),
        ("proof", |record| record.proof = Some("p".into())),
        ("execution", |record| record.execution = samples::evidence().execution),
        ("outcome", |record| record.outcome = Some(Definite::Failed)),
        ("by", |record| record.by = Some(samples::odd().id)),
    ];
    pinned(&plain, wire, &[], &things);
}

#[test]
fn flags_of_tokens_and_events_are_pinned() {
    let token = TokenRecord { expires_at_ms: None, revoked_at: None, ..samples::token() };
    let things: [Set<TokenRecord>; 2] = [
        ("expiry", |record| record.expires_at_ms = Some(1)),
        ("revoked", |record| record.revoked_at = Some(WallTime(1))),
    ];
    pinned(&token, wire, &[], &things);
    let plain = Event { revision: Revision::default(), quarantined: false, ..authority::events().remove(1) };
    let row = |event: &Event| {
        let mut out = Vec::new();
        encode_events(std::slice::from_ref(event), &mut out);
        out
    };
    let things: [Set<Event>; 3] = [
        ("execution", |event| event.execution = samples::evidence().execution),
        ("escalated", |event| event.escalated = true),
        ("quarantined", |event| event.quarantined = true),
    ];
    // Version, incarnation, group, index, count.
    pinned(&plain, row, &[1, 0, 0, 0, 1], &things);
}
