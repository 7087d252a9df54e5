//! The whole state in ordered maps: the simplest view that the rules can run on.
//! Also what the parts share: callers, namespaces, and the way to apply one entry.

use std::collections::BTreeMap;
use std::convert::Infallible;

use hapax_machine::apply::{RULES, apply_entry};
use hapax_machine::capability::{CapabilityRecord, DecisionRecord, UseRecord};
use hapax_machine::change::{Change, Changes, Event, Head};
use hapax_machine::clock::Stamp;
use hapax_machine::command::{Bootstrap, Caller, Command, EntryHead, Envelope};
use hapax_machine::epoch::EpochRecord;
use hapax_machine::evidence::EvidenceRecord;
use hapax_machine::ids::{
    Birth, CapabilityId, ClaimId, ClientId, DecisionKey, EpochScope, ExecutionId, GroupId, InboxKey, LeaseTime,
    NamespaceName, OperationKey, TenantId, TenantTag,
};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::{Attempts, NamespaceRecord, NamespaceStatus, OnLapse};
use hapax_machine::operation::{Body, Execution, ExecutionRecord, GrantRecord, OperationRecord};
use hapax_machine::refusal::{RefusalKey, RefusalRecord};
use hapax_machine::retention::Shown;
use hapax_machine::tenant::{TenantRecord, TokenRecord};
use hapax_machine::{Outcome, View};

/// A state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) head: Head,
    pub(crate) namespaces: BTreeMap<(TenantId, NamespaceName), NamespaceRecord>,
    pub(crate) statuses: BTreeMap<(TenantId, NamespaceName), NamespaceStatus>,
    pub(crate) tenants: BTreeMap<TenantId, TenantRecord>,
    pub(crate) tokens: BTreeMap<String, TokenRecord>,
    pub(crate) epochs: BTreeMap<(TenantId, EpochScope), EpochRecord>,
    pub(crate) operations: BTreeMap<OperationKey, OperationRecord>,
    pub(crate) executions: BTreeMap<(TenantTag, ExecutionId), ExecutionRecord>,
    pub(crate) grants: BTreeMap<(OperationKey, Birth, ClaimId), GrantRecord>,
    pub(crate) bodies: BTreeMap<(OperationKey, Birth), Body>,
    pub(crate) evidence: BTreeMap<(OperationKey, Birth, u32), EvidenceRecord>,
    pub(crate) capabilities: BTreeMap<(TenantTag, CapabilityId), CapabilityRecord>,
    pub(crate) decisions: BTreeMap<DecisionKey, DecisionRecord>,
    pub(crate) uses: BTreeMap<(TenantTag, CapabilityId, OperationKey), UseRecord>,
    pub(crate) inbox: BTreeMap<InboxKey, InboxRecord>,
    pub(crate) refusals: BTreeMap<RefusalKey, RefusalRecord>,
    pub(crate) events: Vec<Event>,
}

impl Memory {
    /// Writes what an entry changed.
    pub(crate) fn commit(&mut self, changes: Changes) {
        self.head = changes.head;
        self.events.extend(changes.events);
        for row in changes.rows {
            self.write(row);
        }
    }

    fn write(&mut self, row: Change) {
        match row {
            Change::Namespace(row) => drop(self.namespaces.insert((row.tenant.clone(), row.name.clone()), row)),
            Change::Status(tenant, name, row) => drop(self.statuses.insert((tenant, name), row)),
            Change::Tenant(row) => drop(self.tenants.insert(row.id.clone(), row)),
            Change::Token(row) => drop(self.tokens.insert(row.id.clone(), row)),
            Change::Epoch(row) => drop(self.epochs.insert((row.tenant.clone(), row.scope.clone()), row)),
            Change::Operation { record, was: _ } => drop(self.operations.insert(record.key(), *record)),
            Change::Execution(tenant, id, row) => drop(self.executions.insert((tenant, id), row)),
            Change::Grant(key, birth, claim, row) => drop(self.grants.insert((key, birth, claim), row)),
            Change::Body(key, birth, row) => drop(self.bodies.insert((key, birth), row)),
            Change::Evidence(key, birth, number, row) => {
                let before = self.evidence.insert((key, birth, number), row);
                assert_eq!(before, None, "the record of evidence is append-only");
            }
            Change::Capability(row) => {
                drop(self.capabilities.insert((TenantTag::of(&row.tenant), row.id), row));
            }
            Change::Decision(key, row) => drop(self.decisions.insert(key, row)),
            Change::Use(tenant, id, key, row) => drop(self.uses.insert((tenant, id, key), row)),
            Change::Inbox(key, row) => drop(self.inbox.insert(key, row)),
            Change::Refusal(key, row) => drop(self.refusals.insert(key, row)),
        }
    }

    /// Applies an entry and keeps its changes; returns them too.
    pub(crate) fn apply(&mut self, entry: &EntryHead, commands: &[Envelope]) -> (Changes, Vec<Outcome>) {
        let (changes, outcomes) = apply_entry(self, entry, commands).expect("a map never fails, the rules are known");
        assert_eq!(self.misplaced(&changes), None, "each operation's former place is the one below");
        self.commit(changes.clone());
        (changes, outcomes)
    }

    /// An operation whose former place, as `changes` tell it, is not where it stands below: lists would keep a stale row.
    ///
    /// Another life of the same row is none of its business: what was forgotten leaves its list by itself.
    pub(crate) fn misplaced(&self, changes: &Changes) -> Option<OperationRecord> {
        let wrong = |row: &Change| match row {
            Change::Operation { record, was } => {
                let below = self.operations.get(&record.key());
                let fits = match below {
                    Some(below) if below.id == record.id => *was == Some(below.place()),
                    Some(below) => was.is_none_or(|was| was == below.place()),
                    None => was.is_none(),
                };
                (!fits).then(|| (**record).clone())
            }
            _ => None,
        };
        changes.rows.iter().find_map(wrong)
    }

    /// Removes what is gone under the floors, as a compaction does that may stop anywhere: of each row that is gone, only if
    /// `takes` says so. Tells how many went.
    pub(crate) fn reclaim(&mut self, mut takes: impl FnMut(usize) -> bool) -> usize {
        let whole = self.clone();
        let shown = Shown(&whole);
        let (mut seen, mut gone) = (0, 0);
        let mut keep = |is_there: bool| {
            seen += usize::from(!is_there);
            let goes = !is_there && takes(seen);
            gone += usize::from(goes);
            !goes
        };
        let lives = |key: &OperationKey, birth: Birth| {
            shown.operation(key).map(|found| found.is_some_and(|record| record.id.birth == birth))
        };
        let is_some = |found: Result<bool, Infallible>| found.expect("a map never fails");
        self.operations.retain(|key, record| keep(is_some(lives(key, record.id.birth))));
        self.executions.retain(|(tag, id), _| keep(is_some(shown.execution(*tag, id).map(|row| row.is_some()))));
        self.grants
            .retain(|(key, birth, claim), _| keep(is_some(shown.grant(key, *birth, claim).map(|row| row.is_some()))));
        self.bodies.retain(|(key, birth), _| keep(is_some(shown.body(key, *birth).map(|row| row.is_some()))));
        self.evidence.retain(|(key, birth, _), _| keep(is_some(lives(key, *birth))));
        self.capabilities.retain(|(tag, id), _| keep(is_some(shown.capability(*tag, id).map(|row| row.is_some()))));
        self.decisions.retain(|key, _| keep(is_some(shown.decision(key).map(|row| row.is_some()))));
        self.uses.retain(|(tag, id, key), _| keep(is_some(shown.used(*tag, id, key).map(|row| row.is_some()))));
        self.inbox.retain(|key, _| keep(is_some(shown.inbox(key).map(|row| row.is_some()))));
        self.refusals.retain(|key, _| keep(is_some(shown.refusal(key).map(|row| row.is_some()))));
        gone
    }

    /// A cluster whose life began at wall 0 with these namespaces, so that the first grant drawn is 1.
    pub(crate) fn with(namespaces: Vec<NamespaceRecord>) -> Self {
        let mut memory = Self::default();
        let command = Command::Bootstrap(Bootstrap {
            cluster_id: [7; 16],
            wall_ms: 0,
            namespaces,
            tokens: Vec::new(),
            tenants: Vec::new(),
        });
        memory.apply(&entry(1, 1, Stamp::default()), &[at_any_time(command)]);
        memory
    }
}

impl View for Memory {
    type Error = Infallible;

    fn head(&self) -> Head {
        self.head
    }

    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, Infallible> {
        Ok(self.namespaces.get(&(tenant.clone(), name.clone())).cloned())
    }

    fn status(&self, tenant: &TenantId, name: &NamespaceName) -> Result<NamespaceStatus, Infallible> {
        Ok(self.statuses.get(&(tenant.clone(), name.clone())).copied().unwrap_or_default())
    }

    fn tenant(&self, id: &TenantId) -> Result<Option<TenantRecord>, Infallible> {
        Ok(self.tenants.get(id).cloned())
    }

    fn token(&self, id: &str) -> Result<Option<TokenRecord>, Infallible> {
        Ok(self.tokens.get(id).cloned())
    }

    fn epoch(&self, tenant: &TenantId, scope: &EpochScope) -> Result<Option<EpochRecord>, Infallible> {
        Ok(self.epochs.get(&(tenant.clone(), scope.clone())).cloned())
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

    fn body(&self, key: &OperationKey, birth: Birth) -> Result<Option<Body>, Infallible> {
        Ok(self.bodies.get(&(*key, birth)).cloned())
    }

    fn capability(&self, tenant: TenantTag, id: &CapabilityId) -> Result<Option<CapabilityRecord>, Infallible> {
        Ok(self.capabilities.get(&(tenant, *id)).cloned())
    }

    fn decision(&self, key: &DecisionKey) -> Result<Option<DecisionRecord>, Infallible> {
        Ok(self.decisions.get(key).cloned())
    }

    fn used(
        &self,
        tenant: TenantTag,
        id: &CapabilityId,
        key: &OperationKey,
    ) -> Result<Option<UseRecord>, Infallible> {
        Ok(self.uses.get(&(tenant, *id, *key)).cloned())
    }

    fn inbox(&self, key: &InboxKey) -> Result<Option<InboxRecord>, Infallible> {
        Ok(self.inbox.get(key).cloned())
    }

    fn refusal(&self, key: &RefusalKey) -> Result<Option<RefusalRecord>, Infallible> {
        Ok(self.refusals.get(key).cloned())
    }
}

/// The newest execution of an operation that is known to have one.
pub(crate) trait Newest {
    fn newest(&self) -> &Execution;
    fn newest_mut(&mut self) -> &mut Execution;
}

impl Newest for OperationRecord {
    fn newest(&self) -> &Execution {
        self.execution.as_ref().expect("somebody was elected")
    }

    fn newest_mut(&mut self) -> &mut Execution {
        self.execution.as_mut().expect("somebody was elected")
    }
}

/// The head of an entry of group 0 under the newest rules.
pub(crate) fn entry(index: u64, term: u64, stamp: Stamp) -> EntryHead {
    EntryHead { group: GroupId(0), index, term, rules: RULES, stamp }
}

/// A command without a time limit.
pub(crate) fn at_any_time(command: Command) -> Envelope {
    Envelope { not_after: LeaseTime(u64::MAX), command }
}

/// A caller who may use every namespace of the tenant.
pub(crate) fn caller(tenant: &str, client: &str) -> Caller {
    Caller { tenant: TenantId::new(tenant), client: ClientId::new(client), namespaces: Vec::new() }
}

/// A namespace of `tenant` with these policies and the documented defaults elsewhere.
pub(crate) fn namespace(tenant: &str, name: &str, on_lapse: OnLapse, attempts: Attempts) -> NamespaceRecord {
    let defaults = NamespaceRecord::with_defaults(TenantId::new(tenant), NamespaceName::new(name));
    NamespaceRecord { on_lapse, attempts, ..defaults }
}

/// Sixteen bytes that carry a small number: claim ids and the random part of execution ids.
pub(crate) fn bytes16(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    bytes
}
