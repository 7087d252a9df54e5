//! `capability` and `epoch`: authority, as deciders and operators handle it.

use clap::Subcommand;
use hapax_api::capability::{IssueBoundedRequest, IssueRequest, RevokeRequest};
use hapax_api::epoch::{BumpRequest, EpochBinding};

use crate::args::Call;
use crate::calls::{option, parsed, run};
use crate::exit::Failure;
use crate::output;

/// `hapax capability`
#[derive(Debug, Subcommand)]
pub(crate) enum CapabilityVerb {
    /// Issue authority for one attempt at one operation.
    Issue {
        #[command(flatten)]
        call: Call,
        /// The operation.
        operation_id: String,
        /// The decision that it stands for.
        #[arg(long)]
        decision: String,
        /// The attempt.
        #[arg(long, default_value_t = 1)]
        attempt: u32,
        /// Until when it may be presented.
        #[arg(long)]
        expires_at: String,
        /// The authority epoch that it dies with, as SCOPE=VALUE.
        #[arg(long)]
        epoch: Option<String>,
        /// The earlier attempt whose effect key is to be sent again.
        #[arg(long)]
        effect_key_attempt: Option<u32>,
    },
    /// Issue authority for several operations of one resource.
    IssueBounded {
        #[command(flatten)]
        call: Call,
        /// The resource.
        resource: String,
        /// The namespace.
        #[arg(long, default_value = "default")]
        namespace: String,
        /// The decision that it stands for.
        #[arg(long)]
        decision: String,
        /// How many operations it elects, at most.
        #[arg(long)]
        max_uses: u32,
        /// Until when it may be presented.
        #[arg(long)]
        expires_at: String,
        /// The authority epoch that it dies with, as SCOPE=VALUE.
        #[arg(long)]
        epoch: Option<String>,
    },
    /// Look at a capability.
    Get {
        #[command(flatten)]
        call: Call,
        /// The capability.
        capability_id: String,
    },
    /// Take a capability back.
    Revoke {
        #[command(flatten)]
        call: Call,
        /// The capability.
        capability_id: String,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
}

/// `hapax epoch`
#[derive(Debug, Subcommand)]
pub(crate) enum EpochVerb {
    /// Where a register of authority stands.
    Get {
        #[command(flatten)]
        call: Call,
        /// The register.
        scope: String,
    },
    /// Fence everything that is bound to the value that a register has now.
    Bump {
        #[command(flatten)]
        call: Call,
        /// The register.
        scope: String,
        /// Where it is believed to stand.
        #[arg(long)]
        expected: u64,
    },
}

/// `SCOPE=VALUE`.
pub(crate) fn binding(text: Option<&String>) -> anyhow::Result<Option<EpochBinding>> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || Failure::Usage("--epoch must be SCOPE=VALUE".to_owned());
    let (scope, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok(Some(EpochBinding { scope: parsed("the scope", scope)?, value: value.parse().map_err(|_| wrong())? }))
}

pub(crate) fn capability(verb: &CapabilityVerb) -> anyhow::Result<()> {
    let (call, view) = match verb {
        CapabilityVerb::Issue { call, operation_id, decision, attempt, expires_at, epoch, effect_key_attempt } => {
            let id = parsed("the operation id", operation_id)?;
            let request = IssueRequest {
                decision_id: parsed("--decision", decision)?,
                attempt: *attempt,
                expires_at: parsed("--expires-at", expires_at)?,
                epoch: binding(epoch.as_ref())?,
                effect_key_attempt: *effect_key_attempt,
            };
            (call, run(call, async |client| client.issue(&id, &request).await)?)
        }
        CapabilityVerb::IssueBounded { call, resource, namespace, decision, max_uses, expires_at, epoch } => {
            let request = IssueBoundedRequest {
                namespace: parsed("--namespace", namespace)?,
                resource: parsed("the resource", resource)?,
                decision_id: parsed("--decision", decision)?,
                expires_at: parsed("--expires-at", expires_at)?,
                max_uses: *max_uses,
                epoch: binding(epoch.as_ref())?,
            };
            (call, run(call, async |client| client.issue_bounded(&request).await)?)
        }
        CapabilityVerb::Get { call, capability_id } => {
            let id = parsed("the capability id", capability_id)?;
            (call, run(call, async |client| client.capability(&id).await)?)
        }
        CapabilityVerb::Revoke { call, capability_id, reason } => {
            let id = parsed("the capability id", capability_id)?;
            let request = RevokeRequest { reason: option("--reason", reason.as_ref())? };
            (call, run(call, async |client| client.revoke(&id, &request).await)?)
        }
    };
    output::answer(call.output, &view)
}

pub(crate) fn epoch(verb: &EpochVerb) -> anyhow::Result<()> {
    let (call, view) = match verb {
        EpochVerb::Get { call, scope } => {
            let scope = parsed("the scope", scope)?;
            (call, run(call, async |client| client.epoch(&scope).await)?)
        }
        EpochVerb::Bump { call, scope, expected } => {
            let (scope, request) = (parsed("the scope", scope)?, BumpRequest { expected: *expected });
            (call, run(call, async |client| client.bump_epoch(&scope, &request).await)?)
        }
    };
    output::answer(call.output, &view)
}
