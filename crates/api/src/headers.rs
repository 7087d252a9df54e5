//! The headers that carry meaning: `Idempotency-Key`, `Prefer: wait`, `ETag`, `If-Match` and `If-None-Match`.
//! Parsed here from text, so that the server and every client agree.

use crate::codes::Code;
use crate::limits::Limits;
use crate::request::Invalid;
use crate::text::{Key, Revision};

/// Carries the key instead of the body.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// `true` where the answer is a stored one.
pub const IDEMPOTENCY_REPLAYED: &str = "idempotency-replayed";

/// Reads `Idempotency-Key`: a structured-field string in quotes, where `\"` and `\\` are escapes, or the bare key.
///
/// # Errors
/// [`Invalid`]: no key, or a quote without its end.
pub fn idempotency_key(value: &str) -> Result<Key, Invalid> {
    let wrong = |detail: &str| Invalid::header("Idempotency-Key", detail);
    let value = value.trim_matches([' ', '\t']);
    let Some(quoted) = value.strip_prefix('"') else {
        return value.parse().map_err(|malformed: crate::text::Malformed| wrong(malformed.0));
    };
    let mut key = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    loop {
        match chars.next() {
            Some('"') if chars.as_str().is_empty() => break,
            Some('\\') => match chars.next() {
                Some(c @ ('"' | '\\')) => key.push(c),
                _ => return Err(wrong("has an escape other than \\\" and \\\\")),
            },
            Some('"') => return Err(wrong("has text after its closing quote")),
            Some(c) => key.push(c),
            None => return Err(wrong("has no closing quote")),
        }
    }
    key.parse().map_err(|malformed: crate::text::Malformed| wrong(malformed.0))
}

/// Reads the `wait` preference of RFC 7240 as milliseconds; 0 where it is absent.
/// A longer wait than the limit is cut to it: a preference is not a demand. Other preferences are ignored.
///
/// # Errors
/// [`Invalid`]: `wait` is no number of seconds.
pub fn prefer_wait_ms(value: &str, limits: &Limits) -> Result<u64, Invalid> {
    for preference in value.split(',') {
        // RFC 7240 lets parameters follow a preference; wait has none.
        let preference = preference.split(';').next().unwrap_or_default();
        let (name, seconds) = preference.split_once('=').unwrap_or((preference, ""));
        if !name.trim().eq_ignore_ascii_case("wait") {
            continue;
        }
        let seconds = seconds.trim();
        if seconds.is_empty() || seconds.len() > 9 || !seconds.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Invalid::header("Prefer", "has a wait that is no whole number of seconds"));
        }
        let seconds: u64 = seconds.parse().unwrap_or(u64::MAX);
        return Ok(seconds.saturating_mul(1_000).min(limits.wait_ms));
    }
    Ok(0)
}

/// The strong entity tag of an operation last changed at `revision`.
#[must_use]
pub fn etag(revision: &Revision) -> String {
    format!("\"{revision}\"")
}

/// Whether `If-None-Match` names the tag; then nothing changed, and the answer is 304, or waits for a change.
/// Tags are compared weakly, as RFC 9110 §13.1.2 asks.
#[must_use]
pub fn none_match_names(value: &str, etag: &str) -> bool {
    value.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// What the writer of a namespace or a tenant believes to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Nothing: it is to be made.
    Absent,
    /// This version.
    Version(u64),
}

/// The strong entity tag of what was written `version` times.
#[must_use]
pub fn version_tag(version: u64) -> String {
    format!("\"v{version}\"")
}

/// Reads the precondition of a write: `If-Match` with one tag, or `If-None-Match: *` where nothing is to be there.
///
/// # Errors
/// [`Invalid`]: neither is there (`precondition.required`), both are, or one is of another form.
pub fn expected(if_match: Option<&str>, if_none_match: Option<&str>) -> Result<Expected, Invalid> {
    match (if_match, if_none_match.map(str::trim)) {
        (Some(tag), None) => {
            let digits = tag.trim().strip_prefix("\"v").and_then(|rest| rest.strip_suffix('"'));
            let version = digits.and_then(|digits| digits.parse().ok());
            match version.filter(|&version| version_tag(version) == tag.trim()) {
                Some(version) => Ok(Expected::Version(version)),
                None => Err(Invalid::header("If-Match", "must be one ETag as an answer carried it")),
            }
        }
        (None, Some("*")) => Ok(Expected::Absent),
        (None, Some(_)) => Err(Invalid::header("If-None-Match", "must be * here")),
        (Some(_), Some(_)) => Err(Invalid::header("If-Match", "and If-None-Match exclude each other")),
        (None, None) => {
            let invalid = Invalid::header("If-Match", "or If-None-Match: * is required");
            Err(Invalid { code: Code::PreconditionRequired, ..invalid })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_bare_and_quoted() {
        for (value, key) in [
            ("order-82", "order-82"),
            ("\"order-82\"", "order-82"),
            (" \"a\\\"b\\\\c\" ", "a\"b\\c"),
            ("a\"b", "a\"b"),
        ] {
            assert_eq!(idempotency_key(value).unwrap().as_str(), key, "{value}");
        }
        for value in ["", "\"\"", "\"", "\"a", "\"a\"b", "\"a\\n\"", "a b", "\"a b\"", "é", &"k".repeat(256)] {
            assert!(idempotency_key(value).is_err(), "{value}");
        }
    }

    #[test]
    fn waits() {
        let limits = Limits::default();
        for (value, ms) in [
            ("", 0),
            ("wait=5", 5_000),
            ("respond-async, Wait = 10 ; x=y", 10_000),
            ("return=minimal", 0),
            ("wait=600", 60_000),
            ("wait=999999999", 60_000),
        ] {
            assert_eq!(prefer_wait_ms(value, &limits), Ok(ms), "{value}");
        }
        for value in ["wait", "wait=", "wait=-1", "wait=1.5", "wait=\"5\"", "wait=9999999999"] {
            assert!(prefer_wait_ms(value, &limits).is_err(), "{value}");
        }
    }

    #[test]
    fn tags() {
        let tag = etag(&"1.0.7.0".parse().unwrap());
        assert_eq!(tag, "\"1.0.7.0\"");
        for value in ["\"1.0.7.0\"", "W/\"1.0.7.0\"", "\"x\", \"1.0.7.0\"", "*"] {
            assert!(none_match_names(value, &tag), "{value}");
        }
        for value in ["", "1.0.7.0", "\"1.0.7.1\"", "\"1.0.7.00\""] {
            assert!(!none_match_names(value, &tag), "{value}");
        }
    }

    #[test]
    fn preconditions() {
        assert_eq!(expected(Some("\"v7\""), None), Ok(Expected::Version(7)));
        assert_eq!(expected(Some(&version_tag(u64::MAX)), None), Ok(Expected::Version(u64::MAX)));
        assert_eq!(expected(None, Some(" * ")), Ok(Expected::Absent));
        for tag in ["*", "", "v7", "\"7\"", "W/\"v7\"", "\"v07\"", "\"v+7\"", "\"v7\", \"v8\"", "\"v\""] {
            assert_eq!(expected(Some(tag), None).unwrap_err().code, Code::RequestInvalid, "{tag}");
        }
        assert_eq!(expected(None, Some("\"v7\"")).unwrap_err().code, Code::RequestInvalid);
        assert_eq!(expected(Some("\"v7\""), Some("*")).unwrap_err().code, Code::RequestInvalid);
        assert_eq!(expected(None, None).unwrap_err().code, Code::PreconditionRequired);
    }
}
