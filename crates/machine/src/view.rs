//! How the rules see the state: a read-only view, and an overlay that lets later commands see earlier ones.

use alloc::collections::BTreeMap;

use crate::change::{Change, Changes, Head};
use crate::evidence::EvidenceRecord;
use crate::ids::{Birth, ClaimId, ExecutionId, NamespaceName, OperationKey, TenantId, TenantTag};
use crate::namespace::NamespaceRecord;
use crate::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord};
use crate::tenant::TokenRecord;

/// A read-only view of the state at one log index.
///
/// An error means that this node's storage failed; the rules hand it up untouched.
pub trait View {
    /// What a failed read gives.
    type Error;

    /// The head.
    fn head(&self) -> Head;
    /// A namespace's policy.
    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, Self::Error>;
    /// An operation.
    fn operation(&self, key: &OperationKey) -> Result<Option<OperationRecord>, Self::Error>;
    /// Where an execution is.
    fn execution(&self, tenant: TenantTag, id: &ExecutionId) -> Result<Option<ExecutionRecord>, Self::Error>;
    /// A superseded claim.
    fn grant(&self, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Result<Option<GrantRecord>, Self::Error>;
    /// An inline result.
    fn body(&self, key: &OperationKey, birth: Birth) -> Result<Option<Body>, Self::Error>;
}

/// A view with the changes of the entries so far laid over it.
#[derive(Debug)]
pub struct Overlay<'v, V> {
    base: &'v V,
    head: Head,
    namespaces: BTreeMap<(TenantId, NamespaceName), NamespaceRecord>,
    tokens: BTreeMap<alloc::string::String, TokenRecord>,
    operations: BTreeMap<OperationKey, OperationRecord>,
    executions: BTreeMap<(TenantTag, ExecutionId), ExecutionRecord>,
    grants: BTreeMap<(OperationKey, Birth, ClaimId), GrantRecord>,
    bodies: BTreeMap<(OperationKey, Birth), Body>,
    evidence: BTreeMap<(OperationKey, Birth, u32), EvidenceRecord>,
}

impl<'v, V: View> Overlay<'v, V> {
    /// An overlay without changes.
    pub fn new(base: &'v V) -> Self {
        Self {
            base,
            head: base.head(),
            namespaces: BTreeMap::new(),
            tokens: BTreeMap::new(),
            operations: BTreeMap::new(),
            executions: BTreeMap::new(),
            grants: BTreeMap::new(),
            bodies: BTreeMap::new(),
            evidence: BTreeMap::new(),
        }
    }

    /// Lays `changes` on top.
    pub fn absorb(&mut self, changes: Changes) {
        self.head = changes.head;
        for row in changes.rows {
            match row {
                Change::Namespace(record) => {
                    self.namespaces.insert((record.tenant.clone(), record.name.clone()), record);
                }
                Change::Token(record) => {
                    self.tokens.insert(record.id.clone(), record);
                }
                Change::Operation(record) => {
                    self.operations.insert(record.key(), record);
                }
                Change::Execution(tenant, id, record) => {
                    self.executions.insert((tenant, id), record);
                }
                Change::Grant(key, birth, claim, record) => {
                    self.grants.insert((key, birth, claim), record);
                }
                Change::Body(key, birth, body) => {
                    self.bodies.insert((key, birth), body);
                }
                Change::Evidence(key, birth, number, record) => {
                    self.evidence.insert((key, birth, number), record);
                }
            }
        }
    }

    /// Everything that was laid on top, each row once, in its final form.
    pub fn into_changes(self) -> Changes {
        let rows = (self.namespaces.into_values().map(Change::Namespace))
            .chain(self.tokens.into_values().map(Change::Token))
            .chain(self.operations.into_values().map(Change::Operation))
            .chain(self.executions.into_iter().map(|((tenant, id), row)| Change::Execution(tenant, id, row)))
            .chain(self.grants.into_iter().map(|((key, birth, claim), row)| Change::Grant(key, birth, claim, row)))
            .chain(self.bodies.into_iter().map(|((key, birth), row)| Change::Body(key, birth, row)))
            .chain(self.evidence.into_iter().map(|((key, birth, n), row)| Change::Evidence(key, birth, n, row)))
            .collect();
        Changes { head: self.head, rows }
    }
}

impl<V: View> View for Overlay<'_, V> {
    type Error = V::Error;

    fn head(&self) -> Head {
        self.head
    }

    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, V::Error> {
        // Namespaces are few and rarely written: the common case must not build a key to look up an empty map.
        if !self.namespaces.is_empty()
            && let Some(record) = self.namespaces.get(&(tenant.clone(), name.clone()))
        {
            return Ok(Some(record.clone()));
        }
        self.base.namespace(tenant, name)
    }

    fn operation(&self, key: &OperationKey) -> Result<Option<OperationRecord>, V::Error> {
        match self.operations.get(key) {
            Some(record) => Ok(Some(record.clone())),
            None => self.base.operation(key),
        }
    }

    fn execution(&self, tenant: TenantTag, id: &ExecutionId) -> Result<Option<ExecutionRecord>, V::Error> {
        match self.executions.get(&(tenant, *id)) {
            Some(record) => Ok(Some(record.clone())),
            None => self.base.execution(tenant, id),
        }
    }

    fn grant(&self, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Result<Option<GrantRecord>, V::Error> {
        match self.grants.get(&(*key, birth, *claim)) {
            Some(record) => Ok(Some(record.clone())),
            None => self.base.grant(key, birth, claim),
        }
    }

    fn body(&self, key: &OperationKey, birth: Birth) -> Result<Option<Body>, V::Error> {
        match self.bodies.get(&(*key, birth)) {
            Some(body) => Ok(Some(body.clone())),
            None => self.base.body(key, birth),
        }
    }
}
