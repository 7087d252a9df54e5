//! `POST /v1/claims`: the request that elects one executor, and its four answers.
//! Every other answer is a problem.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::digest::PROFILE;
use crate::epoch::EpochBinding;
use crate::json::Value;
use crate::limits::{self, Limits};
use crate::operation::{Consistency, Receipt, State};
use crate::request::{Body, Fields, Invalid, Kind, Known, required};
use crate::text::{
    BusinessEpoch, CapabilityId, ClaimId, Consumer, Digest, EffectKey, ExecutionId, Key, Label, Malformed, MessageId,
    Namespace, OperationId, Resource, Revision, Version,
};
use crate::time::Instant;

/// The profile of a digest that the caller computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub enum DigestProfile {
    /// The only one.
    #[serde(rename = "hapax-c14n/1")]
    C14n1,
}

impl std::str::FromStr for DigestProfile {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<DigestProfile, Malformed> {
        if text == PROFILE { Ok(DigestProfile::C14n1) } else { Err(Malformed("must be \"hapax-c14n/1\"")) }
    }
}

/// A claim as it is sent: `request` or `digest` with `digest_profile`, not both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The namespace.
    pub namespace: Namespace,
    /// The idempotency key; the `Idempotency-Key` header may carry it instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Part of the identity where the operation may legitimately repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_epoch: Option<BusinessEpoch>,
    /// The whole request that is bound to the key; digested here and not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
    /// Its digest, where the caller computes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// How the caller computed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest_profile: Option<DigestProfile>,
    /// Version of what the operation means; part of the digest, "1" where absent. Not beside `digest`, which has it inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_version: Option<Version>,
    /// Names this call: the same one again gets the same answer. Without one, a lost answer cannot be asked for again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_id: Option<ClaimId>,
    /// Who will execute; the credential's client where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Label>,
    /// Length of the lease in milliseconds; 60,000 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1000, maximum = 900_000)]
    pub lease_ms: Option<u64>,
    /// How long to wait for another executor's outcome, in milliseconds; 0 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 60_000)]
    pub wait_ms: Option<u64>,
    /// The story it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Label>,
    /// The attempt, where the namespace asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub attempt: Option<u32>,
    /// The capability that it presents; with `claim_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability_id: Option<CapabilityId>,
    /// The delivery that led to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// The value of a register of authority that it was decided under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<EpochBinding>,
    /// The business entity that the operation is about; fixed by the first call that names the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// When the caller made the key, where the namespace asks for it; fixed by the first call that names the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_created_at: Option<Instant>,
}

impl ClaimRequest {
    /// A claim of `key`, with nothing else said.
    #[must_use]
    pub fn new(namespace: Namespace, key: Key) -> ClaimRequest {
        ClaimRequest {
            namespace,
            key: Some(key),
            business_epoch: None,
            request: None,
            digest: None,
            digest_profile: None,
            operation_version: None,
            claim_id: None,
            owner: None,
            lease_ms: None,
            wait_ms: None,
            correlation_id: None,
            attempt: None,
            capability_id: None,
            message: None,
            epoch: None,
            resource: None,
            key_created_at: None,
        }
    }
}

/// A delivery: what a consumer received. It names no operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// Who received it: an inbox is one consumer's.
    pub consumer: Consumer,
    /// What its sender or broker calls it.
    pub id: MessageId,
}

impl Message {
    const FIELDS: Known = &[("consumer", Kind::Plain), ("id", Kind::Plain)];

    fn take(fields: &mut Fields) -> Result<Message, Invalid> {
        Ok(Message {
            consumer: required("consumer", fields.text("consumer")?)?,
            id: required("id", fields.text("id")?)?,
        })
    }
}

/// What a key is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A request, to be digested with its tenant and namespace.
    Request {
        /// The canonical request.
        request: Value,
        /// The operation's version, where it is not "1".
        operation_version: Option<Version>,
    },
    /// A digest under [`PROFILE`].
    Digest(Digest),
}

/// A claim as it was read: complete, and within every limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The namespace.
    pub namespace: Namespace,
    /// The key.
    pub key: Key,
    /// The business epoch.
    pub business_epoch: Option<BusinessEpoch>,
    /// What the key is bound to.
    pub subject: Subject,
    /// This call's identity, if the caller gave one.
    pub claim_id: Option<ClaimId>,
    /// Who will execute.
    pub owner: Option<Label>,
    /// Length of the lease in milliseconds.
    pub lease_ms: u64,
    /// How long to wait, in milliseconds.
    pub wait_ms: u64,
    /// The story it belongs to.
    pub correlation_id: Option<Label>,
    /// The attempt.
    pub attempt: Option<u32>,
    /// The capability; then `claim_id` is there too.
    pub capability_id: Option<CapabilityId>,
    /// The delivery.
    pub message: Option<Message>,
    /// The value of a register that it was decided under.
    pub epoch: Option<EpochBinding>,
    /// The business entity.
    pub resource: Option<Resource>,
    /// When the caller made the key.
    pub key_created_at: Option<Instant>,
}

impl Claim {
    /// Reads a body; `header_key` is what `Idempotency-Key` carried, already parsed.
    ///
    /// # Errors
    /// [`Invalid`] names the first field that is wrong.
    pub fn read(body: &[u8], header_key: Option<Key>, limits: &Limits) -> Result<Claim, Invalid> {
        Claim::with_key(&mut Fields::read(body, &[Claim::FIELDS], limits)?, header_key, limits)
    }

    fn with_key(fields: &mut Fields, header_key: Option<Key>, limits: &Limits) -> Result<Claim, Invalid> {
        let claim = Claim {
            namespace: required("namespace", fields.text("namespace")?)?,
            key: key(fields, header_key, limits)?,
            business_epoch: fields.text("business_epoch")?,
            subject: Subject::take(fields)?,
            claim_id: fields.text("claim_id")?,
            owner: fields.text("owner")?,
            lease_ms: fields
                .integer("lease_ms", limits::LEASE_MS_MIN..=limits.lease_ms)?
                .unwrap_or(limits::LEASE_MS_DEFAULT.min(limits.lease_ms)),
            wait_ms: fields.integer("wait_ms", 0..=limits.wait_ms)?.unwrap_or(0),
            correlation_id: fields.text("correlation_id")?,
            attempt: fields.attempt("attempt")?,
            capability_id: fields.text("capability_id")?,
            message: fields.nested("message", Message::FIELDS, Message::take)?,
            epoch: EpochBinding::within(fields, "epoch")?,
            resource: fields.text("resource")?,
            key_created_at: fields.text("key_created_at")?,
        };
        // Authority is spent by the call: without an identity of its own, a lost answer would have spent it for nobody.
        if claim.capability_id.is_some() && claim.claim_id.is_none() {
            return Err(Invalid::field("claim_id", "is required with capability_id"));
        }
        Ok(claim)
    }
}

impl Body for Claim {
    const FIELDS: Known = &[
        ("namespace", Kind::Plain),
        ("key", Kind::Plain),
        ("business_epoch", Kind::Plain),
        ("request", Kind::Canonical),
        ("digest", Kind::Plain),
        ("digest_profile", Kind::Plain),
        ("operation_version", Kind::Plain),
        ("claim_id", Kind::Plain),
        ("owner", Kind::Plain),
        ("lease_ms", Kind::Plain),
        ("wait_ms", Kind::Plain),
        ("correlation_id", Kind::Plain),
        ("attempt", Kind::Plain),
        ("capability_id", Kind::Plain),
        ("message", Kind::Plain),
        ("epoch", Kind::Plain),
        ("resource", Kind::Plain),
        ("key_created_at", Kind::Plain),
    ];

    fn take(fields: &mut Fields, limits: &Limits) -> Result<Claim, Invalid> {
        Claim::with_key(fields, None, limits)
    }
}

pub(crate) fn key(fields: &mut Fields, header: Option<Key>, limits: &Limits) -> Result<Key, Invalid> {
    let key = match (fields.text::<Key>("key")?, header) {
        (Some(_), Some(_)) => return Err(Invalid::field("key", "is also in Idempotency-Key; send one of them")),
        (Some(key), None) | (None, Some(key)) => key,
        (None, None) => return Err(Invalid::field("key", "is required, here or in Idempotency-Key")),
    };
    if key.as_str().len() > limits.key_chars {
        return Err(Invalid::field("key", format!("has more than {} characters", limits.key_chars)));
    }
    Ok(key)
}

impl Subject {
    /// Takes `request` with `operation_version`, or `digest` with `digest_profile`.
    pub(crate) fn take(fields: &mut Fields) -> Result<Subject, Invalid> {
        let request = fields.canonical("request");
        let digest = fields.text("digest")?;
        let profile: Option<DigestProfile> = fields.text("digest_profile")?;
        let operation_version = fields.text("operation_version")?;
        match (request, digest, profile) {
            (Some(_), Some(_), _) => Err(Invalid::field("digest", "and request exclude each other")),
            (Some(_), None, Some(_)) => Err(Invalid::field("digest_profile", "belongs to digest, which is absent")),
            (Some(request), None, None) => Ok(Subject::Request { request, operation_version }),
            (None, Some(_), None) => Err(Invalid::field("digest_profile", "is required with digest")),
            (None, Some(_), Some(_)) if operation_version.is_some() => {
                Err(Invalid::field("operation_version", "is already inside digest"))
            }
            (None, Some(digest), Some(DigestProfile::C14n1)) => Ok(Subject::Digest(digest)),
            (None, None, _) => Err(Invalid::field("request", "is required, or digest and digest_profile")),
        }
    }
}

/// 201: this caller, and nobody else, executes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Claimed {
    /// The operation.
    pub operation_id: OperationId,
    /// This attempt.
    pub execution_id: ExecutionId,
    /// Its number, from 1.
    pub attempt: u32,
    /// The fencing token: sent with renew and outcome, and to an effect that checks it.
    pub lease_epoch: u64,
    /// What is left of the lease, in milliseconds, never overstated.
    pub lease_expires_in_ms: u64,
    /// When to renew, in milliseconds from now.
    pub renew_by_ms: u64,
    /// What to send to the provider as its idempotency key.
    pub effect_key: EffectKey,
    /// When this was true.
    pub revision: Revision,
}

/// 202: another executor is at work. Not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InProgress {
    /// The operation.
    pub operation_id: OperationId,
    /// The attempt at work.
    pub execution_id: ExecutionId,
    /// Its number.
    pub attempt: u32,
    /// The operation's state.
    pub state: State,
    /// When this was true.
    pub revision: Revision,
}

/// 200: finished before; nothing is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replayed {
    /// The operation.
    pub operation_id: OperationId,
    /// The attempt that finished it; absent where it was closed before anybody was elected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// Its number; 0 where there is none.
    pub attempt: u32,
    /// `completed` or `failed`.
    pub state: State,
    /// What it came to.
    pub outcome: Receipt,
    /// When this was true.
    pub revision: Revision,
    /// Present where this node answered from its own copy of a fact that cannot change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
}

/// 200: this message was accepted before, for this operation and digest. It says nothing about the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DuplicateDelivery {
    /// The operation that the message led to.
    pub operation_id: OperationId,
    /// The latest attempt, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// Its number; 0 where there is none.
    pub attempt: u32,
    /// The operation's state.
    pub state: State,
    /// When this was true.
    pub revision: Revision,
}

/// The answer to a claim that is no problem, told apart by `result`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum ClaimAnswer {
    /// 201.
    Claimed(Claimed),
    /// 202.
    InProgress(InProgress),
    /// 200.
    Replayed(Replayed),
    /// 200.
    DuplicateDelivery(DuplicateDelivery),
}

impl ClaimAnswer {
    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            ClaimAnswer::Claimed(_) => 201,
            ClaimAnswer::InProgress(_) => 202,
            ClaimAnswer::Replayed(_) | ClaimAnswer::DuplicateDelivery(_) => 200,
        }
    }
}

/// Reads `result` first: serde's own tagged enums rebuild the document, which would lose a raw result's digits.
impl<'de> Deserialize<'de> for ClaimAnswer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClaimAnswer, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Tag {
            Claimed,
            InProgress,
            Replayed,
            DuplicateDelivery,
        }
        #[derive(Deserialize)]
        struct Tagged {
            result: Tag,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let tagged: Tagged = serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
        match tagged.result {
            Tag::Claimed => serde_json::from_str(text.get()).map(ClaimAnswer::Claimed),
            Tag::InProgress => serde_json::from_str(text.get()).map(ClaimAnswer::InProgress),
            Tag::Replayed => serde_json::from_str(text.get()).map(ClaimAnswer::Replayed),
            Tag::DuplicateDelivery => serde_json::from_str(text.get()).map(ClaimAnswer::DuplicateDelivery),
        }
        .map_err(serde::de::Error::custom)
    }
}
