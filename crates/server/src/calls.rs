//! The mutating calls, one way in for each: whether it came by itself or in a batch, it is authorised, paced, made a command,
//! applied and answered here. A single call and the same call in a batch cannot disagree.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hapax_api::batch::{ItemKind, ReadItem};
use hapax_api::claim::{Claim, ClaimAnswer};
use hapax_api::epoch::EpochView;
use hapax_api::headers::IDEMPOTENCY_REPLAYED;
use hapax_api::operation::Consistency;
use hapax_api::reconcile::ReconcileRequest;
use hapax_api::{Code, Problem, text};
use hapax_auth::Role;
use hapax_consensus::node::ReadGuard;
use hapax_consensus::propose::ProposeError;
use hapax_machine::ids::{CapabilityId, ExecutionId, NamespaceName, OperationId, OperationKey};
use hapax_machine::namespace::{ConflictStyle, NamespaceRecord};
use hapax_machine::operation::State;
use hapax_machine::outcome::{Answer, Outcome, Refusal as Reason, Standing};
use hapax_machine::{Command, View as _, command, read};
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use tokio::time::Instant;

use crate::auth::Caller;
use crate::convert::{self, Drawn};
use crate::problem::Refusal;
use crate::state::App;
use crate::waits::Woken;

/// Longest pause that `Retry-After` asks for, in seconds.
const RETRY_AFTER_SECONDS_MAX: u64 = 60;

/// An answer that is no problem.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// JSON.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Self, Refusal> {
        let body = serde_json::to_vec(value).map_err(|error| {
            // The call may have been applied; only its answer could not be written.
            tracing::error!(%error, "an answer could not be serialised");
            Refusal::new(Code::StoreOutcomeUnknown)
        })?;
        Ok(Self { status, headers: HeaderMap::new(), body })
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// The roles of which a call needs one.
pub(crate) fn roles(kind: ItemKind) -> &'static [Role] {
    match kind {
        ItemKind::Claim | ItemKind::Renew | ItemKind::Outcome | ItemKind::Evidence => &[Role::Claim],
        ItemKind::Register => &[Role::Issue, Role::Claim],
        ItemKind::Issue | ItemKind::IssueBounded => &[Role::Issue],
        ItemKind::Revoke | ItemKind::Close => &[Role::Issue, Role::Operate],
        ItemKind::Resolve | ItemKind::Escalate => &[Role::Reconcile, Role::Operate],
        ItemKind::Reconcile => &[Role::Reconcile],
        ItemKind::Fence | ItemKind::Quarantine | ItemKind::Release | ItemKind::Supersede | ItemKind::Bump => {
            &[Role::Operate]
        }
    }
}

/// Makes a call, and counts what it came to.
pub(crate) async fn perform(app: &App, caller: &Caller, item: ReadItem) -> Result<Reply, Refusal> {
    caller.require_any(roles(item.kind()))?;
    let kind = item.kind();
    let made = made(app, caller, item).await;
    let result = match &made {
        Ok(_) => "done",
        Err(refusal) => match refusal.code() {
            Code::StoreOutcomeUnknown => "outcome_unknown",
            Code::StoreUnavailable | Code::StoreOverloaded => "unavailable",
            Code::NotFound => {
                metrics::counter!("hapax_auth_rejections_total", "reason" => "absent").increment(1);
                "refused"
            }
            _ => "refused",
        },
    };
    metrics::counter!("hapax_calls_total", "kind" => kind.as_str(), "result" => result).increment(1);
    made
}

async fn made(app: &App, caller: &Caller, item: ReadItem) -> Result<Reply, Refusal> {
    let command = match item {
        ReadItem::Claim(request) => return claim(app, caller, request).await,
        ReadItem::Reconcile(request) => return reconcile(app, caller, request).await,
        ReadItem::Bump(scope, request) => {
            let answer = propose(app, convert::bump(caller.machine().clone(), &scope, &request)).await?;
            return bumped(scope, &answer);
        }
        ReadItem::Register(request) => {
            let policy = paced_namespace(app, caller, &request.namespace)?;
            convert::register(caller.machine().clone(), &policy, request)
        }
        ReadItem::IssueBounded(request) => {
            let policy = paced_namespace(app, caller, &request.namespace)?;
            convert::issue_bounded(caller.machine().clone(), &policy, &request, Drawn::new())
        }
        other => addressed(caller.machine().clone(), other)?,
    };
    let reports = matches!(command, Command::Report(_));
    let outcome = propose(app, command).await?;
    if let (true, Answer::Accepted(standing)) = (reports, &outcome.answer) {
        let state = convert::state(standing.state).as_str();
        metrics::counter!("hapax_outcomes_total", "outcome" => state).increment(1);
    }
    reply(app, &outcome)
}

/// The command of a call that addresses something by its id.
fn addressed(caller: command::Caller, item: ReadItem) -> Result<Command, Refusal> {
    Ok(match item {
        ReadItem::Issue(id, request) => convert::issue(caller, operation(&id)?, &request, Drawn::new()),
        ReadItem::Revoke(id, request) => convert::revoke(caller, capability(&id)?, &request),
        ReadItem::Renew(id, request) => convert::renew(caller, execution(&id)?, &request),
        ReadItem::Outcome(id, request) => convert::report(caller, execution(&id)?, request),
        ReadItem::Evidence(id, request) => convert::evidence(caller, execution(&id)?, request),
        ReadItem::Resolve(id, request) => convert::resolve(caller, execution(&id)?, request),
        ReadItem::Escalate(id, request) => convert::escalate(caller, execution(&id)?, &request),
        ReadItem::Fence(id, request) => convert::fence(caller, execution(&id)?, &request),
        ReadItem::Quarantine(id, request) => convert::quarantine(caller, operation(&id)?, &request),
        ReadItem::Release(id, request) => convert::release(caller, operation(&id)?, &request),
        ReadItem::Close(id, request) => convert::close(caller, operation(&id)?, &request),
        ReadItem::Supersede(id, request) => {
            let by = operation(&request.by)?;
            convert::supersede(caller, operation(&id)?, by, &request)
        }
        ReadItem::Claim(_)
        | ReadItem::Register(_)
        | ReadItem::IssueBounded(_)
        | ReadItem::Reconcile(_)
        | ReadItem::Bump(..) => unreachable!("what is addressed by no id is made elsewhere"),
    })
}

/// A text that is no id cannot name anything: the same answer as for an absent one.
pub(crate) fn operation(id: &text::OperationId) -> Result<OperationId, Refusal> {
    OperationId::parse(id.as_str()).ok_or_else(|| Refusal::new(Code::NotFound))
}

pub(crate) fn execution(id: &text::ExecutionId) -> Result<ExecutionId, Refusal> {
    ExecutionId::parse(id.as_str()).ok_or_else(|| Refusal::new(Code::NotFound))
}

pub(crate) fn capability(id: &text::CapabilityId) -> Result<CapabilityId, Refusal> {
    CapabilityId::parse(id.as_str()).ok_or_else(|| Refusal::new(Code::NotFound))
}

/// The policy of a namespace that the caller may use.
pub(crate) fn namespace(app: &App, caller: &Caller, name: &text::Namespace) -> Result<NamespaceRecord, Refusal> {
    let name = NamespaceName::new(name.as_str());
    caller.require_namespace(&name)?;
    app.node.namespace(&caller.machine().tenant, &name).ok_or_else(|| {
        // A node that has not learnt its cluster's first commit cannot say that something is absent.
        Refusal::new(if app.node.is_bootstrapped() { Code::NotFound } else { Code::StoreUnavailable })
    })
}

/// The same, for a call that counts against the namespace's pace.
fn paced_namespace(app: &App, caller: &Caller, name: &text::Namespace) -> Result<NamespaceRecord, Refusal> {
    let policy = namespace(app, caller, name)?;
    if let Some(rate) = policy.quota.requests_per_second {
        let caller = caller.machine();
        app.pace.take(("namespace", &caller.tenant, &caller.client, &policy.name), rate)?;
    }
    Ok(policy)
}

pub(crate) async fn propose(app: &App, command: Command) -> Result<Outcome, ProposeError> {
    app.node.propose(command, Instant::now() + app.request_timeout).await
}

/// Proposes what this node itself goes by, such as tokens and policies, and waits until it is applied here too: whoever was told that
/// a token is revoked is not let in by the node that said so. Applied it is in any case; where a quorum is lost meanwhile, that is the answer.
pub(crate) async fn propose_and_know(app: &App, command: Command) -> Result<Outcome, ProposeError> {
    let outcome = propose(app, command).await?;
    let _ = app.node.read(Instant::now() + app.request_timeout).await;
    Ok(outcome)
}

async fn claim(app: &App, caller: &Caller, request: Claim) -> Result<Reply, Refusal> {
    let policy = paced_namespace(app, caller, &request.namespace)?;
    let wait = Duration::from_millis(request.wait_ms);
    let begun = Instant::now();
    let command = convert::claim(caller.machine().clone(), &policy, request, Drawn::for_claim());
    if let Some(rate) = policy.quota.key_claims_per_second {
        // A hot key is one client's to cool down; others go at their own pace.
        app.pace.take(("key", &command.caller.client, command.internal_key.0), rate)?;
    }
    if let Some(reply) = locally(app, &command)? {
        metrics::histogram!("hapax_claim_duration_seconds").record(begun.elapsed().as_secs_f64());
        return reply;
    }
    let outcome = settle(app, command, begun + wait).await;
    measure(&outcome, begun);
    reply(app, &outcome?)
}

/// Answers from this node's own state what nothing can change any more, where that state is recent. (DESIGN §4)
fn locally(app: &App, claim: &command::Claim) -> Result<Option<Result<Reply, Refusal>>, Refusal> {
    let Some(view) = app.node.fresh_view() else {
        return Ok(None);
    };
    let at = view.revision();
    let Some(found) = read::definite(&*view, at.group, at.index, claim)? else {
        return Ok(None);
    };
    if !found.repeated.is_empty() {
        app.node.count_refusals(found.repeated);
    }
    Ok(Some(match &found.outcome.answer {
        Answer::Replayed(receipt) => {
            count_claim("replayed", "local");
            replayed(receipt, at, Some(Consistency::Local))
        }
        Answer::Refused(refused) => {
            count_claim("refused", "local");
            count_refusal(refused.reason);
            Err(convert::refused(refused).local(convert::revision(at)))
        }
        // What is definite is one of the two.
        _ => return Ok(None),
    }))
}

fn replayed(
    receipt: &hapax_machine::outcome::Receipt,
    at: hapax_machine::ids::Revision,
    consistency: Option<Consistency>,
) -> Result<Reply, Refusal> {
    let mut reply = answered(&convert::replayed(receipt, at, consistency)?)?;
    reply.headers.insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    Ok(reply)
}

/// Claims, and while another executor is at work and there is time left to wait, claims again when that is over.
async fn settle(app: &App, claim: command::Claim, until: Instant) -> Result<Outcome, Refusal> {
    let row = OperationKey::new(&claim.caller.tenant, &claim.internal_key);
    loop {
        // Subscribed before the claim is applied: a change in between is not missed.
        let wait = app.waits.enter(until, || app.node.subscribe(&row));
        let outcome = propose(app, Command::Claim(claim.clone())).await?;
        let (Answer::InProgress(standing), Some(mut wait)) = (&outcome.answer, wait) else {
            return Ok(outcome);
        };
        let mut remaining = standing.lease_remaining_ms;
        loop {
            if wait.woken(remaining).await == Woken::Over {
                return Ok(outcome);
            }
            // A renewal wakes every waiter too. Looking here, at what is applied on this node, only saves proposals
            // that could learn nothing new; it answers nobody.
            match still_executing(app, &claim, &row)? {
                Some(left) => remaining = Some(left),
                None => break,
            }
        }
    }
}

/// What is left of the lease under which the operation executes, as this node last saw it; `None` where it does not.
fn still_executing(app: &App, claim: &command::Claim, row: &OperationKey) -> Result<Option<u64>, Refusal> {
    let seen = read::by_key(&*app.node.local(), &claim.caller, row)?;
    Ok(seen.filter(|seen| seen.state == State::Executing).and_then(|seen| seen.lease_remaining_ms))
}

/// Leases the oldest unknown executions that this node knows of, after a ReadIndex; apply takes those that did not move since.
async fn reconcile(app: &App, caller: &Caller, request: ReconcileRequest) -> Result<Reply, Refusal> {
    let names = match &request.namespace {
        Some(name) => vec![namespace(app, caller, name)?.name],
        None => super::routes::own_namespaces(app, caller),
    };
    let owner = request.owner.as_str().to_owned();
    let guard = app.node.read(Instant::now() + app.request_timeout).await?;
    let candidates = candidates(&guard, caller.machine(), &names, &owner, request.limit as usize)?;
    drop(guard);
    let command = command::ReconcileLease {
        caller: caller.machine().clone(),
        owner,
        lease_ms: request.lease_ms,
        limit: request.limit,
        candidates,
    };
    reply(app, &propose(app, Command::ReconcileLease(command)).await?)
}

/// Operations examined in search of candidates: more than may be leased to others at once.
const CANDIDATES_EXAMINED_MAX: usize = 4_096;
/// Operations that one look takes.
const CANDIDATES_AT_ONCE: usize = 256;

/// The oldest unknown executions that are not leased to another owner, with the epochs that are seen.
fn candidates(
    guard: &ReadGuard,
    caller: &command::Caller,
    names: &[NamespaceName],
    owner: &str,
    limit: usize,
) -> Result<Vec<command::Candidate>, Refusal> {
    let now = guard.head().clocks.lease_time;
    let (mut found, mut after, mut examined) = (Vec::new(), None, 0);
    while found.len() < limit && examined < CANDIDATES_EXAMINED_MAX {
        let (page, next) = guard.unknown_oldest(&caller.tenant, names, after.as_ref(), CANDIDATES_AT_ONCE)?;
        examined += page.len();
        found.extend(page.into_iter().filter_map(|operation| {
            let execution = operation.execution.as_ref()?;
            let held = execution.reconciling(now);
            let free = held.is_none_or(|held| held.owner == owner && held.client == caller.client);
            let candidate = command::Candidate {
                operation: operation.key(),
                birth: operation.id.birth,
                lease_epoch: execution.lease_epoch,
            };
            free.then_some(candidate)
        }));
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    found.truncate(limit);
    Ok(found)
}

fn bumped(scope: text::EpochScope, outcome: &Outcome) -> Result<Reply, Refusal> {
    match &outcome.answer {
        Answer::Epoch(value) => {
            let revision = convert::revision(outcome.revision);
            Reply::json(StatusCode::OK, &EpochView { scope, value: value.0, revision, consistency: None })
        }
        Answer::Refused(refused) => Err(convert::refused(refused)),
        other => Err(unexpected(other)),
    }
}

/// The answer to what was applied.
pub(crate) fn reply(app: &App, outcome: &Outcome) -> Result<Reply, Refusal> {
    let at = outcome.revision;
    match &outcome.answer {
        Answer::Claimed(grant) => {
            let attempt = if grant.attempt.0 == 1 { "first" } else { "later" };
            metrics::counter!("hapax_attempts_total", "attempt" => attempt).increment(1);
            answered(&convert::claimed(grant, at)?)
        }
        Answer::Replayed(receipt) => replayed(receipt, at, None),
        Answer::DuplicateDelivery(standing) => answered(&convert::duplicate(standing, at)?),
        Answer::InProgress(standing) => in_progress(standing, outcome),
        Answer::Renewed(lease) => Reply::json(StatusCode::OK, &convert::renewed(*lease, at)),
        Answer::Accepted(standing) => Reply::json(StatusCode::OK, &convert::accepted(standing, at)?),
        Answer::Registered { standing, created } => {
            Reply::json(created_or_ok(*created), &convert::registered(standing, at)?)
        }
        Answer::Capability { record, created } => {
            let wall = app.node.local().head().clocks.wall;
            Reply::json(created_or_ok(*created), &convert::capability(record, wall, at)?)
        }
        Answer::Reconciling(items) => Reply::json(StatusCode::OK, &convert::reconciling(items, at)?),
        Answer::Refused(refused) => {
            count_refusal(refused.reason);
            Err(convert::refused(refused))
        }
        other => Err(unexpected(other)),
    }
}

fn created_or_ok(created: bool) -> StatusCode {
    if created { StatusCode::CREATED } else { StatusCode::OK }
}

fn answered(answer: &ClaimAnswer) -> Result<Reply, Refusal> {
    Reply::json(StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::OK), answer)
}

fn in_progress(standing: &Standing, outcome: &Outcome) -> Result<Reply, Refusal> {
    let seconds = standing.lease_remaining_ms.map_or(1, |ms| ms.div_ceil(1_000)).clamp(1, RETRY_AFTER_SECONDS_MAX);
    let location = format!("/v1/operations/{}", standing.operation_id);
    if standing.conflict_style == ConflictStyle::Ietf {
        let mut problem = Problem::new(Code::OperationExecuting);
        problem.operation_id = standing.operation_id.to_string().parse().ok();
        return Err(Refusal::from(problem).retry_after(seconds).location(&location));
    }
    let mut reply = answered(&convert::in_progress(standing, outcome.revision)?)?;
    reply.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    if let Ok(location) = HeaderValue::try_from(location) {
        reply.headers.insert(LOCATION, location);
    }
    Ok(reply)
}

/// An answer that this command cannot have. It was applied, so nothing definite may be said.
pub(crate) fn unexpected(answer: &Answer) -> Refusal {
    tracing::error!(kind = kind_of(answer), "an answer of the wrong kind");
    Refusal::new(Code::StoreOutcomeUnknown)
}

/// Which answer it is, and nothing of what it holds: results are not for logs.
fn kind_of(answer: &Answer) -> String {
    let whole = format!("{answer:?}");
    whole.chars().take_while(char::is_ascii_alphanumeric).collect()
}

fn measure(outcome: &Result<Outcome, Refusal>, begun: Instant) {
    let result = match outcome {
        Ok(outcome) => match &outcome.answer {
            Answer::Claimed(_) => "claimed",
            Answer::InProgress(_) => "in_progress",
            Answer::Replayed(_) => "replayed",
            Answer::DuplicateDelivery(_) => "duplicate_delivery",
            Answer::Refused(_) => "refused",
            _ => "other",
        },
        Err(refusal) if refusal.code() == Code::StoreOutcomeUnknown => "outcome_unknown",
        Err(_) => "unavailable",
    };
    count_claim(result, "quorum");
    metrics::histogram!("hapax_claim_duration_seconds").record(begun.elapsed().as_secs_f64());
}

fn count_claim(result: &'static str, from: &'static str) {
    metrics::counter!("hapax_claims_total", "result" => result, "from" => from).increment(1);
}

/// Counts refusals by their reason: digest conflicts, fenced writes, spent authority, expired keys. (001 §14)
fn count_refusal(reason: Reason) {
    let (code, _) = convert::code_of(reason);
    metrics::counter!("hapax_refusals_total", "code" => code.as_str()).increment(1);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hapax_api::endpoints::{self, Method};

    use super::*;

    /// The path of the single call.
    fn path(kind: ItemKind) -> &'static str {
        match kind {
            ItemKind::Claim => endpoints::CLAIMS,
            ItemKind::Register => endpoints::OPERATIONS,
            ItemKind::Issue => endpoints::ISSUE,
            ItemKind::IssueBounded => endpoints::CAPABILITIES,
            ItemKind::Revoke => endpoints::REVOKE,
            ItemKind::Renew => endpoints::RENEW,
            ItemKind::Outcome => endpoints::OUTCOME,
            ItemKind::Evidence => endpoints::EVIDENCE,
            ItemKind::Resolve => endpoints::RESOLVE,
            ItemKind::Escalate => endpoints::ESCALATE,
            ItemKind::Fence => endpoints::FENCE,
            ItemKind::Quarantine => endpoints::QUARANTINE,
            ItemKind::Release => endpoints::RELEASE,
            ItemKind::Supersede => endpoints::SUPERSEDE,
            ItemKind::Close => endpoints::CLOSE,
            ItemKind::Reconcile => endpoints::RECONCILE,
            ItemKind::Bump => endpoints::BUMP,
        }
    }

    #[test]
    fn a_call_needs_the_roles_that_its_documentation_names() {
        for kind in ItemKind::ALL {
            let documented = endpoints::all()
                .find(|endpoint| endpoint.method == Method::Post && endpoint.path == path(*kind))
                .unwrap_or_else(|| panic!("{kind} has an endpoint"));
            let documented: BTreeSet<&str> = documented.roles.iter().copied().collect();
            let enforced: BTreeSet<&str> = roles(*kind).iter().map(|role| role.as_str()).collect();
            assert_eq!(enforced, documented, "{kind}");
        }
    }
}
