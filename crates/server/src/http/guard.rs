//! What is refused before a route runs, and how a body is read: bounded in size, time and number.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use hapax_api::Code;
use http::header::{CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower::{Layer, Service};

use super::series::Measured;
use crate::problem::Refusal;
use crate::room::Room;

/// What is read of a body that is refused for its length: twice the largest that is ever taken.
const DISCARDED_BYTES_MAX: usize = 2 << 20;
/// How long that may take.
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// Refuses what no route should see, passes the rest while there is room, and measures it. The room for requests at work is shared by
/// all connections: consensus keeps the rest of the machine.
#[derive(Debug, Clone)]
pub(crate) struct Guard(pub(crate) Room);

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { room: self.0.clone(), inner }
    }
}

/// See [`Guard`]. A service of its own, since axum's functions between routes cost five allocations and as many copies of a request.
#[derive(Debug, Clone)]
pub(crate) struct Guarded<S> {
    room: Room,
    inner: S,
}

impl<S> Service<Request> for Guarded<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if let Err(refusal) = well_formed(&request) {
            return ready(Ok(refusal.into_response())).boxed();
        }
        let Some(place) = self.room.enter() else {
            metrics::counter!("hapax_requests_refused_total").increment(1);
            return ready(Ok(Refusal::new(Code::StoreOverloaded).into_response())).boxed();
        };
        let measured = Measured::begin(&request);
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await?;
            drop(place);
            measured.end(response.status());
            Ok(response)
        })
    }
}

fn well_formed(request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    // hyper silently drops a Content-Length beside a Transfer-Encoding: whoever is in front of us may believe the
    // other one, and then the rest of the body is somebody's next request.
    if headers.contains_key(TRANSFER_ENCODING) {
        return Err(Refusal::detail(Code::LengthRequired, "Transfer-Encoding is not accepted"));
    }
    let named = match request.version() {
        Version::HTTP_2 => request.uri().authority().is_some() || headers.contains_key(HOST),
        _ => headers.get_all(HOST).iter().count() == 1,
    };
    if !named {
        return Err(Refusal::detail(Code::RequestInvalid, "exactly one Host is required"));
    }
    for (name, value) in headers {
        if value.to_str().is_err() {
            let detail = format!("the value of {name} has characters outside visible ASCII");
            return Err(Refusal::detail(Code::RequestInvalid, detail));
        }
    }
    if matches!(*request.method(), Method::POST | Method::PUT) && !is_json(headers) {
        return Err(Refusal::detail(Code::UnsupportedMediaType, "Content-Type must be application/json"));
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Reads some of a body that is not wanted: a client that is still sending it when the connection closes finds a broken pipe,
/// and may never see why.
async fn discard(mut body: Body) {
    let mut left = DISCARDED_BYTES_MAX;
    let read = async {
        while left > 0
            && let Some(Ok(frame)) = body.frame().await
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    // Where it does not come, the answer goes out all the same.
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}

/// Reads a whole body of at most `most` bytes within `limit`.
pub(crate) async fn read_body(body: Body, most: usize, limit: Duration) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::detail(Code::RequestTooLarge, format!("the body has more than {most} bytes"));
    // What says itself that it is too large is not kept.
    if body.size_hint().lower() > most as u64 {
        discard(body).await;
        return Err(too_large());
    }
    let collected = tokio::time::timeout(limit, Limited::new(body, most).collect()).await;
    match collected {
        Err(_) => Err(Refusal::new(Code::RequestTimeout)),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Refusal::detail(Code::RequestInvalid, "the body ended early")),
    }
}
