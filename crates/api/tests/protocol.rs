//! The requests of authority, ambiguity, repair, finding and administration, as bytes and as query strings.
//! Each case is one that is read, and each way to be refused with the field that is named.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use hapax_api::capability::{IssueBoundedRequest, IssueRequest, RevokeRequest};
use hapax_api::codes::ConflictStyle;
use hapax_api::cursor::{Cursor, FilterHash};
use hapax_api::epoch::{BumpRequest, EpochBinding};
use hapax_api::evidence::{EvidenceBy, EvidenceQuery};
use hapax_api::find::{ListQuery, ListState, Lookup, LookupBy, LookupRequest};
use hapax_api::namespace::{
    Attempts, Authority, ExpiredKeys, NamespacePolicy, OnLapse, PageQuery, PutNamespaceRequest, Quota, Retention,
    Scope, TenantQuery,
};
use hapax_api::operation::{Consistency, OperationQuery, State};
use hapax_api::reconcile::{EscalateRequest, FenceRequest, ReconcileRequest};
use hapax_api::register::{Register, RegisterRequest};
use hapax_api::repair::{RepairRequest, SupersedeRequest};
use hapax_api::tenant::{CreateTokenRequest, PutTenantRequest, RevokeTokenRequest, Role};
use hapax_api::time::Instant;
use hapax_api::{Code, Invalid, Limits};
use serde::Serialize;

const AT: &str = "2026-07-18T14:02:10.000Z";

type Read<T> = fn(&[u8], &Limits) -> Result<T, Invalid>;

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

/// What a client writes is read back as it was.
fn round_trip<T: Serialize + PartialEq + std::fmt::Debug>(request: &T, read: Read<T>) {
    let text = json(request);
    assert_eq!(read(text.as_bytes(), &Limits::default()).as_ref(), Ok(request), "{text}");
}

/// Each body is refused at its pointer.
fn refused<T: std::fmt::Debug>(read: Read<T>, cases: &[(&str, &str)]) {
    for (body, pointer) in cases {
        let invalid = read(body.as_bytes(), &Limits::default()).expect_err(body);
        assert_eq!((invalid.code, invalid.pointer.as_deref()), (Code::RequestInvalid, Some(*pointer)), "{body}");
    }
}

fn detail<T: std::fmt::Debug>(read: Result<T, Invalid>) -> String {
    let invalid = read.unwrap_err();
    assert_eq!((invalid.code, invalid.pointer), (Code::RequestInvalid, None));
    invalid.detail
}

fn epoch() -> EpochBinding {
    EpochBinding { scope: "refunds".parse().unwrap(), value: 3 }
}

fn cursor() -> Cursor {
    Cursor { revision: "1.0.5.0".parse().unwrap(), filter: FilterHash::of(&[b"t"]), position: b"p".to_vec() }
}

#[test]
fn a_registration() {
    let limits = Limits::default();
    let body = r#"{"namespace":"n","key":"k","request":{"a":1},"resource":"ORD-1","correlation_id":"c",
        "key_created_at":"2026-07-18T14:02:10.000Z","business_epoch":"2026-07"}"#;
    let read = Register::read(body.as_bytes(), None, &limits).unwrap();
    assert_eq!(read.resource.unwrap().as_str(), "ORD-1");
    assert_eq!(read.key_created_at, Some(AT.parse().unwrap()));
    for (body, pointer) in [
        (r#"{"namespace":"n","key":"k"}"#, "/request"),
        (r#"{"namespace":"n","request":1}"#, "/key"),
        (r#"{"key":"k","request":1}"#, "/namespace"),
        (r#"{"namespace":"n","key":"k","request":1,"lease_ms":1000}"#, "/lease_ms"),
        (r#"{"namespace":"n","key":"k","request":{"a":1.5}}"#, "/request/a"),
    ] {
        assert_eq!(Register::read(body.as_bytes(), None, &limits).unwrap_err().pointer.as_deref(), Some(pointer));
    }
    let without_key =
        RegisterRequest { key: None, ..RegisterRequest::new("n".parse().unwrap(), "k".parse().unwrap()) };
    let request = RegisterRequest { digest: Some(hapax_api::text::Digest([7; 32])), ..without_key };
    let request = RegisterRequest { digest_profile: Some(hapax_api::claim::DigestProfile::C14n1), ..request };
    let read = Register::read(json(&request).as_bytes(), Some("from-header".parse().unwrap()), &limits).unwrap();
    assert_eq!(read.key.as_str(), "from-header");
}

#[test]
fn capabilities() {
    let issue = IssueRequest {
        decision_id: "DEC-7".parse().unwrap(),
        attempt: 2,
        expires_at: AT.parse().unwrap(),
        epoch: Some(epoch()),
        effect_key_attempt: Some(1),
    };
    round_trip(&issue, IssueRequest::read);
    let least = r#"{"decision_id":"d","attempt":1,"expires_at":"2026-07-18T14:02:10.000Z"}"#;
    assert!(IssueRequest::read(least.as_bytes(), &Limits::default()).is_ok());
    let with = |members: &str| least.replace('}', &format!(",{members}}}"));
    refused(
        IssueRequest::read,
        &[
            (&least.replace("decision_id", "decision"), "/decision"),
            (r#"{"attempt":1,"expires_at":"2026-07-18T14:02:10.000Z"}"#, "/decision_id"),
            (r#"{"decision_id":"d","expires_at":"2026-07-18T14:02:10.000Z"}"#, "/attempt"),
            (r#"{"decision_id":"d","attempt":1}"#, "/expires_at"),
            (&least.replace(":1,", ":0,"), "/attempt"),
            (&with(r#""effect_key_attempt":2"#), "/effect_key_attempt"),
            (&with(r#""effect_key_attempt":0"#), "/effect_key_attempt"),
            (&with(r#""epoch":{"scope":"s"}"#), "/epoch/value"),
            (&with(r#""max_uses":2"#), "/max_uses"),
        ],
    );
    let bounded = IssueBoundedRequest {
        namespace: "n".parse().unwrap(),
        resource: "ORD-1".parse().unwrap(),
        decision_id: "DEC-7".parse().unwrap(),
        expires_at: AT.parse().unwrap(),
        max_uses: 1_000_000,
        epoch: None,
    };
    round_trip(&bounded, IssueBoundedRequest::read);
    let text = json(&bounded);
    for uses in ["1", "0", "1000001", "\"2\""] {
        refused(IssueBoundedRequest::read, &[(&text.replace("1000000", uses), "/max_uses")]);
    }
    refused(IssueBoundedRequest::read, &[(&text.replace("resource", "attempt"), "/attempt")]);
    round_trip(&RevokeRequest { reason: Some("sent twice".parse().unwrap()) }, RevokeRequest::read);
    round_trip(&RevokeRequest::default(), RevokeRequest::read);
    refused(RevokeRequest::read, &[(r#"{"reason":""}"#, "/reason"), ("[]", ""), (r#"{"proof":"p"}"#, "/proof")]);
}

#[test]
fn epochs() {
    round_trip(&BumpRequest { expected: 0 }, BumpRequest::read);
    round_trip(&BumpRequest { expected: (1 << 53) - 1 }, BumpRequest::read);
    refused(
        BumpRequest::read,
        &[
            ("{}", "/expected"),
            (r#"{"expected":-1}"#, "/expected"),
            (r#"{"expected":9007199254740992}"#, "/expected"),
        ],
    );
}

#[test]
fn reconciliation() {
    let lease = ReconcileRequest {
        namespace: Some("n".parse().unwrap()),
        owner: "night-shift".parse().unwrap(),
        limit: 100,
        lease_ms: 60_000,
    };
    round_trip(&lease, ReconcileRequest::read);
    round_trip(&ReconcileRequest { namespace: None, ..lease }, ReconcileRequest::read);
    refused(
        ReconcileRequest::read,
        &[
            (r#"{"limit":1,"lease_ms":1000}"#, "/owner"),
            (r#"{"owner":"o","lease_ms":1000}"#, "/limit"),
            (r#"{"owner":"o","limit":1}"#, "/lease_ms"),
            (r#"{"owner":"o","limit":0,"lease_ms":1000}"#, "/limit"),
            (r#"{"owner":"o","limit":101,"lease_ms":1000}"#, "/limit"),
            (r#"{"owner":"o","limit":1,"lease_ms":999}"#, "/lease_ms"),
        ],
    );
    let escalate = EscalateRequest {
        lease_epoch: 7,
        escalated: Some(false),
        reason: "the provider found it".parse().unwrap(),
        proof: Some("look-up 4711".parse().unwrap()),
    };
    round_trip(&escalate, EscalateRequest::read);
    assert!(!escalate.escalates());
    let least = EscalateRequest { escalated: None, proof: None, ..escalate };
    round_trip(&least, EscalateRequest::read);
    assert!(least.escalates());
    refused(
        EscalateRequest::read,
        &[
            (r#"{"lease_epoch":7}"#, "/reason"),
            (r#"{"reason":"r"}"#, "/lease_epoch"),
            (r#"{"lease_epoch":7,"reason":"r","escalated":1}"#, "/escalated"),
            (r#"{"lease_epoch":7,"reason":"r","escalated":null}"#, "/escalated"),
        ],
    );
    round_trip(&FenceRequest { lease_epoch: 7, reason: "hung".parse().unwrap(), proof: None }, FenceRequest::read);
    refused(
        FenceRequest::read,
        &[
            (r#"{"lease_epoch":0,"reason":"r"}"#, "/lease_epoch"),
            (r#"{"lease_epoch":7}"#, "/reason"),
            (r#"{"lease_epoch":7,"reason":"r","escalated":true}"#, "/escalated"),
        ],
    );
}

#[test]
fn repair() {
    let reason = || "proofs contradict".parse().unwrap();
    for state in
        [State::Requested, State::Executing, State::Unknown, State::NotApplied, State::Completed, State::Failed]
    {
        assert_eq!(json(&state), format!("\"{state}\""));
        round_trip(&RepairRequest { expected_state: state, reason: reason(), proof: None }, RepairRequest::read);
    }
    let supersede = SupersedeRequest {
        expected_state: State::Failed,
        by: "op_2".parse().unwrap(),
        reason: reason(),
        proof: Some("ticket 7".parse().unwrap()),
    };
    round_trip(&supersede, SupersedeRequest::read);
    refused(
        RepairRequest::read,
        &[
            (r#"{"reason":"r"}"#, "/expected_state"),
            (r#"{"expected_state":"escalated","reason":"r"}"#, "/expected_state"),
            (r#"{"expected_state":"failed"}"#, "/reason"),
            (r#"{"expected_state":"failed","reason":"r","by":"op_2"}"#, "/by"),
        ],
    );
    refused(SupersedeRequest::read, &[(r#"{"expected_state":"failed","reason":"r"}"#, "/by")]);
}

#[test]
fn look_ups_go_by_one_thing() {
    let read = |request: &LookupRequest| Lookup::read(json(request).as_bytes(), &Limits::default()).unwrap();
    let namespace = || "n".parse().unwrap();
    let by_key = LookupRequest::by_key(namespace(), "k".parse().unwrap(), Some("2026-07".parse().unwrap()));
    let LookupBy::Key { key, business_epoch } = read(&by_key).by else { panic!("by key") };
    assert_eq!((key, business_epoch), (by_key.key.unwrap(), by_key.business_epoch));
    let by_external_id = LookupRequest::by_external_id(namespace(), "ch_1".parse().unwrap());
    assert_eq!(read(&by_external_id).by, LookupBy::ExternalId("ch_1".parse().unwrap()));
    let by_resource = LookupRequest {
        limit: Some(7),
        cursor: Some(cursor()),
        ..LookupRequest::by_resource(namespace(), "ORD-1".parse().unwrap())
    };
    let by_resource = read(&by_resource);
    assert_eq!(by_resource.by, LookupBy::Resource("ORD-1".parse().unwrap()));
    assert_eq!((by_resource.limit, by_resource.cursor), (7, Some(cursor())));
    assert_eq!(read(&by_external_id).limit, 100);
    refused(
        Lookup::read,
        &[
            (r#"{"namespace":"n"}"#, "/key"),
            (r#"{"key":"k"}"#, "/namespace"),
            (r#"{"namespace":"n","key":"k","external_id":"e"}"#, "/external_id"),
            (r#"{"namespace":"n","resource":"r","external_id":"e"}"#, "/external_id"),
            (r#"{"namespace":"n","key":"k","resource":"r"}"#, "/resource"),
            (r#"{"namespace":"n","key":"k","resource":"r","external_id":"e"}"#, "/external_id"),
            (r#"{"namespace":"n","resource":"r","business_epoch":"b"}"#, "/business_epoch"),
            (r#"{"namespace":"n","resource":"r","limit":501}"#, "/limit"),
            (r#"{"namespace":"n","resource":"r","cursor":"c1_AAAA"}"#, "/cursor"),
        ],
    );
}

#[test]
fn lists_and_evidence() {
    let limits = Limits::default();
    let list = ListQuery {
        older_than: Some(AT.parse().unwrap()),
        limit: Some(500),
        cursor: Some(cursor()),
        ..ListQuery::new("n".parse().unwrap(), ListState::Escalated)
    };
    assert_eq!(ListQuery::read(&list.to_text(), &limits), Ok(list));
    for state in ListState::ALL {
        let list = ListQuery::new("n".parse().unwrap(), *state);
        assert_eq!(ListQuery::read(&list.to_text(), &limits).unwrap(), ListQuery { limit: Some(100), ..list });
    }
    let read = |query: &str| ListQuery::read(query, &limits);
    assert_eq!(detail(read("state=unknown")), "namespace is required in the query");
    assert_eq!(detail(read("namespace=n")), "state is required in the query");
    assert!(detail(read("namespace=n&state=done")).starts_with("state must be one of: requested executing"));
    assert!(detail(read("namespace=n&state=failed&older_than=60000")).starts_with("older_than must be RFC 3339"));
    assert_eq!(detail(read("namespace=n&state=failed&limit=501")), "limit must be an integer from 1 to 500");
    assert!(detail(read("namespace=n&state=failed&key=k")).starts_with("the query has an unknown parameter"));

    let message = hapax_api::claim::Message { consumer: "w/1&2".parse().unwrap(), id: "MSG+55=A".parse().unwrap() };
    for by in [
        EvidenceBy::Operation("op_1".parse().unwrap()),
        EvidenceBy::Capability("cap_1".parse().unwrap()),
        EvidenceBy::Message(message),
        EvidenceBy::Correlation("COR-2210".parse().unwrap()),
    ] {
        let query = EvidenceQuery { limit: Some(7), cursor: Some(cursor()), ..EvidenceQuery::new(by) };
        assert_eq!(EvidenceQuery::read(&query.to_text(), &limits), Ok(query));
    }
    let read = |query: &str| EvidenceQuery::read(query, &limits);
    let exactly = "the query must have exactly one of operation_id, capability_id, message_id and correlation_id";
    for query in ["", "limit=7", "operation_id=op_1&capability_id=cap_1", "correlation_id=c&message_id=m&consumer=w"]
    {
        assert_eq!(detail(read(query)), exactly, "{query}");
    }
    assert_eq!(detail(read("message_id=m")), "consumer is required with message_id");
    assert_eq!(detail(read("operation_id=op_1&consumer=w")), "consumer belongs to message_id, which is absent");
}

#[test]
fn local_reads_are_asked_for() {
    let local = OperationQuery { consistency: Some(Consistency::Local) };
    assert_eq!((local.to_text().as_str(), OperationQuery::read(&local.to_text())), ("consistency=local", Ok(local)));
    assert_eq!(OperationQuery::read(""), Ok(OperationQuery::default()));
    assert_eq!(detail(OperationQuery::read("consistency=eventual")), "consistency must be \"local\"");
}

#[test]
fn a_policy_is_whole() {
    let limits = Limits::default();
    assert_eq!(NamespacePolicy::read(b"{}", &limits), Ok(NamespacePolicy::default()));
    let policy = NamespacePolicy {
        scope: Scope::Client,
        on_lapse: OnLapse::Takeover,
        attempts: Attempts::Explicit,
        conflict_style: ConflictStyle::Ietf,
        authority: Authority::Capability,
        transport_fields: vec!["trace id".parse().unwrap(), "é".parse().unwrap()],
        partitions: 4_096,
        retention: Retention { body_ms: 60_000, identity_ms: 60_000, expired_keys: ExpiredKeys::RejectOlder },
        reconcile_per_minute: 1,
        quota: Quota { open_operations: Some(1), requests_per_second: Some(2), key_claims_per_second: Some(3) },
    };
    // What a reader was shown may be written back.
    let put = PutNamespaceRequest::from(policy.clone());
    assert_eq!(NamespacePolicy::read(json(&put).as_bytes(), &limits), Ok(policy.clone()));
    assert_eq!(NamespacePolicy::read(json(&policy).as_bytes(), &limits), Ok(policy));
    refused(
        NamespacePolicy::read,
        &[
            (r#"{"scope":"tenant"}"#, "/scope"),
            (r#"{"on_lapse":true}"#, "/on_lapse"),
            (r#"{"authority":"none"}"#, "/authority"),
            (r#"{"transport_fields":"trace"}"#, "/transport_fields"),
            (r#"{"transport_fields":["trace",7]}"#, "/transport_fields/1"),
            (r#"{"transport_fields":["trace",""]}"#, "/transport_fields/1"),
            (r#"{"partitions":0}"#, "/partitions"),
            (r#"{"partitions":4097}"#, "/partitions"),
            (r#"{"retention":7}"#, "/retention"),
            (r#"{"retention":{"body_ms":59999}}"#, "/retention/body_ms"),
            (r#"{"retention":{"body_ms":120000,"identity_ms":60000}}"#, "/retention/identity_ms"),
            (r#"{"retention":{"identity_ms":3162240000001}}"#, "/retention/identity_ms"),
            (r#"{"retention":{"expired_keys":"old"}}"#, "/retention/expired_keys"),
            (r#"{"retention":{"days":7}}"#, "/retention/days"),
            (r#"{"reconcile_per_minute":0}"#, "/reconcile_per_minute"),
            (r#"{"quota":{"open_operations":0}}"#, "/quota/open_operations"),
            (r#"{"quota":{"requests_per_second":1000000001}}"#, "/quota/requests_per_second"),
            (r#"{"version":1}"#, "/version"),
        ],
    );
    let many = format!(r#"{{"transport_fields":[{}]}}"#, vec!["\"a\""; 65].join(","));
    refused(NamespacePolicy::read, &[(&many, "/transport_fields")]);
    // A shorter identity alone shortens the result with it.
    let short = NamespacePolicy::read(br#"{"retention":{"identity_ms":60000}}"#, &limits).unwrap();
    assert_eq!(short.retention.body_ms, 60_000);
    // A longer result alone needs a longer identity said with it.
    refused(NamespacePolicy::read, &[(r#"{"retention":{"body_ms":3162240000000}}"#, "/retention/identity_ms")]);
}

#[test]
fn tenants_and_tokens() {
    round_trip(&PutTenantRequest { disabled: Some(true), requests_per_second: Some(7) }, PutTenantRequest::read);
    round_trip(&PutTenantRequest::default(), PutTenantRequest::read);
    refused(
        PutTenantRequest::read,
        &[
            (r#"{"system":true}"#, "/system"),
            (r#"{"disabled":"yes"}"#, "/disabled"),
            (r#"{"requests_per_second":0}"#, "/requests_per_second"),
        ],
    );
    let token = CreateTokenRequest {
        tenant: Some("acme".parse().unwrap()),
        client: "worker".parse().unwrap(),
        namespaces: vec!["payments".parse().unwrap()],
        roles: Role::ALL.to_vec(),
        expires_at: Some(Instant(1_784_383_330_000)),
    };
    round_trip(&token, CreateTokenRequest::read);
    let least = CreateTokenRequest { tenant: None, namespaces: Vec::new(), expires_at: None, ..token };
    round_trip(&least, CreateTokenRequest::read);
    refused(
        CreateTokenRequest::read,
        &[
            (r#"{"roles":["claim"]}"#, "/client"),
            (r#"{"client":"c"}"#, "/roles"),
            (r#"{"client":"c","roles":[]}"#, "/roles"),
            (r#"{"client":"c","roles":["root"]}"#, "/roles/0"),
            (r#"{"client":"c","roles":["claim"],"namespaces":["payments","Refunds"]}"#, "/namespaces/1"),
            (r#"{"client":"c","roles":["claim"],"secret":"s"}"#, "/secret"),
        ],
    );
    round_trip(&RevokeTokenRequest {}, RevokeTokenRequest::read);
    refused(RevokeTokenRequest::read, &[(r#"{"reason":"r"}"#, "/reason")]);

    let limits = Limits::default();
    let query = PageQuery { tenant: Some("acme".parse().unwrap()), limit: Some(7), cursor: Some(cursor()) };
    assert_eq!(PageQuery::read(&query.to_text(), &limits), Ok(query));
    let query = TenantQuery { tenant: Some("acme".parse().unwrap()) };
    assert_eq!(TenantQuery::read(&query.to_text()), Ok(query));
    assert!(detail(TenantQuery::read("tenant=..")).starts_with("tenant must be"));
}
