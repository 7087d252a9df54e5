//! A replica, what an observer outside knows of it, and one step from there.
//!
//! Two states are one where they differ in nothing that any rule looks at: epochs and births count by their order, and
//! instants by their distance from now. What was said and what was refused is judged in the step in which it is.

use std::collections::{BTreeMap, BTreeSet};

use hapax_machine::View;
use hapax_machine::apply::apply_entry;
use hapax_machine::capability::Bound;
use hapax_machine::change::{Change, Changes};
use hapax_machine::clock::Stamp;
use hapax_machine::command::{AdvanceWall, Claim, Command, EntryHead, Envelope};
use hapax_machine::evidence::Source;
use hapax_machine::ids::{
    Birth, CapabilityId, ContentHash, ExecutionId, GroupId, LeaseEpoch, LeaseTime, OperationId, OperationKey, Slot,
    WallTime,
};
use hapax_machine::limits::RETENTION_MARGIN_MS;
use hapax_machine::operation::{Execution, OperationRecord};
use hapax_machine::outcome::{Answer, Outcome};
use hapax_machine::read;
use hapax_machine::retention::Shown;

use super::scope::{Scope, key_of, row};
use crate::memory::{Memory, at_any_time, bytes16, entry};

/// What a pass is long: a lease has ended after it, whatever it was rounded up by.
const PASS_MS: u64 = 2;
/// What a jump of the wall is far: whatever had ended before may go after it.
const JUMP_MS: u64 = RETENTION_MARGIN_MS + 10;

/// What an observer outside knows.
#[derive(Debug, Clone, Default)]
pub(super) struct Ghost {
    passes: u64,
    jumps: u64,
    pub(super) bumps: usize,
    /// The last epoch that each party was told of each operation.
    told: BTreeMap<(Birth, String), LeaseEpoch>,
    /// Which claim each capability elected, on which operation.
    pub(super) elected: BTreeSet<(CapabilityId, u8, Birth)>,
    /// Lives that are gone.
    pub(super) gone: BTreeSet<Birth>,
    /// What an ex-owner said, by its hash.
    words: BTreeSet<ContentHash>,
}

/// A state of everything.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(super) memory: Memory,
    pub(super) ghost: Ghost,
}

/// Something that happens.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Pass,
    Jump,
    Do(Box<Command>),
}

/// The rules, or a broken copy of them.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(super) apply: fn(&Memory, &EntryHead, &Envelope) -> (Changes, Outcome),
    pub(super) definite: fn(&Memory, &Claim) -> Option<Answer>,
}

/// The rules as they are.
pub(crate) const SOUND: Rules = Rules { apply: sound, definite };

/// One step of the exploration.
pub(super) struct Step<'w> {
    pub(super) scope: Scope,
    pub(super) before: &'w World,
    pub(super) after: World,
    /// What was applied, and what it came to; time passing is a command that nobody asked for.
    pub(super) command: Option<&'w Command>,
    pub(super) answer: Option<Answer>,
    pub(super) changes: Changes,
    /// The clocks that the command met.
    pub(super) wall: WallTime,
    /// The same command at once again.
    pub(super) again: Option<(Answer, Vec<Change>)>,
    /// What a node would say to it from its own state instead: before it was applied, and after.
    pub(super) definite: [Option<Answer>; 2],
}

impl World {
    pub(crate) fn new(scope: Scope) -> Self {
        Self { memory: Memory::with(vec![scope.policy()]), ghost: Ghost::default() }
    }

    pub(crate) fn actions(&self, scope: Scope) -> Vec<Act> {
        let mut acts = Vec::new();
        if self.ghost.passes < scope.passes() {
            acts.push(Act::Pass);
        }
        if self.ghost.jumps < scope.jumps() {
            acts.push(Act::Jump);
        }
        acts.extend(scope.menu(self).into_iter().map(|command| Act::Do(Box::new(command))));
        acts
    }

    /// Does `act` under `rules`.
    pub(super) fn step<'w>(&'w self, scope: Scope, act: &'w Act, rules: Rules) -> Step<'w> {
        let mut after = self.clone();
        let command = match act {
            Act::Do(command) => Some(command.as_ref()),
            _ => None,
        };
        let asked = match act {
            Act::Pass => {
                after.ghost.passes += 1;
                Command::Tick
            }
            Act::Jump => {
                after.ghost.jumps += 1;
                let target = WallTime(self.memory.head.clocks.wall.0 + JUMP_MS);
                Command::AdvanceWall(AdvanceWall { target, by_operator: false })
            }
            Act::Do(command) => command.as_ref().clone(),
        };
        let (head, envelope) = (after.head(9), at_any_time(asked));
        let (changes, outcome) = (rules.apply)(&self.memory, &head, &envelope);
        after.memory.commit(changes.clone());
        let again = (!changes.rows.is_empty()).then(|| {
            let (changes, outcome) = (rules.apply)(&after.memory, &after.head(10), &envelope);
            (outcome.answer, changes.rows)
        });
        let definite = match command {
            Some(Command::Claim(claim)) => {
                [&self.memory, &after.memory].map(|memory| (rules.definite)(memory, claim))
            }
            _ => [None, None],
        };
        after.take_note(self, command, &outcome.answer);
        after.hear(&changes);
        let wall = after.memory.head.clocks.wall;
        // What was said, refused and told is of no consequence for what may happen next.
        after.memory.evidence.clear();
        after.memory.events.clear();
        after.memory.refusals.clear();
        Step {
            scope,
            before: self,
            command,
            answer: command.map(|_| outcome.answer),
            changes,
            wall,
            again,
            definite,
            after,
        }
    }

    fn head(&self, index: u64) -> EntryHead {
        entry(index, 1, Stamp { wall_ms: u64::MAX, lead_ms: self.ghost.passes * PASS_MS })
    }

    fn take_note(&mut self, before: &Self, command: Option<&Command>, answer: &Answer) {
        match (command, answer) {
            (Some(Command::Claim(claim)), Answer::Claimed(grant)) => {
                let (client, birth) = (claim.caller.client.to_string(), grant.operation_id.birth);
                self.ghost.told.insert((birth, client), grant.lease.lease_epoch);
                let id = claim.capability_id;
                self.ghost.elected.extend(id.map(|id| (id, claim.claim_id.0[15], birth)));
            }
            (Some(Command::ReconcileLease(asked)), Answer::Reconciling(items)) => {
                for item in items {
                    let party = (item.operation_id.birth, asked.caller.client.to_string());
                    self.ghost.told.insert(party, item.lease.lease_epoch);
                }
            }
            (Some(Command::BumpEpoch(_)), Answer::Epoch(_)) => self.ghost.bumps += 1,
            _ => {}
        }
        let all = before.memory.operations.values();
        let lost: Vec<Birth> =
            all.filter(|record| self.shown(&record.id).is_none()).map(|record| record.id.birth).collect();
        self.ghost.gone.extend(lost);
    }

    fn hear(&mut self, changes: &Changes) {
        let told =
            changes.rows.iter().any(|row| matches!(row, Change::Evidence(.., it) if it.source == Source::Evidence));
        if told {
            self.ghost.words.extend(self.memory.operations.values().filter_map(|record| record.said));
        }
    }

    /// A life of an operation, where it is there.
    pub(super) fn shown(&self, id: &OperationId) -> Option<OperationRecord> {
        let key = OperationKey { hash: id.hash, ..row(1) };
        let found = Shown(&self.memory).operation(&key).expect("a map never fails");
        found.filter(|record| record.id == *id)
    }

    /// The operation of a key, where there is one.
    pub(super) fn record(&self, key: u64) -> Option<OperationRecord> {
        Shown(&self.memory).operation(&row(key)).expect("a map never fails")
    }

    /// Where the register stands.
    pub(super) fn register(&self) -> u64 {
        self.memory.epochs.values().next().map_or(0, |record| record.value.0)
    }

    /// How many lives there were: what is drawn after another one is another id.
    pub(super) fn lives(&self) -> u64 {
        self.ghost.gone.len() as u64
    }

    /// The id that a proposer draws for the n-th capability.
    pub(super) fn drawn(&self, number: u64) -> CapabilityId {
        CapabilityId { slot: Slot(7), random: bytes16(number + 256 * self.lives()) }
    }

    /// Every id under which the n-th capability was issued.
    pub(super) fn issued(&self, number: u64) -> Vec<CapabilityId> {
        let ids = self.memory.capabilities.keys().map(|(_, id)| *id);
        ids.filter(|id| u64::from(id.random[15]) == number).collect()
    }

    /// Every execution there was, with the key of its operation.
    pub(super) fn executions(&self) -> Vec<(ExecutionId, u64)> {
        let rows = self.memory.executions.iter();
        rows.map(|((_, id), row)| (*id, u64::from(row.operation.hash[0]))).collect()
    }

    /// Every epoch that anybody may name with an operation: the one that is read, and what they were told.
    pub(super) fn epochs(&self, key: u64) -> Vec<LeaseEpoch> {
        let Some(record) = self.memory.operations.get(&row(key)) else { return Vec::new() };
        let told = self.ghost.told.iter().filter(|((birth, _), _)| *birth == record.id.birth);
        let mut epochs: Vec<LeaseEpoch> = told.map(|(_, epoch)| *epoch).collect();
        epochs.extend(record.execution.as_ref().map(|execution| execution.lease_epoch));
        epochs.sort_unstable();
        epochs.dedup();
        epochs
    }

    /// What tells this state from another.
    pub(crate) fn key(&self) -> Vec<u64> {
        let (memory, ghost) = (&self.memory, &self.ghost);
        let order = Order::of(self);
        let mut key = vec![ghost.passes, ghost.jumps, ghost.bumps as u64, order.rank(self.register())];
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
        // An ex-owner's words may come again as they were; words that name an epoch are one, or there were no end of them.
        let said = |hash: Option<ContentHash>| match hash {
            Some(hash) if self.ghost.words.contains(&hash) => short(&hash.0),
            other => u64::from(other.is_some()),
        };
        key.extend([key_of(&record.id), order.rank(record.id.birth.0), u64::from(record.grants)]);
        key.extend([u64::from(record.quarantined), u64::from(record.closed.is_some())]);
        key.extend([linked(record.superseded_by), linked(record.supersedes)]);
        key.extend([said(record.said), said(record.forgiven), record.terminal_at.map_or(u64::MAX, |at| at.0)]);
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
        let flags = [it.renewed, it.sole_holder, it.escalated_at.is_some()];
        key.push(flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag)));
        key.extend(it.authority.iter().map(|binding| order.rank(binding.value.0)));
    }
}

/// Epochs and births in their order.
struct Order(Vec<u64>);

impl Order {
    fn of(world: &World) -> Self {
        let (memory, ghost) = (&world.memory, &world.ghost);
        let mut all = vec![0, memory.head.grants.0, world.register()];
        let newest = memory.operations.values().filter_map(|record| record.execution.as_ref());
        let past = memory.executions.values().filter_map(|row| row.past.as_ref());
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

/// The bytes that tell small ids apart.
fn short(bytes: &[u8]) -> u64 {
    let ends = [bytes.first(), bytes.last(), bytes.get(bytes.len().wrapping_sub(2))];
    ends.iter().fold(0, |sum, byte| sum << 8 | u64::from(byte.copied().unwrap_or(0)))
}

pub(super) fn sound(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let commands = core::slice::from_ref(envelope);
    let (changes, mut outcomes) =
        apply_entry(memory, entry, commands).expect("a map never fails, the rules are known");
    (changes, outcomes.pop().expect("one outcome per command"))
}

pub(super) fn definite(memory: &Memory, claim: &Claim) -> Option<Answer> {
    let found = read::definite(memory, GroupId(0), 9, claim).expect("a map never fails");
    found.map(|found| found.outcome.answer)
}

impl Act {
    /// The act in a line, for the path to a broken promise.
    pub(super) fn told(&self) -> String {
        let Self::Do(command) = self else { return format!("{self:?}") };
        match command.as_ref() {
            Command::Claim(it) => format!(
                "{} claims {}, call {}, digest {}, capability {:?}, message {:?}, bound {:?}",
                it.caller.client,
                it.internal_key.0[0],
                it.claim_id.0[15],
                it.digest.0[0],
                it.capability_id.map(|id| short(&id.random)),
                it.message.as_ref().map(|message| &message.id),
                it.epoch.as_ref().map(|epoch| epoch.value),
            ),
            other => format!("{other:?}"),
        }
    }
}
