//! The client against scripted nodes: what is sent again, to whom, with which identity, and what it concludes.

use std::time::Duration;

use crate::node::{Node, Reply, nobody};
use hapax_api::claim::ClaimAnswer;
use hapax_api::execution::{Accepted, EvidenceRequest, OutcomeRequest, RenewRequest, Renewed, ResolveRequest};
use hapax_api::find::LookupRequest;
use hapax_api::operation::{Settled, State};
use hapax_api::{Code, Problem};
use hapax_client::{Claim, Client, Outcome, Reported, ResultData, Settings, Unusable};
use serde::Serialize;

pub(crate) fn answer(status: u16, body: &impl Serialize) -> Reply {
    Reply::Answer { status, headers: Vec::new(), body: serde_json::to_string(body).unwrap() }
}

pub(crate) fn problem(code: Code) -> Reply {
    answer(code.status(), &Problem::new(code))
}

fn claimed() -> Reply {
    answer(
        201,
        &serde_json::json!({
            "result": "claimed", "operation_id": "op_1", "execution_id": "ex_1", "attempt": 1, "lease_epoch": 7,
            "lease_expires_in_ms": 60000, "renew_by_ms": 20000, "effect_key": "ek_1", "revision": "1.0.5.0",
        }),
    )
}

pub(crate) fn accepted() -> Accepted {
    Accepted { operation_id: "op_1".parse().unwrap(), state: State::Completed, revision: "1.0.6.0".parse().unwrap() }
}

pub(crate) fn settings(urls: &[&str]) -> Settings {
    Settings {
        attempts: 4,
        attempt_timeout: Duration::from_millis(300),
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(5),
        ..Settings::new(urls.iter().copied(), "dev")
    }
}

pub(crate) fn client(urls: &[&str]) -> Client {
    Client::new(settings(urls)).unwrap()
}

fn claim() -> Claim {
    let request = serde_json::json!({ "order": "ORD-8841" });
    Claim::new("default".parse().unwrap(), "k".parse().unwrap(), &request).unwrap()
}

/// What was sent is the same each time, key and claim id above all, and the claim's own.
fn assert_one_identity(node: &Node, claim: &Claim, times: usize) {
    let asked = node.asked();
    assert_eq!(asked.len(), times);
    for request in &asked {
        assert_eq!(request.line, "POST /v1/claims HTTP/1.1");
        assert_eq!(request.json()["claim_id"], claim.claim_id().to_string());
        assert_eq!(request.json()["key"], "k");
        assert_eq!(request.body, asked[0].body);
    }
}

#[tokio::test]
async fn a_claim_and_what_is_sent() {
    let node = Node::start([claimed()]).await;
    let claim = claim().owner("worker".parse().unwrap()).lease_ms(60_000);
    let Outcome::Done(ClaimAnswer::Claimed(granted)) = client(&[&node.url]).claim(&claim).await else {
        panic!("claimed");
    };
    assert_eq!((granted.lease_epoch, granted.effect_key.as_str()), (7, "ek_1"));
    assert_one_identity(&node, &claim, 1);
    let asked = &node.asked()[0];
    assert!(asked.head.contains("authorization: bearer dev"), "{}", asked.head);
    assert!(asked.head.contains("content-type: application/json"), "{}", asked.head);
    let read = hapax_api::claim::Claim::read(asked.body.as_bytes(), None, &hapax_api::Limits::default()).unwrap();
    assert_eq!((read.lease_ms, read.claim_id), (60_000, Some(claim.claim_id())));
}

#[test]
fn each_claim_draws_its_own_id() {
    assert_ne!(claim().claim_id(), claim().claim_id());
    let given = claim();
    assert_eq!(Claim::from(given.request().clone()).claim_id(), given.claim_id());
}

#[test]
fn a_request_without_a_canonical_form_is_refused_before_it_is_sent() {
    let refused = Claim::new("n".parse().unwrap(), "k".parse().unwrap(), &serde_json::json!({ "amount": 1.5 }));
    assert!(refused.unwrap_err().to_string().contains("\"/amount\""));
}

#[tokio::test]
async fn after_a_503_the_same_call_is_sent_again() {
    let node = Node::start([problem(Code::StoreUnavailable), problem(Code::StoreOverloaded), claimed()]).await;
    let claim = claim();
    assert!(client(&[&node.url]).claim(&claim).await.done().is_some());
    assert_one_identity(&node, &claim, 3);
}

#[tokio::test]
async fn after_a_504_or_a_lost_connection_too() {
    for first in [problem(Code::StoreOutcomeUnknown), Reply::HangUp, Reply::Silence] {
        let node = Node::start([first.clone(), claimed()]).await;
        let claim = claim();
        assert!(client(&[&node.url]).claim(&claim).await.done().is_some(), "{first:?}");
        assert_one_identity(&node, &claim, 2);
    }
}

#[tokio::test]
async fn another_node_is_asked_at_once_and_preferred_afterwards() {
    let (dead, node) = (nobody().await, Node::start([claimed()]).await);
    // With pauses as long as the deadline, only a failover without a pause can succeed.
    let slow = Settings {
        first_pause: Duration::from_secs(60),
        longest_pause: Duration::from_secs(60),
        ..settings(&[&dead, &node.url])
    };
    let client = Client::new(slow).unwrap();
    assert!(client.claim(&claim()).await.done().is_some());
    assert!(client.claim(&claim()).await.done().is_some());
    assert_eq!(node.asked().len(), 2);
}

#[tokio::test]
async fn nobody_there_is_unavailable() {
    let dead = nobody().await;
    assert!(matches!(client(&[&dead]).claim(&claim()).await, Outcome::Unavailable(_)));
}

#[tokio::test]
async fn only_503s_are_unavailable_with_the_reason() {
    let node = Node::start([problem(Code::StoreUnavailable)]).await;
    let Outcome::Unavailable(failure) = client(&[&node.url]).claim(&claim()).await else { panic!("unavailable") };
    assert_eq!(failure.problem.unwrap().code, Code::StoreUnavailable);
    assert_eq!(node.asked().len(), 4);
}

#[tokio::test]
async fn one_attempt_that_may_have_been_applied_makes_the_call_unknown() {
    for first in [problem(Code::StoreOutcomeUnknown), Reply::HangUp, Reply::Silence] {
        let node = Node::start([first.clone(), problem(Code::StoreUnavailable)]).await;
        assert!(matches!(client(&[&node.url]).claim(&claim()).await, Outcome::Unknown(_)), "{first:?}");
    }
}

#[tokio::test]
async fn a_read_is_never_unknown() {
    let node = Node::start([Reply::HangUp]).await;
    let client = client(&[&node.url]);
    assert!(matches!(client.operation(&"op_1".parse().unwrap()).await, Outcome::Unavailable(_)));
    let lookup = LookupRequest::by_key("n".parse().unwrap(), "k".parse().unwrap(), None);
    assert!(matches!(client.lookup(&lookup).await, Outcome::Unavailable(_)));
    assert!(matches!(client.cluster().await, Outcome::Unavailable(_)));
}

#[tokio::test]
async fn an_answer_that_hapax_did_not_write_proves_nothing() {
    let html = |status: u16| Reply::Answer { status, headers: Vec::new(), body: "<html>".to_owned() };
    for status in [200, 301, 403, 404, 502, 503] {
        let node = Node::start([html(status)]).await;
        assert!(matches!(client(&[&node.url]).claim(&claim()).await, Outcome::Unknown(_)), "{status}");
    }
    // A problem whose status is not the answer's was written about something else.
    let node = Node::start([answer(503, &Problem::new(Code::NotFound))]).await;
    assert!(matches!(client(&[&node.url]).claim(&claim()).await, Outcome::Unknown(_)));
}

#[tokio::test]
async fn refusals_are_not_sent_again() {
    for code in [Code::KeyDigestMismatch, Code::OperationExecuting, Code::AuthInvalid, Code::RequestInvalid] {
        let node = Node::start([problem(code)]).await;
        assert_eq!(client(&[&node.url]).claim(&claim()).await, Outcome::Refused(Problem::new(code)));
        assert_eq!(node.asked().len(), 1);
    }
}

#[tokio::test]
async fn after_a_doubt_only_the_operation_itself_settles_the_call() {
    let node = Node::start([Reply::HangUp, problem(Code::AuthInvalid)]).await;
    let Outcome::Unknown(failure) = client(&[&node.url]).claim(&claim()).await else { panic!("unknown") };
    assert_eq!(failure.problem.unwrap().code, Code::AuthInvalid);
    let node = Node::start([Reply::HangUp, problem(Code::KeyDigestMismatch)]).await;
    assert!(matches!(client(&[&node.url]).claim(&claim()).await, Outcome::Refused(_)));
}

#[tokio::test]
async fn retry_after_beyond_the_deadline_ends_the_call() {
    let body = serde_json::to_string(&Problem::new(Code::RateLimited)).unwrap();
    let limited = Reply::Answer { status: 429, headers: vec![("retry-after", "50".to_owned())], body };
    let node = Node::start([limited, claimed()]).await;
    let other = Node::start([claimed()]).await;
    let Outcome::Unavailable(failure) = client(&[&node.url, &other.url]).claim(&claim()).await else {
        panic!("unavailable")
    };
    assert_eq!(failure.problem.unwrap().code, Code::RateLimited);
    // The limit is not escaped through another node.
    assert_eq!((node.asked().len(), other.asked().len()), (1, 0));
}

#[tokio::test]
async fn the_calls_on_an_execution() {
    let renewed = Renewed {
        lease_epoch: 7,
        lease_expires_in_ms: 60_000,
        renew_by_ms: 20_000,
        revision: "1.0.6.0".parse().unwrap(),
    };
    let node = Node::start([
        answer(200, &renewed),
        answer(200, &accepted()),
        answer(200, &accepted()),
        answer(200, &accepted()),
    ])
    .await;
    let (client, id) = (client(&[&node.url]), "ex_1".parse().unwrap());
    let data = ResultData { external_id: Some("ch_1".parse().unwrap()), ..ResultData::default() };
    assert_eq!(client.renew(&id, &RenewRequest { lease_epoch: 7, lease_ms: 60_000 }).await, Outcome::Done(renewed));
    let report = OutcomeRequest { lease_epoch: 7, outcome: Reported::Completed, data: data.clone() };
    assert_eq!(client.report(&id, &report).await, Outcome::Done(accepted()));
    let evidence = EvidenceRequest {
        claim_id: claim().claim_id(),
        outcome: Settled::Completed,
        proof: None,
        data: data.clone(),
    };
    assert_eq!(client.evidence(&id, &evidence).await, Outcome::Done(accepted()));
    let proof = "look-up 4711".parse().unwrap();
    let resolve = ResolveRequest { lease_epoch: 8, outcome: Settled::Completed, proof, data };
    assert_eq!(client.resolve(&id, &resolve).await, Outcome::Done(accepted()));

    let (asked, limits) = (node.asked(), hapax_api::Limits::default());
    let lines: Vec<&str> = asked.iter().map(|request| request.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "POST /v1/executions/ex_1/renew HTTP/1.1",
            "POST /v1/executions/ex_1/outcome HTTP/1.1",
            "POST /v1/executions/ex_1/evidence HTTP/1.1",
            "POST /v1/executions/ex_1/resolve HTTP/1.1",
        ]
    );
    assert_eq!(OutcomeRequest::read(asked[1].body.as_bytes(), &limits), Ok(report));
    assert_eq!(EvidenceRequest::read(asked[2].body.as_bytes(), &limits), Ok(evidence));
    assert_eq!(ResolveRequest::read(asked[3].body.as_bytes(), &limits), Ok(resolve));
}

#[tokio::test]
async fn an_operation_and_its_change() {
    let view = serde_json::json!({
        "operation_id": "op_1", "namespace": "n", "state": "executing", "attempt": 1, "quarantined": false,
        "escalated": false,
        "execution": {
            "execution_id": "ex_1", "state": "executing", "owner": "w", "lease_epoch": 7, "effect_key": "op_1-a1",
        },
        "created_at": "2026-07-18T14:02:10.000Z", "updated_at": "2026-07-18T14:02:10.000Z", "revision": "1.0.5.0",
    });
    let tagged =
        Reply::Answer { status: 200, headers: vec![("etag", "\"1.0.5.0\"".to_owned())], body: view.to_string() };
    let unchanged = Reply::Answer { status: 304, headers: Vec::new(), body: String::new() };
    let node = Node::start([tagged.clone(), unchanged, tagged]).await;
    let (client, id) = (client(&[&node.url]), "op_1".parse().unwrap());
    let first = client.operation(&id).await.done().unwrap();
    assert_eq!((first.value.state, first.etag.as_str()), (State::Executing, "\"1.0.5.0\""));
    let wait = Duration::from_secs(5);
    assert_eq!(client.operation_change(&id, &first.etag, wait).await, Outcome::Done(None));
    assert!(client.operation_change(&id, &first.etag, wait).await.done().unwrap().is_some());
    let head = &node.asked()[1].head;
    assert!(head.contains("if-none-match: \"1.0.5.0\"") && head.contains("prefer: wait=5"), "{head}");
}

#[test]
fn unusable_settings() {
    assert!(matches!(Client::new(settings(&[])), Err(Unusable::NoUrl)));
    for url in ["", "node:7100", "https://node", "http://", "http://node/v1", "http://node?x", "http://u:p@node"] {
        assert!(matches!(Client::new(settings(&[url])), Err(Unusable::Url { .. })), "{url}");
    }
    let token = Settings { token: "a\nb".to_owned(), ..settings(&["http://node"]) };
    assert!(!format!("{token:?}").contains("a\\nb"));
    assert!(matches!(Client::new(token), Err(Unusable::Token)));
}
