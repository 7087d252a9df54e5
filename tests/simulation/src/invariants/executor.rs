//! U: one executor per key and lease epoch. A lease epoch is one claim's, and within one attempt another claim is granted only where
//! the namespace lets the next claimant take over.

use std::collections::BTreeMap;

use super::Observed;
use crate::history::grants;
use crate::node::TAKEOVER;

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let granted = grants(&observed.calls);
    let mut of_epoch = BTreeMap::new();
    let mut of_attempt = BTreeMap::new();
    let mut found = Vec::new();
    for grant in &granted {
        let first = of_epoch.entry((grant.operation, grant.epoch)).or_insert(grant.claim_id);
        if *first != grant.claim_id {
            found.push(format!("{:?} epoch {}: claims {first} and {}", grant.key, grant.epoch, grant.claim_id));
        }
        let first = of_attempt.entry((grant.operation, grant.attempt)).or_insert(grant.claim_id);
        if *first != grant.claim_id && grant.key.0 != TAKEOVER {
            found.push(format!("{:?} attempt {}: claims {first} and {}", grant.key, grant.attempt, grant.claim_id));
        }
    }
    found
}
