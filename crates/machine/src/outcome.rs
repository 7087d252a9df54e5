//! What a command came to. A refusal is a value, with a place in the order its rule documents.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::capability::CapabilityRecord;
use crate::ids::{
    Attempt, AuthorityEpoch, ClaimId, CorrelationId, ExecutionId, LeaseEpoch, NamespaceName, OperationId, Revision,
    WallTime,
};
use crate::namespace::{ConflictStyle, Floors, NamespaceRecord};
use crate::operation::{Body, OutcomeRecord, State};
use crate::tenant::{TenantRecord, TokenRecord};

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
    /// A report, evidence, resolution or repair was accepted, now or before.
    Accepted(Standing),
    /// The operation is known.
    Registered {
        /// Where it stands.
        standing: Standing,
        /// Whether this command made it known.
        created: bool,
    },
    /// A capability as it stands.
    Capability {
        /// What is stored of it.
        record: Box<CapabilityRecord>,
        /// Whether this command issued it.
        created: bool,
    },
    /// The message was accepted before, for this operation and digest.
    DuplicateDelivery(Standing),
    /// A register of authority stands at this value.
    Epoch(AuthorityEpoch),
    /// Executions leased for reconciliation, oldest first.
    Reconciling(Vec<ReconcileItem>),
    /// A namespace's retention floors stand here.
    Floors(Floors),
    /// Refusals were counted.
    Counted,
    /// A namespace's policy as it stands.
    Namespace(Box<NamespaceRecord>),
    /// A tenant as it stands.
    Tenant(Box<TenantRecord>),
    /// A token as it stands.
    Token(Box<TokenRecord>),
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

/// An unknown execution that the caller is to find out about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileItem {
    /// The operation.
    pub operation_id: OperationId,
    /// The execution.
    pub execution_id: ExecutionId,
    /// The execution's attempt.
    pub attempt: Attempt,
    /// Its namespace.
    pub namespace: NamespaceName,
    /// What was sent to the provider, if anything was.
    pub effect_key: String,
    /// The story it belongs to.
    pub correlation_id: Option<CorrelationId>,
    /// Since when it is unknown.
    pub unknown_since: WallTime,
    /// The lease under which it may be resolved.
    pub lease: Lease,
}

/// Where an operation stands, without its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The operation.
    pub operation_id: OperationId,
    /// Its newest execution, where there is one.
    pub execution_id: Option<ExecutionId>,
    /// That execution's attempt; 0 where there is none.
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
    /// The inline result; absent where there was none, or where retention removed it.
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
    /// The message was accepted before, for another operation or digest.
    DeliveryMismatch,
    /// The capability is spent.
    CapabilityAlreadyConsumed,
    /// The capability was taken back.
    CapabilityRevoked,
    /// The capability was not used in time.
    CapabilityExpired,
    /// There is no such capability, or it is not the caller's.
    CapabilityInvalid,
    /// The capability is for something else.
    CapabilityBindingMismatch,
    /// The namespace asks for a capability, and none was presented.
    CapabilityRequired,
    /// What is presented was decided under a value that a register of authority has left.
    EpochStale,
    /// What is presented names a value that the register of authority never stood at.
    EpochUnknown,
    /// The register of authority stands elsewhere.
    RegisterStands {
        /// Where.
        value: AuthorityEpoch,
    },
    /// It was finished before; to a capability that is a closed gate, not a replay.
    OperationCompleted,
    /// It was rejected for good, or closed; to a capability that is a closed gate, not a replay.
    OperationFailed,
    /// It is not in the state that this needs.
    OperationState {
        /// The state it is in.
        state: State,
    },
    /// The key is older than what the namespace remembers.
    KeyRetentionElapsed,
    /// The namespace wants to know when a key was made, and was not told, or was told a time to come.
    KeyCreationTime,
    /// The decision led to a capability with other terms.
    DecisionReused,
    /// The operation has as many capabilities as it may have, or the namespace as many open operations.
    QuotaExceeded,
    /// What is to be written does not fit what stands and cannot be changed.
    PolicyFixed,
    /// Another version stands.
    VersionMismatch,
    /// The operation named cannot take this one's place.
    NotASuccessor,
    /// The caller administers only its own tenant.
    NotYours,
    /// The wall is ahead of the target already, or the step is too long.
    WallStep,
    /// The cluster's life began before.
    AlreadyBootstrapped,
}
