//! X: a node whose disk fails says that it must not go on, within two seconds; and no other node says so.

use super::{Halt, Observed};

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    observed.halts.iter().filter_map(violation).collect()
}

fn violation(halt: &Halt) -> Option<String> {
    match (halt.disk_failed_at, &halt.said) {
        (None, said) => Some(format!("node {} is healthy, and halted: {said:?}", halt.node)),
        (Some(at), None) => Some(format!("node {} did not halt, though its disk failed at {at} ms", halt.node)),
        (Some(_), Some(_)) => None,
    }
}
