//! The client: claims and elections, and how every other call is made. The other calls are in `calls`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hapax_api::claim::{ClaimAnswer, Claimed};
use hapax_api::endpoints;
use hapax_api::execution::RenewRequest;
use hapax_api::limits::LEASE_MS_DEFAULT;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::claim::{Claim, Election};
use crate::lease::LeaseGuard;
use crate::outcome::{Failure, Outcome};
use crate::settings::{Settings, Unusable};
use crate::transport::{Answered, Call, Identity, Transport};

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
        self.call_timed(post(endpoints::CLAIMS.to_owned(), claim.request(), wait)).await
    }

    /// `POST /v1/claims`, and the lease is renewed in the background for as long as the guard lives.
    pub async fn elect(&self, claim: &Claim) -> Outcome<Election> {
        let (claimed, sent) = match self.claim_timed(claim).await {
            Outcome::Done((ClaimAnswer::Claimed(claimed), sent)) => (claimed, sent),
            Outcome::Done((ClaimAnswer::InProgress(answer), _)) => {
                return Outcome::Done(Election::InProgress(answer));
            }
            Outcome::Done((ClaimAnswer::Replayed(answer), _)) => return Outcome::Done(Election::Replayed(answer)),
            Outcome::Done((ClaimAnswer::DuplicateDelivery(answer), _)) => {
                return Outcome::Done(Election::DuplicateDelivery(answer));
            }
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

    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    pub(crate) async fn read<T: DeserializeOwned>(&self, path: String) -> Outcome<T> {
        valued(self.transport.call(&get(path)).await).map(|(value, _)| value)
    }

    pub(crate) async fn read_tagged<T: DeserializeOwned>(&self, path: String) -> Outcome<Tagged<T>> {
        tagged(self.transport.call(&get(path)).await)
    }

    /// A mutating call that gets the same answer when it is sent again.
    pub(crate) async fn change<T: DeserializeOwned>(&self, path: String, body: &impl Serialize) -> Outcome<T> {
        self.call(post(path, body, Duration::ZERO)).await
    }

    /// A call of a method, body and identity of its own.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Result<Call, serde_json::Error>) -> Outcome<T> {
        self.call_timed(call).await.map(|(value, _)| value)
    }

    pub(crate) async fn call_timed<T: DeserializeOwned>(
        &self,
        call: Result<Call, serde_json::Error>,
    ) -> Outcome<(T, Instant)> {
        match call {
            Ok(call) => valued(self.transport.call(&call).await),
            Err(error) => unwritten(&error),
        }
    }
}

/// A path with its ids in their places. Ids and names have no characters that a path would have to escape.
pub(crate) fn path(template: &str, name: &str, value: &str) -> String {
    template.replace(&format!("{{{name}}}"), value)
}

/// A path with its query.
pub(crate) fn with_query(path: &str, query: &str) -> String {
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

pub(crate) fn get(path: String) -> Call {
    let (identity, wait) = (Identity::Read, Duration::ZERO);
    Call { method: Method::GET, path, body: None, identity, wait, headers: Vec::new() }
}

pub(crate) fn post(path: String, body: &impl Serialize, wait: Duration) -> Result<Call, serde_json::Error> {
    let body = Some(serde_json::to_vec(body)?);
    Ok(Call { method: Method::POST, path, body, identity: Identity::Own, wait, headers: Vec::new() })
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

pub(crate) fn tagged<T>(outcome: Outcome<Answered<T>>) -> Outcome<Tagged<T>> {
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
