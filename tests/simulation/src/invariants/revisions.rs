//! R: an answer's revision is at least the highest that was acknowledged before it was asked for. Answers marked as a node's own view
//! are bound by their age alone, and not judged here.

use std::collections::BTreeMap;

use super::Observed;
use crate::history::revision;

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let mut acknowledged: Vec<(u64, [u64; 4])> =
        observed.calls.iter().filter_map(|call| Some((call.end(), revision(call.authoritative()?)?))).collect();
    acknowledged.sort_unstable();
    // The highest revision that was acknowledged up to each time.
    let mut highest: BTreeMap<u64, [u64; 4]> = BTreeMap::new();
    let mut so_far = [0; 4];
    for (end, revision) in acknowledged {
        so_far = so_far.max(revision);
        highest.insert(end, so_far);
    }
    let stale = observed.calls.iter().filter_map(|call| {
        let answered = revision(call.authoritative()?)?;
        let (end, before) = highest.range(..call.at).next_back()?;
        (answered < *before).then(|| {
            format!(
                "node {} answered {:?}, sent at {} ms, as of {answered:?}; {before:?} was acknowledged at {end} ms",
                call.node, call.what, call.at
            )
        })
    });
    stale.collect()
}
