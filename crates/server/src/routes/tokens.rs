//! `/v1/tokens`: made once, shown once, kept as a hash, revoked for good.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use hapax_api::Code;
use hapax_api::namespace::PageQuery;
use hapax_api::tenant::{CreateTokenRequest, RevokeTokenRequest, TokenCreated, TokenPage};
use hapax_api::text::TokenId;
use hapax_auth::{Roles, Token};
use hapax_machine::Command;
use hapax_machine::command::{CreateToken, RevokeToken};
use hapax_machine::ids::{ClientId, NamespaceName, WallTime};
use hapax_machine::limits::TOKENS_PER_TENANT;
use hapax_machine::outcome::{Answer, Outcome};
use hapax_machine::tenant::TokenRecord;
use http::StatusCode;
use tokio::time::Instant;

use super::namespaces::tenant_of;
use super::{body, pages, parsed};
use crate::auth::Caller;
use crate::calls::{self, Reply};
use crate::convert;
use crate::problem::Refusal;
use crate::state::App;

pub(super) async fn create(State(app): State<App>, caller: Caller, payload: Body) -> Result<Reply, Refusal> {
    let request = CreateTokenRequest::read(&body(&app, payload).await?, &app.limits)?;
    let names: Vec<_> = request.namespaces.iter().map(|name| NamespaceName::new(name.as_str())).collect();
    let view = app.node.read(Instant::now() + app.request_timeout).await?;
    let tenant = tenant_of(&view, &caller, request.tenant.as_ref())?;
    // Nobody hands on more than they have.
    if tenant == caller.machine().tenant && !caller.may_hand_on(&names) {
        return Err(Refusal::new(Code::AuthForbidden));
    }
    if view.tokens_of(&tenant).len() >= TOKENS_PER_TENANT {
        return Err(Refusal::detail(Code::QuotaExceeded, format!("a tenant has at most {TOKENS_PER_TENANT} tokens")));
    }
    drop(view);
    let token = Token::mint(rand::random(), rand::random());
    let roles = request.roles.iter().fold(Roles::default(), |roles, named| roles.with(convert::role(*named)));
    let record = TokenRecord {
        id: token.id().to_owned(),
        secret_hash: token.secret_hash(),
        tenant,
        client: ClientId::new(request.client.as_str()),
        namespaces: names,
        roles: roles.bits(),
        expires_at_ms: request.expires_at.map(|at| at.0),
        // Set in apply, on the replicated wall.
        created_at: WallTime(0),
        revoked_at: None,
    };
    let command = CreateToken { caller: caller.into_machine(), record };
    let outcome = calls::propose_and_know(&app, Command::CreateToken(command)).await?;
    let view = shown(&outcome)?;
    let text = token.to_text().parse().map_err(|_| Refusal::new(Code::StoreOutcomeUnknown))?;
    Reply::json(StatusCode::CREATED, &TokenCreated { token: text, view })
}

pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    payload: Body,
) -> Result<Reply, Refusal> {
    let id: TokenId = parsed(&id)?;
    RevokeTokenRequest::read(&body(&app, payload).await?, &app.limits)?;
    let command = RevokeToken { caller: caller.into_machine(), id: id.as_str().to_owned() };
    let outcome = calls::propose_and_know(&app, Command::RevokeToken(command)).await?;
    Reply::json(StatusCode::OK, &shown(&outcome)?)
}

fn shown(outcome: &Outcome) -> Result<hapax_api::tenant::TokenView, Refusal> {
    match &outcome.answer {
        Answer::Token(record) => convert::token(record, outcome.revision),
        Answer::Refused(refused) => Err(convert::refused(refused)),
        other => Err(calls::unexpected(other)),
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
    let filter = pages::filter(&caller, "tokens", &[tenant.as_str()]);
    let after = pages::start(query.cursor.as_ref(), filter)?;
    let limit = query.limit.unwrap_or_default();
    let all = view.tokens_of(&tenant);
    let (page, position) = pages::by_name(all, |record| record.id.as_str(), after.as_deref(), limit);
    let at = view.revision();
    let tokens = page.into_iter().map(|record| convert::token(record, at)).collect::<Result<_, Refusal>>()?;
    let revision = convert::revision(at);
    let next_cursor = pages::next(position, filter, query.cursor.as_ref(), revision);
    Reply::json(StatusCode::OK, &TokenPage { tokens, next_cursor, revision })
}
