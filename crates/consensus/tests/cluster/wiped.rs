//! A node whose data was lost, started again under its old id: it has forgotten its votes and what it acknowledged,
//! so it is nobody to the members. They neither hear it nor speak to it, and it does not count.

use std::time::Duration;

use hapax_consensus::bootstrap::BootstrapError;
use hapax_consensus::propose::ProposeError;
use tokio::time::Instant;

use crate::support::{Cluster, Kind, until};

/// Many elections and reconnections long: in this time a node that counted would have been heard.
const A_WHILE: Duration = Duration::from_secs(4);

async fn a_wiped_follower_is_nobody(kind: Kind) {
    let mut cluster = Cluster::running(kind, 3, |_| ()).await;
    cluster.claimed(1, "before").await;
    let leader = cluster.leader().await;
    let wiped = leader % 3 + 1;
    let other = 6 - leader - wiped;
    cluster.wipe(wiped).await;
    cluster.start(wiped).await;

    // The other two go on.
    for n in 0..20 {
        cluster.claimed(if n % 2 == 0 { leader } else { other }, &format!("with two {n}")).await;
    }
    assert!(cluster.holds(other, "before").await && cluster.holds(leader, "with two 19").await);
    let tried = cluster.claim_within(wiped, "through the wiped one", A_WHILE).await;
    assert!(matches!(tried, Err(ProposeError::Unavailable)), "{tried:?}");
    nothing_reached(&cluster, wiped);
    for id in [leader, other] {
        let gone = || {
            let members = cluster.node(id).status().members;
            members.into_iter().any(|member| member.id == wiped && !member.reachable).then_some(())
        };
        until("the wiped node to be out of reach", gone).await;
    }

    // With one more gone there is no quorum: the wiped node must not make one.
    cluster.leave(leader).await;
    let tried = cluster.claim_within(other, "without a quorum", A_WHILE).await;
    assert!(tried.is_err(), "the wiped node made a quorum: {tried:?}");
    assert!(cluster.node(other).read(Instant::now() + A_WHILE).await.is_err());
    nothing_reached(&cluster, wiped);

    // The two that have their data are enough again.
    cluster.start(leader).await;
    assert!(cluster.holds(other, "with two 19").await && cluster.holds(leader, "before").await);
    cluster.claimed(leader, "after").await;
    nothing_reached(&cluster, wiped);
}

fn nothing_reached(cluster: &Cluster, wiped: u64) {
    let status = cluster.node(wiped).status();
    assert_eq!((status.applied_index, status.last_log_index, status.term, status.leader), (0, 0, 0, None));
    assert_eq!(cluster.node(wiped).local().applied(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_wiped_in_memory_is_nobody() {
    a_wiped_follower_is_nobody(Kind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_wiped_on_disk_is_nobody() {
    a_wiped_follower_is_nobody(Kind::Disk).await;
}

/// The node that began the cluster is told to begin one at each of its starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_does_not_begin_a_second_cluster() {
    let mut cluster = Cluster::running(Kind::Disk, 3, |_| ()).await;
    cluster.claimed(1, "before").await;
    cluster.agree().await;
    cluster.wipe(1).await;
    cluster.start(1).await;
    let begun = cluster.bootstrap(1).await;
    assert!(matches!(begun, Err(BootstrapError::ClusterExists(2 | 3))), "{begun:?}");
    assert!(cluster.holds(2, "before").await);
}

/// All members restarted after the wipe: what they know of each other they have from their own disks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_members_still_know_who_was_wiped() {
    let mut cluster = Cluster::running(Kind::Disk, 3, |_| ()).await;
    cluster.claimed(1, "before").await;
    cluster.agree().await;
    cluster.wipe(3).await;
    cluster.leave(1).await;
    cluster.leave(2).await;
    cluster.start(3).await;
    cluster.start(2).await;
    let tried = cluster.claim_within(2, "without a quorum", A_WHILE).await;
    assert!(tried.is_err(), "the wiped node made a quorum: {tried:?}");
    cluster.start(1).await;
    assert!(cluster.holds(1, "before").await);
    cluster.claimed(2, "after").await;
    nothing_reached(&cluster, 3);
}
