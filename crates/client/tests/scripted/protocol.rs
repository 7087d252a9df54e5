//! The calls of authority, ambiguity, repair, finding and administration: what is sent, what is understood, and what a
//! refusal proves after an attempt that may have been applied.

use crate::calls::{accepted, answer, client, problem};
use crate::node::{Node, Reply};
use hapax_api::batch::{BatchRequest, Item};
use hapax_api::capability::{CapabilityState, IssueBoundedRequest, IssueRequest, RevokeRequest};
use hapax_api::claim::ClaimRequest;
use hapax_api::epoch::{BumpRequest, EpochBinding, EpochView};
use hapax_api::evidence::{EvidenceBy, EvidenceEntry, EvidenceQuery, Said};
use hapax_api::find::{ListQuery, ListState, LookupRequest};
use hapax_api::headers::Expected;
use hapax_api::namespace::{OnLapse, PageQuery, PutNamespaceRequest, TenantQuery};
use hapax_api::operation::State;
use hapax_api::reconcile::{EscalateRequest, FenceRequest, ReconcileRequest};
use hapax_api::register::RegisterRequest;
use hapax_api::repair::{RepairRequest, SupersedeRequest};
use hapax_api::tenant::{CreateTokenRequest, PutTenantRequest, Role};
use hapax_api::text::Revision;
use hapax_api::{Code, Problem};
use hapax_client::{Claim, Client, Election, Outcome};
use serde::Serialize;
use serde_json::{Value, json};

const AT: &str = "2026-07-18T14:02:10.000Z";
const REVISION: &str = "1.0.5.0";

/// One call against a node that answers it: the answer, the line that was sent, its head and its body.
async fn once<T, F: Future<Output = Outcome<T>>>(
    answered: Value,
    call: impl FnOnce(Client) -> F,
) -> (T, String, String, Value) {
    let node = Node::start([answer(200, &answered)]).await;
    let done = call(client(&[&node.url])).await;
    let asked = node.asked().remove(0);
    let body = if asked.body.is_empty() { Value::Null } else { asked.json() };
    let done = done.done().unwrap_or_else(|| panic!("{} was not understood", asked.line));
    (done, asked.line.replace(" HTTP/1.1", ""), asked.head, body)
}

fn operation() -> Value {
    json!({
        "operation_id": "op_1", "namespace": "n", "state": "requested", "attempt": 0, "created_at": AT,
        "updated_at": AT, "escalated": false, "quarantined": false, "revision": REVISION,
    })
}

fn page() -> Value {
    json!({ "operations": [operation()], "next_cursor": cursor(), "revision": REVISION })
}

fn cursor() -> String {
    let revision = REVISION.parse().unwrap();
    let filter = hapax_api::cursor::FilterHash::of(&[b"t"]);
    hapax_api::cursor::Cursor { revision, filter, position: Vec::new() }.to_string()
}

fn capability() -> Value {
    json!({
        "capability_id": "cap_1", "operation_id": "op_1", "namespace": "n", "attempt": 1, "decision_id": "d",
        "client": "decider", "state": "consumed", "uses_left": 0, "max_uses": 1, "issued_at": AT, "expires_at": AT,
        "epoch": { "scope": "refunds", "value": 3 },
        "consumed": { "operation_id": "op_1", "execution_id": "ex_1", "at": AT }, "revision": REVISION,
    })
}

fn repair() -> RepairRequest {
    RepairRequest { expected_state: State::Unknown, reason: "two proofs".parse().unwrap(), proof: None }
}

fn json_of(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

#[tokio::test]
async fn operations_are_registered_and_found() {
    let request = RegisterRequest {
        request: Some(hapax_api::json::Value::Null),
        ..RegisterRequest::new("n".parse().unwrap(), "k".parse().unwrap())
    };
    let answered = json!({ "operation_id": "op_1", "state": "requested", "revision": REVISION });
    let (done, line, _, body) = once(answered, async |client| client.register(&request).await).await;
    assert_eq!((done.state, line.as_str(), body), (State::Requested, "POST /v1/operations", json_of(&request)));

    let id = "op_1".parse().unwrap();
    let (done, line, ..) = once(operation(), async |client| client.operation_local(&id).await).await;
    assert!(done.value.execution.is_none());
    assert_eq!(line, "GET /v1/operations/op_1?consistency=local");

    let by_resource = LookupRequest::by_resource("n".parse().unwrap(), "ORD-1".parse().unwrap());
    let (done, line, _, body) = once(page(), async |client| client.lookup(&by_resource).await).await;
    assert_eq!((done.operations.len(), line.as_str()), (1, "POST /v1/operations/lookup"));
    assert_eq!(body, json!({ "namespace": "n", "resource": "ORD-1" }));

    let (namespace, key) = (|| "n".parse().unwrap(), || "k".parse().unwrap());
    let by_key = async |client: Client| client.operation_by_key(namespace(), key(), None).await;
    assert!(once(page(), by_key).await.0.is_some());
    assert!(once(json!({ "operations": [], "revision": REVISION }), by_key).await.0.is_none());

    let mut list = ListQuery::new(namespace(), ListState::Unknown);
    let (first, line, ..) = once(page(), async |client| client.operations(&list).await).await;
    assert_eq!(line, "GET /v1/operations?namespace=n&state=unknown");
    list.cursor = first.next_cursor;
    let (_, line, ..) = once(page(), async |client| client.operations(&list).await).await;
    assert_eq!(line, format!("GET /v1/operations?namespace=n&state=unknown&cursor={}", cursor()));
}

#[tokio::test]
async fn capabilities_and_epochs() {
    let issue = IssueRequest {
        decision_id: "d".parse().unwrap(),
        attempt: 1,
        expires_at: AT.parse().unwrap(),
        epoch: Some(EpochBinding { scope: "refunds".parse().unwrap(), value: 3 }),
        effect_key_attempt: None,
    };
    let operation = "op_1".parse().unwrap();
    let (done, line, _, body) = once(capability(), async |client| client.issue(&operation, &issue).await).await;
    assert_eq!((done.state, done.consumed.unwrap().execution_id.as_str()), (CapabilityState::Consumed, "ex_1"));
    assert_eq!((line.as_str(), body), ("POST /v1/operations/op_1/capabilities", json_of(&issue)));

    let bounded = IssueBoundedRequest {
        namespace: "n".parse().unwrap(),
        resource: "ORD-1".parse().unwrap(),
        decision_id: "d".parse().unwrap(),
        expires_at: AT.parse().unwrap(),
        max_uses: 2,
        epoch: None,
    };
    let (_, line, _, body) = once(capability(), async |client| client.issue_bounded(&bounded).await).await;
    assert_eq!((line.as_str(), body), ("POST /v1/capabilities", json_of(&bounded)));

    let id = "cap_1".parse().unwrap();
    let (_, line, ..) = once(capability(), async |client| client.capability(&id).await).await;
    assert_eq!(line, "GET /v1/capabilities/cap_1");
    let revoke = RevokeRequest { reason: Some("sent twice".parse().unwrap()) };
    let (_, line, _, body) = once(capability(), async |client| client.revoke(&id, &revoke).await).await;
    assert_eq!((line.as_str(), body), ("POST /v1/capabilities/cap_1/revoke", json_of(&revoke)));

    let scope = "refunds".parse().unwrap();
    let answered = json!({ "scope": "refunds", "value": 4, "revision": REVISION });
    let (done, line, ..) = once(answered.clone(), async |client| client.epoch(&scope).await).await;
    assert_eq!((done.value, line.as_str()), (4, "GET /v1/epochs/refunds"));
    let bump = BumpRequest { expected: 3 };
    let (_, line, _, body) = once(answered, async |client| client.bump_epoch(&scope, &bump).await).await;
    assert_eq!((line.as_str(), body), ("POST /v1/epochs/refunds/bump", json!({ "expected": 3 })));
}

#[tokio::test]
async fn ambiguity_and_repair() {
    let lease = ReconcileRequest { namespace: None, owner: "o".parse().unwrap(), limit: 5, lease_ms: 60_000 };
    let item = json!({
        "execution_id": "ex_1", "operation_id": "op_1", "namespace": "n", "attempt": 1, "effect_key": "op_1-a1",
        "unknown_since": AT, "lease_epoch": 8, "lease_expires_in_ms": 60000,
    });
    let answered = json!({ "items": [item], "revision": REVISION });
    let (done, line, _, body) = once(answered, async |client| client.reconcile_lease(&lease).await).await;
    assert_eq!((done.items[0].lease_epoch, line.as_str()), (8, "POST /v1/reconciliations/lease"));
    assert_eq!(body, json!({ "owner": "o", "limit": 5, "lease_ms": 60000 }));

    let (execution, done) = ("ex_1".parse().unwrap(), json_of(&accepted()));
    let reason = || "hung".parse().unwrap();
    let escalate = EscalateRequest { lease_epoch: 8, escalated: None, reason: reason(), proof: None };
    let (_, line, _, body) = once(done.clone(), async |client| client.escalate(&execution, &escalate).await).await;
    assert_eq!((line.as_str(), body), ("POST /v1/executions/ex_1/escalate", json_of(&escalate)));
    let fence = FenceRequest { lease_epoch: 8, reason: reason(), proof: None };
    let (_, line, _, body) = once(done.clone(), async |client| client.fence(&execution, &fence).await).await;
    assert_eq!((line.as_str(), body), ("POST /v1/executions/ex_1/fence", json_of(&fence)));

    let (id, repair) = ("op_1".parse().unwrap(), repair());
    let (_, line, _, body) = once(done.clone(), async |client| client.quarantine(&id, &repair).await).await;
    assert_eq!((line.as_str(), body), ("POST /v1/operations/op_1/quarantine", json_of(&repair)));
    let (_, line, ..) = once(done.clone(), async |client| client.release(&id, &repair).await).await;
    assert_eq!(line, "POST /v1/operations/op_1/release");
    let (_, line, ..) = once(done.clone(), async |client| client.close(&id, &repair).await).await;
    assert_eq!(line, "POST /v1/operations/op_1/close");
    let supersede = SupersedeRequest {
        expected_state: State::Failed,
        by: "op_2".parse().unwrap(),
        reason: reason(),
        proof: None,
    };
    let (_, line, _, body) = once(done, async |client| client.supersede(&id, &supersede).await).await;
    assert_eq!((line.as_str(), body), ("POST /v1/operations/op_1/supersede", json_of(&supersede)));
}

#[tokio::test]
async fn the_record_of_evidence() {
    let word = json!({
        "kind": "word", "said": "fence", "number": 1, "operation_id": "op_1", "execution_id": "ex_1",
        "client": "operator", "lease_epoch": 7, "reason": "hung", "operation_state": "executing", "at": AT,
        "chain": format!("sha256:{}", "ab".repeat(32)), "revision": REVISION,
    });
    let refused = json!({
        "kind": "refused", "code": "capability.already-consumed", "namespace": "n", "capability_id": "cap_1",
        "message": { "consumer": "w", "id": "MSG-55B" }, "known_redelivery": false, "operation_id": "op_1",
        "operation_state": "unknown", "attempt": 1, "execution_attempted": false, "client": "worker",
        "first_at": AT, "last_at": AT, "times": 3, "revision": REVISION,
    });
    let answered = json!({ "entries": [word, refused], "revision": REVISION });
    let query = EvidenceQuery::new(EvidenceBy::Correlation("COR/2210".parse().unwrap()));
    let (done, line, ..) = once(answered, async |client| client.evidence_record(&query).await).await;
    assert_eq!(line, "GET /v1/evidence?correlation_id=COR%2F2210");
    let [EvidenceEntry::Word(word), EvidenceEntry::Refused(refused)] = done.entries.as_slice() else {
        panic!("a word and a refusal: {done:?}");
    };
    assert_eq!((word.said, word.lease_epoch), (Said::Fence, Some(7)));
    assert_eq!((refused.code, refused.times), (Code::CapabilityAlreadyConsumed, 3));
}

#[tokio::test]
async fn policies_are_written_under_a_condition() {
    let view = json!({
        "namespace": "payments", "tenant": "acme", "version": 8, "revision": REVISION,
        "policy": {
            "scope": "namespace", "on_lapse": "unknown", "attempts": "automatic", "conflict_style": "hapax",
            "authority": "inline", "transport_fields": [], "partitions": 1, "reconcile_per_minute": 120, "quota": {},
            "retention": { "body_ms": 604800000, "identity_ms": 2592000000_u64, "expired_keys": "new" },
        },
        "limits": json_of(&hapax_api::namespace::LimitsView::from(&hapax_api::Limits::default())),
        "usage": { "open_operations": 7, "unknown": 1 },
        "floors": { "compact_before": AT, "forget_before": AT },
    });
    let (name, of) = ("payments".parse().unwrap(), TenantQuery { tenant: Some("acme".parse().unwrap()) });
    let (read, line, ..) = once(view.clone(), async |client| client.namespace(&name, &of).await).await;
    assert_eq!(line, "GET /v1/namespaces/payments?tenant=acme");
    let change = PutNamespaceRequest { on_lapse: Some(OnLapse::Takeover), ..read.policy.into() };
    let expected = Expected::Version(read.version);
    let of = TenantQuery::default();
    let put = async |client: Client| client.put_namespace(&name, &of, expected, &change).await;
    let (_, line, head, body) = once(view.clone(), put).await;
    assert_eq!((line.as_str(), &body["on_lapse"]), ("PUT /v1/namespaces/payments", &json!("takeover")));
    assert!(head.contains("if-match: \"v8\"") && !head.contains("if-none-match"), "{head}");
    let make = async |client: Client| {
        client.put_namespace(&name, &of, Expected::Absent, &PutNamespaceRequest::default()).await
    };
    let (_, _, head, body) = once(view.clone(), make).await;
    assert!(head.contains("if-none-match: *") && !head.contains("if-match:"), "{head}");
    assert_eq!(body, json!({}));
    let (done, line, ..) = once(json!({ "namespaces": [view], "revision": REVISION }), async |client| {
        client.namespaces(&PageQuery::default()).await
    })
    .await;
    assert_eq!((done.namespaces[0].usage.unknown, line.as_str()), (1, "GET /v1/namespaces"));
}

#[tokio::test]
async fn tenants_and_tokens() {
    let view = json!({ "tenant": "acme", "system": false, "disabled": true, "version": 2, "revision": REVISION });
    let name = "acme".parse().unwrap();
    let (done, line, ..) = once(view.clone(), async |client| client.tenant(&name).await).await;
    assert_eq!((done.disabled, line.as_str()), (true, "GET /v1/tenants/acme"));
    let change = PutTenantRequest { disabled: Some(false), requests_per_second: None };
    let put = async |client: Client| client.put_tenant(&name, Expected::Version(2), &change).await;
    let (_, line, head, body) = once(view.clone(), put).await;
    assert_eq!((line.as_str(), body), ("PUT /v1/tenants/acme", json!({ "disabled": false })));
    assert!(head.contains("if-match: \"v2\""), "{head}");
    let query = PageQuery { limit: Some(2), ..PageQuery::default() };
    let answered = json!({ "tenants": [view], "revision": REVISION });
    let (_, line, ..) = once(answered, async |client| client.tenants(&query).await).await;
    assert_eq!(line, "GET /v1/tenants?limit=2");

    let token = json!({
        "token_id": "t1", "tenant": "acme", "client": "worker", "namespaces": [], "roles": ["claim"],
        "created_at": AT, "revision": REVISION,
    });
    let mut created = token.clone();
    created["token"] = json!("hpx_t1_secret");
    let (done, line, _, body) = once(created, async |client| client.create_token(&create()).await).await;
    assert_eq!((done.token.as_str(), done.view.roles.as_slice()), ("hpx_t1_secret", &[Role::Claim][..]));
    assert!(!format!("{done:?}").contains("secret"));
    assert_eq!((line.as_str(), body), ("POST /v1/tokens", json!({ "client": "worker", "roles": ["claim"] })));
    let answered = json!({ "tokens": [token.clone()], "revision": REVISION });
    let (_, line, ..) = once(answered, async |client| client.tokens(&PageQuery::default()).await).await;
    assert_eq!(line, "GET /v1/tokens");
    let id = "t1".parse().unwrap();
    let (_, line, _, body) = once(token, async |client| client.revoke_token(&id).await).await;
    assert_eq!((line.as_str(), body), ("POST /v1/tokens/t1/revoke", json!({})));
}

fn create() -> CreateTokenRequest {
    CreateTokenRequest {
        tenant: None,
        client: "worker".parse().unwrap(),
        namespaces: Vec::new(),
        roles: vec![Role::Claim],
        expires_at: None,
    }
}

#[tokio::test]
async fn a_batch_is_sent_again_as_it_was() {
    let claim = Claim::from(ClaimRequest {
        request: Some(hapax_api::json::Value::Null),
        ..ClaimRequest::new("n".parse().unwrap(), "k".parse().unwrap())
    });
    let bump = Item::Bump("refunds".parse().unwrap(), BumpRequest { expected: 3 });
    let batch = BatchRequest { items: vec![Item::Claim(claim.request().clone()), bump] };
    let epoch = json!({ "scope": "refunds", "value": 4, "revision": REVISION });
    let answered = json!({ "results": [
        { "status": 409, "body": json_of(&Problem::new(Code::OperationExecuting)) },
        { "status": 200, "body": epoch },
    ]});
    let node = Node::start([problem(Code::StoreOutcomeUnknown), answer(200, &answered)]).await;
    let done = client(&[&node.url]).batch(&batch).await.done().unwrap();
    assert_eq!(done.results[0].answer::<Value>().unwrap().unwrap_err().code, Code::OperationExecuting);
    assert_eq!(done.results[1].answer::<EpochView>().unwrap().unwrap().value, 4);
    let asked = node.asked();
    assert_eq!((asked.len(), &asked[0].body), (2, &asked[1].body));
    assert_eq!(asked[0].line, "POST /v1/batch HTTP/1.1");
    let items = &asked[0].json()["items"];
    assert_eq!(items[0]["claim_id"], claim.claim_id().to_string());
    assert_eq!(items[1], json!({ "kind": "bump", "scope": "refunds", "expected": 3 }));
    let read = hapax_api::batch::Batch::read(asked[0].body.as_bytes(), &hapax_api::Limits::default()).unwrap();
    assert!(read.items.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_duplicate_delivery_elects_nobody() {
    let answered = json!({
        "result": "duplicate_delivery", "operation_id": "op_1", "execution_id": "ex_1", "attempt": 1,
        "state": "unknown", "revision": REVISION,
    });
    let node = Node::start([answer(200, &answered)]).await;
    let claim = Claim::new("n".parse().unwrap(), "k".parse().unwrap(), &json!({}))
        .unwrap()
        .capability("cap_1".parse().unwrap())
        .message("w".parse().unwrap(), "MSG-55A".parse().unwrap())
        .epoch(EpochBinding { scope: "refunds".parse().unwrap(), value: 3 })
        .resource("ORD-1".parse().unwrap())
        .correlation_id("COR-1".parse().unwrap())
        .key_created_at(AT.parse().unwrap());
    let Outcome::Done(Election::DuplicateDelivery(found)) = client(&[&node.url]).elect(&claim).await else {
        panic!("a duplicate delivery");
    };
    assert_eq!((found.state, found.revision), (State::Unknown, REVISION.parse::<Revision>().unwrap()));
    let sent = node.asked()[0].json();
    assert_eq!(sent["message"], json!({ "consumer": "w", "id": "MSG-55A" }));
    assert_eq!((&sent["capability_id"], &sent["resource"]), (&json!("cap_1"), &json!("ORD-1")));
    assert_eq!((&sent["epoch"]["value"], &sent["key_created_at"]), (&json!(3), &json!(AT)));
}

/// Each refusal with its status, after an attempt whose answer was lost.
async fn after_a_doubt<T, F: Future<Output = Outcome<T>>>(
    code: Code,
    call: impl FnOnce(Client) -> F,
) -> (Outcome<T>, usize) {
    let node = Node::start([Reply::HangUp, problem(code)]).await;
    let outcome = call(client(&[&node.url])).await;
    (outcome, node.asked().len())
}

#[tokio::test]
async fn after_a_doubt_a_refusal_of_authority_settles_a_claim() {
    for code in [
        Code::CapabilityAlreadyConsumed,
        Code::CapabilityRevoked,
        Code::CapabilityExpired,
        Code::CapabilityInvalid,
        Code::CapabilityBindingMismatch,
        Code::CapabilityRequired,
        Code::EpochStale,
        Code::EpochUnknown,
        Code::KeyRetentionElapsed,
        Code::QuotaExceeded,
        Code::DeliveryMismatch,
        Code::OperationCompleted,
    ] {
        let claim = Claim::new("n".parse().unwrap(), "k".parse().unwrap(), &json!({})).unwrap();
        let (outcome, asked) = after_a_doubt(code, async |client| client.claim(&claim).await).await;
        assert_eq!((outcome, asked), (Outcome::Refused(Problem::new(code)), 2), "{code}");
    }
    let claim = Claim::new("n".parse().unwrap(), "k".parse().unwrap(), &json!({})).unwrap();
    let (outcome, _) = after_a_doubt(Code::AuthForbidden, async |client| client.claim(&claim).await).await;
    assert!(matches!(outcome, Outcome::Unknown(_)));
}

#[tokio::test]
async fn after_a_doubt_a_refusal_that_may_be_its_own_doing_settles_nothing() {
    let (scope, execution, tenant) = ("refunds".parse().unwrap(), "ex_1".parse().unwrap(), "acme".parse().unwrap());
    let bump = BumpRequest { expected: 3 };
    let (outcome, _) =
        after_a_doubt(Code::PreconditionFailed, async |client| client.bump_epoch(&scope, &bump).await).await;
    let Outcome::Unknown(failure) = outcome else { panic!("unknown") };
    assert_eq!(failure.problem.unwrap().code, Code::PreconditionFailed);
    let put =
        async |client: Client| client.put_tenant(&tenant, Expected::Version(2), &PutTenantRequest::default()).await;
    assert!(matches!(after_a_doubt(Code::PreconditionFailed, put).await.0, Outcome::Unknown(_)));
    let fence = FenceRequest { lease_epoch: 7, reason: "hung".parse().unwrap(), proof: None };
    let (outcome, _) =
        after_a_doubt(Code::LeaseStaleEpoch, async |client| client.fence(&execution, &fence).await).await;
    assert!(matches!(outcome, Outcome::Unknown(_)));
    // Without a doubt, each is a refusal.
    let node = Node::start([problem(Code::LeaseStaleEpoch)]).await;
    assert!(matches!(client(&[&node.url]).fence(&execution, &fence).await, Outcome::Refused(_)));
    let node = Node::start([problem(Code::PreconditionFailed)]).await;
    assert!(matches!(client(&[&node.url]).bump_epoch(&scope, &bump).await, Outcome::Refused(_)));
    // An escalation leaves the lease epoch as it was: a stale one is somebody else's doing.
    let escalate = EscalateRequest { lease_epoch: 7, escalated: None, reason: "r".parse().unwrap(), proof: None };
    let (outcome, _) =
        after_a_doubt(Code::LeaseStaleEpoch, async |client| client.escalate(&execution, &escalate).await).await;
    assert!(matches!(outcome, Outcome::Refused(_)));
}

#[tokio::test]
async fn a_token_is_not_made_twice() {
    for lost in [Reply::HangUp, problem(Code::StoreOutcomeUnknown)] {
        let node = Node::start([lost, problem(Code::AuthInvalid)]).await;
        assert!(matches!(client(&[&node.url]).create_token(&create()).await, Outcome::Unknown(_)));
        assert_eq!(node.asked().len(), 1);
    }
    // What was certainly not applied is sent again.
    let node = Node::start([problem(Code::StoreUnavailable), problem(Code::AuthForbidden)]).await;
    assert!(matches!(client(&[&node.url]).create_token(&create()).await, Outcome::Refused(_)));
    assert_eq!(node.asked().len(), 2);
}

#[tokio::test]
async fn a_quota_is_not_waited_for() {
    let node = Node::start([problem(Code::QuotaExceeded)]).await;
    let claim = Claim::new("n".parse().unwrap(), "k".parse().unwrap(), &json!({})).unwrap();
    let refused = Outcome::Refused(Problem::new(Code::QuotaExceeded));
    assert_eq!(client(&[&node.url]).claim(&claim).await, refused);
    assert_eq!(node.asked().len(), 1);
}

#[tokio::test]
async fn a_full_page_is_read() {
    let mut long = operation();
    long["correlation_id"] = json!("c".repeat(255));
    long["resource"] = json!("r".repeat(255));
    let receipt = json!({ "outcome": "completed", "result": "r".repeat(16 * 1024 - 2), "completed_at": AT });
    long["outcome"] = receipt;
    let answered = json!({ "operations": vec![long; 500], "revision": REVISION });
    let list = ListQuery::new("n".parse().unwrap(), ListState::Completed);
    let node = Node::start([answer(200, &answered)]).await;
    let settings = hapax_client::Settings::new([node.url.as_str()], "dev");
    let done = Client::new(settings).unwrap().operations(&list).await.done().unwrap();
    assert_eq!(done.operations.len(), 500);
}
