//! The table of endpoints: method, path, role, parameters, answers and problems of each.
//! The OpenAPI document is made from it, and the server mounts its routes by these paths.

use crate::codes::Code;

/// The methods in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Changes something, or reads by something that must not be in a path.
    Post,
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
/// `GET`: one operation.
pub const OPERATION: &str = "/v1/operations/{operation_id}";
/// `POST`: one operation, by key.
pub const LOOKUP: &str = "/v1/operations/lookup";
/// `POST`: renew a lease.
pub const RENEW: &str = "/v1/executions/{execution_id}/renew";
/// `POST`: report an outcome.
pub const OUTCOME: &str = "/v1/executions/{execution_id}/outcome";
/// `POST`: give late evidence.
pub const EVIDENCE: &str = "/v1/executions/{execution_id}/evidence";
/// `POST`: resolve an unknown execution.
pub const RESOLVE: &str = "/v1/executions/{execution_id}/resolve";
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

const EXECUTION_ID: Parameter =
    Parameter { name: "execution_id", place: Place::Path, description: "The execution, as its claim named it." };

const ACCEPTED: &[Answer] = &[Answer {
    status: 200,
    description: "Accepted, now or by the same call before.",
    schema: Some("Accepted"),
    headers: &[],
}];

const ETAG: (&str, &str) = ("ETag", "Changes whenever the operation does.");

/// Every endpoint of the client listener.
pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        method: Method::Post,
        path: CLAIMS,
        name: "claim",
        summary: "Claim a key: elect one executor, join one at work, or get the stored outcome.",
        roles: &["claim"],
        body: Some("ClaimRequest"),
        parameters: &[Parameter {
            name: "Idempotency-Key",
            place: Place::Header,
            description: "The key, quoted or bare, instead of the body's `key`.",
        }],
        answers: &[
            Answer {
                status: 201,
                description: "This caller, and nobody else, executes. The same `claim_id` again gets the same grant \
                              until it is renewed or reported.",
                schema: Some("ClaimAnswer"),
                headers: &[],
            },
            Answer {
                status: 202,
                description: "Another executor is at work. Not a success.",
                schema: Some("ClaimAnswer"),
                headers: &[("Location", "The operation's status."), ("Retry-After", "Seconds until asking again.")],
            },
            Answer {
                status: 200,
                description: "Finished before; the stored outcome.",
                schema: Some("ClaimAnswer"),
                headers: &[("Idempotency-Replayed", "`true`.")],
            },
        ],
        problems: &[
            Code::NotFound,
            Code::ClaimIdReused,
            Code::KeyDigestMismatch,
            Code::OperationExecuting,
            Code::OperationOutcomeUnknown,
            Code::OperationQuarantined,
            Code::AttemptMismatch,
            Code::LeaseLost,
        ],
    },
    Endpoint {
        method: Method::Get,
        path: OPERATION,
        name: "get_operation",
        summary: "An operation's settled state; waits for a change where asked.",
        roles: &["read", "claim"],
        body: None,
        parameters: &[
            Parameter { name: "operation_id", place: Place::Path, description: "The operation." },
            Parameter {
                name: "Prefer",
                place: Place::Header,
                description: "`wait=N`: with `If-None-Match`, up to N seconds (60 at most) for a change.",
            },
            Parameter { name: "If-None-Match", place: Place::Header, description: "An `ETag` of before." },
        ],
        answers: &[
            Answer { status: 200, description: "The operation.", schema: Some("OperationView"), headers: &[ETAG] },
            Answer { status: 304, description: "Nothing changed.", schema: None, headers: &[ETAG] },
        ],
        problems: &[Code::NotFound],
    },
    Endpoint {
        method: Method::Post,
        path: LOOKUP,
        name: "lookup_operation",
        summary: "An operation's settled state, by its key, which is in no access log this way.",
        roles: &["read", "claim"],
        body: Some("LookupRequest"),
        parameters: &[],
        answers: &[Answer {
            status: 200,
            description: "The operation.",
            schema: Some("OperationView"),
            headers: &[ETAG],
        }],
        problems: &[Code::NotFound],
    },
    Endpoint {
        method: Method::Post,
        path: RENEW,
        name: "renew",
        summary: "Go on holding a lease.",
        roles: &["claim"],
        body: Some("RenewRequest"),
        parameters: &[EXECUTION_ID],
        answers: &[Answer { status: 200, description: "The lease goes on.", schema: Some("Renewed"), headers: &[] }],
        problems: &[Code::NotFound, Code::LeaseStaleEpoch, Code::LeaseLost, Code::OutcomeConflict],
    },
    Endpoint {
        method: Method::Post,
        path: OUTCOME,
        name: "report_outcome",
        summary: "Say what an execution came to, as its owner.",
        roles: &["claim"],
        body: Some("OutcomeRequest"),
        parameters: &[EXECUTION_ID],
        answers: ACCEPTED,
        problems: &[Code::NotFound, Code::LeaseStaleEpoch, Code::LeaseLost, Code::OutcomeConflict],
    },
    Endpoint {
        method: Method::Post,
        path: EVIDENCE,
        name: "give_evidence",
        summary: "Say what an execution came to, as the one who lost it.",
        roles: &["claim"],
        body: Some("EvidenceRequest"),
        parameters: &[EXECUTION_ID],
        answers: ACCEPTED,
        problems: &[Code::NotFound, Code::OperationExecuting, Code::OutcomeConflict],
    },
    Endpoint {
        method: Method::Post,
        path: RESOLVE,
        name: "resolve",
        summary: "Say what an unknown execution came to, with proof.",
        roles: &["reconcile", "operate"],
        body: Some("ResolveRequest"),
        parameters: &[EXECUTION_ID],
        answers: ACCEPTED,
        problems: &[Code::NotFound, Code::LeaseStaleEpoch, Code::OperationExecuting, Code::OutcomeConflict],
    },
    Endpoint {
        method: Method::Get,
        path: CLUSTER,
        name: "get_cluster",
        summary: "The members, as the answering node sees them.",
        roles: &["read", "operate", "admin"],
        body: None,
        parameters: &[],
        answers: &[Answer { status: 200, description: "The cluster.", schema: Some("ClusterView"), headers: &[] }],
        problems: &[],
    },
    Endpoint {
        method: Method::Get,
        path: LIVEZ,
        name: "livez",
        summary: "The process runs.",
        roles: &[],
        body: None,
        parameters: &[],
        answers: &[Answer { status: 200, description: "It runs.", schema: Some("Liveness"), headers: &[] }],
        problems: &[],
    },
    Endpoint {
        method: Method::Get,
        path: READYZ,
        name: "readyz",
        summary: "Whether this node can answer: it reaches a quorum and is not draining.",
        roles: &[],
        body: None,
        parameters: &[Parameter { name: "verbose", place: Place::Query, description: "Lists every check." }],
        answers: &[
            Answer { status: 200, description: "It can.", schema: Some("Readiness"), headers: &[] },
            Answer { status: 503, description: "It cannot.", schema: Some("Readiness"), headers: &[] },
        ],
        problems: &[],
    },
    Endpoint {
        method: Method::Get,
        path: ERROR_PAGE,
        name: "error_page",
        summary: "What a problem code means, as Markdown.",
        roles: &[],
        body: None,
        parameters: &[Parameter { name: "code", place: Place::Path, description: "The code." }],
        answers: &[Answer { status: 200, description: "The page.", schema: None, headers: &[] }],
        problems: &[Code::NotFound],
    },
    Endpoint {
        method: Method::Get,
        path: OPENAPI,
        name: "openapi",
        summary: "This document.",
        roles: &[],
        body: None,
        parameters: &[],
        answers: &[Answer { status: 200, description: "OpenAPI 3.1.", schema: None, headers: &[] }],
        problems: &[],
    },
];

impl Endpoint {
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
        if self.method == Method::Post && self.path != LOOKUP {
            codes.extend([Code::StoreOutcomeUnknown, Code::StoreFull]);
        }
        codes.extend(self.problems);
        Code::ALL.iter().copied().filter(|code| codes.contains(code)).collect()
    }
}
