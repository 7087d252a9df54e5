//! The small scopes: who is there, under which policy, and how far time goes.

use hapax_machine::ids::{InternalKey, OperationId, OperationKey, TenantId};
use hapax_machine::namespace::{Attempts, Authority, NamespaceRecord, OnLapse, Retention};
use hapax_machine::operation::{OperationRecord, State};

use crate::memory::namespace;

/// How long a result is kept where something is forgotten: the first jump passes it.
pub(super) const BODY_MS: u64 = 1;
/// How long everything else is: the second jump passes it.
pub(super) const IDENTITY_MS: u64 = 15;
/// How often a policy is written where that is explored: away from takeover and back, and once more.
pub(super) const WRITES: u64 = 3;
/// How often reconcilers may be given a lease.
pub(super) const LEASES_PER_MINUTE: u32 = 2;

/// What is explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Two capabilities for the first attempt, one for the second; deliveries, a bump, expiry and revocation.
    Single,
    /// One capability for two uses, three operations.
    Bounded,
    /// What is bound to a register, by its claim and by its capability.
    Epochs(OnLapse),
    /// Two reconcilers, and people who escalate.
    Reconcile,
    /// An ex-owner who tells late, beside a reconciler.
    Late,
    /// An operator who fences, quarantines, releases and closes.
    Repair,
    /// An operator who lets another operation take the place of one.
    Supersede,
    /// What has ended goes, and its key is used again.
    Retention,
    /// An administrator who changes what a lapse means, and whether claims must present a capability.
    Policy,
}

impl Scope {
    pub(crate) const ALL: [Self; 10] = [
        Self::Single,
        Self::Bounded,
        Self::Epochs(OnLapse::Unknown),
        Self::Epochs(OnLapse::Takeover),
        Self::Reconcile,
        Self::Late,
        Self::Repair,
        Self::Supersede,
        Self::Retention,
        Self::Policy,
    ];

    /// What a lapse means at first.
    fn on_lapse(self) -> OnLapse {
        match self {
            Self::Epochs(on_lapse) => on_lapse,
            _ => OnLapse::Unknown,
        }
    }

    pub(super) fn policy(self) -> NamespaceRecord {
        let plain = namespace("t", "n", self.on_lapse(), Attempts::Automatic);
        match self {
            Self::Single | Self::Bounded => NamespaceRecord { authority: Authority::Capability, ..plain },
            Self::Retention => {
                let retention = Retention { body_ms: BODY_MS, identity_ms: IDENTITY_MS, ..plain.retention };
                NamespaceRecord { retention, ..plain }
            }
            Self::Reconcile | Self::Late => NamespaceRecord { reconcile_per_minute: LEASES_PER_MINUTE, ..plain },
            _ => plain,
        }
    }

    /// Fewer states than these mean that something of the menu is refused for a wrong reason.
    pub(super) fn states_min(self) -> usize {
        match self {
            Self::Bounded | Self::Retention | Self::Single => 5_000,
            Self::Epochs(_) | Self::Supersede => 3_500,
            Self::Reconcile | Self::Late | Self::Repair | Self::Policy => 8_000,
        }
    }

    /// How often time passes.
    pub(super) fn passes(self) -> u64 {
        match self {
            Self::Single | Self::Bounded | Self::Epochs(_) | Self::Reconcile | Self::Late | Self::Policy => 2,
            Self::Repair | Self::Supersede => 1,
            Self::Retention => 0,
        }
    }

    /// How often the wall is moved so far that whatever has ended may go.
    pub(super) fn jumps(self) -> u64 {
        if self == Self::Retention { 3 } else { 0 }
    }
}

/// The policies that an administrator goes through: each with takeover impossible for another reason, and one with it.
pub(super) fn policies() -> [NamespaceRecord; 3] {
    let plain = |on_lapse| namespace("t", "n", on_lapse, Attempts::Automatic);
    let presented = NamespaceRecord { authority: Authority::Capability, ..plain(OnLapse::Takeover) };
    [plain(OnLapse::Unknown), plain(OnLapse::Takeover), presented]
}

pub(super) fn internal_key(key: u64) -> InternalKey {
    InternalKey([key as u8; 32])
}

pub(super) fn tenant() -> TenantId {
    TenantId::new("t")
}

/// The row of a key.
pub(super) fn row(key: u64) -> OperationKey {
    OperationKey::new(&tenant(), &internal_key(key))
}

/// The key whose row it is.
pub(super) fn key_of(id: &OperationId) -> u64 {
    u64::from(id.hash[0])
}

/// Whether nobody executes an operation, so that it may be closed.
pub(super) fn is_closable(record: &OperationRecord) -> bool {
    matches!(record.state(), State::Requested | State::NotApplied)
}
