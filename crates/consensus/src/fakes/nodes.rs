//! Nodes without disk or network around one shared log, and the links between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_codec::peer::call::ReadIndex;
use hapax_machine::Command;
use hapax_machine::change::{Change, Head};
use hapax_machine::command::{Bootstrap, Claim};
use hapax_machine::grant::GrantCounter;
use hapax_machine::ids::{LeaseTime, OperationKey};
use hapax_machine::operation::{OperationRecord, State};
use hapax_machine::outcome::Answer;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::consensus::{FakeConsensus, Log};
use super::{FakeState, ManualClock, WALL_MS, WINDOW, claim, key, lock, policy, soon};
use crate::clock::NodeClock;
use crate::leadership::Leadership;
use crate::propose::{Forward, Limits, Parts, Proposer, Unforwarded};
use crate::read::AskLeader;
use crate::seam::{Consensus, Role};
use crate::tracker::Tracker;
use crate::types::NodeId;

/// What becomes of a request between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// It arrives, and so does its answer.
    Up,
    /// Nothing is written.
    Down,
    /// It is written and lost.
    LosesRequest,
    /// It is served, and the answer is lost.
    LosesReply,
    /// It is served, and the answer is damaged.
    DamagesReply,
}

/// The links of one node to all others.
#[derive(Default)]
pub(crate) struct Links {
    nodes: Mutex<BTreeMap<NodeId, Weak<Node>>>,
    script: Mutex<VecDeque<Link>>,
    /// The nodes that requests were sent to.
    pub(crate) asked: Mutex<Vec<NodeId>>,
}

impl Links {
    /// What becomes of the next requests; after them everything arrives.
    pub(crate) fn next(&self, links: impl IntoIterator<Item = Link>) {
        lock(&self.script).extend(links);
    }

    fn take(&self, to: NodeId) -> (Link, Option<Arc<Node>>) {
        lock(&self.asked).push(to);
        let link = lock(&self.script).pop_front().unwrap_or(Link::Up);
        (link, lock(&self.nodes).get(&to).and_then(Weak::upgrade))
    }
}

impl Forward for Links {
    fn forward(&self, to: NodeId, request: Bytes, _: Instant) -> BoxFuture<'static, Result<Bytes, Unforwarded>> {
        let (link, node) = self.take(to);
        async move {
            let Some(node) = node.filter(|_| link != Link::Down) else {
                return Err(Unforwarded::NotWritten);
            };
            if link == Link::LosesRequest {
                return Err(Unforwarded::Ambiguous);
            }
            let reply = node.proposer.serve_forward(request).await;
            match link {
                Link::LosesReply => Err(Unforwarded::Ambiguous),
                Link::DamagesReply => Ok(reply.slice(..reply.len() - 1)),
                _ => Ok(reply),
            }
        }
        .boxed()
    }
}

impl AskLeader for Links {
    fn read_index(&self, leader: NodeId, _: Instant) -> BoxFuture<'static, Option<ReadIndex>> {
        let (link, node) = self.take(leader);
        async move {
            let node = node.filter(|_| link == Link::Up)?;
            let reader = lock(&node.reader).clone()?;
            Some(reader.serve_read_index().await)
        }
        .boxed()
    }
}

/// A node without disk or network: everything of this module around one shared log.
pub(crate) struct Node {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) consensus: Arc<FakeConsensus>,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) proposer: Proposer,
    pub(crate) links: Arc<Links>,
    pub(crate) reader: Mutex<Option<crate::read::Reader>>,
    pub(crate) stopping: CancellationToken,
}

/// Nodes 1 to n; node 1 leads in term 1.
pub(crate) struct Cluster {
    pub(crate) log: Arc<Log>,
    nodes: Vec<Arc<Node>>,
}

impl Cluster {
    pub(crate) fn new(nodes: u64) -> Self {
        Self::with_limits(nodes, Limits::default())
    }

    pub(crate) fn with_limits(nodes: u64, limits: Limits) -> Self {
        let log = Arc::<Log>::default();
        {
            let mut inner = lock(&log.inner);
            inner.rows.set_head(Head { grants: GrantCounter(1_000), ..Head::default() });
            inner.rows.put(vec![Change::Namespace(policy())]);
        }
        let voters: Vec<NodeId> = (1..=nodes).collect();
        let nodes: Vec<_> = voters.iter().map(|id| Arc::new(node(*id, &voters, &log, limits))).collect();
        for node in &nodes {
            lock(&log.inner).trackers.push(Arc::clone(&node.tracker));
            let mut known = lock(&node.links.nodes);
            known.extend(voters.iter().copied().zip(nodes.iter().map(Arc::downgrade)));
        }
        Self { log, nodes }
    }

    pub(crate) fn node(&self, id: NodeId) -> &Arc<Node> {
        &self.nodes[id as usize - 1]
    }

    /// Time goes on for everybody, and the leader's quorum acknowledges all the while.
    pub(crate) fn advance(&self, by: Duration) {
        let step = Duration::from_millis(50);
        let mut left = by;
        while !left.is_zero() {
            let part = left.min(step);
            left -= part;
            for node in &self.nodes {
                node.consensus.ack(node.clock.monotonic());
                node.clock.advance(part);
                if let Role::Leader { term } = node.consensus.role() {
                    node.leadership.lead_ms(term);
                }
            }
        }
    }

    /// Time goes on, and the replicated wall with it: as far as an entry of the leader says.
    pub(crate) async fn advance_wall(&self, by: Duration) {
        self.advance(by);
        let leader = self.nodes.iter().find(|node| matches!(node.consensus.role(), Role::Leader { .. })).unwrap();
        let before = leader.tracker.head().clocks.wall;
        // It comes too late, by the clock that was moved under it; its stamp counts all the same.
        let _ = leader.proposer.propose(Command::Tick, soon()).await;
        let passed = leader.tracker.head().clocks.wall.0 - before.0;
        assert!(u128::from(passed) <= by.as_millis() && passed > 0, "the wall passed {passed} ms of {by:?}");
    }

    /// Waits until a command like this was appended.
    pub(crate) async fn wait_for_entry(&self, deadline: Instant, like: impl Fn(&Command) -> bool) -> Command {
        let mut len = self.log.len.subscribe();
        loop {
            drop(len.borrow_and_update());
            if let Some(found) = lock(&self.log.inner).appended.iter().find(|command| like(command)) {
                return found.clone();
            }
            timeout_at(deadline, len.changed()).await.expect("no such command was appended").unwrap();
        }
    }
}

fn node(id: NodeId, voters: &[NodeId], log: &Arc<Log>, limits: Limits) -> Node {
    let role = if id == 1 { Role::Leader { term: 1 } } else { Role::Follower { leader: Some(1) } };
    let clock = ManualClock::new();
    let consensus = FakeConsensus::among(id, voters.to_vec(), role, Arc::clone(log));
    let leadership = Leadership::new(clock.clone(), consensus.clone(), WINDOW);
    let tracker = Tracker::new(clock.clone(), FakeState::new(0, Head::default(), Vec::new()));
    tracker.set_recovered();
    let links = Arc::<Links>::default();
    let stopping = CancellationToken::new();
    let parts = Parts {
        consensus: consensus.clone(),
        forward: links.clone(),
        leadership: Arc::clone(&leadership),
        tracker: Arc::clone(&tracker),
    };
    let proposer = Proposer::start(parts, limits, stopping.clone());
    Node { clock, consensus, leadership, tracker, proposer, links, reader: Mutex::default(), stopping }
}

impl Node {
    pub(crate) fn key(&self, n: u64) -> OperationKey {
        key(n)
    }

    pub(crate) async fn bootstrap(&self) {
        let command = Bootstrap {
            cluster_id: [1; 16],
            wall_ms: WALL_MS,
            namespaces: vec![policy()],
            tokens: Vec::new(),
            tenants: Vec::new(),
        };
        assert_eq!(self.answer(Command::Bootstrap(command)).await, Answer::Bootstrapped);
    }

    /// Proposes a command, which must have an outcome.
    pub(crate) async fn answer(&self, command: Command) -> Answer {
        self.proposer.propose(command, soon()).await.unwrap().answer
    }

    pub(crate) async fn claim(&self, n: u64, lease_ms: u64) {
        self.granted(claim(n, lease_ms)).await;
    }

    pub(crate) async fn granted(&self, claim: Claim) {
        let answer = self.answer(Command::Claim(claim)).await;
        assert!(matches!(answer, Answer::Claimed(_)), "{answer:?}");
    }

    fn operation(&self, n: u64) -> OperationRecord {
        lock(&self.consensus.log.inner).rows.operation(&key(n))
    }

    pub(crate) fn executing_deadline(&self, n: u64) -> LeaseTime {
        self.operation(n).execution.unwrap().deadline
    }

    pub(crate) fn state_of(&self, n: u64) -> State {
        self.operation(n).state()
    }

    pub(crate) async fn wait_for_state(&self, n: u64, state: State, deadline: Instant) {
        let mut subscription = self.tracker.waiters().subscribe(&key(n)).unwrap();
        while self.state_of(n) != state {
            timeout_at(deadline, subscription.changed()).await.expect("the state never came");
        }
    }
}
