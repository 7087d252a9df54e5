//! The routes, one file per resource, and what they share: who calls, how a body is read, how an answer is written.

mod capabilities;
mod claims;
mod epochs;
mod evidence;
mod executions;
mod health;
mod namespaces;
mod operations;
mod pages;
mod tenants;
mod tokens;
mod versions;
mod watch;

use std::str::FromStr;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, http::StatusCode};
use bytes::Bytes;
use hapax_api::batch::ReadItem;
use hapax_api::{Code, Limits, endpoints};
use hapax_machine::ids::NamespaceName;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::auth::Caller;
use crate::calls::{self, Reply};
use crate::http::{Guard, read_body};
use crate::problem::Refusal;
use crate::room::Room;
use crate::state::App;

/// The router of the client listener.
pub(crate) fn router(app: App, room: Room) -> Router {
    let calls = Router::new()
        .merge(protocol())
        .merge(administration())
        .route(endpoints::CLUSTER, get(health::cluster))
        .route(endpoints::OPENAPI, get(health::openapi))
        .route(endpoints::ERROR_PAGE, get(health::error_page))
        .method_not_allowed_fallback(|| async { Refusal::new(Code::MethodNotAllowed) })
        .fallback(|| async { Refusal::new(Code::NotFound) })
        .layer(Guard(room));
    // Probes stay outside that room: a busy node is alive, and is not to be restarted for being busy.
    Router::new()
        .route(endpoints::LIVEZ, get(health::live))
        .route(endpoints::READYZ, get(health::ready))
        .method_not_allowed_fallback(|| async { Refusal::new(Code::MethodNotAllowed) })
        .merge(calls)
        .with_state(app)
}

/// What services, deciders and reconcilers call.
fn protocol() -> Router<App> {
    Router::new()
        .route(endpoints::CLAIMS, post(claims::claim))
        .route(endpoints::BATCH, post(claims::batch))
        .route(endpoints::OPERATIONS, post(claims::register).get(operations::list))
        .route(endpoints::LOOKUP, post(operations::lookup))
        .route(endpoints::OPERATION, get(operations::get))
        .route(endpoints::QUARANTINE, post(operations::quarantine))
        .route(endpoints::RELEASE, post(operations::release))
        .route(endpoints::SUPERSEDE, post(operations::supersede))
        .route(endpoints::CLOSE, post(operations::close))
        .route(endpoints::ISSUE, post(capabilities::issue))
        .route(endpoints::CAPABILITIES, post(capabilities::issue_bounded))
        .route(endpoints::CAPABILITY, get(capabilities::get))
        .route(endpoints::REVOKE, post(capabilities::revoke))
        .route(endpoints::RENEW, post(executions::renew))
        .route(endpoints::OUTCOME, post(executions::outcome))
        .route(endpoints::EVIDENCE, post(executions::evidence))
        .route(endpoints::RESOLVE, post(executions::resolve))
        .route(endpoints::ESCALATE, post(executions::escalate))
        .route(endpoints::FENCE, post(executions::fence))
        .route(endpoints::RECONCILE, post(executions::reconcile))
        .route(endpoints::EPOCH, get(epochs::get))
        .route(endpoints::BUMP, post(epochs::bump))
        .route(endpoints::EVIDENCE_RECORD, get(evidence::list))
        .route(endpoints::WATCH, get(watch::watch))
}

/// What administrators call.
fn administration() -> Router<App> {
    Router::new()
        .route(endpoints::NAMESPACES, get(namespaces::list))
        .route(endpoints::NAMESPACE, get(namespaces::get).put(namespaces::put))
        .route(endpoints::TENANTS, get(tenants::list))
        .route(endpoints::TENANT, get(tenants::get).put(tenants::put))
        .route(endpoints::TOKENS, get(tokens::list).post(tokens::create))
        .route(endpoints::REVOKE_TOKEN, post(tokens::revoke))
}

/// A single call, made as it would be in a batch.
async fn single(
    app: &App,
    caller: &Caller,
    payload: Body,
    read: impl FnOnce(&[u8], &Limits) -> Result<ReadItem, Refusal>,
) -> Result<Reply, Refusal> {
    let payload = body(app, payload).await?;
    calls::perform(app, caller, read(&payload, &app.limits)?).await
}

/// Handlers of calls whose path names one id and whose body is one request.
macro_rules! by_id {
    ($($name:ident = $kind:ident, $request:ty;)+) => {$(
        pub(super) async fn $name(
            State(app): State<App>,
            caller: Caller,
            Path(id): Path<String>,
            payload: Body,
        ) -> Result<Reply, Refusal> {
            single(&app, &caller, payload, |body, limits| {
                let request = <$request>::read(body, limits)?;
                Ok(ReadItem::$kind(super::parsed(&id)?, request))
            })
            .await
        }
    )+};
}
use by_id;

/// A segment of a path as what it names. A text that cannot name anything gets the same answer as an absent thing's name.
fn parsed<T: FromStr>(segment: &str) -> Result<T, Refusal> {
    segment.parse().map_err(|_| Refusal::new(Code::NotFound))
}

/// The namespaces that the caller may use, of those that this node knows.
pub(crate) fn own_namespaces(app: &App, caller: &Caller) -> Vec<NamespaceName> {
    let view = app.node.local();
    let all = view.namespaces_of(&caller.machine().tenant);
    all.into_iter().map(|record| record.name.clone()).filter(|name| caller.machine().may_use(name)).collect()
}

/// The body of a call, bounded as the configuration says.
async fn body(app: &App, body: Body) -> Result<Bytes, Refusal> {
    read_body(body, app.limits.body_bytes, app.body_timeout).await
}

/// An answer as JSON.
fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            *response.status_mut() = status;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        // The call may have been applied; only its answer could not be written.
        Err(error) => {
            tracing::error!(%error, "an answer could not be serialised");
            Refusal::new(Code::StoreOutcomeUnknown).into_response()
        }
    }
}
