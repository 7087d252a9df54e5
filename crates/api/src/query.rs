//! Query strings, read as strictly as bodies: a parameter that is unknown, or there twice, is refused by its name.
//! What a client writes with [`Writer`] is what [`Query`] reads back.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::limits::{self, Limits};
use crate::request::Invalid;
use crate::text::Malformed;

/// The parameters of one query, each taken once.
pub(crate) struct Query {
    found: Vec<(&'static str, String)>,
}

impl Query {
    /// Reads `a=1&b=2`, percent-encoded, whose names are all in `known` and appear once.
    pub(crate) fn read(text: &str, known: &[&'static str]) -> Result<Query, Invalid> {
        if text.len() > limits::QUERY_BYTES_MAX {
            return Err(Invalid::header("the query", &format!("has more than {} bytes", limits::QUERY_BYTES_MAX)));
        }
        let mut found: Vec<(&'static str, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name).and_then(|name| known.iter().find(|known| **known == name).copied());
            let Some(name) = name else {
                let names = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Invalid::header("the query", &format!("has an unknown parameter; known: {names}")));
            };
            if found.iter().any(|(seen, _)| *seen == name) {
                return Err(Invalid::header(name, "appears twice in the query"));
            }
            let value = decoded(value).ok_or_else(|| Invalid::header(name, "is not percent-encoded UTF-8"))?;
            found.push((name, value));
        }
        Ok(Query { found })
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.found.iter().position(|(found, _)| *found == name)?;
        Some(self.found.swap_remove(at).1)
    }

    /// A value, parsed as its type.
    pub(crate) fn parsed<T: FromStr<Err = Malformed>>(&mut self, name: &str) -> Result<Option<T>, Invalid> {
        let parsed = self.take(name).map(|text| text.parse());
        parsed.transpose().map_err(|wrong: Malformed| Invalid::header(name, wrong.0))
    }

    /// A value that must be there.
    pub(crate) fn required<T: FromStr<Err = Malformed>>(&mut self, name: &str) -> Result<T, Invalid> {
        self.parsed(name)?.ok_or_else(|| Invalid::header(name, "is required in the query"))
    }

    fn integer(&mut self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Invalid> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let digits = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse().ok().filter(|value| digits && range.contains(value)) {
            Some(value) => Ok(Some(value)),
            None => {
                Err(Invalid::header(name, &format!("must be an integer from {} to {}", range.start(), range.end())))
            }
        }
    }

    /// How many items a page may have.
    pub(crate) fn limit(&mut self, limits: &Limits) -> Result<u64, Invalid> {
        let limit = self.integer("limit", 1..=limits.page_items)?;
        Ok(limit.unwrap_or(limits::PAGE_ITEMS_DEFAULT.min(limits.page_items)))
    }
}

/// Percent-encoding of RFC 3986; a plus sign is a plus sign, because instants and ids of others may have one.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok()
}

/// Percent-encodes what stands in a query or in a segment of a path.
#[must_use]
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Writes a query.
#[derive(Default)]
pub(crate) struct Writer {
    text: String,
}

impl Writer {
    pub(crate) fn put(&mut self, name: &str, value: impl Display) {
        if !self.text.is_empty() {
            self.text.push('&');
        }
        self.text.push_str(name);
        self.text.push('=');
        self.text.push_str(&encoded(&value.to_string()));
    }

    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::Label;

    fn detail(query: &str) -> String {
        Query::read(query, &["a", "limit"]).err().expect(query).detail
    }

    #[test]
    fn parameters_are_known_and_appear_once() {
        let mut query = Query::read("a=x%2Fy&limit=7", &["a", "limit"]).unwrap();
        assert_eq!(query.required::<Label>("a").unwrap().as_str(), "x/y");
        assert_eq!(query.limit(&Limits::default()), Ok(7));
        assert_eq!(query.parsed::<Label>("a"), Ok(None));
        assert_eq!(detail("b=1"), "the query has an unknown parameter; known: a, limit");
        assert_eq!(detail("a=1&a=1"), "a appears twice in the query");
        assert_eq!(detail("a=1&%61=1"), "a appears twice in the query");
        for value in ["%", "%4", "%zz", "%ff", "%+1"] {
            assert_eq!(detail(&format!("a={value}")), "a is not percent-encoded UTF-8", "{value}");
        }
        assert_eq!(detail(&"a".repeat(4_097)), "the query has more than 4096 bytes");
    }

    #[test]
    fn limits_are_bounded() {
        let limits = Limits { page_items: 50, ..Limits::default() };
        let limit = |text: &str| Query::read(text, &["limit"]).unwrap().limit(&limits);
        assert_eq!(limit(""), Ok(50));
        assert_eq!(Query::read("", &["limit"]).unwrap().limit(&Limits::default()), Ok(100));
        for text in ["0", "51", "-1", "+1", "1.0", "", "99999999999999999999", "%31 "] {
            assert!(limit(&format!("limit={text}")).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in "[!-~]{1,255}") {
            let mut writer = Writer::default();
            writer.put("limit", 7);
            writer.put("a", &value);
            let text = writer.finish();
            let mut query = Query::read(&text, &["a", "limit"]).unwrap();
            let read: Label = query.required("a").unwrap();
            prop_assert_eq!(read.as_str(), value);
        }
    }
}
