//! Capabilities: issue, look at, take back.

use axum::body::Body;
use axum::extract::{Path, State};
use hapax_api::Code;
use hapax_api::batch::ReadItem;
use hapax_api::capability::{IssueBoundedRequest, IssueRequest, RevokeRequest};
use hapax_machine::{View as _, read};
use http::StatusCode;
use tokio::time::Instant;

use super::{by_id, parsed, single};
use crate::auth::Caller;
use crate::calls::{self, Reply};
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;

by_id! {
    issue = Issue, IssueRequest;
    revoke = Revoke, RevokeRequest;
}

pub(super) async fn issue_bounded(State(app): State<App>, caller: Caller, payload: Body) -> Result<Reply, Refusal> {
    single(&app, &caller, payload, |body, limits| {
        Ok(ReadItem::IssueBounded(IssueBoundedRequest::read(body, limits)?))
    })
    .await
}

pub(super) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Reply, Refusal> {
    let id = calls::capability(&parsed(&id)?)?;
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    let found = read::capability(&*view, caller.machine(), &id)?.ok_or_else(|| Refusal::new(Code::NotFound))?;
    let wall = view.head().clocks.wall;
    Reply::json(StatusCode::OK, &convert::capability(&found, wall, view.revision())?)
}
