//! What happened, for those who watch: one row for each entry in which something did, the same on every node.
//!
//! Events are kept by age, not by floors: of the last [`EVENTS_KEPT`] entries. What is older is not shown, and goes
//! when a compaction meets it. Invariant: a reader is told every event after its position, in order, or that it comes too late.

use std::ops::ControlFlow;

use hapax_codec::record;
use hapax_machine::change::Event;
use hapax_machine::ids::Revision;

use super::disk::Family;
use super::view::undecodable;
use super::{StateView, keys};
use crate::seam::StorageFault;

/// Events of so many entries are kept.
pub const EVENTS_KEPT: u64 = 1_000_000;

/// A place between two events. Positions are ordered as the events are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventPosition {
    /// The entry of the event before it.
    pub index: u64,
    /// Its command's place in the entry.
    pub ordinal: u32,
    /// Its number among the events of that command.
    pub part: u32,
}

impl EventPosition {
    /// Right behind `event`.
    pub fn behind(event: &Event) -> Self {
        Self { index: event.revision.index, ordinal: event.revision.ordinal, part: event.part }
    }

    /// Behind everything that happened at `revision` or before.
    pub fn behind_revision(revision: &Revision) -> Self {
        Self { index: revision.index, ordinal: revision.ordinal, part: u32::MAX }
    }

    /// Behind everything that happened in entry `index` or before.
    pub fn behind_entry(index: u64) -> Self {
        Self { index, ordinal: u32::MAX, part: u32::MAX }
    }
}

/// What happened after a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Events {
    /// These events, and no others before `next`.
    Page {
        /// In order.
        events: Vec<Event>,
        /// Where to go on.
        next: EventPosition,
    },
    /// Some of what came after the position is not kept any more.
    Compacted {
        /// The first entry that a position may be in.
        floor: u64,
    },
}

/// The first entry whose events are kept, after the entry at `applied`.
pub(super) fn floor(applied: u64, kept: u64) -> u64 {
    applied.saturating_sub(kept)
}

impl StateView {
    /// The first entry that a position may be in.
    pub fn events_floor(&self) -> u64 {
        floor(self.index(), self.0.events_kept)
    }

    /// At most `limit` events after a position, of all tenants. Where there are none, `next` is behind the last entry applied.
    ///
    /// # Errors
    /// A row cannot be read.
    pub fn events(&self, from: EventPosition, limit: usize) -> Result<Events, StorageFault> {
        self.0.gate.check()?;
        let floor = self.events_floor();
        if from.index < floor {
            return Ok(Events::Compacted { floor });
        }
        let (mut events, mut full, mut failed) = (Vec::new(), limit == 0, None);
        let (first, end) = (keys::events(self.0.group, from.index), keys::events(self.0.group, u64::MAX));
        let read = self.0.rows.page(Family::Events, &first, &end, &mut |key, value| {
            match record::decode_events(value) {
                Ok(found) => events.extend(found.into_iter().filter(|event| EventPosition::behind(event) > from)),
                Err(error) => failed = Some(undecodable(Family::Events, key, &error)),
            }
            full = events.len() >= limit;
            if full || failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.0.gate.pass(read.and_then(|()| failed.map_or(Ok(()), Err)))?;
        events.truncate(limit);
        let next = match events.last() {
            Some(last) if full => EventPosition::behind(last),
            _ if full => from,
            _ => EventPosition::behind_entry(self.index()).max(from),
        };
        Ok(Events::Page { events, next })
    }
}
