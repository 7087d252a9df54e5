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
//! | 10–19 | | capability issue 10, capability revoke 11, register 12, authority epoch bump 13, reconcile lease 14, escalate 15, de-escalate 16, forced fence 17, quarantine 18, release 19 |
//! | 20–28 | | supersede 20, close 21, floors 22, namespace put 23, token put 24, token revoke 25, refusal evidence 26, restore 27, restore window 28 |
//!
//! Logs hold these bytes for as long as they are kept: a version or tag never changes meaning.

use bytes::Bytes;
use hapax_machine::clock::Stamp;
use hapax_machine::command::{
    AdvanceWall, Bootstrap, Caller, Claim, Command, Envelope, Evidence, Lapse, Renew, Report, Resolve, ResultData,
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
        } = self;
        put_flags(out, [attempt.is_some(), correlation_id.is_some()]);
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
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [attempt, correlation_id] = from.flags("claim")?;
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
        let Self { cluster_id, wall_ms, namespaces, tokens } = self;
        cluster_id.put(out);
        wall_ms.put(out);
        put_list(out, namespaces);
        put_list(out, tokens);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let (cluster_id, wall_ms) = (Wire::get(from)?, Wire::get(from)?);
        Ok(Self { cluster_id, wall_ms, namespaces: get_list(from)?, tokens: get_list(from)? })
    }
}
