//! `GET /v1/operations/{operation_id}` with long-poll, and `POST /v1/operations/lookup`.
//! Reads are linearizable: each waits for a ReadIndex that began after it arrived.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use hapax_api::operation::LookupRequest;
use hapax_api::{Code, headers};
use hapax_auth::Role;
use hapax_machine::ids::{OperationId, OperationKey};
use hapax_machine::read::{self, Reading};
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::{body, json};
use crate::auth::Caller;
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;
use crate::waits::Woken;

/// RFC 7240's header; `http` has no constant for it.
const PREFER: &str = "prefer";

/// An operation and the tag of what was read.
struct Tagged {
    reading: Reading,
    revision: hapax_machine::ids::Revision,
    /// Absent where a lapse is visible but not yet applied: the stored tag would say that nothing changed.
    tag: Option<String>,
}

pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    caller.require_any(&[Role::Read, Role::Claim])?;
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
        let found = read(&app, &caller, &row, Some(&id)).await?;
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

pub(super) async fn lookup(State(app): State<App>, caller: Caller, payload: Body) -> Result<Response, Refusal> {
    caller.require_any(&[Role::Read, Role::Claim])?;
    let request = LookupRequest::read(&body(&app, payload).await?, &app.limits)?;
    let policy = super::namespace(&app, &caller, &request.namespace)?;
    let internal_key = convert::key_of(caller.machine(), &policy, &request.key, request.business_epoch.as_ref());
    let row = OperationKey::new(&caller.machine().tenant, &internal_key);
    view(read(&app, &caller, &row, None).await?)
}

async fn read(app: &App, caller: &Caller, row: &OperationKey, id: Option<&OperationId>) -> Result<Tagged, Refusal> {
    let guard = app.node.read(Instant::now() + app.request_timeout).await?;
    let found = match id {
        Some(id) => read::by_id(&*guard, caller.machine(), id)?,
        None => read::by_key(&*guard, caller.machine(), row)?,
    };
    let mut reading = found.ok_or_else(|| Refusal::new(Code::NotFound))?;
    // The state's lease time is that of the last entry; what passed since then is gone from the lease too.
    let since = app.node.since_applied_ms();
    reading.lease_remaining_ms = reading.lease_remaining_ms.map(|remaining| remaining.saturating_sub(since));
    let settled = reading.state == reading.record.state();
    let tag = settled.then(|| headers::etag(&convert::revision(reading.record.modified)));
    Ok(Tagged { reading, revision: guard.revision(), tag })
}

fn view(found: Tagged) -> Result<Response, Refusal> {
    let tag = found.tag;
    let mut response = json(StatusCode::OK, &convert::operation(found.reading, found.revision)?);
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
