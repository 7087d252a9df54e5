//! Strict JSON: a reader that sees duplicate names, refuses what has no single meaning, and says where.
//! [`Value`] is already canonical; [`RawJson`] keeps a result exactly as it was sent.
//!
//! serde_json's own tree cannot be used for a digest: it keeps the last of two equal names, and turns
//! `1.0`, `-0` and 2^64 into doubles. This visitor is called for every name and number, so nothing is lost.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::limits::{ECHO_BYTES_MAX, INTEGER_MAX, JSON_DEPTH_MAX};

/// A JSON value with one meaning only.
///
/// Invariants: integers are within ±(2^53 − 1); an object's names are distinct and in RFC 8785 order (UTF-16
/// code units); read by [`Value::canonical`], every name and string is in Unicode normalisation form C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `null`, which is not the same as an absent name.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer. Decimals travel as strings.
    Integer(i64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object, sorted by name.
    Object(Vec<(String, Value)>),
}

/// Where and why a document is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// RFC 6901 pointer to the value, empty for the document itself.
    pub pointer: String,
    /// The reason, without what was sent.
    pub detail: String,
}

impl Value {
    /// Reads one document as a request to be digested: strings and names become NFC, and numbers are integers.
    ///
    /// # Errors
    /// [`Fault`]: not JSON, a duplicate name, a number that is no integer within range, or too deep.
    pub fn canonical(json: &[u8]) -> Result<Value, Fault> {
        let mut cursor = Cursor::default();
        let mut reader = serde_json::Deserializer::from_slice(json);
        let read = Node { cursor: &mut cursor, rules: Rules::CANONICAL, depth: 0 }.deserialize(&mut reader);
        read.and_then(|value| reader.end().map(|()| value)).map_err(|error| cursor.fault(&error))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Integer(value) => serializer.serialize_i64(*value),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => serializer.collect_seq(items),
            Value::Object(members) => serializer.collect_map(members.iter().map(|(name, value)| (name, value))),
        }
    }
}

impl PartialSchema for Value {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .description(Some(
                "Any JSON value whose numbers are integers within ±(2^53 − 1) and whose objects have distinct names. \
                 Decimals travel as strings.",
            ))
            .into()
    }
}

impl ToSchema for Value {}

/// What a reader lets through.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Strings are normalised. Names always are, because only then are all duplicates seen.
    normalise: bool,
    /// Any number passes, and its value is not kept.
    any_number: bool,
}

impl Rules {
    pub(crate) const CANONICAL: Rules = Rules { normalise: true, any_number: false };
    pub(crate) const PLAIN: Rules = Rules { normalise: false, any_number: false };
    const CHECK: Rules = Rules { normalise: false, any_number: true };
}

/// The place being read, as a JSON pointer; it stays where it was when an error leaves the reader.
#[derive(Default)]
pub(crate) struct Cursor {
    pointer: String,
}

impl Cursor {
    /// Enters a member; the mark goes back to [`Cursor::leave`].
    pub(crate) fn enter(&mut self, name: &str) -> usize {
        let mark = self.pointer.len();
        self.pointer.push('/');
        for c in name.chars() {
            match c {
                '~' => self.pointer.push_str("~0"),
                '/' => self.pointer.push_str("~1"),
                c => self.pointer.push(c),
            }
        }
        mark
    }

    /// The pointer to a name inside others, bounded as every pointer is.
    pub(crate) fn at(names: &[&str]) -> String {
        let mut cursor = Cursor::default();
        for name in names {
            cursor.enter(name);
        }
        bounded(cursor.pointer)
    }

    /// Moves on to where a document inside this one is at fault.
    pub(crate) fn descend(&mut self, pointer: &str) {
        self.pointer.push_str(pointer);
    }

    pub(crate) fn leave(&mut self, mark: usize) {
        self.pointer.truncate(mark);
    }

    pub(crate) fn fault(self, error: &serde_json::Error) -> Fault {
        Fault { pointer: bounded(self.pointer), detail: bounded(without_value(&error.to_string()).to_owned()) }
    }
}

/// Why a value is refused, without the value: a client may write a problem to a log that others read.
fn without_value(text: &str) -> &str {
    // serde says "invalid type: string "…", expected a …"; only what the reader expected is ours, and it comes last.
    let says_it = text.starts_with("invalid type: ") || text.starts_with("invalid value: ");
    match text.rfind(", expected ") {
        Some(at) if says_it => &text[at + ", ".len()..],
        _ => text,
    }
}

/// Cuts a text that may repeat what a caller sent.
fn bounded(mut text: String) -> String {
    if text.len() > ECHO_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ECHO_BYTES_MAX - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// Reads one value below `depth` arrays and objects.
pub(crate) struct Node<'c> {
    pub(crate) cursor: &'c mut Cursor,
    pub(crate) rules: Rules,
    pub(crate) depth: usize,
}

impl Node<'_> {
    fn text(&self, text: &str) -> String {
        if self.rules.normalise { nfc(text) } else { text.to_owned() }
    }

    fn deeper<E: serde::de::Error>(&self) -> Result<usize, E> {
        if self.depth == JSON_DEPTH_MAX {
            return Err(E::custom(format_args!("more than {JSON_DEPTH_MAX} arrays and objects inside one another")));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        if self.rules.any_number || (-INTEGER_MAX..=INTEGER_MAX).contains(&value) {
            return Ok(Value::Integer(value));
        }
        Err(E::custom("an integer beyond ±(2^53 − 1); send it as a string"))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// serde_json comes here for a fraction, an exponent, `-0`, and an integer beyond 64 bits.
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Value, E> {
        if self.rules.any_number {
            return Ok(Value::Null);
        }
        Err(E::custom("a number that is not a plain integer within ±(2^53 − 1); send decimals as strings"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(self.text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let (depth, rules) = (self.deeper()?, self.rules);
        let mut array = Vec::new();
        loop {
            let mark = self.cursor.enter(&array.len().to_string());
            let Some(item) = items.next_element_seed(Node { cursor: self.cursor, rules, depth })? else {
                self.cursor.leave(mark);
                return Ok(Value::Array(array));
            };
            self.cursor.leave(mark);
            array.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let (depth, rules) = (self.deeper()?, self.rules);
        let mut object: Vec<(String, Value)> = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            let name = nfc(&name);
            let mark = self.cursor.enter(&name);
            let value = members.next_value_seed(Node { cursor: self.cursor, rules, depth })?;
            self.cursor.leave(mark);
            object.push((name, value));
        }
        object.sort_by(|(a, _), (b, _)| utf16_order(a, b));
        for pair in object.windows(2) {
            if pair[0].0 == pair[1].0 {
                self.cursor.enter(&pair[0].0);
                return Err(A::Error::custom("the name appears twice in its object, after normalisation to NFC"));
            }
        }
        Ok(Value::Object(object))
    }
}

/// RFC 8785 §3.2.3: by UTF-16 code units, which puts U+10000 and above before U+E000.
pub(crate) fn utf16_order(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

/// Unicode normalisation form C.
pub(crate) fn nfc(text: &str) -> String {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return text.to_owned();
    }
    text.nfc().collect()
}

/// A JSON document kept as its owner wrote it, except for white space outside strings.
///
/// A result is somebody else's data: numbers are kept digit for digit, and only duplicate names and depth are
/// refused, because two readers could understand such a document differently.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Reads one document.
    ///
    /// # Errors
    /// [`Fault`]: not JSON, a duplicate name, a number beyond a double's range, or too deep.
    pub fn parse(json: &[u8]) -> Result<RawJson, Fault> {
        let mut cursor = Cursor::default();
        let mut reader = serde_json::Deserializer::from_slice(json);
        let read = Node { cursor: &mut cursor, rules: Rules::CHECK, depth: 0 }.deserialize(&mut reader);
        read.and_then(|_| reader.end())
            .and_then(|()| std::str::from_utf8(json).map_err(serde_json::Error::custom))
            .and_then(|text| RawValue::from_string(compact(text)))
            .map(RawJson)
            .map_err(|error| cursor.fault(&error))
    }

    /// Writes a value.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn of(value: &impl Serialize) -> Result<RawJson, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(RawJson)
    }

    /// Takes back a document that was stored as text.
    ///
    /// # Errors
    /// [`Fault`]: the text is not JSON, which a stored result always was.
    pub fn stored(text: String) -> Result<RawJson, Fault> {
        RawValue::from_string(text).map(RawJson).map_err(|error| Cursor::default().fault(&error))
    }

    /// The document's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &RawJson) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.as_str().len())
    }
}

impl PartialSchema for RawJson {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .description(Some("Any JSON value; kept and returned digit for digit."))
            .into()
    }
}

impl ToSchema for RawJson {}

/// Removes white space outside strings.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |c: &char| {
        if in_string {
            in_string = escaped || *c != '"';
            escaped = !escaped && *c == '\\';
            return true;
        }
        in_string = *c == '"';
        !matches!(c, ' ' | '\t' | '\n' | '\r')
    };
    json.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(json: &str) -> (String, String) {
        let fault = Value::canonical(json.as_bytes()).expect_err(json);
        (fault.pointer, fault.detail)
    }

    #[test]
    fn integers_only() {
        for (json, value) in
            [("0", 0), ("-1", -1), ("9007199254740991", INTEGER_MAX), ("-9007199254740991", -INTEGER_MAX)]
        {
            assert_eq!(Value::canonical(json.as_bytes()), Ok(Value::Integer(value)));
        }
        for json in [
            "1.0",
            "-0",
            "-0.0",
            "0.0",
            "0e0",
            "1e2",
            "1E+2",
            "1e400",
            "-1e400",
            "9007199254740992",
            "-9007199254740992",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551615",
            "18446744073709551616",
            "99999999999999999999999999999999999999999",
            "01",
            "+1",
            "NaN",
            "Infinity",
            ".5",
            "1.",
        ] {
            let (pointer, _) = fault(&format!("{{\"a\":[true,{json}]}}"));
            assert_eq!(pointer, "/a/1", "{json}");
        }
    }

    #[test]
    fn duplicates_are_seen_at_any_depth_and_after_nfc() {
        assert_eq!(fault(r#"{"a":1,"a":1}"#).0, "/a");
        assert_eq!(fault(r#"{"x":[{"b":1,"c":2,"b":3}]}"#).0, "/x/0/b");
        assert_eq!(fault("{\"\\u0061\":1,\"a\":2}").0, "/a");
        assert_eq!(fault("{\"\u{e9}\":1,\"e\u{301}\":2}").0, "/\u{e9}");
        assert_eq!(fault(r#"{"a/b~c":1,"a/b~c":1}"#).0, "/a~1b~0c");
        assert!(fault(r#"{"a":1,"a":1}"#).1.starts_with("the name appears twice"));
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Value::canonical(nested(JSON_DEPTH_MAX).as_bytes()).is_ok());
        assert!(fault(&nested(JSON_DEPTH_MAX + 1)).1.contains("64 arrays and objects"));
        assert!(Value::canonical("[".repeat(60_000).as_bytes()).is_err());
        assert!(RawJson::parse(nested(JSON_DEPTH_MAX + 1).as_bytes()).is_err());
    }

    #[test]
    fn malformed_documents() {
        for json in
            ["", " ", "{", "{\"a\":1,}", "[1 2]", "1 2", "nul", "\"\\ud800\"", "\"\u{1}\"", "'a'", "{a:1}", "//"]
        {
            assert!(Value::canonical(json.as_bytes()).is_err(), "{json}");
        }
        assert!(Value::canonical(b"\"\xff\"").is_err());
        assert!(Value::canonical(b"\xef\xbb\xbf1").is_err());
    }

    #[test]
    fn strings_become_nfc_and_objects_are_sorted_by_utf16() {
        let value = Value::canonical("{\"\u{e000}\":\"e\u{301}\",\"\u{1f600}\":null,\"a\":false}".as_bytes());
        let string = |text: &str| text.to_owned();
        assert_eq!(
            value,
            Ok(Value::Object(vec![
                (string("a"), Value::Bool(false)),
                (string("\u{1f600}"), Value::Null),
                (string("\u{e000}"), Value::String(string("\u{e9}"))),
            ]))
        );
    }

    #[test]
    fn echoes_are_bounded() {
        let name = "é".repeat(30_000);
        let (pointer, _) = fault(&format!("{{\"{name}\":1.5}}"));
        assert!(pointer.len() <= ECHO_BYTES_MAX && pointer.ends_with('…'), "{}", pointer.len());
    }

    #[test]
    fn raw_documents_keep_their_digits() {
        let raw =
            RawJson::parse(b" { \"a b\" : [ 1.50 , 1e2,\t18446744073709551616 ], \"q\\\" \": \"\\\\\" }\n").unwrap();
        assert_eq!(raw.as_str(), "{\"a b\":[1.50,1e2,18446744073709551616],\"q\\\" \":\"\\\\\"}");
        assert_eq!(serde_json::to_string(&raw).unwrap(), raw.as_str());
        assert_eq!(RawJson::parse(br#"{"a":1,"a":1}"#).unwrap_err().pointer, "/a");
        assert!(RawJson::parse(b"1 1").is_err());
    }
}
