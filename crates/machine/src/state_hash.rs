//! The state hash: a chain over the logical changes of every entry, equal on all nodes at equal indexes.
//! Its bytes are its own: they do not follow the storage encoding, so that an upgrade of that cannot move it.

use sha2::{Digest as _, Sha256};

use crate::change::{Change, Head};
use crate::command::{EntryHead, ResultData};
use crate::evidence::EvidenceRecord;
use crate::ids::{Birth, Digest, OperationKey, Revision};
use crate::namespace::NamespaceRecord;
use crate::operation::{Execution, ExecutionRecord, GrantRecord, OperationRecord, OutcomeRecord};
use crate::tenant::TokenRecord;

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

    fn revision(&mut self, revision: &Revision) {
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
        Change::Operation(record) => {
            canon.number(3);
            operation(canon, record);
        }
        Change::Execution(tenant, id, record) => {
            canon.number(4);
            canon.bytes(&tenant.0);
            canon.number(u64::from(id.slot.0));
            canon.bytes(&id.random);
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
    }
}

fn namespace(canon: &mut Canon, record: &NamespaceRecord) {
    let NamespaceRecord { tenant, name, scope, on_lapse, attempts, conflict_style, transport_fields, partitions } =
        record;
    canon.text(tenant.as_str());
    canon.text(name.as_str());
    canon.number(*scope as u64);
    canon.number(*on_lapse as u64);
    canon.number(*attempts as u64);
    canon.number(*conflict_style as u64);
    canon.number(transport_fields.len() as u64);
    transport_fields.iter().for_each(|field| canon.text(field));
    canon.number(u64::from(*partitions));
}

fn token(canon: &mut Canon, record: &TokenRecord) {
    let TokenRecord { id, secret_hash, tenant, client, namespaces, roles, expires_at_ms } = record;
    canon.text(id);
    canon.bytes(secret_hash);
    canon.text(tenant.as_str());
    canon.text(client.as_str());
    canon.number(namespaces.len() as u64);
    namespaces.iter().for_each(|name| canon.text(name.as_str()));
    canon.number(u64::from(*roles));
    canon.optional_number(*expires_at_ms);
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
        execution: newest,
    } = record;
    canon.number(u64::from(id.slot.0));
    canon.bytes(&id.hash);
    canon.number(id.birth.0);
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
    execution(canon, newest);
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
        lease_epoch,
        deadline,
        renewed,
        sole_holder,
        report,
        unknown_since,
        outcome: standing,
    } = record;
    canon.number(u64::from(id.slot.0));
    canon.bytes(&id.random);
    canon.number(u64::from(attempt.0));
    canon.number(*state as u64);
    canon.text(owner);
    canon.text(client.as_str());
    canon.bytes(&claim_id.0);
    canon.bytes(&request_hash.0);
    canon.number(lease_epoch.0);
    canon.number(deadline.0);
    canon.flag(*renewed);
    canon.flag(*sole_holder);
    canon.optional(report.as_ref(), |canon, report| {
        canon.number(report.lease_epoch.0);
        canon.bytes(&report.content.0);
    });
    canon.optional_number(unknown_since.map(|since| since.0));
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
    canon.optional(record.past.as_ref(), execution);
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
    let EvidenceRecord {
        source,
        client,
        execution,
        claim_id,
        lease_epoch,
        outcome,
        external_id,
        reason,
        proof,
        met,
        at,
        revision,
    } = record;
    canon.number(*source as u64);
    canon.text(client.as_str());
    canon.number(u64::from(execution.slot.0));
    canon.bytes(&execution.random);
    canon.optional(claim_id.as_ref(), |canon, id| canon.bytes(&id.0));
    canon.optional_number(lease_epoch.map(|epoch| epoch.0));
    canon.number(*outcome as u64);
    canon.optional_text(external_id.as_deref());
    canon.optional_text(reason.as_deref());
    canon.optional_text(proof.as_deref());
    canon.number(*met as u64);
    canon.number(at.0);
    canon.revision(revision);
}

#[cfg(test)]
mod tests;
