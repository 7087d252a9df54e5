//! Who is calling: a bearer token becomes a caller with roles, before anything else of the request is looked at.
//! Every reason for refusing a credential is the same answer: it must not tell which part was right.
//! The roles that a call needs are those of the table of endpoints, which the documentation shows too.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, MatchedPath};
use hapax_api::{Code, endpoints};
use hapax_auth::{Decision, Presented, Principal, Role, Roles, TokenRecord};
use hapax_machine::ids::{ClientId, NamespaceName, TenantId};
use hapax_machine::tenant;
use hapax_machine::{View as _, command};
use http::Method;
use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::problem::Refusal;
use crate::state::App;

/// Tokens of this node's configuration, beside the replicated ones.
#[derive(Debug, Default)]
pub(crate) struct LocalTokens(HashMap<String, TokenRecord>);

impl LocalTokens {
    pub(crate) fn new(tokens: impl IntoIterator<Item = TokenRecord>) -> Self {
        Self(tokens.into_iter().map(|token| (token.id.clone(), token)).collect())
    }
}

/// An authenticated caller.
#[derive(Debug)]
pub(crate) struct Caller {
    principal: Principal,
    machine: command::Caller,
    /// The public part of the credential.
    token_id: String,
}

impl Caller {
    /// The caller as the core knows it.
    pub(crate) fn machine(&self) -> &command::Caller {
        &self.machine
    }

    pub(crate) fn into_machine(self) -> command::Caller {
        self.machine
    }

    /// Refuses a caller with none of `roles`.
    pub(crate) fn require_any(&self, roles: &[Role]) -> Result<(), Refusal> {
        if self.principal.authorise(None, roles) == Decision::Allowed {
            return Ok(());
        }
        metrics::counter!("hapax_auth_rejections_total", "reason" => "role").increment(1);
        Err(Refusal::new(Code::AuthForbidden))
    }

    /// Looks again at the credential of a call that goes on for long.
    pub(crate) fn is_still_good(&self, app: &App) -> Result<(), Refusal> {
        let id = &self.token_id;
        let expired = |at: Option<u64>| at.is_some_and(|at| at <= now_ms());
        let replicated = app.node.token(id).map(|token| is_good(app, &token) && !expired(token.expires_at_ms));
        let local = || app.tokens.0.get(id).is_some_and(|token| !expired(token.expires_at_ms));
        if replicated.unwrap_or_else(local) { Ok(()) } else { Err(rejected("unknown")) }
    }

    /// Whether the credential is good for all of `names`; none of them means all that there are.
    pub(crate) fn may_hand_on(&self, names: &[NamespaceName]) -> bool {
        let all = self.machine.namespaces.is_empty();
        all || (!names.is_empty() && names.iter().all(|name| self.machine.may_use(name)))
    }

    /// Refuses a namespace that the credential is not good for, before it is looked up: the answer does not depend
    /// on whether there is one.
    pub(crate) fn require_namespace(&self, namespace: &NamespaceName) -> Result<(), Refusal> {
        if self.machine.may_use(namespace) {
            return Ok(());
        }
        metrics::counter!("hapax_auth_rejections_total", "reason" => "namespace").increment(1);
        Err(Refusal::new(Code::AuthForbidden))
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let value = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let presented = value.and_then(Presented::from_header).ok_or_else(|| rejected("malformed"))?;
        let replicated = app.node.token(presented.id()).filter(|token| is_good(app, token)).map(record);
        if replicated.is_none() && !app.node.is_bootstrapped() && !app.tokens.0.contains_key(presented.id()) {
            // This node has not learnt its cluster's tokens yet: it cannot say that this one is wrong.
            return Err(Refusal::new(Code::StoreUnavailable));
        }
        let stored = replicated.as_ref().or_else(|| app.tokens.0.get(presented.id()));
        let principal = presented.verify(stored, now_ms()).ok_or_else(|| rejected("unknown"))?;
        pace(app, &principal)?;
        let machine = command::Caller {
            tenant: TenantId::new(principal.tenant.as_str()),
            client: ClientId::new(principal.client.as_str()),
            namespaces: principal.namespaces.iter().map(|name| NamespaceName::new(name.as_str())).collect(),
        };
        let caller = Self { principal, machine, token_id: presented.id().to_owned() };
        caller.require_any(roles_of(parts))?;
        Ok(caller)
    }
}

/// The roles of which a call of this method and path needs one. A path that the table does not name is open to nobody.
fn roles_of(parts: &Parts) -> &'static [Role] {
    type ByMethod = Vec<(&'static str, Vec<Role>)>;
    static BY_PATH: LazyLock<HashMap<&'static str, ByMethod>> = LazyLock::new(|| {
        let mut table: HashMap<_, ByMethod> = HashMap::new();
        for endpoint in endpoints::all() {
            let roles = endpoint.roles.iter().filter_map(|role| Role::parse(role)).collect();
            table.entry(endpoint.path).or_default().push((endpoint.method.as_str(), roles));
        }
        table
    });
    let path = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let method = if parts.method == Method::HEAD { "GET" } else { parts.method.as_str() };
    let row = BY_PATH.get(path).and_then(|methods| methods.iter().find(|(name, _)| *name == method));
    row.map_or(&[], |(_, roles)| roles.as_slice())
}

/// Counts the call against its tenant's pace and its client's, before anything is looked up for it.
fn pace(app: &App, principal: &Principal) -> Result<(), Refusal> {
    let (tenant, client) = (&principal.tenant, &principal.client);
    let of_tenant = stored_tenant(app, &TenantId::new(tenant.as_str())).and_then(|tenant| tenant.requests_per_second);
    if let Some(rate) = of_tenant {
        app.pace.take(("tenant", tenant), rate)?;
    }
    if app.client_requests_per_second > 0 {
        app.pace.take(("client", tenant, client), app.client_requests_per_second)?;
    }
    Ok(())
}

/// A tenant, from memory. A node that cannot read is about to stop, and lets nobody in by that.
fn stored_tenant(app: &App, id: &TenantId) -> Option<tenant::TenantRecord> {
    app.node.local().tenant(id).ok().flatten()
}

/// Whether neither the token nor its tenant was taken out of service.
fn is_good(app: &App, token: &tenant::TokenRecord) -> bool {
    let disabled = stored_tenant(app, &token.tenant).is_some_and(|tenant| tenant.disabled);
    token.revoked_at.is_none() && !disabled
}

/// A replicated token as the credential layer knows it.
fn record(stored: tenant::TokenRecord) -> TokenRecord {
    TokenRecord {
        id: stored.id,
        secret_hash: stored.secret_hash,
        tenant: stored.tenant.as_str().to_owned(),
        client: stored.client.as_str().to_owned(),
        namespaces: stored.namespaces.iter().map(|name| name.as_str().to_owned()).collect(),
        roles: Roles::from_bits(stored.roles),
        expires_at_ms: stored.expires_at_ms,
    }
}

fn rejected(reason: &'static str) -> Refusal {
    metrics::counter!("hapax_auth_rejections_total", "reason" => reason).increment(1);
    Refusal::new(Code::AuthInvalid)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
