//! Every problem code that an answer can carry, with what it means for the caller. The only place of codes.
//! Each has a page in `docs/errors/`, compiled in, so that a code without a page does not build.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::text::words;

/// Whether the answer tells what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Certainty)]
pub enum Outcome {
    /// This call changed nothing beyond the record of its refusal.
    Definite,
    /// This call may or may not have been applied. The same call, with the same identity, may be sent again.
    Unknown,
}

words! {
    /// How a namespace wants conflicts reported.
    #[derive(Default)]
    ConflictStyle {
        /// 202 while another executor works, 409 for another request under the key.
        #[default]
        Hapax = "hapax",
        /// As the IETF draft on the `Idempotency-Key` header: 409 in progress, 422 for another request.
        Ietf = "ietf",
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:literal, $retry:ident, $outcome:ident, $title:literal;)*) => {
        /// A problem code: stable, in kebab-case, its parts divided by full stops.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// The code as it is sent.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $code),* }
            }

            /// One line for people.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Code::$name => $title),* }
            }

            /// The HTTP status, where the namespace does not ask for another style.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Code::$name => $status),* }
            }

            /// Whether the same call, sent again after a pause, may succeed and should be sent.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Code::$name => $retry),* }
            }

            /// Whether the caller knows what happened.
            #[must_use]
            pub const fn outcome(self) -> Outcome {
                match self { $(Code::$name => Outcome::$outcome),* }
            }

            /// The page of `docs/errors/`, in Markdown.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self { $(Code::$name => include_str!(concat!("../../../docs/errors/", $code, ".md"))),* }
            }
        }
    };
}

codes! {
    /// The body, a header, the path or the query breaks the wire's rules.
    RequestInvalid = "request.invalid", 400, false, Definite, "The request is malformed";
    /// The body, or an inline result, is above its limit.
    RequestTooLarge = "request.too-large", 413, false, Definite, "The request is too large";
    /// The path exists; the method does not.
    MethodNotAllowed = "request.method-not-allowed", 405, false, Definite, "The method is not allowed here";
    /// The body is not `application/json`.
    UnsupportedMediaType = "request.unsupported-media-type", 415, false, Definite, "The media type is not supported";
    /// The headers are above their limit.
    HeadersTooLarge = "request.headers-too-large", 431, false, Definite, "The request headers are too large";
    /// The body has no `Content-Length`, or a `Transfer-Encoding`.
    LengthRequired = "request.length-required", 411, false, Definite, "A Content-Length is required";
    /// The body did not arrive in time.
    RequestTimeout = "request.timeout", 408, true, Definite, "The request did not arrive in time";
    /// The caller sends faster than it may.
    RateLimited = "rate.limited", 429, true, Definite, "Too many requests";
    /// No credential, or not a valid one.
    AuthInvalid = "auth.invalid", 401, false, Definite, "The credential is missing or not valid";
    /// The credential does not allow this.
    AuthForbidden = "auth.forbidden", 403, false, Definite, "The credential does not allow this";
    /// Absent, or not the caller's.
    NotFound = "not-found", 404, false, Definite, "There is no such thing, or it is not yours";
    /// `If-Match`, or an expected state, does not hold.
    PreconditionFailed = "precondition.failed", 412, false, Definite, "The precondition does not hold";
    /// A condition must be stated: `If-Match`, or `If-None-Match: *`.
    PreconditionRequired = "precondition.required", 428, false, Definite, "A precondition is required";
    /// What is to be written does not fit what stands and cannot be changed.
    PolicyFixed = "policy.fixed", 409, false, Definite, "What stands cannot be changed like this";
    /// As many as there may be.
    QuotaExceeded = "quota.exceeded", 429, false, Definite, "A quota is used up";
    /// The claim id was used for another claim.
    ClaimIdReused = "claim-id.reused", 409, false, Definite, "The claim id belongs to another claim";
    /// Another request is bound to the key.
    KeyDigestMismatch = "key.digest-mismatch", 409, false, Definite, "Another request is bound to this key";
    /// The key is older than what its namespace remembers.
    KeyRetentionElapsed =
        "key.retention-elapsed", 410, false, Definite, "The key is older than what its namespace remembers";
    /// The message was accepted before, for another operation or request.
    DeliveryMismatch = "delivery.mismatch", 409, false, Definite, "The message was accepted for something else";
    /// The decision led to a capability with other terms.
    DecisionReused = "decision.reused", 409, false, Definite, "The decision led to a capability with other terms";
    /// The capability is spent.
    CapabilityAlreadyConsumed = "capability.already-consumed", 409, false, Definite, "The capability is spent";
    /// The capability was taken back.
    CapabilityRevoked = "capability.revoked", 403, false, Definite, "The capability was taken back";
    /// The capability was not used in time.
    CapabilityExpired = "capability.expired", 403, false, Definite, "The capability has expired";
    /// There is no such capability, or it is not the caller's.
    CapabilityInvalid = "capability.invalid", 403, false, Definite, "There is no such capability, or it is not yours";
    /// The capability is for something else.
    CapabilityBindingMismatch =
        "capability.binding-mismatch", 403, false, Definite, "The capability is for something else";
    /// The namespace asks for a capability, and none was presented.
    CapabilityRequired = "capability.required", 403, false, Definite, "A capability is required here";
    /// What is presented was decided under a value that its register of authority has left.
    EpochStale = "epoch.stale", 403, false, Definite, "The authority epoch is no longer current";
    /// What is presented names a value that its register of authority never stood at.
    EpochUnknown = "epoch.unknown", 403, false, Definite, "The authority epoch was never current";
    /// Another executor is at work.
    OperationExecuting = "operation.executing", 409, true, Definite, "Another executor is at work";
    /// The last execution's outcome is not known.
    OperationOutcomeUnknown = "operation.outcome-unknown", 409, false, Definite, "The operation's outcome is unknown";
    /// The operation is completed; to a capability that is a closed gate.
    OperationCompleted = "operation.completed", 409, false, Definite, "The operation is completed";
    /// The operation failed or was closed; to a capability that is a closed gate.
    OperationFailed = "operation.failed", 409, false, Definite, "The operation has failed for good";
    /// The operation is not in the state that this needs.
    OperationState = "operation.state", 409, false, Definite, "The operation is not in the state that this needs";
    /// Contradictory proof, or an operator, stopped claims.
    OperationQuarantined = "operation.quarantined", 409, false, Definite, "The operation is quarantined";
    /// The claim names an attempt that is not the next one, or names none where one is required.
    AttemptMismatch = "attempt.mismatch", 409, false, Definite, "The attempt is not the next one";
    /// The lease epoch has been superseded.
    LeaseStaleEpoch = "lease.stale-epoch", 409, false, Definite, "The lease epoch is no longer current";
    /// The lease is over.
    LeaseLost = "lease.lost", 409, false, Definite, "The lease is lost";
    /// A different outcome stands.
    OutcomeConflict = "outcome.conflict", 409, false, Definite, "A different outcome stands";
    /// What was to be watched from there is no longer kept.
    WatchCompacted = "watch.compacted", 410, false, Definite, "The events from there on are no longer kept";
    /// The node's queues are full.
    StoreOverloaded = "store.overloaded", 503, true, Definite, "The store is overloaded";
    /// No quorum is reachable; nothing was applied.
    StoreUnavailable = "store.unavailable", 503, true, Definite, "The store is unavailable";
    /// The call may have been applied.
    StoreOutcomeUnknown = "store.outcome-unknown", 504, true, Unknown, "The call may have been applied";
    /// The disks are filling.
    StoreFull = "store.full", 507, true, Definite, "The store is out of space";
}

impl Code {
    /// The HTTP status under a namespace's conflict style.
    #[must_use]
    pub const fn status_in(self, style: ConflictStyle) -> u16 {
        match (self, style) {
            (Code::KeyDigestMismatch, ConflictStyle::Ietf) => 422,
            _ => self.status(),
        }
    }

    /// The code of a text, if it is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let text = String::deserialize(deserializer)?;
        Code::parse(&text).ok_or_else(|| serde::de::Error::custom("unknown problem code"))
    }
}

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(Code::ALL.iter().map(|code| code.as_str())))
            .description(Some("A stable code; each is explained in docs/errors/."))
            .into()
    }
}

impl ToSchema for Code {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_distinct_and_well_formed() {
        let mut seen = BTreeSet::new();
        for code in Code::ALL {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} twice");
            assert!(text.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'.' | b'-')), "{text}");
            assert_eq!(Code::parse(text), Some(*code));
            assert!((400..600).contains(&code.status()), "{text}");
        }
        assert_eq!(Code::parse("lease"), None);
    }

    #[test]
    fn only_a_504_is_of_unknown_outcome() {
        for code in Code::ALL {
            assert_eq!(code.outcome() == Outcome::Unknown, code.status() == 504, "{code}");
        }
    }

    #[test]
    fn styles_differ_in_the_mismatch_only() {
        for code in Code::ALL {
            let differs = code.status_in(ConflictStyle::Ietf) != code.status_in(ConflictStyle::Hapax);
            assert_eq!(differs, *code == Code::KeyDigestMismatch);
        }
        assert_eq!(Code::KeyDigestMismatch.status_in(ConflictStyle::Ietf), 422);
    }

    /// The pages say what the table says, in a fixed form, and no page is left over.
    #[test]
    fn pages_agree_with_the_table() {
        for code in Code::ALL {
            let retry = if code.retryable() { "yes" } else { "no" };
            let certainty = if code.outcome() == Outcome::Unknown { "unknown" } else { "definite" };
            let head = format!(
                "# `{code}`\n\n{}. HTTP {}. Retryable: {retry}. Outcome: {certainty}.\n",
                code.title(),
                code.status()
            );
            assert!(code.page().starts_with(&head), "docs/errors/{code}.md must start with:\n{head}");
            for section in ["## What it means", "## Was anything changed?", "## What to do"] {
                assert!(code.page().contains(section), "docs/errors/{code}.md lacks {section:?}");
            }
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let code = name.strip_suffix(".md").unwrap();
            assert!(code == "README" || Code::parse(code).is_some(), "docs/errors/{name} has no code");
        }
    }
}
