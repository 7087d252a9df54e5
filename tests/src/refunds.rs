//! The refund system of the seeds, around a real cluster: a portal that decides, messages that carry identifiers only, workers
//! that claim before they call the provider, and a reconciler that asks the provider what happened. (seed 000)

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail, ensure};
use hapax_client::Reported;
use hapax_client::provider::proven_by;
use serde_json::{Value, json};

use crate::caller::{Answer, Caller, Claim};
use crate::provider::{Payment, Provider, Refund};

/// The namespace of the stories, in which every claim presents a capability.
pub const NAMESPACE: &str = "refunds";

/// The section that makes it.
pub const SECTION: &str = "[[bootstrap.namespaces]]\nname = \"refunds\"\nauthority = \"capability\"\n";

/// What travels on the queue: identifiers, no facts.
#[derive(Debug, Clone)]
pub struct Message {
    /// What the broker calls it.
    pub id: String,
    /// The story.
    pub correlation: String,
    /// The operation.
    pub operation: String,
    /// The authority.
    pub capability: String,
}

impl Message {
    /// A copy under another broker's id, as a resubmission tool makes it.
    #[must_use]
    pub fn resubmitted(&self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self.clone() }
    }

    /// The same story's next message, with other authority.
    #[must_use]
    pub fn with_authority(&self, id: &str, capability: &str) -> Self {
        Self { capability: capability.to_owned(), ..self.resubmitted(id) }
    }
}

/// What the portal recorded about an operation.
#[derive(Debug, Clone)]
struct Record {
    order: String,
    amount: String,
}

/// The system. Clones share the portal's records and the provider.
#[derive(Debug, Clone)]
pub struct Refunds {
    portal: Caller,
    records: Arc<Mutex<HashMap<String, Record>>>,
    /// The provider.
    pub provider: Provider,
}

/// What became of a delivery.
#[derive(Debug)]
pub struct Delivered {
    /// The answer to the claim.
    pub claim: Answer,
    /// The claim as it was sent: its id says later who knew what.
    pub sent: Claim,
    /// The answer to the report, where the provider was called.
    pub report: Option<Answer>,
}

impl Refunds {
    /// A system whose portal talks to this node.
    pub fn new(portal: Caller) -> Self {
        Self { portal, records: Arc::default(), provider: Provider::default() }
    }

    /// An agent approves: the operation is recorded, authority issued, and the message written.
    ///
    /// # Errors
    /// Either is refused.
    pub async fn approve(&self, order: &str, amount: &str) -> Result<Message> {
        let record = Record { order: order.to_owned(), amount: amount.to_owned() };
        let (operation, capability) = self.portal.approve(&claim_of(&record), &format!("DEC-{order}")).await?;
        self.records.lock().expect("never poisoned").insert(operation.clone(), record);
        let correlation = format!("COR-{order}");
        Ok(Message { id: format!("MSG-{order}"), correlation, operation, capability })
    }

    /// Another decision about the same operation leads to authority for an attempt.
    ///
    /// # Errors
    /// It is refused.
    pub async fn decide(&self, operation: &str, decision: &str, attempt: u32, more: Value) -> Result<String> {
        let issued = self.portal.issue(operation, decision, attempt, more).await?.is(201, "")?;
        Ok(issued.text("capability_id").to_owned())
    }

    /// The claim that a worker sends for a message: what is claimed comes from the portal's records, not from the message.
    ///
    /// # Errors
    /// The portal knows no such operation.
    pub fn claim(&self, message: &Message) -> Result<Claim> {
        let records = self.records.lock().expect("never poisoned");
        let record = records.get(&message.operation).context("the portal knows no such operation")?;
        let claim = claim_of(record).presenting(&message.capability).because_of(&message.id);
        Ok(claim.with("correlation_id", message.correlation.as_str()))
    }

    /// What the provider is asked for.
    ///
    /// # Errors
    /// The portal knows no such operation.
    pub fn payment(&self, operation: &str) -> Result<Payment> {
        let records = self.records.lock().expect("never poisoned");
        let record = records.get(operation).context("the portal knows no such operation")?;
        Ok(Payment { reference: operation.to_owned(), amount: record.amount.clone() })
    }

    /// A worker handles a message: it claims, calls the provider only where it was elected, and reports what that proves.
    ///
    /// # Errors
    /// The cluster did not answer.
    pub async fn deliver(&self, node: &Caller, message: &Message) -> Result<Delivered> {
        let sent = self.claim(message)?;
        let claim = node.claim(&sent).await?;
        if claim.verdict() != "claimed" {
            // Whatever it is, it is not an election: nothing is executed, and nothing inferred about the first attempt.
            return Ok(Delivered { claim, sent, report: None });
        }
        let answer = self.provider.refund(claim.text("effect_key"), &self.payment(&message.operation)?).await;
        let body = report(claim.epoch(), proven_by(&[answer.send]), answer.id.as_deref());
        let path = format!("/v1/executions/{}/outcome", claim.text("execution_id"));
        let report = Some(node.post(&path, &body).await?);
        Ok(Delivered { claim, sent, report })
    }

    /// Works through a queue that delivers at least once: a message is acknowledged only where the store has answered for good,
    /// and waits for the next round else. Returns the verdicts of what was acknowledged.
    ///
    /// # Errors
    /// The cluster did not answer at all.
    pub async fn drain(&self, node: &Caller, queue: &mut VecDeque<Message>) -> Result<Vec<String>> {
        let mut handled = Vec::new();
        for _ in 0..queue.len() {
            let Some(message) = queue.pop_front() else { break };
            let delivered = self.deliver(node, &message).await?;
            let report = delivered.report.as_ref().map_or(200, |report| report.status.as_u16());
            if delivered.claim.status.as_u16() >= 500 || report >= 500 {
                queue.push_back(message);
            } else {
                handled.push(delivered.claim.verdict().to_owned());
            }
        }
        Ok(handled)
    }

    /// A reconciler's round: it leases what is unknown, asks the provider by the portal's own reference, and says what it found;
    /// what it did not find waits for people, and what it could not ask about waits for the next round. Nothing is sent again.
    /// Returns how many it found and how many it escalated.
    ///
    /// # Errors
    /// A call is refused.
    pub async fn reconcile(&self, node: &Caller) -> Result<(usize, usize)> {
        let leased = node.reconcile(NAMESPACE, "reconciler", 100, 30_000).await?.is(200, "")?;
        let (mut found, mut escalated) = (0, 0);
        for item in leased.body["items"].as_array().into_iter().flatten() {
            let (execution, operation) = (text(item, "execution_id")?, text(item, "operation_id")?);
            let epoch = item["lease_epoch"].as_u64().unwrap_or_default();
            match self.provider.look_up(operation) {
                Err(_) => {}
                Ok(Some(refund)) => {
                    let more =
                        json!({ "external_id": refund.id, "proof": format!("found by reference: {refund:?}") });
                    node.resolve(execution, epoch, "completed", more).await?.in_state("completed")?;
                    found += 1;
                }
                Ok(None) => {
                    let body = json!({ "lease_epoch": epoch, "reason": "the provider does not know it" });
                    let path = format!("/v1/executions/{execution}/escalate");
                    node.post(&path, &body).await?.in_state("unknown")?;
                    escalated += 1;
                }
            }
        }
        Ok((found, escalated))
    }

    /// The provider calls back: what it says is proof for whoever does not know, and is offered as that and as nothing else.
    ///
    /// # Errors
    /// The cluster did not answer.
    pub async fn called_back(&self, node: &Caller, refund: &Refund) -> Result<Answer> {
        let read = node.operation(&refund.payment.reference).await?.is(200, "")?;
        let execution = &read.body["execution"];
        let epoch = execution["lease_epoch"].as_u64().unwrap_or(1);
        let more = json!({ "external_id": refund.id, "proof": format!("called back: {refund:?}") });
        node.resolve(text(execution, "execution_id")?, epoch, "completed", more).await
    }

    /// The state of an operation, through a node.
    ///
    /// # Errors
    /// It is not answered.
    pub async fn state(&self, node: &Caller, operation: &str) -> Result<String> {
        Ok(node.operation(operation).await?.is(200, "")?.text("state").to_owned())
    }

    /// Checks what the ledger recorded for an operation: so many requests, and so many refunds.
    ///
    /// # Errors
    /// It recorded something else.
    pub fn ledger_shows(&self, operation: &str, requests: usize, refunds: usize) -> Result<()> {
        let (sent, made) = (self.provider.requests(operation), self.provider.refunds(operation));
        if (sent.len(), made.len()) != (requests, refunds) {
            bail!("not {requests} requests and {refunds} refunds, but {sent:?} and {made:?}");
        }
        Ok(())
    }
}

fn claim_of(record: &Record) -> Claim {
    let mut claim = Claim::of(format!("refund/{}", record.order));
    claim.namespace = NAMESPACE;
    claim.request = json!({ "order": record.order, "amount": record.amount });
    claim.with("resource", record.order.as_str())
}

/// The body of a report of what sends prove.
fn report(epoch: u64, outcome: Reported, id: Option<&str>) -> Value {
    let mut body = json!({ "lease_epoch": epoch, "outcome": outcome });
    if let Some(id) = id {
        body["external_id"] = json!(id);
    }
    body
}

fn text<'v>(item: &'v Value, field: &str) -> Result<&'v str> {
    let found = item[field].as_str();
    ensure!(found.is_some(), "no {field} in {item}");
    Ok(found.unwrap_or_default())
}
