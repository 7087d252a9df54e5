//! The entry point: one log entry in, changes and outcomes out.
//! Dispatches on the entry's rule version, so that a replayed old entry means what it meant when it was proposed.

use alloc::vec::Vec;

use crate::change::{Change, Changes, Head};
use crate::claim::claim;
use crate::command::{AdvanceWall, Bootstrap, Caller, Command, EntryHead, Envelope};
use crate::evidence::evidence;
use crate::ids::{ExecutionId, Incarnation, LeaseTime, Revision, RuleVersion, TenantTag, WallTime};
use crate::lease::{lapse, renew};
use crate::namespace::{ConflictStyle, NamespaceRecord, OnLapse};
use crate::operation::{self, Execution, ExecutionRecord, OperationRecord, State};
use crate::outcome::{Answer, Outcome, Refusal, Refused, Standing};
use crate::report::report;
use crate::resolve::resolve;
use crate::state_hash;
use crate::view::{Overlay, View};

/// The newest rules this build knows.
pub const RULES: RuleVersion = RuleVersion(1);

/// Why an entry could not be applied. Either way the node must stop: its state no longer follows the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault<E> {
    /// The view failed.
    View(E),
    /// The entry was proposed under rules that this build does not know.
    UnknownRules(RuleVersion),
}

/// Applies one entry to `view`: its stamp first, then its commands in order, each seeing those before it.
///
/// Returns the head and rows to write and one outcome per command, in order.
pub fn apply_entry<V: View>(
    view: &V,
    entry: &EntryHead,
    commands: &[Envelope],
) -> Result<(Changes, Vec<Outcome>), Fault<V::Error>> {
    if entry.rules != RULES {
        return Err(Fault::UnknownRules(entry.rules));
    }
    let mut overlay = Overlay::new(view);
    let mut head = view.head();
    head.clocks = head.clocks.advanced(entry.term, entry.stamp);
    overlay.absorb(Changes { head, rows: Vec::new() });
    let mut outcomes = Vec::with_capacity(commands.len());
    for (ordinal, envelope) in (0u32..).zip(commands) {
        let (changes, outcome) = apply(&overlay, entry, ordinal, envelope).map_err(Fault::View)?;
        overlay.absorb(changes);
        outcomes.push(outcome);
    }
    let mut changes = overlay.into_changes();
    changes.head.state_hash = state_hash::chained(&changes.head, entry, &changes.rows);
    Ok((changes, outcomes))
}

fn apply<V: View>(
    view: &V,
    entry: &EntryHead,
    ordinal: u32,
    envelope: &Envelope,
) -> Result<(Changes, Outcome), V::Error> {
    let mut step = Step::new(view, entry, ordinal);
    let answer = if step.now() > envelope.not_after { Answer::TooLate } else { step.run(&envelope.command)? };
    let outcome = Outcome { revision: step.revision, answer };
    Ok((Changes { head: step.head, rows: step.rows }, outcome))
}

/// One command being applied: what it sees, and what it has changed so far.
pub(crate) struct Step<'v, V> {
    pub(crate) view: &'v V,
    pub(crate) head: Head,
    pub(crate) revision: Revision,
    pub(crate) rows: Vec<Change>,
}

/// An operation that a caller addressed by an execution of it, settled.
pub(crate) struct Found {
    pub(crate) policy: NamespaceRecord,
    pub(crate) operation: OperationRecord,
    /// The addressed execution where a later one has taken its place.
    pub(crate) past: Option<Execution>,
}

impl Found {
    pub(crate) fn execution(&self) -> &Execution {
        self.past.as_ref().unwrap_or(&self.operation.execution)
    }

    pub(crate) fn refused(&self, reason: Refusal) -> Answer {
        refused(reason, Some(&self.operation), &self.policy)
    }

    pub(crate) fn accepted(&self, now: LeaseTime) -> Answer {
        Answer::Accepted(standing(&self.operation, &self.policy, now))
    }
}

impl<'v, V: View> Step<'v, V> {
    fn new(view: &'v V, entry: &EntryHead, ordinal: u32) -> Self {
        let head = view.head();
        let revision = Revision { incarnation: head.incarnation, group: entry.group, index: entry.index, ordinal };
        Self { view, head, revision, rows: Vec::new() }
    }

    fn run(&mut self, command: &Command) -> Result<Answer, V::Error> {
        match command {
            Command::Claim(command) => claim(self, command),
            Command::Renew(command) => renew(self, command),
            Command::Report(command) => report(self, command),
            Command::Evidence(command) => evidence(self, command),
            Command::Resolve(command) => resolve(self, command),
            Command::Lapse(command) => lapse(self, command),
            Command::AdvanceWall(command) => Ok(self.advance_wall(*command)),
            Command::Bootstrap(command) => Ok(self.bootstrap(command)),
            Command::Tick => Ok(Answer::Ticked),
        }
    }

    pub(crate) fn now(&self) -> LeaseTime {
        self.head.clocks.lease_time
    }

    pub(crate) fn wall(&self) -> WallTime {
        self.head.clocks.wall
    }

    /// Settles `operation` and keeps the change, whatever becomes of the command.
    pub(crate) fn settle(&mut self, operation: &mut OperationRecord, on_lapse: OnLapse) {
        let (now, wall) = (self.now(), self.wall());
        if operation::settle(operation, on_lapse, now, wall, &mut self.head.grants) {
            self.put(operation);
        }
    }

    /// Writes `operation` as changed by this command.
    pub(crate) fn put(&mut self, operation: &mut OperationRecord) {
        operation.updated_at = self.wall();
        operation.modified = self.revision;
        self.rows.push(Change::Operation(operation.clone()));
    }

    /// Finds the operation of an execution for `caller`, settled; `None` where it is absent or not theirs.
    pub(crate) fn find(&mut self, caller: &Caller, id: &ExecutionId) -> Result<Option<Found>, V::Error> {
        let tenant = TenantTag::of(&caller.tenant);
        let Some(ExecutionRecord { operation, birth, past }) = self.view.execution(tenant, id)? else {
            return Ok(None);
        };
        let Some(operation) = self.view.operation(&operation)?.filter(|found| found.id.birth == birth) else {
            return Ok(None);
        };
        if operation.tenant != caller.tenant || !caller.may_use(&operation.namespace) {
            return Ok(None);
        }
        self.settled(operation, past)
    }

    fn settled(
        &mut self,
        mut operation: OperationRecord,
        past: Option<Execution>,
    ) -> Result<Option<Found>, V::Error> {
        let Some(policy) = self.view.namespace(&operation.tenant, &operation.namespace)? else {
            return Ok(None);
        };
        self.settle(&mut operation, policy.on_lapse);
        Ok(Some(Found { policy, operation, past }))
    }

    fn advance_wall(&mut self, command: AdvanceWall) -> Answer {
        match self.head.clocks.advance_wall(command.target, command.by_operator) {
            Some(clocks) => {
                self.head.clocks = clocks;
                Answer::Wall(clocks.wall)
            }
            None => not_about_an_operation(Refusal::WallStep),
        }
    }

    fn bootstrap(&mut self, command: &Bootstrap) -> Answer {
        if self.head.incarnation != Incarnation(0) {
            return not_about_an_operation(Refusal::AlreadyBootstrapped);
        }
        self.head.incarnation = Incarnation(1);
        self.revision.incarnation = Incarnation(1);
        self.head.cluster_id = command.cluster_id;
        // Stamps before the bootstrap may have moved the wall already; it never goes back.
        self.head.clocks.wall = self.wall().max(WallTime(command.wall_ms));
        self.head.grants = self.head.grants.raised_to(command.wall_ms);
        self.rows.extend(command.namespaces.iter().cloned().map(Change::Namespace));
        self.rows.extend(command.tokens.iter().cloned().map(Change::Token));
        Answer::Bootstrapped
    }
}

/// A refusal of something that no caller's namespace shapes.
pub(crate) fn not_about_an_operation(reason: Refusal) -> Answer {
    Answer::Refused(Refused { reason, operation_id: None, conflict_style: ConflictStyle::Hapax })
}

pub(crate) fn refused(reason: Refusal, operation: Option<&OperationRecord>, policy: &NamespaceRecord) -> Answer {
    let operation_id = operation.map(|found| found.id);
    Answer::Refused(Refused { reason, operation_id, conflict_style: policy.conflict_style })
}

pub(crate) fn standing(operation: &OperationRecord, policy: &NamespaceRecord, now: LeaseTime) -> Standing {
    let execution = &operation.execution;
    let running = execution.state == State::Executing && !execution.lapsed(now);
    Standing {
        operation_id: operation.id,
        execution_id: execution.id,
        attempt: execution.attempt,
        state: execution.state,
        lease_remaining_ms: running.then(|| execution.remaining_ms(now)),
        namespace: operation.namespace.clone(),
        conflict_style: policy.conflict_style,
    }
}
