//! What every claim asks for and what is small: policies, statuses, tenants, tokens, epochs. It is held in memory.
//! Every commit publishes tables of its own; they share what it did not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use hapax_codec::record;
use hapax_machine::Change;
use hapax_machine::epoch::EpochRecord;
use hapax_machine::ids::{EpochScope, GroupId, NamespaceName, TenantId};
use hapax_machine::namespace::{NamespaceRecord, NamespaceStatus};
use hapax_machine::tenant::{TenantRecord, TokenRecord};
use xxhash_rust::xxh3::Xxh3;

use super::disk::{Family, Rows};
use super::keys;
use super::view::{each, each_row, undecodable};
use crate::seam::StorageFault;

/// A map is spread over so many parts: a commit copies one part, and as many pointers as there are parts.
const PARTS: usize = 64;

/// A map in parts, each shared by all versions of the map that it is equal in.
struct Spread<M>(Arc<Vec<Arc<M>>>);

impl<M> Clone for Spread<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Default> Default for Spread<M> {
    fn default() -> Self {
        let empty = Arc::new(M::default());
        Self(Arc::new(vec![empty; PARTS]))
    }
}

impl<M> Spread<M> {
    /// The part that holds what is called so.
    fn part(&self, names: [&str; 2]) -> &M {
        &self.0[place(names)]
    }

    fn parts(&self) -> impl Iterator<Item = &M> {
        self.0.iter().map(|part| &**part)
    }
}

impl<M: Clone> Spread<M> {
    fn part_mut(&mut self, names: [&str; 2]) -> &mut M {
        Arc::make_mut(&mut Arc::make_mut(&mut self.0)[place(names)])
    }
}

fn place(names: [&str; 2]) -> usize {
    let mut hash = Xxh3::new();
    for name in names {
        hash.update(name.as_bytes());
        // No name holds it, so that two pairs are not one text.
        hash.update(&[0xff]);
    }
    // The remainder fits: it is less than PARTS.
    (hash.digest() % PARTS as u64) as usize
}

/// By tenant and name; looked up without building a key.
type Named<N, T> = Spread<BTreeMap<TenantId, BTreeMap<N, T>>>;

/// The tables of one instant. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Tables {
    namespaces: Named<NamespaceName, NamespaceRecord>,
    statuses: Named<NamespaceName, NamespaceStatus>,
    epochs: Named<EpochScope, EpochRecord>,
    tenants: Spread<BTreeMap<TenantId, TenantRecord>>,
    tokens: Spread<BTreeMap<String, TokenRecord>>,
}

impl Tables {
    /// Reads what stands in `rows`.
    pub(super) fn load(rows: &dyn Rows, group: GroupId) -> Result<Self, StorageFault> {
        let mut tables = Self::default();
        let meta = Family::Meta;
        each(rows, meta, &keys::namespaces(group), record::decode_namespace, &mut |record| {
            tables.put(&Change::Namespace(record));
        })?;
        each(rows, meta, &keys::tenants(group), record::decode_tenant, &mut |record| {
            tables.put(&Change::Tenant(record));
        })?;
        each(rows, meta, &keys::tokens(group), record::decode_token, &mut |record| {
            tables.put(&Change::Token(record));
        })?;
        each(rows, meta, &keys::epochs(group), record::decode_epoch, &mut |record| {
            tables.put(&Change::Epoch(record));
        })?;
        each_row(rows, meta, &keys::statuses(group), &mut |key, value| {
            let (tenant, name) = keys::names(key).ok_or_else(|| undecodable(meta, key, &"its key names nothing"))?;
            let status = record::decode_status(value).map_err(|error| undecodable(meta, key, &error))?;
            tables.put(&Change::Status(tenant, NamespaceName::new(name), status));
            Ok(())
        })?;
        Ok(tables)
    }

    /// Takes in a row that was written, if it is one of these.
    pub(super) fn put(&mut self, change: &Change) {
        match change {
            Change::Namespace(record) => {
                let part = self.namespaces.part_mut([record.tenant.as_str(), record.name.as_str()]);
                part.entry(record.tenant.clone()).or_default().insert(record.name.clone(), record.clone());
            }
            Change::Status(tenant, name, status) => self.put_status(tenant, name, *status),
            Change::Epoch(record) => {
                let part = self.epochs.part_mut([record.tenant.as_str(), record.scope.as_str()]);
                part.entry(record.tenant.clone()).or_default().insert(record.scope.clone(), record.clone());
            }
            Change::Tenant(record) => {
                self.tenants.part_mut([record.id.as_str(), ""]).insert(record.id.clone(), record.clone());
            }
            Change::Token(record) => {
                self.tokens.part_mut([&record.id, ""]).insert(record.id.clone(), record.clone());
            }
            Change::Operation { .. }
            | Change::Execution(..)
            | Change::Grant(..)
            | Change::Body(..)
            | Change::Evidence(..)
            | Change::Capability(_)
            | Change::Decision(..)
            | Change::Use(..)
            | Change::Inbox(..)
            | Change::Refusal(..) => {}
        }
    }

    /// Almost every commit counts something: the names are copied only where they are new.
    fn put_status(&mut self, tenant: &TenantId, name: &NamespaceName, status: NamespaceStatus) {
        let part = self.statuses.part_mut([tenant.as_str(), name.as_str()]);
        match part.get_mut(tenant).and_then(|of_tenant| of_tenant.get_mut(name)) {
            Some(stands) => *stands = status,
            None => {
                part.entry(tenant.clone()).or_default().insert(name.clone(), status);
            }
        }
    }

    pub(super) fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Option<&NamespaceRecord> {
        self.namespaces.part([tenant.as_str(), name.as_str()]).get(tenant)?.get(name)
    }

    pub(super) fn status(&self, tenant: &TenantId, name: &NamespaceName) -> Option<NamespaceStatus> {
        self.statuses.part([tenant.as_str(), name.as_str()]).get(tenant)?.get(name).copied()
    }

    pub(super) fn epoch(&self, tenant: &TenantId, scope: &EpochScope) -> Option<&EpochRecord> {
        self.epochs.part([tenant.as_str(), scope.as_str()]).get(tenant)?.get(scope)
    }

    pub(super) fn tenant(&self, id: &TenantId) -> Option<&TenantRecord> {
        self.tenants.part([id.as_str(), ""]).get(id)
    }

    pub(super) fn token(&self, id: &str) -> Option<&TokenRecord> {
        self.tokens.part([id, ""]).get(id)
    }

    /// All of a tenant's, by name.
    pub(super) fn namespaces_of(&self, tenant: &TenantId) -> Vec<&NamespaceRecord> {
        let of_tenant = self.namespaces.parts().filter_map(|part| part.get(tenant));
        let mut found: Vec<_> = of_tenant.flat_map(BTreeMap::values).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// All of a tenant's, by scope.
    pub(super) fn epochs_of(&self, tenant: &TenantId) -> Vec<&EpochRecord> {
        let of_tenant = self.epochs.parts().filter_map(|part| part.get(tenant));
        let mut found: Vec<_> = of_tenant.flat_map(BTreeMap::values).collect();
        found.sort_by(|a, b| a.scope.cmp(&b.scope));
        found
    }

    /// All of a tenant's, by id.
    pub(super) fn tokens_of(&self, tenant: &TenantId) -> Vec<&TokenRecord> {
        let all = self.tokens.parts().flat_map(BTreeMap::values);
        let mut found: Vec<_> = all.filter(|record| record.tenant == *tenant).collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }

    /// By id.
    pub(super) fn tenants(&self) -> Vec<&TenantRecord> {
        let mut found: Vec<_> = self.tenants.parts().flat_map(BTreeMap::values).collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }

    /// Every status that was ever written, in no order that means anything.
    pub(super) fn statuses(&self) -> impl Iterator<Item = (&TenantId, &NamespaceName, &NamespaceStatus)> {
        let of_tenants = self.statuses.parts().flatten();
        of_tenants.flat_map(|(tenant, named)| named.iter().map(move |(name, status)| (tenant, name, status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(open: u64) -> NamespaceStatus {
        NamespaceStatus { open, ..NamespaceStatus::default() }
    }

    #[test]
    fn versions_share_what_they_do_not_differ_in() {
        let (tenant, name) = (TenantId::new("t"), NamespaceName::new("n"));
        let mut before = Tables::default();
        for n in 0..200 {
            before.put_status(&tenant, &NamespaceName::new(format!("n{n}")), status(n));
        }
        before.put_status(&tenant, &name, status(1));
        let mut after = before.clone();
        after.put_status(&tenant, &name, status(2));
        assert_eq!(before.status(&tenant, &name), Some(status(1)));
        assert_eq!(after.status(&tenant, &name), Some(status(2)));
        let differ =
            before.statuses.0.iter().zip(after.statuses.0.iter()).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!(differ, 1);
        assert_eq!(after.statuses().count(), 201);
    }

    #[test]
    fn one_pair_of_names_is_not_another() {
        let mut tables = Tables::default();
        tables.put_status(&TenantId::new("ab"), &NamespaceName::new("c"), status(1));
        assert_eq!(tables.status(&TenantId::new("a"), &NamespaceName::new("bc")), None);
        assert_ne!(place(["ab", "c"]), place(["a", "bc"]), "they may share a part, but not by being one text");
    }
}
