//! Requests as bytes: what is read, what is refused, and that each refusal names its field.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use hapax_api::claim::{Claim, ClaimRequest, DigestProfile, Message, Subject};
use hapax_api::epoch::EpochBinding;
use hapax_api::execution::{EvidenceRequest, OutcomeRequest, RenewRequest, Reported, ResolveRequest, ResultData};
use hapax_api::json::{RawJson, Value};
use hapax_api::operation::Settled;
use hapax_api::time::Instant;
use hapax_api::{Code, Invalid, Limits, Problem};

const CLAIM: &str = r#"{ "namespace": "payments", "key": "order-82/payment-1", "business_epoch": "2026-07",
    "request": { "amount": "120.00", "currency": "EUR", "order": "ORD-8841" }, "operation_version": "2",
    "claim_id": "0198b5d2-00aa-7bbb-8ccc-0123456789ab", "owner": "worker-a/attempt-7", "lease_ms": 60000,
    "wait_ms": 0, "correlation_id": "COR-2210", "attempt": 3, "capability_id": "cap_1",
    "message": { "consumer": "refund-worker", "id": "MSG-55A" }, "epoch": { "scope": "refunds", "value": 3 },
    "resource": "ORD-8841", "key_created_at": "2026-07-18T14:02:10.000Z" }"#;

fn claim(body: &str) -> Result<Claim, Invalid> {
    Claim::read(body.as_bytes(), None, &Limits::default())
}

/// The refusal of a body: its pointer and detail.
fn refusal<T: std::fmt::Debug>(read: Result<T, Invalid>) -> (String, String) {
    let invalid = read.expect_err("must be refused");
    assert_eq!(invalid.code, Code::RequestInvalid);
    (invalid.pointer.expect("a body's refusal has a pointer"), invalid.detail)
}

/// `CLAIM` with one member added, or replaced.
fn with(name: &str, value: &str) -> String {
    let mut members: serde_json::Map<String, serde_json::Value> = serde_json::from_str(CLAIM).unwrap();
    members.remove(name);
    let rest = serde_json::to_string(&members).unwrap();
    format!("{{\"{name}\":{value},{}", &rest[1..])
}

fn without(name: &str) -> String {
    let mut members: serde_json::Map<String, serde_json::Value> = serde_json::from_str(CLAIM).unwrap();
    members.remove(name).unwrap();
    serde_json::to_string(&members).unwrap()
}

#[test]
fn a_full_claim() {
    let claim = claim(CLAIM).unwrap();
    assert_eq!(claim.key.as_str(), "order-82/payment-1");
    assert_eq!((claim.lease_ms, claim.wait_ms, claim.attempt), (60_000, 0, Some(3)));
    let Subject::Request { request: Value::Object(members), operation_version } = claim.subject else {
        panic!("a request");
    };
    assert_eq!(members[0].0, "amount");
    assert_eq!(operation_version.unwrap().as_str(), "2");
}

#[test]
fn the_least_claim_gets_defaults() {
    let claim = claim(r#"{"namespace":"default","key":"k","request":null}"#).unwrap();
    assert_eq!((claim.lease_ms, claim.wait_ms, claim.attempt, claim.claim_id), (60_000, 0, None, None));
    assert_eq!(claim.subject, Subject::Request { request: Value::Null, operation_version: None });
}

#[test]
fn a_lowered_lease_limit_lowers_the_default() {
    let limits = Limits { lease_ms: 5_000, ..Limits::default() };
    let claim = Claim::read(without("lease_ms").as_bytes(), None, &limits).unwrap();
    assert_eq!(claim.lease_ms, 5_000);
    assert_eq!(refusal(Claim::read(CLAIM.as_bytes(), None, &limits)).0, "/lease_ms");
}

#[test]
fn other_fields_are_unknown() {
    for field in ["tenant", "client", "decision_id", "x", ""] {
        let (pointer, detail) = refusal(claim(&with(field, "\"v\"")));
        assert_eq!(pointer, format!("/{field}"));
        assert!(detail.starts_with("the field is unknown"), "{detail}");
    }
}

#[test]
fn each_wrong_field_is_named() {
    for (field, value) in [
        ("namespace", "\"Payments\""),
        ("namespace", "\"\""),
        ("namespace", "null"),
        ("key", "\"\""),
        ("key", "\"a b\""),
        ("key", "7"),
        ("business_epoch", "\"\""),
        ("operation_version", "1"),
        ("claim_id", "\"abc\""),
        ("claim_id", "\"00000000-0000-0000-0000-000000000000\""),
        ("owner", "\"\""),
        ("owner", "null"),
        ("lease_ms", "999"),
        ("lease_ms", "900001"),
        ("lease_ms", "\"60000\""),
        ("lease_ms", "60000.0"),
        ("lease_ms", "6e4"),
        ("lease_ms", "-1"),
        ("wait_ms", "60001"),
        ("wait_ms", "-0"),
        ("correlation_id", "\"a\\u0000\""),
        ("attempt", "0"),
        ("attempt", "4294967296"),
        ("digest", "\"sha256:00\""),
        ("digest_profile", "\"other/1\""),
        ("capability_id", "\"\""),
        ("capability_id", "\"a/b\""),
        ("message", "\"MSG-55A\""),
        ("message", "null"),
        ("epoch", "3"),
        ("resource", "\"a b\""),
        ("key_created_at", "\"2026-07-18T14:02:10Z\""),
        ("key_created_at", "1784383330000"),
    ] {
        let (pointer, _) = refusal(claim(&with(field, value)));
        assert_eq!(pointer, format!("/{field}"), "{value}");
    }
    for field in ["namespace", "key", "request"] {
        assert_eq!(refusal(claim(&without(field))).0, format!("/{field}"));
    }
}

#[test]
fn faults_inside_a_nested_object_are_pointed_at() {
    for (field, value, pointer) in [
        ("message", r#"{"consumer":"w"}"#, "/message/id"),
        ("message", r#"{"id":"m"}"#, "/message/consumer"),
        ("message", r#"{"consumer":"w","id":7}"#, "/message/id"),
        ("message", r#"{"consumer":"w","id":"m","a/b":1}"#, "/message/a~1b"),
        ("message", r#"{"consumer":"w","id":"m","id":"n"}"#, "/message/id"),
        ("epoch", r#"{"scope":"refunds"}"#, "/epoch/value"),
        ("epoch", r#"{"scope":"..","value":1}"#, "/epoch/scope"),
        ("epoch", r#"{"scope":"refunds","value":-1}"#, "/epoch/value"),
        ("epoch", r#"{"scope":"refunds","value":9007199254740992}"#, "/epoch/value"),
    ] {
        assert_eq!(refusal(claim(&with(field, value))).0, pointer, "{value}");
    }
}

#[test]
fn a_capability_is_presented_under_a_claim_id() {
    let (pointer, detail) = refusal(claim(&without("claim_id")));
    assert_eq!((pointer.as_str(), detail.as_str()), ("/claim_id", "is required with capability_id"));
}

#[test]
fn faults_inside_the_request_are_pointed_at() {
    assert_eq!(refusal(claim(&with("request", r#"{"a":[{"b":1.5}]}"#))).0, "/request/a/0/b");
    assert_eq!(refusal(claim(&with("request", r#"{"a":1,"a":2}"#))).0, "/request/a");
}

#[test]
fn a_field_may_appear_once() {
    let (pointer, detail) = refusal(claim(r#"{"namespace":"a","key":"k","namespace":"b","request":1}"#));
    assert_eq!(pointer, "/namespace");
    assert!(detail.starts_with("the field appears twice"), "{detail}");
    // Also where the second is written in escapes.
    assert_eq!(refusal(claim(r#"{"namespace":"a","key":"k","\u006bey":"l","request":1}"#)).0, "/key");
}

#[test]
fn a_body_is_one_object() {
    for body in ["", "null", "[]", "\"claim\"", "7", "{", "{}{}", "\u{feff}{}", "{\"namespace\":\"a\"} x"] {
        assert_eq!(refusal(claim(body)).0.split('/').count(), 1, "{body}");
    }
    assert_eq!(refusal(Claim::read(b"{\"namespace\":\"\xff\"}", None, &Limits::default())).0, "/namespace");
}

/// A client may log the problem that it got: what was sent is not in it.
#[test]
fn no_refusal_says_a_value_back() {
    let secret = "4111-1111";
    let mut bodies = vec![
        format!("\"{secret}\""),
        format!("\", expected {secret}, expected {secret}\""),
        secret.to_owned(),
        format!("{{\"key\":\"{secret}"),
    ];
    for name in ["namespace", "key", "claim_id", "owner", "lease_ms", "wait_ms", "message", "epoch", "key_created_at"]
    {
        for value in [format!("\"{secret} \\u0001\""), format!("[\"{secret}\"]"), format!("{{\"x\":\"{secret}\"}}")] {
            bodies.push(with(name, &value));
        }
    }
    for body in bodies {
        let (pointer, detail) = refusal(claim(&body));
        assert!(!format!("{pointer} {detail}").contains(secret), "{body}: {pointer}: {detail}");
    }
    assert_eq!(refusal(claim(&format!("\"{secret}\""))).1, "expected a JSON object at line 1 column 11");
}

#[test]
fn a_large_body_is_refused_unread() {
    let invalid = claim(&" ".repeat(64 * 1024 + 1)).unwrap_err();
    assert_eq!((invalid.code, invalid.pointer), (Code::RequestTooLarge, None));
}

#[test]
fn the_key_comes_from_one_place() {
    let limits = Limits::default();
    let header = || Some("from-header".parse().unwrap());
    let claim = Claim::read(without("key").as_bytes(), header(), &limits).unwrap();
    assert_eq!(claim.key.as_str(), "from-header");
    assert_eq!(refusal(Claim::read(CLAIM.as_bytes(), header(), &limits)).0, "/key");
    let short = Limits { key_chars: 5, ..limits };
    assert_eq!(refusal(Claim::read(CLAIM.as_bytes(), None, &short)).0, "/key");
    assert_eq!(refusal(Claim::read(without("key").as_bytes(), header(), &short)).0, "/key");
}

#[test]
fn a_request_or_a_digest() {
    let digest = format!("\"sha256:{}\"", "ab".repeat(32));
    let body = |rest: &str| format!("{{\"namespace\":\"n\",\"key\":\"k\"{rest}}}");
    let profile = r#","digest_profile":"hapax-c14n/1""#;
    let read = claim(&body(&format!(",\"digest\":{digest}{profile}"))).unwrap();
    assert!(matches!(read.subject, Subject::Digest(_)));
    for (rest, pointer) in [
        (format!(",\"digest\":{digest}"), "/digest_profile"),
        (format!(",\"digest\":{digest}{profile},\"request\":1"), "/digest"),
        (format!(",\"request\":1{profile}"), "/digest_profile"),
        (format!(",\"digest\":{digest}{profile},\"operation_version\":\"2\""), "/operation_version"),
        (profile.to_owned(), "/request"),
        (String::new(), "/request"),
    ] {
        assert_eq!(refusal(claim(&body(&rest))).0, pointer, "{rest}");
    }
}

#[test]
fn what_a_client_writes_is_read_back() {
    let request = ClaimRequest {
        business_epoch: Some("2026-07".parse().unwrap()),
        digest: Some(format!("sha256:{}", "ab".repeat(32)).parse().unwrap()),
        digest_profile: Some(DigestProfile::C14n1),
        claim_id: Some("0198b5d2-00aa-7bbb-8ccc-0123456789ab".parse().unwrap()),
        owner: Some("o".parse().unwrap()),
        lease_ms: Some(1_000),
        wait_ms: Some(60_000),
        correlation_id: Some("c".parse().unwrap()),
        attempt: Some(2),
        capability_id: Some("cap_1".parse().unwrap()),
        message: Some(Message { consumer: "w".parse().unwrap(), id: "MSG-55A".parse().unwrap() }),
        epoch: Some(EpochBinding { scope: "refunds".parse().unwrap(), value: 0 }),
        resource: Some("ORD-8841".parse().unwrap()),
        key_created_at: Some(Instant(1_784_383_330_000)),
        ..ClaimRequest::new("n".parse().unwrap(), "k".parse().unwrap())
    };
    let read = claim(&serde_json::to_string(&request).unwrap()).unwrap();
    assert_eq!(Some(read.key), request.key);
    assert_eq!(read.claim_id, request.claim_id);
    assert_eq!(
        (read.capability_id, read.message, read.epoch),
        (request.capability_id, request.message, request.epoch)
    );
    assert_eq!((read.resource, read.key_created_at), (request.resource, request.key_created_at));
    assert_eq!(Subject::Digest(request.digest.unwrap()), read.subject);

    let request = Value::canonical(r#"{"b":[1,null,true,"é"],"a":{}}"#.as_bytes()).unwrap();
    assert_eq!(Value::canonical(&serde_json::to_vec(&request).unwrap()), Ok(request));
}

#[test]
fn a_report_keeps_its_result_digit_for_digit() {
    let body = r#"{"lease_epoch": 9007199254740991, "outcome": "completed", "status_code": 201,
        "schema_version": "3", "result": { "rate": 1.50 , "big": 18446744073709551616 },
        "external_id": "ch_1", "reason": "paid, in full"}"#;
    let read = OutcomeRequest::read(body.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(read.lease_epoch, (1 << 53) - 1);
    assert_eq!(read.data.result.as_ref().unwrap().as_str(), r#"{"rate":1.50,"big":18446744073709551616}"#);
    let written = serde_json::to_string(&read).unwrap();
    assert!(written.contains(r#""result":{"rate":1.50,"big":18446744073709551616}"#), "{written}");
    assert_eq!(OutcomeRequest::read(written.as_bytes(), &Limits::default()), Ok(read));
}

#[test]
fn wrong_reports_name_their_field() {
    let read = |members: &str| OutcomeRequest::read(format!("{{{members}}}").as_bytes(), &Limits::default());
    let ok = r#""lease_epoch":1,"outcome":"completed""#;
    let digest = format!("\"sha256:{}\"", "ab".repeat(32));
    for (members, pointer) in [
        (r#""outcome":"completed""#.to_owned(), "/lease_epoch"),
        (r#""lease_epoch":0,"outcome":"completed""#.to_owned(), "/lease_epoch"),
        (r#""lease_epoch":9007199254740992,"outcome":"completed""#.to_owned(), "/lease_epoch"),
        (r#""lease_epoch":1"#.to_owned(), "/outcome"),
        (r#""lease_epoch":1,"outcome":"done""#.to_owned(), "/outcome"),
        (format!(r#"{ok},"status_code":99"#), "/status_code"),
        (format!(r#"{ok},"status_code":600"#), "/status_code"),
        (format!(r#"{ok},"result":{{"a":1,"a":2}}"#), "/result/a"),
        (format!(r#"{ok},"result":{{"a":}}"#), "/result"),
        (format!(r#"{ok},"result":1,"result_ref":"s3://b/k","result_digest":{digest}"#), "/result_ref"),
        (format!(r#"{ok},"result_ref":"s3://b/k""#), "/result_digest"),
        (format!(r#"{ok},"result_digest":{digest}"#), "/result_ref"),
        (format!(r#"{ok},"reason":"two\nlines""#), "/reason"),
        (format!(r#"{ok},"proof":"p""#), "/proof"),
        (r#""lease_epoch":1,"outcome":"unknown","result":1"#.to_owned(), "/result"),
        (r#""lease_epoch":1,"outcome":"unknown","status_code":504"#.to_owned(), "/status_code"),
    ] {
        assert_eq!(refusal(read(&members)).0, pointer, "{members}");
    }
    let unknown = read(r#""lease_epoch":1,"outcome":"unknown","reason":"timeout","external_id":"ch_1""#).unwrap();
    assert_eq!(unknown.outcome, Reported::Unknown);
}

#[test]
fn a_result_above_its_limit_is_too_large() {
    let result = |bytes: usize| {
        let body = format!(r#"{{"lease_epoch":1,"outcome":"completed","result":"{}"}}"#, "r".repeat(bytes - 2));
        OutcomeRequest::read(body.as_bytes(), &Limits::default())
    };
    assert!(result(16 * 1024).is_ok());
    let invalid = result(16 * 1024 + 1).unwrap_err();
    assert_eq!((invalid.code, invalid.pointer.as_deref()), (Code::RequestTooLarge, Some("/result")));
    assert_eq!(Problem::from(invalid).status, 413);
}

#[test]
fn evidence_and_resolve() {
    let limits = Limits::default();
    let body = br#"{"claim_id":"0198b5d2-00aa-7bbb-8ccc-0123456789ab","outcome":"not_applied"}"#;
    let evidence = EvidenceRequest::read(body, &limits).unwrap();
    assert_eq!((evidence.outcome, evidence.data), (Settled::NotApplied, ResultData::default()));
    let unknown = br#"{"claim_id":"0198b5d2-00aa-7bbb-8ccc-0123456789ab","outcome":"unknown"}"#;
    assert_eq!(refusal(EvidenceRequest::read(unknown, &limits)).0, "/outcome");
    assert_eq!(refusal(EvidenceRequest::read(b"{\"outcome\":\"failed\"}", &limits)).0, "/claim_id");

    let body = br#"{"lease_epoch":7,"outcome":"completed","proof":"look-up 4711: paid","result":[1]}"#;
    let resolve = ResolveRequest::read(body, &limits).unwrap();
    assert_eq!(resolve.data.result, Some(RawJson::parse(b"[1]").unwrap()));
    for (body, pointer) in [
        (r#"{"lease_epoch":7,"outcome":"completed"}"#, "/proof"),
        (r#"{"outcome":"completed","proof":"p"}"#, "/lease_epoch"),
        (r#"{"lease_epoch":7,"outcome":"unknown","proof":"p"}"#, "/outcome"),
        (r#"{"lease_epoch":7,"outcome":"failed","proof":"p","claim_id":"c"}"#, "/claim_id"),
    ] {
        assert_eq!(refusal(ResolveRequest::read(body.as_bytes(), &limits)).0, pointer, "{body}");
    }
}

#[test]
fn renew() {
    let limits = Limits::default();
    let renew = RenewRequest::read(br#"{"lease_epoch":7,"lease_ms":1000}"#, &limits).unwrap();
    assert_eq!(renew, RenewRequest { lease_epoch: 7, lease_ms: 1_000 });
    assert_eq!(refusal(RenewRequest::read(br#"{"lease_epoch":7}"#, &limits)).0, "/lease_ms");
}
