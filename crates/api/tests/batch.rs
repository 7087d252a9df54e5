//! The batch: each item is read as its single call is, malformed ones are refused by themselves, and what a client
//! writes is what is read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use hapax_api::batch::{Batch, BatchAnswer, BatchItem, BatchRequest, BatchResult, Item, ItemKind, ReadItem};
use hapax_api::capability::{IssueBoundedRequest, IssueRequest, RevokeRequest};
use hapax_api::claim::{Claim, ClaimRequest};
use hapax_api::epoch::{BumpRequest, EpochView};
use hapax_api::execution::{EvidenceRequest, OutcomeRequest, RenewRequest, Reported, ResolveRequest, ResultData};
use hapax_api::json::{RawJson, Value};
use hapax_api::operation::{Settled, State};
use hapax_api::reconcile::{EscalateRequest, FenceRequest, ReconcileRequest};
use hapax_api::register::{Register, RegisterRequest};
use hapax_api::repair::{RepairRequest, SupersedeRequest};
use hapax_api::time::Instant;
use hapax_api::{Code, Invalid, Limits, Problem};
use proptest::prelude::*;

fn read(body: &str) -> Result<Batch, Invalid> {
    Batch::read(body.as_bytes(), &Limits::default())
}

fn data() -> ResultData {
    ResultData { result: Some(RawJson::parse(br#"{"rate":1.50}"#).unwrap()), ..ResultData::default() }
}

fn claim() -> ClaimRequest {
    ClaimRequest {
        request: Some(Value::canonical(br#"{"amount":"120.00"}"#).unwrap()),
        claim_id: Some("0198b5d2-00aa-7bbb-8ccc-0123456789ab".parse().unwrap()),
        ..ClaimRequest::new("n".parse().unwrap(), "k".parse().unwrap())
    }
}

fn register() -> RegisterRequest {
    RegisterRequest { request: Some(Value::Null), ..RegisterRequest::new("n".parse().unwrap(), "k".parse().unwrap()) }
}

/// One item of each kind, in the order of the kinds.
fn one_of_each() -> Vec<BatchItem> {
    let (operation, execution) = (|| "op_1".parse().unwrap(), || "ex_1".parse().unwrap());
    let reason = || "because".parse().unwrap();
    let repair = || RepairRequest { expected_state: State::Unknown, reason: reason(), proof: None };
    let at = Instant(1_784_383_330_000);
    vec![
        Item::Claim(claim()),
        Item::Register(register()),
        Item::Issue(
            operation(),
            IssueRequest {
                decision_id: "d".parse().unwrap(),
                attempt: 1,
                expires_at: at,
                epoch: None,
                effect_key_attempt: None,
            },
        ),
        Item::IssueBounded(IssueBoundedRequest {
            namespace: "n".parse().unwrap(),
            resource: "r".parse().unwrap(),
            decision_id: "d".parse().unwrap(),
            expires_at: at,
            max_uses: 2,
            epoch: None,
        }),
        Item::Revoke("cap_1".parse().unwrap(), RevokeRequest { reason: Some(reason()) }),
        Item::Renew(execution(), RenewRequest { lease_epoch: 7, lease_ms: 1_000 }),
        Item::Outcome(execution(), OutcomeRequest { lease_epoch: 7, outcome: Reported::Completed, data: data() }),
        Item::Evidence(
            execution(),
            EvidenceRequest {
                claim_id: claim().claim_id.unwrap(),
                outcome: Settled::Failed,
                proof: None,
                data: data(),
            },
        ),
        Item::Resolve(
            execution(),
            ResolveRequest {
                lease_epoch: 7,
                outcome: Settled::NotApplied,
                proof: "p".parse().unwrap(),
                data: ResultData::default(),
            },
        ),
        Item::Escalate(
            execution(),
            EscalateRequest { lease_epoch: 7, escalated: Some(false), reason: reason(), proof: None },
        ),
        Item::Fence(execution(), FenceRequest { lease_epoch: 7, reason: reason(), proof: None }),
        Item::Quarantine(operation(), repair()),
        Item::Release(operation(), repair()),
        Item::Supersede(
            operation(),
            SupersedeRequest {
                expected_state: State::Failed,
                by: "op_2".parse().unwrap(),
                reason: reason(),
                proof: None,
            },
        ),
        Item::Close(operation(), repair()),
        Item::Reconcile(ReconcileRequest { namespace: None, owner: "o".parse().unwrap(), limit: 1, lease_ms: 1_000 }),
        Item::Bump("refunds".parse().unwrap(), BumpRequest { expected: 3 }),
    ]
}

/// The sent form of an item that was read; the two that are read into another type are compared elsewhere.
fn sent(item: &ReadItem) -> BatchItem {
    match item.clone() {
        Item::Claim(_) => Item::Claim(claim()),
        Item::Register(_) => Item::Register(register()),
        Item::Issue(id, body) => Item::Issue(id, body),
        Item::IssueBounded(body) => Item::IssueBounded(body),
        Item::Revoke(id, body) => Item::Revoke(id, body),
        Item::Renew(id, body) => Item::Renew(id, body),
        Item::Outcome(id, body) => Item::Outcome(id, body),
        Item::Evidence(id, body) => Item::Evidence(id, body),
        Item::Resolve(id, body) => Item::Resolve(id, body),
        Item::Escalate(id, body) => Item::Escalate(id, body),
        Item::Fence(id, body) => Item::Fence(id, body),
        Item::Quarantine(id, body) => Item::Quarantine(id, body),
        Item::Release(id, body) => Item::Release(id, body),
        Item::Supersede(id, body) => Item::Supersede(id, body),
        Item::Close(id, body) => Item::Close(id, body),
        Item::Reconcile(body) => Item::Reconcile(body),
        Item::Bump(scope, body) => Item::Bump(scope, body),
    }
}

#[test]
fn what_a_client_writes_is_read_back() {
    let items = one_of_each();
    let kinds: Vec<ItemKind> = items.iter().map(Item::kind).collect();
    assert_eq!(kinds, ItemKind::ALL);
    let body = serde_json::to_string(&BatchRequest { items: items.clone() }).unwrap();
    let batch = read(&body).unwrap();
    let read: Vec<ReadItem> = batch.items.into_iter().map(Result::unwrap).collect();
    assert_eq!(read.iter().map(sent).collect::<Vec<_>>(), items);
    let limits = Limits::default();
    let single = Claim::read(&serde_json::to_vec(&claim()).unwrap(), None, &limits).unwrap();
    assert_eq!(read[0], Item::Claim(single));
    let single = Register::read(&serde_json::to_vec(&register()).unwrap(), None, &limits).unwrap();
    assert_eq!(read[1], Item::Register(single));
}

#[test]
fn a_malformed_item_is_refused_by_itself() {
    let renew = r#"{"kind":"renew","execution_id":"ex_1","lease_epoch":7,"lease_ms":1000}"#;
    let cases = [
        ("7", "/items/1"),
        ("[]", "/items/1"),
        ("{}", "/items/1/kind"),
        (r#"{"kind":7}"#, "/items/1/kind"),
        (r#"{"kind":null}"#, "/items/1/kind"),
        (r#"{"kind":"restore"}"#, "/items/1/kind"),
        (r#"{"kind":"renew","kind":"renew","execution_id":"ex_1","lease_epoch":7,"lease_ms":1000}"#, "/items/1/kind"),
        (r#"{"kind":"renew","lease_epoch":7,"lease_ms":1000}"#, "/items/1/execution_id"),
        (r#"{"kind":"renew","execution_id":"a/b","lease_epoch":7,"lease_ms":1000}"#, "/items/1/execution_id"),
        (r#"{"kind":"renew","execution_id":"ex_1","lease_epoch":7,"lease_ms":999}"#, "/items/1/lease_ms"),
        (r#"{"kind":"renew","execution_id":"ex_1","lease_epoch":7,"lease_ms":1000,"scope":"s"}"#, "/items/1/scope"),
        (r#"{"kind":"bump","scope":"..","expected":0}"#, "/items/1/scope"),
        (r#"{"kind":"bump","expected":0}"#, "/items/1/scope"),
        (r#"{"kind":"revoke"}"#, "/items/1/capability_id"),
        (r#"{"kind":"close","operation_id":"op_1","expected_state":"failed"}"#, "/items/1/reason"),
        (r#"{"kind":"claim","namespace":"n","key":"k","request":{"a":[1.5]}}"#, "/items/1/request/a/0"),
        (
            r#"{"kind":"claim","namespace":"n","key":"k","request":1,"message":{"id":"m"}}"#,
            "/items/1/message/consumer",
        ),
        (r#"{"kind":"claim","namespace":"n","request":1}"#, "/items/1/key"),
        (r#"{"kind":"claim","namespace":"n","key":"k","request":1,"wait_ms":0}"#, "/items/1/wait_ms"),
        (r#"{"kind":"claim","namespace":"n","key":"k","request":1,"wait_ms":5000}"#, "/items/1/wait_ms"),
        (
            r#"{"kind":"outcome","execution_id":"ex_1","lease_epoch":7,"outcome":"failed","result":{"a":1,"a":2}}"#,
            "/items/1/result/a",
        ),
    ];
    for (item, pointer) in cases {
        let batch = read(&format!(r#"{{"items":[{renew},{item},{renew}]}}"#)).unwrap();
        assert!(batch.items[0].is_ok() && batch.items[2].is_ok(), "{item}");
        let invalid = batch.items[1].as_ref().expect_err(item);
        assert_eq!((invalid.code, invalid.pointer.as_deref()), (Code::RequestInvalid, Some(pointer)), "{item}");
    }
}

#[test]
fn an_item_is_no_larger_than_a_single_call() {
    let item = |bytes: usize| {
        let long = "r".repeat(bytes);
        format!(r#"{{"kind":"claim","namespace":"n","key":"k","request":"{long}"}}"#)
    };
    let small = item(10);
    let fits = item(64 * 1024 - (small.len() - 10));
    let batch = read(&format!(r#"{{"items":[{fits},{}]}}"#, fits.replacen('r', "rr", 1))).unwrap();
    assert!(batch.items[0].is_ok(), "{:?}", batch.items[0].as_ref().err());
    let invalid = batch.items[1].as_ref().unwrap_err();
    assert_eq!((invalid.code, invalid.pointer.as_deref()), (Code::RequestTooLarge, Some("/items/1")));
}

#[test]
fn a_malformed_envelope_fails_the_whole() {
    let item = r#"{"kind":"bump","scope":"s","expected":0}"#;
    let many = |count: usize| format!(r#"{{"items":[{}]}}"#, vec![item; count].join(","));
    assert_eq!(read(&many(256)).unwrap().items.len(), 256);
    for (body, pointer) in [
        (many(257), "/items"),
        (many(0), "/items"),
        ("{}".to_owned(), "/items"),
        (r#"{"items":{}}"#.to_owned(), "/items"),
        (r#"{"items":null}"#.to_owned(), "/items"),
        (format!(r#"{{"items":[{item}],"items":[{item}]}}"#), "/items"),
        (format!(r#"{{"items":[{item}],"wait_ms":1}}"#), "/wait_ms"),
        (format!(r#"{{"items":[{item},]}}"#), "/items"),
        (format!(r#"{{"items":[{item}"#), "/items"),
        (format!(r#"{{"items":[{item}]}} x"#), ""),
        (format!("[{item}]"), ""),
        (String::new(), ""),
    ] {
        let invalid = read(&body).expect_err(&body);
        assert_eq!((invalid.code, invalid.pointer.as_deref()), (Code::RequestInvalid, Some(pointer)), "{body}");
    }
    let limits = Limits { batch_items: 2, ..Limits::default() };
    assert!(Batch::read(many(2).as_bytes(), &limits).is_ok());
    assert!(Batch::read(many(3).as_bytes(), &limits).is_err());
    let large = format!("{}{}", many(1), " ".repeat(1024 * 1024));
    let invalid = read(&large).unwrap_err();
    assert_eq!((invalid.code, invalid.pointer), (Code::RequestTooLarge, None));
}

#[test]
fn answers_are_those_of_the_single_calls() {
    let view = EpochView {
        scope: "refunds".parse().unwrap(),
        value: 460_000_000_000_001,
        revision: "1.0.4711.0".parse().unwrap(),
        consistency: None,
    };
    let problem = Problem::from(Invalid::field("wait_ms", "no").under("/items/1"));
    let answer = BatchAnswer {
        results: vec![BatchResult::new(200, &view).unwrap(), BatchResult::new(problem.status, &problem).unwrap()],
    };
    let text = serde_json::to_string(&answer).unwrap();
    insta::assert_snapshot!(text, @r#"{"results":[{"status":200,"body":{"scope":"refunds","value":460000000000001,"revision":"1.0.4711.0"}},{"status":400,"body":{"type":"/errors/request.invalid","title":"The request is malformed","status":400,"code":"request.invalid","retryable":false,"outcome":"definite","detail":"no","pointer":"/items/1/wait_ms"}}]}"#);
    let read: BatchAnswer = serde_json::from_str(&text).unwrap();
    assert_eq!(read.results[0].answer::<EpochView>().unwrap(), Ok(view));
    assert_eq!(read.results[1].answer::<EpochView>().unwrap(), Err(problem));
    // Neither what was asked for nor a problem.
    assert!(read.results[0].answer::<BatchAnswer>().is_err());
    assert!(BatchResult::new(404, &"gone").unwrap().answer::<EpochView>().is_err());
}

/// Bodies of claims, registrations and renewals: whole ones, with a member left out here and there, and others put in.
fn bodies() -> impl Strategy<Value = (ItemKind, Vec<(&'static str, String)>)> {
    const NAMES: &[&str] = &["namespace", "key", "request", "claim_id", "lease_ms", "lease_epoch", "owner", "x"];
    const WHOLE: &[(ItemKind, &[(&str, &str)])] = &[
        (ItemKind::Claim, &[("namespace", "\"n\""), ("key", "\"k\""), ("request", "{\"b\":1,\"a\":null}")]),
        (ItemKind::Register, &[("namespace", "\"n\""), ("key", "\"k\""), ("request", "[\"\\u00e9\"]")]),
        (ItemKind::Renew, &[("lease_epoch", "7"), ("lease_ms", "1000")]),
    ];
    let value = prop::sample::select(
        &["\"n\"", "1000", "null", "{\"a\":1.5}", "[1]", "\"0198b5d2-00aa-7bbb-8ccc-0123456789ab\""][..],
    );
    let others = prop::collection::vec((prop::sample::select(NAMES), value), 0..2);
    let kept = prop::collection::vec(prop::bool::weighted(0.9), 3);
    (prop::sample::select(WHOLE), kept, others).prop_map(|((kind, whole), kept, others)| {
        let whole = whole.iter().zip(kept).filter(|(_, kept)| *kept).map(|(member, _)| *member);
        (kind, whole.chain(others).map(|(name, value)| (name, value.to_owned())).collect())
    })
}

proptest! {
    /// The law of the batch: an item is accepted, refused, and pointed at, as its single call is.
    #[test]
    fn an_item_and_its_single_call_agree((kind, members) in bodies(), at in 0usize..3) {
        let limits = Limits::default();
        let members: Vec<String> = members.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let alone = format!("{{{}}}", members.join(","));
        let mut beside = vec![format!("\"kind\":\"{kind}\"")];
        if kind == ItemKind::Renew {
            beside.push("\"execution_id\":\"ex_1\"".to_owned());
        }
        let item = format!("{{{}}}", beside.into_iter().chain(members).collect::<Vec<_>>().join(","));
        let other = r#"{"kind":"bump","scope":"s","expected":0}"#;
        let mut items = vec![other; at];
        items.push(&item);
        let read = read(&format!("{{\"items\":[{}]}}", items.join(","))).unwrap().items.pop().unwrap();
        let single: Result<ReadItem, Invalid> = match kind {
            ItemKind::Claim => Claim::read(alone.as_bytes(), None, &limits).map(Item::Claim),
            ItemKind::Register => Register::read(alone.as_bytes(), None, &limits).map(Item::Register),
            _ => RenewRequest::read(alone.as_bytes(), &limits)
                .map(|body| Item::Renew("ex_1".parse().unwrap(), body)),
        };
        match (read, single) {
            (Ok(read), Ok(single)) => prop_assert_eq!(read, single),
            (Err(read), Err(single)) => {
                prop_assert_eq!(read.code, single.code);
                prop_assert_eq!(read.pointer, single.pointer.map(|pointer| format!("/items/{at}{pointer}")));
                // Where a document breaks off differs by what stands before it; everything else is said alike.
                let reason = |detail: &str| detail.split(" at line ").next().unwrap_or_default().to_owned();
                prop_assert_eq!(reason(&read.detail), reason(&single.detail));
            }
            (read, single) => prop_assert!(false, "in a batch {read:?}, alone {single:?}"),
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\",:0-9a-z\\\\.eE+-]{0,80}") {
        let limits = Limits::default();
        let _ = Batch::read(&bytes, &limits);
        let _ = Batch::read(text.as_bytes(), &limits);
        if let Ok(batch) = Batch::read(format!("{{\"items\":[{text}]}}").as_bytes(), &limits) {
            prop_assert!(!batch.items.is_empty());
        }
    }
}
