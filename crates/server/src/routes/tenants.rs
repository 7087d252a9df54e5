//! `/v1/tenants`: for the administrators of the system's tenant; others see their own.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use hapax_api::Code;
use hapax_api::namespace::PageQuery;
use hapax_api::tenant::{PutTenantRequest, TenantPage};
use hapax_machine::command::PutTenant;
use hapax_machine::ids::{TenantId, Version};
use hapax_machine::limits::TENANTS_MAX;
use hapax_machine::outcome::Answer;
use hapax_machine::tenant::TenantRecord;
use hapax_machine::{Command, View as _};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::namespaces::tenant_of;
use super::versions::{expected, tagged};
use super::{body, pages, parsed};
use crate::auth::Caller;
use crate::calls::{self, Reply};
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;

pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let name: hapax_api::text::Tenant = parsed(&name)?;
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    let tenant = tenant_of(&view, &caller, Some(&name))?;
    let record = view.tenant(&tenant)?.ok_or_else(|| Refusal::new(Code::NotFound))?;
    let reply = Reply::json(StatusCode::OK, &convert::tenant(&record, view.revision())?)?;
    Ok(tagged(reply, record.version).into_response())
}

pub(super) async fn put(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    payload: Body,
) -> Result<Response, Refusal> {
    let name: hapax_api::text::Tenant = parsed(&name)?;
    let id = TenantId::new(name.as_str());
    let expected = expected(&headers)?;
    let request = PutTenantRequest::read(&body(&app, payload).await?, &app.limits)?;
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    // Its administrator's limits are the operators' to set.
    if !view.tenant(&caller.machine().tenant)?.is_some_and(|record| record.system) {
        return Err(Refusal::new(Code::AuthForbidden));
    }
    let stands = view.tenant(&id)?;
    if stands.is_none() && view.tenants().len() >= TENANTS_MAX {
        return Err(Refusal::detail(Code::QuotaExceeded, format!("there are at most {TENANTS_MAX} tenants")));
    }
    drop(view);
    let record = TenantRecord {
        id,
        system: stands.is_some_and(|stands| stands.system),
        disabled: request.disabled.unwrap_or(false),
        requests_per_second: request.requests_per_second,
        version: Version(0),
    };
    let command = PutTenant { caller: caller.into_machine(), record, expected };
    let outcome = calls::propose_and_know(&app, Command::PutTenant(command)).await?;
    match outcome.answer {
        Answer::Tenant(record) => {
            let status = if record.version.0 == 1 { StatusCode::CREATED } else { StatusCode::OK };
            let reply = Reply::json(status, &convert::tenant(&record, outcome.revision)?)?;
            Ok(tagged(reply, record.version).into_response())
        }
        Answer::Refused(refused) => Err(convert::refused(&refused)),
        other => Err(calls::unexpected(&other)),
    }
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Reply, Refusal> {
    let query = PageQuery::read(query.as_deref().unwrap_or_default(), &app.limits)?;
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    let own = &caller.machine().tenant;
    let all_are_theirs = view.tenant(own)?.is_some_and(|record| record.system);
    let all = view.tenants().into_iter().filter(|record| all_are_theirs || record.id == *own);
    let filter = pages::filter(&caller, "tenants", &[]);
    let after = pages::start(query.cursor.as_ref(), filter)?;
    let limit = query.limit.unwrap_or_default();
    let (page, position) = pages::by_name(all.collect(), |record| record.id.as_str(), after.as_deref(), limit);
    let at = view.revision();
    let tenants = page.into_iter().map(|record| convert::tenant(record, at)).collect::<Result<_, Refusal>>()?;
    let revision = convert::revision(at);
    let next_cursor = pages::next(position, filter, query.cursor.as_ref(), revision);
    Reply::json(StatusCode::OK, &TenantPage { tenants, next_cursor, revision })
}
