//! A node's routes without a socket: whole requests in, whole answers out. For whoever brings nodes of their own, as a
//! simulation does; what happens between a socket and these routes is left out, everything behind them is the shipped code.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use hapax_consensus::node::Node;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::config::Config;
use crate::routes;
use crate::serve::{Rooms, ServeError, app};

/// The routes of a running node. Clones share its limits.
#[derive(Clone)]
pub struct Direct(Router);

impl Direct {
    /// The routes as `config` bounds them.
    ///
    /// # Errors
    /// The configuration's tokens cannot be read.
    pub fn new(config: &Config, node: Node) -> Result<Self, ServeError> {
        let rooms = Rooms::new(config);
        let app = app(config, node, &rooms, CancellationToken::new())?;
        Ok(Self(routes::router(app, rooms.requests)))
    }

    /// Answers one request. Dropping the future is what a caller does that closes its connection.
    pub async fn call(&self, request: Request<Bytes>) -> Response<Bytes> {
        let answered = self.0.clone().oneshot(request.map(Body::from)).await;
        let (head, body) = answered.unwrap_or_else(|never| match never {}).into_parts();
        // A body that breaks off is what its caller would see of it.
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Response::from_parts(head, body)
    }
}
