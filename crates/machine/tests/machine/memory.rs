//! The whole state in ordered maps: the simplest view that the rules can run on.
//! Also what the parts share: callers, namespaces, and the way to apply one entry.

use std::collections::BTreeMap;
use std::convert::Infallible;

use hapax_machine::apply::{RULES, apply_entry};
use hapax_machine::change::{Change, Changes, Head};
use hapax_machine::clock::Stamp;
use hapax_machine::command::{Bootstrap, Caller, Command, EntryHead, Envelope};
use hapax_machine::evidence::EvidenceRecord;
use hapax_machine::ids::{
    Birth, ClaimId, ClientId, ExecutionId, GroupId, LeaseTime, NamespaceName, OperationKey, TenantId, TenantTag,
};
use hapax_machine::namespace::{Attempts, ConflictStyle, NamespaceRecord, OnLapse, Scope};
use hapax_machine::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord};
use hapax_machine::tenant::TokenRecord;
use hapax_machine::{Outcome, View};

/// A state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) head: Head,
    pub(crate) namespaces: BTreeMap<(TenantId, NamespaceName), NamespaceRecord>,
    pub(crate) tokens: BTreeMap<String, TokenRecord>,
    pub(crate) operations: BTreeMap<OperationKey, OperationRecord>,
    pub(crate) executions: BTreeMap<(TenantTag, ExecutionId), ExecutionRecord>,
    pub(crate) grants: BTreeMap<(OperationKey, Birth, ClaimId), GrantRecord>,
    pub(crate) bodies: BTreeMap<(OperationKey, Birth), Body>,
    pub(crate) evidence: BTreeMap<(OperationKey, Birth, u32), EvidenceRecord>,
}

impl Memory {
    /// Writes what an entry changed.
    pub(crate) fn commit(&mut self, changes: Changes) {
        self.head = changes.head;
        for row in changes.rows {
            match row {
                Change::Namespace(row) => {
                    self.namespaces.insert((row.tenant.clone(), row.name.clone()), row);
                }
                Change::Token(row) => {
                    self.tokens.insert(row.id.clone(), row);
                }
                Change::Operation(row) => {
                    self.operations.insert(row.key(), row);
                }
                Change::Execution(tenant, id, row) => {
                    self.executions.insert((tenant, id), row);
                }
                Change::Grant(key, birth, claim, row) => {
                    self.grants.insert((key, birth, claim), row);
                }
                Change::Body(key, birth, row) => {
                    self.bodies.insert((key, birth), row);
                }
                Change::Evidence(key, birth, number, row) => {
                    let before = self.evidence.insert((key, birth, number), row);
                    assert_eq!(before, None, "the record of evidence is append-only");
                }
            }
        }
    }

    /// Applies an entry and keeps its changes; returns them too.
    pub(crate) fn apply(&mut self, entry: &EntryHead, commands: &[Envelope]) -> (Changes, Vec<Outcome>) {
        let (changes, outcomes) = apply_entry(self, entry, commands).expect("a map never fails, the rules are known");
        self.commit(changes.clone());
        (changes, outcomes)
    }

    /// A cluster whose life began at wall 0 with these namespaces, so that the first grant drawn is 1.
    pub(crate) fn with(namespaces: Vec<NamespaceRecord>) -> Self {
        let mut memory = Self::default();
        let command =
            Command::Bootstrap(Bootstrap { cluster_id: [7; 16], wall_ms: 0, namespaces, tokens: Vec::new() });
        memory.apply(&entry(1, 1, Stamp::default()), &[at_any_time(command)]);
        memory
    }
}

impl View for Memory {
    type Error = Infallible;

    fn head(&self) -> Head {
        self.head
    }

    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, Infallible> {
        Ok(self.namespaces.get(&(tenant.clone(), name.clone())).cloned())
    }

    fn operation(&self, key: &OperationKey) -> Result<Option<OperationRecord>, Infallible> {
        Ok(self.operations.get(key).cloned())
    }

    fn execution(&self, tenant: TenantTag, id: &ExecutionId) -> Result<Option<ExecutionRecord>, Infallible> {
        Ok(self.executions.get(&(tenant, *id)).cloned())
    }

    fn grant(&self, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Result<Option<GrantRecord>, Infallible> {
        Ok(self.grants.get(&(*key, birth, *claim)).cloned())
    }

    fn body(&self, key: &OperationKey, birth: Birth) -> Result<Option<Body>, Infallible> {
        Ok(self.bodies.get(&(*key, birth)).cloned())
    }
}

/// The head of an entry of group 0 under the newest rules.
pub(crate) fn entry(index: u64, term: u64, stamp: Stamp) -> EntryHead {
    EntryHead { group: GroupId(0), index, term, rules: RULES, stamp }
}

/// A command without a time limit.
pub(crate) fn at_any_time(command: Command) -> Envelope {
    Envelope { not_after: LeaseTime(u64::MAX), command }
}

/// A caller who may use every namespace of the tenant.
pub(crate) fn caller(tenant: &str, client: &str) -> Caller {
    Caller { tenant: TenantId::new(tenant), client: ClientId::new(client), namespaces: Vec::new() }
}

/// A namespace of `tenant` with these policies and the documented defaults elsewhere.
pub(crate) fn namespace(tenant: &str, name: &str, on_lapse: OnLapse, attempts: Attempts) -> NamespaceRecord {
    NamespaceRecord {
        tenant: TenantId::new(tenant),
        name: NamespaceName::new(name),
        scope: Scope::Namespace,
        on_lapse,
        attempts,
        conflict_style: ConflictStyle::Hapax,
        transport_fields: Vec::new(),
        partitions: 1,
    }
}

/// Sixteen bytes that carry a small number: claim ids and the random part of execution ids.
pub(crate) fn bytes16(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    bytes
}
