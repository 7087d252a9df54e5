//! The pass that gives back the space of what is gone: run by maintenance, beside commits and never on the apply thread.
//! RocksDB compacts by itself where it is written to; what lies still at the bottom goes only when a pass comes by.

use std::sync::Arc;

use super::disk::{Family, Pace};
use super::horizon::{Known, Removed};
use super::{StateStore, lock};
use crate::seam::StorageFault;

/// A pass over the events is due when one in so many of those that are kept could go.
const EVENTS_SLACK: u64 = 8;

/// What the last pass that came to the end knew.
pub(super) struct Compacted {
    /// Of every family whose rows go by floors.
    floors: Arc<Known>,
    /// Of events.
    events: Arc<Known>,
}

impl Compacted {
    /// Nothing is due of what is known when a state is opened: what a pass before did not come to goes with the next one.
    pub(super) fn at(known: Arc<Known>) -> Self {
        Self { floors: Arc::clone(&known), events: known }
    }
}

impl StateStore {
    /// Flushes, and then goes through the rows of every family that retention removes rows of, so that what is gone leaves the
    /// disk. `pace` is told the bytes of each piece as it is done: it waits, so that claims keep the disk, and ends the pass at
    /// shutdown. Costs the reading and writing of the whole state. Whether it came to the end.
    ///
    /// # Errors
    /// Fatal.
    pub fn compact(&self, pace: Pace<'_>) -> Result<bool, StorageFault> {
        self.flush()?;
        let mut compacted = lock(&self.0.compaction);
        let known = self.disk().horizon().known();
        let whole = self.compact_families(&Family::RETAINED, pace)?;
        if whole {
            *compacted = Compacted::at(known);
        }
        Ok(whole)
    }

    /// Does what is due of [`StateStore::compact`]: everything where floors have risen and were flushed since the last pass, else
    /// events where many of them are too old. Whether it came to the end of something; called now and then.
    ///
    /// # Errors
    /// Fatal.
    pub fn compact_if_due(&self, pace: Pace<'_>) -> Result<bool, StorageFault> {
        let mut compacted = lock(&self.0.compaction);
        let known = self.disk().horizon().known();
        if !known.has_floors_of(&compacted.floors) {
            let whole = self.compact_families(&Family::RETAINED, pace)?;
            if whole {
                *compacted = Compacted::at(known);
            }
            return Ok(whole);
        }
        let aged = known.events().saturating_sub(compacted.events.events());
        if aged.saturating_mul(EVENTS_SLACK) < self.0.options.events_kept.max(1) {
            return Ok(false);
        }
        let whole = self.compact_families(&[Family::Events], pace)?;
        if whole {
            compacted.events = known;
        }
        Ok(whole)
    }

    /// About what a pass has to read and write: what the files of those families take.
    ///
    /// # Errors
    /// Fatal.
    pub fn retained_bytes(&self) -> Result<u64, StorageFault> {
        let gate = &self.0.gate;
        gate.check()?;
        gate.pass(self.disk().bytes(&Family::RETAINED))
    }

    /// What retention has removed from the disk since this state was opened, family by family.
    pub fn removed(&self) -> Vec<Removed> {
        self.disk().horizon().removed()
    }

    fn compact_families(&self, families: &[Family], pace: Pace<'_>) -> Result<bool, StorageFault> {
        let gate = &self.0.gate;
        gate.check()?;
        gate.pass(self.disk().compact(families, pace))
    }
}
