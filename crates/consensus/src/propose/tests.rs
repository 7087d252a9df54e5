//! The table of this module, row by row, and chaos against its promise: no command reported as certainly not applied
//! is ever in a log.

use std::time::Duration;

use futures::future::join_all;
use hapax_machine::Command;
use hapax_machine::outcome::Answer;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::forward::{decode_reply, encode_request};
use super::ticket::{Answer as TicketAnswer, Origin, pair};
use super::{Limits, ProposeError};
use crate::fakes::{Cluster, Fate, Link, Node, envelope, numbered, room, soon};
use crate::seam::Role;

const UNAVAILABLE: Result<Answer, ProposeError> = Err(ProposeError::Unavailable);
const UNKNOWN: Result<Answer, ProposeError> = Err(ProposeError::OutcomeUnknown);
const OVERLOADED: Result<Answer, ProposeError> = Err(ProposeError::Overloaded);
/// What a numbered command comes to.
const DONE: Result<Answer, ProposeError> = Ok(Answer::Lapsed { changed: false });

/// Short, for rows whose answer comes at the deadline.
fn shortly() -> Instant {
    Instant::now() + Duration::from_millis(80)
}

async fn propose(node: &Node, n: u64, deadline: Instant) -> Result<Answer, ProposeError> {
    node.proposer.propose(numbered(n), deadline).await.map(|outcome| outcome.answer)
}

fn follower(leader: Option<u64>) -> Role {
    Role::Follower { leader }
}

#[tokio::test]
async fn row_1_applied_here_and_through_a_follower() {
    let cluster = Cluster::new(3);
    assert_eq!(propose(cluster.node(1), 1, soon()).await, DONE);
    assert_eq!(propose(cluster.node(2), 2, soon()).await, DONE);
    assert_eq!((cluster.log.times_appended(1), cluster.log.times_appended(2)), (1, 1));
}

#[tokio::test]
async fn row_2_too_late_to_act() {
    let cluster = Cluster::new(2);
    cluster.log.set_lease_time(1 << 40);
    assert_eq!(propose(cluster.node(1), 1, soon()).await, UNKNOWN);
    cluster.log.set_lease_time(1 << 41);
    assert_eq!(propose(cluster.node(2), 2, soon()).await, UNKNOWN);
}

#[tokio::test]
async fn row_3_no_room_here() {
    let cluster = Cluster::with_limits(2, Limits { commands: 1, ..Limits::default() });
    let node = cluster.node(1);
    node.consensus.set_role(follower(None));
    let first = tokio::spawn({
        let node = std::sync::Arc::clone(node);
        async move { propose(&node, 1, soon()).await }
    });
    while node.proposer.0.commands.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(propose(node, 2, soon()).await, OVERLOADED);
    node.consensus.set_role(Role::Leader { term: 2 });
    assert_eq!(first.await.unwrap(), DONE);
    assert_eq!(propose(node, 3, soon()).await, DONE, "the place was given back");
    assert_eq!(cluster.log.times_appended(2), 0);
}

#[tokio::test]
async fn row_3_no_room_for_the_bytes() {
    let cluster = Cluster::with_limits(1, Limits { len: 10, ..Limits::default() });
    assert_eq!(propose(cluster.node(1), 1, soon()).await, OVERLOADED);
}

#[tokio::test]
async fn row_3_no_room_at_the_leader() {
    let cluster = Cluster::with_limits(2, Limits { commands: 1, ..Limits::default() });
    cluster.node(1).consensus.next_fates([Fate::Hang]);
    let leader = std::sync::Arc::clone(cluster.node(1));
    let held = tokio::spawn(async move { propose(&leader, 1, soon()).await });
    cluster.wait_for_entry(soon(), |command| *command == numbered(1)).await;
    assert_eq!(propose(cluster.node(2), 2, soon()).await, OVERLOADED);
    assert_eq!(cluster.log.times_appended(2), 0);
    held.abort();
}

#[tokio::test]
async fn row_4_draining_or_not_caught_up() {
    let cluster = Cluster::new(2);
    cluster.node(1).proposer.close();
    assert_eq!(propose(cluster.node(1), 1, soon()).await, UNAVAILABLE);
    assert_eq!(propose(cluster.node(2), 2, shortly()).await, UNAVAILABLE, "the leader refuses forwards as well");
    assert!(cluster.log.appended().is_empty());
}

#[tokio::test]
async fn row_4_the_replicas_states_differ() {
    let cluster = Cluster::new(2);
    let leader = cluster.node(1);
    leader.proposer.suspend(true);
    assert_eq!(propose(leader, 1, soon()).await, UNAVAILABLE);
    assert_eq!(propose(cluster.node(2), 2, shortly()).await, UNAVAILABLE, "the leader refuses forwards as well");
    assert_eq!(leader.proposer.propose_as_leader(1, numbered(3)).await, Err(ProposeError::Unavailable));
    assert!(cluster.log.appended().is_empty());
    leader.proposer.suspend(false);
    assert_eq!(propose(cluster.node(2), 4, soon()).await, DONE);
}

#[tokio::test]
async fn row_4_not_caught_up_since_the_start() {
    use crate::fakes::{FakeState, ManualClock};
    use crate::tracker::Tracker;
    let cluster = Cluster::new(1);
    let node = cluster.node(1);
    let state = FakeState::new(0, hapax_machine::change::Head::default(), Vec::new());
    let parts = super::Parts {
        consensus: node.consensus.clone(),
        forward: node.links.clone(),
        leadership: node.leadership.clone(),
        tracker: Tracker::new(ManualClock::new(), state),
    };
    let tracker = parts.tracker.clone();
    let proposer = super::Proposer::start(parts, Limits::default(), node.stopping.clone());
    assert_eq!(proposer.propose(numbered(1), shortly()).await, Err(ProposeError::Unavailable));
    assert!(cluster.log.appended().is_empty());
    tracker.set_recovered();
    assert!(proposer.propose(numbered(1), soon()).await.is_ok());
}

#[tokio::test]
async fn row_5_no_leader() {
    let cluster = Cluster::new(2);
    let node = cluster.node(2);
    node.consensus.set_role(follower(None));
    assert_eq!(propose(node, 1, shortly()).await, UNAVAILABLE);
    // Not even when a leader comes afterwards.
    node.consensus.set_role(follower(Some(1)));
    assert_eq!(propose(node, 2, soon()).await, DONE);
    assert_eq!(cluster.log.times_appended(1), 0);
}

#[tokio::test]
async fn row_5_no_free_place() {
    let cluster = Cluster::with_limits(1, Limits { appends: 1, ..Limits::default() });
    let node = cluster.node(1);
    node.consensus.next_fates([Fate::Hang]);
    let held = tokio::spawn({
        let node = std::sync::Arc::clone(node);
        async move { propose(&node, 1, soon()).await }
    });
    cluster.wait_for_entry(soon(), |command| *command == numbered(1)).await;
    assert_eq!(propose(node, 2, shortly()).await, UNAVAILABLE);
    assert_eq!(cluster.log.times_appended(2), 0);
    held.abort();
}

/// Two commands, the first of which stays under way; what becomes of the second, which has little time.
async fn behind_a_slow_one(append_spacing: Duration) -> Result<Answer, ProposeError> {
    let cluster = Cluster::with_limits(1, Limits { append_spacing, ..Limits::default() });
    let node = cluster.node(1);
    node.consensus.next_fates([Fate::Hang]);
    let held = tokio::spawn({
        let node = std::sync::Arc::clone(node);
        async move { propose(&node, 1, soon()).await }
    });
    cluster.wait_for_entry(soon(), |command| *command == numbered(1)).await;
    let second = propose(node, 2, shortly()).await;
    assert_eq!(cluster.log.times_appended(2), usize::from(second == DONE));
    held.abort();
    second
}

#[tokio::test]
async fn a_further_entry_keeps_its_distance_while_one_is_under_way() {
    let hour = Duration::from_hours(1);
    assert_eq!(behind_a_slow_one(hour).await, UNAVAILABLE);
    assert_eq!(behind_a_slow_one(Duration::from_millis(1)).await, DONE);
    let cluster = Cluster::with_limits(1, Limits { append_spacing: hour, ..Limits::default() });
    for n in 1..20 {
        assert_eq!(propose(cluster.node(1), n, soon()).await, DONE, "nothing is under way any more");
    }
}

#[tokio::test]
async fn row_5_the_deadline_passed_in_the_leaders_queue() {
    let cluster = Cluster::with_limits(2, Limits { appends: 1, ..Limits::default() });
    cluster.node(1).consensus.next_fates([Fate::Hang]);
    let leader = std::sync::Arc::clone(cluster.node(1));
    let held = tokio::spawn(async move { propose(&leader, 1, soon()).await });
    cluster.wait_for_entry(soon(), |command| *command == numbered(1)).await;
    let now = Instant::now();
    let (item, _ticket) = pair(envelope(&numbered(2)), Origin::Local, now + Duration::from_millis(80), room());
    let reply = cluster.node(1).proposer.serve_forward(encode_request(&[item], now)).await;
    assert_eq!(decode_reply(reply, 1), Ok(vec![TicketAnswer::NotProposed { leader: None }]));
    // A follower that hears it in time tells its caller; one that does not cannot know.
    let told = propose(cluster.node(2), 3, shortly()).await;
    assert!(told == UNAVAILABLE || told == UNKNOWN, "{told:?}");
    held.abort();
    assert_eq!((cluster.log.times_appended(2), cluster.log.times_appended(3)), (0, 0));
}

#[tokio::test]
async fn row_6_refused_here_then_tried_again() {
    let cluster = Cluster::new(1);
    let node = cluster.node(1);
    node.consensus.next_fates([Fate::Refuse(None), Fate::Refuse(Some(3)), Fate::Refuse(None)]);
    assert_eq!(propose(node, 1, soon()).await, DONE);
    assert_eq!(cluster.log.times_appended(1), 1);
    node.consensus.next_fates(vec![Fate::Refuse(None); 1_000]);
    assert_eq!(propose(node, 2, shortly()).await, UNAVAILABLE);
    assert_eq!(cluster.log.times_appended(2), 0);
}

#[tokio::test]
async fn row_6_refused_here_then_forwarded() {
    let cluster = Cluster::new(2);
    let (deposed, elected) = (cluster.node(1), cluster.node(2));
    deposed.consensus.next_fates(vec![Fate::Refuse(Some(2)); 1_000]);
    let proposed = tokio::spawn({
        let node = std::sync::Arc::clone(deposed);
        async move { propose(&node, 1, soon()).await }
    });
    elected.consensus.set_role(Role::Leader { term: 2 });
    deposed.consensus.set_role(follower(Some(2)));
    assert_eq!(proposed.await.unwrap(), DONE);
    assert_eq!(cluster.log.times_appended(1), 1);
}

#[tokio::test]
async fn row_7_not_written() {
    let cluster = Cluster::new(2);
    let node = cluster.node(2);
    node.links.next([Link::Down, Link::Down]);
    assert_eq!(propose(node, 1, soon()).await, DONE);
    node.links.next(vec![Link::Down; 1_000]);
    assert_eq!(propose(node, 2, shortly()).await, UNAVAILABLE);
    assert_eq!((cluster.log.times_appended(1), cluster.log.times_appended(2)), (1, 0));
}

#[tokio::test]
async fn row_8_the_receiver_does_not_lead_and_never_forwards() {
    let cluster = Cluster::new(3);
    // Node 3 believes in node 2, which knows better: one redirected forward each, not a chain of them.
    cluster.node(3).consensus.set_role(follower(Some(2)));
    assert_eq!(propose(cluster.node(3), 1, soon()).await, DONE);
    assert_eq!(*cluster.node(3).links.asked.lock().unwrap(), [2, 1]);
    assert!(cluster.node(2).links.asked.lock().unwrap().is_empty(), "a forward is not forwarded");
}

#[tokio::test]
async fn row_8_the_receiver_refuses_to_append() {
    let cluster = Cluster::new(2);
    cluster.node(1).consensus.next_fates(vec![Fate::Refuse(None); 1_000]);
    assert_eq!(propose(cluster.node(2), 1, shortly()).await, UNAVAILABLE);
    assert_eq!(cluster.log.times_appended(1), 0);
}

#[tokio::test]
async fn row_9_discarded_is_not_refused() {
    let cluster = Cluster::new(2);
    cluster.node(1).consensus.next_fates([Fate::Discard, Fate::Discard]);
    assert_eq!(propose(cluster.node(1), 1, soon()).await, UNKNOWN);
    assert_eq!(propose(cluster.node(2), 2, soon()).await, UNKNOWN, "row 13: the receiver does not know");
    assert_eq!((cluster.log.times_appended(1), cluster.log.times_appended(2)), (1, 1), "and not tried again");
}

#[tokio::test]
async fn row_10_a_leader_that_was_cut_off() {
    let cluster = Cluster::new(2);
    cluster.node(1).consensus.next_fates([Fate::Hang, Fate::Hang]);
    assert_eq!(propose(cluster.node(1), 1, shortly()).await, UNKNOWN);
    assert_eq!(propose(cluster.node(2), 2, shortly()).await, UNKNOWN);
    assert_eq!(propose(cluster.node(1), 3, soon()).await, DONE, "its places were given back");
}

#[tokio::test]
async fn row_11_another_number_of_outcomes() {
    let cluster = Cluster::new(1);
    cluster.node(1).consensus.next_fates([Fate::LoseOutcomes]);
    assert_eq!(propose(cluster.node(1), 1, soon()).await, UNKNOWN);
}

#[tokio::test]
async fn row_12_written_and_not_answered() {
    let cluster = Cluster::new(2);
    let node = cluster.node(2);
    for (n, link) in [(1, Link::LosesRequest), (2, Link::LosesReply), (3, Link::DamagesReply)] {
        node.links.next([link]);
        assert_eq!(propose(node, n, soon()).await, UNKNOWN, "{link:?}");
    }
    let appended = [1, 2, 3].map(|n| cluster.log.times_appended(n));
    assert_eq!(appended, [0, 1, 1], "each hop once, and never again");
}

#[tokio::test]
async fn row_14_the_batcher_ended() {
    let cluster = Cluster::new(1);
    let node = cluster.node(1);
    node.consensus.set_role(follower(None));
    let waiting = tokio::spawn({
        let node = std::sync::Arc::clone(node);
        async move { propose(&node, 1, soon()).await }
    });
    while node.proposer.0.commands.available_permits() == Limits::DEFAULT.commands {
        tokio::task::yield_now().await;
    }
    node.stopping.cancel();
    assert_eq!(waiting.await.unwrap(), UNAVAILABLE);
    assert_eq!(propose(node, 2, soon()).await, UNAVAILABLE);
    assert!(cluster.log.appended().is_empty());
}

#[tokio::test]
async fn chores_belong_to_one_leadership_and_have_room_of_their_own() {
    let cluster = Cluster::with_limits(1, Limits { commands: 0, ..Limits::default() });
    let node = cluster.node(1);
    assert_eq!(propose(node, 1, soon()).await, OVERLOADED);
    assert!(node.proposer.propose_as_leader(1, Command::Tick).await.is_ok());
    let other_term = node.proposer.propose_as_leader(2, numbered(2)).await;
    assert_eq!(other_term, Err(ProposeError::Unavailable));
    node.consensus.set_role(follower(Some(9)));
    assert_eq!(node.proposer.propose_as_leader(1, numbered(3)).await, Err(ProposeError::Unavailable));
    assert!(cluster.log.appended().is_empty());
}

#[tokio::test]
async fn commands_that_wait_leave_together() {
    let cluster = Cluster::new(2);
    let node = cluster.node(1);
    node.consensus.set_role(follower(None));
    let all = tokio::spawn({
        let node = std::sync::Arc::clone(node);
        async move { join_all((1..=100).map(|n| propose(&node, n, soon()))).await }
    });
    while node.proposer.0.commands.available_permits() > Limits::DEFAULT.commands - 100 {
        tokio::task::yield_now().await;
    }
    let before = node.tracker.index();
    node.consensus.set_role(Role::Leader { term: 2 });
    assert_eq!(all.await.unwrap(), vec![DONE; 100]);
    assert_eq!(node.tracker.index() - before, 1, "a hundred commands, one entry");
}

/// One round of trouble: roles flip, entries and links fail in every way.
fn trouble(random: &mut StdRng, cluster: &Cluster, round: u64) {
    for id in 1..=3 {
        let node = cluster.node(id);
        if random.random_bool(0.2) {
            node.consensus.set_role(match random.random_range(0..4) {
                0 => follower(None),
                // Terms differ between nodes, as they do when several believe that they lead.
                1 => Role::Leader { term: round * 3 + id },
                _ => follower(Some(random.random_range(1..=3)).filter(|leader| *leader != id)),
            });
        }
        if random.random_bool(0.3) {
            let fates = [Fate::Refuse(None), Fate::Refuse(Some(1)), Fate::Discard, Fate::Hang, Fate::LoseOutcomes];
            node.consensus.next_fates([fates[random.random_range(0..fates.len())], Fate::Apply, Fate::Apply]);
            let links = [Link::Down, Link::LosesRequest, Link::LosesReply, Link::DamagesReply];
            node.links.next([links[random.random_range(0..links.len())], Link::Up, Link::Up]);
        }
    }
}

/// Callers are impatient, and there is trouble all the while. It goes on until there was enough of every answer, so that
/// a slow machine proves as much as a fast one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_whoever_was_told_not_applied_is_in_no_log() {
    const ENOUGH: usize = 200;
    let seed = rand::random::<u64>();
    let mut random = StdRng::seed_from_u64(seed);
    let limits = Limits { commands: 256, batch_commands: 7, appends: 2, ..Limits::default() };
    let cluster = Cluster::with_limits(3, limits);
    let mut callers = tokio::task::JoinSet::new();
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    let (mut n, mut done, mut unknown, mut not_applied) = (0, Vec::new(), 0, Vec::new());
    let mut round = 0;
    while round < 200 || [done.len(), unknown, not_applied.len()].iter().any(|count| *count < ENOUGH) {
        round += 1;
        assert!(
            round < 50_000,
            "seed {seed}: a run that proves nothing: {} {unknown} {}",
            done.len(),
            not_applied.len()
        );
        trouble(&mut random, &cluster, round);
        for _ in 0..random.random_range(0..12) {
            n += 1;
            let node = std::sync::Arc::clone(cluster.node(random.random_range(1..=3)));
            let (n, patience) = (n, Duration::from_micros(random.random_range(0..60_000)));
            callers.spawn(async move { (n, propose(&node, n, Instant::now() + patience).await) });
        }
        pace.tick().await;
        while let Some(told) = callers.try_join_next() {
            match told.unwrap() {
                (n, Ok(_)) => done.push(n),
                (_, Err(ProposeError::OutcomeUnknown)) => unknown += 1,
                (n, Err(ProposeError::Unavailable | ProposeError::Overloaded)) => not_applied.push(n),
            }
        }
    }
    callers.join_all().await;
    // Whatever a batcher still holds would leave now, before this.
    for id in 1..=3 {
        let (node, term) = (cluster.node(id), 1_000_000 + id);
        node.consensus.no_more_fates();
        node.consensus.set_role(Role::Leader { term });
        assert!(node.proposer.propose_as_leader(term, Command::Tick).await.is_ok());
    }
    let appended = cluster.log.appended();
    for n in &done {
        assert_eq!(appended.get(n), Some(&1), "seed {seed}: {n} was applied, once");
    }
    for n in &not_applied {
        assert_eq!(appended.get(n), None, "seed {seed}: {n} was told that it was not applied, and is in a log");
    }
}
