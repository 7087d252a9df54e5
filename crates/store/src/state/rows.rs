//! Changes of the machine as rows to write: which family, which key, which bytes.
//! A terminal operation enters `terminal` and leaves `live` in the same batch, so that it is always in exactly one.

use hapax_codec::record::{self, Applied};
use hapax_machine::change::Event;
use hapax_machine::ids::{GroupId, WallTime};
use hapax_machine::operation::{OperationRecord, Place};
use hapax_machine::{Change, Changes};

use super::disk::{Family, RowBatch};
use super::{index, keys};

/// The state hash is kept at every multiple of this many entries.
pub const HASH_EVERY: u64 = 1_024;

/// So many of them are kept: nodes compare the newest index that both have.
pub(super) const HASHES_KEPT: u64 = 1_024;

/// A mark is set about so often, in milliseconds of the replicated wall: see [`super::horizon`].
const MARK_EVERY_MS: u64 = 60 * 60 * 1_000;

/// Adds the rows of a commit to `batch`; before it the wall stood at `wall`.
pub(super) fn rows_of(batch: &mut RowBatch, group: GroupId, applied: &Applied, changes: &Changes, wall: WallTime) {
    for change in &changes.rows {
        row_of(batch, group, change);
    }
    // Grouped by entry: the rows are the same however entries share commits.
    for events in changes.events.chunk_by(|a, b| a.revision.index == b.revision.index) {
        put_events(batch, group, events);
    }
    batch.put(Family::Meta, &keys::head(group), |out| record::encode_head(&changes.head, out));
    batch.put(Family::Meta, &keys::applied(group), |out| record::encode_applied(applied, out));
    if let Some((wall, birth)) = mark(changes, wall) {
        batch.put(Family::Meta, &keys::mark(group, wall), |out| out.extend_from_slice(&birth.to_be_bytes()));
    }
    let index = applied.last_applied.map_or(0, |id| id.index);
    if index > 0 && index.is_multiple_of(HASH_EVERY) {
        let hash = changes.head.state_hash;
        batch.put(Family::Meta, &keys::state_hash(group, index), |out| out.extend_from_slice(&hash));
        if let Some(old) = index.checked_sub(HASH_EVERY * HASHES_KEPT) {
            batch.delete(Family::Meta, &keys::state_hash(group, old));
        }
    }
}

/// Where the wall and the grant counter stand now, where the wall has come into another hour.
pub(super) fn mark(changes: &Changes, before: WallTime) -> Option<(WallTime, u64)> {
    let wall = changes.head.clocks.wall;
    (before.0 / MARK_EVERY_MS != wall.0 / MARK_EVERY_MS).then_some((wall, changes.head.grants.0))
}

fn put_events(batch: &mut RowBatch, group: GroupId, events: &[Event]) {
    if let Some(first) = events.first() {
        let key = keys::events(group, first.revision.index);
        batch.put(Family::Events, &key, |out| record::encode_events(events, out));
    }
}

fn row_of(batch: &mut RowBatch, group: GroupId, change: &Change) {
    match change {
        Change::Operation { record, was } => put_operation(batch, group, record, *was),
        Change::Execution(tenant, id, record) => {
            let key = keys::execution(group, *tenant, id);
            batch.put(Family::Execution, &key, |out| record::encode_execution(record, out));
        }
        Change::Grant(key, birth, claim, record) => {
            let key = keys::grant(group, key, *birth, claim);
            batch.put(Family::Grant, &key, |out| record::encode_grant(record, out));
        }
        Change::Body(key, birth, body) => {
            batch.put(Family::Body, &keys::body(group, key, *birth), |out| record::encode_body(body, out));
        }
        Change::Evidence(key, birth, number, record) => {
            let key = keys::evidence(group, key, *birth, *number);
            batch.put(Family::Evidence, &key, |out| record::encode_evidence(record, out));
        }
        Change::Capability(record) => {
            let key = keys::capability(group, hapax_machine::ids::TenantTag::of(&record.tenant), &record.id);
            batch.put(Family::Authority, &key, |out| record::encode_capability(record, out));
            index::of_capability(batch, group, record);
        }
        Change::Decision(key, record) => {
            let key = keys::decision(group, key);
            batch.put(Family::Authority, &key, |out| record::encode_decision(record, out));
        }
        Change::Use(tenant, id, key, record) => {
            let key = keys::used(group, *tenant, id, key);
            batch.put(Family::Authority, &key, |out| record::encode_use(record, out));
        }
        Change::Inbox(key, record) => {
            batch.put(Family::Authority, &keys::inbox(group, key), |out| record::encode_inbox(record, out));
        }
        Change::Refusal(key, record) => {
            batch.put(Family::Authority, &keys::refusal(group, key), |out| record::encode_refusal(record, out));
            index::of_refusal(batch, group, key, record);
        }
        Change::Namespace(_) | Change::Status(..) | Change::Tenant(_) | Change::Token(_) | Change::Epoch(_) => {
            put_meta(batch, group, change);
        }
    }
}

fn put_operation(batch: &mut RowBatch, group: GroupId, record: &OperationRecord, was: Option<Place>) {
    let key = keys::operation(group, &record.key());
    let family = if record.state().is_terminal() { Family::Terminal } else { Family::Live };
    if family == Family::Terminal {
        batch.delete(Family::Live, &key);
    }
    batch.put(family, &key, |out| record::encode_operation(record, out));
    index::of_operation(batch, group, record, was);
}

fn put_meta(batch: &mut RowBatch, group: GroupId, change: &Change) {
    match change {
        Change::Namespace(record) => {
            let key = keys::namespace(group, &record.tenant, &record.name);
            batch.put(Family::Meta, &key, |out| record::encode_namespace(record, out));
        }
        Change::Status(tenant, name, record) => {
            let key = keys::status(group, tenant, name);
            batch.put(Family::Meta, &key, |out| record::encode_status(record, out));
        }
        Change::Tenant(record) => {
            batch.put(Family::Meta, &keys::tenant(group, &record.id), |out| record::encode_tenant(record, out));
        }
        Change::Token(record) => {
            batch.put(Family::Meta, &keys::token(group, &record.id), |out| record::encode_token(record, out));
        }
        Change::Epoch(record) => {
            let key = keys::epoch(group, &record.tenant, &record.scope);
            batch.put(Family::Meta, &key, |out| record::encode_epoch(record, out));
        }
        _ => unreachable!("{change:?} is no row of meta"),
    }
}
