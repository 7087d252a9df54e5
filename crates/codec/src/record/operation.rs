//! Bytes of an operation's row and of an execution's row: by far the most rows there are, so bytes count here.
//! Epochs are written as their distance from the operation's birth, later times as their distance from the first one.
//!
//! ```text
//! operation = flags, [more flags], slot, [hash, where it is not the internal key's first 20 bytes], birth, internal key, tenant,
//!             namespace, digest, correlation id?, created, updated - created, modified, terminal - created?, grants,
//!             evidence, said?, resource?, link?, refusals?, capabilities?, key created?, superseded by?, supersedes?, closed?, forgiven?,
//!             execution?
//! execution = flags, [more flags], id, attempt, state, owner, client, claim id, request hash, opened - created, epoch - birth,
//!             deadline, (report epoch - epoch, content)?, unknown since?, outcome?, capability?, bindings?, effect attempt?,
//!             reconciler?, escalated?, claimed?
//! outcome   = flags, outcome, status code?, schema version?, result reference?, result digest?, external id?, reason?, at
//! ```
//!
//! Flags of an operation, from the lowest: hash, correlation id, terminal, quarantined, said, execution, resource, more flags. More: link,
//! refusals, capabilities, key created, superseded by, supersedes, closed, forgiven.
//! Flags of an execution: renewed, sole holder, report, unknown since, outcome, capability, more flags. More: bindings, effect attempt,
//! reconciler, escalated, claimed. A past execution's row knows no creation: there `opened` stands alone.
//! Flags of an outcome: result (a row of its own), status code, schema version, result reference, result digest, external id, reason.
//! More flags are there exactly where one of them is set, and a number that may be absent is absent where it is 0.

use hapax_machine::ids::{Attempt, Birth, InternalKey, LeaseEpoch, OperationId, WallTime};
use hapax_machine::operation::{
    AcceptedReport, ClaimedOutcome, Closed, Execution, ExecutionRecord, OperationRecord, OutcomeRecord, Reconciler,
};

use crate::value::fields;
use crate::wire::{Error, Reader, Wire, get_list, put_delta, put_flags, put_list, put_some};

fields!(Closed: client, reason, at);
fields!(Reconciler: owner, client, deadline);
fields!(ClaimedOutcome: outcome, external_id);

/// A count whose absence means 0.
fn nonzero(count: u32) -> Option<u32> {
    (count != 0).then_some(count)
}

fn get_nonzero(from: &mut Reader<'_>, present: bool, what: &'static str) -> Result<u32, Error> {
    match from.get_if(present)? {
        Some(0) => Err(Error::Redundant { what }),
        count => Ok(count.unwrap_or(0)),
    }
}

/// More flags, of which one is set.
fn more_flags<const N: usize>(from: &mut Reader<'_>, present: bool, what: &'static str) -> Result<[bool; N], Error> {
    if !present {
        return Ok([false; N]);
    }
    let flags = from.flags(what)?;
    if flags.contains(&true) { Ok(flags) } else { Err(Error::Redundant { what }) }
}

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
            resource,
            execution,
            // The rare ones, written by themselves.
            chain: _,
            refusals: _,
            capabilities: _,
            key_created_at: _,
            superseded_by: _,
            supersedes: _,
            closed: _,
            forgiven: _,
        } = self;
        let own_hash = id.hash != prefix(internal_key);
        let more = Rare::of(self);
        put_flags(
            out,
            [
                own_hash,
                correlation_id.is_some(),
                terminal_at.is_some(),
                *quarantined,
                said.is_some(),
                execution.is_some(),
                resource.is_some(),
                more.any(),
            ],
        );
        if more.any() {
            put_flags(out, more.0);
        }
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
        put_some(out, resource.as_ref());
        Rare::put(self, out);
        if let Some(execution) = execution {
            put_execution(execution, id.birth.0, created_at.0, out);
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [own_hash, correlation_id, terminal_at, quarantined, said, execution, resource, more] =
            from.flags("operation")?;
        let [chain, refusals, capabilities, key_created_at, superseded_by, supersedes, closed, forgiven] =
            more_flags(from, more, "more of an operation")?;
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
        Ok(Self {
            id,
            internal_key,
            tenant,
            namespace,
            digest,
            correlation_id,
            created_at,
            updated_at: WallTime(from.delta(created_at.0)?),
            modified: Wire::get(from)?,
            terminal_at: if terminal_at { Some(WallTime(from.delta(created_at.0)?)) } else { None },
            quarantined,
            grants: Wire::get(from)?,
            evidence: Wire::get(from)?,
            said: from.get_if(said)?,
            resource: from.get_if(resource)?,
            chain: from.get_if(chain)?,
            refusals: get_nonzero(from, refusals, "number of refusals")?,
            capabilities: get_nonzero(from, capabilities, "number of capabilities")?,
            key_created_at: from.get_if(key_created_at)?,
            superseded_by: from.get_if(superseded_by)?,
            supersedes: from.get_if(supersedes)?,
            closed: from.get_if(closed)?,
            forgiven: from.get_if(forgiven)?,
            execution: if execution { Some(get_execution(from, birth.0, created_at.0)?) } else { None },
        })
    }
}

/// Which of the rare fields of an operation are there.
struct Rare([bool; 8]);

impl Rare {
    fn of(record: &OperationRecord) -> Self {
        Self([
            record.chain.is_some(),
            record.refusals != 0,
            record.capabilities != 0,
            record.key_created_at.is_some(),
            record.superseded_by.is_some(),
            record.supersedes.is_some(),
            record.closed.is_some(),
            record.forgiven.is_some(),
        ])
    }

    fn any(&self) -> bool {
        self.0.contains(&true)
    }

    fn put(record: &OperationRecord, out: &mut Vec<u8>) {
        put_some(out, record.chain.as_ref());
        put_some(out, nonzero(record.refusals).as_ref());
        put_some(out, nonzero(record.capabilities).as_ref());
        put_some(out, record.key_created_at.as_ref());
        put_some(out, record.superseded_by.as_ref());
        put_some(out, record.supersedes.as_ref());
        put_some(out, record.closed.as_ref());
        put_some(out, record.forgiven.as_ref());
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
            put_execution(past, birth.0, 0, out);
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        let [past] = from.flags("execution row")?;
        let operation = Wire::get(from)?;
        let birth: Birth = Wire::get(from)?;
        let past = if past { Some(Box::new(get_execution(from, birth.0, 0)?)) } else { None };
        Ok(Self { operation, birth, past })
    }
}

fn put_execution(execution: &Execution, birth: u64, created: u64, out: &mut Vec<u8>) {
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
        outcome,
    } = execution;
    let more = [
        !authority.is_empty(),
        effect_attempt != attempt,
        reconciler.is_some(),
        escalated_at.is_some(),
        claimed.is_some(),
    ];
    put_flags(
        out,
        [
            *renewed,
            *sole_holder,
            report.is_some(),
            unknown_since.is_some(),
            outcome.is_some(),
            capability.is_some(),
            more.contains(&true),
        ],
    );
    if more.contains(&true) {
        put_flags(out, more);
    }
    id.put(out);
    attempt.put(out);
    state.put(out);
    owner.put(out);
    client.put(out);
    claim_id.put(out);
    request_hash.put(out);
    put_delta(out, created, opened_at.0);
    put_delta(out, birth, lease_epoch.0);
    deadline.put(out);
    if let Some(AcceptedReport { lease_epoch: reported, content }) = report {
        put_delta(out, lease_epoch.0, reported.0);
        content.put(out);
    }
    put_some(out, unknown_since.as_ref());
    put_some(out, outcome.as_ref());
    put_some(out, capability.as_ref());
    if !authority.is_empty() {
        put_list(out, authority);
    }
    put_some(out, Some(effect_attempt).filter(|effect| *effect != attempt));
    put_some(out, reconciler.as_ref());
    put_some(out, escalated_at.as_ref());
    put_some(out, claimed.as_ref());
}

fn get_execution(from: &mut Reader<'_>, birth: u64, created: u64) -> Result<Execution, Error> {
    let [renewed, sole_holder, report, unknown_since, outcome, capability, more] = from.flags("execution")?;
    let [authority, effect_attempt, reconciler, escalated_at, claimed] =
        more_flags(from, more, "more of an execution")?;
    let (id, attempt, state) = (Wire::get(from)?, Wire::get(from)?, Wire::get(from)?);
    let (owner, client) = (Wire::get(from)?, Wire::get(from)?);
    let (claim_id, request_hash) = (Wire::get(from)?, Wire::get(from)?);
    let opened_at = WallTime(from.delta(created)?);
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
        opened_at,
        lease_epoch,
        deadline,
        renewed,
        sole_holder,
        report,
        unknown_since: from.get_if(unknown_since)?,
        outcome: from.get_if(outcome)?,
        capability: from.get_if(capability)?,
        authority: if authority { some_of(get_list(from)?)? } else { Vec::new() },
        effect_attempt: match from.get_if::<Attempt>(effect_attempt)? {
            Some(other) if other == attempt => return Err(Error::Redundant { what: "effect attempt" }),
            other => other.unwrap_or(attempt),
        },
        reconciler: from.get_if(reconciler)?,
        escalated_at: from.get_if(escalated_at)?,
        claimed: from.get_if(claimed)?,
    })
}

/// A list whose absence means that it is empty.
fn some_of<T>(list: Vec<T>) -> Result<Vec<T>, Error> {
    if list.is_empty() { Err(Error::Redundant { what: "list" }) } else { Ok(list) }
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
