//! Digest profile `hapax-c14n/1`: SHA-256 over RFC 8785 text of an envelope that binds a request to its key.
//! Shared by every client: `docs/digest-vectors.json` holds its vectors.
//!
//! The envelope is {namespace, operation_version, profile, request, tenant}: the same request for another tenant,
//! namespace or version is another request. The request's strings and names are in NFC, its numbers are
//! integers within ±(2^53 − 1), absent and null differ, and the names that its namespace declares
//! transport-only are dropped from the request's top level. Floats, −0 and duplicate names are refused by the parser.
//!
//! Two programs whose Unicode tables differ may disagree about characters that the older one does not know.
//! Then one of them is told `key.digest-mismatch`: an error on the safe side, never a replay of another request.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::json::{Value, nfc, utf16_order};
use crate::text::{Digest, Namespace, Version};

/// The profile's name, part of what is digested.
pub const PROFILE: &str = "hapax-c14n/1";

/// `operation_version` of a claim that names none.
pub const OPERATION_VERSION_DEFAULT: &str = "1";

/// What is digested.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    /// The tenant's name, from the credential and never from the body.
    pub tenant: &'a str,
    /// The namespace.
    pub namespace: &'a Namespace,
    /// The operation's version; `None` stands for "1".
    pub operation_version: Option<&'a Version>,
    /// The request, read by [`Value::canonical`].
    pub request: &'a Value,
    /// Names that the namespace drops from the request's top level, in any order.
    pub transport_fields: &'a [&'a str],
}

impl Envelope<'_> {
    /// The text that is hashed.
    #[must_use]
    pub fn canonical(&self) -> String {
        let version = self.operation_version.map_or(OPERATION_VERSION_DEFAULT, Version::as_str);
        let mut out = String::with_capacity(256);
        out.push_str("{\"namespace\":");
        write_string(&mut out, self.namespace.as_str());
        out.push_str(",\"operation_version\":");
        write_string(&mut out, version);
        out.push_str(",\"profile\":");
        write_string(&mut out, PROFILE);
        out.push_str(",\"request\":");
        match self.request {
            Value::Object(members) if !self.transport_fields.is_empty() => {
                let dropped: Vec<String> = self.transport_fields.iter().map(|name| nfc(name)).collect();
                write_object(&mut out, members.iter().filter(|(name, _)| !dropped.contains(name)));
            }
            request => write_value(&mut out, request),
        }
        out.push_str(",\"tenant\":");
        write_string(&mut out, &nfc(self.tenant));
        out.push('}');
        out
    }

    /// SHA-256 of that text.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.canonical()).into())
    }
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Integer(value) => {
            // Writing to a String cannot fail.
            let _ = write!(out, "{value}");
        }
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            assert!(
                members.windows(2).all(|pair| utf16_order(&pair[0].0, &pair[1].0).is_lt()),
                "an object's names are distinct and sorted; only Value::canonical makes objects"
            );
            write_object(out, members.iter());
        }
    }
}

fn write_object<'a>(out: &mut String, members: impl Iterator<Item = &'a (String, Value)>) {
    out.push('{');
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(out, name);
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

/// RFC 8785 §3.2.2.2: the short escapes, `\u00xx` in lower case for other controls, everything else as itself.
fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
