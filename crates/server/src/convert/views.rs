//! Records as views: what a reader may see.

use hapax_api::Code;
use hapax_api::capability::{CapabilityState, CapabilityView, Consumed, Revoked};
use hapax_api::claim::Message;
use hapax_api::epoch::EpochBinding;
use hapax_api::evidence::{EvidenceEntry, Refused, Said, Word};
use hapax_api::json::RawJson;
use hapax_api::operation::{Consistency, ExecutionView, OperationView, Receipt, ReconcilerView};
use hapax_api::text;
use hapax_api::time::Instant;
use hapax_api::watch::{OperationEvent, Position};
use hapax_machine::capability::{Bound, CapabilityRecord};
use hapax_machine::change::Event;
use hapax_machine::command;
use hapax_machine::epoch::Binding;
use hapax_machine::evidence::{EvidenceRecord, Source};
use hapax_machine::ids::{self, WallTime, effect_key};
use hapax_machine::operation::{Body, OperationRecord, OutcomeRecord};
use hapax_machine::read::Reading;
use hapax_machine::refusal::RefusalRecord;

use super::{code_of, revision, settled, state, wire, wire_option};
use crate::problem::Refusal;

fn instant(at: WallTime) -> Instant {
    Instant(at.0)
}

/// An operation as read at `at`.
pub(crate) fn operation(
    reading: Reading,
    at: ids::Revision,
    consistency: Option<Consistency>,
) -> Result<OperationView, Refusal> {
    let execution = execution(&reading)?;
    let escalated = reading.record.execution.as_ref().is_some_and(|execution| execution.escalated_at.is_some());
    let reconciler = reading.reconciler.map(|(held, lease_expires_in_ms)| {
        Ok::<_, Refusal>(ReconcilerView { owner: wire(&held.owner)?, lease_expires_in_ms })
    });
    let Reading { record, state: now, result, result_compacted, retain_until, .. } = reading;
    let outcome = record.outcome().map(|outcome| receipt(&outcome, result)).transpose()?;
    Ok(OperationView {
        operation_id: wire(&record.id.to_string())?,
        namespace: wire(record.namespace.as_str())?,
        state: state(now),
        attempt: record.attempt().0,
        execution,
        outcome: outcome.map(|outcome| Receipt { result_compacted, ..outcome }),
        created_at: instant(record.created_at),
        updated_at: instant(record.updated_at),
        retain_until: retain_until.map(instant),
        resource: wire_option(record.resource.as_ref().map(|resource| resource.as_str()))?,
        correlation_id: wire_option(record.correlation_id.as_ref().map(|id| id.as_str()))?,
        escalated,
        reconciler: reconciler.transpose()?,
        quarantined: record.quarantined,
        superseded_by: wire_option(record.superseded_by.map(|id| id.to_string()).as_deref())?,
        supersedes: wire_option(record.supersedes.map(|id| id.to_string()).as_deref())?,
        revision: revision(at),
        consistency,
    })
}

fn execution(reading: &Reading) -> Result<Option<ExecutionView>, Refusal> {
    let Some(execution) = &reading.record.execution else {
        return Ok(None);
    };
    // A closed operation is failed; what its last attempt came to stays what it was.
    let now = if reading.record.closed.is_some() { execution.state } else { reading.state };
    Ok(Some(ExecutionView {
        execution_id: wire(&execution.id.to_string())?,
        state: state(now),
        owner: wire(&execution.owner)?,
        lease_epoch: reading.lease_epoch.map(|epoch| epoch.0),
        lease_expires_in_ms: reading.lease_remaining_ms,
        effect_key: wire(&effect_key(&reading.record.id, execution.effect_attempt))?,
        capability_id: wire_option(execution.capability.map(|id| id.to_string()).as_deref())?,
        unknown_since: execution.unknown_since.map(instant),
    }))
}

pub(super) fn receipt(outcome: &OutcomeRecord, result: Option<Body>) -> Result<Receipt, Refusal> {
    let result = result.map(stored_json).transpose()?;
    Ok(Receipt {
        outcome: settled(outcome.outcome),
        status_code: outcome.status_code,
        schema_version: wire_option(outcome.schema_version.as_deref())?,
        result_compacted: outcome.has_result && result.is_none(),
        result,
        result_ref: wire_option(outcome.result_ref.as_deref())?,
        result_digest: outcome.result_digest.map(|digest| text::Digest(digest.0)),
        external_id: wire_option(outcome.external_id.as_deref())?,
        reason: wire_option(outcome.reason.as_deref())?,
        completed_at: instant(outcome.at),
    })
}

fn stored_json(bytes: Body) -> Result<RawJson, Refusal> {
    let text = String::from_utf8(bytes).ok();
    text.and_then(|text| RawJson::stored(text).ok()).ok_or_else(|| {
        tracing::error!("a stored result is not JSON");
        Refusal::new(Code::StoreOutcomeUnknown)
    })
}

/// A capability as it stands at `wall`.
pub(crate) fn capability(
    record: &CapabilityRecord,
    wall: WallTime,
    at: ids::Revision,
) -> Result<CapabilityView, Refusal> {
    let standing = if record.uses_left() == 0 {
        CapabilityState::Consumed
    } else if record.revoked.is_some() {
        CapabilityState::Revoked
    } else if wall >= record.expires_at {
        CapabilityState::Expired
    } else {
        CapabilityState::Issued
    };
    let mut view = CapabilityView {
        capability_id: wire(&record.id.to_string())?,
        operation_id: None,
        namespace: wire(record.namespace.as_str())?,
        resource: None,
        attempt: None,
        decision_id: wire(record.decision.as_str())?,
        client: wire(record.client.as_str())?,
        state: standing,
        uses_left: record.uses_left(),
        max_uses: 1,
        issued_at: instant(record.issued_at),
        expires_at: instant(record.expires_at),
        epoch: record.authority.as_ref().map(epoch).transpose()?,
        effect_key_attempt: None,
        consumed: None,
        revoked: None,
        revision: revision(at),
        consistency: None,
    };
    match &record.bound {
        Bound::Attempt { operation, attempt, effect_attempt, consumed } => {
            let operation_id: text::OperationId = wire(&operation.to_string())?;
            view.attempt = Some(attempt.0);
            view.effect_key_attempt = (effect_attempt != attempt).then_some(effect_attempt.0);
            if let Some(consumed) = consumed {
                view.consumed = Some(Consumed {
                    operation_id: operation_id.clone(),
                    execution_id: wire(&consumed.execution.to_string())?,
                    at: instant(consumed.at),
                });
            }
            view.operation_id = Some(operation_id);
        }
        Bound::Resource { resource, max_uses, .. } => {
            view.resource = Some(wire(resource.as_str())?);
            view.max_uses = *max_uses;
        }
    }
    if let Some(revoked) = &record.revoked {
        view.revoked = Some(Revoked {
            client: wire(revoked.client.as_str())?,
            reason: wire_option(revoked.reason.as_deref())?,
            at: instant(revoked.at),
        });
    }
    Ok(view)
}

fn epoch(binding: &Binding) -> Result<EpochBinding, Refusal> {
    Ok(EpochBinding { scope: wire(binding.scope.as_str())?, value: binding.value.0 })
}

fn message(message: &command::Message) -> Result<Message, Refusal> {
    Ok(Message { consumer: wire(message.consumer.as_str())?, id: wire(message.id.as_str())? })
}

/// Something that was said about `operation`; `number` counts from 0.
pub(crate) fn word(
    operation: &OperationRecord,
    number: u32,
    record: &EvidenceRecord,
) -> Result<EvidenceEntry, Refusal> {
    Ok(EvidenceEntry::Word(Word {
        said: said(record.source),
        number: number + 1,
        operation_id: wire(&operation.id.to_string())?,
        execution_id: wire_option(record.execution.map(|id| id.to_string()).as_deref())?,
        client: wire(record.client.as_str())?,
        claim_id: record.claim_id.map(|id| text::ClaimId(id.0)),
        lease_epoch: record.lease_epoch.map(|epoch| epoch.0),
        outcome: record.outcome.map(settled),
        external_id: wire_option(record.external_id.as_deref())?,
        by: wire_option(record.by.map(|id| id.to_string()).as_deref())?,
        reason: wire_option(record.reason.as_deref())?,
        proof: wire_option(record.proof.as_deref())?,
        operation_state: state(record.met),
        at: instant(record.at),
        chain: text::Digest(record.chain.0),
        revision: revision(record.revision),
    }))
}

fn said(source: Source) -> Said {
    match source {
        Source::Report => Said::Report,
        Source::Evidence => Said::Evidence,
        Source::Resolve => Said::Resolve,
        Source::Fence => Said::Fence,
        Source::Escalate => Said::Escalate,
        Source::Deescalate => Said::DeEscalate,
        Source::Quarantine => Said::Quarantine,
        Source::Release => Said::Release,
        Source::Supersede => Said::Supersede,
        Source::Close => Said::Close,
    }
}

/// Something that was presented in vain.
pub(crate) fn refusal(record: &RefusalRecord) -> Result<EvidenceEntry, Refusal> {
    Ok(EvidenceEntry::Refused(Refused {
        code: code_of(record.reason).0,
        namespace: wire(record.namespace.as_str())?,
        capability_id: wire_option(record.capability.map(|id| id.to_string()).as_deref())?,
        message: record.message.as_ref().map(message).transpose()?,
        known_redelivery: record.known_redelivery,
        operation_id: wire_option(record.operation.map(|id| id.to_string()).as_deref())?,
        operation_state: record.state.map(state),
        attempt: record.attempt.map(|attempt| attempt.0),
        execution_attempted: false,
        client: wire(record.client.as_str())?,
        correlation_id: wire_option(record.correlation_id.as_ref().map(|id| id.as_str()))?,
        first_at: instant(record.first_at),
        last_at: instant(record.last_at),
        times: record.times,
        revision: revision(record.revision),
    }))
}

/// A change of an operation's state.
pub(crate) fn event(event: &Event) -> Result<OperationEvent, Refusal> {
    Ok(OperationEvent {
        position: Position { revision: revision(event.revision), part: Some(event.part) },
        operation_id: wire(&event.operation.to_string())?,
        namespace: wire(event.namespace.as_str())?,
        state: state(event.state),
        attempt: event.attempt.0,
        execution_id: wire_option(event.execution.map(|id| id.to_string()).as_deref())?,
        escalated: event.escalated,
        quarantined: event.quarantined,
    })
}
