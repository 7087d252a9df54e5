//! `POST /v1/claims`, `POST /v1/operations` and `POST /v1/batch`: what names keys, or many calls at once.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use hapax_api::batch::{Batch, BatchAnswer, BatchResult, ReadItem};
use hapax_api::claim::Claim;
use hapax_api::headers::{IDEMPOTENCY_KEY, idempotency_key};
use hapax_api::json::RawJson;
use hapax_api::register::Register;
use hapax_api::{Code, text};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::single;
use crate::auth::Caller;
use crate::calls::{self, Reply};
use crate::http::read_body;
use crate::problem::Refusal;
use crate::state::App;

pub(super) async fn claim(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    payload: Body,
) -> Result<Reply, Refusal> {
    let key = header_key(&headers);
    single(&app, &caller, payload, |body, limits| Ok(ReadItem::Claim(Claim::read(body, key?, limits)?))).await
}

pub(super) async fn register(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    payload: Body,
) -> Result<Reply, Refusal> {
    let key = header_key(&headers);
    single(&app, &caller, payload, |body, limits| Ok(ReadItem::Register(Register::read(body, key?, limits)?))).await
}

fn header_key(headers: &HeaderMap) -> Result<Option<text::Key>, Refusal> {
    match headers.get(IDEMPOTENCY_KEY).map(HeaderValue::to_str) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(idempotency_key(value)?)),
        Some(Err(_)) => Err(Refusal::detail(Code::RequestInvalid, "Idempotency-Key is not visible ASCII")),
    }
}

/// Makes every call of a batch, each answered by itself. They are proposed at once, so that one log entry takes most of them;
/// what becomes of one says nothing about another.
pub(super) async fn batch(State(app): State<App>, caller: Caller, payload: Body) -> Result<Response, Refusal> {
    let payload = read_body(payload, app.limits.batch_bytes, app.body_timeout).await?;
    let batch = Batch::read(&payload, &app.limits)?;
    let results = join_all(batch.items.into_iter().map(|item| one(&app, &caller, item))).await;
    Ok(Reply::json(StatusCode::OK, &BatchAnswer { results })?.into_response())
}

async fn one(app: &App, caller: &Caller, item: Result<ReadItem, hapax_api::Invalid>) -> BatchResult {
    let made = match item {
        Ok(item) => calls::perform(app, caller, item).await,
        Err(invalid) => Err(invalid.into()),
    };
    let written = made.and_then(|reply| {
        let body = String::from_utf8(reply.body).ok().and_then(|text| RawJson::stored(text).ok());
        let body = body.ok_or_else(|| Refusal::new(Code::StoreOutcomeUnknown))?;
        Ok(BatchResult { status: reply.status.as_u16(), body })
    });
    written.unwrap_or_else(|refusal| {
        let problem = refusal.problem();
        // A problem is strings and numbers: it can be written.
        BatchResult::new(problem.status, problem).unwrap_or_else(|error| unreachable!("{error}"))
    })
}
