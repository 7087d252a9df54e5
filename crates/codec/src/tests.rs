//! Round trips of everything that is stored or sent; beside them, in files of their own: literals and flags that pin the bytes
//! of version 1, tags, sizes, and decoders fed with anything at all.
//! A literal that changes means that stored bytes changed meaning: make a new version instead.

mod flags;
mod literals;
mod robust;
mod samples;
mod sizes;
mod tags;

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
    for version in [0, 2] {
        let other = [&[version], &bytes[1..]].concat();
        let refused = matches!(decode(&other), Err(Error::Version { found, known: 1, .. }) if found == version);
        prop_assert!(refused, "version {} was read", version);
    }
    Ok(())
}

macro_rules! round_trips {
    ($($name:ident: $make:path, $encode:path, $decode:path;)+) => {
        proptest! {$(
            #[test]
            fn $name(value in $make(), damage in robust::damage()) {
                let bytes = bytes_of($encode, &value);
                check(&value, &bytes, $decode)?;
                robust::reads_as_itself_or_not_at_all(&damage.of(&bytes))?;
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
    fn batches_round_trip(batch in make::batch(), damage in robust::damage()) {
        let bytes = encode_batch(&batch);
        check(&batch, &bytes, decode_batch)?;
        robust::reads_as_itself_or_not_at_all(&damage.of(&bytes))?;
        prop_assert_eq!(decode_batch_head(&bytes), Ok((batch.head(), batch.envelopes.len())));
    }

    #[test]
    fn a_spliced_batch_is_the_batch(batch in make::batch()) {
        let envelopes: Vec<Vec<u8>> = batch.envelopes.iter().map(|one| bytes_of(encode_envelope, one)).collect();
        prop_assert_eq!(splice_batch(&batch.head(), &envelopes), encode_batch(&batch));
    }

    #[test]
    fn events_round_trip(events in make::events(), damage in robust::damage()) {
        let bytes = bytes_of(|events: &Vec<_>, out| encode_events(events, out), &events);
        check(&events, &bytes, decode_events)?;
        robust::reads_as_itself_or_not_at_all(&damage.of(&bytes))?;
    }

    #[test]
    fn lists_of_outcomes_round_trip(outcomes in vec(make::outcome(), 0..5), damage in robust::damage()) {
        let bytes = bytes_of(|value: &Vec<_>, out| encode_outcomes(value, out), &outcomes);
        check(&outcomes, &bytes, decode_outcomes)?;
        robust::reads_as_itself_or_not_at_all(&damage.of(&bytes))?;
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
}
