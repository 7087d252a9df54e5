//! `/v1/epochs/{scope}`: registers of authority.

use axum::body::Body;
use axum::extract::{Path, State};
use hapax_api::Code;
use hapax_api::batch::ReadItem;
use hapax_api::epoch::{BumpRequest, EpochView};
use hapax_api::text::EpochScope;
use hapax_machine::limits::EPOCHS_PER_TENANT;
use hapax_machine::{ids, read};
use http::StatusCode;
use tokio::time::Instant;

use super::{parsed, single};
use crate::auth::Caller;
use crate::calls::Reply;
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;

pub(super) async fn get(State(app): State<App>, caller: Caller, Path(scope): Path<String>) -> Result<Reply, Refusal> {
    let scope: EpochScope = parsed(&scope)?;
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    let value = read::register(&*view, caller.machine(), &ids::EpochScope::new(scope.as_str()))?;
    let revision = convert::revision(view.revision());
    Reply::json(StatusCode::OK, &EpochView { scope, value: value.0, revision, consistency: None })
}

pub(super) async fn bump(
    State(app): State<App>,
    caller: Caller,
    Path(scope): Path<String>,
    payload: Body,
) -> Result<Reply, Refusal> {
    let scope: EpochScope = parsed(&scope)?;
    let known = app.node.local().epochs_of(&caller.machine().tenant).len();
    single(&app, &caller, payload, |body, limits| {
        let request = BumpRequest::read(body, limits)?;
        if request.expected == 0 && known >= EPOCHS_PER_TENANT {
            return Err(Refusal::detail(
                Code::QuotaExceeded,
                format!("a tenant has at most {EPOCHS_PER_TENANT} registers"),
            ));
        }
        Ok(ReadItem::Bump(scope, request))
    })
    .await
}
