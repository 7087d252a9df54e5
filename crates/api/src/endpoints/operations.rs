//! Operations: registered, read, found, listed, watched, repaired; and the record of evidence.

use super::{
    ACCEPTED, Answer, CLOSE, CURSOR, ETAG, EVIDENCE_RECORD, Endpoint, IDEMPOTENCY_KEY, LIMIT, LOCAL, LOOKUP,
    OPERATION, OPERATION_ID, OPERATIONS, Parameter, QUARANTINE, RELEASE, SUPERSEDE, WATCH,
};
use crate::codes::Code;
use crate::watch;

const READERS: &[&str] = &["read", "claim", "issue", "reconcile", "operate"];
const REPAIR_PROBLEMS: &[Code] = &[Code::NotFound, Code::OperationState];

pub(super) const TABLE: &[Endpoint] = &[
    Endpoint::post(OPERATIONS, "register", "Make an operation known, with its request, before authority is issued.")
        .roles(&["issue", "claim"])
        .body("RegisterRequest")
        .parameters(&[IDEMPOTENCY_KEY])
        .answers(&[
            Answer::new(201, "The operation is known now.", "Registered"),
            Answer::new(200, "It was known before, with this request.", "Registered"),
        ])
        .problems(&[Code::NotFound, Code::QuotaExceeded, Code::KeyDigestMismatch, Code::KeyRetentionElapsed]),
    Endpoint::get(OPERATIONS, "list_operations", "The operations of a namespace in one state, oldest first.")
        .roles(&["read", "reconcile", "operate"])
        .parameters(&[
            Parameter::query("namespace", "The namespace.").required(),
            Parameter::query(
                "state",
                "`requested`, `executing`, `unknown` (without the escalated), `escalated`, `not_applied`, \
                 `completed`, `failed`, or `quarantined` whatever the state.",
            )
            .required(),
            Parameter::query("older_than", "Only those that are so since before this instant (RFC 3339)."),
            LIMIT,
            CURSOR,
        ])
        .answers(&[Answer::new(200, "A page.", "OperationPage")])
        .problems(&[Code::NotFound]),
    Endpoint::get(OPERATION, "get_operation", "An operation's settled state; waits for a change where asked.")
        .roles(READERS)
        .parameters(&[
            OPERATION_ID,
            LOCAL,
            Parameter::header("Prefer", "`wait=N`: with `If-None-Match`, up to N seconds (60 at most) for a change."),
            Parameter::header("If-None-Match", "An `ETag` of before."),
        ])
        .answers(&[
            Answer::new(200, "The operation.", "OperationView").headers(&[ETAG]),
            Answer::empty(304, "Nothing changed.").headers(&[ETAG]),
        ])
        .problems(&[Code::NotFound]),
    Endpoint::post(
        LOOKUP,
        "lookup_operations",
        "Operations by key, provider's id or resource, none of which is in an access log this way.",
    )
    .roles(READERS)
    .body("LookupRequest")
    .answers(&[Answer::new(200, "A page; empty where nothing is found.", "OperationPage")])
    .problems(&[Code::NotFound]),
    Endpoint::post(QUARANTINE, "quarantine", "Stop claims of an operation.")
        .roles(&["operate"])
        .body("RepairRequest")
        .parameters(&[OPERATION_ID])
        .answers(ACCEPTED)
        .problems(REPAIR_PROBLEMS),
    Endpoint::post(RELEASE, "release", "Let claims of a quarantined operation go on.")
        .roles(&["operate"])
        .body("RepairRequest")
        .parameters(&[OPERATION_ID])
        .answers(ACCEPTED)
        .problems(REPAIR_PROBLEMS),
    Endpoint::post(SUPERSEDE, "supersede", "Link the operation that takes this one's place under a new key.")
        .roles(&["operate"])
        .body("SupersedeRequest")
        .parameters(&[OPERATION_ID])
        .answers(ACCEPTED)
        .problems(&[Code::NotFound, Code::OperationState, Code::PolicyFixed]),
    Endpoint::post(CLOSE, "close", "End a requested or not_applied operation without an effect.")
        .roles(&["issue", "operate"])
        .body("RepairRequest")
        .parameters(&[OPERATION_ID])
        .answers(ACCEPTED)
        .problems(REPAIR_PROBLEMS),
    Endpoint::get(
        EVIDENCE_RECORD,
        "list_evidence",
        "What was said beside the standing state, and what was presented in vain. Exactly one of the four questions.",
    )
    .roles(&["read", "issue", "reconcile", "operate"])
    .parameters(&[
        Parameter::query("operation_id", "Everything about an operation."),
        Parameter::query("capability_id", "The refusals of a capability."),
        Parameter::query("message_id", "The refusals of a delivery; with `consumer`."),
        Parameter::query("consumer", "Who received the message."),
        Parameter::query("correlation_id", "Everything of a story."),
        LIMIT,
        CURSOR,
    ])
    .answers(&[Answer::new(200, "A page, oldest first.", "EvidencePage")])
    .problems(&[Code::NotFound]),
    Endpoint::get(WATCH, "watch", "Every change of an operation's state, as server-sent events.")
        .roles(&["read", "reconcile", "operate"])
        .parameters(&[
            Parameter::query("from", "The position of the last event that was seen, or an answer's revision; now where absent."),
            Parameter::query("namespace", "Only this namespace; all that the credential is good for where absent."),
            Parameter::header("Last-Event-ID", "A position that outranks `from`, as browsers send it."),
        ])
        .answers(&[Answer::new(
            200,
            "Events of three kinds, with the position as `id`. `operation`: `data` is as the schema says. `position`: \
             `data` is `{\"position\": …}`, nothing that is watched happened up to there. `problem`: `data` is a problem, \
             and the stream ends.",
            "OperationEvent",
        )
        .media_type(watch::MEDIA_TYPE)])
        .problems(&[Code::NotFound, Code::WatchCompacted]),
];
