//! Administration: namespaces, tenants and tokens.

use super::{
    Answer, CURSOR, Endpoint, LIMIT, NAMESPACE, NAMESPACES, Parameter, REVOKE_TOKEN, TENANT, TENANTS, TOKENS,
    VERSION_TAG,
};
use crate::codes::Code;

const NAMESPACE_NAME: Parameter = Parameter::path("namespace", "The namespace.");
const TENANT_NAME: Parameter = Parameter::path("tenant", "The tenant.");
const OF_TENANT: Parameter =
    Parameter::query("tenant", "The tenant, where that is not the caller's own; for administrators of all tenants.");
const IF_MATCH: Parameter = Parameter::header("If-Match", "The `ETag` of what is replaced.");
const IF_NONE_MATCH: Parameter = Parameter::header("If-None-Match", "`*` where it is to be made.");

const PUT_PROBLEMS: &[Code] =
    &[Code::NotFound, Code::PreconditionFailed, Code::PreconditionRequired, Code::PolicyFixed, Code::QuotaExceeded];

pub(super) const TABLE: &[Endpoint] = &[
    Endpoint::get(NAMESPACES, "list_namespaces", "A tenant's namespaces, by name.")
        .roles(&["read", "operate", "admin"])
        .parameters(&[OF_TENANT, LIMIT, CURSOR])
        .answers(&[Answer::new(200, "A page.", "NamespacePage")])
        .problems(&[Code::NotFound]),
    Endpoint::get(NAMESPACE, "get_namespace", "A namespace's policy, limits, usage and retention floors.")
        .roles(&["claim", "issue", "reconcile", "read", "operate", "admin"])
        .parameters(&[NAMESPACE_NAME, OF_TENANT])
        .answers(&[Answer::new(200, "The namespace.", "NamespaceView").headers(&[VERSION_TAG])])
        .problems(&[Code::NotFound]),
    Endpoint::put(NAMESPACE, "put_namespace", "Replace a namespace's policy as a whole, or make the namespace.")
        .roles(&["admin"])
        .body("PutNamespaceRequest")
        .parameters(&[NAMESPACE_NAME, OF_TENANT, IF_MATCH, IF_NONE_MATCH])
        .answers(&[
            Answer::new(200, "The policy is replaced.", "NamespaceView").headers(&[VERSION_TAG]),
            Answer::new(201, "The namespace is made.", "NamespaceView").headers(&[VERSION_TAG]),
        ])
        .problems(PUT_PROBLEMS),
    Endpoint::get(TENANTS, "list_tenants", "All tenants, by name; for administrators of all tenants.")
        .roles(&["admin"])
        .parameters(&[LIMIT, CURSOR])
        .answers(&[Answer::new(200, "A page.", "TenantPage")]),
    Endpoint::get(TENANT, "get_tenant", "A tenant.")
        .roles(&["admin"])
        .parameters(&[TENANT_NAME])
        .answers(&[Answer::new(200, "The tenant.", "TenantView").headers(&[VERSION_TAG])])
        .problems(&[Code::NotFound]),
    Endpoint::put(
        TENANT,
        "put_tenant",
        "Replace a tenant as a whole, or make it; for administrators of all tenants.",
    )
    .roles(&["admin"])
    .body("PutTenantRequest")
    .parameters(&[TENANT_NAME, IF_MATCH, IF_NONE_MATCH])
    .answers(&[
        Answer::new(200, "The tenant is replaced.", "TenantView").headers(&[VERSION_TAG]),
        Answer::new(201, "The tenant is made.", "TenantView").headers(&[VERSION_TAG]),
    ])
    .problems(PUT_PROBLEMS),
    Endpoint::get(TOKENS, "list_tokens", "A tenant's tokens, by id, the revoked ones included.")
        .roles(&["admin"])
        .parameters(&[OF_TENANT, LIMIT, CURSOR])
        .answers(&[Answer::new(200, "A page.", "TokenPage")])
        .problems(&[Code::NotFound]),
    Endpoint::post(TOKENS, "create_token", "Make a token. Its secret is in this answer and nowhere else.")
        .roles(&["admin"])
        .body("CreateTokenRequest")
        .answers(&[Answer::new(201, "The token.", "TokenCreated")])
        .problems(&[Code::NotFound, Code::QuotaExceeded]),
    Endpoint::post(REVOKE_TOKEN, "revoke_token", "Revoke a token for good.")
        .roles(&["admin"])
        .body("RevokeTokenRequest")
        .parameters(&[Parameter::path("token_id", "The token's public part.")])
        .answers(&[Answer::new(200, "It is revoked, now or before.", "TokenView")])
        .problems(&[Code::NotFound]),
];
