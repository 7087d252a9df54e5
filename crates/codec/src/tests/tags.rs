//! Which tags there are. A variant that is new has a tag that its reader knows: whoever adds one and forgets a sample or a
//! generator for it is told here.

use std::collections::BTreeSet;

use hapax_machine::command::Command;
use hapax_machine::evidence::Source;
use hapax_machine::operation::State;
use hapax_machine::outcome::{Answer, Refusal};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::samples;
use crate::command::*;
use crate::generators as make;
use crate::outcome::*;
use crate::wire::{Error, Reader, Wire};

/// The tags that a reader knows; a version ahead of a tag is how records are opened.
pub(super) fn known<T: Wire>() -> Vec<u8> {
    let knows = |tag: &u8| {
        let bytes = [0, *tag];
        let mut from = Reader::open(&bytes, "tag", 0).expect("a version");
        !matches!(T::get(&mut from), Err(Error::Tag { .. }))
    };
    (0..=u8::MAX).filter(knows).collect()
}

fn first<T: Wire>(value: &T) -> u8 {
    let mut out = Vec::new();
    value.put(&mut out);
    out[0]
}

/// What a generator makes in so many draws, always the same ones.
fn drawn<S: Strategy>(strategy: &S, tag: impl Fn(S::Value) -> Option<u8>) -> Vec<u8> {
    let mut runner = TestRunner::deterministic();
    let draws = (0..4_000).map(|_| strategy.new_tree(&mut runner).expect("nothing is filtered").current());
    draws.filter_map(tag).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn every_command_has_a_sample_and_is_generated() {
    let samples: BTreeSet<u8> = samples::envelopes().iter().map(|(_, one)| first(&one.command)).collect();
    assert_eq!(samples.into_iter().collect::<Vec<_>>(), known::<Command>());
    let drawn = drawn(&make::envelope(), |one| Some(first(&one.command)));
    assert_eq!(drawn, known::<Command>());
}

#[test]
fn every_answer_has_a_sample_and_is_generated() {
    let samples: BTreeSet<u8> = samples::outcomes().iter().map(|(_, one)| first(&one.answer)).collect();
    assert_eq!(samples.into_iter().collect::<Vec<_>>(), known::<Answer>());
    assert_eq!(drawn(&make::outcome(), |one| Some(first(&one.answer))), known::<Answer>());
}

#[test]
fn every_refusal_source_and_state_is_generated() {
    assert_eq!(drawn(&make::refusal_record(), |row| Some(first(&row.reason))), known::<Refusal>());
    assert_eq!(drawn(&make::evidence_record(), |row| Some(first(&row.source))), known::<Source>());
    assert_eq!(drawn(&make::evidence_record(), |row| Some(first(&row.met))), known::<State>());
    assert_eq!(drawn(&make::refusal_record(), |row| row.state.as_ref().map(first)), known::<State>());
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
