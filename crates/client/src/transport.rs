//! One call over HTTP: its attempts, the choice of a node, the pauses between, and what it all came to.
//!
//! An attempt is known not to be applied where no connection was made, or where a node says so (503). Everything
//! else that is not an answer of Hapax may have been applied: a timeout, a reset, a 504, or an answer that
//! something else on the way wrote. Once one attempt may have been applied, only an answer about the operation
//! itself settles the call; a later refusal of, say, the credential does not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hapax_api::codes::Code;
use hapax_api::{Certainty, Problem};
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::outcome::{Failure, Outcome};
use crate::settings::{Settings, Unusable};

/// Bytes read of an answer: above anything that a node writes, which is a page of 500 operations with their results.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest `Retry-After` that is followed; a longer one ends the call.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// A call to be made.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Vec<u8>>,
    /// How the call behaves when it is sent again.
    pub(crate) identity: Identity,
    /// How long the call asks the node to wait.
    pub(crate) wait: Duration,
    /// Headers of its own.
    pub(crate) headers: Vec<(HeaderName, String)>,
}

/// What happens when a call is sent again after an attempt that may have been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// It changes nothing: a lost answer is merely unavailable.
    Read,
    /// It is the same call, and gets the same answer.
    Own,
    /// It is the same call, but once it was applied it may be refused with this code: such a refusal settles nothing then.
    OwnUnless(Code),
    /// It would be another call: it is not sent again.
    None,
}

impl Identity {
    fn mutates(self) -> bool {
        self != Identity::Read
    }

    /// Whether a refusal tells what an earlier attempt did, too.
    fn settled_by(self, problem: &Problem) -> bool {
        self != Identity::OwnUnless(problem.code) && about_the_operation(problem.code)
    }
}

/// An answer of Hapax.
pub(crate) struct Answered<T> {
    /// `None` for 304.
    pub(crate) value: Option<T>,
    pub(crate) etag: Option<String>,
    /// When the attempt that was answered was sent: nothing in the answer is older.
    pub(crate) sent: Instant,
}

pub(crate) enum Attempt<T> {
    Answered(T),
    Problem {
        problem: Problem,
        retry_after: Option<Duration>,
    },
    /// Certainly not applied.
    NotSent(String),
    /// Perhaps applied.
    Lost(String),
}

pub(crate) struct Transport {
    http: reqwest::Client,
    bases: Vec<String>,
    authorization: HeaderValue,
    settings: Settings,
    /// The node that answered last.
    preferred: AtomicUsize,
}

impl Transport {
    pub(crate) fn new(settings: Settings) -> Result<Transport, Unusable> {
        let bases = settings.urls.iter().map(|url| base(url)).collect::<Result<Vec<String>, Unusable>>()?;
        if bases.is_empty() {
            return Err(Unusable::NoUrl);
        }
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {}", settings.token)).map_err(|_| Unusable::Token)?;
        authorization.set_sensitive(true);
        // A proxy of the environment would answer in the place of a node, and a redirect would send a call twice.
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Transport { http, bases, authorization, settings, preferred: AtomicUsize::new(0) })
    }

    /// Makes a call, again where that may help, until it is settled or its time or its attempts are over.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call) -> Outcome<Answered<T>> {
        let deadline = Instant::now() + self.settings.deadline + call.wait;
        let mut node = self.preferred();
        let mut round = Round::new(&self.settings);
        let mut perhaps = false;
        let mut last = Failure { detail: "no attempt was allowed".to_owned(), problem: None };
        for _ in 0..self.settings.attempts {
            if let Some(pause) = round.pause_before_next(&self.settings, self.bases.len()) {
                if Instant::now() + pause >= deadline {
                    break;
                }
                sleep(pause).await;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                break;
            };
            let limit = left.min(self.settings.attempt_timeout + call.wait);
            match self.attempt(call, node, limit).await {
                Attempt::Answered(answer) => {
                    self.preferred.store(node, Ordering::Relaxed);
                    return Outcome::Done(answer);
                }
                Attempt::Problem { problem, .. } if !sent_again(&problem) => {
                    if perhaps && !call.identity.settled_by(&problem) {
                        let detail = "refused after an attempt that may have been applied".to_owned();
                        return Outcome::Unknown(Failure { detail, problem: Some(problem) });
                    }
                    return Outcome::Refused(problem);
                }
                Attempt::Problem { problem, retry_after } => {
                    perhaps |= call.identity.mutates() && problem.outcome == Certainty::Unknown;
                    round.failed(retry_after);
                    // A limit on this caller is not escaped through another node.
                    if problem.code == Code::RateLimited {
                        round.finish(self.bases.len());
                    } else {
                        node = (node + 1) % self.bases.len();
                    }
                    last = Failure { detail: problem.title.clone(), problem: Some(problem) };
                }
                Attempt::NotSent(detail) => {
                    round.failed(None);
                    node = (node + 1) % self.bases.len();
                    last = Failure { detail, problem: None };
                }
                Attempt::Lost(detail) => {
                    perhaps |= call.identity.mutates();
                    round.failed(None);
                    node = (node + 1) % self.bases.len();
                    last = Failure { detail, problem: None };
                }
            }
            tracing::debug!(path = call.path, %last, perhaps, "an attempt failed");
            if perhaps && call.identity == Identity::None {
                break;
            }
        }
        if perhaps { Outcome::Unknown(last) } else { Outcome::Unavailable(last) }
    }

    async fn attempt<T: DeserializeOwned>(&self, call: &Call, node: usize, limit: Duration) -> Attempt<Answered<T>> {
        let sent = Instant::now();
        match timeout(limit, self.exchange(call, node, sent)).await {
            Ok(attempt) => attempt,
            Err(_) => Attempt::Lost(format!("{} did not answer within {limit:?}", self.bases[node])),
        }
    }

    async fn exchange<T: DeserializeOwned>(&self, call: &Call, node: usize, sent: Instant) -> Attempt<Answered<T>> {
        let base = &self.bases[node];
        let response = match self.request(call, node).send().await {
            Ok(response) => response,
            Err(error) => return unsent_or_lost(base, &error),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        match read(response).await {
            Ok(body) => understood(base, status, &headers, &body, sent),
            Err(detail) => Attempt::Lost(format!("{base}: {detail}")),
        }
    }

    /// Opens a stream: an answer whose body has no end. Everything else is read to its end, as for any call.
    pub(crate) async fn open(&self, call: &Call, node: usize) -> Attempt<reqwest::Response> {
        let (base, limit) = (&self.bases[node], self.settings.attempt_timeout);
        let opened = timeout(limit, async {
            let response = match self.request(call, node).send().await {
                Ok(response) if response.status().is_success() => return Attempt::Answered(response),
                Ok(response) => response,
                Err(error) => return unsent_or_lost(base, &error),
            };
            let (status, headers) = (response.status(), response.headers().clone());
            match read(response).await {
                Ok(body) => refused(base, status, &headers, &body),
                Err(detail) => Attempt::Lost(format!("{base}: {detail}")),
            }
        });
        opened.await.unwrap_or_else(|_| Attempt::Lost(format!("{base} did not answer within {limit:?}")))
    }

    fn request(&self, call: &Call, node: usize) -> reqwest::RequestBuilder {
        let mut request = self
            .http
            .request(call.method.clone(), format!("{}{}", self.bases[node], call.path))
            .header(AUTHORIZATION, self.authorization.clone());
        if let Some(body) = &call.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        request
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn nodes(&self) -> usize {
        self.bases.len()
    }

    /// The node that answered last.
    pub(crate) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.bases.len()
    }
}

fn unsent_or_lost<T>(base: &str, error: &reqwest::Error) -> Attempt<T> {
    if error.is_connect() || error.is_builder() {
        return Attempt::NotSent(format!("{base} was not reached: {}", chain(error)));
    }
    Attempt::Lost(format!("{base}: {}", chain(error)))
}

/// Where a call stands among the nodes: each is tried once before there is a pause.
pub(crate) struct Round {
    tried: usize,
    pause: Duration,
    retry_after: Duration,
}

impl Round {
    pub(crate) fn new(settings: &Settings) -> Round {
        Round { tried: 0, pause: settings.first_pause, retry_after: Duration::ZERO }
    }

    pub(crate) fn failed(&mut self, retry_after: Option<Duration>) {
        self.tried += 1;
        self.retry_after = self.retry_after.max(retry_after.unwrap_or_default());
    }

    pub(crate) fn finish(&mut self, nodes: usize) {
        self.tried = nodes;
    }

    /// The pause, where a round is over: random below the bound, so that clients that failed together come back
    /// one by one, and never shorter than a node asked for.
    pub(crate) fn pause_before_next(&mut self, settings: &Settings, nodes: usize) -> Option<Duration> {
        if self.tried < nodes {
            return None;
        }
        let pause = self.pause.mul_f64(rand::random_range(0.5..=1.0)).max(self.retry_after);
        self.pause = (self.pause * 2).min(settings.longest_pause);
        self.tried = 0;
        self.retry_after = Duration::ZERO;
        Some(pause)
    }
}

fn understood<T: DeserializeOwned>(
    base: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    sent: Instant,
) -> Attempt<Answered<T>> {
    let etag = text(headers, &ETAG).map(str::to_owned);
    if status == StatusCode::NOT_MODIFIED {
        return Attempt::Answered(Answered { value: None, etag, sent });
    }
    if status.is_success() {
        return match serde_json::from_slice(body) {
            Ok(value) => Attempt::Answered(Answered { value: Some(value), etag, sent }),
            Err(error) => {
                Attempt::Lost(format!("{base} answered {status} in a form that is not understood: {error}"))
            }
        };
    }
    refused(base, status, headers, body)
}

fn refused<T>(base: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Attempt<T> {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) if problem.status == status.as_u16() => {
            let seconds = text(headers, &RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
            let retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
            Attempt::Problem { problem, retry_after }
        }
        _ => Attempt::Lost(format!("{base} answered {status} without a problem that is understood")),
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether the client itself sends the call again. A conflict that may end is the caller's to wait for.
pub(crate) fn sent_again(problem: &Problem) -> bool {
    problem.retryable && matches!(problem.status, 408 | 429 | 503 | 504 | 507)
}

/// Whether a refusal with this code was decided on what is stored, and so on what an earlier attempt did. A failed
/// precondition is not among them: what moved the thing on may have been that very attempt.
fn about_the_operation(code: Code) -> bool {
    match code {
        Code::NotFound
        | Code::PolicyFixed
        | Code::QuotaExceeded
        | Code::ClaimIdReused
        | Code::KeyDigestMismatch
        | Code::KeyRetentionElapsed
        | Code::DeliveryMismatch
        | Code::DecisionReused
        | Code::CapabilityAlreadyConsumed
        | Code::CapabilityRevoked
        | Code::CapabilityExpired
        | Code::CapabilityInvalid
        | Code::CapabilityBindingMismatch
        | Code::CapabilityRequired
        | Code::EpochStale
        | Code::EpochUnknown
        | Code::OperationExecuting
        | Code::OperationOutcomeUnknown
        | Code::OperationCompleted
        | Code::OperationFailed
        | Code::OperationState
        | Code::OperationQuarantined
        | Code::AttemptMismatch
        | Code::LeaseStaleEpoch
        | Code::LeaseLost
        | Code::OutcomeConflict => true,
        Code::RequestInvalid
        | Code::RequestTooLarge
        | Code::MethodNotAllowed
        | Code::UnsupportedMediaType
        | Code::HeadersTooLarge
        | Code::LengthRequired
        | Code::RequestTimeout
        | Code::RateLimited
        | Code::AuthInvalid
        | Code::AuthForbidden
        | Code::PreconditionFailed
        | Code::PreconditionRequired
        | Code::WatchCompacted
        | Code::StoreOverloaded
        | Code::StoreUnavailable
        | Code::StoreOutcomeUnknown
        | Code::StoreFull => false,
    }
}

fn base(url: &str) -> Result<String, Unusable> {
    let wrong = || Unusable::Url { url: url.to_owned() };
    let parsed = reqwest::Url::parse(url).map_err(|_| wrong())?;
    let plain = parsed.scheme() == "http"
        && parsed.has_host()
        && parsed.path() == "/"
        && parsed.query().is_none()
        && parsed.fragment().is_none()
        && parsed.username().is_empty()
        && parsed.password().is_none();
    if plain { Ok(parsed.as_str().trim_end_matches('/').to_owned()) } else { Err(wrong()) }
}

async fn read(mut response: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| chain(&error))? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(format!("the answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// An error and its causes in one line: reqwest's own text leaves the reason to its source.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
