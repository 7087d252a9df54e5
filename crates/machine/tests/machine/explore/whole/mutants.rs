//! Deliberately broken rules: each does what a careless change of the rules would do.
//! They wrap the real ones, lying to them about the state or the command, or spoiling what they answer.

use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::change::{Change, Changes};
use hapax_machine::clock::Clocks;
use hapax_machine::command::{Claim, Command, EntryHead, Envelope, RepairKind};
use hapax_machine::grant::GrantCounter;
use hapax_machine::ids::{AuthorityEpoch, InboxKey, WallTime};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::{Authority, Floors, NamespaceStatus, OnLapse};
use hapax_machine::operation::{Definite, OperationRecord, OutcomeRecord, State};
use hapax_machine::outcome::{Answer, Outcome};

use super::scope::{Scope, row, tenant};
use super::world::{Rules, definite, sound};
use crate::memory::{Memory, Newest as _};

/// A broken rule, the promise that it breaks, and where.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    pub(super) breaks: &'static str,
    pub(super) scope: Scope,
    pub(super) rules: Rules,
}

type Apply = fn(&Memory, &EntryHead, &Envelope) -> (Changes, Outcome);

const fn mutant(name: &'static str, breaks: &'static str, scope: Scope, apply: Apply) -> Mutant {
    Mutant { name, breaks, scope, rules: Rules { apply, definite } }
}

const BOUND: Scope = Scope::Epochs(OnLapse::Unknown);
const BOUND_OVER: Scope = Scope::Epochs(OnLapse::Takeover);

/// All of them; every promise is broken by at least one.
pub(super) const MUTANTS: [Mutant; 42] = [
    mutant(
        "a use is counted by nobody",
        "distinct uses never exceed what was issued",
        Scope::Bounded,
        uses_forgotten,
    ),
    mutant("a use is consumed twice", "distinct uses never exceed what was issued", Scope::Single, used_twice),
    mutant(
        "not_applied gives the use back",
        "a use that was consumed is never given back",
        Scope::Single,
        given_back,
    ),
    mutant("revoking gives a use back", "a use that was consumed is never given back", Scope::Bounded, revoked_back),
    mutant("a claim consumes nothing", "an election consumes one use, and nothing else does", Scope::Single, unspent),
    mutant(
        "a refused claim consumes",
        "an election consumes one use, and nothing else does",
        Scope::Single,
        spent_in_vain,
    ),
    mutant("expiry is not looked at", "dead authority elects nobody", Scope::Single, never_expires),
    mutant("revocation is not looked at", "dead authority elects nobody", Scope::Bounded, never_revoked),
    mutant("a use elects one operation twice", "dead authority elects nobody", Scope::Bounded, elects_again),
    mutant("the attempt is not looked at", "authority for one attempt elects no other", Scope::Single, any_attempt),
    mutant(
        "a resource is good for every attempt",
        "authority for one attempt elects no other",
        Scope::Bounded,
        any_use,
    ),
    mutant(
        "capabilities are optional",
        "no execution is opened without the authority asked for",
        Scope::Single,
        optional_authority,
    ),
    mutant(
        "expired outranks consumed",
        "consumed outranks everything else about a capability",
        Scope::Single,
        expired_first,
    ),
    mutant(
        "a refused delivery is accepted",
        "a refusal spends nothing and accepts no delivery",
        Scope::Single,
        accepted_in_vain,
    ),
    mutant("the inbox is not looked at", "a delivery is accepted once", Scope::Single, inbox_forgotten),
    mutant(
        "a stale epoch is accepted",
        "a claim bound to another value than the register's is refused",
        BOUND,
        stale_accepted,
    ),
    mutant(
        "an epoch that was never handed out is accepted",
        "a claim bound to another value than the register's is refused",
        BOUND_OVER,
        future_accepted,
    ),
    mutant("a bump fences nothing that is open", "a bump fences what is open under a lower value", BOUND, unbound),
    mutant(
        "under takeover a bump fences nothing",
        "a bump fences what is open under a lower value",
        BOUND_OVER,
        unbound,
    ),
    mutant(
        "a reconciler's lease draws nothing",
        "every epoch and birth is new and higher",
        Scope::Reconcile,
        draws_nothing,
    ),
    mutant("a forced fence draws nothing", "every epoch and birth is new and higher", Scope::Repair, draws_nothing),
    mutant("a bump counts by one", "every epoch and birth is new and higher", BOUND, bump_by_one),
    mutant("forgetting loses the counter", "every epoch and birth is new and higher", Scope::Retention, counter_lost),
    mutant(
        "unknown re-opens the gate",
        "unknown ends by evidence or resolution only",
        Scope::Reconcile,
        gate_reopens,
    ),
    mutant("unknown ages out", "unknown ends by evidence or resolution only", Scope::Retention, unknown_ages),
    mutant(
        "a lease is given to whoever asks",
        "an execution is leased to one reconciler at a time",
        Scope::Reconcile,
        lease_for_all,
    ),
    mutant(
        "the escalated are leased",
        "what waits for people is leased to nobody",
        Scope::Reconcile,
        never_escalated,
    ),
    mutant("any epoch resolves", "a resolution names the current epoch", Scope::Reconcile, any_epoch),
    mutant("proof overwrites", "a terminal outcome never changes", Scope::Reconcile, proof_overwrites),
    mutant("closing overwrites", "a terminal outcome never changes", Scope::Repair, closes_anything),
    mutant(
        "a closed operation is claimed",
        "a new attempt follows one that was not applied",
        Scope::Repair,
        attempt_jumps,
    ),
    mutant("unknown is closed", "only what nobody executes is closed", Scope::Repair, closes_anything),
    mutant(
        "a superseded operation is claimed",
        "a quarantined or superseded operation elects nobody",
        Scope::Supersede,
        never_stopped,
    ),
    mutant("a contradiction is only refused", "a contradiction stops claims", Scope::Repair, unquarantined),
    mutant("what is gone is shown to claims", "what is gone is never shown again", Scope::Retention, shown_again),
    mutant("floors are not clamped", "only what ended long enough ago goes", Scope::Retention, unclamped),
    mutant("floors are what was asked last", "floors only rise", Scope::Retention, floors_fall),
    Mutant {
        name: "a node answers for what it forgot",
        breaks: "a definite fact is what apply says",
        scope: Scope::Retention,
        rules: Rules { apply: sound, definite: definite_of_the_gone },
    },
    mutant("no refusal is kept", "a refusal of authority is on record before it is told", Scope::Single, unrecorded),
    mutant(
        "a decision leads to another capability",
        "a repeated command changes nothing",
        Scope::Single,
        issued_again,
    ),
    mutant("former places are forgotten", "lists lose an operation where it stood", Scope::Repair, misplaced),
    mutant("counts stand still", "a namespace counts what it holds", Scope::Repair, uncounted),
];

fn lied_to(
    memory: &Memory,
    entry: &EntryHead,
    envelope: &Envelope,
    lie: impl FnOnce(&mut Memory, &Command),
) -> (Changes, Outcome) {
    let mut believed = memory.clone();
    lie(&mut believed, &envelope.command);
    sound(&believed, entry, envelope)
}

fn spoiled(
    memory: &Memory,
    entry: &EntryHead,
    envelope: &Envelope,
    spoil: impl FnOnce(&mut Changes, &mut Answer),
) -> (Changes, Outcome) {
    let (mut changes, mut outcome) = sound(memory, entry, envelope);
    spoil(&mut changes, &mut outcome.answer);
    (changes, outcome)
}

fn unconsumed(record: &mut CapabilityRecord) {
    match &mut record.bound {
        Bound::Attempt { consumed, .. } => *consumed = None,
        Bound::Resource { used, .. } => *used = 0,
    }
}

fn is_claim(command: &Command) -> bool {
    matches!(command, Command::Claim(_))
}

fn uses_forgotten(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| memory.capabilities.values_mut().for_each(unconsumed))
}

fn used_twice(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let mut believed = memory.clone();
    believed.capabilities.values_mut().for_each(unconsumed);
    any_attempt(&believed, entry, envelope)
}

fn given_back(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn revoked_back(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        for row in &mut changes.rows {
            if let (Command::Revoke(_), Change::Capability(record)) = (&envelope.command, row) {
                unconsumed(record);
            }
        }
    })
}

fn unspent(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        if matches!(answer, Answer::Claimed(_)) {
            changes.rows.retain(|row| !matches!(row, Change::Capability(_)));
        }
    })
}

fn spent_in_vain(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn never_expires(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            memory.capabilities.values_mut().for_each(|record| record.expires_at = WallTime(u64::MAX));
        }
    })
}

fn never_revoked(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            memory.capabilities.values_mut().for_each(|record| record.revoked = None);
        }
    })
}

/// As if the uses of a capability for a resource were good for any operation of it, at any attempt.
fn elects_again(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    any_use(memory, entry, envelope)
}

/// What is presented, as if it had been issued for whatever attempt is due.
fn any_attempt(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn any_use(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn optional_authority(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        memory.namespaces.values_mut().for_each(|policy| policy.authority = Authority::Inline);
    })
}

fn expired_first(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let wall = memory.head.clocks.advanced(entry.term, entry.stamp).wall;
    lied_to(memory, entry, envelope, |memory, _| {
        memory.capabilities.values_mut().filter(|record| wall >= record.expires_at).for_each(unconsumed);
    })
}

fn accepted_in_vain(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn inbox_forgotten(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn stale_accepted(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    at_what_is_named(memory, entry, envelope, false)
}

fn future_accepted(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    at_what_is_named(memory, entry, envelope, true)
}

fn unbound(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
        held.for_each(|execution| execution.authority.clear());
    })
}

fn draws_nothing(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn bump_by_one(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn counter_lost(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        if memory.statuses.values().any(|status| status.floors.forget_before > WallTime(0)) {
            memory.head.grants = GrantCounter(0);
        }
    })
}

fn gate_reopens(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        let unknown = memory.operations.values_mut().filter(|record| record.state() == State::Unknown);
        if is_claim(command) {
            unknown.for_each(|record| record.newest_mut().state = State::NotApplied);
        }
    })
}

fn unknown_ages(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn lease_for_all(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if matches!(command, Command::ReconcileLease(_)) {
            let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
            held.for_each(|execution| execution.reconciler = None);
        }
    })
}

fn never_escalated(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if matches!(command, Command::ReconcileLease(_)) {
            let held = memory.operations.values_mut().filter_map(|record| record.execution.as_mut());
            held.for_each(|execution| execution.escalated_at = None);
        }
    })
}

fn any_epoch(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let mut other = envelope.clone();
    if let (Command::Resolve(resolve), Some(record)) = (&mut other.command, memory.operations.get(&row(1))) {
        resolve.lease_epoch = record.newest().lease_epoch;
    }
    sound(memory, entry, &other)
}

fn proof_overwrites(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn closes_anything(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn attempt_jumps(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn never_stopped(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            for record in memory.operations.values_mut() {
                (record.quarantined, record.superseded_by) = (false, None);
            }
        }
    })
}

fn unquarantined(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, answer| {
        for row in &mut changes.rows {
            if let (Change::Operation { record, .. }, Answer::Refused(_)) = (row, &*answer) {
                record.quarantined = false;
            }
        }
    })
}

/// The state as it was before anything went.
fn without_floors(memory: &mut Memory) {
    memory.statuses.values_mut().for_each(|status| status.floors = Floors::default());
}

fn shown_again(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if is_claim(command) {
            without_floors(memory);
        }
    })
}

fn definite_of_the_gone(memory: &Memory, claim: &Claim) -> Option<Answer> {
    let mut believed = memory.clone();
    without_floors(&mut believed);
    // And as if no time had passed since it ended.
    believed.head.clocks = Clocks { wall: WallTime(0), ..believed.head.clocks };
    definite(&believed, claim)
}

fn unclamped(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn floors_fall(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
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

fn unrecorded(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        changes.rows.retain(|row| !matches!(row, Change::Refusal(..)));
    })
}

fn issued_again(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| memory.decisions.clear())
}

fn misplaced(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        for row in &mut changes.rows {
            if let Change::Operation { was, .. } = row {
                *was = None;
            }
        }
    })
}

fn uncounted(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    spoiled(memory, entry, envelope, |changes, _| {
        changes.rows.retain(|row| !matches!(row, Change::Status(..)));
    })
}
