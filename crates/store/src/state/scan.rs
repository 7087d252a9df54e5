//! Rows as people and scrubs see them: decoded, in one line, and checked against the key they lie under.
//! Never on the path of a claim.

use hapax_codec::record;

use super::disk::Family;
use super::keys;
use super::view::undecodable;
use crate::seam::StorageFault;

/// One row as a line of text.
pub(super) fn describe(family: Family, key: &[u8], value: &[u8]) -> String {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let record = match family {
        Family::Meta => match key.get(4) {
            Some(3) => debug(record::decode_namespace(value)),
            Some(4) => debug(record::decode_token(value)),
            _ => format!("{value:02x?}"),
        },
        Family::Live | Family::Terminal => debug(record::decode_operation(value)),
        Family::Execution => debug(record::decode_execution(value)),
        Family::Grant => debug(record::decode_grant(value)),
        Family::Body => debug(record::decode_body(value)),
        Family::Evidence => debug(record::decode_evidence(value)),
    };
    format!("{} {hex} {record}", family.name())
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
    };
    decoded.map_err(|error| undecodable(family, key, &error))
}

fn verify_meta(key: &[u8], value: &[u8]) -> Result<(), hapax_codec::Error> {
    match key.get(4) {
        _ if key == keys::FORMAT => Ok(()),
        Some(1) => record::decode_head(value).map(drop),
        Some(2) => record::decode_applied(value).map(drop),
        Some(3) => record::decode_namespace(value).map(drop),
        Some(4) => record::decode_token(value).map(drop),
        _ => Ok(()),
    }
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
