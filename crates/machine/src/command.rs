//! What a proposer may ask of the state machine. A command is never a stored record and never an HTTP body.
//! Randomness and time enter here: the proposer draws ids, and the entry's head carries the stamp.

use alloc::string::String;
use alloc::vec::Vec;

use crate::clock::Stamp;
use crate::ids::{
    Attempt, ClaimId, ClientId, CorrelationId, Digest, ExecutionId, GroupId, InternalKey, LeaseEpoch, LeaseTime,
    NamespaceName, OperationKey, RuleVersion, Slot, TenantId, WallTime,
};
use crate::namespace::NamespaceRecord;
use crate::operation::{Body, Definite};
use crate::tenant::TokenRecord;

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
}
