//! `GET /v1/watch`: every change of an operation's state that the caller may see, as server-sent events.
//! Pulled from the state by position, so that a slow reader costs nothing but its connection.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use hapax_api::text::Revision;
use hapax_api::watch::{self, Event, LAST_EVENT_ID, Position, PositionEvent, WatchQuery};
use hapax_api::{Code, Invalid, Problem};
use hapax_consensus::node::ReadGuard;
use hapax_consensus::notify::Watch;
use hapax_machine::change;
use hapax_machine::ids::{NamespaceName, TenantTag};
use hapax_store::state::{EventPosition, Events};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use tokio::time::{Instant, sleep_until};

use crate::auth::Caller;
use crate::calls;
use crate::convert;
use crate::problem::Refusal;
use crate::room::Place;
use crate::state::App;

/// Events that one look takes from the state, of all tenants.
const EVENTS_AT_ONCE: usize = 512;
/// Where nothing happens, the position is told this often: it shows that the stream lives, and keeps up with what is kept.
const QUIET: Duration = Duration::from_secs(10);

/// One watcher and where it is.
struct Watcher {
    app: App,
    caller: Caller,
    namespace: Option<NamespaceName>,
    at: EventPosition,
    changed: Watch,
    told: Instant,
    over: bool,
    _place: Place,
}

pub(super) async fn watch(
    State(app): State<App>,
    caller: Caller,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let mut query = WatchQuery::read(query.as_deref().unwrap_or_default())?;
    if let Some(last) = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()) {
        let parsed =
            last.parse().map_err(|wrong: hapax_api::text::Malformed| Invalid::header(LAST_EVENT_ID, wrong.0))?;
        query.from = Some(parsed);
    }
    let namespace = match &query.namespace {
        Some(name) => Some(calls::namespace(&app, &caller, name)?.name),
        None => None,
    };
    let place = app.watches.enter().ok_or_else(|| Refusal::new(Code::StoreOverloaded))?;
    let tag = TenantTag::of(&caller.machine().tenant);
    let changed = app.node.watch(tag).ok_or_else(|| Refusal::new(Code::StoreOverloaded))?;
    // A position that another node told may be of an entry that is not applied here yet: after this it is.
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    let at = match query.from {
        Some(from) => begin(&view, from)?,
        None => EventPosition::behind_entry(view.revision().index),
    };
    drop(view);
    let watcher = Watcher { app, caller, namespace, at, changed, told: Instant::now(), over: false, _place: place };
    let begun = watcher.position_event();
    let first = stream::once(async move { Ok::<_, Infallible>(Bytes::from(begun)) });
    let rest = stream::unfold(watcher, |mut watcher| async move {
        let text = watcher.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), watcher))
    });
    let mut response = Response::new(Body::from_stream(futures::StreamExt::chain(first, rest)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(watch::MEDIA_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The place in this group's events that a caller names.
fn begin(view: &ReadGuard, from: Position) -> Result<EventPosition, Refusal> {
    let (now, Revision { incarnation, group, index, ordinal }) = (view.revision(), from.revision);
    if incarnation != u64::from(now.incarnation.0) || group != u64::from(now.group.0) {
        // Another life of the cluster: what it told cannot be gone on from.
        return Err(Refusal::new(Code::WatchCompacted));
    }
    if index > now.index {
        return Err(Invalid::header("from", "is a position that was not reached yet").into());
    }
    let ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
    let at = EventPosition { index, ordinal, part: from.part.unwrap_or(u32::MAX) };
    match view.events(at, 0)? {
        Events::Page { .. } => Ok(at),
        Events::Compacted { .. } => Err(Refusal::new(Code::WatchCompacted)),
    }
}

impl Watcher {
    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<String> {
        while !self.over {
            match self.look() {
                Ok(text) if !text.is_empty() => {
                    self.told = Instant::now();
                    return Some(text);
                }
                Ok(_) => {}
                Err(refusal) => {
                    self.over = true;
                    return Event::Problem(Box::new(refusal.problem().clone())).to_text().ok();
                }
            }
            tokio::select! {
                () = self.changed.changed() => {}
                () = self.app.stop.cancelled() => self.over = true,
                () = sleep_until(self.told + QUIET) => {
                    self.told = Instant::now();
                    return Some(self.position_event());
                }
            }
        }
        None
    }

    /// What happened since the last look, as far as the caller may see it.
    fn look(&mut self) -> Result<String, Refusal> {
        // A credential that was revoked sees nothing more, on a stream as elsewhere.
        self.caller.is_still_good(&self.app)?;
        let view = self.app.node.local();
        let mut text = String::new();
        loop {
            let (events, next) = match view.events(self.at, EVENTS_AT_ONCE)? {
                Events::Page { events, next } => (events, next),
                Events::Compacted { .. } => return Err(Problem::new(Code::WatchCompacted).into()),
            };
            let full = events.len() >= EVENTS_AT_ONCE;
            self.at = next;
            for event in events.iter().filter(|event| self.is_meant(event)) {
                let event = Event::Operation(convert::event(event)?);
                text.push_str(&event.to_text().map_err(|_| Refusal::new(Code::StoreOutcomeUnknown))?);
            }
            if !full || !text.is_empty() {
                return Ok(text);
            }
        }
    }

    fn is_meant(&self, event: &change::Event) -> bool {
        let caller = self.caller.machine();
        event.tenant == TenantTag::of(&caller.tenant)
            && caller.may_use(&event.namespace)
            && self.namespace.as_ref().is_none_or(|name| *name == event.namespace)
    }

    fn position_event(&self) -> String {
        let now = convert::revision(self.app.node.local().revision());
        let revision = Revision { index: self.at.index, ordinal: self.at.ordinal.into(), ..now };
        let part = (self.at.part != u32::MAX).then_some(self.at.part);
        // A position is numbers: it can be written.
        Event::Position(PositionEvent { position: Position { revision, part } }).to_text().unwrap_or_default()
    }
}
