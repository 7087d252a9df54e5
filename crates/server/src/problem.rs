//! Refusals as HTTP answers, and what the layers below refuse with as problems.
//! The only place that decides between 503 and 504 for a failed proposal. (DESIGN §8)

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hapax_api::{Code, Invalid, Problem};
use hapax_consensus::propose::ProposeError;
use hapax_consensus::read::ReadError;
use hapax_store::seam::StorageFault;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

/// Seconds after which a caller is told to come back when no quorum is there or queues are full.
const RETRY_AFTER_SECONDS: &str = "1";

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Box<Problem>);

impl Refusal {
    pub(crate) fn new(code: Code) -> Self {
        Self(Box::new(Problem::new(code)))
    }

    pub(crate) fn detail(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code).detail(detail)))
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self(Box::new(invalid.into()))
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
        let problem = *self.0;
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
        response.extensions_mut().insert(code);
        response
    }
}
