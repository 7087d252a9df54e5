//! openraft's own suite for log storages, over both disks. It knows no crashes: the log store's own tests do.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io;
use std::sync::Arc;

use hapax_consensus::log_adapter::{Durable, LogAdapter};
use hapax_consensus::snapshot::Snapshots;
use hapax_consensus::state_adapter::StateAdapter;
use hapax_consensus::tail::Tail;
use hapax_consensus::types::TypeConfig;
use hapax_store::log::{LogStore, MemoryDisk, OpenOptions};
use hapax_store::seam::FatalHook;
use hapax_store::state::{MemoryState, OpenOptions as StateOptions, StateStore};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

/// The suite purges what no state has applied.
struct Anything;

impl Durable for Anything {
    fn ensure(&self, _index: u64) -> Result<(), io::Error> {
        Ok(())
    }
}

/// What must live as long as the stores.
struct Kept {
    _dir: TempDir,
    _log: LogStore,
}

struct Stores {
    on_disk: bool,
}

fn no_faults() -> FatalHook {
    Arc::new(|fault| panic!("{fault}"))
}

impl StoreBuilder<TypeConfig, LogAdapter, StateAdapter, Kept> for Stores {
    async fn build(&self) -> Result<(Kept, LogAdapter, StateAdapter), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(no_faults());
        let (log, state) = if self.on_disk {
            let state = StateStore::open(&dir.path().join("state"), StateOptions::default(), no_faults()).unwrap();
            (LogStore::open(&dir.path().join("log"), options).unwrap(), state)
        } else {
            let state = MemoryState::default().open(StateOptions::default(), no_faults()).unwrap();
            (MemoryDisk::new().open(options).unwrap(), state)
        };
        let snapshots = Snapshots::open(dir.path().join("snapshots"), state.clone()).unwrap();
        let machine = StateAdapter::new(state, Vec::new(), snapshots).unwrap();
        let adapter = LogAdapter::new(log.group(0).unwrap(), Arc::new(Anything), Tail::default());
        Ok((Kept { _dir: dir, _log: log }, adapter, machine))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_in_memory_passes_openrafts_suite() {
    Suite::test_all(Stores { on_disk: false }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_on_rocksdb_passes_openrafts_suite() {
    Suite::test_all(Stores { on_disk: true }).await.unwrap();
}
