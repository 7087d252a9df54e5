//! States: one that is what it is told to be, and the rows of the machine in memory.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};

use hapax_machine::capability::{CapabilityRecord, DecisionRecord, UseRecord};
use hapax_machine::change::{Change, Head};
use hapax_machine::epoch::EpochRecord;
use hapax_machine::ids::{
    AuthorityEpoch, Birth, CapabilityId, ClaimId, DecisionKey, EpochScope, ExecutionId, InboxKey, NamespaceName,
    OperationKey, TenantId, TenantTag,
};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::{NamespaceRecord, NamespaceStatus};
use hapax_machine::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord};
use hapax_machine::refusal::{RefusalKey, RefusalRecord};
use hapax_machine::tenant::{TenantRecord, TokenRecord};
use hapax_machine::{Changes, Overlay, View};

use super::{lock, policy};
use crate::state_source::StateSource;

/// A state that is what it is told to be.
pub(crate) struct FakeState(Mutex<Told>);

struct Told {
    index: u64,
    head: Head,
    live: Vec<OperationRecord>,
    policy: NamespaceRecord,
    registers: Vec<(EpochScope, AuthorityEpoch)>,
}

impl FakeState {
    pub(crate) fn new(index: u64, head: Head, live: Vec<OperationRecord>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Told { index, head, live, policy: policy(), registers: Vec::new() })))
    }

    pub(crate) fn replace(&self, index: u64, head: Head, live: Vec<OperationRecord>) {
        let mut told = lock(&self.0);
        (told.index, told.head, told.live) = (index, head, live);
    }

    /// The policy of whatever namespace.
    pub(crate) fn set_policy(&self, policy: NamespaceRecord) {
        lock(&self.0).policy = policy;
    }

    pub(crate) fn set_register(&self, scope: &str, value: u64) {
        lock(&self.0).registers.push((EpochScope::new(scope), AuthorityEpoch(value)));
    }
}

impl StateSource for FakeState {
    fn applied_index(&self) -> u64 {
        lock(&self.0).index
    }

    fn head(&self) -> Head {
        lock(&self.0).head
    }

    fn policy(&self, _: &TenantId, _: &NamespaceName) -> Option<NamespaceRecord> {
        Some(lock(&self.0).policy.clone())
    }

    fn register(&self, _: &TenantId, scope: &EpochScope) -> AuthorityEpoch {
        let told = lock(&self.0);
        let found = told.registers.iter().rev().find(|(named, _)| named == scope);
        found.map_or(AuthorityEpoch(0), |(_, value)| *value)
    }

    fn live(&self, visit: &mut dyn FnMut(&OperationRecord)) {
        // Whoever is told may ask for more.
        let live = lock(&self.0).live.clone();
        live.iter().for_each(visit);
    }

    fn namespaces(&self, _: &mut dyn FnMut(&NamespaceRecord, &NamespaceStatus)) {}
}

/// The rows of the machine, in memory: everything lies over nothing.
pub(crate) struct Rows {
    rows: Overlay<'static, Nothing>,
    namespaces: Vec<(TenantId, NamespaceName)>,
}

impl Default for Rows {
    fn default() -> Self {
        Self { rows: Overlay::new(&Nothing), namespaces: Vec::new() }
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("head", &self.rows.head()).finish_non_exhaustive()
    }
}

impl Rows {
    pub(crate) fn view(&self) -> &Overlay<'static, Nothing> {
        &self.rows
    }

    pub(crate) fn absorb(&mut self, changes: &Changes) {
        for row in &changes.rows {
            if let Change::Namespace(record) = row {
                self.namespaces.push((record.tenant.clone(), record.name.clone()));
            }
        }
        self.rows.absorb(changes.clone());
        self.namespaces.sort_unstable();
        self.namespaces.dedup();
    }

    /// Writes rows that no command wrote.
    pub(crate) fn put(&mut self, rows: Vec<Change>) {
        let head = self.rows.head();
        self.absorb(&Changes { head, rows, ..Changes::default() });
    }

    pub(crate) fn set_head(&mut self, head: Head) {
        self.absorb(&Changes { head, ..Changes::default() });
    }

    pub(crate) fn operation(&self, key: &OperationKey) -> OperationRecord {
        self.rows.operation(key).unwrap().expect("there is no such operation")
    }

    pub(crate) fn namespaces(&self, visit: &mut dyn FnMut(&NamespaceRecord, &NamespaceStatus)) {
        for (tenant, name) in &self.namespaces {
            let (policy, status) = (self.rows.namespace(tenant, name).unwrap(), self.rows.status(tenant, name));
            visit(&policy.unwrap(), &status.unwrap());
        }
    }
}

/// A state without rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nothing;

impl View for Nothing {
    type Error = Infallible;

    fn head(&self) -> Head {
        Head::default()
    }

    fn namespace(&self, _: &TenantId, _: &NamespaceName) -> Result<Option<NamespaceRecord>, Infallible> {
        Ok(None)
    }

    fn status(&self, _: &TenantId, _: &NamespaceName) -> Result<NamespaceStatus, Infallible> {
        Ok(NamespaceStatus::default())
    }

    fn tenant(&self, _: &TenantId) -> Result<Option<TenantRecord>, Infallible> {
        Ok(None)
    }

    fn token(&self, _: &str) -> Result<Option<TokenRecord>, Infallible> {
        Ok(None)
    }

    fn epoch(&self, _: &TenantId, _: &EpochScope) -> Result<Option<EpochRecord>, Infallible> {
        Ok(None)
    }

    fn operation(&self, _: &OperationKey) -> Result<Option<OperationRecord>, Infallible> {
        Ok(None)
    }

    fn execution(&self, _: TenantTag, _: &ExecutionId) -> Result<Option<ExecutionRecord>, Infallible> {
        Ok(None)
    }

    fn grant(&self, _: &OperationKey, _: Birth, _: &ClaimId) -> Result<Option<GrantRecord>, Infallible> {
        Ok(None)
    }

    fn body(&self, _: &OperationKey, _: Birth) -> Result<Option<Body>, Infallible> {
        Ok(None)
    }

    fn capability(&self, _: TenantTag, _: &CapabilityId) -> Result<Option<CapabilityRecord>, Infallible> {
        Ok(None)
    }

    fn decision(&self, _: &DecisionKey) -> Result<Option<DecisionRecord>, Infallible> {
        Ok(None)
    }

    fn used(&self, _: TenantTag, _: &CapabilityId, _: &OperationKey) -> Result<Option<UseRecord>, Infallible> {
        Ok(None)
    }

    fn inbox(&self, _: &InboxKey) -> Result<Option<InboxRecord>, Infallible> {
        Ok(None)
    }

    fn refusal(&self, _: &RefusalKey) -> Result<Option<RefusalRecord>, Infallible> {
        Ok(None)
    }
}
