//! The checks at open: what the log holds must be whole, and must be at least what the side file says was promised.
//! They read every entry that was not purged; a node opens no log that fails them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use hapax_codec::log::side::{GROUPS_MAX, Slot};
use hapax_codec::log::{Committed, FrameHead, LogId, Start, Vote};

use super::OpenError;
use super::group::Recovered;
use super::keys;
use crate::seam::LogDisk;

/// A group as found, with everything that is wrong with it.
pub(super) struct Examined {
    pub(super) found: Recovered,
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// In order of index; the first one stops the examination of the entries behind it.
    pub(super) wrong: Vec<OpenError>,
    /// The id of the entry that the side file says was acknowledged last, if the log has one at that index.
    promised_here: Option<LogId>,
}

/// Recovers every group, or refuses with the first thing that is wrong.
pub(super) fn recover(
    disk: &dyn LogDisk,
    place: &str,
    slot: &Slot,
    applied: &BTreeMap<u32, LogId>,
) -> Result<Vec<Recovered>, OpenError> {
    let mut recovered = Vec::new();
    for examined in examine(disk, place, slot, applied)? {
        if let Some(wrong) = examined.wrong.into_iter().next() {
            return Err(wrong);
        }
        recovered.push(examined.found);
    }
    Ok(recovered)
}

/// Examines every group that the log or the side file knows.
pub(super) fn examine(
    disk: &dyn LogDisk,
    place: &str,
    slot: &Slot,
    applied: &BTreeMap<u32, LogId>,
) -> Result<Vec<Examined>, OpenError> {
    let mut groups: Vec<u32> = slot.groups.keys().copied().collect();
    groups.extend(stored_groups(disk, place)?);
    groups.sort_unstable();
    groups.dedup();
    if groups.len() > GROUPS_MAX {
        return Err(OpenError::TooManyGroups { place: place.to_owned(), groups: groups.len() });
    }
    let examiner = Examiner { disk, place };
    Ok(groups.into_iter().map(|group| examiner.group(group, slot, applied.get(&group).copied())).collect())
}

/// The groups that have any row.
fn stored_groups(disk: &dyn LogDisk, place: &str) -> Result<Vec<u32>, OpenError> {
    let mut groups: Vec<u32> = Vec::new();
    let mut from = keys::begin(0);
    loop {
        let mut next = None;
        disk.scan(&from, &keys::LAST, &mut |key, _| {
            next = keys::group_of(key);
            ControlFlow::Break(())
        })
        .map_err(|fault| {
            unreadable(place, groups.last().map_or(0, |last| last + 1), "the first row", fault.reason)
        })?;
        let Some(group) = next else { return Ok(groups) };
        groups.push(group);
        if groups.len() > GROUPS_MAX || group == u32::MAX {
            return Ok(groups);
        }
        from = keys::begin(group + 1);
    }
}

fn unreadable(place: &str, group: u32, row: impl Into<String>, reason: impl Into<String>) -> OpenError {
    OpenError::Row { place: place.to_owned(), group, row: row.into(), reason: reason.into() }
}

struct Examiner<'a> {
    disk: &'a dyn LogDisk,
    place: &'a str,
}

impl Examiner<'_> {
    fn group(&self, group: u32, slot: &Slot, applied: Option<LogId>) -> Examined {
        let mut examined =
            Examined { found: Recovered::new(group), entries: 0, bytes: 0, wrong: Vec::new(), promised_here: None };
        let promise = slot.groups.get(&group).copied().unwrap_or_default();
        if let Err(wrong) = self.marks(&mut examined.found) {
            examined.wrong.push(wrong);
        }
        if let Err(wrong) = self.entries(&mut examined, promise.acknowledged) {
            examined.wrong.push(wrong);
        }
        let place = self.place.to_owned();
        if let Some(promised) = promise.vote
            && !examined.found.vote.is_some_and(|vote| vote.covers(&promised))
        {
            let stored = examined.found.vote;
            examined.wrong.push(OpenError::VoteLost { place: place.clone(), group, stored, promised });
        }
        if let Some(promised) = promise.acknowledged {
            let last = examined.found.last.map(|(id, _)| id).or(examined.found.start.purged);
            let held =
                [last, examined.found.start.purged, applied].into_iter().flatten().any(|id| id.covers(&promised));
            if !held {
                examined.wrong.push(OpenError::EntriesLost { place, group, last, promised });
            } else if let Some(found) = examined.promised_here.filter(|found| *found != promised) {
                examined.wrong.push(OpenError::EntryReplaced { place, group, promised, found });
            }
        }
        examined
    }

    /// The vote and the two marks.
    fn marks(&self, found: &mut Recovered) -> Result<(), OpenError> {
        let group = found.group;
        let read = |key, row: &'static str| {
            self.disk.get(&key).map_err(|fault| unreadable(self.place, group, row, fault.reason))
        };
        let wrong = |row: &'static str| {
            move |error: hapax_codec::log::Error| unreadable(self.place, group, row, error.to_string())
        };
        if let Some(bytes) = read(keys::vote(group), "the vote")? {
            found.vote = Some(Vote::decode(group, &bytes).map_err(wrong("the vote"))?);
        }
        if let Some(bytes) = read(keys::start(group), "the log's start")? {
            found.start = Start::decode(group, &bytes).map_err(wrong("the log's start"))?;
        }
        if let Some(bytes) = read(keys::committed(group), "the committed mark")? {
            found.committed = Some(Committed::decode(group, &bytes).map_err(wrong("the committed mark"))?.0);
        }
        Ok(())
    }

    /// Every entry from the first on: present, and chained to the one before it.
    fn entries(&self, examined: &mut Examined, promised: Option<LogId>) -> Result<(), OpenError> {
        let (group, start) = (examined.found.group, examined.found.start);
        let place = || self.place.to_owned();
        let (mut next, mut chain) = (start.first, start.chain);
        let mut wrong = None;
        let scanned = self.disk.scan(&keys::entry(group, start.first), &keys::end(group), &mut |key, frame| {
            let index = keys::index_of(key).unwrap_or(u64::MAX);
            wrong = match FrameHead::decode(frame) {
                _ if index != next => Some(OpenError::Hole { place: place(), group, index: next, found: index }),
                Err(error) => {
                    Some(unreadable(self.place, group, format!("the entry at index {index}"), error.to_string()))
                }
                Ok(head) if head.group != group || head.id.index != index || !head.follows(frame, chain) => {
                    Some(OpenError::Chain { place: place(), group, index })
                }
                Ok(head) => {
                    (next, chain) = (index + 1, head.chain);
                    examined.found.last = Some((head.id, head.chain));
                    examined.entries += 1;
                    examined.bytes += frame.len() as u64;
                    if promised.is_some_and(|promised| promised.index == index) {
                        examined.promised_here = Some(head.id);
                    }
                    None
                }
            };
            if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        scanned.map_err(|fault| unreadable(self.place, group, format!("the entry at index {next}"), fault.reason))?;
        wrong.map_or(Ok(()), Err)
    }
}
