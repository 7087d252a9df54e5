//! The operation and its executions: the stored records, and settling, which runs before anything else looks at them.
//!
//! ```text
//!                    +--------- takeover (same execution, new epoch) ---------+
//!                    v                                                        |
//! absent --claim--> executing --report--> completed | failed     (terminal)   |
//!                    |  |  \------------> not_applied --claim--> executing (attempt + 1)
//!                    |  +--lapse---------- on_lapse = takeover: executing, ownerless
//!                    +--lapse | report unknown--> unknown --evidence | resolve--> completed | failed | not_applied
//! ```
//!
//! | state | who may leave it | gate for a new claim |
//! |---|---|---|
//! | executing | its owner (report), time (lapse) | closed; a takeover where the lease lapsed and the namespace says so |
//! | unknown | the ex-owner (evidence), a reconciler or operator (resolve) | closed |
//! | not_applied | the next claim | open for attempt + 1 |
//! | completed, failed | nobody | closed for ever; replays |
//!
//! Invariants: a terminal state is never left; `attempt` grows by one and only out of `not_applied`; an execution's
//! lease epoch only grows; `sole_holder` is never set again once it was cleared.

use alloc::string::String;
use alloc::vec::Vec;

use crate::grant::GrantCounter;
use crate::ids::{
    Attempt, Birth, ClaimId, ClientId, ContentHash, CorrelationId, Digest, ExecutionId, InternalKey, LeaseEpoch,
    LeaseTime, NamespaceName, OperationId, OperationKey, Revision, TenantId, WallTime,
};
use crate::lease::ROUNDING_MS;
use crate::namespace::OnLapse;

/// The state of an operation, which is that of its newest execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
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

/// A report that was accepted: the same one again gets the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedReport {
    /// The epoch it was made under.
    pub lease_epoch: LeaseEpoch,
    /// Everything it said.
    pub content: ContentHash,
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
    /// The standing outcome.
    pub outcome: Option<OutcomeRecord>,
}

impl Execution {
    /// Whether the lease has ended at `now`, the first instant at which the owner may no longer act.
    pub fn lapsed(&self, now: LeaseTime) -> bool {
        self.state == State::Executing && now >= self.deadline
    }

    /// Milliseconds of the lease left at `now`, never overstated: without the one that its deadline is rounded up by.
    pub fn remaining_ms(&self, now: LeaseTime) -> u64 {
        self.deadline.remaining_ms(now).saturating_sub(ROUNDING_MS)
    }
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
    /// The newest execution.
    pub execution: Execution,
}

impl OperationRecord {
    /// The operation's state.
    pub fn state(&self) -> State {
        self.execution.state
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
    pub past: Option<Execution>,
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

/// Brings an operation up to `now`: a lapsed execution becomes unknown under a newly drawn epoch, which fences its
/// owner. Under `takeover` it stays executing and ownerless. Returns whether anything changed.
///
/// The only way time alone changes an operation; the leader's sweep does the same earlier, never otherwise.
pub(crate) fn settle(
    record: &mut OperationRecord,
    on_lapse: OnLapse,
    now: LeaseTime,
    wall: WallTime,
    counter: &mut GrantCounter,
) -> bool {
    let lapses = record.execution.lapsed(now) && on_lapse == OnLapse::Unknown;
    if lapses {
        record.execution.lease_epoch = counter.lease_epoch();
        become_unknown(record, wall);
    }
    lapses
}

/// Marks the newest execution unknown. The epoch is the caller's business: a lapse draws one, a report does not.
pub(crate) fn become_unknown(record: &mut OperationRecord, wall: WallTime) {
    assert_eq!(record.state(), State::Executing, "unknown is reached only from executing");
    record.execution.state = State::Unknown;
    record.execution.unknown_since = Some(wall);
}

/// Gives the newest execution its outcome.
pub(crate) fn conclude(record: &mut OperationRecord, outcome: OutcomeRecord) {
    assert!(
        matches!(record.state(), State::Executing | State::Unknown),
        "an outcome is set once, from executing or unknown"
    );
    record.execution.state = outcome.outcome.into();
    record.execution.unknown_since = None;
    if record.state().is_terminal() {
        record.terminal_at = Some(outcome.at);
    }
    record.execution.outcome = Some(outcome);
}
