//! Resolution: a reconciler or an operator says, with proof, what an unknown execution came to.
//!
//! ```text
//! unknown --completed | failed | not_applied--> that
//! ```
//!
//! | # | condition | answer |
//! |---|---|---|
//! | 0 | absent, or another tenant's | `NotFound`; else settle |
//! | 1 | an outcome stands: the same / a contradiction | accepted, its proof kept / kept unless it is the last said, quarantined, `OutcomeConflict` |
//! | 2 | the epoch is not the current one | `LeaseStaleEpoch` |
//! | 3 | still executing | `OperationExecuting` |
//! | 4 | unknown | the outcome stands; the proof is kept |
//!
//! A resolution's not_applied stands even where several held the execution: it comes with proof about the effect,
//! not with one holder's word. (REQUIREMENTS 60, 130, 131)

use crate::apply::{Step, not_about_an_operation};
use crate::command::Resolve;
use crate::evidence::{Word, agree, contradict, keep};
use crate::operation::State;
use crate::outcome::{Answer, Refusal};
use crate::report::{agrees, settle_outcome};
use crate::view::View;

pub(crate) fn resolve<V: View>(step: &mut Step<'_, V>, command: &Resolve) -> Result<Answer, V::Error> {
    let Some(mut found) = step.find(&command.caller, &command.execution_id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    let now = step.now();
    let word = Word::resolved(command, step.wall(), &found);
    if let Some(stands) = &found.execution().outcome {
        if agrees(stands, command.outcome, &command.data) {
            return agree(step, &mut found, word);
        }
        return contradict(step, &mut found, word);
    }
    if found.past.is_some() || command.lease_epoch != found.newest().lease_epoch {
        return Ok(found.refused(Refusal::LeaseStaleEpoch));
    }
    if found.newest().state != State::Unknown {
        return Ok(found.refused(Refusal::OperationExecuting));
    }
    keep(step, &mut found.operation, word);
    settle_outcome(step, &mut found.operation, command.outcome, &command.data);
    step.put(&mut found.operation)?;
    Ok(found.accepted(now))
}
