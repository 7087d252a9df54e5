//! `/v1/namespaces`: policies, with the limits that apply, what is in use, and the retention floors.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use hapax_api::Code;
use hapax_api::namespace::{NamespacePage, NamespacePolicy, PageQuery, TenantQuery};
use hapax_auth::Role;
use hapax_consensus::node::ReadGuard;
use hapax_machine::command::PutNamespace;
use hapax_machine::ids::{NamespaceName, TenantId};
use hapax_machine::limits::NAMESPACES_PER_TENANT;
use hapax_machine::namespace::NamespaceRecord;
use hapax_machine::outcome::Answer;
use hapax_machine::{Command, View as _, admin};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::versions::{expected, tagged};
use super::{body, pages, parsed};
use crate::auth::Caller;
use crate::calls::{self, Reply};
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;

/// The tenant that a call is about: the caller's own, or another one for those who administer all.
pub(super) fn tenant_of(
    view: &ReadGuard,
    caller: &Caller,
    named: Option<&hapax_api::text::Tenant>,
) -> Result<TenantId, Refusal> {
    let own = &caller.machine().tenant;
    let Some(tenant) = named.map(|named| TenantId::new(named.as_str())).filter(|tenant| tenant != own) else {
        return Ok(own.clone());
    };
    caller.require_any(&[Role::Admin])?;
    if admin::may_administer(&**view, caller.machine(), &tenant)? {
        Ok(tenant)
    } else {
        // Whether there is such a tenant is not for others to know.
        Err(Refusal::new(Code::AuthForbidden))
    }
}

pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = TenantQuery::read(query.as_deref().unwrap_or_default())?;
    let name: hapax_api::text::Namespace = parsed(&name)?;
    let name = NamespaceName::new(name.as_str());
    caller.require_namespace(&name)?;
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    let tenant = tenant_of(&view, &caller, query.tenant.as_ref())?;
    let record = view.namespace(&tenant, &name)?.ok_or_else(|| Refusal::new(Code::NotFound))?;
    answer(&app, &view, &record, StatusCode::OK)
}

fn answer(app: &App, view: &ReadGuard, record: &NamespaceRecord, status: StatusCode) -> Result<Response, Refusal> {
    let standing = view.status(&record.tenant, &record.name)?;
    let shown = convert::namespace(record, &standing, &app.limits, view.revision())?;
    Ok(tagged(Reply::json(status, &shown)?, record.version).into_response())
}

pub(super) async fn put(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    payload: Body,
) -> Result<Response, Refusal> {
    let query = TenantQuery::read(query.as_deref().unwrap_or_default())?;
    let name: hapax_api::text::Namespace = parsed(&name)?;
    let name = NamespaceName::new(name.as_str());
    caller.require_namespace(&name)?;
    let expected = expected(&headers)?;
    let policy = NamespacePolicy::read(&body(&app, payload).await?, &app.limits)?;
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    let tenant = tenant_of(&view, &caller, query.tenant.as_ref())?;
    let absent = view.namespace(&tenant, &name)?.is_none();
    if absent && view.namespaces_of(&tenant).len() >= NAMESPACES_PER_TENANT {
        let detail = format!("a tenant has at most {NAMESPACES_PER_TENANT} namespaces");
        return Err(Refusal::detail(Code::QuotaExceeded, detail));
    }
    drop(view);
    let record = convert::policy(tenant, name, policy);
    let command = PutNamespace { caller: caller.into_machine(), record, expected };
    let outcome = calls::propose_and_know(&app, Command::PutNamespace(command)).await?;
    match outcome.answer {
        Answer::Namespace(record) => {
            let created = record.version.0 == 1;
            answer(&app, &app.node.local(), &record, if created { StatusCode::CREATED } else { StatusCode::OK })
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
    let tenant = tenant_of(&view, &caller, query.tenant.as_ref())?;
    let filter = pages::filter(&caller, "namespaces", &[tenant.as_str()]);
    let after = pages::start(query.cursor.as_ref(), filter)?;
    let all = view.namespaces_of(&tenant).into_iter().filter(|record| caller.machine().may_use(&record.name));
    let limit = query.limit.unwrap_or_default();
    let (page, position) = pages::by_name(all.collect(), |record| record.name.as_str(), after.as_deref(), limit);
    let revision = view.revision();
    let shown = page.into_iter().map(|record| {
        let standing = view.status(&record.tenant, &record.name)?;
        convert::namespace(record, &standing, &app.limits, revision)
    });
    let namespaces = shown.collect::<Result<_, Refusal>>()?;
    let revision = convert::revision(revision);
    let next_cursor = pages::next(position, filter, query.cursor.as_ref(), revision);
    Reply::json(StatusCode::OK, &NamespacePage { namespaces, next_cursor, revision })
}
