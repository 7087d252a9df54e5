//! Bytes of the events of one log entry: what they share is written once.
//!
//! ```text
//! events = version 1, incarnation, group, index, count, count × event        (at least one)
//! event  = flags, ordinal, part, tenant, namespace, operation, state, attempt, execution?
//! ```
//!
//! Flags of an event, from the lowest: execution, escalated, quarantined.

use hapax_machine::change::Event;
use hapax_machine::ids::Revision;

use super::VERSION;
use crate::wire::{Error, LIST_MAX, Reader, Wire, put_flags, put_some, put_varint};

/// Appends the row of what happened in one entry to `out`.
///
/// # Panics
/// There are none, or they are of several entries, or more than a batch can cause.
pub fn encode_events(events: &[Event], out: &mut Vec<u8>) {
    // Of no events nobody could tell which entry they are of.
    assert!(!events.is_empty(), "an entry in which nothing happened has no row");
    let Revision { incarnation, group, index, .. } = events[0].revision;
    assert!(events.len() <= LIST_MAX, "a batch is closed long before it causes as many events");
    out.push(VERSION);
    incarnation.put(out);
    group.put(out);
    index.put(out);
    put_varint(out, events.len() as u64);
    for event in events {
        let of_entry = Revision { incarnation, group, index, ordinal: event.revision.ordinal };
        assert_eq!(event.revision, of_entry, "a row is of one entry");
        put_flags(out, [event.execution.is_some(), event.escalated, event.quarantined]);
        event.revision.ordinal.put(out);
        event.part.put(out);
        event.tenant.put(out);
        event.namespace.put(out);
        event.operation.put(out);
        event.state.put(out);
        event.attempt.put(out);
        put_some(out, event.execution.as_ref());
    }
}

/// Reads the row of what happened in one entry.
///
/// # Errors
/// The bytes are not such a row of a known version.
pub fn decode_events(bytes: &[u8]) -> Result<Vec<Event>, Error> {
    let mut from = Reader::open(bytes, "events row", VERSION)?;
    let (incarnation, group, index) = (Wire::get(&mut from)?, Wire::get(&mut from)?, Wire::get(&mut from)?);
    let count = from.count()?;
    if count == 0 {
        return Err(Error::Redundant { what: "row of no events" });
    }
    let mut events = Vec::new();
    for _ in 0..count {
        let [execution, escalated, quarantined] = from.flags("event")?;
        let ordinal = Wire::get(&mut from)?;
        events.push(Event {
            revision: Revision { incarnation, group, index, ordinal },
            part: Wire::get(&mut from)?,
            tenant: Wire::get(&mut from)?,
            namespace: Wire::get(&mut from)?,
            operation: Wire::get(&mut from)?,
            state: Wire::get(&mut from)?,
            attempt: Wire::get(&mut from)?,
            execution: from.get_if(execution)?,
            escalated,
            quarantined,
        });
    }
    from.end()?;
    Ok(events)
}
