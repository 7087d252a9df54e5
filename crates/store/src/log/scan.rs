//! Reads the frames of RocksDB's write-ahead logs and manifest, to tell an interrupted write from damage.
//!
//! RocksDB's tolerance for a torn tail hides more than torn tails: one flipped length bit makes everything behind it
//! look like an unfinished write. Our writer syncs each batch before it writes the next one. So whatever stands in
//! front of a sound batch was synced once, and an unreadable frame there is damage, never an interrupted write.
//!
//! ```text
//! file:  blocks of 32768; a frame never crosses a block, and fewer than 7 bytes at a block's end are padding
//! frame: masked crc32c of (type, data) 4 | length of data 2 | type 1 | data      (little-endian)
//! type:  1 whole record, 2 first, 3 middle, 4 last part of one; others are notes of RocksDB to itself
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const BLOCK: usize = 32768;
const HEADER: usize = 7;

const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// What a file of frames looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Frames {
    /// Bytes of the file.
    pub(super) len: u64,
    /// Records that are whole, up to the first thing that cannot be read.
    pub(super) records: u64,
    /// Where the first thing stands that cannot be read; perhaps only an interrupted write.
    pub(super) unreadable: Option<u64>,
    /// Where a sound record begins after it: then it is damage.
    pub(super) sound_after: Option<u64>,
}

/// Scans one file.
pub(super) fn scan(path: &Path) -> io::Result<Frames> {
    let mut file = File::open(path)?;
    let mut scanner = Scanner::default();
    let mut block = vec![0; BLOCK];
    loop {
        let filled = fill(&mut file, &mut block)?;
        scanner.block(&block[..filled]);
        if filled < BLOCK || scanner.frames.sound_after.is_some() {
            break;
        }
    }
    scanner.finish();
    Ok(scanner.frames)
}

fn fill(file: &mut File, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[derive(Default)]
struct Scanner {
    frames: Frames,
    /// Where the record began whose parts are being read.
    open: Option<u64>,
}

impl Scanner {
    fn block(&mut self, block: &[u8]) {
        let base = self.frames.len;
        self.frames.len += block.len() as u64;
        let mut at = 0;
        while block.len() - at >= HEADER {
            let Some((kind, len)) = sound_frame(&block[at..]) else {
                self.unreadable(base + at as u64);
                // A damaged length hides where the next frame begins: look for one everywhere.
                let found =
                    (at + 1..block.len()).find(|at| matches!(sound_frame(&block[*at..]), Some((WHOLE | FIRST, _))));
                self.frames.sound_after = found.map(|at| base + at as u64);
                return;
            };
            self.frame(kind, base + at as u64);
            if self.frames.sound_after.is_some() {
                return;
            }
            at += HEADER + len;
        }
        if block.len() < BLOCK && at < block.len() {
            self.unreadable(base + at as u64);
        }
    }

    fn frame(&mut self, kind: u8, at: u64) {
        match kind {
            WHOLE | FIRST => {
                if let Some(open) = self.open.take() {
                    self.unreadable(open);
                }
                if self.frames.unreadable.is_some() {
                    self.frames.sound_after = Some(at);
                } else if kind == WHOLE {
                    self.frames.records += 1;
                } else {
                    self.open = Some(at);
                }
            }
            MIDDLE | LAST => {
                if self.open.is_none() {
                    self.unreadable(at);
                } else if kind == LAST {
                    self.open = None;
                    self.frames.records += 1;
                }
            }
            _ => {}
        }
    }

    fn unreadable(&mut self, at: u64) {
        let at = self.open.take().unwrap_or(at);
        self.frames.unreadable.get_or_insert(at);
    }

    fn finish(&mut self) {
        if let Some(open) = self.open.take() {
            self.unreadable(open);
        }
    }
}

/// The type and data length of the frame at the beginning of `bytes`, if it is sound.
fn sound_frame(bytes: &[u8]) -> Option<(u8, usize)> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let len = usize::from(u16::from_le_bytes([header[4], header[5]]));
    let kind = header[6];
    // Type 0 is what a preallocated file is filled with.
    if kind == 0 {
        return None;
    }
    let data = rest.get(..len)?;
    let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    (mask(crc32c(kind, data)) == stored).then_some((kind, len))
}

/// RocksDB stores checksums masked, since data may itself hold checksums.
fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C of one byte and what follows it, eight bytes at a time.
fn crc32c(kind: u8, data: &[u8]) -> u32 {
    let step = |crc: u32, byte: u8| (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    let mut crc = step(u32::MAX, kind);
    let mut words = data.chunks_exact(8);
    for word in words.by_ref() {
        let low = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) ^ crc;
        let [a, b, c, d] = low.to_le_bytes().map(usize::from);
        crc = TABLES[7][a]
            ^ TABLES[6][b]
            ^ TABLES[5][c]
            ^ TABLES[4][d]
            ^ TABLES[3][usize::from(word[4])]
            ^ TABLES[2][usize::from(word[5])]
            ^ TABLES[1][usize::from(word[6])]
            ^ TABLES[0][usize::from(word[7])];
    }
    !words.remainder().iter().fold(crc, |crc, byte| step(crc, *byte))
}

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    //! Files made by hand: the scanner must tell a torn tail from a damaged middle.

    use proptest::prelude::*;

    use super::*;

    /// What RocksDB's writer would write.
    fn file(records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for record in records {
            let (mut rest, mut first) = (record.as_slice(), true);
            loop {
                let left = BLOCK - bytes.len() % BLOCK;
                if left < HEADER {
                    bytes.resize(bytes.len() + left, 0);
                    continue;
                }
                let (now, later) = rest.split_at(rest.len().min(left - HEADER));
                let kind = match (first, later.is_empty()) {
                    (true, true) => WHOLE,
                    (true, false) => FIRST,
                    (false, false) => MIDDLE,
                    (false, true) => LAST,
                };
                bytes.extend(mask(crc32c(kind, now)).to_le_bytes());
                bytes.extend((now.len() as u16).to_le_bytes());
                bytes.push(kind);
                bytes.extend(now);
                (rest, first) = (later, false);
                if rest.is_empty() {
                    break;
                }
            }
        }
        bytes
    }

    fn scan_bytes(bytes: &[u8]) -> Frames {
        let mut scanner = Scanner::default();
        for block in bytes.chunks(BLOCK) {
            scanner.block(block);
            if scanner.frames.sound_after.is_some() {
                break;
            }
        }
        scanner.finish();
        scanner.frames
    }

    fn records() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let record = (0..70_000usize, any::<u8>()).prop_map(|(len, fill)| vec![fill; len]);
        let small = (0..200usize, any::<u8>()).prop_map(|(len, fill)| vec![fill; len]);
        prop::collection::vec(prop_oneof![1 => record, 3 => small], 2..12)
    }

    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc32c(b'1', b"23456789"), 0xe306_9283);
        assert_eq!(crc32c(b'1', b"2345678901234567890"), crc32c_slowly(b"12345678901234567890"));
    }

    fn crc32c_slowly(data: &[u8]) -> u32 {
        !data.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_sound_file_is_sound(records in records()) {
            let bytes = file(&records);
            let want = Frames { len: bytes.len() as u64, records: records.len() as u64, ..Frames::default() };
            prop_assert_eq!(scan_bytes(&bytes), want);
        }

        #[test]
        fn a_cut_file_is_not_called_damaged(records in records(), cut: prop::sample::Index) {
            let bytes = file(&records);
            let frames = scan_bytes(&bytes[..cut.index(bytes.len())]);
            prop_assert_eq!(frames.sound_after, None);
        }

        #[test]
        fn a_flipped_bit_before_the_last_record_is_damage(records in records(), bit: prop::sample::Index) {
            let mut bytes = file(&records);
            let before = file(&records[..records.len() - 1]).len();
            let bit = bit.index(before * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let frames = scan_bytes(&bytes);
            // Padding at a block's end means nothing, and nobody reads it.
            let in_padding = frames == scan_bytes(&file(&records));
            prop_assert!(frames.sound_after.is_some() || in_padding, "{:?}", frames);
        }

        #[test]
        fn a_flipped_bit_in_the_last_record_is_no_proof(records in records(), bit: prop::sample::Index) {
            let mut bytes = file(&records);
            let before = file(&records[..records.len() - 1]).len();
            let bit = before * 8 + bit.index((bytes.len() - before) * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(scan_bytes(&bytes).sound_after, None);
        }
    }
}
