//! Executions: renewed, reported, reconciled, escalated, fenced.

use std::time::Duration;

use hapax_api::execution::{Accepted, EvidenceRequest, OutcomeRequest, RenewRequest, Renewed, ResolveRequest};
use hapax_api::reconcile::{EscalateRequest, FenceRequest, ReconcileRequest, Reconciling};
use hapax_api::text::ExecutionId;
use hapax_api::{Code, endpoints};
use tokio::time::Instant;

use crate::client::{Client, path, post};
use crate::outcome::Outcome;
use crate::transport::{Call, Identity};

fn of(template: &str, id: &ExecutionId) -> String {
    path(template, "execution_id", id.as_str())
}

impl Client {
    /// `POST /v1/executions/{id}/renew`.
    pub async fn renew(&self, id: &ExecutionId, request: &RenewRequest) -> Outcome<Renewed> {
        self.renew_timed(id, request).await.map(|(renewed, _)| renewed)
    }

    pub(crate) async fn renew_timed(&self, id: &ExecutionId, request: &RenewRequest) -> Outcome<(Renewed, Instant)> {
        self.call_timed(post(of(endpoints::RENEW, id), request, Duration::ZERO)).await
    }

    /// `POST /v1/executions/{id}/outcome`.
    pub async fn report(&self, id: &ExecutionId, request: &OutcomeRequest) -> Outcome<Accepted> {
        self.change(of(endpoints::OUTCOME, id), request).await
    }

    /// `POST /v1/executions/{id}/evidence`.
    pub async fn evidence(&self, id: &ExecutionId, request: &EvidenceRequest) -> Outcome<Accepted> {
        self.change(of(endpoints::EVIDENCE, id), request).await
    }

    /// `POST /v1/reconciliations/lease`. The same owner asking again gets the same executions, and their leases go on.
    pub async fn reconcile_lease(&self, request: &ReconcileRequest) -> Outcome<Reconciling> {
        self.change(endpoints::RECONCILE.to_owned(), request).await
    }

    /// `POST /v1/executions/{id}/resolve`.
    pub async fn resolve(&self, id: &ExecutionId, request: &ResolveRequest) -> Outcome<Accepted> {
        self.change(of(endpoints::RESOLVE, id), request).await
    }

    /// `POST /v1/executions/{id}/escalate`.
    pub async fn escalate(&self, id: &ExecutionId, request: &EscalateRequest) -> Outcome<Accepted> {
        self.change(of(endpoints::ESCALATE, id), request).await
    }

    /// `POST /v1/executions/{id}/fence`. A fence ends the lease epoch that it names: where an attempt was lost,
    /// `lease.stale-epoch` may be its own doing, and is [`Outcome::Unknown`]. Reading the operation tells.
    pub async fn fence(&self, id: &ExecutionId, request: &FenceRequest) -> Outcome<Accepted> {
        let call = post(of(endpoints::FENCE, id), request, Duration::ZERO);
        let identity = Identity::OwnUnless(Code::LeaseStaleEpoch);
        self.call(call.map(|call| Call { identity, ..call })).await
    }
}
