//! What tells one state from another. Two states are one where they differ in nothing that any rule looks at: epochs and births
//! count by their order, instants by their distance from now. What was refused is judged in the step in which it is.

use hapax_machine::capability::Bound;
use hapax_machine::ids::{LeaseTime, OperationId};
use hapax_machine::operation::{Execution, OperationRecord};

use super::scope::key_of;
use super::world::{Word, World, short};

impl World {
    /// What tells this state from another.
    pub(crate) fn key(&self) -> Vec<u64> {
        let (memory, ghost) = (&self.memory, &self.ghost);
        let order = Order::of(self);
        let mut key = vec![ghost.passes, ghost.jumps, ghost.bumps as u64, ghost.writes, order.rank(self.register())];
        key.extend([self.policy().on_lapse as u64, self.policy().authority as u64]);
        for record in memory.operations.values() {
            self.operation_key(&mut key, &order, record);
        }
        for row in memory.executions.values() {
            key.push(order.rank(row.birth.0));
            row.past.iter().for_each(|past| self.execution_key(&mut key, &order, past));
        }
        for ((_, birth, claim), grant) in &memory.grants {
            key.extend([order.rank(birth.0), u64::from(claim.0[15]), order.rank(grant.lease_epoch.0)]);
        }
        for record in memory.capabilities.values() {
            let state = match &record.bound {
                Bound::Attempt { consumed, .. } => u64::from(consumed.is_some()),
                Bound::Resource { used, .. } => u64::from(*used),
            };
            key.extend([short(&record.id.random), state, u64::from(record.revoked.is_some())]);
        }
        for ((_, id, operation), used) in &memory.uses {
            key.extend([short(&id.random), u64::from(operation.hash[0]), order.rank(used.birth.0)]);
        }
        for record in memory.inbox.values() {
            key.extend([order.rank(record.operation.birth.0), u64::from(record.digest.0[0])]);
        }
        for status in memory.statuses.values() {
            key.extend([
                status.floors.compact_before.0,
                status.floors.forget_before.0,
                u64::from(status.pace.granted),
            ]);
        }
        key.push(u64::from(ghost.leased));
        key.extend(ghost.effects.iter().map(|(id, said)| short(&id.random) << 8 | *said as u64));
        for ((birth, _), epoch) in &ghost.told {
            key.extend([order.rank(birth.0), order.rank(epoch.0)]);
        }
        key.extend(
            ghost
                .elected
                .iter()
                .map(|(id, claim, birth)| short(&id.random) << 32 | u64::from(*claim) << 16 | order.rank(birth.0)),
        );
        key
    }

    fn operation_key(&self, key: &mut Vec<u64>, order: &Order, record: &OperationRecord) {
        let linked = |id: Option<OperationId>| id.map_or(0, |id| order.rank(id.birth.0));
        key.extend([key_of(&record.id), order.rank(record.id.birth.0), u64::from(record.grants)]);
        key.extend([u64::from(record.quarantined), u64::from(record.closed.is_some())]);
        key.extend([linked(record.superseded_by), linked(record.supersedes)]);
        key.push(record.terminal_at.map_or(u64::MAX, |at| at.0));
        let birth = record.id.birth;
        word_key(key, order, self.ghost.said.get(&birth));
        word_key(key, order, self.ghost.pardoned.get(&birth));
        key.extend([self.ghost.shown.contains(&birth), self.ghost.emptied.contains(&birth)].map(u64::from));
        record.execution.iter().for_each(|newest| self.execution_key(key, order, newest));
    }

    fn execution_key(&self, key: &mut Vec<u64>, order: &Order, it: &Execution) {
        let now = self.memory.head.clocks.lease_time;
        let ahead = |at: LeaseTime| at.0.saturating_sub(now.0);
        let report = it.report.map_or(0, |report| short(&report.content.0) ^ order.rank(report.lease_epoch.0));
        let held = it.reconciler.as_ref().map_or(0, |held| short(held.owner.as_bytes()) << 8 | ahead(held.deadline));
        key.extend([short(&it.id.random), it.state as u64, short(&it.claim_id.0), order.rank(it.lease_epoch.0)]);
        key.extend([
            ahead(it.deadline),
            report,
            held,
            it.outcome.as_ref().map_or(9, |outcome| outcome.outcome as u64),
        ]);
        key.push(it.claimed.as_ref().map_or(9, |claimed| claimed.outcome as u64));
        key.push(it.capability.map_or(0, |id| short(&id.random)));
        // Of when takeover became possible, what counts is which leases ended after it.
        let passes_on = self.policy().takeover_since.is_some_and(|since| it.deadline > since);
        let flags =
            [it.renewed, it.sole_holder, it.escalated_at.is_some(), passes_on, self.ghost.unknown.contains(&it.id)];
        key.push(flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag)));
        key.extend(it.authority.iter().map(|binding| order.rank(binding.value.0)));
    }
}

fn word_key(key: &mut Vec<u64>, order: &Order, word: Option<&Word>) {
    let Some(word) = word.filter(|word| word.may_come_again()) else {
        return key.push(u64::from(word.is_some()));
    };
    let bytes = |id: Option<[u8; 16]>| id.map_or(0, |id| short(&id));
    key.extend([word.source as u64, short(word.client.as_str().as_bytes())]);
    key.extend([bytes(word.execution.map(|id| id.random)), bytes(word.claim_id.map(|id| id.0))]);
    key.push(word.lease_epoch.map_or(u64::MAX, |epoch| order.rank(epoch.0)));
    key.push(word.outcome.map_or(9, |outcome| outcome as u64));
}

/// Epochs and births in their order.
struct Order(Vec<u64>);

impl Order {
    fn of(world: &World) -> Self {
        let (memory, ghost) = (&world.memory, &world.ghost);
        let mut all = vec![0, memory.head.grants.0, world.register()];
        let newest = memory.operations.values().filter_map(|record| record.execution.as_ref());
        let past = memory.executions.values().filter_map(|row| row.past.as_deref());
        for execution in newest.chain(past) {
            all.push(execution.lease_epoch.0);
            all.extend(execution.report.map(|report| report.lease_epoch.0));
            all.extend(execution.authority.iter().map(|binding| binding.value.0));
        }
        all.extend(memory.operations.values().map(|record| record.id.birth.0));
        all.extend(memory.executions.values().map(|row| row.birth.0));
        all.extend(memory.grants.iter().flat_map(|((_, birth, _), grant)| [birth.0, grant.lease_epoch.0]));
        all.extend(memory.uses.values().map(|used| used.birth.0));
        all.extend(memory.inbox.values().map(|record| record.operation.birth.0));
        all.extend(ghost.told.iter().flat_map(|((birth, _), epoch)| [birth.0, epoch.0]));
        let words = ghost.said.values().chain(ghost.pardoned.values()).filter(|word| word.may_come_again());
        all.extend(words.filter_map(|word| word.lease_epoch).map(|epoch| epoch.0));
        all.extend(ghost.elected.iter().map(|(_, _, birth)| birth.0));
        let links = memory.operations.values().flat_map(|record| [record.superseded_by, record.supersedes]);
        all.extend(links.flatten().map(|id| id.birth.0));
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    fn rank(&self, value: u64) -> u64 {
        self.0.binary_search(&value).expect("every value was collected") as u64
    }
}
