//! `register`, `list`, `lookup`, `watch`, `batch`, `evidence`: operations as deciders and readers see them.

use clap::{Args, Subcommand};
use hapax_api::claim::{DigestProfile, Message};
use hapax_api::evidence::{EvidenceBy, EvidenceEntry, EvidenceQuery};
use hapax_api::execution::{EvidenceRequest, ResultData};
use hapax_api::find::{ListQuery, LookupRequest, OperationPage};
use hapax_api::json::{RawJson, Value};
use hapax_api::register::RegisterRequest;
use hapax_api::watch::{OperationEvent, WatchQuery};
use hapax_client::Outcome;

use super::{page, shown};
use crate::args::Call;
use crate::calls::{document, failure, option, parsed, run, with_client};
use crate::exit::Failure;
use crate::output::{self, Format};

/// What is registered.
#[derive(Debug, Clone, Args)]
pub(crate) struct RegisterArgs {
    /// The idempotency key.
    key: String,
    /// Its namespace.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The request bound to the key, as JSON; `@file` reads a file, `-` standard input.
    #[arg(long, required_unless_present = "digest", conflicts_with = "digest")]
    request: Option<String>,
    /// Its digest under hapax-c14n/1 instead, `sha256:…`.
    #[arg(long)]
    digest: Option<String>,
    /// Part of the identity where the operation may legitimately repeat.
    #[arg(long)]
    business_epoch: Option<String>,
    /// The story it belongs to.
    #[arg(long)]
    correlation_id: Option<String>,
    /// The business entity it is about.
    #[arg(long)]
    resource: Option<String>,
    /// When the key was made, where the namespace asks for it.
    #[arg(long)]
    key_created_at: Option<String>,
}

/// Where a page begins and how long it is.
#[derive(Debug, Clone, Args)]
pub(crate) struct PageArgs {
    /// Items on the page.
    #[arg(long)]
    pub(super) limit: Option<u64>,
    /// Where an earlier page of the same question ended.
    #[arg(long)]
    pub(super) cursor: Option<String>,
}

/// What is listed.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// requested, executing, unknown, escalated, not_applied, completed, failed or quarantined.
    state: String,
    /// The namespace.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Only those in that state since before this instant.
    #[arg(long)]
    older_than: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

/// What is looked for; by key, `get --key` shows all of one operation.
#[derive(Debug, Clone, Args)]
#[group(id = "by", required = true, multiple = false)]
pub(crate) struct LookupArgs {
    /// The provider's own id of the effect.
    #[arg(long, group = "by")]
    external_id: Option<String>,
    /// The business entity.
    #[arg(long, group = "by")]
    resource: Option<String>,
    /// The idempotency key.
    #[arg(long, group = "by")]
    key: Option<String>,
}

/// What the record is asked by.
#[derive(Debug, Clone, Args)]
#[group(id = "record", required = true, multiple = false)]
pub(crate) struct RecordArgs {
    /// Everything about an operation.
    #[arg(long, group = "record")]
    operation: Option<String>,
    /// The refusals of a capability.
    #[arg(long, group = "record")]
    capability: Option<String>,
    /// The refusals of a message, as CONSUMER/ID.
    #[arg(long, group = "record")]
    message: Option<String>,
    /// Everything of a story.
    #[arg(long, group = "record")]
    correlation_id: Option<String>,
}

/// `hapax evidence`
#[derive(Debug, Subcommand)]
pub(crate) enum EvidenceVerb {
    /// Say late, as the one who lost it, what an execution came to.
    Add {
        #[command(flatten)]
        call: Call,
        /// The execution.
        execution_id: String,
        /// completed, failed or not_applied.
        outcome: String,
        /// The claim that had granted it.
        #[arg(long)]
        claim_id: String,
        /// The provider's own id of the effect.
        #[arg(long)]
        external_id: Option<String>,
        /// What shows it.
        #[arg(long)]
        proof: Option<String>,
    },
    /// What was said and overridden, and what was presented in vain.
    List {
        #[command(flatten)]
        call: Call,
        #[command(flatten)]
        by: RecordArgs,
        #[command(flatten)]
        page: PageArgs,
    },
}

pub(crate) fn register(call: &Call, args: &RegisterArgs) -> anyhow::Result<()> {
    let bytes = args.request.as_deref().map(document).transpose()?;
    let request = bytes.as_deref().map(Value::canonical).transpose();
    let request =
        request.map_err(|fault| Failure::Usage(format!("--request, at {:?}: {}", fault.pointer, fault.detail)))?;
    let request = RegisterRequest {
        request,
        digest: option("--digest", args.digest.as_ref())?,
        digest_profile: args.digest.is_some().then_some(DigestProfile::C14n1),
        business_epoch: option("--business-epoch", args.business_epoch.as_ref())?,
        correlation_id: option("--correlation-id", args.correlation_id.as_ref())?,
        resource: option("--resource", args.resource.as_ref())?,
        key_created_at: option("--key-created-at", args.key_created_at.as_ref())?,
        ..RegisterRequest::new(parsed("--namespace", &args.namespace)?, parsed("the key", &args.key)?)
    };
    output::answer(call.output, &run(call, async |client| client.register(&request).await)?)
}

pub(crate) fn list(call: &Call, args: &ListArgs) -> anyhow::Result<()> {
    let query = ListQuery {
        older_than: option("--older-than", args.older_than.as_ref())?,
        limit: args.page.limit,
        cursor: option("--cursor", args.page.cursor.as_ref())?,
        ..ListQuery::new(parsed("--namespace", &args.namespace)?, parsed("the state", &args.state)?)
    };
    operations(call, &run(call, async |client| client.operations(&query).await)?)
}

pub(crate) fn lookup(call: &Call, namespace: &str, args: &LookupArgs, page: &PageArgs) -> anyhow::Result<()> {
    let namespace = parsed("--namespace", namespace)?;
    let request = match (&args.external_id, &args.resource, &args.key) {
        (Some(id), _, _) => LookupRequest::by_external_id(namespace, parsed("--external-id", id)?),
        (_, Some(resource), _) => LookupRequest::by_resource(namespace, parsed("--resource", resource)?),
        (_, _, key) => LookupRequest::by_key(namespace, parsed("--key", key.as_deref().unwrap_or_default())?, None),
    };
    let request = LookupRequest { limit: page.limit, cursor: option("--cursor", page.cursor.as_ref())?, ..request };
    operations(call, &run(call, async |client| client.lookup(&request).await)?)
}

fn operations(call: &Call, found: &OperationPage) -> anyhow::Result<()> {
    let rows = found.operations.iter().map(|operation| {
        let flags = [(operation.escalated, "escalated"), (operation.quarantined, "quarantined")];
        let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
        [
            operation.operation_id.to_string(),
            operation.state.to_string(),
            operation.attempt.to_string(),
            shown(operation.execution.as_ref().map(|execution| &execution.execution_id)),
            operation.updated_at.to_string(),
            flags.join(" "),
        ]
    });
    let headings = ["OPERATION", "STATE", "ATTEMPT", "EXECUTION", "UPDATED", "FLAGS"];
    page(call.output, found, headings, rows.collect(), found.next_cursor.as_ref().map(ToString::to_string))
}

pub(crate) fn evidence(verb: &EvidenceVerb) -> anyhow::Result<()> {
    match verb {
        EvidenceVerb::Add { call, execution_id, outcome, claim_id, external_id, proof } => {
            let id = parsed("the execution id", execution_id)?;
            let request = EvidenceRequest {
                claim_id: parsed("--claim-id", claim_id)?,
                outcome: parsed("the outcome", outcome)?,
                proof: option("--proof", proof.as_ref())?,
                data: ResultData {
                    external_id: option("--external-id", external_id.as_ref())?,
                    ..ResultData::default()
                },
            };
            output::answer(call.output, &run(call, async |client| client.evidence(&id, &request).await)?)
        }
        EvidenceVerb::List { call, by, page } => record(call, by, page),
    }
}

fn record(call: &Call, by: &RecordArgs, range: &PageArgs) -> anyhow::Result<()> {
    let by = match (&by.operation, &by.capability, &by.message) {
        (Some(id), _, _) => EvidenceBy::Operation(parsed("--operation", id)?),
        (_, Some(id), _) => EvidenceBy::Capability(parsed("--capability", id)?),
        (_, _, Some(text)) => EvidenceBy::Message(message(text)?),
        _ => EvidenceBy::Correlation(parsed("--correlation-id", by.correlation_id.as_deref().unwrap_or_default())?),
    };
    let query = EvidenceQuery {
        limit: range.limit,
        cursor: option("--cursor", range.cursor.as_ref())?,
        ..EvidenceQuery::new(by)
    };
    let found = run(call, async |client| client.evidence_record(&query).await)?;
    let rows = found.entries.iter().map(|entry| match entry {
        EvidenceEntry::Word(word) => [
            word.at.to_string(),
            crate::calls::word(&word.said),
            word.client.to_string(),
            word.operation_state.to_string(),
            shown(word.outcome.as_ref().map(crate::calls::word)),
            shown(word.reason.as_ref().or(None)),
        ],
        EvidenceEntry::Refused(refused) => [
            refused.first_at.to_string(),
            "refused".to_owned(),
            refused.client.to_string(),
            shown(refused.operation_state),
            refused.code.to_string(),
            format!("{} times", refused.times),
        ],
    });
    let next = found.next_cursor.as_ref().map(ToString::to_string);
    page(call.output, &found, ["AT", "WHAT", "CLIENT", "STATE", "SAID", "WHY"], rows.collect(), next)
}

/// `CONSUMER/ID`.
pub(crate) fn message(text: &str) -> anyhow::Result<Message> {
    let (consumer, id) =
        text.split_once('/').ok_or_else(|| Failure::Usage("--message must be CONSUMER/ID".to_owned()))?;
    Ok(Message { consumer: parsed("the consumer", consumer)?, id: parsed("the message id", id)? })
}

/// Prints every change as it happens, until it is interrupted.
pub(crate) fn watch(call: &Call, namespace: Option<&String>, from: Option<&String>) -> anyhow::Result<()> {
    let query = WatchQuery { namespace: option("--namespace", namespace)?, from: option("--from", from)? };
    with_client(call, async |client| {
        let mut watch = client.watch(query.clone());
        loop {
            match watch.next().await {
                Outcome::Done(event) if call.output == Format::Json => {
                    output::line(&serde_json::to_string(&event)?);
                }
                Outcome::Done(event) => output::line(&change(&event)),
                other => return Err(failure(other).into()),
            }
        }
    })
}

fn change(event: &OperationEvent) -> String {
    let flags = [(event.escalated, "  escalated"), (event.quarantined, "  quarantined")];
    let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
    let OperationEvent { position, namespace, state, attempt, operation_id, .. } = event;
    format!("{position}  {namespace}  {state}  attempt {attempt}  {operation_id}{flags}")
}

/// Sends a batch as it was written, and prints one line for each item.
pub(crate) fn batch(call: &Call, file: &str) -> anyhow::Result<()> {
    let bytes = document(file)?;
    let body = RawJson::parse(&bytes)
        .map_err(|fault| Failure::Usage(format!("the batch, at {:?}: {}", fault.pointer, fault.detail)))?;
    let answer = run(call, async |client| client.batch_as_written(&body).await)?;
    if call.output == Format::Json {
        return output::answer(call.output, &answer);
    }
    let rows: Vec<[String; 3]> = answer
        .results
        .iter()
        .enumerate()
        .map(|(at, result)| [at.to_string(), result.status.to_string(), result.body.as_str().to_owned()])
        .collect();
    output::table(["ITEM", "STATUS", "ANSWER"], &rows);
    match answer.results.iter().find(|result| result.status >= 300) {
        Some(_) => Err(Failure::Refused("an item was refused".to_owned()).into()),
        None => Ok(()),
    }
}
