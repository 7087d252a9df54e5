//! Cursors: where a page ended, bound to the revision of its first page and to what was asked.
//! Opaque to callers: `c1_` and base64url text. The first digit is the version of what is inside.
//!
//! A cursor proves nothing and grants nothing: whoever presents one is authorised anew, and its position is only where
//! to go on. A caller that changes one gets another page of what it may see anyway, or a refusal.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::limits;
use crate::text::{Malformed, Revision, as_string};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

const PREFIX: &str = "c1_";
/// Bytes before the position: four numbers of eight, and the filter.
const HEAD_BYTES: usize = 4 * 8 + FILTER_BYTES;
const FILTER_BYTES: usize = 16;

/// What was asked, so that a cursor of one list is not taken for a place in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterHash(pub [u8; FILTER_BYTES]);

impl FilterHash {
    /// The hash of everything that selects the items: tenant, endpoint, parameters, without limit and cursor.
    /// Every part is length-prefixed, so that no two different lists of parts are alike.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> FilterHash {
        let mut hash = Sha256::new();
        hash.update(b"hapax/cursor-filter/1");
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut cut = [0; FILTER_BYTES];
        cut.copy_from_slice(&hash.finalize()[..FILTER_BYTES]);
        FilterHash(cut)
    }
}

/// Where a page ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The revision of the first page.
    pub revision: Revision,
    /// What was asked.
    pub filter: FilterHash,
    /// Where to go on, in the store's own form; at most [`limits::CURSOR_POSITION_BYTES_MAX`] bytes.
    pub position: Vec<u8>,
}

impl Cursor {
    /// Whether the cursor belongs to this list.
    #[must_use]
    pub fn is_of(&self, filter: FilterHash) -> bool {
        self.filter == filter
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert!(
            self.position.len() <= limits::CURSOR_POSITION_BYTES_MAX,
            "a position is a row's key, and those are bounded"
        );
        let Revision { incarnation, group, index, ordinal } = self.revision;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.position.len());
        for number in [incarnation, group, index, ordinal] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&self.filter.0);
        bytes.extend_from_slice(&self.position);
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Cursor {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Cursor, Malformed> {
        const WRONG: Malformed = Malformed("must be a cursor as an answer carried it");
        if text.len() > limits::CURSOR_CHARS_MAX {
            return Err(WRONG);
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(WRONG)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| WRONG)?;
        let (head, position) = bytes.split_at_checked(HEAD_BYTES).ok_or(WRONG)?;
        if position.len() > limits::CURSOR_POSITION_BYTES_MAX {
            return Err(WRONG);
        }
        let (numbers, filter) = head.split_at(4 * 8);
        let mut numbers = numbers
            .chunks_exact(8)
            .map(|number| number.iter().fold(0u64, |value, &byte| (value << 8) | u64::from(byte)));
        let mut number = || numbers.next().unwrap_or_default();
        let revision = Revision { incarnation: number(), group: number(), index: number(), ordinal: number() };
        let mut hash = [0; FILTER_BYTES];
        hash.copy_from_slice(filter);
        Ok(Cursor { revision, filter: FilterHash(hash), position: position.to_vec() })
    }
}

as_string!(Cursor);

impl PartialSchema for Cursor {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .max_length(Some(limits::CURSOR_CHARS_MAX))
            .pattern(Some("^c1_[A-Za-z0-9_-]+$"))
            .description(Some("Where a page ended. Opaque; good for the same question only."))
            .into()
    }
}

impl ToSchema for Cursor {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REVISION: Revision = Revision { incarnation: 1, group: 0, index: 4711, ordinal: 2 };

    #[test]
    fn the_form_is_pinned() {
        let cursor = Cursor { revision: REVISION, filter: FilterHash([0xab; 16]), position: b"p".to_vec() };
        let text = "c1_AAAAAAAAAAEAAAAAAAAAAAAAAAAAABJnAAAAAAAAAAKrq6urq6urq6urq6urq6urcA";
        assert_eq!(cursor.to_string(), text);
        assert_eq!(text.parse(), Ok(cursor));
    }

    #[test]
    fn other_texts_are_not_cursors() {
        let good = Cursor { revision: REVISION, filter: FilterHash([0; 16]), position: vec![7; 2] }.to_string();
        assert!(good.parse::<Cursor>().is_ok());
        let longest = Cursor { revision: REVISION, filter: FilterHash([0; 16]), position: vec![7; 256] }.to_string();
        assert!(longest.len() <= limits::CURSOR_CHARS_MAX && longest.parse::<Cursor>().is_ok());
        for bad in [
            "",
            "c1_",
            "c2_AAAA",
            &good[3..],
            &good.replace("c1_", "C1_"),
            &format!("{good}="),
            &format!("{good}\n"),
            // Bits that no encoder writes: one cursor has one text.
            &format!("{}x", &good[..good.len() - 1]),
            &format!("c1_{}", "A".repeat(63)),
            &format!("c1_{}", "A".repeat(509)),
        ] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_filter_tells_lists_apart() {
        let of = |parts: &[&[u8]]| FilterHash::of(parts);
        assert_eq!(of(&[b"t", b"n"]), of(&[b"t", b"n"]));
        assert_ne!(of(&[b"tn", b""]), of(&[b"t", b"n"]));
        assert_ne!(of(&[b"t"]), of(&[b"t", b""]));
        let cursor = Cursor { revision: REVISION, filter: of(&[b"t"]), position: Vec::new() };
        assert!(cursor.is_of(of(&[b"t"])) && !cursor.is_of(of(&[b"u"])));
    }

    proptest! {
        #[test]
        fn round_trip(numbers in any::<[u64; 4]>(), filter in any::<[u8; 16]>(), position in prop::collection::vec(any::<u8>(), 0..=256)) {
            let [incarnation, group, index, ordinal] = numbers;
            let revision = Revision { incarnation, group, index, ordinal };
            let cursor = Cursor { revision, filter: FilterHash(filter), position };
            prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }

        #[test]
        fn one_cursor_has_one_text(text in "c1_[A-Za-z0-9_-]{60,80}") {
            if let Ok(cursor) = text.parse::<Cursor>() {
                prop_assert_eq!(cursor.to_string(), text);
            }
        }
    }
}
