//! Rules that are wrong about ownership and outcomes.

use hapax_machine::change::{Change, Changes};
use hapax_machine::command::{Command, EntryHead, Envelope, RepairKind};
use hapax_machine::ids::{LeaseTime, OperationKey, WallTime};
use hapax_machine::operation::{Definite, OutcomeRecord, State};
use hapax_machine::outcome::{Answer, Outcome};
use hapax_machine::read::Reading;

use super::super::scope::row;
use super::super::world::{read, sound};
use super::{is_claim, lied_to, spoiled};
use crate::memory::{Memory, Newest as _};

pub(super) fn draws_nothing(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        if !matches!(envelope.command, Command::ReconcileLease(_) | Command::ForceFence(_)) {
            return;
        }
        changes.head.grants = memory.head.grants;
        for row in &mut changes.rows {
            if let Change::Operation { record, .. } = row
                && let Some(was) = memory.operations.get(&record.key())
            {
                record.newest_mut().lease_epoch = was.newest().lease_epoch;
            }
        }
        if let Answer::Reconciling(items) = answer {
            items.iter_mut().for_each(|item| item.lease.lease_epoch.0 -= 1);
        }
    })
}

pub(super) fn gate_reopens(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        let unknown = memory.operations.values_mut().filter(|record| record.state() == State::Unknown);
        if is_claim(command) {
            unknown.for_each(|record| record.newest_mut().state = State::NotApplied);
        }
    })
}

pub(super) fn lease_for_all(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if matches!(command, Command::ReconcileLease(_)) {
            let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
            held.for_each(|execution| execution.reconciler = None);
        }
    })
}

pub(super) fn never_escalated(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if matches!(command, Command::ReconcileLease(_)) {
            let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
            held.for_each(|execution| execution.escalated_at = None);
        }
    })
}

pub(super) fn any_epoch(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let mut other = envelope.clone();
    if let (Command::Resolve(resolve), Some(record)) = (&mut other.command, memory.operations.get(&row(1))) {
        resolve.lease_epoch = record.newest().lease_epoch;
    }
    sound(memory, entry, &other)
}

pub(super) fn proof_overwrites(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        let ended = memory.operations.values_mut().filter(|record| record.state().is_terminal());
        if matches!(command, Command::Resolve(_)) {
            ended.for_each(|record| {
                record.newest_mut().state = State::Unknown;
                record.newest_mut().outcome = None;
            });
        }
    })
}

pub(super) fn closes_anything(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let mut other = envelope.clone();
    let Command::Repair(repair) = &mut other.command else { return sound(memory, entry, envelope) };
    if repair.kind != RepairKind::Close {
        return sound(memory, entry, envelope);
    }
    repair.expected = State::NotApplied;
    lied_to(memory, entry, &other, |memory, _| {
        let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
        held.for_each(|execution| execution.state = State::NotApplied);
    })
}

pub(super) fn attempt_jumps(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            for record in memory.operations.values_mut().filter(|record| record.execution.is_some()) {
                record.closed = None;
                record.newest_mut().state = State::NotApplied;
                record.newest_mut().outcome = Some(nothing_happened());
                record.terminal_at = None;
            }
        }
    })
}

fn nothing_happened() -> OutcomeRecord {
    OutcomeRecord {
        outcome: Definite::NotApplied,
        status_code: None,
        schema_version: None,
        has_result: false,
        result_ref: None,
        result_digest: None,
        external_id: None,
        reason: None,
        at: WallTime(0),
    }
}

pub(super) fn never_stopped(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            for record in memory.operations.values_mut() {
                (record.quarantined, record.superseded_by) = (false, None);
            }
        }
    })
}

pub(super) fn unquarantined(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        for row in &mut changes.rows {
            if let (Change::Operation { record, .. }, Answer::Refused(_)) = (row, &*answer) {
                record.quarantined = false;
            }
        }
    })
}

pub(super) fn any_fence(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let mut other = envelope.clone();
    if let (Command::ForceFence(fence), Some(record)) = (&mut other.command, memory.operations.get(&row(1))) {
        fence.lease_epoch = record.newest().lease_epoch;
    }
    sound(memory, entry, &other)
}

pub(super) fn unpaced(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        memory.statuses.values_mut().for_each(|status| status.pace.granted = 0);
    })
}

pub(super) fn all_are_sole(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
        held.for_each(|execution| execution.sole_holder = true);
    })
}

pub(super) fn named_anew(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |_, answer| {
        if let Answer::Reconciling(items) = answer {
            items.iter_mut().for_each(|item| item.effect_key.push('r'));
        }
    })
}

pub(super) fn named_alike(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |_, answer| {
        if let Answer::Claimed(grant) = answer {
            grant.effect_key = format!("{:?}", grant.operation_id);
        }
    })
}

pub(super) fn unlinked(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        for row in &mut changes.rows {
            if let (Command::Repair(repair), Change::Operation { record, .. }) = (&envelope.command, row)
                && repair.kind == RepairKind::Close
            {
                record.superseded_by = None;
            }
        }
    })
}

/// As if whoever released had looked at everything that will ever be said.
pub(super) fn all_is_pardoned(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        for row in &mut changes.rows {
            if let (Change::Operation { record, .. }, Answer::Refused(_)) = (row, &*answer)
                && record.forgiven.is_some()
            {
                record.quarantined = false;
            }
        }
    })
}

pub(super) fn claims_forgotten(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
        held.for_each(|execution| execution.claimed = None);
    })
}

pub(super) fn overrides_forgotten(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        if matches!(envelope.command, Command::Repair(_) | Command::ForceFence(_) | Command::Escalate(_)) {
            changes.rows.retain(|row| !matches!(row, Change::Evidence(..)));
        }
    })
}

/// The policy alone says what a lapse means, also one that is long over.
fn whatever_was_before(memory: &mut Memory) {
    for policy in memory.namespaces.values_mut() {
        policy.takeover_since = policy.takeover_since.map(|_| LeaseTime(0));
    }
}

pub(super) fn lapses_taken_back(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| whatever_was_before(memory))
}

pub(super) fn read_as_taken_back(memory: &Memory, key: &OperationKey) -> Option<Reading> {
    let mut believed = memory.clone();
    whatever_was_before(&mut believed);
    read(&believed, key)
}

fn an_instant_earlier(memory: &mut Memory) {
    for policy in memory.namespaces.values_mut() {
        policy.takeover_since = policy.takeover_since.map(|since| LeaseTime(since.0.saturating_sub(1)));
    }
}

pub(super) fn instants_taken_back(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if !matches!(command, Command::PutNamespace(_)) {
            an_instant_earlier(memory);
        }
    })
}

pub(super) fn read_as_in_that_instant(memory: &Memory, key: &OperationKey) -> Option<Reading> {
    let mut believed = memory.clone();
    an_instant_earlier(&mut believed);
    read(&believed, key)
}

pub(super) fn takeover_anew(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if matches!(command, Command::PutNamespace(_)) {
            memory.namespaces.values_mut().for_each(|policy| policy.takeover_since = None);
        }
    })
}
