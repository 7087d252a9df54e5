//! Pages: where a list goes on, and what it is a list of. A cursor is good for the same question by the same tenant only, and
//! whoever presents one is authorised anew.

use hapax_api::cursor::{Cursor, FilterHash};
use hapax_api::{Code, Invalid, text};
use hapax_store::state::Position;

use crate::auth::Caller;
use crate::problem::Refusal;

/// What selects the items of a list: its endpoint and parameters, for one tenant.
pub(super) fn filter(caller: &Caller, endpoint: &str, parameters: &[&str]) -> FilterHash {
    let tenant = caller.machine().tenant.as_str().as_bytes();
    let mut parts: Vec<&[u8]> = vec![tenant, endpoint.as_bytes()];
    parts.extend(parameters.iter().map(|parameter| parameter.as_bytes()));
    FilterHash::of(&parts)
}

/// A place in a list of the store.
pub(super) fn place(after: Option<Vec<u8>>) -> Option<Position> {
    after.map(Position::new)
}

/// Its bytes again.
pub(super) fn bytes(position: Option<Position>) -> Option<Vec<u8>> {
    position.map(|position| position.as_bytes().to_vec())
}

/// Where to go on; `None` for the beginning.
pub(super) fn start(cursor: Option<&Cursor>, filter: FilterHash) -> Result<Option<Vec<u8>>, Refusal> {
    match cursor {
        None => Ok(None),
        Some(cursor) if cursor.is_of(filter) => Ok(Some(cursor.position.clone())),
        Some(_) => {
            let detail = "belongs to another question; ask for the first page of this one";
            Err(Invalid { code: Code::RequestInvalid, ..Invalid::field("cursor", detail) }.into())
        }
    }
}

/// The cursor of the next page. It keeps the revision of the first one.
pub(super) fn next(
    position: Option<Vec<u8>>,
    filter: FilterHash,
    from: Option<&Cursor>,
    now: text::Revision,
) -> Option<Cursor> {
    let revision = from.map_or(now, |cursor| cursor.revision);
    position.map(|position| Cursor { revision, filter, position })
}

/// A page of what is in memory, sorted by name: the items after `after`, and the name to go on from.
pub(super) fn by_name<'r, T>(
    all: Vec<&'r T>,
    name: impl Fn(&T) -> &str,
    after: Option<&[u8]>,
    limit: u64,
) -> (Vec<&'r T>, Option<Vec<u8>>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut rest: Vec<&T> =
        all.into_iter().filter(|item| after.is_none_or(|after| name(item).as_bytes() > after)).collect();
    let more = rest.len() > limit;
    rest.truncate(limit);
    let position = rest.last().filter(|_| more).map(|last| name(last).as_bytes().to_vec());
    (rest, position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_by_name_meet_everything_once() {
        let names: Vec<String> = (0..7).map(|n| format!("n{n}")).collect();
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let (page, position) = by_name(names.iter().collect(), String::as_str, after.as_deref(), 3);
            seen.extend(page.into_iter().cloned());
            match position {
                Some(position) => after = Some(position),
                None => break,
            }
        }
        assert_eq!(seen, names);
        let (page, position) = by_name(names.iter().collect(), String::as_str, Some(b"n3"), 3);
        assert_eq!((page.len(), position), (3, None), "the last page says so");
    }
}
