//! M: a node that could reach no quorum, from before it was asked until after it had answered, says that it does not know, or marks its
//! answer as its own view.

use super::Observed;

/// A request's own faults are told by any node.
const OF_THE_REQUEST: [&str; 2] = ["request.invalid", "not-found"];

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let answered = observed.calls.iter().filter_map(|call| {
        let body = call.authoritative()?;
        let (at, end) = (call.at, call.end());
        let alone = |known: &&super::Isolation| known.node == call.node && known.from < at && end < known.until;
        let isolation = observed.isolations.iter().find(alone)?;
        (!OF_THE_REQUEST.contains(&call.verdict())).then(|| {
            format!(
                "node {} was alone since {} ms, and answered {:?}, sent at {at} ms, at {end} ms with {body}",
                call.node, isolation.from, call.what
            )
        })
    });
    answered.collect()
}
