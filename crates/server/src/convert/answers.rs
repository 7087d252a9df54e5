//! Outcomes as answers.

use hapax_api::claim::{ClaimAnswer, Claimed, DuplicateDelivery, InProgress, Replayed};
use hapax_api::execution::{Accepted, Renewed};
use hapax_api::operation::Consistency;
use hapax_api::reconcile::{ReconcileItem, Reconciling};
use hapax_api::register::Registered;
use hapax_api::time::Instant;
use hapax_machine::ids;
use hapax_machine::outcome as answer;

use super::views::receipt;
use super::{revision, state, wire, wire_option};
use crate::problem::Refusal;

/// The part of a lease after which its owner should renew it: leaves two more tries before it ends.
const RENEW_AFTER_DIVISOR: u64 = 3;

/// When to renew a lease with `remaining_ms` left.
fn renew_by_ms(remaining_ms: u64) -> u64 {
    remaining_ms / RENEW_AFTER_DIVISOR
}

/// A grant.
pub(crate) fn claimed(grant: &answer::Grant, at: ids::Revision) -> Result<ClaimAnswer, Refusal> {
    Ok(ClaimAnswer::Claimed(Claimed {
        operation_id: wire(&grant.operation_id.to_string())?,
        execution_id: wire(&grant.execution_id.to_string())?,
        attempt: grant.attempt.0,
        lease_epoch: grant.lease.lease_epoch.0,
        lease_expires_in_ms: grant.lease.remaining_ms,
        renew_by_ms: renew_by_ms(grant.lease.remaining_ms),
        effect_key: wire(&grant.effect_key)?,
        revision: revision(at),
    }))
}

/// Another executor at work.
pub(crate) fn in_progress(standing: &answer::Standing, at: ids::Revision) -> Result<ClaimAnswer, Refusal> {
    // Who is executing has an execution; the empty text of one that had none would not pass.
    let execution_id = standing.execution_id.map(|id| id.to_string()).unwrap_or_default();
    Ok(ClaimAnswer::InProgress(InProgress {
        operation_id: wire(&standing.operation_id.to_string())?,
        execution_id: wire(&execution_id)?,
        attempt: standing.attempt.0,
        state: state(standing.state),
        revision: revision(at),
    }))
}

/// A delivery that was accepted before.
pub(crate) fn duplicate(standing: &answer::Standing, at: ids::Revision) -> Result<ClaimAnswer, Refusal> {
    Ok(ClaimAnswer::DuplicateDelivery(DuplicateDelivery {
        operation_id: wire(&standing.operation_id.to_string())?,
        execution_id: wire_option(standing.execution_id.map(|id| id.to_string()).as_deref())?,
        attempt: standing.attempt.0,
        state: state(standing.state),
        revision: revision(at),
    }))
}

/// A stored outcome.
pub(crate) fn replayed(
    found: &answer::Receipt,
    at: ids::Revision,
    consistency: Option<Consistency>,
) -> Result<ClaimAnswer, Refusal> {
    Ok(ClaimAnswer::Replayed(Replayed {
        operation_id: wire(&found.standing.operation_id.to_string())?,
        execution_id: wire_option(found.standing.execution_id.map(|id| id.to_string()).as_deref())?,
        attempt: found.standing.attempt.0,
        state: state(found.standing.state),
        outcome: receipt(&found.outcome, found.result.clone())?,
        revision: revision(at),
        consistency,
    }))
}

/// A renewed lease.
pub(crate) fn renewed(lease: answer::Lease, at: ids::Revision) -> Renewed {
    Renewed {
        lease_epoch: lease.lease_epoch.0,
        lease_expires_in_ms: lease.remaining_ms,
        renew_by_ms: renew_by_ms(lease.remaining_ms),
        revision: revision(at),
    }
}

/// An accepted report, evidence, resolution or repair.
pub(crate) fn accepted(standing: &answer::Standing, at: ids::Revision) -> Result<Accepted, Refusal> {
    Ok(Accepted {
        operation_id: wire(&standing.operation_id.to_string())?,
        state: state(standing.state),
        revision: revision(at),
    })
}

/// An operation that is known.
pub(crate) fn registered(standing: &answer::Standing, at: ids::Revision) -> Result<Registered, Refusal> {
    Ok(Registered {
        operation_id: wire(&standing.operation_id.to_string())?,
        state: state(standing.state),
        revision: revision(at),
    })
}

/// Executions to find out about.
pub(crate) fn reconciling(items: &[answer::ReconcileItem], at: ids::Revision) -> Result<Reconciling, Refusal> {
    let items = items.iter().map(|item| {
        Ok(ReconcileItem {
            execution_id: wire(&item.execution_id.to_string())?,
            operation_id: wire(&item.operation_id.to_string())?,
            namespace: wire(item.namespace.as_str())?,
            attempt: item.attempt.0,
            effect_key: wire(&item.effect_key)?,
            correlation_id: wire_option(item.correlation_id.as_ref().map(|id| id.as_str()))?,
            unknown_since: Instant(item.unknown_since.0),
            lease_epoch: item.lease.lease_epoch.0,
            lease_expires_in_ms: item.lease.remaining_ms,
        })
    });
    Ok(Reconciling { items: items.collect::<Result<_, Refusal>>()?, revision: revision(at) })
}
