//! The data directory that each member is known with, and what followed from it.
//! A member that comes back with another one has forgotten what it promised: no byte passes between it and this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hapax_codec::membership::DataId;

use crate::types::NodeId;

/// What the membership says of each member's data. Clones are the same.
#[derive(Clone, Default)]
pub struct KnownData(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Nodes without an entry are admitted with any data: nothing is known of them yet.
    members: BTreeMap<NodeId, DataId>,
    /// The foreign data that was last told of, so that it is told once. Holds members alone.
    told: BTreeMap<NodeId, DataId>,
    /// Members that know this node with other data.
    refusing: BTreeSet<NodeId>,
}

impl KnownData {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a member's data. Tells whether that is news.
    pub(crate) fn set(&self, node: NodeId, data: DataId) -> bool {
        data.is_known() && self.lock().members.insert(node, data) != Some(data)
    }

    /// Forgets a node that left the cluster.
    pub(crate) fn forget(&self, node: NodeId) {
        let mut state = self.lock();
        state.members.remove(&node);
        state.told.remove(&node);
        state.refusing.remove(&node);
    }

    /// Whether a node is who it says, as far as its data tells. Logs the first refusal.
    pub(crate) fn admits(&self, node: NodeId, data: DataId) -> bool {
        let mut state = self.lock();
        if state.members.get(&node).is_none_or(|known| *known == data) {
            return true;
        }
        if state.told.insert(node, data) != Some(data) {
            tracing::error!(
                node,
                "node {node} was known with other data: if its data was lost, it must join again, empty, under a new \
                 node id"
            );
        }
        false
    }

    /// Notes whether a member knows this node with other data than it has. Logs the first refusal.
    pub(crate) fn note(&self, node: NodeId, refuses: bool) {
        if !refuses {
            self.lock().refusing.remove(&node);
        } else if self.lock().refusing.insert(node) {
            tracing::error!(
                by = node,
                "refused by node {node}: this node was known with other data: if its data was lost, it must join again, \
                 empty, under a new node id"
            );
        }
    }

    /// A member that knows this node with other data, if any does.
    pub(crate) fn refusing(&self) -> Option<NodeId> {
        self.lock().refusing.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: DataId = DataId([1; 16]);
    const SECOND: DataId = DataId([2; 16]);

    #[test]
    fn only_a_known_member_with_other_data_is_kept_out() {
        let known = KnownData::default();
        assert!(known.admits(1, FIRST) && known.admits(1, SECOND), "nothing is known");
        assert!(!known.set(1, DataId::UNKNOWN), "a configured member was not heard");
        assert!(known.admits(1, SECOND));
        assert!(known.set(1, FIRST));
        assert!(!known.set(1, FIRST), "no news");
        assert!(known.admits(1, FIRST) && !known.admits(1, SECOND) && !known.admits(1, DataId::UNKNOWN));
        assert!(known.admits(2, SECOND), "another node");
        known.forget(1);
        assert!(known.admits(1, SECOND));
    }

    #[test]
    fn a_refusal_is_remembered_until_it_ends() {
        let known = KnownData::default();
        assert_eq!(known.refusing(), None);
        known.note(3, true);
        known.note(2, false);
        assert_eq!(known.refusing(), Some(3));
        known.note(3, false);
        assert_eq!(known.refusing(), None);
    }
}
