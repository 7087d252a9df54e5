//! Forwarding: the bytes between a follower and the leader, and the seam that carries them.
//! Commands travel as they were encoded by the node that received them.
//!
//! ```text
//! request = version 1, count u32, count × (remaining_ms u32, len u32, envelope)
//! reply   = version 1, count u32, count × answer
//! answer  = 0, len u32, outcome | 1: not proposed | 2, leader u64: not proposed | 3: overloaded | 4: unknown
//! ```
//!
//! A node that cannot read a request answers nothing: an empty reply, which says nothing about the commands.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use hapax_codec::command::{BATCH_MAX, decode_envelope};
use hapax_codec::outcome::{decode_outcome, encode_outcome};
use tokio::time::Instant;

use super::ticket::{Answer, Item};
use crate::transport::{CallError, Peers};
use crate::types::NodeId;

const VERSION: u8 = 1;
/// The shortest command in a request and the shortest answer in a reply, in bytes.
const COMMAND_LEN_MIN: usize = 8;
const ANSWER_LEN_MIN: usize = 1;

const OUTCOME: u8 = 0;
const NOT_PROPOSED: u8 = 1;
const NOT_PROPOSED_BUT: u8 = 2;
const OVERLOADED: u8 = 3;
const UNKNOWN: u8 = 4;

/// Why a forward has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unforwarded {
    /// No byte of it was written, and none will be.
    NotWritten,
    /// The leader may have seen it.
    Ambiguous,
}

/// Carries batches of commands to the leader.
pub trait Forward: Send + Sync + 'static {
    /// Sends a request and waits for its reply until the deadline.
    fn forward(
        &self,
        to: NodeId,
        request: Bytes,
        deadline: Instant,
    ) -> BoxFuture<'static, Result<Bytes, Unforwarded>>;
}

impl Forward for Peers {
    fn forward(
        &self,
        to: NodeId,
        request: Bytes,
        deadline: Instant,
    ) -> BoxFuture<'static, Result<Bytes, Unforwarded>> {
        let peers = self.clone();
        async move {
            Self::forward(&peers, to, request, deadline).await.map_err(|error| match error {
                CallError::NotWritten(_) => Unforwarded::NotWritten,
                CallError::Ambiguous(_) => Unforwarded::Ambiguous,
            })
        }
        .boxed()
    }
}

/// A command as it arrives at the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// How long its caller still waits.
    pub(super) remaining: Duration,
    /// A whole envelope: it was read once, and goes into the log as it came.
    pub(super) envelope: Bytes,
}

/// Bytes that the other side would not have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

pub(super) fn encode_request(items: &[Item], now: Instant) -> Bytes {
    let len: usize = items.iter().map(|item| COMMAND_LEN_MIN + item.envelope.len()).sum();
    let mut out = BytesMut::with_capacity(5 + len);
    out.put_u8(VERSION);
    out.put_u32(items.len() as u32);
    for item in items {
        let remaining_ms = item.deadline.saturating_duration_since(now).as_millis();
        out.put_u32(u32::try_from(remaining_ms).unwrap_or(u32::MAX));
        out.put_u32(item.envelope.len() as u32);
        out.put_slice(&item.envelope);
    }
    out.freeze()
}

pub(super) fn decode_request(mut from: Bytes) -> Result<Vec<Forwarded>, Malformed> {
    let count = open(&mut from, COMMAND_LEN_MIN)?;
    let mut commands = Vec::with_capacity(count);
    for _ in 0..count {
        let remaining = Duration::from_millis(u64::from(from.try_get_u32().map_err(|_| Malformed)?));
        let envelope = sized(&mut from)?;
        // One command that cannot be read would be one that no node can apply, for ever.
        decode_envelope(&envelope).map_err(|_| Malformed)?;
        commands.push(Forwarded { remaining, envelope });
    }
    if from.is_empty() { Ok(commands) } else { Err(Malformed) }
}

pub(super) fn encode_reply(answers: &[Answer]) -> Bytes {
    let mut out = BytesMut::with_capacity(5 + answers.len() * 128);
    out.put_u8(VERSION);
    out.put_u32(answers.len() as u32);
    let mut one = Vec::new();
    for answer in answers {
        match answer {
            Answer::Outcome(outcome) => {
                one.clear();
                encode_outcome(outcome, &mut one);
                out.put_u8(OUTCOME);
                out.put_u32(one.len() as u32);
                out.put_slice(&one);
            }
            Answer::NotProposed { leader: None } => out.put_u8(NOT_PROPOSED),
            Answer::NotProposed { leader: Some(leader) } => {
                out.put_u8(NOT_PROPOSED_BUT);
                out.put_u64(*leader);
            }
            Answer::Overloaded => out.put_u8(OVERLOADED),
            Answer::Unknown => out.put_u8(UNKNOWN),
        }
    }
    out.freeze()
}

/// Reads the answers to `expected` commands.
pub(super) fn decode_reply(mut from: Bytes, expected: usize) -> Result<Vec<Answer>, Malformed> {
    if open(&mut from, ANSWER_LEN_MIN)? != expected {
        return Err(Malformed);
    }
    let mut answers = Vec::with_capacity(expected);
    for _ in 0..expected {
        answers.push(match from.try_get_u8().map_err(|_| Malformed)? {
            OUTCOME => Answer::Outcome(decode_outcome(&sized(&mut from)?).map_err(|_| Malformed)?),
            NOT_PROPOSED => Answer::NotProposed { leader: None },
            NOT_PROPOSED_BUT => Answer::NotProposed { leader: Some(from.try_get_u64().map_err(|_| Malformed)?) },
            OVERLOADED => Answer::Overloaded,
            UNKNOWN => Answer::Unknown,
            _ => return Err(Malformed),
        });
    }
    if from.is_empty() { Ok(answers) } else { Err(Malformed) }
}

/// Reads version and count; a count that the bytes cannot hold allocates nothing.
fn open(from: &mut Bytes, len_min: usize) -> Result<usize, Malformed> {
    if from.try_get_u8() != Ok(VERSION) {
        return Err(Malformed);
    }
    let count = from.try_get_u32().map_err(|_| Malformed)? as usize;
    if count > BATCH_MAX || from.len() < count * len_min { Err(Malformed) } else { Ok(count) }
}

fn sized(from: &mut Bytes) -> Result<Bytes, Malformed> {
    let len = from.try_get_u32().map_err(|_| Malformed)? as usize;
    if from.len() < len { Err(Malformed) } else { Ok(from.split_to(len)) }
}

#[cfg(test)]
mod tests {
    use hapax_machine::ids::Revision;
    use hapax_machine::outcome::Answer as MachineAnswer;
    use hapax_machine::{Command, Outcome};

    use super::*;
    use crate::fakes::{envelope, room};
    use crate::propose::ticket::{Origin, Ticket, pair};

    fn item(envelope: Bytes, deadline: Instant) -> (Item, Ticket) {
        pair(envelope, Origin::Local, deadline, room())
    }

    fn answers() -> Vec<Answer> {
        let revision = Revision { index: 9, ..Revision::default() };
        vec![
            Answer::Outcome(Outcome { revision, answer: MachineAnswer::Ticked }),
            Answer::NotProposed { leader: None },
            Answer::NotProposed { leader: Some(3) },
            Answer::Overloaded,
            Answer::Unknown,
        ]
    }

    #[tokio::test]
    async fn requests_read_back_with_the_bytes_untouched() {
        let now = Instant::now();
        let (first, _ticket) = item(envelope(&Command::Tick), now + Duration::from_millis(1_500));
        let (late, _ticket) = item(envelope(&Command::Tick), now);
        let read = decode_request(encode_request(&[first, late], now)).unwrap();
        let expected = |ms| Forwarded { remaining: Duration::from_millis(ms), envelope: envelope(&Command::Tick) };
        assert_eq!(read, [expected(1_500), expected(0)]);
    }

    #[test]
    fn the_layouts_are_pinned() {
        let reply = encode_reply(&answers()[1..]);
        assert_eq!(reply[..], [1, 0, 0, 0, 4, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 3, 4]);
        let outcome = encode_reply(&answers()[..1]);
        assert_eq!(outcome[..6], [1, 0, 0, 0, 1, 0]);
        assert_eq!(decode_reply(encode_reply(&answers()), 5), Ok(answers()));
    }

    #[test]
    fn no_damage_panics_and_another_count_is_refused() {
        let reply = encode_reply(&answers());
        for len in 0..reply.len() {
            assert_eq!(decode_reply(reply.slice(..len), 5), Err(Malformed), "cut at {len}");
        }
        assert_eq!(decode_reply(reply.clone(), 4), Err(Malformed));
        assert_eq!(decode_reply(Bytes::new(), 0), Err(Malformed), "what an unreadable request is answered with");
        let mut longer = reply.to_vec();
        longer.push(0);
        assert_eq!(decode_reply(longer.into(), 5), Err(Malformed));
        let huge = Bytes::from_static(&[1, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decode_request(huge.clone()), Err(Malformed));
        assert_eq!(decode_reply(huge, usize::MAX), Err(Malformed));
    }

    #[tokio::test]
    async fn a_command_that_cannot_be_read_is_never_let_into_the_log() {
        let mut bytes = envelope(&Command::Tick).to_vec();
        bytes.push(0);
        let (item, _ticket) = item(bytes.into(), Instant::now());
        assert_eq!(decode_request(encode_request(&[item], Instant::now())), Err(Malformed));
    }
}
