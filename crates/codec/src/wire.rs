//! The primitives that commands, outcomes and records are written with: variable-length integers, lengths, tags, flags.
//! Owns the errors of reading them; `log` and `peer` have primitives of their own, since their layouts are fixed.
//!
//! Invariants:
//! - One value has one encoding: overlong integers, unknown flags and left-over bytes are refused.
//! - Reading is total: any bytes give a value or an [`Error`], and nothing is allocated for a length or a count before the
//!   bytes it promises were seen to be there.

/// The most elements of one list, in any record or command. Callers are held to far less long before.
pub const LIST_MAX: usize = 65_535;

/// Why bytes are not what they were read as. From disk or from the log it means damage or a newer program, never a
/// caller's mistake: the node stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end inside a value.
    #[error("the bytes end inside a value")]
    Truncated,
    /// Bytes are left over after the value.
    #[error("{len} bytes are left over")]
    Trailing {
        /// How many.
        len: usize,
    },
    /// Written by a newer program, or damaged.
    #[error("{what}: version {found} is unknown to this program (it knows {known})")]
    Version {
        /// Which record.
        what: &'static str,
        /// The version byte found.
        found: u8,
        /// The newest version that this program reads.
        known: u8,
    },
    /// A tag that no writer of a known version writes.
    #[error("{what}: unknown tag {tag}")]
    Tag {
        /// Which value.
        what: &'static str,
        /// The tag found.
        tag: u8,
    },
    /// Flags that no writer of a known version sets.
    #[error("{what}: unknown flags {bits:#04x}")]
    Flags {
        /// Which value.
        what: &'static str,
        /// The flag byte found.
        bits: u8,
    },
    /// A value is written out where its absence says the same.
    #[error("{what}: written out although it is implied")]
    Redundant {
        /// Which value.
        what: &'static str,
    },
    /// A list above [`LIST_MAX`].
    #[error("a list of {count} elements is above the limit of {LIST_MAX}")]
    TooMany {
        /// The announced count.
        count: u64,
    },
    /// An integer above what its field holds, or written in more bytes than it needs.
    #[error("an integer is out of range or overlong")]
    Integer,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Utf8,
}

/// A value with one encoding.
pub(crate) trait Wire: Sized {
    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes the value from the front.
    fn get(from: &mut Reader<'_>) -> Result<Self, Error>;
}

/// What is left to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Opens a record, whose first byte is its version.
    pub(crate) fn open(bytes: &'a [u8], what: &'static str, known: u8) -> Result<Self, Error> {
        let mut reader = Self(bytes);
        match reader.u8()? {
            found if found == known => Ok(reader),
            found => Err(Error::Version { what, found, known }),
        }
    }

    /// Every value ends its bytes.
    pub(crate) fn end(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Trailing { len: self.0.len() }) }
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        let (byte, rest) = self.0.split_first().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*byte)
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// An integer of seven bits a byte, the lowest first.
    pub(crate) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Error::Integer);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // A last byte of nothing but zeros could be left out: the same value would have two encodings.
                return if byte == 0 && shift > 0 { Err(Error::Integer) } else { Ok(value) };
            }
        }
        Err(Error::Integer)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        u32::try_from(self.varint()?).map_err(|_| Error::Integer)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        u16::try_from(self.varint()?).map_err(|_| Error::Integer)
    }

    /// A value written by [`put_delta`] with the same `base`.
    pub(crate) fn delta(&mut self, base: u64) -> Result<u64, Error> {
        let zigzag = self.varint()?;
        let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        Ok(base.wrapping_add(difference))
    }

    /// Bytes behind their length.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], Error> {
        let len = usize::try_from(self.varint()?).map_err(|_| Error::Truncated)?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Error> {
        let bytes = self.sized()?;
        std::str::from_utf8(bytes).map_err(|_| Error::Utf8)
    }

    /// A count of elements of which each takes at least one byte.
    pub(crate) fn count(&mut self) -> Result<usize, Error> {
        let count = self.varint()?;
        match usize::try_from(count) {
            Ok(len) if len > LIST_MAX => Err(Error::TooMany { count }),
            Ok(len) if len <= self.0.len() => Ok(len),
            _ => Err(Error::Truncated),
        }
    }

    /// A byte of `N` truth values, the first in the lowest bit.
    pub(crate) fn flags<const N: usize>(&mut self, what: &'static str) -> Result<[bool; N], Error> {
        const { assert!(N <= 8, "flags are one byte") };
        let bits = self.u8()?;
        if N < 8 && bits >> N != 0 {
            return Err(Error::Flags { what, bits });
        }
        Ok(std::array::from_fn(|n| bits & (1 << n) != 0))
    }

    /// A value that is there if its flag says so.
    pub(crate) fn get_if<T: Wire>(&mut self, present: bool) -> Result<Option<T>, Error> {
        present.then(|| T::get(self)).transpose()
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes `value` as its distance from `base`: a neighbour of a large number takes one byte.
pub(crate) fn put_delta(out: &mut Vec<u8>, base: u64, value: u64) {
    let difference = value.wrapping_sub(base);
    // Zigzag: the sign moves to the lowest bit, so that a small step back is short, too.
    put_varint(out, (difference << 1) ^ (difference >> 63).wrapping_neg());
}

pub(crate) fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_flags<const N: usize>(out: &mut Vec<u8>, flags: [bool; N]) {
    const { assert!(N <= 8, "flags are one byte") };
    out.push(flags.iter().rev().fold(0, |bits, flag| (bits << 1) | u8::from(*flag)));
}

/// Writes what is there; its flag is written by [`put_flags`].
pub(crate) fn put_some<T: Wire>(out: &mut Vec<u8>, value: Option<&T>) {
    if let Some(value) = value {
        value.put(out);
    }
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        from.varint()
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(*self));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        from.u32()
    }
}

impl Wire for u16 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(*self));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        from.u16()
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        put_flags(out, [*self]);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        from.flags::<1>("truth value").map(|[value]| value)
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_sized(out, self.as_bytes());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        from.text().map(str::to_owned)
    }
}

impl Wire for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        put_sized(out, self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        from.sized().map(<[u8]>::to_vec)
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        from.fixed()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_flags(out, [self.is_some()]);
        put_some(out, self.as_ref());
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [present] = from.flags("option")?;
        from.get_if(present)
    }
}

/// Writes a list behind its count.
pub(crate) fn put_list<T: Wire>(out: &mut Vec<u8>, list: &[T]) {
    // Written all the same, a longer list would be refused by every reader, after it was acknowledged.
    assert!(list.len() <= LIST_MAX, "the proposer holds lists to far less than {LIST_MAX} elements");
    put_varint(out, list.len() as u64);
    list.iter().for_each(|element| element.put(out));
}

pub(crate) fn get_list<T: Wire>(from: &mut Reader<'_>) -> Result<Vec<T>, Error> {
    let count = from.count()?;
    (0..count).map(|_| T::get(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        out
    }

    #[test]
    fn integers_are_pinned() {
        let table: [(u64, &[u8]); 6] = [
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0x80, 0x01]),
            (300, &[0xac, 0x02]),
            (1 << 49, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ];
        for (value, bytes) in table {
            assert_eq!(encoded(value), bytes, "{value}");
            assert_eq!(Reader(bytes).varint(), Ok(value));
        }
    }

    #[test]
    fn integers_have_one_encoding() {
        for bytes in [&[0x80, 0x00][..], &[0xff, 0x80, 0x00], &[0xff; 10], &[0xff; 11]] {
            assert_eq!(Reader(bytes).varint(), Err(Error::Integer), "{bytes:?}");
        }
        assert_eq!(Reader(&encoded(1 << 32)).u32(), Err(Error::Integer));
        assert_eq!(Reader(&encoded(1 << 16)).u16(), Err(Error::Integer));
    }

    #[test]
    fn a_promised_length_is_checked_before_anything_is_allocated() {
        let mut announced = encoded(u64::MAX);
        assert_eq!(Reader(&announced).text(), Err(Error::Truncated));
        assert_eq!(Reader(&announced).count(), Err(Error::TooMany { count: u64::MAX }));
        announced = encoded(LIST_MAX as u64);
        assert_eq!(Reader(&announced).count(), Err(Error::Truncated));
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(Reader(&[0b10]).flags::<1>("x"), Err(Error::Flags { what: "x", bits: 0b10 }));
        assert_eq!(Reader(&[0b110]).flags::<3>("x"), Ok([false, true, true]));
        assert!(Reader(&[0xff]).flags::<8>("x").is_ok());
    }

    #[test]
    fn texts_must_be_utf8() {
        assert_eq!(Reader(&[1, 0xff]).text(), Err(Error::Utf8));
    }

    #[test]
    fn neighbours_of_large_numbers_are_short() {
        for (value, byte) in [(1u64 << 49, 0), ((1 << 49) + 1, 2), ((1 << 49) - 1, 1)] {
            let mut out = Vec::new();
            put_delta(&mut out, 1 << 49, value);
            assert_eq!(out, [byte]);
        }
    }

    proptest! {
        #[test]
        fn integers_round_trip(value: u64, base: u64) {
            prop_assert_eq!(Reader(&encoded(value)).varint(), Ok(value));
            let mut out = Vec::new();
            put_delta(&mut out, base, value);
            prop_assert_eq!(Reader(&out).delta(base), Ok(value));
        }

        #[test]
        fn what_reads_as_an_integer_is_its_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = Reader(&bytes);
            if let Ok(value) = reader.varint() {
                let used = bytes.len() - reader.rest().len();
                prop_assert_eq!(encoded(value), &bytes[..used]);
            }
        }
    }
}
