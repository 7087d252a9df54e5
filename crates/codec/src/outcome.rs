//! Bytes of outcomes: what the leader answers a follower that forwarded a command. Never stored.
//! Versioned all the same: during a rolling upgrade the two ends differ.
//!
//! ```text
//! outcome  = version 1, revision, answer tag, answer
//! outcomes = version 1, count, count × (length, outcome)
//! ```

use hapax_machine::ids::Attempt;
use hapax_machine::outcome::{Answer, Grant, Lease, Outcome, Receipt, Refusal, Refused, Standing};

use crate::value::fields;
use crate::wire::{Error, LIST_MAX, Reader, Wire, put_flags, put_sized, put_some, put_varint};

/// The version byte at the head of every outcome and list of outcomes.
pub const VERSION: u8 = 1;

/// Appends an outcome to `out`.
pub fn encode_outcome(outcome: &Outcome, out: &mut Vec<u8>) {
    out.push(VERSION);
    outcome.revision.put(out);
    outcome.answer.put(out);
}

/// Reads an outcome.
///
/// # Errors
/// The bytes are not an outcome of a known version.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, Error> {
    let mut from = Reader::open(bytes, "outcome", VERSION)?;
    let outcome = Outcome { revision: Wire::get(&mut from)?, answer: Wire::get(&mut from)? };
    from.end()?;
    Ok(outcome)
}

/// Appends the outcomes of a batch to `out`, in the batch's order.
///
/// # Panics
/// Above [`crate::command::BATCH_MAX`] outcomes: no batch has as many commands.
pub fn encode_outcomes(outcomes: &[Outcome], out: &mut Vec<u8>) {
    assert!(outcomes.len() <= LIST_MAX, "one outcome per command of a batch");
    out.push(VERSION);
    put_varint(out, outcomes.len() as u64);
    let mut one = Vec::new();
    for outcome in outcomes {
        one.clear();
        encode_outcome(outcome, &mut one);
        put_sized(out, &one);
    }
}

/// Reads the outcomes of a batch.
///
/// # Errors
/// The bytes are not a list of outcomes of a known version.
pub fn decode_outcomes(bytes: &[u8]) -> Result<Vec<Outcome>, Error> {
    let mut from = Reader::open(bytes, "outcomes", VERSION)?;
    let count = from.count()?;
    let outcomes = (0..count).map(|_| decode_outcome(from.sized()?)).collect::<Result<_, _>>()?;
    from.end()?;
    Ok(outcomes)
}

const CLAIMED: u8 = 1;
const IN_PROGRESS: u8 = 2;
const REPLAYED: u8 = 3;
const RENEWED: u8 = 4;
const ACCEPTED: u8 = 5;
const LAPSED: u8 = 6;
const WALL: u8 = 7;
const BOOTSTRAPPED: u8 = 8;
const TICKED: u8 = 9;
const REFUSED: u8 = 10;
const TOO_LATE: u8 = 11;

impl Wire for Answer {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Claimed(grant) => tagged(out, CLAIMED, grant),
            Self::InProgress(standing) => tagged(out, IN_PROGRESS, standing),
            Self::Replayed(receipt) => tagged(out, REPLAYED, receipt),
            Self::Renewed(lease) => tagged(out, RENEWED, lease),
            Self::Accepted(standing) => tagged(out, ACCEPTED, standing),
            Self::Lapsed { changed } => tagged(out, LAPSED, changed),
            Self::Wall(wall) => tagged(out, WALL, wall),
            Self::Bootstrapped => out.push(BOOTSTRAPPED),
            Self::Ticked => out.push(TICKED),
            Self::Refused(refused) => tagged(out, REFUSED, refused),
            Self::TooLate => out.push(TOO_LATE),
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match from.u8()? {
            CLAIMED => Self::Claimed(Wire::get(from)?),
            IN_PROGRESS => Self::InProgress(Wire::get(from)?),
            REPLAYED => Self::Replayed(Wire::get(from)?),
            RENEWED => Self::Renewed(Wire::get(from)?),
            ACCEPTED => Self::Accepted(Wire::get(from)?),
            LAPSED => Self::Lapsed { changed: Wire::get(from)? },
            WALL => Self::Wall(Wire::get(from)?),
            BOOTSTRAPPED => Self::Bootstrapped,
            TICKED => Self::Ticked,
            REFUSED => Self::Refused(Wire::get(from)?),
            TOO_LATE => Self::TooLate,
            tag => return Err(Error::Tag { what: "answer", tag }),
        })
    }
}

fn tagged<T: Wire>(out: &mut Vec<u8>, tag: u8, answer: &T) {
    out.push(tag);
    answer.put(out);
}

fields!(Lease: lease_epoch, remaining_ms);
fields!(Grant: operation_id, execution_id, attempt, claim_id, lease, effect_key);
fields!(Receipt: standing, outcome, result);
fields!(Standing: operation_id, execution_id, attempt, state, lease_remaining_ms, namespace, conflict_style);

impl Wire for Refused {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { reason, operation_id, conflict_style } = self;
        put_flags(out, [operation_id.is_some()]);
        reason.put(out);
        put_some(out, operation_id.as_ref());
        conflict_style.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [operation_id] = from.flags("refusal")?;
        Ok(Self {
            reason: Wire::get(from)?,
            operation_id: from.get_if(operation_id)?,
            conflict_style: Wire::get(from)?,
        })
    }
}

/// Tags 1–12; the refusals of capabilities, messages, authority epochs, attempts and floors come after them.
impl Wire for Refusal {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::NotFound => 1,
            Self::ClaimIdReused => 2,
            Self::LeaseLost => 3,
            Self::LeaseStaleEpoch => 4,
            Self::KeyDigestMismatch => 5,
            Self::OperationQuarantined => 6,
            Self::OperationExecuting => 7,
            Self::OutcomeUnknown => 8,
            Self::AttemptMismatch { .. } => 9,
            Self::OutcomeConflict => 10,
            Self::WallStep => 11,
            Self::AlreadyBootstrapped => 12,
        });
        if let Self::AttemptMismatch { due } = self {
            due.put(out);
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match from.u8()? {
            1 => Self::NotFound,
            2 => Self::ClaimIdReused,
            3 => Self::LeaseLost,
            4 => Self::LeaseStaleEpoch,
            5 => Self::KeyDigestMismatch,
            6 => Self::OperationQuarantined,
            7 => Self::OperationExecuting,
            8 => Self::OutcomeUnknown,
            9 => Self::AttemptMismatch { due: Attempt::get(from)? },
            10 => Self::OutcomeConflict,
            11 => Self::WallStep,
            12 => Self::AlreadyBootstrapped,
            tag => return Err(Error::Tag { what: "refusal", tag }),
        })
    }
}
