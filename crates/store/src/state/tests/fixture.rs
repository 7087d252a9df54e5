//! A script of entries that touches every kind of row, and stores on both media to apply it to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hapax_codec::log::LogId;
use hapax_codec::record::Applied;
use hapax_machine::apply::apply_entry;
use hapax_machine::clock::Stamp;
use hapax_machine::command::*;
use hapax_machine::ids::*;
use hapax_machine::namespace::{Attempts, ConflictStyle, NamespaceRecord, OnLapse, Scope};
use hapax_machine::operation::Definite;
use hapax_machine::outcome::{Answer, Outcome};
use hapax_machine::tenant::TokenRecord;
use tempfile::TempDir;

use super::super::{MemoryState, OpenError, OpenOptions, StateStore, StateView};
use crate::seam::{FatalHook, StorageFault};

pub(super) const TERM: u64 = 3;

/// Collects what the fatal hook is told.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<Mutex<Vec<StorageFault>>>);

impl Told {
    pub(super) fn hook(&self) -> FatalHook {
        let told = self.clone();
        Arc::new(move |fault| told.0.lock().unwrap().push(fault.clone()))
    }

    pub(super) fn faults(&self) -> Vec<StorageFault> {
        self.0.lock().unwrap().clone()
    }
}

/// Where a store lives.
pub(super) enum Place {
    Disk(TempDir),
    Memory(MemoryState, TempDir),
}

impl Place {
    pub(super) fn both() -> [Self; 2] {
        [Self::disk(), Self::Memory(MemoryState::default(), tempfile::tempdir().unwrap())]
    }

    pub(super) fn disk() -> Self {
        Self::Disk(tempfile::tempdir().unwrap())
    }

    pub(super) fn root(&self) -> PathBuf {
        match self {
            Self::Disk(dir) => dir.path().join("state"),
            Self::Memory(_, dir) => dir.path().join("unused"),
        }
    }

    /// A path for a checkpoint, beside the store.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        match self {
            Self::Disk(dir) | Self::Memory(_, dir) => dir.path().join(name),
        }
    }

    pub(super) fn try_open(&self, options: OpenOptions, told: &Told) -> Result<StateStore, OpenError> {
        match self {
            Self::Disk(_) => StateStore::open(&self.root(), options, told.hook()),
            Self::Memory(memory, _) => memory.open(options, told.hook()),
        }
    }

    pub(super) fn open(&self) -> StateStore {
        self.try_open(OpenOptions::default(), &Told::default()).unwrap()
    }
}

fn tenant() -> TenantId {
    TenantId::new("default")
}

pub(super) fn namespace(on_lapse: OnLapse) -> NamespaceName {
    NamespaceName::new(if on_lapse == OnLapse::Takeover { "taken" } else { "payments" })
}

fn policy(on_lapse: OnLapse) -> NamespaceRecord {
    NamespaceRecord {
        tenant: tenant(),
        name: namespace(on_lapse),
        scope: Scope::Namespace,
        on_lapse,
        attempts: Attempts::Automatic,
        conflict_style: ConflictStyle::Hapax,
        transport_fields: Vec::new(),
        partitions: 1,
    }
}

fn caller() -> Caller {
    Caller { tenant: tenant(), client: ClientId::new("billing"), namespaces: Vec::new() }
}

fn enveloped(command: Command) -> Envelope {
    Envelope { not_after: LeaseTime(u64::MAX), command }
}

pub(super) fn bootstrap() -> Envelope {
    enveloped(Command::Bootstrap(Bootstrap {
        cluster_id: [7; 16],
        wall_ms: 1_796_000_000_000,
        namespaces: vec![policy(OnLapse::Unknown), policy(OnLapse::Takeover)],
        tokens: vec![TokenRecord {
            id: "t1".into(),
            secret_hash: [1; 32],
            tenant: tenant(),
            client: ClientId::new("billing"),
            namespaces: Vec::new(),
            roles: 1,
            expires_at_ms: None,
        }],
    }))
}

fn internal(on_lapse: OnLapse, key: u64) -> InternalKey {
    internal_key(&tenant(), &namespace(on_lapse), ScopeOf::Namespace, &key.to_string(), None)
}

pub(super) fn row(on_lapse: OnLapse, key: u64) -> OperationKey {
    OperationKey::new(&tenant(), &internal(on_lapse, key))
}

pub(super) fn random(seed: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes
}

pub(super) fn claim(on_lapse: OnLapse, key: u64, call: u64) -> Envelope {
    let internal_key = internal(on_lapse, key);
    let slot = slot(&tenant(), &namespace(on_lapse), 0);
    enveloped(Command::Claim(Claim {
        caller: caller(),
        namespace: namespace(on_lapse),
        internal_key,
        slot,
        digest: Digest([9; 32]),
        claim_id: ClaimId(random(call)),
        owner: format!("worker-{call}"),
        lease_ms: 1_000,
        attempt: None,
        correlation_id: None,
        execution_id: ExecutionId { slot, random: random(call ^ u64::MAX) },
    }))
}

pub(super) fn report(execution_id: ExecutionId, lease_epoch: LeaseEpoch, outcome: Definite) -> Envelope {
    let result = (outcome == Definite::Completed).then(|| vec![0x7b; 256]);
    let data = ResultData { status_code: Some(201), result, ..ResultData::default() };
    enveloped(Command::Report(Report { caller: caller(), execution_id, lease_epoch, outcome: Some(outcome), data }))
}

pub(super) fn evidence(execution_id: ExecutionId, call: u64, outcome: Definite) -> Envelope {
    enveloped(Command::Evidence(Evidence {
        caller: caller(),
        execution_id,
        claim_id: ClaimId(random(call)),
        outcome,
        data: ResultData::default(),
        proof: Some("provider's log".into()),
    }))
}

/// Applies entries one after another.
pub(super) struct Driver {
    pub(super) store: StateStore,
    pub(super) index: u64,
    pub(super) lead_ms: u64,
}

impl Driver {
    /// Goes on where `store` stands. Lease time is a function of the index, so that any store can go on.
    pub(super) fn on(store: StateStore) -> Self {
        let index = store.applied().last_applied.map_or(0, |id| id.index);
        let lead_ms = store.view().0.head.clocks.lead_ms;
        Self { store, index, lead_ms }
    }

    pub(super) fn apply(&mut self, envelopes: &[Envelope]) -> Result<Vec<Outcome>, StorageFault> {
        let index = self.index + 1;
        let view = self.store.view();
        let stamp = Stamp { wall_ms: 1_796_000_000_000 + self.lead_ms, lead_ms: self.lead_ms };
        let entry = EntryHead { group: GroupId(0), index, term: TERM, rules: RuleVersion(1), stamp };
        let (changes, outcomes) = apply_entry(&view, &entry, envelopes).expect("the view reads");
        self.store.commit(&applied(index), &changes)?;
        self.index = index;
        Ok(outcomes)
    }

    pub(super) fn one(&mut self, envelope: Envelope) -> Answer {
        self.apply(&[envelope]).unwrap().remove(0).answer
    }

    /// The next entry of the script; everything it does follows from its index and the state.
    pub(super) fn step(&mut self) -> Result<(), StorageFault> {
        let n = self.index + 1;
        self.lead_ms = n * 100;
        if n == 1 {
            return self.apply(&[bootstrap()]).map(drop);
        }
        // A claim that lapses, one that is taken over, and one that completes, fails or is not applied.
        let envelopes =
            [claim(OnLapse::Takeover, n / 20, n), claim(OnLapse::Unknown, n, n), reports(&self.store.view(), n)];
        self.apply(&envelopes).map(drop)
    }

    pub(super) fn run_to(&mut self, index: u64) {
        while self.index < index {
            self.step().unwrap();
        }
    }
}

/// Says something about the key that was claimed a few entries before.
fn reports(view: &StateView, n: u64) -> Envelope {
    use hapax_machine::View;
    let key = row(OnLapse::Unknown, n.saturating_sub(3));
    let Some(record) = view.operation(&key).unwrap() else {
        return enveloped(Command::Tick);
    };
    let (execution, epoch) = (record.execution.id, record.execution.lease_epoch);
    match n % 5 {
        0 => report(execution, epoch, Definite::Failed),
        1 => report(execution, epoch, Definite::NotApplied),
        2 => evidence(execution, n - 3, Definite::Completed),
        _ => report(execution, epoch, Definite::Completed),
    }
}

pub(super) fn applied(index: u64) -> Applied {
    Applied { last_applied: Some(LogId { term: TERM, node: 0, index }), membership: index.to_be_bytes().to_vec() }
}

pub(super) fn dump(view: &StateView) -> Vec<String> {
    let mut out = Vec::new();
    view.dump(&mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

/// What a store holds, in full.
pub(super) fn everything(store: &StateStore) -> (Applied, hapax_machine::change::Head, Vec<String>) {
    let view = store.view();
    (store.applied(), view.0.head, dump(&view))
}

/// Files of a directory by the end of their names.
pub(super) fn files_in(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.to_str().is_some_and(|path| path.ends_with(end)));
    found.sort();
    found
}
