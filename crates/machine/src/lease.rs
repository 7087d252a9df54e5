//! The lease: an owner extends it, time ends it.
//!
//! ```text
//! executing --renew--> executing, deadline := max(old, now + lease_ms + 1), same epoch
//! executing --lapse--> unknown, new epoch          (on_lapse = unknown)
//! ```
//!
//! | # | renew: condition | answer |
//! |---|---|---|
//! | 0 | absent, or another tenant's | `NotFound`; else settle |
//! | 1 | the epoch is not the current one | `LeaseStaleEpoch` |
//! | 2 | another client holds it | `NotFound` |
//! | 3 | not executing, or now ≥ deadline | `LeaseLost` |
//! | 4 | else | renewed |
//!
//! The epoch comes before the client: after a takeover by another client, the ex-owner must learn that it was fenced,
//! not that its execution never was.
//!
//! A lapse names the epoch and the deadline that the leader saw: a renewal or a takeover in between makes it moot, so a
//! deposed leader's sweep can never end a live lease. Invariant: a deadline only moves forward under one epoch.
//!
//! **Why one millisecond more:** stamps are whole milliseconds, rounded down. Of a grant stamped 10 at 10.9 and a lapse
//! stamped 12 at 12.0, the stamps say 2 ms and the owner had 1.1: up to a millisecond of a live lease would be cut off. A
//! deadline is one millisecond further on, so an interval that is too long by less than that never ends a lease early.
//! The owner is not told of it, because by its clock it may not have that millisecond.

use crate::apply::{Step, not_about_an_operation};
use crate::command::{Lapse, Renew};
use crate::ids::{LeaseTime, OperationKey};
use crate::operation::{OperationRecord, State};
use crate::outcome::{Answer, Lease, Refusal};
use crate::view::View;

/// What a deadline is later than its lease asks for, against stamps that are rounded down to whole milliseconds.
pub(crate) const ROUNDING_MS: u64 = 1;

/// When a lease of `lease_ms` ends that is granted or renewed at `now`.
pub(crate) fn deadline(now: LeaseTime, lease_ms: u64) -> LeaseTime {
    now.after(lease_ms).after(ROUNDING_MS)
}

pub(crate) fn renew<V: View>(step: &mut Step<'_, V>, command: &Renew) -> Result<Answer, V::Error> {
    let Some(mut found) = step.find(&command.caller, &command.execution_id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    if found.past.is_some() || command.lease_epoch != found.newest().lease_epoch {
        return Ok(found.refused(Refusal::LeaseStaleEpoch));
    }
    if found.newest().client != command.caller.client {
        return Ok(not_about_an_operation(Refusal::NotFound));
    }
    let now = step.now();
    let execution = found.newest_mut();
    if execution.state != State::Executing || execution.lapsed(now) {
        return Ok(found.refused(Refusal::LeaseLost));
    }
    let (before, renewed) = (execution.deadline, execution.renewed);
    execution.deadline = before.max(deadline(now, command.lease_ms));
    execution.renewed = true;
    let lease = Lease { lease_epoch: execution.lease_epoch, remaining_ms: execution.remaining_ms(now) };
    // A second copy at the same instant, or a shorter lease than what is left, extends nothing and so changes nothing.
    if !renewed || execution.deadline != before {
        step.put(&mut found.operation)?;
    }
    Ok(Answer::Renewed(lease))
}

pub(crate) fn lapse<V: View>(step: &mut Step<'_, V>, command: &Lapse) -> Result<Answer, V::Error> {
    let found = step.load(&command.operation)?;
    let seen = found.as_ref().and_then(|operation| operation.execution.as_ref()).is_some_and(|execution| {
        execution.lease_epoch == command.lease_epoch
            && execution.deadline == command.deadline
            && execution.lapsed(step.now())
    });
    match found {
        Some(operation) if seen => settle_found(step, operation),
        _ => Ok(Answer::Lapsed { changed: false }),
    }
}

/// Settles an operation because somebody asks, whatever was seen of it: settling depends on the state alone.
pub(crate) fn settle_now<V: View>(step: &mut Step<'_, V>, key: &OperationKey) -> Result<Answer, V::Error> {
    match step.load(key)? {
        Some(operation) => settle_found(step, operation),
        None => Ok(Answer::Lapsed { changed: false }),
    }
}

fn settle_found<V: View>(step: &mut Step<'_, V>, mut operation: OperationRecord) -> Result<Answer, V::Error> {
    let before = operation.state();
    if let Some(policy) = step.view.namespace(&operation.tenant, &operation.namespace)? {
        step.settle(&mut operation, &policy)?;
    }
    Ok(Answer::Lapsed { changed: operation.state() != before })
}
