//! Reading a request body: which fields it may have, of which kind, and each one's error with its pointer.
//! Every request type is read through [`Fields`]; nothing else turns bytes into a request.

use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::Deserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::codes::Code;
use crate::json::{Cursor, Fault, Node, RawJson, Rules, Value};
use crate::limits::{INTEGER_MAX, Limits};
use crate::text::Malformed;

/// A request that is refused before anything is looked up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {detail}{}", code.as_str(), at(pointer))]
pub struct Invalid {
    /// `request.invalid`, or `request.too-large`.
    pub code: Code,
    /// RFC 6901 pointer to the field, empty for the whole body; `None` where a header is at fault.
    pub pointer: Option<String>,
    /// The reason.
    pub detail: String,
}

fn at(pointer: &Option<String>) -> String {
    pointer.as_ref().map(|pointer| format!(" (at {pointer:?})")).unwrap_or_default()
}

impl Invalid {
    /// A field's value is refused.
    #[must_use]
    pub fn field(name: &str, detail: impl Into<String>) -> Invalid {
        Invalid { code: Code::RequestInvalid, pointer: Some(format!("/{name}")), detail: detail.into() }
    }

    /// The same refusal, of something inside `parent`, a JSON pointer.
    #[must_use]
    pub fn under(mut self, parent: &str) -> Invalid {
        self.pointer = Some(format!("{parent}{}", self.pointer.unwrap_or_default()));
        self
    }

    /// A header, or a part of the path or the query, is refused.
    #[must_use]
    pub fn header(name: &str, detail: &str) -> Invalid {
        Invalid { code: Code::RequestInvalid, pointer: None, detail: format!("{name} {detail}") }
    }
}

impl From<Fault> for Invalid {
    fn from(fault: Fault) -> Invalid {
        Invalid { code: Code::RequestInvalid, pointer: Some(fault.pointer), detail: fault.detail }
    }
}

/// How a field is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string or an integer, exactly as sent.
    Plain,
    /// A value that is digested.
    Canonical,
    /// A document that is kept and never looked into.
    Raw,
}

/// The fields that an object may have, and how each is read.
pub(crate) type Known = &'static [(&'static str, Kind)];

/// A request that is read from a body of its own, or from an item of a batch.
pub(crate) trait Body: Sized {
    /// Its fields.
    const FIELDS: Known;

    /// Takes it out of the fields that were found.
    fn take(fields: &mut Fields, limits: &Limits) -> Result<Self, Invalid>;
}

/// Reads a body that is one request.
pub(crate) fn read<T: Body>(body: &[u8], limits: &Limits) -> Result<T, Invalid> {
    T::take(&mut Fields::read(body, &[T::FIELDS], limits)?, limits)
}

/// Gives each request its own `read`.
macro_rules! reads {
    ($($name:ty),*) => {$(
        impl $name {
            /// Reads a body.
            ///
            /// # Errors
            /// [`Invalid`](crate::Invalid) names the first field that is wrong.
            pub fn read(body: &[u8], limits: &crate::Limits) -> Result<$name, crate::Invalid> {
                crate::request::read(body, limits)
            }
        }
    )*};
}

pub(crate) use reads;

enum Found {
    Value(Value),
    Raw(RawJson),
}

/// The fields of one body, each taken once.
pub(crate) struct Fields {
    found: Vec<(&'static str, Found)>,
}

impl Fields {
    /// Reads an object whose names are all in one of the lists of `known` and appear once.
    pub(crate) fn read(body: &[u8], known: &[Known], limits: &Limits) -> Result<Fields, Invalid> {
        if body.len() > limits.body_bytes {
            let detail = format!("the body has more than {} bytes", limits.body_bytes);
            return Err(Invalid { code: Code::RequestTooLarge, pointer: None, detail });
        }
        let mut cursor = Cursor::default();
        let mut reader = serde_json::Deserializer::from_slice(body);
        let read = reader.deserialize_any(Members { cursor: &mut cursor, known });
        match read.and_then(|found| reader.end().map(|()| found)) {
            Ok(found) => Ok(Fields { found }),
            Err(error) => Err(cursor.fault(&error).into()),
        }
    }

    fn take(&mut self, name: &'static str) -> Option<Found> {
        let at = self.found.iter().position(|(found, _)| *found == name)?;
        Some(self.found.swap_remove(at).1)
    }

    /// A string, parsed as its type.
    pub(crate) fn text<T: FromStr<Err = Malformed>>(&mut self, name: &'static str) -> Result<Option<T>, Invalid> {
        match self.take(name) {
            None => Ok(None),
            Some(Found::Value(Value::String(text))) => {
                text.parse().map(Some).map_err(|wrong: Malformed| Invalid::field(name, wrong.0))
            }
            Some(_) => Err(Invalid::field(name, "must be a string")),
        }
    }

    /// An integer within a range.
    pub(crate) fn integer(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Result<Option<u64>, Invalid> {
        let value = match self.take(name) {
            None => return Ok(None),
            Some(Found::Value(Value::Integer(value))) => u64::try_from(value).ok(),
            Some(_) => None,
        };
        match value.filter(|value| range.contains(value)) {
            Some(value) => Ok(Some(value)),
            None => {
                Err(Invalid::field(name, format!("must be an integer from {} to {}", range.start(), range.end())))
            }
        }
    }

    /// An integer of 32 bits within a range.
    pub(crate) fn number(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Result<Option<u32>, Invalid> {
        Ok(self.integer(name, range)?.and_then(|value| u32::try_from(value).ok()))
    }

    /// A fencing token or another positive integer as large as JSON allows.
    pub(crate) fn epoch(&mut self, name: &'static str) -> Result<u64, Invalid> {
        required(name, self.integer(name, 1..=INTEGER_MAX.unsigned_abs())?)
    }

    /// The number of an attempt, from 1.
    pub(crate) fn attempt(&mut self, name: &'static str) -> Result<Option<u32>, Invalid> {
        self.number(name, 1..=u64::from(u32::MAX))
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Invalid> {
        match self.take(name) {
            None => Ok(None),
            Some(Found::Value(Value::Bool(value))) => Ok(Some(value)),
            Some(_) => Err(Invalid::field(name, "must be true or false")),
        }
    }

    /// An array of at most `most` strings, each parsed as its type.
    pub(crate) fn texts<T: FromStr<Err = Malformed>>(
        &mut self,
        name: &'static str,
        most: usize,
    ) -> Result<Option<Vec<T>>, Invalid> {
        let items = match self.take(name) {
            None => return Ok(None),
            Some(Found::Value(Value::Array(items))) if items.len() <= most => items,
            Some(_) => return Err(Invalid::field(name, format!("must be an array of at most {most} strings"))),
        };
        let parsed = items.into_iter().enumerate().map(|(at, item)| {
            let wrong = |detail| Invalid::field(&format!("{name}/{at}"), detail);
            match item {
                Value::String(text) => text.parse().map_err(|malformed: Malformed| wrong(malformed.0)),
                _ => Err(wrong("must be a string")),
            }
        });
        parsed.collect::<Result<Vec<T>, Invalid>>().map(Some)
    }

    /// An object inside the request, whose names are all in `known`; its faults are pointed at inside it.
    pub(crate) fn nested<T>(
        &mut self,
        name: &'static str,
        known: Known,
        take: impl FnOnce(&mut Fields) -> Result<T, Invalid>,
    ) -> Result<Option<T>, Invalid> {
        let members = match self.take(name) {
            None => return Ok(None),
            Some(Found::Value(Value::Object(members))) => members,
            Some(_) => return Err(Invalid::field(name, "must be an object")),
        };
        let mut found = Vec::with_capacity(members.len());
        for (member, value) in members {
            let Some((known, _)) = known.iter().find(|(known, _)| *known == member) else {
                let name = Cursor::at(&[name, &member]);
                return Err(Invalid { pointer: Some(name), ..Invalid::field("", "the field is unknown") });
            };
            found.push((*known, Found::Value(value)));
        }
        take(&mut Fields { found }).map(Some).map_err(|invalid| invalid.under(&format!("/{name}")))
    }

    /// Whether the field is there and was not taken yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.found.iter().any(|(found, _)| *found == name)
    }

    /// A value to be digested.
    pub(crate) fn canonical(&mut self, name: &'static str) -> Option<Value> {
        match self.take(name) {
            Some(Found::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// A document that is kept.
    pub(crate) fn raw(&mut self, name: &'static str) -> Option<RawJson> {
        match self.take(name) {
            Some(Found::Raw(raw)) => Some(raw),
            _ => None,
        }
    }
}

/// Refuses an absent field.
pub(crate) fn required<T>(name: &'static str, value: Option<T>) -> Result<T, Invalid> {
    value.ok_or_else(|| Invalid::field(name, "is required"))
}

struct Members<'c> {
    cursor: &'c mut Cursor,
    known: &'c [Known],
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<(&'static str, Found)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found: Self::Value = Vec::with_capacity(self.known.iter().map(|known| known.len()).sum());
        while let Some(name) = members.next_key::<String>()? {
            let mark = self.cursor.enter(&name);
            let Some(&(name, kind)) = self.known.iter().copied().flatten().find(|(known, _)| *known == name) else {
                return Err(A::Error::custom("the field is unknown"));
            };
            if found.iter().any(|(seen, _)| *seen == name) {
                return Err(A::Error::custom("the field appears twice"));
            }
            let value = match kind {
                Kind::Plain => self.member(&mut members, Rules::PLAIN)?,
                Kind::Canonical => self.member(&mut members, Rules::CANONICAL)?,
                Kind::Raw => self.raw(&mut members)?,
            };
            self.cursor.leave(mark);
            found.push((name, value));
        }
        Ok(found)
    }
}

impl Members<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, members: &mut A, rules: Rules) -> Result<Found, A::Error> {
        members.next_value_seed(Node { cursor: self.cursor, rules, depth: 0 }).map(Found::Value)
    }

    fn raw<'de, A: MapAccess<'de>>(&mut self, members: &mut A) -> Result<Found, A::Error> {
        let text: &RawValue = members.next_value()?;
        match RawJson::parse(text.get().as_bytes()) {
            Ok(raw) => Ok(Found::Raw(raw)),
            Err(fault) => {
                self.cursor.descend(&fault.pointer);
                Err(A::Error::custom(fault.detail))
            }
        }
    }
}
