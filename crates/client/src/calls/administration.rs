//! Administration: namespaces, tenants and tokens; and what nodes say about themselves.
//!
//! A policy is written under a precondition. Where an attempt was lost, a failed precondition may be its own doing, and
//! is [`Outcome::Unknown`]: reading what stands tells.

use std::time::Duration;

use hapax_api::cluster::{ClusterView, Readiness};
use hapax_api::endpoints;
use hapax_api::headers::{Expected, version_tag};
use hapax_api::namespace::{NamespacePage, NamespaceView, PageQuery, PutNamespaceRequest, TenantQuery};
use hapax_api::tenant::{
    CreateTokenRequest, PutTenantRequest, RevokeTokenRequest, TenantPage, TenantView, TokenCreated, TokenPage,
    TokenView,
};
use hapax_api::text::{Namespace, Tenant, TokenId};
use http::Method;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use serde::Serialize;

use crate::client::{Client, path, post, with_query};
use crate::outcome::Outcome;
use crate::transport::{Call, Identity};

fn put(path: String, body: &impl Serialize, expected: Expected) -> Result<Call, serde_json::Error> {
    let condition = match expected {
        Expected::Absent => (IF_NONE_MATCH, "*".to_owned()),
        Expected::Version(version) => (IF_MATCH, version_tag(version)),
    };
    let call = post(path, body, Duration::ZERO)?;
    Ok(Call { method: Method::PUT, headers: vec![condition], ..call })
}

impl Client {
    /// `GET /v1/namespaces/{namespace}`.
    pub async fn namespace(&self, namespace: &Namespace, of: &TenantQuery) -> Outcome<NamespaceView> {
        let path = path(endpoints::NAMESPACE, "namespace", namespace.as_str());
        self.read(with_query(&path, &of.to_text())).await
    }

    /// `PUT /v1/namespaces/{namespace}`: the whole policy, where what stands is as expected.
    pub async fn put_namespace(
        &self,
        namespace: &Namespace,
        of: &TenantQuery,
        expected: Expected,
        request: &PutNamespaceRequest,
    ) -> Outcome<NamespaceView> {
        let path = path(endpoints::NAMESPACE, "namespace", namespace.as_str());
        self.call(put(with_query(&path, &of.to_text()), request, expected)).await
    }

    /// `GET /v1/namespaces`: one page, by name.
    pub async fn namespaces(&self, query: &PageQuery) -> Outcome<NamespacePage> {
        self.read(with_query(endpoints::NAMESPACES, &query.to_text())).await
    }

    /// `GET /v1/tenants/{tenant}`.
    pub async fn tenant(&self, tenant: &Tenant) -> Outcome<TenantView> {
        self.read(path(endpoints::TENANT, "tenant", tenant.as_str())).await
    }

    /// `PUT /v1/tenants/{tenant}`: the whole tenant, where what stands is as expected.
    pub async fn put_tenant(
        &self,
        tenant: &Tenant,
        expected: Expected,
        request: &PutTenantRequest,
    ) -> Outcome<TenantView> {
        self.call(put(path(endpoints::TENANT, "tenant", tenant.as_str()), request, expected)).await
    }

    /// `GET /v1/tenants`: one page, by name.
    pub async fn tenants(&self, query: &PageQuery) -> Outcome<TenantPage> {
        self.read(with_query(endpoints::TENANTS, &query.to_text())).await
    }

    /// `GET /v1/tokens`: one page, by id.
    pub async fn tokens(&self, query: &PageQuery) -> Outcome<TokenPage> {
        self.read(with_query(endpoints::TOKENS, &query.to_text())).await
    }

    /// `POST /v1/tokens`. It has no identity of its own, and is not sent again once it may have been applied. After
    /// [`Outcome::Unknown`] the list may show a token whose secret nobody has: it is to be revoked.
    pub async fn create_token(&self, request: &CreateTokenRequest) -> Outcome<TokenCreated> {
        let call = post(endpoints::TOKENS.to_owned(), request, Duration::ZERO);
        self.call(call.map(|call| Call { identity: Identity::None, ..call })).await
    }

    /// `POST /v1/tokens/{id}/revoke`.
    pub async fn revoke_token(&self, id: &TokenId) -> Outcome<TokenView> {
        self.change(path(endpoints::REVOKE_TOKEN, "token_id", id.as_str()), &RevokeTokenRequest {}).await
    }

    /// `GET /v1/cluster`.
    pub async fn cluster(&self) -> Outcome<ClusterView> {
        self.read(endpoints::CLUSTER.to_owned()).await
    }

    /// `GET /readyz`: whether the node can answer. A node that cannot is [`Outcome::Unavailable`].
    pub async fn readiness(&self) -> Outcome<Readiness> {
        self.read(endpoints::READYZ.to_owned()).await
    }
}
