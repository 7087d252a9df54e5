//! Bytes of commands: envelopes, and batches of them, which are the payload of one log entry.
//! An envelope is encoded once, by the node that received it; the leader splices its bytes into a batch untouched.
//!
//! ```text
//! envelope = version 1, not_after, command tag, command
//! batch    = version 1, rules, stamp (wall_ms, lead_ms), term, count, count × (length, envelope)
//! ```
//!
//! | tag | command | reserved |
//! |---|---|---|
//! | 1–9 | claim, renew, report, evidence, resolve, lapse, advance wall, bootstrap, tick | |
//! | 10–18 | issue, revoke, register, bump, reconcile lease, escalate, issue bounded, forced fence, repair | |
//! | 19–26 | settle, raise floors, put namespace, put tenant, create token, revoke token, count refusals | 26 |
//! | 27–28 | | restore 27, restore window 28 |
//!
//! Flags of a claim, from the lowest: attempt, correlation id, capability, message, epoch, resource, key created.
//! Flags of what a report says: status code, schema version, result, result reference, result digest, external id, reason.
//!
//! Logs hold these bytes for as long as they are kept: a version or tag never changes meaning.

use bytes::Bytes;
use hapax_machine::clock::Stamp;
use hapax_machine::command::{
    AdvanceWall, Bootstrap, BumpEpoch, Caller, Candidate, Claim, Command, CountedRefusal, CreateToken, Envelope,
    Escalate, Evidence, Expected, ForceFence, Issue, IssueBounded, Lapse, PutNamespace, PutTenant, RaiseFloors,
    ReconcileLease, Register, Renew, Repair, RepairKind, Report, Resolve, ResultData, Revoke, RevokeToken,
};
use hapax_machine::ids::RuleVersion;

use crate::value::fields;
use crate::wire::{Error, LIST_MAX, Reader, Wire, get_list, put_flags, put_list, put_sized, put_some, put_varint};

/// The version byte at the head of every envelope and batch.
pub const VERSION: u8 = 1;

/// The most commands in one entry.
pub const BATCH_MAX: usize = LIST_MAX;

/// Room is made for at most this many commands before they were seen: a count alone must not cost memory.
const RESERVE_MAX: usize = 1_024;

/// What all commands of one entry share, and they.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The rules it was proposed under.
    pub rules: RuleVersion,
    /// What the leader's clocks said.
    pub stamp: Stamp,
    /// The leadership that stamped it; an entry of another term must not carry it.
    pub term: u64,
    /// The commands, in order; at most [`BATCH_MAX`].
    pub envelopes: Vec<Envelope>,
}

/// A batch without its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHead {
    /// The rules it was proposed under.
    pub rules: RuleVersion,
    /// What the leader's clocks said.
    pub stamp: Stamp,
    /// The leadership that stamped it.
    pub term: u64,
}

impl Batch {
    /// Everything but the commands.
    pub fn head(&self) -> BatchHead {
        BatchHead { rules: self.rules, stamp: self.stamp, term: self.term }
    }
}

fields!(BatchHead: rules, stamp, term);

/// Encodes a batch of commands that were not encoded before.
///
/// # Panics
/// Above [`BATCH_MAX`] commands.
pub fn encode_batch(batch: &Batch) -> Bytes {
    let mut one = Vec::new();
    let mut out = open_batch(&batch.head(), batch.envelopes.len(), batch.envelopes.len() * 256);
    for envelope in &batch.envelopes {
        one.clear();
        encode_envelope(envelope, &mut one);
        put_sized(&mut out, &one);
    }
    out.into()
}

/// Makes a batch of commands that are encoded already: their bytes are copied, not read. They must be whole envelopes,
/// checked with [`decode_envelope`] where they came in from.
///
/// # Panics
/// Above [`BATCH_MAX`] commands.
pub fn splice_batch<E: AsRef<[u8]>>(head: &BatchHead, envelopes: &[E]) -> Bytes {
    let len: usize = envelopes.iter().map(|envelope| envelope.as_ref().len() + 5).sum();
    let mut out = open_batch(head, envelopes.len(), len);
    for envelope in envelopes {
        put_sized(&mut out, envelope.as_ref());
    }
    out.into()
}

fn open_batch(head: &BatchHead, count: usize, len: usize) -> Vec<u8> {
    assert!(count <= BATCH_MAX, "the proposer closes a batch at {BATCH_MAX} commands");
    let mut out = Vec::with_capacity(len + 40);
    out.push(VERSION);
    head.put(&mut out);
    put_varint(&mut out, count as u64);
    out
}

/// Reads a batch.
///
/// # Errors
/// The bytes are not a batch of a known version.
pub fn decode_batch(bytes: &[u8]) -> Result<Batch, Error> {
    let mut from = Reader::open(bytes, "batch", VERSION)?;
    let BatchHead { rules, stamp, term } = Wire::get(&mut from)?;
    let count = from.count()?;
    let mut envelopes = Vec::with_capacity(count.min(RESERVE_MAX));
    for _ in 0..count {
        envelopes.push(decode_envelope(from.sized()?)?);
    }
    from.end()?;
    Ok(Batch { rules, stamp, term, envelopes })
}

/// Reads the head of a batch and the number of its commands, and not the commands.
///
/// # Errors
/// The bytes do not begin with a batch's head of a known version.
pub fn decode_batch_head(bytes: &[u8]) -> Result<(BatchHead, usize), Error> {
    let mut from = Reader::open(bytes, "batch", VERSION)?;
    let head = Wire::get(&mut from)?;
    Ok((head, from.count()?))
}

/// Appends an envelope to `out`.
pub fn encode_envelope(envelope: &Envelope, out: &mut Vec<u8>) {
    out.push(VERSION);
    envelope.not_after.put(out);
    envelope.command.put(out);
}

/// Reads an envelope.
///
/// # Errors
/// The bytes are not an envelope of a known version.
pub fn decode_envelope(bytes: &[u8]) -> Result<Envelope, Error> {
    let mut from = Reader::open(bytes, "envelope", VERSION)?;
    let envelope = Envelope { not_after: Wire::get(&mut from)?, command: Wire::get(&mut from)? };
    from.end()?;
    Ok(envelope)
}

const CLAIM: u8 = 1;
const RENEW: u8 = 2;
const REPORT: u8 = 3;
const EVIDENCE: u8 = 4;
const RESOLVE: u8 = 5;
const LAPSE: u8 = 6;
const ADVANCE_WALL: u8 = 7;
const BOOTSTRAP: u8 = 8;
const TICK: u8 = 9;
const ISSUE: u8 = 10;
const REVOKE: u8 = 11;
const REGISTER: u8 = 12;
const BUMP: u8 = 13;
const RECONCILE_LEASE: u8 = 14;
const ESCALATE: u8 = 15;
const ISSUE_BOUNDED: u8 = 16;
const FORCE_FENCE: u8 = 17;
const REPAIR: u8 = 18;
const SETTLE: u8 = 19;
const RAISE_FLOORS: u8 = 20;
const PUT_NAMESPACE: u8 = 21;
const PUT_TENANT: u8 = 22;
const CREATE_TOKEN: u8 = 23;
const REVOKE_TOKEN: u8 = 24;
const COUNT_REFUSALS: u8 = 25;

impl Wire for Command {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Claim(command) => tagged(out, CLAIM, command),
            Self::Renew(command) => tagged(out, RENEW, command),
            Self::Report(command) => tagged(out, REPORT, command),
            Self::Evidence(command) => tagged(out, EVIDENCE, command),
            Self::Resolve(command) => tagged(out, RESOLVE, command),
            Self::Lapse(command) => tagged(out, LAPSE, command),
            Self::AdvanceWall(command) => tagged(out, ADVANCE_WALL, command),
            Self::Bootstrap(command) => tagged(out, BOOTSTRAP, command),
            Self::Tick => out.push(TICK),
            Self::Issue(command) => tagged(out, ISSUE, command),
            Self::Revoke(command) => tagged(out, REVOKE, command),
            Self::Register(command) => tagged(out, REGISTER, command),
            Self::BumpEpoch(command) => tagged(out, BUMP, command),
            Self::ReconcileLease(command) => tagged(out, RECONCILE_LEASE, command),
            Self::Escalate(command) => tagged(out, ESCALATE, command),
            Self::IssueBounded(command) => tagged(out, ISSUE_BOUNDED, command),
            Self::ForceFence(command) => tagged(out, FORCE_FENCE, command),
            Self::Repair(command) => tagged(out, REPAIR, command),
            Self::Settle(key) => tagged(out, SETTLE, key),
            Self::RaiseFloors(command) => tagged(out, RAISE_FLOORS, command),
            Self::PutNamespace(command) => tagged(out, PUT_NAMESPACE, command),
            Self::PutTenant(command) => tagged(out, PUT_TENANT, command),
            Self::CreateToken(command) => tagged(out, CREATE_TOKEN, command),
            Self::RevokeToken(command) => tagged(out, REVOKE_TOKEN, command),
            Self::CountRefusals(counted) => {
                out.push(COUNT_REFUSALS);
                put_list(out, counted);
            }
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match from.u8()? {
            CLAIM => Self::Claim(Wire::get(from)?),
            RENEW => Self::Renew(Wire::get(from)?),
            REPORT => Self::Report(Wire::get(from)?),
            EVIDENCE => Self::Evidence(Wire::get(from)?),
            RESOLVE => Self::Resolve(Wire::get(from)?),
            LAPSE => Self::Lapse(Wire::get(from)?),
            ADVANCE_WALL => Self::AdvanceWall(Wire::get(from)?),
            BOOTSTRAP => Self::Bootstrap(Wire::get(from)?),
            TICK => Self::Tick,
            ISSUE => Self::Issue(Wire::get(from)?),
            REVOKE => Self::Revoke(Wire::get(from)?),
            REGISTER => Self::Register(Wire::get(from)?),
            BUMP => Self::BumpEpoch(Wire::get(from)?),
            RECONCILE_LEASE => Self::ReconcileLease(Wire::get(from)?),
            ESCALATE => Self::Escalate(Wire::get(from)?),
            ISSUE_BOUNDED => Self::IssueBounded(Wire::get(from)?),
            FORCE_FENCE => Self::ForceFence(Wire::get(from)?),
            REPAIR => Self::Repair(Wire::get(from)?),
            SETTLE => Self::Settle(Wire::get(from)?),
            RAISE_FLOORS => Self::RaiseFloors(Wire::get(from)?),
            PUT_NAMESPACE => Self::PutNamespace(Wire::get(from)?),
            PUT_TENANT => Self::PutTenant(Wire::get(from)?),
            CREATE_TOKEN => Self::CreateToken(Wire::get(from)?),
            REVOKE_TOKEN => Self::RevokeToken(Wire::get(from)?),
            COUNT_REFUSALS => Self::CountRefusals(get_list(from)?),
            tag => return Err(Error::Tag { what: "command", tag }),
        })
    }
}

fn tagged<T: Wire>(out: &mut Vec<u8>, tag: u8, command: &T) {
    out.push(tag);
    command.put(out);
}

fields!(Renew: caller, execution_id, lease_epoch, lease_ms);
fields!(Report: caller, execution_id, lease_epoch, outcome, data);
fields!(Evidence: caller, execution_id, claim_id, outcome, data, proof);
fields!(Resolve: caller, execution_id, lease_epoch, outcome, data, proof);
fields!(Lapse: operation, lease_epoch, deadline);
fields!(AdvanceWall: target, by_operator);
fields!(
    Register: caller,
    namespace,
    internal_key,
    slot,
    digest,
    correlation_id,
    resource,
    key_created_at
);
fields!(
    Issue: caller,
    operation_id,
    decision_id,
    attempt,
    expires_at,
    epoch,
    effect_key_attempt,
    capability_id
);
fields!(
    IssueBounded: caller,
    namespace,
    resource,
    decision_id,
    expires_at,
    max_uses,
    epoch,
    capability_id
);
fields!(Revoke: caller, capability_id, reason);
fields!(BumpEpoch: caller, scope, expected);
fields!(Candidate: operation, birth, lease_epoch);
fields!(Escalate: caller, execution_id, lease_epoch, escalated, reason, proof);
fields!(ForceFence: caller, execution_id, lease_epoch, reason, proof);
fields!(Repair: caller, operation_id, kind, expected, reason, proof);
fields!(RaiseFloors: tenant, namespace, floors);
fields!(CountedRefusal: key, times);
fields!(PutNamespace: caller, record, expected);
fields!(PutTenant: caller, record, expected);
fields!(CreateToken: caller, record);
fields!(RevokeToken: caller, id);

impl Wire for ReconcileLease {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { caller, owner, lease_ms, limit, candidates } = self;
        caller.put(out);
        owner.put(out);
        lease_ms.put(out);
        limit.put(out);
        put_list(out, candidates);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            caller: Wire::get(from)?,
            owner: Wire::get(from)?,
            lease_ms: Wire::get(from)?,
            limit: Wire::get(from)?,
            candidates: get_list(from)?,
        })
    }
}

const QUARANTINE: u8 = 1;
const RELEASE: u8 = 2;
const SUPERSEDE: u8 = 3;
const CLOSE: u8 = 4;

impl Wire for RepairKind {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Quarantine => out.push(QUARANTINE),
            Self::Release => out.push(RELEASE),
            Self::Supersede(by) => tagged(out, SUPERSEDE, by),
            Self::Close => out.push(CLOSE),
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match from.u8()? {
            QUARANTINE => Self::Quarantine,
            RELEASE => Self::Release,
            SUPERSEDE => Self::Supersede(Wire::get(from)?),
            CLOSE => Self::Close,
            tag => return Err(Error::Tag { what: "repair", tag }),
        })
    }
}

const ABSENT: u8 = 1;
const VERSIONED: u8 = 2;

impl Wire for Expected {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Absent => out.push(ABSENT),
            Self::Version(version) => tagged(out, VERSIONED, version),
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match from.u8()? {
            ABSENT => Self::Absent,
            VERSIONED => Self::Version(Wire::get(from)?),
            tag => return Err(Error::Tag { what: "expected version", tag }),
        })
    }
}

impl Wire for Caller {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { tenant, client, namespaces } = self;
        tenant.put(out);
        client.put(out);
        put_list(out, namespaces);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self { tenant: Wire::get(from)?, client: Wire::get(from)?, namespaces: get_list(from)? })
    }
}

impl Wire for Claim {
    fn put(&self, out: &mut Vec<u8>) {
        let Self {
            caller,
            namespace,
            internal_key,
            slot,
            digest,
            claim_id,
            owner,
            lease_ms,
            attempt,
            correlation_id,
            execution_id,
            capability_id,
            message,
            epoch,
            resource,
            key_created_at,
        } = self;
        put_flags(
            out,
            [
                attempt.is_some(),
                correlation_id.is_some(),
                capability_id.is_some(),
                message.is_some(),
                epoch.is_some(),
                resource.is_some(),
                key_created_at.is_some(),
            ],
        );
        caller.put(out);
        namespace.put(out);
        internal_key.put(out);
        slot.put(out);
        digest.put(out);
        claim_id.put(out);
        owner.put(out);
        lease_ms.put(out);
        put_some(out, attempt.as_ref());
        put_some(out, correlation_id.as_ref());
        execution_id.put(out);
        put_some(out, capability_id.as_ref());
        put_some(out, message.as_ref());
        put_some(out, epoch.as_ref());
        put_some(out, resource.as_ref());
        put_some(out, key_created_at.as_ref());
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [attempt, correlation_id, capability_id, message, epoch, resource, key_created_at] =
            from.flags("claim")?;
        Ok(Self {
            caller: Wire::get(from)?,
            namespace: Wire::get(from)?,
            internal_key: Wire::get(from)?,
            slot: Wire::get(from)?,
            digest: Wire::get(from)?,
            claim_id: Wire::get(from)?,
            owner: Wire::get(from)?,
            lease_ms: Wire::get(from)?,
            attempt: from.get_if(attempt)?,
            correlation_id: from.get_if(correlation_id)?,
            execution_id: Wire::get(from)?,
            capability_id: from.get_if(capability_id)?,
            message: from.get_if(message)?,
            epoch: from.get_if(epoch)?,
            resource: from.get_if(resource)?,
            key_created_at: from.get_if(key_created_at)?,
        })
    }
}

impl Wire for ResultData {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { status_code, schema_version, result, result_ref, result_digest, external_id, reason } = self;
        put_flags(
            out,
            [
                status_code.is_some(),
                schema_version.is_some(),
                result.is_some(),
                result_ref.is_some(),
                result_digest.is_some(),
                external_id.is_some(),
                reason.is_some(),
            ],
        );
        put_some(out, status_code.as_ref());
        put_some(out, schema_version.as_ref());
        put_some(out, result.as_ref());
        put_some(out, result_ref.as_ref());
        put_some(out, result_digest.as_ref());
        put_some(out, external_id.as_ref());
        put_some(out, reason.as_ref());
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [status_code, schema_version, result, result_ref, result_digest, external_id, reason] =
            from.flags("result data")?;
        Ok(Self {
            status_code: from.get_if(status_code)?,
            schema_version: from.get_if(schema_version)?,
            result: from.get_if(result)?,
            result_ref: from.get_if(result_ref)?,
            result_digest: from.get_if(result_digest)?,
            external_id: from.get_if(external_id)?,
            reason: from.get_if(reason)?,
        })
    }
}

impl Wire for Bootstrap {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { cluster_id, wall_ms, namespaces, tokens, tenants } = self;
        cluster_id.put(out);
        wall_ms.put(out);
        put_list(out, namespaces);
        put_list(out, tokens);
        put_list(out, tenants);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let (cluster_id, wall_ms) = (Wire::get(from)?, Wire::get(from)?);
        let (namespaces, tokens, tenants) = (get_list(from)?, get_list(from)?, get_list(from)?);
        Ok(Self { cluster_id, wall_ms, namespaces, tokens, tenants })
    }
}
