//! The operation and its executions: the stored records, and settling, which runs before anything else looks at them.
//!
//! ```text
//!                                   +----- takeover (same execution, new epoch) ------+
//!                                   v                                                 |
//! absent --register--> requested --claim--> executing --report--> completed | failed  (terminal)
//!    \-------------- claim -----------------^  |  |  \-----------> not_applied --claim--> executing (attempt + 1)
//!                          |                   |  +--lapse------- on_lapse = takeover, inline: executing, ownerless
//!                          +--close--> failed  +--lapse | epoch fence | forced fence | report unknown--> unknown
//!          not_applied --close--> failed       unknown --evidence | resolve--> completed | failed | not_applied
//! ```
//!
//! | state | who may leave it | gate for a new claim |
//! |---|---|---|
//! | requested | a claim, a decider or operator (close) | open for attempt 1 |
//! | executing | its owner (report), time (lapse), a bump (fence), an operator (fence) | closed; a takeover where the lease lapsed and the namespace says so |
//! | unknown | the ex-owner (evidence), a reconciler or operator (resolve) | closed |
//! | not_applied | the next claim, a decider or operator (close) | open for attempt + 1 |
//! | completed, failed | nobody | closed for ever; replays |
//!
//! Unknown is idle, leased to a reconciler, or escalated: workflow only, all three gate alike. (REQUIREMENTS 28, 29, 32)
//!
//! | a lapsed execution, when it is settled or read | is |
//! |---|---|
//! | bound to a register that was bumped | unknown |
//! | takeover is not possible now | unknown |
//! | it consumed a capability | unknown |
//! | its lease ended when takeover became possible, or before | unknown: it has been read as that |
//! | else | executing, ownerless |
//!
//! Invariants: a terminal state is never left; `attempt` grows by one and only out of `not_applied`; an execution's
//! lease epoch only grows; `sole_holder` is never set again once it was cleared; what was read as unknown is executing again
//! only as a new attempt, whatever becomes of the policy.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::epoch::Binding;
use crate::grant::GrantCounter;
use crate::ids::{
    Attempt, Birth, CapabilityId, ClaimId, ClientId, ContentHash, CorrelationId, Digest, ExecutionId, InternalKey,
    LeaseEpoch, LeaseTime, NamespaceName, OperationId, OperationKey, Resource, Revision, TenantId, WallTime,
};
use crate::lease::ROUNDING_MS;
use crate::namespace::NamespaceRecord;

/// The state of an operation, which is that of its newest execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It is known, and nobody was elected yet.
    Requested,
    /// An executor holds it, or held it until its lease lapsed under `takeover`.
    Executing,
    /// What the executor did is not known.
    Unknown,
    /// It is proven that the last attempt had no effect.
    NotApplied,
    /// The effect happened. Terminal.
    Completed,
    /// The effect was rejected for good. Terminal.
    Failed,
}

impl State {
    /// Whether the state can never change again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// An outcome that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Definite {
    /// The effect happened.
    Completed,
    /// The effect was rejected for good.
    Failed,
    /// Nothing happened.
    NotApplied,
}

impl From<Definite> for State {
    fn from(outcome: Definite) -> Self {
        match outcome {
            Definite::Completed => Self::Completed,
            Definite::Failed => Self::Failed,
            Definite::NotApplied => Self::NotApplied,
        }
    }
}

/// The stored outcome of an execution; the result's bytes are a row of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRecord {
    /// What happened.
    pub outcome: Definite,
    /// The status that a duplicate of the caller's own request should be answered with.
    pub status_code: Option<u16>,
    /// The version of the result's schema, so that a newer API can re-encode it.
    pub schema_version: Option<String>,
    /// Whether an inline result is stored.
    pub has_result: bool,
    /// Where a result too large to store lives.
    pub result_ref: Option<String>,
    /// The digest of that result.
    pub result_digest: Option<Digest>,
    /// The provider's id.
    pub external_id: Option<String>,
    /// Why, for people.
    pub reason: Option<String>,
    /// When it became known, on the replicated wall.
    pub at: WallTime,
}

impl OutcomeRecord {
    /// An outcome of which nothing is known but what it was, and when.
    pub(crate) fn bare(outcome: Definite, at: WallTime) -> Self {
        Self {
            outcome,
            status_code: None,
            schema_version: None,
            has_result: false,
            result_ref: None,
            result_digest: None,
            external_id: None,
            reason: None,
            at,
        }
    }
}

/// A report that was accepted: the same one again gets the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedReport {
    /// The epoch it was made under.
    pub lease_epoch: LeaseEpoch,
    /// Everything it said.
    pub content: ContentHash,
}

/// An effect that somebody who held an execution says there was, while no outcome stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedOutcome {
    /// What happened.
    pub outcome: Definite,
    /// The provider's id.
    pub external_id: Option<String>,
}

/// A reconciler's lease on an unknown execution. Its fencing token is the execution's lease epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciler {
    /// The name that the reconciler gave itself.
    pub owner: String,
    /// Its client.
    pub client: ClientId,
    /// When the lease ends, and the execution is idle again.
    pub deadline: LeaseTime,
}

/// One attempt at an operation, and who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Its id.
    pub id: ExecutionId,
    /// Its number.
    pub attempt: Attempt,
    /// Its state.
    pub state: State,
    /// The name the last claimant gave itself.
    pub owner: String,
    /// The client of the last claim.
    pub client: ClientId,
    /// The last claim.
    pub claim_id: ClaimId,
    /// Everything the last claim said.
    pub request_hash: ContentHash,
    /// When the last claim was granted, on the replicated wall.
    pub opened_at: WallTime,
    /// The capability that the last claim consumed a use of.
    pub capability: Option<CapabilityId>,
    /// The registers of authority that it is bound to: the claim's own and the capability's.
    pub authority: Vec<Binding>,
    /// The attempt whose number the effect key carries: its own, or an earlier one that the decision chose.
    pub effect_attempt: Attempt,
    /// The newest epoch drawn for it.
    pub lease_epoch: LeaseEpoch,
    /// When the lease ends; meaningful while executing.
    pub deadline: LeaseTime,
    /// Whether the lease was renewed: a claim's lost reply is not repeated after that.
    pub renewed: bool,
    /// Whether nobody but the first claimant ever held it: only then may its word of not_applied stand alone.
    pub sole_holder: bool,
    /// The accepted report, if there was one.
    pub report: Option<AcceptedReport>,
    /// Since when it is unknown.
    pub unknown_since: Option<WallTime>,
    /// What was said of it before it had an outcome, by somebody who held it: an outcome that contradicts this quarantines.
    pub claimed: Option<ClaimedOutcome>,
    /// Who last leased it to reconcile it; meaningful while unknown.
    pub reconciler: Option<Reconciler>,
    /// Since when it waits for people; meaningful while unknown.
    pub escalated_at: Option<WallTime>,
    /// The standing outcome.
    pub outcome: Option<OutcomeRecord>,
}

impl Execution {
    /// Whether the lease has ended at `now`, the first instant at which the owner may no longer act.
    pub fn lapsed(&self, now: LeaseTime) -> bool {
        self.state == State::Executing && now >= self.deadline
    }

    /// The reconciler's lease, where one is running at `now`.
    pub fn reconciling(&self, now: LeaseTime) -> Option<&Reconciler> {
        self.reconciler.as_ref().filter(|held| self.state == State::Unknown && now < held.deadline)
    }

    /// Milliseconds of the lease left at `now`, never overstated: without the one that its deadline is rounded up by.
    pub fn remaining_ms(&self, now: LeaseTime) -> u64 {
        self.deadline.remaining_ms(now).saturating_sub(ROUNDING_MS)
    }
}

/// The end of an operation without an effect: nobody will ever be elected for it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Who closed it.
    pub client: ClientId,
    /// Why.
    pub reason: String,
    /// When, on the replicated wall.
    pub at: WallTime,
}

/// A set of operations that a list can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// By state.
    Requested,
    /// By state.
    Executing,
    /// By state, without those that wait for people.
    Unknown,
    /// Unknown, and waiting for people.
    Escalated,
    /// By state.
    NotApplied,
    /// By state.
    Completed,
    /// By state.
    Failed,
    /// Whatever its state.
    Quarantined,
}

/// Where an operation stands in the lists: oldest first within its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The class of its state.
    pub class: Class,
    /// Since when it is in that class.
    pub since: WallTime,
    /// Whether it is in the class of the quarantined too, since its creation.
    pub quarantined: bool,
}

/// The stored identity of an operation and its newest execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRecord {
    /// Its id.
    pub id: OperationId,
    /// The hash that names it.
    pub internal_key: InternalKey,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its namespace.
    pub namespace: NamespaceName,
    /// The canonical request bound to the key.
    pub digest: Digest,
    /// The story it belongs to.
    pub correlation_id: Option<CorrelationId>,
    /// When it was inserted, on the replicated wall.
    pub created_at: WallTime,
    /// When it last changed, on the replicated wall.
    pub updated_at: WallTime,
    /// The revision of its last change.
    pub modified: Revision,
    /// When it became terminal; retention counts from here.
    pub terminal_at: Option<WallTime>,
    /// Whether contradictory proof stops claims.
    pub quarantined: bool,
    /// The number of claim ids granted on it.
    pub grants: u32,
    /// The number of pieces of evidence kept about it, and not kept because there were too many.
    pub evidence: u32,
    /// Everything that the last of them said: the same again is a duplicate, and changes nothing.
    pub said: Option<ContentHash>,
    /// The head of the chain over all of it; each row carries its own link.
    pub chain: Option<ContentHash>,
    /// The contradiction that an operator has looked at and released: said again, it changes nothing.
    pub forgiven: Option<ContentHash>,
    /// The number of refusals that are kept with it and not with a capability.
    pub refusals: u32,
    /// The number of capabilities issued for it.
    pub capabilities: u32,
    /// The business entity it is about; fixed when it was inserted.
    pub resource: Option<Resource>,
    /// The creation time that came with the key; fixed when it was inserted.
    pub key_created_at: Option<WallTime>,
    /// The operation that takes its place under another key.
    pub superseded_by: Option<OperationId>,
    /// The operation whose place it takes.
    pub supersedes: Option<OperationId>,
    /// How it ended, if nobody's execution ended it.
    pub closed: Option<Closed>,
    /// The newest execution; `None` while nobody was elected.
    pub execution: Option<Execution>,
}

impl OperationRecord {
    /// The operation's state.
    pub fn state(&self) -> State {
        match (&self.closed, &self.execution) {
            (Some(_), _) => State::Failed,
            (None, Some(execution)) => execution.state,
            (None, None) => State::Requested,
        }
    }

    /// The number of its newest attempt; 0 while nobody was elected.
    pub fn attempt(&self) -> Attempt {
        self.execution.as_ref().map_or(Attempt(0), |execution| execution.attempt)
    }

    /// One more than the attempts that were concluded not_applied: the only one that a decision may name.
    pub fn due(&self) -> Attempt {
        match &self.execution {
            None => Attempt(1),
            Some(execution) if execution.state == State::NotApplied => Attempt(execution.attempt.0 + 1),
            Some(execution) => execution.attempt,
        }
    }

    /// The outcome that stands for the operation.
    pub fn outcome(&self) -> Option<OutcomeRecord> {
        match &self.closed {
            None => self.execution.as_ref()?.outcome.clone(),
            Some(closed) => Some(OutcomeRecord {
                reason: Some(closed.reason.clone()),
                ..OutcomeRecord::bare(Definite::Failed, closed.at)
            }),
        }
    }

    /// Where it stands in the lists.
    pub fn place(&self) -> Place {
        let execution = self.execution.as_ref();
        let (class, since) = match self.state() {
            State::Requested => (Class::Requested, None),
            State::Executing => (Class::Executing, execution.map(|execution| execution.opened_at)),
            State::Unknown => {
                let escalated = execution.is_some_and(|execution| execution.escalated_at.is_some());
                let class = if escalated { Class::Escalated } else { Class::Unknown };
                (class, execution.and_then(|execution| execution.unknown_since))
            }
            State::NotApplied => {
                let outcome = execution.and_then(|execution| execution.outcome.as_ref());
                (Class::NotApplied, outcome.map(|outcome| outcome.at))
            }
            State::Completed => (Class::Completed, self.terminal_at),
            State::Failed => (Class::Failed, self.terminal_at),
        };
        Place { class, since: since.unwrap_or(self.created_at), quarantined: self.quarantined }
    }

    /// The row it lives in.
    pub fn key(&self) -> OperationKey {
        self.id.key(&self.tenant)
    }
}

/// The row of an execution id: where its operation is, and what an earlier attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionRecord {
    /// The operation's row.
    pub operation: OperationKey,
    /// The life of that row.
    pub birth: Birth,
    /// The execution itself once a later attempt took its place in the operation's row.
    pub past: Option<Box<Execution>>,
}

/// A claim that was granted before the one in the operation's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    /// The execution it was granted on.
    pub execution: ExecutionId,
    /// The client it was granted to.
    pub client: ClientId,
    /// Everything the claim said.
    pub request_hash: ContentHash,
    /// The epoch it was granted.
    pub lease_epoch: LeaseEpoch,
}

/// The bytes of an inline result.
pub type Body = Vec<u8>;

/// Brings an operation up to date, before anything else looks at it. First the authority fence: an execution that is `fenced`,
/// because a register it is bound to was bumped, becomes unknown, under `takeover` too. Then the lapse: a lapsed execution
/// becomes unknown; where somebody [may take it over](may_be_taken_over), it stays executing and ownerless. Either draws an
/// epoch, which fences the owner. Returns whether anything changed.
///
/// The only way in which time and bumps change an operation; the leader's sweep does the same earlier, never otherwise.
pub(crate) fn settle(
    record: &mut OperationRecord,
    fenced: bool,
    policy: &NamespaceRecord,
    now: LeaseTime,
    wall: WallTime,
    counter: &mut GrantCounter,
) -> bool {
    let Some(execution) = &mut record.execution else {
        return false;
    };
    let ends = is_due(execution, fenced, policy, now);
    if ends {
        execution.lease_epoch = counter.lease_epoch();
        become_unknown(execution, wall);
    }
    ends
}

/// Whether settling makes an execution unknown.
pub(crate) fn is_due(execution: &Execution, fenced: bool, policy: &NamespaceRecord, now: LeaseTime) -> bool {
    let fenced = fenced && execution.state == State::Executing;
    fenced || (execution.lapsed(now) && !may_be_taken_over(execution, policy))
}

/// Whether an execution, once lapsed, waits for the next claimant to take it over: the namespace asks for that, and there may
/// be such a claimant. Authority does not pass from one holder to the next, so an execution that consumed a capability, or one
/// where claims now must present one, would wait for ever; its lapse means unknown, as everywhere else.
pub fn may_be_taken_over(execution: &Execution, policy: &NamespaceRecord) -> bool {
    passes_on(execution.capability.is_some(), execution.deadline, policy.takeover_since)
}

/// The same, of what of an execution it depends on: whether it consumed a capability, and when its lease ends.
///
/// **[safety]** A lease that ended at `takeover_since` or before ended under a policy that makes a lapse unknown, and whoever
/// looked was told so. A policy takes no answer back: such an execution stays unknown, and needs evidence.
pub fn passes_on(consumed: bool, deadline: LeaseTime, takeover_since: Option<LeaseTime>) -> bool {
    !consumed && takeover_since.is_some_and(|since| deadline > since)
}

/// Marks an execution unknown. The epoch is the caller's business: a lapse draws one, a report does not.
pub(crate) fn become_unknown(execution: &mut Execution, wall: WallTime) {
    assert_eq!(execution.state, State::Executing, "unknown is reached only from executing");
    execution.state = State::Unknown;
    execution.unknown_since = Some(wall);
}

/// Gives the newest execution its outcome.
pub(crate) fn conclude(record: &mut OperationRecord, outcome: OutcomeRecord) {
    assert!(
        matches!(record.state(), State::Executing | State::Unknown),
        "an outcome is set once, from executing or unknown"
    );
    let Some(execution) = &mut record.execution else {
        return;
    };
    execution.state = outcome.outcome.into();
    execution.unknown_since = None;
    execution.reconciler = None;
    execution.escalated_at = None;
    if execution.state.is_terminal() {
        record.terminal_at = Some(outcome.at);
    }
    execution.outcome = Some(outcome);
}
