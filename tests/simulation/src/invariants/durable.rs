//! D: what was acknowledged is there in the end, through every node: operations, attempts, epochs, outcomes, capabilities, registers.
//! Only a namespace that forgets may have forgotten.

use std::collections::BTreeMap;

use hapax_consensus::types::NodeId;
use serde_json::Value;

use super::Observed;
use crate::history::{Call, What, grants};
use crate::node::BRIEF;

/// What a node said in the end, by what it was asked.
type Last<'o> = BTreeMap<(NodeId, &'o str), &'o Call>;

fn last(observed: &Observed) -> Last<'_> {
    let asked = observed.closing.calls.iter().filter_map(|call| {
        let id = match &call.what {
            What::Get { operation } => operation.as_str(),
            What::Capability { capability } => capability.as_str(),
            What::Epoch { .. } => "",
            _ => return None,
        };
        Some(((call.node, id), call))
    });
    asked.collect()
}

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let last = last(observed);
    let nodes: Vec<NodeId> = observed.closing.served.keys().copied().collect();
    let forgotten: Vec<&str> = observed
        .calls
        .iter()
        .filter(|call| matches!(&call.what, What::Claim { key, .. } if key.0 == BRIEF))
        .filter_map(|call| call.known()?["operation_id"].as_str())
        .collect();
    let mut found = observed.unopened.clone();
    for node in nodes {
        for call in &observed.calls {
            found.extend(missing(call, node, &last, &forgotten));
        }
        for grant in grants(&observed.calls).iter().filter(|grant| grant.key.0 != BRIEF) {
            // That it is gone is said above.
            let Some(view) = last.get(&(node, grant.operation)).and_then(|call| call.told(200)) else { continue };
            let attempt = view["attempt"].as_u64().unwrap_or(0);
            let epoch = view["execution"]["lease_epoch"].as_u64();
            // Where settling has not been applied yet there is no epoch to be shown.
            if attempt < grant.attempt || epoch.is_some_and(|epoch| epoch < grant.epoch) {
                found.push(format!("node {node}: {:?} was granted {}, and there is {view}", grant.key, grant.epoch));
            }
        }
    }
    found
}

/// What a node does not know of one acknowledged call.
fn missing(call: &Call, node: NodeId, last: &Last<'_>, forgotten: &[&str]) -> Option<String> {
    let body = call.success()?;
    if let What::Epoch { .. } = call.what {
        let stands = last.get(&(node, "")).and_then(|call| call.told(200))?["value"].as_u64();
        return (stands < body["value"].as_u64())
            .then(|| format!("node {node}: the register stands at {stands:?} after {body}"));
    }
    let named = |field: &str| body[field].as_str().filter(|id| !forgotten.contains(id));
    let id = named("capability_id").or_else(|| named("operation_id"))?;
    // What could not be asked is the liveness promise's to judge.
    let answer = last.get(&(node, id)).filter(|call| call.known().is_some())?;
    let Some(view) = answer.told(200) else {
        return Some(format!("node {node}: {id} is gone, though {:?} was answered with {body}", call.what));
    };
    let over =
        |body: &Value| body["state"].as_str().filter(|state| matches!(*state, "completed" | "failed")).is_some();
    let capability = view["capability_id"].is_string();
    (!capability && over(body) && !over(view)).then(|| format!("node {node}: {id} was over, and there is {view}"))
}
