//! Bytes of the rows of authority: capabilities, decisions, uses, deliveries, refusals.
//!
//! ```text
//! capability = id, tenant, namespace, client, decision, bound, expires at, binding?, issued at, revocation?, refusals
//! bound      = 1, operation, attempt, effect attempt, consumption?  |  2, resource, max uses, used
//! ```
//!
//! Of the other rows, the fields in the order of their types.

use hapax_machine::capability::{Bound, CapabilityRecord, Consumption, DecisionRecord, Revocation, UseRecord};
use hapax_machine::inbox::InboxRecord;
use hapax_machine::refusal::RefusalRecord;

use crate::value::fields;
use crate::wire::{Error, Reader, Wire};

fields!(
    CapabilityRecord: id,
    tenant,
    namespace,
    client,
    decision,
    bound,
    expires_at,
    authority,
    issued_at,
    revoked,
    refusals
);
fields!(Consumption: execution, claim_id, client, at);
fields!(Revocation: client, reason, at);
fields!(DecisionRecord: capability, terms);
fields!(UseRecord: birth, consumption);
fields!(InboxRecord: tenant, message, operation, digest, capability, claim_id, client, at);
fields!(
    RefusalRecord: reason,
    namespace,
    capability,
    message,
    known_redelivery,
    operation,
    state,
    attempt,
    client,
    correlation_id,
    first_at,
    last_at,
    times,
    revision
);

const OF_ATTEMPT: u8 = 1;
const OF_RESOURCE: u8 = 2;

impl Wire for Bound {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Attempt { operation, attempt, effect_attempt, consumed } => {
                out.push(OF_ATTEMPT);
                operation.put(out);
                attempt.put(out);
                effect_attempt.put(out);
                consumed.put(out);
            }
            Self::Resource { resource, max_uses, used } => {
                out.push(OF_RESOURCE);
                resource.put(out);
                max_uses.put(out);
                used.put(out);
            }
        }
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match from.u8()? {
            OF_ATTEMPT => Self::Attempt {
                operation: Wire::get(from)?,
                attempt: Wire::get(from)?,
                effect_attempt: Wire::get(from)?,
                consumed: Wire::get(from)?,
            },
            OF_RESOURCE => {
                Self::Resource { resource: Wire::get(from)?, max_uses: Wire::get(from)?, used: Wire::get(from)? }
            }
            tag => return Err(Error::Tag { what: "what a capability is for", tag }),
        })
    }
}
