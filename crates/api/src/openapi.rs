//! The OpenAPI 3.1 document, made from the wire types and the table of endpoints.
//! `docs/openapi.json` is its committed text; a test holds the two together.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::codes::Code;
use crate::endpoints::{self, Answer, Endpoint, Method, Parameter, Place};
use crate::problem::{self, Problem};
use crate::{
    batch, capability, claim, cluster, epoch, evidence, execution, find, namespace, operation, reconcile, register,
    repair, tenant, watch,
};

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints::all() {
        let method = match endpoint.method {
            Method::Get => "get",
            Method::Post => "post",
            Method::Put => "put",
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
        "required": parameter.required,
        "description": parameter.description,
        "schema": { "type": parameter.kind },
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
        object["content"] = content(answer.media_type, schema);
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
    requests(&mut found);
    answers(&mut found);
    let mut schemas: Map<String, Value> = found
        .into_iter()
        .map(|(name, schema)| (name, serde_json::to_value(schema).expect("a schema has string names only")))
        .collect();
    for schema in schemas.values_mut() {
        never_null(schema);
    }
    // What is flattened into others stands in none of them by its name.
    let parts = schemas.clone();
    for (name, schema) in &mut schemas {
        merge_parts(name, schema, &parts);
    }
    schemas.remove("ResultData");
    schemas.extend(batch_schemas(&schemas));
    schemas
}

fn requests(found: &mut Vec<(String, RefOr<Schema>)>) {
    add::<claim::ClaimRequest>(found);
    add::<register::RegisterRequest>(found);
    add::<find::LookupRequest>(found);
    add::<execution::RenewRequest>(found);
    add::<execution::OutcomeRequest>(found);
    add::<execution::EvidenceRequest>(found);
    add::<execution::ResolveRequest>(found);
    add::<capability::IssueRequest>(found);
    add::<capability::IssueBoundedRequest>(found);
    add::<capability::RevokeRequest>(found);
    add::<epoch::BumpRequest>(found);
    add::<reconcile::ReconcileRequest>(found);
    add::<reconcile::EscalateRequest>(found);
    add::<reconcile::FenceRequest>(found);
    add::<repair::RepairRequest>(found);
    add::<repair::SupersedeRequest>(found);
    add::<namespace::PutNamespaceRequest>(found);
    add::<tenant::PutTenantRequest>(found);
    add::<tenant::CreateTokenRequest>(found);
    add::<tenant::RevokeTokenRequest>(found);
}

fn answers(found: &mut Vec<(String, RefOr<Schema>)>) {
    add::<claim::ClaimAnswer>(found);
    add::<register::Registered>(found);
    add::<operation::OperationView>(found);
    add::<find::OperationPage>(found);
    add::<execution::Renewed>(found);
    add::<execution::Accepted>(found);
    add::<capability::CapabilityView>(found);
    add::<epoch::EpochView>(found);
    add::<reconcile::Reconciling>(found);
    add::<evidence::EvidencePage>(found);
    add::<watch::OperationEvent>(found);
    add::<batch::BatchAnswer>(found);
    add::<namespace::NamespaceView>(found);
    add::<namespace::NamespacePage>(found);
    add::<tenant::TenantView>(found);
    add::<tenant::TenantPage>(found);
    add::<tenant::TokenView>(found);
    add::<tenant::TokenCreated>(found);
    add::<tenant::TokenPage>(found);
    add::<cluster::ClusterView>(found);
    add::<cluster::Liveness>(found);
    add::<cluster::Readiness>(found);
    add::<Problem>(found);
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

/// Writes flattened fields into the schemas that flatten them: under `allOf` no part could say that it allows no
/// other fields.
fn merge_parts(name: &str, schema: &mut Value, schemas: &Map<String, Value>) {
    let Some(parts) = schema.get("allOf").and_then(Value::as_array).cloned() else { return };
    let mut merged = json!({ "type": "object", "required": [], "properties": {} });
    for part in &parts {
        merge(&mut merged, resolved(part, schemas));
    }
    if name.ends_with("Request") {
        merged["additionalProperties"] = json!(false);
    }
    if let Some(description) = schema.get("description") {
        merged["description"] = description.clone();
    }
    *schema = merged;
}

/// What a reference stands for.
fn resolved<'s>(schema: &'s Value, schemas: &'s Map<String, Value>) -> &'s Value {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    name.and_then(|name| schemas.get(name)).unwrap_or(schema)
}

/// Adds the fields of `part` to `object`.
fn merge(object: &mut Value, part: &Value) {
    for (name, property) in part["properties"].as_object().into_iter().flatten() {
        object["properties"][name] = property.clone();
    }
    if let (Some(all), Some(own)) = (object["required"].as_array_mut(), part["required"].as_array()) {
        all.extend(own.iter().cloned());
    }
}

/// The schema of a batch: each item is a single call's body, with its kind and the ids of its path beside it.
fn batch_schemas(schemas: &Map<String, Value>) -> Vec<(String, Value)> {
    let calls: Vec<Value> = batch::ItemKind::ALL.iter().map(|kind| item_schema(*kind, schemas)).collect();
    let items = json!({
        "type": "array",
        "minItems": 1,
        "maxItems": crate::limits::BATCH_ITEMS_MAX,
        "items": { "$ref": "#/components/schemas/BatchItem" },
    });
    let request = json!({
        "type": "object",
        "description": "A batch: at most 1 MiB.",
        "required": ["items"],
        "properties": { "items": items },
        "additionalProperties": false,
    });
    let item = json!({ "description": "One call, told apart by `kind`.", "oneOf": calls });
    vec![("BatchItem".to_owned(), item), ("BatchRequest".to_owned(), request)]
}

fn item_schema(kind: batch::ItemKind, schemas: &Map<String, Value>) -> Value {
    let endpoint = endpoints::all()
        .find(|endpoint| endpoint.method == Method::Post && endpoint.path == kind.path())
        .expect("every kind is an endpoint");
    let mut properties = json!({ "kind": { "type": "string", "enum": [kind.as_str()] } });
    let mut required = vec![json!("kind")];
    for parameter in endpoint.parameters.iter().filter(|parameter| parameter.place == Place::Path) {
        properties[parameter.name] = json!({ "type": "string", "description": parameter.description });
        required.push(json!(parameter.name));
    }
    let mut item = json!({
        "type": "object",
        "title": endpoint.name,
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    });
    let body = endpoint.body.and_then(|body| schemas.get(body)).expect("every call of a batch has a body");
    merge(&mut item, body);
    if kind == batch::ItemKind::Claim
        && let Some(properties) = item["properties"].as_object_mut()
    {
        properties.remove("wait_ms");
    }
    item
}
