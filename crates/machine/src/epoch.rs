//! Authority epochs: named registers that only grow. Bumping one fences everything that is bound to a lower value.
//!
//! ```text
//! 0 --bump(expected = 0)--> v1 --bump(expected = v1)--> v2 ...      v1 < v2, drawn from the grant counter
//! ```
//!
//! | # | bump: condition | answer |
//! |---|---|---|
//! | 1 | the register does not stand at `expected` | `RegisterStands`, with the value that does |
//! | 2 | else | the new value |
//!
//! | what is bound | to a lower value than the register | to a higher one |
//! |---|---|---|
//! | a presented capability or claim | `EpochStale` | `EpochUnknown`: it was never handed out |
//! | an open execution | settling makes it unknown, in every read and before every command | cannot be |
//!
//! Invariants: a value is never handed out twice and only grows; from the entry of a bump on, nothing that is bound to a lower
//! value is accepted. (DESIGN §2)

use alloc::vec::Vec;

use crate::apply::{Step, not_about_an_operation};
use crate::change::Change;
use crate::command::BumpEpoch;
use crate::ids::{AuthorityEpoch, ClientId, EpochScope, TenantId, WallTime};
use crate::outcome::{Answer, Refusal};
use crate::view::View;

/// A value of a register that something is bound to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// The register.
    pub scope: EpochScope,
    /// The value.
    pub value: AuthorityEpoch,
}

/// A register that was bumped at least once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochRecord {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub scope: EpochScope,
    /// Where it stands.
    pub value: AuthorityEpoch,
    /// Who bumped it last.
    pub client: ClientId,
    /// When, on the replicated wall.
    pub at: WallTime,
}

/// How a binding compares with its register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The register stands there.
    Current,
    /// The register was bumped past it.
    Stale,
    /// The register never stood there.
    Unknown,
}

pub(crate) fn standing<V: View>(view: &V, tenant: &TenantId, binding: &Binding) -> Result<Standing, V::Error> {
    let register = value(view, tenant, &binding.scope)?;
    Ok(match binding.value.cmp(&register) {
        core::cmp::Ordering::Equal => Standing::Current,
        core::cmp::Ordering::Less => Standing::Stale,
        core::cmp::Ordering::Greater => Standing::Unknown,
    })
}

/// Where a register stands: 0 where it was never bumped.
pub(crate) fn value<V: View>(view: &V, tenant: &TenantId, scope: &EpochScope) -> Result<AuthorityEpoch, V::Error> {
    Ok(view.epoch(tenant, scope)?.map_or(AuthorityEpoch(0), |record| record.value))
}

/// Whether any of the registers was bumped past what is bound to it.
pub(crate) fn fenced<V: View>(view: &V, tenant: &TenantId, authority: &[Binding]) -> Result<bool, V::Error> {
    for binding in authority {
        if standing(view, tenant, binding)? == Standing::Stale {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn bump<V: View>(step: &mut Step<'_, V>, command: &BumpEpoch) -> Result<Answer, V::Error> {
    let caller = &command.caller;
    let stands = value(&step.view, &caller.tenant, &command.scope)?;
    if stands != command.expected {
        return Ok(not_about_an_operation(Refusal::RegisterStands { value: stands }));
    }
    let value = step.head.grants.authority_epoch();
    step.rows.push(Change::Epoch(EpochRecord {
        tenant: caller.tenant.clone(),
        scope: command.scope.clone(),
        value,
        client: caller.client.clone(),
        at: step.wall(),
    }));
    Ok(Answer::Epoch(value))
}

/// Both bindings, once each: what an execution that was opened under them is bound to.
pub(crate) fn bindings(own: Option<&Binding>, capability: Option<&Binding>) -> Vec<Binding> {
    let mut all: Vec<Binding> = own.into_iter().chain(capability).cloned().collect();
    all.dedup();
    all
}
