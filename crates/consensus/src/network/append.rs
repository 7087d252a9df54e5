//! Pipelined replication: many append requests under way to one follower, answered in order.
//! No task of its own: requests are taken, sent and answered while openraft polls the answers, so
//! that dropping the answers stops everything.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{Stream, StreamExt, unfold};
use hapax_codec::peer::DecodeError;
use hapax_codec::peer::raft::{AppendReply, AppendRequest, LogId};
use openraft::base::BoxStream;
use openraft::errors::{NetworkError, RPCError, Timeout};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use openraft::{OptionalSend, RPCTypes};
use tokio::time::{Instant, sleep_until};

use super::convert;
use crate::tail::{COMMIT_DELAY, Listener};
use crate::transport::append::{AppendConn, Session};
use crate::types::{NodeId, TypeConfig};

/// One answer, or why there will be none.
pub(super) type Item = Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>;

/// What bounds a pipeline.
pub(super) struct Limits {
    /// Requests under way.
    pub(super) window: usize,
    /// Bytes of entries in one request.
    pub(super) frame_len: usize,
    /// The longest wait for the next answer while requests are under way.
    pub(super) patience: Duration,
    /// This node and the follower, for messages.
    pub(super) from: NodeId,
    pub(super) to: NodeId,
}

struct Pipeline<S> {
    session: Session,
    input: S,
    tail: Listener,
    limits: Limits,
    /// The last entry that was sent, and until when a request without entries can wait for some.
    sent: u64,
    held_until: Instant,
    /// Parts of a request that was too long for one frame, and wait for room in the window.
    unsent: VecDeque<AppendRequest>,
    /// What is under way, oldest first: the bounds that its answer must lie in.
    in_flight: VecDeque<(Option<LogId>, Option<LogId>)>,
    /// When the oldest request under way has waited long enough.
    give_up_at: Instant,
    input_ended: bool,
}

/// Sends what `input` yields and gives the answers, in order. The stream ends after the first
/// answer that is a refusal, after the first error, or when all of a finished input is answered.
pub(super) fn pipeline<'s, S>(conn: &Arc<AppendConn>, input: S, tail: Listener, limits: Limits) -> BoxStream<'s, Item>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
{
    let pipeline = Pipeline {
        session: conn.open(),
        input,
        tail,
        limits,
        sent: 0,
        held_until: Instant::now(),
        unsent: VecDeque::new(),
        in_flight: VecDeque::new(),
        give_up_at: Instant::now(),
        input_ended: false,
    };
    Box::pin(unfold(Some(pipeline), |pipeline| async move {
        let mut pipeline = pipeline?;
        let item = pipeline.next().await?;
        let goes_on = matches!(item, Ok(Ok(_)));
        Some((item, goes_on.then_some(pipeline)))
    }))
}

/// What a turn of the pipeline brought.
enum Event {
    Answer(Option<AppendReply>),
    Request(Option<AppendEntriesRequest<TypeConfig>>),
    Silence,
}

/// The next request, once it is worth one: with entries, or when the news of a commit has waited long enough for some.
async fn next_request<S>(
    input: &mut S,
    tail: &mut Listener,
    sent: u64,
    held_until: Instant,
) -> Option<AppendEntriesRequest<TypeConfig>>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
{
    tail.worth_sending(sent, held_until).await;
    input.next().await
}

impl<S> Pipeline<S>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
{
    async fn next(&mut self) -> Option<Item> {
        loop {
            if let Err(error) = self.send_unsent() {
                return Some(Err(error));
            }
            let room = self.in_flight.len() < self.limits.window;
            if self.input_ended && self.in_flight.is_empty() && self.unsent.is_empty() {
                return None;
            }
            let event = tokio::select! {
                // Answers first: they make room and let the leader commit.
                biased;
                answer = self.session.recv() => Event::Answer(answer),
                request = next_request(&mut self.input, &mut self.tail, self.sent, self.held_until), if room && !self.input_ended && self.unsent.is_empty() => {
                    Event::Request(request)
                }
                () = sleep_until(self.give_up_at), if !self.in_flight.is_empty() => Event::Silence,
            };
            match event {
                Event::Request(None) => self.input_ended = true,
                Event::Request(Some(request)) => {
                    self.held_until = Instant::now() + COMMIT_DELAY;
                    self.unsent.extend(convert::append_out(request).split(self.limits.frame_len));
                }
                Event::Answer(answer) => return Some(self.answered(answer)),
                Event::Silence => return Some(Err(self.silence())),
            }
        }
    }

    fn send_unsent(&mut self) -> Result<(), RPCError<TypeConfig>> {
        while self.in_flight.len() < self.limits.window {
            let Some(part) = self.unsent.pop_front() else { return Ok(()) };
            if self.in_flight.is_empty() {
                self.give_up_at = Instant::now() + self.limits.patience;
            }
            self.session.send(&part).map_err(|error| NetworkError::new(&error))?;
            self.sent = part.last_log_id().map_or(0, |id| id.index);
            self.in_flight.push_back((part.prev_log_id, part.last_log_id()));
        }
        Ok(())
    }

    /// The answer must concern the oldest request under way. An acknowledgement outside of it would
    /// make openraft believe in entries that the follower was never sent.
    fn answered(&mut self, answer: Option<AppendReply>) -> Item {
        let Some(reply) = answer else {
            return Err(NetworkError::from_string(self.session.why_closed()).into());
        };
        let sensible = match (self.in_flight.pop_front(), reply) {
            (None, _) => false,
            (Some((prev, last)), AppendReply::Accepted(id)) => prev <= id && id <= last,
            (Some((prev, _)), AppendReply::Conflict(id)) => Some(id) == prev,
            (Some(_), AppendReply::HigherVote(_) | AppendReply::Stopped) => true,
        };
        if !sensible {
            let why = DecodeError::Invalid("the answer to an append");
            self.session.reject(why);
            return Err(NetworkError::new(&why).into());
        }
        self.give_up_at = Instant::now() + self.limits.patience;
        convert::append_reply_in(reply)
            .ok_or_else(|| NetworkError::from_string("the follower's consensus has stopped").into())
    }

    fn silence(&self) -> RPCError<TypeConfig> {
        let Limits { from, to, patience, .. } = self.limits;
        Timeout { action: RPCTypes::AppendEntries, id: from, target: to, timeout: patience }.into()
    }
}
