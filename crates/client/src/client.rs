//! The typed calls, one method each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hapax_api::claim::{ClaimAnswer, Claimed};
use hapax_api::cluster::{ClusterView, Readiness};
use hapax_api::endpoints;
use hapax_api::execution::{Accepted, EvidenceRequest, OutcomeRequest, RenewRequest, Renewed, ResolveRequest};
use hapax_api::limits::LEASE_MS_DEFAULT;
use hapax_api::operation::{LookupRequest, OperationView};
use hapax_api::text::{ExecutionId, OperationId};
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::claim::{Claim, Election};
use crate::lease::LeaseGuard;
use crate::outcome::{Failure, Outcome};
use crate::settings::{Settings, Unusable};
use crate::transport::{Answered, Call, Transport};

/// A client of one cluster. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// An answer with its entity tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged<T> {
    /// The answer.
    pub value: T,
    /// What to give to [`Client::operation_change`].
    pub etag: String,
}

impl Client {
    /// A client that connects when it is first used.
    ///
    /// # Errors
    /// [`Unusable`]: no call could succeed with these settings.
    pub fn new(settings: Settings) -> Result<Client, Unusable> {
        Ok(Client { transport: Arc::new(Transport::new(settings)?) })
    }

    /// `POST /v1/claims`. The caller looks after the lease; [`Client::elect`] does it for them.
    pub async fn claim(&self, claim: &Claim) -> Outcome<ClaimAnswer> {
        self.claim_timed(claim).await.map(|(answer, _)| answer)
    }

    async fn claim_timed(&self, claim: &Claim) -> Outcome<(ClaimAnswer, Instant)> {
        let wait = Duration::from_millis(claim.request().wait_ms.unwrap_or(0));
        let call = match post(endpoints::CLAIMS.to_owned(), claim.request(), wait) {
            Ok(call) => call,
            Err(error) => return unwritten(&error),
        };
        valued(self.transport.call(&call).await)
    }

    /// `POST /v1/claims`, and the lease is renewed in the background for as long as the guard lives.
    pub async fn elect(&self, claim: &Claim) -> Outcome<Election> {
        let (claimed, sent) = match self.claim_timed(claim).await {
            Outcome::Done((ClaimAnswer::Claimed(claimed), sent)) => (claimed, sent),
            Outcome::Done((ClaimAnswer::InProgress(answer), _)) => {
                return Outcome::Done(Election::InProgress(answer));
            }
            Outcome::Done((ClaimAnswer::Replayed(answer), _)) => return Outcome::Done(Election::Replayed(answer)),
            Outcome::Refused(problem) => return Outcome::Refused(problem),
            Outcome::Unavailable(failure) => return Outcome::Unavailable(failure),
            Outcome::Unknown(failure) => return Outcome::Unknown(failure),
        };
        let lease_ms = claim.request().lease_ms.unwrap_or(LEASE_MS_DEFAULT);
        self.hold(claimed, sent, lease_ms).await
    }

    /// Counts the lease from when its claim was sent. After a long wait much of that is gone without reason, so
    /// the lease is renewed first: the renewal is sent and answered within moments.
    async fn hold(&self, mut claimed: Claimed, sent: Instant, lease_ms: u64) -> Outcome<Election> {
        let mut counted_from = sent;
        if sent.elapsed() > Duration::from_millis(claimed.lease_expires_in_ms / 4) {
            let request = RenewRequest { lease_epoch: claimed.lease_epoch, lease_ms };
            match self.renew_timed(&claimed.execution_id, &request).await {
                Outcome::Done((renewed, sent)) => {
                    claimed.lease_expires_in_ms = renewed.lease_expires_in_ms;
                    claimed.renew_by_ms = renewed.renew_by_ms;
                    counted_from = sent;
                }
                Outcome::Refused(problem) => return Outcome::Refused(problem),
                // The claim itself was applied.
                Outcome::Unavailable(failure) | Outcome::Unknown(failure) => return Outcome::Unknown(failure),
            }
        }
        Outcome::Done(Election::Held(LeaseGuard::start(self.clone(), claimed, counted_from, lease_ms)))
    }

    /// `GET /v1/operations/{id}`.
    pub async fn operation(&self, id: &OperationId) -> Outcome<Tagged<OperationView>> {
        let call = get(endpoints::OPERATION.replace("{operation_id}", id.as_str()));
        tagged(self.transport.call(&call).await)
    }

    /// `GET /v1/operations/{id}`, which waits up to `wait` (whole seconds) until the operation is no longer as
    /// `etag` says. `None` where it still is.
    pub async fn operation_change(
        &self,
        id: &OperationId,
        etag: &str,
        wait: Duration,
    ) -> Outcome<Option<Tagged<OperationView>>> {
        let path = endpoints::OPERATION.replace("{operation_id}", id.as_str());
        let call = Call { if_none_match: Some(etag.to_owned()), wait, ..get(path) };
        match self.transport.call(&call).await {
            Outcome::Done(Answered { value: None, .. }) => Outcome::Done(None),
            other => tagged(other).map(Some),
        }
    }

    /// `POST /v1/operations/lookup`.
    pub async fn lookup(&self, request: &LookupRequest) -> Outcome<Tagged<OperationView>> {
        match post(endpoints::LOOKUP.to_owned(), request, Duration::ZERO) {
            Ok(call) => tagged(self.transport.call(&Call { mutates: false, ..call }).await),
            Err(error) => unwritten(&error),
        }
    }

    /// `POST /v1/executions/{id}/renew`.
    pub async fn renew(&self, id: &ExecutionId, request: &RenewRequest) -> Outcome<Renewed> {
        self.renew_timed(id, request).await.map(|(renewed, _)| renewed)
    }

    pub(crate) async fn renew_timed(&self, id: &ExecutionId, request: &RenewRequest) -> Outcome<(Renewed, Instant)> {
        self.execution(endpoints::RENEW, id, request).await
    }

    /// `POST /v1/executions/{id}/outcome`.
    pub async fn report(&self, id: &ExecutionId, request: &OutcomeRequest) -> Outcome<Accepted> {
        self.execution(endpoints::OUTCOME, id, request).await.map(|(accepted, _)| accepted)
    }

    /// `POST /v1/executions/{id}/evidence`.
    pub async fn evidence(&self, id: &ExecutionId, request: &EvidenceRequest) -> Outcome<Accepted> {
        self.execution(endpoints::EVIDENCE, id, request).await.map(|(accepted, _)| accepted)
    }

    /// `POST /v1/executions/{id}/resolve`.
    pub async fn resolve(&self, id: &ExecutionId, request: &ResolveRequest) -> Outcome<Accepted> {
        self.execution(endpoints::RESOLVE, id, request).await.map(|(accepted, _)| accepted)
    }

    async fn execution<T: DeserializeOwned>(
        &self,
        path: &str,
        id: &ExecutionId,
        request: &impl Serialize,
    ) -> Outcome<(T, Instant)> {
        match post(path.replace("{execution_id}", id.as_str()), request, Duration::ZERO) {
            Ok(call) => valued(self.transport.call(&call).await),
            Err(error) => unwritten(&error),
        }
    }

    /// `GET /v1/cluster`.
    pub async fn cluster(&self) -> Outcome<ClusterView> {
        valued(self.transport.call(&get(endpoints::CLUSTER.to_owned())).await).map(|(view, _)| view)
    }

    /// `GET /readyz`: whether the node can answer. A node that cannot is [`Outcome::Unavailable`].
    pub async fn readiness(&self) -> Outcome<Readiness> {
        valued(self.transport.call(&get(endpoints::READYZ.to_owned())).await).map(|(readiness, _)| readiness)
    }
}

fn get(path: String) -> Call {
    Call { method: Method::GET, path, body: None, mutates: false, wait: Duration::ZERO, if_none_match: None }
}

fn post(path: String, body: &impl Serialize, wait: Duration) -> Result<Call, serde_json::Error> {
    let body = Some(serde_json::to_vec(body)?);
    Ok(Call { method: Method::POST, path, body, mutates: true, wait, if_none_match: None })
}

/// A call that cannot be written was certainly not sent.
fn unwritten<T>(error: &serde_json::Error) -> Outcome<T> {
    Outcome::Unavailable(Failure { detail: format!("the call cannot be written: {error}"), problem: None })
}

/// A 304 that nobody asked for is not an answer.
fn valued<T>(outcome: Outcome<Answered<T>>) -> Outcome<(T, Instant)> {
    match outcome {
        Outcome::Done(Answered { value: Some(value), sent, .. }) => Outcome::Done((value, sent)),
        Outcome::Done(Answered { value: None, .. }) => Outcome::Unknown(unasked()),
        Outcome::Refused(problem) => Outcome::Refused(problem),
        Outcome::Unavailable(failure) => Outcome::Unavailable(failure),
        Outcome::Unknown(failure) => Outcome::Unknown(failure),
    }
}

fn tagged<T>(outcome: Outcome<Answered<T>>) -> Outcome<Tagged<T>> {
    match outcome {
        Outcome::Done(Answered { value: Some(value), etag, .. }) => {
            Outcome::Done(Tagged { value, etag: etag.unwrap_or_default() })
        }
        Outcome::Done(Answered { value: None, .. }) => Outcome::Unavailable(unasked()),
        Outcome::Refused(problem) => Outcome::Refused(problem),
        Outcome::Unavailable(failure) => Outcome::Unavailable(failure),
        Outcome::Unknown(failure) => Outcome::Unknown(failure),
    }
}

fn unasked() -> Failure {
    Failure { detail: "304 to a call without a condition".to_owned(), problem: None }
}
