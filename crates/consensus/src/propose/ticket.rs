//! One command on its way: the item that the batcher holds and the ticket that its caller waits with.
//! Owns the moment at which a command can no longer be withdrawn.
//!
//! ```text
//!            hand_over (batcher)
//!  waiting ----------------------> handed over ----> answered
//!     ^                               |
//!     +----- take_back: refused ------+
//!     |       for certain
//!     +--> withdrawn (caller: deadline, or gone)
//! ```
//!
//! Invariant: each arrow is one atomic step, so a command whose caller was told that it was not proposed is never handed
//! over afterwards, and a caller whose command is handed over is never told so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use hapax_machine::Outcome;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::types::NodeId;

const WAITING: u8 = 0;
const HANDED_OVER: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Where a command came from, which decides where it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A caller of this node: appended here or forwarded.
    Local,
    /// Another node: appended here or given back. A forward is never forwarded again.
    Peer,
    /// This node's chores as leader: appended in this term or not at all.
    Leader {
        /// The term.
        term: u64,
    },
}

/// What a command's caller learns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "almost every answer is an outcome, and a box for each would cost more"
)]
pub(crate) enum Answer {
    /// It was applied.
    Outcome(Outcome),
    /// It is in no log and never will be.
    NotProposed {
        /// Who may take it.
        leader: Option<NodeId>,
    },
    /// It was not taken for lack of room; it is in no log and never will be.
    Overloaded,
    /// It may be applied, now or later.
    Unknown,
}

/// A command in the batcher's hands.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) envelope: Bytes,
    pub(crate) origin: Origin,
    pub(crate) deadline: Instant,
    stage: Arc<AtomicU8>,
    answer: oneshot::Sender<Answer>,
    /// Its share of the proposer's room, given back when it is answered or dropped.
    _room: [OwnedSemaphorePermit; 2],
}

/// The caller's end.
#[derive(Debug)]
pub(crate) struct Ticket {
    stage: Arc<AtomicU8>,
    answer: oneshot::Receiver<Answer>,
    deadline: Instant,
}

/// A command and the ticket of its caller.
pub(crate) fn pair(
    envelope: Bytes,
    origin: Origin,
    deadline: Instant,
    room: [OwnedSemaphorePermit; 2],
) -> (Item, Ticket) {
    let stage = Arc::new(AtomicU8::new(WAITING));
    let (sender, answer) = oneshot::channel();
    let item = Item { envelope, origin, deadline, stage: Arc::clone(&stage), answer: sender, _room: room };
    (item, Ticket { stage, answer, deadline })
}

impl Item {
    /// From here on the command may be proposed; false where its caller has withdrawn it.
    pub(crate) fn hand_over(&self) -> bool {
        self.moved(WAITING, HANDED_OVER)
    }

    /// The command was refused for certain and waits again; false where its caller has gone.
    pub(crate) fn take_back(&self) -> bool {
        self.moved(HANDED_OVER, WAITING)
    }

    /// Whether nobody waits for it.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.stage.load(Ordering::Acquire) == WITHDRAWN
    }

    /// Answers the caller, if it still waits.
    pub(crate) fn answer(self, answer: Answer) {
        // A caller that has gone needs no answer.
        let _ = self.answer.send(answer);
    }

    fn moved(&self, from: u8, to: u8) -> bool {
        self.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Ticket {
    /// Waits for the answer, and withdraws the command at its deadline.
    pub(crate) async fn answer(mut self) -> Answer {
        match timeout_at(self.deadline, &mut self.answer).await {
            Ok(Ok(answer)) => answer,
            // The deadline, or the batcher has ended and dropped the item.
            Err(_) | Ok(Err(_)) => self.withdraw(),
        }
    }

    fn withdraw(&mut self) -> Answer {
        match self.stage.swap(WITHDRAWN, Ordering::AcqRel) {
            WAITING => Answer::NotProposed { leader: None },
            // It may have been answered in the last moment; else it is under way.
            _ => self.answer.try_recv().unwrap_or(Answer::Unknown),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Nobody waits any more: what was not handed over need not be.
        self.stage.store(WITHDRAWN, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{room, soon};

    fn item(deadline: Instant) -> (Item, Ticket) {
        pair(Bytes::new(), Origin::Local, deadline, room())
    }

    #[tokio::test]
    async fn what_waits_at_its_deadline_is_withdrawn_for_good() {
        let (item, ticket) = item(Instant::now());
        assert_eq!(ticket.answer().await, Answer::NotProposed { leader: None });
        assert!(item.is_withdrawn());
        assert!(!item.hand_over(), "it can never be proposed afterwards");
    }

    #[tokio::test]
    async fn what_is_under_way_at_its_deadline_is_unknown() {
        let (item, ticket) = item(Instant::now());
        assert!(item.hand_over());
        assert_eq!(ticket.answer().await, Answer::Unknown);
        assert!(!item.take_back(), "and it is not tried again");
    }

    #[tokio::test]
    async fn what_was_refused_for_certain_waits_again() {
        let (item, ticket) = item(Instant::now());
        assert!(item.hand_over() && item.take_back());
        assert_eq!(ticket.answer().await, Answer::NotProposed { leader: None });
    }

    #[tokio::test]
    async fn an_item_that_is_lost_says_what_it_knows() {
        let (waiting, ticket) = item(soon());
        drop(waiting);
        assert_eq!(ticket.answer().await, Answer::NotProposed { leader: None });
        let (under_way, ticket) = item(soon());
        assert!(under_way.hand_over());
        drop(under_way);
        assert_eq!(ticket.answer().await, Answer::Unknown);
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_withdraws() {
        let (item, ticket) = item(soon());
        drop(ticket);
        assert!(!item.hand_over());
    }

    /// Both sides race for the command; whatever the order, they agree on what happened to it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn caller_and_batcher_never_disagree() {
        for round in 0..2_000u64 {
            let (item, ticket) = item(Instant::now() + std::time::Duration::from_micros(round % 50));
            let batcher = tokio::spawn(async move { item.hand_over() });
            let answer = ticket.answer().await;
            let handed_over = batcher.await.unwrap();
            let expected = if handed_over { Answer::Unknown } else { Answer::NotProposed { leader: None } };
            // A batcher that ends before the deadline with the item drops it handed over.
            assert_eq!(answer, expected, "round {round}");
        }
    }
}
