//! F: no write under a stale epoch is accepted once a newer grant was acknowledged. A report that was accepted before may be repeated,
//! so that the first time it was sent counts; a renewal is never accepted late.

use std::collections::BTreeMap;

use super::Observed;
use crate::history::{What, grants};

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let granted = grants(&observed.calls);
    let operations: BTreeMap<&str, &str> = granted.iter().map(|grant| (grant.execution, grant.operation)).collect();
    // The earliest acknowledgement of each epoch of an operation.
    let mut newer: BTreeMap<&str, BTreeMap<u64, u64>> = BTreeMap::new();
    for grant in &granted {
        let end = newer.entry(grant.operation).or_default().entry(grant.epoch).or_insert(u64::MAX);
        *end = (*end).min(grant.call.end());
    }
    let mut first_sent = BTreeMap::new();
    let mut found = Vec::new();
    for call in &observed.calls {
        let (execution, epoch, sent) = match &call.what {
            What::Report { execution, epoch, outcome } => {
                let sent = *first_sent.entry((execution, epoch, outcome)).or_insert(call.at);
                (execution, *epoch, sent)
            }
            What::Renew { execution, epoch, .. } => (execution, *epoch, call.at),
            _ => continue,
        };
        let Some(operation) = operations.get(execution.as_str()).filter(|_| call.success().is_some()) else {
            continue;
        };
        let stale = newer[operation].range(epoch + 1..).find(|(_, end)| **end < sent);
        if let Some((newer, end)) = stale {
            found.push(format!(
                "{operation}: {:?} under {epoch}, sent at {sent} ms, was accepted, although {newer} was acknowledged at {end} ms",
                call.what
            ));
        }
    }
    found
}
