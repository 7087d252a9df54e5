//! Answers as they travel: one snapshot each, and that a client reads back what a server wrote.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use hapax_api::claim::{ClaimAnswer, Claimed, InProgress, Replayed};
use hapax_api::json::RawJson;
use hapax_api::operation::{Consistency, ExecutionView, OperationView, Receipt, ReconcilerView, Settled, State};
use hapax_api::text::Revision;
use hapax_api::time::Instant;

const REVISION: Revision = Revision { incarnation: 1, group: 0, index: 4711, ordinal: 0 };

fn receipt() -> Receipt {
    Receipt {
        outcome: Settled::Completed,
        status_code: Some(201),
        schema_version: Some("3".parse().unwrap()),
        result: Some(RawJson::parse(br#"{"rate":1.50}"#).unwrap()),
        result_ref: None,
        result_digest: None,
        external_id: Some("ch_1".parse().unwrap()),
        reason: None,
        completed_at: Instant(1_784_383_330_000),
        result_compacted: false,
    }
}

fn round_trip(answer: &ClaimAnswer) {
    let text = serde_json::to_string(answer).unwrap();
    assert_eq!(&serde_json::from_str::<ClaimAnswer>(&text).unwrap(), answer);
    // A newer server may say more.
    let more = text.replacen('{', "{\"of_a_later_version\":{},", 1);
    assert_eq!(&serde_json::from_str::<ClaimAnswer>(&more).unwrap(), answer);
}

#[test]
fn claimed() {
    let answer = ClaimAnswer::Claimed(Claimed {
        operation_id: "op_1".parse().unwrap(),
        execution_id: "ex_1".parse().unwrap(),
        attempt: 1,
        lease_epoch: 460_000_000_000_001,
        lease_expires_in_ms: 60_000,
        renew_by_ms: 20_000,
        effect_key: "ek_1".parse().unwrap(),
        revision: REVISION,
    });
    assert_eq!(answer.status(), 201);
    round_trip(&answer);
    insta::assert_snapshot!(serde_json::to_string(&answer).unwrap(), @r#"{"result":"claimed","operation_id":"op_1","execution_id":"ex_1","attempt":1,"lease_epoch":460000000000001,"lease_expires_in_ms":60000,"renew_by_ms":20000,"effect_key":"ek_1","revision":"1.0.4711.0"}"#);
}

#[test]
fn in_progress() {
    let answer = ClaimAnswer::InProgress(InProgress {
        operation_id: "op_1".parse().unwrap(),
        execution_id: "ex_1".parse().unwrap(),
        attempt: 1,
        state: State::Executing,
        revision: REVISION,
    });
    assert_eq!(answer.status(), 202);
    round_trip(&answer);
    insta::assert_snapshot!(serde_json::to_string(&answer).unwrap(), @r#"{"result":"in_progress","operation_id":"op_1","execution_id":"ex_1","attempt":1,"state":"executing","revision":"1.0.4711.0"}"#);
}

#[test]
fn replayed() {
    let answer = ClaimAnswer::Replayed(Replayed {
        operation_id: "op_1".parse().unwrap(),
        execution_id: Some("ex_1".parse().unwrap()),
        attempt: 1,
        state: State::Completed,
        outcome: receipt(),
        revision: REVISION,
        consistency: Some(Consistency::Local),
    });
    assert_eq!(answer.status(), 200);
    round_trip(&answer);
    insta::assert_snapshot!(serde_json::to_string(&answer).unwrap(), @r#"{"result":"replayed","operation_id":"op_1","execution_id":"ex_1","attempt":1,"state":"completed","outcome":{"outcome":"completed","status_code":201,"schema_version":"3","result":{"rate":1.50},"external_id":"ch_1","completed_at":"2026-07-18T14:02:10.000Z"},"revision":"1.0.4711.0","consistency":"local"}"#);
}

#[test]
fn unknown_results_are_refused() {
    for text in ["{}", "{\"result\":\"something_else\"}", "[]", "{\"result\":\"claimed\"}"] {
        assert!(serde_json::from_str::<ClaimAnswer>(text).is_err(), "{text}");
    }
}

#[test]
fn an_operation() {
    let view = OperationView {
        operation_id: "op_1".parse().unwrap(),
        namespace: "payments".parse().unwrap(),
        state: State::Unknown,
        attempt: 2,
        execution: Some(ExecutionView {
            execution_id: "ex_2".parse().unwrap(),
            state: State::Unknown,
            owner: "worker-a".parse().unwrap(),
            lease_epoch: Some(7),
            lease_expires_in_ms: None,
            effect_key: "op_1-a2".parse().unwrap(),
            capability_id: Some("cap_1".parse().unwrap()),
            unknown_since: Some(Instant(1_784_383_330_000)),
        }),
        outcome: None,
        created_at: Instant(0),
        updated_at: Instant(1_784_383_330_000),
        retain_until: None,
        resource: Some("ORD-8841".parse().unwrap()),
        correlation_id: Some("COR-2210".parse().unwrap()),
        escalated: true,
        reconciler: Some(ReconcilerView { owner: "night-shift".parse().unwrap(), lease_expires_in_ms: 59_000 }),
        quarantined: false,
        superseded_by: None,
        supersedes: None,
        revision: REVISION,
        consistency: None,
    };
    let text = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<OperationView>(&text).unwrap(), view);
    insta::assert_snapshot!(text, @r#"{"operation_id":"op_1","namespace":"payments","state":"unknown","attempt":2,"execution":{"execution_id":"ex_2","state":"unknown","owner":"worker-a","lease_epoch":7,"effect_key":"op_1-a2","capability_id":"cap_1","unknown_since":"2026-07-18T14:02:10.000Z"},"created_at":"1970-01-01T00:00:00.000Z","updated_at":"2026-07-18T14:02:10.000Z","resource":"ORD-8841","correlation_id":"COR-2210","escalated":true,"reconciler":{"owner":"night-shift","lease_expires_in_ms":59000},"quarantined":false,"revision":"1.0.4711.0"}"#);
}
