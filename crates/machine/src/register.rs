//! Registration: an operation is made known, and its digest bound, before authority for it is issued.
//!
//! ```text
//! absent --register--> requested
//! ```
//!
//! | # | condition | answer |
//! |---|---|---|
//! | 0 | the namespace is absent or not theirs | `NotFound` |
//! | 1 | known, and the digest, or a fixed creation time of the key, differs | `KeyDigestMismatch` |
//! | 2 | known | where it stands |
//! | 3 | the key is older than what is remembered, see [`crate::retention`] | `KeyRetentionElapsed`, `KeyCreationTime` |
//! | 4 | as many operations are open as may be | `QuotaExceeded` |
//! | 5 | else | requested |
//!
//! Registering again is answered, not refused, also where the operation has gone on since. Resource and story are fixed by
//! whoever inserts. (DESIGN §2; REQUIREMENTS 28, 29, 66)

use crate::apply::{Step, not_about_an_operation, refused, standing};
use crate::claim::over_quota;
use crate::command::{Claim, Register};
use crate::ids::{OperationId, OperationKey};
use crate::namespace::NamespaceRecord;
use crate::operation::OperationRecord;
use crate::outcome::{Answer, Refusal};
use crate::retention;
use crate::view::View;

pub(crate) fn register<V: View>(step: &mut Step<'_, V>, command: &Register) -> Result<Answer, V::Error> {
    let caller = &command.caller;
    let policy = match step.view.namespace(&caller.tenant, &command.namespace)? {
        Some(policy) if caller.may_use(&policy.name) => policy,
        _ => return Ok(not_about_an_operation(Refusal::NotFound)),
    };
    let key = OperationKey::new(&caller.tenant, &command.internal_key);
    if let Some(mut operation) = step.load(&key)? {
        step.settle(&mut operation, &policy)?;
        let other_request = operation.digest != command.digest || operation.internal_key != command.internal_key;
        if other_request || retention::is_other_key(&policy, &operation, command.key_created_at) {
            return Ok(refused(Refusal::KeyDigestMismatch, Some(&operation), &policy));
        }
        return Ok(Answer::Registered { standing: standing(&operation, &policy, step.now()), created: false });
    }
    if let Some(reason) = retention::admit(step, &policy, command.key_created_at)? {
        return Ok(refused(reason, None, &policy));
    }
    if over_quota(step, &policy)? {
        return Ok(refused(Refusal::QuotaExceeded, None, &policy));
    }
    let mut operation = insert(step, command, &policy);
    step.put(&mut operation)?;
    Ok(Answer::Registered { standing: standing(&operation, &policy, step.now()), created: true })
}

/// A new operation that nobody executes, under a newly drawn birth. The caller writes it.
pub(crate) fn insert<V: View>(
    step: &mut Step<'_, V>,
    command: &Register,
    policy: &NamespaceRecord,
) -> OperationRecord {
    let birth = step.head.grants.birth();
    let key = OperationKey::new(&command.caller.tenant, &command.internal_key);
    OperationRecord {
        id: OperationId { slot: command.slot, hash: key.hash, birth },
        internal_key: command.internal_key,
        tenant: command.caller.tenant.clone(),
        namespace: policy.name.clone(),
        digest: command.digest,
        correlation_id: command.correlation_id.clone(),
        created_at: step.wall(),
        updated_at: step.wall(),
        modified: step.revision,
        terminal_at: None,
        quarantined: false,
        grants: 0,
        evidence: 0,
        said: None,
        chain: None,
        forgiven: None,
        refusals: 0,
        capabilities: 0,
        resource: command.resource.clone(),
        key_created_at: command.key_created_at,
        superseded_by: None,
        supersedes: None,
        closed: None,
        execution: None,
    }
}

impl Claim {
    /// What of a claim makes an operation known.
    pub(crate) fn as_register(&self) -> Register {
        Register {
            caller: self.caller.clone(),
            namespace: self.namespace.clone(),
            internal_key: self.internal_key,
            slot: self.slot,
            digest: self.digest,
            correlation_id: self.correlation_id.clone(),
            resource: self.resource.clone(),
            key_created_at: self.key_created_at,
        }
    }
}
