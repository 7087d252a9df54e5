//! Holds the digest to `docs/digest-vectors.json`, which every client shares.
//! `docs/digest_vectors_check.py` computes the same vectors with nothing of this code.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use hapax_api::digest::{Envelope, PROFILE};
use hapax_api::json::Value;
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    profile: String,
    accepted: Vec<Accepted>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct Accepted {
    name: String,
    tenant: String,
    namespace: String,
    operation_version: String,
    transport_fields: Vec<String>,
    request_json: String,
    canonical: String,
    digest: String,
}

#[derive(Deserialize)]
struct Refused {
    name: String,
    request_json: String,
    pointer: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../docs/digest-vectors.json")).unwrap()
}

#[test]
fn accepted_vectors() {
    let vectors = vectors();
    assert_eq!(vectors.profile, PROFILE);
    for vector in &vectors.accepted {
        let namespace = vector.namespace.parse().unwrap();
        let version = vector.operation_version.parse().unwrap();
        let request = Value::canonical(vector.request_json.as_bytes())
            .unwrap_or_else(|fault| panic!("{}: refused: {fault:?}", vector.name));
        let transport_fields: Vec<&str> = vector.transport_fields.iter().map(String::as_str).collect();
        let envelope = Envelope {
            tenant: &vector.tenant,
            namespace: &namespace,
            operation_version: Some(&version),
            request: &request,
            transport_fields: &transport_fields,
        };
        assert_eq!(envelope.canonical(), vector.canonical, "{}", vector.name);
        assert_eq!(envelope.digest().to_string(), vector.digest, "{}", vector.name);
        if vector.operation_version == "1" {
            assert_eq!(
                Envelope { operation_version: None, ..envelope }.digest(),
                envelope.digest(),
                "{}",
                vector.name
            );
        }
    }
}

#[test]
fn refused_vectors() {
    for vector in vectors().refused {
        match Value::canonical(vector.request_json.as_bytes()) {
            Err(fault) => assert_eq!(fault.pointer, vector.pointer, "{}: {}", vector.name, fault.detail),
            Ok(value) => panic!("{}: read as {value:?}", vector.name),
        }
    }
}

/// The vectors name the pairs that must be equal; all others must differ.
#[test]
fn equal_requests_and_no_others_share_a_digest() {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for vector in vectors().accepted {
        groups.entry(vector.digest).or_default().push(vector.name);
    }
    let mut shared: Vec<Vec<String>> = groups.into_values().filter(|names| names.len() > 1).collect();
    shared.sort();
    assert_eq!(
        shared,
        [
            vec!["a composed character", "the same character decomposed becomes NFC", "the same character escaped"],
            vec![
                "the plain request",
                "members in another order are the same request",
                "white space is not part of it",
                "escapes are not part of it",
            ],
            vec![
                "transport fields are dropped at the top level",
                "the request without them is the same request",
                "transport fields are compared after NFC",
            ],
        ]
    );
}
