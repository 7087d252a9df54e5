//! A reader of `GET /v1/watch`: it takes one event after the other, and nothing is read ahead of it.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hapax_api::watch::{Event, EventReader, OperationEvent, WatchQuery};
use reqwest::Response;

use crate::caller::Caller;

/// How long a stream may live: longer than any test.
const STREAM_WITHIN: Duration = Duration::from_secs(180);
/// How long the next event may take: a quiet stream tells its position more often.
const EVENT_WITHIN: Duration = Duration::from_secs(30);

/// An open stream.
#[derive(Debug)]
pub struct Watcher {
    response: Response,
    reader: EventReader,
    ready: VecDeque<Event>,
}

impl Watcher {
    /// Opens a stream.
    ///
    /// # Errors
    /// The node does not answer, or refuses; with its answer.
    pub async fn open(node: &Caller, query: &WatchQuery) -> Result<Self> {
        let text = query.to_text();
        let path = if text.is_empty() { "/v1/watch".to_owned() } else { format!("/v1/watch?{text}") };
        let response = node.stream(&path, STREAM_WITHIN).await?;
        if response.status() != 200 {
            bail!("{}: {}", response.status(), response.text().await?);
        }
        Ok(Self { response, reader: EventReader::default(), ready: VecDeque::new() })
    }

    /// The next event; `None` where the stream has ended.
    ///
    /// # Errors
    /// The connection broke, or nothing came in time.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let piece = tokio::time::timeout(EVENT_WITHIN, self.response.chunk()).await;
            match piece.context("the stream is silent")?? {
                Some(piece) => self.ready.extend(self.reader.push(&piece)?),
                None => return Ok(None),
            }
        }
    }

    /// The next change of an operation; passes over positions.
    ///
    /// # Errors
    /// The stream breaks, ends, or says that it cannot go on.
    pub async fn operation(&mut self) -> Result<OperationEvent> {
        loop {
            match self.next().await?.context("the stream has ended")? {
                Event::Operation(event) => return Ok(event),
                Event::Position(_) => {}
                Event::Problem(problem) => bail!("the stream ends: {problem:?}"),
            }
        }
    }
}
