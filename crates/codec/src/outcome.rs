//! Bytes of outcomes: what the leader answers a follower that forwarded a command. Never stored.
//! Versioned all the same: during a rolling upgrade the two ends differ.
//!
//! ```text
//! outcome  = version 1, revision, answer tag, answer
//! outcomes = version 1, count, count × (length, outcome)
//! ```

use hapax_machine::ids::Attempt;
use hapax_machine::outcome::{Answer, Grant, Lease, Outcome, Receipt, ReconcileItem, Refusal, Refused, Standing};

use crate::value::fields;
use crate::wire::{Error, LIST_MAX, Reader, Wire, get_list, put_flags, put_list, put_sized, put_some, put_varint};

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
const REGISTERED: u8 = 12;
const CAPABILITY: u8 = 13;
const DUPLICATE_DELIVERY: u8 = 14;
const EPOCH: u8 = 15;
const RECONCILING: u8 = 16;
const FLOORS: u8 = 17;
const COUNTED: u8 = 18;
const NAMESPACE: u8 = 19;
const TENANT: u8 = 20;
const TOKEN: u8 = 21;

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
            Self::Registered { standing, created } => {
                tagged(out, REGISTERED, standing);
                created.put(out);
            }
            Self::Capability { record, created } => {
                tagged(out, CAPABILITY, &**record);
                created.put(out);
            }
            Self::DuplicateDelivery(standing) => tagged(out, DUPLICATE_DELIVERY, standing),
            Self::Epoch(value) => tagged(out, EPOCH, value),
            Self::Reconciling(items) => {
                out.push(RECONCILING);
                put_list(out, items);
            }
            Self::Floors(floors) => tagged(out, FLOORS, floors),
            Self::Counted => out.push(COUNTED),
            Self::Namespace(record) => tagged(out, NAMESPACE, &**record),
            Self::Tenant(record) => tagged(out, TENANT, &**record),
            Self::Token(record) => tagged(out, TOKEN, &**record),
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
            REGISTERED => Self::Registered { standing: Wire::get(from)?, created: Wire::get(from)? },
            CAPABILITY => Self::Capability { record: Box::new(Wire::get(from)?), created: Wire::get(from)? },
            DUPLICATE_DELIVERY => Self::DuplicateDelivery(Wire::get(from)?),
            EPOCH => Self::Epoch(Wire::get(from)?),
            RECONCILING => Self::Reconciling(get_list(from)?),
            FLOORS => Self::Floors(Wire::get(from)?),
            COUNTED => Self::Counted,
            NAMESPACE => Self::Namespace(Box::new(Wire::get(from)?)),
            TENANT => Self::Tenant(Box::new(Wire::get(from)?)),
            TOKEN => Self::Token(Box::new(Wire::get(from)?)),
            tag => return Err(Error::Tag { what: "answer", tag }),
        })
    }
}

fn tagged<T: Wire>(out: &mut Vec<u8>, tag: u8, answer: &T) {
    out.push(tag);
    answer.put(out);
}

fields!(Lease: lease_epoch, remaining_ms);
fields!(
    ReconcileItem: operation_id,
    execution_id,
    attempt,
    namespace,
    effect_key,
    correlation_id,
    unknown_since,
    lease
);
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

/// Also stored, in rows of refusals: tags never change meaning.
impl Wire for Refusal {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(tag(*self));
        match self {
            Self::AttemptMismatch { due } => due.put(out),
            Self::RegisterStands { value } => value.put(out),
            Self::OperationState { state } => state.put(out),
            _ => {}
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
            13 => Self::DeliveryMismatch,
            14 => Self::CapabilityAlreadyConsumed,
            15 => Self::CapabilityRevoked,
            16 => Self::CapabilityExpired,
            17 => Self::CapabilityInvalid,
            18 => Self::CapabilityBindingMismatch,
            19 => Self::CapabilityRequired,
            20 => Self::EpochStale,
            21 => Self::EpochUnknown,
            22 => Self::RegisterStands { value: Wire::get(from)? },
            23 => Self::OperationCompleted,
            24 => Self::OperationFailed,
            25 => Self::OperationState { state: Wire::get(from)? },
            26 => Self::KeyRetentionElapsed,
            27 => Self::KeyCreationTime,
            28 => Self::DecisionReused,
            29 => Self::QuotaExceeded,
            30 => Self::PolicyFixed,
            31 => Self::VersionMismatch,
            32 => Self::NotYours,
            33 => Self::NotASuccessor,
            tag => return Err(Error::Tag { what: "refusal", tag }),
        })
    }
}

fn tag(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::NotFound => 1,
        Refusal::ClaimIdReused => 2,
        Refusal::LeaseLost => 3,
        Refusal::LeaseStaleEpoch => 4,
        Refusal::KeyDigestMismatch => 5,
        Refusal::OperationQuarantined => 6,
        Refusal::OperationExecuting => 7,
        Refusal::OutcomeUnknown => 8,
        Refusal::AttemptMismatch { .. } => 9,
        Refusal::OutcomeConflict => 10,
        Refusal::WallStep => 11,
        Refusal::AlreadyBootstrapped => 12,
        Refusal::DeliveryMismatch => 13,
        Refusal::CapabilityAlreadyConsumed => 14,
        Refusal::CapabilityRevoked => 15,
        Refusal::CapabilityExpired => 16,
        Refusal::CapabilityInvalid => 17,
        Refusal::CapabilityBindingMismatch => 18,
        Refusal::CapabilityRequired => 19,
        Refusal::EpochStale => 20,
        Refusal::EpochUnknown => 21,
        Refusal::RegisterStands { .. } => 22,
        Refusal::OperationCompleted => 23,
        Refusal::OperationFailed => 24,
        Refusal::OperationState { .. } => 25,
        Refusal::KeyRetentionElapsed => 26,
        Refusal::KeyCreationTime => 27,
        Refusal::DecisionReused => 28,
        Refusal::QuotaExceeded => 29,
        Refusal::PolicyFixed => 30,
        Refusal::VersionMismatch => 31,
        Refusal::NotYours => 32,
        Refusal::NotASuccessor => 33,
    }
}
