//! The doctor's look at a log directory: opened for reading only, everything that is wrong with it in one report.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use hapax_codec::log::side::{Promise, Slot};
use hapax_codec::log::{LogId, Vote};

use super::OpenError;
use super::rocks::{examine_only, side_of};
use super::verify::Examined;

/// What a log directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The side file's sequence, or what is wrong with the side file.
    pub side: Result<u64, OpenError>,
    /// How the database's newest files end, or what is wrong with it as a whole; then `groups` is empty.
    pub database: Result<String, OpenError>,
    /// Group by group.
    pub groups: Vec<GroupReport>,
}

/// What a log directory holds of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReport {
    /// Which group.
    pub group: u32,
    /// The vote in the log.
    pub vote: Option<Vote>,
    /// The last id that was purged.
    pub purged: Option<LogId>,
    /// The last entry that is present and chains back to the first.
    pub last: Option<LogId>,
    /// The last committed id that was noted.
    pub committed: Option<LogId>,
    /// Sound entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What the side file says was promised.
    pub promised: Promise,
    /// Everything that is wrong, the applied state not being known here.
    pub wrong: Vec<OpenError>,
}

/// Inspects a log directory that no process has open, preferably a copy of it. Writes nothing.
pub fn inspect(path: &Path) -> Report {
    let side = side_of(path);
    // A side file that cannot be read may have promised anything: an absent database is then a loss, too.
    let slot = side.clone().unwrap_or(Slot { sequence: u64::MAX, groups: BTreeMap::new() });
    let (database, groups) = match examine_only(path, &slot) {
        Ok((place, examined)) => (Ok(place), examined.into_iter().map(|group| report(group, &slot)).collect()),
        Err(error) => (Err(error), Vec::new()),
    };
    Report { side: side.map(|slot| slot.sequence), database, groups }
}

fn report(examined: Examined, slot: &Slot) -> GroupReport {
    let found = examined.found;
    GroupReport {
        group: found.group,
        vote: found.vote,
        purged: found.start.purged,
        last: found.last.map(|(id, _)| id),
        committed: found.committed,
        entries: examined.entries,
        bytes: examined.bytes,
        promised: slot.groups.get(&found.group).copied().unwrap_or_default(),
        wrong: examined.wrong,
    }
}

impl Report {
    /// Everything that is wrong.
    pub fn wrong(&self) -> impl Iterator<Item = &OpenError> {
        let whole = self.side.as_ref().err().into_iter().chain(self.database.as_ref().err());
        whole.chain(self.groups.iter().flat_map(|group| &group.wrong))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(sequence) = &self.side {
            writeln!(f, "side file: sound, written {sequence} times")?;
        }
        if let Ok(place) = &self.database {
            writeln!(f, "database: {place}")?;
        }
        for group in &self.groups {
            let show = |id: Option<LogId>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
            writeln!(
                f,
                "group {}: {} entries, {} bytes; purged up to {}, last {}, committed {}; promised {}",
                group.group,
                group.entries,
                group.bytes,
                show(group.purged),
                show(group.last),
                show(group.committed),
                show(group.promised.acknowledged),
            )?;
            writeln!(f, "group {}: vote {:?}; promised {:?}", group.group, group.vote, group.promised.vote)?;
        }
        for wrong in self.wrong() {
            writeln!(f, "WRONG: {wrong}")?;
        }
        Ok(())
    }
}
