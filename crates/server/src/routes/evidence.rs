//! `GET /v1/evidence`: what was said and overridden, and what was presented in vain.
//!
//! Some questions are answered by two lists, one after the other; a position says in which one it is.

use axum::extract::{RawQuery, State};
use hapax_api::evidence::{EvidenceBy, EvidenceEntry, EvidencePage, EvidenceQuery};
use hapax_consensus::node::ReadGuard;
use hapax_machine::ids::{CorrelationId, OperationId};
use hapax_machine::operation::OperationRecord;
use hapax_machine::read;
use hapax_machine::refusal::{RefusalKey, RefusalRecord};
use hapax_store::seam::StorageFault;
use hapax_store::state::Position;
use http::StatusCode;
use tokio::time::Instant;

use super::pages;
use crate::auth::Caller;
use crate::calls::{self, Reply};
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;

/// The first byte of a position: in the list of refusals, or in the words of operations.
const REFUSALS: u8 = 0;
const WORDS: u8 = 1;

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Reply, Refusal> {
    let query = EvidenceQuery::read(query.as_deref().unwrap_or_default(), &app.limits)?;
    let question = match &query.by {
        EvidenceBy::Operation(id) => ["operation", id.as_str(), ""],
        EvidenceBy::Capability(id) => ["capability", id.as_str(), ""],
        EvidenceBy::Message(message) => ["message", message.consumer.as_str(), message.id.as_str()],
        EvidenceBy::Correlation(id) => ["correlation", id.as_str(), ""],
    };
    let filter = pages::filter(&caller, "evidence", &question);
    let after = pages::start(query.cursor.as_ref(), filter)?;
    let limit = usize::try_from(query.limit.unwrap_or_default()).unwrap_or(usize::MAX);
    let guard = app.node.read(Instant::now() + app.request_timeout).await?;
    let mut page = Page { guard: &guard, caller: &caller, entries: Vec::new(), limit };
    let position = page.fill(&query.by, after.as_deref())?;
    let entries = page.entries;
    let revision = convert::revision(guard.revision());
    let next_cursor = pages::next(position, filter, query.cursor.as_ref(), revision);
    Reply::json(StatusCode::OK, &EvidencePage { entries, next_cursor, revision })
}

/// A page being filled.
struct Page<'p> {
    guard: &'p ReadGuard,
    caller: &'p Caller,
    entries: Vec<EvidenceEntry>,
    limit: usize,
}

type Refusals = Result<(Vec<(RefusalKey, RefusalRecord)>, Option<Position>), StorageFault>;

impl Page<'_> {
    /// Fills the page from `after` on, and says where to go on.
    fn fill(&mut self, by: &EvidenceBy, after: Option<&[u8]>) -> Result<Option<Vec<u8>>, Refusal> {
        let (list, rest) = after.and_then(<[u8]>::split_first).map_or((REFUSALS, None), |(n, rest)| (*n, Some(rest)));
        let (tenant, guard) = (&self.caller.machine().tenant, self.guard);
        match by {
            EvidenceBy::Capability(id) => {
                let id = calls::capability(id)?;
                self.refusals(rest, |after, limit| guard.refusals_of_capability(tenant, &id, after, limit))
            }
            EvidenceBy::Message(message) => {
                let message = convert::message_of(message);
                let (consumer, id) = (&message.consumer, &message.id);
                self.refusals(rest, |after, limit| guard.refusals_of_message(tenant, consumer, id, after, limit))
            }
            EvidenceBy::Operation(id) => {
                let id = calls::operation(id)?;
                if list == REFUSALS {
                    let of = |after: Option<&Position>, limit| guard.refusals_of_operation(tenant, &id, after, limit);
                    if let Some(next) = self.refusals(rest, of)? {
                        return Ok(Some(next));
                    }
                }
                let Some(operation) = self.operation(&id)? else {
                    return Ok(None);
                };
                let after = rest.filter(|_| list == WORDS);
                Ok(self.words(&operation, after)?.map(|position| prefixed(WORDS, position.as_bytes())))
            }
            EvidenceBy::Correlation(id) => {
                let id = CorrelationId::new(id.as_str());
                if list == REFUSALS {
                    let of =
                        |after: Option<&Position>, limit| guard.refusals_of_correlation(tenant, &id, after, limit);
                    if let Some(next) = self.refusals(rest, of)? {
                        return Ok(Some(next));
                    }
                }
                self.words_of_story(&id, rest.filter(|_| list == WORDS))
            }
        }
    }

    /// The refusals of one list that the caller may see: each is authorised by the namespace that it was claimed in.
    fn refusals(
        &mut self,
        after: Option<&[u8]>,
        list: impl FnOnce(Option<&Position>, usize) -> Refusals,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let after = after.map(Position::new);
        let (found, next) = list(after.as_ref(), self.limit)?;
        for (key, _) in &found {
            if let Some(record) = read::refusal(&**self.guard, self.caller.machine(), key)? {
                self.entries.push(convert::refusal(&record)?);
            }
        }
        Ok(next.map(|position| prefixed(REFUSALS, position.as_bytes())))
    }

    /// An operation that the caller may see.
    fn operation(&self, id: &OperationId) -> Result<Option<OperationRecord>, Refusal> {
        Ok(read::by_id(&**self.guard, self.caller.machine(), id)?.map(|reading| reading.record))
    }

    /// What was said about an operation, as far as the page has room for it.
    fn words(&mut self, operation: &OperationRecord, after: Option<&[u8]>) -> Result<Option<Position>, Refusal> {
        let after = after.map(Position::new);
        let room = self.limit.saturating_sub(self.entries.len());
        if room == 0 {
            return Ok(after.or_else(|| Some(Position::new(Vec::new()))));
        }
        let tenant = &self.caller.machine().tenant;
        let (found, next) = self.guard.evidence_of_operation(tenant, &operation.id, after.as_ref(), room)?;
        for (number, record) in &found {
            self.entries.push(convert::word(operation, *number, record)?);
        }
        Ok(next)
    }

    /// What was said about the operations of a story, one after the other. A position holds where the list of operations stood
    /// before the current one, with its length, and where that one's words ended.
    fn words_of_story(&mut self, id: &CorrelationId, after: Option<&[u8]>) -> Result<Option<Vec<u8>>, Refusal> {
        let (before, mut within) = after.and_then(parts).unwrap_or_default();
        let mut before = (!before.is_empty()).then(|| Position::new(before));
        loop {
            let tenant = &self.caller.machine().tenant;
            let (found, next) = self.guard.by_correlation(tenant, id, before.as_ref(), 1)?;
            for record in found {
                if let Some(operation) = self.operation(&record.id)? {
                    let after = (!within.is_empty()).then_some(within.as_slice());
                    if let Some(rest) = self.words(&operation, after)? {
                        let stood = before.as_ref().map_or(&[][..], Position::as_bytes);
                        return Ok(Some(joined(stood, rest.as_bytes())));
                    }
                }
                within.clear();
            }
            match next {
                Some(next) => before = Some(next),
                None => return Ok(None),
            }
        }
    }
}

fn prefixed(list: u8, position: &[u8]) -> Vec<u8> {
    [&[list], position].concat()
}

fn joined(before: &[u8], within: &[u8]) -> Vec<u8> {
    let len = u8::try_from(before.len()).unwrap_or(u8::MAX);
    [&[WORDS, len], before, within].concat()
}

/// Takes [`joined`] apart again, without its first byte; anything else is no position, and the list begins anew.
fn parts(position: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (len, rest) = position.split_first()?;
    let (before, within) = rest.split_at_checked(usize::from(*len))?;
    Some((before.to_vec(), within.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_a_story_come_apart_as_they_were_joined() {
        for (before, within) in [(&b"abc"[..], &b"de"[..]), (b"", b"x"), (b"x", b""), (b"", b"")] {
            let position = joined(before, within);
            assert_eq!(position[0], WORDS);
            assert_eq!(parts(&position[1..]), Some((before.to_vec(), within.to_vec())));
        }
        assert_eq!(parts(b""), None);
        assert_eq!(parts(b"\x05abc"), None);
    }
}
