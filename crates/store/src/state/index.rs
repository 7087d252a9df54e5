//! Index rows: where operations stand in the lists, and what is found by something else than its id. Derived from changes.
//!
//! | kind | key after group and kind: tenant 8, then | leads to |
//! |---|---|---|
//! | 1 place | namespace 8, class u8, since u64, birth u64, hash 20 | operations of a class, oldest first |
//! | 2 resource | name 16, birth u64, hash 20 | operations about a resource of a namespace |
//! | 3 external id | name 16, birth u64, hash 20 | operations whose outcome the provider calls so, in a namespace |
//! | 4 correlation | name 16, birth u64, hash 20 | operations of a story |
//! | 5 capability | hash 20, birth u64, slot u16, random 16 | capabilities issued for an operation |
//! | 6 refused operation | hash 20, birth u64, subject, hash 16 | refusals of claims on an operation |
//! | 7 refused message | name 16, subject, hash 16 | refusals of a message |
//! | 8 refused correlation | name 16, subject, hash 16 | refusals in a story |
//!
//! Values are empty. A name is the start of a SHA-256 over what it stands for. Birth before hash puts what is older first.
//!
//! **A row only leads somewhere:** whoever follows it reads the record, through what retention hides, and compares. So a row that
//! is stale, or whose name collides with another, shows nothing wrong. A row that is missing would hide something: it is written
//! whenever the record is, but for what is fixed when an operation is inserted.
//!
//! Places are the one kind that is written once and taken away once: a single deletion ends the row and itself as soon as both
//! meet, so that the many executions that end within one flush leave nothing at the front of a list.

use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::ids::{
    Birth, CapabilityId, Consumer, CorrelationId, GroupId, MessageId, NamespaceName, OperationKey, Resource,
    TenantTag, WallTime,
};
use hapax_machine::operation::{Class, OperationRecord, Place};
use hapax_machine::refusal::{RefusalKey, RefusalRecord};
use hapax_machine::state_hash::Canon;

use super::disk::{Family, RowBatch};
use super::keys::{self, Key, Parts};

const PLACE: u8 = 1;
const RESOURCE: u8 = 2;
const EXTERNAL_ID: u8 = 3;
const CORRELATION: u8 = 4;
const CAPABILITY: u8 = 5;
const REFUSED_OPERATION: u8 = 6;
const REFUSED_MESSAGE: u8 = 7;
const REFUSED_CORRELATION: u8 = 8;

/// What a row leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// One life of an operation's row.
    Operation(OperationKey, Birth),
    /// A capability of an operation.
    Capability(OperationKey, Birth, CapabilityId),
    /// A refusal.
    Refusal(RefusalKey),
}

/// The rows of an operation that is `record` now and stood in `was` before.
pub(super) fn of_operation(batch: &mut RowBatch, group: GroupId, record: &OperationRecord, was: Option<Place>) {
    let own = record.key();
    let namespace = namespace_name(&record.namespace);
    let is = record.place();
    let place_key = |class: Class, since: WallTime| place(group, own.tenant, namespace, class, since, record);
    let stood = was.map(|was| (was.class, was.since));
    if stood != Some((is.class, is.since)) {
        if let Some((class, since)) = stood {
            batch.delete_once(Family::Index, &place_key(class, since));
        }
        batch.put(Family::Index, &place_key(is.class, is.since), |_| {});
    }
    let apart = place_key(Class::Quarantined, record.created_at);
    match (was.is_some_and(|was| was.quarantined), is.quarantined) {
        (false, true) => batch.put(Family::Index, &apart, |_| {}),
        (true, false) => batch.delete_once(Family::Index, &apart),
        _ => {}
    }
    let tail = |mut key: Key| {
        put_life(&mut key, record);
        key
    };
    if was.is_none() {
        if let Some(resource) = &record.resource {
            batch.put(Family::Index, &tail(resources(group, own.tenant, &record.namespace, resource)), |_| {});
        }
        if let Some(id) = &record.correlation_id {
            batch.put(Family::Index, &tail(correlations(group, own.tenant, id)), |_| {});
        }
    }
    if let Some(id) = record.outcome().and_then(|outcome| outcome.external_id) {
        batch.put(Family::Index, &tail(external_ids(group, own.tenant, &record.namespace, &id)), |_| {});
    }
}

/// The rows of a capability.
pub(super) fn of_capability(batch: &mut RowBatch, group: GroupId, record: &CapabilityRecord) {
    if let Bound::Attempt { operation, .. } = &record.bound {
        let mut key = capabilities(group, &operation.key(&record.tenant), operation.birth);
        keys::put_capability(&mut key, &record.id);
        batch.put(Family::Index, &key, |_| {});
    }
}

/// The rows of a refusal.
pub(super) fn of_refusal(batch: &mut RowBatch, group: GroupId, key: &RefusalKey, record: &RefusalRecord) {
    let operation = record.operation.map(|id| refused_operation(group, key.tenant, &id.hash, id.birth));
    let message = record.message.as_ref().map(|m| refused_message(group, key.tenant, &m.consumer, &m.id));
    let correlation = record.correlation_id.as_ref().map(|id| refused_correlation(group, key.tenant, id));
    for mut row in [operation, message, correlation].into_iter().flatten() {
        keys::put_subject(&mut row, &key.subject);
        row.extend_from_slice(&key.hash);
        batch.put(Family::Index, &row, |_| {});
    }
}

/// What the rows of a class of a namespace start with.
pub(super) fn places(group: GroupId, tenant: TenantTag, namespace: &NamespaceName, class: Class) -> Key {
    class_of(group, tenant, namespace_name(namespace), class)
}

/// What the rows of a resource start with.
pub(super) fn resources(group: GroupId, tenant: TenantTag, namespace: &NamespaceName, resource: &Resource) -> Key {
    named(group, RESOURCE, tenant, name(b"hapax/index/resource/1", &[namespace.as_str(), resource.as_str()]))
}

/// What the rows of a provider's id start with.
pub(super) fn external_ids(group: GroupId, tenant: TenantTag, namespace: &NamespaceName, id: &str) -> Key {
    named(group, EXTERNAL_ID, tenant, name(b"hapax/index/external-id/1", &[namespace.as_str(), id]))
}

/// What the rows of a story's operations start with.
pub(super) fn correlations(group: GroupId, tenant: TenantTag, id: &CorrelationId) -> Key {
    named(group, CORRELATION, tenant, name(b"hapax/index/correlation/1", &[id.as_str()]))
}

/// What the rows of an operation's capabilities start with.
pub(super) fn capabilities(group: GroupId, key: &OperationKey, birth: Birth) -> Key {
    of_life(group, CAPABILITY, key.tenant, &key.hash, birth)
}

/// What the rows of an operation's refusals start with.
pub(super) fn refused_operation(group: GroupId, tenant: TenantTag, hash: &[u8; 20], birth: Birth) -> Key {
    of_life(group, REFUSED_OPERATION, tenant, hash, birth)
}

/// What the rows of a message's refusals start with.
pub(super) fn refused_message(group: GroupId, tenant: TenantTag, consumer: &Consumer, id: &MessageId) -> Key {
    named(group, REFUSED_MESSAGE, tenant, name(b"hapax/index/message/1", &[consumer.as_str(), id.as_str()]))
}

/// What the rows of a story's refusals start with.
pub(super) fn refused_correlation(group: GroupId, tenant: TenantTag, id: &CorrelationId) -> Key {
    named(group, REFUSED_CORRELATION, tenant, name(b"hapax/index/refused-correlation/1", &[id.as_str()]))
}

/// How long what [`places`] gives is; behind it stands since when, and then which.
pub(super) const CLASS_LEN: usize = 4 + 1 + 8 + 8 + 1;

/// Since when the operation of a row of kind 1 is in its class.
pub(super) fn since(key: &[u8]) -> Option<WallTime> {
    Parts(key.get(CLASS_LEN..)?).number().map(WallTime)
}

/// Reads back what a row leads to; `None` where it is no such row.
pub(super) fn target(key: &[u8]) -> Option<Target> {
    let mut parts = Parts(key.get(4..)?);
    let [kind] = parts.bytes()?;
    let tenant = parts.tenant()?;
    match kind {
        PLACE => {
            parts.bytes::<17>()?;
            life(parts, tenant)
        }
        RESOURCE | EXTERNAL_ID | CORRELATION => {
            parts.bytes::<16>()?;
            life(parts, tenant)
        }
        CAPABILITY => {
            let operation = OperationKey { tenant, hash: parts.bytes()? };
            let (birth, id) = (parts.birth()?, parts.capability()?);
            parts.end(Target::Capability(operation, birth, id))
        }
        REFUSED_OPERATION => {
            parts.bytes::<28>()?;
            refusal(parts, tenant)
        }
        REFUSED_MESSAGE | REFUSED_CORRELATION => {
            parts.bytes::<16>()?;
            refusal(parts, tenant)
        }
        _ => None,
    }
}

fn life(mut parts: Parts<'_>, tenant: TenantTag) -> Option<Target> {
    let birth = parts.birth()?;
    let hash = parts.bytes()?;
    parts.end(Target::Operation(OperationKey { tenant, hash }, birth))
}

fn refusal(mut parts: Parts<'_>, tenant: TenantTag) -> Option<Target> {
    let subject = parts.subject()?;
    let hash = parts.bytes()?;
    parts.end(Target::Refusal(RefusalKey { tenant, subject, hash }))
}

fn place(
    group: GroupId,
    tenant: TenantTag,
    namespace: [u8; 8],
    class: Class,
    since: WallTime,
    record: &OperationRecord,
) -> Key {
    let mut key = class_of(group, tenant, namespace, class);
    key.extend_from_slice(&since.0.to_be_bytes());
    put_life(&mut key, record);
    key
}

fn class_of(group: GroupId, tenant: TenantTag, namespace: [u8; 8], class: Class) -> Key {
    let mut key = keys::of_kind(group, PLACE, tenant, 8 + 1 + 8 + 8 + 20);
    key.extend_from_slice(&namespace);
    key.push(class_number(class));
    key
}

/// Persisted: a class never changes its number.
fn class_number(class: Class) -> u8 {
    match class {
        Class::Requested => 1,
        Class::Executing => 2,
        Class::Unknown => 3,
        Class::Escalated => 4,
        Class::NotApplied => 5,
        Class::Completed => 6,
        Class::Failed => 7,
        Class::Quarantined => 8,
    }
}

fn put_life(key: &mut Key, record: &OperationRecord) {
    key.extend_from_slice(&record.id.birth.0.to_be_bytes());
    key.extend_from_slice(&record.id.hash);
}

fn of_life(group: GroupId, kind: u8, tenant: TenantTag, hash: &[u8; 20], birth: Birth) -> Key {
    let mut key = keys::of_kind(group, kind, tenant, 28 + 45);
    key.extend_from_slice(hash);
    key.extend_from_slice(&birth.0.to_be_bytes());
    key
}

fn named(group: GroupId, kind: u8, tenant: TenantTag, name: [u8; 16]) -> Key {
    let mut key = keys::of_kind(group, kind, tenant, 16 + 45);
    key.extend_from_slice(&name);
    key
}

fn namespace_name(namespace: &NamespaceName) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = name(b"hapax/index/namespace/1", &[namespace.as_str()]);
    [a, b, c, d, e, f, g, h]
}

fn name(domain: &[u8], texts: &[&str]) -> [u8; 16] {
    let mut canon = Canon::new(domain);
    for text in texts {
        canon.text(text);
    }
    let full = canon.finish();
    std::array::from_fn(|n| full[n])
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_machine::ids::{OperationId, Slot, TenantId};
    use hapax_machine::refusal::Subject;

    const GROUP: GroupId = GroupId(7);

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn name(text: &str) -> NamespaceName {
        NamespaceName::new(text)
    }

    #[test]
    fn keys_are_pinned() {
        let tenant = TenantTag([0xaa; 8]);
        let key = OperationKey { tenant, hash: [0xbb; 20] };
        let tag = "aa".repeat(8);
        let of_class = places(GROUP, tenant, &name("payments"), Class::Unknown);
        assert_eq!(hex(&of_class), format!("0000000701{tag}31678f74bbc0d66203"));
        assert_eq!(of_class.len(), CLASS_LEN);
        let life = format!("{}0000000000000003", "bb".repeat(20));
        assert_eq!(hex(&capabilities(GROUP, &key, Birth(3))), format!("0000000705{tag}{life}"));
        assert_eq!(hex(&refused_operation(GROUP, tenant, &key.hash, Birth(3))), format!("0000000706{tag}{life}"));
        let named = [
            resources(GROUP, tenant, &name("payments"), &Resource::new("order-1")),
            external_ids(GROUP, tenant, &name("payments"), "order-1"),
            correlations(GROUP, tenant, &CorrelationId::new("order-1")),
            refused_message(GROUP, tenant, &Consumer::new("payments"), &MessageId::new("order-1")),
            refused_correlation(GROUP, tenant, &CorrelationId::new("order-1")),
        ];
        // SHA-256 of the length-prefixed domain and texts, cut to 16 bytes; computed by another implementation.
        let pinned = [
            "06d9b8e4644f71f127ac4f2a57af8dc9",
            "b0f3a3157c9e251beb86c5eb5628047b",
            "f3e93bb119469f38d77dd9c0f2687c14",
            "9afadc1244172cbf6a43a638aba42eb3",
            "e63ea6212fe29968356db2d467e3ed35",
        ];
        for ((key, kind), pinned) in named.iter().zip([2, 3, 4, 7, 8]).zip(pinned) {
            assert_eq!(hex(key), format!("00000007{kind:02x}{tag}{pinned}"));
        }
    }

    #[test]
    fn classes_have_numbers_of_their_own() {
        let classes = [
            Class::Requested,
            Class::Executing,
            Class::Unknown,
            Class::Escalated,
            Class::NotApplied,
            Class::Completed,
            Class::Failed,
            Class::Quarantined,
        ];
        assert_eq!(classes.map(class_number), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn targets_read_back() {
        let tenant = TenantId::new("t");
        let tag = TenantTag::of(&tenant);
        let id = OperationId { slot: Slot(1), hash: [0xbb; 20], birth: Birth(3) };
        let operation = id.key(&tenant);
        let tail = [&3_u64.to_be_bytes()[..], &id.hash].concat();
        let class = places(GROUP, tag, &name("n"), Class::Failed);
        let place = [&class[..], &[0; 8], &tail].concat();
        assert_eq!(target(&place), Some(Target::Operation(operation, id.birth)));
        assert_eq!(since(&place), Some(WallTime(0)));
        let resource = [resources(GROUP, tag, &name("n"), &Resource::new("r")), tail].concat();
        assert_eq!(target(&resource), Some(Target::Operation(operation, id.birth)));
        // What they cost, as docs/adr/0006-encoding.md says: their values are empty.
        assert_eq!((place.len(), resource.len()), (58, 57));
        let capability = CapabilityId { slot: Slot(2), random: [4; 16] };
        let mut key = capabilities(GROUP, &operation, id.birth);
        keys::put_capability(&mut key, &capability);
        assert_eq!(target(&key), Some(Target::Capability(operation, id.birth, capability)));
        for subject in [Subject::Capability(capability), Subject::Operation(id.hash, id.birth)] {
            let refusal = RefusalKey { tenant: tag, subject, hash: [6; 16] };
            for mut key in [
                refused_operation(GROUP, tag, &id.hash, id.birth),
                refused_message(GROUP, tag, &Consumer::new("c"), &MessageId::new("m")),
            ] {
                keys::put_subject(&mut key, &subject);
                key.extend_from_slice(&refusal.hash);
                assert_eq!(target(&key), Some(Target::Refusal(refusal)));
                assert_eq!(target(&key[..key.len() - 1]), None);
                key.push(0);
                assert_eq!(target(&key), None);
            }
        }
        assert_eq!(target(&[0, 0, 0, 7, 99, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(target(&[]), None);
    }
}
