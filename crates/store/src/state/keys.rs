//! The keys of the state's rows. Persisted: they never change meaning.
//!
//! Every key starts with its group, big-endian; every row of a tenant goes on with the tenant's tag, so that one look-up can
//! never address another tenant's row. What belongs to an operation then has its hash, and orders by birth.
//!
//! | family | key after the group |
//! |---|---|
//! | meta | 1 head; 2 applied; 3 namespace: length u16, tenant, name; 4 token: id; 5 state hash: index u64. Reserved: 6 floors, 7 authority epochs |
//! | live, terminal | tenant 8, hash 20 |
//! | execution | tenant 8, slot u16, random 16 |
//! | grant | tenant 8, hash 20, birth u64, claim id 16 |
//! | body | tenant 8, hash 20, birth u64 |
//! | evidence | tenant 8, hash 20, birth u64, number u32 |
//!
//! Group 4294967295 is no group: its one row in `meta` is the format of all the others.

use hapax_machine::ids::{Birth, ClaimId, ExecutionId, GroupId, NamespaceName, OperationKey, TenantId, TenantTag};

/// A key, built on the stack but for the few rows whose names are long.
pub(crate) type Key = Vec<u8>;

const HEAD: u8 = 1;
const APPLIED: u8 = 2;
const NAMESPACE: u8 = 3;
const TOKEN: u8 = 4;
const STATE_HASH: u8 = 5;

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
    let mut key = namespaces(group);
    // Longer tenants than a u16 counts are refused by the API; the rest of the key would still tell them apart.
    let len = u16::try_from(tenant.as_str().len()).unwrap_or(u16::MAX);
    key.extend_from_slice(&len.to_be_bytes());
    key.extend_from_slice(tenant.as_str().as_bytes());
    key.extend_from_slice(name.as_str().as_bytes());
    key
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

fn meta(group: GroupId, kind: u8) -> Key {
    let mut key = Key::with_capacity(32);
    key.extend_from_slice(&group.0.to_be_bytes());
    key.push(kind);
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
    fn a_namespace_of_one_tenant_is_not_anothers() {
        let one = namespace(GroupId(0), &TenantId::new("ab"), &NamespaceName::new("c"));
        let other = namespace(GroupId(0), &TenantId::new("a"), &NamespaceName::new("bc"));
        assert_ne!(one, other);
    }
}
