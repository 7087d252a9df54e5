//! `/v1/operations`: one by its id with long-poll, look-ups, lists, repair.
//! Reads are linearizable: each waits for a ReadIndex that began after it arrived, unless the caller asks for less.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use hapax_api::batch::ReadItem;
use hapax_api::find::{ListQuery, ListState, Lookup, LookupBy, OperationPage};
use hapax_api::operation::{Consistency, OperationQuery};
use hapax_api::repair::{RepairRequest, SupersedeRequest};
use hapax_api::{Code, headers};
use hapax_consensus::node::ReadGuard;
use hapax_machine::ids::{OperationId, OperationKey, Resource, Revision, WallTime};
use hapax_machine::operation::{Class, OperationRecord};
use hapax_machine::read::{self, Reading};
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::{body, by_id, json, pages, single};
use crate::auth::Caller;
use crate::calls::{self, Reply};
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;
use crate::waits::Woken;

by_id! {
    quarantine = Quarantine, RepairRequest;
    release = Release, RepairRequest;
    close = Close, RepairRequest;
    supersede = Supersede, SupersedeRequest;
}

/// RFC 7240's header; `http` has no constant for it.
const PREFER: &str = "prefer";

/// An operation and the tag of what was read.
struct Tagged {
    reading: Reading,
    revision: Revision,
    consistency: Option<Consistency>,
    /// Absent where a lapse is visible but not yet applied: the stored tag would say that nothing changed.
    tag: Option<String>,
}

pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let query = OperationQuery::read(query.as_deref().unwrap_or_default())?;
    let wait_ms = match header(&headers, PREFER)? {
        Some(value) => headers::prefer_wait_ms(value, &app.limits)?,
        None => 0,
    };
    let known = header(&headers, IF_NONE_MATCH.as_str())?;
    let id = OperationId::parse(&id).ok_or_else(|| Refusal::new(Code::NotFound))?;
    let row = id.key(&caller.machine().tenant);
    let until = Instant::now() + Duration::from_millis(wait_ms);
    loop {
        // Subscribed before the read: a change in between is not missed.
        let wait = known.and_then(|_| app.waits.enter(until, || app.node.subscribe(&row)));
        let found = read(&app, &caller, &id, query.consistency).await?;
        let unchanged =
            matches!((known, &found.tag), (Some(known), Some(tag)) if headers::none_match_names(known, tag));
        if !unchanged {
            return view(found);
        }
        let over = match wait {
            Some(mut wait) => wait.woken(found.reading.lease_remaining_ms).await == Woken::Over,
            None => true,
        };
        if over {
            return Ok(not_modified(&found));
        }
    }
}

async fn read(
    app: &App,
    caller: &Caller,
    id: &OperationId,
    consistency: Option<Consistency>,
) -> Result<Tagged, Refusal> {
    let guard = match consistency {
        None => app.node.read(Instant::now() + app.request_timeout).await?,
        Some(Consistency::Local) => app.node.local(),
    };
    let found = read::by_id(&*guard, caller.machine(), id)?;
    let reading = now(app, found.ok_or_else(|| Refusal::new(Code::NotFound))?);
    let settled = reading.state == reading.record.state();
    let tag = settled.then(|| headers::etag(&convert::revision(reading.record.modified)));
    Ok(Tagged { reading, revision: guard.revision(), consistency, tag })
}

/// The state's lease time is that of the last entry; what passed since then is gone from the lease too.
fn now(app: &App, mut reading: Reading) -> Reading {
    let since = app.node.since_applied_ms();
    reading.lease_remaining_ms = reading.lease_remaining_ms.map(|remaining| remaining.saturating_sub(since));
    if let Some((_, remaining)) = &mut reading.reconciler {
        *remaining = remaining.saturating_sub(since);
    }
    reading
}

pub(super) async fn lookup(State(app): State<App>, caller: Caller, payload: Body) -> Result<Reply, Refusal> {
    let request = Lookup::read(&body(&app, payload).await?, &app.limits)?;
    let policy = calls::namespace(&app, &caller, &request.namespace)?;
    let guard = app.node.read(Instant::now() + app.request_timeout).await?;
    let (tenant, limit) = (&caller.machine().tenant, page_items(request.limit));
    let question = match &request.by {
        LookupBy::Key { .. } => ["key", ""],
        LookupBy::ExternalId(id) => ["external-id", id.as_str()],
        LookupBy::Resource(resource) => ["resource", resource.as_str()],
    };
    let filter = pages::filter(&caller, "lookup", &[policy.name.as_str(), question[0], question[1]]);
    let after = pages::place(pages::start(request.cursor.as_ref(), filter)?);
    let (found, position) = match &request.by {
        LookupBy::Key { key, business_epoch } => {
            let internal_key = convert::key_of(caller.machine(), &policy, key, business_epoch.as_ref());
            let row = OperationKey::new(tenant, &internal_key);
            let reading = read::by_key(&*guard, caller.machine(), &row)?;
            return page(&app, &guard, reading.into_iter().collect(), None);
        }
        LookupBy::ExternalId(id) => guard.by_external_id(tenant, &policy.name, id.as_str(), after.as_ref(), limit)?,
        LookupBy::Resource(resource) => {
            let resource = Resource::new(resource.as_str());
            guard.by_resource(tenant, &policy.name, &resource, after.as_ref(), limit)?
        }
    };
    let cursor =
        pages::next(pages::bytes(position), filter, request.cursor.as_ref(), convert::revision(guard.revision()));
    page(&app, &guard, readings(&guard, &caller, &found)?, cursor)
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Reply, Refusal> {
    let query = ListQuery::read(query.as_deref().unwrap_or_default(), &app.limits)?;
    let policy = calls::namespace(&app, &caller, &query.namespace)?;
    let older = query.older_than.map(|at| at.0.to_string()).unwrap_or_default();
    let filter = pages::filter(&caller, "list", &[policy.name.as_str(), query.state.as_str(), &older]);
    let after = pages::place(pages::start(query.cursor.as_ref(), filter)?);
    let guard = app.node.read(Instant::now() + app.request_timeout).await?;
    let older_than = query.older_than.map(|at| WallTime(at.0));
    let limit = page_items(query.limit.unwrap_or_default());
    let tenant = &caller.machine().tenant;
    let (found, position) =
        guard.list(tenant, &policy.name, class(query.state), older_than, after.as_ref(), limit)?;
    let cursor =
        pages::next(pages::bytes(position), filter, query.cursor.as_ref(), convert::revision(guard.revision()));
    page(&app, &guard, readings(&guard, &caller, &found)?, cursor)
}

fn page_items(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn class(state: ListState) -> Class {
    match state {
        ListState::Requested => Class::Requested,
        ListState::Executing => Class::Executing,
        ListState::Unknown => Class::Unknown,
        ListState::Escalated => Class::Escalated,
        ListState::NotApplied => Class::NotApplied,
        ListState::Completed => Class::Completed,
        ListState::Failed => Class::Failed,
        ListState::Quarantined => Class::Quarantined,
    }
}

/// The records as this caller may see them; settled, and authorised once more.
fn readings(guard: &ReadGuard, caller: &Caller, found: &[OperationRecord]) -> Result<Vec<Reading>, Refusal> {
    let mut readings = Vec::with_capacity(found.len());
    for record in found {
        readings.extend(read::by_id(&**guard, caller.machine(), &record.id)?);
    }
    Ok(readings)
}

fn page(
    app: &App,
    guard: &ReadGuard,
    readings: Vec<Reading>,
    next_cursor: Option<hapax_api::cursor::Cursor>,
) -> Result<Reply, Refusal> {
    let at = guard.revision();
    let operations = readings.into_iter().map(|reading| convert::operation(now(app, reading), at, None));
    let operations = operations.collect::<Result<_, Refusal>>()?;
    Reply::json(StatusCode::OK, &OperationPage { operations, next_cursor, revision: convert::revision(at) })
}

fn view(found: Tagged) -> Result<Response, Refusal> {
    let tag = found.tag;
    let mut response = json(StatusCode::OK, &convert::operation(found.reading, found.revision, found.consistency)?);
    tagged(&mut response, tag.as_deref());
    Ok(response)
}

fn not_modified(found: &Tagged) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    tagged(&mut response, found.tag.as_deref());
    response
}

fn tagged(response: &mut Response, tag: Option<&str>) {
    if let Some(value) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
        response.headers_mut().insert(ETAG, value);
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Refusal> {
    let value = headers.get(name).map(|value| value.to_str()).transpose();
    value.map_err(|_| Refusal::detail(Code::RequestInvalid, format!("{name} is not visible ASCII")))
}
