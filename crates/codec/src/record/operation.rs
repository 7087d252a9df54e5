//! Bytes of an operation's row and of an execution's row: by far the most rows there are, so bytes count here.
//! Epochs are written as their distance from the operation's birth, later times as their distance from the first one.
//!
//! ```text
//! operation = flags, slot, [hash, where it is not the internal key's first 20 bytes], birth, internal key, tenant,
//!             namespace, digest, correlation id?, created, updated - created, modified, terminal - created?, grants,
//!             evidence, said?, execution
//! execution = flags, id, attempt, state, owner, client, claim id, request hash, epoch - birth, deadline,
//!             (report epoch - epoch, content)?, unknown since?, outcome?
//! outcome   = flags, outcome, status code?, schema version?, result reference?, result digest?, external id?, reason?, at
//! ```
//!
//! Flags of an operation, from the lowest: hash, correlation id, terminal, quarantined, said. Reserved, for fields to come:
//! 5 superseded by another, 6 closed, 7 a second flag byte (there: bound to authority epochs).
//! Flags of an execution: renewed, sole holder, report, unknown since, outcome. Reserved: 5 reconciling or escalated, 6 opened by a
//! capability, 7 a second flag byte.

use hapax_machine::ids::{Birth, InternalKey, LeaseEpoch, OperationId, WallTime};
use hapax_machine::operation::{AcceptedReport, Execution, ExecutionRecord, OperationRecord, OutcomeRecord};

use crate::wire::{Error, Reader, Wire, put_delta, put_flags, put_some};

impl Wire for OperationRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let Self {
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
            execution,
        } = self;
        let own_hash = id.hash != prefix(internal_key);
        put_flags(out, [own_hash, correlation_id.is_some(), terminal_at.is_some(), *quarantined, said.is_some()]);
        id.slot.put(out);
        if own_hash {
            id.hash.put(out);
        }
        id.birth.put(out);
        internal_key.put(out);
        tenant.put(out);
        namespace.put(out);
        digest.put(out);
        put_some(out, correlation_id.as_ref());
        created_at.put(out);
        put_delta(out, created_at.0, updated_at.0);
        modified.put(out);
        if let Some(at) = terminal_at {
            put_delta(out, created_at.0, at.0);
        }
        grants.put(out);
        evidence.put(out);
        put_some(out, said.as_ref());
        put_execution(execution, id.birth.0, out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [own_hash, correlation_id, terminal_at, quarantined, said] = from.flags("operation")?;
        let slot = Wire::get(from)?;
        let own_hash: Option<[u8; 20]> = from.get_if(own_hash)?;
        let birth = Wire::get(from)?;
        let internal_key = Wire::get(from)?;
        if own_hash == Some(prefix(&internal_key)) {
            return Err(Error::Redundant { what: "operation hash" });
        }
        let id = OperationId { slot, hash: own_hash.unwrap_or(prefix(&internal_key)), birth };
        let (tenant, namespace, digest) = (Wire::get(from)?, Wire::get(from)?, Wire::get(from)?);
        let correlation_id = from.get_if(correlation_id)?;
        let created_at: WallTime = Wire::get(from)?;
        let updated_at = WallTime(from.delta(created_at.0)?);
        let modified = Wire::get(from)?;
        let terminal_at = if terminal_at { Some(WallTime(from.delta(created_at.0)?)) } else { None };
        let (grants, evidence) = (Wire::get(from)?, Wire::get(from)?);
        let said = from.get_if(said)?;
        let execution = get_execution(from, id.birth.0)?;
        Ok(Self {
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
            execution,
        })
    }
}

fn prefix(key: &InternalKey) -> [u8; 20] {
    std::array::from_fn(|n| key.0[n])
}

impl Wire for ExecutionRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { operation, birth, past } = self;
        put_flags(out, [past.is_some()]);
        operation.put(out);
        birth.put(out);
        if let Some(past) = past {
            put_execution(past, birth.0, out);
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [past] = from.flags("execution row")?;
        let operation = Wire::get(from)?;
        let birth: Birth = Wire::get(from)?;
        let past = if past { Some(get_execution(from, birth.0)?) } else { None };
        Ok(Self { operation, birth, past })
    }
}

fn put_execution(execution: &Execution, birth: u64, out: &mut Vec<u8>) {
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
        outcome,
    } = execution;
    put_flags(out, [*renewed, *sole_holder, report.is_some(), unknown_since.is_some(), outcome.is_some()]);
    id.put(out);
    attempt.put(out);
    state.put(out);
    owner.put(out);
    client.put(out);
    claim_id.put(out);
    request_hash.put(out);
    put_delta(out, birth, lease_epoch.0);
    deadline.put(out);
    if let Some(AcceptedReport { lease_epoch: reported, content }) = report {
        put_delta(out, lease_epoch.0, reported.0);
        content.put(out);
    }
    put_some(out, unknown_since.as_ref());
    put_some(out, outcome.as_ref());
}

fn get_execution(from: &mut Reader<'_>, birth: u64) -> Result<Execution, Error> {
    let [renewed, sole_holder, report, unknown_since, outcome] = from.flags("execution")?;
    let (id, attempt, state) = (Wire::get(from)?, Wire::get(from)?, Wire::get(from)?);
    let (owner, client) = (Wire::get(from)?, Wire::get(from)?);
    let (claim_id, request_hash) = (Wire::get(from)?, Wire::get(from)?);
    let lease_epoch = LeaseEpoch(from.delta(birth)?);
    let deadline = Wire::get(from)?;
    let report = if report {
        let reported = LeaseEpoch(from.delta(lease_epoch.0)?);
        Some(AcceptedReport { lease_epoch: reported, content: Wire::get(from)? })
    } else {
        None
    };
    Ok(Execution {
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
        unknown_since: from.get_if(unknown_since)?,
        outcome: from.get_if(outcome)?,
    })
}

impl Wire for OutcomeRecord {
    fn put(&self, out: &mut Vec<u8>) {
        let Self {
            outcome,
            status_code,
            schema_version,
            has_result,
            result_ref,
            result_digest,
            external_id,
            reason,
            at,
        } = self;
        put_flags(
            out,
            [
                *has_result,
                status_code.is_some(),
                schema_version.is_some(),
                result_ref.is_some(),
                result_digest.is_some(),
                external_id.is_some(),
                reason.is_some(),
            ],
        );
        outcome.put(out);
        put_some(out, status_code.as_ref());
        put_some(out, schema_version.as_ref());
        put_some(out, result_ref.as_ref());
        put_some(out, result_digest.as_ref());
        put_some(out, external_id.as_ref());
        put_some(out, reason.as_ref());
        at.put(out);
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [has_result, status_code, schema_version, result_ref, result_digest, external_id, reason] =
            from.flags("outcome record")?;
        Ok(Self {
            has_result,
            outcome: Wire::get(from)?,
            status_code: from.get_if(status_code)?,
            schema_version: from.get_if(schema_version)?,
            result_ref: from.get_if(result_ref)?,
            result_digest: from.get_if(result_digest)?,
            external_id: from.get_if(external_id)?,
            reason: from.get_if(reason)?,
            at: Wire::get(from)?,
        })
    }
}
