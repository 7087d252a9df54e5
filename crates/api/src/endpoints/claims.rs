//! Claims and executions: what workers and reconcilers call, and the batch of everything.

use super::{
    ACCEPTED, Answer, BATCH, CLAIMS, ESCALATE, EVIDENCE, EXECUTION_ID, Endpoint, FENCE, IDEMPOTENCY_KEY, OUTCOME,
    RECONCILE, RENEW, RESOLVE,
};
use crate::codes::Code;

pub(super) const TABLE: &[Endpoint] = &[
    Endpoint::post(CLAIMS, "claim", "Claim a key: elect one executor, join one at work, or get the stored outcome.")
        .roles(&["claim"])
        .body("ClaimRequest")
        .parameters(&[IDEMPOTENCY_KEY])
        .answers(&[
            Answer::new(
                201,
                "This caller, and nobody else, executes. The same `claim_id` again gets the same grant until it is \
                 renewed or reported.",
                "ClaimAnswer",
            ),
            Answer::new(202, "Another executor is at work. Not a success.", "ClaimAnswer")
                .headers(&[("Location", "The operation's status."), ("Retry-After", "Seconds until asking again.")]),
            Answer::new(
                200,
                "Finished before, with the stored outcome; or a duplicate delivery, which says nothing about one.",
                "ClaimAnswer",
            )
            .headers(&[("Idempotency-Replayed", "`true` with a stored outcome.")]),
        ])
        .problems(&[
            Code::NotFound,
            Code::QuotaExceeded,
            Code::ClaimIdReused,
            Code::KeyDigestMismatch,
            Code::KeyRetentionElapsed,
            Code::DeliveryMismatch,
            Code::CapabilityAlreadyConsumed,
            Code::CapabilityRevoked,
            Code::CapabilityExpired,
            Code::CapabilityInvalid,
            Code::CapabilityBindingMismatch,
            Code::CapabilityRequired,
            Code::EpochStale,
            Code::EpochUnknown,
            Code::OperationExecuting,
            Code::OperationOutcomeUnknown,
            Code::OperationCompleted,
            Code::OperationFailed,
            Code::OperationQuarantined,
            Code::AttemptMismatch,
            Code::LeaseLost,
        ]),
    Endpoint::post(BATCH, "batch", "Several mutating calls in one body, each answered by itself, in order.")
        .roles(&["claim", "issue", "reconcile", "operate"])
        .body("BatchRequest")
        .answers(&[Answer::new(
            200,
            "Each item's own answer: the status and the body of the single call. An item needs the role of its call.",
            "BatchAnswer",
        )]),
    Endpoint::post(RENEW, "renew", "Go on holding a lease.")
        .roles(&["claim"])
        .body("RenewRequest")
        .parameters(&[EXECUTION_ID])
        .answers(&[Answer::new(200, "The lease goes on.", "Renewed")])
        .problems(&[Code::NotFound, Code::LeaseStaleEpoch, Code::LeaseLost, Code::OutcomeConflict]),
    Endpoint::post(OUTCOME, "report_outcome", "Say what an execution came to, as its owner.")
        .roles(&["claim"])
        .body("OutcomeRequest")
        .parameters(&[EXECUTION_ID])
        .answers(ACCEPTED)
        .problems(&[Code::NotFound, Code::LeaseStaleEpoch, Code::LeaseLost, Code::OutcomeConflict]),
    Endpoint::post(EVIDENCE, "give_evidence", "Say what an execution came to, as the one who lost it.")
        .roles(&["claim"])
        .body("EvidenceRequest")
        .parameters(&[EXECUTION_ID])
        .answers(ACCEPTED)
        .problems(&[Code::NotFound, Code::OperationExecuting, Code::OutcomeConflict]),
    Endpoint::post(RECONCILE, "lease_reconciliations", "Take the oldest unknown executions, to find out about them.")
        .roles(&["reconcile"])
        .body("ReconcileRequest")
        .answers(&[Answer::new(
            200,
            "The executions that this owner holds now: the same ones to the same owner while its leases last.",
            "Reconciling",
        )])
        .problems(&[Code::NotFound]),
    Endpoint::post(RESOLVE, "resolve", "Say what an unknown execution came to, with proof.")
        .roles(&["reconcile", "operate"])
        .body("ResolveRequest")
        .parameters(&[EXECUTION_ID])
        .answers(ACCEPTED)
        .problems(&[Code::NotFound, Code::LeaseStaleEpoch, Code::OperationExecuting, Code::OutcomeConflict]),
    Endpoint::post(ESCALATE, "escalate", "Let an unknown execution wait for people, or no longer.")
        .roles(&["reconcile", "operate"])
        .body("EscalateRequest")
        .parameters(&[EXECUTION_ID])
        .answers(ACCEPTED)
        .problems(&[Code::NotFound, Code::LeaseStaleEpoch, Code::OperationState]),
    Endpoint::post(FENCE, "fence", "End an executor's lease by force; its execution becomes unknown.")
        .roles(&["operate"])
        .body("FenceRequest")
        .parameters(&[EXECUTION_ID])
        .answers(ACCEPTED)
        .problems(&[Code::NotFound, Code::LeaseStaleEpoch, Code::OperationState]),
];
