//! Literals that pin the bytes of version 1, sizes, round trips, and decoders fed with anything at all.
//! A literal that changes means that stored bytes changed meaning: make a new version instead.

mod literals;
mod samples;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::command::*;
use crate::generators as make;
use crate::outcome::*;
use crate::record::*;
use crate::wire::Error;

fn bytes_of<T>(encode: impl Fn(&T, &mut Vec<u8>), value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, &mut out);
    out
}

/// The value comes back; every shorter prefix, a longer text and another version are refused.
fn check<T: PartialEq + std::fmt::Debug>(
    value: &T,
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, Error>,
) -> Result<(), TestCaseError> {
    let read = decode(bytes);
    prop_assert_eq!(read.as_ref(), Ok(value));
    for len in 0..bytes.len() {
        prop_assert!(decode(&bytes[..len]).is_err(), "cut to {} of {}", len, bytes.len());
    }
    let longer = [bytes, &[0]].concat();
    prop_assert_eq!(decode(&longer), Err(Error::Trailing { len: 1 }));
    let newer = [&[2], &bytes[1..]].concat();
    let refused = matches!(decode(&newer), Err(Error::Version { found: 2, known: 1, .. }));
    prop_assert!(refused, "another version was read");
    Ok(())
}

macro_rules! round_trips {
    ($($name:ident: $make:path, $encode:path, $decode:path;)+) => {
        proptest! {$(
            #[test]
            fn $name(value in $make()) {
                check(&value, &bytes_of($encode, &value), $decode)?;
            }
        )+}
    };
}

round_trips! {
    envelopes_round_trip: make::envelope, encode_envelope, decode_envelope;
    outcomes_round_trip: make::outcome, encode_outcome, decode_outcome;
    operations_round_trip: make::operation_record, encode_operation, decode_operation;
    executions_round_trip: make::execution_record, encode_execution, decode_execution;
    grants_round_trip: make::grant_record, encode_grant, decode_grant;
    evidence_round_trips: make::evidence_record, encode_evidence, decode_evidence;
    statuses_round_trip: make::status, encode_status, decode_status;
    tenants_round_trip: make::tenant, encode_tenant, decode_tenant;
    epochs_round_trip: make::epoch, encode_epoch, decode_epoch;
    capabilities_round_trip: make::capability, encode_capability, decode_capability;
    decisions_round_trip: make::decision, encode_decision, decode_decision;
    uses_round_trip: make::use_record, encode_use, decode_use;
    deliveries_round_trip: make::inbox, encode_inbox, decode_inbox;
    refusals_round_trip: make::refusal_record, encode_refusal, decode_refusal;
    namespaces_round_trip: make::namespace, encode_namespace, decode_namespace;
    tokens_round_trip: make::token, encode_token, decode_token;
    heads_round_trip: make::head, encode_head, decode_head;
    applied_round_trips: make::applied, encode_applied, decode_applied;
}

proptest! {
    #[test]
    fn batches_round_trip(batch in make::batch()) {
        let bytes = encode_batch(&batch);
        check(&batch, &bytes, decode_batch)?;
        prop_assert_eq!(decode_batch_head(&bytes), Ok((batch.head(), batch.envelopes.len())));
    }

    #[test]
    fn a_spliced_batch_is_the_batch(batch in make::batch()) {
        let envelopes: Vec<Vec<u8>> = batch.envelopes.iter().map(|one| bytes_of(encode_envelope, one)).collect();
        prop_assert_eq!(splice_batch(&batch.head(), &envelopes), encode_batch(&batch));
    }

    #[test]
    fn events_round_trip(events in make::events()) {
        let bytes = bytes_of(|events: &Vec<_>, out| encode_events(events, out), &events);
        check(&events, &bytes, decode_events)?;
    }

    #[test]
    fn lists_of_outcomes_round_trip(outcomes in vec(make::outcome(), 0..5)) {
        let bytes = bytes_of(|value: &Vec<_>, out| encode_outcomes(value, out), &outcomes);
        check(&outcomes, &bytes, decode_outcomes)?;
    }

    #[test]
    fn bodies_round_trip(body in vec(any::<u8>(), 0..300)) {
        let bytes = bytes_of(|value: &Vec<u8>, out| encode_body(value, out), &body);
        prop_assert_eq!(decode_body(&bytes), Ok(body));
        prop_assert_eq!(decode_body(&[]), Err(Error::Truncated));
    }

    #[test]
    fn encoding_appends(value in make::operation_record(), before in vec(any::<u8>(), 0..9)) {
        let mut out = before.clone();
        encode_operation(&value, &mut out);
        prop_assert_eq!(out, [before, bytes_of(encode_operation, &value)].concat());
    }

    #[test]
    fn anything_at_all_is_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        reads_as_itself_or_not_at_all(&bytes)?;
    }

    #[test]
    fn a_damaged_record_is_read_as_another_or_refused(
        operation in make::operation_record(),
        batch in make::batch(),
        outcome in make::outcome(),
        place in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let all = [bytes_of(encode_operation, &operation), encode_batch(&batch).to_vec(), bytes_of(encode_outcome, &outcome)];
        for mut bytes in all {
            let at = place.index(bytes.len());
            bytes[at] ^= flip;
            reads_as_itself_or_not_at_all(&bytes)?;
        }
    }
}

/// Whatever a decoder accepts, it must encode to the very same bytes: one value, one encoding.
fn reads_as_itself_or_not_at_all(bytes: &[u8]) -> Result<(), TestCaseError> {
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
    // A row of no events is written by nobody: it has no entry to be of.
    again(
        bytes,
        |bytes| decode_events(bytes).map(|all| (!all.is_empty()).then_some(all)),
        |all, out| match all {
            Some(all) => encode_events(all, out),
            None => out.extend_from_slice(bytes),
        },
    )?;
    again(bytes, decode_head, encode_head)?;
    again(bytes, decode_applied, encode_applied)?;
    let _ = decode_batch_head(bytes);
    Ok(())
}

#[test]
fn reserved_tags_are_refused() {
    for tag in (26..=255).chain([0]) {
        assert_eq!(decode_envelope(&[1, 0, tag]), Err(Error::Tag { what: "command", tag }));
    }
    for tag in (22..=255).chain([0]) {
        assert_eq!(decode_outcome(&[1, 0, 0, 0, 0, tag]), Err(Error::Tag { what: "answer", tag }));
    }
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
fn an_announced_batch_costs_no_memory() {
    let head = [1, 1, 0, 0, 0];
    let announced = [&head[..], &[0xff, 0xff, 0x03]].concat();
    assert_eq!(decode_batch(&announced), Err(Error::Truncated));
    let above = [&head[..], &[0x80, 0x80, 0x04]].concat();
    assert_eq!(decode_batch(&above), Err(Error::TooMany { count: 65_536 }));
}

/// What one operation costs on disk and in the log, keys not counted. Ten million stored operations and 26,000 claims
/// a second on three replicas stand behind these numbers: raise one only for a reason.
#[test]
fn sizes_are_bounded() {
    let claim = bytes_of(encode_envelope, &samples::claim());
    let executing = bytes_of(encode_operation, &samples::operation());
    let completed = bytes_of(encode_operation, &samples::completed());
    let execution = bytes_of(encode_execution, &samples::execution_row());
    let grant = bytes_of(encode_grant, &samples::grant_row());
    let sizes = [claim.len(), executing.len(), completed.len(), execution.len(), grant.len()];
    assert_eq!(sizes, [167, 210, 277, 37, 66], "claim, executing, completed, execution row, grant row");
}
