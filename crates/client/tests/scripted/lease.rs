//! The lease guard against scripted nodes: it renews, and it says that the lease is lost no later than it is.

use std::time::Duration;

use crate::node::{Node, Reply};
use hapax_api::{Code, Problem};
use hapax_client::{Claim, Client, Election, LeaseGuard, LeaseState, Outcome, Reported, ResultData, Settings};
use serde_json::json;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

fn claimed(expires_in_ms: u64, renew_by_ms: u64) -> Reply {
    let body = json!({
        "result": "claimed", "operation_id": "op_1", "execution_id": "ex_1", "attempt": 1, "lease_epoch": 7,
        "lease_expires_in_ms": expires_in_ms, "renew_by_ms": renew_by_ms, "effect_key": "ek_1",
        "revision": "1.0.5.0",
    });
    Reply::Answer { status: 201, headers: Vec::new(), body: body.to_string() }
}

fn renewed(expires_in_ms: u64, renew_by_ms: u64) -> Reply {
    let body = json!({
        "lease_epoch": 7, "lease_expires_in_ms": expires_in_ms, "renew_by_ms": renew_by_ms, "revision": "1.0.6.0",
    });
    Reply::Answer { status: 200, headers: Vec::new(), body: body.to_string() }
}

fn refused(code: Code) -> Reply {
    let body = serde_json::to_string(&Problem::new(code)).unwrap();
    Reply::Answer { status: code.status(), headers: Vec::new(), body }
}

async fn held(node: &Node) -> LeaseGuard {
    let settings = Settings { attempt_timeout: Duration::from_secs(5), ..Settings::new([node.url.as_str()], "dev") };
    let client = Client::new(settings).unwrap();
    let claim = Claim::new("n".parse().unwrap(), "k".parse().unwrap(), &json!({})).unwrap().lease_ms(60_000);
    match client.elect(&claim).await {
        Outcome::Done(Election::Held(lease)) => lease,
        other => panic!("held: {other:?}"),
    }
}

#[tokio::test]
async fn it_renews_and_reports() {
    let accepted = json!({ "operation_id": "op_1", "state": "completed", "revision": "1.0.7.0" });
    let accepted = Reply::Answer { status: 200, headers: Vec::new(), body: accepted.to_string() };
    let node = Node::start([claimed(60_000, 0), renewed(120_000, 60_000), accepted]).await;
    let lease = held(&node).await;
    let before = *lease.watch().borrow();
    let mut watch = lease.watch();
    timeout(PATIENCE, watch.wait_for(|state| *state != before)).await.unwrap().unwrap();
    let (LeaseState::Held { until: before }, LeaseState::Held { until: after }) = (before, *watch.borrow()) else {
        panic!("held before and after");
    };
    assert!(after > before + Duration::from_secs(30));
    assert!(lease.is_held());
    assert!(lease.report(Reported::Completed, ResultData::default()).await.done().is_some());
    let asked = node.asked();
    assert_eq!(asked[1].json(), json!({ "lease_epoch": 7, "lease_ms": 60_000 }));
    assert_eq!(asked[2].json(), json!({ "lease_epoch": 7, "outcome": "completed" }));
    assert_eq!(asked.len(), 3);
}

#[tokio::test]
async fn a_refused_renewal_loses_it() {
    for code in [Code::LeaseStaleEpoch, Code::LeaseLost, Code::NotFound] {
        let node = Node::start([claimed(60_000, 0), refused(code)]).await;
        let lease = held(&node).await;
        timeout(PATIENCE, lease.lost()).await.unwrap();
        assert!(!lease.is_held());
        assert_eq!(*lease.watch().borrow(), LeaseState::Lost);
    }
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_is_lost_at_its_deadline() {
    for reply in [Reply::Silence, Reply::HangUp, refused(Code::StoreUnavailable)] {
        let begun = Instant::now();
        let node = Node::start([claimed(1_500, 100), reply.clone()]).await;
        let lease = held(&node).await;
        timeout(PATIENCE, lease.lost()).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(1_500), "{reply:?}");
        assert!(!lease.is_held());
    }
}

#[tokio::test]
async fn the_signal_outlives_the_guard() {
    let node = Node::start([claimed(60_000, 30_000)]).await;
    let lease = held(&node).await;
    let mut watch = lease.watch();
    drop(lease);
    // Nobody renews any more: whoever waits for a change learns that none will come.
    assert!(timeout(PATIENCE, watch.changed()).await.unwrap().is_err());
}

#[tokio::test]
async fn other_answers_hold_nothing() {
    let body = json!({
        "result": "in_progress", "operation_id": "op_1", "execution_id": "ex_1", "attempt": 1, "state": "executing",
        "revision": "1.0.5.0",
    });
    let node = Node::start([Reply::Answer { status: 202, headers: Vec::new(), body: body.to_string() }]).await;
    let client = Client::new(Settings::new([node.url.as_str()], "dev")).unwrap();
    let claim = Claim::new("n".parse().unwrap(), "k".parse().unwrap(), &json!({})).unwrap();
    assert!(matches!(client.elect(&claim).await, Outcome::Done(Election::InProgress(_))));
}
