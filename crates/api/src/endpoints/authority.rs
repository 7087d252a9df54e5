//! Authority: capabilities and authority epochs.

use super::{Answer, BUMP, CAPABILITIES, CAPABILITY, EPOCH, Endpoint, ISSUE, LOCAL, OPERATION_ID, Parameter, REVOKE};
use crate::codes::Code;

const CAPABILITY_ID: Parameter = Parameter::path("capability_id", "The capability.");
const SCOPE: Parameter = Parameter::path("scope", "The register.");

const ISSUED: &[Answer] = &[
    Answer::new(201, "The capability is issued now.", "CapabilityView"),
    Answer::new(200, "This decision issued it before; it is shown as it stands.", "CapabilityView"),
];

pub(super) const TABLE: &[Endpoint] = &[
    Endpoint::post(ISSUE, "issue_capability", "Issue single-use authority for one attempt at an operation.")
        .roles(&["issue"])
        .body("IssueRequest")
        .parameters(&[OPERATION_ID])
        .answers(ISSUED)
        .problems(&[
            Code::NotFound,
            Code::QuotaExceeded,
            Code::DecisionReused,
            Code::CapabilityExpired,
            Code::EpochStale,
            Code::EpochUnknown,
            Code::OperationCompleted,
            Code::OperationFailed,
            Code::AttemptMismatch,
        ]),
    Endpoint::post(
        CAPABILITIES,
        "issue_bounded_capability",
        "Issue authority for several operations of one resource, each use electing another one.",
    )
    .roles(&["issue"])
    .body("IssueBoundedRequest")
    .answers(ISSUED)
    .problems(&[
        Code::NotFound,
        Code::PolicyFixed,
        Code::DecisionReused,
        Code::CapabilityExpired,
        Code::EpochStale,
        Code::EpochUnknown,
    ]),
    Endpoint::get(CAPABILITY, "get_capability", "A capability as it stands.")
        .roles(&["issue", "read", "operate"])
        .parameters(&[CAPABILITY_ID, LOCAL])
        .answers(&[Answer::new(200, "The capability.", "CapabilityView")])
        .problems(&[Code::NotFound]),
    Endpoint::post(REVOKE, "revoke_capability", "Take a capability back that is not spent.")
        .roles(&["issue", "operate"])
        .body("RevokeRequest")
        .parameters(&[CAPABILITY_ID])
        .answers(&[Answer::new(200, "It is revoked, now or before.", "CapabilityView")])
        .problems(&[Code::NotFound, Code::CapabilityAlreadyConsumed]),
    Endpoint::get(EPOCH, "get_epoch", "Where a register of authority stands; 0 where it was never bumped.")
        .roles(&["read", "claim", "issue", "operate"])
        .parameters(&[SCOPE, LOCAL])
        .answers(&[Answer::new(200, "The register.", "EpochView")]),
    Endpoint::post(BUMP, "bump_epoch", "Raise a register: everything that is bound to a lower value is fenced.")
        .roles(&["operate"])
        .body("BumpRequest")
        .parameters(&[SCOPE])
        .answers(&[Answer::new(200, "The register, raised.", "EpochView")])
        .problems(&[Code::PreconditionFailed, Code::QuotaExceeded]),
];
