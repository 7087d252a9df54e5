//! How the rules see the state: a read-only view, and an overlay that lets later commands see earlier ones.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::capability::{CapabilityRecord, DecisionRecord, UseRecord};
use crate::change::{Change, Changes, Event, Head};
use crate::epoch::EpochRecord;
use crate::evidence::EvidenceRecord;
use crate::ids::{
    Birth, CapabilityId, ClaimId, DecisionKey, EpochScope, ExecutionId, InboxKey, NamespaceName, OperationKey,
    TenantId, TenantTag,
};
use crate::inbox::InboxRecord;
use crate::namespace::{NamespaceRecord, NamespaceStatus};
use crate::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord, Place};
use crate::refusal::{RefusalKey, RefusalRecord};
use crate::tenant::{TenantRecord, TokenRecord};

/// A read-only view of the rows at one log index.
///
/// It shows what is physically there. The rules never look at it directly: [`crate::retention::Shown`] hides what is gone, so
/// that no answer depends on what is still there. An error means that this node's storage failed; it is handed up untouched.
pub trait View {
    /// What a failed read gives.
    type Error;

    /// The head.
    fn head(&self) -> Head;
    /// A namespace's policy.
    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, Self::Error>;
    /// What changes in a namespace by itself; all zero where nothing did yet.
    fn status(&self, tenant: &TenantId, name: &NamespaceName) -> Result<NamespaceStatus, Self::Error>;
    /// A tenant.
    fn tenant(&self, id: &TenantId) -> Result<Option<TenantRecord>, Self::Error>;
    /// A token.
    fn token(&self, id: &str) -> Result<Option<TokenRecord>, Self::Error>;
    /// A register of authority that was bumped.
    fn epoch(&self, tenant: &TenantId, scope: &EpochScope) -> Result<Option<EpochRecord>, Self::Error>;
    /// An operation.
    fn operation(&self, key: &OperationKey) -> Result<Option<OperationRecord>, Self::Error>;
    /// Where an execution is.
    fn execution(&self, tenant: TenantTag, id: &ExecutionId) -> Result<Option<ExecutionRecord>, Self::Error>;
    /// A superseded claim.
    fn grant(&self, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Result<Option<GrantRecord>, Self::Error>;
    /// An inline result.
    fn body(&self, key: &OperationKey, birth: Birth) -> Result<Option<Body>, Self::Error>;
    /// A capability.
    fn capability(&self, tenant: TenantTag, id: &CapabilityId) -> Result<Option<CapabilityRecord>, Self::Error>;
    /// The capability that a decision led to.
    fn decision(&self, key: &DecisionKey) -> Result<Option<DecisionRecord>, Self::Error>;
    /// A use of a bounded-use capability.
    fn used(
        &self,
        tenant: TenantTag,
        id: &CapabilityId,
        key: &OperationKey,
    ) -> Result<Option<UseRecord>, Self::Error>;
    /// An accepted delivery.
    fn inbox(&self, key: &InboxKey) -> Result<Option<InboxRecord>, Self::Error>;
    /// A refusal.
    fn refusal(&self, key: &RefusalKey) -> Result<Option<RefusalRecord>, Self::Error>;
}

/// A view with the changes of the entries so far laid over it.
#[derive(Debug)]
pub struct Overlay<'v, V> {
    base: &'v V,
    head: Head,
    namespaces: BTreeMap<(TenantId, NamespaceName), NamespaceRecord>,
    statuses: BTreeMap<(TenantId, NamespaceName), NamespaceStatus>,
    tenants: BTreeMap<TenantId, TenantRecord>,
    tokens: BTreeMap<String, TokenRecord>,
    epochs: BTreeMap<(TenantId, EpochScope), EpochRecord>,
    operations: BTreeMap<OperationKey, (Box<OperationRecord>, Option<Place>)>,
    executions: BTreeMap<(TenantTag, ExecutionId), ExecutionRecord>,
    grants: BTreeMap<(OperationKey, Birth, ClaimId), GrantRecord>,
    bodies: BTreeMap<(OperationKey, Birth), Body>,
    evidence: BTreeMap<(OperationKey, Birth, u32), EvidenceRecord>,
    capabilities: BTreeMap<(TenantTag, CapabilityId), CapabilityRecord>,
    decisions: BTreeMap<DecisionKey, DecisionRecord>,
    uses: BTreeMap<(TenantTag, CapabilityId, OperationKey), UseRecord>,
    inbox: BTreeMap<InboxKey, InboxRecord>,
    refusals: BTreeMap<RefusalKey, RefusalRecord>,
    events: Vec<Event>,
}

impl<'v, V: View> Overlay<'v, V> {
    /// An overlay without changes.
    pub fn new(base: &'v V) -> Self {
        Self {
            base,
            head: base.head(),
            namespaces: BTreeMap::new(),
            statuses: BTreeMap::new(),
            tenants: BTreeMap::new(),
            tokens: BTreeMap::new(),
            epochs: BTreeMap::new(),
            operations: BTreeMap::new(),
            executions: BTreeMap::new(),
            grants: BTreeMap::new(),
            bodies: BTreeMap::new(),
            evidence: BTreeMap::new(),
            capabilities: BTreeMap::new(),
            decisions: BTreeMap::new(),
            uses: BTreeMap::new(),
            inbox: BTreeMap::new(),
            refusals: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Lays `changes` on top.
    pub fn absorb(&mut self, changes: Changes) {
        self.head = changes.head;
        self.events.extend(changes.events);
        for row in changes.rows {
            self.absorb_row(row);
        }
    }

    fn absorb_row(&mut self, row: Change) {
        match row {
            Change::Namespace(record) => {
                self.namespaces.insert((record.tenant.clone(), record.name.clone()), record);
            }
            Change::Status(tenant, name, status) => {
                self.statuses.insert((tenant, name), status);
            }
            Change::Tenant(record) => {
                self.tenants.insert(record.id.clone(), record);
            }
            Change::Token(record) => {
                self.tokens.insert(record.id.clone(), record);
            }
            Change::Epoch(record) => {
                self.epochs.insert((record.tenant.clone(), record.scope.clone()), record);
            }
            Change::Operation { record, was } => {
                // Where it stood below this overlay is where the first change found it.
                let was = self.operations.get(&record.key()).map_or(was, |(_, first)| *first);
                self.operations.insert(record.key(), (record, was));
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
            Change::Capability(record) => {
                self.capabilities.insert((TenantTag::of(&record.tenant), record.id), record);
            }
            Change::Decision(key, record) => {
                self.decisions.insert(key, record);
            }
            Change::Use(tenant, id, key, record) => {
                self.uses.insert((tenant, id, key), record);
            }
            Change::Inbox(key, record) => {
                self.inbox.insert(key, record);
            }
            Change::Refusal(key, record) => {
                self.refusals.insert(key, record);
            }
        }
    }

    /// Everything that was laid on top, each row once, in its final form.
    pub fn into_changes(self) -> Changes {
        let rows = (self.namespaces.into_values().map(Change::Namespace))
            .chain(self.statuses.into_iter().map(|((tenant, name), row)| Change::Status(tenant, name, row)))
            .chain(self.tenants.into_values().map(Change::Tenant))
            .chain(self.tokens.into_values().map(Change::Token))
            .chain(self.epochs.into_values().map(Change::Epoch))
            .chain(self.operations.into_values().map(|(record, was)| Change::Operation { record, was }))
            .chain(self.executions.into_iter().map(|((tenant, id), row)| Change::Execution(tenant, id, row)))
            .chain(self.grants.into_iter().map(|((key, birth, claim), row)| Change::Grant(key, birth, claim, row)))
            .chain(self.bodies.into_iter().map(|((key, birth), row)| Change::Body(key, birth, row)))
            .chain(self.evidence.into_iter().map(|((key, birth, n), row)| Change::Evidence(key, birth, n, row)))
            .chain(self.capabilities.into_values().map(Change::Capability))
            .chain(self.decisions.into_iter().map(|(key, row)| Change::Decision(key, row)))
            .chain(self.uses.into_iter().map(|((tenant, id, key), row)| Change::Use(tenant, id, key, row)))
            .chain(self.inbox.into_iter().map(|(key, row)| Change::Inbox(key, row)))
            .chain(self.refusals.into_iter().map(|(key, row)| Change::Refusal(key, row)))
            .collect();
        Changes { head: self.head, rows, events: self.events }
    }
}

/// A row from the map laid on top, else from below. Most maps are empty most of the time: then no key is built.
macro_rules! laid_over {
    ($self:ident, $map:ident, $key:expr, $below:expr) => {{
        if !$self.$map.is_empty()
            && let Some(record) = $self.$map.get(&$key)
        {
            return Ok(Some(record.clone()));
        }
        $below
    }};
}

impl<V: View> View for Overlay<'_, V> {
    type Error = V::Error;

    fn head(&self) -> Head {
        self.head
    }

    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, V::Error> {
        laid_over!(self, namespaces, (tenant.clone(), name.clone()), self.base.namespace(tenant, name))
    }

    fn status(&self, tenant: &TenantId, name: &NamespaceName) -> Result<NamespaceStatus, V::Error> {
        if !self.statuses.is_empty()
            && let Some(status) = self.statuses.get(&(tenant.clone(), name.clone()))
        {
            return Ok(*status);
        }
        self.base.status(tenant, name)
    }

    fn tenant(&self, id: &TenantId) -> Result<Option<TenantRecord>, V::Error> {
        laid_over!(self, tenants, *id, self.base.tenant(id))
    }

    fn token(&self, id: &str) -> Result<Option<TokenRecord>, V::Error> {
        laid_over!(self, tokens, *id, self.base.token(id))
    }

    fn epoch(&self, tenant: &TenantId, scope: &EpochScope) -> Result<Option<EpochRecord>, V::Error> {
        laid_over!(self, epochs, (tenant.clone(), scope.clone()), self.base.epoch(tenant, scope))
    }

    fn operation(&self, key: &OperationKey) -> Result<Option<OperationRecord>, V::Error> {
        match self.operations.get(key) {
            Some((record, _)) => Ok(Some((**record).clone())),
            None => self.base.operation(key),
        }
    }

    fn execution(&self, tenant: TenantTag, id: &ExecutionId) -> Result<Option<ExecutionRecord>, V::Error> {
        laid_over!(self, executions, (tenant, *id), self.base.execution(tenant, id))
    }

    fn grant(&self, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Result<Option<GrantRecord>, V::Error> {
        laid_over!(self, grants, (*key, birth, *claim), self.base.grant(key, birth, claim))
    }

    fn body(&self, key: &OperationKey, birth: Birth) -> Result<Option<Body>, V::Error> {
        laid_over!(self, bodies, (*key, birth), self.base.body(key, birth))
    }

    fn capability(&self, tenant: TenantTag, id: &CapabilityId) -> Result<Option<CapabilityRecord>, V::Error> {
        laid_over!(self, capabilities, (tenant, *id), self.base.capability(tenant, id))
    }

    fn decision(&self, key: &DecisionKey) -> Result<Option<DecisionRecord>, V::Error> {
        laid_over!(self, decisions, *key, self.base.decision(key))
    }

    fn used(&self, tenant: TenantTag, id: &CapabilityId, key: &OperationKey) -> Result<Option<UseRecord>, V::Error> {
        laid_over!(self, uses, (tenant, *id, *key), self.base.used(tenant, id, key))
    }

    fn inbox(&self, key: &InboxKey) -> Result<Option<InboxRecord>, V::Error> {
        laid_over!(self, inbox, *key, self.base.inbox(key))
    }

    fn refusal(&self, key: &RefusalKey) -> Result<Option<RefusalRecord>, V::Error> {
        laid_over!(self, refusals, *key, self.base.refusal(key))
    }
}
