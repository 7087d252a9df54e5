//! The whole operation protocol on several nodes: retention through changes of leader, bumps that fence, answers from a node's own
//! state while it is cut off, watching.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax_consensus::config::NodeConfig;
use hapax_consensus::node::ReadGuard;
use hapax_consensus::wall::Moved;
use hapax_machine::View;
use hapax_machine::command::{BumpEpoch, Claim, Command, CountedRefusal, Expected, PutNamespace, Report, ResultData};
use hapax_machine::epoch::Binding;
use hapax_machine::ids::{AuthorityEpoch, CapabilityId, EpochScope, NamespaceName, TenantTag, WallTime};
use hapax_machine::namespace::{NamespaceRecord, OnLapse};
use hapax_machine::operation::{Definite, State};
use hapax_machine::outcome::{Answer, Grant};
use hapax_machine::read::{self, Reading};
use hapax_store::state::{EventPosition, Events};
use tokio::time::Instant;

use crate::support::{Cluster, Kind, PATIENCE, caller, namespace, operation_key, until};

/// How old a state may be that answers are given from, in these tests.
const BOUND: Duration = Duration::from_millis(600);

/// Everything that waits for a minute in life waits for less than a second.
fn quick(config: &mut NodeConfig) {
    config.reads.local_fact_renew = Duration::from_millis(50);
    config.reads.local_fact_max_staleness = BOUND;
    config.retention.interval = Duration::from_millis(700);
    config.retention.compact_interval = Duration::from_millis(100);
    config.log.flush_interval = Duration::from_millis(200);
}

async fn granted(cluster: &Cluster, id: u64, key: &str) -> Grant {
    match cluster.claim(id, key).await.unwrap().answer {
        Answer::Claimed(grant) => grant,
        other => panic!("{key}: {other:?}"),
    }
}

/// Claims a key and reports that its effect happened, with a result.
async fn complete(cluster: &Cluster, id: u64, key: &str) {
    let grant = granted(cluster, id, key).await;
    let report = Report {
        caller: caller(),
        execution_id: grant.execution_id,
        lease_epoch: grant.lease.lease_epoch,
        outcome: Some(Definite::Completed),
        data: ResultData { result: Some(b"done".to_vec()), ..ResultData::default() },
    };
    let answer = cluster.answer(id, Command::Report(report)).await;
    assert!(matches!(answer, Answer::Accepted(_)), "{answer:?}");
}

/// What a node's confirmed state shows of a key.
async fn shown(cluster: &Cluster, id: u64, key: &str) -> Option<Reading> {
    let view = cluster.node(id).read(Instant::now() + PATIENCE).await.unwrap();
    read::by_key(&*view, &caller(), &operation_key(key)).unwrap()
}

/// The wall goes on by so much, on an operator's word.
async fn skip(cluster: &Cluster, asked: u64, by: Duration) {
    let node = cluster.node(asked);
    let before = node.local().head().clocks.wall;
    cluster.clock.skip(by);
    let moved = node.advance_wall(Instant::now() + PATIENCE).await;
    assert!(matches!(moved, Ok(Moved::To(wall)) if wall.0 >= before.0 + by.as_millis() as u64), "{moved:?}");
}

/// Waits until every running node has applied a floor above this instant.
async fn forgotten_before(cluster: &Cluster, at: WallTime) {
    let policy = namespace();
    let everywhere = || {
        let mut views = cluster.running_nodes().map(|(_, node)| node.local());
        let risen = views.all(|view| view.status(&policy.tenant, &policy.name).unwrap().floors.forget_before > at);
        risen.then_some(())
    };
    until("the floors to rise", everywhere).await;
}

async fn retention_through_changes_of_leader(kind: Kind) {
    let mut cluster = Cluster::running(kind, 3, quick).await;
    let leader = cluster.leader().await;
    for n in 0..20 {
        complete(&cluster, n % 3 + 1, &format!("old{n}")).await;
    }
    let executing = granted(&cluster, 2, "executing").await;
    let ended_at = shown(&cluster, 1, "old19").await.unwrap().record.terminal_at.unwrap();

    // Its body may go; its identity not yet. The leader that would say so dies with the wall just moved.
    skip(&cluster, leader, Duration::from_hours(24 * 8)).await;
    cluster.leave(leader).await;
    let other = leader % 3 + 1;
    let second = cluster.leader_but(other, leader).await;
    let policy = namespace();
    let compacted = || {
        let floors = cluster.node(other).local().status(&policy.tenant, &policy.name).unwrap().floors;
        (floors.compact_before > ended_at).then_some(floors)
    };
    let floors = until("the next leader to go on", compacted).await;
    assert!(floors.forget_before < ended_at, "{floors:?}");
    let reading = shown(&cluster, other, "old3").await.expect("forgotten too early");
    assert!(reading.result.is_none() && reading.result_compacted, "{reading:?}");
    let again = cluster.claim(other, "old3").await.unwrap().answer;
    assert!(matches!(&again, Answer::Replayed(receipt) if receipt.result.is_none()), "{again:?}");

    // Now it may be forgotten, and again the leader goes in the middle of it.
    cluster.start(leader).await;
    skip(&cluster, second, Duration::from_hours(24 * 30)).await;
    cluster.leave(second).await;
    cluster.leader_but(leader, second).await;
    forgotten_before(&cluster, ended_at).await;
    cluster.start(second).await;
    forgotten_before(&cluster, ended_at).await;
    for id in 1..=3 {
        assert_eq!(shown(&cluster, id, "old3").await, None, "through node {id}");
        let reading = shown(&cluster, id, "executing").await.expect("what is open has no horizon");
        assert_eq!(reading.record.execution.unwrap().id, executing.execution_id);
    }
    // A key that was forgotten begins anew, once.
    granted(&cluster, 1, "old3").await;
    assert!(matches!(cluster.claim(2, "old3").await.unwrap().answer, Answer::InProgress(_)));
    cluster.agree().await;

    // The bytes are given back on every node, and nothing that is answered changes by that.
    let removed = || {
        let all = cluster
            .running_nodes()
            .all(|(_, node)| node.removed().iter().map(|removed| removed.rows).sum::<u64>() > 0);
        all.then_some(())
    };
    until("every node to remove rows", removed).await;
    cluster.agree().await;
    for id in 1..=3 {
        assert_eq!(shown(&cluster, id, "old4").await, None, "through node {id}");
        assert!(cluster.holds(id, "old3").await && cluster.holds(id, "executing").await);
    }
    granted(&cluster, 3, "old4").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_goes_on_through_changes_of_leader() {
    retention_through_changes_of_leader(Kind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_on_disk_goes_on_through_changes_of_leader() {
    retention_through_changes_of_leader(Kind::Disk).await;
}

fn scope() -> EpochScope {
    EpochScope::new("approvals")
}

/// Claims a key under a value of the register.
async fn claim_under(cluster: &Cluster, id: u64, key: &str, value: AuthorityEpoch) -> Answer {
    let claim = Claim { epoch: Some(Binding { scope: scope(), value }), ..cluster.drawn(key) };
    cluster.answer(id, Command::Claim(claim)).await
}

async fn bump(cluster: &Cluster, id: u64, expected: AuthorityEpoch) -> AuthorityEpoch {
    match cluster.answer(id, Command::BumpEpoch(BumpEpoch { caller: caller(), scope: scope(), expected })).await {
        Answer::Epoch(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Waits until every running node's own rows say so, without anybody asking for the operation.
async fn becomes(cluster: &Cluster, key: &str, state: State) {
    // A node that was just started may not have it yet.
    let there = |view: &ReadGuard| {
        let found = view.operation(&operation_key(key)).unwrap();
        found.is_some_and(|record| record.state() == state)
    };
    until(key, || cluster.running_nodes().all(|(_, node)| there(&node.local())).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bump_makes_open_executions_unknown_without_anybody_asking() {
    let cluster = Cluster::running(Kind::Memory, 3, quick).await;
    let first = AuthorityEpoch(0);
    for n in 0..10 {
        let answer = claim_under(&cluster, n % 3 + 1, &format!("under{n}"), first).await;
        assert!(matches!(answer, Answer::Claimed(_)), "{answer:?}");
    }
    cluster.claimed(1, "free").await;
    let second = bump(&cluster, 2, first).await;
    // From the moment of the answer on, through every node.
    for id in 1..=3 {
        let late = claim_under(&cluster, id, &format!("late{id}"), first).await;
        assert!(matches!(&late, Answer::Refused(_)), "{late:?}");
    }
    assert!(matches!(claim_under(&cluster, 1, "new", second).await, Answer::Claimed(_)));
    for n in 0..10 {
        becomes(&cluster, &format!("under{n}"), State::Unknown).await;
    }
    becomes(&cluster, "free", State::Executing).await;
    becomes(&cluster, "new", State::Executing).await;
    cluster.agree().await;
}

/// The leader that applied the bump is gone before it could sweep; the next one finds what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bump_survives_the_leader_that_would_sweep_after_it() {
    let mut cluster = Cluster::running(Kind::Memory, 3, quick).await;
    let mut value = AuthorityEpoch(0);
    for round in 0..3 {
        let leader = cluster.leader().await;
        let other = leader % 3 + 1;
        for n in 0..30 {
            let answer = claim_under(&cluster, other, &format!("under{round}-{n}"), value).await;
            assert!(matches!(answer, Answer::Claimed(_)), "{answer:?}");
        }
        value = bump(&cluster, other, value).await;
        cluster.crash(leader).await;
        for n in 0..30 {
            becomes(&cluster, &format!("under{round}-{n}"), State::Unknown).await;
        }
        cluster.start(leader).await;
    }
    cluster.agree().await;
}

/// Where lapses are taken over, what lapsed waits for a claimant until the policy says otherwise; then it is unknown, and the sweep
/// sees to it also where the policy has changed back meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_follow_a_policy_that_changes() {
    let cluster = Cluster::running(Kind::Memory, 3, quick).await;
    let write = |on_lapse, expected| {
        let record = NamespaceRecord { on_lapse, ..namespace() };
        Command::PutNamespace(PutNamespace { caller: caller(), record, expected })
    };
    let version = |answer: Answer| match answer {
        Answer::Namespace(record) => record.version,
        other => panic!("{other:?}"),
    };
    let stands = namespace().version;
    let takeover = version(cluster.answer(1, write(OnLapse::Takeover, Expected::Version(stands))).await);
    let short = Claim { lease_ms: 1_000, ..cluster.drawn("short") };
    assert!(matches!(cluster.answer(2, Command::Claim(short)).await, Answer::Claimed(_)));
    let lapsed = || {
        let view = cluster.node(1).local();
        let execution = view.operation(&operation_key("short")).unwrap()?.execution?;
        execution.lapsed(view.head().clocks.lease_time).then_some(execution.state)
    };
    assert_eq!(until("the lease to end", lapsed).await, State::Executing, "it waits for a claimant");
    let unknown = version(cluster.answer(3, write(OnLapse::Unknown, Expected::Version(takeover))).await);
    cluster.answer(1, write(OnLapse::Takeover, Expected::Version(unknown))).await;
    becomes(&cluster, "short", State::Unknown).await;
}

/// Keys that were acknowledged, and when.
struct Acknowledged(Mutex<Vec<(String, Instant)>>);

impl Acknowledged {
    fn before(&self, at: Instant) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(_, when)| *when <= at).map(|(key, _)| key.clone()).collect()
    }
}

/// Takes what a node answers from by itself, and checks that it misses nothing that was acknowledged the bound before. Whether it
/// answered.
fn look(cluster: &Cluster, id: u64, acknowledged: &Acknowledged) -> bool {
    let asked = Instant::now();
    let Some(view) = cluster.node(id).fresh_view() else { return false };
    for key in acknowledged.before(asked - BOUND) {
        let found = view.operation(&operation_key(&key)).unwrap();
        assert!(found.is_some(), "{key} was acknowledged more than the bound before node {id} answered without it");
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_stops_answering_at_the_bound() {
    let cluster = Arc::new(Cluster::running(Kind::Memory, 3, quick).await);
    for cut_leader in [false, true] {
        let leader = cluster.leader().await;
        let cut = if cut_leader { leader } else { leader % 3 + 1 };
        let others: Vec<u64> = (1..=3).filter(|id| *id != cut).collect();
        let acknowledged = Arc::new(Acknowledged(Mutex::default()));
        let writing = Arc::new(AtomicBool::new(true));
        let writer = tokio::spawn({
            let (cluster, acknowledged, writing) = (cluster.clone(), acknowledged.clone(), writing.clone());
            let through = others[0];
            async move {
                let mut n = 0;
                while writing.load(Ordering::SeqCst) {
                    let key = format!("{cut_leader}{n}");
                    if cluster.claim(through, &key).await.is_ok() {
                        acknowledged.0.lock().unwrap().push((key, Instant::now()));
                    }
                    n += 1;
                    // So that looking through them stays cheap.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        });
        until("an answer", || look(&cluster, cut, &acknowledged).then_some(())).await;
        for peer in &others {
            cluster.net.cut_both(cut, *peer);
        }
        let cut_at = Instant::now();
        let last = Mutex::new(cut_at);
        let over = || {
            let asked = Instant::now();
            let answered = look(&cluster, cut, &acknowledged);
            if answered {
                *last.lock().unwrap() = asked;
            }
            (!answered).then_some(())
        };
        until("the end of answers", over).await;
        // What was confirmed last was begun before the cut.
        let answered_for = *last.lock().unwrap() - cut_at;
        assert!(answered_for <= BOUND, "answered for {answered_for:?}");
        let until_then = Instant::now() + BOUND * 3;
        while Instant::now() < until_then {
            assert!(!look(&cluster, cut, &acknowledged), "it answers again while it is cut off");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        until("the others to go on", || look(&cluster, others[0], &acknowledged).then_some(())).await;
        cluster.net.heal_all();
        until("an answer after healing", || look(&cluster, cut, &acknowledged).then_some(())).await;
        writing.store(false, Ordering::SeqCst);
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_answers_nothing_from_what_it_has_kept() {
    let mut cluster = Cluster::running(Kind::Disk, 3, quick).await;
    cluster.claimed(1, "before").await;
    let (alone, others) = (cluster.leader().await, [1, 2, 3]);
    for id in others {
        cluster.stop(id).await;
    }
    cluster.start(alone).await;
    assert!(cluster.node(alone).local().operation(&operation_key("before")).unwrap().is_some(), "it has kept it");
    let until_then = Instant::now() + BOUND * 2;
    while Instant::now() < until_then {
        assert!(cluster.node(alone).fresh_view().is_none());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.start(alone % 3 + 1).await;
    let fresh = || cluster.node(alone).fresh_view();
    assert!(until("a quorum", fresh).await.operation(&operation_key("before")).unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_has_counted_is_told_before_it_stops() {
    let mut cluster = Cluster::running(Kind::Memory, 3, quick).await;
    let grant = granted(&cluster, 1, "key").await;
    let unknown = CapabilityId { slot: grant.operation_id.slot, random: [9; 16] };
    let claim = Claim { capability_id: Some(unknown), ..cluster.drawn("key") };
    let refused = cluster.answer(1, Command::Claim(claim)).await;
    assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
    let tenant = namespace().tenant;
    let record = async |id: u64| {
        let view = cluster.node(id).read(Instant::now() + PATIENCE).await.unwrap();
        let (mut kept, _) = view.refusals_of_operation(&tenant, &grant.operation_id, None, 9).unwrap();
        assert_eq!(kept.len(), 1);
        kept.remove(0)
    };
    let (key, kept) = record(2).await;
    assert_eq!(kept.times, 1);
    let stopped = cluster.leader().await % 3 + 1;
    cluster.node(stopped).count_refusals(vec![CountedRefusal { key, times: 5 }]);
    cluster.node(stopped).count_refusals(vec![CountedRefusal { key, times: 2 }]);
    cluster.stop(stopped).await;
    let view = cluster.node(stopped % 3 + 1).read(Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(view.refusal(&key).unwrap().unwrap().times, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_hears_of_every_change_on_every_node() {
    let cluster = Cluster::running(Kind::Memory, 3, quick).await;
    let tag = TenantTag::of(&namespace().tenant);
    for id in 1..=3 {
        let mut watch = cluster.node(id).watch(tag).unwrap();
        // Behind all that happened before, also where this node has not applied it yet.
        let view = cluster.node(id).read(Instant::now() + PATIENCE).await.unwrap();
        let mut at = EventPosition::behind_entry(view.revision().index);
        let key = format!("watched{id}");
        complete(&cluster, id % 3 + 1, &key).await;
        let mut seen = Vec::new();
        while seen != [State::Executing, State::Completed] {
            tokio::time::timeout(PATIENCE, watch.changed()).await.expect("nobody was woken");
            let Events::Page { events, next } = cluster.node(id).local().events(at, 100).unwrap() else {
                panic!("the events are gone");
            };
            assert!(events.iter().all(|event| event.namespace == NamespaceName::new("payments")));
            seen.extend(events.iter().map(|event| event.state));
            at = next;
        }
    }
}
