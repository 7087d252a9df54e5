//! What the product counts of itself while it is simulated: the evidence that elections, snapshots and purges happened at all.
//! Counters only; all nodes of a run count together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Counters by name, their labels left out. Clones are the same counters.
#[derive(Debug, Clone, Default)]
pub struct Counted(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Counted {
    /// Counters that this process counts with from now on; those of an earlier call go on where there was one.
    pub fn install() -> Self {
        let counted = Self::default();
        // A second recorder of one process is refused, and then counts nothing.
        let _ = metrics::set_global_recorder(counted.clone());
        counted
    }

    fn counters(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AtomicU64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted so far.
    pub fn take(&self) -> BTreeMap<String, u64> {
        self.counters().iter().map(|(name, count)| (name.clone(), count.load(Ordering::SeqCst))).collect()
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.counters().entry(key.name().to_owned()).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
