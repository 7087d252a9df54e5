//! `reconcile` and `operation`: finding out what unknown executions came to, and repair by people.

use clap::{Args, Subcommand};
use hapax_api::execution::{ResolveRequest, ResultData};
use hapax_api::reconcile::{EscalateRequest, FenceRequest, ReconcileRequest};
use hapax_api::repair::{RepairRequest, SupersedeRequest};

use crate::args::Call;
use crate::calls::{option, parsed, run};
use crate::output::{self, Format};

/// Why, and what shows it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Why {
    /// Why; kept in the record.
    #[arg(long)]
    reason: String,
    /// What shows it.
    #[arg(long)]
    proof: Option<String>,
}

/// An execution under an epoch.
#[derive(Debug, Clone, Args)]
pub(crate) struct Held {
    /// The execution.
    execution_id: String,
    /// Its current lease epoch, as `get` shows it.
    #[arg(long)]
    lease_epoch: u64,
}

/// An operation as it was seen.
#[derive(Debug, Clone, Args)]
pub(crate) struct Seen {
    /// The operation.
    operation_id: String,
    /// The state that it was seen in.
    #[arg(long)]
    expected_state: String,
    #[command(flatten)]
    why: Why,
}

/// `hapax reconcile`
#[derive(Debug, Subcommand)]
pub(crate) enum ReconcileVerb {
    /// Lease the oldest unknown executions.
    Lease {
        #[command(flatten)]
        call: Call,
        /// The name of this reconciler; the same one asking again gets the same items.
        #[arg(long)]
        owner: String,
        /// Only in this namespace.
        #[arg(long)]
        namespace: Option<String>,
        /// How many.
        #[arg(long, default_value_t = 10)]
        limit: u32,
        /// Length of the lease.
        #[arg(long, default_value_t = 60_000)]
        lease_ms: u64,
    },
    /// Say, with proof, what an unknown execution came to.
    Resolve {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        held: Held,
        /// completed, failed or not_applied.
        outcome: String,
        /// What shows it.
        #[arg(long)]
        proof: String,
        /// The provider's own id of the effect.
        #[arg(long)]
        external_id: Option<String>,
        /// Why, for people.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let an unknown execution wait for people.
    Escalate {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        held: Held,
        #[command(flatten)]
        why: Why,
    },
    /// Let it wait no longer.
    DeEscalate {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        held: Held,
        #[command(flatten)]
        why: Why,
    },
}

/// `hapax operation`
#[derive(Debug, Subcommand)]
pub(crate) enum RepairVerb {
    /// Stop claims.
    Quarantine {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        seen: Seen,
    },
    /// Let claims go on.
    Release {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        seen: Seen,
    },
    /// End an operation that nobody executes.
    Close {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        seen: Seen,
    },
    /// Link the operation that takes its place under a genuinely new key.
    Supersede {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        seen: Seen,
        /// That operation.
        #[arg(long)]
        by: String,
    },
    /// End an executor's lease; the execution becomes unknown.
    Fence {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        held: Held,
        #[command(flatten)]
        why: Why,
    },
}

pub(crate) fn reconcile(verb: &ReconcileVerb) -> anyhow::Result<()> {
    match verb {
        ReconcileVerb::Lease { call, owner, namespace, limit, lease_ms } => {
            let request = ReconcileRequest {
                namespace: option("--namespace", namespace.as_ref())?,
                owner: parsed("--owner", owner)?,
                limit: *limit,
                lease_ms: *lease_ms,
            };
            lease(call, &request)
        }
        ReconcileVerb::Resolve { call, held, outcome, proof, external_id, reason } => {
            let id = parsed("the execution id", &held.execution_id)?;
            let request = ResolveRequest {
                lease_epoch: held.lease_epoch,
                outcome: parsed("the outcome", outcome)?,
                proof: parsed("--proof", proof)?,
                data: ResultData {
                    external_id: option("--external-id", external_id.as_ref())?,
                    reason: option("--reason", reason.as_ref())?,
                    ..ResultData::default()
                },
            };
            output::answer(call.output, &run(call, async |client| client.resolve(&id, &request).await)?)
        }
        ReconcileVerb::Escalate { call, held, why } => escalate(call, held, why, true),
        ReconcileVerb::DeEscalate { call, held, why } => escalate(call, held, why, false),
    }
}

fn lease(call: &Call, request: &ReconcileRequest) -> anyhow::Result<()> {
    let found = run(call, async |client| client.reconcile_lease(request).await)?;
    if call.output == Format::Json {
        return output::answer(call.output, &found);
    }
    let rows: Vec<[String; 5]> = found
        .items
        .iter()
        .map(|item| {
            [
                item.execution_id.to_string(),
                item.lease_epoch.to_string(),
                item.effect_key.to_string(),
                item.unknown_since.to_string(),
                super::shown(item.correlation_id.as_ref()),
            ]
        })
        .collect();
    output::table(["EXECUTION", "LEASE EPOCH", "EFFECT KEY", "UNKNOWN SINCE", "CORRELATION"], &rows);
    Ok(())
}

fn escalate(call: &Call, held: &Held, why: &Why, escalated: bool) -> anyhow::Result<()> {
    let id = parsed("the execution id", &held.execution_id)?;
    let request = EscalateRequest {
        lease_epoch: held.lease_epoch,
        escalated: Some(escalated),
        reason: parsed("--reason", &why.reason)?,
        proof: option("--proof", why.proof.as_ref())?,
    };
    output::answer(call.output, &run(call, async |client| client.escalate(&id, &request).await)?)
}

pub(crate) fn repair(verb: &RepairVerb) -> anyhow::Result<()> {
    let (call, accepted) = match verb {
        RepairVerb::Quarantine { call, seen } => {
            let (id, request) = (parsed("the operation id", &seen.operation_id)?, seen.request()?);
            (call, run(call, async |client| client.quarantine(&id, &request).await)?)
        }
        RepairVerb::Release { call, seen } => {
            let (id, request) = (parsed("the operation id", &seen.operation_id)?, seen.request()?);
            (call, run(call, async |client| client.release(&id, &request).await)?)
        }
        RepairVerb::Close { call, seen } => {
            let (id, request) = (parsed("the operation id", &seen.operation_id)?, seen.request()?);
            (call, run(call, async |client| client.close(&id, &request).await)?)
        }
        RepairVerb::Supersede { call, seen, by } => {
            let id = parsed("the operation id", &seen.operation_id)?;
            let RepairRequest { expected_state, reason, proof } = seen.request()?;
            let request = SupersedeRequest { expected_state, by: parsed("--by", by)?, reason, proof };
            (call, run(call, async |client| client.supersede(&id, &request).await)?)
        }
        RepairVerb::Fence { call, held, why } => {
            let id = parsed("the execution id", &held.execution_id)?;
            let request = FenceRequest {
                lease_epoch: held.lease_epoch,
                reason: parsed("--reason", &why.reason)?,
                proof: option("--proof", why.proof.as_ref())?,
            };
            (call, run(call, async |client| client.fence(&id, &request).await)?)
        }
    };
    output::answer(call.output, &accepted)
}

impl Seen {
    fn request(&self) -> anyhow::Result<RepairRequest> {
        Ok(RepairRequest {
            expected_state: parsed("--expected-state", &self.expected_state)?,
            reason: parsed("--reason", &self.why.reason)?,
            proof: option("--proof", self.why.proof.as_ref())?,
        })
    }
}
