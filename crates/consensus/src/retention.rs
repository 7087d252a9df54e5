//! The leader's care for retention: it raises the floors of namespaces as the wall and their policies allow.
//!
//! A floor is worth an entry once it can move by a step: a hundredth of what is kept, and never less than the interval between
//! two rounds. So a namespace costs a hundred entries in its retention time, however many operations it ends. A round raises a
//! bounded number of namespaces and the next ones follow soon, each in its turn.
//!
//! **[safety]** What is asked follows from the wall as this leader saw it one interval ago, which is longer than any node answers
//! from a state that was not confirmed, and from what was to be kept then and is to be kept now, whichever is longer. So whoever
//! answers from its own state has seen that wall and that policy, and knows of what is about to go that it is due, also where the
//! wall moved far at once, or a policy was shortened.
//!
//! Nothing here decides what is gone: apply clamps what is asked to what the policy allows at its own wall, and no row is gone
//! before that. A leader that is deposed between two rounds, or whose proposal is lost, leaves floors where they stand, and the
//! next one asks again. Bytes are given back by each node for itself: see [`crate::maintenance`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hapax_machine::Command;
use hapax_machine::command::RaiseFloors;
use hapax_machine::ids::{NamespaceName, TenantId, WallTime};
use hapax_machine::namespace::{Floors, NamespaceRecord, Retention};
use hapax_machine::retention;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::propose::Proposer;
use crate::seam::{Consensus, whenever_leading};
use crate::state_source::StateSource;

/// The most namespaces whose floors are raised at once.
const NAMESPACES_MAX: usize = 64;
/// The pause before those follow that a round had no room for.
const PAUSE: Duration = Duration::from_secs(1);
/// Floors move by what is kept divided by this, at least.
const STEPS: u64 = 100;

/// What the care for retention works with.
pub(crate) struct Parts {
    /// Who leads.
    pub(crate) consensus: Arc<dyn Consensus>,
    /// What is applied here.
    pub(crate) source: Arc<dyn StateSource>,
    /// The way into the log.
    pub(crate) proposer: Proposer,
    /// Time from one round to the next, longer than a state may be old that answers are given from.
    pub(crate) interval: Duration,
}

/// Raises floors whenever this node leads, until `stopping`.
pub(crate) async fn run(parts: Parts, stopping: CancellationToken) {
    whenever_leading(&*parts.consensus, &stopping, |term| lead(&parts, term)).await;
}

async fn lead(parts: &Parts, term: u64) {
    let (mut seen, mut last) = (Seen::of(&*parts.source), None);
    loop {
        sleep_until(Instant::now() + parts.interval).await;
        let known_everywhere = std::mem::replace(&mut seen, Seen::of(&*parts.source));
        loop {
            let due = due(&*parts.source, &known_everywhere, parts.interval);
            let (raised, more) = chosen(due, last.as_ref(), NAMESPACES_MAX);
            last = raised.last().map(Due::name).or(last);
            raise(parts, term, raised).await;
            if !more {
                break;
            }
            sleep_until(Instant::now() + PAUSE).await;
        }
    }
}

/// What the state showed at an instant: the wall, and how long each namespace keeps what has ended.
#[derive(Debug)]
struct Seen {
    wall: WallTime,
    kept: BTreeMap<(TenantId, NamespaceName), Retention>,
}

impl Seen {
    fn of(source: &dyn StateSource) -> Self {
        let mut kept = BTreeMap::new();
        source.namespaces(&mut |policy, _| {
            kept.insert((policy.tenant.clone(), policy.name.clone()), policy.retention);
        });
        Self { wall: source.head().clocks.wall, kept }
    }

    /// The highest floors that both `policy` allows and the one that was seen; none where there was none, because nothing that
    /// is new has anything to forget.
    fn allowed(&self, policy: &NamespaceRecord) -> Option<Floors> {
        let seen = self.kept.get(&(policy.tenant.clone(), policy.name.clone()))?;
        let (then, now) = (retention::allowed(seen, self.wall), retention::allowed(&policy.retention, self.wall));
        Some(Floors {
            compact_before: then.compact_before.min(now.compact_before),
            forget_before: then.forget_before.min(now.forget_before),
        })
    }
}

/// A namespace whose floors are worth an entry, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Due(RaiseFloors);

impl Due {
    fn name(&self) -> (TenantId, NamespaceName) {
        (self.0.tenant.clone(), self.0.namespace.clone())
    }
}

/// All that are due, in the order of their names.
fn due(source: &dyn StateSource, known_everywhere: &Seen, interval: Duration) -> Vec<Due> {
    let mut all = Vec::new();
    source.namespaces(&mut |policy, status| {
        let Some(allowed) = known_everywhere.allowed(policy) else { return };
        if worth_raising(&policy.retention, allowed, status.floors, interval) {
            let (tenant, namespace) = (policy.tenant.clone(), policy.name.clone());
            all.push(Due(RaiseFloors { tenant, namespace, floors: allowed }));
        }
    });
    all.sort_unstable_by_key(Due::name);
    all
}

/// Whether one of a namespace's floors would move by a step. With the one that is worth it, the other moves too: it costs nothing.
fn worth_raising(kept: &Retention, allowed: Floors, stands: Floors, interval: Duration) -> bool {
    let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    let moves = |allowed: WallTime, stands: WallTime, kept_ms: u64| {
        allowed.0.saturating_sub(stands.0) >= interval_ms.max(kept_ms / STEPS).max(1)
    };
    moves(allowed.compact_before, stands.compact_before, kept.body_ms)
        || moves(allowed.forget_before, stands.forget_before, kept.identity_ms)
}

/// The next `max` after the last one that was raised, and whether that leaves any out.
fn chosen(mut due: Vec<Due>, last: Option<&(TenantId, NamespaceName)>, max: usize) -> (Vec<Due>, bool) {
    let begin = last.map_or(0, |last| due.partition_point(|due| due.name() <= *last));
    due.rotate_left(begin);
    let more = due.len() > max;
    due.truncate(max);
    (due, more)
}

async fn raise(parts: &Parts, term: u64, raised: Vec<Due>) {
    let commands = raised.into_iter().map(|due| Command::RaiseFloors(due.0));
    let proposed = commands.map(|command| parts.proposer.propose_as_leader(term, command));
    for result in join_all(proposed).await {
        // The next round, or the next leader, asks again.
        if let Err(error) = result {
            tracing::debug!(%error, term, "floors not raised");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use hapax_machine::change::Head;
    use hapax_machine::clock::Clocks;
    use hapax_machine::ids::{AuthorityEpoch, EpochScope};
    use hapax_machine::limits::RETENTION_MARGIN_MS;
    use hapax_machine::namespace::{ExpiredKeys, NamespaceStatus, Retention};
    use hapax_machine::operation::OperationRecord;

    use super::*;
    use crate::fakes::{Cluster, policy, soon};
    use crate::seam::Role;

    const HOUR_MS: u64 = 3_600_000;
    const NOW: WallTime = WallTime(1_000 * HOUR_MS);
    const MINUTE: Duration = Duration::from_mins(1);

    fn keeping(body_ms: u64, identity_ms: u64, expired_keys: ExpiredKeys) -> NamespaceRecord {
        NamespaceRecord { retention: Retention { body_ms, identity_ms, expired_keys }, ..policy() }
    }

    /// A state that shows these policies at `NOW`, with no floors yet.
    fn seen(policies: &[NamespaceRecord]) -> Seen {
        let named = |policy: &NamespaceRecord| ((policy.tenant.clone(), policy.name.clone()), policy.retention);
        Seen { wall: NOW, kept: policies.iter().map(named).collect() }
    }

    fn floors(compact: u64, forget: u64) -> Floors {
        Floors { compact_before: WallTime(compact), forget_before: WallTime(forget) }
    }

    #[test]
    fn floors_move_by_a_hundredth_of_what_is_kept() {
        let policy = keeping(100 * HOUR_MS, 300 * HOUR_MS, ExpiredKeys::New);
        let before = |kept: u64| NOW.0 - kept * HOUR_MS - RETENTION_MARGIN_MS;
        let allowed = floors(before(100), before(300));
        assert_eq!(seen(std::slice::from_ref(&policy)).allowed(&policy), Some(allowed));
        let worth = |stands| worth_raising(&policy.retention, allowed, stands, MINUTE);
        assert!(worth(floors(0, 0)));
        assert!(!worth(allowed));
        assert!(!worth(floors(before(101) + 1, before(303) + 1)), "less than a step");
        assert!(worth(floors(before(101), allowed.forget_before.0)));
        assert!(worth(floors(allowed.compact_before.0, before(303))));
        assert!(!worth(floors(NOW.0, NOW.0)), "the policy was lengthened: they stay");
    }

    #[test]
    fn a_short_retention_moves_no_more_often_than_rounds_come() {
        let policy = keeping(60_000, 60_000, ExpiredKeys::New);
        let at = |behind: u64| NOW.0 - 60_000 - RETENTION_MARGIN_MS - behind;
        let allowed = retention::allowed(&policy.retention, NOW);
        let worth =
            |behind, interval| worth_raising(&policy.retention, allowed, floors(at(behind), at(behind)), interval);
        assert!(!worth(59_999, MINUTE) && worth(60_000, MINUTE));
        assert!(!worth(599, Duration::ZERO) && worth(600, Duration::ZERO));
    }

    #[test]
    fn durable_identity_has_no_floor_to_raise() {
        let policy = keeping(HOUR_MS, 2 * HOUR_MS, ExpiredKeys::Durable);
        let raised = seen(std::slice::from_ref(&policy)).allowed(&policy).unwrap();
        assert_eq!(raised.forget_before, WallTime(0));
        assert!(worth_raising(&policy.retention, raised, floors(0, 0), MINUTE));
        assert!(!worth_raising(&policy.retention, raised, raised, MINUTE));
    }

    /// A node may still answer from a state that shows the former policy.
    #[test]
    fn a_shortened_retention_counts_once_every_node_has_seen_it() {
        let short = keeping(HOUR_MS, 2 * HOUR_MS, ExpiredKeys::New);
        let long = keeping(HOUR_MS, 300 * HOUR_MS, ExpiredKeys::New);
        let durable = keeping(50 * HOUR_MS, 300 * HOUR_MS, ExpiredKeys::Durable);
        let (by_short, by_long) =
            (retention::allowed(&short.retention, NOW), retention::allowed(&long.retention, NOW));
        let allowed = |then: &NamespaceRecord, now| seen(std::slice::from_ref(then)).allowed(now);
        assert_eq!(allowed(&long, &short), Some(by_long));
        assert_eq!(allowed(&short, &long), Some(by_long), "what is lengthened counts at once");
        assert_eq!(allowed(&short, &short), Some(by_short));
        let body = retention::allowed(&durable.retention, NOW).compact_before;
        assert_eq!(allowed(&durable, &short), Some(floors(body.0, 0)), "what was durable is not forgotten yet");
        assert_eq!(seen(&[]).allowed(&short), None, "nor anything where nothing was seen");
        let source = Leaping(AtomicU64::new(0));
        let (none, seen) = (seen(&[]), Seen::of(&source));
        assert_eq!((due(&source, &none, MINUTE).len(), due(&source, &seen, MINUTE).len()), (0, 1));
    }

    fn due_of(n: usize) -> Due {
        let namespace = NamespaceName::new(format!("n{n:02}"));
        Due(RaiseFloors { tenant: TenantId::new("t"), namespace, floors: floors(1, 1) })
    }

    #[test]
    fn everybody_gets_a_turn() {
        let all = || (0..5).map(due_of).collect::<Vec<_>>();
        let (first, more) = chosen(all(), None, 2);
        assert_eq!((first, more), (vec![due_of(0), due_of(1)], true));
        let (next, _) = chosen(all(), Some(&due_of(1).name()), 2);
        assert_eq!(next, [due_of(2), due_of(3)]);
        let (wrapped, _) = chosen(all(), Some(&due_of(3).name()), 2);
        assert_eq!(wrapped, [due_of(4), due_of(0)]);
        let (whole, more) = chosen(all(), Some(&due_of(9).name()), 5);
        assert_eq!((whole, more), (all(), false));
        assert_eq!(chosen(Vec::new(), Some(&due_of(3).name()), 2), (Vec::new(), false));
    }

    /// A state whose wall is hours later whenever it is asked.
    struct Leaping(AtomicU64);

    const LEAP_MS: u64 = 5 * HOUR_MS;

    impl StateSource for Leaping {
        fn applied_index(&self) -> u64 {
            0
        }

        fn head(&self) -> Head {
            let asked = self.0.fetch_add(1, Ordering::SeqCst);
            let clocks = Clocks { wall: WallTime(NOW.0 + asked * LEAP_MS), ..Clocks::default() };
            Head { clocks, ..Head::default() }
        }

        fn policy(&self, _: &TenantId, _: &NamespaceName) -> Option<NamespaceRecord> {
            Some(policy())
        }

        fn register(&self, _: &TenantId, _: &EpochScope) -> AuthorityEpoch {
            AuthorityEpoch(0)
        }

        fn live(&self, _: &mut dyn FnMut(&OperationRecord)) {}

        fn namespaces(&self, visit: &mut dyn FnMut(&NamespaceRecord, &NamespaceStatus)) {
            visit(&policy(), &NamespaceStatus::default());
        }
    }

    #[tokio::test]
    async fn a_wall_that_moved_far_raises_nothing_before_another_interval_has_passed() {
        let cluster = Cluster::new(1);
        let node = cluster.node(1);
        let source = Arc::new(Leaping(AtomicU64::new(0)));
        let parts = Parts {
            consensus: node.consensus.clone(),
            source: source.clone(),
            proposer: node.proposer.clone(),
            interval: Duration::from_millis(5),
        };
        let running = tokio::spawn(run(parts, node.stopping.clone()));
        let first = cluster.wait_for_entry(soon(), |command| matches!(command, Command::RaiseFloors(_))).await;
        assert!(source.0.load(Ordering::SeqCst) >= 2, "it was looked at twice before");
        let Command::RaiseFloors(RaiseFloors { floors, .. }) = first else { unreachable!() };
        assert_eq!(floors, retention::allowed(&policy().retention, NOW), "what it showed at first");
        node.stopping.cancel();
        running.await.unwrap();
    }

    /// The wall passes both retention times; the log and the machine are real.
    #[tokio::test]
    async fn a_leader_raises_floors_and_only_when_it_is_worth_an_entry() {
        let cluster = Cluster::new(2);
        let node = cluster.node(1);
        node.bootstrap().await;
        let parts = |of: u64| Parts {
            consensus: cluster.node(of).consensus.clone(),
            source: cluster.log.clone(),
            proposer: cluster.node(of).proposer.clone(),
            interval: Duration::from_millis(5),
        };
        let stopping = CancellationToken::new();
        let running = [1, 2].map(|of| tokio::spawn(run(parts(of), stopping.clone())));
        let raised = |command: &Command| matches!(command, Command::RaiseFloors(_));
        cluster.wait_for_entry(soon(), raised).await;
        let stands = retention::allowed(&policy().retention, node.tracker.head().clocks.wall);
        cluster.log.wait_for_floors(stands, soon()).await;
        // Nothing is due until the wall has moved a step on: this many rounds come and go.
        let asked = cluster.log.looks();
        cluster.log.wait_for_looks(asked + 20, soon()).await;
        assert_eq!(cluster.log.count(raised), 1, "once, by the one who leads");

        cluster.advance_wall(Duration::from_hours(2)).await;
        let stands = retention::allowed(&policy().retention, node.tracker.head().clocks.wall);
        cluster.log.wait_for_floors(stands, soon()).await;

        // The next leader goes on from what stands.
        node.consensus.set_role(Role::Follower { leader: Some(2) });
        cluster.node(2).consensus.set_role(Role::Leader { term: 2 });
        cluster.advance_wall(Duration::from_hours(2)).await;
        let stands = retention::allowed(&policy().retention, node.tracker.head().clocks.wall);
        cluster.log.wait_for_floors(stands, soon()).await;
        assert_eq!(cluster.log.count(raised), 3);
        stopping.cancel();
        for task in running {
            task.await.unwrap();
        }
    }
}
