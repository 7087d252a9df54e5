//! L: no lapse and no takeover before the last renewal was sent and its time has passed. Judged by the callers' clock, for leases that
//! nobody ended by a word: no report, evidence, resolution, fence or bump was on its way.

use std::collections::BTreeMap;

use super::Observed;
use crate::history::{Call, Grant, What, grants};

/// Until when a lease stands, and from which claim on.
struct Lease<'o> {
    grant: Grant<'o>,
    until: u64,
}

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    // When somebody first said a word that ends an execution, whatever became of it.
    let mut said: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &observed.calls {
        if let What::Report { execution, .. } | What::End { execution, .. } = &call.what {
            let first = said.entry(execution).or_insert(call.at);
            *first = (*first).min(call.at);
        }
    }
    let mut leases: BTreeMap<(&str, u64), Lease<'_>> = BTreeMap::new();
    for grant in grants(&observed.calls) {
        let What::Claim { lease_ms, epoch: None, .. } = grant.call.what else { continue };
        // The first time that the claim was sent: a repeated one is told of the lease that it has already.
        let until = grant.call.at + lease_ms;
        leases.entry((grant.execution, grant.epoch)).or_insert(Lease { grant, until });
    }
    first_sent(observed, &mut leases);
    for call in &observed.calls {
        if let (What::Renew { execution, epoch, lease_ms }, Some(_)) = (&call.what, call.success())
            && let Some(lease) = leases.get_mut(&(execution.as_str(), *epoch))
        {
            lease.until = lease.until.max(call.at + lease_ms);
        }
    }
    let mut by_operation: BTreeMap<&str, Vec<&Lease<'_>>> = BTreeMap::new();
    for lease in leases.values() {
        by_operation.entry(lease.grant.operation).or_default().push(lease);
    }
    let mut found = Vec::new();
    for call in &observed.calls {
        let operation = call.authoritative().and_then(|body| body["operation_id"].as_str());
        for lease in operation.and_then(|operation| by_operation.get(operation)).into_iter().flatten() {
            let silent = said.get(lease.grant.execution).is_none_or(|first| *first > call.end());
            if silent && ended_early(call, lease) {
                found.push(format!(
                    "{:?}: the lease {} of {} stood until {} ms, and at {} ms {:?} got {:?}",
                    lease.grant.key,
                    lease.grant.epoch,
                    lease.grant.claim_id,
                    lease.until,
                    call.end(),
                    call.what,
                    call.answer
                ));
            }
        }
    }
    found
}

/// A claim that was sent several times may have been granted by the first of them.
fn first_sent(observed: &Observed, leases: &mut BTreeMap<(&str, u64), Lease<'_>>) {
    let mut sent: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &observed.calls {
        if let What::Claim { claim_id, .. } = &call.what {
            sent.entry(claim_id).or_insert(call.at);
        }
    }
    for lease in leases.values_mut() {
        let first = sent.get(lease.grant.claim_id).copied().unwrap_or(lease.grant.call.at);
        lease.until -= lease.grant.call.at.saturating_sub(first);
    }
}

/// Whether an answer shows that a lease is over, although it stands.
fn ended_early(call: &Call, lease: &Lease<'_>) -> bool {
    // Only what was asked after the grant was known says something of it.
    if call.end() >= lease.until || call.at <= lease.grant.call.end() {
        return false;
    }
    let Some(body) = call.authoritative() else { return false };
    let taken_over = matches!(&call.what, What::Claim { claim_id, .. } if claim_id != lease.grant.claim_id)
        && call.told(201).is_some_and(|body| body["lease_epoch"].as_u64() > Some(lease.grant.epoch));
    let lapsed = body["state"] == "unknown" || call.verdict() == "operation.outcome-unknown";
    taken_over || lapsed
}
