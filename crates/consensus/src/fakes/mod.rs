//! What the unit tests of this crate run on: clocks that stand still, a log in memory that applies with the real machine,
//! consensus that does as it is told, and links that break on demand. Here: values and clocks.

mod consensus;
mod nodes;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_codec::command::encode_envelope;
use hapax_machine::apply::{RULES, apply_entry};
use hapax_machine::change::{Change, Event};
use hapax_machine::clock::Stamp;
use hapax_machine::command::{Caller, Claim, EntryHead};
use hapax_machine::epoch::Binding;
use hapax_machine::ids::{
    AuthorityEpoch, ClaimId, ClientId, Digest, EpochScope, ExecutionId, GroupId, InternalKey, LeaseEpoch, LeaseTime,
    NamespaceName, OperationKey, Revision, Slot, TenantId, TenantTag, WallTime,
};
use hapax_machine::namespace::NamespaceRecord;
use hapax_machine::operation::{Definite, OperationRecord, OutcomeRecord};
use hapax_machine::{Command, Envelope};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub(crate) use self::consensus::{FakeConsensus, Fate};
pub(crate) use self::nodes::{Cluster, Link, Node};
pub(crate) use self::state::FakeState;
use self::state::Rows;
use crate::clock::NodeClock;
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

pub(crate) fn policy() -> NamespaceRecord {
    NamespaceRecord::with_defaults(tenant(), namespace())
}

/// What a claim makes of a key, with this epoch and deadline.
pub(crate) fn executing(n: u64, epoch: u64, deadline: u64) -> OperationRecord {
    let mut rows = Rows::default();
    rows.put(vec![Change::Namespace(policy())]);
    let entry = EntryHead { group: GroupId(0), index: 1, term: 1, rules: RULES, stamp: Stamp::default() };
    let command = Command::Claim(claim(n, 1_000));
    let (changes, _) =
        apply_entry(rows.view(), &entry, &[Envelope { not_after: LeaseTime(u64::MAX), command }]).unwrap();
    rows.absorb(&changes);
    let mut record = rows.operation(&key(n));
    let execution = record.execution.as_mut().unwrap();
    (execution.lease_epoch, execution.deadline) = (LeaseEpoch(epoch), LeaseTime(deadline));
    record
}

/// Executing, bound to these values of registers.
pub(crate) fn bound(n: u64, to: &[(&str, u64)]) -> OperationRecord {
    let mut record = executing(n, n, 1 << 40);
    let binding =
        |(scope, value): &(&str, u64)| Binding { scope: EpochScope::new(*scope), value: AuthorityEpoch(*value) };
    record.execution.as_mut().unwrap().authority = to.iter().map(binding).collect();
    record
}

pub(crate) fn finished(n: u64, outcome: Definite) -> OperationRecord {
    let mut record = executing(n, 1, 0);
    let execution = record.execution.as_mut().unwrap();
    execution.state = outcome.into();
    execution.outcome = Some(OutcomeRecord {
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

pub(crate) fn event(n: u64) -> Event {
    let record = executing(n, 1, 0);
    Event {
        revision: Revision::default(),
        part: 0,
        tenant: TenantTag::of(&tenant()),
        namespace: namespace(),
        operation: record.id,
        state: record.state(),
        attempt: record.attempt(),
        execution: record.execution.map(|execution| execution.id),
        escalated: false,
        quarantined: false,
    }
}

pub(crate) fn caller() -> Caller {
    Caller { tenant: tenant(), client: ClientId::new("c"), namespaces: Vec::new() }
}

pub(crate) fn claim(n: u64, lease_ms: u64) -> Claim {
    Claim {
        caller: caller(),
        namespace: namespace(),
        internal_key: internal_key(n),
        slot: Slot(0),
        digest: Digest([1; 32]),
        claim_id: ClaimId(u128::from(n).to_be_bytes()),
        owner: "o".to_owned(),
        lease_ms,
        attempt: None,
        correlation_id: None,
        execution_id: ExecutionId { slot: Slot(0), random: u128::from(n).to_be_bytes() },
        capability_id: None,
        message: None,
        epoch: None,
        resource: None,
        key_created_at: None,
    }
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
