//! The routes, one file per resource, and what they share: who calls, how a body is read, how an answer is written.

mod claims;
mod executions;
mod health;
mod operations;

use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, http::StatusCode};
use bytes::Bytes;
use hapax_api::{Code, endpoints, text};
use hapax_machine::ids::NamespaceName;
use hapax_machine::namespace::NamespaceRecord;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::auth::Caller;
use crate::http::{Gate, read_body, refuse_early};
use crate::problem::Refusal;
use crate::state::App;

/// The router of the client listener.
pub(crate) fn router(app: App, gate: Gate) -> Router {
    let calls = Router::new()
        .route(endpoints::CLAIMS, post(claims::claim))
        .route(endpoints::LOOKUP, post(operations::lookup))
        .route(endpoints::OPERATION, get(operations::get))
        .route(endpoints::RENEW, post(executions::renew))
        .route(endpoints::OUTCOME, post(executions::report))
        .route(endpoints::EVIDENCE, post(executions::evidence))
        .route(endpoints::RESOLVE, post(executions::resolve))
        .route(endpoints::CLUSTER, get(health::cluster))
        .route(endpoints::OPENAPI, get(health::openapi))
        .route(endpoints::ERROR_PAGE, get(health::error_page))
        .method_not_allowed_fallback(|| async { Refusal::new(Code::MethodNotAllowed) })
        .fallback(|| async { Refusal::new(Code::NotFound) })
        .layer(middleware::from_fn(measured))
        .layer(middleware::from_fn_with_state(gate, refuse_early));
    // Probes stay outside the gate: a busy node is alive, and is not to be restarted for being busy.
    Router::new()
        .route(endpoints::LIVEZ, get(health::live))
        .route(endpoints::READYZ, get(health::ready))
        .method_not_allowed_fallback(|| async { Refusal::new(Code::MethodNotAllowed) })
        .merge(calls)
        .with_state(app)
}

/// Counts and times each request by its route and its status; never by anything a caller chose.
async fn measured(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let begun = Instant::now();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str).to_owned();
    let code = response.status().as_str().to_owned();
    metrics::histogram!("hapax_http_request_duration_seconds", "route" => route, "code" => code)
        .record(begun.elapsed().as_secs_f64());
    response
}

/// The policy of a namespace that the caller may use.
fn namespace(app: &App, caller: &Caller, name: &text::Namespace) -> Result<NamespaceRecord, Refusal> {
    let name = NamespaceName::new(name.as_str());
    caller.require_namespace(&name)?;
    app.node.namespace(&caller.machine().tenant, &name).ok_or_else(|| {
        // A node that has not learnt its cluster's first commit cannot say that something is absent.
        Refusal::new(if app.node.is_bootstrapped() { Code::NotFound } else { Code::StoreUnavailable })
    })
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
