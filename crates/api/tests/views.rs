//! The answers of authority, ambiguity, finding and administration as they travel: one snapshot each, and that a client
//! reads back what a server wrote, whatever a newer server says besides.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use hapax_api::Code;
use hapax_api::capability::{CapabilityState, CapabilityView, Consumed, Revoked};
use hapax_api::claim::{ClaimAnswer, DuplicateDelivery, Message};
use hapax_api::cursor::{Cursor, FilterHash};
use hapax_api::epoch::{EpochBinding, EpochView};
use hapax_api::evidence::{EvidenceEntry, EvidencePage, Refused, Said, Word};
use hapax_api::find::OperationPage;
use hapax_api::namespace::{Floors, LimitsView, NamespacePage, NamespacePolicy, NamespaceView, Usage};
use hapax_api::operation::{Consistency, OperationView, Receipt, Settled, State};
use hapax_api::reconcile::{ReconcileItem, Reconciling};
use hapax_api::register::Registered;
use hapax_api::tenant::{Role, TenantPage, TenantView, TokenCreated, TokenPage, TokenView};
use hapax_api::text::{Digest, Malformed, Revision};
use hapax_api::time::Instant;
use serde::Serialize;
use serde::de::DeserializeOwned;

const REVISION: Revision = Revision { incarnation: 1, group: 0, index: 4711, ordinal: 0 };
const AT: Instant = Instant(1_784_383_330_000);

/// The text of an answer, once it is shown to be read back, with and without what a newer server adds.
fn wire<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(answer: &T) -> String {
    let text = serde_json::to_string(answer).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), answer);
    let more = text.replacen('{', "{\"of_a_later_version\":{},", 1);
    assert_eq!(&serde_json::from_str::<T>(&more).unwrap(), answer);
    text
}

fn a<T: std::str::FromStr<Err = Malformed>>(text: &str) -> T {
    text.parse().unwrap()
}

fn cursor() -> Option<Cursor> {
    Some(Cursor { revision: REVISION, filter: FilterHash([7; 16]), position: b"p".to_vec() })
}

fn requested() -> OperationView {
    OperationView {
        operation_id: a("op_1"),
        namespace: a("payments"),
        state: State::Requested,
        attempt: 0,
        execution: None,
        outcome: None,
        created_at: AT,
        updated_at: AT,
        retain_until: None,
        resource: None,
        correlation_id: None,
        escalated: false,
        reconciler: None,
        quarantined: false,
        superseded_by: None,
        supersedes: None,
        revision: REVISION,
        consistency: None,
    }
}

#[test]
fn an_operation_that_nobody_was_elected_for() {
    insta::assert_snapshot!(wire(&requested()), @r#"{"operation_id":"op_1","namespace":"payments","state":"requested","attempt":0,"created_at":"2026-07-18T14:02:10.000Z","updated_at":"2026-07-18T14:02:10.000Z","escalated":false,"quarantined":false,"revision":"1.0.4711.0"}"#);
    let registered = Registered { operation_id: a("op_1"), state: State::Requested, revision: REVISION };
    insta::assert_snapshot!(wire(&registered), @r#"{"operation_id":"op_1","state":"requested","revision":"1.0.4711.0"}"#);
}

#[test]
fn a_page_of_operations() {
    let receipt = Receipt {
        outcome: Settled::Failed,
        status_code: None,
        schema_version: None,
        result: None,
        result_ref: None,
        result_digest: None,
        external_id: None,
        reason: Some(a("closed: ordered twice")),
        completed_at: AT,
        result_compacted: true,
    };
    let closed = OperationView {
        state: State::Failed,
        outcome: Some(receipt),
        retain_until: Some(Instant(AT.0 + 2_592_000_000)),
        quarantined: true,
        superseded_by: Some(a("op_2")),
        supersedes: Some(a("op_0")),
        consistency: Some(Consistency::Local),
        ..requested()
    };
    let page = OperationPage { operations: vec![closed], next_cursor: cursor(), revision: REVISION };
    insta::assert_snapshot!(wire(&page), @r#"{"operations":[{"operation_id":"op_1","namespace":"payments","state":"failed","attempt":0,"outcome":{"outcome":"failed","reason":"closed: ordered twice","completed_at":"2026-07-18T14:02:10.000Z","result_compacted":true},"created_at":"2026-07-18T14:02:10.000Z","updated_at":"2026-07-18T14:02:10.000Z","retain_until":"2026-08-17T14:02:10.000Z","escalated":false,"quarantined":true,"superseded_by":"op_2","supersedes":"op_0","revision":"1.0.4711.0","consistency":"local"}],"next_cursor":"c1_AAAAAAAAAAEAAAAAAAAAAAAAAAAAABJnAAAAAAAAAAAHBwcHBwcHBwcHBwcHBwcHcA","revision":"1.0.4711.0"}"#);
}

#[test]
fn a_duplicate_delivery() {
    let answer = ClaimAnswer::DuplicateDelivery(DuplicateDelivery {
        operation_id: a("op_1"),
        execution_id: Some(a("ex_1")),
        attempt: 1,
        state: State::Unknown,
        revision: REVISION,
    });
    assert_eq!(answer.status(), 200);
    insta::assert_snapshot!(wire(&answer), @r#"{"result":"duplicate_delivery","operation_id":"op_1","execution_id":"ex_1","attempt":1,"state":"unknown","revision":"1.0.4711.0"}"#);
}

#[test]
fn capabilities() {
    let single = CapabilityView {
        capability_id: a("cap_1"),
        operation_id: Some(a("op_1")),
        namespace: a("payments"),
        resource: None,
        attempt: Some(2),
        decision_id: a("DEC-7"),
        client: a("decider"),
        state: CapabilityState::Consumed,
        uses_left: 0,
        max_uses: 1,
        issued_at: AT,
        expires_at: Instant(AT.0 + 60_000),
        epoch: Some(EpochBinding { scope: a("refunds"), value: 0 }),
        effect_key_attempt: Some(1),
        consumed: Some(Consumed { operation_id: a("op_1"), execution_id: a("ex_2"), at: AT }),
        revoked: None,
        revision: REVISION,
        consistency: Some(Consistency::Local),
    };
    insta::assert_snapshot!(wire(&single), @r#"{"capability_id":"cap_1","operation_id":"op_1","namespace":"payments","attempt":2,"decision_id":"DEC-7","client":"decider","state":"consumed","uses_left":0,"max_uses":1,"issued_at":"2026-07-18T14:02:10.000Z","expires_at":"2026-07-18T14:03:10.000Z","epoch":{"scope":"refunds","value":0},"effect_key_attempt":1,"consumed":{"operation_id":"op_1","execution_id":"ex_2","at":"2026-07-18T14:02:10.000Z"},"revision":"1.0.4711.0","consistency":"local"}"#);
    let bounded = CapabilityView {
        operation_id: None,
        resource: Some(a("ORD-8841")),
        attempt: None,
        state: CapabilityState::Revoked,
        uses_left: 7,
        max_uses: 10,
        epoch: None,
        effect_key_attempt: None,
        consumed: None,
        revoked: Some(Revoked { client: a("operator"), reason: Some(a("sent twice")), at: AT }),
        consistency: None,
        ..single
    };
    insta::assert_snapshot!(wire(&bounded), @r#"{"capability_id":"cap_1","namespace":"payments","resource":"ORD-8841","decision_id":"DEC-7","client":"decider","state":"revoked","uses_left":7,"max_uses":10,"issued_at":"2026-07-18T14:02:10.000Z","expires_at":"2026-07-18T14:03:10.000Z","revoked":{"client":"operator","reason":"sent twice","at":"2026-07-18T14:02:10.000Z"},"revision":"1.0.4711.0"}"#);
    let epoch = EpochView { scope: a("refunds"), value: 460_000_000_000_001, revision: REVISION, consistency: None };
    insta::assert_snapshot!(wire(&epoch), @r#"{"scope":"refunds","value":460000000000001,"revision":"1.0.4711.0"}"#);
}

#[test]
fn reconciliation() {
    let item = ReconcileItem {
        execution_id: a("ex_1"),
        operation_id: a("op_1"),
        namespace: a("payments"),
        attempt: 1,
        effect_key: a("op_1-a1"),
        correlation_id: Some(a("COR-2210")),
        unknown_since: AT,
        lease_epoch: 8,
        lease_expires_in_ms: 60_000,
    };
    insta::assert_snapshot!(wire(&Reconciling { items: vec![item], revision: REVISION }), @r#"{"items":[{"execution_id":"ex_1","operation_id":"op_1","namespace":"payments","attempt":1,"effect_key":"op_1-a1","correlation_id":"COR-2210","unknown_since":"2026-07-18T14:02:10.000Z","lease_epoch":8,"lease_expires_in_ms":60000}],"revision":"1.0.4711.0"}"#);
}

#[test]
fn evidence() {
    let word = Word {
        said: Said::Supersede,
        number: 3,
        operation_id: a("op_1"),
        execution_id: None,
        client: a("operator"),
        claim_id: None,
        lease_epoch: None,
        outcome: None,
        external_id: None,
        by: Some(a("op_2")),
        reason: Some(a("ordered again")),
        proof: Some(a("ticket 7")),
        operation_state: State::Failed,
        at: AT,
        chain: Digest([0xab; 32]),
        revision: REVISION,
    };
    let refused = Refused {
        code: Code::CapabilityAlreadyConsumed,
        namespace: a("payments"),
        capability_id: Some(a("cap_1")),
        message: Some(Message { consumer: a("refund-worker"), id: a("MSG-55B") }),
        known_redelivery: false,
        operation_id: Some(a("op_1")),
        operation_state: Some(State::Unknown),
        attempt: Some(1),
        execution_attempted: false,
        client: a("worker"),
        correlation_id: None,
        first_at: AT,
        last_at: Instant(AT.0 + 1_000),
        times: 3,
        revision: REVISION,
    };
    let entries = vec![EvidenceEntry::Word(word), EvidenceEntry::Refused(refused)];
    insta::assert_snapshot!(wire(&EvidencePage { entries, next_cursor: None, revision: REVISION }), @r#"{"entries":[{"kind":"word","said":"supersede","number":3,"operation_id":"op_1","client":"operator","by":"op_2","reason":"ordered again","proof":"ticket 7","operation_state":"failed","at":"2026-07-18T14:02:10.000Z","chain":"sha256:abababababababababababababababababababababababababababababababab","revision":"1.0.4711.0"},{"kind":"refused","code":"capability.already-consumed","namespace":"payments","capability_id":"cap_1","message":{"consumer":"refund-worker","id":"MSG-55B"},"known_redelivery":false,"operation_id":"op_1","operation_state":"unknown","attempt":1,"execution_attempted":false,"client":"worker","first_at":"2026-07-18T14:02:10.000Z","last_at":"2026-07-18T14:02:11.000Z","times":3,"revision":"1.0.4711.0"}],"revision":"1.0.4711.0"}"#);
    let said = [
        Said::Report,
        Said::Evidence,
        Said::Resolve,
        Said::Escalate,
        Said::DeEscalate,
        Said::Fence,
        Said::Quarantine,
        Said::Release,
        Said::Supersede,
        Said::Close,
    ];
    insta::assert_snapshot!(serde_json::to_string(&said).unwrap(), @r#"["report","evidence","resolve","escalate","de_escalate","fence","quarantine","release","supersede","close"]"#);
}

#[test]
fn namespaces() {
    let view = NamespaceView {
        namespace: a("payments"),
        tenant: a("acme"),
        policy: NamespacePolicy { transport_fields: vec![a("trace_id")], ..NamespacePolicy::default() },
        version: 7,
        limits: LimitsView::from(&hapax_api::Limits::default()),
        usage: Usage { open_operations: 12, unknown: 1 },
        floors: Floors { compact_before: AT, forget_before: Instant(0) },
        revision: REVISION,
    };
    let page = NamespacePage { namespaces: vec![view], next_cursor: None, revision: REVISION };
    insta::assert_snapshot!(wire(&page), @r#"{"namespaces":[{"namespace":"payments","tenant":"acme","policy":{"scope":"namespace","on_lapse":"unknown","attempts":"automatic","conflict_style":"hapax","authority":"inline","transport_fields":["trace_id"],"partitions":1,"retention":{"body_ms":604800000,"identity_ms":2592000000,"expired_keys":"new"},"reconcile_per_minute":120,"quota":{}},"version":7,"limits":{"key_chars":255,"body_bytes":65536,"result_bytes":16384,"wait_ms":60000,"lease_ms_min":1000,"lease_ms":900000,"batch_items":256,"batch_bytes":1048576,"page_items":500},"usage":{"open_operations":12,"unknown":1},"floors":{"compact_before":"2026-07-18T14:02:10.000Z","forget_before":"1970-01-01T00:00:00.000Z"},"revision":"1.0.4711.0"}],"revision":"1.0.4711.0"}"#);
}

#[test]
fn tenants_and_tokens() {
    let tenant = TenantView {
        tenant: a("acme"),
        system: false,
        disabled: true,
        requests_per_second: Some(100),
        version: 2,
        revision: REVISION,
    };
    insta::assert_snapshot!(wire(&TenantPage { tenants: vec![tenant], next_cursor: cursor(), revision: REVISION }), @r#"{"tenants":[{"tenant":"acme","system":false,"disabled":true,"requests_per_second":100,"version":2,"revision":"1.0.4711.0"}],"next_cursor":"c1_AAAAAAAAAAEAAAAAAAAAAAAAAAAAABJnAAAAAAAAAAAHBwcHBwcHBwcHBwcHBwcHcA","revision":"1.0.4711.0"}"#);
    let view = TokenView {
        token_id: a("00112233445566778899"),
        tenant: a("acme"),
        client: a("worker"),
        namespaces: vec![a("payments")],
        roles: vec![Role::Claim, Role::Read],
        created_at: AT,
        expires_at: Some(Instant(AT.0 + 1)),
        revoked_at: Some(Instant(AT.0 + 2)),
        revision: REVISION,
    };
    let created = TokenCreated { token: a("hpx_00112233445566778899_5ec2e7"), view: view.clone() };
    assert!(!format!("{created:?}").contains("5ec2e7"));
    insta::assert_snapshot!(wire(&created), @r#"{"token":"hpx_00112233445566778899_5ec2e7","token_id":"00112233445566778899","tenant":"acme","client":"worker","namespaces":["payments"],"roles":["claim","read"],"created_at":"2026-07-18T14:02:10.000Z","expires_at":"2026-07-18T14:02:10.001Z","revoked_at":"2026-07-18T14:02:10.002Z","revision":"1.0.4711.0"}"#);
    insta::assert_snapshot!(wire(&TokenPage { tokens: vec![view], next_cursor: None, revision: REVISION }), @r#"{"tokens":[{"token_id":"00112233445566778899","tenant":"acme","client":"worker","namespaces":["payments"],"roles":["claim","read"],"created_at":"2026-07-18T14:02:10.000Z","expires_at":"2026-07-18T14:02:10.001Z","revoked_at":"2026-07-18T14:02:10.002Z","revision":"1.0.4711.0"}],"revision":"1.0.4711.0"}"#);
}
