//! Laws that hold in every history, whatever the model says:
//!
//! - **Removal:** a replica from which any part of what is gone was removed gives the same answers and the same changes.
//! - **Counts:** a namespace's counts are what counting its operations gives.
//! - **Definite facts:** what a node may answer from its own state is what apply answers there, and stays true.
//! - **Batches:** an entry of several commands is as several entries of one.
//! - **Evidence:** the links of the record lead to the one that each operation carries.
//! - **Lists:** rows put in their place and taken from their former one are exactly the operations that are there.
//! - **Events:** in order, and the last one about an operation tells how it stands.
//! - **Replay:** the same log gives the same state, to the last byte.

use std::collections::{BTreeMap, BTreeSet};

use hapax_machine::View;
use hapax_machine::apply::apply_entry;
use hapax_machine::change::{Change, Changes};
use hapax_machine::command::{Claim, Command, EntryHead, Envelope};
use hapax_machine::evidence::linked;
use hapax_machine::ids::{ContentHash, GroupId, LeaseTime, OperationId, OperationKey, Revision, Version};
use hapax_machine::operation::{Class, Place};
use hapax_machine::outcome::{Answer, Outcome, Refusal};
use hapax_machine::read::{self, Definite};
use hapax_machine::retention::Shown;
use proptest::prelude::*;

use super::commands::{credential, the_namespace, version};
use crate::memory::{Memory, at_any_time, entry};

/// How long a node may answer from a state of its own, in milliseconds.
const STALENESS_MS: u64 = 2_000;

/// What is kept to judge by.
pub(super) struct Laws {
    /// The replica from which rows are removed.
    reclaimed_replica: Memory,
    seed: u64,
    /// The lists, kept as a node keeps them.
    places: BTreeSet<(Place, OperationId)>,
    /// Definite answers that were given.
    given: Vec<Given>,
    log: Vec<(EntryHead, Vec<Envelope>)>,
    pub(super) definite: usize,
    pub(super) reclaimed: usize,
}

/// A definite answer.
struct Given {
    at: LeaseTime,
    /// The policy that it was given under.
    policy: Version,
    claim: Claim,
    answer: Answer,
    about: Option<OperationId>,
}

impl Laws {
    pub(super) fn new(start: &Memory, seed: u64) -> Self {
        Self {
            reclaimed_replica: start.clone(),
            seed: seed | 1,
            places: BTreeSet::new(),
            given: Vec::new(),
            log: Vec::new(),
            definite: 0,
            reclaimed: 0,
        }
    }

    /// Looks at the state that `commands` will meet.
    pub(super) fn before(
        &mut self,
        memory: &Memory,
        head: &EntryHead,
        commands: &[Envelope],
    ) -> Result<(), TestCaseError> {
        for envelope in commands {
            if let Command::Claim(claim) = &envelope.command {
                self.definite_facts(memory, head.index - 1, claim)?;
            }
        }
        self.one_by_one(memory, head, commands)
    }

    /// Looks at what an entry did.
    pub(super) fn after(
        &mut self,
        memory: &Memory,
        head: &EntryHead,
        commands: &[Envelope],
        changes: &Changes,
        outcomes: &[Outcome],
    ) -> Result<(), TestCaseError> {
        self.log.push((*head, commands.to_vec()));
        self.removal(head, commands, changes, outcomes)?;
        self.lists(memory, changes)?;
        self.facts_stay(memory)?;
        counts(memory)?;
        chains(memory)?;
        events(memory)
    }

    /// The same log gives the same state.
    pub(super) fn replay(&self, start: &Memory, memory: &Memory) -> Result<(), TestCaseError> {
        let mut second = start.clone();
        for (head, commands) in &self.log {
            let (changes, _) = apply_entry(&second, head, commands).expect("a map never fails");
            second.commit(changes);
        }
        prop_assert_eq!(&second, memory);
        Ok(())
    }

    fn removal(
        &mut self,
        head: &EntryHead,
        commands: &[Envelope],
        changes: &Changes,
        outcomes: &[Outcome],
    ) -> Result<(), TestCaseError> {
        let replica = &mut self.reclaimed_replica;
        let (others, other_outcomes) = apply_entry(replica, head, commands).expect("a map never fails");
        prop_assert_eq!(&other_outcomes[..], outcomes, "removal changes no answer");
        prop_assert_eq!(&others, changes, "removal changes no change");
        replica.commit(others);
        let seed = &mut self.seed;
        self.reclaimed += replica.reclaim(|_| {
            // A xorshift: any part of what is gone, another in every run.
            *seed ^= *seed << 13;
            *seed ^= *seed >> 7;
            *seed ^= *seed << 17;
            *seed & 1 == 1
        });
        Ok(())
    }

    fn definite_facts(&mut self, memory: &Memory, index: u64, claim: &Claim) -> Result<(), TestCaseError> {
        let found = read::definite(memory, GroupId(0), index, claim).expect("a map never fails");
        let Some(Definite { outcome, repeated }) = found else { return Ok(()) };
        let (changes, applied) = apply_now(memory, claim);
        prop_assert_eq!(&outcome.answer, &applied, "a definite fact is what apply answers");
        prop_assert_eq!(outcome.revision.index, index);
        // Applied, it changes nothing but how often a refusal came that is on record already.
        let counted = |row: &Change| matches!(row, Change::Refusal(_, row) if row.times > 1);
        prop_assert!(changes.rows.iter().all(counted), "{:?}", changes.rows);
        prop_assert_eq!(changes.rows.len(), repeated.len());
        self.definite += 1;
        let key = OperationKey::new(&claim.caller.tenant, &claim.internal_key);
        let about = Shown(memory).operation(&key).expect("a map never fails").map(|record| record.id);
        let (at, policy) = (memory.head.clocks.lease_time, version(memory));
        self.given.push(Given { at, policy, claim: claim.clone(), answer: outcome.answer, about });
        Ok(())
    }

    /// What was answered within the bound is still true.
    fn facts_stay(&mut self, memory: &Memory) -> Result<(), TestCaseError> {
        let now = memory.head.clocks.lease_time.0;
        self.given.retain(|given| now - given.at.0 <= STALENESS_MS);
        for Given { policy, claim, answer, about, .. } in &self.given {
            let key = OperationKey::new(&claim.caller.tenant, &claim.internal_key);
            let shown = Shown(memory).operation(&key).expect("a map never fails").map(|record| record.id);
            // A wall that jumped may have taken the operation away; then it was true of what was there.
            if about.is_some() && shown != *about {
                continue;
            }
            let (_, applied) = apply_now(memory, claim);
            let still = match (answer, &applied) {
                (Answer::Replayed(before), Answer::Replayed(now)) => before.outcome == now.outcome,
                (Answer::Replayed(_), Answer::Refused(refused)) => match refused.reason {
                    Refusal::OperationQuarantined | Refusal::ClaimIdReused => true,
                    // Another policy may ask for more than such a claim brings; the outcome stands behind the refusal.
                    Refusal::CapabilityRequired | Refusal::KeyDigestMismatch => *policy != version(memory),
                    _ => false,
                },
                (Answer::Refused(_), Answer::Refused(_) | Answer::DuplicateDelivery(_)) => true,
                _ => false,
            };
            prop_assert!(still, "{:?} became {:?}", answer, applied);
        }
        Ok(())
    }

    fn one_by_one(&self, memory: &Memory, head: &EntryHead, commands: &[Envelope]) -> Result<(), TestCaseError> {
        if commands.len() < 2 {
            return Ok(());
        }
        let (mut together, mut apart) = (memory.clone(), memory.clone());
        let (_, outcomes) = together.apply(head, commands);
        for (outcome, envelope) in outcomes.iter().zip(commands) {
            let (_, alone) = apart.apply(head, core::slice::from_ref(envelope));
            prop_assert_eq!(&alone[0].answer, &outcome.answer, "{:?}", envelope);
        }
        prop_assert_eq!(without_positions(together), without_positions(apart));
        Ok(())
    }

    fn lists(&mut self, memory: &Memory, changes: &Changes) -> Result<(), TestCaseError> {
        for row in &changes.rows {
            if let Change::Operation { record, was } = row {
                if let Some(was) = was {
                    self.places.remove(&(*was, record.id));
                }
                self.places.insert((record.place(), record.id));
            }
        }
        // What is gone leaves by itself: a list shows what is there.
        let shown: BTreeSet<_> = records(memory).map(|record| (record.place(), record.id)).collect();
        let ids: BTreeSet<OperationId> = shown.iter().map(|(_, id)| *id).collect();
        let listed: BTreeSet<_> = self.places.iter().filter(|(_, id)| ids.contains(id)).copied().collect();
        prop_assert_eq!(listed, shown);
        Ok(())
    }
}

/// The operations that are there.
fn records(memory: &Memory) -> impl Iterator<Item = hapax_machine::operation::OperationRecord> {
    let shown = |key: &OperationKey| Shown(memory).operation(key).expect("a map never fails");
    memory.operations.keys().filter_map(shown)
}

/// What applying `claim` to this very state answers.
fn apply_now(memory: &Memory, claim: &Claim) -> (Changes, Answer) {
    let clocks = memory.head.clocks;
    let stamp = hapax_machine::clock::Stamp { wall_ms: 0, lead_ms: clocks.lead_ms };
    let command = at_any_time(Command::Claim(claim.clone()));
    let (changes, mut outcomes) =
        apply_entry(memory, &entry(u64::MAX, clocks.term, stamp), &[command]).expect("a map never fails");
    (changes, outcomes.pop().expect("one outcome per command").answer)
}

fn counts(memory: &Memory) -> Result<(), TestCaseError> {
    let class =
        |wanted: &[Class]| records(memory).filter(|record| wanted.contains(&record.place().class)).count() as u64;
    let unknown = class(&[Class::Unknown, Class::Escalated]);
    let open = class(&[Class::Requested, Class::Executing, Class::NotApplied]) + unknown;
    let status = memory.statuses.get(&(credential(0).tenant, the_namespace())).copied().unwrap_or_default();
    prop_assert_eq!((status.open, status.unknown), (open, unknown));
    Ok(())
}

fn chains(memory: &Memory) -> Result<(), TestCaseError> {
    for record in records(memory) {
        let rows =
            memory.evidence.range((record.key(), record.id.birth, 0)..=(record.key(), record.id.birth, u32::MAX));
        let mut before = None;
        for (_, row) in rows {
            prop_assert_eq!(linked(before, row), row.chain);
            before = Some(row.chain);
        }
        prop_assert_eq!(before, record.chain);
    }
    Ok(())
}

fn events(memory: &Memory) -> Result<(), TestCaseError> {
    let mut last = BTreeMap::new();
    let mut before = None;
    for event in &memory.events {
        let at = (event.revision, event.part);
        prop_assert!(before < Some(at), "events are in order");
        before = Some(at);
        last.insert(event.operation, event);
    }
    for record in records(memory) {
        let Some(event) = last.get(&record.id) else {
            return Err(TestCaseError::fail(format!("nobody was told of {record:?}")));
        };
        let told = (event.state, event.attempt, event.quarantined, event.escalated, event.execution);
        let execution = record.execution.as_ref().map(|execution| execution.id);
        let escalated = record.place().class == Class::Escalated;
        prop_assert_eq!(told, (record.state(), record.attempt(), record.quarantined, escalated, execution));
    }
    Ok(())
}

/// A state without what tells entries apart.
fn without_positions(mut memory: Memory) -> Memory {
    memory.head.state_hash = [0; 32];
    memory.operations.values_mut().for_each(|record| {
        (record.modified, record.chain) = (Revision::default(), record.chain.map(|_| ContentHash([0; 32])));
    });
    memory
        .evidence
        .values_mut()
        .for_each(|row| (row.revision, row.chain) = (Revision::default(), ContentHash([0; 32])));
    memory.refusals.values_mut().for_each(|row| row.revision = Revision::default());
    memory.events.iter_mut().for_each(|event| (event.revision, event.part) = (Revision::default(), 0));
    memory
}
