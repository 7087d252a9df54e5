//! Decoders fed with anything at all, and with encodings that were damaged: they read a value whose encoding these very bytes
//! are, or refuse. What a reader could take for granted is refused where it is written out.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{bytes_of, samples};
use crate::command::*;
use crate::outcome::*;
use crate::record::*;
use crate::wire::Error;

/// What happened to an encoding on its way.
#[derive(Debug, Clone)]
pub(super) enum Damage {
    Flipped(Index, u8),
    Lost(Index),
    Inserted(Index, u8),
    /// Two bytes changed places.
    Swapped(Index, Index),
    Cut(Index),
}

pub(super) fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (any::<Index>(), 1u8..).prop_map(|(at, bits)| Damage::Flipped(at, bits)),
        // Single bits: tags, flags and short lengths become their neighbours.
        4 => (any::<Index>(), 0u32..8).prop_map(|(at, bit)| Damage::Flipped(at, 1 << bit)),
        1 => any::<Index>().prop_map(Damage::Lost),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Inserted(at, byte)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(one, other)| Damage::Swapped(one, other)),
        1 => any::<Index>().prop_map(Damage::Cut),
    ]
}

impl Damage {
    pub(super) fn of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let len = bytes.len();
        match self {
            Self::Flipped(at, bits) => bytes[at.index(len)] ^= bits,
            Self::Lost(at) => drop(bytes.remove(at.index(len))),
            Self::Inserted(at, byte) => bytes.insert(at.index(len + 1), *byte),
            Self::Swapped(one, other) => bytes.swap(one.index(len), other.index(len)),
            Self::Cut(at) => bytes.truncate(at.index(len)),
        }
        bytes
    }
}

proptest! {
    #[test]
    fn anything_at_all_is_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        reads_as_itself_or_not_at_all(&bytes)?;
    }

    #[test]
    fn small_numbers_are_read_or_refused(bytes in vec(0u8..4, 0..80)) {
        reads_as_itself_or_not_at_all(&bytes)?;
    }
}

/// Whatever a decoder accepts, it must encode to the very same bytes: one value, one encoding.
pub(super) fn reads_as_itself_or_not_at_all(bytes: &[u8]) -> Result<(), TestCaseError> {
    fn again<T>(
        bytes: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, Error>,
        encode: impl Fn(&T, &mut Vec<u8>),
    ) -> Result<(), TestCaseError> {
        if let Ok(value) = decode(bytes) {
            prop_assert_eq!(bytes_of(encode, &value), bytes);
        }
        Ok(())
    }
    // The first byte is the version: without it, chance would never get past it.
    let bytes = &[&[1], bytes.get(1..).unwrap_or_default()].concat();
    again(bytes, decode_envelope, encode_envelope)?;
    again(bytes, decode_batch, |batch, out| out.extend_from_slice(&encode_batch(batch)))?;
    again(bytes, decode_outcome, encode_outcome)?;
    again(bytes, decode_outcomes, |all, out| encode_outcomes(all, out))?;
    again(bytes, decode_operation, encode_operation)?;
    again(bytes, decode_execution, encode_execution)?;
    again(bytes, decode_grant, encode_grant)?;
    again(bytes, decode_body, |body, out| encode_body(body, out))?;
    again(bytes, decode_evidence, encode_evidence)?;
    again(bytes, decode_namespace, encode_namespace)?;
    again(bytes, decode_token, encode_token)?;
    again(bytes, decode_status, encode_status)?;
    again(bytes, decode_tenant, encode_tenant)?;
    again(bytes, decode_epoch, encode_epoch)?;
    again(bytes, decode_capability, encode_capability)?;
    again(bytes, decode_decision, encode_decision)?;
    again(bytes, decode_use, encode_use)?;
    again(bytes, decode_inbox, encode_inbox)?;
    again(bytes, decode_refusal, encode_refusal)?;
    again(bytes, decode_events, |all, out| encode_events(all, out))?;
    again(bytes, decode_head, encode_head)?;
    again(bytes, decode_applied, encode_applied)?;
    let _ = decode_batch_head(bytes);
    Ok(())
}

/// The one place where two encodings differ.
fn place(one: &[u8], other: &[u8]) -> usize {
    assert_eq!(one.len(), other.len());
    let places: Vec<usize> = (0..one.len()).filter(|&at| one[at] != other[at]).collect();
    assert_eq!(places.len(), 1, "they differ in {places:?}");
    places[0]
}

#[test]
fn a_hash_that_is_implied_is_not_written_out() {
    let mut bytes = bytes_of(encode_operation, &samples::operation());
    bytes[1] |= 1;
    let (front, back) = bytes.split_at("version, flags, slot, slot".split(", ").count());
    let written = [front, &samples::operation().id.hash, back].concat();
    assert_eq!(decode_operation(&written), Err(Error::Redundant { what: "operation hash" }));
}

#[test]
fn what_is_rare_in_an_operation_is_there_or_not_written_out() {
    let mut bytes = bytes_of(encode_operation, &samples::operation());
    bytes[1] |= 1 << 7;
    bytes.insert(2, 0);
    assert_eq!(decode_operation(&bytes), Err(Error::Redundant { what: "more of an operation" }));
    let counting = |count: fn(&mut hapax_machine::operation::OperationRecord, u32), number| {
        let mut record = samples::operation();
        count(&mut record, number);
        bytes_of(encode_operation, &record)
    };
    let refusals = |number| counting(|record, number| record.refusals = number, number);
    let capabilities = |number| counting(|record, number| record.capabilities = number, number);
    let no_refusals = place(&refusals(1), &refusals(2));
    let mut bytes = refusals(1);
    bytes[no_refusals] = 0;
    assert_eq!(decode_operation(&bytes), Err(Error::Redundant { what: "number of refusals" }));
    let no_capabilities = place(&capabilities(1), &capabilities(2));
    let mut bytes = capabilities(1);
    bytes[no_capabilities] = 0;
    assert_eq!(decode_operation(&bytes), Err(Error::Redundant { what: "number of capabilities" }));
}

#[test]
fn what_is_rare_in_an_execution_is_there_or_not_written_out() {
    const MORE: u8 = 1 << 6;
    let row = |renewed| {
        let mut row = samples::past_execution_row();
        row.past.as_mut().expect("the sample is past").renewed = renewed;
        bytes_of(encode_execution, &row)
    };
    let flags = place(&row(false), &row(true));
    let with = |more: u8, end: &[u8]| {
        let mut bytes = row(false);
        bytes[flags] |= MORE;
        bytes.insert(flags + 1, more);
        bytes.extend_from_slice(end);
        decode_execution(&bytes)
    };
    assert_eq!(with(0, &[]), Err(Error::Redundant { what: "more of an execution" }));
    assert_eq!(with(0b1, &[0]), Err(Error::Redundant { what: "list" }));
    assert_eq!(with(0b10, &[1]), Err(Error::Redundant { what: "effect attempt" }));
    // So it is the sameness that is refused, and not the place.
    assert!(with(0b10, &[2]).is_ok());
}

#[test]
fn a_row_of_no_events_is_refused() {
    assert_eq!(decode_events(&[1, 1, 0, 9, 0]), Err(Error::Redundant { what: "row of no events" }));
}

#[test]
fn an_announced_batch_costs_no_memory() {
    let head = [1, 1, 0, 0, 0];
    let announced = [&head[..], &[0xff, 0xff, 0x03]].concat();
    assert_eq!(decode_batch(&announced), Err(Error::Truncated));
    let above = [&head[..], &[0x80, 0x80, 0x04]].concat();
    assert_eq!(decode_batch(&above), Err(Error::TooMany { count: 65_536 }));
}
