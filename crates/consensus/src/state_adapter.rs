//! openraft's state machine over the replicated state: committed entries in, rows and answers out.
//! Owns the run: which entries share one overlay and one write. What a command means is `machine`'s.
//!
//! ```text
//! entries ─► decode ─► machine::apply_entry over one overlay ─► one write (rows, applied id, membership) ─► observers ─► answers
//! ```
//!
//! Invariants:
//! - Rows, the applied id and the membership of a run are written together or not at all.
//! - **No answer leaves before its write**, and no observer hears of it before that either.
//! - A run ends at every multiple of [`HASH_EVERY`]: the state hash that is kept there is that of exactly that entry.
//! - Whatever cannot be applied stops the node: the state would no longer follow the log.

use std::io;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use hapax_codec::command::decode_batch;
use hapax_codec::membership as bytes_of;
use hapax_codec::record::Applied as AppliedRow;
use hapax_machine::apply::{Fault, apply_entry};
use hapax_machine::ids::GroupId;
use hapax_machine::{EntryHead, Outcome, Overlay, View};
use hapax_store::seam::StorageFault;
use hapax_store::state::{HASH_EVERY, StateStore};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};

use crate::log_adapter::{Durable, id_from_log, id_to_log, membership_from_bytes, membership_to_bytes};
use crate::observer::{Applied, ApplyObserver};
use crate::snapshot::{Builder, Snapshots};
use crate::types::{
    ApplyResponse, CommittedLeaderId, Entry, LogId, Membership, Snapshot, SnapshotFiles, SnapshotMeta,
    StoredMembership, TypeConfig,
};

/// The one Raft group of today.
pub const GROUP: GroupId = GroupId(0);

/// Entries that share one write, at most.
const RUN_ENTRIES_MAX: usize = 256;
/// Bytes of commands that share one write, about.
const RUN_BYTES_MAX: usize = 4 << 20;

/// The replicated state, as openraft sees it.
pub struct StateAdapter {
    state: StateStore,
    observers: Vec<Arc<dyn ApplyObserver>>,
    snapshots: Arc<Snapshots>,
    last_applied: Option<LogId>,
    membership: StoredMembership,
}

impl StateAdapter {
    /// Wraps an open state; the observers hear of every run after its write.
    ///
    /// # Errors
    /// The stored membership cannot be decoded.
    pub fn new(
        state: StateStore,
        observers: Vec<Arc<dyn ApplyObserver>>,
        snapshots: Arc<Snapshots>,
    ) -> io::Result<Self> {
        let (last_applied, membership) = decode_applied(&state.applied())?;
        Ok(Self { state, observers, snapshots, last_applied, membership })
    }

    /// Applies one run.
    fn run(&mut self, run: Vec<EntryResponder<TypeConfig>>) -> io::Result<()> {
        let Some(last) = run.last().map(|(entry, _)| entry.log_id) else { return Ok(()) };
        let view = self.state.view();
        let mut overlay = Overlay::new(&view);
        let mut membership = None;
        let mut answers = Vec::with_capacity(run.len());
        for (entry, responder) in run {
            let outcomes = match &entry.payload {
                EntryPayload::Blank => Vec::new(),
                EntryPayload::Normal(proposal) => apply_normal(&mut overlay, entry.log_id, &proposal.0)?,
                EntryPayload::Membership(members) => {
                    membership = Some(StoredMembership::new(Some(entry.log_id), members.clone()));
                    Vec::new()
                }
            };
            answers.push((responder, outcomes));
        }
        let changes = overlay.into_changes();
        if let Some(membership) = membership {
            self.membership = membership;
        }
        let applied = encode_applied(Some(last), &self.membership)?;
        self.state.commit(&applied, &changes).map_err(io::Error::other)?;
        self.last_applied = Some(last);
        let applied = Applied { index: last.index, changes: &changes };
        self.observers.iter().for_each(|observer| observer.applied(&applied));
        answers.into_iter().for_each(answer);
        Ok(())
    }
}

fn answer((responder, outcomes): (Option<ApplyResponder<TypeConfig>>, Vec<Outcome>)) {
    if let Some(responder) = responder {
        responder.send(ApplyResponse { outcomes });
    }
}

/// Applies a batch of commands on top of `overlay`.
fn apply_normal<V: View<Error = StorageFault>>(
    overlay: &mut Overlay<'_, V>,
    id: LogId,
    payload: &[u8],
) -> io::Result<Vec<Outcome>> {
    let batch = decode_batch(payload).map_err(|error| at(id, &error))?;
    let term = id.leader_id.term;
    if batch.term != term {
        // Its stamp was measured in another leadership and must not move the clocks. Every node sees the same entry,
        // so that passing over it keeps the replicas equal; its proposer learns no outcome.
        tracing::error!(%id, stamped_in = batch.term, "an entry carries a stamp of another term; it is passed over");
        return Ok(Vec::new());
    }
    let head = EntryHead { group: GROUP, index: id.index, term, rules: batch.rules, stamp: batch.stamp };
    match apply_entry(overlay, &head, &batch.envelopes) {
        Ok((changes, outcomes)) => {
            overlay.absorb(changes);
            Ok(outcomes)
        }
        Err(Fault::View(fault)) => Err(io::Error::other(fault)),
        Err(Fault::UnknownRules(rules)) => Err(at(id, &format!("rules {} are newer than this build", rules.0))),
    }
}

fn at(id: LogId, reason: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("entry {id} cannot be applied: {reason}"))
}

impl RaftStateMachine<TypeConfig> for StateAdapter {
    type SnapshotData = SnapshotFiles;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let (mut run, mut bytes) = (Vec::new(), 0);
        while let Some(next) = entries.next().await {
            let next = next?;
            bytes += payload_len(&next.0);
            let ends_run = next.0.log_id.index.is_multiple_of(HASH_EVERY);
            run.push(next);
            if ends_run || run.len() >= RUN_ENTRIES_MAX || bytes >= RUN_BYTES_MAX {
                self.run(std::mem::take(&mut run))?;
                bytes = 0;
                // A node that has much to apply must still send heartbeats.
                tokio::task::yield_now().await;
            }
        }
        self.run(run)
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        Builder::new(Arc::clone(&self.snapshots))
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, files: SnapshotFiles) -> Result<(), io::Error> {
        let (snapshots, snapshot) = (Arc::clone(&self.snapshots), Snapshot { meta: meta.clone(), snapshot: files });
        let installed = tokio::task::spawn_blocking(move || snapshots.install(snapshot));
        installed.await.map_err(io::Error::other)??;
        (self.last_applied, self.membership) = decode_applied(&self.state.applied())?;
        metrics::counter!("hapax_snapshots_installed_total").increment(1);
        self.observers.iter().for_each(|observer| observer.installed());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        Ok(self.snapshots.current())
    }
}

fn payload_len(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(proposal) => proposal.0.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    }
}

/// The applied row as openraft sees it.
pub(crate) fn decode_applied(row: &AppliedRow) -> io::Result<(Option<LogId>, StoredMembership)> {
    let last_applied = row.last_applied.map(id_from_log);
    if row.membership.is_empty() {
        return Ok((last_applied, StoredMembership::default()));
    }
    let stored = bytes_of::Stored::decode(&row.membership).map_err(io::Error::other)?;
    let log_id = stored.log_id.map(|(term, index)| LogId::new(CommittedLeaderId::new(term), index));
    let membership: Membership = membership_from_bytes(stored.membership)?;
    Ok((last_applied, StoredMembership::new(log_id, membership)))
}

fn encode_applied(last_applied: Option<LogId>, membership: &StoredMembership) -> io::Result<AppliedRow> {
    let stored = bytes_of::Stored {
        log_id: membership.log_id().map(|id| (id.leader_id.term, id.index)),
        membership: membership_to_bytes(membership.membership()),
    };
    let membership = stored.encode().map_err(io::Error::other)?.to_vec();
    Ok(AppliedRow { last_applied: last_applied.map(id_to_log), membership })
}

/// The state as the log's purge asks for it.
pub struct DurableState(pub StateStore);

impl Durable for DurableState {
    fn ensure(&self, index: u64) -> Result<(), io::Error> {
        let held = || match self.0.flushed_applied() {
            Ok(flushed) => Ok(flushed.is_some_and(|id| id.index >= index)),
            Err(fault) => Err(io::Error::other(fault)),
        };
        if held()? {
            return Ok(());
        }
        self.0.flush().map_err(io::Error::other)?;
        if held()? {
            return Ok(());
        }
        Err(io::Error::other(format!("the log would be purged up to {index}, which the state has not applied")))
    }
}
