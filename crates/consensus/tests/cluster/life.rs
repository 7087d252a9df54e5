//! A cluster's ordinary life: begun once, asked through any node, stopped and started again.

use hapax_consensus::bootstrap::{BootstrapError, Bootstrapped};
use hapax_consensus::status::Role;
use hapax_machine::Outcome;
use hapax_machine::outcome::Answer;

use crate::support::{Cluster, Kind, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_elect_one_executor_and_every_node_reads_it() {
    let cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    for id in 1..=3 {
        cluster.claimed(id, &format!("key{id}")).await;
    }
    for id in 1..=3 {
        let again = cluster.claim(id, "key1").await;
        assert!(matches!(&again, Ok(Outcome { answer: Answer::InProgress(_), .. })), "{again:?}");
        for key in ["key1", "key2", "key3"] {
            assert!(cluster.holds(id, key).await, "{key} through node {id}");
        }
    }
    cluster.agree().await;
    assert_eq!(cluster.bootstrap(2).await, Ok(Bootstrapped::Before));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_knows_all_members() {
    let cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    let leader = cluster.leader().await;
    for id in 1..=3 {
        let node = cluster.node(id);
        let all_heard = || Some(node.status()).filter(|status| status.members.iter().all(|member| member.reachable));
        let status = until("every member heard", all_heard).await;
        assert_eq!((status.node_id, status.leader), (id, Some(leader)));
        assert_eq!(status.members.iter().map(|member| member.id).collect::<Vec<_>>(), [1, 2, 3]);
        for member in &status.members {
            assert_eq!(member.role == Role::Leader, member.id == leader);
            assert_eq!(member.region, format!("region{}", member.id));
            assert_eq!(member.client_url, format!("http://node{}", member.id));
            assert!(member.applied_index.is_some() && member.lag.is_some(), "{member:?}");
        }
    }
}

/// Through the log alone, since nothing was flushed: in memory a crash loses all of the state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_all_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    for n in 0..20 {
        cluster.claimed(n % 3 + 1, &format!("key{n}")).await;
    }
    for id in 1..=3 {
        cluster.crash(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await;
    }
    for n in 0..20 {
        assert!(cluster.holds(n % 3 + 1, &format!("key{n}")).await);
    }
    cluster.claimed(1, "afterwards").await;
    cluster.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_on_disk_is_stopped_and_started_again() {
    let mut cluster = Cluster::running(Kind::Disk, 3, |_| ()).await;
    cluster.claimed(2, "before").await;
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await;
    }
    assert!(cluster.holds(3, "before").await);
    cluster.claimed(3, "after").await;
    cluster.agree().await;
}

/// The membership still holds the old addresses, which nobody listens at any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_configured_addresses_changed_finds_together() {
    let mut cluster = Cluster::running(Kind::Memory, 3, |_| ()).await;
    cluster.claimed(1, "before").await;
    for id in 1..=3 {
        cluster.stop(id).await;
    }
    cluster.move_all();
    for id in 1..=3 {
        cluster.start(id).await;
    }
    assert!(cluster.holds(2, "before").await);
    cluster.claimed(3, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_alone_is_a_cluster() {
    let mut cluster = Cluster::running(Kind::Memory, 1, |_| ()).await;
    cluster.claimed(1, "key").await;
    cluster.crash(1).await;
    cluster.start(1).await;
    assert!(cluster.holds(1, "key").await);
}

/// A wiped node must not begin a second cluster in place of the one that it has forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_node_does_not_begin_a_cluster_beside_one_that_its_peers_know() {
    let mut cluster = Cluster::new(Kind::Memory, 3, |_| ());
    for id in 1..=3 {
        cluster.start(id).await;
    }
    // Node 3 hears nothing of the beginning, as if it had lost it.
    for peer in 1..=2 {
        cluster.net.cut_both(3, peer);
    }
    // The others begin without having asked it only because it answered before it was cut off.
    let begun = tokio::time::timeout(std::time::Duration::from_secs(2), cluster.bootstrap(1)).await;
    assert!(begun.is_err(), "begun without having asked every peer: {begun:?}");
    cluster.net.heal_all();
    assert_eq!(cluster.bootstrap(1).await, Ok(Bootstrapped::Now));
    cluster.leader().await;
    let mut stranger = Cluster::new(Kind::Memory, 3, |_| ());
    stranger.net = cluster.net.clone();
    cluster.crash(3).await;
    stranger.start(3).await;
    // Until the leader has spoken to it, it is as empty as a node can be.
    match stranger.bootstrap(3).await {
        Err(BootstrapError::ClusterExists(peer)) => assert!(peer < 3),
        // The leader was faster.
        Ok(Bootstrapped::Before) => {}
        other => panic!("{other:?}"),
    }
}
