//! The one task that turns waiting commands into log entries, or hands them to the leader.
//! Takes all that waits whenever a batch may leave: batches grow with the load, and a lone command leaves at once.
//!
//! Invariants:
//! - Stamps are made and entries handed over by this task alone, in one order, so stamps never run backwards.
//! - A batch under way is out of the batcher's hands until its fate is known; commands come back only when every hop
//!   that they took has refused them for certain.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hapax_codec::command::{BatchHead, splice_batch};
use hapax_machine::apply::RULES;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::forward::{Unforwarded, decode_reply, encode_request};
use super::ticket::{Answer, Item, Origin};
use super::{Limits, Parts};
use crate::seam::{Appended, Role};
use crate::types::NodeId;

/// The pause after a first certain refusal; it doubles up to [`PAUSE_MAX`] and ends early when the leader changes.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// While nothing can leave, commands whose callers have gone are thrown out this often.
const PURGE_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct Batcher {
    parts: Parts,
    limits: Limits,
    queue: mpsc::UnboundedReceiver<Item>,
    /// Batches report here; bounded by the number of batches under way.
    done: mpsc::UnboundedReceiver<Done>,
    report: mpsc::UnboundedSender<Done>,
    stopping: CancellationToken,
    /// Oldest first; bounded by the proposer's room.
    pending: VecDeque<Item>,
    appends: usize,
    forwards: usize,
    pause: Duration,
    not_before: Option<Instant>,
    redirect: Option<Redirect>,
    /// Before this, a further entry leaves only where none is under way.
    next_append: Instant,
}

/// A node said that another one leads. Good for one forward: what this node then hears by itself is newer.
#[derive(Debug, Clone, Copy)]
struct Redirect {
    from: NodeId,
    to: NodeId,
}

/// Where a batch goes.
#[derive(Debug, Clone, Copy)]
enum Hop {
    Append { term: u64 },
    Forward { to: NodeId },
}

impl Hop {
    /// Whether a command of this origin may go there; if not, who may take it.
    fn refuses(self, origin: Origin) -> Option<Option<NodeId>> {
        match (self, origin) {
            (_, Origin::Local) | (Self::Append { .. }, Origin::Peer) => None,
            (Self::Append { term }, Origin::Leader { term: expected }) if term == expected => None,
            (Self::Append { .. }, Origin::Leader { .. }) => Some(None),
            (Self::Forward { to }, Origin::Peer | Origin::Leader { .. }) => Some(Some(to)),
        }
    }
}

/// A batch is no longer under way.
struct Done {
    hop: Hop,
    /// The commands that were refused for certain.
    returned: Vec<Item>,
    /// Who was said to lead.
    leader: Option<NodeId>,
}

/// What to wait for.
enum Next {
    /// Commands.
    Commands,
    /// Another role than this one, or this instant.
    Chance { role: Role, until: Instant },
}

/// What came of waiting.
enum Event {
    Command(Item),
    NoMoreCommands,
    OtherRole,
    Time,
}

impl Event {
    async fn of(next: Next, queue: &mut mpsc::UnboundedReceiver<Item>, parts: &Parts) -> Self {
        match next {
            Next::Commands => queue.recv().await.map_or(Self::NoMoreCommands, Self::Command),
            // Commands stay in the queue meanwhile, and leave together.
            Next::Chance { role, until } => tokio::select! {
                () = parts.consensus.role_changed(role) => Self::OtherRole,
                () = sleep_until(until) => Self::Time,
            },
        }
    }
}

impl Batcher {
    pub(super) fn new(
        parts: Parts,
        limits: Limits,
        queue: mpsc::UnboundedReceiver<Item>,
        stopping: CancellationToken,
    ) -> Self {
        let (report, done) = mpsc::unbounded_channel();
        Self {
            parts,
            limits,
            queue,
            done,
            report,
            stopping,
            pending: VecDeque::new(),
            appends: 0,
            forwards: 0,
            pause: Duration::ZERO,
            not_before: None,
            redirect: None,
            next_append: Instant::now(),
        }
    }

    /// Runs until it is stopped or nobody can propose any more. What waits then is dropped, which tells its callers that
    /// it was not proposed.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(item) = self.queue.try_recv() {
                self.pending.push_back(item);
            }
            let next = self.dispatch().await;
            metrics::gauge!("hapax_proposals_pending").set(self.pending.len() as f64);
            if !self.wait(next).await {
                return;
            }
        }
    }

    /// Sends as many batches as may leave now.
    async fn dispatch(&mut self) -> Next {
        loop {
            while self.pending.front().is_some_and(Item::is_withdrawn) {
                self.pending.pop_front();
            }
            if self.pending.is_empty() {
                return Next::Commands;
            }
            let (role, now) = (self.parts.consensus.role(), Instant::now());
            if let Some(until) = self.not_before.filter(|until| now < *until) {
                return Next::Chance { role, until };
            }
            let blocked = Next::Chance { role, until: now + PURGE_INTERVAL };
            match role {
                Role::Leader { .. } if self.appends >= self.limits.appends => return blocked,
                // Commands gather meanwhile; the end of an entry that is under way ends the wait.
                Role::Leader { .. } if self.appends > 0 && now < self.next_append => {
                    return Next::Chance { role, until: self.next_append };
                }
                Role::Leader { term } => self.append(term).await,
                Role::Follower { leader: Some(_) } if self.forwards >= self.limits.forwards => return blocked,
                Role::Follower { leader: Some(leader) } => self.forward(leader),
                Role::Follower { leader: None } => {
                    self.refuse_what_cannot_wait();
                    return blocked;
                }
            }
        }
    }

    /// Waits for what `next` names, for a batch to end, or for the stop: false.
    async fn wait(&mut self, next: Next) -> bool {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => return false,
            Some(done) = self.done.recv() => self.ended(done),
            event = Event::of(next, &mut self.queue, &self.parts) => match event {
                Event::Command(item) => self.pending.push_back(item),
                Event::NoMoreCommands => return false,
                Event::OtherRole => (self.not_before, self.pause) = (None, Duration::ZERO),
                Event::Time => self.pending.retain(|item| !item.is_withdrawn()),
            },
        }
        true
    }

    /// Takes the next commands for a hop. They count as handed over from here on.
    fn collect(&mut self, hop: Hop, commands_max: usize) -> Vec<Item> {
        let now = Instant::now();
        let (mut items, mut len) = (Vec::new(), 0);
        while items.len() < commands_max
            && let Some(item) = self
                .pending
                .pop_front_if(|next| items.is_empty() || len + next.envelope.len() <= self.limits.batch_len)
        {
            if let Some(leader) = hop.refuses(item.origin) {
                item.answer(Answer::NotProposed { leader });
            } else if item.deadline <= now {
                item.answer(Answer::NotProposed { leader: None });
            } else if item.hand_over() {
                len += item.envelope.len();
                items.push(item);
            }
        }
        items
    }

    /// Commands of other nodes and of a leadership that is over do not wait for the next leader.
    fn refuse_what_cannot_wait(&mut self) {
        for item in std::mem::take(&mut self.pending) {
            if item.origin == Origin::Local {
                self.pending.push_back(item);
            } else {
                item.answer(Answer::NotProposed { leader: None });
            }
        }
    }

    /// Stamps a batch and hands it to the log.
    async fn append(&mut self, term: u64) {
        let hop = Hop::Append { term };
        let items = self.collect(hop, self.limits.batch_commands);
        let Some(until) = items.iter().map(|item| item.deadline).max() else {
            return;
        };
        metrics::histogram!("hapax_proposal_batch_commands").record(items.len() as f64);
        let head = BatchHead { rules: RULES, stamp: self.parts.leadership.stamp(term), term };
        let envelopes: Vec<&Bytes> = items.iter().map(|item| &item.envelope).collect();
        let entry = splice_batch(&head, &envelopes);
        let fate = self.parts.consensus.append(term, entry).await;
        self.appends += 1;
        self.next_append = Instant::now() + self.limits.append_spacing;
        let report = self.report.clone();
        tokio::spawn(async move {
            // At the last deadline everybody has been answered, and the place is given to the next batch.
            let fate = timeout_at(until, fate).await.unwrap_or(Appended::Unknown);
            let (returned, leader) = match fate {
                Appended::NotAppended { leader } => (items, leader),
                Appended::Applied(outcomes) if outcomes.len() == items.len() => {
                    for (item, outcome) in items.into_iter().zip(outcomes) {
                        item.answer(Answer::Outcome(outcome));
                    }
                    (Vec::new(), None)
                }
                Appended::Applied(_) | Appended::Unknown => (unknown(items), None),
            };
            // The batcher may have been stopped.
            let _ = report.send(Done { hop, returned, leader });
        });
    }

    /// Hands a batch to the node that leads, or is said to.
    fn forward(&mut self, leader: NodeId) {
        let to = match self.redirect.take() {
            Some(Redirect { from, to }) if from == leader => to,
            _ => leader,
        };
        let hop = Hop::Forward { to };
        let items = self.collect(hop, self.limits.forward_commands);
        let Some(until) = items.iter().map(|item| item.deadline).max() else {
            return;
        };
        let request = encode_request(&items, Instant::now());
        let reply = self.parts.forward.forward(to, request, until);
        self.forwards += 1;
        let report = self.report.clone();
        tokio::spawn(async move {
            let (returned, leader) = match timeout_at(until, reply).await {
                Ok(Err(Unforwarded::NotWritten)) => (items, None),
                Ok(Ok(reply)) => match decode_reply(reply, items.len()) {
                    Ok(answers) => settle(items, answers),
                    Err(_) => (unknown(items), None),
                },
                Ok(Err(Unforwarded::Ambiguous)) | Err(_) => (unknown(items), None),
            };
            // The batcher may have been stopped.
            let _ = report.send(Done { hop, returned, leader });
        });
    }

    /// Takes back what was refused, before what came later, and lets the refuser have a pause.
    fn ended(&mut self, done: Done) {
        let Done { hop, returned, leader } = done;
        match hop {
            Hop::Append { .. } => self.appends -= 1,
            Hop::Forward { .. } => self.forwards -= 1,
        }
        if returned.is_empty() {
            (self.not_before, self.pause) = (None, Duration::ZERO);
            return;
        }
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.not_before = Some(Instant::now() + self.pause);
        if let (Hop::Forward { to: from }, Some(to)) = (hop, leader)
            && from != to
            && to != self.parts.consensus.id()
        {
            self.redirect = Some(Redirect { from, to });
        }
        for item in returned.into_iter().rev() {
            if item.origin != Origin::Local {
                item.answer(Answer::NotProposed { leader });
            } else if item.take_back() {
                self.pending.push_front(item);
            }
        }
    }
}

/// Hands the leader's answers to their callers; gives back what it refused for certain, and whom it named.
fn settle(items: Vec<Item>, answers: Vec<Answer>) -> (Vec<Item>, Option<NodeId>) {
    let (mut returned, mut named) = (Vec::new(), None);
    for (item, answer) in items.into_iter().zip(answers) {
        match answer {
            Answer::NotProposed { leader } => {
                named = leader.or(named);
                returned.push(item);
            }
            answer => item.answer(answer),
        }
    }
    (returned, named)
}

fn unknown(items: Vec<Item>) -> Vec<Item> {
    for item in items {
        item.answer(Answer::Unknown);
    }
    Vec::new()
}
