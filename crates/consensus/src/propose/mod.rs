//! Proposing: a command in, its outcome out, through the leader wherever it is.
//! Owns the word on a command that has no outcome: certainly not applied (503), or unknown (504). **[safety]**
//!
//! ```text
//! propose ── ticket ──┐                       ┌─ leader: stamp, splice, one log entry ── outcomes ── tickets
//!                     ├─ queue ─ batcher ─────┤
//! forward from peer ──┘                       └─ follower: envelopes to the leader ── its answers ── tickets
//! ```
//!
//! A command is *handed over* when the batcher takes it out of the queue for a log entry or a forward. Until then its
//! caller can withdraw it, in one atomic step, and then it is never proposed.
//!
//! | # | what happened to the command | caller is told |
//! |---|---|---|
//! | 1 | applied | its outcome |
//! | 2 | applied, too late to act | `OutcomeUnknown`: another copy may have won |
//! | 3 | no room in the queue, here or at the leader | `Overloaded`; never in a log |
//! | 4 | the node is draining, has not caught up since its start, or the replicas' states differ | `Unavailable` |
//! | 5 | the deadline came while it waited: no leader, no free place, the leader's own queue | `Unavailable` |
//! | 6 | this node led, and refused to append (`ForwardToLeader`: another leads, hand-over, lease over) | tried again; at the deadline `Unavailable` |
//! | 7 | no byte of the forward was written | as 6 |
//! | 8 | the forward's receiver says that it does not lead or refused to append | as 6 |
//! | 9 | discarded from this log (`LogEntryDiscarded`) | `OutcomeUnknown` |
//! | 10 | appended here, fate not known at the deadline (a leader that was cut off) | `OutcomeUnknown` |
//! | 11 | consensus stopped, or answered with another number of outcomes | `OutcomeUnknown` |
//! | 12 | the forward was written, then: no answer, a broken connection, an unreadable answer | `OutcomeUnknown` |
//! | 13 | the forward's receiver does not know | `OutcomeUnknown` |
//! | 14 | the batcher ended: while it waited / after it was handed over | `Unavailable` / `OutcomeUnknown` |
//!
//! A command that was refused for certain is tried again, here or at another leader, while its deadline lasts: at every
//! hop it was refused before it was appended, so it is in no log. A forward takes one hop: its receiver appends or
//! refuses. Nothing is ever tried again after an ambiguous hop; the caller does that, with the same claim id.

mod batcher;
mod forward;
#[cfg(test)]
mod tests;
mod ticket;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use hapax_codec::command::encode_envelope;
use hapax_machine::outcome::Answer as MachineAnswer;
use hapax_machine::{Command, Envelope, Outcome};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::batcher::Batcher;
pub use self::forward::{Forward, Unforwarded};
use self::ticket::{Answer, Item, Origin, Ticket, pair};
use crate::leadership::Leadership;
use crate::seam::{Consensus, Role};
use crate::tracker::Tracker;

/// How long the leader's own commands may take.
const CHORE_TIME: Duration = Duration::from_secs(10);

/// Limits of the proposer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Commands of callers and peers that wait or are under way.
    pub commands: usize,
    /// Their bytes, in all.
    pub len: usize,
    /// Commands of the leader's chores, which callers cannot crowd out.
    pub chores: usize,
    /// Commands in one log entry.
    pub batch_commands: usize,
    /// Bytes of commands in one log entry or forward; a longer command goes alone.
    pub batch_len: usize,
    /// Entries under way at once.
    pub appends: usize,
    /// While an entry is under way, the next one leaves no sooner than this after it: where commits are quick, everything that
    /// came during one makes the next entry; where they are slow, entries follow each other without waiting for answers.
    pub append_spacing: Duration,
    /// Commands in one forward. Each answer may carry a stored result, and all of them must fit into one frame.
    pub forward_commands: usize,
    /// Forwards under way at once.
    pub forwards: usize,
}

impl Limits {
    /// Few entries under way make large ones, and each costs every node messages, syncs and wake-ups. With these, a
    /// command waits for a quick commit before its own, or for 5 ms, or for an eighth of a slow one.
    pub const DEFAULT: Self = Self {
        commands: 16_384,
        len: 64 << 20,
        chores: 1_024,
        batch_commands: 1_024,
        batch_len: 1 << 20,
        appends: 8,
        append_spacing: Duration::from_millis(5),
        forward_commands: 512,
        forwards: 8,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Why a command has no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// No leader took it in time. It was certainly not applied and never will be.
    #[error("no leader took the command in time; it was not applied")]
    Unavailable,
    /// It may have been applied, or may still be. Retry with the same claim id.
    #[error("the outcome of the command is not known")]
    OutcomeUnknown,
    /// Too many commands are under way. It was certainly not applied and never will be.
    #[error("too many commands are under way")]
    Overloaded,
}

/// What proposing needs.
#[derive(Clone)]
pub struct Parts {
    /// The log.
    pub consensus: Arc<dyn Consensus>,
    /// The way to another leader.
    pub forward: Arc<dyn Forward>,
    /// The leader's clock.
    pub leadership: Arc<Leadership>,
    /// What is applied here.
    pub tracker: Arc<Tracker>,
}

/// Takes commands. Clones share one queue; it ends with the last of them.
#[derive(Clone)]
pub struct Proposer(Arc<Shared>);

struct Shared {
    consensus: Arc<dyn Consensus>,
    tracker: Arc<Tracker>,
    queue: mpsc::UnboundedSender<Item>,
    commands: Arc<Semaphore>,
    len: Arc<Semaphore>,
    chores: Arc<Semaphore>,
    chores_len: Arc<Semaphore>,
    closed: AtomicBool,
    suspended: AtomicBool,
}

impl Proposer {
    /// Starts the batcher; it runs until `stopping`.
    pub fn start(parts: Parts, limits: Limits, stopping: CancellationToken) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        let shared = Shared {
            consensus: Arc::clone(&parts.consensus),
            tracker: Arc::clone(&parts.tracker),
            queue,
            commands: Arc::new(Semaphore::new(limits.commands)),
            len: Arc::new(Semaphore::new(limits.len)),
            chores: Arc::new(Semaphore::new(limits.chores)),
            chores_len: Arc::new(Semaphore::new(limits.len)),
            closed: AtomicBool::new(false),
            suspended: AtomicBool::new(false),
        };
        tokio::spawn(Batcher::new(parts, limits, waiting, stopping).run());
        Self(Arc::new(shared))
    }

    /// Proposes a command and waits for its outcome until the deadline.
    ///
    /// # Errors
    /// See [`ProposeError`] and the table above.
    pub async fn propose(&self, command: Command, deadline: Instant) -> Result<Outcome, ProposeError> {
        let result = self.propose_quietly(command, deadline).await;
        if result.is_err() {
            metrics::counter!("hapax_proposals_failed_total").increment(1);
        }
        result
    }

    /// The same, for what nobody waits for: where it fails, no caller has failed.
    pub(crate) async fn propose_quietly(&self, command: Command, deadline: Instant) -> Result<Outcome, ProposeError> {
        // Before it has caught up, this node knows nothing of the lease time by which the command must have acted.
        if self.is_closed() || self.is_suspended() || !self.0.tracker.recovered(deadline).await {
            return Err(ProposeError::Unavailable);
        }
        let envelope = self.envelope(command, deadline);
        let Some(ticket) = self.enqueue(envelope, Origin::Local, deadline) else {
            return Err(ProposeError::Overloaded);
        };
        outcome(ticket.answer().await)
    }

    /// Proposes one of the leader's own commands, in the leadership of `term` or not at all.
    pub(crate) async fn propose_as_leader(&self, term: u64, command: Command) -> Result<Outcome, ProposeError> {
        if self.is_suspended() {
            return Err(ProposeError::Unavailable);
        }
        let deadline = Instant::now() + CHORE_TIME;
        let envelope = self.envelope(command, deadline);
        let Some(ticket) = self.enqueue(envelope, Origin::Leader { term }, deadline) else {
            return Err(ProposeError::Overloaded);
        };
        outcome(ticket.answer().await)
    }

    /// Takes a batch that a follower forwarded, and answers each of its commands. Dropping the future withdraws those
    /// that were not handed over yet.
    pub async fn serve_forward(&self, request: Bytes) -> Bytes {
        let Ok(commands) = forward::decode_request(request) else {
            tracing::warn!("a forwarded batch cannot be read");
            return Bytes::new();
        };
        if let Some(refusal) = self.refuses_forwards() {
            return forward::encode_reply(&vec![refusal; commands.len()]);
        }
        let now = Instant::now();
        let answers = commands.into_iter().map(|command| {
            let ticket = self.enqueue(command.envelope, Origin::Peer, now + command.remaining);
            async move {
                match ticket {
                    Some(ticket) => ticket.answer().await,
                    None => Answer::Overloaded,
                }
            }
        });
        forward::encode_reply(&join_all(answers).await)
    }

    /// Refuses new commands of callers and peers from now on. What waits goes on.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
    }

    /// Refuses everything, the leader's chores too, for as long as it is said: what is written on states that differ makes them
    /// differ more. What waits goes on.
    pub(crate) fn suspend(&self, suspended: bool) {
        self.0.suspended.store(suspended, Ordering::SeqCst);
    }

    fn is_suspended(&self) -> bool {
        self.0.suspended.load(Ordering::SeqCst)
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::SeqCst)
    }

    fn refuses_forwards(&self) -> Option<Answer> {
        match self.0.consensus.role() {
            Role::Leader { .. } if self.is_closed() || self.is_suspended() => {
                Some(Answer::NotProposed { leader: None })
            }
            Role::Leader { .. } => None,
            Role::Follower { leader } => Some(Answer::NotProposed { leader }),
        }
    }

    /// Encodes a command, once and for all hops. `not_after` is the lease time at the deadline, so that no copy of the
    /// command, however late, acts after its caller has given up.
    fn envelope(&self, command: Command, deadline: Instant) -> Bytes {
        let not_after = self.0.tracker.lease_time_by(deadline);
        let mut out = Vec::with_capacity(256);
        encode_envelope(&Envelope { not_after, command }, &mut out);
        out.into()
    }

    /// `None` where there is no room.
    fn enqueue(&self, envelope: Bytes, origin: Origin, deadline: Instant) -> Option<Ticket> {
        let Shared { commands, len, chores, chores_len, queue, .. } = &*self.0;
        let (count, room) =
            if matches!(origin, Origin::Leader { .. }) { (chores, chores_len) } else { (commands, len) };
        let count = Arc::clone(count).try_acquire_owned().ok()?;
        let room = Arc::clone(room).try_acquire_many_owned(u32::try_from(envelope.len()).ok()?).ok()?;
        let (item, ticket) = pair(envelope, origin, deadline, [count, room]);
        // A batcher that has ended drops the item, and the ticket says so.
        let _ = queue.send(item);
        Some(ticket)
    }
}

fn outcome(answer: Answer) -> Result<Outcome, ProposeError> {
    match answer {
        Answer::Outcome(Outcome { answer: MachineAnswer::TooLate, .. }) | Answer::Unknown => {
            Err(ProposeError::OutcomeUnknown)
        }
        Answer::Outcome(outcome) => Ok(outcome),
        Answer::NotProposed { .. } => Err(ProposeError::Unavailable),
        Answer::Overloaded => Err(ProposeError::Overloaded),
    }
}
