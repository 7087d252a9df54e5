//! What a proposer may ask of the state machine. A command is never a stored record and never an HTTP body.
//! Randomness and time enter here: the proposer draws ids, and the entry's head carries the stamp.

use alloc::string::String;
use alloc::vec::Vec;

use crate::clock::Stamp;
use crate::epoch::Binding;
use crate::ids::{
    Attempt, AuthorityEpoch, Birth, CapabilityId, ClaimId, ClientId, Consumer, CorrelationId, DecisionId, Digest,
    EpochScope, ExecutionId, GroupId, InternalKey, LeaseEpoch, LeaseTime, MessageId, NamespaceName, OperationId,
    OperationKey, Resource, RuleVersion, Slot, TenantId, Version, WallTime,
};
use crate::namespace::{Floors, NamespaceRecord};
use crate::operation::{Body, Definite, State};
use crate::refusal::RefusalKey;
use crate::tenant::{TenantRecord, TokenRecord};

/// What all commands of one log entry share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHead {
    /// The group whose log it is.
    pub group: GroupId,
    /// The entry's log index.
    pub index: u64,
    /// The term of the leader that stamped it.
    pub term: u64,
    /// The rules it was proposed under.
    pub rules: RuleVersion,
    /// What the leader's clocks said.
    pub stamp: Stamp,
}

/// A command and the instant after which it may no longer act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// On the lease clock; past it, applying changes nothing and the caller learns that the outcome is unknown.
    pub not_after: LeaseTime,
    /// What is asked.
    pub command: Command,
}

/// Who is asking; always from the credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant.
    pub tenant: TenantId,
    /// The stable client.
    pub client: ClientId,
    /// The namespaces that the credential is good for; empty means all of the tenant's.
    ///
    /// An execution id does not tell its namespace, so this is checked where the operation is found.
    pub namespaces: Vec<NamespaceName>,
}

impl Caller {
    /// Whether the credential is good for `namespace`.
    pub fn may_use(&self, namespace: &NamespaceName) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }
}

/// Everything that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Elect an executor.
    Claim(Claim),
    /// Extend a lease.
    Renew(Renew),
    /// Say what an execution came to, as its owner.
    Report(Report),
    /// Say what an execution came to, after having lost it.
    Evidence(Evidence),
    /// Say what an unknown execution came to, with proof.
    Resolve(Resolve),
    /// The leader's sweep: a lease that it saw end.
    Lapse(Lapse),
    /// Move the replicated wall that fell behind.
    AdvanceWall(AdvanceWall),
    /// Begin the cluster's life.
    Bootstrap(Bootstrap),
    /// Nothing but the stamp.
    Tick,
    /// Make an operation known before authority for it is issued.
    Register(Register),
    /// Issue a capability for one attempt.
    Issue(Issue),
    /// Issue a capability for several operations of a resource.
    IssueBounded(IssueBounded),
    /// Take a capability back.
    Revoke(Revoke),
    /// Raise a register of authority.
    BumpEpoch(BumpEpoch),
    /// Lease unknown executions to find out what they came to.
    ReconcileLease(ReconcileLease),
    /// Let an unknown execution wait for people, or no longer.
    Escalate(Escalate),
    /// Force an execution's lease to end.
    ForceFence(ForceFence),
    /// Repair an operation.
    Repair(Repair),
    /// The leader's sweep after a bump: settle an operation.
    Settle(OperationKey),
    /// Raise a namespace's retention floors.
    RaiseFloors(RaiseFloors),
    /// News of refusals that were repeated from local state.
    CountRefusals(Vec<CountedRefusal>),
    /// Write a namespace's policy.
    PutNamespace(PutNamespace),
    /// Write a tenant.
    PutTenant(PutTenant),
    /// Make a token.
    CreateToken(CreateToken),
    /// Revoke a token.
    RevokeToken(RevokeToken),
}

/// Elect an executor for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who is asking.
    pub caller: Caller,
    /// The namespace.
    pub namespace: NamespaceName,
    /// The internal key; computed by the proposer, so that no key of a caller is ever stored.
    pub internal_key: InternalKey,
    /// The slot of the namespace's partition.
    pub slot: Slot,
    /// The canonical request.
    pub digest: Digest,
    /// The id of this call.
    pub claim_id: ClaimId,
    /// The name the claimant gives itself.
    pub owner: String,
    /// The length of the lease, in milliseconds.
    pub lease_ms: u64,
    /// The attempt, where the caller names it.
    pub attempt: Option<Attempt>,
    /// The story it belongs to.
    pub correlation_id: Option<CorrelationId>,
    /// The id of the execution that this claim opens, should it open one; drawn by the proposer.
    pub execution_id: ExecutionId,
    /// The capability that it presents.
    pub capability_id: Option<CapabilityId>,
    /// The delivery that led to it.
    pub message: Option<Message>,
    /// The value of a register of authority that it was decided under.
    pub epoch: Option<Binding>,
    /// The business entity that the operation is about.
    pub resource: Option<Resource>,
    /// When the caller made the key.
    pub key_created_at: Option<WallTime>,
}

/// A delivery: what a consumer received.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// Who received it.
    pub consumer: Consumer,
    /// What its sender or broker calls it.
    pub id: MessageId,
}

/// Make an operation known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Who is asking.
    pub caller: Caller,
    /// The namespace.
    pub namespace: NamespaceName,
    /// The internal key.
    pub internal_key: InternalKey,
    /// The slot of the namespace's partition.
    pub slot: Slot,
    /// The canonical request.
    pub digest: Digest,
    /// The story it belongs to.
    pub correlation_id: Option<CorrelationId>,
    /// The business entity that the operation is about.
    pub resource: Option<Resource>,
    /// When the caller made the key.
    pub key_created_at: Option<WallTime>,
}

/// Issue a capability for one attempt at an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Who is asking.
    pub caller: Caller,
    /// The operation.
    pub operation_id: OperationId,
    /// The decision that authorises the attempt.
    pub decision_id: DecisionId,
    /// The attempt.
    pub attempt: Attempt,
    /// Until when it may be presented, on the replicated wall.
    pub expires_at: WallTime,
    /// The value of a register of authority that it dies with.
    pub epoch: Option<Binding>,
    /// The earlier attempt whose effect key is to be sent again.
    pub effect_key_attempt: Option<Attempt>,
    /// Its id, should it be a new one; drawn by the proposer.
    pub capability_id: CapabilityId,
}

/// Issue a capability for several operations of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueBounded {
    /// Who is asking.
    pub caller: Caller,
    /// The namespace.
    pub namespace: NamespaceName,
    /// The resource.
    pub resource: Resource,
    /// The decision that authorises the uses.
    pub decision_id: DecisionId,
    /// Until when it may be presented, on the replicated wall.
    pub expires_at: WallTime,
    /// How many operations it elects, at most.
    pub max_uses: u32,
    /// The value of a register of authority that it dies with.
    pub epoch: Option<Binding>,
    /// Its id, should it be a new one; drawn by the proposer.
    pub capability_id: CapabilityId,
}

/// Take a capability back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoke {
    /// Who is asking.
    pub caller: Caller,
    /// The capability.
    pub capability_id: CapabilityId,
    /// Why.
    pub reason: Option<String>,
}

/// Raise a register of authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BumpEpoch {
    /// Who is asking.
    pub caller: Caller,
    /// The register.
    pub scope: EpochScope,
    /// Where the caller believes it to stand.
    pub expected: AuthorityEpoch,
}

/// An unknown execution that the proposer found, oldest first; acted on only if nothing moved since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The operation's row.
    pub operation: OperationKey,
    /// The life of that row.
    pub birth: Birth,
    /// The epoch that was observed.
    pub lease_epoch: LeaseEpoch,
}

/// Lease unknown executions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileLease {
    /// Who is asking.
    pub caller: Caller,
    /// The name the reconciler gives itself; the same one asking again gets the same items.
    pub owner: String,
    /// The length of the lease, in milliseconds.
    pub lease_ms: u64,
    /// How many, at most.
    pub limit: u32,
    /// What the proposer found.
    pub candidates: Vec<Candidate>,
}

/// Let an unknown execution wait for people, or no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalate {
    /// Who is asking.
    pub caller: Caller,
    /// The unknown execution.
    pub execution_id: ExecutionId,
    /// The epoch it is unknown under.
    pub lease_epoch: LeaseEpoch,
    /// Whether it is to wait, or no longer.
    pub escalated: bool,
    /// Why.
    pub reason: String,
    /// What shows it.
    pub proof: Option<String>,
}

/// Force an execution's lease to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForceFence {
    /// Who is asking.
    pub caller: Caller,
    /// The execution.
    pub execution_id: ExecutionId,
    /// The epoch it is held under.
    pub lease_epoch: LeaseEpoch,
    /// Why.
    pub reason: String,
    /// What shows it.
    pub proof: Option<String>,
}

/// What a repair does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairKind {
    /// Stop claims.
    Quarantine,
    /// Let claims go on.
    Release,
    /// Link the operation that takes its place under another key.
    Supersede(OperationId),
    /// End an operation that nobody executes.
    Close,
}

/// Repair an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Who is asking.
    pub caller: Caller,
    /// The operation.
    pub operation_id: OperationId,
    /// What to do.
    pub kind: RepairKind,
    /// The state that the caller believes it to be in.
    pub expected: State,
    /// Why.
    pub reason: String,
    /// What shows it.
    pub proof: Option<String>,
}

/// Raise a namespace's retention floors; clamped in apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaiseFloors {
    /// The tenant.
    pub tenant: TenantId,
    /// The namespace.
    pub namespace: NamespaceName,
    /// Where to.
    pub floors: Floors,
}

/// How often a refusal was repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedRefusal {
    /// Which.
    pub key: RefusalKey,
    /// How often.
    pub times: u32,
}

/// What a policy's writer believes to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Absent,
    /// This version.
    Version(Version),
}

/// Write a namespace's policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutNamespace {
    /// Who is asking; the policy's tenant is theirs, or they administer all tenants.
    pub caller: Caller,
    /// The policy; its version is drawn in apply.
    pub record: NamespaceRecord,
    /// What it replaces.
    pub expected: Expected,
}

/// Write a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutTenant {
    /// Who is asking.
    pub caller: Caller,
    /// The tenant; its version is drawn in apply.
    pub record: TenantRecord,
    /// What it replaces.
    pub expected: Expected,
}

/// Make a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateToken {
    /// Who is asking; the token's tenant is theirs, or they administer all tenants.
    pub caller: Caller,
    /// The token.
    pub record: TokenRecord,
}

/// Revoke a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeToken {
    /// Who is asking; the token's tenant is theirs, or they administer all tenants.
    pub caller: Caller,
    /// The token.
    pub id: String,
}

/// Extend a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renew {
    /// Who is asking.
    pub caller: Caller,
    /// What they hold.
    pub execution_id: ExecutionId,
    /// The epoch they hold it under.
    pub lease_epoch: LeaseEpoch,
    /// The length of the lease from now, in milliseconds.
    pub lease_ms: u64,
}

/// What a caller knows of a result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultData {
    /// The status for duplicates.
    pub status_code: Option<u16>,
    /// The version of the result's schema.
    pub schema_version: Option<String>,
    /// The result, inline.
    pub result: Option<Body>,
    /// Where the result lives instead.
    pub result_ref: Option<String>,
    /// Its digest.
    pub result_digest: Option<Digest>,
    /// The provider's id.
    pub external_id: Option<String>,
    /// Why, for people.
    pub reason: Option<String>,
}

/// An owner's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Who is asking.
    pub caller: Caller,
    /// What they hold.
    pub execution_id: ExecutionId,
    /// The epoch they hold it under.
    pub lease_epoch: LeaseEpoch,
    /// What happened; `None` where the owner does not know.
    pub outcome: Option<Definite>,
    /// The result.
    pub data: ResultData,
}

/// An ex-owner's late evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Who is asking.
    pub caller: Caller,
    /// The execution they held.
    pub execution_id: ExecutionId,
    /// The claim that gave it to them.
    pub claim_id: ClaimId,
    /// What happened.
    pub outcome: Definite,
    /// The result.
    pub data: ResultData,
    /// What shows it.
    pub proof: Option<String>,
}

/// A reconciler's or operator's resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// Who is asking.
    pub caller: Caller,
    /// The unknown execution.
    pub execution_id: ExecutionId,
    /// The epoch it is unknown under.
    pub lease_epoch: LeaseEpoch,
    /// What happened.
    pub outcome: Definite,
    /// The result.
    pub data: ResultData,
    /// What shows it.
    pub proof: String,
}

/// A lease that the leader saw end; acts only if nothing moved since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lapse {
    /// The operation's row.
    pub operation: OperationKey,
    /// The epoch that was observed.
    pub lease_epoch: LeaseEpoch,
    /// The deadline that was observed.
    pub deadline: LeaseTime,
}

/// Move the wall, after a quorum's clocks were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvanceWall {
    /// Where to.
    pub target: WallTime,
    /// Whether an operator asked for it, which lifts the limit on one step.
    pub by_operator: bool,
}

/// Begin the cluster's life: accepted once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// The random id of the cluster.
    pub cluster_id: [u8; 16],
    /// The bootstrapping node's wall clock.
    pub wall_ms: u64,
    /// The first namespaces.
    pub namespaces: Vec<NamespaceRecord>,
    /// The first tokens.
    pub tokens: Vec<TokenRecord>,
    /// The first tenants. Of those whom the namespaces and tokens name, all others are made without limits.
    pub tenants: Vec<TenantRecord>,
}
