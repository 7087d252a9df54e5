//! The leader's sweep: leases that ended become unknown without anybody asking, and time goes on while leases live.
//! Every node keeps the queue of leases, so that a new leader sweeps at once.
//!
//! A lapse names the epoch and the deadline that were seen. A renewal or takeover in between makes it moot, so a sweep by
//! a leader that was replaced, or that sees an old state, ends no live lease: apply compares both with the state and the
//! clock of its own entry.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hapax_machine::Command;
use hapax_machine::command::Lapse;
use hapax_machine::ids::{LeaseEpoch, LeaseTime, OperationKey};
use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::{OperationRecord, State};
use hapax_machine::outcome::Answer;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::leadership::Leadership;
use crate::propose::Proposer;
use crate::seam::{Consensus, Role};
use crate::tracker::Tracker;

/// The most lapses proposed at once; the next ones follow when these are applied.
const LAPSES_MAX: usize = 512;
/// How often the leader looks for leases that ended, at most.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// An entry is stamped at least this often while leases live: owners and readers must not see time stand still.
const TICK_INTERVAL: Duration = Duration::from_millis(900);
/// And this often while none does, so that the wall goes on and a node that starts learns the time.
const IDLE_TICK_INTERVAL: Duration = Duration::from_secs(5);

/// The leases of all executing operations.
///
/// Invariants: every executing operation is in `leases`; it is in `by_deadline`, under the same deadline, exactly if its
/// lapse is for the sweep.
#[derive(Debug, Default)]
pub(crate) struct LeaseQueue {
    by_deadline: BTreeMap<(LeaseTime, OperationKey), LeaseEpoch>,
    leases: HashMap<OperationKey, LeaseTime>,
}

impl LeaseQueue {
    /// Takes an operation's record as it is now. Under `takeover` a lapse changes nothing, so the sweep leaves it alone.
    pub(crate) fn observe(&mut self, record: &OperationRecord, on_lapse: OnLapse) {
        let key = record.key();
        if let Some(former) = self.leases.remove(&key) {
            self.by_deadline.remove(&(former, key));
        }
        let execution = &record.execution;
        if execution.state == State::Executing {
            self.leases.insert(key, execution.deadline);
            if on_lapse == OnLapse::Unknown {
                self.by_deadline.insert((execution.deadline, key), execution.lease_epoch);
            }
        }
    }

    /// The oldest leases that ended at `now` or before.
    pub(crate) fn lapsed(&self, now: LeaseTime, max: usize) -> Vec<Lapse> {
        self.by_deadline
            .iter()
            .take_while(|((deadline, _), _)| *deadline <= now)
            .take(max)
            .map(|((deadline, operation), epoch)| Lapse {
                operation: *operation,
                lease_epoch: *epoch,
                deadline: *deadline,
            })
            .collect()
    }

    /// The executing operations.
    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    pub(crate) fn clear(&mut self) {
        self.by_deadline.clear();
        self.leases.clear();
    }
}

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
    let run = async {
        loop {
            let role = consensus.role();
            if let Role::Leader { term } = role {
                tokio::select! {
                    () = consensus.role_changed(role) => {}
                    () = sweep.look(term) => {}
                    () = sweep.lead(term) => {}
                }
            } else {
                consensus.role_changed(role).await;
            }
        }
    };
    stopping.run_until_cancelled(run).await;
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
        self.tick(term).await;
        loop {
            sleep_until(Instant::now() + SWEEP_INTERVAL).await;
            self.round(term).await;
        }
    }

    async fn round(&self, term: u64) {
        let now = self.now(term);
        let (lapsed, live) = {
            let leases = self.tracker.leases();
            (leases.lapsed(now, LAPSES_MAX), leases.len())
        };
        if !lapsed.is_empty() {
            self.lapse(term, lapsed).await;
            return;
        }
        let interval = if live > 0 { TICK_INTERVAL } else { IDLE_TICK_INTERVAL };
        if self.leadership.since_stamp().is_none_or(|since| since >= interval) {
            self.tick(term).await;
        }
    }

    /// Lease time as the next stamp will make it.
    fn now(&self, term: u64) -> LeaseTime {
        let clocks = self.tracker.head().clocks;
        let applied_ms = if clocks.term == term { clocks.lead_ms } else { 0 };
        clocks.lease_time.after(self.leadership.lead_ms(term).saturating_sub(applied_ms))
    }

    async fn lapse(&self, term: u64, lapsed: Vec<Lapse>) {
        let proposed = lapsed.into_iter().map(|lapse| self.proposer.propose_as_leader(term, Command::Lapse(lapse)));
        for result in join_all(proposed).await {
            match result {
                Ok(outcome) if outcome.answer == (Answer::Lapsed { changed: true }) => {
                    metrics::counter!("hapax_lease_lapses_total").increment(1);
                }
                // Somebody was faster; the queue has heard of it, or will.
                Ok(_) => {}
                // The next round, or the next leader, finds the lease again.
                Err(error) => tracing::debug!(%error, "lapse not proposed"),
            }
        }
    }

    async fn tick(&self, term: u64) {
        if let Err(error) = self.proposer.propose_as_leader(term, Command::Tick).await {
            tracing::debug!(%error, term, "stamp not proposed");
        }
    }
}

#[cfg(test)]
mod tests {
    use hapax_machine::operation::Definite;

    use super::*;
    use crate::fakes::{Cluster, executing, finished, key, soon};

    fn lapse(n: u64, epoch: u64, deadline: u64) -> Lapse {
        Lapse { operation: key(n), lease_epoch: LeaseEpoch(epoch), deadline: LeaseTime(deadline) }
    }

    #[test]
    fn the_queue_follows_grants_renewals_and_ends() {
        let mut queue = LeaseQueue::default();
        queue.observe(&executing(1, 10, 3_000), OnLapse::Unknown);
        queue.observe(&executing(2, 11, 2_000), OnLapse::Unknown);
        assert_eq!(queue.lapsed(LeaseTime(1_999), 9), []);
        assert_eq!(queue.lapsed(LeaseTime(2_000), 9), [lapse(2, 11, 2_000)], "the deadline itself is over");
        assert_eq!(queue.lapsed(LeaseTime(9_000), 9), [lapse(2, 11, 2_000), lapse(1, 10, 3_000)], "oldest first");
        assert_eq!(queue.lapsed(LeaseTime(9_000), 1).len(), 1);
        queue.observe(&executing(2, 11, 5_000), OnLapse::Unknown);
        assert_eq!(queue.lapsed(LeaseTime(4_000), 9), [lapse(1, 10, 3_000)], "renewed");
        queue.observe(&finished(1, Definite::Completed), OnLapse::Unknown);
        queue.observe(&executing(2, 12, 6_000), OnLapse::Unknown);
        assert_eq!(queue.lapsed(LeaseTime(9_000), 9), [lapse(2, 12, 6_000)], "finished, and taken over");
        assert_eq!(queue.len(), 1);
        queue.clear();
        assert_eq!((queue.len(), queue.lapsed(LeaseTime(9_000), 9)), (0, Vec::new()));
    }

    #[test]
    fn a_lapse_under_takeover_is_not_for_the_sweep() {
        let mut queue = LeaseQueue::default();
        queue.observe(&executing(1, 10, 1_000), OnLapse::Takeover);
        assert_eq!(queue.lapsed(LeaseTime(9_000), 9), []);
        assert_eq!(queue.len(), 1, "but time must go on for it");
    }

    /// The batcher, the clock and the machine are real; the log is a fake that applies at once.
    #[tokio::test]
    async fn a_leader_ticks_at_its_election_and_lapses_what_ended_once() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        node.claim(1, 1_000).await;
        let lapsed_at = node.executing_deadline(1);
        let stopping = CancellationToken::new();
        let sweeping = tokio::spawn(run(
            Arc::clone(&node.leadership),
            Arc::clone(&node.tracker),
            node.proposer.clone(),
            node.consensus.clone(),
            stopping.clone(),
        ));
        cluster.wait_for_entry(soon(), |command| *command == Command::Tick).await;
        assert_eq!(node.state_of(1), State::Executing, "time has not come");
        cluster.advance(Duration::from_millis(1_001));
        let seen = cluster.wait_for_entry(soon(), |command| matches!(command, Command::Lapse(_))).await;
        assert!(
            matches!(seen, Command::Lapse(lapse) if lapse.deadline == lapsed_at && lapse.operation == node.key(1))
        );
        node.wait_for_state(1, State::Unknown, soon()).await;
        assert_eq!(node.tracker.leases().len(), 0);
        stopping.cancel();
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
