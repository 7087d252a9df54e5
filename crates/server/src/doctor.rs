//! Looks into the files of a node that does not run. The output is lines of a key, a tab and a value: first what
//! stands at the head, each key with a `#`, then every logical row in the order of the keys, so that the contents of
//! two nodes can be compared.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use hapax_machine::View as _;
use hapax_store::log;
use hapax_store::state::{HASH_EVERY, OpenOptions, StateStore};
use thiserror::Error;

/// How many of the kept state hashes are shown, from the newest.
const HASHES_SHOWN: u64 = 64;

/// Why files could not be looked into, or what is wrong with them.
#[derive(Debug, Error)]
pub enum DoctorError {
    /// They are damaged, or are not a node's.
    #[error("{0}")]
    Damaged(String),
    /// The output could not be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

fn damaged(error: impl Display) -> DoctorError {
    DoctorError::Damaged(error.to_string())
}

/// Writes every logical row of a node's state. Opens it as the node would, so the node must not run.
///
/// # Errors
/// [`DoctorError`]: there is no state, it is damaged, or another process has it open.
pub fn state(data_dir: &Path, out: &mut dyn Write) -> Result<(), DoctorError> {
    let directory = data_dir.join("state");
    if !directory.is_dir() {
        return Err(damaged(format!("{} is not there", directory.display())));
    }
    let store = StateStore::open(&directory, OpenOptions::default(), Arc::new(|_| {})).map_err(damaged)?;
    let view = store.view();
    let applied = view.applied().map_or(0, |id| id.index);
    let head = view.head();
    writeln!(out, "#applied\t{applied}")?;
    writeln!(out, "#incarnation\t{}", head.incarnation)?;
    let newest = applied / HASH_EVERY;
    for index in (newest.saturating_sub(HASHES_SHOWN)..=newest).map(|number| number * HASH_EVERY) {
        if let Some(hash) = view.state_hash_at(index).map_err(damaged)? {
            write!(out, "#state_hash@{index}\t")?;
            hash.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
            writeln!(out)?;
        }
    }
    view.dump(out).map_err(damaged)
}

/// Checks a node's log entry by entry, and writes what is in it.
///
/// # Errors
/// [`DoctorError`]: something in it is wrong; what could be read was written first.
pub fn log(data_dir: &Path, out: &mut dyn Write) -> Result<(), DoctorError> {
    let report = log::inspect(&data_dir.join("log"));
    match &report.side {
        Ok(sequence) => writeln!(out, "side file\tsequence {sequence}")?,
        Err(error) => writeln!(out, "side file\t{error}")?,
    }
    match &report.database {
        Ok(tail) => writeln!(out, "database\t{tail}")?,
        Err(error) => writeln!(out, "database\t{error}")?,
    }
    let mut wrong: Vec<String> =
        report.side.err().iter().chain(report.database.err().iter()).map(ToString::to_string).collect();
    for group in report.groups {
        let named =
            |id: Option<hapax_codec::log::LogId>| id.map_or_else(|| "none".to_owned(), |id| format!("{id:?}"));
        let (group_id, entries, bytes) = (group.group, group.entries, group.bytes);
        writeln!(out, "group {group_id}\t{entries} entries, {bytes} bytes, vote {:?}", group.vote)?;
        writeln!(out, "group {group_id}\tpurged {}, last {}", named(group.purged), named(group.last))?;
        wrong.extend(group.wrong.iter().map(ToString::to_string));
    }
    if wrong.is_empty() { Ok(()) } else { Err(DoctorError::Damaged(wrong.join("\n"))) }
}
