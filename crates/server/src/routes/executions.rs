//! `POST /v1/executions/{execution_id}/…` and `POST /v1/reconciliations/lease`.

use axum::body::Body;
use axum::extract::{Path, State};
use hapax_api::batch::ReadItem;
use hapax_api::execution::{EvidenceRequest, OutcomeRequest, RenewRequest, ResolveRequest};
use hapax_api::reconcile::{EscalateRequest, FenceRequest, ReconcileRequest};

use super::{by_id, single};
use crate::auth::Caller;
use crate::calls::Reply;
use crate::problem::Refusal;
use crate::state::App;

by_id! {
    renew = Renew, RenewRequest;
    outcome = Outcome, OutcomeRequest;
    evidence = Evidence, EvidenceRequest;
    resolve = Resolve, ResolveRequest;
    escalate = Escalate, EscalateRequest;
    fence = Fence, FenceRequest;
}

pub(super) async fn reconcile(State(app): State<App>, caller: Caller, payload: Body) -> Result<Reply, Refusal> {
    single(&app, &caller, payload, |body, limits| Ok(ReadItem::Reconcile(ReconcileRequest::read(body, limits)?)))
        .await
}
