//! Changes of the machine as rows to write: which family, which key, which bytes.
//! A terminal operation enters `terminal` and leaves `live` in the same batch, so that it is always in exactly one.

use hapax_codec::record::{self, Applied};
use hapax_machine::ids::GroupId;
use hapax_machine::{Change, Changes};

use super::disk::{Family, RowBatch};
use super::keys;

/// The state hash is kept at every multiple of this many entries.
pub const HASH_EVERY: u64 = 1_024;

/// So many of them are kept: nodes compare the newest index that both have.
pub(super) const HASHES_KEPT: u64 = 1_024;

/// Adds the rows of a commit to `batch`.
pub(super) fn rows_of(batch: &mut RowBatch, group: GroupId, applied: &Applied, changes: &Changes) {
    for change in &changes.rows {
        row_of(batch, group, change);
    }
    batch.put(Family::Meta, &keys::head(group), |out| record::encode_head(&changes.head, out));
    batch.put(Family::Meta, &keys::applied(group), |out| record::encode_applied(applied, out));
    let index = applied.last_applied.map_or(0, |id| id.index);
    if index > 0 && index.is_multiple_of(HASH_EVERY) {
        let hash = changes.head.state_hash;
        batch.put(Family::Meta, &keys::state_hash(group, index), |out| out.extend_from_slice(&hash));
        if let Some(old) = index.checked_sub(HASH_EVERY * HASHES_KEPT) {
            batch.delete(Family::Meta, &keys::state_hash(group, old));
        }
    }
}

fn row_of(batch: &mut RowBatch, group: GroupId, change: &Change) {
    match change {
        Change::Namespace(record) => {
            let key = keys::namespace(group, &record.tenant, &record.name);
            batch.put(Family::Meta, &key, |out| record::encode_namespace(record, out));
        }
        Change::Token(record) => {
            batch.put(Family::Meta, &keys::token(group, &record.id), |out| record::encode_token(record, out));
        }
        Change::Operation(record) => {
            let key = keys::operation(group, &record.key());
            if record.state().is_terminal() {
                batch.delete(Family::Live, &key);
                batch.put(Family::Terminal, &key, |out| record::encode_operation(record, out));
            } else {
                batch.put(Family::Live, &key, |out| record::encode_operation(record, out));
            }
        }
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
    }
}
