//! The leader's sweep: leases that ended, and executions under authority that was bumped, become unknown without anybody
//! asking; and time goes on while leases live.
//!
//! A lapse names the epoch and the deadline that were seen. A renewal or takeover in between makes it moot, so a sweep by
//! a leader that was replaced, or that sees an old state, ends no live lease: apply compares both with the state and the
//! clock of its own entry. What a bump fenced needs no such care: settling depends on the state alone.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hapax_machine::Command;
use hapax_machine::ids::LeaseTime;
use hapax_machine::outcome::Answer;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::leadership::Leadership;
use crate::propose::Proposer;
use crate::seam::{Consensus, whenever_leading};
use crate::tracker::Tracker;

/// The most lapses proposed at once; the next ones follow when these are applied.
const LAPSES_MAX: usize = 384;
/// The most settlements after a bump, in the same way. Both together leave room for the leader's other chores.
const SETTLES_MAX: usize = 384;
/// How often the leader looks for leases that ended, at most.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// An entry is stamped at least this often while leases live: owners and readers must not see time stand still.
const TICK_INTERVAL: Duration = Duration::from_millis(900);
/// And this often while none does, so that the wall goes on and a node that starts learns the time.
const IDLE_TICK_INTERVAL: Duration = Duration::from_secs(5);

/// What the sweep works with.
#[derive(Clone)]
struct Sweep {
    leadership: Arc<Leadership>,
    tracker: Arc<Tracker>,
    proposer: Proposer,
}

/// Sweeps whenever this node leads, until `stopping`. It also looks at the leader's clock as often as that needs.
pub async fn run(
    leadership: Arc<Leadership>,
    tracker: Arc<Tracker>,
    proposer: Proposer,
    consensus: Arc<dyn Consensus>,
    stopping: CancellationToken,
) {
    let sweep = Sweep { leadership, tracker, proposer };
    whenever_leading(&*consensus, &stopping, async |term| {
        tokio::select! {
            () = sweep.look(term) => {}
            () = sweep.lead(term) => {}
        }
    })
    .await;
}

impl Sweep {
    /// Keeps the leader's clock counting, also while a round of lapses takes its time.
    async fn look(&self, term: u64) {
        loop {
            self.leadership.lead_ms(term);
            sleep_until(Instant::now() + self.leadership.look_interval()).await;
        }
    }

    /// One leadership: a stamp at its beginning, then rounds.
    async fn lead(&self, term: u64) {
        // What was taken over before is another leader's to count.
        let mut takeovers = self.tracker.leases().takeovers();
        self.tick(term).await;
        loop {
            let seen = self.tracker.leases().takeovers();
            metrics::counter!("hapax_lease_takeovers_total").increment(seen - takeovers);
            takeovers = seen;
            if !self.round(term).await {
                sleep_until(Instant::now() + SWEEP_INTERVAL).await;
            }
        }
    }

    /// Returns whether there is more to do than one round may.
    async fn round(&self, term: u64) -> bool {
        let now = self.now(term);
        let (lapsed, fenced, live) = {
            let mut leases = self.tracker.leases();
            (leases.lapsed(now, LAPSES_MAX), leases.fenced(SETTLES_MAX), leases.len())
        };
        let full = lapsed.len() == LAPSES_MAX || fenced.len() == SETTLES_MAX;
        if !lapsed.is_empty() || !fenced.is_empty() {
            let lapsed = self.end(term, lapsed.into_iter().map(Command::Lapse), "hapax_lease_lapses_total");
            let fenced = self.end(term, fenced.into_iter().map(Command::Settle), "hapax_settled_by_bump_total");
            let (lapsed, fenced) = tokio::join!(lapsed, fenced);
            // Where nothing came of it, the reason lasts longer than a turn of the loop.
            return full && lapsed + fenced > 0;
        }
        let interval = if live > 0 { TICK_INTERVAL } else { IDLE_TICK_INTERVAL };
        if self.leadership.since_stamp().is_none_or(|since| since >= interval) {
            self.tick(term).await;
        }
        false
    }

    /// Lease time as the next stamp will make it.
    fn now(&self, term: u64) -> LeaseTime {
        let clocks = self.tracker.head().clocks;
        let applied_ms = if clocks.term == term { clocks.lead_ms } else { 0 };
        clocks.lease_time.after(self.leadership.lead_ms(term).saturating_sub(applied_ms))
    }

    /// Proposes to end executions, and counts those that it ended.
    async fn end(&self, term: u64, commands: impl Iterator<Item = Command>, series: &'static str) -> usize {
        let proposed = commands.map(|command| self.proposer.propose_as_leader(term, command));
        let mut ended = 0;
        for result in join_all(proposed).await {
            match result {
                Ok(outcome) => ended += usize::from(outcome.answer == Answer::Lapsed { changed: true }),
                // The next round, or the next leader, finds it again.
                Err(error) => tracing::debug!(%error, series, "an execution was not ended"),
            }
        }
        // Of the others, somebody was faster; the leases have heard of it, or will.
        metrics::counter!(series).increment(ended as u64);
        ended
    }

    async fn tick(&self, term: u64) {
        if let Err(error) = self.proposer.propose_as_leader(term, Command::Tick).await {
            tracing::debug!(%error, term, "stamp not proposed");
        }
    }
}

#[cfg(test)]
mod tests {
    use hapax_machine::command::{BumpEpoch, Claim};
    use hapax_machine::epoch::Binding;
    use hapax_machine::ids::{AuthorityEpoch, EpochScope};
    use hapax_machine::operation::State;

    use super::*;
    use crate::fakes::{Cluster, Node, caller, claim, soon};
    use crate::seam::Role;

    /// The batcher, the clock and the machine are real; the log is a fake that applies at once.
    #[tokio::test]
    async fn a_leader_ticks_at_its_election_and_lapses_what_ended_once() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.claim(1, 1_000).await;
        let lapsed_at = node.executing_deadline(1);
        let sweeping = start(node);
        cluster.wait_for_entry(soon(), |command| *command == Command::Tick).await;
        assert_eq!(node.state_of(1), State::Executing, "time has not come");
        cluster.advance(Duration::from_millis(1_001));
        let seen = cluster.wait_for_entry(soon(), |command| matches!(command, Command::Lapse(_))).await;
        assert!(
            matches!(seen, Command::Lapse(lapse) if lapse.deadline == lapsed_at && lapse.operation == node.key(1))
        );
        node.wait_for_state(1, State::Unknown, soon()).await;
        assert_eq!(node.tracker.leases().len(), 0);
        node.stopping.cancel();
        sweeping.await.unwrap();
    }

    fn start(node: &Node) -> tokio::task::JoinHandle<()> {
        tokio::spawn(run(
            Arc::clone(&node.leadership),
            Arc::clone(&node.tracker),
            node.proposer.clone(),
            node.consensus.clone(),
            node.stopping.clone(),
        ))
    }

    /// More than one round holds; and the leader of the bump is gone before it has swept anything.
    #[tokio::test]
    async fn the_next_leader_settles_all_that_a_bump_fenced_each_of_it_once() {
        let cluster = Cluster::new(2);
        let (first, next) = (cluster.node(1), cluster.node(2));
        let bound = SETTLES_MAX as u64 + 9;
        let authority = |value| Binding { scope: EpochScope::new("a"), value: AuthorityEpoch(value) };
        for n in 1..=bound {
            first.granted(Claim { epoch: Some(authority(0)), ..claim(n, 60_000) }).await;
        }
        first.claim(bound + 1, 60_000).await;
        let bump = BumpEpoch { caller: caller(), scope: EpochScope::new("a"), expected: AuthorityEpoch(0) };
        let Answer::Epoch(AuthorityEpoch(value)) = first.answer(Command::BumpEpoch(bump)).await else {
            panic!("not bumped");
        };
        first.granted(Claim { epoch: Some(authority(value)), ..claim(bound + 2, 60_000) }).await;
        first.consensus.set_role(Role::Follower { leader: Some(2) });
        next.consensus.set_role(Role::Leader { term: 2 });
        let sweeping = start(next);
        for n in 1..=bound {
            next.wait_for_state(n, State::Unknown, soon()).await;
        }
        cluster.advance(Duration::from_millis(500));
        assert_eq!((next.state_of(bound + 1), next.state_of(bound + 2)), (State::Executing, State::Executing));
        assert_eq!(cluster.log.count(|command| matches!(command, Command::Settle(_))), bound as usize);
        next.stopping.cancel();
        sweeping.await.unwrap();
    }

    #[tokio::test]
    async fn a_follower_sweeps_nothing() {
        let cluster = Cluster::new(2);
        let leader = cluster.node(1);
        leader.claim(1, 1_000).await;
        let follower = cluster.node(2);
        follower.tracker.reached(leader.tracker.index(), soon()).await;
        cluster.advance(Duration::from_millis(5_000));
        let refused = follower.proposer.propose_as_leader(1, Command::Tick).await;
        assert_eq!(refused, Err(crate::propose::ProposeError::Unavailable));
        assert_eq!(leader.state_of(1), State::Executing);
    }
}
