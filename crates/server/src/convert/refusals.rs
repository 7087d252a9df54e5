//! Refusals of the core as problems: one code for each.

use hapax_api::{Code, Problem};
use hapax_machine::outcome::{Refusal as Core, Refused};

use super::{state, style};
use crate::problem::Refusal;

/// The code of a reason, and what is told besides.
pub(crate) fn code_of(reason: Core) -> (Code, Option<String>) {
    let code = match reason {
        Core::NotFound => Code::NotFound,
        Core::ClaimIdReused => Code::ClaimIdReused,
        Core::LeaseLost => Code::LeaseLost,
        Core::LeaseStaleEpoch => Code::LeaseStaleEpoch,
        Core::KeyDigestMismatch => Code::KeyDigestMismatch,
        Core::OperationQuarantined => Code::OperationQuarantined,
        Core::OperationExecuting => Code::OperationExecuting,
        Core::OutcomeUnknown => Code::OperationOutcomeUnknown,
        Core::AttemptMismatch { due } => return (Code::AttemptMismatch, Some(format!("attempt {due} is due"))),
        Core::OutcomeConflict => Code::OutcomeConflict,
        Core::WallStep | Core::AlreadyBootstrapped | Core::VersionMismatch => Code::PreconditionFailed,
        Core::DeliveryMismatch => Code::DeliveryMismatch,
        Core::CapabilityAlreadyConsumed => Code::CapabilityAlreadyConsumed,
        Core::CapabilityRevoked => Code::CapabilityRevoked,
        Core::CapabilityExpired => Code::CapabilityExpired,
        Core::CapabilityInvalid => Code::CapabilityInvalid,
        Core::CapabilityBindingMismatch => Code::CapabilityBindingMismatch,
        Core::CapabilityRequired => Code::CapabilityRequired,
        Core::EpochStale => Code::EpochStale,
        Core::EpochUnknown => Code::EpochUnknown,
        Core::RegisterStands { value } => {
            return (Code::PreconditionFailed, Some(format!("the register stands at {value}")));
        }
        Core::OperationCompleted => Code::OperationCompleted,
        Core::OperationFailed => Code::OperationFailed,
        Core::OperationState { state: stands } => {
            return (Code::OperationState, Some(format!("the operation is {}", state(stands))));
        }
        Core::KeyRetentionElapsed => Code::KeyRetentionElapsed,
        Core::KeyCreationTime => {
            let detail = "the namespace needs the time when the key was made, and not one to come";
            return (Code::RequestInvalid, Some(detail.to_owned()));
        }
        Core::DecisionReused => Code::DecisionReused,
        Core::QuotaExceeded => Code::QuotaExceeded,
        Core::PolicyFixed => Code::PolicyFixed,
        Core::NotASuccessor => {
            let detail = "the operation named must be younger, in the same namespace, and take no other one's place";
            return (Code::PreconditionFailed, Some(detail.to_owned()));
        }
        Core::NotYours => Code::AuthForbidden,
    };
    (code, None)
}

/// The problem of a refusal.
pub(crate) fn refused(refused: &Refused) -> Refusal {
    let (code, detail) = code_of(refused.reason);
    if code == Code::NotFound {
        // Identical for absent and for another's: no id, no detail.
        return Refusal::new(code);
    }
    let mut problem = Problem::styled(code, style(refused.conflict_style));
    if let Some(detail) = detail {
        problem = problem.detail(detail);
    }
    if refused.reason == Core::KeyCreationTime {
        problem.pointer = Some("/key_created_at".to_owned());
    }
    if let Some(id) = refused.operation_id.and_then(|id| id.to_string().parse().ok()) {
        problem = problem.operation(id);
    }
    problem.into()
}
