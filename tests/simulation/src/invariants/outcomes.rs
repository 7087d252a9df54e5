//! T: a terminal outcome never changes, wherever it is read, with its result; and a key answers one request only.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Observed;
use crate::history::{Call, What};

/// What an answer says of an operation that is over: its state, and its result where the answer carries one.
fn terminal(body: &Value) -> Option<(&str, Option<&Value>)> {
    let state = body["state"].as_str().filter(|state| matches!(*state, "completed" | "failed"))?;
    Some((state, body["outcome"].get("result").filter(|result| !result.is_null())))
}

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let mut outcomes: BTreeMap<&str, &str> = BTreeMap::new();
    let mut results: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut versions: BTreeMap<&str, u64> = BTreeMap::new();
    let mut ended: BTreeMap<&str, u64> = BTreeMap::new();
    let mut found = Vec::new();
    let all = observed.calls.iter().chain(&observed.closing.calls);
    for call in all.clone() {
        let Some(body) = call.success() else { continue };
        let Some(operation) = body["operation_id"].as_str() else { continue };
        if let What::Claim { version, .. } = &call.what {
            let first = *versions.entry(operation).or_insert(*version);
            if first != *version {
                found.push(format!("{operation} answers for two requests: {first} and {version}"));
            }
        }
        let Some((state, result)) = terminal(body) else { continue };
        let first = *outcomes.entry(operation).or_insert(state);
        if first != state {
            found.push(format!("{operation} was {first} and is {state}: {:?}", call.what));
        }
        if let Some(result) = result {
            let first = *results.entry(operation).or_insert(result);
            if first != result {
                found.push(format!("{operation} ended with {first} and with {result}"));
            }
        }
        let end = ended.entry(operation).or_insert(u64::MAX);
        *end = (*end).min(call.end());
    }
    found.extend(all.filter_map(|call| resurrected(call, &ended)));
    found
}

/// An operation that was over before this was asked, and is not over any more.
fn resurrected(call: &Call, ended: &BTreeMap<&str, u64>) -> Option<String> {
    let body = call.authoritative()?;
    let operation = body["operation_id"].as_str()?;
    let over = ended.get(operation).is_some_and(|end| *end < call.at);
    let lives = body["result"] == "claimed"
        || matches!(body["state"].as_str(), Some("requested" | "executing" | "unknown" | "not_applied"));
    (over && lives).then(|| format!("{operation} was over, and is not: {:?} got {body}", call.what))
}
