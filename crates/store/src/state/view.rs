//! A consistent view of the state at one applied index: what the rules see in apply, and what reads see.
//! The head and the tables are in memory and belong to the same instant as the rows.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use hapax_codec::log::LogId;
use hapax_codec::record::{self, Applied};
use hapax_machine::capability::{CapabilityRecord, DecisionRecord, UseRecord};
use hapax_machine::change::Head;
use hapax_machine::epoch::EpochRecord;
use hapax_machine::ids::{
    Birth, CapabilityId, ClaimId, DecisionKey, EpochScope, ExecutionId, GroupId, InboxKey, NamespaceName,
    OperationKey, TenantId, TenantTag,
};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::namespace::{NamespaceRecord, NamespaceStatus};
use hapax_machine::operation::{Body, ExecutionRecord, GrantRecord, OperationRecord, State};
use hapax_machine::refusal::{RefusalKey, RefusalRecord};
use hapax_machine::tenant::{TenantRecord, TokenRecord};
use hapax_machine::{Changes, View};
use xxhash_rust::xxh3::Xxh3;

use super::disk::{Disk, Examine, Family, Rows, TryRow};
use super::horizon::{self, Known};
use super::keys::{self, Key};
use super::tables::Tables;
use super::{OpenOptions, events};
use crate::seam::{FatalHook, StorageFault};

/// Rows of a piece.
const PIECE: usize = 1_024;

/// Closed for good by the first fault: a disk that lied once is not asked again.
pub(super) struct Gate {
    fault: OnceLock<StorageFault>,
    hook: FatalHook,
}

impl Gate {
    pub(super) fn new(hook: FatalHook) -> Self {
        Self { fault: OnceLock::new(), hook }
    }

    /// The fault that closed it.
    pub(super) fn check(&self) -> Result<(), StorageFault> {
        self.fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Lets a success through; a failure closes the gate, and the first one is told to the hook.
    pub(super) fn pass<T>(&self, result: Result<T, StorageFault>) -> Result<T, StorageFault> {
        result.inspect_err(|fault| {
            if self.fault.set(fault.clone()).is_ok() {
                (self.hook)(fault);
            }
        })
    }
}

/// Everything that one commit published.
pub(super) struct Published {
    pub(super) group: GroupId,
    /// So many entries keep their events.
    pub(super) events_kept: u64,
    pub(super) applied: Applied,
    pub(super) head: Head,
    pub(super) tables: Tables,
    pub(super) rows: Arc<dyn Rows>,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) gate: Arc<Gate>,
}

/// The state as one commit left it. Cheap to clone; keeps what it sees from being removed, so it is not to be kept long.
#[derive(Clone)]
pub struct StateView(pub(super) Arc<Published>);

/// The rows of a state, summed up: equal on two nodes exactly when their rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The number of rows.
    pub rows: u64,
    /// A checksum over all keys and values, in order.
    pub hash: u128,
}

impl Published {
    /// Reads what stands in `disk` now.
    pub(super) fn load(disk: Arc<dyn Disk>, options: &OpenOptions, gate: Arc<Gate>) -> Result<Self, StorageFault> {
        let (rows, group, events_kept) = (disk.snapshot(), options.group, options.events_kept);
        let applied = row(&*rows, Family::Meta, &keys::applied(group), record::decode_applied)?.unwrap_or_default();
        let head = row(&*rows, Family::Meta, &keys::head(group), record::decode_head)?.unwrap_or_default();
        let tables = Tables::load(&*rows, group)?;
        Ok(Self { group, events_kept, applied, head, tables, rows, disk, gate })
    }

    /// What `changes`, just written, leave in place of this.
    pub(super) fn after(&self, applied: Applied, changes: &Changes) -> Self {
        let mut tables = self.tables.clone();
        for change in &changes.rows {
            tables.put(change);
        }
        Self {
            group: self.group,
            events_kept: self.events_kept,
            applied,
            head: changes.head,
            tables,
            rows: self.disk.snapshot(),
            disk: Arc::clone(&self.disk),
            gate: Arc::clone(&self.gate),
        }
    }

    /// What retention lets go here.
    pub(super) fn known(&self) -> Result<Known, StorageFault> {
        let applied = self.applied.last_applied.map_or(0, |id| id.index);
        Known::new(&self.tables, events::floor(applied, self.events_kept), &*self.rows, self.group)
    }
}

impl StateView {
    /// The last entry that this view shows the effect of.
    pub fn applied(&self) -> Option<LogId> {
        self.0.applied.last_applied
    }

    pub(super) fn index(&self) -> u64 {
        self.applied().map_or(0, |id| id.index)
    }

    /// The membership in force there, in the consensus layer's own bytes.
    pub fn membership(&self) -> &[u8] {
        &self.0.applied.membership
    }

    /// A namespace's policy, from memory.
    pub fn policy(&self, tenant: &TenantId, name: &NamespaceName) -> Option<&NamespaceRecord> {
        self.0.tables.namespace(tenant, name)
    }

    /// A token, from memory.
    pub fn token(&self, id: &str) -> Option<&TokenRecord> {
        self.0.tables.token(id)
    }

    /// Visits every operation that is executing, whatever its deadline.
    ///
    /// # Errors
    /// A row cannot be read.
    pub fn live(&self, visit: &mut dyn FnMut(OperationRecord)) -> Result<(), StorageFault> {
        self.0.gate.check()?;
        let prefix = self.0.group.0.to_be_bytes();
        let mut executing = |record: OperationRecord| {
            if record.state() == State::Executing {
                visit(record);
            }
        };
        let read = each(&*self.0.rows, Family::Live, &prefix, record::decode_operation, &mut executing);
        self.0.gate.pass(read)
    }

    /// The state hash after the entry at `index`; kept for multiples of [`super::HASH_EVERY`], the newest only.
    ///
    /// # Errors
    /// The row cannot be read.
    pub fn state_hash_at(&self, index: u64) -> Result<Option<[u8; 32]>, StorageFault> {
        self.read(Family::Meta, &keys::state_hash(self.0.group, index), |bytes| <[u8; 32]>::try_from(bytes))
    }

    /// Writes rows as lines of text, in order: two states are equal exactly when these lines are. Left out are head, applied,
    /// state hashes and marks, which follow from the log; index rows, which follow from the others; and what retention hides,
    /// whether it is still there or not.
    ///
    /// # Errors
    /// A row cannot be read; what `out` says is handed up as a fault, too.
    pub fn dump(&self, out: &mut dyn Write) -> Result<(), StorageFault> {
        let mut failed = None;
        self.rows(&mut |family, key, value| {
            let line = super::scan::describe(family, key, value);
            failed = writeln!(out, "{line}").err();
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        failed.map_or(Ok(()), |error| {
            Err(StorageFault { operation: "write a dump", place: "its target".into(), reason: error.to_string() })
        })
    }

    /// Sums up the rows that [`StateView::dump`] writes.
    ///
    /// # Errors
    /// A row cannot be read.
    pub fn content(&self) -> Result<Content, StorageFault> {
        let mut sum = Summing::default();
        self.rows(&mut |family, key, value| {
            sum.row(family, key, value);
            ControlFlow::Continue(())
        })?;
        Ok(sum.content())
    }

    /// Visits the logical rows of this group.
    fn rows(&self, visit: Examine<'_>) -> Result<(), StorageFault> {
        self.0.gate.check()?;
        let visited =
            self.0.known().and_then(|known| horizon::each_logical(&*self.0.rows, self.0.group, known, visit));
        self.0.gate.pass(visited)
    }

    fn read<T, E: std::fmt::Display>(
        &self,
        family: Family,
        key: &Key,
        decode: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<Option<T>, StorageFault> {
        self.0.gate.check()?;
        self.0.gate.pass(row(&*self.0.rows, family, key, decode))
    }
}

impl View for StateView {
    type Error = StorageFault;

    fn head(&self) -> Head {
        self.0.head
    }

    fn namespace(&self, tenant: &TenantId, name: &NamespaceName) -> Result<Option<NamespaceRecord>, StorageFault> {
        Ok(self.policy(tenant, name).cloned())
    }

    fn status(&self, tenant: &TenantId, name: &NamespaceName) -> Result<NamespaceStatus, StorageFault> {
        Ok(self.0.tables.status(tenant, name).unwrap_or_default())
    }

    fn tenant(&self, id: &TenantId) -> Result<Option<TenantRecord>, StorageFault> {
        Ok(self.0.tables.tenant(id).cloned())
    }

    fn token(&self, id: &str) -> Result<Option<TokenRecord>, StorageFault> {
        Ok(self.0.tables.token(id).cloned())
    }

    fn epoch(&self, tenant: &TenantId, scope: &EpochScope) -> Result<Option<EpochRecord>, StorageFault> {
        Ok(self.0.tables.epoch(tenant, scope).cloned())
    }

    fn operation(&self, key: &OperationKey) -> Result<Option<OperationRecord>, StorageFault> {
        let key = keys::operation(self.0.group, key);
        match self.read(Family::Live, &key, record::decode_operation)? {
            Some(record) => Ok(Some(record)),
            None => self.read(Family::Terminal, &key, record::decode_operation),
        }
    }

    fn execution(&self, tenant: TenantTag, id: &ExecutionId) -> Result<Option<ExecutionRecord>, StorageFault> {
        self.read(Family::Execution, &keys::execution(self.0.group, tenant, id), record::decode_execution)
    }

    fn grant(&self, key: &OperationKey, birth: Birth, claim: &ClaimId) -> Result<Option<GrantRecord>, StorageFault> {
        self.read(Family::Grant, &keys::grant(self.0.group, key, birth, claim), record::decode_grant)
    }

    fn body(&self, key: &OperationKey, birth: Birth) -> Result<Option<Body>, StorageFault> {
        self.read(Family::Body, &keys::body(self.0.group, key, birth), record::decode_body)
    }

    fn capability(&self, tenant: TenantTag, id: &CapabilityId) -> Result<Option<CapabilityRecord>, StorageFault> {
        self.read(Family::Authority, &keys::capability(self.0.group, tenant, id), record::decode_capability)
    }

    fn decision(&self, key: &DecisionKey) -> Result<Option<DecisionRecord>, StorageFault> {
        self.read(Family::Authority, &keys::decision(self.0.group, key), record::decode_decision)
    }

    fn used(
        &self,
        tenant: TenantTag,
        id: &CapabilityId,
        key: &OperationKey,
    ) -> Result<Option<UseRecord>, StorageFault> {
        self.read(Family::Authority, &keys::used(self.0.group, tenant, id, key), record::decode_use)
    }

    fn inbox(&self, key: &InboxKey) -> Result<Option<InboxRecord>, StorageFault> {
        self.read(Family::Authority, &keys::inbox(self.0.group, key), record::decode_inbox)
    }

    fn refusal(&self, key: &RefusalKey) -> Result<Option<RefusalRecord>, StorageFault> {
        self.read(Family::Authority, &keys::refusal(self.0.group, key), record::decode_refusal)
    }
}

/// Whether a row is part of what nodes compare, where it is not gone: the rest follows from the log, or from these rows.
pub(super) fn is_logical(family: Family, key: &[u8]) -> bool {
    match family {
        Family::Meta => key.get(4).is_some_and(|kind| {
            matches!(*kind, keys::NAMESPACE | keys::TOKEN | keys::STATUS | keys::EPOCH | keys::TENANT)
        }),
        Family::Index => false,
        _ => true,
    }
}

/// A running sum over rows.
#[derive(Default)]
pub(super) struct Summing {
    hash: Xxh3,
    rows: u64,
}

impl Summing {
    pub(super) fn row(&mut self, family: Family, key: &[u8], value: &[u8]) {
        // Lengths keep the end of a key apart from the start of a value.
        self.hash.update(&[family as u8]);
        self.hash.update(&(key.len() as u64).to_le_bytes());
        self.hash.update(key);
        self.hash.update(&(value.len() as u64).to_le_bytes());
        self.hash.update(value);
        self.rows += 1;
    }

    pub(super) fn content(&self) -> Content {
        Content { rows: self.rows, hash: self.hash.digest128() }
    }
}

/// Reads one row.
pub(super) fn row<T, E: std::fmt::Display>(
    rows: &dyn Rows,
    family: Family,
    key: &[u8],
    decode: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<Option<T>, StorageFault> {
    let (mut decode, mut read) = (Some(decode), None);
    rows.get(family, key, &mut |bytes| {
        if let Some(decode) = decode.take() {
            read = Some(decode(bytes));
        }
    })?;
    read.transpose().map_err(|error| undecodable(family, key, &error))
}

/// Reads every row whose key starts with `prefix`.
pub(super) fn each<T, E: std::fmt::Display>(
    rows: &dyn Rows,
    family: Family,
    prefix: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, E>,
    visit: &mut dyn FnMut(T),
) -> Result<(), StorageFault> {
    each_row(rows, family, prefix, &mut |key, value| {
        visit(decode(value).map_err(|error| undecodable(family, key, &error))?);
        Ok(())
    })
}

/// Visits every row whose key starts with `prefix`, to the first error.
pub(super) fn each_row(
    rows: &dyn Rows,
    family: Family,
    prefix: &[u8],
    visit: TryRow<'_, ()>,
) -> Result<(), StorageFault> {
    let mut failed = None;
    rows.scan(family, prefix, &mut |key, value| {
        if !key.starts_with(prefix) {
            return ControlFlow::Break(());
        }
        failed = visit(key, value).err();
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed.map_or(Ok(()), Err)
}

/// Visits every row whose key starts with `prefix`, a piece at a time: `visit` may look up other rows, which a scan may not let.
pub(super) fn in_pieces(
    rows: &dyn Rows,
    family: Family,
    prefix: &[u8],
    visit: TryRow<'_, ControlFlow<()>>,
) -> Result<ControlFlow<()>, StorageFault> {
    let mut from = prefix.to_vec();
    loop {
        let mut piece = Vec::new();
        rows.scan(family, &from, &mut |key, value| {
            if !key.starts_with(prefix) {
                return ControlFlow::Break(());
            }
            piece.push((key.to_vec(), value.to_vec()));
            if piece.len() >= PIECE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        for (key, value) in &piece {
            if visit(key, value)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        match piece.pop() {
            Some((last, _)) if piece.len() + 1 >= PIECE => from = [&last[..], &[0]].concat(),
            _ => return Ok(ControlFlow::Continue(())),
        }
    }
}

/// A row whose block was sound and whose bytes are not a record: damage in memory, or a newer program's.
pub(super) fn undecodable(family: Family, key: &[u8], error: &dyn std::fmt::Display) -> StorageFault {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    StorageFault {
        operation: "read a row of the state",
        place: format!("{} {key}", family.name()),
        reason: error.to_string(),
    }
}
