//! What runs beside the log and the state: flushing, compacting, scrubbing, following the membership, watching for the end.
//! Snapshots and purges are openraft's to start; the log adapter makes sure that none comes too early.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use hapax_store::seam::StorageFault;
use metrics::counter;
use openraft::async_runtime::WatchReceiver;
use tokio::time::{MissedTickBehavior, interval};

use crate::core::Core;
use crate::types::NodeId;

/// How often the state is asked whether a flush is due, and whether its disk is still well.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often consensus is asked whether it still runs.
const FATAL_LOOK_EVERY: Duration = Duration::from_millis(50);

/// Writes the state to disk when it is due, so that a restart replays little, and watches for what RocksDB met in the
/// background.
pub(crate) async fn flush(core: Arc<Core>) {
    let mut due = interval(LOOK_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = core.stopping.cancelled() => return,
            _ = due.tick() => {}
        }
        let state = core.state.clone();
        let looked =
            tokio::task::spawn_blocking(move || state.check().and_then(|()| state.flush_if_due(Instant::now())));
        match looked.await {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => core.fatal.raise(fault.to_string()),
            Err(error) => core.fatal.raise(format!("flushing the state: {error}")),
        }
    }
}

/// Gives back the space of what retention has hidden, slowly, now and then: nothing waits for it, and no answer depends on it.
/// Every node does this for itself, of floors that it has flushed.
pub(crate) async fn compact(core: Arc<Core>) {
    let settings = core.config.retention;
    let mut due = interval(settings.interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut not_before = Instant::now();
    loop {
        tokio::select! {
            () = core.stopping.cancelled() => return,
            _ = due.tick() => {}
        }
        let began = Instant::now();
        if began < not_before {
            continue;
        }
        let compacting = Arc::clone(&core);
        let compacted = tokio::task::spawn_blocking(move || {
            let bytes = compacting.state.retained_bytes()?;
            let mut pace = Paced::new(&compacting, settings.pass_bytes_per_s(bytes));
            let whole = compacting.state.compact_if_due(&mut |bytes| {
                counter!("hapax_retention_pass_bytes_total").increment(bytes);
                pace.step(bytes)
            })?;
            Ok::<_, StorageFault>((whole || pace.bytes > 0).then_some((whole, pace.bytes)))
        });
        match compacted.await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((whole, bytes)))) => {
                not_before = began + settings.compact_interval;
                tracing::info!(bytes, whole, "space of what is forgotten was given back");
            }
            Ok(Err(fault)) => core.fatal.raise(fault.to_string()),
            Err(error) => core.fatal.raise(format!("compacting the state: {error}")),
        }
    }
}

/// Reads the whole state now and then, slowly, so that a block that rotted is found before it is needed.
pub(crate) async fn scrub(core: Arc<Core>) {
    let mut due = interval(core.config.scrub.interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once; what was just opened was just read.
    due.tick().await;
    loop {
        tokio::select! {
            () = core.stopping.cancelled() => return,
            _ = due.tick() => {}
        }
        let scrubbing = Arc::clone(&core);
        match tokio::task::spawn_blocking(move || scrub_once(&scrubbing)).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => core.fatal.raise(fault.to_string()),
            Err(error) => core.fatal.raise(format!("scrubbing the state: {error}")),
        }
    }
}

fn scrub_once(core: &Core) -> Result<(), StorageFault> {
    let mut pace = Paced::new(core, core.config.scrub.bytes_per_s);
    core.state.scrub(&mut |bytes| pace.step(bytes))?;
    tracing::info!(bytes = pace.bytes, "the state was scrubbed");
    Ok(())
}

/// Keeps work on a blocking thread to a rate, and ends it with the node.
struct Paced<'c> {
    core: &'c Core,
    bytes_per_s: u64,
    began: Instant,
    /// What was done so far.
    bytes: u64,
}

impl<'c> Paced<'c> {
    fn new(core: &'c Core, bytes_per_s: u64) -> Self {
        Self { core, bytes_per_s: bytes_per_s.max(1), began: Instant::now(), bytes: 0 }
    }

    /// Waits until so much may have been done. It waits for nobody.
    fn step(&mut self, bytes: u64) -> ControlFlow<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        let due = Duration::from_millis(self.bytes.saturating_mul(1_000) / self.bytes_per_s);
        loop {
            if self.core.stopping.is_cancelled() {
                return ControlFlow::Break(());
            }
            let early = due.saturating_sub(self.began.elapsed());
            if early.is_zero() {
                return ControlFlow::Continue(());
            }
            std::thread::sleep(early.min(LOOK_EVERY));
        }
    }
}

/// Raises the fatal signal when consensus ends without having been asked to. It looks now and then: openraft's metrics change
/// several times with each entry, and whoever waited for that would be woken as often.
pub(crate) async fn watch_fatal(core: Arc<Core>) {
    let mut metrics = core.raft.metrics();
    let mut due = interval(FATAL_LOOK_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = core.stopping.cancelled() => return,
            _ = due.tick() => {}
        }
        let gone = metrics.changed().now_or_never().is_some_and(|changed| changed.is_err());
        let state = metrics.borrow_and_update().running_state.clone();
        let reason = match state {
            Err(reason) => format!("consensus stopped: {reason}"),
            Ok(()) if gone => "consensus stopped without a word".to_owned(),
            Ok(()) => continue,
        };
        if !core.stopping.is_cancelled() {
            core.fatal.raise(reason);
        }
        return;
    }
}

/// Keeps the peers as the membership says; before there is one, as the configuration says. An address in the
/// configuration goes before the one that the membership was written with.
pub(crate) async fn follow_membership(core: Arc<Core>) {
    let own = core.config.id;
    let mut server = core.raft.server_metrics();
    loop {
        let membership = Arc::clone(&server.borrow_and_update().membership_config);
        let mut members: Vec<(NodeId, String)> =
            membership.membership().nodes().map(|(id, node)| (*id, node.addr.clone())).collect();
        if members.is_empty() {
            members = core.config.members.iter().map(|(id, node)| (*id, node.addr.clone())).collect();
        }
        for (id, node) in membership.membership().nodes().filter(|(id, _)| **id != own) {
            core.peers.expect(*id, node.data);
        }
        let known: BTreeSet<NodeId> = members.iter().map(|(id, _)| *id).collect();
        for (id, addr) in members.into_iter().filter(|(id, _)| *id != own) {
            core.peers.set(id, &addr);
        }
        for gone in core.peers.known().into_iter().filter(|id| !known.contains(id)) {
            core.peers.remove(gone);
        }
        tokio::select! {
            () = core.stopping.cancelled() => return,
            changed = server.changed() => if changed.is_err() { return },
        }
    }
}
