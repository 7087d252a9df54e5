//! One log in memory that applies with the real machine, and consensus that does with each entry as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_codec::command::decode_batch;
use hapax_codec::peer::raft::LogId;
use hapax_machine::apply::apply_entry;
use hapax_machine::change::Head;
use hapax_machine::command::{Command, EntryHead};
use hapax_machine::ids::{AuthorityEpoch, EpochScope, GroupId, LeaseTime, NamespaceName, TenantId};
use hapax_machine::namespace::{Floors, NamespaceRecord, NamespaceStatus};
use hapax_machine::operation::OperationRecord;
use hapax_machine::{Outcome, View};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::state::Rows;
use super::{lock, namespace, number_of, tenant};
use crate::observer::{Applied, ApplyObserver};
use crate::seam::{Appended, Consensus, NoReadIndex, Role};
use crate::state_source::StateSource;
use crate::tracker::Tracker;
use crate::types::NodeId;

/// One log for all nodes: what is applied is applied everywhere at once.
#[derive(Default)]
pub(crate) struct Log {
    pub(super) inner: Mutex<LogInner>,
    pub(super) len: watch::Sender<usize>,
    looks: watch::Sender<usize>,
}

#[derive(Default)]
pub(super) struct LogInner {
    pub(super) rows: Rows,
    index: u64,
    /// Every command that any node ever appended, applied or not.
    pub(super) appended: Vec<Command>,
    pub(super) trackers: Vec<Arc<Tracker>>,
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
        let (changes, outcomes) = apply_entry(inner.rows.view(), &head, &batch.envelopes).unwrap();
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

    /// How many commands like this were appended.
    pub(crate) fn count(&self, like: impl Fn(&Command) -> bool) -> usize {
        lock(&self.inner).appended.iter().filter(|command| like(command)).count()
    }

    /// How often the namespaces were looked through.
    pub(crate) fn looks(&self) -> usize {
        *self.looks.borrow()
    }

    pub(crate) async fn wait_for_looks(&self, looks: usize, deadline: Instant) {
        let mut seen = self.looks.subscribe();
        timeout_at(deadline, seen.wait_for(|seen| *seen >= looks)).await.expect("nobody looks").unwrap();
    }

    /// Waits until the one namespace's floors stand there.
    pub(crate) async fn wait_for_floors(&self, floors: Floors, deadline: Instant) {
        let mut len = self.len.subscribe();
        loop {
            drop(len.borrow_and_update());
            let stands = lock(&self.inner).rows.view().status(&tenant(), &namespace()).unwrap().floors;
            if stands == floors {
                return;
            }
            let waited = timeout_at(deadline, len.changed()).await;
            waited.unwrap_or_else(|_| panic!("floors stand at {stands:?}, not {floors:?}")).unwrap();
        }
    }

    /// Lease time is later than any node knows.
    pub(crate) fn set_lease_time(&self, ms: u64) {
        let rows = &mut lock(&self.inner).rows;
        let mut head = rows.view().head();
        head.clocks.lease_time = LeaseTime(ms);
        rows.set_head(head);
    }
}

impl StateSource for Log {
    fn applied_index(&self) -> u64 {
        lock(&self.inner).index
    }

    fn head(&self) -> Head {
        lock(&self.inner).rows.view().head()
    }

    fn policy(&self, tenant: &TenantId, namespace: &NamespaceName) -> Option<NamespaceRecord> {
        lock(&self.inner).rows.view().namespace(tenant, namespace).unwrap()
    }

    fn register(&self, tenant: &TenantId, scope: &EpochScope) -> AuthorityEpoch {
        let found = lock(&self.inner).rows.view().epoch(tenant, scope).unwrap();
        found.map_or(AuthorityEpoch(0), |record| record.value)
    }

    fn live(&self, _: &mut dyn FnMut(&OperationRecord)) {}

    fn namespaces(&self, visit: &mut dyn FnMut(&NamespaceRecord, &NamespaceStatus)) {
        lock(&self.inner).rows.namespaces(visit);
        self.looks.send_modify(|looks| *looks += 1);
    }
}

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

    pub(super) fn among(id: NodeId, voters: Vec<NodeId>, role: Role, log: Arc<Log>) -> Arc<Self> {
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
