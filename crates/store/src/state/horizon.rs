//! Which rows retention may remove from the disk, and the argument that their removal changes no answer. **[safety]**
//!
//! ```text
//! floors rise in apply --> the state is flushed --> the horizon learns them --> compaction removes what is gone
//! ```
//!
//! A row is *gone* when [`hapax_machine::retention::Shown`] hides it: by the floors of its namespace alone. From that index on no
//! rule sees it, on any replica; floors only rise, so it never comes back. Removing it then changes nothing, unless this node
//! forgets that it is gone: what was not flushed is lost in a crash, and the log is applied again from an earlier index, at which
//! the row may still be seen. So:
//!
//! 1. **The horizon holds what was committed before a flush that has ended**, and nothing later. After any crash the state
//!    stands at that flush or after it. It belongs to one instance of the state and dies with it.
//! 2. **A row is judged by rows that were flushed.** A row that belongs to an operation is gone when its operation is, so the
//!    operation's own row is looked up as a crash at this instant would leave it. Under floors of the flush and that row, it is
//!    gone at what a crash would leave.
//! 3. **An operation that has no row was removed before**, since no rule ever deletes one; then what belongs to it is gone too.
//!    The look-up of flushed rows alone cannot say so: a flush shows its families one after the other, so that for an instant an
//!    operation that has just become terminal is in neither. Absent means absent among the newest rows too, in `live` first: there
//!    an operation leaves `live` and enters `terminal` in one step.
//! 4. **A later life of a key says that the earlier one is gone**: a key begins anew only where the rules saw no operation. The
//!    later row was flushed, so the entry that saw none was, too. An earlier life in the row says nothing, and nothing is removed.
//! 5. **A version of a row that is not the newest is never needed.** A compaction may meet an old version of a row that was
//!    written again. What it puts in its place hides only still older versions; the newer one stays above it.
//!
//! A view of an earlier index may miss a row that a compaction removes while it is used: RocksDB filters whatever snapshots
//! there are. It then answers as it would have a moment later; the log has passed that index here already, and was flushed.
//!
//! Whether an operation is gone costs a look-up. A *mark* spares most of them: it notes, about once in an hour, where the wall
//! and the grant counter stand. What was born after the counter of a mark was terminal after its wall, if at all; so where the
//! mark's wall is not below the highest floor, nothing that was born after it is gone. Marks only ever keep rows.
//!
//! Events are not judged by floors but by age: see [`super::events`].

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hapax_codec::record;
use hapax_machine::capability::Bound;
use hapax_machine::ids::{Birth, CapabilityId, GroupId, OperationKey, TenantTag, WallTime};
use hapax_machine::namespace::Floors;
use hapax_machine::operation::OperationRecord;
use hapax_machine::refusal::Subject;
use hapax_machine::retention;

use super::disk::{Family, Rows};
use super::index::{self, Target};
use super::keys::{self, Parts};
use super::tables::Tables;
use super::view;
use crate::seam::StorageFault;

/// Retention as it stood at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// By tenant and namespace; where nothing was raised yet, there is nothing.
    floors: BTreeMap<String, BTreeMap<String, Floors>>,
    /// Operations that were born later are not gone.
    forgotten_until: Birth,
    /// Bodies of operations that were born later are not gone.
    compacted_until: Birth,
    /// Entries below it have no events any more.
    events: u64,
}

impl Known {
    /// What `tables` say, where entries below `events` have no events; marks are read from `rows` of that instant or a later one.
    pub(super) fn new(tables: &Tables, events: u64, rows: &dyn Rows, group: GroupId) -> Result<Self, StorageFault> {
        let mut known = Self { events, ..Self::default() };
        let mut highest = Floors::default();
        for (tenant, name, status) in tables.statuses().filter(|(_, _, status)| status.floors != Floors::default()) {
            highest.compact_before = highest.compact_before.max(status.floors.compact_before);
            highest.forget_before = highest.forget_before.max(status.floors.forget_before);
            let of_tenant = known.floors.entry(tenant.as_str().to_owned()).or_default();
            of_tenant.insert(name.as_str().to_owned(), status.floors);
        }
        known.forgotten_until = marked(rows, group, highest.forget_before)?;
        known.compacted_until = known.forgotten_until.max(marked(rows, group, highest.compact_before)?);
        Ok(known)
    }

    /// Whether the same floors stand in both.
    pub(super) fn has_floors_of(&self, other: &Self) -> bool {
        self.floors == other.floors
    }

    /// Entries below it have no events.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Operations that were born later are not gone.
    #[cfg(test)]
    pub(super) fn forgotten_until(&self) -> Birth {
        self.forgotten_until
    }

    /// The same, with a mark at `birth`.
    #[cfg(test)]
    pub(super) fn marked_at(self, birth: Birth) -> Self {
        Self { forgotten_until: birth, compacted_until: birth, ..self }
    }

    fn floors(&self, tenant: &str, namespace: &str) -> Floors {
        self.floors.get(tenant).and_then(|named| named.get(namespace)).copied().unwrap_or_default()
    }
}

/// The last birth before the first mark at `floor` or later; of every birth where there is no such mark.
pub(super) fn marked(rows: &dyn Rows, group: GroupId, floor: WallTime) -> Result<Birth, StorageFault> {
    if floor == WallTime(0) {
        return Ok(Birth(0));
    }
    let mut found = Birth(u64::MAX);
    rows.page(Family::Meta, &keys::mark(group, floor), &keys::after(keys::marks(group)), &mut |_, value| {
        if let Ok(birth) = value.try_into() {
            found = Birth(u64::from_be_bytes(birth));
        }
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// What retention removed from one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// The family's name.
    pub family: &'static str,
    /// Rows that were removed.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Rows and bytes.
#[derive(Debug, Default)]
struct Count(AtomicU64, AtomicU64);

/// What was removed since the start, from one instance after the other: counts only grow.
#[derive(Debug, Default)]
pub(super) struct Counts([Count; Family::ALL.len()]);

/// What one instance of the state may remove.
#[derive(Debug)]
pub(crate) struct Horizon {
    group: GroupId,
    known: RwLock<Arc<Known>>,
    removed: Arc<Counts>,
}

impl Horizon {
    /// One that lets nothing go.
    pub(super) fn new(group: GroupId, removed: &Arc<Counts>) -> Self {
        Self { group, known: RwLock::default(), removed: Arc::clone(removed) }
    }

    /// Learns what was committed before a flush that has ended.
    pub(super) fn learn(&self, flushed: Known) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(flushed);
    }

    pub(super) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A judge of what may go now.
    pub(super) fn judge<L: LookUp>(&self, look_up: L) -> Judge<L> {
        Judge::new(self.known(), self.group, look_up)
    }

    pub(super) fn count(&self, family: Family, bytes: usize) {
        let Count(rows, all) = &self.removed.0[family as usize];
        rows.fetch_add(1, Ordering::Relaxed);
        all.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What was removed so far, family by family.
    pub(super) fn removed(&self) -> Vec<Removed> {
        let of = |family: Family| {
            let Count(rows, bytes) = &self.removed.0[family as usize];
            let (rows, bytes) = (rows.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
            Removed { family: family.name(), rows, bytes }
        };
        Family::RETAINED.map(of).to_vec()
    }
}

/// Where a judge looks up other rows than the one it judges.
pub(super) trait LookUp {
    /// Hands the row, as a crash at this instant would leave it, to `read`; false where there is none.
    fn flushed(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault>;

    /// Whether there is such a row, flushed or not.
    fn exists(&self, family: Family, key: &[u8]) -> Result<bool, StorageFault>;
}

/// Rows of one instant: nothing else is asked.
pub(super) struct OneInstant<'r>(pub(super) &'r dyn Rows);

impl LookUp for OneInstant<'_> {
    fn flushed(&self, family: Family, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool, StorageFault> {
        self.0.get(family, key, read)
    }

    fn exists(&self, family: Family, key: &[u8]) -> Result<bool, StorageFault> {
        self.0.get(family, key, &mut |_| {})
    }
}

/// What is known of an operation's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// It has no row.
    Absent,
    /// It may have none.
    Unclear,
    /// This is in its row.
    Row { birth: Birth, forgotten: bool, compacted: bool },
}

/// Says which rows are gone. What cannot be read as the row that it should be is not gone.
pub(super) struct Judge<L> {
    known: Arc<Known>,
    group: GroupId,
    look_up: L,
    /// The operation that was looked up last: rows of one operation lie together.
    last: Option<(OperationKey, Life)>,
}

impl<L: LookUp> Judge<L> {
    pub(super) fn new(known: Arc<Known>, group: GroupId, look_up: L) -> Self {
        Self { known, group, look_up, last: None }
    }

    /// Whether a row is gone.
    pub(super) fn is_gone(&mut self, family: Family, key: &[u8], value: &[u8]) -> Result<bool, StorageFault> {
        let mut parts = Parts(key);
        if parts.bytes() != Some(self.group.0.to_be_bytes()) {
            return Ok(false);
        }
        match family {
            Family::Meta | Family::Live => Ok(false),
            Family::Terminal => Ok(matches!(self.read(value), Some(Life::Row { forgotten: true, .. }))),
            Family::Execution => match record::decode_execution(value) {
                Ok(record) => self.is_forgotten(record.operation, record.birth),
                Err(_) => Ok(false),
            },
            Family::Grant | Family::Evidence => match life_in(&mut parts) {
                Some((operation, birth)) => self.is_forgotten(operation, birth),
                None => Ok(false),
            },
            Family::Body => match life_in(&mut parts) {
                Some((operation, birth)) => self.is_compacted(operation, birth),
                None => Ok(false),
            },
            Family::Authority => self.is_authority_gone(parts, value),
            Family::Index => match index::target(key) {
                Some(Target::Operation(operation, birth) | Target::Capability(operation, birth, _)) => {
                    self.is_forgotten(operation, birth)
                }
                Some(Target::Refusal(refusal)) => self.is_subject_gone(refusal.tenant, &refusal.subject),
                None => Ok(false),
            },
            Family::Events => Ok(parts.number().is_some_and(|index| index < self.known.events)),
        }
    }

    fn is_authority_gone(&mut self, mut parts: Parts<'_>, value: &[u8]) -> Result<bool, StorageFault> {
        let (Some([kind]), Some(tenant)) = (parts.bytes(), parts.tenant()) else {
            return Ok(false);
        };
        match kind {
            keys::CAPABILITY => self.is_capability_gone(value),
            keys::DECISION => match record::decode_decision(value) {
                Ok(record) => self.is_capability_id_gone(tenant, &record.capability),
                Err(_) => Ok(false),
            },
            keys::USE => match (parts.capability(), parts.bytes(), record::decode_use(value)) {
                (Some(_), Some(hash), Ok(record)) => self.is_forgotten(OperationKey { tenant, hash }, record.birth),
                _ => Ok(false),
            },
            keys::INBOX => match record::decode_inbox(value) {
                Ok(record) => {
                    let id = record.operation;
                    self.is_forgotten(OperationKey { tenant, hash: id.hash }, id.birth)
                }
                Err(_) => Ok(false),
            },
            keys::REFUSAL => match parts.subject() {
                Some(subject) => self.is_subject_gone(tenant, &subject),
                None => Ok(false),
            },
            _ => Ok(false),
        }
    }

    fn is_subject_gone(&mut self, tenant: TenantTag, subject: &Subject) -> Result<bool, StorageFault> {
        match subject {
            Subject::Capability(id) => self.is_capability_id_gone(tenant, id),
            Subject::Operation(hash, birth) => self.is_forgotten(OperationKey { tenant, hash: *hash }, *birth),
        }
    }

    fn is_capability_id_gone(&mut self, tenant: TenantTag, id: &CapabilityId) -> Result<bool, StorageFault> {
        let key = keys::capability(self.group, tenant, id);
        let mut row = None;
        if self.look_up.flushed(Family::Authority, &key, &mut |value| row = Some(value.to_vec()))? {
            return row.map_or(Ok(false), |value| self.is_capability_gone(&value));
        }
        // It is written in one step with what is judged, so it was flushed with it.
        Ok(!self.look_up.exists(Family::Authority, &key)?)
    }

    fn is_capability_gone(&mut self, value: &[u8]) -> Result<bool, StorageFault> {
        let Ok(record) = record::decode_capability(value) else {
            return Ok(false);
        };
        match &record.bound {
            Bound::Attempt { operation, .. } => self.is_forgotten(operation.key(&record.tenant), operation.birth),
            Bound::Resource { .. } => {
                let floors = self.known.floors(record.tenant.as_str(), record.namespace.as_str());
                Ok(record.expires_at < floors.forget_before)
            }
        }
    }

    fn is_forgotten(&mut self, operation: OperationKey, birth: Birth) -> Result<bool, StorageFault> {
        if birth > self.known.forgotten_until {
            return Ok(false);
        }
        Ok(match self.life(operation)? {
            Life::Absent => true,
            Life::Row { birth: stands, forgotten, .. } => birth < stands || (birth == stands && forgotten),
            Life::Unclear => false,
        })
    }

    fn is_compacted(&mut self, operation: OperationKey, birth: Birth) -> Result<bool, StorageFault> {
        if birth > self.known.compacted_until {
            return Ok(false);
        }
        Ok(match self.life(operation)? {
            Life::Absent => true,
            Life::Row { birth: stands, forgotten, compacted } => {
                birth < stands || (birth == stands && (forgotten || compacted))
            }
            Life::Unclear => false,
        })
    }

    fn life(&mut self, operation: OperationKey) -> Result<Life, StorageFault> {
        if let Some((of, life)) = self.last
            && of == operation
        {
            return Ok(life);
        }
        let life = self.look_up_life(operation)?;
        self.last = Some((operation, life));
        Ok(life)
    }

    fn look_up_life(&self, operation: OperationKey) -> Result<Life, StorageFault> {
        let key = keys::operation(self.group, &operation);
        let families = [Family::Live, Family::Terminal];
        for family in families {
            let mut life = None;
            if self.look_up.flushed(family, &key, &mut |value| life = self.read(value))? {
                return Ok(life.unwrap_or(Life::Unclear));
            }
        }
        for family in families {
            if self.look_up.exists(family, &key)? {
                return Ok(Life::Unclear);
            }
        }
        Ok(Life::Absent)
    }

    fn read(&self, value: &[u8]) -> Option<Life> {
        let record: OperationRecord = record::decode_operation(value).ok()?;
        let floors = self.known.floors(record.tenant.as_str(), record.namespace.as_str());
        Some(Life::Row {
            birth: record.id.birth,
            forgotten: retention::is_forgotten(&record, &floors),
            compacted: retention::is_compacted(&record, &floors),
        })
    }
}

/// The operation and its life that a key after its group begins with.
fn life_in(parts: &mut Parts<'_>) -> Option<(OperationKey, Birth)> {
    let tenant = parts.tenant()?;
    Some((OperationKey { tenant, hash: parts.bytes()? }, parts.birth()?))
}

/// Visits the rows of a group that are not gone, as of the instant of `rows`, and that nodes compare.
pub(super) fn each_logical(
    rows: &dyn Rows,
    group: GroupId,
    known: Known,
    visit: super::disk::Examine<'_>,
) -> Result<(), StorageFault> {
    let mut judge = Judge::new(Arc::new(known), group, OneInstant(rows));
    for family in Family::ALL.into_iter().filter(|family| *family != Family::Index) {
        let done = view::in_pieces(rows, family, &group.0.to_be_bytes(), &mut |key, value| {
            if view::is_logical(family, key) && !judge.is_gone(family, key, value)? {
                return Ok(visit(family, key, value));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if done.is_break() {
            break;
        }
    }
    Ok(())
}
