//! The state hash: a chain over the logical changes of every entry, equal on all nodes at equal indexes.
//! Its bytes are its own: they do not follow the storage encoding, so that an upgrade of that cannot move it.

use sha2::{Digest as _, Sha256};

use crate::capability::{Bound, CapabilityRecord, Consumption, DecisionRecord, UseRecord};
use crate::change::{Change, Head};
use crate::command::{EntryHead, Message, ResultData};
use crate::epoch::{Binding, EpochRecord};
use crate::evidence::EvidenceRecord;
use crate::ids::{Birth, CapabilityId, Digest, ExecutionId, OperationId, OperationKey, Revision};
use crate::inbox::InboxRecord;
use crate::namespace::{NamespaceRecord, NamespaceStatus};
use crate::operation::{Execution, ExecutionRecord, GrantRecord, OperationRecord, OutcomeRecord};
use crate::outcome::Refusal;
use crate::refusal::{RefusalKey, RefusalRecord, Subject};
use crate::tenant::{TenantRecord, TokenRecord};

/// A SHA-256 that is fed with values, each so that no two different lists of values give the same bytes.
pub struct Canon(Sha256);

impl Canon {
    /// A hash of the kind that `domain` names.
    pub fn new(domain: &[u8]) -> Self {
        let mut canon = Self(Sha256::new());
        canon.bytes(domain);
        canon
    }

    /// Feeds bytes, with their length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.number(value.len() as u64);
        self.0.update(value);
    }

    /// Feeds a text.
    pub fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// Feeds a number.
    pub fn number(&mut self, value: u64) {
        self.0.update(value.to_be_bytes());
    }

    /// Feeds a truth value.
    pub fn flag(&mut self, value: bool) {
        self.0.update([u8::from(value)]);
    }

    /// Feeds a value that may be absent.
    pub fn optional<T>(&mut self, value: Option<T>, feed: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            feed(self, value);
        }
    }

    /// Feeds a number that may be absent.
    pub fn optional_number(&mut self, value: Option<u64>) {
        self.optional(value, Self::number);
    }

    /// Feeds a text that may be absent.
    pub fn optional_text(&mut self, value: Option<&str>) {
        self.optional(value, Self::text);
    }

    /// The hash of everything fed.
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    pub(crate) fn result_data(&mut self, data: &ResultData) {
        self.optional_number(data.status_code.map(u64::from));
        self.optional_text(data.schema_version.as_deref());
        self.optional(data.result.as_deref(), Self::bytes);
        self.optional_text(data.result_ref.as_deref());
        self.digest(data.result_digest.as_ref());
        self.optional_text(data.external_id.as_deref());
        self.optional_text(data.reason.as_deref());
    }

    fn digest(&mut self, digest: Option<&Digest>) {
        self.optional(digest, |canon, digest| canon.bytes(&digest.0));
    }

    fn operation_key(&mut self, key: &OperationKey) {
        self.bytes(&key.tenant.0);
        self.bytes(&key.hash);
    }

    fn row(&mut self, key: &OperationKey, birth: Birth) {
        self.operation_key(key);
        self.number(birth.0);
    }

    pub(crate) fn execution_id(&mut self, id: &ExecutionId) {
        self.number(u64::from(id.slot.0));
        self.bytes(&id.random);
    }

    pub(crate) fn capability_id(&mut self, id: &CapabilityId) {
        self.number(u64::from(id.slot.0));
        self.bytes(&id.random);
    }

    pub(crate) fn operation_id(&mut self, id: &OperationId) {
        self.number(u64::from(id.slot.0));
        self.bytes(&id.hash);
        self.number(id.birth.0);
    }

    pub(crate) fn binding(&mut self, binding: &Binding) {
        self.text(binding.scope.as_str());
        self.number(binding.value.0);
    }

    /// What a capability is good for, without what was used of it.
    pub(crate) fn bound(&mut self, bound: &Bound) {
        match bound {
            Bound::Attempt { operation, attempt, effect_attempt, consumed: _ } => {
                self.number(1);
                self.operation_id(operation);
                self.number(u64::from(attempt.0));
                self.number(u64::from(effect_attempt.0));
            }
            Bound::Resource { resource, max_uses, used: _ } => {
                self.number(2);
                self.text(resource.as_str());
                self.number(u64::from(*max_uses));
            }
        }
    }

    fn message(&mut self, message: &Message) {
        self.text(message.consumer.as_str());
        self.text(message.id.as_str());
    }

    /// A refusal's reason: its number here never changes, whatever the order of the type.
    pub(crate) fn refusal(&mut self, reason: Refusal) {
        let (number, detail) = numbered(reason);
        self.number(number);
        self.number(detail);
    }

    /// Everything that a row of evidence holds but its own link.
    pub(crate) fn evidence(&mut self, record: &EvidenceRecord) {
        let EvidenceRecord {
            source,
            client,
            execution,
            claim_id,
            lease_epoch,
            outcome,
            external_id,
            by,
            reason,
            proof,
            met,
            at,
            revision,
            chain: _,
        } = record;
        self.number(*source as u64);
        self.text(client.as_str());
        self.optional(execution.as_ref(), Canon::execution_id);
        self.optional(claim_id.as_ref(), |canon, id| canon.bytes(&id.0));
        self.optional_number(lease_epoch.map(|epoch| epoch.0));
        self.optional_number(outcome.map(|outcome| outcome as u64));
        self.optional_text(external_id.as_deref());
        self.optional(by.as_ref(), Canon::operation_id);
        self.optional_text(reason.as_deref());
        self.optional_text(proof.as_deref());
        self.number(*met as u64);
        self.number(at.0);
        self.revision(revision);
    }

    pub(crate) fn revision(&mut self, revision: &Revision) {
        self.number(u64::from(revision.incarnation.0));
        self.number(u64::from(revision.group.0));
        self.number(revision.index);
        self.number(u64::from(revision.ordinal));
    }
}

/// The hash after an entry: of the hash before it, its position, the head and its rows.
pub(crate) fn chained(head: &Head, entry: &EntryHead, rows: &[Change]) -> [u8; 32] {
    let mut canon = Canon::new(b"hapax/state/1");
    canon.bytes(&head.state_hash);
    canon.bytes(&head.cluster_id);
    canon.number(u64::from(head.incarnation.0));
    canon.number(u64::from(entry.group.0));
    canon.number(entry.index);
    canon.number(head.clocks.term);
    canon.number(head.clocks.lead_ms);
    canon.number(head.clocks.lease_time.0);
    canon.number(head.clocks.wall.0);
    canon.number(head.grants.0);
    canon.number(rows.len() as u64);
    for row in rows {
        change(&mut canon, row);
    }
    canon.finish()
}

/// The number of a reason, and what it tells besides.
fn numbered(reason: Refusal) -> (u64, u64) {
    match reason {
        Refusal::NotFound => (1, 0),
        Refusal::ClaimIdReused => (2, 0),
        Refusal::LeaseLost => (3, 0),
        Refusal::LeaseStaleEpoch => (4, 0),
        Refusal::KeyDigestMismatch => (5, 0),
        Refusal::OperationQuarantined => (6, 0),
        Refusal::OperationExecuting => (7, 0),
        Refusal::OutcomeUnknown => (8, 0),
        Refusal::AttemptMismatch { due } => (9, u64::from(due.0)),
        Refusal::OutcomeConflict => (10, 0),
        Refusal::WallStep => (11, 0),
        Refusal::AlreadyBootstrapped => (12, 0),
        Refusal::DeliveryMismatch => (13, 0),
        Refusal::CapabilityAlreadyConsumed => (14, 0),
        Refusal::CapabilityRevoked => (15, 0),
        Refusal::CapabilityExpired => (16, 0),
        Refusal::CapabilityInvalid => (17, 0),
        Refusal::CapabilityBindingMismatch => (18, 0),
        Refusal::CapabilityRequired => (19, 0),
        Refusal::EpochStale => (20, 0),
        Refusal::EpochUnknown => (21, 0),
        Refusal::RegisterStands { value } => (22, value.0),
        Refusal::OperationCompleted => (23, 0),
        Refusal::OperationFailed => (24, 0),
        Refusal::OperationState { state } => (25, state as u64),
        Refusal::KeyRetentionElapsed => (26, 0),
        Refusal::KeyCreationTime => (27, 0),
        Refusal::DecisionReused => (28, 0),
        Refusal::QuotaExceeded => (29, 0),
        Refusal::PolicyFixed => (30, 0),
        Refusal::VersionMismatch => (31, 0),
        Refusal::NotYours => (32, 0),
        Refusal::NotASuccessor => (33, 0),
    }
}

fn change(canon: &mut Canon, row: &Change) {
    match row {
        Change::Namespace(record) => {
            canon.number(1);
            namespace(canon, record);
        }
        Change::Token(record) => {
            canon.number(2);
            token(canon, record);
        }
        // Where it stood before follows from the changes before.
        Change::Operation { record, was: _ } => {
            canon.number(3);
            operation(canon, record);
        }
        Change::Execution(tenant, id, record) => {
            canon.number(4);
            canon.bytes(&tenant.0);
            canon.execution_id(id);
            execution_row(canon, record);
        }
        Change::Grant(key, birth, claim, record) => {
            canon.number(5);
            canon.row(key, *birth);
            canon.bytes(&claim.0);
            grant(canon, record);
        }
        Change::Body(key, birth, body) => {
            canon.number(6);
            canon.row(key, *birth);
            canon.bytes(body);
        }
        Change::Evidence(key, birth, number, record) => {
            canon.number(7);
            canon.row(key, *birth);
            canon.number(u64::from(*number));
            evidence(canon, record);
        }
        other => change_of_authority(canon, other),
    }
}

/// The rows that are about authority, policy and the record, not about an operation itself.
fn change_of_authority(canon: &mut Canon, row: &Change) {
    match row {
        Change::Status(tenant, name, record) => {
            canon.number(8);
            canon.text(tenant.as_str());
            canon.text(name.as_str());
            status(canon, record);
        }
        Change::Tenant(record) => {
            canon.number(9);
            tenant(canon, record);
        }
        Change::Epoch(record) => {
            canon.number(10);
            epoch(canon, record);
        }
        Change::Capability(record) => {
            canon.number(11);
            capability(canon, record);
        }
        Change::Decision(key, DecisionRecord { capability, terms }) => {
            canon.number(12);
            canon.bytes(&key.tenant.0);
            canon.bytes(&key.hash);
            canon.capability_id(capability);
            canon.bytes(&terms.0);
        }
        Change::Use(tenant, id, key, UseRecord { birth, consumption }) => {
            canon.number(13);
            canon.bytes(&tenant.0);
            canon.capability_id(id);
            canon.row(key, *birth);
            consumed(canon, consumption);
        }
        Change::Inbox(key, record) => {
            canon.number(14);
            canon.bytes(&key.tenant.0);
            canon.bytes(&key.hash);
            inbox(canon, record);
        }
        Change::Refusal(key, record) => {
            canon.number(15);
            refusal_key(canon, key);
            refusal(canon, record);
        }
        Change::Namespace(_)
        | Change::Token(_)
        | Change::Operation { .. }
        | Change::Execution(..)
        | Change::Grant(..)
        | Change::Body(..)
        | Change::Evidence(..) => unreachable!("{row:?} is fed by its own kind"),
    }
}

fn namespace(canon: &mut Canon, record: &NamespaceRecord) {
    let NamespaceRecord {
        tenant,
        name,
        scope,
        on_lapse,
        attempts,
        conflict_style,
        transport_fields,
        partitions,
        authority,
        retention,
        reconcile_per_minute,
        quota,
        takeover_since,
        version,
    } = record;
    canon.text(tenant.as_str());
    canon.text(name.as_str());
    canon.number(*scope as u64);
    canon.number(*on_lapse as u64);
    canon.number(*attempts as u64);
    canon.number(*conflict_style as u64);
    canon.number(transport_fields.len() as u64);
    transport_fields.iter().for_each(|field| canon.text(field));
    canon.number(u64::from(*partitions));
    canon.number(*authority as u64);
    canon.number(retention.body_ms);
    canon.number(retention.identity_ms);
    canon.number(retention.expired_keys as u64);
    canon.number(u64::from(*reconcile_per_minute));
    canon.optional_number(quota.open_operations);
    canon.optional_number(quota.requests_per_second.map(u64::from));
    canon.optional_number(quota.key_claims_per_second.map(u64::from));
    canon.optional_number(takeover_since.map(|since| since.0));
    canon.number(version.0);
}

fn status(canon: &mut Canon, record: &NamespaceStatus) {
    let NamespaceStatus { floors, open, unknown, pace } = record;
    canon.number(floors.compact_before.0);
    canon.number(floors.forget_before.0);
    canon.number(*open);
    canon.number(*unknown);
    canon.number(pace.since.0);
    canon.number(u64::from(pace.granted));
}

fn tenant(canon: &mut Canon, record: &TenantRecord) {
    let TenantRecord { id, system, disabled, requests_per_second, version } = record;
    canon.text(id.as_str());
    canon.flag(*system);
    canon.flag(*disabled);
    canon.optional_number(requests_per_second.map(u64::from));
    canon.number(version.0);
}

fn token(canon: &mut Canon, record: &TokenRecord) {
    let TokenRecord { id, secret_hash, tenant, client, namespaces, roles, expires_at_ms, created_at, revoked_at } =
        record;
    canon.text(id);
    canon.bytes(secret_hash);
    canon.text(tenant.as_str());
    canon.text(client.as_str());
    canon.number(namespaces.len() as u64);
    namespaces.iter().for_each(|name| canon.text(name.as_str()));
    canon.number(u64::from(*roles));
    canon.optional_number(*expires_at_ms);
    canon.number(created_at.0);
    canon.optional_number(revoked_at.map(|at| at.0));
}

fn epoch(canon: &mut Canon, record: &EpochRecord) {
    let EpochRecord { tenant, scope, value, client, at } = record;
    canon.text(tenant.as_str());
    canon.text(scope.as_str());
    canon.number(value.0);
    canon.text(client.as_str());
    canon.number(at.0);
}

fn capability(canon: &mut Canon, record: &CapabilityRecord) {
    let CapabilityRecord {
        id,
        tenant,
        namespace,
        client,
        decision,
        bound,
        expires_at,
        authority,
        issued_at,
        revoked,
        refusals,
    } = record;
    canon.capability_id(id);
    canon.text(tenant.as_str());
    canon.text(namespace.as_str());
    canon.text(client.as_str());
    canon.text(decision.as_str());
    canon.bound(bound);
    match bound {
        Bound::Attempt { consumed: by, .. } => canon.optional(by.as_ref(), consumed),
        Bound::Resource { used, .. } => canon.number(u64::from(*used)),
    }
    canon.number(expires_at.0);
    canon.optional(authority.as_ref(), Canon::binding);
    canon.number(issued_at.0);
    canon.optional(revoked.as_ref(), |canon, revoked| {
        canon.text(revoked.client.as_str());
        canon.optional_text(revoked.reason.as_deref());
        canon.number(revoked.at.0);
    });
    canon.number(u64::from(*refusals));
}

fn consumed(canon: &mut Canon, record: &Consumption) {
    let Consumption { execution, claim_id, client, at } = record;
    canon.execution_id(execution);
    canon.bytes(&claim_id.0);
    canon.text(client.as_str());
    canon.number(at.0);
}

fn inbox(canon: &mut Canon, record: &InboxRecord) {
    let InboxRecord { tenant, message, operation, digest, capability, claim_id, client, at } = record;
    canon.text(tenant.as_str());
    canon.message(message);
    canon.operation_id(operation);
    canon.bytes(&digest.0);
    canon.optional(capability.as_ref(), Canon::capability_id);
    canon.bytes(&claim_id.0);
    canon.text(client.as_str());
    canon.number(at.0);
}

fn refusal_key(canon: &mut Canon, key: &RefusalKey) {
    let RefusalKey { tenant, subject, hash } = key;
    canon.bytes(&tenant.0);
    match subject {
        Subject::Capability(id) => {
            canon.number(1);
            canon.capability_id(id);
        }
        Subject::Operation(hash, birth) => {
            canon.number(2);
            canon.bytes(hash);
            canon.number(birth.0);
        }
    }
    canon.bytes(hash);
}

fn refusal(canon: &mut Canon, record: &RefusalRecord) {
    let RefusalRecord {
        reason,
        namespace,
        capability,
        message,
        known_redelivery,
        operation,
        state,
        attempt,
        client,
        correlation_id,
        first_at,
        last_at,
        times,
        revision,
    } = record;
    canon.refusal(*reason);
    canon.text(namespace.as_str());
    canon.optional(capability.as_ref(), Canon::capability_id);
    canon.optional(message.as_ref(), Canon::message);
    canon.flag(*known_redelivery);
    canon.optional(operation.as_ref(), Canon::operation_id);
    canon.optional_number(state.map(|state| state as u64));
    canon.optional_number(attempt.map(|attempt| u64::from(attempt.0)));
    canon.text(client.as_str());
    canon.optional_text(correlation_id.as_ref().map(|id| id.as_str()));
    canon.number(first_at.0);
    canon.number(last_at.0);
    canon.number(u64::from(*times));
    canon.revision(revision);
}

fn operation(canon: &mut Canon, record: &OperationRecord) {
    let OperationRecord {
        id,
        internal_key,
        tenant,
        namespace,
        digest,
        correlation_id,
        created_at,
        updated_at,
        modified,
        terminal_at,
        quarantined,
        grants,
        evidence,
        said,
        chain,
        forgiven,
        refusals,
        capabilities,
        resource,
        key_created_at,
        superseded_by,
        supersedes,
        closed,
        execution: newest,
    } = record;
    canon.operation_id(id);
    canon.bytes(&internal_key.0);
    canon.text(tenant.as_str());
    canon.text(namespace.as_str());
    canon.bytes(&digest.0);
    canon.optional_text(correlation_id.as_ref().map(|id| id.as_str()));
    canon.number(created_at.0);
    canon.number(updated_at.0);
    canon.revision(modified);
    canon.optional_number(terminal_at.map(|at| at.0));
    canon.flag(*quarantined);
    canon.number(u64::from(*grants));
    canon.number(u64::from(*evidence));
    canon.optional(said.as_ref(), |canon, said| canon.bytes(&said.0));
    canon.optional(chain.as_ref(), |canon, chain| canon.bytes(&chain.0));
    canon.optional(forgiven.as_ref(), |canon, forgiven| canon.bytes(&forgiven.0));
    canon.number(u64::from(*refusals));
    canon.number(u64::from(*capabilities));
    canon.optional_text(resource.as_ref().map(|resource| resource.as_str()));
    canon.optional_number(key_created_at.map(|at| at.0));
    canon.optional(superseded_by.as_ref(), Canon::operation_id);
    canon.optional(supersedes.as_ref(), Canon::operation_id);
    canon.optional(closed.as_ref(), |canon, closed| {
        canon.text(closed.client.as_str());
        canon.text(&closed.reason);
        canon.number(closed.at.0);
    });
    canon.optional(newest.as_ref(), execution);
}

fn execution(canon: &mut Canon, record: &Execution) {
    let Execution {
        id,
        attempt,
        state,
        owner,
        client,
        claim_id,
        request_hash,
        opened_at,
        capability,
        authority,
        effect_attempt,
        lease_epoch,
        deadline,
        renewed,
        sole_holder,
        report,
        unknown_since,
        claimed,
        reconciler,
        escalated_at,
        outcome: standing,
    } = record;
    canon.execution_id(id);
    canon.number(u64::from(attempt.0));
    canon.number(*state as u64);
    canon.text(owner);
    canon.text(client.as_str());
    canon.bytes(&claim_id.0);
    canon.bytes(&request_hash.0);
    canon.number(opened_at.0);
    canon.optional(capability.as_ref(), Canon::capability_id);
    canon.number(authority.len() as u64);
    authority.iter().for_each(|binding| canon.binding(binding));
    canon.number(u64::from(effect_attempt.0));
    canon.number(lease_epoch.0);
    canon.number(deadline.0);
    canon.flag(*renewed);
    canon.flag(*sole_holder);
    canon.optional(report.as_ref(), |canon, report| {
        canon.number(report.lease_epoch.0);
        canon.bytes(&report.content.0);
    });
    canon.optional_number(unknown_since.map(|since| since.0));
    canon.optional(claimed.as_ref(), |canon, claimed| {
        canon.number(claimed.outcome as u64);
        canon.optional_text(claimed.external_id.as_deref());
    });
    canon.optional(reconciler.as_ref(), |canon, held| {
        canon.text(&held.owner);
        canon.text(held.client.as_str());
        canon.number(held.deadline.0);
    });
    canon.optional_number(escalated_at.map(|at| at.0));
    canon.optional(standing.as_ref(), outcome);
}

fn outcome(canon: &mut Canon, record: &OutcomeRecord) {
    let OutcomeRecord {
        outcome,
        status_code,
        schema_version,
        has_result,
        result_ref,
        result_digest,
        external_id,
        reason,
        at,
    } = record;
    canon.number(*outcome as u64);
    canon.optional_number(status_code.map(u64::from));
    canon.optional_text(schema_version.as_deref());
    canon.flag(*has_result);
    canon.optional_text(result_ref.as_deref());
    canon.digest(result_digest.as_ref());
    canon.optional_text(external_id.as_deref());
    canon.optional_text(reason.as_deref());
    canon.number(at.0);
}

fn execution_row(canon: &mut Canon, record: &ExecutionRecord) {
    canon.row(&record.operation, record.birth);
    canon.optional(record.past.as_deref(), execution);
}

fn grant(canon: &mut Canon, record: &GrantRecord) {
    let GrantRecord { execution, client, request_hash, lease_epoch } = record;
    canon.number(u64::from(execution.slot.0));
    canon.bytes(&execution.random);
    canon.text(client.as_str());
    canon.bytes(&request_hash.0);
    canon.number(lease_epoch.0);
}

fn evidence(canon: &mut Canon, record: &EvidenceRecord) {
    canon.evidence(record);
    canon.bytes(&record.chain.0);
}

#[cfg(test)]
mod tests;
