//! Holds `docs/openapi.json` to the types: a change of the wire is a change of that file, seen in review.
//! `UPDATE=1 cargo nextest run -p hapax-api` rewrites it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde_json::Value;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

#[test]
fn the_committed_document_is_current() {
    let current = hapax_api::openapi::text();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(COMMITTED, &current).unwrap();
    }
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let committed = std::fs::read_to_string(COMMITTED).unwrap();
    assert!(parsed(&committed) == parsed(&current), "docs/openapi.json differs from the types; UPDATE=1 rewrites it");
}

fn each_object(value: &Value, visit: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    if let Some(object) = value.as_object() {
        visit(object);
        object.values().for_each(|value| each_object(value, visit));
    }
    for item in value.as_array().into_iter().flatten() {
        each_object(item, visit);
    }
}

#[test]
fn references_resolve_and_every_schema_is_used() {
    let document = hapax_api::openapi::document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut used = std::collections::BTreeSet::new();
    each_object(&document, &mut |object| {
        if let Some(Value::String(reference)) = object.get("$ref") {
            used.insert(reference.strip_prefix("#/components/schemas/").unwrap().to_owned());
        }
    });
    let defined: std::collections::BTreeSet<String> = schemas.keys().cloned().collect();
    assert_eq!(used, defined);
}

#[test]
fn requests_are_closed_and_nothing_is_null() {
    let document = hapax_api::openapi::document();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        if name.ends_with("Request") {
            assert_eq!(schema["additionalProperties"], false, "{name}");
        }
    }
    each_object(&document, &mut |object| {
        let kind = object.get("type").cloned().unwrap_or_default();
        assert_ne!(kind, "null", "{object:?}");
        assert!(!kind.is_array(), "{object:?}");
    });
}
