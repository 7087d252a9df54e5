//! The openraft network against a scripted consensus. The defaults that openraft would fall back to,
//! sequential appends and granted pre-votes, fail here.

mod snapshots;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::BoxStream;
use openraft::EntryPayload;
use openraft::raft::{AppendEntriesResponse, StreamAppendError, TransferLeaderError};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::tail::{COMMIT_DELAY, Tail};
use crate::transport::{Config, Identity, KnownData, MemNetwork, serve};
use crate::types::{CommittedLeaderId, DataId, Entry, LogId, Proposal};
use hapax_codec::peer::hello::ClusterId;

/// Consensus by script: it answers appends when the gate lets it, and counts everything.
struct Script {
    /// Requests of append sessions that have arrived and are not answered.
    outstanding: AtomicUsize,
    most_outstanding: AtomicUsize,
    arrived: Notify,
    gate: Semaphore,
    /// Appends that begin at this index conflict.
    conflict_at: Mutex<Option<u64>>,
    /// Acknowledges this instead of what was sent.
    lie: Mutex<Option<LogId>>,
    votes: AtomicUsize,
    pre_votes: AtomicUsize,
    grant: AtomicBool,
    installed: Mutex<Vec<(Vote, Snapshot)>>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            outstanding: AtomicUsize::new(0),
            most_outstanding: AtomicUsize::new(0),
            arrived: Notify::new(),
            gate: Semaphore::new(0),
            conflict_at: Mutex::default(),
            lie: Mutex::default(),
            votes: AtomicUsize::new(0),
            pre_votes: AtomicUsize::new(0),
            grant: AtomicBool::new(false),
            installed: Mutex::default(),
        }
    }
}

impl Script {
    async fn wait_outstanding(&self, count: usize) {
        let waited = timeout(Duration::from_secs(20), async {
            while self.outstanding.load(Ordering::SeqCst) < count {
                self.arrived.notified().await;
            }
        });
        waited.await.unwrap_or_else(|_| {
            panic!("{} requests are under way, not {count}", self.outstanding.load(Ordering::SeqCst))
        });
    }

    fn answer(&self, request: &AppendEntriesRequest<TypeConfig>) -> StreamAppendResult<TypeConfig> {
        let prev = request.prev_log_id;
        if let Some(prev) = prev.filter(|id| Some(id.index) == *self.conflict_at.lock().expect("not poisoned")) {
            return Err(StreamAppendError::Conflict(prev));
        }
        let lie = *self.lie.lock().expect("not poisoned");
        Ok(lie.or_else(|| request.entries.last().map(|entry| entry.log_id).or(prev)))
    }
}

/// The script as a service; a clone per server.
#[derive(Clone)]
struct Fake(Arc<Script>);

impl RaftService for Fake {
    async fn vote(&self, request: VoteRequest<TypeConfig>) -> Option<VoteResponse<TypeConfig>> {
        self.0.votes.fetch_add(1, Ordering::SeqCst);
        Some(VoteResponse::new(request.vote, None, self.0.grant.load(Ordering::SeqCst)))
    }

    async fn pre_vote(&self, _request: VoteRequest<TypeConfig>) -> Option<VoteResponse<TypeConfig>> {
        self.0.pre_votes.fetch_add(1, Ordering::SeqCst);
        Some(VoteResponse::new(Vote::new(1, 9), Some(log_id(77)), self.0.grant.load(Ordering::SeqCst)))
    }

    async fn append(&self, request: AppendEntriesRequest<TypeConfig>) -> Option<AppendEntriesResponse<TypeConfig>> {
        Some(match self.0.answer(&request) {
            Ok(_) => AppendEntriesResponse::Success,
            Err(StreamAppendError::Conflict(_)) => AppendEntriesResponse::Conflict,
            Err(StreamAppendError::HigherVote(vote)) => AppendEntriesResponse::HigherVote(vote),
        })
    }

    fn stream_append(
        &self,
        requests: BoxStream<'static, AppendEntriesRequest<TypeConfig>>,
    ) -> BoxStream<'static, Option<StreamAppendResult<TypeConfig>>> {
        let script = Arc::clone(&self.0);
        let counted = Arc::clone(&self.0);
        // As openraft does: requests are taken as they come, and answered in order later.
        let (taken, queue) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(requests.for_each(move |request| {
            let now = counted.outstanding.fetch_add(1, Ordering::SeqCst) + 1;
            counted.most_outstanding.fetch_max(now, Ordering::SeqCst);
            counted.arrived.notify_one();
            let _ = taken.send(request);
            std::future::ready(())
        }));
        Box::pin(unfold((script, queue, true), |(script, mut queue, goes_on)| async move {
            if !goes_on {
                return None;
            }
            let request = queue.recv().await?;
            script.gate.acquire().await.expect("open").forget();
            script.outstanding.fetch_sub(1, Ordering::SeqCst);
            let answer = script.answer(&request);
            let goes_on = answer.is_ok();
            Some((Some(answer), (script, queue, goes_on)))
        }))
    }

    async fn transfer_leader(
        &self,
        request: TransferLeaderRequest<TypeConfig>,
    ) -> Option<TransferLeaderResponse<TypeConfig>> {
        let expected = *request.from_leader();
        Some(Err(TransferLeaderError::VoteChanged { expected, actual: Vote::new(9, *request.to_node_id()) }))
    }

    async fn install_snapshot(&self, vote: Vote, snapshot: Snapshot) -> Option<SnapshotResponse<TypeConfig>> {
        self.0.installed.lock().expect("not poisoned").push((vote, snapshot));
        Some(SnapshotResponse::new(vote))
    }
}

struct Echo;

impl AppHandler for Echo {
    async fn handle(&self, _from: NodeId, _kind: u8, payload: Bytes) -> Bytes {
        payload
    }
}

fn config() -> Config {
    Config {
        connect_timeout: Duration::from_secs(5),
        reconnect_pause: Duration::from_millis(1),
        reconnect_pause_max: Duration::from_millis(5),
        stall_timeout: Duration::from_secs(60),
        ..Config::lan()
    }
}

fn identity(node: NodeId) -> Identity {
    Identity { cluster: ClusterId([1; 16]), node, data: DataId([node as u8; 16]) }
}

/// Long enough for anything that happens at all.
fn patient() -> RPCOption {
    RPCOption::new(Duration::from_secs(30))
}

struct Follower {
    script: Arc<Script>,
    dir: tempfile::TempDir,
    _server: AbortOnDropHandle<()>,
}

fn follower(network: &MemNetwork, config: &Config) -> Follower {
    let script = Arc::new(Script::default());
    let dir = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::new(dir.path().join("snapshots"), config.snapshot_stall_timeout).expect("a receiver");
    let handler = Handler::new(Fake(Arc::clone(&script)), Echo, receiver);
    let listener = network.listen(2, "two");
    let served = serve(
        listener,
        identity(2),
        KnownData::default(),
        Arc::new(handler),
        config.clone(),
        CancellationToken::new(),
    );
    Follower { script, dir, _server: AbortOnDropHandle::new(tokio::spawn(served)) }
}

fn node(addr: &str) -> PeerNode {
    PeerNode { addr: addr.to_owned(), ..PeerNode::default() }
}

struct Leader {
    network: Network,
    peers: Peers,
    tail: Tail,
}

fn leader(network: &MemNetwork, config: &Config) -> Leader {
    let peers = Peers::new(identity(1), network.dialer(1), config.clone());
    let tail = Tail::default();
    Leader { network: Network::new(peers.clone(), tail.clone()), peers, tail }
}

impl Leader {
    async fn client(&mut self) -> PeerClient {
        self.network.new_client(2, &node("two")).await
    }
}

fn log_id(index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(1), index)
}

/// One entry of `len` bytes after `prev`.
fn request(prev: u64, len: usize) -> AppendEntriesRequest<TypeConfig> {
    AppendEntriesRequest {
        vote: Vote::new_committed(1, 1),
        prev_log_id: Some(log_id(prev)),
        leader_commit: None,
        entries: vec![Entry {
            log_id: log_id(prev + 1),
            payload: EntryPayload::Normal(Proposal(Bytes::from(vec![0; len]))),
        }],
    }
}

fn requests(count: u64) -> BoxStream<'static, AppendEntriesRequest<TypeConfig>> {
    futures::stream::iter((0..count).map(|n| request(n, 100))).boxed()
}

async fn collect(stream: BoxStream<'_, AppendItem>) -> Vec<AppendItem> {
    timeout(Duration::from_secs(30), stream.collect()).await.expect("the stream ends")
}

#[tokio::test]
async fn appends_are_pipelined() {
    let (network, config) = (MemNetwork::new(), config());
    let follower = follower(&network, &config);
    let mut client = leader(&network, &config).client().await;
    let sending = tokio::spawn(async move {
        let answers = client.stream_append(requests(8), patient()).await.expect("a stream");
        collect(answers).await
    });
    // None is answered before all eight are there: one at a time, this would never come.
    follower.script.wait_outstanding(8).await;
    follower.script.gate.add_permits(8);
    let answers = sending.await.expect("joined");
    let expected: Vec<_> = (1..=8).map(|index| Ok(Ok(Some(log_id(index))))).collect();
    assert_eq!(answers, expected);
}

/// Requests that are made when they are asked for, and when that was.
#[tokio::test(start_paused = true)]
async fn a_request_is_asked_for_when_the_log_goes_on_or_after_a_little_while() {
    let (network, config) = (MemNetwork::new(), config());
    let follower = follower(&network, &config);
    follower.script.gate.add_permits(100);
    let mut leader = leader(&network, &config);
    let (mut client, tail) = (leader.client().await, leader.tail.clone());
    let mut asked = async |tail_at: u64| {
        tail.appended(tail_at);
        let (times, begun) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let noted = Arc::clone(&times);
        let input = requests(3).inspect(move |_| noted.lock().expect("not poisoned").push(begun.elapsed()));
        let answers = client.stream_append(input, patient()).await.expect("a stream");
        assert_eq!(collect(answers).await.len(), 3);
        times.lock().expect("not poisoned").clone()
    };
    assert_eq!(asked(3).await, [Duration::ZERO; 3], "there is always more to send");
    assert_eq!(asked(0).await, [Duration::ZERO, COMMIT_DELAY, COMMIT_DELAY * 2], "there is never");
}

#[tokio::test]
async fn no_more_than_the_window_is_under_way() {
    let network = MemNetwork::new();
    let config = Config { append_window: 4, ..config() };
    let follower = follower(&network, &config);
    let mut client = leader(&network, &config).client().await;
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let input = requests(50).inspect(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let sending = tokio::spawn(async move {
        let answers = client.stream_append(input, patient()).await.expect("a stream");
        collect(answers).await
    });
    follower.script.wait_outstanding(4).await;
    assert_eq!(taken.load(Ordering::SeqCst), 4);
    follower.script.gate.add_permits(50);
    assert_eq!(sending.await.expect("joined").len(), 50);
    assert_eq!(follower.script.most_outstanding.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn dropping_the_answers_stops_everything() {
    struct Input(Arc<AtomicBool>);
    impl Drop for Input {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (network, config) = (MemNetwork::new(), config());
    let follower = follower(&network, &config);
    let mut client = leader(&network, &config).client().await;
    let dropped = Arc::new(AtomicBool::new(false));
    let held = Input(Arc::clone(&dropped));
    let input = requests(100).inspect(move |_| {
        let _ = &held;
    });
    let mut answers = client.stream_append(input, patient()).await.expect("a stream");
    follower.script.gate.add_permits(1);
    answers.next().await.expect("an answer").expect("delivered").expect("accepted");
    drop(answers);
    assert!(dropped.load(Ordering::SeqCst), "nothing holds the input any more");

    // The connection goes on with the next session, and late answers of the last are not mistaken.
    follower.script.gate.add_permits(100);
    let input = futures::stream::iter([request(500, 10), request(501, 10)]);
    let answers = client.stream_append(input, patient()).await.expect("a stream");
    assert_eq!(collect(answers).await, vec![Ok(Ok(Some(log_id(501)))), Ok(Ok(Some(log_id(502))))]);
}

#[tokio::test]
async fn a_conflict_ends_the_session_and_what_was_under_way_with_it() {
    let (network, config) = (MemNetwork::new(), config());
    let follower = follower(&network, &config);
    *follower.script.conflict_at.lock().expect("not poisoned") = Some(2);
    follower.script.gate.add_permits(100);
    let mut client = leader(&network, &config).client().await;
    let answers = client.stream_append(requests(10), patient()).await.expect("a stream");
    let answers = collect(answers).await;
    let conflict = Ok(Err(StreamAppendError::Conflict(log_id(2))));
    assert_eq!(answers, vec![Ok(Ok(Some(log_id(1)))), Ok(Ok(Some(log_id(2)))), conflict]);

    let input = futures::stream::iter([request(1, 10)]);
    let answers = client.stream_append(input, patient()).await.expect("a stream");
    assert_eq!(collect(answers).await, vec![Ok(Ok(Some(log_id(2))))]);
}

#[tokio::test]
async fn a_long_request_goes_in_parts_and_is_acknowledged_in_parts() {
    let network = MemNetwork::new();
    let config = Config { append_frame_len: 2_500, append_window: 2, ..config() };
    let follower = follower(&network, &config);
    follower.script.gate.add_permits(100);
    let mut client = leader(&network, &config).client().await;
    let mut long = request(0, 1_000);
    for index in 2..=9 {
        long.entries.push(Entry { log_id: log_id(index), payload: long.entries[0].payload.clone() });
    }
    let answers = client.stream_append(futures::stream::iter([long]), patient()).await.expect("a stream");
    let expected: Vec<_> = [2, 4, 6, 8, 9].map(|index| Ok(Ok(Some(log_id(index))))).to_vec();
    assert_eq!(collect(answers).await, expected);
}

#[tokio::test]
async fn an_acknowledgement_of_what_was_not_sent_is_not_believed() {
    let (network, config) = (MemNetwork::new(), config());
    let follower = follower(&network, &config);
    *follower.script.lie.lock().expect("not poisoned") = Some(log_id(100));
    follower.script.gate.add_permits(100);
    let mut client = leader(&network, &config).client().await;
    let answers = client.stream_append(requests(3), patient()).await.expect("a stream");
    let answers = collect(answers).await;
    assert!(matches!(answers.as_slice(), [Err(RPCError::Network(_))]), "{answers:?}");
}

#[tokio::test]
async fn a_broken_connection_ends_the_stream_with_an_error() {
    let (network, config) = (MemNetwork::new(), config());
    let follower = follower(&network, &config);
    let mut client = leader(&network, &config).client().await;
    let sending = tokio::spawn(async move {
        let answers = client.stream_append(requests(3), patient()).await.expect("a stream");
        collect(answers).await
    });
    follower.script.wait_outstanding(3).await;
    network.reset(1, 2);
    let answers = sending.await.expect("joined");
    assert!(matches!(answers.as_slice(), [Err(RPCError::Network(_))]), "{answers:?}");
}

#[tokio::test]
async fn heartbeats_do_not_wait_for_appends() {
    let (network, config) = (MemNetwork::new(), config());
    let follower = follower(&network, &config);
    let mut leader = leader(&network, &config);
    let mut client = leader.client().await;
    let _stuck = AbortOnDropHandle::new(tokio::spawn(async move {
        let answers = client.stream_append(requests(16), patient()).await.expect("a stream");
        collect(answers).await
    }));
    follower.script.wait_outstanding(16).await;
    let mut heartbeats = leader.network.new_heartbeat_client(2, &node("two")).await;
    let mut heartbeat = request(7, 0);
    heartbeat.entries.clear();
    let input = futures::stream::iter([heartbeat.clone()]);
    let answers = heartbeats.stream_append(input, patient()).await.expect("a stream");
    assert_eq!(collect(answers).await, vec![Ok(Ok(Some(log_id(7))))]);
    assert!(leader.peers.rtt(2).is_some());

    *follower.script.conflict_at.lock().expect("not poisoned") = Some(7);
    let answers = heartbeats.stream_append(futures::stream::iter([heartbeat]), patient()).await.expect("a stream");
    assert_eq!(collect(answers).await, vec![Ok(Err(StreamAppendError::Conflict(log_id(7))))]);
}

#[tokio::test]
async fn a_pre_vote_is_asked_and_its_refusal_heard() {
    let (network, config) = (MemNetwork::new(), config());
    let follower = follower(&network, &config);
    let mut client = leader(&network, &config).client().await;
    let ask = VoteRequest::new(Vote::new(5, 1), Some(log_id(3)));
    let answer = client.pre_vote(ask.clone(), patient()).await.expect("answered");
    assert!(!answer.vote_granted, "openraft's default grants without asking");
    assert_eq!((answer.vote, answer.last_log_id), (Vote::new(1, 9), Some(log_id(77))));
    follower.script.grant.store(true, Ordering::SeqCst);
    assert!(client.pre_vote(ask.clone(), patient()).await.expect("answered").vote_granted);
    assert_eq!(follower.script.pre_votes.load(Ordering::SeqCst), 2);
    assert_eq!(follower.script.votes.load(Ordering::SeqCst), 0, "asking costs no vote");
    assert!(client.vote(ask, patient()).await.expect("answered").vote_granted);
    assert_eq!(follower.script.votes.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn nobody_grants_for_a_dead_peer() {
    let network = MemNetwork::new();
    let mut client = leader(&network, &config()).client().await;
    let ask = VoteRequest::new(Vote::new(5, 1), None);
    let answer = client.pre_vote(ask.clone(), patient()).await;
    assert!(matches!(answer, Err(RPCError::Unreachable(_))), "{answer:?}");
    let answer = client.vote(ask, patient()).await;
    assert!(matches!(answer, Err(RPCError::Unreachable(_))), "{answer:?}");
    // Each failure takes a request: that is where openraft waits out its pause.
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let input = requests(2).inspect(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let answers: Vec<_> = client.stream_append(input, patient()).await.expect("a stream").collect().await;
    assert!(matches!(answers.as_slice(), [Err(RPCError::Unreachable(_))]), "{answers:?}");
    assert_eq!(taken.load(Ordering::SeqCst), 1);
    assert!(client.backoff().expect("its own").take(20).all(|pause| pause <= config().reconnect_pause_max));
}

#[tokio::test]
async fn a_silent_peer_is_a_timeout() {
    let (network, config) = (MemNetwork::new(), config());
    let _follower = follower(&network, &config);
    let mut client = leader(&network, &config).client().await;
    let ask = VoteRequest::new(Vote::new(5, 1), None);
    client.vote(ask.clone(), patient()).await.expect("answered");
    network.cut(2, 1);
    let answer = client.vote(ask, RPCOption::new(Duration::from_millis(60))).await;
    assert!(matches!(answer, Err(RPCError::Timeout(_))), "{answer:?}");
}

#[tokio::test]
async fn a_leader_transfer_is_delivered_and_its_refusal_heard() {
    let (network, config) = (MemNetwork::new(), config());
    let _follower = follower(&network, &config);
    let mut client = leader(&network, &config).client().await;
    let from = Vote::new_committed(4, 1);
    let answer = client.transfer_leader(TransferLeaderRequest::new(from, 2, Some(log_id(3))), patient()).await;
    let refused = TransferLeaderError::VoteChanged { expected: from, actual: Vote::new(9, 2) };
    assert_eq!(answer.expect("delivered"), Err(refused));
}
