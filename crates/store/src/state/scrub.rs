//! The slow scrub: reads every row from the disk with its checksum, so that a block nobody asks for does not rot unseen.
//! It also decodes each row and checks where it lies.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::disk::{Family, Pace};
use super::view::{Content, Summing, is_logical};
use super::{StateStore, scan};
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
        let mut examine = |family: Family, key: &[u8], value: &[u8]| {
            let len = (key.len() + value.len()) as u64;
            (rows, bytes, since) = (rows + 1, bytes + len, since + len);
            if let Err(fault) = scan::verify(family, key, value) {
                failed = Some(fault);
                return ControlFlow::Break(());
            }
            if is_logical(family, key) {
                sum.row(family, key, value);
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
