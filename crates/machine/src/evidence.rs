//! Late evidence, and the append-only record of what was said against or beside the standing state, and of overrides.
//! Refusals have a record of their own.
//!
//! ```text
//! unknown --completed | failed----------------> terminal
//! unknown --not_applied, held by nobody else--> not_applied
//! else: kept; the state does not move
//! ```
//!
//! | # | condition | answer |
//! |---|---|---|
//! | 0 | absent, not theirs, or the claim was not granted on this execution | `NotFound`; else settle |
//! | 1 | an outcome stands: the same / a contradiction | accepted, its proof kept / kept, quarantined, `OutcomeConflict` |
//! | 2 | still executing | kept, accepted with the state as it is |
//! | 3 | unknown, not_applied, but others held it too | kept, accepted, still unknown |
//! | 4 | unknown | kept, and the outcome stands |
//!
//! **An effect that was claimed is not forgotten:** completed or failed, said while no outcome could stand, is remembered with the
//! execution. An outcome that contradicts it later stands, and quarantines; so does another such word. Not_applied claims nothing:
//! it speaks for its holder only.
//!
//! **A duplicate changes nothing:** where only keeping is left to do, and the very same was the last thing kept, it gets
//! the same answer and writes nothing. The same words in another state are no duplicate where they now decide or
//! contradict. (REQUIREMENTS 49)
//!
//! Never gated by a lease or an authority epoch: the ex-owner regains nothing, it only tells. (REQUIREMENTS 51; seed 000)
//! Invariants: a row of evidence is never changed, and not removed before its operation; each carries the hash of itself and of
//! the row before it, and the operation carries the last one: a row that is missing or was altered shows, see [`linked`]. What
//! moved the state, stopped claims or was done by an operator is always kept; of what changed nothing, only so many rows are
//! kept, and the rest is counted: nobody talks a proof or an override out of the record. (REQUIREMENTS 98)

use alloc::string::String;

use crate::apply::{Found, Step, not_about_an_operation};
use crate::change::Change;
use crate::command::{Caller, Evidence, Report, Resolve, ResultData};
use crate::ids::{ClaimId, ClientId, ContentHash, ExecutionId, LeaseEpoch, OperationId, Revision, WallTime};
use crate::limits::EVIDENCE_PER_OPERATION;
use crate::operation::{ClaimedOutcome, Definite, Execution, OperationRecord, State};
use crate::outcome::{Answer, Refusal};
use crate::report::{agrees, settle_outcome};
use crate::state_hash::Canon;
use crate::view::View;

/// In which call something was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An owner's report that could not stand alone.
    Report,
    /// An ex-owner's evidence.
    Evidence,
    /// A resolution.
    Resolve,
    /// An operator forced a lease to end.
    Fence,
    /// It was made to wait for people.
    Escalate,
    /// It no longer waits for people.
    Deescalate,
    /// An operator stopped claims.
    Quarantine,
    /// An operator let claims go on.
    Release,
    /// Another operation took its place.
    Supersede,
    /// It was ended without an effect.
    Close,
}

/// One thing that somebody said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceRecord {
    /// In which call.
    pub source: Source,
    /// Which client.
    pub client: ClientId,
    /// About which execution, where there was one.
    pub execution: Option<ExecutionId>,
    /// Under which claim, for an ex-owner.
    pub claim_id: Option<ClaimId>,
    /// Under which epoch, for an owner or a reconciler.
    pub lease_epoch: Option<LeaseEpoch>,
    /// What it said the outcome was, if it did.
    pub outcome: Option<Definite>,
    /// The provider's id.
    pub external_id: Option<String>,
    /// The operation that takes its place, where that was said.
    pub by: Option<OperationId>,
    /// Why.
    pub reason: Option<String>,
    /// What shows it.
    pub proof: Option<String>,
    /// The state it met.
    pub met: State,
    /// When, on the replicated wall.
    pub at: WallTime,
    /// At which revision.
    pub revision: Revision,
    /// The hash of all this and of the row before it.
    pub chain: ContentHash,
}

impl EvidenceRecord {
    fn new(
        source: Source,
        caller: &Caller,
        outcome: Option<Definite>,
        data: &ResultData,
        at: WallTime,
        operation: &OperationRecord,
    ) -> Self {
        Self {
            source,
            client: caller.client.clone(),
            execution: operation.execution.as_ref().map(|execution| execution.id),
            claim_id: None,
            lease_epoch: None,
            outcome,
            external_id: data.external_id.clone(),
            by: None,
            reason: data.reason.clone(),
            proof: None,
            met: operation.state(),
            at,
            revision: operation.modified,
            chain: ContentHash([0; 32]),
        }
    }
}

/// Something said that may have to be kept, and the hash of all of it.
pub(crate) struct Word {
    record: EvidenceRecord,
    content: ContentHash,
}

impl Word {
    /// An owner's word that cannot stand alone: of not_applied, or of what it knows of an unknown outcome.
    pub(crate) fn reported(command: &Report, at: WallTime, found: &Found) -> Self {
        let (caller, data, operation) = (&command.caller, &command.data, &found.operation);
        let record = EvidenceRecord {
            lease_epoch: Some(command.lease_epoch),
            ..EvidenceRecord::new(Source::Report, caller, command.outcome, data, at, operation)
        };
        Self::new(record, data)
    }

    /// A resolution.
    pub(crate) fn resolved(command: &Resolve, at: WallTime, found: &Found) -> Self {
        let (caller, data) = (&command.caller, &command.data);
        let record = EvidenceRecord {
            execution: Some(command.execution_id),
            lease_epoch: Some(command.lease_epoch),
            proof: Some(command.proof.clone()),
            ..EvidenceRecord::new(Source::Resolve, caller, Some(command.outcome), data, at, &found.operation)
        };
        Self::new(record, data)
    }

    fn late(command: &Evidence, at: WallTime, found: &Found) -> Self {
        let (caller, data) = (&command.caller, &command.data);
        let record = EvidenceRecord {
            execution: Some(command.execution_id),
            claim_id: Some(command.claim_id),
            proof: command.proof.clone(),
            ..EvidenceRecord::new(Source::Evidence, caller, Some(command.outcome), data, at, &found.operation)
        };
        Self::new(record, data)
    }

    /// The same, said under another epoch than the one that stands.
    pub(crate) fn under(self, lease_epoch: LeaseEpoch) -> Self {
        let record = EvidenceRecord { lease_epoch: Some(lease_epoch), ..self.record };
        let data = ResultData { reason: record.reason.clone(), ..ResultData::default() };
        Self::new(record, &data)
    }

    /// The same, about an operation that takes another's place.
    pub(crate) fn naming(mut self, by: OperationId) -> Self {
        self.record.by = Some(by);
        let mut canon = Canon::new(b"hapax/said/by/1");
        canon.bytes(&self.content.0);
        canon.operation_id(&by);
        self.content = ContentHash(canon.finish());
        self
    }

    /// An override: who, why, and what shows it.
    pub(crate) fn overriding(
        source: Source,
        caller: &Caller,
        (reason, proof): (&str, Option<&String>),
        at: WallTime,
        operation: &OperationRecord,
    ) -> Self {
        let data = ResultData { reason: Some(String::from(reason)), ..ResultData::default() };
        let record = EvidenceRecord {
            lease_epoch: operation.execution.as_ref().map(|execution| execution.lease_epoch),
            proof: proof.cloned(),
            ..EvidenceRecord::new(source, caller, None, &data, at, operation)
        };
        Self::new(record, &data)
    }

    /// What it met and when is not part of what was said.
    fn new(record: EvidenceRecord, data: &ResultData) -> Self {
        let mut canon = Canon::new(b"hapax/said/1");
        canon.number(record.source as u64);
        canon.optional(record.execution.as_ref(), Canon::execution_id);
        canon.optional(record.claim_id.as_ref(), |canon, id| canon.bytes(&id.0));
        canon.optional_number(record.lease_epoch.map(|epoch| epoch.0));
        canon.text(record.client.as_str());
        canon.optional_number(record.outcome.map(|outcome| outcome as u64));
        canon.result_data(data);
        canon.optional_text(record.proof.as_deref());
        Self { record, content: ContentHash(canon.finish()) }
    }

    /// Whether the very same was the last thing kept.
    pub(crate) fn is_duplicate(&self, operation: &OperationRecord) -> bool {
        operation.said == Some(self.content)
    }
}

pub(crate) fn evidence<V: View>(step: &mut Step<'_, V>, command: &Evidence) -> Result<Answer, V::Error> {
    let found = step.find(&command.caller, &command.execution_id)?;
    let mut found = match found {
        Some(found) if was_granted(step, &found, command)? => found,
        _ => return Ok(not_about_an_operation(Refusal::NotFound)),
    };
    let now = step.now();
    let word = Word::late(command, step.wall(), &found);
    if let Some(stands) = &found.execution().outcome {
        if agrees(stands, command.outcome, &command.data) {
            return agree(step, &mut found, word);
        }
        return contradict(step, &mut found, word);
    }
    let stands_alone = command.outcome != Definite::NotApplied || found.newest().sole_holder;
    let decides = found.past.is_none() && found.newest().state == State::Unknown && stands_alone;
    if word.is_duplicate(&found.operation) && !decides {
        return Ok(found.accepted(now));
    }
    // Kept even where it decides: the record is where its proof can be read later.
    if decides {
        keep(step, &mut found.operation, word);
        settle_outcome(step, &mut found.operation, command.outcome, &command.data);
    } else {
        let contradicts = claim(found.newest_mut(), command);
        if contradicts && !found.operation.quarantined {
            found.operation.quarantined = true;
            keep(step, &mut found.operation, word);
        } else {
            note(step, &mut found.operation, word);
        }
    }
    step.put(&mut found.operation)?;
    Ok(found.accepted(now))
}

/// Remembers an effect that is claimed while no outcome can stand; whether it contradicts one that was claimed before.
fn claim(execution: &mut Execution, command: &Evidence) -> bool {
    if command.outcome == Definite::NotApplied {
        return false;
    }
    if let Some(claimed) = &execution.claimed {
        return !claimed.agrees(command.outcome, command.data.external_id.as_ref());
    }
    let external_id = command.data.external_id.clone();
    execution.claimed = Some(ClaimedOutcome { outcome: command.outcome, external_id });
    false
}

/// Keeps the proof of what stands already, once. (REQUIREMENTS 130)
pub(crate) fn agree<V: View>(step: &mut Step<'_, V>, found: &mut Found, word: Word) -> Result<Answer, V::Error> {
    if word.record.proof.is_some() && !word.is_duplicate(&found.operation) {
        note(step, &mut found.operation, word);
        step.put(&mut found.operation)?;
    }
    Ok(found.accepted(step.now()))
}

/// Keeps a contradiction and stops claims: the first outcome stands.
pub(crate) fn contradict<V: View>(step: &mut Step<'_, V>, found: &mut Found, word: Word) -> Result<Answer, V::Error> {
    if found.operation.forgiven == Some(word.content) {
        // An operator looked at this very word and released: a later copy of it is no news.
        return Ok(found.refused(Refusal::OutcomeConflict));
    }
    // Kept before the outcome stood it contradicted nothing yet: only under quarantine is it a duplicate.
    match found.operation.quarantined {
        true if word.is_duplicate(&found.operation) => return Ok(found.refused(Refusal::OutcomeConflict)),
        true => note(step, &mut found.operation, word),
        false => {
            found.operation.quarantined = true;
            keep(step, &mut found.operation, word);
        }
    }
    step.put(&mut found.operation)?;
    Ok(found.refused(Refusal::OutcomeConflict))
}

/// Appends to the record what acted on the operation.
pub(crate) fn keep<V: View>(step: &mut Step<'_, V>, operation: &mut OperationRecord, word: Word) {
    let mut kept = EvidenceRecord { revision: step.revision, ..word.record };
    kept.chain = linked(operation.chain, &kept);
    operation.chain = Some(kept.chain);
    step.rows.push(Change::Evidence(operation.key(), operation.id.birth, operation.evidence, kept));
    count(operation, word.content);
}

/// Appends to the record what changed nothing else; counts, but does not store, what exceeds the limit.
fn note<V: View>(step: &mut Step<'_, V>, operation: &mut OperationRecord, word: Word) {
    if operation.evidence < EVIDENCE_PER_OPERATION {
        keep(step, operation, word);
    } else {
        count(operation, word.content);
    }
}

fn count(operation: &mut OperationRecord, content: ContentHash) {
    operation.evidence = operation.evidence.saturating_add(1);
    operation.said = Some(content);
}

/// The link of a row to the one before it, whose link is `before`: over everything that the row holds but its own link.
///
/// Rows in the order of their numbers, the first one linked to nothing, lead to the link that the operation carries.
pub fn linked(before: Option<ContentHash>, row: &EvidenceRecord) -> ContentHash {
    let mut canon = Canon::new(b"hapax/evidence/chain/1");
    canon.optional(before.as_ref(), |canon, before| canon.bytes(&before.0));
    canon.evidence(row);
    ContentHash(canon.finish())
}

/// Whether the caller's claim was granted on the execution it speaks about.
fn was_granted<V: View>(step: &Step<'_, V>, found: &Found, command: &Evidence) -> Result<bool, V::Error> {
    let execution = found.execution();
    if execution.claim_id == command.claim_id {
        return Ok(execution.client == command.caller.client);
    }
    let operation = &found.operation;
    let row = step.view.grant(&operation.key(), operation.id.birth, &command.claim_id)?;
    Ok(row.is_some_and(|row| row.execution == command.execution_id && row.client == command.caller.client))
}
