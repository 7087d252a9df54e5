//! What a command did to the state: rows to write, in order. Nothing is ever deleted by a rule.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::capability::{CapabilityRecord, DecisionRecord, UseRecord};
use crate::clock::Clocks;
use crate::epoch::EpochRecord;
use crate::evidence::EvidenceRecord;
use crate::grant::GrantCounter;
use crate::ids::{
    Attempt, Birth, CapabilityId, ClaimId, DecisionKey, ExecutionId, InboxKey, Incarnation, NamespaceName,
    OperationId, OperationKey, Revision, TenantId, TenantTag,
};
use crate::inbox::InboxRecord;
use crate::namespace::{NamespaceRecord, NamespaceStatus};
use crate::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord, Place, State};
use crate::refusal::{RefusalKey, RefusalRecord};
use crate::tenant::{TenantRecord, TokenRecord};

/// The part of the state that every entry touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The id of the cluster; zero until it is bootstrapped.
    pub cluster_id: [u8; 16],
    /// The life of the cluster; 0 until it is bootstrapped.
    pub incarnation: Incarnation,
    /// The replicated clocks.
    pub clocks: Clocks,
    /// The source of epochs and births.
    pub grants: GrantCounter,
    /// The chain over all changes of all entries so far.
    pub state_hash: [u8; 32],
}

/// One row to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A namespace's policy.
    Namespace(NamespaceRecord),
    /// What changes in a namespace by itself.
    Status(TenantId, NamespaceName, NamespaceStatus),
    /// A tenant.
    Tenant(TenantRecord),
    /// A token.
    Token(TokenRecord),
    /// A register of authority.
    Epoch(EpochRecord),
    /// An operation; a terminal one leaves the rows of live ones.
    Operation {
        /// What it is now; in a box, since rows are moved from list to list and most of them are small.
        record: Box<OperationRecord>,
        /// Where it stood in the lists before; `None` where it was not there.
        was: Option<Place>,
    },
    /// Where an execution is, or what it came to.
    Execution(TenantTag, ExecutionId, ExecutionRecord),
    /// A superseded claim.
    Grant(OperationKey, Birth, ClaimId, GrantRecord),
    /// An inline result.
    Body(OperationKey, Birth, Body),
    /// A piece of evidence and its number within the operation.
    Evidence(OperationKey, Birth, u32, EvidenceRecord),
    /// A capability.
    Capability(CapabilityRecord),
    /// The capability that a decision led to.
    Decision(DecisionKey, DecisionRecord),
    /// A use of a bounded-use capability.
    Use(TenantTag, CapabilityId, OperationKey, UseRecord),
    /// An accepted delivery.
    Inbox(InboxKey, InboxRecord),
    /// A refusal.
    Refusal(RefusalKey, RefusalRecord),
}

/// A change of an operation's state, for those who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// At which revision.
    pub revision: Revision,
    /// Its number among the events of that revision.
    pub part: u32,
    /// The owner's tag.
    pub tenant: TenantTag,
    /// The namespace.
    pub namespace: NamespaceName,
    /// The operation.
    pub operation: OperationId,
    /// The operation's state now.
    pub state: State,
    /// Its newest attempt; 0 where there is none.
    pub attempt: Attempt,
    /// Its newest execution.
    pub execution: Option<ExecutionId>,
    /// Whether it waits for people.
    pub escalated: bool,
    /// Whether it is quarantined.
    pub quarantined: bool,
}

/// The rows that a command or an entry writes, and the head after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The head after it.
    pub head: Head,
    /// The rows, in the order in which they were decided.
    pub rows: Vec<Change>,
    /// What happened, in order.
    pub events: Vec<Event>,
}
