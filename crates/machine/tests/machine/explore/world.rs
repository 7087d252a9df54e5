//! What the exploration walks through: a replica, what an outside observer knows, and everything that may happen next.
//! The adversary delays, repeats and reorders at will, because every command may be delivered in every state.

use hapax_machine::change::{Change, Changes};
use hapax_machine::clock::Stamp;
use hapax_machine::command::{
    Caller, Claim, Command, EntryHead, Envelope, Evidence, Lapse, Renew, Report, Resolve, ResultData,
};
use hapax_machine::ids::{
    ClaimId, Digest, ExecutionId, InternalKey, LeaseEpoch, LeaseTime, NamespaceName, OperationKey, Slot,
};
use hapax_machine::namespace::{Attempts, OnLapse};
use hapax_machine::operation::{Definite, Execution, OperationRecord};
use hapax_machine::outcome::{Answer, Outcome};

use crate::memory::{Memory, Newest as _, bytes16, caller, entry, namespace};

/// The length of every lease, in milliseconds.
const LEASE_MS: u64 = 1;
/// Leaders there may be.
const TERMS: u64 = 2;
/// Attempts there may be: the first that must not be followed, and the one that follows it.
const ATTEMPTS: u32 = 2;
/// The instant until which the delayed copy of bob's call may act.
const LATE_COPY_NOT_AFTER_MS: u64 = 1;

/// Who makes which claim call. Where effects are looked at there are three, so that somebody can follow a takeover.
pub(super) const CALLS: [&str; 3] = ["alice", "bob", "alice"];
/// Bob's call: it also travels as a copy that is only good for a moment, and as one that waits since the election.
const BOBS: usize = 1;

/// Whose commands are explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manners {
    /// Everybody says anything about anything; no effects are looked at.
    Any,
    /// Everybody says only what is true of the effects they cause, but late, twice or never.
    Honest,
}

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) on_lapse: OnLapse,
    pub(super) manners: Manners,
}

/// What an observer outside knows of one claim call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Call {
    /// The epoch it was granted; 0 for none.
    pub(super) epoch: u64,
    /// The attempt it was granted.
    pub(super) attempt: u32,
    /// Until when, in real time, its holder believes to be entitled.
    pub(super) until: u64,
    /// Whether it caused its effect.
    pub(super) effect: bool,
    /// Whether it has said, or it was proven, that it never will.
    pub(super) retired: bool,
}

/// What an observer outside knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ghost {
    pub(super) real: u64,
    /// When the current leadership began.
    pub(super) led_since: u64,
    pub(super) calls: [Call; CALLS.len()],
    /// The highest epoch ever seen.
    pub(super) top_epoch: u64,
    /// The real time before which the newest grant or renewal must not end: when it was asked for, and its length.
    pub(super) live_until: u64,
    /// A proof that the newest attempt had no effect and never will, not yet delivered: the epoch it was read under.
    pub(super) proof_epoch: u64,
    pub(super) proof_attempt: u32,
}

/// A state of everything.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) memory: Memory,
    pub(super) ghost: Ghost,
}

/// Something that may happen next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Real time passes; nothing is stamped, unless one leader measures all time.
    Pass,
    /// Another leader begins.
    Elect,
    /// A call causes its effect.
    Effect(usize),
    /// Somebody proves that the newest attempt has no effect and never will have.
    Prove,
    /// A command is applied that was stamped just now, or that waited since its leader was elected.
    Apply { command: Box<Command>, not_after: LeaseTime, old_stamp: bool },
}

impl Action {
    /// The action in a line, for the path to a broken promise.
    pub(super) fn told(&self) -> String {
        let Self::Apply { command, old_stamp, .. } = self else { return format!("{self:?}") };
        let attempt = |id: &ExecutionId| format!("execution of call {}", id.random[15] - 1);
        let line = match command.as_ref() {
            Command::Claim(it) => format!("{} claims, call {} {:?}", it.caller.client, it.claim_id.0[15], it.digest),
            Command::Renew(it) => {
                format!("{} renews {} epoch {}", it.caller.client, attempt(&it.execution_id), it.lease_epoch)
            }
            Command::Report(it) => {
                let (client, id) = (&it.caller.client, attempt(&it.execution_id));
                format!("{client} reports {id} epoch {} {:?}", it.lease_epoch, it.outcome)
            }
            Command::Evidence(it) => {
                let (client, id) = (&it.caller.client, attempt(&it.execution_id));
                format!("{client} tells of {id}, call {} {:?}", it.claim_id.0[15], it.outcome)
            }
            Command::Resolve(it) => {
                format!("resolve {} epoch {} {:?}", attempt(&it.execution_id), it.lease_epoch, it.outcome)
            }
            other => format!("{other:?}"),
        };
        if *old_stamp { line + ", old stamp" } else { line }
    }
}

/// The rules, or a broken copy of them.
pub(super) type Rules = fn(&Memory, &EntryHead, &Envelope) -> (Changes, Outcome);

/// One step of the exploration.
pub(super) struct Step<'w> {
    pub(super) setting: Setting,
    pub(super) before: &'w World,
    pub(super) action: &'w Action,
    pub(super) after: World,
    /// What a command came to; `None` where no command was applied.
    pub(super) answer: Option<Answer>,
    /// Rows written.
    pub(super) rows: usize,
    /// What the same command came to at once again, where the first one wrote anything, and the rows it then wrote.
    pub(super) again: Option<(Answer, usize)>,
}

impl Setting {
    /// How many of the calls are made.
    fn calls(self) -> usize {
        match self.manners {
            Manners::Any => 2,
            Manners::Honest => 3,
        }
    }

    /// In how many steps a millisecond of real time passes: where one leader measures all of it, stamps are rounded.
    fn steps_per_ms(self) -> u64 {
        match self.manners {
            Manners::Any => 1,
            Manners::Honest => 2,
        }
    }

    /// Where real time ends, in steps: after the first lease can have ended.
    fn real_end(self) -> u64 {
        match self.manners {
            Manners::Any => 2,
            Manners::Honest => 4,
        }
    }
}

impl World {
    pub(super) fn new(setting: Setting) -> Self {
        let memory = Memory::with(vec![namespace("t", "n", setting.on_lapse, Attempts::Automatic)]);
        Self { memory, ghost: Ghost::default() }
    }

    pub(super) fn operation(&self) -> Option<&OperationRecord> {
        self.memory.operations.get(&row())
    }

    /// Everything that may happen next.
    pub(super) fn actions(&self, setting: Setting) -> Vec<Action> {
        let mut actions = Vec::new();
        // Time is of no consequence any more once nothing can end by it.
        let over = self.operation().is_some_and(|operation| operation.state().is_terminal());
        if self.ghost.real < setting.real_end() && !over {
            actions.push(Action::Pass);
        }
        // Leaders come and go where anything may be said; where effects are looked at, one of them measures all time.
        let unruly = setting.manners == Manners::Any;
        if self.memory.head.clocks.term < TERMS && !over && unruly {
            actions.push(Action::Elect);
        }
        let mut apply = |command, not_after, old_stamp| {
            actions.push(Action::Apply { command: Box::new(command), not_after: LeaseTime(not_after), old_stamp });
        };
        if unruly {
            apply(Command::Tick, u64::MAX, false);
        }
        for call in (0..setting.calls()).filter(|call| self.may_claim(*call)) {
            apply(claim(call, "d"), u64::MAX, false);
            if call == BOBS && unruly {
                apply(claim(call, "d"), LATE_COPY_NOT_AFTER_MS, false);
                apply(claim(call, "d"), u64::MAX, true);
            }
        }
        let Some(operation) = self.operation() else { return actions };
        let stored = operation.newest();
        let seen = Lapse { operation: row(), lease_epoch: stored.lease_epoch, deadline: stored.deadline };
        apply(Command::Lapse(seen), u64::MAX, false);
        apply(Command::Lapse(Lapse { deadline: LeaseTime(stored.deadline.0 - 1), ..seen }), u64::MAX, false);
        match setting.manners {
            Manners::Any => self.any_words(&mut actions),
            Manners::Honest => self.honest_words(&mut actions),
        }
        actions
    }

    /// The exploration ends where a third attempt would begin.
    fn may_claim(&self, call: usize) -> bool {
        let known = self.ghost.calls[call].epoch != 0;
        known
            || self
                .operation()
                .is_none_or(|operation| operation.attempt().0 < ATTEMPTS || !known_not_applied(operation))
    }

    fn any_words(&self, actions: &mut Vec<Action>) {
        let mut say = |command| {
            actions.push(deliver(command));
        };
        // Another request under the key, and another one under a granted claim's id.
        say(claim(BOBS, "other"));
        if self.ghost.calls[0].epoch != 0 {
            say(claim_as("bob", 0, "d"));
        }
        for execution_id in self.executions() {
            for lease_epoch in self.epochs() {
                for client in ["alice", "bob"] {
                    say(renew(client, execution_id, lease_epoch));
                    for outcome in [None, Some(Definite::Completed), Some(Definite::NotApplied)] {
                        say(report(client, execution_id, lease_epoch, outcome));
                    }
                }
                for outcome in [Definite::Completed, Definite::NotApplied] {
                    say(resolve(execution_id, lease_epoch, outcome));
                }
            }
            for (call, client) in CALLS.into_iter().enumerate().take(BOBS + 1) {
                for outcome in [Definite::Completed, Definite::NotApplied] {
                    say(evidence(client, call, execution_id, outcome));
                }
            }
            say(evidence("bob", 0, execution_id, Definite::Completed));
        }
    }

    /// Only what is true, but at any time: late, again, or never.
    fn honest_words(&self, actions: &mut Vec<Action>) {
        let mut words = Vec::new();
        for (number, call) in self.ghost.calls.iter().enumerate().filter(|(_, call)| call.epoch != 0) {
            let (client, epoch) = (CALLS[number], LeaseEpoch(call.epoch));
            let Some(execution_id) = self.execution_of(call.attempt) else { continue };
            if !call.effect && !call.retired && self.effect_is_let_in(call) {
                actions.push(Action::Effect(number));
            }
            words.push(renew(client, execution_id, epoch));
            words.push(report(client, execution_id, epoch, None));
            let fact = if call.effect { Definite::Completed } else { Definite::NotApplied };
            words.push(report(client, execution_id, epoch, Some(fact)));
            words.push(evidence(client, number, execution_id, fact));
        }
        if let Some(operation) = self.operation() {
            let newest = operation.newest();
            let holders = || self.ghost.calls.iter().filter(|call| call.attempt == newest.attempt.0);
            if holders().any(|call| call.effect) {
                words.push(resolve(newest.id, newest.lease_epoch, Definite::Completed));
            } else {
                actions.push(Action::Prove);
            }
        }
        if let Some(proven) = self.execution_of(self.ghost.proof_attempt) {
            words.push(resolve(proven, LeaseEpoch(self.ghost.proof_epoch), Definite::NotApplied));
        }
        actions.extend(words.into_iter().map(deliver));
    }

    /// Under takeover the effect itself checks the epoch: nothing older than what was let in before gets in.
    fn effect_is_let_in(&self, call: &Call) -> bool {
        let newest_effect = self.ghost.calls.iter().filter(|one| one.effect).map(|one| one.epoch).max();
        newest_effect.is_none_or(|newest| call.epoch > newest)
            || self.memory.namespaces.values().all(|policy| policy.on_lapse == OnLapse::Unknown)
    }

    fn executions(&self) -> Vec<ExecutionId> {
        self.memory.executions.keys().map(|(_, id)| *id).collect()
    }

    fn execution_of(&self, attempt: u32) -> Option<ExecutionId> {
        let newest = self.operation()?.newest();
        if newest.attempt.0 == attempt {
            return Some(newest.id);
        }
        let mut past = self.memory.executions.values().filter_map(|row| row.past.as_ref());
        past.find(|past| past.attempt.0 == attempt).map(|past| past.id)
    }

    /// Every epoch that anybody may know: the granted ones and the current one.
    fn epochs(&self) -> Vec<LeaseEpoch> {
        let mut epochs: Vec<u64> =
            self.ghost.calls.iter().map(|call| call.epoch).filter(|epoch| *epoch != 0).collect();
        epochs.extend(self.operation().map(|operation| operation.newest().lease_epoch.0));
        epochs.sort_unstable();
        epochs.dedup();
        epochs.into_iter().map(LeaseEpoch).collect()
    }

    /// Does `action` under `rules`.
    pub(super) fn step<'w>(&'w self, setting: Setting, action: &'w Action, rules: Rules) -> Step<'w> {
        let mut after = self.clone();
        let (mut answer, mut rows, mut again) = (None, 0, None);
        match action {
            Action::Pass => {
                after.ghost.real += 1;
                if setting.manners == Manners::Honest {
                    let head = self.head(self.memory.head.clocks.term, after.ghost.real / setting.steps_per_ms());
                    let (changes, _) = rules(&after.memory, &head, &tick());
                    after.memory.commit(changes);
                }
            }
            Action::Elect => {
                after.ghost.led_since = after.ghost.real;
                let head = self.head(self.memory.head.clocks.term + 1, 0);
                let (changes, _) = rules(&after.memory, &head, &tick());
                after.memory.commit(changes);
            }
            Action::Effect(call) => after.ghost.calls[*call].effect = true,
            Action::Prove => after.ghost.prove(self.operation().expect("only offered where there is one")),
            Action::Apply { command, not_after, old_stamp } => {
                let lead = if *old_stamp { 0 } else { self.ghost.real - self.ghost.led_since };
                let head = self.head(self.memory.head.clocks.term, lead / setting.steps_per_ms());
                let envelope = Envelope { not_after: *not_after, command: command.as_ref().clone() };
                let (changes, outcome) = rules(&after.memory, &head, &envelope);
                rows = changes.rows.len();
                after.memory.commit(changes);
                if rows > 0 {
                    // At another index, so that a row written again shows.
                    let (changes, outcome) =
                        rules(&after.memory, &EntryHead { index: head.index + 1, ..head }, &envelope);
                    again = Some((outcome.answer, changes.rows.len()));
                }
                let asked = self.ghost.led_since + lead;
                after.ghost.hear(
                    setting.steps_per_ms(),
                    command,
                    &outcome.answer,
                    asked,
                    after.memory.operations.get(&row()),
                );
                if setting.manners == Manners::Honest {
                    after.ghost.take_at_its_word(command);
                }
                // What was said is of no consequence for what may happen next.
                after.memory.evidence.clear();
                answer = Some(outcome.answer);
            }
        }
        Step { setting, before: self, action, after, answer, rows, again }
    }

    fn head(&self, term: u64, lead_ms: u64) -> EntryHead {
        entry(9, term, Stamp { wall_ms: 0, lead_ms })
    }

    /// What tells this state from another: no revisions, no wall, no evidence, no hash.
    /// What was last kept as evidence decides only whether the same is written again, which is looked at in every step.
    pub(super) fn key(&self) -> Vec<u64> {
        let clocks = &self.memory.head.clocks;
        let ghost = &self.ghost;
        let mut key = vec![clocks.term, clocks.lead_ms, clocks.lease_time.0, self.memory.head.grants.0];
        // Promises and beliefs that are over are no different from none.
        let ahead = |until: u64| if until > ghost.real { until } else { 0 };
        key.extend([ghost.real, ghost.led_since, ghost.top_epoch, ahead(ghost.live_until)]);
        key.extend([ghost.proof_epoch, u64::from(ghost.proof_attempt)]);
        for call in &ghost.calls {
            let flags = u64::from(call.effect) << 1 | u64::from(call.retired);
            key.extend([call.epoch, u64::from(call.attempt), ahead(call.until), flags]);
        }
        if let Some(operation) = self.operation() {
            key.extend([u64::from(operation.quarantined), u64::from(operation.digest.0[0])]);
            stored(&mut key, operation.newest());
        }
        for row in self.memory.executions.values() {
            row.past.iter().for_each(|past| stored(&mut key, past));
        }
        for ((_, _, claim), grant) in &self.memory.grants {
            key.extend([u64::from(claim.0[15]), u64::from(grant.execution.random[15]), grant.lease_epoch.0]);
        }
        key
    }
}

fn stored(key: &mut Vec<u64>, execution: &Execution) {
    let report = execution.report.map_or(0, |report| u64::from(report.content.0[0]) << 32 | report.lease_epoch.0);
    let outcome = execution.outcome.as_ref().map_or(9, |outcome| outcome.outcome as u64);
    key.extend([u64::from(execution.id.random[15]), u64::from(execution.attempt.0), execution.state as u64]);
    key.extend([u64::from(execution.claim_id.0[15]), execution.lease_epoch.0, execution.deadline.0, report, outcome]);
    key.push(u64::from(execution.renewed) << 1 | u64::from(execution.sole_holder));
    key.push(execution.claimed.as_ref().map_or(9, |claimed| claimed.outcome as u64));
}

fn known_not_applied(operation: &OperationRecord) -> bool {
    operation.newest().outcome.as_ref().is_some_and(|outcome| outcome.outcome == Definite::NotApplied)
}

impl Ghost {
    /// Whoever proves it makes sure that no holder of the attempt so far will cause its effect.
    fn prove(&mut self, operation: &OperationRecord) {
        let newest = operation.newest();
        self.proof_epoch = newest.lease_epoch.0;
        self.proof_attempt = newest.attempt.0;
        let holders = self.calls.iter_mut().filter(|call| call.attempt == newest.attempt.0);
        holders.for_each(|call| call.retired = true);
    }

    /// Takes note of a command and its answer. The answer may be lost on its way: believing it is the worse case.
    /// A caller counts its lease from when it asked, which was before the leader stamped what it asked.
    fn hear(
        &mut self,
        steps_per_ms: u64,
        command: &Command,
        answer: &Answer,
        asked: u64,
        operation: Option<&OperationRecord>,
    ) {
        match (command, answer) {
            (Command::Claim(command), Answer::Claimed(grant)) => {
                let call = &mut self.calls[usize::from(command.claim_id.0[15])];
                if call.epoch != grant.lease.lease_epoch.0 {
                    self.live_until = asked + command.lease_ms * steps_per_ms;
                }
                call.epoch = grant.lease.lease_epoch.0;
                call.attempt = grant.attempt.0;
                call.until = call.until.max(asked + grant.lease.remaining_ms * steps_per_ms);
            }
            (Command::Renew(command), Answer::Renewed(lease)) => {
                self.live_until = self.live_until.max(asked + command.lease_ms * steps_per_ms);
                if let Some(call) = self.calls.iter_mut().find(|call| call.epoch == command.lease_epoch.0) {
                    call.until = call.until.max(asked + lease.remaining_ms * steps_per_ms);
                }
            }
            (Command::Report(command), _) => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.epoch == command.lease_epoch.0) {
                    call.until = 0;
                }
            }
            _ => {}
        }
        if let Some(operation) = operation {
            self.top_epoch = self.top_epoch.max(operation.newest().lease_epoch.0);
        }
    }
}

impl Ghost {
    /// Who honestly says that nothing happened will not let it happen afterwards.
    fn take_at_its_word(&mut self, command: &Command) {
        let calls = &mut self.calls;
        let speaker = match command {
            Command::Report(report) if report.outcome == Some(Definite::NotApplied) => {
                calls.iter_mut().find(|call| call.epoch == report.lease_epoch.0)
            }
            Command::Evidence(told) if told.outcome == Definite::NotApplied => {
                calls.get_mut(usize::from(told.claim_id.0[15]))
            }
            _ => None,
        };
        if let Some(call) = speaker {
            call.retired = true;
        }
    }
}

/// The one operation's row.
pub(super) fn row() -> OperationKey {
    OperationKey::new(&caller("t", "").tenant, &InternalKey([1; 32]))
}

/// Whether `changes` write an operation; gives it for changing.
pub(super) fn written(changes: &mut Changes) -> Option<&mut OperationRecord> {
    changes.rows.iter_mut().find_map(|row| match row {
        Change::Operation { record, .. } => Some(&mut **record),
        _ => None,
    })
}

fn deliver(command: Command) -> Action {
    Action::Apply { command: Box::new(command), not_after: LeaseTime(u64::MAX), old_stamp: false }
}

fn tick() -> Envelope {
    Envelope { not_after: LeaseTime(u64::MAX), command: Command::Tick }
}

fn who(client: &str) -> Caller {
    caller("t", client)
}

pub(super) fn claim_id(call: usize) -> ClaimId {
    ClaimId(bytes16(call as u64))
}

fn claim(call: usize, digest: &str) -> Command {
    claim_as(CALLS[call], call, digest)
}

fn claim_as(client: &str, call: usize, digest: &str) -> Command {
    Command::Claim(Claim {
        caller: who(client),
        namespace: NamespaceName::new("n"),
        internal_key: InternalKey([1; 32]),
        slot: Slot(7),
        digest: Digest([digest.len() as u8; 32]),
        claim_id: claim_id(call),
        owner: client.into(),
        lease_ms: LEASE_MS,
        attempt: None,
        correlation_id: None,
        execution_id: ExecutionId { slot: Slot(7), random: bytes16(call as u64 + 1) },
        capability_id: None,
        message: None,
        epoch: None,
        resource: None,
        key_created_at: None,
    })
}

fn renew(client: &str, execution_id: ExecutionId, lease_epoch: LeaseEpoch) -> Command {
    Command::Renew(Renew { caller: who(client), execution_id, lease_epoch, lease_ms: LEASE_MS })
}

fn report(client: &str, execution_id: ExecutionId, lease_epoch: LeaseEpoch, outcome: Option<Definite>) -> Command {
    let data = ResultData::default();
    Command::Report(Report { caller: who(client), execution_id, lease_epoch, outcome, data })
}

fn evidence(client: &str, call: usize, execution_id: ExecutionId, outcome: Definite) -> Command {
    let (claim_id, data) = (claim_id(call), ResultData::default());
    Command::Evidence(Evidence { caller: who(client), execution_id, claim_id, outcome, data, proof: None })
}

fn resolve(execution_id: ExecutionId, lease_epoch: LeaseEpoch, outcome: Definite) -> Command {
    let (data, proof) = (ResultData::default(), String::new());
    Command::Resolve(Resolve { caller: who("rec"), execution_id, lease_epoch, outcome, data, proof })
}
