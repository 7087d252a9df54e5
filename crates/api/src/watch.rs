//! `GET /v1/watch`: every change of an operation's state, as server-sent events, resumable by position.
//! Written and read here from text, so that the server and every client agree.
//!
//! A stream begins with a `position` event and repeats one while nothing happens, so that a watcher of a quiet
//! namespace does not fall behind what is kept. Each event's position is its `id`: whoever asks again from there gets
//! what came after it, without loss or repeat. A stream that cannot go on ends with a `problem` event.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::operation::State;
use crate::problem::Problem;
use crate::query::{Query, Writer};
use crate::request::Invalid;
use crate::text::{ExecutionId, Malformed, Namespace, OperationId, Revision, as_string};

/// Media type of the stream.
pub const MEDIA_TYPE: &str = "text/event-stream";
/// Carries a position, as browsers do when they connect again; it outranks `from`.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Bytes of one event, above anything that a node writes.
const EVENT_BYTES_MAX: usize = 64 * 1024;

/// A place between two events: after one part of a revision, or, as an answer's revision, after all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The revision.
    pub revision: Revision,
    /// The number of the event among those of the revision; `None` for after all of them.
    pub part: Option<u32>,
}

impl From<Revision> for Position {
    fn from(revision: Revision) -> Position {
        Position { revision, part: None }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Some(part) => write!(f, "{}:{part}", self.revision),
            None => self.revision.fmt(f),
        }
    }
}

impl FromStr for Position {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Position, Malformed> {
        const WRONG: Malformed = Malformed("must be a position as an event carried it, or a revision");
        let (revision, part) = match text.split_once(':') {
            Some((revision, part)) => (revision, Some(part.parse().map_err(|_| WRONG)?)),
            None => (text, None),
        };
        let position = Position { revision: revision.parse().map_err(|_| WRONG)?, part };
        if position.to_string() == text { Ok(position) } else { Err(WRONG) }
    }
}

as_string!(Position);

impl PartialSchema for Position {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("A place between two events. Opaque."))
            .examples(["1.0.4711.0:0"])
            .into()
    }
}

impl ToSchema for Position {}

/// The query of `GET /v1/watch`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchQuery {
    /// Where to go on, or an answer's revision; from now on where absent.
    pub from: Option<Position>,
    /// Only this namespace; all that the credential is good for where absent.
    pub namespace: Option<Namespace>,
}

impl WatchQuery {
    /// Reads a query string.
    ///
    /// # Errors
    /// [`Invalid`] names the first parameter that is wrong.
    pub fn read(query: &str) -> Result<WatchQuery, Invalid> {
        let mut query = Query::read(query, &["from", "namespace"])?;
        Ok(WatchQuery { from: query.parsed("from")?, namespace: query.parsed("namespace")? })
    }

    /// The query string, without its question mark.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut query = Writer::default();
        query.optional("from", self.from);
        query.optional("namespace", self.namespace.as_ref());
        query.finish()
    }
}

/// An operation changed its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationEvent {
    /// The position after this event.
    pub position: Position,
    /// The operation.
    pub operation_id: OperationId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its state now.
    pub state: State,
    /// Its latest attempt; 0 while nobody was elected.
    pub attempt: u32,
    /// Its latest execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// Whether it waits for people.
    pub escalated: bool,
    /// Whether claims are stopped.
    pub quarantined: bool,
}

/// Nothing that is watched happened up to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PositionEvent {
    /// The position.
    pub position: Position,
}

/// One event of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `event: operation`.
    Operation(OperationEvent),
    /// `event: position`.
    Position(PositionEvent),
    /// `event: problem`: the stream ends here, as with `watch.compacted`.
    Problem(Box<Problem>),
}

impl Event {
    /// The event as it is sent, with the empty line that ends it.
    ///
    /// # Errors
    /// None that these types can have: they are strings and numbers.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        Ok(match self {
            Event::Operation(event) => {
                format!("id: {}\nevent: operation\ndata: {}\n\n", event.position, serde_json::to_string(event)?)
            }
            Event::Position(event) => {
                format!("id: {}\nevent: position\ndata: {}\n\n", event.position, serde_json::to_string(event)?)
            }
            Event::Problem(problem) => format!("event: problem\ndata: {}\n\n", serde_json::to_string(problem)?),
        })
    }
}

/// The stream cannot be understood.
#[derive(Debug, Error)]
pub enum Broken {
    /// An event without an end.
    #[error("an event has more than {EVENT_BYTES_MAX} bytes")]
    TooLong,
    /// Not UTF-8.
    #[error("an event is not UTF-8")]
    NotText,
    /// Not what its kind is.
    #[error("an event is not what its kind says: {0}")]
    Data(#[from] serde_json::Error),
}

/// Reads a stream, however it is cut into pieces.
#[derive(Debug, Default)]
pub struct EventReader {
    /// What has arrived of the next event.
    pending: Vec<u8>,
}

impl EventReader {
    /// Takes the next piece and gives the events that it completes. Comments, other fields and other kinds of events
    /// are passed over: a newer server may send them.
    ///
    /// # Errors
    /// [`Broken`]; nothing that follows can be read then.
    pub fn push(&mut self, piece: &[u8]) -> Result<Vec<Event>, Broken> {
        let mut events = Vec::new();
        for &byte in piece {
            // Both ends of a line that a proxy may make of one.
            if byte == b'\r' {
                continue;
            }
            self.pending.push(byte);
            if self.pending.ends_with(b"\n\n") || self.pending == b"\n" {
                events.extend(understood(&self.pending)?);
                self.pending.clear();
            } else if self.pending.len() > EVENT_BYTES_MAX {
                return Err(Broken::TooLong);
            }
        }
        Ok(events)
    }
}

fn understood(block: &[u8]) -> Result<Option<Event>, Broken> {
    let block = std::str::from_utf8(block).map_err(|_| Broken::NotText)?;
    let (mut kind, mut data) = ("", String::new());
    for line in block.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => kind = value,
            "data" => {
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(value);
            }
            _ => {}
        }
    }
    Ok(match kind {
        "operation" => Some(Event::Operation(serde_json::from_str(&data)?)),
        "position" => Some(Event::Position(serde_json::from_str(&data)?)),
        "problem" => Some(Event::Problem(serde_json::from_str(&data)?)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    fn events() -> [Event; 3] {
        let position = Position { part: Some(1), ..Position::from("1.0.4711.2".parse::<Revision>().unwrap()) };
        [
            Event::Position(PositionEvent { position: "1.0.4710.0".parse().unwrap() }),
            Event::Operation(OperationEvent {
                position,
                operation_id: "op_1".parse().unwrap(),
                namespace: "payments".parse().unwrap(),
                state: State::Unknown,
                attempt: 1,
                execution_id: Some("ex_1".parse().unwrap()),
                escalated: true,
                quarantined: false,
            }),
            Event::Problem(Box::new(Problem::new(Code::WatchCompacted))),
        ]
    }

    #[test]
    fn positions() {
        for text in ["1.0.4711.2", "1.0.4711.2:0", "1.0.4711.2:4294967295"] {
            assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
        }
        for text in
            ["", ":1", "1.0.4711.2:", "1.0.4711.2:01", "1.0.4711.2:4294967296", "1.0.4711:1", "1.0.4711.2:1:1"]
        {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn events_on_the_wire() {
        let text: String = events().iter().map(|event| event.to_text().unwrap()).collect();
        insta::assert_snapshot!(text, @r#"
        id: 1.0.4710.0
        event: position
        data: {"position":"1.0.4710.0"}

        id: 1.0.4711.2:1
        event: operation
        data: {"position":"1.0.4711.2:1","operation_id":"op_1","namespace":"payments","state":"unknown","attempt":1,"execution_id":"ex_1","escalated":true,"quarantined":false}

        event: problem
        data: {"type":"/errors/watch.compacted","title":"The events from there on are no longer kept","status":410,"code":"watch.compacted","retryable":false,"outcome":"definite"}
        "#);
    }

    #[test]
    fn a_stream_is_read_however_it_is_cut() {
        let mut text = ": a comment\n\n\n".to_owned();
        for event in events() {
            text.push_str(&event.to_text().unwrap());
            text.push_str("event: of_a_later_version\ndata: ?\n\n: alive\n\n");
        }
        for (text, size) in [(text.clone(), 1), (text.clone(), 7), (text.replace('\n', "\r\n"), 5), (text, 100_000)] {
            let mut reader = EventReader::default();
            let read: Vec<Event> =
                text.as_bytes().chunks(size).flat_map(|piece| reader.push(piece).unwrap()).collect();
            assert_eq!(read, events(), "in pieces of {size}");
            assert!(reader.pending.is_empty());
        }
    }

    #[test]
    fn a_broken_stream_is_not_guessed_at() {
        let read = |text: &[u8]| EventReader::default().push(text);
        assert!(matches!(read(b"event: operation\ndata: {}\n\n"), Err(Broken::Data(_))));
        assert!(matches!(read(b"data: \xff\n\n"), Err(Broken::NotText)));
        assert!(matches!(read(&[b'x'; EVENT_BYTES_MAX + 1]), Err(Broken::TooLong)));
        assert!(read(b"event: operation\ndata: {}").unwrap().is_empty());
    }

    #[test]
    fn the_query() {
        let query = WatchQuery { from: Some("1.0.4711.2:1".parse().unwrap()), namespace: Some("n".parse().unwrap()) };
        assert_eq!(query.to_text(), "from=1.0.4711.2%3A1&namespace=n");
        assert_eq!(WatchQuery::read(&query.to_text()), Ok(query));
        assert_eq!(WatchQuery::read(""), Ok(WatchQuery::default()));
        assert!(WatchQuery::read("from=0").is_err());
    }
}
