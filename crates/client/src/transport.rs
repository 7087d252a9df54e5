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
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::outcome::{Failure, Outcome};
use crate::settings::{Settings, Unusable};

/// Bytes read of an answer: above anything that a node writes.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// The longest `Retry-After` that is followed; a longer one ends the call.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// A call to be made.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Vec<u8>>,
    /// Whether the call could change something: otherwise a lost answer is merely unavailable.
    pub(crate) mutates: bool,
    /// How long the call asks the node to wait.
    pub(crate) wait: Duration,
    pub(crate) if_none_match: Option<String>,
}

/// An answer of Hapax.
pub(crate) struct Answered<T> {
    /// `None` for 304.
    pub(crate) value: Option<T>,
    pub(crate) etag: Option<String>,
    /// When the attempt that was answered was sent: nothing in the answer is older.
    pub(crate) sent: Instant,
}

enum Attempt<T> {
    Answered(Answered<T>),
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
        let mut node = self.preferred.load(Ordering::Relaxed) % self.bases.len();
        let mut round = Round { tried: 0, pause: self.settings.first_pause, retry_after: Duration::ZERO };
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
                    if perhaps && !about_the_operation(&problem) {
                        let detail = "refused after an attempt that may have been applied".to_owned();
                        return Outcome::Unknown(Failure { detail, problem: Some(problem) });
                    }
                    return Outcome::Refused(problem);
                }
                Attempt::Problem { problem, retry_after } => {
                    perhaps |= call.mutates && problem.outcome == Certainty::Unknown;
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
                    perhaps |= call.mutates;
                    round.failed(None);
                    node = (node + 1) % self.bases.len();
                    last = Failure { detail, problem: None };
                }
            }
            tracing::debug!(path = call.path, %last, perhaps, "an attempt failed");
        }
        if perhaps { Outcome::Unknown(last) } else { Outcome::Unavailable(last) }
    }

    async fn attempt<T: DeserializeOwned>(&self, call: &Call, node: usize, limit: Duration) -> Attempt<T> {
        let sent = Instant::now();
        match timeout(limit, self.exchange(call, node, sent)).await {
            Ok(attempt) => attempt,
            Err(_) => Attempt::Lost(format!("{} did not answer within {limit:?}", self.bases[node])),
        }
    }

    async fn exchange<T: DeserializeOwned>(&self, call: &Call, node: usize, sent: Instant) -> Attempt<T> {
        let base = &self.bases[node];
        let mut request = self
            .http
            .request(call.method.clone(), format!("{base}{}", call.path))
            .header(AUTHORIZATION, self.authorization.clone());
        if let Some(body) = &call.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        if let Some(tag) = &call.if_none_match {
            request = request.header(IF_NONE_MATCH, tag).header(PREFER, format!("wait={}", call.wait.as_secs()));
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() || error.is_builder() => {
                return Attempt::NotSent(format!("{base} was not reached: {}", chain(&error)));
            }
            Err(error) => return Attempt::Lost(format!("{base}: {}", chain(&error))),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        match read(response).await {
            Ok(body) => understood(base, status, &headers, &body, sent),
            Err(detail) => Attempt::Lost(format!("{base}: {detail}")),
        }
    }
}

/// Where a call stands among the nodes: each is tried once before there is a pause.
struct Round {
    tried: usize,
    pause: Duration,
    retry_after: Duration,
}

impl Round {
    fn failed(&mut self, retry_after: Option<Duration>) {
        self.tried += 1;
        self.retry_after = self.retry_after.max(retry_after.unwrap_or_default());
    }

    fn finish(&mut self, nodes: usize) {
        self.tried = nodes;
    }

    /// The pause, where a round is over: random below the bound, so that clients that failed together come back
    /// one by one, and never shorter than a node asked for.
    fn pause_before_next(&mut self, settings: &Settings, nodes: usize) -> Option<Duration> {
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
) -> Attempt<T> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let etag = text(ETAG).map(str::to_owned);
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
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) if problem.status == status.as_u16() => {
            let retry_after = text(RETRY_AFTER).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
            Attempt::Problem { problem, retry_after: retry_after.map(|pause| pause.min(RETRY_AFTER_MAX)) }
        }
        _ => Attempt::Lost(format!("{base} answered {status} without a problem that is understood")),
    }
}

/// Whether the client itself sends the call again. A conflict that may end is the caller's to wait for.
fn sent_again(problem: &Problem) -> bool {
    problem.retryable && matches!(problem.status, 408 | 429 | 503 | 504 | 507)
}

/// Whether the refusal was decided on the operation, and so on what an earlier attempt did.
fn about_the_operation(problem: &Problem) -> bool {
    matches!(problem.status, 404 | 409 | 422)
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
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
