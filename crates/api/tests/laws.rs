//! Laws of the reader and the digest, on generated documents.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use hapax_api::claim::Claim;
use hapax_api::cursor::Cursor;
use hapax_api::digest::Envelope;
use hapax_api::evidence::EvidenceQuery;
use hapax_api::execution::OutcomeRequest;
use hapax_api::find::ListQuery;
use hapax_api::json::{RawJson, Value};
use hapax_api::limits::INTEGER_MAX;
use hapax_api::namespace::NamespacePolicy;
use hapax_api::tenant::CreateTokenRequest;
use hapax_api::watch::{EventReader, Position};
use hapax_api::{Limits, headers};
use proptest::collection::vec;
use proptest::prelude::*;

/// Documents whose names and strings mix ASCII, combining marks and characters beyond the basic plane.
fn document() -> impl Strategy<Value = serde_json::Value> {
    let text = "[a-c\"\\\\\u{0}-\u{1f}e\u{e9}\u{301}\u{e000}\u{1f600}]{0,4}";
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-INTEGER_MAX..=INTEGER_MAX).prop_map(Into::into),
        text.prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Into::into),
            vec((text, inner), 0..5).prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes a document with its members backwards, and white space wherever it may be.
fn backwards(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(items) => {
            format!("[ {} ]", items.iter().map(backwards).collect::<Vec<_>>().join("\n,\t"))
        }
        serde_json::Value::Object(members) => {
            let member = |(name, value): (&String, &serde_json::Value)| {
                format!("{} :\r{}", serde_json::to_string(name).unwrap(), backwards(value))
            };
            format!("{{ {} }}", members.iter().rev().map(member).collect::<Vec<_>>().join(" , "))
        }
        leaf => leaf.to_string(),
    }
}

fn canonical(request: &Value) -> String {
    let namespace = "n".parse().unwrap();
    Envelope { tenant: "t", namespace: &namespace, operation_version: None, request, transport_fields: &[] }
        .canonical()
}

proptest! {
    #[test]
    fn the_order_of_members_and_white_space_do_not_matter(document in document()) {
        let forwards = Value::canonical(document.to_string().as_bytes());
        let backwards = Value::canonical(backwards(&document).as_bytes());
        // Two names may become one in NFC; then both ways are refused.
        prop_assert_eq!(forwards.is_ok(), backwards.is_ok());
        if let (Ok(forwards), Ok(backwards)) = (forwards, backwards) {
            prop_assert_eq!(canonical(&forwards), canonical(&backwards));
        }
    }

    #[test]
    fn canonical_text_is_a_fixed_point_and_means_the_same(document in document()) {
        let Ok(value) = Value::canonical(document.to_string().as_bytes()) else { return Ok(()) };
        let text = canonical(&value);
        let envelope: serde_json::Value = serde_json::from_str(&text).unwrap();
        let again = Value::canonical(envelope["request"].to_string().as_bytes());
        prop_assert_eq!(again.as_ref(), Ok(&value));
        prop_assert_eq!(canonical(&value), text);
    }

    #[test]
    fn different_requests_differ(one in document(), other in document()) {
        let (one, other) = (Value::canonical(one.to_string().as_bytes()), Value::canonical(other.to_string().as_bytes()));
        if let (Ok(one), Ok(other)) = (one, other) {
            prop_assert_eq!(one == other, canonical(&one) == canonical(&other));
        }
    }

    #[test]
    fn a_raw_result_survives(document in document()) {
        let Ok(raw) = RawJson::parse(backwards(&document).as_bytes()) else { return Ok(()) };
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(raw.as_str()).unwrap(), document);
        prop_assert_eq!(&RawJson::parse(raw.as_str().as_bytes()).unwrap(), &raw);
        prop_assert_eq!(RawJson::stored(raw.as_str().to_owned()), Ok(raw));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in vec(any::<u8>(), 0..200), text in "[\\[\\]{}\",:0-9a-z\\\\\u{e9} .eE+-]{0,80}") {
        for body in [bytes.as_slice(), text.as_bytes()] {
            let _ = Claim::read(body, None, &Limits::default());
            let _ = OutcomeRequest::read(body, &Limits::default());
            let _ = NamespacePolicy::read(body, &Limits::default());
            let _ = CreateTokenRequest::read(body, &Limits::default());
            let _ = EventReader::default().push(body);
            let _ = Value::canonical(body);
            let _ = RawJson::parse(body);
        }
        let _ = headers::idempotency_key(&text);
        let _ = headers::prefer_wait_ms(&text, &Limits::default());
        let _ = headers::expected(Some(&text), None);
        let _ = ListQuery::read(&text, &Limits::default());
        let _ = EvidenceQuery::read(&text, &Limits::default());
        let _ = format!("c1_{text}").parse::<Cursor>();
        let _ = text.parse::<Position>();
        let _ = headers::none_match_names(&text, "\"1.0.0.0\"");
    }
}
