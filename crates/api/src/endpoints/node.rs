//! What a node says about itself and its cluster, and the documents that it carries.

use super::{Answer, CLUSTER, ERROR_PAGE, Endpoint, LIVEZ, OPENAPI, Parameter, READYZ};
use crate::codes::Code;

pub(super) const TABLE: &[Endpoint] = &[
    Endpoint::get(CLUSTER, "get_cluster", "The members, as the answering node sees them.")
        .roles(&["read", "operate", "admin"])
        .answers(&[Answer::new(200, "The cluster.", "ClusterView")]),
    Endpoint::get(LIVEZ, "livez", "The process runs.").answers(&[Answer::new(200, "It runs.", "Liveness")]),
    Endpoint::get(READYZ, "readyz", "Whether this node can answer: it reaches a quorum and is not draining.")
        .parameters(&[Parameter::query("verbose", "Lists every check.")])
        .answers(&[Answer::new(200, "It can.", "Readiness"), Answer::new(503, "It cannot.", "Readiness")]),
    Endpoint::get(ERROR_PAGE, "error_page", "What a problem code means, as Markdown.")
        .parameters(&[Parameter::path("code", "The code.")])
        .answers(&[Answer::empty(200, "The page.")])
        .problems(&[Code::NotFound]),
    Endpoint::get(OPENAPI, "openapi", "This document.").answers(&[Answer::empty(200, "OpenAPI 3.1.")]),
];
