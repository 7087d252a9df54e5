//! The report: an owner says what its execution came to.
//!
//! ```text
//! executing --completed | failed------------------> terminal
//! executing --not_applied, held by nobody else-----> not_applied
//! executing --not_applied after a takeover---------> unknown, and kept as evidence
//! executing --unknown-----------------------------> unknown, same epoch; what it knows is kept as evidence
//! ```
//!
//! | # | condition | answer |
//! |---|---|---|
//! | 0 | absent, or another tenant's | `NotFound`; else settle |
//! | 1 | the identical report of this client was accepted before | accepted, with the state now |
//! | 2 | the epoch is not the current one | `LeaseStaleEpoch` |
//! | 3 | another client holds or held it under this epoch | `NotFound` |
//! | 4 | an outcome stands: the same / another | accepted / `OutcomeConflict` |
//! | 5 | unknown already, or now ≥ deadline | `LeaseLost` |
//! | 6 | else | accepted |
//!
//! The epoch comes before the client: after a takeover by another client, the ex-owner must learn that it was fenced,
//! not that its execution never was.
//!
//! **One holder cannot speak for another:** after a takeover an earlier holder may still cause the effect, so the
//! owner's not_applied is not proof that nothing happened. (DESIGN §2; REQUIREMENTS 33, 47, 50)

use alloc::string::String;

use crate::apply::{Found, Step, not_about_an_operation};
use crate::change::Change;
use crate::command::{Report, ResultData};
use crate::evidence::{Word, keep};
use crate::ids::{ContentHash, WallTime};
use crate::operation::{
    AcceptedReport, ClaimedOutcome, Definite, OperationRecord, OutcomeRecord, State, become_unknown, conclude,
};
use crate::outcome::{Answer, Refusal};
use crate::state_hash::Canon;
use crate::view::View;

pub(crate) fn report<V: View>(step: &mut Step<'_, V>, command: &Report) -> Result<Answer, V::Error> {
    let Some(mut found) = step.find(&command.caller, &command.execution_id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    let now = step.now();
    let this = AcceptedReport { lease_epoch: command.lease_epoch, content: content_hash(command) };
    let execution = found.execution();
    let theirs = execution.client == command.caller.client;
    if theirs && execution.report == Some(this) {
        return Ok(found.accepted(now));
    }
    if found.past.is_some() || command.lease_epoch != execution.lease_epoch {
        return Ok(found.refused(Refusal::LeaseStaleEpoch));
    }
    if !theirs {
        return Ok(not_about_an_operation(Refusal::NotFound));
    }
    if let Some(stands) = &execution.outcome {
        let same = command.outcome.is_some_and(|outcome| agrees(stands, outcome, &command.data));
        return Ok(if same { found.accepted(now) } else { found.refused(Refusal::OutcomeConflict) });
    }
    if execution.state != State::Executing || execution.lapsed(now) {
        return Ok(found.refused(Refusal::LeaseLost));
    }
    accept(step, command, &mut found, this)?;
    Ok(found.accepted(now))
}

fn accept<V: View>(
    step: &mut Step<'_, V>,
    command: &Report,
    found: &mut Found,
    this: AcceptedReport,
) -> Result<(), V::Error> {
    let wall = step.wall();
    found.newest_mut().report = Some(this);
    match command.outcome {
        Some(Definite::NotApplied) if !found.newest().sole_holder => {
            let word = Word::reported(command, wall, found);
            become_unknown(found.newest_mut(), wall);
            keep(step, &mut found.operation, word);
        }
        Some(outcome) => settle_outcome(step, &mut found.operation, outcome, &command.data),
        None => {
            let knows = command.data.external_id.is_some() || command.data.reason.is_some();
            let word = knows.then(|| Word::reported(command, wall, found));
            become_unknown(found.newest_mut(), wall);
            // What it knows of the effect is where its reconciler begins. (REQUIREMENTS 66)
            if let Some(word) = word {
                keep(step, &mut found.operation, word);
            }
        }
    }
    step.put(&mut found.operation)
}

/// Gives the operation's execution its outcome and stores an inline result of a terminal one.
pub(crate) fn settle_outcome<V: View>(
    step: &mut Step<'_, V>,
    operation: &mut OperationRecord,
    outcome: Definite,
    data: &ResultData,
) {
    let claimed = operation.execution.as_ref().and_then(|execution| execution.claimed.as_ref());
    if claimed.is_some_and(|claimed| !claimed.agrees(outcome, data.external_id.as_ref())) {
        // Somebody who held it says otherwise: what is decided now stands, and people look before anything else runs.
        operation.quarantined = true;
    }
    conclude(operation, outcome_record(outcome, data, step.wall()));
    if let (true, Some(body)) = (operation.state().is_terminal(), &data.result) {
        step.rows.push(Change::Body(operation.key(), operation.id.birth, body.clone()));
    }
}

fn outcome_record(outcome: Definite, data: &ResultData, at: WallTime) -> OutcomeRecord {
    OutcomeRecord {
        outcome,
        status_code: data.status_code,
        schema_version: data.schema_version.clone(),
        has_result: data.result.is_some() && State::from(outcome).is_terminal(),
        result_ref: data.result_ref.clone(),
        result_digest: data.result_digest,
        external_id: data.external_id.clone(),
        reason: data.reason.clone(),
        at,
    }
}

/// Whether what is said now is what stands: the same outcome, and no other provider's id.
/// A result may be described in more or fewer words; two ids are two effects.
pub(crate) fn agrees(stands: &OutcomeRecord, outcome: Definite, data: &ResultData) -> bool {
    stands.outcome == outcome && is_same_id(stands.external_id.as_ref(), data.external_id.as_ref())
}

fn is_same_id(a: Option<&String>, b: Option<&String>) -> bool {
    a.is_none() || b.is_none() || a == b
}

impl ClaimedOutcome {
    /// Whether what is said now is what was claimed.
    pub(crate) fn agrees(&self, outcome: Definite, external_id: Option<&String>) -> bool {
        self.outcome == outcome && is_same_id(self.external_id.as_ref(), external_id)
    }
}

fn content_hash(command: &Report) -> ContentHash {
    let mut canon = Canon::new(b"hapax/report/1");
    canon.optional_number(command.outcome.map(|outcome| outcome as u64));
    canon.result_data(&command.data);
    ContentHash(canon.finish())
}
