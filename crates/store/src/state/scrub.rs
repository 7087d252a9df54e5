//! The slow scrub: reads every row from the disk with its checksum, so that a block nobody asks for does not rot unseen.
//! It also decodes each row and checks where it lies.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::disk::{Family, Pace, Rows};
use super::horizon::{Judge, Known, OneInstant};
use super::tables::Tables;
use super::view::{Content, Summing, is_logical, row};
use super::{OpenOptions, StateStore, events, keys, scan};
use crate::seam::StorageFault;

/// Told to the pace about so often, in bytes.
const STEP_BYTES: u64 = 256 << 10;

/// What a scrub saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scrubbed {
    /// Rows that were read.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The sum of the logical rows; `None` where the scrub was ended early.
    pub content: Option<Content>,
}

impl StateStore {
    /// Reads every row of a checkpoint made for it. `pace` is told the bytes as they are read: it waits, so that a scrub takes
    /// no disk from claims, and ends the scrub at shutdown.
    ///
    /// # Errors
    /// Fatal: a damaged block, or a row that does not decode or does not belong where it lies.
    pub fn scrub(&self, pace: Pace<'_>) -> Result<Scrubbed, StorageFault> {
        let gate = &self.0.gate;
        gate.check()?;
        let _held = super::lock(&self.0.scrub);
        let (mut rows, mut bytes, mut since) = (0, 0, 0);
        let (mut sum, mut failed, mut whole) = (Summing::default(), None, true);
        let mut known = None;
        let mut examine = |among: &dyn Rows, family: Family, key: &[u8], value: &[u8]| {
            let len = (key.len() + value.len()) as u64;
            (rows, bytes, since) = (rows + 1, bytes + len, since + len);
            if let Err(fault) = scan::verify(family, key, value) {
                failed = Some(fault);
                return ControlFlow::Break(());
            }
            match is_shown(&mut known, &self.0.options, among, family, key, value) {
                Ok(true) => sum.row(family, key, value),
                Ok(false) => {}
                Err(fault) => {
                    failed = Some(fault);
                    return ControlFlow::Break(());
                }
            }
            if since >= STEP_BYTES && pace(std::mem::take(&mut since)).is_break() {
                whole = false;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let disk = self.disk();
        let examined = disk.examine(&mut examine);
        if examined.is_err() && !Arc::ptr_eq(&disk, &self.disk()) {
            // A snapshot took the place of what was being read, and its files went away: nothing is wrong with them.
            return Ok(Scrubbed { rows, bytes, content: None });
        }
        gate.pass(examined)?;
        gate.pass(failed.map_or(Ok(()), Err))?;
        Ok(Scrubbed { rows, bytes, content: whole.then(|| sum.content()) })
    }
}

/// Whether a row is among those that nodes compare, as of the instant of `among`. What retention says there is read once.
fn is_shown(
    known: &mut Option<Arc<Known>>,
    options: &OpenOptions,
    among: &dyn Rows,
    family: Family,
    key: &[u8],
    value: &[u8],
) -> Result<bool, StorageFault> {
    if !is_logical(family, key) {
        return Ok(false);
    }
    let known = match known {
        Some(known) => known,
        None => known.insert(Arc::new(known_in(options, among)?)),
    };
    Judge::new(Arc::clone(known), options.group, OneInstant(among)).is_gone(family, key, value).map(|gone| !gone)
}

fn known_in(options: &OpenOptions, rows: &dyn Rows) -> Result<Known, StorageFault> {
    let applied = row(rows, Family::Meta, &keys::applied(options.group), hapax_codec::record::decode_applied)?;
    let index = applied.and_then(|applied| applied.last_applied).map_or(0, |id| id.index);
    let tables = Tables::load(rows, options.group)?;
    Known::new(&tables, events::floor(index, options.events_kept), rows, options.group)
}
