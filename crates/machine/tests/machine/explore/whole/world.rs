//! A replica, what an observer outside knows of it, and one step from there.

use std::collections::{BTreeMap, BTreeSet};

use hapax_machine::View;
use hapax_machine::apply::apply_entry;
use hapax_machine::change::{Change, Changes};
use hapax_machine::clock::Stamp;
use hapax_machine::command::{AdvanceWall, Claim, Command, EntryHead, Envelope, RepairKind};
use hapax_machine::evidence::{EvidenceRecord, Source};
use hapax_machine::ids::{
    Birth, CapabilityId, ClaimId, ClientId, ExecutionId, GroupId, LeaseEpoch, OperationId, OperationKey, Slot,
    WallTime,
};
use hapax_machine::limits::RETENTION_MARGIN_MS;
use hapax_machine::namespace::NamespaceRecord;
use hapax_machine::operation::{Definite, OperationRecord, State};
use hapax_machine::outcome::{Answer, Outcome, Refusal};
use hapax_machine::read::{self, Reading};
use hapax_machine::retention::Shown;

use super::menu::menu;
use super::scope::{Scope, row};
use crate::memory::{Memory, at_any_time, bytes16, caller, entry};

/// What a pass is long: a lease has ended after it, whatever it was rounded up by.
const PASS_MS: u64 = 2;
/// What a jump of the wall is far: whatever had ended before may go after it.
const JUMP_MS: u64 = RETENTION_MARGIN_MS + 10;

/// What an observer outside knows.
#[derive(Debug, Clone, Default)]
pub(super) struct Ghost {
    pub(super) passes: u64,
    pub(super) jumps: u64,
    pub(super) bumps: usize,
    /// How often the policy was written.
    pub(super) writes: u64,
    /// Executions that a reader was shown as unknown.
    pub(super) unknown: BTreeSet<ExecutionId>,
    /// The last epoch that each party was told of each operation.
    pub(super) told: BTreeMap<(Birth, String), LeaseEpoch>,
    /// Which claim each capability elected, on which operation.
    pub(super) elected: BTreeSet<(CapabilityId, u8, Birth)>,
    /// Lives that are gone.
    pub(super) gone: BTreeSet<Birth>,
    /// The last thing said of each operation.
    pub(super) said: BTreeMap<Birth, Word>,
    /// The last thing that was said when an operator released.
    pub(super) pardoned: BTreeMap<Birth, Word>,
    /// The effects that an ex-owner says there were.
    pub(super) effects: BTreeSet<(ExecutionId, Definite)>,
    /// Everybody who ever held an execution, by the epoch they were told.
    pub(super) held: BTreeSet<(ExecutionId, LeaseEpoch)>,
    /// What an execution's holders are told to send.
    pub(super) effect_keys: BTreeMap<ExecutionId, String>,
    /// How many leases of reconcilers were drawn.
    pub(super) leased: u32,
    /// Lives of which a result was shown.
    pub(super) shown: BTreeSet<Birth>,
    /// Those of them of which it is shown no more.
    pub(super) emptied: BTreeSet<Birth>,
}

/// What was said, in everything that the parties' words differ in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) source: Source,
    pub(super) client: ClientId,
    pub(super) execution: Option<ExecutionId>,
    pub(super) claim_id: Option<ClaimId>,
    pub(super) lease_epoch: Option<LeaseEpoch>,
    pub(super) outcome: Option<Definite>,
}

impl Word {
    /// What a command says of an outcome, where it does.
    pub(super) fn of(command: &Command) -> Option<Self> {
        let (source, client, execution, claim_id, lease_epoch, outcome) = match command {
            Command::Evidence(it) => {
                (Source::Evidence, &it.caller.client, it.execution_id, Some(it.claim_id), None, it.outcome)
            }
            Command::Resolve(it) => {
                (Source::Resolve, &it.caller.client, it.execution_id, None, Some(it.lease_epoch), it.outcome)
            }
            _ => return None,
        };
        let (client, execution, outcome) = (client.clone(), Some(execution), Some(outcome));
        Some(Self { source, client, execution, claim_id, lease_epoch, outcome })
    }

    fn kept(row: &EvidenceRecord) -> Self {
        Self {
            source: row.source,
            client: row.client.clone(),
            execution: row.execution,
            claim_id: row.claim_id,
            lease_epoch: row.lease_epoch,
            outcome: row.outcome,
        }
    }

    /// Whether it matters that this was said last: an override is no duplicate of anything, but for a fence.
    pub(super) fn may_come_again(&self) -> bool {
        matches!(self.source, Source::Evidence | Source::Resolve | Source::Fence)
    }
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
    pub(super) read: fn(&Memory, &OperationKey) -> Option<Reading>,
}

/// The rules as they are.
pub(crate) const SOUND: Rules = Rules { apply: sound, definite, read };

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
    /// What readers are shown afterwards.
    pub(super) reads: Vec<Reading>,
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
        acts.extend(menu(scope, self).into_iter().map(|command| Act::Do(Box::new(command))));
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
        let reads: Vec<Reading> =
            after.memory.operations.keys().filter_map(|key| (rules.read)(&after.memory, key)).collect();
        after.take_note(self, command, &outcome.answer);
        after.hear(&changes);
        after.watch(self, &reads);
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
            reads,
            after,
        }
    }

    fn head(&self, index: u64) -> EntryHead {
        entry(index, 1, Stamp { wall_ms: u64::MAX, lead_ms: self.ghost.passes * PASS_MS })
    }

    /// What the one who asked learns from the answer.
    fn take_note(&mut self, before: &Self, command: Option<&Command>, answer: &Answer) {
        match (command, answer) {
            (Some(Command::Claim(claim)), Answer::Claimed(grant)) => {
                let (client, birth) = (claim.caller.client.to_string(), grant.operation_id.birth);
                self.ghost.told.insert((birth, client), grant.lease.lease_epoch);
                self.ghost.held.insert((grant.execution_id, grant.lease.lease_epoch));
                self.ghost.effect_keys.entry(grant.execution_id).or_insert_with(|| grant.effect_key.clone());
                let id = claim.capability_id;
                self.ghost.elected.extend(id.map(|id| (id, claim.claim_id.0[15], birth)));
            }
            (Some(Command::ReconcileLease(asked)), Answer::Reconciling(items)) => {
                for item in items {
                    let party = (item.operation_id.birth, asked.caller.client.to_string());
                    self.ghost.told.insert(party, item.lease.lease_epoch);
                    self.ghost.leased +=
                        u32::from(self.ghost.held.insert((item.execution_id, item.lease.lease_epoch)));
                }
            }
            (Some(Command::BumpEpoch(_)), Answer::Epoch(_)) => self.ghost.bumps += 1,
            (Some(Command::PutNamespace(_)), Answer::Namespace(_)) => self.ghost.writes += 1,
            (Some(Command::Evidence(told)), answer)
                if told.outcome != Definite::NotApplied && !is_not_found(answer) =>
            {
                self.ghost.effects.insert((told.execution_id, told.outcome));
            }
            (Some(Command::Repair(it)), Answer::Accepted(_)) if it.kind == RepairKind::Release => {
                let birth = it.operation_id.birth;
                let stopped = before.shown(&it.operation_id).is_some_and(|record| record.quarantined);
                if let (true, Some(last)) = (stopped, before.ghost.said.get(&birth)) {
                    self.ghost.pardoned.insert(birth, last.clone());
                }
            }
            _ => {}
        }
    }

    /// What is kept of what was said.
    fn hear(&mut self, changes: &Changes) {
        for row in &changes.rows {
            if let Change::Evidence(_, birth, _, row) = row {
                self.ghost.said.insert(*birth, Word::kept(row));
            }
        }
    }

    /// What is not there any more.
    fn watch(&mut self, before: &Self, reads: &[Reading]) {
        let all = before.memory.operations.values();
        let lost: Vec<Birth> =
            all.filter(|record| self.shown(&record.id).is_none()).map(|record| record.id.birth).collect();
        self.ghost.gone.extend(lost);
        for reading in reads {
            if let (State::Unknown, Some(newest)) = (reading.state, &reading.record.execution) {
                self.ghost.unknown.insert(newest.id);
            }
            let birth = reading.record.id.birth;
            match &reading.result {
                Some(_) => drop(self.ghost.shown.insert(birth)),
                None if self.ghost.shown.contains(&birth) => drop(self.ghost.emptied.insert(birth)),
                None => {}
            }
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

    /// The policy that stands.
    pub(super) fn policy(&self) -> &NamespaceRecord {
        self.memory.namespaces.values().next().expect("there is one namespace")
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
}

fn is_not_found(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(refused) if refused.reason == Refusal::NotFound)
}

/// The bytes that tell small ids apart.
pub(super) fn short(bytes: &[u8]) -> u64 {
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

pub(super) fn read(memory: &Memory, key: &OperationKey) -> Option<Reading> {
    read::by_key(memory, &caller("t", "reader"), key).expect("a map never fails")
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
