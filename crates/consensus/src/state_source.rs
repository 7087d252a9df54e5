//! The applied state as the tracker asks for it: at the start, and after a snapshot took the state's place.

use hapax_machine::View;
use hapax_machine::change::Head;
use hapax_machine::ids::{NamespaceName, TenantId};
use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::OperationRecord;
use hapax_store::state::StateStore;

use crate::tracker::StateSource;

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

    fn on_lapse(&self, tenant: &TenantId, namespace: &NamespaceName) -> OnLapse {
        // An operation without a policy is shown to nobody; unknown is the state that nothing follows from.
        self.0.view().policy(tenant, namespace).map_or(OnLapse::Unknown, |policy| policy.on_lapse)
    }

    fn live(&self, visit: &mut dyn FnMut(&OperationRecord)) {
        if let Err(fault) = self.0.view().live(&mut |record| visit(&record)) {
            tracing::error!(%fault, "live operations not read");
        }
    }
}
