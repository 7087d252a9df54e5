//! Identifiers and positions: one newtype per noun, with their text forms.
//! Every id carries its slot, so that it routes itself to the group that owns the operation.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use sha2::{Digest as _, Sha256};

/// Number of slots; a slot is the first 12 bits of a hash.
pub const SLOTS: u16 = 4096;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        // Shared, since a record's names are copied far more often than they are made.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a value whose length and characters the caller has checked.
            pub fn new(value: impl Into<Arc<str>>) -> Self {
                Self(value.into())
            }

            /// The text as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// A stable client of a tenant; a credential names it, and it outlives every token.
    ClientId
}
text_id! {
    /// A tenant's named family of operations.
    NamespaceName
}
text_id! {
    /// The end-to-end story that an operation belongs to; it groups, it never authorises.
    CorrelationId
}

text_id! {
    /// What a decider calls its decision; with the operation and the attempt it names one capability.
    DecisionId
}
text_id! {
    /// The name of a register of authority: bumping it fences everything that is bound to a lower value.
    EpochScope
}
text_id! {
    /// The business entity that an operation is about, as its owner calls it.
    Resource
}
text_id! {
    /// Who receives messages: an inbox is one consumer's.
    Consumer
}
text_id! {
    /// A delivery, as its sender or broker calls it. It never names an operation.
    MessageId
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A Raft group.
    GroupId(u32)
}
number! {
    /// One of [`SLOTS`] slots; slots map to groups.
    Slot(u16)
}
number! {
    /// One life of a cluster between restores. 0: not bootstrapped yet.
    Incarnation(u32)
}
number! {
    /// The fencing token of whoever holds an execution; drawn from the grant counter, so it never repeats.
    LeaseEpoch(u64)
}
number! {
    /// The grant counter's value when an operation was inserted: tells two lives of one key apart.
    Birth(u64)
}
number! {
    /// The number of an execution of an operation, from 1.
    Attempt(u32)
}
number! {
    /// The value of a register of authority; 0 where it was never bumped.
    AuthorityEpoch(u64)
}
number! {
    /// How often a policy was written; what `If-Match` compares.
    Version(u64)
}
number! {
    /// A version of the rules; every entry names the one it was proposed under.
    RuleVersion(u16)
}
number! {
    /// Milliseconds of replicated lease time (see [`crate::clock`]); comparable only with itself.
    LeaseTime(u64)
}
number! {
    /// Milliseconds since the Unix epoch on the replicated wall clock.
    WallTime(u64)
}

impl LeaseTime {
    /// The instant `ms` milliseconds later, saturating: a lease cannot wrap into the past.
    #[must_use]
    pub fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `now` until this instant; 0 once it has passed.
    pub fn remaining_ms(self, now: Self) -> u64 {
        self.0.saturating_sub(now.0)
    }
}

macro_rules! hash32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}(", stringify!($name))?;
                write_hex(f, &self.0[..6])?;
                f.write_str("..)")
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }
    };
}

hash32! {
    /// SHA-256(tenant, namespace, scope, key, business epoch): names an operation without revealing its key.
    InternalKey
}
hash32! {
    /// SHA-256 of the canonical request bound to a key.
    Digest
}
hash32! {
    /// SHA-256 of everything a caller said in one call: tells a retry from another call under the same id.
    ContentHash
}

/// A caller's random id of one claim call; lets a lost reply be retried and names the ex-owner's evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub [u8; 16]);

/// Who owns the namespaces a caller may see; always from the credential, never from a body.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId {
    text: Arc<str>,
    /// Of the text alone; kept, since every key of every row begins with it.
    tag: TenantTag,
}

impl TenantId {
    /// Wraps a value whose length and characters the caller has checked.
    pub fn new(value: impl Into<Arc<str>>) -> Self {
        let text = value.into();
        let tag = TenantTag::of_text(&text);
        Self { text, tag }
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TenantId").field(&self.text).finish()
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The first bytes of a tenant's hash: the prefix of every row of that tenant.
///
/// A look-up always uses the caller's own tag, so another tenant's row is never even addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantTag(pub [u8; 8]);

impl TenantTag {
    /// The tag of `tenant`.
    pub fn of(tenant: &TenantId) -> Self {
        tenant.tag
    }

    fn of_text(tenant: &str) -> Self {
        let hash = Sha256::digest(tenant.as_bytes());
        let mut tag = [0; 8];
        tag.copy_from_slice(&hash[..8]);
        Self(tag)
    }
}

/// Where an operation's row lives: the tenant's tag and the first 160 bits of the internal key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKey {
    /// The owner's tag.
    pub tenant: TenantTag,
    /// The first 20 bytes of the internal key.
    pub hash: [u8; 20],
}

impl OperationKey {
    /// The row of the operation that `internal_key` names.
    pub fn new(tenant: &TenantId, internal_key: &InternalKey) -> Self {
        let mut hash = [0; 20];
        hash.copy_from_slice(&internal_key.0[..20]);
        Self { tenant: TenantTag::of(tenant), hash }
    }
}

/// A logical business effect: slot, row and birth. Text: `op_` and 57 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    /// Routes the id to its group.
    pub slot: Slot,
    /// The first 20 bytes of the internal key.
    pub hash: [u8; 20],
    /// Tells this life of the key from an earlier, forgotten one.
    pub birth: Birth,
}

impl OperationId {
    /// The row that this id addresses for a caller of `tenant`.
    pub fn key(&self, tenant: &TenantId) -> OperationKey {
        OperationKey { tenant: TenantTag::of(tenant), hash: self.hash }
    }

    /// Reads the text form; `None` where it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("op_")?;
        if digits.len() != 57 {
            return None;
        }
        let (slot, rest) = digits.split_at_checked(3)?;
        let (hash, birth) = rest.split_at_checked(40)?;
        Some(Self { slot: parse_slot(slot)?, hash: parse_hex(hash)?, birth: Birth(parse_hex_number(birth)?) })
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op_{:03x}", self.slot.0)?;
        write_hex(f, &self.hash)?;
        write!(f, "{:014x}", self.birth.0)
    }
}

/// One attempt at an operation. Text: `ex_` and 35 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId {
    /// Routes the id to its group.
    pub slot: Slot,
    /// Drawn by the proposer and carried in the command: no two calls draw the same.
    pub random: [u8; 16],
}

impl ExecutionId {
    /// Reads the text form; `None` where it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("ex_")?;
        if digits.len() != 35 {
            return None;
        }
        let (slot, random) = digits.split_at_checked(3)?;
        Some(Self { slot: parse_slot(slot)?, random: parse_hex(random)? })
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ex_{:03x}", self.slot.0)?;
        write_hex(f, &self.random)
    }
}

/// Bounded-use authority. Text: `cap_` and 35 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityId {
    /// Routes the id to its group.
    pub slot: Slot,
    /// 128 bits drawn by the proposer: nobody guesses one.
    pub random: [u8; 16],
}

impl CapabilityId {
    /// Reads the text form; `None` where it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("cap_")?;
        if digits.len() != 35 {
            return None;
        }
        let (slot, random) = digits.split_at_checked(3)?;
        Some(Self { slot: parse_slot(slot)?, random: parse_hex(random)? })
    }
}

impl fmt::Display for CapabilityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cap_{:03x}", self.slot.0)?;
        write_hex(f, &self.random)
    }
}

/// Where a delivery's row lives: SHA-256(consumer, message id), cut to 160 bits, under the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InboxKey {
    /// The owner's tag.
    pub tenant: TenantTag,
    /// Of consumer and message id.
    pub hash: [u8; 20],
}

impl InboxKey {
    /// The row of a message that `consumer` received. (REQUIREMENTS 75)
    pub fn new(tenant: &TenantId, consumer: &Consumer, message: &MessageId) -> Self {
        let parts: [&[u8]; 2] = [consumer.as_str().as_bytes(), message.as_str().as_bytes()];
        Self { tenant: TenantTag::of(tenant), hash: hash20(b"hapax/inbox/1", &parts) }
    }
}

/// Where a decision's row lives: what identifies the capability that it led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionKey {
    /// The owner's tag.
    pub tenant: TenantTag,
    /// Of what the capability is for, the decision, and the attempt.
    pub hash: [u8; 20],
}

impl DecisionKey {
    /// The row of a decision on one attempt at an operation.
    pub fn of_attempt(operation: &OperationId, tenant: &TenantId, decision: &DecisionId, attempt: Attempt) -> Self {
        let (birth, attempt) = (operation.birth.0.to_be_bytes(), attempt.0.to_be_bytes());
        let parts: [&[u8]; 4] = [&operation.hash, &birth, &attempt, decision.as_str().as_bytes()];
        Self { tenant: TenantTag::of(tenant), hash: hash20(b"hapax/decision/attempt/1", &parts) }
    }

    /// The row of a decision on a resource of a namespace.
    pub fn of_resource(tenant: &TenantId, namespace: &NamespaceName, decision: &DecisionId) -> Self {
        let parts: [&[u8]; 2] = [namespace.as_str().as_bytes(), decision.as_str().as_bytes()];
        Self { tenant: TenantTag::of(tenant), hash: hash20(b"hapax/decision/resource/1", &parts) }
    }
}

fn hash20(domain: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    let mut hash = Sha256::new();
    hash.update(domain);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let full = hash.finalize();
    let mut out = [0; 20];
    out.copy_from_slice(&full[..20]);
    out
}

/// A point in a group's total order at which an answer was true. Text: `incarnation.group.index.ordinal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision {
    /// The life of the cluster.
    pub incarnation: Incarnation,
    /// The Raft group.
    pub group: GroupId,
    /// The log index of the entry.
    pub index: u64,
    /// The position of the command in its entry.
    pub ordinal: u32,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.incarnation, self.group, self.index, self.ordinal)
    }
}

/// Whose keys a caller's key is compared with: the namespace's, or one client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeOf<'a> {
    /// Shared by every authorised client of the namespace.
    Namespace,
    /// Private to one client.
    Client(&'a ClientId),
}

/// The internal key of a caller's key. (REQUIREMENTS 4, 5, 18; seed 001 §3)
///
/// Every part is length-prefixed, so that no two different lists of parts give the same bytes.
pub fn internal_key(
    tenant: &TenantId,
    namespace: &NamespaceName,
    scope: ScopeOf<'_>,
    key: &str,
    business_epoch: Option<&str>,
) -> InternalKey {
    let mut hash = Sha256::new();
    hash.update(b"hapax/internal-key/1");
    feed(&mut hash, tenant.as_str());
    feed(&mut hash, namespace.as_str());
    match scope {
        ScopeOf::Namespace => hash.update([0]),
        ScopeOf::Client(client) => {
            hash.update([1]);
            feed(&mut hash, client.as_str());
        }
    }
    feed(&mut hash, key);
    match business_epoch {
        None => hash.update([0]),
        Some(epoch) => {
            hash.update([1]);
            feed(&mut hash, epoch);
        }
    }
    InternalKey(hash.finalize().into())
}

/// The slot of a namespace's partition: the first 12 bits of SHA-256(tenant, namespace, partition).
pub fn slot(tenant: &TenantId, namespace: &NamespaceName, partition: u32) -> Slot {
    let mut hash = Sha256::new();
    hash.update(b"hapax/slot/1");
    feed(&mut hash, tenant.as_str());
    feed(&mut hash, namespace.as_str());
    hash.update(partition.to_be_bytes());
    let hash = hash.finalize();
    Slot((u16::from(hash[0]) << 4) | (u16::from(hash[1]) >> 4))
}

/// The provider's idempotency key of one attempt: equal on every resend of it, and new only with a new,
/// authorised attempt. (REQUIREMENTS 7, 63; seed 000)
pub fn effect_key(operation: &OperationId, attempt: Attempt) -> String {
    alloc::format!("{operation}-a{attempt}")
}

fn feed(hash: &mut Sha256, part: &str) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part.as_bytes());
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    // Written in pieces: formatting every byte by itself costs more than making the id did.
    bytes.chunks(16).try_for_each(|piece| {
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(piece) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        let digits = core::str::from_utf8(&digits[..2 * piece.len()]).map_err(|_| fmt::Error)?;
        f.write_str(digits)
    })
}

fn parse_slot(text: &str) -> Option<Slot> {
    let slot = parse_hex_number(text)?;
    u16::try_from(slot).ok().map(Slot)
}

/// Lower-case digits only: one id has one text form, so that texts compare as ids do.
fn parse_hex_number(text: &str) -> Option<u64> {
    text.bytes().try_fold(0u64, |value, byte| Some((value << 4) | u64::from(hex_digit(byte)?)))
}

fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = text.as_bytes();
    if bytes.len() != N * 2 {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = (hex_digit(pair[0])? << 4) | hex_digit(pair[1])?;
    }
    Some(out)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn ids_read_back_from_their_text() {
        let operation = OperationId { slot: Slot(0xabc), hash: [7; 20], birth: Birth(1 << 50) };
        assert_eq!(OperationId::parse(&operation.to_string()), Some(operation));
        let execution = ExecutionId { slot: Slot(5), random: [0xfe; 16] };
        assert_eq!(ExecutionId::parse(&execution.to_string()), Some(execution));
    }

    #[test]
    fn capabilities_read_back_and_keys_of_rows_do_not_collide() {
        let capability = CapabilityId { slot: Slot(9), random: [3; 16] };
        assert_eq!(CapabilityId::parse(&capability.to_string()), Some(capability));
        assert_eq!(CapabilityId::parse(&capability.to_string().replace("cap_", "ex_")), None);
        let tenant = TenantId::new("t");
        let key = |consumer: &str, id: &str| InboxKey::new(&tenant, &Consumer::new(consumer), &MessageId::new(id));
        assert_ne!(key("ab", "c"), key("a", "bc"));
        assert_ne!(key("a", "b"), key("b", "a"));
    }

    #[test]
    fn other_texts_are_not_ids() {
        for text in ["", "op_", "op_12", "ex_é", &"op_".repeat(20), &("op_".to_string() + &"F".repeat(57))] {
            assert_eq!(OperationId::parse(text), None, "{text}");
            assert_eq!(ExecutionId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_part_of_an_internal_key_counts() {
        let (t, n) = (TenantId::new("t"), NamespaceName::new("n"));
        let client = ClientId::new("c");
        let base = internal_key(&t, &n, ScopeOf::Namespace, "k", None);
        let others = [
            internal_key(&TenantId::new("u"), &n, ScopeOf::Namespace, "k", None),
            internal_key(&t, &NamespaceName::new("m"), ScopeOf::Namespace, "k", None),
            internal_key(&t, &n, ScopeOf::Client(&client), "k", None),
            internal_key(&t, &n, ScopeOf::Namespace, "l", None),
            internal_key(&t, &n, ScopeOf::Namespace, "k", Some("")),
            internal_key(&TenantId::new("tn"), &NamespaceName::new(""), ScopeOf::Namespace, "k", None),
        ];
        assert!(others.iter().all(|other| *other != base));
    }
}
