//! E: lease epochs and registers of authority strictly increase: along the revisions at which they were granted, and along real time.
//! No epoch is ever handed out twice, whatever it is for.

use std::collections::BTreeMap;

use super::Observed;
use crate::history::{Call, What, grants, revision};

/// Something that was granted with a number that must be greater than all before it.
struct Numbered {
    of: String,
    by: String,
    number: u64,
    revision: [u64; 4],
    at: u64,
    end: u64,
}

pub(super) fn violations(observed: &Observed) -> Vec<String> {
    let leases: Vec<Numbered> = grants(&observed.calls)
        .into_iter()
        .filter_map(|grant| {
            Some(Numbered {
                of: format!("{:?}", grant.key),
                by: grant.claim_id.to_owned(),
                number: grant.epoch,
                revision: revision(grant.call.success()?)?,
                at: grant.call.at,
                end: grant.call.end(),
            })
        })
        .collect();
    let bumps: Vec<Numbered> = observed.calls.iter().filter_map(bump).collect();
    let mut found = handed_out_twice(observed);
    for all in [leases, bumps] {
        let mut by_key: BTreeMap<&str, Vec<&Numbered>> = BTreeMap::new();
        for one in &all {
            by_key.entry(&one.of).or_default().push(one);
        }
        by_key.into_values().for_each(|list| found.extend(not_increasing(list)));
    }
    found
}

fn bump(call: &Call) -> Option<Numbered> {
    let What::Epoch { bump: Some(expected) } = call.what else { return None };
    let body = call.told(200)?;
    Some(Numbered {
        of: "the register".to_owned(),
        by: format!("bump from {expected}"),
        number: body["value"].as_u64()?,
        revision: revision(body)?,
        at: call.at,
        end: call.end(),
    })
}

fn not_increasing(mut list: Vec<&Numbered>) -> Vec<String> {
    let mut found = Vec::new();
    list.sort_by_key(|one| one.revision);
    for pair in list.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if before.number >= after.number && before.by != after.by {
            let Numbered { of, by, number, revision, .. } = after;
            found.push(format!("{of}: {number} for {by} at {revision:?} after {} for {}", before.number, before.by));
        }
    }
    list.sort_by_key(|one| one.end);
    let mut highest = BTreeMap::new();
    for one in &list {
        // The greatest number that was acknowledged before this was asked for.
        let before = highest.range(..one.at).next_back().map_or(0, |(_, number)| *number);
        if one.number < before {
            found.push(format!(
                "{}: {} for {}, asked for after {before} was acknowledged",
                one.of, one.number, one.by
            ));
        }
        let so_far = highest.last_key_value().map_or(0, |(_, number)| *number);
        highest.insert(one.end, so_far.max(one.number));
    }
    found
}

/// Claims and reconcilers draw from one source.
fn handed_out_twice(observed: &Observed) -> Vec<String> {
    let mut holders: BTreeMap<u64, String> = BTreeMap::new();
    let mut found = Vec::new();
    let mut hold = |epoch: u64, holder: String| {
        let first = holders.entry(epoch).or_insert_with(|| holder.clone());
        if *first != holder {
            found.push(format!("epoch {epoch} was given to {first} and to {holder}"));
        }
    };
    for grant in grants(&observed.calls) {
        hold(grant.epoch, format!("claim {}", grant.claim_id));
    }
    for call in &observed.calls {
        let (What::Reconcile { owner }, Some(body)) = (&call.what, call.success()) else { continue };
        for item in body["items"].as_array().into_iter().flatten() {
            if let (Some(epoch), Some(execution)) = (item["lease_epoch"].as_u64(), item["execution_id"].as_str()) {
                hold(epoch, format!("reconciler {owner} of {execution}"));
            }
        }
    }
    found
}
