//! The verbs that call a cluster: each reads its arguments, makes one call, and prints the answer.

use std::io::Read;
use std::time::Duration;

use anyhow::Context;
use hapax_api::claim::{ClaimAnswer, ClaimRequest, DigestProfile};
use hapax_api::execution::{OutcomeRequest, RenewRequest, ResultData};
use hapax_api::find::LookupRequest;
use hapax_api::json::{RawJson, Value};
use hapax_client::{Claim, Client, Outcome, Settings};
use serde::Serialize;

use crate::args::{Call, ClaimArgs, ReportArgs};
use crate::exit::Failure;
use crate::output;

/// The first node of a local cluster.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7101";
/// What a probe may take.
const PROBE_WITHIN: Duration = Duration::from_millis(1_500);

/// Claims a key.
pub(crate) fn claim(call: &Call, args: &ClaimArgs) -> anyhow::Result<()> {
    let request = args.request.as_deref().map(document).transpose()?;
    let request = request
        .as_deref()
        .map(Value::canonical)
        .transpose()
        .map_err(|fault| Failure::Usage(format!("--request, at {:?}: {}", fault.pointer, fault.detail)))?;
    let digest = args.digest.as_deref().map(|text| parsed("--digest", text)).transpose()?;
    let optional = |name, text: &Option<String>| text.as_deref().map(|text| parsed(name, text)).transpose();
    let key = parsed("the key", &args.key)?;
    let claim = ClaimRequest {
        business_epoch: args.business_epoch.as_deref().map(|text| parsed("--business-epoch", text)).transpose()?,
        request,
        digest,
        digest_profile: args.digest.is_some().then_some(DigestProfile::C14n1),
        claim_id: args.claim_id.as_deref().map(|text| parsed("--claim-id", text)).transpose()?,
        owner: optional("--owner", &args.owner)?,
        lease_ms: Some(args.lease_ms),
        wait_ms: Some(args.wait_ms),
        correlation_id: optional("--correlation-id", &args.correlation_id)?,
        attempt: args.attempt,
        capability_id: option("--capability", args.capability.as_ref())?,
        message: args.message.as_deref().map(crate::verbs::operations::message).transpose()?,
        epoch: crate::verbs::authority::binding(args.epoch.as_ref())?,
        resource: option("--resource", args.resource.as_ref())?,
        key_created_at: option("--key-created-at", args.key_created_at.as_ref())?,
        ..ClaimRequest::new(parsed("--namespace", &args.namespace)?, key)
    };
    let claim = Claim::from(claim);
    let answered = run(call, async |client| client.claim(&claim).await)
        // With it the same call can be made again, and gets the one true answer.
        .with_context(|| format!("claim id {}", claim.claim_id()))?;
    output::answer(call.output, &answered)?;
    match answered {
        // In progress is never read as success.
        ClaimAnswer::InProgress(_) => Err(Failure::Refused("operation.executing".to_owned()).into()),
        ClaimAnswer::Claimed(_) | ClaimAnswer::Replayed(_) | ClaimAnswer::DuplicateDelivery(_) => Ok(()),
    }
}

/// Extends a lease.
pub(crate) fn renew(call: &Call, execution_id: &str, lease_epoch: u64, lease_ms: u64) -> anyhow::Result<()> {
    let id = parsed("the execution id", execution_id)?;
    let renewed = run(call, async |client| client.renew(&id, &RenewRequest { lease_epoch, lease_ms }).await)?;
    output::answer(call.output, &renewed)
}

/// Reports an outcome.
pub(crate) fn report(call: &Call, args: &ReportArgs) -> anyhow::Result<()> {
    let id = parsed("the execution id", &args.execution_id)?;
    let result = args.result.as_deref().map(document).transpose()?;
    let result = result
        .as_deref()
        .map(RawJson::parse)
        .transpose()
        .map_err(|fault| Failure::Usage(format!("--result, at {:?}: {}", fault.pointer, fault.detail)))?;
    let request = OutcomeRequest {
        lease_epoch: args.lease_epoch,
        outcome: parsed("the outcome", &args.outcome)?,
        data: ResultData {
            status_code: args.status_code,
            result,
            external_id: args.external_id.as_deref().map(|text| parsed("--external-id", text)).transpose()?,
            reason: args.reason.as_deref().map(|text| parsed("--reason", text)).transpose()?,
            ..ResultData::default()
        },
    };
    let accepted = run(call, async |client| client.report(&id, &request).await)?;
    output::answer(call.output, &accepted)
}

/// Reads an operation by its id.
pub(crate) fn get(call: &Call, operation_id: &str) -> anyhow::Result<()> {
    let id = parsed("the operation id", operation_id)?;
    let found = run(call, async |client| client.operation(&id).await)?;
    output::answer(call.output, &found.value)
}

/// Reads an operation by its key.
pub(crate) fn lookup(call: &Call, namespace: &str, key: &str, business_epoch: Option<&str>) -> anyhow::Result<()> {
    let request = LookupRequest::by_key(
        parsed("--namespace", namespace)?,
        parsed("--key", key)?,
        business_epoch.map(|text| parsed("--business-epoch", text)).transpose()?,
    );
    let found = run(call, async |client| client.lookup(&request).await)?.operations.into_iter().next();
    match found {
        Some(operation) => output::answer(call.output, &operation),
        None => Err(Failure::Refused("not-found".to_owned()).into()),
    }
}

/// Shows the members.
pub(crate) fn cluster_status(call: &Call) -> anyhow::Result<()> {
    let view = run(call, async |client| client.cluster().await)?;
    if call.output == output::Format::Json {
        return output::answer(call.output, &view);
    }
    output::line(&format!("Cluster {}, term {}, as node {} sees it", view.cluster, view.term, view.node_id));
    let rows: Vec<[String; 7]> = view
        .members
        .iter()
        .map(|member| {
            let known = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
            let reachable = match member.reachable {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            };
            [
                member.id.to_string(),
                member.region.clone(),
                word(&member.role),
                member.client_url.clone(),
                known(member.applied_index),
                known(member.lag),
                reachable.to_owned(),
            ]
        })
        .collect();
    output::table(["NODE", "REGION", "ROLE", "URL", "APPLIED", "LAG", "REACHABLE"], &rows);
    Ok(())
}

/// Asks a node whether it can answer.
pub(crate) fn health(url: &str) -> anyhow::Result<()> {
    let probe = Probe::new()?;
    let ready = runtime()?.block_on(probe.ready(url));
    if ready { Ok(()) } else { Err(Failure::Unavailable(format!("{url} is not ready")).into()) }
}

/// Asks nodes whether they can answer, without a credential.
pub(crate) struct Probe(Settings);

impl Probe {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let mut settings = Settings::new([DEFAULT_URL], "");
        settings.attempts = 1;
        settings.attempt_timeout = PROBE_WITHIN;
        settings.deadline = PROBE_WITHIN;
        Ok(Self(settings))
    }

    pub(crate) async fn ready(&self, url: &str) -> bool {
        let settings = Settings { urls: vec![url.to_owned()], ..self.0.clone() };
        match Client::new(settings) {
            Ok(client) => client.readiness().await.done().is_some_and(|found| found.ready),
            Err(_) => false,
        }
    }
}

/// Makes one call.
pub(crate) fn run<T>(call: &Call, ask: impl AsyncFn(&Client) -> Outcome<T>) -> anyhow::Result<T> {
    with_client(call, async |client| match ask(client).await {
        Outcome::Done(answer) => Ok(answer),
        other => Err(failure(other).into()),
    })
}

/// Does something with a client.
pub(crate) fn with_client<T>(call: &Call, with: impl AsyncFn(&Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let urls = call.url.split(',').map(str::trim);
    let client =
        Client::new(Settings::new(urls, call.token.clone())).map_err(|error| Failure::Usage(error.to_string()))?;
    runtime()?.block_on(with(&client))
}

/// What an outcome that is no answer is to the shell.
pub(crate) fn failure<T>(outcome: Outcome<T>) -> Failure {
    match outcome {
        Outcome::Done(_) => Failure::Unknown("the answer was not used".to_owned()),
        Outcome::Refused(problem) => {
            let detail = problem.detail.as_deref().unwrap_or(&problem.title);
            let pointer = problem.pointer.as_deref().map(|pointer| format!(" (at {pointer})")).unwrap_or_default();
            Failure::Refused(format!("{}: {detail}{pointer}", problem.code))
        }
        Outcome::Unavailable(failure) => Failure::Unavailable(failure.to_string()),
        Outcome::Unknown(failure) => Failure::Unknown(failure.to_string()),
    }
}

/// A text that may be absent, parsed.
pub(crate) fn option<T: std::str::FromStr<Err = hapax_api::text::Malformed>>(
    what: &str,
    text: Option<&String>,
) -> anyhow::Result<Option<T>> {
    text.map(|text| parsed(what, text)).transpose()
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

pub(crate) fn parsed<T: std::str::FromStr<Err = hapax_api::text::Malformed>>(
    what: &str,
    text: &str,
) -> anyhow::Result<T> {
    text.parse().map_err(|wrong: T::Err| Failure::Usage(format!("{what} {}", wrong.0)).into())
}

/// A JSON document as it was given: itself, `@file`, or `-` for standard input.
pub(crate) fn document(given: &str) -> anyhow::Result<Vec<u8>> {
    if given == "-" {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text)?;
        return Ok(text);
    }
    match given.strip_prefix('@') {
        Some(file) => std::fs::read(file).map_err(|error| Failure::Usage(format!("{file}: {error}")).into()),
        None => Ok(given.as_bytes().to_vec()),
    }
}

/// The wire's word for a value.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
