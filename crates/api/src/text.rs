//! Newtypes of the strings that travel: each with its own length and characters, checked once, at parsing.
//! Ids are opaque here; what is inside an operation id is the business of the crates that make them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::limits;

/// Why a string is not a value of its type. The text says what is expected and never repeats what was sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

fn visible_ascii(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_graphic())
}

/// Names are segments of paths, where `.` and `..` would mean something else.
fn name(text: &str) -> bool {
    let name_char = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'.' | b'_' | b'-');
    !text.starts_with('.') && text.bytes().all(name_char)
}

fn id(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'))
}

fn printable(text: &str) -> bool {
    !text.contains(char::is_control)
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $max:expr, $valid:path, $pattern:literal, $wrong:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Malformed;

            fn from_str(text: &str) -> Result<$name, Malformed> {
                if text.is_empty() || text.len() > $max || !$valid(text) {
                    return Err(Malformed($wrong));
                }
                Ok($name(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .min_length(Some(1))
                    .max_length(Some($max))
                    .pattern(Some($pattern))
                    .description(Some(concat!("A string that ", $wrong, ".")))
                    .into()
            }
        }

        impl ToSchema for $name {}
    };
}

macro_rules! shown {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.0)
            }
        }
    )*};
}

text!(
    /// The caller's idempotency key. `Debug` hides it: keys stay out of broad logs.
    Key, limits::KEY_CHARS_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 255 visible ASCII characters"
);
text!(
    /// A tenant's named family of operations.
    Namespace, limits::NAMESPACE_CHARS_MAX, name, "^[a-z0-9_-][a-z0-9._-]*$",
    "must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-', and not begin with '.'"
);
text!(
    /// Who owns namespaces and tokens.
    Tenant, limits::NAMESPACE_CHARS_MAX, name, "^[a-z0-9_-][a-z0-9._-]*$",
    "must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-', and not begin with '.'"
);
text!(
    /// The name of a register of authority.
    EpochScope, limits::NAMESPACE_CHARS_MAX, name, "^[a-z0-9_-][a-z0-9._-]*$",
    "must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-', and not begin with '.'"
);
text!(
    /// Part of an operation's identity where it may legitimately repeat, as a month in `2026-07`.
    BusinessEpoch, limits::BUSINESS_EPOCH_CHARS_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 64 visible ASCII characters"
);
text!(
    /// Version of what the operation means (part of the digest), or of a stored result's schema.
    Version, limits::VERSION_CHARS_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 64 visible ASCII characters"
);
text!(
    /// Who asks, or somebody else's id: an owner, a correlation id, the provider's reference.
    Label, limits::LABEL_CHARS_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 255 visible ASCII characters"
);
text!(
    /// The business entity that an operation is about, as its owner calls it.
    Resource, limits::LABEL_CHARS_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 255 visible ASCII characters"
);
text!(
    /// What a decider calls its decision; with the operation and the attempt it names one capability.
    DecisionId, limits::LABEL_CHARS_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 255 visible ASCII characters"
);
text!(
    /// Who receives messages: an inbox is one consumer's.
    Consumer, limits::LABEL_CHARS_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 255 visible ASCII characters"
);
text!(
    /// A delivery, as its sender or broker calls it. It never names an operation.
    MessageId, limits::LABEL_CHARS_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 255 visible ASCII characters"
);
text!(
    /// The name of a request's top-level field that never enters the digest.
    FieldName, limits::LABEL_CHARS_MAX, printable, "^\\P{Cc}+$",
    "must be 1 to 255 bytes of UTF-8 without control characters"
);
text!(
    /// Why, for people and for the audit.
    Reason, limits::REASON_BYTES_MAX, printable, "^\\P{Cc}+$",
    "must be 1 to 1024 bytes of UTF-8 without control characters"
);
text!(
    /// Where a result too large to be kept inline is kept.
    ResultRef, limits::REASON_BYTES_MAX, visible_ascii, "^[!-~]+$",
    "must be 1 to 1024 visible ASCII characters"
);
text!(
    /// What shows that an outcome is true: the provider's answer to a look-up, or a reference to it.
    Proof, limits::PROOF_BYTES_MAX, printable, "^\\P{Cc}+$",
    "must be 1 to 4096 bytes of UTF-8 without control characters"
);
text!(
    /// An operation's id, `op_…`. Opaque.
    OperationId, limits::ID_CHARS_MAX, id, "^[A-Za-z0-9_-]+$",
    "must be an operation id: 1 to 128 characters of A-Z, a-z, 0-9, '_' and '-'"
);
text!(
    /// An execution's id, `ex_…`. Opaque.
    ExecutionId, limits::ID_CHARS_MAX, id, "^[A-Za-z0-9_-]+$",
    "must be an execution id: 1 to 128 characters of A-Z, a-z, 0-9, '_' and '-'"
);
text!(
    /// A capability's id, `cap_…`. Opaque, and nobody guesses one.
    CapabilityId, limits::ID_CHARS_MAX, id, "^[A-Za-z0-9_-]+$",
    "must be a capability id: 1 to 128 characters of A-Z, a-z, 0-9, '_' and '-'"
);
text!(
    /// The public part of a token.
    TokenId, limits::ID_CHARS_MAX, id, "^[A-Za-z0-9_-]+$",
    "must be a token id: 1 to 128 characters of A-Z, a-z, 0-9, '_' and '-'"
);
text!(
    /// A whole token, `hpx_<id>_<secret>`. `Debug` hides it.
    TokenText, limits::TOKEN_CHARS_MAX, id, "^[A-Za-z0-9_-]+$",
    "must be a token: 1 to 255 characters of A-Z, a-z, 0-9, '_' and '-'"
);
text!(
    /// What to send to the provider as its own idempotency key: the same for every resend of an attempt.
    EffectKey, limits::ID_CHARS_MAX, id, "^[A-Za-z0-9_-]+$",
    "must be an effect key: 1 to 128 characters of A-Z, a-z, 0-9, '_' and '-'"
);

shown!(Namespace, Tenant, EpochScope, BusinessEpoch, Version, Label, Resource, DecisionId, Consumer, MessageId);
shown!(FieldName, Reason, ResultRef, Proof, OperationId, ExecutionId, CapabilityId, TokenId, EffectKey);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(…)")
    }
}

/// Names one claim call: a UUID, random, never derived from a message, never used for another claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub [u8; 16]);

impl FromStr for ClaimId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<ClaimId, Malformed> {
        const WRONG: Malformed = Malformed("must be a UUID in its hyphenated form, and not the nil UUID");
        let bytes = text.as_bytes();
        if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|&at| bytes[at] != b'-') {
            return Err(WRONG);
        }
        let mut hex = bytes.iter().enumerate().filter(|(at, _)| ![8, 13, 18, 23].contains(at)).map(|(_, &byte)| byte);
        let mut id = [0; 16];
        for byte in &mut id {
            *byte = hex_byte(hex.next(), hex.next()).ok_or(WRONG)?;
        }
        // Many languages hand out the nil UUID where nobody set one: two callers would share it.
        if id == [0; 16] { Err(WRONG) } else { Ok(ClaimId(id)) }
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl PartialSchema for ClaimId {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"))
            .description(Some("A UUID, drawn at random for each claim call; never the nil UUID."))
            .examples(["7f9c24e5-2c31-4c6a-9d0e-5a9f3b1c8d42"])
            .into()
    }
}

impl ToSchema for ClaimId {}

/// SHA-256 of something, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl FromStr for Digest {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Digest, Malformed> {
        const WRONG: Malformed = Malformed("must be \"sha256:\" and 64 lower-case hexadecimal digits");
        let hex = text.strip_prefix("sha256:").ok_or(WRONG)?;
        if hex.len() != 64 || hex.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(WRONG);
        }
        let mut digits = hex.bytes();
        let mut digest = [0; 32];
        for byte in &mut digest {
            *byte = hex_byte(digits.next(), digits.next()).ok_or(WRONG)?;
        }
        Ok(Digest(digest))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

impl PartialSchema for Digest {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::String).pattern(Some("^sha256:[0-9a-f]{64}$")).into()
    }
}

impl ToSchema for Digest {}

/// The moment an answer was true: (incarnation, group, log index, ordinal), totally ordered within a group.
/// Written with full stops between the four numbers; a caller compares revisions only for equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// The cluster's life between restores.
    pub incarnation: u64,
    /// The Raft group.
    pub group: u64,
    /// Index in the group's log.
    pub index: u64,
    /// Place within the entry.
    pub ordinal: u64,
}

impl FromStr for Revision {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Revision, Malformed> {
        const WRONG: Malformed = Malformed("must be a revision as an answer carried it");
        let mut numbers = [0; 4];
        let mut parts = text.split('.');
        for number in &mut numbers {
            *number = parts.next().and_then(|part| part.parse().ok()).ok_or(WRONG)?;
        }
        let [incarnation, group, index, ordinal] = numbers;
        let revision = Revision { incarnation, group, index, ordinal };
        if revision.to_string() == text { Ok(revision) } else { Err(WRONG) }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.incarnation, self.group, self.index, self.ordinal)
    }
}

impl PartialSchema for Revision {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("The moment at which the answer was true. Opaque."))
            .examples(["1.0.4711.0"])
            .into()
    }
}

impl ToSchema for Revision {}

macro_rules! as_string {
    ($($name:ident),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

pub(crate) use as_string;

as_string!(ClaimId, Digest, Revision);

/// A closed set of words: each variant with the text that is sent.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$item])* $variant,)*
        }

        impl $name {
            /// Every one, in the order of the documentation.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The word as it is sent.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::text::Malformed;

            fn from_str(text: &str) -> Result<$name, $crate::text::Malformed> {
                match text {
                    $($text => Ok($name::$variant),)*
                    _ => Err($crate::text::Malformed(concat!("must be one of:" $(, " ", $text)*))),
                }
            }
        }

        $crate::text::as_string!($name);

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::Type::String)
                    .enum_values(Some([$($text),*]))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}

pub(crate) use words;

fn hex_byte(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high?)? * 16 + digit(low?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for good in ["a", "order-82/payment-1", "~!\"", &"k".repeat(255)] {
            assert_eq!(good.parse::<Key>().unwrap().as_str(), good);
        }
        for bad in ["", " ", "a b", "clé", "a\n", "\u{7f}", &"k".repeat(256)] {
            assert!(bad.parse::<Key>().is_err(), "{bad:?}");
        }
        assert!(!format!("{:?}", "secret".parse::<Key>()).contains("secret"));
    }

    #[test]
    fn other_texts() {
        assert!("payments.eu-1".parse::<Namespace>().is_ok());
        for bad in ["Payments", "", ".", "..", ".a", "a/b"] {
            assert!(bad.parse::<Namespace>().is_err(), "{bad}");
        }
        assert!("op_0a-Z".parse::<OperationId>().is_ok());
        assert!("op/..".parse::<OperationId>().is_err());
        assert!("geprüft von Anna".parse::<Reason>().is_ok());
        assert!("two\nlines".parse::<Reason>().is_err());
        // The limit counts bytes.
        assert!("é".repeat(513).parse::<Reason>().is_err());
    }

    #[test]
    fn claim_ids() {
        let text = "0198b5d2-00aa-7bbb-8ccc-0123456789ab";
        assert_eq!(text.parse::<ClaimId>().unwrap().to_string(), text);
        assert_eq!(text.to_uppercase().parse::<ClaimId>(), text.parse::<ClaimId>());
        for bad in [
            "",
            "00000000-0000-0000-0000-000000000000",
            "0198b5d200aa7bbb8ccc0123456789ab",
            "0198b5d2-00aa-7bbb-8ccc-0123456789ag",
            "0198b5d2-00aa-7bbb-8ccc-0123456789a",
            "{198b5d2-00aa-7bbb-8ccc-0123456789ab",
            "0198b5d2-00aa-7bbb-8ccc-01234567é9a",
        ] {
            assert!(bad.parse::<ClaimId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn digests_and_revisions() {
        let text = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(text.parse::<Digest>().unwrap().to_string(), text);
        for bad in ["", "sha256:", &text.to_uppercase(), &text.replace("0f", "0F"), &text[..70], &format!("{text}0")]
        {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        let revision = Revision { incarnation: 1, group: 0, index: 4711, ordinal: 2 };
        assert_eq!(revision.to_string(), "1.0.4711.2");
        assert_eq!("1.0.4711.2".parse(), Ok(revision));
        for bad in ["", "1.0.4711", "1.0.4711.2.3", "1.0.4711.02", "1.0.-1.2", "1.0.+1.2"] {
            assert!(bad.parse::<Revision>().is_err(), "{bad}");
        }
    }
}
