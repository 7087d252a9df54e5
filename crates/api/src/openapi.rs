//! The OpenAPI 3.1 document, made from the wire types and the table of endpoints.
//! `docs/openapi.json` is its committed text; a test holds the two together.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::codes::Code;
use crate::endpoints::{Answer, ENDPOINTS, Endpoint, Method, Parameter, Place};
use crate::problem::{self, Problem};
use crate::{claim, cluster, execution, operation};

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in ENDPOINTS {
        let method = match endpoint.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        paths.entry(endpoint.path).or_default().insert(method.to_owned(), operation_object(endpoint));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hapax",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "An operation store: before a service causes an effect it asks whether it may, and whether \
                            it has been done. Every mutating call is idempotent by its own identity: after a 503, a \
                            504 or a lost answer the same call is sent again. An absent field is absent, never null.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "`hpx_<id>_<secret>`." },
            },
        },
    })
}

/// The document as it is served and committed: indented, with a final newline.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", document())
}

fn operation_object(endpoint: &Endpoint) -> Value {
    let mut object = json!({
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "responses": responses(endpoint),
    });
    if !endpoint.parameters.is_empty() {
        object["parameters"] = endpoint.parameters.iter().map(parameter).collect();
    }
    if !endpoint.roles.is_empty() {
        object["security"] = json!([{ "token": [] }]);
        object["description"] = json!(format!("Role: {}.", endpoint.roles.join(" or ")));
    }
    if let Some(schema) = endpoint.body {
        object["requestBody"] = json!({ "required": true, "content": content("application/json", schema) });
    }
    object
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
    };
    json!({
        "name": parameter.name,
        "in": place,
        "required": parameter.place == Place::Path,
        "description": parameter.description,
        "schema": { "type": "string" },
    })
}

/// One response object for each status: OpenAPI has no other key, so problems of one status share an object.
fn responses(endpoint: &Endpoint) -> Map<String, Value> {
    let mut responses = Map::new();
    for answer in endpoint.answers {
        responses.insert(answer.status.to_string(), response(answer));
    }
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in endpoint.all_problems() {
        by_status.entry(code.status()).or_default().push(code);
        if code.status_in(crate::ConflictStyle::Ietf) != code.status() {
            by_status.entry(code.status_in(crate::ConflictStyle::Ietf)).or_default().push(code);
        }
    }
    for (status, codes) in by_status {
        let listed: Vec<String> = codes.iter().map(|code| format!("`{code}`: {}.", code.title())).collect();
        let mut object = json!({
            "description": listed.join(" "),
            "content": content(problem::MEDIA_TYPE, "Problem"),
        });
        if let Some((header, description)) = problem_header(status) {
            object["headers"] = json!({ header: { "description": description, "schema": { "type": "string" } } });
        }
        responses.insert(status.to_string(), object);
    }
    responses
}

fn problem_header(status: u16) -> Option<(&'static str, &'static str)> {
    match status {
        401 => Some(("WWW-Authenticate", "`Bearer`.")),
        405 => Some(("Allow", "The methods of the path.")),
        429 | 503 | 507 => Some(("Retry-After", "Seconds until sending the call again.")),
        _ => None,
    }
}

fn response(answer: &Answer) -> Value {
    let mut object = json!({ "description": answer.description });
    if let Some(schema) = answer.schema {
        object["content"] = content("application/json", schema);
    }
    for (name, description) in answer.headers {
        object["headers"][name] = json!({ "description": description, "schema": { "type": "string" } });
    }
    object
}

fn content(media_type: &str, schema: &str) -> Value {
    json!({ media_type: { "schema": { "$ref": format!("#/components/schemas/{schema}") } } })
}

fn schemas() -> Map<String, Value> {
    let mut found: Vec<(String, RefOr<Schema>)> = Vec::new();
    add::<claim::ClaimRequest>(&mut found);
    add::<claim::ClaimAnswer>(&mut found);
    add::<operation::LookupRequest>(&mut found);
    add::<operation::OperationView>(&mut found);
    add::<execution::RenewRequest>(&mut found);
    add::<execution::OutcomeRequest>(&mut found);
    add::<execution::EvidenceRequest>(&mut found);
    add::<execution::ResolveRequest>(&mut found);
    add::<execution::Renewed>(&mut found);
    add::<execution::Accepted>(&mut found);
    add::<cluster::ClusterView>(&mut found);
    add::<cluster::Liveness>(&mut found);
    add::<cluster::Readiness>(&mut found);
    add::<Problem>(&mut found);
    let mut schemas: Map<String, Value> = found
        .into_iter()
        .map(|(name, schema)| (name, serde_json::to_value(schema).expect("a schema has string names only")))
        .collect();
    for schema in schemas.values_mut() {
        never_null(schema);
    }
    let result_data = schemas.remove("ResultData").unwrap_or_default();
    for schema in schemas.values_mut() {
        inline_result_data(schema, &result_data);
    }
    schemas
}

fn add<T: ToSchema + PartialSchema>(found: &mut Vec<(String, RefOr<Schema>)>) {
    found.push((T::name().into_owned(), T::schema()));
    T::schemas(found);
}

/// Says of an optional field only that it is optional: the wire has no nulls, and utoipa allows one for every `Option`.
fn never_null(value: &mut Value) {
    if let Some(list) = value.as_array_mut() {
        list.iter_mut().for_each(never_null);
    }
    let Some(object) = value.as_object_mut() else { return };
    if let Some(types) = object.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(mut choices) = object.get("oneOf").and_then(Value::as_array).cloned()
        && let Some(null) = choices.iter().position(|choice| choice["type"] == "null")
    {
        choices.remove(null);
        object.remove("oneOf");
        if let [Value::Object(only)] = choices.as_slice() {
            object.extend(only.clone());
        } else {
            object.insert("oneOf".to_owned(), Value::Array(choices));
        }
    }
    object.values_mut().for_each(never_null);
}

/// Writes the common result fields into the schemas that flatten them: under `allOf` neither part could say that
/// it allows no other fields.
fn inline_result_data(schema: &mut Value, result_data: &Value) {
    let Some(parts) = schema.get("allOf").and_then(Value::as_array).cloned() else { return };
    let mut merged = json!({ "type": "object", "required": [], "properties": {}, "additionalProperties": false });
    for part in &parts {
        let part = if part.get("$ref").is_some() { result_data } else { part };
        for (name, property) in part["properties"].as_object().into_iter().flatten() {
            merged["properties"][name] = property.clone();
        }
        if let (Some(all), Some(own)) = (merged["required"].as_array_mut(), part["required"].as_array()) {
            all.extend(own.iter().cloned());
        }
    }
    if let Some(description) = schema.get("description") {
        merged["description"] = description.clone();
    }
    *schema = merged;
}
