//! Rules that are wrong about what is kept, what is shown, and what is told.

use hapax_machine::change::{Change, Changes};
use hapax_machine::clock::Clocks;
use hapax_machine::command::{Claim, Command, EntryHead, Envelope};
use hapax_machine::grant::GrantCounter;
use hapax_machine::ids::{OperationKey, WallTime};
use hapax_machine::namespace::{Floors, NamespaceStatus};
use hapax_machine::operation::State;
use hapax_machine::outcome::{Answer, Outcome};
use hapax_machine::read::Reading;

use super::super::world::{definite, read, sound};
use super::{is_claim, lied_to, spoiled};
use crate::memory::Memory;

pub(super) fn counter_lost(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        if memory.statuses.values().any(|status| status.floors.forget_before > WallTime(0)) {
            memory.head.grants = GrantCounter(0);
        }
    })
}

pub(super) fn unknown_ages(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        for row in &mut changes.rows {
            if let Change::Operation { record, .. } = row
                && record.state() == State::Unknown
            {
                record.terminal_at = Some(record.updated_at);
            }
        }
    })
}

/// The state as it was before anything went.
fn without_floors(memory: &mut Memory) {
    memory.statuses.values_mut().for_each(|status| status.floors = Floors::default());
}

pub(super) fn shown_again(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            without_floors(memory);
        }
    })
}

pub(super) fn definite_of_the_gone(memory: &Memory, claim: &Claim) -> Option<Answer> {
    let mut believed = memory.clone();
    without_floors(&mut believed);
    // And as if no time had passed since it ended.
    believed.head.clocks = Clocks { wall: WallTime(0), ..believed.head.clocks };
    definite(&believed, claim)
}

pub(super) fn unclamped(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let (mut changes, outcome) = lied_to(memory, entry, envelope, |memory, command| {
        if matches!(command, Command::RaiseFloors(_)) {
            memory.head.clocks.wall = WallTime(u64::MAX);
        }
    });
    if matches!(envelope.command, Command::RaiseFloors(_)) {
        changes.head.clocks = memory.head.clocks.advanced(entry.term, entry.stamp);
    }
    (changes, outcome)
}

pub(super) fn floors_fall(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let Command::RaiseFloors(asked) = &envelope.command else { return sound(memory, entry, envelope) };
    let status = memory.statuses.values().next().copied().unwrap_or_default();
    let (changes, outcome) = lied_to(memory, entry, envelope, |memory, _| without_floors(memory));
    let floors = match &outcome.answer {
        Answer::Floors(floors) => *floors,
        _ => status.floors,
    };
    let row = Change::Status(asked.tenant.clone(), asked.namespace.clone(), NamespaceStatus { floors, ..status });
    (Changes { rows: vec![row], ..changes }, outcome)
}

pub(super) fn unrecorded(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        changes.rows.retain(|row| !matches!(row, Change::Refusal(..)));
    })
}

pub(super) fn misplaced(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        for row in &mut changes.rows {
            if let Change::Operation { was, .. } = row {
                *was = None;
            }
        }
    })
}

pub(super) fn uncounted(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        changes.rows.retain(|row| !matches!(row, Change::Status(..)));
    })
}

pub(super) fn read_of_the_gone(memory: &Memory, key: &OperationKey) -> Option<Reading> {
    let mut believed = memory.clone();
    without_floors(&mut believed);
    read(&believed, key)
}

pub(super) fn read_as_stored(memory: &Memory, key: &OperationKey) -> Option<Reading> {
    let reading = read(memory, key)?;
    let state = reading.record.state();
    Some(Reading { state, ..reading })
}
