//! Refusals that this node repeated from its own state, counted here and told to the log now and then. (DESIGN §4)
//!
//! The refusal itself is on record before it is ever repeated; what is gathered here is only how often. A count is told once
//! or not at all: what may have been applied is not told again, so no count is ever too high. Under overload counts are dropped,
//! and it is counted how many.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hapax_machine::Command;
use hapax_machine::command::CountedRefusal;
use hapax_machine::limits::COUNTED_REFUSALS_MAX;
use hapax_machine::refusal::RefusalKey;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::propose::{ProposeError, Proposer};

/// What was counted is told this often.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// And where there is no room for another refusal before that, after so long.
const TELL_AT_ONCE: Duration = Duration::from_secs(1);
/// How long one proposal may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// And at the end of the node.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// What was counted and not yet told: as many refusals as one command holds.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    counts: Mutex<BTreeMap<RefusalKey, u32>>,
    full: Notify,
}

impl Repeats {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds to what was counted; never waits.
    pub(crate) fn add(&self, counted: &[CountedRefusal]) {
        metrics::counter!("hapax_refusals_repeated_total").increment(times(counted));
        self.keep(counted);
    }

    fn keep(&self, counted: &[CountedRefusal]) {
        let mut dropped = 0;
        {
            let mut counts = self.lock();
            for CountedRefusal { key, times } in counted {
                let has_room = counts.len() < COUNTED_REFUSALS_MAX;
                match counts.get_mut(key) {
                    Some(known) => *known = known.saturating_add(*times),
                    None if has_room => drop(counts.insert(*key, *times)),
                    None => dropped += u64::from(*times),
                }
            }
            if counts.len() >= COUNTED_REFUSALS_MAX {
                self.full.notify_one();
            }
        }
        leave_out(dropped);
    }

    /// Tells the log as often as there is something to tell, until `stopping`.
    pub(crate) async fn tell(self: Arc<Self>, proposer: Proposer, stopping: CancellationToken) {
        let run = async {
            loop {
                let began = Instant::now();
                tokio::select! {
                    () = sleep_until(began + TELL_EVERY) => {}
                    () = self.full.notified() => sleep_until(began + TELL_AT_ONCE).await,
                }
                self.flush(&proposer, PATIENCE).await;
            }
        };
        stopping.run_until_cancelled(run).await;
    }

    /// Tells the last of it; for a node that drains.
    pub(crate) async fn finish(&self, proposer: &Proposer) {
        self.flush(proposer, LAST_PATIENCE).await;
    }

    /// Tells what was counted so far in one command.
    async fn flush(&self, proposer: &Proposer, patience: Duration) {
        let counted: Vec<CountedRefusal> =
            std::mem::take(&mut *self.lock()).into_iter().map(|(key, times)| CountedRefusal { key, times }).collect();
        if counted.is_empty() {
            return;
        }
        match proposer.propose_quietly(Command::CountRefusals(counted.clone()), Instant::now() + patience).await {
            Ok(_) => {}
            // Certainly not applied: it is told with what is counted next.
            Err(ProposeError::Unavailable | ProposeError::Overloaded) => self.keep(&counted),
            Err(ProposeError::OutcomeUnknown) => leave_out(times(&counted)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RefusalKey, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn times(counted: &[CountedRefusal]) -> u64 {
    counted.iter().map(|one| u64::from(one.times)).sum()
}

fn leave_out(times: u64) {
    metrics::counter!("hapax_refusals_uncounted_total").increment(times);
}

#[cfg(test)]
mod tests {
    use hapax_machine::ids::{CapabilityId, Slot, TenantTag};
    use hapax_machine::refusal::Subject;

    use super::*;
    use crate::fakes::{Cluster, Fate, soon, tenant};
    use crate::seam::Role;

    fn counted(n: u64, times: u32) -> CountedRefusal {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&n.to_be_bytes());
        let subject = Subject::Capability(CapabilityId { slot: Slot(0), random: [1; 16] });
        CountedRefusal { key: RefusalKey { tenant: TenantTag::of(&tenant()), subject, hash }, times }
    }

    fn held(repeats: &Repeats) -> Vec<CountedRefusal> {
        repeats.lock().iter().map(|(key, times)| CountedRefusal { key: *key, times: *times }).collect()
    }

    #[tokio::test]
    async fn counts_of_one_refusal_are_told_as_one() {
        let cluster = Cluster::new(2);
        let repeats = Repeats::new();
        repeats.add(&[counted(1, 1), counted(2, 5)]);
        repeats.add(&[counted(1, 2)]);
        // Through a follower: it reaches the leader like any command.
        repeats.flush(&cluster.node(2).proposer, PATIENCE).await;
        let told = cluster.wait_for_entry(soon(), |command| matches!(command, Command::CountRefusals(_))).await;
        assert_eq!(told, Command::CountRefusals(vec![counted(1, 3), counted(2, 5)]));
        assert_eq!(held(&repeats), []);
        repeats.flush(&cluster.node(2).proposer, PATIENCE).await;
        assert_eq!(cluster.log.count(|command| matches!(command, Command::CountRefusals(_))), 1, "nothing to tell");
    }

    #[tokio::test]
    async fn what_was_certainly_not_applied_is_told_again_and_what_may_have_been_is_not() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        let repeats = Repeats::new();
        repeats.add(&[counted(1, 3)]);
        node.consensus.set_role(Role::Follower { leader: None });
        repeats.flush(&node.proposer, Duration::from_millis(20)).await;
        repeats.add(&[counted(1, 1)]);
        assert_eq!(held(&repeats), [counted(1, 4)]);
        node.consensus.set_role(Role::Leader { term: 1 });
        node.consensus.next_fates([Fate::Discard]);
        repeats.flush(&node.proposer, PATIENCE).await;
        assert_eq!(held(&repeats), [], "it may be in the log");
    }

    #[test]
    fn the_number_of_refusals_is_bounded_and_known_ones_go_on_counting() {
        let repeats = Repeats::new();
        let most = COUNTED_REFUSALS_MAX as u64;
        for n in 0..most + 10 {
            repeats.add(&[counted(n, 1)]);
        }
        repeats.add(&[counted(0, u32::MAX)]);
        let held = held(&repeats);
        assert_eq!(held.len(), COUNTED_REFUSALS_MAX);
        assert_eq!(held[0], counted(0, u32::MAX));
        assert_eq!(held.last(), Some(&counted(most - 1, 1)));
    }

    #[tokio::test]
    async fn a_full_node_does_not_wait_for_its_turn() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        let repeats = Repeats::new();
        let telling = tokio::spawn(Arc::clone(&repeats).tell(node.proposer.clone(), node.stopping.clone()));
        let began = Instant::now();
        (0..COUNTED_REFUSALS_MAX as u64).for_each(|n| repeats.add(&[counted(n, 1)]));
        cluster.wait_for_entry(soon(), |command| matches!(command, Command::CountRefusals(_))).await;
        assert!(began.elapsed() < TELL_EVERY);
        node.stopping.cancel();
        telling.await.unwrap();
    }
}
