//! The side file's keeper: what each group promised to others, written beside the log at most [`LAG_MAX`] behind it.
//!
//! It is the second witness of the log: after a restart, a log that holds less than the side file says was lost in part.
//! So a promise is recorded only once the log itself is synced (never earlier), a vote before it is given away, and a
//! truncation lowers the promise before the log loses the entries.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use hapax_codec::log::side::{Promise, SLOT_LEN, Slot};
use hapax_codec::log::{LogId, Vote};

use super::clock::{self, Moment};
use super::lock;
use crate::seam::{LogObserver, SideDisk, StorageFault};

/// Most time between an acknowledgement and its record in the side file.
pub const LAG_MAX: Duration = Duration::from_millis(100);

/// Acknowledgements of this long share one write of the side file.
const LINGER: Duration = Duration::from_millis(25);

/// Lag at which the log writer stops to write the side file itself, so that a slow side thread cannot pass [`LAG_MAX`].
const LAG_PATIENCE: Duration = Duration::from_millis(75);

pub(super) struct Promises {
    wanted: Mutex<Wanted>,
    wake: Condvar,
    file: Mutex<File>,
}

/// What the side file should say.
struct Wanted {
    groups: BTreeMap<u32, Promise>,
    /// Counts changes of `groups`.
    version: u64,
    /// When the oldest change was made that is not on disk.
    waiting_since: Option<Moment>,
    stopping: bool,
}

/// The file, and how far it has come.
struct File {
    disk: Box<dyn SideDisk>,
    sequence: u64,
    version: u64,
}

impl Promises {
    /// Continues after `slot`, which is what the file says now.
    pub(super) fn new(disk: Box<dyn SideDisk>, slot: Slot) -> Promises {
        let wanted = Wanted { groups: slot.groups, version: 0, waiting_since: None, stopping: false };
        let file = File { disk, sequence: slot.sequence, version: 0 };
        Promises { wanted: Mutex::new(wanted), wake: Condvar::new(), file: Mutex::new(file) }
    }

    /// Records that everything up to `id` was acknowledged. True if the group had no promise before.
    pub(super) fn raise(&self, group: u32, id: LogId) -> bool {
        let mut wanted = lock(&self.wanted);
        let promise = wanted.groups.entry(group).or_default();
        let first = promise.acknowledged.is_none();
        if promise.acknowledged != Some(id) {
            promise.acknowledged = Some(id);
            self.changed(wanted);
        }
        first
    }

    /// Takes back what a log that ends at `last` will no longer hold. True if there was anything to take back, and
    /// then the file must be written before the log loses it.
    pub(super) fn lower(&self, group: u32, last: Option<LogId>) -> bool {
        let mut wanted = lock(&self.wanted);
        let Some(promise) = wanted.groups.get_mut(&group) else { return false };
        let Some(promised) = promise.acknowledged else { return false };
        if last.is_some_and(|last| last.covers(&promised)) {
            return false;
        }
        promise.acknowledged = last;
        self.changed(wanted);
        true
    }

    /// Records a vote.
    pub(super) fn vote(&self, group: u32, vote: Vote) {
        let mut wanted = lock(&self.wanted);
        wanted.groups.entry(group).or_default().vote = Some(vote);
        self.changed(wanted);
    }

    fn changed(&self, mut wanted: MutexGuard<'_, Wanted>) {
        wanted.version += 1;
        if wanted.waiting_since.is_none() {
            wanted.waiting_since = Some(clock::now());
            self.wake.notify_one();
        }
    }

    /// True if the file is so far behind that nothing more may be acknowledged before it is written.
    pub(super) fn is_late(&self) -> bool {
        lock(&self.wanted).waiting_since.is_some_and(|since| since.elapsed() > LAG_PATIENCE)
    }

    /// Writes and syncs the file, unless it says everything already. Several threads may call it.
    pub(super) fn flush(&self, observer: &dyn LogObserver) -> Result<(), StorageFault> {
        let mut file = lock(&self.file);
        let (slot, version) = {
            let wanted = lock(&self.wanted);
            if wanted.version == file.version {
                return Ok(());
            }
            (Slot { sequence: file.sequence + 1, groups: wanted.groups.clone() }, wanted.version)
        };
        let began = clock::now();
        let bytes = encode(&slot)?;
        file.disk.write(slot_of(slot.sequence), &bytes)?;
        file.disk.sync()?;
        file.sequence = slot.sequence;
        file.version = version;
        let mut wanted = lock(&self.wanted);
        wanted.waiting_since = (wanted.version != version).then_some(began);
        drop(wanted);
        observer.side_synced(began.elapsed());
        Ok(())
    }

    /// The side thread: waits for changes, lets a few gather, writes them; until [`Promises::stop`] or a fault.
    pub(super) fn run(&self, observer: &dyn LogObserver) -> Result<(), StorageFault> {
        loop {
            let mut wanted = lock(&self.wanted);
            while wanted.waiting_since.is_none() && !wanted.stopping {
                wanted = self.wake.wait(wanted).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            let gathered = self.wake.wait_timeout_while(wanted, LINGER, |wanted| !wanted.stopping);
            let stopping = gathered.map_or(true, |(wanted, _)| wanted.stopping);
            self.flush(observer)?;
            if stopping {
                return Ok(());
            }
        }
    }

    /// Ends the side thread, after a last write.
    pub(super) fn stop(&self) {
        lock(&self.wanted).stopping = true;
        self.wake.notify_all();
    }
}

/// Slots are written in turn.
pub(super) fn slot_of(sequence: u64) -> usize {
    (sequence % 2) as usize
}

/// Encodes a slot. The number of groups was limited when each was opened.
fn encode(slot: &Slot) -> Result<Box<[u8; SLOT_LEN]>, StorageFault> {
    slot.encode().map_err(|error| StorageFault {
        operation: "encode a slot",
        place: "side file".to_owned(),
        reason: error.to_string(),
    })
}
