//! What runs beside the log and the state: flushing, scrubbing, following the membership, watching for the end.
//! Snapshots and purges are openraft's to start; the log adapter makes sure that none comes too early.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hapax_store::seam::StorageFault;
use openraft::async_runtime::WatchReceiver;
use tokio::time::{MissedTickBehavior, interval};

use crate::core::Core;
use crate::types::NodeId;

/// How often the state is asked whether a flush is due, and whether its disk is still well.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    let rate = core.config.scrub.bytes_per_s.max(1);
    let began = Instant::now();
    let mut read = 0_u64;
    core.state.scrub(&mut |bytes| {
        read = read.saturating_add(bytes);
        let due = Duration::from_millis(read.saturating_mul(1_000) / rate);
        // Paces the reading; it waits for nobody.
        std::thread::sleep(due.saturating_sub(began.elapsed()).min(LOOK_EVERY));
        if core.stopping.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    tracing::info!(bytes = read, "the state was scrubbed");
    Ok(())
}

/// Raises the fatal signal when consensus ends without having been asked to.
pub(crate) async fn watch_fatal(core: Arc<Core>) {
    let mut metrics = core.raft.metrics();
    loop {
        let state = metrics.borrow_and_update().running_state.clone();
        if let Err(reason) = state {
            if !core.stopping.is_cancelled() {
                core.fatal.raise(format!("consensus stopped: {reason}"));
            }
            return;
        }
        tokio::select! {
            () = core.stopping.cancelled() => return,
            changed = metrics.changed() => if changed.is_err() {
                if !core.stopping.is_cancelled() {
                    core.fatal.raise("consensus stopped without a word");
                }
                return;
            },
        }
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
