//! C: no more claims are elected with a capability than it has uses, and no more than one because of a message.

use std::collections::{BTreeMap, BTreeSet};

use super::Observed;
use crate::history::What;

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let issued = observed.calls.iter().filter_map(|call| match (&call.what, call.success()) {
        (What::Issue { uses }, Some(body)) => Some((body["capability_id"].as_str()?, *uses)),
        _ => None,
    });
    let most: BTreeMap<&str, u64> = issued.collect();
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut accepted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for call in &observed.calls {
        if let (What::Claim { capability: Some(capability), claim_id, .. }, Some(_)) = (&call.what, call.told(201)) {
            used.entry(capability).or_default().insert(claim_id);
        }
        if let (What::Claim { message: Some(message), claim_id, .. }, Some(_)) = (&call.what, call.told(201)) {
            accepted.entry(message).or_default().insert(claim_id);
        }
    }
    let delivered = accepted.into_iter().filter(|(_, claims)| claims.len() > 1);
    let delivered = delivered.map(|(message, claims)| format!("{message} was accepted for each of {claims:?}"));
    let overspent = used.into_iter().filter_map(|(capability, claims)| {
        let most = most.get(capability)?;
        (claims.len() as u64 > *most).then(|| format!("{capability} has {most} uses, and elected {claims:?}"))
    });
    overspent.chain(delivered).collect()
}
