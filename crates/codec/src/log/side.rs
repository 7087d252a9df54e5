//! One slot of the log's side file: per group the vote and the last acknowledged log id, in 4 KiB.
//! The side file has two slots, written in turn, each with a sequence one above the other's.
//!
//! A slot is eight sectors of 512 bytes, each with its own checksum and the slot's sequence. A disk writes a sector
//! whole or not at all, so that a slot whose sectors are sound but of different sequences is an interrupted write
//! ([`Damage::Torn`], harmless: the other slot stands), and a sector that is not sound is decay ([`Damage::Sector`]).
//!
//! ```text
//! sector: magic 4 | version 1 | sector number 1 | groups in the slot 2 | sequence 8 | 10 groups of 45 | zeros | xxh3 8
//! group:  group 4 | flags 1 (1 vote, 2 vote committed, 4 log id) | vote term 8, node 8 | log term 8, node 8, index 8
//! ```

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bytes_of::{Get, Put};
use super::{LogId, VERSION, Vote};

/// Bytes of a slot.
pub const SLOT_LEN: usize = 4096;
/// Bytes of a sector.
pub const SECTOR_LEN: usize = 512;
/// Most groups that one slot has room for.
pub const GROUPS_MAX: usize = SECTORS * PER_SECTOR;

const SECTORS: usize = SLOT_LEN / SECTOR_LEN;
const PER_SECTOR: usize = 10;
const GROUP_LEN: usize = 45;
const HEAD_LEN: usize = 16;
const MAGIC: u32 = 0x4453_5848;
const SEED_SIDE: u64 = 0x4861_7061_7853_4431;

const HAS_VOTE: u8 = 1;
const VOTE_COMMITTED: u8 = 2;
const HAS_LOG_ID: u8 = 4;

const NO_VOTE: Vote = Vote { term: 0, node: 0, committed: false };
const NO_LOG_ID: LogId = LogId { term: 0, node: 0, index: 0 };

/// What one group promised to others, and must therefore still hold after a restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promise {
    /// The last vote that was given.
    pub vote: Option<Vote>,
    /// The last log id that was acknowledged.
    pub acknowledged: Option<LogId>,
}

/// The content of one slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slot {
    /// Counts the writes of the side file.
    pub sequence: u64,
    /// By group; at most [`GROUPS_MAX`].
    pub groups: BTreeMap<u32, Promise>,
}

/// Why a slot cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Every sector is sound, but they come from different writes: the write of this slot was interrupted.
    #[error("interrupted write")]
    Torn,
    /// A sector that no write of this program can have left behind.
    #[error("sector {sector} (bytes {start}..{end} of the slot) is damaged: {reason}", start = sector * SECTOR_LEN, end = (sector + 1) * SECTOR_LEN)]
    Sector {
        /// Which sector of the slot, from 0.
        sector: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Sound, but written by a newer program.
    #[error("version {found} is unknown to this program (it knows {VERSION})")]
    Version {
        /// The version byte found.
        found: u8,
    },
}

/// More groups than a slot has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{groups} groups do not fit into a side-file slot, which has room for {GROUPS_MAX}")]
pub struct TooManyGroups {
    /// How many were given.
    pub groups: usize,
}

impl Slot {
    /// Encodes the slot.
    ///
    /// # Errors
    /// [`TooManyGroups`].
    pub fn encode(&self) -> Result<Box<[u8; SLOT_LEN]>, TooManyGroups> {
        if self.groups.len() > GROUPS_MAX {
            return Err(TooManyGroups { groups: self.groups.len() });
        }
        let mut bytes = Box::new([0; SLOT_LEN]);
        let mut groups = self.groups.iter();
        for (number, sector) in bytes.chunks_exact_mut(SECTOR_LEN).enumerate() {
            let mut put = Put(&mut sector[..SECTOR_LEN - 8]);
            put.u32(MAGIC);
            put.u8(VERSION);
            put.u8(number as u8);
            put.u16(self.groups.len() as u16);
            put.u64(self.sequence);
            for (group, promise) in groups.by_ref().take(PER_SECTOR) {
                encode_group(&mut put, *group, promise);
            }
            let sum = xxh3_64_with_seed(&sector[..SECTOR_LEN - 8], SEED_SIDE);
            sector[SECTOR_LEN - 8..].copy_from_slice(&sum.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Reads a slot.
    ///
    /// # Errors
    /// [`Damage`]; a damaged sector outranks a torn write.
    pub fn decode(bytes: &[u8; SLOT_LEN]) -> Result<Slot, Damage> {
        let mut sectors = Vec::with_capacity(SECTORS);
        for (number, bytes) in bytes.chunks_exact(SECTOR_LEN).enumerate() {
            sectors.push(Sector::decode(number, bytes)?);
        }
        let (sequence, count) = (sectors[0].sequence, sectors[0].count);
        if sectors.iter().any(|sector| sector.sequence != sequence) {
            return Err(Damage::Torn);
        }
        let mut groups = BTreeMap::new();
        for (number, sector) in sectors.iter().enumerate() {
            let damaged = |reason| Damage::Sector { sector: number, reason };
            if sector.count != count {
                return Err(damaged("its number of groups differs from the first sector's"));
            }
            for (group, promise) in &sector.groups {
                if groups.last_key_value().is_some_and(|(last, _)| last >= group) {
                    return Err(damaged("groups out of order"));
                }
                groups.insert(*group, *promise);
            }
        }
        Ok(Slot { sequence, groups })
    }
}

struct Sector {
    sequence: u64,
    count: usize,
    groups: Vec<(u32, Promise)>,
}

impl Sector {
    fn decode(number: usize, bytes: &[u8]) -> Result<Sector, Damage> {
        let damaged = |reason| Damage::Sector { sector: number, reason };
        let (body, sum) = bytes.split_at(SECTOR_LEN - 8);
        if xxh3_64_with_seed(body, SEED_SIDE).to_le_bytes() != sum {
            return Err(damaged("checksum mismatch"));
        }
        let mut get = Get(body);
        if get.u32() != MAGIC {
            return Err(damaged("not a side-file sector"));
        }
        match get.u8() {
            VERSION => {}
            found => return Err(Damage::Version { found }),
        }
        if usize::from(get.u8()) != number {
            return Err(damaged("it belongs at another place"));
        }
        let count = usize::from(get.u16());
        if count > GROUPS_MAX {
            return Err(damaged("impossible number of groups"));
        }
        let sequence = get.u64();
        let here = count.saturating_sub(number * PER_SECTOR).min(PER_SECTOR);
        let mut groups = Vec::with_capacity(here);
        for _ in 0..here {
            groups.push(decode_group(&mut get).ok_or(damaged("impossible flags"))?);
        }
        if body[HEAD_LEN + here * GROUP_LEN..].iter().any(|byte| *byte != 0) {
            return Err(damaged("bytes after the last group"));
        }
        Ok(Sector { sequence, count, groups })
    }
}

fn encode_group(put: &mut Put<'_>, group: u32, promise: &Promise) {
    let mut flags = 0;
    if let Some(vote) = &promise.vote {
        flags |= if vote.committed { HAS_VOTE | VOTE_COMMITTED } else { HAS_VOTE };
    }
    if promise.acknowledged.is_some() {
        flags |= HAS_LOG_ID;
    }
    put.u32(group);
    put.u8(flags);
    let vote = promise.vote.unwrap_or(NO_VOTE);
    put.u64(vote.term);
    put.u64(vote.node);
    put.log_id(&promise.acknowledged.unwrap_or(NO_LOG_ID));
}

fn decode_group(get: &mut Get<'_>) -> Option<(u32, Promise)> {
    let group = get.u32();
    let flags = get.u8();
    let vote = Vote { term: get.u64(), node: get.u64(), committed: flags & VOTE_COMMITTED != 0 };
    let id = get.log_id();
    let vote = match flags & (HAS_VOTE | VOTE_COMMITTED) {
        0 if vote == NO_VOTE => None,
        0 | VOTE_COMMITTED => return None,
        _ => Some(vote),
    };
    let acknowledged = match flags & !(HAS_VOTE | VOTE_COMMITTED) {
        0 if id == NO_LOG_ID => None,
        HAS_LOG_ID => Some(id),
        _ => return None,
    };
    Some((group, Promise { vote, acknowledged }))
}
