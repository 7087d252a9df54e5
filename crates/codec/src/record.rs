//! Bytes of the stored rows of the replicated state. Each row opens with its version; keys are made by the store.
//! Persisted bytes never change meaning: a new layout is a new version, read beside the old one.
//!
//! | row | fields after the version byte |
//! |---|---|
//! | operation, execution | see [`operation`] |
//! | grant | execution, client, request hash, lease epoch |
//! | body | the bytes themselves |
//! | evidence | flags, source, client, execution, claim id?, lease epoch?, outcome, external id?, reason?, proof?, met, at, revision |
//! | namespace | tenant, name, scope, on_lapse, attempts, conflict style, transport fields, partitions |
//! | token | flags, id, secret hash, tenant, client, namespaces, roles, expiry? |
//! | head | cluster id, incarnation, clocks (term, lead_ms, lease time, wall), grant counter, state hash |
//! | applied | flag, log id? (term, node, index), membership |
//!
//! Kinds of rows to come (capability, inbox message, authority epoch, floors, event) get records of their own; room for a new
//! field in a row that exists is a new version of it.

use hapax_machine::change::Head;
use hapax_machine::clock::Clocks;
use hapax_machine::evidence::EvidenceRecord;
use hapax_machine::grant::GrantCounter;
use hapax_machine::namespace::NamespaceRecord;
use hapax_machine::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord};
use hapax_machine::tenant::TokenRecord;

use crate::log::LogId;
use crate::value::fields;
use crate::wire::{Error, Reader, Wire, get_list, put_flags, put_list, put_sized, put_some};

mod operation;

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
        let Self { tenant, name, scope, on_lapse, attempts, conflict_style, transport_fields, partitions } = self;
        tenant.put(out);
        name.put(out);
        scope.put(out);
        on_lapse.put(out);
        attempts.put(out);
        conflict_style.put(out);
        put_list(out, transport_fields);
        partitions.put(out);
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
        })
    }
}

impl Wire for TokenRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { id, secret_hash, tenant, client, namespaces, roles, expires_at_ms } = self;
        put_flags(out, [expires_at_ms.is_some()]);
        id.put(out);
        secret_hash.put(out);
        tenant.put(out);
        client.put(out);
        put_list(out, namespaces);
        roles.put(out);
        put_some(out, expires_at_ms.as_ref());
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [expires_at_ms] = from.flags("token")?;
        Ok(Self {
            id: Wire::get(from)?,
            secret_hash: Wire::get(from)?,
            tenant: Wire::get(from)?,
            client: Wire::get(from)?,
            namespaces: get_list(from)?,
            roles: Wire::get(from)?,
            expires_at_ms: from.get_if(expires_at_ms)?,
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
            reason,
            proof,
            met,
            at,
            revision,
        } = self;
        put_flags(
            out,
            [claim_id.is_some(), lease_epoch.is_some(), external_id.is_some(), reason.is_some(), proof.is_some()],
        );
        source.put(out);
        client.put(out);
        execution.put(out);
        put_some(out, claim_id.as_ref());
        put_some(out, lease_epoch.as_ref());
        outcome.put(out);
        put_some(out, external_id.as_ref());
        put_some(out, reason.as_ref());
        put_some(out, proof.as_ref());
        met.put(out);
        at.put(out);
        revision.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [claim_id, lease_epoch, external_id, reason, proof] = from.flags("evidence")?;
        Ok(Self {
            source: Wire::get(from)?,
            client: Wire::get(from)?,
            execution: Wire::get(from)?,
            claim_id: from.get_if(claim_id)?,
            lease_epoch: from.get_if(lease_epoch)?,
            outcome: Wire::get(from)?,
            external_id: from.get_if(external_id)?,
            reason: from.get_if(reason)?,
            proof: from.get_if(proof)?,
            met: Wire::get(from)?,
            at: Wire::get(from)?,
            revision: Wire::get(from)?,
        })
    }
}
