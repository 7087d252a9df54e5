//! Rules that are wrong about authority and deliveries.

use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::change::{Change, Changes};
use hapax_machine::command::{Command, EntryHead, Envelope};
use hapax_machine::epoch::Binding;
use hapax_machine::ids::{AuthorityEpoch, EpochScope, InboxKey, WallTime};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::Authority;
use hapax_machine::operation::{Definite, OperationRecord, State};
use hapax_machine::outcome::{Answer, Outcome};

use super::super::scope::{row, tenant};
use super::super::world::sound;
use super::{is_claim, lied_to, spoiled};
use crate::memory::{Memory, Newest as _};

fn unconsumed(record: &mut CapabilityRecord) {
    match &mut record.bound {
        Bound::Attempt { consumed, .. } => *consumed = None,
        Bound::Resource { used, .. } => *used = 0,
    }
}

pub(super) fn uses_forgotten(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| memory.capabilities.values_mut().for_each(unconsumed))
}

pub(super) fn used_twice(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let mut believed = memory.clone();
    believed.capabilities.values_mut().for_each(unconsumed);
    any_attempt(&believed, entry, envelope)
}

pub(super) fn given_back(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        let failed = matches!(&envelope.command, Command::Report(it) if it.outcome == Some(Definite::NotApplied));
        if failed && !changes.rows.is_empty() {
            let back = memory.capabilities.values().cloned().map(|mut record| {
                unconsumed(&mut record);
                Change::Capability(record)
            });
            changes.rows.extend(back);
        }
    })
}

pub(super) fn revoked_back(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        for row in &mut changes.rows {
            if let (Command::Revoke(_), Change::Capability(record)) = (&envelope.command, row) {
                unconsumed(record);
            }
        }
    })
}

pub(super) fn unspent(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        if matches!(answer, Answer::Claimed(_)) {
            changes.rows.retain(|row| !matches!(row, Change::Capability(_)));
        }
    })
}

pub(super) fn spent_in_vain(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        for row in &mut changes.rows {
            if let (Answer::Refused(_), Change::Capability(record)) = (&*answer, row)
                && let Bound::Attempt { effect_attempt, .. } = &record.bound
            {
                record.bound = Bound::Resource {
                    resource: hapax_machine::ids::Resource::new(effect_attempt.to_string()),
                    max_uses: 0,
                    used: 0,
                };
            }
        }
    })
}

pub(super) fn never_expires(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            memory.capabilities.values_mut().for_each(|record| record.expires_at = WallTime(u64::MAX));
        }
    })
}

pub(super) fn never_revoked(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            memory.capabilities.values_mut().for_each(|record| record.revoked = None);
        }
    })
}

/// What is presented, as if it had been issued for whatever attempt is due.
pub(super) fn any_attempt(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let due = memory.operations.get(&row(1)).map(OperationRecord::due);
    let (mut changes, outcome) = lied_to(memory, entry, envelope, |memory, _| {
        for record in memory.capabilities.values_mut() {
            if let (Bound::Attempt { attempt, .. }, Some(due)) = (&mut record.bound, due) {
                *attempt = due;
            }
        }
    });
    // The row keeps what was issued.
    for changed in &mut changes.rows {
        if let Change::Capability(record) = changed
            && let Some(Bound::Attempt { attempt: issued, .. }) = issued_as(memory, record)
            && let Bound::Attempt { attempt, .. } = &mut record.bound
        {
            *attempt = *issued;
        }
    }
    (changes, outcome)
}

fn issued_as<'m>(memory: &'m Memory, record: &CapabilityRecord) -> Option<&'m Bound> {
    memory.capabilities.values().find(|issued| issued.id == record.id).map(|issued| &issued.bound)
}

/// As if the uses of a capability for a resource were good for any operation of it, at any attempt.
pub(super) fn any_use(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let Command::Claim(claim) = &envelope.command else { return sound(memory, entry, envelope) };
    let operation = memory.operations.values().find(|record| record.internal_key == claim.internal_key);
    let Some(operation) = operation else { return sound(memory, entry, envelope) };
    let (id, due) = (operation.id, operation.due());
    let (mut changes, outcome) = lied_to(memory, entry, envelope, |memory, _| {
        memory.uses.clear();
        for record in memory.capabilities.values_mut() {
            if let Bound::Resource { max_uses, used, .. } = &record.bound
                && used < max_uses
            {
                record.bound = Bound::Attempt { operation: id, attempt: due, effect_attempt: due, consumed: None };
            }
        }
    });
    for changed in &mut changes.rows {
        if let Change::Capability(record) = changed
            && let Some(Bound::Resource { resource, max_uses, used }) = issued_as(memory, record)
        {
            let used = used + u32::from(matches!(outcome.answer, Answer::Claimed(_)));
            record.bound = Bound::Resource { resource: resource.clone(), max_uses: *max_uses, used };
        }
    }
    (changes, outcome)
}

pub(super) fn optional_authority(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        memory.namespaces.values_mut().for_each(|policy| policy.authority = Authority::Inline);
    })
}

pub(super) fn expired_first(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let wall = memory.head.clocks.advanced(entry.term, entry.stamp).wall;
    lied_to(memory, entry, envelope, |memory, _| {
        memory.capabilities.values_mut().filter(|record| wall >= record.expires_at).for_each(unconsumed);
    })
}

pub(super) fn accepted_in_vain(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        let (Command::Claim(claim), Answer::Refused(refused)) = (&envelope.command, &*answer) else { return };
        if let (Some(message), Some(operation)) = (&claim.message, refused.operation_id) {
            let key = InboxKey::new(&tenant(), &message.consumer, &message.id);
            let record = InboxRecord {
                tenant: tenant(),
                message: message.clone(),
                operation,
                digest: claim.digest,
                capability: None,
                claim_id: claim.claim_id,
                client: claim.caller.client.clone(),
                at: WallTime(0),
            };
            changes.rows.push(Change::Inbox(key, record));
        }
    })
}

pub(super) fn inbox_forgotten(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| memory.inbox.clear())
}

/// As if the register stood at whatever the claim names.
fn at_what_is_named(memory: &Memory, entry: &EntryHead, envelope: &Envelope, above: bool) -> (Changes, Outcome) {
    let Command::Claim(claim) = &envelope.command else { return sound(memory, entry, envelope) };
    let mut other = envelope.clone();
    let stands = memory.epochs.values().next().map_or(AuthorityEpoch(0), |record| record.value);
    let named = claim.epoch.as_ref().map(|binding| binding.value);
    if named.is_some_and(|named| (named > stands) == above)
        && let Command::Claim(claim) = &mut other.command
        && let Some(binding) = &mut claim.epoch
    {
        binding.value = stands;
    }
    sound(memory, entry, &other)
}

pub(super) fn stale_accepted(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    at_what_is_named(memory, entry, envelope, false)
}

pub(super) fn future_accepted(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    at_what_is_named(memory, entry, envelope, true)
}

pub(super) fn unbound(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
        held.for_each(|execution| execution.authority.clear());
    })
}

pub(super) fn bump_by_one(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let stands = memory.epochs.values().next().map_or(0, |record| record.value.0);
    spoiled(memory, entry, envelope, |changes, answer| {
        for row in &mut changes.rows {
            if let Change::Epoch(record) = row {
                record.value = AuthorityEpoch(stands + 1);
                *answer = Answer::Epoch(record.value);
            }
        }
    })
}

pub(super) fn issued_again(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| memory.decisions.clear())
}

/// As if every attempt that is open were known to have done nothing.
pub(super) fn issued_ahead(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        let open = memory.operations.values_mut().filter(|record| record.state() == State::Executing);
        if matches!(command, Command::Issue(_)) {
            open.for_each(|record| record.newest_mut().state = State::NotApplied);
        }
    })
}

pub(super) fn extended_in_vain(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        let Answer::DuplicateDelivery(standing) = answer else { return };
        let found = memory.operations.values().find(|record| record.id == standing.operation_id);
        if let Some(found) = found {
            let (was, mut record) = (Some(found.place()), found.clone());
            record.newest_mut().deadline.0 += 1;
            changes.rows.push(Change::Operation { record: Box::new(record), was });
        }
    })
}

/// As if everything that is open were bound to the register, from before it was bumped.
pub(super) fn bumps_end_everything(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
        held.filter(|execution| execution.authority.is_empty()).for_each(|execution| {
            execution.authority.push(Binding { scope: EpochScope::new("s"), value: AuthorityEpoch(0) });
        });
    })
}
