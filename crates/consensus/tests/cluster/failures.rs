//! Nodes cut off, nodes whose storage fails, leaders that leave.

use std::time::Duration;

use hapax_consensus::propose::ProposeError;
use hapax_consensus::read::ReadError;
use tokio::time::Instant;

use crate::support::{Cluster, Kind, TIMING, until};

/// openraft's default grants every pre-vote, and then a node that was cut off deposes the leader when it returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_cut_off_does_not_raise_the_term() {
    let cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    let leader = cluster.leader().await;
    let cut = if leader == 3 { 2 } else { 3 };
    let term = cluster.node(leader).status().term;
    for peer in (1..=3).filter(|peer| *peer != cut) {
        cluster.net.cut_both(cut, peer);
    }
    // Long enough for several campaigns of a node that does not ask first.
    let long = Duration::from_millis(TIMING.election_max_ms * 6);
    tokio::time::sleep(long).await;
    assert_eq!(cluster.node(cut).status().term, term, "it raised its own term while it was alone");
    cluster.net.heal_all();
    cluster.claimed(cut, "healed").await;
    assert_eq!(cluster.node(leader).status().term, term, "it deposed the leader");
    assert_eq!(cluster.leader().await, leader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_answers_nothing_and_the_others_go_on() {
    let cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    let old = cluster.leader().await;
    cluster.claimed(old, "before").await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != old).collect();
    for peer in &others {
        cluster.net.cut_both(old, *peer);
    }
    let asked = Instant::now();
    let within = Duration::from_secs(3);
    let claim = cluster.claim_within(old, "cut", within).await;
    assert!(matches!(claim, Err(ProposeError::OutcomeUnknown | ProposeError::Unavailable)), "{claim:?}");
    let read = cluster.node(old).read(Instant::now() + within).await.map(|view| view.revision());
    assert_eq!(read, Err(ReadError::Unavailable));
    assert!(asked.elapsed() < within * 2 + Duration::from_secs(2), "deadlines were not kept");

    let new = cluster.leader_but(others[0], old).await;
    cluster.claimed(new, "meanwhile").await;
    cluster.net.heal_all();
    assert!(cluster.holds(old, "meanwhile").await);
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_shuts_down_hands_over_first() {
    let mut cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    let old = cluster.leader().await;
    let other = old % 3 + 1;
    cluster.claimed(old, "before").await;
    let term = cluster.node(old).status().term;
    cluster.stop(old).await;
    let stopped = Instant::now();
    cluster.leader_but(other, old).await;
    // Without a hand-over nobody campaigns before this much silence.
    let silence = Duration::from_millis(TIMING.election_max_ms);
    assert!(stopped.elapsed() < silence, "taken over after {:?}", stopped.elapsed());
    assert_eq!(cluster.node(other).status().term, term + 1);
    cluster.claimed(other, "after").await;
    assert!(cluster.holds(other, "before").await);
}

/// A dead follower of an idle cluster has the whole log, as far as the leader knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_never_handed_to_a_dead_node() {
    let mut cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    let old = cluster.leader().await;
    let (other, dead) = (old % 3 + 1, (old + 1) % 3 + 1);
    cluster.claimed(old, "before").await;
    cluster.agree().await;
    cluster.crash(dead).await;
    let began = Instant::now();
    cluster.stop(old).await;
    // A transfer to the dead one would have been waited for, in vain.
    assert!(began.elapsed() < Duration::from_millis(TIMING.election_max_ms * 2), "took {:?}", began.elapsed());
    assert_eq!(cluster.node(other).status().leader, Some(other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_disk_fails_stops_and_the_others_go_on() {
    let cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    let failing = cluster.leader().await;
    let other = failing % 3 + 1;
    let disk = cluster.log_disk(failing);
    disk.cut_power_before(disk.steps());
    let unanswered = cluster.claim_within(failing, "lost", Duration::from_secs(5)).await;
    assert!(unanswered.is_err(), "acknowledged without a disk: {unanswered:?}");
    let reason = tokio::time::timeout(crate::support::PATIENCE, cluster.node(failing).fatal()).await.unwrap();
    assert!(!reason.is_empty());
    cluster.leader_but(other, failing).await;
    cluster.claimed(other, "after").await;
    let ready = cluster.node(failing).ready(Instant::now() + Duration::from_secs(1)).await;
    assert!(ready.is_err(), "a failed node says that it is ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_crash_again_and_again_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        let leader = cluster.leader().await;
        for n in 0..5 {
            let key = format!("key{round}-{n}");
            cluster.claimed(n % 3 + 1, &key).await;
            acknowledged.push(key);
        }
        cluster.crash(leader).await;
        let other = leader % 3 + 1;
        cluster.leader_but(other, leader).await;
        let key = format!("key{round}-while-down");
        cluster.claimed(other, &key).await;
        acknowledged.push(key);
        cluster.start(leader).await;
    }
    for id in 1..=3 {
        for key in &acknowledged {
            assert!(cluster.holds(id, key).await, "{key} through node {id}");
        }
    }
    cluster.agree().await;
    let _ = until("a leader", || cluster.node(1).status().leader).await;
}
