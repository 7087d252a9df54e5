//! The entry point: one log entry in, changes and outcomes out.
//! Dispatches on the entry's rule version, so that a replayed old entry means what it meant when it was proposed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::admin;
use crate::capability;
use crate::change::{Change, Changes, Event, Head};
use crate::claim::claim;
use crate::command::{AdvanceWall, Bootstrap, Caller, Command, EntryHead, Envelope};
use crate::epoch;
use crate::evidence::evidence;
use crate::ids::{
    Attempt, ExecutionId, Incarnation, LeaseTime, NamespaceName, OperationId, OperationKey, Revision, RuleVersion,
    TenantId, TenantTag, WallTime,
};
use crate::lease::{lapse, renew, settle_now};
use crate::namespace::{ConflictStyle, NamespaceRecord, NamespaceStatus};
use crate::operation::{self, Class, Execution, ExecutionRecord, OperationRecord, Place, State};
use crate::outcome::{Answer, Outcome, Refusal, Refused, Standing};
use crate::reconcile;
use crate::refusal;
use crate::register::register;
use crate::repair;
use crate::report::report;
use crate::resolve::resolve;
use crate::retention::{self, Shown};
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
    overlay.absorb(Changes { head, ..Changes::default() });
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
    Ok((step.into_changes(), outcome))
}

/// One command being applied: what it sees, and what it has changed so far.
pub(crate) struct Step<'v, V> {
    pub(crate) view: Shown<'v, V>,
    pub(crate) head: Head,
    pub(crate) revision: Revision,
    pub(crate) rows: Vec<Change>,
    /// What this command found of each operation that it looked at, and has made of it since.
    seen: Vec<(OperationKey, Seen)>,
    /// The namespaces whose status this command changed.
    statuses: Vec<(TenantId, NamespaceName, NamespaceStatus)>,
    events: Vec<Event>,
}

/// What lists, counts and watchers know of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    place: Place,
    state: State,
    attempt: Attempt,
    execution: Option<ExecutionId>,
    superseded: bool,
}

impl Seen {
    fn of(record: &OperationRecord) -> Self {
        Self {
            place: record.place(),
            state: record.state(),
            attempt: record.attempt(),
            execution: record.execution.as_ref().map(|execution| execution.id),
            superseded: record.superseded_by.is_some(),
        }
    }
}

const HAS_EXECUTION: &str = "it was found by an execution of it, and executions are never taken away";

/// An operation that a caller addressed by an execution of it, settled. Invariant: it has an execution.
pub(crate) struct Found {
    pub(crate) policy: NamespaceRecord,
    pub(crate) operation: OperationRecord,
    /// The addressed execution where a later one has taken its place.
    pub(crate) past: Option<Box<Execution>>,
}

impl Found {
    /// The addressed execution.
    pub(crate) fn execution(&self) -> &Execution {
        self.past.as_deref().unwrap_or_else(|| self.newest())
    }

    /// The operation's newest execution.
    pub(crate) fn newest(&self) -> &Execution {
        self.operation.execution.as_ref().expect(HAS_EXECUTION)
    }

    pub(crate) fn newest_mut(&mut self) -> &mut Execution {
        self.operation.execution.as_mut().expect(HAS_EXECUTION)
    }

    pub(crate) fn refused(&self, reason: Refusal) -> Answer {
        refused(reason, Some(&self.operation), &self.policy)
    }

    pub(crate) fn accepted(&self, now: LeaseTime) -> Answer {
        Answer::Accepted(standing(&self.operation, &self.policy, now))
    }
}

impl<'v, V: View> Step<'v, V> {
    pub(crate) fn new(view: &'v V, entry: &EntryHead, ordinal: u32) -> Self {
        let head = view.head();
        let revision = Revision { incarnation: head.incarnation, group: entry.group, index: entry.index, ordinal };
        Self {
            view: Shown(view),
            head,
            revision,
            rows: Vec::new(),
            seen: Vec::new(),
            statuses: Vec::new(),
            events: Vec::new(),
        }
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
            Command::Register(command) => register(self, command),
            Command::Issue(command) => capability::issue(self, command),
            Command::IssueBounded(command) => capability::issue_bounded(self, command),
            Command::Revoke(command) => capability::revoke(self, command),
            Command::BumpEpoch(command) => epoch::bump(self, command),
            Command::ReconcileLease(command) => reconcile::lease(self, command),
            Command::Escalate(command) => reconcile::escalate(self, command),
            Command::ForceFence(command) => repair::fence(self, command),
            Command::Repair(command) => repair::repair(self, command),
            Command::Settle(key) => settle_now(self, key),
            Command::RaiseFloors(command) => retention::raise_floors(self, command),
            Command::CountRefusals(counted) => refusal::count_repeated(self, counted),
            Command::PutNamespace(command) => admin::put_namespace(self, command),
            Command::PutTenant(command) => admin::put_tenant(self, command),
            Command::CreateToken(command) => admin::create_token(self, command),
            Command::RevokeToken(command) => admin::revoke_token(self, command),
        }
    }

    pub(crate) fn into_changes(mut self) -> Changes {
        let statuses = self.statuses.into_iter();
        self.rows.extend(statuses.map(|(tenant, name, status)| Change::Status(tenant, name, status)));
        Changes { head: self.head, rows: self.rows, events: self.events }
    }

    pub(crate) fn now(&self) -> LeaseTime {
        self.head.clocks.lease_time
    }

    pub(crate) fn wall(&self) -> WallTime {
        self.head.clocks.wall
    }

    /// Reads an operation, and remembers where this command found it. Rules read operations by nothing else.
    pub(crate) fn load(&mut self, key: &OperationKey) -> Result<Option<OperationRecord>, V::Error> {
        let found = self.view.operation(key)?;
        if let Some(record) = &found
            && !self.seen.iter().any(|(seen, _)| seen == key)
        {
            self.seen.push((*key, Seen::of(record)));
        }
        Ok(found)
    }

    /// Settles `operation` and keeps the change, whatever becomes of the command.
    pub(crate) fn settle(
        &mut self,
        operation: &mut OperationRecord,
        policy: &NamespaceRecord,
    ) -> Result<(), V::Error> {
        let fenced = is_fenced(&self.view, operation)?;
        let (now, wall) = (self.now(), self.wall());
        if operation::settle(operation, fenced, policy, now, wall, &mut self.head.grants) {
            self.put(operation)?;
        }
        Ok(())
    }

    /// Writes `operation` as changed by this command.
    pub(crate) fn put(&mut self, operation: &mut OperationRecord) -> Result<(), V::Error> {
        operation.updated_at = self.wall();
        operation.modified = self.revision;
        self.write(operation)
    }

    /// Writes what was noted down beside an operation, whose own revision stays. Lists, counts and watchers follow.
    pub(crate) fn write(&mut self, operation: &OperationRecord) -> Result<(), V::Error> {
        let (key, now) = (operation.key(), Seen::of(operation));
        let place = self.seen.iter().position(|(seen, _)| *seen == key);
        let was = place.map(|n| core::mem::replace(&mut self.seen[n].1, now));
        if place.is_none() {
            self.seen.push((key, now));
        }
        self.count(operation, was.map(|was| was.place.class), now.place.class)?;
        if was != Some(now) {
            self.announce(operation);
        }
        self.rows.push(Change::Operation { record: Box::new(operation.clone()), was: was.map(|was| was.place) });
        Ok(())
    }

    /// Keeps the counts of a namespace equal to what its operations are.
    fn count(&mut self, operation: &OperationRecord, was: Option<Class>, is: Class) -> Result<(), V::Error> {
        let open = |class: Class| u64::from(!matches!(class, Class::Completed | Class::Failed));
        let unknown = |class: Class| u64::from(matches!(class, Class::Unknown | Class::Escalated));
        let before = (was.map_or(0, open), was.map_or(0, unknown));
        let after = (open(is), unknown(is));
        if before == after {
            return Ok(());
        }
        self.change_status(&operation.tenant, &operation.namespace, |status| {
            status.open = (status.open + after.0).saturating_sub(before.0);
            status.unknown = (status.unknown + after.1).saturating_sub(before.1);
        })
    }

    fn announce(&mut self, operation: &OperationRecord) {
        let execution = operation.execution.as_ref();
        self.events.push(Event {
            revision: self.revision,
            part: u32::try_from(self.events.len()).unwrap_or(u32::MAX),
            tenant: TenantTag::of(&operation.tenant),
            namespace: operation.namespace.clone(),
            operation: operation.id,
            state: operation.state(),
            attempt: operation.attempt(),
            execution: execution.map(|execution| execution.id),
            escalated: operation.place().class == Class::Escalated,
            quarantined: operation.quarantined,
        });
    }

    /// What changes in a namespace by itself, with this command's own changes.
    pub(crate) fn status(&self, tenant: &TenantId, name: &NamespaceName) -> Result<NamespaceStatus, V::Error> {
        match self.statuses.iter().find(|(of, named, _)| of == tenant && named == name) {
            Some((_, _, status)) => Ok(*status),
            None => self.view.status(tenant, name),
        }
    }

    pub(crate) fn change_status(
        &mut self,
        tenant: &TenantId,
        name: &NamespaceName,
        change: impl FnOnce(&mut NamespaceStatus),
    ) -> Result<(), V::Error> {
        let mut status = self.status(tenant, name)?;
        change(&mut status);
        match self.statuses.iter_mut().find(|(of, named, _)| of == tenant && named == name) {
            Some((_, _, stands)) => *stands = status,
            None => self.statuses.push((tenant.clone(), name.clone(), status)),
        }
        Ok(())
    }

    /// Finds the operation of an execution for `caller`, settled; `None` where it is absent or not theirs.
    pub(crate) fn find(&mut self, caller: &Caller, id: &ExecutionId) -> Result<Option<Found>, V::Error> {
        let tenant = TenantTag::of(&caller.tenant);
        let Some(ExecutionRecord { operation, birth, past }) = self.view.execution(tenant, id)? else {
            return Ok(None);
        };
        let Some(operation) = self.load(&operation)?.filter(|found| found.id.birth == birth) else {
            return Ok(None);
        };
        let Some((policy, operation)) = self.visible(caller, operation)? else {
            return Ok(None);
        };
        let newest = operation.execution.as_ref();
        // Only the newest execution lives in the operation's own row.
        let there = newest.is_some_and(|newest| past.is_some() || newest.id == *id);
        Ok(there.then_some(Found { policy, operation, past }))
    }

    /// Finds an operation for `caller`, settled; `None` where it is absent or not theirs.
    pub(crate) fn find_operation(
        &mut self,
        caller: &Caller,
        id: &OperationId,
    ) -> Result<Option<(NamespaceRecord, OperationRecord)>, V::Error> {
        match self.load(&id.key(&caller.tenant))?.filter(|record| record.id == *id) {
            Some(operation) => self.visible(caller, operation),
            None => Ok(None),
        }
    }

    fn visible(
        &mut self,
        caller: &Caller,
        mut operation: OperationRecord,
    ) -> Result<Option<(NamespaceRecord, OperationRecord)>, V::Error> {
        if operation.tenant != caller.tenant || !caller.may_use(&operation.namespace) {
            return Ok(None);
        }
        let Some(policy) = self.view.namespace(&operation.tenant, &operation.namespace)? else {
            return Ok(None);
        };
        self.settle(&mut operation, &policy)?;
        Ok(Some((policy, operation)))
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
        self.rows.extend(admin::first_rows(command, self.now()));
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

/// Whether a register that the open execution is bound to was bumped.
pub(crate) fn is_fenced<V: View>(view: &V, operation: &OperationRecord) -> Result<bool, V::Error> {
    match &operation.execution {
        Some(execution) if execution.state == State::Executing && !execution.authority.is_empty() => {
            epoch::fenced(view, &operation.tenant, &execution.authority)
        }
        _ => Ok(false),
    }
}

pub(crate) fn standing(operation: &OperationRecord, policy: &NamespaceRecord, now: LeaseTime) -> Standing {
    let execution = operation.execution.as_ref();
    let running = execution.filter(|execution| execution.state == State::Executing && !execution.lapsed(now));
    Standing {
        operation_id: operation.id,
        execution_id: execution.map(|execution| execution.id),
        attempt: operation.attempt(),
        state: operation.state(),
        lease_remaining_ms: running.map(|execution| execution.remaining_ms(now)),
        namespace: operation.namespace.clone(),
        conflict_style: policy.conflict_style,
    }
}
