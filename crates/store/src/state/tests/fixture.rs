//! A script of entries that touches every kind of row, and stores on both media to apply it to.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hapax_codec::log::LogId;
use hapax_codec::record::Applied;
use hapax_machine::View;
use hapax_machine::apply::apply_entry;
use hapax_machine::capability::CapabilityRecord;
use hapax_machine::clock::Stamp;
use hapax_machine::command::*;
use hapax_machine::ids::*;
use hapax_machine::limits::RETENTION_MARGIN_MS;
use hapax_machine::namespace::{ExpiredKeys, Floors, NamespaceRecord, OnLapse, Retention};
use hapax_machine::operation::{Definite, OperationRecord, State};
use hapax_machine::outcome::{Answer, Outcome};
use hapax_machine::retention::Shown;
use hapax_machine::tenant::{TenantRecord, TokenRecord};
use tempfile::TempDir;

use super::super::disk::Family;
use super::super::{MemoryState, OpenError, OpenOptions, StateStore, StateView};
use crate::seam::{FatalHook, StorageFault};

pub(super) const TERM: u64 = 3;

/// The wall when the cluster began.
pub(super) const BEGAN: u64 = 1_796_000_000_000;

/// For so long the script's namespaces keep bodies, and identities.
pub(super) const BODY_MS: u64 = 60_000;
pub(super) const IDENTITY_MS: u64 = 120_000;
/// Authority is good for so long.
pub(super) const EXPIRY_MS: u64 = 60_000;

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

pub(super) fn tenant() -> TenantId {
    TenantId::new("default")
}

pub(super) fn namespace(on_lapse: OnLapse) -> NamespaceName {
    NamespaceName::new(if on_lapse == OnLapse::Takeover { "taken" } else { "payments" })
}

pub(super) fn policy(on_lapse: OnLapse) -> NamespaceRecord {
    NamespaceRecord {
        on_lapse,
        retention: Retention { body_ms: BODY_MS, identity_ms: IDENTITY_MS, expired_keys: ExpiredKeys::New },
        ..NamespaceRecord::with_defaults(tenant(), namespace(on_lapse))
    }
}

pub(super) fn caller() -> Caller {
    Caller { tenant: tenant(), client: ClientId::new("billing"), namespaces: Vec::new() }
}

pub(super) fn enveloped(command: Command) -> Envelope {
    Envelope { not_after: LeaseTime(u64::MAX), command }
}

pub(super) fn bootstrap() -> Envelope {
    enveloped(Command::Bootstrap(Bootstrap {
        cluster_id: [7; 16],
        wall_ms: BEGAN,
        namespaces: vec![policy(OnLapse::Unknown), policy(OnLapse::Takeover)],
        tokens: vec![token("t1", "billing")],
        tenants: vec![TenantRecord { system: true, ..TenantRecord::without_limits(tenant()) }],
    }))
}

pub(super) fn token(id: &str, client: &str) -> TokenRecord {
    TokenRecord {
        id: id.into(),
        secret_hash: [1; 32],
        tenant: tenant(),
        client: ClientId::new(client),
        namespaces: Vec::new(),
        roles: 1,
        expires_at_ms: None,
        created_at: WallTime(0),
        revoked_at: None,
    }
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

pub(super) fn claim_of(on_lapse: OnLapse, key: u64, call: u64) -> Claim {
    let slot = slot(&tenant(), &namespace(on_lapse), 0);
    Claim {
        caller: caller(),
        namespace: namespace(on_lapse),
        internal_key: internal(on_lapse, key),
        slot,
        digest: Digest([9; 32]),
        claim_id: ClaimId(random(call)),
        owner: format!("worker-{call}"),
        lease_ms: 1_000,
        attempt: None,
        correlation_id: None,
        execution_id: ExecutionId { slot, random: random(call ^ u64::MAX) },
        capability_id: None,
        message: None,
        epoch: None,
        resource: None,
        key_created_at: None,
    }
}

pub(super) fn claim(on_lapse: OnLapse, key: u64, call: u64) -> Envelope {
    enveloped(Command::Claim(claim_of(on_lapse, key, call)))
}

/// Presents a capability with a message.
pub(super) fn claim_with(key: u64, call: u64, capability: CapabilityId) -> Envelope {
    enveloped(Command::Claim(Claim {
        capability_id: Some(capability),
        message: Some(message(call)),
        correlation_id: Some(story(key)),
        resource: Some(resource(key)),
        ..claim_of(OnLapse::Unknown, key, call)
    }))
}

pub(super) fn register(key: u64) -> Envelope {
    enveloped(Command::Register(Register {
        caller: caller(),
        namespace: namespace(OnLapse::Unknown),
        internal_key: internal(OnLapse::Unknown, key),
        slot: slot(&tenant(), &namespace(OnLapse::Unknown), 0),
        digest: Digest([9; 32]),
        correlation_id: Some(story(key)),
        resource: Some(resource(key)),
        key_created_at: None,
    }))
}

pub(super) fn issue(operation: &OperationRecord, decision: u64, wall: WallTime) -> Envelope {
    enveloped(Command::Issue(Issue {
        caller: caller(),
        operation_id: operation.id,
        decision_id: DecisionId::new(format!("decision-{decision}")),
        attempt: operation.due(),
        expires_at: WallTime(wall.0 + EXPIRY_MS),
        epoch: None,
        effect_key_attempt: None,
        capability_id: capability_id(decision),
    }))
}

pub(super) fn issue_bounded(key: u64, decision: u64, wall: WallTime) -> Envelope {
    enveloped(Command::IssueBounded(IssueBounded {
        caller: caller(),
        namespace: namespace(OnLapse::Unknown),
        resource: resource(key),
        decision_id: DecisionId::new(format!("decision-{decision}")),
        expires_at: WallTime(wall.0 + EXPIRY_MS),
        max_uses: 3,
        epoch: None,
        capability_id: capability_id(decision),
    }))
}

pub(super) fn capability_id(decision: u64) -> CapabilityId {
    let slot = slot(&tenant(), &namespace(OnLapse::Unknown), 0);
    CapabilityId { slot, random: random(decision ^ 0xcafe_0000_0000) }
}

pub(super) fn story(key: u64) -> CorrelationId {
    CorrelationId::new(format!("story-{key}"))
}

pub(super) fn resource(key: u64) -> Resource {
    Resource::new(format!("order-{key}"))
}

pub(super) fn message(call: u64) -> Message {
    Message { consumer: Consumer::new("refunds"), id: MessageId::new(format!("message-{call}")) }
}

pub(super) fn report(execution_id: ExecutionId, lease_epoch: LeaseEpoch, outcome: Definite) -> Envelope {
    let result = (outcome == Definite::Completed).then(|| vec![0x7b; 256]);
    let data = ResultData {
        status_code: Some(201),
        result,
        external_id: Some(external_id(&execution_id)),
        ..ResultData::default()
    };
    enveloped(Command::Report(Report { caller: caller(), execution_id, lease_epoch, outcome: Some(outcome), data }))
}

pub(super) fn external_id(execution: &ExecutionId) -> String {
    format!("provider-{execution}")
}

pub(super) fn repair(operation: &OperationRecord, kind: RepairKind) -> Envelope {
    enveloped(Command::Repair(Repair {
        caller: caller(),
        operation_id: operation.id,
        kind,
        expected: operation.state(),
        reason: "an operator's".into(),
        proof: None,
    }))
}

/// Asks for everything that the policy lets go.
pub(super) fn raise_floors(on_lapse: OnLapse) -> Envelope {
    let floors = Floors { compact_before: WallTime(u64::MAX), forget_before: WallTime(u64::MAX) };
    enveloped(Command::RaiseFloors(RaiseFloors { tenant: tenant(), namespace: namespace(on_lapse), floors }))
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
    /// Whether the script lets time pass and raises floors.
    pub(super) ages: bool,
    /// Every entry that it applied.
    pub(super) log: BTreeMap<u64, Entry>,
}

/// An entry of the log, and what it came to.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    lead_ms: u64,
    envelopes: Vec<Envelope>,
    outcomes: Vec<Outcome>,
}

impl Driver {
    /// Goes on where `store` stands. Everything follows from the index and the state, so that any store can go on.
    pub(super) fn on(store: StateStore) -> Self {
        let index = store.applied().last_applied.map_or(0, |id| id.index);
        let lead_ms = store.view().0.head.clocks.lead_ms;
        Self { store, index, lead_ms, ages: true, log: BTreeMap::new() }
    }

    /// A fresh state with its first entry.
    pub(super) fn begun(place: &Place) -> Self {
        let mut driver = Self::on(place.open());
        driver.one(bootstrap());
        driver
    }

    pub(super) fn apply(&mut self, envelopes: &[Envelope]) -> Result<Vec<Outcome>, StorageFault> {
        let index = self.index + 1;
        let view = self.store.view();
        let (changes, outcomes) = apply_entry(&view, &self.head(index), envelopes).expect("the view reads");
        self.store.commit(&applied(index), &changes)?;
        self.index = index;
        let entry = Entry { lead_ms: self.lead_ms, envelopes: envelopes.to_vec(), outcomes: outcomes.clone() };
        self.log.insert(index, entry);
        Ok(outcomes)
    }

    /// Applies what `log` has after the last entry here, as after a crash: every entry comes to what it came to.
    pub(super) fn replay(&mut self, log: &BTreeMap<u64, Entry>) {
        for (index, entry) in log.range(self.index + 1..) {
            assert_eq!(*index, self.index + 1);
            self.lead_ms = entry.lead_ms;
            let outcomes = self.apply(&entry.envelopes).unwrap();
            assert_eq!(outcomes, entry.outcomes, "entry {index} came to something else");
        }
    }

    /// Applies several entries in one commit.
    pub(super) fn apply_together(&mut self, entries: &[Vec<Envelope>]) {
        let view = self.store.view();
        let mut overlay = hapax_machine::Overlay::new(&view);
        for envelopes in entries {
            self.index += 1;
            let (changes, _) = apply_entry(&overlay, &self.head(self.index), envelopes).unwrap();
            overlay.absorb(changes);
        }
        self.store.commit(&applied(self.index), &overlay.into_changes()).unwrap();
    }

    fn head(&self, index: u64) -> EntryHead {
        let stamp = Stamp { wall_ms: BEGAN + self.lead_ms, lead_ms: self.lead_ms };
        EntryHead { group: GroupId(0), index, term: TERM, rules: RuleVersion(1), stamp }
    }

    pub(super) fn one(&mut self, envelope: Envelope) -> Answer {
        self.apply(&[envelope]).unwrap().remove(0).answer
    }

    /// Lets time pass before the next entry.
    pub(super) fn pass(&mut self, ms: u64) {
        self.lead_ms += ms;
    }

    pub(super) fn wall(&self) -> WallTime {
        self.store.view().head().clocks.wall
    }

    /// The operation of a key, if it is shown.
    pub(super) fn shown(&self, on_lapse: OnLapse, key: u64) -> Option<OperationRecord> {
        let view = self.store.view();
        Shown(&view).operation(&row(on_lapse, key)).unwrap()
    }

    pub(super) fn capability(&self, decision: u64) -> Option<CapabilityRecord> {
        let view = self.store.view();
        Shown(&view).capability(TenantTag::of(&tenant()), &capability_id(decision)).unwrap()
    }

    /// Claims a key and reports on it.
    pub(super) fn finish(&mut self, on_lapse: OnLapse, key: u64, outcome: Definite) -> OperationRecord {
        let call = self.index + 1_000_000;
        let Answer::Claimed(grant) = self.one(claim(on_lapse, key, call)) else { panic!("not claimed") };
        self.one(report(grant.execution_id, grant.lease.lease_epoch, outcome));
        self.shown(on_lapse, key).unwrap()
    }

    /// Lets everything that is terminal in the namespace be gone, and flushes that.
    pub(super) fn forget(&mut self, on_lapse: OnLapse) {
        self.raise(on_lapse);
        self.store.flush().unwrap();
    }

    /// Lets everything that is terminal in the namespace be gone, and all authority that was issued.
    pub(super) fn raise(&mut self, on_lapse: OnLapse) {
        self.pass(IDENTITY_MS + RETENTION_MARGIN_MS + EXPIRY_MS + 1);
        self.one(raise_floors(on_lapse));
    }

    pub(super) fn compact(&self) {
        assert!(self.store.compact(&mut |_| ControlFlow::Continue(())).unwrap());
    }

    /// The next entry of the script; everything it does follows from its index and the state.
    pub(super) fn step(&mut self) -> Result<(), StorageFault> {
        let n = self.index + 1;
        self.pass(100);
        if n == 1 {
            return self.apply(&[bootstrap()]).map(drop);
        }
        let view = self.store.view();
        // A claim that lapses, one that is taken over, and one that completes, fails or is not applied.
        let mut envelopes =
            vec![claim(OnLapse::Takeover, n / 20, n), claim(OnLapse::Unknown, n, n), reports(&view, n)];
        envelopes.extend(authority(&view, n));
        if self.ages && n.is_multiple_of(40) {
            self.pass(2 * IDENTITY_MS);
            envelopes.push(raise_floors(OnLapse::Unknown));
        }
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
    let found = Shown(view).operation(&row(OnLapse::Unknown, n.saturating_sub(3))).unwrap();
    let Some(held) = found.and_then(|record| record.execution) else {
        return enveloped(Command::Tick);
    };
    let (execution, epoch) = (held.id, held.lease_epoch);
    match n % 5 {
        0 => report(execution, epoch, Definite::Failed),
        1 => report(execution, epoch, Definite::NotApplied),
        2 => evidence(execution, n - 3, Definite::Completed),
        _ => report(execution, epoch, Definite::Completed),
    }
}

/// Registers an operation, issues a capability for it, presents that once and once more; bounded authority; bumps; repair.
fn authority(view: &StateView, n: u64) -> Vec<Envelope> {
    let wall = view.head().clocks.wall;
    // Keys and decisions of one round of four entries.
    let round = 50_000_000 + n / 4 * 4;
    let found = Shown(view).operation(&row(OnLapse::Unknown, round)).unwrap();
    let mut envelopes: Vec<Envelope> = match (n % 4, found) {
        (0, _) => vec![register(round), issue_bounded(round + 1, round + 1, wall)],
        (1, Some(operation)) => {
            vec![issue(&operation, round, wall), claim_with(round + 1, n, capability_id(round + 1))]
        }
        (2, Some(_)) => vec![claim_with(round, n, capability_id(round))],
        (3, Some(operation)) => {
            let held = operation.execution.as_ref().filter(|held| held.state == State::Executing);
            let report = held.map(|held| report(held.id, held.lease_epoch, Definite::Completed));
            let again = claim_with(round, n + 2_000_000, capability_id(round));
            report.into_iter().chain([again]).collect()
        }
        _ => Vec::new(),
    };
    if n.is_multiple_of(16) {
        let scope = EpochScope::new("refunds");
        let expected = view.epoch(&tenant(), &scope).unwrap().map_or(AuthorityEpoch(0), |record| record.value);
        envelopes.push(enveloped(Command::BumpEpoch(BumpEpoch { caller: caller(), scope, expected })));
    }
    if n % 16 == 7
        && let Some(operation) = Shown(view).operation(&row(OnLapse::Unknown, n - 4)).unwrap()
    {
        envelopes.push(repair(&operation, RepairKind::Quarantine));
    }
    envelopes
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

/// How many rows are physically there, family by family; families without any are left out.
pub(super) fn physical(store: &StateStore) -> BTreeMap<&'static str, usize> {
    let view = store.view();
    let mut counts = BTreeMap::new();
    for family in Family::ALL {
        let mut count = 0;
        let counted = view.0.rows.scan(family, &[0; 4], &mut |key, _| {
            count += usize::from(key.starts_with(&[0; 4]));
            ControlFlow::Continue(())
        });
        counted.unwrap();
        if count > 0 {
            counts.insert(family.name(), count);
        }
    }
    counts
}
