//! The leader's care for the replicated wall: it catches up after gaps, on the word of a quorum's clocks only.
//! Also measures how far the nodes' wall clocks are apart.
//!
//! The wall follows the leader's wall clock, but no faster than lease time. What it lost in gaps without a leader comes
//! back by `AdvanceWall`. **[safety]** Its target is an instant that the clocks of a quorum, all read in this leadership,
//! have passed: one wrong clock, the leader's own among them, moves nothing. More than a day at once waits for an operator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use hapax_machine::Command;
use hapax_machine::command::AdvanceWall;
use hapax_machine::ids::{Incarnation, WallTime};
use hapax_machine::limits::WALL_STEP_MS_MAX;
use hapax_machine::outcome::Answer;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::clock::NodeClock;
use crate::propose::{ProposeError, Proposer};
use crate::seam::{Consensus, whenever_leading};
use crate::tracker::Tracker;
use crate::transport::Peers;
use crate::transport::peers::kind;
use crate::types::NodeId;

/// How often the leader compares clocks.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// A new leader waits this long for its first comparison: the wall lags most after a gap.
const FIRST_CHECK: Duration = Duration::from_secs(1);
/// How long a node may take to tell the time.
const ASK_TIME: Duration = Duration::from_secs(1);
/// A smaller lag is left alone, in milliseconds.
const LAG_MS_MIN: u64 = 2_000;

/// Asks another node for its wall clock.
pub trait AskClock: Send + Sync + 'static {
    /// Its wall clock in milliseconds; `None` where there was no answer in time.
    fn wall_ms(&self, node: NodeId, deadline: Instant) -> BoxFuture<'static, Option<u64>>;
}

impl AskClock for Peers {
    fn wall_ms(&self, node: NodeId, deadline: Instant) -> BoxFuture<'static, Option<u64>> {
        let peers = self.clone();
        async move {
            let reply = peers.call(node, kind::CLOCK, Bytes::new(), deadline).await.ok()?;
            Some(u64::from_be_bytes(reply[..].try_into().ok()?))
        }
        .boxed()
    }
}

/// Answers a node that asks for this node's wall clock: eight bytes, big-endian.
pub fn serve_clock(clock: &dyn NodeClock) -> Bytes {
    Bytes::copy_from_slice(&clock.wall_ms().to_be_bytes())
}

/// What the care for the wall works with.
pub struct Parts {
    /// Who leads, and who votes.
    pub consensus: Arc<dyn Consensus>,
    /// The way to the others' clocks.
    pub ask: Arc<dyn AskClock>,
    /// This node's clock.
    pub clock: Arc<dyn NodeClock>,
    /// What is applied here.
    pub tracker: Arc<Tracker>,
    /// The way into the log.
    pub proposer: Proposer,
}

/// What one comparison of clocks came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// No quorum told the time.
    NoQuorum,
    /// The wall is where it should be.
    Stay,
    /// It lags, and a quorum's clocks have passed this instant.
    Advance(WallTime),
    /// It lags by more than a day: by this many milliseconds.
    AskOperator(WallTime),
}

/// What an operator's word did to the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It stands there now.
    To(WallTime),
    /// It was where it should be.
    NotNeeded,
}

/// Why the wall was not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// Fewer voters than a quorum told the time.
    #[error("no quorum's clocks could be read")]
    NoQuorum,
    /// The wall begins with the cluster's life.
    #[error("the cluster was not bootstrapped")]
    NotBootstrapped,
    /// The command has no outcome.
    #[error(transparent)]
    NotProposed(#[from] ProposeError),
}

/// Compares clocks whenever this node leads, until `stopping`. `max_clock_skew` is how far healthy clocks may be apart.
pub async fn run(parts: Parts, max_clock_skew: Duration, stopping: CancellationToken) {
    whenever_leading(&*parts.consensus, &stopping, |term| lead(&parts, term, max_clock_skew)).await;
}

async fn lead(parts: &Parts, term: u64, max_clock_skew: Duration) {
    let mut next = Instant::now() + FIRST_CHECK;
    loop {
        sleep_until(next).await;
        next = Instant::now() + CHECK_INTERVAL;
        check(parts, term, max_clock_skew).await;
    }
}

/// One comparison, in the leadership of `term`.
async fn check(parts: &Parts, term: u64, max_clock_skew: Duration) {
    match compare(parts, max_clock_skew).await {
        None | Some(Verdict::NoQuorum | Verdict::Stay) => {}
        Some(Verdict::Advance(target)) => {
            let command = Command::AdvanceWall(AdvanceWall { target, by_operator: false });
            // Named after the readings were begun: another leadership would not take it.
            match parts.proposer.propose_as_leader(term, command).await {
                Ok(outcome) => {
                    tracing::info!(answer = ?outcome.answer, "wall moved on the word of a quorum's clocks")
                }
                Err(error) => tracing::debug!(%error, "wall not moved"),
            }
        }
        Some(Verdict::AskOperator(target)) => {
            let lag_ms = target.0.saturating_sub(parts.tracker.head().clocks.wall.0);
            tracing::error!(lag_ms, "the replicated wall is more than a day behind; an operator must move it");
        }
    }
}

/// Moves a wall that lags on an operator's word, however far. Where to is not for the operator to say: to what a quorum's clocks
/// have passed, as without one. Any node may ask: the clocks it has read have passed that instant whoever leads by then.
///
/// # Errors
/// See [`MoveError`]; it may be called again.
pub(crate) async fn move_by_operator(
    parts: &Parts,
    max_clock_skew: Duration,
    deadline: Instant,
) -> Result<Moved, MoveError> {
    let target = match compare(parts, max_clock_skew).await {
        None => return Err(MoveError::NotBootstrapped),
        Some(Verdict::NoQuorum) => return Err(MoveError::NoQuorum),
        Some(Verdict::Stay) => return Ok(Moved::NotNeeded),
        Some(Verdict::Advance(target) | Verdict::AskOperator(target)) => target,
    };
    let command = Command::AdvanceWall(AdvanceWall { target, by_operator: true });
    match parts.proposer.propose(command, deadline).await?.answer {
        Answer::Wall(wall) => Ok(Moved::To(wall)),
        // Another one was faster.
        _ => Ok(Moved::NotNeeded),
    }
}

/// Compares the wall with the voters' clocks; `None` before the cluster's life began.
async fn compare(parts: &Parts, max_clock_skew: Duration) -> Option<Verdict> {
    let sets = parts.consensus.voter_sets();
    let readings = read(parts, &sets, max_clock_skew).await;
    let head = parts.tracker.head();
    if head.incarnation == Incarnation(0) {
        return None;
    }
    // What the next stamp adds by itself is no lag.
    let expected = WallTime(head.clocks.wall.0.saturating_add(parts.tracker.since_applied_ms()));
    Some(verdict(expected, &sets, &readings))
}

/// Reads every voter's clock, and publishes how far each is from this node's.
async fn read(parts: &Parts, sets: &[Vec<NodeId>], max_clock_skew: Duration) -> BTreeMap<NodeId, u64> {
    let own = parts.consensus.id();
    let mut others: Vec<NodeId> = sets.iter().flatten().copied().filter(|node| *node != own).collect();
    others.sort_unstable();
    others.dedup();
    let asked = others.into_iter().map(|node| async move {
        let (sent, sent_wall) = (parts.clock.monotonic(), parts.clock.wall_ms());
        let wall_ms = parts.ask.wall_ms(node, Instant::now() + ASK_TIME).await?;
        let round_trip = parts.clock.monotonic().saturating_duration_since(sent);
        // The other clock was read about half a round trip after this one.
        let offset_ms = wall_ms as f64 - (sent_wall as f64 + round_trip.as_secs_f64() * 500.0);
        metrics::gauge!("hapax_clock_offset_seconds", "peer" => node.to_string()).set(offset_ms / 1_000.0);
        let skew = Duration::from_secs_f64(offset_ms.abs() / 1_000.0);
        if skew > max_clock_skew + round_trip {
            tracing::warn!(node, offset_ms, "wall clocks are further apart than max_clock_skew");
        }
        Some((node, wall_ms))
    });
    let mut readings: BTreeMap<NodeId, u64> = join_all(asked).await.into_iter().flatten().collect();
    readings.insert(own, parts.clock.wall_ms());
    readings
}

/// Decides by the instant that a quorum's clocks have passed: the majority-th latest reading of each voter set.
fn verdict(wall: WallTime, sets: &[Vec<NodeId>], readings: &BTreeMap<NodeId, u64>) -> Verdict {
    let passed = sets.iter().map(|set| {
        let mut latest: Vec<u64> = set.iter().filter_map(|node| readings.get(node).copied()).collect();
        latest.sort_unstable_by(|a, b| b.cmp(a));
        latest.get(set.len() / 2).copied()
    });
    let Some(Some(target)) = passed.min() else {
        return Verdict::NoQuorum;
    };
    match target.saturating_sub(wall.0) {
        lag if lag < LAG_MS_MIN => Verdict::Stay,
        lag if lag > WALL_STEP_MS_MAX => Verdict::AskOperator(WallTime(target)),
        _ => Verdict::Advance(WallTime(target)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{Cluster, FakeClocks, Node, soon};

    const DAY_MS: u64 = WALL_STEP_MS_MAX;
    const HOUR_MS: u64 = 3_600_000;
    const NOW_MS: u64 = 10 * DAY_MS;

    fn readings(all: &[(NodeId, u64)]) -> BTreeMap<NodeId, u64> {
        all.iter().copied().collect()
    }

    fn three(wall: u64, clocks: &[(NodeId, u64)]) -> Verdict {
        verdict(WallTime(wall), &[vec![1, 2, 3]], &readings(clocks))
    }

    #[test]
    fn the_wall_moves_to_what_a_quorum_has_passed() {
        let lagging = NOW_MS - 60_000;
        assert_eq!(
            three(lagging, &[(1, NOW_MS), (2, NOW_MS - 20), (3, NOW_MS + 5)]),
            Verdict::Advance(WallTime(NOW_MS))
        );
        assert_eq!(three(lagging, &[(1, NOW_MS), (2, NOW_MS - 20)]), Verdict::Advance(WallTime(NOW_MS - 20)));
        assert_eq!(three(NOW_MS - 1_999, &[(1, NOW_MS), (2, NOW_MS), (3, NOW_MS)]), Verdict::Stay);
    }

    #[test]
    fn one_wrong_clock_moves_nothing() {
        let fast = NOW_MS + HOUR_MS;
        for wrong in [1, 2, 3] {
            let clocks: Vec<_> = (1..=3).map(|node| (node, if node == wrong { fast } else { NOW_MS })).collect();
            assert_eq!(three(NOW_MS, &clocks), Verdict::Stay, "{wrong} is an hour fast");
        }
        assert_eq!(three(NOW_MS, &[(1, fast), (2, NOW_MS)]), Verdict::Stay, "fast, and one is away");
        assert_eq!(
            three(NOW_MS, &[(1, fast), (2, fast), (3, NOW_MS)]),
            Verdict::Advance(WallTime(fast)),
            "two agree"
        );
    }

    #[test]
    fn no_quorum_moves_nothing() {
        assert_eq!(three(0, &[(1, NOW_MS)]), Verdict::NoQuorum);
        assert_eq!(verdict(WallTime(0), &[], &readings(&[(1, NOW_MS)])), Verdict::NoQuorum);
        // While the membership changes, each of the two sets has a say.
        let sets = [vec![1, 2, 3], vec![3, 4, 5]];
        let old_only = readings(&[(1, NOW_MS), (2, NOW_MS), (3, NOW_MS)]);
        assert_eq!(verdict(WallTime(NOW_MS - HOUR_MS), &sets, &old_only), Verdict::NoQuorum);
        let both = readings(&[(1, NOW_MS), (2, NOW_MS), (3, NOW_MS), (4, NOW_MS - 9)]);
        assert_eq!(verdict(WallTime(NOW_MS - HOUR_MS), &sets, &both), Verdict::Advance(WallTime(NOW_MS - 9)));
    }

    #[test]
    fn more_than_a_day_waits_for_an_operator() {
        let all = [(1, NOW_MS), (2, NOW_MS), (3, NOW_MS)];
        assert_eq!(three(NOW_MS - DAY_MS, &all), Verdict::Advance(WallTime(NOW_MS)));
        assert_eq!(three(NOW_MS - DAY_MS - 1, &all), Verdict::AskOperator(WallTime(NOW_MS)));
    }

    fn parts(node: &Node, answers: &[(NodeId, u64)]) -> Parts {
        Parts {
            consensus: node.consensus.clone(),
            ask: FakeClocks::new(answers),
            clock: node.clock.clone(),
            tracker: Arc::clone(&node.tracker),
            proposer: node.proposer.clone(),
        }
    }

    const SKEW: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn a_lagging_wall_is_moved_through_the_log() {
        let cluster = Cluster::new(3);
        let node = cluster.node(1);
        node.bootstrap().await;
        let wall = node.tracker.head().clocks.wall;
        let late = wall.0 + HOUR_MS;
        node.clock.set_wall_ms(late + 7);
        check(&parts(node, &[(2, wall.0)]), 1, SKEW).await;
        assert_eq!(node.tracker.head().clocks.wall, wall, "the leader alone is an hour ahead");
        check(&parts(node, &[(3, late)]), 2, SKEW).await;
        assert_eq!(node.tracker.head().clocks.wall, wall, "read in another leadership");
        check(&parts(node, &[(3, late)]), 1, SKEW).await;
        assert_eq!(node.tracker.head().clocks.wall, WallTime(late));
        assert_eq!(serve_clock(&*node.clock)[..], (late + 7).to_be_bytes());
    }

    #[tokio::test]
    async fn an_operator_moves_it_through_any_node_to_what_a_quorum_has_passed() {
        let cluster = Cluster::new(3);
        let node = cluster.node(2);
        assert_eq!(
            move_by_operator(&parts(node, &[(1, 0), (3, 0)]), SKEW, soon()).await,
            Err(MoveError::NotBootstrapped)
        );
        cluster.node(1).bootstrap().await;
        let wall = node.tracker.head().clocks.wall;
        let late = wall.0 + 3 * DAY_MS;
        node.clock.set_wall_ms(late + 7);
        let ask = |answers: &[(NodeId, u64)]| {
            let parts = parts(node, answers);
            async move { move_by_operator(&parts, SKEW, soon()).await }
        };
        assert_eq!(ask(&[]).await, Err(MoveError::NoQuorum));
        assert_eq!(ask(&[(1, wall.0), (3, wall.0)]).await, Ok(Moved::NotNeeded), "one clock is no reason");
        assert_eq!(node.tracker.head().clocks.wall, wall);
        check(&parts(node, &[(3, late)]), 1, SKEW).await;
        assert_eq!(node.tracker.head().clocks.wall, wall, "by itself nobody moves it so far");
        assert_eq!(ask(&[(3, late)]).await, Ok(Moved::To(WallTime(late))));
        assert_eq!(node.tracker.head().clocks.wall, WallTime(late));
        assert_eq!(ask(&[(3, late)]).await, Ok(Moved::NotNeeded));
    }
}
