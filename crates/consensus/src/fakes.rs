//! What the unit tests of proposing, reading, sweeping and the wall run on: clocks that stand still, a log in memory
//! that applies with the real machine, consensus that does as it is told, and links that break on demand.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_codec::command::{decode_batch, encode_envelope};
use hapax_codec::peer::call::ReadIndex;
use hapax_codec::peer::raft::LogId;
use hapax_machine::apply::apply_entry;
use hapax_machine::change::{Change, Head};
use hapax_machine::command::{Bootstrap, Caller, Claim, EntryHead};
use hapax_machine::grant::GrantCounter;
use hapax_machine::ids::{
    Attempt, Birth, ClaimId, ClientId, ContentHash, Digest, ExecutionId, GroupId, InternalKey, LeaseEpoch, LeaseTime,
    NamespaceName, OperationId, OperationKey, Revision, Slot, TenantId, TenantTag, WallTime,
};
use hapax_machine::namespace::{Attempts, ConflictStyle, NamespaceRecord, OnLapse, Scope};
use hapax_machine::operation::{
    Body, Definite, Execution, ExecutionRecord, GrantRecord, OperationRecord, OutcomeRecord, State,
};
use hapax_machine::outcome::Answer;
use hapax_machine::{Changes, Command, Envelope, Outcome, View};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::clock::NodeClock;
use crate::leadership::Leadership;
use crate::observer::{Applied, ApplyObserver};
use crate::propose::{Forward, Limits, Parts, Proposer, Unforwarded};
use crate::read::AskLeader;
use crate::seam::{Appended, Consensus, NoReadIndex, Role};
use crate::tracker::{StateSource, Tracker};
use crate::types::NodeId;
use crate::wall::AskClock;

pub(crate) const WINDOW: Duration = Duration::from_millis(150);
const WALL_MS: u64 = 1_700_000_000_000;

/// Long enough for whatever must happen, on a slow machine too; only a failing test waits for it.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

// --- values ---

pub(crate) fn tenant() -> TenantId {
    TenantId::new("t")
}

pub(crate) fn namespace() -> NamespaceName {
    NamespaceName::new("n")
}

fn internal_key(n: u64) -> InternalKey {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    InternalKey(bytes)
}

pub(crate) fn key(n: u64) -> OperationKey {
    OperationKey::new(&tenant(), &internal_key(n))
}

pub(crate) fn executing(n: u64, epoch: u64, deadline: u64) -> OperationRecord {
    let execution = Execution {
        id: ExecutionId { slot: Slot(0), random: [7; 16] },
        attempt: Attempt(1),
        state: State::Executing,
        owner: "o".to_owned(),
        client: ClientId::new("c"),
        claim_id: ClaimId([1; 16]),
        request_hash: ContentHash([2; 32]),
        lease_epoch: LeaseEpoch(epoch),
        deadline: LeaseTime(deadline),
        renewed: false,
        sole_holder: true,
        report: None,
        unknown_since: None,
        outcome: None,
    };
    OperationRecord {
        id: OperationId { slot: Slot(0), hash: key(n).hash, birth: Birth(1) },
        internal_key: internal_key(n),
        tenant: tenant(),
        namespace: namespace(),
        digest: Digest([3; 32]),
        correlation_id: None,
        created_at: WallTime(0),
        updated_at: WallTime(0),
        modified: Revision::default(),
        terminal_at: None,
        quarantined: false,
        grants: 1,
        evidence: 0,
        said: None,
        execution,
    }
}

pub(crate) fn finished(n: u64, outcome: Definite) -> OperationRecord {
    let mut record = executing(n, 1, 0);
    record.execution.state = outcome.into();
    record.execution.outcome = Some(OutcomeRecord {
        outcome,
        status_code: None,
        schema_version: None,
        has_result: false,
        result_ref: None,
        result_digest: None,
        external_id: None,
        reason: None,
        at: WallTime(0),
    });
    record
}

/// A command that changes nothing and is told from others by its number.
pub(crate) fn numbered(n: u64) -> Command {
    let lapse = hapax_machine::command::Lapse {
        operation: key(u64::MAX),
        lease_epoch: LeaseEpoch(n),
        deadline: LeaseTime(0),
    };
    Command::Lapse(lapse)
}

fn number_of(command: &Command) -> Option<u64> {
    match command {
        Command::Lapse(lapse) => Some(lapse.lease_epoch.0),
        _ => None,
    }
}

/// Room for one command.
pub(crate) fn room() -> [OwnedSemaphorePermit; 2] {
    [(); 2].map(|()| Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap())
}

pub(crate) fn envelope(command: &Command) -> Bytes {
    let mut out = Vec::new();
    encode_envelope(&Envelope { not_after: LeaseTime(u64::MAX), command: command.clone() }, &mut out);
    out.into()
}

// --- clocks ---

/// Clocks that move when they are told to.
pub(crate) struct ManualClock(Mutex<(Instant, u64)>);

impl ManualClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new((Instant::now(), WALL_MS))))
    }

    /// Both clocks go on.
    pub(crate) fn advance(&self, by: Duration) {
        let mut now = lock(&self.0);
        now.0 += by;
        now.1 += by.as_millis() as u64;
    }

    pub(crate) fn set_wall_ms(&self, wall_ms: u64) {
        lock(&self.0).1 = wall_ms;
    }
}

impl NodeClock for ManualClock {
    fn wall_ms(&self) -> u64 {
        lock(&self.0).1
    }

    fn monotonic(&self) -> Instant {
        lock(&self.0).0
    }
}

/// The wall clocks of other nodes.
pub(crate) struct FakeClocks(BTreeMap<NodeId, u64>);

impl FakeClocks {
    pub(crate) fn new(answers: &[(NodeId, u64)]) -> Arc<Self> {
        Arc::new(Self(answers.iter().copied().collect()))
    }
}

impl AskClock for FakeClocks {
    fn wall_ms(&self, node: NodeId, _: Instant) -> BoxFuture<'static, Option<u64>> {
        let answer = self.0.get(&node).copied();
        async move { answer }.boxed()
    }
}

// --- state ---

/// A state that is what it is told to be.
pub(crate) struct FakeState(Mutex<(u64, Head, Vec<OperationRecord>)>);

impl FakeState {
    pub(crate) fn new(index: u64, head: Head, live: Vec<OperationRecord>) -> Arc<Self> {
        Arc::new(Self(Mutex::new((index, head, live))))
    }

    pub(crate) fn replace(&self, index: u64, head: Head, live: Vec<OperationRecord>) {
        *lock(&self.0) = (index, head, live);
    }
}

impl StateSource for FakeState {
    fn applied_index(&self) -> u64 {
        lock(&self.0).0
    }

    fn head(&self) -> Head {
        lock(&self.0).1
    }

    fn on_lapse(&self, _: &TenantId, _: &NamespaceName) -> OnLapse {
        OnLapse::Unknown
    }

    fn live(&self, visit: &mut dyn FnMut(&OperationRecord)) {
        lock(&self.0).2.iter().for_each(visit);
    }
}

/// The rows of the machine, in memory.
#[derive(Default)]
struct Rows {
    head: Head,
    namespaces: Vec<NamespaceRecord>,
    operations: BTreeMap<OperationKey, OperationRecord>,
    executions: BTreeMap<(TenantTag, ExecutionId), ExecutionRecord>,
    grants: BTreeMap<(OperationKey, Birth, ClaimId), GrantRecord>,
}

impl Rows {
    fn absorb(&mut self, changes: &Changes) {
        self.head = changes.head;
        for row in changes.rows.clone() {
            match row {
                Change::Namespace(record) => self.namespaces.push(record),
                Change::Operation(record) => drop(self.operations.insert(record.key(), record)),
                Change::Execution(tenant, id, record) => drop(self.executions.insert((tenant, id), record)),
                Change::Grant(key, birth, claim, record) => drop(self.grants.insert((key, birth, claim), record)),
                Change::Token(_) | Change::Body(..) | Change::Evidence(..) => {}
            }
        }
    }
}

impl View for Rows {
    type Error = Infallible;

    fn head(&self) -> Head {
        self.head
    }

    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, Infallible> {
        Ok(self.namespaces.iter().find(|found| (&found.tenant, &found.name) == (tenant, name)).cloned())
    }

    fn operation(&self, key: &OperationKey) -> Result<Option<OperationRecord>, Infallible> {
        Ok(self.operations.get(key).cloned())
    }

    fn execution(&self, tenant: TenantTag, id: &ExecutionId) -> Result<Option<ExecutionRecord>, Infallible> {
        Ok(self.executions.get(&(tenant, *id)).cloned())
    }

    fn grant(&self, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Result<Option<GrantRecord>, Infallible> {
        Ok(self.grants.get(&(*key, birth, *claim)).cloned())
    }

    fn body(&self, _: &OperationKey, _: Birth) -> Result<Option<Body>, Infallible> {
        Ok(None)
    }
}

/// One log for all nodes: what is applied is applied everywhere at once.
#[derive(Default)]
pub(crate) struct Log {
    inner: Mutex<LogInner>,
    len: watch::Sender<usize>,
}

#[derive(Default)]
struct LogInner {
    rows: Rows,
    index: u64,
    /// Every command that any node ever appended, applied or not.
    appended: Vec<Command>,
    trackers: Vec<Arc<Tracker>>,
}

impl Log {
    /// Notes an entry that some log holds.
    fn append(&self, entry: &Bytes) {
        let batch = decode_batch(entry).unwrap();
        let mut inner = lock(&self.inner);
        inner.appended.extend(batch.envelopes.into_iter().map(|envelope| envelope.command));
        self.len.send_replace(inner.appended.len());
    }

    fn apply(&self, term: u64, entry: &Bytes) -> Vec<Outcome> {
        let batch = decode_batch(entry).unwrap();
        assert_eq!(batch.term, term, "a stamp left its leadership");
        let mut inner = lock(&self.inner);
        inner.index += 1;
        let index = inner.index;
        let head = EntryHead { group: GroupId(0), index, term, rules: batch.rules, stamp: batch.stamp };
        let (changes, outcomes) = apply_entry(&inner.rows, &head, &batch.envelopes).unwrap();
        inner.rows.absorb(&changes);
        for tracker in &inner.trackers {
            tracker.applied(&Applied { index, changes: &changes });
        }
        outcomes
    }

    /// How often the command of a number was appended.
    pub(crate) fn times_appended(&self, n: u64) -> usize {
        self.appended().get(&n).copied().unwrap_or_default()
    }

    /// The numbers of all commands that were ever appended, and how often each was.
    pub(crate) fn appended(&self) -> BTreeMap<u64, usize> {
        let mut times = BTreeMap::new();
        for n in lock(&self.inner).appended.iter().filter_map(number_of) {
            *times.entry(n).or_default() += 1;
        }
        times
    }

    /// Lease time is later than any node knows.
    pub(crate) fn set_lease_time(&self, ms: u64) {
        lock(&self.inner).rows.head.clocks.lease_time = LeaseTime(ms);
    }
}

// --- consensus ---

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Applied.
    Apply,
    /// Not appended: another leads, or the lease is over.
    Refuse(Option<NodeId>),
    /// Appended, then discarded, or consensus stopped: the answer says nothing.
    Discard,
    /// Appended, and no answer ever.
    Hang,
    /// Applied, with fewer outcomes than commands.
    LoseOutcomes,
}

pub(crate) struct FakeConsensus {
    id: NodeId,
    voters: Vec<NodeId>,
    role: watch::Sender<Role>,
    acked: Mutex<Option<Instant>>,
    script: Mutex<VecDeque<Fate>>,
    pub(crate) log: Arc<Log>,
    /// One permit lets one read index be confirmed.
    pub(crate) quorum: Semaphore,
    /// How many read indexes were begun.
    pub(crate) reads: watch::Sender<usize>,
}

impl FakeConsensus {
    /// The leader of term 1, alone.
    pub(crate) fn new(id: NodeId) -> Arc<Self> {
        Self::among(id, vec![id], Role::Leader { term: 1 }, Arc::default())
    }

    fn among(id: NodeId, voters: Vec<NodeId>, role: Role, log: Arc<Log>) -> Arc<Self> {
        Arc::new(Self {
            id,
            voters,
            role: watch::Sender::new(role),
            acked: Mutex::default(),
            script: Mutex::default(),
            log,
            quorum: Semaphore::new(0),
            reads: watch::Sender::new(0),
        })
    }

    pub(crate) fn ack(&self, at: Instant) {
        *lock(&self.acked) = Some(at);
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.send_replace(role);
    }

    /// The fates of the next entries; after them everything is applied.
    pub(crate) fn next_fates(&self, fates: impl IntoIterator<Item = Fate>) {
        lock(&self.script).extend(fates);
    }

    /// From here on everything is applied.
    pub(crate) fn no_more_fates(&self) {
        lock(&self.script).clear();
    }
}

impl Consensus for FakeConsensus {
    fn role(&self) -> Role {
        *self.role.borrow()
    }

    fn role_changed(&self, seen: Role) -> BoxFuture<'_, ()> {
        let mut role = self.role.subscribe();
        async move { drop(role.wait_for(|role| *role != seen).await) }.boxed()
    }

    #[expect(clippy::async_yields_async, reason = "handed over and answered are two events")]
    fn append(&self, term: u64, entry: Bytes) -> BoxFuture<'_, BoxFuture<'static, Appended>> {
        let fate = match self.role() {
            // As openraft: whoever is not the expected leader appends nothing.
            role if role != (Role::Leader { term }) => Fate::Refuse(None),
            _ => lock(&self.script).pop_front().unwrap_or(Fate::Apply),
        };
        if !matches!(fate, Fate::Refuse(_)) {
            self.log.append(&entry);
        }
        let appended = match fate {
            Fate::Apply => Some(Appended::Applied(self.log.apply(term, &entry))),
            Fate::LoseOutcomes => {
                let mut outcomes = self.log.apply(term, &entry);
                outcomes.pop();
                Some(Appended::Applied(outcomes))
            }
            Fate::Refuse(leader) => Some(Appended::NotAppended { leader }),
            Fate::Discard => Some(Appended::Unknown),
            Fate::Hang => None,
        };
        let fate = match appended {
            Some(appended) => async move { appended }.boxed(),
            None => std::future::pending().boxed(),
        };
        async move { fate }.boxed()
    }

    fn quorum_acked(&self) -> Option<Instant> {
        *lock(&self.acked)
    }

    fn read_index(&self) -> BoxFuture<'_, Result<LogId, NoReadIndex>> {
        async move {
            let index = lock(&self.log.inner).index;
            self.reads.send_modify(|reads| *reads += 1);
            let Role::Leader { term } = self.role() else {
                return Err(NoReadIndex::NotLeader(None));
            };
            self.quorum.acquire().await.unwrap().forget();
            Ok(LogId { term, index })
        }
        .boxed()
    }

    fn id(&self) -> NodeId {
        self.id
    }

    fn voter_sets(&self) -> Vec<Vec<NodeId>> {
        vec![self.voters.clone()]
    }
}

// --- links ---

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

// --- nodes ---

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
            inner.rows.head.grants = GrantCounter(1_000);
            inner.rows.namespaces.push(policy());
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

fn policy() -> NamespaceRecord {
    NamespaceRecord {
        tenant: tenant(),
        name: namespace(),
        scope: Scope::Namespace,
        on_lapse: OnLapse::Unknown,
        attempts: Attempts::Automatic,
        conflict_style: ConflictStyle::Hapax,
        transport_fields: Vec::new(),
        partitions: 1,
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
        let command = Bootstrap { cluster_id: [1; 16], wall_ms: WALL_MS, namespaces: Vec::new(), tokens: Vec::new() };
        let outcome = self.proposer.propose(Command::Bootstrap(command), soon()).await.unwrap();
        assert_eq!(outcome.answer, Answer::Bootstrapped);
    }

    pub(crate) async fn claim(&self, n: u64, lease_ms: u64) {
        let caller = Caller { tenant: tenant(), client: ClientId::new("c"), namespaces: Vec::new() };
        let claim = Claim {
            caller,
            namespace: namespace(),
            internal_key: internal_key(n),
            slot: Slot(0),
            digest: Digest([1; 32]),
            claim_id: ClaimId([n as u8; 16]),
            owner: "o".to_owned(),
            lease_ms,
            attempt: None,
            correlation_id: None,
            execution_id: ExecutionId { slot: Slot(0), random: [n as u8; 16] },
        };
        let outcome = self.proposer.propose(Command::Claim(claim), soon()).await.unwrap();
        assert!(matches!(outcome.answer, Answer::Claimed(_)), "{:?}", outcome.answer);
    }

    fn operation(&self, n: u64) -> OperationRecord {
        lock(&self.consensus.log.inner).rows.operations[&key(n)].clone()
    }

    pub(crate) fn executing_deadline(&self, n: u64) -> LeaseTime {
        self.operation(n).execution.deadline
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
