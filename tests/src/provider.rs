//! A fake payment provider with a ledger: what it recorded is what happened, whatever anybody's status says.
//!
//! Its keys mean what its own documentation would say: a key is recognised for 24 hours on its own clock, whatever the first
//! request came to; the same key with another payment is rejected before execution; a key whose first request is still at work is
//! told so. It can be looked up by the caller's own reference without changing anything, unless its status service is down, and it
//! calls back: at least once, in no order, and late. (seeds 000 and 001)

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hapax_client::provider::{Says, Send};
use tokio::sync::oneshot;

/// For how long a key is recognised, from its first request on.
const KEYS_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// What a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The caller's own reference: the operation.
    pub reference: String,
    /// How much, as a decimal.
    pub amount: String,
}

/// A request that arrived, whatever came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The idempotency key that it carried.
    pub key: String,
    /// What it asked for.
    pub payment: Payment,
}

/// A refund that was made: money moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refund {
    /// The provider's own id.
    pub id: String,
    /// The key of the request that made it.
    pub key: String,
    /// What was asked for.
    pub payment: Payment,
}

/// What goes wrong with one request.
#[derive(Debug)]
enum Fault {
    /// The refund is made, and its answer never arrives.
    LoseAnswer,
    /// The refund is made, and its answer waits.
    Hold { arrived: oneshot::Sender<()>, released: oneshot::Receiver<()> },
    /// Rejected before execution, as the documentation says of this answer.
    Reject,
}

/// The answer to one send: what the client library classifies, and the provider's id where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What the sender saw.
    pub send: Send,
    /// The refund's id.
    pub id: Option<String>,
}

impl Answer {
    fn of(status: u16, says: Says, id: Option<String>) -> Self {
        Self { send: Send::Answered { status, says }, id }
    }
}

/// What became of the first request with a key.
#[derive(Debug, Clone)]
struct Saved {
    payment: Payment,
    /// When the first request came, on the provider's clock.
    at: Duration,
    /// Absent while the request is at work.
    answer: Option<Answer>,
}

/// The status service does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Down;

#[derive(Debug, Default)]
struct Ledger {
    requests: Vec<Request>,
    refunds: Vec<Refund>,
    keys: HashMap<String, Saved>,
    faults: VecDeque<Fault>,
    /// Since the provider began.
    now: Duration,
    status_down: bool,
    /// Refunds of which nobody was called back yet, oldest first.
    callbacks: Vec<Refund>,
}

/// The provider. Clones share their ledger.
#[derive(Debug, Clone, Default)]
pub struct Provider(Arc<Mutex<Ledger>>);

/// The hold on an answer; dropping it lets the answer go.
#[derive(Debug)]
pub struct Hold {
    arrived: Option<oneshot::Receiver<()>>,
    release: oneshot::Sender<()>,
}

impl Hold {
    /// Waits until the request has arrived and its refund is made.
    ///
    /// # Panics
    /// The request was never made.
    pub async fn arrived(&mut self) {
        if let Some(arrived) = self.arrived.take() {
            arrived.await.expect("a request arrives");
        }
    }

    /// Lets the answer go.
    pub fn release(self) {
        // The sender may have given up waiting: that is what some tests are about.
        let _ = self.release.send(());
    }
}

impl Provider {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().expect("no test panics while it holds this")
    }

    /// The next request's refund is made, and its answer is lost.
    pub fn lose_next_answer(&self) {
        self.ledger().faults.push_back(Fault::LoseAnswer);
    }

    /// The next request's refund is made, and its answer waits.
    pub fn hold_next_answer(&self) -> Hold {
        let (arrived, has_arrived) = oneshot::channel();
        let (release, released) = oneshot::channel();
        self.ledger().faults.push_back(Fault::Hold { arrived, released });
        Hold { arrived: Some(has_arrived), release }
    }

    /// The next request is rejected before execution.
    pub fn reject_next(&self) {
        self.ledger().faults.push_back(Fault::Reject);
    }

    /// Time passes here: keys that are old enough by then are pruned, as the documentation permits.
    pub fn pass(&self, time: Duration) {
        let mut ledger = self.ledger();
        ledger.now += time;
        let now = ledger.now;
        ledger.keys.retain(|_, saved| now - saved.at < KEYS_KEPT);
    }

    /// From now on the status service answers nothing, or answers again. Refunds are made all the same.
    pub fn status_is_down(&self, down: bool) {
        self.ledger().status_down = down;
    }

    /// The callbacks that are due: each of them twice, the newest first.
    pub fn callbacks(&self) -> Vec<Refund> {
        let due = std::mem::take(&mut self.ledger().callbacks);
        due.into_iter().rev().flat_map(|refund| [refund.clone(), refund]).collect()
    }

    /// Makes a refund, once for each key that is remembered.
    pub async fn refund(&self, key: &str, payment: &Payment) -> Answer {
        let (answer, fault) = self.begin(key, payment);
        match fault {
            Some(Fault::LoseAnswer) => {
                self.save(key, &answer);
                Answer { send: Send::Lost, id: None }
            }
            Some(Fault::Hold { arrived, released }) => {
                let _ = arrived.send(());
                let _ = released.await;
                self.save(key, &answer);
                answer
            }
            Some(Fault::Reject) | None => {
                self.save(key, &answer);
                answer
            }
        }
    }

    /// Records the request, and makes its refund where the key is new.
    fn begin(&self, key: &str, payment: &Payment) -> (Answer, Option<Fault>) {
        let mut ledger = self.ledger();
        ledger.requests.push(Request { key: key.to_owned(), payment: payment.clone() });
        if let Some(saved) = ledger.keys.get(key) {
            let answer = match &saved.answer {
                _ if saved.payment != *payment => Answer::of(400, Says::RejectedBeforeExecution, None),
                Some(answer) => answer.clone(),
                None => Answer::of(409, Says::StillProcessing, None),
            };
            return (answer, None);
        }
        let fault = ledger.faults.pop_front();
        let saved = Saved { payment: payment.clone(), at: ledger.now, answer: None };
        ledger.keys.insert(key.to_owned(), saved);
        if matches!(fault, Some(Fault::Reject)) {
            return (Answer::of(402, Says::RejectedBeforeExecution, None), fault);
        }
        let id = format!("re_{}", ledger.refunds.len() + 1);
        let refund = Refund { id: id.clone(), key: key.to_owned(), payment: payment.clone() };
        ledger.callbacks.push(refund.clone());
        ledger.refunds.push(refund);
        (Answer::of(201, Says::Reference, Some(id)), fault)
    }

    fn save(&self, key: &str, answer: &Answer) {
        if let Some(saved) = self.ledger().keys.get_mut(key) {
            saved.answer.get_or_insert_with(|| answer.clone());
        }
    }

    /// Looks a refund up by the caller's own reference, as the provider's status service does. Changes nothing.
    ///
    /// # Errors
    /// The service is down: nothing is known of the refund, not even that there is none.
    pub fn look_up(&self, reference: &str) -> Result<Option<Refund>, Down> {
        if self.ledger().status_down { Err(Down) } else { Ok(self.find(reference)) }
    }

    /// The first refund in the ledger for a reference.
    pub fn find(&self, reference: &str) -> Option<Refund> {
        self.ledger().refunds.iter().find(|refund| refund.payment.reference == reference).cloned()
    }

    /// The requests that arrived for a reference.
    pub fn requests(&self, reference: &str) -> Vec<Request> {
        let ledger = self.ledger();
        ledger.requests.iter().filter(|request| request.payment.reference == reference).cloned().collect()
    }

    /// The refunds that were made for a reference.
    pub fn refunds(&self, reference: &str) -> Vec<Refund> {
        let ledger = self.ledger();
        ledger.refunds.iter().filter(|refund| refund.payment.reference == reference).cloned().collect()
    }

    /// All requests that arrived.
    pub fn all_requests(&self) -> usize {
        self.ledger().requests.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment() -> Payment {
        Payment { reference: "op".to_owned(), amount: "120.00".to_owned() }
    }

    /// The ledger can tell one refund from two: every test that counts them relies on it.
    #[tokio::test]
    async fn a_key_is_recognised_until_it_is_pruned() {
        let provider = Provider::default();
        let first = provider.refund("a1", &payment()).await;
        assert_eq!(provider.refund("a1", &payment()).await, first);
        assert_eq!((provider.requests("op").len(), provider.refunds("op").len()), (2, 1));
        let other = Payment { amount: "999.00".to_owned(), ..payment() };
        assert_eq!(provider.refund("a1", &other).await, Answer::of(400, Says::RejectedBeforeExecution, None));
        provider.pass(KEYS_KEPT - Duration::from_secs(1));
        assert_eq!(provider.refund("a1", &payment()).await, first, "inside the window");
        provider.pass(Duration::from_secs(1));
        assert_ne!(provider.refund("a1", &payment()).await, first);
        provider.refund("a2", &payment()).await;
        assert_eq!((provider.requests("op").len(), provider.refunds("op").len()), (6, 3));
        assert!(provider.find("op").is_some_and(|refund| refund.id == "re_1") && provider.find("other").is_none());
    }

    #[tokio::test]
    async fn it_calls_back_and_its_status_service_may_be_down() {
        let provider = Provider::default();
        provider.refund("a1", &payment()).await;
        provider.refund("a2", &payment()).await;
        provider.status_is_down(true);
        assert_eq!(provider.look_up("op"), Err(Down));
        provider.status_is_down(false);
        assert!(matches!(provider.look_up("op"), Ok(Some(refund)) if refund.id == "re_1"));
        assert_eq!(provider.look_up("other"), Ok(None));
        let ids: Vec<_> = provider.callbacks().into_iter().map(|refund| refund.id).collect();
        assert_eq!(ids, ["re_2", "re_2", "re_1", "re_1"]);
        assert!(provider.callbacks().is_empty());
    }

    #[tokio::test]
    async fn an_answer_is_lost_held_or_a_rejection() {
        let provider = Provider::default();
        provider.lose_next_answer();
        assert_eq!(provider.refund("a1", &payment()).await, Answer { send: Send::Lost, id: None });
        assert_eq!(provider.refunds("op").len(), 1);
        let mut hold = provider.hold_next_answer();
        let held = tokio::spawn({
            let provider = provider.clone();
            async move { provider.refund("a2", &payment()).await }
        });
        hold.arrived().await;
        assert_eq!(provider.refund("a2", &payment()).await, Answer::of(409, Says::StillProcessing, None));
        hold.release();
        assert_eq!(held.await.unwrap().id.as_deref(), Some("re_2"));
        provider.reject_next();
        let rejected = provider.refund("a3", &payment()).await;
        assert_eq!(rejected, Answer::of(402, Says::RejectedBeforeExecution, None));
        assert_eq!(provider.refund("a3", &payment()).await, rejected, "a saved error is answered again");
        assert_eq!(provider.refunds("op").len(), 2);
    }
}
