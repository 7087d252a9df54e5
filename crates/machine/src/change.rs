//! What a command did to the state: rows to write, in order. Nothing is ever deleted by a rule.

use alloc::vec::Vec;

use crate::clock::Clocks;
use crate::evidence::EvidenceRecord;
use crate::grant::GrantCounter;
use crate::ids::{Birth, ClaimId, ExecutionId, Incarnation, OperationKey, TenantTag};
use crate::namespace::NamespaceRecord;
use crate::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord};
use crate::tenant::TokenRecord;

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
// Most changes are operations: a box for each would cost more than the room that the others leave.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A namespace's policy.
    Namespace(NamespaceRecord),
    /// A token.
    Token(TokenRecord),
    /// An operation; a terminal one leaves the rows of live ones.
    Operation(OperationRecord),
    /// Where an execution is, or what it came to.
    Execution(TenantTag, ExecutionId, ExecutionRecord),
    /// A superseded claim.
    Grant(OperationKey, Birth, ClaimId, GrantRecord),
    /// An inline result.
    Body(OperationKey, Birth, Body),
    /// A piece of evidence and its number within the operation.
    Evidence(OperationKey, Birth, u32, EvidenceRecord),
}

/// The rows that a command or an entry writes, and the head after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The head after it.
    pub head: Head,
    /// The rows, in the order in which they were decided.
    pub rows: Vec<Change>,
}
