//! Watching: a stream of events that goes on where it broke off, at any node.
//!
//! The events after a position come once each, in order, over any number of connections; whoever keeps the position
//! of the last one that it dealt with goes on there after a restart too. What can no longer be streamed from there is
//! `watch.compacted`, which ends the watch and is never passed over in silence.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hapax_api::watch::{Event, EventReader, OperationEvent, Position, WatchQuery};
use hapax_api::{Code, Problem, endpoints};
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Client, get, with_query};
use crate::outcome::{Failure, Outcome};
use crate::transport::{Attempt, Round, Transport, chain, sent_again};

/// A watch. It connects when it is first asked.
pub struct Watch {
    transport: Arc<Transport>,
    /// What is watched, and from where it goes on: after the last event that arrived.
    query: WatchQuery,
    node: usize,
    round: Round,
    stream: Option<Stream>,
    /// What arrived and was not handed out yet.
    pending: VecDeque<Event>,
    /// After the last event that was handed out.
    position: Option<Position>,
    /// Why it is over.
    ended: Option<Problem>,
}

struct Stream {
    opened: Instant,
    response: reqwest::Response,
    reader: EventReader,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("query", &self.query).field("position", &self.position).finish_non_exhaustive()
    }
}

impl Client {
    /// `GET /v1/watch`, from `query.from`, or from now on.
    #[must_use]
    pub fn watch(&self, query: WatchQuery) -> Watch {
        let transport = self.transport().clone();
        let (round, position, node) = (Round::new(transport.settings()), query.from, transport.preferred());
        Watch { transport, query, node, round, stream: None, pending: VecDeque::new(), position, ended: None }
    }
}

impl Watch {
    /// The next event. Dropping the future loses nothing.
    ///
    /// [`Outcome::Refused`] ends the watch, as with `watch.compacted`: it is the answer from then on.
    /// [`Outcome::Unavailable`] does not: no node streams, and asking again tries again from the same position.
    pub async fn next(&mut self) -> Outcome<OperationEvent> {
        let mut give_up = None;
        let mut last = Failure { detail: "no node was tried".to_owned(), problem: None };
        loop {
            if let Some(event) = self.hand_out() {
                return Outcome::Done(event);
            }
            if let Some(problem) = &self.ended {
                return Outcome::Refused(problem.clone());
            }
            let step = match &mut self.stream {
                Some(stream) => {
                    let arrived = receive(stream, self.transport.settings().watch_silence).await;
                    self.accept(arrived)
                }
                None => {
                    let deadline = self.transport.settings().deadline;
                    if !self.pause(*give_up.get_or_insert_with(|| Instant::now() + deadline)).await {
                        return Outcome::Unavailable(last);
                    }
                    self.connect().await
                }
            };
            match step {
                Step::Alive => give_up = None,
                Step::NotYet => {}
                Step::Failed(failure) => {
                    tracing::debug!(%failure, "a watch goes on at another node");
                    last = failure;
                }
            }
        }
    }

    /// After the last event that was handed out: where another watch would go on. `None` until a node has named a
    /// position, where the watch began with none.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    fn hand_out(&mut self) -> Option<OperationEvent> {
        while let Some(event) = self.pending.pop_front() {
            match event {
                Event::Operation(event) => {
                    self.position = Some(event.position);
                    return Some(event);
                }
                Event::Position(event) => self.position = Some(event.position),
                Event::Problem(_) => {}
            }
        }
        None
    }

    /// Waits before the next attempt where a round of nodes is over; `false` where that would be too late.
    async fn pause(&mut self, give_up: Instant) -> bool {
        let pause = self.round.pause_before_next(self.transport.settings(), self.transport.nodes());
        let until = Instant::now() + pause.unwrap_or_default();
        if until >= give_up {
            return false;
        }
        sleep(until.saturating_duration_since(Instant::now())).await;
        true
    }

    async fn connect(&mut self) -> Step {
        let call = get(with_query(endpoints::WATCH, &self.query.to_text()));
        match self.transport.open(&call, self.node).await {
            Attempt::Answered(response) => {
                self.stream = Some(Stream { opened: Instant::now(), response, reader: EventReader::default() });
                Step::NotYet
            }
            Attempt::Problem { problem, retry_after } => self.refused(problem, retry_after),
            Attempt::NotSent(detail) | Attempt::Lost(detail) => Step::Failed(self.failed(detail)),
        }
    }

    /// Takes what arrived. Only whole events move the watch on, so that a broken connection loses and repeats nothing.
    fn accept(&mut self, arrived: Result<Vec<Event>, String>) -> Step {
        let events = match arrived {
            Ok(events) if events.is_empty() => return Step::NotYet,
            Ok(events) => events,
            Err(detail) => return Step::Failed(self.failed(detail)),
        };
        for event in events {
            match event {
                Event::Operation(OperationEvent { position, .. }) => self.query.from = Some(position),
                Event::Position(event) => self.query.from = Some(event.position),
                Event::Problem(problem) => return self.refused(*problem, None),
            }
            self.pending.push_back(event);
        }
        Step::Alive
    }

    /// Lets go of the stream. Only one that lived makes the pauses short again: nodes that accept a watch and end it
    /// at once are asked ever more slowly.
    fn close(&mut self) {
        let lived = self.stream.take().map(|stream| stream.opened.elapsed());
        if lived.is_some_and(|lived| lived >= self.transport.settings().longest_pause) {
            self.round = Round::new(self.transport.settings());
        }
    }

    fn refused(&mut self, problem: Problem, retry_after: Option<Duration>) -> Step {
        self.close();
        if !sent_again(&problem) {
            self.ended = Some(problem);
            return Step::Alive;
        }
        self.round.failed(retry_after);
        // A limit on this caller is not escaped through another node.
        if problem.code == Code::RateLimited {
            self.round.finish(self.transport.nodes());
        } else {
            self.node = (self.node + 1) % self.transport.nodes();
        }
        Step::Failed(Failure { detail: problem.title.clone(), problem: Some(problem) })
    }

    fn failed(&mut self, detail: String) -> Failure {
        self.close();
        self.round.failed(None);
        self.node = (self.node + 1) % self.transport.nodes();
        Failure { detail, problem: None }
    }
}

/// What one step of a watch came to.
enum Step {
    /// Events arrived, or the watch is over.
    Alive,
    /// No whole event arrived yet.
    NotYet,
    /// The node does not stream, or no longer.
    Failed(Failure),
}

async fn receive(stream: &mut Stream, silence: Duration) -> Result<Vec<Event>, String> {
    match timeout(silence, stream.response.chunk()).await {
        Ok(Ok(Some(piece))) => stream.reader.push(&piece).map_err(|broken| broken.to_string()),
        Ok(Ok(None)) => Err("the stream ended".to_owned()),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("the stream said nothing for {silence:?}")),
    }
}
