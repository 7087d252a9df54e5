//! `POST /v1/executions/{execution_id}/…`: renew, outcome, evidence, resolve.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use hapax_api::Code;
use hapax_api::execution::{EvidenceRequest, OutcomeRequest, RenewRequest, ResolveRequest};
use hapax_auth::Role;
use hapax_machine::Command;
use hapax_machine::ids::ExecutionId;
use hapax_machine::outcome::{Answer, Refusal as Reason};
use http::StatusCode;
use tokio::time::Instant;

use super::{body, json};
use crate::auth::Caller;
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;

type Id = Path<String>;

pub(super) async fn renew(
    State(app): State<App>,
    caller: Caller,
    Path(id): Id,
    payload: Body,
) -> Result<Response, Refusal> {
    caller.require(Role::Claim)?;
    let request = RenewRequest::read(&body(&app, payload).await?, &app.limits)?;
    propose(&app, convert::renew(caller.into_machine(), execution(&id)?, &request)).await
}

pub(super) async fn report(
    State(app): State<App>,
    caller: Caller,
    Path(id): Id,
    payload: Body,
) -> Result<Response, Refusal> {
    caller.require(Role::Claim)?;
    let request = OutcomeRequest::read(&body(&app, payload).await?, &app.limits)?;
    propose(&app, convert::report(caller.into_machine(), execution(&id)?, request)).await
}

pub(super) async fn evidence(
    State(app): State<App>,
    caller: Caller,
    Path(id): Id,
    payload: Body,
) -> Result<Response, Refusal> {
    caller.require(Role::Claim)?;
    let request = EvidenceRequest::read(&body(&app, payload).await?, &app.limits)?;
    propose(&app, convert::evidence(caller.into_machine(), execution(&id)?, request)).await
}

pub(super) async fn resolve(
    State(app): State<App>,
    caller: Caller,
    Path(id): Id,
    payload: Body,
) -> Result<Response, Refusal> {
    caller.require_any(&[Role::Reconcile, Role::Operate])?;
    let request = ResolveRequest::read(&body(&app, payload).await?, &app.limits)?;
    propose(&app, convert::resolve(caller.into_machine(), execution(&id)?, request)).await
}

/// A text that is no id cannot name anything: the same answer as for an absent one.
fn execution(id: &str) -> Result<ExecutionId, Refusal> {
    ExecutionId::parse(id).ok_or_else(|| Refusal::new(Code::NotFound))
}

async fn propose(app: &App, command: Command) -> Result<Response, Refusal> {
    let outcome = app.node.propose(command, Instant::now() + app.request_timeout).await?;
    let revision = outcome.revision;
    match outcome.answer {
        Answer::Renewed(lease) => Ok(json(StatusCode::OK, &convert::renewed(lease, revision))),
        Answer::Accepted(standing) => Ok(json(StatusCode::OK, &convert::accepted(&standing, revision)?)),
        Answer::Refused(refused) => {
            if refused.reason == Reason::LeaseStaleEpoch {
                metrics::counter!("hapax_fenced_writes_total").increment(1);
            }
            Err(convert::refused(&refused))
        }
        other => Err(unexpected(&other)),
    }
}

/// An answer that this command cannot have. It was applied, so nothing definite may be said.
pub(super) fn unexpected(answer: &Answer) -> Refusal {
    tracing::error!(?answer, "an answer of the wrong kind");
    Refusal::new(Code::StoreOutcomeUnknown)
}
