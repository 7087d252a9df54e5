//! The table of endpoints: method, path, role, parameters, answers and problems of each.
//! The OpenAPI document is made from it, and the server mounts its routes by these paths.

mod administration;
mod authority;
mod claims;
mod node;
mod operations;

use crate::codes::Code;

/// The methods in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Changes something, or reads by something that must not be in a path.
    Post,
    /// Replaces something as a whole.
    Put,
}

impl Method {
    /// As HTTP writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
        }
    }
}

/// Where a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A segment of the path.
    Path,
    /// The query.
    Query,
    /// A request header.
    Header,
}

/// A parameter outside the body.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Where it is.
    pub place: Place,
    /// Whether it must be there.
    pub required: bool,
    /// Its JSON type.
    pub kind: &'static str,
    /// What it does.
    pub description: &'static str,
}

/// An answer that is no problem.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// What it says.
    pub description: &'static str,
    /// The body's schema; `None` for no body.
    pub schema: Option<&'static str>,
    /// The body's media type.
    pub media_type: &'static str,
    /// Response headers and what they say.
    pub headers: &'static [(&'static str, &'static str)],
}

/// One endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// The method.
    pub method: Method,
    /// The path, parameters in braces, as both axum and OpenAPI write it.
    pub path: &'static str,
    /// A name for code generators.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// The roles of which the credential needs one; empty for no credential.
    pub roles: &'static [&'static str],
    /// The request body's schema.
    pub body: Option<&'static str>,
    /// The other parameters.
    pub parameters: &'static [Parameter],
    /// The answers.
    pub answers: &'static [Answer],
    /// The problems of its own, beside those of every call like it.
    pub problems: &'static [Code],
}

/// `POST`: claim a key.
pub const CLAIMS: &str = "/v1/claims";
/// `POST`: several calls in one body.
pub const BATCH: &str = "/v1/batch";
/// `POST`: register an operation. `GET`: a list of operations.
pub const OPERATIONS: &str = "/v1/operations";
/// `GET`: one operation.
pub const OPERATION: &str = "/v1/operations/{operation_id}";
/// `POST`: operations by key, provider's id or resource.
pub const LOOKUP: &str = "/v1/operations/lookup";
/// `POST`: issue a capability for one attempt.
pub const ISSUE: &str = "/v1/operations/{operation_id}/capabilities";
/// `POST`: stop claims of an operation.
pub const QUARANTINE: &str = "/v1/operations/{operation_id}/quarantine";
/// `POST`: let claims go on.
pub const RELEASE: &str = "/v1/operations/{operation_id}/release";
/// `POST`: link the operation that takes its place.
pub const SUPERSEDE: &str = "/v1/operations/{operation_id}/supersede";
/// `POST`: end an operation that nobody executes.
pub const CLOSE: &str = "/v1/operations/{operation_id}/close";
/// `POST`: issue a capability for a resource.
pub const CAPABILITIES: &str = "/v1/capabilities";
/// `GET`: one capability.
pub const CAPABILITY: &str = "/v1/capabilities/{capability_id}";
/// `POST`: take a capability back.
pub const REVOKE: &str = "/v1/capabilities/{capability_id}/revoke";
/// `POST`: renew a lease.
pub const RENEW: &str = "/v1/executions/{execution_id}/renew";
/// `POST`: report an outcome.
pub const OUTCOME: &str = "/v1/executions/{execution_id}/outcome";
/// `POST`: give late evidence.
pub const EVIDENCE: &str = "/v1/executions/{execution_id}/evidence";
/// `POST`: resolve an unknown execution.
pub const RESOLVE: &str = "/v1/executions/{execution_id}/resolve";
/// `POST`: let an unknown execution wait for people, or no longer.
pub const ESCALATE: &str = "/v1/executions/{execution_id}/escalate";
/// `POST`: end an executor's lease.
pub const FENCE: &str = "/v1/executions/{execution_id}/fence";
/// `POST`: lease unknown executions.
pub const RECONCILE: &str = "/v1/reconciliations/lease";
/// `GET`: one register of authority.
pub const EPOCH: &str = "/v1/epochs/{scope}";
/// `POST`: raise a register of authority.
pub const BUMP: &str = "/v1/epochs/{scope}/bump";
/// `GET`: the record of evidence.
pub const EVIDENCE_RECORD: &str = "/v1/evidence";
/// `GET`: the stream of events.
pub const WATCH: &str = "/v1/watch";
/// `GET`: a tenant's namespaces.
pub const NAMESPACES: &str = "/v1/namespaces";
/// `GET`, `PUT`: one namespace.
pub const NAMESPACE: &str = "/v1/namespaces/{namespace}";
/// `GET`: all tenants.
pub const TENANTS: &str = "/v1/tenants";
/// `GET`, `PUT`: one tenant.
pub const TENANT: &str = "/v1/tenants/{tenant}";
/// `GET`: a tenant's tokens. `POST`: make one.
pub const TOKENS: &str = "/v1/tokens";
/// `POST`: revoke a token.
pub const REVOKE_TOKEN: &str = "/v1/tokens/{token_id}/revoke";
/// `GET`: the cluster's status.
pub const CLUSTER: &str = "/v1/cluster";
/// `GET`: the process runs.
pub const LIVEZ: &str = "/livez";
/// `GET`: the node can answer.
pub const READYZ: &str = "/readyz";
/// `GET`: what a problem's `type` refers to.
pub const ERROR_PAGE: &str = "/errors/{code}";
/// `GET`: the OpenAPI document.
pub const OPENAPI: &str = "/v1/openapi.json";

/// Every endpoint of the client listener.
pub fn all() -> impl Iterator<Item = &'static Endpoint> {
    [claims::TABLE, operations::TABLE, authority::TABLE, administration::TABLE, node::TABLE].into_iter().flatten()
}

const JSON: &str = "application/json";
const ETAG: (&str, &str) = ("ETag", "Changes whenever the operation does.");
const VERSION_TAG: (&str, &str) = ("ETag", "The version, to be sent with `If-Match`.");

const EXECUTION_ID: Parameter = Parameter::path("execution_id", "The execution, as its claim named it.");
const OPERATION_ID: Parameter = Parameter::path("operation_id", "The operation.");
const IDEMPOTENCY_KEY: Parameter =
    Parameter::header("Idempotency-Key", "The key, quoted or bare, instead of the body's `key`.");
const LIMIT: Parameter =
    Parameter { kind: "integer", ..Parameter::query("limit", "Items on the page, 1 to 500; 100 where absent.") };
const CURSOR: Parameter = Parameter::query("cursor", "`next_cursor` of the page before, with the same question.");
const LOCAL: Parameter = Parameter::query(
    "consistency",
    "`local`: this node's own applied state will do. It may be behind, and says so by its revision.",
);

const ACCEPTED: &[Answer] = &[Answer::new(200, "Accepted, now or by the same call before.", "Accepted")];

impl Parameter {
    const fn path(name: &'static str, description: &'static str) -> Parameter {
        Parameter { name, place: Place::Path, required: true, kind: "string", description }
    }

    const fn query(name: &'static str, description: &'static str) -> Parameter {
        Parameter { name, place: Place::Query, required: false, kind: "string", description }
    }

    const fn header(name: &'static str, description: &'static str) -> Parameter {
        Parameter { name, place: Place::Header, required: false, kind: "string", description }
    }

    const fn required(self) -> Parameter {
        Parameter { required: true, ..self }
    }
}

impl Answer {
    const fn new(status: u16, description: &'static str, schema: &'static str) -> Answer {
        Answer { status, description, schema: Some(schema), media_type: JSON, headers: &[] }
    }

    const fn empty(status: u16, description: &'static str) -> Answer {
        Answer { status, description, schema: None, media_type: JSON, headers: &[] }
    }

    const fn headers(self, headers: &'static [(&'static str, &'static str)]) -> Answer {
        Answer { headers, ..self }
    }

    const fn media_type(self, media_type: &'static str) -> Answer {
        Answer { media_type, ..self }
    }
}

impl Endpoint {
    const fn new(method: Method, path: &'static str, name: &'static str, summary: &'static str) -> Endpoint {
        Endpoint { method, path, name, summary, roles: &[], body: None, parameters: &[], answers: &[], problems: &[] }
    }

    const fn get(path: &'static str, name: &'static str, summary: &'static str) -> Endpoint {
        Endpoint::new(Method::Get, path, name, summary)
    }

    const fn post(path: &'static str, name: &'static str, summary: &'static str) -> Endpoint {
        Endpoint::new(Method::Post, path, name, summary)
    }

    const fn put(path: &'static str, name: &'static str, summary: &'static str) -> Endpoint {
        Endpoint::new(Method::Put, path, name, summary)
    }

    const fn roles(self, roles: &'static [&'static str]) -> Endpoint {
        Endpoint { roles, ..self }
    }

    const fn body(self, schema: &'static str) -> Endpoint {
        Endpoint { body: Some(schema), ..self }
    }

    const fn parameters(self, parameters: &'static [Parameter]) -> Endpoint {
        Endpoint { parameters, ..self }
    }

    const fn answers(self, answers: &'static [Answer]) -> Endpoint {
        Endpoint { answers, ..self }
    }

    const fn problems(self, problems: &'static [Code]) -> Endpoint {
        Endpoint { problems, ..self }
    }

    /// Whether a call of it could change something.
    #[must_use]
    pub fn mutates(&self) -> bool {
        self.method != Method::Get && self.path != LOOKUP
    }

    /// Every problem that the endpoint answers, its own and those of every call like it, in the order of [`Code::ALL`].
    #[must_use]
    pub fn all_problems(&self) -> Vec<Code> {
        let mut codes = vec![Code::HeadersTooLarge, Code::LengthRequired];
        if !self.roles.is_empty() {
            codes.extend([Code::AuthInvalid, Code::AuthForbidden, Code::RateLimited]);
        }
        if !self.roles.is_empty() && self.path != CLUSTER {
            codes.extend([Code::RequestInvalid, Code::StoreOverloaded, Code::StoreUnavailable]);
        }
        if self.body.is_some() {
            codes.extend([Code::RequestTooLarge, Code::UnsupportedMediaType, Code::RequestTimeout]);
        }
        if self.mutates() {
            codes.extend([Code::StoreOutcomeUnknown, Code::StoreFull]);
        }
        codes.extend(self.problems);
        Code::ALL.iter().copied().filter(|code| codes.contains(code)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tenant::Role;

    #[test]
    fn each_endpoint_is_whole() {
        let mut names = BTreeSet::new();
        for endpoint in all() {
            let name = endpoint.name;
            assert!(names.insert(name), "{name} twice");
            assert!(!endpoint.answers.is_empty(), "{name}");
            for role in endpoint.roles {
                assert!(role.parse::<Role>().is_ok(), "{name}: {role}");
            }
            let braces: BTreeSet<&str> =
                endpoint.path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
            let listed: BTreeSet<&str> = endpoint
                .parameters
                .iter()
                .filter(|parameter| parameter.place == Place::Path)
                .map(|parameter| parameter.name)
                .collect();
            assert_eq!(braces, listed, "{name}");
            assert_eq!(endpoint.method != Method::Get, endpoint.body.is_some(), "{name}");
        }
    }
}
