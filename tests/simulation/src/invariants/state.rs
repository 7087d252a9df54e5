//! H: at one index every node, in each of its lives, holds the same: the same hash of all changes, and the same rows.

use std::fmt::Debug;

use super::{ByIndex, Observed};

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let mut found = different("hashes", &observed.heads);
    found.extend(different("contents", &observed.contents));
    found
}

fn different<T: Debug>(what: &str, seen: &ByIndex<T>) -> Vec<String> {
    seen.iter()
        .filter(|(_, held)| held.len() > 1)
        .map(|(index, held)| format!("at {index} the {what} differ: {held:?}"))
        .collect()
}
