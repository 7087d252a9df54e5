//! `POST /v1/claims`.

use std::time::Duration;

use axum::body::Body;
use axum::extract;
use axum::response::{IntoResponse, Response};
use hapax_api::claim::{Claim, ClaimAnswer};
use hapax_api::headers::{IDEMPOTENCY_KEY, IDEMPOTENCY_REPLAYED, idempotency_key};
use hapax_api::{Code, Problem};
use hapax_auth::Role;
use hapax_machine::Command;
use hapax_machine::command;
use hapax_machine::ids::{ClaimId, OperationKey};
use hapax_machine::namespace::ConflictStyle;
use hapax_machine::operation::State;
use hapax_machine::outcome::{Answer, Outcome, Standing};
use hapax_machine::read;
use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::{body, json};
use crate::auth::Caller;
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;
use crate::waits::Woken;

/// Longest pause that `Retry-After` asks for, in seconds.
const RETRY_AFTER_SECONDS_MAX: u64 = 60;

pub(super) async fn claim(
    extract::State(app): extract::State<App>,
    caller: Caller,
    headers: HeaderMap,
    payload: Body,
) -> Result<Response, Refusal> {
    caller.require(Role::Claim)?;
    let payload = body(&app, payload).await?;
    let key = match headers.get(IDEMPOTENCY_KEY).map(HeaderValue::to_str) {
        None => None,
        Some(Ok(value)) => Some(idempotency_key(value)?),
        Some(Err(_)) => return Err(Refusal::detail(Code::RequestInvalid, "Idempotency-Key is not visible ASCII")),
    };
    let request = Claim::read(&payload, key, &app.limits)?;
    let wait = Duration::from_millis(request.wait_ms);
    let command = command(&app, &caller, request)?;
    let begun = Instant::now();
    let outcome = settle(&app, command, begun + wait).await;
    measure(&outcome, begun);
    answer(&outcome?)
}

fn command(app: &App, caller: &Caller, request: Claim) -> Result<command::Claim, Refusal> {
    let policy = super::namespace(app, caller, &request.namespace)?;
    // Without an id of its own a lost answer cannot be asked for again; it still must differ from every other.
    let claim_id = request.claim_id.map_or_else(rand::random, |id| id.0);
    Ok(convert::claim(caller.machine().clone(), &policy, request, ClaimId(claim_id), rand::random()))
}

/// Claims, and while another executor is at work and there is time left to wait, claims again when that is over.
async fn settle(app: &App, claim: command::Claim, until: Instant) -> Result<Outcome, Refusal> {
    let row = OperationKey::new(&claim.caller.tenant, &claim.internal_key);
    loop {
        // Subscribed before the claim is applied: a change in between is not missed.
        let wait = app.waits.enter(until, || app.node.subscribe(&row));
        let deadline = Instant::now() + app.request_timeout;
        let outcome = app.node.propose(Command::Claim(claim.clone()), deadline).await?;
        let (Answer::InProgress(standing), Some(mut wait)) = (&outcome.answer, wait) else {
            return Ok(outcome);
        };
        let mut remaining = standing.lease_remaining_ms;
        loop {
            if wait.woken(remaining).await == Woken::Over {
                return Ok(outcome);
            }
            // A renewal wakes every waiter too. Looking here, at what is applied on this node, only saves proposals
            // that could learn nothing new; it answers nobody.
            match still_executing(app, &claim, &row)? {
                Some(left) => remaining = Some(left),
                None => break,
            }
        }
    }
}

/// What is left of the lease under which the operation executes, as this node last saw it; `None` where it does not.
fn still_executing(app: &App, claim: &command::Claim, row: &OperationKey) -> Result<Option<u64>, Refusal> {
    let seen = read::by_key(&*app.node.local(), &claim.caller, row)?;
    Ok(seen.filter(|seen| seen.state == State::Executing).and_then(|seen| seen.lease_remaining_ms))
}

fn answer(outcome: &Outcome) -> Result<Response, Refusal> {
    let revision = outcome.revision;
    match &outcome.answer {
        Answer::Claimed(grant) => Ok(success(&convert::claimed(grant, revision)?)),
        Answer::Replayed(receipt) => {
            let mut response = success(&convert::replayed(receipt.clone(), revision)?);
            response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Answer::InProgress(standing) => in_progress(standing, outcome),
        Answer::Refused(refused) => Err(convert::refused(refused)),
        other => Err(super::executions::unexpected(other)),
    }
}

fn in_progress(standing: &Standing, outcome: &Outcome) -> Result<Response, Refusal> {
    let mut response = match standing.conflict_style {
        ConflictStyle::Hapax => success(&convert::in_progress(standing, outcome.revision)?),
        ConflictStyle::Ietf => {
            let mut problem = Problem::new(Code::OperationExecuting);
            problem.operation_id = standing.operation_id.to_string().parse().ok();
            Refusal::from(problem).into_response()
        }
    };
    let headers = response.headers_mut();
    let seconds = standing.lease_remaining_ms.map_or(1, |ms| ms.div_ceil(1_000)).clamp(1, RETRY_AFTER_SECONDS_MAX);
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    if let Ok(location) = HeaderValue::try_from(format!("/v1/operations/{}", standing.operation_id)) {
        headers.insert(LOCATION, location);
    }
    Ok(response)
}

fn success(answer: &ClaimAnswer) -> Response {
    json(StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::OK), answer)
}

fn measure(outcome: &Result<Outcome, Refusal>, begun: Instant) {
    let result = match outcome {
        Ok(outcome) => match &outcome.answer {
            Answer::Claimed(_) => "claimed",
            Answer::InProgress(_) => "in_progress",
            Answer::Replayed(_) => "replayed",
            Answer::Refused(refused) => {
                if refused.reason == hapax_machine::Refusal::KeyDigestMismatch {
                    metrics::counter!("hapax_digest_conflicts_total").increment(1);
                }
                "refused"
            }
            _ => "other",
        },
        Err(refusal) if refusal.0.code == Code::StoreOutcomeUnknown => "outcome_unknown",
        Err(_) => "unavailable",
    };
    metrics::counter!("hapax_claims_total", "result" => result).increment(1);
    metrics::histogram!("hapax_claim_duration_seconds").record(begun.elapsed().as_secs_f64());
}
