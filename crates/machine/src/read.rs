//! Reads: an operation as it is now, settled, without changing anything.
//! A lapsed execution reads as unknown, and shows no lease epoch until one is drawn.

use crate::command::Caller;
use crate::ids::{ExecutionId, LeaseEpoch, LeaseTime, OperationId, OperationKey, TenantTag};
use crate::namespace::{NamespaceRecord, OnLapse};
use crate::operation::{Body, ExecutionRecord, OperationRecord, State};
use crate::view::View;

/// An operation as a reader may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The stored record.
    pub record: OperationRecord,
    /// Its namespace's policy.
    pub policy: NamespaceRecord,
    /// The settled state.
    pub state: State,
    /// The current epoch; `None` where a lapse was not yet applied, because it will draw another one.
    pub lease_epoch: Option<LeaseEpoch>,
    /// Milliseconds left on a running lease.
    pub lease_remaining_ms: Option<u64>,
    /// The inline result.
    pub result: Option<Body>,
}

/// Reads an operation by id; `None` where it is absent or not the caller's.
pub fn by_id<V: View>(view: &V, caller: &Caller, id: &OperationId) -> Result<Option<Reading>, V::Error> {
    let found = view.operation(&id.key(&caller.tenant))?;
    visible(view, caller, found.filter(|record| record.id == *id))
}

/// Reads the operation in a row; `None` where it is absent or not the caller's.
pub fn by_key<V: View>(view: &V, caller: &Caller, key: &OperationKey) -> Result<Option<Reading>, V::Error> {
    let found = view.operation(key)?;
    visible(view, caller, found)
}

/// Reads the operation of an execution; `None` where it is absent or not the caller's.
pub fn by_execution<V: View>(view: &V, caller: &Caller, id: &ExecutionId) -> Result<Option<Reading>, V::Error> {
    match view.execution(TenantTag::of(&caller.tenant), id)? {
        Some(ExecutionRecord { operation, birth, .. }) => {
            let found = view.operation(&operation)?;
            visible(view, caller, found.filter(|record| record.id.birth == birth))
        }
        None => Ok(None),
    }
}

fn visible<V: View>(view: &V, caller: &Caller, found: Option<OperationRecord>) -> Result<Option<Reading>, V::Error> {
    let Some(record) = found.filter(|record| record.tenant == caller.tenant && caller.may_use(&record.namespace))
    else {
        return Ok(None);
    };
    let Some(policy) = view.namespace(&record.tenant, &record.namespace)? else {
        return Ok(None);
    };
    let has_result = record.execution.outcome.as_ref().is_some_and(|outcome| outcome.has_result);
    let result = if has_result { view.body(&record.key(), record.id.birth)? } else { None };
    Ok(Some(reading(record, policy, result, view.head().clocks.lease_time)))
}

fn reading(record: OperationRecord, policy: NamespaceRecord, result: Option<Body>, now: LeaseTime) -> Reading {
    let lapsed = record.execution.lapsed(now);
    let state = match (lapsed, policy.on_lapse) {
        (true, OnLapse::Unknown) => State::Unknown,
        _ => record.state(),
    };
    let running = state == State::Executing && !lapsed;
    Reading {
        state,
        lease_epoch: (!lapsed).then_some(record.execution.lease_epoch),
        lease_remaining_ms: running.then(|| record.execution.remaining_ms(now)),
        result,
        policy,
        record,
    }
}
