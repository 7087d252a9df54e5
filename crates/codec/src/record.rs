//! Bytes of the stored rows of the replicated state. Each row opens with its version; keys are made by the store.
//! Persisted bytes never change meaning: a new layout is a new version, read beside the old one.
//!
//! | row | fields after the version byte |
//! |---|---|
//! | operation, execution | see [`operation`] |
//! | grant | execution, client, request hash, lease epoch |
//! | body | the bytes themselves |
//! | evidence | flags, source, client, execution?, claim id?, lease epoch?, outcome?, external id?, reason?, proof?, by?, met, at, revision, link |
//! | capability, decision, use, inbox, refusal | see [`authority`] |
//! | namespace | tenant, name, scope, on_lapse, attempts, conflict style, transport fields, partitions, authority, retention, reconcile pace, quota, takeover since?, version |
//! | status | floors, open, unknown, pace |
//! | tenant | id, system, disabled, rate?, version |
//! | token | flags, id, secret hash, tenant, client, namespaces, roles, expiry?, created, revoked? |
//! | epoch | tenant, scope, value, client, at |
//! | events | see [`events`] |
//! | head | cluster id, incarnation, clocks (term, lead_ms, lease time, wall), grant counter, state hash |
//! | applied | flag, log id? (term, node, index), membership |
//!
//! Flags of evidence, from the lowest: claim id, lease epoch, external id, reason, proof, execution, outcome, by. Flags of a token:
//! expiry, revoked.
//!
//! Room for a new field in a row that exists is a new version of it.

use hapax_machine::capability::{CapabilityRecord, DecisionRecord, UseRecord};
use hapax_machine::change::Head;
use hapax_machine::clock::Clocks;
use hapax_machine::epoch::EpochRecord;
use hapax_machine::evidence::EvidenceRecord;
use hapax_machine::grant::GrantCounter;
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::{NamespaceRecord, NamespaceStatus, Pace, Quota, Retention};
use hapax_machine::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord};
use hapax_machine::refusal::RefusalRecord;
use hapax_machine::tenant::{TenantRecord, TokenRecord};

use crate::log::LogId;
use crate::value::fields;
use crate::wire::{Error, Reader, Wire, get_list, put_flags, put_list, put_sized, put_some};

mod authority;
mod events;
mod operation;

pub use events::{decode_events, encode_events};

/// The version byte at the head of every row.
pub const VERSION: u8 = 1;

/// How far the log was applied, and the membership in force there; stored with the data it is true of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// The last entry applied.
    pub last_applied: Option<LogId>,
    /// The newest membership, in the consensus layer's own bytes; empty before the first.
    pub membership: Vec<u8>,
}

macro_rules! rows {
    ($($(#[$doc:meta])* $encode:ident, $decode:ident: $record:ty, $what:literal;)+) => {$(
        $(#[$doc])*
        pub fn $encode(record: &$record, out: &mut Vec<u8>) {
            out.push(VERSION);
            record.put(out);
        }

        /// Reads the row back.
        ///
        /// # Errors
        /// The bytes are not such a row of a known version.
        pub fn $decode(bytes: &[u8]) -> Result<$record, Error> {
            let mut from = Reader::open(bytes, $what, VERSION)?;
            let record = Wire::get(&mut from)?;
            from.end()?;
            Ok(record)
        }
    )+};
}

rows! {
    /// Appends an operation's row to `out`.
    encode_operation, decode_operation: OperationRecord, "operation row";
    /// Appends an execution's row to `out`.
    encode_execution, decode_execution: ExecutionRecord, "execution row";
    /// Appends a superseded claim's row to `out`.
    encode_grant, decode_grant: GrantRecord, "grant row";
    /// Appends an evidence row to `out`.
    encode_evidence, decode_evidence: EvidenceRecord, "evidence row";
    /// Appends a namespace's row to `out`.
    encode_namespace, decode_namespace: NamespaceRecord, "namespace row";
    /// Appends a token's row to `out`.
    encode_token, decode_token: TokenRecord, "token row";
    /// Appends the row of a namespace's status to `out`.
    encode_status, decode_status: NamespaceStatus, "status row";
    /// Appends a tenant's row to `out`.
    encode_tenant, decode_tenant: TenantRecord, "tenant row";
    /// Appends the row of a register of authority to `out`.
    encode_epoch, decode_epoch: EpochRecord, "epoch row";
    /// Appends a capability's row to `out`.
    encode_capability, decode_capability: CapabilityRecord, "capability row";
    /// Appends a decision's row to `out`.
    encode_decision, decode_decision: DecisionRecord, "decision row";
    /// Appends the row of a capability's use to `out`.
    encode_use, decode_use: UseRecord, "use row";
    /// Appends the row of an accepted delivery to `out`.
    encode_inbox, decode_inbox: InboxRecord, "inbox row";
    /// Appends a refusal's row to `out`.
    encode_refusal, decode_refusal: RefusalRecord, "refusal row";
    /// Appends the head's row to `out`.
    encode_head, decode_head: Head, "head row";
    /// Appends the row of what was applied to `out`.
    encode_applied, decode_applied: Applied, "applied row";
}

/// Appends an inline result's row to `out`.
pub fn encode_body(body: &[u8], out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(body);
}

/// Reads an inline result's row.
///
/// # Errors
/// The bytes are not such a row of a known version.
pub fn decode_body(bytes: &[u8]) -> Result<Body, Error> {
    Ok(Reader::open(bytes, "body row", VERSION)?.rest().to_vec())
}

fields!(GrantRecord: execution, client, request_hash, lease_epoch);
fields!(Clocks: term, lead_ms, lease_time, wall);
fields!(Head: cluster_id, incarnation, clocks, grants, state_hash);
fields!(LogId: term, node, index);
fields!(TenantRecord: id, system, disabled, requests_per_second, version);
fields!(EpochRecord: tenant, scope, value, client, at);
fields!(NamespaceStatus: floors, open, unknown, pace);
fields!(Pace: since, granted);
fields!(Retention: body_ms, identity_ms, expired_keys);
fields!(Quota: open_operations, requests_per_second, key_claims_per_second);

impl Wire for GrantCounter {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Wire::get(from).map(Self)
    }
}

impl Wire for Applied {
    fn put(&self, out: &mut Vec<u8>) {
        self.last_applied.put(out);
        put_sized(out, &self.membership);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self { last_applied: Wire::get(from)?, membership: Wire::get(from)? })
    }
}

impl Wire for NamespaceRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let Self {
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
        } = self;
        tenant.put(out);
        name.put(out);
        scope.put(out);
        on_lapse.put(out);
        attempts.put(out);
        conflict_style.put(out);
        put_list(out, transport_fields);
        partitions.put(out);
        authority.put(out);
        retention.put(out);
        reconcile_per_minute.put(out);
        quota.put(out);
        takeover_since.put(out);
        version.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            tenant: Wire::get(from)?,
            name: Wire::get(from)?,
            scope: Wire::get(from)?,
            on_lapse: Wire::get(from)?,
            attempts: Wire::get(from)?,
            conflict_style: Wire::get(from)?,
            transport_fields: get_list(from)?,
            partitions: Wire::get(from)?,
            authority: Wire::get(from)?,
            retention: Wire::get(from)?,
            reconcile_per_minute: Wire::get(from)?,
            quota: Wire::get(from)?,
            takeover_since: Wire::get(from)?,
            version: Wire::get(from)?,
        })
    }
}

impl Wire for TokenRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { id, secret_hash, tenant, client, namespaces, roles, expires_at_ms, created_at, revoked_at } = self;
        put_flags(out, [expires_at_ms.is_some(), revoked_at.is_some()]);
        id.put(out);
        secret_hash.put(out);
        tenant.put(out);
        client.put(out);
        put_list(out, namespaces);
        roles.put(out);
        put_some(out, expires_at_ms.as_ref());
        created_at.put(out);
        put_some(out, revoked_at.as_ref());
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [expires_at_ms, revoked_at] = from.flags("token")?;
        Ok(Self {
            id: Wire::get(from)?,
            secret_hash: Wire::get(from)?,
            tenant: Wire::get(from)?,
            client: Wire::get(from)?,
            namespaces: get_list(from)?,
            roles: Wire::get(from)?,
            expires_at_ms: from.get_if(expires_at_ms)?,
            created_at: Wire::get(from)?,
            revoked_at: from.get_if(revoked_at)?,
        })
    }
}

impl Wire for EvidenceRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let Self {
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
            chain,
        } = self;
        put_flags(
            out,
            [
                claim_id.is_some(),
                lease_epoch.is_some(),
                external_id.is_some(),
                reason.is_some(),
                proof.is_some(),
                execution.is_some(),
                outcome.is_some(),
                by.is_some(),
            ],
        );
        source.put(out);
        client.put(out);
        put_some(out, execution.as_ref());
        put_some(out, claim_id.as_ref());
        put_some(out, lease_epoch.as_ref());
        put_some(out, outcome.as_ref());
        put_some(out, external_id.as_ref());
        put_some(out, reason.as_ref());
        put_some(out, proof.as_ref());
        put_some(out, by.as_ref());
        met.put(out);
        at.put(out);
        revision.put(out);
        chain.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [claim_id, lease_epoch, external_id, reason, proof, execution, outcome, by] = from.flags("evidence")?;
        Ok(Self {
            source: Wire::get(from)?,
            client: Wire::get(from)?,
            execution: from.get_if(execution)?,
            claim_id: from.get_if(claim_id)?,
            lease_epoch: from.get_if(lease_epoch)?,
            outcome: from.get_if(outcome)?,
            external_id: from.get_if(external_id)?,
            reason: from.get_if(reason)?,
            proof: from.get_if(proof)?,
            by: from.get_if(by)?,
            met: Wire::get(from)?,
            at: Wire::get(from)?,
            revision: Wire::get(from)?,
            chain: Wire::get(from)?,
        })
    }
}
