//! The executing operations, by what ends an execution without its owner: time, and bumps of registers it is bound to.
//! Followed from apply on every node, so that a new leader sweeps at once.
//!
//! It only says what to look at. Whether a lease has ended is decided in apply, from the state and the clock of its own entry.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hapax_machine::command::Lapse;
use hapax_machine::epoch::{Binding, EpochRecord};
use hapax_machine::ids::{
    AuthorityEpoch, EpochScope, ExecutionId, LeaseEpoch, LeaseTime, NamespaceName, OperationKey, TenantId,
};
use hapax_machine::namespace::NamespaceRecord;
use hapax_machine::operation::{OperationRecord, State, passes_on};

use crate::state_source::StateSource;

/// The leases of all executing operations.
///
/// Invariants: every executing operation is in `live`. It is in `by_deadline`, under the same deadline, exactly if its lapse
/// is for the sweep: where it waits for a claimant to take it over, a lapse changes nothing. It is in the register of each of
/// its bindings. A register with bindings below its value is in `bumped`.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    live: HashMap<OperationKey, Lease>,
    by_deadline: BTreeMap<(LeaseTime, OperationKey), LeaseEpoch>,
    namespaces: Namespaces,
    registers: BTreeMap<TenantId, BTreeMap<EpochScope, Register>>,
    /// Registers that may have bindings below their value: what a bump fenced is looked for here, and not at the bump.
    bumped: BTreeSet<(TenantId, EpochScope)>,
    takeovers: u64,
}

#[derive(Debug)]
struct Lease {
    execution: ExecutionId,
    epoch: LeaseEpoch,
    deadline: LeaseTime,
    namespace: Number,
    /// Whether it consumed a capability.
    consumed: bool,
    /// Most executions are bound to nothing.
    bound: Option<Box<Bound>>,
}

#[derive(Debug)]
struct Bound {
    tenant: TenantId,
    to: Vec<Binding>,
}

/// What a register of authority is known to stand at, and what is bound to it.
#[derive(Debug)]
struct Register {
    value: AuthorityEpoch,
    bound: BTreeSet<(AuthorityEpoch, OperationKey)>,
}

/// Stands for a namespace, so that no lease holds its name.
type Number = usize;

/// The namespaces that ever had an executing operation, and since when an inline claimant may take over there. They are never
/// removed.
#[derive(Debug, Default)]
struct Namespaces {
    numbers: BTreeMap<TenantId, BTreeMap<NamespaceName, Number>>,
    takeover_since: Vec<Option<LeaseTime>>,
}

impl Namespaces {
    fn number(&self, tenant: &TenantId, name: &NamespaceName) -> Option<Number> {
        self.numbers.get(tenant)?.get(name).copied()
    }

    fn number_or_insert(&mut self, record: &OperationRecord, source: &dyn StateSource) -> Number {
        if let Some(number) = self.number(&record.tenant, &record.namespace) {
            return number;
        }
        let number = self.takeover_since.len();
        // An operation without a policy is shown to nobody; unknown is the state that nothing follows from.
        let policy = source.policy(&record.tenant, &record.namespace);
        self.takeover_since.push(policy.and_then(|policy| policy.takeover_since));
        self.numbers.entry(record.tenant.clone()).or_default().insert(record.namespace.clone(), number);
        number
    }
}

impl Leases {
    /// Takes an operation's record as it is now. `source` is asked what is not known yet.
    pub(crate) fn observe(&mut self, record: &OperationRecord, source: &dyn StateSource) {
        let key = record.key();
        let former = self.remove(&key);
        let Some(execution) = record.execution.as_ref().filter(|_| record.state() == State::Executing) else {
            return;
        };
        let taken_over = |former: &Lease| former.execution == execution.id && former.epoch != execution.lease_epoch;
        self.takeovers += u64::from(former.as_ref().is_some_and(taken_over));
        let namespace = self.namespaces.number_or_insert(record, source);
        let consumed = execution.capability.is_some();
        if !passes_on(consumed, execution.deadline, self.namespaces.takeover_since[namespace]) {
            self.by_deadline.insert((execution.deadline, key), execution.lease_epoch);
        }
        let bound = (!execution.authority.is_empty())
            .then(|| Box::new(Bound { tenant: record.tenant.clone(), to: execution.authority.clone() }));
        if let Some(bound) = &bound {
            self.bind(key, bound, source);
        }
        let (epoch, deadline) = (execution.lease_epoch, execution.deadline);
        self.live.insert(key, Lease { execution: execution.id, epoch, deadline, namespace, consumed, bound });
    }

    fn remove(&mut self, key: &OperationKey) -> Option<Lease> {
        let lease = self.live.remove(key)?;
        self.by_deadline.remove(&(lease.deadline, *key));
        if let Some(bound) = &lease.bound {
            self.unbind(key, bound);
        }
        Some(lease)
    }

    fn bind(&mut self, key: OperationKey, bound: &Bound, source: &dyn StateSource) {
        let registers = self.registers.entry(bound.tenant.clone()).or_default();
        for Binding { scope, value } in &bound.to {
            let register = registers
                .entry(scope.clone())
                .or_insert_with(|| Register { value: source.register(&bound.tenant, scope), bound: BTreeSet::new() });
            register.bound.insert((*value, key));
            if *value < register.value {
                self.bumped.insert((bound.tenant.clone(), scope.clone()));
            }
        }
    }

    fn unbind(&mut self, key: &OperationKey, bound: &Bound) {
        let Some(registers) = self.registers.get_mut(&bound.tenant) else { return };
        for Binding { scope, value } in &bound.to {
            if let Some(register) = registers.get_mut(scope) {
                register.bound.remove(&(*value, *key));
                if register.bound.is_empty() {
                    registers.remove(scope);
                }
            }
        }
        if registers.is_empty() {
            self.registers.remove(&bound.tenant);
        }
    }

    /// Takes a namespace's policy as it is now.
    pub(crate) fn observe_policy(&mut self, record: &NamespaceRecord) {
        let Some(namespace) = self.namespaces.number(&record.tenant, &record.name) else { return };
        let since = record.takeover_since;
        if std::mem::replace(&mut self.namespaces.takeover_since[namespace], since) == since {
            return;
        }
        for (key, lease) in self.live.iter().filter(|(_, lease)| lease.namespace == namespace) {
            match passes_on(lease.consumed, lease.deadline, since) {
                true => self.by_deadline.remove(&(lease.deadline, *key)),
                false => self.by_deadline.insert((lease.deadline, *key), lease.epoch),
            };
        }
    }

    /// Takes a register of authority as it is now.
    pub(crate) fn observe_register(&mut self, record: &EpochRecord) {
        let register = self.registers.get_mut(&record.tenant).and_then(|of_tenant| of_tenant.get_mut(&record.scope));
        // Where nothing is bound to it, nothing is fenced.
        if let Some(register) = register {
            register.value = record.value;
            self.bumped.insert((record.tenant.clone(), record.scope.clone()));
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

    /// Operations whose executions are bound to a lower value than a register stands at.
    pub(crate) fn fenced(&mut self, max: usize) -> Vec<OperationKey> {
        let Self { bumped, registers, .. } = self;
        // An execution may be bound to several registers that were bumped.
        let mut found = BTreeSet::new();
        bumped.retain(|(tenant, scope)| {
            let register = registers.get(tenant).and_then(|of_tenant| of_tenant.get(scope));
            let below =
                |register: &Register| register.bound.first().is_some_and(|(value, _)| *value < register.value);
            let Some(register) = register.filter(|register| below(register)) else {
                return false;
            };
            let lower = register.bound.iter().take_while(|(value, _)| *value < register.value);
            let room = max.saturating_sub(found.len());
            found.extend(lower.take(room).map(|(_, key)| *key));
            true
        });
        found.into_iter().collect()
    }

    /// The executing operations.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// The takeovers seen so far.
    pub(crate) fn takeovers(&self) -> u64 {
        self.takeovers
    }

    /// Forgets everything but what was counted.
    pub(crate) fn clear(&mut self) {
        *self = Self { takeovers: self.takeovers, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use hapax_machine::change::Head;
    use hapax_machine::ids::{CapabilityId, ClientId, Slot, WallTime};
    use hapax_machine::operation::{Definite, may_be_taken_over};

    use super::*;
    use crate::fakes::{FakeState, bound, executing, finished, key, policy, tenant};

    const CAPABILITY: CapabilityId = CapabilityId { slot: Slot(0), random: [5; 16] };

    const SINCE: LeaseTime = LeaseTime(1_000);

    fn lapse(n: u64, epoch: u64, deadline: u64) -> Lapse {
        Lapse { operation: key(n), lease_epoch: LeaseEpoch(epoch), deadline: LeaseTime(deadline) }
    }

    fn source() -> std::sync::Arc<FakeState> {
        FakeState::new(0, Head::default(), Vec::new())
    }

    fn scope(name: &str) -> EpochScope {
        EpochScope::new(name)
    }

    fn bumped(name: &str, value: u64) -> EpochRecord {
        EpochRecord {
            tenant: tenant(),
            scope: scope(name),
            value: AuthorityEpoch(value),
            client: ClientId::new("c"),
            at: WallTime(0),
        }
    }

    #[test]
    fn the_queue_follows_grants_renewals_and_ends() {
        let (mut leases, source) = (Leases::default(), source());
        leases.observe(&executing(1, 10, 3_000), &*source);
        leases.observe(&executing(2, 11, 2_000), &*source);
        assert_eq!(leases.lapsed(LeaseTime(1_999), 9), []);
        assert_eq!(leases.lapsed(LeaseTime(2_000), 9), [lapse(2, 11, 2_000)], "the deadline itself is over");
        assert_eq!(leases.lapsed(LeaseTime(9_000), 9), [lapse(2, 11, 2_000), lapse(1, 10, 3_000)], "oldest first");
        assert_eq!(leases.lapsed(LeaseTime(9_000), 1).len(), 1);
        leases.observe(&executing(2, 11, 5_000), &*source);
        assert_eq!(leases.lapsed(LeaseTime(4_000), 9), [lapse(1, 10, 3_000)], "renewed");
        assert_eq!(leases.takeovers(), 0);
        leases.observe(&finished(1, Definite::Completed), &*source);
        leases.observe(&executing(2, 12, 6_000), &*source);
        assert_eq!(leases.lapsed(LeaseTime(9_000), 9), [lapse(2, 12, 6_000)], "finished, and taken over");
        assert_eq!((leases.len(), leases.takeovers()), (1, 1));
        leases.clear();
        assert_eq!((leases.len(), leases.lapsed(LeaseTime(9_000), 9)), (0, Vec::new()));
        assert_eq!(leases.takeovers(), 1, "what was counted stays");
    }

    #[test]
    fn what_nobody_executes_is_no_lease() {
        let (mut leases, source) = (Leases::default(), source());
        let mut requested = executing(1, 10, 1_000);
        requested.execution = None;
        leases.observe(&requested, &*source);
        assert_eq!((leases.len(), leases.lapsed(LeaseTime(9_000), 9)), (0, Vec::new()));
    }

    #[test]
    fn what_waits_for_a_takeover_is_not_for_the_sweep_and_all_else_is() {
        let ends = [SINCE.0 - 1, SINCE.0, SINCE.0 + 1];
        let cases = ends.into_iter().flat_map(|deadline| {
            [None, Some(SINCE)]
                .into_iter()
                .flat_map(move |since| [None, Some(CAPABILITY)].map(move |capability| (deadline, since, capability)))
        });
        for (deadline, takeover_since, capability) in cases {
            let policy = NamespaceRecord { takeover_since, ..policy() };
            let mut record = executing(1, 10, deadline);
            record.execution.as_mut().unwrap().capability = capability;
            let waits = may_be_taken_over(record.execution.as_ref().unwrap(), &policy);
            let (mut leases, source) = (Leases::default(), source());
            source.set_policy(policy.clone());
            leases.observe(&record, &*source);
            assert_eq!(leases.lapsed(LeaseTime(9_000), 9).is_empty(), waits, "{deadline} under {policy:?}");
            assert_eq!(leases.len(), 1, "but time must go on for it");
            let (mut leases, source) = (Leases::default(), self::source());
            leases.observe(&record, &*source);
            leases.observe_policy(&policy);
            assert_eq!(leases.lapsed(LeaseTime(9_000), 9).is_empty(), waits, "{deadline}, changed to {policy:?}");
        }
    }

    #[test]
    fn a_changed_policy_sorts_its_leases_anew() {
        let (mut leases, source) = (Leases::default(), source());
        leases.observe_policy(&policy());
        leases.observe(&executing(1, 10, 1_100), &*source);
        leases.observe(&executing(4, 13, 1_000), &*source);
        let elsewhere = OperationRecord { namespace: NamespaceName::new("other"), ..executing(2, 11, 1_000) };
        leases.observe(&elsewhere, &*source);
        let over = lapse(4, 13, 1_000);
        leases.observe_policy(&NamespaceRecord { takeover_since: Some(SINCE), ..policy() });
        let mut lapsed = leases.lapsed(LeaseTime(9_000), 9);
        lapsed.sort_unstable_by_key(|lapse| lapse.lease_epoch);
        assert_eq!(lapsed, [lapse(2, 11, 1_000), over], "another namespace stays, and what was over before");
        leases.observe(&finished(4, Definite::Failed), &*source);
        leases.observe(&executing(3, 12, 1_500), &*source);
        assert_eq!(leases.lapsed(LeaseTime(9_000), 9), [lapse(2, 11, 1_000)], "what comes later waits as well");
        leases.observe_policy(&policy());
        let all = [lapse(1, 10, 1_100), lapse(2, 11, 1_000), lapse(3, 12, 1_500)];
        let mut lapsed = leases.lapsed(LeaseTime(9_000), 9);
        lapsed.sort_unstable_by_key(|lapse| lapse.lease_epoch);
        assert_eq!(lapsed, all);
        leases.observe(&finished(1, Definite::Failed), &*source);
        leases.observe(&finished(3, Definite::Failed), &*source);
        assert_eq!(leases.lapsed(LeaseTime(9_000), 9), [lapse(2, 11, 1_000)], "none is left behind");
    }

    #[test]
    fn a_bump_fences_what_is_bound_to_a_lower_value() {
        let (mut leases, source) = (Leases::default(), source());
        leases.observe(&executing(1, 10, 9_000), &*source);
        leases.observe(&bound(2, &[("a", 0)]), &*source);
        leases.observe(&bound(3, &[("a", 0), ("b", 0)]), &*source);
        assert_eq!(leases.fenced(9), []);
        leases.observe_register(&bumped("c", 70));
        assert_eq!(leases.fenced(9), [], "nothing is bound to it");
        leases.observe_register(&bumped("b", 80));
        assert_eq!(leases.fenced(9), [key(3)]);
        leases.observe_register(&bumped("a", 81));
        assert_eq!(leases.fenced(9), [key(2), key(3)], "each of them once");
        assert_eq!(leases.fenced(1).len(), 1);
        leases.observe(&bound(4, &[("a", 81)]), &*source);
        assert_eq!(leases.fenced(9), [key(2), key(3)], "the new value is current");
        leases.observe(&finished(3, Definite::Completed), &*source);
        leases.observe(&finished(2, Definite::Completed), &*source);
        assert_eq!(leases.fenced(9), []);
        assert!(leases.bumped.is_empty(), "it is not looked for again");
        leases.observe_register(&bumped("a", 90));
        assert_eq!(leases.fenced(9), [key(4)]);
        leases.observe(&finished(4, Definite::Completed), &*source);
        assert_eq!(leases.fenced(9), []);
        assert!(leases.registers.is_empty(), "nothing is left of what nothing is bound to");
    }

    /// At a start, after a snapshot, and where grant and bump shared a write: the register is known to stand higher.
    #[test]
    fn what_was_bumped_before_it_was_seen_is_fenced_too() {
        let (mut leases, source) = (Leases::default(), source());
        source.set_register("a", 50);
        leases.observe(&bound(1, &[("a", 40)]), &*source);
        leases.observe(&bound(2, &[("a", 50)]), &*source);
        assert_eq!(leases.fenced(9), [key(1)]);
        leases.clear();
        assert_eq!(leases.fenced(9), []);
    }
}
