//! The metric series of what is applied here: how many operations are open and unknown, for how long, and how retention goes.
//! Looked at now and then; nothing here is on the path of a command.
//!
//! A namespace's name is a label, summed up over the tenants that have one of that name. The first so many names have series of
//! their own, the rest share one: an endpoint that grows with its users would be no good to those who need it most.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hapax_machine::View;
use hapax_machine::ids::{NamespaceName, TenantId, WallTime};
use hapax_machine::namespace::{NamespaceRecord, NamespaceStatus};
use hapax_machine::operation::Class;
use hapax_machine::retention;
use hapax_store::seam::StorageFault;
use hapax_store::state::{Removed, StateStore, StateView};
use metrics::{Gauge, counter, gauge};
use tokio::time::{MissedTickBehavior, interval};

use crate::core::Core;

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Names that have series of their own.
const NAMES_MAX: usize = 200;
/// The label of all others: no name has a space.
const OTHERS: &str = "all others";
/// Oldest executions that are looked up at one look.
const LOOK_UPS_MAX: usize = 1_000;

/// What is told of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Figures {
    open: u64,
    unknown: u64,
    oldest_unknown_ms: u64,
    oldest_to_reconcile_ms: u64,
    retention_lag_ms: u64,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.open += other.open;
        self.unknown += other.unknown;
        self.oldest_unknown_ms = self.oldest_unknown_ms.max(other.oldest_unknown_ms);
        self.oldest_to_reconcile_ms = self.oldest_to_reconcile_ms.max(other.oldest_to_reconcile_ms);
        self.retention_lag_ms = self.retention_lag_ms.max(other.retention_lag_ms);
    }
}

struct Gauges {
    open: Gauge,
    unknown: Gauge,
    oldest_unknown: Gauge,
    oldest_to_reconcile: Gauge,
    retention_lag: Gauge,
}

impl Gauges {
    fn new(name: &str) -> Self {
        let label = || [("namespace", name.to_owned())];
        Self {
            open: gauge!("hapax_operations_open", &label()),
            unknown: gauge!("hapax_executions_unknown", &label()),
            oldest_unknown: gauge!("hapax_oldest_unknown_seconds", &label()),
            oldest_to_reconcile: gauge!("hapax_oldest_to_reconcile_seconds", &label()),
            retention_lag: gauge!("hapax_retention_lag_seconds", &label()),
        }
    }

    fn set(&self, figures: &Figures) {
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        self.open.set(figures.open as f64);
        self.unknown.set(figures.unknown as f64);
        self.oldest_unknown.set(seconds(figures.oldest_unknown_ms));
        self.oldest_to_reconcile.set(seconds(figures.oldest_to_reconcile_ms));
        self.retention_lag.set(seconds(figures.retention_lag_ms));
    }
}

/// Publishes until the node stops.
pub(crate) async fn publish(core: Arc<Core>) {
    let mut names: BTreeMap<String, Gauges> = BTreeMap::new();
    let mut told = Vec::new();
    let mut due = interval(LOOK_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = core.stopping.cancelled() => return,
            _ = due.tick() => {}
        }
        let state = core.state.clone();
        // A fault has told the fatal hook.
        let Ok(Ok((found, removed))) = tokio::task::spawn_blocking(move || look(&state)).await else { continue };
        for (name, figures) in labelled(found, |name| names.contains_key(name)) {
            names.entry(name.clone()).or_insert_with(|| Gauges::new(&name)).set(&figures);
        }
        tell_removed(&mut told, removed);
    }
}

fn look(state: &StateStore) -> Result<(BTreeMap<String, Figures>, Vec<Removed>), StorageFault> {
    let view = state.view();
    let mut found: BTreeMap<String, Figures> = BTreeMap::new();
    let mut look_ups = LOOK_UPS_MAX;
    for (tenant, name, status) in view.statuses() {
        let Some(policy) = view.policy(tenant, name) else { continue };
        let wall = view.head().clocks.wall;
        let mut figures = figures(policy, status, wall);
        if status.unknown > 0 && look_ups > 0 {
            look_ups -= 1;
            let [to_reconcile, escalated] =
                oldest(&view, tenant, name)?.map(|since| since.map_or(0, |since| wall.0.saturating_sub(since.0)));
            figures.oldest_to_reconcile_ms = to_reconcile;
            figures.oldest_unknown_ms = to_reconcile.max(escalated);
        }
        found.entry(name.as_str().to_owned()).or_default().add(figures);
    }
    Ok((found, state.removed()))
}

fn figures(policy: &NamespaceRecord, status: &NamespaceStatus, wall: WallTime) -> Figures {
    let (allowed, stands) = (retention::allowed(&policy.retention, wall), status.floors);
    // What was never raised stands at the beginning of time, and says nothing.
    let behind = |allowed: WallTime, stands: WallTime| match stands {
        WallTime(0) => 0,
        stands => allowed.0.saturating_sub(stands.0),
    };
    let lag = behind(allowed.compact_before, stands.compact_before);
    Figures {
        open: status.open,
        unknown: status.unknown,
        oldest_unknown_ms: 0,
        oldest_to_reconcile_ms: 0,
        retention_lag_ms: lag.max(behind(allowed.forget_before, stands.forget_before)),
    }
}

/// Since when the oldest unknown execution is that reconcilers are to look at, and the oldest that waits for people.
fn oldest(view: &StateView, tenant: &TenantId, name: &NamespaceName) -> Result<[Option<WallTime>; 2], StorageFault> {
    let first = |class| {
        let (first, _) = view.list(tenant, name, class, None, None, 1)?;
        Ok(first.first().map(|record| record.place().since))
    };
    Ok([first(Class::Unknown)?, first(Class::Escalated)?])
}

/// Sums up those that have no series of their own, and cannot have any.
fn labelled(found: BTreeMap<String, Figures>, known: impl Fn(&str) -> bool) -> BTreeMap<String, Figures> {
    let mut room = NAMES_MAX.saturating_sub(found.keys().filter(|name| known(name)).count());
    let mut labelled: BTreeMap<String, Figures> = BTreeMap::new();
    for (name, figures) in found {
        if known(&name) {
            labelled.insert(name, figures);
        } else if room > 0 {
            room -= 1;
            labelled.insert(name, figures);
        } else {
            labelled.entry(OTHERS.to_owned()).or_default().add(figures);
        }
    }
    labelled
}

/// Adds what was removed since it was told. A state that took another's place begins at nothing.
fn tell_removed(told: &mut Vec<Removed>, removed: Vec<Removed>) {
    for now in &removed {
        let before = told.iter().find(|before| before.family == now.family && before.rows <= now.rows);
        let (rows, bytes) = before.map_or((0, 0), |before| (before.rows, before.bytes));
        counter!("hapax_retention_removed_rows_total", "family" => now.family).increment(now.rows - rows);
        let bytes = now.bytes.saturating_sub(bytes);
        counter!("hapax_retention_removed_bytes_total", "family" => now.family).increment(bytes);
    }
    *told = removed;
}

#[cfg(test)]
mod tests {
    use hapax_machine::limits::RETENTION_MARGIN_MS;
    use hapax_machine::namespace::Floors;

    use super::*;
    use crate::fakes::policy;

    fn open(open: u64) -> Figures {
        Figures { open, ..Figures::default() }
    }

    #[test]
    fn the_number_of_labels_is_bounded_and_labels_stay_who_they_are() {
        let all: BTreeMap<String, Figures> = (0..NAMES_MAX + 3).map(|n| (format!("n{n:03}"), open(1))).collect();
        let last = format!("n{:03}", NAMES_MAX + 2);
        let first = labelled(all.clone(), |_| false);
        assert_eq!((first.len(), first[OTHERS]), (NAMES_MAX + 1, open(3)));
        assert!(!first.contains_key(&last));
        let known = labelled(all, |name| name == last);
        assert_eq!((known.len(), known[&last], known[OTHERS]), (NAMES_MAX + 1, open(1), open(3)));
        assert!(!known.contains_key(&format!("n{:03}", NAMES_MAX - 1)), "it has come too late");
    }

    #[test]
    fn the_lag_of_retention_is_that_of_the_floor_that_is_further_behind() {
        let wall = WallTime(1 << 45);
        let allowed = retention::allowed(&policy().retention, wall);
        let with = |floors| {
            figures(&policy(), &NamespaceStatus { floors, ..NamespaceStatus::default() }, wall).retention_lag_ms
        };
        assert_eq!(with(Floors::default()), 0, "never raised");
        assert_eq!(with(allowed), 0);
        let behind = |ms: u64| WallTime(allowed.forget_before.0 - ms);
        assert_eq!(with(Floors { forget_before: behind(RETENTION_MARGIN_MS), ..allowed }), RETENTION_MARGIN_MS);
    }

    #[test]
    fn a_namespace_of_several_tenants_is_summed_up() {
        let mut all =
            Figures { open: 3, unknown: 1, oldest_unknown_ms: 70, oldest_to_reconcile_ms: 8, retention_lag_ms: 5 };
        all.add(Figures {
            open: 2,
            unknown: 2,
            oldest_unknown_ms: 60,
            oldest_to_reconcile_ms: 60,
            retention_lag_ms: 9,
        });
        assert_eq!(
            all,
            Figures { open: 5, unknown: 3, oldest_unknown_ms: 70, oldest_to_reconcile_ms: 60, retention_lag_ms: 9 }
        );
    }
}
