//! What goes wrong, and when: drawn from the seed before a run begins. Owns the choice; `world` does what is chosen.

use hapax_consensus::types::NodeId;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::network::Weather;

/// Somebody that a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// This node.
    Node(NodeId),
    /// Whoever leads then.
    Leader,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A node dies, and is started again after so many milliseconds.
    Crash(Victim, u64),
    /// A node loses power: nobody is told that it is gone.
    PowerCut(Victim, u64),
    /// All nodes lose power at once.
    Blackout(u64),
    /// A node shuts down in order, and is started again.
    ShutDown(Victim, u64),
    /// A node hears nobody, and nobody hears it.
    Isolate(Victim, u64),
    /// A node is heard, and hears nobody.
    Deafen(Victim, u64),
    /// A node hears everybody, and nobody hears it.
    Mute(Victim, u64),
    /// Two nodes do not reach each other; everybody else reaches both.
    Part(NodeId, NodeId, u64),
    /// A node stands still, while its clocks go on.
    Pause(Victim, u64),
    /// A node's wall clock is off by so much for a while.
    Jump(Victim, i64, u64),
    /// Everybody's wall clock is moved forward by so much, for good.
    Forward(i64),
    /// Streams between two nodes break.
    Reset(NodeId, NodeId),
    /// Packets are slow and get lost.
    Storm(Weather, u64),
    /// A node's disk syncs slowly.
    SlowDisk(Victim, u64),
    /// A node's disk refuses everything from now on; the node must halt.
    BreakDisk(Victim),
}

impl Fault {
    /// Its name.
    pub fn name(&self) -> String {
        let whole = format!("{self:?}");
        whole.chars().take_while(char::is_ascii_alphanumeric).collect()
    }
}

/// A run, as the seed says.
#[derive(Debug)]
pub struct Plan {
    /// How many nodes.
    pub nodes: u64,
    /// How many callers.
    pub callers: u64,
    /// `[raft]` of every node: small logs and snapshots, so that there are many of them.
    pub raft: String,
    /// For so long things go wrong, in milliseconds.
    pub length_ms: u64,
    /// What, and when: milliseconds from the beginning of the trouble.
    pub faults: Vec<(u64, Fault)>,
}

impl Plan {
    /// Draws a plan.
    pub fn draw(rng: &mut StdRng) -> Self {
        let nodes = if rng.random_bool(0.15) { 5 } else { 3 };
        let length_ms = rng.random_range(9_000..16_000);
        let mut faults: Vec<(u64, Fault)> =
            (0..rng.random_range(3..9)).map(|_| (rng.random_range(200..length_ms), draw_fault(rng, nodes))).collect();
        if rng.random_bool(0.6) {
            faults.push((rng.random_range(2_000..length_ms / 2), Fault::Forward(rng.random_range(150_000..900_000))));
        }
        faults.sort_by_key(|(at, _)| *at);
        let snapshot = rng.random_range(10..150);
        let raft = format!(
            "snapshot_after_entries = {snapshot}\nkeep_entries = {}\npurge_batch = {}\nflush_interval_ms = {}\n",
            rng.random_range(1..snapshot.min(40)),
            rng.random_range(1..20),
            [200, 1_000, 60_000][rng.random_range(0..3)],
        );
        Self { nodes, callers: rng.random_range(8..20), raft, length_ms, faults }
    }
}

fn draw_victim(rng: &mut StdRng, nodes: u64) -> Victim {
    if rng.random_bool(0.4) { Victim::Leader } else { Victim::Node(rng.random_range(1..=nodes)) }
}

fn draw_fault(rng: &mut StdRng, nodes: u64) -> Fault {
    let victim = draw_victim(rng, nodes);
    let ms = rng.random_range(50..4_000);
    let (a, b) = (rng.random_range(1..=nodes), rng.random_range(1..nodes));
    let b = if b >= a { b + 1 } else { b };
    match rng.random_range(0..19) {
        0 | 1 => Fault::Crash(victim, ms),
        2 | 3 => Fault::PowerCut(victim, ms),
        4 => Fault::Blackout(ms),
        5 => Fault::ShutDown(victim, ms),
        6..9 => Fault::Isolate(victim, ms),
        9 => Fault::Deafen(victim, ms),
        10 => Fault::Mute(victim, ms),
        11 => Fault::Part(a, b, ms),
        12 => Fault::Pause(victim, ms),
        13 => Fault::Jump(victim, rng.random_range(-3_600_000..3_600_000), ms),
        14 => Fault::Reset(a, b),
        15 => Fault::Storm(Weather { delay_ms: (1, 20), lost_per_mille: 30 }, ms),
        16 => Fault::Storm(Weather { delay_ms: (20, 120), lost_per_mille: 5 }, ms),
        17 => Fault::SlowDisk(victim, ms),
        _ => Fault::BreakDisk(victim),
    }
}
