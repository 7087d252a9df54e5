//! Deliberately broken rules: each does what a careless change of the rules would do.
//! They wrap the real ones, lying to them about the state or the command, or spoiling what they answer.

use hapax_machine::apply::apply_entry;
use hapax_machine::change::{Change, Changes};
use hapax_machine::command::{Command, EntryHead, Envelope};
use hapax_machine::ids::{Attempt, ClaimId, LeaseTime};
use hapax_machine::namespace::OnLapse;
use hapax_machine::operation::{Definite, OperationRecord, OutcomeRecord, State};
use hapax_machine::outcome::{Answer, Outcome};

use super::world::{Manners, Rules, Setting, row, written};
use crate::memory::{Memory, Newest as _};

/// A broken rule, the promise that it breaks, and where.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    pub(super) breaks: &'static str,
    pub(super) setting: Setting,
    pub(super) rules: Rules,
}

const UNKNOWN: Setting = Setting { on_lapse: OnLapse::Unknown, manners: Manners::Any };
const TAKEOVER: Setting = Setting { on_lapse: OnLapse::Takeover, manners: Manners::Any };
const HONEST: Setting = Setting { on_lapse: OnLapse::Unknown, manners: Manners::Honest };
const HONEST_TAKEOVER: Setting = Setting { on_lapse: OnLapse::Takeover, manners: Manners::Honest };

/// All of them; every promise is broken by at least one.
pub(super) const MUTANTS: [Mutant; 25] = [
    mutant("unknown re-opens the gate", "at most one consequential execution", HONEST, unknown_is_not_applied),
    mutant("any holder's not_applied stands", "at most one consequential execution", HONEST_TAKEOVER, all_are_sole),
    mutant(
        "a resolution's epoch is not looked at",
        "at most one consequential execution",
        HONEST_TAKEOVER,
        any_epoch,
    ),
    mutant("a lapse is a takeover everywhere", "at most one consequential execution", HONEST, takeover_everywhere),
    mutant(
        "a lease ends a moment early",
        "at most one holder believes itself entitled",
        HONEST_TAKEOVER,
        early_lapse,
    ),
    mutant("a report overwrites", "a terminal outcome never changes", UNKNOWN, report_overwrites),
    mutant("a takeover draws no epoch", "lease epochs only grow and never repeat", TAKEOVER, no_epoch_drawn),
    mutant("a lapse draws no epoch", "lease epochs only grow and never repeat", UNKNOWN, no_epoch_drawn),
    mutant("a failover loses the counter", "lease epochs only grow and never repeat", TAKEOVER, counter_restarts),
    mutant(
        "unknown re-opens the gate",
        "unknown ends by evidence or resolution only",
        UNKNOWN,
        unknown_is_not_applied,
    ),
    mutant("a retried claim gets another epoch", "a repeated command changes nothing", UNKNOWN, claim_draws_again),
    mutant("evidence is kept again", "a repeated command changes nothing", UNKNOWN, kept_again),
    mutant("an election counts a gap", "a live lease never ends early", UNKNOWN, election_counts_a_gap),
    mutant("a lease ends a moment early", "a live lease never ends early", HONEST, early_lapse),
    mutant("the attempt jumps", "attempts grow by one, out of not_applied only", UNKNOWN, attempt_jumps),
    mutant("any holder's not_applied stands", "one holder cannot speak for another", TAKEOVER, all_are_sole),
    mutant("a refusal quarantines", "a refusal changes nothing beyond settling", UNKNOWN, refusal_quarantines),
    mutant("no command is ever late", "a copy past its time changes nothing", UNKNOWN, nothing_is_late),
    mutant("quarantine is forgotten", "a quarantined operation elects nobody", UNKNOWN, quarantine_forgotten),
    mutant(
        "an owner's epoch is not looked at",
        "only the holder of the current epoch acts as owner",
        TAKEOVER,
        any_epoch,
    ),
    mutant(
        "an owner's client is not looked at",
        "only the holder of the current epoch acts as owner",
        UNKNOWN,
        any_client,
    ),
    mutant("digests are not compared", "a key is bound to its first digest", UNKNOWN, any_digest),
    mutant("granted claim ids are forgotten", "a claim id is granted once", TAKEOVER, claim_ids_forgotten),
    mutant("a resolution's epoch is not looked at", "a resolution names the current epoch", UNKNOWN, any_epoch),
    mutant("anybody is an ex-owner", "an ex-owner speaks of its own execution only", UNKNOWN, anybody_tells),
];

const fn mutant(name: &'static str, breaks: &'static str, setting: Setting, rules: Rules) -> Mutant {
    Mutant { name, breaks, setting, rules }
}

/// The rules as they are.
pub(super) fn sound(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let commands = core::slice::from_ref(envelope);
    let (changes, mut outcomes) =
        apply_entry(memory, entry, commands).expect("a map never fails, the rules are known");
    (changes, outcomes.pop().expect("one outcome per command"))
}

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

fn reworded(
    memory: &Memory,
    entry: &EntryHead,
    envelope: &Envelope,
    reword: impl FnOnce(&mut Envelope),
) -> (Changes, Outcome) {
    let mut other = envelope.clone();
    reword(&mut other);
    sound(memory, entry, &other)
}

fn unknown_is_not_applied(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        let operation = memory.operations.get_mut(&row());
        if let (Command::Claim(_), Some(operation)) = (command, operation)
            && operation.newest().state == State::Unknown
        {
            operation.newest_mut().state = State::NotApplied;
            operation.newest_mut().outcome = Some(nothing_happened());
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
        at: Default::default(),
    }
}

fn all_are_sole(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        memory.operations.values_mut().for_each(|operation| operation.newest_mut().sole_holder = true);
    })
}

/// Renew, report and resolve as if they had named the current epoch, and owners as if they were the current one.
fn any_epoch(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    reworded(memory, entry, envelope, |envelope| {
        let Some(operation) = memory.operations.get(&row()) else { return };
        let current = operation.newest();
        match &mut envelope.command {
            Command::Renew(command) => {
                command.lease_epoch = current.lease_epoch;
                command.caller.client = current.client.clone();
            }
            Command::Report(command) => {
                command.lease_epoch = current.lease_epoch;
                command.caller.client = current.client.clone();
            }
            Command::Resolve(command) => command.lease_epoch = current.lease_epoch,
            _ => {}
        }
    })
}

fn any_client(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    reworded(memory, entry, envelope, |envelope| {
        let Some(operation) = memory.operations.get(&row()) else { return };
        match &mut envelope.command {
            Command::Renew(command) => command.caller.client = operation.newest().client.clone(),
            Command::Report(command) => command.caller.client = operation.newest().client.clone(),
            _ => {}
        }
    })
}

fn takeover_everywhere(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        memory.namespaces.values_mut().for_each(|policy| policy.takeover_since = Some(LeaseTime(0)));
    })
}

fn early_lapse(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if !matches!(command, Command::Claim(_) | Command::Lapse(_)) {
            return;
        }
        let operation = memory.operations.get_mut(&row());
        if let Some(operation) = operation.filter(|operation| operation.newest().deadline > LeaseTime(0)) {
            operation.newest_mut().deadline.0 -= 1;
        }
    })
}

fn report_overwrites(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        let operation = memory.operations.get_mut(&row());
        if let (Command::Report(_), Some(operation)) = (command, operation)
            && operation.newest().state.is_terminal()
        {
            operation.newest_mut().state = State::Executing;
            operation.newest_mut().deadline = LeaseTime(u64::MAX);
            operation.newest_mut().report = None;
            operation.newest_mut().outcome = None;
        }
    })
}

fn no_epoch_drawn(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let (mut changes, outcome) = sound(memory, entry, envelope);
    if let (Some(before), Some(after)) = (memory.operations.get(&row()), written(&mut changes)) {
        after.newest_mut().lease_epoch = before.newest().lease_epoch;
        changes.head.grants = memory.head.grants;
    }
    (changes, outcome)
}

fn counter_restarts(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        if entry.term > 1 {
            memory.head.grants.0 = memory.head.grants.0.min(1);
        }
    })
}

fn claim_draws_again(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let (mut changes, mut outcome) = sound(memory, entry, envelope);
    if let (Answer::Claimed(grant), None) = (&mut outcome.answer, written(&mut changes)) {
        let mut operation = memory.operations[&row()].clone();
        operation.newest_mut().lease_epoch = changes.head.grants.lease_epoch();
        grant.lease.lease_epoch = operation.newest().lease_epoch;
        changes.rows.push(rewritten(memory, operation));
    }
    (changes, outcome)
}

fn kept_again(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        memory.operations.values_mut().for_each(|operation| operation.said = None);
    })
}

fn election_counts_a_gap(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let mut entry = *entry;
    // Two, because a deadline is one millisecond late.
    entry.stamp.lead_ms += 2 * u64::from(entry.term > 1);
    sound(memory, &entry, envelope)
}

fn attempt_jumps(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let (mut changes, outcome) = sound(memory, entry, envelope);
    if let Some(after) = written(&mut changes).filter(|after| after.newest().attempt > Attempt(1)) {
        after.newest_mut().attempt.0 += 1;
    }
    (changes, outcome)
}

fn refusal_quarantines(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    let (mut changes, outcome) = sound(memory, entry, envelope);
    if let (Answer::Refused(_), Some(operation)) = (&outcome.answer, memory.operations.get(&row())) {
        let mut operation = written(&mut changes).cloned().unwrap_or(operation.clone());
        operation.quarantined = true;
        changes.rows.push(rewritten(memory, operation));
    }
    (changes, outcome)
}

fn nothing_is_late(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    reworded(memory, entry, envelope, |envelope| envelope.not_after = LeaseTime(u64::MAX))
}

fn quarantine_forgotten(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, _| {
        memory.operations.values_mut().for_each(|operation| operation.quarantined = false);
    })
}

fn any_digest(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    reworded(memory, entry, envelope, |envelope| {
        if let (Command::Claim(claim), Some(operation)) = (&mut envelope.command, memory.operations.get(&row())) {
            claim.digest = operation.digest;
        }
    })
}

fn claim_ids_forgotten(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    lied_to(memory, entry, envelope, |memory, command| {
        if matches!(command, Command::Claim(_)) {
            memory.grants.clear();
            memory
                .operations
                .values_mut()
                .for_each(|operation| operation.newest_mut().claim_id = ClaimId([0xff; 16]));
        }
    })
}

fn anybody_tells(memory: &Memory, entry: &EntryHead, envelope: &Envelope) -> (Changes, Outcome) {
    reworded(memory, entry, envelope, |envelope| {
        if let (Command::Evidence(told), Some(operation)) = (&mut envelope.command, memory.operations.get(&row())) {
            told.claim_id = operation.newest().claim_id;
            told.caller.client = operation.newest().client.clone();
        }
    })
}

/// A row that a broken rule writes, with what lists need to know.
fn rewritten(memory: &Memory, record: OperationRecord) -> Change {
    let was = memory.operations.get(&record.key()).map(OperationRecord::place);
    Change::Operation { record: Box::new(record), was }
}
