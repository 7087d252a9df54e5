//! Lists and look-ups over the state. Each is bounded, and goes on where it ended; what retention hides never appears.
//!
//! A page follows index rows to the records and compares: see [`super::index`]. It looks at a bounded number of rows, so it may
//! hold fewer than it might, or none, and still say where to go on.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use hapax_codec::record;
use hapax_machine::View;
use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::epoch::EpochRecord;
use hapax_machine::evidence::EvidenceRecord;
use hapax_machine::ids::{
    Birth, CapabilityId, Consumer, CorrelationId, MessageId, NamespaceName, OperationId, OperationKey, Resource,
    TenantId, TenantTag, WallTime,
};
use hapax_machine::namespace::{NamespaceRecord, NamespaceStatus};
use hapax_machine::operation::{Class, OperationRecord};
use hapax_machine::refusal::{RefusalKey, RefusalRecord, Subject};
use hapax_machine::retention::Shown;
use hapax_machine::tenant::{TenantRecord, TokenRecord};

use super::disk::{Family, TryRow};
use super::index::{self, Target};
use super::keys::{self, Key, Parts};
use super::view::undecodable;
use super::{StateView, Tables};
use crate::seam::StorageFault;

/// A page looks at so many rows at most.
pub const EXAMINED_PER_PAGE: usize = 2_000;

/// A list of several namespaces reads so far ahead in each.
const AHEAD: usize = 32;

/// Where a page ended, for the next one of the same list. Only the store gives it a meaning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(Vec<u8>);

impl Position {
    /// The position whose bytes these are. Bytes of another list end it, or begin it anew; they never show another one.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a page holds, and where to go on; `None` where the list has ended.
pub type Page<T> = (Vec<T>, Option<Position>);

type Read<T> = Result<T, StorageFault>;

impl StateView {
    /// Operations of a class, oldest first; with `older_than`, those that came into it before that.
    ///
    /// # Errors
    /// A row cannot be read, here and below.
    pub fn list(
        &self,
        tenant: &TenantId,
        namespace: &NamespaceName,
        class: Class,
        older_than: Option<WallTime>,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<OperationRecord>> {
        let prefix = index::places(self.0.group, TenantTag::of(tenant), namespace, class);
        let end = older_than.map(|bound| [&prefix[..], &bound.0.to_be_bytes()].concat());
        let range = Range { family: Family::Index, prefix, end };
        self.follow(range, after, limit, &mut |key, _| {
            let found = self.operation_behind(tenant, key)?;
            Ok(found.filter(|record| record.namespace == *namespace && stands_in(record, class, key)))
        })
    }

    /// Operations whose standing outcome carries the provider's id, in the order of their creation.
    ///
    /// # Errors
    /// As above.
    pub fn by_external_id(
        &self,
        tenant: &TenantId,
        namespace: &NamespaceName,
        external_id: &str,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<OperationRecord>> {
        let prefix = index::external_ids(self.0.group, TenantTag::of(tenant), namespace, external_id);
        self.follow(Range::of_index(prefix), after, limit, &mut |key, _| {
            Ok(self.operation_behind(tenant, key)?.filter(|record| {
                let outcome = record.outcome();
                let named = outcome.as_ref().and_then(|outcome| outcome.external_id.as_deref());
                record.namespace == *namespace && named == Some(external_id)
            }))
        })
    }

    /// Operations about a resource, in the order of their creation.
    ///
    /// # Errors
    /// As above.
    pub fn by_resource(
        &self,
        tenant: &TenantId,
        namespace: &NamespaceName,
        resource: &Resource,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<OperationRecord>> {
        let prefix = index::resources(self.0.group, TenantTag::of(tenant), namespace, resource);
        self.follow(Range::of_index(prefix), after, limit, &mut |key, _| {
            let found = self.operation_behind(tenant, key)?;
            Ok(found.filter(|record| record.namespace == *namespace && record.resource.as_ref() == Some(resource)))
        })
    }

    /// Operations of a story, whatever their namespace, in the order of their creation.
    ///
    /// # Errors
    /// As above.
    pub fn by_correlation(
        &self,
        tenant: &TenantId,
        id: &CorrelationId,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<OperationRecord>> {
        let prefix = index::correlations(self.0.group, TenantTag::of(tenant), id);
        self.follow(Range::of_index(prefix), after, limit, &mut |key, _| {
            Ok(self.operation_behind(tenant, key)?.filter(|record| record.correlation_id.as_ref() == Some(id)))
        })
    }

    /// Operations of several namespaces that are unknown and do not wait for people, oldest first over all of them.
    ///
    /// # Errors
    /// As above.
    pub fn unknown_oldest(
        &self,
        tenant: &TenantId,
        namespaces: &[NamespaceName],
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<OperationRecord>> {
        self.0.gate.check()?;
        // Most namespaces have none: then not even their first row is looked for.
        let mut named: Vec<_> = namespaces.iter().filter(|name| self.count(tenant, name).unknown > 0).collect();
        named.sort_unstable();
        named.dedup();
        let mut merged = named.into_iter().map(|name| Ahead::new(self, tenant, name, after)).collect::<Vec<_>>();
        let (mut found, mut next) = (Vec::new(), None);
        for _ in 0..EXAMINED_PER_PAGE {
            if found.len() >= limit {
                break;
            }
            let mut oldest: Option<(usize, &[u8])> = None;
            for (n, ahead) in merged.iter_mut().enumerate() {
                let first = self.0.gate.pass(ahead.first(self))?;
                if let Some(tail) = first.filter(|tail| oldest.is_none_or(|(_, other)| *tail < other)) {
                    oldest = Some((n, tail));
                }
            }
            let Some((n, _)) = oldest else {
                return Ok((found, None));
            };
            let ahead = &mut merged[n];
            let Some(tail) = ahead.tails.pop_front() else {
                break;
            };
            let key = [&ahead.prefix[..], &tail[..]].concat();
            let record = self.operation_behind(tenant, &key)?;
            found
                .extend(record.filter(|record| {
                    record.namespace == *ahead.namespace && stands_in(record, Class::Unknown, &key)
                }));
            next = Some(Position(tail));
        }
        Ok((found, next.or_else(|| after.cloned())))
    }

    /// What was said about an operation, and the number of each piece, in order.
    ///
    /// # Errors
    /// As above.
    pub fn evidence_of_operation(
        &self,
        tenant: &TenantId,
        id: &OperationId,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<(u32, EvidenceRecord)>> {
        let key = id.key(tenant);
        if Shown(self).operation(&key)?.is_none_or(|record| record.id != *id || record.tenant != *tenant) {
            return Ok((Vec::new(), None));
        }
        let prefix = keys::body(self.0.group, &key, id.birth);
        let len = prefix.len();
        let range = Range { family: Family::Evidence, prefix, end: None };
        self.follow(range, after, limit, &mut |key, value| {
            let number = Parts(&key[len..]).bytes().map(u32::from_be_bytes);
            let record =
                record::decode_evidence(value).map_err(|error| undecodable(Family::Evidence, key, &error))?;
            Ok(number.map(|number| (number, record)))
        })
    }

    /// Capabilities that were issued for an operation.
    ///
    /// # Errors
    /// As above.
    pub fn capabilities_of(
        &self,
        tenant: &TenantId,
        id: &OperationId,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<CapabilityRecord>> {
        let prefix = index::capabilities(self.0.group, &id.key(tenant), id.birth);
        self.follow(Range::of_index(prefix), after, limit, &mut |key, _| {
            let Some(Target::Capability(operation, _, capability)) = index::target(key) else {
                return Ok(None);
            };
            let found = Shown(self).capability(operation.tenant, &capability)?;
            Ok(found.filter(|record| {
                let bound = matches!(&record.bound, Bound::Attempt { operation, .. } if operation == id);
                bound && record.tenant == *tenant
            }))
        })
    }

    /// Refusals of a capability.
    ///
    /// # Errors
    /// As above.
    pub fn refusals_of_capability(
        &self,
        tenant: &TenantId,
        id: &CapabilityId,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<(RefusalKey, RefusalRecord)>> {
        let (tag, subject) = (TenantTag::of(tenant), Subject::Capability(*id));
        let range =
            Range { family: Family::Authority, prefix: keys::refusals(self.0.group, tag, &subject), end: None };
        let len = range.prefix.len();
        self.follow(range, after, limit, &mut |key, _| {
            let Some(hash) = Parts(&key[len..]).bytes() else {
                return Ok(None);
            };
            let key = RefusalKey { tenant: tag, subject, hash };
            Ok(Shown(self).refusal(&key)?.map(|record| (key, record)))
        })
    }

    /// Refusals of claims on an operation, whatever they presented.
    ///
    /// # Errors
    /// As above.
    pub fn refusals_of_operation(
        &self,
        tenant: &TenantId,
        id: &OperationId,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<(RefusalKey, RefusalRecord)>> {
        let prefix = index::refused_operation(self.0.group, TenantTag::of(tenant), &id.hash, id.birth);
        self.refusals(prefix, after, limit, &|record| record.operation.as_ref() == Some(id))
    }

    /// Refusals of a message.
    ///
    /// # Errors
    /// As above.
    pub fn refusals_of_message(
        &self,
        tenant: &TenantId,
        consumer: &Consumer,
        id: &MessageId,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<(RefusalKey, RefusalRecord)>> {
        let prefix = index::refused_message(self.0.group, TenantTag::of(tenant), consumer, id);
        self.refusals(prefix, after, limit, &|record| {
            record.message.as_ref().is_some_and(|message| message.consumer == *consumer && message.id == *id)
        })
    }

    /// Refusals in a story.
    ///
    /// # Errors
    /// As above.
    pub fn refusals_of_correlation(
        &self,
        tenant: &TenantId,
        id: &CorrelationId,
        after: Option<&Position>,
        limit: usize,
    ) -> Read<Page<(RefusalKey, RefusalRecord)>> {
        let prefix = index::refused_correlation(self.0.group, TenantTag::of(tenant), id);
        self.refusals(prefix, after, limit, &|record| record.correlation_id.as_ref() == Some(id))
    }

    /// A tenant's namespaces, by name.
    pub fn namespaces_of(&self, tenant: &TenantId) -> Vec<&NamespaceRecord> {
        self.tables().namespaces_of(tenant)
    }

    /// A tenant's tokens, by id.
    pub fn tokens_of(&self, tenant: &TenantId) -> Vec<&TokenRecord> {
        self.tables().tokens_of(tenant)
    }

    /// A tenant's registers of authority that were bumped, by scope.
    pub fn epochs_of(&self, tenant: &TenantId) -> Vec<&EpochRecord> {
        self.tables().epochs_of(tenant)
    }

    /// All tenants, by id.
    pub fn tenants(&self) -> Vec<&TenantRecord> {
        self.tables().tenants()
    }

    /// The statuses of all namespaces in which anything happened, in no order that means anything.
    pub fn statuses(&self) -> impl Iterator<Item = (&TenantId, &NamespaceName, &NamespaceStatus)> {
        self.tables().statuses()
    }

    fn tables(&self) -> &Tables {
        &self.0.tables
    }

    fn count(&self, tenant: &TenantId, name: &NamespaceName) -> NamespaceStatus {
        self.tables().status(tenant, name).unwrap_or_default()
    }

    fn refusals(
        &self,
        prefix: Key,
        after: Option<&Position>,
        limit: usize,
        is_meant: &dyn Fn(&RefusalRecord) -> bool,
    ) -> Read<Page<(RefusalKey, RefusalRecord)>> {
        self.follow(Range::of_index(prefix), after, limit, &mut |key, _| {
            let Some(Target::Refusal(key)) = index::target(key) else {
                return Ok(None);
            };
            Ok(Shown(self).refusal(&key)?.filter(is_meant).map(|record| (key, record)))
        })
    }

    /// The tenant's operation that an index row leads to.
    fn operation_behind(&self, tenant: &TenantId, key: &[u8]) -> Read<Option<OperationRecord>> {
        match index::target(key) {
            Some(Target::Operation(operation, birth)) => self.life(tenant, &operation, birth),
            _ => Ok(None),
        }
    }

    fn life(&self, tenant: &TenantId, key: &OperationKey, birth: Birth) -> Read<Option<OperationRecord>> {
        let found = Shown(self).operation(key)?;
        Ok(found.filter(|record| record.id.birth == birth && record.tenant == *tenant))
    }

    /// Reads a range from `after` on, until `limit` rows have led to something or enough were looked at.
    fn follow<T>(
        &self,
        range: Range,
        after: Option<&Position>,
        limit: usize,
        see: TryRow<'_, Option<T>>,
    ) -> Read<Page<T>> {
        self.0.gate.check()?;
        let Range { family, prefix, end } = range;
        let end = end.unwrap_or_else(|| keys::after(prefix.clone()));
        let mut from = match after {
            Some(Position(last)) if *last >= prefix => behind(last),
            _ => prefix,
        };
        let (mut found, mut examined) = (Vec::new(), 0);
        while found.len() < limit && examined < EXAMINED_PER_PAGE {
            let wanted = (limit - found.len()).min(EXAMINED_PER_PAGE - examined);
            let mut rows = Vec::new();
            // Looked at when the scan is over: a scan may hold what a look-up waits for.
            let read = self.0.rows.page(family, &from, &end, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                if rows.len() >= wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            self.0.gate.pass(read)?;
            examined += rows.len();
            for (key, value) in &rows {
                found.extend(self.0.gate.pass(see(key, value))?);
            }
            let full = rows.len() >= wanted;
            match rows.pop() {
                Some((last, _)) if full => from = behind(&last),
                _ => return Ok((found, None)),
            }
        }
        from.pop();
        Ok((found, Some(Position(from))))
    }
}

/// Rows of a family that start with `prefix`, before `end` where there is one.
struct Range {
    family: Family,
    prefix: Key,
    end: Option<Key>,
}

impl Range {
    fn of_index(prefix: Key) -> Self {
        Self { family: Family::Index, prefix, end: None }
    }
}

/// The first key behind another.
fn behind(key: &[u8]) -> Key {
    [key, &[0]].concat()
}

/// Whether an index row says of an operation what is so.
fn stands_in(record: &OperationRecord, class: Class, key: &[u8]) -> bool {
    let place = record.place();
    let since = index::since(key);
    match class {
        Class::Quarantined => record.quarantined && since == Some(record.created_at),
        _ => place.class == class && since == Some(place.since),
    }
}

/// The unknown operations of one namespace, read a little ahead.
struct Ahead<'n> {
    namespace: &'n NamespaceName,
    prefix: Key,
    /// Goes on here; `None` at the end.
    from: Option<Key>,
    /// Ends of keys, which order operations of all namespaces by age.
    tails: VecDeque<Key>,
}

impl<'n> Ahead<'n> {
    fn new(view: &StateView, tenant: &TenantId, namespace: &'n NamespaceName, after: Option<&Position>) -> Self {
        let prefix = index::places(view.0.group, TenantTag::of(tenant), namespace, Class::Unknown);
        let from = match after {
            Some(Position(tail)) => behind(&[&prefix[..], tail].concat()),
            None => prefix.clone(),
        };
        Self { namespace, prefix, from: Some(from), tails: VecDeque::new() }
    }

    fn first(&mut self, view: &StateView) -> Read<Option<&[u8]>> {
        if self.tails.is_empty()
            && let Some(from) = self.from.take()
        {
            let len = self.prefix.len();
            view.0.rows.page(Family::Index, &from, &keys::after(self.prefix.clone()), &mut |key, _| {
                self.tails.push_back(key[len..].to_vec());
                if self.tails.len() >= AHEAD { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            self.from = self
                .tails
                .back()
                .filter(|_| self.tails.len() >= AHEAD)
                .map(|last| behind(&[&self.prefix[..], last].concat()));
        }
        Ok(self.tails.front().map(Vec::as_slice))
    }
}
