//! The applied state as this crate's own work asks for it: for what is not told by a change, and for what is small and in memory.

use hapax_machine::View;
use hapax_machine::change::Head;
use hapax_machine::ids::{AuthorityEpoch, EpochScope, NamespaceName, TenantId};
use hapax_machine::namespace::{NamespaceRecord, NamespaceStatus};
use hapax_machine::operation::OperationRecord;
use hapax_store::state::StateStore;

/// The applied state. Its answers are those of some moment between the call and its return.
pub trait StateSource: Send + Sync + 'static {
    /// The last applied index; 0 where nothing was applied.
    fn applied_index(&self) -> u64;
    /// The head at that index.
    fn head(&self) -> Head;
    /// A namespace's policy. Quick: it is asked while entries are applied.
    fn policy(&self, tenant: &TenantId, namespace: &NamespaceName) -> Option<NamespaceRecord>;
    /// Where a register of authority stands. Quick, as above.
    fn register(&self, tenant: &TenantId, scope: &EpochScope) -> AuthorityEpoch;
    /// Visits every executing operation.
    fn live(&self, visit: &mut dyn FnMut(&OperationRecord));
    /// Visits every namespace's policy and status, in an order that stays.
    fn namespaces(&self, visit: &mut dyn FnMut(&NamespaceRecord, &NamespaceStatus));
}

/// The state store. A failed read has told the fatal hook already: the node is about to stop, and what is answered
/// here until then makes no difference.
pub(crate) struct Source(pub(crate) StateStore);

impl StateSource for Source {
    fn applied_index(&self) -> u64 {
        self.0.view().applied().map_or(0, |id| id.index)
    }

    fn head(&self) -> Head {
        self.0.view().head()
    }

    fn policy(&self, tenant: &TenantId, namespace: &NamespaceName) -> Option<NamespaceRecord> {
        self.0.view().policy(tenant, namespace).cloned()
    }

    fn register(&self, tenant: &TenantId, scope: &EpochScope) -> AuthorityEpoch {
        let found = self.0.view().epoch(tenant, scope).ok().flatten();
        found.map_or(AuthorityEpoch(0), |record| record.value)
    }

    fn live(&self, visit: &mut dyn FnMut(&OperationRecord)) {
        if let Err(fault) = self.0.view().live(&mut |record| visit(&record)) {
            tracing::error!(%fault, "live operations not read");
        }
    }

    fn namespaces(&self, visit: &mut dyn FnMut(&NamespaceRecord, &NamespaceStatus)) {
        let view = self.0.view();
        for tenant in view.tenants() {
            for policy in view.namespaces_of(&tenant.id) {
                // From memory: it cannot fail.
                if let Ok(status) = view.status(&policy.tenant, &policy.name) {
                    visit(policy, &status);
                }
            }
        }
    }
}
