//! Refusals as HTTP answers, and what the layers below refuse with as problems.
//! The only place that decides between 503 and 504 for a failed proposal. (DESIGN §8)

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hapax_api::operation::Consistency;
use hapax_api::text::Revision;
use hapax_api::{Code, Invalid, Problem};
use hapax_consensus::propose::ProposeError;
use hapax_consensus::read::ReadError;
use hapax_store::seam::StorageFault;
use http::header::{CONNECTION, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::pace::TooFast;

/// Seconds after which a caller is told to come back when no quorum is there or queues are full.
const RETRY_AFTER_SECONDS: &str = "1";

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Refusal {
    problem: Box<Problem>,
    /// Headers beside those that the code asks for.
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(code: Code) -> Self {
        Problem::new(code).into()
    }

    pub(crate) fn detail(code: Code, detail: impl Into<String>) -> Self {
        Problem::new(code).detail(detail).into()
    }

    pub(crate) fn code(&self) -> Code {
        self.problem.code
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Says that it was answered from this node's own state, as it stood at `revision`.
    #[must_use]
    pub(crate) fn local(mut self, revision: Revision) -> Self {
        self.problem.consistency = Some(Consistency::Local);
        self.problem.revision = Some(revision);
        self
    }

    /// Says after how many seconds to come back.
    #[must_use]
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.headers.push((RETRY_AFTER, HeaderValue::from(seconds)));
        self
    }

    /// Says where the status is.
    #[must_use]
    pub(crate) fn location(mut self, path: &str) -> Self {
        self.headers.extend(HeaderValue::try_from(path).ok().map(|value| (LOCATION, value)));
        self
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problem: Box::new(problem), headers: Vec::new() }
    }
}

/// A caller that goes too fast, and when it may come back.
impl From<TooFast> for Refusal {
    fn from(TooFast(pause): TooFast) -> Self {
        Self::new(Code::RateLimited).retry_after(pause.as_secs_f64().ceil().max(1.0) as u64)
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Problem::from(invalid).into()
    }
}

impl From<ProposeError> for Refusal {
    fn from(error: ProposeError) -> Self {
        Self::new(match error {
            ProposeError::Unavailable => Code::StoreUnavailable,
            ProposeError::OutcomeUnknown => Code::StoreOutcomeUnknown,
            ProposeError::Overloaded => Code::StoreOverloaded,
        })
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        Self::new(match error {
            ReadError::Unavailable => Code::StoreUnavailable,
            ReadError::Overloaded => Code::StoreOverloaded,
        })
    }
}

/// A failed read: this node's storage failed, it is about to stop, and it knows nothing.
impl From<StorageFault> for Refusal {
    fn from(_: StorageFault) -> Self {
        Self::new(Code::StoreUnavailable)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { problem, headers: own } = self;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let code = problem.code;
        // A problem is strings and numbers: serialising it cannot fail.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(hapax_api::problem::MEDIA_TYPE));
        match code {
            Code::AuthInvalid => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Code::StoreUnavailable | Code::StoreOutcomeUnknown | Code::StoreOverloaded => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
            }
            // What follows on this connection cannot be told from the rest of the refused request.
            Code::LengthRequired | Code::RequestTimeout | Code::RequestTooLarge => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        for (name, value) in own {
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().insert(code);
        response
    }
}
