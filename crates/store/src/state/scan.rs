//! Rows as people and scrubs see them: decoded, in one line, and checked against the key they lie under.
//! Never on the path of a claim.

use hapax_codec::record;

use super::disk::Family;
use super::index;
use super::keys::{self, Parts};
use super::view::undecodable;
use crate::seam::StorageFault;

/// One row as a line of text.
pub(super) fn describe(family: Family, key: &[u8], value: &[u8]) -> String {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let record = match family {
        Family::Meta => describe_meta(key, value),
        Family::Live | Family::Terminal => debug(record::decode_operation(value)),
        Family::Execution => debug(record::decode_execution(value)),
        Family::Grant => debug(record::decode_grant(value)),
        Family::Body => debug(record::decode_body(value)),
        Family::Evidence => debug(record::decode_evidence(value)),
        Family::Authority => describe_authority(key, value),
        Family::Index => match index::target(key) {
            Some(target) => format!("{target:?}"),
            None => "leads nowhere".to_owned(),
        },
        Family::Events => debug(record::decode_events(value)),
    };
    format!("{} {hex} {record}", family.name())
}

fn describe_meta(key: &[u8], value: &[u8]) -> String {
    match key.get(4) {
        Some(&keys::NAMESPACE) => debug(record::decode_namespace(value)),
        Some(&keys::TOKEN) => debug(record::decode_token(value)),
        Some(&keys::STATUS) => debug(record::decode_status(value)),
        Some(&keys::EPOCH) => debug(record::decode_epoch(value)),
        Some(&keys::TENANT) => debug(record::decode_tenant(value)),
        _ => format!("{value:02x?}"),
    }
}

fn describe_authority(key: &[u8], value: &[u8]) -> String {
    match key.get(4) {
        Some(&keys::CAPABILITY) => debug(record::decode_capability(value)),
        Some(&keys::DECISION) => debug(record::decode_decision(value)),
        Some(&keys::USE) => debug(record::decode_use(value)),
        Some(&keys::INBOX) => debug(record::decode_inbox(value)),
        Some(&keys::REFUSAL) => debug(record::decode_refusal(value)),
        _ => format!("{value:02x?}"),
    }
}

fn debug<T: std::fmt::Debug>(record: Result<T, hapax_codec::Error>) -> String {
    match record {
        Ok(record) => format!("{record:?}"),
        Err(error) => format!("undecodable: {error}"),
    }
}

/// Checks that a row decodes, and that an operation lies under its own key and in its own family.
pub(super) fn verify(family: Family, key: &[u8], value: &[u8]) -> Result<(), StorageFault> {
    let decoded = match family {
        Family::Meta => verify_meta(key, value),
        Family::Live | Family::Terminal => return verify_operation(family, key, value),
        Family::Execution => record::decode_execution(value).map(drop),
        Family::Grant => record::decode_grant(value).map(drop),
        Family::Body => record::decode_body(value).map(drop),
        Family::Evidence => record::decode_evidence(value).map(drop),
        Family::Authority => return verify_authority(key, value),
        Family::Index => {
            let leads = index::target(key).is_some() && value.is_empty();
            return if leads { Ok(()) } else { Err(undecodable(family, key, &"no row of the index")) };
        }
        Family::Events => return verify_events(key, value),
    };
    decoded.map_err(|error| undecodable(family, key, &error))
}

fn verify_meta(key: &[u8], value: &[u8]) -> Result<(), hapax_codec::Error> {
    match key.get(4) {
        _ if key == keys::FORMAT => Ok(()),
        Some(&keys::HEAD) => record::decode_head(value).map(drop),
        Some(&keys::APPLIED) => record::decode_applied(value).map(drop),
        Some(&keys::NAMESPACE) => record::decode_namespace(value).map(drop),
        Some(&keys::TOKEN) => record::decode_token(value).map(drop),
        Some(&keys::STATUS) => record::decode_status(value).map(drop),
        Some(&keys::EPOCH) => record::decode_epoch(value).map(drop),
        Some(&keys::TENANT) => record::decode_tenant(value).map(drop),
        _ => Ok(()),
    }
}

fn verify_authority(key: &[u8], value: &[u8]) -> Result<(), StorageFault> {
    let decoded = match key.get(4) {
        Some(&keys::CAPABILITY) => record::decode_capability(value).map(drop),
        Some(&keys::DECISION) => record::decode_decision(value).map(drop),
        Some(&keys::USE) => record::decode_use(value).map(drop),
        Some(&keys::INBOX) => record::decode_inbox(value).map(drop),
        Some(&keys::REFUSAL) => record::decode_refusal(value).map(drop),
        _ => return Err(undecodable(Family::Authority, key, &"no kind of row that this program knows")),
    };
    decoded.map_err(|error| undecodable(Family::Authority, key, &error))
}

/// Checks that a row holds events of its own entry.
fn verify_events(key: &[u8], value: &[u8]) -> Result<(), StorageFault> {
    let events = record::decode_events(value).map_err(|error| undecodable(Family::Events, key, &error))?;
    let index = Parts(key.get(4..).unwrap_or_default()).number();
    if !events.is_empty() && events.iter().all(|event| Some(event.revision.index) == index) {
        return Ok(());
    }
    Err(undecodable(Family::Events, key, &"holds events of another entry, or none"))
}

fn verify_operation(family: Family, key: &[u8], value: &[u8]) -> Result<(), StorageFault> {
    let record = record::decode_operation(value).map_err(|error| undecodable(family, key, &error))?;
    let own = record.key();
    let lies_well = key.get(4..12) == Some(&own.tenant.0[..]) && key.get(12..) == Some(&own.hash[..]);
    let belongs = record.state().is_terminal() == (family == Family::Terminal);
    if lies_well && belongs {
        return Ok(());
    }
    Err(undecodable(family, key, &format!("holds {} in state {:?}", record.id, record.state())))
}
