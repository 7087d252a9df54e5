//! What a command came to. A refusal is a value, with a place in the order its rule documents.

use alloc::string::String;

use crate::ids::{Attempt, ClaimId, ExecutionId, LeaseEpoch, NamespaceName, OperationId, Revision, WallTime};
use crate::namespace::ConflictStyle;
use crate::operation::{Body, OutcomeRecord, State};

/// The answer to one command, with the revision at which it was true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Where in the order of everything it stands.
    pub revision: Revision,
    /// What it is.
    pub answer: Answer,
}

/// The answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This caller is the executor.
    Claimed(Grant),
    /// Another executor is at work.
    InProgress(Standing),
    /// It was finished before.
    Replayed(Receipt),
    /// The lease was extended.
    Renewed(Lease),
    /// A report, evidence or resolution was accepted, now or before.
    Accepted(Standing),
    /// A sweep's lapse took effect or was already moot.
    Lapsed {
        /// Whether this command changed the operation.
        changed: bool,
    },
    /// The wall stands at this instant.
    Wall(WallTime),
    /// The cluster's life began with this command.
    Bootstrapped,
    /// A stamp was applied.
    Ticked,
    /// Not done, and nothing changed beyond settling.
    Refused(Refused),
    /// The command's time was over before it was applied; another copy of it may have won.
    TooLate,
}

/// A lease that the caller holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The fencing token.
    pub lease_epoch: LeaseEpoch,
    /// Milliseconds left, never overstated.
    pub remaining_ms: u64,
}

/// The election of an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The operation.
    pub operation_id: OperationId,
    /// The execution it opened or took over.
    pub execution_id: ExecutionId,
    /// The execution's attempt.
    pub attempt: Attempt,
    /// The call it answers.
    pub claim_id: ClaimId,
    /// The lease.
    pub lease: Lease,
    /// The provider's idempotency key for this attempt.
    pub effect_key: String,
}

/// Where an operation stands, without its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The operation.
    pub operation_id: OperationId,
    /// Its newest execution.
    pub execution_id: ExecutionId,
    /// That execution's attempt.
    pub attempt: Attempt,
    /// The operation's state.
    pub state: State,
    /// Milliseconds until its lease ends, where one is running: when asking again is worth while.
    pub lease_remaining_ms: Option<u64>,
    /// Its namespace.
    pub namespace: NamespaceName,
    /// How the namespace reports conflicts.
    pub conflict_style: ConflictStyle,
}

/// The stored outcome that a duplicate gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Where the operation stands.
    pub standing: Standing,
    /// Its outcome.
    pub outcome: OutcomeRecord,
    /// The inline result.
    pub result: Option<Body>,
}

/// A refusal and what the caller may know of the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Refusal,
    /// The operation, where the caller may see it.
    pub operation_id: Option<OperationId>,
    /// How the namespace reports conflicts.
    pub conflict_style: ConflictStyle,
}

/// Why a command was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The namespace, operation, execution or claim is absent, or not the caller's.
    NotFound,
    /// This claim id was granted on this operation for another request.
    ClaimIdReused,
    /// The lease is over, or was acted on since it was granted.
    LeaseLost,
    /// The epoch is not the current one.
    LeaseStaleEpoch,
    /// The key is bound to another request.
    KeyDigestMismatch,
    /// Contradictory proof stops claims.
    OperationQuarantined,
    /// An executor holds it; only its owner may speak.
    OperationExecuting,
    /// What the last attempt did is not known.
    OutcomeUnknown,
    /// Another attempt is due.
    AttemptMismatch {
        /// The attempt that would be accepted.
        due: Attempt,
    },
    /// Another outcome stands.
    OutcomeConflict,
    /// The wall is ahead of the target already, or the step is too long.
    WallStep,
    /// The cluster's life began before.
    AlreadyBootstrapped,
}
