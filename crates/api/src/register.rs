//! `POST /v1/operations`: an operation becomes known, with its digest, before authority for it is issued.
//! The same call again gets the same operation.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::claim::{DigestProfile, Subject, key};
use crate::json::Value;
use crate::limits::Limits;
use crate::operation::State;
use crate::request::{Body, Fields, Invalid, Kind, Known, required};
use crate::text::{BusinessEpoch, Digest, Key, Label, Namespace, OperationId, Resource, Revision, Version};
use crate::time::Instant;

/// A registration as it is sent: `request` or `digest` with `digest_profile`, not both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
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
    /// The story it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Label>,
    /// The business entity that it is about; fixed by the first call that names the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// When the caller made the key, where the namespace asks for it; fixed by the first call that names the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_created_at: Option<Instant>,
}

impl RegisterRequest {
    /// A registration of `key`, with nothing else said.
    #[must_use]
    pub fn new(namespace: Namespace, key: Key) -> RegisterRequest {
        RegisterRequest {
            namespace,
            key: Some(key),
            business_epoch: None,
            request: None,
            digest: None,
            digest_profile: None,
            operation_version: None,
            correlation_id: None,
            resource: None,
            key_created_at: None,
        }
    }
}

/// A registration as it was read: complete, and within every limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The namespace.
    pub namespace: Namespace,
    /// The key.
    pub key: Key,
    /// The business epoch.
    pub business_epoch: Option<BusinessEpoch>,
    /// What the key is bound to.
    pub subject: Subject,
    /// The story it belongs to.
    pub correlation_id: Option<Label>,
    /// The business entity.
    pub resource: Option<Resource>,
    /// When the caller made the key.
    pub key_created_at: Option<Instant>,
}

impl Register {
    /// Reads a body; `header_key` is what `Idempotency-Key` carried, already parsed.
    ///
    /// # Errors
    /// [`Invalid`] names the first field that is wrong.
    pub fn read(body: &[u8], header_key: Option<Key>, limits: &Limits) -> Result<Register, Invalid> {
        Register::with_key(&mut Fields::read(body, &[Register::FIELDS], limits)?, header_key, limits)
    }

    fn with_key(fields: &mut Fields, header_key: Option<Key>, limits: &Limits) -> Result<Register, Invalid> {
        Ok(Register {
            namespace: required("namespace", fields.text("namespace")?)?,
            key: key(fields, header_key, limits)?,
            business_epoch: fields.text("business_epoch")?,
            subject: Subject::take(fields)?,
            correlation_id: fields.text("correlation_id")?,
            resource: fields.text("resource")?,
            key_created_at: fields.text("key_created_at")?,
        })
    }
}

impl Body for Register {
    const FIELDS: Known = &[
        ("namespace", Kind::Plain),
        ("key", Kind::Plain),
        ("business_epoch", Kind::Plain),
        ("request", Kind::Canonical),
        ("digest", Kind::Plain),
        ("digest_profile", Kind::Plain),
        ("operation_version", Kind::Plain),
        ("correlation_id", Kind::Plain),
        ("resource", Kind::Plain),
        ("key_created_at", Kind::Plain),
    ];

    fn take(fields: &mut Fields, limits: &Limits) -> Result<Register, Invalid> {
        Register::with_key(fields, None, limits)
    }
}

/// 201 where this call made the operation known, 200 where it was known with this digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Registered {
    /// The operation.
    pub operation_id: OperationId,
    /// Its state.
    pub state: State,
    /// When this was true.
    pub revision: Revision,
}
