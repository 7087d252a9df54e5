//! `GET /v1/evidence`: the append-only record of what was said against or beside the standing state, of overrides, and
//! of what was presented in vain.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::claim::Message;
use crate::codes::Code;
use crate::cursor::Cursor;
use crate::limits::Limits;
use crate::operation::{Settled, State};
use crate::query::{Query, Writer};
use crate::request::Invalid;
use crate::text::{
    CapabilityId, ClaimId, Consumer, Digest, ExecutionId, Label, MessageId, Namespace, OperationId, Proof, Reason,
    Revision,
};
use crate::time::Instant;

/// What the record is asked by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvidenceBy {
    /// Everything about an operation.
    Operation(OperationId),
    /// The refusals of a capability.
    Capability(CapabilityId),
    /// The refusals of a delivery.
    Message(Message),
    /// Everything of a story.
    Correlation(Label),
}

/// The query of `GET /v1/evidence`: exactly one of `operation_id`, `capability_id`, `message_id` with `consumer`, and
/// `correlation_id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceQuery {
    /// What it goes by.
    pub by: EvidenceBy,
    /// Items on the page.
    pub limit: Option<u64>,
    /// Where an earlier page of the same question ended.
    pub cursor: Option<Cursor>,
}

impl EvidenceQuery {
    /// The first page.
    #[must_use]
    pub fn new(by: EvidenceBy) -> EvidenceQuery {
        EvidenceQuery { by, limit: None, cursor: None }
    }

    /// Reads a query string; `limit` is there afterwards.
    ///
    /// # Errors
    /// [`Invalid`] names the first parameter that is wrong.
    pub fn read(query: &str, limits: &Limits) -> Result<EvidenceQuery, Invalid> {
        let known = ["operation_id", "capability_id", "message_id", "consumer", "correlation_id", "limit", "cursor"];
        let mut query = Query::read(query, &known)?;
        let operation = query.parsed("operation_id")?.map(EvidenceBy::Operation);
        let capability = query.parsed("capability_id")?.map(EvidenceBy::Capability);
        let consumer: Option<Consumer> = query.parsed("consumer")?;
        let message = match (query.parsed::<MessageId>("message_id")?, consumer) {
            (Some(id), Some(consumer)) => Some(EvidenceBy::Message(Message { consumer, id })),
            (Some(_), None) => return Err(Invalid::header("consumer", "is required with message_id")),
            (None, Some(_)) => return Err(Invalid::header("consumer", "belongs to message_id, which is absent")),
            (None, None) => None,
        };
        let correlation = query.parsed("correlation_id")?.map(EvidenceBy::Correlation);
        let mut given = [operation, capability, message, correlation].into_iter().flatten();
        let (Some(by), None) = (given.next(), given.next()) else {
            let detail = "must have exactly one of operation_id, capability_id, message_id and correlation_id";
            return Err(Invalid::header("the query", detail));
        };
        Ok(EvidenceQuery { by, limit: Some(query.limit(limits)?), cursor: query.parsed("cursor")? })
    }

    /// The query string, without its question mark.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut query = Writer::default();
        match &self.by {
            EvidenceBy::Operation(id) => query.put("operation_id", id),
            EvidenceBy::Capability(id) => query.put("capability_id", id),
            EvidenceBy::Message(message) => {
                query.put("message_id", &message.id);
                query.put("consumer", &message.consumer);
            }
            EvidenceBy::Correlation(id) => query.put("correlation_id", id),
        }
        query.optional("limit", self.limit);
        query.optional("cursor", self.cursor.as_ref());
        query.finish()
    }
}

/// In which call something was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// An owner's report that could not stand alone.
    Report,
    /// An ex-owner's evidence.
    Evidence,
    /// A resolution.
    Resolve,
    /// An unknown execution is to wait for people.
    Escalate,
    /// It is to wait no longer.
    DeEscalate,
    /// A forced end of a lease.
    Fence,
    /// Claims are to be stopped.
    Quarantine,
    /// Claims are to go on.
    Release,
    /// Another operation takes its place.
    Supersede,
    /// The operation ends without an effect.
    Close,
}

/// Something that was said about an operation: late evidence, a resolution, an override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Word {
    /// In which call.
    pub said: Said,
    /// Its number within the operation, from 1.
    pub number: u32,
    /// The operation.
    pub operation_id: OperationId,
    /// The execution that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// Who said it.
    pub client: Label,
    /// The claim, for an ex-owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_id: Option<ClaimId>,
    /// The lease epoch that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_epoch: Option<u64>,
    /// The outcome that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Settled>,
    /// The provider's own id of the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<Label>,
    /// The operation that takes its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<OperationId>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The state that it met.
    pub operation_state: State,
    /// When.
    pub at: Instant,
    /// The link of the chain: the hash of this word and of the link before it.
    pub chain: Digest,
    /// At which revision.
    pub revision: Revision,
}

/// Authority, or a delivery, that was presented in vain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refused {
    /// Why it was refused.
    pub code: Code,
    /// The namespace that was claimed in.
    pub namespace: Namespace,
    /// The capability that was presented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// The message that presented it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// Whether that message was accepted before: then somebody redelivers; else somebody resubmits.
    pub known_redelivery: bool,
    /// The operation that was claimed, where it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// The state it was in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_state: Option<State>,
    /// Its latest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Always false: what was refused executed nothing.
    pub execution_attempted: bool,
    /// Who presented it first.
    pub client: Label,
    /// The story it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Label>,
    /// When it was first refused.
    pub first_at: Instant,
    /// When it was last refused.
    pub last_at: Instant,
    /// How often; repeats are counted a little later than they are answered.
    pub times: u32,
    /// At which revision it was first refused.
    pub revision: Revision,
}

/// One entry of the record, told apart by `kind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EvidenceEntry {
    /// Something that was said.
    Word(Word),
    /// Something that was presented in vain.
    Refused(Refused),
}

/// A page of the record, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvidencePage {
    /// The entries.
    pub entries: Vec<EvidenceEntry>,
    /// Where the next page begins; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<Cursor>,
    /// When this was true.
    pub revision: Revision,
}
