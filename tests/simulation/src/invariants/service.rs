//! Q: within ten seconds after everything has healed, every node grants a claim and reads it back; and it answers whatever it is asked
//! after that.

use std::collections::BTreeMap;

use super::Observed;
use crate::history::What;

/// So soon every node serves, in milliseconds.
const SERVES_WITHIN_MS: u64 = 10_000;

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let found = &observed.closing;
    let nodes = found.calls.iter().map(|call| call.node).chain(found.served.keys().copied());
    let mut nodes: Vec<_> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() {
        return vec!["nobody was asked".to_owned()];
    }
    let late = nodes
        .into_iter()
        .filter(|node| found.served.get(node).is_none_or(|at| *at > found.healed_at + SERVES_WITHIN_MS));
    let late = late.map(|node| {
        let served = found.served.get(&node);
        format!("node {node} served at {served:?} ms, after everything had healed at {} ms", found.healed_at)
    });
    let mut last = BTreeMap::new();
    for call in found.calls.iter().filter(|call| !matches!(call.what, What::Register { .. })) {
        last.insert((call.node, format!("{:?}", call.what)), call);
    }
    let silent = last.into_iter().filter(|(_, call)| call.known().is_none());
    late.chain(silent.map(|((node, what), call)| format!("node {node}: {what} got {:?} in the end", call.answer)))
        .collect()
}
