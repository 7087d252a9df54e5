//! What a node says about itself: liveness, readiness, the cluster, the OpenAPI document, the pages of its errors.

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use hapax_api::cluster::{Check, ClusterView, Liveness, Member, Readiness, Role};
use hapax_api::{Code, openapi};
use hapax_consensus::node::NotReady;
use hapax_consensus::status;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use std::sync::LazyLock;
use tokio::time::Instant;

use super::json;
use crate::auth::Caller;
use crate::problem::Refusal;
use crate::state::App;

pub(super) async fn live() -> Response {
    json(StatusCode::OK, &Liveness { alive: true })
}

pub(super) async fn ready(State(app): State<App>, RawQuery(query): RawQuery) -> Response {
    let verbose = query.is_some_and(|query| query.split('&').any(|part| part == "verbose"));
    let found = app.node.ready(Instant::now() + app.request_timeout).await;
    let checks = checks(found.err());
    let ready = checks.iter().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &Readiness { ready, checks: if verbose { checks } else { Vec::new() } })
}

/// Every check, with what failed of them; what stands after a failed one was not looked at.
fn checks(failed: Option<NotReady>) -> Vec<Check> {
    const NAMES: [&str; 4] = ["storage", "accepting", "quorum", "bootstrapped"];
    let at = match &failed {
        None => NAMES.len(),
        Some(NotReady::Fatal(_)) => 0,
        Some(NotReady::Draining) => 1,
        Some(NotReady::NoQuorum) => 2,
        Some(NotReady::NotBootstrapped) => 3,
    };
    let said = failed.map(|reason| reason.to_string());
    let check = |(number, name): (usize, &&str)| Check {
        name: (*name).to_owned(),
        ok: number < at,
        detail: if number == at { said.clone() } else { None },
    };
    NAMES.iter().enumerate().take(at + 1).map(check).collect()
}

pub(super) async fn cluster(State(app): State<App>, _: Caller) -> Result<Response, Refusal> {
    let status = app.node.status();
    let view = ClusterView {
        cluster: app.cluster.clone(),
        node_id: status.node_id,
        leader_id: status.leader,
        term: status.term,
        members: status.members.into_iter().map(member).collect(),
    };
    Ok(json(StatusCode::OK, &view))
}

fn member(member: status::Member) -> Member {
    Member {
        id: member.id,
        region: member.region,
        role: match member.role {
            status::Role::Leader => Role::Leader,
            status::Role::Voter => Role::Voter,
            status::Role::Learner => Role::Learner,
        },
        client_url: member.client_url,
        applied_index: member.applied_index,
        lag: member.lag,
        reachable: Some(member.reachable),
    }
}

pub(super) async fn openapi() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(openapi::text);
    text("application/json", &DOCUMENT)
}

pub(super) async fn error_page(Path(code): Path<String>) -> Result<Response, Refusal> {
    let code = Code::parse(&code).ok_or_else(|| Refusal::new(Code::NotFound))?;
    Ok(text("text/markdown; charset=utf-8", code.page()))
}

fn text(kind: &'static str, body: &str) -> Response {
    let mut response = Response::new(body.to_owned().into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
