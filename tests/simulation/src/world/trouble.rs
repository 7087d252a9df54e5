//! Faults: how each is installed, and how it ends. One that finds nobody to happen to is not counted.

use std::collections::BTreeSet;

use hapax_consensus::types::NodeId;

use super::World;
use crate::invariants::Isolation;
use crate::mutant::Mutant;
use crate::network::Weather;
use crate::node::SimNode;
use crate::plan::{Fault, Victim};
use crate::time::now_ms;

/// A shutdown may take so long.
const SHUT_DOWN_WITHIN_MS: u64 = 15_000;
/// A round of a slow disk, in milliseconds.
const SLOW_SYNC_MS: (u64, u64) = (20, 200);
/// A round of a healthy one.
const SYNC_MS: (u64, u64) = (1, 3);

/// What ends a fault.
#[derive(Debug)]
pub(super) enum Undo {
    Start(NodeId),
    Heal(Vec<(NodeId, NodeId)>),
    ClockBack(NodeId),
    FairWeather,
    FastDisk(NodeId),
    /// The node is to have shut down by then.
    ShutDown(NodeId, u64),
}

impl World {
    fn victim(&self, victim: Victim) -> Option<NodeId> {
        let found = match victim {
            Victim::Node(id) => Some(id),
            Victim::Leader => self.leader,
        };
        found.filter(|id| self.nodes.get(id).is_some_and(SimNode::runs))
    }

    /// Does what a fault says.
    pub(super) fn install(&mut self, fault: &Fault) {
        let done = match fault {
            Fault::Blackout(ms) => {
                self.ids().into_iter().for_each(|id| self.go_down(id, true, *ms));
                Some(())
            }
            Fault::Crash(victim, ms) => self.victim(*victim).map(|id| self.go_down(id, false, *ms)),
            Fault::PowerCut(victim, ms) => self.victim(*victim).map(|id| self.go_down(id, true, *ms)),
            Fault::ShutDown(victim, ms) => self.victim(*victim).map(|id| self.shut_down(id, *ms)),
            Fault::Isolate(victim, ms) => self.victim(*victim).map(|id| self.cut_off(id, true, true, *ms)),
            Fault::Deafen(victim, ms) => self.victim(*victim).map(|id| self.cut_off(id, true, false, *ms)),
            Fault::Mute(victim, ms) => self.victim(*victim).map(|id| self.cut_off(id, false, true, *ms)),
            Fault::Part(a, b, ms) => {
                self.cut(vec![(*a, *b), (*b, *a)], *ms);
                Some(())
            }
            Fault::Pause(victim, ms) => {
                self.victim(*victim).and_then(|id| self.nodes.get_mut(&id)).map(|node| node.pause(*ms))
            }
            Fault::Jump(victim, off_ms, ms) => self.victim(*victim).map(|id| self.jump(id, *off_ms, *ms)),
            Fault::Forward(ms) => {
                self.forward_ms += ms;
                self.nodes.values().for_each(|node| node.clock.set_off(self.forward_ms));
                Some(())
            }
            Fault::Reset(a, b) => {
                self.network.reset(*a, *b);
                Some(())
            }
            Fault::Storm(weather, ms) => {
                self.network.set_weather(*weather);
                self.undo.push((now_ms() + ms, Undo::FairWeather));
                Some(())
            }
            Fault::SlowDisk(victim, ms) => self.victim(*victim).map(|id| self.slow_disk(id, *ms)),
            Fault::BreakDisk(victim) => self.victim(*victim).and_then(|id| self.break_disk(id)),
        };
        self.trace.line(format_args!("fault {fault:?} {}", done.is_some()));
        if done.is_some() {
            self.observed.count(&fault.name());
        }
    }

    fn go_down(&mut self, id: NodeId, silent: bool, ms: u64) {
        self.crash(id, silent);
        self.undo.push((now_ms() + ms, Undo::Start(id)));
    }

    fn shut_down(&mut self, id: NodeId, ms: u64) {
        if let Some(node) = self.nodes.get(&id) {
            node.shut_down();
            self.undo.push((now_ms() + SHUT_DOWN_WITHIN_MS, Undo::ShutDown(id, ms)));
        }
    }

    fn jump(&mut self, id: NodeId, off_ms: i64, ms: u64) {
        if let Some(node) = self.nodes.get(&id) {
            node.clock.set_off(self.forward_ms + off_ms);
            self.undo.push((now_ms() + ms, Undo::ClockBack(id)));
        }
    }

    fn slow_disk(&mut self, id: NodeId, ms: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.sync_ms = SLOW_SYNC_MS;
            self.undo.push((now_ms() + ms, Undo::FastDisk(id)));
        }
    }

    fn break_disk(&mut self, id: NodeId) -> Option<()> {
        let node = self.nodes.get_mut(&id).filter(|node| node.runs() && !node.is_broken())?;
        node.break_disk();
        Some(())
    }

    fn cut_off(&mut self, id: NodeId, from_others: bool, to_others: bool, ms: u64) {
        let others = self.ids().into_iter().filter(|other| *other != id);
        let links = others.flat_map(|other| {
            let from = from_others.then_some((other, id));
            let to = to_others.then_some((id, other));
            from.into_iter().chain(to)
        });
        self.cut(links.collect(), ms);
    }

    fn cut(&mut self, links: Vec<(NodeId, NodeId)>, ms: u64) {
        links.iter().for_each(|(from, to)| self.network.cut(*from, *to));
        self.note_isolation();
        if self.mutant != Mutant::NoHealing {
            self.undo.push((now_ms() + ms, Undo::Heal(links)));
        }
    }

    /// Notes who cannot get an answer from a quorum, directly or through others, since when and until when.
    pub(super) fn note_isolation(&mut self) {
        let ids = self.ids();
        let network = &self.network;
        let reached = |id: NodeId| -> Vec<NodeId> {
            ids.iter().copied().filter(|other| *other == id || !network.is_cut(id, *other)).collect()
        };
        let in_touch = |id: NodeId| component(id, &reached).into_iter().any(|one| reached(one).len() > ids.len() / 2);
        let alone: Vec<NodeId> = ids.iter().copied().filter(|id| !in_touch(*id)).collect();
        for id in &ids {
            let alone = alone.contains(id);
            let open =
                self.observed.isolations.iter_mut().rfind(|known| known.node == *id && known.until == u64::MAX);
            match open {
                None if alone => {
                    let isolation = Isolation { node: *id, from: now_ms(), until: u64::MAX };
                    self.observed.isolations.push(isolation);
                }
                Some(open) if !alone => open.until = now_ms(),
                _ => {}
            }
        }
    }

    pub(super) fn end_faults(&mut self) {
        let now = now_ms();
        let (due, later) = std::mem::take(&mut self.undo).into_iter().partition(|(at, undo)| {
            let early =
                matches!(undo, Undo::ShutDown(id, _) if self.nodes.get_mut(id).is_some_and(SimNode::is_shut_down));
            early || *at <= now
        });
        self.undo = later;
        let due: Vec<(u64, Undo)> = due;
        due.into_iter().for_each(|(_, undo)| self.end_fault(undo));
    }

    pub(super) fn end_fault(&mut self, undo: Undo) {
        self.trace.line(format_args!("over {undo:?}"));
        match undo {
            Undo::Start(id) => self.start(id),
            Undo::Heal(links) => {
                links.into_iter().for_each(|(from, to)| self.network.heal(from, to));
                self.note_isolation();
            }
            Undo::ClockBack(id) => {
                if let Some(node) = self.nodes.get(&id) {
                    node.clock.set_off(self.forward_ms);
                }
            }
            Undo::FairWeather => self.network.set_weather(Weather::FAIR),
            Undo::FastDisk(id) => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.sync_ms = SYNC_MS;
                }
            }
            Undo::ShutDown(id, ms) => {
                // Where it has not ended by itself, it is killed, as an operator would.
                self.crash(id, false);
                self.undo.push((now_ms() + ms, Undo::Start(id)));
            }
        }
    }
}

/// Everybody that a node reaches, by way of others too.
fn component(id: NodeId, reached: &impl Fn(NodeId) -> Vec<NodeId>) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::from([id]);
    let mut next = vec![id];
    while let Some(from) = next.pop() {
        next.extend(reached(from).into_iter().filter(|to| found.insert(*to)));
    }
    found
}
