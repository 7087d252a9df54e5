//! The keys of the state's rows. Persisted: they never change meaning.
//!
//! Every key starts with its group, big-endian; every row of a tenant goes on with the tenant's tag, so that one look-up can
//! never address another tenant's row. What belongs to an operation then has its hash, and orders by birth.
//!
//! | family | key after the group |
//! |---|---|
//! | meta | 1 head; 2 applied; 3 namespace: length u16, tenant, name; 4 token: id; 5 state hash: index u64; 6 status: as 3; 7 epoch: length u16, tenant, scope; 8 tenant: id; 9 mark: wall u64 |
//! | live, terminal | tenant 8, hash 20 |
//! | execution | tenant 8, slot u16, random 16 |
//! | grant | tenant 8, hash 20, birth u64, claim id 16 |
//! | body | tenant 8, hash 20, birth u64 |
//! | evidence | tenant 8, hash 20, birth u64, number u32 |
//! | authority | 1 capability: tenant 8, slot u16, random 16; 2 decision: tenant 8, hash 20; 3 use: as 1, hash 20; 4 inbox: tenant 8, hash 20; 5 refusal: tenant 8, subject, hash 16 |
//! | index | see [`super::index`] |
//! | events | index u64 |
//!
//! A subject is 1, slot u16, random 16 (a capability) or 2, hash 20, birth u64 (an operation).
//!
//! What is asked for by one random id, is written once or twice and lives as long as its operation shares `authority`: a family
//! costs a memtable, its bloom filter and a file for each flush, and one filter answers for all five kinds.
//!
//! Group 4294967295 is no group: its one row in `meta` is the format of all the others.

use hapax_machine::ids::{
    Birth, CapabilityId, ClaimId, DecisionKey, EpochScope, ExecutionId, GroupId, InboxKey, NamespaceName,
    OperationKey, Slot, TenantId, TenantTag, WallTime,
};
use hapax_machine::refusal::{RefusalKey, Subject};

/// A key, built on the stack but for the few rows whose names are long.
pub(crate) type Key = Vec<u8>;

pub(crate) const HEAD: u8 = 1;
pub(crate) const APPLIED: u8 = 2;
pub(crate) const NAMESPACE: u8 = 3;
pub(crate) const TOKEN: u8 = 4;
const STATE_HASH: u8 = 5;
pub(crate) const STATUS: u8 = 6;
pub(crate) const EPOCH: u8 = 7;
pub(crate) const TENANT: u8 = 8;
pub(crate) const MARK: u8 = 9;

pub(crate) const CAPABILITY: u8 = 1;
pub(crate) const DECISION: u8 = 2;
pub(crate) const USE: u8 = 3;
pub(crate) const INBOX: u8 = 4;
pub(crate) const REFUSAL: u8 = 5;

const OF_CAPABILITY: u8 = 1;
const OF_OPERATION: u8 = 2;

pub(crate) const FORMAT: &[u8] = b"\xff\xff\xff\xffformat";

pub(crate) fn head(group: GroupId) -> Key {
    meta(group, HEAD)
}

pub(crate) fn applied(group: GroupId) -> Key {
    meta(group, APPLIED)
}

pub(crate) fn namespaces(group: GroupId) -> Key {
    meta(group, NAMESPACE)
}

pub(crate) fn namespace(group: GroupId, tenant: &TenantId, name: &NamespaceName) -> Key {
    named(group, NAMESPACE, tenant, name.as_str())
}

pub(crate) fn statuses(group: GroupId) -> Key {
    meta(group, STATUS)
}

pub(crate) fn status(group: GroupId, tenant: &TenantId, name: &NamespaceName) -> Key {
    named(group, STATUS, tenant, name.as_str())
}

pub(crate) fn epochs(group: GroupId) -> Key {
    meta(group, EPOCH)
}

pub(crate) fn epoch(group: GroupId, tenant: &TenantId, scope: &EpochScope) -> Key {
    named(group, EPOCH, tenant, scope.as_str())
}

pub(crate) fn tenants(group: GroupId) -> Key {
    meta(group, TENANT)
}

pub(crate) fn tenant(group: GroupId, id: &TenantId) -> Key {
    let mut key = tenants(group);
    key.extend_from_slice(id.as_str().as_bytes());
    key
}

pub(crate) fn marks(group: GroupId) -> Key {
    meta(group, MARK)
}

pub(crate) fn mark(group: GroupId, wall: WallTime) -> Key {
    let mut key = marks(group);
    key.extend_from_slice(&wall.0.to_be_bytes());
    key
}

/// Reads back which tenant and which name a row of meta is about.
pub(crate) fn names(key: &[u8]) -> Option<(TenantId, &str)> {
    let (len, rest) = key.get(5..)?.split_first_chunk::<2>()?;
    let (tenant, name) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    Some((TenantId::new(std::str::from_utf8(tenant).ok()?), std::str::from_utf8(name).ok()?))
}

pub(crate) fn tokens(group: GroupId) -> Key {
    meta(group, TOKEN)
}

pub(crate) fn token(group: GroupId, id: &str) -> Key {
    let mut key = tokens(group);
    key.extend_from_slice(id.as_bytes());
    key
}

pub(crate) fn state_hashes(group: GroupId) -> Key {
    meta(group, STATE_HASH)
}

pub(crate) fn state_hash(group: GroupId, index: u64) -> Key {
    let mut key = state_hashes(group);
    key.extend_from_slice(&index.to_be_bytes());
    key
}

pub(crate) fn operation(group: GroupId, key: &OperationKey) -> Key {
    let mut out = of_tenant(group, key.tenant, 20 + 8 + 16);
    out.extend_from_slice(&key.hash);
    out
}

pub(crate) fn execution(group: GroupId, tenant: TenantTag, id: &ExecutionId) -> Key {
    let mut out = of_tenant(group, tenant, 18);
    out.extend_from_slice(&id.slot.0.to_be_bytes());
    out.extend_from_slice(&id.random);
    out
}

pub(crate) fn body(group: GroupId, key: &OperationKey, birth: Birth) -> Key {
    let mut out = operation(group, key);
    out.extend_from_slice(&birth.0.to_be_bytes());
    out
}

pub(crate) fn grant(group: GroupId, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Key {
    let mut out = body(group, key, birth);
    out.extend_from_slice(&claim.0);
    out
}

pub(crate) fn evidence(group: GroupId, key: &OperationKey, birth: Birth, number: u32) -> Key {
    let mut out = body(group, key, birth);
    out.extend_from_slice(&number.to_be_bytes());
    out
}

pub(crate) fn capability(group: GroupId, tenant: TenantTag, id: &CapabilityId) -> Key {
    let mut out = of_kind(group, CAPABILITY, tenant, 18);
    put_capability(&mut out, id);
    out
}

pub(crate) fn decision(group: GroupId, key: &DecisionKey) -> Key {
    let mut out = of_kind(group, DECISION, key.tenant, 20);
    out.extend_from_slice(&key.hash);
    out
}

pub(crate) fn used(group: GroupId, tenant: TenantTag, id: &CapabilityId, key: &OperationKey) -> Key {
    let mut out = of_kind(group, USE, tenant, 18 + 20);
    put_capability(&mut out, id);
    out.extend_from_slice(&key.hash);
    out
}

pub(crate) fn inbox(group: GroupId, key: &InboxKey) -> Key {
    let mut out = of_kind(group, INBOX, key.tenant, 20);
    out.extend_from_slice(&key.hash);
    out
}

/// What the rows of all refusals of a subject start with.
pub(crate) fn refusals(group: GroupId, tenant: TenantTag, subject: &Subject) -> Key {
    let mut out = of_kind(group, REFUSAL, tenant, 29 + 16);
    put_subject(&mut out, subject);
    out
}

pub(crate) fn refusal(group: GroupId, key: &RefusalKey) -> Key {
    let mut out = refusals(group, key.tenant, &key.subject);
    out.extend_from_slice(&key.hash);
    out
}

pub(crate) fn events(group: GroupId, index: u64) -> Key {
    let mut out = Key::with_capacity(12);
    out.extend_from_slice(&group.0.to_be_bytes());
    out.extend_from_slice(&index.to_be_bytes());
    out
}

pub(crate) fn put_capability(out: &mut Key, id: &CapabilityId) {
    out.extend_from_slice(&id.slot.0.to_be_bytes());
    out.extend_from_slice(&id.random);
}

pub(crate) fn put_subject(out: &mut Key, subject: &Subject) {
    match subject {
        Subject::Capability(id) => {
            out.push(OF_CAPABILITY);
            put_capability(out, id);
        }
        Subject::Operation(hash, birth) => {
            out.push(OF_OPERATION);
            out.extend_from_slice(hash);
            out.extend_from_slice(&birth.0.to_be_bytes());
        }
    }
}

/// The first key after all that start with `prefix`.
pub(crate) fn after(mut prefix: Key) -> Key {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            break;
        }
    }
    // A prefix of nothing but 0xff has no end; no group's rows start so.
    prefix
}

/// Reads keys back, part by part; `None` where a part is missing.
pub(crate) struct Parts<'k>(pub(crate) &'k [u8]);

impl Parts<'_> {
    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*part)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    pub(crate) fn tenant(&mut self) -> Option<TenantTag> {
        self.bytes().map(TenantTag)
    }

    pub(crate) fn birth(&mut self) -> Option<Birth> {
        self.number().map(Birth)
    }

    pub(crate) fn capability(&mut self) -> Option<CapabilityId> {
        let slot = Slot(u16::from_be_bytes(self.bytes()?));
        Some(CapabilityId { slot, random: self.bytes()? })
    }

    pub(crate) fn subject(&mut self) -> Option<Subject> {
        match self.bytes::<1>()? {
            [OF_CAPABILITY] => self.capability().map(Subject::Capability),
            [OF_OPERATION] => Some(Subject::Operation(self.bytes()?, self.birth()?)),
            _ => None,
        }
    }

    /// The rest, if there is nothing else.
    pub(crate) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

fn named(group: GroupId, kind: u8, tenant: &TenantId, name: &str) -> Key {
    let mut key = meta(group, kind);
    // Longer tenants than a u16 counts are refused by the API; the rest of the key would still tell them apart.
    let len = u16::try_from(tenant.as_str().len()).unwrap_or(u16::MAX);
    key.extend_from_slice(&len.to_be_bytes());
    key.extend_from_slice(tenant.as_str().as_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

fn meta(group: GroupId, kind: u8) -> Key {
    let mut key = Key::with_capacity(32);
    key.extend_from_slice(&group.0.to_be_bytes());
    key.push(kind);
    key
}

/// The head of a row in a family of several kinds.
pub(crate) fn of_kind(group: GroupId, kind: u8, tenant: TenantTag, more: usize) -> Key {
    let mut key = Key::with_capacity(13 + more);
    key.extend_from_slice(&group.0.to_be_bytes());
    key.push(kind);
    key.extend_from_slice(&tenant.0);
    key
}

fn of_tenant(group: GroupId, tenant: TenantTag, more: usize) -> Key {
    let mut key = Key::with_capacity(12 + more);
    key.extend_from_slice(&group.0.to_be_bytes());
    key.extend_from_slice(&tenant.0);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_machine::ids::Slot;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn keys_are_pinned() {
        let group = GroupId(7);
        let key = OperationKey { tenant: TenantTag([0xaa; 8]), hash: [0xbb; 20] };
        let row = format!("00000007{}{}", "aa".repeat(8), "bb".repeat(20));
        let (birth, claim) = (Birth(0x0102), ClaimId([0xcc; 16]));
        let execution_id = ExecutionId { slot: Slot(0xabc), random: [0xdd; 16] };
        let (tenant, name) = (TenantId::new("ab"), NamespaceName::new("c"));
        assert_eq!(hex(&head(group)), "0000000701");
        assert_eq!(hex(&applied(group)), "0000000702");
        assert_eq!(hex(&namespace(group, &tenant, &name)), "00000007030002616263");
        assert_eq!(hex(&token(group, "t1")), "00000007047431");
        assert_eq!(hex(&state_hash(group, 1_024)), "00000007050000000000000400");
        assert_eq!(hex(&operation(group, &key)), row);
        assert_eq!(
            hex(&execution(group, key.tenant, &execution_id)),
            format!("00000007{}0abc{}", "aa".repeat(8), "dd".repeat(16))
        );
        assert_eq!(hex(&body(group, &key, birth)), format!("{row}0000000000000102"));
        assert_eq!(hex(&grant(group, &key, birth, &claim)), format!("{row}0000000000000102{}", "cc".repeat(16)));
        assert_eq!(hex(&evidence(group, &key, birth, 3)), format!("{row}000000000000010200000003"));
        assert_eq!(hex(FORMAT), "ffffffff666f726d6174");
    }

    #[test]
    fn keys_of_authority_and_of_meta_are_pinned() {
        let (group, tenant) = (GroupId(7), TenantTag([0xaa; 8]));
        let operation = OperationKey { tenant, hash: [0xbb; 20] };
        let id = CapabilityId { slot: Slot(0xabc), random: [0xdd; 16] };
        let tag = "aa".repeat(8);
        let of_capability = format!("0abc{}", "dd".repeat(16));
        assert_eq!(hex(&capability(group, tenant, &id)), format!("0000000701{tag}{of_capability}"));
        let hash = [0xee; 20];
        assert_eq!(
            hex(&decision(group, &DecisionKey { tenant, hash })),
            format!("0000000702{tag}{}", "ee".repeat(20))
        );
        let used = used(group, tenant, &id, &operation);
        assert_eq!(hex(&used), format!("0000000703{tag}{of_capability}{}", "bb".repeat(20)));
        assert_eq!(hex(&inbox(group, &InboxKey { tenant, hash })), format!("0000000704{tag}{}", "ee".repeat(20)));
        let (of, by) = (Subject::Capability(id), Subject::Operation(operation.hash, Birth(3)));
        let refused = |subject| hex(&refusal(group, &RefusalKey { tenant, subject, hash: [0xff; 16] }));
        assert_eq!(refused(of), format!("0000000705{tag}01{of_capability}{}", "ff".repeat(16)));
        assert_eq!(refused(by), format!("0000000705{tag}02{}0000000000000003{}", "bb".repeat(20), "ff".repeat(16)));
        assert_eq!(hex(&events(group, 9)), "000000070000000000000009");
        let id = TenantId::new("ab");
        assert_eq!(hex(&status(group, &id, &NamespaceName::new("c"))), "00000007060002616263");
        assert_eq!(hex(&epoch(group, &id, &EpochScope::new("c"))), "00000007070002616263");
        assert_eq!(hex(&super::tenant(group, &id)), "00000007086162");
        assert_eq!(hex(&mark(group, WallTime(10))), "0000000709000000000000000a");
    }

    #[test]
    fn keys_read_back() {
        let (group, tenant) = (GroupId(7), TenantTag([0xaa; 8]));
        for subject in [
            Subject::Capability(CapabilityId { slot: Slot(5), random: [1; 16] }),
            Subject::Operation([2; 20], Birth(9)),
        ] {
            let key = refusals(group, tenant, &subject);
            let mut parts = Parts(&key[5..]);
            assert_eq!((parts.tenant(), parts.subject(), parts.end(())), (Some(tenant), Some(subject), Some(())));
        }
        let key = status(group, &TenantId::new("ab"), &NamespaceName::new("c"));
        assert_eq!(names(&key), Some((TenantId::new("ab"), "c")));
        assert_eq!(names(&key[..7]), None);
        assert_eq!((after(vec![1, 0xff]), after(vec![0xff])), (vec![2], vec![]));
    }

    #[test]
    fn a_namespace_of_one_tenant_is_not_anothers() {
        let one = namespace(GroupId(0), &TenantId::new("ab"), &NamespaceName::new("c"));
        let other = namespace(GroupId(0), &TenantId::new("a"), &NamespaceName::new("bc"));
        assert_ne!(one, other);
    }
}
