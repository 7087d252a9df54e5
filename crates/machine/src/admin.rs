//! Administration: tenants, namespaces and tokens. Written under a version, so that no change is lost unseen.
//!
//! | # | every write: condition | answer |
//! |---|---|---|
//! | 1 | it is about another tenant, and the caller's is not the system's | `NotYours` |
//! | 2 | what stands is not what the caller expects | `VersionMismatch` |
//! | 3 | it changes what is fixed at creation | `PolicyFixed` |
//! | 4 | else | written, with the next version |
//!
//! A namespace needs its tenant. A token's id is used once; revoking again changes nothing. Fixed at a namespace's creation:
//! scope, partitions, transport-only fields: they decide which operation a key names. All else counts from the entry that
//! writes it, and takes back nothing that a reader was told: see [`crate::namespace`] for lapses, [`crate::retention`] for what
//! is gone. A tenant's `system` is set by the bootstrap only. Invariant: nothing is removed. (DESIGN §1; REQUIREMENTS 94, 98)

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::apply::{Step, not_about_an_operation};
use crate::change::Change;
use crate::command::{Bootstrap, Caller, CreateToken, Expected, PutNamespace, PutTenant, RevokeToken};
use crate::ids::{LeaseTime, TenantId, Version};
use crate::namespace::NamespaceRecord;
use crate::outcome::{Answer, Refusal};
use crate::tenant::{TenantRecord, TokenRecord};
use crate::view::View;

/// Whether `caller` may administer what belongs to `tenant`.
pub fn may_administer<V: View>(view: &V, caller: &Caller, tenant: &TenantId) -> Result<bool, V::Error> {
    Ok(caller.tenant == *tenant || view.tenant(&caller.tenant)?.is_some_and(|record| record.system))
}

pub(crate) fn put_namespace<V: View>(step: &mut Step<'_, V>, command: &PutNamespace) -> Result<Answer, V::Error> {
    let record = command.record.clone();
    if !may_administer(&step.view, &command.caller, &record.tenant)? || !command.caller.may_use(&record.name) {
        return Ok(not_about_an_operation(Refusal::NotYours));
    }
    if step.view.tenant(&record.tenant)?.is_none() {
        return Ok(not_about_an_operation(Refusal::NotFound));
    }
    let stands = step.view.namespace(&record.tenant, &record.name)?;
    let Some(version) = next(command.expected, stands.as_ref().map(|stands| stands.version)) else {
        return Ok(not_about_an_operation(Refusal::VersionMismatch));
    };
    if stands.as_ref().is_some_and(|stands| changes_what_is_fixed(stands, &record)) {
        return Ok(not_about_an_operation(Refusal::PolicyFixed));
    }
    let record = record.written(stands.as_ref(), version, step.now());
    step.rows.push(Change::Namespace(record.clone()));
    Ok(Answer::Namespace(Box::new(record)))
}

fn changes_what_is_fixed(stands: &NamespaceRecord, record: &NamespaceRecord) -> bool {
    stands.scope != record.scope
        || stands.partitions != record.partitions
        || stands.transport_fields != record.transport_fields
}

/// The version after a write that expects `expected` where `stands` does; `None` where it expects something else.
fn next(expected: Expected, stands: Option<Version>) -> Option<Version> {
    match (expected, stands) {
        (Expected::Absent, None) => Some(Version(1)),
        (Expected::Version(expected), Some(stands)) if expected == stands => Some(Version(stands.0 + 1)),
        _ => None,
    }
}

pub(crate) fn put_tenant<V: View>(step: &mut Step<'_, V>, command: &PutTenant) -> Result<Answer, V::Error> {
    if !step.view.tenant(&command.caller.tenant)?.is_some_and(|record| record.system) {
        return Ok(not_about_an_operation(Refusal::NotYours));
    }
    let stands = step.view.tenant(&command.record.id)?;
    let Some(version) = next(command.expected, stands.as_ref().map(|stands| stands.version)) else {
        return Ok(not_about_an_operation(Refusal::VersionMismatch));
    };
    let system = stands.is_some_and(|stands| stands.system);
    // Nobody could ever enable it again.
    if command.record.system != system || (system && command.record.disabled) {
        return Ok(not_about_an_operation(Refusal::PolicyFixed));
    }
    let record = TenantRecord { version, ..command.record.clone() };
    step.rows.push(Change::Tenant(record.clone()));
    Ok(Answer::Tenant(Box::new(record)))
}

pub(crate) fn create_token<V: View>(step: &mut Step<'_, V>, command: &CreateToken) -> Result<Answer, V::Error> {
    let record = TokenRecord { created_at: step.wall(), revoked_at: None, ..command.record.clone() };
    if !may_administer(&step.view, &command.caller, &record.tenant)? {
        return Ok(not_about_an_operation(Refusal::NotYours));
    }
    if step.view.tenant(&record.tenant)?.is_none() {
        return Ok(not_about_an_operation(Refusal::NotFound));
    }
    if let Some(stands) = step.view.token(&record.id)? {
        // The same call again, after its answer was lost: the secret's hash tells that it is the same.
        let same = TokenRecord { created_at: stands.created_at, revoked_at: stands.revoked_at, ..record } == stands;
        return Ok(match same {
            true => Answer::Token(Box::new(stands)),
            false => not_about_an_operation(Refusal::VersionMismatch),
        });
    }
    step.rows.push(Change::Token(record.clone()));
    Ok(Answer::Token(Box::new(record)))
}

pub(crate) fn revoke_token<V: View>(step: &mut Step<'_, V>, command: &RevokeToken) -> Result<Answer, V::Error> {
    let Some(mut record) = step.view.token(&command.id)? else {
        return Ok(not_about_an_operation(Refusal::NotFound));
    };
    if !may_administer(&step.view, &command.caller, &record.tenant)? {
        return Ok(not_about_an_operation(Refusal::NotFound));
    }
    if record.revoked_at.is_none() {
        record.revoked_at = Some(step.wall());
        step.rows.push(Change::Token(record.clone()));
    }
    Ok(Answer::Token(Box::new(record)))
}

/// The rows that a cluster begins with at `now`: the first tenant named is the system's.
pub(crate) fn first_rows(command: &Bootstrap, now: LeaseTime) -> Vec<Change> {
    let named = (command.tenants.iter().map(|record| &record.id))
        .chain(command.namespaces.iter().map(|record| &record.tenant))
        .chain(command.tokens.iter().map(|record| &record.tenant));
    let mut tenants: Vec<TenantRecord> = Vec::new();
    for id in named {
        if tenants.iter().any(|tenant| tenant.id == *id) {
            continue;
        }
        let given = command.tenants.iter().find(|record| record.id == *id).cloned();
        let record = given.unwrap_or_else(|| TenantRecord::without_limits(id.clone()));
        tenants.push(TenantRecord { system: tenants.is_empty(), disabled: false, version: Version(1), ..record });
    }
    let namespaces = command.namespaces.iter().cloned();
    let namespaces = namespaces.map(|record| Change::Namespace(record.written(None, Version(1), now)));
    let tokens = command.tokens.iter().cloned().map(Change::Token);
    tenants.into_iter().map(Change::Tenant).chain(namespaces).chain(tokens).collect()
}
