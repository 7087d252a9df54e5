//! A run: a cluster, its callers and its trouble, from one seed, step by step, until everything has healed and was looked at.
//! Owns the order of everything that happens in one step; `trouble` installs faults and ends them.

mod trouble;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use hapax_consensus::types::NodeId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::caller::{Board, Caller};
use crate::client::{Client, Doors};
use crate::closing::Closing;
use crate::counted::Counted;
use crate::history::History;
use crate::invariants::{Halt, Observed};
use crate::mutant::Mutant;
use crate::network::Network;
use crate::node::{Shared, SimNode};
use crate::plan::Plan;
use crate::runtime::Stepped;
use crate::time::{now_ms, pass};
use crate::trace::Trace;
use crate::world::trouble::Undo;

/// The cluster must have begun by then.
const BEGUN_WITHIN_MS: u64 = 30_000;
/// The last look must be over so long after everything has healed.
const CLOSED_WITHIN_MS: u64 = 60_000;
/// How often the whole content of every node is summed up.
const CONTENT_EVERY_MS: u64 = 500;
/// A node whose disk fails must have said so by then.
const HALTED_WITHIN_MS: u64 = 2_000;
/// Its disk is replaced so long after it was ended.
const REPLACED_AFTER_MS: u64 = 500;

/// A run under way.
pub struct World {
    rng: StdRng,
    trace: Trace,
    mutant: Mutant,
    network: Network,
    nodes: BTreeMap<NodeId, SimNode>,
    doors: Doors,
    clients: Stepped,
    history: History,
    undo: Vec<(u64, Undo)>,
    /// By how much everybody's wall clock was moved.
    forward_ms: i64,
    leader: Option<NodeId>,
    observed: Observed,
}

impl World {
    /// A cluster that was not started. `folder` holds what snapshots need of a file system.
    ///
    /// # Errors
    /// The system refuses.
    fn new(seed: u64, mutant: Mutant, plan: &Plan, trace: &Trace, folder: &Path) -> anyhow::Result<Self> {
        let network = Network::new(seed ^ 0x6e65_7477, trace.clone());
        let shared = Shared {
            network: network.clone(),
            trace: trace.clone(),
            mutant,
            raft: plan.raft.clone(),
            nodes: plan.nodes,
        };
        let node = |id| Ok((id, SimNode::new(id, shared.clone(), folder)?));
        Ok(Self {
            rng: StdRng::seed_from_u64(seed ^ 0x776f_726c),
            trace: trace.clone(),
            mutant,
            network,
            nodes: (1..=plan.nodes).map(node).collect::<anyhow::Result<_>>()?,
            doors: Doors::default(),
            clients: Stepped::new()?,
            history: History::default(),
            undo: Vec::new(),
            forward_ms: 0,
            leader: None,
            observed: Observed::default(),
        })
    }

    /// Runs a seed and gives everything that was observed.
    ///
    /// # Errors
    /// The run could not be made; a violation is no error.
    pub fn run(seed: u64, mutant: Mutant, trace: &Trace, folder: &Path) -> anyhow::Result<Observed> {
        let counted = Counted::install();
        let mut rng = StdRng::seed_from_u64(seed);
        let mut plan = Plan::draw(&mut rng);
        mutant.adapt(&mut plan);
        trace.line(format_args!("seed {seed}: {plan:?}"));
        let mut world = Self::new(seed, mutant, &plan, trace, folder)?;
        world.begin()?;
        world.trouble(&plan, &mut rng);
        world.close(&plan, &mut rng, Stepped::new()?);
        let World { mut observed, history, .. } = world;
        observed.calls = history.take();
        observed.counts.extend(counted.take());
        Ok(observed)
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        for id in self.ids() {
            self.start(id);
        }
        while !self.nodes.values().all(SimNode::is_bootstrapped) {
            anyhow::ensure!(now_ms() < BEGUN_WITHIN_MS, "the cluster does not begin: {:?}", self.observed.unopened);
            self.step();
        }
        Ok(())
    }

    fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// One millisecond.
    fn step(&mut self) {
        pass();
        self.end_faults();
        self.network.deliver();
        let mut order = self.ids();
        let first = self.rng.random_range(0..order.len());
        order.rotate_left(first);
        for id in order {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.step(&mut self.rng);
            }
        }
        self.clients.step();
        self.watch();
    }

    fn start(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.runs()) else { return };
        match node.start() {
            Ok(()) => self.doors.set(id, node.door()),
            Err(error) => {
                self.trace.line(format_args!("node {id} does not start: {error:#}"));
                self.observed.unopened.push(format!("node {id} does not open what it wrote: {error:#}"));
            }
        }
    }

    fn crash(&mut self, id: NodeId, silent: bool) {
        self.doors.set(id, None);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.crash(silent, &mut self.rng);
        }
    }

    /// Looks at every node after a step.
    fn watch(&mut self) {
        let now = now_ms();
        for (id, node) in &self.nodes {
            if let Some((index, hash)) = node.head() {
                self.observed.heads.entry(index).or_default().entry(hash).or_default().insert(*id);
            }
            if now.is_multiple_of(CONTENT_EVERY_MS)
                && let Some((index, content)) = node.content()
            {
                self.observed.contents.entry(index).or_default().entry(content).or_default().insert(*id);
            }
        }
        self.end_the_halted(now);
        if now.is_multiple_of(20) {
            self.leader = self.find_leader();
        }
    }

    /// Ends the processes of those that said that they must not go on, or should have said it by now, and starts them again later.
    fn end_the_halted(&mut self, now: u64) {
        for id in self.ids() {
            let Some(node) = self.nodes.get(&id) else { continue };
            let (said, disk_failed_at) = (node.failure(), node.refused_at());
            if said.is_some() || disk_failed_at.is_some_and(|since| now > since + HALTED_WITHIN_MS) {
                self.trace.line(format_args!("node {id} halts: {said:?}"));
                let said = said.map(|reason| (now, reason));
                self.observed.halts.push(Halt { node: id, disk_failed_at, said });
                self.crash(id, false);
                self.undo.push((now + REPLACED_AFTER_MS, Undo::Start(id)));
            }
        }
    }

    /// The node that most running nodes follow.
    fn find_leader(&mut self) -> Option<NodeId> {
        let mut followers = BTreeMap::new();
        for leader in self.nodes.values().filter_map(SimNode::leader) {
            *followers.entry(leader).or_insert(0) += 1;
        }
        let found = followers.into_iter().max_by_key(|(_, count)| *count).map(|(leader, _)| leader);
        if found.is_some() && found != self.observed.last_leader {
            self.trace.line(format_args!("leader {found:?}"));
            self.observed.last_leader = found;
            self.observed.count("leaders");
        }
        found
    }

    fn trouble(&mut self, plan: &Plan, rng: &mut StdRng) {
        let board = Board::default();
        for number in 0..plan.callers {
            let client = self.client(rng.random(), true);
            let caller = Caller { client, board: board.clone(), name: format!("caller-{number}") };
            self.clients.spawn(caller.run());
        }
        let began = now_ms();
        let mut faults = plan.faults.iter().peekable();
        while now_ms() < began + plan.length_ms {
            while let Some((_, fault)) = faults.next_if(|(at, _)| began + at <= now_ms()) {
                self.install(fault);
            }
            self.step();
        }
    }

    fn client(&self, seed: u64, loses: bool) -> Client {
        Client {
            doors: self.doors.clone(),
            history: self.history.clone(),
            trace: self.trace.clone(),
            rng: StdRng::seed_from_u64(seed),
            nodes: self.nodes.len() as u64,
            loses,
        }
    }

    /// Heals everything and looks at what is there.
    fn close(&mut self, plan: &Plan, rng: &mut StdRng, clients: Stepped) {
        let undo = std::mem::take(&mut self.undo);
        undo.into_iter().for_each(|(_, undo)| self.end_fault(undo));
        self.undo.clear();
        if self.mutant != Mutant::NoHealing {
            self.network.heal_all();
        }
        self.note_isolation();
        self.nodes.values_mut().for_each(|node| node.pause(0));
        self.ids().into_iter().for_each(|id| self.start(id));
        let calls = self.history.take();
        let closing = Closing::begin(&calls, now_ms());
        // Callers are gone, in the middle of what they did: nothing that they are told from here on would be looked for.
        self.clients = clients;
        for id in 1..=plan.nodes {
            let mut client = self.client(rng.random(), false);
            client.history = History::default();
            self.clients.spawn(closing.clone().look(id, client));
        }
        let began = now_ms();
        while !closing.is_over(plan.nodes) && now_ms() < began + CLOSED_WITHIN_MS {
            self.step();
        }
        // Followers learn what is committed from a later message.
        let settled = now_ms() + 5_000;
        while now_ms() < settled && !self.is_settled() {
            self.step();
        }
        self.step_until_content();
        self.observed.closing = closing.take();
    }

    fn is_settled(&self) -> bool {
        let mut applied = self.nodes.values().map(|node| node.head().map(|(index, _)| index));
        let first = applied.next();
        applied.all(|index| Some(index) == first)
    }

    fn step_until_content(&mut self) {
        loop {
            self.step();
            if now_ms().is_multiple_of(CONTENT_EVERY_MS) {
                return;
            }
        }
    }
}

/// Runs a seed in a folder of its own that is removed afterwards.
///
/// # Errors
/// The run could not be made.
pub fn run(seed: u64, mutant: Mutant, trace: &Trace) -> anyhow::Result<Observed> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    // The process id, since simulated machines draw the same names.
    let folder = tempfile::Builder::new().prefix(&format!("simulation-{}-", std::process::id())).tempdir_in(parent);
    let folder = folder.context("a folder for snapshots")?;
    World::run(seed, mutant, trace, folder.path())
}
