//! `namespace`, `tenant`, `token`: what administrators change, each write under the version that was read.

use clap::{Args, Subcommand};
use hapax_api::headers::Expected;
use hapax_api::namespace::{NamespacePolicy, NamespaceView, PageQuery, PutNamespaceRequest, TenantQuery};
use hapax_api::tenant::{CreateTokenRequest, PutTenantRequest};

use super::operations::PageArgs;
use super::{page, shown};
use crate::args::Call;
use crate::calls::{option, parsed, run, word};
use crate::exit::Failure;
use crate::output;

/// The parts of a policy; what is not given stays, or for a new namespace is as documented.
#[derive(Debug, Clone, Args)]
pub(crate) struct PolicyArgs {
    /// Make it; it must not exist.
    #[arg(long)]
    create: bool,
    /// namespace or client; only with --create.
    #[arg(long, requires = "create")]
    scope: Option<String>,
    /// Names of request fields that never enter the digest, separated by commas; only with --create.
    #[arg(long, requires = "create", value_delimiter = ',')]
    transport_fields: Option<Vec<String>>,
    /// Number of partitions; only with --create.
    #[arg(long, requires = "create")]
    partitions: Option<u32>,
    /// unknown or takeover.
    #[arg(long)]
    on_lapse: Option<String>,
    /// automatic or explicit.
    #[arg(long)]
    attempts: Option<String>,
    /// hapax or ietf.
    #[arg(long)]
    conflict_style: Option<String>,
    /// inline or capability.
    #[arg(long)]
    authority: Option<String>,
    /// For so long results are kept, in milliseconds.
    #[arg(long)]
    body_ms: Option<u64>,
    /// For so long identity is kept, in milliseconds.
    #[arg(long)]
    identity_ms: Option<u64>,
    /// new, `reject_older` or durable.
    #[arg(long)]
    expired_keys: Option<String>,
    /// Reconciliation leases granted a minute.
    #[arg(long)]
    reconcile_per_minute: Option<u32>,
    /// Open operations, at most; 0 for no bound.
    #[arg(long)]
    open_operations: Option<u64>,
    /// Calls a second of each client, on each node; 0 for no bound.
    #[arg(long)]
    requests_per_second: Option<u32>,
    /// Claims of one key a second of each client, on each node; 0 for no bound.
    #[arg(long)]
    key_claims_per_second: Option<u32>,
}

/// `hapax namespace`
#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceVerb {
    /// A policy, the limits, what is in use, and the retention floors.
    Get {
        #[command(flatten)]
        call: Call,
        /// The namespace.
        namespace: String,
        /// Another tenant's; for administrators of all tenants.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Change what is given of a policy.
    Set {
        #[command(flatten)]
        call: Call,
        /// The namespace.
        namespace: String,
        /// Another tenant's; for administrators of all tenants.
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        policy: Box<PolicyArgs>,
    },
    /// All namespaces.
    List {
        #[command(flatten)]
        call: Call,
        /// Another tenant's; for administrators of all tenants.
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
}

/// `hapax tenant`
#[derive(Debug, Subcommand)]
pub(crate) enum TenantVerb {
    /// A tenant.
    Get {
        #[command(flatten)]
        call: Call,
        /// The tenant.
        tenant: String,
    },
    /// Change what is given of a tenant.
    Set {
        #[command(flatten)]
        call: Call,
        /// The tenant.
        tenant: String,
        /// Make it; it must not exist.
        #[arg(long)]
        create: bool,
        /// Whether its credentials are refused.
        #[arg(long)]
        disabled: Option<bool>,
        /// Requests a second, for each node; 0 for no bound.
        #[arg(long)]
        requests_per_second: Option<u32>,
    },
    /// All tenants that the caller administers.
    List {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        page: PageArgs,
    },
}

/// `hapax token`
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a token; it is shown once, and kept as a hash.
    Create {
        #[command(flatten)]
        call: Call,
        /// The stable client that it stands for.
        client: String,
        /// What it may be used for, separated by commas: claim, issue, reconcile, read, operate, admin.
        #[arg(long, value_delimiter = ',', required = true)]
        roles: Vec<String>,
        /// The namespaces that it is good for, separated by commas; all where none is given.
        #[arg(long, value_delimiter = ',')]
        namespaces: Vec<String>,
        /// Another tenant's; for administrators of all tenants.
        #[arg(long)]
        tenant: Option<String>,
        /// When it ends.
        #[arg(long)]
        expires_at: Option<String>,
    },
    /// All tokens, without their secrets.
    List {
        #[command(flatten)]
        call: Call,
        /// Another tenant's; for administrators of all tenants.
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Revoke a token, for good.
    Revoke {
        #[command(flatten)]
        call: Call,
        /// Its public part.
        token_id: String,
    },
}

fn words<T: std::str::FromStr<Err = hapax_api::text::Malformed>>(
    what: &str,
    given: &[String],
) -> anyhow::Result<Vec<T>> {
    given.iter().map(|text| parsed(what, text)).collect()
}

pub(crate) fn namespace(verb: &NamespaceVerb) -> anyhow::Result<()> {
    match verb {
        NamespaceVerb::Get { call, namespace, tenant } => {
            let name = parsed("the namespace", namespace)?;
            let of = TenantQuery { tenant: option("--tenant", tenant.as_ref())? };
            output::answer(call.output, &run(call, async |client| client.namespace(&name, &of).await)?)
        }
        NamespaceVerb::Set { call, namespace, tenant, policy } => {
            let name = parsed("the namespace", namespace)?;
            let of = TenantQuery { tenant: option("--tenant", tenant.as_ref())? };
            let (stands, expected) = if policy.create {
                (NamespacePolicy::default(), Expected::Absent)
            } else {
                let NamespaceView { policy, version, .. } =
                    run(call, async |client| client.namespace(&name, &of).await)?;
                (policy, Expected::Version(version))
            };
            let request = PutNamespaceRequest::from(policy.changed(stands)?);
            let written =
                async |client: &hapax_client::Client| client.put_namespace(&name, &of, expected, &request).await;
            output::answer(call.output, &run(call, written)?)
        }
        NamespaceVerb::List { call, tenant, page: range } => {
            let query = PageQuery {
                tenant: option("--tenant", tenant.as_ref())?,
                limit: range.limit,
                cursor: option("--cursor", range.cursor.as_ref())?,
            };
            let found = run(call, async |client| client.namespaces(&query).await)?;
            let rows = found.namespaces.iter().map(|view| {
                [
                    view.namespace.to_string(),
                    word(&view.policy.on_lapse),
                    word(&view.policy.authority),
                    word(&view.policy.retention.expired_keys),
                    view.usage.open_operations.to_string(),
                    view.usage.unknown.to_string(),
                ]
            });
            let headings = ["NAMESPACE", "ON LAPSE", "AUTHORITY", "EXPIRED KEYS", "OPEN", "UNKNOWN"];
            page(call.output, &found, headings, rows.collect(), found.next_cursor.as_ref().map(ToString::to_string))
        }
    }
}

impl PolicyArgs {
    /// `stands` with what was given in its place.
    fn changed(&self, mut stands: NamespacePolicy) -> anyhow::Result<NamespacePolicy> {
        fn set<T: std::str::FromStr<Err = hapax_api::text::Malformed>>(
            what: &str,
            field: &mut T,
            given: Option<&String>,
        ) -> anyhow::Result<()> {
            if let Some(text) = given {
                *field = parsed(what, text)?;
            }
            Ok(())
        }
        set("--scope", &mut stands.scope, self.scope.as_ref())?;
        set("--on-lapse", &mut stands.on_lapse, self.on_lapse.as_ref())?;
        set("--attempts", &mut stands.attempts, self.attempts.as_ref())?;
        set("--conflict-style", &mut stands.conflict_style, self.conflict_style.as_ref())?;
        set("--authority", &mut stands.authority, self.authority.as_ref())?;
        set("--expired-keys", &mut stands.retention.expired_keys, self.expired_keys.as_ref())?;
        if let Some(fields) = &self.transport_fields {
            stands.transport_fields = words("--transport-fields", fields)?;
        }
        stands.partitions = self.partitions.unwrap_or(stands.partitions);
        stands.retention.body_ms = self.body_ms.unwrap_or(stands.retention.body_ms);
        stands.retention.identity_ms = self.identity_ms.unwrap_or(stands.retention.identity_ms);
        stands.reconcile_per_minute = self.reconcile_per_minute.unwrap_or(stands.reconcile_per_minute);
        let bound = |given: Option<u32>, stands: Option<u32>| given.map_or(stands, |rate| (rate > 0).then_some(rate));
        let quota = &mut stands.quota;
        quota.requests_per_second = bound(self.requests_per_second, quota.requests_per_second);
        quota.key_claims_per_second = bound(self.key_claims_per_second, quota.key_claims_per_second);
        if let Some(open) = self.open_operations {
            quota.open_operations = (open > 0).then_some(open);
        }
        Ok(stands)
    }
}

pub(crate) fn tenant(verb: &TenantVerb) -> anyhow::Result<()> {
    match verb {
        TenantVerb::Get { call, tenant } => {
            let name = parsed("the tenant", tenant)?;
            output::answer(call.output, &run(call, async |client| client.tenant(&name).await)?)
        }
        TenantVerb::Set { call, tenant, create, disabled, requests_per_second } => {
            let name = parsed("the tenant", tenant)?;
            let (mut request, mut expected) = (PutTenantRequest::default(), Expected::Absent);
            if !create {
                let stands = run(call, async |client| client.tenant(&name).await)?;
                request.disabled = Some(stands.disabled);
                request.requests_per_second = stands.requests_per_second;
                expected = Expected::Version(stands.version);
            }
            request.disabled = disabled.or(request.disabled);
            if let Some(rate) = *requests_per_second {
                request.requests_per_second = (rate > 0).then_some(rate);
            }
            let written = async |client: &hapax_client::Client| client.put_tenant(&name, expected, &request).await;
            output::answer(call.output, &run(call, written)?)
        }
        TenantVerb::List { call, page: range } => {
            let cursor = option("--cursor", range.cursor.as_ref())?;
            let query = PageQuery { tenant: None, limit: range.limit, cursor };
            let found = run(call, async |client| client.tenants(&query).await)?;
            let rows = found.tenants.iter().map(|view| {
                let kind = if view.system { "system" } else { "" };
                let state = if view.disabled { "disabled" } else { "enabled" };
                [view.tenant.to_string(), state.to_owned(), shown(view.requests_per_second), kind.to_owned()]
            });
            let next = found.next_cursor.as_ref().map(ToString::to_string);
            page(call.output, &found, ["TENANT", "STATE", "REQUESTS/S", "KIND"], rows.collect(), next)
        }
    }
}

pub(crate) fn token(verb: &TokenVerb) -> anyhow::Result<()> {
    match verb {
        TokenVerb::Create { call, client: name, roles, namespaces, tenant, expires_at } => {
            let request = CreateTokenRequest {
                tenant: option("--tenant", tenant.as_ref())?,
                client: parsed("the client", name)?,
                namespaces: words("--namespaces", namespaces)?,
                roles: words("--roles", roles)?,
                expires_at: option("--expires-at", expires_at.as_ref())?,
            };
            output::answer(call.output, &run(call, async |client| client.create_token(&request).await)?)
        }
        TokenVerb::List { call, tenant, page: range } => {
            let query = PageQuery {
                tenant: option("--tenant", tenant.as_ref())?,
                limit: range.limit,
                cursor: option("--cursor", range.cursor.as_ref())?,
            };
            let found = run(call, async |client| client.tokens(&query).await)?;
            let rows = found.tokens.iter().map(|view| {
                let roles: Vec<String> = view.roles.iter().map(word).collect();
                let state = if view.revoked_at.is_some() { "revoked" } else { "good" };
                [
                    view.token_id.to_string(),
                    view.client.to_string(),
                    roles.join(","),
                    shown(view.expires_at),
                    state.to_owned(),
                ]
            });
            let next = found.next_cursor.as_ref().map(ToString::to_string);
            page(call.output, &found, ["TOKEN", "CLIENT", "ROLES", "EXPIRES", "STATE"], rows.collect(), next)
        }
        TokenVerb::Revoke { call, token_id } => {
            let id = parsed("the token id", token_id)?;
            let view = run(call, async |client| client.revoke_token(&id).await)?;
            if view.revoked_at.is_none() {
                return Err(Failure::Unknown("the token does not show as revoked".to_owned()).into());
            }
            output::answer(call.output, &view)
        }
    }
}
