//! Opening what a node keeps on its disk: the identity file, the state, then the log, which is checked against both.
//! A directory that belongs to another node or cluster, or whose parts contradict each other, is refused.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hapax_codec::membership::DataId;
use hapax_store::log::{LogStore, OpenError, OpenOptions};
use hapax_store::state::{self, StateStore};

use crate::config::NodeConfig;
use crate::fatal::Fatal;
use crate::series::LogSeries;
use crate::state_adapter::GROUP;

/// The stores of a node. Made by [`Storage::open`] on a disk, or from stores in memory by a simulation.
pub struct Storage {
    /// Entries, votes and marks.
    pub log: LogStore,
    /// The replicated state.
    pub state: StateStore,
    /// Names these stores: drawn when they were made. The members refuse a node that comes back with others.
    pub data: DataId,
}

/// Why a data directory was not opened.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A file or directory could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The directory was begun by another node or for another cluster.
    #[error("{path} says `{found}`, but this is `{expected}`: a data directory belongs to one node of one cluster")]
    Identity {
        /// The identity file.
        path: PathBuf,
        /// What it says.
        found: String,
        /// What it should say.
        expected: String,
    },
    /// There is a log or a state, but no identity file.
    #[error("{path} is missing, though the directory holds data")]
    IdentityMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The state was not opened.
    #[error(transparent)]
    State(#[from] state::OpenError),
    /// The log was not opened.
    #[error(transparent)]
    Log(#[from] OpenError),
}

const IDENTITY: &str = "identity";
const LOG: &str = "log";
const STATE: &str = "state";
/// Where snapshots are made and received.
pub(crate) const SNAPSHOTS: &str = "snapshots";

impl Storage {
    /// Opens the data directory, creating it if it is absent. Blocks: it reads the whole log to check it.
    ///
    /// # Errors
    /// See [`StorageError`]; nothing was repaired.
    pub fn open(config: &NodeConfig, fatal: &Fatal) -> Result<Self, StorageError> {
        let dir = &config.data_dir;
        fs::create_dir_all(dir).map_err(|error| StorageError::Io { path: dir.clone(), error })?;
        let data = check_identity(config)?;
        let mut options = state::OpenOptions::default();
        options.flush_after = config.log.flush_interval;
        let state = StateStore::open(&dir.join(STATE), options, fatal.hook())?;
        // The state may be ahead of a log that was about to be cut behind an installed snapshot: what the state has
        // applied counts as held.
        let applied = state.applied().last_applied.map(|id| (GROUP.0, id));
        let options = OpenOptions {
            applied: applied.into_iter().collect::<BTreeMap<_, _>>(),
            observer: Arc::new(LogSeries::new()),
            ..OpenOptions::new(fatal.hook())
        };
        let log = LogStore::open(&dir.join(LOG), options)?;
        Ok(Self { log, state, data })
    }
}

/// Reads the identity file, or writes it into a directory that holds nothing yet. Where the log or the state is not there,
/// whether it was never made or was removed, the directory is given another data id: it may have lost what it promised.
fn check_identity(config: &NodeConfig) -> Result<DataId, StorageError> {
    let dir = &config.data_dir;
    let path = dir.join(IDENTITY);
    let io = |error| StorageError::Io { path: path.clone(), error };
    let expected = format!("hapax 1 node {} cluster {}", config.id, config.cluster);
    let found = match fs::read_to_string(&path) {
        Ok(found) => {
            let data = found.trim_end().strip_prefix(&expected).and_then(data_of);
            let wrong =
                || StorageError::Identity { path: path.clone(), found: found.trim_end().to_owned(), expected };
            Some(data.ok_or_else(wrong)?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io(error)),
    };
    let parts = [LOG, STATE].map(|part| dir.join(part).exists());
    match found {
        Some(data) if parts == [true, true] => Ok(data),
        None if parts != [false, false] => Err(StorageError::IdentityMissing { path }),
        _ => {
            let data = DataId(rand::random());
            let text = format!("hapax 1 node {} cluster {} data {data}\n", config.id, config.cluster);
            write_durably(dir, &path, &text).map_err(io)?;
            Ok(data)
        }
    }
}

/// Reads ` data ` and its 32 hexadecimal digits.
fn data_of(text: &str) -> Option<DataId> {
    let digits = text.strip_prefix(" data ").filter(|digits| digits.len() == 32)?;
    let data = DataId(u128::from_str_radix(digits, 16).ok()?.to_be_bytes());
    data.is_known().then_some(data)
}

/// Writes a small file so that after a crash it is there whole or not at all.
fn write_durably(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use hapax_codec::peer::hello::ClusterId;

    use super::*;
    use crate::config::{LogLimits, Reads, Retention, Scrub, Timing};
    use crate::transport;

    fn config(dir: &Path, id: u64, cluster: u8) -> NodeConfig {
        NodeConfig {
            id,
            cluster: ClusterId([cluster; 16]),
            data_dir: dir.to_owned(),
            members: BTreeMap::new(),
            timing: Timing::LAN,
            log: LogLimits::DEFAULT,
            scrub: Scrub::DEFAULT,
            retention: Retention::DEFAULT,
            reads: Reads::DEFAULT,
            transport: transport::Config::lan(),
        }
    }

    #[test]
    fn a_directory_belongs_to_one_node_of_one_cluster() {
        let dir = tempfile::tempdir().unwrap();
        check_identity(&config(dir.path(), 1, 7)).unwrap();
        check_identity(&config(dir.path(), 1, 7)).unwrap();
        let other = check_identity(&config(dir.path(), 2, 7)).unwrap_err().to_string();
        assert!(other.contains("node 1") && other.contains("node 2"), "{other}");
        let cluster = check_identity(&config(dir.path(), 1, 8)).unwrap_err();
        assert!(matches!(cluster, StorageError::Identity { .. }), "{cluster}");
    }

    #[test]
    fn a_directory_keeps_its_data_id_for_as_long_as_its_data() {
        let dir = tempfile::tempdir().unwrap();
        let drawn = || check_identity(&config(dir.path(), 1, 7)).unwrap();
        let begun = drawn();
        assert!(begun.is_known());
        for part in [LOG, STATE] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        let kept = drawn();
        assert_eq!(kept, drawn());
        fs::remove_dir(dir.path().join(LOG)).unwrap();
        assert_ne!(kept, drawn(), "its votes are gone");
        fs::remove_dir_all(dir.path()).unwrap();
        fs::create_dir(dir.path()).unwrap();
        assert_ne!(kept, drawn(), "everything is gone");
    }

    #[test]
    fn data_without_an_identity_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(LOG)).unwrap();
        let missing = check_identity(&config(dir.path(), 1, 7)).unwrap_err();
        assert!(matches!(missing, StorageError::IdentityMissing { .. }), "{missing}");
    }
}
